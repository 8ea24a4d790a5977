"""Random notebooks in a real kernel, and whether each return gave what was there: `python tests/oracle.py --help`.

Rule 1: the kernel is used by its doors alone: it executes cells and `%ctx` commands, and prints.
Rule 2: what should be there is known by other means: a snapshot (`oracle_graph`) taken after each cell, and a forked
        twin of the process, which goes on from a state by running the later cells without ctxkernel.
Rule 3: a return is wrong where a name differs and the return's text does not name it. Naming is no excuse for what was
        live and equal, nor for an undo straight after a move.
Rule 4: each program runs in a process of its own, forked from one that has imported everything: programs do not meet.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import builtins
import contextlib
import dataclasses
import gc
import importlib
import io
import json
import os
import pickle
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

import oracle_graph
from oracle_graph import Snapshot, Tags, differences, stored
from oracle_programs import Cell, Goto, Program, Resume, Undo, program
from told import named_by
from warm import CELLS, START

Kind = Literal["wrong", "destroyed", "undo", "refused", "later", "dry run", "contradiction", "fault", "hang"]
KINDS: dict[Kind, str] = {
    "wrong": "a return left a name different from its state, and did not name it",
    "destroyed": "a name that was live and equal to the target is gone or different after the return",
    "undo": "an undo straight after a move did not give back what was there before the move",
    "refused": "a refused return changed something",
    "later": "a return looked right, and the cells after it gave another result than without the return",
    "dry run": "a dry run changed something",
    "contradiction": "a plan says of one name that it comes back and that it does not",
    "fault": "the kernel told a fault of its own, or died",
    "hang": "the program did not end",
}
HERE = Path(__file__).parent
LIMIT_SECONDS = 60.0
WARM_UP_SECONDS = 600.0
"""For the imports of all libraries, on a machine that may be busy."""
PART = 500
"""So many programs are given to a process at a time."""
TWINS_EACH = 4
"""One of so many programs has twins: a fork costs as much as several cells."""
_IGNORED: set[str] = set()
_HIDDEN = re.compile(r"_i+|_i?\d+|_dh|_oh|_ih|__?_?|__\w+__")
_FAULT = re.compile(
    r"is off|switched off|could not be prepared|Traceback|^ctxkernel: .*(?:Error|Exception)", re.MULTILINE
)


@dataclasses.dataclass(frozen=True)
class Failure:
    """A program that showed something wrong."""

    kind: Kind
    at: int
    """The step."""
    told: tuple[str, ...]
    """What differs."""
    printed: str = ""
    """What the command printed."""

    def text(self) -> str:
        """Return it for people."""
        lines = [f"{self.kind}: {KINDS[self.kind]}", *(f"  {one}" for one in self.told)]
        return "\n".join([*lines, *(f"  | {line}" for line in self.printed.splitlines()[:8])])


@dataclasses.dataclass
class Outcome:
    """What one program gave."""

    failure: Failure | None = None
    returns: int = 0
    named: dict[str, str] = dataclasses.field(default_factory=dict)
    """Kind of a program, and the first line that named something where all that is in it has a stored form."""
    compared: int = 0
    """Names compared after returns …"""
    exempt: int = 0
    """… those left out since they were named, and …"""
    needless: int = 0
    """… of these, those of programs in which everything has a stored form."""
    refusals: int = 0


# -- a kernel in this process ----------------------------------------------------------------------


class Kernel:
    """A stock kernel in this process, with ctxkernel loaded into it by `switch_on`, as `%load_ext` does."""

    def __init__(self) -> None:
        from ipykernel.inprocess.ipkernel import InProcessKernel
        from ipykernel.inprocess.socket import DummySocket
        from ipykernel.iostream import IOPubThread
        from jupyter_client.session import Session
        from traitlets.config import Config

        sent = self._sent = io.StringIO()

        class Wire(Session):
            """Keeps the texts of what would go to a front end."""

            def send(self, stream: Any, msg_or_type: Any, content: Any = None, *args: Any, **options: Any) -> Any:
                kind = msg_or_type["header"]["msg_type"] if isinstance(msg_or_type, dict) else msg_or_type
                content = msg_or_type["content"] if isinstance(msg_or_type, dict) else content
                if kind == "stream":
                    sent.write(content["text"])

        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.xmode = "Minimal"
        config.InteractiveShell.cache_size = 1000
        wire = Wire(key=b"oracle")
        thread = IOPubThread(DummySocket(), pipe=False, session=wire)
        self.kernel = InProcessKernel(config=config, session=wire, iopub_thread=thread)
        self.names: dict[str, Any] = self.kernel.shell.user_ns
        self.pending: list[tuple[threading.Event, threading.Thread]] = []
        """Threads that cells started, which do something when the cell has ended: once their event is set."""

    def switch_on(self) -> None:
        """Load ctxkernel."""
        from ctxkernel.kernel.extension import load_ipython_extension

        for name in (
            "oracle",
            "oracle_graph",
            "oracle_programs",
            "told",
            "late_packs",
        ):  # beside an editable install: not the user's
            if name in sys.modules:
                sys.modules[name].__file__ = "<oracle>"
        asyncio.set_event_loop(asyncio.new_event_loop())
        sys.stdout = sys.stderr = self._sent
        builtins.later = self._later  # type: ignore[attr-defined]
        load_ipython_extension(self.kernel.shell)
        self.first = set(self.names)

    def run(self, source: str) -> tuple[str, str]:
        """Execute a cell; returns the reply's status, and what it printed or the error's text."""
        self._sent.seek(0)
        self._sent.truncate()
        loop = asyncio.get_event_loop()
        reply = loop.run_until_complete(self.kernel.do_execute(source, False, True))
        printed = self._sent.getvalue()
        if reply["status"] != "ok":
            printed += f"{reply.get('ename')}: {reply.get('evalue')}"
        return reply["status"], printed

    def _later(self, action: Callable[[], Any]) -> None:
        """Do something in a thread when the cell has ended."""
        go = threading.Event()

        def wait() -> None:
            go.wait()
            with contextlib.suppress(Exception):  # a program's own fault: its cells show what came of it
                action()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        self.pending.append((go, thread))

    def let_threads_run(self) -> bool:
        """Let the threads go on that cells started, up to their ends. Returns whether there were any."""
        pending, self.pending[:] = list(self.pending), []
        for go, thread in pending:
            go.set()
            thread.join()
        return bool(pending)

    def roots(self, *, outputs: bool = True) -> dict[str, Any]:
        """Return the names of the user, and the entries of `Out`."""
        found = {
            name: value for name, value in self.names.items() if name not in self.first and not _HIDDEN.fullmatch(name)
        }
        if outputs:
            found |= {f"Out[{number}]": value for number, value in self.names.get("_oh", {}).items()}
            found |= {
                name: self.names[name] for name in ("_", "__", "___") if not isinstance(self.names.get(name, ""), str)
            }
        return {name: value for name, value in found.items() if name not in _IGNORED}


# -- one program -----------------------------------------------------------------------------------


class _Found(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


@dataclasses.dataclass
class Known:
    """What a program's first kernel hands to the next one."""

    states: dict[int, Snapshot] = dataclasses.field(default_factory=dict)
    """Cell → what was there after it."""
    places: dict[int, str] = dataclasses.field(default_factory=dict)
    """Cell → its statement."""
    last: tuple[Snapshot, ...] = ()
    outcome: Outcome = dataclasses.field(default_factory=Outcome)


