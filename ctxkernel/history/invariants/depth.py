"""Calls within calls have a maximal depth."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from ctxkernel.core.errors import BadPolicy
from ctxkernel.history.events import Events, batch_of
from ctxkernel.history.invariants.property import Property
from ctxkernel.history.pairing import pair


class ToolCallDepth(Property):
    """A batch is not shown if `limit` other batches were waiting for results when it began.

    A cell of a model may ask a model in turn: the calls of the inner ask are between an outer call and its result.
    Parallel calls of one response are not nested. This property must come before `ResultAdjacency`, which removes the
    nesting.
    """

    local = True

    def __init__(self, limit: int = 8) -> None:
        """Raises BadPolicy for a limit below 1."""
        if limit < 1:
            raise BadPolicy(f"ToolCallDepth({limit}) would show no call at all; give a limit of 1 or more")
        self.limit = limit

    def enforce(self, events: Events, source: Events) -> Events:
        """Remove the batches that are too deep, with their results."""
        answers, spans, depth = _nesting(events)
        deep = {batch for batch, (first, _) in spans.items() if depth[first] >= self.limit}
        if not deep:
            return events
        calls = {n for n, event in enumerate(events) if event.place == "call" and batch_of(event) in deep}
        dropped = {place for call, result in answers.items() if call in calls for place in (call, result)}
        return [event for place, event in enumerate(events) if place not in dropped]

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """Return the gaps where fewer than `limit` batches are open, so that one more batch is allowed there."""
        return [gap for gap, open_batches in enumerate(_nesting(events)[2]) if open_batches < self.limit]


def _nesting(events: Events) -> tuple[dict[int, int], dict[str, tuple[int, int]], list[int]]:
    """Return call → result, batch → first call and last result, and how many batches are open at each gap."""
    answers = pair(events).answers
    spans: dict[str, tuple[int, int]] = {}
    for call, event in enumerate(events):
        if event.place == "call" and call in answers:
            first, last = spans.get(batch_of(event), (call, call))
            spans[batch_of(event)] = (first, max(last, answers[call]))
    change = [0] * (len(events) + 2)
    for first, last in spans.values():
        change[first + 1] += 1
        change[last + 1] -= 1
    return answers, spans, list(accumulate(change[:-1]))
