"""Runs statements of the log again, each as a turn of its own, and says what came out differently.

Rule 1: no nested statements: the cell that asked for it has ended before the first one runs.
Rule 2: what a re-run shows goes into the log, not into the notebook; the table at the end says what differs.
Rule 3: it stops at an error that was not there before, and where it is interrupted: the state is that after the last
        statement that ran, HEAD is there, and the table says so.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from ctxkernel.agent.rerun import is_speech, observed_again, said_again
from ctxkernel.core.events import plain
from ctxkernel.core.replay import Comparison
from ctxkernel.core.text import format_table, one_line
from ctxkernel.core.timeline import Statement
from ctxkernel.replay.divergence import table

if TYPE_CHECKING:
    from ctxkernel.kernel.returning.returns import Job
    from ctxkernel.kernel.runtime import Runtime
    from ctxkernel.kernel.turn.cell import CellRequest

Execute = Callable[["CellRequest"], Awaitable[dict[str, Any]]]


class Replay:
    """Statements that run again after a return."""

    def __init__(self, ctx: Runtime, job: Job) -> None:
        assert ctx.returning is not None
        self._ctx = ctx
        self._back = ctx.returning
        self._job = job
        self.comparisons: list[Comparison] = []
        self.skipped: list[tuple[Statement, str]] = []
        self.stopped = ""

    async def carry_out(self, execute: Execute, outer: CellRequest, reply: dict[str, Any]) -> dict[str, Any]:
        """Run them in order; show the table; return the reply of the cell that asked for it."""
        from ctxkernel.kernel.turn.cell import CellRequest

        progress = _Progress(self._ctx, len(self._job.statements), silent=self._job.as_json)
        for number, (statement, before) in enumerate(self._job.statements, 1):
            if self._back.asks(statement) and not self._job.confirmed:
                # What comes after it may need it, so this is where it ends.
                first, last = self._job.statements[0][1], self._job.statements[-1][1]
                told = f"%ctx rerun {first.execution_id}..{last.execution_id} --yes runs all of them"
                self.stopped = f"stopped before {statement.statement_id}, which is marked as one that asks ({told})"
                break
            why = self._back.why_skipped(statement)
            if why:
                self.skipped.append((statement, why))
                continue
            progress.show(number, statement)
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
            records = tuple(self._ctx.loop.log.records.get(before.execution_id, ()))
            if is_speech(records) or (statement.kind == "meta" and statement.author == "model"):
                self._say_again(cell, records)
                continue
            if records and statement.author == "model":
                cell.observe = lambda execution, told=records: observed_again(told, execution)
            inner = await execute(cell)
            last = self._ctx.turns.last
            if last is not None and last.comparison is not None:
                self.comparisons.append(last.comparison)
            if inner.get("status") != "ok" and (before.status == "ok" or inner.get("ename") == "KeyboardInterrupt"):
                said = ": ".join(str(part) for part in (inner.get("ename"), inner.get("evalue")) if part)
                self.stopped = f"stopped at {statement.statement_id}: {said}"
                reply = inner
                break
        progress.close()
        with self._ctx.capture.ours():
            self._tell()
        return reply

    def _say_again(self, cell: CellRequest, records: Sequence[Any]) -> None:
        """Repeat what an ask or a response said; no model is asked."""
        ctx = self._ctx
        cell.observe = lambda execution: said_again(records, execution.execution_id)
        ctx.turns.open(cell)
        ctx.turns.shut({"status": "ok"}, False, None)

    def _tell(self) -> None:
        head = self._ctx.loop.log.head
        if self._job.as_json:
            told = {
                "head": head,
                "comparisons": [{**plain(one), "same": one.same} for one in self.comparisons],
                "skipped": [{"statement_id": one.statement_id, "reason": why} for one, why in self.skipped],
                "stopped": self.stopped or None,
            }
            self._ctx.notices.write(json.dumps(told, indent=1) + "\n")
            return
        lines = [format_table(table(self.comparisons))] if self.comparisons else []
        lines += [f"{one.statement_id} was not run again: {why}" for one, why in self.skipped]
        if self.stopped:
            left = len(self._job.statements) - len(self.comparisons) - len(self.skipped)
            lines.append(f"{self.stopped}; {left} not run. The state is that after {head}.")
        differ = sum(not one.same and not one.expected for one in self.comparisons)
        ran = len(self.comparisons)
        lines.append(f"{ran} run again: {ran - differ} as before, {differ} different · HEAD is {head}")
        self._ctx.notices.write("\n".join(lines) + "\n")


class _Progress:
    """One line that says where a long re-run is."""

    def __init__(self, ctx: Runtime, total: int, *, silent: bool) -> None:
        self._ctx = ctx
        self._total = total
        self._id = "" if silent or total < 3 else uuid.uuid4().hex
        self._shown = False

    def show(self, number: int, statement: Statement) -> None:
        """Say which statement runs now."""
        self._send(
            f"running {statement.statement_id} again ({number} of {self._total}): {one_line(statement.source, 60)}"
        )

    def close(self) -> None:
        """Take the line away: the table says it all."""
        if self._shown:
            self._send("")

    def _send(self, text: str) -> None:
        if not self._id:
            return
        kernel = self._ctx.kernel
        content = {"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": self._id}}
        with self._ctx.capture.ours():
            kind = "update_display_data" if self._shown else "display_data"
            kernel.send_response(kernel.iopub_socket, kind, content)
        self._shown = True
