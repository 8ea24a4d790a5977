"""What was forgotten is not shown, and its summaries stand where they were put."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from ctxkernel.history.events import Action, Condensation, CondensationRequest, Events, HistoryEvent, batch_of
from ctxkernel.history.invariants.base import Property
from ctxkernel.history.pairing import pair, places_of


class Condensations(Property):
    """A condensation takes effect where it stands: on what was shown right before it, never on what comes later.

    So several condensations stack, each summary keeps its place among what is left, and a later condensation may
    forget an earlier summary by its id. Condensations and requests are records and not shown themselves.
    """

    def enforce(self, events: Events, source: Events) -> Events:
        """Apply the condensations in `events`, in their order."""
        if not any(isinstance(event, Condensation | CondensationRequest) for event in events):
            return events
        working: list[HistoryEvent] = []
        for event in events:
            if isinstance(event, Condensation):
                working = self.apply(event, working, working, lambda kept, before: kept)
            elif not isinstance(event, CondensationRequest):
                working.append(event)
        return working

    def apply(
        self,
        condensation: Condensation,
        working: Events,
        shown: Events,
        close: Callable[[Events, Events], Events],
    ) -> list[HistoryEvent]:
        """Return `working` after the condensation.

        `working` is all that may still be shown, in the order of its coming; `shown` is what is shown of it, which
        offsets count; `close` returns what the other properties leave of the first of its arguments, the second being
        what it was before. What waits for a result is kept, unless a call of its batch was forgotten.
        """
        after, kept = self.leave(set(condensation.forgotten_event_ids), working, shown, close)
        for one, summary in zip(condensation.summaries, condensation.summary_events(), strict=True):
            offset = min(max(one.offset, 0), len(kept))
            stands = places_of(after)
            # What a property put in, as a filler, is shown and yet not here: the next event that is here.
            place = next((stands[id(event)] for event in kept[offset:] if id(event) in stands), len(after))
            after.insert(place, summary)
            kept.insert(offset, summary)
        return after

    def leave(
        self, forgotten: AbstractSet[str], working: Events, shown: Events, close: Callable[[Events, Events], Events]
    ) -> tuple[list[HistoryEvent], list[HistoryEvent]]:
        """Return what remains of `working` and of `shown`, before any summary is put in.

        A response of which a call is forgotten goes as a whole, with its results: else an older call that had the same
        id, and never a result, would be given one of them.
        """
        torn = {batch_of(event) for event in working if isinstance(event, Action) and event.event_id in forgotten}
        gone = {event.event_id for event in working if isinstance(event, Action) and batch_of(event) in torn}
        if gone:
            answers = pair(working).answers.items()
            gone |= {working[result].event_id for call, result in answers if working[call].event_id in gone}
        left = [event for event in working if event.event_id not in forgotten and event.event_id not in gone]
        kept = list(close(left, working)) if len(left) < len(working) else list(shown)
        was_shown, is_shown = places_of(shown), places_of(kept)
        after = [event for event in left if id(event) in is_shown or id(event) not in was_shown]
        return after, kept


def unhandled_request(events: Events) -> bool:
    """Whether a condensation was asked for and none came after that."""
    for event in reversed(events):
        if isinstance(event, Condensation):
            return False
        if isinstance(event, CondensationRequest):
            return True
    return False
