"""The kernel's side of the panel: one comm a front end, and control requests that are served while a cell runs.

Rule 1: a request reads only what the last turn left, and may be answered on another thread.
Rule 2: messages have the types of `kernel/messages`; every text in them is untrusted.
Rule 3: messages are built only while a front end is open. A kernel without checkpoints has a panel without them.
"""

from __future__ import annotations

import platform
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ctxkernel._version import __version__
from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.errors import CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.core.masking import Mask
from ctxkernel.core.nodes import GroupHandle
from ctxkernel.core.replay import CheckpointInfo, Comparison
from ctxkernel.core.settings import Settings
from ctxkernel.core.text import without_surrogates
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn_values import HandleState, OpenTurn, TurnResult
from ctxkernel.kernel.display import panel_rows as rows
from ctxkernel.kernel.display.cell_marks import CellMarks
from ctxkernel.kernel.display.copies import notebook_copy
from ctxkernel.kernel.display.history_rows import HistoryRows, HistorySnapshot, changed_history
from ctxkernel.kernel.display.panel_answers import PanelAnswers, StateQueries
from ctxkernel.kernel.display.panel_rows import StateNotes, TurnFacts
from ctxkernel.kernel.display.projection_rows import projection_sizes
from ctxkernel.kernel.display.section_answers import AnswerTable
from ctxkernel.kernel.display.sweep_tables import RunningSweep, stored_sweeps
from ctxkernel.kernel.display.timeline_pages import PAGE, Run, TimelinePages
from ctxkernel.kernel.execution.capture import Capture
from ctxkernel.kernel.execution.cell import moves_head
from ctxkernel.kernel.messages.page_input import is_short, request_fields
from ctxkernel.projection.rendered_history import Past
from ctxkernel.store.log.row_masking import mask_for, masked_json, unmasked
from ctxkernel.store.log.session import SessionStore
from ctxkernel.sweeps.sweep_table import SweepTable

if TYPE_CHECKING:
    from ctxkernel.agent.asks import Account
    from ctxkernel.kernel.messages import timeline_messages
    from ctxkernel.kernel.messages import wire as messages

T = TypeVar("T")
M = TypeVar("M", bound=Mapping[str, Any])

