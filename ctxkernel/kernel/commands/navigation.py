"""The `%ctx` commands that return, re-run and compare: goto undo rerun branches checkpoint mark diff resume.

Rule 1: a command that moves HEAD only plans here (`CheckpointService.job`); it is carried out after the cell.
Rule 2: `--dry-run` shows the plan and changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.report import CellLink, Report, ReportTable
from ctxkernel.core.timeline_table import gist
from ctxkernel.kernel.commands.context import MARKS, CommandContext, split_flags
from ctxkernel.kernel.display.reports import differences_report, masked_differences, plan_parts
from ctxkernel.kernel.execution.cell import moves_head
from ctxkernel.kernel.returning.targets import ReturnJob, Target
from ctxkernel.replay.affected import NotebookCell

_RANGE = re.compile(r"(?P<first>.+?)\.\.(?P<last>.+)")


def _take_lose(args: Sequence[str]) -> tuple[frozenset[str], list[str]]:
    """Return the names after `--lose`, whose missing data may be lost, and the other arguments."""
    rest = list(args)
    names: list[str] = []
    for at in reversed(range(len(rest))):
        if rest[at].startswith("--lose="):
            names += rest.pop(at).removeprefix("--lose=").split(",")
        elif rest[at] == "--lose":
            if at + 1 >= len(rest):
                raise BadCommand("--lose NAMES: which names may be lost? Write them with commas")
            names += rest.pop(at + 1).split(",")
            rest.pop(at)
    return frozenset(filter(None, names)), rest


def _plan(
    ctx: CommandContext, job: ReturnJob, flags: Sequence[str], lose: frozenset[str] = frozenset()
) -> str | Report | None:
    """Have the kernel carry out a job after the cell; with `--dry-run` return its plan instead."""
    job.lose = lose
    if "--dry-run" in flags:
        from ctxkernel.kernel.returning.resume import missing

        plan, found = ctx.checkpoints.needed().plan(job), job.resumable
        lines = missing(found) if found is not None else []
        if "--json" in flags:
            return json.dumps({**plan.to_json(), "missing": lines}, indent=1)
        return Report(*lines, *plan_parts(plan, ctx.loop.log))
    running = ctx.turns.running
    if running is None or not moves_head(running.statement.source):
        raise BadCommand(f"%ctx {job.action} moves you to another state, so it needs a cell of its own")
    ctx.checkpoints.job = job
    return None


def goto(ctx: CommandContext, args: Sequence[str]) -> str | Report | None:
    """Return to the state after a statement, or before it."""
    lose, args = _take_lose(args)
    flags, rest = split_flags(args)
    if len(rest) != 1:
        raise BadCommand("%ctx goto N: after which statement? %ctx timeline lists them; 0 is before all of them")
    return _plan(
        ctx, ctx.checkpoints.needed().job("goto", rest[0], before="--before" in flags, flags=flags), flags, lose
    )


def undo(ctx: CommandContext, args: Sequence[str]) -> str | Report | None:
    """Return to where HEAD was before the last statements and returns."""
    lose, args = _take_lose(args)
    flags, rest = split_flags(args)
    if len(rest) > 1:
        raise BadCommand(f"%ctx undo {' '.join(rest)}: how many steps? Use one whole number from 1")
    return _plan(ctx, ctx.checkpoints.needed().job("undo", rest[0] if rest else "", flags=flags), flags, lose)


def rerun(ctx: CommandContext, args: Sequence[str]) -> str | Report | None:
    """Return to the state before a statement, and run it and later ones again."""
    lose, args = _take_lose(args)
    notebook, args = _take_notebook(args)
    flags, rest = split_flags(args)
    if "--affected" in flags:
        if rest:
            raise BadCommand(
                f"%ctx rerun --affected takes no statement, and not {rest[0]!r}: it begins at the first change"
            )
        return _rerun_affected(ctx, notebook, flags, lose)
    if len(rest) != 1:
        raise BadCommand("%ctx rerun N, or N..M: from which statement on? %ctx timeline lists them")
    match = _RANGE.fullmatch(rest[0])
    first, last = (match["first"], match["last"]) if match else (rest[0], "")
    return _plan(ctx, ctx.checkpoints.needed().job("rerun", first, upto=last, flags=flags), flags, lose)


def _take_notebook(args: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Return the file after `--notebook`, and the other arguments."""
    rest = list(args)
    if "--notebook" not in rest:
        return None, rest
    at = rest.index("--notebook")
    if at + 1 >= len(rest):
        raise BadCommand("--notebook FILE: which file has the cells?")
    rest.pop(at)
    return Path(rest.pop(at)), rest


def _rerun_affected(
    ctx: CommandContext, notebook: Path | None, flags: Sequence[str], lose: frozenset[str]
) -> str | Report | None:
    """Run the cells again that changes of the notebook affect: its cells as they ran last, or as its file has them."""
    from ctxkernel.kernel.returning.affected_notebook import cells_of_notebook, cells_of_page
    from ctxkernel.kernel.returning.affected_planner import AffectedPlanner

    back = ctx.checkpoints.needed()
    planner, as_ran = AffectedPlanner(back, files=back.reads), False
    if notebook is None and (told := cells_of_page(ctx.checkpoints.told)) is not None:
        chosen = told
    elif notebook is None:
        graph, log = ctx.panel.marks.current_graph(), ctx.loop.log
        statements = [log.statement(run.statement_id) for run in graph.in_order()]
        cells = [one for one in statements if one.author != "model"]  # an ask that runs again has its own
        chosen = [NotebookCell(one.cell_id or one.statement_id, one.source, one.tags) for one in cells]
        known = {one.cell for one in chosen}
        chosen += [one for one in back.left_over if one.cell not in known]
        as_ran = True
    else:
        chosen = cells_of_notebook(notebook)
    if "--dry-run" in flags and "--stepwise" in flags and (running := ctx.checkpoints.stepwise) is not None:
        return json.dumps(planner.rest(running).plan_json())
    job = planner.job(chosen, ctx.loop.history, flags)
    job.stepwise = "--stepwise" in flags
    if job.affected is not None:
        job.affected.as_ran = as_ran
    if "--dry-run" in flags and job.affected is not None:
        if "--json" not in flags:
            return Report(*job.affected.plan_lines())
        asks = ctx.configuration.settings.opaque_cells == "ask"
        return json.dumps({**job.affected.plan_json(), "asks": asks, "return": back.plan(job).to_json()}, indent=1)
    return _plan(ctx, job, flags, lose)


