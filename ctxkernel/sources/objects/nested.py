"""Nested dicts and lists, as JSON gives them: 0 the value, a key a line; 1 its fields; 2 the fields that hold values.

Rule 1: a field is a path of keys; `[]` stands for each item of a list. Of a list at most `_ITEMS` items are looked at,
        spread evenly; what is told of a field below a list of more has a `~`.
Rule 2: where a budget does not hold every field, those nearest to the top come first: their names, types, examples.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.descriptions import brief
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.reflection import CONTAINERS, SEQUENCES, Classes, class_of
from ctxkernel.core.text import plural
from ctxkernel.sources.base.amounts import NamedLine, is_cut
from ctxkernel.sources.base.file_reader import content_hash
from ctxkernel.sources.base.random_samples import spread
from ctxkernel.sources.base.rendering import Draft, Names, Place, fit_lines, titled
from ctxkernel.sources.files.text_documents import lines_document
from ctxkernel.sources.files.text_levels import render_document, with_basis
from ctxkernel.sources.objects.facts import LinesSource
from ctxkernel.sources.objects.fields import FieldFacts, first, key_name
from ctxkernel.sources.objects.records import is_keyed

_ITEMS = 1_000
_FEW = 20
_VALUES = 20_000
"""After so many values only a few items of each list are looked at."""
_FIELDS = 500
_DEPTH = 12
_LINES = 2_000
_LINE_CHARS = 100
_VALUE_CHARS = 200
_LOOKED_AT = 50
_STAMPED = 2_000
_KEYS = Classes(str, bytes, int, float, bool, type(None))
_EACH = ("[]", "{}")
_REST = object()
_NESTING = {"dict", "list", "tuple"}
_NAME = re.compile(r"[^\W\d]\w*")


def is_nested(target: Any) -> bool:
    """Return whether it is a dict or list that has dicts in it, of Python's own types, and that has a path to each."""
    if class_of(target) not in CONTAINERS or (class_of(target) is dict and not _has_paths(target)):
        return False
    for item in islice(target.values() if class_of(target) is dict else target, _LOOKED_AT):
        some = [item] if class_of(item) is dict else islice(item, _LOOKED_AT) if class_of(item) in SEQUENCES else ()
        if any(class_of(one) is dict and one for one in some):
            return True
    return False


def _has_paths(value: dict[Any, Any]) -> bool:
    return all(class_of(key) in _KEYS for key in value)


@dataclass(slots=True)
class _Field:
    path: str
    label: str
    depth: int
    among: int
    """The number of dicts that might have it; 0 for the items of a list."""
    about: str
    """`~` where not all of its values were looked at."""
    facts: FieldFacts

    @property
    def nests(self) -> bool:
        """Return whether all its values are dicts, or lists of dicts and lists."""
        facts = self.facts
        return bool(facts.kinds) and not facts.kinds.keys() - _NESTING and not facts.items.keys() - _NESTING

    def line(self, *, full: bool) -> NamedLine:
        """Return types, counts and examples: below what it is in, or with its whole path."""
        kinds, *rest = self.facts.facts(self.among or self.facts.total, self.about)
        total, there = self.facts.total, self.facts.kinds.total()
        often = f" ({total:,} looked at)" if self.about else f" ×{there or total:,}"
        often = often if total > 1 else ""
        before = f"{'  ' * self.depth}{self.label}" if full else f"- {self.path}"
        text = ", ".join([f"{before}: {kinds}{often}", *rest])
        depth = self.depth if full else 0
        short = f"{before}: {kinds}" if rest or often else ""
        return NamedLine(text, self.path, short=short, depth=depth, rank=self.depth)