class Run:
    """A program under way, up to its end or to the next kernel."""

    def __init__(self, kernel: Kernel, todo: Program, known: Known, *, twins: bool, sabotage: str) -> None:
        self._kernel, self._program, self._known, self._twins = kernel, todo, known, twins
        self._sabotage = sabotage
        self._tags = Tags()
        self._targets = {step.key for step in todo.steps if isinstance(step, Goto)}
        self._twinned = {
            step.key
            for step, following in zip(todo.steps, todo.steps[1:], strict=False)
            if isinstance(step, Goto)
            and isinstance(following, Cell)
            and twins
            and not todo.unstored
            and not todo.threads
        }
        """States whose twin is asked: without threads and what has only its identity, which a twin cannot share."""
        self._remade: set[str] = set()
        """Names without a stored form that a return made again: they are other objects than those of the states."""
        self._twin: Twin | None = None
        """A process that is to stay like this one."""
        self._trail: list[tuple[Snapshot, ...]] = []
        """What was there before each step that can be undone, and after the cell before it."""
        self._live: Snapshot | None = None
        """What is there now …"""
        self._settled: Snapshot | None = None
        """… and was there when the last step ended: threads run on."""
        self._ready: dict[int, Twin] = {}

    def snapshot(self, *, outputs: bool = True) -> Snapshot:
        """Return what is there now."""
        kernel = self._kernel
        return oracle_graph.snapshot(kernel.roots(outputs=outputs), kernel.names, self._tags, os.getcwd())

    def run(self, start: int) -> int:
        """Take the steps from `start`; returns the first one that another kernel has to take, or how many there are."""
        steps = self._program.steps
        for at in range(start, len(steps)):
            step = steps[at]
            if isinstance(step, Resume) and at != start:
                self._known.last = tuple(filter(None, (self._settled, self._live)))
                return at
            if isinstance(step, Cell):
                self._cell(at, step)
            elif isinstance(step, Resume):
                self._resume(at)
            else:
                self._move(at, step)
        return len(steps)

    def _cell(self, at: int, step: Cell) -> None:
        before = self._live or self.snapshot()
        _, printed = self._kernel.run(step.source)
        if _FAULT.search(printed) and "ctxkernel" in printed:
            raise _Found(Failure("fault", at, (printed,)))
        after = self.snapshot()
        self._trail.append((before, self._settled or before))
        self._known.states[step.key] = after
        if step.key in self._targets:
            self._known.places[step.key] = self._head()
        if self._twin is not None:
            self._hold_to_twin(at, step)
        if step.key in self._twinned and step.key not in self._ready:
            self._ready[step.key] = Twin(self)
        self._drift(after)

    def begin_twin(self) -> None:
        """Forget what threads will do after this state: it is no part of it."""
        self._kernel.pending.clear()

    def go_on(self, source: str) -> Snapshot:
        """Run a cell without ctxkernel, in a twin."""
        self._kernel.kernel.shell.run_cell(source, store_history=True)
        there = self.snapshot(outputs=False)
        self._kernel.let_threads_run()
        return there

    def _hold_to_twin(self, at: int, step: Cell) -> None:
        assert self._twin is not None
        then = self._twin.run(step.source)
        told = differences(then, self.snapshot(outputs=False)) if then is not None else ()
        if told:
            raise _Found(Failure("later", at, tuple(map(str, told))))

    def _drift(self, there: Snapshot) -> None:
        self._settled = there
        self._live = self.snapshot() if self._kernel.let_threads_run() else there

    def _head(self) -> str:
        """Return the statement that has just run."""
        _, printed = self._kernel.run("%ctx branches --json")
        return next(one["leaf"] for one in json.loads(printed) if one["head"])

    def _resume(self, at: int) -> None:
        if not self._known.last:  # nothing ran before: there is nothing to resume
            return
        before = self.snapshot()
        status, printed = self._kernel.run("%ctx resume")
        self._live = self._settled = self._judge(at, printed, status, before, self._known.last)

    def _move(self, at: int, step: Goto | Undo) -> None:
        before = self._live
        assert before is not None
        undo = isinstance(step, Undo)
        if undo and not self._trail:
            return
        if not undo and step.key not in self._known.places:
            return
        then = self._trail.pop() if undo else (self._known.states[step.key],)
        command = "%ctx undo" if undo else f"%ctx goto {self._known.places[step.key]}"
        self._twin = None
        plan = self._dry(at, command, before) if not undo and step.dry else None
        status, printed = self._kernel.run(command)
        if self._sabotage:
            exec(self._sabotage, self._kernel.names)
        straight = undo and at > 0 and isinstance(self._program.steps[at - 1], Goto)
        now = self._judge(at, printed, status, before, then[:1] if straight else then, straight=straight)
        if plan is not None:
            self._hold_to(at, plan, printed)
        if not undo:
            self._trail.append((before,))
            named = named_by(printed, {*then[0].roots, *now.roots})
            stays = "loaded later, and as it is now" in printed  # an import finds the module as it is
            self._twin = self._ready.pop(step.key, None) if not named and not stays else None
        self._drift(now)

    def _dry(self, at: int, command: str, before: Snapshot) -> Mapping[str, Any] | None:
        _, printed = self._kernel.run(f"{command} --dry-run --json")
        told = differences(before, self.snapshot())
        if told:
            raise _Found(Failure("dry run", at, tuple(map(str, told)), printed))
        with contextlib.suppress(ValueError):
            return json.loads(printed)
        return None

    def _hold_to(self, at: int, plan: Mapping[str, Any], printed: str) -> None:
        comes = {name for one in plan.get("load", ()) for name in one["names"]} | set(plan.get("keep", ()))
        both = sorted(comes & set(plan.get("lost", ())))
        if both:
            raise _Found(Failure("contradiction", at, (f"{both} are kept or loaded, and lost",), printed))

    def _judge(
        self,
        at: int,
        printed: str,
        status: str,
        before: Snapshot,
        each: tuple[Snapshot, ...],
        *,
        straight: bool = False,
    ) -> Snapshot:
        """Compare what is there with what should be, one of `each`; raises what is wrong."""
        outcome = self._known.outcome
        outcome.returns += 1
        now = self.snapshot()
        if status != "ok":
            outcome.refusals += 1
            told = differences(before, now)
            if told:
                raise _Found(Failure("refused", at, tuple(map(str, told)), printed))
            if re.search(r"could not be prepared|Error: (?!CtxError)", printed):
                raise _Found(Failure("fault", at, (), printed))
            raise _Stop
        names = {*now.roots}.union(*(one.roots for one in each))
        named = named_by(printed, names)
        if any(name.startswith("Out[") for name in named):  # these are other names of entries of Out
            named |= {name: "" for name in ("_", "__", "___") if name in names and name not in named}
        then = next((one for one in each if not differences(one, now, exempt=named)), each[0])
        kept = self._made_again(at, then, now) if straight else set[str]()
        if straight:  # an empty cache of a function is right in any state
            told = differences(then, now)
            told = [one for one in told if "lru_cache" not in str(one) and one.root not in kept]
            if told:
                raise _Found(Failure("undo", at, tuple(map(str, told)), printed))
        told = differences(then, now, exempt={*named, *kept})
        # A cleared cache is told by the names of functions, not by those of results.
        if straight or "cleared the cache of" in printed:
            told = [one for one in told if "lru_cache" not in str(one)]
        if "as it is now: module helper" in printed:  # it is told by its name, not by those of its functions
            told = [one for one in told if "(module)" not in str(one)]
        if told:
            raise _Found(Failure("wrong", at, tuple(map(str, told)), printed))
        outcome.compared += len(names)
        outcome.exempt += len(named)
        # An empty cache of a function is right in any state.
        lines = {name: line for name, line in named.items() if "cleared the cache of" not in line}
        outcome.needless += 0 if self._program.unstored else len(lines)
        remade = set(self._remade)
        for made in re.findall("made again: (.+) by ", printed):
            self._remade.update(made.split(", "))
        for name, line in lines.items():
            unknown = "as it was last known" in line  # what is not known is loaded, never kept
            live = name in before.roots and name in then.roots and name not in remade and not unknown
            if live and not differences(then, before, only=[name]):
                told = differences(then, now, only=[name])
                if told:
                    raise _Found(Failure("destroyed", at, tuple(map(str, told)), printed))
            if not self._program.unstored:
                outcome.named.setdefault(re.sub(r"\W?\b[a-h]\b\W?", " X ", line)[:160], self._program.text())
        return now

    def _made_again(self, at: int, then: Snapshot, now: Snapshot) -> set[str]:
        """Return what a resume could not bring back, and the move that is undone made again: the state has it."""
        if at < 2 or not isinstance(self._program.steps[at - 2], Resume):
            return set()
        was = self._known.last[0]
        back = [name for name in now.roots if name in was.roots and name not in then.roots]
        return {name for name in back if not stored(was, name) or not differences(was, now, only=[name])}


