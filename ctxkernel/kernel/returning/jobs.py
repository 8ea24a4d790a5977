"""The jobs of commands that move HEAD: where a command goes, and what runs again afterwards."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.kernel.returning.targets import Job, Target

if TYPE_CHECKING:
    from ctxkernel.kernel.returning.returns import Returning
    from ctxkernel.kernel.runtime import Runtime


def checkpoints_of(ctx: Runtime) -> Returning:
    """Return the checkpoints of a kernel. Raises BadCommand if they are off."""
    if ctx.returning is None or "checkpoints" in ctx.guard.off:
        why = ctx.guard.off.get("checkpoints", "this kernel has none")
        raise BadCommand(
            f"checkpoints are off ({why}); restart the kernel, then %ctx status says whether they are back"
        )
    return ctx.returning


def job_of(
    ctx: Runtime,
    action: str,
    target: str,
    *,
    before: bool = False,
    upto: str | None = None,
    flags: Collection[str] = (),
) -> Job:
    """Return the job of a command: `goto` and `rerun` of a place, `undo` of so many steps. Raises CtxError."""
    back = checkpoints_of(ctx)
    as_json, confirmed = "--json" in flags, "--yes" in flags
    if action == "goto":
        where = back.target(target, before=before)
        ctx.health.check(where.execution_id)
        return Job("goto", where, back.difference(where), as_json=as_json)
    if action == "undo":
        if target and (not target.isdecimal() or int(target) < 1):
            raise BadCommand(f"%ctx undo {target}: how many steps? Use one whole number from 1")
        where, at = back.undone(int(target or 1))
        ctx.health.check(where.execution_id)
        return Job("undo", where, back.difference(where), at=at, as_json=as_json)
    statements = _between(ctx, back, target, upto or "")
    where = Target(statements[0][1].parent_execution_id, f"before {statements[0][0].statement_id}")
    ctx.health.check(where.execution_id)
    return Job("rerun", where, back.difference(where), tuple(statements), as_json=as_json, confirmed=confirmed)


def _between(ctx: Runtime, back: Returning, first: str, last: str) -> list[tuple[Statement, Execution]]:
    """Return the statements from `first` to `last`, or to the end of the longest branch that `first` is on."""
    start, stop = back.target(first), back.target(last) if last else None
    if start.execution_id is None:
        raise BadCommand("%ctx rerun 0: statements begin at 1")
    running = ctx.turns.running.execution.execution_id if ctx.turns.running is not None else None
    found: list[tuple[Statement, Execution]] = []
    for branch in ctx.loop.log.branches():
        path = [(s, e) for s, e in ctx.loop.log.path(branch.leaf) if e.execution_id != running]
        at = place_in(path, start.execution_id, exact="." in first)
        end = len(path) if stop is None else place_in(path, stop.execution_id, exact="." in last) + 1
        # The newest branch comes last; a re-run that was stopped early is shorter than what it re-ran.
        if at >= 0 and end > at and (end - at >= len(found) or stop is not None):
            found = path[at:end]
    if not found:
        raise BadCommand(f"%ctx rerun {first}..{last}: {last} does not come after {first} on one branch")
    return found


def place_in(path: Sequence[tuple[Statement, Execution]], execution_id: str | None, *, exact: bool) -> int:
    """Return where an execution (or where it need not be `exact`, another one of its statement) stands; else -1."""
    wanted = (execution_id or "").rpartition(".")[0]
    for at, (statement, execution) in enumerate(path):
        if execution.execution_id == execution_id or (not exact and statement.statement_id == wanted):
            return at
    return -1
