"""Lines about the columns of a table, as the planner takes them: names, then types, then what is known of the values.

Rule 1: the statistics of two or more columns of numbers are a table: their names stand once, in a line above.
Rule 2: the last column, and one with nulls, comes before the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ctxkernel.sources.base.amounts import UNUSUAL, Line, NamedLine

_STATISTICS = ("min", "25%", "50%", "75%", "max", "mean", "std")
_NUMBERS = re.compile("".join(f", {name} [^ ,]+" for name in _STATISTICS[:-1]) + "(?:, std [^ ,]+)?$")
_UNUSUAL = re.compile(r"\b(?:nulls?|NaN)\b")


def column_line(
    name: str, kind: str, told: str = "", *, last: bool = False, bullet: str = "", partial: bool = False
) -> NamedLine:
    """Return the line of a column: `told` is its type and what is known of its values, or empty for the type alone."""
    worth = UNUSUAL if last or _UNUSUAL.search(told) else 0
    return NamedLine(f"{bullet}{name}: {told or kind}", name, kind, what="columns", worth=worth, partial=partial)


def statistics_line(kind: str, nulls: str, statistics: str, about: str) -> str:
    """Return type, nulls and statistics of a column; `about` stands before each number that has none."""
    if about and _NUMBERS.search(f", {statistics}"):
        statistics = re.sub(r" (?!~)([^ ,]+)(?=,|$)", rf" {about}\1", statistics)
    else:
        statistics = f"{about * statistics[:1].isdigit()}{statistics}"
    return ", ".join(filter(None, (kind, nulls, statistics)))


def with_number_table(lines: Sequence[NamedLine]) -> list[str]:
    """Return lines with the names of statistics once above those of numbers, where there are two or more of these."""
    found = [_NUMBERS.search(line) for line in lines]
    if sum(one is not None for one in found) < 2:
        return list(lines)
    spread = any(one is not None and ", std " in one[0] for one in found)
    shown = [_unnamed(line, one[0]) if one is not None else line for line, one in zip(lines, found, strict=True)]
    return [Line(f"[numbers: {', '.join(_STATISTICS[: None if spread else -1])}]"), *shown]


def _unnamed(line: NamedLine, statistics: str) -> NamedLine:
    values = ", ".join(part.partition(" ")[2] for part in statistics.removeprefix(", ").split(", "))
    return line.with_text(f"{line.removesuffix(statistics)}, {values}")
