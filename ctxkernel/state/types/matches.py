"""Matches of regular expressions, which Python does not store: the expression finds them again in the same text."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any

from ctxkernel.core.reflection import class_of
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, OutOfTime, Reduction, StreamConstructors

_WAYS = ("match", "fullmatch", "search")


class MatchSeries:
    """All matches of an expression in a text, as `finditer` gives them."""

    def __init__(self, pattern: Any, place: tuple[Any, int, int], expired: Callable[[], bool]) -> None:
        self.parts = pattern, *place
        self.numbers: dict[Any, int] = {}
        """By the content of a match, its number."""
        for found in pattern.finditer(*place):
            self.numbers[_content(found)] = len(self.numbers)
            if not len(self.numbers) & 1023 and expired():
                raise OutOfTime


def _content(found: Any) -> tuple[Any, ...]:
    return found.regs, found.lastindex


def match(pack: PackState, obj: re.Match[Any]) -> Reduction:
    """A match: found again by the same call."""
    text = obj.string
    if class_of(text) not in (str, bytes):
        return pack.refuse(obj, "the text in which it was found may have changed")
    place = text, obj.pos, obj.endpos
    for way in _WAYS:
        found = getattr(obj.re, way)(*place)
        if found is not None and _content(found) == _content(obj):
            return PARTS.match, (obj.re, way, *place)
    key = id(obj.re), id(text), obj.pos, obj.endpos
    series = pack.match_series.get(key)
    if series is None:
        series = pack.match_series[key] = MatchSeries(obj.re, place, pack.expired)
    number = series.numbers.get(_content(obj))
    if number is None:
        return pack.refuse(obj, "its expression does not find it again")
    return PARTS.match_of, (series, number)


def pattern(pack: PackState, obj: re.Pattern[Any]) -> Reduction:
    """An expression: by its text, which that of a `re.Scanner` has not."""
    return NotImplemented if obj.pattern is not None else pack.refuse(obj, "it was made of no text")


KINDS: dict[Any, Kind] = {
    re.Pattern: pattern,
    re.Match: match,
    MatchSeries: lambda _, obj: (PARTS.matches, (*obj.parts, len(obj.numbers))),
}


class MatchParts(StreamConstructors):
    """The constructors of matches."""

    def match(self, pattern: Any, way: str, *place: Any) -> Any:
        """Return the match that a method of an expression gives."""
        return getattr(pattern, way)(*place)

    def matches(self, pattern: Any, text: Any, pos: int, endpos: int, count: int) -> list[Any]:
        """Return matches that `finditer` gives."""
        return list(islice(pattern.finditer(text, pos, endpos), count))

    def match_of(self, series: list[Any], number: int) -> Any:
        """Return one of such matches."""
        return series[number]
