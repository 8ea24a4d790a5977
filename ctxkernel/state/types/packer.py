"""Packs of values: a stream, and large memory beside it. Names that share an object share it again after unpacking.

Rule 1: a value that cannot be stored costs its own name; an object inside of one becomes a stand-in. Both are named.
Rule 2: large memory is not copied: `Packed.buffers` are the user's own arrays and must be released before the user's
code runs again (a bytearray cannot be resized while a view of it exists).
Rule 3: packing changes nothing of the user's, and keeps nothing alive but `Packed.buffers` and `Packed.live`.

A stream: magic, version, number of seeds, bytes of the labels; the labels of what it refers to and does not hold; the
places at which large memory was cut out of the pickle; which buffers the pickle asks for in turn; the pickle of
`(values, names that are faults)`. The pickle has numbers in the place of labels: equal content gives equal bytes after
the labels, whatever the labels are (`Packed.body`).
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import operator
import struct
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

from ctxkernel.core.collector import without_collector
from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.ports import Expired
from ctxkernel.core.reflection import class_of, is_own_class
from ctxkernel.state.types import arrays, fallbacks, tensors
from ctxkernel.state.types.classes import Again, bases_first
from ctxkernel.state.types.connections import Connection
from ctxkernel.state.types.memory_blocks import MemoryBlocks
from ctxkernel.state.types.object_names import ObjectNames
from ctxkernel.state.types.object_paths import places
from ctxkernel.state.types.pack_state import PackFindings, PackState
from ctxkernel.state.types.parts import (
    BEFORE_NAME,
    SEEDS,
    SMALL,
    Lost,
    NotCopied,
    OutOfTime,
    never,
    part_seed,
    plain_name,
    said,
)
from ctxkernel.state.types.pickle_scan import needs_identities
from ctxkernel.state.types.reducers import FINALIZED, Cache, Dispatcher, FastPickler, IdentityPickler
from ctxkernel.state.types.restorer import Loader, StreamRestorer

__all__ = ["Lost", "Opened", "OutOfTime", "Packed", "Packer"]

_HEAD = struct.Struct("<4sBBIII")
_CUT = struct.Struct("<QI")
_MAGIC = b"ctxp"
_VERSION = 2
_SEED = b"\x97\x94\x30"
"""NEXT_BUFFER, MEMOIZE, POP: takes one seed into the memo."""
_FRAME = 0x95
_CULPRITS = 10
"""Objects that are left out one by one where the pickler itself fails; then every name is tried by itself."""
_TRIES = _CULPRITS + 5


@dataclass(slots=True)
class Packed(PackFindings):
    """Values as a stream, and the findings about it."""

    stream: bytes = b""
    parts: tuple[str, ...] = ()
    """Objects that are not stored inside of stored values: `generator in d['x']`."""
    again: tuple[Connection, ...] = ()
    """Objects of `live` that can be connected again after their end."""
    labels: tuple[str, ...] = ()
    """Labels of referenced objects: `class:<uid>`, `live:<token>`, `shared:<token>`, in the order of their numbers."""
    identities: dict[int, object] = field(default_factory=dict[int, object])
    """Mutable objects by id; None for those that the pickler stores by itself. Only where requested.

    Valid while `noted` is alive and no code of the user's runs.
    """

    @property
    def body(self) -> memoryview:
        """The part of the stream that depends on the content only."""
        start = _HEAD.size + _HEAD.unpack_from(self.stream)[3] if self.stream else 0
        return memoryview(self.stream)[start:]

    @property
    def nbytes(self) -> int:
        """Bytes of the stream and the buffers."""
        return len(self.stream) + sum(one.nbytes for one in self.buffers)


class _Out:
    """The output of the pickler: takes out large pieces without copying them."""

    def __init__(self, pack: PackState) -> None:
        self.pack = pack
        self.pieces: list[bytes] = []
        self.size = 0
        self.frame = 0
        self.cuts: list[tuple[int, int]] = []

    def write(self, data: Any) -> int:
        if self.pack.expired():
            raise OutOfTime
        size = len(data)
        if size < SMALL or _is_frame(data, size) or size == self.frame:
            self.pieces.append(bytes(data))
            self.size += size
            # The pickler in Python writes the head of a frame by itself.
            self.frame = int.from_bytes(data[1:], "little") if size == 9 and data[0] == _FRAME else 0
        else:
            self.cuts.append((self.size, self.pack.buffer(memoryview(data).cast("B"))))
        return size


def _is_frame(data: Any, size: int) -> bool:
    at = 2 if data[0] == 0x80 else 0
    return data[at] == _FRAME and int.from_bytes(data[at + 1 : at + 9], "little") + at + 9 == size


class _In(io.RawIOBase):
    """The input of the unpickler, by a BufferedReader: inserts the large pieces again."""

    def __init__(self, pieces: Iterable[memoryview]) -> None:
        self._pieces = iter(pieces)
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self._piece.nbytes:
            if (piece := next(self._pieces, None)) is None:
                return 0
            self._piece = piece
        size = min(len(into), self._piece.nbytes)
        into[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size


@dataclass(slots=True)
class _Tries:
    """Findings of earlier tries of one pack, which the next one needs."""

    refused: dict[int, str]
    own_way: set[int] = field(default_factory=set[int])
    members: set[int] | None = None
    culprits: list[object] = field(default_factory=list[object])
    """Objects that were refused, so that their ids stay their own."""
    deep: bool = False
    identify: bool = False
    counting: bool = False
    no_devices: str = ""

    def blame(self, pack: Dispatcher, fault: Exception) -> bool:
        """Take in why the pickler failed; return False where no single object is to blame."""
        culprit = fault.culprit if isinstance(fault, fallbacks.EndlessReduction) else pack.current
        if isinstance(fault, RecursionError) and not self.deep and not pack.recurses(culprit):
            self.deep = True
        elif culprit is not None and id(culprit) not in self.refused and len(self.culprits) < _CULPRITS:
            self.culprits.append(culprit)
            self.refused[id(culprit)] = said(fault)
        else:
            return False
        return True

    def is_last(self, pack: Dispatcher, pickler: Any, out: _Out) -> bool:
        """Take in what a try found; return whether no further one is needed."""
        again = {id(class_of(one)) for one in pack.by_attributes} - self.own_way
        if pack.targets and self.members is None:
            known = pickler.memo.copy()
            self.members = {id(one) for one in pack.targets if id(one) in known}
        elif not self.identify and needs_identities(out.pieces, {at for at, _ in out.cuts}):
            self.identify = True
        elif pack.counting:
            self.counting, self.no_devices = False, tensors.too_large(pack)
        elif pack.met_memory and arrays.widen_blocks(pack.noted, pack.blocks):
            pass  # the next try knows the memory from the beginning
        elif again and pack.missing:  # the methods of a class may know how to store these
            self.own_way |= again
        else:
            return True
        return False


@dataclass(eq=False, repr=False)
class Packer(ObjectNames):
    """Packs and unpacks values of one namespace, whose module has the name `module`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._caches = {plain: Cache() for plain in (False, True)}
        """The reducers of library classes, as they are stored and by their attributes."""
        self._found: tuple[object, ...] = (None,) * len(SEEDS)
        self._memo: dict[int, tuple[int, object]] = {}
        self._registry: tuple[int, object] = 0, None
        self._targets: list[int] = []

    def pack(
        self,
        values: Mapping[str, object],
        *,
        expired: Expired = never,
        identities: bool = False,
        blocks: MemoryBlocks | None = None,
        plain: bool = False,
        claimed: bool = False,
        labels: Collection[str] | None = None,
    ) -> Packed:
        """Pack values by name. Raises OutOfTime.

        A name `class:<uid>` stores that class itself, `shared:<token>` that object. `identities`: give those too.
        `blocks`: memory that earlier packs met at the same moment. `plain`: store instances by their attributes.
        `claimed`: store of the objects of libraries what their classes say is all.
        `labels`: those that objects with packs of their own may have here, by default any.
        """
        blocks = MemoryBlocks() if blocks is None else blocks
        tries = _Tries(dict.fromkeys(self._finalized(), FINALIZED), counting=tensors.must_count())
        alone: dict[str, str] = {}
        with _undisturbed():
            for _ in range(_TRIES):
                pack = Dispatcher(self, self._caches[plain], values, expired, plain=plain, claimed=claimed)
                pack.blocks, pack.own_way, pack.identify = blocks, tries.own_way, identities
                pack.refused, pack.members, pack.deep = tries.refused, tries.members, tries.deep
                pack.counting, pack.no_devices = tries.counting, tries.no_devices
                if labels is not None:
                    pack.label_of = lambda obj: label if (label := self.labels.get(obj)) in labels else None
                out = _Out(pack)
                try:
                    pickler = self._dump(pack, out, values, identify=tries.identify)
                except (OutOfTime, KeyboardInterrupt):
                    raise
                except NotCopied as fault:
                    tries.no_devices = str(fault)
                    continue
                except Exception as fault:
                    if not tries.blame(pack, fault):
                        alone |= self._faulty(values, expired, said(fault))
                        values = {name: value for name, value in values.items() if name not in alone}
                    continue
                if tries.is_last(pack, pickler, out):
                    found = pack.identities(pickler, self._seeds()) if identities else {}
                    pickler.clear_memo()
                    outside = functools.cache(functools.partial(self._lacking_outside, pack, values))
                    find = functools.partial(places, values, expired=expired, outside=outside)
                    return _packed(pack, out, alone, found, find)
        reason = "it cannot be stored together with what it shares objects with"
        return Packed(faults=dict.fromkeys(values, reason) | alone)

    def _dump(self, pack: Dispatcher, out: _Out, values: Mapping[str, object], *, identify: bool = False) -> Any:
        make = fallbacks.DeepPickler if pack.deep else IdentityPickler if identify else FastPickler
        pickler: Any = make(out, 5, buffer_callback=pack.keep_out)
        pickler.reducer_override = pack.reduce
        if identify:
            pickler.identity = pack.identity
        pickler.memo = dict(self._seeds()) if pack.deep else self._seeds()
        faults: list[str] = []
        pack.fault_names = faults
        named = {BEFORE_NAME + name: value for name, value in bases_first(values)}
        pack.temporary |= {id(named), id(faults)}
        pickler.dump((named, faults))
        return pickler

    def _lacking_outside(self, pack: Dispatcher, values: Mapping[str, object]) -> set[int]:
        """Return the ids of objects that are missing, or lack a part, and do not only lie inside of missing ones.

        These are met again by a pack that does not look into what is missing.
        """
        cache = self._caches[pack.plain]
        shallow = Dispatcher(self, cache, values, pack.expired, plain=pack.plain, claimed=pack.claimed)
        shallow.shallow = True
        shallow.own_way, shallow.refused, shallow.members = pack.own_way, pack.refused, pack.members
        shallow.deep, shallow.no_devices, shallow.label_of = pack.deep, pack.no_devices, pack.label_of
        self._dump(shallow, _Out(shallow), values)
        known = {id(obj) for obj, _ in (*pack.missing, *pack.left_out)}
        met = {id(obj) for obj, _ in (*shallow.missing, *shallow.left_out)}
        return met if met.issubset(known) else known

    def _finalized(self) -> list[int]:
        """Return the ids of instances of the user's classes that have a `weakref.finalize`."""
        registry: dict[Any, Any] = vars(weakref.finalize)["_registry"]
        known = len(registry), next(reversed(registry), None)
        if known != self._registry:
            targets = [info.weakref() for info in list(registry.values())]
            self._registry = known
            self._targets = [id(one) for one in targets if is_own_class(class_of(one), self.module)]
        return self._targets

    def _seeds(self) -> dict[int, tuple[int, object]]:
        """Return the memo with which a pickle begins: by id of a seed, its number and itself."""
        get = self.namespace.get
        found = (
            *(self.namespace, builtins.__dict__, part_seed, sys.modules, sys.path, sys.argv),
            *(get("_ih"), get("_oh"), get("_dh")),
        )
        if not all(map(operator.is_, found, self._found)):
            self._found = found
            self._memo = {}
            for at, seed in enumerate(found):
                one: object = [] if seed is None or id(seed) in self._memo else seed
                self._memo[id(one)] = at, one
        return self._memo

    def _faulty(self, values: Mapping[str, object], expired: Expired, reason: str) -> dict[str, str]:
        """Return the names that cannot be packed by themselves; all of them where each can."""
        found: dict[str, str] = {}
        for name, value in values.items():
            pack = Dispatcher(self, self._caches[False], {name: value}, expired)
            try:
                self._dump(pack, _Out(pack), {name: value})
            except (OutOfTime, KeyboardInterrupt):
                raise
            except Exception as fault:
                found[name] = said(fault)
        return found or dict.fromkeys(values, reason)

    def unpack(
        self,
        stream: Any,
        buffers: Sequence[Any] = (),
        *,
        handles: Callable[[str], object] = Lost,
        live: Callable[[str], object | None] = lambda _: None,
        lost: Callable[[str], object] = Lost,
        classes: Callable[[str], object | None] = lambda _: None,
        shared: Callable[[str], object | None] = lambda _: None,
        report: list[str] | None = None,
        trial: bool = False,
        again: Mapping[str, Again] = types.MappingProxyType({}),
        renames: Mapping[str, str] = types.MappingProxyType({}),
    ) -> dict[str, object]:
        """Return the values by name.

        `buffers` are those of the pack, in its order; one that can be written to becomes the memory of what is
        restored. `classes(uid)` may make a class that is not alive; `shared(label)` gives an object with a pack of its
        own. What cannot be put together is a stand-in that `lost` makes; `report` is told. A `trial` leaves no trace:
        classes that it makes are not known by their uid. `again`: by uid, living classes that are to become what the
        stream has, and take that. `renames`: label in the stream → the label that is meant. Raises ValueError for what
        is no stream of ours.
        """
        opened = Opened(stream)
        given = handles, live, lost, classes, shared, trial, again, renames, self.classes.names
        labels = [renames.get(label, label) for label in opened.labels]
        restorer = StreamRestorer(self, labels, buffers, *given)
        with _undisturbed():
            values, faults = self._load(restorer, opened)
        if report is not None:
            report.extend(restorer.said)
        stand_ins = {id(one) for one in restorer.stand_ins}
        return {
            renames.get(name, name): value
            for name, value in values.items()
            if name not in faults or id(value) not in stand_ins
        }

    def _load(self, restorer: StreamRestorer, opened: Opened) -> tuple[dict[str, object], list[str]]:
        seeds = [restorer.part if seed is part_seed else seed for _, seed in self._seeds().values()]

        def load(kind: Any) -> Any:
            loader = kind(opened.source(restorer.buffers), buffers=opened.turns(seeds, restorer.buffers))
            loader.restorer = restorer
            return loader.load()

        try:
            values, faults = load(Loader)
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException:  # of the user's code, or of a library that has changed: load piece by piece
            restorer.said.clear()
            restorer.stand_ins.clear()
            values, faults = load(fallbacks.CarefulLoader)
        return {plain_name(name): value for name, value in values.items()}, [*map(plain_name, faults)]


