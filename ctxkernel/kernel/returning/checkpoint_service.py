"""The checkpoints of a kernel, as its turns use them: taken, settled, compared, and the return that a cell asked for.

Rule 1: a failure here costs the checkpoint, which is then skipped with its reason; never the turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ctxkernel.core.errors import CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.core.replay import CheckpointInfo, Comparison, HeadMove, Restored
from ctxkernel.core.timeline import Execution
from ctxkernel.core.turn import TurnResult
from ctxkernel.kernel.display.notices import Notices
from ctxkernel.kernel.turn.cell import CellRequest, Reply, Then
from ctxkernel.kernel.turn.guard import Guard, line_of
from ctxkernel.store.chunks.manifest import CheckpointRow
from ctxkernel.store.log.session import SessionStore

if TYPE_CHECKING:
    from ctxkernel.kernel.display.panel import Panel
    from ctxkernel.kernel.returning.checkpoint_health import Health
    from ctxkernel.kernel.returning.quota_check import Room
    from ctxkernel.kernel.returning.returns import Job, Prepared, Returning

T = TypeVar("T")
REST_SECONDS = 0.5
"""How long no cell runs before what is left to do is done."""


class CheckpointService:
    """What the turns of one kernel do with its checkpoints."""

    def __init__(
        self,
        *,
        kernel: Any,
        guard: Guard,
        notices: Notices,
        loop: Loop,
        store: SessionStore,
        health: Health,
        quota: Room,
        panel: Panel,
        make_rerun: Callable[[Job], Then],
    ) -> None:
        self.returning: Returning | None = None
        """The checkpoints; None where they are off."""
        self.job: Job | None = None
        """A return that the running cell asked for …"""
        self._prepared: Prepared | None = None
        """… with all that it needs, loaded."""
        self._committed: Job | None = None
        self._kernel = kernel
        self._guard = guard
        self._notices = notices
        self._loop = loop
        self._store = store
        self._health = health
        self._quota = quota
        self._panel = panel
        self._make_rerun = make_rerun
        self._resting: Any = None

    def run(self, run: Callable[[Returning], T], step: str = "checkpoints") -> T | None:
        """Do something with the checkpoints; None where they, or this step, are off."""
        back = self.returning
        return None if back is None else self._guard(step, run, None, back)

    # -- taking ---------------------------------------------------------------------------------

    def take(self, execution: Execution) -> CheckpointRow | None:
        """Take the state after an execution, where it is known what changed; a skipped one says why it is not there."""
        back, execution_id, blind = self.returning, execution.execution_id, self._loop.blind
        if back is None:
            return None
        row = None if blind else self._guard("checkpoints", lambda: back.take(execution_id), None)
        if row is None:
            step = "namespace diff" if blind else "checkpoints"
            why = blind or "the checkpoint failed"
            self._loop.suspect(why)
            row = self._health.skip(execution_id, f"{why} ({found})" if (found := self._guard.why(step)) else why)
            if step not in self._guard.off:
                self._notices.tell(f"ctxkernel: no state is kept after {execution.statement_id}: {row.reason}")
        else:
            self._tell_stored(row, execution_id)
            self._quota.stored(row.nbytes)
        return row

    def _tell_stored(self, made: CheckpointInfo | CheckpointRow, execution_id: str) -> None:
        """Tell, once for each trouble, that the data of a checkpoint could not be stored."""
        told = self._health.stored(made, execution_id.rpartition(".")[0])
        if told:
            self._notices.tell(f"ctxkernel: {told}")

    def info(self, execution_id: str) -> CheckpointInfo | None:
        """Return what is known of the checkpoint after an execution; None where there is none."""
        return None if self.returning is None else self._health.info(execution_id)

    def compare(self, ended: TurnResult, request: CellRequest) -> Comparison | None:
        """Return how a turn compares with the execution that it re-ran; None where it re-ran none."""
        try:
            back = self.returning
            return None if back is None else back.took(ended, request.against, again=request.again)
        except CtxError as missing:  # the state that it is to be compared with is not there
            statement_id = ended.statement.statement_id
            self._notices.tell(f"ctxkernel: {statement_id} is not compared with its earlier run: {missing}")
            return None

    # -- in the background ------------------------------------------------------------------------

    def settle(self) -> None:
        """Tell the log which checkpoints the background has finished."""
        for info, rows in self.run(lambda back: back.durable(), "checkpoints in the background") or ():
            self._tell_stored(info, info.execution_id)
            told = self._guard("session store", self._store_state, None, info, rows)
            self._notices.keep(told)
            self._guard("panel", self._panel.checkpoint, None, info)

    def _store_state(self, info: CheckpointInfo, rows: Any) -> str | None:
        return self._store.checkpoint_state(info.checkpoint_id, info.state, info.reason, time.time(), results=rows)

    def wait_for_all(self) -> None:
        """Wait for all data that are still being written."""
        self.run(lambda back: back.wait_for_all(), "checkpoints in the background")

    def rest(self, rested: Callable[[], None]) -> None:
        """Have `rested` called when no cell has come for a moment, if something is left to do then."""
        loop, back = getattr(self._kernel, "io_loop", None), self.returning
        if loop is not None and back is not None and (back.checkpoints.writing or self._quota.due):
            self._resting = loop.call_later(REST_SECONDS, rested)

    def stop_rest(self) -> None:
        """A cell has come."""
        if self._resting is not None:
            self._kernel.io_loop.remove_timeout(self._resting)
            self._resting = None

    def keep_quota(self) -> None:
        """Keep the data within the quota, where it is time to look."""
        if self._quota.due:
            self.run(self._quota.look, "quota")

    def close(self) -> None:
        """Finish what is being written; the kernel ends."""
        self.run(lambda back: back.wait(), "end")
        self.settle()
        self.run(lambda back: back.close(), "end")

    # -- the return that a cell asked for -----------------------------------------------------------

    def forget_job(self) -> bool:
        """Forget the return that a cell asked for; returns whether one was loaded and not carried out."""
        loaded = self._prepared is not None
        self.job = self._prepared = self._committed = None
        return loaded

    def load_job(self, reply: Reply) -> Reply:
        """Load what the return that the cell asked for needs; nothing is changed yet. Returns the cell's reply."""
        job, self.job = self.job, None
        back = self.returning
        if job is None or back is None:
            return reply
        try:
            self._prepared = back.prepare(job)
        except CtxError as refusal:
            return self._notices.refuse(str(refusal))
        except Exception as fault:  # ours: the state is as it was, and the user's next cell runs
            why = f"it could not be prepared ({type(fault).__name__}: {fault}); nothing was changed"
            return self._notices.refuse(why)
        return reply

    def commit(self) -> tuple[HeadMove, Restored] | None:
        """Put the prepared state in place; None where none is prepared.

        Raises CtxError where that fails: then the state is neither that of before nor that of the target.
        """
        prepared, self._prepared = self._prepared, None
        if prepared is None or self.returning is None:
            return None
        try:
            committed = self.returning.commit(prepared)
        except BaseException as fault:  # of ours, or out of an object of the user's
            told = prepared.job.target.told
            why = self._loop.blind = f"the return to {told} failed on its way ({line_of(fault)})"
            self._loop.suspect(why)
            raise CtxError(
                f"{why}: variables may have their values of before, or those of {told}. HEAD has not moved; "
                "repeat the command, or restart the kernel and use %ctx resume"
            ) from None
        self._committed = prepared.job
        return committed

    def rerun(self) -> Then | None:
        """Return the re-run that the return was made for; None where it was made for none."""
        job, self._committed = self._committed, None
        return self._make_rerun(job) if job is not None and job.statements else None
