"""The start of a kernel's session: makes its parts, and hands each part what it needs.

Rule 1: a fault here costs the step that had it, never the user's cell (`Guard`).
"""

from __future__ import annotations

import atexit
import builtins
import dataclasses
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ctxkernel._version import __version__
from ctxkernel.agent.asks import Account
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.ports import All, Source
from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.core.settings import Settings
from ctxkernel.history.events import UserQuestion
from ctxkernel.kernel.asking import Models
from ctxkernel.kernel.commands import CommandContext
from ctxkernel.kernel.configuration import Configuration
from ctxkernel.kernel.display.cell_marks import CellMarks, CellQueries
from ctxkernel.kernel.display.handle_display import LiveDisplays
from ctxkernel.kernel.display.handle_widgets import Gestures
from ctxkernel.kernel.display.notices import Notices
from ctxkernel.kernel.display.panel import Panel
from ctxkernel.kernel.display.panel_answers import StateQueries
from ctxkernel.kernel.display.panel_rows import StateNotes
from ctxkernel.kernel.execution.activity import Activity
from ctxkernel.kernel.execution.capture import Capture
from ctxkernel.kernel.execution.cell import SingleTransform, Then
from ctxkernel.kernel.execution.fd_streams import Streams
from ctxkernel.kernel.execution.guard import Guard, line_of
from ctxkernel.kernel.execution.input_history import InputHistory
from ctxkernel.kernel.execution.interrupts import Interrupts, Timeout
from ctxkernel.kernel.execution.notebook_cells import NotebookCells
from ctxkernel.kernel.execution.page_hashes import Memory
from ctxkernel.kernel.execution.parent_process import has_variable, parent_commands
from ctxkernel.kernel.execution.read_files import FileReads
from ctxkernel.kernel.execution.secret_values import SecretValues
from ctxkernel.kernel.execution.stopped_queue import StoppedQueue
from ctxkernel.kernel.execution.workers import Worker
from ctxkernel.kernel.execution.written_files import FileScan
from ctxkernel.kernel.returning.checkpoint_health import Health, Room
from ctxkernel.kernel.returning.checkpoint_service import CheckpointService
from ctxkernel.kernel.returning.store_mirror import StoreMirror
from ctxkernel.kernel.services import KernelServices
from ctxkernel.kernel.turn.kept_cells import KeptCells
from ctxkernel.kernel.turn.turns import Turns
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.masker import Masker
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.state.base.namespace import NOTHING, StartNames
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.state.types.packer import Packer
from ctxkernel.store.log.location import HINT, is_named, notebook_folder, notebook_name, session_path
from ctxkernel.store.log.runners import program_name, run_notebook
from ctxkernel.store.log.session import SessionStore

if TYPE_CHECKING:
    from ctxkernel.core.timeline import Execution, Statement
    from ctxkernel.kernel.messages import plan_messages as messages
    from ctxkernel.kernel.messages.projection import Prices
    from ctxkernel.kernel.messages.wire import SavedPage
    from ctxkernel.kernel.returning.file_states import FileStates
    from ctxkernel.kernel.returning.returns import Returning
    from ctxkernel.kernel.returning.targets import ReturnJob
    from ctxkernel.replay.dependency_nodes import CellRun

T = TypeVar("T")
NAMES = ("view", "group", "note", "ls", "show", "pin", "tick", "All")


