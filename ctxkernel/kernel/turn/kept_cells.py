"""A cell that takes the result of an earlier execution instead of running.

    affected   a cell of a stepwise re-run of the affected cells: the front end sends them one by one
    recalled   any cell, where the setting `recall` is on: its text and inputs equal those of an execution in the tree

Rule 1: a result is taken only if it is proven equal. The turn of the cell is open by then, so changes outside of cells
        are known.
Rule 2: if a fault occurs before anything was changed, the cell runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkernel.core.text import format_duration
from ctxkernel.kernel.execution.cell import CellRequest, ExecuteReply
from ctxkernel.kernel.execution.guard import line_of
from ctxkernel.kernel.returning.live_state import LiveState
from ctxkernel.kernel.turn.turns import Turns

if TYPE_CHECKING:
    from ctxkernel.core.timeline import Execution
    from ctxkernel.kernel.returning.returns import Returning
    from ctxkernel.replay.affected import CellDecision, RecordedRun

MOST_RUNS = 5
"""The most executions of one text that are compared, newest first."""


class KeptCells:
    """Answers cells with the results of earlier executions."""

    def __init__(self, turns: Turns, kernel: Any) -> None:
        self._turns = turns
        self._kernel = kernel

    def reply(self, cell: CellRequest) -> ExecuteReply | None:
        """Return the reply of a cell that takes an earlier result; None: it runs."""
        recall = self._turns.configuration.settings.recall and cell.author == "human" and not cell.rerun
        back = self._turns.checkpoints.returning
        if back is None or not (cell.affected or recall) or cell.kind == "meta":
            return None
        found = self._turns.guard("kept cells", self._find, None, back, cell)
        if found is None or found.run is None:
            return None
        return self._take(back, cell, found)

    def _find(self, back: Returning, cell: CellRequest) -> CellDecision | None:
        from ctxkernel.kernel.returning.affected_notebook import is_command
        from ctxkernel.kernel.returning.affected_planner import AffectedPlanner
        from ctxkernel.replay.affected import NotebookCell

        asked = NotebookCell(cell.cell_id or "", cell.code, cell.tags)
        if is_command(asked):
            return None
        log, service = self._turns.loop.log, self._turns.checkpoints
        if cell.affected and service.stepwise is not None:
            service.stepwise.reach(asked)
        runs = [run for one in log if one.source == cell.code for run in log.executions(one.statement_id)]
        runs = [run for run in runs if run.status == "ok"]
        if not runs:
            return None
        service.wait_for_all()
        planner = AffectedPlanner(back, files=back.reads)
        if cell.affected:
            decision = planner.decide(service.stepwise, asked) if service.stepwise is not None else None
        else:
            newest = sorted(runs, key=lambda one: one.started_at, reverse=True)[:MOST_RUNS]
            recorded = (planner.recorded(log.path(run.execution_id))[-1] for run in newest)
            decision = planner.recall(recorded, list(self._turns.loop.history))
        return decision if decision is not None and decision.action == "keep" else None

    def _take(self, back: Returning, cell: CellRequest, decision: CellDecision) -> ExecuteReply | None:
        run, turns = decision.run, self._turns
        assert run is not None
        fetched = back.kept.fetch(run, decision.renames)
        if fetched is None:
            return None
        execution = turns.loop.log.execution(run.execution_id)
        try:
            back.kept.take(fetched, run, execution)
        except BaseException as fault:  # an internal fault, or one of a user's object
            why = turns.loop.blind = f"the result of {run.execution_id} could not be put in place ({line_of(fault)})"
            turns.loop.suspect(why)
            return turns.notices.refuse(why)
        cell.kept, cell.against = execution, ""
        cell.recalled = "" if cell.affected else format_duration(run.seconds)
        count = self._number(cell, run)
        self._show(cell, execution, count)
        if (opened := turns.loop.opened) is not None:
            turns.panel.marks.counts[opened.execution.execution_id] = count
        told = {"kept": run.execution_id, "seconds": round(run.seconds, 3)}
        return {"status": "ok", "execution_count": count, "user_expressions": {}, "payload": [], "ctxkernel": told}

    def _number(self, cell: CellRequest, run: RecordedRun) -> int:
        """Return the prompt number of an execution; the next one if an earlier kernel gave it and it has no result."""
        if known := self._turns.panel.marks.counts.get(run.execution_id):
            return known
        if results := LiveState.result_numbers(run.effects):
            return results[-1]
        shell = self._kernel.shell
        number: int = shell.execution_count
        shell.history_manager.store_inputs(number, cell.code, cell.code)
        shell.execution_count += 1
        return number

    def _show(self, cell: CellRequest, execution: Execution, count: int) -> None:
        """Show the outputs of the execution in the cell."""
        from ctxkernel.replay.notebook_outputs import output_messages

        turns, kernel = self._turns, self._kernel
        if not cell.affected:
            turns.notices.tell(f"recalled from {execution.execution_id}, not run: {cell.recalled} saved")
        with turns.capture.ours():
            for kind, content in output_messages(execution, count):
                kernel.send_response(kernel.iopub_socket, kind, content)
