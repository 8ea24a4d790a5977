"""Repair of a history that crashes, retries and lost connections left broken: report, repair, trim.

Rule 1: a valid history is returned as the same object, and a repaired history is valid.
Rule 2: every repair is an event with its reason. Valid parts are never changed.
Rule 3: nothing is guessed: a result that never came is synthetic, with a status that says why.

The repairs, in this order: remove an event that was recorded twice (the first stays); remove a result without a call;
remove a second result of a call (the first stays); rename a call id that an earlier call had, with its result; add a
synthetic result to a call without one; move the events of a batch to its first call, results after their calls and in
call order. A result before its call is the call's result and is moved.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, cast

from ctxkernel.core.dataclasses import dataclass, field, fields, replace
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

RepairTrigger = Literal["load", "rewind", "trim", "request"]

TEXTS: Mapping[OutputStatus, str] = {
    "canceled": "The call was interrupted. No output was received.",
    "timeout": "The call did not end within its time. No output was received.",
    "failed": "The call failed. No output was received.",
}
"""The text of a synthetic result, by its status."""


@dataclass(frozen=True, slots=True)
class Switches:
    """Automatic repairs of a stored history (seed 003 §5). Requests are always checked."""

    enforce_history_invariants: bool = False
    """Repair after a rewind or a branch, after trimming, and before a request."""
    auto_recover_from_crash: bool = True
    """Repair when a session is loaded."""
    warn_on_invariant_violations: bool = True
    """Report what was broken."""


@dataclass(frozen=True, slots=True)
class MissingOutput:
    """A call without a result."""

    call_id: str
    tool_name: str
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """The problems of a history; every field of a valid history is empty."""

    missing_outputs: tuple[MissingOutput, ...] = ()
    orphan_outputs: tuple[str, ...] = ()
    """Call ids of results without a call."""
    duplicate_outputs: tuple[str, ...] = ()
    """Call ids, once for each surplus result."""
    misplaced: tuple[str, ...] = ()
    """Ids of events that are apart from their batch, or not in its order."""
    reused_calls: tuple[str, ...] = ()
    """Call ids, once for each call with the id of an earlier one."""
    duplicate_events: tuple[str, ...] = ()
    """Ids of events that were recorded again."""

    def is_valid(self) -> bool:
        """Return whether nothing is broken."""
        return not any(getattr(self, one.name) for one in fields(self))

    def summary(self) -> str:
        """Return one line with the number of each problem."""
        counts = [len(getattr(self, one.name)) for one in fields(self)]
        told = [f"{name}: {count}" for count, name in zip(counts, _PROBLEMS, strict=True) if count]
        return ", ".join(told) or "the history is valid"


_PROBLEMS = (
    "calls without a result",
    "results without a call",
    "surplus results",
    "events at a wrong place",
    "reused call ids",
    "events recorded twice",
)
_MOMENTS: Mapping[RepairTrigger, str] = {
    "load": "in the loaded session",
    "rewind": "at this place of the timeline",
    "trim": "after it was shortened",
    "request": "before a request",
}


@dataclass(frozen=True, slots=True)
class Repaired:
    """A history after repair. `events` is the given object if nothing was broken."""

    events: Events
    repairs: tuple[Repair, ...] = ()
    report: HistoryReport = field(default_factory=HistoryReport)
    """The problems before the repair."""
    warning: str = ""
    """One line for the user, or empty."""

    @property
    def added(self) -> tuple[Observation, ...]:
        """The synthetic results: an append-only log becomes valid with them."""
        made = {one.target_id for one in self.repairs if one.fix == "added"}
        return tuple(event for event in self.events if isinstance(event, Observation) and event.event_id in made)


def report(events: Events, *, pending: Collection[str] = ()) -> HistoryReport:
    """Return the problems of `events`. Linear.

    `pending` are call ids whose results will still come: calls that wait for approval, or run now.
    """
    return HistoryReport() if _clean(events) else _Plan(events, pending).report()


def normalise(
    events: Events,
    *,
    status: OutputStatus = "canceled",
    statuses: Mapping[str, OutputStatus] | None = None,
    pending: Collection[str] = (),
) -> Repaired:
    """Return `events` repaired, with the repairs.

    A synthetic result has the status that `statuses` gives for its call id, or else `status`. `pending` as in `report`.
    Raises BadHistory for a synthetic success, because nobody saw the call succeed.
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
    return Repaired(*plan.apply(status, statuses or {}), found)


def recover(
    events: Events, *, switches: Switches | None = None, statuses: Mapping[str, OutputStatus] | None = None
) -> Repaired:
    """Return the history of a session whose kernel ended, as `maintain` at the moment `load`.

    No call in it can still get its result.
    """
    return maintain(events, "load", switches=switches, statuses=statuses)