class Runtime:
    """The session of one kernel. Made once, by the kernel or by `%load_ext ctxkernel`."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.shell = kernel.shell
        self.above = parent_commands()
        self.program = program_name(self.above[-1].words) if self.above else None
        self._forget_inherited_notebook()
        self.account = Account()
        self.masker = Masker()
        self.secrets = SecretValues(
            masker=self.masker, namespace=self.shell.user_ns, open_names=lambda: self.tracker.pending.open
        )
        self.notices = Notices(kernel, lambda: self.capture, self.masker)
        self.guard = Guard(self.notices.tell)
        self.interrupts = Interrupts()
        self.configuration = Configuration(
            shell=self.shell,
            guard=self.guard,
            notices=self.notices,
            interrupts=self.interrupts,
            state=lambda: self.loop.state,
            apply=self._apply,
            keep_mark=self.keep_mark,
            masker=self.masker,
        )
        self._make_execution()
        self._make_model()
        self._make_display()
        self._make_turns()
        self._make_commands()

    def _make_execution(self) -> None:
        """Make the parts that surround the user's code."""
        self.timeout = Timeout()
        self.capture = Capture(
            self.kernel,
            self.settings,
            lambda fault: self.guard.fail("output capture", fault),
            self.interrupts.from_handler,
        )
        self.streams = Streams()
        self.transform = SingleTransform(self.shell)
        self.stopped_queue = StoppedQueue()
        self.input_history = InputHistory(self.kernel, self.guard)
        executed = run_notebook(((one.words, one.folder) for one in self.above), os.environ, Path.cwd())
        place = str(executed.path) if executed is not None else self._notebook_of_vscode()
        named = place or is_named(os.environ) or notebook_name(None, os.environ, os.getcwd())
        self.notebook_cells = NotebookCells(executed, None if named else Path.cwd())
        path = session_path(place, os.environ, os.getcwd(), self.program)
        self._follow_notebook(place, path)
        self.store = SessionStore.open(
            path,
            environment={**self.environment(), **(executed.facts if executed is not None else {})},
            notebook=notebook_name(place, os.environ, os.getcwd()),
            named=is_named(os.environ),
            mask=self.masker,
        )
        self.activity = Activity()
        self.files = FileScan(self.settings, self._log_path)
        self.file_states = self._file_states()
        self.reads = FileReads(
            self._log_path, self.file_states.before_write, lambda fault: self.guard.fail("kept files", fault)
        )

    def _follow_notebook(self, place: str | None, session: Path) -> None:
        """Let the session of a notebook that was renamed or moved have its new name and place."""
        name = notebook_name(place, os.environ, os.getcwd())
        if name is None or is_named(os.environ):
            return
        from ctxkernel.store.log.renamed_notebooks import follow

        try:
            follow(session.parent.parent / name, session)
        except Exception as fault:  # the kernel begins a new session, as for any new notebook
            told = (
                f"the session that {Path(name).name} had under an earlier name or in another folder could not be taken "
                f"over ({line_of(fault)}): it is left as it is. Mend that, and restart the kernel to try again"
            )
            self.notices.kept.append(told)
            self.notices.due.append(told)

    def _make_model(self) -> None:
        """Make the loop, which knows no Jupyter, and its ports."""
        namespace = self.shell.user_ns
        self.at_start = StartNames(namespace, self.shell.user_ns_hidden)
        self.packer = Packer(
            namespace,
            module=str(namespace.get("__name__", "__main__")),
            is_handle=lambda value: issubclass(type(value), NodeBase),
        )
        self.tracker = NamespaceTracker(
            namespace,
            hidden=self.at_start,
            settings=self.settings,
            transform=self.shell.transform_cell,
            packer=self.packer,
            extras=lambda name: NOTHING if self.returning is None else self.returning.live.value(name),
            may_defer=lambda: self.returning is not None and self.returning.background.can_fork,
            chunks=Memory.of_this_process().chunks,
            catch_up=self._catch_up,
        )
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
            mask_value=self.masker.mask_value,
            read_secrets=self.secrets.after_cell,
        )
        self.loop.graph.name(self.store.session_id)
        self.loop.log.start_after(self.store.last_index)
        self.worker = self.loop.preparer = Worker(self.loop.ready)
        self.loop.question_of = lambda event: event.text if isinstance(event, UserQuestion) else ""
        self.loop.pending = lambda: self.models.pending

    def _catch_up(self, names: Collection[str]) -> None:
        self.checkpoints.catch_up(names)

    def _make_display(self) -> None:
        """Make the parts that a front end shows."""
        self.gestures = Gestures(self.kernel, self.loop, self.guard, self.notices.tell)
        self.displays = LiveDisplays(
            shell=self.shell,
            loop=self.loop,
            guard=self.guard,
            capture=self.capture,
            gestures=self.gestures,
            attended=lambda: self.panel.attended,
            mask=self.masker,
        )
        self.health = Health(self.loop, lambda: self.settings.quota_gb)
        self.panel = Panel(
            kernel=self.kernel,
            loop=self.loop,
            store=self.store,
            capture=self.capture,
            account=self.account,
            states=StateQueries(
                info=self.health.info,
                storage=self.health.storage,
                notes=self._state_notes,
                plan=self._plan_json,
                resume_offer=self._resume_offer,
                prices=self._prices,
                page=self._page,
                base_url=self._base_url,
                summaries=lambda: self.models.unanswered_summaries,
                comparing=lambda: self.checkpoints.comparing,
                difference=self._difference_row,
            ),
            settings=lambda: self.settings,
            marks=CellMarks(lambda: self.loop.log, self._cell_queries()),
            past=lambda: self.engine.past,
            faults=lambda: [*self.notices.kept, *self.guard.lines()],
            mask=self.masker,
        )

    def _make_turns(self) -> None:
        """Make the checkpoints and the turns of cells."""
        self.room = Room(lambda: self.settings.quota_gb, self._thinned)
        self.checkpoints = self._made(CheckpointService, show=self.panel.checkpoint, make_rerun=self._replay)
        self.mirror = self._made(StoreMirror, settings_now=lambda: self.settings)
        self.turns = self._made(Turns)
        self.kept_cells = KeptCells(self.turns, self.kernel)
        self.checkpoints.rested = self.turns.rested
        self.displays.run_between = self.turns.run_between
        self.gestures.connect(self.turns.gesture, busy=lambda: self.turns.executing)

    def _make_commands(self) -> None:
        """Make the asks, the summaries and the commands."""
        self.models = Models(self._made(KernelServices))
        self.loop.summarise = self.models.want
        self.turns.collect_summaries, self.turns.forget_copies = self.models.collect, self.models.forget_copies
        self.context = self._made(CommandContext)

    def _made(self, cls: Callable[..., T], **others: Any) -> T:
        """Return a dataclass with `others` and, for its other required fields, the parts of these names."""
        required = [one.name for one in dataclasses.fields(cast("Any", cls)) if one.default is one.default_factory]
        return cls(**{name: getattr(self, name) for name in required if name not in others}, **others)

    @property
    def settings(self) -> Settings:
        """The present settings."""
        return self.configuration.settings

    @property
    def returning(self) -> Returning | None:
        """The checkpoints; None where they are off."""
        return self.checkpoints.returning

    def _apply(self, settings: Settings) -> None:
        """Pass new settings on to the parts."""
        self.capture.settings = self.files.settings = self.file_states.settings = self.tracker.settings = settings
        self.loop.reconfigure(settings)

    def _forget_inherited_notebook(self) -> None:
        """Remove the notebook's name from the environment if it is that of a kernel in which a program was started.

        The program passed on its own environment: its notebooks are not that one.
        """
        hint = os.environ.get(HINT)
        if hint and self.program and not is_named(os.environ) and has_variable(self.above[-1], HINT, hint):
            del os.environ[HINT]

    def _notebook_of_vscode(self) -> str | None:
        """Return the notebook that VS Code names in a variable, which is there before `%load_ext`; None otherwise."""
        found = self.shell.user_ns.get("__vsc_ipynb_file__")
        return found if isinstance(found, str) and not os.environ.get(HINT) and os.path.isfile(found) else None

    def _log_path(self) -> str | None:
        return str(self.store.path) if self.store.path else None

    def _file_states(self) -> FileStates:
        # Late: the ambient state remembers the process as it is when it is imported.
        from ctxkernel.kernel.returning.file_states import FileStates
        from ctxkernel.state import ambient
        from ctxkernel.store.chunks.data_folder import data_folder
        from ctxkernel.store.chunks.file_contents import FileContents
        from ctxkernel.store.chunks.quota import root_folder

        contents = FileContents(data_folder(root_folder(os.environ), self.store.session_id, writing=True))
        folder = notebook_folder(os.environ, os.getcwd())
        made = FileStates(folder, contents, self.files, self.settings)
        ambient.register(made)
        return made

    def _open(self, target: object) -> Source:
        # Late: most cells use no view, and a fast start matters more than a fast first view.
        from ctxkernel.kernel.display import output_source
        from ctxkernel.sources import open_named

        # A file of that name takes precedence, as everywhere else.
        if isinstance(target, str) and output_source.PLACE.fullmatch(target) and not os.path.lexists(target):
            return output_source.open_output(target, self.loop.log, lambda: self.loop.history)
        return open_named(target, self.shell.user_ns, self.settings)

    @property
    def engine(self) -> ProjectionEngine:
        """The engine that builds projections under the present settings."""
        return self.configuration.engine

    def environment(self) -> dict[str, str]:
        """Return the facts about the process that belong to a statement's fingerprint."""
        return {
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform": sys.platform,
            "ctxkernel": __version__,
        }

    # -- on and off ---------------------------------------------------------------------------

    def install(self) -> None:
        """Install every part. A part that fails is told and left out."""
        guard = self.guard.once
        guard("secrets", self.secrets.start, None)
        guard("output capture", self.capture.install, None)
        guard("output of C code and subprocesses", self.streams.install, None)
        guard("transforms of cells", self.transform.install, None)
        guard("files that cells read", self.reads.install, None)
        # At each request for the kernel's info IPython draws the tip of its banner from the user's `random`.
        self.shell.enable_tip = False
        guard("handles", self._inject, None)
        guard("display of handles", self.displays.install, None)
        guard("callbacks that change handles", self.gestures.install, None)
        guard("panel", self.panel.install, None)
        guard("messages of widgets", self._watch_messages, None)
        self.checkpoints.start(guard("checkpoints", self._checkpoints, None))
        # On the main thread, which SQLite needs: shutdown requests are served on the thread of the control channel.
        atexit.register(self.close)
        if self.store.notice:
            self.notices.kept.append(self.store.notice)
            self.notices.due += [self.store.notice] if self.store.alarming else []
        self.notices.kept += self.configuration.notices

    def started(self) -> None:
        """Bring an earlier session back, if the settings say so: the kernel is about to answer."""
        self.at_start.begin()
        if self.returning is not None:  # ipykernel is set up: what differs from now on is the user's
            self.guard("checkpoints", self.returning.live.ambient.begin, None)
        if self.settings.resume:
            self.guard("resuming", self._resume, None)

    def _inject(self) -> None:
        # Builtins, as IPython's `display`: a user's own `group` shadows it, and `del` brings it back.
        for name in NAMES[:-1]:
            setattr(builtins, name, getattr(self.loop, name))
        setattr(builtins, NAMES[-1], All)

    def _checkpoints(self) -> Returning:
        from ctxkernel.kernel.returning.return_services import ReturnServices
        from ctxkernel.kernel.returning.returns import Returning

        namespace = self.shell.user_ns
        made = Returning(self._made(ReturnServices, namespace=namespace, remember=self.panel.remember))
        made.chunks.hint = self.mirror.hint
        return made

    def _resume(self) -> None:
        try:
            if self.returning is not None:
                self.returning.resume_at_start()
                self.displays.take_over()
        except CtxError as refused:
            self.notices.kept.append(f"not resumed: {refused}")

    def _watch_messages(self) -> None:
        handlers = self.kernel.shell_handlers
        handle = handlers.get("comm_msg")
        if handle is None:
            return

        def noted(stream: Any, ident: Any, message: Any) -> Any:
            content: Any = message.get("content")
            comm_id: Any = cast("dict[str, Any]", content).get("comm_id") if isinstance(content, dict) else None
            if not isinstance(comm_id, str) or comm_id not in self.panel.comms:
                self.activity.message()
            return handle(stream, ident, message)

        handlers["comm_msg"] = noted

    def close(self) -> None:
        """Close every part that outlives the kernel object."""
        self.worker.close()
        self.models.collect()
        self.checkpoints.close()
        self.guard("session store", self.turns.store_ends, None)
        self.guard("timeline", self.turns.keep_late_output, None)  # no cell follows that would do it
        self.guard("session store", self.store.close, None)
        self.guard("second store", self.mirror.close, None)

    def _thinned(self, info: CheckpointInfo) -> None:
        self.store.checkpoint_state(info.checkpoint_id, info.state, info.reason, time.time())
        self.health.thinned(info.execution_id)
        self.panel.checkpoint(info)

    def _state_notes(self) -> StateNotes:
        back = self.returning
        asks = dict(self.account.endings)
        return StateNotes(dict(back.named), dict(back.facts.marks), asks) if back is not None else StateNotes(asks=asks)

    def _cell_queries(self) -> CellQueries:
        from ctxkernel.kernel.returning.cell_runs import cell_run

        def run(statement: Statement, execution: Execution) -> CellRun:
            back = self.returning
            return (
                back.facts.run(statement, execution) if back is not None else cell_run(statement, execution, None, {})
            )

        return CellQueries(
            info=self.health.info,
            run=run,
            marks=lambda: self.returning.facts.marks if self.returning is not None else {},
            swept=lambda: self.returning.facts.swept if self.returning is not None else (),
            uncertain=lambda: self.returning.facts.uncertain if self.returning is not None else (None, ()),
            file_version=self.reads.version,
        )

    def _plan_json(self, action: Any, target: str, *, before: bool, upto: str | None) -> messages.Plan:
        if self.returning is None:
            raise BadCommand("checkpoints are off in this kernel; %ctx status says why")
        return self.returning.plan_json(action, target, before=before, upto=upto)

    def _difference_row(self, old: str, new: str | None, names: list[str]) -> messages.StateDifference:
        if self.returning is None:
            raise BadCommand("checkpoints are off in this kernel; %ctx status says why")
        return self.returning.difference_row(old, new, names, self.masker)

    def _resume_offer(self) -> messages.Resume | None:
        return self.returning.resumption.offer if self.returning is not None else None

    def _base_url(self) -> str | None:
        return self.models.connections.base_url()

    def _prices(self, changes: str) -> Prices:
        from ctxkernel.kernel.commands.whatif import prices

        return prices(self.context, changes.splitlines())

    def _page(self) -> SavedPage:
        from ctxkernel.kernel.commands.export import session_page

        return session_page(self.context)

    def _replay(self, job: ReturnJob) -> Then:
        from ctxkernel.kernel.turn.affected_reruns import AffectedReplay
        from ctxkernel.kernel.turn.reruns import Replay

        return Replay(self.turns, job) if job.affected is None else AffectedReplay(self.turns, job)

    def keep_mark(self, subject: str, mark: str, value: str | None) -> None:
        """Write a mark of the user's to the log."""
        self.notices.keep(self.guard("session store", self.store.mark, None, subject, mark, value, time.time()))
