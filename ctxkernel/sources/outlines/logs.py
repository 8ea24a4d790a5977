"""Log files: when, how many entries of which level, and every kind of warning and error with its first and last line.

Rule 1: an entry is a line that begins with a time or a level; what follows it up to the next one (a traceback, a
        wrapped line) belongs to it.
Rule 2: entries that differ in numbers only are of one kind; the first one is shown as it stands.
Rule 3: one pass over at most `_SCAN_LINES` lines; how many were looked at is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.file_reader import Text
from ctxkernel.sources.base.symbols import Entry, Outline

_SCAN_LINES = 200_000
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


def log_outline(text: Text) -> Outline | None:
    """Return the levels of a log and its kinds of entries, warnings and worse where there are any; None for no log."""
    lines = text.lines[:_SCAN_LINES]
    looked = [line for line in lines[:_LOOK] if line.strip()]
    begun = [line for line in looked if _begins(line[:_HEAD]) is not None]
    if len(begun) < 3 or 3 * len(begun) < len(looked):
        return None
    levels: dict[str, int] = {}
    kinds: dict[str, _Kind] = {}
    times: list[str] = []
    entries = 0
    for at, line in enumerate(lines):
        head = line[:_HEAD]
        level = _begins(head)
        if level is None:
            continue
        entries += 1
        levels[level] = levels.get(level, 0) + 1
        time = _TIME.match(head)
        if time:
            times[1:] = [time[1]]
            times = times or [time[1]]
        key = _NUMBERS.sub("0", head)
        kind = kinds.get(key)
        if kind is not None:
            kind.count, kind.last = kind.count + 1, at
        elif len(kinds) < _MOST_KINDS or level not in _QUIET:
            kinds[key] = _Kind(at, at, one_line(line), level)
    shown = [kind for kind in kinds.values() if kind.level not in _QUIET] or list(kinds.values())
    return Outline(_head(entries, len(lines), text, times, levels), list(map(_entry, shown)), "kinds of entries")


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


def _head(entries: int, looked: int, text: Text, times: list[str], levels: dict[str, int]) -> list[str]:
    span = f", {' … '.join(times)}" if times else ""
    part = f", in the first {looked:,} lines" if looked < len(text.lines) else ""
    told = [f"log, {plural(entries, 'entries') if entries != 1 else '1 entry'}{part}{span}"]
    named = [f"{level} {levels[level]:,}" for level in _WORST_FIRST if level in levels]
    return [*told, "levels: " + " · ".join(named)] if named else told


def _entry(kind: _Kind) -> Entry:
    more = kind.count - 1
    alike = f"{more:,} more like it, the last at {kind.last}" if more else ""
    return Entry(kind.first, 0, kind.text, alike)
