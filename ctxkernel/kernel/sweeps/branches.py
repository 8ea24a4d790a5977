"""The branches of a sweep: executions of workers' kernels become executions of this timeline.

Rule 1: the records of a task are stored in one transaction, with the mark that the task is done; then they are taken
        into memory. A kill at any instant leaves all of a task or nothing.
Rule 2: HEAD, the variables and the history of the model stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ctxkernel.core.errors import CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.core.replay import equal_content
from ctxkernel.core.timeline import Execution
from ctxkernel.kernel.returning.returns import Returning
from ctxkernel.kernel.sweeps.run_records import RunRecord
from ctxkernel.store.chunks.manifest import CheckpointRow
from ctxkernel.store.log.session import SessionStore

MARK = "sweep"
"""The mark of the last execution of a task, with its key."""


class Branches:
    """Takes the results of tasks into the timeline of a kernel."""

    def __init__(self, loop: Loop, store: SessionStore, back: Returning) -> None:
        self._loop, self._store, self._back = loop, store, back

    def graft(self, parent: str | None, records: Sequence[RunRecord], done: Mapping[str, Any]) -> list[str]:
        """Add the executions of a task after `parent`; return their ids. Raises CtxError if they cannot be stored."""
        made = self._named(parent, records)
        self._back.chunks.refresh()
        missing = self._missing(made)
        if missing:
            raise CtxError(f"data of a branch are missing: {missing[0]}")
        rows = [(one.statement, one.execution, self._row(one)) for one in made]
        last = made[-1].execution.execution_id
        runs = [one.execution.execution_id for one in made]
        told = self._store.graft(rows, [(last, MARK, {**done, "runs": runs})], time.time())
        if told:
            raise CtxError(told)
        for one in made:
            self._loop.log.graft(one.statement, one.execution)
            self._take_in(one)
        return runs

    def mark(self, execution_id: str, done: Mapping[str, Any]) -> None:
        """Replace the mark of a task that is done."""
        self._store.mark(execution_id, MARK, dict(done), time.time())

    def _named(self, parent: str | None, records: Sequence[RunRecord]) -> list[RunRecord]:
        """Return the records with the ids that they have in this timeline."""
        log = self._loop.log
        index = log.next_index
        made: list[RunRecord] = []
        before = parent
        for one in records:
            known = log.get(one.origin) if one.origin else None
            if known is not None and known.source == one.statement.source:
                statement, execution_id = known, log.next_execution_id(known.statement_id)
            else:
                tags = {**one.statement.tags, **({"rerun_of": one.origin} if known is not None else {})}
                statement = replace(
                    one.statement,
                    statement_id=f"s{index}",
                    index=index,
                    parent_id=before.rpartition(".")[0] if before is not None else None,
                    tags=tags,
                )
                execution_id = f"s{index}.1"
                index += 1
            made.append(one.renamed(statement, execution_id, before))
            before = execution_id
        return made

    def _missing(self, records: Sequence[RunRecord]) -> list[str]:
        from ctxkernel.state.checkpoints.units import references

        read = self._back.chunks.read
        return self._back.chunks.missing(address for one in records for address in references(one.manifest, read))

    @staticmethod
    def _row(one: RunRecord) -> CheckpointRow:
        info = one.info
        return CheckpointRow(
            info.checkpoint_id, one.manifest, info.bytes_new, state="durable", reason=info.reason, time_ms=info.time_ms
        )

    def _take_in(self, one: RunRecord) -> None:
        execution_id = one.execution.execution_id
        self._back.checkpoints.load(execution_id, one.manifest, one.info)
        self._back.facts.take_in(execution_id, one.manifest)
        self._back.facts.swept.add(execution_id)

    def differs(self, one: RunRecord, against: str, parameters: Collection[str]) -> bool:
        """Return whether the result of a record differs from that of an execution of the same cell.

        The values of the parameters themselves do not count.
        """
        log, prints = self._loop.log, self._back.facts.fingerprints
        if against not in log:
            return False
        before, execution = log.execution(against), one.execution
        if execution.status != before.status or _shown(execution) != _shown(before):
            return True
        changes = execution.changes, before.changes
        names = [{*each.added, *each.changed}.difference(parameters) for each in changes]
        if names[0] != names[1] and not any(each.incomplete for each in changes):
            return True
        found: list[Mapping[str, str]] = [one.manifest.get("f", {}), prints.get(against, {})]
        return any(equal_content(*(each.get(name, "") for each in found)) is False for name in names[0])


def _shown(execution: Execution) -> tuple[Any, ...]:
    """Return what an execution showed, as it is compared."""
    from ctxkernel.replay.normalisation import normalise

    displays = tuple((one.mime, one.hash) for one in execution.artifacts if one.kind == "display")
    return normalise(execution.stdout), displays
