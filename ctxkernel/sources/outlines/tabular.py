"""CSV and TSV texts: dialect, columns, types, ranges and nulls, from a bounded look or of a text that is read in parts.

Rule 1: values are shown as the file writes them; only means and quartiles are computed, and exact ones.
Rule 2: types and ranges are of the first `SCAN_CELLS` cells; where that is not all, they carry a `~`.
Rule 3: no library beyond the standard one: a table is outlined also where pandas is not loaded.
Rule 4: of a text that is read part by part each row and each cell is counted. Dialect, header and width are those of
        the first part.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.ports import TableRow
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.amounts import NamedLine
from ctxkernel.sources.base.column_lines import column_line, statistics_line, with_number_table
from ctxkernel.sources.base.file_reader import Text, line_parts
from ctxkernel.sources.base.random_samples import counted
from ctxkernel.sources.outlines.column_facts import Column, ColumnFacts

SCAN_CELLS = 40_000
_HEAD_ROWS = 5
_DIALECT_LINES = 200
_QUOTES = "'\""
_NUMBER = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\s*")
_DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "pipe"}


@dataclass(frozen=True, slots=True)
class TableText:
    """Facts about a table text."""

    delimiter: str
    has_header: bool
    header: Sequence[str]
    columns: Sequence[Column]
    head: Sequence[Sequence[str]]
    rows: int
    exact: bool
    scanned: int
    preamble: int
    ragged: int
    sample: str = ""
    """Which parts of the text the rows that were looked at are from, where they are not the first."""

    @property
    def _about(self) -> str:
        """The sign before a count or range: `~` where not all rows were read."""
        return "" if self.exact and self.scanned >= self.rows else "~"

    @property
    def headline(self) -> str:
        """One line about the whole table."""
        parts = [
            f"{_DELIMITERS[self.delimiter]}-separated",
            f"{'' if self.exact else '~'}{plural(self.rows, 'rows')} × {plural(len(self.columns), 'columns')}",
            "header row" if self.has_header else "no header row",
        ]
        if self.scanned < self.rows:
            where = f"{self.scanned:,} rows of {self.sample}" if self.sample else f"the first {self.scanned:,} rows"
            parts.append(f"types and ranges from {where}")
        if self.preamble:
            parts.append(f"{plural(self.preamble, 'lines')} before the table")
        if self.ragged:
            parts.append(f"{counted(self.ragged, self.scanned, 'rows', self._about)} of another length")
        return ", ".join(parts)

    def column_lines(self) -> list[NamedLine]:
        """Return name, type, nulls and range, a line a column."""
        about = self._about
        told: list[str] = []
        for column in self.columns:
            nulls = f", {self._nulls(column)}" if column.nulls else ""
            detail = f", {about * (column.detail[2] not in _QUOTES)}{column.detail[2:]}" if column.detail else ""
            told.append(f"{column.dtype}{nulls}{detail}")
        return self._lines(told)

    def _nulls(self, column: Column) -> str:
        return counted(column.nulls, self.scanned, "nulls", self._about) if column.nulls else ""

    def head_lines(self) -> list[str]:
        """Return the first rows as the file has them."""
        return [self.delimiter.join(one_line(cell, 60) for cell in row) for row in self.head]

    def head_table(self) -> dict[str, TableRow]:
        """Return the cells of each of the lines of `head_lines`."""
        rows = [tuple(one_line(cell, 60) for cell in row) for row in self.head]
        lines = zip(self.head_lines(), rows, strict=True)
        names = () if self.has_header else tuple(self.header)
        return {
            line: TableRow(row, is_head=self.has_header and not at, names=names) for at, (line, row) in enumerate(lines)
        }

    def statistic_lines(self) -> list[str]:
        """Return computed statistics, a line a column."""
        told = [statistics_line(one.dtype, self._nulls(one), one.statistics, self._about) for one in self.columns]
        return with_number_table(self._lines(told, "- "))

    def _lines(self, told: Sequence[str], bullet: str = "") -> list[NamedLine]:
        rows = enumerate(zip(self.columns, told, strict=True), 1)
        many = len(self.columns)
        return [column_line(one.name, one.dtype, text, last=at == many, bullet=bullet) for at, (one, text) in rows]


@dataclass(frozen=True, slots=True)
class TableDialect:
    """The format of a table text."""

    delimiter: str
    has_header: bool
    header: Sequence[str]
    """The name of each column; `column 3` for one that has none."""
    head: Sequence[Sequence[str]]
    """The header, where there is one, and the first rows."""
    preamble: int

    @property
    def skipped(self) -> int:
        """The number of records before the first row."""
        return self.preamble + self.has_header


def dialect_of(lines: Sequence[str]) -> TableDialect | None:
    """Return the dialect of the text that begins with these lines, or None where it is no table."""
    delimiter = _delimiter(lines)
    rows: list[list[str]] = []
    with suppress(csv.Error):  # a field larger than csv's limit: what was read until there
        rows += (row for row in csv.reader((f"{line}\n" for line in lines), delimiter=delimiter or ",") if row)
    return _dialect(delimiter, rows) if delimiter is not None and rows else None


def _dialect(delimiter: str, rows: Sequence[Sequence[str]]) -> TableDialect:
    width = max(Counter(map(len, rows)).items(), key=lambda item: (item[1], item[0]))[0]
    # Titles, comments and counts before the table itself.
    first = (i for i, row in enumerate(rows[:20]) if len(row) == width and (width == 1 or not row[0].startswith("#")))
    preamble = next(first, 0)
    rows = rows[preamble:]
    has_header = _has_header(rows)
    header = [name.strip() or f"column {i}" for i, name in enumerate(rows[0])] if has_header else []
    header += [f"column {i}" for i in range(len(header), width)]
    return TableDialect(delimiter, has_header, header[:width], rows[: _HEAD_ROWS + has_header], preamble)


def read_table(text: Text, sample: str = "") -> TableText | None:
    """Return the table, or None where the text is none; `sample` says of which parts of a larger text it consists."""
    delimiter = _delimiter(text.lines)
    if delimiter is None:
        return None
    records = csv.reader((f"{line}\n" for line in text.lines), delimiter=delimiter)
    rows: list[list[str]] = []
    count = cells = 0
    broken, quoted = False, '"' in text.text
    try:
        for row in records:
            if not row:
                continue
            count += 1
            rows.append(row)
            cells += len(row)
            if cells >= SCAN_CELLS and not quoted:
                rest = text.lines[records.line_num :]
                count += len(rest) - rest.count("")
                break
            if cells >= SCAN_CELLS:
                count += sum(map(bool, records))
    except csv.Error:  # a field larger than csv's limit: what was read until there
        broken = True
    if not rows:
        return None
    dialect = _dialect(delimiter, rows)
    width, body = len(dialect.header), rows[dialect.skipped :]
    padded = [row if len(row) == width else (row + [""] * width)[:width] for row in body]
    values: Sequence[Sequence[str]] = list(zip(*padded, strict=True)) if padded else [()] * width
    total, part = count - dialect.skipped, count > len(rows) or not text.whole or broken
    if not text.whole or broken:
        read = records.line_num / max(len(text.lines), 1) if broken else 1.0
        total = max(total, round(total * max(0, text.size) / max(text.read * read, 1)))
    columns: list[Column] = []
    for name, cells in zip(dialect.header, values, strict=False):
        facts = ColumnFacts(SCAN_CELLS)
        facts.take(cells)
        columns.append(facts.column(name, "~" * part))
    return TableText(
        delimiter=delimiter,
        has_header=dialect.has_header,
        header=dialect.header,
        columns=columns,
        head=dialect.head,
        rows=total,
        exact=text.whole and not broken,
        scanned=len(body),
        preamble=dialect.preamble,
        ragged=sum(len(row) != width for row in body),
        sample=sample,
    )


def cells_of(text: str) -> int:
    """Return about how many cells a table text has, without reading them."""
    return text.count("\n") + max(map(text.count, _DELIMITERS))


def whole_records(part: str, beginning: str) -> str:
    """Return a part of a table without parts of records at its ends; `beginning` is that of the table."""
    dialect = dialect_of(beginning.split("\n")[:_DIALECT_LINES])
    if dialect is None:
        return part
    width, lines = len(dialect.header), part.split("\n")
    first = next((at for at, line in enumerate(lines[:_DIALECT_LINES]) if _width(line, dialect.delimiter) == width), 0)
    lines = lines[first:]
    is_open = sum(line.count('"') for line in lines) % 2
    last = len(lines)
    while is_open and last > max(1, len(lines) - _DIALECT_LINES):
        last -= 1
        is_open = (is_open + lines[last].count('"')) % 2
    return "\n".join(lines if is_open else lines[:last])


def _width(line: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=delimiter), ()))
    except csv.Error:
        return 0


def _delimiter(lines: Sequence[str]) -> str | None:
    """Return the delimiter that gives the most fields, the same number in most of the first lines."""
    sample = [line for line in lines[:50] if line.strip()]
    best: tuple[float, str] | None = None
    for delimiter in _DELIMITERS:
        try:
            widths = Counter(len(row) for row in csv.reader(sample, delimiter=delimiter))
        except csv.Error:
            continue
        width, often = max(widths.items(), key=lambda item: (item[1], item[0]), default=(1, 0))
        score = often / max(len(sample), 1) * math.log(width) if width > 1 else 0.0
        if score > 0.3 and (best is None or score > best[0]):
            best = (score, delimiter)
    return best[1] if best else ("," if sample else None)


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    first = [cell.strip() for cell in rows[0]]
    if not any(first) or any(_NUMBER.fullmatch(cell) for cell in first):
        return False
    below = rows[1:21]
    # Text over numbers is a header; text over text is one where no cell of the first row comes again. One with a name
    # twice has to be both.
    numeric = any(_NUMBER.fullmatch(cell) for row in below for cell in row)
    differs = all(cell not in {row[i] for row in below if i < len(row)} for i, cell in enumerate(rows[0]))
    return numeric and differs if len(set(first)) < len(first) else not below or numeric or differs


# -- a text that is read part by part -------------------------------------------------------------------

_MOST_PENDING = 1 << 20
"""Characters of a record that is not complete; a longer one is taken as it is."""
_PART_BYTES = 1 << 15


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
