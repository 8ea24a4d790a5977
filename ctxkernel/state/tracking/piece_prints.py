"""Fingerprints of the names of a pack. Those of figures and large data are made where one is asked for: few change.

These are compared by their content only where their bytes differ, and in other runs by pixels or bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ctxkernel.core.collector import without_collector
from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.reflection import AttributePlan, class_of
from ctxkernel.core.state_names import CLASS
from ctxkernel.state.tracking import fingerprints
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
        packed, group.make_prints = piece.packed, None
        group.by_data = self._is_by_data(piece)
        if not group.by_data:
            group.prints = self.of(piece)
            return
        shared = {label: self.of_label(label) for label in packed.labels}
        sizes = [one.nbytes for one in packed.buffers]
        make = functools.partial(self._make, packed.stream, sizes, piece.chunks, shared.__getitem__)
        group.prints, group.make_prints = {}, make

    def of(self, piece: PackPiece, moment: Moment | None = None) -> dict[str, str]:
        """Return fingerprints of the names of a piece; none if it is too large.

        `moment`: has the shared objects that the piece refers to; without one they are those that are known.
        """
        if self._is_large(piece):
            return {}
        packed = piece.packed
        shared = self.of_label if moment is None else functools.partial(self._in_moment, moment)
        return self._make(packed.stream, [one.nbytes for one in packed.buffers], piece.chunks, shared)

    def of_label(self, label: str) -> str:
        """Return the fingerprint of a shared object."""
        group = self.groups.get(label)
        return group.text_of(label) or group.key.hex() if group is not None else label

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
            return label
        return self.of(piece, moment).get(label, "") or piece.key.hex()

    @without_collector()
    def _make(
        self, stream: bytes, sizes: list[int], chunks: tuple[tuple[str, ...], ...], shared: Callable[[str], str]
    ) -> dict[str, str]:
        size = len(stream)
        if size > _MOST_FIGURE or (size > fingerprints.COMPARED_BYTES and fingerprints.FIGURE not in stream):
            return {}
        try:
            trees = values_of(stream, sizes, chunks)
        except Exception:  # a stream that only its maker can read: nothing is known then
            return {}
        make = functools.partial(
            fingerprints.content_fingerprint,
            buffers=chunks,
            shared=shared,
            hidden=self.hidden,
            budget=fingerprints.NodeBudget(),
        )
        figures = _Figures(make)

        def text_of(tree: Any) -> str:
            if isinstance(tree, type) and not hasattr(tree, "content") and (uid := getattr(tree, "label", "")):
                return shared(f"{CLASS}{uid}")
            return make(tree, part=figures.text_of)

        return {name: text_of(tree) for name, tree in trees.items()}


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
