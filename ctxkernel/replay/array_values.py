"""Two arrays of NumPy compared by their elements, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ctxkernel.core.text import plural
from ctxkernel.core.value_difference import ValueDifference, ValueTable
from ctxkernel.replay.column_cells import CannotCompare, arrow, differing_cells, every_nth, pair, short
from ctxkernel.replay.text_comparison import Tolerance

ELEMENTS = 60_000_000
"""Most elements that are compared one by one; of more a sample."""
_BLOCK = 4_000_000
_PLACES = 5


class ArrayComparer:
    """Compares two arrays; `kind` is the type that a reader knows them by."""

    def __init__(
        self, name: str, old: Any, new: Any, tolerance: Tolerance, expired: Callable[[], bool], kind: str = "array"
    ) -> None:
        import numpy

        self._numpy, self._name, self._kind = numpy, name, kind
        self._old, self._new = old, new
        self._tolerance, self._expired = tolerance, expired
        self.cells = 0
        self.largest: float | None = None
        self._places: list[tuple[int, Any, Any]] = []
        """(number of the element, before, after)."""

    def compare(self) -> ValueDifference:
        """Return how the new array differs."""
        old, new = self._old, self._new
        head = f"{self._kind} {arrow(_side(old), _side(new))}"
        if old.shape != new.shape:
            counts = {"elements_before": int(old.size), "elements_after": int(new.size)}
            return ValueDifference(self._name, head, counts=counts, tables=self._statistics())
        total = int(old.size)
        step = max(1, -(-total // ELEMENTS))
        try:
            done = self._blocks(total, step)
        except (CannotCompare, TypeError, ValueError) as fault:
            why = str(fault)[:150]
            return ValueDifference(self._name, head, "unknown", differs=None, reason=why)
        about = "~" if step > 1 else ""
        many = self.cells * step
        retyped = old.dtype != new.dtype
        told = f"{about}{many:,} of {plural(total, 'elements')} differ{'s' * (many == 1)}" if many else ""
        if self.largest is not None:
            told += f", by at most {about}{short(self.largest)}"
        is_open = step > 1 or done < total
        differs = True if many or retyped else None if is_open else False
        notes = (f"~ estimated from one element in {step:,}",) if step > 1 else ()
        reason = f"{total - done:,} elements were not compared in time" if done < total else ""
        return ValueDifference(
            self._name,
            f"{head}: {told or ('no difference found' if is_open else 'the same elements')}",
            "pending" if reason else "unknown" if differs is None else "complete",
            differs=differs,
            reason=reason,
            counts={"elements": many, "of": total},
            step=step,
            tables=(*self._statistics(), *self._examples()) if many else (),
            notes=notes,
        )

    def _blocks(self, total: int, step: int) -> int:
        """Compare block by block; return the number of the first element that was not compared."""
        numpy = self._numpy
        flat = [_flat(self._old), _flat(self._new)]
        sample = every_nth(numpy, total, step) if step > 1 else None
        many = total if sample is None else len(sample)
        for at in range(0, many, _BLOCK):
            if at and self._expired():
                return at * step
            pick = slice(at, at + _BLOCK) if sample is None else sample[at : at + _BLOCK]
            old, new = flat[0](pick), flat[1](pick)
            mask = differing_cells(numpy, old, new, self._tolerance)
            places = numpy.flatnonzero(mask)
            if not len(places):
                continue
            self.cells += len(places)
            self._measure(old[places], new[places])
            for place in places[: _PLACES - len(self._places)].tolist():
                number = at + place if sample is None else int(sample[at + place])
                self._places.append((number, old[place], new[place]))
        return total

    def _measure(self, old: Any, new: Any) -> None:
        numpy = self._numpy
        if old.dtype.kind in "biufc" and new.dtype.kind in "biufc":
            wide = "complex128" if "c" in (old.dtype.kind, new.dtype.kind) else "float64"
            with numpy.errstate(all="ignore"):
                gaps = numpy.abs(new.astype(wide) - old.astype(wide))
            gaps = gaps[numpy.isfinite(gaps)]
            if len(gaps):
                self.largest = max(self.largest or 0.0, float(gaps.max()))

    def _examples(self) -> tuple[ValueTable, ...]:
        rows = [(self._index(number), *pair(old, new)) for number, old, new in self._places]
        return (ValueTable(("at", "before", "after"), tuple(rows), title="for example"),) if rows else ()

    def _index(self, number: int) -> str:
        return "[" + ", ".join(str(int(one)) for one in self._numpy.unravel_index(number, self._old.shape)) + "]"

    def _statistics(self) -> tuple[ValueTable, ...]:
        rows: list[tuple[str, ...]] = []
        for told, array in (("before", self._old), ("after", self._new)):
            if array.dtype.kind not in "iuf" or not 1 < array.size <= ELEMENTS:
                return ()
            with self._numpy.errstate(all="ignore"):
                rows.append((told, short(array.mean(dtype="float64")), f"{short(array.min())} … {short(array.max())}"))
        return (ValueTable(("", "mean", "range"), tuple(rows)),)


def _side(array: Any) -> str:
    return f"{'×'.join(map(str, array.shape)) or 'scalar'} {array.dtype}"


def _flat(array: Any) -> Callable[[Any], Any]:
    """Return a function that gives elements by their number without a copy of the whole array."""
    if array.flags.c_contiguous:
        return array.reshape(-1).__getitem__
    return array.flat.__getitem__
