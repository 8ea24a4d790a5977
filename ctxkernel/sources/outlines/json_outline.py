"""The structure of a JSON value: keys, types and lengths of its top levels, with samples as they are written.

Rule: values are shown as the file writes them, never rounded; nothing is computed but counts and shares.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeGuard

from xxhash import xxh3_64_hexdigest

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.reflection import class_of
from ctxkernel.core.text import one_line, plural, span_of
from ctxkernel.sources.base.amounts import Line, NamedLine, indented, more_lines
from ctxkernel.sources.base.random_samples import part_of, share_of
from ctxkernel.sources.outlines.column_facts import DateSpan, Span

_DEPTH = 3
_KEYS = 40
_FIRST = 10
"""So many keys of an object below the top come before what is deeper."""
_TOP_KEYS = 500
_LINES = 1_500
_ITEMS = 20  # items of an array that its common shape is made from
_EACH = 1_000
"""So many items of an array are looked at for the fields of its objects."""
_EACH_DEPTH = 8
_DISTINCT = 1_000
_WHOLE_TEXT = 60
"""Characters of a text that are kept; of a longer one also a hash, to tell it from others."""
_KINDS = {dict: "object", list: "array", type(None): "null"}
_SHAPE_KINDS = {**_KINDS, str: "string", bool: "boolean"}
_FLOATS = frozenset(".eENI")
"""What only numbers with a fraction or an exponent, and those that are none, have."""
_FIELD_KINDS = {**_KINDS, str: "text", bool: "bool"}


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a value of JSON is an object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Return whether a value of JSON is an array."""
    return isinstance(value, list)


class _Number(str):
    """A number as the text writes it: never rounded, never too long to convert."""

    __slots__ = ()


def number_of(text: str) -> str:
    """Return a number as a `JsonField` takes it."""
    return _Number(text)


def parsed(text: str) -> Any:
    """Return the value of a text, with its numbers as `number_of` gives them. Raises ValueError or RecursionError."""
    return json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_Number)


def json_lines(text: str) -> list[str] | None:
    """Return the shape, a line a key, or None where the text is not JSON."""
    try:
        value = parsed(text)
    except (ValueError, RecursionError):
        return None
    return [Line(_short(value)), *_Shape().below(value, 1, "")]


def _short(value: Any) -> str:
    """Return type and length, or the value itself where it is short."""
    if is_object(value):
        return f"object, {plural(len(value), 'keys')}"
    if is_list(value):
        kinds = sorted({_SHAPE_KINDS.get(class_of(item), "number") for item in value[:_ITEMS]})
        about = "~" * (len(value) > _ITEMS)
        return f"array, {plural(len(value), 'items')}" + (f" of {about}{' | '.join(kinds)}" if kinds else "")
    if isinstance(value, _Number):
        return f"number {one_line(value, 40)}"
    return f"string {_quoted(value, 60)}" if isinstance(value, str) else json.dumps(value)


def key_line(depth: int, path: str, key: str, told: str, number: int = 0) -> NamedLine:
    """Return the line of a key, the one with this number in its object: those after the first few come later."""
    text, rank = f"{'  ' * depth}{key}: {told}", depth - 1 + 2 * (depth > 1 and number >= _FIRST)
    short = text.partition(", ")[0] if not told.startswith("string") else ""
    return NamedLine(text, f"{path}{key}", what="keys", short=short, depth=depth, rank=rank)


class _Shape:
    """The lines about a value. After `_LINES` of them nothing is said of what is below a key, but its size."""

    def __init__(self) -> None:
        self._count = 0

    def _line(self, depth: int, path: str, key: str, told: str, number: int) -> NamedLine:
        self._count += 1
        return key_line(depth, path, key, told, number)

    def below(self, value: Any, depth: int, path: str) -> Iterator[str]:
        """Yield the keys of an object, or the fields of the objects in an array."""
        indent = "  " * depth
        if depth > _DEPTH or self._count > _LINES:
            return
        if is_object(value):
            most = _KEYS if depth > 1 else _TOP_KEYS
            for at, (key, item) in enumerate(islice(value.items(), most)):
                name = one_line(key, 60)
                yield self._line(depth, path, name, _short(item), at)
                yield from self.below(item, depth + 1, f"{path}{name}.")
            yield from indented(more_lines(len(value) - most, "keys"), indent)
        elif is_list(value):
            if any(is_object(item) for item in value[:_EACH]):
                heading = f"{indent}[each]" if len(value) <= _EACH else f"{indent}[each of the first {_EACH:,}]"
                yield Line(heading, rank=depth - 1)
                yield from self.each(value[:_EACH], depth + 1, f"{path.removesuffix('.')}[].")
            elif value and is_list(value[0]):
                yield Line(f"{indent}[0]: {_short(value[0])}", rank=depth - 1)

    def each(self, items: list[Any], depth: int, path: str) -> Iterator[str]:
        """Yield the fields of some objects of one place: types, where they are missing, range or examples."""
        objects = [item for item in items if is_object(item)]
        if not objects or depth > _EACH_DEPTH or self._count > _LINES:
            return
        keys = list(dict.fromkeys(key for item in objects for key in item))
        for at, key in enumerate(keys[:_KEYS]):
            values = [item[key] for item in objects if key in item]
            found = JsonField()
            found.take(values)
            name = one_line(key, 60)
            yield self._line(depth, path, name, found.told(len(objects)), at)
            below = [one for value in values for one in (value if is_list(value) else [value])]
            yield from self.each(below, depth + 1, f"{path}{name}.")
        yield from indented(more_lines(len(keys) - _KEYS, "keys"), "  " * depth)


