"""The cells that follow on a statement, with what they may read: those of the timeline, else those of the notebook."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.loop import Loop
from ctxkernel.core.timeline import Execution, Run, Statement
from ctxkernel.kernel.execution.cell import asks
from ctxkernel.kernel.returning.affected_notebook import cells_of_notebook, is_command, is_silent
from ctxkernel.kernel.returning.cell_runs import CellFacts
from ctxkernel.kernel.returning.returns import Returning
from ctxkernel.kernel.sweeps.earlier_tasks import ReadFiles
from ctxkernel.state.tracking.cell_names import read_cell, syntax_tree
from ctxkernel.state.tracking.read_names import names_read_first
from ctxkernel.sweeps.sweep_plan import SweptCell


def swept_cells(
    back: Returning, loop: Loop, place: str | None, until: str, notebook: Path, swept: Collection[str]
) -> list[SweptCell]:
    """Return the cells after an execution, up to the statement `until`. Raises BadCommand.

    Without `until` they end before a cell that called `sweep`: `swept` are the executions that swept.
    """
    path = _path_after(loop, place)
    if until:
        last = back.target(until).execution_id
        ids = [run.execution_id for _, run in path]
        if last not in ids:
            raise BadCommand(
                f"--until {until} does not come after the statement of --from: give a later statement of its branch"
            )
        path = path[: ids.index(last) + 1]
    found: list[SweptCell] = []
    intact, changed = True, ReadFiles(back).first_changed(path)
    for statement, run in path:
        if _is_left_out(statement):
            continue
        if run.execution_id in swept and not until:
            break
        if back.facts.asks(statement):
            raise BadCommand(
                f"{statement.statement_id} is marked as one that is not run again unasked: --until ends before it, or "
                f"%ctx mark {statement.index} none takes the mark away"
            )
        if statement.tags.get("masked"):
            raise BadCommand(
                f"{statement.statement_id} had a credential that was masked in the log; it cannot run again"
            )
        intact = intact and run.execution_id != changed
        made = _of_run(back, statement, run, intact=intact)
        intact = made.is_stored
        found.append(made)
    if found:  # a cell that failed and was passed over may fail again; one at which the run ended tells the result
        found[-1] = replace(found[-1], may_fail=False)
    return found or _of_notebook(loop, place, notebook)


def _path_after(loop: Loop, place: str | None) -> list[Run]:
    """Return what follows on an execution: on the longest branch that HEAD is on, else on the longest one.

    Branches of sweeps count only where HEAD is on them.
    """
    log = loop.log
    running = loop.opened.execution.execution_id if loop.opened is not None else None
    head = [run.execution_id for statement, run in log.path() if not _is_left_out(statement)]
    head = [one for one in head if one != running]  # a cell that calls `sweep` is not left out
    here = set(head)
    best: list[Run] = []
    rank = (False, False, 0)
    for whole in log.paths([log.head, *(branch.leaf for branch in log.branches())]):
        path = [one for one in whole if one[1].execution_id != running]
        ids = [run.execution_id for _, run in path]
        if place is not None and place not in ids:
            continue
        after = path[ids.index(place) + 1 :] if place is not None else path
        cells = [run.execution_id for statement, run in path if not _is_left_out(statement)]
        swept = any(statement.tags.get("sweep") for statement, run in after if run.execution_id not in here)
        found = (cells[: len(head)] == head, not swept, len(cells))
        if found > rank:
            best, rank = after, found
    return best


def _is_left_out(statement: Statement) -> bool:
    """Return whether a statement is none that a combination runs: a command, a question, an answer in words."""
    if statement.author == "model":
        return statement.kind == "meta"
    return is_silent(statement) or statement.kind == "meta" or asks(statement.source)


def _of_run(back: Returning, statement: Statement, run: Execution, *, intact: bool) -> SweptCell:
    facts = back.facts.cells.get(run.execution_id)
    info = back.checkpoints.states.info(run.execution_id)
    changes = run.changes
    stored = intact and run.status == "ok" and info is not None and info.state == "durable" and not info.missing
    return SweptCell(
        statement.source,
        statement.statement_id,
        run.execution_id,
        statement.cell_id,
        statement.author,
        {key: value for key, value in statement.tags.items() if key in ("differs", "asks")},
        run.cost.time_ms / 1000,
        _reads(statement.source, facts, back.live.value),
        names_read_first(statement.source),
        read_cell(statement.source).replaced.union(changes.added, changes.changed, changes.deleted),
        stored,
        run.status != "ok",
    )


def _reads(source: str, facts: CellFacts | None, value: Callable[[str], Any]) -> frozenset[str] | None:
    """Return the names that a cell may read; None if that is not known."""
    text = read_cell(source)
    if facts is None or facts.beyond is None or text.anything:
        return None
    reads = facts.reads | facts.beyond | text.names
    # A function that it calls may read what its text only binds; a module cannot.
    if all(isinstance(value(name), ModuleType) for name in facts.reads - text.replaced):
        reads -= text.replaced - _loaded(source)
    return reads


def _loaded(source: str) -> frozenset[str]:
    """Return the names whose value the text uses anywhere; all that it binds, if it is no plain Python."""
    tree = syntax_tree(source)
    if tree is None:
        return read_cell(source).replaced
    loaded = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Store)}
    changed = {
        one.target.id for one in ast.walk(tree) if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name)
    }
    return frozenset(loaded | changed)


def _of_notebook(loop: Loop, place: str | None, notebook: Path) -> list[SweptCell]:
    """Return the cells of the notebook's file below that of the statement, which have not run."""
    if place is None or not notebook.is_file():
        return []
    cell_id = loop.log.statement(loop.log.execution(place).statement_id).cell_id
    cells = cells_of_notebook(notebook)
    at = next((n for n, one in enumerate(cells) if one.cell == cell_id), None)
    if at is None:
        return []
    below = [one for one in cells[at + 1 :] if not is_command(one) and not asks(one.source)]
    return [
        SweptCell(
            one.source,
            cell_id=None if one.cell.startswith("#") else one.cell,
            tags={key: value for key, value in one.tags.items() if key in ("differs", "asks")},
            reads_first=names_read_first(one.source),
            binds=read_cell(one.source).replaced,
            may_fail=one.may_fail,
        )
        for one in below
    ]
