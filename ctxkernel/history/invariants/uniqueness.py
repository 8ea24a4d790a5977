"""A call has one result."""

from __future__ import annotations

from ctxkernel.history.events import Events
from ctxkernel.history.invariants.base import Property
from ctxkernel.history.pairing import pair


class ObservationUniqueness(Property):
    """Of several results of a call the first stands.

    A retry after a lost connection, or a worker that ended after it was given up, records a second one; a request
    with both is refused (`each tool_use must have a single result`).
    """

    local = True

    def enforce(self, events: Events, source: Events) -> Events:
        """Leave out all results of a call but the first."""
        if len(events) < 3:
            return events
        ids = [event.tool_call_id for event in events if event.place == "result"]  # type: ignore[union-attr]
        if len(ids) == len(set(ids)):
            return events
        dropped = set(pair(events).duplicates)
        return [event for place, event in enumerate(events) if place not in dropped] if dropped else events
