"""Renderings as people read them: tables, bars and code, with all of the text and nothing else."""

from __future__ import annotations

import re
from html import unescape
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_groups import real

from ctxkernel.core.ports import Rendered, RenderRequest, TableRow
from ctxkernel.core.settings import Settings
from ctxkernel.core.turn_values import HandleTable
from ctxkernel.kernel.display.blocks import BAR_WIDTH, blocks_of, column_facts
from ctxkernel.kernel.display.blocks_html import blocks_html
from ctxkernel.kernel.display.handle_display import table_html
from ctxkernel.sources import open_named
from ctxkernel.testing import Turns

EVIL = "<img src=x onerror=alert(1)>"
FRAME = pd.DataFrame(
    {
        "age": [30, 41, 52, 63, 74],
        "fare, paid": [1.5, None, 2.25, 8.0, 4.0],
        "city": ["New York, NY", EVIL, "Oslo", "Oslo", "it's: here"],
        "ok": [True, False, True, True, False],
    }
)


def shown(target: object, lod: int = 0, tokens: int = 2_000, basis: Any = None) -> Rendered:
    """Return a rendering as a view has it."""
    return open_named(target, {"df": target}, Settings()).render(RenderRequest(lod, "0:0", tokens, basis))


def tables(rendered: Rendered) -> list[Any]:
    """Return the tables of a rendering."""
    return [block for block in blocks_of(rendered.text, rendered.rows) if block["kind"] == "table"]


def test_the_rows_of_a_frame_are_the_cells_of_a_table():
    [table] = tables(shown(FRAME))
    assert table["head"] == ["", *FRAME.columns]
    assert [row[0] for row in table["rows"]] == ["0", "1", "2", "3", "4"]
    assert [row[3] for row in table["rows"]] == list(FRAME["city"])
    assert [row[2] for row in table["rows"]] == ["1.5", "NaN", "2.25", "8.0", "4.0"]
    assert table["right"] == [1, 2, 4]


def test_statistics_are_a_table_with_a_bar_for_each_distribution():
    [table] = tables(shown(FRAME, 2))
    facts = [dict(zip(table["head"], row, strict=True)) for row in table["rows"]]
    assert [one["column"] for one in facts] == list(FRAME.columns)
    assert (facts[0]["min"], facts[0]["50%"], facts[0]["max"]) == ("30", "52", "74")
    assert (facts[1]["nulls"], facts[3]["True"], facts[2]["distinct"]) == ("1", "3", "4")
    assert facts[2]["most often"].startswith("'Oslo' ×2")
    age, _, city, ok = table["bars"]
    assert age["label"] == "half of the values are from 41 to 63, median 52, of 30 to 74"
    assert age["shapes"][1][0] == pytest.approx(BAR_WIDTH * (41 - 30) / (74 - 30), abs=0.01)
    assert ok["label"] == "60%, 40% of the values"
    assert city["shapes"][1][2] == pytest.approx(BAR_WIDTH * 2 / 5, abs=0.01)


def test_levels_1_and_3_show_columns_first_rows_and_changed_cells_as_tables():
    facts, rows = tables(shown(FRAME, 1))
    assert facts["head"] == ["column", "type", "nulls", "distinct", "True", "False", "range", "most often"]
    assert len(rows["rows"]) == 5
    before = shown(FRAME)
    changed = FRAME.assign(age=[30, 41, 52, 63, 75])
    [table] = tables(shown(changed, 3, basis=before.basis))
    assert table["head"] == ["row", "label", "column", "before", "after"]
    assert table["rows"] == [["4", "4", "age", "74", "75"]]


@pytest.mark.parametrize("lod", [0, 1])
def test_arrays_records_and_files_are_tables_too(lod: int, tmp_path: Any):
    csv = tmp_path / "a.csv"
    FRAME.to_csv(csv, index=False)
    parquet = tmp_path / "a.parquet"
    FRAME.to_parquet(parquet)
    [array] = tables(shown(np.arange(6.0).reshape(2, 3), lod))
    assert array["rows"] == [["[0]", "0.0", "1.0", "2.0"], ["[1]", "3.0", "4.0", "5.0"]]
    records = tables(shown([{"a": 1, "b": "x, y"}, {"a": 2, "b": "z"}] * 5, lod))
    assert records[-1]["rows"][0] == ["0", "1", "x, y"]
    assert tables(shown(str(parquet), 0))[0]["rows"][0][-2:] == ["New York, NY", "True"]
    read = tables(shown(str(csv), 1))
    assert read[0]["head"][0] == "column"
    assert read[1]["head"] == list(FRAME.columns)
    assert read[1]["rows"][0][2] == "New York, NY"
    assert (array["labels"], records[-1]["labels"], read[0]["labels"], read[1]["labels"]) == (1, 1, 1, 0)