class _Stop(Exception):
    pass


class Twin:
    """A fork of this process at a state: it runs cells without ctxkernel and says what they gave."""

    def __init__(self, run: Run) -> None:
        reads, answers = os.pipe()
        asked, self._ask = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(reads)
            os.close(self._ask)
            try:
                run.begin_twin()
                with os.fdopen(asked, "rb") as questions, os.fdopen(answers, "wb") as end:
                    while True:
                        pickle.dump(run.go_on(pickle.load(questions)), end, protocol=5)
                        end.flush()
            finally:
                os._exit(0)
        os.close(asked)
        os.close(answers)
        self._answers = os.fdopen(reads, "rb")

    def run(self, source: str) -> Snapshot | None:
        """Return what is there after a cell; None where the twin has died."""
        try:
            os.write(self._ask, pickle.dumps(source))
            return pickle.load(self._answers)
        except (OSError, EOFError):
            return None


# -- many programs ---------------------------------------------------------------------------------


LIBRARIES = (
    *("pandas", "sklearn.linear_model", "sklearn.tree", "sklearn.preprocessing", "ipywidgets", "matplotlib.figure"),
    "matplotlib.backends.backend_agg",
)
"""What programs import, and takes long."""


class Bench:
    """A process that has imported everything, and forks one for each program."""

    def __init__(self, folder: Path, *, twins: bool, late: float = 0.0) -> None:
        self._folder, self._twins, self._late = folder, twins, late
        sys.dont_write_bytecode = True
        importlib.import_module("ctxkernel.kernel.extension")
        _hide_own_modules()
        self._kernel = Kernel()
        self._count = 0
        self._warm_up()

    def _warm_up(self) -> None:
        """Import here what a kernel imports on the way, so that no program has to."""
        steps = (
            Cell(1, "import numpy as np\nimport pandas as pd\nx = [1]; f = pd.DataFrame({'a': [1]})\nx"),
            Cell(2, "x.append(2); f.loc[0, 'a'] = 3; y = (i for i in x)"),
            Cell(3, "import sklearn.linear_model, sklearn.tree, sklearn.preprocessing, ipywidgets; 1 / 0"),
            Cell(4, "from matplotlib.figure import Figure; g = Figure(); g.subplots().plot([1])"),
            Goto(1, dry=True),
            Undo(),
            Resume(),
            Goto(1, dry=True),
        )
        for name in (*LIBRARIES, *START, *CELLS):  # else the program below imports them in a fork, and then we do
            importlib.import_module(name)
        gc.freeze()
        modules: list[str] = []
        outcome = self.play(Program(0, steps), modules=modules, limit=WARM_UP_SECONDS)
        if outcome.failure is not None:
            raise RuntimeError(f"the program that warms up failed: {outcome.failure.text()}")
        for name in modules:
            if name not in sys.modules and name != "helper":
                with contextlib.suppress(Exception):  # it is imported later then, by the program that needs it
                    importlib.import_module(name)
        _hide_own_modules()
        from ctxkernel.state.base.own_modules import loaded_own_modules

        loaded_own_modules()  # judges each module once for all programs
        gc.collect()
        gc.freeze()  # else the first collection of each fork copies all of it

    def play(
        self,
        todo: Program,
        *,
        sabotage: str = "",
        modules: list[str] | None = None,
        limit: float = LIMIT_SECONDS,
    ) -> Outcome:
        """Run a program, in processes of its own, each for at most `limit` seconds.

        `sabotage` spoils each return; `modules` takes what was imported.
        """
        self._count += 1
        folder = self._folder / f"{os.getpid()}-{self._count}"
        folder.mkdir()
        known, at = Known(), 0
        try:
            while at < len(todo.steps):
                answer = _in_a_fork(lambda k=known, a=at: self._take(todo, k, a, folder, sabotage), limit)
                if isinstance(answer, Failure):
                    known.outcome.failure = answer
                    break
                known, at, imported = answer
                if modules is not None:
                    modules += imported
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return known.outcome

    def _take(self, todo: Program, known: Known, at: int, folder: Path, sabotage: str) -> tuple[Known, int, list[str]]:
        """Take steps of a program in this process, which ends with them."""
        os.chdir(folder)
        sys.path[:0] = [""]
        os.environ["JPY_SESSION_NAME"] = str(folder / "note.ipynb")
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        twins = self._twins or todo.seed % TWINS_EACH == 0
        if self._late:
            _let_packs_be_late(random.Random(todo.seed), self._late)
        run = Run(self._kernel, todo, known, twins=twins, sabotage=sabotage)
        self._kernel.switch_on()
        try:
            at = run.run(at)
        except _Found as found:
            known.outcome.failure = found.failure
            at = len(todo.steps)
        except _Stop:
            at = len(todo.steps)
        if at == len(todo.steps):
            return Known(outcome=known.outcome), at, list(sys.modules)
        atexit._run_exitfuncs()  # as a kernel that ends well
        return known, at, list(sys.modules)


