"""Plans of returns, made from the records of the log; and the re-runs that make what no checkpoint holds.

Rule: a statement runs again alone only if the plan found it pure enough (`replay.plan`), in the restored state; the
names that it makes besides the missing ones are put back as they were.
"""

from __future__ import annotations

import contextlib
import gc
import io
import re
import types
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from IPython.core.displaypub import CapturingDisplayPublisher

from ctxkernel.core.reflection import is_kind
from ctxkernel.core.state_names import (
    AMBIENT,
    CLASS,
    FILES,
    HANDLE,
    LABELS,
    LAST,
    MODULE,
    RESULT,
    SHARED,
    TARGET,
    is_bound,
    is_variable,
    without,
)
from ctxkernel.core.timeline import Execution, Path, Statement
from ctxkernel.kernel.returning.comparisons import RunFacts, details
from ctxkernel.kernel.returning.live_state import LiveState
from ctxkernel.kernel.returning.return_services import ReturnServices
from ctxkernel.kernel.returning.targets import ReturnJob
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.checkpoints.comparison import Difference
from ctxkernel.state.checkpoints.restore import Restorer
from ctxkernel.state.tracking.groups import Moment

if TYPE_CHECKING:
    from ctxkernel.replay.plan import PastRun, Plan, PlannedStep, Written

_NAME = re.compile(r"[^\W\d]\w*")
_REFERRED = (MODULE, *LABELS)
"""Prefixes of pseudo-names that stand for objects which variables refer to."""


def name_of(place: str) -> str:
    """Return the variable that a place such as `d['x']` is in."""
    found = _NAME.match(place)
    return found[0] if found else place


def _plain_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if is_bound(name) and not name.startswith(RESULT))


