"""Summaries by a model, of texts that are shown at level 2: what is requested when, its cost, its result.

    tick → `want` → bytes stored → a worker sends them → the next tick shows the answer

Rule 1: nothing is sent unless `summary_model` names a model, and then texts only: never numbers, outputs or
        objects with a private name.
Rule 2: each content is requested once: an answer in the session's log is used again.
Rule 3: everything but the sending runs on the thread of the cells; a worker puts its result into a queue.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any

from ctxkernel.agent.asks import NOTHING, SUMMARIES, BookedRequest, Spent
from ctxkernel.agent.client import ModelClient
from ctxkernel.agent.streaming import Response
from ctxkernel.agent.summary_requests import (
    MAX_TOKENS,
    SYSTEM,
    SummaryAnswer,
    SummaryRequest,
    answer_text,
    lines_of,
    request_for,
    request_summary,
)
from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.jobs import IsCancelled, ModelSummary, Preparation, Publish, Summarised
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.settings import EXTRACTIVE
from ctxkernel.core.text import format_table
from ctxkernel.kernel.asking.model_connections import ModelConnections
from ctxkernel.kernel.services import KernelServices
from ctxkernel.projection.displayed_tokens import estimate_tokens
from ctxkernel.projection.prices import estimate
from ctxkernel.projection.privacy import Hiding
from ctxkernel.sources.base.rendering import BaseSource
from ctxkernel.store.log.rows import NOT_SENT, SUMMARY

KEPT = 64
"""Most requests in memory, the newest; older ones are in the session's log."""
AGAIN_SECONDS = 60.0
"""Pause after a failure that can pass."""


@dataclass(slots=True)
class _Request:
    """One request, and its outcome."""

    obj_id: str
    label: str
    request: SummaryRequest
    row: int | None = None
    """Number in the log."""
    begun: bool = False
    dropped: bool = False
    state: str = "asked"
    answer: str = ""
    """The answer as received."""
    summary: ModelSummary | None = None
    spent: Spent = NOTHING
    price: float = 0.0
    """Most USD that it can cost; 0 if the model's price is not known."""
    again_at: float = 0.0
    """Monotonic time from which it may be sent again; infinity: only after a change by the user."""


