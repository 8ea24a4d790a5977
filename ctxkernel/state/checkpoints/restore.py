"""Brings a state back: what differs from now, and only that.

    compare   the units of a state with those of now: what is kept, loaded, dropped, lost
    fetch     unpickle what is loaded; where only the content of large buffers differs, note what to write into them
    settle    write, bind names, tell the tracker

Rule 1: what equals the present is kept in place, so that live objects stay the same objects.
Rule 2: nothing is changed before all was fetched: a fault or an interrupt until then leaves everything as it was.
Rule 3: what could not be brought back is named with the reason; no restore pretends.
"""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ctxkernel.core.errors import CtxError
from ctxkernel.core.reflection import is_any
from ctxkernel.core.text import format_size
from ctxkernel.state.base.variables import NOTHING
from ctxkernel.state.checkpoints import units
from ctxkernel.state.checkpoints.checkpoints import PLAIN, Checkpointer
from ctxkernel.state.checkpoints.states import CheckpointError
from ctxkernel.state.checkpoints.units import Buffer, State, Unit
from ctxkernel.state.tracking.groups import CHUNK, chunks_of
from ctxkernel.state.types import connections
from ctxkernel.state.types.arrays import allocate
from ctxkernel.state.types.code import Again
from ctxkernel.state.types.packer import Lost

_AS_NOW = "it cannot be stored, and was used since: it is as it is now"
_CHANGED = "it changed without a cell that used it, at a time that is not known"
_NAME = re.compile(r"\w+(:[\w.]+)?")
"""The name with which a place in a value begins."""
COPY_BYTES = 256 * 1024 * 1024
"""Up to so many bytes a value of another state is copied to be compared."""
HELD_BYTES = 64 * 1024 * 1024
"""Large data up to which values are held that share objects with something that has no stored form."""
_MARGIN = 1.5
"""So many times the memory that a state needs has to be free, to load it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What lies between now and a state."""

    execution_id: str | None
    target: State
    stale: dict[str, str]
    """Names that come back as they are now, since nothing else of them is there; and why."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    """Names, or places in their values (`d['x']`), whose content the state had and that cannot be loaded; and why."""
    absent: dict[str, str] = field(default_factory=dict[str, str])
    """Names of the state whose data are missing from the store, and why: a return would lose their present values."""
    connect: dict[str, connections.Connection] = field(default_factory=dict[str, connections.Connection])
    """By token: connections of the state that are gone and are made again."""
    keep: tuple[str, ...] = ()
    load: tuple[Unit, ...] = ()
    drop: tuple[str, ...] = ()
    nbytes: int = 0
    """Bytes of the buffers that differ."""
    held: dict[str, Any] = field(default_factory=dict[str, Any])
    """Values of the state that were held, since their data are not stored."""


@dataclass(slots=True)
class Fetched:
    """What is ready to be put in place."""

    difference: Difference
    current: State
    """What is live until it is in place, by what is stored of it."""
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    patches: list[tuple[memoryview, str]] = field(default_factory=list[tuple[memoryview, str]])
    """Places in live buffers, and the chunks that belong there."""
    patched: set[str] = field(default_factory=set[str])
    again: dict[str, Again] = field(default_factory=dict[str, Again])
    """By uid: living classes, and what they become."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    as_now: dict[str, str] = field(default_factory=dict[str, str])
    made: dict[str, Any] = field(default_factory=dict[str, Any])
    """New connections by token; a NotConnected for one that could not be made."""
    connected: dict[str, connections.Connection] = field(default_factory=dict[str, connections.Connection])
    """What they are connected from, and where they are."""


