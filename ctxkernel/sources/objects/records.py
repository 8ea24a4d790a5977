"""Records as the table that they are: a list of dicts with the same keys, a dict of such dicts, a dict of columns.

Rule 1: cells are read from the containers themselves; nothing is copied but the window that is shown.
Rule 2: of more than `_EXACT_CELLS` cells types, nulls and ranges are those of rows spread evenly over the table; a `~`
        and the headline say so. The number of rows is exact.
Rule 3: hashes of a table of more cells are of pages of each column, and the notes say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import xxhash

from ctxkernel.core.descriptions import brief
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.reflection import SEQUENCES, Classes, class_of
from ctxkernel.core.text import plural
from ctxkernel.sources.base.positions import find_pattern, pattern_of, unbracketed
from ctxkernel.sources.base.random_samples import spread
from ctxkernel.sources.base.rendering import Draft, Names, Place, titled
from ctxkernel.sources.objects.fields import FieldFacts, first, key_name, plain
from ctxkernel.sources.tables.columns import CHUNKS, HASH_BYTES, LEAST_ROWS, ColumnHash, cell, modules
from ctxkernel.sources.tables.tables import (
    TableFacts,
    TableSource,
    TableWindow,
    clamp_window,
    hash_columns,
    table_facts,
)

_EXACT_CELLS = 20_000
_MOST_HASHES = 2_000
_SLOW = 40
"""A cell that holds objects takes so much longer to hash than a number or a short text."""
_LOOKED_AT = 20
_SMALL = 200
"""Of so many records each is looked at before they are called a table."""
_MOST_COLUMNS = 300
_SEARCHED = 20_000
_LABELS = 1_000
_ABSENT = object()
_NUMBERS = Classes(int, float, bool)
_SCALARS = Classes(int, float, bool, complex, type(None), str)
_KEYS = Classes(str, int)
_TEXT_CHARS = 200


def is_records(target: Any) -> bool:
    """Return whether it is a list or tuple of two or more dicts that mostly have the same keys."""
    if class_of(target) not in SEQUENCES or len(target) < 2:
        return False
    return _alike([target[at] for at in spread(len(target), _looked_at(target))])


def is_keyed(target: Any) -> bool:
    """Return whether it is a dict of three or more dicts that mostly have the same keys."""
    if class_of(target) is not dict or len(target) < 3:
        return False
    some = [*first(target.items(), _looked_at(target)), *first(reversed(target.items()), 1)]
    return all(class_of(key) in _KEYS for key, _ in some) and _alike([row for _, row in some])


def _looked_at(target: Any) -> int:
    return _SMALL if len(target) <= _SMALL else _LOOKED_AT


def is_columns(target: Any) -> bool:
    """Return whether it is a dict of two or more lists or one-dimensional arrays of one length, which is 2 or more."""
    if class_of(target) is not dict or not 2 <= len(target) <= _MOST_COLUMNS:
        return False
    lengths = {_length(column) if class_of(key) is str else None for key, column in target.items()}
    return len(lengths) == 1 and (lengths.pop() or 0) >= 2


def is_table(target: Any) -> bool:
    """Return whether it is one of these."""
    return is_records(target) or is_keyed(target) or is_columns(target)


def _length(column: Any) -> int | None:
    numpy, _ = modules()
    if class_of(column) in SEQUENCES:
        return len(column)
    if numpy is not None and class_of(column) in (numpy.ndarray, numpy.ma.MaskedArray) and column.ndim == 1:
        return int(column.shape[0])
    return None


def _alike(rows: Sequence[Any]) -> bool:
    """Return whether these are dicts with texts as keys: all have a key in common, and each half of all keys."""
    if not all(class_of(row) is dict and 0 < len(row) <= _MOST_COLUMNS for row in rows):
        return False
    if not all(class_of(key) is str for row in rows for key in row):
        return False
    keys = {key for row in rows for key in row}
    common = [key for key in rows[0] if all(key in row for row in rows)] if rows else []
    return bool(common) and all(2 * len(row) >= len(keys) for row in rows)


class _Rows:
    """The dicts of a list, or of a dict, as rows."""

    what = ("records", "fields")

    def __init__(self, target: Any) -> None:
        self.labels: list[Any] | None = list(target) if class_of(target) is dict else None
        self.rows: Sequence[Any] = list(target.values()) if class_of(target) is dict else target
        self.count = len(self.rows)
        width = len(self.rows[0]) if self.count and class_of(self.rows[0]) is dict else 1
        self.sample = spread(self.count, max(_LOOKED_AT, _EXACT_CELLS // max(width, 1)))
        # All keys of the sample, in the order in which they come first.
        found: dict[Any, None] = {}
        for row in map(self.rows.__getitem__, self.sample):
            if class_of(row) is dict and not found.keys() >= row.keys():
                found.update(dict.fromkeys(row))
        self.names = list(found)

    def cells(self, name: Any, rows: Sequence[int]) -> list[Any]:
        """Return the cells of a column; of a row that is no record, itself in the first column."""
        own = self.rows
        if isinstance(rows, range):
            own, rows = own[rows.start : rows.stop], range(len(rows))
        try:
            return [own[at].get(name, _ABSENT) for at in rows]
        except AttributeError:
            other = name == self.names[0]
            return [
                row.get(name, _ABSENT) if class_of(row) is dict else (row if other else _ABSENT)
                for row in (own[at] for at in rows)
            ]


class _Columns:
    """The lists and arrays of a dict as columns."""

    what = ("rows", "columns")
    labels: list[Any] | None = None

    def __init__(self, target: Any) -> None:
        self.columns = dict(target)
        self.names = list(self.columns)
        self.count = min((_length(one) or 0 for one in self.columns.values()), default=0)
        self.sample = spread(self.count, max(_LOOKED_AT, _EXACT_CELLS // max(len(self.names), 1)))

    def cells(self, name: Any, rows: Sequence[int]) -> list[Any]:
        """Return the cells of a column; of one that is masked None."""
        column = self.columns[name]
        if class_of(column) in SEQUENCES:
            return [column[at] for at in rows]
        numpy, _ = modules()
        some = column[rows.start : rows.stop] if isinstance(rows, range) else column[list(rows)]
        hidden = numpy.ma.getmaskarray(some) if class_of(some) is numpy.ma.MaskedArray else ()
        found = list(numpy.asarray(some))
        return [None if hidden[at] else one for at, one in enumerate(found)] if len(hidden) else found


class RecordsSource(TableSource):
    """A view of records. 0: rows; 1: fields with types, nulls and ranges, and the first rows; 2: statistics."""

    kind = "records"
    most_columns = basis_columns = 30

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self._drawn: _Rows | _Columns | None = None
        """The table, while it is drawn: looking for its fields takes long."""

    def _table(self) -> _Rows | _Columns:
        if self._drawn is not None:
            return self._drawn
        target = self.target
        return _Columns(target) if class_of(target) is dict and not is_keyed(target) else _Rows(target)

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the records as they are now."""
        self._drawn = self._table()
        try:
            return super().draft(request, place, budget)
        finally:
            self._drawn = None

    def headline(self) -> str:
        """Return label, type, rows and columns."""
        return _headline(self.label, self.target, self._table())

    def facts(self, limit: int) -> TableFacts:
        """Return shape, types and hashes of the columns, of a large table those of pages."""
        if limit == HASH_BYTES and self.stamped is not None:  # `render` asked for the stamp just now
            return self.stamped[1]
        table = self._table()
        width = len(table.names)
        hashed = max(1, min(width, _MOST_COLUMNS))
        share, chunks = _EXACT_CELLS // hashed, max(1, min(CHUNKS, _MOST_HASHES // hashed))
        columns, whole = hash_columns(
            width,
            _MOST_COLUMNS,
            lambda at: key_name(table.names[at]),
            lambda at: _hash(table, table.names[at], share, chunks),
        )
        labels = table.labels or ()
        index = f"{brief(labels[0])} … {brief(labels[-1])}" if labels else ""
        return table_facts((table.count, width), "", columns, whole=whole, index=index)

    def window(self, place: Place, rows: int, columns: int) -> TableWindow:
        """Return cells as texts; `—` where a record lacks the field."""
        table = self._table()
        first, left, down, across = clamp_window((table.count, len(table.names)), place, rows, columns)
        at, names = range(first, first + down), table.names[left : left + across]
        found = [table.cells(name, at) for name in names]
        right = tuple(all(_is_number(one) for one in column) for column in found)
        labels = tuple(_labels(table, at))
        texts = tuple(tuple("—" if one is _ABSENT else cell(one) for one in column) for column in found)
        return TableWindow(first, left, labels, tuple(map(key_name, names)), texts, right)

    def rows_within(self, budget: int, columns: int) -> int:
        """Return a bound: a row has a number, a line end and, of each column, a space and a letter at least."""
        return budget // (2 + columns // 2) + 2

    def columns(self, most: int) -> list[tuple[str, str]]:
        """Return name and types of the first fields."""
        table = self._table()
        some = [table.sample[at] for at in spread(len(table.sample), _LOOKED_AT)]
        return [(key_name(name), self._types(table, name, some)) for name in table.names[:most]]

    @staticmethod
    def _types(table: _Rows | _Columns, name: Any, rows: Sequence[int]) -> str:
        facts = FieldFacts()
        facts.take_many([one for one in table.cells(name, rows) if one is not _ABSENT])
        return facts.types()

    def schema(self, at: Sequence[int]) -> tuple[str, list[str]]:
        """Return types, nulls and range or examples of some fields."""
        return self._told(at, full=False)

    def statistics(self, at: Sequence[int]) -> tuple[str, list[str]]:
        """Return the same, and of numbers quartiles, mean and std."""
        return self._told(at, full=True)

    def _told(self, at: Sequence[int], *, full: bool) -> tuple[str, list[str]]:
        table = self._table()
        sampled = len(table.sample) < table.count
        about, among = "~" if sampled else "", len(table.sample)
        told: list[str] = []
        for name in (table.names[one] for one in at):
            facts = FieldFacts()
            facts.take_many([one for one in table.cells(name, table.sample) if one is not _ABSENT])
            told.append(", ".join(facts.statistics(among, about) if full else facts.facts(among, about)))
        note = f" · sampled: {among:,} {table.what[0]} spread over all" if sampled else ""
        return note, told

    def names(self) -> Names:
        """Return the keys of the first rows, and the fields."""
        table = self._table()
        rows = [(key_name(key), Place(at)) for at, key in enumerate((table.labels or ())[:_LABELS])]
        return Names("fields", [*rows, *((key_name(name), Place(0, at)) for at, name in enumerate(table.names))])

    def find(self, pos: str) -> Place | None:
        """Return the row of a key or of a pattern in its cells; a field is its column in the first row."""
        pattern, table = pattern_of(pos), self._table()
        if pattern is not None and (at := find_pattern(pattern, _lines(table))) is not None:
            return Place(at)
        if table.labels is not None and class_of(self.target) is dict and unbracketed(pos) in self.target:
            return Place(table.labels.index(unbracketed(pos)))
        return super().find(pos)


