"""The kernel's side of the panel: one comm a front end, and control requests that are served while a cell runs.

Rule 1: a request reads only what the last turn left, and may be answered on another thread.
Rule 2: messages have the types of `kernel/messages`; every text in them is untrusted.
Rule 3: messages are built only while a front end is open. A kernel without checkpoints has a panel without them.
"""

from __future__ import annotations

import platform
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ctxkernel._version import __version__
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.core.replay import CheckpointInfo, Comparison
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn import OpenTurn, TurnResult
from ctxkernel.history.events import Action, AssistantMessage
from ctxkernel.kernel.display import panel_rows as rows
from ctxkernel.kernel.display.history_rows import HistoryRows, HistorySnapshot
from ctxkernel.kernel.display.panel_rows import StateNotes, TurnFacts
from ctxkernel.kernel.execution.capture import Capture
from ctxkernel.kernel.execution.cell import moves_head
from ctxkernel.kernel.messages import timeline
from ctxkernel.kernel.messages import wire as messages
from ctxkernel.projection.history import Past
from ctxkernel.projection.value import Projection
from ctxkernel.store.log.session import SessionStore

if TYPE_CHECKING:
    from ctxkernel.agent.asks import Account

T = TypeVar("T")
Request = Mapping[str, Any]

TARGET = "ctxkernel.panel"
PROTOCOL = 1
ROWS = 500
"""Most rows of a snapshot: the newest ones …"""
ROWS_OF_PATH = 100
"""… and among them at most this many of the end of the path to HEAD, if that is older."""
DELTAS = 300
CHANGES = 500
"""Most blocks of a comparison."""
ACTIONS = ("goto", "undo", "rerun")


@dataclass(frozen=True, slots=True)
class StateQueries:
    """Questions of the panel about the states of the session. None of them changes anything."""

    info: Callable[[str], CheckpointInfo | None]
    """Execution → the checkpoint after it."""
    storage: Callable[[], messages.Storage | None]
    notes: Callable[[], StateNotes]
    plan: Callable[..., messages.Plan]
    """(action, target, before, upto) → the plan. Raises CtxError."""
    resume_offer: Callable[[], messages.Resume | None]


