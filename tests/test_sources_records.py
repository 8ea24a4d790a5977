"""Records, nested values and texts in memory as sources."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.errors import BadPolicy, BadTarget
from ctxkernel.core.ports import All
from ctxkernel.core.settings import Settings
from ctxkernel.sources import open_named, open_source
from ctxkernel.testing import Turns
from ctxkernel.testing.renderings import opened, render, written


def people(count: int = 50) -> list[dict[str, Any]]:
    """Records: numbers, texts, a null in every third, a field in every tenth only."""
    return [
        {
            "id": at,
            "name": f"n{at}",
            "x": at / 7,
            "team": "ab"[at % 2],
            "boss": None if at % 3 else 1,
            **({"rare": True} if at % 10 == 0 else {}),
        }
        for at in range(count)
    ]


# --- records


def test_a_list_of_records_is_shown_as_the_table_that_it_is():
    lines = render(opened(people(), "people"), tokens=400).text.split("\n")

    assert lines[0].startswith("people · list · 50 records × 6 fields · rows 0-")
    assert lines[1].split() == ["id", "name", "x", "team", "boss", "rare"]
    assert lines[2].split() == ["0", "0", "n0", "0.0", "a", "1", "True"]
    assert lines[3].split() == ["1", "1", "n1", repr(1 / 7), "b", "None", "—"]


def test_level_1_of_records_is_fields_with_types_nulls_ranges_and_a_few_rows():
    text = render(opened(people(), "people"), 1).text

    assert "\nid: int, 0 … 49\n" in text
    assert "\nname: str, all different, such as 'n0'\n" in text
    assert "\nteam: str, 2 distinct ('a' ×25, 'b' ×25)\n" in text
    assert "\nboss: int, 33 nulls, 1\n" in text
    assert "\nrare: bool, 45 of 50 without it, 5 True\n" in text
    assert text.split("first rows:\n")[1].count("\n") == 5


def test_level_2_of_records_has_the_statistics_of_numbers():
    text = render(opened(people(), "people"), 2).text

    assert "\n[numbers: min, 25%, 50%, 75%, max, mean, std]\n" in text
    assert "\nid: int, 0, 12.25, 24.5, 36.75, 49, 24.5, 14.57737974\n" in text


@pytest.mark.parametrize(
    ("target", "head", "row"),
    [
        ({"ann": {"age": 3, "ok": True}, "bob": {"age": 4}, "cy": {"age": 5}}, "3 records × 2 fields", "bob 4 —"),
        ({"a": [1, 2], "b": ["x", "y"]}, "2 rows × 2 columns", "1 2 y"),
        ({"a": np.array([1.5, 2.5], "float32"), "b": (1, 2)}, "2 rows × 2 columns", "1 2.5 2"),
        ({"a": np.ma.masked_array([1, 2], [False, True]), "b": [1, 2]}, "2 rows × 2 columns", "1 None 2"),
    ],
    ids=["by key", "columns", "arrays", "masked"],
)
def test_other_shapes_of_a_table_are_tables_too(target: Any, head: str, row: str):
    text = render(opened(target, "t")).text

    assert head in text
    assert row in [" ".join(line.split()) for line in text.split("\n")]


@pytest.mark.parametrize(
    "target",
    [[{"a": 1}, 2], [{"a": 1}], [{"a": 1}, {"b": 2}], {"a": [1, 2], "b": [1]}, [], [{}, {}], [{1: 2}, {1: 3}]],
    ids=str,
)
def test_what_is_no_table_is_none(target: Any):
    assert opened(target).kind != "records"


def test_every_record_is_reached_by_next_pos():
    target, pos, seen = people(40), "0", []

    while pos is not None:
        rendered = render(target, pos=pos, tokens=300)
        seen += re.findall(r"^ *(\d+) +\d+ n.*[^…]$", rendered.text, re.MULTILINE)
        pos = rendered.next_pos

    assert seen == [str(at) for at in range(40)]


def test_a_position_in_records_is_a_row_a_field_a_key_or_a_pattern():
    by_key = {name: {"age": at, "team": "x"} for at, name in enumerate(("ann", "bob", "cy"))}

    assert "n30" in render(people(), pos="/^30 .*n30/", tokens=150).text.split("\n")[2]
    assert render(people(), pos="team", tokens=150).text.split("\n")[1].split()[0] == "team"
    assert render(by_key, pos="bob", tokens=150).text.split("\n")[2].startswith("bob")
    with pytest.raises(BadPolicy, match="Is it 'team'"):
        render(people(), pos="tean")


def test_a_change_of_a_record_is_told_by_row_and_field():
    target = people()
    source = opened(target, "people")
    before = render(source)

    target[5]["team"] = "c"
    del target[7]["boss"]
    target.append({"id": 50, "new": 1})
    text = render(source, 3, basis=before.basis).text

    assert "\nshape 50 × 6 → 51 × 7\ncolumns added: new\n" in text
    assert "\nrow 5 (5), team: b → c\nrow 7 (7), boss: None → —" in text


def test_many_records_are_sampled_said_so_and_cost_little():
    target = people(100_000)
    render(people(), 1)  # the modules are imported

    started = time.process_time()
    first = render(opened(target, "people"))
    spent = time.process_time() - started
    described = render(opened(target, "people"), 1)

    assert "· 100,000 records × ~6 fields ·" in first.text
    assert "99,9" in first.text.split("\n")[-1], "shown and left out are all of them"
    assert first.notes == ("content hash of a sample",)
    assert " · sampled: 3,333 records spread over all\n" in described.text, "as many as have 20,000 cells"
    assert "\nid: int, ~0 … 99999\n" in described.text
    assert re.search(r"\nteam: str, ~2 distinct \('[ab]' ~5\d\.\d %, '[ab]' ~\d\d\.\d %\)\n", described.text)
    baseline = time.process_time()
    json.dumps(target[:20_000])
    assert spent < 10 * (time.process_time() - baseline), "far less than to go through all of them"


def test_a_record_with_an_object_of_the_users_runs_none_of_its_code():
    def ran(*args: Any) -> Any:
        raise SystemExit("ran")

    members = dict.fromkeys(("__eq__", "__hash__", "__repr__", "__len__", "__bool__", "__iter__"), ran)
    Trap = type("Trap", (), members)
    target = [{"a": Trap(), "b": 1}, {"a": Trap(), "b": 2}]

    for lod in (0, 1, 2, 3):
        assert "Trap" in render(target, lod).text


def test_a_row_that_became_something_else_is_shown_in_the_first_column():
    target = people()
    source = opened(target, "people")
    target[2] = "no record"  # type: ignore[call-overload]

    assert "2 no record" in " ".join(render(source, tokens=300).text.split("\n")[4].split())


# --- nested values


NESTED = {
    "version": 3,
    "users": [
        {"name": "ann", "address": {"city": "Paris"}, "tags": ["x"]},
        {"name": "bob", "address": {"city": None}},
        {"name": "cy"},
    ],
    "odd key": {"deep": {"deeper": {"x": 1.5}}},
}


def test_level_1_of_a_nested_value_is_its_fields_with_types_counts_and_examples():
    lines = render(opened(NESTED, "config"), 1).text.split("\n")

    assert lines[0] == "config · dict · 3 items · 10 fields, 4 levels deep"
    assert lines[1:] == [
        "version: int, 3",
        "users: list, 3 items of dict",
        "  [].name: str ×3, all different, such as 'ann'",
        "  [].address: dict ×2, 1 of 3 without it, 1 item",
        "    city: str ×1, 1 null, 'Paris'",
        "  [].tags: list, 2 of 3 without it, 1 item of str",
        "['odd key']: dict, 1 item",
        "  deep: dict, 1 item",
        "    deeper: dict, 1 item",
        "      x: float, 1.5",
    ]


def test_level_2_of_a_nested_value_is_the_paths_that_hold_values():
    text = render(opened(NESTED, "config"), 2).text

    assert "- users[].address.city: str ×1, 1 null, 'Paris'\n" in text
    assert "- ['odd key'].deep.deeper.x: float, 1.5" in text


@settings(max_examples=examples(30))
@given(st.integers(20, 400), st.sampled_from([1, 2]))
def test_of_fields_what_is_shown_and_what_is_left_out_are_all(tokens: int, lod: int):
    everything = render(NESTED, lod, tokens=All).text.split("\n")[1:]
    shown = render(NESTED, lod, tokens=tokens).text.split("\n")
    left = re.search(r"(\d+) more field", shown[-1])
    lists = [line for line in shown if line.startswith("names × ")]
    named = sum(int(line.split()[2].rstrip(":")) for line in lists)

    if left is not None:
        assert len(shown) - 2 - len(lists) + named + int(left[1]) == len(everything)
        assert all(
            any(one.startswith(line.removesuffix("…")) for one in everything)
            for line in shown[1:-1]
            if line not in lists
        )


def test_a_small_budget_has_the_fields_nearest_to_the_top():
    lines = render(NESTED, 1, tokens=120).text.split("\n")[1:-1]

    assert {"version: int, 3", "users: list, 3 items of dict", "['odd key']: dict, 1 item"} <= {*lines}
    assert not any(line.startswith("      ") for line in lines)


def test_a_field_below_a_long_list_is_of_a_sample():
    target = {"a": {"rows": [{"x": at, "y": {"z": at}} for at in range(5000)]}}

    text = render(target, 1).text

    assert "  rows: list, 5,000 items of dict\n" in text
    assert "[].x: int (1,000 looked at), ~0 … 4999\n" in text
    assert "[… 4,980 more items; a view of this list alone shows them]" in render(target, tokens=All).text


def test_a_key_is_a_position_and_a_deep_change_is_told():
    target = json.loads(json.dumps(NESTED))
    source = opened(target, "config")
    before = render(source)

    target["odd key"]["deep"]["deeper"]["x"] = 2

    assert source.stamp() != before.fingerprint
    assert "{'x': 2}" in render(source, 3, basis=before.basis).text
    assert "'city': 'Paris'" in render(source, pos="users", tokens=300).text


def test_a_value_that_holds_itself_ends():
    target: list[Any] = [{"x": {"y": 1}}]
    target.append({"x": target})

    for lod in (0, 1, 2, 3):
        assert render(target, lod).text


def test_a_file_of_json_shows_each_field_of_the_objects_in_its_arrays(tmp_path):
    file = written(tmp_path / "a.json", json.dumps(NESTED))

    text = render(file, 1).text

    assert text.split("\n--- ")[0].split("\n")[1:] == [
        "object, 3 keys",
        "  version: number 3",
        "  users: array, 3 items of object",
        "    [each]",
        '      name: text, all different, such as "ann"',
        "      address: object, missing in 33.3 %, 1 key",
        '        city: text, null in 50.0 %, "Paris"',
        "      tags: array, missing in 66.7 %, 1 item of text",
        "  odd key: object, 1 key",
        "    deep: object, 1 key",
        "      deeper: object, 1 key",
    ]


def test_of_a_long_array_in_a_file_the_objects_looked_at_are_said(tmp_path):
    file = written(tmp_path / "a.json", json.dumps([{"id": at} for at in range(5000)]))

    assert "\n  [each of the first 1,000]\n    id: int, 0 … 999\n" in render(file, 1).text


# --- texts


REPORT = "# A report\n\nThe slope is 0.3.\n\n## Method\n\nWe fit a line.\n"


def test_a_text_is_viewed_as_a_file_of_its_kind_would_be():
    source = open_named(REPORT, {"report": REPORT})

    assert source.kind == "text"
    assert render(source).text == f"report · 7 lines · 57 B\n{REPORT.rstrip()}"
    assert "\n4   ## Method — We fit a line.\n" in render(source, 1).text
    assert "c: string" in render('{"a": [1, 2],\n "c": "x"}', 1).text


def test_a_text_that_is_a_path_is_the_path(tmp_path, monkeypatch):
    written(tmp_path / "two\nlines", "found")
    monkeypatch.chdir(tmp_path)

    assert render("two\nlines").text.endswith("\nfound")
    with pytest.raises(BadTarget, match=r"a short text by view\(io\.StringIO\(text\)\)"):
        open_source("no such file")


@pytest.mark.parametrize("text", ["x" * 300, "a/" + "y" * 300, "one\ntwo", "https://example.org/a\nand more", "*\n?"])
def test_a_text_that_no_path_can_be_is_a_text(text: str):
    assert render(text).text.endswith(text)


def test_of_a_large_text_the_beginning_is_shown_and_said():
    text = render("a line of text\n" * 1_000_000, tokens=100).text

    assert "the first 4,194,299 of 15,000,000 characters" in text


def test_a_view_of_a_text_is_the_same_after_its_memento():
    turns = Turns(Settings())
    turns.loop.graph.open_source = lambda target: open_named(target, turns.namespace)
    turns.namespace["report"] = REPORT
    turns.run("h = view(report)")
    handle = turns.namespace["h"]
    before, memento = handle.rendered.text, handle.memento()

    turns.loop.graph.restore({handle.obj_id: memento}, lambda obj_id: REPORT)

    assert memento["spec"] == REPORT
    assert (handle.rendered.text, handle.fault) == (before, "")


def test_a_dict_that_contains_itself_has_an_end():
    target: dict[str, object] = {"port": 80}
    target["parent"] = target
    target["list"] = [target, {"x": 1}]

    assert render({"inner": target}, 1).text.split("\n") == [
        "dict · 1 item · 5 fields, 3 levels deep",
        "inner: dict, 3 items",
        "  port: int, 80",
        "  parent: dict, 3 items",
        "  list: list, 2 items of dict",
        "    [].x: int, 1",
    ]