class _Walk:
    """Finds the fields of a value, in the order of its keys."""

    def __init__(self, target: Any) -> None:
        self.found: list[_Field] = []
        self.values = 0
        self.more = False
        """Whether there are fields that were not looked at."""
        self._outer = set[int]()
        """The ids of the containers that what is looked at is in."""
        self._below([target], "", 0, "")

    def _below(self, values: list[Any], path: str, depth: int, about: str) -> None:
        """Find the fields below all values of one path."""
        if depth > _DEPTH:
            self.more = self.more or any(class_of(one) in CONTAINERS and one for one in values)
            return
        values = [one for one in values if id(one) not in self._outer]  # one that contains itself has no end
        ids = {id(one) for one in values if class_of(one) in CONTAINERS}
        self._outer |= ids
        self._inside(values, path, depth, about)
        self._outer -= ids

    def _inside(self, values: list[Any], path: str, depth: int, about: str) -> None:
        keyed = [one for one in values if class_of(one) is dict and len(one) > _LOOKED_AT and is_keyed(one)]
        dicts = [one for one in values if class_of(one) is dict and one and not any(one is other for other in keyed)]
        lists = [one for one in values if class_of(one) in SEQUENCES and one]
        if dicts:
            self.more = self.more or not all(map(_has_paths, dicts))
            self._keys(dicts, path, depth, about)
        for mark, items in (("{}", [list(one.values()) for one in keyed]), ("[]", lists)):
            if items:
                self._items(items, path, mark, depth, about)

    def _keys(self, dicts: list[dict[Any, Any]], path: str, depth: int, about: str) -> None:
        for key in dict.fromkeys(key for one in dicts for key in one if class_of(key) in _KEYS):
            name = key_name(key)
            label = name if class_of(key) is str and _NAME.fullmatch(name) else f"[{brief(key, 60)}]"
            below = path + (label if label[0] == "[" or not path else f".{label}")
            shown = label if path[-2:] not in _EACH else f"{path[-2:]}{below[len(path) :]}"
            self._take([one[key] for one in dicts if key in one], below, shown, depth, len(dicts), about)

    def _items(self, lists: list[Any], path: str, mark: str, depth: int, about: str) -> None:
        total = sum(map(len, lists))
        each = _ITEMS if self.values < _VALUES else _FEW
        chosen = spread(total, each)
        some = [one for items in lists for one in items] if len(chosen) == total else _spread_over(lists, chosen)
        about = about if len(chosen) == total else "~"
        if any(class_of(one) in SEQUENCES for one in some):
            self._take(some, path + mark, mark, depth, 0, about)
        else:
            self._below(some, path + mark, depth, about)

    def _take(self, values: list[Any], path: str, label: str, depth: int, among: int, about: str) -> None:
        self.values += len(values)
        if len(self.found) >= _FIELDS:
            self.more = True
            return
        facts = FieldFacts()
        facts.take_many(values)
        self.found.append(_Field(path, label, depth, among, about, facts))
        self._below(values, path, depth + 1, about)


def _spread_over(lists: list[Any], chosen: Any) -> list[Any]:
    """Return the items with these numbers, counted through all lists."""
    found: list[Any] = []
    ends = list(accumulate(map(len, lists)))
    for at in chosen:
        which = bisect_right(ends, at)
        found.append(lists[which][at - (ends[which - 1] if which else 0)])
    return found


