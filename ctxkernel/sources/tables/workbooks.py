"""Spreadsheets of Excel (`.xlsx`, `.xlsm`): sheets with their columns and first rows.

Rule 1: the parts of the file are read by Python's own ZIP and XML parsers, so no package is needed; of each at most
        `_PART_BYTES` are unpacked, of all sheets together `_ALL_BYTES`. A document type, with its entities, is refused.
Rule 2: a formula is shown as it is stored, after the value that was stored with it; nothing is computed.
Rule 3: what is said of a column is of the rows that were read, with `~` where these are not all.
"""

from __future__ import annotations

import datetime as dt
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import BinaryIO
from xml.parsers import expat

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.amounts import Line, NamedLine
from ctxkernel.sources.base.file_reader import Data, Gone, read_opened
from ctxkernel.sources.files.archives import zip_members
from ctxkernel.sources.files.formats import NAME_CHARS, Listing, ListingSource, NotListed

_PART_BYTES = 512 << 10
_ALL_BYTES = 2 << 20
_STRINGS_BYTES = 1 << 20
_SHEETS = 100
_ROWS = 200
"""Rows of a sheet that are looked at."""
_COLUMNS = 100
_SHOWN_ROWS = 20
_CELL_CHARS = 80
_DATES = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}
"""Built-in formats of dates and times."""
_DATE_SIGNS = re.compile(r"[ymdhs]", re.IGNORECASE)
_NOT_SIGNS = re.compile(r"\"[^\"]*\"|\\.|\[[^\]]*\]|General", re.IGNORECASE)
_REFERENCE = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_EPOCH, _EPOCH_1904 = dt.datetime(1899, 12, 30), dt.datetime(1904, 1, 1)  # noqa: DTZ001 - a sheet has no time zone
_FORMULA = re.compile(r" ?\((=.*)\)$")
_ENOUGH = "enough"


class _Stop(Exception):
    """Enough was read."""


Attributes = dict[str, str]


def parse_part(
    archive: zipfile.ZipFile,
    name: str,
    start: Callable[[str, Attributes], None],
    end: Callable[[str, str], None],
    most: int = _PART_BYTES,
) -> tuple[bool, int]:
    """Parse a part of an archive as XML; return whether all of it was read, and how many bytes were.

    `start` gets the name of an element without its namespace, and its attributes; `end` its name and text. Either may
    raise _Stop. Raises NotListed for a document type, KeyError where there is no such part.
    """
    parser, text = expat.ParserCreate(namespace_separator=" "), list[str]()
    parser.buffer_text = True

    def begin(tag: str, attributes: Attributes) -> None:
        text.clear()
        start(tag.rpartition(" ")[2], {key.rpartition(" ")[2]: value for key, value in attributes.items()})

    def finish(tag: str) -> None:
        end(tag.rpartition(" ")[2], "".join(text))
        text.clear()

    def refuse(*_: object) -> None:
        raise NotListed("a document type of its own, which is not read")

    parser.StartElementHandler, parser.EndElementHandler = begin, finish
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text.append, refuse
    read = 0
    with archive.open(name) as file:
        while data := file.read(min(1 << 16, most - read)):
            read += len(data)
            try:
                parser.Parse(data, False)
            except _Stop:
                return False, read
        return not file.read(1), read


@dataclass(slots=True)
class Sheet:
    """A sheet, as far as it was read."""

    name: str
    part: str = ""
    state: str = ""
    dimension: str = ""
    rows: list[tuple[int, dict[int, str]]] = field(default_factory=list[tuple[int, dict[int, str]]])
    """(number, texts by column) of the first rows that are not empty."""
    kinds: list[dict[int, str]] = field(default_factory=list[dict[int, str]])
    """The kinds of the cells of each row."""
    whole: bool = False
    fault: str = ""


class WorkbookSource(ListingSource):
    """A workbook: its sheets, their columns, and rows."""

    kind = "workbook"

    def listed(self, loaded: Data) -> Listing | Gone | str:
        """Return the sheets."""
        if not loaded.data.startswith(b"PK"):
            older = loaded.data.startswith(b"\xd0\xcf\x11\xe0")
            return f"no workbook of this format{': an older or an encrypted one' if older else ''}; shown as it is"

        def read(file: BinaryIO, _: int) -> Listing:
            zip_members(file)  # refuses a directory that is too long
            with zipfile.ZipFile(file) as archive:
                return _listing(_Workbook(archive), loaded)

        return read_opened(self.path, read)


