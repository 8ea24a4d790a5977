"""The result of one comparison of variables, and the part of it that the next checkpoint stores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.timeline import ChangeInfo, TypeInfo
from ctxkernel.state.tracking.groups import PackPiece
from ctxkernel.state.tracking.late_changes import OpenChange, OwnContent

Contents = tuple[OwnContent | None, OwnContent | None]
"""The content of a variable before and after a cell, as far as it is known."""


@dataclass(slots=True)
class Pending:
    """The names and pieces that the next checkpoint stores.

    Rule: a name has a piece, is deferred or has a fault, whichever was found last. A checkpoint that stored a name in
    two ways would lose what it shares with others.
    """

    pieces: dict[str, PackPiece] = field(default_factory=dict[str, PackPiece])
    """By name."""
    names: set[str] = field(default_factory=set[str])
    """Names whose state may not be the stored one."""
    deferred: set[str] = field(default_factory=set[str])
    """Those of them that are not packed yet."""
    faults: dict[str, str] = field(default_factory=dict[str, str])
    open: dict[str, OpenChange] = field(default_factory=dict[str, OpenChange])
    """Names that the cell may have changed."""

    def put(self, piece: PackPiece) -> None:
        """Take a piece as the stored form of its names."""
        self._drop(piece.names)
        self.pieces |= dict.fromkeys(piece.names, piece)

    def defer(self, names: Collection[str]) -> None:
        """Leave names to the background."""
        self._drop(names)
        self.deferred.update(names)
        self.names.update(names)

    def fail(self, faults: Mapping[str, str]) -> None:
        """Note names that could not be packed, and why."""
        self._drop(faults)
        self.faults.update(faults)
        self.names.update(faults)

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            if (piece := self.pieces.get(name)) is not None:  # the others have to be packed again without this name
                for each in piece.names:
                    self.pieces.pop(each, None)
            self.faults.pop(name, None)
            self.deferred.discard(name)


@dataclass(slots=True)
class FoundChanges:
    """The changes that one comparison has found so far."""

    moved: frozenset[str] = frozenset()
    """Names that stand for another object."""
    replaced: Collection[str] = ()
    """Names that the cell binds anew, at whatever address."""
    outside: bool = False
    """Whether no cell made the changes."""
    added: dict[str, TypeInfo] = field(default_factory=dict[str, TypeInfo])
    changed: dict[str, ChangeInfo] = field(default_factory=dict[str, ChangeInfo])
    altered: set[str] = field(default_factory=set[str])
    """Names whose bytes differ, whether the content differs for a person or not."""
    deferred: set[str] = field(default_factory=set[str])
    """Names that could not be packed in time."""
    open: dict[str, Contents] = field(default_factory=dict[str, Contents])
    """Names that were not compared, and what they held before and after, as far as it is known."""
    told: set[str] = field(default_factory=set[str])
    """Those of them that are known not to have changed."""
    prints: dict[str, str] = field(default_factory=dict[str, str])
    """The fingerprints that names had before, as far as they were packed anew."""
    parts: set[str] = field(default_factory=set[str])
    """Labels of shared objects and classes whose content differs."""

    def unknown(self) -> list[str]:
        """Return the variables that are still being compared."""
        return sorted(self.open.keys() - self.told - self.added.keys() - self.changed.keys())
