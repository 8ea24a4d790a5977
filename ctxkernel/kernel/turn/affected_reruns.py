"""Cells that run again after a return because a change affects them; all others keep their results.

Rule 1: whether a cell runs is decided directly before it, in the state after the cells above it.
Rule 2: a cell that is kept is an execution like any other: its changes and outputs are those of the earlier one.
Rule 3: as in `reruns`: output goes to the log, and the re-run stops at an error that was not there before.
"""

from __future__ import annotations

import json
from typing import Any

from ctxkernel.core.cell_tags import kind_of
from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import format_duration, plural
from ctxkernel.core.timeline_table import gist
from ctxkernel.kernel.display.progress import ProgressLine
from ctxkernel.kernel.execution.cell import CellRequest, ExecuteReply, asks
from ctxkernel.kernel.execution.guard import line_of
from ctxkernel.kernel.returning.affected_notebook import is_command
from ctxkernel.kernel.returning.affected_planner import AffectedPlanner
from ctxkernel.kernel.returning.targets import ReturnJob
from ctxkernel.kernel.turn.reruns import FEW, Execute, Replay
from ctxkernel.kernel.turn.turns import Turns
from ctxkernel.replay.affected import CellDecision, NotebookCell


@dataclass(slots=True)
class _Done:
    """The outcomes of the cells, by their positions."""

    ran: list[int] = field(default_factory=list[int])
    kept: list[int] = field(default_factory=list[int])
    opaque: list[int] = field(default_factory=list[int])
    why: dict[int, str] = field(default_factory=dict[int, str])
    executions: dict[int, str] = field(default_factory=dict[int, str])
    saved: float = 0.0
    """The time that the kept cells took when they ran, in seconds."""


