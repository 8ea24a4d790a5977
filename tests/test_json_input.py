"""JSON of strangers: a value or ValueError, within bounds of time, memory and stack."""

from __future__ import annotations

import contextlib
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.json_input import load_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


@given(VALUES)
def test_what_was_written_is_read(value):
    assert load_json(json.dumps(value)) == value
    assert load_json(json.dumps(value).encode()) == value


@given(st.text(alphabet='[]{}",:\\u1e+-9NaIinfty\ud800 \0') | st.binary())
def test_any_text_gives_a_value_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        load_json(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        '{"a":' * 1_000_000,
        "[" * 65 + "]" * 65,
        '["]]]]", ' * 65 + "1" + "]" * 65,
        '["\\"]", ' * 65 + "1" + "]" * 65,
        '"' * 1_000_001,
        '"\\' * 1_000_000,
        "9" * 5000,
        "1e999",
        "[-1e999]",
        "NaN",
        "[-Infinity]",
        "",
        '{"a": 1',
        b"\xff",
        None,
        7,
        "[" + "1," * 10_000_000 + "1]",
    ],
    ids=lambda text: repr(text)[:20],
)
def test_a_text_beyond_the_bounds_is_refused(text):
    with pytest.raises(ValueError):
        load_json(text)


def test_brackets_in_strings_are_no_depth():
    value = ["[" * 1000, '{"' * 1000, "\\" * 7, [["]"]]]
    assert load_json(json.dumps(value), most_depth=3) == value
    with pytest.raises(ValueError, match="more than 2 nested"):
        load_json(json.dumps(value), most_depth=2)


def test_a_depth_is_refused_even_if_the_user_allows_any_recursion():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10**7)
    try:
        with pytest.raises(ValueError, match="nested"):
            load_json("[" * 5_000_000)
    finally:
        sys.setrecursionlimit(before)


def test_infinite_numbers_are_read_only_if_allowed():
    assert load_json("[1e999, -Infinity]", infinite=True) == [float("inf"), float("-inf")]
    assert load_json('"\\ud800"') == "\ud800"
