"""The token estimate, and the hard cap that rests on it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.projection.tokens import BYTES_PER_TOKEN_X10, count_tokens, largest, longest_prefix, trim_to_tokens

TEXTS = st.text(st.characters(codec=None), max_size=300) | st.text("ab AB01.,\n\t…é漢", max_size=300)

CODE = '''
    def place_after(self, count: int, chars: int = 0) -> str | None:
        """Return the position after `count` lines and `chars` characters of the next; None at the end."""
        used = sum(self.widths[:count])
        if chars and count < len(self.lines):
            used += min(len(self.lines[count][:chars].encode("utf-8", "replace")), self.widths[count])
        if used >= self.left:
            return None
        return f"@{self.offset + used}"
'''

# Counts that `ctok` 1.3.0 gave for the newest tokeniser, its overhead for a message taken off.
COUNTED = [
    ("code", CODE, 156),
    ("prose", "The quick brown fox jumps over the lazy dog, and nobody was surprised.\n", 27),
    ("json", '{"name": "iris", "rows": 150, "columns": ["a", "b"], "ok": true}\n', 33),
    ("log", "2024-01-01 12:00:03,123 INFO worker[17] request 9f3a took 12.345 ms status=200\n", 41),
    ("table", "   sepal length  sepal width\n0           5.1          3.5\n1           4.9          3.0\n", 30),
]


@pytest.mark.parametrize(("kind", "text", "tokens"), COUNTED, ids=[row[0] for row in COUNTED])
def test_the_estimate_is_near_the_count(kind: str, text: str, tokens: int):
    """Short texts are the hardest; over whole files the mean error is 5 to 6 %."""
    assert count_tokens(text) == pytest.approx(tokens, rel=0.3)
    assert count_tokens(text * 50, kind) == pytest.approx(count_tokens(text * 50), rel=0.45)


def test_only_the_empty_text_costs_nothing():
    assert count_tokens("") == 0
    for kind in ("auto", *BYTES_PER_TOKEN_X10):
        assert count_tokens(" ", kind) == count_tokens("a", kind) == 1


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(ValueError, match="kind 'poem' is none of auto, code"):
        count_tokens("x", "poem")


@given(TEXTS, TEXTS, TEXTS)
def test_a_part_never_counts_more_than_the_whole(before: str, part: str, after: str):
    whole = count_tokens(before + part + after)

    assert count_tokens(part) <= whole
    assert whole <= count_tokens(before) + count_tokens(part) + count_tokens(after)


@given(st.text("aA0. \né", max_size=40), st.integers(1, 9))
def test_where_a_chunk_ends_makes_no_difference(text: str, times: int):
    """Counting goes chunk by chunk; a run that crosses from one to the next is one run."""
    long = "x" * (32768 - 20 * times) + text * 20

    runs_split = count_tokens(long[:32768]) + count_tokens(long[32768:])

    assert runs_split - 4 <= count_tokens(long) <= runs_split


@given(TEXTS, st.integers(-2, 120), st.sampled_from(["…", "", "[… cut; raise h.tokens]"]))
def test_trimming_never_exceeds_the_budget(text: str, budget: int, mark: str):
    trimmed = trim_to_tokens(text, budget, mark)

    assert count_tokens(trimmed) <= max(budget, 0)
    assert trimmed == text or count_tokens(text) > budget
    assert trimmed or budget <= 0 or not text or not mark


@given(TEXTS, st.integers(0, 120))
def test_the_longest_prefix_is_the_longest(text: str, budget: int):
    length = longest_prefix(text, budget)

    assert count_tokens(text[:length]) <= budget
    assert length == len(text) or count_tokens(text[: length + 1]) > budget


@given(st.integers(0, 2000), st.integers(-1, 2500), st.integers(0, 3000))
def test_largest_finds_the_last_that_fits_from_any_guess(high: int, last: int, guess: int):
    assert largest(high, lambda n: n <= last, guess) == min(high, last)


def test_counting_is_fast_and_trimming_does_not_grow_with_the_text():
    text = "def f(x):\n    return {'value': x + 1}  # 12345\n" * 100_000

    started = time.process_time()
    count_tokens(text)
    counted = time.process_time() - started
    started = time.process_time()
    trimmed = trim_to_tokens(text, 100)
    cut = time.process_time() - started

    assert len(text) / counted > 15e6, "bytes a second; 80e6 on an idle core"
    assert cut < 0.02
    assert trimmed.endswith("…")
