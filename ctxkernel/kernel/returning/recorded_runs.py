"""The executions of a path with all that they read and wrote, by the units of their checkpoints (`replay.affected`).

Rule 1: one pass over a path; its cost grows with what the executions read and changed, not with the states.
Rule 2: an effect that cannot be taken from a checkpoint makes an execution opaque, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
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
)
from ctxkernel.core.timeline import Execution, Path, Statement
from ctxkernel.kernel.returning.cell_runs import DRAWS, GENERATORS, CellFacts
from ctxkernel.kernel.returning.comparisons import RunFacts
from ctxkernel.replay.affected import RecordedRun
from ctxkernel.state.ambient import LIBRARY_CALLS, appearing, passive
from ctxkernel.state.base.own_modules import ATTRIBUTES, SHELL
from ctxkernel.state.checkpoints.states import States
from ctxkernel.state.checkpoints.units import Unit, missing_of
from ctxkernel.state.tracking.cell_names import binds_literals
from ctxkernel.state.tracking.read_names import names_bound

CACHES, CALLS = AMBIENT + "function caches", AMBIENT + LIBRARY_CALLS.name
_RANDOM = frozenset(AMBIENT + name for name in GENERATORS)
_OF_PROCESS = frozenset(("logging", "pyplot", "widgets"))
"""Parts whose values name objects of one process: what changes them runs again, and what uses them says so."""


@dataclass(eq=False)
class RecordedRuns:
    """Reads the executions of paths."""

    states: States
    facts: RunFacts
    absent: Callable[[Iterable[str]], list[str]]
    """Returns which data are not stored."""
    _absent: frozenset[str] = frozenset()
    _appearing: Mapping[str, None] = field(
        default_factory=lambda: {AMBIENT + name: None for name in appearing() if not passive(name)}
    )
    _state: dict[str, Unit] = field(default_factory=dict[str, Unit])
    _options: Mapping[str, Unit] = field(default_factory=dict[str, Unit])
    """The parts of the process in `_state` on which any cell may depend. It is replaced where one differs …"""
    _classes: Mapping[str, Unit] = field(default_factory=dict[str, Unit])
    """… and so are the user's classes."""

    def of(self, path: Path) -> list[RecordedRun]:
        """Return the executions of a path, in order."""
        self._state, self._options, self._classes = {}, {}, {}
        self._take(self.first_settings(path), ())
        known = [one for _, run in path if (one := self.states.known.get(run.execution_id)) is not None]
        made = (unit for one in known for unit in self.states.changes(one))
        self._absent = frozenset(self.absent({address for unit in made for address in unit.addresses if address}))
        at: str | None = None
        runs: list[RecordedRun] = []
        for statement, execution in path:
            known = self.states.known.get(execution.execution_id)
            if known is None or (known.base != at and not self._jump(execution.parent_execution_id)):
                runs.append(self._plain(statement, execution, opaque="its state is not known"))
                continue
            made = [*self.states.changes(known)]
            runs.append(self._run(statement, execution, made, known.gone))
            self._take(made, known.gone)
            at = execution.execution_id
        return runs

    def first_settings(self, path: Path) -> list[Unit]:
        """Return the settings of the process with which a path begins, but for those that its first cell changed."""
        known = self.states.known.get(path[0][1].execution_id) if path else None
        if known is None or known.base is not None:
            return []
        facts = self.facts.cells.get(path[0][1].execution_id)
        changed = facts.settings if facts is not None else frozenset(("every", *GENERATORS))
        settings = (one for one in self.states.changes(known) if one.names[0].startswith(AMBIENT))
        return [one for one in settings if one.names[0].removeprefix(AMBIENT) not in changed and one.names[0] != LAST]

    def _jump(self, execution_id: str | None) -> bool:
        """Take the state after an execution; return whether it is known."""
        self._state, self._options, self._classes = {}, {}, {}
        if execution_id is not None and execution_id in self.states.known:
            self._take(self.states.state(execution_id, lambda: None).values(), ())
            return True
        return execution_id is None

    def _take(self, made: Iterable[Unit], gone: Collection[str]) -> None:
        options: dict[str, Unit] = {}
        classes: dict[str, Unit] = {}
        for name in gone:
            self._state.pop(name, None)
        for unit in made:
            for name in unit.names:
                self._state[name] = unit
                if (name.startswith(AMBIENT) and is_option(name)) or name in (MODULE + ATTRIBUTES, MODULE + SHELL):
                    options[name] = unit
                elif name.startswith(CLASS):
                    classes[name] = unit
        self._options = self._replaced(self._options, options, gone)
        self._classes = self._replaced(self._classes, classes, gone)

    def _replaced(self, old: Mapping[str, Unit], new: Mapping[str, Unit], gone: Collection[str]) -> Mapping[str, Unit]:
        if not new and old.keys().isdisjoint(gone):
            return old
        return {name: unit for name, unit in {**old, **new}.items() if name in self._state}

    def _plain(self, statement: Statement, execution: Execution, **more: Any) -> RecordedRun:
        cell, facts = statement.cell_id or statement.statement_id, self.facts.cells.get(execution.execution_id)
        modules = (facts or CellFacts()).modules
        return RecordedRun(
            execution.execution_id,
            cell,
            statement.source,
            files={one.name: one.hash for one in execution.artifacts if one.kind == "read"} | dict(modules),
            written={one.name: one.hash for one in execution.artifacts if one.kind == "file"},
            seconds=self._seconds(execution),
            **more,
        )

    def _seconds(self, execution: Execution) -> float:
        """Return how long a cell took when it ran."""
        facts = self.facts.cells.get(execution.execution_id)
        cost = self.facts.seconds.get(facts.taken_from) if facts is not None and facts.taken_from else None
        return execution.cost.time_ms / 1000 if cost is None else cost

    def _run(
        self, statement: Statement, execution: Execution, made: list[Unit], removed: Collection[str]
    ) -> RecordedRun:
        self.facts.seconds[execution.execution_id] = self._seconds(execution)
        facts = self.facts.cells.get(execution.execution_id)
        if facts is None or facts.beyond is None:
            told = facts.unknown or facts.opaque if facts is not None else ""
            return self._plain(statement, execution, opaque=told or "its reads are not known")
        state = self._state
        effects = {
            name: unit for unit in made for name in unit.names if _counts(name) and not unit.equals(state.get(name))
        }
        if execution.status == "ok":  # a value that is equal to the one before is bound all the same
            again = (facts.bound & names_bound(statement.source)).difference(effects, removed, facts.doubtful)
            bound = ((name, state[name]) for name in again if name in state)
            effects |= {name: unit for name, unit in bound if again.issuperset(unit.names)}
        gone = [name for name in removed if not name.startswith(LABELS)]
        inputs = self._inputs(facts, effects, gone)
        parts: Mapping[str, Unit | None] = {**self._appearing, **self._options}
        if binds_literals(statement.source) and facts.bound.issuperset(effects):
            parts = {name: one for name, one in parts.items() if name == MODULE + SHELL}  # callbacks see each cell
        if facts.draws:
            parts = {**parts, **{name: state[name] for name in _RANDOM if name in state}}
        return self._plain(
            statement,
            execution,
            inputs=inputs,
            classes=self._classes,
            parts=parts,
            effects=effects,
            regrouped=self._regrouped(execution, effects) - facts.bound,  # a bound value may become another one
            new_parts=[name for name in effects if name.startswith(AMBIENT) and name not in state],
            gone=gone,
            binds=facts.bound,
            opaque=self._opaque(facts, execution, effects, gone) or self._uses_cache(made),
        )

    def _regrouped(self, execution: Execution, effects: Mapping[str, Unit]) -> set[str]:
        """Return the variables whose unit is another one although their content is as before, and new labels."""
        diff = execution.changes
        if diff.incomplete:
            return set()
        told = {*diff.added, *diff.changed}
        return {
            name
            for name in effects
            if (name.startswith(SHARED) and name not in self._state) or (is_bound(name) and name not in told)
        }

    def _uses_cache(self, made: Iterable[Unit]) -> str:
        before = self._state.get(CACHES)
        used = before is not None and any(CACHES in one.names and not one.equals(before) for one in made)
        return "it uses or makes the cache of a function" if used else ""

    def _inputs(self, facts: CellFacts, effects: Mapping[str, Unit], gone: Collection[str]) -> dict[str, Unit | None]:
        """Return the names that decide what an execution gave, with what they were before it."""
        state, bound = self._state, facts.bound
        # A name that the text binds and that is as before may have been bound, or not.
        unsure = {name for name in bound if name not in effects and name in state}
        # What it changed without binding it, it has read.
        used = {name for name in effects if name not in bound and not name.startswith((AMBIENT, RESULT))}
        todo = {*facts.reads, *(facts.beyond or ()), *gone, *unsure, *used}
        found: dict[str, Unit | None] = {}
        while todo:
            name = todo.pop()
            unit = found[name] = state.get(name)
            if unit is not None:
                todo.update(one for one in (*unit.names, *unit.labels) if one not in found)
        # Results by number are read by opaque cells only.
        return {name: unit for name, unit in found.items() if not name.startswith(RESULT)}

    def _opaque(
        self, facts: CellFacts, execution: Execution, effects: Mapping[str, Unit], gone: Collection[str]
    ) -> str:
        told = facts.unknown if facts.unknown != DRAWS else ""
        told = told or facts.opaque
        return told or next(self._unfit(execution, effects, gone), "")

    def _unfit(self, execution: Execution, effects: Mapping[str, Unit], gone: Collection[str]) -> Iterator[str]:
        """Yield why the changes of an execution cannot be taken from its checkpoint."""
        state = self._state
        doubts = self.states.doubts(execution.execution_id)
        for name, unit in effects.items():
            if name.startswith((HANDLE, TARGET)):
                yield "it uses handles"
            elif name.startswith(MODULE):
                yield f"it loads or changes {name.removeprefix(MODULE)}"
            elif name.startswith(AMBIENT) and (name in state or name == CALLS) and name not in _RANDOM:
                yield f"it changes the {name.removeprefix(AMBIENT)} settings"
            elif name in doubts:
                yield f"{name} changed without a cell"
            elif unit.job or unit.live or missing_of(unit) or not unit.stream[0]:
                why = next(iter(missing_of(unit).values()), "it is not stored")
                yield f"what it made cannot be taken from its checkpoint: {name} ({why})"
            elif any(label not in effects and label not in state for label in unit.labels):
                yield f"{name} shares memory with what is gone"
        for name in gone:
            if name.startswith((HANDLE, TARGET, MODULE, AMBIENT)):
                yield f"it removes {name}"
        if self._absent and any(not self._absent.isdisjoint(unit.addresses) for unit in effects.values()):
            yield "data of its checkpoint are missing"


def is_option(name: str) -> bool:
    """Return whether any cell may depend on a part of the process."""
    part = name.removeprefix(AMBIENT)
    return name not in _RANDOM and name not in (LAST, FILES) and part not in _OF_PROCESS and not passive(part)


def _counts(name: str) -> bool:
    """Return whether a change of a name is an effect: results by number follow from those, files lie where they lie."""
    return name not in (LAST, FILES) and not (name.startswith(AMBIENT) and passive(name.removeprefix(AMBIENT)))
