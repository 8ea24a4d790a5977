"""Calls within calls go only so deep."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from ctxkernel.core.errors import BadPolicy
from ctxkernel.history.events import Events, batch_of
from ctxkernel.history.invariants.base import Property
from ctxkernel.history.pairing import pair


class ToolCallDepth(Property):
    """A batch that began while `limit` other batches were waiting for results is not shown.

    A cell that a model wrote may ask a model in turn: its calls lie between a call and that call's result. Parallel
    calls of one response are not nested. Must stand before `ResultAdjacency`, which unfolds what is nested.
    """

    local = True

    def __init__(self, limit: int = 8) -> None:
        """Raises BadPolicy for a limit below 1."""
        if limit < 1:
            raise BadPolicy(f"ToolCallDepth({limit}) would show no call at all; give a limit of 1 or more")
        self.limit = limit

    def enforce(self, events: Events, source: Events) -> Events:
        """Leave out the batches that are too deep, with their results."""
        answers = pair(events).answers
        ends = _ends(events, answers)
        depth = _depths(len(events), ends.values())
        deep = {batch for batch, (first, _) in ends.items() if depth[first] >= self.limit}
        if not deep:
            return events
        dropped: set[int] = set()
        for call, result in answers.items():
            if batch_of(events[call]) in deep:  # type: ignore[arg-type]
                dropped |= {call, result}
        return [event for place, event in enumerate(events) if place not in dropped]

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """The gaps where fewer than `limit` batches are open, so that one more may stand there."""
        depth = _depths(len(events), _ends(events, pair(events).answers).values())
        return [gap for gap, open_ones in enumerate(depth) if open_ones < self.limit]


def _ends(events: Events, answers: dict[int, int]) -> dict[str, tuple[int, int]]:
    ends: dict[str, tuple[int, int]] = {}
    for call, result in sorted(answers.items()):
        batch = batch_of(events[call])  # type: ignore[arg-type]
        first, last = ends.get(batch, (call, result))
        ends[batch] = (first, max(last, result))
    return ends


def _depths(length: int, spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return how many spans each gap 0 … `length` lies in."""
    change = [0] * (length + 2)
    for first, last in spans:
        change[first + 1] += 1
        change[last + 1] -= 1
    return list(accumulate(change[: length + 1]))
