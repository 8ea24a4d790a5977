"""Statements of the log that run again after a return, each as a turn of its own, compared with what ran before.

Rule 1: the source is that of the log, in the same cell. Commands, and statements that only moved HEAD, are skipped.
Rule 2: the output goes to the log, not into the notebook; the table at the end says what differs.
Rule 3: the re-run stops at a new error and at an interrupt. The table says so, and HEAD is the last statement that ran.
Rule 4: between two cells it waits for the background, as a person does who reads: else cells in quick succession would
        show handles of which less is known than in the first run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable

from ctxkernel.core.replay import Comparison
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.timeline_table import gist
from ctxkernel.core.value_difference import ValueDifference
from ctxkernel.kernel.display.progress import ProgressLine
from ctxkernel.kernel.execution.cell import CellRequest, ExecuteReply
from ctxkernel.kernel.returning.targets import ReturnJob
from ctxkernel.kernel.turn.turns import Turns

_PREPARED_SECONDS = 5.0
"""A re-run waits so long, for all its cells together, for what the background finds in the targets of handles."""
FEW = 3
"""Fewer cells than these have no line that tells the progress."""
Execute = Callable[[CellRequest], Awaitable[ExecuteReply]]


class Replay:
    """Statements that run again after a return."""

    def __init__(self, turns: Turns, job: ReturnJob) -> None:
        self._turns = turns
        self._job = job
        back = turns.checkpoints.returning
        assert back is not None
        self._facts = back.facts
        self._comparisons: list[Comparison] = []
        self._skipped: list[tuple[Statement, str]] = []
        self._stopped = ""
        self._patience = _PREPARED_SECONDS

    async def carry_out(self, execute: Execute, outer: CellRequest, reply: ExecuteReply) -> ExecuteReply:
        """Run the statements in order, show the table, and return the reply of the cell that asked for it."""
        runs = self._job.statements
        line = ProgressLine(self._turns.notices, hidden=self._job.as_json or len(runs) < FEW)
        for number, (statement, before) in enumerate(runs, 1):
            if self._facts.asks(statement) and not self._job.confirmed:
                # Later statements may need this one, so the re-run ends here.
                ids = [run.execution_id for _, run in runs]
                told = f"%ctx rerun {ids[0]}..{ids[-1]} --yes runs all of them"
                self._stopped = f"stopped before {statement.statement_id}, which is marked as one that asks ({told})"
                break
            if why := self._facts.why_skipped(statement):
                self._skipped.append((statement, why))
                continue
            source = gist(statement.source, 60)
            line.show(f"running {statement.statement_id} again ({number} of {len(runs)}): {source}")
            inner = await self._run(execute, outer, statement, before)
            if inner.get("status") != "ok" and (before.ended_well or inner.get("ename") == "KeyboardInterrupt"):
                said = ": ".join(str(part) for part in (inner.get("ename"), inner.get("evalue")) if part)
                self._stopped = f"stopped at {statement.statement_id}: {said}"
                reply = inner
                break
        line.end()  # the table replaces it
        self._tell()
        return reply

    async def _run(self, execute: Execute, outer: CellRequest, statement: Statement, before: Execution) -> ExecuteReply:
        """Run a statement again. For an ask or a response, repeat the recorded events; no model is asked."""
        from ctxkernel.agent.rerun import is_speech, observed_again, said_again

        cell = CellRequest(
            statement.source,
            outer.msg_id,
            outer.silent,
            recorded=True,
            cell_id=statement.cell_id,
            kind=statement.kind,
            author=statement.author,
            tags=dict(statement.tags),
            rerun_of=statement,
            against=before.execution_id,
        )
        turns = self._turns
        records = tuple(turns.loop.log.records.get(before.execution_id, ()))
        if is_speech(records) or (statement.kind == "meta" and statement.author == "model"):
            cell.observe = lambda execution: said_again(records, execution.execution_id)
            turns.open(cell)
            turns.shut({"status": "ok"})
            return {"status": "ok"}
        if records and statement.author == "model":
            cell.observe = lambda execution: observed_again(records, execution, statement.source)
        self._wait_for_background()
        reply = await execute(cell)
        if turns.last is not None and turns.last.comparison is not None:
            self._comparisons.append(turns.last.comparison)
        return reply

    def _wait_for_background(self) -> None:
        preparer, began = self._turns.loop.preparer, time.monotonic()
        if preparer is not None and self._patience > 0:
            preparer.wait(self._patience)
            self._patience -= time.monotonic() - began

    def _tell(self) -> None:
        from ctxkernel.kernel.display.reports import rerun_report
        from ctxkernel.replay.divergence import to_json

        head, comparisons = self._turns.loop.log.head, self._comparisons
        if self._job.as_json:
            told = {
                "head": head,
                "comparisons": to_json(comparisons),
                "skipped": [{"statement_id": one.statement_id, "reason": why} for one, why in self._skipped],
                "stopped": self._stopped or None,
            }
            self._turns.notices.write(json.dumps(told, indent=1) + "\n")
            return
        lines = [f"{one.statement_id} was not run again: {why}" for one, why in self._skipped]
        if self._stopped:
            left = len(self._job.statements) - len(comparisons) - len(self._skipped)
            lines.append(f"{self._stopped}; {left} not run. The state is that after {head}.")
        differ = sum(not one.same and not one.expected for one in comparisons)
        ran = len(comparisons)
        lines.append(f"{ran} run again: {ran - differ} as before, {differ} different · HEAD is {head}")
        if comparisons:
            self._turns.notices.report(rerun_report(comparisons, self._turns.loop.log, self._outputs))
        self._turns.notices.write("\n".join(lines) + "\n")

    def _outputs(self, comparison: Comparison) -> Iterable[ValueDifference]:
        """Return the outputs of a re-run that differ."""
        from ctxkernel.kernel.returning.value_differences import outputs_of

        log = self._turns.loop.log
        return outputs_of(comparison, log.execution(comparison.against), log.execution(comparison.execution_id))
