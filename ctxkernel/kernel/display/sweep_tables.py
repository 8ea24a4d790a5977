"""The sweeps of a session, as the panel shows them: that which runs now, and those in the log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.text import format_duration, one_line, plural
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.sweeps.shown_table import shown_sweep
from ctxkernel.sweeps.sweep_table import SweepTable, stored_tables

if TYPE_CHECKING:
    from ctxkernel.kernel.messages.sweeps import SweepEntry, SweepProgress, SweepTables

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
        return stored_tables(reader)


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
        **shown_sweep(table),
        "progress": running.progress if is_running and running is not None else None,
    }


def _entry(execution_id: str, table: SweepTable) -> SweepEntry:
    names = one_line(", ".join(table.parameters), 60)
    took = f", {format_duration(table.seconds)}" if table.seconds else ""
    return {"execution_id": execution_id, "told": f"{plural(len(table.rows), 'combinations')} of {names}{took}"}
