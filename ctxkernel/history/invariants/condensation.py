"""Condensed events are not shown; their summaries are shown at their places."""

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
from ctxkernel.history.invariants.property import Property
from ctxkernel.history.pairing import in_order, pair, places_of


class SummaryPlaces:
    """The places of summaries: the given offset at first, and then always beside the same neighbours.

    An offset counts the events that were shown when the condensation came. If an earlier condensation is withdrawn,
    the number of events before that place changes, but its neighbours still identify it.
    """

    def __init__(self) -> None:
        self._beside: dict[str, tuple[str, str]] = {}
        """Summary → the events before and after it when it came; empty at either end."""

    def place(self, summary: Summary, offset: int, shown: Events) -> int:
        """Return the gap in `shown` for `summary`: before its former successor, or else behind its predecessor."""
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
            beside = self._beside.get(after)  # a summary that was removed: use its own successor
        return at


class Condensations(Property):
    """A condensation affects the events that were shown right before it, never later ones.

    So several condensations add up, each summary keeps its place among the remaining events, and a later condensation
    may remove an earlier summary by its id. A withdrawn condensation has no effect at all, but a request that it
    answered stays answered. Condensations, requests and withdrawals are records and are not shown.
    """

    def enforce(self, events: Events, source: Events) -> Events:
        """Apply the condensations in `events`, in their order. Linear in each of the withdrawals."""
        if not any(isinstance(event, Condensation | CondensationRequest | Withdrawal) for event in events):
            return events
        places = SummaryPlaces()
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
                    working = self._step(earlier, working, known, withdrawn, places)
            else:
                working = self._step(event, working, known, withdrawn, places)
        return working

    def _step(
        self,
        event: HistoryEvent,
        working: list[HistoryEvent],
        known: AbstractSet[str],
        withdrawn: AbstractSet[str],
        places: SummaryPlaces,
    ) -> list[HistoryEvent]:
        if isinstance(event, Condensation):
            if event.event_id in withdrawn:
                return working
            return self.apply(event, working, working, lambda kept, before: kept, places)
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
        places: SummaryPlaces,
    ) -> list[HistoryEvent]:
        """Return `working` after the condensation.

        `working` are all events that may still be shown, in the order of their arrival; `shown` are those that are
        shown, which offsets count. `close(events, before)` enforces the other properties. A call that waits for its
        result is kept, unless a call of its batch was removed.
        """
        after, kept = self.remove(set(condensation.forgotten_event_ids), working, shown, close)
        for one, summary in zip(condensation.summaries, condensation.summary_events(), strict=True):
            offset = places.place(summary, one.offset, kept)
            at = places_of(after)
            # An event that a property inserted is shown but not in `after`: use the next one that is in it.
            after.insert(next((at[id(event)] for event in kept[offset:] if id(event) in at), len(after)), summary)
            kept.insert(offset, summary)
            if not in_order(kept):  # a summary within a batch is shown behind it, where the next offset counts it
                kept = list(close(after, after))
        return after

    def remove(
        self, forgotten: AbstractSet[str], working: Events, shown: Events, close: Callable[[Events, Events], Events]
    ) -> tuple[list[HistoryEvent], list[HistoryEvent]]:
        """Return the remaining events of `working` and of `shown`, before a summary is inserted.

        If a call is removed, the whole response is removed, with its results and their duplicates. Otherwise an older
        call with the same id and no result would get one of them.
        """
        torn = {batch_of(event) for event in working if isinstance(event, Action) and event.event_id in forgotten}
        gone = {event.event_id for event in working if isinstance(event, Action) and batch_of(event) in torn}
        if gone:
            answers, duplicates, _ = pair(working)
            call_ids = {event.tool_call_id for event in working if isinstance(event, Action) and event.event_id in gone}
            gone |= {working[result].event_id for call, result in answers.items() if working[call].event_id in gone}
            results = [working[n] for n in duplicates]
            gone |= {one.event_id for one in results if one.place == "result" and one.tool_call_id in call_ids}
        left = [event for event in working if event.event_id not in forgotten and event.event_id not in gone]
        kept = list(close(left, working)) if len(left) < len(working) else list(shown)
        was_shown, is_shown = places_of(shown), places_of(kept)
        after = [event for event in left if id(event) in is_shown or id(event) not in was_shown]
        return after, kept
