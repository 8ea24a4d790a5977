"""The difference of two values of one name, as one JSON-able tree. Terminal, notebook and panel render the same tree.

Rule 1: a difference is complete, pending (it was not compared in time; ask for the name alone) or unknown (it cannot be
        compared), and the last two have a reason. `differs` is None where that is not known.
Rule 2: every count is exact unless `step` is above 1: then it is estimated from one row in `step`, and its text has
        a `~`.
Rule 3: all texts are bounded and untrusted: a renderer escapes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.text import align, one_line
from ctxkernel.core.timeline_events import Json, plain

Knowledge = Literal["complete", "pending", "unknown"]


@dataclass(frozen=True, slots=True)
class ValueTable:
    """A table of a difference: texts only."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    right: tuple[int, ...] = ()
    """Columns that are aligned right."""
    more: int = 0
    """Rows that are left out."""


@dataclass(frozen=True, slots=True)
class ValuePicture:
    """A picture in base64: before, after, or what differs."""

    label: str
    media_type: str
    data: str


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """The difference of a name's value, or of a part of it."""

    name: str
    """A variable; for a part its place in the value: `['x']`, `.coef_`."""
    summary: str
    """One line."""
    known: Knowledge = "complete"
    differs: bool | None = True
    reason: str = ""
    """Why it is pending or unknown, and the next step."""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers by their meaning: `rows_added`, `rows_removed`, `columns_added`, `cells`, `elements`, `items`, …"""
    columns: Mapping[str, int] = field(default_factory=dict[str, int])
    """Columns that both frames have → cells that differ, where some do."""
    step: int = 1
    """One row or element in `step` was compared."""
    tables: tuple[ValueTable, ...] = ()
    diff: tuple[str, ...] = ()
    """Lines of a unified diff."""
    pictures: tuple[ValuePicture, ...] = ()
    parts: tuple[ValueDifference, ...] = ()
    more: int = 0
    """Parts that differ and are left out."""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Return all fields."""
        return {key: plain(getattr(self, key)) for key in self.__slots__}

    def lines(self, indent: str = "    ") -> Iterator[str]:
        """Yield everything but the summary as lines of text."""
        if self.reason:
            yield f"{indent}{self.known}: {self.reason}"
        yield from (f"{indent}{note}" for note in self.notes)
        for table in self.tables:
            yield from (f"{indent}{line}" for line in table_lines(table))
        yield from (f"{indent}{line}" for line in self.diff)
        for part in self.parts:
            yield f"{indent}{part.name}: {part.summary}"
            yield from part.lines(indent + "  ")
        if self.more:
            yield f"{indent}… {self.more:,} more"

    def text(self, chars: int = 2000) -> str:
        """Return the difference as text of at most about `chars` characters, its summary first."""
        lines, used = [self.summary], len(self.summary)
        rest = list(self.lines())
        for at, line in enumerate(rest):
            line = one_line_kept(line)
            used += len(line) + 1
            if used > chars:
                lines.append(f"    … {len(rest) - at:,} more lines")
                break
            lines.append(line)
        return "\n".join(lines)

    def masked(self, mask: Callable[[str], str]) -> ValueDifference:
        """Return the difference with its secrets masked, those that only a name shows (`['password']`) included."""
        if _shows_secret(self.name, self.summary, mask):
            return ValueDifference(mask(self.name), "[masked]", self.known, self.differs)
        return replace(
            self,
            name=mask(self.name),
            summary=mask(self.summary),
            reason=mask(self.reason),
            columns={mask(name): cells for name, cells in self.columns.items()},
            tables=tuple(
                replace(one, rows=tuple(_masked_row(row, mask) for row in one.rows), title=mask(one.title))
                for one in self.tables
            ),
            diff=tuple(map(mask, self.diff)),
            parts=tuple(one.masked(mask) for one in self.parts),
            notes=tuple(map(mask, self.notes)),
        )

    def bounded(self, chars: int = 16_000) -> ValueDifference:
        """Return the difference without pictures; where it is longer than `chars` as JSON, without its parts, too."""
        whole = replace(self, pictures=())
        if len(json.dumps(whole.to_json())) <= chars:
            return whole
        return replace(whole, tables=self.tables[:1], diff=self.diff[:20], parts=(), more=self.more + len(self.parts))


def unknown_difference(name: str, summary: str, reason: str, known: Knowledge = "unknown") -> ValueDifference:
    """Return the difference of values that were not compared."""
    return ValueDifference(name, summary, known, differs=None, reason=reason)


def _shows_secret(name: str, told: str, mask: Callable[[str], str]) -> bool:
    """Return whether a name and the text about its value show a secret only together."""
    plain_name = name.strip("[]'\". ")
    quoted = min((at for at in (told.find("'"), told.find('"')) if at >= 0), default=len(told))
    return any(mask(text) != text for text in (f"{plain_name} = {told}", f"{plain_name} = {told[quoted:]}"))


def _masked_row(row: Sequence[str], mask: Callable[[str], str]) -> tuple[str, ...]:
    cells = [mask(cell) for cell in row]
    for at, name in enumerate(cells[:-1]):
        if any(_shows_secret(name, value, mask) for value in cells[at + 1 :]):
            cells[at + 1 :] = ["[masked]"] * len(cells[at + 1 :])
    return tuple(cells)


def table_lines(table: ValueTable) -> list[str]:
    """Return a table as lines in columns."""
    rows = [table.head, *table.rows] if any(table.head) else list(table.rows)
    lines = [table.title] if table.title else []
    lines += align([[one_line(cell, 60) for cell in row] for row in rows], right=table.right) if rows else []
    return [*lines, f"… {table.more:,} more"] if table.more else lines


def one_line_kept(line: str, limit: int = 200) -> str:
    """Return a line of text of at most `limit` characters with its indent."""
    body = line.lstrip(" ")
    return line if len(line) <= limit else " " * (len(line) - len(body)) + body[: limit - 1] + "…"


def differing(found: Sequence[ValueDifference]) -> list[ValueDifference]:
    """Return the differences but for those that are complete and equal."""
    return [one for one in found if one.differs is not False]
