"""Two data frames or series of pandas compared by their cells.

Rule 1: columns are paired by their label, rows by their index label (the second row with a label pairs with the second
        one); where the labels cannot be compared, rows are paired by position, and a note says so.
Rule 2: work and memory are bounded: a column at a time; of more than `CELLS` cells a sample of the rows; `expired()`
        ends it between two columns, and the others are pending.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import join_names, plural
from ctxkernel.core.value_difference import ValueDifference, ValueTable
from ctxkernel.replay.column_cells import CannotCompare, arrow, differing_cells, every_nth, pair, short
from ctxkernel.replay.text_comparison import Tolerance

CELLS = 60_000_000
"""Most cells that are compared one by one."""
ROWS = 30
"""Most columns that the table lists."""
EXAMPLES = 6
_PER_COLUMN = 2
_LABEL_KINDS = frozenset(
    (
        *("string", "bytes", "floating", "integer", "mixed-integer", "mixed-integer-float", "decimal", "complex"),
        *("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period", "interval", "boolean"),
        "empty",
    )
)
"""Labels of these kinds are compared without code of the user's."""


@dataclass(slots=True)
class _Column:
    """A column that both frames have."""

    label: Any
    old: Any
    new: Any
    cells: int = 0
    failed: str = ""
    """Why its cells were not compared."""
    examples: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])

    @property
    def types(self) -> tuple[str, str]:
        return str(self.old.dtype), str(self.new.dtype)


@dataclass(slots=True)
class _Rows:
    """Pairs of rows: their positions in both frames; None for all rows in order."""

    added: int
    removed: int
    common: int
    old: Any = None
    new: Any = None
    notes: tuple[str, ...] = ()


