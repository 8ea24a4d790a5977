"""DeltaFormatter: what turns changed, as one line each, most important first.

Rule 1: a turn's feed is a function of the turn; the model is shown the `Feed` of all turns since its last request.
Rule 2: both are bounded, and say how much was left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter

from ctxkernel.core.events import Event, GroupRecomputed, Json, NodeChanged, TickApplied
from ctxkernel.core.replay import Comparison, HeadMove, Restored
from ctxkernel.core.text import join_names, one_line
from ctxkernel.core.timeline import Execution
from ctxkernel.core.turn import DeltaItem, DeltaKind

LIMIT = 30
"""Most lines of one turn; what is over it is counted in a last line."""

ORDER: tuple[DeltaKind, ...] = ("error", "notice", "divergence", "tick", "node", "file", "late", "variable")
SUBJECTS = 8
"""Most things that one line names as different."""


def format_deltas(
    execution: Execution,
    events: Sequence[Event],
    names: Mapping[str, str],
    late: Mapping[str, str],
    comparisons: Sequence[Comparison] = (),
    sizes: Mapping[str, Mapping[str, Json]] | None = None,
) -> tuple[DeltaItem, ...]:
    """Return the delta feed of one turn.

    `names` maps obj_id to the user's name for it; `late` maps a statement's id to what it printed
    after its end, in one line; `comparisons` are those of re-runs since the last turn; `sizes` are the sizes of
    variables before it, where known.
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
    # A handle that was made has its line already; the name that it was given says no more.
    told = {names.get(event.obj_id) for event in events if isinstance(event, NodeChanged)}
    for name, info in diff.added.items():
        if name in told:
            continue
        size = size_told({}, info.size)
        add("variable", name, f"new {info.type} {info.repr}" + (f", {size}" if size and size not in info.repr else ""))
    for name, change in diff.changed.items():
        # A cell of a large frame has changed, and its short repr has not: to say that twice would say nothing.
        was = f"{change.before} → " if change.before and change.repr not in ("", change.before) else ""
        size = size_told((sizes or {}).get(name, {}), change.size)
        grown = f", {size}" if "→" in size else ""
        add("variable", name, f"{change.how}: {change.type} {was}{change.repr}{grown}")
    for name in diff.deleted:
        add("variable", name, "deleted")
    items += format_comparisons(comparisons)
    items.sort(key=lambda item: ORDER.index(item.kind))
    return _bounded(items, sid)