class _Workbook:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._room = archive, _ALL_BYTES
        self.sheets: list[Sheet] = []
        self.names = 0
        """The number of names that are defined."""
        self.epoch = _EPOCH
        links = self._links()
        self._sheets(links)
        self._strings, self._all_strings = self._shared()
        self._dates = self._formats()
        for sheet in self.sheets[:_SHEETS]:
            try:
                self._read(sheet)
            except NotListed as reason:
                sheet.fault = str(reason)
            except (KeyError, ValueError, expat.ExpatError, zipfile.BadZipFile, OSError, EOFError) as fault:
                sheet.fault = f"cannot be read: {one_line(str(fault), 80)}"
            except Exception as fault:  # a damaged stream, a method of compression that is missing
                sheet.fault = f"cannot be read: {type(fault).__name__}"

    def _links(self) -> dict[str, str]:
        found: dict[str, str] = {}

        def start(tag: str, attributes: Attributes) -> None:
            if tag == "Relationship":
                target = attributes.get("Target", "")
                found[attributes.get("Id", "")] = target.lstrip("/") if target[:1] == "/" else f"xl/{target}"

        try:
            parse_part(self._archive, "xl/_rels/workbook.xml.rels", start, lambda tag, text: None)
        except KeyError:
            raise NotListed("no workbook: it has no list of sheets; shown as it is") from None
        return found

    def _sheets(self, links: dict[str, str]) -> None:
        def start(tag: str, attributes: Attributes) -> None:
            if tag == "sheet":
                state = attributes.get("state", "")
                part = links.get(attributes.get("id", ""), "")
                name = one_line(attributes.get("name", ""), NAME_CHARS)
                self.sheets.append(Sheet(name, part, "hidden" if "idden" in state else ""))
            elif tag == "workbookPr" and attributes.get("date1904") in ("1", "true"):
                self.epoch = _EPOCH_1904
            self.names += tag == "definedName"

        parse_part(self._archive, "xl/workbook.xml", start, lambda tag, text: None)

    def _shared(self) -> tuple[list[str], bool]:
        """Return the texts that cells refer to by number, and whether these are all."""
        found: list[str] = []
        parts: list[str] = []

        def end(tag: str, text: str) -> None:
            if tag == "t":
                parts.append(text)
            elif tag == "si":
                found.append(one_line("".join(parts), _CELL_CHARS))
                parts.clear()

        try:
            return found, parse_part(self._archive, "xl/sharedStrings.xml", lambda tag, _: None, end, _STRINGS_BYTES)[0]
        except KeyError:
            return found, True
        except expat.ExpatError:
            return found, False

    def _formats(self) -> list[bool]:
        """Return for each style of cells whether it is one of dates."""
        own: dict[str, bool] = {}
        found: list[bool] = []
        within: list[str] = []

        def start(tag: str, attributes: Attributes) -> None:
            within.append(tag)
            if tag == "numFmt":
                signs = _NOT_SIGNS.sub("", attributes.get("formatCode", ""))
                own[attributes.get("numFmtId", "")] = bool(_DATE_SIGNS.search(signs))
            elif tag == "xf" and "cellXfs" in within:
                number = attributes.get("numFmtId", "0")
                found.append(own.get(number, number.isdecimal() and int(number) in _DATES))

        def end(tag: str, text: str) -> None:
            within.pop()

        try:
            parse_part(self._archive, "xl/styles.xml", start, end)
        except (KeyError, expat.ExpatError):
            return found
        return found

    def _read(self, sheet: Sheet) -> None:
        """Read the first rows of a sheet. May raise anything."""
        reader = _RowReader(self, sheet)
        most = min(_PART_BYTES, self._room)
        if not sheet.part or most <= 0:
            sheet.fault = "not looked at"
            return
        whole, read = parse_part(self._archive, sheet.part, reader.start, reader.end, most)
        self._room -= read
        sheet.whole = whole

    def value(self, kind: str, style: str, text: str) -> tuple[str, str]:
        """Return (text, kind) of a cell's value."""
        if kind == "s":
            at = int(text) if text.isdecimal() else -1
            if 0 <= at < len(self._strings):
                return self._strings[at], "text"
            return ("(text that was not read)" if not self._all_strings else "?"), "text"
        if kind in ("str", "inlineStr"):
            return one_line(text, _CELL_CHARS), "text"
        if kind == "b":
            return ("True" if text == "1" else "False"), "bool"
        if kind == "e":
            return one_line(text, 20), "error"
        if kind == "d":
            return one_line(text.replace("T", " "), 40), "date"
        if style.isdecimal() and int(style) < len(self._dates) and self._dates[int(style)]:
            return self._date(text)
        return one_line(text, 40), "number"

    def _date(self, text: str) -> tuple[str, str]:
        try:
            number = float(text)
            if 0 <= number < 1:
                return str(dt.timedelta(seconds=round(number * 86_400))), "time"
            found = self.epoch + dt.timedelta(seconds=round(number * 86_400))
        except (ValueError, OverflowError):
            return one_line(text, 40), "number"
        return str(found).removesuffix(" 00:00:00"), "date"


