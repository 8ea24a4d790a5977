"""Kernels to which faults happen, and an oracle of what their namespace was after each cell.

    python tests/fault_machine.py --programs 500 [--seed N]     faults of steps, signals and data, at random
    python tests/fault_machine.py --steps                       each step of a turn failing once at each cell
    python tests/fault_machine.py --kills 1000                  kernels that are killed by SIGKILL while they work

Each program runs in a fork of this process, in a kernel without sockets. A cell's namespace is written down by other
means (`canonical`) before the end phase. Afterwards every `%ctx goto` has to be right, but for the names that it says
are not restored, or refused with the namespace as it was; and a name that is not restored had no equal value alive.
Prints one line of JSON; the exit status is 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gc
import importlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import warm

from ctxkernel.core.loop import Loop
from ctxkernel.core.steps import no_guard, run_steps
from ctxkernel.kernel.turn.turns import Turns

LEAVES_WHOLE = True
"""Whether a move may leave a state whose checkpoint was skipped, with nothing of it lost."""
NAMES = ("a", "b", "c", "d", "n", "arr")
STEPS = (
    *(f"turns.BEGIN.{number}" for number in range(len(Turns.BEGIN))),
    *(f"turns.END.{number}" for number in range(len(Turns.END))),
    *(f"loop.END.{number}" for number in range(len(Loop.END))),
    "tracker.before",
    "returning.take",
    "returning.comparisons.compare",
    "returning.checkpoints.poll",
    "store.begin",
    "store.end",
    "loop.begin",
    "loop.end",
    "configuration.project",
    "configuration.tend",
    "timeout.start",
)
"""All rows of the tables of a turn, and what some of them call."""
CELLS = (
    "a = [1, 2]; b = {'a': a}; n = 0",
    "a.append(n); n += 1",
    "c = (a, [n]); n += 1",
    "b['more'] = c[1]; c[1].append('x')",
    "import numpy; arr = numpy.arange(20_000) + n",
    "arr[n] = -n; n += 1",
    "d = {'arr': arr[10:20], 'c': c}",
    "del b['more']; a.reverse()",
    "b = {'new': a}; n = 5",
    "a[0] = 'changed in place'",
    "c[1].extend(range(n))",
    "pass",
)


# -- what a namespace is ---------------------------------------------------------------------------


def canonical(values: dict[str, Any]) -> str:
    """Return a text that is equal for equal values that share the same objects."""
    seen: dict[int, int] = {}

    def walk(value: Any) -> Any:
        if value is None or isinstance(value, (int, str)):
            return repr(value)
        if id(value) in seen:
            return f"#{seen[id(value)]}"
        seen[id(value)] = len(seen)
        if isinstance(value, dict):
            return {"dict": [[walk(key), walk(item)] for key, item in value.items()]}
        if isinstance(value, (list, tuple)):
            return {type(value).__name__: [walk(item) for item in value]}
        shares = "" if value.base is None else f" of {walk(value.base)}"
        return f"array {value.dtype} {value.shape} {hash(value.tobytes())}{shares}"

    return json.dumps({name: walk(values[name]) for name in sorted(values)})


class Seen:
    """What the namespace was: as a whole, and name by name."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        import copy

        self.values = copy.deepcopy({name: namespace[name] for name in NAMES if name in namespace})

    def but(self, lost: set[str]) -> str:
        """Return it without some names."""
        return canonical({name: value for name, value in self.values.items() if name not in lost})


# -- a kernel in this process ----------------------------------------------------------------------


def make_kernel() -> Any:
    """Return a kernel without sockets and threads that matter, its session not begun."""
    from ipykernel.inprocess.ipkernel import InProcessKernel
    from traitlets.config import Config

    from ctxkernel.kernel import runtime  # noqa: F401
    from ctxkernel.kernel.app import CtxKernelMixin
    from ctxkernel.kernel.commands import magics, navigation  # noqa: F401
    from ctxkernel.kernel.returning import returns  # noqa: F401

    class Kernel(CtxKernelMixin, InProcessKernel):
        def send_response(self, stream: Any, kind: str, content: Any = None, **named: Any) -> Any:
            told.append((kind, content or {}))

    told: list[tuple[str, dict[str, Any]]] = []
    config = Config()
    config.HistoryManager.enabled = False
    kernel = Kernel(config=config)
    kernel.told = told
    return kernel


