"""Facts about the values of one field: types, nulls, range, examples. For records, nested values and graphs.

Rule 1: only exact types of Python and NumPy scalars are compared or shown by value; of any other object the type is
        counted, so that no code of the user's runs.
Rule 2: every count is of the values that were taken. Where those are a sample, the caller passes `about="~"`, and
        shares stand in place of counts.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import statistics
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

import xxhash

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import Classes, class_of, is_a, type_name
from ctxkernel.core.text import one_line, plural, span_of
from ctxkernel.sources.base.random_samples import part_of
from ctxkernel.sources.tables.columns import cell, modules, statistics_of

_DISTINCT = 20_000
_WHOLE_CHARS = 400
_TEXT_CHARS = 60
_NUMBERS = Classes(int, float, decimal.Decimal)
_TIMES = Classes(dt.date, dt.datetime, dt.time, dt.timedelta)
_CONTAINERS = Classes(list, tuple, dict, set, frozenset)
_MOST_NUMBERS = 20_000
_BITS = 512
"""A longer number is counted, and no end of a range."""


def plain(value: Any) -> Any:
    """Return a NumPy scalar as the value of Python that it is; any other value unchanged."""
    numpy, _ = modules()
    if numpy is None or not is_a(value, numpy.generic) or value.dtype.kind not in "biufUM":
        return value
    if value.dtype.kind == "f" and value.dtype.itemsize != 8:
        return float(str(value))  # float32 0.1 is 0.1, not 0.10000000149
    return value.astype("datetime64[us]").item() if value.dtype.kind == "M" else value.item()


@dataclass(slots=True)
class FieldFacts:
    """Facts about one field."""

    kinds: Counter[str] = field(default_factory=Counter[str])
    nulls: int = 0
    nan: int = 0
    numbers: list[Any] = field(default_factory=list[Any])
    low: Any = None
    high: Any = None
    texts: Counter[str] = field(default_factory=Counter[str])
    unknown: int = 0
    """Texts that are not counted, since there are too many different ones."""
    bools: Counter[bool] = field(default_factory=Counter[bool])
    lengths: tuple[int, int] = (1 << 60, -1)
    items: Counter[str] = field(default_factory=Counter[str])

    @property
    def total(self) -> int:
        """The number of values that were read, nulls included."""
        return self.nulls + self.kinds.total()

    def take(self, value: Any) -> None:
        """Count one value."""
        value = plain(value)
        kind = class_of(value)
        if value is None:
            self.nulls += 1
            return
        self.kinds[type_name(kind)] += 1
        if kind is bool:
            self.bools[value] += 1
        elif kind in _NUMBERS:
            self._number(value)
        elif kind is str:
            self._count_texts([value])
        elif kind in _TIMES:
            self._extend(value)
        elif kind in _CONTAINERS:
            self.lengths = min(self.lengths[0], len(value)), max(self.lengths[1], len(value))
            if kind is not dict:
                self.items.update(type_name(class_of(item)) for item in list(value)[:20])

    def take_many(self, values: list[Any]) -> None:
        """Count some values; of one type together, which is faster."""
        there = [value for value in values if value is not None]
        kinds = {id(cls): cls for cls in map(class_of, there)}
        kind = class_of(there[0]) if len(kinds) == 1 else None
        if kind is str:
            self._count_texts(there)
        elif kind is float or (kind is int and max(map(int.bit_length, there)) <= _BITS):
            real = [value for value in there if value == value]
            self.nan += len(there) - len(real)
            for end in (min(real), max(real)) if real else ():
                self._extend(end)
            room = _MOST_NUMBERS - len(self.numbers)
            self.numbers += [value for value in real if math.isfinite(value)][:room] if kind is float else real[:room]
        else:
            for value in values:
                self.take(value)
            return
        self.nulls += len(values) - len(there)
        self.kinds[type_name(kind)] += len(there)

    def _count_texts(self, texts: list[str]) -> None:
        for text, often in Counter(texts).items():
            digest = (
                "" if len(text) <= _WHOLE_CHARS else f"…{xxhash.xxh3_64_hexdigest(text.encode('utf-8', 'replace'))}"
            )
            key = text[:_WHOLE_CHARS] + digest
            if len(self.texts) < _DISTINCT or key in self.texts:
                self.texts[key] += often
            else:
                self.unknown += often

    def _number(self, value: Any) -> None:
        if value != value:
            self.nan += 1
            return
        if class_of(value) is int and value.bit_length() > _BITS:
            return
        self._extend(value)
        if len(self.numbers) < _MOST_NUMBERS and math.isfinite(value):
            self.numbers.append(value)

    def _extend(self, value: Any) -> None:
        try:
            self.low = value if self.low is None or value < self.low else self.low
            self.high = value if self.high is None or value > self.high else self.high
        except TypeError:  # with and without a time zone, dates and numbers
            return

    def types(self) -> str:
        """Return the types, the most frequent first."""
        kinds = sorted(self.kinds.items(), key=lambda row: (-row[1], row[0]))
        shown = " | ".join(kind for kind, _ in kinds[:4])
        return (shown + (f" | {len(kinds) - 4} more types" if len(kinds) > 4 else "")) or "null"

    def facts(self, among: int, about: str = "") -> list[str]:
        """Return types, nulls, how many of `among` lack it, and range or examples."""
        missing = among - self.total
        return [
            self.types(),
            *([self._part(self.nulls, about, "nulls", "null")] if self.nulls and self.kinds else []),
            *([self._part(self.nan, about, "NaN", "NaN")] if self.nan else []),
            *(
                [f"{part_of(missing, among, about)}{'' if about else f' of {among:,}'} without it"]
                if missing > 0
                else []
            ),
            *self._values(about),
        ]

    def _part(self, count: int, about: str, counted: str, shared: str) -> str:
        return f"{part_of(count, self.total, about)} {shared}" if about else plural(count, counted)

    def _values(self, about: str) -> list[str]:
        found: list[str] = []
        if self.low is not None:
            ends = [cell(self.low), cell(self.high)]
            found.append(about + " … ".join(dict.fromkeys(ends)))
        if self.texts:
            found.append(self._distinct(about))
        if self.bools:
            shares = sorted(self.bools.items(), reverse=True)
            found.append(", ".join(f"{part_of(often, self.total, about)} {value}" for value, often in shares))
        low, high = self.lengths
        if high >= 0:
            of = f" of {' | '.join(sorted(self.items))}" if self.items else ""
            span = span_of(low, high, "items")
            found.append(f"{about}{span}{of}")
        return found

    def _distinct(self, about: str) -> str:
        often = sorted(self.texts.items(), key=lambda row: (-row[1], row[0]))
        if len(often) == 1:
            text, times = often[0]
            return f"{about}{brief(text)}{f' ×{times:,}' if times > 1 and not about else ''}"
        if often[0][1] == 1 and not self.unknown:
            return f"{about}all different, such as {brief(next(iter(self.texts)), 40)}"
        many = f"{about}{len(often):,}{' or more' if self.unknown else ''}"
        sign = "" if about else "×"
        top = [f"{brief(text, 40)} {sign}{part_of(times, self.total, about)}" for text, times in often[:3]]
        return f"{many} distinct ({', '.join(top)})"

    def statistics(self, among: int, about: str = "") -> list[str]:
        """Return types, nulls, and of numbers range, quartiles, mean and standard deviation."""
        facts = self.facts(among, about)
        numbers = [float(number) for number in self.numbers]
        if len(numbers) < 2 or len(numbers) != sum(self.kinds.values()) - self.nan:
            return facts
        mean = math.fsum(numbers) / len(numbers)
        squares = math.fsum((one - mean) ** 2 for one in numbers) if max(map(abs, numbers)) < 1e150 else math.nan
        quartiles = statistics.quantiles(numbers, n=4, method="inclusive")
        told = statistics_of(cell(self.low), cell(self.high), quartiles, mean, math.sqrt(squares / (len(numbers) - 1)))
        told = [part.replace(" ", f" {about}", 1) for part in told]
        return [*facts[: -len(self._values(about)) or None], *told]


def key_name(key: Any) -> str:
    """Return a key as one line."""
    return (one_line(key, _TEXT_CHARS) or '""') if class_of(key) is str else brief(key, _TEXT_CHARS)


def first(items: Iterable[Any], most: int) -> list[Any]:
    """Return the first items."""
    return list(islice(items, most))
