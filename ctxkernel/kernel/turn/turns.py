"""The turns of cells: `BEGIN` before the user's code runs, `END` after it. Start reading here.

    BEGIN   earlier writes → statement (`Loop.begin`) → store → capture → panel
    (IPython runs the code)
    END     output → return → outcome → `Loop.END` → checkpoint → comparison → store → displays → panel

Rule 1: order lives in the tables. If a step fails, only its result is missing, and only for this cell (`Guard`).
Rule 2: the work after a cell is bounded in time: the functions of `bounded` steps take `expired`, do less when it is
        true, and report it.
Rule 3: a step whose `when` is false is skipped: it has nothing to do.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ctxkernel.core.connection_names import connection_variables, restore_connections
from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.core.replay import HeadMove, Restored
from ctxkernel.core.steps import Step, run_steps
from ctxkernel.core.timeline import Artifact, Execution
from ctxkernel.core.turn_values import OpenTurn, Outcome, TurnResult
from ctxkernel.kernel.configuration import Configuration
from ctxkernel.kernel.display.handle_display import LiveDisplays
from ctxkernel.kernel.display.notices import Notices, masked_notice
from ctxkernel.kernel.display.panel import Panel
from ctxkernel.kernel.execution.activity import Activity
from ctxkernel.kernel.execution.capture import Capture, Collector
from ctxkernel.kernel.execution.cell import CellRequest, ExecuteReply, Then
from ctxkernel.kernel.execution.fd_streams import Streams
from ctxkernel.kernel.execution.guard import Guard, line_of
from ctxkernel.kernel.execution.input_history import InputHistory
from ctxkernel.kernel.execution.interrupts import Interrupts
from ctxkernel.kernel.execution.read_files import FileReads
from ctxkernel.kernel.execution.secret_values import SecretValues
from ctxkernel.kernel.execution.written_files import FileScan
from ctxkernel.kernel.returning.checkpoint_service import CheckpointService
from ctxkernel.kernel.returning.store_mirror import StoreMirror
from ctxkernel.kernel.turn.cell_turn import CellTurn, outcome_of, outcome_of_kept, status_of
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.store.chunks.manifest import CheckpointRow
from ctxkernel.store.log.session import SessionStore

if TYPE_CHECKING:  # the ambient state remembers the process as it is when it is imported
    from ctxkernel.kernel.returning.file_states import FileStates

_ANYTHING = "it is not known what ran"


def _observe_nothing(execution: Execution) -> tuple[()]:
    return ()


@dataclass(eq=False, kw_only=True)
class Turns:
    """The turns of the cells of one kernel."""

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
    secrets: SecretValues
    input_history: InputHistory
    checkpoints: CheckpointService
    displays: LiveDisplays
    panel: Panel
    mirror: StoreMirror
    forget_copies: Callable[[], None] = lambda: None
    """Run later copies of the model's cells again: the state has changed since these ran."""
    collect_summaries: Callable[[], None] = lambda: None
    """Store the summaries that a model wrote."""

    cell: CellTurn | None = None
    """The record of the turn that began last, until it has ended."""
    running: OpenTurn | None = None
    """The statement of the cell that runs now."""
    unstored: deque[tuple[TurnResult, CheckpointRow | None, CheckpointRow | None]] = field(
        default_factory=deque[tuple[TurnResult, CheckpointRow | None, CheckpointRow | None]]
    )
    """Ended turns that are not in the log yet, each with its checkpoint, and that of changes outside of the cell."""
    last: TurnResult | None = None
    then: Then | None = None
    """Work that continues after the turn of the cell."""
    executing = False
    """Whether an execute request is under way, also between two cells of it."""
    _pid: int = field(default_factory=os.getpid)

    def take_then(self) -> Then | None:
        """Return the work that continues after the turn of a cell, once."""
        then, self.then = self.then, None
        return then

    # -- begin ----------------------------------------------------------------------------------

    def open(self, request: CellRequest) -> None:
        """Begin the turn of a cell, whichever step fails."""
        self.guard.turn()
        self.checkpoints.forget_job()
        cell, before = CellTurn(request, time.time()), self.loop.opened
        self.cell = cell
        try:
            run_steps(self.BEGIN, self.guard, self, cell)
        except BaseException as fault:  # interrupts are masked
            self.guard.fail("timeline", fault)
            cell.open = self.loop.opened if self.loop.opened is not before else None
        if cell.open is None:
            self._suspect("its beginning")
            return
        cell.collector = cell.collector or Collector(cell.open.execution.execution_id, self.configuration.settings)
        cell.started = time.perf_counter()
        self.running = cell.open

    def _prepare_tracker(self, cell: CellTurn) -> None:
        """Tell the tracker how far to search for changes outside of cells."""
        if cell.ran:
            self.tracker.look_outside(cell.ran)
        elif self.interrupts.held:
            self.tracker.look_outside("a signal's handler may have run")
        elif self.activity.silent:
            self.tracker.refresh = True
        else:
            self.tracker.quiet = True
        self.activity.silent = False

    def _wait_for_checkpoints(self, cell: CellTurn) -> None:
        self.checkpoints.wait_for_all()
        self.tracker.verify_next()

    def _read_secrets(self, cell: CellTurn) -> None:
        """Find secrets in the text of the cell before it is stored and runs."""
        self.secrets.before_cell(cell.request.code)

    def _begin_statement(self, cell: CellTurn) -> OpenTurn:
        if why := self.guard.off.get("timeline"):
            raise RuntimeError(why)
        request = cell.request
        return self.loop.begin(
            request.code,
            now=cell.now,
            author=request.author,
            kind=request.kind,
            cell_id=request.cell_id,
            tags=request.tags,
            rerun_of=request.rerun_of.statement_id if request.rerun_of is not None else None,
        )

    def _store_beginning(self, cell: CellTurn) -> None:
        assert cell.open is not None
        self.notices.keep(self.store.begin(cell.open.statement, cell.open.execution, cell.open.outside))

    def _take_outside(self, cell: CellTurn) -> CheckpointRow | None:
        assert cell.open is not None
        assert cell.open.outside is not None
        return self.checkpoints.take(cell.open.outside[1])

    def _open_capture(self, cell: CellTurn) -> Collector:
        assert cell.open is not None
        request = cell.request
        unsent = request.only_logged or (request.rerun_of is not None and not request.rerun)
        return self.capture.open(request.msg_id, cell.open.execution.execution_id, unsent=unsent)

    def _note_connections(self, cell: CellTurn) -> dict[str, str]:
        return connection_variables(os.environ)

    def _restore_connections(self, cell: CellTurn) -> None:
        """Restore the variables that say where requests to models go: a cell of the model must not change them."""
        if changed := restore_connections(os.environ, cell.connections):
            self.notices.tell(
                f"ctxkernel: the cell of the model changed {', '.join(changed)}, which is as before again: "
                "only a person can change where requests to models go (%env in a cell of your own)"
            )

    def store_ends(self, cell: CellTurn | None = None) -> None:
        """Write ended turns to the log, in order. If one fails, it is retried with the next turn."""
        while self.unstored:
            result, row, outside = self.unstored[0]
            told = self.store.end(result, checkpoint=row, outside_checkpoint=outside)
            self.unstored.popleft()
            self.notices.keep(told)

    def keep_late_output(self, cell: CellTurn | None = None) -> None:
        """Record output that came after the end of its cell."""
        late = self.capture.late
        while late:
            execution_id, stream, text = late.popleft()
            while late and late[0][:2] == (execution_id, stream):  # a secret may be in two messages
                text += late.popleft()[2]
            try:
                self.loop.late(execution_id, stream, text)
            except KeyError:  # the beginning of its cell could not be recorded; the front end has shown the output
                continue
            self.notices.keep(self.guard("session store", self.store.late, None, execution_id, stream, text))

    BEGIN = (
        Step("session store", store_ends, when="unstored"),
        Step("timeline", keep_late_output, when="capture.late"),
        Step("summaries by a model", "collect_summaries"),
        Step("checkpoints in the background", "checkpoints.stop_rest", when="checkpoints.resting"),
        Step("checkpoints in the background", "checkpoints.settle", when="checkpoints.writing"),
        Step("comparison", "checkpoints.pair", needs=("request",), when="cell.request.rerun"),
        Step("threads and tasks", "activity.ran", gives="ran", otherwise=_ANYTHING),
        Step("namespace diff", _prepare_tracker, needs=("ran",)),
        Step("checkpoints in the background", _wait_for_checkpoints, when="cell.request.moves_head"),
        Step("secrets", _read_secrets),
        Step("timeline", _begin_statement, gives="open", essential=True),
        Step("session store", _store_beginning, needs=("open",)),
        Step("checkpoints", _take_outside, gives="outside_row", needs=("open",), when="cell.open.outside"),
        Step("checkpoints", "checkpoints.before_first", when="checkpoints.is_first"),
        Step(
            "checkpoints",
            "checkpoints.returning.live.before_cell",
            needs=("request",),
            when="checkpoints.returning",
        ),
        Step("namespace diff", "tracker.release"),
        Step("settings", "configuration.tell_once", when="configuration.untold"),
        Step("kept files", "file_states.begin", when="file_states.on"),
        Step("files that cells read", "reads.begin"),
        Step("output capture", _open_capture, gives="collector", needs=("open",)),
        Step("notices", "notices.tell_due", when="notices.due"),
        Step("connections to models", _note_connections, gives="connections", when="cell.request.by_model"),
        Step("panel", "panel.begin", needs=("open",)),
    )
    """The steps before the user's code runs, in this order."""

    # -- end ------------------------------------------------------------------------------------

    def shut(self, reply: ExecuteReply, interrupted: bool = False, timed_out: float | None = None) -> ExecuteReply:
        """End the turn of a cell, whichever step fails. Return the cell's reply: an error if its return failed."""
        cell, running, self.running = self.cell, self.running, None
        if cell is None or running is None or os.getpid() != self._pid:  # a forked child has no timeline of its own
            return reply
        cell.reply, cell.interrupted, cell.timed_out = reply, interrupted, timed_out
        now = time.perf_counter()
        cell.elapsed = now - cell.started
        end, interrupts = now + self.configuration.settings.end_phase_ms / 1000, self.interrupts
        cell.expired = lambda: interrupts.pending or time.perf_counter() > end
        try:
            run_steps(self.END, self.guard, self, cell)
        except BaseException as fault:  # interrupts are masked
            self.guard.fail("timeline", fault)
            self._suspect("its end")
            self.guard("timeline", self._close, None, cell)
        self.cell = None
        if self.checkpoints.forget_job():  # the end failed before the return was carried out
            return self.notices.refuse(f"nothing was restored: {self.guard.why('timeline') or 'the timeline failed'}")
        return cell.reply

    def _commit_return(self, cell: CellTurn) -> tuple[HeadMove, Restored] | None:
        try:
            return self.checkpoints.commit()
        except CtxError as fault:
            cell.reply = self.notices.refuse(str(fault))
            return None

    def _keep_files(self, cell: CellTurn) -> None:
        assert cell.open is not None
        self.file_states.record(cell.open.statement.statement_id, cell.written)

    def _scale_images(self, cell: CellTurn) -> Sequence[Artifact]:
        """Return scaled copies of the cell's images that are too large for a model."""
        if cell.collector is None or not cell.collector.has_displays:
            return ()
        from ctxkernel.kernel.execution.pictures import scaled_pictures

        artifacts, dropped = cell.collector.artifacts(), cell.collector.dropped_images
        return scaled_pictures(artifacts, dropped, self.configuration.settings, cell.expired)

    def _read_outcome(self, cell: CellTurn) -> Outcome:
        if cell.request.kept is not None and cell.reply.get("status") == "ok":
            return outcome_of_kept(cell.request.kept, cell.request.recalled)
        return outcome_of(cell, none_came=self.interrupts.none_came)

    def _end_statement(self, cell: CellTurn) -> TurnResult:
        """Return the result of the turn. If `Loop.end` fails, the result has only the outcome of the cell."""
        assert cell.open is not None
        assert cell.outcome is not None
        now = cell.now + cell.elapsed
        try:
            move, restored = cell.committed or (None, None)
            observe = cell.request.observe or _observe_nothing
            return self.loop.end(cell.outcome, now, cell.expired, move=move, restored=restored, observe=observe)
        except BaseException as fault:
            self.guard.fail("timeline", fault)
            return self.loop.close(cell.open, cell.outcome, now)

    def _plan_rerun(self, cell: CellTurn) -> None:
        """Plan the re-run, if the return was made for one."""
        assert cell.result is not None
        if cell.result.moved is not None:
            self.then = self.checkpoints.rerun() or self.then

    def _take_checkpoint(self, cell: CellTurn) -> CheckpointRow | None:
        """Take a checkpoint, and add the cell to the trail of `%ctx undo`, unless HEAD moved."""
        result = cell.result
        assert result is not None
        if result.moved is not None:
            return None
        again = cell.request.rerun or cell.request.only_logged or cell.request.rerun_of is not None
        self.checkpoints.extend_trail(result, again=again)
        return self.checkpoints.take(result.execution)

    def _complete_result(self, cell: CellTurn) -> TurnResult:
        """Add the checkpoint and the comparison to the result, and queue it for the log."""
        assert cell.result is not None
        info = self.checkpoints.health.info(cell.result.execution.execution_id)
        self.last = dataclasses.replace(cell.result, checkpoint=info, comparison=cell.comparison)
        if "session store" not in self.guard.off:
            self.unstored.append((self.last, cell.row, cell.outside_row))
        return self.last

    def _tell_notices(self, cell: CellTurn) -> None:
        """Show the notices of the model's history; those of the execution were shown before."""
        assert cell.result is not None
        for text in cell.result.notices[len(cell.result.execution.notices) :]:
            self.notices.tell(f"ctxkernel: {text}")
        if masked := self.secrets.masker.take_untold():
            self.notices.tell(f"ctxkernel: {masked_notice(masked)}")

    FINISH = (
        Step("checkpoints", _take_checkpoint, gives="row", needs=("result",), essential=True),
        Step(
            "comparison",
            "checkpoints.compare",
            gives="comparison",
            needs=("result", "request"),
            when="cell.request.against",
        ),
        Step("timeline", _complete_result, gives="result", needs=("result", "row", "comparison"), essential=True),
        Step("notices", _tell_notices, needs=("result",)),
        Step("session store", store_ends, needs=("result",)),
        Step("display of handles", "displays.update", needs=("result",)),
        Step("panel", "panel.turn", needs=("result",)),
        Step("checkpoints in the background", "checkpoints.rest"),
        Step("history of inputs", "input_history.write_soon", when="input_history.gathers"),
        Step("second store", "mirror.stored", when="mirror.on"),
    )
    """The steps after the statement has ended: store the state and the turn, update displays and panel."""
    END = (
        Step("connections to models", _restore_connections, needs=("connections",), when="cell.request.by_model"),
        Step("output of C code and subprocesses", "streams.settle"),
        Step("return", _commit_return, gives="committed", essential=True, when="checkpoints.prepared"),
        Step("output capture", "capture.close", needs=("collector",)),
        Step("files that cells read", "reads.end", gives="read", needs=("expired",), otherwise=(), bounded=True),
        Step("written files", "files.written", gives="written", needs=("now", "expired"), otherwise=(), bounded=True),
        Step("kept files", _keep_files, needs=("written",), when="file_states.on"),
        Step("images of cells", _scale_images, gives="pictures", needs=("collector",), otherwise=(), bounded=True),
        Step("timeline", _read_outcome, gives="outcome", needs=("read", "written", "pictures"), essential=True),
        Step("threads and tasks", "activity.ran", gives="ran", otherwise=_ANYTHING),
        Step("namespace diff", "tracker.suspect_all", needs=("ran",), when="cell.ran"),
        Step("checkpoints", "checkpoints.returning.live.follow", when="checkpoints.returning"),
        Step("timeline", _end_statement, gives="result", needs=("outcome", "committed"), bounded=True, essential=True),
        Step("timeline", _plan_rerun, needs=("result",), when="checkpoints.committed"),
        *FINISH,
    )
    """The steps after the user's code, in this order; `_end_statement` walks `Loop.END`."""

    def _close(self, cell: CellTurn) -> None:
        """End the open statement of a cell whose `END` failed, with its outcome only."""
        turn = self.loop.opened
        if turn is None:
            return
        status, exception = status_of(cell.reply, cell.interrupted, cell.timed_out is not None)
        closed = self.cell = CellTurn(CellRequest("", ""), time.time(), open=turn, reply=cell.reply)
        closed.result = self.loop.close(turn, Outcome(status, exception=exception), time.time())
        run_steps(self.FINISH, self.guard, self, closed)

    def _suspect(self, missed: str) -> None:
        self.guard("namespace diff", self.loop.suspect, None, f"a cell ran of which {missed} was not seen")

    # -- gestures, and the work between two cells -------------------------------------------------

    def gesture(self, request: CellRequest, run: Callable[[], None]) -> str:
        """Run the text of a gesture as a statement. Return why it failed, or an empty text.

        Called on the main thread while no cell runs. `run` can be interrupted like a cell.
        """
        before = self.interrupts.mask()
        self.forget_copies()
        reply: ExecuteReply = {"status": "ok"}
        try:
            self.open(request)
            try:
                with self.interrupts.user_code():
                    run()
            except (Exception, KeyboardInterrupt) as fault:
                told = str(fault) if isinstance(fault, CtxError) else f"{type(fault).__name__}: {fault}".rstrip(": ")
                reply = {"status": "error", "ename": type(fault).__name__, "evalue": told, "traceback": [told]}
            self.shut(reply, reply.get("ename") == "KeyboardInterrupt")
        finally:
            self.interrupts.pending = False
            signal.signal(signal.SIGINT, before)
            self.idle()
        return str(reply.get("evalue", ""))

    def run_between(self, run: Callable[[], None]) -> None:
        """Run observers of widgets, which are the user's code, while no cell runs. Show an exception."""
        before = self.interrupts.mask()
        try:
            with self.interrupts.user_code():
                run()
        except (Exception, KeyboardInterrupt):  # the user's code
            self.kernel.shell.showtraceback()
        finally:
            signal.signal(signal.SIGINT, before)
            self.idle()

    def rested(self) -> None:
        """Finish the remaining work after some time without a cell."""
        if self.running is not None:
            return
        self.interrupts.hold()
        try:
            self.checkpoints.settle()
            self.checkpoints.keep_quota()
            self.checkpoints.rest()
        finally:
            self.idle()

    def idle(self) -> None:
        """Restore the user's signal handlers: internal code has ended."""
        if not self.interrupts.busy:
            self.tell_late_signals()
            self.interrupts.release()

    def tell_late_signals(self) -> None:
        """Call the user's handlers of signals that came during internal code, and report their exceptions."""
        for name, fault in self.interrupts.deliver():
            self.notices.tell(
                f"ctxkernel: {name} came when the cell had ended, while ctxkernel worked; "
                f"its handler raised {line_of(fault)}"
            )
            if isinstance(fault, SystemExit):  # as it would end a kernel that waits
                self.kernel.io_loop.asyncio_loop.call_soon(sys.exit, fault.code)
