"""Repeat the events of a model's turn when its statements are re-run. No model is asked.

Rule 1: texts and calls are the recorded ones; results of cells are those of the re-run.
Rule 2: thinking, and the state that was sent, depend on the earlier state; neither is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ctxkernel.core.timeline import Execution
from ctxkernel.history.events import (
    RESULTS,
    THINKING,
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
"""Status of an execution → status of the call's result; any other is `canceled`."""


def is_speech(records: Sequence[HistoryEvent]) -> bool:
    """Return whether an execution with these records asked or answered, and ran no code itself."""
    return any(isinstance(one, _SPEECH) for one in records)


def said_again(records: Iterable[HistoryEvent], execution_id: str) -> list[HistoryEvent]:
    """Return the events of an ask or a response, renumbered for another execution."""
    kept = [one for one in records if isinstance(one, (*_SPEECH, *RESULTS))]
    kept = [_without_thinking(one) if isinstance(one, Action | AssistantMessage) else one for one in kept]
    return [replace(one, event_id=nth(execution_id, number)) for number, one in enumerate(kept, 1)]


def _without_thinking(event: Action | AssistantMessage) -> Action | AssistantMessage:
    return replace(event, blocks=tuple([block for block in event.blocks if block.get("type") not in THINKING]))


def observed_again(records: Iterable[HistoryEvent], execution: Execution, source: str) -> list[HistoryEvent]:
    """Return the result of a re-run cell of the model, with its output now."""
    made: list[HistoryEvent] = []
    for event in records:
        name = nth(execution.execution_id, len(made) + 1)
        if isinstance(event, Observation) and not made:
            status = STATUS.get(execution.status, "canceled")
            made.append(Observation(name, event.tool_call_id, result_text(execution, source), status))
        elif isinstance(event, RESULTS):
            made.append(replace(event, event_id=name))
    return made
