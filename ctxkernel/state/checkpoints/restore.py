"""Restoration of a state: only of the values that differ from now.

    compare   the units of a state with those of now (`state.checkpoints.comparison`)
    fetch     unpickle loaded values; where only the content of large buffers differs, note the chunks to write
    settle    write, bind names, tell the tracker

Rule 1: equal values are kept in place, so that live objects stay the same objects.
Rule 2: nothing is changed before all was fetched: a fault or an interrupt until then changes nothing.
Rule 3: a value that could not be restored is named with the reason.
"""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import CtxError
from ctxkernel.core.ports import Tell, silent
from ctxkernel.core.reflection import class_of
from ctxkernel.core.state_names import AMBIENT, CLASS, LABELS, SHARED
from ctxkernel.core.text import format_size
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.checkpoints import units
from ctxkernel.state.checkpoints.checkpoints import Checkpointer
from ctxkernel.state.checkpoints.comparison import Difference, StateComparison, is_shared, labels_of
from ctxkernel.state.checkpoints.states import CheckpointError
from ctxkernel.state.checkpoints.units import Buffer, State, Unit
from ctxkernel.state.tracking.chunk_addresses import CHUNK
from ctxkernel.state.types import connections
from ctxkernel.state.types.arrays import allocate
from ctxkernel.state.types.classes import Again
from ctxkernel.state.types.packer import Lost

_NAME = re.compile(r"\w+(:[\w.]+)?")
"""The name at the beginning of a place in a value."""
COPY_BYTES = 256 * 1024 * 1024
"""Up to so many bytes a value of another state is copied to be compared."""
HELD_BYTES = 64 * 1024 * 1024
"""Limit of data that are held because they share objects with an object without a stored form."""
_UNCHECKED = 16 * 1024 * 1024
"""Up to so many bytes are copied without a look at the free memory."""
_MARGIN = 1.5
"""Free memory that loading a state requires, as a multiple of its data."""


