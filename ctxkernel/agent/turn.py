"""The turn of seed 002 §7.1: request → response → its cells, again until the model answers or a bound is reached.

    go      send the projection → record the response → run its cells, one after the other → send again
    decide  a person allowed a cell that waited, edited it, or did not allow it; `go` goes on from there

Rule 1: what a response says is recorded before anything of it is done, and each of its calls gets a result, however
        it ends: so a history has no half of a pair, and where the process dies a repair knows what is missing.
Rule 2: cells of one response run in its order; one that fails does not keep the others from running.
Rule 3: nothing here knows a kernel: what is done to one goes through the `Bench`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ctxkernel.agent import reply as replies
from ctxkernel.agent.asks import NOTHING, Ask, Ending, Spent, reached, spent_on, with_mode
from ctxkernel.agent.failures import ModelFailure
from ctxkernel.agent.rerun import STATUS
from ctxkernel.agent.streaming import Response, StreamEvent, TextDelta
from ctxkernel.core.timeline import Execution
from ctxkernel.history.events import (
    Action,
    AgentError,
    AssistantMessage,
    HistoryEvent,
    Observation,
    OutputStatus,
    UserRejection,
    Verdict,
    nth,
)
from ctxkernel.projection.dialect import RUN_CELL
from ctxkernel.projection.layout import result_text
from ctxkernel.projection.value import Projection

T = TypeVar("T")
Observe = Callable[[Execution], Iterable[HistoryEvent]]


class Stopped(Exception):
    """The user interrupted what was awaited."""


class Model(Protocol):
    """What answers requests: a model, or what it answered once."""

    live: bool
    """Whether a request costs anything."""

    async def send(self, request: Projection, on_event: Callable[[StreamEvent], None]) -> Response:
        """Return the response to a projection. Raises ModelFailure."""
        ...

    def verdict(self, action: Action, place: int) -> Verdict | None:
        """Return what was decided on the call at `place` of the newest response, where that is recorded."""
        ...


@dataclass(frozen=True, slots=True)
class Said:
    """A response, as the kernel records it in a statement of its own."""

    source: str
    events: Callable[[str, int], Iterable[HistoryEvent]]
    """(execution's id, number of its first event) → what is recorded with it."""
    seconds: float = 0.0
    spent: Spent = NOTHING
    tags: Mapping[str, Any] | None = None
    failure: tuple[str, str] | None = None
    """Kind and message of what went wrong."""
    stopped: bool = False


class Bench(Protocol):
    """What a turn needs of the kernel in which it works."""

    @property
    def request(self) -> Projection | None:
        """What would be sent now."""
        ...

    def sending(self, ask: Ask, request: Projection, number: int) -> None:
        """Note that a request is about to be sent, the `number`th of its ask."""
        ...

    def received(self, response: Response | None, failure: ModelFailure | None, spent: Spent) -> None:
        """Note what came of the newest request."""
        ...

    def record(self, said: Said) -> str:
        """Record a response in a statement of the model; returns the id of its execution."""
        ...

    def answer(self, action: Action, shown: Sequence[HistoryEvent], number: int) -> Sequence[HistoryEvent]:
        """Carry out a call that runs no cell; returns the events that it leads to, its result last."""
        ...

    async def run(self, action: Action, code: str, observe: Observe) -> Execution:
        """Run a cell of the model as a statement."""
        ...

    def changed(self, code: str) -> str:
        """Return what has changed of what `code` uses since the model last looked, as it is told; empty: nothing."""
        ...

    def hold(self, action: Action, code: str, observe: Observe) -> None:
        """Record a cell that is not run, in a statement."""
        ...

    def propose(self, action: Action, code: str) -> None:
        """Ask the user whether a cell may run."""
        ...

    @property
    def off(self) -> bool:
        """Whether no model may be asked now."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether the user pressed stop while the newest cell ran, whatever the cell made of that."""
        ...

    def consented(self, ask: Ask, request: Projection) -> bool:
        """Say before the first request of a session what it costs; whether it may be sent unasked."""
        ...

    async def interruptible(self, work: Awaitable[T]) -> T:
        """Await something that the stop button ends. Raises Stopped."""
        ...

    def clock(self) -> float:
        """Seconds, from anywhere."""
        ...


class Screen(Protocol):
    """Where the user sees a turn go on."""

    def begin(self) -> None:
        """A request is sent."""
        ...

    def event(self, event: StreamEvent) -> None:
        """Something of the response came."""
        ...

    def end(self, note: str = "") -> None:
        """The response is over; `note` says what else there is to say of it."""
        ...


_CUT = {
    "max_tokens": "the answer was cut at max_tokens; %ctx config max_tokens N gives more",
    "model_context_window_exceeded": "the context of the model is full; %ctx condense, or a smaller projection_tokens",
    "refusal": "the model declined to answer; change the question, or %ctx goto an earlier statement",
}
"""Why a response ended before its end, as the person is told."""
_GAP = "\n\n"
"""Between what a response says before and after a call."""
_REFUSED = "not run: the answer ended as a refusal"


class Turn:
    """An ask under way. It ends, parks where a cell waits for the user, and goes on from there."""

    def __init__(self, ask: Ask, bench: Bench, model: Model, screen: Screen) -> None:
        self.ask = ask
        self.spent = Spent()
        self.waiting: list[Action] = []
        """Cells of the newest response that were neither run nor refused, in order."""
        self.execution_id = ""
        """Of the newest response."""
        self._bench, self._model, self._screen = bench, model, screen
        self._allowed: dict[str, str] = {}
        """Calls that the user allowed, and the code that may run."""
        self._edited: set[str] = set()
        self._batch = 0
        """How many cells the newest response had."""
        self._seconds = 0.0

    @property
    def live(self) -> bool:
        """Whether the model itself is asked."""
        return self._model.live

    @property
    def drift(self) -> list[int]:
        """Of a recorded turn: the requests that are not those of then."""
        return getattr(self._model, "drift", [])

    async def go(self) -> Ending:
        """Go on until the model has answered, a cell waits, a bound is reached, or it cannot go on."""
        began = self._bench.clock()
        try:
            while True:
                ending = await self._next_cell() if self.waiting else await self._round()
                if ending is not None:
                    return ending
        finally:
            self._seconds += self._bench.clock() - began

    # -- deciding ----------------------------------------------------------------------------

    def approve(self, *, code: str | None = None, rest: bool = False) -> Action | None:
        """Allow the cell that waits, as it is or as `code`; with `rest` all that follow. Returns its call, if any."""
        if rest:
            self.ask = with_mode(self.ask, "auto")
        if not self.waiting:
            return None
        action = self.waiting[0]
        if code is not None:
            self._edited.add(action.event_id)
        self._allowed[action.event_id] = source(action) if code is None else code
        return action

    def reject(self, reason: str, event_id: str, *, rest: bool = False) -> list[HistoryEvent]:
        """Refuse the cell that waits, or all; returns the events to record, the first named `event_id`."""
        gone = self.waiting if rest else self.waiting[:1]
        execution_id, _, number = event_id.rpartition(":")
        made: list[HistoryEvent] = []
        for n, action in enumerate(gone):
            first = int(number) + 2 * n
            made.append(Verdict(nth(execution_id, first), action.tool_call_id, "rejected", reason))
            made.append(UserRejection(nth(execution_id, first + 1), action.tool_call_id, reason))
        self.waiting = [] if rest else self.waiting[1:]
        return made

    # -- a cell ------------------------------------------------------------------------------

    async def _next_cell(self) -> Ending | None:
        bench, action = self._bench, self.waiting[0]
        code = self._allowed.pop(action.event_id, None)
        edited = action.event_id in self._edited
        if code is None:
            told = self._model.verdict(action, self._batch - len(self.waiting))
            if told is not None and told.ruling == "rejected":
                self._refuse_again(action, told)
                return None
            edited = told is not None and told.ruling == "edited"
            code = told.text if told is not None and edited else source(action)
            if told is None and self.ask.mode == "ask" and self._model.live:
                bench.propose(action, code)
                return Ending("parked")
        if not edited and (told_of := bench.changed(code)):
            bench.hold(action, code, lambda execution: [_result(execution, action, told_of, "failed")])
            del self.waiting[0]
            return None
        execution = await bench.run(action, code, lambda execution: self._observed(execution, action, code, edited))
        del self.waiting[0]
        if execution.status == "cancelled" or bench.stopped:
            if self.waiting:  # the cell caught the interrupt, so its own result is like any other
                left = list(self.waiting)
                bench.record(Said("# stopped by the person", lambda name, n: _not_run(name, n, left), stopped=True))
            self.waiting.clear()
            return Ending("stopped", "stopped: the cell was interrupted, and what was still to come is not run")
        return None

    def _refuse_again(self, action: Action, told: Verdict) -> None:
        def refused(execution: Execution) -> Iterable[HistoryEvent]:
            yield UserRejection(nth(execution.execution_id, 1), action.tool_call_id, told.text)

        self._bench.hold(action, source(action), refused)
        del self.waiting[0]

    def _observed(self, execution: Execution, action: Action, code: str, edited: bool) -> Iterable[HistoryEvent]:
        status = STATUS.get(execution.status, "canceled")
        text = result_text(execution)
        if edited:
            text = f"The person edited the cell before it ran. What ran:\n{code}\n---\n{text}"
        if status == "canceled":
            text = f"stopped by the person while it ran\n{text}"
        yield _result(execution, action, text, status)
        if status == "canceled":
            yield from _not_run(execution.execution_id, 2, self.waiting[1:])
            del self.waiting[1:]

    # -- a round -----------------------------------------------------------------------------

    async def _round(self) -> Ending | None:
        bench, screen, request = self._bench, self._screen, self._bench.request
        if told := reached(self.ask.bounds, self.spent, self._seconds):
            return Ending("bound", told)
        if request is None:
            return Ending("failed", "there is no projection to send; %ctx status says what is off")
        if not request.report.ok:
            found = "; ".join(one.told() for one in request.violations[:3])
            return Ending("failed", f"nothing was sent, since the model's API would refuse it: {found}")
        if self._model.live and bench.off:
            return Ending("bound", "nothing more was asked: the model is off (%ctx mode off)")
        if self._model.live and not bench.consented(self.ask, request):
            return Ending("parked")
        bench.sending(self.ask, request, self.spent.requests + 1)
        screen.begin()
        partial: list[str] = []
        began = bench.clock()

        def on_event(event: StreamEvent) -> None:
            if isinstance(event, TextDelta):
                partial.append(event.text)
            elif partial and partial[-1] != _GAP:
                partial.append(_GAP)
            screen.event(event)

        try:
            response = await bench.interruptible(self._model.send(request, on_event))
        except Stopped:
            screen.end("stopped")
            return self._broken(request, "".join(partial), bench.clock() - began, None)
        except ModelFailure as fault:
            screen.end()
            return self._broken(request, "".join(partial), bench.clock() - began, fault)
        return self._take(response, request)

    def _broken(self, request: Projection, partial: str, seconds: float, fault: ModelFailure | None) -> Ending:
        """Record that a request came to nothing, with what was said until then. Nothing of its calls is kept."""
        if not request.tools:
            partial = replies.read([{"type": "text", "text": partial}], "script", complete=False).said
        self.spent += Spent(1, seconds=seconds)
        self._bench.received(None, fault, Spent(1, seconds=seconds))
        why = "stopped by the person" if fault is None else f"no answer: {fault.kind}"

        def marked(execution_id: str, number: int) -> Iterable[HistoryEvent]:
            if partial.strip() or fault is None:
                text = f"{partial.rstrip()}\n[{why}]" if partial.strip() else f"[{why}]"
                yield AssistantMessage(nth(execution_id, number), text)

        failure = None if fault is None else (fault.kind, str(fault))
        self._bench.record(Said(f"# {why}", marked, seconds, failure=failure, stopped=fault is None))
        if fault is None:
            return Ending("stopped", "stopped: nothing more was asked of the model")
        return Ending("failed", str(fault))

    def _take(self, response: Response, request: Projection) -> Ending | None:
        bench, reason = self._bench, response.stop_reason
        dialect = "tools" if request.tools else "script"
        note, refused = _CUT.get(reason or "", ""), reason == "refusal"
        reply = replies.read(response.blocks, dialect, unreadable=response.unreadable, complete=not note)
        if refused and reply.calls:
            note += "; what it called until then was not run"
        spent = spent_on(request.model, response.usage, response.seconds) if self._model.live else Spent(1)
        self.spent += spent
        bench.received(response, None, spent)
        self._screen.end(note)
        cells: list[Action] = []

        def events(execution_id: str, number: int) -> Iterable[HistoryEvent]:
            made: list[HistoryEvent] = []
            for event in replies.events(reply, request, execution_id, response.llm_response_id, number):
                made.append(event)
                yield event
            actions = [one for one in made if isinstance(one, Action)]
            number += len(made)
            for call, action in zip(reply.calls, actions, strict=True):
                if call.fault:
                    results: Sequence[HistoryEvent] = [
                        AgentError(nth(execution_id, number), action.tool_call_id, call.fault)
                    ]
                elif refused:  # a call may be whole before the model, or the server, thinks better of it
                    results = [Observation(nth(execution_id, number), action.tool_call_id, _REFUSED, "canceled")]
                elif call.tool == RUN_CELL:
                    cells.append(action)
                    continue
                else:
                    results = bench.answer(action, made, number)
                made += results
                number += len(results)
                yield from results

        said = reply.said or ", ".join(call.tool for call in reply.calls)
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
        self.execution_id = bench.record(Said(said or "# (empty answer)", events, response.seconds, spent, tags))
        self.waiting, self._batch = cells, len(cells)
        if (reply.calls and not refused) or reason == "pause_turn":
            return None
        return Ending("answered", note or _unsaid(reply))


def source(action: Action) -> str:
    """Return the code of a cell that the model wrote."""
    return str(action.input.get("code", ""))


def _unsaid(reply: replies.Reply) -> str:
    """Return what the person is told of an answer that is less than it was to be."""
    if reply.cut:
        left = "the end of the answer was cut" if reply.text.strip() else "nothing is left of the answer"
        return f"{left}: the model spoke as if it were the kernel, of results that never were; %%ask --again asks anew"
    return "" if reply.text.strip() else "the model said nothing"


def _not_run(execution_id: str, first: int, actions: Sequence[Action]) -> Iterable[HistoryEvent]:
    for number, action in enumerate(actions, first):
        told = "not run: the person stopped the work before it"
        yield Observation(nth(execution_id, number), action.tool_call_id, told, "canceled")


def _result(execution: Execution, action: Action, text: str, status: OutputStatus) -> Observation:
    return Observation(nth(execution.execution_id, 1), action.tool_call_id, text, status)
