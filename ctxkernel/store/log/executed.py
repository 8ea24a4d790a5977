"""The session in which a notebook was executed that has no session of its own name.

A runner read it and wrote another (papermill), `ctxkernel run --output` wrote it, or a program executed it and told the
kernel no name (nbclient).

Rule 1: Only sessions beside the notebook, in the working directory, and those that this user listed in the cache are
        read. No path that a file names is opened.
Rule 2: Any other run is the notebook's only if its statements are the notebook's cells, in their order, and began when
        the notebook says so. A run of a notebook with another name counts only if the notebook says so of each cell.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import StoreError
from ctxkernel.core.typed_json import read_json
from ctxkernel.projection.secrets import fits_masked
from ctxkernel.store.chunks import quota
from ctxkernel.store.log import origin, rows
from ctxkernel.store.log.location import FOLDER
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.log.runners import SOURCE
from ctxkernel.store.notebook_file import FileCell, code_cells, read_notebook_json

_MOST_SESSIONS = 2000
_MOST_RUNS = 200
_MOST_CELLS = 5000
_SECONDS = 5.0
"""Between the time at which a cell began as its notebook says, and as the session says."""


@dataclass(frozen=True, slots=True)
class ExecutedRun:
    """A kernel start that executed a notebook."""

    session: Path
    before: int | None
    """The `before` of a reader that shows it; None if it is the newest of the session."""
    notebook: str | None
    """The notebook that the runner wrote; None if none is known."""


def find_run(notebook: Path, env: Mapping[str, str], cwd: Path) -> ExecutedRun | None:
    """Return the newest kernel start that executed `notebook`, or None."""
    cells: list[FileCell] = []
    with contextlib.suppress(OSError, ValueError):  # a script: only its name can be found
        cells = [one for one in code_cells(read_notebook_json(notebook)) if one.source.strip()][:_MOST_CELLS]
    best: tuple[float, ExecutedRun] | None = None
    for path in islice(_sessions(notebook, env, cwd), _MOST_SESSIONS):
        # One that is damaged or of a newer version is skipped: most of them are of other notebooks.
        with contextlib.suppress(StoreError, OSError, ValueError), SessionReader(path) as reader:
            if (found := _run_of(reader, notebook, cells)) is not None and (best is None or found[0] > best[0]):
                best = found
    return best[1] if best is not None else None


def _sessions(notebook: Path, env: Mapping[str, str], cwd: Path) -> Iterator[Path]:
    seen: set[str] = set()
    for path in (*_beside(notebook.absolute().parent), *_beside(cwd), *_listed(quota.root_folder(env))):
        real = os.path.realpath(path)
        if real not in seen and path.is_file():
            seen.add(real)
            yield path


def _beside(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(folder / FOLDER) if name.endswith(".sqlite")]
        return [folder / FOLDER / name for name in sorted(names)]
    return []


def _listed(root: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(root)):
            yield from origin.own_logs(root / name)


def _run_of(reader: SessionReader, notebook: Path, cells: Sequence[FileCell]) -> tuple[float, ExecutedRun] | None:
    """Return the newest run of a session that executed the notebook, with the time of its start."""
    began = [_began(cell) for cell in cells if cell.count is not None]
    timed = bool(began) and None not in began
    with reader.snapshot():
        runs = reader.rows("runs", "1 ORDER BY run DESC LIMIT ?", _MOST_RUNS)
        ran = [row for row in runs if reader.select("SELECT 1 FROM statements WHERE run = ? LIMIT 1", row["run"])]
        for row in ran:
            source = read_json(dict[str, Any], rows.loaded(row["environment"])).get(SOURCE)
            folder = reader.path.absolute().parent.parent
            named = isinstance(source, str)
            if named:
                fits = os.path.realpath(folder / source) == os.path.realpath(notebook)
            else:
                told = row["notebook"] is None or timed
                fits = told and _fits(cells, _statements(reader, row["run"]))
            if fits:
                before = None if row is ran[0] else row["run"] + 1
                return row["started_at"], ExecutedRun(reader.path, before, row["notebook"] if named else None)
    return None


def _statements(reader: SessionReader, run: int) -> list[tuple[str, float]]:
    """Return source and time of the statements of a run that stand for cells."""
    query = "SELECT source, timestamp FROM statements WHERE run = ? AND author = 'human' ORDER BY idx LIMIT ?"
    return [(str(source), float(at)) for source, at in reader.select(query, run, _MOST_CELLS)]


def _fits(cells: Sequence[FileCell], statements: Sequence[tuple[str, float]]) -> bool:
    """Return whether the statements are the cells of a notebook that ran or, if it does not say, some of its cells."""
    executed = [cell for cell in cells if cell.count is not None]
    if not statements or not cells:
        return False
    if not executed:
        left = iter(cells)
        return all(any(fits_masked(stored, cell.source) for cell in left) for stored, _ in statements)
    rest = list(statements)
    for cell in executed:
        began = _began(cell)
        if rest and fits_masked(rest[0][0], cell.source) and (began is None or abs(began - rest[0][1]) <= _SECONDS):
            del rest[0]
        elif "%ctx" not in cell.source:  # a command that only reads leaves no statement
            return False
    return not rest


def _began(cell: FileCell) -> float | None:
    """Return the time at which a cell began, which nbclient and JupyterLab write into its metadata."""
    with contextlib.suppress(ValueError, OverflowError, KeyError):
        text = read_json(dict[str, Any], cell.metadata.get("execution"))["iopub.execute_input"]
        return datetime.fromisoformat(str(text)).timestamp()
    return None
