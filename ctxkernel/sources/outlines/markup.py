"""The structure of HTML and XML: headings, tables and links; paths of elements with counts, attributes and texts.

Rule 1: at most `_MOST_CHARS` are read. No entity of a document is expanded, and nothing is loaded.
Rule 2: XML is read by expat. The tags of HTML are found here, in one pass: Python's `HTMLParser` takes minutes for
        some damaged pages.
Rule 3: what is not well formed has the structure of what is before that.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.amounts import Line, NamedLine, more_lines
from ctxkernel.sources.base.file_reader import Text
from ctxkernel.sources.base.positions import Outline, OutlineEntry
from ctxkernel.sources.outlines.sentences import first_sentence

_MOST_CHARS = 512 << 10
_HEADING_CHARS, _TEXT_CHARS = 160, 60
_SENTENCE_CHARS = 400
_TABLES = 5
_PATHS = 1_000
_DEPTH = 40
_ATTRIBUTES = 8
_HEADINGS = {f"h{at}": at for at in range(1, 7)}
_SILENT = ("script", "style", "template", "noscript")
_COUNTED = (("a", "links"), ("img", "images"), ("form", "forms"), ("script", "scripts"), ("pre", "blocks of code"))
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]{0,40})([^<>]*)>")
_HREF = re.compile(r"\shref\s*=", re.IGNORECASE)
_RAW = ("script", "style", "textarea", "title")
"""Elements in which a `<` begins no other element."""


@dataclass(slots=True)
class _Table:
    line: int
    rows: int = 0
    columns: int = 0
    cells: int = 0
    heads: list[str] = field(default_factory=list[str])


class _Page:
    """The headings, tables and links of a page."""

    def __init__(self) -> None:
        self.title = ""
        self.counts: dict[str, int] = {}
        self.entries: list[tuple[int, int, str]] = []
        """(line, level, text) of each heading."""
        self.below: list[str] = []
        """The text that follows each heading."""
        self.tables: list[_Table] = []
        self._open: list[_Table] = []
        self._text: list[str] | None = None
        self._silent = 0

    def read(self, source: str) -> None:
        """Read the text of a page, in one pass."""
        lower, at, line, counted = source.lower(), 0, 0, 0
        ends: dict[str, int] = {}

        def end_of(mark: str, start: int) -> int:
            """Return where a mark is from `start` on; a mark that is not there is looked for once."""
            if ends.get(mark, 0) >= 0 and ends.get(mark, 0) < start:
                ends[mark] = lower.find(mark, start)
            return ends.get(mark, -1)

        while (begin := source.find("<", at)) >= 0:
            self._data(source[at:begin])
            line, counted = line + source.count("\n", counted, begin), begin
            if source.startswith("<!--", begin):
                found = end_of("-->", begin + 4)
                at = found + 3 if found >= 0 else begin + 4
                continue
            tag = _TAG.match(source, begin)
            if tag is None:
                at = begin + 1
                continue
            closes, name, rest = tag[1], tag[2].lower(), tag[3]
            at = tag.end()
            if closes:
                self._end(name)
                continue
            self._start(name, line, has_href=bool(_HREF.search(rest)))
            if name in _RAW and not rest.endswith("/"):
                found = end_of(f"</{name}", at)
                self._data(source[at : found if found >= 0 else len(source)])
                at = found if found >= 0 else len(source)
        self._data(source[at:])

    def _start(self, tag: str, line: int, *, has_href: bool) -> None:
        """Take the beginning of an element."""
        if tag != "a" or has_href:
            self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag in _SILENT:
            self._silent += 1
        elif tag in _HEADINGS:
            self.entries.append((line, _HEADINGS[tag], ""))
            self.below.append("")
            self._text = []
        elif tag in ("title", "th"):
            self._text = []
        elif tag == "table":
            self._open.append(_Table(line))
            self.tables.append(self._open[-1])
        if self._open and tag == "tr":
            self._open[-1].rows += 1
            self._open[-1].cells = 0
        elif self._open and tag in ("td", "th"):
            self._open[-1].cells += 1
            self._open[-1].columns = max(self._open[-1].columns, self._open[-1].cells)
        if tag in ("p", "br", "li", "td", "div"):
            self._data(" ")

    def _end(self, tag: str) -> None:
        """Take the end of an element."""
        if tag in _SILENT:
            self._silent = max(self._silent - 1, 0)
        elif tag == "table" and self._open:
            self._open.pop()
        elif self._text is not None and (tag in _HEADINGS or tag in ("title", "th")):
            text = one_line("".join(self._text), _HEADING_CHARS)
            if tag == "title":
                self.title = self.title or text
            elif tag == "th" and self._open and self._open[-1].rows <= 1:
                self._open[-1].heads.append(text)
            elif tag in _HEADINGS and self.entries:
                self.entries[-1] = (*self.entries[-1][:2], text)
            self._text = None

    def _data(self, data: str) -> None:
        """Take text."""
        if self._silent or not data:
            return
        if self._text is not None:
            self._text.append(html.unescape(data[:_HEADING_CHARS]))
        elif self.below and not self._open and len(self.below[-1]) < _SENTENCE_CHARS:
            self.below[-1] += html.unescape(data[:_SENTENCE_CHARS])


def html_outline(text: Text) -> Outline:
    """Return title, counts and tables of a page, and its headings with their first sentences."""
    page, source = _Page(), text.text[:_MOST_CHARS]
    page.read(source)
    about = "" if len(source) == len(text.text) and text.whole else "+"
    counts = [plural(page.counts[tag], noun).replace(" ", f"{about} ", 1)
              for tag, noun in (("table", "tables"), *_COUNTED) if page.counts.get(tag)]  # fmt: skip
    head = [f"title: {page.title}"] if page.title else []
    head += [", ".join(counts)] if counts else []
    for at, table in enumerate(page.tables[:_TABLES], 1):
        size = f"{plural(table.rows, 'rows')} × {plural(table.columns, 'columns')}"
        heads = f": {one_line(', '.join(table.heads), 120)}" if table.heads else ""
        head.append(f"table {at}, line {table.line}, {size}{heads}")
    top = min((level for _, level, _ in page.entries), default=1)
    entries = [
        OutlineEntry(line, level - top, heading or "(no text)", first_sentence([" ".join(below.split())]))
        for (line, level, heading), below in zip(page.entries, page.below, strict=True)
    ]
    whole = len(source) == len(text.text)
    if entries:
        return Outline(head, entries, "headings", whole=whole)
    rest = more_lines(len(page.tables) - _TABLES, "tables")
    return Outline([], [], "lines", [*(head or ["no headings, tables or links"]), *rest], whole=whole)


@dataclass(slots=True)
class _Element:
    """The elements at one path."""

    name: str
    depth: int
    count: int = 0
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    """An example of each."""
    more_attributes: bool = False
    texts: list[str] = field(default_factory=list[str])
    with_text: int = 0
    children: dict[str, _Element] = field(default_factory=dict[str, "_Element"])


class _Stopped(Exception):
    """Why no more is read."""


class _Elements:
    """Takes the elements of a document."""

    def __init__(self) -> None:
        self.top = _Element("", -1)
        self.paths = self.left_out = 0
        self._within: list[_Element | None] = [self.top]
        self._text: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Take the beginning of an element."""
        self._text.clear()
        outer = self._within[-1]
        found = None
        if outer is not None and len(self._within) <= _DEPTH:
            found = outer.children.get(name)
            if found is None and self.paths < _PATHS:
                found = outer.children[name] = _Element(name, outer.depth + 1)
                self.paths += 1
        self._within.append(found)
        if found is None:
            self.left_out += 1
            return
        found.count += 1
        for key, value in attributes.items():
            if key not in found.attributes and len(found.attributes) >= _ATTRIBUTES:
                found.more_attributes = True
            else:
                found.attributes.setdefault(key, one_line(value, _TEXT_CHARS))

    def end(self, name: str) -> None:
        """Take the end of an element."""
        found, text = self._within.pop(), "".join(self._text).strip()
        self._text.clear()
        if found is not None and text:
            found.with_text += 1
            shown = one_line(text, _TEXT_CHARS)
            if len(found.texts) < 2 and shown not in found.texts:
                found.texts.append(shown)

    def data(self, text: str) -> None:
        """Take text."""
        if len(self._text) < 20:
            self._text.append(text[:200])