@dataclass(eq=False, kw_only=True)
class Panel:
    """Keeps the data of the panel, and sends them to the front ends that are open."""

    kernel: Any
    loop: Loop
    store: SessionStore
    capture: Capture
    account: Account
    states: StateQueries
    settings: Callable[[], Settings]
    past: Callable[[], Past]
    faults: Callable[[], list[str]]
    comms: dict[str, Any] = field(default_factory=dict[str, Any])
    _widgets: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet[Any])
    _running: OpenTurn | None = None
    _last: TurnResult | None = None
    _proposal: messages.Proposal | None = None
    _asking: messages.Asking | None = None
    _facts: dict[str, TurnFacts] = field(default_factory=dict[str, TurnFacts])
    _notes: StateNotes = field(default_factory=StateNotes)
    """Names and marks at the end of the last turn."""
    _history_rows: HistoryRows = field(default_factory=HistoryRows)
    _history: HistorySnapshot | None = None
    """The model's history at the end of the last turn."""
    _was_sent: bool = False
    _checked: int = 0
    """Number of statements already checked for answers of a model."""

    # -- front ends ---------------------------------------------------------------------------

    def install(self) -> None:
        """Listen for front ends."""
        self.kernel.comm_manager.register_target(TARGET, self._open)
        for kind in ("snapshot", "plan", "events", "compare"):
            self.kernel.control_handlers[f"ctxkernel_{kind}_request"] = self._control(kind)

    def _open(self, comm: Any, message: Any) -> None:
        def close(message: Any) -> None:
            self.comms.pop(comm.comm_id, None)

        def receive(message: Any) -> None:
            self._reply(comm.send, _data(message))

        self.comms[comm.comm_id] = comm
        comm.on_close(close)
        comm.on_msg(receive)
        comm.send(self.snapshot())

    def follow(self, widget: Any) -> None:
        """Send later turns to an inline panel too."""

        def receive(widget: Any, content: Any, buffers: Any) -> None:
            self._reply(widget.send, content)

        self._widgets.add(widget)
        widget.on_msg(receive)

    def _reply(self, send: Callable[[object], None], asked: Request) -> None:
        answer = self._answer(str(asked.get("type")), asked)
        if answer is not None:
            send(answer)

    def _control(self, kind: str) -> Callable[..., None]:
        """Return a handler for the control channel, which is served while a cell runs. A comm is not."""

        def handle(stream: Any, ident: Any, parent: Any) -> None:
            answer = self._answer(kind, _mapping(_mapping(parent).get("content")))
            self.kernel.session.send(stream, f"ctxkernel_{kind}_reply", answer, parent, ident=ident)

        return handle

    def _answer(self, kind: str, asked: Request) -> Mapping[str, Any] | None:
        """Return the answer to a request: the result, or an error for the user; None for an unknown request."""
        if kind == "snapshot":
            return self.snapshot()
        make = {"plan": self._plan, "events": self._events, "compare": self._compare}.get(kind)
        if make is None:
            return None
        result, error = None, None
        try:
            result = make(asked)
        except CtxError as refusal:
            error = str(refusal)
        except Exception as fault:  # an internal error is reported in the answer; the kernel continues
            error = f"the answer failed: {type(fault).__name__}: {fault}"
        return {"type": kind, "id": asked.get("id"), kind: result, "error": error}

    @property
    def pages(self) -> frozenset[str]:
        """The front ends that are open now."""
        return frozenset((*self.comms, *(str(id(widget)) for widget in self._widgets)))

    @property
    def attended(self) -> bool:
        """Whether a person uses the kernel: a front end shows the panel, or accepts input."""
        request = _mapping(_mapping(self.kernel.get_parent("shell")).get("content"))
        return bool(self.pages) or bool(request.get("allow_stdin", True))

    def _send(self, make: Callable[[], messages.KernelMessage]) -> None:
        if not (self.comms or self._widgets):
            return
        message = make()
        with self.capture.ours():
            for front_end in (*self.comms.values(), *self._widgets):
                front_end.send(message)

    # -- requests -----------------------------------------------------------------------------

    def _plan(self, asked: Request) -> messages.Plan:
        action, target, upto = asked.get("action"), asked.get("target"), asked.get("upto")
        if action not in ACTIONS or not isinstance(target, str):
            raise BadCommand(f"there is no plan for {action!r} of {target!r}")
        before, upto = asked.get("before") is True, upto if isinstance(upto, str) else None
        return self.states.plan(action, target, before=before, upto=upto)

    def _events(self, asked: Request) -> messages.CondensedEvents:
        """Return the events behind a condensation, as of the last turn."""
        if self._history is None:
            raise BadCommand("nothing is condensed here")
        return self._history.condensed(str(asked.get("of")))

    def _compare(self, asked: Request) -> messages.Compared:
        """Compare the projections after two statements; a `new` of None is that of the last turn."""
        from ctxkernel.projection.compare import compare_projections

        old, new = self._projection_after(asked.get("old")), self._projection_after(asked.get("new"))
        found = cast("messages.Compared", compare_projections(old, new).to_json())
        more = max(0, len(found["changes"]) - CHANGES)
        return {**found, "changes": found["changes"][:CHANGES], "more": more, "sizes": [old.tokens, new.tokens]}

    def _projection_after(self, place: Any) -> Projection:
        from ctxkernel.store.log.reader import stored_projection

        if isinstance(place, str):
            return stored_projection(self.store.path, place)
        if self._last is None or self._last.projection is None:
            raise BadCommand("there is no projection yet: run a cell first")
        return self._last.projection

    # -- events of the kernel -----------------------------------------------------------------

    def proposal(self, proposal: messages.Proposal | None) -> None:
        """Send what waits for the user now."""
        self._proposal = proposal
        self._send(lambda: {"type": "proposal", "proposal": proposal})

    def asking(self, asking: messages.Asking | None) -> None:
        """Send which ask a model works on now."""
        self._asking = asking
        self._send(lambda: {"type": "asking", "asking": asking})

    def begin(self, turn: OpenTurn) -> None:
        """Send that a statement began."""
        self._running = turn
        self._send(lambda: {"type": "begin", "statement": rows.begun_row(turn), "head": self.loop.log.head})

    def turn(self, result: TurnResult) -> None:
        """Keep the result of a turn, and send it."""
        self._running, self._last = None, result
        self._history = self._history_rows.take(self.past())
        if result.deltas or result.moved is not None or result.comparison is not None:
            self._facts[result.execution.execution_id] = TurnFacts(result.deltas, result.moved, result.comparison)
            if len(self._facts) > ROWS:
                del self._facts[next(iter(self._facts))]
        self._send(lambda: self._turn_message(result))
        if result.moved is not None and result.moved.reason == "resume":
            self._checked = 0
            # The log now contains an earlier kernel's executions, which no front end knows.
            self._send(self.snapshot)

    def checkpoint(self, info: CheckpointInfo) -> None:
        """Send that the data of a checkpoint were stored, or could not be."""
        self._send(
            lambda: {
                "type": "checkpoint",
                "execution_id": info.execution_id,
                "checkpoint": rows.checkpoint_row(info),
                "storage": self.states.storage(),
            }
        )

    def remember(self, comparisons: Iterable[Comparison]) -> None:
        """Keep the comparisons of an earlier kernel's re-runs, which the timeline does not contain."""
        for one in comparisons:
            self._facts.setdefault(one.execution_id, TurnFacts(comparison=one))

    # -- messages -----------------------------------------------------------------------------

    def _turn_message(self, result: TurnResult) -> messages.TurnMessage:
        before, self._notes = self._notes, self.states.notes()
        message: messages.TurnMessage = {
            "type": "turn",
            "statement": self._row(result.statement, result.execution, self._notes),
            **self._state(result),
        }
        if result.outside is not None:
            message["outside"] = self._row(*result.outside, self._notes)
        if before != self._notes:
            message["rows"] = self._amended(before, self._notes)
        if result.moved is not None:
            message["branches"] = self._branches()
        if self.settings().insert_cells and (copy := self._copy(result.statement, result.execution)) is not None:
            message["insert"] = copy
        return message

    def snapshot(self) -> messages.SnapshotMessage:
        """Return all data of the panel."""
        path, notes = self.store.path, self.states.notes()
        chosen, others = self._chosen()
        return {
            "type": "snapshot",
            "protocol": PROTOCOL,
            "version": __version__,
            "python": platform.python_version(),
            "session": self.store.session_id,
            "path": str(path) if path else None,
            "running": rows.begun_row(self._running) if self._running else None,
            "statements": [self._row(*one, notes) for one in chosen],
            "timeline_truncated": others,
            "proposal": self._proposal,
            "asking": self._asking,
            **self._state(self._last),
            "branches": self._branches(),
            # The whole feed, for a page that was reloaded; a turn contains only its own part.
            "deltas": [rows.panel_delta(item) for one in tuple(self._facts.values()) for item in one.deltas][-DELTAS:],
        }

    def _state(self, result: TurnResult | None) -> messages.State:
        handles = result.handles if result else ()
        names = {one.obj_id: one.name for one in handles}
        projection = result.projection.to_json() if result and result.projection is not None else None
        state: messages.State = {
            "head": self.loop.log.head,
            "handles": [rows.panel_handle(one, names) for one in handles],
            "deltas": [rows.panel_delta(item) for item in result.deltas] if result else [],
            "projection": cast("messages.Projection | None", projection),
            "notices": self.faults(),
            "storage": self.states.storage(),
            "resume": self.states.resume_offer(),
            "sent": self._sent(),
        }
        if self._history is not None:
            state["history"] = self._history.to_json()
        return state

    def _copy(self, statement: Statement, execution: Execution) -> messages.Copy | None:
        """Return the cell that a front end inserts below the ask for a statement of the model; None for others."""
        from ctxkernel.agent.markdown import safe_markdown

        ask = statement.tags.get("ask")
        if statement.author != "model" or not isinstance(ask, str) or statement.tags.get("held"):
            return None
        copy: messages.Copy = {
            "after": self.loop.log.statement(ask.partition(".")[0]).cell_id,
            "ask": ask,
            "statement": statement.statement_id,
            "ends": False,
            "cell_type": "code",
            "source": statement.source,
            "outputs": [],
            "execution_count": None,
        }
        if statement.kind != "meta":
            number = self.kernel.execution_count - 1
            return {**copy, "outputs": rows.notebook_outputs(execution), "execution_count": number}
        records = self.loop.log.records.get(execution.execution_id, ())
        speech = [one for one in records if isinstance(one, (Action, AssistantMessage))]
        if execution.status != "ok" or not any(one.text.strip() for one in speech):
            return None
        calls = any(isinstance(one, Action) for one in speech)
        ends = not calls and statement.tags.get("stop_reason") != "pause_turn"
        return {**copy, "ends": ends, "cell_type": "markdown", "source": safe_markdown(statement.source)}

    def _sent(self) -> bool:
        """Return whether this session, in this kernel or an earlier one, has sent anything to a model."""
        if not self._was_sent:
            new, first = islice(self.loop.log, self._checked, None), not self._checked
            self._checked = len(self.loop.log)
            self._was_sent = (
                self.account.sent
                or any(one.author == "model" and one.tags.get("replayed") is False for one in new)
                or (first and self.store.summaries_sent)
            )
        return self._was_sent

    def _chosen(self) -> tuple[list[tuple[Statement, Execution]], int]:
        """Return the executions of a snapshot, oldest first, and the number of others."""
        log = self.loop.log
        ended = [(s, e) for s in tuple(log) for e in log.executions(s.statement_id) if e.status != "running"]
        chosen = ended
        if len(ended) > ROWS:  # the end of the path to HEAD is included, even if it is old
            path = {e.execution_id for _, e in log.path()[-ROWS_OF_PATH:]}
            newest = nlargest(ROWS - len(path), ended, key=_started_at)
            wanted = path | {e.execution_id for _, e in newest}
            chosen = [one for one in ended if one[1].execution_id in wanted]
        return sorted(chosen, key=_started_at), len(ended) - len(chosen)

    def _row(self, statement: Statement, execution: Execution, notes: StateNotes) -> messages.Row:
        facts = self._facts.get(execution.execution_id, TurnFacts())
        moved: timeline.Move | None = None
        if facts.moved is not None:
            moved = {"to": facts.moved.to, "reason": facts.moved.reason}
        elif execution.status == "ok" and moves_head(statement.source):  # by an earlier kernel
            moved = {"to": None, "reason": "goto"}
        info = self.states.info(execution.execution_id)
        return {
            **rows.execution_row(statement, execution, facts.deltas),
            "moved": moved,
            "checkpoint": rows.checkpoint_row(info) if info is not None else None,
            "comparison": rows.comparison_row(facts.comparison) if facts.comparison is not None else None,
            **notes.of(statement, execution.execution_id),
        }

    def _amended(self, before: StateNotes, now: StateNotes) -> list[messages.AmendedRow]:
        """Return the rows, sent before, whose names or marks have changed."""
        chosen, _ = self._chosen()
        pairs = [(run.execution_id, before.of(s, run.execution_id), now.of(s, run.execution_id)) for s, run in chosen]
        return [{"execution_id": execution_id, **new} for execution_id, old, new in pairs if new != old]

    def _branches(self) -> list[messages.Branch]:
        return [
            {"leaf": one.leaf, "fork": one.fork, "statements": list(one.statements), "head": one.has_head}
            for one in self.loop.log.branches()
        ]


def _mapping(value: object) -> Request:
    return cast("Request", value) if isinstance(value, dict) else {}


def _data(message: object) -> Request:
    return _mapping(_mapping(_mapping(message).get("content")).get("data"))


def _started_at(one: tuple[Statement, Execution]) -> float:
    return one[1].started_at
