"""Tokens as they are shown: by a vocabulary where there is one, and corrected by what an answer said that it took."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optional_libraries import optional

from ctxkernel.projection import displayed_tokens
from ctxkernel.projection.displayed_tokens import Anchor, anchored, estimate_tokens, tokens_in
from ctxkernel.projection.tokens import count_tokens

COUNTS = st.integers(1, 10**9)
FRAME = 6


class Fake:
    """A vocabulary in which a word is a token, and a message has a frame."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __call__(self, text: str, version: str) -> int:
        self.asked.append((text, version))
        if "broken" in text:
            raise IndexError(text)
        return len(text.split()) + FRAME


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(displayed_tokens, "vocabulary", lambda: made)
    monkeypatch.setattr(displayed_tokens, "_known", {})
    return made


def test_without_a_vocabulary_the_estimate_is_the_budgets_count(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(displayed_tokens, "vocabulary", lambda: None)

    assert estimate_tokens("one two three") == count_tokens("one two three")


def test_a_text_is_counted_once(fake: Fake):
    assert [estimate_tokens("one two three"), estimate_tokens("one two three")] == [3, 3]
    assert fake.asked.count(("one two three", "4.8")) == 1
    assert estimate_tokens("") == 0
    assert estimate_tokens(" ") == 1


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("", "4.8"),
        ("claude-sonnet-5-5", "4.8"),
        ("some-local-model", "4.8"),
        ("claude-opus-4-7", "4.7"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "3.0"),
    ],
)
def test_a_model_has_the_vocabulary_of_its_generation(model: str, family: str, fake: Fake):
    estimate_tokens("one two", model)

    assert ("one two", family) in fake.asked


def test_every_model_with_another_vocabulary_has_a_row():
    from ctxkernel.history.capabilities import MODELS

    assert set(displayed_tokens._FAMILIES) <= {row.model for row in MODELS}


def test_what_is_remembered_is_bounded(fake: Fake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(displayed_tokens, "MOST_KNOWN", 3)

    for n in range(9):
        estimate_tokens(f"text {n}")

    assert len(displayed_tokens._known) == 3
    estimate_tokens("text 8")
    assert fake.asked.count(("text 8", "4.8")) == 1


@pytest.mark.parametrize("text", ["a " * 10_001, "broken"], ids=["too long", "a fault of the vocabulary"])
def test_what_cannot_be_counted_is_estimated(text: str, fake: Fake):
    assert estimate_tokens(text) == count_tokens(text)
    assert not displayed_tokens._known


@given(st.text(max_size=60))
def test_the_real_vocabulary_counts_any_text(text: str):
    optional("ctok")

    assert estimate_tokens(text) >= bool(text)


@pytest.mark.parametrize(("text", "tokens"), [("hello, world", 4), ("one", 1)])
def test_the_frame_of_a_message_is_taken_off(text: str, tokens: int):
    optional("ctok")

    assert estimate_tokens(text) == tokens


# -- the anchor --------------------------------------------------------------------------------------


@given(COUNTS, COUNTS)
def test_an_anchor_gives_its_own_measure_back_within_its_bound(estimated: int, measured: int):
    anchor = Anchor(estimated, measured)
    bounded = min(max(measured, estimated / 2), 2 * estimated)

    assert abs(anchor.correct(estimated) - bounded) <= 0.5
    assert 0.5 <= anchor.ratio <= 2


@given(COUNTS, COUNTS, st.integers(0, 10**7), st.integers(0, 10**7))
def test_a_correction_keeps_the_order_and_the_zero(estimated: int, measured: int, one: int, other: int):
    anchor = Anchor(estimated, measured)
    less, more = sorted((one, other))

    assert anchor.correct(less) <= anchor.correct(more)
    assert anchor.correct(0) == 0
    assert anchor.correct(max(one, 1)) >= 1
    assert abs(anchor.correct(one) - one * anchor.ratio) <= 0.5 + one * 1e-9


USAGE: dict[str, Any] = {
    "input_tokens": 100,
    "cache_read_input_tokens": 900,
    "cache_creation_input_tokens": 500,
    "output_tokens": 7,
}


@pytest.mark.parametrize("usage", [USAGE, SimpleNamespace(**USAGE)], ids=["JSON", "an object"])
def test_what_the_cache_had_counts_too(usage: object):
    assert tokens_in(usage) == 1500
    assert anchored(1000, usage) == Anchor(1000, 1500)


def test_a_usage_of_the_sdk_is_read():
    from anthropic.types import Usage

    assert tokens_in(Usage(input_tokens=3, output_tokens=1)) == 3


@pytest.mark.parametrize(
    ("estimated", "usage"),
    [
        (0, USAGE),
        (255, USAGE),
        (1000, None),
        (1000, {}),
        (1000, {"input_tokens": None}),
        (1000, {"input_tokens": True}),
        (1000, {"input_tokens": -5}),
        (1000, {"input_tokens": 0}),
        (1000, {"input_tokens": "many"}),
    ],
    ids=str,
)
def test_what_says_nothing_is_no_anchor(estimated: int, usage: object):
    assert anchored(estimated, usage) is None
