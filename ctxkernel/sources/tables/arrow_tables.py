"""A table, record batch or array of Arrow as a source. Imports nothing but pyarrow's own functions.

Rule 1: it is held by reference, and cannot change. Of more than `EXACT_CELLS` cells statistics are of a sample, and
        say so.
Rule 2: values of a type that somebody registered with pyarrow are shown as they are stored, so none of its code runs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import xxhash

from ctxkernel.core.reflection import is_a
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.positions import MOST_NAMES
from ctxkernel.sources.base.random_samples import counted, frequent
from ctxkernel.sources.base.rendering import Names, Place, titled
from ctxkernel.sources.tables.columns import (
    CELL_CHARS,
    COUNTED_CELL,
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

_DESCRIBED = 100
"""Columns of levels 1 and 2 whose values are looked at; of the others name and type are shown."""
_HASHED_COLUMNS, _HASHED_ROWS = 256, 64
_SAMPLE_CELLS = 500_000


class ArrowSource(TableSource):
    """A view of a Table, a RecordBatch, a ChunkedArray or an Array."""

    kind = "frame"
    most_described = _DESCRIBED

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        arrow = sys.modules["pyarrow"]
        self._is_table = is_a(target, arrow.Table, arrow.RecordBatch)
        self._names: list[str] = target.schema.names if self._is_table else ["value"]
        self._types: list[Any] = target.schema.types if self._is_table else [target.type]

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.target) if not self._is_table else self.target.num_rows, len(self._names)

    def _column(self, at: int) -> Any:
        column = self.target.column(at) if self._is_table else self.target
        arrow = sys.modules["pyarrow"]
        if not is_a(self._types[at], arrow.BaseExtensionType):
            return column
        chunks = column.chunks if is_a(column, arrow.ChunkedArray) else [column]
        return arrow.chunked_array([one.storage for one in chunks], self._types[at].storage_type)

    def facts(self, limit: int) -> TableFacts:
        """Return shape, types and hashes of the first rows: the rest cannot change either."""

        def hash_of(at: int) -> ColumnHash:
            text = "\0".join(_cells(self._column(at).slice(0, _HASHED_ROWS)))
            return ColumnHash(
                (xxhash.xxh3_64_intdigest(text.encode("utf-8", "replace")),), max(self._shape[0], 1), True
            )

        names = self._names
        columns, whole = hash_columns(len(names), _HASHED_COLUMNS, lambda at: one_line(names[at], CELL_CHARS), hash_of)
        types = " ".join(str(kind).replace(" ", "") for kind in self._types[:_HASHED_COLUMNS])
        return table_facts(self._shape, types, columns, whole=whole)

    def names(self) -> Names:
        """Return the columns: rows have no labels."""
        return Names("columns", [(name, Place(0, at)) for at, name in enumerate(self._names[:MOST_NAMES])])

    def window(self, place: Place, rows: int, columns: int) -> TableWindow:
        """Return cells as texts."""
        first, left, down, across = clamp_window(self._shape, place, rows, columns)
        parts = [self._column(left + at).slice(first, down) for at in range(across)]
        labels = tuple(str(first + at) for at in range(down))
        names = tuple(one_line(name, CELL_CHARS) for name in self._names[left : left + across])
        right = tuple(_is_number(part.type) for part in parts)
        return TableWindow(first, left, labels, names, tuple(tuple(_cells(part)) for part in parts), right)

    def headline(self) -> str:
        """Return label, type, shape and size."""
        rows, width = self._shape
        columns = f" × {plural(width, 'columns')}" if self._is_table else ""
        size = format_size(self.target.nbytes)
        return f"{titled(self.label, self.target)} (Arrow) · {plural(rows, 'rows')}{columns} · {size}"

    def columns(self, most: int) -> list[tuple[str, str]]:
        """Return name and type of the first columns."""
        pairs = zip(self._names, self._types, strict=True)
        return [(one_line(name, 80), one_line(str(kind), 80)) for name, kind in islice(pairs, most)]

    def schema(self, at: Sequence[int]) -> tuple[str, list[str]]:
        """Return type, nulls and range of some columns."""
        return self._told(at, _range, 1)

    def statistics(self, at: Sequence[int]) -> tuple[str, list[str]]:
        """Return nulls, range, mean, std and quartiles, or the most frequent values, of some columns."""
        return self._told(at, _described, COUNTED_CELL)

    def _told(self, at: Sequence[int], said: Callable[[Any, str], list[str]], price: int) -> tuple[str, list[str]]:
        rows, width = self._shape[0], min(self._shape[1], _DESCRIBED)
        others = sum(not (_is_number(kind) or _is_time(kind)) for kind in self._types[:width])
        columns = [self._column(one) for one in at]
        parts, note = sampled_rows(rows, width, others, price, _SAMPLE_CELLS)
        if parts:
            columns = [_joined([one.slice(part.start, len(part)) for part in parts]) for one in columns]
        return note, [", ".join(said(one, "~" * bool(parts))) for one in columns]


def _joined(parts: list[Any]) -> Any:
    arrow = sys.modules["pyarrow"]
    chunks = [chunk for part in parts for chunk in (part.chunks if is_a(part, arrow.ChunkedArray) else [part])]
    return arrow.chunked_array(chunks, parts[0].type)


def _types() -> Any:
    return importlib.import_module("pyarrow.types")


def _functions() -> Any:
    return importlib.import_module("pyarrow.compute")


def _is_number(kind: Any) -> bool:
    types = _types()
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def _is_time(kind: Any) -> bool:
    return _types().is_temporal(kind)


def _cells(column: Any) -> list[str]:
    """Return a short column as exact texts."""
    if _types().is_decimal(column.type) or (_is_time(column.type) and not _types().is_interval(column.type)):
        texts = column.cast("string").to_pylist()
        return ["null" if text is None else short_time(text) for text in texts]
    return ["null" if value is None else cell(value) for value in column.to_pylist()]


def _range(column: Any, about: str) -> list[str]:
    """Return type, nulls and range of a column."""
    nulls = column.null_count
    said = [one_line(str(column.type), 80), *([counted(nulls, len(column), "nulls", about)] if nulls else [])]
    not_numbers = len(column) - nulls - len(_real(column))
    return [*said, *([counted(not_numbers, len(column), "NaN", about)] if not_numbers else []), *_ends(column, about)]


def _real(column: Any) -> Any:
    """Return the values of a column that are neither null nor NaN."""
    there = column.drop_null()
    return there.filter(_functions().invert(_functions().is_nan(there))) if _types().is_floating(there.type) else there


def _ends(column: Any, about: str) -> list[str]:
    types, kind, real = _types(), column.type, _real(column)
    if not len(real) or not (_is_number(kind) or _is_time(kind)) or types.is_interval(kind):
        return []
    ends = _functions().min_max(real.cast("int64") if types.is_duration(kind) else real)
    some = sys.modules["pyarrow"].array([ends["min"].as_py(), ends["max"].as_py()], ends["min"].type)
    return [about + " … ".join(_cells(some.cast(kind)))]


def _described(column: Any, about: str) -> list[str]:
    """Return type, counts and statistics of a column."""
    functions, types, kind = _functions(), _types(), column.type
    said, nulls = _range(column, about), column.null_count
    there = len(column) - nulls
    if not there:
        return [*said, "no values"]
    if (types.is_integer(kind) or types.is_floating(kind)) and len(real := _real(column)):
        low, _, high = said.pop().removeprefix(about).partition(" … ")
        quartiles = functions.quantile(real, [0.25, 0.5, 0.75]).to_pylist()
        std = functions.stddev(real, ddof=1).as_py() if len(real) > 1 else None
        return said + statistics_of(low, high, quartiles, functions.mean(real).as_py(), std, about)
    if types.is_boolean(kind):
        true = functions.sum(column).as_py()
        return [*said, counted(true, there, "True", about), counted(there - true, there, "False", about)]
    if types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind):
        values = column.drop_null()
        often = functions.value_counts(values.cast("string") if types.is_dictionary(kind) else values)
        counts = often.field("counts").to_pylist()
        first = sorted(range(len(counts)), key=lambda at: (-counts[at], at))[:3]
        most = [(_cells(often.field("values").slice(at, 1))[0], counts[at]) for at in first]
        return [*said, f"{about}{len(counts):,} distinct", f"most often {frequent(most, there, about)}"]
    return said
