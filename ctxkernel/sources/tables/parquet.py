"""A Parquet file as a source: its schema and statistics from the footer alone, its first rows where they are asked for.

Rule 1: levels 1 and 2 read the footer and no data; a range is what the writer wrote down, and absent where it did not.
Rule 2: level 0 decodes the columns of at most `DATA_BYTES` of a row group, and at most `MOST_ROWS` rows; texts stay
        in their dictionary, so that a small file cannot become a huge one.
Rule 3: a position is "row:column", a column's name, or a label of the index that pandas wrote, of which `MOST_LABELS`
        are looked through.
Rule 4: pyarrow is imported here, late; without it one line says so. A type that somebody registered with pyarrow runs
        code of theirs when it is read, so rows of a file with such a type are not.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.ports import TableRow
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.projection.tokens import count_tokens, largest
from ctxkernel.sources.base.amounts import FULL_ADVICE, Line, NamedLine, marked, more, more_lines
from ctxkernel.sources.base.column_lines import column_line
from ctxkernel.sources.base.file_reader import WHOLE_BYTES, Data, Gone, load_bytes, read_at, read_regular, reason_of
from ctxkernel.sources.base.fitting import NO_CAP, beginning, fit
from ctxkernel.sources.base.planner import MOST_NAMED
from ctxkernel.sources.base.positions import MOST_NAMES, find_name, find_pattern, no_place, pattern_of, unbracketed
from ctxkernel.sources.base.rendering import PAST_END, Draft, Names, Place, fit_lines
from ctxkernel.sources.files.formats import FormatSource
from ctxkernel.sources.outlines.json_outline import is_object
from ctxkernel.sources.tables.columns import imported

FOOTER_BYTES = 32 << 20
"""Largest footer that is read."""
DATA_BYTES = 64 << 20
"""Most bytes of a row group, decompressed, that rows are shown from."""
MOST_ROWS = 1_000
MOST_LABELS = 100_000
"""Rows whose labels are looked through for a position."""
MOST_CHUNKS = 20_000
"""Column chunks whose statistics are put together."""
_COLUMNS = 200
_ROW_COLUMNS = 50
_LEAST_BEGUN = 8
"""Characters of a row whose beginning is shown."""
_LAST_ROWS = 200  # that are looked at for the position "end"
_GROUPS = 8  # that one window of rows may come from
_BATCH = 256
_MAGIC = b"PAR1"
_DATE = re.compile(r"\d{4}-\d\d")


@dataclass(frozen=True, slots=True)
class ParquetColumn:
    """The facts of the footer about one column."""

    path: str
    dtype: str
    nulls: int | None
    span: str
    size: int
    """Bytes in the file."""
    plain: int
    """Bytes decompressed."""
    about: str = ""
    """`~` where not all row groups were looked at."""

    def line(self, *, last: bool = False, bullet: str = "", told: str = "") -> NamedLine:
        """Return name, type, nulls and range, then what is `told` of it."""
        nulls = f", {self.about}{plural(self.nulls, 'nulls')}" if self.nulls else ""
        text = f"{self.dtype}{nulls}{self.span}{told}"
        return column_line(one_line(self.path, 80), self.dtype, text, last=last, bullet=bullet)


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """The facts of the footer."""

    metadata: Any
    columns: list[ParquetColumn]
    about: str
    """Rows, columns, row groups."""
    more: str
    """The program that wrote it; then what was not read."""
    size: int
    fingerprint: str

    def column_lines(self) -> list[str]:
        """Return a line about the whole, and a line a column."""
        count, shown = self.metadata.num_columns, len(self.columns)
        listed = [*range(shown, min(count, MOST_NAMED) - 1), *range(max(shown, count - 1), count)]
        columns = [self.metadata.schema.column(at) for at in listed]
        named = [
            column_line(one_line(column.path, 80), _type(column), last=at == count - 1)
            for at, column in zip(listed, columns, strict=True)
        ]
        remark = Line(f"[the values of the first {plural(shown, 'columns')} only were looked at]")
        about = [Line(self.more)] if self.more else []
        lines = [column.line(last=at == count) for at, column in enumerate(self.columns, 1)]
        return [*about, *lines, *[remark] * bool(named), *named, *more_lines(count - shown - len(listed), "columns")]


class ParquetSource(FormatSource[ParquetFile]):
    """A Parquet file by its path. 0: rows; 1: schema, nulls and ranges; 2: sizes of the columns."""

    kind = "parquet"

    def read(self) -> ParquetFile | Gone | str:
        """Return what the footer says, Gone, or in a line why it cannot be read."""
        loaded = load_bytes(self.path, WHOLE_BYTES)
        if isinstance(loaded, Gone):
            return loaded

        def footer(descriptor: int, found: os.stat_result) -> ParquetFile | str:
            if fault := _fault_of(descriptor, found.st_size):
                return fault
            parquet = imported("pyarrow.parquet")
            if parquet is None:
                return (
                    "a Parquet file is read by pyarrow, which is not installed; %pip install pyarrow, and view it again"
                )
            try:
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return _facts_of(parquet.read_metadata(file), loaded)
            except OSError as fault:  # pyarrow's own faults are OSErrors too
                return f"a Parquet file that cannot be read ({one_line(str(fault), 120) or reason_of(fault)})"
            except Exception as fault:
                return f"a Parquet file that cannot be read ({type(fault).__name__}: {one_line(str(fault), 120)})"

        return read_regular(self.path, footer)

    def facts(self, found: ParquetFile) -> tuple[list[str], int, str]:
        """Return the lines of level 1."""
        return [found.about, *found.column_lines()], found.size, found.fingerprint

    def names_of(self, found: ParquetFile) -> Names:
        """Return the columns."""
        schema = found.metadata.schema
        places = [(schema.column(at).path, Place(0, at)) for at in range(min(found.metadata.num_columns, MOST_NAMES))]
        return Names("columns", places)

    def place_of(self, found: ParquetFile, pos: str) -> Place:
        """Return the row of a label of the index, or of a pattern in it; else a column. Raises BadPolicy."""
        names, pattern, labels = self.names_of(found), pattern_of(pos), self._labels(found)
        if pattern is not None:
            row = find_pattern(pattern, labels)
        else:
            plain = unbracketed(pos)
            dated = _DATE.match(plain) is not None  # of a date a beginning is enough
            fits = (at for at, label in enumerate(labels) if label == plain or (dated and label.startswith(plain)))
            row = next(fits, None)
            if row is None and (place := find_name(names.places, pos)) is not None:
                return place
        if row is None:
            what = "columns and first row labels" if labels else "columns"
            raise no_place(self.label, pos, [*(name for name, _ in names.places), *labels], what)
        return Place(row)

    def _labels(self, found: ParquetFile) -> list[str]:
        """Return the first labels of the index that pandas wrote; none where it wrote none, or not a single column."""
        metadata = found.metadata
        try:
            extra: dict[bytes, bytes] = metadata.metadata or {}
            (only,) = json.loads(extra[b"pandas"])["index_columns"]
            if is_object(only):
                rows: range = range(int(only["start"]), int(only["stop"]), int(only["step"]))
                return [str(row) for row in rows[:MOST_LABELS]]
            paths = [metadata.schema.column(at).path for at in range(min(metadata.num_columns, MOST_NAMES))]
            at = paths.index(only)
        except (KeyError, TypeError, ValueError):  # not pandas' file, or damaged: there are no labels
            return []
        if not metadata.num_row_groups or _has_own_types(metadata) or not _columns_from(metadata.row_group(0), at):
            return []
        try:
            _, *labels = self._values(metadata, 0, [at], 0, MOST_LABELS)
        except Exception:  # the data may be cut, encrypted, or of a codec that is missing; the columns are known
            return []
        return [label for (label,) in labels]

    def length_of(self, found: ParquetFile) -> int:
        """Return the number of rows."""
        return found.metadata.num_rows

    def last_parts(self, most: int) -> list[str]:
        """Return the text of the last rows; none where they cannot be read."""
        found, most = self._readable(), min(most, _LAST_ROWS)
        if found is None:
            return []
        try:
            rows = self._read_rows(found, max(0, found.metadata.num_rows - most), 0, most)[1]
        except Exception:  # the rendering says why
            return []
        return [" | ".join([str(found.metadata.num_rows), *row]) for row in rows]

    def show(self, found: ParquetFile, lod: int, place: Place, budget: int) -> Draft:
        """Render level 0, 1 or 2."""
        head = f"{self.label} · Parquet · {found.about} · {format_size(found.size)}"
        if lod == 0:
            return self._rows(found, head, place, budget)
        if lod == 1:
            return fit_lines([head], found.column_lines(), budget, "columns")
        whole = max(1, sum(column.size for column in found.columns))
        ranked = sorted(found.columns, key=lambda column: (-column.size, column.path))
        lines: list[str] = [
            column.line(
                bullet="- ",
                told=f"; {format_size(column.size)} ({100 * column.size / whole:.0f} %), "
                f"{format_size(column.plain)} decompressed",
            )
            for column in ranked
        ]
        lines += more_lines(found.metadata.num_columns - len(found.columns), "columns")
        return fit_lines([head, *([found.more] if found.more else [])], lines, budget, "columns")

    def _rows(self, found: ParquetFile, head: str, place: Place, budget: int) -> Draft:
        total = found.metadata.num_rows
        start = min(place.line, max(total - 1, 0))
        past = PAST_END if place.line >= total > 0 else ""
        try:
            names, rows, left_out = self._read_rows(found, start, place.col, min(MOST_ROWS, budget))
        except Exception as fault:  # the footer was read; the data may be cut, encrypted, or of a codec that is missing
            why = f"[rows cannot be read ({one_line(f'{type(fault).__name__}: {fault}', 160)}); the columns are:]"
            return fit_lines([head, why], found.column_lines(), budget, "columns")
        if left_out:
            head = f"{head} · {left_out}"
        if not rows:
            return fit_lines([f"{head}{past}"], found.column_lines(), budget, "columns")
        heads = [f"{head} · from row {start}{past}", " | ".join(["row", *names])]
        lines = [" | ".join([str(start + at), *row]) for at, row in enumerate(rows)]
        price = count_tokens("\n".join(lines)) // len(lines) + 1
        advice = FULL_ADVICE if budget < NO_CAP else ""

        def after(k: int) -> str | None:
            return str(Place(start + k, place.col)) if start + k < total else None

        def build(k: int, chars: int = 0) -> str:
            rest = total - start - k
            mark = marked(more(rest - bool(chars), "rows"), price * rest, after(k), advice=advice)
            part = [beginning(lines[k], chars)] if chars else []
            return "\n".join([*heads, *lines[:k], *part, *([mark] if rest else [])])

        k, text = fit(len(lines), build, budget, guess=budget // price + 1)
        if k < 1:  # a part of one row
            return fit_lines(heads, lines, budget, "rows", place=after)
        if k < len(lines) and budget < NO_CAP:
            chars = largest(len(lines[k]) - 1, lambda n: count_tokens(build(k, n)) <= budget, 16)
            text = build(k, chars) if chars > _LEAST_BEGUN else text
        table = {heads[1]: TableRow(("row", *names), is_head=True)}
        table |= {line: TableRow((str(start + at), *rows[at])) for at, line in enumerate(lines)}
        return Draft(text, cut_tokens=price * (total - start - k), next_pos=after(k), rows=table)

    def _read_rows(self, found: ParquetFile, start: int, col: int, most: int) -> tuple[list[str], list[list[str]], str]:
        """Return (columns, rows, what was left out) from row `start` on."""
        metadata = found.metadata
        if _has_own_types(metadata):
            return [], [], "rows not shown: a column has a type of its own, whose code would run"
        group, before = 0, 0
        while group < metadata.num_row_groups and before + metadata.row_group(group).num_rows <= start:
            before += metadata.row_group(group).num_rows
            group += 1
        if group == metadata.num_row_groups:
            return [], [], ""
        chosen = _columns_from(metadata.row_group(group), col)
        if not chosen:
            return [], [], f"rows not shown: column {col} of a row group has more than {format_size(DATA_BYTES)}"
        left_out = ""
        if col or len(chosen) < metadata.num_columns:
            left_out = f'columns {col}-{col + len(chosen) - 1} of {metadata.num_columns:,} (pos "row:column" moves)'
        # The first row has the names: a struct is one column of a batch, and several of the file.
        names, *rows = self._values(metadata, group, chosen, start - before, most)
        return names, rows, left_out

    def _values(self, metadata: Any, group: int, chosen: list[int], skip: int, most: int) -> Iterator[list[str]]:
        """Yield the names of the columns, then up to `most` rows, `skip` rows into a row group."""
        descriptor = read_regular(self.path, lambda opened, _: os.dup(opened))
        if isinstance(descriptor, Gone):
            raise FileNotFoundError(descriptor.reason)
        paths = [metadata.schema.column(at).path for at in chosen]
        texts = [path for at, path in zip(chosen, paths, strict=True) if _is_text(metadata.schema.column(at))]
        with os.fdopen(descriptor, "rb") as file:
            parquet = imported("pyarrow.parquet")
            reader = parquet.ParquetFile(file, metadata=metadata, read_dictionary=texts, pre_buffer=False)
            named = False
            for at in range(group, min(group + _GROUPS, metadata.num_row_groups)):
                if at > group and _columns_from(metadata.row_group(at), chosen[0])[: len(chosen)] != chosen:
                    return  # too large a group: the next position begins there, with fewer columns
                for batch in reader.iter_batches(_BATCH, row_groups=[at], columns=paths, use_threads=False):
                    if not named:
                        named = True
                        yield [one_line(name, 60) for name in batch.schema.names]
                    for row in range(skip, batch.num_rows):
                        if most <= 0:
                            return
                        most -= 1
                        yield [_value(column, row) for column in batch.columns]
                    skip = max(0, skip - batch.num_rows)


def _fault_of(descriptor: int, size: int) -> str:
    """Return in a line what the ends of a file have that no Parquet file has, or empty. Reads 12 bytes."""
    if size < 12 or read_at(descriptor, 0, 4) not in (_MAGIC, b"PARE"):
        return "no Parquet file: it does not begin as one; shown as it is"
    end = read_at(descriptor, size - 8, 8)
    if end[4:] == b"PARE":
        return "a Parquet file whose footer is encrypted"
    if end[4:] != _MAGIC:
        return "a Parquet file that is cut off: its end, where schema and statistics are, is missing"
    footer = int.from_bytes(end[:4], "little")
    if footer > min(size - 12, FOOTER_BYTES):
        return f"a Parquet file that cannot be read: its footer has {format_size(footer)}, the file {format_size(size)}"
    return ""


def _facts_of(metadata: Any, loaded: Data) -> ParquetFile:
    count, groups = metadata.num_columns, metadata.num_row_groups
    shown = min(count, _COLUMNS)
    looked_at = min(groups, max(1, MOST_CHUNKS // max(shown, 1)))
    chunks = [metadata.row_group(at) for at in range(looked_at)]
    about = "~" * (looked_at < groups)
    columns = [
        _column(metadata.schema.column(at), [group.column(at) for group in chunks], about) for at in range(shown)
    ]
    head = f"{metadata.num_rows:,} rows × {plural(count, 'columns')} · {plural(groups, 'row groups')}"
    codecs = sorted({chunk.compression.lower() for group in chunks[:1] for chunk in map(group.column, range(shown))})
    parts = [", ".join(codecs), one_line(str(metadata.created_by or ""), 60)]
    if looked_at < groups:
        parts.append(f"nulls, ranges and sizes of the first {looked_at:,} row groups")
    return ParquetFile(metadata, columns, head, ", ".join(filter(None, parts)), loaded.size, loaded.fingerprint)


def _column(column: Any, chunks: list[Any], about: str) -> ParquetColumn:
    nulls: int | None = 0
    low: Any = None
    high: Any = None
    ranged = True
    for chunk in chunks:
        found = chunk.statistics if chunk.is_stats_set else None
        nulls = nulls + found.null_count if nulls is not None and found is not None and found.has_null_count else None
        if found is None or not found.has_min_max:
            # A chunk of nulls alone has no range, and takes none away.
            ranged = ranged and found is not None and found.null_count == chunk.num_values
            continue
        try:
            least, most = found.min, found.max
            least = abs(least) if isinstance(least, float) and not least else least  # a footer has -0.0 for 0.0
            low = least if low is None or least < low else low
            high = most if high is None or most > high else high
        except Exception:  # a type that has no Python value, or whose values have no order
            ranged = False
    span = f", {about}{_short(low)} … {_short(high)}" if ranged and low is not None else ""
    sizes = sum(chunk.total_compressed_size for chunk in chunks), sum(chunk.total_uncompressed_size for chunk in chunks)
    return ParquetColumn(column.path, _type(column), nulls, span, *sizes, about)


def _type(column: Any) -> str:
    """Return the type as people call it: the logical one, else the physical."""
    try:
        logical: dict[str, Any] = json.loads(column.logical_type.to_json())
    except Exception:  # a type that this pyarrow does not know
        logical = {}
    name = str(logical.get("Type", "None")).lower()
    if name in ("none", "unknown", "undefined"):
        name = str(column.physical_type).lower()
    elif name == "int":
        name = f"{'' if logical.get('isSigned', True) else 'u'}int{logical.get('bitWidth', '')}"
    elif name == "decimal":
        name = f"decimal({logical.get('precision')}, {logical.get('scale')})"
    elif name in ("timestamp", "time"):
        zone = ", UTC" if logical.get("isAdjustedToUTC") else ""
        name = f"{name}[{logical.get('timeUnit', '')}{zone}]"
    elif name == "string":
        name = "text"
    return f"{name}, repeated" if column.max_repetition_level else name


def _is_text(column: Any) -> bool:
    return column.physical_type == "BYTE_ARRAY" and column.max_repetition_level == 0 and "." not in column.path


def _has_own_types(metadata: Any) -> bool:
    extra: dict[bytes, bytes] = metadata.metadata or {}
    try:
        return b"ARROW:extension:name" in base64.b64decode(extra.get(b"ARROW:schema", b""))
    except ValueError:
        return True


def _columns_from(group: Any, first: int) -> list[int]:
    """Return as many columns from `first` on as may be decoded at once."""
    chosen: list[int] = []
    size = 0
    for at in range(min(first, max(group.num_columns - 1, 0)), min(group.num_columns, first + _ROW_COLUMNS)):
        size += group.column(at).total_uncompressed_size
        if size > DATA_BYTES:
            break
        chosen.append(at)
    return chosen


def _value(column: Any, row: int) -> str:
    try:
        value = column[row].as_py()
    except Exception:  # a time that Python's cannot hold, a text that is no UTF-8
        return "?"
    return "null" if value is None else _short(value)


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return value[:16].hex() + ("…" if len(value) > 16 else "")
    return one_line(value if isinstance(value, str) else str(value), 60)
