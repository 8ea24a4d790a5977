"""A notebook whose affected cells are to run again, and the executions whose results its cells may keep."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, cast

from ctxkernel.core.cell_tags import cell_tags, statement_tags
from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.text import first_lines, format_duration, plural
from ctxkernel.core.timeline import Execution, Path, Statement
from ctxkernel.kernel.execution.cell import on_handles, only_commands
from ctxkernel.kernel.messages.page_input import short_text
from ctxkernel.replay.affected import NotebookCell, PlannedCell, RecordedRun

_MOST_CELLS = 10_000
_AS_RAN = "Cells are taken as they ran last: run an edited cell first, or use Run affected in JupyterLab."
_SKIPPED = "skip-execution"
"""The tag of a cell that `ctxkernel run` and nbclient pass over."""


@dataclass(slots=True)
class AffectedNotebook:
    """A notebook, and the executions on the path to HEAD that its cells may keep."""

    cells: Sequence[NotebookCell]
    path: Path
    runs: Sequence[RecordedRun]
    settings: Mapping[str, Any]
    """The settings of the process with which the path begins."""
    as_ran: bool = False
    """Whether the cells are as they ran last, since nobody told their texts."""
    first: int = 0
    """The number of cells above the first change."""
    done: int = 0
    """The number of cells that a stepwise re-run has dealt with, from the top."""
    place: str | None = None
    """The execution whose state the others begin with."""
    matched: list[RecordedRun | None] = field(default_factory=list[RecordedRun | None])
    """The executions of the cells above; None for a command."""
    before: list[str | None] = field(default_factory=list[str | None])
    """The executions before those."""
    reconfigured: str = ""
    """Why every cell from the first change on runs; empty if that is decided for each."""
    planned: Sequence[PlannedCell] = ()
    """The decisions on the cells from the first change on."""
    by_text: dict[str, list[RecordedRun]] = field(default_factory=dict[str, "list[RecordedRun]"])
    newest: dict[str, tuple[Statement, Execution]] = field(default_factory=dict[str, "tuple[Statement, Execution]"])
    """Cell → its newest execution on the path."""

    def __post_init__(self) -> None:
        for (statement, execution), run in zip(self.path, self.runs, strict=True):
            if not is_silent(statement):
                self.by_text.setdefault(run.source, []).append(run)
                self.newest[run.cell] = statement, execution

    def candidates(self, cell: NotebookCell) -> tuple[list[RecordedRun], str]:
        """Return the executions of a cell's text, those of this cell first, the newest first; or why there are none."""
        if self.reconfigured and cell.source in self.by_text:
            return [], self.reconfigured
        found = self.by_text.get(cell.source, [])
        own = [run for run in found if run.cell == cell.cell]
        chosen = [*reversed(own), *(run for run in reversed(found) if run.cell != cell.cell)]
        return chosen, "its text was edited" if cell.cell in self.newest else "it is new"

    def reach(self, cell: NotebookCell) -> None:
        """Note that a stepwise re-run has come to a cell."""
        places = [at for at, one in enumerate(self.cells, 1) if one.cell == cell.cell]
        self.done = max(self.done, *places, self.first)

    def plan_json(self) -> dict[str, Any]:
        """Return the plan: what runs, is kept and is opaque, by position, as far as it is known now."""
        found: dict[str, Any] = {"run": [], "keep": [*range(self.first)], "opaque": []}
        why: dict[str, str] = {}
        for at, one in enumerate(self.planned, self.first):
            found[one.action].append(at)
            if one.action != "keep":
                why[str(at)] = "; ".join(one.why)
        seconds = sum(one.seconds or 0.0 for one in self.planned if one.action != "keep")
        times = {str(at): one.seconds for at, one in enumerate(self.planned, self.first) if one.seconds is not None}
        commands = [at for at, cell in enumerate(self.cells) if is_command(cell)]
        told = {"why": why, "times": times, "seconds": round(seconds, 3), "from": self.place, "first": self.first}
        return {**found, **told, "commands": commands}

    def plan_lines(self) -> list[str]:
        """Return the plan for people."""
        lines: list[str] = []
        for at, one in enumerate(self.planned, self.first):
            if one.action != "keep":
                took = "" if one.seconds is None else f" ({format_duration(one.seconds)} last time)"
                opaque = "opaque: " if one.action == "opaque" else ""
                lines.append(f"cell {at + 1} runs: {opaque}{'; '.join(one.why)}{took}")
        kept = self.first + sum(one.action == "keep" for one in self.planned)
        told = f"{plural(len(lines), 'cells')} may run, {kept} {'is' if kept == 1 else 'are'} kept"
        return [*first_lines(lines), told, *self.notes]

    @property
    def notes(self) -> list[str]:
        """Return a line that says of which texts a plan or a re-run is, where a reader may expect others."""
        return [_AS_RAN] if self.as_ran else []


def is_command(cell: NotebookCell) -> bool:
    """Return whether a cell is nothing that a re-run repeats: it is empty, or only commands the kernel."""
    return not cell.source.strip() or _only_commands(cell.source)


def _only_commands(source: str) -> bool:
    return only_commands(source) and not on_handles(source)


def is_silent(statement: Statement) -> bool:
    """Return whether a statement stands for no cell of the notebook that could change."""
    outside = statement.tags.get("outside") is True or statement.author == "model"
    return outside or _only_commands(statement.source)


def cells_of_page(value: object) -> list[NotebookCell] | None:
    """Return the code cells that a front end told with a request; None for anything but a list of cells."""
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    cells: list[NotebookCell] = []
    for one in listed[:_MOST_CELLS]:
        told = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        cell, source, tags = short_text(told.get("id")), told.get("source"), told.get("tags")
        if not cell or not isinstance(source, str):
            return None
        named = [str(tag) for tag in cast("list[Any]", tags)] if isinstance(tags, list) else []
        known = statement_tags(named)
        cells.append(NotebookCell(cell, source, known, "raises-exception" in named))
    return cells or None


def cells_of_notebook(path: FilePath) -> list[NotebookCell]:
    """Return the code cells of a notebook's file; one that is not to be executed is empty. Raises BadCommand."""
    try:
        found: Any = json.loads(path.read_text("utf-8"))
        listed: list[Any] = [one for one in found["cells"] if one["cell_type"] == "code"]
        cells: list[NotebookCell] = []
        for at, one in enumerate(listed):
            source = one["source"] if isinstance(one["source"], str) else "".join(one["source"])
            tags = cell_tags(one.get("metadata"))
            source = "" if _SKIPPED in tags else source
            known = statement_tags(tags)
            cells.append(NotebookCell(str(one.get("id") or f"#{at}"), source, known, "raises-exception" in tags))
    except OSError as fault:
        raise BadCommand(f"{path} cannot be read: {fault.strerror or fault}") from None
    except (ValueError, KeyError, TypeError):
        raise BadCommand(f"{path} is not a notebook: a JSON file with a list of cells is expected") from None
    return cells
