"""Which result answers which call, and how a batch lies. Shared by the properties and by repair.

The rule: a call id belongs to the newest response that used it; a result answers the oldest call of its id there that
has none yet. A result that finds no such call before it is a duplicate where the id has calls, else it has no call.
So an id that comes again (a crash, a small server that counts from zero) never takes a result from another turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from ctxkernel.history.events import Action, Events, HistoryEvent, batch_of


class Pairs(NamedTuple):
    """The pairing of a history, by place."""

    answers: dict[int, int]
    """Call → its result, in the order of the results."""
    duplicates: list[int]
    """Results of a call that has one."""
    orphans: list[int]
    """Results with no call of their id before them."""


def pair(events: Events) -> Pairs:
    """Return which result answers which call. Linear."""
    answers: dict[int, int] = {}
    duplicates: list[int] = []
    orphans: list[int] = []
    owner: dict[str, int] = {}
    for at, event in enumerate(events):
        place = event.place
        if place == "call":
            call_id = event.tool_call_id  # type: ignore[union-attr]
            if call_id in owner:
                return _pair_reused(events)
            owner[call_id] = at
        elif place == "result":
            call = owner.get(event.tool_call_id)  # type: ignore[union-attr]
            if call is None:
                orphans.append(at)
            elif call in answers:
                duplicates.append(at)
            else:
                answers[call] = at
    return Pairs(answers, duplicates, orphans)


def _pair_reused(events: Events) -> Pairs:
    """The same where ids come again."""
    pairs = Pairs({}, [], [])
    # Call id → its newest response, and the places of its calls there that have no result yet, newest first.
    owners: dict[str, tuple[str, deque[int]]] = {}
    for at, event in enumerate(events):
        if event.place == "call":
            action = cast("Action", event)
            batch, calls = owners.get(action.tool_call_id, ("", deque()))
            if batch == batch_of(action):
                calls.appendleft(at)
            else:
                owners[action.tool_call_id] = (batch_of(action), deque([at]))
        elif event.place == "result":
            held = owners.get(event.tool_call_id)  # type: ignore[union-attr]
            if held is None:
                pairs.orphans.append(at)
            elif not held[1]:
                pairs.duplicates.append(at)
            else:
                pairs.answers[held[1].pop()] = at
    return pairs


def spans_of_batches(events: Events) -> list[tuple[int, int]]:
    """Return the first and last place of the calls of each batch that has several, by first place."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, event in enumerate(events):
        if event.place == "call":
            batch = event.llm_response_id or batch_of(event)  # type: ignore[arg-type, union-attr]
            if first.setdefault(batch, at) != at:
                last[batch] = at
    return sorted((first[batch], at) for batch, at in last.items())


def in_order(events: Events) -> bool:
    """Whether every batch stands together, with all of its results after their calls and in call order.

    One look at each event: where calls of one batch share an id, False may be wrong; True never is.
    """
    batch = ""
    waiting: deque[str] = deque()  # calls of this batch without a result, in order
    closed: set[str] = set()
    for event in events:
        place = event.place
        if place == "call":
            of = event.llm_response_id or batch_of(event)  # type: ignore[union-attr, arg-type]
            if of != batch:
                if waiting or of in closed:
                    return False
                batch = of
                closed.add(of)
            waiting.append(event.tool_call_id)  # type: ignore[union-attr]
        elif place == "result":
            if not waiting or waiting.popleft() != event.tool_call_id:  # type: ignore[union-attr]
                return False
        elif place == "message":
            if waiting:
                return False
            batch = ""
    return not waiting


def lay_out(unit: Sequence[int], calls: Sequence[int], answers: Mapping[int, int]) -> list[int]:
    """Return the places of one batch in an order that a request can have: `unit` itself where it is one.

    `unit` holds the places of the batch's `calls`, which are given in order, and of their results. Calls stay in their
    order, results come after their calls and in call order.
    """
    ordered = iter([answers[call] for call in calls if call in answers])
    is_call = set(calls)
    laid = [place if place in is_call else next(ordered) for place in unit]
    called: set[int] = set()
    asked_by = {answers[call]: call for call in calls if call in answers}
    for place in laid:
        if place in asked_by and asked_by[place] not in called:
            return [place for call in calls for place in (call, answers.get(call, -1)) if place >= 0]
        called.add(place)
    return laid


def outside(length: int, spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return the gaps 0 … `length` that lie within none of `spans`, which are (first, last) by first place.

    Gap g lies before the event at g. A span (a, b) holds the gaps a+1 … b.
    """
    gaps: list[int] = []
    gap = 0
    for first, last in spans:
        if gap <= first:
            gaps.extend(range(gap, first + 1))
            gap = first + 1
        gap = max(gap, last + 1)
    gaps.extend(range(gap, length + 1))
    return gaps


def places_of(events: Iterable[HistoryEvent]) -> dict[int, int]:
    """Return identity → place: which of two equal events it is."""
    return {id(event): place for place, event in enumerate(events)}
