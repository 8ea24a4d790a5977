"""Asks in the kernel: the model's turn on the user's bench.

    %%ask → a statement that asks → (the cell is over) → request, response, its cells, … → answered, or parked

Rule 1: no nested statements: the ask has ended before its first request is sent; each response is a statement of the
        model, each of its cells another. All of them show where the ask is shown.
Rule 2: a proposal parks: the ask ends, the kernel is free, and `%ctx approve`, `edit` or `reject` goes on from there.
Rule 3: what is sent is the projection after the newest statement, byte for byte, written down before it is sent.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from ctxkernel.agent.asks import Ask, Bounds, Ending, Spent
from ctxkernel.agent.client import ModelClient
from ctxkernel.agent.failures import ModelFailure
from ctxkernel.agent.recorded import Recorded, RecordedAsk, ask_key, find, position_of
from ctxkernel.agent.streaming import Response, StreamEvent
from ctxkernel.agent.turn import Model, Observe, Said, Stopped, Turn
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.timeline import Cost, Execution
from ctxkernel.history.events import Action, HistoryEvent, UserQuestion, Verdict
from ctxkernel.kernel import messages
from ctxkernel.kernel.asking.answer_display import Answers, shown
from ctxkernel.kernel.asking.connections import ModelConnections
from ctxkernel.kernel.asking.model_tools import Tools, answer
from ctxkernel.kernel.asking.stale_views import Seen
from ctxkernel.projection.displayed_tokens import anchored, estimate_tokens
from ctxkernel.projection.value import Projection

if TYPE_CHECKING:
    from ctxkernel.kernel.execution.cell import CellRequest
    from ctxkernel.kernel.runtime import Runtime

T = TypeVar("T")
Execute = Callable[["CellRequest"], Awaitable[dict[str, Any]]]


def _first_traceback(shell: Any) -> None:
    # Nobody sees it: the first of a kernel takes 0.1 to 0.3 s, which the stop button would have to wait for.
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with suppress(Exception):
            type(shell.InteractiveTB)(mode="Context").structured_traceback(*sys.exc_info())


class Live:
    """The model itself."""

    live = True

    def __init__(self, client: ModelClient) -> None:
        self._client = client

    async def send(self, request: Projection, on_event: Callable[[StreamEvent], None]) -> Response:
        """Send the projection's bytes. Raises ModelFailure."""
        return await self._client.send(
            request.request_bytes, model=request.model, betas=request.betas, on_event=on_event
        )

    def verdict(self, action: Action, place: int) -> Verdict | None:
        """Nothing was decided before."""
        return None


