"""Tasks that are handed to the driver, and their results that become branches, until all have ended.

Rule 1: a task is submitted when the branch that it begins with is in the timeline, and not earlier.
Rule 2: no interrupt comes in while a branch is taken into the timeline.
Rule 3: a result counts once, whatever comes back how often.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ctxkernel.core.errors import CtxError
from ctxkernel.core.typed_json import read_json
from ctxkernel.kernel.execution.interrupts import Interrupts, set_handler
from ctxkernel.kernel.sweeps.branches import Branches
from ctxkernel.kernel.sweeps.run_records import RunRecord, record_from_json
from ctxkernel.kernel.sweeps.signed_messages import Messages
from ctxkernel.kernel.sweeps.task_states import TaskStates
from ctxkernel.sweeps.driver_client import DriverClient
from ctxkernel.sweeps.sweep_plan import SweepTask
from ctxkernel.sweeps.sweep_table import SweepTable

_WAIT_SECONDS = 0.5
_NO_WORKER_SECONDS = 60.0
Tell = Callable[[SweepTable, int, int, int], None]
"""(table, done, all, workers): shows the progress."""


class TaskLoop:
    """The run of the tasks of one sweep."""

    def __init__(
        self,
        driver: DriverClient,
        messages: Messages,
        branches: Branches,
        states: TaskStates,
        interrupts: Interrupts,
        tell: Tell,
    ) -> None:
        self._driver, self._messages, self._branches = driver, messages, branches
        self._states, self._interrupts, self._tell = states, interrupts, tell
        self._children: dict[str | None, list[SweepTask]] = {}
        self._waiting: dict[str, SweepTask] = {}
        self._done = 0
        self.cells_run = 0
        """Cells of results that are in the timeline."""

    def run(self, todo: Sequence[SweepTask]) -> None:
        """Run tasks, parents first. Raises CtxError if the driver or all workers are gone, KeyboardInterrupt."""
        keys = {task.key for task in todo}
        for task in todo:
            self._children.setdefault(task.parent if task.parent in keys else None, []).append(task)
        for task in self._children.get(None, ()):
            self._submit(task)
        seen = time.monotonic()
        self._tell(self._states.table, 0, len(todo), self._driver.workers)
        while self._waiting:
            message = self._driver.next(_WAIT_SECONDS)
            if self._driver.workers:
                seen = time.monotonic()
            elif time.monotonic() - seen > _NO_WORKER_SECONDS:
                raise CtxError("no worker is there any more; the same sweep goes on from the branches that are there")
            key = str((message or {}).get("done") or (message or {}).get("failed") or "")
            task = self._waiting.pop(key, None)
            if message is not None and task is not None:
                with self.protected():
                    self._end(task, self._messages.result(task, message))
            self._tell(self._states.table, self._done, len(todo), self._driver.workers)

    @contextmanager
    def protected(self) -> Generator[None]:
        """Let no interrupt in before what is done inside is done as a whole."""
        if not self._interrupts.can_switch():
            yield
            return
        before = self._interrupts.mask()
        try:
            yield
        finally:
            set_handler(signal.SIGINT, before)
            self._interrupts.release()
        if self._interrupts.pending:
            self._interrupts.pending = False
            raise KeyboardInterrupt

    def _submit(self, task: SweepTask) -> None:
        self._waiting[task.key] = task
        self._driver.submit(task.key, self._messages.task(task, self._states))

    def _end(self, task: SweepTask, ended: Mapping[str, Any]) -> None:
        """Take a result in; submit the tasks that follow, or close their rows."""
        if task.key in self._states.sources:
            self._end_collection(self._states.sources[task.key], ended)
            return
        if ended.get("needs_all"):
            self._messages.whole.add(task.key)
            self._submit(task)
            return
        status, why, branch = str(ended.get("status", "error")), str(ended.get("fault", "")), None
        table = self._states.table
        table.cpu += float(ended.get("cpu", 0.0))
        try:
            self._states.lose(task, read_json(dict[str, str], ended.get("lost") or {}, "the lost variables"))
            told = [f"before the cells ran in a worker: {one}" for one in ended.get("notices") or ()]
            table.notes += (one for one in told if one not in table.notes)
            records = [record_from_json(one) for one in ended.get("records", ())]
            branch = self._take(task, ended, records, status)
            if status != "ok" and records and (failed := records[-1].execution.exception) is not None:
                why = why or f"{failed.type}: {failed.message}{self._states.cause(task, failed.message)}"
        except (CtxError, KeyError, TypeError, ValueError) as fault:
            status, why = "error", f"its result cannot be used: {fault}"
        self._states.close_rows(task, status, why, ended.get("collected") or {}, branch)
        self._done += 1
        for child in self._children.get(task.key, ()):
            if status == "ok":
                self._submit(child)
            else:
                self._fail(child, status, why)

    def _end_collection(self, task: SweepTask, ended: Mapping[str, Any]) -> None:
        """Take the values of a task that an earlier sweep has done; run it if its state has not all of them."""
        states, collect = self._states, self._messages.collect
        end = states.ends[task.key]
        if end is None or ended.get("status") != "ok" or not {*collect}.isdisjoint(ended.get("lost") or ()):
            states.forget(task)
            self._submit(task)
            return
        mark = states.marks[task.key]
        collected: dict[str, Any] = ended.get("collected") or {}
        known: dict[str, Any] = {**(mark.get("collected") or {}), **collected}
        self._branches.mark(end, {**mark, "collected": known, "asked": [*{*mark.get("asked", ()), *collect}]})
        states.close_rows(task, "ok", "", collected, end)
        self._done += 1

    def _take(self, task: SweepTask, ended: Mapping[str, Any], records: Sequence[RunRecord], status: str) -> str | None:
        """Take the executions of a task into the timeline; return the end of its branch, None if it has none."""
        states, ids = self._states, list[str]()
        names = states.table.rows[0].parameters
        seconds = sum(one.execution.cost.time_ms for one in records) / 1000
        diverged = any(
            self._branches.differs(one, cell.against, names) for one, cell in zip(records, task.cells, strict=False)
        )
        mark: dict[str, Any] = {"cpu": float(ended.get("cpu", 0.0))}
        if records:
            states.table.overheads.append(float(ended.get("wall", 0.0)) - seconds)
            self._messages.keep(records)
            mark |= {"key": task.key if status == "ok" else "", "own": seconds, "diverged": diverged}
            mark |= {"collected": ended.get("collected") or {}, "lost": ended.get("lost") or {}}
            mark["asked"] = self._messages.collect if task.rows else []
            mark["wrote"] = [str(one) for one in ended.get("wrote") or ()]
            ids = self._branches.graft(states.start(task), records, mark)
            mark["runs"] = ids
            self.cells_run += sum(1 for one in records if one.origin)
        if status == "ok":
            states.end(task, ids, mark)
        else:
            states.measure(task, ids, mark)
        if ids:
            return ids[-1]
        return states.start(task) if status == "ok" or task.parent is not None else None

    def _fail(self, task: SweepTask, status: str, why: str) -> None:
        """Close the rows of a task that cannot begin, and of those below it: `why` a cell before it failed."""
        self._done += 1
        self._states.measure(task, (), {})
        self._states.close_rows(task, status, why, {}, None)
        for child in self._children.get(task.key, ()):
            self._fail(child, status, why)