TEXT = st.text(st.sampled_from("ab ,:;'\"()[]0129…×.~-%\\"), max_size=40)
NAMES = TEXT.filter(str.strip)
COLUMNS = st.one_of(
    st.tuples(NAMES, st.just("int64"), TEXT.map("int64, {}".format)),
    st.tuples(NAMES, st.just("dictionary<a, b>"), TEXT.map("dictionary<a, b>, 3 nulls, {}".format)),
    st.tuples(NAMES, st.just("str"), TEXT.map("str, 3 distinct, most often '{}' ×2, 'b' ×1".format)),
    st.tuples(NAMES, st.just("str"), TEXT.map("str, ~3.1 % nulls, most often 'b' ~70.0 %, all different, {}".format)),
    st.tuples(NAMES, st.just("other"), TEXT),
)
LINES = st.lists(st.one_of(TEXT, COLUMNS), max_size=6)


@given(LINES)
@example([("a", "int64", "int64, 1 values"), ("b", "int64", "int64, min 1, " + "'" * 30)])
def test_the_blocks_have_all_of_the_text_in_its_order(lines: list[Any]):
    """A table of facts has the words of each line; what is no such line stays text, as it is."""
    rows = {
        f"{one[0]}: {one[2]}": TableRow((one[0], one[1]), is_facts=True) for one in lines if not isinstance(one, str)
    }
    left = [one if isinstance(one, str) else f"{one[0]}: {one[2]}" for one in lines] or [""]
    for block in blocks_of("\n".join(left), rows):
        if block["kind"] == "text":
            taken, left = left[: block["text"].count("\n") + 1], left[block["text"].count("\n") + 1 :]
            assert "\n".join(taken) == block["text"]
            continue
        assert block["kind"] == "table"
        for row in block["rows"]:
            line, *left = left
            told = re.findall(r"\w+", line)
            cells = re.findall(r"\w+", " ".join(row))
            assert set(cells) <= set(told)
            names = {*re.findall(r"\w+", " ".join(block["head"])), "most", "often", "such", "as", "characters", "value"}
            assert set(told) - set(cells) <= names | {"values", "null", "nulls"}
    assert left == []


def test_a_raw_excerpt_is_shown_as_it_is():
    text = "notes.txt · 2 lines · 40 B\na: int64, 3 nulls\nb: int64, 4 nulls"
    assert blocks_of(text, {}) == [{"kind": "text", "text": text}]


def test_only_what_a_source_gives_as_columns_is_a_table_of_them():
    """An estimator has a number of features; a dictionary has an item called `min`."""
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline

    fitted = make_pipeline(LinearRegression()).fit(FRAME[["age"]], FRAME["age"])
    assert tables(shown(fitted, 1)) == []
    assert tables(shown({"count": 3, "min": 1.5}, 1)) == []


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("rows", [5, 3_000_000])
def test_all_columns_of_a_frame_are_in_one_table_whatever_is_known_of_them(library: str, rows: int):
    made = {"number": np.arange(rows), "real": np.where(np.arange(rows) % 3, 1.5, np.nan), "word": ["x", "y"]}
    made["word"] = np.array(made["word"])[np.arange(rows) % 2]
    frame: Any = pd.DataFrame({**made, "when": pd.Timestamp("2020"), "yes": np.arange(rows) % 2 == 0})
    if library == "polars":
        frame = import_module("polars").from_pandas(frame)
    if library == "pyarrow":
        frame = import_module("pyarrow").Table.from_pandas(frame)
    for lod in (1, 2):
        facts = tables(shown(frame, lod))[0]
        assert facts["head"][:2] == ["column", "type"]
        assert {row[0] for row in facts["rows"]} == {"number", "real", "word", "when", "yes"}
        assert ("~" in str(facts["rows"])) == (rows > 5)


def test_records_are_one_table_of_columns_too():
    facts = tables(shown([{"id": at, "name": f"n{at}", "tags": ["a", "b"], "at": {"x": 1}} for at in range(50)], 1))[0]
    assert [row[0] for row in facts["rows"]] == ["id", "name", "tags", "at"]
    assert facts["rows"][1][facts["head"].index("also")] == "all different"


