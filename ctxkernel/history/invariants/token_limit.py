"""The history has a maximal number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from ctxkernel.core.errors import BadPolicy
from ctxkernel.history.events import Events, HistoryEvent
from ctxkernel.history.invariants.property import Property


class TokenLimit(Property):
    """The shown events cost at most `limit` tokens; the oldest are removed first. Off by default.

    `count` returns the tokens of an event. A cut keeps to the indices of the properties `within`, which must come
    earlier in the list. This is the last resort for a hard limit: it removes events without a summary.
    """

    def __init__(self, limit: int, count: Callable[[HistoryEvent], int], within: Sequence[Property] = ()) -> None:
        """Raises BadPolicy for a limit below 0."""
        if limit < 0:
            raise BadPolicy(f"TokenLimit({limit}): a limit is a number of tokens, 0 or more")
        self.limit = limit
        self.count = count
        self.within = tuple(within)

    def enforce(self, events: Events, source: Events) -> Events:
        """Return the events from the first index after which the rest fits; none if there is no such index."""
        fits = self._first_that_fits(events)
        if fits == 0:
            return events
        allowed = set(range(fits, len(events) + 1)).intersection(
            *(one.manipulation_indices(events) for one in self.within)
        )
        return events[min(allowed) :]

    def validate(self, events: Events, source: Events | None = None) -> tuple[str, ...]:
        """Return one sentence if the events cost more than the limit."""
        cost = sum(map(self.count, events))
        return (f"TokenLimit: {cost} tokens, {cost - self.limit} more than {self.limit}",) if cost > self.limit else ()

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """Return the gaps after which the rest fits."""
        return range(self._first_that_fits(events), len(events) + 1)

    def _first_that_fits(self, events: Events) -> int:
        costs = accumulate(self.count(event) for event in reversed(events))
        return len(events) - sum(cost <= self.limit for cost in costs)
