"""The facts about a JSON text, read piece by piece: its keys, with their types, sizes, ranges and examples.

Rule 1: no value is held: of all items of an array, the fields of one place are counted together.
Rule 2: at most `MOST_PLACES` places are kept, of an object at most `_KEYS` keys; others are counted, and what is below
        them is passed over.
Rule 3: of a text of which only the beginning was taken, sizes of what is still open have a `+`, and counts a `~`.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator

from xxhash import xxh3_64_hexdigest

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.amounts import Line, indented, more_lines
from ctxkernel.sources.outlines.json_outline import JsonField, key_line, number_of

MOST_PLACES = 2_000
_KEYS = 200
_DEEPEST = 24
_LONGEST = 64 << 20
"""Bytes of one string; a text with a longer one is not looked into."""
_SHOWN_BYTES = 240
"""Of a string so many bytes are read; of a longer one also its hash."""
_TOKEN = re.compile(
    rb"[ \t\r\n,:]*+(?:"
    rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
    rb"|([{}\[\]])"
    rb"|(-?[0-9][0-9.eE+-]*+|true|false|null|NaN|-?Infinity)(?=[ \t\r\n,:\]}])"
    rb")",
    re.DOTALL,
)
_BLANK = re.compile(rb"[ \t\r\n,:]*")
_BEGINS = re.compile(rb'"|-?[0-9.eE+-]*$|[tfnNI][a-zA-Z]*$|-I[a-z]*$')
_WORDS = {b"true": "bool", b"false": "bool", b"null": "null"}


@dataclass(slots=True)
class JsonPlace:
    """A key, or what all items of an array have in common."""

    facts: JsonField = field(default_factory=JsonField)
    keys: dict[str, JsonPlace] = field(default_factory=dict[str, "JsonPlace"])
    items: JsonPlace | None = None
    is_open: bool = False
    """Whether an object or array here has not ended …"""
    begun: int = 0
    """… and how many keys or items it has so far."""
    first: str = ""
    """The first value, as the text writes it, where it is short."""

    def told(self, records: int, about: str) -> str:
        """Return what the values of this field have in common, in so many objects."""
        if self.items is not None:
            self.facts.items = Counter(self.items.facts.kinds)
        return self.facts.told(max(records, self.facts.kinds.total()), about)


@dataclass(slots=True)
class _Level:
    """An object or array that is being read; `place` None for one that is passed over."""

    place: JsonPlace | None
    is_object: bool
    count: int = 0
    key: str | None = None


@dataclass(slots=True)
class JsonFacts:
    """Facts about the bytes that were read."""

    by_lines = False
    root: JsonPlace = field(default_factory=JsonPlace)
    levels: list[_Level] = field(default_factory=list[_Level])
    places: int = 0
    newlines: int = 0
    ends_line: bool = True
    values: int = 0
    """Values at the top: JSON has one."""
    broken: bool = False
    rest: bytes = b""
    """The beginning of a token that has not ended."""

    def copy(self) -> JsonFacts:
        """Return facts that can take more without a change of these."""
        return copy.deepcopy(self)

    def take(self, data: bytes, line: int | None = None) -> None:
        """Take the next bytes."""
        self.newlines += data.count(b"\n")
        self.ends_line = data.endswith(b"\n") if data else self.ends_line
        if self.broken:
            return
        text, at, match = self.rest + data, 0, _TOKEN.match
        while (found := match(text, at)) is not None:
            at = found.end()
            string, mark, word = found.groups()
            if mark is None:
                self._scalar(string, word)
            elif mark in b"{[":
                self._begin(mark == b"{")
            else:
                self._end(mark == b"}")
            if self.broken:
                return
        start = _BLANK.match(text, at)
        at = start.end() if start is not None else at
        self.rest = text[at:]
        self.broken = bool(self.rest) and (_BEGINS.match(self.rest[:40]) is None or len(self.rest) > _LONGEST)

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.newlines + (not self.ends_line)

    @property
    def is_whole(self) -> bool:
        """Return whether what was taken is one value of JSON."""
        return not (self.broken or self.levels or self.rest) and self.values == 1

    # -- tokens

    def _scalar(self, string: bytes | None, word: bytes | None) -> None:
        level = self.levels[-1] if self.levels else None
        if level is not None and level.is_object and level.key is None:
            if string is None:
                self.broken = True
            else:
                level.key = _text_of(string)
            return
        place = self._place(level)
        if place is None:
            return
        if string is not None:
            text = _text_of(string[:_SHOWN_BYTES])
            text += xxh3_64_hexdigest(string) if len(string) > _SHOWN_BYTES else ""  # tells it from others
            place.facts.take((text,))
            if not place.first:
                place.first = f"string {json.dumps(one_line(text, 60), ensure_ascii=False)}"
        elif (kind := _WORDS.get(word or b"")) is not None:
            place.facts.kinds[kind] += 1
            place.first = place.first or (word or b"").decode()
        else:
            text = (word or b"").decode()
            place.facts.take((number_of(text),))
            place.first = place.first or f"number {one_line(text, 40)}"

    def _begin(self, is_object: bool) -> None:
        level = self.levels[-1] if self.levels else None
        if level is not None and level.is_object and level.key is None:
            self.broken = True
            return
        place = self._place(level)
        if place is not None:
            place.is_open = True
        self.levels.append(_Level(place if len(self.levels) < _DEEPEST else None, is_object))

    def _end(self, is_object: bool) -> None:
        if not self.levels or self.levels[-1].is_object != is_object or self.levels[-1].key is not None:
            self.broken = True
            return
        level = self.levels.pop()
        if level.place is not None:
            level.place.facts.take_size("object" if is_object else "array", level.count)
            level.place.is_open = False

    def _place(self, level: _Level | None) -> JsonPlace | None:
        """Return the place of the value that begins; None where it is passed over."""
        if level is None:
            self.values += 1
            self.broken = self.values > 1
            return self.root
        level.count += 1
        outer, key, level.key = level.place, level.key, None
        if outer is None:
            return None
        if not level.is_object:
            if outer.items is None:
                outer.items = JsonPlace()
            return outer.items
        found = outer.keys.get(key or "")
        if found is None and len(outer.keys) < _KEYS and self.places < MOST_PLACES:
            self.places += 1
            found = outer.keys[key or ""] = JsonPlace()
        return found

    # -- lines

    def outline_lines(self, about: str) -> list[str]:
        """Return a line for each place, as those of a text that is read at once; `about` stands before counts."""
        for level in self.levels:
            if level.place is not None:
                level.place.begun = level.count
        return [Line(_short(self.root)), *_below(self.root, 1, "", about)]


def _text_of(string: bytes) -> str:
    text = string.decode("utf-8", "replace")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:  # cut in an escape
        return text


def _size(place: JsonPlace, count: int, what: str) -> str:
    return f"{count:,}+ {what}" if place.is_open else plural(count, what)


def _short(place: JsonPlace) -> str:
    """Return type and size of what is there once."""
    kinds = place.facts.kinds
    if place.keys or "object" in kinds:
        count = max(place.facts.lengths[1], place.begun, len(place.keys))
        return f"object, {_size(place, count, 'keys')}"
    if place.items is not None or "array" in kinds:
        items = place.items.facts if place.items is not None else JsonField()
        count = max(place.facts.lengths[1], place.begun, items.kinds.total())
        of = f" of {' | '.join(sorted(items.shape_kinds()))}" if items.kinds else ""
        return f"array, {_size(place, count, 'items')}{of}"
    return place.first


def _below(place: JsonPlace, depth: int, path: str, about: str) -> Iterator[str]:
    """Yield the keys of an object, or the fields of the objects in an array."""
    for at, (name, inner) in enumerate(place.keys.items()):
        shown = one_line(name, 60)
        yield key_line(depth, path, shown, _short(inner), at)
        yield from _below(inner, depth + 1, f"{path}{shown}.", about)
    more = max(place.facts.lengths[1], place.begun) - len(place.keys) if place.keys else 0
    yield from indented(more_lines(more, "keys", exact=not place.is_open), "  " * depth)
    items = place.items
    while items is not None and not items.keys and items.items is not None:
        items = items.items
    if items is not None and items.keys:
        yield Line(f"{'  ' * depth}[each]", rank=depth - 1)
        yield from _fields(items, depth + 1, f"{path.removesuffix('.')}[].", about)


def _fields(place: JsonPlace, depth: int, path: str, about: str) -> Iterator[str]:
    """Yield the fields of all objects of one place: types, where they are missing, range or examples."""
    records = max(place.facts.kinds["object"], 1)
    for at, (name, inner) in enumerate(place.keys.items()):
        shown = one_line(name, 60)
        yield key_line(depth, path, shown, inner.told(records, about), at)
        below = inner
        while not below.keys and below.items is not None:
            below = below.items
        yield from _fields(below, depth + 1, f"{path}{shown}.", about)
    more = max(place.facts.lengths[1] - len(place.keys), 0) if len(place.keys) >= _KEYS else 0
    yield from indented(more_lines(more, "keys", exact=False), "  " * depth)
