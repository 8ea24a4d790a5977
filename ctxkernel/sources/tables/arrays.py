"""A NumPy array as a source: 0 rows, 1 shape, type and head, 2 statistics, 3 what changed.

Rule 1: the array is held by reference, its data never copied whole; subclasses are read as plain arrays.
Rule 2: rows are all axes but the last, in C order; `pos` is "row:column" in that table, or a row as it is shown:
        "[1, 3]".
The rules of `frames` about exactness, samples and stamps hold here too.
"""

from __future__ import annotations

import math
import re
from typing import Any

import xxhash

from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size, plural
from ctxkernel.sources.base.positions import no_place
from ctxkernel.sources.base.rendering import BaseSource, Draft, Place, fit_lines, titled
from ctxkernel.sources.tables.columns import HASH_BYTES, STAMP_BYTES, ColumnHash, cells, hash_column, modules, numbers
from ctxkernel.sources.tables.frames import EXACT_CELLS
from ctxkernel.sources.tables.tables import TableBasis, TableWindow, table_changes, table_rows

_SAMPLE_CELLS = 500_000
_WINDOW_COLUMNS = 60
_WINDOW_CELLS = 40_000
_BASIS_CELLS = 2_000
_LABELS = 1_000
_ROW = re.compile(r"\[ *\d{1,15}(?: *, *\d{1,15})* *\]")


