"""Which of many items a sample has."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def spread(count: int, most: int) -> Sequence[int]:
    """Return at most `most` numbers below `count`, in order: all of them, or random ones with the first and the last.

    Evenly spaced ones would be alike where values repeat. The same count gives the same numbers.
    """
    if count <= most:
        return range(count)
    some = Random(count).sample(range(1, count - 1), most - 2)  # noqa: S311  a sample is no secret
    return [0, *sorted(some), count - 1]
