"""Cells of tables and arrays, and bytes, are shown as they are: times, spans of time, missing ones, the first bytes."""

from __future__ import annotations

import datetime
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.ports import All
from ctxkernel.sources.tables.columns import cells
from ctxkernel.testing.renderings import render


@given(
    st.lists(st.one_of(st.none(), st.timedeltas(datetime.timedelta(-9_999), datetime.timedelta(9_999))), min_size=1),
    st.sampled_from(["D", "h", "m", "s", "ms", "us", "ns"]),
)
def test_spans_of_time_are_written_as_pandas_writes_them(spans: list[datetime.timedelta | None], unit: str):
    values = np.array(spans, "timedelta64[us]").astype(f"timedelta64[{unit}]")

    expected = ["NaT" if value is None else str(pd.Timedelta(value)) for value in map(_plain, values)]
    assert cells(values) == [text.removesuffix(" 00:00:00").removesuffix(" +00:00:00") for text in expected]


def _plain(value: np.timedelta64) -> np.timedelta64 | None:
    return None if np.isnat(value) else value


def test_months_and_years_are_written_as_numpy_does():
    assert cells(np.array([14, "NaT"], "timedelta64[M]")) == ["14 months", "NaT"]


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_a_missing_time_is_not_a_time(unit: str):
    values = np.array(["2026-01-02", "NaT"], f"datetime64[{unit}]")

    assert cells(values) == ["2026-01-02", "NaT"]
    assert render(pd.DataFrame({"d": values}), 0, tokens=All).text.split("\n")[-1].split() == ["1", "NaT"]


def test_a_table_without_columns_counts_none():
    assert "columns 0-0" not in render(pd.DataFrame(index=range(5)), 1).text


@pytest.mark.parametrize("value", [b"\x00abc" * 100, bytearray(b"ab" * 400), b"x" * 60, b""])
def test_bytes_are_shown_by_the_first_ones_and_the_rest_is_counted(value: bytes | bytearray):
    for tokens in (100, 300, All):
        lines = render(value, 1, tokens=tokens).text.split("\n")[1:]
        whole = [line for line in lines if line.endswith(("'", '"'))]
        more = sum(int(found[1]) for line in lines if (found := re.search(r"(\d+) more lines", line)))

        assert bytes(value).startswith(b"".join(map(eval, whole)))
        assert not value or lines
        assert more + len(whole) + sum(line.endswith("…") for line in lines) == -(-len(value) // 64), lines
