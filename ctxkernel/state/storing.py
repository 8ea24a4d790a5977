"""Puts what a checkpoint found to be new into the chunk store: small data at once, large data in the background.

Rule 1: nothing is stored twice: an equal stream or chunk is the one that is there.
Rule 2: a block of memory is hashed once: what the tracker hashed after the cell is not hashed again, and what no cell
        touched since keeps its hashes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from xxhash import xxh3_128_hexdigest

from ctxkernel.state import units
from ctxkernel.state.digest import CHUNK
from ctxkernel.state.pickling import Packed, Packer
from ctxkernel.state.reflect import class_module
from ctxkernel.state.tracker import NamespaceTracker
from ctxkernel.state.units import Buffer, State, Unit

INLINE_BYTES = 4 * 1024 * 1024
"""Up to so many new bytes are written at once; more go to the background."""
HASHED_BYTES = 512 * 1024 * 1024
"""Up to so many bytes that are not hashed yet are hashed while the user waits: some 50 ms."""
BACKGROUND_SECONDS = 120.0
BASES_SECONDS = 30.0
"""What a job waits for chunks of an earlier one, to store the difference only."""
PATIENCE_SECONDS = 0.05
"""What the user waits for an earlier job to end, where as many as may be are under way."""


class Chunks(Protocol):
    """Where data lie by their content (`store.chunks`)."""

    def has(self, address: str) -> bool: ...  # noqa: D102
    def put(self, address: str, data: Any, *, base: str | None = None) -> int: ...  # noqa: D102
    def read(self, address: str) -> memoryview: ...  # noqa: D102
    def read_into(self, address: str, target: memoryview) -> None: ...  # noqa: D102
    def map_run(self, addresses: Sequence[str]) -> Any: ...  # noqa: D102
    def missing(self, addresses: Iterable[str]) -> list[str]: ...  # noqa: D102


class Background(Protocol):
    """Runs a job outside of the user's time (`store.background`)."""

    def submit(  # noqa: D102
        self, job: Callable[[Any], Any], *, nbytes: int, seconds: float, addresses: Collection[str], patience: float
    ) -> Any: ...
    @property
    def can_fork(self) -> bool: ...  # noqa: D102
    def poll(self) -> list[Any]: ...  # noqa: D102
    def wait(self, seconds: float) -> list[Any]: ...  # noqa: D102
    def has_or_pending(self, address: str) -> bool: ...  # noqa: D102


class Storage:
    """Where the streams and buffers of one session are, and how new ones get there."""

    def __init__(
        self,
        *,
        tracker: NamespaceTracker,
        packer: Packer,
        chunks: Chunks,
        background: Background,
        address: Callable[[Any], str],
    ) -> None:
        self._tracker = tracker
        self._packer = packer
        self._chunks = chunks
        self._background = background
        self.address = address
        self.streams: dict[str, tuple[str, int]] = {}
        """Digest → the blob that holds the stream, and which of its streams it is."""
        self._buffers: dict[tuple[int, int], tuple[str, ...]] = {}
        """(address, bytes) of live memory → its chunks, as of the last look."""

    def forget_memory(self) -> None:
        """Hash all memory anew: other data lie there now."""
        self._buffers.clear()

    def too_much(self, packed: Packed, dirty: Collection[str]) -> bool:
        """Whether hashing the buffers of a pack would take more than a moment."""
        views = packed.buffers
        if sum(view.nbytes for view in views) <= HASHED_BYTES:
            return False
        left = [view.nbytes for view in views if self._hashed((_address_of(view), view.nbytes), dirty) is None]
        return sum(left) > HASHED_BYTES

    def buffer(self, at: int, view: memoryview, old: Unit | None, taking: Taking) -> Buffer:
        """Return the chunks of a buffer, and note those that have to be written."""
        key = _address_of(view), view.nbytes
        chunks = self._chunks_of(key, view, taking.dirty)
        before: Sequence[str] = ()
        if old is not None and at < len(old.buffers) and old.buffers[at].nbytes == view.nbytes:
            before = old.buffers[at].chunks
        for place, chunk in enumerate(chunks):
            if chunk in taking.fresh or self._background.has_or_pending(chunk):
                continue
            base = before[place] if place < len(before) else None
            taking.fresh[chunk] = view[place * CHUNK : (place + 1) * CHUNK], base
        return Buffer(view.nbytes, chunks)

    def _hashed(self, key: tuple[int, int], dirty: Collection[str]) -> tuple[str, ...] | None:
        """Return the chunks of a block of memory where they are known without hashing it."""
        if not key[0]:
            return None
        hashed = self._tracker.hashes(*key)
        if hashed is not None:
            return tuple(f"x{one:032x}" for one in hashed)
        owners = self._tracker.owners_of_memory(key[0])
        return self._buffers.get(key) if owners and owners.isdisjoint(dirty) else None

    def _chunks_of(self, key: tuple[int, int], view: memoryview, dirty: Collection[str]) -> tuple[str, ...]:
        chunks = self._hashed(key, dirty) or chunks_of(view)
        if key[0]:
            self._buffers[key] = chunks
        return chunks

    def recipe(self, chunks: Sequence[str]) -> str:
        """Store a long list of chunks, and return its address."""
        blob = units.recipe(chunks)
        address = self.address(blob)
        if not self._chunks.has(address):
            self._chunks.put(address, blob)
        return address

    def write(self, taking: Taking, current: State) -> None:
        """Store what is new: small data now, large data in the background."""
        if taking.streams:
            self._bundle(taking, current)
        fresh, later = taking.fresh, taking.later
        nbytes = sum(view.nbytes for view, _ in fresh.values())
        if nbytes <= INLINE_BYTES:
            for chunk, (view, base) in fresh.items():
                taking.written += self._chunks.put(chunk, view, base=base)
            fresh = {}
        if not fresh and not later:
            return
        packer, address = self._packer, self.address
        if later:  # a class that the child names by itself would be another one here
            for cls in own_classes(packer.module):
                packer.uid(cls)

        bases = {base for _, base in fresh.values() if base is not None and not self._chunks.has(base)}

        def job(writer: Any) -> dict[str, Any]:
            _await(writer, bases)
            for chunk, (view, base) in fresh.items():
                writer.put(chunk, view, base=base)
            return {name: pack_and_put(packer, address, writer, values) for name, values in later.items()}

        ticket = self._background.submit(
            job, nbytes=nbytes, seconds=BACKGROUND_SECONDS, addresses=tuple(fresh), patience=PATIENCE_SECONDS
        )
        taking.written += nbytes
        taking.tickets.append(ticket)

    def _bundle(self, taking: Taking, current: State) -> None:
        blob = units.bundle([stream for _, stream, _ in taking.streams])
        address = self.address(blob)
        if not self._chunks.has(address):
            taking.written += self._chunks.put(address, blob)
        for part, (digest, _, atoms) in enumerate(taking.streams):
            for one in atoms or (digest,):
                self.streams[one] = address, part
        for at, unit in enumerate(taking.units):
            if unit.digest and not unit.stream[0]:
                placed = taking.units[at] = replace(unit, stream=self.streams[unit.digest])
                for name in unit.names:
                    if current.get(name) is unit:
                        current[name] = placed

    def absent(self, addresses: Iterable[str]) -> list[str]:
        """Return those addresses whose data are not there, nor on their way."""
        return [one for one in self._chunks.missing(addresses) if not self._background.has_or_pending(one)]

    def wait_for(self, target: Mapping[str, Unit]) -> None:
        """Wait for data of `target` that are still on their way."""
        needed = (chunk for unit in target.values() for buffer in unit.buffers for chunk in buffer.chunks)
        if self._chunks.missing(needed):
            self._background.wait(BACKGROUND_SECONDS)


