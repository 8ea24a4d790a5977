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
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxkernel.core.errors import CtxError
from ctxkernel.state import units
from ctxkernel.state.checkpoints import PLAIN, UNEQUAL, Checkpointer
from ctxkernel.state.digest import CHUNK
from ctxkernel.state.pickle_arrays import memory_class
from ctxkernel.state.pickling import Packer
from ctxkernel.state.reflect import class_dict, is_kind
from ctxkernel.state.states import CheckpointError
from ctxkernel.state.storing import Chunks
from ctxkernel.state.tracker import NamespaceTracker
from ctxkernel.state.units import Buffer, State, Unit
from ctxkernel.state.variables import NOTHING

COPY_BYTES = 256 * 1024 * 1024
"""Up to so many bytes a value of another state is copied to be compared."""
_MARGIN = 1.5
"""So many times the memory that a state needs has to be free, to load it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What lies between now and a state."""

    execution_id: str | None
    target: State
    keep: tuple[str, ...]
    load: tuple[Unit, ...]
    drop: tuple[str, ...]
    lost: Mapping[str, str]
    """Names, or places in their values (`d['x']`), whose content the state had and that cannot be loaded; and why."""
    nbytes: int
    """Bytes of the buffers that differ."""


@dataclass(slots=True)
class Fetched:
    """What is ready to be put in place."""

    difference: Difference
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    patches: list[tuple[memoryview, str]] = field(default_factory=list[tuple[memoryview, str]])
    """Places in live buffers, and the chunks that belong there."""
    patched: set[str] = field(default_factory=set[str])
    classes: list[Unit] = field(default_factory=list[Unit])
    lost: dict[str, str] = field(default_factory=dict[str, str])


