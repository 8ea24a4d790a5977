"""The view: the events that a model is shown, kept as the history grows.

Rule 1: what is shown is a function of the events that were appended, in their order (law 3). How often it was read
        between them changes nothing.
Rule 2: an append costs what it touches. An event that stands alone touches nothing else; a call or a result touches the
        stretch from the first call of its batch on; a condensation the segments from the first to the last of which it
        forgets, or the whole view where a property is not local; a withdrawal the whole log.
Rule 3: nothing here recurses, and nothing is done before somebody reads.

The history lies in segments: a segment is the shortest stretch such that no batch lies in two. A property that is
`local` is enforced on a segment at a time, so what is shown of the segments before stays; the properties from the
first that is not local on are enforced on the whole, at each read after an append.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from ctxkernel.history.invariants.condensation import Stands

_FINE = 64
"""Segments at the end that are kept apart when many are read at once; older ones are joined, to `_COARSE` events."""
_COARSE = 256
_STEP = 1024
"""Between the numbers of two events that came one after the other: room for summaries."""


class HistoryView:
    """The events that a model is shown, under a list of properties.

    Holds at every prefix: a view that was given the events one by one, and one that was given all at once, show the
    same. An event whose id was seen before is not taken again, so a log may be replayed onto a view.
    """

    def __init__(self, events: Iterable[HistoryEvent] = (), *, properties: Sequence[Property] = PROPERTIES) -> None:
        self.properties = tuple(properties)
        """In the order in which they are enforced."""
        condensing = [one for one in self.properties if isinstance(one, Condensations)]
        self._condensations = condensing[0] if condensing else None
        rest = [one for one in self.properties if not isinstance(one, Condensations)]
        first_global = next((n for n, one in enumerate(rest) if not one.local), len(rest))
        # A property that never overrode `enforce` has none: it costs nothing then.
        enforcing = [one for one in rest[:first_global] if type(one).enforce is not Property.enforce]
        self._local = tuple(one.enforce for one in enforcing)
        self._global = tuple(rest[first_global:])
        self._known: dict[str, int] = {}
        """Event id → the number that it had last, for every event that was taken; -1 where it has none."""
        self._log: list[HistoryEvent] = []
        """Every event that was taken: what a withdrawal is played from."""
        self._condensed: dict[str, Condensation] = {}
        self._withdrawn: dict[str, Condensation] = {}
        self._stands = Stands()
        self._gone: set[str] = set()
        """Batches of which a condensation took calls: one more call of them would be half of a response."""
        self._unhandled = False
        self._clear()
        self.extend(events)

    def _clear(self) -> None:
        self._work: list[HistoryEvent] = []
        self._numbers: list[int] = []
        """The number of each event in `_work`: they grow, and stay when others are forgotten."""
        self._next = _STEP
        self._shown: list[HistoryEvent] = []
        """What the local properties leave of the segments that were read."""
        self._cuts: list[int] = []
        """The number that each segment begins with."""
        self._outs: list[int] = []
        """Where in `_shown` each segment that was read begins: a segment is read if it has an entry here."""
        self._batches: dict[str, int] = {}
        """Batch → the number of its first call."""
        self._calls: dict[str, int] = {}
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
        place = event.place
        if place != "meta":
            self._take(event, place)
        elif self._condensations is None:
            if isinstance(event, Condensation | CondensationRequest | Withdrawal):
                self._take(event, "message")
        elif isinstance(event, Condensation):
            self._unhandled = False
            self._condensed[event_id] = event
            self._condense(event, self._condensations)
        elif isinstance(event, CondensationRequest):
            self._unhandled = True
        elif isinstance(event, Withdrawal) and event.target_id in self._condensed:
            self._withdrawn[event.target_id] = self._condensed.pop(event.target_id)
            self._replay(self._condensations)

    def _replay(self, by: Condensations) -> None:
        """Build everything again from the log, without the condensations that were withdrawn."""
        self._known = dict.fromkeys(self._known, -1)
        self._gone.clear()
        self._clear()
        for event in self._log:
            if event.place != "meta":
                self._take(event, event.place)
            elif event.event_id in self._condensed:
                self._condense(self._condensed[event.event_id], by)

    def _take(self, event: HistoryEvent, place: str) -> None:
        end = start = self._next
        if place == "call":
            batch = event.llm_response_id or batch_of(event)  # type: ignore[union-attr, arg-type]
            if batch in self._gone:
                return
            start = self._batches.setdefault(batch, end)
            self._calls[event.tool_call_id] = start  # type: ignore[union-attr]
        elif place == "result":
            start = self._calls.get(event.tool_call_id, end)  # type: ignore[union-attr]
        self._next = end + _STEP
        self._known[event.event_id] = end
        self._work.append(event)
        self._numbers.append(end)
        self._final = self._boundaries = None
        cuts = self._cuts
        if start == end:
            cuts.append(end)
            return
        # The batch reaches from `start` to here: one segment.
        while cuts[-1] > start:
            cuts.pop()
        outs = self._outs
        if len(cuts) <= len(outs):
            first = len(cuts) - 1
            del self._shown[outs[first] :]
            del outs[first:]

    def _condense(self, condensation: Condensation, by: Condensations) -> None:
        shown = self.events
        if not self._global:
            self._condense_in_place(condensation, by)
            return
        work = by.apply(condensation, self._work, list(shown), self._enforce_all, self._stands)
        before = self._batches
        self._clear()
        self._gone.update(before.keys() - {batch_of(event) for event in work if isinstance(event, Action)})
        for event in work:
            self._take(event, event.place)

    def _condense_in_place(self, condensation: Condensation, by: Condensations) -> None:
        """Apply a condensation to the segments that it touches only; all others stay as they are."""
        self._join_read()
        forgotten = set(condensation.forgotten_event_ids)
        columns = _Columns(self._work, self._numbers, self._cuts, self._shown, self._outs)
        removed: list[HistoryEvent] = []
        touched = columns.segments_of(forgotten, self._known)
        new = _Columns([], [], [], [], [])  # what comes in the place of the segments from the first of them to the last
        done = touched[0] if touched else 0
        for segment in touched:
            new.copy(columns, done, segment)
            done = segment + 1
            part, shown = columns.segment(segment)
            if all(event.event_id in forgotten for event in part):  # as it nearly always is: nothing is left to enforce
                removed += part
                continue
            after, kept = by.leave(forgotten, part, shown, self._enforce_all)
            stays = {id(event) for event in after}
            removed += [event for event in part if id(event) not in stays]
            new.add(after, [self._known[event.event_id] for event in after], kept)
        if touched:
            columns.replace(touched[0], done, new)
        for event in removed:
            self._known[event.event_id] = -1
            if isinstance(event, Action):
                batch = batch_of(event)
                start = self._batches.get(batch)
                if self._calls.get(event.tool_call_id) == start:
                    self._calls.pop(event.tool_call_id, None)
        for event in removed:
            if isinstance(event, Action):
                self._batches.pop(batch_of(event), None)
                self._gone.add(batch_of(event))
        for one, summary in zip(condensation.summaries, condensation.summary_events(), strict=True):
            offset = self._stands.place(summary, one.offset, columns.shown)
            number = columns.insert(summary, offset, self._next, self._enforce_all)
            if number is None:
                self._renumber()
                number = columns.insert(summary, offset, self._next, self._enforce_all)
                assert number is not None
            if number == self._next:
                self._next += _STEP
            self._known[summary.event_id] = number
        self._final = self._boundaries = None

    def _join_read(self) -> None:
        """Join old segments that were read: what is done for each segment after a cut is then done for few."""
        cuts, outs = self._cuts, self._outs
        end = len(cuts) - _FINE
        if end < 2 * (len(self._shown) // _COARSE + 1):
            return
        kept = [0]
        for segment in range(1, end):
            if outs[segment] - outs[kept[-1]] >= _COARSE:
                kept.append(segment)
        cuts[:end] = [cuts[segment] for segment in kept]
        outs[:end] = [outs[segment] for segment in kept]

    def _renumber(self) -> None:
        """Make room between all numbers. A number that is gone becomes that of what stands before it."""
        old = list(self._numbers)

        def new(number: int) -> int:
            return _STEP * bisect_right(old, number)

        self._numbers[:] = range(_STEP, _STEP * (len(old) + 1), _STEP)
        self._next = _STEP * (len(old) + 1)
        self._cuts[:] = map(new, self._cuts)
        self._batches = {batch: new(number) for batch, number in self._batches.items()}
        self._calls = {call_id: new(number) for call_id, number in self._calls.items()}
        self._known.update((event.event_id, number) for event, number in zip(self._work, self._numbers, strict=True))

    # -- reading ---------------------------------------------------------------------------------

    @property
    def events(self) -> Sequence[HistoryEvent]:
        """What is shown, in order. Not to be changed; it is good until the next append: copy it to keep it."""
        final = self._final
        if final is None:
            if len(self._outs) < len(self._cuts):
                self._catch_up()
            final = self._shown
            for one in self._global:
                final = one.enforce(final, self._work)
            self._final = final
        return final

    def __len__(self) -> int:
        return len(self.events)

    @property
    def unhandled_request(self) -> bool:
        """Whether a condensation was asked for and none came after that, be it withdrawn or not."""
        return self._unhandled

    @property
    def condensations(self) -> tuple[Condensation, ...]:
        """Those in force, in order: what can be withdrawn."""
        return tuple(self._condensed.values())

    @property
    def restored(self) -> frozenset[str]:
        """The ids that withdrawn condensations had forgotten: whoever took one back wants to see these."""
        return frozenset(chain.from_iterable(one.forgotten_event_ids for one in self._withdrawn.values()))

    @property
    def waiting(self) -> tuple[Action, ...]:
        """The calls that are not shown, since they, or others of their batch, have no result yet; in order."""
        shown = {id(event) for event in self.events if event.place == "call"}
        return tuple(event for event in self._work if isinstance(event, Action) and id(event) not in shown)

    @property
    def boundaries(self) -> Boundaries:
        """The gaps in `events` that every property allows to cut at."""
        if self._boundaries is None:
            self._boundaries = boundaries(self.events, self.properties)
        return self._boundaries

    @property
    def manipulation_indices(self) -> Sequence[int]:
        """`boundaries` as numbers, in order."""
        return self.boundaries.indices

    def find_next(self, threshold: int, strict: bool = False) -> int:
        """Return the first manipulation index ≥ `threshold`, as `Boundaries.find_next`."""
        return self.boundaries.find_next(threshold, strict)

    def _catch_up(self) -> None:
        work, cuts, outs, shown = self._work, self._cuts, self._outs, self._shown
        read = len(outs)
        if len(cuts) - read > 2 * _FINE:
            self._join(read)
        last = len(cuts) - 1
        end = bisect_left(self._numbers, cuts[read])
        for segment in range(read, len(cuts)):
            begin = end
            end = bisect_left(self._numbers, cuts[segment + 1], begin) if segment < last else len(work)
            outs.append(len(shown))
            if end - begin == 1 and work[begin].place == "message":
                shown.append(work[begin])
                continue
            part = source = work[begin:end]
            for enforce in self._local:
                part = enforce(part, source)
                if not part:
                    break  # calls that wait: what is left of nothing is nothing
            shown += part

    def _join(self, read: int) -> None:
        """Join unread segments, but for the newest: a pass over many events costs less an event."""
        cuts = self._cuts
        joined: list[int] = []
        for cut in cuts[read:-_FINE]:
            if not joined or cut - joined[-1] >= _COARSE * _STEP:
                joined.append(cut)
        cuts[read:-_FINE] = joined

    def _enforce_all(self, events: Events, source: Events) -> Events:
        for enforce in self._local:
            events = enforce(events, source)
        for one in self._global:
            events = one.enforce(events, source)
        return events


class _Columns(NamedTuple):
    """The columns of a view: what is known of its events and segments, all segments read."""

    work: list[HistoryEvent]
    numbers: list[int]
    cuts: list[int]
    shown: list[HistoryEvent]
    outs: list[int]

    def place(self, segment: int) -> int:
        """Where in `work` a segment begins; the end for the one after the last."""
        return bisect_left(self.numbers, self.cuts[segment]) if segment < len(self.cuts) else len(self.work)

    def out(self, segment: int) -> int:
        """Where in `shown` a segment begins."""
        return self.outs[segment] if segment < len(self.outs) else len(self.shown)

    def segment(self, segment: int) -> tuple[Events, Events]:
        """What lies in a segment, and what is shown of it."""
        lies = self.work[self.place(segment) : self.place(segment + 1)]
        return lies, self.shown[self.out(segment) : self.out(segment + 1)]

    def segments_of(self, event_ids: Iterable[str], known: Mapping[str, int]) -> list[int]:
        """The segments in which these events lie, in order. `known` may have numbers of what is gone."""
        segments: set[int] = set()
        for event_id in event_ids:
            number = known.get(event_id, -1)
            place = bisect_left(self.numbers, number)
            if place < len(self.work) and self.work[place].event_id == event_id:
                segments.add(bisect_right(self.cuts, number) - 1)
        return sorted(segments)

    def replace(self, first: int, end: int, new: _Columns) -> None:
        """Put all of `new` in the place of the segments `first` … `end`."""
        place, stop, out, last = self.place(first), self.place(end), self.out(first), self.out(end)
        more = out + len(new.shown) - last
        self.outs[first:] = [*(one + out for one in new.outs), *(one + more for one in self.outs[end:])]
        self.cuts[first:end] = new.cuts
        self.work[place:stop] = new.work
        self.numbers[place:stop] = new.numbers
        self.shown[out:last] = new.shown

    def copy(self, other: _Columns, first: int, end: int) -> None:
        """Add the segments `first` … `end` of another view's."""
        if first == end:
            return
        begin, stop = other.place(first), other.place(end)
        shift = len(self.shown) - other.out(first)
        self.work.extend(other.work[begin:stop])
        self.numbers.extend(other.numbers[begin:stop])
        self.cuts.extend(other.cuts[first:end])
        self.outs.extend([out + shift for out in other.outs[first:end]])
        self.shown.extend(other.shown[other.out(first) : other.out(end)])

    def add(self, events: Events, numbers: Sequence[int], shown: Events) -> None:
        """Add one segment; none where nothing is in it."""
        if events:
            self.cuts.append(numbers[0])
            self.outs.append(len(self.shown))
            self.work.extend(events)
            self.numbers.extend(numbers)
            self.shown.extend(shown)

    def insert(
        self, event: HistoryEvent, offset: int, last: int, enforce: Callable[[Events, Events], Events]
    ) -> int | None:
        """Put an event at `offset` of what is shown, and return its number; None where none is free.

        `last` is the number of an event at the very end; `enforce` says what is shown of a segment that it falls into.
        """
        if offset == len(self.shown):
            self.add([event], [last], [event])
            return last
        segment = bisect_right(self.outs, offset) - 1
        begin, end = self.place(segment), self.place(segment + 1)
        anchor = self.shown[offset]
        place = next(at for at in range(begin, end) if self.work[at] is anchor)
        before = self.numbers[place - 1] if place else 0
        number = (before + self.numbers[place]) // 2
        if number == before:
            return None
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