class FrameComparer:
    """Compares two frames, or two series as frames of one column."""

    def __init__(self, name: str, old: Any, new: Any, tolerance: Tolerance, expired: Callable[[], bool]) -> None:
        import numpy

        # The frames are of this library, so it is loaded.
        self._numpy, self._pandas = numpy, cast("Any", sys.modules["pandas"])
        self._name, self._old, self._new = name, old, new
        self._tolerance, self._expired = tolerance, expired
        self._is_series = old.ndim == 1
        self._step = 1
        self._notes: list[str] = []

    def compare(self) -> ValueDifference:
        """Return how the new frame differs."""
        before, after = _labels(self._old), _labels(self._new)
        there = {key: at for at, key in enumerate(after)}
        shared = [(key, at, there[key]) for at, key in enumerate(before) if key in there]
        was = set(before)
        added = [_told(key) for key in after if key not in was]
        removed = [_told(key) for key in before if key not in there]
        rows = self._rows()
        self._step = max(1, -(-rows.common * len(shared) // CELLS))
        columns = [_Column(_told(key), _column(self._old, at), _column(self._new, then)) for key, at, then in shared]
        pending = self._compare_cells(columns, rows)
        order = [key for key in after if key in was] != [key for key in before if key in there]
        return self._result(columns, rows, added, removed, pending, reordered=order)

    # -- rows -----------------------------------------------------------------------------------------

    def _rows(self) -> _Rows:
        old, new = self._old.index, self._new.index
        lengths = len(old), len(new)
        notes = tuple(self._index_notes(old, new))
        if not (self._has_labels(old) and self._has_labels(new)):
            notes = (*notes, "rows are compared by position: the labels of their index are objects")
            return self._by_position(*lengths, notes)
        if old.equals(new):
            return _Rows(0, 0, lengths[0], notes=notes)
        ranges = [type(index) is self._pandas.RangeIndex and (index.start, index.step) for index in (old, new)]
        if ranges[0] and ranges[0] == ranges[1]:
            return self._by_position(*lengths, notes)
        try:
            return self._by_label(old, new, notes)
        except (TypeError, ValueError, NotImplementedError) as fault:
            notes = (*notes, f"rows are compared by position: their labels cannot be compared ({fault})"[:150])
            return self._by_position(*lengths, notes)

    def _by_position(self, before: int, after: int, notes: tuple[str, ...]) -> _Rows:
        common = min(before, after)
        pick = slice(0, common)
        return _Rows(after - common, before - common, common, pick, pick, notes)

    def _by_label(self, old: Any, new: Any, notes: tuple[str, ...]) -> _Rows:
        numpy, pandas = self._numpy, self._pandas
        if not (old.is_unique and new.is_unique):
            counted = [
                pandas.MultiIndex.from_arrays([pandas.factorize(old.append(new))[0][part], self._occurrence(index)])
                for index, part in ((old, slice(0, len(old))), (new, slice(len(old), None)))
            ]
            old, new = counted
            notes = (*notes, "some labels of the index repeat: the second row with a label is compared with the second")
        where = new.get_indexer(old)
        kept = numpy.flatnonzero(where >= 0)
        then = where[kept]
        common = len(kept)
        if (numpy.diff(then) < 0).any():
            notes = (*notes, "rows are in another order; they are compared by their label")
        return _Rows(len(new) - common, len(old) - common, common, kept, then, notes)

    def _occurrence(self, index: Any) -> Any:
        series = self._pandas.Series(self._numpy.zeros(len(index), dtype="int8"))
        return series.groupby(self._pandas.factorize(index)[0]).cumcount().to_numpy()

    def _has_labels(self, index: Any) -> bool:
        """Return whether the labels of an index are compared without code of the user's."""
        levels: list[Any] = list(index.levels) if isinstance(index, self._pandas.MultiIndex) else [index]
        for level in levels:
            if str(level.dtype) == "object":
                kind = self._pandas.api.types.infer_dtype(level, skipna=True)
                if kind not in _LABEL_KINDS and not all(map(_is_plain, level)):
                    return False
        return True

    @staticmethod
    def _index_notes(old: Any, new: Any) -> Iterator[str]:
        names = [", ".join(str(name)[:40] for name in index.names) for index in (old, new)]
        if names[0] != names[1]:
            yield f"name of the index: {arrow(*names)}"
        types = [str(index.dtype) if index.nlevels == 1 else f"{index.nlevels} levels" for index in (old, new)]
        if types[0] != types[1]:
            yield f"type of the index: {arrow(*types)}"

    # -- cells ----------------------------------------------------------------------------------------

    def _compare_cells(self, columns: Sequence[_Column], rows: _Rows) -> int:
        """Compare the cells of columns; return the number of columns for which no time was left."""
        numpy = self._numpy
        picks = [one if one is not None else slice(None) for one in (rows.old, rows.new)]
        if self._step > 1:
            sample = every_nth(numpy, rows.common, self._step)
            picks = [
                numpy.arange(len(frame))[pick][sample]
                for frame, pick in zip((self._old, self._new), picks, strict=True)
            ]
        labels = self._old.index
        for at, column in enumerate(columns):
            if self._expired():
                return len(columns) - at
            try:
                old, new = column.old[picks[0]], column.new[picks[1]]
                mask = differing_cells(numpy, old, new, self._tolerance)
            except (CannotCompare, TypeError, ValueError, RecursionError) as fault:
                column.failed = str(fault)[:150]
                continue
            places = numpy.flatnonzero(mask)
            column.cells = len(places) * self._step
            for place in places[:_PER_COLUMN].tolist():
                row = numpy.arange(len(labels))[picks[0]][place] if len(labels) else 0
                column.examples.append((short(labels[int(row)]), *pair(old[place], new[place])))
        return 0

    # -- the result -------------------------------------------------------------------------------------

    def _result(
        self,
        columns: Sequence[_Column],
        rows: _Rows,
        added: Sequence[str],
        removed: Sequence[str],
        pending: int,
        *,
        reordered: bool,
    ) -> ValueDifference:
        old, new = self._old, self._new
        done = columns[: len(columns) - pending]
        cells = {one.label: one.cells for one in done if one.cells}
        types = [one for one in columns if one.types[0] != one.types[1]]
        failed = [one for one in done if one.failed]
        notes = list(rows.notes)
        if reordered:
            notes.append("columns are in another order")
        if self._is_series and _told_name(old.name) != _told_name(new.name):
            notes.append(f"name: {arrow(_told_name(old.name), _told_name(new.name))}")
        if failed:
            notes.append(f"not compared: {join_names([f'{one.label} ({one.failed})' for one in failed], 3)}")
        if self._step > 1:
            notes.append(f"~ estimated from one row in {self._step:,}")
        self._notes = notes
        counts = {
            "rows_before": len(old),
            "rows_after": len(new),
            "rows_added": rows.added,
            "rows_removed": rows.removed,
            "columns_added": len(added),
            "columns_removed": len(removed),
            "columns_retyped": len(types),
            "cells": sum(cells.values()),
        }
        reason = f"{plural(pending, 'columns')} of {len(columns)} were not compared in time" if pending else ""
        is_changed = any(counts[key] for key in counts if not key.startswith("rows_b") and key != "rows_after")
        is_changed = is_changed or bool(notes and not failed and self._step == 1) or reordered
        is_open = bool(pending or failed or self._step > 1)
        changed = [one for one in columns if one.cells or one in types]
        return ValueDifference(
            self._name,
            self._summary(counts, cells, types, added, removed, is_open=is_open),
            "pending" if pending else "unknown" if is_open and not is_changed else "complete",
            differs=True if is_changed else None if is_open else False,
            reason=reason or ("" if not failed or is_changed else "some columns cannot be compared"),
            counts=counts,
            columns=cells,
            step=self._step,
            tables=tuple(self._tables(changed, rows)),
            notes=tuple(notes),
        )

    def _summary(
        self,
        counts: dict[str, int],
        cells: dict[str, int],
        types: Sequence[_Column],
        added: Sequence[str],
        removed: Sequence[str],
        *,
        is_open: bool,
    ) -> str:
        told = [f"+{join_names(added, 4)}" if added else "", f"−{join_names(removed, 4)}" if removed else ""]
        told += [f"{one.label} {arrow(*one.types)}" for one in types[:3]]
        told.append(f"… {len(types) - 3} more types" if len(types) > 3 else "")
        rows = [f"{sign}{counts[key]:,}" for sign, key in (("+", "rows_added"), ("−", "rows_removed")) if counts[key]]
        told.append(f"{' '.join(rows)} rows" if rows else "")
        if cells:
            about = "~" if self._step > 1 else ""
            where = next(iter(cells)) if len(cells) == 1 else f"{len(cells)} columns"
            many = plural(counts["cells"], "cells")
            told.append(
                f"{about}{many} differ{'s' * (counts['cells'] == 1)}{'' if self._is_series else f' in {where}'}"
            )
        kind = type(self._new).__name__
        head = f"{kind} {arrow(_shape(self._old), _shape(self._new))}"
        body = ", ".join(filter(None, told))
        otherwise = "no difference found" if is_open else self._notes[0] if self._notes else "the same cells"
        return f"{head}: {body or otherwise}"

    def _tables(self, changed: Sequence[_Column], rows: _Rows) -> Iterator[ValueTable]:
        if not changed:
            return
        listed = changed
        if len(changed) > ROWS:
            most = {id(one) for one in heapq.nlargest(ROWS, changed, key=lambda one: one.cells)}
            listed = [one for one in changed if id(one) in most]
        table = [self._row(one, rows) for one in listed]
        head = ("column", "type", "cells", "mean", "range")
        kept = [at for at, _ in enumerate(head) if at < 3 or any(row[at] for row in table)]
        yield ValueTable(
            tuple(head[at] for at in kept),
            tuple(tuple(row[at] for at in kept) for row in table),
            right=(2,),
            more=len(changed) - len(listed),
        )
        examples = list(_examples(listed))
        if examples:
            head, examples = ("row", "column", "before", "after"), [row[:EXAMPLES] for row in examples]
            if self._is_series:
                head, examples = (head[0], *head[2:]), [(row[0], *row[2:]) for row in examples]
            yield ValueTable(head, tuple(examples), title="for example")

    def _row(self, one: _Column, rows: _Rows) -> tuple[str, ...]:
        about = "~" if self._step > 1 and one.cells else ""
        before, after = (self._statistics(column) for column in (one.old, one.new))
        cells = one.failed or f"{about}{one.cells:,} of {rows.common:,}"
        return (one.label, arrow(*one.types), cells, arrow(before[0], after[0]), arrow(before[1], after[1]))

    def _statistics(self, column: Any) -> tuple[str, str]:
        """Return mean and range of a column of numbers, or the range of one of times; else empty texts."""
        kind, array = column.dtype.kind, column
        if kind not in "iufMm" or not len(array):
            return "", ""
        try:
            series = self._pandas.Series(array, copy=False)
            with self._numpy.errstate(all="ignore"):
                mean = short(series.mean()) if kind in "iuf" else ""
                return mean, f"{short(series.min())} … {short(series.max())}"
        except (TypeError, ValueError, NotImplementedError):
            return "", ""


def _labels(frame: Any) -> list[tuple[Any, int]]:
    """Return (label, occurrence) of the columns; a series has one column."""
    if frame.ndim == 1:
        return [("values", 0)]
    seen: Counter[Any] = Counter()
    found: list[tuple[Any, int]] = []
    for label in frame.columns:
        key = label if _is_plain(label) else short(label)
        found.append((key, seen[key]))
        seen[key] += 1
    return found


def _told(key: tuple[Any, int]) -> str:
    label, again = key
    text = label[:60] if isinstance(label, str) else short(label)
    return f"{text} ({again + 1})" if again else text


def _told_name(name: Any) -> str:
    return name[:60] if isinstance(name, str) else "none" if name is None else short(name)


def _column(frame: Any, at: int) -> Any:
    return frame.array if frame.ndim == 1 else frame.iloc[:, at].array


def _shape(frame: Any) -> str:
    return "×".join(map(str, frame.shape))


def _is_plain(label: Any) -> bool:
    if type(label) is tuple:
        return all(map(_is_plain, cast("tuple[Any, ...]", label)))
    return type(label) in (str, int, float, bool, bytes, type(None)) or type(label).__module__ in ("numpy", "datetime")


def _examples(columns: Sequence[_Column]) -> Iterator[tuple[str, ...]]:
    """Yield example cells, the first one of each column before the second ones."""
    found = [(at, one.label, cell) for one in columns for at, cell in enumerate(one.examples)]
    for _, label, (row, before, after) in sorted(found, key=lambda each: each[0])[:EXAMPLES]:
        yield row, label, before, after
