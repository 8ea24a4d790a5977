"""Re-runs compared with what ran before: the facts about executions, and about the names that a cell uses.

Runs none of the user's code.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import time
import types
from collections.abc import Collection, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.reflection import SETS, class_dict, class_name, class_of, is_kind, is_own_class
from ctxkernel.core.replay import PACKED, Comparison, equal_content
from ctxkernel.core.state_names import AMBIENT, CLASS, without
from ctxkernel.core.timeline import Execution, Path, Statement
from ctxkernel.core.timeline_events import MethodCalled
from ctxkernel.core.value_difference import ValueDifference
from ctxkernel.kernel.execution.cell import CellRequest, on_handles, only_commands
from ctxkernel.kernel.returning.cell_runs import CellFacts, cell_run
from ctxkernel.kernel.returning.dotted_names import dotted_name
from ctxkernel.kernel.returning.live_state import LiveState
from ctxkernel.kernel.returning.return_services import ReturnServices
from ctxkernel.kernel.returning.value_differences import ComparedPlace, StateDifferences, StateValues
from ctxkernel.replay.dependency_nodes import CellRun
from ctxkernel.state.ambient import passive
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.checkpoints.checkpoints import Checkpointer
from ctxkernel.state.checkpoints.comparison import labels_of
from ctxkernel.state.checkpoints.restore import Restorer
from ctxkernel.state.checkpoints.states import CheckpointError
from ctxkernel.state.checkpoints.unit_contents import Matching, UnitContents
from ctxkernel.state.checkpoints.units import Unit

if TYPE_CHECKING:
    from ctxkernel.replay.cause_finder import Details
    from ctxkernel.replay.outputs import DivergenceSettings

DETAIL_SECONDS = 1.0
"""Time that a re-run of one cell spends on how variables differ."""
_WRITING_SECONDS = 10.0
"""Time that it waits for data that are still being written; longer if the cell ran longer."""
_MOST_BACK = 200
"""Executions before a re-run in which the values of its inputs are looked for."""
_MOST_FUNCTIONS = 50
_MAKERS = frozenset(("view", "group", "note"))

_MOST_TOUCHED = 200
"""Names that a manifest lists as touched."""


@dataclass(slots=True)
class RunFacts:
    """Facts about executions and statements that the log lacks."""

    marks: dict[str, str] = field(default_factory=dict[str, str])
    """Statement or cell → `differs` or `asks`."""
    fingerprints: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Execution → fingerprints of the names that it added or changed; without those that were not known yet."""
    late_prints: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Execution → fingerprints of what it touched, found in the background: of the data, not of the content."""
    touched: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Execution → names that it may have touched."""
    cells: dict[str, CellFacts] = field(default_factory=dict[str, CellFacts])
    """Execution → what it read."""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Execution → the time that its cell took when it ran."""
    swept: set[str] = field(default_factory=set[str])
    """Executions of sweeps: they ran in other kernels."""
    uncertain: tuple[str | None, tuple[str, ...]] = (None, ())
    """The place of the last return, and the names that it could not restore."""

    def fingerprints_at(self, path: Path) -> dict[str, str]:
        """Return the known fingerprints of names at the end of a path."""
        found: dict[str, str] = {}
        for _, execution in path:
            diff = execution.changes
            for name in (*diff.deleted, *diff.added, *diff.changed):
                found.pop(name, None)
            found |= self.fingerprints.get(execution.execution_id, {})
        return found

    def add_prints(self, late: Mapping[str, Mapping[str, str]]) -> None:
        """Take in fingerprints that became known after their executions."""
        for execution_id, prints in late.items():
            if (facts := self.cells.get(execution_id)) is not None:
                touched = {*self.touched.get(execution_id, ()), *facts.bound, *facts.parts}
                self.late_prints[execution_id] = {name: one for name, one in prints.items() if name in touched}

    def to_manifest(self, execution_id: str) -> dict[str, Any]:
        """Return the facts about an execution for the manifest of its state."""
        made: dict[str, Any] = {}
        if prints := self.fingerprints.get(execution_id):
            made["f"] = prints
        touched = self.touched.get(execution_id, ())
        if touched:
            made["t"] = sorted(touched)[:_MOST_TOUCHED]
        known = self.cells.get(execution_id)
        if len(touched) <= _MOST_TOUCHED and known is not None and (listed := known.to_json()):
            made["r"] = listed
        return made

    def take_in(self, execution_id: str, manifest: Mapping[str, Any]) -> None:
        """Take in the facts in the manifest of a state, which another kernel wrote."""
        prints = manifest.get("f")
        if isinstance(prints, dict):
            known = cast("dict[object, object]", prints)
            self.fingerprints[execution_id] = {str(name): str(one) for name, one in known.items()}
        self.touched[execution_id] = frozenset(map(str, manifest.get("t", ())))
        if (facts := CellFacts.from_json(manifest.get("r"))) is not None:
            self.cells[execution_id] = facts

    def run(self, statement: Statement, execution: Execution) -> CellRun:
        """Return an execution with its reads and writes."""
        execution_id = execution.execution_id
        prints = self.late_prints.get(execution_id, {}) | self.fingerprints.get(execution_id, {})
        return cell_run(statement, execution, self.cells.get(execution_id), prints)

    def differs(self, statement: Statement) -> bool:
        """Return whether a re-run of a statement is expected to differ."""
        return self._mark(statement) == "differs" or statement.tags.get("differs") is True

    def asks(self, statement: Statement) -> bool:
        """Return whether a statement runs again only on request."""
        return self._mark(statement) == "asks" or statement.tags.get("asks") is True

    def _mark(self, statement: Statement) -> str:
        return self.marks.get(statement.statement_id) or self.marks.get(statement.cell_id or "", "")

    @staticmethod
    def why_skipped(statement: Statement) -> str:
        """Return why a statement is not run again, or an empty text."""
        if statement.tags.get("outside"):
            return "names that changed outside of a cell cannot be run again"
        if only_commands(statement.source) and not on_handles(statement.source):
            return "a command, not a cell"
        if statement.tags.get("masked"):
            return "a credential in it was masked in the log; run its cell in the notebook"
        return ""


class Comparisons:
    """Compares executions with those that they re-ran."""

    def __init__(
        self, session: ReturnServices, live: LiveState, facts: RunFacts, checkpoints: Checkpointer, restorer: Restorer
    ) -> None:
        self._session = session
        self._live = live
        self._facts = facts
        self._checkpoints = checkpoints
        self._states, self._late = checkpoints.states, checkpoints.late
        self._restorer = restorer
        self.values = StateValues(restorer, live.value, lambda: session.configuration.settings.tolerance)
        self.states = StateDifferences(session, facts.fingerprints, self.values)
        self._loaded: tuple[str, Any] = "", NOTHING
        """The name whose equality was decided last, and its value of then."""
        self._diverged: dict[str, str] = {}
        """Names to which a re-run since the last return gave another value, and the cause."""
        self._renamed: dict[str, str] = {}
        """Ids of handles that a re-run since the last return made → those of the first run."""

    def forget(self) -> None:
        """Forget what re-runs came out with: a return has replaced it."""
        self._diverged, self._renamed = {}, {}

    def pair(self, cell: CellRequest) -> None:
        """Find the execution that a notebook's cell re-runs: the last run of that cell, else of that text."""
        log = self._session.loop.log
        newest = list(reversed(list(log)))
        same_cell = (one for one in newest if cell.cell_id is not None and one.cell_id == cell.cell_id)
        best = next(same_cell, None) or next((one for one in newest if one.source == cell.code), None)
        if best is not None:
            cell.rerun_of = best
            cell.against = log.executions(best.statement_id)[-1].execution_id

    @property
    def settings(self) -> DivergenceSettings:
        """The tolerance within which two results count as the same."""
        from ctxkernel.replay.outputs import DivergenceSettings

        near = self._session.configuration.settings.tolerance
        return DivergenceSettings(rel=near, abs=near)

    def near(self, place: str | None, name: str) -> bool:
        """Return whether a variable is as after an execution, up to the tolerance that the user set for inputs."""
        from ctxkernel.replay.outputs import DivergenceSettings
        from ctxkernel.replay.values import same_values

        limit, now = self._session.configuration.settings.affected_tolerance, self._live.value(name)
        near = DivergenceSettings(rel=limit, abs=limit).tolerance
        then = self._restorer.then(place, name) if limit and place is not None else NOTHING
        return then is not NOTHING and now is not NOTHING and same_values(then, now, near) is True

    def compare(self, new: Execution, against: str) -> Comparison:
        """Return how an execution compares with the one that it re-ran. Raises CtxError."""
        from ctxkernel.replay.divergence import compare

        log = self._session.loop.log
        old = log.execution(against)
        statement, before = log.statement(new.statement_id), log.statement(old.statement_id)
        names = {*old.changes.added, *old.changes.changed, *new.changes.added, *new.changes.changed}
        pending = self._late.open_names(old.execution_id) | self._late.open_names(new.execution_id)
        names |= pending
        until = time.monotonic() + DETAIL_SECONDS
        known = replace(
            details(self._session.namespace, statement.source, before.source, self._inputs(statement, old, new)),
            generators=self._other_generators(old, new),
            pending=pending,
            equal=partial(self._equal, against, new),
            difference=partial(self._difference, until),
            file=partial(self._file, against, new.execution_id, until),
        )
        found = compare(
            old,
            self._with_old_ids(old, new),
            old_state=self._newest(names, against),
            new_state={name: self.now(name) for name in names if self._live.value(name) is not NOTHING},
            details=known,
            settings=replace(self.settings, expected=self._facts.differs(statement)),
        )
        self._loaded = "", NOTHING
        self._diverged |= {one.subject: one.cause for one in found.divergences if one.kind == "state"}
        return found

    def _inputs(self, statement: Statement, old: Execution, new: Execution) -> dict[str, str]:
        """Return the names that had another value before a re-run, and the cause, if a re-run is it.

        Without a re-run: a cell above was deleted, added or moved.
        """
        from ctxkernel.replay.causes import names_used

        wanted = {name for name in names_used(statement.source) if self._live.value(name) is not NOTHING}
        then, now = (self._newest(wanted, one.parent_execution_id, most=_MOST_BACK) for one in (old, new))
        differing = [name for name in then.keys() & now.keys() if equal_content(then[name], now[name]) is False]
        return dict.fromkeys(differing, "") | self._diverged

    def _newest(self, names: Collection[str], place: str | None, *, most: int | None = None) -> dict[str, str]:
        """Return the fingerprints that some names had at a place, as far as the last `most` executions tell.

        `PACKED` where the execution that may have changed the name last has none.
        """
        found: dict[str, str] = {}
        for _, execution in islice(self._session.loop.log.back(place), most):
            known, diff = self._facts.fingerprints.get(execution.execution_id, {}), execution.changes
            changed = names if diff.incomplete else {*known, *diff.added, *diff.changed}.intersection(names)
            found = {name: known.get(name, PACKED) for name in changed} | found
            if len(found) == len(names):
                break
        return found

    def now(self, name: str) -> str:
        """Return the fingerprint of a variable; empty if there is none."""
        try:
            return self._session.tracker.fingerprint(name)
        except KeyError:
            return ""

    def _equal(self, against: str, new: Execution, name: str) -> bool | None:
        """Return whether a variable is as after an execution, floats within the tolerance; None: not known."""
        from ctxkernel.replay.values import same_values

        now = self._live.value(name)
        self._loaded = "", NOTHING
        if type(now).__module__.startswith("matplotlib."):
            return True  # figures are compared by the pixels that a cell shows: their objects count what is drawn
        then = self._restorer.then(against, name)
        self._loaded = name, then
        if then is now and now is not NOTHING and is_kind(class_of(now), type):  # its present content is in both
            return None  # hashes decide
        found = None if then is NOTHING or now is NOTHING else same_values(then, now, self.settings.tolerance)
        return self._stored_alike(against, new, name) if found is None else found

    def _stored_alike(self, against: str, new: Execution, name: str) -> bool | None:
        """Return True where a variable is stored with equal content after two executions; None: not known.

        Data that are still being written are waited for.
        """
        seconds = max(_WRITING_SECONDS, new.cost.time_ms / 1000)
        try:
            then, now = (self._checkpoints.state(one, seconds) for one in (against, new.execution_id))
        except CheckpointError:
            return None
        if (unit := then.get(name)) is None:
            return None
        held: dict[str, Unit | None] = {name: unit, **labels_of(unit, then)}
        contents = UnitContents(self._checkpoints.storage.chunks.read)
        classes = {label: one for label, one in then.items() if label.startswith(CLASS)}
        return None if Matching(contents, held, now, {}, classes).differing((name,)) else True

    def _difference(self, until: float, name: str) -> ValueDifference | None:
        """Return how a variable differs from its value after an execution; None where that takes too long."""
        loaded, then = self._loaded
        now = self._live.value(name)
        if loaded != name or then is NOTHING or now is NOTHING or time.monotonic() > until:
            return None
        return self.values.compare(name, then, now, until=until).bounded()

    def _file(self, against: str, execution_id: str, until: float, name: str) -> ValueDifference:
        """Return how the content of a file that both executions wrote differs, or why that is not known."""
        places = ComparedPlace(against), ComparedPlace(execution_id)
        return self.states.file(name, "content differs", *places, until=until).bounded()

    def _other_generators(self, old: Execution, new: Execution) -> list[str] | None:
        """Return the ambient parts that differed before a re-run; None if that is not known."""
        parents = [execution.parent_execution_id for execution in (old, new)]
        if any(parent is None or self._states.info(parent) is None for parent in parents):
            return None
        before, now = (self._states.state(parent, lambda: None) for parent in parents)
        names = [name for name in without(AMBIENT, now) if not passive(name)]
        return [name for name in names if not now[AMBIENT + name].equals(before.get(AMBIENT + name))]

    def _with_old_ids(self, old: Execution, new: Execution) -> Execution:
        """Return a re-run with the ids of handles of the first run: no id is used twice, so its own are others."""
        made = [
            [e.obj_id for e in run.events if isinstance(e, MethodCalled) and e.method in _MAKERS] for run in (old, new)
        ]
        self._renamed |= dict(zip(made[1], made[0], strict=False))
        if not self._renamed:
            return new
        ids = re.compile(rf"\b({'|'.join(sorted(self._renamed, key=len, reverse=True))})\b")

        def put(text: Any) -> Any:
            return ids.sub(lambda found: self._renamed[found[0]], text) if isinstance(text, str) else text

        artifacts = tuple(replace(one, data=put(one.data)) for one in new.artifacts)
        return replace(new, stdout=put(new.stdout), stderr=put(new.stderr), artifacts=artifacts)


