"""Summaries by a model, of what is shown at level 2: who is asked when, what it cost, what became of it.

    tick → `want` → bytes written down → a worker sends them → the next tick shows the answer

Rule 1: nothing is sent unless `summary_model` names a model, and then of texts only: never numbers, outputs or what is
        called by a private name.
Rule 2: each content is asked for once: an answer that the session's log has is taken from there.
Rule 3: all but the sending is done on the thread that cells run on; a worker leaves what came back in a queue.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkernel.agent.asks import NOTHING, Spent, spent_on
from ctxkernel.agent.client import ModelClient
from ctxkernel.agent.streaming import Response
from ctxkernel.agent.summaries import MAX_TOKENS, SYSTEM, Answered, SummaryRequest, ask, lines_of, request_for, said
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.jobs import Preparation, Publish, Stopped, Summarised, Summary
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.settings import EXTRACTIVE
from ctxkernel.core.text import format_table
from ctxkernel.projection.displayed_tokens import estimate_tokens
from ctxkernel.projection.prices import estimate
from ctxkernel.projection.privacy import Hiding
from ctxkernel.sources.base.rendering import BaseSource
from ctxkernel.store.log.rows import NOT_SENT, SUMMARY

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

KEPT = 64
"""Requests that are remembered, the newest; older ones are found in the session's log."""
AGAIN_SECONDS = 60.0
"""After a failure that may pass, nothing is asked for so long."""
_SUMMARIES = " (summaries)"


@dataclass(slots=True)
class _Asked:
    """One request, and what became of it."""

    obj_id: str
    label: str
    request: SummaryRequest
    row: int | None = None
    """Its number in the log."""
    begun: bool = False
    dropped: bool = False
    state: str = "asked"
    told: str = ""
    """The answer as it came."""
    summary: Summary | None = None
    spent: Spent = NOTHING
    price: float = 0.0
    """USD that it may cost; 0 where the model's price is not known."""
    again_at: float = 0.0
    """Monotonic seconds from which on it may be asked again; infinity: not by itself."""


