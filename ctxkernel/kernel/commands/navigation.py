"""The `%ctx` commands that go back, run again and compare: goto undo rerun branches checkpoint mark diff resume.

Rule 1: a command that moves HEAD only plans here (`CheckpointService.job`); it is carried out when the cell has run.
Rule 2: `--dry-run` shows the plan and changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctxkernel.core.errors import BadCommand, StoreError
from ctxkernel.core.text import format_table, one_line
from ctxkernel.core.turn import HandleState
from ctxkernel.kernel.execution.cell import moves_head
from ctxkernel.kernel.returning.targets import Job, Target
from ctxkernel.store.log.session import SessionReader

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

_RANGE = re.compile(r"(?P<first>.+?)\.\.(?P<last>.+)")
MARKS = ("differs", "asks", "none")


def _flags(args: Sequence[str], known: Sequence[str], sub: str) -> tuple[set[str], list[str]]:
    flags = {arg for arg in args if arg.startswith("--")}
    for flag in sorted(flags - set(known)):
        raise BadCommand(f"%ctx {sub} has no option {flag}; it has {', '.join(known)}")
    return flags, [arg for arg in args if not arg.startswith("--")]


def _lose(args: Sequence[str]) -> tuple[frozenset[str], list[str]]:
    """Take `--lose NAME,NAME` out of the arguments: names that may be lost, as their data are missing."""
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


def _plan(ctx: Runtime, job: Job, flags: set[str]) -> str | None:
    """Have the kernel carry out a job when the cell is over, or return its plan where only that is asked for."""
    if "--dry-run" in flags:
        plan, found = ctx.checkpoints.needed().plan(job), job.resumable
        from ctxkernel.kernel.returning.resume import missing

        lines = missing(found) if found is not None else []
        if "--json" in flags:
            return json.dumps({**plan.to_json(), "missing": lines}, indent=1)
        return "\n".join([*lines, plan.text()])
    running = ctx.turns.running
    if running is None or not moves_head(running.statement.source):
        raise BadCommand(f"%ctx {job.action} moves you to another state, so it needs a cell of its own")
    ctx.checkpoints.job = job
    return None


def goto(ctx: Runtime, args: Sequence[str]) -> str | None:
    """Go to the state after a statement, or before it."""
    lose, args = _lose(args)
    flags, rest = _flags(args, ("--before", "--dry-run", "--json"), "goto")
    if len(rest) != 1:
        raise BadCommand("%ctx goto N: after which statement? %ctx timeline lists them; 0 is before all of them")
    job = ctx.checkpoints.needed().job("goto", rest[0], before="--before" in flags, flags=flags)
    job.lose = lose
    return _plan(ctx, job, flags)


def undo(ctx: Runtime, args: Sequence[str]) -> str | None:
    """Go to where HEAD was before the last statements and returns."""
    lose, args = _lose(args)
    flags, rest = _flags(args, ("--dry-run", "--json"), "undo")
    if len(rest) > 1:
        raise BadCommand(f"%ctx undo {' '.join(rest)}: how many steps? Use one whole number from 1")
    job = ctx.checkpoints.needed().job("undo", rest[0] if rest else "", flags=flags)
    job.lose = lose
    return _plan(ctx, job, flags)


def rerun(ctx: Runtime, args: Sequence[str]) -> str | None:
    """Go to the state before a statement, and run it and those after it again."""
    lose, args = _lose(args)
    flags, rest = _flags(args, ("--dry-run", "--json", "--yes"), "rerun")
    if len(rest) != 1:
        raise BadCommand("%ctx rerun N, or N..M: from which statement on? %ctx timeline lists them")
    match = _RANGE.fullmatch(rest[0])
    first, last = (match["first"], match["last"]) if match else (rest[0], "")
    job = ctx.checkpoints.needed().job("rerun", first, upto=last, flags=flags)
    job.lose = lose
    return _plan(ctx, job, flags)


def branches(ctx: Runtime, args: Sequence[str]) -> str:
    """List the branches of the timeline."""
    flags, _ = _flags(args, ("--json",), "branches")
    found = ctx.loop.log.branches()
    if "--json" in flags:
        return json.dumps(
            [{"leaf": b.leaf, "fork": b.fork, "statements": list(b.statements), "head": b.has_head} for b in found],
            indent=1,
        )
    if not found:
        return "no statement yet: run a cell"
    rows = [["", "ends at", "since", "statements", "last"]]
    for branch in found:
        last = ctx.loop.log.statement(branch.leaf.rpartition(".")[0])
        rows.append(
            [
                "*" if branch.has_head else "",
                branch.leaf,
                branch.fork or "the start",
                str(len(branch.statements)),
                one_line(last.source, 60),
            ]
        )
    return format_table(rows) + "\n* has HEAD; %ctx goto N goes to a statement of any branch"


def checkpoint(ctx: Runtime, args: Sequence[str]) -> str:
    """Name the state after the last statement, or list the names."""
    back = ctx.checkpoints.needed()
    if not args:
        if not back.named:
            return "no state has a name; %ctx checkpoint NAME names the one after the last statement"
        return format_table([["name", "after"], *([name, where] for name, where in back.named.items())])
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
    told = f"{name} is the state after {where.rpartition('.')[0]}; %ctx goto {name} returns to it"
    return told if before == where else f"{told}. It was that after {before}; %ctx goto {before} still returns there"


def mark(ctx: Runtime, args: Sequence[str]) -> str:
    """Say what a re-run of a statement should know."""
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
        if args[1] == "none":
            back.facts.marks.pop(subject, None)
        else:
            back.facts.marks[subject] = args[1]
        ctx.keep_mark(subject, "rerun", None if args[1] == "none" else args[1])
    told = {
        "differs": "is expected to differ when it runs again",
        "asks": "is not run again unasked",
        "none": "has no mark",
    }
    return f"{statement.statement_id} {told[args[1]]}"


def diff(ctx: Runtime, args: Sequence[str]) -> str:
    """Compare the states after two statements: names, outputs, handles."""
    flags, rest = _flags(args, ("--json",), "diff")
    from ctxkernel.replay.differences import differences

    back = ctx.checkpoints.needed()
    if len(rest) not in (1, 2):
        raise BadCommand("%ctx diff N M: which two statements? With one, it is compared with now")
    here = ctx.loop.log.head
    old = back.target(rest[0])
    new = back.target(rest[1]) if len(rest) == 2 else Target(here, "now")
    log = ctx.loop.log
    found = differences(
        log.path(old.execution_id),
        log.path(new.execution_id),
        fingerprints=back.facts.fingerprints,
        old_handles=_handles(ctx, old.execution_id),
        new_handles=_handles(ctx, new.execution_id),
        settings=back.comparisons.settings,
    )
    if "--json" in flags:
        return json.dumps({"from": old.execution_id, "to": new.execution_id, **found.to_json()}, indent=1)
    return f"{old.told} → {new.told}\n{found.text()}"


def _handles(ctx: Runtime, execution_id: str | None) -> Sequence[HandleState]:
    """Return the handles as they were after an execution, out of the log."""
    if execution_id is None or ctx.store.path is None:
        return ()
    try:
        with SessionReader(ctx.store.path) as reader:
            return reader.handles(execution_id)
    except StoreError:  # its row could not be written: the names are still worth telling
        return ()


def resume(ctx: Runtime, args: Sequence[str]) -> str | None:
    """Bring back what the last kernel of this notebook had."""
    flags, rest = _flags(args, ("--dry-run", "--trust", "--json"), "resume")
    if rest:
        raise BadCommand("%ctx resume takes no statement; %ctx goto N goes to one when the session is back")
    back = ctx.checkpoints.needed()
    job = back.resume_job(trust="--trust" in flags)
    return _plan(ctx, job, flags)
