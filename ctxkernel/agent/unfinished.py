"""What a kernel that ended left open of its newest ask: cells that the model proposed and nobody decided on.

Rule 1: nothing is run or decided by this. A turn lives in the memory of its kernel; what is told is the way to go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ctxkernel.agent.turn import source
from ctxkernel.core.text import one_line
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.history.events import Action, HistoryEvent, UserQuestion
from ctxkernel.history.repair import report
from ctxkernel.projection.dialect import RUN_CELL

CHARS = 4_000
"""Of the code that is shown."""


def left_open(
    path: Sequence[tuple[Statement, Execution]],
    records: Mapping[str, Sequence[HistoryEvent]],
    statements: Iterable[Statement],
) -> list[str]:
    """Return the lines that tell what waited on the way to HEAD, with the next step; none where nothing did.

    `statements` are all of the log: a call of which a cell was begun anywhere waits no more.
    """
    told = [event for _, one in path for event in records.get(one.execution_id, ()) if event.place != "meta"]
    asked = next((at for at in reversed(range(len(told))) if isinstance(told[at], UserQuestion)), None)
    if asked is None:
        return []
    question = told[asked]
    name = f"the ask of {_statement(question)} ({one_line(getattr(question, 'text', ''), 60)})"
    begun = {(one.tags.get("response"), one.tags.get("call")) for one in statements}
    missing = {one.event_id for one in report(told).missing_outputs}
    cells = [
        event
        for event in told[asked:]
        if isinstance(event, Action)
        and event.tool_name == RUN_CELL
        and event.event_id in missing
        and (event.event_id.rpartition(":")[0], event.tool_call_id) not in begun
    ]
    if cells:
        return _cells(cells, name)
    if asked == len(told) - 1 and question.event_id.rpartition(":")[0] == path[-1][1].execution_id:
        return [f"{name} was not answered when the kernel ended: run its cell again to ask the model"]
    return []


def _cells(cells: Sequence[Action], ask: str) -> list[str]:
    many = "a cell that the model proposed" if len(cells) == 1 else f"{len(cells)} cells that the model proposed"
    lines = [f"{many} in {_statement(cells[0])} waited when the kernel ended, and nothing of it was run:"]
    shown = "\n\n".join(source(one).rstrip() for one in cells)
    kept = shown if len(shown) <= CHARS else f"{shown[:CHARS]}\n[… {len(shown) - CHARS:,} characters more]"
    lines += [f"    {line}".rstrip() for line in kept.split("\n")]
    lines.append(f"It waits no more: run the cell of {ask} again to ask the model, or the code in a cell of your own")
    return lines


def _statement(event: HistoryEvent) -> str:
    return event.event_id.partition(".")[0]
