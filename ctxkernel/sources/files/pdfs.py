"""A PDF file as a source: 0 its text page by page, 1 its outline, 2 its most informative lines, 3 what changed.

Rule 1: pypdf is imported here, late; without it one line says so. It warns by logging: here it does not.
Rule 2: a file of at most `MOST_BYTES` is read; of its pages the first `PAGES`, for at most `SECONDS`, and from a
        position further on as many again. A page whose content is larger than `PAGE_BYTES` is not.
Rule 3: a position is "page:line", both from 0; pages are told as people count them, from 1. An entry of the outline is
        a name of its page, and so is "page 3", as it is shown.
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.amounts import Line, more_lines
from ctxkernel.sources.base.file_reader import Data, Gone, load_bytes, make_text
from ctxkernel.sources.base.positions import find_name, pattern_of
from ctxkernel.sources.base.rendering import PAST_END, Draft, Names, Place, fit_lines
from ctxkernel.sources.files.formats import FormatSource
from ctxkernel.sources.files.text_documents import lines_document
from ctxkernel.sources.files.text_levels import PointLine, best_points
from ctxkernel.sources.outlines.json_outline import is_list
from ctxkernel.sources.outlines.papers import points_of_paper

MOST_BYTES = 64 << 20
PAGES = 50
SECONDS = 3.0
PAGE_BYTES = 4 << 20
_PAGE_CHARS = 200_000
_ENTRIES = 500
_DEEPEST = 6
_POINTS = 80
_POINT_CHARS = 300
_PAGE = re.compile(r"page\s*(\d{1,9})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pdf:
    """The content that was read of a PDF file."""

    version: str
    pages: int
    about: tuple[str, ...]
    """Title and author, as the file says."""
    outline: tuple[tuple[int, str, int], ...]
    """Depth, title and page (from 0; -1 where it is not known)."""
    texts: tuple[tuple[str, ...], ...]
    """The lines of the first pages."""
    size: int
    fingerprint: str


class PdfSource(FormatSource[Pdf]):
    """A PDF file by its path."""

    kind = "pdf"

    def read(self) -> Pdf | Gone | str:
        """Return what the file holds, Gone, or in a line why it cannot be read."""
        loaded = load_bytes(self.path, MOST_BYTES)
        if isinstance(loaded, Gone):
            return loaded
        if b"%PDF-" not in loaded.data[:1024]:
            return "no PDF file: it does not begin as one; shown as it is"
        start = loaded.data.index(b"%PDF-")
        version = loaded.data[start + 5 : start + 8].decode("ascii", "replace")
        if not loaded.whole:
            size, most = format_size(loaded.size), format_size(MOST_BYTES)
            return f"PDF {version}, too large to be read: {size}; at most {most} are"
        try:
            with _reader(loaded) as reader:
                if reader is None:
                    return (
                        f"PDF {version}; its text is read by pypdf, which is not installed; "
                        f'%pip install "jupyter-ctxkernel[pdf]", and view it again'
                    )
                if reader.is_encrypted and not reader.decrypt(""):
                    return f"PDF {version}, encrypted: it opens with a password only; save a copy without one"
                count = len(reader.pages)
                about, outline = tuple(_about(reader)), tuple(_outline(reader))
                texts = tuple(_texts(reader, 0, count))
        except Exception as fault:
            return f"PDF {version}, broken: it cannot be read ({one_line(f'{type(fault).__name__}: {fault}', 120)})"
        return Pdf(version, count, about, outline, texts, loaded.size, loaded.fingerprint)

    def worded(self) -> bool:
        """Return whether it could be read."""
        return isinstance(self.found, Pdf)

    def facts(self, found: Pdf) -> tuple[list[str], int, str]:
        """Return title, outline and text, by which two states are compared."""
        lines = [*found.about, *_entries(found)]
        for at, text in enumerate(found.texts):
            lines += [f"--- page {at + 1} ---", *text]
        return lines, found.size, found.fingerprint

    def names_of(self, found: Pdf) -> Names:
        """Return the entries of the outline."""
        return Names("entries of the outline", [(title, Place(page)) for _, title, page in found.outline if page >= 0])

    def place_of(self, found: Pdf, pos: str) -> Place:
        """Return the page of an entry of the outline; or page and line of a pattern or heading, in what was read."""
        names = self.names_of(found)
        if (place := find_name(names.places, pos)) is not None:
            return place
        if page := _PAGE.fullmatch(pos):
            if not 0 < int(page[1]) <= found.pages:
                raise BadPolicy(f"{self.label} has no {pos}: its {plural(found.pages, 'pages')} are told from 1")
            return Place(int(page[1]) - 1)
        places = [Place(page, at) for page, text in enumerate(found.texts) for at in range(len(text))]
        document = lines_document(self.label, [line for text in found.texts for line in text])
        if pattern_of(pos) is not None:
            return places[document.find(pos).line]
        headings = [(name, places[place.line]) for name, place in document.names().places]
        return Names(names.what if names.places else "headings", [*names.places, *headings]).find(self.label, pos)

    def length_of(self, found: Pdf) -> int:
        """Return the number of pages."""
        return found.pages

    def parts_of(self, found: Pdf) -> list[str]:
        """Return the pages, where all were read."""
        return ["\n".join(text) for text in found.texts] if len(found.texts) == found.pages else []

    def show(self, found: Pdf, lod: int, place: Place, budget: int) -> Draft:
        """Render level 0, 1 or 2."""
        parts = [self.label, f"PDF {found.version}", plural(found.pages, "pages"), format_size(found.size)]
        head = " · ".join(parts)
        if lod == 0:
            return self._excerpt(found, head, place, budget)
        if lod == 2:
            read = len(found.texts)
            part = [f"of its first {plural(read, 'pages')}; the others were not read"] if read < found.pages else []
            return best_points([head, *found.about, *_begins(found), *part], _summary(found), budget)
        entries = _entries(found)
        what = [] if found.outline else ["no outline; how each page begins:"]
        return fit_lines([head, *found.about, *what], entries, budget, "entries" if found.outline else "pages")

    def _excerpt(self, found: Pdf, head: str, place: Place, budget: int) -> Draft:
        past = place.line >= found.pages > 0
        first = min(place.line, max(found.pages - 1, 0))
        texts = found.texts[first:] if first < len(found.texts) else self._further(first, found.pages)
        lines: list[str] = []
        places: list[Place] = []
        for page, text in enumerate(texts, first):
            skip = place.col if page == first and not past else 0
            rows = text[skip:] or ("",)
            # With its first line in one, so that each part that is shown goes further.
            title = f"--- page {page + 1} of {found.pages:,}{f', from line {skip}' if skip else ''} ---"
            lines += [f"{title}\n{rows[0]}", *rows[1:]]
            places += [Place(page, skip + at) for at in range(len(rows))]
        after = first + len(texts)
        lines += more_lines(found.pages - after, "pages")
        head = f"{head}{PAST_END if past else ''}"
        draft = fit_lines([head], lines, budget, "lines", place=lambda k: str([*places, Place(after)][k]))
        if draft.cut_tokens or after >= found.pages:
            return draft
        rest = found.pages - after
        mark = f'[… {plural(rest, "more pages")}; h.pos = "{after}" goes on]'
        room = max(1, budget - count_tokens(mark) - 2)
        draft = fit_lines([head], lines, room, "lines", place=lambda k: str([*places, Place(after)][k]))
        if draft.cut_tokens:
            return draft
        return Draft(f"{draft.text.rpartition(chr(10))[0]}\n{mark}", cut_tokens=max(1, rest), next_pos=str(after))

    def _further(self, first: int, count: int) -> tuple[tuple[str, ...], ...]:
        """Return the text of pages that were not read with the rest."""
        loaded = load_bytes(self.path, MOST_BYTES)
        if isinstance(loaded, Gone) or not loaded.whole:
            return (("[the file changed meanwhile]",),)
        with _reader(loaded) as reader:
            if reader is None or (reader.is_encrypted and not reader.decrypt("")):
                return ()
            return tuple(_texts(reader, first, min(count, len(reader.pages))))


@contextmanager
def _reader(loaded: Data) -> Generator[Any]:
    """Give a reader of the file, or None where pypdf is not installed, or broken."""
    try:
        import pypdf  # pyright: ignore[reportMissingImports]
    except Exception:  # not installed, or broken: the header's facts are shown, and what to install
        yield None
        return
    logger = logging.getLogger("pypdf")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # else what it finds odd in a file stands in the user's cell
    try:
        yield pypdf.PdfReader(io.BytesIO(loaded.data), strict=False)
    finally:
        logger.setLevel(level)


def _texts(reader: Any, first: int, count: int) -> Iterator[tuple[str, ...]]:
    """Yield the lines of the pages from `first` on, as far as the bounds allow."""
    deadline = time.monotonic() + SECONDS
    for at in range(first, min(count, first + PAGES)):
        if at > first and time.monotonic() > deadline:
            return
        yield tuple(_page(reader, at))


def _page(reader: Any, at: int) -> list[str]:
    try:
        page = reader.pages[at]
        content = page.get_contents()
        if content is not None and len(content.get_data()) > PAGE_BYTES:
            return [f"[not read: its content has more than {format_size(PAGE_BYTES)}]"]
        text = page.extract_text()[:_PAGE_CHARS]
    except Exception as fault:  # a font that is missing, an object that points into nothing
        return [f"[cannot be read ({one_line(f'{type(fault).__name__}: {fault}', 100)})]"]
    return [line.rstrip() for line in make_text(text, size=-1, fingerprint="").lines] or [
        "[no text: an image, perhaps]"
    ]


def _about(reader: Any) -> Iterator[str]:
    for name in ("title", "author"):
        try:
            value = getattr(reader.metadata, name, None)
        except Exception:  # a damaged dictionary: the pages can be read without it
            continue
        if isinstance(value, str) and value.strip():
            yield f"{name}: {one_line(value, 160)}"


def _outline(reader: Any) -> Iterator[tuple[int, str, int]]:
    try:
        entries = list(reader.outline)
    except Exception:  # an outline that points in circles
        return
    waiting = [(0, entry) for entry in reversed(entries)]
    found = 0
    while waiting and found < _ENTRIES:
        depth, entry = waiting.pop()
        if is_list(entry):
            waiting += [(depth + 1, inner) for inner in reversed(entry)] if depth < _DEEPEST else []
            continue
        found += 1
        try:
            page = reader.get_destination_page_number(entry)
            yield depth, one_line(str(entry.title), 160), -1 if page is None else int(page)
        except Exception:  # one damaged entry must not hide the others
            yield depth, "[an entry that cannot be read]", -1
    if waiting:
        yield 0, f"[… more entries than the first {_ENTRIES:,}]", -1


def _entries(found: Pdf) -> list[str]:
    """Return the outline; where there is none, how each page that was read begins."""
    if found.outline:
        return [
            f"{'  ' * depth}{title}{f' · page {page + 1}' if page >= 0 else ''}" for depth, title, page in found.outline
        ]
    firsts = (next((line for line in text if line.strip()), "") for text in found.texts)
    lines = [f"page {at + 1}: {one_line(line, 120)}" for at, line in enumerate(firsts)]
    rest = found.pages - len(lines)
    return [*lines, *([Line(f"[… {plural(rest, 'more pages')} were not read]", rest, "pages")] if rest else [])]


def _summary(found: Pdf) -> list[PointLine]:
    """Return headings with their first sentences, abstract and conclusions: best first, with their places and pages.

    Of a text without sentences the most informative lines.
    """
    pages = [at for at, text in enumerate(found.texts) for _ in text]
    points = points_of_paper(found.texts, [title for _, title, _ in found.outline])
    if not points:
        points = lines_document("", [line for text in found.texts for line in text]).points.bullets
    best = sorted(points, key=lambda point: (-point.score, point.line))[:_POINTS]
    return [
        PointLine(
            (point.line, point.part),
            f"- page {_page_of(pages, point.line)}: ",
            one_line(point.text, _POINT_CHARS),
            one_line(point.short, _POINT_CHARS),
            point.rank,
        )
        for point in best
    ]


def _page_of(pages: Sequence[int], line: int) -> str:
    return str(pages[line] + 1) if line < len(pages) else "?"


def _begins(found: Pdf) -> list[str]:
    """Return the first line of the text, where the file names no title."""
    if any(line.startswith("title: ") for line in found.about):
        return []
    first = next((line for text in found.texts for line in text if line.strip()), "")
    return [f"begins: {one_line(first, 160)}"] if first else []
