"""Everything of one kernel's session, wired: loop, tracker, projection, store, capture, panel.

Rule 1: a fault here costs the step that had it, never the user's cell (`Guard`).
Rule 2: the work after a cell is bounded in time; over that, or on an interrupt, it goes on with less and says so.
"""

from __future__ import annotations

import atexit
import builtins
import os
import platform
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

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
from ctxkernel.kernel.commands import Context
from ctxkernel.kernel.configuration import Configuration
from ctxkernel.kernel.display.handles import LiveDisplays
from ctxkernel.kernel.display.notices import Notices
from ctxkernel.kernel.display.panel import Panel, StateQueries
from ctxkernel.kernel.display.panel_rows import StateNotes
from ctxkernel.kernel.display.widgets import Gestures
from ctxkernel.kernel.execution.activity import Activity
from ctxkernel.kernel.execution.capture import Capture
from ctxkernel.kernel.execution.fd_streams import Streams
from ctxkernel.kernel.execution.interrupts import Interrupts
from ctxkernel.kernel.execution.page_hashes import Memory
from ctxkernel.kernel.execution.read_files import FileReads
from ctxkernel.kernel.execution.workers import Worker
from ctxkernel.kernel.execution.written_files import FileScan
from ctxkernel.kernel.messages import states as messages
from ctxkernel.kernel.returning.checkpoint_health import Health
from ctxkernel.kernel.returning.checkpoint_service import CheckpointService
from ctxkernel.kernel.returning.quota_check import Room
from ctxkernel.kernel.session import Session
from ctxkernel.kernel.turn.cell import Then
from ctxkernel.kernel.turn.cell_timeout import Timeout
from ctxkernel.kernel.turn.guard import Guard
from ctxkernel.kernel.turn.source_transform import SingleTransform
from ctxkernel.kernel.turn.turns import Parts, Turns
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.secrets import mask_value
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.state.types.packer import Packer
from ctxkernel.store.log.location import is_named, notebook_folder, notebook_name, session_path
from ctxkernel.store.log.session import SessionStore

if TYPE_CHECKING:
    from ctxkernel.kernel.returning.file_states import FileStates
    from ctxkernel.kernel.returning.returns import Job, Returning

NAMES = ("view", "group", "note", "ls", "show", "pin", "tick", "All")


