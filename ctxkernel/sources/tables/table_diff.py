"""What changed between two states of a table: shape, columns, types, row ranges, and cells of one window.

Rule 1: the old state is known by its hashes and the text of one window, never by its data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ctxkernel.core.text import align
from ctxkernel.sources.tables.columns import ColumnHash, spans


@dataclass(frozen=True, slots=True)
class TableWindow:
    """The cells of a part of a table, as texts."""

    row: int
    col: int
    labels: tuple[str, ...]
    """The index values of the rows."""
    names: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...] = ()
    """Which columns are numbers."""

    def lines(self, width: int) -> list[str]:
        """Return the table with its first `width` columns."""
        right = self.right or (True,) * len(self.names)
        rows = [("", *self.names[:width]), *zip(self.labels, *self.columns[:width], strict=True)]
        return align(rows, right=[at for at, number in enumerate(right[:width], 1) if number], gap=" ")


@dataclass(frozen=True, slots=True)
class TableBasis:
    """What a later diff needs of a table."""

    fingerprint: str
    shape: tuple[int, ...]
    types: str
    columns: Mapping[str, ColumnHash]
    """By position and name."""
    exact: bool
    window: TableWindow

    @property
    def where(self) -> str:
        """Which window this basis holds."""
        return f"{self.window.row}:{self.window.col} {len(self.window.labels)}×{len(self.window.names)}"


def table_changes(old: TableBasis, new: TableBasis, window: TableWindow) -> Iterator[str]:
    """Yield what changed, the largest first; `window` is the old window's part as it is now."""
    about = "" if old.exact and new.exact else " (in the sample that was hashed)"
    if old.shape != new.shape:
        yield f"shape {_shape(old.shape)} → {_shape(new.shape)}"
    before = {_name(key): key for key in old.columns}
    after = {_name(key): key for key in new.columns}
    if gone := [name for name in before if name not in after]:
        yield f"columns removed: {', '.join(gone)}"
    if come := [name for name in after if name not in before]:
        yield f"columns added: {', '.join(come)}"
    if old.types != new.types and not gone and not come:
        yield f"types changed: {_typed(old, new)}"
    changed = 0
    for name in after:
        if name not in before:
            continue
        was, now = old.columns[before[name]], new.columns[after[name]]
        if was == now:
            continue
        parts = spans(was, now, new.shape[0])
        changed += 1
        if parts is None:
            yield f"{name}: changed"
        elif parts:
            shown = ", ".join(f"{start}-{end - 1}" for start, end in parts[:6])
            yield f"{name}: changed within rows {shown}{', …' if len(parts) > 6 else ''}{about}"
    yield f"{changed:,} of {len(new.columns):,} columns changed{about}"
    yield from _cells(old.window, window)


def _cells(old: TableWindow, new: TableWindow) -> Iterator[str]:
    """Yield the cells of a window that differ, a line a cell."""
    columns = dict(zip(new.names, new.columns, strict=True))
    found = 0
    for name, was in zip(old.names, old.columns, strict=True):
        now = columns.get(name)
        if now is None:
            continue
        for at, (before, after) in enumerate(zip(was, now, strict=False)):
            if before != after:
                found += 1
                yield f"row {old.row + at} ({old.labels[at]}), {name}: {before} → {after}"
    for at, (before, after) in enumerate(zip(old.labels, new.labels, strict=False)):
        if before != after:
            found += 1
            yield f"row {old.row + at}: index {before} → {after}"
    if not found and old.labels:
        yield f"no cell changed in rows {old.row}-{old.row + len(old.labels) - 1}, the window shown last"


def _name(key: str) -> str:
    return key.split(" ", 1)[1]


def _shape(shape: Sequence[int]) -> str:
    return " × ".join(f"{side:,}" for side in shape) or "scalar"


def _typed(old: TableBasis, new: TableBasis) -> str:
    names = [_name(key) for key in new.columns]
    pairs = zip(old.types.split(" "), new.types.split(" "), strict=False)
    found = [
        f"{names[at] if at < len(names) else at}: {was} → {now}" for at, (was, now) in enumerate(pairs) if was != now
    ]
    return ", ".join(found[:20])