def maintain(
    events: Events,
    moment: RepairTrigger,
    *,
    switches: Switches | None = None,
    statuses: Mapping[str, OutputStatus] | None = None,
    pending: Collection[str] = (),
) -> Repaired:
    """Return `events` repaired as the switches require at a moment of a session.

    If they require no repair, `events` is returned unchanged, with the report and the warning.
    """
    switches = switches or Switches()
    if switches.enforce_history_invariants or (moment == "load" and switches.auto_recover_from_crash):
        done = normalise(events, statuses=statuses, pending=pending)
    else:
        done = Repaired(events, (), report(events, pending=pending))
    if done.report.is_valid() or not switches.warn_on_invariant_violations:
        return done
    told = "repaired" if done.repairs else "left out of what a model receives"
    return replace(done, warning=f"the record of the model's work {_MOMENTS[moment]}: {done.report.summary()} ({told})")


def trim(events: Events, keep: int, *, pending: Collection[str] = ()) -> Repaired:
    """Return the newest `keep` events or fewer, repaired if they were broken before.

    The cut is the first manipulation index that leaves at most `keep` events, so it breaks nothing (law 4). If a tool
    loop with thinking is longer, it is cut between two batches instead of being removed. Raises BadHistory for a
    negative number.
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
    """Return True if a fast check shows that nothing is broken and no call waits: nearly always."""
    if not in_order(events):
        return False
    ids = [event.event_id for event in events]
    call_ids = [event.tool_call_id for event in events if event.place == "call"]  # type: ignore[union-attr]
    return len(ids) == len(set(ids)) and len(call_ids) == len(set(call_ids))


class _Plan:
    """The problems of a history, by place, and their repair."""

    def __init__(self, events: Events, pending: Collection[str]) -> None:
        self.events = events
        first: dict[str, int] = {}
        self.twice = {place for place, event in enumerate(events) if first.setdefault(event.event_id, place) != place}
        self.ids = set(first)
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
        """Find which result answers which call, including results before their calls."""
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
                if call in self.answers:  # the first stays
                    self.duplicates.add(self.answers[call])
                self.answers[call] = place

    def _rename(self) -> None:
        """Find new ids for calls with the id of an earlier call."""
        taken = {self._call_id(call) for call in self.calls}
        used: set[str] = set()
        numbers: dict[str, Iterator[int]] = {}
        self.renamed: dict[int, str] = {}
        for call in self.calls:
            call_id = self._call_id(call)
            if call_id in used:
                names = (f"{call_id}-{n}" for n in numbers.setdefault(call_id, itertools.count(2)))
                self.renamed[call] = next(name for name in names if name not in taken)
                taken.add(self.renamed[call])
            used.add(call_id)

    def _place(self, kept: Sequence[int]) -> None:
        """Find the batches in a wrong order: `laid` maps the first call of each to its places."""
        gone = self.duplicates | self.orphans
        line = [place for place in kept if place not in gone and self.events[place].place != "meta"]
        owner = {result: call for call, result in self.answers.items()}
        units: dict[str, list[int]] = {}
        number: dict[int, int] = {}  # place → the number of events before it, without records
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

    # -- repairing -------------------------------------------------------------------------------

    def apply(
        self, status: OutputStatus, statuses: Mapping[str, OutputStatus]
    ) -> tuple[list[HistoryEvent], tuple[Repair, ...]]:
        """Return the repaired events and the repairs, in the order of the module's docstring."""
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
        repaired: list[HistoryEvent] = []
        for place in range(len(events)):
            if place in gone or (place in elsewhere and place not in self.laid):
                continue
            for one in self.laid.get(place, (place,)):
                repaired.append(new.get(one, events[one]))
                repaired += [made[call] for call in after.get(one, ())]
        return repaired, tuple(self._repairs(made))

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
        """Return place → the calls whose synthetic results directly follow the event at that place.

        This is the call itself, or the result of the previous call in the batch if that comes later.
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
        for places, reason in (
            (self.twice, "an earlier event has this id"),
            (self.orphans, "the history has no call of this id"),
            (self.duplicates, "the call already has a result; the first stays"),
        ):
            for place in sorted(places):
                tell("removed", events[place], getattr(events[place], "tool_call_id", ""), reason)
        for call, call_id in self.renamed.items():
            tell("renamed", events[call], call_id, f"an earlier call has the id {self._call_id(call)}")
        for call, result in made.items():
            name = self._action(call).tool_name
            tell("added", result, result.tool_call_id, f"the result of {name} never came; it counts as {result.status}")
        for place in sorted(self.moved):
            tell("moved", events[place], self._call_id(place), "it was not with its batch, in the order of its calls")
        return told


def _moved(laid: Sequence[int], number: Mapping[int, int]) -> list[int]:
    """Return the smallest set of places of a batch that must move to get the order `laid`; its first call stays.

    All events that are separated from the first call move; of the others, all except a longest ordered sequence.
    """
    together = {laid[0]}
    at = number[laid[0]]
    by_number = {number[place]: place for place in laid}
    beside = at + 1
    while beside in by_number:
        together.add(by_number[beside])
        beside += 1
    tails: list[int] = []  # the smallest end of an ordered sequence of each length
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
