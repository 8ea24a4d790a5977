"""A pandas DataFrame or Series as a source: 0 rows, 1 schema and head, 2 statistics, 3 what changed.

Rule 1: the frame is held by reference; of its data nothing is kept but hashes and the text of one window.
Rule 2: numbers are exact where they are values (rows, min, max, nulls, counts); mean, std and quantiles are
        computed and shown with 10 digits. Of more than `EXACT_CELLS` cells a sample is taken, and said so; nulls,
        min and max of all rows are looked for in the background.
Rule 3: a stamp hashes up to 8 MB in 128 columns whole, of more some pages of so many columns; a rendering
        64 MB in 256 columns. A change in place of a larger frame may lie between the pages; the notes say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.jobs import IsCancelled, Preparation, Publish
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.positions import MOST_NAMES, find_pattern, no_place, pattern_of, unbracketed
from ctxkernel.sources.base.rendering import Names, Place, titled
from ctxkernel.sources.tables.columns import (
    CHUNKS,
    COUNTED_CELL,
    HASH_BYTES,
    STAMP_BYTES,
    ColumnHash,
    cells,
    column_facts,
    describe,
    hash_column,
    labels_of,
    modules,
    sampled_rows,
)
from ctxkernel.sources.tables.tables import (
    TableFacts,
    TableSource,
    TableWindow,
    clamp_window,
    hash_columns,
    table_facts,
)

_SAMPLE_CELLS = 100_000
_HASHED_COLUMNS = 256
_STAMPED_COLUMNS = 128
_STAMP_HASHES = 1024
_MOST_HASHES = 1 << 14
_SHOWN_COLUMNS = 500
_LABELS = 100_000
"""So many labels are looked through as texts."""
_NAMED = 1_000


@dataclass(frozen=True, slots=True)
class Ranges:
    """Type, nulls and range of the first columns, of all rows; made when the frame had `stamp`."""

    stamp: str
    facts: tuple[str, ...]


class FrameSource(TableSource):
    """A view of a DataFrame, a Series, an index or a categorical."""

    kind = "frame"
    most_columns = basis_columns = 30
    most_described = _SHOWN_COLUMNS

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self._asked = ""
        """The stamp of a frame of which ranges of a sample were shown: those of all rows are worth looking for."""

    def _frame(self) -> Any:
        _, pandas = modules()
        if isinstance(self.target, pandas.DataFrame):
            return self.target
        if isinstance(self.target, pandas.MultiIndex):
            return self.target.to_frame(index=False, allow_duplicates=True)
        name = getattr(self.target, "name", None)
        return pandas.DataFrame({"value" if name is None else name: self.target}, copy=False)

    # -- ranges of a large one, looked for in the background

    def preparation(self) -> Preparation | None:
        """Return the look at all rows, where a sample was shown and it was not done for the frame as it is."""
        known = self.prepared.get("ranges")
        if not self._asked or (known is not None and known.stamp == self._asked):
            return None
        return Preparation(f"frame {id(self.target):x}", self._look_through)

    def _look_through(self, stopped: IsCancelled, publish: Publish) -> Ranges:
        stamp, frame = self.stamp(), self._frame()
        facts: list[str] = []
        for at in range(min(frame.shape[1], _SHOWN_COLUMNS)):
            facts.append(column_facts(frame.iloc[:, at], stopped=stopped))
            publish(None)  # a sign of life
        return Ranges(stamp, tuple(facts))

    def accept(self, result: Any) -> bool:
        """Take the ranges, unless the frame changed since. Returns whether they were taken."""
        if not isinstance(result, Ranges) or not all(result.facts) or result.stamp != self.stamp():
            return False
        return self.take("ranges", result)

    def names(self) -> Names:
        """Return the first labels of the index, unless they are numbers, and the columns."""
        frame = self._frame()
        rows = [(label, Place(at)) for at, label in enumerate(labels_of(frame.index[:_NAMED])) if not label.isdecimal()]
        return Names("row labels and columns", [*rows, *_column_places(frame)])

    def find(self, pos: str) -> Place:
        """Return the row of a label of the index ("Paris", "2021-03", "[7]" for the label 7), or of a pattern in it.

        What is no label may be a column: then the place is that column, in the first row.
        """
        frame = self._frame()
        index, pattern, columns = frame.index, pattern_of(pos), _column_places(frame)
        if pattern is not None:
            row = find_pattern(pattern, labels_of(index[:_LABELS]))
        else:
            row = _row_of(index, unbracketed(pos))
            if row is None and (place := dict(reversed(columns)).get(pos)) is not None:
                return place
        if row is None:
            labels = labels_of(index[:_LABELS])
            what = "row labels and columns" if len(labels) < _LABELS else "first row labels and columns"
            raise no_place(self.label, pos, [*(name for name, _ in columns), *labels], what)
        return Place(row)

    def facts(self, limit: int) -> TableFacts:
        """Return shape, types and hashes of index and columns."""
        frame = self._frame()
        rows, width = frame.shape
        stamped = limit == STAMP_BYTES
        # `render` asked for the stamp just now: of a large frame its hashes are as good as any.
        if not stamped and self.stamped and _bytes(frame) > HASH_BYTES and width * CHUNKS <= _STAMP_HASHES:
            return self.stamped[1]
        most, hashes = (_STAMPED_COLUMNS, _STAMP_HASHES) if stamped else (_HASHED_COLUMNS, _MOST_HASHES)
        hashed = max(1, min(width, most))
        most_chunks = min(CHUNKS, max(1, hashes // hashed))
        share = limit if _bytes(frame) <= limit else limit // (4 * hashed)

        def hash_of(at: int) -> ColumnHash:
            return hash_column(column_values(frame, at), share, most_chunks)

        columns, whole = hash_columns(width, most, lambda at: column_name(frame, at), hash_of)
        types = " ".join(str(kind) for kind in list(frame.dtypes)[:_SHOWN_COLUMNS])
        return table_facts((rows, width), types, columns, whole=whole, index=_index(frame))

    def window(self, place: Place, rows: int, columns: int) -> TableWindow:
        """Return cells as texts."""
        numpy, _ = modules()
        frame = self._frame()
        first, left, down, across = clamp_window(frame.shape, place, rows, columns)
        part = frame.iloc[first : first + down, left : left + across]
        names = tuple(column_name(frame, left + at) for at in range(across))
        values = [column_values(part, at) for at in range(across)]
        right = tuple(isinstance(v, numpy.ndarray) and v.dtype.kind in "iufcb" for v in values)
        return TableWindow(
            first, left, tuple(labels_of(part.index)), names, tuple(tuple(cells(v)) for v in values), right
        )

    def rows_within(self, budget: int, columns: int) -> int:
        """Return a bound: a row has a line end and, of each column, a space and a letter at least."""
        return budget // (1 + columns // 2) + 2

    def headline(self) -> str:
        """Return label, type, shape and size."""
        _, pandas = modules()
        frame = self._frame()
        rows, columns = frame.shape
        beside = f" × {plural(columns, 'columns')}" if isinstance(self.target, pandas.DataFrame) else ""
        shape = f"{plural(rows, 'rows')}{beside}"
        return f"{titled(self.label, self.target)} · {shape} · {format_size(_bytes(frame))}"

    def columns(self, most: int) -> list[tuple[str, str]]:
        """Return name and type of the first columns."""
        frame = self._frame()
        return list(zip(cells(frame.columns[:most]), map(str, list(frame.dtypes)[:most]), strict=True))

    def schema(self, at: Sequence[int]) -> tuple[str, list[str]]:
        """Return type, nulls and range of some columns."""
        frame = self._frame()
        known, stamp = self.prepared.get("ranges"), self.stamped[0] if self.stamped is not None else ""
        if known is not None and known.stamp == stamp:
            told = [known.facts[one] for one in at]
            # An equal stamp proves little of so large a frame: a cell may have changed in place between its pages.
            note = " · ranges of all rows, as they were when looked through"
        else:
            sample, about, note = _sampled(frame)
            self._asked = stamp if about else ""
            told = [column_facts(sample.iloc[:, one], about) for one in at]
        return f" · index {_index(frame)}{note}", told

    def statistics(self, at: Sequence[int]) -> tuple[str, list[str]]:
        """Return nulls, range, mean, std and quartiles, or the most frequent values, of some columns."""
        sample, about, note = _sampled(self._frame(), COUNTED_CELL)
        return note, [describe(sample.iloc[:, one], about) for one in at]


def _column_places(frame: Any) -> list[tuple[str, Place]]:
    return [(name, Place(0, at)) for at, name in enumerate(labels_of(frame.columns[:MOST_NAMES]))]


def _row_of(index: Any, text: str) -> int | None:
    """Return the first row whose label reads `text`; of a date a beginning is enough ("2021-03")."""
    for label in (text, *_numbers(text)):
        try:
            found = index.get_loc(label)
        except Exception:  # KeyError, or what a date that is none makes of it
            continue
        if isinstance(found, slice):
            return found.indices(1 << 62)[0]
        return int(found.argmax()) if hasattr(found, "argmax") else int(found)
    labels = labels_of(index[:_LABELS])  # labels that are neither text nor number: tuples, intervals, periods
    return labels.index(text) if text in labels else None


def _numbers(text: str) -> Iterator[int | float]:
    for kind in (int, float):
        with suppress(ValueError):
            yield kind(text)


def column_values(frame: Any, at: int) -> Any:
    """Return column `at` without a copy: an ndarray, or pandas' own array where NumPy has no such type."""
    numpy, _ = modules()
    column = frame.iloc[:, at]
    return column.to_numpy() if isinstance(column.dtype, numpy.dtype) else column.array


