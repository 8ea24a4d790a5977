"""Count the tokens of one request while its response arrives, over all its attempts.

Rule 1: counts of the server are taken as they are. A count that it did not give is estimated, and marked so; until the
        response has ended, its count of the output is preliminary.
Rule 2: an attempt counts from the event on in which the server gave its counts (`message_start`).
Rule 3: the cost is linear in the length of the response, however often it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxkernel.agent.asks import NOTHING, Spent
from ctxkernel.agent.streaming import CallDelta, Retrying, StreamEvent, TextDelta, ThinkingDelta, UsageReport
from ctxkernel.projection.displayed_tokens import estimate_tokens, tokens_in, usage_count
from ctxkernel.projection.prices import cost_of_usage
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.projection.value import Projection

_PIECE = 1000
"""Characters of output that are counted together: a count of short pieces would be too high."""


class Meter:
    """The tokens of a request to a model so far."""

    def __init__(self, model: str, sent: Projection | str) -> None:
        """`sent` is the request, whose tokens are estimated if the server gives no count."""
        self._model, self._sent = model, sent
        self._earlier = NOTHING
        """The cost of the attempts before the running one."""
        self._reset()

    def _reset(self) -> None:
        self.usage: Mapping[str, Any] | None = None
        """The counts of the running attempt; None until it was sent, empty until the server gave counts."""
        self.final = False
        """Whether the counts are those of the whole response."""
        self._pieces: list[str] = []
        self._waiting = self._counted = 0

    def take(self, event: StreamEvent | UsageReport) -> None:
        """Add one event of the response."""
        match event:
            case UsageReport():
                self.usage, self.final = event.usage, event.final
            case Retrying():
                self._earlier += self._attempt(at_work=False)
                self._reset()
            case TextDelta() | ThinkingDelta():
                self._add(event.text)
            case CallDelta():
                self._add(event.partial_json)

    def _add(self, text: str) -> None:
        self._pieces.append(text)
        self._waiting += len(text)
        if self._waiting >= _PIECE:
            self._counted += count_tokens("".join(self._pieces))
            self._pieces, self._waiting = [], 0

    def spent(self, seconds: float = 0.0, *, at_work: bool = True) -> Spent:
        """Return the cost until now.

        `at_work`: whether an attempt counts for which the server gave no counts, since it may have worked on it.
        """
        made = self._earlier + self._attempt(at_work=at_work)
        return Spent(1, made.tokens_in, made.cached, made.tokens_out, made.usd, seconds, made.guessed)

    def _attempt(self, *, at_work: bool) -> Spent:
        usage = self.usage
        if usage is None or not (usage or at_work):
            return NOTHING
        counts: dict[str, Any] = dict(usage)
        guessed: set[str] = set()
        if not tokens_in(usage):  # no prompt is empty
            counts["input_tokens"] = self._estimate()
            guessed.add("tokens_in")
        if not self.final or usage_count(usage, "output_tokens") is None:
            arrived = self._counted + count_tokens("".join(self._pieces))
            counts["output_tokens"] = max(usage_count(usage, "output_tokens") or 0, arrived)
            guessed.add("tokens_out")
        return spent_on(self._model, counts, frozenset(guessed))

    def _estimate(self) -> int:
        def count(text: str) -> int:
            return estimate_tokens(text, self._model)

        return count(self._sent) if isinstance(self._sent, str) else self._sent.counted(count)


def spent_on(model: str, usage: Mapping[str, Any], guessed: frozenset[str] = frozenset()) -> Spent:
    """Return the cost of one attempt by its usage; `guessed` are the counts in it that are estimates."""
    cost = cost_of_usage(model, usage)
    return Spent(
        1,
        tokens_in(usage) or 0,
        usage_count(usage, "cache_read_input_tokens") or 0,
        usage_count(usage, "output_tokens") or 0,
        cost.usd if cost is not None else None,
        guessed=guessed,
    )