def resume(ctx: CommandContext, args: Sequence[str]) -> str | Report | None:
    """Restore the session of the last kernel of this notebook."""
    flags, rest = split_flags(args)
    if rest:
        raise BadCommand("%ctx resume takes no statement; %ctx goto N returns to one after the resume")
    return _plan(ctx, ctx.checkpoints.needed().resume_job(trust="--trust" in flags), flags)


def branches(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    """List the branches of the timeline."""
    flags, _ = split_flags(args)
    log = ctx.loop.log
    found = log.branches()
    if "--json" in flags:
        rows = [{"leaf": b.leaf, "fork": b.fork, "statements": list(b.statements), "head": b.has_head} for b in found]
        return json.dumps(rows, indent=1)
    if not found:
        return "no statement yet: run a cell"
    table = [["", "ends at", "since", "statements", "last"]]
    for one in found:
        leaf = log.statement(one.leaf.rpartition(".")[0])
        mark, ends = "*" if one.has_head else "", CellLink(one.leaf, leaf.cell_id)
        table.append([mark, ends, one.fork or "the start", str(len(one.statements)), gist(leaf.source, 60)])
    dimmed = frozenset(at for at, one in enumerate(found) if not one.has_head)
    shown = ReportTable(table, frozenset({3}), dimmed=dimmed)
    return Report(shown, "* has HEAD; %ctx goto N goes to a statement of any branch")


def checkpoint(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    """Name the state after the last statement, or list the names."""
    back = ctx.checkpoints.needed()
    if not args:
        if not back.named:
            return "no state has a name; %ctx checkpoint NAME names the one after the last statement"
        return Report(ReportTable([["name", "after"], *([name, where] for name, where in back.named.items())]))
    name = args[0]
    if len(args) > 2 or not re.fullmatch(r"[^\W\d][\w-]*", name) or re.fullmatch(r"s\d+(\.\d+)?", name):
        raise BadCommand(f"%ctx checkpoint {' '.join(args)}: use one word that begins with a letter, such as `fitted`")
    path = ctx.loop.log.path(back.target(args[1]).execution_id) if len(args) == 2 else ctx.loop.log.path()
    running = ctx.turns.running
    done = [e for _, e in path if running is None or e.execution_id != running.execution.execution_id]
    if not done:
        raise BadCommand("there is no statement yet whose state could be named: run a cell first")
    where = done[-1].execution_id
    before = back.named.get(name, where)
    back.named[name] = where
    ctx.keep_mark(where, "name", name)
    text = f"{name} is the state after {where.rpartition('.')[0]}; %ctx goto {name} returns to it"
    return text if before == where else f"{text}. It was that after {before}; %ctx goto {before} still returns there"


def mark(ctx: CommandContext, args: Sequence[str]) -> str:
    """Set how a re-run treats a statement."""
    back = ctx.checkpoints.needed()
    if len(args) != 2 or args[1] not in MARKS:
        raise BadCommand(
            "%ctx mark N differs (its re-run is expected to differ), asks (not run again unasked), or none"
        )
    target = back.target(args[0])
    if target.execution_id is None:
        raise BadCommand("%ctx mark 0: statements begin at 1")
    statement = ctx.loop.log.statement(target.execution_id.rpartition(".")[0])
    for subject in filter(None, (statement.statement_id, statement.cell_id)):
        back.facts.marks.pop(subject, None)
        if args[1] != "none":
            back.facts.marks[subject] = args[1]
        ctx.keep_mark(subject, "rerun", None if args[1] == "none" else args[1])
    return f"{statement.statement_id} {MARKS[args[1]]}"


def diff_states(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    """Compare the states after two statements: names by their values, outputs, handles, files."""
    flags, rest = split_flags(args)
    back, log = ctx.checkpoints.needed(), ctx.loop.log
    if not rest:
        raise BadCommand("%ctx diff N M [NAME …]: which two statements? With one, it is compared with now")
    old = back.target(rest[0])
    names = rest[1:]
    new = Target(log.head, "now")
    if names and _is_place(ctx, names[0]):
        new, names = back.target(names[0]), names[1:]
    settings = back.comparisons.settings
    found = back.comparisons.states.between(old, new, names=names, is_now=new.told == "now", settings=settings)
    found = masked_differences(found, ctx.masker)
    if "--json" in flags:
        return json.dumps({"from": old.execution_id, "to": new.execution_id, **found.to_json()}, indent=1)
    return differences_report(f"{old.told} → {new.told}", found)


def _is_place(ctx: CommandContext, word: str) -> bool:
    """Return whether a word names a state: a number, a statement, a name of a state that is no variable."""
    if re.fullmatch(r"s?\d+(\.\d+)?", word):
        return True
    return word in ctx.checkpoints.needed().named and word not in ctx.namespace