class Summaries:
    """The summaries by a model of one kernel."""

    def __init__(self, session: KernelServices, connections: ModelConnections) -> None:
        self._session, self._connections = session, connections
        self._asked: OrderedDict[tuple[str, str, str], _Request] = OrderedDict()
        self._done: deque[tuple[_Request, SummaryAnswer]] = deque()
        self._lock = threading.Lock()
        """Protects `begun` and `dropped`: a request never gets both."""
        self._settings: Any = None
        self._told: set[str] = set()
        self._notices: list[str] = []
        self._first = True

    @property
    def unanswered(self) -> int:
        """The number of requests that a worker has, or will get."""
        requests = tuple(self._asked.values())
        return sum(one.state == "asked" and not one.dropped and not one.again_at for one in requests)

    # -- at the tick ---------------------------------------------------------------------------

    def want(self, shown: Sequence[Summarised]) -> tuple[list[Preparation | None], list[str]]:
        """Return the preparation of each summary, None for none, and notices."""
        self.collect()
        if self._settings is not self._session.settings:  # after a change of a setting failures are tried again
            self._settings = self._session.settings
            self._told.clear()
            for key in [key for key, one in self._asked.items() if one.again_at]:
                del self._asked[key]
        wanted: list[_Request | None] = []
        refusal: str | None = None
        for one in shown:
            found: _Request | None = None
            if self._is_due(one):
                found, refusal = self._known(one), self._refusal() if refusal is None else refusal
                if refusal and (found is None or found.state == "asked"):  # a request that waits is not sent either
                    found = None
                    self._tell(refusal)
                elif found is None and self._has_room():
                    found = self._made(one)
            wanted.append(found if found is not None and not found.again_at else None)
        self._drop(wanted)
        notices, self._notices = self._notices, []
        for notice in notices:  # displayed in the cell: something is sent, or is not
            self._session.notices.tell(f"ctxkernel: {notice}")
        return [None if one is None else self._preparation(one) for one in wanted], notices

    def _tell(self, notice: str) -> None:
        if notice not in self._told:
            self._told.add(notice)
            self._notices.append(notice)

    def _refusal(self) -> str:
        """Return why no model is asked now, or an empty text."""
        settings = self._session.settings
        model, stays = settings.summary_model, "the extractive summaries stay"
        if settings.mode == "off":
            return f"{model} writes no summaries, since mode is off; {stays}. %ctx mode ask lets it"
        if settings.answers == "recorded":
            return f"{model} writes no summaries, since answers is recorded; {stays}"
        if not self._connections.reachable:
            return (
                f"{model} cannot be asked for summaries; {stays}. Set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a "
                "server of your own that speaks the Messages API"
            )
        spent, bound = self._spent(), settings.ask_usd
        if bound and spent >= bound:
            return (
                f"the summaries of this kernel have cost ${spent:.2f} (the bound is ${bound:g}); {stays}. "
                "%ctx config ask_usd gives more"
            )
        return ""

    def _spent(self) -> float:
        """Return the USD that summaries by any model have cost, as far as prices are known."""
        return sum(one.spent.usd or 0.0 for one in self._session.account.booked if one.ask == SUMMARIES)

    def _has_room(self) -> bool:
        """Return whether the bound would hold if every unanswered request cost as much as it can."""
        bound = self._session.settings.ask_usd
        waiting = sum(one.price for one in self._asked.values() if one.state == "asked" and not one.dropped)
        return not bound or not waiting or self._spent() + waiting < bound

    def _is_due(self, one: Summarised) -> bool:
        """Return whether it is a text, has no summary by this model yet, and is not private."""
        source = one.source
        if not isinstance(source, BaseSource) or not source.worded():
            return False
        kept: ModelSummary | None = source.prepared.get("summary")
        if kept is not None and (kept.fingerprint, kept.model) == (
            one.fingerprint,
            self._session.settings.summary_model,
        ):
            return False
        # By the current names: those of the loop are of the time before this cell.
        namespace = self._session.shell.user_ns
        named = (namespace.get(name) for name in self._session.configuration.private)
        return all(not isinstance(value, NodeBase) or value.obj_id != one.obj_id for value in named)

    def _known(self, one: Summarised) -> _Request | None:
        """Return the earlier request for the same content, whatever its outcome; None if one is to be made."""
        found = self._asked.get((one.obj_id, one.fingerprint, self._session.settings.summary_model))
        return None if found is None or found.dropped or 0 < found.again_at <= time.monotonic() else found

    def _made(self, one: Summarised) -> _Request | None:
        """Return a new request, stored if the log has no answer; None if there is nothing to send."""
        made = self._request(one)
        if made is not None:
            self._asked[one.obj_id, one.fingerprint, made.request.model] = made
            while len(self._asked) > KEPT and next(iter(self._asked.values())).state != "asked":
                self._asked.popitem(last=False)
        return made

    def _request(self, one: Summarised) -> _Request | None:
        session = self._session
        private, model = session.configuration.private, session.settings.summary_model
        hide = Hiding(private).text if private else str
        masker = session.masker
        try:
            request = request_for(one.source, one.label, model, lambda text: hide(masker(text)))
        except CtxError as refused:
            self._tell(f"{one.obj_id} ({one.label}) has no summary by {model}: {refused}")
            return None
        if request.fingerprint != one.fingerprint:  # it changed just now; the next tick requests the new content
            return None
        receipt = request.receipt
        for other in self._asked.values():  # another view of the same content
            if other.request.receipt == receipt and not other.dropped and not other.again_at:
                return other
        made = _Request(one.obj_id, one.label, request)
        kept = session.guard("session store", session.store.answered, None, receipt)
        if kept is not None:
            self._read(made, str(kept.get("text", "")))
        if made.summary is None:
            self._store(made)
        else:
            made.state = "from the log"
        return made

    def _store(self, made: _Request) -> None:
        """Store a request before it is sent, and report the first."""
        session, request = self._session, made.request
        running = session.turns.running
        where = running.execution.execution_id if running is not None else session.loop.log.head or ""
        body: Mapping[str, Any] = {"body": request.bytes.decode()}
        receipt, model = request.receipt, request.model
        row = (where, SUMMARY, 1, receipt, model, time.time(), body)
        made.row, notice = session.guard("session store", session.store.request, (None, None), *row)
        if notice:
            self._notices.append(notice)
        session.account.sent = True
        session.guard("panel", session.panel.tell_sent, None)
        count = estimate_tokens(request.text, model)
        made.price = estimate(model, fresh=count, output=MAX_TOKENS).usd or 0.0
        if self._first:
            self._first = False
            self._tell(
                f"{model} writes the summaries now: ~{count:,} tokens of {made.obj_id} ({made.label}) go to it, "
                f"{estimate(model, fresh=count).told()}. %ctx summaries shows each; "
                f"%ctx config summary_model {EXTRACTIVE} stops it"
            )

    def _drop(self, wanted: Sequence[_Request | None]) -> None:
        """Drop stored requests that are not wanted any more, unless their sending has begun."""
        kept = {id(one) for one in wanted if one is not None}
        for one in self._asked.values():
            if one.state == "asked" and id(one) not in kept and not one.dropped:
                with self._lock:
                    one.dropped = not one.begun
                if one.dropped:
                    self._finish(one, NOT_SENT, None, NOTHING)

    # -- on a worker's thread ------------------------------------------------------------------

    def _preparation(self, one: _Request) -> Preparation:
        connections, timeout = self._connections, self._session.settings.stall_seconds

        def work(stopped: IsCancelled, publish: Publish) -> ModelSummary | None:
            if one.summary is not None:
                return one.summary
            with self._lock:
                if one.dropped or one.begun:
                    return None
                one.begun = True
            client = ModelClient(model_key=connections.key, base_url=connections.base_url(), timeout=timeout)
            answered = asyncio.run(request_summary(one.request, client, stopped, lambda: publish(None)))
            if answered.response is not None:
                self._read(one, answer_text(answered.response))
            self._done.append((one, answered))
            return one.summary

        return Preparation(one.request.receipt, work, "other")

    def _read(self, one: _Request, answer: str) -> None:
        """Keep an answer, and the lines of it that may be shown."""
        lines, left_out = lines_of(answer, one.request.text)
        one.answer = answer
        if lines:
            if left_out:
                several = "s" * (left_out != 1)
                lines += (f"[{left_out} line{several} left out: with numbers that the text does not have]",)
            one.summary = ModelSummary(one.request.fingerprint, one.request.model, lines)

    # -- answers -------------------------------------------------------------------------------

    def collect(self) -> None:
        """Store the answers since the last call."""
        while self._done:
            self._collect_one(*self._done.popleft())

    def _collect_one(self, one: _Request, answered: SummaryAnswer) -> None:
        response, model = answered.response, one.request.model
        if response is None:
            failure = answered.failure
            status = "stopped" if failure is None else failure.kind
            self._finish(one, status, None, answered.spent)
            if failure is None:
                one.dropped = True  # requested again when it is wanted again
                return
            # A failure that can pass is retried; another one after a change by the user.
            one.again_at = time.monotonic() + AGAIN_SECONDS if failure.retryable else float("inf")
            self._tell(
                f"{one.obj_id} ({one.label}) has no summary by a model: {failure}. The extractive one stays; "
                f"%ctx config summary_model {model} tries again"
            )
            return
        self._finish(one, "answered", response, answered.spent)
        if one.summary is None:
            why = "it declined" if response.stop_reason == "refusal" else "no line of its answer may be shown"
            one.state, one.again_at = f"not shown: {why}", float("inf")
            self._tell(f"{one.obj_id} ({one.label}) has no summary by {model}: {why}; the extractive one stays")

    def _finish(self, one: _Request, state: str, response: Response | None, spent: Spent) -> None:
        """Store the outcome of a request, and add its cost."""
        session = self._session
        one.state, one.spent = state, spent
        if spent.requests:
            session.account.book(BookedRequest(SUMMARIES, one.request.model, spent, row=one.row))
        status = "ok" if response is not None and response.stop_reason != "refusal" else state
        text = "" if response is None else answer_text(response)
        notice = session.store_response(one.row, status, response, spent, text=text)
        if notice:
            self._notices.append(notice)

    # -- for the user --------------------------------------------------------------------------

    def table(self) -> str:
        """Return the requests, a line each."""
        if not self._asked:
            return f"no summary was asked for; summary_model is {self._session.settings.summary_model}"
        rows = [["handle", "target", "model", "", "spent"]]
        rows += [
            [one.obj_id, one.label[-40:], one.request.model, one.state, one.spent.text() if one.spent.requests else ""]
            for one in self._asked.values()
        ]
        return format_table(rows)

    def whole(self, name: str) -> str:
        """Return the newest request for a handle as sent, and its answer. Raises BadCommand."""
        names = self._session.loop.names.first_names()
        found = [one for one in self._asked.values() if name in (one.obj_id, names.get(one.obj_id))]
        if not found:
            raise BadCommand(f"no summary was asked for {name}; %ctx summaries lists those that were")
        one = found[-1]
        parts = [
            f"{one.obj_id} {one.label} · {one.request.model} · {one.state} · {one.request.receipt[:19]}",
            f"--- system\n{SYSTEM}",
            f"--- the text, as it was sent\n{one.request.text}",
            f"--- the answer, as it came\n{one.answer or '(none)'}",
        ]
        return "\n".join(parts)
