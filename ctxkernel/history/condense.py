"""Condensation: which part of a too long history is removed, and the summaries that replace it.

Rule 1: never removed are the user's questions, pinned events, the first events and the newest unit. Events of a
        withdrawn condensation are removed only on request. A call that waits for its result is not shown at all.
Rule 2: units are removed as a whole. A unit is the stretch between two manipulation indices of the view; a protected
        event protects its unit. Each removed stretch of units gets a summary of its own, at its place.
Rule 3: a condensation is made only if it reduces the cost of the shown events by a worthwhile share, or down to the
        limit. The oldest units are removed first, until the target is reached. A summary alone is not summarised again.
Rule 4: summaries consist of lines from the events; no model writes them. Pure.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby, pairwise
from typing import NamedTuple

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadPolicy, NothingToCondense
from ctxkernel.core.text import one_line
from ctxkernel.history.brief import brief_line, last_line, main_line
from ctxkernel.history.events import (
    Action,
    AgentError,
    AssistantMessage,
    Condensation,
    Events,
    HistoryEvent,
    HumanStatement,
    Observation,
    Summary,
    SummaryText,
    UserQuestion,
    UserRejection,
    derived,
)
from ctxkernel.history.invariants.message_pairing import is_filler
from ctxkernel.history.pairing import pair
from ctxkernel.history.view import HistoryView

EventCount = Callable[[HistoryEvent], int]
TextCount = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """The maximal length of a history; None is no limit. Tokens are those of the history alone."""

    tokens: int | None = None
    """A longer history is condensed if possible."""
    events: int | None = None
    """The same for the number of events that are shown."""
    window: int | None = None
    """A longer history cannot be sent."""


@dataclass(frozen=True, slots=True)
class Condensing:
    """The settings of condensation."""

    keep_first: int = 2
    """Number of first events whose units are kept."""
    target: float = 0.5
    """The target, as a share of the limit, or of the shown events if no limit was reached; above 0, below 1."""
    least: float = 0.1
    """The share of the shown events that a condensation must save, unless it reaches the limit with less; 0 … 1."""
    share: float = 0.2
    """The maximal cost of a summary, as a share of the events it replaces; above 0, below 1."""
    most: int = 800
    """Maximal tokens of a summary."""

    def __post_init__(self) -> None:
        """Check the numbers. Raises BadPolicy for one outside of the limits above."""
        if not (0 < self.target < 1 and 0 <= self.least <= 1 and 0 < self.share < 1):
            raise BadPolicy(f"{self}: target and share lie between 0 and 1, least from 0 to 1")
        if self.keep_first < 0 or self.most < 1:
            raise BadPolicy(f"{self}: keep_first is 0 or more, most is 1 or more")


DEFAULT = Condensing()


@dataclass(frozen=True, slots=True)
class Forward:
    """Send the view to the model."""

    view: HistoryView
    reason: str = ""
    """Why it was not condensed although it is too long; otherwise empty."""


@dataclass(frozen=True, slots=True)
class RecordCondensation:
    """Record the condensation before any other event, and do not send this view."""

    condensation: Condensation
    before: int
    """Tokens of the shown events."""
    after: int
    """Maximal tokens of the shown events afterwards."""


class _Unit(NamedTuple):
    """The events `first` … `end` of a view, and why they are protected, if they are."""

    first: int
    end: int
    why: str


class _Stretch(NamedTuple):
    """The events `first` … `end` of a view, their cost, and the limit for their summary."""

    first: int
    end: int
    cost: int
    limit: int


class _Due(NamedTuple):
    """Why a condensation is due, its target, and the limit that it must reach."""

    why: str
    must: bool
    aim_tokens: float
    aim_events: float
    most_tokens: float
    most_events: float


def condense(
    view: HistoryView,
    event_id: str,
    count: EventCount,
    limits: HistoryLimits,
    *,
    policy: Condensing = DEFAULT,
    pinned: AbstractSet[str] = frozenset(),
) -> Forward | RecordCondensation:
    """Return the next step: send the view, or record a condensation and call this again.

    Over `limits.tokens` or `limits.events`, a condensation is made if possible; otherwise the view is sent, with the
    reason. Over `limits.window`, or after a request, it is required: raises NothingToCondense if it is impossible. Then
    record `Condensation(event_id, reason=str(error))`, which answers the request.

    `event_id` is the id of the condensation, `count` returns the tokens of an event, `pinned` are ids of events. For
    properties that insert nothing and remove nothing for its cost: the shown events cost less afterwards, and repeated
    calls without further events end with Forward or the error. Linear.
    """
    events = view.events
    costs = [count(event) for event in events]
    total = sum(costs)
    due = _due(view, total, limits, policy)
    if not due.why:
        return Forward(view)
    units = _units(view, pinned, policy)
    chosen = _choose(events, costs, units, due, policy, event_id, count)
    saved = sum(one.cost - one.limit for one in chosen)
    fewer = sum(one.end - one.first - 1 for one in chosen)
    fits = total - saved <= due.most_tokens and len(events) - fewer <= due.most_events
    worth = saved >= policy.least * total or (due.aim_events < len(events) and fewer >= policy.least * len(events))
    if not chosen or not (fits or worth):
        why = f"{due.why}, and nothing can be condensed: {_why_not(units, saved, total)}"
        if not due.must:
            return Forward(view, why)
        raise NothingToCondense(
            f"{why}; unpin what may go, keep fewer events at the beginning, ask with %ctx condense for what was taken "
            f"back, or return to an earlier statement with %ctx goto"
        )
    forgotten = tuple(event.event_id for one in chosen for event in events[one.first : one.end])
    made = Condensation(event_id, forgotten, _summaries(events, chosen, event_id, count), due.why)
    after = total - sum(one.cost for one in chosen) + sum(map(count, made.summary_events()))
    return RecordCondensation(made, total, after)


# -- the events to remove ----------------------------------------------------------------------------


def _due(view: HistoryView, total: int, limits: HistoryLimits, policy: Condensing) -> _Due:
    length = len(view.events)
    must = view.unhandled_request
    why = ["a condensation was asked for"] if must else []
    aim_tokens = policy.target * total if must else total
    aim_events = length
    most_tokens, most_events = 0 if must else float("inf"), float("inf")  # on request there is no limit to reach
    if limits.tokens is not None and total > limits.tokens:
        why.append(f"the history is {total} tokens, over its limit of {limits.tokens}")
        aim_tokens = min(aim_tokens, policy.target * limits.tokens)
        most_tokens = limits.tokens
    if limits.events is not None and length > limits.events:
        why.append(f"the history is {length} events, over its limit of {limits.events}")
        aim_events = policy.target * limits.events
        most_events = limits.events
    if limits.window is not None and total > limits.window:
        why.append(f"the history is {total} tokens, over the model's window of {limits.window}")
        aim_tokens = min(aim_tokens, policy.target * limits.window)
        most_tokens, most_events, must = limits.window, float("inf"), True
    return _Due(", ".join(why), must, aim_tokens, aim_events, most_tokens, most_events)


def _units(view: HistoryView, pinned: AbstractSet[str], policy: Condensing) -> list[_Unit]:
    """Return the units. Events outside all units cannot be removed."""
    events = view.events
    restored: AbstractSet[str] = frozenset() if view.unhandled_request else view.restored
    units: list[_Unit] = []
    for first, end in pairwise(view.manipulation_indices):
        ids = {event.event_id for event in events[first:end]}
        if any(isinstance(event, UserQuestion) and not is_filler(event) for event in events[first:end]):
            why = "a question of the user"
        elif not ids.isdisjoint(pinned):
            why = "pinned"
        elif not ids.isdisjoint(restored):
            why = "taken back from a condensation"
        elif first < policy.keep_first:
            why = "at the beginning"
        else:
            why = "the newest" if end == len(events) else ""
        units.append(_Unit(first, end, why))
    return units


def _choose(
    events: Events,
    costs: Sequence[int],
    units: Sequence[_Unit],
    due: _Due,
    policy: Condensing,
    event_id: str,
    count: EventCount,
) -> list[_Stretch]:
    """Return the oldest stretches that can be removed, until the target is reached."""
    chosen: list[_Stretch] = []
    tokens, length = sum(costs), len(events)
    for free, run in groupby(units, key=lambda unit: not unit.why):
        if not free:
            continue
        begin = end = -1
        fresh = old = limit = 0  # the cost of the stretch without its summaries, and that of its summaries
        tried = 0  # its length when a summary last did not fit; retried at twice that length, so the loop is linear
        text_count = _text_count(event_id, len(chosen) + 1, count)
        for unit in run:
            begin, end = (unit.first if begin < 0 else begin), unit.end
            for event, cost in zip(events[unit.first : end], costs[unit.first : end], strict=True):
                if isinstance(event, Summary):
                    old += cost
                else:
                    fresh += cost
            limit = min(policy.most, old + int(policy.share * fresh))
            after = tokens - fresh - old + limit
            reached = after <= due.aim_tokens and length - (end - begin - 1) <= due.aim_events
            if reached and fresh and end - begin >= 2 * tried:
                if _fits(events[begin:end], limit, text_count):
                    break
                tried = end - begin
        serves = tokens > due.aim_tokens or end - begin > 1
        if fresh and serves and 0 < limit < fresh + old and _fits(events[begin:end], limit, text_count):
            chosen.append(_Stretch(begin, end, fresh + old, limit))
            tokens -= fresh + old - limit
            length -= end - begin - 1
        if tokens <= due.aim_tokens and length <= due.aim_events:
            break
    return chosen


def _fits(events: Events, limit: int, count: TextCount) -> bool:
    """Return whether the shortest summary of the events fits."""
    return count(_Lines.of(events).text(0)) <= limit


def _why_not(units: Sequence[_Unit], saved: int, total: int) -> str:
    kinds = Counter(unit.why for unit in units if unit.why)
    said = ", ".join(f"{number} {why}" for why, number in kinds.items())
    rest = f"the rest would save {saved} of {total} tokens"
    return f"of {len(units)} units {kinds.total()} are kept ({said}), and {rest}" if kinds else rest


# -- the summaries -----------------------------------------------------------------------------------


def _text_count(event_id: str, n: int, count: EventCount) -> TextCount:
    return lambda text: count(Summary(derived(event_id, f"summary{n}"), text, event_id))


def _summaries(events: Events, chosen: Sequence[_Stretch], event_id: str, count: EventCount) -> tuple[SummaryText, ...]:
    made: list[SummaryText] = []
    gone = 0
    for n, one in enumerate(chosen, 1):
        text = extractive(events[one.first : one.end], one.limit, _text_count(event_id, n, count))
        made.append(SummaryText(text, one.first - gone + n - 1))
        gone += one.end - one.first
    return tuple(made)


def extractive(events: Events, limit: int, count: TextCount) -> str:
    """Return a summary of `events` without a model: one line for each statement, call and message.

    It names the ids that it replaces, and the number of cut lines, the oldest first. `count(text)` is at most `limit`;
    the text is empty if not even the first line fits. Deterministic. Linear except for counting log(lines) texts.
    """
    lines = _Lines.of(events)
    if count(whole := lines.text(len(lines.lines))) <= limit:
        return whole
    kept = bisect_right(range(len(lines.lines)), limit, key=lambda n: count(lines.text(n))) - 1
    while kept >= 0 and count(lines.text(kept)) > limit:  # a longer text may have a smaller count
        kept -= 1
    return lines.text(kept) if kept >= 0 else ""


_HEADER = re.compile(r"Summary of (\d{1,9}) events?, (\S+?)(?: to (\S+?))?:?$")
_CUT = re.compile(r"\((\d{1,9}) earlier lines? cut\)$")


class _Lines(NamedTuple):
    """An extractive summary before it is cut: the number of events, the first and the last, and a line for each."""

    events: int
    first: str
    last: str
    cut: int
    lines: Sequence[str]

    @classmethod
    def of(cls, events: Events) -> _Lines:
        events = [event for event in events if not is_filler(event)] or events
        answers = pair(events).answers
        results = set(answers.values())
        number = cut = 0
        first = last = ""
        lines: list[str] = []
        for place, event in enumerate(events):
            begins = ends = _label(event)
            number += 1
            if isinstance(event, Summary):
                head, *rest = event.text.splitlines() or [""]
                if header := _HEADER.match(head):
                    number += int(header[1]) - 1
                    begins, ends = header[2], header[3] or header[2]
                    if rest and (gone := _CUT.match(rest[0])):
                        cut += int(gone[1])
                        del rest[0]
                else:
                    rest = [head, *rest]
                lines += [one_line(line, 240) for line in rest if line.strip()]
            elif place not in results:
                answer = events[answers[place]] if place in answers else None
                lines.append(_line(event, answer))
            first, last = first or begins, ends
        return cls(number, first, last, cut, lines)

    def text(self, kept: int) -> str:
        """Return the text with the newest `kept` lines."""
        span = self.first if self.first == self.last else f"{self.first} to {self.last}"
        cut = self.cut + len(self.lines) - kept
        said = [f"Summary of {self.events} event{'s' * (self.events != 1)}, {span}{':' if kept or cut else ''}"]
        if cut:
            said.append(f"({cut} earlier line{'s' * (cut != 1)} cut)")
        return "\n".join([*said, *self.lines[len(self.lines) - kept :]])


def _label(event: HistoryEvent) -> str:
    """Return a short id that the model knows; without spaces, because a header is parsed again."""
    named = event.statement_id if isinstance(event, HumanStatement) else event.event_id
    return one_line(re.sub(r"\s", "_", named), 40).replace(" ", "_") or "?"


def _line(event: HistoryEvent, answer: HistoryEvent | None) -> str:
    label = _label(event)
    match event:
        case HumanStatement():
            return brief_line(f"{label}: {main_line(event.source)}", event.source, _outcome(event))
        case Action():
            source = next((one for one in event.input.values() if isinstance(one, str) and one.strip()), "")
            said = main_line(source) if source else one_line(json.dumps(event.input, default=str), 100)
            return brief_line(f"{label} {one_line(event.tool_name, 40)}: {said}", source, _result(answer))
        case AssistantMessage():
            return f"{label} said: {main_line(event.text)}"
        case UserQuestion():
            return f"{label} asked: {main_line(event.text)}"
        case _:
            return f"{label}: {_result(event) or type(event).__name__}"


def _outcome(event: HumanStatement) -> str:
    failed = next((one for one in event.outputs if one.kind == "error"), None)
    if failed is not None:
        return f"failed: {last_line(failed.text)}"
    shown = next((one for one in reversed(event.outputs) if one.kind in _READABLE and one.text.strip()), None)
    gave = f"gave: {last_line(shown.text)}" if shown else ", ".join(dict.fromkeys(one.kind for one in event.outputs))
    return gave if event.status == "ok" else " · ".join(filter(None, (event.status, gave)))


def _result(event: HistoryEvent | None) -> str:
    match event:
        case Observation():
            return f"{'gave' if event.status == 'success' else event.status}: {last_line(event.content)}"
        case UserRejection():
            return f"the user did not allow it: {one_line(event.reason, 120)}" if event.reason else "not allowed"
        case AgentError():
            return f"could not run: {one_line(event.message, 120)}"
        case _:
            return ""


_READABLE = frozenset({"stdout", "stderr", "text/plain", "text/markdown"})
