"""The view: the events that a model is shown, kept as the history grows.

Rule 1: what is shown is a function of the events that were appended, in their order (law 3). How often it was read
        between them changes nothing.
Rule 2: an append costs what it touches. An event that stands alone touches nothing else; a call or a result touches the
        stretch from the first call of its batch on; a condensation touches the whole view.
Rule 3: nothing here recurses, and nothing is done before somebody reads.

The history lies in segments: a segment is the shortest stretch such that no batch lies in two. A property that is
`local` is enforced on a segment at a time, so what is shown of the segments before stays; the properties from the
first that is not local on are enforced on the whole, at each read after an append.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ctxkernel.history.boundaries import Boundaries, boundaries
from ctxkernel.history.events import Action, Condensation, CondensationRequest, Events, HistoryEvent, batch_of
from ctxkernel.history.invariants import PROPERTIES, Condensations, Property

_FINE = 64
"""Segments at the end that are kept apart when many are read at once; older ones are joined, to `_COARSE` events."""
_COARSE = 256


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
        self._known: set[str] = set()
        self._gone: set[str] = set()
        """Batches of which a condensation took calls: one more call of them would be half of a response."""
        self._unhandled = False
        self._clear()
        self.extend(events)

    def _clear(self) -> None:
        self._work: list[HistoryEvent] = []
        self._shown: list[HistoryEvent] = []
        """What the local properties leave of the segments that were read."""
        self._cuts: list[int] = []
        """Where in `_work` each segment begins."""
        self._outs: list[int] = []
        """Where in `_shown` each segment that was read begins: a segment is read if it has an entry here."""
        self._batches: dict[str, int] = {}
        self._calls: dict[str, int] = {}
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
        known.add(event_id)
        place = event.place
        if place != "meta":
            self._take(event, place)
        elif isinstance(event, Condensation):
            self._unhandled = False
            self._condense(event)
        elif isinstance(event, CondensationRequest):
            self._unhandled = True
            if self._condensations is None:
                self._take(event, "message")

    def _take(self, event: HistoryEvent, place: str) -> None:
        work, cuts = self._work, self._cuts
        end = start = len(work)
        if place == "call":
            batch = event.llm_response_id or batch_of(event)  # type: ignore[union-attr, arg-type]
            if batch in self._gone:
                return
            start = self._batches.setdefault(batch, end)
            self._calls[event.tool_call_id] = start  # type: ignore[union-attr]
        elif place == "result":
            start = self._calls.get(event.tool_call_id, end)  # type: ignore[union-attr]
        work.append(event)
        self._final = self._boundaries = None
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

    def _condense(self, condensation: Condensation) -> None:
        if self._condensations is None:
            self._take(condensation, "message")
            return
        shown = list(self.events)
        work = self._condensations.apply(condensation, self._work, shown, self._enforce_all)
        before = self._batches
        self._clear()
        self._gone.update(before.keys() - {batch_of(event) for event in work if isinstance(event, Action)})
        for event in work:
            self._take(event, event.place)

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
        """Whether a condensation was asked for and none came after that."""
        return self._unhandled

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
        for segment in range(read, len(cuts)):
            begin = cuts[segment]
            end = cuts[segment + 1] if segment < last else len(work)
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
            if not joined or cut - joined[-1] >= _COARSE:
                joined.append(cut)
        cuts[read:-_FINE] = joined

    def _enforce_all(self, events: Events, source: Events) -> Events:
        for enforce in self._local:
            events = enforce(events, source)
        for one in self._global:
            events = one.enforce(events, source)
        return events
