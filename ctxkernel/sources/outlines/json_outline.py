"""The shape of a JSON text: keys, types and lengths of its top levels, with samples as they are written.

Texts with a JSON value a line (JSONL, NDJSON): the fields, from a bounded sample of lines.

Rule 1: values are shown as the file writes them; nothing is computed but counts and shares.
Rule 2: types, shares and ranges are of at most `SAMPLE_LINES` lines, spread evenly over what was read; where that is
        not every line, the first line of the structure says so. The number of lines is exact where the whole file
        was read, else an estimate with a `~`.
Rule 3: a line that is no JSON is counted and its number named; it never hides the others.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.file_reader import Text

_SHAPE_DEPTH = 3
_KEYS = 40
_ITEMS = 20  # items of an array that its common shape is made from


class _Figure(str):
    """A number as the text writes it: never rounded, never too long to convert."""

    __slots__ = ()


def json_lines(text: str) -> list[str] | None:
    """Return the shape, a line a key, or None where the text is not JSON."""
    try:
        value = json.loads(text, parse_float=_Figure, parse_int=_Figure, parse_constant=_Figure)
    except (ValueError, RecursionError):
        return None
    return [brief(value), *_below(value, 1)]


def brief(value: Any) -> str:
    """Return type and length, or the value itself where it is short."""
    if isinstance(value, dict):
        return f"object, {len(value):,} keys"
    if isinstance(value, list):
        kinds = sorted({_shape_kind(item) for item in value[:_ITEMS]})
        return f"array, {len(value):,} items" + (f" of {' | '.join(kinds)}" if kinds else "")
    if isinstance(value, _Figure):
        return f"number {one_line(value, 40)}"
    if isinstance(value, str):
        return f"string {json.dumps(one_line(value, 60), ensure_ascii=False)}"
    return {None: "null", True: "true", False: "false"}[value]


def _shape_kind(value: Any) -> str:
    if isinstance(value, _Figure):
        return "number"
    return {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}[type(value)]


def _below(value: Any, depth: int) -> Iterator[str]:
    if depth > _SHAPE_DEPTH:
        return
    indent = "  " * depth
    if isinstance(value, dict):
        for at, (key, item) in enumerate(value.items()):
            if at == _KEYS:
                yield f"{indent}… {len(value) - _KEYS:,} more keys"
                return
            yield f"{indent}{one_line(str(key), 60)}: {brief(item)}"
            yield from _below(item, depth + 1)
    elif isinstance(value, list):
        objects = [item for item in value[:_ITEMS] if isinstance(item, dict)]
        if objects:
            merged: dict[str, Any] = {}
            for item in objects:
                for key, inner in item.items():
                    merged.setdefault(key, inner)
            yield f"{indent}[each]"
            yield from _below(merged, depth + 1)
        elif value and isinstance(value[0], list):
            yield f"{indent}[0]: {brief(value[0])}"


SAMPLE_LINES = 5_000
SAMPLE_CHARS = 2 << 20
"""Characters that are parsed at most; the sample ends before the line that would be more."""
_DEPTH = 4
_FIELDS = 200
_DISTINCT = 1_000
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")


class _Number(str):
    """A number as the text writes it."""

    __slots__ = ()


@dataclass(slots=True)
class _Field:
    """What is known of one field, by the dotted path of its keys."""

    there: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    low: tuple[float, str] = (math.inf, "")
    high: tuple[float, str] = (-math.inf, "")
    texts: Counter[str] = field(default_factory=Counter)
    dates: bool = True
    lengths: tuple[int, int] = (1 << 60, -1)
    items: Counter[str] = field(default_factory=Counter)

    def take(self, value: Any) -> None:
        """Count one value."""
        self.there += 1
        kind = _kind(value)
        self.kinds[kind] += 1
        if isinstance(value, _Number):
            number = float(value) if len(value) < 400 else math.nan
            self.low, self.high = min(self.low, (number, value)), max(self.high, (number, value))
        elif isinstance(value, str):
            self.dates = self.dates and len(value) < 40 and bool(_DATE.fullmatch(value))
            if len(self.texts) < _DISTINCT:
                self.texts[value[:60]] += 1
        if isinstance(value, (list, dict)):
            self.lengths = min(self.lengths[0], len(value)), max(self.lengths[1], len(value))
        if isinstance(value, list):
            self.items.update(_kind(item) for item in value[:20])

    def line(self, path: str, records: int) -> str:
        """Return the field in one line: path, types, share of nulls, where it is missing, range."""
        kinds = [kind for kind, _ in sorted(self.kinds.items(), key=lambda row: (-row[1], row[0])) if kind != "null"]
        parts = [" | ".join(kinds) or "null"]
        nulls, missing = self.kinds["null"], records - self.there
        parts += [f"null in {_share(nulls, records)}"] if nulls and kinds else []
        parts += [f"missing in {_share(missing, records)}"] if missing > 0 else []
        if self.low[1]:
            parts.append(
                f"{one_line(self.low[1], 40)} … {one_line(self.high[1], 40)}"
                if self.low != self.high
                else one_line(self.low[1], 40)
            )
        if self.texts:
            parts.append(self._texts())
        if self.lengths[1] >= 0:
            low, high = self.lengths
            what = f" of {' | '.join(sorted(self.items))}" if self.items else ""
            unit = "items" if "array" in self.kinds else "keys"
            parts.append(f"{f'{low:,}–' if low != high else ''}{plural(high, unit)}{what}")
        return f"{path}: {', '.join(parts)}"

    def _texts(self) -> str:
        if self.dates:
            return f"{min(self.texts)} … {max(self.texts)}"
        top = sorted(self.texts.items(), key=lambda row: (-row[1], row[0]))[:3]
        if len(self.texts) == sum(self.texts.values()):
            return f"all different, such as {_quoted(top[0][0])}"
        many = f"{_DISTINCT:,} or more" if len(self.texts) >= _DISTINCT else f"{len(self.texts):,}"
        return f"{many} distinct ({', '.join(f'{_quoted(text)} ×{often:,}' for text, often in top)})"


def json_fields(text: Text) -> tuple[list[str], list[str]] | None:
    """Return (lines about the whole, a line a field), or None where most of the lines are no JSON."""
    numbers = [at for at, line in enumerate(text.lines) if line and not line.isspace()]
    count = len(numbers)
    if not count:
        return None
    step = max(1, -(-count // SAMPLE_LINES))
    fields: dict[str, _Field] = {}
    records = left = 0
    bad: list[int] = []
    tried = 0
    room = SAMPLE_CHARS
    for at in numbers[::step]:
        line = text.lines[at]
        room -= len(line)
        if room < 0 and tried:
            break
        tried += 1
        try:
            value = json.loads(line, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
        except (ValueError, RecursionError):
            bad.append(at)
            continue
        records += 1
        left += _collect(fields, value)
    if records < max(1, tried // 2):
        return None
    lines = f"{plural(count, 'lines')} of JSON" if text.whole else f"~{_estimate(text):,} lines of JSON"
    about = [lines]
    if tried < count or not text.whole:
        about.append(f"fields from {tried:,} of them")
    if bad:
        more = ", …" if len(bad) > 3 else ""
        about.append(f"{len(bad):,} no JSON (line {', '.join(str(at) for at in bad[:3])}{more})")
    shown = [one.line(path, records) for path, one in list(fields.items())[:_FIELDS]]
    if left:
        shown.append(f"… more fields than {_FIELDS:,}")
    return [", ".join(about)], shown


def _collect(fields: dict[str, _Field], record: Any) -> bool:
    """Count the values of one line, in the order of its keys; True where there are more fields than are kept."""
    more = False
    stack: list[tuple[str, Any, int]] = [("", record, 0)]
    while stack:
        path, value, depth = stack.pop()
        if path or not isinstance(value, dict):
            known = fields.get(path or "(line)")
            if known is None:
                if len(fields) >= _FIELDS:
                    more = True
                    continue
                known = fields[path or "(line)"] = _Field()
            known.take(value)
        if isinstance(value, dict) and depth < _DEPTH:
            below = [(f"{path}.{_key(key)}" if path else _key(key), inner, depth + 1) for key, inner in value.items()]
            stack += below[: 2 * _FIELDS][::-1]
    return more


def _estimate(text: Text) -> int:
    """Return about how many lines a file has of which the beginning was read."""
    read = len(text.text.encode("utf-8", "replace"))
    return max(1, round(len(text.lines) * text.size / max(read, 1)))


def _kind(value: Any) -> str:
    if isinstance(value, _Number):
        return "float" if set(value) & set(".eENI") else "int"
    return {dict: "object", list: "array", str: "text", bool: "bool", type(None): "null"}[type(value)]


def _share(part: int, whole: int) -> str:
    """Return a share as a percentage; one that is not nothing is never 0 %, nor one that is not all 100 %."""
    if part >= whole:
        return "100 %"
    share = 100 * part / whole
    return f"{min(max(share, 0.1), 99.9):.1f} %"


def _quoted(text: str) -> str:
    return json.dumps(one_line(text, 30), ensure_ascii=False)


def _key(key: str) -> str:
    return one_line(key, 60) or '""'
