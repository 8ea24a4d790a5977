"""What tokens cost: the rows, and the sums over them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.history.capabilities import MODELS
from ctxkernel.projection.prices import MILLION, PRICES, cost_of_usage, estimate, price_of

COUNTS = st.integers(0, 2_000_000)
NAMES = st.sampled_from([row.model for row in PRICES] + ["some-local-model"])

# Model: input, write for 5 minutes and for 1 hour, read, output: USD per million tokens as the pages give each.
PUBLISHED = {
    "claude-fable-5-1": (10, 12.50, 20, 0.25, 50),
    "claude-opus-5-5": (4, 5, 8, 0.20, 20),
    "claude-sonnet-5-5": (2, 2.50, 4, 0.10, 10),
    "claude-opus-5": (5, 6.25, 10, 0.50, 25),
    "claude-fable-5": (10, 12.50, 20, 1.00, 50),
    "claude-sonnet-5": (2, 2.50, 4, 0.20, 10),
    "claude-opus-4-5": (5, 6.25, 10, 0.50, 25),
}


def test_there_is_a_row_for_each_model_and_no_other():
    assert [row.model for row in PRICES] == [row.model for row in MODELS]


@pytest.mark.parametrize("model", PUBLISHED)
def test_each_part_costs_what_is_published(model: str):
    parts = ("fresh", "written_5m", "written_1h", "cached", "output")

    told = [estimate(model, **{part: MILLION}).usd for part in parts]

    assert told == pytest.approx(PUBLISHED[model])


def test_a_long_prompt_of_haiku_costs_more_with_all_that_is_in_it():
    """The bound counts what is read and written too, and the dearer price is that of every token."""
    short = estimate("claude-haiku-5-5", cached=60_000, fresh=40_000, output=1000)
    long = estimate("claude-haiku-5-5", cached=60_000, fresh=40_001, output=1000)

    assert short.usd == pytest.approx((60_000 * 0.01 + 40_000 * 0.10 + 1000 * 0.50) / MILLION)
    assert long.usd == pytest.approx((60_000 * 0.05 + 40_001 * 0.50 + 1000 * 2.50) / MILLION)


def test_any_name_of_a_model_has_its_price():
    assert price_of("us.anthropic.claude-opus-4-5-20251101-v1:0").input == 5
    assert price_of("claude-opus-5-5").input == 4


@pytest.mark.parametrize("model", ["claude-fable-5-2", "some-local-model", ""])
def test_a_price_that_is_not_known_is_not_invented(model: str):
    cost = estimate(model, cached=1000, written_5m=100, fresh=10, output=7)

    assert cost.usd is None
    assert cost.units == pytest.approx(100 + 125 + 10)
    assert cost.told() == "~235 input tokens' worth + 7 out (price not known)"


def test_a_cost_is_told_with_its_tilde():
    assert estimate("claude-opus-5-5", fresh=10_000).told() == "~$0.0400"
    assert estimate("claude-opus-5-5", fresh=MILLION).told() == "~$4.00"
    assert estimate("claude-fable-5-2", fresh=12_300).told() == "~12,300 input tokens' worth (price not known)"


@given(NAMES, COUNTS, COUNTS, COUNTS)
def test_what_is_cached_is_never_dearer_than_what_is_fresh(model: str, cached: int, fresh: int, output: int):
    with_cache = estimate(model, cached=cached, fresh=fresh, output=output)
    without = estimate(model, fresh=cached + fresh, output=output)

    assert with_cache.units <= without.units
    assert (with_cache.usd is None) == (without.usd is None)
    assert with_cache.usd is None or without.usd is None or with_cache.usd <= without.usd


USAGE: dict[str, Any] = {
    "input_tokens": 10,
    "cache_read_input_tokens": 1000,
    "cache_creation_input_tokens": 300,
    "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 100},
    "output_tokens": 50,
}
MODEL = "claude-opus-5-5"
SPLIT = estimate(MODEL, cached=1000, written_5m=200, written_1h=100, fresh=10, output=50)


def test_an_answered_request_has_cost_what_its_usage_says():
    from anthropic.types import Usage

    assert cost_of_usage(MODEL, USAGE) == SPLIT
    assert cost_of_usage(MODEL, Usage(**USAGE)) == SPLIT


def test_a_write_of_unknown_time_is_the_default_one():
    usage = {**USAGE, "cache_creation": None}

    assert cost_of_usage(MODEL, usage) == estimate(MODEL, cached=1000, written_5m=300, fresh=10, output=50)


@pytest.mark.parametrize(
    "usage", [None, {}, {"input_tokens": None}, {"output_tokens": 5}, pytest.param(object(), id="an object")], ids=repr
)
def test_a_usage_without_counts_has_no_cost(usage: object):
    assert cost_of_usage(MODEL, usage) is None
