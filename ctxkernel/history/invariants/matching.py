"""A call has its result, and a result its call."""

from __future__ import annotations

from collections.abc import Iterable

from ctxkernel.history.events import Events
from ctxkernel.history.invariants.property import Property
from ctxkernel.history.pairing import outside, pair


class ToolCallMatching(Property):
    """A call is not shown before its result exists; a result without a call before it is never shown.

    The API refuses both (`tool_use ids were found without tool_result blocks immediately after`, `unexpected
    tool_use_id found in tool_result blocks`). Seed 001 allows every index here; but a cut between a call and its result
    would need a repair, so the gaps between them are excluded (law 4).
    """

    local = True

    def enforce(self, events: Events, source: Events) -> Events:
        """Remove calls without results and results without calls."""
        if len(events) == 2 and events[0].place == "call" and events[1].place == "result":  # nearly always
            return events if events[0].tool_call_id == events[1].tool_call_id else []
        # A second result has a call, too: `ObservationUniqueness` removes it.
        answers, _, orphans = pair(events)
        calls = [place for place, event in enumerate(events) if event.place == "call"]
        if len(calls) == len(answers) and not orphans:
            return events
        dropped = {place for place in calls if place not in answers}.union(orphans)
        return [event for place, event in enumerate(events) if place not in dropped]

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """Return all gaps except those between a call and its result."""
        return outside(len(events), sorted(pair(events).answers.items()))
