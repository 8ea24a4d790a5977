"""A Jupyter notebook as a source: its cells with what they printed, by `json` alone.

Rule 1: a position names a cell: "3" is cell 3, "3:5" its line 5, both from 0; line 0 is the cell's own headline. Its
        names are headings, what the code defines, ids of cells, "cell 3", and "In [3]" as it is shown.
Rule 2: at most `NOTEBOOK_BYTES` are read. Of a longer notebook, and of one whose JSON is broken, every cell that can
        be read is shown, and a line says that there are others.
Rule 3: formats 3 and 4 are read alike, and no field is relied on: what is missing is left out.
Rule 4: a picture is one line with its type and size; it is never decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.text import format_size, one_line, plural, strip_ansi
from ctxkernel.sources.base.amounts import Line, NamedLine
from ctxkernel.sources.base.file_reader import Data, Gone, cut_at_line, decode, load_bytes, make_text, sniff
from ctxkernel.sources.base.positions import MOST_NAMES, find_pattern, no_place, pattern_of, symbols_of
from ctxkernel.sources.base.rendering import PAST_END, Draft, Names, Place, fit_lines
from ctxkernel.sources.files.formats import FormatSource
from ctxkernel.sources.outlines.json_outline import is_list, is_object
from ctxkernel.sources.outlines.outline import markdown_outline
from ctxkernel.sources.outlines.python_outline import python_outline

NOTEBOOK_BYTES = 16 << 20
"""Most that is read of a notebook; the rest of a larger one is left out, and said to be."""
_HEADINGS = 12  # shown of one Markdown cell
_OUTLINED = 2_000  # cells, and lines, of an outline; more where the budget has room for more
_RETRIES = 100  # places after a fault at which reading goes on
_CELLS = re.compile(r'(?<!\\)"cells"\s*:\s*\[')
_CELL = re.compile(r'\{\s*"(?:cell_type|attachments)"\s*:')
_CELL_NAME = re.compile(r"(?:cell\s*)?\[?(\d{1,9})\]?", re.IGNORECASE)
_PROMPT = re.compile(r"In\s*\[(\d{1,9})\]:?", re.IGNORECASE)
_GAP = re.compile(r"[\s,]*")
_TEXTS = ("text/plain", "text/markdown", "text/latex")
# What format 3 calls the types of an output.
_OLD_TYPES = {
    "text": "text/plain",
    "html": "text/html",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "svg": "image/svg+xml",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
    "pdf": "application/pdf",
}
_NOT_DATA = frozenset({"output_type", "metadata", "prompt_number", "execution_count", "stream", "name"})


@dataclass(frozen=True, slots=True)
class RenderedCell:
    """One cell: its lines at level 0, and what the other levels are made from."""

    kind: str
    headline: str
    source: list[str]
    python: bool = False
    shown: list[str] = field(default_factory=list[str])
    """Attachments and outputs, as level 0 has them."""
    brief: list[str] = field(default_factory=list[str])
    """Each output in a few words."""
    errors: list[str] = field(default_factory=list[str])
    id: str = ""
    """As the file has it, from format 4.5 on."""

    def lines(self) -> list[str]:
        """Return the cell as level 0 shows it."""
        return [self.headline, *self.source, *self.shown]

    def outline(self) -> list[str]:
        """Return headings, or the first line of code; then each output in a few words."""
        if self.kind in ("markdown", "heading"):
            first, *more = _headings(self.source)
            begin = [f"{self.kind}: {first}", *more[: _HEADINGS - 1]]
        elif not self.kind:
            begin = [self.headline]
        else:
            line = next((line for line in self.source if line.strip()), "(empty)")
            size = f" ({plural(len(self.source), 'lines')})" if len(self.source) > 1 else ""
            begin = [f"{self.headline}: {one_line(line, 100)}{size}"]
        return begin + [f"→ {word}" for word in self.brief]

    def points(self) -> list[str]:
        """Return what a summary keeps: headings, definitions, errors."""
        if self.kind in ("markdown", "heading"):
            return [line for line in _headings(self.source) if line.startswith("#")][:_HEADINGS] + self.errors
        return (_definitions(self.source) if self.python else []) + self.errors


@dataclass(frozen=True, slots=True)
class Notebook:
    """The content that could be read of a notebook."""

    cells: list[RenderedCell]
    about: str
    remarks: tuple[str, ...]
    size: int
    fingerprint: str


class NotebookSource(FormatSource[Notebook]):
    """A notebook by its path. 0: cells and their outputs; 1: headings, first lines, outputs; 2: the main points."""

    kind = "notebook"

    def read(self) -> Notebook | Gone | str:
        """Return the cells that can be read, Gone, or in a line why there are none."""
        loaded = load_bytes(self.path, NOTEBOOK_BYTES)
        return loaded if isinstance(loaded, Gone) else parse_notebook(loaded)

    def worded(self) -> bool:
        """Return whether it could be read."""
        return isinstance(self.found, Notebook)

    def facts(self, found: Notebook) -> tuple[list[str], int, str]:
        """Return every line of every cell: a picture counts by its size, a change of keys not at all."""
        return [line for cell in found.cells for line in cell.lines()], found.size, found.fingerprint

    def names_of(self, found: Notebook) -> Names:
        """Return headings and what the code defines, then the ids of the cells."""
        places = list(islice(_named(found.cells), MOST_NAMES))
        places += [(cell.id, Place(at)) for at, cell in enumerate(found.cells[:MOST_NAMES]) if cell.id]
        return Names("headings, symbols and cell ids", places)

    def place_of(self, found: Notebook, pos: str) -> Place:
        """Return the place of a heading, a symbol, a cell or "/pattern/". Raises BadPolicy."""
        pattern = pattern_of(pos)
        if pattern is not None:
            places = [Place(at, line) for at, cell in enumerate(found.cells) for line in range(len(cell.lines()))]
            at = find_pattern(pattern, (line for cell in found.cells for line in cell.lines()))
            if at is None:
                raise no_place(self.label, pos)
            return places[at]
        names, cells = self.names_of(found), found.cells
        if all(name != pos for name, _ in names.places):  # a heading may read "Cell 3"
            if number := _CELL_NAME.fullmatch(pos):
                if int(number[1]) >= len(cells):
                    raise BadPolicy(f"{self.label} has no {pos}: its {plural(len(cells), 'cells')} are numbered from 0")
                return Place(int(number[1]))
            if prompt := _PROMPT.fullmatch(pos):
                shown = f"In [{prompt[1]}]"
                if (at := next((at for at, cell in enumerate(cells) if cell.headline.endswith(shown)), -1)) >= 0:
                    return Place(at)
        return names.find(self.label, pos)

    def parts_of(self, found: Notebook) -> list[str]:
        """Return the cells."""
        return ["\n".join(cell.lines()) for cell in found.cells]

    def show(self, found: Notebook, lod: int, place: Place, budget: int) -> Draft:
        """Render level 0, 1 or 2 from the cell that the position names."""
        cells = found.cells
        head = " · ".join([f"{self.label}", "notebook", found.about, format_size(found.size), *found.remarks])
        if not cells:
            return Draft(f"{head} · no cells", notes=found.remarks)
        past = place.line >= len(cells)
        first = len(cells) - 1 if past else place.line
        lines, places = _numbered(cells, first, lod, budget)
        if lod == 2 and not lines:  # nothing stands out
            lines, places = _numbered(cells, first, 1, budget)
        skipped = min(place.col, len(cells[first].lines()) - 1) if lod == 0 and not past else 0
        heads = [f"{head}{f' · from cell {first}' if first or skipped else ''}{PAST_END if past else ''}"]
        what = ("lines", "lines of the outline", "points")[lod]
        lines, places = lines[skipped:], places[skipped:]

        def after(k: int) -> str | None:
            if lod == 0 or int(places[k]) > first:
                return places[k]
            return str(first + 1) if first + 1 < len(cells) else None  # a part of an outline has no position

        draft = fit_lines(heads, lines, budget, what, place=after)
        return Draft(draft.text, draft.cut_tokens, draft.next_pos, notes=found.remarks)


def _ranked(cell: RenderedCell, at: int, line: str) -> str:
    """Return line `at` of a cell in an outline: headings get room first, then how cells begin, then what they show."""
    if cell.kind in ("markdown", "heading") and "# " in line:
        return NamedLine(line)
    return Line(line, 1, rank=1 if at == 0 else 2)


def _numbered(cells: list[RenderedCell], first: int, lod: int, budget: int) -> tuple[list[str], list[str]]:
    """Return the lines of a level from cell `first` on, each cell numbered, and the position of each line.

    An outline is made of each cell anew; where that is more than the budget has room for, the last line stands for the
    rest.
    """
    lines: list[str] = []
    places: list[str] = []
    for at, cell in enumerate(cells[first:], first):
        if lod and max(len(lines), at - first) > max(budget, _OUTLINED):
            rest = len(cells) - at
            lines.append(Line(f"[{at}] … and the {plural(rest, 'cells')} from here on", rest, "cells"))
            places.append(str(at))
            break
        part = (cell.lines, cell.outline, cell.points)[lod]()
        indent = "    " if lod else ""
        shown = [f"[{at}] {line}" if i == 0 else indent + line for i, line in enumerate(part)]
        lines += [_ranked(cell, i, line) for i, line in enumerate(shown)] if lod else shown
        places += [str(Place(at, 0 if lod else i)) for i in range(len(part))]
    return lines, places


def _named(cells: list[RenderedCell]) -> Iterator[tuple[str, Place]]:
    """Yield headings and what Python code defines, with their places."""
    for at, cell in enumerate(cells):
        source = "\n".join(cell.source)
        if cell.kind in ("markdown", "heading"):
            outline = markdown_outline(make_text(source, size=0, fingerprint=""))
        elif cell.python:
            outline = python_outline(source)
        else:
            continue
        for name, line in symbols_of(outline) if outline.what in ("headings", "symbols") else ():
            yield name, Place(at, line + 1)  # below the cell's own headline


def parse_notebook(loaded: Data) -> Notebook | str:
    """Return the notebook in some bytes, or in a line why there is none. Raises nothing."""
    encoding = sniff(loaded.data[:8192], ".ipynb")[0] or "utf-8"
    text, _, remarks = decode(loaded.data if loaded.whole else cut_at_line(loaded.data, encoding), encoding)
    raw: list[Any] = []
    value: Any = None
    if loaded.whole:
        try:
            value = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError):
            remarks = (*remarks, "not valid JSON: the cells that could be read")
    else:
        remarks = (*remarks, f"only the cells in the first {format_size(len(loaded.data))}")
    if value is None:
        raw = list(_cells_in(text))
        if not raw:
            return "no notebook: no cell could be read of it; shown as text"
    elif is_object(value):
        lists = [_dict(sheet).get("cells") for sheet in (value, *_list(value.get("worksheets")))]
        if not any(map(is_list, lists)):
            return "no notebook: it has no list of cells; shown as text"
        raw = [cell for cells in lists for cell in _list(cells)]
    else:
        return "no notebook: its JSON is no object; shown as text"
    language, kernel = _language(value)
    cells = [_cell(cell, language) for cell in raw]
    kinds = [str(_dict(cell).get("cell_type", "?")) for cell in raw]
    counts = ", ".join(f"{kinds.count(kind):,} {one_line(kind, 20)}" for kind in sorted(set(kinds))[:5])
    count = plural(len(cells), "cells") if loaded.whole else f"{len(cells):,}+ cells"
    about = f"{count}{f' ({counts})' if counts else ''}{f' · {kernel}' if kernel else ''}"
    return Notebook(cells, about, remarks, loaded.size, loaded.fingerprint)


def _cells_in(text: str) -> Iterator[dict[str, Any]]:
    """Yield the cells of a text that is no whole JSON, one by one; after a fault, go on with the next cell."""
    start = _CELLS.search(text)
    at = start.end() if start else -1
    decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
    faults = 0
    while at >= 0 and faults < _RETRIES:
        gap = _GAP.match(text, at)
        at = gap.end() if gap else at
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            faults += 1
            following = _CELL.search(text, at + 1)
            at = following.start() if following else -1
        else:
            if is_object(value):
                yield value


def _language(notebook: Any) -> tuple[str, str]:
    """Return the language of the code cells in lower case, and the kernel as people call it."""
    metadata = _dict(_dict(notebook).get("metadata"))
    spec, info = _dict(metadata.get("kernelspec")), _dict(metadata.get("language_info"))
    language = spec.get("language") or info.get("name") or ""
    kernel = spec.get("display_name") or language
    return _text(language).lower() or "python", one_line(_text(kernel), 40)


def _cell(raw: Any, language: str) -> RenderedCell:
    if not is_object(raw):
        return RenderedCell("", f"no cell: {one_line(str(raw), 60)}", [])
    kind = one_line(_text(raw.get("cell_type")), 20) or "cell of no type"
    source = _lines(raw.get("source", raw.get("input")))
    if kind == "heading":  # of format 3
        level = _text(raw.get("level"))
        source = [f"{'#' * (int(level) if level in '123456' and level else 1)} {' '.join(source)}"]
    count = raw.get("execution_count", raw.get("prompt_number"))
    headline = f"{kind} · In [{one_line(_text(count), 12) or ' '}]" if kind == "code" else kind
    name = one_line(_text(raw.get("id")), 64)
    cell = RenderedCell(kind, headline, source, kind == "code" and language == "python", id=name)
    for name, media in sorted(_dict(raw.get("attachments")).items()):
        for mime, data in _dict(media).items():
            cell.shown.append(f"[attachment {one_line(name, 60)}: {_medium(mime, data)}]")
    for output in _list(raw.get("outputs")):
        lines, word, error = _output(_dict(output))
        cell.shown.extend(lines)
        cell.brief.append(word)
        cell.errors.extend(error)
    return cell


def _headings(source: list[str]) -> list[str]:
    """Return the headings of a Markdown cell; where there are none, its first line."""
    outline = markdown_outline(make_text("\n".join(source), size=0, fingerprint=""))
    if outline.what == "headings" and outline.entries:
        return [one_line(entry.text if entry.text.startswith("#") else f"# {entry.text}") for entry in outline.entries]
    first = next((line for line in source if line.strip()), "(empty)")
    return [one_line(first, 100) + (f" ({plural(len(source), 'lines')})" if len(source) > 1 else "")]


def _definitions(source: list[str]) -> list[str]:
    entries = python_outline("\n".join(source)).entries
    return [
        one_line(f"{entry.text}{f' — {entry.doc}' if entry.doc else ''}")
        for entry in entries
        if entry.depth == 0 and entry.text.startswith(("def ", "class ", "async def "))
    ][:_HEADINGS]


def _output(output: dict[str, Any]) -> tuple[list[str], str, list[str]]:
    """Return an output's lines, what it is in a few words, and what of it a summary keeps."""
    kind = _text(output.get("output_type"))
    if kind == "stream":
        name = one_line(_text(output.get("name", output.get("stream"))), 20) or "stdout"
        lines = _lines(output.get("text"))
        return [f"→ {name}:", *lines], f"{name}, {plural(len(lines), 'lines')}", []
    if kind in ("error", "pyerr"):
        what = one_line(f"{_text(output.get('ename')) or 'error'}: {_text(output.get('evalue'))}", 200)
        trace = [line for part in _list(output.get("traceback")) for line in _lines(part)]
        return [f"→ {what}", *trace], what, [f"→ {what}"]
    data = output.get("data")
    if not is_object(data):
        data = {_OLD_TYPES.get(key, key): value for key, value in output.items() if key not in _NOT_DATA}
    name = "result" if kind in ("execute_result", "pyout") else "display"
    readable = next((mime for mime in _TEXTS if mime in data), None)
    lines = _lines(data[readable]) if readable else []
    media = [_medium(mime, value) for mime, value in sorted(data.items()) if mime != readable]
    words = ([f"{readable}, {plural(len(lines), 'lines')}"] if readable else []) + media
    if not words:
        words = ["empty"]
    head = f"→ {name}:"
    return [head, *lines, *[f"[{medium}]" for medium in media]], f"{name} {' + '.join(words)}", []


