"""The cells that a front end inserts for a model or an agent (`insert_cells`), and those that an agent replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkernel.core.timeline import Execution, StatementLog
from ctxkernel.core.turn_values import TurnResult
from ctxkernel.history.events import Action, AssistantMessage
from ctxkernel.replay.notebook_outputs import notebook_outputs

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import wire as messages


def notebook_copy(log: StatementLog, result: TurnResult, execution_count: int) -> messages.Copy | None:
    """Return the cell that a front end inserts for a statement of the model or of an agent; None for others."""
    from ctxkernel.agent.markdown import safe_markdown

    statement, execution = result.statement, result.execution
    by_agent = statement.author == "agent" and statement.kind == "python"
    into = by_agent and statement.cell_id is not None
    ask = execution.execution_id if into else _last_cell(log, execution) if by_agent else statement.tags.get("ask")
    if not (by_agent or statement.author == "model") or not isinstance(ask, str) or statement.tags.get("held"):
        return None
    copy: messages.Copy = {
        "after": log.statement(ask.partition(".")[0]).cell_id,
        "into": into,
        "ask": ask,
        "statement": statement.statement_id,
        "ends": False,
        "cell_type": "code",
        "source": statement.source,
        "outputs": [],
        "execution_count": None,
    }
    if statement.kind != "meta":
        number = execution_count - 1
        return {**copy, "outputs": notebook_outputs(execution, number), "execution_count": number}
    records = log.records.get(execution.execution_id, ())
    speech = [one for one in records if isinstance(one, (Action, AssistantMessage))]
    if execution.status != "ok" or not any(one.text.strip() for one in speech):
        return None
    calls = any(isinstance(one, Action) for one in speech)
    ends = not calls and statement.tags.get("stop_reason") != "pause_turn"
    return {**copy, "ends": ends, "cell_type": "markdown", "source": safe_markdown(statement.source)}


def _last_cell(log: StatementLog, execution: Execution) -> str | None:
    """Return the newest execution of a cell of the notebook before another: an agent's cell is inserted below it."""
    at = execution.parent_execution_id
    while at is not None:
        before = log.execution(at)
        if log.statement(before.statement_id).cell_id:
            return at
        at = before.parent_execution_id
    return None
