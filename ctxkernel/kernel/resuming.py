"""Going on with what an earlier kernel of this notebook left: its timeline, its handles, its state.

Rule 1: reading what is offered costs nothing before somebody asks, and loads no state.
Rule 2: a state that this user's kernels did not sign is loaded on the user's word only (`--trust`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ctxkernel.agent.left import left_open
from ctxkernel.core.errors import BadCommand, StoreError
from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.core.timeline import StatementLog
from ctxkernel.kernel.returning import Job, Returning, Target
from ctxkernel.kernel.trail import Trail
from ctxkernel.state import units
from ctxkernel.store.manifest import Manifest
from ctxkernel.store.resume import Resumable, load_run, unsettled
from ctxkernel.store.session import SessionReader

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime


def find(ctx: Runtime) -> Resumable | None:
    """Return what an earlier kernel left in this session, or None. Raises StoreError."""
    path, back = ctx.store.path, ctx.returning
    if path is None or back is None:
        return None
    return load_run(path, before=ctx.store.run, chunks=back.chunks, references=units.references)


def offer(ctx: Runtime) -> dict[str, Any] | None:
    """Return what the panel and `%ctx status` say of it; None where there is nothing, or it is back already."""
    try:
        found = find(ctx)
    except StoreError as fault:
        return {"statements": 0, "head": None, "at": 0.0, "interrupted": None, "restorable": None, "reason": str(fault)}
    if found is None:
        return None
    last = found.statements[-1]
    sources = {run.execution_id: statement.source for statement, runs in found.statements for run in runs}
    interrupted = found.interrupted
    return {
        "statements": len(found.statements),
        "head": found.head,
        "at": max(run.ended_at or run.started_at for run in last[1]),
        "interrupted": sources[interrupted.execution_id] if interrupted is not None else None,
        "restorable": found.target,
        "reason": found.why_not or "; ".join(f"{where}: {why}" for where, why in found.not_restorable[:3]),
    }


def job(ctx: Runtime, back: Returning, *, trust: bool) -> Job:
    """Return the job that brings it back, with its checkpoints known. Raises BadCommand."""
    try:
        found = find(ctx)
        if found is not None and not found.trusted and trust:
            ctx.store.trust(time.time())
            found = find(ctx)
    except StoreError as fault:
        raise BadCommand(f"the earlier session cannot be read: {fault}") from None
    if found is None:
        raise BadCommand("there is nothing to resume: no earlier kernel of this notebook left a statement here")
    if not found.trusted:
        raise BadCommand(f"{found.why_not}. Its state is a pickle, which runs code: %ctx resume --trust loads it")
    if ctx.loop.graph.nodes():
        raise BadCommand(
            "this kernel has handles already, whose ids are those of the earlier ones; restart, and resume first"
        )
    assert ctx.store.path is not None
    with SessionReader(ctx.store.path, before=ctx.store.run) as reader:
        for checkpoint_id, state, reason in unsettled(reader, back.chunks, units.references):
            ctx.store.checkpoint_state(checkpoint_id, state, reason, time.time())
        _known(back, reader.all_manifests(), found)
    target = found.target
    told = target.rpartition(".")[0] if target else "before all statements"
    log = StatementLog()
    log.load(found.statements, found.head)
    place = Target(target, told)
    return Job("resume", place, back.difference(place), resumable=found, log=log)


def _known(back: Returning, manifests: Mapping[str, Manifest], found: Resumable) -> None:
    """Take in the manifests of the earlier kernel, those that are signed."""
    for execution_id, made in manifests.items():
        if not made.signed:
            continue
        try:
            _load(back, execution_id, made, found.checkpoints[execution_id])
        except (StoreError, KeyError, TypeError, ValueError):  # the return to that one says that it is not there
            continue


def _load(back: Returning, execution_id: str, made: Manifest, info: CheckpointInfo) -> None:
    manifest = made.parse()
    back.checkpoints.load(execution_id, manifest, info)
    for job_id, result in made.results().items():
        back.checkpoints.states.finish(job_id, result)
    prints = manifest.get("f")
    if isinstance(prints, dict):
        back.fingerprints[execution_id] = {str(name): str(one) for name, one in prints.items()}
    back.touched[execution_id] = frozenset(map(str, manifest.get("t", ())))


def waited(found: Resumable) -> list[str]:
    """Return the lines that tell what waited for the user when the earlier kernel ended."""
    runs = {run.execution_id: (statement, run) for statement, made in found.statements for run in made}
    path = [runs[name] for name in reversed(found.path_to_head)]
    return left_open(path, found.records, [statement for statement, _ in found.statements])


def join(ctx: Runtime, back: Returning, found: Resumable) -> None:
    """Put the earlier timeline in front of this kernel's own."""
    ctx.loop.join(found.statements, movers=found.movers, records=found.records)
    ctx.panel.remember(found.comparisons)
    back.named |= found.names
    back.marks |= {subject: str(value) for (subject, mark), value in found.marks.items() if mark == "rerun"}
    earlier = Trail()
    earlier.follow(found.moves, ctx.loop.log)
    earlier.extend(back.trail)
    back.trail = earlier
