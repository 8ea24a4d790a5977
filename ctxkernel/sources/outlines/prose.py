"""The summary of prose: each section's first sentence and conclusion, then the beginnings of its paragraphs.

Rule 1: a point is a whole sentence of the text, with the line that it begins on.
Rule 2: code, tables, pictures and directives are no prose, and what has no sentences has no points.
Rule 3: abstracts and conclusions come first, then the headings of all sections, then the sentences of results and
        discussions, then those of other sections in the order of their depth. Of references only the heading is given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.sources.base.positions import OutlineEntry
from ctxkernel.sources.outlines.sentences import Sentence, sentences_of

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(?=\S)")
_RULE = re.compile(r"^\s*([=\-~^\"'`#*+.:_])\1{2,}\s*$")
_COMMANDS = r"(?:\\[a-zA-Z@]+\*?(?:\[[^\]]*\]|\{(?:[^{}]|\{[^{}]*\})*\})*\s*)+(?:%.*)?$"
"""A line that consists of commands of LaTeX."""
_NO_PROSE = re.compile(rf"^\s*(?:\||<|!\[|\[!|\[\^?[^\]]+\]:|\.\. |:::|:[\w-]+:|>>>|\$ |%|@|{_COMMANDS})")
_DISPLAY = re.compile(
    r"^\s*\\begin\{((?:equation|align|gather|multline|eqnarray|figure|table|tabular|algorithm|verbatim|lstlisting|"
    r"tikzpicture|thebibliography)\*?)\}"
)
"""The beginning of an environment of LaTeX that holds no prose."""
_KEY = re.compile(
    r"\W*(?:[\dIVX.]+\s+)?(?:abstract|summary|conclusions?|concluding remarks|results?|key (?:findings|points|results)|"
    r"main (?:findings|results)|findings|discussion|tl;?dr|overview|zusammenfassung|fazit|résumé)\b",
    re.IGNORECASE,
)
_MAIN = re.compile(r"\W*(?:[\dIVX.]+\s+)?(?:abstract|summary|tl;?dr|conclu)", re.IGNORECASE)
_REFERENCES = re.compile(
    r"\W*(?:[\dIVX.]+\s+)?(?:references|bibliography|acknowledge?ments?|funding|licen[cs]e|"
    r"table of contents|contents)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{4,}")
_KEY_SENTENCES = 4
_LONGEST = 60
"""Lines of a paragraph; a longer one is a list of records."""
_MAIN_SECTION, _KEY_SECTION, _INNER, _SECTION, _END = 2_500.0, 2_000.0, 1_500.0, 1_000.0, 600.0


@dataclass(frozen=True, slots=True)
class Point:
    """A sentence that is worth its place, and how much it is."""

    line: int
    text: str
    score: float
    part: int = 0
    """Which sentence of its paragraph it is."""
    heading: str = ""
    """The heading that it begins with."""
    is_main: bool = False
    """Whether it belongs to an abstract or a conclusion."""

    @property
    def rank(self) -> int:
        """0 if the whole of it comes before, or with, the headings of all sections, 1 if it comes after them."""
        return 0 if self.is_main or self.heading else 1

    @property
    def short(self) -> str:
        """The part that stands for it among the headings; empty for all of it."""
        return "" if self.is_main else self.heading


@dataclass(slots=True)
class Section:
    """A heading and the paragraphs below it, up to the next heading."""

    heading: OutlineEntry | None
    paragraphs: list[list[Sentence]] = field(default_factory=list[list[Sentence]])

    @property
    def title(self) -> str:
        """The heading, without what makes it one."""
        return "" if self.heading is None else self.heading.text.strip("# \t").strip("*")


def sections_of(lines: Iterable[tuple[int, str]], headings: Sequence[OutlineEntry]) -> tuple[list[Section], float]:
    """Return the sections of some lines, and which share of their words is prose."""
    at = {entry.line: entry for entry in headings}
    found = [Section(None)]
    open_: list[tuple[int, str]] = []
    fence, display, all_words, prose_words = "", "", 0, 0

    def close() -> None:
        nonlocal all_words, prose_words
        words = sum(len(line.split()) for _, line in open_)
        all_words += words
        some = sentences_of(open_) if len(open_) <= _LONGEST else []
        # How a paragraph begins may be a name in small letters; what comes after it begins a sentence, or is cut.
        paragraph = [one for at, one in enumerate(some) if one.ends and (not at or one.begins)]
        if paragraph and _is_prose(open_):
            prose_words += words
            found[-1].paragraphs.append(paragraph)
        open_.clear()

    for number, line in lines:
        mark = _FENCE.match(line)
        if display:
            display = "" if f"\\end{{{display}}}" in line else display
        elif not fence and (begun := _DISPLAY.match(line)):
            close()
            display = begun[1]
        elif mark or fence:
            close()
            if mark:
                fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        elif (heading := at.pop(number, None)) is not None:
            close()
            found.append(Section(heading))
        elif not line.strip() or _RULE.match(line):
            close()
        elif not _NO_PROSE.match(line):
            if _ITEM.match(line):
                close()
            open_.append((number, _ITEM.sub("", line)))
    close()
    return found, prose_words / max(all_words, 1)


def is_prose_line(line: str) -> bool:
    """Return whether a line is no table, picture, comment, directive or command."""
    return not _NO_PROSE.match(line)


def points_of_prose(sections: Sequence[Section]) -> list[Point]:
    """Return a point for each heading, the conclusion of each section, and how each paragraph begins."""
    weights: Counter[str] = Counter()
    for section in sections:
        for paragraph in section.paragraphs:
            weights.update({word for one in paragraph for word in _WORD.findall(one.text.lower())})
    found: list[Point] = []
    for section in sections:
        if not _REFERENCES.match(section.title):
            found += _points_of_section(section, weights)
        elif section.heading is not None:
            found.append(Point(section.heading.line, section.title, _END, heading=section.title))
    last = next((one for one in reversed(sections) if one.paragraphs and not _REFERENCES.match(one.title)), None)
    end = last.paragraphs[-1][-1] if last is not None else None
    if last is not None and end is not None and end is not last.paragraphs[0][0]:  # how all of it ends
        found.append(Point(end.line, end.text, _SECTION, end.part))
    best: dict[tuple[int, str], Point] = {}
    for point in found:
        known = best.get((point.line, point.text))
        if known is None or known.score < point.score:
            best[point.line, point.text] = point
    return list(best.values())


def _points_of_section(section: Section, weights: Counter[str]) -> Iterable[Point]:
    heading, paragraphs = section.heading, section.paragraphs
    depth = heading.depth if heading is not None else 0
    key, main = bool(_KEY.match(section.title)), bool(_MAIN.match(section.title))
    first = paragraphs[0][0] if paragraphs else None
    if heading is not None:
        tail = f" — {first.text}" if first is not None else ""
        most = _MAIN_SECTION if main else _KEY_SECTION if key else _SECTION
        yield Point(heading.line, section.title + tail, most - depth, heading=section.title, is_main=main)
    elif first is not None:
        yield Point(first.line, first.text, _SECTION, first.part)
    if first is None:
        return
    end = paragraphs[-1][-1]
    if end is not first:
        yield Point(end.line, end.text, (_INNER if key else _END) - depth, end.part, is_main=main)
    if key:
        some = (one for paragraph in paragraphs for one in paragraph if one is not first)
        for at, one in enumerate(islice(some, _KEY_SENTENCES)):
            yield Point(one.line, one.text, _INNER - depth - at - 1, one.part)
    for paragraph in paragraphs:
        if paragraph[0] is not first:
            opening = paragraph[0]
            words = set(_WORD.findall(opening.text.lower()))
            yield Point(opening.line, opening.text, min(_weight(words, weights), _END / 2), opening.part)


def _weight(words: set[str], weights: Counter[str]) -> float:
    """Return how much words say together: those that many paragraphs have."""
    return round(sum(weights[word] for word in words) / (len(words) + 4), 6) if words else 0.0


def _is_prose(lines: Sequence[tuple[int, str]]) -> bool:
    text = " ".join(line for _, line in lines)
    letters = sum(char.isalpha() or char == " " for char in text)
    return letters >= 0.7 * len(text)