def _hide_own_modules() -> None:
    """Remove `__file__` from the modules of this folder: ctxkernel would store them as modules of the user.

    That takes 40 % of the processor time of a program, and a return could restore the oracle's own variables.
    """
    for module in list(sys.modules.values()):
        if Path(getattr(module, "__file__", None) or "").parent == HERE:
            module.__file__ = None


def _let_packs_be_late(choices: random.Random, share: float) -> None:
    """Let some of the packs that have a bound of time run out of it, chosen by the seed and not by the load."""
    from late_packs import late_if

    from ctxkernel.state.tracking.groups import Moment

    Moment._pack = late_if(lambda: choices.random() < share)


def _in_a_fork(action: Callable[[], Any], limit: float = LIMIT_SECONDS) -> Any:
    """Return what `action` returns in a fork of this process, or the failure that ended it."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        try:
            told = pickle.dumps(action(), protocol=5)
        except BaseException:
            told = pickle.dumps(Failure("fault", -1, ("the oracle itself failed", traceback.format_exc()[-3000:])))
        try:
            with os.fdopen(writes, "wb") as end:
                end.write(told)
        finally:
            os._exit(0)
    os.close(writes)
    parts: list[bytes] = []
    end = time.monotonic() + limit
    try:
        while True:
            ready, _, _ = select.select([reads], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                os.kill(pid, signal.SIGKILL)
                return Failure("hang", -1, (f"no end within {limit:g} s",))
            part = os.read(reads, 1 << 20)
            if not part:
                break
            parts.append(part)
    finally:
        os.close(reads)
        _, status = os.waitpid(pid, 0)
    if not parts:
        return Failure("fault", -1, (f"the process ended with status {status}",))
    return pickle.loads(b"".join(parts))


def shrink(bench: Bench, todo: Program, failure: Failure, *, tries: int = 120) -> tuple[Program, Failure]:
    """Return the smallest program found that fails in the same way."""
    again = True
    while again and tries > 0:
        again = False
        for smaller in todo.smaller():
            tries -= 1
            found = bench.play(smaller).failure
            if found is not None and found.kind == failure.kind:
                todo, failure, again = smaller, found, True
                break
            if tries <= 0:
                break
    return todo, failure


def signature(failure: Failure) -> str:
    """Return what failures of one cause have in common, roughly: kinds and types, without names and values."""
    told = re.sub(r"^\w+", "NAME", failure.told[0]) if failure.told else ""
    return f"{failure.kind} {_VALUES.sub('', told)[:90]}"


_VALUES = re.compile(r"b?'[^']*'|\S*…\S*|[0-9.]+")


@contextlib.contextmanager
def bench(*, twins: bool = False, late: float = 0.0) -> Iterator[Bench]:
    """Give a bench in folders of its own."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="oracle-", dir=base))
    names = ("IPYTHONDIR", "CTXKERNEL_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR", "JUPYTER_RUNTIME_DIR")
    for name in names:
        os.environ[name] = str(folder / name.lower())
        (folder / name.lower()).mkdir()
    out = sys.stdout, sys.stderr
    try:
        yield Bench(folder, twins=twins, late=late)
    finally:
        sys.stdout, sys.stderr = out
        shutil.rmtree(folder, ignore_errors=True)


