"""The amounts that a rendering leaves out, the mark that tells them, and the lines that are within some tokens.

Rule 1: items shown + "more" = items of the target. A line of a list stands for one item unless it is a `Line`.
Rule 2: a total of which only a lower bound is known has a `+`: `[… 1,990+ more entries]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

from ctxkernel.core.text import plural
from ctxkernel.projection.tokens import count_tokens, largest, most_chars


class Line(str):
    """A line of a list that stands for `items` items called `what`: for none, as a heading, or for many.

    An empty `what` is that of the list. `exact` is false where there may be more of them. Among `NamedLine`s, lines of
    a lower `rank` get room first.
    """

    items: int
    what: str
    exact: bool
    rank: int
    __slots__ = ("exact", "items", "rank", "what")

    def __new__(cls, text: str, items: int = 0, what: str = "", *, exact: bool = True, rank: int = 0) -> Line:
        """Return the line."""
        line = super().__new__(cls, text)
        line.items, line.what, line.exact, line.rank = items, what, exact, rank
        return line

    def indented(self, by: str) -> Line:
        """Return the line with `by` before it."""
        return Line(f"{by}{self}", self.items, self.what, exact=self.exact, rank=self.rank)


def as_line(line: str) -> Line:
    """Return a line of a list as a `Line`: a plain text stands for one item."""
    return line if isinstance(line, Line) else Line(line, 1)


class NamedLine(Line):
    """A line about one thing that has a name. See `planner` for what is shown of it in which order.

    Without room for the line, `name` stands in the list of the things of its `kind`, or `short` in place of the line.
    Of one rank those of a higher `worth` come first. One of a greater `depth` than the line before it is part of that
    one's thing. Of one that is `partial` more is known than the line says.
    """

    name: str
    kind: str
    short: str
    depth: int
    worth: int
    partial: bool
    __slots__ = ("depth", "kind", "name", "partial", "short", "worth")

    def __new__(
        cls,
        text: str,
        name: str = "",
        kind: str = "",
        *,
        what: str = "",
        short: str = "",
        depth: int = 0,
        worth: int = 0,
        rank: int = 0,
        partial: bool = False,
    ) -> NamedLine:
        """Return the line."""
        line = super().__new__(cls, text, 1, what, rank=rank)
        assert isinstance(line, NamedLine)
        line.name, line.kind, line.short, line.depth, line.worth = name, kind, short, depth, worth
        line.partial = partial
        return line

    def indented(self, by: str) -> NamedLine:
        """Return the line with `by` before it."""
        return self.with_text(f"{by}{self}", self.short and f"{by}{self.short}")

    def with_text(self, text: str, short: str = "") -> NamedLine:
        """Return a line about the same thing."""
        kept: dict[str, Any] = {name: getattr(self, name) for name in ("what", "depth", "worth", "rank", "partial")}
        return NamedLine(text, self.name, self.kind, short=short, **kept)


UNUSUAL, CHANGED, ASKED = 10, 20, 40
"""The value of a line that is unusual, that changed since the model saw it, that the last question names: from the
first on its whole text comes before the names of others."""
FULL_ADVICE = "h.tokens shows more"
ADVICE = (FULL_ADVICE, "h.tokens")
"""The advice that a mark may give, the longest first."""
LAST = 9
"""The rank of a line that says how many more there are: after all of them."""


def more_lines(count: int, what: str, *, exact: bool = True) -> list[Line]:
    """Return the line that says how many more `what` there are; no line where there are none."""
    if count <= 0:
        return []
    return [Line(f"[… {_more(count, what, exact)}]", count, what, exact=exact, rank=LAST)]


def indented(lines: Iterable[str], by: str = "  ") -> list[str]:
    """Return lines with `by` before each; they stand for what they stood for."""
    return [line.indented(by) if isinstance(line, Line) else f"{by}{line}" for line in lines]


def is_cut(lines: Iterable[str]) -> bool:
    """Return whether something may be left out of some lines: `…` says so, wherever it stands."""
    return any("…" in line for line in lines)


def bounded(lines: Sequence[str], most: int, what: str = "lines") -> list[str]:
    """Return at most the first `most` lines of a list, then the amount of the others."""
    if len(lines) <= most:
        return list(lines)
    amounts = Amounts(lines, what)
    return [*lines[:most], Line(f"[… {amounts.after(most)}]", amounts.count_after(most), what, rank=LAST)]


def marked(amount: str, tokens: int, pos: str | None = None, *, advice: str = FULL_ADVICE) -> str:
    """Return the line that stands for the content that was left out: `amount` as `Amounts.after` or `more` gives it.

    `advice` is one of `ADVICE` where a larger budget would show more, or empty.
    """
    moves = [f'h.pos = "{pos}" goes on'] * (pos is not None) + [advice] * bool(advice)
    told = f"{f'{amount}, ' if amount else ''}~{tokens:,} tokens"
    return f"[… {'; '.join([told, *([', '.join(moves)] if moves else [])])}]"


def more(count: int, what: str, *, exact: bool = True) -> str:
    """Return `12 more lines`; empty for no more."""
    return _more(count, what, exact) if count > 0 else ""


def _more(count: int, what: str, exact: bool) -> str:
    return plural(count, f"more {what}") if exact else f"{count:,}+ more {what}"


class Amounts:
    """The items that each line of a list stands for."""

    def __init__(self, lines: Sequence[str], what: str, hidden: Sequence[Line] = ()) -> None:
        """`hidden` are lines that are never shown, only counted."""
        self._lines, self._what, self._length = lines, what, len(lines)
        self._special = [(at, line) for at, line in enumerate(lines) if isinstance(line, Line)]
        self._special += [(len(lines), line) for line in hidden]
        weights = [max(line.items, 1) if isinstance(line, Line) else 1 for line in lines]
        rest = sum(line.items for line in hidden)
        self._weights = [*accumulate(reversed(weights), initial=rest)][::-1]

    def after(self, k: int) -> str:
        """Return the amount after the first `k` lines: `35 more items, 2 more rows`; empty for none."""
        return self.without(range(min(k, self._length)))

    def without(self, shown: Iterable[int]) -> str:
        """Return the amount of all lines but those with the numbers `shown`; empty for none."""
        shown = frozenset(shown)
        counts = self._totals.copy()
        for at in shown:
            line = self._lines[at]
            what = (line.what if isinstance(line, Line) else "") or self._what
            counts[what] -= line.items if isinstance(line, Line) else 1
        # In the order of the first line that is left of each, that of the list before them.
        first = {what: next((at for at in places if at not in shown), 0) for what, places in self._places.items()}
        first[self._what] = -1
        left = [what for what in sorted(first, key=first.__getitem__) if counts[what] > 0]
        return ", ".join(_more(counts[what], what, not self._inexact[what]) for what in left)

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """By what they are called, the numbers of the lines that say so."""
        found: dict[str, list[int]] = {}
        for at, line in self._special:
            found.setdefault(line.what or self._what, []).append(at)
        return found

    @cached_property
    def _totals(self) -> Counter[str]:
        inside = sum(at < self._length for at, _ in self._special)
        found = Counter({self._what: self._length - inside})
        for _, line in self._special:
            found[line.what or self._what] += line.items
        return found

    @cached_property
    def _inexact(self) -> Counter[str]:
        return Counter(line.what or self._what for _, line in self._special if not line.exact)

    def count_after(self, k: int) -> int:
        """Return the number of items after the first `k` lines, whatever they are."""
        special = [line for at, line in self._special if at >= k]
        inside = sum(k <= at < self._length for at, _ in self._special)
        return self._length - k - inside + sum(line.items for line in special)

    def weight_after(self, k: int) -> float:
        """Return the size of the content after the first `k` lines, as a number of lines."""
        return self._weights[k]


_LINE_TOKENS = 12  # about


def lines_within(lines: Sequence[str], tokens: int, *, last: bool = False) -> int:
    """Return how many of the first (or last) lines are within `tokens`, at least 1 where there is one."""

    def fits(k: int) -> bool:
        return count_tokens("\n".join(lines[len(lines) - k :] if last else lines[:k])) <= tokens

    most = min(len(lines), most_chars(tokens) + 1)  # each has a line end, which is a character
    return min(max(largest(most, fits, tokens // _LINE_TOKENS), 1), len(lines))


def moved(lines: Sequence[str], line: int, tokens: int) -> int:
    """Return the line that is `tokens` after (before, if negative) line `line`; 0 … len(lines) - 1."""
    if tokens < 0:
        line = min(line, len(lines))  # from past the end, the last one is the first to come
        return line - lines_within(lines[:line], -tokens, last=True)
    line = min(line, len(lines) - 1)
    return min(line + lines_within(lines[line:], tokens), len(lines) - 1) if tokens else line
