"""The result of an earlier execution in place of running its cell: its changes are taken from its checkpoint.

Rule 1: the present state is that of the last checkpoint: no code ran since. Only the units that the execution changed
        are loaded; all others stay the same objects.
Rule 2: everything is loaded before anything is changed. What cannot be loaded whole is not taken; the cell runs then.
        So it does where a function would be loaded whose cache has entries: these have no stored form.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ctxkernel.core.errors import CtxError
from ctxkernel.core.state_names import AMBIENT, CLASS, is_bound, without
from ctxkernel.core.timeline import ChangeInfo, Execution, NamespaceDiff
from ctxkernel.kernel.returning.cell_runs import CellFacts
from ctxkernel.kernel.returning.comparisons import RunFacts
from ctxkernel.kernel.returning.live_state import LiveState
from ctxkernel.kernel.returning.return_services import ReturnServices
from ctxkernel.replay.affected import RecordedRun
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.checkpoints.checkpoints import Checkpointer
from ctxkernel.state.checkpoints.comparison import Difference
from ctxkernel.state.checkpoints.restore import Fetched, Restorer
from ctxkernel.state.checkpoints.unit_contents import UnitContents
from ctxkernel.state.checkpoints.units import Unit

T = TypeVar("T")


class KeptResults:
    """Puts results of earlier executions in place."""

    def __init__(
        self, session: ReturnServices, live: LiveState, facts: RunFacts, checkpoints: Checkpointer, restorer: Restorer
    ) -> None:
        self._session = session
        self._live = live
        self._facts = facts
        self._checkpoints = checkpoints
        self._restorer = restorer
        self.contents = UnitContents(checkpoints.storage.chunks.read)
        self.source: str | None = None
        """The execution whose result the running statement takes; the next checkpoint has its facts."""
        self._renames: Mapping[str, str] = {}
        """Labels in these facts → those of the equal objects of now."""

    def fetch(self, run: RecordedRun, renames: Mapping[str, str]) -> Fetched | None:
        """Load what an execution changed; None if a part of it cannot be loaded.

        `renames`: labels of objects that it used → those of the equal objects of now.
        """
        now = self._checkpoints.known_now()
        effects: Mapping[str, Unit] = run.effects
        self._renames = renames
        if renames:
            try:
                held = {name: self._labels(unit) for name, unit in effects.items()}
            except (CtxError, ValueError):
                return None
            self._renames = renames = _with_new_classes(run, held, renames)
            effects = {renames.get(name, name): _renamed(unit, held[name], renames) for name, unit in effects.items()}
            effects = {name: effects[unit.names[0]] for name, unit in effects.items()}  # one object for a unit
        gone = {name: "it is deleted" for name in run.gone if name in now}
        target = {**now, **effects}
        # A unit with renames has the bytes of then: equal bytes may hold the class of then.
        changed = (unit for name, unit in effects.items() if unit.renames or not unit.equals(now.get(name)))
        load = {id(unit): unit for unit in changed}
        while more := {id(unit): unit for unit in target.values() if id(unit) not in load and _refers(unit, load)}:
            load |= more
        again = (name for unit in load.values() for name in unit.names if name not in run.binds)
        if self._live.caches.are_filled(again):  # the cell, running, would not have emptied them
            return None
        keep = tuple(name for name, unit in target.items() if id(unit) not in load and name not in gone)
        difference = Difference(
            self._checkpoints.base,
            target,
            stale={},
            lost=gone,
            keep=keep,
            load=tuple(load.values()),
            drop=tuple(gone),
            nbytes=sum(unit.nbytes for unit in load.values()),
        )
        try:
            fetched = self._restorer.fetch(difference)
        except CtxError:
            return None
        return fetched if fetched.lost.keys() == gone.keys() and not fetched.as_now else None

    def _labels(self, unit: Unit) -> tuple[str, ...]:
        """Return the labels in a unit, its own included. Raises StoreError, ValueError."""
        return (*unit.names, *(() if unit.is_plain else self.contents.labels(unit)))

    def take(self, fetched: Fetched, run: RecordedRun, execution: Execution) -> None:
        """Make the loaded changes of an execution those of the statement that runs now."""
        session, live, difference = self._session, self._live, fetched.difference
        before = {name: live.value(name) for name in (*fetched.values, *difference.drop) if is_bound(name)}
        self._restorer.settle(fetched)
        live.adopt_copies(before, fetched.values)
        if parts := live.ambient_values(without(AMBIENT, run.effects), fetched.values):
            live.ambient.restore(parts)
        for number in live.result_numbers(run.effects):
            live.show_result(number)
        self.source = execution.execution_id
        equal = (set(run.effects) | set(run.gone)) - before.keys()
        session.tracker.tell(self._changes(execution, before, equal))

    @staticmethod
    def _changes(execution: Execution, before: Mapping[str, Any], equal: Collection[str]) -> NamespaceDiff:
        """Return the changes of an execution where other names may have had values before it.

        `equal`: names that had the same values as after it, or did not exist either.
        """
        diff = execution.changes
        there = {name for name in diff.added if before.get(name, NOTHING) is not NOTHING}
        changed = {
            name: ChangeInfo(info.type, info.repr, info.size) for name, info in diff.added.items() if name in there
        }
        added = {name: info for name, info in diff.added.items() if name not in there and name not in equal}
        changed |= {name: info for name, info in diff.changed.items() if name not in equal}
        return NamespaceDiff(added, changed, tuple(name for name in diff.deleted if name not in equal))

    def take_facts(self, execution_id: str) -> bool:
        """Take the facts about the execution whose result was just taken; return whether there is one."""
        source, self.source = self.source, None
        if source is None:
            return False
        facts, names = self._facts, self._renames
        known = facts.cells.get(source, CellFacts())
        beyond = known.beyond and frozenset(names.get(one, one) for one in known.beyond)
        facts.cells[execution_id] = replace(known, beyond=beyond, taken_from=known.taken_from or source)
        _copy(facts.fingerprints, source, execution_id)
        _copy(facts.touched, source, execution_id)
        _copy(self._live.ambient_changed, source, execution_id)
        return True


def _with_new_classes(
    run: RecordedRun, held: Mapping[str, tuple[str, ...]], renames: Mapping[str, str]
) -> dict[str, str]:
    """Return the labels with new ones for classes that an execution made of objects that were made again.

    Such a class differs from the one that has its label: it has another base, say.
    """
    found = dict(renames)
    todo = [name for name in held if name.startswith(CLASS) and run.inputs.get(name) is None]
    while more := [name for name in todo if name not in found and not found.keys().isdisjoint(held[name])]:
        found |= {name: f"{CLASS}{uuid.uuid4().hex[:16]}" for name in more}
    return found


def _renamed(unit: Unit, held: Collection[str], renames: Mapping[str, str]) -> Unit:
    if renames.keys().isdisjoint(held):
        return unit
    names, labels = (tuple(renames.get(one, one) for one in listed) for listed in (unit.names, unit.labels))
    return replace(unit, names=names, labels=labels, renames=renames)


def _copy(table: dict[str, T], source: str, target: str) -> None:
    if source in table:
        table[target] = table[source]


def _refers(unit: Unit, load: Mapping[int, Unit]) -> bool:
    """Return whether a unit refers to an object of its own pack that is loaded anew."""
    return any(label in one.names for label in unit.labels for one in load.values())