def _cpu() -> float:
    """Return the seconds of processor time of this process and of those that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@dataclasses.dataclass
class Told:
    """What many programs gave."""

    programs: int = 0
    returns: int = 0
    names: int = 0
    named: int = 0
    named_though_storable: int = 0
    refused: int = 0
    failed: int = 0
    cpu_seconds: float = 0.0
    kinds: dict[str, int] = dataclasses.field(default_factory=dict)
    failures: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Those that look different; the first ones as few cells."""
    examples_of_named: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Told) -> None:
        """Take in what another process gave."""
        for field in dataclasses.fields(self):
            here, there = getattr(self, field.name), getattr(other, field.name)
            if isinstance(here, dict):
                here = {kind: here.get(kind, 0) + there.get(kind, 0) for kind in {**here, **there}}
            else:
                here = here + there
            setattr(self, field.name, here)
        self.failures = list({one["sign"]: one for one in reversed(self.failures)}.values())[::-1]

    def count(self, outcome: Outcome) -> None:
        """Take in what one program gave."""
        self.programs += 1
        self.returns += outcome.returns
        self.names += outcome.compared
        self.named += outcome.exempt
        self.named_though_storable += outcome.needless
        self.refused += outcome.refusals
        self.examples_of_named += [line for line in outcome.named if line not in self.examples_of_named][:1]
        if outcome.failure is not None:
            self.failed += 1
            self.kinds[outcome.failure.kind] = self.kinds.get(outcome.failure.kind, 0) + 1


