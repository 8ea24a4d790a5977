"""A call has one result."""

from __future__ import annotations

from ctxkernel.history.events import Events
from ctxkernel.history.invariants.property import Property
from ctxkernel.history.pairing import pair


class ObservationUniqueness(Property):
    """Of several results of a call only the first is shown.

    A retry after a lost connection, or a worker that ended after its deadline, records a second result. The API refuses
    a request with both (`each tool_use must have a single result`).
    """

    local = True

    def enforce(self, events: Events, source: Events) -> Events:
        """Remove all results of a call except the first."""
        if len(events) < 3:
            return events
        ids = [event.tool_call_id for event in events if event.place == "result"]
        if len(ids) == len(set(ids)):
            return events
        dropped = set(pair(events).duplicates)
        return [event for place, event in enumerate(events) if place not in dropped] if dropped else events
