"""The cells of the notebook that a runner executes: papermill and nbclient send the text of a cell, and nothing else.

Rule 1: A file is untrusted: it is read within bounds, once, and only tags and ids are taken. A fault gives none.
Rule 2: Where no runner names the notebook, it is one of the working directory, if only one begins with the first cell
        that a client without standard input sends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ctxkernel.core.cell_tags import cell_tags
from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.timeline import PARAMETERS
from ctxkernel.store.log.runners import RunNotebook
from ctxkernel.store.notebook_file import FileCell, as_object, code_cells, read_notebook_json

_MOST_FILES = 50
_MOST_BYTES = 16 * 1024 * 1024
"""The largest notebook that is looked at in a search."""
PROGRAM = "a program"
_INJECTED = "# Parameters\n"
"""The beginning of the cell with papermill's parameters, which is in its output only."""


@dataclass(slots=True)
class NotebookCells:
    """Finds the cells of the notebook that a runner executes, in their order."""

    executed: RunNotebook | None
    folder: Path | None = None
    """The folder where the notebook is searched if no runner names it; None if nothing executes one."""
    _cells: list[FileCell] | None = None
    _next: int = 0

    def find(self, source: str) -> FileCell | None:
        """Return the next cell with this text; None if no runner executes a notebook, or the file has no such cell."""
        if self.folder is not None:
            folder, self.folder = self.folder, None
            self.executed, self._cells = _search(folder, source)
        if self.executed is None:
            return None
        if self._cells is None:
            self._cells = _read(self.executed)
        cells = self._cells
        for at in (*range(self._next, len(cells)), *range(self._next)):
            if cells[at].source == source:
                self._next = at + 1
                return cells[at]
        if self.executed.runner == PROGRAM and source.startswith(_INJECTED):
            return FileCell(source, None, {"tags": [PARAMETERS[1]]}, None)
        return None


def _read(executed: RunNotebook) -> list[FileCell]:
    # papermill writes its output, with the parameters in it, before it starts a kernel; the others write it later.
    paths = (executed.path, executed.source)
    for path in paths if executed.runner == "papermill" else paths[::-1]:
        try:
            return code_cells(read_notebook_json(path))
        except (OSError, ValueError):  # there is none yet, or it is a script that jupytext reads
            continue
    return []


def _search(folder: Path, source: str) -> tuple[RunNotebook | None, list[FileCell] | None]:
    """Return the only notebook of a folder that begins with a cell, and its cells; rather one that papermill writes."""
    found: dict[Path, list[FileCell]] = {}
    written: list[Path] = []
    for path in islice(_notebooks(folder), _MOST_FILES):
        try:
            notebook = read_notebook_json(path)
        except (OSError, ValueError):
            continue
        cells = code_cells(notebook)
        if next((cell.source for cell in cells if cell.source.strip()), None) == source:
            found[path] = cells
            papermill = as_object(as_object(notebook.get("metadata")).get("papermill"))
            if papermill and papermill.get("end_time") is None:
                written.append(path)
    chosen = written or list(found)
    # Copies of one notebook say the same.
    told = {tuple((cell.source, cell.cell_id, *cell_tags(cell.metadata)) for cell in found[path]) for path in chosen}
    if len(told) != 1:
        return None, None
    return RunNotebook(PROGRAM, chosen[0], chosen[0]), found[chosen[0]]


def _notebooks(folder: Path) -> Iterator[Path]:
    try:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.name.endswith(".ipynb") and entry.is_file() and entry.stat().st_size <= _MOST_BYTES:
                yield Path(entry.path)
    except OSError:
        return