def run_seeds(seeds: range, *, twins: bool, late: float, shrinks: int, aloud: bool) -> Told:
    """Run the programs of these seeds; the first `shrinks` failures that look different are shrunk."""
    told = Told()
    signs: set[str] = set()
    with bench(twins=twins, late=late) as ready:
        for seed in seeds:
            todo = program(seed)
            begun = _cpu()
            outcome = ready.play(todo)
            told.cpu_seconds += _cpu() - begun
            told.count(outcome)
            if outcome.failure is None or (sign := signature(outcome.failure)) in signs:
                continue
            signs.add(sign)
            small, failure = todo, outcome.failure
            if len(signs) <= shrinks:
                small, failure = shrink(ready, todo, failure)
            told.failures.append({"seed": seed, "sign": sign, "cells": small.text(), "text": failure.text()})
            if aloud:
                print(f"--- seed {seed}\n{small.text()}\n=> {failure.text()}\n", flush=True)
    return told


def _elsewhere(seeds: range, given: argparse.Namespace) -> Told:
    """Run the programs of these seeds in another interpreter."""
    seed = ["--seed", str(seeds.start), "--programs", str(len(seeds)), "--shrink", str(given.shrink)]
    options = ["--json", "--ignore", given.ignore, *["--twins"] * given.twins, "--late", str(given.late)]
    ran = subprocess.run([sys.executable, __file__, *seed, *options], stdout=subprocess.PIPE, text=True, check=False)
    return Told(**json.loads(ran.stdout))


