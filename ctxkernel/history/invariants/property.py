"""The interface of a property of the history: one rule for the events that a model is shown.

A property of your own is a class with the methods that it needs:

    class NoSecrets(Property):
        '''Hide statements that name a secret.'''

        def enforce(self, events, source):
            return [event for event in events if "hunter2" not in getattr(event, "source", "")]

    view = HistoryView(events, properties=(*PROPERTIES, NoSecrets()))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ctxkernel.history.events import Events


class Property(Protocol):
    """One rule. Every method has a default that restricts nothing.

    Holds for each property: it is pure and linear in the number of events, and `enforce` is idempotent.
    """

    local: bool = False
    """Whether `enforce` depends on calls and their results only, and on each batch separately unless batches
    interleave. Then a view may enforce it only on the part of the history that an event touches."""

    def enforce(self, events: Events, source: Events) -> Events:
        """Return the events that obey the rule: some removed, reordered or inserted; `events` itself if unchanged.

        `source` is the input of the first property in the list, so that a property can see which events were removed.
        """
        return events

    def validate(self, events: Events, source: Events | None = None) -> tuple[str, ...]:
        """Return one sentence for each violation of the rule. `source` as for `enforce`."""
        obeying = self.enforce(events, events if source is None else source)
        if obeying is events or list(map(id, obeying)) == list(map(id, events)):
            return ()
        kept = set(map(id, obeying))
        gone = [event.event_id for event in events if id(event) not in kept]
        name = type(self).__name__
        if gone:
            return tuple(f"{name}: {event_id} is not allowed at its place" for event_id in gone)
        return (f"{name}: events are missing or in the wrong order",)

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """Return the gaps, 0 … len(events), in order, where events that obey the rule can be cut.

        All events between two such gaps can be removed without violating the rule.
        """
        return range(len(events) + 1)
