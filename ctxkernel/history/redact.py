"""Redaction: an outdated output is shown as a short note; its call stays (seed 004, option 1).

Rule 1: a directive is an event, and the shown events are computed from all events: a replay gives the same result. A
        directive of a human takes effect at once, one of a model when a `RedactionBatch` names it. In an open tool loop
        both wait for its end, because the pending response is based on the present texts.
Rule 2: outputs are replaced, never removed: id, place, `tool_call_id` and status of a result stay. No event is changed.
Rule 3: a summary is a text of the model, so it is data: one line, bounded, quoted as a JSON string in the note.
Rule 4: each edit invalidates the provider's cache for everything after it. So a model's directives wait until a batch
        pays off (`due`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, cast

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.text import one_line, truncate
from ctxkernel.history.events import (
    RESULTS,
    Action,
    AgentError,
    By,
    Context,
    Events,
    HistoryEvent,
    HumanStatement,
    Observation,
    Output,
    Redaction,
    RedactionBatch,
    UserRejection,
)
from ctxkernel.history.pairing import pair

MAX_SUMMARY = 400
"""Maximal characters of a summary: 1 to 3 sentences, about 110 tokens."""
THRESHOLD = 8000
"""Number of outdated tokens at which a batch takes effect in any case (simulated: `benchmarks/session.py`)."""
LEAST_PART = 0.5
"""Minimal share of the outdated tokens in a batch; the earliest outputs may wait if that rewrites much less."""

Count = Callable[[str], int]
"""Returns the tokens of a text, ≥ 0."""
DirectiveStatus = Literal["applied", "again", "waiting", "missing", "kept"]
Cause = Literal["nothing", "cold", "limit", "threshold", "cost", "wait"]

# -- notes ---------------------------------------------------------------------------------------------


def printable_line(text: str) -> str:
    """Return `text` as one line without control, invisible or unpaired characters."""
    return "".join(char for char in one_line(text, len(text)) if char.isprintable())


def note(summary_text: str, event: HistoryEvent) -> str:
    """Return the note that replaces the output of `event`: one line, with the summary cut to `MAX_SUMMARY`."""
    summary = truncate(printable_line(summary_text), MAX_SUMMARY)
    what = "this cell" if isinstance(event, HumanStatement) else "this call"
    return f"[redacted: {json.dumps(summary, ensure_ascii=False)}; {what} need not be made again]"


_OUTPUT_FIELDS: dict[type[Any], str] = {Observation: "content", UserRejection: "reason", AgentError: "message"}


def content(event: HistoryEvent) -> str:
    """Return the text that a redaction of `event` would replace; empty if there is none."""
    if isinstance(event, HumanStatement):
        return "\n".join(output.text for output in event.outputs)
    return getattr(event, _OUTPUT_FIELDS.get(type(event), ""), "")


def _with_note(event: HistoryEvent, text: str) -> HistoryEvent:
    """Return a copy with `text` as its output."""
    if isinstance(event, HumanStatement):
        return replace(event, outputs=(Output("text/plain", text),))
    return cast("HistoryEvent", replace(cast("Any", event), **{_OUTPUT_FIELDS[type(event)]: text}))


def weight(event: HistoryEvent, count: Count) -> int:
    """Return the approximate tokens of an event in a request: its text, input, thinking and output."""
    texts = [content(event), getattr(event, "text", ""), getattr(event, "source", "")]
    if isinstance(event, Action):
        texts.append(json.dumps(event.input, ensure_ascii=False, default=str))
    for block in getattr(event, "thinking", ()):
        texts += [value for value in (block.get("thinking"), block.get("data")) if isinstance(value, str)]
    return sum(count(text) for text in texts if text)


# -- the fold ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edit:
    """A directive in effect, or the end of its effect."""

    directive: Redaction
    since: int
    """The number of events when it took effect: events with a lower number are earlier."""


class Redactions:
    """The state of all directives of a history; `append` updates it in O(1).

    `withdrawn` are ids of directives to ignore. An event that is already known is not taken again.
    """

    def __init__(self, history: Iterable[HistoryEvent] = (), *, withdrawn: Collection[str] = ()) -> None:
        self.numbers: dict[str, int] = {}
        """Event id → its number in recording order."""
        self.live: dict[str, Redaction] = {}
        """The directives that were not withdrawn, by id, in the order in which they were given."""
        self.edits: dict[str, Edit] = {}
        """The directives in effect, by id, in the order in which they took effect."""
        self.undone: list[Edit] = []
        """The directives whose effect ended: this changed the shown events, too."""
        self._withdrawn = frozenset(withdrawn)
        self._next: list[str] = []
        """The directives whose effect begins or ends at the next boundary."""
        self._unanswered: set[str] = set()
        self._in_run = False
        for event in history:
            self.append(event)

    def append(self, event: HistoryEvent) -> None:
        """Take one more event of the history, records included."""
        if event.event_id in self.numbers:
            return
        self.numbers[event.event_id] = len(self.numbers)
        if isinstance(event, Action):
            self._unanswered.add(event.tool_call_id)
        elif isinstance(event, RESULTS):
            self._unanswered.discard(event.tool_call_id)
        elif isinstance(event, Redaction) and event.event_id not in self._withdrawn:
            self.live[event.event_id] = event
            if event.by == "human":
                self._next.append(event.event_id)
        elif isinstance(event, RedactionBatch):
            named = set(event.directive_ids)
            self._next += [one for one in self.live if one in named]
        if event.place != "meta" and not isinstance(event, Context):  # a state is also sent within a loop
            self._in_run = event.place != "message"
        if self._next and not self._in_run:
            self._take_effect()

    def withdraw(self, directive_id: str) -> None:
        """Withdraw a directive, with effect after the last appended event, or at the end of an open loop.

        Unlike the constructor's `withdrawn`, this records that the note was shown until now.
        """
        if self.live.pop(directive_id, None) is not None:
            self._next.append(directive_id)
            if not self._in_run:
                self._take_effect()

    @property
    def at_boundary(self) -> bool:
        """Return whether no tool loop is open: no call waits, and the model need not continue from a result."""
        return not self._in_run and not self._unanswered

    @property
    def waiting(self) -> tuple[Redaction, ...]:
        """The directives that are not in effect yet and would change something, in the given order."""
        if not self.live:
            return ()
        masked = {edit.directive.target_id for edit in self.edits.values()}
        return tuple(one for one in self.live.values() if one.target_id not in masked)

    def _take_effect(self) -> None:
        # A call may wait for approval for a long time while the user continues: a user's directives do not wait for it.
        now, later = len(self.numbers), list[str]()
        for directive_id in self._next:
            edit = self.edits.get(directive_id)
            directive = edit.directive if edit is not None else self.live.get(directive_id)
            if directive is not None and directive.by == "model" and not self.at_boundary:
                later.append(directive_id)
            elif directive_id in self.live:
                self.edits.setdefault(directive_id, Edit(self.live[directive_id], now))
            elif edit is not None:
                del self.edits[directive_id]
                self.undone.append(replace(edit, since=now))
        self._next = later


class Places:
    """The places of outputs among the shown events."""

    def __init__(self, shown: Events, wanted: Collection[str]) -> None:
        self.shown = shown
        self.of = {event.event_id: place for place, event in enumerate(shown) if event.event_id in wanted}
        of_calls = any(shown[place].place == "call" for place in self.of.values())
        self.answers: dict[int, int] = pair(shown).answers if of_calls else {}

    def output(self, event_id: str, by: By) -> int | None:
        """Return the place of the output of `event_id`; None if it is not shown or must not be redacted."""
        place = self.of.get(event_id)
        if place is None:
            return None
        event = self.shown[place]
        if event.place == "call":
            return self.answers.get(place)
        return place if event.place == "result" or (isinstance(event, HumanStatement) and by == "human") else None


@dataclass(frozen=True, slots=True)
class RedactionOutcome:
    """The result of one directive."""

    directive_id: str
    target_id: str
    by: By
    state: DirectiveStatus
    """applied · again: its output already is a note · waiting: for a batch or the end of a loop · missing: the output
    is not shown · kept: the note would not be shorter."""
    tokens_saved: int = 0


@dataclass(frozen=True, slots=True)
class RedactionReport:
    """The results of all directives, in the order in which they were given."""

    outcomes: tuple[RedactionOutcome, ...] = ()

    def ids(self, state: DirectiveStatus) -> tuple[str, ...]:
        """Return the directives in `state`."""
        return tuple(one.directive_id for one in self.outcomes if one.state == state)

    @property
    def tokens_saved(self) -> int:
        """The tokens that all notes save."""
        return sum(one.tokens_saved for one in self.outcomes)


@dataclass(frozen=True, slots=True)
class Redacted:
    """Shown events with their notes. `events` is the given object if nothing changed."""

    events: Events
    report: RedactionReport


def apply(shown: Events, redactions: Redactions, *, count: Count) -> Redacted:
    """Return `shown`, the events of a view, with the outputs that are redacted as notes.

    The number, ids, pairing and order of the events stay the same, and no event gets longer, even for a directive that
    was not validated. Idempotent. Of several directives for one output, the first that took effect applies.
    O(len(shown)), with one pass over ids.
    """
    if not redactions.live:
        return Redacted(shown, RedactionReport())
    places = Places(shown, {one.target_id for one in redactions.live.values()})
    new: dict[int, HistoryEvent] = {}
    results: dict[str, tuple[DirectiveStatus, int]] = {}
    for directive_id, edit in redactions.edits.items():
        place = places.output(edit.directive.target_id, edit.directive.by)
        results[directive_id] = ("missing" if place is None else "again"), 0
        if place is None or place in new:
            continue
        old, text = content(shown[place]), note(edit.directive.summary_text, shown[place])
        if old == text or len(text) < len(old):
            results[directive_id] = "applied", count(old) - count(text)
            new[place] = shown[place] if old == text else _with_note(shown[place], text)
        else:
            results[directive_id] = "kept", 0
    outcomes: list[RedactionOutcome] = []
    for one in redactions.live.values():
        if one.event_id not in results:
            place = places.output(one.target_id, one.by)
            results[one.event_id] = ("missing" if place is None else "again" if place in new else "waiting"), 0
        outcomes.append(RedactionOutcome(one.event_id, one.target_id, one.by, *results[one.event_id]))
    events = shown
    if any(event is not shown[place] for place, event in new.items()):
        events = [new.get(place, event) for place, event in enumerate(shown)]
    return Redacted(events, RedactionReport(tuple(outcomes)))


# -- when a batch pays off -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CachePrices:
    """The prices of writing and reading a cached token, relative to an input token. As of November 2026."""

    write: float = 1.25
    """1.25 for five minutes, 2 for an hour."""
    read: float = 0.1
    """0.05 on opus-5-5 and sonnet-5-5."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The effect of a batch now."""

    stale_tokens: int
    """The tokens that it would save: R."""
    tokens_after_first_edit: int
    """The tokens from its first note on, which must be written to the cache again: T."""
    directive_ids: tuple[str, ...] = ()
    """The directives that would take effect, in the order in which they were given."""


