"""The fields of a text with a JSON value a line (JSONL, NDJSON): types, nulls, where one is missing, ranges, examples.

Rule 1: a field is named by the dotted path of its keys. At most `_FIELDS` are kept, and that there are more is said.
Rule 2: a line that is no JSON is counted, and the first ones are named; it hides no other.
Rule 3: counts and ranges of a sample carry a `~`, and how many lines it has is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.amounts import Line, NamedLine
from ctxkernel.sources.base.file_reader import Text, line_parts
from ctxkernel.sources.base.positions import Outline
from ctxkernel.sources.base.random_samples import spread
from ctxkernel.sources.outlines.json_outline import JsonField, is_object, parsed

_SAMPLE_LINES = 5_000
_SAMPLE_CHARS = 1 << 20
"""So much of a text is looked at at once, spread evenly over it."""
_PART_BYTES = 1 << 16
_DEPTH = 4
_FIELDS = 200
_NAMED = 3


@dataclass(slots=True)
class RecordFacts:
    """Facts about the lines that were taken."""

    by_lines = True
    fields: dict[str, JsonField] = field(default_factory=dict[str, JsonField])
    lines: int = 0
    values: int = 0
    """Lines that are not blank."""
    bad: int = 0
    """Those of them that are no JSON …"""
    named: tuple[int, ...] = ()
    """… and the numbers of the first ones."""
    more: bool = False
    """Whether there are more fields than are kept."""

    def copy(self) -> RecordFacts:
        """Return facts that can take more lines without a change of these."""
        return replace(self, fields={path: one.copy() for path, one in self.fields.items()})

    def take(self, data: bytes, line: int | None = None) -> None:
        """Take some whole lines; `line` is the number of the first one, where that is not the next."""
        first = self.lines if line is None else line
        for part in line_parts(data, _PART_BYTES):
            texts = part.decode("utf-8" if first else "utf-8-sig", "replace").removesuffix("\n").split("\n")
            self.take_lines(enumerate(texts, first))
            first += len(texts)
            self.lines += len(texts)

    def take_lines(self, numbered: Iterable[tuple[int, str]]) -> None:
        """Take some lines with their numbers."""
        found: dict[str, list[Any]] = {}
        for number, text in numbered:
            if not text or text.isspace():
                continue
            self.values += 1
            try:
                record = parsed(text)
            except (ValueError, RecursionError):
                self.bad += 1
                self.named = (*self.named, number)[:_NAMED]
                continue
            self._spread(found, record)
        for path, values in found.items():
            self.fields[path].take(values)

    def _spread(self, found: dict[str, list[Any]], record: Any) -> None:
        """Add the values of one line to those of their fields, in the order of its keys."""
        stack: list[tuple[str, Any, int]] = [("", record, 0)]
        while stack:
            path, value, depth = stack.pop()
            if path or not is_object(value):
                name = path or "(line)"
                if name not in self.fields:
                    if len(self.fields) >= _FIELDS:
                        self.more = True
                        continue
                    self.fields[name] = JsonField()
                found.setdefault(name, []).append(value)
            if is_object(value) and depth < _DEPTH:
                below = list(islice(value.items(), 2 * _FIELDS))
                stack += [(f"{path}.{_key(key)}" if path else _key(key), one, depth + 1) for key, one in below[::-1]]

    @property
    def records(self) -> int:
        """The number of lines that are JSON."""
        return self.values - self.bad

    @property
    def is_records(self) -> bool:
        """Return whether most of the lines are JSON."""
        return self.records >= max(1, self.values // 2)

    def outline(self, count: str, about: str) -> Outline:
        """Return a line a field. `count`: the number of lines; `about` stands before what is of a sample."""
        head = [count if self.bad else f"{count} of JSON"]
        head += [f"fields from {self.values:,} of them"] if about else []
        if self.bad:
            numbers = ", ".join(map(str, self.named)) + ", …" * (self.bad > len(self.named))
            head.append(f"{about}{self.bad:,} no JSON ({about}line {numbers})")
        shown = [
            NamedLine(f"{path}: {one.told(self.records, about)}", path, one.types())
            for path, one in self.fields.items()
        ]
        more = [Line(f"[… more fields than {_FIELDS:,}]", 1, "fields", exact=False)] if self.more else []
        return Outline([", ".join(head)], [], "fields", [*shown, *more], unit="fields")


def record_outline(text: Text) -> Outline | None:
    """Return the fields of a text, of a long one from a sample; None where most of the lines are no JSON."""
    facts, room = RecordFacts(), _SAMPLE_CHARS
    numbers = [at for at, line in enumerate(text.lines) if line and not line.isspace()]
    some: list[tuple[int, str]] = []
    for at in (numbers[one] for one in spread(len(numbers), _SAMPLE_LINES)):
        room -= len(text.lines[at])
        if room < 0 and some:
            break
        some.append((at, text.lines[at]))
    facts.take_lines(some)
    if not facts.is_records:
        return None
    count = plural(len(numbers), "lines") if text.whole else f"~{_estimate(text):,} lines"
    return facts.outline(count, "~" * (len(some) < len(numbers) or not text.whole))


def _estimate(text: Text) -> int:
    """Return about how many lines a file has of which the beginning was read."""
    return max(1, round(len(text.lines) * text.size / max(text.read, 1)))


def _key(key: str) -> str:
    return one_line(key, 60) or '""'