class Asking:
    """The asks of one kernel, and the bench of the turn under way."""

    def __init__(self, ctx: Runtime) -> None:
        self._ctx = ctx
        self.turns = ModelConnections(ctx.loop, ctx.store)
        self.seen = Seen(ctx.loop, ctx.shell)
        self.turn: Turn | None = None
        """The newest turn; it waits for the user where it is parked."""
        self.parked = False
        self.proposal: messages.Proposal | None = None
        """What waits for the user, as a panel is told it."""
        self.spent: dict[str, Spent] = {}
        """What this kernel's asks have cost, by model."""
        self.sent = False
        """Whether this kernel has sent anything to a model."""
        self.under_way: messages.Asking | None = None
        """The ask that a model works on now, as a panel is told it."""
        self.ran: list[Execution] = []
        """Cells of the newest turn whose copies in the notebook, which `insert_cells` makes, were not reached yet."""
        self._displays: dict[str, str] = {}
        """Where proposals of the newest turn are shown, by id."""
        self._consent = False
        self._client: ModelClient | None = None
        self._settings: tuple[Any, ...] = ()
        self._screen: Answers | None = None
        self._execute: Execute | None = None
        self._outer: CellRequest | None = None
        self._parent: Any = None
        """The request of the ask: what it leads to is shown there."""
        self._pages: frozenset[str] = frozenset()
        """The front ends that were open then."""
        self._request: int | None = None
        self._sent: Projection | None = None
        self._request_id = ""
        self._asks: list[RecordedAsk] | None = None

    # -- beginning ---------------------------------------------------------------------------

    def ask(self, question: str, *, bounds: Bounds, mode: str, again: bool) -> None:
        """Begin an ask: the open statement asks. Raises BadCommand."""
        ctx, running = self._ctx, self._ctx.turns.running
        if running is None:
            raise BadCommand("%%ask asks from a cell that is recorded; run it as a cell of the notebook")
        if running.statement.author == "model":
            raise BadCommand("%%ask is the person's to say, not a model's")
        if not running.statement.source.lstrip().startswith(("%%ask", "%ask")):
            raise BadCommand("%%ask fills a cell of its own: nothing may stand before it")
        settings = ctx.settings
        if settings.mode == "off":
            raise BadCommand("the model is off (%ctx mode off); %ctx mode ask lets it propose cells, auto runs them")
        mode = mode or settings.mode
        place = position_of(running.statement, ctx.loop.history, ctx.loop.log.records)
        key = ask_key(place, question)
        execution_id = running.execution.execution_id
        found = None if again and settings.answers != "recorded" else self._recorded(key, question, running)
        model: Model = Recorded(found) if found is not None else self._live()
        if self.turn is not None and self.turn.waiting and self._is_here(self.turn):
            self.decided("stopped", "you asked something else")
            self.refuse(self.turn, "the person asked something else", rest=True)
        self.unpark()
        ctx.loop.record(UserQuestion(ctx.loop.next_event_id, question))
        ask = Ask(execution_id, question, key, settings.model, mode, bounds)  # type: ignore[arg-type]
        self._screen = Answers(ctx.notices, scripts=ctx.engine.dialect == "script")
        self.turn = Turn(ask, self, model, self._screen)
        self._parent = ctx.kernel.get_parent("shell")
        self._pages = ctx.panel.pages
        self._displays.clear()
        self.ran.clear()
        ctx.turns.then = self

    def _is_here(self, turn: Turn) -> bool:
        """Whether the newest response of a turn, or its question, is on the way to HEAD."""
        place = turn.execution_id or turn.ask.execution_id
        return any(execution.execution_id == place for _, execution in self._ctx.loop.history)

    @property
    def pending(self) -> tuple[str, ...]:
        """The calls of the newest turn that wait here, or run: their results are still to come."""
        turn = self.turn
        if turn is None or not turn.waiting or not self._is_here(turn):
            return ()
        return tuple(one.tool_call_id for one in turn.waiting)

    def _recorded(self, key: str, question: str, running: Any) -> RecordedAsk | None:
        """Return the recorded turn that answers this ask. Raises BadCommand where one must be there and is not."""
        cell_id = running.statement.cell_id
        found = find(self._session_asks(), key, question, cell_id)
        settings = self._ctx.settings
        if found is None and (settings.answers == "recorded" or not self.reachable):
            found = find(self.turns.asks(), key, question)
        if found is None and settings.answers == "recorded":
            position = int(key.partition(":")[0]) + 1
            raise BadCommand(
                f"no recorded turn answers ask {position} ({question.strip()[:60]!r}), and `answers` is recorded; "
                "%ctx config answers auto asks the model"
            )
        return found

    def _session_asks(self) -> list[RecordedAsk]:
        ctx = self._ctx
        if self._asks is None:
            self._asks = ctx.guard("recorded turns", self.turns.of_session, [])
        return self._asks

    @property
    def reachable(self) -> bool:
        """Whether there is a key, or a server that needs none."""
        return self.turns.key() is not None or self.turns.base_url() is not None

    def _live(self) -> Live:
        ctx = self._ctx
        if not self.reachable:
            raise BadCommand(
                "no model can be asked: set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a server of your own that "
                "speaks the Messages API, and restart the kernel (or set it with %env)"
            )
        given = self.turns.base_url(), ctx.settings.stall_seconds
        if self._client is None:
            Thread(target=_first_traceback, args=(ctx.shell,), daemon=True).start()
        if self._client is None or given != self._settings:
            self._client = ModelClient(model_key=self.turns.key, base_url=given[0], timeout=given[1])
            self._settings = given
        return Live(self._client)

    # -- going on ----------------------------------------------------------------------------

    async def carry_out(self, execute: Execute, outer: CellRequest, reply: dict[str, Any]) -> dict[str, Any]:
        """Go on with the turn when the cell that asked, or decided, is over. Returns that cell's reply."""
        turn = self.turn
        if turn is None or reply.get("status") != "ok":
            return reply
        self.unpark()
        with self._shown_with_ask(outer):
            self._execute, self._outer = execute, outer
            self._tell(turn)
            try:
                ending = await turn.go()
            except Exception as fault:  # ours: the cell's reply must come, and the history is whole
                self._ctx.guard.fail("asks", fault)
                ending = Ending("failed", f"the ask could not go on ({type(fault).__name__}: {fault})")
            finally:
                self._execute = self._outer = None
            return self._ended(turn, ending, reply)

    def _ended(self, turn: Turn, ending: Ending, reply: dict[str, Any]) -> dict[str, Any]:
        ctx, screen = self._ctx, self._screen
        assert screen is not None
        self._asks = None
        self._tell(None)
        if ending.kind == "parked":
            screen.close()
            self.parked = True
            ctx.guard("panel", ctx.panel.proposal, None)
            told = "the ask waits for you: %ctx approve, %ctx edit or %ctx reject REASON"
            if self._ctx.attended:
                return {**reply, "status": "error", "ename": "Waiting", "evalue": told, "traceback": [told]}
            # Shown too: papermill looks for an error among the outputs.
            more = "Where nobody can, as in a run without a front end: ask with --mode auto, set CTXKERNEL_MODE=auto"
            return ctx.notices.refuse(f"{told}. {more}, or give recorded turns (%ctx record)", "Waiting")
        screen.show({"text/plain": self._told(turn, ending)})
        if ending.kind in ("failed", "stopped"):
            name = "KeyboardInterrupt" if ending.kind == "stopped" else "ModelFailure"
            if ending.kind == "failed":
                return ctx.notices.refuse(ending.told, name)
            return {**reply, "status": "error", "ename": name, "evalue": ending.told, "traceback": [ending.told]}
        return reply

    def _told(self, turn: Turn, ending: Ending) -> str:
        parts = [ending.told] if ending.told and ending.kind != "failed" else []
        if turn.live:
            parts.append(f"{self._sent.model if self._sent else turn.ask.model}: {turn.spent.told()}")
        else:
            drift = turn.drift
            told = "replayed from a recorded turn: nothing was sent, and it cost nothing"
            if drift:
                some = ", ".join(map(str, drift))
                told += f". The state differs from that of then (drift) in request {some}"
            parts.append(f"{told}. %%ask --again asks the model")
        return "\n".join(parts)

    def _tell(self, turn: Turn | None) -> None:
        """Tell the panel which ask is under way."""
        live = turn is not None and turn.live
        now: messages.Asking | None = None
        if turn is not None and live:
            now = {"ask": turn.ask.execution_id, "model": turn.ask.model, "since": time.time()}
        if now is not None or self.under_way is not None:
            self.under_way = now
            self._ctx.guard("panel", self._ctx.panel.asking, None)

    def decided(self, state: str, reason: str = "", code: str | None = None) -> None:
        """Show where the proposal is shown what has become of it."""
        told, screen = self.proposal, self._screen
        where = self._displays.get(told["id"]) if told is not None else None
        if told is None or screen is None or where is None:
            return
        code = told["code"] if code is None else code
        screen.change(where, shown({**told, "state": state, "reason": reason, "code": code, "more": 0}))

    def unpark(self) -> None:
        """Nothing waits any more."""
        if self.parked or self.proposal is not None:
            self.parked, self.proposal = False, None
            self._ctx.guard("panel", self._ctx.panel.proposal, None)

    @property
    def waiting(self) -> Turn | None:
        """The turn that waits for the user; None where the newest one was replayed. Raises BadCommand where none does.

        So a notebook that holds what was decided runs again from its start.
        """
        turn = self.turn
        if turn is not None and not turn.live and not self.parked:
            return None
        if turn is None or not self.parked:
            raise BadCommand("nothing waits for you: %%ask asks the model, and in mode ask its cells wait here")
        if not self._is_here(turn):
            raise BadCommand("what waited is on another branch of the timeline; %ctx goto returns there, or ask again")
        return turn

    def refuse(self, turn: Turn, reason: str, *, rest: bool = False) -> None:
        """Record that the cell that waits may not run, or with `rest` none of those that wait."""
        loop = self._ctx.loop
        for event in turn.reject(reason, loop.next_event_id, rest=rest):
            loop.record(event)

    def go_on(self) -> None:
        """Go on with the turn when the running cell is over."""
        self._ctx.turns.then = self

    @contextmanager
    def _shown_with_ask(self, outer: CellRequest) -> Iterator[None]:
        """Show what comes where the ask is shown: a click has no cell of its own, and its page has the ask's."""
        ctx, own = self._ctx, self._ctx.kernel.get_parent("shell")
        if outer.author != "panel" or not self._parent or not self._pages & ctx.panel.pages:
            yield
            return
        mine = outer.msg_id
        ctx.kernel.set_parent([], self._parent, channel="shell")
        outer.msg_id = (self._parent.get("header") or {}).get("msg_id", mine)
        try:
            yield
        finally:
            outer.msg_id = mine
            ctx.kernel.set_parent([], own, channel="shell")

    # -- the bench ---------------------------------------------------------------------------

    @property
    def request(self) -> Projection | None:
        """What would be sent now."""
        return self._ctx.loop.projection

    def consented(self, ask: Ask, request: Projection) -> bool:
        """Say before the session's first request what it costs; in mode `ask` it waits for a yes."""
        if self._consent:
            return True
        count = sum(estimate_tokens(text, request.model) for text in request.sent)
        most = f"{request.max_tokens:,} tokens of answer at most"
        told = (
            f"The first request of this session: ~{count:,} tokens to {request.model}, {request.cost.told()} and "
            f"{most}, for each of up to {ask.bounds.rounds or 'any number of'} requests. The panel and %ctx projection "
            "show every byte; %ctx cost adds up."
        )
        assert self._screen is not None
        if ask.mode == "auto":
            self._consent = True
            self._screen.show({"text/plain": told})
            return True
        self._propose("send", f"{ask.execution_id}:send", "", told)
        return False

    @property
    def off(self) -> bool:
        """Whether no model may be asked now."""
        return self._ctx.settings.mode == "off"

    @property
    def stopped(self) -> bool:
        """Whether the stop button was pressed while the newest cell ran, whatever the cell made of that."""
        return self._ctx.interrupts.seen

    def consent(self) -> None:
        """The user has said yes to requests of this session."""
        self._consent = True

    def sending(self, ask: Ask, request: Projection, number: int) -> None:
        """Write the request down, and note when it was."""
        ctx, now = self._ctx, time.time()
        self._sent = request
        ctx.guard("stale views", self.seen.look, None)
        if self._turn_is_live:
            self.sent = True
            ctx.loop.requested_at = now
            receipt = request.receipt, request.model
            self._request = ctx.guard(
                "session store", lambda: ctx.store.request(ask.execution_id, ask.key, number, *receipt, now), None
            )

    @property
    def _turn_is_live(self) -> bool:
        return self.turn is not None and self.turn.live

    def received(self, response: Response | None, failure: ModelFailure | None, spent: Spent) -> None:
        """Write down what came back, and what it says of our estimates."""
        ctx, request = self._ctx, self._sent
        self._request_id = (response.request_id or "") if response is not None else ""
        if response is not None:
            ctx.loop.answered()
        if not self._turn_is_live or request is None:
            return
        model = request.model
        self.spent[model] = self.spent.get(model, Spent()) + spent
        status, stop, usage, body, request_id = "stopped", None, {}, {}, ""
        if response is not None:
            status, stop, usage, request_id = "ok", response.stop_reason, response.usage, response.request_id
            body = {"id": response.llm_response_id, "model": response.model, "blocks": list(response.blocks)}
            counted = sum(estimate_tokens(text, model) for text in request.sent)
            ctx.anchor = anchored(counted, usage) or ctx.anchor
        elif failure is not None:
            status, request_id = failure.kind, failure.request_id or ""
        kept, self._request = self._request, None
        told = ctx.guard(
            "session store",
            lambda: ctx.store.response(
                kept,
                status,
                time.time(),
                stop_reason=stop,
                request_id=request_id or "",
                usage=dict(usage),
                usd=spent.usd,
                body=body,
            ),
            None,
        )
        if told:
            ctx.notices.tell(f"ctxkernel: {told}")

    def record(self, said: Said) -> str:
        """Record a response as a statement of the model."""
        cost = Cost(said.seconds * 1000, said.spent.tokens or None, said.spent.usd if said.spent.tokens else None)
        reply: dict[str, Any] = {"status": "ok"}
        if said.failure is not None:
            kind, told = said.failure
            reply = {"status": "error", "ename": kind, "evalue": told, "traceback": []}
        elif said.stopped:
            reply = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
        return self._statement(
            said.source, dict(said.tags or {}), said.events, lambda execution: (), reply, cost, stopped=said.stopped
        )

    def hold(self, action: Action, code: str, observe: Observe) -> None:
        """Record a cell that is not run."""
        tags = {**self._tags(action), "held": True}
        reply = {"status": "aborted", "ename": "NotRun", "evalue": "held: not run", "traceback": []}
        execution_id = self._statement(code, tags, lambda name, number: (), observe, reply, None)
        last = self._ctx.loop.log.records.get(execution_id, ())
        told = next((getattr(one, "content", "") for one in last), "")
        if told:
            self._show_cell(action, code, "held")
            assert self._screen is not None
            self._screen.show({"text/plain": told})

    def _statement(
        self,
        source: str,
        tags: dict[str, Any],
        events: Callable[[str, int], Any],
        observe: Observe,
        reply: dict[str, Any],
        cost: Cost | None,
        *,
        stopped: bool = False,
    ) -> str:
        """Record a statement of the model that runs nothing; returns its execution's id. Raises CtxError."""
        from ctxkernel.kernel.execution.cell import CellRequest

        ctx, outer = self._ctx, self._outer
        assert outer is not None
        cell = CellRequest(source, outer.msg_id, recorded=True, kind="meta", author="model", tags=tags, observe=observe)
        cell.cost = cost
        ctx.turns.open(cell)
        running = ctx.turns.running
        if running is None:
            raise CtxError("the timeline is off, so nothing of a model can be recorded; %ctx status says why")
        name = running.execution.execution_id
        for event in events(name, 1):
            ctx.loop.record(event)
        ctx.turns.shut(reply, stopped)
        return name

    def _tags(self, action: Action) -> dict[str, Any]:
        assert self.turn is not None
        sent = self._sent
        return {
            "ask": self.turn.ask.execution_id,
            "response": self.turn.execution_id,
            "call": action.tool_call_id,
            "model": sent.model if sent is not None else self.turn.ask.model,
            "receipt": sent.receipt if sent is not None else "",
            "request_id": self._request_id,
        }

    def answer(self, action: Action, shown: Sequence[HistoryEvent], number: int) -> Sequence[HistoryEvent]:
        """Carry out a call that runs no cell."""
        ctx = self._ctx
        tools = Tools(ctx.loop, ctx.engine.past, ctx.shell.user_ns, ctx.settings.statement_tokens)
        return answer(tools, action, shown, number)

    async def run(self, action: Action, code: str, observe: Observe) -> Execution:
        """Run a cell of the model; its outputs come live."""
        from ctxkernel.kernel.execution.cell import CellRequest

        ctx, outer, execute = self._ctx, self._outer, self._execute
        assert outer is not None
        assert execute is not None
        self._show_cell(action, code, "approved")
        cell = CellRequest(
            code,
            outer.msg_id,
            outer.silent,
            recorded=True,
            author="model",
            tags=self._tags(action),
            observe=observe,
            rerun=outer.rerun,
            keeps_number=True,
        )
        before = ctx.turns.last
        # `exit()` would end the person's kernel; in a cell of the model it is an error.
        ctx.shell.ask_exit = _stay
        ctx.interrupts.watch(on=True)
        try:
            await execute(cell)
        finally:
            ctx.interrupts.watch(on=False)
            del ctx.shell.ask_exit
        ctx.guard("stale views", self.seen.ran, None)
        if ctx.turns.last is None or ctx.turns.last is before:
            raise CtxError("the timeline is off, so the model's cell could not be recorded; %ctx status says why")
        self.ran.append(ctx.turns.last.execution)
        return ctx.turns.last.execution

    def copied(self, code: str) -> Execution | None:
        """Return the execution of which a cell of the notebook is the copy, once for each."""
        log = self._ctx.loop.log
        found = next((one for one in self.ran if log.statement(one.statement_id).source == code), None)
        if found is not None:
            self.ran.remove(found)
        return found

    def changed(self, code: str) -> str:
        """Return what has changed of what `code` uses since the model last looked."""
        return self._ctx.guard("stale views", self.seen.changed, "", code)

    def propose(self, action: Action, code: str) -> None:
        """Show a cell that waits, with what can be done about it."""
        self._propose("cell", action.event_id, code, "The model wants to run this cell.")

    def _propose(self, kind: str, name: str, code: str, told: str) -> None:
        assert self.turn is not None
        assert self._screen is not None
        self.proposal = self._card(name, kind, code, told, "waits", max(0, len(self.turn.waiting) - 1))
        self._displays[name] = self._screen.show(shown(self.proposal))

    def _card(self, name: str, kind: str, code: str, told: str, state: str, more: int = 0) -> messages.Proposal:
        assert self.turn is not None
        ask = self.turn.ask.execution_id
        return {
            "id": name,
            "kind": kind,
            "ask": ask,
            "code": code,
            "told": told,
            "more": more,
            "state": state,
            "reason": "",
        }

    def _show_cell(self, action: Action, code: str, state: str) -> None:
        """Show a cell of the model; one that waited is shown already."""
        assert self._screen is not None
        if action.event_id in self._displays and state != "held":
            return
        card = shown(self._card(action.event_id, "cell", code, "", state))
        if action.event_id in self._displays:
            self._screen.change(self._displays[action.event_id], card)
        else:
            self._screen.show(card)

    async def interruptible(self, work: Awaitable[T]) -> T:
        """Await a response; the stop button ends it."""
        interrupts, loop = self._ctx.interrupts, asyncio.get_running_loop()
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
            raise Stopped from None
        finally:
            interrupts.on_note = None

    def clock(self) -> float:
        """Seconds."""
        return time.monotonic()


def _stay() -> None:
    raise BadCommand("a cell of the model cannot end the kernel; it is the person's")