def outlook(shown: Events, redactions: Redactions, *, count: Count, whole: bool = False) -> Outlook:
    """Return the batch of waiting directives that pays off first. `shown` includes earlier notes.

    A small output near the beginning requires rewriting everything after it, so a batch may leave the earliest outputs
    for a later batch: of the batches with at least `LEAST_PART` of the outdated tokens, this is the one with the least
    T/R. With `whole`, it is all waiting directives, for a cold cache or a nearly full history. Outputs that are not
    shown, or would not get shorter, are in no batch.
    """
    waiting = redactions.waiting
    places = Places(shown, {one.target_id for one in waiting})
    saved: dict[int, tuple[int, str]] = {}
    for one in waiting:
        place = places.output(one.target_id, one.by)
        if place is not None:
            text, old = note(one.summary_text, shown[place]), content(shown[place])
            if len(text) < len(old):
                saved.setdefault(place, (max(0, count(old) - count(text)), one.event_id))
    least = sum(tokens for tokens, _ in saved.values()) * (1 if whole else LEAST_PART)
    best: tuple[float, int, int, int] | None = None
    stale = after = 0
    end = len(shown)
    for place in sorted(saved, reverse=True):
        after += sum(weight(event, count) for event in shown[place:end]) - saved[place][0]
        stale += saved[place][0]
        end = place
        if stale > 0 and stale >= least and (best is None or after / stale < best[0]):
            best = after / stale, place, stale, after
    if best is None:
        return Outlook(0, 0)
    _, first, stale, after = best
    taken = {directive_id for place, (_, directive_id) in saved.items() if place >= first}
    return Outlook(stale, after, tuple(one.event_id for one in waiting if one.event_id in taken))


