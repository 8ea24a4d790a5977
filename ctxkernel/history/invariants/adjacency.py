"""The results of a batch directly follow it, in the order of its calls."""

from __future__ import annotations

from ctxkernel.history.events import Events, batch_of
from ctxkernel.history.invariants.property import Property
from ctxkernel.history.pairing import in_order, lay_out, pair


class ResultAdjacency(Property):
    """A batch and its results are adjacent, at the place of the batch's first call.

    While a proposal waits for approval, other cells run before its result arrives; parallel calls end in any order.
    Events between them move behind the batch, so everything before a call stays as the model saw it. This property
    excludes no gap: other properties exclude the gaps inside a batch and between a call and its result.
    """

    local = True

    def enforce(self, events: Events, source: Events) -> Events:
        """Return the events with each batch together, results in call order."""
        if len(events) < 3 or in_order(events):
            return events
        answers = pair(events).answers
        calls = {result: call for call, result in answers.items()}
        calls |= {call: call for call in answers}
        units: dict[str | int, list[int]] = {}  # the places of a batch, or of one other event
        for place in range(len(events)):
            call = events[calls[place]] if place in calls else None
            key = batch_of(call) if call is not None and call.place == "call" else place
            units.setdefault(key, []).append(place)
        laid: list[int] = []
        for unit in units.values():
            laid += unit if len(unit) <= 2 else lay_out(unit, [place for place in unit if place in answers], answers)
        return events if laid == list(range(len(events))) else [events[place] for place in laid]
