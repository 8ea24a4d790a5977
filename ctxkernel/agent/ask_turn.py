"""The turn of seed 002 §7.1: request → response → its cells, repeated until the model answers or a bound is reached.

    go                send the projection → record the response → run its cells in order → send again
    approve, reject   a person decided on a cell that waits; `go` continues from there

Rule 1: a response is recorded before any of its calls is carried out, and each call gets a result, however it ends.
        So the history never lacks a part of a pair, and after a crash a repair knows which results are missing.
Rule 2: the cells of one response run in order; a cell that fails does not stop the others.
Rule 3: nothing here imports the kernel; the turn acts on it through the protocol `Bench`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ctxkernel.agent.asks import NOTHING, Ask, AskEnding, Bounds, Spent, reached_bound
from ctxkernel.agent.failures import AT_WORK, ModelFailure
from ctxkernel.agent.fenced_cells import FencedCells
from ctxkernel.agent.meter import Meter
from ctxkernel.agent.reply import ModelReply, read_reply, reply_events
from ctxkernel.agent.rerun import STATUS
from ctxkernel.agent.streaming import Response, StreamEvent, TextDelta, UsageReport
from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.timeline import Execution
from ctxkernel.history.events import (
    Action,
    AgentError,
    AssistantMessage,
    HistoryEvent,
    Observation,
    OutputStatus,
    Unbinding,
    UserRejection,
    Verdict,
    nth,
)
from ctxkernel.projection.dialect import RUN_CELL
from ctxkernel.projection.layout import result_text
from ctxkernel.projection.value import Projection

T = TypeVar("T")
Observe = Callable[[Execution], Iterable[HistoryEvent]]


class AskStopped(Exception):
    """The user interrupted an await."""


class _BoundReached(Exception):
    """A response that still arrives reached a bound of its ask."""


class Model(Protocol):
    """Answers requests: the model itself, or its recorded answers."""

    live: bool
    """Whether a request costs anything."""
    trusted: bool
    """Whether its cells may run without a decision in mode `auto`, and its other calls are carried out."""

    async def send(self, request: Projection, on_event: Callable[[StreamEvent | UsageReport], None]) -> Response:
        """Return the response to a projection. Raises ModelFailure."""
        ...

    def verdict(self, action: Action, place: int) -> Verdict | None:
        """Return the recorded verdict on the call at `place` of the newest response; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ResponseRecord:
    """A response, as the kernel records it in a statement of its own."""

    source: str
    events: Callable[[str, int], Iterable[HistoryEvent]]
    """(execution's id, number of its first event) → the events to record."""
    seconds: float = 0.0
    spent: Spent = NOTHING
    tags: Mapping[str, Any] | None = None
    failure: tuple[str, str] | None = None
    """Kind and message of a failure."""
    stopped: bool = False


class Bench(Protocol):
    """The kernel, as far as a turn needs it."""

    @property
    def request(self) -> Projection | None:
        """The projection that would be sent now."""

    @property
    def off(self) -> bool:
        """Return whether no model may be asked now."""
        ...

    @property
    def stopped(self) -> bool:
        """Return whether the user pressed stop while the newest cell ran, even if the cell caught the interrupt."""
        ...

    def sending(self, ask: Ask, request: Projection, number: int) -> None:
        """Note that the `number`th request of an ask is about to be sent."""

    def metered(self, spent: Spent, *, final: bool) -> None:
        """Book the cost until now of the newest request; `final` is true for the counts of its whole response."""

    def received(self, response: Response | None, failure: ModelFailure | None, spent: Spent) -> None:
        """Note the outcome of the newest request; neither response nor failure if it was stopped."""

    def record(self, response: ResponseRecord) -> str:
        """Record a response in a statement of the model. Return the id of its execution."""
        ...

    def mask(self, text: str) -> str:
        """Return a text without secrets."""
        ...

    def answer(self, action: Action, shown: Sequence[HistoryEvent], number: int) -> Sequence[HistoryEvent]:
        """Carry out a call that runs no cell. Return its events, the result last."""
        ...

    async def run(self, action: Action, code: str, observe: Observe) -> Execution:
        """Run a cell of the model as a statement."""
        ...

    def sources(self) -> Iterable[str]:
        """Return the sources of all cells on the path to HEAD, questions included."""
        ...

    def changed(self, code: str) -> str:
        """Return a text about objects used by `code` that changed since the last request; empty if none did."""
        ...

    def hold(self, action: Action, code: str, observe: Observe) -> None:
        """Record a cell in a statement without running it."""

    def propose(self, action: Action, code: str) -> None:
        """Ask the user whether a cell may run."""

    def consented(self, ask: Ask, request: Projection) -> bool:
        """Report the cost of a kernel's first request. Return whether it may be sent without a decision."""
        ...

    async def interruptible(self, work: Awaitable[T]) -> T:
        """Await `work`; the stop button ends it. Raises Stopped."""
        ...

    def clock(self) -> float:
        """Return seconds from an arbitrary start."""
        ...