@dataclass(slots=True)
class JsonField:
    """Facts about one field, by the dotted path of its keys."""

    kinds: Counter[str] = field(default_factory=Counter[str])
    numbers: Span = field(default_factory=Span)
    texts: Counter[str] = field(default_factory=Counter[str])
    dates: DateSpan = field(default_factory=DateSpan)
    lengths: tuple[int, int] = (1 << 60, -1)
    items: Counter[str] = field(default_factory=Counter[str])

    def copy(self) -> JsonField:
        """Return a field that can take more without a change of this one."""
        counts = {"kinds": Counter(self.kinds), "texts": Counter(self.texts), "items": Counter(self.items)}
        return replace(self, numbers=replace(self.numbers), dates=replace(self.dates), **counts)

    def take(self, values: Sequence[Any]) -> None:
        """Count some values."""
        by_class: dict[type, list[Any]] = {}
        for value in values:
            by_class.setdefault(class_of(value), []).append(value)
        for cls, some in by_class.items():
            if cls is _Number:
                self._take_numbers(some)
            elif cls is str:
                self._take_texts(some)
            else:
                self.kinds[_FIELD_KINDS[cls]] += len(some)
            if cls is list or cls is dict:
                sizes = list(map(len, some))
                self.lengths = min(self.lengths[0], *sizes), max(self.lengths[1], *sizes)
            if cls is list:
                self.items.update(_kind(item) for value in some for item in value[:_ITEMS])

    def _take_numbers(self, numbers: list[str]) -> None:
        whole = sum(map(str.isdigit, numbers))
        if whole < len(numbers):
            whole += sum(_FLOATS.isdisjoint(text) for text in numbers if not text.isdigit())
        self.kinds += Counter({"int": whole, "float": len(numbers) - whole})
        known = [(value, text) for value, text in zip(map(float, numbers), numbers, strict=True) if value == value]
        if known:  # those that are not NaN
            self.numbers.take_numbers(*zip(*known, strict=True))

    def _take_texts(self, texts: list[str]) -> None:
        self.kinds["text"] += len(texts)
        self.dates.take_texts(texts)
        if len(self.texts) < _DISTINCT:
            self.texts.update(text if len(text) <= _WHOLE_TEXT else _shortened(text) for text in texts)

    def take_size(self, kind: str, length: int) -> None:
        """Count one object or array of so many keys or items."""
        self.kinds[kind] += 1
        self.lengths = min(self.lengths[0], length), max(self.lengths[1], length)

    def shape_kinds(self) -> set[str]:
        """Return the types as an array of such values tells them."""
        names = {"int": "number", "float": "number", "text": "string", "bool": "boolean"}
        return {names.get(kind, kind) for kind in self.kinds}

    def types(self) -> str:
        """Return the types, the most frequent first."""
        kinds = [kind for kind, _ in sorted(self.kinds.items(), key=lambda row: (-row[1], row[0])) if kind != "null"]
        return " | ".join(kinds) or "null"

    def told(self, records: int, about: str = "") -> str:
        """Return types, share of nulls, where it is missing, range; `about` stands before what is of a sample."""
        nulls, missing = self.kinds["null"], records - self.kinds.total()
        parts = [self.types()]
        parts += [f"null in {about}{share_of(nulls, records)}"] if nulls and parts != ["null"] else []
        parts += [f"missing in {about}{share_of(missing, records)}"] if missing > 0 else []
        low, high = self.numbers.ends()
        if low:
            parts.append(about + " … ".join(one_line(text, 40) for text in dict.fromkeys((low, high))))
        if self.texts:
            parts.append(self._texts(about))
        if self.lengths[1] >= 0:
            what = f" of {' | '.join(sorted(self.items))}" if self.items else ""
            unit = "items" if "array" in self.kinds else "keys"
            parts.append(f"{about}{span_of(*self.lengths, unit)}{what}")
        return ", ".join(parts)

    def _texts(self, about: str) -> str:
        if self.dates.is_dated:
            return f"{about}{' … '.join(self.dates.ends())}"
        top = sorted(self.texts.items(), key=lambda row: (-row[1], row[0]))[:3]
        if self.kinds["text"] > self.texts.total():  # how often each is there was not counted any more
            return f"{about}{_DISTINCT:,} or more distinct, such as {_quoted(top[0][0])}"
        if self.texts.total() == 1:
            return f"{about}{_quoted(top[0][0])}"
        if len(self.texts) == self.texts.total():
            looked_at = f" ({about}{len(self.texts):,} looked at)" if about else ""
            return f"all different{looked_at}, such as {_quoted(top[0][0])}"
        total, sign = self.texts.total(), "" if about else "×"
        shown = ", ".join(f"{_quoted(text)} {sign}{part_of(often, total, about)}" for text, often in top)
        return f"{about}{len(self.texts):,} distinct ({shown})"


def _shortened(text: str) -> str:
    """Return a short text that is another one for each text: what is shown of it, and a hash."""
    return text[:_WHOLE_TEXT] + xxh3_64_hexdigest(text.encode("utf-8", "surrogatepass"))


def _kind(value: Any) -> str:
    if isinstance(value, _Number):
        return "int" if _FLOATS.isdisjoint(value) else "float"
    return _FIELD_KINDS[type(value)]


def _quoted(text: str, limit: int = 30) -> str:
    return json.dumps(one_line(text, limit), ensure_ascii=False)
