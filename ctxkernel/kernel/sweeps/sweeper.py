"""A sweep of this kernel: from its combinations to the branches of the timeline, and the table.

    plan → tasks that an earlier sweep has done → `task_loop` → table

Rule 1: the variables, HEAD and the history of the model stay as they are.
Rule 2: an interrupt cancels: branches that are there stay, rows without one are `cancelled`. The same sweep goes on
        from there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.core.state_names import is_variable
from ctxkernel.core.text import join_names
from ctxkernel.kernel.execution.interrupts import Interrupts
from ctxkernel.kernel.returning.checkpoint_service import CheckpointService
from ctxkernel.kernel.returning.returns import Returning
from ctxkernel.kernel.sweeps.branches import Branches
from ctxkernel.kernel.sweeps.earlier_tasks import recall_tasks
from ctxkernel.kernel.sweeps.signed_messages import MessageContext, Messages, SweepRequest
from ctxkernel.kernel.sweeps.swept_cells import swept_cells
from ctxkernel.kernel.sweeps.task_loop import TaskLoop, Tell
from ctxkernel.kernel.sweeps.task_runs import is_worker
from ctxkernel.kernel.sweeps.task_states import TaskStates
from ctxkernel.state.ambient.process import ENVIRONMENT
from ctxkernel.store import signatures
from ctxkernel.store.chunks import quota
from ctxkernel.store.chunks.data_folder import folder_name
from ctxkernel.store.chunks.free_memory import free_memory
from ctxkernel.store.log.session import SessionReader, SessionStore
from ctxkernel.store.mirror import RemoteFiles
from ctxkernel.sweeps.driver_client import DriverClient
from ctxkernel.sweeps.environment import differences, installed_here, packages_here
from ctxkernel.sweeps.sweep_plan import SweepPlan, SweepTask, SweptCell, digest, make_plan
from ctxkernel.sweeps.sweep_table import MARK as TABLE
from ctxkernel.sweeps.sweep_table import SweepRow, SweepTable

_SHARE = 0.8
"""The part of the free memory that the kernels of the workers may take together."""


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
        keep_mark: Callable[[str, str, Any], None],
    ) -> None:
        if is_worker():
            raise BadCommand("a cell of a sweep cannot sweep: its kernel is that of a worker")
        self._loop, self._store = loop, store
        self._checkpoints, self._interrupts = checkpoints, interrupts
        self._back: Returning = checkpoints.needed()
        self._notebook = notebook
        self._keep_mark = keep_mark

    def plan(self, request: SweepRequest) -> tuple[SweepPlan, list[SweptCell]]:
        """Return all tasks, and the cells that follow on the statement. Raises CtxError."""
        self._checkpoints.wait_for_all()
        target = self._back.target(request.start)
        self._back.health.check(target.execution_id)
        place = target.execution_id
        swept = {subject for (subject, mark) in self._marks() if mark == TABLE}
        cells = swept_cells(self._back, self._loop, place, request.until, Path(self._notebook), swept)
        if not cells:
            raise BadCommand(f"no cell follows on {target.told}: a sweep runs the cells after the statement of --from")
        root = digest(self._store.session_id, place, installed_here())
        defined = [name for name in self._back.checkpoints.state(place) if is_variable(name)]
        plan = make_plan(
            cells, request.combinations, place=place, root=root, collected=request.collect, defined=defined
        )
        return plan, cells

    def remaining(self, request: SweepRequest) -> tuple[SweepPlan, list[SweptCell]]:
        """Return what `run` would run: the plan without the tasks that an earlier sweep has done. Raises CtxError."""
        plan, cells = self.plan(request)
        states = self._states(request, plan)
        todo = states.remaining(plan.tasks, request.collect)
        run, shared = states.table.cells_run, states.table.cells_shared
        seconds = sum(task.seconds for task in todo)
        return replace(plan, tasks=todo, cells_run=run, cells_shared=shared, seconds=seconds), cells

    def _states(self, request: SweepRequest, plan: SweepPlan) -> TaskStates:
        """Return the table of a plan, and the tasks that an earlier sweep has done."""
        table = SweepTable([SweepRow(dict(one)) for one in plan.combinations])
        table.cells_run, table.cells_shared, table.tasks = plan.cells_run, plan.cells_shared, len(plan.tasks)
        states = TaskStates(self._loop, self._back.checkpoints, table)
        if not request.again:
            recall_tasks(plan, states, self._marks(), self._loop, self._back, request.collect)
        return states

    def run(self, request: SweepRequest, tell: Tell) -> SweepTable:
        """Run a sweep and return its table. Raises CtxError if it cannot begin."""
        began = time.monotonic()
        plan, cells = self.plan(request)
        states = self._states(request, plan)
        table = states.table
        todo = states.remaining(plan.tasks, request.collect)
        if todo:
            self._run_tasks(request, plan, cells, todo, states, tell)
        table.seconds = time.monotonic() - began
        table.notes += plan.notes
        if absent := [name for name in table.absent(request.collect) if name not in plan.absent]:
            table.notes.append(f"no combination has a value of {join_names(absent, 5)}: see --collect")
        if clashes := states.written_twice():
            table.notes.append(
                f"several combinations wrote {', '.join(clashes[:5])}: a combination may have read what another one "
                "wrote, and which content is there now depends on chance; write a parameter into the name of the file"
            )
        running = self._loop.opened
        if running is not None:
            self._keep_mark(running.execution.execution_id, TABLE, table.to_mark())
        return table

    def _marks(self) -> Mapping[tuple[str, str], Any]:
        """Return the marks of the session; none if it is in memory only."""
        if self._store.path is None:
            return {}
        with SessionReader(self._store.path) as reader:
            return reader.marks()

    def _run_tasks(
        self,
        request: SweepRequest,
        plan: SweepPlan,
        cells: Sequence[SweptCell],
        todo: Sequence[SweepTask],
        states: TaskStates,
        tell: Tell,
    ) -> None:
        key = self._key()
        store, chunks = self._store_of(request)
        workers = request.workers or max(1, min(os.cpu_count() or 1, sum(1 for one in todo if one.rows) or 1))
        memory = int(request.memory * 1e9) or _free_memory() // workers
        context = MessageContext(
            self._store.session_id, self._notebook, self._back, self._loop, _needed(cells, request), key, chunks, memory
        )
        messages = Messages(context, plan, request, store)
        # States have the changes of the environment since the kernel started; later changes are not theirs.
        variables = ENVIRONMENT.for_child()
        driver = DriverClient(scheduler=request.scheduler, workers=workers, memory=memory, key=key, variables=variables)
        branches = Branches(self._loop, self._store, self._back)
        loop = TaskLoop(driver, messages, branches, states, self._interrupts, tell)
        finished = False
        try:
            if request.scheduler is not None:
                _compare_environments(driver, store)
            loop.run(todo)
            finished = True
        except KeyboardInterrupt:
            states.table.notes.append(
                "stopped; run the same sweep again to continue: those that are done do not run again"
            )
        finally:
            with loop.protected():
                states.table.cells_run = loop.cells_run
                states.cancel_rest()
                driver.close()
                if finished and request.store is None:
                    shutil.rmtree(store.url, ignore_errors=True)  # its results are in the timeline

    def _key(self) -> bytes:
        """Return the key that signs the messages of this session's sweeps."""
        signature = signatures.signer().sign("sweep", self._store.session_id)
        return bytes.fromhex(signature) if signature else hashlib.sha256(os.urandom(32)).digest()

    def _store_of(self, request: SweepRequest) -> tuple[RemoteFiles, str | None]:
        """Return the store, and the folder of the data where workers share it."""
        name = folder_name(self._store.session_id)
        if request.store is not None:
            return RemoteFiles(f"{request.store.rstrip('/')}/ctxkernel-{name}"), None
        folder = quota.root_folder(os.environ).parent / "sweeps" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return RemoteFiles(str(folder)), str(self._back.chunks.folder)


def _needed(cells: Sequence[SweptCell], request: SweepRequest) -> frozenset[str] | None:
    """Return the variables that the cells may use; None for all."""
    names = {*request.collect, *request.combinations[0]}
    for cell in cells:
        if cell.reads is None:
            return None
        names |= cell.reads
    return frozenset(names)


def _compare_environments(driver: DriverClient, store: RemoteFiles) -> None:
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


def _free_memory() -> int:
    """Return the memory that the kernels of all workers may take together, in bytes; 0 if it is not known."""
    free = free_memory()
    return int(free * _SHARE) if free else 0