@dataclass(slots=True)
class Fetched:
    """The values that are ready to be set."""

    difference: Difference
    current: State
    """The present state until then, by its stored units."""
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    patches: list[tuple[memoryview, str]] = field(default_factory=list[tuple[memoryview, str]])
    """Places in live buffers, and the chunks that belong there."""
    patched: set[str] = field(default_factory=set[str])
    again: dict[str, Again] = field(default_factory=dict[str, Again])
    """By uid: living classes, and their new content."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    as_now: dict[str, str] = field(default_factory=dict[str, str])
    made: dict[str, Any] = field(default_factory=dict[str, Any])
    """New connections by token; a NotConnected for one that could not be made."""
    connected: dict[str, connections.Connection] = field(default_factory=dict[str, connections.Connection])
    """Their descriptions, and their places."""
    tell: Tell = silent
    read: int = 0
    """The bytes of data that were read."""

    def add_read(self, nbytes: int) -> None:
        """Note data that were read, and tell of it."""
        self.read += nbytes
        total = max(self.difference.nbytes, self.read)
        self.tell(f"{format_size(self.read)} of {format_size(total)} read")


class Restorer(StateComparison):
    """Restores states.

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
        super().__init__(checkpoints)
        self._bind = bind
        self._free_memory = free_memory
        self._head = head
        self._unlike: tuple[str | None, set[str]] = None, set()
        """The state that was restored last, and names whose values may differ from it."""

    def then(self, execution_id: str, name: str) -> Any:
        """Return a copy of the value of a variable after an execution; NOTHING where that takes more than a moment."""
        try:
            return self.load_copy(execution_id, name)
        except Exception:  # code of the user's may run: a `__setstate__`
            return NOTHING

    def part(self, execution_id: str, name: str) -> Any:
        """Return the value that a part of the ambient state had after an execution; None if none was taken.

        Raises CheckpointError, StoreError.
        """
        unit = self._checkpoints.state(execution_id).get(f"{AMBIENT}{name}")
        return self.plain(unit) if unit is not None and unit.is_plain else None

    def load_copy(self, execution_id: str, name: str, most: int = COPY_BYTES) -> Any:
        """Return a copy of the value that a variable had after an execution; the variables stay as they are.

        Raises CheckpointError with the reason if it cannot be loaded, or needs more than `most` bytes; StoreError; and
        any error of a `__setstate__`.
        """
        state = self._checkpoints.state(execution_id)
        unit = state.get(name)
        if unit is None:
            raise CheckpointError("its state has no such variable")
        if unit.live or unit.missing or unit.parts:
            why = next(iter(units.missing_of(unit).values()), "it holds an object that cannot be stored")
            raise CheckpointError(f"its value of then cannot be loaded: {why}")
        if why := self._gap(unit, state):
            raise CheckpointError(f"its value of then cannot be loaded: {why}")
        if unit.is_plain:
            return self.plain(unit)
        self._check_room(unit, state, most)
        made: dict[str, Any] = {}

        def load(unit: Unit) -> dict[str, Any]:
            buffers = [self._memory(buffer) for buffer in unit.buffers]
            stream = self._stream(unit)
            return self._packer.unpack(stream, buffers, classes=class_of_then, shared=shared, trial=True)

        def class_of_then(uid: str) -> Any:
            return shared(f"{CLASS}{uid}") if f"{CLASS}{uid}" in state else None

        def shared(label: str) -> Any:
            if label not in made:
                made.update(load(state[label]))
            return made[label]

        values = load(unit)
        if name not in values:
            raise CheckpointError("its value of then cannot be put together any more")
        return values[name]

    def _check_room(self, unit: Unit, state: State, most: int) -> None:
        """Raise CheckpointError if a copy of a unit needs more than `most` bytes, or more than are free."""
        nbytes = unit.nbytes + sum(one.nbytes for one in labels_of(unit, state).values())
        if nbytes > most:
            told = f"values of more than {format_size(most)} are not loaded to be compared"
            raise CheckpointError(f"its value of then takes {format_size(nbytes)}; {told}")
        free = self._free_memory() if nbytes > _UNCHECKED else None
        if free is not None and nbytes * _MARGIN > free:
            raise CheckpointError(f"its value of then takes {format_size(nbytes)}, and {format_size(free)} are free")

    def fetch(self, difference: Difference, tell: Tell = silent) -> Fetched:
        """Load differing values; only a `__setstate__` changes anything. Raises CheckpointError without memory.

        `tell` receives how far it is, and how far `settle` is.
        """
        free = self._free_memory() if difference.nbytes > _UNCHECKED else None
        if free is not None and difference.nbytes * _MARGIN > free:
            raise CheckpointError(
                f"this state needs {format_size(difference.nbytes)} that are not in memory now, and "
                f"{format_size(free)} are free; del what you do not need, or go to a state that is nearer"
            )
        self._checkpoints.storage.wait_for(difference.target, tell)
        known = self._checkpoints.known_now()
        for unit in difference.load if not difference.held else ():  # these may be instances of classes that live
            for name in unit.names:
                if name.startswith(CLASS) and name not in known and name not in self._kept_alive(unit):
                    self._packer.classes.forget(name[6:])  # one that is not collected yet
        fetched = Fetched(difference, known, lost=dict(difference.lost), values=dict(difference.held), tell=tell)
        for unit in sorted(difference.load, key=_order):
            if not fetched.values.keys() >= set(unit.names):  # else a unit that refers to it loaded it
                self._guarded(fetched, unit, lambda unit=unit: self._fetch(fetched, unit))
        return fetched

    def _class(self, fetched: Fetched, uid: str) -> object | None:
        """Make a class that is not alive, with the objects stored with it; instances of it are being loaded."""
        unit = fetched.difference.target.get(f"{CLASS}{uid}")
        if unit is None or not unit.digest:
            return None
        self._fetch(fetched, unit)
        return fetched.values[f"{CLASS}{uid}"]

    def _redefine(self, fetched: Fetched, again: Again) -> None:
        if not again.redefine():
            why = "its instances do not fit the class that it was"
            fetched.as_now |= {name: why for name in self._tracker.names() if self._value(name) is again.cls}

    def _guarded(self, fetched: Fetched, unit: Unit, step: Callable[[], None]) -> None:
        try:
            step()
        except MemoryError as fault:
            raise CheckpointError(f"this state does not fit into memory: {fault}") from fault
        except (CtxError, OSError) as fault:
            fetched.lost |= dict.fromkeys(unit.names, str(fault))
        except Exception as fault:  # code of the user's ran: a `__setstate__`, a class that is another now
            fetched.lost |= dict.fromkeys(unit.names, f"{class_of(fault).__name__} while loading: {fault}"[:200])

    def _fetch(self, fetched: Fetched, unit: Unit) -> None:
        difference = fetched.difference
        patches = self._patches(unit, difference.target, fetched.current, difference.keep)
        if patches is not None:
            fetched.patches += patches
            fetched.patched.update(unit.names)
            return
        if unit.is_plain:
            fetched.values[unit.names[0]] = self.plain(unit)
            return
        kept = self._kept_alive(unit)
        if kept.keys() >= set(unit.names):
            fetched.values = kept | fetched.values
            return
        living = self._checkpoints.living(unit)
        buffers = [self._memory(buffer, fetched.add_read) for buffer in unit.buffers]
        said, gone = list[str](), list[str]()
        for name in unit.names:  # instances of a living class may be kept in place, or be held by others
            if name.startswith(CLASS) and name not in kept and (cls := self._packer.part_of(name)) is not None:
                fetched.again[name[6:]] = Again(cls)
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
            renames=unit.renames,
        )
        values = self._with_equal_ones(unit, values | kept, living)
        fetched.values = values | fetched.values  # an object of a class may have made the class
        of_shared = [fetched.lost[label] for label in unit.labels if label in fetched.lost]
        if not said and not of_shared:
            return
        why = f"a part of it cannot be had back: {'; '.join(said[:3])}" if said else of_shared[0]
        told = {found[0] for place in fetched.lost if (found := _NAME.match(place))}
        # With more losses than stand-ins, any name may hold the others.
        all_names = len(gone) < len(said) and fetched.lost.keys().isdisjoint(units.missing_of(unit))
        for name in unit.names:
            if name in told and not all_names:
                continue
            if all_names or any(class_of(one) is Lost for one in self._packer.pack({name: values.get(name)}).noted):
                fetched.lost[name] = why

    def _kept_alive(self, unit: Unit) -> dict[str, Any]:
        """Return by name the values of a unit whose copies are not equal to them, where they are alive."""
        living = self._checkpoints.living(unit)
        held = [token for token, _ in unit.live if token.startswith("unequal:") and token in living]
        return {token.removeprefix("unequal:").rpartition(":")[0]: living[token] for token in held}

    def _with_equal_ones(self, unit: Unit, values: dict[str, Any], living: Mapping[str, Any]) -> dict[str, Any]:
        """Return values with present ones in place of equal copies, where something living may refer to these.

        A generator that a name stood for then may read a list that is as it was: a copy would be another list.
        """
        if not living:
            return values
        not_stored = set(map(id, living.values()))
        present = {name: one if id(one) in not_stored else self._value(name) for name, one in values.items()}
        return present if self._is_packed(unit, present.__getitem__) else values

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
        if class_of(made) is connections.NotConnected:
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
        return pickle.loads(self._stream(unit))[unit.digest]  # noqa: S301

    def _stream(self, unit: Unit) -> memoryview:
        return units.unbundle(self._chunks.read(unit.stream[0]), unit.stream[1])

    def _memory(self, buffer: Buffer, add_read: Callable[[int], object] = int) -> memoryview:
        """Return the content of a buffer in memory of its own: mapped where it lies in the store in one piece."""
        mapped = self._chunks.map_run(buffer.chunks)
        if mapped is not None:
            add_read(buffer.nbytes)
            return mapped[: buffer.nbytes]
        memory = allocate(buffer.nbytes)
        for at, chunk in enumerate(buffer.chunks):
            part = memory[at * CHUNK : min((at + 1) * CHUNK, buffer.nbytes)]
            self._chunks.read_into(chunk, part)
            add_read(part.nbytes)
        return memory

    def settle(self, fetched: Fetched) -> dict[str, str]:
        """Make the fetched state the present. Return the names that could not be restored, and why."""
        difference, lost = fetched.difference, fetched.lost
        for view, chunk in fetched.patches:
            self._chunks.read_into(chunk, view)
            fetched.add_read(view.nbytes)
        for uid, again in fetched.again.items():
            unit = difference.target[f"{CLASS}{uid}"]
            self._guarded(fetched, unit, lambda again=again: self._redefine(fetched, again))
        gone = {name for name in lost if name in difference.target and name not in fetched.values}
        self._hold(difference, gone)
        for label, obj in fetched.values.items():
            if label.startswith(SHARED):
                with contextlib.suppress(TypeError):  # a stand-in for an object that was lost
                    self._packer.labels.replace(label, obj)
        for token in fetched.connected:
            self._checkpoints.connected(token, fetched.made[token])
        self._bind(fetched.values, [*difference.drop, *gone])
        recorded = self._checkpoints.state(difference.execution_id)
        target = difference.target.items()
        others = [name for name, unit in target if unit is not recorded.get(name) and not unit.renames]
        self._checkpoints.settled(difference.execution_id, difference.target, gone, others)
        # An object that is alive only may have changed, or hold replaced objects: it is compared with no stored state.
        unlike = {name for unit in difference.load if not unit.is_exact for name in unit.names}
        self._unlike = difference.execution_id, unlike
        # A value without one of its parts differs from the stored one.
        lacking = fetched.values.keys() & {found[0] for place in lost if (found := _NAME.match(place))}
        shared = [label for label in difference.held if is_shared(label)]
        renamed = {name for unit in difference.load if unit.renames for name in unit.names}
        held = difference.held.keys() | self._unlike[1] | lacking | renamed
        loaded = [*(unit.names for unit in difference.load if not unit.renames), *((label,) for label in shared)]
        self._tracker.settle(difference.target, loaded, held.difference(shared))
        if renamed:
            self._tracker.store_unchanged(renamed)
        return lost

    def _hold(self, difference: Difference, gone: set[str]) -> None:
        """Hold values of the present whose data are not stored, so that a return to it finds them."""
        current = self._checkpoints.known_now()
        doubtful = self._checkpoints.states.doubts(self._checkpoints.base)
        leaving = {
            *difference.drop,
            *gone,
            *(name for unit in difference.load for name in unit.names),
            *difference.held,
        }
        held: dict[str, Any] = {}
        todo = [name for name in leaving if not name.startswith(LABELS)]
        for name in todo:
            unit = current.get(name)
            # It may hold an object without a stored form: it is held as well where it is small enough.
            shared = labels_of(unit, current) if unit is not None else {}
            nbytes = unit.nbytes + sum(one.nbytes for one in shared.values()) if unit is not None else 0
            stored = unit is not None and (unit.is_exact or nbytes > HELD_BYTES) and not self._gap(unit, current)
            if stored and name not in doubtful:
                continue
            value = self._value(name)
            if value is not NOTHING:
                held[name] = value
                parts = {label: self._packer.part_of(label) for label in shared}
                held |= {label: obj for label, obj in parts.items() if obj is not None}
                # A variable that stays cannot be compared without what it shares, where that cannot be loaded.
                lacking = [label for label, one in shared.items() if self._unloadable(one)]
                users = [one for label in lacking for one in self._tracker.users_of(label)]
                more = [one for one in (*users, *(unit.names if unit else ())) if not one.startswith(LABELS)]
                todo += [one for one in dict.fromkeys(more) if one not in leaving]
                leaving.update(more)
        at, unlike = self._unlike
        known = held.keys() - unlike if at == self._checkpoints.base else held.keys()
        whole = {unit.names: unit for unit in current.values() if known >= set(unit.names)}
        prints = {names: self._print(unit, held)[1] for names, unit in whole.items()}
        # A cell without a checkpoint may have changed held values: they are not of the state of the last checkpoint.
        self._checkpoints.hold(self._head(), held, prints)
        self._checkpoints.hold_connections(current[name] for name in leaving if name in current)


def _order(unit: Unit) -> int:
    """Return the rank of a unit in loading: redefined classes before units that refer to their members."""
    return next((at for at, kind in enumerate((SHARED, CLASS)) if any(n.startswith(kind) for n in unit.names)), 2)
