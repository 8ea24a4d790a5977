"""Redaction: an output that went stale is shown as a short note; its call stays (seed 004, option 1).

Rule 1: a directive is an event, and what is shown is a fold over events: the same log gives the same, however often
        it is replayed. A human's directive takes effect at once, a model's when a `RedactionBatch` names it; neither
        within an open tool loop, since the response being made rests on what it was shown: there it waits for the end.
Rule 2: masked, never removed: id, place, `tool_call_id` and status of a result stay. No event given is changed.
Rule 3: a summary is the model's text, so it is data: one line, bounded, quoted as a JSON string within the note.
Rule 4: each edit costs what follows it in the provider's cache. So the model's wait until a batch pays (`due`), and
        models that bind thinking to what stands before it are shown none that rests on the old text (`strip_thinking`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.events import Json
from ctxkernel.core.text import one_line, truncate
from ctxkernel.history.capabilities import Capabilities
from ctxkernel.history.events import (
    RESULTS,
    Action,
    AgentError,
    AssistantMessage,
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
"""Characters of a summary, once it is one line: 1 to 3 sentences, about 110 tokens."""
THRESHOLD = 8000
"""Stale tokens from which on a batch takes effect without further reckoning (simulated: `benchmarks/session.py`)."""
LEAST_PART = 0.5
"""A batch takes at least this share of the stale tokens; the earliest rest may wait, where that rewrites much less."""

Count = Callable[[str], int]
"""Text → its tokens, ≥ 0."""
State = Literal["applied", "again", "waiting", "missing", "kept"]
Cause = Literal["nothing", "cold", "limit", "threshold", "cost", "wait"]

# -- what stands in the place of an output -------------------------------------------------------------


def printable_line(text: str) -> str:
    """Return `text` as one line without control, invisible or unpaired characters."""
    return "".join(char for char in one_line(text, len(text)) if char.isprintable())


def note(summary_text: str, event: HistoryEvent) -> str:
    """Return what is shown in place of the output of `event`: one line, its summary cut to `MAX_SUMMARY`."""
    summary = truncate(printable_line(summary_text), MAX_SUMMARY)
    what = "this cell" if isinstance(event, HumanStatement) else "this call"
    return f"[redacted: {json.dumps(summary, ensure_ascii=False)}; {what} need not be made again]"


def content(event: HistoryEvent) -> str:
    """Return the text that a redaction of `event` would replace; empty where there is none."""
    match event:
        case Observation():
            return event.content
        case UserRejection():
            return event.reason
        case AgentError():
            return event.message
        case HumanStatement():
            return "\n".join(output.text for output in event.outputs)
        case _:
            return ""


def _with_note(event: HistoryEvent, text: str) -> HistoryEvent:
    """Return a copy that shows `text` for its output."""
    match event:
        case Observation():
            return replace(event, content=text)
        case UserRejection():
            return replace(event, reason=text)
        case AgentError():
            return replace(event, message=text)
        case HumanStatement():
            return replace(event, outputs=(Output("text/plain", text),))
        case _:
            return event


def weight(event: HistoryEvent, count: Count) -> int:
    """Return the tokens of all that a request carries of `event`, about: its text, input, thinking and output."""
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
    """How many events had been recorded when it took effect: what has a lower number was made before."""


class Redactions:
    """What the directives of a history amount to: a fold over its events, which grows by `append` in O(1).

    `withdrawn` are ids of directives that count as never given. An event that was seen before is not taken again.
    """

    def __init__(self, history: Iterable[HistoryEvent] = (), *, withdrawn: Collection[str] = ()) -> None:
        self.numbers: dict[str, int] = {}
        """Event id → its number in the order of recording."""
        self.live: dict[str, Redaction] = {}
        """The directives that were given and not withdrawn, by id, in the order of issue."""
        self.edits: dict[str, Edit] = {}
        """Those in effect, by id, in the order in which they took effect."""
        self.undone: list[Edit] = []
        """Those that were in effect and are no more: what was shown changed then, too."""
        self._withdrawn = frozenset(withdrawn)
        self._next: list[str] = []
        """Directives whose effect begins or ends at the next boundary."""
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
        if event.place != "meta" and not isinstance(event, Context):  # a state is sent within a loop, too
            self._in_run = event.place != "message"
        self._take_effect()

    def withdraw(self, directive_id: str) -> None:
        """Take a directive back, from the event that was appended last on; at the end of the loop where one is open.

        Unlike the constructor's `withdrawn`, this remembers that the note was shown until now.
        """
        if self.live.pop(directive_id, None) is not None:
            self._next.append(directive_id)
            self._take_effect()

    @property
    def at_boundary(self) -> bool:
        """Whether no tool loop is open: no call waits, and the model is not to go on from a result."""
        return not self._in_run and not self._unanswered

    @property
    def waiting(self) -> tuple[Redaction, ...]:
        """The directives that are not in effect yet and would change something, in the order of issue."""
        masked = {edit.directive.target_id for edit in self.edits.values()}
        return tuple(one for one in self.live.values() if one.target_id not in masked)

    def _take_effect(self) -> None:
        # A call may wait for its approval, or for ever, while the person goes on: what she asks for is done.
        if not self._next or self._in_run:
            return
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


def at_boundary(history: Events) -> bool:
    """Whether no tool loop of `history` is open now, so that an edit may take effect."""
    return Redactions(history).at_boundary


class Places:
    """Where the outputs that directives name stand among the events that are shown."""

    def __init__(self, shown: Events, wanted: Collection[str]) -> None:
        self.shown = shown
        self.of = {event.event_id: place for place, event in enumerate(shown) if event.event_id in wanted}
        of_calls = any(shown[place].place == "call" for place in self.of.values())
        self.answers: dict[int, int] = pair(shown).answers if of_calls else {}

    def output(self, event_id: str, by: By) -> int | None:
        """Return where the output that `event_id` means stands; None where it is not shown or not to be redacted."""
        place = self.of.get(event_id)
        if place is None:
            return None
        event = self.shown[place]
        if event.place == "call":
            return self.answers.get(place)
        return place if event.place == "result" or (isinstance(event, HumanStatement) and by == "human") else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one directive."""

    directive_id: str
    target_id: str
    by: By
    state: State
    """applied · again: its output is a note already · waiting: for a batch or for the end of a loop · missing: no such
    output is shown · kept: the note would not be shorter."""
    tokens_saved: int = 0


