"""What the graph of cells holds: executions, the versions of the names that they read, and their changes since."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import Literal

from ctxkernel.core.dataclasses import dataclass, field

FreshnessState = Literal["fresh", "stale", "unknown"]


@dataclass(frozen=True, slots=True)
class CellRun:
    """The reads and writes of one execution."""

    execution_id: str
    statement_id: str
    cell: str
    """The notebook cell, or the statement where there is none: a later execution of it replaces this one."""
    source: str = ""
    reads: Collection[str] = ()
    """Names whose earlier value it may have used."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files that it read, with their version."""
    made: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that it added or changed, with their fingerprints after it; an empty one is not known."""
    deleted: Collection[str] = ()
    written: Collection[str] = ()
    """Files that it wrote."""
    bound: Collection[str] = ()
    """Names that its text binds, whether their content changed or not."""
    doubtful: Collection[str] = ()
    """Names that it may have changed: they could not be compared."""
    blind: bool = False
    """Whether it may have changed any name."""
    ended_well: bool = True
    outside: bool = False
    """Whether a thread or a widget made the changes, between two cells: they have no place in the order of cells."""
    unknown: str = ""
    """Why a repetition may give another result even if it reads the same."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Whether a cell is stale, and why."""

    state: FreshnessState
    because: tuple[str, ...] = ()
    """At most three lines."""
    upstream: tuple[str, ...] = ()
    """The statements that changed what it read, and the stale ones that it reads from."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a name that a cell had read."""

    by: str
    """The statement; empty for a change outside of all statements."""
    told: str
    certain: bool = True
    execution: str = "outside"


@dataclass(slots=True)
class Version:
    """The content of a name at some place of the path."""

    text: str
    cell: str
    """The cell that made it."""
    run: CellRun | None = None
    """The execution that made it."""
    before: Version | None = None
    """The version before one of which it is not known whether it is another."""

    def chain(self) -> Iterator[Version]:
        """Yield this version, and those that it may be."""
        one: Version | None = self
        while one is not None:
            yield one
            one = one.before


@dataclass(slots=True)
class Node:
    """A cell, as of its newest execution."""

    run: CellRun
    place: int
    """Executions that were added before."""
    first: int | Fraction
    """Its place in the order of cells: the executions that were added before the first one of the cell, or a number
    between those of the cells above and below it."""
    reads: dict[str, Version] = field(default_factory=dict[str, Version])
    repeated: tuple[str, ...] = ()
    """Names that it read as an earlier execution of its own cell left them, and of which a repetition is no proof."""
    changes: dict[str, tuple[Change, ...]] = field(default_factory=dict[str, "tuple[Change, ...]"])
    """Names that it read, and that it would not read so again: one change that is certain, or those that may be."""
    replaced: dict[str, Change] = field(default_factory=dict[str, Change])
    """Cells that made what it read, and that ran again without making it."""
    causes: frozenset[str] = frozenset()
    """The executions that make it stale, directly or through the cells that it reads from."""
