"""Messages of user and assistant take turns."""

from __future__ import annotations

from collections.abc import Iterable

from ctxkernel.history.events import AssistantMessage, Events, HistoryEvent, UserQuestion, derived
from ctxkernel.history.invariants.base import Property

FILLER_ANSWER = "(no answer)"
FILLER_QUESTION = "(go on)"


def is_filler(event: HistoryEvent) -> bool:
    """Whether an event was put in by this property: nobody said it."""
    said = event.text if isinstance(event, AssistantMessage | UserQuestion) else ""
    return said in (FILLER_ANSWER, FILLER_QUESTION) and event.event_id.endswith(derived("", "turn"))


def _speaker(event: HistoryEvent) -> str:
    return "assistant" if event.place == "call" or isinstance(event, AssistantMessage) else "user"


class MessagePairing(Property):
    """No two messages of one role in a row, for servers that refuse to merge them. Off unless it is asked for.

    Between two messages of one role a short filler of the other is put, with an id derived from the second. Results
    and what follows them at once are one user message, and so are the calls of a batch and a text before them.
    """

    def enforce(self, events: Events, source: Events) -> Events:
        """Put fillers in."""
        out: list[HistoryEvent] = []
        for before, event in zip((None, *events), events, strict=False):
            if before is not None and _clash(before, event):
                if _speaker(event) == "user":
                    out.append(AssistantMessage(derived(event.event_id, "turn"), FILLER_ANSWER))
                else:
                    out.append(UserQuestion(derived(event.event_id, "turn"), FILLER_QUESTION))
            out.append(event)
        return out if len(out) > len(events) else events

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """The gaps where a user's message begins, and both ends: between any two the turns are complete."""
        inner = [
            gap
            for gap in range(1, len(events))
            if events[gap].place == "message"
            and _speaker(events[gap]) == "user"
            and _speaker(events[gap - 1]) == "assistant"
        ]
        return [0, *inner, len(events)] if events else [0]


def _clash(before: HistoryEvent, event: HistoryEvent) -> bool:
    """Whether two neighbours are two messages of one role that would have to be merged."""
    return before.place == event.place == "message" and _speaker(before) == _speaker(event)
