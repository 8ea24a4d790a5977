"""The calls of one response are shown together or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ctxkernel.history.events import Events, batch_of
from ctxkernel.history.invariants.property import Property
from ctxkernel.history.pairing import outside, pair, spans_of_batches


class BatchAtomicity(Property):
    """If one call of a response is removed, all its calls and their results are removed.

    The model decided on them together: a part of them would be a response that the model never gave, and its thinking
    is signed for the whole response.
    """

    local = True

    def enforce(self, events: Events, source: Events) -> Events:
        """Remove the batches of which `source` has more calls than `events`."""
        if events is source:
            return events
        missing = Counter(batch_of(event) for event in source if event.place == "call")
        missing.subtract(batch_of(event) for event in events if event.place == "call")
        incomplete = {batch for batch, count in missing.items() if count}
        calls = {n for n, event in enumerate(events) if event.place == "call" and batch_of(event) in incomplete}
        if not calls:
            return events
        dropped = calls.union(result for call, result in pair(events).answers.items() if call in calls)
        return [event for place, event in enumerate(events) if place not in dropped]

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """Return all gaps except those between the first and the last call of a batch."""
        return outside(len(events), spans_of_batches(events))
