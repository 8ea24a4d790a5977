"""Checkpoints in the kernel: taken after every cell, and the way back to one.

Rule 1: what a checkpoint holds of the interpreter is said here: the variables, `Out` with `_`, the handles and what
        they look at, and the parts of `state.ambient`.
Rule 2: a plan is made and can be shown before anything is touched; a return that was interrupted leaves the state in
        which it was, or the one that it says.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.events import MethodCalled
from ctxkernel.core.replay import CheckpointInfo, Comparison, HeadMove, Restored
from ctxkernel.core.text import join_names
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn import TurnResult
from ctxkernel.kernel import messages
from ctxkernel.kernel.returning.head_trail import Trail
from ctxkernel.kernel.returning.targets import Action, Job, Target
from ctxkernel.kernel.turn.classification import on_handles, only_commands
from ctxkernel.state.ambient import PARTS, Ambient, passive
from ctxkernel.state.base import own_modules
from ctxkernel.state.base.own_modules import LOGGING, PREFIX, PYPLOT, OwnModule, OwnModules
from ctxkernel.state.base.variables import NOTHING, some_of
from ctxkernel.state.checkpoints.checkpoints import Checkpointer
from ctxkernel.state.checkpoints.restore import Difference, Fetched, Restorer
from ctxkernel.state.checkpoints.storage import BACKGROUND_SECONDS, Storage, own_classes
from ctxkernel.state.checkpoints.units import State
from ctxkernel.state.types import connections
from ctxkernel.store.chunks import quota
from ctxkernel.store.chunks.background import Background
from ctxkernel.store.chunks.chunk_store import ChunkStore, stream_address
from ctxkernel.store.chunks.free_memory import free_memory
from ctxkernel.store.log import origin
from ctxkernel.store.log.session import CheckpointRow

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime
    from ctxkernel.kernel.turn.cell import CellRequest
    from ctxkernel.replay.divergence import DivergenceSettings
    from ctxkernel.replay.plan import Plan

_LAST = ("_", "__", "___")
_RESULT = re.compile(r"Out\[(\d+)\]")
_NUMBERED = re.compile(r"_(\d+)")
LAST = "ambient:last results"
_OWN = -1
"""In the value of `LAST`: what the user bound to this name, or that he deleted it."""
_MOST_TOUCHED = 200
"""Names that a manifest lists as touched."""
_MAKERS = frozenset(("view", "group", "note"))
_LAST_SECONDS = 5.0
"""What the end of a kernel waits for data that are still being written."""


@dataclass(slots=True)
class Prepared:
    """A return with all that it needs in memory."""

    job: Job
    fetched: Fetched
    plan: Plan
    """What of the missing names is made again, and what is lost."""


class Returning:
    """The checkpoints of one kernel."""

    def __init__(self, ctx: Runtime) -> None:
        self._ctx = ctx
        self.chunks = ChunkStore(quota.root_folder(os.environ) / ctx.store.session_id)
        self.background = Background(self.chunks)
        self.packer = ctx.packer
        self.ambient = Ambient()
        self._ambient_first = self.ambient.capture()
        """As the process began; the first checkpoint holds it."""
        self._ambient_start = dict(self._ambient_first)
        """What `goto 0` goes back to."""
        self._ambient_known = set(self._ambient_first)
        self.ambient_changed: dict[str, tuple[str, ...]] = {}
        """Execution → parts of the ambient state that it changed."""
        self._outs: set[int] = set()
        """Numbers of the entries of `Out` that are watched."""
        self._own_modules = OwnModules()
        self._logging: Any = next(part for part in PARTS if part.name == "logging")
        self._figures: Any = next(part for part in PARTS if part.name == "pyplot")
        own_modules.IN_PLACE[LOGGING] = self._logging.own_objects
        self._modules_seen: tuple[Any, ...] = ()
        self._gone: list[str] = []
        """Pseudo-names that went away since the last checkpoint."""
        self._last_seen: tuple[Any, ...] = ()
        self._own: frozenset[str] = frozenset()
        """Which of `_`, `__`, `___`, `_1` … the user bound or deleted."""
        self._bound: frozenset[str] = frozenset()
        """Those that he bound: they are watched."""
        self._mementos: Mapping[str, Any] = {}
        self._targets: dict[str, int] = {}
        """Pseudo-names of what handles look at, and its id."""
        storage = Storage(self.packer, self.chunks, self.background, stream_address, self.value, ctx.loop.graph.node)
        self.checkpoints = Checkpointer(ctx.tracker, storage)
        self.restorer = Restorer(self.checkpoints, bind=self._bind, free_memory=free_memory, head=self._last_ended)
        self.trail = Trail()
        self.named: dict[str, str] = {}
        self.marks: dict[str, str] = {}
        """Statement or cell → `differs` or `asks`."""
        self.fingerprints: dict[str, dict[str, str]] = {}
        """Execution → content hashes of the names that it added or changed."""
        self.touched: dict[str, frozenset[str]] = {}
        """Execution → names that it may have touched."""
        self._alike: dict[frozenset[str], frozenset[str]] = {}
        """One object for equal sets in `touched`: many cells touch the same names."""
        self._noted: Path | None = None
        """The log that is noted beside the data."""
        self.diverged: dict[str, str] = {}
        """Names that a re-run since the last return gave another value, and the cause."""
        self._renamed: dict[str, str] = {}
        """Ids of handles that a re-run since the last return made → those of the first run."""
        self._offer: tuple[messages.Resume | None] | None = None
        self._resumed = False
        self._entries = connections.REGISTRY.entries
        """How connections are described, as of the last checkpoint."""

    def _last_ended(self) -> str | None:
        """Return the execution that ended last on the way to HEAD; the command that returns still runs."""
        history = self._ctx.loop.history
        return history[-1][1].execution_id if history else None

    # -- what belongs to a state --------------------------------------------------------------

    def value(self, name: str) -> Any:
        """Return a variable, or what a pseudo-name stands for; NOTHING where there is none."""
        namespace = self._ctx.shell.user_ns
        if result := _RESULT.fullmatch(name):
            return namespace.get("_oh", {}).get(int(result[1]), NOTHING)
        if name.startswith("target:"):
            return self._ctx.loop.graph.targets().get(name[7:], NOTHING)
        if name.startswith(own_modules.PREFIX):
            module = self.packer.own_modules.get(name.removeprefix(own_modules.PREFIX))
            return NOTHING if module is None else module.variables()
        if name not in self._own and _is_of_result(name):
            return NOTHING
        return namespace.get(name, NOTHING)

    def _plain(self) -> tuple[dict[str, Any], list[str]]:
        """Return what changed of the plain parts of the state, and which went away; watch what is new."""
        ctx = self._ctx
        changed: dict[str, Any] = {}
        gone, self._gone = self._gone, []
        outs = ctx.shell.user_ns.get("_oh", {})
        gone += self._follow_outs()
        if self._last_seen != (seen := (len(outs), next(reversed(outs), 0), self._own)):
            self._last_seen = seen
            changed[LAST] = self._last_results(outs)
        mementos = ctx.loop.graph.memento()
        if mementos or self._mementos:
            old = self._mementos
            for obj_id, memento in mementos.items():
                if old.get(obj_id) is not memento:
                    changed[f"handle:{obj_id}"] = memento
            gone += [f"handle:{obj_id}" for obj_id in old if obj_id not in mementos]
            self._mementos = mementos
            gone += self._follow_targets()
        return changed, gone

    def follow(self) -> None:
        """Watch what the cell that just ended put into `Out`, and what handles look at now."""
        self._gone += [*self._follow_outs(), *self._follow_targets()]
        self._follow_modules()

    def _follow_modules(self) -> None:
        """Watch the variables of the user's own own_modules, and pyplot's figures."""
        loaded = self._own_modules()
        known = self.packer.own_modules
        more = [name for name in (PYPLOT, LOGGING) if name in sys.modules and name not in known]
        more = [name for name in more if name != LOGGING or self._logging.own_objects()]
        if loaded is not self._modules_seen or more:
            self._modules_seen = loaded
            for name in dict.fromkeys((*(module.__name__ for module in loaded), *more)):
                if name not in known:
                    known[name] = OwnModule(name)
                    self._ctx.tracker.watch(PREFIX + name)

    def _follow_outs(self) -> list[str]:
        """Watch the entries of `Out` that are there now; return the names of those that went away."""
        tracker, outs = self._ctx.tracker, self._ctx.shell.user_ns.get("_oh", {})
        before, self._own = self._bound, self._own_results(outs)
        self._bound = self._own & self._ctx.shell.user_ns.keys()
        gone, more = [*(before - self._bound)], [*(self._bound - before)]
        if len(outs) != len(self._outs) or (outs and next(reversed(outs)) not in self._outs):
            gone += [f"Out[{number}]" for number in self._outs if number not in outs]
            more += [f"Out[{number}]" for number in outs if number not in self._outs]
            self._outs = set(outs)
        for name in gone:
            tracker.unwatch(name)
        for name in more:
            tracker.watch(name)
        return gone

    def _own_results(self, outs: Mapping[int, Any]) -> frozenset[str]:
        """Return the names of results that stand for something else, or for nothing."""
        namespace, hook = self._ctx.shell.user_ns, self._ctx.shell.displayhook
        own = {name for name in _LAST if namespace.get(name, NOTHING) is not getattr(hook, name, NOTHING)}
        if not self._ctx.tracker.may_bind(_NUMBERED):
            return frozenset(own | {name for name in self._own if name not in _LAST})
        own |= {name for number, one in outs.items() if namespace.get(name := f"_{number}", NOTHING) is not one}
        numbers = (found for name in namespace if type(name) is str and (found := _NUMBERED.fullmatch(name)))
        return frozenset(own | {found[0] for found in numbers if int(found[1]) not in outs})

    def _follow_targets(self) -> list[str]:
        """Watch the objects that handles look at now; return the names of those that went away.

        A handle holds its object until it has the next one, so another object has another id.
        """
        tracker = self._ctx.tracker
        targets = {
            f"target:{obj_id}": id(target)
            for obj_id, target in self._ctx.loop.graph.targets().items()
            if not isinstance(target, str)
        }
        for name, known in self._targets.items():
            if targets.get(name) != known:
                tracker.unwatch(name)
        for name, now in targets.items():
            if self._targets.get(name) != now:
                tracker.watch(name)
        gone = [name for name in self._targets if name not in targets]
        self._targets = targets
        return gone

    def _last_results(self, outs: Mapping[int, Any]) -> dict[str, int]:
        """Return which entries of `Out` the names `_`, `__` and `___` stand for, and which names are the user's own."""
        namespace = self._ctx.shell.user_ns
        found = dict.fromkeys(sorted(self._own), _OWN)
        for name in [one for one in _LAST if one not in found]:
            value = namespace.get(name, NOTHING)
            for number in reversed(outs):
                if outs[number] is value:
                    found[name] = number
                    break
        return found

    def _bind(self, values: Mapping[str, Any], gone: Sequence[str]) -> None:
        """Set and remove names and pseudo-names."""
        ctx = self._ctx
        namespace = ctx.shell.user_ns
        outs = namespace.get("_oh", {})
        # Where these are the same, their entries may be other objects.
        last = values[LAST] if LAST in values else {} if LAST in gone else self._last_results(outs)
        for name in gone:
            if name.startswith("Out["):
                number = int(name[4:-1])
                outs.pop(number, None)
                namespace.pop(f"_{number}", None)
            elif ":" not in name:
                namespace.pop(name, None)
        there = {name for name in self._own if name in namespace}
        for name, value in values.items():
            if name.startswith("Out["):
                number = int(name[4:-1])
                outs[number] = namespace[f"_{number}"] = value
            elif name.startswith(PREFIX):
                module = name.removeprefix(PREFIX)
                (self.packer.own_modules.get(module) or OwnModule(module)).put_back(value)
            elif ":" not in name:
                namespace[name] = value
        for number in sorted(outs) if any(name.startswith("Out[") for name in values) else ():
            outs[number] = outs.pop(number)
        for name in {*_LAST, *self._own, *last}:  # IPython notes its results a second time
            if last.get(name) == _OWN:
                if name not in values and name not in there:
                    namespace.pop(name, None)
            elif name in _LAST:
                result = outs.get(last.get(name, -1), "")
                ctx.shell.push({name: result}, interactive=False)
                setattr(ctx.shell.displayhook, name, result)
            elif (number := int(name[1:])) in outs:
                ctx.shell.push({name: outs[number]}, interactive=False)
            else:
                namespace.pop(name, None)
        # To load a value can import a module of the user's: the tracker packs it together with what shares its objects.
        self._follow_outs()
        self._follow_modules()

    def _count_on(self) -> None:
        """Have the next prompt follow all results, those of an earlier kernel too, so that none is replaced."""
        shell = self._ctx.shell
        skipped = max(0, 1 + max(shell.user_ns.get("_oh", {}), default=0) - shell.execution_count)
        shell.execution_count += skipped
        for listed in (shell.history_manager.input_hist_parsed, shell.history_manager.input_hist_raw):
            listed += [""] * skipped

    # -- taking -------------------------------------------------------------------------------

    def take(self, execution_id: str) -> CheckpointRow:
        """Take the state as it is now, as that after `execution_id`."""
        changed, gone = self._plain()
        # A cell that names nothing runs nothing that could draw a number or set an option.
        idle = self._ambient_first == {} and self._ctx.tracker.named_nothing
        parts = {} if idle else self.ambient.capture(bound=self._ctx.tracker.take_bound())
        if parts and (others := tuple(name for name in parts if name in self._ambient_known and not passive(name))):
            self.ambient_changed[execution_id] = others
        self._ambient_known.update(parts)
        parts, self._ambient_first = {**self._ambient_first, **parts}, {}
        changed |= {f"ambient:{name}": value for name, value in parts.items()}
        base = self.checkpoints.base
        whole = base is not None and not self._ctx.store.has_checkpoint(f"c{base}")
        if self._entries is not connections.REGISTRY.entries:  # objects may be described now that were not
            self._entries = connections.REGISTRY.entries
            for name in self.checkpoints.known_now():
                if ":" not in name:
                    self._ctx.tracker.store_again(name)
        taken = self.checkpoints.take(execution_id, changed, gone, whole=whole)
        self._note_log()
        info = taken.info
        diff = self._ctx.loop.log.execution(execution_id).state_diff
        names = [*diff.added, *diff.changed]
        if names:
            self.fingerprints[execution_id] = taken.manifest["f"] = {name: self._now(name) for name in names}
        touched = self._ctx.tracker.touched
        if touched:
            self.touched[execution_id] = self._alike.setdefault(touched, touched)
            taken.manifest["t"] = sorted(touched)[:_MOST_TOUCHED]
        return CheckpointRow(
            info.checkpoint_id,
            taken.manifest,
            info.bytes_new,
            state=info.state,
            reason=info.reason,
            time_ms=info.time_ms,
        )

    def _note_log(self) -> None:
        """Say beside the data which log they are of: `ctxkernel gc` finds those that nobody can need any more."""
        log, folder = self._ctx.store.path, self.chunks.folder
        if log is not None and log != self._noted and folder.is_dir():
            self._noted = log
            with contextlib.suppress(OSError):  # a full disk: it is not known then, and kept
                origin.list_log(folder, log)

    def before_first(self) -> None:
        """The first cell is about to run: what the kernel did until now to generators and options is not the cell's."""
        if self.checkpoints.base is None:
            first = self.ambient.capture()
            self._ambient_first |= first
            self._ambient_start = dict(self._ambient_first)
            self._ambient_known.update(first)

    def took(self, result: TurnResult, against: str, *, again: bool) -> Comparison | None:
        """Follow a turn whose state was taken. Return how it compares with the execution that it re-ran, if any.

        `again`: it is part of a re-run.
        """
        if result.moved is None:
            if result.outside is not None:
                self.trail.ran(*result.outside, again=again)
            self.trail.ran(result.statement, result.execution, again=again)
        comparison = self._compare(result.execution, against) if against else None
        if comparison is not None:
            self._ctx.loop.compared(comparison)
        return comparison

    def wait_for_all(self) -> None:
        """Wait until every state is known: what is packed in the background is compared with what is there now."""
        if self.checkpoints.writing:
            self.background.wait(BACKGROUND_SECONDS)
            self._ctx.checkpoints.settle()

    def wait(self) -> None:
        """Give what is still being written a moment, at the end of the kernel."""
        self.background.wait(_LAST_SECONDS)

    def close(self) -> None:
        """Let go of the store."""
        self.background.close()
        self.chunks.close()

    # -- running again ------------------------------------------------------------------------

    def pair(self, cell: CellRequest) -> None:
        """Find what a notebook's cell is a re-run of: the last run of that cell, else of that text."""
        log = self._ctx.loop.log
        best: Statement | None = None
        for statement in reversed(list(log)):
            if cell.cell_id is not None and statement.cell_id == cell.cell_id:
                best = statement
                break
            if best is None and statement.source == cell.code:
                best = statement
        if best is not None:
            cell.rerun_of = best
            cell.against = log.executions(best.statement_id)[-1].execution_id

    def plan(self, job: Job) -> Plan:
        """Return what a job would do. Reads only."""
        from ctxkernel.kernel.returning.return_plans import plan_of

        return plan_of(self._ctx, self, job)

    def plan_json(self, action: Action, target: str, *, before: bool = False, upto: str | None = None) -> messages.Plan:
        """Return the plan of a command that a panel is about to send. Raises CtxError."""
        from ctxkernel.kernel.returning.jobs import job_of

        job = job_of(self._ctx, action, target, before=before, upto=upto)
        plan = self.plan(job)
        return cast("messages.Plan", {**plan.to_json(), "action": action, "text": plan.text()})

    def differs(self, statement: Statement) -> bool:
        """Whether a re-run of a statement is expected to differ."""
        return self._mark(statement) == "differs" or statement.tags.get("differs") is True

    def why_skipped(self, statement: Statement) -> str:
        """Return why a statement is not run again, or an empty text."""
        if statement.tags.get("outside"):
            return "names that changed outside of a cell cannot be run again"
        if only_commands(statement.source) and not on_handles(statement.source):
            return "a command, not a cell"
        if statement.tags.get("masked"):
            return "a credential in it was masked in the log; run its cell in the notebook"
        return ""

    def asks(self, statement: Statement) -> bool:
        """Whether a statement is not to be run again unasked."""
        return self._mark(statement) == "asks" or statement.tags.get("asks") is True

    def _mark(self, statement: Statement) -> str:
        return self.marks.get(statement.statement_id) or self.marks.get(statement.cell_id or "", "")

    @property
    def divergence(self) -> DivergenceSettings:
        """How near two results must be to count as the same."""
        from ctxkernel.replay.divergence import DivergenceSettings

        near = self._ctx.settings.tolerance
        return DivergenceSettings(rel=near, abs=near)

    def _compare(self, new: Execution, against: str) -> Comparison:
        from ctxkernel.kernel.returning.statement_facts import details
        from ctxkernel.replay.divergence import compare

        log = self._ctx.loop.log
        old = log.execution(against)
        statement = log.statement(new.statement_id)
        expected = self.differs(statement)
        names = {*old.state_diff.added, *old.state_diff.changed, *new.state_diff.added, *new.state_diff.changed}
        known = replace(
            details(self._ctx.shell.user_ns, self._source(new), self._source(old), self.diverged),
            generators=self._other_generators(old, new),
            equal=lambda name: self._equal(name, against),
        )
        found = compare(
            old,
            self._as_before(old, new),
            old_state={name: self._fingerprint(name, against) for name in names},
            new_state={name: self._now(name) for name in names if self.value(name) is not NOTHING},
            details=known,
            settings=replace(self.divergence, expected=expected),
        )
        self.diverged |= {one.subject: one.cause for one in found.divergences if one.kind == "state"}
        return found

    def _equal(self, name: str, against: str) -> bool | None:
        """Whether a variable is what it was after an execution, floats within the tolerance; None: not known."""
        from ctxkernel.replay.values import same_values

        now = self.value(name)
        if type(now).__module__.startswith("matplotlib."):
            return True  # figures are compared by the pixels that a cell shows: their objects count what is drawn
        then = self.restorer.then(against, name)
        return None if then is NOTHING or now is NOTHING else same_values(then, now, self.divergence.tolerance)

    def _other_generators(self, old: Execution, new: Execution) -> list[str] | None:
        """Return the parts of the surroundings that stood elsewhere before a re-run; None where that is not known."""
        before: list[State] = []
        for execution in (old, new):
            parent = execution.parent_execution_id
            if parent is None or self.checkpoints.states.info(parent) is None:
                return None
            before.append(self.checkpoints.states.state(parent, lambda: None))
        return [
            name.removeprefix("ambient:")
            for name, unit in before[1].items()
            if name.startswith("ambient:") and not unit.equals(before[0].get(name)) and not passive(name[8:])
        ]

    def _as_before(self, old: Execution, new: Execution) -> Execution:
        """Return a re-run with the ids of its handles as they were: an id is never used twice, so it has others."""
        made = [
            [e.obj_id for e in run.events if isinstance(e, MethodCalled) and e.method in _MAKERS] for run in (old, new)
        ]
        self._renamed |= dict(zip(made[1], made[0], strict=False))
        if not self._renamed:
            return new
        ids = re.compile(rf"\b({'|'.join(sorted(self._renamed, key=len, reverse=True))})\b")

        def put(text: Any) -> Any:
            return ids.sub(lambda found: self._renamed[found[0]], text) if isinstance(text, str) else text

        artifacts = tuple(replace(one, data=put(one.data)) for one in new.artifacts)
        return replace(new, stdout=put(new.stdout), stderr=put(new.stderr), artifacts=artifacts)

    def _source(self, execution: Execution) -> str:
        return self._ctx.loop.log.statement(execution.statement_id).source

    def _now(self, name: str) -> str:
        try:
            return self._ctx.tracker.fingerprint(name)
        except KeyError:  # not there
            return ""

    def _fingerprint(self, name: str, execution_id: str) -> str:
        """Return the content hash that a name had after an execution, as far as it is known."""
        for _, execution in reversed(self._ctx.loop.log.path(execution_id)):
            found = self.fingerprints.get(execution.execution_id, {})
            if name in found:
                return found[name]
        return ""

    @property
    def resume_offer(self) -> messages.Resume | None:
        """What an earlier kernel of this notebook left, where it is not back yet."""
        from ctxkernel.kernel.returning import resume

        if self._offer is None and not self._resumed:
            self._offer = (resume.offer(self._ctx),)
        return self._offer[0] if self._offer is not None and not self._resumed else None

    def resume_job(self, *, trust: bool) -> Job:
        """Return the job that brings it back. Raises BadCommand."""
        from ctxkernel.kernel.returning import resume

        if self._resumed:
            raise BadCommand("the earlier session is back already; %ctx timeline shows it")
        return resume.job(self._ctx, self, trust=trust)

    def resume_at_start(self) -> None:
        """Bring it back before the first cell."""
        from ctxkernel.kernel.returning import resume

        job = self.resume_job(trust=False)
        move, restored = self.commit(self.prepare(job))
        self._ctx.loop.move(move, restored)
        head = job.resumable.head if job.resumable is not None else None
        told = self._ctx.store.resume(move.to, move.at, of=head)
        if told:
            self._ctx.notices.kept.append(told)
        if job.resumable is not None and (waited := resume.waited(job.resumable)):
            self._ctx.configuration.tell_first("\n".join(waited))

    @property
    def quota(self) -> int:
        """Bytes that all sessions together may take."""
        return int(self._ctx.settings.quota_gb * 10**9)

    def durable(self) -> list[tuple[CheckpointInfo, dict[str, Any]]]:
        """Return the checkpoints that the background has finished since the last call."""
        return self.checkpoints.poll()

    # -- where to -----------------------------------------------------------------------------

    def target(self, text: str, *, before: bool = False) -> Target:
        """Return the place that `10`, `s10`, `s10.2`, a name, or `0` (before all) means. Raises BadCommand."""
        log = self._ctx.loop.log
        execution: Execution | None = None
        if text in self.named:
            execution = log.execution(self.named[text])
        elif text in ("0", "s0"):
            return Target(None, "before all statements")
        else:
            key = text if text.startswith("s") else f"s{text}"
            try:
                execution = log.execution(key) if "." in key else log.newest_execution(key, log.path())
            except KeyError:
                names = f" or a name ({', '.join(sorted(self.named)[:5])})" if self.named else ""
                raise BadCommand(
                    f"there is no statement {text!r} here; use its number from %ctx timeline{names}"
                ) from None
        if execution.status == "running":
            raise BadCommand(f"{execution.statement_id} is running; go back to an earlier one")
        if before:
            return Target(execution.parent_execution_id, f"before {execution.statement_id}")
        return Target(execution.execution_id, text if text in self.named else execution.statement_id)

    def undone(self, steps: int) -> tuple[Target, int]:
        """Return where HEAD was before the last `steps`, and the number of that on its trail. Raises BadCommand."""
        where, at = self.trail.undone(steps)
        return Target(where, where.rpartition(".")[0] if where else "before all statements"), at

    def difference(self, target: Target) -> Difference:
        """Return what lies between now and a place. Raises CheckpointError."""
        return self.restorer.compare(target.execution_id)

    def ambient_of(self, difference: Difference) -> tuple[str, ...]:
        """Return the parts of the process that are others in a state than now. Raises StoreError."""
        if difference.execution_id is None:
            return self.ambient.differing(self._ambient_start)
        names = [name for unit in difference.load for name in unit.names if name.startswith("ambient:")]
        values = {name: self.restorer.plain(difference.target[name]) for name in names if name != LAST}
        return self.ambient.differing({name.removeprefix("ambient:"): value for name, value in values.items()})

    # -- going --------------------------------------------------------------------------------

    def prepare(self, job: Job) -> Prepared:
        """Load what a return needs; the user's state stays as it is. Raises CtxError."""
        absent = {name: why for name, why in job.difference.absent.items() if name not in job.lose}
        if absent:
            name, why = next(iter(absent.items()))
            raise BadCommand(
                f"{job.target.told} has {some_of(list(absent), 5)}, whose data are missing ({name}: {why}); this "
                f"return would lose what {'it is' if len(absent) == 1 else 'they are'} now; %ctx {job.action} … --lose "
                f"{','.join(absent)} goes there without {'it' if len(absent) == 1 else 'them'}"
            )
        mementos = self._mementos_of(job.difference)
        self._ctx.loop.graph.revive({**self._ctx.loop.graph.memento(), **mementos})
        return Prepared(job, self.restorer.fetch(job.difference), self.plan(job))

    def _alive(self, prepared: Prepared) -> dict[str, Any]:
        """Return the values of what a plan makes again that hold the same living objects now."""
        now, target = self.checkpoints.known_now(), prepared.job.difference.target
        tokens = {
            name: [{token for token, _ in unit.live} for unit in (now[name], target[name])]
            for name in prepared.plan.rerun
            if name in now and name in target
        }
        return {name: self.value(name) for name, (one, other) in tokens.items() if one and one == other}

    def _mementos_of(self, difference: Difference) -> dict[str, Any]:
        """Return the mementos of a state's handles; they are plain, and small."""
        found: dict[str, Any] = {}
        for name, unit in difference.target.items():
            if name.startswith("handle:"):
                found[name.removeprefix("handle:")] = self.restorer.plain(unit)
        return found

    def commit(self, prepared: Prepared) -> tuple[HeadMove, Restored]:
        """Put a loaded state in place; says in the cell what was done."""
        from ctxkernel.kernel.returning.return_plans import name_of

        ctx, job, fetched = self._ctx, prepared.job, prepared.fetched
        waited: list[str] = []
        if job.resumable is not None:
            from ctxkernel.kernel.returning import resume

            resume.join(ctx, self, job.resumable)
            waited = resume.waited(job.resumable)
            # As this process began: the states from here on continue those of the earlier one.
            target = job.difference.target
            self._ambient_first = {n: one for n, one in self._ambient_first.items() if f"ambient:{n}" not in target}
            self._resumed = True
        mementos = self._mementos_of(job.difference)
        # Until the return has ended: a `__del__` must not run in the middle of it.
        before = {name: self.value(name) for name in (*fetched.values, *job.difference.drop) if ":" not in name}
        alive = self._alive(prepared) if prepared.plan.rerun else {}
        lost = self.restorer.settle(fetched)
        self._adopt_copies(before, fetched.values)
        if job.resumable is not None:
            ctx.configuration.recall(job.resumable.marks)
        self._count_on()
        back: list[str] = []
        if prepared.plan.rerun:
            from ctxkernel.kernel.returning.return_plans import make_again

            failed = make_again(ctx, prepared.plan, alive)
            back = [name for name in prepared.plan.rerun if name not in failed]
            kept = {name: f"it cannot be made again: {why}" for name, why in failed.items() if name in alive}
            fetched.as_now |= kept
            failed = {name: why for name, why in failed.items() if name not in kept}
            lost = {place: why for place, why in lost.items() if name_of(place) not in {*back, *kept}} | failed
            ctx.tracker.rebase(back)
            self.checkpoints.made_again(back)
        lost |= {name: why for name, why in prepared.plan.lost.items() if name in lost}
        own = ctx.packer.own_modules
        stay = [name for name in own if PREFIX + name not in job.difference.target]
        stay += [name for name in own if own[name].is_loaded_again(fetched.values.get(PREFIX + name))]
        for name in stay:
            ctx.tracker.store_again(PREFIX + name)
        graph = ctx.loop.graph
        values = fetched.values

        def looked_at(obj_id: str) -> Any:
            name = f"target:{obj_id}"
            return values[name] if name in values else graph.targets()[obj_id]

        notices = graph.restore(mementos, looked_at)
        graph.release()
        # What they held shared its objects with other names; what they hold now may share with others.
        self._follow_targets()
        target = job.difference.target
        ctx.tracker.settle_loaded({unit.names for name, unit in target.items() if name.startswith("target:")})
        self._mementos = graph.memento()
        parts = self._ambient_values(job.difference, values)
        loggers = self._adopt_objects(parts, values, target)
        if job.target.execution_id is None:
            parts = dict(self._ambient_start)
        gone = [name.removeprefix("ambient:") for name in job.difference.drop if name.startswith("ambient:")]
        notices += [f"{name}: {why}" for name, why in self.ambient.restore(parts, gone).items()]
        ctx.tracker.accept(PREFIX + name for name in own_modules.IN_PLACE)
        alive.clear()
        lost |= self._release(before)
        self.diverged, self._renamed = {}, {}
        if job.at is not None:
            self.trail.undo(job.at)
        else:
            turn = ctx.loop.opened
            if turn is not None and turn.outside is not None:  # an undo comes back to what it changed
                self.trail.ran(*turn.outside, again=False)
            self.trail.went(job.target.execution_id)
        as_now = {**prepared.plan.as_now, **fetched.as_now}
        not_as_it_was = lost.keys() | {name_of(place) for place in as_now}
        loaded = sorted(
            name for unit in job.difference.load for name in unit.names if _is_name(name) and name not in not_as_it_was
        )
        dropped = [name for name in job.difference.drop if _is_name(name)]
        kept = _kept(job.difference)
        told = [f"at {job.target.told}: {_names(len(loaded))} restored{_some(loaded)}, {kept} kept as they are"]
        if dropped:
            told[0] += f", {len(dropped)} removed{_some(dropped)}"
        if back:
            told.append(f"made again: {', '.join(back)} by {', '.join(prepared.plan.again)}")
        connected = {one.places[0]: one.told for one in fetched.connected.values()}
        told += [f"connected again: {place} ({what})" for place, what in connected.items()]
        told_lost = {name: why for name, why in lost.items() if not name.startswith(("class:", "shared:"))}
        told += [f"not restored: {name} ({why})" for name, why in told_lost.items()]
        told += [f"as it is now: {name} ({why})" for name, why in as_now.items()]
        if later := [name for name in stay if name not in own_modules.IN_PLACE]:
            told.append(f"loaded later, and as it is now: module {join_names(later)}")
        told += [f"loaded later, and as it is now: logger {name}" for name in loggers]
        told += [*filter(None, [prepared.plan.files_that_stay()]), *notices, *waited]
        if job.as_json and not job.statements:
            whole = {"head": job.target.execution_id, "restored": loaded, "removed": dropped, "lost": dict(lost)}
            whole |= {"as_now": as_now, "connected": connected}
            ctx.notices.write(json.dumps(whole, indent=1) + "\n")
        elif not job.as_json:
            ctx.notices.write("\n".join(told) + "\n")
        move = HeadMove(job.target.execution_id, job.action, time.time())
        return move, Restored(told_lost, tuple(notices))

    def _ambient_values(self, difference: Difference, loaded: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the ambient parts of a state: each is compared with what it is now."""
        now = self.ambient.captured()
        names = [name.removeprefix("ambient:") for name in difference.target if name.startswith("ambient:")]
        known = {f"ambient:{name}": value for name, value in now.items()} | dict(loaded)
        return {
            name: known[f"ambient:{name}"] for name in names if f"ambient:{name}" in known and f"ambient:{name}" != LAST
        }

    def _release(self, replaced: dict[str, Any]) -> dict[str, str]:
        """Release the objects that a return replaced; return the names that a `__del__` of theirs changed, and why."""
        tracker = self._ctx.tracker
        if not any("__del__" in vars(cls) for cls in own_classes(self.packer.module)):
            return {}
        known = tracker.contents()
        replaced.clear()
        now = tracker.contents()
        changed = {name for name in known.keys() | now.keys() if _is_name(name) and known.get(name) != now.get(name)}
        for name in changed:
            tracker.store_again(name)
        return dict.fromkeys(sorted(changed), "the __del__ of an object that this return replaced changed it")

    @staticmethod
    def _adopt_copies(before: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Tell the ambient parts which objects were loaded in the place of those that they hold."""
        for live in [part.live for part in PARTS if hasattr(part, "live")]:  # type: ignore[attr-defined]
            replaced = {id(old): values[name] for name, old in before.items() if type(values.get(name)) is type(old)}
            for token, obj in live:
                owner = getattr(obj, "__self__", None)  # a method, held as an observer is
                if id(obj) in replaced:
                    live.adopt(token, replaced[id(obj)])
                elif owner is not None and id(owner) in replaced:
                    live.adopt(token, getattr(replaced[id(owner)], obj.__name__))

    def _adopt_objects(self, parts: Mapping[str, Any], values: Mapping[str, Any], target: State) -> list[str]:
        """Tell the parts that put figures and handlers in place which ones were loaded.

        Returns the loggers that stay as they are.
        """
        figures = values.get(PREFIX + PYPLOT, {})
        for number, _, token, _ in parts.get("pyplot", ()):
            if str(number) in figures:
                self._figures.live.adopt(token, figures[str(number)])
        if (name := PREFIX + LOGGING) in values or name not in target:
            return self._logging.put_back(values.get(name, {}))
        return []

    def info(self, execution_id: str) -> CheckpointInfo | None:
        """What is known of the checkpoint after an execution."""
        return self.checkpoints.states.info(execution_id)

    def names(self) -> dict[str, str]:
        """Names of checkpoints → executions."""
        return dict(self.named)

    def storage(self) -> messages.CheckpointStorage:
        """What is stored, and what is not durable yet."""
        return {
            "bytes": self.chunks.bytes_stored,
            "quota": self.quota,
            "pending_bytes": self.background.pending_bytes,
            "pending_s": max((time.monotonic() - one.started for one in self.background.running), default=0.0),
            "folder": str(self.chunks.folder),
        }


def _names(count: int) -> str:
    return f"{count} name{'s' * (count != 1)}"


def _kept(difference: Difference) -> int:
    return sum(_is_name(name) for name in difference.keep)


def _is_name(name: str) -> bool:
    return ":" not in name and not name.startswith("Out[") and not _is_of_result(name)


def _is_of_result(name: str) -> bool:
    """Return whether IPython gives a name to results: `_`, `_5`."""
    return name in _LAST or _NUMBERED.fullmatch(name) is not None


def _some(names: Sequence[str]) -> str:
    return f" ({join_names(names)})" if names else ""
