"""What changed between two states of a table: shape, columns, types, row ranges, and cells of one window.

Rule 1: the old state is known by its hashes and the text of one window, never by its data.

The frame of a table as a source: 0 rows, 1 schema and head, 2 statistics, 3 what changed in rows, columns and cells.

Rule 1: a subclass says what its table holds, bounded; layout, budget and diff are here.
Rule 2: rows and columns are counted from 0; `pos` is "row:column".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import align, plural
from ctxkernel.projection.tokens import most_chars
from ctxkernel.sources.base.rendering import PAST_END, BaseSource, Draft, Place, fit, fit_lines, marked
from ctxkernel.sources.files.files import less
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


_WINDOW_ROWS = 2_000
_WINDOW_CELLS = 40_000
_BASIS_ROWS = 50
_BASIS_COLUMNS = 60
_COLUMNS = 100

Window = Callable[[Place, int, int], TableWindow]
"""`window(place, rows, columns)` gives the cells from a place on."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a table is, as far as a later diff needs it."""

    shape: tuple[int, int]
    types: str
    """A type a column, without spaces in one."""
    hashes: Mapping[str, ColumnHash]
    """By position and name."""
    exact: bool

    @property
    def fingerprint(self) -> str:
        """A hash of it all."""
        chunks = "|".join(f"{name} {column.chunks}" for name, column in self.hashes.items())
        text = f"{self.shape} {self.types} {chunks}".encode("utf-8", "replace")
        return ("xxh3:" if self.exact else "sampled:") + xxhash.xxh3_64_hexdigest(text)


class TableSource(BaseSource):
    """A view of a table. A subclass has `stamp`, `facts`, `window`, `headline`, `schema` and `statistics`."""

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(label)
        self.target = target

    def covers(self, stamp: str) -> bool:
        """A sampled hash does not prove that nothing changed."""
        return "~" not in stamp

    def facts(self) -> Facts:
        """Return shape, types and hashes."""
        raise NotImplementedError(f"{type(self).__name__}.facts")

    def window(self, place: Place, rows: int, columns: int) -> TableWindow:
        """Return at most so many rows and columns from a place on."""
        raise NotImplementedError(f"{type(self).__name__}.window")

    def headline(self) -> str:
        """Return label, type, shape and size."""
        raise NotImplementedError(f"{type(self).__name__}.headline")

    def schema(self, most: int) -> Sequence[str]:
        """Return a line a column, at most `most`: level 1."""
        raise NotImplementedError(f"{type(self).__name__}.schema")

    def statistics(self, most: int) -> Sequence[str]:
        """Return a line a column, at most `most`: level 2."""
        raise NotImplementedError(f"{type(self).__name__}.statistics")

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the table as it is now."""
        facts = self.facts()
        window = self.window(place, _BASIS_ROWS, _BASIS_COLUMNS)
        basis = TableBasis(facts.fingerprint, facts.shape, facts.types, facts.hashes, facts.exact, window)
        if request.lod == 0:
            draft = table_rows(self.headline(), facts.shape, place, budget, self.window)
        elif request.lod == 3 and isinstance(request.basis, TableBasis):
            draft = self._changes(request.basis, basis, budget)
        else:
            before = "[nothing rendered before; as it is now:]\n" if request.lod == 3 else ""
            draft = self._columns(facts, request.lod, less(budget, 12) if before else budget)
            draft = Draft(before + draft.text, draft.cut_tokens)
        notes = draft.notes if facts.exact else ("content hash of a sample", *draft.notes)
        return Draft(draft.text, draft.cut_tokens, draft.next_pos, facts.fingerprint, basis, notes)

    def _changes(self, old: TableBasis, new: TableBasis, budget: int) -> Draft:
        if old.fingerprint == new.fingerprint:
            return Draft(f"{self.label} · no change{'' if new.exact else ' in the sample that was hashed'}")
        there = old.window
        same = self.window(Place(there.row, there.col), len(there.labels), len(there.names))
        return fit_lines([f"{self.label} · changed"], list(table_changes(old, new, same)), budget, "changes")

    def _columns(self, facts: Facts, lod: int, budget: int) -> Draft:
        rows, width = facts.shape
        most = min(width, _COLUMNS, budget // 4 + 1)
        lines = list(self.statistics(most) if lod == 2 else self.schema(most))
        rest = width - most
        lines += [f"[… {plural(rest, 'more columns')}]"] if rest > 0 else []
        if lod != 2 and rows and width:
            lines += ["first rows:", *self.window(Place(), 5, 30).lines(30)]
        return fit_lines([self.headline()], lines, budget, "columns" if lod == 2 else "lines")


def table_rows(
    headline: str,
    shape: tuple[int, int],
    place: Place,
    budget: int,
    window: Window,
    *,
    most: int = _COLUMNS,
    named: bool = True,
    rows_of: Callable[[int], int] | None = None,
) -> Draft:
    """Level 0: as many columns, at most `most`, then rows, from the position on as fit; columns may have no names.

    `rows_of(columns)` are as many rows as could fit, where the source knows better; columns are as wide as those take.
    """
    total, width = shape
    if not total or not width:
        return Draft(f"{headline} · no {'cells' if named else 'elements'}")
    top = 0 if named else 1
    past = place.line >= total
    first = max(0, total - 10) if past else place.line
    left = min(place.col, width - 1)
    narrow = window(Place(first, left), 3, min(width - left, most))
    shown, _ = fit(len(narrow.names), lambda k: "\n".join(narrow.lines(k)[top:]), max(1, budget // 2), guess=8)
    shown = max(shown, 1)
    could = most_chars(budget) // 4 + 1 if rows_of is None else rows_of(shown)
    rows = min(_WINDOW_ROWS, could, max(1, _WINDOW_CELLS // shown))
    found = window(Place(first, left), rows, shown)
    lines = found.lines(shown)
    price = sum(map(len, lines[1:6])) // max(len(lines[1:6]), 1)
    beside = width - left - shown

    def after(k: int) -> str | None:
        return str(Place(first + k, left)) if k else None  # not where it is already

    def build(k: int) -> str:
        names = f"columns {left}-{left + shown - 1} of {width:,}" if shown < width else ""
        span = f"rows {first}-{first + k - 1} of {total:,}{PAST_END if past else ''}" if k else ""
        head = " · ".join(part for part in (headline, span, names) if part)
        side = (
            [f'[… {plural(beside, "more columns")}; h.pos = "{first}:{left + shown}" shows them]'] if beside > 0 else []
        )
        rest = total - first - k
        below = [marked(rest, "rows", max(1, rest * price // 2), after(k))] if rest > 0 else []
        return "\n".join([head, *lines[top : k + 1], *side, *below])

    k, text = fit(len(found.labels), build, budget, guess=budget // 12 + 1)
    k = max(k, 0)
    rest = total - first - k
    if rest > 0:
        return Draft(text, max(1, rest * price // 2), after(k))
    cut = max(1, price * k * beside // (2 * shown)) if beside > 0 else 0
    return Draft(text, cut, f"0:{left + shown}" if beside > 0 else None)
