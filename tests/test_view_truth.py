"""Statements of views that were found false or missing: counts, shares of samples, names, values."""

from __future__ import annotations

import datetime as dt
import fractions
import re
from typing import Any

import numpy as np
import pytest

from ctxkernel.sources.base.rendering import within_reserve
from ctxkernel.sources.objects.fields import spread
from ctxkernel.testing.renderings import render

# -- objects


class Wide:
    """An object of the user's."""

    def __init__(self) -> None:
        self.value = 1
        self._hidden = self._own = 2


for at in range(200):
    setattr(Wide, f"method_{at}", lambda self: None)


@pytest.mark.parametrize("tokens", [100, 200, 300])
def test_methods_that_do_not_fit_are_named_as_far_as_they_do_and_counted(tokens: int):
    rendered = render(Wide(), 1, tokens=tokens)

    assert "\n.value: int = 1\n" in rendered.text
    assert "more methods" in rendered.text
    assert rendered.tokens >= 0.95 * within_reserve(tokens) - 1


def test_private_attributes_are_counted():
    assert "[… 2 private attributes]" in render(Wide(), 1, tokens=4_000).text


@pytest.mark.parametrize(
    ("target", "value"), [(fractions.Fraction(1, 3), "Fraction(1, 3)"), (dt.time(1, 2), "datetime.time(1, 2)")]
)
def test_a_value_without_public_attributes_is_shown(target: Any, value: str):
    assert all(value in render(target, lod).text for lod in (1, 2))


def test_a_dict_with_keys_of_other_types_shows_its_items():
    text = render({(1, 2): {"x": 1}, frozenset({3}): [{"y": 2}], None: "z"}, 1).text

    assert "[(1, 2)]: dict = {'x': 1}" in text
    assert "[None]: str = 'z'" in text


def test_of_inner_dicts_only_keys_of_other_types_are_left_out():
    text = render({"a": {(1, 2): 0, "kept": {"x": 1}, b"raw": 2}, "b": [{"y": 1}]}, 1).text

    assert "kept: dict" in text
    assert "[b'raw']: int" in text
    assert "fields or more" in text


# -- exceptions


def failed(depth: int) -> RecursionError | ValueError:
    try:
        _deeper(depth)
    except ValueError as error:
        return error
    raise AssertionError


def _deeper(depth: int) -> None:
    if depth:
        _deeper(depth - 1)
    raise ValueError("at the bottom")


def test_every_frame_of_a_deep_traceback_is_counted_and_both_ends_are_shown():
    error = failed(600)

    assert "· 602 frames" in render(error, 1).text
    text = render(error, 0, tokens=40_000).text
    assert text.count(", in _deeper") == 199
    assert "[… 402 more frames]" in text


@pytest.mark.parametrize("tokens", [100, 150, 200])
def test_exceptions_of_a_group_are_counted_as_such(tokens: int):
    text = render(ExceptionGroup("many", [ValueError(at) for at in range(30)]), 1, tokens=tokens).text

    shown = text.count("\n  Value")
    assert f"[… {30 - shown} more exceptions," in text


# -- samples


@pytest.mark.parametrize("period", [2, 5, 7, 8, 20, 32, 50, 64])
@pytest.mark.parametrize("count", [1_600, 25_000, 100_000])
def test_a_sample_does_not_follow_what_repeats(count: int, period: int):
    chosen = spread(count, 1_000)

    assert chosen[0] == 0
    assert chosen[-1] == count - 1
    assert sorted(set(chosen)) == list(chosen)
    assert abs(sum(at % period == 0 for at in chosen) / len(chosen) - 1 / period) < 0.05


@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_a_sample_of_an_array_has_all_its_columns(order: str):
    array = np.zeros((400_000, 32), order="F" if order == "F" else "C")
    array[:, 5] = 9
    text = render(array[::2] if order == "strided" else array, 2).text

    assert "- ~0 NaN of 500,000\n" in text
    assert "max ~9.0" in text
    assert re.search(r"mean ~0\.2[78]", text)


def test_nan_in_a_sample_is_of_the_sample():
    array = np.where(np.arange(6_000_000) % 4 == 0, np.nan, 1.0)

    assert "~125,000 NaN of 500,000" in render(array, 2).text


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_nulls_and_values_of_a_sample_are_shares(library: str):
    frames = pytest.importorskip(library)
    rows = np.arange(6_000_000)
    frame = frames.DataFrame({"x": np.where(rows % 4 == 0, np.nan, 1.0), "even": rows % 2 == 0})
    if library == "polars":
        frame = frame.with_columns(frames.col("x").fill_nan(None))

    assert "x: Float64, ~25.0 % nulls, ~1.0 … 1.0".lower() in render(frame, 1).text.lower()
    assert "~50.0 % True, ~50.0 % False" in render(frame, 2).text


# -- frames and tensors


@pytest.mark.parametrize("kind", ["list", "struct", "map"])
def test_a_column_of_nested_arrow_values_is_told(kind: str):
    arrow, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    number = arrow.int64()
    types = {"list": arrow.list_(number), "struct": arrow.struct([("a", number)]), "map": arrow.map_(number, number)}
    values = {"list": [[1], None], "struct": [{"a": 1}, None], "map": [[(1, 2)], None]}[kind]
    frame = pandas.DataFrame({"nested": pandas.array(values, dtype=pandas.ArrowDtype(types[kind]))})

    assert all("nested: " in (text := render(frame, lod).text) and "1 null" in text for lod in (1, 2))


def test_a_parameter_that_modules_share_is_counted_once():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight

    assert " · 16 parameters · 64 B" in render(model, 1).text
    assert "- 16 parameters with a gradient" in render(model, 2).text


def test_every_variable_of_a_dataset_is_named_before_details():
    xarray = pytest.importorskip("xarray")
    made = xarray.Dataset(
        {f"v{at}": ("x", np.arange(50.0)) for at in range(6)}, {"x": np.arange(50.0)}, {"history": "h" * 900}
    )
    for lod in (1, 2):
        text = render(made, lod, tokens=120).text
        assert re.search(r"variables × \d: .*v5\n|\bv5 \(", text), text


def test_every_term_of_a_regression_is_named():
    models = pytest.importorskip("statsmodels.api")
    chance = np.random.default_rng(1)
    found = models.OLS(chance.normal(size=90), models.add_constant(chance.normal(size=(90, 30)))).fit()

    assert "terms × 31: const, x1–x30" in render(found, 1, tokens=300).text
