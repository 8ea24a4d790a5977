"""Large JSON texts: what is told of the whole of them, found piece by piece."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.sources.base import file_reader
from ctxkernel.sources.outlines.json_facts import JsonFacts, JsonPlace
from ctxkernel.testing.renderings import opened, render, written

KEYS = st.sampled_from(["a", "b", "key", 'q"uote', "ü\n", "\\", "", "x.y"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=12),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=40,
)


def taken(data: bytes, size: int) -> JsonFacts:
    """Take a text in pieces of so many bytes."""
    facts = JsonFacts()
    for at in range(0, len(data), size):
        facts.take(data[at : at + size])
    facts.take(b"\n")
    return facts


@given(value=VALUES, size=st.integers(1, 60), indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_a_text_in_pieces_is_what_it_is_at_once(value: Any, size: int, indent: int | None, ascii_only: bool):
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    pieces, whole = taken(data, size), taken(data, len(data))

    assert pieces.is_whole
    assert whole.is_whole
    assert pieces.outline_lines("") == whole.outline_lines("")


def agrees(place: JsonPlace, values: list[Any]) -> None:
    """Compare a place with all values that it is about, counted independently."""
    kinds = [_kind(value) for value in values]
    assert dict(place.facts.kinds) == {kind: kinds.count(kind) for kind in kinds}
    objects = [value for value in values if isinstance(value, dict)]
    lists = [value for value in values if isinstance(value, list)]
    sizes = [len(value) for value in (*objects, *lists)]
    assert place.facts.lengths == ((min(sizes), max(sizes)) if sizes else (1 << 60, -1))
    numbers = [value for value in values if _kind(value) in ("int", "float")]
    if numbers:
        ends = map(float, place.facts.numbers.ends())
        assert [*ends] == pytest.approx([min(map(float, numbers)), max(map(float, numbers))])
    keys = {key for value in objects for key in value}
    assert {*place.keys} == keys
    for key in keys:
        agrees(place.keys[key], [value[key] for value in objects if key in value])
    items = [item for value in lists for item in value]
    assert (place.items is not None) == bool(items)
    if place.items is not None:
        agrees(place.items, items)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    names = {type(None): "null", str: "text", dict: "object", list: "array", int: "int", float: "float"}
    return names[type(value)]


@given(VALUES)
def test_each_place_is_told_by_all_values_there(value: Any):
    agrees(taken(json.dumps(value).encode(), 7).root, [value])


@given(VALUES, st.data())
def test_a_text_that_is_damaged_raises_nothing_and_is_not_taken_for_a_whole_one(value: Any, data: st.DataObject):
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(st.sampled_from(["", "{", "]", '"', "x", "}{", "1 2", "\0"])) + text[at + 1 :]
    facts = taken(damaged.encode(), 9)

    facts.outline_lines("~")
    try:
        json.loads(damaged)
    except ValueError:
        return
    assert facts.is_whole or "Infinity" in damaged or math.isnan(0)


@pytest.mark.parametrize("text", ["", "[1, 2", '{"a": [1}', "[1]]", '{"a": 1} {"b": 2}', "nothing", '["a', "{1: 2}"])
def test_what_is_not_one_value_of_json_is_not_whole(text: str):
    assert not taken(text.encode(), 3).is_whole


# -- files


def answer(count: int) -> dict[str, Any]:
    users = [{"name": f"user {at}", "city": ("Berlin", "Paris")[at % 2], "age": at} for at in range(count)]
    return {"license": "CC-BY", "users": users, "flags": {f"flag_{at}": True for at in range(60)}, "quota": 5}


@pytest.fixture
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small files be large ones."""
    monkeypatch.setattr(file_reader, "WHOLE_BYTES", 4096)
    monkeypatch.setattr(file_reader, "EXCERPT_BYTES", 1024)


def read_whole(source: Any) -> Any:
    source.render(render_request())
    while (job := source.preparation()) is not None:
        if not source.accept(job.work(lambda: False, lambda part: None)):
            break
    return source


def render_request() -> Any:
    from ctxkernel.core.ports import RenderRequest

    return RenderRequest(1, "0", 4000)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_large_file_is_told_by_its_beginning_and_then_by_all_of_it(tmp_path: Path, small_reads: None, indent: Any):
    file = written(tmp_path / "a.json", json.dumps(answer(20_000), indent=indent))
    source = opened(file, "a.json")
    first = render(source, 1, tokens=4000).text
    then = render(read_whole(source), 1, tokens=4000).text

    assert " read" in first.split("\n")[0] and "\nobject, 2+ keys\n" in first
    assert "quota" not in first
    assert "\nobject, 4 keys\n" in then
    assert "users: array, 20,000 items of object" in then
    assert 'city: text, 2 distinct ("Berlin" ×10,000, "Paris" ×10,000)' in then
    assert "age: int, 0 … 19999" in then
    assert 'name: text, 1,000 or more distinct, such as "user 0"' in then
    assert "quota: number 5" in then
    assert "~" not in then and "+" not in then


def test_a_large_file_that_is_written_again_is_told_anew(tmp_path: Path, small_reads: None):
    file = written(tmp_path / "a.json", json.dumps(answer(2_000)))
    source = opened(file, "a.json")
    read_whole(source)

    written(tmp_path / "a.json", json.dumps({**answer(5_000), "late": 1}))
    then = render(read_whole(source), 1, tokens=4000).text

    assert "users: array, 5,000 items" in then
    assert "late: number 1" in then


@pytest.mark.parametrize("broken", ["[1, 2", "}", '"late'])
def test_a_large_file_that_is_no_json_says_so(tmp_path: Path, small_reads: None, broken: str):
    file = written(tmp_path / "a.json", json.dumps(answer(2_000)) + broken)
    text = render(read_whole(opened(file, "a.json")), 1, tokens=4000).text

    assert "not valid JSON" in text


def test_the_paths_of_keys_stand_in_a_summary(tmp_path: Path):
    text = render(written(tmp_path / "a.json", json.dumps(answer(200))), 2, tokens=800).text

    assert "- users[].city: text, 2 distinct" in text
    assert "- quota: number 5" in text


def test_an_object_of_very_many_keys_counts_those_that_are_not_shown(tmp_path: Path, small_reads: None):
    value = {f"k{at}": {"x": at} for at in range(5_000)}
    text = render(read_whole(opened(written(tmp_path / "a.json", json.dumps(value)), "a.json")), 1, tokens=100_000).text

    assert "object, 5,000 keys" in text
    assert "[… 4,800 more keys]" in text
