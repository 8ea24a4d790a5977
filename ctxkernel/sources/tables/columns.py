"""Columns of data in memory: hashes by chunk, samples, and cells as exact text. For frames and arrays alike.

Rule 1: no copy of the data is kept, and none is made that is larger than a chunk.
Rule 2: a column of more bytes than its share is hashed by pages spread evenly over it; then `exact` is False.
Rule 3: a cell is shown exactly: floats by their shortest text that reads back, long texts cut with a mark.
Rule 4: NumPy and pandas are found in `sys.modules`, never imported.
Rule 5: min, max, counts, nulls and most frequent values are exact as far as the data that came in.
Rule 6: a column of Python objects that are not all texts is only counted: to compare or hash them would run
        their code.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import xxhash

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import SHORT, class_of
from ctxkernel.core.text import plural
from ctxkernel.sources.base.random_samples import counted, frequent

HASH_BYTES = 64 << 20
"""Data of up to so many bytes is hashed whole when it is rendered."""
STAMP_BYTES = 8 << 20
"""Data of up to so many bytes is hashed whole for a stamp."""
EXACT_CELLS = 5_000_000
"""Statistics of a table of more cells are of a sample."""
COUNTED_CELL = 12
"""To count the values of a text among others takes as long as the statistics of so many numbers."""
_NANOSECONDS = {
    "W": 7 * 86_400 * 10**9,
    "D": 86_400 * 10**9,
    "h": 3_600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "ns": 1,
}
"""Unit of NumPy → its length."""
CHUNKS = 64
"""A column is hashed in at most so many chunks, so that a diff can say where it changed."""
LEAST_ROWS = 16
_PAGE_ROWS = 512
_OBJECT_ROWS = 20_000
_MOST_CATEGORIES = 1_000
CELL_CHARS = 80
_PART_ROWS = 1 << 18
_STRETCHES = 100
_COUNTED_ROWS = 20_000
"""In a longer column the distinct values are not counted at level 1."""


@dataclass(frozen=True, slots=True)
class ColumnHash:
    """Hashes of one column: a number a chunk of `rows` rows."""

    chunks: tuple[int, ...]
    rows: int
    exact: bool


def modules() -> tuple[Any, Any]:
    """Return (numpy, pandas) as far as they are loaded and ready."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    return (numpy if hasattr(numpy, "ndarray") else None), (pandas if hasattr(pandas, "DataFrame") else None)


def imported(name: str) -> Any:
    """Return a module, or None where it is not installed, or broken."""
    try:
        return importlib.import_module(name)
    except Exception:  # built for another interpreter, or another numpy, say
        return None


