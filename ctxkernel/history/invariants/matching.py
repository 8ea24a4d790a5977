"""A call has its result, and a result its call."""

from __future__ import annotations

from collections.abc import Iterable

from ctxkernel.history.events import Events
from ctxkernel.history.invariants.base import Property
from ctxkernel.history.pairing import outside, pair


class ToolCallMatching(Property):
    """A call without a result is not shown yet; a result without a call before it is not shown at all.

    Either is refused (`tool_use ids were found without tool_result blocks immediately after`, `unexpected tool_use_id
    found in tool_result blocks`). Seed 001 lets every index stand here; then a cut between a call and its result would
    need a repair, so the gaps between them are none (law 4).
    """

    local = True

    def enforce(self, events: Events, source: Events) -> Events:
        """Leave out calls without results and results without calls."""
        if len(events) <= 2 and (known := _of_few(events)) is not None:
            return known
        # A second result does have its call: that there is one only is not this property's to say.
        answers, _, orphans = pair(events)
        calls = [place for place, event in enumerate(events) if event.place == "call"]
        if len(calls) == len(answers) and not orphans:
            return events
        dropped = {place for place in calls if place not in answers}.union(orphans)
        return [event for place, event in enumerate(events) if place not in dropped]

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """All gaps but those between a call and its result."""
        return outside(len(events), sorted(pair(events).answers.items()))


def _of_few(events: Events) -> Events | None:
    """Return what is left of one event, or of a call and its result: nearly all that a growing view asks for."""
    if len(events) == 1:
        return events if events[0].place == "message" else []
    if events and events[0].place == "call" and events[1].place == "result":
        answered = events[0].tool_call_id == events[1].tool_call_id  # type: ignore[union-attr]
        return events if answered else []
    return None
