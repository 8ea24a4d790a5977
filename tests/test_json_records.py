"""Texts with a JSON value a line: what is told of the whole of them, and of a sample."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.ports import All
from ctxkernel.sources.outlines.json_records import RecordFacts
from ctxkernel.testing.renderings import opened, render, written

FIRST_DAY = datetime.date(1990, 1, 1)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=90),
)
RECORDS = st.lists(
    st.dictionaries(
        st.sampled_from("abc"),
        SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(st.sampled_from("xy"), SCALARS, max_size=2),
        max_size=3,
    ),
    min_size=1,
    max_size=30,
)


def whole(source: Any) -> Any:
    """Let the background do all that a source wants once it was looked at."""
    render(source, 1)
    while (job := source.preparation()) is not None:
        if source.accept(job.work(lambda: False, lambda part: None)):
            render(source, 1)
    return source


def lines_of(records: list[Any]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in records).encode()


@given(records=RECORDS, cuts=st.lists(st.integers(0, 30), max_size=4))
def test_lines_in_pieces_are_what_they_are_at_once(records: list[Any], cuts: list[int]):
    pieces = at_once = RecordFacts()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 30], strict=True):
        pieces = pieces.copy()
        pieces.take(lines_of(records[start:end]))

    before = at_once.outline("", "").lines
    facts = at_once.copy()
    facts.take(lines_of(records))

    assert facts.outline("", "") == pieces.outline("", "")
    assert at_once.outline("", "").lines == before == []


@given(RECORDS)
def test_each_field_is_told_by_all_its_values(records: list[dict[str, Any]]):
    facts = RecordFacts()

    facts.take(lines_of(records))

    for key in "abc":
        values = [one[key] for one in records if key in one]
        numbers = [value for value in values if type(value) in (int, float)]
        texts = {value for value in values if isinstance(value, str)}
        if not values:
            assert key not in facts.fields
            continue
        found = facts.fields[key]
        assert found.kinds.total() == len(values)
        assert len(found.texts) == len(texts)
        if numbers:
            assert [*map(float, found.numbers.ends())] == [float(min(numbers)), float(max(numbers))]
        sizes = [len(value) for value in values if isinstance(value, dict | list)]
        assert not sizes or found.lengths == (min(sizes), max(sizes))


def test_a_file_is_told_by_a_sample_first_and_then_by_all_its_lines(tmp_path: Path):
    records: list[dict[str, Any]] = [{"id": n, "word": f"w{n % 7}"} for n in range(60_000)]
    records[45_001]["error"] = "shard 7 is gone"
    source = opened(written(tmp_path / "a.jsonl", lines_of(records)))

    first = render(source, 1).text
    then = render(whole(source), 1).text

    assert "a sample: beginning, middle and end" in first
    assert "id: int, ~0 … 59999" in first
    assert "error" not in first
    assert "\n60,000 lines of JSON\nid: int, 0 … 59999\n" in then
    assert 'error: text, missing in 99.9 %, "shard 7 is gone"' in then
    assert "~" not in then


def test_a_file_that_grows_is_read_on_from_where_it_ended(tmp_path: Path):
    path = written(tmp_path / "a.jsonl", lines_of([{"id": n} for n in range(100_000)]))
    source = whole(opened(path))
    with path.open("ab") as file:
        file.write(lines_of([{"id": -5, "late": True}]))

    shown = render(source, 1).text

    assert "100,001 lines of JSON\nid: int, -5 … 99999\nlate: bool, missing in 99.9 %" in shown


def test_a_large_text_that_is_no_json_a_line_says_so(tmp_path: Path):
    source = opened(written(tmp_path / "a.jsonl", b"nothing of the kind\n" * 300_000))

    for shown in (render(source, 1).text, render(whole(source), 1).text):
        assert "not a JSON value a line as far as it was read" in shown


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_the_range_of_more_dates_than_are_counted_is_of_all_of_them(tmp_path: Path, name: str):
    rows = [{"day": str(FIRST_DAY + datetime.timedelta(n)), "pad": "x" * 90} for n in range(12_000)]
    data = lines_of(rows) if name == "a.jsonl" else json.dumps(rows).encode()
    source = opened(written(tmp_path / name, data))

    assert "day: text, 1990-01-01 … 2022-11-08\n" in render(whole(source), 1, tokens=All).text


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_long_texts_that_begin_alike_are_different_ones(tmp_path: Path, name: str):
    rows = [{"at": "https://example.org/" + "long/" * 60 + str(n % 500)} for n in range(5_000)]
    data = lines_of(rows) if name == "a.jsonl" else json.dumps(rows).encode()
    source = opened(written(tmp_path / name, data))

    assert "at: text, 500 distinct" in render(whole(source), 1, tokens=All).text
