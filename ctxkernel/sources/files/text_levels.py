"""The four levels of detail of a text, for every source that has one.

Rule 1: each level is a function from a text (or a window of one) and a budget to a `Draft`.
Rule 2: the first line says what is shown, of what, and how much there is.
Rule 3: in a summary nothing is paraphrased: a bullet is cut out of the text, with the line it stands on. Bullets are
        chosen by score and shown in the order of the text; ties go to the earlier line. No model, no randomness.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size, one_line, plural, truncate
from ctxkernel.core.text_diff import changes, counted, unified
from ctxkernel.projection.tokens import count_tokens, largest
from ctxkernel.sources.base.file_reader import Text, make_text
from ctxkernel.sources.base.large_files import Window, whole_window
from ctxkernel.sources.base.positions import (
    DETAILS,
    Outline,
    entry_lines,
    find_pattern,
    keys_of,
    no_place,
    pattern_of,
    symbols_of,
)
from ctxkernel.sources.base.rendering import NO_CAP, PAST_END, Draft, Names, Place, as_now, fit, fit_lines, marked
from ctxkernel.sources.outlines.outline import Language, language_of
from ctxkernel.sources.outlines.tabular import read_table

_WORD = re.compile(r"[^\W\d_]{4,}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
_DIGITS = re.compile(r"\d+")
_SCAN_LINES = 10_000
_MOST_BULLETS = 400
_ALERTS = re.compile(
    r"\b(?:error|warning|warn|fatal|critical|exception|traceback|failed|TODO|FIXME|XXX)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Bullet:
    """One extracted line."""

    line: int
    text: str
    score: float


def bullets(text: Text, language: Language, outline: Outline) -> list[Bullet]:
    """Return the bullets of a text, best first, at most 400."""
    if language.name == "table" and (table := read_table(text)) is not None:
        found = [Bullet(0, line, -at) for at, line in enumerate(table.statistic_lines())]
    elif language.name in ("json", "jsonlines") and outline.lines:
        found = [Bullet(at, line.strip(), -_indent(line)) for at, line in enumerate(outline.lines)]
    elif outline.what == "symbols":
        found = _definitions(text, outline)
    elif outline.what == "headings":
        found = [
            Bullet(entry.line, entry.text.lstrip("# ") + (f" — {entry.doc}" if entry.doc else ""), -entry.depth)
            for entry in outline.entries
        ]
    else:
        found = _sentences(text.lines)
    return sorted(found, key=lambda bullet: (-bullet.score, bullet.line))[:_MOST_BULLETS]


def _definitions(text: Text, outline: Outline) -> list[Bullet]:
    """Rank definitions by how often the text names them; a docstring counts like four namings."""
    named = Counter(_NAME.findall(text.text))
    entries = outline.entries
    found: list[Bullet] = []
    for at, entry in enumerate(entries):
        uses = named[entry.name] - 1
        members = 0
        if entry.depth == 0 and " " in entry.text and "class " in entry.text:
            members = next((i for i, e in enumerate(entries[at + 1 :]) if e.depth == 0), len(entries) - at - 1)
        facts = [f"named {uses}×"] * (uses > 0) + [plural(members, "members")] * (members > 0)
        private = entry.name.startswith("_") and not entry.name.startswith("__")
        score = min(uses, 40) + 4 * bool(entry.doc) + min(members, 20) - 12 * entry.depth - 6 * private
        tail = f" ({', '.join(facts)})" if facts else ""
        found.append(Bullet(entry.line, f"{entry.text}{f' — {entry.doc}' if entry.doc else ''}{tail}", score))
    return found


def _sentences(lines: Sequence[str]) -> list[Bullet]:
    """Rank first sentences and lines by the weight of their words; lines alike but for numbers count once."""
    candidates: dict[str, tuple[int, str, int]] = {}
    previous = ""
    for at, line in enumerate(lines[:_SCAN_LINES]):
        plain = line.strip()
        if plain:
            opens = not previous.strip()
            sentence = _SENTENCE_END.split(plain, maxsplit=1)[0] if opens else plain
            key = _DIGITS.sub("0", sentence[:200])
            first, kept, often = candidates.get(key, (at, sentence, 0))
            candidates[key] = (first, kept, often + 1)
        previous = line
    weights: Counter[str] = Counter()
    words = {key: set(_WORD.findall(kept[:400].lower())) for key, (_, kept, _) in candidates.items()}
    for found in words.values():
        weights.update(found)
    out: list[Bullet] = []
    for key, (at, sentence, often) in candidates.items():
        said = words[key]
        score = sum(weights[word] for word in said) / (len(said) + 4) if said else 0.0
        if not at or not lines[at - 1].strip():
            score *= 2  # how a paragraph begins says what it is about
        if _ALERTS.search(sentence[:200]):
            score += 5
        alike = f" (and {plural(often - 1, 'lines')} like it)" if often > 1 else ""
        out.append(Bullet(at, one_line(sentence, 200) + alike, round(score, 6)))
    return out


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


BASIS_CHARS = 2 << 20
"""Longest text that is kept whole for a later diff; of a longer one a window is kept."""
_BASIS_WINDOW_CHARS = 64 << 10
_NEARBY_TOKENS = 64
"""Least room in which lines near the position are added to a structure."""
_LONG_LINE = 2000
_RECORDS = ("table", "json", "jsonlines", "log")


@dataclass(frozen=True, slots=True)
class TextBasis:
    """What a later diff is made against. `text` None: only the window's lines were kept."""

    fingerprint: str
    size: int
    text: str | None
    window: tuple[str, ...] = ()
    window_line: int = 0
    tail: tuple[int, str] = (0, "")
    """(bytes, hash of the last ones before them) of a file too large to keep, to see that it only grew."""

    @property
    def where(self) -> str:
        """What of the text this basis holds."""
        return "whole" if self.text is not None else f"{self.window_line}+{len(self.window)}"


