"""A polars DataFrame or Series as a source. Imports nothing: who has one has polars.

Rule 1: a frame is held by reference; of its data nothing is kept but hashes and the text of one window. Of more than
        `EXACT_CELLS` cells statistics are of a sample, and say so.
Rule 2: values are shown as polars writes them: every digit of a float, `null` for what is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import xxhash

from ctxkernel.core.descriptions import brief
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.positions import MOST_NAMES
from ctxkernel.sources.base.rendering import Names, Place, titled
from ctxkernel.sources.tables.columns import HASH_BYTES, STAMP_BYTES, ColumnHash, cell
from ctxkernel.sources.tables.frames import EXACT_CELLS
from ctxkernel.sources.tables.tables import Facts, TableSource, TableWindow

_HASHED_COLUMNS = 256
_STAMPED_COLUMNS = 64
_CHUNKS = 64
_LEAST_ROWS = 16
_PAGES = 16
_PAGE_ROWS = 512
_SAMPLE_CELLS = 500_000
_CELL_CHARS = 80
_TEXT_TYPES = ("Decimal", "Datetime", "Date", "Time", "Float32")


class PolarsSource(TableSource):
    """A view of a DataFrame or Series."""

    kind = "frame"

    def _frame(self) -> Any:
        return self.target if hasattr(self.target, "columns") else self.target.to_frame()

    def stamp(self) -> str:
        """Return identity, shape and a (sampled) hash of the content. Never raises."""
        try:
            facts = _facts(self._frame(), STAMP_BYTES, _STAMPED_COLUMNS, 16)
        except Exception as fault:  # a column of another thread's making, say
            return f"unreadable {type(fault).__name__}"
        return f"{id(self.target):x} {facts.shape} {'' if facts.exact else '~'}{facts.fingerprint}"

    def facts(self) -> Facts:
        """Return shape, types and hashes."""
        return _facts(self._frame(), HASH_BYTES, _HASHED_COLUMNS, _CHUNKS)

    def names(self) -> Names:
        """Return the columns: rows have no labels."""
        return Names("columns", [(name, Place(0, at)) for at, name in enumerate(self._frame().columns[:MOST_NAMES])])

    def window(self, place: Place, rows: int, columns: int) -> TableWindow:
        """Return cells as texts."""
        frame = self._frame()
        total, width = frame.shape
        first, left = min(place.line, max(total - 1, 0)), min(place.col, max(width - 1, 0))
        part = frame.slice(first, rows)[:, left : left + columns].get_columns()
        labels = tuple(str(first + at) for at in range(min(rows, total - first)))
        names = tuple(one_line(column.name, _CELL_CHARS) for column in part)
        right = tuple(column.dtype.is_numeric() for column in part)
        return TableWindow(first, left, labels, names, tuple(tuple(_cells(column)) for column in part), right)

    def headline(self) -> str:
        """Return label, type, shape and size."""
        frame = self._frame()
        rows, width = frame.shape
        columns = f" × {width:,} columns" if frame is self.target else ""
        size = format_size(frame.estimated_size())
        return f"{titled(self.label, self.target)} (polars) · {rows:,} rows{columns} · {size}"

    def schema(self, most: int) -> Sequence[str]:
        """Return name, type, nulls and range of the first columns."""
        sample, about, note = _sampled(self._frame())
        lines = [f"{one_line(c.name, 80)}: {', '.join(_said(c, about))}" for c in sample.get_columns()[:most]]
        return [*note, *lines]

    def statistics(self, most: int) -> Sequence[str]:
        """Return counts, range, mean, std and quartiles, or the most frequent values, of the first columns."""
        sample, about, note = _sampled(self._frame())
        return [*note, *(f"{one_line(c.name, 80)}: {_described(c, about)}" for c in sample.get_columns()[:most])]


def _facts(frame: Any, limit: int, most_columns: int, most_chunks: int) -> Facts:
    rows, width = frame.shape
    step = max(1, -(-width // most_columns))
    share = limit if frame.estimated_size() <= limit else limit // (4 * max(1, min(width, most_columns)))
    hashes: dict[str, ColumnHash] = {}
    for at in range(0, width, step):
        column = frame.to_series(at)
        hashes[f"{at} {one_line(column.name, _CELL_CHARS)}"] = _hash(column, share, most_chunks)
    exact = step == 1 and all(column.exact for column in hashes.values())
    types = " ".join(str(kind).replace(" ", "") for kind in frame.dtypes[:_HASHED_COLUMNS])
    return Facts((rows, width), types, hashes, exact)


def _hash(column: Any, limit: int, most_chunks: int) -> ColumnHash:
    """Hash a column by chunks of rows; by a page of each where it has more than `limit` bytes."""
    count = len(column)
    exact = column.estimated_size() <= limit and (str(column.dtype) != "Object" or count <= _PAGE_ROWS)
    rows = max(_LEAST_ROWS, -(-count // (most_chunks if exact else min(most_chunks, _PAGES))))
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
        return ["null" if text is None else _plain(text, kind) for text in texts]
    if kind == "Duration":
        return ["null" if text is None else text for text in column.dt.to_string("polars").to_list()]
    return ["null" if value is None else cell(value) for value in column.to_list()]


def _plain(text: str, kind: str) -> str:
    """Return a time without a fraction of zeros, and a midnight as its date."""
    whole, _, fraction = text.partition(".") if kind in ("Datetime", "Time") else (text, "", "1")
    return text if fraction.strip("0") else whole.removesuffix(" 00:00:00")


def _sampled(frame: Any) -> tuple[Any, str, list[str]]:
    """Return a frame to compute statistics of, what stands before its numbers, and a line that says so."""
    rows, width = frame.shape
    if rows * width <= EXACT_CELLS:
        return frame, "", []
    step = max(2, -(-rows * min(width, 100) // _SAMPLE_CELLS))
    return frame[:, :100].gather_every(step), "~", [f"[sampled: every {step:,}th row]"]


def _said(column: Any, about: str) -> list[str]:
    kind = column.dtype
    nulls = column.null_count()
    said = [str(kind), *([about + plural(nulls, "nulls")] if nulls else []), *_not_numbers(column, about)]
    if (kind.is_numeric() or kind.is_temporal()) and nulls < len(column):
        low, high = _ends(column)
        said.append(f"{about}{low} … {high}")
    return said


def _not_numbers(column: Any, about: str) -> list[str]:
    count = int(column.is_nan().sum()) if column.dtype.is_float() else 0
    return [f"{about}{count:,} NaN"] if count else []


def _ends(column: Any) -> list[str]:
    polars = sys.modules["polars"]
    return _cells(polars.Series([column.min(), column.max()], dtype=column.dtype))


def _described(column: Any, about: str) -> str:
    kind, nulls = column.dtype, column.null_count()
    there = len(column) - nulls
    said = [str(kind), f"{about}{there:,} values", f"{about}{nulls:,} nulls", *_not_numbers(column, about)]
    if not there or (kind.is_float() and column.is_nan().sum() == there):
        return ", ".join(said)
    if kind.is_numeric() and not kind.is_decimal():
        low, high = _ends(column)
        column = column.drop_nans() if kind.is_float() else column
        quartiles = [column.quantile(share, "linear") for share in (0.25, 0.5, 0.75)]
        said.append(f"min {low}")
        said += [f"{name} {value:.10g}" for name, value in zip(("25%", "50%", "75%"), quartiles, strict=True)]
        said += [f"max {high}", f"mean {column.mean():.10g}"]
        spread = column.std()
        said += [f"std {spread:.10g}"] if spread is not None and spread == spread else []
    elif kind.is_temporal() or kind.is_decimal():
        said.append(" … ".join(_ends(column)))
    elif str(kind) == "Boolean":
        true = column.sum()
        said += [f"{about}{true:,} True", f"{about}{there - true:,} False"]
    elif not kind.is_nested() and str(kind) not in ("Object", "Null"):
        values = column.drop_nulls()
        counts = values.unique_counts().to_list()
        first = sorted(range(len(counts)), key=lambda at: (-counts[at], at))[:3]
        distinct = values.unique(maintain_order=True)
        often = ", ".join(f"{_cells(distinct.slice(at, 1))[0]!r} ×{counts[at]:,}" for at in first)
        said += [f"{about}{len(counts):,} distinct", f"most often {often}"]
    return ", ".join(said)
