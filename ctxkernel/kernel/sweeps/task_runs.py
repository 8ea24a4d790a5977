"""The cells of a task of a sweep, in the kernel of a worker.

    the path to the state that it begins with → that state → the cells, each a turn → records, and the values asked for

Rule 1: only a kernel that was started for a worker does this, and only with a file that has the signature of its sweep.
Rule 2: the log of this kernel is that of one task; nothing of it is kept. What counts is what the timeline takes in.
Rule 3: a cell that fails ends the task; its record is the last one. A fault of ours is told in place of records.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.replay import CheckpointInfo, Restored
from ctxkernel.core.state_names import AMBIENT, MODULE
from ctxkernel.core.timeline import Execution, Statement, StatementLog
from ctxkernel.core.timeline_events import plain
from ctxkernel.core.typed_json import read_json
from ctxkernel.kernel.execution.cell import CellRequest, ExecuteReply, asks
from ctxkernel.kernel.execution.guard import line_of
from ctxkernel.kernel.returning.targets import ReturnJob, Target
from ctxkernel.kernel.sweeps.collected_values import collect
from ctxkernel.kernel.sweeps.run_records import RunRecord, manifest_of
from ctxkernel.kernel.turn.reruns import Execute
from ctxkernel.kernel.turn.turns import Turns
from ctxkernel.sweeps.seal import seal, unseal
from ctxkernel.sweeps.worker import FOLDER, SECRET

_FIRST = 10**12
"""The statements of tasks have numbers from here on, which no timeline has."""


class TaskRun:
    """One task."""

    count = 0
    """Statements of the tasks that this kernel ran."""
    roots: ClassVar[dict[str, str]] = {}
    """Execution → the name of the manifest of its state."""

    def __init__(self, turns: Turns, path: str) -> None:
        folder, key = os.environ.get(FOLDER), os.environ.get(SECRET)
        if not folder or not key or Path(path).parent != Path(folder):
            raise BadCommand("only the kernel of a sweep's worker runs a task")
        self._turns, self._loop = turns, turns.loop
        self._path, self._key = Path(path), bytes.fromhex(key)
        self._back = turns.checkpoints.needed()
        if not TaskRun.count:
            turns.store.stop()
            turns.loop.projects = False

    async def carry_out(self, execute: Execute, outer: CellRequest, reply: ExecuteReply) -> ExecuteReply:
        """Run the task, and write its result beside its file."""
        try:
            told = await self._result(execute, outer)
        except CtxError as fault:
            told = {"fault": str(fault)}
        except Exception as fault:  # an internal fault, or one of a user's object that was loaded
            told = {"fault": line_of(fault)}
        sealed = seal(self._key, f"done {self._path.name}", told)
        self._path.with_suffix(".done").write_bytes(sealed)
        return reply

    async def _result(self, execute: Execute, outer: CellRequest) -> dict[str, Any]:
        task = unseal(self._key, f"run {self._path.name}", self._path.read_bytes())
        restored = self._go_to(task)
        masker = self._turns.secrets.masker
        records: list[RunRecord] = []
        wrote = set[str]()
        failed = ""
        for cell in task["cells"]:
            record = await self._run(execute, outer, cell)
            records.append(record)
            # A scan of the folder finds the files of other workers, too.
            own = self._back.reads.opened_to_write
            files = (one.name for one in record.execution.artifacts if one.kind == "file")
            wrote.update(name for name in files if os.path.realpath(name) in own)
            if record.execution.status != "ok" and not cell["may_fail"]:
                failed = record.execution.status
                break
        self._turns.checkpoints.wait_for_all()
        collected: dict[str, Any] = {}
        if not failed:
            collected = collect(task["collect"], self._back.live.value, masker)
        omitted = set(task.get("omitted", ()))
        facts = [self._back.facts.cells.get(one.execution.execution_id) for one in records]
        unsure = omitted and any(
            one is None or one.beyond is None or omitted & (one.beyond | one.reads) for one in facts
        )
        return {
            "records": [self._complete(record).to_json() for record in records],
            "collected": collected,
            "wrote": sorted(wrote),
            "status": failed or "ok",
            "lost": {name: masker(why) for name, why in restored.lost.items()},
            "notices": [*map(masker, restored.notices)],
            "needs_all": bool(unsure),
        }

    # -- the state that it begins with --------------------------------------------------------------

    def _go_to(self, task: Mapping[str, Any]) -> Restored:
        """Make the state that the task begins with the present one; return what could not be restored, and why."""
        turns, loop, back = self._turns, self._loop, self._back
        turns.checkpoints.wait_for_all()
        back.chunks.refresh()
        if why := turns.activity.ran():
            loop.suspect(why)
            back.checkpoints.tracker.verify_next()
        path = [*task["path"]]
        log = StatementLog()
        known: dict[str, tuple[Statement, list[Execution]]] = {}
        for one in path:
            statement = read_json(Statement, one["statement"])
            run = Execution(**one["execution"])
            known.setdefault(statement.statement_id, (statement, []))[1].append(run)
            if one.get("manifest") is not None:
                self._take_in(run.execution_id, one["manifest"], root="" if one["manifest"]["base"] else task["root"])
        place = path[-1]["execution"]["execution_id"] if path else None
        log.start_after(_FIRST + TaskRun.count)
        log.load(known.values(), place)
        loop.log = log
        self._forget_living(place)
        difference = back.restorer.compare(place)
        lose = frozenset(difference.absent)
        job = ReturnJob("goto", Target(place, "the state of the task"), difference, as_json=True, lose=lose)
        prepared = back.prepare(job)
        # An import among the cells runs the file of its module, also after an earlier task that imported it.
        back.live.unload_modules([name for name in back.live.own_modules if MODULE + name not in difference.target])
        move, restored = back.commit(prepared)
        loop.move(move, restored)
        return restored

    def _forget_living(self, place: str | None) -> None:
        """Forget the objects of a state that are not stored: an earlier task may have used them."""
        checkpoints = self._back.checkpoints
        checkpoints.held.pop(place, None)
        for name, unit in checkpoints.state(place).items():
            for token in checkpoints.living(unit) if not name.startswith(AMBIENT) else ():
                checkpoints.shelf.pop(token, None)
                checkpoints.storage.packer.tokens.take_from(token)

    def _take_in(self, execution_id: str, manifest: Mapping[str, Any], root: str) -> None:
        """Take in the manifest of a state, unless it is known; `root` names that of the whole state, or of a part."""
        if execution_id in self._back.checkpoints.states.known and TaskRun.roots.get(execution_id, root) == root:
            return
        info = CheckpointInfo(f"c{execution_id}", execution_id, "durable")
        self._back.checkpoints.load(execution_id, manifest, info)
        if root:
            TaskRun.roots[execution_id] = root

    # -- its cells ----------------------------------------------------------------------------------

    async def _run(self, execute: Execute, outer: CellRequest, cell: Mapping[str, Any]) -> RunRecord:
        if asks(cell["source"]):
            raise CtxError("a cell that asks a model does not run in a sweep; the cells that the model wrote do")
        request = CellRequest(cell["source"], outer.msg_id, outer.silent, True, cell["cell_id"], only_logged=True)
        request.author, request.tags = cell["author"], dict(cell["tags"])
        await execute(request)
        TaskRun.count += 2  # one more for names that changed outside of the cell
        last = self._turns.last
        if last is None or last.statement.source != cell["source"]:
            raise CtxError(f"the turn of a cell was not recorded: {self._turns.guard.why('timeline') or 'it failed'}")
        execution = last.execution
        if last.outside is not None:
            raise CtxError("names changed outside of a cell (a thread, or a task): the result would be of no use")
        info = CheckpointInfo(f"c{execution.execution_id}", execution.execution_id, "skipped")
        return RunRecord(last.statement, execution, {}, info, cell["origin"])

    def _complete(self, record: RunRecord) -> RunRecord:
        """Return a record with its checkpoint, after all data were written."""
        execution_id = record.execution.execution_id
        checkpoints = self._back.checkpoints
        info = self._back.health.info(execution_id)
        if info is None or info.state not in ("durable", "writing"):
            why = info.reason if info is not None else "no checkpoint was taken"
            raise CtxError(f"the state after a cell could not be kept: {why}")
        manifest = manifest_of(checkpoints, execution_id) | self._back.facts.to_manifest(execution_id)
        execution = self._loop.log.execution(execution_id)
        return replace(record, execution=execution, manifest=manifest, info=replace(info, state="durable"))


def path_json(statement: Statement, execution: Execution, manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an execution on the way to the state that a task begins with, without its outputs."""
    about = {
        "execution_id": execution.execution_id,
        "statement_id": execution.statement_id,
        "parent_execution_id": execution.parent_execution_id,
        "started_at": execution.started_at,
        "ended_at": execution.ended_at,
        "status": execution.status,
    }
    return {"statement": plain(statement), "execution": about, "manifest": manifest}


def is_worker() -> bool:
    """Return whether this kernel is that of a sweep's worker."""
    return bool(os.environ.get(FOLDER) and os.environ.get(SECRET))
