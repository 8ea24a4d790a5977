"""The states of the tasks of a sweep, and the rows of its table that follow from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ctxkernel.core.loop import Loop
from ctxkernel.core.text import one_line
from ctxkernel.kernel.sweeps.run_records import manifest_of
from ctxkernel.kernel.sweeps.task_runs import path_json
from ctxkernel.state.checkpoints.checkpoints import Checkpointer
from ctxkernel.sweeps.sweep_plan import SweepTask, digest
from ctxkernel.sweeps.sweep_table import SweepTable

_MOST_OUTPUT = 200


class TaskStates:
    """The tasks that have ended, by their keys."""

    def __init__(self, loop: Loop, checkpoints: Checkpointer, table: SweepTable) -> None:
        self._loop, self._checkpoints = loop, checkpoints
        self.table = table
        self.ends: dict[str, str | None] = {}
        """Task → its last execution; None is the place before all statements."""
        self.seconds: dict[str, float] = {}
        """Task → the time of its cells and of those above."""
        self.cpu: dict[str, float] = {}
        """Task → its processor time, with that of the tasks above."""
        self.outputs: dict[str, str] = {}
        """Task → the last line that its cells, or those above, printed."""
        self.diverged: dict[str, bool] = {}
        self.lost: dict[str, dict[str, str]] = {}
        """Task → the variables that its worker, or that of a task above, could not restore, and why."""
        self.wrote: dict[str, list[str]] = {}
        """Task → the files that its kernel opened for writing."""
        self.paths: dict[str, list[dict[str, Any]]] = {}
        """Task → its executions, for the tasks that follow it."""
        self.marks: dict[str, Mapping[str, Any]] = {}
        """Task of an earlier sweep → its mark."""
        self.sources: dict[str, SweepTask] = {}
        """Task that only collects values → the task of an earlier sweep whose state has them."""

    def is_done(self, task: SweepTask) -> bool:
        """Return whether a task need not run: it ended well, and all its rows have their values."""
        return task.key in self.ends and not any(self.table.rows[row].status == "waiting" for row in task.rows)

    def remaining(self, tasks: Sequence[SweepTask], collect: Sequence[str]) -> list[SweepTask]:
        """Return the tasks to run. Values that an earlier sweep did not collect are taken from its states."""
        return [self._collecting(one, collect) or one for one in tasks if not self.is_done(one)]

    def _collecting(self, task: SweepTask, collect: Sequence[str]) -> SweepTask | None:
        if task.key not in self.ends:
            return None
        key, end = digest("collect", task.key, *collect), self.ends[task.key]
        self.sources[key] = task
        return replace(task, key=key, parent=None, place=end, cells=(), seconds=0.0)

    def start(self, task: SweepTask) -> str | None:
        """Return the execution with whose state a task begins."""
        return self.ends[task.parent] if task.parent is not None else task.place

    def measure(self, task: SweepTask, ids: Sequence[str], mark: Mapping[str, Any]) -> None:
        """Note the time, the output and the divergence of a task with these executions, and of the tasks above it."""
        above, seconds, diverged = task.parent or "", float(mark.get("own", 0.0)), bool(mark.get("diverged"))
        self.cpu[task.key] = self.cpu.get(above, 0.0) + float(mark.get("cpu", 0.0))
        printed = (_last_line(self._loop.log.execution(one).stdout) for one in reversed(ids))
        self.outputs[task.key] = next(filter(None, printed), self.outputs.get(above, ""))
        self.seconds[task.key] = self.seconds.get(above, 0.0) + seconds
        self.diverged[task.key] = diverged or self.diverged.get(above, False)

    def end(self, task: SweepTask, ids: Sequence[str], mark: Mapping[str, Any]) -> None:
        """Note that a task ended well, with these executions; `mark` says what it took."""
        self.measure(task, ids, mark)
        self.wrote[task.key] = list(mark.get("wrote") or ())
        self.ends[task.key] = ids[-1] if ids else self.start(task)
        self.paths[task.key] = [self._path_json(one) for one in ids]

    def lose(self, task: SweepTask, lost: Mapping[str, str]) -> None:
        """Note which variables the worker of a task could not restore."""
        self.lost[task.key] = {**self.lost.get(task.parent or "", {}), **lost}

    def cause(self, task: SweepTask, message: str) -> str:
        """Return why variables that an error names were not there; empty if none of them was lost."""
        named = set(re.findall(r"\w+", message))
        told = [f"{name}: {one_line(why, 80)}" for name, why in self.lost[task.key].items() if name in named]
        return f" (a worker could not restore {'; '.join(told)})" if told else ""

    def recall(self, task: SweepTask, end: str, mark: Mapping[str, Any], collect: Sequence[str] | None) -> None:
        """Note that an earlier sweep has done a task, by its mark; `collect` is None if values are missing."""
        path = [run.execution_id for _, run in self._loop.log.path(end)]
        start = self.start(task)
        own = path[path.index(start) + 1 :] if start in path else path
        self.lose(task, mark.get("lost") or {})
        self.end(task, own, mark)
        self.marks[task.key] = mark
        self._count_shared(task, 1)
        if collect is not None:
            known: dict[str, Any] = mark.get("collected") or {}
            collected = {name: known[name] for name in collect if name in known}
            self.close_rows(task, "ok", "", collected, self.ends[task.key])

    def forget(self, task: SweepTask) -> None:
        """Note that the state of a recalled task has not all values, so that the task runs."""
        del self.ends[task.key]
        self._count_shared(task, -1)

    def _count_shared(self, task: SweepTask, times: int) -> None:
        count = times * sum(1 for one in task.cells if one.origin)
        self.table.cells_run -= count
        self.table.cells_shared += count

    def _path_json(self, execution_id: str) -> dict[str, Any]:
        log = self._loop.log
        run = log.execution(execution_id)
        return path_json(log.statement(run.statement_id), run, manifest_of(self._checkpoints, execution_id))

    def close_rows(
        self, task: SweepTask, status: str, why: str, collected: Mapping[str, Any], branch: str | None
    ) -> None:
        """Fill the rows that end with a task."""
        for at in task.rows:
            row = self.table.rows[at]
            row.status, row.why, row.collected, row.branch = status, why, dict(collected), branch
            row.seconds = self.seconds.get(task.key, 0.0)
            row.diverged = self.diverged.get(task.key, False)
            row.cpu, row.output = self.cpu.get(task.key, 0.0), self.outputs.get(task.key, "")
            row.lost = dict(self.lost.get(task.key, {}))

    def cancel_rest(self) -> None:
        """Note that the rows without an end are cancelled."""
        for row in self.table.rows:
            row.status = "cancelled" if row.status == "waiting" else row.status

    def written_twice(self) -> list[str]:
        """Return the files that several tasks wrote."""
        writers: dict[str, set[str]] = {}
        for key, path in self.paths.items():
            for one in path:
                run = self._loop.log.execution(one["execution"]["execution_id"])
                for artifact in run.artifacts:
                    if artifact.kind == "file":
                        writers.setdefault(artifact.name, set()).add(key)
        # Each of them may have seen a file that another one wrote at the same time: those that opened it tell.
        known = {name: {key for key in keys if name in self.wrote[key]} for name, keys in writers.items()}
        return sorted(name for name, keys in writers.items() if len(known[name] or keys) > 1)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return one_line(lines[-1], _MOST_OUTPUT) if lines else ""
