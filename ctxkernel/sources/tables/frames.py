"""A pandas DataFrame or Series as a source: 0 rows, 1 schema and head, 2 statistics, 3 what changed.

Rule 1: the frame is held by reference; of its data nothing is kept but hashes and the text of one window.
Rule 2: numbers are exact where they are values (rows, min, max, nulls, counts); mean, std and quantiles are
        computed and shown with 10 digits. Of more than `EXACT_CELLS` cells a sample is taken, and said so; nulls,
        min and max of all rows are looked for in the background.
Rule 3: a stamp hashes up to 8 MB in 128 columns whole, of more some pages of so many columns; a rendering
        64 MB in 256 columns. A change in place of a larger frame may lie between the pages; the notes say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import xxhash

from ctxkernel.core.jobs import Preparation, Publish, Stopped
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size, one_line
from ctxkernel.sources.base.positions import MOST_NAMES, find_pattern, no_place, pattern_of
from ctxkernel.sources.base.rendering import BaseSource, Draft, Names, Place, fit_lines, titled
from ctxkernel.sources.tables.columns import (
    CHUNKS,
    HASH_BYTES,
    STAMP_BYTES,
    ColumnHash,
    cells,
    column_facts,
    describe,
    facts_by_parts,
    hash_column,
    labels_of,
    modules,
)
from ctxkernel.sources.tables.tables import TableBasis, TableWindow, table_changes, table_rows

EXACT_CELLS = 5_000_000
_SAMPLE_CELLS = 100_000
_STRETCHES = 100
_HASHED_COLUMNS = 256
_STAMPED_COLUMNS = 128
_STAMP_HASHES = 1024
_SHOWN_COLUMNS = 300
_BASIS_CELLS = 4_000
_LABELS = 100_000
"""So many labels are looked through as texts."""
_NAMED = 1_000


@dataclass(frozen=True, slots=True)
class Hashes:
    """The content of a frame, by column."""

    columns: dict[str, ColumnHash]
    exact: bool
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Ranges:
    """Type, nulls and range of the first columns, of all rows; made when the frame had `stamp`."""

    stamp: str
    facts: tuple[str, ...]


class FrameSource(BaseSource):
    """A view of a DataFrame or Series."""

    kind = "frame"

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(label)
        self.target = target
        self._asked = ""
        """The stamp of a frame of which ranges of a sample were shown: those of all rows are worth looking for."""
        self._seen: tuple[str, Hashes] | None = None
        """The last stamp, and the hashes that it was made from."""

    def stamp(self) -> str:
        """Return identity, shape, types and a (sampled) hash of the content; ≤ 20 ms whatever the size."""
        try:
            frame = self._frame()
            hashes = hash_frame(frame, STAMP_BYTES, _STAMPED_COLUMNS, _STAMP_HASHES)
        except Exception as fault:  # columns swapped by another thread meanwhile, say
            return f"unreadable {type(fault).__name__}"
        stamp = f"{id(self.target):x} {frame.shape} {'' if hashes.exact else '~'}{hashes.fingerprint}"
        self._seen = stamp, hashes
        return stamp

    # -- ranges of a large one, looked for in the background

    def preparation(self) -> Preparation | None:
        """Return the look at all rows, where a sample was shown and it was not done for the frame as it is."""
        known = self.prepared.get("ranges")
        if not self._asked or (known is not None and known.stamp == self._asked):
            return None
        return Preparation(f"frame {id(self.target):x}", self._look_through)

    def _look_through(self, stopped: Stopped, publish: Publish) -> Ranges:
        stamp, frame = self.stamp(), self._frame()
        facts: list[str] = []
        for at in range(min(frame.shape[1], _SHOWN_COLUMNS)):
            facts.append(facts_by_parts(frame.iloc[:, at], stopped))
            publish(None)  # a sign of life
        return Ranges(stamp, tuple(facts))

    def accept(self, result: Any) -> bool:
        """Take the ranges, unless the frame changed since. Returns whether they were taken."""
        if not isinstance(result, Ranges) or not all(result.facts) or result.stamp != self.stamp():
            return False
        self.prepared["ranges"] = result
        self._renderings.clear()
        return True

    def covers(self, stamp: str) -> bool:
        """A sampled hash does not prove that nothing changed."""
        return "~" not in stamp

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
        index = frame.index
        pattern = pattern_of(pos)
        if pattern is not None:
            row = find_pattern(pattern, labels_of(index[:_LABELS]))
        else:
            row = _row_of(index, pos[1:-1] if pos[:1] == "[" and pos[-1:] == "]" else pos)
        if row is None:
            columns = _column_places(frame)
            if pattern is None and (place := dict(reversed(columns)).get(pos)) is not None:
                return place
            labels = labels_of(index[:_LABELS])
            what = "row labels and columns" if len(labels) < _LABELS else "first row labels and columns"
            raise no_place(self.label, pos, [*(name for name, _ in columns), *labels], what)
        return Place(row)

    def _frame(self) -> Any:
        _, pandas = modules()
        if isinstance(self.target, pandas.DataFrame):
            return self.target
        name = self.target.name if self.target.name is not None else "value"
        return pandas.DataFrame({name: self.target}, copy=False)

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the frame as it is now."""
        frame = self._frame()
        hashes = self._hashes(frame)
        window = frame_window(frame, place, _BASIS_CELLS)
        basis = TableBasis(hashes.fingerprint, frame.shape, _types(frame), hashes.columns, hashes.exact, window)
        notes = () if hashes.exact else ("content hash of a sample",)
        if request.lod == 0:

            def part(place: Place, rows: int, columns: int) -> TableWindow:
                return frame_window(frame, place, rows * columns, rows=rows, columns=columns)

            def could(columns: int) -> int:  # a row has a line end and, of each column, a space and a letter at least
                return budget // (1 + columns // 2) + 2

            draft = table_rows(self._headline(frame), frame.shape, place, budget, part, most=30, rows_of=could)
        elif request.lod == 1:
            draft = self._schema(frame, budget)
        elif request.lod == 2:
            draft = self._statistics(frame, budget)
        elif isinstance(request.basis, TableBasis):
            old = request.basis
            there = old.window
            rows, columns = len(there.labels), len(there.names)
            same = frame_window(frame, Place(there.row, there.col), rows * columns, rows=rows, columns=columns)
            draft = fit_lines([f"{self.label} · changed"], list(table_changes(old, basis, same)), budget, "changes")
            if old.fingerprint == hashes.fingerprint:
                draft = Draft(f"{self.label} · no change{'' if hashes.exact else ' in the sample that was hashed'}")
        else:
            draft = self._schema(frame, max(1, budget - 12))
            draft = Draft(f"[nothing rendered before; as it is now:]\n{draft.text}", draft.cut_tokens)
        return Draft(draft.text, draft.cut_tokens, draft.next_pos, hashes.fingerprint, basis, (*notes, *draft.notes))

    def _hashes(self, frame: Any) -> Hashes:
        # `render` asked for the stamp just now: of a large frame its hashes are as good as any.
        if self._seen is not None and _bytes(frame) > HASH_BYTES and frame.shape[1] * CHUNKS <= _STAMP_HASHES:
            return self._seen[1]
        return hash_frame(frame, HASH_BYTES, _HASHED_COLUMNS)

    def _headline(self, frame: Any) -> str:
        _, pandas = modules()
        rows, columns = frame.shape
        shape = f"{rows:,} rows" + (f" × {columns:,} columns" if isinstance(self.target, pandas.DataFrame) else "")
        return f"{titled(self.label, self.target)} · {shape} · {format_size(_bytes(frame))}"

    def _schema(self, frame: Any, budget: int) -> Draft:
        known, stamp = self.prepared.get("ranges"), self._seen[0] if self._seen is not None else ""
        if known is not None and known.stamp == stamp:
            lines = [f"{name}: {fact}" for (name, _), fact in zip(_columns(frame, budget), known.facts, strict=False)]
            # An equal stamp proves little of so large a frame: a cell may have changed in place between its pages.
            note = " · ranges of all rows, as they were when looked through"
        else:
            sample, note = _sampled(frame)
            about = "" if sample is frame else "~"
            self._asked = stamp if about else ""
            lines = [f"{name}: {column_facts(column, about)}" for name, column in _columns(sample, budget)]
        rest = frame.shape[1] - len(lines)
        lines += [f"[… {rest:,} more columns]"] if rest > 0 else []
        head = [f"{self._headline(frame)} · index {_index(frame)}{note}"]
        window = frame_window(frame, Place(), 5 * min(frame.shape[1], 30), rows=5, columns=30)
        rows = ["first rows:", *window.lines(30)] if len(window.labels) else []
        return fit_lines(head, [*lines, *rows], budget, "lines")

    def _statistics(self, frame: Any, budget: int) -> Draft:
        sample, note = _sampled(frame)
        about = "" if sample is frame else "~"
        lines = [f"{name}: {describe(column, about)}" for name, column in _columns(sample, budget)]
        rest = frame.shape[1] - len(lines)
        lines += [f"[… {rest:,} more columns]"] if rest > 0 else []
        draft = fit_lines([f"{self._headline(frame)}{note}"], lines, budget, "columns")
        return Draft(draft.text, draft.cut_tokens, notes=("sampled",) if note else ())


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
            return int(found.start or 0)
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


