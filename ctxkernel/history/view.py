"""The view: the events that a model is shown, updated as the history grows.

Rule 1: the shown events are a function of the appended events and their order (law 3). Reading the view between two
        appends changes nothing.
Rule 2: an append costs only what it touches. A single event touches nothing else; a call or a result touches the
        stretch from the first call of its batch on; a condensation touches the segments of the events it removes, or
        the whole view if a property is not local; a withdrawal touches the whole log.
Rule 3: nothing here recurses, and all work is done at the next read.

The history is divided into segments: a segment is the shortest stretch such that no batch is in two segments. A `local`
property is enforced on one segment at a time, so earlier segments keep their shown events. The properties from the
first non-local one on are enforced on the whole history, at each read after an append.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from ctxkernel.history.boundaries import Boundaries, boundaries
from ctxkernel.history.events import (
    Action,
    Condensation,
    CondensationRequest,
    Events,
    HistoryEvent,
    Withdrawal,
    batch_of,
)
from ctxkernel.history.invariants import PROPERTIES, Condensations, Property
from ctxkernel.history.invariants.condensation import SummaryPlaces

_FINE = 64
"""The number of newest segments that stay separate; older ones are merged into segments of `_COARSE` events."""
_COARSE = 256

Number = int | Fraction
"""The position of an event in the log; a summary that is inserted between two events gets a number between theirs."""


class HistoryView:
    """The events that a model is shown, under a list of properties.

    A view that received the events one by one equals a view that received them all at once. An event whose id is
    already known is ignored, so a log may be replayed onto a view.
    """

    def __init__(self, events: Iterable[HistoryEvent] = (), *, properties: Sequence[Property] = PROPERTIES) -> None:
        self.properties = tuple(properties)
        """In the order in which they are enforced."""
        self.unhandled_request = False
        """Whether a condensation was requested and none followed, withdrawn or not."""
        self._condensations = next((one for one in self.properties if isinstance(one, Condensations)), None)
        rest = [one for one in self.properties if not isinstance(one, Condensations)]
        first_global = next((n for n, one in enumerate(rest) if not one.local), len(rest))
        # Skip properties without an `enforce` of their own.
        self._local = [one.enforce for one in rest[:first_global] if type(one).enforce is not Property.enforce]
        self._global = [one.enforce for one in rest[first_global:]]
        self._known: dict[str, Number] = {}
        """Event id → its last number, for every event that was taken; -1 if it has none."""
        self._log: list[HistoryEvent] = []
        """Every event that was taken; a withdrawal replays it."""
        self._condensed: dict[str, Condensation] = {}
        self._withdrawn: list[Condensation] = []
        self._places = SummaryPlaces()
        self._gone: set[str] = set()
        """Batches that lost calls to a condensation: a later call of such a batch is not taken."""
        self._clear()
        self.extend(events)

    def _clear(self) -> None:
        self._columns = _Columns([], [], [], [], [])
        self._next = 1
        self._batches: dict[str, Number] = {}
        """Batch → the number of its first call."""
        self._calls: dict[str, Number] = {}
        """Call id → the number of the first call of its batch."""
        self._final: Events | None = None
        self._boundaries: Boundaries | None = None

    # -- growing ---------------------------------------------------------------------------------

    def extend(self, events: Iterable[HistoryEvent]) -> None:
        """Append all of `events`."""
        for event in events:
            self.append(event)

    def append(self, event: HistoryEvent) -> None:
        """Take one more event."""
        event_id = event.event_id
        known = self._known
        if event_id in known:
            return
        known[event_id] = -1
        self._log.append(event)
        if event.place != "meta":
            self._take(event)
        elif self._condensations is None:
            if isinstance(event, Condensation | CondensationRequest | Withdrawal):
                self._take(event)
        elif isinstance(event, Condensation):
            self.unhandled_request = False
            self._condensed[event_id] = event
            self._condense(event, self._condensations)
        elif isinstance(event, CondensationRequest):
            self.unhandled_request = True
        elif isinstance(event, Withdrawal) and event.target_id in self._condensed:
            self._withdrawn.append(self._condensed.pop(event.target_id))
            self._replay(self._condensations)

    def _replay(self, by: Condensations) -> None:
        """Rebuild the view from the log, without the withdrawn condensations."""
        self._known = dict.fromkeys(self._known, -1)
        self._gone.clear()
        self._clear()
        for event in self._log:
            if event.place != "meta":
                self._take(event)
            elif event.event_id in self._condensed:
                self._condense(self._condensed[event.event_id], by)

    def _take(self, event: HistoryEvent) -> None:
        end = start = self._next
        if event.place == "call":
            batch = batch_of(event)
            if batch in self._gone:
                return
            start = self._batches.setdefault(batch, end)
            self._calls[event.tool_call_id] = start
        elif event.place == "result":
            start = self._calls.get(event.tool_call_id, end)
        self._next = end + 1
        self._known[event.event_id] = end
        work, numbers, cuts, shown, outs = self._columns
        work.append(event)
        numbers.append(end)
        self._final = self._boundaries = None
        if start == end:
            cuts.append(end)
            return
        # The batch reaches from `start` to here: this is one segment.
        while cuts[-1] > start:
            cuts.pop()
        if len(cuts) <= len(outs):
            first = len(cuts) - 1
            del shown[outs[first] :]
            del outs[first:]

    def _condense(self, condensation: Condensation, by: Condensations) -> None:
        shown = self.events
        if not self._global:
            self._condense_segments(condensation, by)
            return
        work = by.apply(condensation, self._columns.work, list(shown), self._enforce_all, self._places)
        before = self._batches
        self._clear()
        self._gone.update(before.keys() - {batch_of(event) for event in work if isinstance(event, Action)})
        for event in work:
            self._take(event)

    def _condense_segments(self, condensation: Condensation, by: Condensations) -> None:
        """Apply a condensation to the segments that it touches; copy all others."""
        old, new = self._columns.merged(), _Columns([], [], [], [], [])
        forgotten = set(condensation.forgotten_event_ids)
        removed: list[HistoryEvent] = []
        done = 0
        for segment in old.segments_of(forgotten, self._known):
            new.copy(old, done, segment)
            done = segment + 1
            part, shown = old.segment(segment)
            if all(event.event_id in forgotten for event in part):  # the usual case: nothing is left to enforce
                removed += part
                continue
            after, kept = by.remove(forgotten, part, shown, self._enforce_all)
            stays = {id(event) for event in after}
            removed += [event for event in part if id(event) not in stays]
            new.add(after, [self._known[event.event_id] for event in after], kept)
        new.copy(old, done, len(old.cuts))
        self._columns = new
        for event in removed:
            self._known[event.event_id] = -1
            if isinstance(event, Action) and self._calls.get(event.tool_call_id) == self._batches.get(batch_of(event)):
                self._calls.pop(event.tool_call_id, None)
        gone = {batch_of(event) for event in removed if isinstance(event, Action)}
        self._gone |= gone
        for batch in gone:
            self._batches.pop(batch, None)
        for one, summary in zip(condensation.summaries, condensation.summary_events(), strict=True):
            offset = self._places.place(summary, one.offset, new.shown)
            number = new.insert(summary, offset, self._next, self._enforce_all)
            self._next += number == self._next
            self._known[summary.event_id] = number
        self._final = self._boundaries = None

    # -- reading ---------------------------------------------------------------------------------

    @property
    def events(self) -> Sequence[HistoryEvent]:
        """The shown events, in order. Do not change the list; it is valid until the next append."""
        final = self._final
        if final is None:
            if len(self._columns.outs) < len(self._columns.cuts):
                self._catch_up()
            final = self._columns.shown
            for enforce in self._global:
                final = enforce(final, self._columns.work)
            self._final = final
        return final

    def __len__(self) -> int:
        return len(self.events)

    @property
    def condensations(self) -> tuple[Condensation, ...]:
        """The condensations in force, in order: those that can be withdrawn."""
        return tuple(self._condensed.values())

    @property
    def restored(self) -> frozenset[str]:
        """The ids that withdrawn condensations had removed: the user wants to see these events."""
        return frozenset(chain.from_iterable(one.forgotten_event_ids for one in self._withdrawn))

    @property
    def waiting(self) -> tuple[Action, ...]:
        """The calls that are not shown because they, or others of their batch, have no result yet; in order."""
        shown = {id(event) for event in self.events if event.place == "call"}
        return tuple(event for event in self._columns.work if isinstance(event, Action) and id(event) not in shown)

    @property
    def boundaries(self) -> Boundaries:
        """The gaps in `events` where every property allows a cut."""
        if self._boundaries is None:
            self._boundaries = boundaries(self.events, self.properties)
        return self._boundaries

    @property
    def manipulation_indices(self) -> Sequence[int]:
        """`boundaries` as numbers, in order."""
        return self.boundaries.indices

    def _catch_up(self) -> None:
        """Enforce the local properties on the segments that were not read yet."""
        work, numbers, cuts, shown, outs = self._columns
        read = len(outs)
        if len(cuts) - read > 2 * _FINE:  # a pass over fewer segments costs less per event
            merged: list[Number] = []
            for cut in cuts[read:-_FINE]:
                if not merged or cut - merged[-1] >= _COARSE:
                    merged.append(cut)
            cuts[read:-_FINE] = merged
        last = len(cuts) - 1
        end = bisect_left(numbers, cuts[read])
        for segment in range(read, len(cuts)):
            begin = end
            end = bisect_left(numbers, cuts[segment + 1], begin) if segment < last else len(work)
            outs.append(len(shown))
            if end - begin == 1 and work[begin].place == "message":
                shown.append(work[begin])
                continue
            part = source = work[begin:end]
            for enforce in self._local:
                part = enforce(part, source)
                if not part:
                    break  # waiting calls: no property adds to an empty list
            shown += part

    def _enforce_all(self, events: Events, source: Events) -> Events:
        for enforce in (*self._local, *self._global):
            events = enforce(events, source)
        return events


class _Columns(NamedTuple):
    """The events and segments of a view, as parallel lists."""

    work: list[HistoryEvent]
    """All events that may be shown."""
    numbers: list[Number]
    """The number of each event in `work`, ascending."""
    cuts: list[Number]
    """The number at which each segment begins."""
    shown: list[HistoryEvent]
    """The events that the local properties leave of the segments that were read."""
    outs: list[int]
    """The place in `shown` at which each segment begins: a segment was read if it has an entry here."""

    def place(self, segment: int) -> int:
        """Return where in `work` a segment begins; the end for the one after the last."""
        return bisect_left(self.numbers, self.cuts[segment]) if segment < len(self.cuts) else len(self.work)

    def out(self, segment: int) -> int:
        """Return where in `shown` a segment begins."""
        return self.outs[segment] if segment < len(self.outs) else len(self.shown)

    def segment(self, segment: int) -> tuple[Events, Events]:
        """Return the events of a segment, and those that are shown."""
        part = self.work[self.place(segment) : self.place(segment + 1)]
        return part, self.shown[self.out(segment) : self.out(segment + 1)]

    def segments_of(self, event_ids: Iterable[str], known: Mapping[str, Number]) -> list[int]:
        """Return the segments that contain these events, in order. `known` may have numbers of removed events."""
        segments: set[int] = set()
        for event_id in event_ids:
            number = known.get(event_id, -1)
            place = bisect_left(self.numbers, number)
            if place < len(self.work) and self.work[place].event_id == event_id:
                segments.add(bisect_right(self.cuts, number) - 1)
        return sorted(segments)

    def merged(self) -> _Columns:
        """Return the columns with old segments merged, so that a condensation copies few."""
        end = len(self.cuts) - _FINE
        if end < 2 * (len(self.shown) // _COARSE + 1):
            return self
        kept = [0]
        for segment in range(1, end):
            if self.outs[segment] - self.outs[kept[-1]] >= _COARSE:
                kept.append(segment)
        kept += range(end, len(self.cuts))
        return self._replace(cuts=[self.cuts[n] for n in kept], outs=[self.outs[n] for n in kept])

    def copy(self, other: _Columns, first: int, end: int) -> None:
        """Add the segments `first` … `end` of other columns, all read."""
        begin, stop = other.place(first), other.place(end)
        shift = len(self.shown) - other.out(first)
        self.work.extend(other.work[begin:stop])
        self.numbers.extend(other.numbers[begin:stop])
        self.cuts.extend(other.cuts[first:end])
        self.outs.extend([out + shift for out in other.outs[first:end]])
        self.shown.extend(other.shown[other.out(first) : other.out(end)])

    def add(self, events: Events, numbers: Sequence[Number], shown: Events) -> None:
        """Add one segment, unless it is empty."""
        if events:
            self.cuts.append(numbers[0])
            self.outs.append(len(self.shown))
            self.work.extend(events)
            self.numbers.extend(numbers)
            self.shown.extend(shown)

    def insert(
        self, event: HistoryEvent, offset: int, last: int, enforce: Callable[[Events, Events], Events]
    ) -> Number:
        """Insert an event at `offset` of the shown events, and return its number.

        `last` is the number for an event at the end; `enforce` returns the shown events of a segment that changes.
        """
        if offset == len(self.shown):
            self.add([event], [last], [event])
            return last
        segment = bisect_right(self.outs, offset) - 1
        begin, end = self.place(segment), self.place(segment + 1)
        anchor = self.shown[offset]
        place = next(at for at in range(begin, end) if self.work[at] is anchor)
        number = Fraction((self.numbers[place - 1] if place else 0) + self.numbers[place]) / 2
        self.work.insert(place, event)
        self.numbers.insert(place, number)
        first = self.outs[segment]
        if offset == first and place == begin:
            self.cuts.insert(segment, number)
            self.shown.insert(offset, event)
            self.outs[segment:] = [first, *[out + 1 for out in self.outs[segment:]]]
            return number
        part = self.work[begin : end + 1]
        shown = enforce(part, part)
        more = len(shown) - (self.out(segment + 1) - first)
        self.shown[first : self.out(segment + 1)] = shown
        self.outs[segment + 1 :] = [out + more for out in self.outs[segment + 1 :]]
        return number
