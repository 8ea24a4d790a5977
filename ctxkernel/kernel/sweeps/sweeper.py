"""A sweep of this kernel: from its combinations to the branches of the timeline, and the table.

    plan → driver → for each result: a branch, and the tasks that follow it → table

Rule 1: the variables, HEAD and the history of the model stay as they are.
Rule 2: an interrupt cancels: branches that are there stay, rows without one are `cancelled`. The same sweep goes on
        from there.
Rule 3: a task is submitted when the branch that it begins with is in the timeline, and not earlier.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.kernel.execution.interrupts import Interrupts, set_handler
from ctxkernel.kernel.returning.checkpoint_service import CheckpointService
from ctxkernel.kernel.returning.returns import Returning
from ctxkernel.kernel.sweeps.branches import MARK, Branches
from ctxkernel.kernel.sweeps.messages import MessageContext, Messages, SweepRequest, TaskStates
from ctxkernel.kernel.sweeps.results import SweepRow, SweepTable
from ctxkernel.kernel.sweeps.run_records import record_from_json, units_json
from ctxkernel.kernel.sweeps.swept_cells import swept_cells
from ctxkernel.kernel.sweeps.task_runs import path_json
from ctxkernel.store import trust
from ctxkernel.store.chunks import quota
from ctxkernel.store.chunks.data_folder import folder_name
from ctxkernel.store.chunks.free_memory import free_memory
from ctxkernel.store.log.session import SessionReader, SessionStore
from ctxkernel.sweeps.combinations import Combination
from ctxkernel.sweeps.driver_client import DriverClient
from ctxkernel.sweeps.environment import differences, packages_here
from ctxkernel.sweeps.plan import SweepPlan, SweptCell, Task, digest, make_plan
from ctxkernel.sweeps.seal import Unsealed, seal, unseal
from ctxkernel.sweeps.store import SharedStore

_WAIT_SECONDS = 0.5
_NO_WORKER_SECONDS = 60.0
_SHARE = 0.8
"""The part of the free memory that the kernels of the workers may take together."""


Tell = Callable[[int, int, int], None]
"""(done, all, workers): shows the progress."""


class Sweeper:
    """Runs sweeps."""

    def __init__(
        self,
        *,
        loop: Loop,
        store: SessionStore,
        checkpoints: CheckpointService,
        interrupts: Interrupts,
        notebook: str,
        tolerance: float = 0.0,
    ) -> None:
        self._loop, self._store = loop, store
        self._checkpoints, self._interrupts = checkpoints, interrupts
        self._back: Returning = checkpoints.needed()
        self._notebook = notebook
        self._branches = Branches(loop, store, self._back)

    # -- the plan -----------------------------------------------------------------------------------

    def plan(self, request: SweepRequest) -> tuple[SweepPlan, list[SweptCell], str | None]:
        """Return the tasks, the cells that follow, and the execution with whose state they begin. Raises CtxError."""
        self._checkpoints.wait_for_all()
        target = self._back.target(request.start)
        self._back.health.check(target.execution_id)
        cells = swept_cells(self._back, self._loop, target.execution_id, request.until, Path(self._notebook))
        if not cells:
            raise BadCommand(f"no cell follows on {target.told}: a sweep runs the cells after the statement of --from")
        root = digest(self._store.session_id, target.execution_id)
        plan = make_plan(
            cells, request.combinations, place=target.execution_id, root=root, collected=request.collect
        )
        return plan, cells, target.execution_id

    # -- the run --------------------------------------------------------------------------------------

    def run(self, request: SweepRequest, tell: Tell) -> SweepTable:
        """Run a sweep and return its table. Raises CtxError if it cannot begin."""
        began = time.monotonic()
        plan, cells, place = self.plan(request)
        table = SweepTable([SweepRow(dict(one)) for one in plan.combinations])
        table.cells_run, table.cells_shared, table.tasks = plan.cells_run, plan.cells_shared, len(plan.tasks)
        state = TaskStates()
        if not request.again:
            self._recall(plan, state, table)
        todo = [task for task in plan.tasks if task.key not in state.ends or self._open_rows(task, table)]
        if todo:
            self._run_tasks(request, plan, cells, todo, state, table, tell)
        table.seconds = time.monotonic() - began
        self._told_clashes(plan, state, table)
        return table

    @staticmethod
    def _open_rows(task: Task, table: SweepTable) -> bool:
        return any(table.rows[row].status == "waiting" for row in task.rows)

    def _recall(self, plan: SweepPlan, state: TaskStates, table: SweepTable) -> None:
        """Take the tasks that an earlier sweep has done, by their marks."""
        if self._store.path is None:
            return
        known: dict[str, tuple[str, dict[str, Any]]] = {}
        with SessionReader(self._store.path) as reader:
            for (subject, mark), value in reader.marks().items():
                if mark == MARK and isinstance(value, dict):
                    known[str(value.get("key"))] = subject, value
        for task in plan.tasks:
            subject, value = known.get(task.key, ("", {}))
            if subject not in self._loop.log or self._back.checkpoints.states.info(subject) is None:
                continue
            if task.parent is not None and task.parent not in state.ends:
                continue
            state.ends[task.key] = subject
            state.seconds[task.key] = float(value.get("seconds", 0.0))
            state.diverged[task.key] = bool(value.get("diverged"))
            state.paths[task.key] = self._path_of(state, task, subject)
            table.cells_run -= sum(1 for one in task.cells if one.origin)
            table.cells_shared += sum(1 for one in task.cells if one.origin)
            self._close_rows(task, table, state, value)

    def _path_of(self, state: TaskStates, task: Task, end: str) -> list[dict[str, Any]]:
        """Return the executions of a task that was done earlier."""
        start = state.ends[task.parent] if task.parent is not None else task.place
        path = self._loop.log.path(end)
        ids = [run.execution_id for _, run in path]
        own = path[ids.index(start) + 1 :] if start in ids else path
        made = []
        for statement, run in own:
            whole = self._back.checkpoints
            known = whole.states.known[run.execution_id]
            units = [one for unit in known.units for one in whole.states.made_of(unit) or (unit,)]
            base = None if known.base is None else f"c{known.base}"
            manifest = {"v": 2, "base": base, "units": units_json(whole, units), "gone": list(known.gone)}
            made.append(path_json(statement, run, manifest))
        return made

    def _run_tasks(
        self,
        request: SweepRequest,
        plan: SweepPlan,
        cells: Sequence[SweptCell],
        todo: Sequence[Task],
        state: TaskStates,
        table: SweepTable,
        tell: Tell,
    ) -> None:
        key = self._key()
        store, chunks = self._store_of(request)
        workers = request.workers or max(1, min(os.cpu_count() or 1, sum(1 for one in todo if one.rows) or 1))
        memory = int(request.memory * 1e9) or _free_memory() // workers
        messages = Messages(self._context(cells, request), plan, request, key, store, chunks, memory)
        driver = DriverClient(scheduler=request.scheduler, workers=workers, memory=memory, key=key)
        finished = False
        try:
            if request.scheduler is not None:
                self._compare_environments(driver, store)
            self._serve(driver, messages, plan, todo, state, table, tell)
            finished = True
        except KeyboardInterrupt:
            table.notes.append("cancelled: the same sweep goes on from here")
        finally:
            with self._protected():
                for row in table.rows:
                    row.status = "cancelled" if row.status == "waiting" else row.status
                driver.close()
                if finished and request.store is None:
                    shutil.rmtree(store.url, ignore_errors=True)  # its results are in the timeline

    def _serve(
        self,
        driver: DriverClient,
        messages: Messages,
        plan: SweepPlan,
        todo: Sequence[Task],
        state: TaskStates,
        table: SweepTable,
        tell: Tell,
    ) -> None:
        """Submit tasks as the branches that they begin with are there, until all have ended."""
        children: dict[str | None, list[Task]] = {}
        tasks = {task.key: task for task in todo}
        for task in todo:
            children.setdefault(task.parent if task.parent in tasks else None, []).append(task)
        total, done, seen = len(todo), 0, time.monotonic()
        waiting = state.waiting

        def submit(task: Task) -> None:
            waiting.add(task.key)
            driver.submit(task.key, messages.task(task, state))

        for task in children.get(None, ()):
            submit(task)
        tell(done, total, driver.workers)
        while waiting:
            message = driver.next(_WAIT_SECONDS)
            if driver.workers:
                seen = time.monotonic()
            elif time.monotonic() - seen > _NO_WORKER_SECONDS:
                raise CtxError("no worker is there any more; the same sweep goes on from the branches that are there")
            if message is None or not ("done" in message or "failed" in message):
                tell(done, total, driver.workers)
                continue
            task = tasks[message.get("done") or message["failed"]]
            if task.key not in waiting:  # it came twice
                continue
            waiting.discard(task.key)
            ended = messages.result(task, message)
            with self._protected():
                fine = self._take(task, ended, messages, state, table)
            if not fine and ended.get("needs_all"):
                messages.whole.add(task.key)
                submit(task)
                continue
            done += 1
            if fine:
                for child in children.get(task.key, ()):
                    submit(child)
            else:
                done += self._fail_below(task, ended, children, state, table)
            tell(done, total, driver.workers)

    def _take(
        self, task: Task, ended: Mapping[str, Any], messages: Messages, state: TaskStates, table: SweepTable
    ) -> bool:
        """Take a result into the timeline; return whether the tasks below can begin."""
        if ended.get("needs_all"):
            return False
        parent = state.ends[task.parent] if task.parent is not None else task.place
        status, why = str(ended.get("status", "error")), str(ended.get("fault", ""))
        table.cpu += float(ended.get("cpu", 0.0))
        end = parent
        try:
            records = [record_from_json(one) for one in ended.get("records", ())]
            if records:
                messages.keep(records)
                seconds = sum(one.execution.cost.time_ms for one in records) / 1000
                table.overheads.append(float(ended.get("wall", 0.0)) - seconds)
                seconds += state.seconds.get(task.parent or "", 0.0)
                pairs = list(zip(records, task.cells, strict=False))
                differ = any(self._branches.differs(one, cell.against) for one, cell in pairs)
                differ = differ or state.diverged.get(task.parent or "", False)
                mark = {"key": task.key if status == "ok" else "", "seconds": seconds, "diverged": differ}
                mark |= {"collected": ended.get("collected", {}), "status": status}
                ids = self._branches.graft(parent, records, mark)
                log = self._loop.log
                state.seconds[task.key], state.diverged[task.key] = seconds, differ
                end = ids[-1]
                state.paths[task.key] = [
                    path_json(self._statement(id_), log.execution(id_), self._manifest(id_, one))
                    for id_, (one, _) in zip(ids, pairs, strict=True)
                ]
                if status != "ok":
                    failed = records[-1].execution.exception
                    why = f"{failed.type}: {failed.message}" if failed is not None else status
            else:
                state.seconds[task.key] = state.seconds.get(task.parent or "", 0.0)
                state.diverged[task.key] = state.diverged.get(task.parent or "", False)
                state.paths[task.key] = []
        except (CtxError, KeyError, TypeError, ValueError) as fault:
            status, why = "error", f"its result cannot be used: {fault}"
        if end is not None:
            state.ends[task.key] = end
        self._close_rows(task, table, state, {**ended, "status": status, "why": why})
        if status != "ok":
            state.ends.pop(task.key, None)
        return status == "ok"

    def _statement(self, execution_id: str) -> Any:
        log = self._loop.log
        return log.statement(log.execution(execution_id).statement_id)

    def _manifest(self, execution_id: str, record: Any) -> dict[str, Any]:
        parent = self._loop.log.execution(execution_id).parent_execution_id
        renamed = record.renamed(self._statement(execution_id), execution_id, parent)
        return {key: renamed.manifest[key] for key in ("v", "base", "units", "gone")}

    def _close_rows(self, task: Task, table: SweepTable, state: TaskStates, value: Mapping[str, Any]) -> None:
        for at in task.rows:
            row = table.rows[at]
            row.status, row.why = str(value.get("status", "ok")), str(value.get("why", ""))
            row.collected = dict(value.get("collected", {}))
            row.branch = state.ends.get(task.key)
            row.seconds = state.seconds.get(task.key, 0.0)
            row.diverged = state.diverged.get(task.key, False)

    def _fail_below(
        self,
        task: Task,
        ended: Mapping[str, Any],
        children: Mapping[str | None, Sequence[Task]],
        state: TaskStates,
        table: SweepTable,
    ) -> int:
        """Close the rows below a task that failed; return how many tasks do not run."""
        count, todo = 0, list(children.get(task.key, ()))
        status = str(ended.get("status", "error"))
        while todo:
            one = todo.pop()
            count += 1
            todo += children.get(one.key, ())
            table.cells_run -= sum(1 for cell in one.cells if cell.origin)
            for at in one.rows:
                row = table.rows[at]
                row.status = status if status != "ok" else "error"
                row.why = "a cell that it shares with other combinations failed"
        return count

    def _context(self, cells: Sequence[SweptCell], request: SweepRequest) -> MessageContext:
        names = [cell.reads for cell in cells]
        known = [one for one in names if one is not None]
        needed = None
        if len(known) == len(names):
            needed = frozenset().union(*known, request.collect, *request.combinations)
        return MessageContext(self._store.session_id, self._notebook, self._back, self._loop, needed)

    # -- around it ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _protected(self) -> Generator[None]:
        """Let no interrupt in before a branch is in the timeline as a whole."""
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

    def _key(self) -> bytes:
        """Return the key that signs the messages of this session's sweeps."""
        signature = trust.signer().sign("sweep", self._store.session_id)
        return bytes.fromhex(signature) if signature else hashlib.sha256(os.urandom(32)).digest()

    def _store_of(self, request: SweepRequest) -> tuple[SharedStore, str | None]:
        """Return the store, and the folder of the data where workers share it."""
        shared = str(self._back.chunks.folder)
        name = folder_name(self._store.session_id)
        if request.store is not None:
            return SharedStore(f"{request.store.rstrip('/')}/ctxkernel-{name}"), None
        folder = quota.root_folder(os.environ).parent / "sweeps" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return SharedStore(str(folder)), shared

    @staticmethod
    def _compare_environments(driver: DriverClient, store: SharedStore) -> None:
        """Raise CtxError if packages of the workers differ from those here, or a worker does not reach the store."""
        probe = f"probe-{digest(time.time(), os.getpid())}"
        store.write(probe, probe.encode())
        workers = driver.describe(store.url, probe)
        if not workers:
            raise CtxError("the scheduler has no worker: start some, and sweep again")
        far = [name for name, about in workers.items() if not about["reaches"]]
        if far:
            raise CtxError(
                f"{len(far)} of {len(workers)} workers do not reach {store.url}: --store URL names a folder that all of "
                "them reach (a path on a shared file system, s3://…, gs://…)"
            )
        if found := differences(packages_here(), workers):
            raise CtxError("the environments differ, so nothing runs: " + "; ".join(found[:8]))

    def _told_clashes(self, plan: SweepPlan, state: TaskStates, table: SweepTable) -> None:
        """Tell which files several combinations wrote: the last one to write wins."""
        writers: dict[str, set[str]] = {}
        for key, path in state.paths.items():
            for one in path:
                run = self._loop.log.execution(one["execution"]["execution_id"])
                for artifact in run.artifacts:
                    if artifact.kind == "file":
                        writers.setdefault(artifact.name, set()).add(key)
        clashes = sorted(name for name, keys in writers.items() if len(keys) > 1)
        if clashes:
            table.notes.append(
                f"several combinations wrote {', '.join(clashes[:5])}: which content is there now depends on chance; "
                "write a parameter into the name of the file"
            )


def _free_memory() -> int:
    """Return the memory that the kernels of all workers may take together, in bytes; 0 if it is not known."""
    free = free_memory()
    return int(free * _SHARE) if free else 0
