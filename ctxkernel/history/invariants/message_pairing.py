"""Messages of user and assistant alternate."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ctxkernel.history.events import AssistantMessage, Context, Events, HistoryEvent, UserQuestion, derived
from ctxkernel.history.invariants.property import Property

FILLER_ANSWER = "(no answer)"
FILLER_QUESTION = "(go on)"


def is_filler(event: HistoryEvent) -> bool:
    """Return whether this property inserted the event."""
    said = event.text if isinstance(event, AssistantMessage | UserQuestion) else ""
    return said in (FILLER_ANSWER, FILLER_QUESTION) and event.event_id.endswith(derived("", "turn"))


def _is_assistants(event: HistoryEvent) -> bool:
    return event.place == "call" or isinstance(event, AssistantMessage)


class MessagePairing(Property):
    """No two messages of one role in a row, for servers that refuse to merge them. Off by default.

    Between two messages of one role, a short filler of the other role is inserted, with an id derived from the second.
    Results and the text right after them are one user message; so are the calls of a batch and the text before them
    one assistant message. The state that was sent with a request belongs to the user message before it.
    """

    def enforce(self, events: Events, source: Events) -> Events:
        """Insert fillers."""
        out: list[HistoryEvent] = list(events[:1])
        for before, event in pairwise(events):
            assistants = _is_assistants(event)
            alike = before.place == event.place == "message" and _is_assistants(before) == assistants
            if alike and not isinstance(event, Context):
                event_id = derived(event.event_id, "turn")
                filler = UserQuestion(event_id, FILLER_QUESTION) if assistants else None
                out.append(filler or AssistantMessage(event_id, FILLER_ANSWER))
            out.append(event)
        return out if len(out) > len(events) else events

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """Return the gaps where a user message begins, and both ends: turns between them are complete."""
        inner = [
            gap
            for gap, (before, event) in enumerate(pairwise(events), 1)
            if event.place == "message" and _is_assistants(before) and not _is_assistants(event)
        ]
        return [0, *inner, len(events)] if events else [0]