@dataclass(frozen=True, slots=True)
class RedactionReport:
    """What became of the directives, in the order of issue."""

    outcomes: tuple[Outcome, ...] = ()

    def ids(self, state: State) -> tuple[str, ...]:
        """Return the directives in `state`."""
        return tuple(one.directive_id for one in self.outcomes if one.state == state)

    @property
    def applied(self) -> tuple[str, ...]:
        """The directives that made a note."""
        return self.ids("applied")

    @property
    def missing(self) -> tuple[str, ...]:
        """The directives whose output is not shown: it was condensed, or never was one. No error."""
        return self.ids("missing")

    @property
    def waiting(self) -> tuple[str, ...]:
        """The directives that are not in effect yet."""
        return self.ids("waiting")

    @property
    def tokens_saved(self) -> int:
        """Tokens that the notes save, all together."""
        return sum(one.tokens_saved for one in self.outcomes)

    def to_json(self) -> dict[str, Json]:
        """Return `{tokens_saved, directives: [{directive_id, target_id, by, state, tokens_saved}]}`."""
        rows: list[Json] = [
            {
                "directive_id": one.directive_id,
                "target_id": one.target_id,
                "by": one.by,
                "state": one.state,
                "tokens_saved": one.tokens_saved,
            }
            for one in self.outcomes
        ]
        return {"tokens_saved": self.tokens_saved, "directives": rows}


@dataclass(frozen=True, slots=True)
class Redacted:
    """Shown events with their notes. `events` is the object that was given where nothing changed."""

    events: Events
    report: RedactionReport
    changed: Mapping[str, int]
    """Id of each shown event whose output is, or was, a note → since when it is shown as it is (`Edit.since`)."""


def apply(shown: Events, redactions: Redactions, *, count: Count) -> Redacted:
    """Return `shown`, the events of a view, with the outputs that are redacted as notes.

    Holds: as many events, with the ids, pairing and order that they had; none longer than it was, in characters, even
    for a directive that never was validated; applying to the outcome changes nothing. Of several directives for one
    output the first that took effect stands. O(len(shown)), with one pass over ids.
    """
    if not redactions.live and not redactions.undone:
        return Redacted(shown, RedactionReport(), {})
    undone = [edit.directive.target_id for edit in redactions.undone]
    places = Places(shown, {one.target_id for one in redactions.live.values()}.union(undone))
    new: dict[int, HistoryEvent] = {}
    changed: dict[str, int] = {}
    state: dict[str, tuple[State, int]] = {}
    for directive_id, edit in redactions.edits.items():
        place = places.output(edit.directive.target_id, edit.directive.by)
        if place is None:
            state[directive_id] = "missing", 0
        elif place in new:
            state[directive_id] = "again", 0
        else:
            old, text = content(shown[place]), note(edit.directive.summary_text, shown[place])
            if old == text or len(text) < len(old):
                state[directive_id] = "applied", count(old) - count(text)
                new[place] = shown[place] if old == text else _with_note(shown[place], text)
                changed[shown[place].event_id] = edit.since
            else:
                state[directive_id] = "kept", 0
    for edit in redactions.undone:
        place = places.output(edit.directive.target_id, edit.directive.by)
        if place is not None:
            event_id = shown[place].event_id
            changed[event_id] = max(edit.since, changed.get(event_id, 0))
    outcomes: list[Outcome] = []
    for directive in redactions.live.values():
        outcome, saved = state.get(directive.event_id, ("waiting", 0))
        if outcome == "waiting":
            place = places.output(directive.target_id, directive.by)
            outcome = "missing" if place is None else "again" if place in new else "waiting"
        outcomes.append(Outcome(directive.event_id, directive.target_id, directive.by, outcome, saved))
    events = shown
    if any(event is not shown[place] for place, event in new.items()):
        events = list(shown)
        for place, event in new.items():
            events[place] = event
    return Redacted(events, RedactionReport(tuple(outcomes)), changed)


