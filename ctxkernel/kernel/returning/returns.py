"""The checkpoints of a kernel: taken after every cell, and returned to.

Rule 1: a checkpoint holds the variables, `Out` with `_`, the handles and what they look at, the user's modules, and
        the parts of `state.ambient` (`live_state`).
Rule 2: a plan is made and can be shown before anything is touched; a return that was interrupted leaves the state as
        it was, or as it says.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.masking import Mask
from ctxkernel.core.ports import Tell, silent
from ctxkernel.core.reflection import class_qualname
from ctxkernel.core.replay import PACKED, HeadMove, Restored
from ctxkernel.core.state_names import AMBIENT, CLASS, HANDLE, LABELS, MODULE, TARGET, is_bound, is_variable, without
from ctxkernel.core.timeline import Execution, Statement, StatementLog, run_name
from ctxkernel.kernel.returning.cell_runs import CellReader, shared_names
from ctxkernel.kernel.returning.comparisons import Comparisons, RunFacts
from ctxkernel.kernel.returning.kept_results import KeptResults
from ctxkernel.kernel.returning.live_state import LiveState
from ctxkernel.kernel.returning.return_services import ReturnServices
from ctxkernel.kernel.returning.return_texts import DoneReturn, PreparedReturn, return_text
from ctxkernel.kernel.returning.targets import ReturnAction, ReturnJob, Target, Trail, place_in
from ctxkernel.state.base import own_modules
from ctxkernel.state.base.namespace import some_of
from ctxkernel.state.checkpoints.checkpoints import Checkpointer
from ctxkernel.state.checkpoints.comparison import Difference, labels_of
from ctxkernel.state.checkpoints.restore import Restorer
from ctxkernel.state.checkpoints.storage import Storage, own_classes
from ctxkernel.state.tracking.library_containers import is_container, library_containers
from ctxkernel.state.types import connections
from ctxkernel.store.chunks import quota
from ctxkernel.store.chunks.background import Background
from ctxkernel.store.chunks.chunk_store import ChunkStore, stream_address
from ctxkernel.store.chunks.data_folder import data_folder
from ctxkernel.store.chunks.free_memory import free_memory
from ctxkernel.store.chunks.manifest import CheckpointRow
from ctxkernel.store.log import origin

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import plan_messages as messages
    from ctxkernel.replay.affected import NotebookCell
    from ctxkernel.replay.plan import Plan

PANEL_SECONDS = 4.0
"""Time for all values that a panel asks to compare at once."""


class Returning:
    """The checkpoints of one kernel."""

    def __init__(self, session: ReturnServices) -> None:
        from ctxkernel.kernel.returning.resume import Resumption
        from ctxkernel.kernel.returning.return_plans import Planner

        self._session = session
        loop, tracker = session.loop, session.tracker
        self.chunks = ChunkStore(data_folder(quota.root_folder(os.environ), session.store.session_id, writing=True))
        self.background = Background(self.chunks)
        self.live = LiveState(session)
        storage = Storage(
            session.packer,
            self.chunks,
            self.background,
            address=stream_address,
            value=self.live.value,
            handle=loop.graph.node,
            content=tracker.content_in,
            whole=tracker.whole_groups,
        )
        self.checkpoints = Checkpointer(tracker, storage)
        self.restorer = Restorer(self.checkpoints, bind=self.live.bind, free_memory=free_memory, head=self._last_ended)
        self.facts = RunFacts()
        self.comparisons = Comparisons(session, self.live, self.facts, self.checkpoints, self.restorer)
        self.kept = KeptResults(session, self.live, self.facts, self.checkpoints, self.restorer)
        self._reader = CellReader(tracker, session.namespace, session.reads, session.packer.own_modules)
        self._planner = Planner(session, self.live, self.facts, self.restorer)
        self.resumption = Resumption(session, self.checkpoints, self.chunks, self.facts)
        self.reads, self.health = session.reads, session.health
        self.left_over: Sequence[NotebookCell] = ()
        """The cells that the last re-run of affected cells did not reach."""
        self.trail = Trail()
        self.named: dict[str, str] = {}
        """The user's names of states → executions."""
        self._noted: Path | None = None
        """The log that is noted beside the data."""
        self._entries = connections.REGISTRY.entries
        """The descriptions of connections as of the last checkpoint."""
        self._losses = 0
        """The losses of stored data as of the last checkpoint."""

    @property
    def log(self) -> StatementLog:
        """All statements and executions of the session."""
        return self._session.loop.log

    def _last_ended(self) -> str | None:
        """Return the execution that ended last on the way to HEAD; the command that returns still runs."""
        history = self._session.loop.history
        return history[-1][1].execution_id if history else None

    # -- taking -------------------------------------------------------------------------------

    def take(self, execution_id: str) -> CheckpointRow:
        """Take the present state as that after `execution_id`."""
        tracker, base = self._session.tracker, self.checkpoints.base
        lost = self._losses != self.chunks.losses  # then the data of the present state may be among them
        changed, gone = self.live.changes(everything=lost)
        changed |= self.live.ambient_changes(execution_id)
        whole = base is not None and not self._session.store.has_checkpoint(f"c{base}")
        if lost or self._entries is not connections.REGISTRY.entries:  # more kinds of objects may be described now
            self._entries, self._losses = connections.REGISTRY.entries, self.chunks.losses
            for name in self.checkpoints.known_now():
                if not name.startswith(LABELS):
                    tracker.store_again(name)
        taken = self.checkpoints.take(execution_id, changed, gone, whole=whole)
        info, manifest = taken.info, taken.manifest
        self._note_log()
        if not self.kept.take_facts(execution_id):
            self._note_facts(self._session.loop.log.execution(execution_id))
        manifest |= self.facts.to_manifest(execution_id)
        return CheckpointRow(
            info.checkpoint_id, manifest, info.bytes_new, state=info.state, reason=info.reason, time_ms=info.time_ms
        )

    def _note_facts(self, execution: Execution) -> None:
        """Note what an execution that ended last has read and written."""
        tracker, execution_id, diff = self._session.tracker, execution.execution_id, execution.changes
        if names := [*diff.added, *diff.changed, *tracker.altered_parts]:
            prints = {name: self.comparisons.now(name) for name in names}
            self.facts.fingerprints[execution_id] = {name: one for name, one in prints.items() if one != PACKED}
        if tracker.touched:
            self.facts.touched[execution_id] = shared_names(tracker.touched)
        ambient = self.live.ambient_changed.get(execution_id, ())
        statement = self._session.loop.log.statement(execution.statement_id)
        self.facts.cells[execution_id] = self._reader.facts(statement, execution, ambient, self.live.ambient_loaded)

    def _note_log(self) -> None:
        """Note beside the data which log they belong to: `ctxkernel gc` removes data that nobody can need."""
        log, folder = self._session.store.path, self.chunks.folder
        if log is not None and log != self._noted and folder.is_dir():
            self._noted = log
            with contextlib.suppress(OSError):  # such as a full disk: then the data are kept
                origin.list_log(folder, log)

    def close(self) -> None:
        """Release the store."""
        self.background.close()
        self.chunks.close()

    # -- jobs -----------------------------------------------------------------------------------

    def target(self, text: str, *, before: bool = False) -> Target:
        """Return the place that `10`, `s10`, `s10.2`, a name, or `0` (before all) means. Raises BadCommand."""
        log = self._session.loop.log
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
            return Target(execution.parent_execution_id, f"before {run_name(execution.execution_id)}")
        return Target(execution.execution_id, text if text in self.named else run_name(execution.execution_id))

    def job(
        self,
        action: ReturnAction,
        target: str,
        *,
        before: bool = False,
        upto: str | None = None,
        flags: Collection[str] = (),
    ) -> ReturnJob:
        """Return the job of a command: `goto` and `rerun` of a place, `undo` of so many steps. Raises CtxError."""
        statements: tuple[tuple[Statement, Execution], ...] = ()
        at: int | None = None
        if action == "goto":
            where = self.target(target, before=before)
        elif action == "undo":
            if target and (not target.isdecimal() or int(target) < 1):
                raise BadCommand(f"%ctx undo {target}: how many steps? Use one whole number from 1")
            where, at = self.trail.undone(int(target or 1))
        else:
            statements = tuple(self._between(target, upto or ""))
            where = Target(statements[0][1].parent_execution_id, f"before {run_name(statements[0][1].execution_id)}")
        self._session.health.check(where.execution_id)
        difference = self.restorer.compare(where.execution_id)
        return ReturnJob(
            action, where, difference, statements, at, as_json="--json" in flags, confirmed="--yes" in flags
        )

    def _between(self, first: str, last: str) -> list[tuple[Statement, Execution]]:
        """Return the statements from `first` to `last`, or to the end of the longest branch that `first` is on."""
        log, opened = self._session.loop.log, self._session.loop.opened
        start, stop = self.target(first), self.target(last) if last else None
        if start.execution_id is None:
            raise BadCommand("%ctx rerun 0: statements begin at 1")
        running = opened.execution.execution_id if opened is not None else None
        found: list[tuple[Statement, Execution]] = []
        for path in log.paths(branch.leaf for branch in log.branches()):
            path = path[:-1] if path[-1][1].execution_id == running else path
            at = place_in(path, start.execution_id, exact="." in first)
            end = len(path) if stop is None else place_in(path, stop.execution_id, exact="." in last) + 1
            # The newest branch comes last; a re-run that was stopped early is shorter than what it re-ran.
            if at >= 0 and end > at and (end - at >= len(found) or stop is not None):
                found = path[at:end]
        if not found:
            raise BadCommand(f"%ctx rerun {first}..{last}: {last} does not come after {first} on one branch")
        return found

    def has_failed(self, execution_id: str) -> bool:
        """Return whether an execution is an ask that failed, or whose kernel ended before it was answered."""
        state = self._session.account.endings.get(execution_id)
        return state is not None and state.result in ("failed", "ended")

    def plan(self, job: ReturnJob) -> Plan:
        """Return what a job would do. Reads only."""
        return self._planner.plan(job)

    def plan_json(
        self, action: ReturnAction, target: str, *, before: bool = False, upto: str | None = None
    ) -> messages.Plan:
        """Return the plan of a command that a panel is about to send. Raises CtxError."""
        plan = self.plan(self.job(action, target, before=before, upto=upto))
        return cast("messages.Plan", {**plan.to_json(), "action": action, "text": plan.text()})

    def difference_row(self, old: str, new: str | None, names: list[str], mask: Mask) -> messages.StateDifference:
        """Return the differences of two states for a panel, from their checkpoints. Reads only. Raises CtxError."""
        from ctxkernel.kernel.display.reports import difference_row, masked_differences

        first = self.target(old)
        last = self.target(new) if new is not None else Target(self._last_ended(), "now")
        settings = self.comparisons.settings
        found = self.comparisons.states.between(first, last, names=names, seconds=PANEL_SECONDS, settings=settings)
        return difference_row(first.execution_id, last.execution_id, masked_differences(found, mask))

    # -- an earlier session -----------------------------------------------------------------------

    def resume_job(self, *, trust: bool) -> ReturnJob:
        """Return the job that brings back the session of an earlier kernel. Raises BadCommand."""
        return self.resumption.job(self.restorer.compare, trust=trust)

    def resume_at_start(self) -> None:
        """Bring back the session of an earlier kernel before the first cell."""
        from ctxkernel.kernel.returning.resume import unfinished

        # What ipykernel set up since our import, such as matplotlib's backend, belongs to the state before all cells.
        self.live.note_start()
        session, job = self._session, self.resume_job(trust=False)
        move, restored = self.commit(self.prepare(job))
        session.loop.move(move, restored)
        found = job.resumable
        told = session.store.resume(move.to, move.at, of=found.head if found is not None else None)
        session.notices.kept += filter(None, [told])
        if found is not None and (lines := unfinished(found)):
            session.configuration.tell_first("\n".join(lines))

    def _join(self, job: ReturnJob) -> None:
        """Put the timeline of an earlier session in front of this kernel's own."""
        found, session = job.resumable, self._session
        assert found is not None
        self.resumption.join(found)
        self.named |= found.names
        earlier = Trail()
        earlier.follow(found.moves, session.loop.log)
        earlier.extend(self.trail)
        self.trail = earlier

    # -- returning --------------------------------------------------------------------------------

    def prepare(self, job: ReturnJob, tell: Tell = silent) -> PreparedReturn:
        """Load what a return needs, and tell how far it is; the user's state stays as it is. Raises CtxError."""
        absent = {name: why for name, why in job.difference.absent.items() if name not in job.lose}
        if absent:
            name, why = next(iter(absent.items()))
            raise BadCommand(
                f"{job.target.told} has {some_of(list(absent), 5)}, whose data are missing ({name}: {why}); this "
                f"return would lose what {'it is' if len(absent) == 1 else 'they are'} now; %ctx {job.action} … --lose "
                f"{','.join(absent)} goes there without {'it' if len(absent) == 1 else 'them'}"
            )
        graph = self._session.loop.graph
        graph.revive({**graph.memento(), **self._mementos_of(job.difference)})
        with self._path_of(job.target.execution_id):
            fetched = self.restorer.fetch(job.difference, tell)
        return PreparedReturn(job, fetched, self.plan(job))

    @contextlib.contextmanager
    def _path_of(self, execution_id: str | None) -> Generator[None]:
        """Import from the folders of a state while it is loaded: cells may have changed `sys.path` and the folder."""
        before = list(sys.path)
        parts = ("sys.path", "working folder") if execution_id is not None else ()
        path, folder = [self.restorer.part(str(execution_id), one) for one in parts] or (None, None)
        try:
            if path is not None:
                self.live.ambient.part("sys.path").restore(path)
            if folder:
                sys.path[:] = [os.path.join(folder, one) if one else folder for one in sys.path]
            yield
        finally:
            sys.path[:] = before

    def _mementos_of(self, difference: Difference) -> dict[str, Any]:
        """Return the mementos of a state's handles; they are plain, and small."""
        target = difference.target
        return {key: self.restorer.plain(target[HANDLE + key]) for key in without(HANDLE, target)}

    def commit(self, prepared: PreparedReturn) -> tuple[HeadMove, Restored]:
        """Put a loaded state in place, and tell in the cell what was done."""
        from ctxkernel.kernel.returning.return_plans import name_of

        session, job, fetched = self._session, prepared.job, prepared.fetched
        if job.resumable is not None:
            self._join(job)
        mementos = self._mementos_of(job.difference)
        # Held until the return has ended: a `__del__` must not run in the middle of it.
        before = {name: self.live.value(name) for name in (*fetched.values, *job.difference.drop) if is_bound(name)}
        finalizes = self._may_finalize(before)
        own = self.live.own_modules
        if job.action == "rerun":  # an import among these cells runs the file of its module, as in a new process
            self.live.unload_modules([name for name in own if MODULE + name not in job.difference.target])
        alive = self._alive(prepared) if prepared.plan.rerun else {}
        done = DoneReturn(self.restorer.settle(fetched), fetched.as_now)
        self.live.adopt_copies(before, fetched.values)
        if job.resumable is not None:
            session.configuration.recall(job.resumable.marks)
        self.live.continue_cells(job.target.execution_id)
        if prepared.plan.rerun:
            self._make_again(prepared.plan, alive, done)
        done.lost |= {name: why for name, why in prepared.plan.lost.items() if name in done.lost}
        done.modules = [name for name in own if MODULE + name not in job.difference.target]
        done.modules += [name for name in own if own[name].is_loaded_again(fetched.values.get(MODULE + name))]
        for name in done.modules:
            session.tracker.store_again(MODULE + name)
        self._restore_handles(mementos, job.difference, fetched.values, done)
        self._restore_ambient(job, fetched.values, done)
        done.notices += self._changed_containers(before, job.target.execution_id)
        alive.clear()
        if finalizes:
            done.lost |= self._finalize(before)
        before.clear()
        done.notices += self._other_subclasses(job.difference.target)
        self.comparisons.forget()
        self._move_trail(job)
        done.as_now = {**prepared.plan.as_now, **done.as_now}
        lost = self._by_users(done.lost)
        if text := return_text(prepared, done, lost):
            self._session.notices.write(text)
        uncertain = {name_of(place) for place in (*done.as_now, *lost)}
        self.facts.uncertain = job.target.execution_id, tuple(sorted(uncertain))
        move = HeadMove(job.target.execution_id, job.action, time.time())
        return move, Restored(lost, tuple(done.notices))

    def _by_users(self, lost: Mapping[str, str]) -> dict[str, str]:
        """Return lost names, with the variables that refer to a class or to a shared object in place of its label."""
        users = self._session.tracker.users_of
        named = {each: why for label, why in lost.items() if label.startswith(LABELS) for each in users(label)}
        named = {name: why for name, why in named.items() if is_variable(name)}
        return named | {name: why for name, why in lost.items() if not name.startswith(LABELS)}

    def _alive(self, prepared: PreparedReturn) -> dict[str, Any]:
        """Return the values that a plan makes again and that hold the same living objects now."""
        now, target = self.checkpoints.known_now(), prepared.job.difference.target
        tokens = {
            name: [{token for token, _ in unit.live} for unit in (now[name], target[name])]
            for name in prepared.plan.rerun
            if name in now and name in target
        }
        return {name: self.live.value(name) for name, (one, other) in tokens.items() if one and one == other}

    def _make_again(self, plan: Plan, alive: Mapping[str, Any], done: DoneReturn) -> None:
        """Run the statements again that make missing names."""
        from ctxkernel.kernel.returning.return_plans import make_again, name_of

        failed = make_again(self._session, plan, alive)
        done.made = [name for name in plan.rerun if name not in failed]
        kept = {name: f"it cannot be made again: {why}" for name, why in failed.items() if name in alive}
        done.as_now |= kept
        failed = {name: why for name, why in failed.items() if name not in kept}
        there = {*done.made, *kept}
        done.lost = {place: why for place, why in done.lost.items() if name_of(place) not in there} | failed
        self._session.tracker.rebase(done.made)
        self.checkpoints.made_again(done.made)

    def _restore_handles(
        self, mementos: Mapping[str, Any], difference: Difference, values: Mapping[str, Any], done: DoneReturn
    ) -> None:
        graph = self._session.loop.graph

        def looked_at(obj_id: str) -> Any:
            name = TARGET + obj_id
            return values[name] if name in values else graph.targets()[obj_id]

        done.notices += graph.restore(mementos, looked_at)
        graph.release()
        # What the handles held shared its objects with other names; what they hold now may share with others.
        self.live.follow_targets()
        held = {unit.names for name, unit in difference.target.items() if name.startswith(TARGET)}
        self._session.tracker.settle_loaded(held)
        self.live.mementos = graph.memento()

    def _restore_ambient(self, job: ReturnJob, values: Mapping[str, Any], done: DoneReturn) -> None:
        target = job.difference.target
        # The states from here on continue the target, which has these parts, and not the start of this kernel.
        first = self.live.ambient_first
        self.live.ambient_first = {name: one for name, one in first.items() if AMBIENT + name not in target}
        parts = self.live.ambient_values(without(AMBIENT, target), values)
        done.loggers = self.live.adopt_objects(parts, values, target)
        if job.target.execution_id is None:
            parts = dict(self.live.ambient_start)
        is_here = job.target.execution_id == self.checkpoints.base and not (job.difference.load or job.difference.drop)
        caches = self.live.caches
        stay = (caches.name,) if is_here and not caches.were_used_since(parts.get(caches.name, {})) else ()
        told = self.live.ambient.restore(parts, without(AMBIENT, job.difference.drop), stay)
        self.live.ambient_known.update(parts)
        done.notices += [f"{name}: {why}" for name, why in told.items()]
        self._session.tracker.accept(MODULE + name for name in own_modules.IN_PLACE)

    def _may_finalize(self, names: Collection[str]) -> bool:
        """Return whether objects of the user's with a `__del__` may be in the values of these variables."""
        known = self.checkpoints.known_now()
        units = [known[name] for name in names if name in known]
        if len(units) == len(names) and all(unit.is_plain for unit in units):
            return False
        shared = [one for unit in units for one in labels_of(unit, known).values()]
        if len(units) == len(names) and all(unit.is_whole for unit in (*units, *shared)):
            # All of their objects were packed, so the state has their classes: far fewer than the process.
            classes = [self._session.packer.part_of(name) for name in known if name.startswith(CLASS)]
        else:
            classes = list(own_classes(self._session.packer.module))
        return any(cls is not None and "__del__" in vars(cls) for cls in classes)

    def _finalize(self, replaced: dict[str, Any]) -> dict[str, str]:
        """Release the replaced objects; return the names that a `__del__` of theirs changed, and why."""
        tracker = self._session.tracker
        known = tracker.contents()
        replaced.clear()
        now = tracker.contents()
        changed = {name for name in known.keys() | now.keys() if is_variable(name) and known.get(name) != now.get(name)}
        for name in changed:
            tracker.store_again(name)
        return dict.fromkeys(sorted(changed), "the __del__ of an object that this return replaced changed it")

    def _changed_containers(self, before: dict[str, Any], target: str | None) -> list[str]:
        """Name the containers of libraries that cells changed through the names of these values."""
        if not any(map(is_container, before.values())):
            return []
        one, other = ({run.execution_id: run for _, run in self.log.back(at)} for at in (self.log.head, target))
        between = [run for at, run in {**one, **other}.items() if at not in one or at not in other]
        changed = {name for run in between for name, info in run.changes.changed.items() if info.how == "mutated"}
        held = library_containers(before, changed)
        found = sorted(f"{full} (as {name})" for name, full in held.items())
        return [f"library: {some_of(found, 6)}: changed since, and left as it is"] if found else []

    def _other_subclasses(self, target: Mapping[str, Any]) -> list[str]:
        """Free the classes of other states where cells ask for subclasses; name those that are still listed."""
        session = self._session
        if not any("__subclasses__" in one.source for one in session.loop.log):
            return []
        gc.collect()
        there = {id(session.packer.part_of(name)) for name in target if name.startswith(CLASS)}
        listed = {
            f"{class_qualname(one)} of {class_qualname(cls)}"
            for cls in own_classes(session.packer.module)
            if id(cls) in there
            for one in type.__subclasses__(cls)
            if id(one) not in there
        }
        return [f"outside: __subclasses__() still lists {some_of(sorted(listed))}"] if listed else []

    def _move_trail(self, job: ReturnJob) -> None:
        if job.at is not None:
            self.trail.undo(job.at)
            return
        turn = self._session.loop.opened
        if turn is not None and turn.outside is not None:  # an undo returns to what changed outside of the cell
            self.trail.ran(*turn.outside, again=False)
        self.trail.went(job.target.execution_id)
