"""Fingerprints of the names of a pack. Those of a figure are made where one is asked for: few figures change.

A figure is compared by its content only where its bytes differ, and in other runs by its pixels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ctxkernel.core.collector import without_collector
from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.reflection import AttributePlan
from ctxkernel.core.state_names import CLASS
from ctxkernel.state.tracking import fingerprints
from ctxkernel.state.tracking.groups import Group, Moment, PackPiece
from ctxkernel.state.tracking.stream_trees import values_of
from ctxkernel.state.types.packer import Packed, Packer

_OUTSIDE = (b"\x08database", b"\x04file")
"""Constructors, with their lengths, of objects whose content is elsewhere."""


@dataclass(eq=False, repr=False)
class PiecePrints:
    """Makes fingerprints of pieces. `groups`: what is known of each name."""

    packer: Packer
    groups: Mapping[str, Group]

    def give(self, group: Group, piece: PackPiece) -> None:
        """Give a group the fingerprints of its piece."""
        packed = piece.packed
        if not _is_figure(packed):
            group.prints, group.make_prints = self.of(piece), None
            return
        shared = {label: self.of_label(label) for label in packed.labels}
        sizes = [one.nbytes for one in packed.buffers]
        make = functools.partial(self._make, packed.stream, sizes, piece.chunks, shared.__getitem__)
        group.prints, group.make_prints = {}, make

    def of(self, piece: PackPiece, moment: Moment | None = None) -> dict[str, str]:
        """Return fingerprints of the names of a piece; none if it is too large.

        `moment`: has the shared objects that the piece refers to; without one they are those that are known.
        """
        packed = piece.packed
        if not packed.noted and len(packed.stream) > fingerprints.PLAIN_BYTES:
            return {}
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

    def _in_moment(self, moment: Moment, label: str) -> str:
        if (piece := moment.pieces.get(label)) is None:
            return label
        return self.of(piece, moment).get(label, "") or piece.key.hex()

    @without_collector()
    def _make(
        self, stream: bytes, sizes: list[int], chunks: tuple[tuple[str, ...], ...], shared: Callable[[str], str]
    ) -> dict[str, str]:
        if len(stream) > fingerprints.COMPARED_BYTES:
            return {}
        try:
            trees = values_of(stream, sizes, chunks)
        except Exception:  # a stream that only its maker can read: nothing is known then
            return {}
        budget = fingerprints.NodeBudget()

        def text_of(tree: Any) -> str:
            if isinstance(tree, type) and not hasattr(tree, "content") and (uid := getattr(tree, "label", "")):
                return shared(f"{CLASS}{uid}")
            return fingerprints.content_fingerprint(
                tree, buffers=chunks, shared=shared, hidden=self.hidden, budget=budget
            )

        if fingerprints.FIGURE in stream:  # each part of it that has a name leads to all of it
            text = text_of((*trees.values(),))
            return {name: f"{text} {at}" for at, name in enumerate(trees) if text}
        return {name: text_of(tree) for name, tree in trees.items()}


def _is_figure(packed: Packed) -> bool:
    """Return whether values lead to a figure, and to nothing whose content is elsewhere or that is the user's."""
    stream = packed.stream
    if len(stream) > fingerprints.COMPARED_BYTES or fingerprints.FIGURE not in stream:
        return False
    return not (packed.classes or packed.live or any(one in stream for one in _OUTSIDE))