class Session:
    """A kernel whose session is in a folder."""

    def __init__(self, kernel: Any, folder: Path) -> None:
        from ctxkernel.kernel.app import start

        os.environ["CTXKERNEL_CACHE"] = str(folder / "cache")
        os.environ["JPY_SESSION_NAME"] = str(folder / "note.ipynb")
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as ipykernel has it between two requests
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        self.kernel, self.folder = kernel, folder
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        kernel.io_loop = None
        start(kernel)
        self.ctx = kernel.ctx
        self.namespace = kernel.shell.user_ns
        self.text = ""

    def run(self, code: str) -> dict[str, Any]:
        """Run a cell as a request does; returns its reply, and keeps what was told in `text`."""
        kernel = self.kernel
        kernel.told.clear()
        header = {"msg_id": os.urandom(8).hex(), "msg_type": "execute_request"}
        kernel.set_parent([], {"header": header, "content": {}, "metadata": {}}, "shell")

        async def request() -> dict[str, Any]:
            kernel.pre_handler_hook()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
            try:
                return await kernel.do_execute(code, False, True, {}, False, cell_meta={}, cell_id=None)
            finally:
                # Between two requests a handler that raises would raise in this module.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
                kernel.post_handler_hook()

        sink = io.StringIO()
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            reply = self.loop.run_until_complete(request())
        self.loop.run_until_complete(asyncio.sleep(0))  # what is done when the kernel is idle
        self.text = "".join(content.get("text", "") for kind, content in kernel.told if kind == "stream")
        return reply

    @property
    def last(self) -> Any:
        """The execution that ended last."""
        return self.ctx.turns.last.execution if self.ctx.turns.last is not None else None


# -- faults ----------------------------------------------------------------------------------------


class Sabotaged(RuntimeError):
    """A fault of ours."""


@contextlib.contextmanager
def failing(ctx: Any, step: str, *, after: bool) -> Iterator[None]:
    """Have a step raise the next time that it runs, before or after its work."""
    path, _, name = step.rpartition(".")
    owner = ctx
    for part in path.split("."):
        owner = getattr(owner, part)

    def once(*given: Any, **named: Any) -> Any:
        heal()
        if after:
            real(*given, **named)
        raise Sabotaged(step)

    if name.isdecimal():  # a row of a table
        table, number = owner, int(name)
        real = partial(run_steps, [replace(table[number], essential=True, gives="")], no_guard)
        owner, name = getattr(ctx, path.split(".")[0]), path.split(".")[1]
        broken: Any = (*table[:number], replace(table[number], run=once, when=""), *table[number + 1 :])
        heal = lambda: vars(owner).pop(name, None)  # noqa: E731
    else:
        real, broken = getattr(owner, name), once
        heal = lambda: setattr(owner, name, real)  # noqa: E731
    setattr(owner, name, broken)
    try:
        yield
    finally:
        heal()


def alarm(seconds: float) -> None:
    """Have a handler of the user's raise after so long: in this cell, or at the beginning of the next."""

    def handler(signum: int, frame: Any) -> None:
        raise TimeoutError("late")

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)