class AffectedReplay(Replay):
    """The affected cells of a notebook, run again after a return."""

    def __init__(self, turns: Turns, job: ReturnJob) -> None:
        super().__init__(turns, job)
        assert job.affected is not None
        self._found = job.affected
        back = turns.checkpoints.returning
        assert back is not None
        self._back = back
        self._planner = AffectedPlanner(back, files=back.reads)
        self._done = _Done()

    async def carry_out(self, execute: Execute, outer: CellRequest, reply: ExecuteReply) -> ExecuteReply:
        """Run or keep the cells in order, show the result, and return the reply of the cell that asked for it."""
        found = self._found
        line = ProgressLine(self._turns.notices, hidden=len(found.cells) - found.first < FEW)
        for at, cell in enumerate(found.cells):
            if at < found.first or is_command(cell):
                self._keep_above(at)
                continue
            self._turns.checkpoints.wait_for_all()
            unknown = CellDecision("run", ("what it reads could not be compared",))
            decision = self._turns.guard("affected cells", self._planner.decide, unknown, found, cell)
            if decision.action == "keep":
                if self._keep(outer, at, cell, decision):
                    continue
                if self._stopped:
                    reply = self._turns.notices.refuse(self._stopped)
                    break
                decision = CellDecision("run", ("its result could not be loaded",), decision.run)
            if why := self._why_stopped(cell, decision):
                self._stopped = why
                break
            line.show(f"running cell {at + 1} of {len(found.cells)}: {gist(cell.source, 60)}")
            inner = await self._run_cell(execute, outer, at, cell, decision)
            if inner.get("status") != "ok" and not self._may_fail(cell, inner):
                said = ": ".join(str(part) for part in (inner.get("ename"), inner.get("evalue")) if part)
                self._stopped = f"stopped at cell {at + 1}: {said}"
                reply = inner
                break
        ended = len(self._done.ran) + len(self._done.opaque) + len(self._done.kept)
        self._back.left_over = found.cells[ended:]
        line.end()
        self._tell_affected()
        return reply

    def _keep_above(self, at: int) -> None:
        run = self._found.matched[at] if at < self._found.first else None
        self._done.kept.append(at)
        if run is not None:
            self._done.executions[at] = run.execution_id
            self._done.saved += run.seconds

    def _why_stopped(self, cell: NotebookCell, decision: CellDecision) -> str:
        """Return why the re-run ends before a cell that is to run; empty if it does not."""
        statement = self._found.newest[cell.cell][0] if cell.cell in self._found.newest else None
        if statement is not None and statement.source == cell.source and statement.tags.get("masked"):
            return f"stopped before {statement.statement_id}: {self._facts.why_skipped(statement)}"
        ask = self._turns.configuration.settings.opaque_cells == "ask" and not self._job.confirmed
        if ask and decision.action == "opaque":
            source = gist(cell.source, 60)
            return f"stopped before a cell that is opaque: {decision.why[0]} (--yes runs it): {source}"
        waits = cell.tags.get("asks") is True or (statement is not None and self._facts.asks(statement))
        if (waits or asks(cell.source)) and not self._job.confirmed:
            told = "asks a model" if asks(cell.source) else "is marked as one that asks"
            return f"stopped before a cell that {told} (--yes runs it): {gist(cell.source, 60)}"
        return ""

    def _may_fail(self, cell: NotebookCell, inner: ExecuteReply) -> bool:
        if inner.get("ename") == "KeyboardInterrupt":
            return False
        known = self._found.newest.get(cell.cell)
        return cell.may_fail or (known is not None and known[0].source == cell.source and not known[1].ended_well)

    def _request(self, outer: CellRequest, cell: NotebookCell, **more: Any) -> CellRequest:
        cell_id = None if self._turns.loop.log.get(cell.cell) is not None or cell.cell.startswith("#") else cell.cell
        made = CellRequest(cell.source, outer.msg_id, outer.silent, True, cell_id, only_logged=True, **more)
        made.tags = {key: value for key, value in cell.tags.items() if key in ("differs", "asks", "cell_tags")}
        made.kind = "meta" if asks(cell.source) else kind_of(cell.tags.get("cell_tags", ()))
        return made

    async def _run_cell(
        self, execute: Execute, outer: CellRequest, at: int, cell: NotebookCell, decision: CellDecision
    ) -> ExecuteReply:
        before = decision.run.execution_id if decision.run is not None else None
        if before is None and cell.cell in self._found.newest:
            before = self._found.newest[cell.cell][1].execution_id
        request = self._request(outer, cell)
        if before is not None:
            log = self._turns.loop.log
            request.rerun_of, request.against = log.statement(log.execution(before).statement_id), before
        self._wait_for_background()
        reply = await execute(request)
        last, done = self._turns.last, self._done
        if (then := self._turns.take_then()) is not None:  # it asks a model
            reply = await then.carry_out(execute, request, reply)
        if last is not None:
            done.executions[at] = last.execution.execution_id
            if last.comparison is not None:
                self._comparisons.append(last.comparison)
        (done.opaque if decision.action == "opaque" else done.ran).append(at)
        done.why[at] = "; ".join(decision.why)
        return reply

    def _keep(self, outer: CellRequest, at: int, cell: NotebookCell, decision: CellDecision) -> bool:
        """Take the result of an execution in place of running a cell; return whether that was possible.

        If it failed on its way, the state is not known, and the re-run stops.
        """
        run, kept = decision.run, self._back.kept
        assert run is not None
        fetched = kept.fetch(run, decision.renames)
        if fetched is None:
            return False
        turns, log = self._turns, self._turns.loop.log
        execution = log.execution(run.execution_id)
        request = self._request(outer, cell, kept=execution)
        request.rerun_of = log.statement(execution.statement_id)
        reply: ExecuteReply = {"status": "ok"}
        turns.open(request)
        try:
            kept.take(fetched, run, execution)
        except BaseException as fault:  # an internal fault, or one of a user's object
            why = turns.loop.blind = f"the result of {run.execution_id} could not be put in place ({line_of(fault)})"
            turns.loop.suspect(why)
            self._stopped = f"stopped at cell {at + 1}: {why}"
            reply = {"status": "error", "ename": "CtxError", "evalue": why, "traceback": [why]}
        turns.shut(reply)
        if self._stopped:
            return False
        if turns.last is not None:
            self._done.executions[at] = turns.last.execution.execution_id
        self._done.kept.append(at)
        self._done.saved += run.seconds
        return True

    def _tell_affected(self) -> None:
        from ctxkernel.kernel.display.reports import rerun_report

        head, done = self._turns.loop.log.head, self._done
        if self._job.as_json:
            told = {
                "head": head,
                "ran": done.ran,
                "kept": done.kept,
                "opaque": done.opaque,
                "why": {str(at): why for at, why in sorted(done.why.items())},
                "executions": {str(at): one for at, one in sorted(done.executions.items())},
                "seconds_saved": round(done.saved, 3),
                "stopped": self._stopped or None,
            }
            self._turns.notices.write(json.dumps(told, indent=1) + "\n")
            return
        lines = [
            f"cell {at + 1} ran: {why}" + (" (opaque)" if at in done.opaque else "")
            for at, why in sorted(done.why.items())
        ]
        if self._stopped:
            left = len(self._found.cells) - len(done.ran) - len(done.opaque) - len(done.kept)
            lines.append(f"{self._stopped}; {left} not run. The state is that after {head}.")
        ran = len(done.ran) + len(done.opaque)
        lines.append(
            f"{plural(ran, 'cells')} ran, {len(done.kept)} kept ({format_duration(done.saved)} saved) · HEAD is {head}"
        )
        if self._comparisons:
            self._turns.notices.report(rerun_report(self._comparisons, self._turns.loop.log, self._outputs))
        self._turns.notices.write("\n".join([*lines, *self._found.notes]) + "\n")