class Summaries:
    """Has a model write summaries, for one kernel."""

    def __init__(self, ctx: Runtime) -> None:
        self._ctx = ctx
        self._asked: OrderedDict[tuple[str, str, str], _Asked] = OrderedDict()
        self._done: deque[tuple[_Asked, Answered, float]] = deque()
        self._lock = threading.Lock()
        """Over `begun` and `dropped`: what was begun is not dropped any more, and the other way round."""
        self._settings: Any = None
        self._told: set[str] = set()
        self._notices: list[str] = []
        self._first = True

    # -- at the tick ---------------------------------------------------------------------------

    def want(self, shown: Sequence[Summarised]) -> tuple[list[Preparation | None], list[str]]:
        """Return what is to be asked of the model for each, and notices."""
        self.collect()
        if self._settings is not self._ctx.settings:  # whoever changes one wants it tried again
            self._settings = self._ctx.settings
            self._told.clear()
            for key in [key for key, one in self._asked.items() if one.again_at]:
                del self._asked[key]
        wanted: list[_Asked | None] = []
        refusal: str | None = None
        for one in shown:
            found: _Asked | None = None
            if self._is_due(one):
                found, refusal = self._known(one), self._refusal() if refusal is None else refusal
                if refusal and (found is None or found.state == "asked"):  # what waits to be sent is not sent either
                    found = None
                    self._tell(refusal)
                elif found is None and self._has_room():
                    found = self._made(one)
            wanted.append(found if found is not None and not found.again_at else None)
        self._drop(wanted)
        notices, self._notices = self._notices, []
        for notice in notices:  # where the cell is: something goes out, or does not
            self._ctx.notices.tell(f"ctxkernel: {notice}")
        return [None if one is None else self._preparation(one) for one in wanted], notices

    def _tell(self, notice: str) -> None:
        if notice not in self._told:
            self._told.add(notice)
            self._notices.append(notice)

    def _refusal(self) -> str:
        """Return why no model is asked now, or empty."""
        ctx = self._ctx
        model, stays = ctx.settings.summary_model, "the extractive summaries stay"
        if ctx.settings.mode == "off":
            return f"{model} writes no summaries, since mode is off; {stays}. %ctx mode ask lets it"
        if ctx.settings.answers == "recorded":
            return f"{model} writes no summaries, since answers is recorded; {stays}"
        if not ctx.asking.reachable:
            return (
                f"{model} cannot be asked for summaries; {stays}. Set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a "
                "server of your own that speaks the Messages API"
            )
        spent, bound = self._spent(), ctx.settings.ask_usd
        if bound and spent >= bound:
            return (
                f"the summaries of this kernel have cost ${spent:.2f} (the bound is ${bound:g}); {stays}. "
                "%ctx config ask_usd gives more"
            )
        return ""

    def _spent(self) -> float:
        """Return the USD that summaries have cost, by whatever model, as far as prices are known."""
        return sum(one.usd or 0.0 for name, one in self._ctx.asking.spent.items() if name.endswith(_SUMMARIES))

    def _has_room(self) -> bool:
        """Whether the bound would hold if all that is asked for and not answered cost as much as it may."""
        bound = self._ctx.settings.ask_usd
        waiting = sum(one.price for one in self._asked.values() if one.state == "asked" and not one.dropped)
        return not bound or not waiting or self._spent() + waiting < bound

    def _is_due(self, one: Summarised) -> bool:
        """Whether it is a text, has no summary by this model yet, and is not private."""
        source = one.source
        if not isinstance(source, BaseSource) or not source.worded():
            return False
        kept: Summary | None = source.prepared.get("summary")
        if kept is not None and (kept.fingerprint, kept.model) == (one.fingerprint, self._ctx.settings.summary_model):
            return False
        # By the names as they are: the loop's own are those before this cell.
        ctx = self._ctx
        named = (ctx.shell.user_ns.get(name) for name in ctx.configuration.private)
        return all(not isinstance(value, NodeBase) or value.obj_id != one.obj_id for value in named)

    def _known(self, one: Summarised) -> _Asked | None:
        """Return the request that was made for what is shown, whatever came of it; None where it is to be made."""
        found = self._asked.get((one.obj_id, one.fingerprint, self._ctx.settings.summary_model))
        return None if found is None or found.dropped or 0 < found.again_at <= time.monotonic() else found

    def _made(self, one: Summarised) -> _Asked | None:
        """Return a request for what is shown, written down where the log has no answer; None where there is none."""
        made = self._request(one)
        if made is not None:
            self._asked[one.obj_id, one.fingerprint, made.request.model] = made
            while len(self._asked) > KEPT and next(iter(self._asked.values())).state != "asked":
                self._asked.popitem(last=False)
        return made

    def _request(self, one: Summarised) -> _Asked | None:
        ctx, private, model = self._ctx, self._ctx.configuration.private, self._ctx.settings.summary_model
        hide = Hiding(private).text if private else str
        try:
            request = request_for(one.source, one.label, model, hide)
        except CtxError as refused:
            self._tell(f"{one.obj_id} ({one.label}) has no summary by {model}: {refused}")
            return None
        if request.fingerprint != one.fingerprint:  # it changed just now; the next tick asks for what it is then
            return None
        receipt = request.receipt
        for other in self._asked.values():  # another view of the same
            if other.request.receipt == receipt and not other.dropped and not other.again_at:
                return other
        made = _Asked(one.obj_id, one.label, request)
        kept = ctx.guard("session store", lambda: ctx.store.answered(receipt), None)
        if kept is not None:
            self._read(made, str(kept.get("text", "")))
        if made.summary is None:
            self._written(made)
        else:
            made.state = "from the log"
        return made

    def _written(self, made: _Asked) -> None:
        """Write a request down, before it is sent, and tell of the first."""
        ctx, request = self._ctx, made.request
        where = ctx.turns.running.execution.execution_id if ctx.turns.running is not None else ctx.loop.log.head or ""
        body: Mapping[str, Any] = {"body": request.bytes.decode()}
        receipt, model = request.receipt, request.model
        made.row = ctx.guard(
            "session store", lambda: ctx.store.request(where, SUMMARY, 1, receipt, model, time.time(), body), None
        )
        ctx.asking.sent = True
        count = estimate_tokens(request.text, model)
        made.price = estimate(model, fresh=count, output=MAX_TOKENS).usd or 0.0
        if self._first:
            self._first = False
            self._tell(
                f"{model} writes the summaries now: ~{count:,} tokens of {made.obj_id} ({made.label}) go to it, "
                f"{estimate(model, fresh=count).told()}. %ctx summaries shows each; "
                f"%ctx config summary_model {EXTRACTIVE} stops it"
            )

    def _drop(self, wanted: Sequence[_Asked | None]) -> None:
        """Note of what was written down and is not wanted any more that it is not sent."""
        kept = {id(one) for one in wanted if one is not None}
        for one in self._asked.values():
            if one.state == "asked" and id(one) not in kept and not one.dropped:
                with self._lock:
                    one.dropped = not one.begun
                if one.dropped:
                    self._came(one, NOT_SENT, None, NOTHING)

    # -- on a worker's thread ------------------------------------------------------------------

    def _preparation(self, one: _Asked) -> Preparation:
        turns, timeout = self._ctx.asking.turns, self._ctx.settings.stall_seconds

        def work(stopped: Stopped, publish: Publish) -> Summary | None:
            if one.summary is not None:
                return one.summary
            with self._lock:
                if one.dropped or one.begun:
                    return None
                one.begun = True
            start = time.monotonic()
            client = ModelClient(model_key=turns.key, base_url=turns.base_url(), timeout=timeout)
            came = asyncio.run(ask(one.request, client, stopped, lambda: publish(None)))
            if came.response is not None:
                self._read(one, said(came.response))
            self._done.append((one, came, time.monotonic() - start))
            return one.summary

        return Preparation(one.request.receipt, work, "other")

    def _read(self, one: _Asked, answer: str) -> None:
        """Take from an answer what may be shown."""
        lines, left_out = lines_of(answer, one.request.text)
        one.told = answer
        if lines:
            if left_out:
                several = "s" * (left_out != 1)
                lines += (f"[{left_out} line{several} left out: with numbers that the text does not have]",)
            one.summary = Summary(one.request.fingerprint, one.request.model, lines)

    # -- what came back ------------------------------------------------------------------------

    def collect(self) -> None:
        """Write down what came back since the last time."""
        while self._done:
            one, came, seconds = self._done.popleft()
            self._collected(one, came, seconds)

    def _collected(self, one: _Asked, came: Answered, seconds: float) -> None:
        response, model = came.response, one.request.model
        if response is None:
            failure = came.failure
            status = "stopped" if failure is None else failure.kind
            self._came(one, status, None, Spent(1, seconds=seconds))
            if failure is None:
                one.dropped = True  # asked anew where it is wanted again
                return
            # What may pass is tried again by itself; what will not, when the user has changed something.
            one.again_at = time.monotonic() + AGAIN_SECONDS if failure.retryable else float("inf")
            self._tell(
                f"{one.obj_id} ({one.label}) has no summary by a model: {failure}. The extractive one stays; "
                f"%ctx config summary_model {model} tries again"
            )
            return
        self._came(one, "answered", response, spent_on(model, response.usage, seconds))
        if one.summary is None:
            why = "it declined" if response.stop_reason == "refusal" else "no line of its answer may be shown"
            one.state, one.again_at = f"not shown: {why}", float("inf")
            self._tell(f"{one.obj_id} ({one.label}) has no summary by {model}: {why}; the extractive one stays")

    def _came(self, one: _Asked, state: str, response: Response | None, spent: Spent) -> None:
        ctx, model = self._ctx, one.request.model
        one.state, one.spent = state, spent
        if spent.requests:
            name = _cost_of(model)
            ctx.asking.spent[name] = ctx.asking.spent.get(name, NOTHING) + spent
        more: dict[str, Any] = {}
        if response is not None:
            more = {
                "stop_reason": response.stop_reason,
                "request_id": response.request_id or "",
                "usage": dict(response.usage),
                "usd": spent.usd,
                "body": {"id": response.llm_response_id, "model": response.model, "text": said(response)},
            }
        status = "ok" if response is not None and response.stop_reason != "refusal" else state
        told = ctx.guard("session store", lambda: ctx.store.response(one.row, status, time.time(), **more), None)
        if told:
            self._notices.append(told)

    # -- for the user --------------------------------------------------------------------------

    def table(self) -> str:
        """Return what was asked, a line each."""
        if not self._asked:
            return f"no summary was asked for; summary_model is {self._ctx.settings.summary_model}"
        rows = [["handle", "target", "model", "", "spent"]]
        rows += [
            [one.obj_id, one.label[-40:], one.request.model, one.state, one.spent.told() if one.spent.requests else ""]
            for one in self._asked.values()
        ]
        return format_table(rows)

    def whole(self, name: str) -> str:
        """Return the newest request for a handle, as it was sent, and its answer. Raises BadCommand."""
        found = [one for one in self._asked.values() if name in (one.obj_id, self._ctx.name_of(one.obj_id))]
        if not found:
            raise BadCommand(f"no summary was asked for {name}; %ctx summaries lists those that were")
        one = found[-1]
        parts = [
            f"{one.obj_id} {one.label} · {one.request.model} · {one.state} · {one.request.receipt[:19]}",
            f"--- system\n{SYSTEM}",
            f"--- the text, as it was sent\n{one.request.text}",
            f"--- the answer, as it came\n{one.told or '(none)'}",
        ]
        return "\n".join(parts)


def _cost_of(model: str) -> str:
    """Return the name under which `%ctx cost` has what summaries cost."""
    return model + _SUMMARIES
