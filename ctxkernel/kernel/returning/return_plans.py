"""Plans of returns, from what the log recorded; and making again what no checkpoint holds.

Rule: a statement runs again alone only where the plan found it pure enough (`replay.plan`), in the restored state; the
names that it makes besides the missing ones are put back as they were.
"""

from __future__ import annotations

import contextlib
import io
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctxkernel.core.reflection import is_kind
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.kernel.returning.statement_facts import details
from ctxkernel.replay.plan import Load, Plan, Run, Step, Written, make_plan
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.tracking.groups import Moment

if TYPE_CHECKING:
    from ctxkernel.kernel.returning.returns import Job, Returning
    from ctxkernel.kernel.runtime import Runtime
    from ctxkernel.state.checkpoints.comparison import Difference

_NAME = re.compile(r"[^\W\d]\w*")
Path = Sequence[tuple[Statement, Execution]]


def plan_of(ctx: Runtime, back: Returning, job: Job) -> Plan:
    """Return what a job would do. Reads only."""
    difference = job.difference
    log = job.log if job.log is not None else ctx.loop.log
    path = log.path(difference.execution_id)
    # What is alive and in use stays what it is; a generator that ran on, or that has no name now, may be made again.
    alive = {place for unit in difference.load for one in unit.again for place in one.places} | difference.held.keys()
    ran = {name: why for name, why in difference.stale.items() if name not in alive and _may_be_made(back.value(name))}
    absent = {**ran, **difference.lost}
    missing = {name_of(place): why for place, why in absent.items() if not _pseudo(place)}
    prints = _prints(back, path)
    prints |= dict.fromkeys(map(name_of, (*difference.stale, *difference.lost)), "")  # what reads these makes others
    load = [Load(_plain_names(unit.names), unit.nbytes) for unit in difference.load if _plain_names(unit.names)]
    files, changes = ctx.file_states.plan_files(_kept_files(back, difference), _files(ctx, path))
    functions = {}
    if missing:
        functions = dict(details(ctx.shell.user_ns, "\n".join(missing), "", {}).functions)
    plan = make_plan(
        job.target.execution_id,
        told=job.target.told,
        keep=_plain_names(difference.keep),
        load=load,
        drop=_plain_names(difference.drop),
        connect={one.places[0]: one.told for one in difference.connect.values()},
        missing=missing,
        path=_runs(ctx, back, path) if missing else (),
        then={name: prints.get(name, "") for name in difference.target},
        functions=functions,
        ambient=(*_handles(ctx, difference), *(one for one in back.ambient_of(difference) if one != "files")),
        files=files,
        file_changes=changes,
        statements=[_step(back, statement, execution) for statement, execution in job.statements],
    )
    as_now = {
        name: why for name, why in difference.stale.items() if ":" not in name and name_of(name) not in plan.rerun
    }
    back_as_it_is = {name_of(name) for name in as_now} - {name_of(place) for place in difference.lost}
    lost = {name: why for name, why in plan.lost.items() if name not in back_as_it_is}
    comes = [replace(one, names=tuple(name for name in one.names if name not in lost)) for one in plan.load]
    return replace(plan, as_now=as_now, lost=lost, load=tuple(one for one in comes if one.names))


def _may_be_made(value: Any) -> bool:
    return value is NOTHING or type(value) is types.GeneratorType


def _kept_files(back: Returning, difference: Difference) -> Any:
    """Return what a state says of the files whose content is kept; None where it says nothing."""
    unit = difference.target.get("ambient:files")
    return back.restorer.plain(unit) if unit is not None else None


def _handles(ctx: Runtime, difference: Difference) -> list[str]:
    """Return the handles whose own state is another then: level of detail, budget, pinned, running."""
    names = {state.obj_id: state.name for state in ctx.loop.handles()}
    ids = [
        name.removeprefix("handle:") for unit in difference.load for name in unit.names if name.startswith("handle:")
    ]
    return [f"handle {names.get(one) or one}" for one in ids]


def name_of(place: str) -> str:
    """Return the variable that a place such as `d['x']` is in."""
    found = _NAME.match(place)
    return found[0] if found else place


def _pseudo(name: str) -> bool:
    return ":" in name or name.startswith("Out[")


def _plain_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not _pseudo(name))


def _prints(back: Returning, path: Path) -> dict[str, str]:
    """Return name → fingerprint at the end of a path."""
    found: dict[str, str] = {}
    for _, execution in path:
        for name in execution.state_diff.deleted:
            found.pop(name, None)
        found |= back.fingerprints.get(execution.execution_id, {})
    return found