def column_name(frame: Any, at: int) -> str:
    """Return the name of a column as one line of text."""
    return cells([frame.columns[at]])[0]


def _bytes(frame: Any) -> int:
    """Return rows times sizes of the types: what Python objects hold beside is not looked at."""
    return len(frame) * sum(getattr(kind, "itemsize", 8) for kind in list(frame.dtypes))


def _index(frame: Any) -> str:
    index = frame.index
    if not len(index):
        return "empty"
    first, last = labels_of(index[[0, -1]])
    return f"{one_line(first, 40)} … {one_line(last, 40)}"


def _sampled(frame: Any, counted: int = 1) -> tuple[Any, str, str]:
    """Return a frame to compute statistics of, what stands before its numbers, and a remark that says so.

    A cell that is no number counts as `counted` cells.
    """
    rows, width = len(frame), min(frame.shape[1], _SHOWN_COLUMNS)
    others = sum(getattr(kind, "kind", "O") not in "iufbmM" for kind in list(frame.dtypes)[:width])
    parts, note = sampled_rows(rows, width, others, counted, _SAMPLE_CELLS)
    if not parts:
        return frame, "", ""
    numpy, _ = modules()
    at = numpy.unique(numpy.concatenate([numpy.arange(part.start, part.stop) for part in parts]))
    return frame.iloc[:, :width].take(at), "~", note
