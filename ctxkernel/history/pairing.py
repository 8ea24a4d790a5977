"""The pairing of calls and results, and the order of a batch. Used by the properties and by repair.

A call id belongs to the newest response that used it. A result answers the oldest unanswered call with its id in that
response. A result without such a call is a duplicate if the id has calls before it, or else an orphan. So an id that
is used again (after a crash, or by a small server that counts from zero) never takes a result from another turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ctxkernel.history.events import Events, HistoryEvent, batch_of


class Pairs(NamedTuple):
    """The pairing of a history, by place."""

    answers: dict[int, int]
    """Call → its result, in the order of the results."""
    duplicates: list[int]
    """Results of a call that already has one."""
    orphans: list[int]
    """Results without a call of their id before them."""


def pair(events: Events) -> Pairs:
    """Return which result answers which call. Linear."""
    pairs = Pairs({}, [], [])
    answers = pairs.answers
    owner: dict[str, int] = {}
    for at, event in enumerate(events):
        if event.place == "call":
            if event.tool_call_id in owner:
                return _pair_reused(events)
            owner[event.tool_call_id] = at
        elif event.place == "result":
            call = owner.get(event.tool_call_id)
            if call is None:
                pairs.orphans.append(at)
            elif call in answers:
                pairs.duplicates.append(at)
            else:
                answers[call] = at
    return pairs


def _pair_reused(events: Events) -> Pairs:
    """Return the pairing of a history in which call ids are used again: four times slower."""
    pairs = Pairs({}, [], [])
    # Call id → its newest response, and the places of its unanswered calls there, newest first.
    owners: dict[str, tuple[str, deque[int]]] = {}
    for at, event in enumerate(events):
        if event.place == "call":
            batch = batch_of(event)
            owner = owners.get(event.tool_call_id)
            if owner is not None and owner[0] == batch:
                owner[1].appendleft(at)
            else:
                owners[event.tool_call_id] = (batch, deque((at,)))
        elif event.place == "result":
            owner = owners.get(event.tool_call_id)
            if owner is None:
                pairs.orphans.append(at)
            elif not owner[1]:
                pairs.duplicates.append(at)
            else:
                pairs.answers[owner[1].pop()] = at
    return pairs


def spans_of_batches(events: Events) -> list[tuple[int, int]]:
    """Return the first and last place of the calls of each batch with several calls, by first place."""
    spans: dict[str, tuple[int, int]] = {}
    for at, event in enumerate(events):
        if event.place == "call":
            batch = batch_of(event)
            spans[batch] = (spans[batch][0] if batch in spans else at, at)
    return sorted(span for span in spans.values() if span[0] < span[1])


def in_order(events: Events) -> bool:
    """Whether the events of every batch are adjacent, with results after their calls and in call order.

    Each event is read once. If calls of one batch share an id, False may be wrong; True never is.
    """
    batch = ""
    waiting: deque[str] = deque()  # unanswered calls of this batch, in order
    closed: set[str] = set()
    for event in events:
        if event.place == "call":
            of = batch_of(event)
            if of != batch:
                if waiting or of in closed:
                    return False
                batch = of
                closed.add(of)
            waiting.append(event.tool_call_id)
        elif event.place == "result":
            if not waiting or waiting.popleft() != event.tool_call_id:
                return False
        elif event.place == "message":
            if waiting:
                return False
            batch = ""
    return not waiting


def lay_out(unit: Sequence[int], calls: Sequence[int], answers: Mapping[int, int]) -> list[int]:
    """Return the places of one batch in an order that a request may have; `unit` itself if it is such an order.

    `unit` holds the places of the batch's `calls`, which are given in order, and of their results. The calls keep their
    order; the results follow their calls, in call order.
    """
    ordered = iter([answers[call] for call in calls if call in answers])
    is_call = set(calls)
    laid = [place if place in is_call else next(ordered) for place in unit]
    called: set[int] = set()
    call_of = {answers[call]: call for call in calls if call in answers}
    for place in laid:
        if place in call_of and call_of[place] not in called:
            return [place for call in calls for place in (call, answers.get(call, -1)) if place >= 0]
        called.add(place)
    return laid


def outside(length: int, spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return the gaps 0 … `length` that are inside none of `spans`, which are (first, last) by first place.

    Gap g is before the event at g. A span (a, b) contains the gaps a+1 … b.
    """
    gaps: list[int] = []
    gap = 0
    for first, last in spans:
        gaps.extend(range(gap, first + 1))
        gap = max(gap, first + 1, last + 1)
    gaps.extend(range(gap, length + 1))
    return gaps


def places_of(events: Iterable[HistoryEvent]) -> dict[int, int]:
    """Return the place of each event by its identity, which distinguishes equal events."""
    return {id(event): place for place, event in enumerate(events)}