class NestedSource(LinesSource):
    """A view of nested dicts and lists."""

    kind = "nested"

    def stamp(self) -> str:
        """Return a hash of the first values in it, however deep they are. Never raises."""
        texts = list(islice(_scalars(self.target), _STAMPED + 1))
        mark = "~" if len(texts) > _STAMPED else ""
        return f"{id(self.target):x} {mark}{content_hash(chr(10).join(texts).encode('utf-8', 'replace'))}"

    def covers(self, stamp: str) -> bool:
        """Return whether all values are in the stamp."""
        return "~" not in stamp

    def parts(self) -> list[str]:
        """Return the value, a key or an item a line."""
        return [line for line, _ in self._lines()]

    def _lines(self) -> list[tuple[str, str]]:
        found = list(islice(_pretty(self.target), _LINES + 1))
        cut = (
            [("[… the value goes on: a line of it is a position here only so far]", "")] if len(found) > _LINES else []
        )
        return found[:_LINES] + cut

    def names(self) -> Names:
        """Return the paths of the keys: `meta.version`, `users[0].name`."""
        return Names("keys", [(path, Place(at)) for at, (_, path) in enumerate(self._lines()) if path])

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the value as it is now."""
        lines = self.parts()
        head = f"{titled(self.label, self.target)} · {plural(len(self.target), 'items')}"
        document = lines_document(head, lines, partial=is_cut(lines))
        if request.lod in (0, 3):
            return render_document(document, request, place, budget)
        return with_basis(_fields_draft(head, self.target, budget, full=request.lod == 1), document)


def _fields_draft(headline: str, target: Any, budget: int, *, full: bool) -> Draft:
    """Return the fields that a budget holds, those nearest to the top first; `full` as a tree, else their leaves."""
    walk = _Walk(target)
    lines = [one.line(full=full) for one in walk.found if full or not one.nests]
    depth = max((one.depth for one in walk.found), default=0) + 1
    about = f"{plural(len(walk.found), 'fields')}{' or more' if walk.more else ''}, {plural(depth, 'levels')} deep"
    return fit_lines([f"{headline} · {about}"], lines, budget, "fields")


def _pretty(target: Any) -> Iterator[tuple[str, str]]:
    """Yield the lines of a value, each with the path of the key that it begins with, or an empty text.

    What is short stands on one line.
    """
    waiting: list[tuple[str, str, Any, int]] = [(*step, 0) for step in _steps(target, "", _LINES)]
    while waiting:
        shown, path, value, depth = waiting.pop()
        indent = "  " * depth
        if value is _REST:
            yield f"{indent}{shown}", ""
            continue
        text = brief(value, _LINE_CHARS) if class_of(value) in CONTAINERS else brief(value, _VALUE_CHARS)
        if class_of(value) not in CONTAINERS or not value or depth > _DEPTH or not ("…" in text or _is_deep(value)):
            yield f"{indent}{shown}{text}", path
            continue
        yield f"{indent}{shown}{class_of(value).__name__}, {plural(len(value), 'items')}", path
        if len(value) > 5 * _FEW:
            rest = f"[… {len(value) - _FEW:,} more items; a view of this {class_of(value).__name__} alone shows them]"
            waiting.append((rest, "", _REST, depth + 1))
        waiting += [(*step, depth + 1) for step in _steps(value, path, _FEW if len(value) > 5 * _FEW else _LINES)]


def _is_deep(value: Any) -> bool:
    """Return whether `brief` would leave out what is below: it goes three levels down."""
    items: list[Any] = [value]
    for _ in range(3):
        items = [one for item in items for one in (item.values() if class_of(item) is dict else item)]
        items = [one for one in items if class_of(one) in CONTAINERS and one]
    return bool(items)


def _steps(value: Any, path: str, most: int) -> list[tuple[str, str, Any]]:
    """Return what stands before each of the first items of a container, its path, and the item; the last one first."""
    if class_of(value) is dict:
        pairs = first(value.items(), most)
        return [(f"{brief(key, 60)}: ", _path(path, key), item) for key, item in reversed(pairs)]
    some = list(enumerate(first(value, most)))
    return [(f"{at}: ", f"{path}[{at}]", item) for at, item in reversed(some)]


def _path(path: str, key: Any) -> str:
    name = key_name(key)
    if class_of(key) is str and _NAME.fullmatch(name):
        return f"{path}.{name}" if path else name
    return f"{path}[{brief(key, 60)}]"


def _scalars(target: Any) -> Iterator[str]:
    """Yield the values in it as short texts, and the keys, in order. Runs no code of the user's."""
    waiting: list[Any] = [target]
    while waiting:
        one = waiting.pop()
        if class_of(one) is dict:
            yield f"{{{len(one)}"
            for key, item in reversed(first(one.items(), _STAMPED)):
                waiting += [item, key]
        elif class_of(one) in SEQUENCES:
            yield f"[{len(one)}"
            waiting += reversed(first(one, _STAMPED))
        else:
            yield f"{len(one)} {brief(one, _VALUE_CHARS)}" if class_of(one) is str else brief(one, _VALUE_CHARS)
