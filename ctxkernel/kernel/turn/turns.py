"""The turns of cells: `BEGIN` before the user's code runs, `END` after it. Start reading here.

    BEGIN   earlier writes → statement (`Loop.begin`) → store → capture → panel
    (IPython runs the code)
    END     output → return → outcome → `Loop.END` → checkpoint → comparison → store → displays → panel

Rule 1: order lives in the tables. A step that fails costs what it gives, in this cell only (`Guard`).
Rule 2: the work after a cell is bounded in time: `bounded` steps go on with less and say so.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkernel.core.errors import CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.core.replay import Comparison, HeadMove, Restored
from ctxkernel.core.steps import Step, run_steps
from ctxkernel.core.timeline import Artifact
from ctxkernel.core.turn import OpenTurn, Outcome, TurnResult
from ctxkernel.kernel.display.notices import Notices
from ctxkernel.kernel.execution.activity import Activity
from ctxkernel.kernel.execution.capture import Capture, Collector
from ctxkernel.kernel.execution.fd_streams import Streams
from ctxkernel.kernel.execution.interrupts import Interrupts
from ctxkernel.kernel.execution.read_files import FileReads
from ctxkernel.kernel.execution.written_files import FileScan
from ctxkernel.kernel.turn.cell import CellRequest, CellTurn, Reply, Then
from ctxkernel.kernel.turn.classification import moves_head
from ctxkernel.kernel.turn.guard import Guard, line_of
from ctxkernel.kernel.turn.outcome import outcome_of, status_of
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.store.chunks.manifest import CheckpointRow
from ctxkernel.store.log.session import SessionStore

if TYPE_CHECKING:
    from ctxkernel.kernel.configuration import Configuration
    from ctxkernel.kernel.display.handles import LiveDisplays
    from ctxkernel.kernel.display.panel import Panel
    from ctxkernel.kernel.returning.checkpoint_service import CheckpointService
    from ctxkernel.kernel.returning.file_states import FileStates

_ANYTHING = "it is not known what ran"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the steps of a turn work with."""

    kernel: Any
    guard: Guard
    notices: Notices
    loop: Loop
    tracker: NamespaceTracker
    store: SessionStore
    configuration: Configuration
    interrupts: Interrupts
    activity: Activity
    capture: Capture
    streams: Streams
    files: FileScan
    file_states: FileStates
    reads: FileReads
    checkpoints: CheckpointService
    displays: LiveDisplays
    panel: Panel
    collect_summaries: Callable[[], None]
    forget_copies: Callable[[], None]
    """The cells that a model ran count as run no longer: what they did would now be done in another state."""