def _refuse(*_: Any) -> None:
    raise _Stopped("it declares entities, which are not expanded")


def xml_outline(text: Text) -> Outline:
    """Return the paths of the elements, each with its number, attributes and examples of texts."""
    found, parser = _Elements(), expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = found.start, found.end
    parser.CharacterDataHandler, parser.EntityDeclHandler = found.data, _refuse
    parser.buffer_text = True
    source, why = text.text[:_MOST_CHARS], ""
    is_all = len(source) == len(text.text) and text.whole
    try:
        # The text is decoded already: what its declaration says of an encoding does not count.
        parser.Parse(re.sub(r"^\s*<\?xml[^>]*\?>", "", source, count=1).encode("utf-8", "replace"), is_all)
    except _Stopped as reason:
        why = f"{reason}: what is before that is shown"
    except expat.ExpatError as fault:
        why = f"not well formed ({one_line(expat.ErrorString(fault.code) or '', 60)}, line {fault.lineno - 1})"
    about = "" if is_all and not why else "+"
    lines = [line for top in found.top.children.values() for line in _lines(top, "", about)]
    rest = [Line(f"[… {found.left_out:,}{about} elements at other paths]", rank=9)] if found.left_out else []
    return Outline([why] if why else [], [], "elements", [*lines, *rest], unit="paths", whole=is_all)


def _lines(element: _Element, path: str, about: str) -> Iterator[Line]:
    path = f"{path}/{element.name}" if path else element.name
    shown, indent = one_line(path, 200), "  " * element.depth
    said = [f"{element.count:,}{about}"]
    said += [f"@{one_line(name, 40)} '{value}'" for name, value in element.attributes.items()]
    said += ["more attributes"] if element.more_attributes else []
    if element.texts:
        said.append(f"text {', '.join(map(repr, element.texts))}")
    short = f"{indent}{one_line(element.name, 80)}: {said[0]}"
    kind = f"in {shown.rpartition('/')[0]}" if "/" in shown else "paths"
    name = one_line(element.name, 80)
    line = f"{indent}{name}: {', '.join(said)}"
    yield NamedLine(line, shown, kind, what="paths", short=short, depth=element.depth, rank=2 * element.depth)
    for inner in element.children.values():
        yield from _lines(inner, path, about)
