"""The panel's rows of the model's history: repairs, condensations, redactions, pins.

Rule 1: a snapshot is frozen at the end of a turn, and any thread may read it: it shares a list that only grows, and
        remembers its length.
Rule 2: a turn costs as much as it recorded, not as much as was recorded before it. An empty history has no rows.
Rule 3: rows are bounded: the newest entries, each text truncated. The events behind a condensation are sent on request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ctxkernel.core.dataclasses import dataclass
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
from ctxkernel.projection.rendered_history import Past

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import projection as messages

ENTRIES = 200
"""Most entries, pins, waiting calls, and events of a condensation: the newest."""
REASON_CHARS = 400
TEXT_CHARS = 4000

HistoryRecord = Condensation | Redaction | RedactionBatch | Repair

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
class HistorySnapshot:
    """The model's history at the end of a turn."""

    events: Sequence[HistoryEvent]
    """All events of the path; the list grows …"""
    count: int
    """… and had this length."""
    entries: tuple[HistoryRecord, ...]
    """The newest, in order."""
    more: int
    """Number of entries before these."""
    states: Mapping[str, str]
    """State of each redaction."""
    withdrawn: frozenset[str]
    pins: tuple[tuple[str, str], ...]
    """The newest pinned events, with reasons."""
    waiting: tuple[tuple[str, str], ...]
    """The newest calls without a result, with their tools."""
    asked: bool
    """Whether a condensation is requested and still pending."""

    def to_json(self) -> messages.History:
        """Return the panel's object."""
        return {
            "entries": [self._entry(one) for one in self.entries],
            "more": self.more,
            "pins": [{"target": target, "reason": reason[:REASON_CHARS]} for target, reason in self.pins],
            "waiting": [{"event_id": event_id, "tool": tool[:REASON_CHARS]} for event_id, tool in self.waiting],
            "asked": self.asked,
        }

    def _entry(self, one: HistoryRecord) -> messages.Entry:
        name = one.event_id
        match one:
            case Repair():
                reason = one.reason[:REASON_CHARS]
                return {"id": name, "kind": "repair", "fix": one.fix, "target": one.target_id, "reason": reason}
            case Condensation():
                gone = one.forgotten_event_ids
                return {
                    "id": name,
                    "kind": "condensation",
                    "reason": one.reason[:REASON_CHARS],
                    "events": len(gone),
                    "first": gone[0] if gone else None,
                    "last": gone[-1] if gone else None,
                    "summary": "\n\n".join(each.text for each in one.summaries)[:TEXT_CHARS],
                    "state": "undone" if name in self.withdrawn else "applied",
                }
            case Redaction():
                return {
                    "id": name,
                    "kind": "redaction",
                    "target": one.target_id,
                    "by": one.by,
                    "summary": one.summary_text[:REASON_CHARS],
                    "state": self.states[name],
                }
            case RedactionBatch():
                many, reason = len(one.directive_ids), one.reason[:REASON_CHARS]
                return {"id": name, "kind": "batch", "redactions": many, "reason": reason}

    def condensed(self, condensation_id: str) -> messages.CondensedEvents:
        """Return the events behind a condensation. Raises BadCommand for an unknown id."""
        found = next((one for one in self.entries if one.event_id == condensation_id), None)
        if not isinstance(found, Condensation):
            raise BadCommand(f"no condensation {condensation_id!r} here; %ctx condense --list shows them")
        gone = set(found.forgotten_event_ids)
        events = list(islice(self._with_ids(gone), ENTRIES))
        return {
            "events": [
                {"id": event.event_id, "kind": event_kind(event), "text": content_of(event)[:TEXT_CHARS]}
                for event in events
            ],
            "more": max(0, len(gone) - len(events)),
        }

    def _with_ids(self, wanted: set[str]) -> Iterator[HistoryEvent]:
        for event in islice(self.events, self.count):
            if event.event_id in wanted:
                yield event
            elif isinstance(event, Condensation):  # a later condensation can contain its summary
                yield from (one for one in event.summary_events() if one.event_id in wanted)


def changed_history(before: messages.History | None, now: messages.History) -> messages.History:
    """Return what differs from the history that the front ends have; all of it if they have none."""
    if before is None:
        return now
    known = {one["id"]: one for one in before["entries"]}
    return {**now, "change": True, "entries": [one for one in now["entries"] if known.get(one["id"]) != one]}


def event_kind(event: HistoryEvent) -> str:
    """Return what the panel calls an event of the model's history."""
    return next((name for kind, name in _KINDS if isinstance(event, kind)), "record")


class HistoryRows:
    """Follows the history of the model from turn to turn."""

    def __init__(self) -> None:
        self._begin([])

    def _begin(self, events: Sequence[HistoryEvent]) -> None:
        self._events = events
        self._read = 0
        self._entries: list[HistoryRecord] = []
        self._withdrawn: set[str] = set()
        self._unanswered: set[str] = set()

    def take(self, past: Past) -> HistorySnapshot | None:
        """Return the history as it is now; None if it has nothing to show."""
        events = past.events
        if events is not self._events or len(events) < self._read:
            self._begin(events)
        for event in events[self._read :]:
            self._add(event)
        self._read = len(events)
        waiting = past.view.waiting[-ENTRIES:] if self._unanswered else ()
        asked = past.view.unhandled_request
        if not (self._entries or past.pins or waiting or asked):
            return None
        newest = tuple(self._entries[-ENTRIES:])
        return HistorySnapshot(
            events,
            self._read,
            newest,
            len(self._entries) - len(newest),
            _redaction_states(past.redactions, newest),
            frozenset(self._withdrawn.intersection(one.event_id for one in newest)),
            tuple(list(past.pins.items())[-ENTRIES:]),
            tuple((one.event_id, one.tool_name) for one in waiting),
            asked,
        )

    def _add(self, event: HistoryEvent) -> None:
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


def _redaction_states(found: Redactions, entries: Sequence[HistoryRecord]) -> dict[str, str]:
    waits = {one.event_id for one in found.waiting}
    states: dict[str, str] = {}
    for name in (one.event_id for one in entries if isinstance(one, Redaction)):
        if name not in found.live:
            states[name] = "undone"
        elif name in found.edits:
            states[name] = "applied"
        else:
            states[name] = "waiting" if name in waits else "again"
    return states