class Turns:
    """The turns of the cells of one kernel."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._guard = parts.guard
        self._loop = parts.loop
        self._pid = os.getpid()
        self._cell: CellTurn | None = None
        self._unstored: deque[Callable[[], str | None]] = deque()
        """Writes the ends of turns that are not in the log yet."""
        self.last: TurnResult | None = None
        self.then: Then | None = None
        """What shall be done when the cell's turn is over."""
        self.executing = False
        """Whether an execute request is under way, between two cells of it too."""

    @property
    def running(self) -> OpenTurn | None:
        """The statement of the cell that runs now."""
        return self._cell.open if self._cell else None

    def next(self) -> Then | None:
        """Return what shall be done now that a cell's turn is over, once."""
        then, self.then = self.then, None
        return then

    # -- begin ----------------------------------------------------------------------------------

    def open(self, request: CellRequest) -> None:
        """Begin the turn of a cell, whatever fails of it."""
        self._guard.turn()
        self._parts.checkpoints.forget_job()
        cell = CellTurn(request, time.time())
        try:
            run_steps(self.BEGIN, self._guard, self, cell)
        except BaseException as fault:  # interrupts are masked
            self._guard.fail("timeline", fault)
        if cell.open is None:
            self._suspect("its beginning")
            return
        cell.collector = cell.collector or Collector(
            cell.open.execution.execution_id, self._parts.configuration.settings
        )
        cell.started = time.perf_counter()
        self._cell = cell

    def _store_late(self, cell: CellTurn) -> None:
        self.store_ends()

    def _keep_late_output(self, cell: CellTurn) -> None:
        self.keep_late_output()

    def _collect_summaries(self, cell: CellTurn) -> None:
        self._parts.collect_summaries()

    def _settle_checkpoints(self, cell: CellTurn) -> None:
        self._parts.checkpoints.stop_rest()
        self._parts.checkpoints.settle()

    def _pair(self, cell: CellTurn) -> None:
        """Find the execution that a notebook's re-run is compared with."""
        back = self._parts.checkpoints.returning
        if cell.request.rerun and back is not None:
            back.pair(cell.request)

    def _hidden_activity(self, cell: CellTurn) -> str:
        return self._parts.activity.ran()

    def _prepare_tracker(self, cell: CellTurn) -> None:
        """Tell the tracker how far to look for changes that were made outside of any cell."""
        tracker, activity = self._parts.tracker, self._parts.activity
        if cell.ran:
            tracker.look_outside(cell.ran)
        elif self._parts.interrupts.held:
            tracker.look_outside("a signal's handler may have run")
        elif activity.silent:
            tracker.refresh = True
        else:
            tracker.quiet = True
        activity.silent = False

    def _wait_for_checkpoints(self, cell: CellTurn) -> None:
        if moves_head(cell.request.code):
            self._parts.checkpoints.wait_for_all()
            self._parts.tracker.verify_next()

    def _begin_statement(self, cell: CellTurn) -> OpenTurn | None:
        request = cell.request
        begun = self._guard(
            "timeline",
            lambda: self._loop.begin(
                request.code,
                now=cell.now,
                author=request.author,
                kind=request.kind,
                cell_id=request.cell_id,
                tags=request.tags,
                rerun_of=request.rerun_of.statement_id if request.rerun_of is not None else None,
            ),
            None,
        )
        return begun or self._loop.opened

    def _store_beginning(self, cell: CellTurn) -> None:
        if cell.open is not None:
            turn = cell.open
            self._parts.notices.keep(self._parts.store.begin(turn.statement, turn.execution, turn.outside))

    def _take_outside(self, cell: CellTurn) -> CheckpointRow | None:
        outside = cell.open.outside if cell.open is not None else None
        return self._parts.checkpoints.take(outside[1]) if outside is not None else None

    def _take_first(self, cell: CellTurn) -> None:
        if cell.open is not None and self._parts.checkpoints.returning is not None:
            self._parts.checkpoints.returning.before_first()

    def _release_values(self, cell: CellTurn) -> None:
        self._parts.tracker.release()

    def _tell_settings(self, cell: CellTurn) -> None:
        self._parts.configuration.tell_once()

    def _begin_files(self, cell: CellTurn) -> None:
        self._parts.file_states.begin()

    def _begin_reads(self, cell: CellTurn) -> None:
        self._parts.reads.begin()

    def _open_capture(self, cell: CellTurn) -> Collector | None:
        if cell.open is None:
            return None
        request, execution_id = cell.request, cell.open.execution.execution_id
        unsent = request.rerun_of is not None and not request.rerun
        return self._parts.capture.open(request.msg_id, execution_id, unsent=unsent)

    def _show_beginning(self, cell: CellTurn) -> None:
        if cell.open is not None:
            self._parts.panel.begin(cell.open)

    BEGIN = (
        Step("session store", _store_late),
        Step("timeline", _keep_late_output),
        Step("summaries by a model", _collect_summaries),
        Step("checkpoints in the background", _settle_checkpoints),
        Step("comparison", _pair),
        Step("threads and tasks", _hidden_activity, gives="ran", otherwise=_ANYTHING),
        Step("namespace diff", _prepare_tracker, needs=("ran",)),
        Step("checkpoints in the background", _wait_for_checkpoints),
        Step("timeline", _begin_statement, gives="open", essential=True),
        Step("session store", _store_beginning, needs=("open",)),
        Step("checkpoints", _take_outside, gives="outside_row", needs=("open",)),
        Step("checkpoints", _take_first, needs=("open",)),
        Step("namespace diff", _release_values),
        Step("settings", _tell_settings),
        Step("kept files", _begin_files),
        Step("files that cells read", _begin_reads),
        Step("output capture", _open_capture, gives="collector", needs=("open",)),
        Step("panel", _show_beginning, needs=("open",)),
    )
    """What happens before the user's code runs, in this order."""

    # -- end ------------------------------------------------------------------------------------

    def shut(self, reply: Reply, interrupted: bool = False, timed_out: float | None = None) -> Reply:
        """End the turn of a cell, whatever fails of it. Returns the cell's reply: an error if its return failed."""
        cell, self._cell = self._cell, None
        if cell is None or os.getpid() != self._pid:  # a forked child that ran on: the timeline is its parent's
            return reply
        cell.reply, cell.interrupted, cell.timed_out = reply, interrupted, timed_out
        cell.elapsed = time.perf_counter() - cell.started
        cell.expired = self._deadline()
        try:
            run_steps(self.END, self._guard, self, cell)
        except BaseException as fault:  # interrupts are masked
            self._guard.fail("timeline", fault)
            self._suspect("its end")
            self._guard("timeline", self._close, None, reply, interrupted, timed_out)
        if self._parts.checkpoints.forget_job():  # the end failed before it came to that
            why = self._guard.why("timeline") or "the timeline failed"
            return self._parts.notices.refuse(f"nothing was restored: {why}")
        return cell.reply

    def _settle_streams(self, cell: CellTurn) -> None:
        self._parts.streams.settle()

    def _commit_return(self, cell: CellTurn) -> tuple[HeadMove, Restored] | None:
        try:
            return self._parts.checkpoints.commit()
        except CtxError as fault:
            cell.reply = self._parts.notices.refuse(str(fault))
            return None

    def _close_capture(self, cell: CellTurn) -> None:
        self._parts.capture.close(cell.request.msg_id)

    def _list_reads(self, cell: CellTurn) -> tuple[Artifact, ...]:
        return self._parts.reads.end(cell.expired)

    def _list_written(self, cell: CellTurn) -> tuple[Artifact, ...]:
        return self._parts.files.written(cell.now, cell.expired)

    def _keep_files(self, cell: CellTurn) -> None:
        assert cell.open is not None
        statement_id = cell.open.statement.statement_id
        self._parts.file_states.record(statement_id, cell.written, self._parts.files.listing)

    def _read_outcome(self, cell: CellTurn) -> Outcome:
        return outcome_of(cell, none_came=self._parts.interrupts.none_came)

    def _suspect_activity(self, cell: CellTurn) -> None:
        if cell.ran:
            self._parts.tracker.suspect_all(cell.ran)

    def _watch_results(self, cell: CellTurn) -> None:
        if self._parts.checkpoints.returning is not None:
            self._parts.checkpoints.returning.follow()

    def _end_statement(self, cell: CellTurn) -> TurnResult:
        assert cell.outcome is not None
        move, restored = cell.committed or (None, None)
        observe = cell.request.observe or (lambda execution: ())
        now = cell.now + cell.elapsed
        return self._loop.end(cell.outcome, now, cell.expired, move=move, restored=restored, observe=observe)

    def _close_statement(self, cell: CellTurn) -> TurnResult:
        """Return the turn; where its end failed, how the cell ended is kept, and nothing else."""
        assert cell.open is not None
        assert cell.outcome is not None
        return cell.result or self._loop.close(cell.open, cell.outcome, cell.now + cell.elapsed)

    def _plan_rerun(self, cell: CellTurn) -> None:
        """Have the statements run again that the return was made for."""
        assert cell.result is not None
        if cell.result.moved is not None:
            self.then = self._parts.checkpoints.rerun() or self.then

    def _take_checkpoint(self, cell: CellTurn) -> CheckpointRow | None:
        assert cell.result is not None
        return None if cell.result.moved is not None else self._parts.checkpoints.take(cell.result.execution)

    def _compare(self, cell: CellTurn) -> Comparison | None:
        assert cell.result is not None
        return self._parts.checkpoints.compare(cell.result, cell.request)

    def _extend_trail(self, cell: CellTurn) -> None:
        back, ended = self._parts.checkpoints.returning, cell.result
        assert ended is not None
        if back is None or cell.comparison is not None or ended.moved is not None:
            return
        if back.trail.here != ended.execution.execution_id:
            back.trail.ran(ended.statement, ended.execution, again=cell.request.again)

    def _complete_result(self, cell: CellTurn) -> TurnResult:
        assert cell.result is not None
        checkpoint = self._parts.checkpoints.info(cell.result.execution.execution_id)
        self.last = dataclasses.replace(cell.result, checkpoint=checkpoint, comparison=cell.comparison)
        return self.last

    def _tell_notices(self, cell: CellTurn) -> None:
        """Tell the notices of the model's history: nobody else does."""
        assert cell.result is not None
        for text in cell.result.notices[len(cell.result.execution.notices) :]:
            self._parts.notices.tell(f"ctxkernel: {text}")

    def _store_end(self, cell: CellTurn) -> None:
        result, row, outside = cell.result, cell.row, cell.outside_row
        assert result is not None
        self._unstored.append(lambda: self._parts.store.end(result, checkpoint=row, outside_checkpoint=outside))
        self.store_ends()

    def _update_displays(self, cell: CellTurn) -> None:
        self._parts.displays.update()

    def _show_end(self, cell: CellTurn) -> None:
        assert cell.result is not None
        self._parts.panel.turn(cell.result)

    def _rest(self, cell: CellTurn) -> None:
        self._parts.checkpoints.rest(self._rested)

    FINISH = (
        Step("checkpoints", _take_checkpoint, gives="row", needs=("result",), essential=True),
        Step("comparison", _compare, gives="comparison", needs=("result", "row")),
        Step("comparison", _extend_trail, needs=("result", "comparison")),
        Step("timeline", _complete_result, gives="result", needs=("result", "row", "comparison"), essential=True),
        Step("notices", _tell_notices, needs=("result",)),
        Step("session store", _store_end, needs=("result", "row"), essential=True),
        Step("display of handles", _update_displays),
        Step("panel", _show_end, needs=("result",)),
        Step("checkpoints in the background", _rest),
    )
    """What follows when a statement has ended: its state is kept, and everybody is told."""
    END = (
        Step("output of C code and subprocesses", _settle_streams),
        Step("return", _commit_return, gives="committed", essential=True),
        Step("output capture", _close_capture),
        Step("files that cells read", _list_reads, gives="read", otherwise=(), bounded=True),
        Step("written files", _list_written, gives="written", otherwise=(), bounded=True),
        Step("kept files", _keep_files, needs=("written",)),
        Step("timeline", _read_outcome, gives="outcome", needs=("read", "written"), essential=True),
        Step("threads and tasks", _hidden_activity, gives="ran", otherwise=_ANYTHING),
        Step("namespace diff", _suspect_activity, needs=("ran",)),
        Step("checkpoints", _watch_results),
        Step("timeline", _end_statement, gives="result", needs=("outcome", "committed"), bounded=True),
        Step("timeline", _close_statement, gives="result", needs=("result", "outcome"), essential=True),
        Step("timeline", _plan_rerun, needs=("result",)),
        *FINISH,
    )
    """What happens when the user's code has ended, in this order; `_end_statement` walks `Loop.END`."""

    def _close(self, reply: Reply, interrupted: bool, timed_out: float | None) -> None:
        """End the open statement of a cell of which `END` failed: how it ended is kept, and nothing else."""
        turn = self._loop.opened
        if turn is None:
            return
        status, exception = status_of(reply, interrupted, timed_out is not None)
        cell = CellTurn(CellRequest("", ""), time.time(), open=turn, reply=reply)
        cell.result = self._loop.close(turn, Outcome(status, exception=exception), time.time())
        run_steps(self.FINISH, self._guard, self, cell)

    def _suspect(self, what: str) -> None:
        self._guard("namespace diff", self._loop.suspect, None, f"a cell ran of which {what} was not seen")

    def _deadline(self) -> Callable[[], bool]:
        end = time.perf_counter() + self._parts.configuration.settings.end_phase_ms / 1000
        interrupts = self._parts.interrupts
        return lambda: interrupts.pending or time.perf_counter() > end

    def store_ends(self) -> None:
        """Write the ends of turns to the log, in order; one that failed is tried again with the next."""
        while self._unstored:
            told = self._guard("session store", lambda: (self._unstored[0](),), None)
            if told is None:
                if "session store" in self._guard.off:
                    self._unstored.clear()
                return
            self._unstored.popleft()
            self._parts.notices.keep(told[0])

    def keep_late_output(self) -> None:
        """Keep output that came after the end of its cell."""
        late = self._parts.capture.late
        while late:
            execution_id, stream, text = late.popleft()
            try:
                self._loop.late(execution_id, stream, text)
            except KeyError:
                continue
            self._guard("session store", self._parts.store.late, None, execution_id, stream, text)

    # -- gestures, and what is done between two cells ---------------------------------------------

    def gesture(self, request: CellRequest, run: Callable[[], None]) -> str:
        """Carry out what the text of a gesture says, as a statement. Returns why it could not be, or nothing.

        On the main thread, where no cell runs. `run` can be interrupted as a cell can.
        """
        interrupts = self._parts.interrupts
        before = interrupts.mask()
        self._parts.forget_copies()
        reply: Reply = {"status": "ok"}
        try:
            self.open(request)
            try:
                with interrupts.user_code():
                    run()
            except (Exception, KeyboardInterrupt) as fault:
                told = str(fault) if isinstance(fault, CtxError) else f"{type(fault).__name__}: {fault}".rstrip(": ")
                reply = {"status": "error", "ename": type(fault).__name__, "evalue": told, "traceback": [told]}
            self.shut(reply, reply.get("ename") == "KeyboardInterrupt")
        finally:
            interrupts.pending = False
            signal.signal(signal.SIGINT, before)
            self.idle()
        return str(reply.get("evalue", ""))

    def _rested(self) -> None:
        if self._cell is not None:
            return
        self._parts.interrupts.hold()
        try:
            self._parts.checkpoints.settle()
            self._parts.checkpoints.keep_quota()
            self._parts.checkpoints.rest(self._rested)
        finally:
            self.idle()

    def idle(self) -> None:
        """Nothing of ours runs any more: the user's signal handlers are in force again."""
        if not self._parts.interrupts.busy:
            self.tell_late_signals()
            self._parts.interrupts.release()

    def tell_late_signals(self) -> None:
        """Call the user's handlers of signals that came while our code ran; what one raises is told."""
        for name, fault in self._parts.interrupts.deliver():
            self._parts.notices.tell(
                f"ctxkernel: {name} came when the cell had ended, while ctxkernel worked; "
                f"its handler raised {line_of(fault)}"
            )
            if isinstance(fault, SystemExit):  # as it would end a kernel that waits
                self._parts.kernel.io_loop.asyncio_loop.call_soon(sys.exit, fault.code)