class _RowReader:
    """Takes the elements of a sheet."""

    def __init__(self, book: _Workbook, sheet: Sheet) -> None:
        self._book, self._sheet = book, sheet
        self._row, self._column = 0, -1
        self._cells: dict[int, str] = {}
        self._kinds: dict[int, str] = {}
        self._type = self._style = self._value = self._formula = ""

    def start(self, tag: str, attributes: Attributes) -> None:
        """Take the beginning of an element."""
        if tag == "c":
            self._type, self._style = attributes.get("t", ""), attributes.get("s", "")
            self._value = self._formula = ""
            place = _REFERENCE.fullmatch(attributes.get("r", ""))
            self._column = column_number(place[1]) if place else self._column + 1
        elif tag == "row":
            number = attributes.get("r", "")
            self._row = int(number) if number.isdecimal() and len(number) < 9 else self._row + 1
            self._column = -1
        elif tag == "dimension":
            self._sheet.dimension = one_line(attributes.get("ref", ""), 40)

    def end(self, tag: str, text: str) -> None:
        """Take the end of an element."""
        if tag == "v":
            self._value = text
        elif tag == "t":
            self._value += text
        elif tag == "f":
            self._formula = text
        elif tag == "c":
            self._cell()
        elif tag == "row" and self._cells:
            self._sheet.rows.append((self._row, self._cells))
            self._sheet.kinds.append(self._kinds)
            self._cells, self._kinds = {}, {}
            if len(self._sheet.rows) > _ROWS:
                del self._sheet.rows[_ROWS:], self._sheet.kinds[_ROWS:]
                raise _Stop(_ENOUGH)

    def _cell(self) -> None:
        if self._value or self._formula:
            text, kind = self._book.value(self._type, self._style, self._value) if self._value else ("", "formula")
            if self._formula:
                text = f"{text} (={one_line(self._formula, 60)})".strip()
            self._cells[self._column], self._kinds[self._column] = text, kind


def column_number(letters: str) -> int:
    """Return the number of a column from 0: `A` is 0, `AA` is 26."""
    found = 0
    for letter in letters:
        found = 26 * found + ord(letter) - 64
    return found - 1


def column_letters(number: int) -> str:
    """Return the letters of a column: those of 26 are `AA`."""
    found, number = "", number + 1
    while number:
        number, rest = divmod(number - 1, 26)
        found = chr(65 + rest) + found
    return found


def _listing(book: _Workbook, loaded: Data) -> Listing:
    lines: list[Line] = []
    names: list[str] = []
    values: list[Line] = []
    value_names: list[str] = []
    brief: list[Line] = []
    for sheet in book.sheets:
        told = _about(sheet)
        short = f"{sheet.name}: {told}"
        heads = list(_columns(sheet))
        listed = one_line(", ".join(name for name, _ in heads), 300)
        first = NamedLine(short, sheet.name, "sheets", what="sheets", short=short, worth=1)
        lines += [first, *(line for _, line in heads)]
        names += [sheet.name, *(f"{sheet.name}/{name}" for name, _ in heads)]
        rows = [Line(f"  {row}", 1, "rows", rank=1) for row in _shown_rows(sheet)]
        more = max(len(sheet.rows) - len(rows), 0)
        if more or not sheet.whole:
            plus = "" if sheet.whole else "+"
            count = f"{more:,}{plus} more rows" if more else "more rows"
            rows.append(Line(f"  [… {count} of {sheet.name}]", more, "rows", exact=sheet.whole, rank=2))
        values += [first, *rows]
        value_names += [sheet.name, *[""] * len(rows)]
        said = f"- {short}{f': {listed}' if listed else ''}"
        brief.append(NamedLine(said, sheet.name, "sheets", what="sheets", short=f"- {short}"))
    names_told = f", {plural(book.names, 'defined names')}" if book.names else ""
    head = f"Excel workbook · {plural(len(book.sheets), 'sheets')}{names_told}"
    return Listing(
        head,
        lines,
        names,
        "sheets",
        True,
        loaded.size,
        loaded.fingerprint,
        values=values,
        value_names=value_names,
        brief=brief,
    )