@contextlib.contextmanager
def _undisturbed() -> Generator[None]:
    """Disable the garbage collector and warnings, and restore the recursion limit where code of the user's changes it.

    An ignored warning leaves no trace: neither in a list that records warnings, nor in the registry of a module, which
    would keep the same warning from being shown for a cell. A module that is imported here may add filters.
    """
    limit, filters = sys.getrecursionlimit(), warnings.filters
    quiet: list[Any] = [_IGNORED]
    warnings.filters = quiet  # type: ignore[misc]
    try:
        with without_collector():
            yield
    finally:
        warnings.filters = filters  # type: ignore[misc]
        if len(quiet) > 1:
            filters[:0] = [one for one in quiet if one is not _IGNORED]  # type: ignore[index]
        if sys.getrecursionlimit() != limit:
            sys.setrecursionlimit(limit)


_IGNORED = ("ignore", None, Warning, None, 0)


class Opened:
    """The sections of a stream. Raises ValueError for an invalid stream."""

    def __init__(self, stream: Any) -> None:
        whole = memoryview(stream)
        head = bytes(whole[: _HEAD.size]).ljust(_HEAD.size, b"\0")
        magic, version, self.seeds, size, cuts, turns = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION or self.seeds > len(SEEDS):
            raise ValueError("not a pack that this version can read")
        self.labels = bytes(whole[_HEAD.size : _HEAD.size + size]).decode().split()
        """The labels of the numbers in the pickle."""
        at = _HEAD.size + size
        self.body = whole[at:]
        """The part that depends on the content only."""
        self.cuts: list[Any] = [_CUT.unpack_from(whole, at + n * _CUT.size) for n in range(cuts)]
        """Places in the pickle, and the buffers that were cut out there."""
        at += cuts * _CUT.size
        self.order: tuple[int, ...] = struct.unpack_from(f"<{turns}I", whole, at)
        """Buffers that the pickle asks for in turn."""
        self.pickle = whole[at + 4 * turns :]

    def turns(self, seeds: Sequence[Any], buffers: Sequence[Any]) -> Any:
        """Yield the objects that the unpickler requests: the seeds, then buffers."""
        yield from seeds[: self.seeds]
        for number in self.order:
            yield buffers[number]

    def source(self, buffers: Sequence[Any]) -> Any:
        """Return the file that the unpickler reads."""
        if not self.cuts:
            return io.BytesIO(_SEED * self.seeds + self.pickle)
        pieces, start = [memoryview(_SEED * self.seeds)], 0
        for at, number in self.cuts:
            pieces += self.pickle[start:at], memoryview(buffers[number]).cast("B")
            start = at
        return io.BufferedReader(_In([*pieces, self.pickle[start:]]))


