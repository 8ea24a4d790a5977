"""Tokens as they are SHOWN, with a `~`: nearer to the truth than the count that budgets are measured with.

Rule 1: no budget is measured here. `count_tokens` is the same in every process, whatever is installed and whatever a
        model answered, so a projection is built again from its log byte for byte, and an idle tick changes none (laws 3
        and 6). Were budgets corrected by the last answer, each answer would move what fits, and break the cache.
Rule 2: pure, but for a bounded memo of counts by content.
Rule 3: works without `ctok`, the optional extra `tokens` (Python 3.12 and newer): then `count_tokens` is what there is.

Two corrections, one on the other: `estimate_tokens` counts with the vocabulary of the model's generation; an `Anchor`
scales what was estimated by what the last answer's `usage` says that the same request really took. The error of each is
in `tokens.py`.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.projection.tokens import count_tokens

LONGEST = 20_000
"""Characters up to which a text is counted with the vocabulary, at some 0.1 MB/s; a longer one is estimated."""
MOST_KNOWN = 4096
"""Counts that are remembered, the oldest forgotten first."""
LEAST_ANCHOR = 256
"""Estimated tokens from which on a request can be an anchor: in a shorter one the frame of the messages counts most."""

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
    except Exception:  # a package of that name that is none of ours must not break a cell
        return None


@cache
def _frame(count: Counter, family: str) -> int:
    """Return the tokens of an empty message, which every count holds besides its text."""
    return count("a", family) - 1


def estimate_tokens(text: str, model: str = "") -> int:
    """Return the tokens of `text` as well as can be told offline: 0 for the empty text, ≥ 1 for any other.

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
        except Exception:  # what it cannot count is estimated
            return count_tokens(text)
        while len(_known) >= MOST_KNOWN:
            _known.pop(next(iter(_known)), None)
        _known[key] = tokens
        return tokens
    return _known.get(key) or count_tokens(text)


@dataclass(frozen=True, slots=True)
class Anchor:
    """What one request was estimated at, and what its answer's `usage` says that it took. Both > 0.

    Scales other estimates made in the same way, of the next request or of one block. The ratio is bounded to ½ … 2:
    beyond that the estimate was not of this request, or it held what no text tells (images, documents).
    """

    estimated: int
    measured: int

    @property
    def ratio(self) -> float:
        """The correction, ½ … 2."""
        return min(max(self.measured / self.estimated, 0.5), 2.0)

    def correct(self, tokens: int) -> int:
        """Return `tokens` (≥ 0) corrected, to be shown with `~`.

        Holds: 0 stays 0, what is more stays no less, and the anchor's own estimate becomes what was measured, as far as
        the bound allows. In integers, so it is the same everywhere.
        """
        twice = min(max(2 * self.measured, self.estimated), 4 * self.estimated)
        return (tokens * twice + self.estimated) // (2 * self.estimated)


def anchored(estimated: int, usage: object) -> Anchor | None:
    """Return the anchor of a request that was estimated at `estimated` tokens and answered with `usage`.

    `usage` is the SDK's object or the answer's JSON: tokens in are `input_tokens`, which leaves out what the cache had,
    plus `cache_read_input_tokens` plus `cache_creation_input_tokens`. None where they cannot be told, or where the
    estimate is below `LEAST_ANCHOR`: then keep the anchor that you have.
    """
    measured = tokens_in(usage)
    return Anchor(estimated, measured) if measured and estimated >= LEAST_ANCHOR else None


def tokens_in(usage: object) -> int | None:
    """Return all tokens of a request by its answer's `usage`, cached or not; None where it does not say."""
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