def _medium(mime: str, data: Any) -> str:
    """Return type and size; of what is kept as base64 the size that it has decoded."""
    mime = one_line(str(mime), 60)
    if isinstance(data, (str, list)):
        text = _text(data)
        if mime.startswith(("text/", "application/j")) or mime.endswith(("xml", "json")):
            size = len(text.encode("utf-8", "replace"))
        else:
            letters = len(text) - text.count("\n") - text.count("\r")
            size = letters * 3 // 4 - len(text[-4:].rstrip()) + len(text[-4:].rstrip().rstrip("="))
    else:
        size = len(json.dumps(data))
    return f"{mime} {max(size, 0):,} B"


def _lines(value: Any) -> list[str]:
    """Return a source or an output as lines, as a terminal shows them: no colours, a line written over by its end."""
    lines = strip_ansi(_text(value)).replace("\r\n", "\n").replace("\0", "\u2400").split("\n")
    if lines[-1] == "":
        lines.pop()
    # A progress bar writes one line a hundred times.
    return [line.rstrip("\r").rsplit("\r", 1)[-1] if "\r" in line else line for line in lines]


def _text(value: Any) -> str:
    """Return text that may be kept as one string or as a list of them, or be anything else."""
    if isinstance(value, str):
        return value
    return "".join(part for part in _list(value) if isinstance(part, str))


def _list(value: Any) -> list[Any]:
    return value if is_list(value) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if is_object(value) else {}
