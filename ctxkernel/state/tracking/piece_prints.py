"""Fingerprints of the names of a pack. Those of figures and large data are made where one is asked for: few change.

These are compared by their content only where their bytes differ, and in other runs by pixels or bytes.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ctxkernel.core.collector import without_collector
from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.reflection import AttributePlan, class_of, is_any
from ctxkernel.core.state_names import CLASS, LABELS, SHARED
from ctxkernel.state.tracking import fingerprints
from ctxkernel.state.tracking.array_nodes import Buffer, buffer_in_stream
from ctxkernel.state.tracking.groups import Group, Moment, PackPiece
from ctxkernel.state.tracking.stream_trees import Node, TooLarge, values_of
from ctxkernel.state.types.packer import Packer

_FIGURE = fingerprints.FIGURE.decode()
_MOST_FIGURE = fingerprints.MORE_IN_FIGURES * fingerprints.COMPARED_BYTES
_DEEPEST = 20
"""Figures in figures."""
_OUTSIDE = (b"\x08database", b"\x04file")
"""Constructors, with their lengths, of objects whose content is elsewhere."""


@dataclass(eq=False, repr=False)
class PiecePrints:
    """Makes fingerprints of pieces. `groups`: what is known of each name."""

    packer: Packer
    groups: Mapping[str, Group]

    def give(self, group: Group, piece: PackPiece) -> None:
        """Give a group the fingerprints of its piece."""
        packed, group.prints, group.make_prints, group.is_stale = piece.packed, {}, None, False
        group.by_data = self._is_by_data(piece)
        group.buffer = _buffer_of(piece)
        if not group.by_data:
            group.prints = self.of(piece)
            return
        try:
            shared = {label: self.of_label(label) for label in packed.labels}
        except TooLarge:
            return
        known = {label: self._known_buffer(label) for label in packed.labels}
        memory = PackBuffers(piece.chunks, [one.nbytes for one in packed.buffers], known.get)
        make = functools.partial(self._make, packed.stream, shared.__getitem__, memory)
        group.make_prints = make

    def text_of(self, group: Group, piece: PackPiece, name: str) -> str:
        """Return the fingerprint of a name of a group, made of its piece if it is large plain data."""
        alone = len(piece.names) == 1 and self._is_large(piece)
        return group.text_of(name) or (self._of(piece).get(name, "") if alone else "")

    def of(self, piece: PackPiece, moment: Moment | None = None) -> dict[str, str]:
        """Return fingerprints of the names of a piece; none if it is too large.

        `moment`: has the shared objects that the piece refers to; without one they are those that are known.
        """
        return {} if self._is_large(piece) else self._of(piece, moment)

    def _of(self, piece: PackPiece, moment: Moment | None = None) -> dict[str, str]:
        if moment is None:
            return self._made(piece, self.of_label, self._known_buffer)
        if id(piece) not in moment.prints:
            shared, known = functools.partial(self._in_moment, moment), functools.partial(_buffer_in, moment)
            moment.prints[id(piece)] = piece, self._made(piece, shared, known)
        return moment.prints[id(piece)][1]

    def _made(
        self, piece: PackPiece, shared: Callable[[str], str], known: Callable[[str], Buffer | None]
    ) -> dict[str, str]:
        packed = piece.packed
        memory = PackBuffers(piece.chunks, [one.nbytes for one in packed.buffers], known)
        if not self._is_by_data(piece):
            memory.held, memory.living = packed.buffers, self.packer.part_of
        return self._make(packed.stream, shared, memory)

    def renew(self, group: Group, moment: Moment) -> dict[str, str]:
        """Make the fingerprints of a group anew after something that it refers to changed; return those before.

        A group that cannot be packed at this moment has none then.
        """
        piece = None
        if not group.by_data and (moment.seconds is None or group.seconds <= moment.seconds):
            if moment.pieces.keys().isdisjoint(group.names):
                moment.pack([group.names], join=False)
            piece = next(filter(None, map(moment.pieces.get, group.names)), None)
        if piece is None or not set(piece.names) <= set(group.names):  # a return may have removed some of them
            group.prints, group.make_prints, group.is_stale = {}, None, True
            return {}
        before = {name: group.text_of(name) for name in group.names}
        group.prints = dict(self.of(piece, moment))
        group.is_stale = "" in group.prints.values()
        return before

    def of_label(self, label: str) -> str:
        """Return the fingerprint of a shared object. Raises TooLarge where it is not known."""
        group = self.groups.get(label)
        if group is None:
            return label
        if group.is_stale:
            raise TooLarge
        return group.text_of(label) or group.key.hex()

    def hidden(self, label: str) -> frozenset[str]:
        """Return the attributes of instances of a class that follow from the others: of cached properties."""
        cls = self.packer.classes.object(label)
        return AttributePlan(cls, own=True).skip if cls is not None else frozenset()

    def _is_by_data(self, piece: PackPiece) -> bool:
        """Return whether other runs compare a piece by its data: not one with own classes, or content elsewhere."""
        packed, size = piece.packed, len(piece.packed.stream)
        several = len(piece.names) > 1 and size <= fingerprints.COMPARED_BYTES and self._is_large(piece)
        if not several and (size > _MOST_FIGURE or fingerprints.FIGURE not in packed.stream):
            return False
        return not (packed.classes or packed.live or any(one in packed.stream for one in _OUTSIDE))

    @staticmethod
    def _is_large(piece: PackPiece) -> bool:
        """Return whether a piece is large plain data."""
        return not piece.packed.noted and len(piece.packed.stream) > fingerprints.PLAIN_BYTES

    def _in_moment(self, moment: Moment, label: str) -> str:
        if (piece := moment.pieces.get(label)) is None:
            if label.startswith(LABELS):  # it was not packed in time
                raise TooLarge
            return label
        return self.of(piece, moment).get(label, "") or piece.key.hex()

    def _known_buffer(self, label: str) -> Buffer | None:
        group = self.groups.get(label)
        return group.buffer if group is not None else None

    @without_collector()
    def _make(self, stream: bytes, shared: Callable[[str], str], memory: PackBuffers) -> dict[str, str]:
        size = len(stream)
        if size > _MOST_FIGURE or (size > fingerprints.COMPARED_BYTES and fingerprints.FIGURE not in stream):
            return {}
        try:
            trees = values_of(stream, memory.sizes, memory.chunks)
        except Exception:  # a stream that only its maker can read: nothing is known then
            return {}
        make = functools.partial(
            fingerprints.content_fingerprint,
            buffers=memory.chunks,
            shared=shared,
            hidden=self.hidden,
            memory=memory,
            budget=fingerprints.NodeBudget(),
        )
        figures = _Figures(make)

        def text_of(tree: Any) -> str:
            if isinstance(tree, type) and not hasattr(tree, "content") and (uid := getattr(tree, "label", "")):
                with contextlib.suppress(TooLarge):  # it is not known
                    return shared(f"{CLASS}{uid}")
                return ""
            return make(tree, part=figures.text_of)

        return {name: text_of(tree) for name, tree in trees.items()}


@dataclass(slots=True)
class PackBuffers:
    """Finds the memory of the arrays and blocks that the nodes of a pack stand for."""

    chunks: Sequence[Sequence[str]]
    """Of each of its buffers, the addresses of the chunks …"""
    sizes: Sequence[int]
    """… and the size in bytes."""
    known: Callable[[str], Buffer | None] = lambda _: None
    """Gives the memory of a large shared array, by its label."""
    held: Sequence[memoryview] = ()
    """The buffers; none if they may have changed since they were packed …"""
    living: Callable[[str], Any] | None = None
    """… as the object with a label may: this gives it."""

    def __call__(self, root: Node) -> Buffer | None:
        """Return the memory that a node stands for; None where that is not known."""
        if root.made == "shared":
            return self._shared(root.args[0])
        at: Any = root.args[0] if root.made in ("array", "memory_block") else None
        if not isinstance(at, int):
            return buffer_in_stream(root)
        return Buffer(self.held[at] if self.held else None, self.sizes[at], self.chunks[at])

    def _shared(self, label: str) -> Buffer | None:
        known, one = self.known(label), self.living(label) if self.living is not None else None
        if one is None or not is_any(class_of(one), ("numpy", "ndarray")):
            return known
        ndarray: Any = sys.modules["numpy"].ndarray
        plain = ndarray.view(one, ndarray)
        flat = plain if plain.flags.c_contiguous else plain.T
        return Buffer(flat, plain.nbytes, known.chunks if known is not None and known.size == plain.nbytes else ())


def _buffer_in(moment: Moment, label: str) -> Buffer | None:
    piece = moment.pieces.get(label)
    return _buffer_of(piece) if piece is not None else None


def _buffer_of(piece: PackPiece) -> Buffer | None:
    """Return the memory of a large shared array."""
    buffers = piece.packed.buffers
    [name, *others] = piece.names
    if others or len(buffers) != 1 or not name.startswith(SHARED):
        return None
    return Buffer(None, buffers[0].nbytes, piece.chunks[0])


class _Figures:
    """Fingerprints of the figures of a pack. `make`: makes one.

    Each part of a figure leads to all of it, so the fingerprint of a part is that of its figure, with its place there.
    """

    def __init__(self, make: Callable[..., str]) -> None:
        self._make = make
        self._known: dict[int, tuple[str, dict[int, int]]] = {}

    def text_of(self, part: Node) -> str:
        """Return the fingerprint of a part of a figure; empty for other nodes. Raises TooLarge."""
        figure = part
        for _ in range(_DEEPEST):
            outer = _figure_of(figure)
            if outer is None or outer is figure:
                break
            figure = outer
        if not figure.made.startswith(_FIGURE):
            return ""
        if id(figure) not in self._known:
            places: dict[int, int] = {}
            most = fingerprints.MORE_IN_FIGURES * fingerprints.MOST_NODES
            self._known[id(figure)] = self._make(figure, places=places, most=most), places
        text, places = self._known[id(figure)]
        if not text:
            raise TooLarge
        return f"{text} {places[id(part)]}" if id(part) in places else ""


def _figure_of(part: Node) -> Node | None:
    """Return the figure, or the part of a figure, that a part names as its figure."""
    for state in part.state:
        if class_of(state) is dict:
            for name in ("_parent_figure", "figure"):  # since matplotlib 3.10, and before it
                if isinstance(one := state.get(name), Node):
                    return one
    return None
