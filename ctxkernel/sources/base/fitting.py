"""Fitting into a budget: the most items, the longest beginning of a line, and the advice of a mark.

Rule 1: a mark advises a larger budget where content leaves room for that, in a large one always.
Rule 2: where more than a twentieth of a budget remains, content replaces the advice, and in a small one the position.
Rule 3: no part of a number is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, TypeVar

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.marks import cut_to, parted, shorter
from ctxkernel.projection.tokens import count_tokens, largest, trim_to_tokens
from ctxkernel.sources.base.amounts import ADVICE, LAST, Line, NamedLine

NO_CAP = 1 << 40
"""The budget that stands for `All`."""
_ADVISED = 100
"""Below this budget, marks advise a larger one only where content leaves room for the advice."""
_ENOUGH = 0.95
"""The part of a budget that is used where something is cut, unless every other way uses less."""
_LEAST_LETTERS = 3
"""A word of which fewer letters have room is left out of a beginning."""
_PART_OF_NUMBER = re.compile(r"[+-]?\d[\d.]*(?:[eE][+-]?\d*)?$")
_BEFORE_SIGN = re.compile(r"\d[eE]$")
_OPEN_RANGE = re.compile(r",?\s*\S+ …\s*$")
_PART_OF_WORD = re.compile(rf"\s+\S{{0,{_LEAST_LETTERS - 1}}}$")


@dataclass(frozen=True, slots=True)
class Planned:
    """A text within its budget."""

    text: str
    cut_tokens: int = 0
    next_pos: str | None = None


def fit(high: int, build: Callable[[int], str], budget: int, guess: int = 64) -> tuple[int, str]:
    """Return (k, build(k)) for a largest k in 0 … high whose text is within `budget`.

    `build(k)` is the whole text with k items, marks included. Where even build(0) is too much, its
    beginning and its mark are returned with k = -1.
    """
    if budget >= NO_CAP:
        return high, build(high)
    k = largest(high, lambda n: count_tokens(build(n)) <= budget, guess)
    return (k, build(k)) if k >= 0 else (-1, squeezed(build(0), budget))


def advises(budget: int) -> bool:
    """Return whether each mark in a text of this budget advises a larger one."""
    return _ADVISED <= budget < NO_CAP


class Cut(Protocol):
    """A text that something may be cut from."""

    @property
    def text(self) -> str:
        """All of it, with its marks."""
        ...

    @property
    def cut_tokens(self) -> int:
        """The number that is cut; 0 for none."""
        ...


Found = TypeVar("Found", bound=Cut)


def fullest(budget: int, build: Callable[[bool, bool], Found]) -> Found:
    """Return `build(grows, placed)` for the most that its mark can advise, unless it uses more of the budget with less.

    `grows` says that a mark advises a larger budget even where that takes room from content, `placed` that it names a
    position.
    """
    found = build(advises(budget), True)
    used = count_tokens(found.text)
    for grows, placed in ((False, True), (False, False)) if advises(budget) else ((False, False),):
        if not found.cut_tokens or used >= _ENOUGH * budget or budget >= NO_CAP:
            break
        other = build(grows, placed)
        if (tokens := count_tokens(other.text)) > used:
            found, used = other, tokens
    return found


def squeezed(text: str, budget: int, cut: bool = False, *, items: bool = False) -> str:
    """Return `text` cut to `budget`, the mark at its end kept, or a shorter one; `cut` says that there must be one.

    `items` says that the text has some of the items that its mark counts: without them the count would be false.
    """
    head, mark = parted(text)
    marks = shorter(mark) if mark or cut else []
    return cut_to(head, marks, budget, count_tokens, trim_to_tokens, items=items)


def advised(build: Callable[[str], str], budget: int) -> str:
    """Return the text with the longest advice in its mark that has room."""
    return next((text for advice in ADVICE if count_tokens(text := build(advice)) <= budget), None) or build("")


def may_begin(line: str) -> bool:
    """Return whether a line may be cut at its end. A heading or a number of things is shown whole or not at all."""
    return not isinstance(line, Line) or isinstance(line, NamedLine) or (line.items <= 1 and line.rank < LAST)


def beginning(line: str, chars: int) -> str:
    """Return the first characters of a line and an ellipsis; the line if these are all.

    No part of a number, and no range without its end, is in it.
    """
    if chars >= len(line):
        return line
    part = line[: max(chars, 0)]
    if part[-1:].isalnum() and line[chars].isalnum():
        part = _PART_OF_WORD.sub("", part) or part
    if line[chars].isalnum() or line[chars] in ".," or _BEFORE_SIGN.search(part):
        part = _PART_OF_NUMBER.sub("", part)
    return f"{_OPEN_RANGE.sub('', part).rstrip()}…"
