"""The sweeps of a session, as the panel shows them: that which runs now, and those in the log."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.text import format_duration, one_line, plural
from ctxkernel.kernel.messages.sweeps import SweepEntry, SweepLine, SweepProgress, SweepTables, SweepValue
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.sweeps.combinations import text_of
from ctxkernel.sweeps.sweep_table import MARK, SweepRow, SweepTable, shown_value

MOST_ROWS = 2000
_EVERY_SECONDS = 0.5


@dataclass(slots=True)
class RunningSweep:
    """The sweep that runs now."""

    execution_id: str
    table: SweepTable
    progress: SweepProgress
    told_at: float = 0.0

    def is_due(self) -> bool:
        """Return whether the pages are told again: not more often than they can draw."""
        now = time.monotonic()
        due = now - self.told_at > _EVERY_SECONDS
        if due:
            self.told_at = now
        return due


def stored_sweeps(path: Path | None) -> dict[str, SweepTable]:
    """Return the tables in a log by the executions that swept, oldest first."""
    if path is None or not path.exists():
        return {}
    with SessionReader(path) as reader:
        marks = reader.marks(MARK)
    return {
        subject: SweepTable.from_mark(cast("dict[str, Any]", value))
        for (subject, _), value in marks.items()
        if isinstance(value, dict)
    }


def sweep_answer(stored: Mapping[str, SweepTable], running: RunningSweep | None, of: object) -> SweepTables:
    """Return the table of a sweep; of the newest one if `of` is None. Raises BadCommand."""
    tables = dict(stored) if running is None else {**stored, running.execution_id: running.table}
    if not tables:
        raise BadCommand("nothing was swept in this session")
    name = next(reversed(tables)) if of is None else of
    if not isinstance(name, str) or name not in tables:
        raise BadCommand(f"{of!r} did not sweep; these did: {', '.join(tables)}")
    table = tables[name]
    is_running = running is not None and running.execution_id == name
    return {
        "sweeps": [_entry(one, each) for one, each in tables.items()],
        "of": name,
        "parameters": table.parameters,
        "collected": table.collected,
        "rows": [_line(row, table) for row in table.rows[:MOST_ROWS]],
        "more": max(0, len(table.rows) - MOST_ROWS),
        "progress": running.progress if is_running and running is not None else None,
    }


def _entry(execution_id: str, table: SweepTable) -> SweepEntry:
    names = one_line(", ".join(table.parameters), 60)
    took = f", {format_duration(table.seconds)}" if table.seconds else ""
    return {"execution_id": execution_id, "told": f"{plural(len(table.rows), 'combinations')} of {names}{took}"}


def _line(row: SweepRow, table: SweepTable) -> SweepLine:
    values = [_value(value := row.parameters.get(name), text_of(value)) for name in table.parameters]
    for name in table.collected:
        value = row.collected.get(name)
        values.append(_value(value, shown_value(value) if name in row.collected else ""))
    return {
        "values": values,
        "status": row.status,
        "why": one_line(row.why, 300),
        "branch": row.branch,
        "seconds": row.seconds,
        "cpu": row.cpu,
        "diverged": row.diverged,
        "output": row.output,
    }


def _value(value: Any, text: str) -> SweepValue:
    is_number = type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)
    return {"text": one_line(text, 200), "number": float(value) if is_number else None}
