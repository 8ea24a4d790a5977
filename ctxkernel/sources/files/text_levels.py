"""The four levels of detail of a text, for every source that has one.

Rule 1: each level is a function from a text (or a window of one) and a budget to a `Draft`.
Rule 2: the first line says what is shown, of what, and how much there is.
Rule 3: where only a part of the text was read, the rendering says which part, and its counts have a `+` or a `~`.
Rule 4: in a summary the bullets with the best scores are shown, in the order of the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size, plural, truncate
from ctxkernel.core.text_diff import changes, counted, unified
from ctxkernel.projection.tokens import count_tokens, largest
from ctxkernel.sources.base.amounts import Line, NamedLine, marked
from ctxkernel.sources.base.fitting import NO_CAP
from ctxkernel.sources.base.large_files import Window, whole_window
from ctxkernel.sources.base.planner import MOST_NAMED, most_named
from ctxkernel.sources.base.rendering import Draft, Place, as_now, fit_lines
from ctxkernel.sources.files.excerpts import Excerpt, past_end
from ctxkernel.sources.files.text_documents import Document
from ctxkernel.sources.outlines.outline import FACTS

BASIS_CHARS = 2 << 20
"""Longest text that is kept whole for a later diff; of a longer one a window is kept."""
_BASIS_WINDOW_CHARS = 64 << 10
_NEARBY_TOKENS = 64
"""Least room in which lines near the position are added to a structure."""
_NEARBY_LINES, _NEARBY_HEAD = 40, 24
"""So many lines are added at most, below a line of about so many tokens."""
_LONG_LINE = 2000


@dataclass(frozen=True, slots=True)
class TextBasis:
    """The basis of a later diff. `text` None: only the window's lines were kept."""

    fingerprint: str
    size: int
    text: str | None
    window: tuple[str, ...] = ()
    window_line: int = 0
    tail: tuple[int, str] = (0, "")
    """(bytes, hash of the last ones before them) of a file too large to keep, to see that it only grew."""

    @property
    def where(self) -> str:
        """The part of the text that this basis holds."""
        return "whole" if self.text is not None else f"{self.window_line}+{len(self.window)}"


@dataclass(frozen=True, slots=True)
class PlainBasis:
    """The basis of what has no lines: its fingerprint and one line about it."""

    fingerprint: str
    about: str


def excerpt(document: Document, window: Window, budget: int) -> Draft:
    """Return level 0: lines from the position on, as they stand."""
    if not window.lines:
        return Draft(document.headline("empty"))
    return Excerpt(window, document.headline, document.tokens_of, document.text.whole).within(budget)


def structure(document: Document, window: Window, place: Place, budget: int) -> Draft:
    """Return level 1: symbols, headings or columns, then lines of `window` at the position, where there is room."""
    outline, unread = document.outline, document.unread(document.outline.what)
    head = _head(document, budget)
    # Lines at the position get a quarter, if that is enough for any.
    nearby = budget // 4 if (place.line or place.offset) and 4 * (_NEARBY_TOKENS + 2) <= budget < NO_CAP else 0
    if nearby:
        some = "\n".join(truncate(line, _LONG_LINE) for line in window.lines[:_NEARBY_LINES])
        nearby = min(nearby, max(count_tokens(some) + _NEARBY_HEAD, _NEARBY_TOKENS + 2))
    share = budget - nearby
    if not outline.entries:
        return _facts_and_lines(document, window, head, share if document.is_log else budget, budget)
    lines = document.entries
    imports = [Line(line, rank=2) for line in head if line.startswith("imports: ")]
    head = [line for line in head if line not in imports]
    outer = [at for at, entry in enumerate(outline.entries) if not entry.depth] or [0]
    begin = 0
    if place.line and budget < NO_CAP and count_tokens("\n".join([*head, *lines])) > share:
        # begin with the entry that the position lies in
        begin = max(sum(outline.entries[at].line <= place.line for at in outer) - 1, 0)

    def fitted(begin: int, room: int) -> Draft:
        """Return what fits from the outermost entry with this number on."""
        first = outer[begin]
        kept: Sequence[int] = range(first, len(lines))
        if len(kept) > MOST_NAMED and budget < NO_CAP:
            kept = outer[begin : begin + MOST_NAMED]
        shown = set(kept)
        left_out = Counter(lines[at].what for at in range(first, len(lines)) if at not in shown)
        passed = Counter(line.what or outline.what for line in lines[:first])
        before = ", ".join(plural(count, what) for what, count in passed.items())

        def place_of(k: int) -> str | None:
            """Return the position of the first line from `k` on that is further on."""
            some = (outline.entries[kept[at]].line for at in range(k, len(kept))) if k > 0 else ()
            return next((str(line) for line in some if line > place.line), None)

        return fit_lines(
            [*head, *[f"[… {before} before]"] * bool(passed)],
            [*imports, *(lines[at] for at in kept), *unread],
            room,
            outline.what,
            place=lambda k: place_of(k - len(imports)),
            hidden=[Line("", count, what) for what, count in left_out.items()],
        )

    draft = fitted(begin, share)
    if begin and not draft.cut_tokens:  # there is room for entries before
        begin -= max(largest(begin, lambda k: not fitted(begin - k, share).cut_tokens, 4), 0)
        draft = fitted(begin, share)
    shown = _with_nearby(document, window, draft, budget)
    if not outline.begun or draft.cut_tokens or shown is not draft:
        return shown
    marks = _marks_of_rest(document)  # nothing else says that the paragraphs go on
    texts = (f"{draft.text}\n{mark}" for mark in marks)
    text = next((text for text in texts if count_tokens(text) <= budget), None)
    if text is None:
        return fitted(begin, max(1, share - count_tokens(marks[-1]) - 1))
    return replace(draft, text=text)