class Screen(Protocol):
    """Displays a turn to the user."""

    def begin(self) -> None:
        """Note that a request is sent."""

    def event(self, event: StreamEvent) -> None:
        """Take an event of the response."""

    def end(self, note: str = "", text: str | None = None) -> None:
        """End the response; `note` is a remark on it, and `text` replaces its text if cells were read from that."""


_TRUNCATED = {
    "max_tokens": "the answer was cut at max_tokens; %ctx config max_tokens N gives more",
    "model_context_window_exceeded": "the context of the model is full; %ctx condense, or a smaller projection_tokens",
    "refusal": "the model declined to answer; change the question, or %ctx goto an earlier statement",
}
"""Stop reason of an incomplete response → the text for the person."""
_NO_BOUNDS = Bounds()
_UNBOUND = "the server refused thinking of earlier answers: it is left out from now on, and the question is sent again"
_GAP = "\n\n"
"""Between the texts of a response before and after a call."""
_REFUSED = "not run: the answer ended as a refusal"
_NOT_TRUSTED = "not carried out: this recorded answer is not trusted by the person"


class AskTurn:
    """An ask in progress. It ends, or parks while a cell waits for the user, and continues from there."""

    def __init__(self, ask: Ask, bench: Bench, model: Model, screen: Screen) -> None:
        self.ask = ask
        self.spent = Spent()
        self.waiting: list[Action] = []
        """Cells of the newest response that were neither run nor refused, in order."""
        self.execution_id = ""
        """Execution of the newest response."""
        self._bench, self._model, self._screen = bench, model, screen
        self._allowed: dict[str, str] = {}
        """Call that the user allowed → the code to run."""
        self._edited: set[str] = set()
        self.fenced: set[str] = set()
        """Cells that were read from fenced blocks, by event."""
        self._fences = FencedCells(bench.sources)
        self._unbound = False
        """Whether the last request was refused for thinking of earlier responses."""
        self._batch = 0
        """Number of cells in the newest response."""
        self._seconds = 0.0
        self._began: float | None = None
        """The time of the last call of `go`; None while the ask waits."""

    @property
    def live(self) -> bool:
        """Return whether the model itself is asked."""
        return self._model.live

    @property
    def trusted(self) -> bool:
        """Return whether its cells may run without a decision in mode `auto`."""
        return self._model.trusted

    @property
    def drift(self) -> list[int]:
        """The requests of a recorded turn that differ from the recorded ones."""
        return getattr(self._model, "drift", [])

    @property
    def seconds(self) -> float:
        """The time of the model and of its cells until now, without the time that the ask waited."""
        return self._seconds + (0.0 if self._began is None else self._bench.clock() - self._began)

    async def go(self) -> AskEnding:
        """Continue until the model has answered, a cell waits, a bound is reached, or a failure occurs."""
        self._began = self._bench.clock()
        try:
            while True:
                ending = await self._next_cell() if self.waiting else await self._round()
                if ending is not None:
                    return ending
        finally:
            self._seconds, self._began = self.seconds, None

    # -- decisions ---------------------------------------------------------------------------

    def approve(self, *, code: str | None = None, rest: bool = False) -> None:
        """Allow the cell that waits, as it is or as `code`; with `rest` all later cells of the ask too."""
        if rest:
            self.ask = dataclasses.replace(self.ask, mode="auto")
        if self.waiting:
            action = self.waiting[0]
            if code is not None:
                self._edited.add(action.event_id)
            self._allowed[action.event_id] = source(action) if code is None else code

    def reject(self, reason: str, event_id: str, *, rest: bool = False) -> list[HistoryEvent]:
        """Refuse the cell that waits, or all. Return the events to record; the first has the id `event_id`."""
        refused = self.waiting if rest else self.waiting[:1]
        execution_id, _, number = event_id.rpartition(":")
        made: list[HistoryEvent] = []
        for first, action in enumerate(refused):
            at = int(number) + 2 * first
            made.append(Verdict(nth(execution_id, at), action.tool_call_id, "rejected", reason))
            made.append(UserRejection(nth(execution_id, at + 1), action.tool_call_id, reason))
        self.waiting = self.waiting[len(refused) :]
        return made

    # -- a cell ------------------------------------------------------------------------------

    async def _next_cell(self) -> AskEnding | None:
        bench, action = self._bench, self.waiting[0]
        code = self._allowed.pop(action.event_id, None)
        edited = action.event_id in self._edited
        if code is None:
            verdict = self._model.verdict(action, self._batch - len(self.waiting))
            if verdict is not None and verdict.ruling == "rejected":
                self._refuse_again(action, verdict)
                return None
            edited = verdict is not None and verdict.ruling == "edited"
            code = verdict.text if verdict is not None and edited else source(action)
            if verdict is None and (self.ask.mode == "ask" or not self.trusted):
                bench.propose(action, code)
                return AskEnding("parked")
        if not edited and (changes := bench.changed(code)):
            bench.hold(action, code, lambda execution: [_result(execution, action, changes, "failed")])
            del self.waiting[0]
            return None
        self._fences.note(code, source(action))
        execution = await bench.run(action, code, lambda execution: self._observed(execution, action, code, edited))
        del self.waiting[0]
        if execution.status != "cancelled" and not bench.stopped:
            return None
        if self.waiting:  # the cell caught the interrupt, so its own result did not cancel the others
            left = list(self.waiting)
            bench.record(
                ResponseRecord("# stopped by the person", lambda name, n: _not_run(name, n, left), stopped=True)
            )
        self.waiting.clear()
        return AskEnding("stopped", "stopped: the cell was interrupted, and what was still to come is not run")

    def _refuse_again(self, action: Action, verdict: Verdict) -> None:
        def refused(execution: Execution) -> Iterable[HistoryEvent]:
            yield UserRejection(nth(execution.execution_id, 1), action.tool_call_id, verdict.text)

        self._bench.hold(action, source(action), refused)
        del self.waiting[0]

    def _observed(self, execution: Execution, action: Action, code: str, edited: bool) -> Iterable[HistoryEvent]:
        status = STATUS.get(execution.status, "canceled")
        text = result_text(execution, code)
        if edited:
            text = f"The person edited the cell before it ran. What ran:\n{code}\n---\n{text}"
        if status == "canceled":
            text = f"stopped by the person while it ran\n{text}"
        yield _result(execution, action, text, status)
        if status == "canceled":
            yield from _not_run(execution.execution_id, 2, self.waiting[1:])
            del self.waiting[1:]

    # -- a round -----------------------------------------------------------------------------

    async def _round(self) -> AskEnding | None:
        bench, screen, request = self._bench, self._screen, self._bench.request
        if text := reached_bound(self.ask.bounds, self.spent, self.seconds):
            return AskEnding("bound", text)
        if request is None:
            return AskEnding("failed", "there is no projection to send; %ctx status says what is off")
        if not request.report.ok:
            found = "; ".join(one.told() for one in request.violations[:3])
            return AskEnding("failed", f"nothing was sent, since the model's API would refuse it: {found}")
        if self._model.live and bench.off:
            return AskEnding("bound", "nothing more was asked: the model is off (%ctx mode off)")
        if self._model.live and not bench.consented(self.ask, request):
            return AskEnding("parked")
        bench.sending(self.ask, request, self.spent.requests + 1)
        screen.begin()
        partial_text: list[str] = []
        began, meter = bench.clock(), Meter(request.model, request)

        def on_event(event: StreamEvent | UsageReport) -> None:
            self._meter(meter, event)
            if isinstance(event, UsageReport):
                return
            if isinstance(event, TextDelta):
                partial_text.append(event.text)
            elif partial_text and partial_text[-1] != _GAP:
                partial_text.append(_GAP)
            screen.event(event)

        try:
            response = await self._send(request, on_event)
        except (AskStopped, ModelFailure, _BoundReached) as fault:
            failure = fault if isinstance(fault, ModelFailure) else None
            again = failure is not None and failure.kind == "thinking_refused" and not self._unbound
            screen.end("stopped" if isinstance(fault, AskStopped) else _UNBOUND if again else "")
            seconds = bench.clock() - began
            spent = meter.spent(seconds, at_work=failure is None or failure.kind in AT_WORK)
            bound = str(fault) if isinstance(fault, _BoundReached) else ""
            ending = self._broken(request, "".join(partial_text), spent, failure, bound)
            self._unbound = again
            return None if again else ending
        self._unbound = False
        if not self._model.live:
            return self._take(response, request, Spent(1))
        meter.take(UsageReport(response.usage, final=True))
        return self._take(response, request, meter.spent(response.seconds))

    async def _send(self, request: Projection, on_event: Callable[[StreamEvent | UsageReport], None]) -> Response:
        """Send a request. Raises AskStopped, ModelFailure, or _BoundReached at the bound in seconds."""
        most = self.ask.bounds.seconds
        try:
            async with asyncio.timeout(most - self.seconds if most else None):
                return await self._bench.interruptible(self._model.send(request, on_event))
        except TimeoutError:
            raise _BoundReached(reached_bound(Bounds(seconds=most), NOTHING, max(most, self.seconds))) from None

    def _meter(self, meter: Meter, event: StreamEvent | UsageReport) -> None:
        """Book an event of a response that arrives. Raises _BoundReached."""
        meter.take(event)
        if not meter.usage:
            return
        if isinstance(event, UsageReport):
            self._bench.metered(meter.spent(), final=meter.final)
        bounds = dataclasses.replace(self.ask.bounds, rounds=0)
        if bounds == _NO_BOUNDS or meter.final:  # a whole response is kept
            return
        if text := reached_bound(bounds, self.spent + meter.spent(), self.seconds):
            raise _BoundReached(text)

    def _broken(
        self, request: Projection, text: str, spent: Spent, failure: ModelFailure | None, bound: str = ""
    ) -> AskEnding:
        """Record a request that failed, was stopped or reached a bound, with the text until then, without its calls."""
        if not request.tools:
            text = read_reply([{"type": "text", "text": text}], "script", complete=False, is_text=lambda _: True).prose
        self.spent += spent
        self._bench.received(None, failure, spent)
        why = bound.partition(";")[0] or ("stopped by the person" if failure is None else f"no answer: {failure.kind}")

        def marked(execution_id: str, number: int) -> Iterable[HistoryEvent]:
            if failure is not None and failure.kind == "thinking_refused":
                yield Unbinding(nth(execution_id, number), "the server refused it")
            elif text.strip() or failure is None:
                mark = f"{text.rstrip()}\n[{why}]" if text.strip() else f"[{why}]"
                yield AssistantMessage(nth(execution_id, number), mark)

        told = (failure.kind, str(failure)) if failure is not None else ("BoundReached", bound) if bound else None
        tags = {"ask": self.ask.execution_id, "model": request.model, "receipt": request.receipt}
        self._bench.record(ResponseRecord(f"# {why}", marked, spent.seconds, spent, tags, told, stopped=told is None))
        if bound:
            return AskEnding("bound", bound)
        if failure is None:
            return AskEnding("stopped", "stopped: nothing more was asked of the model")
        return AskEnding("failed", str(failure))

    def _take(self, response: Response, request: Projection, spent: Spent) -> AskEnding | None:
        bench, reason = self._bench, response.stop_reason
        dialect = "tools" if request.tools else "script"
        note, refused = _TRUNCATED.get(reason or "", ""), reason == "refusal"
        is_text = partial(self._fences.is_text, request)
        how: dict[str, Any] = {"unreadable": response.unreadable, "mask": bench.mask, "is_text": is_text}
        reply = read_reply(response.blocks, dialect, complete=not note, **how)
        fenced = any(call.fenced for call in reply.calls)
        if refused and reply.calls:
            note += "; what it called until then was not run"
        self.spent += spent
        bench.received(response, None, spent)
        goes_on = (bool(reply.calls) and not refused) or reason == "pause_turn"
        self._screen.end(note if goes_on else "", reply.prose if fenced else None)
        cells: list[Action] = []
        text = reply.prose or ", ".join(call.tool for call in reply.calls) or "# (empty answer)"
        tags = {
            "ask": self.ask.execution_id,
            "round": self.spent.requests,
            "model": response.model or request.model,
            "receipt": request.receipt,
            "request_id": response.request_id,
            "usage": dict(response.usage),
            "stop_reason": reason,
            "replayed": not self._model.live,
            "drift": self.spent.requests in self.drift,
        }
        if fenced:
            tags["fenced"] = True
        events = partial(self._events, reply, request, response, cells)
        self.execution_id = bench.record(ResponseRecord(text, events, response.seconds, spent, tags))
        self.waiting, self._batch = cells, len(cells)
        if goes_on:
            return None
        return AskEnding("answered", note or self._fences.remark(reply, response.blocks, tools=bool(request.tools)))

    def _events(
        self,
        reply: ModelReply,
        request: Projection,
        response: Response,
        cells: list[Action],
        execution_id: str,
        number: int,
    ) -> Iterable[HistoryEvent]:
        """Yield the events of a response, and the results of calls that run no cell; add the others to `cells`."""
        made: list[HistoryEvent] = []
        for event in reply_events(reply, request, execution_id, response.llm_response_id, number):
            made.append(event)
            yield event
        actions = [one for one in made if isinstance(one, Action)]
        number += len(made)
        for call, action in zip(reply.calls, actions, strict=True):
            name, call_id = nth(execution_id, number), action.tool_call_id
            results: Sequence[HistoryEvent]
            if call.fenced:
                self.fenced.add(action.event_id)
            if call.fault:
                results = [AgentError(name, call_id, call.fault)]
            elif response.stop_reason == "refusal":  # a call can be complete before the refusal
                results = [Observation(name, call_id, _REFUSED, "canceled")]
            elif call.tool == RUN_CELL:
                cells.append(action)
                continue
            elif not self.trusted:
                results = [Observation(name, call_id, _NOT_TRUSTED, "failed")]
            else:
                results = self._bench.answer(action, made, number)
            made += results
            number += len(results)
            yield from results


def source(action: Action) -> str:
    """Return the code of a cell that the model wrote."""
    return str(action.input.get("code", ""))


def _not_run(execution_id: str, first: int, actions: Sequence[Action]) -> Iterable[HistoryEvent]:
    for number, action in enumerate(actions, first):
        text = "not run: the person stopped the work before it"
        yield Observation(nth(execution_id, number), action.tool_call_id, text, "canceled")


def _result(execution: Execution, action: Action, text: str, status: OutputStatus) -> Observation:
    return Observation(nth(execution.execution_id, 1), action.tool_call_id, text, status)
