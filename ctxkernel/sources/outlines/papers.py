"""The summary of a paper from the lines of its pages: headings, abstract, conclusions, whole sentences.

Rule: a heading is known by its number, by its name, or from the outline of the file. Numbers of pages, and lines that
      stand on most pages, are no text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ctxkernel.sources.base.positions import OutlineEntry
from ctxkernel.sources.outlines.prose import Point, points_of_prose, sections_of

_NUMBERED = re.compile(r"((?:\d{1,2}(?:\.\d{1,2}){0,3}\.?|[IVX]{1,4}\.)\s+)(?=[A-Z])(?!.*[.!?;,]$)\S.{2,80}")
_NAMED = re.compile(
    r"(?:abstract|summary|introduction|background|motivation|related work|prior work|preliminaries|theory|data|"
    r"(?:materials? and )?methods?|methodology|approach|model|experiments?|experimental (?:setup|results)|evaluation|"
    r"results?(?: and discussion)?|discussion|limitations|conclusions?(?: and (?:outlook|future work))?|"
    r"concluding remarks|outlook|future work|acknowledge?ments?|references|bibliography|appendix(?: [A-Z])?)\s*:?",
    re.IGNORECASE,
)
_RUN_IN = re.compile(r"(Abstract|Summary|ABSTRACT|SUMMARY)\s*(?:[.:—–-]+\s*|\s(?=[A-Z]))(?=\S)")
_LEADING = re.compile(r"^(?:[\d.]+|[IVX]+\.)\s+")
_PAGE = re.compile(r"\W*(?:page\s*)?\d{1,4}(?:\s*(?:/|of)\s*\d{1,4})?\W*", re.IGNORECASE)
_LEAST_PROSE = 0.3


def points_of_paper(pages: Sequence[Sequence[str]], titles: Sequence[str] = ()) -> list[Point]:
    """Return the points of the text; none where it is not of sentences. Lines are counted through all pages."""
    often = Counter(line.strip() for page in pages for line in {*page})
    running = {line for line, count in often.items() if len(pages) > 2 and count > len(pages) / 2}
    numbered = list(enumerate(line for page in pages for line in page))
    lines = [(at, line.strip()) for at, line in numbered if not _PAGE.fullmatch(line) and line.strip() not in running]
    known = {_LEADING.sub("", title).strip().lower() for title in titles}
    headings: list[OutlineEntry] = []
    text: list[tuple[int, str]] = []
    before = ""
    for at, line in lines:
        if run_in := _RUN_IN.match(line):
            headings.append(OutlineEntry(at, 0, run_in[1].capitalize()))
            text += [(at, ""), (at, line[run_in.end() :])]
        elif _is_heading(line, before, known):
            headings.append(OutlineEntry(at, _depth(line), line))
            text.append((at, line))
        else:
            text.append((at, line))
        before = line
    sections, share = sections_of(_parted(text), headings)
    return points_of_prose(sections) if share >= _LEAST_PROSE else []


def _is_heading(line: str, before: str, known: set[str]) -> bool:
    if not line or len(line) > 90:
        return False
    if _LEADING.sub("", line).lower() in known or _NAMED.fullmatch(_LEADING.sub("", line)):
        return True
    # A line of a paragraph may begin with a number too: then the line before it is not the end of one.
    return bool(_NUMBERED.fullmatch(line)) and (not before or before[-1:] in ".!?:)]" or len(before) < 40)


def _depth(line: str) -> int:
    return line.split(" ", maxsplit=1)[0].rstrip(".").count(".") if line[:1].isdigit() else 0


def _parted(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield lines with an empty one after each that ends a sentence before the right margin: there a paragraph ends."""
    widths = sorted(len(line) for _, line in lines if len(line) > 20)
    usual = widths[len(widths) // 2] if widths else 0
    for at, line in lines:
        yield at, line
        if line[-1:] in (".", "!", "?") and len(line) < 0.85 * usual:
            yield at, ""