@dataclass(slots=True)
class Taking:
    """What one `take` collects."""

    execution_id: str
    dirty: set[str] = field(default_factory=set[str])
    units: list[Unit] = field(default_factory=list[Unit])
    gone: set[str] = field(default_factory=set[str])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    streams: list[tuple[str, bytes, tuple[str, ...]]] = field(default_factory=list[tuple[str, bytes, tuple[str, ...]]])
    """(digest, stream, digests of the atoms in it)."""
    fresh: dict[str, tuple[memoryview, str | None]] = field(default_factory=dict[str, tuple[memoryview, str | None]])
    """Chunks to be written: data, and the chunk that stood there before."""
    later: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    classes: set[str] = field(default_factory=set[str])
    tickets: list[Any] = field(default_factory=list[Any])
    written: int = 0

    def add(self, unit: Unit) -> None:
        """Note a unit that differs from the state before."""
        self.units.append(unit)
        self.gone.difference_update(unit.names)


def pack_and_put(
    packer: Packer, address: Callable[[Any], str], writer: Any, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Pickle a group and store all of it; returns the manifest's form of what it gave. For a background job."""
    made: list[Unit] = []
    todo: list[dict[str, Any]] = [dict(values)]
    seen: set[str] = set()

    def put_recipe(chunks: Sequence[str]) -> str:
        blob = units.recipe(chunks)
        writer.put(address(blob), blob)
        return address(blob)

    while todo:
        group = todo.pop()
        packed = packer.pack(group)
        blob = units.bundle([packed.stream])
        writer.put(address(blob), blob)
        buffers: list[Buffer] = []
        for view in packed.buffers:
            chunks = chunks_of(view)
            for at, chunk in enumerate(chunks):
                writer.put(chunk, view[at * CHUNK : (at + 1) * CHUNK])
            buffers.append(Buffer(view.nbytes, chunks))
        # No `live`: what only lives in this process has no token outside of the child that pickles it.
        place = address(blob), 0
        made.append(Unit(tuple(group), address(packed.stream), place, tuple(buffers), packed.faults, packed.parts))
        for uid, cls in packed.classes.items():
            if uid not in seen:
                seen.add(uid)
                todo.append({f"class:{uid}": cls})
    return {"units": [units.unit_to_json(unit, put_recipe) for unit in made]}


def _await(writer: Any, bases: Collection[str]) -> None:
    """Wait, in the background, for what an earlier job is writing: a difference to it takes a fraction of the room."""
    end = time.monotonic() + BASES_SECONDS
    while writer.missing(bases) and time.monotonic() < end:
        time.sleep(0.02)
        writer.refresh()


def own_classes(module: str) -> Iterator[type]:
    """Yield the living classes that say they are of the namespace's module."""
    todo, seen = [object], {id(object)}
    while todo:
        for cls in type.__subclasses__(todo.pop()):
            if id(cls) not in seen:
                seen.add(id(cls))
                todo.append(cls)
                if class_module(cls) == module:
                    yield cls


def chunks_of(view: memoryview) -> tuple[str, ...]:
    """Return the addresses of the chunks of a buffer."""
    return tuple(f"x{xxh3_128_hexdigest(view[at : at + CHUNK])}" for at in range(0, view.nbytes, CHUNK))


def _address_of(view: memoryview) -> int:
    """Return where a buffer lies in memory; 0 where that cannot be told."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return 0
    return int(numpy.frombuffer(view, numpy.uint8).__array_interface__["data"][0])
