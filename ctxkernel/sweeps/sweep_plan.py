"""The tasks of a sweep: a tree in which combinations that share their first cells share a task.

A parameter gets its value right before the first cell that may read it. So the cells before it run once, or not at
all if they ran before. The statement that sets the parameter gets the new value instead, if it is the one right before
that cell.

Rule 1: pure; a cell that may read any name reads every parameter.
Rule 2: a task's key depends on the state that it begins with, its cells, and nothing else: an equal key means that its
        result is there already.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.text import format_duration, join_names, plural
from ctxkernel.state.tracking.cell_names import read_cell
from ctxkernel.sweeps.assignments import assignments, rebinds, sets, with_values
from ctxkernel.sweeps.combinations import Combination


@dataclass(frozen=True, slots=True)
class SweptCell:
    """A cell after the statement from which a sweep begins."""

    source: str
    statement_id: str = ""
    execution_id: str = ""
    """Its execution; empty if it has not run."""
    cell_id: str | None = None
    author: str = "human"
    tags: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0
    reads: frozenset[str] | None = None
    """The names that it may read; None for any."""
    reads_first: frozenset[str] | None = None
    """The names that its text reads before it binds them; None for any."""
    binds: frozenset[str] = frozenset()
    """The names that its text binds, or that its execution changed."""
    is_stored: bool = False
    """Whether its execution succeeded and its state can be restored."""
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class TaskCell:
    """A cell of a task."""

    source: str
    origin: str = ""
    """The statement whose text it has, apart from values of parameters; empty for a cell that only sets parameters."""
    against: str = ""
    """The execution that it is compared with."""
    cell_id: str | None = None
    author: str = "human"
    tags: Mapping[str, Any] = field(default_factory=dict[str, Any])
    may_fail: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class SweepTask:
    """Cells that run in order from one state."""

    key: str
    parent: str | None
    """The task with whose state it begins; None for `place`."""
    place: str | None
    """The execution with whose state it begins, without a parent."""
    cells: tuple[TaskCell, ...]
    rows: tuple[int, ...]
    """The combinations that end with it."""
    seconds: float
    """The time that its cells took when they ran last."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The tasks, parents first."""

    combinations: Sequence[Combination]
    tasks: Sequence[SweepTask]
    place: str | None
    """The execution with whose state the sweep begins."""
    cells_run: int
    cells_shared: int
    """Cells of combinations that are the same as those of another combination, or that ran before."""
    seconds: float
    """The total time that the cells of all tasks took when they ran last."""
    places: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parameter → the number of the cell right before which it is set, from 0."""
    replaced: frozenset[str] = frozenset()
    """Parameters whose value replaces the one in the statement that sets them."""
    notes: tuple[str, ...] = ()
    """Why values of a parameter may have no effect, or collected names are of no use, for people."""
    absent: tuple[str, ...] = ()
    """Collected names that neither the state nor a cell defines."""


def make_plan(
    cells: Sequence[SweptCell],
    combinations: Sequence[Combination],
    *,
    place: str | None,
    root: str,
    collected: Sequence[str] = (),
    defined: Collection[str] | None = None,
) -> SweepPlan:
    """Return the tasks of a sweep. Raises BadCommand.

    `place` is the execution with whose state it begins, which has the variables `defined` (None: not known); `root`
    names what all keys depend on.
    """
    names = list(combinations[0])
    changes = {name: _change(cells, name, name in collected) for name in names}
    by_place: dict[int, list[str]] = {}
    for name, (at, _) in changes.items():
        by_place.setdefault(at, []).append(name)
    levels = sorted(by_place)
    first = 0
    while first < levels[0] and cells[first].is_stored:
        first += 1
    begin = cells[first - 1].execution_id if first else place
    growing = _Tree(cells, by_place, {name for name, (_, replaced) in changes.items() if replaced}, combinations)
    top: SweepTask | None = None
    if first < levels[0]:  # cells that all combinations share, and that have no state to return to
        top = growing.add(None, begin, root, first, levels[0], {}, ())
    growing.grow(levels, 0, top, begin, f"{root} {begin}", range(len(combinations)))
    run = sum(1 for task in growing.tasks for one in task.cells if one.origin)
    places = {name: at for name, (at, _) in changes.items()}
    same = _unchanged(cells[levels[0] :], [name for name in collected if name not in names])
    absent = tuple(name for name in _unchanged(cells, same) if defined is not None and name not in defined)
    return SweepPlan(
        combinations,
        growing.tasks,
        place,
        run,
        len(combinations) * len(cells) - run,
        sum(task.seconds for task in growing.tasks),
        places,
        frozenset(name for name, (_, replaced) in changes.items() if replaced),
        (*_doubts(cells, places), *_unmentioned(cells, names, defined), *_constants(same, absent)),
        absent,
    )


def _change(cells: Sequence[SweptCell], name: str, collected: bool) -> tuple[int, bool]:
    """Return where a parameter gets its value: the number of the cell, and whether that cell itself sets it."""
    setter = next((at for at, cell in enumerate(cells) if _only_sets(cell, name)), -1)
    while True:
        if setter >= 0 and _may_read(cells[setter], name):  # it uses the value that it sets
            return setter, True
        # The value must be set before the first cell that binds the name again.
        uses = (at for at in range(setter + 1, len(cells)) if _may_read(cells[at], name) or _binds(cells[at], name))
        reader = next(uses, len(cells))
        if reader == len(cells) or not _only_sets(cells[reader], name):
            break
        setter = reader  # no cell read the value before this one, which sets another
    if reader < len(cells) and (rebinds(cells[reader].source, name) or not _may_read(cells[reader], name)):
        raise BadCommand(
            f"{_named(cells, reader)} binds {name} in another way than by an assignment of its own; give it "
            f"`{name} = …` in a cell without magics, outside of functions and blocks"
        )
    if setter < 0 and reader == len(cells) and not collected:
        raise BadCommand(f"no cell after the statement of --from reads {name}: its values would change nothing")
    return (setter, True) if 0 <= setter == reader - 1 else (reader, False)


def _named(cells: Sequence[SweptCell], at: int) -> str:
    return cells[at].statement_id or f"cell {at + 1} after the statement of --from"


def _doubts(cells: Sequence[SweptCell], places: Mapping[str, int]) -> Iterator[str]:
    """Yield which cells may bind a parameter that is set right before them."""
    for name, at in places.items():
        cell = cells[at] if at < len(cells) else None
        if cell is None or cell.reads_first is None or name in cell.reads_first or sets(cell.source, name):
            continue
        if name in read_cell(cell.source).replaced:
            yield f"{_named(cells, at)} binds {name} in a block: where that runs, its values have no effect"


def _unmentioned(cells: Sequence[SweptCell], names: Sequence[str], defined: Collection[str] | None) -> Iterator[str]:
    """Yield which parameters may be misspelt: cells that have not run may read any name."""
    for name in names:
        mentioned = any(re.search(rf"\b{re.escape(name)}\b", cell.source) for cell in cells)
        if defined is not None and name not in defined and not mentioned:
            yield (
                f"no cell mentions {name}, and the state after the statement of --from has no such variable: its "
                "values may change nothing"
            )


def _unchanged(cells: Sequence[SweptCell], names: Sequence[str]) -> list[str]:
    """Return the names that no cell can change."""
    return [name for name in names if not any(_binds(cell, name) or _may_read(cell, name) for cell in cells)]


def _constants(same: Sequence[str], absent: Sequence[str]) -> Iterator[str]:
    """Yield which collected names have no value, and which ones have the same value for all combinations."""
    if absent:
        yield (
            f"no combination has a value of {join_names(absent, 5)}: neither the state after the statement of --from "
            "nor a cell that follows has it; see --collect"
        )
    if same := [name for name in same if name not in absent]:
        yield (
            f"no cell that runs with the parameters changes {join_names(same, 5)}: all rows have the same value; let "
            "--from name a statement before the cell that computes it"
        )


def _only_sets(cell: SweptCell, name: str) -> bool:
    """Return whether a cell sets a name to a value that does not depend on the earlier value."""
    return cell.reads_first is not None and name not in cell.reads_first and sets(cell.source, name)


def _binds(cell: SweptCell, name: str) -> bool:
    return name in cell.binds or sets(cell.source, name)


def _may_read(cell: SweptCell, name: str) -> bool:
    return cell.reads is None or name in cell.reads


class _Tree:
    """The tasks that grow level by level: at each level some parameters get their values."""

    def __init__(
        self,
        cells: Sequence[SweptCell],
        by_place: Mapping[int, Sequence[str]],
        replaced: set[str],
        combinations: Sequence[Combination],
    ) -> None:
        self._cells = cells
        self._by_place = by_place
        self._replaced = replaced
        self._combinations = combinations
        self.tasks: list[SweepTask] = []

    def grow(
        self,
        levels: Sequence[int],
        level: int,
        parent: SweepTask | None,
        place: str | None,
        path: str,
        rows: Sequence[int],
    ) -> None:
        """Add the tasks of a level, and those below them."""
        at = levels[level]
        end = levels[level + 1] if level + 1 < len(levels) else len(self._cells)
        names = self._by_place[at]
        groups: dict[str, list[int]] = {}
        for row in rows:
            values = {name: self._combinations[row][name] for name in names}
            groups.setdefault(assignments(values), []).append(row)
        for text, members in groups.items():
            values = {name: self._combinations[members[0]][name] for name in names}
            last = level + 1 == len(levels)
            ending = tuple(members) if last else ()
            path_here = parent.key if parent is not None else path
            task = self.add(parent, place, path_here, at, end, values, ending)
            if not last:
                self.grow(levels, level + 1, task, place, text, members)

    def add(
        self,
        parent: SweepTask | None,
        place: str | None,
        path: str,
        start: int,
        end: int,
        values: Mapping[str, Any],
        rows: tuple[int, ...],
    ) -> SweepTask:
        """Add the task of the cells from `start` to `end`; parameters get their values at the first one."""
        inside = {name: value for name, value in values.items() if name in self._replaced}
        before = {name: value for name, value in values.items() if name not in self._replaced}
        made = [TaskCell(assignments(before), tags={"sweep": True})] if before else []
        seconds = 0.0
        for at in range(start, end):
            cell = self._cells[at]
            source = with_values(cell.source, inside) if at == start and inside else cell.source
            ids = cell.statement_id or f"#{at}", cell.execution_id, cell.cell_id, cell.author
            tags = {**cell.tags, "sweep": True} if source != cell.source else cell.tags
            made.append(TaskCell(source, *ids, tags, cell.may_fail))
            seconds += cell.seconds
        named = [[one.source, one.author] for one in made]
        key = digest(path, named, [])
        task = SweepTask(
            key, parent.key if parent is not None else None, None if parent else place, tuple(made), rows, seconds
        )
        self.tasks.append(task)
        return task


def digest(*parts: Any) -> str:
    """Return a digest of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def told(plan: SweepPlan, cells: Sequence[SweptCell], workers: int) -> list[str]:
    """Return a plan for people."""
    lines = [
        (
            f"{plural(len(plan.combinations), 'combinations')} of {join_names(list(plan.combinations[0]))}, "
            f"{plural(len(cells), 'cells')} each: {plural(len(plan.tasks), 'tasks')}"
        ),
        f"{plural(plan.cells_run, 'cells')} run, {plan.cells_shared} are shared",
    ]
    for name, at in plan.places.items():
        where = _named(cells, at) if at < len(cells) else "the end"
        how = "replaced in" if name in plan.replaced else "set before"
        lines.append(f"{name} is {how} {where}")
    known = "unknown, since the cells have not run yet"
    if plan.seconds or not plan.cells_run:
        known = format_duration(expected_seconds(plan, workers))
    lines += plan.notes
    lines.append(f"expected time with {plural(workers, 'workers')}: {known}")
    return lines


_START_SECONDS, _TASK_SECONDS = 4.0, 0.05
"""The start of a cluster with its kernels, and the overhead of a task."""


def expected_seconds(plan: SweepPlan, workers: int) -> float:
    """Return the expected time of a sweep, from the time that its cells took when they ran last."""
    tasks = len(plan.tasks)
    if not tasks:
        return 0.0
    return _START_SECONDS + (plan.seconds + tasks * _TASK_SECONDS) / min(workers, tasks)
