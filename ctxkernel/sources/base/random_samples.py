"""Which of many items a sample has, and how its counts are told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from ctxkernel.core.text import plural


def spread(count: int, most: int) -> Sequence[int]:
    """Return at most `most` numbers below `count`, in order: all of them, or random ones with the first and the last.

    Evenly spaced ones would be alike where values repeat. The same count gives the same numbers.
    """
    if count <= most:
        return range(count)
    some = Random(count).sample(range(1, count - 1), most - 2)  # noqa: S311  a sample is no secret
    return [0, *sorted(some), count - 1]


def part_of(part: int, whole: int, about: str) -> str:
    """Return a count; of a sample a share."""
    if not about:
        return f"{part:,}"
    return f"{about}{share_of(part, whole)}"


def share_of(part: int, whole: int) -> str:
    """Return a percentage, never 0 % of what is there, nor 100 % of what is not all."""
    return "100 %" if part >= whole else f"{min(max(100 * part / whole, 0.1), 99.9):.1f} %"


def counted(part: int, whole: int, what: str, about: str) -> str:
    """Return `12 nulls`; of a sample the share of it, `~0.5 % nulls`: its count says nothing of the whole."""
    return f"{part_of(part, whole, about)} {what}" if about else plural(part, what)


def frequent(values: Iterable[tuple[str, int]], whole: int, about: str) -> str:
    """Return the texts of values, in which special characters are escaped, with how often each is there."""
    return ", ".join(f"'{value}' {'' if about else '×'}{part_of(count, whole, about)}" for value, count in values)
