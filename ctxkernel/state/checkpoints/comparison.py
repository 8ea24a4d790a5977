"""Comparison of the units of a state with the present ones: kept, loaded, removed and lost by a return.

Rule 1: a name is kept in place only if it is equal, with all that it shares with others.
Rule 2: nothing is changed. A value that cannot be restored is named with the reason.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.reflection import class_of, is_any
from ctxkernel.core.state_names import AMBIENT, SHARED
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.checkpoints import units
from ctxkernel.state.checkpoints.checkpoints import Checkpointer
from ctxkernel.state.checkpoints.states import CheckpointError
from ctxkernel.state.checkpoints.units import State, Unit
from ctxkernel.state.tracking.chunk_addresses import CHUNK, chunks_of
from ctxkernel.state.types import connections
from ctxkernel.state.types.display_objects import TRAITS_ONLY

_AS_NOW = "it cannot be stored, and may have changed since"
_CHANGED = "it changed without a cell that used it, at a time that is not known"


def _not_set_back(missing: Mapping[str, str], now: Collection[str] = ()) -> list[str]:
    """Return the places of objects that a return leaves as they are. `now`: what is said of the present objects."""
    return [place for place, why in missing.items() if TRAITS_ONLY not in why or why.replace(TRAITS_ONLY, "") in now]


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between now and a state."""

    execution_id: str | None
    target: State
    stale: dict[str, str]
    """Names that keep their present value, since no other one is available; and why."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    """Names, or places in their values (`d['x']`), whose content the state had and that cannot be loaded; and why."""
    gaps: dict[str, str] = field(default_factory=dict[str, str])
    """Names that are loaded and may lack an object that they share, since its data are missing; and why."""
    absent: dict[str, str] = field(default_factory=dict[str, str])
    """Names of the state whose data are missing from the store, and why: a return would lose their present values."""
    connect: dict[str, connections.Connection] = field(default_factory=dict[str, connections.Connection])
    """By token: connections of the state that are gone and are made again."""
    keep: tuple[str, ...] = ()
    load: tuple[Unit, ...] = ()
    drop: tuple[str, ...] = ()
    nbytes: int = 0
    """Bytes of the buffers that differ."""
    seconds: float = 0.0
    """The time that the comparison took; a return compares again."""
    held: dict[str, Any] = field(default_factory=dict[str, Any])
    """Values of the state that were held, since their data are not stored."""

    @property
    def restored(self) -> list[str]:
        """The names whose values are replaced by those of the state, or refer to what is."""
        loaded = [name for unit in self.load for name in unit.names]
        return list(dict.fromkeys([*loaded, *self.held, *self.referring]))

    @property
    def referring(self) -> tuple[str, ...]:
        """The names of `keep` that refer to a shared object which gets the content of the state."""
        shared = {name for unit in self.load for name in unit.names if is_shared(name)}
        kept = [name for name in self.keep if name in self.target] if shared else []
        return tuple(name for name in kept if not shared.isdisjoint(labels_of(self.target[name], self.target)))


class StateComparison:
    """Compares states of one session with the present."""

    def __init__(self, checkpoints: Checkpointer) -> None:
        storage = checkpoints.storage
        self._checkpoints, self._tracker = checkpoints, checkpoints.tracker
        self._packer, self._chunks = storage.packer, storage.chunks
        self._address, self._value = storage.address, storage.value

    def compare(self, execution_id: str | None) -> Difference:
        """Return the difference between now and the state after an execution. Raises CheckpointError, StoreError."""
        begun = time.monotonic()
        self._chunks.refresh()  # what of the present state was deleted is held when it is left
        checkpoints = self._checkpoints
        target = checkpoints.state(execution_id)
        current = checkpoints.known_now()
        stale = self._doubtful(execution_id, target, current)
        held = checkpoints.held.get(execution_id, {})
        unstored = checkpoints.unstored | self._tracker.changed_since()
        keep = self._equal_now(target, current, held, unstored)
        keep |= self._proven(target, current, keep, unstored)
        keep -= {each for name in stale for each in target[name].names if held.keys() >= set(target[name].names)}
        found = Difference(execution_id, target, stale)
        load: dict[int, Unit] = {}
        for name, unit in target.items():
            if name in keep or id(unit) in load or name in found.lost:
                continue
            why, gap = self._unloadable(unit), self._gap(unit, target, keep)
            there = {each: held.get(each, self._value(each)) for each in unit.names}
            whole = held.keys() >= there.keys() and (gap or not stale.keys().isdisjoint(there))
            some = not unit.is_exact and not held.keys().isdisjoint(there)
            with_it = self._shared_as_then(unit, found, held, keep) if whole or some else None
            if with_it is not None and self._is_as_then(unit, execution_id, there):
                found.held.update(there)
                found.held.update({label: held[label] for label in with_it if label in held})
                keep |= with_it
                stale |= self._used(unit, execution_id)
                continue
            # An option of the process stays as it is, and an object without a name is part of a named one.
            if gap and (unit.digest or not unit.missing) and not unit.names[0].startswith((AMBIENT, SHARED)):
                lacking = [each for each, value in there.items() if value is not NOTHING or each in current]
                found.absent.update(dict.fromkeys(lacking, gap))
            if why:
                found.lost.update(dict.fromkeys(unit.names, why))
                continue
            if gap:
                found.gaps.update(dict.fromkeys(unit.names, gap))
            self._not_stored(unit, current, found)
            load[id(unit)] = unit
        load = {key: unit for key, unit in load.items() if not keep.issuperset(unit.names)}
        keep = keep.difference(*(unit.names for unit in load.values()))
        for name in keep:
            stale |= self._used(target[name], execution_id)
        nbytes = sum(self._differing(unit, current.get(unit.names[0])) for unit in load.values())
        live = {*current, *self._tracker.names()}
        drop = tuple(sorted(name for name in live if name not in target))
        kept = tuple(name for name in target if name in keep)
        seconds = time.monotonic() - begun
        return replace(found, keep=kept, load=tuple(load.values()), drop=drop, nbytes=nbytes, seconds=seconds)

    def _doubtful(self, execution_id: str | None, target: State, current: State) -> dict[str, str]:
        """Return the names whose value in a state is uncertain, and why. A name with the same unit now is kept."""
        found: dict[str, str] = {}
        doubts = self._checkpoints.states.doubts(execution_id)
        states: dict[str, State] = {later: {} for later in doubts.values()}
        for later in states:
            with contextlib.suppress(CheckpointError):  # of an earlier kernel, without data
                states[later] = self._checkpoints.state(later)
        for name, later in doubts.items():
            if name not in target:
                continue
            found[name] = f"it is as it was last known: {_CHANGED}"
            now, unit = current.get(name), states[later].get(name)
            if now is None or not now.equals(unit) or not target.keys() >= {*now.names, *now.labels}:
                continue
            if any(not set(target[one].names) <= set(now.names) for one in now.names):  # the others come back with it
                continue
            if not doubts.keys() >= set(now.names):  # a cell changed the others
                continue
            if all(label in doubts or current[label].equals(target[label]) for label in now.labels):
                target |= {one: current[one] for one in (*now.names, *now.labels)}
                found[name] = _CHANGED
        return found

    def _equal_now(self, target: State, current: State, held: Mapping[str, Any], unstored: Collection[str]) -> set[str]:
        """Return the names of a state that are equal now, with all objects that they share with others.

        `unstored`: the names whose present unit may not be their present content.
        """
        # A shared object that is another one now may be equal, but what was held refers to the one that was held.
        others = {label for label, obj in held.items() if is_shared(label) and self._packer.part_of(label) is not obj}
        unstored = others.union(unstored)
        keep = {name for name, unit in target.items() if name not in unstored and unit.equals(current.get(name))}
        while True:
            gone = {
                name
                for name in keep
                if any(
                    label not in keep and self._patches(target.get(label), target, current, keep) is None
                    for label in target[name].labels
                )
                or not keep.issuperset(target[name].names)
                or (name.startswith(SHARED) and self._packer.part_of(name) is None)
                or any(token not in self._checkpoints.living(target[name]) for token, _ in target[name].live)
            }
            if not gone:
                return keep
            keep -= gone

    def _proven(self, target: State, current: State, keep: set[str], unstored: set[str]) -> set[str]:
        """Return more names that are equal now: packed as in the state they give the same bytes.

        Names that are stored with them differ, and objects that they share with others now are removed.
        """
        users: dict[str, set[str]] = {}
        for name, unit in current.items():
            for label in unit.labels:
                users.setdefault(label, set()).add(name)
        found: set[str] = set()
        for unit in {id(unit): unit for name, unit in target.items() if name not in keep}.values():
            now = [current[name] for name in unit.names if name in current]
            if len(now) < len(unit.names) or not keep.issuperset(unit.labels):
                continue
            # What is not stored is the same object in both, or it is not known what it was.
            if any(token not in self._checkpoints.living(unit) for token, _ in unit.live):
                continue
            if (unit.missing and unit.stream[0] and not unit.live) or not unit.digest or unit.is_plain:
                continue
            if all(one == unit for one in now) and not self._unloadable(unit):  # it changed since
                continue
            if unstored.isdisjoint(unit.names) and all(map(unit.is_other_than, now)):
                continue
            sharing = {name for one in now for name in one.names}
            others = {label for one in now for label in one.labels}.difference(unit.labels)
            sharing = sharing.union(*(users[label] for label in others))
            if sharing.difference(unit.names).isdisjoint(target) and self._is_packed(unit, self._value):
                found.update(unit.names)
        return found

    def _is_packed(self, unit: Unit, value: Callable[[str], Any]) -> bool:
        """Return whether values, packed as a unit was, are its content."""
        values = {name: value(name) for name in unit.names}
        if any(one is NOTHING for one in values.values()):
            return False
        return self._print(unit, values)[0] == (unit.digest, [one.chunks for one in unit.buffers])

    def _not_stored(self, unit: Unit, current: State, found: Difference) -> None:
        """Add the parts of a unit that are not stored: kept as they are if alive, else connected again, else lost."""
        missing = units.missing_of(unit)
        whole = () if missing else unit.names
        if whole and len(unit.live) == len(unit.again):
            return
        living = self._checkpoints.living(unit)
        again = {one.token: one for one in unit.again if one.token not in living}
        for token, one in again.items():
            if why := connections.REGISTRY.why_not(one.kind):
                found.lost.update(dict.fromkeys(one.places, why))
            else:
                found.connect[token] = one.joined(found.connect.get(token))
            missing = {place: told for place, told in missing.items() if place not in one.places}
        now, unstored = current.get(unit.names[0]), not self._checkpoints.unstored.isdisjoint(unit.names)
        alive = bool(unit.live) and all(token in living or token in again for token, _ in unit.live)
        if not alive:
            found.lost.update({place: f"{why}; what it was is gone" for place, why in missing.items()})
        elif unstored or not unit.equals(now):
            stays = missing if now is None else _not_set_back(missing, units.missing_of(now).values())
            found.stale.update(dict.fromkeys(whole or stays, _AS_NOW))
        else:
            found.stale.update(self._used(unit, found.execution_id))

    def _used(self, unit: Unit, execution_id: str | None) -> dict[str, str]:
        """Return the parts of a unit that are not stored, nor set back, and may have been used since a state."""
        if not self._checkpoints.used_since(unit, execution_id):
            return {}
        missing = units.missing_of(unit)
        return dict.fromkeys(_not_set_back(missing) if missing else unit.names, _AS_NOW)

    def _unloadable(self, unit: Unit) -> str:
        """Return why a unit cannot be loaded, or an empty text."""
        if not unit.stream[0]:
            return next(iter(unit.missing.values()), "it was not stored")
        gone = self._checkpoints.storage.absent(unit.addresses)
        return f"its data are missing: {self._chunks.why_missing(gone[0])}" if gone else ""

    def _gap(self, unit: Unit, state: State, keep: Collection[str] = ()) -> str:
        """Return why a unit, or an object that it shares with others, cannot be loaded; empty where all can."""
        reasons = (self._unloadable(one) for one in (unit, *labels_of(unit, state, keep).values()))
        return next(filter(None, reasons), "")

    def _is_as_then(self, unit: Unit, execution_id: str | None, held: Mapping[str, Any]) -> bool:
        """Return whether values that were held when a state was left did not change."""
        if any(held.get(name, NOTHING) is NOTHING for name in unit.names):
            return False
        if self._checkpoints.left == (execution_id, self._tracker.turn - 1):
            return True
        known = self._checkpoints.prints.get((execution_id, unit.names))
        whole, body = self._print(unit, held)
        return body == known or whole == (unit.digest, [one.chunks for one in unit.buffers])

    def _shared_as_then(
        self, unit: Unit, difference: Difference, held: Mapping[str, Any], keep: Collection[str]
    ) -> set[str] | None:
        """Return the objects of a state that a unit shares with others, where all of them live and are equal."""
        target = difference.target
        found, todo = set[str](), [label for label in unit.labels if label not in keep]
        while todo:
            label = todo.pop()
            if label not in target:
                return None
            is_as_then = label in held and self._is_as_then(target[label], difference.execution_id, held)
            if not is_as_then and (label in held or not self._is_packed(target[label], self._any)):
                return None
            found.add(label)
            todo += [one for one in target[label].labels if one not in found and one not in keep]
        return found

    def _print(self, unit: Unit, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return two keys that are equal for equal values of a unit's names; the second one without labels."""
        packed = self._packer.pack({name: values[name] for name in unit.names}, labels=unit.labels)
        chunks = [chunks_of(view) for view in packed.buffers]
        return (self._address(packed.stream), chunks), (self._address(packed.body), chunks)

    @staticmethod
    def _differing(unit: Unit, now: Unit | None) -> int:
        there = set(now.chunks if now else ())
        return sum(
            min(CHUNK, buffer.nbytes - at * CHUNK)
            for buffer in unit.buffers
            for at, chunk in enumerate(buffer.chunks)
            if chunk not in there
        )

    def _any(self, name: str) -> Any:
        obj = self._packer.labels.object(name)
        return self._value(name) if obj is None else obj

    def _patches(
        self, unit: Unit | None, target: State, current: State, keep: Collection[str]
    ) -> list[tuple[memoryview, str]] | None:
        """Return the chunks to write where a unit and its references differ in buffers only; else None."""
        if unit is None:
            return None
        shared = labels_of(unit, target, keep)
        if any(one not in shared and one not in keep for each in (unit, *shared.values()) for one in each.labels):
            return None
        if any(self._own_patches(one, current) is None for one in shared.values()):
            return None
        return self._own_patches(unit, current)

    def _own_patches(self, unit: Unit, current: State) -> list[tuple[memoryview, str]] | None:
        """Return the chunks of `_patches`, whatever the unit refers to."""
        now = current.get(unit.names[0])
        if now is None or now.names != unit.names:
            return None
        if not unit.buffers or now.live or unit.live or unit.missing or self._unloadable(now):
            return None  # unstored objects are held, and stay the same
        if now.digest != unit.digest or [one.nbytes for one in now.buffers] != [one.nbytes for one in unit.buffers]:
            return None
        values = {name: self._any(name) for name in unit.names}
        if any(value is NOTHING for value in values.values()) or _shares_lazily(values):
            return None
        if not self._checkpoints.unstored.isdisjoint(unit.names):
            return None
        packed = self._packer.pack(values)
        if self._address(packed.stream) != unit.digest or any(view.readonly for view in packed.buffers):
            return None
        return [
            (view[at * CHUNK : (at + 1) * CHUNK], new)
            for view, have, want in zip(packed.buffers, now.buffers, unit.buffers, strict=True)
            for at, (old, new) in enumerate(zip(have.chunks, want.chunks, strict=True))
            if old != new
        ]


def _shares_lazily(values: Mapping[str, Any]) -> bool:
    """Return whether a frame shares memory with another one until a write, which pandas would not notice."""
    frames = [one for one in values.values() if is_any(class_of(one), ("pandas", "DataFrame"), ("pandas", "Series"))]
    blocks = (block for one in frames for block in getattr(getattr(one, "_mgr", None), "blocks", ()))
    return any(block.refs.has_reference() for block in blocks)


def labels_of(unit: Unit, state: State, keep: Collection[str] = ()) -> State:
    """Return by label the units of the objects that a unit shares with others, directly or not.

    Labels in `keep` are left out, and what is shared only through them.
    """
    found: State = {}
    todo = list(unit.labels)
    while todo:
        label = todo.pop()
        if label in state and label not in found and label not in keep:
            found[label] = state[label]
            todo += state[label].labels
    return found


def is_shared(name: str) -> bool:
    """Return whether a name of a state is the label of an object that several names share."""
    return name.startswith(SHARED)