def test_a_long_line_of_colons_costs_little():
    row = TableRow(("a", "int64"), is_facts=True)
    assert column_facts("a: '" * 100_000, row) is None
    assert column_facts("x: " + "1 nulls, " * 100_000, row) is None


def test_code_is_in_colours_and_is_all_there():
    text = 'm.py · 4 lines · 60 B\ndef f(x):\n    # one\n    return "a<b"\n[… 2 more lines, ~9 tokens]'
    first, code, last = blocks_of(text, {}, file="m.py")
    assert "".join(part for _, part in code["spans"]) == "\n".join(text.split("\n")[1:4])  # type: ignore[typeddict-item]
    styles = {part.strip(): style for style, part in code["spans"]}  # type: ignore[typeddict-item]
    assert (styles["def"], styles["f"], styles["# one"]) == ("keyword", "definition", "comment")
    assert (first["kind"], last["kind"]) == ("text", "text")
    for name in ("m.txt", "m.csv", "m", "x" * 300):
        assert [one["kind"] for one in blocks_of(text, {}, file=name)] == ["text"]
    [head, diff] = blocks_of("m.py · changed\n@@ -1 +1 @@\n-a\n+b", {}, file="m.py")
    assert head["kind"] == "text"
    assert ["deleted", "-a\n"] in diff["spans"]  # type: ignore[typeddict-item]


def test_the_html_is_readable_by_a_screen_reader_and_nothing_in_it_is_of_the_target():
    rendered = shown(FRAME, 2)
    html = blocks_html(blocks_of(rendered.text, rendered.rows), wraps=True)
    assert "<img" not in html
    assert re.findall(r"<(?!/)(\w+)", html).count("svg") == 4
    assert html.count('scope="row"') == 4
    assert all('aria-label="' in one for one in re.findall(r"<svg [^>]*>", html))
    assert 'tabindex="0"' in html
    assert not re.search(r"<script|\son\w+=|url\(", re.sub(r">[^<]*<", "><", html))
    told = unescape(re.sub(r"<[^>]+>", " ", blocks_html(blocks_of(shown(FRAME).text, shown(FRAME).rows), wraps=False)))
    assert EVIL in told


def test_a_line_that_was_masked_stays_text():
    """Where a secret was in a row, only the masked line is shown."""
    row = TableRow(("0", "hunter2"), names=("", "password"))
    assert blocks_of("t\n0 hunter2", {"0 hunter2": row})[1]["kind"] == "table"
    assert blocks_of("t\n0 [masked]", {"0 hunter2": row}) == [{"kind": "text", "text": "t\n0 [masked]"}]


def grouped(lod: int, **targets: Any) -> tuple[Turns, Any]:
    """Return a group over views of some targets."""
    turns = real(**targets)
    turns.run(f"g = group(*[view(one) for one in ({', '.join(targets)},)], tokens=2000, lod={lod})")
    return turns, turns.namespace["g"]


@pytest.mark.parametrize("lod", [0, 1, 2])
def test_the_tables_of_a_group_are_those_of_its_members(lod: int):
    other = FRAME.assign(age=FRAME["age"] * 1000)
    _, g = grouped(lod, one=FRAME, other=other, array=np.arange(6.0).reshape(2, 3))
    found = tables(g.rendered)

    wanted = [*tables(shown(FRAME, lod)), *tables(shown(other, lod)), *tables(shown(np.arange(6.0).reshape(2, 3), lod))]
    assert [table["head"] for table in found] == [table["head"] for table in wanted]
    assert [table["rows"] for table in found] == [table["rows"] for table in wanted]


def test_a_line_that_is_another_row_in_another_member_stays_text():
    """Both heads are written `a b c`."""
    one, other = pd.DataFrame({"a b": ["x"], "c": ["y z"]}), pd.DataFrame({"a": ["x"], "b c": ["y z"]})
    _, g = grouped(0, one=one, other=other)
    blocks = blocks_of(g.rendered.text, g.rendered.rows)

    assert sum("\n  a b c" in block["text"] for block in blocks if block["kind"] == "text") == 2
    assert [(table["head"], table["rows"]) for table in tables(g.rendered)] == [([], [["0", "x", "y z"]])] * 2


def test_a_group_that_is_restored_keeps_its_tables():
    turns, g = grouped(0, one=FRAME)
    before, here = tables(g.rendered), turns.loop.log.head
    turns.run("g.lod = 2")

    turns.goto(here)

    assert before and tables(turns.namespace["g"].rendered) == before


def test_a_table_without_handles_says_how_to_make_one():
    assert "no handles yet; make one with view(path) or view(df)" in table_html(HandleTable(), str)
