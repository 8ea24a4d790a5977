"""How far so many tokens reach: moving by tokens, in whole lines (rows, entries, cells: what positions count).

Rule 1: forward, over the most lines from the position on whose text is within the tokens; back, over the most before
        it. At least over one, so that a long one holds nobody up, and never past the last one.
Rule 2: a line counts whole, wherever in it the position is. So what a move forward skipped, the same move back brings
        into sight again: it ends where the first one began, or before that, where more fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from ctxkernel.projection.tokens import count_tokens, largest, most_chars

_GUESS = 12
"""About the tokens of a line."""


def forward(lines: Sequence[str], tokens: int) -> int:
    """Return how many lines from the beginning are within `tokens`, at least 1 where there is one."""
    within = largest(_most(lines, tokens), lambda k: count_tokens("\n".join(lines[:k])) <= tokens, tokens // _GUESS)
    return min(max(within, 1), len(lines))


def back(lines: Sequence[str], tokens: int) -> int:
    """Return how many lines before the end are within `tokens`, at least 1 where there is one."""
    turned = lines[::-1]  # a text and its reverse by lines have the same breaks between the same lines

    def fits(k: int) -> bool:
        return count_tokens("\n".join(turned[:k][::-1])) <= tokens

    return min(max(largest(_most(turned, tokens), fits, tokens // _GUESS), 1), len(lines))


def _most(lines: Sequence[str], tokens: int) -> int:
    """Return a number of lines that no text of so many tokens exceeds: each has a line end, which is a character."""
    return min(len(lines), most_chars(tokens) + 1)


def moved(lines: Sequence[str], line: int, tokens: int) -> int:
    """Return the line that is `tokens` after (before, if negative) line `line`; 0 … len(lines) - 1."""
    if tokens < 0:
        line = min(line, len(lines))  # from past the end, the last one is the first to come
        return line - back(lines[:line], -tokens)
    line = min(line, len(lines) - 1)
    return min(line + forward(lines[line:], tokens), len(lines) - 1) if tokens else line
