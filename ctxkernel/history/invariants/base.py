"""What a property of the history is: one rule that the events which a model is shown must obey.

A property of your own is a class with the methods that it needs:

    class NoSecrets(Property):
        '''A statement that names a secret is not shown.'''

        def enforce(self, events, source):
            return [event for event in events if "hunter2" not in getattr(event, "source", "")]

    view = HistoryView(events, properties=(*PROPERTIES, NoSecrets()))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ctxkernel.history.events import Events


class Property(Protocol):
    """One rule. Every method has a default, which restricts nothing; a property overrides what it needs.

    Holds for each: linear in the number of events; pure; `enforce` of what `enforce` gave changes nothing.
    """

    local: bool = False
    """Whether `enforce` looks at calls and their results only, and never from one batch to another, but for batches
    that interleave. Then a view may enforce it on the part of the history that an event touches."""

    def enforce(self, events: Events, source: Events) -> Events:
        """Return the events that obey the rule: fewer of them, in another order, or with others put in.

        `source` is what the first property of the list was handed, so that one can see what is gone. Returns `events`
        itself where nothing was to do.
        """
        return events

    def validate(self, events: Events, source: Events | None = None) -> tuple[str, ...]:
        """Return what breaks the rule, a sentence each; empty where it holds. `source` as for `enforce`."""
        obeying = self.enforce(events, events if source is None else source)
        if obeying is events or list(map(id, obeying)) == list(map(id, events)):
            return ()
        kept = set(map(id, obeying))
        gone = [event.event_id for event in events if id(event) not in kept]
        name = type(self).__name__
        if gone:
            return tuple(f"{name}: {event_id} cannot stand where it does" for event_id in gone)
        return (f"{name}: the order, or something that is missing, breaks it",)

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """Return the gaps, 0 … len(events), in order, where events that obey the rule can be cut.

        Whatever lies between two such gaps can be taken out, and the rule still holds.
        """
        return range(len(events) + 1)
