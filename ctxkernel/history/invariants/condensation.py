"""What was forgotten is not shown, and its summaries stand where they were put."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from ctxkernel.history.events import (
    Action,
    Condensation,
    CondensationRequest,
    Events,
    HistoryEvent,
    Summary,
    Withdrawal,
    batch_of,
)
from ctxkernel.history.invariants.base import Property
from ctxkernel.history.pairing import in_order, pair, places_of


class Stands:
    """Where summaries stand: at their offsets when they come, and beside the same neighbours ever after.

    An offset counts what was shown when its condensation came. Where an earlier condensation is withdrawn, another
    number of events stands before that place; its neighbours still say where it is.
    """

    def __init__(self) -> None:
        self._beside: dict[str, tuple[str, str]] = {}
        """Summary → what it was put between when it came; empty at either end."""

    def place(self, summary: Summary, offset: int, shown: Events) -> int:
        """Return the gap in `shown` where `summary` is to stand: before what followed it, else behind what led it."""
        at = min(max(offset, 0), len(shown))
        found = (shown[at - 1].event_id if at else "", shown[at].event_id if at < len(shown) else "")
        known = self._beside.setdefault(summary.event_id, found)
        if known == found:
            return at
        places = {event.event_id: n for n, event in enumerate(shown)}
        beside: tuple[str, str] | None = known
        while beside is not None:
            before, after = beside
            if not after:
                return len(shown)
            if after in places:
                return places[after]
            if not before:
                return 0
            if before in places:
                return places[before] + 1
            beside = self._beside.get(after)  # a summary that is gone: look past it
        return at


class Condensations(Property):
    """A condensation takes effect where it stands: on what was shown right before it, never on what comes later.

    So several condensations stack, each summary keeps its place among what is left, and a later condensation may
    forget an earlier summary by its id. One that was withdrawn has no effect, before its withdrawal or after; a request
    that it answered stays answered. Condensations, requests and withdrawals are records and not shown themselves.
    """

    def enforce(self, events: Events, source: Events) -> Events:
        """Apply the condensations in `events`, in their order. Linear in each of the withdrawals."""
        if not any(isinstance(event, Condensation | CondensationRequest | Withdrawal) for event in events):
            return events
        stands = Stands()
        known: set[str] = set()
        withdrawn: set[str] = set()
        working: list[HistoryEvent] = []
        for n, event in enumerate(events):
            if isinstance(event, Condensation):
                known.add(event.event_id)
            if isinstance(event, Withdrawal) and event.target_id in known - withdrawn:
                withdrawn.add(event.target_id)
                working = []
                for earlier in events[:n]:
                    working = self._step(earlier, working, known, withdrawn, stands)
            else:
                working = self._step(event, working, known, withdrawn, stands)
        return working

    def _step(
        self,
        event: HistoryEvent,
        working: list[HistoryEvent],
        known: AbstractSet[str],
        withdrawn: AbstractSet[str],
        stands: Stands,
    ) -> list[HistoryEvent]:
        if isinstance(event, Condensation):
            if event.event_id in withdrawn:
                return working
            return self.apply(event, working, working, lambda kept, before: kept, stands)
        withdraws = isinstance(event, Withdrawal) and event.target_id in known
        if not withdraws and not isinstance(event, CondensationRequest):
            working.append(event)
        return working

    def apply(
        self,
        condensation: Condensation,
        working: Events,
        shown: Events,
        close: Callable[[Events, Events], Events],
        stands: Stands,
    ) -> list[HistoryEvent]:
        """Return `working` after the condensation.

        `working` is all that may still be shown, in the order of its coming; `shown` is what is shown of it, which
        offsets count; `close` returns what the other properties leave of the first of its arguments, the second being
        what it was before; `stands` says where each summary goes. What waits for a result is kept, unless a call of
        its batch was forgotten.
        """
        after, kept = self.leave(set(condensation.forgotten_event_ids), working, shown, close)
        for one, summary in zip(condensation.summaries, condensation.summary_events(), strict=True):
            offset = stands.place(summary, one.offset, kept)
            places = places_of(after)
            # What a property put in, as a filler, is shown and yet not here: the next event that is here.
            place = next((places[id(event)] for event in kept[offset:] if id(event) in places), len(after))
            after.insert(place, summary)
            kept.insert(offset, summary)
            if not in_order(kept):  # put within a batch, it stands behind it: so the next offset counts it there
                kept = list(close(after, after))
        return after

    def leave(
        self, forgotten: AbstractSet[str], working: Events, shown: Events, close: Callable[[Events, Events], Events]
    ) -> tuple[list[HistoryEvent], list[HistoryEvent]]:
        """Return what remains of `working` and of `shown`, before any summary is put in.

        A response of which a call is forgotten goes as a whole, with its results, second ones too: else an older call
        that had the same id, and never a result, would be given one of them.
        """
        torn = {batch_of(event) for event in working if isinstance(event, Action) and event.event_id in forgotten}
        gone = {event.event_id for event in working if isinstance(event, Action) and batch_of(event) in torn}
        if gone:
            answers, duplicates, _ = pair(working)
            call_ids = {event.tool_call_id for event in working if isinstance(event, Action) and event.event_id in gone}
            gone |= {working[result].event_id for call, result in answers.items() if working[call].event_id in gone}
            gone |= {working[n].event_id for n in duplicates if working[n].tool_call_id in call_ids}  # type: ignore[union-attr]
        left = [event for event in working if event.event_id not in forgotten and event.event_id not in gone]
        kept = list(close(left, working)) if len(left) < len(working) else list(shown)
        was_shown, is_shown = places_of(shown), places_of(kept)
        after = [event for event in left if id(event) in is_shown or id(event) not in was_shown]
        return after, kept


def unhandled_request(events: Events) -> bool:
    """Whether a condensation was asked for and none came after that, be it withdrawn or not."""
    for event in reversed(events):
        if isinstance(event, Condensation):
            return False
        if isinstance(event, CondensationRequest):
            return True
    return False