class Restorer:
    """Brings states back.

    `bind(values, gone)` sets and removes variables and pseudo-names; `free_memory()` gives bytes, or None if unknown;
    `head()` gives the execution that ended last, which may have no checkpoint.
    """

    def __init__(
        self,
        checkpoints: Checkpointer,
        *,
        bind: Callable[[Mapping[str, Any], Sequence[str]], None],
        free_memory: Callable[[], int | None],
        head: Callable[[], str | None],
    ) -> None:
        storage = checkpoints.storage
        self._checkpoints, self._tracker = checkpoints, checkpoints.tracker
        self._packer, self._chunks = storage.packer, storage.chunks
        self._address, self._value = storage.address, storage.value
        self._bind = bind
        self._free_memory = free_memory
        self._head = head
        self._unlike: tuple[str | None, set[str]] = None, set()
        """The state that was restored last, and names that may not be as it has them."""

    # -- before anything is touched -----------------------------------------------------------

    def compare(self, execution_id: str | None) -> Difference:
        """Return what lies between now and the state after an execution. Raises CheckpointError."""
        checkpoints = self._checkpoints
        target = checkpoints.state(execution_id)
        current = checkpoints.known_now()
        stale = self._doubtful(execution_id, target, current)
        held = checkpoints.held.get(execution_id, {})
        keep = self._equal_now(target, current, held)
        keep |= self._proven(target, current, keep)
        keep -= {each for name in stale for each in target[name].names if held.keys() >= set(target[name].names)}
        found = Difference(execution_id, target, stale)
        load: dict[int, Unit] = {}
        for name, unit in target.items():
            if name in keep or id(unit) in load or name in found.lost:
                continue
            why, gap = self._unloadable(unit), self._gap(unit, target, keep)
            there = {each: held.get(each, self._value(each)) for each in unit.names}
            whole = held.keys() >= there.keys() and (gap or not stale.keys().isdisjoint(there))
            some = bool(unit.live) and not held.keys().isdisjoint(there)
            with_it = self._shared_as_then(unit, found, held, keep) if whole or some else None
            if with_it is not None and self._is_as_then(unit, execution_id, there):
                found.held.update(there)
                found.held.update({label: held[label] for label in with_it if label in held})
                keep |= with_it
                stale |= self._used(unit, execution_id)
                continue
            # An option of the process stays as it is, and an object without a name is part of what has one.
            if gap and (unit.digest or not unit.missing) and not unit.names[0].startswith(("ambient:", "shared:")):
                lacking = [each for each, value in there.items() if value is not NOTHING or each in current]
                found.absent.update(dict.fromkeys(lacking, gap))
            if why:
                found.lost.update(dict.fromkeys(unit.names, why))
                continue
            self._not_stored(unit, current, found)
            load[id(unit)] = unit
        for name in keep:
            stale |= self._used(target[name], execution_id)
        load = {key: unit for key, unit in load.items() if keep.isdisjoint(unit.names)}
        nbytes = sum(self._differing(unit, current.get(unit.names[0])) for unit in load.values())
        live = {*current, *self._tracker.names()}
        drop = tuple(sorted(name for name in live if name not in target))
        kept = tuple(name for name in target if name in keep)
        return replace(found, keep=kept, load=tuple(load.values()), drop=drop, nbytes=nbytes)

    def _doubtful(self, execution_id: str | None, target: State, current: State) -> dict[str, str]:
        """Return the names whose value in a state is not certain, and why. One that is live still stays as it is."""
        found: dict[str, str] = {}
        doubts = self._checkpoints.states.doubts(execution_id)
        states: dict[str, State] = {later: {} for later in doubts.values()}
        for later in states:
            with contextlib.suppress(CheckpointError):  # an earlier kernel's, of which nothing is left
                states[later] = self._checkpoints.state(later)
        for name, later in doubts.items():
            if name not in target:
                continue
            found[name] = f"it is as it was last known: {_CHANGED}"
            now, unit = current.get(name), states[later].get(name)
            if now is None or not now.equals(unit) or not target.keys() >= {*now.names, *now.labels}:
                continue
            if not doubts.keys() >= set(now.names):  # a cell changed the others
                continue
            if all(label in doubts or current[label].equals(target[label]) for label in now.labels):
                target |= {one: current[one] for one in (*now.names, *now.labels)}
                found[name] = _CHANGED
        return found

    def _equal_now(self, target: State, current: State, held: Mapping[str, Any]) -> set[str]:
        """Return the names of a state that are equal to what is there now, with all that they share with others."""
        unstored = self._checkpoints.unstored | self._tracker.changed_since()
        # A shared object that is another one now may be equal, but what was held refers to the one that was held.
        unstored = unstored | {
            label for label, obj in held.items() if _is_shared(label) and self._packer.part_of(label) is not obj
        }
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
                or (name.startswith("shared:") and self._packer.part_of(name) is None)
                or any(token not in self._checkpoints.living(target[name]) for token, _ in target[name].live)
            }
            if not gone:
                return keep
            keep -= gone

    def _proven(self, target: State, current: State, keep: set[str]) -> set[str]:
        """Return more names that are equal to what is there now, though what they are stored together with is not.

        Packed as the state has them they give the same bytes, and what they share now with others goes.
        """
        users: dict[str, set[str]] = {}
        for name, unit in current.items():
            for label in unit.labels:
                users.setdefault(label, set()).add(name)
        found: set[str] = set()
        for unit in {id(unit): unit for name, unit in target.items() if name not in keep}.values():
            now = [current[name] for name in unit.names if name in current]
            if len(now) < len(unit.names) or unit.live or not keep.issuperset(unit.labels):
                continue
            if (unit.missing and unit.stream[0]) or not unit.digest or unit.digest.startswith(PLAIN):
                continue
            if all(one == unit for one in now) and not self._unloadable(unit):  # it changed since
                continue
            sharing = {name for one in now for name in one.names}
            others = {label for one in now for label in one.labels}.difference(unit.labels)
            sharing = sharing.union(*(users[label] for label in others))
            if sharing.difference(unit.names).isdisjoint(target) and self._is_packed(unit, self._value):
                found.update(unit.names)
        return found

    def _is_packed(self, unit: Unit, value: Callable[[str], Any]) -> bool:
        """Say whether values, packed as a unit was, are its content."""
        values = {name: value(name) for name in unit.names}
        if any(one is NOTHING for one in values.values()):
            return False
        return self._print(unit, values)[0] == (unit.digest, [one.chunks for one in unit.buffers])

    def _not_stored(self, unit: Unit, current: State, found: Difference) -> None:
        """Say what of a unit cannot be had as it was: as it is now if alive, else connected again, else lost."""
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
        alive = bool(unit.live) and all(token in living or token in again for token, _ in unit.live)
        if not alive:
            found.lost.update({place: f"{why}; what it was is gone" for place, why in missing.items()})
        elif not unit.equals(current.get(unit.names[0])) or not self._checkpoints.unstored.isdisjoint(unit.names):
            found.stale.update(dict.fromkeys(whole or missing, _AS_NOW))
        else:
            found.stale.update(self._used(unit, found.execution_id))

    def _used(self, unit: Unit, execution_id: str | None) -> dict[str, str]:
        """Return what of a unit is not stored and may have been used since a state."""
        used = self._checkpoints.used_since(unit, execution_id)
        return dict.fromkeys(units.missing_of(unit) or unit.names, _AS_NOW) if used else {}

    def _unloadable(self, unit: Unit) -> str:
        """Say why nothing of a unit can be loaded, or return an empty text."""
        if not unit.stream[0]:
            return next(iter(unit.missing.values()), "it was not stored")
        gone = self._checkpoints.storage.absent(unit.addresses)
        return f"its data are missing: {self._chunks.why_missing(gone[0])}" if gone else ""

    def _gap(self, unit: Unit, state: State, keep: Collection[str] = ()) -> str:
        """Say why a unit, or what it shares with others, cannot be loaded; an empty text where all can."""
        shared = (state[label] for label in unit.labels if label in state and label not in keep)
        return self._unloadable(unit) or next(filter(None, (self._gap(one, state, keep) for one in shared)), "")

    def _is_as_then(self, unit: Unit, execution_id: str | None, held: Mapping[str, Any]) -> bool:
        """Say whether values that were held when a state was left are still what they were."""
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
        """Return the objects of a state that a unit shares with others, where all of them live and are as then."""
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
        """Return what is equal for equal values of a unit's names, and the same whatever its objects are called."""
        packed = self._packer.pack({name: values[name] for name in unit.names}, labels=unit.labels)
        chunks = [chunks_of(view) for view in packed.buffers]
        return (self._address(packed.stream), chunks), (self._address(packed.body), chunks)

    @staticmethod
    def _differing(unit: Unit, now: Unit | None) -> int:
        there = set(now.chunks if now else ())
        return sum(
            min(CHUNK, buffer.nbytes) for buffer in unit.buffers for chunk in buffer.chunks if chunk not in there
        )

    def then(self, execution_id: str, name: str) -> Any:
        """Return a copy of what a variable was after an execution; NOTHING where that takes more than a moment."""
        try:
            state = self._checkpoints.state(execution_id)
            unit = state.get(name)
            if unit is None or unit.live or unit.missing or unit.parts or self._unloadable(unit):
                return NOTHING
            if unit.digest.startswith(PLAIN):
                return self.plain(unit)
            if unit.nbytes > COPY_BYTES:
                return NOTHING
            made: dict[str, Any] = {}

            def load(unit: Unit) -> dict[str, Any]:
                buffers = [self._memory(buffer) for buffer in unit.buffers]
                return self._packer.unpack(self._stream(unit), buffers, shared=shared, trial=True)

            def shared(label: str) -> Any:
                if label not in made:
                    made.update(load(state[label]))
                return made[label]

            return load(unit).get(name, NOTHING)
        except Exception:  # code of the user's may run: a `__setstate__`
            return NOTHING

    # -- fetching -----------------------------------------------------------------------------

    def fetch(self, difference: Difference) -> Fetched:
        """Load what differs; changes nothing but what the user's own `__setstate__` changes.

        Raises CheckpointError where there is not memory enough.
        """
        free = self._free_memory()
        if free is not None and difference.nbytes * _MARGIN > free:
            raise CheckpointError(
                f"this state needs {format_size(difference.nbytes)} that are not in memory now, and "
                f"{format_size(free)} are free; del what you do not need, or go to a state that is nearer"
            )
        self._checkpoints.storage.wait_for(difference.target)
        known = self._checkpoints.known_now()
        for unit in difference.load if not difference.held else ():  # these may be instances of classes that live
            for name in unit.names:
                if name.startswith("class:") and name not in known:
                    self._packer.classes.forget(name[6:])  # one that is only not collected yet
        fetched = Fetched(difference, known, lost=dict(difference.lost), values=dict(difference.held))
        for unit in sorted(difference.load, key=_order):
            if not fetched.values.keys() >= set(unit.names):  # else it was loaded by what refers to it
                self._guarded(fetched, unit, lambda unit=unit: self._fetch(fetched, unit))
        return fetched

    def _class(self, fetched: Fetched, uid: str) -> object | None:
        """Make a class of a state that is not alive, with what is stored with it; instances of it are being loaded."""
        unit = fetched.difference.target.get(f"class:{uid}")
        if unit is None or not unit.digest:
            return None
        self._fetch(fetched, unit)
        return fetched.values[f"class:{uid}"]

    def _redefine(self, fetched: Fetched, again: Again) -> None:
        if not again.redefine():
            why = "its instances do not fit the class that it was"
            fetched.as_now |= {name: why for name in self._tracker.names() if self._value(name) is again.cls}

    def _guarded(self, fetched: Fetched, unit: Unit, step: Callable[[], None]) -> None:
        try:
            step()
        except (CtxError, OSError) as fault:
            fetched.lost |= dict.fromkeys(unit.names, str(fault))
        except Exception as fault:  # code of the user's ran: a `__setstate__`, a class that is another now
            fetched.lost |= dict.fromkeys(unit.names, f"{type(fault).__name__} while loading: {fault}"[:200])

    def _fetch(self, fetched: Fetched, unit: Unit) -> None:
        difference = fetched.difference
        patches = self._patches(unit, difference.target, fetched.current, difference.keep)
        if patches is not None:
            fetched.patches += patches
            fetched.patched.update(unit.names)
            return
        if unit.digest.startswith(PLAIN):
            fetched.values[unit.names[0]] = self.plain(unit)
            return
        living = self._checkpoints.living(unit)
        buffers = [self._memory(buffer) for buffer in unit.buffers]
        said, gone = list[str](), list[str]()
        for name in unit.names:  # instances of a living class may be kept in place, or be held by others
            if name.startswith("class:") and (cls := self._packer.part_of(name)) is not None:
                fetched.again[name[6:]] = Again(cls, all(one.startswith("class:") for one in unit.names))
        values = self._packer.unpack(
            self._stream(unit),
            buffers,
            again=fetched.again,
            handles=self._checkpoints.storage.handle,
            live=lambda token: living[token] if token in living else self._connect(fetched, unit, token),
            classes=lambda uid: self._class(fetched, uid),
            shared=lambda label: self._shared(fetched, label),
            lost=lambda what: gone.append(what) or Lost(what),
            report=said,
        )
        for token, _ in unit.live:
            if token.startswith("unequal:") and token in living:
                values[token.removeprefix("unequal:").rpartition(":")[0]] = living[token]
        fetched.values = values | fetched.values  # a class that refers to itself may have been made by what it holds
        if not said:
            return
        why = f"a part of it cannot be had back: {'; '.join(said[:3])}"
        told = {found[0] for place in fetched.lost if (found := _NAME.match(place))}
        # Where there are more things to say than stand-ins, any name may hold the others.
        all_names = len(gone) < len(said) and fetched.lost.keys().isdisjoint(units.missing_of(unit))
        for name in unit.names:
            if name.startswith(("class:", "shared:")) or (name in told and not all_names):
                continue
            if all_names or any(type(one) is Lost for one in self._packer.pack({"": values.get(name)}).noted):
                fetched.lost[name] = why

    def _connect(self, fetched: Fetched, unit: Unit, token: str) -> object | None:
        """Return a new connection in place of one that is gone, the same one for each reference; else None."""
        one = next((one for one in unit.again if one.token == token), None)
        if one is None:
            return None
        if token not in fetched.made:
            try:
                fetched.made[token] = one.connect()
            except connections.NotConnected as fault:
                fetched.made[token] = fault
        made = fetched.made[token]
        if type(made) is connections.NotConnected:
            fetched.lost |= dict.fromkeys(one.places, str(made))
            return None
        fetched.connected[token] = one.joined(fetched.connected.get(token))
        return made

    def _shared(self, fetched: Fetched, label: str) -> object | None:
        """Return an object with a unit of its own: the living one where it is kept or patched, else a new one."""
        if label in fetched.values:
            return fetched.values[label]
        unit = fetched.difference.target.get(label)
        if unit is None:
            return None
        if label in fetched.difference.keep or label in fetched.patched:
            return self._packer.part_of(label)
        self._fetch(fetched, unit)
        return self._packer.part_of(label) if label in fetched.patched else fetched.values.get(label)

    def plain(self, unit: Unit) -> Any:
        """Return the value of a unit that holds plain values. Raises StoreError."""
        return pickle.loads(self._stream(unit))[unit.digest]

    def _stream(self, unit: Unit) -> memoryview:
        return units.unbundle(self._chunks.read(unit.stream[0]), unit.stream[1])

    def _memory(self, buffer: Buffer) -> memoryview:
        """Return the content of a buffer in memory of its own: mapped where it lies in the store in one piece."""
        mapped = self._chunks.map_run(buffer.chunks)
        if mapped is not None:
            return mapped[: buffer.nbytes]
        memory = allocate(buffer.nbytes)
        for at, chunk in enumerate(buffer.chunks):
            self._chunks.read_into(chunk, memory[at * CHUNK : min((at + 1) * CHUNK, buffer.nbytes)])
        return memory

    def _any(self, name: str) -> Any:
        obj = self._packer.labels.object(name)
        return self._value(name) if obj is None else obj

    def _patches(
        self, unit: Unit | None, target: State, current: State, keep: Collection[str]
    ) -> list[tuple[memoryview, str]] | None:
        """Where a unit differs from now in the content of large buffers only, return what to write; else None.

        What it refers to is kept then, or patched as well.
        """
        now = current.get(unit.names[0]) if unit is not None else None
        if unit is None or now is None or now.names != unit.names:
            return None
        if not unit.buffers or now.live or unit.live or unit.missing or self._unloadable(now):
            return None  # what is not stored is held, and stays what it is
        if now.digest != unit.digest or [one.nbytes for one in now.buffers] != [one.nbytes for one in unit.buffers]:
            return None
        values = {name: self._any(name) for name in unit.names}
        if any(value is NOTHING for value in values.values()) or _shares_lazily(values):
            return None
        if not self._checkpoints.unstored.isdisjoint(unit.names):
            return None
        if any(
            one not in keep and self._patches(target.get(one), target, current, keep) is None for one in unit.labels
        ):
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

    # -- putting in place ---------------------------------------------------------------------

    def settle(self, fetched: Fetched) -> dict[str, str]:
        """Make the fetched state the present. Returns the names that could not be brought back, and why."""
        difference, lost = fetched.difference, fetched.lost
        for view, chunk in fetched.patches:
            self._chunks.read_into(chunk, view)
        for uid, again in fetched.again.items():
            unit = difference.target[f"class:{uid}"]
            self._guarded(fetched, unit, lambda again=again: self._redefine(fetched, again))
        gone = {name for name in lost if name in difference.target and name not in fetched.values}
        self._hold(difference, gone)
        for label, obj in fetched.values.items():
            if label.startswith("shared:"):
                self._packer.labels.replace(label, obj)
        for token in fetched.connected:
            self._checkpoints.connected(token, fetched.made[token])
        self._bind(fetched.values, [*difference.drop, *gone])
        recorded = self._checkpoints.state(difference.execution_id)
        others = [name for name, unit in difference.target.items() if unit is not recorded.get(name)]
        self._checkpoints.settled(difference.execution_id, difference.target, gone, others)
        # What is alive only may have gone on, or hold the objects that these were: it is compared with no stored state.
        self._unlike = difference.execution_id, {name for unit in difference.load if unit.live for name in unit.names}
        # What came back without a part of it is not what is stored.
        lacking = fetched.values.keys() & {found[0] for place in lost if (found := _NAME.match(place))}
        shared = [label for label in difference.held if _is_shared(label)]
        held = difference.held.keys() | self._unlike[1] | lacking
        loaded = [*(unit.names for unit in difference.load), *((label,) for label in shared)]
        self._tracker.settle(difference.target, loaded, held.difference(shared))
        return lost

    def _hold(self, difference: Difference, gone: set[str]) -> None:
        """Hold what the present loses and whose data are not stored, so that the way back finds it."""
        current = self._checkpoints.known_now()
        doubtful = self._checkpoints.states.doubts(self._checkpoints.base)
        leaving = {
            *difference.drop,
            *gone,
            *(name for unit in difference.load for name in unit.names),
            *difference.held,
        }
        held: dict[str, Any] = {}
        for name in leaving:
            unit = current.get(name)
            if name.startswith(("class:", "shared:")):
                continue
            # Something in it may have no stored form: it is held besides where it is small enough.
            shared = _labels_of(unit, current) if unit is not None else {}
            nbytes = unit.nbytes + sum(one.nbytes for one in shared.values()) if unit is not None else 0
            stored = unit is not None and (not unit.live or nbytes > HELD_BYTES) and not self._gap(unit, current)
            if stored and name not in doubtful:
                continue
            value = self._value(name)
            if value is not NOTHING:
                held[name] = value
                parts = {label: self._packer.part_of(label) for label in shared}
                held |= {label: obj for label, obj in parts.items() if obj is not None}
        at, unlike = self._unlike
        known = held.keys() - unlike if at == self._checkpoints.base else held.keys()
        whole = {unit.names: unit for unit in current.values() if known >= set(unit.names)}
        prints = {names: self._print(unit, held)[1] for names, unit in whole.items()}
        # A cell without a checkpoint may have changed what is held: it is not the state of the last checkpoint.
        self._checkpoints.hold(self._head(), held, prints)
        self._checkpoints.hold_connections(current[name] for name in leaving if name in current)


def _is_shared(name: str) -> bool:
    return name.startswith("shared:")


def _labels_of(unit: Unit, state: State) -> State:
    """Return the units of the objects that a unit shares with others, directly or not."""
    found: State = {}
    todo = list(unit.labels)
    while todo:
        label = todo.pop()
        if _is_shared(label) and label in state and label not in found:
            found[label] = state[label]
            todo += state[label].labels
    return found


def _order(unit: Unit) -> int:
    """Return when a unit is loaded: classes that are redefined before what refers to their members."""
    return next((at for at, kind in enumerate(("shared:", "class:")) if any(n.startswith(kind) for n in unit.names)), 2)


def _shares_lazily(values: Mapping[str, Any]) -> bool:
    """Whether a frame shares memory with another one until one of them is written to: pandas would not see us write."""
    frames = [one for one in values.values() if is_any(type(one), ("pandas", "DataFrame"), ("pandas", "Series"))]
    blocks = (block for one in frames for block in getattr(getattr(one, "_mgr", None), "blocks", ()))
    return any(block.refs.has_reference() for block in blocks)
