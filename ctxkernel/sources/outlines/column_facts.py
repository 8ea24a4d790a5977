"""Facts about the values of a column or of a field, as texts: types, nulls, ranges, categories.

Rule 1: a value is shown as the text writes it; what is smallest and largest is decided exactly: numbers as numbers of
        any size, times as moments, whatever their offsets from UTC.
Rule 2: of a column at most so many different values are counted; of one with more a lower bound is shown.
Rule 3: count, nulls, range and mean are of all cells. Quartiles of more than `MOST_SAMPLED` numbers are those of evenly
        spread ones, and carry a `~`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.text import one_line, span_of
from ctxkernel.sources.base.random_samples import frequent

MOST_DISTINCT = 1_000
MOST_SAMPLED = 20_000
_NULLS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "n/a", "#N/A", "-"})
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_DECIMALS = frozenset(".eEnN")
"""What only numbers with a fraction or an exponent, and infinite ones, have."""
_BOOLS = frozenset({"true", "false", "yes", "no", "t", "f"})
_EXACT = 2.0**53
"""Below this a float is exact for each whole number."""
_MOST_DIGITS = 400


def dates_of(texts: Collection[str]) -> list[datetime] | None:
    """Return the moments of some ISO dates and times, without an offset those of UTC; None where a text is none."""
    try:
        found = [datetime.fromisoformat(text) for text in texts] if all(map(_DATE.fullmatch, texts)) else None
    except ValueError:  # 2021-02-30
        return None
    return found and [one if one.tzinfo is not None else one.replace(tzinfo=UTC) for one in found]


def _numbers_of(cells: Sequence[str]) -> list[float] | None:
    """Return the numbers that some cells are; None where one is none."""
    try:
        numbers = list(map(float, cells))
    except ValueError:
        return None
    # float("1_0") is 10.0
    return None if math.isnan(sum(map(abs, numbers))) or "_" in "".join(cells) else numbers


def _exact(text: str) -> int | float:
    """Return a number of a few hundred digits without an error."""
    plain = text.strip()
    return int(plain) if plain.lstrip("+-").isdecimal() and len(plain) < _MOST_DIGITS else float(plain)


@dataclass(slots=True)
class Span:
    """The smallest and the largest of some values, with their texts."""

    low: tuple[Any, str] | None = None
    high: tuple[Any, str] | None = None

    def take(self, values: Sequence[Any], texts: Sequence[str]) -> None:
        """Count some values, at least one."""
        low, high = min(values), max(values)
        if self.low is None or low < self.low[0]:
            self.low = low, texts[values.index(low)].strip()
        if self.high is None or high > self.high[0]:
            self.high = high, texts[values.index(high)].strip()

    def take_numbers(self, numbers: Sequence[float], texts: Sequence[str]) -> None:
        """Count some numbers; large ones by their texts."""
        is_exact = min(numbers) > -_EXACT and max(numbers) < _EXACT
        self.take(numbers if is_exact else list(map(_exact, texts)), texts)

    def ends(self) -> tuple[str, str]:
        """Return the texts of the smallest and the largest; empty where there is none."""
        return (self.low[1], self.high[1]) if self.low and self.high else ("", "")


@dataclass(slots=True)
class DateSpan(Span):
    """The first and the last of some dates, as long as all texts are dates."""

    is_dated: bool = True
    """Whether they are."""

    def take_texts(self, texts: Collection[str]) -> None:
        """Count some texts."""
        some = [*set(texts)] if self.is_dated else []
        dates = dates_of(some)
        self.is_dated = self.is_dated and dates is not None
        if dates:
            self.take(dates, some)


@dataclass(frozen=True, slots=True)
class Column:
    """Facts about one column, as an outline shows them."""

    name: str
    dtype: str
    nulls: int
    detail: str
    statistics: str


@dataclass(slots=True)
class ColumnFacts:
    """Facts about one column."""

    most: int = MOST_DISTINCT
    """So many different values are counted."""
    there: int = 0
    """Cells that are not null."""
    nulls: int = 0
    numeric: bool = True
    whole: bool = True
    infinite: bool = False
    numbers: Span = field(default_factory=Span)
    sums: tuple[float, ...] = ()
    sample: list[float] = field(default_factory=list[float])
    step: int = 1
    """About one in so many numbers is in the sample."""
    dates: DateSpan = field(default_factory=DateSpan)
    counts: Counter[str] = field(default_factory=Counter[str])
    many: bool = False
    """Whether there are more different values than `counts` has."""
    lengths: tuple[int, int] = (1 << 60, 0)

    def copy(self) -> ColumnFacts:
        """Return facts that can take more cells without a change of these."""
        sample, counts = list(self.sample), Counter(self.counts)
        return replace(self, numbers=replace(self.numbers), dates=replace(self.dates), sample=sample, counts=counts)

    def take(self, cells: Sequence[str]) -> None:
        """Count some cells."""
        there, numbers = cells, _numbers_of(cells) if self.numeric else None
        if numbers is None:  # what is null is no number
            nulls = sum(map(_NULLS.__contains__, cells))
            there = [cell for cell in cells if cell not in _NULLS] if nulls else cells
            self.nulls += nulls
            if not there:
                return
            numbers = _numbers_of(there) if nulls and self.numeric else None
        if numbers is None:
            self.numeric = False
        elif numbers:
            self._take_numbers(numbers, there)
        self.dates.take_texts(there)
        if not self.many:
            self.counts.update(there)
            self.many = len(self.counts) > self.most
        if there and (not self.numeric or self.there == 0):
            widths = list(map(len, there))
            self.lengths = min([*widths, self.lengths[0]]), max([*widths, self.lengths[1]])
        self.there += len(there)

    def _take_numbers(self, numbers: list[float], there: Sequence[str]) -> None:
        self.whole = self.whole and _DECIMALS.isdisjoint("".join(there))
        self.numbers.take_numbers(numbers, there)
        try:
            total = math.fsum(numbers)
        except (ValueError, OverflowError):  # of infinite numbers, or too large
            total = math.inf
        self.infinite |= math.isinf(total)
        if self.infinite:
            return
        self.sums = (*self.sums, total) if len(self.sums) < 64 else (math.fsum((*self.sums, total)),)
        # Random ones: evenly spaced ones would be alike where values repeat. The same cells give the same sample.
        chance = Random(self.there)  # noqa: S311  a sample is no secret
        count = int(len(numbers) / self.step + chance.random())
        self.sample += numbers if self.step == 1 else chance.sample(numbers, min(count, len(numbers)))
        while len(self.sample) > MOST_SAMPLED:
            self.sample, self.step = chance.sample(self.sample, len(self.sample) // 2), 2 * self.step

    def column(self, name: str, about: str = "") -> Column:
        """Return the column as an outline shows it; `about` stands before counts, if the cells are not all."""
        name = one_line(name, 60)
        if not self.there:
            return Column(name, "empty", self.nulls, "", "no values")
        if self.numeric:
            span = f", {' … '.join(self.numbers.ends())}"
            return Column(name, "int" if self.whole else "float", self.nulls, span, self._number_statistics())
        top = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:3]
        common = frequent([(repr(one_line(value, 30))[1:-1], often) for value, often in top], self.there, about)
        distinct = f"{self.most:,}+ distinct" if self.many else f"{len(self.counts):,} distinct"
        if self.dates.is_dated:
            first, last = self.dates.ends()
            dtype = "datetime" if len(first) > 10 else "date"
            return Column(name, dtype, self.nulls, f", {first} … {last}", f"{distinct}, {about}{first} … {last}")
        if not self.many and set(map(str.lower, self.counts)) <= _BOOLS:
            return Column(name, "bool", self.nulls, ", " + common, common)
        such = f", such as {(next(iter(self.counts)) if self.many else top[0][0])[:30]!r}"
        all_differ = self.many or len(self.counts) == self.there
        detail = f", {distinct}{such}" if all_differ else f", {distinct} ({common})"
        lengths = about + span_of(*self.lengths, "characters")
        often = such if self.many else f"; most often {common}"
        return Column(name, "text", self.nulls, detail, f"{distinct}, {lengths}{often}")

    def _number_statistics(self) -> str:
        low, high = self.numbers.ends()
        if self.infinite:
            return f"min {low}, max {high}, no mean or quartiles: some are infinite, or their sum is"
        ordered, about = sorted(self.sample), "~" if self.step > 1 else ""
        quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
        parts = [f"min {low}"]
        parts += [f"{name} {about}{value:.10g}" for name, value in zip(("25%", "50%", "75%"), quartiles, strict=True)]
        return ", ".join([*parts, f"max {high}", f"mean {math.fsum(self.sums) / self.there:.10g}"])
