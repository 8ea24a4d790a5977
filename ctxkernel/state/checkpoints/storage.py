"""Storage of new data of a checkpoint: small data at once, large data in the background.

Rule: nothing is stored twice: an equal stream or chunk that is stored already is used again.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.ports import Expired, Tell, silent
from ctxkernel.core.reflection import class_module, class_of, class_qualname
from ctxkernel.core.state_names import SHARED
from ctxkernel.state.checkpoints import units
from ctxkernel.state.checkpoints.copy_check import MOST_SECONDS, Unequal, unfaithful
from ctxkernel.state.checkpoints.units import Buffer, State, Unit
from ctxkernel.state.tracking.chunk_addresses import CHUNK
from ctxkernel.state.tracking.groups import Moment, PackPiece, pack_key
from ctxkernel.state.tracking.late_changes import OwnContent
from ctxkernel.state.types import tensors
from ctxkernel.state.types.memory_blocks import MemoryBlocks
from ctxkernel.state.types.packer import Opened, Packer, relabelled

INLINE_BYTES = 256 * 1024 * 1024
INLINE_SECONDS = 0.1
"""Data are written while the user waits, for this time and up to this size; the rest is written in the background.

A fork, and the copies of the pages that the next cell changes, take longer than writing 100 MB to a file.
"""
BACKGROUND_SECONDS = 120.0
BASES_SECONDS = 30.0
"""Time that a job waits for chunks of an earlier one, to store the difference only."""
DEVICE_SECONDS = 0.5
"""Processor time in which the memory of devices is copied for a background job, while the user waits."""
PATIENCE_SECONDS = 0.25
"""Time that the user waits for an earlier job, where the maximum of jobs is under way."""

_THREADED = frozenset(("xgboost", "lightgbm", "catboost"))
"""Libraries that store their models with threads of OpenMP."""


@dataclass(slots=True)
class StateChanges:
    """The changes that one `take` collects."""

    execution_id: str
    units: list[Unit] = field(default_factory=list[Unit])
    gone: set[str] = field(default_factory=set[str])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    streams: list[tuple[str, bytes, tuple[str, ...]]] = field(default_factory=list[tuple[str, bytes, tuple[str, ...]]])
    """(digest, stream, digests of the atoms in it)."""
    fresh: dict[str, tuple[memoryview, str | None]] = field(default_factory=dict[str, tuple[memoryview, str | None]])
    """Address of each chunk to be written → its data, and the address of the chunk at this place before."""
    groups: tuple[tuple[str, ...], ...] = ()
    """Names that could not be packed in time: a job with the id of the execution packs them."""
    before: Mapping[str, Unit] = field(default_factory=dict[str, Unit])
    """The stored units of all names until then."""
    tickets: list[Any] = field(default_factory=list[Any])
    written: int = 0

    def add(self, unit: Unit) -> None:
        """Note a unit that differs from the state before."""
        self.units.append(unit)
        self.gone.difference_update(unit.names)


@dataclass(slots=True)
class Storage:
    """The streams and buffers of one session.

    `address(data)` is the address of a trusted blob; `value(name)` gives the value of a variable or a
    pseudo-name (`Out[5]`, `target:v1`); NOTHING where there is none.
    """

    packer: Packer
    chunks: Any
    """The store of data by content: a `store.chunks.chunk_store.ChunkStore`."""
    background: Any
    """Runs a job outside of the user's time: a `store.chunks.background.Background`."""
    address: Callable[[Any], str]
    value: Callable[[str], Any]
    handle: Callable[[str], Any]
    content: Callable[[Moment, str], OwnContent | None]
    """The own content of a name, as packed at a moment."""
    whole: Callable[[Iterable[str]], list[tuple[str, ...]]]
    """Returns the groups that names are known to be in."""
    streams: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Digest → the blob that holds the stream, and which of its streams it is."""

    never_forked: set[str] = field(default_factory=set[str])
    """Names that no background job packs: one hung."""

    def place(self, digest: str) -> tuple[str, int] | None:
        """Return where the stream with a digest lies; None where it is not stored, or not any more."""
        place = self.streams.get(digest)
        return place if place is not None and self.chunks.has(place[0]) else None

    def value_of(self, name: str) -> Any:
        """Return the value of a name or a label; NOTHING where there is none."""
        return Moment(self.packer, self.value).value_of(name)

    def note(self, piece: PackPiece, old: Unit | None, changes: StateChanges) -> None:
        """Note the chunks of a piece that have to be written."""
        for chunk, data, base in _with_bases(piece, old):
            if chunk not in changes.fresh and not self.background.has_or_pending(chunk):
                changes.fresh[chunk] = data, base

    def unequal(self, piece: PackPiece) -> Unequal | None:
        """Return the names whose stored form would lose something; None where a cell would have to wait."""
        packed = piece.packed
        if not packed.unproven:
            return Unequal()
        bounded = self.background.can_fork and not self._only_here(piece.names)
        bounded = bounded and not any(_needs_threads(one) for one, _ in packed.unproven)
        if bounded and piece.seconds > MOST_SECONDS:
            return None
        values = {name: self.value_of(name) for name in piece.names}
        forked = self.background.forked
        return unfaithful(self.packer, packed, values, handles=self.handle, forked=forked, bounded=bounded)

    def _only_here(self, names: Iterable[str]) -> bool:
        """Return whether a background job would hang where it packs one of these names."""
        return any(name in self.never_forked or _needs_threads(self.value(name)) for name in names)

    def recipe(self, chunks: Sequence[str], into: Any = None) -> str:
        """Store a long list of chunks, and return its address."""
        return put_blob(self.chunks if into is None else into, self.address, units.recipe(chunks))[0]

    def write(self, changes: StateChanges, current: State) -> None:
        """Store new data: small data now, large data in the background. Raises StoreError."""
        if changes.streams:
            self._bundle(changes, current)
        fresh, groups = changes.fresh, changes.groups
        nbytes = sum(view.nbytes for view, _ in fresh.values())
        if nbytes <= INLINE_BYTES:
            fresh = self._write_now(changes)
            nbytes = sum(view.nbytes for view, _ in fresh.values())
        if not fresh and not groups:
            return
        if groups:  # name the classes before the fork: a name that the child gives is unknown here
            for cls in own_classes(self.packer.module):
                self.packer.uid(cls)
        blocks = self._device_memory(groups) if groups else MemoryBlocks()
        bases = {base for _, base in fresh.values() if base is not None and not self.chunks.has(base)}

        def job(writer: Any) -> dict[str, Any]:
            # A difference to chunks of an earlier job takes a fraction of the space.
            end = time.monotonic() + BASES_SECONDS
            while writer.missing(bases) and time.monotonic() < end:
                time.sleep(0.02)
                writer.refresh()
            for chunk, (view, base) in fresh.items():
                writer.put(chunk, view, base=base)
            return {changes.execution_id: self._pack_and_put(writer, changes, blocks)} if groups else {}

        ticket = self.background.submit(
            job,
            nbytes=nbytes,
            seconds=BACKGROUND_SECONDS,
            addresses=tuple(fresh),
            patience=PATIENCE_SECONDS,
            here=any(map(self._only_here, groups)),
            name=changes.execution_id if groups else "",
        )
        changes.written += nbytes
        changes.tickets.append(ticket)

    def _write_now(self, changes: StateChanges) -> dict[str, tuple[memoryview, str | None]]:
        """Write chunks for a limited time; return the others. Raises StoreError."""
        end, left = time.monotonic() + INLINE_SECONDS, iter(changes.fresh.items())
        for chunk, (view, base) in left:
            changes.written += self.chunks.put(chunk, view, base=base)
            if time.monotonic() > end:
                break
        return dict(left)

    def _device_memory(self, groups: Iterable[Sequence[str]]) -> MemoryBlocks:
        """Return copies of the memory of devices that groups hold, as far as time allows: a fork cannot read it."""
        found = MemoryBlocks()
        if not self.background.can_fork or not tensors.devices_in_use():
            return found
        moment = Moment(self.packer, self.value, DEVICE_SECONDS, _unhashed, found)
        moment.pack(groups, join=False)
        return found

    def _pack_and_put(self, writer: Any, changes: StateChanges, blocks: MemoryBlocks) -> dict[str, Any]:
        """Pack and store groups; return their units in the manifest's form. For a background job."""
        self.packer.is_forked = self.background.forked
        recipe = functools.partial(self.recipe, into=writer)
        self.packer.process = uuid.uuid4().hex[:8]
        moment = Moment(self.packer, self.value, blocks=blocks, whole=self.whole)
        moment.pack(changes.groups)
        made: list[dict[str, Any]] = []
        for piece in {id(one): one for one in moment.pieces.values()}.values():
            packed = piece.packed
            blob, _ = put_blob(writer, self.address, units.bundle([packed.stream]))
            for chunk, data, base in _with_bases(piece, changes.before.get(piece.names[0])):
                writer.put(chunk, data, base=base)
            unequal = self.unequal(piece) or Unequal()
            unit = unit_of(piece, self.address(packed.stream), (blob, 0), changes.execution_id, unequal)
            more: dict[str, Any] = {
                "k": piece.key.hex(),
                "z": piece.seconds,
                "a": list(packed.labels),
                "e": sorted(packed.deps),
            }
            # The kernel finds these objects by their ids.
            others = {f"live:{token}": obj for token, obj in packed.live.items()} | packed.shared
            ids = [(label, id(obj), class_qualname(type(obj))) for label, obj in others.items()]
            more["u"] = {name: id(moment.value_of(name)) for name in sorted(unequal.lost)}
            made.append(units.unit_to_json(unit, recipe) | more | {"i": ids})
        failed = [Unit((name,), missing={name: why}) for name, why in moment.faults.items()]
        contents = {name: self.content(moment, name) for names in changes.groups for name in names}
        found = {name: one.to_json() for name, one in contents.items() if one is not None}
        return {"units": made + [units.unit_to_json(unit, recipe) for unit in failed], "f": found}

    def rename_labels(self, listed: dict[str, Any], labels: Mapping[str, str]) -> None:
        """Give the objects in a unit of a background job other labels, as if they had had them when it was packed.

        `listed`: the unit as the job returns it. Raises StoreError.
        """
        if labels.keys().isdisjoint([*listed.get("a", ()), *listed["n"]]):
            return
        unit = units.unit_from_json(listed, lambda blob: units.read_recipe(self.chunks.read(blob)))
        stream = relabelled(units.unbundle(self.chunks.read(unit.stream[0]), unit.stream[1]), labels)
        blob, _ = put_blob(self.chunks, self.address, units.bundle([stream]))

        def token(old: str) -> str:
            return labels.get(f"live:{old}", old).removeprefix("live:")

        live = tuple((token(one), version) for one, version in unit.live)
        again = tuple(one._replace(token=token(one.token)) for one in unit.again)
        names, shared = (tuple(labels.get(one, one) for one in some) for some in (unit.names, unit.labels))
        known = replace(unit, names=names, labels=shared, live=live, again=again)
        renamed = replace(known, digest=self.address(stream), stream=(blob, 0))
        key = pack_key(Opened(stream).body, [one.chunks for one in unit.buffers], [one for one, _ in live])
        listed |= units.unit_to_json(renamed, self.recipe)
        listed |= {"k": key.hex(), "a": [labels.get(label, label) for label in listed["a"]]}

    def _bundle(self, changes: StateChanges, current: State) -> None:
        blob = units.bundle([stream for _, stream, _ in changes.streams])
        address, written = put_blob(self.chunks, self.address, blob)
        changes.written += written
        for part, (digest, _, atoms) in enumerate(changes.streams):
            for one in atoms or (digest,):
                self.streams[one] = address, part
        for at, unit in enumerate(changes.units):
            if unit.digest and not unit.stream[0]:
                placed = changes.units[at] = replace(unit, stream=self.streams[unit.digest])
                for name in unit.names:
                    if current.get(name) is unit:
                        current[name] = placed

    def absent(self, addresses: Iterable[str]) -> list[str]:
        """Return the addresses whose data are neither stored nor being written."""
        return [one for one in self.chunks.missing(addresses) if not self.background.has_or_pending(one)]

    def wait_for(self, target: Mapping[str, Unit], tell: Tell = silent) -> None:
        """Wait for data of `target` that are still being written."""
        needed = (chunk for unit in target.values() for chunk in unit.chunks)
        if self.chunks.missing(needed):
            self.background.wait(BACKGROUND_SECONDS, tell=tell)