def _headline(label: str, target: Any, table: _Rows | _Columns) -> str:
    rows, fields = table.what
    # Keys that only records outside of the sample have are not known.
    about = "~" if isinstance(table, _Rows) and len(table.sample) < table.count else ""
    return f"{titled(label, target)} · {plural(table.count, rows)} × {about}{plural(len(table.names), fields)}"


def _labels(table: _Rows | _Columns, rows: Sequence[int]) -> list[str]:
    return [str(at) if table.labels is None else cell(table.labels[at]) for at in rows]


def _lines(table: _Rows | _Columns) -> Iterator[str]:
    """Yield the first rows as texts, to look for a pattern."""
    for start in range(0, min(table.count, _SEARCHED), 500):
        rows = range(start, min(start + 500, table.count, _SEARCHED))
        columns = [table.cells(name, rows) for name in table.names[:_MOST_COLUMNS]]
        for label, row in zip(_labels(table, rows), zip(*columns, strict=True), strict=True):
            yield " ".join([label, *(cell(one) for one in row if one is not _ABSENT)])


def _hash(table: _Rows | _Columns, name: Any, share: int, most_chunks: int) -> ColumnHash:
    """Hash a column by chunks: whole where that is about the work of `share` short cells, else a page of each."""
    count = table.count
    some = table.cells(name, spread(count, _LOOKED_AT))
    weight = 1 if all(_is_short(one) for one in some) else _SLOW
    rows = max(LEAST_ROWS, -(-count // most_chunks))
    exact = count * weight <= share
    page = rows if exact else max(1, share // (weight * -(-count // rows)))
    chunks: list[int] = []
    for start in range(0, count, rows):
        end = min(start + rows, count)
        first = start + (end - start - min(page, end - start)) // 2
        chunks.append(_hash_cells(table.cells(name, range(first, min(first + page, end)))))
    return ColumnHash(tuple(chunks), rows, exact)


def _is_number(one: Any) -> bool:
    return one is None or one is _ABSENT or class_of(plain(one)) in _NUMBERS


def _is_short(one: Any) -> bool:
    return class_of(one) in _SCALARS or one is _ABSENT


def _hash_cells(items: list[Any]) -> int:
    kinds = {id(cls): cls for cls in map(class_of, items)}
    texts = [one for one in items if class_of(one) is str] if id(str) in kinds else []
    if _SCALARS.hold(kinds.values()) and all(len(one) <= _TEXT_CHARS for one in texts):
        try:
            return xxhash.xxh3_64_intdigest(repr(items).encode("utf-8", "replace"))
        except ValueError:  # a number of more than 4,300 digits
            pass
    state = xxhash.xxh3_64()
    for one in items:
        text = "—" if one is _ABSENT else f"{len(one)} {one}" if class_of(one) is str else brief(one, _TEXT_CHARS)
        state.update(text.encode("utf-8", "replace") + b"\0")
    return state.intdigest()