def size_told(before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    """Return rows or items as `1,204 → 1,310 rows`, as `1,310 rows` where they are as before, or empty."""
    (old, _), (new, what) = _length(before), _length(after)
    if new is None:
        return ""
    return f"{old:,} → {new:,} {what}" if old is not None and old != new else f"{new:,} {what}"


def _length(size: Mapping[str, Json]) -> tuple[int | None, str]:
    shape: Sequence[Json] | None = size.get("shape")
    if shape is not None:
        return (shape[0] if shape else None), "rows"
    return size.get("len"), "items"


class Feed:
    """What changed over several turns: one line a subject, with how often and since when."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], tuple[DeltaItem, int, DeltaItem]] = {}
        self._dropped = 0
        self._merged: dict[tuple[str, str], tuple[int, int, DeltaItem]] = {}
        """The lines as `items` gave them, with what they are sorted by; not those that something was added to since."""

    def clear(self) -> None:
        """Forget all: it was told."""
        self._lines.clear()
        self._merged.clear()
        self._dropped = 0

    def add(self, items: Sequence[DeltaItem]) -> None:
        """Take in the feed of a turn."""
        for item in items:
            # An error or a divergence is one event; of a subject that changes, its newest state is what counts.
            kind = item.kind
            key = kind, item.subject + (f"\0{item.statement_id}" if kind in ("error", "divergence", "notice") else "")
            first, count, last = self._lines.pop(key, (item, 0, item))
            self._merged.pop(key, None)
            if kind == "variable" and item.summary == "deleted" and first.summary.startswith("new "):
                continue  # it came and went
            self._lines[key] = (item, 1, item) if last.summary == "deleted" else (first, count + 1, item)
        over = len(self._lines) - _KEPT
        if over > 0:
            for key in sorted(self._lines, key=lambda key: -ORDER.index(self._lines[key][2].kind))[:over]:
                del self._lines[key]
                self._merged.pop(key, None)
            self._dropped += over

    def items(self) -> tuple[DeltaItem, ...]:
        """Return the lines: by kind, of one kind those of the newest statement first."""
        merged = self._merged
        for key, line in self._lines.items() if len(merged) < len(self._lines) else ():
            if key not in merged:
                merged[key] = ORDER.index(line[2].kind), -_number(line[2]), _merged(*line)
        if not merged:
            return ()
        # In the order of the lines, which is that of their changes: sorting keeps it among equals.
        lines = sorted([merged[key] for key in self._lines], key=_RANK)
        return _bounded([one[2] for one in lines], min(lines, key=_NUMBER)[2].statement_id, self._dropped)


_RANK, _NUMBER = itemgetter(0, 1), itemgetter(1)
_KEPT = 10 * LIMIT
"""Most subjects that a feed keeps; the least important ones go first."""
_LINES = re.compile(r"\+(\d+) −(\d+) lines")


def _merged(first: DeltaItem, count: int, last: DeltaItem) -> DeltaItem:
    if count == 1:
        return last
    summary = last.summary
    was, now = _LINES.search(first.summary), _LINES.search(summary)
    if first.kind == "variable" and first.summary.startswith("new "):
        summary = f"new, then {summary}"
    elif was and now and count == 2:
        summary = f"{summary}, after {was[0]} by {first.statement_id}"
    summary = f"{one_line(summary, 160)} ({count} changes since {first.statement_id})"
    return DeltaItem(last.statement_id, last.kind, last.subject, summary, last.text)


def _number(item: DeltaItem) -> int:
    number = item.statement_id.removeprefix("s")
    return int(number) if number.isdecimal() else 0


def _bounded(items: list[DeltaItem], statement_id: str, more: int = 0) -> tuple[DeltaItem, ...]:
    if len(items) + bool(more) > LIMIT:
        left = len(items) - LIMIT + 1 + more
        items[LIMIT - 1 :] = [DeltaItem(statement_id, "notice", "feed", f"… and {left} more changes")]
    return tuple(items)


def format_move(
    move: HeadMove, restored: Restored, late: Mapping[str, str], comparisons: Sequence[Comparison] = ()
) -> tuple[DeltaItem, ...]:
    """Return the delta feed of a move of HEAD: where it is, and what is not as it was there.

    It says nothing of where HEAD came from: the same place gives the same feed, whatever was on another branch.
    """
    sid = _statement_of(move.to) if move.to is not None else "start"
    place = "after " + sid if move.to is not None else "before the first statement"
    items = [DeltaItem(sid, "notice", "timeline", f"the state is that {place} ({move.reason})")]
    items += [DeltaItem(sid, "notice", name, one_line(f"not as it was: {why}")) for name, why in restored.lost.items()]
    items += format_comparisons(comparisons)
    items += [DeltaItem(one, "late", one, one_line(f"printed after its end: {line}")) for one, line in late.items()]
    return _bounded(items, sid)


def format_comparisons(comparisons: Sequence[Comparison]) -> list[DeltaItem]:
    """Return one line for each re-run that came out differently, and one for all others together."""
    items: list[DeltaItem] = []
    same: list[str] = []
    expected: list[str] = []
    for one in comparisons:
        sid = _statement_of(one.execution_id)
        if one.same:
            same.append(sid)
        elif one.expected:
            expected.append(sid)
        else:
            told = f"differs from {_run_told(one.against, sid)}: {_differing(one)}"
            items.append(DeltaItem(sid, "divergence", sid, one_line(told)))
    if same or expected:
        parts = [f"{len(same)} came out the same"] if same else []
        parts += [f"{len(expected)} differently, as expected: {join_names(expected, SUBJECTS)}"] if expected else []
        newest = _statement_of(comparisons[-1].execution_id)
        items.append(DeltaItem(newest, "divergence", "re-runs", one_line("; ".join(parts))))
    return items


def _differing(comparison: Comparison) -> str:
    subjects = [
        f"{one.subject} ({one.cause})" if one.cause else one.subject
        for one in comparison.divergences
        if one.kind != "timing"
    ]
    return join_names(dict.fromkeys(subjects), SUBJECTS)


def _statement_of(execution_id: str) -> str:
    return execution_id.rpartition(".")[0]


def _run_told(execution_id: str, statement_id: str) -> str:
    """Return how an execution is called where that of `statement_id` is spoken of."""
    other, _, number = execution_id.rpartition(".")
    if other != statement_id:
        return other
    return "its first run" if number == "1" else f"its run {number}"
