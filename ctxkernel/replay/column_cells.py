"""Cells of two columns or arrays compared: which of them differ, and short texts of numbers. Imports no library.

Rule 1: no code of the user's is called: columns of NumPy and of pandas' own types are compared by their methods,
        objects one by one through `replay.values`.
Rule 2: two missing cells of one kind are equal: NaN and NaN, NaT and NaT, NA and NA; floats within the tolerance are.
"""

from __future__ import annotations

from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import Classes, class_module, class_of
from ctxkernel.replay.text_comparison import Tolerance
from ctxkernel.replay.values import same_values

OBJECTS = 2_000_000
"""Most cells of Python objects that one comparison looks at."""
_NUMBERS = "biufc"
_EXACT = Classes(type(None), bool, int, str, bytes)
_NUMPY_BACKED = ("NumpyExtensionArray", "DatetimeArray", "TimedeltaArray")


class CannotCompare(Exception):
    """The cells cannot be compared; the message says why."""


def differing_cells(numpy: Any, old: Any, new: Any, tolerance: Tolerance) -> Any:
    """Return a mask of the cells that differ of two one-dimensional columns of equal length. Raises CannotCompare."""
    first, second = (_plain_array(numpy, column) for column in (old, new))
    if first is not None and second is not None:
        kinds = first.dtype.kind + second.dtype.kind
        if all(kind in _NUMBERS for kind in kinds):
            return _numbers(numpy, first, second, tolerance)
        if kinds in ("MM", "mm", "SS", "UU", "VV"):
            mask = numpy.asarray(first != second, dtype=bool)
            return mask & ~(numpy.isnat(first) & numpy.isnat(second)) if kinds[0] in "Mm" else mask
    elif _is_pandas(old) and _is_pandas(new) and old.dtype == new.dtype and not _is_object_like(old):
        return _extension(numpy, old, new)
    return _objects(numpy, _as_objects(numpy, old), _as_objects(numpy, new), tolerance)


def _plain_array(numpy: Any, column: Any) -> Any:
    """Return the NumPy array of a column without Python objects; None for any other column."""
    if _is_pandas(column) and type(column).__name__ in _NUMPY_BACKED and getattr(column.dtype, "tz", None) is None:
        column = numpy.asarray(column)
    return column if type(column) is numpy.ndarray and not column.dtype.hasobject else None


def _is_pandas(column: Any) -> bool:
    return class_module(class_of(column)).partition(".")[0] == "pandas"


def _is_object_like(column: Any) -> bool:
    return type(column).__name__ in ("Categorical", "SparseArray") or str(column.dtype) == "object"


def _numbers(numpy: Any, old: Any, new: Any, tolerance: Tolerance) -> Any:
    mask = old != new
    if not mask.any() or (old.dtype.kind not in "fc" and new.dtype.kind not in "fc"):
        return mask
    at = numpy.flatnonzero(mask)
    wide = complex if "c" in (old.dtype.kind, new.dtype.kind) else float
    a, b = old[at].astype(wide), new[at].astype(wide)
    missing = numpy.isnan(a) & numpy.isnan(b)
    with numpy.errstate(all="ignore"):
        gap, size = numpy.abs(a - b), numpy.maximum(numpy.abs(a), numpy.abs(b))
        near = numpy.isfinite(gap) & (gap <= numpy.maximum(tolerance.rel * size, tolerance.abs))
    mask[at] = ~(missing | near)
    return mask


def _extension(numpy: Any, old: Any, new: Any) -> Any:
    """Compare columns of one type of pandas' own: texts, nullable numbers, times with a zone."""
    equal = old == new
    if _is_pandas(equal):
        equal = equal.to_numpy(dtype=bool, na_value=False)
    return ~(numpy.asarray(equal, dtype=bool) | (numpy.asarray(old.isna()) & numpy.asarray(new.isna())))


def _as_objects(numpy: Any, column: Any) -> Any:
    if not (type(column) is numpy.ndarray or _is_pandas(column)):
        raise CannotCompare(f"cells of the type {class_module(class_of(column))} are not compared")
    if getattr(column.dtype, "names", None):
        raise CannotCompare("records are not compared field by field")
    return numpy.asarray(column, dtype=object)


def _objects(numpy: Any, old: Any, new: Any, tolerance: Tolerance) -> Any:
    if len(old) > OBJECTS:
        raise CannotCompare(f"it holds {len(old):,} Python objects; at most {OBJECTS:,} are compared")
    mask = numpy.zeros(len(old), dtype=bool)
    for at, (a, b) in enumerate(zip(old.tolist(), new.tolist(), strict=True)):
        if a is b:
            continue
        kind = class_of(a)
        if kind is type(b) and kind in _EXACT:
            mask[at] = a != b
            continue
        same = _same_object(a, b, tolerance)
        if same is None:
            raise CannotCompare(f"cells of the type {type(a).__name__} are not compared")
        mask[at] = not same
    return mask


def _same_object(a: Any, b: Any, tolerance: Tolerance) -> bool | None:
    one, two = class_of(a), class_of(b)
    if one in (int, float) and two in (int, float):
        return tolerance.same(a, b)
    if one is two and class_module(one) in ("pandas._libs.missing", "pandas._libs.tslibs.nattype"):
        return True
    if one is two and class_module(one).partition(".")[0] in ("datetime", "decimal", "fractions", "uuid", "pandas"):
        return bool(a == b)
    return same_values(a, b, tolerance)


def every_nth(numpy: Any, count: int, step: int) -> Any:
    """Return the positions of a sample of `count` places: one of each `step`, the same ones each time."""
    starts = numpy.arange(0, count, step)
    return numpy.minimum(starts + numpy.random.default_rng(0).integers(0, step, len(starts)), count - 1)


# -- short texts -------------------------------------------------------------------------------------


def short(value: Any) -> str:
    """Return a number or any other cell in a few characters."""
    kind = class_of(value)
    if class_module(kind) == "numpy" and hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value if type(value).__name__ in ("datetime64", "timedelta64", "longdouble") else value.item()
    if type(value) is float:
        return f"{value:.6g}"
    if type(value) is complex:
        return f"{value:.6g}"
    if type(value) is int:
        return str(value) if abs(value) < 10**15 else f"{value:.6g}" if abs(value) < 10**300 else brief(value, 24)
    if class_module(class_of(value)).startswith(("pandas._libs", "datetime")) or type(value).__name__ == "datetime64":
        return str(value)[:40]
    return brief(value, 40)


def pair(old: Any, new: Any) -> tuple[str, str]:
    """Return two different values as two different short texts where their digits allow it."""
    texts = short(old), short(new)
    if texts[0] != texts[1]:
        return texts
    longer = brief(old, 80), brief(new, 80)
    return longer if longer[0] != longer[1] else texts


def arrow(old: str, new: str) -> str:
    """Return `old → new`, or one of them where they are equal."""
    return f"{old} → {new}" if old != new else new
