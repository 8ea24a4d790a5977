"""Matches of regular expressions, which Python does not store: the expression finds them again in the same text.

Rule: no expression runs while a match is packed: it may take as long as it took in the user's cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.reflection import class_of
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, Reduction, StreamConstructors


def match(pack: PackState, obj: re.Match[Any]) -> Reduction:
    """A match: where it was looked for, and its content."""
    if class_of(obj.string) not in (str, bytes):
        return pack.refuse(obj, "the text in which it was found may have changed")
    return PARTS.match, (obj.re, obj.string, obj.pos, obj.endpos, *_content(obj))


def pattern(pack: PackState, obj: re.Pattern[Any]) -> Reduction:
    """An expression: by its text, which that of a `re.Scanner` has not."""
    return NotImplemented if obj.pattern is not None else pack.refuse(obj, "it was made of no text")


KINDS: dict[Any, Kind] = {re.Pattern: pattern, re.Match: match}


def _content(found: Any) -> tuple[Any, Any]:
    return found.regs, found.lastindex


@dataclass
class MatchParts(StreamConstructors):
    """The constructor of matches."""

    _found: dict[tuple[int, ...], tuple[Iterator[Any], dict[Any, Any]]] = field(
        default_factory=dict[tuple[int, ...], tuple[Iterator[Any], dict[Any, Any]]]
    )
    """By expression and place: the matches of `finditer` that were not looked at, and the others by their content."""

    def match(self, pattern: Any, text: Any, pos: int, endpos: int, regs: Any, lastindex: int | None) -> Any:
        """Return the match with this content. Raises ValueError where the expression does not find it again."""
        content = regs, lastindex
        for way in (pattern.match, pattern.fullmatch) if regs[0][0] == pos else ():
            found = way(text, pos, endpos)
            if found is not None and _content(found) == content:
                return found
        key = id(pattern), id(text), pos, endpos
        if key not in self._found:
            self._found[key] = pattern.finditer(text, pos, endpos), {}
        others, known = self._found[key]
        for found in others if content not in known else ():
            known[_content(found)] = found
            if _content(found) == content:
                break
        if content not in known:
            raise ValueError("its expression does not find this match again")
        return known[content]