def main() -> int:
    """Run programs; the exit status is 1 where one was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first program; the next one has the next")
    parser.add_argument("--show", action="store_true", help="print each program before it runs")
    parser.add_argument(
        "--shrink",
        type=int,
        default=20,
        help="how many failures that look different are shrunk; later ones are printed as they are",
    )
    parser.add_argument("--twins", action="store_true", help="hold the cells after each return to a forked twin")
    parser.add_argument(
        "--late", type=float, default=0.0, help="let this share of the packs run out of time, as on a busy machine"
    )
    parser.add_argument("--ignore", default="", help="names that are left out, with commas: to look past a failure")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes share the programs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    _IGNORED.update(filter(None, given.ignore.split(",")))
    seeds = range(given.seed, given.seed + given.programs)
    if given.show:
        for seed in seeds:
            print(f"--- seed {seed}\n{program(seed).text()}\n", flush=True)
    if given.jobs > 1:
        told = Told()
        with ThreadPoolExecutor(given.jobs) as pool:
            parts = [seeds[at : at + PART] for at in range(0, len(seeds), PART)]
            for part in pool.map(lambda one: _elsewhere(one, given), parts):
                for one in part.failures:
                    if one["sign"] not in {other["sign"] for other in told.failures}:
                        print(f"--- seed {one['seed']}\n{one['cells']}\n=> {one['text']}\n", flush=True)
                told.add(part)
    else:
        told = run_seeds(seeds, twins=given.twins, late=given.late, shrinks=given.shrink, aloud=not given.json)
    if given.json:
        print(json.dumps(dataclasses.asdict(told)))
    else:
        plain = dataclasses.asdict(told)
        print("  ".join(f"{name}: {plain[name]}" for name in plain if name not in ("failures", "examples_of_named")))
        for line in told.examples_of_named[:20]:
            print("named though storable:", line)
    return 1 if told.failed else 0


if __name__ == "__main__":
    # Of the module, not of `__main__`: that is the user's as soon as there is a kernel, and pickle would look there.
    from oracle import main as run

    sys.exit(run())