@contextlib.contextmanager
def interrupt(seconds: float) -> Iterator[None]:
    """Send SIGINT after so long."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@contextlib.contextmanager
def refusing(code: int) -> Iterator[None]:
    """Have the disk refuse every write of data."""
    from ctxkernel.store.chunks import packs

    real = packs.write_all

    def refuse(*given: Any) -> None:
        raise OSError(code, os.strerror(code))

    packs.write_all = refuse
    try:
        yield
    finally:
        packs.write_all = real


# -- programs --------------------------------------------------------------------------------------


class Program:
    """A random walk of cells, faults and returns, with its oracle."""

    def __init__(self, session: Session, chance: random.Random, kinds: tuple[str, ...]) -> None:
        self.session = session
        self.ctx = session.ctx
        self.chance = chance
        self.kinds = kinds
        self.states: dict[str, Seen] = {}
        """Execution → what the namespace was after it."""
        self.wrong: list[str] = []
        self.happened: list[str] = []

    def note(self, what: str) -> None:
        """Say what is done, for whoever reads what went wrong."""
        self.happened.append(what)

    def complain(self, what: str) -> None:
        """Note something that must not be."""
        self.wrong.append(f"{what}; after: {' | '.join(self.happened[-30:])}")

    def cell(self, code: str, fault: Any = None, *, may_fail: bool = False) -> None:
        """Run a cell while a fault happens, and write down what the namespace is."""
        self.note(code)
        before = len(self.ctx.loop.log)
        with fault or contextlib.nullcontext():
            reply = self.session.run(code)
        if reply["status"] != "ok" and not may_fail:
            self.complain(f"{code!r} failed: {reply.get('ename')}: {reply.get('evalue')}")
        last = self.ctx.loop.log.last
        if len(self.ctx.loop.log) > before and last is not None:
            (run,) = self.ctx.loop.log.executions(last.statement_id)
            self.states[run.execution_id] = Seen(self.session.namespace)
            if run.status != reply["status"] and not may_fail:
                self.complain(f"{code!r} ended as {reply['status']}, and the log has {run.status}")

    def random_cell(self) -> str:
        """Return a cell that runs without an error in the namespace of now."""
        while True:
            code = self.chance.choice(CELLS)
            needs = set(re.findall(r"\b(?:a|b|c|d|n|arr)\b", code)) if code != CELLS[0] else set()
            needs -= {"d"}
            if "b['more']" in code and "more" not in (self.session.namespace.get("b") or ()) and "del" in code:
                continue
            if code.startswith("import"):
                needs -= {"arr"}
            if code.startswith("c ="):
                needs -= {"c"}
            if code.startswith("b ="):
                needs -= {"b"}
            if needs <= self.session.namespace.keys():
                return code

    def step(self) -> None:
        """Do one thing."""
        kind = self.chance.choice((*self.kinds, "goto", "goto", "cell", "undo"))
        code, instant = self.random_cell(), self.chance.random() ** 2 * 0.02
        if kind == "step":
            name, after = self.chance.choice(STEPS), self.chance.random() < 0.5
            self.note(f"[{name} fails{' after its work' * after}]")
            self.cell(code, failing(self.ctx, name, after=after))
        elif kind == "alarm":
            self.note(f"[alarm in {instant:.4f}]")
            alarm(instant)
            self.cell(code, may_fail=True)
            self.cell(self.random_cell(), may_fail=True)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
        elif kind == "interrupt":
            self.note(f"[SIGINT in {instant:.4f}]")
            self.cell(code, interrupt(instant), may_fail=True)
        elif kind in ("full", "readonly"):
            self.note(f"[{kind}]")
            with refusing(errno.ENOSPC if kind == "full" else errno.EROFS):
                for _ in range(self.chance.randrange(1, 3)):
                    self.cell(self.random_cell())
                if self.chance.random() < 0.5:
                    self.goto()
        elif kind == "deleted":
            self.note("[the cache is deleted]")
            shutil.rmtree(self.session.folder / "cache", ignore_errors=True)
        elif kind == "thinned":
            self.note("[thinned]")
            self.thin()
        elif kind == "goto":
            self.goto()
        elif kind == "undo":
            self.undo()
        else:
            self.cell(code)

    def thin(self) -> None:
        """Have the kernel give up what is large and not of the present state, as it does when it rests."""
        settings = self.ctx.settings
        import dataclasses

        self.ctx.configuration.settings = dataclasses.replace(settings, quota_gb=1e-6)
        self.ctx.room.look(self.ctx.returning.checkpoints, self.ctx.returning.chunks)
        self.ctx.configuration.settings = settings

    def goto(self, fault: Any = None, *, may_fail: bool = True) -> None:
        """Go to a state of before, and look whether it is that one."""
        if self.states:
            where = self.chance.choice(list(self.states))
            self.move(f"%ctx goto {where}", where, fault)

    def undo(self) -> None:
        """Take back one step."""
        from ctxkernel.core.errors import BadCommand

        try:
            where, _ = self.ctx.returning.trail.undone(1)
        except BadCommand:
            return
        if where in self.states:
            self.move("%ctx undo", where)

    def move(self, command: str, where: str, fault: Any = None) -> None:
        """Go somewhere: it is right, or refused with a reason."""
        if not LEAVES_WHOLE and self.session.last is not None:
            info = self.ctx.health.info(self.session.last.execution_id)
            if self.ctx.loop.blind or (info is not None and info.state == "skipped"):
                self.cell("pass")
        self.note(command)
        before, target = Seen(self.session.namespace), self.states[where]
        with fault or contextlib.nullcontext():
            reply = self.session.run(command)
        now, told = Seen(self.session.namespace), self.session.text
        if reply["status"] != "ok":
            self.note(f"refused: {reply.get('evalue', '')[:200]}")
            if not reply.get("evalue") and reply.get("ename") != "KeyboardInterrupt":
                self.complain(f"{command} was refused without a reason")
            if now.but(set()) != before.but(set()) and "variables may have" not in reply.get("evalue", ""):
                self.complain(f"{command} was refused and changed the namespace: {reply}")
            return
        lost, as_now = (
            {re.match(r"\w+", place)[0] for place in re.findall(rf"{said}: (\S+)", told)}
            for said in ("not restored", "as it is now")
        )
        self.note(f"went{f', without {sorted(lost)}' if lost else ''}")
        named = lost | as_now
        if now.but(named) != target.but(named):
            said = f"{now.but(named)} and not {target.but(named)}"
            self.complain(f"{command} is not the state of {where}: {said}; {told}")
        for name in lost & before.values.keys() & target.values.keys():
            if canonical({name: before.values[name]}) == canonical({name: target.values[name]}):
                self.complain(f"{command} lost {name}, which was alive and equal; {told}")

    def finish(self) -> None:
        """Look at every state once more, and at what the log has."""
        for where in self.chance.sample(list(self.states), min(4, len(self.states))):
            self.move(f"%ctx goto {where}", where)


def play(kernel: Any, folder: Path, seed: int, kinds: tuple[str, ...], length: int) -> dict[str, Any]:
    """Play a random program; returns what was wrong."""
    program = Program(Session(kernel, folder), random.Random(seed), kinds)
    program.cell(CELLS[0])
    for _ in range(length):
        program.step()
    program.finish()
    return {"wrong": program.wrong, "states": len(program.states)}


def play_step(kernel: Any, folder: Path, step: str, at: int, *, after: bool) -> dict[str, Any]:
    """Have a step fail once, at the cell `at` of a fixed program; returns what was wrong."""
    program = Program(Session(kernel, folder), random.Random(at), ())
    for number, code in enumerate(CELLS[:8]):
        fault = failing(program.ctx, step, after=after) if number == at else None
        if fault is not None:
            program.note(f"[{step} fails{' after its work' * after}]")
        program.cell(code, fault)
    program.finish()
    return {"wrong": program.wrong, "states": len(program.states)}


def in_child(run: Callable[[], dict[str, Any]], seconds: float = 120) -> dict[str, Any]:
    """Do something in a fork; returns what it gave, or how it died."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(reads)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            try:
                result = run()
            except BaseException:
                result = {"wrong": [traceback.format_exc()]}
            with os.fdopen(writes, "w") as pipe:
                json.dump(result, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writes)
    timer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    timer.start()
    with os.fdopen(reads) as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    timer.cancel()
    timer.join()
    try:
        return json.loads(said)
    except ValueError:
        return {"wrong": [f"the process ended with {status} and said {said[:500]!r}"]}


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that goes, with a home of its own for the settings."""
    with tempfile.TemporaryDirectory(prefix="ctxkernel-faults-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def programs(kernel: Any, seeds: range, kinds: tuple[str, ...], length: int) -> list[str]:
    """Play random programs; returns what was wrong."""
    wrong: list[str] = []
    for seed in seeds:
        with scratch() as folder:
            found = in_child(lambda: play(kernel, folder, seed, kinds, length))  # noqa: B023
        wrong += [f"seed {seed}: {one}" for one in found["wrong"]]
    return wrong


def steps(kernel: Any, share: int = 1) -> tuple[int, list[str]]:
    """Have each step fail once at each cell, or at one of so many; returns how many programs, and what was wrong."""
    wrong: list[str] = []
    cases = [(step, at, after) for step in STEPS for at in range(8) for after in (False, True)]
    chosen = [case for number, case in enumerate(cases) if (number + number // 16) % share == 0]
    for step, at, after in chosen:
        with scratch() as folder:
            found = in_child(lambda: play_step(kernel, folder, step, at, after=after))  # noqa: B023
        wrong += [f"{step} at {at}: {one}" for one in found["wrong"]]
    return len(chosen), wrong


# -- kills -----------------------------------------------------------------------------------------

PER_SESSION = 10
"""Kills of one session; then a new one is begun."""
LIFE_SECONDS = 0.4
"""The longest that a kernel works before it is killed."""


def victim(kernel: Any, folder: Path, known: dict[str, str], pipe: int, seed: int) -> None:
    """Resume, look whether all that was acknowledged is there, and work until the kill comes."""

    def say(**what: Any) -> None:
        os.write(pipe, json.dumps(what).encode() + b"\n")

    chance = random.Random(seed)
    session = Session(kernel, folder)
    wrong: list[str] = []
    if known:
        reply = session.run("%ctx resume")
        log = session.ctx.loop.log
        if reply["status"] != "ok":
            wrong.append(f"it could not be resumed: {reply.get('evalue')}")
        lost = [one for one in known if one not in log or log.execution(one).status != "ok"]
        wrong += [f"{one} was acknowledged, and is not in the log" for one in lost]
        places = [one for one in known if one not in lost]
        for where in places[-1:] + chance.sample(places, min(2, len(places))):
            reply = session.run(f"%ctx goto {where}")
            now = Seen(session.namespace).but(set())
            if reply["status"] == "ok" and now != known[where] and "not restored" not in session.text:
                wrong.append(f"{where} is {now}, and was {known[where]}")
    say(ready=True, wrong=wrong)
    program = Program(session, chance, ())
    if "a" not in session.namespace:
        session.run(CELLS[0])
    while True:
        code = program.random_cell()
        reply = session.run(code)
        if reply["status"] == "ok":
            say(ran=session.last.execution_id, seen=Seen(session.namespace).but(set()))


def kills(kernel: Any, count: int, seed: int) -> dict[str, Any]:
    """Kill kernels; returns what was acknowledged, and what of it was lost."""
    chance = random.Random(seed)
    wrong: list[str] = []
    acknowledged = killed = 0
    while killed < count and not wrong:
        known: dict[str, str] = {}
        with scratch() as folder:
            for _ in range(min(PER_SESSION, count - killed) + 1):
                told = kill_one(kernel, folder, known, chance)
                wrong += told["wrong"]
                acknowledged += len(told["ran"])
                known |= told["ran"]
                killed += 1
                if wrong:
                    break
    return {"kills": killed, "acknowledged": acknowledged, "wrong": wrong}


def kill_one(kernel: Any, folder: Path, known: dict[str, str], chance: random.Random) -> dict[str, Any]:
    """Let one victim work for a random time, and kill it with all that it began."""
    reads, writes = os.pipe()
    seed = chance.randrange(2**32)
    pid = os.fork()
    if not pid:
        try:
            os.close(reads)
            victim(kernel, folder, known, writes, seed)
        except BaseException:
            os.write(writes, json.dumps({"wrong": [traceback.format_exc()]}).encode() + b"\n")
        finally:
            os._exit(1)
    os.close(writes)
    told: dict[str, Any] = {"wrong": [], "ran": {}}
    with os.fdopen(reads) as pipe:
        for line in pipe:
            said = json.loads(line) if line.endswith("\n") else {}
            told["wrong"] += said.get("wrong", ())
            if said.get("ready"):
                threading.Timer(chance.random() ** 2 * LIFE_SECONDS, os.kill, (pid, signal.SIGKILL)).start()
            if "ran" in said:
                told["ran"][said["ran"]] = said["seen"]
    os.waitpid(pid, 0)
    return told


# -- the command -----------------------------------------------------------------------------------

OF_OURS = ("step", "step", "alarm", "interrupt")
OF_DATA = ("full", "readonly", "deleted", "thinned")


def prepare(*, preload: bool) -> Any:
    """Return a kernel to fork from, of this process alone.

    With `preload`, it has imported what kernels import on the way, so that no fork has to. Not where signals come at
    any instant: that of an import is one of them.
    """
    home = tempfile.mkdtemp(prefix="ctxkernel-faults-home-")
    # One thread: another one could be given a signal that this one blocks.
    os.environ |= {"CTXKERNEL_HOME": home, "IPYTHONDIR": home, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    import numpy  # noqa: F401 - its import cannot be interrupted and tried again

    if preload:
        for name in (*warm.START, *warm.CELLS):
            importlib.import_module(name)
        warm.fill_caches()
    kernel = make_kernel()
    gc.collect()
    gc.freeze()  # else the first collection of each fork copies the memory of all modules
    return kernel


def main() -> int:
    """Carry out the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--length", type=int, default=14, help="steps of a program")
    parser.add_argument("--data", action="store_true", help="faults of the disk, too")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--share", type=int, default=1, help="of the steps, one case of so many")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began, kernel, told = time.monotonic(), prepare(preload=not given.programs), dict[str, Any]()
    wrong: list[str] = []
    if given.programs:
        kinds = (*OF_OURS, *OF_DATA) if given.data else OF_OURS
        wrong += programs(kernel, range(given.seed, given.seed + given.programs), kinds, given.length)
        told["programs"] = given.programs
    if given.steps:
        told["steps"], found = steps(kernel, given.share)
        wrong += found
    if given.kills:
        told |= kills(kernel, given.kills, given.seed)
        wrong += told.pop("wrong")
    print(json.dumps({**told, "seconds": round(time.monotonic() - began), "wrong": wrong}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
