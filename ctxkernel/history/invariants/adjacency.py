"""The results of a batch follow it at once, in the order of its calls."""

from __future__ import annotations

from ctxkernel.history.events import Events, batch_of
from ctxkernel.history.invariants.base import Property
from ctxkernel.history.pairing import in_order, lay_out, pair


class ResultAdjacency(Property):
    """A batch and its results stand at the place of its first call, with nothing between them.

    A proposal that waits for approval lets other cells run before its result comes; parallel calls end in any order.
    What stood between moves behind the batch: what comes before a call stays as the model saw it. No gap is excluded
    here: the gaps within a batch and between call and result are those of the properties that say so.
    """

    local = True

    def enforce(self, events: Events, source: Events) -> Events:
        """Gather the events of each batch, results in call order."""
        if len(events) < 3 or in_order(events):
            return events
        answers = pair(events).answers
        owner = {result: call for call, result in answers.items()}
        units: dict[str, list[int]] = {}
        at: dict[int, list[int]] = {}  # the first place of a unit → the unit; other places of it are absent
        order: list[int] = []
        for place, event in enumerate(events):
            if event.place == "call" and place in answers:
                batch = event.llm_response_id or batch_of(event)  # type: ignore[arg-type, union-attr]
            elif place in owner:
                call = events[owner[place]]
                batch = call.llm_response_id or batch_of(call)  # type: ignore[arg-type, union-attr]
            else:
                order.append(place)
                continue
            unit = units.get(batch)
            if unit is None:
                units[batch] = at[place] = unit = []
                order.append(place)
            unit.append(place)
        laid: list[int] = []
        for place in order:
            unit = at.get(place)
            if unit is None:
                laid.append(place)
            elif len(unit) == 2:
                laid += unit
            else:
                laid += lay_out(unit, [place for place in unit if place in answers], answers)
        return events if laid == list(range(len(events))) else [events[place] for place in laid]