def relabelled(stream: Any, labels: Mapping[str, str]) -> bytes:
    """Return a stream with other labels: of the objects that it refers to, and of those that it stores.

    Raises ValueError for an invalid stream, and for a stored object whose other label has another length.
    """
    opened = Opened(stream)
    magic, version, seeds, _, cuts, turns = _HEAD.unpack_from(stream)
    referred = "\n".join(labels.get(label, label) for label in opened.labels).encode()
    head = _HEAD.pack(magic, version, seeds, len(referred), cuts, turns)
    body = bytes(opened.body)
    for old, new in labels.items():
        name = (BEFORE_NAME + old).encode()
        if len(old) != len(new) and name in body:  # the pickle holds lengths
            raise ValueError(f"{old} has another length than {new}")
        body = body.replace(name, (BEFORE_NAME + new).encode())
    return b"".join([head, referred, body])


def _packed(
    pack: Dispatcher, out: _Out, alone: dict[str, str], found: dict[int, object], find: Callable[..., Iterable[str]]
) -> Packed:
    """Return the pack. `find` returns the places of objects, as `places` does."""
    pack.faults |= alone
    if pack.exporters:
        pack.inexact |= not {id(one) for one in pack.exporters}.isdisjoint(map(id, pack.noted))
    labels = "\n".join(pack.labels).encode()
    head = [_HEAD.pack(_MAGIC, _VERSION, len(SEEDS), len(labels), len(out.cuts), len(pack.ordered)), labels]
    head += [_CUT.pack(*cut) for cut in out.cuts]
    head.append(struct.pack(f"<{len(pack.ordered)}I", *pack.ordered))
    return Packed(
        **{name: getattr(pack, name) for name in PackFindings.__dataclass_fields__},
        stream=b"".join([*head, *out.pieces]),
        parts=tuple(find(pack.missing, pack.left_out)) if pack.missing or pack.left_out else (),
        again=_connections(pack, find),
        labels=tuple(pack.labels),
        identities=found,
    )


def _connections(pack: PackState, find: Callable[..., Iterable[str]]) -> tuple[Connection, ...]:
    """Return the connections that can be made again, with the names and places that refer to them."""
    if not pack.again:
        return ()
    found = {one.token: list(pack.tops.get(id(obj), ())) for obj, one in pack.again}
    token_of = {id(obj): one.token for obj, one in pack.again}
    missing = [(obj, token_of.get(id(obj), "")) for obj, _ in pack.missing]
    for text in find(missing, ()):
        token, _, place = text.partition(" in ")
        if token:
            found[token].append(place)
    return tuple(one._replace(places=tuple(found[one.token])) for _, one in pack.again)
