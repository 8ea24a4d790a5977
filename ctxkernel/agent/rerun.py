"""What was said of a model's turn, said again when its statements are run again: a model is never asked by that.

Rule 1: the texts and calls are those of then; what the cells gave is what they give now.
Rule 2: thinking, and the state that was sent, rest on what was there then; neither is said again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ctxkernel.core.timeline import Execution
from ctxkernel.history.events import (
    RESULTS,
    Action,
    AssistantMessage,
    HistoryEvent,
    Observation,
    OutputStatus,
    UserQuestion,
    nth,
)
from ctxkernel.projection.layout import result_text

_SPEECH = (UserQuestion, AssistantMessage, Action)
STATUS: dict[str, OutputStatus] = {"ok": "success", "error": "failed", "timeout": "timeout"}
"""What the status of an execution is to the call that it answers; any other was canceled."""


def is_speech(records: Sequence[HistoryEvent]) -> bool:
    """Whether an execution with these records asked or answered, and ran nothing itself."""
    return any(isinstance(one, _SPEECH) for one in records)


def said_again(records: Iterable[HistoryEvent], execution_id: str) -> list[HistoryEvent]:
    """Return the events of an ask or a response as those of another execution of it."""
    kept = [one for one in records if isinstance(one, (*_SPEECH, *RESULTS))]
    made: list[HistoryEvent] = []
    for number, event in enumerate(kept, 1):
        name = nth(execution_id, number)
        if isinstance(event, Action | AssistantMessage):
            made.append(replace(event, event_id=name, thinking=()))
        else:
            made.append(replace(event, event_id=name))
    return made


def observed_again(records: Iterable[HistoryEvent], execution: Execution) -> list[HistoryEvent]:
    """Return the result of a model's cell that was run again, with what it gave now."""
    made: list[HistoryEvent] = []
    for event in records:
        name = nth(execution.execution_id, len(made) + 1)
        if isinstance(event, Observation) and not made:
            status = STATUS.get(execution.status, "canceled")
            made.append(Observation(name, event.tool_call_id, result_text(execution), status))
        elif isinstance(event, RESULTS):
            made.append(replace(event, event_id=name))
    return made