# -- the names that a cell uses ------------------------------------------------------------------------


def details(namespace: Mapping[str, Any], source: str, old_source: str, upstream: Mapping[str, str]) -> Details:
    """Return what the namespace says about a statement: the functions it may call, the meaning of its names."""
    from ctxkernel.replay.cause_finder import Details
    from ctxkernel.replay.causes import names_used

    functions: dict[str, str] = {}
    meaning: dict[str, str] = {}
    kinds: dict[str, str] = {}
    module = str(namespace.get("__name__", "__main__"))
    todo, seen = list(names_used(source)), set[str]()
    while todo and len(functions) < _MOST_FUNCTIONS:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        value: Any = namespace.get(name)
        is_class = is_kind(cast("type[object]", type(value)), type)
        is_own = type(value) is types.FunctionType and value.__globals__ is namespace
        if is_own or (is_class and is_own_class(cast("type", value), module)):
            if text := _source(value):
                functions[name] = text
                todo += names_used(text)
        elif dotted := dotted_name(value):
            meaning[name] = dotted
        elif type(value) in SETS:
            kinds[name] = type(value).__name__
    old = old_source if old_source != source else None
    return Details(source=source, old_source=old, functions=functions, meaning=meaning, upstream=upstream, types=kinds)


def _source(value: Any) -> str:
    """Return the source of a function or class of a cell; empty if it is not known."""
    if type(value) is types.FunctionType:
        try:
            return inspect.getsource(value)
        except (OSError, TypeError, ValueError, IndexError):
            return ""
    # The lines of a class of a cell are not known, those of its methods are.
    methods = [_source(one) for one in class_dict(value).values() if type(one) is types.FunctionType]
    body = "".join(textwrap.indent(textwrap.dedent(method), "    ") for method in methods)
    return f"class {class_name(value)}:\n{body}" if body else ""