def _head(document: Document, budget: int) -> list[str]:
    """Return the first lines: documentation and imports give way where they would leave no room for the structure."""
    headline, more = document.headline(read=True), document.outline.head
    heads = ([headline, *more[:n]] for n in (len(more), 1, 0))
    return next((head for head in heads if 2 * count_tokens("\n".join(head)) <= budget), [headline])


def _facts_and_lines(document: Document, window: Window, head: list[str], room: int, budget: int) -> Draft:
    """Return the structure of a text without entries: its facts in `room`, then lines at the position."""
    outline, unread = document.outline, document.unread(document.outline.what)
    rest = unread if document.language.name not in FACTS else []  # these say so themselves
    rows, hidden = (outline.lines, []) if budget >= NO_CAP else most_named(outline.lines, outline.unit)
    draft = fit_lines(head, [*rows, *rest], room, outline.unit, hidden=hidden)
    draft = replace(draft, rows={**draft.rows, **outline.table})
    return _with_nearby(document, window, draft, budget) if room < budget or not draft.cut_tokens else draft


def _marks_of_rest(document: Document) -> list[str]:
    """Return the marks of what paragraphs have beyond the beginnings that an outline shows, the longest first."""
    shown = count_tokens("\n".join(entry.text for entry in document.outline.entries))
    return [marked("", max(1, document.tokens - shown), advice=advice) for advice in ("h.lod = 0 shows all", "")]


def _with_nearby(document: Document, window: Window, draft: Draft, budget: int) -> Draft:
    room = budget - count_tokens(draft.text) - 2
    if budget >= NO_CAP or room < _NEARBY_TOKENS or document.language.name == "table":
        return draft
    lines = [truncate(line, _LONG_LINE) for line in window.lines[: room + 1]]

    def build(k: int) -> str:
        part = "" if window.place_after(k) is None else f", {k} of {window.of} lines"
        where = f"from line {window.about}{window.line}{part}{past_end(window, document.whole)}"
        return "\n".join([draft.text, f"--- {where} ---", *lines[:k]])

    # A part of the room only: the rest of the text is asked for with level 0.
    k = largest(min(len(lines), _NEARBY_LINES), lambda n: count_tokens(build(n)) <= budget, guess=10)
    if k < 1:
        return draft
    return replace(draft, text=build(k))


def summary(document: Document, budget: int) -> Draft:
    """Return level 2: the most informative lines, in the order of the text; of a table, its columns' statistics."""
    if (table := document.table) is not None:
        head = [document.headline(read=True), table.headline]
        if 2 * count_tokens("\n".join(head)) > budget:
            head = head[:1]
        lines = table.statistic_lines()
        rows, hidden = (lines, []) if budget >= NO_CAP else most_named(lines, "columns")
        return fit_lines(head, rows, budget, "columns", hidden=hidden)
    points = document.points
    ranked, part = points.bullets, document.read or points.scanned
    headline = document.headline(read=True) + (f" · {points.scanned}" if points.scanned else "")
    head = [headline, *document.outline.head[:3]]
    if 2 * count_tokens("\n".join(head)) > budget:
        head = head[:1]
    with_lines = document.language.name not in ("json", "jsonlines", "xml")
    rows = [
        PointLine(
            (bullet.line, bullet.part) if with_lines else (at, 0),
            f"- {f'{bullet.about}{bullet.line}: ' if with_lines else ''}",
            bullet.text,
            bullet.short,
            bullet.rank,
        )
        for at, bullet in enumerate(ranked)
    ]
    return best_points(head, rows, budget, exact=not part, others=points.others)


@dataclass(frozen=True, slots=True)
class PointLine:
    """A point of a summary, with its place; see `Bullet` for `short` and `rank`."""

    place: tuple[int, int]
    before: str
    text: str
    short: str = ""
    rank: int = 0


def best_points(
    head: Sequence[str], ranked: Sequence[PointLine], budget: int, *, exact: bool = True, others: Sequence[Line] = ()
) -> Draft:
    """Return as many of some points, best first, as fit, in the order of their places.

    `others` are lines that say how many more points there are.
    """
    best = sorted(enumerate(ranked[:MOST_NAMED]), key=lambda row: row[1].place)
    lines = [
        NamedLine(one.before + one.text, short=one.short and one.before + one.short, worth=-at, rank=one.rank)
        for at, one in best
    ]
    more = len(ranked) - len(lines) + sum(line.items for line in others)
    exact = exact and all(line.exact for line in others)
    hidden = [Line("", more, "points", exact=exact)] if more or not exact else []
    return fit_lines(head, lines, budget, "points", hidden=hidden)


def difference(document: Document, basis: TextBasis, window: Sequence[str] | None, budget: int) -> Draft:
    """Return level 3: a unified diff against what was rendered before; `window` the lines where a window was kept."""
    if basis.fingerprint == document.text.fingerprint:
        return Draft(f"{document.label} · no change{' in what was read of it' * document.partial}")
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


def with_basis(draft: Draft, document: Document) -> Draft:
    """Return a draft with the fingerprint of a text that is held whole, and what a later diff of it needs."""
    basis = make_basis(document, whole_window(document.text, Place()))
    return replace(draft, fingerprint=document.text.fingerprint, basis=basis)


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
        draft = structure(document.begun, window, place, budget)
    elif request.lod == 2:
        draft = summary(document.begun, budget)
    elif not isinstance(basis, TextBasis):
        before = f"was: {basis.about}" if isinstance(basis, PlainBasis) else "nothing rendered before"
        draft = as_now(structure(document.begun, window, place, max(1, budget - 12)), before)
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
