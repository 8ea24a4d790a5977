"""Values with different fingerprints compared by content, floats with a tolerance.

Rule 1: no code of the user's is called: only built-in containers, NumPy's arrays and pandas' frames are compared, by
        their own methods and only if they are exactly of these types, and instances of classes of cells, by their
        attributes. For other values the result is not known.
Rule 2: the work is bounded: for more than `ITEMS` items, or an array over `BYTES`, the result is not known.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, cast

from ctxkernel.core.reflection import (
    SEQUENCES,
    SETS,
    Classes,
    attributes,
    class_module,
    class_mro,
    class_of,
    class_qualname,
    is_any,
    python_made,
)
from ctxkernel.replay.text_comparison import Tolerance

ITEMS = 1_000_000
BYTES = 256 * 1024 * 1024

_EXACT = Classes(type(None), bool, int, str, bytes, bytearray, range, type(Ellipsis))

_STAND_IN = "ctxkernel.state.types.parts", "Lost"
"""Module and name of the class of stand-ins for objects without a stored form."""


class _CannotTell(Exception):
    """The values are of a type, or of a size, that is not compared."""


def same_values(old: object, new: object, tolerance: Tolerance | None = None) -> bool | None:
    """Return whether two values are the same except for floats within the tolerance; None if that is not known."""
    looking = _Looking(tolerance or Tolerance())
    try:
        return looking.same(old, new)
    except (_CannotTell, RecursionError):
        return None


class _Looking:
    def __init__(self, tolerance: Tolerance) -> None:
        self.tolerance = tolerance
        self.left = ITEMS
        self.seen: set[tuple[int, int]] = set()

    def same(self, old: Any, new: Any) -> bool:
        self.left -= 1
        if self.left < 0:
            raise _CannotTell
        if old is new:
            return True
        kind = cast("type[Any]", type(old))
        if kind is not (other := cast("type[Any]", type(new))):
            if _full_name(kind) == _full_name(other):  # a class that was defined again
                return self.instances(old, new)
            if is_any(kind, _STAND_IN) or is_any(other, _STAND_IN):
                raise _CannotTell  # an object that has no stored form
            return False
        if kind is float:
            return self.tolerance.same(old, new)
        if kind is complex:
            return self.tolerance.same(old.real, new.real) and self.tolerance.same(old.imag, new.imag)
        if kind in _EXACT:
            return bool(old == new)
        pair = (id(old), id(new))
        if pair in self.seen:  # a cycle, or a pair that was compared already
            return True
        self.seen.add(pair)
        if kind in SEQUENCES:
            return self.each(old, new)
        if kind is dict:
            return self.each(old.keys(), new.keys()) and self.each(old.values(), new.values())
        if kind in SETS:
            return self.sets(old, new)
        looked = self.library(old, new)
        if looked is None:
            return self.instances(old, new)
        return looked

    def instances(self, old: Any, new: Any) -> bool:
        """Compare instances of a class of a cell by their attributes; of others not all of the content is there."""
        for kind in {class_of(old), class_of(new)}:
            if class_module(kind) != "__main__" or not all(map(python_made, class_mro(kind)[:-1])):
                raise _CannotTell
        first, second = attributes(old), attributes(new)
        if first.keys() != second.keys():  # a property that was asked for may be among them
            raise _CannotTell
        return self.each(first.values(), [second[name] for name in first])

    def each(self, old: Iterable[Any], new: Iterable[Any]) -> bool:
        first, second = list(old), list(new)
        if len(first) != len(second):
            return False
        return all(self.same(a, b) for a, b in zip(first, second, strict=True))

    def sets(self, old: set[Any], new: set[Any]) -> bool:
        plain = all(type(one) in _EXACT or type(one) is float for one in (*old, *new))
        if not plain:  # an item's own __eq__ and __hash__ would be called
            raise _CannotTell
        return old == new

    def library(self, old: Any, new: Any) -> bool | None:
        """Compare arrays and frames if their libraries are loaded; return None for other values."""
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None:
            if type(old) is numpy.ndarray:
                return self.arrays(numpy, old, new)
            if isinstance(old, numpy.generic):
                return self.arrays(numpy, numpy.asarray(old), numpy.asarray(new))
        pandas: Any = sys.modules.get("pandas")
        if pandas is not None and str(type(old).__module__).partition(".")[0] == "pandas":
            if type(old) is pandas.DataFrame:
                parts = self.same(old.index, new.index) and self.same(old.columns, new.columns)
                return parts and self.each(*(self.columns(frame) for frame in (old, new)))
            if type(old) is pandas.Series:
                return (
                    self.same(old.name, new.name)
                    and self.same(old.index, new.index)
                    and self.same(old.array, new.array)
                )
            if isinstance(old, pandas.Index):
                if old.equals(new):
                    return self.each(old.names, new.names)
                return self.same(old.to_numpy(), new.to_numpy())
            if isinstance(old, pandas.api.extensions.ExtensionArray):
                return old.dtype == new.dtype and self.same(old.to_numpy(), new.to_numpy())  # type: ignore[union-attr]
        return None

    def columns(self, frame: Any) -> list[Any]:
        return [frame.iloc[:, n].array for n in range(frame.shape[1])]

    def arrays(self, numpy: Any, old: Any, new: Any) -> bool:
        if old.dtype != new.dtype or old.shape != new.shape:
            return False
        if old.nbytes > BYTES:
            raise _CannotTell
        if old.dtype.hasobject:
            if old.dtype.names:
                raise _CannotTell
            return self.each(old.ravel().tolist(), new.ravel().tolist())
        if old.dtype.kind in "fc":
            near = numpy.isclose(old, new, rtol=self.tolerance.rel, atol=self.tolerance.abs, equal_nan=True)
            return bool(near.all())
        return bool(numpy.array_equal(old, new))


def _full_name(kind: type[Any]) -> tuple[str, str]:
    return class_module(kind), class_qualname(kind)
