"""Level 0 of a text: lines from the position on, as they stand, and how the next one begins.

Rule 1: a position that goes on shows a begun line whole; a first line that is too long is gone through by column.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import accumulate, islice, takewhile

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.text import plural
from ctxkernel.projection.tokens import count_tokens, largest, most_chars
from ctxkernel.sources.base.amounts import FULL_ADVICE, Amounts, Line, NamedLine, marked, more
from ctxkernel.sources.base.fitting import NO_CAP, advised, beginning, fit, fullest
from ctxkernel.sources.base.large_files import Window
from ctxkernel.sources.base.rendering import PAST_END, Draft

_LEAST_PART = 12
"""Characters of a line whose beginning is shown."""


@dataclass(frozen=True)
class Excerpt:
    """The lines of a window that has some."""

    window: Window
    headline: Callable[[str], str]
    """Returns the first line, with what is shown."""
    tokens_of: Callable[[int], int]
    """Returns the tokens of so many characters."""
    whole: bool
    """Whether the text was read whole."""

    def within(self, budget: int) -> Draft:
        """Return as many of the lines as fit."""
        if (draft := self._lines(budget, grows=False)) is not None:
            return fullest(budget, lambda grows, placed: (self._lines(budget, grows=True) if grows else None) or draft)
        return fullest(budget, lambda grows, placed: self._part(budget, FULL_ADVICE * grows, placed))

    def _part(self, budget: int, advice: str, placed: bool) -> Draft:
        """Return how the first line begins."""
        first = self.window.lines[0]

        def build(n: int) -> str:
            mark = marked("", self._rest(0, n), self._after(n) if placed else None, advice=advice)
            return "\n".join([self.headline(self._span(1)), *([first[:n]] if n else []), mark])

        n, text = fit(len(first), build, budget, guess=2 * budget)
        return Draft(text, cut_tokens=self._rest(0, max(n, 0)), next_pos=self._after(max(n, 0)))

    def _lines(self, budget: int, *, grows: bool) -> Draft | None:
        """Return as many lines as fit and how the next one begins; None where not one fits."""
        lines, least = self.window.lines, FULL_ADVICE * grows
        k, text = fit(self._most(budget), lambda k: self._text(k, least), budget, guess=budget // 12 + 1)
        if k < 1:
            return None
        place = self.window.place_after(k)
        if budget < NO_CAP and (k < len(lines) or place is not None):
            begun = 0
            if k < len(lines):
                most = len(lines[k]) - 1  # the whole line would need the position after it
                n = largest(most, lambda n: count_tokens(self._text(k, least, n)) <= budget, budget // 4)
                begun = n if len(beginning(lines[k], n)) > _LEAST_PART else 0
            text = advised(lambda advice: self._text(k, advice, begun), budget)
        return Draft(text, cut_tokens=self._rest(k) if place is not None else 0, next_pos=place)

    def _text(self, k: int, advice: str, begun: int = 0) -> str:
        """Return the text with `k` lines and so many characters of the next one."""
        window = self.window
        place = window.place_after(k)
        mark = [marked(self._amount(k + bool(begun)), self._rest(k), place, advice=advice)] if place is not None else []
        if place is None and window.offset is None and not self.whole:
            mark = ["[… the rest was not read]"]
        shown = [*window.lines[:k], *([beginning(window.lines[k], begun)] if begun else [])]
        return "\n".join([self.headline(self._span(k)), *shown, *mark])

    def _span(self, k: int) -> str:
        """Return which lines `k` of them are."""
        window = self.window
        if window.total is not None and k == window.total:
            return plural(k, "lines")
        last = window.line + max(k - 1, 0)
        span = f"line {window.about}{window.line}" if k < 2 else f"lines {window.about}{window.line}-{last}"
        column = f" from column {window.col}" if window.col else ""
        return f"{span}{column} of {window.of}{past_end(window, self.whole)}"

    def _rest(self, k: int, chars: int = 0) -> int:
        """Return the tokens after `k` lines and `chars` characters."""
        window = self.window
        left = window.left
        if window.offset is None:
            unread = max(0, window.total - window.known) if window.total is not None else 0
            left = self._size
            left += left * unread // len(window.lines)
        return self.tokens_of(max(left - sum(map(len, islice(window.lines, k))) - k - chars, 1))

    def _most(self, budget: int) -> int:
        """Return a number of lines of which no more can be within a budget: a text of megabytes is never counted."""
        room, lines = most_chars(budget), self.window.lines
        lengths = accumulate(len(line) + 1 for line in islice(lines, min(len(lines), room)))
        return len(lines) if budget >= NO_CAP else sum(1 for _ in takewhile(lambda chars: chars <= room + 1, lengths))

    def _amount(self, k: int) -> str:
        """Return what is after `k` lines."""
        window, lines = self.window, self.window.lines
        if window.total is None:
            return more(len(lines) - k, "lines", exact=False) if window.offset is None else ""
        if not window.exact:
            return ""
        inside = [line for at, line in self._others if at >= k]
        left = more(window.total - window.line - k, "lines")
        return ", ".join(filter(None, (left, Amounts(inside, "lines").after(0))))

    @cached_property
    def _size(self) -> int:
        """The characters of all lines."""
        return sum(map(len, self.window.lines)) + len(self.window.lines)

    @cached_property
    def _others(self) -> list[tuple[int, Line]]:
        """The lines that stand for something else than lines, with their places."""
        found = [(at, line) for at, line in enumerate(self.window.lines) if isinstance(line, Line)]
        return [(at, line) for at, line in found if not isinstance(line, NamedLine) and line.what not in ("", "lines")]

    def _after(self, n: int) -> str | None:
        """Return the position after `n` characters of the first line; None where that is where it is already."""
        if n >= len(self.window.lines[0]):
            return self.window.place_after(1)
        return self.window.place_after(0, n) if n > 0 else None


def past_end(window: Window, whole: bool) -> str:
    """Return the remark on a position past the end of a text, or of what was read of one that is not `whole`."""
    if not window.past_end:
        return ""
    return PAST_END if whole or window.offset is not None else " (the position is past what was read)"