class Restorer:
    """Brings states back.

    `value(name)` as for `Checkpointer`; `bind(values, gone)` sets and removes variables and pseudo-names; `handle`
    gives the living node of an id; `free_memory()` bytes, or None where that is not known.
    """

    def __init__(
        self,
        checkpoints: Checkpointer,
        *,
        tracker: NamespaceTracker,
        packer: Packer,
        chunks: Chunks,
        address: Callable[[Any], str],
        value: Callable[[str], Any],
        bind: Callable[[Mapping[str, Any], Sequence[str]], None],
        handle: Callable[[str], Any],
        free_memory: Callable[[], int | None],
    ) -> None:
        self._checkpoints = checkpoints
        self._tracker = tracker
        self._packer = packer
        self._chunks = chunks
        self._address = address
        self._value = value
        self._bind = bind
        self._handle = handle
        self._free_memory = free_memory

    # -- before anything is touched -----------------------------------------------------------

    def compare(self, execution_id: str | None) -> Difference:
        """Return what lies between now and the state after an execution. Raises CheckpointError."""
        target = self._checkpoints.state(execution_id)
        current = self._checkpoints.known_now()
        unstored = self._checkpoints.unstored
        keep: list[str] = []
        load: dict[int, Unit] = {}
        lost: dict[str, str] = {}
        for name, unit in target.items():
            if id(unit) in load:
                continue
            if name not in unstored and unit.equals(current.get(name)) and self._whole(unit):
                keep.append(name)
                continue
            why = self._unloadable(unit)
            if why:
                lost |= dict.fromkeys(unit.names, why)
                continue
            if not unit.live or not self._whole(unit):
                lost |= {each: f"{why}; what it was is gone, or was used since" for each, why in unit.missing.items()}
                for part in unit.parts:
                    what, _, where = part.rpartition(" in ")
                    lost[where] = f"{what} cannot be stored; what it was is gone, or was used since"
            load[id(unit)] = unit
        nbytes = sum(self._differing(unit, current.get(unit.names[0])) for unit in load.values())
        drop = tuple(sorted(name for name in current if name not in target))
        return Difference(execution_id, target, tuple(keep), tuple(load.values()), drop, lost, nbytes)

    def _whole(self, unit: Unit) -> bool:
        return not unit.live or len(self._checkpoints.living(unit)) == len(unit.live)

    def _unloadable(self, unit: Unit) -> str:
        """Say why nothing of a unit can be loaded, or return an empty text."""
        if not unit.digest:
            return next(iter(unit.missing.values()), "it was not stored")
        needed = [unit.stream[0], *(chunk for buffer in unit.buffers for chunk in buffer.chunks)]
        gone = self._checkpoints.storage.absent(needed)
        if unit.stream[0] in gone:
            return "its data are missing: removed to keep within the quota, or deleted"
        return "its large data were removed to keep within the quota" if gone else ""

    @staticmethod
    def _differing(unit: Unit, now: Unit | None) -> int:
        there = {chunk for buffer in now.buffers for chunk in buffer.chunks} if now else set[str]()
        return sum(
            min(CHUNK, buffer.nbytes) for buffer in unit.buffers for chunk in buffer.chunks if chunk not in there
        )

    def then(self, execution_id: str, name: str) -> Any:
        """Return a copy of what a variable was after an execution; NOTHING where that takes more than a moment."""
        try:
            unit = self._checkpoints.state(execution_id).get(name)
            if unit is None or unit.live or unit.missing or unit.parts or self._unloadable(unit):
                return NOTHING
            if unit.digest.startswith(PLAIN):
                return self.plain(unit)
            if sum(buffer.nbytes for buffer in unit.buffers) > COPY_BYTES:
                return NOTHING
            buffers = [self._memory(buffer) for buffer in unit.buffers]
            return self._packer.unpack(self._stream(unit), buffers, trial=True).get(name, NOTHING)
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
                f"this state needs {difference.nbytes / 1e9:.1f} GB that are not in memory now, and "
                f"{free / 1e9:.1f} GB are free; del what you do not need, or go to a state that is nearer"
            )
        self._checkpoints.storage.wait_for(difference.target)
        fetched = Fetched(difference, lost=dict(difference.lost))
        for unit in difference.load:
            if unit.names[0].startswith("class:"):
                fetched.classes.append(unit)
                continue
            self._guarded(fetched, unit, lambda unit=unit: self._fetch(fetched, unit))
        return fetched

    def _class(self, target: State, uid: str) -> type | None:
        """Make a class of a state that is not alive; instances of it are being loaded."""
        unit = target.get(f"class:{uid}")
        return None if unit is None or not unit.digest else self._load_class(target, unit)

    def _load_class(self, target: State, unit: Unit) -> type:
        made = self._packer.unpack(
            self._stream(unit), [], handles=self._handle, classes=lambda uid: self._class(target, uid)
        )
        return made[unit.names[0]]  # type: ignore[return-value]

    def _redefine(self, target: State, unit: Unit) -> None:
        """Give a class that is alive what it had: instances of it may be kept in place, or be held by others."""
        uid = unit.names[0].removeprefix("class:")
        live = self._packer.class_of(uid)
        made = self._load_class(target, unit)
        if live is not None and live is not made and _take_members(live, made):
            self._packer.know(uid, live)

    def _guarded(self, fetched: Fetched, unit: Unit, step: Callable[[], None]) -> None:
        try:
            step()
        except (CtxError, OSError) as fault:
            fetched.lost |= dict.fromkeys(unit.names, str(fault))
        except Exception as fault:  # code of the user's ran: a `__setstate__`, a class that is another now
            fetched.lost |= dict.fromkeys(unit.names, f"{type(fault).__name__} while loading: {fault}"[:200])

    def _fetch(self, fetched: Fetched, unit: Unit) -> None:
        patches = self._patches(unit)
        if patches is not None:
            fetched.patches += patches
            fetched.patched.update(unit.names)
            return
        if unit.digest.startswith(PLAIN):
            fetched.values[unit.names[0]] = self.plain(unit)
            return
        living = self._checkpoints.living(unit)
        buffers = [self._memory(buffer) for buffer in unit.buffers]
        target, said = fetched.difference.target, list[str]()
        fetched.values |= self._packer.unpack(
            self._stream(unit),
            buffers,
            handles=self._handle,
            live=living.get,
            classes=lambda uid: self._class(target, uid),
            report=said,
        )
        for token, _ in unit.live:
            if token.startswith(UNEQUAL) and token not in living:
                fetched.values.pop(token.removeprefix(UNEQUAL), None)
        if said and fetched.lost.keys().isdisjoint((*unit.missing, *_places(unit))):
            fetched.lost[unit.names[0]] = f"a part of it cannot be had back: {'; '.join(said[:3])}"

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
        memory = _allocate(buffer.nbytes)
        for at, chunk in enumerate(buffer.chunks):
            self._chunks.read_into(chunk, memory[at * CHUNK : min((at + 1) * CHUNK, buffer.nbytes)])
        return memory

    def _patches(self, unit: Unit) -> list[tuple[memoryview, str]] | None:
        """Where a unit differs from now in the content of large buffers only, return what to write; else None."""
        now = self._checkpoints.known_now().get(unit.names[0])
        if now is None or now.names != unit.names or not unit.buffers or now.live or unit.live or unit.missing:
            return None
        if now.digest != unit.digest or [one.nbytes for one in now.buffers] != [one.nbytes for one in unit.buffers]:
            return None
        values = {name: self._value(name) for name in unit.names}
        if any(value is NOTHING for value in values.values()) or _shares_lazily(values):
            return None
        if not self._checkpoints.unstored.isdisjoint(unit.names):
            return None
        packed = self._packer.pack(values)
        if self._address(packed.stream) != unit.digest or any(view.readonly for view in packed.buffers):
            return None
        found: list[tuple[memoryview, str]] = []
        for view, have, want in zip(packed.buffers, now.buffers, unit.buffers, strict=True):
            for at, (old, new) in enumerate(zip(have.chunks, want.chunks, strict=True)):
                if old != new:
                    found.append((view[at * CHUNK : (at + 1) * CHUNK], new))
        return found

    # -- putting in place ---------------------------------------------------------------------

    def settle(self, fetched: Fetched) -> dict[str, str]:
        """Make the fetched state the present. Returns the names that could not be brought back, and why."""
        difference, lost = fetched.difference, fetched.lost
        for view, chunk in fetched.patches:
            self._chunks.read_into(chunk, view)
        for unit in fetched.classes:
            self._guarded(fetched, unit, lambda unit=unit: self._redefine(difference.target, unit))
        gone = {name for name in lost if name in difference.target and name not in fetched.values}
        self._bind(fetched.values, [*difference.drop, *gone])
        loaded = [name for unit in difference.load for name in unit.names]
        self._tracker.rebase([name for name in loaded if ":" not in name or name.startswith("target:")])
        self._checkpoints.settled(difference.execution_id, difference.target, gone)
        return lost


