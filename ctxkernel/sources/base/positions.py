"""Positions by name: which line a symbol, a heading, a key or a pattern stands for; and the outline that names them.

Rule 1: a name is found anew at each rendering, so a view stays with its symbol while lines come and go before it.
Rule 2: a pattern is looked for line by line. One that could try very many ways is refused before it is tried, since
        nothing can stop `re` in the middle of a line; all lines together get `SEARCH_SECONDS`.
"""

from __future__ import annotations

import difflib
import importlib
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import TableRow
from ctxkernel.core.timeline_events import NONE
from ctxkernel.sources.base.amounts import NamedLine


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """One symbol, heading or paragraph."""

    line: int
    """Its first line, from 0."""
    depth: int
    text: str
    """A signature or heading, as it stands in the text."""
    doc: str = ""
    """Its first docstring line or sentence."""
    name: str = ""
    """The name by which other lines refer to it, for a definition."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The structure of a text."""

    head: Sequence[str]
    """Lines that stand before the entries: docstring, imports, dialect."""
    entries: Sequence[OutlineEntry]
    what: str
    """The word for the entries, in the plural: `symbols`, `headings`, …"""
    lines: Sequence[str] = field(default=())
    """For what has no entries with a place: the structure as lines."""
    unit: str = "lines"
    """The word for these lines, in the plural."""
    whole: bool = True
    """Whether it is of all that was read of the text."""
    begun: bool = False
    """Whether its entries are the beginnings of paragraphs that have more."""
    table: Mapping[str, TableRow] = NONE
    """The lines that are rows of a table."""


_KIND = re.compile(r"\b(class|def|fn|func|function|struct|enum|interface|trait|type|module|impl)\b")
_WORTH = {"class": 2, "struct": 2, "interface": 2, "trait": 2, "enum": 2, "module": 2, "": 0}


def entry_lines(entries: Sequence[OutlineEntry], what: str) -> list[NamedLine]:
    """Return a line for each of some entries called `what`.

    Names come first, those of classes before others; then signatures, and then the first sentences. What is nested in
    another entry comes a rank after it, and what is private two.
    """
    lines: list[NamedLine] = []
    outer = ""
    for entry in entries:
        outer = outer if entry.depth else entry.name
        private = entry.name.startswith("_") or (entry.depth > 0 and outer.startswith("_"))
        found = _KIND.search(entry.text) if entry.name else None
        kind = found[1] if found else ""
        short = f"{entry.line} {'  ' * entry.depth}{entry.text}"
        lines.append(
            NamedLine(
                short + (f" — {entry.doc}" if entry.doc else ""),
                entry.name,
                f"in {outer}" if entry.depth and outer else kind,
                what=f"nested {what}" if entry.depth else what,
                short=short if entry.doc else "",
                depth=entry.depth,
                worth=_WORTH.get(kind, 1),
                rank=entry.depth + 2 * private + (not entry.name and bool(entry.depth)),
            )
        )
    return lines


P = TypeVar("P")
SEARCH_SECONDS = 2.0
LINE_CHARS = (4000, 1000, 250, 100)
"""The length of a line that is searched: the most for which a pattern stays within `MOST_WAYS`."""
MOST_WAYS = 100_000_000
MOST_NAMES = 20_000
"""So many names of one target are known."""
_KEY = re.compile(r"""\s*(?:'([^']*)': |\.?([^\s:=(\['"{][^:=(\[{]*?)(?: \([^()]*\))?(?:: | = ))""")
_KEY_CHARS = 400
_JSON_PART = re.compile(r'"(?P<key>(?:[^"\\]++|\\.)*+)"(?P<colon>\s*:)?|[{}\[\]]')
_JSON_KEY_CHARS = 200
_JSON_DEPTH = 32
"""Keys are known so deep, since each has the names of all that it is in."""
_CLOSE = 3
_LISTED = 10_000
_FREE: Final = frozenset(("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "RANGE", "CATEGORY", "FAILURE", "GROUPREF"))
_REPEATS: Final = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))
_GROUPS: Final = {"SUBPATTERN": 3, "ASSERT": 1, "ASSERT_NOT": 1, "ATOMIC_GROUP": 0}
"""The place of the inner pattern among the arguments of a group."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that lines are searched for."""

    compiled: re.Pattern[str]
    number: int = 1
    """Which line that matches is meant: 1 the first, -1 the last."""

    @property
    def shown(self) -> str:
        """The pattern as a position has it, without its number."""
        flags = "".join(flag for flag in "aisx" if self.compiled.flags & re.RegexFlag[flag.upper()])
        return f"/{self.compiled.pattern}/{flags}"


