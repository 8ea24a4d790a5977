"""Everything of one kernel's session, wired: loop, tracker, projection, store, capture, panel.

Rule 1: a fault here costs the step that had it, never the user's cell (`Guard`).
Rule 2: the work after a cell is bounded in time; over that, or on an interrupt, it goes on with less and says so.
"""

from __future__ import annotations

import atexit
import builtins
import dataclasses
import os
import platform
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ctxkernel._version import __version__
from ctxkernel.core.errors import CtxError
from ctxkernel.core.jobs import Preparation, Summarised
from ctxkernel.core.loop import Loop, OpenTurn, Outcome
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.ports import All, Source
from ctxkernel.core.replay import CheckpointInfo, Comparison, HeadMove, Restored
from ctxkernel.core.text import strip_ansi, truncate_middle
from ctxkernel.core.timeline import Author, Cost, ExceptionInfo, Execution, Kind, Statement, Status
from ctxkernel.core.turn import TurnResult
from ctxkernel.history.events import UserQuestion
from ctxkernel.kernel.commands.classification import moves_head
from ctxkernel.kernel.commands.configuration import Configuration
from ctxkernel.kernel.display.handles import LiveDisplays
from ctxkernel.kernel.display.panel import Panel
from ctxkernel.kernel.display.widgets import Gestures, new_request_id
from ctxkernel.kernel.execution.activity import Activity
from ctxkernel.kernel.execution.capture import Capture, Collector
from ctxkernel.kernel.execution.fd_streams import Streams
from ctxkernel.kernel.execution.interrupts import Interrupts
from ctxkernel.kernel.execution.page_hashes import Memory
from ctxkernel.kernel.execution.read_files import FileReads
from ctxkernel.kernel.execution.workers import Worker
from ctxkernel.kernel.execution.written_files import FileScan
from ctxkernel.kernel.returning.checkpoint_health import Health
from ctxkernel.kernel.returning.quota_check import Room
from ctxkernel.kernel.turn.cell_timeout import Timeout
from ctxkernel.kernel.turn.guard import Guard, line_of
from ctxkernel.kernel.turn.source_transform import SingleTransform
from ctxkernel.projection.displayed_tokens import Anchor
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.secrets import mask_value
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.state.types.packer import Packer
from ctxkernel.store.log.location import is_named, notebook_folder, notebook_name, session_path
from ctxkernel.store.log.session import CheckpointRow, SessionStore

if TYPE_CHECKING:
    from ctxkernel.kernel.asking.asks import Asking
    from ctxkernel.kernel.asking.summaries import Summaries
    from ctxkernel.kernel.returning.file_states import FileStates
    from ctxkernel.kernel.returning.reruns import Replay
    from ctxkernel.kernel.returning.returns import Job, Prepared, Returning

T = TypeVar("T")
Observe = Callable[[Execution], Iterable[Any]]
TRACE_CHARS = 4000
REST_SECONDS = 0.5
"""How long no cell runs before what is left to do is done."""
NAMES = ("view", "group", "note", "ls", "show", "pin", "tick", "All")


class Then(Protocol):
    """What goes on when a cell's turn is over."""

    async def carry_out(
        self, execute: Callable[[CellText], Awaitable[dict[str, Any]]], outer: CellText, reply: dict[str, Any]
    ) -> dict[str, Any]:
        """Run further cells, each as a turn of its own; returns the reply of the cell that asked for it."""
        ...


@dataclasses.dataclass(slots=True)
class CellText:
    """A cell that is to be run."""

    code: str
    msg_id: str
    silent: bool = False
    recorded: bool = False
    """It becomes a statement; the rest says which."""
    cell_id: str | None = None
    kind: Kind = "python"
    author: Author = "human"
    tags: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    rerun: bool = False
    """It is one of the cells that a notebook runs again from a checkpoint on."""
    rerun_of: Statement | None = None
    """The statement that the log runs again …"""
    against: str = ""
    """… and the execution that it is compared with."""
    observe: Observe | None = None
    """What is recorded in the model's history when it has ended."""
    cost: Cost | None = None
    """What it cost, where that is not its own time."""
    keeps_number: bool = False
    """It counts in `In` and `Out`, whatever the request that it runs under does."""


