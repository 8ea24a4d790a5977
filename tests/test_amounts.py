"""The law of amounts: shown + "more" = total, for every source, level, budget and position, by an independent count."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.ports import All
from ctxkernel.sources import FactsSource
from ctxkernel.sources.base.amounts import Amounts, Line, bounded, indented, more_lines
from ctxkernel.testing.renderings import opened, render, written

AMOUNT = re.compile(r"([\d,]+)(\+?) more ([a-z]+(?: [a-z]+)*)")
MARK = re.compile(r"^ *\[… (.*)\]$", re.MULTILINE)
CUT = re.compile(r"^\[… |…$", re.MULTILINE)


@dataclass
class Counted:
    """Items of a target: how the text shows one of them, and how many there are; `before` are not shown for `pos`."""

    what: str
    shown: str
    total: int
    before: int = 0
    named: str = r"(?!in )\S+"
    """The kinds of things in lists of names that are of these: `float64 × 3: a, b, c`."""


Case = tuple[Any, Callable[[int, int], list[Counted]]]


def lines_of(total: int, pos: int, shown: str) -> list[Counted]:
    return [Counted("lines", shown, total, min(pos, max(total - 1, 0)))]


def a_text(n: int, folder: Path) -> Case:
    text = "".join(f"row{at} of a text\n" for at in range(n))
    return written(folder / "a.dat", text), lambda lod, pos: lines_of(n, pos, r"^row\d+ ") if lod == 0 else []


def a_long_text(n: int, folder: Path) -> Case:
    many = 200_000 + n
    text = "".join(f"row{at:07d} of a text, it is long\n" for at in range(many))
    return written(folder / "b.dat", text), lambda lod, pos: lines_of(many, pos, r"^row\d+ ") if lod == 0 else []


def a_module(n: int, folder: Path) -> Case:
    text = "".join(
        f"def f{at}():\n    '''Return it.'''\n\n\nclass C{at}:\n    def m(self): ...\n\n\n" for at in range(n)
    )
    outer = [
        Counted("symbols", r"^\d+ (?:def|class) ", 2 * n),
        Counted("nested symbols", r"^\d+   def ", n, 0, r"in C\d+"),
    ]
    points = [Counted("points", r"^- \d+: ", 3 * n)]
    return written(folder / "m.py", text), lambda lod, pos: outer if lod == 1 else points if lod == 2 else []


def a_map_of_code(n: int, folder: Path) -> Case:
    for at in range(0, n, 20):
        some = range(at, min(at + 20, n))
        written(folder / f"f{at}.py", "".join(f"class S{one}:\n    def m{one}(self): ...\n\n\n" for one in some))
    files = -(-n // 20)
    symbols = [Counted("symbols", r"\bS\d+\b", n), Counted("nested symbols", r"^  m\d+\(", n)]
    points = [Counted("points", r"^- ", files + 1 + min(files, 5) + min(files, 3))]
    return folder, lambda lod, pos: symbols if n and (lod, pos) == (1, 0) else points if n and lod == 2 else []


def headings(n: int, folder: Path) -> Case:
    text = "".join(f"# Part {at}\n\nIt is so.\n\n" for at in range(n))
    return (
        written(folder / "m.md", text),
        lambda lod, pos: (
            [Counted("headings", r"^\d+ # Part", n)]
            if lod == 1
            else [Counted("points", r"^- \d+: ", n)]
            if lod == 2
            else []
        ),
    )


def a_log(n: int, folder: Path) -> Case:
    kinds = [chr(97 + at // 26) + chr(97 + at % 26) for at in range(min(n, 600))]
    text = "".join(f"2026-01-01 10:00:00 ERROR about {kind}\n" * 3 for kind in kinds)
    return (
        written(folder / "a.log", text),
        lambda lod, pos: (
            [Counted("kinds of entries", r"^\d+ 2026.*ERROR", len(kinds))]
            if lod == 1
            else [Counted("points", r"^- \d+: ", len(kinds))]
            if lod == 2
            else []
        ),
    )


def a_csv(n: int, folder: Path) -> Case:
    names = [f"column{at}" for at in range(max(n, 2))]
    text = "\n".join([",".join(names), *(",".join(str(at) for at in range(len(names))) for _ in range(4))])
    columns = Counted("columns", r"^column\d+: ", len(names)), Counted("points", r"^- column\d+: ", len(names))
    return written(folder / "a.csv", text), lambda lod, pos: [columns[lod - 1]] if lod in (1, 2) else []


def fields(n: int, folder: Path) -> Case:
    n = min(max(n, 1), 200)
    text = json.dumps({f"field{at}": at for at in range(n)}) + "\n"
    return written(
        folder / "a.jsonl", text * 3
    ), lambda lod, pos: [Counted("fields", r"^field\d+: ", n)] if lod == 1 else []


def keys(n: int, folder: Path) -> Case:
    text = json.dumps({f"key{at}": at for at in range(n)})
    return (
        written(folder / "a.json", text),
        lambda lod, pos: [Counted("keys", r"^  key\d+: ", n)] if lod == 1 else [],
    )


def a_folder(n: int, folder: Path) -> Case:
    place = folder / "some"
    place.mkdir(exist_ok=True)
    for at in range(n):
        written(place / f"file{at:04d}.txt", "x")
    return (
        place,
        lambda lod, pos: (
            [Counted("entries", r"^file\d+\.txt", n, min(pos, max(n - 1, 0)))]
            if lod < 2 and n
            else [Counted("points", r"^- ", n + 1 + min(n, 5) + min(n, 3))]
            if n
            else []
        ),
    )


def a_pattern(n: int, folder: Path) -> Case:
    a_folder(max(n, 1), folder)
    return str(
        folder / "some" / "file*.txt"
    ), lambda lod, pos: [Counted("matches", r"^file\d+\.txt", max(n, 1), min(pos, max(n, 1) - 1))] if lod < 2 else []


def a_notebook(n: int, folder: Path) -> Case:
    n = min(max(n, 1), 120)
    cells = [{"cell_type": "code", "source": f"a{at} = 1", "outputs": [], "execution_count": at} for at in range(n)]
    place = written(folder / "a.ipynb", json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}))
    return (
        place,
        lambda lod, pos: (
            [Counted("lines", r"^\[\d+\] code|^a\d+ = 1$", 2 * n, 2 * min(pos, n - 1))] if lod == 0 and pos < n else []
        ),
    )


def a_dict(n: int, folder: Path) -> Case:
    return (
        {f"k{at}": at for at in range(n)},
        lambda lod, pos: (
            lines_of(n, pos, r"^'k\d+': ") if lod == 0 else [Counted("items", r"^\['k\d+'\]: ", n)] if lod == 1 else []
        ),
    )


def a_huge_dict(n: int, folder: Path) -> Case:
    return a_dict(n + 12_000, folder)


def a_list(n: int, folder: Path) -> Case:
    return (
        list(range(n)),
        lambda lod, pos: (
            lines_of(n, pos, r"^\d+: ") if lod == 0 else [Counted("items", r"^\[\d+\]: ", n)] if lod == 1 else []
        ),
    )


def an_object(n: int, folder: Path) -> Case:
    made = make_dataclass("Made", [(f"f{at}", int, at) for at in range(max(n, 1))])()
    return (
        made,
        lambda lod, pos: (
            lines_of(max(n, 1), pos, r"^\.f\d+ = ")
            if lod == 0
            else [Counted("attributes", r"^\.f\d+: ", max(n, 1))]
            if lod == 1
            else []
        ),
    )


def a_frame(n: int, folder: Path) -> Case:
    return pd.DataFrame(
        {f"c{at}": [1.5, 2.5] for at in range(max(n, 1))}
    ), lambda lod, pos: [Counted("columns", r"^c\d+: ", max(n, 1))] if lod else []


def rows(n: int, folder: Path) -> Case:
    return (
        pd.DataFrame({"only": np.arange(float(max(n, 1)))}),
        lambda lod, pos: (
            [Counted("rows", r"^\d+ +\d+\.0", max(n, 1), pos if pos < max(n, 1) else max(0, max(n, 1) - 10))]
            if lod == 0
            else []
        ),
    )


def a_polars_frame(n: int, folder: Path) -> Case:
    return pl.DataFrame(
        {f"c{at}": [1.5, 2.5] for at in range(max(n, 1))}
    ), lambda lod, pos: [Counted("columns", r"^c\d+: ", max(n, 1))] if lod else []


def an_array(n: int, folder: Path) -> Case:
    n = max(n, 1)
    return (
        np.arange(3 * n).reshape(n, 3),
        lambda lod, pos: (
            [Counted("rows", r"^\[\d+\] ", n, 0 if lod else pos if pos < n else max(0, n - 10))] if lod < 2 else []
        ),
    )


def a_parquet(n: int, folder: Path) -> Case:
    n = max(n, 1)
    pd.DataFrame({f"c{at}": [1.5] for at in range(n)}).to_parquet(folder / "a.parquet")
    return folder / "a.parquet", lambda lod, pos: [Counted("columns", r"^c\d+: |^- c\d+: ", n)] if lod in (1, 2) else []


class Sensor(FactsSource):
    kind = "sensor"

    def value(self) -> list[str]:
        return [f"value{at}" for at in range(self.target)]

    def structure(self) -> list[str]:
        return [f"part{at}" for at in range(self.target)]

    def summary(self) -> list[str]:
        return [f"- point{at}" for at in range(self.target)]


def facts(n: int, folder: Path) -> Case:
    many = n * 10
    return Sensor(
        many, "sensor"
    ), lambda lod, pos: [Counted("lines", r"^part\d+$|^- point\d+$", many)] if lod and many else []


def variables(n: int, folder: Path) -> Case:
    xarray = import_module("xarray")
    made = xarray.Dataset({f"v{at}": ("x", [1.0, 2.0]) for at in range(n)}, attrs={f"a{at}": at for at in range(n)})
    shown = [
        Counted("variables", r"^  v\d+ \(", n, named="variables"),
        Counted("attributes", r"^  a\d+ = ", n, named="attributes"),
    ]
    return made, lambda lod, pos: shown if lod == 1 else []


def artists(n: int, folder: Path) -> Case:
    figure = import_module("matplotlib.figure").Figure()
    axes = figure.subplots()
    for _ in range(n):
        axes.plot([1, 2])
    # Of 200 each has a line, and lines are counted as lines.
    return axes, lambda lod, pos: [Counted("artists", "no such", n - 200)] if lod == 0 else []


def records(n: int, folder: Path) -> Case:
    n = max(n, 2)
    return (
        [{"only": at, "half": at / 2} for at in range(n)],
        lambda lod, pos: [Counted("rows", r"^ *\d+ +\d+ ", n, pos if pos < n else max(0, n - 10))] if lod == 0 else [],
    )


def wide_records(n: int, folder: Path) -> Case:
    n = max(n, 1)
    return [
        dict.fromkeys((f"c{at}" for at in range(n)), 1)
    ] * 2, lambda lod, pos: [Counted("columns", r"^c\d+: ", n)] if lod and n <= 300 else []


def nested(n: int, folder: Path) -> Case:
    n = max(n, 1)
    target = {f"k{at}": {"x": at, "y": [1]} for at in range(n)} | {"other": 1}
    return (
        target,
        lambda lod, pos: (
            lines_of(n + 1, pos, r"^'(?:k\d+|other)': ")
            if lod == 0
            else [Counted("fields", r"^ *(?:k\d+|other|x|y): |^- [\w.]+: ", (3 if lod == 1 else 2) * n + 1)]
            if n < 160
            else []
        ),
    )


def groups(n: int, folder: Path) -> Case:
    n = max(n, 1)
    target = pd.DataFrame({f"c{at}": [1, 2] for at in range(n)}).assign(k=[1, 2]).groupby("k")
    return target, lambda lod, pos: [Counted("columns", "no such", max(n - 60, 0))] if lod and n > 60 else []


CASES = [
    *(
        a_text,
        a_module,
        a_map_of_code,
        headings,
        a_log,
        a_csv,
        fields,
        keys,
        a_folder,
        a_pattern,
        a_notebook,
        a_dict,
        a_huge_dict,
    ),
    *(a_list, an_object, a_frame, rows, a_polars_frame, an_array, a_parquet, facts),
    *(records, wide_records, nested, groups),
]


SINGULAR = {"entry": "entries", "match": "matches", "kind of entries": "kinds of entries"}


LIST = re.compile(r"^(.+) × ([\d,]+): (.*)$", re.MULTILINE)
RANGE = re.compile(r"(.*?)(\d+)–(.*?)(\d+)")


def listed_in(text: str, kind: str) -> int:
    """Return how many names stand in the lists of names of a kind; each list says so itself."""
    total = 0
    for found, count, names in LIST.findall(text):
        if re.fullmatch(kind, found):
            ranges = [RANGE.fullmatch(name) for name in names.split(", ")]
            assert all(one is None or one[1] == one[3] for one in ranges), text
            counted = sum(1 if one is None else int(one[4]) - int(one[2]) + 1 for one in ranges)
            assert counted == int(count.replace(",", "")), text
            total += counted
    return total


def amounts_in(text: str) -> dict[str, tuple[int, bool]]:
    """Return by name how many more a text says there are, and whether that is a lower bound."""
    told: dict[str, tuple[int, bool]] = {}
    for mark in MARK.findall(text):
        for count, plus, what in AMOUNT.findall(mark):
            name = SINGULAR.get(what, what if what.endswith("s") else f"{what}s")
            before, is_bound = told.get(name, (0, False))  # of equal members, each has a mark of its own
            told[name] = before + int(count.replace(",", "")), is_bound or plus == "+"
    return told


def assert_counts_add_up(text: str, counted: list[Counted]) -> None:
    """Assert that shown + more = total for each kind of items that a mark counts, and that nothing is cut silently."""
    body = text.partition("\n--- from line ")[0]
    told = amounts_in(body)
    for one in counted:
        shown = len(re.findall(one.shown, body, re.MULTILINE))
        shown += listed_in(body, one.named) if one.shown != "no such" else 0
        part = re.search(r"\n([^\n]*…)\n\[… [^\n]*\]$", body)  # of the first item
        shown += bool(part and one.shown != "no such" and not re.match(one.shown, part[1]))
        passed = re.search(rf"^\[… (?:.*, )?([\d,]+) {one.what[:-1]}s?(?:, .*)? before\]$", body, re.MULTILINE)
        shown += int(passed[1].replace(",", "")) if passed else 0
        left = one.total - one.before - shown
        if one.what in told:
            more, open_end = told[one.what]
            # Where only the mark has room, and the title or a part of it, what is before the position is not told.
            no_room = re.fullmatch(r"([^\n]*\n)?\[… [^\n]*\]", body)
            assert more <= left if open_end or no_room else more == left, (one, shown, text)
        else:
            assert left == 0 or CUT.search(body) or "…" in body, (one, shown, text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@settings(max_examples=examples(80), deadline=None)
@given(
    n=st.one_of(st.integers(0, 12), st.integers(13, 420)),
    lod=st.integers(0, 2),
    tokens=st.one_of(st.integers(24, 400), st.integers(401, 4000), st.just(All)),
    pos=st.one_of(st.just(0), st.integers(0, 450)),
)
def test_what_is_shown_and_what_is_said_to_be_more_are_all_there_is(tmp_path_factory, case, n, lod, tokens, pos):
    target, counted = case(n, tmp_path_factory.mktemp("t"))

    text = render(target, lod, str(pos), tokens).text

    assert_counts_add_up(text, counted(lod, pos))


@pytest.mark.parametrize("case", [variables, artists], ids=lambda case: case.__name__)
@pytest.mark.parametrize("tokens", [60, 300, 3_000, All])
def test_the_same_holds_for_what_libraries_make(tmp_path, case, tokens):
    target, counted = case(230, tmp_path)
    for lod in (0, 1, 2):
        assert_counts_add_up(render(target, lod, tokens=tokens).text, counted(lod, 0))


def test_the_same_holds_for_a_text_that_is_read_in_windows(tmp_path):
    target, counted = a_long_text(5, tmp_path)
    source = opened(target)
    for pos in (0, 100, 199_990):
        for tokens in (60, 500, 5_000):
            assert_counts_add_up(render(source, 0, str(pos), tokens).text, counted(0, pos))


@pytest.mark.parametrize(
    ("target", "mark"),
    [
        (list(range(7_000)), '[… 5,000 more lines, ~N tokens; h.pos = "2000" goes on]'),
        (np.arange(9_000.0), '[… 7,000 more rows, ~N tokens; h.pos = "2000" goes on]'),
    ],
    ids=["list", "array"],
)
def test_what_no_budget_shows_at_once_is_not_said_to_need_a_larger_one(target, mark):
    text = render(target, tokens=All).text

    assert re.sub(r"~[\d,]+ tokens", "~N tokens", text.rpartition("\n")[2]) == mark


def test_a_dict_of_a_thousand_items_says_how_many_are_left():
    text = render({f"k{at} of it": at for at in range(1000)}, 1, tokens=100).text
    shown = text.count("['k") + listed_in(text, "int")

    assert shown < 50
    assert f"[… {1000 - shown} more items, details of {shown} items, " in text


def test_all_of_301_columns_are_named_in_a_small_budget_and_told_when_everything_is_asked_for():
    frame = pd.DataFrame({**{f"c{at}": [1.0, 2.0] for at in range(300)}, "target": [1, 0]})
    whole = render(frame, 1, tokens=All).text
    part = render(frame, 1, tokens=400).text
    lines = len(re.findall(r"^(?:c[0-9]+|target): ", part, re.MULTILINE))

    assert "\ntarget: int64, 0 … 1" in whole
    assert "\ntarget: int64, 0 … 1" in part
    assert listed_in(part, "float64") == 301 - lines
    assert f"[… details of {301 - lines} columns, " in part


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_every_number_that_is_of_a_sample_carries_a_tilde(monkeypatch, kind):
    for module in ("columns", "numpy_arrays"):
        monkeypatch.setattr(f"ctxkernel.sources.tables.{module}.EXACT_CELLS", 50)
    monkeypatch.setattr("ctxkernel.sources.tables.numpy_arrays._SAMPLE_CELLS", 100)
    data = {"number": np.arange(400.0), "word": ["a", "b"] * 200}
    made = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "array": lambda data: data["number"]}
    target = made[kind](data)

    text = render(target, 2).text

    assert "sampled: " in text
    lines = [line for line in text.split("\n")[1:] if not line.startswith("[sampled")]
    facts = [fact for line in lines for fact in line.split(": ")[-1].split(", ")]
    numbers = [fact for fact in facts if re.search(r"\d", re.sub(r"^(25|50|75)%|[fF]loat64", "", fact))]
    assert numbers
    assert [fact for fact in numbers if "~" not in fact] == []


@given(
    parts=st.lists(st.one_of(st.just("x"), st.integers(0, 5)), max_size=12),
    k=st.integers(0, 12),
    hidden=st.integers(0, 3),
)
def test_an_amount_is_the_sum_of_what_each_line_stands_for(parts: list[str | int], k: int, hidden: int):
    lines = [Line("…", part, "rows") if isinstance(part, int) else part for part in parts]
    k = min(k, len(lines))
    rest = parts[k:]
    expected = [rest.count("x"), sum(part for part in rest if part != "x") + hidden]

    told = Amounts(lines, "items", [Line("", hidden, "rows")] if hidden else ()).after(k)

    assert [int(found) for found in re.findall(r"\d+", told)] == [count for count in expected if count]


def test_a_line_that_stands_for_many_keeps_doing_so_when_it_is_indented_or_bounded():
    more = more_lines(7, "artists")

    assert Amounts(indented(more), "lines").after(0) == "7 more artists"
    assert bounded(["a", "b", *more], 1)[-1] == "[… 1 more line, 7 more artists]"
    assert more_lines(0, "artists") == []
    assert more_lines(3, "rows", exact=False) == ["[… 3+ more rows]"]
