"""A NumPy array as a source: 0 rows, or the picture of an image, 1 shape, type and head, 2 statistics, 3 what changed.

Rule 1: the array is held by reference, its data never copied whole; subclasses are read as plain arrays.
Rule 2: rows are all axes but the last, in C order; `pos` is "row:column" in that table, or a row as it is shown:
        "[1, 3]".
The rules of `frames` about exactness, samples and stamps hold here too.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_shape, format_size, plural
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.amounts import Line, more_lines
from ctxkernel.sources.base.positions import no_place
from ctxkernel.sources.base.rendering import Draft, Place, fit_lines, less, titled
from ctxkernel.sources.tables.array_images import image_of
from ctxkernel.sources.tables.columns import EXACT_CELLS, cells, hash_column, modules, numbers
from ctxkernel.sources.tables.tables import (
    TableFacts,
    TableSource,
    TableWindow,
    clamp_window,
    columns_within,
    first_rows,
    table_facts,
)

_SAMPLE_CELLS = 500_000
_STRETCH = 500
_WINDOW_CELLS = 40_000
_BASIS_CELLS = 2_000
_LABELS = 1_000
_HEAD_ROWS, _HEAD_COLUMNS = 8, 20
_INNER = tuple(f"- {about}{name} " for about in ("", "~") for name in ("25%", "50%", "75%", "std"))
"""The beginnings of statistics' lines that level 1 leaves out."""
_MARK_TOKENS = 40
_SHOWN = "[shown as 9,999 × 9,999, ~9,999 tokens]"
_ROW = re.compile(r"\[ *\d{1,15}(?: *, *\d{1,15})* *\]")


