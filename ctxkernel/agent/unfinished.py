"""Describe the unfinished ask of a kernel that ended: proposed cells without a decision.

Rule 1: this runs and decides nothing. A turn exists in the memory of its kernel; the text names the next step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ctxkernel.agent.ask_turn import source
from ctxkernel.core.text import one_line
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.history.events import Action, HistoryEvent, UserQuestion
from ctxkernel.history.repair import report
from ctxkernel.projection.dialect import RUN_CELL

CHARS = 4_000
"""Most characters of the code."""


def left_open(
    path: Sequence[tuple[Statement, Execution]],
    records: Mapping[str, Sequence[HistoryEvent]],
    statements: Iterable[Statement],
) -> list[str]:
    """Return lines about the calls that waited on the path to HEAD, with the next step; none if no call waited.

    `statements` are all statements of the log: a call whose cell was begun on any branch no longer waits.
    """
    events = [event for _, one in path for event in records.get(one.execution_id, ()) if event.place != "meta"]
    asked = next((at for at in reversed(range(len(events))) if isinstance(events[at], UserQuestion)), None)
    if asked is None:
        return []
    question = events[asked]
    name = f"the ask of {_statement(question)} ({one_line(getattr(question, 'text', ''), 60)})"
    begun = {(one.tags.get("response"), one.tags.get("call")) for one in statements}
    missing = {one.event_id for one in report(events).missing_outputs}
    cells = [
        event
        for event in events[asked:]
        if isinstance(event, Action)
        and event.tool_name == RUN_CELL
        and event.event_id in missing
        and (event.event_id.rpartition(":")[0], event.tool_call_id) not in begun
    ]
    if cells:
        return _cells(cells, name)
    if asked == len(events) - 1 and question.event_id.rpartition(":")[0] == path[-1][1].execution_id:
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