def strip_thinking(
    events: Events, changed: Mapping[str, int], numbers: Mapping[str, int], capabilities: Capabilities
) -> Events:
    """Return `events` without the thinking that rests on text which is no longer shown so.

    `changed` is `Redacted.changed`, or any ids of shown events with the number since which they are as they are;
    `numbers` is `Redactions.numbers`. A thinking block is bound to all that stood before it: one that was made before
    an earlier event changed would be refused (`Invalid signature in thinking block`). One made after is kept. `events`
    itself where nothing goes, so always for a model that does not bind thinking.
    """
    if not changed or not capabilities.bound_thinking:
        return events
    first = next((place for place, event in enumerate(events) if event.event_id in changed), len(events))
    out: list[HistoryEvent] | None = None
    since = 0
    for place in range(first, len(events)):
        event = events[place]
        if event.event_id in changed:
            since = max(since, changed[event.event_id])
        elif isinstance(event, Action | AssistantMessage) and numbers.get(event.event_id, 0) < since and event.thinking:
            out = list(events) if out is None else out
            out[place] = replace(event, thinking=())
    return events if out is None else out


# -- when a batch pays ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prices:
    """What writing and reading a cached token cost, relative to a plain input token. Dated: November 2026."""

    write: float = 1.25
    """1.25 for five minutes, 2 for an hour."""
    read: float = 0.1
    """0.05 on opus-5-5 and sonnet-5-5."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a batch would do now."""

    stale_tokens: int
    """Tokens that it would save: R."""
    tokens_after_first_edit: int
    """Tokens from its first note on, which the cache would have to be written again for: T."""
    directive_ids: tuple[str, ...] = ()
    """The directives that would take effect, in the order of issue."""


def outlook(shown: Events, redactions: Redactions, *, count: Count, whole: bool = False) -> Outlook:
    """Return the batch of waiting directives that pays soonest; `shown` as it is shown now, earlier notes included.

    A small output far up costs the rewriting of all that follows it, so a batch may leave the earliest outputs for a
    later one: of those with `LEAST_PART` of the stale tokens or more it is the one with the least T/R. With `whole` it
    is all that wait, as where rewriting costs nothing (a cold cache) or room is short. What is not shown, or would not
    get shorter, is in none.
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
class Decision:
    """Whether the waiting directives take effect now, and why. `reason` is what a `RedactionBatch` records."""

    pays: bool
    cause: Cause
    reason: str
    break_even: float | None = None
    """Turns after which the saving has paid for the rewriting; None where nothing is stale."""
    directive_ids: tuple[str, ...] = ()
    """What would take effect, or does."""

    def batch(self, event_id: str) -> RedactionBatch:
        """Return the record of the directives taking effect for this reason."""
        return RedactionBatch(event_id, self.directive_ids, self.reason)


def due(
    ahead: Outlook,
    *,
    cache_cold: bool,
    limit_near: bool,
    prices: Prices,
    expected_turns: float,
    threshold: int = THRESHOLD,
) -> Decision:
    """Return whether a batch pays now: the cache is cold, a limit is near, enough is stale, or the cost model says so.

    The cost model: rewriting T tokens costs T·(w-r) once, R tokens fewer save R·r at each turn, so it pays after
    n > (w-r)/r · T/R turns. Whether now is a boundary is not asked here (`Redactions.at_boundary`). Raises BadPolicy
    for prices that are no prices, and for a negative number of turns or a threshold below 0.
    """
    if not 0 < prices.read <= prices.write:
        raise BadPolicy(f"due: reading at {prices.read} and writing at {prices.write}; give 0 < read <= write")
    if expected_turns < 0 or threshold < 0:
        raise BadPolicy(f"due: {expected_turns} turns, a threshold of {threshold}; give numbers of 0 or more")
    stale, after = ahead.stale_tokens, ahead.tokens_after_first_edit
    if stale <= 0:
        return Decision(False, "nothing", "nothing is stale")
    turns = (prices.write - prices.read) / prices.read * after / stale

    def decision(pays: bool, cause: Cause, reason: str) -> Decision:
        return Decision(pays, cause, reason, turns, ahead.directive_ids)

    if cache_cold:
        return decision(True, "cold", f"the cache is cold: {stale} stale tokens go for nothing")
    if limit_near:
        return decision(True, "limit", f"a limit is near: {stale} tokens are stale")
    if stale >= threshold:
        return decision(True, "threshold", f"{stale} tokens are stale, {threshold} are enough")
    told = f"{stale} stale tokens, {after} to rewrite: pays after {turns:.0f} turns, {expected_turns:g} are expected"
    pays = expected_turns > turns
    return decision(pays, "cost" if pays else "wait", told)
