"""Texts, tables and JSON compared by content: numbers with a tolerance, tables by cells, everything else exactly."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable
from typing import cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.timeline_events import Json

SameText = Callable[[str, str], bool]

_FLOAT = re.compile(r"(?<![\w.])[+-]?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w])")
_BLANKS = re.compile(r"[ \t]+")
_RULER = re.compile(r"(?:-{3,}|={3,}|─{3,})")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Two floats are the same where |a - b| <= max(rel * max(|a|, |b|), abs); nan is nan."""

    rel: float = 1e-12
    abs: float = 1e-12

    def same(self, a: float, b: float) -> bool:
        """Return whether two numbers are the same."""
        return a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=self.rel, abs_tol=self.abs)


def same_text(old: str, new: str, tolerance: Tolerance) -> bool:
    """Return whether two texts are equal except for floats within the tolerance, and blanks that align them."""
    if old == new:
        return True
    first, second = _FLOAT.findall(old), _FLOAT.findall(new)
    if not first or len(first) != len(second):
        return False
    if _frame(old) != _frame(new):
        return False
    return all(a == b or tolerance.same(float(a), float(b)) for a, b in zip(first, second, strict=True))


def _frame(text: str) -> str:
    # A longer number shifts the text to its right and lengthens the rule under a table's header.
    return "\n".join(line.strip() for line in _RULER.sub("---", _BLANKS.sub(" ", _FLOAT.sub("#", text))).split("\n"))


def same_json(old: Json, new: Json, tolerance: Tolerance, text: SameText) -> bool:
    """Return whether two JSON values are equal; `text(a, b)` compares texts."""
    if isinstance(old, str) and isinstance(new, str):
        return old == new or text(old, new)
    if isinstance(old, bool) or isinstance(new, bool) or old is None or new is None:
        return old is new
    if isinstance(old, int | float) and isinstance(new, int | float):
        exact = isinstance(old, int) and isinstance(new, int)
        return old == new if exact else tolerance.same(float(old), float(new))
    if isinstance(old, list) and isinstance(new, list):
        first, second = cast("list[Json]", old), cast("list[Json]", new)
        each = zip(first, second, strict=False)
        return len(first) == len(second) and all(same_json(a, b, tolerance, text) for a, b in each)
    if isinstance(old, dict) and isinstance(new, dict):
        one, two = cast("dict[str, Json]", old), cast("dict[str, Json]", new)
        return one.keys() == two.keys() and all(same_json(one[key], two[key], tolerance, text) for key in one)
    return False


def as_json(data: Json) -> Json:
    """Return a payload as JSON: parsed if it is a text."""
    if isinstance(data, str):
        try:
            return json.loads(data)
        except ValueError:
            return data
    return data


# -- tables ---------------------------------------------------------------------------------------

Grid = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Html:
    """The content of an HTML text: its tables as grids of cells, and the text around them."""

    tables: tuple[Grid, ...]
    text: str
    code: str
    """Scripts and links."""


# A full HTML parser takes seconds for a table of a megabyte, and the comparison needs little of it.
_TOKEN = re.compile(r"<!--.*?-->|<(?P<end>/?)(?P<tag>[a-zA-Z][\w:-]*)(?P<more>[^>]*)>|(?P<text>[^<]+|<)", re.DOTALL)
_LINK = re.compile(r"\b(?:src|href|srcdoc)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))")
_LINKED = frozenset(("img", "source", "a", "iframe", "script"))


def read_html(text: str) -> Html:
    """Return the content of an HTML text. Accepts any text."""
    tables: list[list[list[str]]] = []
    around: list[str] = []
    code: list[str] = []
    cell: list[str] | None = None
    depth = at = 0
    while found := _TOKEN.search(text, at):
        at = found.end()
        said = found["text"]
        if said is not None:
            if cell is not None:
                cell.append(said)
            elif said.strip():
                around.append(_said(said))
            continue
        tag = (found["tag"] or "").lower()
        if tag in ("script", "style") and not found["end"]:
            end = text.find(f"</{tag}", at)
            end = len(text) if end < 0 else end
            if tag == "script":
                code.append(text[at:end])
            at = end
        if tag in _LINKED and not found["end"]:
            code += ["".join(link) for link in _LINK.findall(found["more"])]
        if tag in ("td", "th", "tr", "table") and depth <= 1:
            if cell is not None:
                tables[-1][-1].append(_said("".join(cell)))
                cell = None
            if depth and not found["end"]:
                if tag == "tr" or not tables[-1]:
                    tables[-1].append([])
                if tag in ("td", "th"):
                    cell = []
        if tag == "table":
            depth = max(0, depth - 1) if found["end"] else depth + 1
            if depth == 1 and not found["end"]:
                tables.append([])
    if cell is not None:
        tables[-1][-1].append(_said("".join(cell)))
    grids = [tuple(tuple(row) for row in table if row) for table in tables]
    return Html(tuple(grid for grid in grids if grid), "\n".join(around), "\n".join(code))


def _said(text: str) -> str:
    return " ".join(html.unescape(text).split())


@dataclass(frozen=True, slots=True)
class CellDifference:
    """The difference between two grids."""

    summary: str
    before: str
    after: str


def compare_grids(old: Grid, new: Grid, same: SameText) -> CellDifference | None:
    """Return how two grids of cells differ, None if they do not; `same(a, b)` compares the text of two cells."""
    if len(old) != len(new) or list(map(len, old)) != list(map(len, new)):
        sizes = [f"{len(grid)} × {max(map(len, grid), default=0)}" for grid in (old, new)]
        if sizes[0] == sizes[1]:
            sizes[1] += " (other rows are longer)"
        return CellDifference(f"table of {sizes[0]} cells → {sizes[1]}", _rows(old), _rows(new))
    found: list[tuple[int, int]] = []
    total = 0
    for y, (first, second) in enumerate(zip(old, new, strict=True)):
        for x, (a, b) in enumerate(zip(first, second, strict=True)):
            total += 1
            if a != b and not same(a, b):
                found.append((y, x))
    if not found:
        return None
    y, x = found[0]
    head = old[0][x] if y and len(old[0]) > x else ""
    row = old[y][0] if x else ""
    place = ", ".join(filter(None, (f"row {row}" if row else "", f"column {head}" if head else "")))
    where = f" at {place}" if place else ""
    return CellDifference(
        f"{len(found)} of {total} cells differ, first{where}: {old[y][x]} → {new[y][x]}", old[y][x], new[y][x]
    )


def _rows(grid: Grid) -> str:
    return "\n".join(" | ".join(row) for row in grid[:5])
