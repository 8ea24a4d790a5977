"""Repair of a history that crashes, retries and lost connections left broken: report it, mend it, trim it.

Rule 1: a clean history comes back as the same object, and what was mended is clean.
Rule 2: every repair is an event with its reason. Of what is not broken nothing is touched.
Rule 3: nothing is guessed: a result that never came is marked as synthetic, with a status that says why.

What is mended, in this order: an event that was recorded twice (the first stands); a result without a call (removed);
a second result of a call (the first stands); a call id that an earlier call had (renamed, with its result); a call
without a result (a synthetic one is added); a batch that does not stand together, with its results after their calls
and in call order (moved to its first call). A result before its call is the call's result and is moved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from ctxkernel.core.errors import BadHistory
from ctxkernel.history.boundaries import boundaries
from ctxkernel.history.events import (
    Action,
    Events,
    Fix,
    HistoryEvent,
    Observation,
    OutputStatus,
    Repair,
    Result,
    batch_of,
    derived,
)
from ctxkernel.history.invariants import PROPERTIES, ToolLoopAtomicity
from ctxkernel.history.pairing import in_order, lay_out, pair

Moment = Literal["load", "rewind", "trim", "request"]

TEXTS: Mapping[OutputStatus, str] = {
    "canceled": "The call was interrupted. No output was received.",
    "timeout": "The call did not end within its time. No output was received.",
    "failed": "The call failed. No output was received.",
}
"""What a synthetic result says, by its status."""


@dataclass(frozen=True, slots=True)
class Switches:
    """What is done to a stored history without being asked (seed 003 §5). Requests are checked whatever these say."""

    enforce_history_invariants: bool = False
    """Mend after a rewind or a branch, after trimming, and before a request."""
    auto_recover_from_crash: bool = True
    """Mend when a session is loaded."""
    warn_on_invariant_violations: bool = True
    """Say what was found broken."""


@dataclass(frozen=True, slots=True)
class MissingOutput:
    """A call that has no result."""

    call_id: str
    tool_name: str
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """What is broken in a history; every field is empty where nothing is."""

    missing_outputs: tuple[MissingOutput, ...] = ()
    orphan_outputs: tuple[str, ...] = ()
    """Call ids of results that have no call."""
    duplicate_outputs: tuple[str, ...] = ()
    """Call ids, once for each result too many."""
    misplaced: tuple[str, ...] = ()
    """Ids of events that do not stand with their batch, or not in its order."""
    reused_calls: tuple[str, ...] = ()
    """Call ids, once for each call that has the id of an earlier one."""
    duplicate_events: tuple[str, ...] = ()
    """Ids of events that were recorded again."""

    def is_valid(self) -> bool:
        """Whether nothing is broken."""
        return not any(self._counts())

    def summary(self) -> str:
        """Return one line: how much of what is broken."""
        if self.is_valid():
            return "the history is whole"
        names = ("missing outputs", "orphan outputs", "duplicate outputs", "misplaced", "reused call ids")
        told = zip(self._counts(), (*names, "events recorded twice"), strict=True)
        return ", ".join(f"{count} {name}" for count, name in told if count)

    def _counts(self) -> tuple[int, ...]:
        fields = (self.missing_outputs, self.orphan_outputs, self.duplicate_outputs)
        return tuple(map(len, (*fields, self.misplaced, self.reused_calls, self.duplicate_events)))


@dataclass(frozen=True, slots=True)
class Repaired:
    """A history after repair. `events` is the object that was given where nothing was broken."""

    events: Events
    repairs: tuple[Repair, ...] = ()
    report: HistoryReport = field(default_factory=HistoryReport)
    """What was broken before."""
    warning: str = ""
    """One line for the user; empty where nothing is to be said."""

    @property
    def added(self) -> tuple[Observation, ...]:
        """The synthetic results: what an append-only log has to take to be whole."""
        made = {one.target_id for one in self.repairs if one.fix == "added"}
        return tuple(event for event in self.events if isinstance(event, Observation) and event.event_id in made)


def report(events: Events, *, pending: Collection[str] = ()) -> HistoryReport:
    """Return what is broken in `events`; changes nothing. Linear.

    `pending` are call ids whose results are still to come: a call that waits for approval, or that runs now.
    """
    return HistoryReport() if _clean(events) else _Plan(events, pending).report()


def normalise(
    events: Events,
    *,
    status: OutputStatus = "canceled",
    statuses: Mapping[str, OutputStatus] | None = None,
    pending: Collection[str] = (),
) -> Repaired:
    """Return `events` mended, and how.

    A synthetic result has the status that `statuses` gives for its call id, else `status`. `pending` as in `report`.
    Raises BadHistory for a synthetic success: what was not seen did not succeed.
    """
    asked = {status, *(statuses or {}).values()}
    if not asked <= set(TEXTS):
        raise BadHistory(f"a result that never came cannot be {min(asked - set(TEXTS))!r}; say one of {sorted(TEXTS)}")
    if _clean(events):
        return Repaired(events)
    plan = _Plan(events, pending)
    found = plan.report()
    if found.is_valid():
        return Repaired(events)
    mended, repairs = plan.apply(status, statuses or {})
    return Repaired(mended, repairs, found)


def recover(
    events: Events, *, switches: Switches | None = None, statuses: Mapping[str, OutputStatus] | None = None
) -> Repaired:
    """Return the history of a session whose kernel ended: no call in it can still get its result.

    As `maintain` at the moment `load`.
    """
    return maintain(events, "load", switches=switches, statuses=statuses)


def maintain(
    events: Events,
    moment: Moment,
    *,
    switches: Switches | None = None,
    statuses: Mapping[str, OutputStatus] | None = None,
    pending: Collection[str] = (),
) -> Repaired:
    """Return `events` as the switches want them at a moment of a session's life.

    Where they want no repair, `events` comes back as it is, with the report and the warning.
    """
    switches = switches or Switches()
    if switches.enforce_history_invariants or (moment == "load" and switches.auto_recover_from_crash):
        done = normalise(events, statuses=statuses, pending=pending)
    else:
        done = Repaired(events, (), report(events, pending=pending))
    if done.report.is_valid() or not switches.warn_on_invariant_violations:
        return done
    mended = "mended" if done.repairs else "left as it is"
    return replace(done, warning=f"history at {moment}: {done.report.summary()}; {mended}")


def trim(events: Events, keep: int, *, pending: Collection[str] = ()) -> Repaired:
    """Return the newest `keep` events or fewer, mended where they were broken before.

    The cut is the first manipulation index that leaves no more than `keep`, so it breaks nothing (law 4); where a tool
    loop with thinking is longer than that, the loop is cut between two batches rather than lost. Raises BadHistory for
    a negative number.
    """
    if keep < 0:
        raise BadHistory(f"trim(keep={keep}): give the number of events to keep, 0 or more")
    if len(events) <= keep:
        return normalise(events, pending=pending)
    cut = boundaries(events).find_next(len(events) - keep)
    if cut == len(events):
        shorter = tuple(one for one in PROPERTIES if not isinstance(one, ToolLoopAtomicity))
        cut = boundaries(events, shorter).find_next(len(events) - keep)
    return normalise(events[cut:], pending=pending)


def _clean(events: Events) -> bool:
    """Whether nothing is broken, and nothing waits, for all that a quick look tells: nearly always, and then enough."""
    if not in_order(events):
        return False
    ids = [event.event_id for event in events]
    call_ids = [event.tool_call_id for event in events if event.place == "call"]  # type: ignore[union-attr]
    return len(ids) == len(set(ids)) and len(call_ids) == len(set(call_ids))


class _Plan:
    """What is broken in a history, by place, and how it is mended."""

    def __init__(self, events: Events, pending: Collection[str]) -> None:
        self.events = events
        seen: set[str] = set()
        self.twice: set[int] = set()
        for place, event in enumerate(events):
            if event.event_id in seen:
                self.twice.add(place)
            seen.add(event.event_id)
        self.ids = seen
        kept = [place for place in range(len(events)) if place not in self.twice]
        self._pair(kept)
        self._rename()
        self.missing = [
            call for call in self.calls if call not in self.answers and self._action(call).tool_call_id not in pending
        ]
        self._place(kept)

    def _action(self, place: int) -> Action:
        return cast("Action", self.events[place])

    def _call_id(self, place: int) -> str:
        return cast("Result", self.events[place]).tool_call_id

    def _pair(self, kept: Sequence[int]) -> None:
        """Find which result answers which call, those included that came before their calls."""
        events = self.events
        pairs = pair([events[place] for place in kept])
        self.answers = {kept[call]: kept[result] for call, result in pairs.answers.items()}
        self.duplicates = {kept[place] for place in pairs.duplicates}
        self.orphans: set[int] = set()
        self.calls = [place for place in kept if events[place].place == "call"]
        first_call: dict[str, int] = {}
        for call in self.calls:
            first_call.setdefault(self._call_id(call), call)
        early: set[int] = set()
        for place in (kept[orphan] for orphan in pairs.orphans):
            call = first_call.get(self._call_id(place))
            if call is None:
                self.orphans.add(place)
            elif call in early:
                self.duplicates.add(place)
            else:
                early.add(call)
                if call in self.answers:  # the first stands
                    self.duplicates.add(self.answers[call])
                self.answers[call] = place

    def _rename(self) -> None:
        """Find new ids for calls whose id an earlier call had."""
        taken = {self._call_id(call) for call in self.calls}
        used: set[str] = set()
        self.renamed: dict[int, str] = {}
        count: dict[str, int] = {}
        for call in self.calls:
            call_id = self._call_id(call)
            if call_id in used:
                n = count.get(call_id, 1) + 1
                while f"{call_id}-{n}" in taken:
                    n += 1
                count[call_id] = n
                self.renamed[call] = f"{call_id}-{n}"
                taken.add(f"{call_id}-{n}")
            used.add(call_id)

    def _place(self, kept: Sequence[int]) -> None:
        """Find the batches that do not stand as they must: `laid` maps the first call of each to its places."""
        gone = self.duplicates | self.orphans
        line = [place for place in kept if place not in gone and self.events[place].place != "meta"]
        owner = {result: call for call, result in self.answers.items()}
        units: dict[str, list[int]] = {}
        number: dict[int, int] = {}  # place → how many events stand before it, records not counted
        for place in line:
            number[place] = len(number)
            call = place if self.events[place].place == "call" else owner.get(place)
            if call is not None:
                units.setdefault(batch_of(self._action(call)), []).append(place)
        self.laid: dict[int, list[int]] = {}
        self.moved: list[int] = []
        for unit in units.values():
            calls = [place for place in unit if self.events[place].place == "call"]
            laid = lay_out(unit, calls, self.answers)
            if laid != unit or number[unit[-1]] - number[unit[0]] != len(unit) - 1:
                self.laid[calls[0]] = laid
                self.moved += _moved(laid, number)

    def report(self) -> HistoryReport:
        def call_ids(places: Collection[int]) -> tuple[str, ...]:
            return tuple(self._call_id(place) for place in sorted(places))

        def event_ids(places: Collection[int]) -> tuple[str, ...]:
            return tuple(self.events[place].event_id for place in sorted(places))

        missing = [self._action(place) for place in self.missing]
        return HistoryReport(
            tuple(MissingOutput(one.tool_call_id, one.tool_name, one.event_id) for one in missing),
            call_ids(self.orphans),
            call_ids(self.duplicates),
            event_ids(self.moved),
            call_ids(self.renamed),
            event_ids(self.twice),
        )

    # -- mending ---------------------------------------------------------------------------------

    def apply(
        self, status: OutputStatus, statuses: Mapping[str, OutputStatus]
    ) -> tuple[list[HistoryEvent], tuple[Repair, ...]]:
        """Return the mended events and the repairs, in the order in which the module's text lists them."""
        events = self.events
        made = self._synthetic(status, statuses)
        new: dict[int, HistoryEvent] = {}
        for call, call_id in self.renamed.items():
            new[call] = replace(self._action(call), tool_call_id=call_id)
            if call in self.answers:
                result = self.answers[call]
                new[result] = replace(cast("Result", events[result]), tool_call_id=call_id)
        gone = self.twice | self.orphans | self.duplicates
        elsewhere = {place for laid in self.laid.values() for place in laid}
        after = self._put_after(made)
        mended: list[HistoryEvent] = []
        for place in range(len(events)):
            if place in gone or (place in elsewhere and place not in self.laid):
                continue
            for one in self.laid.get(place, (place,)):
                mended.append(new.get(one, events[one]))
                mended += [made[call] for call in after.get(one, ())]
        return mended, tuple(self._repairs(made))

    def _synthetic(self, status: OutputStatus, statuses: Mapping[str, OutputStatus]) -> dict[int, Observation]:
        """Return the results to add, by call."""
        made: dict[int, Observation] = {}
        for call in self.missing:
            action = self._action(call)
            event_id = derived(action.event_id, "result")
            while event_id in self.ids:
                event_id += "~"
            self.ids.add(event_id)
            call_id = self.renamed.get(call, action.tool_call_id)
            given = statuses.get(action.tool_call_id, status)
            made[call] = Observation(event_id, call_id, TEXTS[given], given, synthetic=True)
        return made

    def _put_after(self, made: Mapping[int, Observation]) -> dict[int, list[int]]:
        """Return place → calls whose synthetic results come right after the event there.

        That is the call itself, or the result of the call before it in the batch where that stands later still.
        """
        if not made:
            return {}
        rank = {place: n for laid in self.laid.values() for n, place in enumerate(laid)}
        last: dict[str, int] = {}
        after: dict[int, list[int]] = {}
        for call in self.calls:
            batch = batch_of(self._action(call))
            before = last.get(batch, call)
            if call in made:
                at = max(before, call, key=lambda place: rank.get(place, place))
                after.setdefault(at, []).append(call)
                last[batch] = at
            elif call in self.answers:
                last[batch] = self.answers[call]
        return after

    def _repairs(self, made: Mapping[int, Observation]) -> list[Repair]:
        told: list[Repair] = []
        count: dict[str, int] = {}

        def tell(fix: Fix, target: HistoryEvent, call_id: str, reason: str) -> None:
            base = derived(target.event_id, f"repair-{fix}")
            count[base] = count.get(base, 0) + 1
            number = f"-{count[base]}" if count[base] > 1 else ""
            told.append(Repair(base + number, fix, target.event_id, call_id, reason))

        events = self.events
        for place in sorted(self.twice):
            call_id = getattr(events[place], "tool_call_id", "")
            tell("removed", events[place], call_id, "an event of this id stands before it")
        for place in sorted(self.orphans):
            tell("removed", events[place], self._call_id(place), "the history has no call of this id")
        for place in sorted(self.duplicates):
            tell("removed", events[place], self._call_id(place), "the call has a result already, and the first stands")
        for call, call_id in self.renamed.items():
            tell("renamed", events[call], call_id, f"an earlier call has the id {self._call_id(call)}")
        for call, result in made.items():
            name = self._action(call).tool_name
            tell("added", result, result.tool_call_id, f"the result of {name} never came; it counts as {result.status}")
        for place in sorted(self.moved):
            tell("moved", events[place], self._call_id(place), "it did not stand with its batch in the order of calls")
        return told


def _moved(laid: Sequence[int], number: Mapping[int, int]) -> list[int]:
    """Return the fewest places of a batch that must have moved to come to the order `laid`, its first call staying.

    What other events parted from the first call has moved; of the rest, all but a longest run that was in order.
    """
    together = {laid[0]}
    at = number[laid[0]]
    by_number = {number[place]: place for place in laid}
    beside = at + 1
    while beside in by_number:
        together.add(by_number[beside])
        beside += 1
    tails: list[int] = []  # the smallest end of a run of each length
    ends: list[int] = []
    before: dict[int, int | None] = {}
    for place in laid:
        if place in together:
            length = bisect_left(tails, number[place])
            before[place] = ends[length - 1] if length else None
            tails[length : length + 1] = [number[place]]
            ends[length : length + 1] = [place]
    stayed: set[int] = set()
    place: int | None = ends[-1] if ends else None
    while place is not None:
        stayed.add(place)
        place = before[place]
    return [place for place in laid if place not in stayed]
