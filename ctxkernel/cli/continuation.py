"""`ctxkernel run --resume`: the cells of a notebook that need not run, since a session has the state after them.

Rule 1: A cell is done if its newest run has the same source, ended well, and came after those of the cells before it.
        All cells from the first other one on run, since they may depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.timeline import Execution, Path, Statement
from ctxkernel.projection.secrets import fits_masked

MAY_FAIL = "raises-exception"
"""The tag of a cell whose error does not end a run (nbclient's)."""


@dataclass(frozen=True, slots=True)
class CodeCell:
    """A cell of a notebook with code."""

    cell_id: str | None
    source: str
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class Continuation:
    """The point from which a notebook continues."""

    done: tuple[Execution, ...]
    """The runs of its first cells, which are not executed again."""
    why: str
    """Why the next cell runs; empty if there is none."""
    back_to: str | None
    """The execution whose state the next cell needs; None for the state before all statements."""
    moves: bool
    """Whether HEAD must move there."""


def continuation(cells: Sequence[CodeCell], path: Path, answered: Collection[str] = ()) -> Continuation:
    """Return the point from which a notebook continues if its session is at the end of `path`.

    `answered` are the executions of asks that were answered: they are done with the last statement of the model.
    """
    done: list[Execution] = []
    at, why = -1, ""
    for cell in cells:
        found = _newest(cell, path, at, answered)
        why = _why_not(cell, found, path, at)
        if why or found is None:
            break
        done.append(path[found][1])
        at = _end(path, found)
    back_to = path[at][1].execution_id if at >= 0 else None
    # The next cell must not see the state of statements after the last of them.
    return Continuation(tuple(done), why, back_to, moves=bool(why) and at < len(path) - 1)


def _end(path: Path, at: int) -> int:
    """Return the index of the last statement of a cell: an ask's is the newest one of the model."""
    ask = path[at][1].execution_id
    return max((n for n, (statement, _) in enumerate(path) if statement.tags.get("ask") == ask), default=at)


def _newest(cell: CodeCell, path: Path, after: int, answered: Collection[str]) -> int | None:
    """Return the index of a cell's newest run; if its id never ran, of the first run of its source after `after`."""
    ran = [n for n, (one, run) in enumerate(path) if one.kind != "meta" or run.execution_id in answered]
    by_id = [n for n in ran if cell.cell_id is not None and path[n][0].cell_id == cell.cell_id]
    if by_id:
        return by_id[-1]
    return next((n for n in ran if n > after and _same_source(path[n][0], cell.source)), None)


def _why_not(cell: CodeCell, found: int | None, path: Path, after: int) -> str:
    """Return why a cell must run, or an empty text."""
    if found is None:
        return "it asks a model, and has no answer" if cell.source.lstrip().startswith("%%ask") else "it has not run"
    statement, execution = path[found]
    if not _same_source(statement, cell.source):
        return f"it was edited since {statement.statement_id}"
    if execution.status == "imported":
        return f"{statement.statement_id} was imported, and did not run here"
    if execution.status != "ok" and not (cell.may_fail and execution.status == "error"):
        return f"{statement.statement_id} ended as {execution.status}"
    if found <= after:
        return f"{statement.statement_id} ran before the cell above it"
    return ""


def _same_source(statement: Statement, source: str) -> bool:
    return fits_masked(statement.source, source) if statement.tags.get("masked") else statement.source == source
