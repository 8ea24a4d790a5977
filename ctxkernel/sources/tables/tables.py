"""Tables as sources: 0 rows, 1 schema and head, 2 statistics, 3 what changed in shape, columns, row ranges and cells.

Rule 1: a subclass says what its table holds, bounded; layout, budget and diff are here.
Rule 2: rows and columns are counted from 0; `pos` is "row:column".
Rule 3: the old state of a table is known by its hashes and the text of one window, never by its data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import xxhash

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.ports import RenderRequest, TableRow
from ctxkernel.core.text import align, format_shape, plural
from ctxkernel.core.timeline_events import NONE
from ctxkernel.projection.tokens import count_tokens, largest, most_chars
from ctxkernel.sources.base.amounts import FULL_ADVICE, Line, marked, more, more_lines
from ctxkernel.sources.base.column_lines import column_line, with_number_table
from ctxkernel.sources.base.fitting import NO_CAP, advised, beginning, fit, fullest
from ctxkernel.sources.base.planner import MOST_NAMED, said_of
from ctxkernel.sources.base.positions import MOST_NAMES
from ctxkernel.sources.base.rendering import EMPHASIS, PAST_END, Draft, Place, TargetSource, as_now, fit_lines, less
from ctxkernel.sources.tables.columns import HASH_BYTES, STAMP_BYTES, ColumnHash, spans

_WINDOW_ROWS = 2_000
_WINDOW_CELLS = 40_000
_BASIS_ROWS = 50
_HEAD_ROWS, _HEAD_COLUMNS = 5, 30
_CHANGE = ("row", "label", "column", "before", "after")
_LOOKED_AT = 64
"""So many columns are looked at in any case: one with nulls comes before others."""
_LEAST_LINE = 12
"""Tokens that a line about the values of a column has about, at least."""
_MOST_WIDE = 300
_LEAST_ROWS = 30
"""Tokens that a heading and two rows have at least."""
_LEAST_BEGUN = 6
"""Characters of a row whose beginning is shown."""
_LAST_ROWS = 200  # that are looked at for the position "end"


@dataclass(frozen=True, slots=True)
class TableWindow:
    """The cells of a part of a table, as texts; `labels` are the index values of its rows, `right` the numbers."""

    row: int
    col: int
    labels: tuple[str, ...]
    names: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...] = ()

    def lines(self, width: int) -> list[str]:
        """Return the table with its first `width` columns."""
        return align(self._rows(width), right=self._right(width), gap=" ")

    def table(self, width: int, *, has_head: bool = True) -> dict[str, TableRow]:
        """Return the cells of each of the lines of `lines(width)`."""
        right = tuple(self._right(width))
        lines = zip(self.lines(width), self._rows(width), strict=True)
        return {line: TableRow(row, right, is_head=at == 0) for at, (line, row) in enumerate(lines) if has_head or at}

    def _rows(self, width: int) -> list[tuple[str, ...]]:
        return [("", *self.names[:width]), *zip(self.labels, *self.columns[:width], strict=True)]

    def _right(self, width: int) -> list[int]:
        right = self.right or (True,) * len(self.names)
        return [at for at, number in enumerate(right[:width], 1) if number]


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as far as a later diff needs it: `types` has a type a column, without spaces in one, and
    `columns` has their hashes by position and name.
    """

    shape: tuple[int, ...]
    types: str
    columns: Mapping[str, ColumnHash]
    exact: bool
    fingerprint: str

    @property
    def about(self) -> str:
        """The remark on a comparison by these hashes; empty where they are of the whole content."""
        return "" if self.exact else " in the sample that was hashed"


def table_facts(
    shape: tuple[int, ...], types: str, columns: Mapping[str, ColumnHash], *, whole: bool = True, index: str = ""
) -> TableFacts:
    """Return the facts of a table; `whole` says whether every column was hashed."""
    exact = whole and all(column.exact for column in columns.values())
    content = shape, types, index, [(name, column.chunks) for name, column in columns.items()]
    digest = xxhash.xxh3_64_hexdigest(repr(content).encode())
    return TableFacts(shape, types, columns, exact, ("xxh3:" if exact else "sampled:") + digest)


