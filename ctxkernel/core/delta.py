"""The delta feed: the changes of turns, a line each, most important first.

Rule 1: a turn's feed is a function of the turn; the model sees the `Feed` of all turns since its last request.
Rule 2: both are bounded, and say how much is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from ctxkernel.core.replay import Comparison, HeadMove, Restored
from ctxkernel.core.text import join_names, one_line
from ctxkernel.core.timeline import Execution, NamespaceDiff, statement_number
from ctxkernel.core.timeline_events import NONE, Event, GroupRecomputed, Json, NodeChanged, TickApplied
from ctxkernel.core.turn_values import DeltaItem, DeltaKind

LIMIT = 30
"""Most lines of one turn; a last line counts those left out."""

ORDER: tuple[DeltaKind, ...] = ("error", "notice", "divergence", "tick", "node", "file", "late", "variable")
SUBJECTS = 8
"""Most subjects that one line names as different."""


def format_deltas(
    execution: Execution,
    events: Sequence[Event],
    names: Mapping[str, str],
    late: Mapping[str, str],
    comparisons: Sequence[Comparison] = (),
    sizes: Mapping[str, Mapping[str, Json]] | None = None,
) -> tuple[DeltaItem, ...]:
    """Return the delta feed of one turn.

    `names` maps obj_id to the user's name for it; `late` maps a statement's id to a line on what came after its
    end; `comparisons` are those of re-runs since the last turn; `sizes` are the sizes of variables before the turn,
    where known.
    """
    sid = execution.statement_id
    lines = _failure(execution) if execution.status != "ok" or execution.exception else list[_Line]()
    lines += _variable_changes(execution.state_diff, sizes or NONE)
    made, told = _handle_changes(events, names) if len(events) > 1 else ((), ())  # one is the end of the statement
    if told:  # the line of a new handle is enough
        lines = [one for one in lines if not (one[0] == "variable" and one[1] in told and one[2].startswith("new "))]
    lines += made
    for one in execution.artifacts:
        if one.kind == "file":
            lines.append(("file", one.name, f"written, {one.size:,} bytes", ""))
    items = [DeltaItem(sid, kind, subject, one_line(summary), text) for kind, subject, summary, text in lines]
    items += _late_lines(late) if late else []
    items += format_comparisons(comparisons) if comparisons else []
    items.sort(key=_rank)
    return _bounded(items, sid)


_Line = tuple[DeltaKind, str, str, str]
"""Kind, subject, summary and text."""


def _rank(item: DeltaItem) -> int:
    return ORDER.index(item.kind)


def _late_lines(late: Mapping[str, str]) -> list[DeltaItem]:
    return [DeltaItem(one, "late", one, one_line(line)) for one, line in late.items()]


def _failure(execution: Execution) -> list[_Line]:
    error, status = execution.exception, execution.status
    if error is not None:
        # `error` is the kind already; other statuses add something.
        how = "" if status == "error" else status
        return [("error", error.type, ": ".join(filter(None, (how, error.message))) or "raised", "")]
    return [("error", execution.statement_id, status, "")] if status in ("timeout", "cancelled") else []


def _handle_changes(events: Sequence[Event], names: Mapping[str, str]) -> tuple[list[_Line], set[str | None]]:
    """Return a line for each change by a tick, and one for each handle that only calls changed; and their names."""
    lines: list[_Line] = []
    ticked: set[str] = set()
    calls: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, TickApplied | GroupRecomputed):
            obj_id = event.group_id if isinstance(event, GroupRecomputed) else event.obj_id
            ticked.add(obj_id)
            lines.append(("tick", names.get(obj_id, obj_id), event.delta.summary, event.delta.text))
        elif isinstance(event, NodeChanged):
            calls.setdefault(event.obj_id, []).append(event.delta.summary)
    for obj_id, summaries in calls.items():
        if obj_id not in ticked:
            lines.append(("node", names.get(obj_id, obj_id), "; ".join(summaries), ""))
    return lines, set(map(names.get, calls))


def _variable_changes(diff: NamespaceDiff, sizes: Mapping[str, Mapping[str, Json]]) -> list[_Line]:
    lines: list[_Line] = []
    for name, info in diff.added.items():
        size = size_told({}, info.size) if info.size else ""
        more = f", {size}" if size and size not in info.repr else ""
        lines.append(("variable", name, f"new {info.type} {info.repr}{more}", ""))
    for name, change in diff.changed.items():
        # The short repr of a large frame may stay the same: do not show it twice.
        was = f"{change.before} → " if change.before and change.repr not in ("", change.before) else ""
        size = size_told(sizes.get(name, {}), change.size) if change.size else ""
        grown = f", {size}" if "→" in size else ""
        lines.append(("variable", name, f"{change.how}: {change.type} {was}{change.repr}{grown}", ""))
    return lines + [("variable", name, "deleted", "") for name in diff.deleted] if diff.deleted else lines


def size_told(before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    """Return the change of a size as `1,204 → 1,310 rows`, `1,310 rows` where it is the same, or empty."""
    (old, _), (new, what) = _length(before), _length(after)
    if new is None:
        return ""
    return f"{old:,} → {new:,} {what}" if old is not None and old != new else f"{new:,} {what}"


def _length(size: Mapping[str, Json]) -> tuple[int | None, str]:
    shape: Sequence[Json] | None = size.get("shape")
    if shape is not None:
        return (shape[0] if shape else None), "rows"
    return size.get("len"), "items"


class _Subject(NamedTuple):
    """The changes of one subject."""

    rank: tuple[int, int]
    """By kind; of one kind those of the newest statement first."""
    age: int
    """Smaller for a newer statement."""
    first: DeltaItem
    times: int
    last: DeltaItem
    line: DeltaItem
    """All of it in one line."""


class Feed:
    """The changes of several turns: one line a subject, with how often it changed and since when."""

    def __init__(self) -> None:
        self._subjects: dict[tuple[str, str], _Subject] = {}
        """In the order of their newest changes."""
        self._dropped = 0

    def clear(self) -> None:
        """Remove all lines."""
        self._subjects.clear()
        self._dropped = 0

    def add(self, items: Sequence[DeltaItem]) -> tuple[DeltaItem, ...]:
        """Add the feed of a turn; return all lines."""
        for item in items:
            # Each error or divergence has its own line; the changes of another subject are merged.
            kind = item.kind
            key = kind, item.subject + (f"\0{item.statement_id}" if kind in ("error", "divergence", "notice") else "")
            known = self._subjects.pop(key, None)
            first, count = (known.first, known.times) if known else (item, 0)
            if kind == "variable" and item.summary == "deleted" and first.summary.startswith("new "):
                continue  # added and deleted since the last request
            if known and known.last.summary == "deleted":
                first, count = item, 0
            age = -statement_number(item.statement_id)
            line = _merged(first, count + 1, item)
            self._subjects[key] = _Subject((_rank(item), age), age, first, count + 1, item, line)
        over = len(self._subjects) - _KEPT
        if over > 0:
            for key in sorted(self._subjects, key=lambda key: -self._subjects[key].rank[0])[:over]:
                del self._subjects[key]
            self._dropped += over
        return self.items()

    def items(self) -> tuple[DeltaItem, ...]:
        """Return the lines: by kind, of one kind those of the newest statement first."""
        if not self._subjects:
            return ()
        subjects = sorted(self._subjects.values(), key=itemgetter(0))
        newest = min(subjects, key=itemgetter(1))
        return _bounded([one.line for one in subjects], newest.line.statement_id, self._dropped)


_KEPT = 10 * LIMIT
"""Most subjects of a feed; the least important ones are dropped first."""
_LINES = re.compile(r"\+(\d+) −(\d+) lines")


def _merged(first: DeltaItem, count: int, last: DeltaItem) -> DeltaItem:
    """Return one line for all changes of a subject."""
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


def _bounded(items: list[DeltaItem], statement_id: str, more: int = 0) -> tuple[DeltaItem, ...]:
    if len(items) + bool(more) > LIMIT:
        left = len(items) - LIMIT + 1 + more
        items[LIMIT - 1 :] = [DeltaItem(statement_id, "notice", "feed", f"… and {left} more changes")]
    return tuple(items)


def format_move(
    move: HeadMove, restored: Restored, late: Mapping[str, str], comparisons: Sequence[Comparison] = ()
) -> tuple[DeltaItem, ...]:
    """Return the delta feed of a move of HEAD: the place, and what could not be restored.

    It does not depend on where HEAD was before.
    """
    sid = _statement_of(move.to) if move.to is not None else "start"
    place = "after " + sid if move.to is not None else "before the first statement"
    items = [DeltaItem(sid, "notice", "timeline", f"the state is that {place} ({move.reason})")]
    items += [DeltaItem(sid, "notice", name, one_line(f"not as it was: {why}")) for name, why in restored.lost.items()]
    items += format_comparisons(comparisons)
    items += _late_lines(late)
    return _bounded(items, sid)


def format_comparisons(comparisons: Sequence[Comparison]) -> list[DeltaItem]:
    """Return a line for each re-run with unexpected differences, and one for all others together."""
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
    subjects = [f"{one.subject} ({one.cause})" if one.cause else one.subject for one in comparison.differences]
    return join_names(dict.fromkeys(subjects), SUBJECTS)


def _statement_of(execution_id: str) -> str:
    return execution_id.rpartition(".")[0]


def _run_told(execution_id: str, statement_id: str) -> str:
    """Return the name of an execution in a line about `statement_id`."""
    other, _, number = execution_id.rpartition(".")
    if other != statement_id:
        return other
    return "its first run" if number == "1" else f"its run {number}"