class ArraySource(BaseSource):
    """A view of an ndarray."""

    kind = "array"

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(label)
        self.target = target

    def stamp(self) -> str:
        """Return identity, shape, type and a (sampled) hash of the content."""
        try:
            array = self._array()
            column = _hash(array, STAMP_BYTES)
        except Exception as fault:
            return f"unreadable {type(fault).__name__}"
        state = xxhash.xxh3_64_hexdigest(repr(column.chunks).encode())
        return f"{id(self.target):x} {array.shape} {array.dtype.str} {'' if column.exact else '~'}{state}"

    def covers(self, stamp: str) -> bool:
        """A sampled hash does not prove that nothing changed."""
        return "~" not in stamp

    def _array(self) -> Any:
        numpy, _ = modules()
        return numpy.asarray(self.target)

    def find(self, pos: str) -> Place:
        """Return the row that is shown as "[1, 3]"; "[1]" is the first one in it."""
        array = self._array()
        total, width = _table_shape(array)
        sides = (array.shape[:-1] if array.ndim > 1 else array.shape) if width else ()
        if _ROW.fullmatch(pos) is not None:
            at = [int(number) for number in pos[1:-1].split(",")]
            if len(at) <= len(sides) and all(one < side for one, side in zip(at, sides, strict=False)):
                return Place(sum(one * math.prod(sides[axis + 1 :]) for axis, one in enumerate(at)))
        labels = array_window(array, Place(), _LABELS, 1).labels
        raise no_place(self.label, pos, labels, "rows" if total <= len(labels) else "first rows")

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the array as it is now."""
        array = self._array()
        column = _hash(array, HASH_BYTES)
        kind = "xxh3:" if column.exact else "sampled:"
        fingerprint = kind + xxhash.xxh3_64_hexdigest(f"{array.shape} {array.dtype.str} {column.chunks}".encode())
        window = array_window(array, place, 50, _WINDOW_COLUMNS, _BASIS_CELLS)
        basis = TableBasis(fingerprint, array.shape, str(array.dtype), {"0 values": column}, column.exact, window)
        if request.lod == 0:

            def part(place: Place, rows: int, columns: int) -> TableWindow:
                return array_window(array, place, rows, columns)

            head, shape = self._headline(array), _table_shape(array)
            most, could = _WINDOW_COLUMNS, budget + 1
            draft = table_rows(head, shape, place, budget, part, most=most, named=False, rows_of=lambda _: could)
        elif request.lod == 2:
            draft = self._statistics(array, budget)
        elif request.lod == 3 and isinstance(request.basis, TableBasis):
            old = request.basis
            there = old.window
            same = array_window(array, Place(there.row, there.col), len(there.labels), len(there.names))
            draft = fit_lines([f"{self.label} · changed"], list(table_changes(old, basis, same)), budget, "changes")
            if old.fingerprint == fingerprint:
                draft = Draft(f"{self.label} · no change{'' if column.exact else ' in the sample that was hashed'}")
        else:
            before = "[nothing rendered before; as it is now:]\n" if request.lod == 3 else ""
            draft = self._schema(array, max(1, budget - 12) if before else budget)
            draft = Draft(before + draft.text, draft.cut_tokens)
        notes = draft.notes if column.exact else ("content hash of a sample", *draft.notes)
        return Draft(draft.text, draft.cut_tokens, draft.next_pos, fingerprint, basis, notes)

    def _headline(self, array: Any) -> str:
        shape = " × ".join(f"{side:,}" for side in array.shape) or "scalar"
        return f"{titled(self.label, self.target)} · {shape} · {array.dtype} · {format_size(int(array.nbytes))}"

    def _schema(self, array: Any, budget: int) -> Draft:
        order = "C order" if array.flags.c_contiguous else "Fortran order" if array.flags.f_contiguous else "strided"
        head = [f"{self._headline(array)} · {order}"]
        if array.dtype.names:
            head.append("fields: " + ", ".join(f"{name} {array.dtype[name]}" for name in array.dtype.names))
        total, _ = _table_shape(array)
        lines = array_window(array, Place(), 8, 20).lines(20)[1:] if total else []
        more = [f"[… {total - len(lines):,} more rows]"] if total > len(lines) else []
        return fit_lines(head, ["first rows:", *lines, *more] if lines else [], budget, "lines")

    def _statistics(self, array: Any, budget: int) -> Draft:
        if array.size <= EXACT_CELLS:
            values = array.ravel(order="K")
        elif array.flags.c_contiguous:
            values = array.reshape(-1)[:: -(-array.size // _SAMPLE_CELLS)]
        else:  # a large array that does not lie in a row: some of its rows, at most as many elements
            some = array[:: max(1, -(-array.shape[0] // 64))]
            values = some.ravel() if some.size <= EXACT_CELLS else some.flat[:_SAMPLE_CELLS]
        about = "" if len(values) == array.size else "~"
        lines: list[str] = []
        if array.dtype.kind in "iuf" and array.size:
            there = values[values == values] if array.dtype.kind == "f" else values
            lines.append(f"- {about}{len(values) - len(there):,} NaN of {array.size:,}")
            lines += [f"- {part}" for part in numbers(there).split(", ")] if len(there) else []
        elif array.dtype.kind == "b":
            lines.append(f"- {about}{int(values.sum()):,} True of {len(values):,}")
        else:
            lines.append(f"- {plural(array.size, 'elements')}")
        note = f" · sampled: {len(values):,} elements" if about else ""
        draft = fit_lines([f"{self._headline(array)}{note}"], lines, budget, "lines")
        return Draft(draft.text, draft.cut_tokens, notes=("sampled",) if note else ())


def array_window(array: Any, place: Place, rows: int, columns: int, most: int = _WINDOW_CELLS) -> TableWindow:
    """Return elements from row and column of `place` on, as texts."""
    numpy, _ = modules()
    total, width = _table_shape(array)
    first, left = min(place.line, max(total - 1, 0)), min(place.col, max(width - 1, 0))
    across = max(0, min(width - left, columns))
    down = max(0, min(total - first, rows, max(1, most // max(across, 1))))
    labels: list[str] = []
    table: list[list[str]] = []
    for row in range(first, first + down):
        where = numpy.unravel_index(row, array.shape[:-1]) if array.ndim > 1 else (row,) if array.ndim else ()
        part = array[where][left : left + across] if array.ndim > 1 else numpy.atleast_1d(array[where])
        labels.append(f"[{', '.join(str(int(at)) for at in where)}]")
        table.append(cells(part))
    turned = tuple(zip(*table, strict=True)) if table else ((),) * across
    names = tuple(str(left + at) for at in range(across))
    return TableWindow(first, left, tuple(labels), names, turned, (array.dtype.kind in "iufcb",) * across)


def _table_shape(array: Any) -> tuple[int, int]:
    if array.ndim < 2:
        return int(array.size), 1 if array.size else 0
    width = int(array.shape[-1])
    return (int(array.size) // width if width else 0), width


def _hash(array: Any, limit: int) -> ColumnHash:
    numpy, _ = modules()
    return hash_column(numpy.atleast_1d(array), limit)
