"""Ranges of columns and fields are exact: of numbers of any size, and of times with any offset from UTC."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.sources.outlines.column_facts import Column, ColumnFacts
from ctxkernel.sources.outlines.json_outline import JsonField, parsed

NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30),
    st.integers(2**53 - 3, 2**53 + 3),
    st.floats(-1e6, 1e6).map(lambda value: round(value, 6)),
)
_START = datetime(2026, 1, 1, tzinfo=UTC)
_ZONES = [None, UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))]
TIMES = st.builds(
    lambda after, zone: (_START + after).replace(tzinfo=zone),
    st.timedeltas(timedelta(0), timedelta(days=2)),
    st.sampled_from(_ZONES),
)


def column(cells: list[str], parts: int = 1) -> Column:
    """Return a column whose cells are taken in some parts."""
    facts = ColumnFacts()
    size = -(-len(cells) // parts)
    for at in range(0, len(cells), size):
        facts = facts.copy()
        facts.take(cells[at : at + size])
    return facts.column("x")


def ends(column: Column) -> list[str]:
    """Return the smallest and the largest value."""
    return column.detail.removeprefix(", ").split(" … ")


@given(numbers=st.lists(NUMBERS, min_size=1, max_size=20), parts=st.integers(1, 3))
def test_the_range_of_a_column_of_numbers_is_exact(numbers: list[Any], parts: int):
    found = column([repr(number) for number in numbers], parts)

    exact = [Fraction(repr(number)) for number in numbers]
    assert [Fraction(end) for end in ends(found)] == [min(exact), max(exact)]


@given(numbers=st.lists(NUMBERS, min_size=1, max_size=20))
def test_the_range_of_a_field_of_numbers_is_exact(numbers: list[Any]):
    field = JsonField()
    field.take(parsed(json.dumps([*numbers, float("nan")])))

    exact = [Fraction(repr(number)) for number in numbers]
    assert [Fraction(end) for end in field.numbers.ends()] == [min(exact), max(exact)]


@given(times=st.lists(TIMES, min_size=1, max_size=20), parts=st.integers(1, 3))
def test_the_range_of_times_is_from_the_earliest_to_the_latest_whatever_their_offsets(
    times: list[datetime], parts: int
):
    texts = [time.isoformat() for time in times]
    moments = [time if time.tzinfo else time.replace(tzinfo=UTC) for time in times]
    field = JsonField()
    field.take(texts)

    for found in (ends(column(texts, parts)), [*field.dates.ends()]):
        assert [moments[texts.index(end)] for end in found] == [min(moments), max(moments)]


@pytest.mark.parametrize("text", ["2026-13-45", "2026-02-30", "2026-01-01 25:00"])
def test_a_text_that_is_no_day_makes_a_column_of_texts(text: str):
    assert column(["2026-01-01", text, "2026-01-02"]).dtype == "text"


@pytest.mark.parametrize(
    ("cells", "span"),
    [
        (["1", "inf", "-2"], "-2 … inf"),
        (["-inf", "3", "Infinity"], "-inf … Infinity"),
        (["1", "nan", "-Inf"], "-Inf … 1"),
    ],
)
def test_infinite_numbers_are_numbers_without_a_mean(cells: list[str], span: str):
    found = column(cells, len(cells))

    assert (found.dtype, found.detail) == ("float", f", {span}")
    assert "no mean" in found.statistics
    assert found.nulls == cells.count("nan")
