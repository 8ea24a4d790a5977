"""The kernel, as the turn of one ask acts on it: requests are logged, responses and cells become statements.

Rule 1: a request is the projection after the newest statement, byte for byte. It is stored before it is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ctxkernel.agent.ask_turn import AskStopped, AskTurn, Model, Observe, ResponseRecord
from ctxkernel.agent.asks import Ask, BookedRequest, Spent
from ctxkernel.agent.failures import ModelFailure
from ctxkernel.agent.streaming import Response
from ctxkernel.core.errors import CtxError
from ctxkernel.core.timeline import Cost, Execution, Kind
from ctxkernel.history.events import Action, HistoryEvent
from ctxkernel.kernel.asking.agent_cells import no_exit, sending_time
from ctxkernel.kernel.asking.answer_display import FENCED, AnswerDisplay, proposal_bundle
from ctxkernel.kernel.asking.model_tools import ModelTools
from ctxkernel.kernel.asking.seen_state import SeenState
from ctxkernel.kernel.execution.cell import CellRequest
from ctxkernel.kernel.services import KernelServices
from ctxkernel.kernel.turn.reruns import Execute
from ctxkernel.projection.displayed_tokens import anchored, estimate_tokens
from ctxkernel.projection.prefix import common, prefix_break
from ctxkernel.projection.value import Projection

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import plan_messages as messages

T = TypeVar("T")


class AskSession:
    """The kernel, as the turn of one ask acts on it (`agent.ask_turn.Bench`)."""

    def __init__(
        self, session: KernelServices, seen: SeenState, screen: AnswerDisplay, ask: Ask, model: Model, warning: str = ""
    ) -> None:
        """`warning` is shown with each cell that waits."""
        self._session, self._seen, self.screen = session, seen, screen
        self._warning = warning
        self.turn = AskTurn(ask, self, model, screen)
        self.proposal: messages.Proposal | None = None
        """The proposal that waits for the user, as the panel shows it."""
        self.ran: list[Execution] = []
        """Executed cells whose copies in the notebook, made by `insert_cells`, were not executed yet."""
        self.sent: Projection | None = None
        """The newest request."""
        self.responses: list[str] = []
        """The ids of the responses to its requests, in order."""
        self._displays: dict[str, str] = {}
        """Proposal → the display that shows it."""
        self._parent: dict[str, Any] = session.kernel.get_parent("shell") or {}
        """The request of the ask: the turn is displayed there."""
        self._sent: tuple[float | None, float] = None, 0.0
        """The times when the request under which the next proposal is shown was sent, and when it began to run."""
        self._pages = session.panel.pages
        """The front ends that were open then."""
        self._execute: Execute | None = None
        self._outer: CellRequest | None = None
        self._row: int | None = None
        """The newest request's number in the log."""
        self._request_id = ""
        self._booked: BookedRequest | None = None
        """The newest request in the books."""

    @contextmanager
    def working(self, execute: Execute, outer: CellRequest) -> Generator[None]:
        """Let the turn run cells with `execute`, and display them with the ask.

        A click has no cell of its own; if its page shows the ask, its messages get the ask's parent.
        """
        kernel, mine = self._session.kernel, outer.msg_id
        own = kernel.get_parent("shell")
        moved = outer.author == "panel" and self._parent and self._pages & self._session.panel.pages
        if moved:
            kernel.set_parent([], self._parent, channel="shell")
            header: dict[str, Any] = self._parent.get("header") or {}
            outer.msg_id = header.get("msg_id", mine)
        self._execute, self._outer = execute, outer
        try:
            yield
        finally:
            self._execute = self._outer = None
            outer.msg_id = mine
            if moved:
                kernel.set_parent([], own, channel="shell")

    # -- decisions ---------------------------------------------------------------------------

    def _sending_time(self) -> tuple[float | None, float]:
        """Return when the front end sent the running request, by its own clock, and the present time of ours."""
        return sending_time(self._session.kernel), self.clock()

    def is_unseen(self) -> bool:
        """Return whether the running request was sent before its proposal was shown, as all cells of Run All are.

        Two clocks cannot be compared, but their intervals can: between the request of the proposal and a decision on
        it, about as much time passes for the front end as for the kernel, unless the decision waited in the queue.
        """
        (date, began), (now_date, now) = self._sent, self._sending_time()
        return date is not None and now_date is not None and now_date - date < (now - began) / 2

    def note_request(self) -> None:
        """Note the running request: the next proposal is shown under it."""
        self._sent = self._sending_time()

    # -- requests ----------------------------------------------------------------------------

    @property
    def request(self) -> Projection | None:
        """The projection that would be sent now."""
        return self._session.loop.projection

    @property
    def off(self) -> bool:
        """Return whether no model may be asked now."""
        return self._session.settings.mode == "off"

    def consented(self, ask: Ask, request: Projection) -> bool:
        """Report the cost of the kernel's first request; in mode `ask` it waits for the user's approval."""
        account = self._session.account
        if account.consented:
            return True
        count = request.counted(lambda text: estimate_tokens(text, request.model))
        most = ask.bounds.rounds or "any number of"
        text = (
            f"The first request of this kernel: ~{count:,} tokens to {request.model}, {request.cost.told()} and "
            f"{request.max_tokens:,} tokens of answer at most, for each of up to {most} requests. The panel and "
            "%ctx projection show every byte; %ctx cost adds up."
        )
        if ask.mode == "auto":
            account.consented = True
            self.screen.show({"text/plain": text})
            return True
        self._propose("send", f"{ask.execution_id}:send", "", text)
        return False

    def sending(self, ask: Ask, request: Projection, number: int) -> None:
        """Store the request and its time."""
        session, now = self._session, time.time()
        self.sent = request
        session.guard("stale views", self._seen.look, None)
        if not self.turn.live:
            return
        if not session.account.sent:
            session.account.sent = True
            session.guard("panel", session.panel.tell_sent, None)
        session.loop.requested_at = now
        row = (ask.execution_id, ask.key, number, request.receipt, request.model, now)
        self._row, notice = session.guard("session store", session.store.request, (None, None), *row)
        session.notices.keep(notice)
        before, session.account.last = session.account.last, request
        broke = prefix_break(before, request, common(before, request)) if before is not None else None
        told = broke.told() if broke is not None else ""
        booked = BookedRequest(ask.execution_id, request.model, Spent(1), ask.question, self._row, told)
        self._booked = session.account.book(booked)

    def metered(self, spent: Spent, *, final: bool) -> None:
        """Book the cost until now of the newest request; the log keeps it too, in case the kernel dies."""
        if self._booked is not None:
            self._booked.spent = spent
        if not final:
            self._session.record(self._session.store.begun_response, self._row, spent.to_json())

    def received(self, response: Response | None, failure: ModelFailure | None, spent: Spent) -> None:
        """Store the outcome of a request, and compare its usage with the estimate."""
        session, request = self._session, self.sent
        self._request_id = (response.request_id or "") if response is not None else ""
        if response is not None:
            session.loop.answered()
            self.responses.append(response.llm_response_id)
        if not self.turn.live or request is None:
            return
        if self._booked is not None:
            self._booked.spent = spent
        status, blocks = "stopped" if failure is None else failure.kind, list[Any]()
        if response is not None:
            status, blocks = "ok", list(response.blocks)
            counted = request.counted(lambda text: estimate_tokens(text, request.model))
            session.account.anchor = anchored(counted, response.usage) or session.account.anchor
        row, self._row = self._row, None
        session.notices.keep(session.store_response(row, status, response or failure, spent, blocks=blocks))

    async def interruptible(self, work: Awaitable[T]) -> T:
        """Await a response; the stop button ends it. Raises Stopped."""
        interrupts, loop = self._session.interrupts, asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            loop.call_soon_threadsafe(task.cancel)

        interrupts.on_note = stop
        if interrupts.pending:
            stop()
        try:
            return await task
        except asyncio.CancelledError:
            if not stopped:
                raise
            interrupts.pending = False
            raise AskStopped from None
        finally:
            interrupts.on_note = None

    # -- statements of the model -------------------------------------------------------------

    def record(self, response: ResponseRecord) -> str:
        """Record a response as a statement of the model."""
        spent, tags = response.spent, dict(response.tags or {})
        cost = Cost(response.seconds * 1000, spent.tokens or None, spent.usd if spent.tokens else None)
        reply: dict[str, Any] = {"status": "ok"}
        if response.failure is not None or response.stopped:
            kind, text = response.failure or ("KeyboardInterrupt", "")
            reply = {"status": "error", "ename": kind, "evalue": text, "traceback": []}
        cell = self._cell(response.source, tags, lambda execution: (), "meta")
        cell.cost = cost
        return self._statement(cell, reply, response.events, stopped=response.stopped)

    def hold(self, action: Action, code: str, observe: Observe) -> None:
        """Record a cell that is not run."""
        reply: dict[str, Any] = {"status": "aborted", "ename": "NotRun", "evalue": "held: not run", "traceback": []}
        cell = self._cell(code, {**self._tags(action), "held": True}, observe, "meta")
        execution_id = self._statement(cell, reply, lambda name, number: ())
        records = self._session.loop.log.records.get(execution_id, ())
        text = next((getattr(one, "content", "") for one in records), "")
        if text:
            self._show_cell(action, code, "held")
            self.screen.show({"text/plain": text})

    def _cell(self, code: str, tags: dict[str, Any], observe: Observe, kind: Kind) -> CellRequest:
        outer = self._outer
        assert outer is not None
        made = CellRequest(code, outer.msg_id, recorded=True, kind=kind, author="model", tags=tags, observe=observe)
        made.only_logged = outer.only_logged
        return made

    def _statement(
        self,
        cell: CellRequest,
        reply: dict[str, Any],
        events: Callable[[str, int], Iterable[HistoryEvent]],
        *,
        stopped: bool = False,
    ) -> str:
        """Record a statement of the model that runs no code. Return its execution's id. Raises CtxError."""
        turns = self._session.turns
        turns.open(cell)
        if turns.running is None:
            raise CtxError("the timeline is off, so nothing of a model can be recorded; %ctx status says why")
        name = turns.running.execution.execution_id
        for event in events(name, 1):
            self._session.loop.record(event)
        turns.shut(reply, stopped)
        return name

    def _tags(self, action: Action) -> dict[str, Any]:
        turn, sent = self.turn, self.sent
        return {
            **({"fenced": True} if action.event_id in turn.fenced else {}),
            "ask": turn.ask.execution_id,
            "response": turn.execution_id,
            "call": action.tool_call_id,
            "model": sent.model if sent is not None else turn.ask.model,
            "receipt": sent.receipt if sent is not None else "",
            "request_id": self._request_id,
        }

    def mask(self, text: str) -> str:
        """Return a text without secrets."""
        return self._session.masker(text)

    def answer(self, action: Action, shown: Sequence[HistoryEvent], number: int) -> Sequence[HistoryEvent]:
        """Carry out a call that runs no cell."""
        session = self._session
        tools = ModelTools(session.loop, session.past, session.shell.user_ns, session.settings.statement_tokens)
        return tools.answer(action, shown, number)

    @property
    def stopped(self) -> bool:
        """Return whether the user pressed stop while the newest cell ran, also if the cell caught the interrupt."""
        return self._session.interrupts.seen

    async def run(self, action: Action, code: str, observe: Observe) -> Execution:
        """Run a cell of the model; its outputs are displayed as they arrive."""
        session, outer, execute = self._session, self._outer, self._execute
        assert outer is not None
        assert execute is not None
        self._show_cell(action, code, "approved")
        cell = self._cell(code, self._tags(action), observe, "python")
        cell.silent, cell.rerun, cell.keeps_number = outer.silent, outer.rerun, True
        before = session.turns.last
        session.interrupts.watch(on=True)
        try:
            with no_exit(session):
                await execute(cell)
        finally:
            session.interrupts.watch(on=False)
        session.guard("stale views", self._seen.ran, None)
        last = session.turns.last
        if last is None or last is before:
            raise CtxError("the timeline is off, so the model's cell could not be recorded; %ctx status says why")
        self.ran.append(last.execution)
        return last.execution

    def sources(self) -> Iterable[str]:
        """Return the sources of all cells on the path to HEAD, questions included."""
        path = (statement for statement, _ in self._session.loop.history)
        return [one.source for one in path if one.author != "model" or one.kind != "meta"]  # no responses

    def changed(self, code: str) -> str:
        """Return a text about objects used by `code` that changed since the last request."""
        return self._session.guard("stale views", self._seen.changed, "", code)

    # -- display -----------------------------------------------------------------------------

    def propose(self, action: Action, code: str) -> None:
        """Show a cell that waits, and how to decide on it."""
        fenced = f" {FENCED}" if action.event_id in self.turn.fenced else ""
        self._propose("cell", action.event_id, code, f"The model wants to run this cell.{fenced}", self._warning)

    def _propose(self, kind: str, name: str, code: str, text: str, reason: str = "") -> None:
        more = max(0, len(self.turn.waiting) - 1)
        self.proposal = {**self._card(name, kind, code, text, "waits", more), "reason": reason}
        self._displays[name] = self.screen.show(proposal_bundle(self.proposal))

    def _card(self, name: str, kind: str, code: str, text: str, state: str, more: int = 0) -> messages.Proposal:
        return {
            "id": name,
            "kind": kind,
            "ask": self.turn.ask.execution_id,
            "code": code,
            "told": text,
            "more": more,
            "state": state,
            "reason": "",
        }

    def _show_cell(self, action: Action, code: str, state: str) -> None:
        """Show a cell of the model, unless it is shown already because it waited."""
        display = self._displays.get(action.event_id)
        if display is not None and state != "held":
            return
        told = FENCED if action.event_id in self.turn.fenced else ""
        bundle = proposal_bundle(self._card(action.event_id, "cell", code, told, state))
        if display is None:
            self.screen.show(bundle)
        else:
            self.screen.change(display, bundle)

    def show_decision(self, state: str, reason: str = "", code: str | None = None) -> None:
        """Show the decision in the display of the proposal."""
        card = self.proposal
        display = self._displays.get(card["id"]) if card is not None else None
        if card is not None and display is not None:
            code = card["code"] if code is None else code
            told = card["told"] if card["kind"] == "send" else FENCED if FENCED in card["told"] else ""
            decided = self._card(card["id"], card["kind"], code, told, state)
            self.screen.change(display, proposal_bundle({**decided, "reason": reason}))

    def clock(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()
