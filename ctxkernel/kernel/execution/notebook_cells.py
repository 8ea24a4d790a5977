"""The cells of the notebook that a runner executes: papermill and nbclient send the text of a cell, and nothing else.

Rule 1: the file is untrusted: it is read within bounds, once, and only tags and ids are taken. A fault gives none.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctxkernel.store.log.runners import RunNotebook
from ctxkernel.store.notebook_file import FileCell, code_cells, read_notebook_json


@dataclass(slots=True)
class NotebookCells:
    """Finds the cells of the notebook that a runner executes, in their order."""

    executed: RunNotebook | None
    _cells: list[FileCell] | None = None
    _next: int = 0

    def find(self, source: str) -> FileCell | None:
        """Return the next cell with this text; None if no runner executes a notebook, or the file has no such cell."""
        if self.executed is None:
            return None
        if self._cells is None:
            self._cells = _read(self.executed)
        cells = self._cells
        for at in (*range(self._next, len(cells)), *range(self._next)):
            if cells[at].source == source:
                self._next = at + 1
                return cells[at]
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