def pattern_of(pos: str) -> Pattern | None:
    """Return the pattern that "/…/" or "/…/i" stands for (flags a, i, s, x), or None for any other text.

    A number after it says which match is meant: "/…/2" the second, "/…/-1" the last. Raises BadPolicy for a pattern
    that `re` refuses.
    """
    found = re.fullmatch(r"/(.+)/([aisx]*)(-?[1-9]\d{0,8})?", pos, re.DOTALL)
    if found is None:
        return None
    try:
        compiled = re.compile(found[1], sum({re.RegexFlag[flag.upper()] for flag in found[2]}, re.RegexFlag(0)))
    except (re.error, RecursionError, OverflowError) as fault:
        raise BadPolicy(f"pos={pos!r} is no regular expression: {fault}") from None
    return Pattern(compiled, int(found[3] or 1))


def lines_from_end(pos: str) -> int | None:
    """Return 20 for the position "-20"; 0 for "end"; None for any other."""
    if pos == "end":
        return 0
    return int(pos[1:]) if re.fullmatch(r"-[1-9]\d{0,14}", pos) else None


def find_name(names: Sequence[tuple[str, P]], name: str, within: str = ".") -> P | None:
    """Return the place of a name: the whole one first, else the first that ends in it (`fit` for `Model.fit`).

    `within` is what stands between a name and what it is in.
    """
    whole = (place for known, place in names if known == name)
    ends = (place for known, place in names if known.endswith(within + name))
    return next(chain(whole, ends), None)


def unbracketed(pos: str) -> str:
    """Return what stands in the brackets of `[name]`; any other text is returned as it is."""
    return pos[1:-1] if pos[:1] == "[" and pos[-1:] == "]" else pos


def key_of(line: str) -> str:
    """Return what a line of facts is about: a key without its quotes, an attribute, `axes 0`; empty for no such."""
    found = _KEY.match(line[:_KEY_CHARS])
    return (found[1] or found[2] or "") if found else ""