def _about(sheet: Sheet) -> str:
    """Return the size of a sheet, as far as it is known."""
    hidden = f", {sheet.state}" if sheet.state else ""
    if sheet.fault:
        return f"[{sheet.fault}]{hidden}"
    if sheet.whole and not sheet.rows:
        return f"empty{hidden}"
    if sheet.whole:
        width = max(max(cells) for _, cells in sheet.rows) + 1
        return f"{plural(len(sheet.rows), 'rows')} × {plural(width, 'columns')}{hidden}"
    claimed = f", {sheet.dimension} as the file says" if sheet.dimension else ""
    return f"{len(sheet.rows):,}+ rows, of which the first {len(sheet.rows):,} were read{claimed}{hidden}"


def _header(sheet: Sheet) -> bool:
    """Return whether the first row names the columns: texts alone, and each another one."""
    if len(sheet.rows) < 2 or not sheet.kinds:
        return False
    first = list(sheet.rows[0][1].values())
    texts = all(kind == "text" for kind in sheet.kinds[0].values())
    return texts and len(set(first)) == len(first) and len(first) >= len(sheet.rows[1][1]) / 2


def _columns(sheet: Sheet) -> Iterator[tuple[str, Line]]:
    """Yield (name, line) of each column: kinds of its values, empty ones, range or examples."""
    if not sheet.rows:
        return
    has_head = _header(sheet)
    body = list(zip(sheet.rows, sheet.kinds, strict=True))[has_head:]
    known = sorted({at for _, cells in sheet.rows for at in cells})
    about = "" if sheet.whole else "~"
    for at in known[:_COLUMNS]:
        head = sheet.rows[0][1].get(at, "") if has_head else ""
        name = f"{column_letters(at)} {head}".strip()
        cells = [(cells[at], kinds[at]) for (_, cells), kinds in body if at in cells]
        told = _described(cells, len(body), about)
        kind = told.split(",")[0]
        line = NamedLine(f"  {name}: {told}", name, f"columns of {sheet.name}", what="columns", depth=1, rank=2)
        yield (head or name), line.with_text(str(line), f"  {name}: {kind}")
    if len(known) > _COLUMNS:
        more = len(known) - _COLUMNS
        yield "", Line(f"  [… {more:,} more columns of {sheet.name}]", more, "columns", rank=4)


def _described(cells: list[tuple[str, str]], rows: int, about: str) -> str:
    kinds = sorted({kind for _, kind in cells})
    said = [" or ".join(kinds) or "empty"]
    if len(cells) < rows and cells:
        empty = rows - len(cells)
        said.append(f"{about}{100 * empty / rows:.1f} % empty" if about else f"{empty:,} empty")
    formulas = [found[1] for text, _ in cells if (found := _FORMULA.search(text))]
    if formulas:
        count = "some formulas" if about else plural(len(formulas), "formulas")
        said.append(f"{count} ({one_line(formulas[0], 60)}{', …' * (len(formulas) > 1)})")
    plain = [_FORMULA.sub("", text) for text, _ in cells]
    if kinds == ["number"]:
        numbers = [(float(text), text) for text in plain if _is_number(text)]
        if numbers:
            said.append(f"{about}{min(numbers)[1]} … {max(numbers)[1]}")
    elif kinds == ["date"]:
        said.append(f"{about}{min(plain)} … {max(plain)}")
    elif kinds and kinds != ["formula"]:
        distinct = list(dict.fromkeys(plain))
        shown = ", ".join(repr(one_line(text, 30)) for text in distinct[:3])
        said.append(f"{about}{len(distinct):,} distinct ({shown}{', …' * (len(distinct) > 3)})")
    return ", ".join(said)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shown_rows(sheet: Sheet) -> Iterator[str]:
    """Yield the first rows, each after its number."""
    for number, cells in sheet.rows[:_SHOWN_ROWS]:
        width = min(max(cells) + 1, _COLUMNS)
        yield f"{number}: {' | '.join(cells.get(at, '') for at in range(width))}"