def hash_columns(
    width: int, most: int, name_of: Callable[[int], str], hash_of: Callable[[int], ColumnHash]
) -> tuple[dict[str, ColumnHash], bool]:
    """Return the hashes of the columns, evenly chosen ones where there are more than `most`; and whether all are."""
    step = max(1, -(-width // most))
    return {f"{at} {name_of(at)}": hash_of(at) for at in range(0, width, step)}, step == 1


def clamp_window(
    shape: tuple[int, int], place: Place, rows: int, columns: int, most: int = 1 << 40
) -> tuple[int, int, int, int]:
    """Return (first row, first column, rows, columns) of the window at `place`, of at most `most` cells."""
    total, width = shape
    first, left = min(place.line, max(total - 1, 0)), min(place.col, max(width - 1, 0))
    across = max(0, min(width - left, columns))
    return first, left, max(0, min(total - first, rows, max(1, most // max(across, 1)))), across


def first_rows(shown: int, width: int) -> str:
    """Return the heading of the first rows, of which the first `shown` of `width` columns are shown."""
    return "first rows:" if shown == width else f"first rows, columns 0-{shown - 1} of {width:,}:"


def columns_within(window: TableWindow, width: int, room: int, *, named: bool = True) -> int:
    """Return how many of the columns of a window, at least one, have room for a heading and two rows."""
    top = 0 if named else 1

    def fits(shown: int) -> bool:
        return count_tokens("\n".join([first_rows(shown, width), *window.lines(shown)[top:3]])) <= room

    return max(min(1, len(window.names)), largest(len(window.names), fits, guess=8))


def described_part(names: Sequence[str], budget: int) -> Sequence[int]:
    """Return the columns whose values are looked at: the first ones, more than have room, and the last.

    Also those that were asked for, and as many that changed.
    """
    columns, emphasis = len(names), EMPHASIS.get()
    most = min(columns, max(budget // _LEAST_LINE + 1, _LOOKED_AT))
    if most == columns:
        return range(columns)
    found = {*range(most - 1), columns - 1}
    if emphasis is not None:
        found.update(at for at, name in enumerate(names) if not emphasis.asked.isdisjoint(said_of(name)))
        found.update([at for at, name in enumerate(names) if emphasis.is_changed(name)][:most])
    return sorted(found)


@dataclass(frozen=True, slots=True)
class TableBasis:
    """The part of a table that a later diff needs."""

    facts: TableFacts
    window: TableWindow

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the facts."""
        return self.facts.fingerprint

    @property
    def where(self) -> str:
        """Which window this basis holds."""
        return f"{self.window.row}:{self.window.col} {len(self.window.labels)}×{len(self.window.names)}"


class TableSource(TargetSource):
    """A view of a table. A subclass has `facts`, `window`, `headline`, `schema` and `statistics`."""

    most_columns = 100
    """Columns of level 0."""
    basis_columns = 60
    has_names = True
    """Whether columns have names."""
    most_described = MOST_NAMES
    """So many columns are looked at for what is known of their values."""

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self.stamped: tuple[str, TableFacts] | None = None
        """The last stamp, and the facts that it was made from."""

    def stamp(self) -> str:
        """Return identity, shape and a (sampled) hash of types and content. Never raises."""
        try:
            facts = self.facts(STAMP_BYTES)
        except Exception as fault:  # columns swapped by another thread meanwhile, say
            return f"unreadable {type(fault).__name__}"
        stamp = f"{id(self.target):x} {facts.shape} {'' if facts.exact else '~'}{facts.fingerprint}"
        self.stamped = stamp, facts
        return stamp

    def facts(self, limit: int) -> TableFacts:
        """Return shape, types and hashes; of more than `limit` bytes, hashes of samples."""
        raise NotImplementedError(f"{type(self).__name__}.facts")

    def window(self, place: Place, rows: int, columns: int) -> TableWindow:
        """Return at most so many rows and columns from a place on."""
        raise NotImplementedError(f"{type(self).__name__}.window")

    def basis_window(self, place: Place) -> TableWindow:
        """Return the window that is kept for a later diff."""
        return self.window(place, _BASIS_ROWS, self.basis_columns)

    def headline(self) -> str:
        """Return label, type, shape and size."""
        raise NotImplementedError(f"{type(self).__name__}.headline")

    def columns(self, most: int) -> Sequence[tuple[str, str]]:
        """Return name and type of the first `most` columns."""
        raise NotImplementedError(f"{type(self).__name__}.columns")

    def schema(self, at: Sequence[int]) -> tuple[str, list[str]]:
        """Return a remark for the headline, and type, nulls and range of each of the columns `at`: level 1."""
        raise NotImplementedError(f"{type(self).__name__}.schema")

    def statistics(self, at: Sequence[int]) -> tuple[str, list[str]]:
        """Return a remark for the headline, and type and statistics of each of the columns `at`: level 2."""
        raise NotImplementedError(f"{type(self).__name__}.statistics")

    def table_shape(self, facts: TableFacts) -> tuple[int, int]:
        """Return rows and columns."""
        rows, columns = facts.shape
        return rows, columns

    def rows_within(self, budget: int, columns: int) -> int:
        """Return a bound of the rows of so many columns that a budget has room for."""
        return most_chars(budget) // 4 + 1

    def length(self) -> int:
        """Return the number of rows."""
        return self.table_shape(self.stamped[1] if self.stamped is not None else self.facts(STAMP_BYTES))[0]

    def last_parts(self, most: int) -> list[str]:
        """Return the text of the last rows, of their first columns."""
        total, most = self.length(), min(most, _LAST_ROWS)
        return self.window(Place(max(0, total - most)), most, _HEAD_COLUMNS).lines(_HEAD_COLUMNS)[1:]

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the table as it is now."""
        facts = self.facts(HASH_BYTES)
        basis, old = TableBasis(facts, self.basis_window(place)), request.basis
        if request.lod == 0:
            draft = self._rows(facts, place, budget)
        elif request.lod != 3:
            draft = self.described(facts, request.lod, budget)
        elif isinstance(old, TableBasis):
            draft = self._changes(old, basis, budget)
        else:
            draft = as_now(self.described(facts, 1, less(budget, 12)))
        notes = draft.notes if facts.exact else ("content hash of a sample", *draft.notes)
        return replace(draft, fingerprint=facts.fingerprint, basis=basis, notes=notes)

    def _changes(self, old: TableBasis, new: TableBasis, budget: int) -> Draft:
        if old.fingerprint == new.fingerprint:
            return Draft(f"{self.label} · no change{new.facts.about}")
        there = old.window
        same = self.window(Place(there.row, there.col), len(there.labels), len(there.names))
        draft = fit_lines([f"{self.label} · changed"], list(table_changes(old, new, same)), budget, "changes")
        return replace(draft, rows=dict(_changed_cells(there, same)))

    def described(self, facts: TableFacts, lod: int, budget: int) -> Draft:
        """Render level 1 or 2."""
        rows, width = self.table_shape(facts)
        most = MOST_NAMES if budget >= NO_CAP else MOST_NAMED
        names, has_last = list(self.columns(min(width, most))), width <= MOST_NAMES
        if len(names) < width and has_last:
            names[-1:] = self.columns(width)[-1:]
        known = min(len(names) - (len(names) < width), self.most_described)
        if (emphasis := EMPHASIS.get()) is not None:
            emphasis.note({key.partition(" ")[2]: column.chunks for key, column in facts.columns.items()})
        at = described_part([name for name, _ in names[:known]], budget)
        note, told = self.statistics(at) if lod == 2 else self.schema(at)
        facts_of = dict(zip(at, told, strict=True))
        told_of = [
            column_line(*name, facts_of.get(one, ""), last=one == width - 1, partial=one not in facts_of)
            for one, name in enumerate(names[:known])
        ]
        lines: list[str] = list(with_number_table(told_of))
        if known < len(names):
            lines.append(Line(f"[the values of the first {plural(known, 'columns')} only were looked at]"))
            rest = enumerate(names[known:], known + 1)
            lines += [column_line(*name, last=has_last and at == len(names)) for at, name in rest]
        lines += more_lines(width - len(names), "columns")
        head = f"{self.headline()}{note}"
        table: Mapping[str, TableRow] = NONE
        if lod != 2 and rows:
            room = less(budget, count_tokens("\n".join([head, *lines])))
            room = room if room >= _LEAST_ROWS else budget // 3
            window = self.window(Place(), _HEAD_ROWS, _HEAD_COLUMNS)
            shown = columns_within(window, width, room)
            names, *rest = window.lines(shown)
            table = window.table(shown)
            above = "\n".join([first_rows(shown, width), names, *rest[:1]])
            lines += [Line(line, rank=2) for line in (above, *rest[1:])]
        draft = fit_lines([head], lines, budget, "columns")
        return replace(draft, notes=("sampled",) if note and lod == 2 else (), rows={**draft.rows, **table})

    def _rows(self, facts: TableFacts, place: Place, budget: int) -> Draft:
        """Render level 0: as many columns, then rows, from the position on as fit."""
        headline = self.headline()
        total, width = self.table_shape(facts)
        if not total or not width:
            return Draft(f"{headline} · no {'cells' if self.has_names else 'elements'}")
        top = 0 if self.has_names else 1
        past = place.line >= total
        first = max(0, total - 10) if past else place.line
        left = min(place.col, width - 1)
        narrow = self.window(Place(first, left), 3, min(width - left, self.most_columns))
        shown, _ = fit(len(narrow.names), lambda k: "\n".join(narrow.lines(k)[top:]), max(1, budget // 2), guess=8)
        shown = max(shown, 1)
        rows = min(_WINDOW_ROWS, self.rows_within(budget, shown), max(1, _WINDOW_CELLS // shown))
        window = self.window(Place(first, left), rows, shown)
        found = _Rows(window, headline, (total, width), top, past)
        return fullest(budget, lambda grows, placed: self._rows_within(found.told(grows, placed), rows, budget))

    def _rows_within(self, found: _Rows, rows: int, budget: int) -> Draft:
        """Render as many rows as fit, then with what is left more columns, then more rows, then a part of a row."""
        (total, width), first, left = found.shape, found.window.row, found.window.col
        place, shown, bounded = Place(first, left), len(found.window.names), budget < NO_CAP
        k, text = fit(len(found.window.labels), found.text, budget, guess=budget // 12 + 1)
        k = max(k, 0)
        told = found
        if k and left + shown < width and bounded:
            wide = replace(found, window=self.window(place, k, min(width - left, _MOST_WIDE)))
            most = largest(len(wide.window.names), lambda n: count_tokens(wide.text(k, n)) <= budget, shown + 1)
            if most > shown:
                shown, text, told = most, wide.text(k, most), wide
                found = replace(found, window=self.window(place, min(rows, 2 * k + 2), shown))
                more_rows, longer = fit(len(found.window.labels), found.text, budget, guess=k)
                if more_rows > k:
                    k, text, told = more_rows, longer, found
        table = told.window.table(shown, has_head=self.has_names)
        beside = width - left - shown
        rest = total - first - k
        if rest > 0 and bounded and told.window.labels:
            after = told if k < len(told.window.labels) else replace(told, window=self.window(place, k + 1, shown))
            text = after.begun(k, shown, budget) or text
        if rest > 0:
            return Draft(text, found.cut(k, shown), found.after(k), rows=table)
        cut = max(1, found.price(shown) * k * beside // (2 * shown)) if beside > 0 else 0
        return Draft(text, cut, f"0:{left + shown}" if beside > 0 else None, rows=table)


@dataclass(frozen=True)
class _Rows:
    """Level 0 of a table from one place on."""

    window: TableWindow
    headline: str
    shape: tuple[int, int]
    top: int
    """1 where columns have no names."""
    past: bool
    """Whether the position is past the end."""
    advice: str = ""
    """The shortest advice of its mark."""
    placed: bool = True
    """Whether its mark names a position."""

    def told(self, grows: bool, placed: bool) -> _Rows:
        """Return it with another mark; see `fullest`."""
        return replace(self, advice=FULL_ADVICE * grows, placed=placed)

    def after(self, k: int) -> str | None:
        """Return the position after `k` rows; None where that is where it is already."""
        return str(Place(self.window.row + k, self.window.col)) if k else None

    @cached_property
    def _whole(self) -> list[str]:
        return self.window.lines(len(self.window.names))

    def _lines(self, shown: int) -> list[str]:
        return self._whole if shown == len(self.window.names) else self.window.lines(shown)

    def price(self, shown: int) -> int:
        """Return the mean length of a row."""
        some = self._lines(shown)[1:6]
        return sum(map(len, some)) // max(len(some), 1)

    def cut(self, k: int, shown: int) -> int:
        """Return about how many tokens the rows after the first `k` have."""
        return max(1, (self.shape[0] - self.window.row - k) * self.price(shown) // 2)

    def begun(self, k: int, shown: int, budget: int) -> str:
        """Return the text with the beginning of the row after the first `k`, and what its mark has room to advise."""
        row = self._lines(shown)[k + 1]
        n = largest(len(row) - 1, lambda n: count_tokens(self.text(k, shown, n)) <= budget, 16)
        n = n if len(beginning(row, n)) > max(_LEAST_BEGUN, len(self.window.labels[k]) + 2) else 0
        told = advised(lambda advice: replace(self, advice=advice).text(k, shown, n), budget)
        return told if count_tokens(told) <= budget else ""

    def text(self, k: int, shown: int | None = None, begun: int = 0) -> str:
        """Return the first `k` rows with `shown` columns (None: all of the window), and `begun` characters of a row."""
        (total, width), first, left = self.shape, self.window.row, self.window.col
        shown = len(self.window.names) if shown is None else shown
        lines = self._lines(shown)[self.top : k + 1]
        told = self.placed or first or left  # else the mark tells as much
        names = f"columns {left}-{left + shown - 1} of {width:,}" if shown < width and told else ""
        span = f"rows {first}-{first + k - 1} of {total:,}{PAST_END if self.past else ''}" if k and told else ""
        lines += [beginning(self._lines(shown)[k + 1], begun)] if begun else []
        beside, rest = width - left - shown, total - first - k - bool(begun)
        moves = f'[… {plural(beside, "more columns")}; h.pos = "{first}:{left + shown}" shows them]'
        marks = [moves] if beside > 0 and self.placed else []
        if rest > 0 or begun or (beside > 0 and not self.placed):
            amount = ", ".join(filter(None, (more(rest, "rows"), "" if marks else more(beside, "columns"))))
            cut = self.cut(k, shown) if marks else self.cut(k, shown) * (width - left) // max(shown, 1)
            marks.append(marked(amount, cut, self.after(k) if self.placed else None, advice=self.advice))
        head = " · ".join(part for part in (self.headline, span, names) if part)
        return "\n".join([head, *lines, *marks])


def table_changes(before: TableBasis, after: TableBasis, window: TableWindow) -> Iterator[str]:
    """Yield what changed, the largest first; `window` is the old window's part as it is now."""
    old, new = before.facts, after.facts
    about = f" ({(old.about or new.about).strip()})" if old.about or new.about else ""
    if old.shape != new.shape:
        yield f"shape {format_shape(old.shape)} → {format_shape(new.shape)}"
    was, now = ({name.split(" ", 1)[1]: column for name, column in facts.columns.items()} for facts in (old, new))
    removed, added = [name for name in was if name not in now], [name for name in now if name not in was]
    if removed:
        yield f"columns removed: {', '.join(removed)}"
    if added:
        yield f"columns added: {', '.join(added)}"
    if old.types != new.types and not removed and not added:
        names: list[object] = [*now, *range(len(now), len(new.types))]
        pairs = zip(names, old.types.split(" "), new.types.split(" "), strict=False)
        changed_types = [f"{name}: {one} → {other}" for name, one, other in pairs if one != other]
        yield f"types changed: {', '.join(changed_types[:20])}"
    changed = [name for name in now if name in was and was[name] != now[name]]
    for name in changed:
        parts = spans(was[name], now[name], new.shape[0])
        if parts is None:
            yield f"{name}: changed"
        elif parts:
            shown = ", ".join(f"{start}-{end - 1}" for start, end in parts[:6])
            yield f"{name}: changed within rows {shown}{', …' if len(parts) > 6 else ''}{about}"
    yield f"{len(changed):,} of {len(now):,} columns changed{about}"
    found = [line for line, _ in _changed_cells(before.window, window)]
    there = before.window
    rows = f"rows {there.row}-{there.row + len(there.labels) - 1}"
    yield from found or ([f"no cell changed in {rows}, the window shown last"] if there.labels else [])


def _changed_cells(old: TableWindow, new: TableWindow) -> Iterator[tuple[str, TableRow]]:
    """Yield the cells of a window that differ: the line of each, and its parts."""
    columns = dict(zip(new.names, new.columns, strict=True))
    for name, was in zip(old.names, old.columns, strict=True):
        for at, (before, after) in enumerate(zip(was, columns.get(name, ()), strict=False)):
            if before != after:
                row, label = str(old.row + at), old.labels[at]
                cells = (row, label, name, before, after)
                yield f"row {row} ({label}), {name}: {before} → {after}", TableRow(cells, (0, 3, 4), names=_CHANGE)
    for at, (before, after) in enumerate(zip(old.labels, new.labels, strict=False)):
        if before != after:
            row = str(old.row + at)
            cells = (row, "", "index", before, after)
            yield f"row {row}: index {before} → {after}", TableRow(cells, (0, 3, 4), names=_CHANGE)
