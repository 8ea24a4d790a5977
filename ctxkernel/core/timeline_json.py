"""Statements and executions as JSON (`docs/schemas.md`)."""

from __future__ import annotations

from typing import Any

from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.timeline_events import Json, event_to_json, plain


def statement_to_json(statement: Statement, executions: tuple[Execution, ...]) -> dict[str, Json]:
    """Return the timeline schema's object for one statement (`docs/schemas.md`)."""
    return {**plain(statement), "executions": [execution_to_json(e) for e in executions]}


def execution_to_json(execution: Execution) -> dict[str, Json]:
    """Return the timeline schema's object for one execution."""
    out: dict[str, Any] = plain(execution)
    out["events"] = [event_to_json(event) for event in execution.events]
    return out
