"""The checkpoints of a kernel, as its turns use them: taken, settled, compared, and the return that a cell asked for.

Rule 1: a failure here costs the checkpoint, which is then skipped with its reason; never the turn.
Rule 2: a checkpoint is taken only where the changes of the cell are known as a whole; else it is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.core.ports import Tell
from ctxkernel.core.replay import CheckpointInfo, Comparison, HeadMove, Restored
from ctxkernel.core.timeline import Execution, NamespaceDiff
from ctxkernel.core.timeline_events import plain
from ctxkernel.core.turn_values import TurnResult
from ctxkernel.kernel.display.notices import Notices
from ctxkernel.kernel.display.progress import ProgressLine
from ctxkernel.kernel.execution.cell import CellRequest, ExecuteReply, Then
from ctxkernel.kernel.execution.guard import Guard, line_of
from ctxkernel.kernel.returning.checkpoint_health import Health, Room
from ctxkernel.kernel.returning.targets import ReturnJob
from ctxkernel.state.checkpoints.storage import BACKGROUND_SECONDS
from ctxkernel.store.chunks import late_results
from ctxkernel.store.chunks.manifest import CheckpointRow
from ctxkernel.store.log.session import SessionStore

if TYPE_CHECKING:
    from ctxkernel.kernel.returning.affected_notebook import AffectedNotebook
    from ctxkernel.kernel.returning.return_texts import PreparedReturn
    from ctxkernel.kernel.returning.returns import Returning

T = TypeVar("T")
REST_SECONDS = 0.5
"""Seconds without a cell after which the remaining work is done."""
_LAST_SECONDS = 5.0
"""Seconds that the end of a kernel waits for data that are still being written."""
_QUIET_SECONDS = 1.0
"""A return that takes longer tells how far it is, as often as this."""
CATCH_UP_SECONDS = 5.0
"""The most that a cell waits for the background to pack variables that it touches."""
_BACKGROUND = "checkpoints in the background"
_PROGRESS = "progress of a return"


@dataclass(eq=False, kw_only=True)
class CheckpointService:
    """The use that the turns of one kernel make of its checkpoints."""

    kernel: Any
    guard: Guard
    notices: Notices
    loop: Loop
    store: SessionStore
    health: Health
    room: Room
    show: Callable[[CheckpointInfo], None]
    """Shows in the panel what became of a checkpoint."""
    make_rerun: Callable[[ReturnJob], Then]
    rested: Callable[[], None] = lambda: None
    """Called when no cell has come for a moment and work is left."""

    returning: Returning | None = None
    """The checkpoints; None where they are off."""
    writing: dict[str, list[Any]] = field(default_factory=dict[str, "list[Any]"])
    """Execution → the jobs that still write data of its checkpoint."""
    is_first: bool = True
    """Whether no checkpoint was taken before the cell that ran last."""
    resting: Any = None
    """The timer that runs while no cell does; None where nothing is left to do."""
    job: ReturnJob | None = None
    """The return that the running cell asked for."""
    told: object = None
    """The cells of the notebook, as a front end told them with the request; None if it did not. Untrusted."""
    stepwise: AffectedNotebook | None = None
    """The notebook of which a front end sends the affected cells one by one."""
    prepared: PreparedReturn | None = None
    """The same return, with everything that it needs loaded."""
    committed: ReturnJob | None = None
    """The same return, after it was carried out."""
    line: ProgressLine | None = None
    """Tells how far the same return is, or what it waits for."""

    def start(self, back: Returning | None) -> None:
        """Begin with the checkpoints; None: they are off."""
        self.returning = back
        if back is not None:
            self.health.start(back.checkpoints.states, back.chunks, back.background)
            self.writing = back.checkpoints.writing

    def needed(self) -> Returning:
        """Return the checkpoints. Raises BadCommand if they are off."""
        if self.returning is None or "checkpoints" in self.guard.off:
            why = self.guard.off.get("checkpoints", "this kernel has none")
            raise BadCommand(
                f"checkpoints are off ({why}); restart the kernel, then %ctx status says whether they are back"
            )
        return self.returning

    def run(self, run: Callable[[Returning], T], part: str = "checkpoints") -> T | None:
        """Return `run(checkpoints)`; None if they, or this part, are off."""
        return None if self.returning is None else self.guard(part, run, None, self.returning)

    # -- taking ---------------------------------------------------------------------------------

    def before_first(self) -> None:
        """Note the state of the process before the first cell."""
        back = self.returning
        self.is_first = back is not None and back.checkpoints.base is None
        if back is not None and self.is_first:
            back.live.note_start()

    def extend_trail(self, ended: TurnResult, *, again: bool) -> None:
        """Note a turn as a step that `%ctx undo` can take back; `again`: it is part of a re-run."""
        if self.returning is not None:
            if ended.outside is not None:
                self.returning.trail.ran(*ended.outside, again=again)
            self.returning.trail.ran(ended.statement, ended.execution, again=again)

    def take(self, execution: Execution) -> CheckpointRow | None:
        """Take the state after an execution if its changes are known; a skipped one says why it is not there."""
        back, execution_id, blind = self.returning, execution.execution_id, self.loop.blind
        if back is None:
            return None
        row = None if blind else self.guard("checkpoints", back.take, None, execution_id)
        if row is None:
            part = "namespace diff" if blind else "checkpoints"
            why = blind or "the checkpoint failed"
            self.loop.suspect(why)
            row = self.health.skip(execution_id, f"{why} ({found})" if (found := self.guard.why(part)) else why)
            if part not in self.guard.off:
                self.notices.tell(f"ctxkernel: no state is kept after {execution.statement_id}: {row.reason}")
        else:
            if self.health.fault or row.state not in ("durable", "writing"):
                self._tell_stored(row, execution_id)
            self.room.added += row.nbytes
        return row

    def _tell_stored(self, made: CheckpointInfo | CheckpointRow, execution_id: str) -> None:
        """Tell, once for each trouble, that the data of a checkpoint could not be stored."""
        if told := self.health.stored(made, execution_id.rpartition(".")[0]):
            self.notices.tell(f"ctxkernel: {told}")

    def pair(self, request: CellRequest) -> None:
        """Find the execution that a notebook's cell re-runs."""
        if self.returning is not None:
            self.returning.comparisons.pair(request)

    def compare(self, ended: TurnResult, request: CellRequest) -> Comparison | None:
        """Return how a turn compares with the execution that it re-ran; None if that cannot be told."""
        if self.returning is None:
            return None
        try:
            comparison = self.returning.comparisons.compare(ended.execution, request.against)
        except CtxError as missing:  # the state that it is compared with is not there
            statement_id = ended.statement.statement_id
            self.notices.tell(f"ctxkernel: {statement_id} is not compared with its earlier run: {missing}")
            return None
        self.loop.compared(comparison)
        return comparison

    @property
    def comparing(self) -> list[str]:
        """The variables that a background process compares."""
        return self.run(lambda back: back.checkpoints.comparing, _BACKGROUND) or []

    # -- in the background ------------------------------------------------------------------------

    def settle(self) -> None:
        """Write to the log which checkpoints the background has finished, and the changes that it has found."""
        done = self.run(lambda back: back.checkpoints.poll(), _BACKGROUND) or ()
        late = self.run(lambda back: back.checkpoints.late.take(), _BACKGROUND) or {}
        self.run(lambda back: back.facts.add_prints(back.checkpoints.late.take_prints()), _BACKGROUND)
        shown = {one: info for one, found in late.items() if (info := self._keep_late(one, found)) is not None}
        for info, rows in done:
            self._tell_stored(info, info.execution_id)
            self.notices.keep(self.guard("session store", self._store_state, None, info, rows))
            self.run(lambda back, job=info.execution_id: late_results.forget(back.chunks.folder, job), _BACKGROUND)
            shown[info.execution_id] = info
        for info in shown.values():
            self.guard("panel", self.show, None, info)

    def _keep_late(self, execution_id: str, found: NamespaceDiff) -> CheckpointInfo | None:
        """Keep the changes that were found after a cell; return its checkpoint."""
        try:
            found = self.loop.changed_late(execution_id, found)
        except KeyError:  # of a timeline that was left
            return None
        self.run(lambda back: back.checkpoints.tracker.changed_late(found.changed), _BACKGROUND)
        told = self.guard("session store", self.store.mark, None, execution_id, "changes", plain(found), time.time())
        self.notices.keep(told)
        return self.health.info(execution_id)

    def _store_state(self, info: CheckpointInfo, rows: Any) -> str | None:
        return self.store.checkpoint_state(info.checkpoint_id, info.state, info.reason, time.time(), results=rows)

    def catch_up(self, names: Collection[str]) -> None:
        """Wait a moment for the background to pack names that the next cell touches."""
        if self.writing:
            self.run(lambda back: back.checkpoints.wait_for_names(names, CATCH_UP_SECONDS), _BACKGROUND)
            self.settle()

    def wait_for_all(self, seconds: float = BACKGROUND_SECONDS) -> bool:
        """Wait until all data are written, for `seconds` at most; return whether they are.

        What is packed in the background is then compared with the present state.
        """
        if self.writing:
            tell = self._begin_line()
            self.run(lambda back: back.background.wait(seconds, tell=tell), _BACKGROUND)
            self._end_line()
            self.settle()
        return not self.writing

    def rest(self) -> None:
        """Have `rested` called when no cell has come for a moment, if work is left."""
        loop = getattr(self.kernel, "io_loop", None)
        if loop is not None and self.returning is not None and (self.writing or self.room.due):
            self.resting = loop.call_later(REST_SECONDS, self.rested)

    def stop_rest(self) -> None:
        """Stop the timer: a cell has come."""
        self.kernel.io_loop.remove_timeout(self.resting)
        self.resting = None

    def keep_quota(self) -> None:
        """Keep the data within the quota, if it is time to check."""
        if self.room.due:
            self.run(lambda back: self.room.look(back.checkpoints, back.chunks), "quota")

    def close(self) -> None:
        """Finish what is being written; the kernel ends."""
        self.run(lambda back: back.background.wait(_LAST_SECONDS), "end")
        self.settle()
        self.run(lambda back: back.close(), "end")

    # -- the return that a cell asked for -----------------------------------------------------------

    def forget_job(self) -> bool:
        """Forget the return that a cell asked for; return whether one was loaded and not carried out."""
        loaded = self.prepared is not None
        self.job = self.prepared = self.committed = None
        self._end_line()
        return loaded

    def _begin_line(self) -> Tell:
        """Begin a line that tells how far a return is; return what shows a text in it."""
        line = self.line = ProgressLine(self.notices, after=_QUIET_SECONDS, every=_QUIET_SECONDS)
        return lambda text: self.guard(_PROGRESS, line.show, None, text)

    def _end_line(self) -> None:
        line, self.line = self.line, None
        if line is not None:
            self.guard(_PROGRESS, line.end, None)

    def load_job(self, reply: ExecuteReply) -> ExecuteReply:
        """Load what the return of the cell needs; nothing is changed yet. Return the cell's reply."""
        job, self.job = self.job, None
        if job is None or self.returning is None:
            return reply
        tell = self._begin_line()
        try:
            self.prepared = self.returning.prepare(job, lambda text: tell(f"to {job.target.told}: {text}"))
            return reply
        except CtxError as refusal:
            why = str(refusal)
        except Exception as fault:  # an internal fault: the state is as it was, and the user's next cell runs
            why = f"it could not be prepared ({type(fault).__name__}: {fault}); nothing was changed"
        self._end_line()
        return self.notices.refuse(why)

    def commit(self) -> tuple[HeadMove, Restored] | None:
        """Put the prepared state in place; None if none is prepared.

        Raises CtxError if that fails: then the state is neither that of before nor that of the target.
        """
        prepared, self.prepared = self.prepared, None
        if prepared is None or self.returning is None:
            return None
        try:
            done = self.returning.commit(prepared)
        except BaseException as fault:  # an internal fault, or one of a user's object
            told = prepared.job.target.told
            why = self.loop.blind = f"the return to {told} failed on its way ({line_of(fault)})"
            self.loop.suspect(why)
            raise CtxError(
                f"{why}: variables may have their values of before, or those of {told}. HEAD has not moved; "
                "repeat the command, or restart the kernel and use %ctx resume"
            ) from None
        finally:
            self._end_line()
        self.committed = prepared.job
        return done

    def rerun(self) -> Then | None:
        """Return the re-run that the return was made for; None if it was made for none."""
        job, self.committed = self.committed, None
        self.stepwise = job.affected if job is not None and job.stepwise else None
        if self.stepwise is not None:
            return None
        return self.make_rerun(job) if job is not None and (job.statements or job.affected) else None
