"""A polars DataFrame or Series as a source. Imports nothing: who has one has polars.

Rule 1: a frame is held by reference; of its data nothing is kept but hashes and the text of one window. Of more than
        `EXACT_CELLS` cells statistics are of a sample, and say so.
Rule 2: values are shown as polars writes them: every digit of a float, `null` for what is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import xxhash

from ctxkernel.core.descriptions import brief
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.positions import MOST_NAMES
from ctxkernel.sources.base.random_samples import counted, frequent
from ctxkernel.sources.base.rendering import Names, Place, titled
from ctxkernel.sources.tables.columns import (
    CELL_CHARS,
    CHUNKS,
    COUNTED_CELL,
    LEAST_ROWS,
    STAMP_BYTES,
    ColumnHash,
    cell,
    sampled_rows,
    short_time,
    statistics_of,
)
from ctxkernel.sources.tables.tables import (
    TableFacts,
    TableSource,
    TableWindow,
    clamp_window,
    hash_columns,
    table_facts,
)

_HASHED_COLUMNS = 256
_DESCRIBED = 100
"""Columns of levels 1 and 2 whose values are looked at; of the others name and type are shown."""
_PAGES = 16
_PAGE_ROWS = 512
_SAMPLE_CELLS = 500_000
_TEXT_TYPES = ("Decimal", "Datetime", "Date", "Time", "Float32")


class PolarsSource(TableSource):
    """A view of a DataFrame or Series."""

    kind = "frame"
    most_described = _DESCRIBED

    def _frame(self) -> Any:
        return self.target if hasattr(self.target, "columns") else self.target.to_frame()

    def facts(self, limit: int) -> TableFacts:
        """Return shape, types and hashes."""
        frame = self._frame()
        rows, width = frame.shape
        most, most_chunks = (64, 16) if limit == STAMP_BYTES else (_HASHED_COLUMNS, CHUNKS)
        share = limit if frame.estimated_size() <= limit else limit // (4 * max(1, min(width, most)))
        columns, whole = hash_columns(
            width,
            most,
            lambda at: one_line(frame.to_series(at).name, CELL_CHARS),
            lambda at: _hash(frame.to_series(at), share, most_chunks),
        )
        types = " ".join(str(kind).replace(" ", "") for kind in frame.dtypes[:_HASHED_COLUMNS])
        return table_facts((rows, width), types, columns, whole=whole)

    def names(self) -> Names:
        """Return the columns: rows have no labels."""
        return Names("columns", [(name, Place(0, at)) for at, name in enumerate(self._frame().columns[:MOST_NAMES])])

    def window(self, place: Place, rows: int, columns: int) -> TableWindow:
        """Return cells as texts."""
        frame = self._frame()
        first, left, down, across = clamp_window(frame.shape, place, rows, columns)
        part = frame.slice(first, down)[:, left : left + across].get_columns()
        labels = tuple(str(first + at) for at in range(down))
        names = tuple(one_line(column.name, CELL_CHARS) for column in part)
        right = tuple(column.dtype.is_numeric() for column in part)
        return TableWindow(first, left, labels, names, tuple(tuple(_cells(column)) for column in part), right)

    def headline(self) -> str:
        """Return label, type, shape and size."""
        frame = self._frame()
        rows, width = frame.shape
        columns = f" × {plural(width, 'columns')}" if frame is self.target else ""
        size = format_size(frame.estimated_size())
        return f"{titled(self.label, self.target)} (polars) · {plural(rows, 'rows')}{columns} · {size}"

    def columns(self, most: int) -> list[tuple[str, str]]:
        """Return name and type of the first columns."""
        return [(one_line(name, 80), str(kind)) for name, kind in islice(self._frame().schema.items(), most)]

    def schema(self, at: Sequence[int]) -> tuple[str, list[str]]:
        """Return type, nulls and range of some columns."""
        return self._told(at, _range, 1)

    def statistics(self, at: Sequence[int]) -> tuple[str, list[str]]:
        """Return nulls, range, mean, std and quartiles, or the most frequent values, of some columns."""
        return self._told(at, _described, COUNTED_CELL)

    def _told(self, at: Sequence[int], said: Callable[[Any, str], list[str]], price: int) -> tuple[str, list[str]]:
        sample, about, note = _sampled(self._frame(), price)
        columns = sample.get_columns()
        return note, [", ".join(said(columns[one], about)) for one in at]


def _hash(column: Any, limit: int, most_chunks: int) -> ColumnHash:
    """Hash a column by chunks of rows; by a page of each where it has more than `limit` bytes."""
    count = len(column)
    exact = column.estimated_size() <= limit and (str(column.dtype) != "Object" or count <= _PAGE_ROWS)
    rows = max(LEAST_ROWS, -(-count // (most_chunks if exact else min(most_chunks, _PAGES))))
    page = rows if exact else min(rows, _PAGE_ROWS)
    chunks = [_digest(column.slice(start + (rows - page) // 2, page)) for start in range(0, count, rows)]
    return ColumnHash(tuple(chunks), rows, exact)


def _digest(part: Any) -> int:
    try:
        hashes = part.hash()
    except Exception:  # a column of Python objects: by their safe text
        return xxhash.xxh3_64_intdigest(
            "\0".join(brief(item, 200) for item in part.to_list()).encode("utf-8", "replace")
        )
    try:
        return xxhash.xxh3_64_intdigest(hashes.to_numpy())
    except ImportError:  # polars needs no NumPy, but for this
        return xxhash.xxh3_64_intdigest(repr(hashes.to_list()).encode())


def _cells(column: Any) -> list[str]:
    """Return a short Series as exact texts."""
    kind = str(column.dtype.base_type())
    if kind in _TEXT_TYPES:
        texts = column.cast(sys.modules["polars"].String).to_list()
        timed = kind in ("Datetime", "Time")
        return ["null" if text is None else short_time(text) if timed else text for text in texts]
    if kind == "Duration":
        return ["null" if text is None else text for text in column.dt.to_string("polars").to_list()]
    return ["null" if value is None else cell(value) for value in column.to_list()]


def _sampled(frame: Any, price: int) -> tuple[Any, str, str]:
    """Return a frame to compute statistics of, what stands before its numbers, and a remark that says so.

    A cell that is no number counts as `price` cells.
    """
    rows, width = len(frame), min(frame.width, _DESCRIBED)
    others = sum(not (kind.is_numeric() or kind.is_temporal()) for kind in frame.dtypes[:width])
    parts, note = sampled_rows(rows, width, others, price, _SAMPLE_CELLS)
    if not parts:
        return frame, "", ""
    some = frame[:, :width]
    return sys.modules["polars"].concat([some.slice(part.start, len(part)) for part in parts]), "~", note


def _range(column: Any, about: str) -> list[str]:
    """Return type, nulls and range of a column."""
    kind = column.dtype
    nulls = column.null_count()
    said = [str(kind), *([counted(nulls, len(column), "nulls", about)] if nulls else []), *_not_numbers(column, about)]
    if (kind.is_numeric() or kind.is_temporal()) and nulls < len(column):
        low, high = _ends(column)
        said.append(f"{about}{low} … {high}")
    return said


def _not_numbers(column: Any, about: str) -> list[str]:
    count = int(column.is_nan().sum()) if column.dtype.is_float() else 0
    return [counted(count, len(column), "NaN", about)] if count else []


def _ends(column: Any) -> list[str]:
    polars = sys.modules["polars"]
    return _cells(polars.Series([column.min(), column.max()], dtype=column.dtype))


def _described(column: Any, about: str) -> list[str]:
    """Return type, counts and statistics of a column."""
    kind, nulls = column.dtype, column.null_count()
    there = len(column) - nulls
    said = [str(kind), *([counted(nulls, len(column), "nulls", about)] if nulls else []), *_not_numbers(column, about)]
    if not there or (kind.is_float() and column.is_nan().sum() == there):
        return [*said, "no values"] if not there else said
    if kind.is_numeric() and not kind.is_decimal():
        low, high = _ends(column)
        column = column.drop_nans() if kind.is_float() else column
        quartiles = [column.quantile(share, "linear") for share in (0.25, 0.5, 0.75)]
        said += statistics_of(low, high, quartiles, column.mean(), column.std(), about)
    elif kind.is_temporal() or kind.is_decimal():
        said.append(about + " … ".join(_ends(column)))
    elif str(kind) == "Boolean":
        true = column.sum()
        said += [counted(true, there, "True", about), counted(there - true, there, "False", about)]
    elif not kind.is_nested() and str(kind) not in ("Object", "Null"):
        values = column.drop_nulls()
        counts = values.unique_counts().to_list()
        first = sorted(range(len(counts)), key=lambda at: (-counts[at], at))[:3]
        distinct = values.unique(maintain_order=True)
        most = [(_cells(distinct.slice(at, 1))[0], counts[at]) for at in first]
        said += [f"{about}{len(counts):,} distinct", f"most often {frequent(most, there, about)}"]
    return said
