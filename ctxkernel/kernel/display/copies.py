"""The cells that a front end inserts below an ask (setting `insert_cells`)."""

from __future__ import annotations

from ctxkernel.core.timeline import StatementLog
from ctxkernel.core.turn import TurnResult
from ctxkernel.history.events import Action, AssistantMessage
from ctxkernel.kernel.messages import wire as messages
from ctxkernel.replay.notebook_outputs import notebook_outputs


def notebook_copy(log: StatementLog, result: TurnResult, execution_count: int) -> messages.Copy | None:
    """Return the cell that a front end inserts below the ask for a statement of the model; None for others."""
    from ctxkernel.agent.markdown import safe_markdown

    statement, execution = result.statement, result.execution
    ask = statement.tags.get("ask")
    if statement.author != "model" or not isinstance(ask, str) or statement.tags.get("held"):
        return None
    copy: messages.Copy = {
        "after": log.statement(ask.partition(".")[0]).cell_id,
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
