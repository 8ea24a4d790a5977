"""Prices of tokens, dated, and the costs computed from them.

Rule 1: a row has the prices of the provider's own pages (for Opus 4.7: of resellers). Where none was found the row has
        None, and a cost is in relative units: a price is never invented. `AS_OF` is the date of the look-up, in stored
        copies of the pages; their newest change is of 2026-10-07.
Rule 2: list prices of the standard tier, USD: no batch, no priority, no tools of the server's own, no taxes.
Rule 3: rows have the names of `history/capabilities.py`, one for each. A test keeps it.

A cache write costs 1.25 (5 minutes) or 2 (1 hour) times a fresh token of input, for every model; the price of a read
depends on the model. `tests/test_prices.py` has the prices in USD of the pages.
"""

from __future__ import annotations

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.timeline_events import Json
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.projection.displayed_tokens import usage_count, usage_part

AS_OF = "2026-11-22"
WRITE_5M = 1.25
WRITE_1H = 2.0
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """The prices of one model: USD per million tokens, None where not known."""

    model: str = ""
    """The model's name without date or vendor prefix; empty for a model that no row names."""
    input: float | None = None
    output: float | None = None
    read: float = 0.1
    """The price of a token read from the cache, relative to a fresh one."""
    long_prompt: tuple[int, float, float] | None = None
    """(tokens, input, output): the prices of a request whose prompt has more tokens."""


PRICES: tuple[Price, ...] = (
    Price("claude-fable-5-2"),
    Price("claude-mythos-5-2"),
    Price("claude-fable-5-1", 10, 50, 0.025),
    Price("claude-mythos-5-1"),
    Price("claude-opus-5-5", 4, 20, 0.05),
    Price("claude-sonnet-5-5", 2, 10, 0.05),  # reads were 0.1 until 2026-10-07
    Price("claude-haiku-5-5", 0.10, 0.50, long_prompt=(100_000, 0.50, 2.50)),
    Price("claude-fable-5", 10, 50),
    Price("claude-mythos-5", 10, 50),
    Price("claude-opus-5", 5, 25),
    Price("claude-sonnet-5", 2, 10),
    Price("claude-opus-4-8", 5, 25),
    Price("claude-opus-4-7", 5, 25),
    Price("claude-mythos-preview"),  # retired; only the press gave a price
    Price("claude-opus-4-6", 5, 25),
    Price("claude-sonnet-4-6", 3, 15),
    Price("claude-opus-4-5", 5, 25),
    Price("claude-sonnet-4-5", 3, 15),
    Price("claude-haiku-4-5", 1, 5),
)
_ROWS = {row.model: row for row in PRICES}


def price_of(model: str) -> Price:
    """Return the row of `model`, under any of its names, or a row without prices."""
    return _ROWS.get(capabilities_for(model).model, Price())


@dataclass(frozen=True, slots=True)
class RequestCost:
    """The cost of one request."""

    model: str
    usd: float | None
    """USD, or None where the model's price is not known."""
    units: float
    """The cost of the input in fresh input tokens of this model, to compare requests without a known price."""
    output: int
    """Tokens of the output; 0 before there is any."""
    as_of: str = AS_OF

    def told(self) -> str:
        """Return it for people: `~$0.0123`, or `~12,300 input tokens' worth + 500 out (price not known)`."""
        if self.usd is not None:
            return f"~${self.usd:.4f}" if self.usd < 1 else f"~${self.usd:.2f}"
        out = f" + {self.output:,} out" if self.output else ""
        return f"~{self.units:,.0f} input tokens' worth{out} (price not known)"

    def to_json(self) -> dict[str, Json]:
        """Return `{usd, units, told, as_of}`."""
        return {"usd": self.usd, "units": self.units, "told": self.told(), "as_of": self.as_of}


def estimate(
    model: str, *, cached: int = 0, written_5m: int = 0, written_1h: int = 0, fresh: int = 0, output: int = 0
) -> RequestCost:
    """Return the cost of a request with these tokens read from the cache, written to it, neither, and of output.

    Pure. All counts are ≥ 0, and no token is in two of them.
    """
    row = price_of(model)
    units = fresh + cached * row.read + written_5m * WRITE_5M + written_1h * WRITE_1H
    dear, per_output = row.input, row.output
    if row.long_prompt is not None and cached + written_5m + written_1h + fresh > row.long_prompt[0]:
        _, dear, per_output = row.long_prompt
    usd = None if dear is None or per_output is None else (units * dear + output * per_output) / MILLION
    return RequestCost(model, usd, units, output)


def cost_of_usage(model: str, usage: object) -> RequestCost | None:
    """Return the cost of an answered request by its `usage`: the SDK's object, or the answer's JSON.

    Cache writes without a duration count as 5 minutes, the default. None where it has no counts.
    """
    fresh = usage_count(usage, "input_tokens")
    if fresh is None:
        return None
    split = usage_part(usage, "cache_creation")
    hour = usage_count(split, "ephemeral_1h_input_tokens") or 0
    minutes = usage_count(split, "ephemeral_5m_input_tokens") or 0
    written = usage_count(usage, "cache_creation_input_tokens") or 0
    return estimate(
        model,
        cached=usage_count(usage, "cache_read_input_tokens") or 0,
        written_5m=max(written - hour, minutes),
        written_1h=hour,
        fresh=fresh,
        output=usage_count(usage, "output_tokens") or 0,
    )