def hash_frame(frame: Any, limit: int, most_columns: int, most_hashes: int = 1 << 14) -> Hashes:
    """Hash index and columns; evenly chosen columns where there are more than `most_columns`."""
    width = frame.shape[1]
    step = max(1, -(-width // most_columns))
    columns: dict[str, ColumnHash] = {}
    most_chunks = min(CHUNKS, max(1, most_hashes // max(1, min(width, most_columns))))
    share = limit if _bytes(frame) <= limit else limit // (4 * max(1, min(width, most_columns)))
    for at in range(0, width, step):
        columns[f"{at} {column_name(frame, at)}"] = hash_column(column_values(frame, at), share, most_chunks)
    exact = step == 1 and all(column.exact for column in columns.values())
    state = xxhash.xxh3_64(f"{frame.shape} {_types(frame)}".encode("utf-8", "replace"))
    state.update("|".join([*columns, _index(frame)]).encode("utf-8", "replace"))
    for column in columns.values():
        state.update(repr(column.chunks).encode())
    return Hashes(columns, exact, ("xxh3:" if exact else "sampled:") + state.hexdigest())


def frame_window(
    frame: Any, place: Place, most_cells: int, *, rows: int | None = None, columns: int | None = None
) -> TableWindow:
    """Return the cells from row and column of `place` on, as texts; at most `most_cells`."""
    numpy, _ = modules()
    total, width = frame.shape
    first, left = min(place.line, max(total - 1, 0)), min(place.col, max(width - 1, 0))
    across = max(0, min(width - left, columns or 30, max(most_cells, 1)))
    down = max(0, min(total - first, rows or 50, max(1, most_cells // max(across, 1))))
    part = frame.iloc[first : first + down, left : left + across]
    names = tuple(column_name(frame, left + at) for at in range(across))
    values = [column_values(part, at) for at in range(across)]
    right = tuple(isinstance(v, numpy.ndarray) and v.dtype.kind in "iufcb" for v in values)
    labels = tuple(labels_of(part.index))
    return TableWindow(first, left, labels, names, tuple(tuple(cells(v)) for v in values), right)


def column_name(frame: Any, at: int) -> str:
    """Return the name of a column as one line of text."""
    return cells([frame.columns[at]])[0]


def _types(frame: Any) -> str:
    types = [str(kind) for kind in list(frame.dtypes)[:_SHOWN_COLUMNS]]
    return " ".join(types)


def _bytes(frame: Any) -> int:
    """Return rows times sizes of the types: what Python objects hold beside is not looked at."""
    return len(frame) * sum(getattr(kind, "itemsize", 8) for kind in list(frame.dtypes))


def _index(frame: Any) -> str:
    index = frame.index
    if not len(index):
        return "empty"
    ends = labels_of(index[[0, -1]])
    return f"{one_line(ends[0], 40)} … {one_line(ends[1], 40)}"


def _sampled(frame: Any) -> tuple[Any, str]:
    rows, width = frame.shape
    if rows * width <= EXACT_CELLS:
        return frame, ""
    numpy, _ = modules()
    # Rows beside each other: each one alone of gigabytes is far away in memory, and a step may follow a period.
    length = max(1, min(rows // _STRETCHES, _SAMPLE_CELLS // (_STRETCHES * min(width, _SHOWN_COLUMNS))))
    starts = numpy.linspace(0, rows - length, _STRETCHES).astype("int64")
    at = (starts[:, None] + numpy.arange(length)).ravel()
    at = numpy.unique(at)  # of few rows, many columns: each once
    return frame.iloc[:, :_SHOWN_COLUMNS].take(at), f" · sampled: {_STRETCHES} stretches of {length:,} rows"


def _columns(frame: Any, budget: int) -> Iterator[tuple[str, Any]]:
    """Yield name and values of the columns of which a line could fit."""
    for at in range(min(frame.shape[1], _SHOWN_COLUMNS, budget // 4 + 1)):
        yield column_name(frame, at), frame.iloc[:, at]