TARGET = "ctxkernel.panel"
PROTOCOL = 1
ROWS_OF_PATH = 100
"""Most rows of the end of the path to HEAD that a snapshot contains, if that is older than the newest page."""
FACTS = 500
"""Most executions whose changes are kept for the feed of a page that comes later."""
DELTAS = 300
PAGES = 32
"""Most front ends with a comm: a new one closes the oldest."""
_MOST_ERROR = 1000
_MASKED = ("projection", "request", "image", "export")
"""Answers that are masked already: a projection, exactly as it would be sent, and the page of the session."""
BETWEEN_CELLS = ("whatif",)
"""Requests that are not answered on the control channel while a cell runs."""


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
    marks: CellMarks
    past: Callable[[], Past]
    faults: Callable[[], list[str]]
    mask: Mask
    comms: dict[str, Any] = field(default_factory=dict[str, Any])
    _sessions: dict[str, str] = field(default_factory=dict[str, str])
    """The session of each page with a comm: its requests have the same."""
    _widgets: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet[Any])
    _running: OpenTurn | None = None
    _last: TurnResult | None = None
    _proposal: messages.Proposal | None = None
    _asking: messages.Asking | None = None
    _facts: dict[str, TurnFacts] = field(default_factory=dict[str, TurnFacts])
    _fed: deque[str] = field(default_factory=deque[str])
    """Executions whose changes are kept, oldest first."""
    _notes: StateNotes = field(default_factory=StateNotes)
    """Names and marks at the end of the last turn."""
    _history_rows: HistoryRows = field(default_factory=HistoryRows)
    _history: HistorySnapshot | None = None
    """The model's history at the end of the last turn."""
    _shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    """The shares of the members of each group at the end of the last turn."""
    _told: messages.History | None = None
    """The history that the newest turn's message told of."""
    _was_sent: bool = False
    _warned: bool = False
    """Whether an unknown message of a page was reported."""
    _sweep: RunningSweep | None = None
    _swept: int | None = None
    """The number of sweeps in the log; None if it was not counted yet."""
    _checked: int = 0
    """Number of statements already checked for answers of a model."""

    # -- front ends ---------------------------------------------------------------------------

    def install(self) -> None:
        """Listen for front ends."""
        self.kernel.comm_manager.register_target(TARGET, self._open)
        for kind in {"snapshot", *self._answers} - {*BETWEEN_CELLS}:
            self.kernel.control_handlers[f"ctxkernel_{kind}_request"] = self._control(kind)

    def _open(self, comm: Any, message: Any) -> None:
        def close(message: Any) -> None:
            self.comms.pop(comm.comm_id, None)
            self._sessions.pop(comm.comm_id, None)

        def receive(message: Any) -> None:
            self._reply(comm.send, _data(message))

        if not self.pages:
            # Its snapshot tells all; from here on, turns tell what changes.
            self.marks.forget_changes()
            self._told = self._history.to_json() if self._history is not None else None
        while len(self.comms) >= PAGES:
            oldest = next(iter(self.comms))
            self._sessions.pop(oldest, None)
            self.comms.pop(oldest).close()
        self.comms[comm.comm_id] = comm
        self._sessions[comm.comm_id] = str(_mapping(_mapping(message).get("header")).get("session"))
        comm.on_close(close)
        comm.on_msg(receive)
        _deliver(comm.send, self.snapshot())

    def follow(self, widget: Any) -> None:
        """Send later turns to an inline panel too."""

        def receive(widget: Any, content: Any, buffers: Any) -> None:
            self._reply(widget.send, content)

        self._widgets.add(widget)
        widget.on_msg(receive)

    def _reply(self, send: Callable[[object], None], asked: object) -> None:
        answer = self._answer(_mapping(asked).get("type"), asked)
        if answer is not None:
            _deliver(send, answer)

    def _control(self, kind: str) -> Callable[..., None]:
        """Return a handler for the control channel, which is served while a cell runs. A comm is not."""

        def handle(stream: Any, ident: Any, parent: Any) -> None:
            answer = self._answer(kind, _mapping(parent).get("content"))
            session, name = self.kernel.session, f"ctxkernel_{kind}_reply"
            _deliver(lambda made: session.send(stream, name, made, parent, ident=ident), answer)

        return handle

    def _answer(self, kind: object, asked: object) -> Mapping[str, Any] | None:
        """Return the answer to a request: the result, or an error for the user; None for an unknown request."""
        if kind == "snapshot":
            return self.snapshot()
        makers = self._answers
        if not isinstance(kind, str) or kind not in makers:
            if not self._warned:
                self._warned = True
                self.kernel.log.warning("a page sent a message that this ctxkernel does not know; reload the page")
            return None
        result, error = None, None
        try:
            result = makers[kind](request_fields(asked, f"the {kind} request"))
        except CtxError as refusal:
            error = str(refusal)[:_MOST_ERROR]
        except Exception as fault:  # an internal error is reported in the answer; the kernel continues
            error = f"the answer failed: {type(fault).__name__}: {fault}"[:_MOST_ERROR]
        key = _mapping(asked).get("id")
        answer = {"type": kind, "id": key if is_short(key) else None, kind: result, "error": error}
        return answer if kind in _MASKED and error is None else self._masked(answer)

    @property
    def _verdicts(self) -> dict[str, str]:
        """The results of the comparisons of re-runs, by execution."""
        compared = {run: facts.comparison for run, facts in tuple(self._facts.items())}
        return {run: rows.verdict(found) for run, found in compared.items() if found is not None}

    @property
    def pages(self) -> frozenset[str]:
        """The front ends that are open now."""
        return frozenset((*self.comms, *(str(id(widget)) for widget in self._widgets)))

    @property
    def attended(self) -> bool:
        """Return whether a person uses the kernel: a front end shows the panel, or accepts input."""
        request = _mapping(_mapping(self.kernel.get_parent("shell")).get("content"))
        return bool(self.pages) or bool(request.get("allow_stdin", True))

    def _send(self, make: Callable[[], messages.KernelMessage]) -> None:
        if not (self.comms or self._widgets):
            return
        message = self._masked(make())
        # Two pages may share one document: what is to be inserted is told to one of them.
        inserts = self._inserting_page() if "insert" in message else None
        others = {name: part for name, part in message.items() if name != "insert"}
        with self.capture.ours():
            for name, comm in self.comms.items():
                _deliver(comm.send, message if name == inserts else others)
            for widget in self._widgets:
                _deliver(widget.send, others)

    def _inserting_page(self) -> str | None:
        """Return the page that shows the outputs of the present request, else the newest page."""
        session = _mapping(_mapping(self.kernel.get_parent("shell")).get("header")).get("session")
        asking = [name for name, page in self._sessions.items() if page == session]
        return next(iter(asking or reversed(self.comms)), None)

    def _masked(self, message: M) -> M:
        """Return a message without secrets; the projection in it is masked already.

        The code that waits for approval is not masked: what runs must not be hidden, and a mask could hide any code.
        """
        rest = {name: part for name, part in message.items() if name not in ("projection", "proposal")}
        mask = mask_for((rest,), self.mask)
        if mask is unmasked:
            return message
        return cast("M", {**message, **cast("Mapping[str, Any]", masked_json(rest, mask))})

    @property
    def _timeline(self) -> TimelinePages:
        return TimelinePages(self.loop.log, self._row)

    @property
    def _answers(self) -> AnswerTable:
        """The answers to each kind of request. Made anew each time, as a resume replaces the log."""
        return PanelAnswers(
            timeline=self._timeline,
            store=self.store,
            states=self.states,
            marks=self.marks,
            account=self.account,
            mask=self.mask,
            last=lambda: self._last,
            history=lambda: self._history,
            verdicts=lambda: self._verdicts,
            sweep=lambda: self._sweep,
        ).answers()

    # -- events of the kernel -----------------------------------------------------------------

    def proposal(self, proposal: messages.Proposal | None) -> None:
        """Send what waits for the user now."""
        self._proposal = proposal
        self._send(lambda: {"type": "proposal", "proposal": proposal})

    def asking(self, asking: messages.Asking | None) -> None:
        """Send which ask a model works on now, and the rows that this changes."""
        self._asking = asking

        def make() -> messages.AskingMessage:
            before, self._notes = self._notes, self.states.notes()
            return {
                "type": "asking",
                "asking": asking,
                "sent": self._sent(),
                "rows": self._timeline.amended(before, self._notes),
                "cells": self.marks.changed(),
            }

        self._send(make)

    def tell_sent(self) -> None:
        """Send that something is sent to a model now; the next turn would say so only when the answer has arrived."""
        self.asking(self._asking)

    def begin(self, turn: OpenTurn) -> None:
        """Send that a statement began."""
        self._running = turn
        self._send(lambda: {"type": "begin", "statement": rows.begun_row(turn), "head": self.loop.log.head})

    def turn(self, result: TurnResult) -> None:
        """Keep the result of a turn, and send it."""
        self._running, self._last = None, result
        if result.statement.kind != "meta":
            self.marks.counts.setdefault(result.execution.execution_id, self.kernel.execution_count - 1)
        self._history = self._history_rows.take(self.past())
        nodes = (self.loop.graph.node(one.obj_id) for one in result.handles if one.members)
        self._shares = {node.obj_id: node.shares for node in nodes if isinstance(node, GroupHandle)}
        if result.deltas or result.moved is not None or result.comparison is not None:
            if result.comparison is not None:
                self.marks.compared(result.comparison)
            self._facts[result.execution.execution_id] = TurnFacts(result.deltas, result.moved, result.comparison)
            self._fed.append(result.execution.execution_id)
            self._forget_old_facts()
        self._send(lambda: self._turn_message(result))
        if result.moved is not None and result.moved.reason == "resume":
            self._swept, self._checked = None, 0
            # The log now contains an earlier kernel's executions, which no front end knows.
            self._send(self.snapshot)  # already masked: masking it again changes nothing

    def sweep(self, execution_id: str, table: SweepTable, done: int, tasks: int, workers: int) -> None:
        """Keep the table of the running sweep, and send how far it is."""
        before = self._sweep
        self._sweep = RunningSweep(execution_id, table, {"done": done, "tasks": tasks, "workers": workers})
        self._sweep.told_at = before.told_at if before is not None else 0.0
        if self._sweep.is_due():
            progress = self._sweep.progress
            self._send(lambda: {"type": "sweeping", "execution_id": execution_id, "progress": progress})

    def swept(self) -> None:
        """Send everything: a sweep has ended, and the timeline has executions of which no turn told."""
        self._sweep, self._swept, self._checked = None, None, 0
        self._send(self.snapshot)

    def _forget_old_facts(self) -> None:
        """Drop the changes of one old execution; moves and comparisons are small and stay."""
        if len(self._fed) > FACTS:
            old = self._fed.popleft()
            facts = self._facts.pop(old)
            if facts.moved is not None or facts.comparison is not None:
                self._facts[old] = replace(facts, deltas=())

    def checkpoint(self, info: CheckpointInfo) -> None:
        """Send that the data of a checkpoint were stored, or could not be."""
        self.marks.look_again(info.execution_id)
        self._send(lambda: self._checkpoint_message(info))

    def remember(self, comparisons: Iterable[Comparison]) -> None:
        """Keep the comparisons of an earlier kernel's re-runs, which the timeline does not contain."""
        for one in comparisons:
            self.marks.compared(one)
            self._facts.setdefault(one.execution_id, TurnFacts(comparison=one))

    # -- messages -----------------------------------------------------------------------------

    def _checkpoint_message(self, info: CheckpointInfo) -> messages.CheckpointMessage:
        made: messages.CheckpointMessage = {
            "type": "checkpoint",
            "execution_id": info.execution_id,
            "checkpoint": rows.checkpoint_row(info),
            "storage": self.states.storage(),
            "work": self._work(self._last.handles if self._last is not None else ()),
            "cells": self.marks.changed(),
        }
        if (execution := self.loop.log.execution(info.execution_id)).late_diff is not None:
            made["diff"] = rows.changes_row(execution)
        return made

    def _turn_message(self, result: TurnResult) -> messages.TurnMessage:
        before, self._notes = self._notes, self.states.notes()
        message: messages.TurnMessage = {
            "type": "turn",
            "statement": self._row(result.statement, result.execution, self._notes),
            **self._state(result),
            "cells": self.marks.changed(),
        }
        told, self._told = self._told, message.get("history")
        if self._told is not None:
            message["history"] = changed_history(told, self._told)
        if result.outside is not None:
            message["outside"] = self._row(*result.outside, self._notes)
        if before != self._notes:
            message["rows"] = self._timeline.amended(before, self._notes)
        copy = notebook_copy(self.loop.log, result, self.kernel.execution_count)
        if copy is not None and (copy["into"] or self.settings().insert_cells):
            message["insert"] = copy
        return message

    def snapshot(self) -> messages.SnapshotMessage:
        """Return all data of the panel."""
        path, notes = self.store.path, self.states.notes()
        ended = self.loop.log.ended()
        chosen = self._chosen(ended)
        message: messages.SnapshotMessage = {
            "type": "snapshot",
            "protocol": PROTOCOL,
            "version": __version__,
            "python": platform.python_version(),
            "session": self.store.session_id,
            "path": str(path) if path else None,
            "running": rows.begun_row(self._running) if self._running else None,
            "statements": [self._row(*one, notes) for one in chosen],
            "timeline_truncated": len(ended) - len(chosen),
            "proposal": self._proposal,
            "asking": self._asking,
            **self._state(self._last),
            "shape": self._timeline.shape(ended, self._verdicts),
            "cells": self.marks.all(),
            # The whole feed, for a page that was reloaded; a turn contains only its own part.
            "deltas": [rows.panel_delta(item, run) for run, one in tuple(self._facts.items()) for item in one.deltas][
                -DELTAS:
            ],
        }
        if self._swept is None:
            self._swept = len(stored_sweeps(path))
        if sweeps := self._swept + (self._sweep is not None):
            message["sweeps"] = sweeps
        return self._masked(message)

    def _state(self, result: TurnResult | None) -> messages.State:
        run = result.execution.execution_id if result else ""
        handles = result.handles if result else ()
        names = {one.obj_id: one.name for one in handles}
        projection = projection_sizes(result.projection) if result and result.projection is not None else None
        state: messages.State = {
            "head": self.loop.log.head,
            "handles": [rows.panel_handle(one, names, self._shares.get(one.obj_id, {})) for one in handles],
            "deltas": [rows.panel_delta(item, run) for item in result.deltas] if result else [],
            "projection": projection,
            "notices": self.faults(),
            "storage": self.states.storage(),
            "resume": self.states.resume_offer(),
            "sent": self._sent(),
            "work": self._work(handles),
        }
        if self._history is not None:
            state["history"] = self._history.to_json()
        return state

    def _work(self, handles: Iterable[HandleState]) -> list[str]:
        return rows.background_work(handles, self.states.summaries(), self.states.comparing())

    def _sent(self) -> bool:
        """Return whether this session, in this kernel or an earlier one, has sent anything to a model."""
        if not self._was_sent:
            new, first = islice(self.loop.log, self._checked, None), not self._checked
            self._checked = len(self.loop.log)
            self._was_sent = (
                self.account.sent
                or any(one.author == "model" and one.tags.get("replayed") is False for one in new)
                or (first and self.store.requests_sent)
            )
        return self._was_sent

    def _chosen(self, ended: list[Run]) -> list[Run]:
        """Return the executions of which a snapshot contains the rows, oldest first."""
        if len(ended) <= PAGE:
            return ended
        # The end of the path to HEAD is included, even if it is old.
        wanted = {e.execution_id for _, e in self.loop.log.path()[-ROWS_OF_PATH:]}
        wanted |= {e.execution_id for _, e in ended[len(wanted) - PAGE :]}
        return [one for one in ended if one[1].execution_id in wanted]

    def _row(self, statement: Statement, execution: Execution, notes: StateNotes) -> messages.Row:
        facts = self._facts.get(execution.execution_id, TurnFacts())
        moved: timeline_messages.Move | None = None
        if facts.moved is not None:
            moved = {"to": facts.moved.to, "reason": facts.moved.reason}
        elif execution.status == "ok" and moves_head(statement.source):  # by an earlier kernel
            moved = {"to": None, "reason": "goto"}
        info = self.states.info(execution.execution_id)
        row: timeline_messages.Row = {
            **rows.execution_row(statement, execution, facts.deltas),
            "moved": moved,
            "checkpoint": rows.checkpoint_row(info) if info is not None else None,
            "comparison": rows.comparison_row(facts.comparison) if facts.comparison is not None else None,
            **notes.of(statement, execution.execution_id),
        }
        return rows.bounded_row(row)


def _deliver(send: Callable[[Any], object], message: Any) -> None:
    """Send a message, without lone surrogates if it has some: names of files and reprs can, a message cannot."""
    try:
        send(message)
    except UnicodeEncodeError:
        send(without_surrogates(message))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _data(message: object) -> object:
    return _mapping(_mapping(message).get("content")).get("data")
