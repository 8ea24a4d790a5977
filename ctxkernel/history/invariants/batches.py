"""The calls of one response are shown together or not at all."""

from __future__ import annotations

from collections.abc import Iterable

from ctxkernel.history.events import Events, batch_of
from ctxkernel.history.invariants.base import Property
from ctxkernel.history.pairing import outside, pair, spans_of_batches


class BatchAtomicity(Property):
    """Where one call of a response is left out, all of them are, and their results.

    They were decided on together: half of them is a response that the model never gave, and its thinking is signed for
    the whole of it.
    """

    local = True

    def enforce(self, events: Events, source: Events) -> Events:
        """Leave out the batches of which `source` has more calls than `events`."""
        if events is source:
            return events
        missing: dict[str, int] = {}
        for event in source:
            if event.place == "call":
                batch = event.llm_response_id or batch_of(event)  # type: ignore[arg-type, union-attr]
                missing[batch] = missing.get(batch, 0) + 1
        for event in events:
            if event.place == "call":
                missing[event.llm_response_id or batch_of(event)] -= 1  # type: ignore[arg-type, union-attr]
        halves = {batch for batch, count in missing.items() if count}
        return _without(events, halves) if halves else events

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """All gaps but those between the first and the last call of a batch."""
        return outside(len(events), spans_of_batches(events))


def _without(events: Events, batches: set[str]) -> Events:
    calls = [
        place
        for place, event in enumerate(events)
        if event.place == "call" and batch_of(event) in batches  # type: ignore[arg-type]
    ]
    answers = pair(events).answers
    dropped = {*calls, *(answers[place] for place in calls if place in answers)}
    return [event for place, event in enumerate(events) if place not in dropped] if dropped else events