@dataclass(frozen=True, slots=True)
class PlainBasis:
    """The basis of what has no lines: its fingerprint and one line about it."""

    fingerprint: str
    about: str


class Document:
    """A text with its language and outline, each found once."""

    def __init__(self, label: str, path: str, text: Text) -> None:
        self.label = label
        self.text = text
        self.language: Language = language_of(path, text)

    @property
    def worded(self) -> bool:
        """Whether it is prose or code, rather than records of numbers."""
        return self.language.name not in _RECORDS and bool(self.text.text.strip())

    @cached_property
    def outline(self) -> Outline:
        """The structure."""
        return self.language.outline(self.text)

    @cached_property
    def bullets(self) -> list[Bullet]:
        """The most informative lines, best first."""
        return bullets(self.text, self.language, self.outline)

    @cached_property
    def tokens(self) -> int:
        """Estimated tokens of the text."""
        return count_tokens(self.text.text)

    def names(self) -> Names:
        """Return the symbols and headings; of JSON the keys."""
        if self.language.name == "json":
            return Names("keys", [(name, Place(line, col)) for name, line, col in keys_of(self.text.lines)])
        return Names(self.outline.what, [(name, Place(line)) for name, line in symbols_of(self.outline)])

    def find(self, pos: str) -> Place:
        """Return the line of a symbol, heading, key or "/pattern/". Raises BadPolicy with what is like it."""
        pattern = pattern_of(pos)
        if pattern is None:
            return self.names().find(self.label, pos)
        line = find_pattern(pattern, self.text.lines)
        if line is None:
            raise no_place(self.label, pos)
        return Place(line)

    def tokens_of(self, chars: int) -> int:
        """Return an estimate for `chars` characters of this text, from the price of its average one."""
        return max(1, self.tokens * chars // max(len(self.text.text), 1))

    def headline(self, shown: str = "") -> str:
        """Return the first line of a rendering."""
        text = self.text
        lines = plural(len(text.lines), "lines") if text.whole else ""
        # Of an excerpt the remark says the size; of an object's text it says nothing.
        size = format_size(text.size) if text.whole and text.size >= 0 else ""
        return " · ".join(part for part in (self.label, shown or lines, size, *text.remarks) if part)


def lines_document(label: str, lines: Sequence[str], fingerprint: str = "", size: int = -1) -> Document:
    """Return some lines as a text in no language; of size -1 no size is shown."""
    return Document(label, "", make_text("\n".join(lines), size=size, fingerprint=fingerprint))


def excerpt(document: Document, window: Window, budget: int) -> Draft:
    """Level 0: lines from the position on, as they stand."""
    lines = window.lines
    if not lines:
        return Draft(document.headline("empty"))

    def numbers(k: int) -> str:
        about = "" if window.exact else "~"
        if window.total is not None and k == window.total:
            return plural(k, "lines")
        total = f"{window.total:,}" if window.total is not None else f"~{window.estimate:,}"
        if window.indexed is not None:
            total += f" (indexing, {window.indexed} %)"
        last = window.line + max(k - 1, 0)
        span = f"line {about}{window.line}" if k < 2 else f"lines {about}{window.line}-{last}"
        column = f" from column {window.col}" if window.col else ""
        return f"{span}{column} of {total}{PAST_END if window.past_end else ''}"

    def rest(k: int, chars: int = 0) -> int:
        """Return the tokens after `k` lines and `chars` characters."""
        shown = sum(map(len, lines[:k])) + k + chars
        whole = window.left if window.offset is not None else everything
        return document.tokens_of(max(whole - shown, 1))

    def build(k: int) -> str:
        place = window.place_after(k)
        count = window.total - window.line - k if window.total is not None and window.exact else 0
        mark = [marked(count, "lines", rest(k), place)] if place is not None else []
        return "\n".join([document.headline(numbers(k)), *lines[:k], *mark])

    def after(n: int) -> str | None:
        """Return the position after `n` characters of the first line; None where that is where it is already."""
        if n >= len(lines[0]):
            return window.place_after(1)
        return window.place_after(0, n) if n > 0 else None

    def build_long(n: int) -> str:
        mark = marked(0, "", rest(0, n), after(n))
        return "\n".join([document.headline(numbers(1)), *([lines[0][:n]] if n else []), mark])

    everything = sum(map(len, lines)) + len(lines)
    k, text = fit(len(lines), build, budget, guess=budget // 12 + 1)
    if k >= 1:
        place = window.place_after(k)
        return Draft(text, cut_tokens=rest(k) if place is not None else 0, next_pos=place)
    n, text = fit(len(lines[0]), build_long, budget, guess=2 * budget)  # not one line fits: how the first begins
    return Draft(text, cut_tokens=rest(0, max(n, 0)), next_pos=after(max(n, 0)))


def structure(document: Document, place: Place, budget: int) -> Draft:
    """Level 1: symbols, headings or columns, then lines near the position where there is room."""
    outline = document.outline
    # Documentation and imports give way where they would leave no room for the structure itself.
    heads = ([document.headline(), *outline.head[:n]] for n in (len(outline.head), 1, 0))
    head = next((head for head in heads if 2 * count_tokens("\n".join(head)) <= budget), [document.headline()])
    if not outline.entries:
        draft = fit_lines(head, outline.lines, budget, "lines")
        return draft if draft.cut_tokens else _with_nearby(document, draft, place, budget)
    share = budget if budget >= NO_CAP or not (place.line or place.offset) else max(1, budget * 3 // 4)
    richest = 0
    for depth, docs in DETAILS:
        lines, kept = entry_lines(outline.entries, depth, docs)
        body = "\n".join(lines)
        tokens = count_tokens(body)
        richest = richest or tokens
        cut = max(1, richest - tokens) if (depth, docs) != DETAILS[0] else 0
        omitted = len(outline.entries) - len(kept)
        note = [marked(omitted, f"nested {outline.what}" if omitted else "", cut)] if cut else []
        text = "\n".join([*head, *lines, *note])
        if count_tokens(text) <= share:
            return _with_nearby(document, Draft(text, cut_tokens=cut), place, budget)
    lines, kept = entry_lines(outline.entries, DETAILS[-1][0], DETAILS[-1][1])
    first = 0
    if place.line:  # begin with the entry that the position lies in
        first = max(0, next((i for i, e in enumerate(kept) if e.line > place.line), len(kept)) - 1)
    before = [f"[… {first:,} {outline.what} before]"] if first else []
    rest = kept[first:]
    draft = fit_lines([*head, *before], lines[first:], share, outline.what, place=lambda k: str(rest[k].line))
    return _with_nearby(document, draft, place, budget) if share < budget else draft


def _with_nearby(document: Document, draft: Draft, place: Place, budget: int) -> Draft:
    room = budget - count_tokens(draft.text) - 2
    if budget >= NO_CAP or room < _NEARBY_TOKENS or document.language.name == "table":
        return draft
    window = whole_window(document.text, place)
    lines = [truncate(line, _LONG_LINE) for line in window.lines[: room + 1]]

    def build(k: int) -> str:
        return "\n".join([draft.text, f"--- from line {window.line} ---", *lines[:k]])

    # A part of the room only: the rest of the text is asked for with level 0.
    k = largest(min(len(lines), 40), lambda n: count_tokens(build(n)) <= budget, guess=10)
    if k < 1:
        return draft
    return replace(draft, text=build(k))


def summary(document: Document, budget: int) -> Draft:
    """Level 2: the most informative lines, in the order of the text."""
    ranked = document.bullets
    head = [document.headline(), *document.outline.head[:1]]
    if 2 * count_tokens("\n".join(head)) > budget:
        head = head[:1]
    with_lines = document.language.name not in ("table", "json", "jsonlines")

    def build(k: int) -> str:
        chosen = sorted(ranked[:k], key=lambda bullet: bullet.line) if with_lines else ranked[:k]
        shown = [f"- {f'{bullet.line}: ' if with_lines else ''}{bullet.text}" for bullet in chosen]
        mark = [marked(len(ranked) - k, "points", cut(k))] if k < len(ranked) else []
        return "\n".join([*head, *shown, *mark])

    def cut(k: int) -> int:
        return max(1, count_tokens("\n".join(bullet.text for bullet in ranked[k:])))

    k, text = fit(len(ranked), build, budget, guess=budget // 30 + 1)
    return Draft(text, cut_tokens=cut(max(k, 0)) if k < len(ranked) else 0)


def difference(document: Document, basis: TextBasis, window: Sequence[str] | None, budget: int) -> Draft:
    """Level 3: a unified diff against what was rendered before; `window` the lines where a window was kept."""
    if basis.fingerprint == document.text.fingerprint:
        return Draft(f"{document.label} · no change")
    if basis.text is not None and document.text.whole:
        old, new, first = basis.text.split("\n"), document.text.text.split("\n"), 0
        if old[-1] == new[-1] == "":
            old.pop()
            new.pop()
    elif window is not None:
        old, new, first = list(basis.window), list(window), basis.window_line
    else:
        return Draft(f"{document.label} · changed: {format_size(basis.size)} → {format_size(document.text.size)}")
    hunks = changes(old, new)
    size = (
        "" if basis.size == document.text.size else f" · {format_size(basis.size)} → {format_size(document.text.size)}"
    )
    if not hunks:
        kept = window is not None
        what = "no change in the window shown last" if kept else "no line changed: encoding or line ends did"
        return Draft(f"{document.label} · {what}{size}")
    part = "" if window is None else " · of the window shown last"
    head = f"{document.label} · changed, {counted(hunks)}{size}{part}"
    return fit_lines([head], unified(old, new, first=first), budget, "lines of the diff")


def make_basis(document: Document, window: Window | None, tail: tuple[int, str] = (0, "")) -> TextBasis:
    """Return what a later diff needs: the whole text up to `BASIS_CHARS`, else a window of it."""
    text = document.text
    if text.whole and len(text.text) <= BASIS_CHARS:
        return TextBasis(text.fingerprint, text.size, text.text)
    kept: list[str] = []
    room = _BASIS_WINDOW_CHARS
    for line in window.lines if window else ():
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return TextBasis(text.fingerprint, text.size, None, tuple(kept), window.line if window else 0, tail)


def render_text(
    document: Document,
    window: Window,
    request: RenderRequest,
    place: Place,
    budget: int,
    *,
    changes_since: Callable[[TextBasis], Draft] | None = None,
    tail: tuple[int, str] = (0, ""),
) -> Draft:
    """Render a text at any level; `changes_since` renders the diff of one that is not held whole."""
    basis = request.basis
    if request.lod == 0:
        draft = excerpt(document, window, budget)
    elif request.lod == 1:
        draft = structure(document, place, budget)
    elif request.lod == 2:
        draft = summary(document, budget)
    elif not isinstance(basis, TextBasis):
        before = f"was: {basis.about}" if isinstance(basis, PlainBasis) else "nothing rendered before"
        draft = as_now(structure(document, place, max(1, budget - 12)), before)
    elif changes_since is not None:
        draft = changes_since(basis)
    else:
        draft = difference(document, basis, None if basis.text is not None else window.lines, budget)
    notes = (*document.text.remarks, *draft.notes)
    basis = make_basis(document, window, tail)
    return replace(draft, fingerprint=document.text.fingerprint, basis=basis, notes=notes)


def render_document(document: Document, request: RenderRequest, place: Place, budget: int) -> Draft:
    """Render a text that is held whole, at any level."""
    return render_text(document, whole_window(document.text, place), request, place, budget)