def keys_of(lines: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return the keys of JSON, with what they are in before them, and their line and column: `beta`, `beta.c`.

    A key that begins its line is at column 0, so that its line is shown whole.
    """
    found: list[tuple[str, int, int]] = []
    within: list[str] = []
    """The owner of each open bracket."""
    name = ""
    for at, line in enumerate(lines):
        for part in _JSON_PART.finditer(line):
            if part[0] in "{[":
                within.append(name)
            elif part[0] in "}]":
                name = within.pop() if within else ""
            elif part["colon"] and len(part["key"]) <= _JSON_KEY_CHARS and len(within) <= _JSON_DEPTH:
                name = ".".join(filter(None, (within[-1] if within else "", part["key"])))
                found.append((name, at, part.start() if line[: part.start()].strip() else 0))
                if len(found) >= MOST_NAMES:
                    return found
    return found


def symbols_of(outline: Outline) -> list[tuple[str, int]]:
    """Return the names of an outline with their lines: `Model`, `Model.fit`, and headings as they read."""
    found: list[tuple[str, int]] = []
    within: list[tuple[int, str]] = []
    for entry in outline.entries:
        if not entry.name:
            if outline.what == "headings":
                found.append((entry.text.strip("# \t"), entry.line))
            continue
        while within and within[-1][0] >= entry.depth:
            within.pop()
        within.append((entry.depth, entry.name))
        found.append((".".join(name for _, name in within), entry.line))
    return found


def find_pattern(pattern: Pattern, lines: Iterable[str]) -> int | None:
    """Return the line of the match that is meant. Raises BadPolicy where looking could take very long."""
    chars, search, number = chars_for(pattern.compiled), pattern.compiled.search, pattern.number
    deadline = time.monotonic() + SEARCH_SECONDS
    last: deque[int] = deque(maxlen=max(-number, 1))
    count = 0
    for at, line in enumerate(lines):
        if search(line, 0, chars):
            count += 1
            last.append(at)
            if count == number:
                return at
        if not at % 64 and time.monotonic() > deadline:
            raise BadPolicy(
                f"{pattern.shown} was not found within {SEARCH_SECONDS:g} s, in the first {at:,} lines; "
                f"give a line, or a simpler pattern"
            )
    return last[0] if 0 < -number <= count else None


def literal_of(pattern: re.Pattern[str]) -> bytes:
    """Return ASCII text that every match contains, as long as can be told; empty where there is none."""
    if pattern.flags & (re.IGNORECASE | re.VERBOSE):
        return b""
    parser: Any = importlib.import_module("re._parser")
    best, run = "", ""
    for op, value in parser.parse(pattern.pattern, pattern.flags):
        run = run + chr(value) if str(op) == "LITERAL" and 32 <= value < 127 else ""
        best = max(best, run, key=len)
    return best.encode("ascii")


def no_place(label: str, pos: str, known: Sequence[str] = (), what: str = "symbols") -> BadPolicy:
    """Return the error for a position that is not there, with the names that are like it."""
    close = close_to(pos, known)
    like = f" Is it {' or '.join(map(repr, close))}?" if close else ""
    among = f" among its {len(known):,} {what}" if known else ""
    return BadPolicy(
        f"{label} has no position {pos!r}{among}.{like} You can give 'line' or 'line:col' counted from 0, '-20' or "
        f"'end', a name such as 'Model.fit' or a row label, a pattern such as '/def fit/', or the next position that a "
        f"rendering named"
    )


def close_to(pos: str, known: Sequence[str]) -> list[str]:
    """Return at most three known names that are like `pos`."""
    last = {name.rpartition(".")[2].lower(): name for name in reversed(known[:_LISTED])}
    last |= {name.lower(): name for name in reversed(known[:_LISTED])}
    return list(dict.fromkeys(last[one] for one in difflib.get_close_matches(pos.lower(), list(last), _CLOSE, 0.5)))


def chars_for(pattern: re.Pattern[str]) -> int:
    """Return how much of a line is searched. Raises BadPolicy for a pattern that could take very long."""
    parser: Any = importlib.import_module("re._parser")
    tree = parser.parse(pattern.pattern, pattern.flags)
    for chars in LINE_CHARS:
        if _ways(tree, chars) * chars <= MOST_WAYS:
            return chars
    raise BadPolicy(
        f"/{pattern.pattern}/ could take very long on some lines; use fewer * and +, and none within another"
    )


def _ways(tree: Any, chars: int) -> int:
    """Return a bound of the ways in which a parsed pattern can be tried at one place of a line; capped."""
    ways = 1
    for op, value in tree:
        ways = min(ways * _ways_of(str(op), value, chars), MOST_WAYS + 1)
    return ways


def _ways_of(op: str, value: Any, chars: int) -> int:
    if op in _FREE:
        return 1
    if op in _REPEATS:
        least, most, body = value
        within, rounds = _ways(body, chars), min(int(most), chars)
        if within == 1:
            return max(1, rounds - int(least) + 1)
        return MOST_WAYS + 1 if rounds > 64 else min(within**rounds * (rounds + 1), MOST_WAYS + 1)
    if op == "BRANCH":
        return sum(_ways(body, chars) for body in value[1])
    if op in _GROUPS:
        return _ways(value if op == "ATOMIC_GROUP" else value[_GROUPS[op]], chars)
    return MOST_WAYS + 1  # what is rare and not known here: nobody needs it to name a line