def _places(unit: Unit) -> list[str]:
    return [part.rpartition(" in ")[2] for part in unit.parts]


_NOT_MEMBERS = frozenset(("__dict__", "__weakref__", "__doc__", "__abstractmethods__", "_abc_impl"))


def _take_members(live: type, made: type) -> bool:
    """Give `live` the members of `made`, another making of the same class; False where their layouts differ."""
    members, old = dict(class_dict(made)), dict(class_dict(live))
    if live.__bases__ != made.__bases__ or members.get("__slots__") != old.get("__slots__"):
        return False
    for name in old.keys() - members.keys() - _NOT_MEMBERS:
        type.__delattr__(live, name)
    for name, value in members.items():
        kind = type(value)
        if name in _NOT_MEMBERS or kind in (types.MemberDescriptorType, types.GetSetDescriptorType):
            continue
        function = value.__func__ if kind in (staticmethod, classmethod) else value
        for cell in getattr(function, "__closure__", None) or () if type(function) is types.FunctionType else ():
            with contextlib.suppress(ValueError):  # an empty cell
                if cell.cell_contents is made:  # `super()` finds its class there
                    cell.cell_contents = live
        type.__setattr__(live, name, value)
    return True


def _allocate(nbytes: int) -> memoryview:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return memoryview(bytearray(nbytes))
    # NumPy does not fill the memory, and asks for large pages. Of a class of its own: a view of an array that lies in
    # it has that array as its base, as it had; through a plain array NumPy would look to the end of the chain.
    return memoryview(numpy.ndarray.__new__(memory_class(), (nbytes,), numpy.uint8))


def _shares_lazily(values: Mapping[str, Any]) -> bool:
    """Whether a frame shares memory with another one until one of them is written to: pandas would not see us write."""
    pandas: Any = sys.modules.get("pandas")
    if pandas is None:
        return False
    for value in values.values():
        framed = is_kind(type(value), pandas.DataFrame) or is_kind(type(value), pandas.Series)
        manager = getattr(value, "_mgr", None) if framed else None
        if manager is not None and any(block.refs.has_reference() for block in manager.blocks):
            return True
    return False
