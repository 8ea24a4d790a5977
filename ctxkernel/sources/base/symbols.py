"""An outline and its entries, and how they are put into lines. Plain values; no reading, no budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Entry:
    """One symbol, heading or paragraph."""

    line: int
    """Where it begins, from 0."""
    depth: int
    text: str
    """A signature or heading, as it stands in the text."""
    doc: str = ""
    """Its first docstring line or sentence."""
    name: str = ""
    """What other lines call it, for a definition."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The structure of a text."""

    head: Sequence[str]
    """Lines that stand before the entries: docstring, imports, dialect."""
    entries: Sequence[Entry]
    what: str
    """What the entries are, in the plural: `symbols`, `headings`, …"""
    lines: Sequence[str] = field(default=())
    """For what has no entries with a place: the structure as lines."""


DETAILS = ((99, True), (99, False), (1, False), (0, True), (0, False))
"""(greatest depth, with docs?), richest first: a budget takes the first that fits whole."""


def entry_lines(entries: Sequence[Entry], depth: int, docs: bool) -> tuple[list[str], list[Entry]]:
    """Return a line for each entry down to `depth`, and those entries."""
    kept = [entry for entry in entries if entry.depth <= depth]
    lines = [
        f"{entry.line} {'  ' * entry.depth}{entry.text}" + (f" — {entry.doc}" if docs and entry.doc else "")
        for entry in kept
    ]
    return lines, kept
