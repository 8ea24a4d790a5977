"""Logs: times, levels, and the kinds of entries, of a whole log or of one that is read part by part.

Rule 1: an entry is a line that begins with a time or a level; what follows it up to the next one (a traceback, a
        wrapped line) belongs to it. Entries that differ in numbers only are of one kind.
Rule 2: every line is counted. Of the first `MOST_LOUD` kinds of each level from warnings on, and the first
        `MOST_QUIET` other kinds, count, first and last place are known; entries of any further kind are counted
        together.
Rule 3: lines that are equal but for their digits are looked at once: a pattern that asks for a digit matches all of
        them or none. Where the first lines have hexadecimal ids, such ids count as numbers.
Rule 4: kinds are shown by how severe they are, and of equal ones the rarest first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.amounts import Line
from ctxkernel.sources.base.positions import Outline

MOST_LOUD = 5_000
MOST_QUIET = 500
_LOOK = 200
_HEAD = 400
"""Bytes of a line that are looked at."""
_TIME = re.compile(
    r"(?:<\d{1,3}>\d |\W{0,2}(?:@?\w{1,20}\"?\s?[=:]\s?\"?)?|\S{1,100} \S{1,60} \S{1,60} \[)"
    r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
)
_WORDS = "trace|debug|info|notice|warning|warn|error|err|critical|crit|fatal|emerg|alert|panic"
_TITLES = "Trace|Debug|Info|Notice|Warning|Warn|Error|Critical|Fatal|Alert"
_LEVEL = re.compile(
    rf"\b({_WORDS.upper()}|SEVERE)\b|\b({_WORDS}|{_TITLES})\b(?=[\]:|)])|^([DIWEF])(?=\d{{4}} )"
    rf"|\b(?i:level|lvl|levelname|severity)\"?\s?[=:]\s?\"?((?i:{_WORDS}|severe))\b"
)
"""A level, also as a field: `level=info`, `"level": "info"`."""
_ORDERED = re.compile(rb"0000[-/]")
"""The beginning of times whose order is that of their texts."""
_OFFSET = re.compile(rb"[+-]00:?00$")
_OTHER = b"*"
_LETTERS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}
_SAME = {"WARN": "WARNING", "ERR": "ERROR", "CRIT": "CRITICAL", "SEVERE": "ERROR"}
_WORST_FIRST = ("PANIC", "EMERG", "FATAL", "ALERT", "CRITICAL", "ERROR", "WARNING", "NOTICE", "INFO", "DEBUG", "TRACE")
_QUIET = ("TRACE", "DEBUG", "INFO", "NOTICE", "")
_RANKS = {**{level: rank for rank, level in enumerate(_WORST_FIRST)}, **dict.fromkeys(_QUIET, len(_WORST_FIRST))}
_HEX = re.compile(rb"0x[0a-fA-F]+")
_ID = re.compile(rb"\b[0a-fA-F]{8,}\b")
"""A hexadecimal id, its digits replaced by zeros."""
_DECIDING = 1_000
"""Lines that decide whether there are such ids."""
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_MOST_SHAPES = 20_000
"""Shapes of lines that are remembered; more begin anew."""


@dataclass(slots=True)
class EntryKind:
    """Entries that differ in numbers only."""

    first: int
    """The number of its first line."""
    last: int
    text: str
    """The first one as it stands, in one line."""
    level: str
    count: int = 1

    def told(self, about: str = "") -> str:
        """Return where the first one is, its text, and how many are like it; `about` stands before estimates."""
        more, where = self.count - 1, " in the sample" * bool(about)
        like = f" — {about}{more:,} more like it{where}, the last at {about}{self.last}" if more else ""
        return f"{about}{self.first} {self.text}{like}"


@dataclass(frozen=True, slots=True)
class _Shape:
    """The template of all lines that differ only in digits; `level` is None for a line that begins no entry."""

    level: str | None
    time: slice | None = None
    """The bytes of the time, none where that is not known; None for a line without one."""
    kind: bytes = b""


@dataclass(slots=True)
class LogFacts:
    """Facts about the lines that were read."""

    by_lines = True
    lines: int = 0
    levels: Counter[str] = field(default_factory=Counter[str])
    kinds: dict[bytes, EntryKind] = field(default_factory=dict[bytes, EntryKind])
    known: Counter[str] = field(default_factory=Counter[str])
    """The number of kinds of each level; those that are neither warnings nor errors together."""
    others: int = 0
    """Entries of kinds beyond those that are known."""
    times: tuple[str, ...] = ()
    """The first and the last one."""
    form: bytes = b""
    """How all times are written, with zeros for digits; `_OTHER` for several ways, or one that has no order."""
    span: tuple[bytes, ...] = ()
    """The earliest and the latest time, where their form has an order."""
    looked: int = 0
    begun: int = 0
    """Of the first lines that are not blank, how many there were, and how many of them begin an entry."""
    has_ids: bool | None = None
    """Whether there are hexadecimal ids; None before the first lines."""
    shapes: dict[bytes, _Shape] = field(default_factory=dict[bytes, _Shape])

    def copy(self) -> LogFacts:
        """Return facts that can take more lines without a change of these."""
        kinds = {key: replace(kind) for key, kind in self.kinds.items()}
        levels, known = Counter(self.levels), Counter(self.known)
        return replace(self, levels=levels, kinds=kinds, known=known, shapes=dict(self.shapes))

    @property
    def is_log(self) -> bool:
        """Return whether the first lines look like those of a log."""
        return self.begun >= 3 and 3 * self.begun >= self.looked

    @property
    def is_surely_log(self) -> bool:
        """Return whether they do even where the name of the file does not say so."""
        return self.begun >= 5 and 2 * self.begun >= self.looked

    def take(self, data: bytes, line: int | None = None) -> None:
        """Count whole lines; `line` is the number of the first one, where that is not the next."""
        lines = data.removesuffix(b"\n").split(b"\n") if data else []
        start = self.lines if line is None else line
        longest = max(map(len, lines), default=0)
        heads = lines if longest <= _HEAD else [one[:_HEAD] for one in lines]
        keys = self._keys(heads)
        if self.looked < _LOOK:
            self._look(keys)
        last = dict(zip(keys, range(len(keys)), strict=True))
        first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
        timed: dict[bytes, slice] = {}
        counts = Counter(keys)
        for key in sorted(first, key=first.__getitem__):
            shape = self.shapes.get(key) or self._shape(key)
            if shape.level is None:
                continue
            self.levels[shape.level] += counts[key]
            if shape.time is not None:
                timed[key] = shape.time
            self._count(shape, counts[key], start + first[key], start + last[key], heads[first[key]])
        if timed:
            entries = [(head, key) for head, key in zip(heads, keys, strict=True) if key in timed]
            ends = [_TIME.match(_decoded(head)) for head, _ in (entries[0], entries[-1])]
            found = [end[1] for end in ends if end is not None]
            self.times = (self.times[:1] or tuple(found[:1])) + tuple(found[-1:])
            stamps = [*(head[timed[key]] for head, key in entries), *self.span]
            self.form = self._form({key[time] for key, time in timed.items()}, stamps)
            if self.form != _OTHER:
                self.span = min(stamps), max(stamps)
        self.lines = start + len(lines)

    def _form(self, forms: set[bytes], stamps: Sequence[bytes]) -> bytes:
        forms |= {self.form} - {b""}
        form = min(forms)
        if len(forms) > 1 or not _ORDERED.match(form):
            return _OTHER
        offset = _OFFSET.search(form)  # from UTC: only times with the same one are in the order of their texts
        return form if offset is None or len({stamp[offset.start() :] for stamp in stamps}) == 1 else _OTHER

    def _keys(self, heads: Sequence[bytes]) -> list[bytes]:
        """Return the beginnings of lines with their numbers replaced, digit by digit, so that patterns still match."""
        if not heads:
            return []
        if self.has_ids is None:
            self.has_ids = _ID.search(b"\n".join(heads[:_DECIDING]).translate(_ZEROS)) is not None
        data = b"\n".join(heads).translate(_ZEROS)
        return (_ID.sub(b"0", data) if self.has_ids else data).split(b"\n")

    def _look(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if self.looked >= _LOOK:
                return
            if key.strip():
                self.looked += 1
                self.begun += begins(_decoded(key)) is not None

    def _shape(self, key: bytes) -> _Shape:
        head = _decoded(key)
        level = begins(head)
        shape = _Shape(None)
        if level is not None:
            kind = _HEX.sub(b"0", key) if b"0x" in key else key
            while b"00" in kind:
                kind = kind.replace(b"00", b"0")
            kind = b" ".join(kind.split())  # `Jan  1` is like `Jan 10`
            time = _TIME.match(head)
            begin = len(head[: time.start(1)].encode()) if time is not None else 0
            moved = self.has_ids and b"0" in key[:begin]  # by an id before it, which is shorter here
            place = None if time is None else slice(0) if moved else slice(begin, begin + len(time[1]))
            shape = _Shape(level, place, kind)
        if len(self.shapes) >= _MOST_SHAPES:
            self.shapes.clear()
        self.shapes[key] = shape
        return shape

    def _count(self, shape: _Shape, count: int, first: int, last: int, head: bytes) -> None:
        kind = self.kinds.get(shape.kind)
        level = shape.level or ""
        if kind is not None:
            kind.count, kind.last = kind.count + count, max(kind.last, last)
            return
        group = "" if level in _QUIET else level
        if self.known[group] >= (MOST_LOUD if group else MOST_QUIET):
            self.others += count
            return
        self.known[group] += 1
        self.kinds[shape.kind] = EntryKind(first, last, one_line(_decoded(head)), level, count)

    def ranked(self) -> list[EntryKind]:
        """Return the kinds, the most severe first, of equal ones the rarest, then the first."""
        return sorted(self.kinds.values(), key=lambda kind: (_RANKS[kind.level], kind.count, kind.first))

    def outline(self, part: str = "", entries: int = 0) -> Outline:
        """Return levels and kinds; if only `part` was read, its counts are of this.

        `entries` is an estimate of all of them, 0 where there is none.
        """
        about, count = "~" * bool(part), self.levels.total()
        amount = plural(count, "entries") if not part else f"~{entries:,} entries" if entries else f"{count:,}+ entries"
        ends = [*map(_decoded, self.span)] if self.form != _OTHER else self.times
        span = f", {about}{' … '.join(ends)}" if ends else ""
        told = [f"log, {amount}{span}"]
        named = [f"{level} {about}{self.levels[level]:,}" for level in _WORST_FIRST if level in self.levels]
        where = " in the sample" if part else ""
        without = [f"none {about}{self.levels['']:,}"] if self.levels[""] else []
        told += [f"levels{where}: " + " · ".join(named + without)] if named else []
        lines = [kind.told(about) for kind in self.ranked()]
        if self.others:
            lines.append(
                Line(f"[… {self.others:,} more entries of other kinds]", self.others, "entries of other kinds")
            )
        if part:
            lines.append(Line("[… the rest of the log was not read]", 0, "kinds of entries", exact=False))
        return Outline(told, [], "kinds of entries", lines, unit="kinds of entries")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace").removesuffix("\r")


def begins(head: str) -> str | None:
    """Return the level of a line that begins an entry, empty where it has none; None for a line that goes on."""
    time = _TIME.match(head)
    found = _LEVEL.search(head, time.end() if time else 0, 120)
    if time is None and (found is None or found.start() > 2):
        return None
    if found is None:
        return ""
    level = _LETTERS[found[3]] if found[3] else (found[4] or found[0]).upper()
    return _SAME.get(level, level)
