"""The planner of budgets: names before details, nothing over its budget, and most of a budget used."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.ports import All
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.amounts import Line, NamedLine
from ctxkernel.sources.base.fitting import NO_CAP, beginning
from ctxkernel.sources.base.planner import plan, ranges_of
from ctxkernel.sources.base.rendering import within_reserve
from ctxkernel.testing.renderings import opened, render, written

WORDS = st.text("abcdefg", min_size=1, max_size=8)
NAMED = st.builds(
    lambda name, kind, told, short, depth, worth: NamedLine(
        f"{'  ' * depth}{name}: {kind}{told}",
        name,
        kind,
        short=f"{'  ' * depth}{name}: {kind}" if short else "",
        depth=depth,
        worth=worth,
        rank=depth,
    ),
    WORDS,
    st.sampled_from(["int", "text"]),
    st.sampled_from(["", ", 1 … 2", ", 3 distinct, most often a ×7, b ×3, c ×1"]),
    st.booleans(),
    st.integers(0, 2),
    st.integers(-1, 2),
)
LINES = st.lists(st.one_of(NAMED, WORDS, st.builds(lambda text: Line(text, rank=2), WORDS)), max_size=60)


def columns(count: int, told: str = ", 0.0 … 1.0") -> list[NamedLine]:
    return [NamedLine(f"name {at} of it: float64{told}", f"name {at} of it", "float64") for at in range(count)]


@given(lines=LINES, budget=st.integers(1, 400))
def test_a_plan_is_within_its_budget_and_the_same_each_time(lines: list[str], budget: int):
    planned = plan(["head"], lines, budget, "things")

    assert count_tokens(planned.text) <= budget
    assert planned == plan(["head"], lines, budget, "things")


@given(lines=LINES, budget=st.integers(1, 400))
def test_what_is_cut_is_said_and_what_is_not_is_whole(lines: list[str], budget: int):
    planned = plan(["head"], lines, budget, "things")

    if planned.cut_tokens:
        assert planned.text.endswith(("]", "…"))
    elif not any(line.endswith(f": {line.kind}") for line in lines if isinstance(line, NamedLine)):
        assert planned.text == "\n".join(["head", *lines])


@given(lines=LINES, budget=st.integers(60, 400))
def test_what_is_part_of_another_thing_is_below_its_line(lines: list[str], budget: int):
    shown = plan(["head"], lines, budget, "things").text.split("\n")

    # Neither a mark nor a list of names.
    own = [line for line in shown[1:] if not re.match(r"\[…|(int|text|names) × ", line)]
    depths = [(len(line) - len(line.lstrip())) // 2 for line in own]
    outer = min((line.depth for line in lines if isinstance(line, NamedLine)), default=0)
    first = next((one.depth for one in lines if isinstance(one, NamedLine)), 0)
    assert not depths or depths[0] <= max(outer, first), shown


def test_every_name_has_room_before_any_line():
    """30 names are 150 tokens; their lines would be 400."""
    text = plan(["frame"], columns(30), 290, "columns").text
    lines = re.findall(r"^name \d+ of it: ", text, re.MULTILINE)
    listed = re.search(r"^float64 × (\d+): (.*)$", text, re.MULTILINE)

    assert listed is not None
    assert len(lines) + len(listed[2].split(", ")) == len(lines) + int(listed[1]) == 30
    assert lines
    assert f"[… details of {listed[1]} columns, ~" in text


def test_names_that_do_not_fit_either_are_counted():
    text = plan(["frame"], columns(300), 200, "columns").text
    listed = re.search(r"^float64 × (\d+): ", text, re.MULTILINE)

    assert listed is not None
    assert f"[… {300 - int(listed[1])} more columns, details of {listed[1]} columns, ~" in text


def test_a_higher_worth_gets_room_first_and_stands_in_its_place():
    lines = columns(30)
    lines[29] = NamedLine("outcome: bool, 3 nulls", "outcome", "bool", worth=1)
    text = plan(["frame"], lines, 230, "columns").text

    assert "\noutcome: bool, 3 nulls\nfloat64 × " in text


@pytest.mark.parametrize("budget", [150, 300, 500, 900])
@pytest.mark.parametrize("count", [60, 200])
def test_at_least_95_percent_of_a_budget_is_used(count: int, budget: int):
    planned = plan(["frame"], columns(count), budget, "columns")

    assert planned.cut_tokens
    assert 0.95 * budget <= count_tokens(planned.text) <= budget


def test_a_plain_list_is_shown_in_its_order_and_then_how_the_next_line_begins():
    lines = [f"{at} {'word ' * 20}" for at in range(20)]
    shown = plan(["head"], lines, 100, "lines").text.split("\n")

    assert shown[1:-2] == lines[: len(shown) - 3]
    assert lines[len(shown) - 3].startswith(shown[-2].removesuffix("…"))
    assert shown[-1].startswith(f"[… {20 - (len(shown) - 2)} more lines, ~")


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["c0", "c1", "c2", "c3", "target"], "c0–c3, target"),
        (["c1", "c2", "x"], "c1, c2, x"),
        (["c01", "c02", "c03"], "c01–c03"),
        (["c8", "c9", "c10", "d11"], "c8–c10, d11"),
        (["c3", "c2", "c1"], "c3, c2, c1"),
        (["a, b", "c–d", ""], "'a, b', 'c–d', ''"),
        (["1", "2", "3"], "1–3"),
    ],
)
def test_names_that_count_up_are_a_range(names: list[str], shown: str):
    assert ", ".join(ranges_of(names)) == shown


def test_without_a_budget_every_line_is_whole():
    assert plan(["frame"], columns(500), NO_CAP, "columns").text.count(": float64, 0.0 … 1.0") == 500


# -- what was cut, or not used, in views


def test_the_last_of_31_columns_is_in_400_tokens_at_levels_1_and_2():
    frame = pd.DataFrame({f"{kind} of measure {at}": np.arange(5.0) for at in range(10) for kind in "abc"})
    frame["target"] = [1, 0, 1, 0, 1]
    for lod in (1, 2):
        assert "\ntarget: int64, 0" in render(frame, lod, tokens=400).text


def test_a_csv_file_of_301_columns_names_them_all(tmp_path: Path):
    names = [*(f"f{at}" for at in range(300)), "target"]
    file = written(tmp_path / "a.csv", ",".join(names) + "\n" + ",".join("1" * 301) + "\n")
    for lod in (1, 2):
        text = render(file, lod, tokens=400).text
        assert re.search(r"^int × \d+: f\d+–f299$", text, re.MULTILINE)
        assert "target: int, " in text


def test_a_module_names_its_main_class_however_many_functions_come_before(tmp_path: Path):
    functions = "".join(
        f"def _helper_{at}(first, second, third=None):\n    '''Help.'''\n\n\n" for at in "abcdefghij" * 5
    )
    code = f"{functions}class Ridge(Base):\n    '''Least squares.'''\n\n    def fit(self, X, y): ...\n"
    text = render(written(tmp_path / "m.py", code), 1, tokens=400).text

    assert " class Ridge(Base) — Least squares." in text
    assert "  def fit(self, X, y)" in text or "in Ridge × 1: fit" in text


def test_an_array_shows_rows_with_as_many_columns_as_have_room():
    text = render(np.random.default_rng(0).random((100, 50)), 1, tokens=200).text

    assert re.search(r"first rows, columns 0-\d of 50:\n\[0\] +0\.\d+ ", text)
    assert "\n[1] " in text


def test_a_model_in_a_pipeline_comes_before_the_defaults_of_its_steps():
    linear = import_module("sklearn.linear_model")
    pipelines, scaling = import_module("sklearn.pipeline"), import_module("sklearn.preprocessing")
    steps = [(f"step {at}", scaling.PowerTransformer()) for at in range(4)]
    target: Any = pipelines.Pipeline([*steps, ("model", linear.LogisticRegression(C=0.5))])
    text = render(target, 1, tokens=200).text

    assert "\nmodel: LogisticRegression\n  C = 0.5" in text
    assert "model: LogisticRegression\n  penalty = 'deprecated' (default)" in render(target, 1, tokens=All).text


def test_the_keys_of_a_dict_come_before_its_values():
    text = render({f"key {at} of it": "value " * 10 for at in range(20)}, 1, tokens=300).text

    assert "key 19 of it" in text


@pytest.mark.parametrize("lod", [0, 1, 2])
@pytest.mark.parametrize("tokens", [200, 400, 800])
def test_a_wide_frame_uses_its_budget_at_every_level(lod: int, tokens: int):
    frame = pd.DataFrame({f"{kind}{kind} of {at}": np.arange(30.0) * at for at in range(40) for kind in "abc"})
    rendered = render(frame, lod, tokens=tokens)

    assert rendered.tokens >= 0.9 * within_reserve(tokens)


@given(
    names=st.lists(st.text("abcdef", min_size=1, max_size=8), unique=True, min_size=2, max_size=12),
    budget=st.integers(20, 120),
)
def test_a_line_that_is_begun_tells_more_than_its_name(names: list[str], budget: int):
    lines = [NamedLine(f"{name}: bool, 3 nulls", name, "bool", worth=at) for at, name in enumerate(names)]
    for line in plan(["head"], lines, budget, "columns").text.split("\n"):
        assert not re.fullmatch(r"[a-f]+:? ?…", line)


# -- what takes the last tokens of a budget


def test_content_takes_the_room_of_advice_where_much_of_a_budget_would_remain():
    """One more line of 14 tokens, where 11 remain beside the advice, which has 7."""
    text = render(dict.fromkeys((f"key_{at}" for at in range(999)), 7) | {"winner": "yes"}, 1, tokens=200)

    assert text.tokens >= 0.95 * within_reserve(200)
    assert "h.tokens" not in text.text.replace("; h.tokens]", "]")


@pytest.mark.parametrize("lod", [0, 1, 2])
def test_a_small_budget_of_a_wide_frame_is_used(lod: int):
    frame = pd.DataFrame({f"measure {at}": np.arange(50.0) * at for at in range(60)})
    for tokens in (100, 150, 200):
        rendered = render(frame, lod, tokens=tokens)
        assert rendered.tokens >= 0.93 * within_reserve(tokens), rendered.text


def test_one_mark_counts_rows_and_columns_where_there_is_no_room_for_two():
    frame = pd.DataFrame(np.ones((50, 60)), columns=[f"measure {at}" for at in range(60)])
    lines = render(frame, 0, tokens=100).text.split("\n")
    columns, rows = lines[1].count("measure"), sum(line[0].isdecimal() for line in lines)

    assert rows
    assert lines[-1].startswith(f"[… {50 - rows} more rows, {60 - columns} more columns, ~")


@given(numbers=st.lists(st.floats(0, 1e6).map(repr), min_size=1, max_size=20), chars=st.integers(0, 200))
def test_no_part_of_a_number_is_shown(numbers: list[str], chars: int):
    line = " ".join(["temperatures", *numbers])
    shown = beginning(line, chars).removesuffix("…").split()

    assert shown[1:] == numbers[: len(shown[1:])]
    assert "temperatures".startswith("".join(shown[:1]))


@pytest.mark.parametrize("line", ["age: float64, 19.0 … 79.0", "day: date, 2026-01-01 … 2026-01-28, 3 nulls"])
def test_no_range_without_its_end_is_shown(line: str):
    shown = {beginning(line, chars) for chars in range(len(line))}

    assert all(one.count("…") == 1 or one.removesuffix("…") in line for one in shown), shown
    assert not any(one.removesuffix("…").rstrip().endswith("…") for one in shown), shown


@pytest.mark.parametrize(
    ("chars", "shown"),
    [(11, "It goes on…"), (14, "It goes on for…"), (17, "It goes on for…"), (18, "It goes on for awh…")],
)
def test_a_beginning_ends_with_a_word_or_with_most_of_one(chars: int, shown: str):
    assert beginning("It goes on for awhile", chars) == shown


def test_a_last_column_of_which_nothing_is_left_to_say_has_no_details_in_a_mark():
    lines = [*columns(40), NamedLine("outcome: str", "outcome", "str", worth=10)]
    text = plan(["frame"], lines, 500, "columns").text
    listed = re.search(r"^float64 × (\d+): ", text, re.MULTILINE)

    assert listed is not None
    assert f"details of {listed[1]} columns" in text


@pytest.mark.parametrize("lod", [1, 2])
@pytest.mark.parametrize("tokens", [137, 333, 1_700])
def test_the_last_column_of_a_frame_is_named_however_many_there_are(lod: int, tokens: int):
    frame = pd.DataFrame(np.zeros((3, 2_500)), columns=[*(f"c{at}" for at in range(2_499)), "target"])

    assert "target" in render(frame, lod, tokens=tokens).text


@pytest.mark.parametrize("lod", [1, 2])
def test_the_last_column_of_a_groupby_is_named_in_a_small_budget(lod: int):
    frame = pd.DataFrame({f"measure {at}": [1.0, 2.0] for at in range(100)} | {"key": [1, 2], "target": [0, 1]})

    text = render(opened(frame.groupby("key"), "g"), lod, tokens=333).text

    assert "target: int64" in text
    assert re.search(r"float64 × \d+: measure ", text)
    assert not re.search(r"more lines", text)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_the_values_of_long_texts_are_counted_in_a_sample_that_is_said(library: str):
    frame = import_module(library).DataFrame({"word": [f"w{at % 1_000}" for at in range(500_000)]})

    text = render(frame, 2).text

    assert "sampled: " in text
    assert re.search(r"~[\d,]+ distinct, most often 'w\d+' ~0\.\d %", text)


@pytest.mark.parametrize("tokens", [1_234, 1_500, 1_600, 1_700])
def test_a_map_of_a_small_package_uses_its_budget_for_members_and_counts_the_others(tokens: int):
    rendered = render(opened(json, "json"), 1, tokens=tokens)
    members = len(re.findall(r"^  \w", rendered.text, re.MULTILINE))
    whole = len(re.findall(r"^  \w", render(opened(json, "json"), 1, tokens=All).text, re.MULTILINE))

    assert rendered.tokens >= 0.9 * within_reserve(tokens)
    assert (f"[… {whole - members} more nested symbol" in rendered.text) == (members < whole)


@pytest.mark.parametrize("tokens", [777, 1_234, 1_700])
def test_the_rows_of_a_parquet_file_use_their_budget(tmp_path: Path, tokens: int):
    frame = pd.DataFrame(np.random.default_rng(0).random((50, 30)), columns=[f"measure {at}" for at in range(30)])
    frame.to_parquet(tmp_path / "a.parquet")

    rendered = render(tmp_path / "a.parquet", 0, tokens=tokens)
    rows = len(re.findall(r"^\d+ \|", rendered.text, re.MULTILINE))

    assert rendered.tokens >= 0.95 * within_reserve(tokens)
    assert f"[… {50 - rows} more rows, " in rendered.text
