"""Packs of several names at one moment: each name by itself, or together with names that share its objects.

Rule 1: no code of the user's runs between two packs of a moment, and its objects stay alive: an id is one object.
Rule 2: two names that hold one mutable object are packed together. An array or an index that several names hold has a
pack of its own, to which theirs refer: a change of it is no change of their packs.
Rule 3: a pack is whole or it is not made: names that take too long are returned as deferred. What they share with the
other names of the moment is unknown then, so these are deferred, too.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from xxhash import xxh3_128, xxh3_128_digest, xxh3_128_hexdigest

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.ports import Expired
from ctxkernel.core.reflection import SEQUENCES, class_of, is_any, loaded
from ctxkernel.core.replay import PACKED
from ctxkernel.core.state_names import LABELS, SHARED
from ctxkernel.core.timeline_events import NONE
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.tracking.array_nodes import Buffer
from ctxkernel.state.tracking.chunk_addresses import chunks_of
from ctxkernel.state.tracking.fingerprints import DRAWN, LIVE
from ctxkernel.state.tracking.late_changes import OwnContent
from ctxkernel.state.types.arrays import block_of
from ctxkernel.state.types.file_objects import buffer_address
from ctxkernel.state.types.library_constants import constants
from ctxkernel.state.types.memory_blocks import MemoryBlocks
from ctxkernel.state.types.packer import Packed, Packer
from ctxkernel.state.types.parts import OutOfTime, Unfinished, never

MOST_SHARED = 32
"""Objects with packs of their own that two names may have in common: those that have more are packed together."""
_MOST_LARGE = 200
"""Shared objects that are too large for a fingerprint, and within each other."""
_LONG = 0.005
"""Seconds of a pack from which on names in it are packed with it at once."""
_MOST_MEMBERS = 100


@dataclass(slots=True)
class PackPiece:
    """Names that are stored together, packed at one moment."""

    names: tuple[str, ...]
    packed: Packed
    chunks: tuple[tuple[str, ...], ...]
    """For each buffer: the addresses of its chunks."""
    key: bytes
    """Hash of the content: equal for equal bytes, whatever is shared with other pieces."""
    seconds: float
    """Processor time that packing took …"""
    hashing: float
    """… and hashing its buffers."""


@dataclass(slots=True)
class Group:
    """Variables that are stored together, as they were packed last."""

    names: tuple[str, ...]
    key: bytes
    """Empty while the shared objects of the names are unknown."""
    labels: tuple[str, ...]
    deps: set[str] | frozenset[str]
    seconds: float
    """Processor time that packing took …"""
    hashing: float = 0.0
    """… and hashing."""
    prints: dict[str, str] = field(default_factory=dict[str, str])
    """Fingerprints by name."""
    make_prints: Callable[[], dict[str, str]] | None = None
    """Makes them where none was asked for yet …"""
    by_data: bool = False
    """… and whether other runs compare the group by its data instead."""
    is_stale: bool = False
    """Whether something that it refers to has changed since its fingerprints were made."""
    buffer: Buffer | None = None
    """Of a large shared array: its memory."""
    slow: set[str] = field(default_factory=set[str])
    """While the key is empty: the names that took too long to be packed by themselves …"""
    contents: dict[str, OwnContent] = field(default_factory=dict[str, OwnContent])
    """… what the others held when they were …"""
    waited: bool = False
    """… whether a cell has waited for them …"""
    deferrals: int = 0
    """… and how many cells have deferred them since then."""

    def text_of(self, name: str) -> str:
        """Return the fingerprint of a name; empty if there is none."""
        if self.make_prints is not None:
            self.prints, self.make_prints = self.make_prints() | self.prints, None
        return self.prints.get(name, "")

    def is_by_data(self, name: str) -> bool:
        """Return whether other runs compare a name by its data: it depends on a figure, or is large."""
        return self.by_data or self.text_of(name).startswith(DRAWN)


def print_of(group: Group, groups: Mapping[str, Group], name: str, known: dict[str, str] | None = None) -> str:
    """Return the fingerprint of a name that says something about other runs; empty if there is none.

    It is of its content, or of its data where it is too large for that, or holds a figure. That has the content of the
    shared objects in it, and not their labels, which are others in each session. `known`: the numbers of those that
    were met, which stand for them where they are met again.
    """
    if not group.is_by_data(name) and (text := group.text_of(name)):
        return "" if text.startswith(LIVE) else text
    if not group.key:
        return PACKED
    known = {} if known is None else known
    if len(known) > _MOST_LARGE:
        return ""
    texts = [group.key.hex(), *(str(at) for at, one in enumerate(group.names) if one == name)]
    for label in group.labels:
        text = known.get(label, "")
        if not text:
            known[label] = f"#{len(known)}"
            text = print_of(one, groups, label, known) if (one := groups.get(label)) is not None else ""
        if text in ("", PACKED):
            return text
        texts.append(text)
    return PACKED + xxh3_128_hexdigest(" ".join(texts).encode())


@dataclass(slots=True)
class Moment:
    """The packs of one moment. `seconds`: processor time for all of them, None for no bound."""

    packer: Packer
    value: Callable[[str], Any]
    seconds: float | None = None
    chunks: Callable[[memoryview, Expired], tuple[str, ...]] | None = None
    """Gives the addresses of the chunks of a buffer; by default `chunks_of`, which hashes all of it."""
    blocks: MemoryBlocks = field(default_factory=MemoryBlocks)
    """Memory that the packs met."""
    whole: Callable[[Iterable[str]], list[tuple[str, ...]]] = lambda names: [(name,) for name in names]
    """Returns the groups that names are known to be in: a class shares its attributes with variables."""
    pieces: dict[str, PackPiece] = field(default_factory=dict[str, PackPiece])
    """By name."""
    first: dict[str, PackPiece] = field(default_factory=dict[str, PackPiece])
    """The piece of each name before shared objects were found: comparable with an earlier piece of these names."""
    deferred: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    slow: set[str] = field(default_factory=set[str])
    """Those of the deferred names that used up more than half of the time by themselves."""
    faults: dict[str, str] = field(default_factory=dict[str, str])
    """Names that could not be packed for a fault of ours, and why."""
    prints: dict[int, tuple[PackPiece, dict[str, str]]] = field(
        default_factory=dict[int, tuple[PackPiece, dict[str, str]]]
    )
    """Pieces by their ids, and their fingerprints."""
    _hashed: dict[tuple[int, int], Any] = field(default_factory=dict[tuple[int, int], Any])
    """By address and bytes: the memory, which has to stay for that, and the addresses of its chunks."""
    _alive: list[Any] = field(default_factory=list[Any])
    _tried: set[str] = field(default_factory=set[str])
    _late: set[int] = field(default_factory=set[int])
    """Ids of arrays that were packed before their memory was known."""
    _most: float = 0.0

    def pack(
        self,
        groups: Iterable[Sequence[str]],
        *,
        join: bool = True,
        refer: bool = True,
        fresh: Container[str] = (),
    ) -> None:
        """Pack groups of names, and referenced objects with packs of their own. `join`: find shared objects.

        `refer`: whether they may refer to something. Where that is not so after all, a single group is packed twice.
        `fresh`: names without an earlier pack of their own to compare with.
        """
        todo = first = [tuple(group) for group in groups]
        several = join and (refer or len(todo) > 1)
        if several and len(todo) > 1:
            todo = first = self._by_figure(todo, fresh)
        while todo:
            inside = set[tuple[str, ...]]()
            for at, names in enumerate(todo):
                if join and self.seconds == 0:  # what was packed is deferred with the rest: do no more of it
                    self.deferred += todo[at:]
                    break
                if names in inside:
                    continue
                self._pack(names, identities=several)
                piece = self.pieces.get(names[0])
                if several and piece is not None and piece.seconds >= _LONG:
                    # Axes of a figure, say: packed by themselves, each would be packed with all of the figure.
                    names_in_it = [one for one in todo[at + 1 :] if one[0] in fresh and self._lies_in(piece, one)]
                    inside.update(names_in_it)
                    if names_in_it:
                        self._pack(tuple(sorted((*names, *chain.from_iterable(names_in_it)))), identities=True)
            todo = self._referred(join=join)
            if todo and join and not several:  # identities show the objects that it shares with these
                several, todo = True, [*first, *todo]
        while several and (again := self._shared() or self._circles()):
            for names in again:
                self._pack(names, identities=True)
            while todo := self._referred(join=join):
                for names in todo:
                    self._pack(names, identities=True)
        self._alive.clear()
        for piece in (*self.pieces.values(), *self.first.values()):
            piece.packed.identities.clear()
        if join and self.deferred:
            self.deferred += dict.fromkeys(piece.names for piece in self.pieces.values())
            self.pieces.clear()

    def all_deferred(self, groups: Mapping[str, Group], old: Mapping[str, Group] = NONE) -> set[str]:
        """Return the deferred names and all that hold an object that they share: it may have changed."""
        names = {name for group in self.deferred for name in group}
        labels, more = set[str](), set(names)
        while more:
            known = [group for name in more if (group := groups.get(name) or old.get(name)) is not None]
            more = {label for group in known for label in group.labels if label.startswith(SHARED)} - labels
            labels |= more
        names |= {name for name in holders_of(labels, groups) if not name.startswith(LABELS)}
        todo = list(names)
        while todo:  # with what is stored together with one of these objects
            group = groups.get(name := todo.pop()) or old.get(name)
            shared = [label for label in group.labels if label.startswith(SHARED)] if group is not None else []
            for holder in [groups[label] for label in shared if label in groups]:
                more = set(holder.names) - names if len(holder.names) > 1 else ()
                names.update(more)
                todo += more
        return names

    def _pack(self, names: tuple[str, ...], *, identities: bool) -> None:
        values = {name: value for name in names if (value := self.value_of(name)) is not NOTHING}
        if not values:
            return
        for name in values:  # one that was made before shared objects were found
            self.pieces.pop(name, None)
        start = time.thread_time()
        most = self._most = self._most or self.seconds or 0.0
        end = start + self.seconds if self.seconds is not None else math.inf
        expired = (lambda: time.thread_time() > end) if self.seconds is not None else never
        try:
            packed = self.packer.pack(values, expired=expired, identities=identities, blocks=self.blocks)
            packing = time.thread_time() - start
            chunks = self._hash(packed, expired)
        except OutOfTime as unfinished:
            self.deferred.append(tuple(values))
            if time.thread_time() - start > most / 2 and not isinstance(unfinished, Unfinished):
                self.slow.update(values)
            return
        except Exception as fault:  # ours, or of a class that breaks the rules: it costs these names
            why = f"{class_of(fault).__name__} while it was stored: {fault}"[:200]
            self.faults |= dict.fromkeys(values, why)
            return
        finally:
            if self.seconds is not None:
                self.seconds = max(0.0, self.seconds - (time.thread_time() - start))
        self._alive.append(packed.noted)
        hashing = time.thread_time() - start - packing if chunks else 0.0
        piece = PackPiece(tuple(values), packed, chunks, pack_key(packed.body, chunks, packed.live), packing, hashing)
        self.pieces |= dict.fromkeys(values, piece)
        for name in values:
            self.first.setdefault(name, piece)

    def _by_figure(self, groups: list[tuple[str, ...]], fresh: Container[str]) -> list[tuple[str, ...]]:
        """Return the groups with those names in one that stand for parts of one figure.

        Each part leads to all of the figure: packed by themselves, each would be packed with all of it.
        """
        found: dict[Any, list[str]] = {}
        for names in groups:
            alone = len(names) == 1 and names[0] in fresh
            figure = figure_of(self.value_of(names[0])) if alone else None
            found.setdefault(names if figure is None else id(figure), []).extend(names)
        return [tuple(names) if len(names) == 1 else tuple(sorted(names)) for names in found.values()]

    def _lies_in(self, piece: PackPiece, names: tuple[str, ...]) -> bool:
        """Return whether a value, or one of the objects in a list or an array, lies in what is packed."""
        value, known = self.value_of(names[0]), piece.packed.identities
        cls = class_of(value)
        holds = cls in SEQUENCES or (cls is loaded("numpy").get("ndarray") and value.dtype.hasobject)
        members = islice(getattr(value, "flat", value), _MOST_MEMBERS) if holds else ()
        return len(names) == 1 and any(id(one) in known and not is_shareable(one) for one in (value, *members))

    def forget(self, *names: str) -> None:
        """Take in that these were touched: they may have other memory now."""
        for name in names:
            self.blocks.written.forget(self.value_of(name))

    def value_of(self, name: str) -> Any:
        """Return the value of a name or a label; NOTHING where there is none."""
        part = self.packer.part_of(name)
        return self.value(name) if part is None else part

    def _referred(self, *, join: bool) -> list[tuple[str, ...]]:
        """Return the labels in the pieces that have no piece yet: of shared objects, and classes of the user's.

        `join`: with the names that share objects with them.
        """
        wanted: dict[str, None] = {}
        for piece in {id(one): one for one in self.pieces.values()}.values():
            for label in piece.packed.labels:
                if not label.startswith("live:") and label not in self.pieces and label not in self._tried:
                    wanted[label] = None
        self._tried |= wanted.keys()  # one may be deferred, or fail, or be gone
        return self.whole(wanted) if join else [(label,) for label in wanted]

    def _shared(self) -> list[tuple[str, ...]]:
        """Return the groups that have to be packed again, since they hold the same objects."""
        once = {id(one): one for one in self.pieces.values()}.values()
        pieces = sorted(once, key=lambda piece: len(piece.packed.identities))
        owner: dict[int, int] = {}
        together = list(range(len(pieces)))
        again: set[int] = set()
        given: set[int] = set()
        """Ids of the objects that have a label from now on: the pieces hold them still."""

        def first(at: int) -> int:
            while together[at] != at:
                at = together[at]
            return at

        roots = {id(self.value_of(name)) for piece in pieces for name in piece.names}
        unchanging: set[int] | None = None
        for at, piece in enumerate(pieces):
            common: dict[int, list[int]] = {}
            objects = piece.packed.identities
            if keys := owner.keys() & objects.keys():
                unchanging = constants() - roots if unchanging is None else unchanging
                keys -= unchanging
            for key in keys:
                common.setdefault(owner[key], []).append(key)
            for other, keys in common.items():
                shareable = [objects[key] for key in keys if is_shareable(objects[key])]
                within = any(key in roots and not is_shareable(objects[key]) for key in keys)
                fresh = any(id(one) in given or self.packer.labels.get(one) is None for one in shareable)
                if not fresh or within or len(shareable) > MOST_SHARED:
                    together[first(at)] = first(other)
                    continue
                for obj in shareable:
                    if self.packer.labels.get(obj) is None:
                        self.packer.share(obj)
                        given.add(id(obj))
                again |= {at, other}
            if at < len(pieces) - 1:  # the largest is only compared
                owner |= dict.fromkeys(objects.keys() - owner.keys(), at)
            # An array that was packed before its memory was known to be that of a tensor, too.
            late = [*(self.blocks.replaced.keys() & objects.keys())]
            late += [
                key
                for key, one in (objects.items() if len(self.blocks) else ())
                if one is not None and (block := block_of(one, self.blocks)) and id(block) not in objects
            ]
            if not self._late.issuperset(late):
                self._late.update(late)
                again.add(at)
        groups: dict[int, list[int]] = {}
        for at in range(len(pieces)):
            groups.setdefault(first(at), []).append(at)
        return [
            tuple(sorted(name for at in members for name in pieces[at].names))
            for members in groups.values()
            if len(members) > 1 or not again.isdisjoint(members)
        ]

    def _circles(self) -> list[tuple[str, ...]]:
        """Return the groups that have to be packed together, since they refer to each other and could not be loaded."""
        pieces = {id(one): one for one in self.pieces.values()}

        def reached(key: int) -> set[int]:
            found, todo = set[int](), [key]
            while todo:
                labels = pieces[todo.pop()].packed.labels
                new = {id(self.pieces[label]) for label in labels if label in self.pieces} - found
                found |= new
                todo += new
            return found

        circles: dict[frozenset[int], None] = {}
        for key, piece in pieces.items():
            if len(piece.names) > 1 and any(name.startswith(SHARED) for name in piece.names):
                circles[frozenset({key, *(one for one in reached(key) if key in reached(one))})] = None
        return [
            tuple(sorted({name for key in circle for name in pieces[key].names}))
            for circle in circles
            if len(circle) > 1
        ]

    def _hash(self, packed: Packed, expired: Expired) -> tuple[tuple[str, ...], ...]:
        found: list[tuple[str, ...]] = []
        for view in packed.buffers:
            key = buffer_address(view), view.nbytes
            if key not in self._hashed:
                self._hashed[key] = view, (self.chunks or chunks_of)(view, expired)
            found.append(self._hashed[key][1])
        return tuple(found)


def holders_of(labels: Collection[str], groups: Mapping[str, Group]) -> set[str]:
    """Return the names and labels of what refers to classes or shared objects, also through each other."""
    found, more = set[str](), set(labels)
    while more:
        more = {name for name, group in groups.items() if not more.isdisjoint(group.labels)} - found
        found |= more
    return found


def distinct(pieces: Mapping[str, PackPiece]) -> list[PackPiece]:
    """Return each piece once, after those that it refers to: its fingerprints need theirs."""
    once = {id(one): one for one in pieces.values()}.values()
    todo = sorted(once, key=lambda piece: any(name.startswith(LABELS) for name in piece.names))
    found: dict[int, PackPiece] = {}
    opened: set[int] = set()
    while todo:
        piece = todo[-1]
        opened.add(id(piece))
        referenced = [one for label in piece.packed.labels if (one := pieces.get(label)) is not None]
        if more := [one for one in referenced if id(one) not in opened]:
            todo += more
        else:
            found[id(piece)] = todo.pop()
    return [*found.values()]


def is_pack_of(group: Group | None, piece: PackPiece) -> bool:
    """Return whether a piece is what is known of a group."""
    known = group is not None and (group.names, group.key, group.labels)
    return known == (piece.names, piece.key, piece.packed.labels)


def pack_key(body: memoryview, chunks: Sequence[Sequence[str]], live: Collection[str]) -> bytes:
    """Return the hash of a pack: of its body, the chunks of its buffers, and the tokens of its unstored objects."""
    if not chunks and not live:
        return xxh3_128_digest(body)
    digest = xxh3_128(body)
    for one in chunks:
        digest.update("\0".join(one).encode())
    digest.update("\n".join(live).encode())
    return digest.digest()


def figure_of(value: Any) -> Any:
    """Return the figure that a value is or belongs to, or the first item of a list or an array; None for others."""
    if class_of(value) is loaded("numpy").get("ndarray") and value.dtype.hasobject:
        value = next(value.flat, None)
    elif class_of(value) in SEQUENCES and value:
        value = value[0]
    cls = class_of(value)
    if is_any(cls, ("matplotlib.figure", "FigureBase")):
        return value
    if not is_any(cls, ("matplotlib.artist", "Artist")):
        return None
    members: dict[str, Any] = object.__getattribute__(value, "__dict__")
    return members.get("_parent_figure") or members.get("figure")  # since matplotlib 3.10, and before it


def is_shareable(obj: Any) -> bool:
    """Return whether an object has a pack of its own where several names hold it: it holds no object of the user's."""
    if is_any(class_of(obj), ("numpy", "ndarray")):
        return not sys.modules["numpy"].ndarray.dtype.__get__(obj).hasobject
    return (
        is_any(class_of(obj), ("pandas", "Index"), ("pandas.api.extensions", "ExtensionArray")) and obj.dtype != object
    )