def _runs(ctx: Runtime, back: Returning, path: Path) -> list[Run]:
    """Return the executions of a path with what they used and made."""
    runs: list[Run] = []
    prints: dict[str, str] = {}
    for statement, execution in path:
        execution_id, diff = execution.execution_id, execution.state_diff
        own = back.fingerprints.get(execution_id, {})
        touched = back.touched.get(execution_id, frozenset())
        made = {name: own.get(name, "") for name in (*diff.added, *diff.changed)}
        rebound = {name for name, info in diff.changed.items() if info.how == "rebound"}
        runs.append(
            Run(
                execution_id,
                statement.statement_id,
                statement.source,
                reads={name: prints.get(name, "") for name in touched if name in prints},
                made=made,
                bound=frozenset((*diff.added, *rebound)),
                touched=touched - made.keys(),
                deleted=frozenset(diff.deleted),
                files=tuple(one.name for one in execution.artifacts if one.kind == "file"),
                ambient=back.ambient_changed.get(execution_id, ()),
                status=execution.status,
                kind=statement.kind if _is_plain(ctx, statement.source) else "async",
                asks=back.asks(statement),
                seconds=execution.cost.time_ms / 1000,
            )
        )
        for name in diff.deleted:
            prints.pop(name, None)
        prints |= own
    return runs


def _is_plain(ctx: Runtime, source: str) -> bool:
    """Whether a cell can be run without an event loop: it awaits nothing at its top level."""
    try:
        compile(ctx.shell.transform_cell(source), "<cell>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _files(ctx: Runtime, path: Path) -> list[Written]:
    """Return the files that statements wrote which the return leaves behind: they stay as they are."""
    there = {execution.execution_id for _, execution in path}
    return [
        Written(one.name, statement.statement_id, one.size)
        for statement, execution in ctx.loop.log.path()
        if execution.execution_id not in there
        for one in execution.artifacts
        if one.kind == "file"
    ]


def _step(back: Returning, statement: Statement, execution: Execution) -> Step:
    why = back.why_skipped(statement)
    return Step(
        statement.statement_id,
        "ask" if back.asks(statement) else "skip" if why else "run",
        why,
        back.differs(statement),
        execution.cost.time_ms / 1000,
        statement.source,
    )


def make_again(ctx: Runtime, plan: Plan, alive: Mapping[str, Any]) -> dict[str, str]:
    """Run the statements of a plan that bring missing names back. Returns the names that did not come, and why.

    Their output is not shown. An interrupt ends it. A name that is not back by then gets its value of `alive`, if any.
    """
    namespace = ctx.shell.user_ns
    wanted = set(plan.rerun)
    lost: dict[str, str] = {}
    for statement_id in plan.again:
        source = ctx.loop.log.statement(statement_id).source
        names = [name for name, ids in plan.rerun.items() if statement_id in ids]
        kept = {name: value for name, value in namespace.items() if name not in wanted}
        try:
            code = compile(ctx.shell.transform_cell(source), f"<{statement_id} again>", "exec", dont_inherit=True)
            with (
                ctx.interrupts.user_code(),
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                exec(code, namespace)  # noqa: S102 - it is the user's own cell
        except KeyboardInterrupt:
            lost |= dict.fromkeys(wanted - lost.keys(), f"interrupted while {statement_id} ran again")
            break
        except BaseException as fault:  # the user's code: whatever it raises
            why = f"{statement_id}, run again, gave {type(fault).__name__}: {fault}"[:200]
            lost = dict.fromkeys(names, why) | lost  # the first reason may be that of the others
        finally:
            made = {name: namespace[name] for name in names if name in namespace}
            others = {
                name: now
                for name, value in kept.items()
                if (now := namespace.get(name, value)) is not value and type(now) is not types.FunctionType
            }
            for name, other in _shared(ctx, made, others).items():
                lost[name] = f"{statement_id}, run again, made it of another {other}"
                namespace.pop(name, None)
            _put_back(namespace, kept, wanted)
    for name in wanted - lost.keys():
        if name not in namespace:
            lost[name] = "its statement, run again, did not make it"
    namespace.update({name: alive[name] for name in lost if name in alive})
    return lost


def _shared(ctx: Runtime, made: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, str]:
    """Return which of the values `made` hold an object that one of the others holds too, and which one."""
    if not others:
        return {}
    values = {**others, **made}
    moment = Moment(ctx.packer, lambda name: values.get(name, NOTHING))
    moment.pack([(name,) for name in values])
    held: dict[str, str] = {}
    labels = {name: set(moment.pieces[name].packed.labels) for name in moment.pieces if name in values}
    for name in made.keys() & labels.keys():
        for other in others.keys() & labels.keys():
            cls = f"class:{ctx.packer.uid(others[other])}" if is_kind(type(others[other]), type) else ""
            common = {one for one in labels[name] & labels[other] if one.startswith("shared:") or one == cls}
            if common or type(made[name]) is others[other] or other in moment.pieces[name].names:
                held[name] = other
    return held


def _put_back(namespace: dict[str, Any], kept: Mapping[str, Any], wanted: set[str]) -> None:
    for name in [name for name in namespace if name not in kept and name not in wanted]:
        del namespace[name]
    for name, value in kept.items():
        if namespace.get(name) is not value:
            namespace[name] = value
