"""How much the tests do: a share of it in the quick run, everything in the full one.

`python -m pytest` is the quick run: some of the examples of each property, some of the cases of the tests that are
marked `scaled`, and no test that is marked `long` (long_tests.py). `.ci/run` does the rest after it:
`HYPOTHESIS_PROFILE=full python -m pytest -m "long or scaled or hypothesis"`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
QUICK = PROFILE == "quick"


def examples(full: int) -> int:
    """Return how many examples a property gets, of `full`."""
    return max(full // 20, 10) if QUICK else full


def share(cases: Iterable[T], most: int) -> list[T]:
    """Return all cases, or in the quick run about `most` of them, evenly spread."""
    every = list(cases)
    return every[:: max(len(every) // most, 1)] if QUICK else every