class Runtime:
    """The session of one kernel. Made once, by the kernel or by `%load_ext ctxkernel`."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.shell = kernel.shell
        self.notices = Notices(kernel, lambda: self.capture)
        self.guard = Guard(self.notices.tell)
        self.configuration = Configuration(self)
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
        self.store = SessionStore.open(
            session_path(None, os.environ, os.getcwd()),
            environment=self.environment(),
            notebook=notebook_name(None, os.environ, os.getcwd()),
            named=is_named(os.environ),
        )
        namespace = self.shell.user_ns
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
        self.account = Account()
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
        self.activity = Activity()
        self.files = FileScan(self.settings, lambda: str(self.store.path) if self.store.path else None)
        self.file_states = self._file_states()
        self.reads = FileReads(lambda: str(self.store.path) if self.store.path else None)
        self.reads.before_write = self.file_states.before_write
        self.loop.question_of = lambda event: event.text if isinstance(event, UserQuestion) else ""
        self.gestures = Gestures(kernel, self.loop, self.guard)
        self.displays = LiveDisplays(
            shell=self.shell,
            loop=self.loop,
            guard=self.guard,
            capture=self.capture,
            gestures=self.gestures,
            attended=lambda: self.panel.attended,
        )
        self.health = Health(self.loop, lambda: self.returning)
        self.room = Room(lambda: self.settings.quota_gb, self._thinned)
        self.loop.pending = lambda: self.models.pending
        self.panel = Panel(
            kernel=kernel,
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
            ),
            settings=lambda: self.settings,
            past=lambda: self.engine.past,
            faults=lambda: [*self.notices.kept, *self.guard.lines()],
        )
        self.checkpoints = CheckpointService(
            kernel=kernel,
            guard=self.guard,
            notices=self.notices,
            loop=self.loop,
            store=self.store,
            health=self.health,
            quota=self.room,
            panel=self.panel,
            make_rerun=self._replay,
        )
        self.turns = Turns(
            Parts(
                kernel,
                self.guard,
                self.notices,
                self.loop,
                self.tracker,
                self.store,
                self.configuration,
                self.interrupts,
                self.activity,
                self.capture,
                self.streams,
                self.files,
                self.file_states,
                self.reads,
                self.checkpoints,
                self.displays,
                self.panel,
                self.collect_summaries,
                self._forget_copies,
            )
        )
        self.gestures.connect(self.turns.gesture, busy=lambda: self.turns.executing)
        parts: dict[str, Any] = {
            "kernel": kernel,
            "loop": self.loop,
            "store": self.store,
            "configuration": self.configuration,
            "turns": self.turns,
            "interrupts": self.interrupts,
            "guard": self.guard,
            "notices": self.notices,
            "panel": self.panel,
            "account": self.account,
            "keep_mark": self.keep_mark,
        }
        self.models = Models(Session(**parts))
        self.loop.summarise = self.models.want
        self.context = Context(
            **parts, models=self.models, checkpoints=self.checkpoints, health=self.health, timeout=self.timeout
        )

    @property
    def settings(self) -> Settings:
        """The settings of now."""
        return self.configuration.settings

    @property
    def returning(self) -> Returning | None:
        """The checkpoints; None where they are off."""
        return self.checkpoints.returning

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
        guard("panel", self.panel.install, None)
        guard("messages of widgets", self._watch_messages, None)
        self.checkpoints.returning = guard("checkpoints", self._checkpoints, None)
        # On the main thread, which is SQLite's: shutdown requests are served on the one of the control channel.
        atexit.register(self.close)
        if self.store.notice:
            self.notices.kept.append(self.store.notice)
        self.notices.kept += self.configuration.notices

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
            self.notices.kept.append(f"not resumed: {refused}")

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

    def close(self) -> None:
        """Switch everything off that outlives the kernel object."""
        self.worker.close()
        self.collect_summaries()
        self.checkpoints.close()
        self.turns.store_ends()
        self.guard("timeline", self.turns.keep_late_output, None)  # no cell follows that would
        self.guard("session store", self.store.close, None)

    def _thinned(self, info: CheckpointInfo) -> None:
        self.store.checkpoint_state(info.checkpoint_id, info.state, info.reason, time.time())
        self.health.thinned(info.execution_id)
        self.panel.checkpoint(info)

    def _state_notes(self) -> StateNotes:
        back = self.returning
        return StateNotes(back.names(), dict(back.marks)) if back is not None else StateNotes()

    def _plan_json(self, action: Any, target: str, *, before: bool, upto: str | None) -> messages.Plan:
        if self.returning is None:
            raise BadCommand("checkpoints are off in this kernel; %ctx status says why")
        return self.returning.plan_json(action, target, before=before, upto=upto)

    def _resume_offer(self) -> messages.Resume | None:
        try:
            return self.returning.resume_offer if self.returning is not None else None
        except Exception:  # the log of an earlier kernel is unreadable: there is nothing to offer
            return None

    def _replay(self, job: Job) -> Then:
        from ctxkernel.kernel.returning.reruns import Replay

        return Replay(self, job)

    def keep_mark(self, subject: str, mark: str, value: str | None) -> None:
        """Write down what the user says about a thing of the session."""
        told = self.guard("session store", self.store.mark, None, subject, mark, value, time.time())
        self.notices.keep(told)

    def collect_summaries(self) -> None:
        """Store the summaries that arrived, and their cost."""
        self.models.collect()

    def _forget_copies(self) -> None:
        self.models.forget_copies()