def _unhashed(_view: memoryview, _expired: Expired) -> tuple[str, ...]:
    return ()


def put_blob(chunks: Any, address: Callable[[Any], str], blob: bytes) -> tuple[str, int]:
    """Store a blob where it is not there already; return its address and the bytes written. Raises StoreError."""
    place = address(blob)
    return place, chunks.put(place, blob)


def _with_bases(piece: PackPiece, old: Unit | None) -> Iterator[tuple[str, memoryview, str | None]]:
    """Yield the chunks of a piece: address, data, and the address of the chunk that stood there before."""
    for at, (view, chunks) in enumerate(zip(piece.packed.buffers, piece.chunks, strict=True)):
        before: Sequence[str] = ()
        if old is not None and at < len(old.buffers) and old.buffers[at].nbytes == view.nbytes:
            before = old.buffers[at].chunks
        for place, chunk in enumerate(chunks):
            base = before[place] if place < len(before) else None
            yield chunk, view[place * CHUNK : (place + 1) * CHUNK], base


def _needs_threads(obj: object) -> bool:
    """Return whether the library of an object uses threads to store it, so that a fork of this process hangs."""
    return class_module(class_of(obj)).partition(".")[0] in _THREADED


def unit_of(piece: PackPiece, digest: str, place: tuple[str, int], version: str, unequal: Unequal) -> Unit:
    """Return a piece as a unit."""
    packed = piece.packed
    return Unit(
        piece.names,
        digest,
        place,
        tuple(Buffer(view.nbytes, chunks) for view, chunks in zip(packed.buffers, piece.chunks, strict=True)),
        {**packed.faults, **unequal.lost},
        packed.parts,
        piece.names if packed.inexact else unequal.inexact,
        live=tuple((token, version) for token in packed.live),
        labels=tuple(label for label in packed.labels if label.startswith(SHARED)),
        again=packed.again,
    )


def own_classes(module: str) -> Iterator[type]:
    """Yield the living classes whose module is that of the namespace."""
    level: list[type] = [object]
    seen: dict[int, type] = {id(object): object}
    while level:  # level by level, in C: a process has thousands of classes, and each return looks at all
        found = {id(cls): cls for cls in chain.from_iterable(map(type.__subclasses__, level))}
        level = [cls for key, cls in found.items() if key not in seen]
        seen |= found
    modules: Iterator[Any] = map(_module_of, map(_dict_of, seen.values()), repeat("__module__"))
    named = zip(modules, seen.values(), strict=False)
    yield from [cls for name, cls in named if name == module and class_module(cls) == module]


_dict_of: Any = type.__dict__["__dict__"].__get__
_module_of: Any = cast("Any", MappingProxyType).get
