"""The columns of a CSV or TSV text that is read part by part: types, nulls, ranges and categories of all its rows.

Rule: each row is counted, and each cell. Dialect, header and width are those of the first part.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.sources.base.file_reader import line_parts
from ctxkernel.sources.outlines.column_facts import ColumnFacts
from ctxkernel.sources.outlines.tabular import TableDialect, TableText, dialect_of

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
