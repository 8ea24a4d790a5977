"""The history of a handle: a table made from the events of the timeline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.text import format_table, one_line
from ctxkernel.core.timeline_events import Delta, Event, GroupRecomputed, Json, MethodCalled, TickApplied

ROWS = 100
"""Most rows of a history by default."""
_CHARS = 80


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One call of a method, or one change by the tick."""

    statement_id: str
    """The statement of its turn."""
    what: str
    """The name of the method, or `tick sync`, `tick periodic`, `tick async`, `tick group`."""
    arguments: str
    change: str
    """Before → after, field by field; empty where nothing changed."""


@dataclass(frozen=True, slots=True, repr=False)
class HandleHistory:
    """The result of `h.history()`; its repr is a table."""

    rows: tuple[HistoryRow, ...]
    """Oldest first."""
    earlier: int = 0
    """The number of earlier rows that are left out."""

    def __iter__(self) -> Iterator[HistoryRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> HistoryRow:
        return self.rows[at]

    def __repr__(self) -> str:
        if not self.rows:
            return "nothing was recorded of it on this branch"
        table = [["in", "what", "arguments", "change"]]
        table += [
            [row.statement_id, row.what, one_line(row.arguments, _CHARS), one_line(row.change, _CHARS)]
            for row in self.rows
        ]
        more = f"… {self.earlier} earlier; history({self.earlier + len(self.rows)}) shows all\n" if self.earlier else ""
        return more + format_table(table)

    __str__ = __repr__


def delta_of(before: Mapping[str, Json], after: Mapping[str, Json], text: str = "") -> Delta:
    """Return the difference of two digests, as fields and one line."""
    fields = {key: (before.get(key), after.get(key)) for key in after if before.get(key) != after.get(key)}
    told = [f"{key} {old} → {new}" for key, (old, new) in fields.items() if key not in ("fingerprint", "revision")]
    return Delta(", ".join(told) or "content changed", fields, text)


def history_of(obj_id: str, events: Iterable[tuple[str, Event]], limit: int) -> HandleHistory:
    """Return the last `limit` rows of a node from (statement, event) pairs, oldest first."""
    rows = [row for statement_id, event in events if (row := _row(obj_id, statement_id, event)) is not None]
    kept = rows[-limit:]
    return HandleHistory(tuple(kept), len(rows) - len(kept))


def _row(obj_id: str, statement_id: str, event: Event) -> HistoryRow | None:
    match event:
        case MethodCalled() if event.obj_id == obj_id:
            told = [_value(value) for value in event.args]
            told += [f"{key}={_value(value)}" for key, value in event.kwargs.items()]
            return HistoryRow(statement_id, event.method, ", ".join(told), _change(event))
        case TickApplied() if event.obj_id == obj_id:
            return HistoryRow(statement_id, f"tick {event.tick_kind}", "", _told(event.delta))
        case GroupRecomputed() if event.group_id == obj_id:
            return HistoryRow(statement_id, "tick group", "", _told(event.delta))
        case _:
            return None


def _change(event: MethodCalled) -> str:
    after = event.after_digest
    if not event.before_digest:
        return f"made, lod {after.get('lod')}, ~{after.get('rendered_tokens')} tokens"
    return delta_of(event.before_digest, after).summary if event.before_digest != after else ""


def _told(delta: Delta) -> str:
    revision = cast("Mapping[str, Json]", delta.fields).get("revision")
    return delta.summary + (f" (revision {revision[0]} → {revision[1]})" if revision else "")


def _value(value: Json) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def change_summary(diff: str) -> str:
    """Return one line for a unified diff, or the first line of another text."""
    lines = diff.splitlines()
    if len(lines) > 1 and lines[0].startswith("[position "):  # the feed has it already
        lines = lines[1:]
    if lines and (told := re.search(r" · changed, (.+)", lines[0])):  # the source counted before truncation
        return told[1][:200]
    if len(lines) > 1 and lines[0].endswith(" · changed"):
        return "; ".join([*lines[1:3], *(["…"] if len(lines) > 3 else [])])[:200]
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    if any(line.startswith("@@") for line in lines) and (added or removed):
        return f"+{added} −{removed} lines"
    return lines[0][:200] if lines else "content changed"
