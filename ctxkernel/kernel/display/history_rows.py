"""What the panel tells of the model's history: what was repaired, condensed, redacted, pinned.

Rule 1: frozen at the end of a turn, and read from then on by whatever thread asks (law 1): a list that only grows is
        shared, with its length.
Rule 2: a turn costs what it recorded, not what was recorded before it. Where there is nothing to tell nothing is told.
Rule 3: what is told is bounded: the newest entries, each text cut. What a condensation stands for is told when asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ctxkernel.core.errors import BadCommand
from ctxkernel.history.events import (
    RESULTS,
    Action,
    AssistantMessage,
    Condensation,
    Context,
    HistoryEvent,
    HumanStatement,
    Redaction,
    RedactionBatch,
    Repair,
    Summary,
    UserQuestion,
    Withdrawal,
    content_of,
)
from ctxkernel.history.redact import Redactions
from ctxkernel.kernel import messages
from ctxkernel.projection.history import Past

ENTRIES = 200
"""Entries that are told, the newest; as many pins, and as many events of a condensation."""
REASON_CHARS = 400
TEXT_CHARS = 4000

Entry = Condensation | Redaction | RedactionBatch | Repair

_KINDS: tuple[tuple[type[Any] | tuple[type[Any], ...], str], ...] = (
    (HumanStatement, "statement"),
    (UserQuestion, "question"),
    (AssistantMessage, "answer"),
    (Action, "call"),
    (RESULTS, "result"),
    (Summary, "summary"),
    (Context, "context"),
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What had been recorded at the end of a turn."""

    events: Sequence[HistoryEvent]
    """All events of the path; the list grows …"""
    count: int
    """… and so many were there."""
    entries: tuple[Entry, ...]
    """The newest, in order."""
    more: int
    """How many came before these."""
    states: Mapping[str, str]
    """What became of each redaction."""
    withdrawn: frozenset[str]
    pins: tuple[tuple[str, str], ...]
    """The pinned events and the reasons, the newest."""
    waiting: tuple[tuple[str, str], ...]
    """The calls without a result, and their tools, the newest."""
    asked: bool
    """Whether a condensation was asked for and is still to come."""

    def to_json(self) -> messages.History:
        """Return the panel's object of it."""
        return {
            "entries": [self._entry(one) for one in self.entries],
            "more": self.more,
            "pins": [{"target": target, "reason": reason[:REASON_CHARS]} for target, reason in self.pins],
            "waiting": [{"event_id": event_id, "tool": tool[:REASON_CHARS]} for event_id, tool in self.waiting],
            "asked": self.asked,
        }

    def _entry(self, one: Entry) -> messages.Entry:
        match one:
            case Repair():
                return {
                    "id": one.event_id,
                    "kind": "repair",
                    "fix": one.fix,
                    "target": one.target_id,
                    "reason": one.reason[:REASON_CHARS],
                }
            case Condensation():
                return {
                    "id": one.event_id,
                    "kind": "condensation",
                    "reason": one.reason[:REASON_CHARS],
                    "events": len(one.forgotten_event_ids),
                    "first": next(iter(one.forgotten_event_ids), None),
                    "last": next(reversed(one.forgotten_event_ids), None),
                    "summary": "\n\n".join(each.text for each in one.summaries)[:TEXT_CHARS],
                    "state": "undone" if one.event_id in self.withdrawn else "applied",
                }
            case Redaction():
                return {
                    "id": one.event_id,
                    "kind": "redaction",
                    "target": one.target_id,
                    "by": one.by,
                    "summary": one.summary_text[:REASON_CHARS],
                    "state": self.states[one.event_id],
                }
            case RedactionBatch():
                return {
                    "id": one.event_id,
                    "kind": "batch",
                    "redactions": len(one.directive_ids),
                    "reason": one.reason[:REASON_CHARS],
                }

    def condensed(self, condensation_id: str) -> messages.CondensedEvents:
        """Return `{events, more}`: what a condensation stands for. Raises BadCommand where none is called so."""
        found = next((one for one in self.entries if one.event_id == condensation_id), None)
        if not isinstance(found, Condensation):
            raise BadCommand(f"no condensation {condensation_id!r} here; %ctx condense --list shows them")
        gone = set(found.forgotten_event_ids)
        events = list(islice(self._among(gone), ENTRIES))
        return {
            "events": [
                {"id": event.event_id, "kind": _kind(event), "text": content_of(event)[:TEXT_CHARS]} for event in events
            ],
            "more": max(0, len(gone) - len(events)),
        }

    def _among(self, wanted: set[str]) -> Iterator[HistoryEvent]:
        for event in islice(self.events, self.count):
            if event.event_id in wanted:
                yield event
            elif isinstance(event, Condensation):  # one that stands for the summary of another
                yield from (one for one in event.summary_events() if one.event_id in wanted)


def _kind(event: HistoryEvent) -> str:
    return next((name for kind, name in _KINDS if isinstance(event, kind)), "record")


class Recording:
    """Follows the history of the model from turn to turn."""

    def __init__(self) -> None:
        self._begin([])

    def _begin(self, events: Sequence[HistoryEvent]) -> None:
        self._events = events
        self._read = 0
        self._entries: list[Entry] = []
        self._withdrawn: set[str] = set()
        self._unanswered: set[str] = set()
        self._known: tuple[tuple[int, ...], dict[str, str]] = (), {}

    def take(self, past: Past) -> Recorded | None:
        """Return what has been recorded up to now; None where there is nothing to tell."""
        events = past.events
        if events is not self._events or len(events) < self._read:
            self._begin(events)
        for event in events[self._read :]:
            if type(event) is HumanStatement:  # nearly all
                continue
            match event:
                case Condensation() | Redaction() | RedactionBatch() | Repair():
                    self._entries.append(event)
                case Withdrawal():
                    self._withdrawn.add(event.target_id)
                case Action():
                    self._unanswered.add(event.tool_call_id)
                case _ if isinstance(event, RESULTS):
                    self._unanswered.discard(event.tool_call_id)
                case _:
                    pass
        self._read = len(events)
        waiting = past.view.waiting[-ENTRIES:] if self._unanswered else ()
        asked = past.view.unhandled_request
        if not (self._entries or past.pins or waiting or asked):
            return None
        newest = tuple(self._entries[-ENTRIES:])
        return Recorded(
            events,
            self._read,
            newest,
            len(self._entries) - len(newest),
            self._states(past, newest),
            frozenset(self._withdrawn.intersection(one.event_id for one in newest)),
            tuple(list(past.pins.items())[-ENTRIES:]),
            tuple((one.event_id, one.tool_name) for one in waiting),
            asked,
        )

    def _states(self, past: Past, entries: Sequence[Entry]) -> dict[str, str]:
        """Say of each redaction whether its note stands, or it waits, was taken back, or came second for its output."""
        found = past.redactions
        # What was undone only grows, so that none of these can come and another go unseen.
        mark = len(self._entries), len(found.live), len(found.edits), len(found.undone)
        if mark != self._known[0]:
            self._known = mark, _states(found, entries)
        return self._known[1]


def _states(found: Redactions, entries: Sequence[Entry]) -> dict[str, str]:
    waits = {one.event_id for one in found.waiting}
    states: dict[str, str] = {}
    for one in entries:
        if isinstance(one, Redaction):
            name = one.event_id
            if name not in found.live:
                states[name] = "undone"
            elif name in found.edits:
                states[name] = "applied"
            else:
                states[name] = "waiting" if name in waits else "again"
    return states
