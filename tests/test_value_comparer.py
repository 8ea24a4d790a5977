"""Two values of one name compared by content: arrays, models, containers, texts, instances."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.typed_json import read_json
from ctxkernel.core.value_difference import ValueDifference
from ctxkernel.replay.value_comparer import ValueComparer, text_difference


def compared(old: Any, new: Any, **limits: Any) -> ValueDifference:
    return ValueComparer(**limits).compare("x", old, new)


class Point:
    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        raise AssertionError("called")

    __hash__ = object.__hash__


a = np.arange(6.0).reshape(2, 3)
b = a.copy()
b[1, 2] = 7.5

TOLD: dict[str, tuple[Any, Any, str]] = {
    "a number": (3, 4, "int 3 → 4 (+1)"),
    "a float": (0.25, 0.5, "float 0.25 → 0.5 (+0.25)"),
    "another type": (3, "a", "int 3 → str 'a'"),
    "int to float": (3, 3.0, "int → float: 3.0"),
    "a short text": ("a", "b", "str 'a' → 'b'"),
    "lines": ("a\nb\nc", "a\nx\nc", "str of 3 lines: +1 −1 lines"),
    "bytes": (b"x" * 50, b"x" * 49 + b"y", "bytes 50 B: differs from byte 49 on"),
    "an array": (a, b, "array 2×3 float64: 1 of 6 elements differs, by at most 2.5"),
    "an array of another shape": (a, b[:1], "array 2×3 float64 → 1×3 float64"),
    "an array of another type": (a, a.astype("float32"), "array 2×3 float64 → 2×3 float32: the same elements"),
    "a scalar of numpy": (np.float64(1), np.float64(2), "float 1 → 2 (+1)"),
    "a dict": ({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}, "dict of 2 → 3 keys: +'c', ['b'] differs"),
    "a dict in another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "dict of 2 keys: the keys are in another order"),
    "a list": ([1, 2, 3], [1, 5, 3], "list of 3 items: [1] differs"),
    "a longer list": ([1, 2, 3], [1, 9, 2, 3], "list of 3 → 4 items: +1 items"),
    "a set": ({1, 2}, {2, 3}, "set of 2 items: +3, −1"),
    "a nested list": ([[1], [2]], [[1], [3]], "list of 2 items: [1] differs"),
    "an instance": (Point(1, 2), Point(1, 3), "Point: .y differs"),
    "a frame of polars": (
        pl.DataFrame({"a": [1, 2]}),
        pl.DataFrame({"a": [1, 3]}),
        "polars DataFrame 2×1: 1 cell differs in a",
    ),
    "an index": (pd.Index([1, 2]), pd.Index([1, 3]), "Index 2: 1 cell differs"),
}


@pytest.mark.parametrize(("old", "new", "told"), TOLD.values(), ids=TOLD.keys())
def test_a_difference_is_told_in_one_line(old: Any, new: Any, told: str):
    found = compared(old, new)

    assert found.summary == told
    assert found.differs
    assert read_json(ValueDifference, found.to_json()) == found


@pytest.mark.parametrize("value", [one for one, _, _ in TOLD.values()], ids=TOLD.keys())
def test_a_copy_of_a_value_does_not_differ(value: Any):
    assert compared(value, copy.deepcopy(value)).differs is False


def test_a_fitted_model_is_compared_by_parameters_and_coefficients():
    from sklearn.linear_model import Ridge

    x, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    old, new = Ridge(alpha=1.0).fit(x, y), Ridge(alpha=5.0).fit(x, y)

    found = compared(old, new)

    assert found.summary == "Ridge: parameters alpha; fitted coef_, intercept_ differ"
    assert [one.name for one in found.parts] == [".alpha", ".coef_", ".intercept_"]
    assert found.parts[0].summary == "float 1 → 5 (+4)"
    seen = {name.lstrip(".") for name in (".alpha", ".fit_intercept")}
    assert seen <= old.get_params().keys()
    assert compared(old, copy.deepcopy(old)).differs is False


def test_a_pipeline_and_a_tree_are_compared_step_by_step():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    x, y = np.arange(12.0).reshape(6, 2), np.array([0, 0, 1, 1, 0, 1])
    old = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=1, random_state=0)).fit(x, y)
    new = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=3, random_state=0)).fit(x, y)

    text = compared(old, new).text()

    assert ".max_depth: int 1 → 3 (+2)" in text
    assert "['node_count']" in text


def test_the_text_of_lines_is_a_unified_diff():
    found = compared("a\nb\nc", "a\nx\nc")

    assert found.diff == ("@@ -1,3 +1,3 @@", " a", "-b", "+x", " c")
    assert text_difference("f.txt", "a\n", "a\nb\n").counts == {"lines_added": 1, "lines_removed": 0}


def test_a_value_that_cannot_be_compared_is_unknown_with_a_reason():
    found = compared(iter([1]), iter([1]))

    assert (found.known, found.differs) == ("unknown", None)
    assert "list_iterator" in found.reason


def test_an_array_of_xarray_that_is_not_loaded_is_unknown_and_stays_so(tmp_path: Path):
    """It may be larger than the memory."""
    xr.DataArray(a, dims=("x", "y")).to_netcdf(tmp_path / "a.nc", engine="scipy")
    old, new = (xr.open_dataarray(tmp_path / "a.nc", engine="scipy") for _ in range(2))
    assert not old.variable._in_memory

    found = compared(old, new)

    assert (found.known, found.differs, found.reason) == ("unknown", None, "its values are not loaded")
    assert not old.variable._in_memory
    old.load()
    changed = new.load() + 1
    assert compared(old, new).differs is False
    assert compared(old, changed).differs


def test_items_for_which_no_time_was_left_are_pending():
    calls = iter([False, False, False, True, True, True])

    found = compared([{"a": 1}, {"a": 2}, {"a": 3}], [{"a": 1}, {"a": 9}, {"a": 4}], expired=lambda: next(calls, True))

    assert found.known == "pending"
    assert found.reason


def test_cyclic_values_are_compared_once():
    old: list[Any] = [1]
    old.append(old)
    new: list[Any] = [2]
    new.append(new)

    assert compared(old, new).summary == "list of 2 items: [0] differs"


@given(
    st.lists(st.floats(allow_nan=True) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=30),
    st.data(),
)
def test_the_number_of_differing_elements_of_arrays_equals_an_independent_count(values: list[float], data: Any):
    old = np.array(values)
    new = old.copy()
    at = data.draw(st.sets(st.integers(0, len(values) - 1)))
    for place in at:
        new[place] = 12345.0
    wanted = [place for place in at if old[place] != 12345.0]

    found = compared(old, new)

    assert found.counts["elements"] == len(wanted)
    assert found.differs is bool(wanted)


@given(st.dictionaries(st.text(max_size=2), st.integers(0, 3)), st.dictionaries(st.text(max_size=2), st.integers(0, 3)))
def test_the_counts_of_dicts_equal_an_independent_count(old: dict[str, int], new: dict[str, int]):
    found = compared(old, new)

    assert found.counts.get("keys_added", 0) == len(new.keys() - old.keys())
    assert found.counts.get("keys_removed", 0) == len(old.keys() - new.keys())
    assert found.counts.get("parts", 0) == sum(old[key] != new[key] for key in old.keys() & new.keys())


@pytest.mark.parametrize("kind", [dict, list])
def test_after_the_most_items_the_rest_is_counted_and_not_looked_at(kind):
    """Of a million records, 20,000 were compared, and each of the others was described: that took 20 seconds."""
    described = []

    def made(value: int) -> Any:
        records = [{"id": at, "value": [at, value]} for at in range(30_000)]
        return records if kind is list else dict(enumerate(records))

    old, new = made(1), made(1)
    new[5]["value"][1] = 2
    comparer = ValueComparer()
    compare = comparer._compare
    comparer._compare = lambda *arguments: described.append(1) or compare(*arguments)  # type: ignore[method-assign]
    found = comparer.compare("x", old, new)

    assert found.differs and found.known == "pending"
    noun = "items" if kind is list else "keys"
    assert found.summary == f"{kind.__name__} of 30,000 {noun}: [5] differs, 26,001 not compared"
    assert len(found.parts) + found.more == 26_002
    assert len(described) < 20_100


def test_the_text_of_a_large_difference_stays_within_its_budget():
    old = {f"k{n}": {"a": list(range(20)), "t": "x\ny\n"} for n in range(500)}
    new = {f"k{n}": {"a": list(range(1, 21)), "t": "x\nz\n"} for n in range(500)}

    text = compared(old, new).text(1000)

    assert len(text) < 1100
    assert "more lines" in text.splitlines()[-1]
