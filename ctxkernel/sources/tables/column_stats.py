"""One line of facts about a column: of a pandas Series, or of a NumPy array.

Rule 1: min, max, counts, nulls and most frequent values are exact as far as the data that came in.
Rule 2: a column of Python objects that are not all texts is only counted: to compare or hash them would run
        their code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ctxkernel.core.text import plural
from ctxkernel.sources.tables.columns import cell, cells, labels_of, modules

_PART_ROWS = 1 << 18


def column_facts(column: Any, about: str = "") -> str:
    """Return type, nulls and range of a Series (level 1)."""
    return _facts(column, int(column.isna().sum()), _ends(column), about)


def facts_by_parts(column: Any, stopped: Callable[[], bool]) -> str:
    """Return what `column_facts` does, looked at a part at a time: nothing the size of the column is made.

    Empty where `stopped()` said so first.
    """
    nulls, found = 0, []
    for start in range(0, max(len(column), 1), _PART_ROWS):
        if stopped():
            return ""
        part = column.iloc[start : start + _PART_ROWS]
        nulls += int(part.isna().sum())
        found.append(_ends(part))
    lows, highs = [low for low, _ in filter(None, found)], [high for _, high in filter(None, found)]
    return _facts(column, nulls, (min(lows), max(highs)) if lows else None, "")


def _facts(column: Any, nulls: int, ends: tuple[Any, Any] | None, about: str) -> str:
    said = [str(column.dtype)]
    if nulls:
        said.append(about + plural(nulls, "nulls"))
    span = _span(column.dtype, ends)
    return ", ".join([*said, about + span] if span else said)


def describe(column: Any, about: str = "") -> str:
    """Return count, nulls, range, mean, std and quartiles, or distinct and most frequent values (level 2)."""
    _, pandas = modules()
    nulls = int(column.isna().sum())
    count = f"{about}{len(column) - nulls:,} values, {about}{nulls:,} nulls"
    kind = str(column.dtype)
    if not len(column) - nulls:
        return f"{kind}, {count}"
    types = pandas.api.types
    if types.is_bool_dtype(column.dtype):
        true = int(column.sum())
        return f"{kind}, {count}, {about}{true:,} True, {about}{len(column) - nulls - true:,} False"
    if types.is_numeric_dtype(column.dtype) and not types.is_complex_dtype(column.dtype):
        values = column.dropna().to_numpy()
        return f"{kind}, {count}, {numbers(values)}"
    if types.is_datetime64_any_dtype(column.dtype) or types.is_timedelta64_dtype(column.dtype):
        return f"{kind}, {count}, {_span(column.dtype, _ends(column))}"
    if not _hashable(column):
        return f"{kind}, {count}"
    numpy, _ = modules()
    often = column.value_counts(sort=False)
    times = often.to_numpy()
    first = numpy.argsort(-times, kind="stable")[:3]  # ties: the one that came first
    shown = zip(labels_of(often.index[first]), times[first].tolist(), strict=True)
    most = ", ".join(f"{value!r} ×{n:,}" for value, n in shown if n)
    return f"{kind}, {count}, {about}{int((times > 0).sum()):,} distinct, most often {most}"


def numbers(values: Any) -> str:
    """Return range, mean, std and quartiles of a non-empty array of numbers without nulls."""
    numpy, _ = modules()
    low, high = cells(numpy.array([values.min(), values.max()], dtype=values.dtype))
    real = values.astype("float64", copy=False)
    with numpy.errstate(all="ignore"):
        quartiles = numpy.quantile(real, [0.25, 0.5, 0.75])
        std = float(real.std(ddof=1)) if len(real) > 1 else float("nan")
        mean = float(real.mean())
    parts = [f"min {low}"]
    parts += [f"{name} {float(value):.10g}" for name, value in zip(("25%", "50%", "75%"), quartiles, strict=True)]
    parts += [f"max {high}", f"mean {mean:.10g}"]
    return ", ".join([*parts, f"std {std:.10g}"] if std == std else parts)


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
    """Say whether values can be compared without running code of the user's."""
    _, pandas = modules()
    if str(column.dtype) != "object":
        return True
    return pandas.api.types.infer_dtype(column, skipna=True) in ("string", "integer", "floating", "boolean", "empty")
