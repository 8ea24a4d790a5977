"""The columns of a CSV or TSV text that is read part by part: types, nulls, ranges and categories of all its rows.

Rule 1: each row is counted, and each cell. Dialect, header and width are those of the first part.
Rule 2: of a column at most `MOST_DISTINCT` different values are counted; of one with more a lower bound is shown.
Rule 3: count, nulls, range and mean are of all rows. Quartiles of more than `MOST_SAMPLED` numbers are those of evenly
        spread ones, and carry a `~`.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ctxkernel.core.text import one_line, span_of
from ctxkernel.sources.base.file_reader import line_parts
from ctxkernel.sources.outlines.tabular import DATE, NULLS, Column, TableDialect, TableText, dialect_of

MOST_DISTINCT = 1_000
MOST_SAMPLED = 20_000
_MOST_PENDING = 1 << 20
"""Characters of a record that is not complete; a longer one is taken as it is."""
_PART_BYTES = 1 << 15
_DECIMALS = frozenset(".eE")
_BOOLS = frozenset({"true", "false", "yes", "no", "t", "f"})


def _numbers(cells: Sequence[str]) -> list[float] | None:
    """Return the numbers that some cells are; None where one is none."""
    try:
        numbers = list(map(float, cells))
        finite = math.isfinite(math.fsum(numbers))
    except (ValueError, OverflowError):
        return None
    return None if not finite or "_" in "".join(cells) else numbers  # float("1_0") is 10.0


@dataclass(slots=True)
class ColumnFacts:
    """Facts about one column."""

    there: int = 0
    """Cells that are not null."""
    nulls: int = 0
    numeric: bool = True
    whole: bool = True
    low: tuple[float, str] = (math.inf, "")
    high: tuple[float, str] = (-math.inf, "")
    sums: tuple[float, ...] = ()
    sample: list[float] = field(default_factory=list[float])
    step: int = 1
    """Every so many-th number is in the sample."""
    dates: bool = True
    first: str = ""
    """The smallest text, as long as all are dates."""
    last: str = ""
    counts: Counter[str] = field(default_factory=Counter[str])
    many: bool = False
    """Whether there are more different values than `counts` has."""
    lengths: tuple[int, int] = (1 << 60, 0)

    def copy(self) -> ColumnFacts:
        """Return facts that can take more cells without a change of these."""
        return replace(self, sample=list(self.sample), counts=Counter(self.counts))

    def take(self, cells: Sequence[str]) -> None:
        """Count some cells."""
        there, numbers = cells, _numbers(cells) if self.numeric else None
        if numbers is None:  # what is null is no number
            nulls = sum(map(NULLS.__contains__, cells))
            there = [cell for cell in cells if cell not in NULLS] if nulls else cells
            self.nulls += nulls
            if not there:
                return
            numbers = _numbers(there) if nulls and self.numeric else None
        if numbers is None:
            self.numeric = False
        else:
            self._take_numbers(numbers, there)
        if self.dates:
            some = set(there)
            self.dates = all(map(DATE.fullmatch, some))
            self.first = min([*some, self.first or there[0]])
            self.last = max([*some, self.last])
        if not self.many:
            self.counts.update(there)
            self.many = len(self.counts) > MOST_DISTINCT
        if not self.numeric or self.there == 0:
            widths = list(map(len, there))
            self.lengths = min([*widths, self.lengths[0]]), max([*widths, self.lengths[1]])
        self.there += len(there)

    def _take_numbers(self, numbers: list[float], there: Sequence[str]) -> None:
        self.whole = self.whole and _DECIMALS.isdisjoint("".join(there))
        low, high = min(numbers), max(numbers)
        if low < self.low[0]:
            self.low = low, there[numbers.index(low)].strip()
        if high > self.high[0]:
            self.high = high, there[numbers.index(high)].strip()
        total = math.fsum(numbers)
        self.sums = (*self.sums, total) if len(self.sums) < 64 else (math.fsum((*self.sums, total)),)
        self.sample += numbers[-self.there % self.step :: self.step]
        while len(self.sample) > MOST_SAMPLED:
            self.sample, self.step = self.sample[::2], 2 * self.step

    def column(self, name: str) -> Column:
        """Return the column as an outline shows it."""
        name = one_line(name, 60)
        if not self.there:
            return Column(name, "empty", self.nulls, "", "no values")
        if self.numeric:
            span = f", {self.low[1]} … {self.high[1]}"
            return Column(name, "int" if self.whole else "float", self.nulls, span, self._number_statistics())
        top = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:3]
        common = ", ".join(f"{one_line(value, 30)!r} ×{often:,}" for value, often in top)
        distinct = f"{MOST_DISTINCT:,}+ distinct" if self.many else f"{len(self.counts):,} distinct"
        if self.dates:
            span = f", {self.first} … {self.last}"
            dtype = "datetime" if len(self.first) > 10 else "date"
            return Column(name, dtype, self.nulls, span, f"{distinct}{span}")
        if not self.many and set(map(str.lower, self.counts)) <= _BOOLS:
            return Column(name, "bool", self.nulls, ", " + common, common)
        such = f", such as {(next(iter(self.counts)) if self.many else top[0][0])[:30]!r}"
        all_differ = self.many or len(self.counts) == self.there
        detail = f", {distinct}{such}" if all_differ else f", {distinct} ({common})"
        lengths = span_of(*self.lengths, "characters")
        often = such if self.many else f"; most often {common}"
        return Column(name, "text", self.nulls, detail, f"{distinct}, {lengths}{often}")

    def _number_statistics(self) -> str:
        ordered, about = sorted(self.sample), "~" if self.step > 1 else ""
        quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
        parts = [f"min {self.low[1]}"]
        parts += [f"{name} {about}{value:.10g}" for name, value in zip(("25%", "50%", "75%"), quartiles, strict=True)]
        return ", ".join([*parts, f"max {self.high[1]}", f"mean {math.fsum(self.sums) / self.there:.10g}"])


@dataclass(slots=True)
class SampleFacts:
    """Facts about the rows that were read."""

    by_lines = True
    dialect: TableDialect | None = None
    columns: list[ColumnFacts] = field(default_factory=list[ColumnFacts])
    rows: int = 0
    lines: int = 0
    ragged: int = 0
    pending: str = ""
    """The beginning of a record whose end was not taken yet."""
    broken: bool = False
    """Whether something could not be read as a record."""

    def copy(self) -> SampleFacts:
        """Return facts that can take more rows without a change of these."""
        return replace(self, columns=[column.copy() for column in self.columns])

    def take(self, data: bytes, line: int | None = None) -> None:
        """Count the rows in some whole lines. A record that is not complete is kept for the next ones."""
        for part in line_parts(data, _PART_BYTES):
            self._take(part)

    def _take(self, data: bytes) -> None:
        self.lines += data.count(b"\n") + (not data.endswith(b"\n"))
        text = self.pending + data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\0", "\u2400")
        self.pending = ""
        if self.dialect is None:
            text = text.removeprefix("\ufeff")  # the mark of the encoding
            self.dialect = dialect_of(text.split("\n")[:2_000])
            if self.dialect is None:
                return
            self.columns = [ColumnFacts() for _ in self.dialect.header]
            skipped = self.dialect.skipped
        else:
            skipped = 0
        rows = [row for row in self._records(text) if row][skipped:]
        width = len(self.columns)
        odd = sum(len(row) != width for row in rows)
        if odd:
            rows = [row if len(row) == width else (row + [""] * width)[:width] for row in rows]
        self.rows, self.ragged = self.rows + len(rows), self.ragged + odd
        for column, cells in zip(self.columns, zip(*rows, strict=True), strict=False):
            column.take(cells)

    def _records(self, text: str) -> list[list[str]]:
        lines = text.removesuffix("\n").split("\n") if text else []
        fed = 0

        def feed() -> Iterator[str]:
            nonlocal fed
            for line in lines:
                fed += 1
                yield line + "\n"
            fed += 1  # asked for more than there is

        rows: list[list[str]] = []
        done = 0
        try:
            for row in csv.reader(feed(), delimiter=self.dialect.delimiter if self.dialect else ","):
                if fed > len(lines):  # the record goes on in the next part
                    rest = "\n".join(lines[done:]) + "\n"
                    if len(rest) <= _MOST_PENDING:
                        self.pending = rest
                        return rows
                    self.broken = True
                rows.append(row)
                done = fed
        except csv.Error:  # a field larger than csv's limit
            self.broken = True
        return rows

    def table(self) -> TableText | None:
        """Return the table as an outline shows it; None where the text is none."""
        if self.dialect is None:
            return None
        if self.pending:  # a quote that is never closed
            return replace(self, columns=[column.copy() for column in self.columns])._closed().table()
        columns = zip(self.dialect.header, self.columns, strict=True)
        return TableText(
            delimiter=self.dialect.delimiter,
            has_header=self.dialect.has_header,
            header=self.dialect.header,
            columns=[facts.column(name) for name, facts in columns],
            head=self.dialect.head,
            rows=self.rows,
            exact=not self.broken,
            scanned=self.rows,
            preamble=self.dialect.preamble,
            ragged=self.ragged,
        )

    def _closed(self) -> SampleFacts:
        pending, self.pending, self.broken = self.pending, "", True
        self.take(pending.replace('"', "").encode())
        return self
