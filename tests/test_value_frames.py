"""Frames and series compared by their cells: every count equals an independent count."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.value_difference import ValueDifference
from ctxkernel.replay.frame_values import CELLS, FrameComparer
from ctxkernel.replay.text_comparison import Tolerance


def compared(old: Any, new: Any, *, expired: Any = lambda: False) -> ValueDifference:
    return FrameComparer("df", old, new, Tolerance(), expired).compare()


# -- an independent count, cell by cell in Python ------------------------------------------------------


def cells_of(frame: pd.DataFrame) -> dict[Any, dict[Any, list[Any]]]:
    """Column → row label → the cells with this label, in order."""
    found: dict[Any, dict[Any, list[Any]]] = {}
    for at, name in enumerate(frame.columns):
        rows: dict[Any, list[Any]] = {}
        for label, cell in zip(frame.index, frame.iloc[:, at].tolist(), strict=True):
            rows.setdefault(label, []).append(cell)
        found[name] = rows
    return found


def missing(cell: Any) -> bool:
    return cell is pd.NA or cell is pd.NaT or (isinstance(cell, float) and math.isnan(cell))


def differ(a: Any, b: Any) -> bool:
    if missing(a) or missing(b):
        return not (missing(a) and missing(b))
    if a is None or b is None:
        return a is not b
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return not math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12) if numbers else a != b


def independent(old: pd.DataFrame, new: pd.DataFrame) -> dict[str, Any]:
    one, two = cells_of(old), cells_of(new)
    columns = {
        name: sum(
            differ(a, b)
            for label in one[name].keys() & two[name].keys()
            for a, b in zip(one[name][label], two[name][label], strict=False)
        )
        for name in one.keys() & two.keys()
    }
    labels = [pd.Series(list(frame.index), dtype=object).value_counts() for frame in (old, new)]
    common = sum(min(labels[0][label], labels[1][label]) for label in labels[0].index if label in labels[1].index)
    return {
        "columns": {name: n for name, n in columns.items() if n},
        "rows_added": len(new) - common,
        "rows_removed": len(old) - common,
        "columns_added": len(two.keys() - one.keys()),
        "columns_removed": len(one.keys() - two.keys()),
    }


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-3, 3),
    "float": st.sampled_from([0.0, -0.0, 1.5, 1.5 + 1e-15, float("nan"), float("inf"), -2.0]),
    "str": st.sampled_from(["a", "b", "", None]),
    "bool": st.booleans(),
    "Int64": st.sampled_from([1, 2, pd.NA]),
    "datetime64[ns]": st.sampled_from([pd.Timestamp("2020-01-01"), pd.Timestamp("2021-05-05"), pd.NaT]),
    "category": st.sampled_from(["x", "y"]),
    "object": st.sampled_from([1, "1", None, (1, 2), 2.5]),
}


@st.composite
def frames(draw: st.DrawFn, kinds: dict[str, str], labels: st.SearchStrategy[list[Any]]) -> pd.DataFrame:
    index = draw(labels)
    data = {
        name: pd.Series([draw(VALUES[kind]) for _ in index], dtype=kind, index=index) for name, kind in kinds.items()
    }
    return pd.DataFrame(data, index=index or pd.Index(index, dtype=object))


KINDS = st.dictionaries(st.sampled_from("abcde"), st.sampled_from(sorted(VALUES)), min_size=1)
LABELS = st.one_of(
    st.lists(st.integers(0, 6), max_size=6, unique=True),
    st.lists(st.integers(0, 3), max_size=6),
    st.lists(st.sampled_from(["r1", "r2", "r3"]), max_size=5),
)


@given(st.data())
def test_the_counts_of_random_frames_equal_an_independent_count(data: st.DataObject):
    kinds = data.draw(KINDS)
    dropped = data.draw(st.sets(st.sampled_from(sorted(kinds))))
    others = {name: kind for name, kind in kinds.items() if name not in dropped}
    others |= {f"new {name}": "int" for name in data.draw(st.sets(st.sampled_from("xy")))}
    labels = LABELS if data.draw(st.booleans()) else st.just(list(range(data.draw(st.integers(0, 5)))))
    old, new = data.draw(frames(kinds, labels)), data.draw(frames(others, labels))

    found, wanted = compared(old, new), independent(old, new)

    assert found.known == "complete", found
    assert dict(found.columns) == wanted.pop("columns")
    assert {key: found.counts[key] for key in wanted} == wanted
    assert found.counts["cells"] == sum(found.columns.values())


@given(st.data())
def test_random_edits_of_one_frame_are_all_found_and_nothing_else(data: st.DataObject):
    frame = data.draw(frames(data.draw(KINDS), st.lists(st.integers(0, 9), max_size=6, unique=True)))

    assert compared(frame, frame.copy()).differs is False

    new = frame.sample(frac=1, random_state=1) if data.draw(st.booleans()) else frame.copy()
    new = new.drop(index=list(data.draw(st.sets(st.sampled_from(list(frame.index)))) if len(frame) else []))
    found, wanted = compared(frame, new), independent(frame, new)
    assert dict(found.columns) == wanted["columns"] == {}
    assert found.counts["rows_removed"] == len(frame) - len(new)
    if len(new) < len(frame):
        assert found.differs


def test_a_frame_that_lost_a_column_and_changed_in_cells_says_which_and_by_how_much():
    old = pd.DataFrame({"alcohol": [13.0, 14.0, 12.5], "ash": [2.0, 2.5, 3.0], "kind": ["a", "b", "c"]})
    new = old.drop(columns="alcohol").assign(ash=[2.0, 2.75, 3.0], hue=1)

    found = compared(old, new)

    assert found.summary == "DataFrame 3×3: +hue, −alcohol, 1 cell differs in ash"
    assert found.tables[0].rows == (("ash", "float64", "1 of 3", "2.5 → 2.58333", "2 … 3"),)
    assert found.tables[1].rows == (("1", "ash", "2.5", "2.75"),)


ROWS_OF_CASES: dict[str, tuple[Any, Any, str]] = {
    "another type, the same numbers": (
        pd.DataFrame({"a": [1, 2]}),
        pd.DataFrame({"a": [1.0, 2.0]}),
        "DataFrame 2×1: a int64 → float64",
    ),
    "one row more": (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 2, 3]}), "DataFrame 2×1 → 3×1: +1 rows"),
    "a series": (pd.Series([1, 2]), pd.Series([1, 3]), "Series 2: 1 cell differs"),
    "another order": (
        pd.DataFrame({"a": [1, 2]}),
        pd.DataFrame({"a": [2, 1]}, index=[1, 0]),
        "DataFrame 2×1: rows are in another order; they are compared by their label",
    ),
    "an empty frame": (pd.DataFrame(), pd.DataFrame({"a": []}), "DataFrame 0×0 → 0×1: +a"),
    "two columns of one name": (
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame([[1, 3]], columns=["a", "a"]),
        "DataFrame 1×2: 1 cell differs in a (2)",
    ),
    "times with a zone": (
        pd.DataFrame({"t": pd.to_datetime(["2020", None]).tz_localize("UTC")}),
        pd.DataFrame({"t": pd.to_datetime(["2021", None]).tz_localize("UTC")}),
        "DataFrame 2×1: 1 cell differs in t",
    ),
}


@pytest.mark.parametrize(("old", "new", "told"), ROWS_OF_CASES.values(), ids=ROWS_OF_CASES.keys())
def test_a_difference_is_told_in_one_line(old: Any, new: Any, told: str):
    assert compared(old, new).summary == told


def test_cells_whose_comparison_would_run_code_of_the_user_are_named_and_not_compared():
    class Loud:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("called")

        __hash__ = object.__hash__

    old, new = (pd.DataFrame({"a": [1], "b": pd.Series([Loud()], dtype=object)}) for _ in range(2))

    found = compared(old, new)

    assert found.known == "unknown"
    assert found.differs is None
    assert "not compared: b (cells of the type Loud are not compared)" in found.notes


def test_columns_for_which_no_time_was_left_are_pending():
    old = pd.DataFrame({name: [1] for name in "abc"})
    calls = iter([False, True, True])

    found = compared(old, old + 1, expired=lambda: next(calls))

    assert found.known == "pending"
    assert found.reason == "2 columns of 3 were not compared in time"
    assert dict(found.columns) == {"a": 1}


def test_of_a_very_large_frame_every_nth_row_is_compared_and_the_text_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ctxkernel.replay.frame_values.CELLS", 100)
    old = pd.DataFrame({"a": range(1000)})
    new = old.assign(a=old["a"].where(old["a"] % 2 == 1, -1))

    found = compared(old, new)

    assert found.step == 10
    assert 300 <= found.columns["a"] <= 700
    assert f"~{found.columns['a']:,} cells differ in a" in found.summary
    assert "~ estimated from one row in 10" in found.notes
    assert compared(old, old.copy()).known == "unknown"


def test_a_million_rows_of_twenty_columns_take_no_more_than_two_seconds():
    n = 1_000_000
    rng = np.random.default_rng(0)
    data: dict[str, Any] = {f"f{k}": rng.normal(size=n) for k in range(12)}
    data |= {f"i{k}": rng.integers(0, 9, n) for k in range(5)}
    data |= {"s": pd.Series(rng.choice(["ab", "cd", "ef"], n), dtype="str"), "b": rng.random(n) < 0.5}
    data["t"] = pd.date_range("2020", periods=n, freq="s")
    old = pd.DataFrame(data)
    new = old.copy()
    new.loc[::7, "f3"] += 1
    assert old.size <= CELLS

    start = time.process_time()
    found = compared(old, new)
    took = time.process_time() - start

    assert dict(found.columns) == {"f3": -(-n // 7)}
    assert took < 2.0