def _variables(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of which a plan tells, as the return will: not what IPython calls `_` or `_12`."""
    return tuple(filter(is_variable, names))


class Planner:
    """Makes the plans of returns."""

    def __init__(self, session: ReturnServices, live: LiveState, facts: RunFacts, restorer: Restorer) -> None:
        self._session = session
        self._live = live
        self._facts = facts
        self._restorer = restorer

    def plan(self, job: ReturnJob) -> Plan:
        """Return the plan of a job. Reads only."""
        from ctxkernel.replay.plan import Load, Plan, make_plan

        difference = job.difference
        log = job.log if job.log is not None else self._session.loop.log
        path = log.path(difference.execution_id)
        missing = self._missing(difference)
        prints = self._facts.fingerprints_at(path)
        inexact = (*difference.stale, *difference.lost, *difference.gaps)
        prints |= dict.fromkeys(map(name_of, inexact), "")  # readers of these differ
        load = [Load(_variables(unit.names), unit.nbytes) for unit in difference.load]
        referring = set(difference.referring)
        load.append(Load(_variables(sorted(referring)), 0))
        load.append(Load(tuple(name for name in _variables(difference.held) if name not in missing), 0))
        kept = difference.target.get(FILES)
        kept_files = self._restorer.plain(kept) if kept is not None else None
        files, changes = self._session.file_states.plan_files(kept_files, self._files(path))
        functions: Mapping[str, str] = {}
        if missing:
            functions = details(self._session.namespace, "\n".join(missing), "", {}).functions
        ambient = [name for name in self.ambient_of(difference) if name != "files"]
        draft = Plan(
            job.target.execution_id,
            told=job.target.told,
            keep=_variables([name for name in difference.keep if name not in referring]),
            load=tuple(load),
            drop=_variables(difference.drop),
            connect={one.places[0]: one.told for one in difference.connect.values()},
            ambient=(*self._handles(difference), *ambient),
            files=tuple(files),
            file_changes=tuple(changes),
            statements=tuple(self._step(statement, execution) for statement, execution in job.statements),
            seconds=difference.seconds,
        )
        then = {name: prints.get(name, "") for name in difference.target}
        runs = self._runs(path) if missing else ()
        plan = make_plan(draft, missing=missing, path=runs, then=then, functions=functions)
        as_now = {name: why for name, why in self._as_now(difference).items() if name_of(name) not in plan.rerun}
        unchanged = set(map(name_of, as_now)) - set(map(name_of, (*difference.lost, *difference.gaps)))
        lost = {name: why for name, why in plan.lost.items() if name not in unchanged}
        loads = [replace(one, names=tuple(name for name in one.names if name not in lost)) for one in plan.load]
        return replace(plan, as_now=as_now, lost=lost, load=tuple(one for one in loads if one.names))

    def ambient_of(self, difference: Difference) -> tuple[str, ...]:
        """Return the ambient parts that differ between a state and now. Raises StoreError."""
        ambient = self._live.ambient
        if difference.execution_id is None:
            return ambient.differing(self._live.ambient_start)
        names = without(AMBIENT, [name for unit in difference.load for name in unit.names if name != LAST])
        return ambient.differing({name: self._restorer.plain(difference.target[AMBIENT + name]) for name in names})

    def _as_now(self, difference: Difference) -> dict[str, str]:
        """Return the variables, their parts and the modules that stay as they are now, and why.

        A class, an object that several variables share and a module are told with the variables that refer to them.
        """
        found: dict[str, str] = {}
        for name, why in difference.stale.items():
            if name.startswith((AMBIENT, HANDLE, TARGET)):
                continue
            if name.startswith(MODULE):
                found[f"module {name.removeprefix(MODULE)}"] = why
            if name.startswith(_REFERRED):
                found |= dict.fromkeys(_plain_names(self._session.tracker.users_of(name)), why)
            else:
                found[name] = why
        return found

    def _missing(self, difference: Difference) -> dict[str, str]:
        """Return the variables that no checkpoint holds, and why.

        A value that is alive and in use stays as it is; a generator that ran on, or has no name now, may be made again.
        """
        alive = {place for unit in difference.load for one in unit.again for place in one.places}
        alive |= difference.held.keys()
        ran = {
            name: why
            for name, why in difference.stale.items()
            if name not in alive
            and ((value := self._live.value(name)) is NOTHING or type(value) is types.GeneratorType)
        }
        absent = {**ran, **difference.gaps, **difference.lost}
        return {name_of(place): absent[place] for place in _plain_names(absent)}

    def _handles(self, difference: Difference) -> list[str]:
        """Return the handles whose own state differs then: level of detail, budget, pinned, running."""
        names = {state.obj_id: state.name for state in self._session.loop.handles()}
        ids = without(HANDLE, [name for unit in difference.load for name in unit.names])
        return [f"handle {names.get(one) or one}" for one in ids]

    def _runs(self, path: Path) -> list[PastRun]:
        """Return the executions of a path with the names that they used and made."""
        from ctxkernel.replay.plan import PastRun

        runs: list[PastRun] = []
        prints: dict[str, str] = {}
        results: set[str] = set()
        for statement, execution in path:
            execution_id, diff = execution.execution_id, execution.changes
            own = self._facts.fingerprints.get(execution_id, {})
            touched = self._facts.touched.get(execution_id, frozenset())
            results |= (result := {name for name in touched - results if name.startswith(RESULT)})
            made = {name: own.get(name, "") for name in (*diff.added, *diff.changed)}
            rebound = {name for name, info in diff.changed.items() if info.how == "rebound"}
            run = PastRun(
                execution_id,
                statement.statement_id,
                statement.source,
                reads={name: prints[name] for name in touched if name in prints},
                made=made,
                bound=frozenset((*diff.added, *rebound)),
                touched=touched - made.keys() - result,  # run again, it leaves its result in `Out` as it is
                deleted=frozenset(diff.deleted),
                files=tuple(one.name for one in execution.artifacts if one.kind == "file"),
                ambient=self._live.ambient_changed.get(execution_id, ()),
                status=execution.status,
                kind=statement.kind if self._is_plain(statement.source) else "async",
                asks=self._facts.asks(statement),
                seconds=execution.cost.time_ms / 1000,
            )
            runs.append(run)
            for name in diff.deleted:
                prints.pop(name, None)
            prints |= own | made
        return runs

    def _is_plain(self, source: str) -> bool:
        """Return whether a cell can run without an event loop: it awaits nothing at its top level."""
        try:
            compile(self._session.shell.transform_cell(source), "<cell>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
        return True

    def _files(self, path: Path) -> list[Written]:
        """Return the files written by statements that the return leaves: the files stay as they are."""
        from ctxkernel.replay.plan import Written

        there = {execution.execution_id for _, execution in path}
        return [
            Written(one.name, statement.statement_id, one.size)
            for statement, execution in self._session.loop.log.path()
            if execution.execution_id not in there
            for one in execution.artifacts
            if one.kind == "file"
        ]

    def _step(self, statement: Statement, execution: Execution) -> PlannedStep:
        from ctxkernel.replay.plan import PlannedStep

        why = self._facts.why_skipped(statement)
        return PlannedStep(
            statement.statement_id,
            "ask" if self._facts.asks(statement) else "skip" if why else "run",
            why,
            self._facts.differs(statement),
            execution.cost.time_ms / 1000,
            statement.source,
        )


def make_again(session: ReturnServices, plan: Plan, alive: Mapping[str, Any]) -> dict[str, str]:
    """Run the statements of a plan that make missing names. Return the names that were not made, and why.

    Their output is not shown. An interrupt ends it. A name that was not made gets its value of `alive`, else that of
    before, if any.
    """
    namespace = session.namespace
    wanted = set(plan.rerun)
    alive = {**{name: namespace[name] for name in wanted if name in namespace}, **alive}
    lost: dict[str, str] = {}
    for statement_id in plan.again:
        source = session.loop.log.statement(statement_id).source
        names = [name for name, ids in plan.rerun.items() if statement_id in ids]
        kept = {name: value for name, value in namespace.items() if name not in wanted}
        try:
            code = compile(session.shell.transform_cell(source), f"<{statement_id} again>", "exec", dont_inherit=True)
            with (
                session.interrupts.user_code(),
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
                _without_displays(session.shell),
            ):
                exec(code, namespace)  # noqa: S102 - it is the user's own cell
        except KeyboardInterrupt:
            lost |= dict.fromkeys(wanted - lost.keys(), f"interrupted while {statement_id} ran again")
            break
        except BaseException as fault:  # the user's code may raise anything
            why = f"{statement_id}, run again, gave {type(fault).__name__}: {fault}"[:200]
            lost = dict.fromkeys(names, why) | lost  # the first reason may explain the others
        finally:
            made = {name: namespace[name] for name in names if name in namespace}
            others = {
                name: now
                for name, value in kept.items()
                if (now := namespace.get(name, value)) is not value and type(now) is not types.FunctionType
            }
            for name, other in _shared(session, made, others).items():
                lost[name] = f"{statement_id}, run again, made it of another {other}"
                namespace.pop(name, None)
            for name in [name for name in namespace if name not in kept and name not in wanted]:
                del namespace[name]
            namespace.update(kept)
    for name in wanted - lost.keys():
        if name not in namespace:
            lost[name] = "its statement, run again, did not make it"
    namespace.update({name: alive[name] for name in lost if name in alive})
    return lost


class _NoDisplays(CapturingDisplayPublisher):
    """Drops displays; an Output widget tells the publisher whose cell runs."""

    def set_parent(self, parent: Any) -> None:
        """Ignore the request of the cell."""


@contextlib.contextmanager
def _without_displays(shell: Any) -> Generator[None]:
    """Drop what `display` is called with."""
    publisher, shell.display_pub = shell.display_pub, _NoDisplays()
    try:
        yield
    finally:
        shell.display_pub = publisher


def _shared(session: ReturnServices, made: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, str]:
    """Return which of the values `made` hold an object that one of the others holds too, and which one."""
    if not others:
        return {}
    values = {**others, **made}
    moment = Moment(session.packer, lambda name: values.get(name, NOTHING))
    moment.pack([(name,) for name in values])
    held: dict[str, str] = {}
    labels = {name: set(moment.pieces[name].packed.labels) for name in moment.pieces if name in values}
    for name in made.keys() & labels.keys():
        reached = _reached(list(moment.pieces[name].packed.live.values()), session.namespace)
        for other in others.keys() & labels.keys():
            one: Any = others[other]
            cls = f"{CLASS}{session.packer.uid(one)}" if is_kind(cast("type[object]", type(one)), type) else ""
            common = [label for label in labels[name] & labels[other] if label.startswith(SHARED) or label == cls]
            together = type(made[name]) is one or other in moment.pieces[name].names or id(one) in reached
            if common or together:
                held[name] = other
    return held


def _reached(objects: list[Any], namespace: Mapping[str, Any]) -> set[int]:
    """Return the ids of objects that some without a stored form refer to, directly or not, as far as they are near."""
    seen = {id(namespace)}
    while objects and len(seen) < _NEAR:
        objects = [one for one in objects if id(one) not in seen and not isinstance(one, (type, types.ModuleType))]
        seen.update(map(id, objects))
        objects = [one for one in gc.get_referents(*objects) if gc.is_tracked(one)]
    return seen


_NEAR = 10_000
