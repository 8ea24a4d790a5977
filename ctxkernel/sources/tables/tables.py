"""The frame of a table as a source: 0 rows, 1 schema and head, 2 statistics, 3 what changed in rows, columns and cells.

Rule 1: a subclass says what its table holds, bounded; layout, budget and diff are here.
Rule 2: rows and columns are counted from 0; `pos` is "row:column".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import plural
from ctxkernel.projection.tokens import most_chars
from ctxkernel.sources.base.rendering import PAST_END, BaseSource, Draft, Place, fit, fit_lines, marked
from ctxkernel.sources.files.formats import less
from ctxkernel.sources.tables.columns import ColumnHash
from ctxkernel.sources.tables.table_diff import TableBasis, TableWindow, table_changes

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
