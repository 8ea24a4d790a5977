"""Going on with what an earlier kernel of this notebook left: its timeline, its handles, its state.

Rule 1: reading what is offered costs nothing before somebody asks, and loads no state.
Rule 2: a state that this user's kernels did not sign is loaded on the user's word only (`--trust`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ctxkernel.agent.unfinished import left_open
from ctxkernel.core.errors import BadCommand, StoreError
from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.core.text import join_names
from ctxkernel.core.timeline import StatementLog
from ctxkernel.kernel.messages import states as messages
from ctxkernel.kernel.returning.head_trail import Trail
from ctxkernel.kernel.returning.returns import Job, Returning, Target
from ctxkernel.state.checkpoints import units
from ctxkernel.store.chunks.manifest import GIVEN_UP, Manifest, advance, some_gaps
from ctxkernel.store.chunks.presence import Presence
from ctxkernel.store.log.resume import Resumable, load_run, unsettled
from ctxkernel.store.log.session import SessionReader

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime


def find(ctx: Runtime) -> Resumable | None:
    """Return what an earlier kernel left in this session, or None. Raises StoreError."""
    path, back = ctx.store.path, ctx.returning
    if path is None or back is None:
        return None
    return load_run(path, before=ctx.store.run, chunks=back.chunks, references=units.references)


def offer(ctx: Runtime) -> messages.Resume | None:
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
        "reason": found.why_not or "; ".join([*missing(found), *([some_gaps(found.gaps)] if found.gaps else [])]),
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
        _known(ctx, back, reader.all_manifests(), found)
    target = found.target
    told = target.rpartition(".")[0] if target else "before all statements"
    log = StatementLog()
    log.load(found.statements, found.head)
    place = Target(target, told)
    return Job("resume", place, back.difference(place), resumable=found, log=log)


def _known(ctx: Runtime, back: Returning, manifests: Mapping[str, Manifest], found: Resumable) -> None:
    """Take in the manifests of the earlier kernel, those that are signed; one that cannot be had says why."""
    presence = Presence(back.chunks, units.references, verify=False)
    lost: dict[str, str] = {}
    """Checkpoint → why it cannot be had."""
    for execution_id, why in found.not_restorable:
        if execution_id in found.checkpoints:
            ctx.health.know(replace(found.checkpoints[execution_id], state="damaged", reason=why))
    for execution_id, made in manifests.items():
        info = found.checkpoints[execution_id]
        try:
            if made.skipped:
                ctx.health.know(replace(info, state="skipped", reason=made.skipped))
            elif made.signed:
                if why := lost.get(str(made.parse().get("base"))):
                    raise StoreError(why)
                _load(back, execution_id, made, _as_found(ctx, made, info, presence))
        except (StoreError, KeyError, TypeError, ValueError) as fault:
            lost[made.checkpoint_id] = str(fault)
            ctx.health.know(replace(info, state="damaged", reason=str(fault)))


def _as_found(ctx: Runtime, made: Manifest, info: CheckpointInfo, presence: Presence) -> CheckpointInfo:
    """Return what is known of a checkpoint, with what became of its data since; the log is told of that."""
    gaps = dict[str, str]()
    if info.state == "durable":
        advance(gaps, made, lambda unit: {unit["n"][0]: presence.fault(unit)})
    gone = {name: why for name, why in gaps.items() if why}
    if not gone:
        return info
    given_up = all(why.startswith(GIVEN_UP) for why in gone.values())
    found = replace(info, state="thinned" if given_up else "damaged", reason=some_gaps(gone))
    if given_up:  # where it was moved without its data, they may still come
        ctx.store.checkpoint_state(info.checkpoint_id, found.state, found.reason, time.time())
    return found


def _load(back: Returning, execution_id: str, made: Manifest, info: CheckpointInfo) -> None:
    manifest = made.parse()
    back.checkpoints.load(execution_id, manifest, info)
    for job_id, result in made.results().items():
        back.checkpoints.states.finish(job_id, result)
    prints = manifest.get("f")
    if isinstance(prints, dict):
        back.fingerprints[execution_id] = {str(name): str(one) for name, one in prints.items()}
    back.touched[execution_id] = frozenset(map(str, manifest.get("t", ())))


def missing(found: Resumable) -> list[str]:
    """Return the lines that tell which states after the one that is brought back are not there, and why."""
    reasons: dict[str, list[str]] = {}
    for execution_id, why in found.not_restorable:
        if execution_id not in found.movers:
            reasons.setdefault(why, []).append(execution_id.rpartition(".")[0])
    lines = [f"no state after {join_names(names[::-1], 5)}: {why}" for why, names in reasons.items()]
    if found.target is None and lines:
        many = sum(map(len, reasons.values()))
        told = "none of the states that the earlier kernel left is there"
        lines.insert(
            0, f"{told} ({many} of {many} are missing): only its timeline comes back; %ctx rerun 1 makes them again"
        )
    return lines


def waited(found: Resumable) -> list[str]:
    """Return the lines that tell what is not there, and what waited for the user, when an earlier kernel comes back."""
    runs = {run.execution_id: (statement, run) for statement, made in found.statements for run in made}
    path = [runs[name] for name in reversed(found.path_to_head)]
    return missing(found) + left_open(path, found.records, [statement for statement, _ in found.statements])


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
