"""The history stays within a number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from ctxkernel.core.errors import BadPolicy
from ctxkernel.history.events import Events, HistoryEvent
from ctxkernel.history.invariants.base import Property


class TokenLimit(Property):
    """What is shown costs at most `limit` tokens; the oldest goes first. Off unless it is asked for.

    `count` returns the tokens of an event. `within` are the properties whose indices a cut must keep to; must stand
    after them in the list. This is the last resort of a hard limit: it forgets without a summary.
    """

    def __init__(self, limit: int, count: Callable[[HistoryEvent], int], within: Sequence[Property] = ()) -> None:
        """Raises BadPolicy for a limit below 0."""
        if limit < 0:
            raise BadPolicy(f"TokenLimit({limit}): a limit is a number of tokens, 0 or more")
        self.limit = limit
        self.count = count
        self.within = tuple(within)

    def enforce(self, events: Events, source: Events) -> Events:
        """Cut the beginning at the first index from where on the rest fits; all of it where none does."""
        fits = self._first_that_fits(events)
        if fits == 0:
            return events
        legal = [set(one.manipulation_indices(events)) for one in self.within]
        cut = next(gap for gap in range(fits, len(events) + 1) if all(gap in gaps for gaps in legal))
        return events[cut:]

    def validate(self, events: Events, source: Events | None = None) -> tuple[str, ...]:
        """Return one sentence if the events cost more than the limit."""
        cost = sum(map(self.count, events))
        return (f"TokenLimit: {cost} tokens, {cost - self.limit} more than {self.limit}",) if cost > self.limit else ()

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """The gaps after which the rest fits."""
        return range(self._first_that_fits(events), len(events) + 1)

    def _first_that_fits(self, events: Events) -> int:
        rest = list(accumulate((self.count(event) for event in reversed(events)), initial=0))
        kept = next((n for n, cost in enumerate(rest) if cost > self.limit), len(rest)) - 1
        return len(events) - kept
