"""Token counts for display, with a `~`: more accurate than the count for budgets.

Rule 1: budgets use `count_tokens`, which is the same in every process, whatever is installed and whatever a model
        answered. So a projection can be built again byte for byte, and an idle tick changes none (laws 3 and 6). If
        answers corrected budgets, each answer would change what fits, and break the cache.
Rule 2: pure, except for a bounded cache of counts by content.
Rule 3: works without `ctok`, the optional extra `tokens` (Python 3.12 and newer), by `count_tokens`.

There are two corrections: `estimate_tokens` counts with the vocabulary of the model's generation; an `Anchor` scales
estimates by the `usage` of the last answer. `tokens.py` lists the errors.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.projection.tokens import count_tokens

LONGEST = 20_000
"""Longest text, in characters, that is counted with the vocabulary, at 0.1 MB/s; a longer one is estimated."""
MOST_KNOWN = 4096
"""Most counts that are kept; the oldest are dropped first."""
LEAST_ANCHOR = 256
"""Least estimated tokens of an anchor: in a shorter request the frame of the messages dominates."""

_NEWEST = "4.8"
# By the names of `history/capabilities.py`; every other model has the newest vocabulary.
_FAMILIES = {
    "claude-opus-4-7": "4.7",
    "claude-opus-4-6": "3.0",
    "claude-sonnet-4-6": "3.0",
    "claude-opus-4-5": "3.0",
    "claude-sonnet-4-5": "3.0",
    "claude-haiku-4-5": "3.0",
}

Counter = Callable[[str, str], int]
_known: dict[tuple[str, bytes], int] = {}


@cache
def vocabulary() -> Counter | None:
    """Return ctok's `token_count(text, version)`, or None where it is not installed or cannot be used."""
    try:
        found = cast("Counter", importlib.import_module("ctok").token_count)
        return found if found("a", _NEWEST) > 0 else None
    except Exception:  # another package of that name must not break a cell
        return None


@cache
def _frame(count: Counter, family: str) -> int:
    """Return the tokens of an empty message, which every count includes."""
    return count("a", family) - 1


def estimate_tokens(text: str, model: str = "") -> int:
    """Return the best offline estimate of the tokens of `text`: 0 for the empty text, ≥ 1 for any other.

    With ctok a text of up to `LONGEST` characters is counted by the vocabulary of `model`'s generation (of the newest,
    where the model is not known); the sum over blocks is within a percent of the whole. Else `count_tokens`.
    """
    count = vocabulary()
    if count is None or not text or len(text) > LONGEST:
        return count_tokens(text)
    family = _FAMILIES.get(capabilities_for(model).model, _NEWEST)
    key = family, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    if key not in _known:
        try:
            tokens = max(count(text, family) - _frame(count, family), 1)
        except Exception:  # estimate what it cannot count
            return count_tokens(text)
        while len(_known) >= MOST_KNOWN:
            _known.pop(next(iter(_known)), None)
        _known[key] = tokens
        return tokens
    return _known.get(key) or count_tokens(text)


@dataclass(frozen=True, slots=True)
class Anchor:
    """The estimate of one request, and its tokens by the answer's `usage`. Both > 0.

    It scales other estimates, of the next request or of one block. The ratio is limited to ½ … 2: beyond that the
    estimate was of another request, or the request had images or documents.
    """

    estimated: int
    measured: int

    @property
    def ratio(self) -> float:
        """The correction, ½ … 2."""
        return min(max(self.measured / self.estimated, 0.5), 2.0)

    def correct(self, tokens: int) -> int:
        """Return `tokens` (≥ 0) corrected, to be shown with `~`.

        Holds: 0 stays 0, the order of values stays, and the anchor's own estimate becomes the measured value within the
        limit of the ratio. In integers, so it is the same everywhere.
        """
        twice = min(max(2 * self.measured, self.estimated), 4 * self.estimated)
        return (tokens * twice + self.estimated) // (2 * self.estimated)


def anchored(estimated: int, usage: object) -> Anchor | None:
    """Return the anchor of a request that was estimated at `estimated` tokens and answered with `usage`.

    `usage` is the SDK's object or the answer's JSON: tokens in are `input_tokens`, which leaves out what the cache had,
    plus `cache_read_input_tokens` plus `cache_creation_input_tokens`. None where they are missing, or where the
    estimate is below `LEAST_ANCHOR`: then keep the previous anchor.
    """
    measured = tokens_in(usage)
    return Anchor(estimated, measured) if measured and estimated >= LEAST_ANCHOR else None


def tokens_in(usage: object) -> int | None:
    """Return all tokens of a request by its answer's `usage`, cached or not; None where they are missing."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    counts = [usage_count(usage, name) for name in names]
    return None if counts[0] is None else sum(count or 0 for count in counts)


def usage_count(usage: object, name: str) -> int | None:
    """Return a count of a `usage`, an object or JSON; None where it is absent or no count."""
    value = usage_part(usage, name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def usage_part(usage: object, name: str) -> object:
    """Return a part of a `usage`, an object or JSON; None where it is absent."""
    return cast("Mapping[str, Any]", usage).get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