@dataclass(frozen=True, slots=True)
class RedactionDecision:
    """Whether the waiting directives take effect now, and why. A `RedactionBatch` records the `reason`."""

    pays: bool
    cause: Cause
    reason: str
    directive_ids: tuple[str, ...] = ()
    """The directives that take effect, or would."""

    def batch(self, event_id: str) -> RedactionBatch:
        """Return the record with which the directives take effect."""
        return RedactionBatch(event_id, self.directive_ids, self.reason)


def due(
    ahead: Outlook,
    *,
    cache_cold: bool,
    limit_near: bool,
    prices: CachePrices,
    expected_turns: float,
    threshold: int = THRESHOLD,
) -> RedactionDecision:
    """Return whether a batch pays off now: a cold cache, a near limit, enough outdated tokens, or the cost model.

    The cost model: rewriting T tokens costs T·(w-r) once, and R tokens less save R·r at each turn, so a batch pays off
    after n > (w-r)/r · T/R turns. The caller checks whether this is a boundary (`Redactions.at_boundary`). Raises
    BadPolicy for invalid prices, a negative number of turns, or a threshold below 0.
    """
    if not 0 < prices.read <= prices.write:
        raise BadPolicy(f"due: reading at {prices.read} and writing at {prices.write}; give 0 < read <= write")
    if expected_turns < 0 or threshold < 0:
        raise BadPolicy(f"due: {expected_turns} turns, a threshold of {threshold}; give numbers of 0 or more")
    stale, after = ahead.stale_tokens, ahead.tokens_after_first_edit
    if stale <= 0:
        return RedactionDecision(False, "nothing", "nothing is stale")
    turns = (prices.write - prices.read) / prices.read * after / stale

    def decision(pays: bool, cause: Cause, reason: str) -> RedactionDecision:
        return RedactionDecision(pays, cause, reason, ahead.directive_ids)

    if cache_cold:
        return decision(True, "cold", f"the cache is cold: {stale} stale tokens go for nothing")
    if limit_near:
        return decision(True, "limit", f"a limit is near: {stale} tokens are stale")
    if stale >= threshold:
        return decision(True, "threshold", f"{stale} tokens are stale, {threshold} are enough")
    told = f"{stale} stale tokens, {after} to rewrite: pays after {turns:.0f} turns, {expected_turns:g} are expected"
    pays = expected_turns > turns
    return decision(pays, "cost" if pays else "wait", told)
