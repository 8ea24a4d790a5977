"""Outlines: the structure of a text (level of detail 1), as entries with line numbers.

Rule 1: an outline is found once a revision, and rendered for any budget afterwards.
Rule 2: what an entry says is cut out of the text, never rewritten; its line counts from 0, as `pos` does.
Rule 3: every outliner is tolerant: of half a file, of a file that does not parse, of no structure at all.
Rule 4: a language is one row of `LANGUAGES`; one that a grammar is needed for is one of `GRAMMARS`.
Rule 5: an entry of a log is a line that begins with a time or a level; what follows it up to the next one (a
        traceback, a wrapped line) belongs to it. Entries that differ in numbers only are of one kind; the first one
        is shown as it stands. At most `_LOG_LINES` lines are looked at, and how many is said.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from ctxkernel.core.text import one_line
from ctxkernel.sources.base.amounts import Line
from ctxkernel.sources.base.file_reader import Text
from ctxkernel.sources.base.positions import Entry, Outline
from ctxkernel.sources.outlines.grammars import GRAMMARS, Grammar
from ctxkernel.sources.outlines.json_outline import json_fields, json_lines
from ctxkernel.sources.outlines.python_outline import python_outline
from ctxkernel.sources.outlines.syntax import definition_at, syntax_outline
from ctxkernel.sources.outlines.tabular import read_table

_LOG_LINES = 200_000
_LOOK = 200
_HEAD = 400
"""Characters of a line that are looked at."""
_TIME = re.compile(
    r"(?:\W{0,2}|\S{1,100} \S{1,60} \S{1,60} \[)"
    r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
)
_LEVEL = re.compile(
    r"\b(TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|ERR|CRITICAL|FATAL|EMERG|ALERT|PANIC)\b"
    r"|\b(trace|debug|info|notice|warn(?:ing)?|error|err|critical|fatal)\b(?=[\]:|)])|^([DIWEF])(?=\d{4} )"
)
_LETTERS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}
_SAME = {"WARN": "WARNING", "ERR": "ERROR"}
_WORST_FIRST = ("PANIC", "EMERG", "FATAL", "ALERT", "CRITICAL", "ERROR", "WARNING", "NOTICE", "INFO", "DEBUG", "TRACE")
_QUIET = ("TRACE", "DEBUG", "INFO", "NOTICE", "")
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_MOST_KINDS = 500


@dataclass(slots=True)
class _Kind:
    """Entries that differ in numbers only."""

    first: int
    last: int
    text: str
    level: str
    count: int = 1

    def entry(self) -> Entry:
        """Return the first entry, and how many are like it."""
        more = self.count - 1
        return Entry(self.first, 0, self.text, f"{more:,} more like it, the last at {self.last}" if more else "")


def log_outline(text: Text) -> Outline | None:
    """Return the levels of a log and its kinds of entries, warnings and worse where there are any; None for no log."""
    lines = text.lines[:_LOG_LINES]
    looked = [line for line in lines[:_LOOK] if line.strip()]
    begun = [line for line in looked if _begins(line[:_HEAD]) is not None]
    if len(begun) < 3 or 3 * len(begun) < len(looked):
        return None
    levels: Counter[str] = Counter()
    kinds: dict[str, _Kind] = {}
    times: list[str] = []
    for at, line in enumerate(lines):
        head = line[:_HEAD]
        level = _begins(head)
        if level is None:
            continue
        levels[level] += 1
        if time := _TIME.match(head):
            times = [*times[:1], time[1]]
        key = _NUMBERS.sub("0", head)
        kind = kinds.get(key)
        if kind is not None:
            kind.count, kind.last = kind.count + 1, at
        elif len(kinds) < _MOST_KINDS or level not in _QUIET:
            kinds[key] = _Kind(at, at, one_line(line), level)
    shown = [kind for kind in kinds.values() if kind.level not in _QUIET] or list(kinds.values())
    span = f", {' … '.join(times)}" if times else ""
    part = f", in the first {len(lines):,} lines" if len(lines) < len(text.lines) else ""
    count = levels.total()
    told = [f"log, {count:,} {'entry' if count == 1 else 'entries'}{part}{span}"]
    named = [f"{level} {levels[level]:,}" for level in _WORST_FIRST if level in levels]
    told += ["levels: " + " · ".join(named)] if named else []
    return Outline(told, [kind.entry() for kind in shown], "kinds of entries")


def _begins(head: str) -> str | None:
    """Return the level of a line that begins an entry, empty where it has none; None for a line that goes on."""
    time = _TIME.match(head)
    found = _LEVEL.search(head, time.end() if time else 0, 120)
    if time is None and (found is None or found.start() > 2):
        return None
    if found is None:
        return ""
    level = _LETTERS[found[3]] if found[3] else found[0].upper()
    return _SAME.get(level, level)


_SCAN_LINES = 50_000
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_ATX = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_UNDERLINE = re.compile(r"^([=\-~^\"'`#*+.:_])\1{2,}\s*$")


def markdown_outline(text: Text) -> Outline:
    """Return the headings, ATX and underlined, outside of code fences."""
    entries: list[Entry] = []
    fence = ""
    lines = text.lines
    for at, line in enumerate(lines):
        if found := _FENCE.match(line):
            mark = found[1]
            fence = "" if fence and mark.startswith(fence) else fence or mark
        elif fence:
            continue
        elif found := _ATX.match(line):
            entries.append(Entry(at, len(found[1]) - 1, line.strip(), _first_sentence(lines, at + 1)))
        elif at and line[:3] in ("===", "---") and set(line.strip()) <= set("=-") and lines[at - 1].strip():
            before = lines[at - 1]
            if not before.startswith((" ", "\t", "|", "-", "#", ">")):
                depth = 0 if line[0] == "=" else 1
                entries.append(Entry(at - 1, depth, before.strip(), _first_sentence(lines, at + 1)))
    return Outline([], entries, "headings") if entries else prose_outline(text)


def prose_outline(text: Text) -> Outline:
    """Return underlined headings and definition-like lines; where there are none, how paragraphs begin."""
    headings: list[Entry] = []
    paragraphs: list[Entry] = []
    levels: dict[str, int] = {}
    lines = text.lines[:_SCAN_LINES]
    for at, line in enumerate(lines):
        if not line or line.isspace():
            continue
        previous = lines[at - 1] if at else ""
        if (rule := _UNDERLINE.match(line)) and previous.strip() and len(line.rstrip()) >= len(previous.rstrip()) - 1:
            if not _UNDERLINE.match(previous):
                depth = levels.setdefault(rule[1], len(levels))
                headings.append(Entry(at - 1, depth, one_line(previous), _first_sentence(lines, at + 1)))
        elif found := definition_at(line, at):
            headings.append(found)
        if not previous or previous.isspace():
            paragraphs.append(Entry(at, 0, one_line(line, 100)))
    if headings:
        return Outline([], headings, "headings")
    return Outline([], paragraphs, "paragraphs")


def table_outline(text: Text) -> Outline:
    """Return the columns of a CSV file with their types, ranges and nulls, and its first rows."""
    table = read_table(text)
    if table is None:
        return prose_outline(text)
    head = map(Line, ["first rows:", *table.head_lines()])
    return Outline([table.headline], [], "columns", [*table.column_lines(), *head], unit="columns")


def json_outline(text: Text) -> Outline:
    """Return the shape of the top levels of a JSON text."""
    shape = json_lines(text.text)
    if shape is None:
        return replace(prose_outline(text), head=["not valid JSON as far as it was read"])
    return Outline([], [], "keys", shape)


def fields_outline(text: Text) -> Outline:
    """Return the fields of a text with a JSON value a line: types, shares of nulls, ranges."""
    fields = json_fields(text)
    if fields is None:
        return replace(prose_outline(text), head=["not a JSON value a line as far as it was read"])
    return Outline(fields[0], [], "fields", fields[1], unit="fields")


def code_outline(grammar: Grammar, text: Text) -> Outline:
    """Return the definitions of a source with a grammar; where that cannot be, a guess that says what it is."""
    found = syntax_outline(text.text, grammar)
    if isinstance(found, Outline):
        return found
    guess = prose_outline(text)
    shown = "lines that look like definitions" if guess.what == "headings" else "how its paragraphs begin"
    return replace(guess, head=[f"{found}: {shown}"])


@dataclass(frozen=True, slots=True)
class Language:
    """How texts of one kind are outlined."""

    name: str
    outline: Callable[[Text], Outline]
    suffixes: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=())


LANGUAGES: list[Language] = [
    Language("python", lambda text: python_outline(text.text), (".py", ".pyi", ".pyw")),
    Language("markdown", markdown_outline, (".md", ".markdown", ".qmd", ".rmd", ".txt")),
    Language("table", table_outline, (".csv", ".tsv", ".tab")),
    Language("json", json_outline, (".json", ".geojson", ".ipynb")),
    Language("jsonlines", fields_outline, (".jsonl", ".ndjson")),
    Language("log", lambda text: log_outline(text) or prose_outline(text), (".log", ".out", ".err")),
    *(Language(row.name.lower(), partial(code_outline, row), row.suffixes, row.names) for row in GRAMMARS),
    Language("text", prose_outline),
]


def language_of(path: str, text: Text) -> Language:
    """Return the language of a file by its name, else by its first line."""
    name = os.path.basename(path).lower()
    suffix = os.path.splitext(name)[1]
    for language in LANGUAGES:
        if suffix in language.suffixes or name in language.names:
            return language
    first = text.lines[0] if text.lines else ""
    wanted = "python" if first.startswith("#!") and "python" in first else "text"
    return next(language for language in LANGUAGES if language.name == wanted)


def _first_sentence(lines: list[str], start: int) -> str:
    """Return the first sentence of the paragraph after line `start`, cut out of the text."""
    for at, line in enumerate(lines[start : start + 6], start):
        plain = line.strip()
        if not plain or plain.startswith(("```", "|", "<", "![", "[!", "..", ":::")) or _UNDERLINE.match(plain):
            continue
        if plain.startswith("#") or (at + 1 < len(lines) and lines[at + 1][:3] in ("===", "---")):
            return ""
        return one_line(re.split(r"(?<=[^\d\s][.!?])\s", plain, maxsplit=1)[0], 120)
    return ""