@dataclasses.dataclass(slots=True)
class Cell:
    """A cell under way."""

    text: CellText
    turn: OpenTurn
    collector: Collector
    msg_id: str
    started: float
    clock: float


class Runtime:
    """The session of one kernel. Made once, by the kernel or by `%load_ext ctxkernel`."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.shell = kernel.shell
        self.guard = Guard(self.tell)
        self.configuration = Configuration(self)
        self.settings = self.configuration.settings
        self.interrupts = Interrupts()
        self.timeout = Timeout()
        self.capture = Capture(
            kernel,
            self.settings,
            lambda fault: self.guard.fail("output capture", fault),
            self.interrupts.from_handler,
        )
        self.streams = Streams()
        self.transform = SingleTransform(self.shell)
        self.notices: list[str] = []
        self.health = Health(self)
        self.room = Room(self)
        self.store = SessionStore.open(
            session_path(None, os.environ, os.getcwd()),
            environment=self.environment(),
            notebook=notebook_name(None, os.environ, os.getcwd()),
            named=is_named(os.environ),
        )
        namespace = self.shell.user_ns
        self.returning: Returning | None = None
        """The checkpoints; None where they are off."""
        self.packer = Packer(
            namespace,
            module=str(namespace.get("__name__", "__main__")),
            is_handle=lambda value: issubclass(type(value), NodeBase),
        )
        self.tracker = NamespaceTracker(
            namespace,
            hidden=lambda: self.shell.user_ns_hidden,
            settings=self.settings,
            transform=self.shell.transform_cell,
            packer=self.packer,
            extras=lambda name: self.returning.value(name) if self.returning is not None else None,
            may_defer=lambda: self.returning is not None and self.returning.background.can_fork,
            chunks=Memory.of_this_process().chunks,
        )
        self.anchor: Anchor | None = None
        """What the last answer's usage says of our estimates; None before there is one."""
        thread = threading.get_ident()  # cells run on the thread that the kernel was made on
        self.loop = Loop(
            namespace=namespace,
            tracker=self.tracker,
            projector=self.configuration,
            open_source=self._open,
            count_tokens=count_tokens,
            trim=trim_to_tokens,
            owner=lambda: threading.get_ident() == thread,
            settings=self.settings,
            environment=self.environment(),
            guard=self.guard,
            mask_value=mask_value,
        )
        self.loop.graph.name(self.store.session_id)
        self.loop.log.start_after(self.store.last_index)
        self.worker = Worker(self.loop.ready)
        self.loop.preparer = self.worker
        self.loop.summarise = self._summarised
        self.activity = Activity()
        self.files = FileScan(self.settings, lambda: str(self.store.path) if self.store.path else None)
        self.file_states = self._file_states()
        self.reads = FileReads(lambda: str(self.store.path) if self.store.path else None)
        self.reads.before_write = self.file_states.before_write
        self.loop.question_of = lambda event: event.text if isinstance(event, UserQuestion) else ""
        self.executing = False
        """Whether an execute request is under way, between two cells of it too."""
        self.gestures = Gestures(self)
        self.displays = LiveDisplays(self)
        self.loop.pending = lambda: self.asked.pending if self.asked is not None else ()
        self.asked: Asking | None = None
        """The asks of this kernel; None before anybody looked for one."""
        self._summaries: Summaries | None = None
        self.panel = Panel(self)
        self.job: Job | None = None
        """A return that the running cell asked for."""
        self.prepared: Prepared | None = None
        """… with all that it needs, loaded."""
        self.then: Then | None = None
        """What shall be done when the cell's turn is over."""
        self._against = ""
        """The execution that the running cell is a re-run of."""
        self._again = False
        """Whether the running cell is part of a re-run."""
        self._resting: Any = None
        self._outside_row: CheckpointRow | None = None
        self._unstored: deque[Callable[[], str | None]] = deque()
        """Writes the ends of turns that are not in the log yet."""
        self._cell: Cell | None = None
        self._pid = os.getpid()
        self.last: TurnResult | None = None

    def _file_states(self) -> FileStates:
        # Late: the ambient state remembers the process as it is when it is imported.
        from ctxkernel.kernel.returning.file_states import FileStates
        from ctxkernel.state import ambient
        from ctxkernel.store.chunks import quota
        from ctxkernel.store.chunks.file_contents import FileContents

        contents = FileContents(quota.root_folder(os.environ) / self.store.session_id)
        folder = notebook_folder(os.environ, os.getcwd())
        made = FileStates(folder, contents, self.files, lambda: self.settings)
        ambient.register(made)
        return made

    def _open(self, target: object) -> Source:
        # Late: most cells look at nothing, and a kernel that starts faster is worth more than a fast first view.
        from ctxkernel.kernel.display import output_source
        from ctxkernel.sources import open_named

        # A file of that name comes first, as it does everywhere else.
        if isinstance(target, str) and output_source.PLACE.fullmatch(target) and not os.path.lexists(target):
            return output_source.open_output(target, self.loop.log, lambda: self.loop.history)
        return open_named(target, self.shell.user_ns, self.settings)

    @property
    def engine(self) -> ProjectionEngine:
        """What builds the projections, under the settings of now."""
        return self.configuration.engine

    def environment(self) -> dict[str, str]:
        """What a statement ran in, as far as its fingerprint cares."""
        return {
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform": sys.platform,
            "ctxkernel": __version__,
        }

    # -- on and off ---------------------------------------------------------------------------

    def install(self) -> None:
        """Switch everything on. A part that fails is told and left out."""
        guard = self.guard.once
        guard("output capture", self.capture.install, None)
        guard("output of C code and subprocesses", self.streams.install, None)
        guard("transforms of cells", self.transform.install, None)
        guard("files that cells read", self.reads.install, None)
        guard("handles", self._inject, None)
        guard("display of handles", self.displays.install, None)
        guard("magics", self._magics, None)
        guard("panel", self.panel.install, None)
        guard("messages of widgets", self._watch_messages, None)
        self.returning = guard("checkpoints", self._checkpoints, None)
        # On the main thread, which is SQLite's: shutdown requests are served on the one of the control channel.
        atexit.register(self.close)
        if self.store.notice:
            self.notices.append(self.store.notice)
        self.notices += self.configuration.notices

    def started(self) -> None:
        """The kernel is about to answer."""
        if self.settings.resume:
            self.guard("resuming", self._resume, None)

    def _inject(self) -> None:
        # Into builtins, as IPython does with `display`: a user's own `group` shadows it, `del` brings it back.
        for name in NAMES[:-1]:
            setattr(builtins, name, getattr(self.loop, name))
        setattr(builtins, NAMES[-1], All)

    def _checkpoints(self) -> Returning:
        from ctxkernel.kernel.returning.returns import Returning

        return Returning(self)

    def _resume(self) -> None:
        try:
            if self.returning is not None:
                self.returning.resume_at_start()
        except CtxError as refused:
            self.notices.append(f"not resumed: {refused}")

    def _watch_messages(self) -> None:
        handlers = self.kernel.shell_handlers
        handle = handlers.get("comm_msg")
        if handle is None:
            return

        def noted(stream: Any, ident: Any, message: Any) -> Any:
            if message.get("content", {}).get("comm_id") not in self.panel.comms:
                self.activity.message()
            return handle(stream, ident, message)

        handlers["comm_msg"] = noted

    def _magics(self) -> None:
        from ctxkernel.kernel.commands.magics import register

        register(self)

    def close(self) -> None:
        """Switch everything off that outlives the kernel object."""
        self.worker.close()
        self.collect_summaries()
        self._returning(lambda back: back.wait(), "end")
        self.settle_checkpoints()
        self._returning(lambda back: back.close(), "end")
        self._store_ends()
        self.guard("timeline", self._fetch_late, None)  # no cell follows that would
        self.guard("session store", self.store.close, None)

    def write(self, text: str) -> None:
        """Write to the cell's stdout, as ours."""
        with self.capture.ours():
            self.kernel.send_response(self.kernel.iopub_socket, "stream", {"name": "stdout", "text": text})

    def tell(self, text: str) -> None:
        """Write one line to the cell's stderr, as ours: it does not count as the cell's output."""
        with self.capture.ours():
            self.kernel.send_response(self.kernel.iopub_socket, "stream", {"name": "stderr", "text": text + "\n"})

    # -- one cell -----------------------------------------------------------------------------

    def open(self, cell: CellText) -> None:
        """Begin the turn of a cell, whatever fails of it."""
        self.guard.turn()
        self.job = self.prepared = None
        self.guard("timeline", self.begin, None, cell)
        if self._cell is None:
            self._suspect("its beginning")

    def shut(self, reply: dict[str, Any], interrupted: bool = False, timed_out: float | None = None) -> dict[str, Any]:
        """End the turn of a cell, whatever fails of it; returns the cell's reply."""
        ended = self.guard("timeline", self.end, None, reply, interrupted, timed_out)
        if ended is None:
            self._suspect("its end")
            self.guard("timeline", self._close, None, reply, interrupted, timed_out)
        prepared, self.prepared = self.prepared, None
        if prepared is not None:  # the end failed before it came to that
            return self.refused(f"nothing was restored: {self.guard.why('timeline') or 'the timeline failed'}")
        return ended or reply

    def _suspect(self, what: str) -> None:
        self.guard("namespace diff", self.loop.suspect, None, f"a cell ran of which {what} was not seen")

    def begin(self, cell: CellText) -> None:
        """A cell is about to run."""
        self._store_ends()
        self._fetch_late()
        self.collect_summaries()
        if self._resting is not None:
            self.kernel.io_loop.remove_timeout(self._resting)
            self._resting = None
        self.settle_checkpoints()
        now = time.time()
        if cell.rerun:
            self._returning(lambda back: back.pair(cell), "comparison")
        again = cell.rerun_of
        if reason := self.guard("threads and tasks", self.activity.ran, "it is not known what ran"):
            self.tracker.look_outside(reason)
        elif self.interrupts.held:
            self.tracker.look_outside("a signal's handler may have run")
        elif self.activity.silent:
            self.tracker.refresh = True
        else:
            self.tracker.quiet = True
        self.activity.silent = False
        if moves_head(cell.code):
            self._returning(lambda back: back.wait_for_all(), "checkpoints in the background")
            self.tracker.verify_next()
        turn = self.guard(
            "timeline",
            lambda: self.loop.begin(
                cell.code,
                now=now,
                author=cell.author,
                kind=cell.kind,
                cell_id=cell.cell_id,
                tags=cell.tags,
                rerun_of=again.statement_id if again is not None else None,
            ),
            None,
        )
        turn = turn or self.loop.opened
        if turn is None:
            return
        self._against = cell.against
        self._again = cell.rerun or again is not None
        stored = turn.statement, turn.execution, turn.outside
        self._notice(self.guard("session store", self.store.begin, None, *stored))
        if turn.outside is not None:
            self._outside_row = self._take(turn.outside[1])
        self._returning(lambda back: back.before_first())
        self.tracker.release()
        self.guard("settings", self.configuration.tell_once, None)
        self.guard("kept files", self.file_states.begin, None)
        self.guard("files that cells read", self.reads.begin, None)
        execution_id, unsent = turn.execution.execution_id, cell.rerun_of is not None and not cell.rerun
        collector = self.guard(
            "output capture", lambda: self.capture.open(cell.msg_id, execution_id, unsent=unsent), None
        ) or Collector(execution_id, self.settings)
        self._cell = Cell(cell, turn, collector, cell.msg_id, now, time.perf_counter())
        self.guard("panel", self.panel.begin, None, turn)

    @property
    def attended(self) -> bool:
        """Whether a front end is there that somebody sits at: one with the panel, or one that takes input."""
        request = (self.kernel.get_parent("shell") or {}).get("content") or {}
        return bool(self.panel.pages) or bool(request.get("allow_stdin", True))

    def name_of(self, obj_id: str) -> str:
        """Return the name of a handle as a person would write it: a variable's, else its id."""
        return self.loop.names.first_names().get(obj_id, obj_id)

    @property
    def asking(self) -> Asking:
        """The asks of this kernel, loaded with all that they need when they are first looked for."""
        if self.asked is None:
            from ctxkernel.kernel.asking.asks import Asking

            self.asked = Asking(self)
        return self.asked

    @property
    def summaries(self) -> Summaries:
        """The summaries that a model writes, loaded when the first is wanted."""
        if self._summaries is None:
            from ctxkernel.kernel.asking.summaries import Summaries

            self._summaries = Summaries(self)
        return self._summaries

    def next(self) -> Then | None:
        """Return what shall be done now that a cell's turn is over, once."""
        then, self.then = self.then, None
        return then

    @property
    def running(self) -> OpenTurn | None:
        """The turn of the cell that runs now."""
        return self._cell.turn if self._cell else None

    def end(self, reply: dict[str, Any], interrupted: bool, timed_out: float | None) -> dict[str, Any]:
        """The cell has ended, by whatever way. Returns its reply, which says so where its return failed."""
        cell, self._cell = self._cell, None
        if cell is None or os.getpid() != self._pid:  # a forked child that ran on: the timeline is its parent's
            return reply
        elapsed = time.perf_counter() - cell.clock
        expired = self._deadline()
        self.guard("output of C code and subprocesses", self.streams.settle, None)
        move, restored = None, None
        prepared, self.prepared = self.prepared, None
        if prepared is not None:
            try:
                move, restored = self._commit(prepared)
            except CtxError as fault:
                reply = self.refused(str(fault))
        self.guard("output capture", self.capture.close, None, cell.msg_id)
        outcome = self._outcome(cell, reply, elapsed, interrupted, timed_out, expired)
        if cell.text.cost is not None:
            outcome = dataclasses.replace(outcome, cost=cell.text.cost)
        observe = cell.text.observe or _nothing
        if reason := self.guard("threads and tasks", self.activity.ran, "it is not known what ran"):
            self.tracker.suspect_all(reason)
        self._returning(lambda back: back.follow())
        now = cell.started + elapsed
        ended = self.guard(
            "timeline",
            lambda: self.loop.end(outcome, now, expired, move=move, restored=restored, observe=observe),
            None,
        )
        if ended is None:
            ended = self.loop.close(cell.turn, outcome, now)
        if prepared is not None and ended.moved is not None and prepared.job.statements:
            self.then = self._replay(prepared.job)
        self._finish(ended)
        return reply

    def _close(self, reply: dict[str, Any], interrupted: bool, timed_out: float | None) -> None:
        """End the turn of a cell whose `end` failed: how it ended is kept, and nothing else."""
        cell, self._cell = self._cell, None
        if cell is not None:
            self.guard("output capture", self.capture.close, None, cell.msg_id)
        turn = self.loop.opened
        if turn is not None:
            status, exception = status_of(reply, interrupted, timed_out is not None)
            self._finish(self.loop.close(turn, Outcome(status, exception=exception), time.time()))

    def _finish(self, ended: TurnResult) -> None:
        """Take the state after a turn, and tell store, displays and panel of it."""
        row = self._take(ended.execution) if ended.moved is None else None
        result = self._took(ended)
        self.last = result
        for text in ended.notices[len(ended.execution.notices) :]:  # of the model's history: nobody else tells them
            self.tell(f"ctxkernel: {text}")
        rows, self._outside_row = (row, self._outside_row), None
        self._unstored.append(lambda: self.store.end(result, checkpoint=rows[0], outside_checkpoint=rows[1]))
        self._store_ends()
        self.guard("display of handles", self.displays.update, None)
        self.guard("panel", self.panel.turn, None, result)
        self._rest()

    def _commit(self, prepared: Prepared) -> tuple[HeadMove, Restored]:
        """Put a prepared state in place. Raises CtxError where that fails: then the state is neither."""
        assert self.returning is not None
        try:
            return self.returning.commit(prepared)
        except BaseException as fault:  # of ours, or out of an object of the user's
            told = prepared.job.target.told
            why = self.loop.blind = f"the return to {told} failed on its way ({line_of(fault)})"
            self.loop.suspect(why)
            raise CtxError(
                f"{why}: variables may have their values of before, or those of {told}. HEAD has not moved; "
                "repeat the command, or restart the kernel and use %ctx resume"
            ) from None

    def _take(self, execution: Execution) -> CheckpointRow | None:
        """Take the state after an execution, where it is known what changed; a skipped one says why it is not there."""
        back, execution_id = self.returning, execution.execution_id
        if back is None:
            return None
        row = None if self.loop.blind else self._returning(lambda back: back.take(execution_id))
        if row is None:
            step = "namespace diff" if self.loop.blind else "checkpoints"
            why = self.loop.blind or "the checkpoint failed"
            self.loop.suspect(why)
            row = self.health.skip(execution_id, f"{why} ({found})" if (found := self.guard.why(step)) else why)
            if step not in self.guard.off:
                self.tell(f"ctxkernel: no state is kept after {execution.statement_id}: {row.reason}")
        else:
            self._told_of(row, execution_id)
            self.room.stored(row.nbytes)
        return row

    def _told_of(self, made: CheckpointInfo | CheckpointRow, execution_id: str) -> None:
        """Tell, once for each trouble, that the data of a checkpoint could not be stored."""
        told = self.health.stored(made, execution_id.rpartition(".")[0])
        if told:
            self.tell(f"ctxkernel: {told}")

    def _took(self, ended: TurnResult) -> TurnResult:
        """Return the turn with its checkpoint, and how it compares with the execution that it re-ran."""
        back, execution = self.returning, ended.execution
        if back is None:
            return ended
        comparison = self.guard("comparison", self._compared, None, back, ended)
        if comparison is None and ended.moved is None and back.trail.here != execution.execution_id:
            self._returning(lambda back: back.trail.ran(ended.statement, execution, again=self._again), "comparison")
        checkpoint = self.health.info(execution.execution_id)
        return dataclasses.replace(ended, checkpoint=checkpoint, comparison=comparison)

    def _compared(self, back: Returning, ended: TurnResult) -> Comparison | None:
        try:
            return back.took(ended, self._against, again=self._again)
        except CtxError as missing:  # the state that it is to be compared with is not there
            self.tell(f"ctxkernel: {ended.statement.statement_id} is not compared with its earlier run: {missing}")
            return None

    def _store_ends(self) -> None:
        """Write the ends of turns to the log, in order; one that failed is tried again with the next."""
        while self._unstored:
            told = self.guard("session store", lambda: (self._unstored[0](),), None)
            if told is None:
                if "session store" in self.guard.off:
                    self._unstored.clear()
                return
            self._unstored.popleft()
            self._notice(told[0])

    def gesture(self, source: str, run: Callable[[], None]) -> str:
        """Carry out what the text of a gesture says, as a statement. Returns why it could not be, or nothing.

        On the main thread, where no cell runs. `run` can be interrupted as a cell can.
        """
        before = self.interrupts.mask()
        if self.asked is not None:
            self.asked.ran.clear()  # what the model's cells did would now be done in another state
        reply: dict[str, Any] = {"status": "ok"}
        try:
            cell = CellText(source, new_request_id(), recorded=True, kind="meta", author="panel")
            self.open(cell)
            try:
                with self.user_code():
                    run()
            except (Exception, KeyboardInterrupt) as fault:
                told = str(fault) if isinstance(fault, CtxError) else f"{type(fault).__name__}: {fault}".rstrip(": ")
                reply = {"status": "error", "ename": type(fault).__name__, "evalue": told, "traceback": [told]}
            interrupted = reply.get("ename") == "KeyboardInterrupt"
            self.shut(reply, interrupted)
        finally:
            self.interrupts.pending = False
            signal.signal(signal.SIGINT, before)
            self.idle()
        return str(reply.get("evalue", ""))

    def _rest(self) -> None:
        """Have what is left of the checkpoints done when no cell has come for a moment."""
        loop = getattr(self.kernel, "io_loop", None)
        back = self.returning
        if loop is not None and back is not None and (back.checkpoints.writing or self.room.due):
            self._resting = loop.call_later(REST_SECONDS, self._rested)

    def _rested(self) -> None:
        self._resting = None
        if self._cell is not None:
            return
        self.interrupts.hold()
        try:
            self.settle_checkpoints()
            if self.room.due:
                self._returning(self.room.look, "quota")
            self._rest()
        finally:
            self.idle()

    def idle(self) -> None:
        """Nothing of ours runs any more: the user's signal handlers are in force again."""
        if not self.interrupts.busy:
            self.tell_late_signals()
            self.interrupts.release()

    def tell_late_signals(self) -> None:
        """Call the user's handlers of signals that came while our code ran; what one raises is told."""
        for name, fault in self.interrupts.deliver():
            self.tell(
                f"ctxkernel: {name} came when the cell had ended, while ctxkernel worked; "
                f"its handler raised {line_of(fault)}"
            )
            if isinstance(fault, SystemExit):  # as it would end a kernel that waits
                self.kernel.io_loop.asyncio_loop.call_soon(sys.exit, fault.code)

    def _replay(self, job: Job) -> Replay:
        from ctxkernel.kernel.returning.reruns import Replay

        return Replay(self, job)

    def keep_mark(self, subject: str, mark: str, value: str | None) -> None:
        """Write down what the user says about a thing of the session."""
        told = self.guard("session store", self.store.mark, None, subject, mark, value, time.time())
        self._notice(told)

    def _returning(self, run: Callable[[Returning], T], step: str = "checkpoints") -> T | None:
        """Do something with the checkpoints; None where they, or this step, are off."""
        back = self.returning
        return None if back is None else self.guard(step, run, None, back)

    def settle_checkpoints(self) -> None:
        """Tell the log which checkpoints the background has finished."""
        for info, rows in self._returning(lambda back: back.durable(), "checkpoints in the background") or ():
            self._told_of(info, info.execution_id)
            told = self.guard(
                "session store",
                lambda i=info, r=rows: self.store.checkpoint_state(
                    i.checkpoint_id, i.state, i.reason, time.time(), results=r
                ),
                None,
            )
            self._notice(told)
            self.guard("panel", self.panel.checkpoint, None, info)

    def load_job(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Load what the return that the cell asked for needs; nothing is changed yet. Returns the cell's reply."""
        job, self.job = self.job, None
        back = self.returning
        if job is None or back is None:
            return reply
        try:
            self.prepared = back.prepare(job)
        except CtxError as refusal:
            return self.refused(str(refusal))
        except Exception as fault:  # ours: the state is as it was, and the user's next cell runs
            return self.refused(f"it could not be prepared ({type(fault).__name__}: {fault}); nothing was changed")
        return reply

    def refused(self, why: str, name: str = "CtxError") -> dict[str, Any]:
        """Show why a command could not be carried out, and return the cell's reply."""
        content = {"ename": name, "evalue": why, "traceback": [why]}
        self.kernel.send_response(self.kernel.iopub_socket, "error", content)
        return {"status": "error", "execution_count": self.kernel.execution_count, **content}

    def _deadline(self) -> Callable[[], bool]:
        end = time.perf_counter() + self.settings.end_phase_ms / 1000
        return lambda: self.interrupts.pending or time.perf_counter() > end

    def _outcome(
        self,
        cell: Cell,
        reply: dict[str, Any],
        elapsed: float,
        interrupted: bool,
        timed_out: float | None,
        expired: Callable[[], bool],
    ) -> Outcome:
        status, exception = status_of(reply, interrupted, timed_out is not None, none_came=self.interrupts.none_came)
        streams = cell.collector.streams
        artifacts = cell.collector.artifacts()
        read = self.guard("files that cells read", self.reads.end, (), expired)
        seen, statement_id = self.files.listing, cell.turn.statement.statement_id
        written = self.guard("written files", self.files.written, (), cell.started, expired)
        self.guard("kept files", self.file_states.record, None, statement_id, written, seen)
        notices: list[str] = []
        if timed_out is not None:
            told = "stopped" if status == "timeout" else "interrupted, and went on,"
            notices.append(f"{told} after {timed_out:g} s; %ctx timeout off lets cells run on")
        if cell.collector.dropped:
            notices.append(
                f"{cell.collector.dropped} rich outputs not kept: more than the first were shown by one cell"
            )
        return Outcome(
            status=status,
            stdout=streams["stdout"].text(),
            stderr=streams["stderr"].text(),
            exception=exception,
            artifacts=(*artifacts, *written, *read),
            cost=Cost(time_ms=round(elapsed * 1000, 3)),
            cut={name: stream.cut for name, stream in streams.items() if stream.cut},
            notices=tuple(notices),
        )

    def _fetch_late(self) -> None:
        late = self.capture.late
        while late:
            execution_id, stream, text = late.popleft()
            try:
                self.loop.late(execution_id, stream, text)
            except KeyError:
                continue
            self.guard("session store", self.store.late, None, execution_id, stream, text)

    def _summarised(self, shown: Sequence[Summarised]) -> tuple[Sequence[Preparation | None], Sequence[str]]:
        return self.summaries.want(shown) if shown or self._summaries is not None else ((), ())

    def collect_summaries(self) -> None:
        """Write down which summaries came, and what they cost."""
        if self._summaries is not None:
            self.guard("summaries by a model", self._summaries.collect, None)

    def _notice(self, notice: str | None) -> None:
        if notice:
            self.notices.append(notice)
            self.tell(f"ctxkernel: {notice}")

    @contextmanager
    def user_code(self) -> Iterator[None]:
        """Interrupts may raise inside, and only there."""
        if not self.interrupts.can_switch():
            yield
            return
        try:
            self.interrupts.unmask()
            yield
        finally:
            self.interrupts.mask()


def _nothing(execution: Execution) -> Iterable[Any]:
    return ()


def status_of(
    reply: dict[str, Any], interrupted: bool, timed_out: bool, *, none_came: bool = False
) -> tuple[Status, ExceptionInfo | None]:
    """Return the seed's status and the exception for an execute reply.

    With `none_came` no interrupt did: a KeyboardInterrupt is the code's own, an error like any other.
    """
    if reply.get("status") == "ok":
        return "ok", None
    name, message = str(reply.get("ename", "")), str(reply.get("evalue", ""))
    trace = strip_ansi("\n".join(map(str, reply.get("traceback", ()))))
    if name == "NoneType":  # raised while the result was displayed: ipykernel knows the trace only
        name, _, message = trace.rstrip().rpartition("\n")[2].partition(": ")
    info = ExceptionInfo(name, message[:2000], truncate_middle(trace, TRACE_CHARS))
    if timed_out:
        return "timeout", info
    if not none_came and (name == "KeyboardInterrupt" or (name == "CancelledError" and interrupted)):
        return "cancelled", info
    return ("cancelled" if reply.get("status") in ("abort", "aborted") else "error"), info