def hash_column(values: Any, limit: int, most_chunks: int = CHUNKS) -> ColumnHash:
    """Hash an array by chunks along its first axis; by pages where it has more than `limit` bytes.

    `values` is an ndarray of at least one dimension, or a pandas extension array.
    """
    count = len(values)
    rows = max(LEAST_ROWS, -(-count // most_chunks))
    costly = not _buffered(values)  # hashed element by element: strings, objects, categories
    size = int(getattr(values, "nbytes", 0)) * (8 if costly else 1)
    affordable = _affordable(values, _OBJECT_ROWS if limit <= STAMP_BYTES else 50 * _OBJECT_ROWS)
    exact = size <= limit and (not costly or count <= affordable)
    page = rows if exact else max(1, min(rows, _PAGE_ROWS, limit // CHUNKS // max(size // max(count, 1), 1)))
    if costly and not exact:
        page = min(page, 16)
    chunks: list[int] = []
    if not exact and not costly and count >= 2 * rows and values.ndim == 1:
        chunks = _pages(values[: count // rows * rows], rows, page)
    for start in range(len(chunks) * rows, count, rows):
        middle = start if exact else start + (min(rows, count - start) - min(page, count - start)) // 2
        chunks.append(_hash(values[middle : min(middle + page, start + rows, count)]))
    return ColumnHash(tuple(chunks), rows, exact)


def _affordable(values: Any, most: int) -> int:
    """Return how many elements are hashed one by one, `most` where pandas does it; fewer where they have parts."""
    numpy, _ = modules()
    if numpy is None or not isinstance(values, numpy.ndarray):
        return most
    some: list[Any] = values.reshape(-1)[:CHUNKS].tolist() if values.dtype.hasobject else []
    most = min(most, 4 * _OBJECT_ROWS)
    return most if SHORT.hold(map(class_of, some)) else most // 16


def _pages(values: Any, rows: int, page: int) -> list[int]:
    """Return the hash of the middle page of each chunk of `rows`: all pages are gathered at once, which is faster."""
    numpy, _ = modules()
    middle = (rows - page) // 2
    gathered = numpy.ascontiguousarray(values.reshape(-1, rows)[:, middle : middle + page])
    data, size = gathered.view(numpy.uint8).data.cast("B"), page * values.dtype.itemsize
    return [xxhash.xxh3_64_intdigest(data[at : at + size]) for at in range(0, data.nbytes, size)]


def _buffered(values: Any) -> bool:
    numpy, _ = modules()
    return numpy is not None and isinstance(values, numpy.ndarray) and not values.dtype.hasobject


def _hash(part: Any) -> int:
    numpy, pandas = modules()
    if _buffered(part):
        return xxhash.xxh3_64_intdigest(numpy.ascontiguousarray(part).view(numpy.uint8).data)
    if pandas is not None and isinstance(part, pandas.Categorical) and len(part.categories) > _MOST_CATEGORIES:
        part = part.categories.array.take(part.codes, allow_fill=True)  # pandas would hash all of them for each part
    if not isinstance(part, numpy.ndarray) and pandas is not None:
        try:
            return xxhash.xxh3_64_intdigest(numpy.ascontiguousarray(pandas.util.hash_array(part)).data)
        except (TypeError, ValueError, NotImplementedError):
            part = numpy.asarray(part, dtype=object)
    state = xxhash.xxh3_64()
    for item in part.ravel().tolist():  # whatever objects they are: by their safe text, never by their own hash
        state.update(brief(item, 200).encode("utf-8", "replace") + b"\0")
    return state.intdigest()


def cell(value: Any) -> str:
    """Return one cell as exact text."""
    kind = class_of(value)
    if kind is float:
        return "NaN" if value != value else repr(value)
    if kind is int or kind is bool:
        return repr(value) if kind is bool or value.bit_length() <= 512 else brief(value)
    if kind is str:
        text = value if len(value) <= CELL_CHARS else f"{value[: CELL_CHARS - 1]}…(+{len(value) - CELL_CHARS + 1})"
        return text if text.isprintable() else repr(text)[1:-1]
    if value is None:
        return "None"
    numpy, pandas = modules()
    if numpy is not None and kind.__module__ == "numpy" and isinstance(value, numpy.generic):
        return cells(numpy.atleast_1d(value))[0]
    times = () if pandas is None else (pandas.Timestamp, pandas.Timedelta, pandas.Period, pandas.Interval)
    if any(kind is one for one in times):
        return short_time(str(value))
    if kind is tuple and numpy is not None:
        return brief(tuple(one.item() if isinstance(one, numpy.generic) else one for one in value), CELL_CHARS)
    if pandas is not None and (value is pandas.NaT or value is pandas.NA):
        return "NaT" if value is pandas.NaT else "<NA>"
    return brief(value, CELL_CHARS)


def short_time(text: str) -> str:
    """Return a time without a fraction of zeros, and a midnight as its date."""
    whole, _, fraction = text.partition(".")
    return whole.removesuffix(" 00:00:00").removesuffix(" +00:00:00") if not fraction.strip("0") else text


def _duration(value: Any) -> str:
    """Return a numpy.timedelta64 as pandas writes it: `2 days 01:00:00`; a number of months or years as NumPy does."""
    numpy, _ = modules()
    unit, step = numpy.datetime_data(value.dtype)
    if unit not in _NANOSECONDS:
        return str(value)
    days, rest = divmod(int(value.astype("int64")) * step * _NANOSECONDS[unit], _NANOSECONDS["D"])
    seconds, fraction = divmod(rest, _NANOSECONDS["s"])
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    digits = f".{fraction:09d}".removesuffix("000") if fraction else ""
    return f"{days} days" + (f" {'+' * (days < 0)}{clock}{digits}" if rest else "")


def cells(values: Any) -> list[str]:
    """Return a short one-dimensional array or extension array as exact texts."""
    numpy, _ = modules()
    if numpy is not None and isinstance(values, numpy.ndarray):
        if values.dtype.kind == "f" and values.dtype.itemsize != 8:
            return ["NaN" if item != item else str(item) for item in values]  # float32 0.1 is 0.1, not 0.10000000149
        if values.dtype.kind == "M":
            return ["NaT" if item != item else short_time(str(item).replace("T", " ")) for item in values]
        if values.dtype.kind == "m":
            return ["NaT" if item != item else _duration(item) for item in values]
        if values.dtype.kind in "Sc":
            return [str(item) for item in values]
        if values.dtype.kind == "V":
            return [brief(item.item(), CELL_CHARS) for item in values]
        return [cell(item) for item in values.tolist()]
    return [cell(item) for item in values]


def labels_of(index: Any) -> list[str]:
    """Return the values of a short pandas index as exact texts."""
    numpy, _ = modules()
    return cells(index.to_numpy() if isinstance(index.dtype, numpy.dtype) else index.array)


def sampled_rows(rows: int, width: int, others: int, price: int, cells: int) -> tuple[list[range], str]:
    """Return the rows of a sample of about so many cells, and a remark that says so; none where all are looked at.

    Of the `width` columns `others` are no numbers; a cell of theirs counts as `price` cells. The rows are beside each
    other: each one alone of gigabytes is far away in memory, and a step may follow a period.
    """
    if rows * (width + (price - 1) * others) <= EXACT_CELLS:
        return [], ""
    length = max(1, min(rows // _STRETCHES, cells // (_STRETCHES * width)))
    starts = [at * (rows - length) // (_STRETCHES - 1) for at in range(_STRETCHES)]
    return [range(start, start + length) for start in starts], f" · sampled: {_STRETCHES} stretches of {length:,} rows"


def spans(old: ColumnHash, new: ColumnHash, count: int) -> list[tuple[int, int]] | None:
    """Return the row ranges whose hashes differ, or None where the chunks cannot be compared."""
    if old.rows != new.rows or old.exact != new.exact:
        return None
    out: list[tuple[int, int]] = []
    for at in range(min(len(old.chunks), len(new.chunks))):
        if old.chunks[at] != new.chunks[at]:
            start, end = at * new.rows, min((at + 1) * new.rows, count)
            if out and out[-1][1] == start:
                out[-1] = (out[-1][0], end)
            else:
                out.append((start, end))
    return out


def column_facts(column: Any, about: str = "", stopped: Callable[[], bool] = lambda: False) -> str:
    """Return type, nulls and range of a Series (level 1); empty where `stopped()` said so first.

    It is looked at a part at a time, so that nothing the size of the column is made.
    """
    nulls, found = 0, list[tuple[Any, Any]]()
    for start in range(0, max(len(column), 1), _PART_ROWS):
        if stopped():
            return ""
        part = column.iloc[start : start + _PART_ROWS]
        nulls += int(part.isna().sum())
        found += [ends] if (ends := _ends(part)) else []
    ends = (min(low for low, _ in found), max(high for _, high in found)) if found else None
    span = _span(column.dtype, ends)
    told = about + span if span else "" if about else _categories(column, nulls)
    missing = counted(nulls, len(column), "nulls", about) if nulls else ""
    return ", ".join(filter(None, [str(column.dtype), missing, told]))


def _categories(column: Any, nulls: int) -> str:
    """Return how many distinct values a column has, and the most frequent ones; empty for none, and for a long one."""
    if len(column) == nulls or len(column) > _COUNTED_ROWS or not _hashable(column):
        return ""
    _, pandas = modules()
    if pandas.api.types.is_bool_dtype(column.dtype):
        true = int(column.sum())
        return f"{true:,} True, {len(column) - nulls - true:,} False"
    distinct, most = _most_frequent(column)
    if distinct == len(column) - nulls and distinct > 1:
        return f"{distinct:,} distinct, such as '{most[0][0]}'"
    return f"{distinct:,} distinct ({frequent(most, len(column) - nulls, '')})"


def _most_frequent(column: Any) -> tuple[int, list[tuple[str, int]]]:
    """Return how many distinct values there are, and the three most frequent ones; of equal ones the first."""
    numpy, _ = modules()
    often = column.value_counts(sort=False)
    times = often.to_numpy()
    first = numpy.argsort(-times, kind="stable")[:3]
    shown = zip(labels_of(often.index[first]), times[first].tolist(), strict=True)
    return int((times > 0).sum()), [(value, count) for value, count in shown if count]


def describe(column: Any, about: str = "") -> str:
    """Return nulls, range, mean, std and quartiles, or distinct and most frequent values (level 2)."""
    _, pandas = modules()
    kind, types, nulls = column.dtype, pandas.api.types, int(column.isna().sum())
    there = len(column) - nulls
    said = [str(kind), *([counted(nulls, len(column), "nulls", about)] if nulls else [])]
    if not there:
        said.append("no values")
    elif types.is_bool_dtype(kind):
        true = int(column.sum())
        said += [counted(true, there, "True", about), counted(there - true, there, "False", about)]
    elif types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind):
        said.append(numbers(column.dropna().to_numpy(), about))
    elif types.is_datetime64_any_dtype(kind) or types.is_timedelta64_dtype(kind):
        span = _span(kind, _ends(column))
        said.append(about + span if span else "")
    elif _hashable(column):
        distinct, most = _most_frequent(column)
        values = [] if about else [plural(there, "values")]
        said += [*values, f"{about}{distinct:,} distinct", f"most often {frequent(most, there, about)}"]
    return ", ".join(said)


def numbers(values: Any, about: str = "") -> str:
    """Return range, mean, std and quartiles of a non-empty array of numbers without nulls, each after `about`."""
    numpy, _ = modules()
    low, high = cells(numpy.array([values.min(), values.max()], dtype=values.dtype))
    real = values.astype("float64", copy=False)
    with numpy.errstate(all="ignore"):
        quartiles = numpy.quantile(real, [0.25, 0.5, 0.75])
        std = float(real.std(ddof=1)) if len(real) > 1 else float("nan")
        mean = float(real.mean())
    return ", ".join(statistics_of(low, high, map(float, quartiles), mean, std, about))


def statistics_of(
    low: str, high: str, quartiles: Iterable[float], mean: float, std: float | None, about: str = ""
) -> list[str]:
    """Return range, quartiles, mean and, where there is one, std, each with its name; `about` stands before each."""
    parts = [f"{name} {about}{value:.10g}" for name, value in zip(("25%", "50%", "75%"), quartiles, strict=True)]
    spread = [f"std {about}{std:.10g}"] if std is not None and std == std else []
    return [f"min {about}{low}", *parts, f"max {about}{high}", f"mean {about}{mean:.10g}", *spread]


def _ends(column: Any) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value, or None where there is no such thing."""
    _, pandas = modules()
    types = pandas.api.types
    kind = column.dtype
    ordered = types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind) and not types.is_bool_dtype(kind)
    if not (ordered or types.is_datetime64_any_dtype(kind) or types.is_timedelta64_dtype(kind)):
        return None
    low, high = column.min(), column.max()
    return None if low is pandas.NaT or low is pandas.NA or low != low else (low, high)


def _span(kind: Any, ends: tuple[Any, Any] | None) -> str:
    if ends is None:
        return ""
    numpy, _ = modules()
    if isinstance(kind, numpy.dtype) and kind.kind in "iuf":
        low, high = cells(numpy.array(ends, dtype=kind))
        return f"{low} … {high}"
    return f"{cell(ends[0])} … {cell(ends[1])}"


def _hashable(column: Any) -> bool:
    """Return whether values can be compared without running code of the user's, and counted at all."""
    _, pandas = modules()
    if getattr(getattr(column.dtype, "pyarrow_dtype", None), "num_fields", 0):  # lists, structs, maps
        return False
    if str(column.dtype) != "object":
        return True
    return pandas.api.types.infer_dtype(column, skipna=True) in ("string", "integer", "floating", "boolean", "empty")