class ArraySource(TableSource):
    """A view of an ndarray."""

    kind = "array"
    most_columns = 60
    has_names = False

    def array(self) -> Any:
        """Return the array as a plain ndarray, its data not copied; of a masked one a copy without what is masked."""
        numpy, _ = modules()
        masked = _masked(self.target)
        if not masked:
            return numpy.asarray(self.target)
        if self.target.dtype.kind == "f":
            return self.target.filled(numpy.nan)
        if self.target.dtype.kind in "iu":
            return self.target.astype(float).filled(numpy.nan)
        return self.target.astype(object).filled("--")

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the array as it is now; of an image, level 0 at its beginning is the picture and the statistics."""
        seen = image_of(self.array()) if request.lod == 0 and request.pictured and place == Place() else None
        if seen is not None:
            beside = count_tokens(f"{seen.about}{_SHOWN}")
            picture = seen.picture((budget - beside) // 2)
            if picture is not None:
                told = replace(request, lod=2)
                lines = super().draft(told, place, less(budget, picture.tokens + beside))
                return replace(lines, text=f"{lines.text}\n[{seen.about}{picture.shown}]", picture=picture)
        return super().draft(request, place, budget)

    def facts(self, limit: int) -> TableFacts:
        """Return shape, type and a hash of the content."""
        array = self.array()
        numpy, _ = modules()
        return table_facts(array.shape, str(array.dtype), {"0 values": hash_column(numpy.atleast_1d(array), limit)})

    def window(self, place: Place, rows: int, columns: int) -> TableWindow:
        """Return elements as texts."""
        return array_window(self._shown(), place, rows, columns)

    def basis_window(self, place: Place) -> TableWindow:
        """Return the window that is kept for a later diff."""
        return array_window(self._shown(), place, 50, self.most_columns, _BASIS_CELLS)

    def _shown(self) -> Any:
        """Return the array whose elements are shown: integers of a masked one as they are, rather than as floats."""
        return self.target if self._has_masked_integers() else self.array()

    def _unmasked(self) -> Any:
        """Return the integers of a masked array that are not masked; None for any other."""
        return self.target.compressed() if self._has_masked_integers() else None

    def _has_masked_integers(self) -> bool:
        return bool(_masked(self.target)) and self.target.dtype.kind in "iu"

    def table_shape(self, facts: TableFacts) -> tuple[int, int]:
        """Return rows and columns."""
        return table_shape(facts.shape)

    def rows_within(self, budget: int, columns: int) -> int:
        """Return a bound of the rows that a budget has room for."""
        return budget + 1

    def find(self, pos: str) -> Place:
        """Return the row that is shown as "[1, 3]"; "[1]" is the first one in it."""
        array = self.array()
        total, width = table_shape(array.shape)
        sides = (array.shape[:-1] if array.ndim > 1 else array.shape) if width else ()
        if _ROW.fullmatch(pos) is not None:
            at = [int(number) for number in pos[1:-1].split(",")]
            if len(at) <= len(sides) and all(one < side for one, side in zip(at, sides, strict=False)):
                return Place(sum(one * math.prod(sides[axis + 1 :]) for axis, one in enumerate(at)))
        labels = self.window(Place(), _LABELS, 1).labels
        raise no_place(self.label, pos, labels, "rows" if total <= len(labels) else "first rows")

    def sample(self, array: Any) -> Any:
        """Return the elements that statistics are of, in one dimension: all, or of a large array a sample."""
        return array.ravel(order="K") if array.size <= EXACT_CELLS else _sample(array)

    def order(self, array: Any) -> str:
        """Return how its elements lie in memory."""
        return "C order" if array.flags.c_contiguous else "Fortran order" if array.flags.f_contiguous else "strided"

    def _statistics(self, array: Any) -> tuple[str, list[str]]:
        return _statistics(self.sample(array), array.size, self._unmasked())

    def headline(self) -> str:
        """Return label, type, shape, element type and size."""
        array = self.array()
        size = format_size(int(array.nbytes))
        masked = _masked(self.target)
        if masked:
            shown = "--" if array.dtype == object else "NaN"
            size = f"{format_size(int(self.target.nbytes))} · {masked:,} masked, shown as {shown}"
        kind = self.target.dtype if masked else array.dtype
        return f"{titled(self.label, self.target)} · {format_shape(array.shape)} · {kind} · {size}"

    def described(self, facts: TableFacts, lod: int, budget: int) -> Draft:
        """Render level 1 or 2."""
        array = self.array()
        if lod == 2:
            note, lines = self._statistics(array)
            draft = fit_lines([f"{self.headline()}{note}"], lines, budget, "lines")
            return replace(draft, notes=("sampled",) if note else ())
        order = self.order(array)
        head = [f"{self.headline()}{f' · {order}' if order else ''}"]
        if array.dtype.names:
            head.append("fields: " + ", ".join(f"{name} {array.dtype[name]}" for name in array.dtype.names))
        total, width = table_shape(array.shape)
        if not total:
            return fit_lines(head, [], budget, "rows")
        note = ""
        if array.dtype.kind in "biufmM" and array.size > _HEAD_ROWS:
            note, statistics = self._statistics(array)
            told = ", ".join(line.removeprefix("- ") for line in statistics if not line.startswith(_INNER)) + note
            head, note = ([*head, told], note) if 4 * count_tokens(told) <= budget else (head, "")
        window = self.window(Place(), _HEAD_ROWS, _HEAD_COLUMNS)
        room = less(budget, count_tokens("\n".join(head)) + _MARK_TOKENS)
        shown = columns_within(window, width, room, named=False)
        rows = window.lines(shown)[1:]
        lines = [Line(first_rows(shown, width)), *rows, *more_lines(total - len(rows), "rows")]
        draft = fit_lines(head, lines, budget, "rows")
        return replace(
            draft, notes=("sampled",) if note else (), rows={**draft.rows, **window.table(shown, has_head=False)}
        )


def _sample(array: Any) -> Any:
    """Return elements of a large array: stretches of it, since a step may follow its rows."""
    numpy, _ = modules()
    flat = array if array.flags.c_contiguous else array.T if array.flags.f_contiguous else array.flat
    flat = flat.reshape(-1) if isinstance(flat, numpy.ndarray) else flat
    starts = numpy.linspace(0, array.size - _STRETCH, _SAMPLE_CELLS // _STRETCH).astype("int64")
    return flat[(starts[:, None] + numpy.arange(_STRETCH)).ravel()]


def _masked(target: Any) -> int:
    """Return how many elements of an array are masked."""
    numpy, _ = modules()
    return int(numpy.ma.getmaskarray(target).sum()) if numpy.ma.isMaskedArray(target) else 0


def _statistics(values: Any, size: int, unmasked: Any) -> tuple[str, list[str]]:
    """Return a remark where the values are a sample of `size` elements, and a line for each statistic.

    `unmasked` are the integers of a masked array, None for any other.
    """
    about = "" if len(values) == size else "~"
    note = f" · sampled: {len(values):,} elements" if about else ""
    if values.dtype.kind in "iuf" and size:
        there = values[values == values] if values.dtype.kind == "f" else values
        there = there if unmasked is None or about else unmasked
        lines = [f"- {about}{len(values) - len(there):,} NaN of {len(values):,}"]
        return note, [*lines, *(f"- {part}" for part in numbers(there, about).split(", "))] if len(there) else lines
    if values.dtype.kind in "mM" and size:
        there = values[values == values]
        lines = [f"- {about}{len(values) - len(there):,} NaT of {len(values):,}"]
        ends = cells(modules()[0].array([there.min(), there.max()])) if len(there) else []
        return note, [*lines, *(f"- {name} {about}{end}" for name, end in zip(("min", "max"), ends, strict=False))]
    if values.dtype.kind == "b":
        return note, [f"- {about}{int(values.sum()):,} True of {len(values):,}"]
    return note, [f"- {plural(size, 'elements')}"]


def array_window(array: Any, place: Place, rows: int, columns: int, most: int = _WINDOW_CELLS) -> TableWindow:
    """Return elements from row and column of `place` on, as texts."""
    numpy, _ = modules()
    first, left, down, across = clamp_window(table_shape(array.shape), place, rows, columns, most)
    labels: list[str] = []
    table: list[list[str]] = []
    for row in range(first, first + down):
        where = numpy.unravel_index(row, array.shape[:-1]) if array.ndim > 1 else (row,) if array.ndim else ()
        part = array[where][left : left + across] if array.ndim > 1 else array.reshape(-1)[row : row + 1]
        if numpy.ma.isMaskedArray(part):
            part = part.astype(object).filled(numpy.nan)
        labels.append(f"[{', '.join(str(int(at)) for at in where)}]")
        table.append(cells(part))
    turned = tuple(zip(*table, strict=True)) if table else ((),) * across
    names = tuple(str(left + at) for at in range(across))
    return TableWindow(first, left, tuple(labels), names, turned, (array.dtype.kind in "iufcb",) * across)


def table_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of an array as a table."""
    size = math.prod(shape)
    if len(shape) < 2:
        return size, min(size, 1)
    return (size // shape[-1] if shape[-1] else 0), shape[-1]
