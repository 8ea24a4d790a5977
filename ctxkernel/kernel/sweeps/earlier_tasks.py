"""The tasks that an earlier sweep has done, by their marks.

Rule 1: a task counts as done only while the files that its executions read are as they were.
Rule 2: a result that may be another one now, for a reason that is not recorded (the clock, the network), is taken, so
        that a broken sweep can go on. The table says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from ctxkernel.core.loop import Loop
from ctxkernel.core.text import join_names, plural
from ctxkernel.core.timeline import Execution, Run
from ctxkernel.kernel.returning.cell_runs import DRAWS
from ctxkernel.kernel.returning.returns import Returning
from ctxkernel.kernel.sweeps.branches import MARK
from ctxkernel.kernel.sweeps.task_states import TaskStates
from ctxkernel.sweeps.sweep_plan import SweepPlan


class ReadFiles:
    """Compares the files that executions read with those of now."""

    def __init__(self, back: Returning) -> None:
        self._facts = back.facts.cells

        @cache
        def version(name: str) -> str:
            return back.reads.version(os.path.abspath(name))

        self._version = version

    def first_changed(self, path: Iterable[Run]) -> str:
        """Return the first execution of a path that read a file which is another one now; empty if there is none.

        A file that an earlier execution of the path wrote does not count: the path makes it again.
        """
        written = set[str]()
        for _, run in path:
            found = self._read(run).items()
            if any(name not in written and self._version(name) != version for name, version in found):
                return run.execution_id
            written.update(one.name for one in run.artifacts if one.kind == "file")
        return ""

    def _read(self, run: Execution) -> dict[str, str]:
        facts = self._facts.get(run.execution_id)
        files = {one.name: one.hash for one in run.artifacts if one.kind == "read"}
        return files | dict(facts.modules) if facts is not None else files


def recall_tasks(
    plan: SweepPlan,
    states: TaskStates,
    marks: Mapping[tuple[str, str], Any],
    loop: Loop,
    back: Returning,
    collect: Sequence[str],
) -> None:
    """Note the tasks of a plan that an earlier sweep has done, also if it collected other variables."""
    known: dict[str, tuple[str, dict[str, Any]]] = {}
    for (subject, mark), value in marks.items():
        if mark == MARK and isinstance(value, dict):
            found = cast("dict[str, Any]", value)
            known[str(found.get("key"))] = subject, found
    files = ReadFiles(back)
    doubtful, doubts = 0, dict[str, None]()
    for task in plan.tasks:
        end, value = known.get(task.key, ("", {}))
        info = back.checkpoints.states.info(end) if end in loop.log else None
        if info is None or not (task.parent is None or task.parent in states.ends):
            continue
        path = loop.log.path(end)
        after = next((at for at, (_, run) in enumerate(path, 1) if run.execution_id == plan.place), 0)
        if files.first_changed(path[after:]):
            continue
        has_values = not task.rows or {*collect} <= {*value.get("asked", ())}
        if not has_values and not info.missing.keys().isdisjoint(collect):
            continue
        states.recall(task, end, value, collect if has_values else None)
        reasons = [doubt for _, run in path[after:] if (doubt := _doubt(back, run))]
        doubtful += len(task.rows) if reasons else 0
        doubts |= dict.fromkeys(reasons)
    if doubtful:
        told = f"{plural(doubtful, 'combinations')} are those of an earlier sweep"
        states.table.notes.append(f"{told}, although {join_names(list(doubts), 3)}: --again runs them")


def _doubt(back: Returning, run: Execution) -> str:
    """Return why an execution may give another result now; empty if nothing is known of that."""
    facts = back.facts.cells.get(run.execution_id)
    # The state with which a task begins has the random generators.
    why = facts.unknown if facts is not None and facts.unknown != DRAWS else ""
    return f"{run.statement_id} {why.removeprefix('it ')}" if why else ""
