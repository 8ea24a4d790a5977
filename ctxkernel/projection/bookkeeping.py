"""Facts about statements and events that decide how the history shows them: without a block of its own, or pinned."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ctxkernel.core.timeline import Statement
from ctxkernel.history.events import (
    RESULTS,
    Action,
    AssistantMessage,
    Condensation,
    CondensationRequest,
    Context,
    HistoryEvent,
    Pin,
    Redaction,
    UserQuestion,
    Verdict,
    Withdrawal,
)

_STANDS_FOR = (UserQuestion, Context, AssistantMessage, Action, *RESULTS)
"""Events that replace the block of their statement: an ask, a response or a cell of the model."""
_COMMANDS = (Redaction, Condensation, CondensationRequest, Withdrawal, Verdict, Pin)


def stands_for(event: HistoryEvent) -> bool:
    """Return whether an event replaces the block of its statement."""
    # A result that repairs an earlier call does not describe the statement that it was recorded with.
    return isinstance(event, _STANDS_FOR) and not getattr(event, "synthetic", False)


_STEERING = re.compile(r"%ctx (?:model|mode|config|cost|private|allow|record|timeout|summaries)\b")
"""Commands that only steer the kernel: nothing in them is of use to a model."""

STEERS = "it only steers the kernel, which is of no use to the model"


def steers(statement: Statement) -> bool:
    """Return whether a statement only steers the kernel."""
    if "%ctx " not in statement.source:
        return False
    lines = [line for line in map(str.strip, statement.source.splitlines()) if line and not line.startswith("#")]
    return bool(lines) and all(map(_STEERING.match, lines))


def is_bookkeeping(statement: Statement, records: Sequence[HistoryEvent]) -> bool:
    """Return whether a statement only gave directives on the history itself: it has no block."""
    if statement.author == "model" and statement.kind == "meta":  # a response without content
        return True
    if not records or not any(isinstance(one, _COMMANDS) for one in records):
        return False
    if any(isinstance(one, Verdict) for one in records):
        return True
    lines = [line for line in map(str.strip, statement.source.splitlines()) if line and not line.startswith("#")]
    return bool(lines) and all(line.startswith("%ctx ") for line in lines)  # an empty cell may have a condensation, too


def has_block(statement: Statement, records: Sequence[HistoryEvent]) -> bool:
    """Return whether the history shows a statement in a block of its own."""
    return not (steers(statement) or any(map(stands_for, records)) or is_bookkeeping(statement, records))


def is_pinned(shown: Sequence[HistoryEvent], place: int, pins: Collection[str]) -> bool:
    """Return whether an event is pinned, or another event of its batch."""
    if shown[place].place == "message":
        return shown[place].event_id in pins
    first = end = place
    while first and not (shown[first].place == "call" and shown[first - 1].place != "call"):
        first -= 1
    while end + 1 < len(shown) and (
        shown[end + 1].place == "result" or (shown[end + 1].place == "call" and shown[end].place == "call")
    ):
        end += 1
    return any(one.event_id in pins for one in shown[first : end + 1])
