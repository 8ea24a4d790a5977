"""Messages of a page: each is checked by type, size and depth, and gets a clear answer or none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.errors import BadCommand
from ctxkernel.kernel.display.handle_widgets import gesture_lines
from ctxkernel.kernel.messages.page_input import MOST_NUMBER, MOST_TEXT, is_short, short_fields, short_text

DEEP: Any = []
for _ in range(900):
    DEEP = [DEEP]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
WRONG = [
    [],
    "text",
    None,
    7,
    DEEP,
    {"a": DEEP},
    {"a": []},
    {"a": 1.5},
    {"a": "x" * 1001},
    {"a": 10**10},
    {"x" * 1001: 1},
]
WRONG += [{str(n): n for n in range(21)}, {"a": float("nan")}]


@pytest.mark.parametrize("message", WRONG, ids=lambda one: repr(one)[:20])
def test_a_message_that_is_no_object_of_short_fields_is_refused(message):
    with pytest.raises(BadCommand) as caught:
        short_fields(message, "the plan request")
    assert len(str(caught.value)) < 200


@given(JSON)
def test_any_message_is_read_or_refused(message):
    try:
        found = short_fields(message, "it")
    except BadCommand:
        return
    assert found == message
    assert all(map(is_short, found.values()))
    assert all(len(one) <= MOST_TEXT for one in found.values() if short_text(one) is not None)


@given(
    JSON | st.fixed_dictionaries({"lod": JSON}) | st.fixed_dictionaries({"tokens": JSON, "mode": JSON, "refresh": JSON})
)
def test_a_gesture_becomes_lines_of_checked_values_only(change):
    try:
        lines = gesture_lines(change)("h")
    except BadCommand:
        return
    words = " ".join(lines).split()
    assert all(
        word in ("%ctx", "set", "refresh", "h") or word.startswith(("h.lod=", "h.tokens=", "h.mode=")) for word in words
    )
    numbers = [word.partition("=")[2] for word in words if word.startswith(("h.lod=", "h.tokens="))]
    assert all(one == "All" or abs(int(one)) <= MOST_NUMBER for one in numbers)
