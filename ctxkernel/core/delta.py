"""DeltaFormatter: what a turn changed, as one line each, most important first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ctxkernel.core.events import Event, GroupRecomputed, NodeChanged, TickApplied
from ctxkernel.core.timeline import Execution
from ctxkernel.core.turn import DeltaItem, DeltaKind

LIMIT = 30
"""Most lines of one turn; what is over it is counted in a last line."""

ORDER: tuple[DeltaKind, ...] = ("error", "notice", "tick", "node", "file", "late", "variable")


def format_deltas(
    execution: Execution,
    events: Sequence[Event],
    names: Mapping[str, str],
    late: Mapping[str, str],
) -> tuple[DeltaItem, ...]:
    """Return the delta feed of one turn.

    `names` maps obj_id to the user's name for it; `late` maps a statement's id to what it printed
    after its end, in one line.
    """
    sid = execution.statement_id
    items: list[DeltaItem] = []

    def add(kind: DeltaKind, subject: str, summary: str, text: str = "", statement_id: str = sid) -> None:
        items.append(DeltaItem(statement_id, kind, subject, one_line(summary), text))

    if execution.exception is not None:
        # `error` is the kind already; of the other ends the status says more.
        how = "" if execution.status == "error" else execution.status
        message = execution.exception.message
        add("error", execution.exception.type, ": ".join(filter(None, (how, message))) or "raised")
    elif execution.status in ("timeout", "cancelled"):
        add("error", sid, execution.status)
    ticked: set[str] = set()
    for event in events:
        if isinstance(event, TickApplied | GroupRecomputed):
            obj_id = event.group_id if isinstance(event, GroupRecomputed) else event.obj_id
            ticked.add(obj_id)
            add("tick", names.get(obj_id, obj_id), event.delta.summary, event.delta.text)
    calls: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, NodeChanged) and event.obj_id not in ticked:
            calls.setdefault(event.obj_id, []).append(event.delta.summary)
    for obj_id, summaries in calls.items():
        add("node", names.get(obj_id, obj_id), "; ".join(summaries))
    for artifact in execution.artifacts:
        if artifact.kind == "file":
            add("file", artifact.name, f"written, {artifact.size:,} bytes")
    for statement_id, line in late.items():
        add("late", statement_id, f"printed after its end: {line}", statement_id=statement_id)
    diff = execution.state_diff
    for name, info in diff.added.items():
        add("variable", name, f"new {info.type} {info.repr}")
    for name, change in diff.changed.items():
        # A cell of a large frame has changed, and its short repr has not: to say that twice would say nothing.
        was = f"{change.before} → " if change.before and change.repr not in ("", change.before) else ""
        add("variable", name, f"{change.how}: {change.type} {was}{change.repr}")
    for name in diff.deleted:
        add("variable", name, "deleted")
    items.sort(key=lambda item: ORDER.index(item.kind))
    if len(items) > LIMIT:
        left = len(items) - LIMIT + 1
        items[LIMIT - 1 :] = [DeltaItem(sid, "notice", "feed", f"… and {left} more changes")]
    return tuple(items)


def one_line(text: str, limit: int = 200) -> str:
    """Return `text` on one line of at most `limit` characters."""
    flat = " ".join(text[: 4 * limit].split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
