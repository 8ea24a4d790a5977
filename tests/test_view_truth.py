"""Statements of views that were found false or missing: counts, shares of samples, names, values."""

from __future__ import annotations

import array
import contextlib
import datetime as dt
import fractions
import io
import json
import linecache
import re
import sqlite3
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optional_libraries import optional

from ctxkernel.core.ports import All, Budget, Source
from ctxkernel.sources import open_source
from ctxkernel.sources.base.random_samples import spread
from ctxkernel.sources.base.rendering import within_reserve
from ctxkernel.sources.files import archives
from ctxkernel.sources.outlines.column_facts import ColumnFacts
from ctxkernel.testing.renderings import opened, render, written


def read_whole(path: Path) -> Source:
    """Return the source of a file after all that the background does for it."""
    source = opened(path)
    render(source, 1)
    while (job := source.preparation()) is not None and source.accept(job.work(lambda: False, lambda _: None)):
        pass
    return source


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
    frames = import_module(library)
    rows = np.arange(6_000_000)
    frame = frames.DataFrame({"x": np.where(rows % 4 == 0, np.nan, 1.0), "even": rows % 2 == 0})
    if library == "polars":
        frame = frame.with_columns(frames.col("x").fill_nan(None))

    assert "x: Float64, ~25.0 % nulls, ~1.0 … 1.0".lower() in render(frame, 1).text.lower()
    assert "~50.0 % True, ~50.0 % False" in render(frame, 2).text


# -- frames and tensors


@pytest.mark.parametrize("kind", ["list", "struct", "map"])
def test_a_column_of_nested_arrow_values_is_told(kind: str):
    arrow, pandas = import_module("pyarrow"), import_module("pandas")
    number = arrow.int64()
    types = {"list": arrow.list_(number), "struct": arrow.struct([("a", number)]), "map": arrow.map_(number, number)}
    values = {"list": [[1], None], "struct": [{"a": 1}, None], "map": [[(1, 2)], None]}[kind]
    frame = pandas.DataFrame({"nested": pandas.array(values, dtype=pandas.ArrowDtype(types[kind]))})

    assert all("nested: " in (text := render(frame, lod).text) and "1 null" in text for lod in (1, 2))


def test_a_parameter_that_modules_share_is_counted_once():
    torch = optional("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight

    assert " · 16 parameters · 64 B" in render(model, 1).text
    assert "- 16 parameters with a gradient" in render(model, 2).text


def test_every_variable_of_a_dataset_is_named_before_details():
    xarray = import_module("xarray")
    made = xarray.Dataset(
        {f"v{at}": ("x", np.arange(50.0)) for at in range(6)}, {"x": np.arange(50.0)}, {"history": "h" * 900}
    )
    for lod in (1, 2):
        text = render(made, lod, tokens=120).text
        assert re.search(r"variables × \d: .*v5\n|\bv5 \(", text), text


def test_every_term_of_a_regression_is_named():
    models = import_module("statsmodels.api")
    chance = np.random.default_rng(1)
    found = models.OLS(chance.normal(size=90), models.add_constant(chance.normal(size=(90, 30)))).fit()

    assert "terms × 31: const, x1–x30" in render(found, 1, tokens=300).text


# -- texts and code


SETTINGS = "".join(f"section{at}:\n  key: {at}\n  other:\n    deep: {at}\n" for at in range(90))


@pytest.mark.parametrize("tokens", [300, 800, 1_500])
@pytest.mark.parametrize("pos", ["end", "-12", "/section86/"])
def test_a_structure_near_the_end_counts_what_is_before_it_and_uses_its_budget(tmp_path: Path, tokens: int, pos: str):
    rendered = render(written(tmp_path / "a.yaml", SETTINGS), 1, pos, tokens)

    body = rendered.text.partition("\n--- from line")[0]
    before = re.search(r"^\[… (\d+) keys, (\d+) nested keys before\]$", body, re.MULTILINE)
    assert before is not None
    assert int(before[1]) + len(re.findall(r"^\d+ section", body, re.MULTILINE)) == 90
    assert int(before[2]) + len(re.findall(r"^\d+ +(?:key|other|deep)", body, re.MULTILINE)) == 270
    assert "more" not in body
    assert rendered.tokens >= 0.9 * within_reserve(tokens)


CODE = [
    ("a.c", "struct s { int a; char *b; };\nenum e { A, B };\n", ["(2 fields: a, b)", "(2 members: A, B)"]),
    ("a.go", "package p\ntype S struct { A int }\nfunc (s *S) M() {}\nfunc (t T) M() {}\n", ["(named 1×; 1 field: A)"]),
    ("a.rs", "pub struct S { pub b: String }\nenum E { A, B(i32) }\n", ["pub S.b: String", "(2 members: A, B)"]),
    ("a.jl", "module M\nfunction f(x)\nend\nstruct S\n a\nend\nend\n", ["function M.f(x)", "(2 members: f, S)"]),
    ("a.rb", "class A\n  def m(a) end\n  def self.s; end\nend\n", ["def A.m(a)", "def A.s", "(2 methods: m, s)"]),
    ("a.ts", "interface I { b?: number; m(): void }\nclass C { readonly y: string; static s() {} }\n",
     ["(1 field: b; 1 method: m)", "readonly C.y: string", "static C.s()"]),
    ("a.py", "class C(enum.Enum):\n    RED = 1\nclass D:\n    a: int\n    b = 3\n    def f(self): ...\n",
     ["(1 member: RED)", "(2 fields: a, b; 1 method: f)"]),
    ("b.py", "if 1:\n    def x(): ...\nelse:\n    def x(): ...\n", ["- 1: def x()\n- 3: def x()"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "code", "told"), CODE, ids=[row[0] for row in CODE])
def test_members_and_names_of_code_are_told_as_what_they_are(tmp_path: Path, name: str, code: str, told: list[str]):
    text = render(written(tmp_path / name, code), 2).text

    for one in told:
        assert one in text


DEFINITIONS = [
    ("a.R", "f <- function(x, y = 1) {\n  x\n}\ng = function() 1\n", ["0 f <- function(x, y = 1)", "3 g = "]),
    ("a.sh", "f() {\n  echo\n}\nfunction g {\n  f\n}\n", ["0 f()", "3 function g"]),
    ("a.sql", "select 1;\nCREATE TABLE t (id INT);\ncreate view v as select 1;\n", ["1 CREATE TABLE t", "2 create"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "code", "told"), DEFINITIONS, ids=[row[0] for row in DEFINITIONS])
def test_definitions_of_languages_without_a_grammar_are_found(tmp_path: Path, name: str, code: str, told: list[str]):
    text = render(written(tmp_path / name, code), 1).text

    for one in told:
        assert f"\n{one}" in text


def test_metadata_before_a_text_is_no_heading(tmp_path: Path):
    file = written(tmp_path / "a.md", "---\ntitle: x\ndate: 2023\n---\n\n# First\n\ntext\n\nSecond\n---\n\nmore\n")

    assert render(file, 1).text.startswith("a.md · 13 lines · 61 B\n5 # First — text\n9   Second — more\n")


# -- logs


def test_levels_of_a_log_are_all_of_its_entries(tmp_path: Path):
    words = ["INFO", "CRIT", "SEVERE", "no level", "[crit]", "Error:"]
    lines = [f"2023-01-02 03:{at // 60:02}:{at % 60:02} {words[at % 6]} thing {at}" for at in range(240)]
    text = render(written(tmp_path / "a.log", "\n".join(lines)), 1).text

    assert "levels: CRITICAL 80 · ERROR 80 · INFO 40 · none 40\n" in text


def test_syslog_with_priorities_is_a_log(tmp_path: Path):
    lines = [f"<{at % 190}>1 2023-10-11T22:00:{at:02}.003Z host app {at} - - message {at}" for at in range(60)]
    text = render(written(tmp_path / "syslog", "\n".join(lines)), 1).text

    assert "log, 60 entries, 2023-10-11T22:00:00.003Z … 2023-10-11T22:00:59.003Z" in text


# -- JSON


def test_more_keys_than_were_read_are_a_lower_bound(tmp_path: Path):
    keys = {f"user_{at:05}": {"n": at} for at in range(40_000)}
    text = render(written(tmp_path / "a.json", json.dumps(keys)), 1, tokens=300).text

    assert (least := re.search(r"\nobject, ([\d,]+)\+ keys\n", text))
    assert 5_000 < int(least[1].replace(",", "")) <= 40_000
    assert re.search(r"[\d,]+\+ more keys, ", text)


@pytest.mark.parametrize("tokens", [100, 400, 3_000, All])
def test_points_of_an_object_with_many_keys_are_all_of_them(tmp_path: Path, tokens: Budget):
    text = render(written(tmp_path / "a.json", json.dumps({f"k{at}x": at for at in range(858)})), 2, tokens=tokens).text

    shown = len(re.findall(r"^- k\d+x", text, re.MULTILINE)) + ("- object, " in text)
    begun = bool(re.search(r"^- k?\d*…$", text, re.MULTILINE))
    told = re.search(r"([\d,]+) more points", text)
    assert told
    assert shown + begun + int(told[1].replace(",", "")) == 859


def test_json_lines_in_a_file_of_json_are_records(tmp_path: Path):
    lines = "".join(json.dumps({"id": at}) + "\n" for at in range(50))
    text = render(written(tmp_path / "a.json", lines), 1).text

    assert "50 lines of JSON\nid: int, 0 … 49\n" in text
    assert "not valid JSON" in render(written(tmp_path / "b.json", '{"a": 1,\n'), 1).text


def test_a_line_that_is_no_json_is_not_called_so(tmp_path: Path):
    lines = "".join('{"id": 1}\n' if at % 10 else "oops\n" for at in range(50))

    assert "\n50 lines, 5 no JSON (line 0, 10, 20, …)\n" in render(written(tmp_path / "a.jsonl", lines), 1).text


# -- classes and containers


CELL = """import dataclasses, enum, typing
@dataclasses.dataclass
class Point:
    x: int = 1
    y: str = "a"

class Color(enum.Enum):
    RED = 1

class Pair(typing.NamedTuple):
    first: int

class Plain:
    pass
"""


def run_cell(name: str, code: str, made: dict[str, Any]) -> None:
    """Run code as a cell of a notebook."""
    linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
    exec(compile(code, name, "exec"), made)


def test_classes_of_a_cell_without_methods_are_their_source():
    made: dict[str, Any] = {"__name__": "__main__"}
    run_cell("<cell 1>", CELL, made)
    point = made["Point"]
    run_cell("<cell 2>", CELL.replace("x: int = 1", "x: int = 2").replace('"a"', '"b"'), made)

    assert '    x: int = 1\n    y: str = "a"' in render(point).text
    assert '    x: int = 2\n    y: str = "b"' in render(made["Point"]).text
    assert "0 class Color(enum.Enum)\n1   RED = 1" in render(made["Color"], 1).text
    assert "0 class Pair(typing.NamedTuple)\n1   first: int" in render(made["Pair"], 1).text
    assert "class Plain:\n    pass" in render(made["Plain"]).text


class Answering(type):
    """A metaclass with code of the user's."""

    def __getattr__(cls, name: str) -> Any:
        raise AssertionError(name)


class Answered(metaclass=Answering):
    """A class that is not asked."""

    number = 1


def test_a_class_whose_metaclass_answers_is_found_in_its_file_and_not_asked():
    text = render(open_source(Answered), 1).text

    assert "class Answered(metaclass=Answering) — A class that is not asked." in text
    assert "number = 1" in text


def test_a_class_without_source_has_its_own_documentation():
    made = type("Made", (), {"__doc__": "Its own.", "value": 1})

    assert '"""Its own."""\n.value: int = 1' in render(made, 1).text


@pytest.mark.parametrize(
    "target",
    [array.array("d", range(300)), {f"k{at}": at for at in range(300)}.keys(), dict.fromkeys(range(300), 1.5).items()],
    ids=["array", "keys", "items"],
)
def test_arrays_and_views_of_dicts_show_their_items(target: Any):
    assert "· 300 items" in render(target, 1).text
    assert len(render(target, 0, tokens=All).text.split("\n")) == 301


def test_a_table_of_arrow_is_told_as_a_table():
    arrow = import_module("pyarrow")
    times = arrow.array([dt.date(2020, 1, 1), None, dt.date(2021, 1, 1)] * 100).cast(arrow.timestamp("us"))
    table = arrow.table(
        {
            "number": [1, None, 3] * 100,
            "real": [1.5, float("nan"), 2.5] * 100,
            "word": ["x", "y", "x"] * 100,
            "time": times,
            "span": arrow.array([1, 2, 3] * 100, arrow.duration("s")),
            "nested": [[1], None, []] * 100,
        }
    )
    first, second = render(table, 1).text, render(table, 2).text

    assert first.startswith("Table (Arrow) · 300 rows × 6 columns")
    assert "\nnumber: int64, 100 nulls, 1 … 3\nreal: double, 100 NaN, 1.5 … 2.5\n" in first
    assert "\ntime: timestamp[us], 100 nulls, 2020-01-01 … 2021-01-01\nspan: duration[s], 1 … 3\n" in first
    assert "\nword: string, 2 distinct, most often 'x' ×200, 'y' ×100\n" in second
    assert "\nreal: double, 100 NaN, 1.5, 1.5, 2, 2.5, 2.5, 2, 0.50" in second
    assert render(table, 0, "299").text.split("\n")[2].split() == ["299", "3", "2.5", "x", "2021-01-01", "3", "[]"]
    assert "300 rows" in render(table["number"], 1).text
    assert "1 … 3" in render(table["number"].combine_chunks(), 1).text


@pytest.mark.parametrize("lod", [0, 1, 2, 3])
@pytest.mark.parametrize("tokens", [40, 200, 3_000])
def test_a_wide_table_of_arrow_keeps_its_budget_and_counts_its_columns(lod: int, tokens: int):
    arrow = import_module("pyarrow")
    text = render(arrow.table({f"c{at}x": [at] for at in range(400)}), lod, tokens=tokens).text

    assert "400 columns" in text or tokens == 40


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_table_of_few_rows_is_told_exactly_however_wide_it_is(library: str):
    made, values, names = import_module(library), np.arange(60.0), [f"c{at}" for at in range(50_000)]
    if library == "pyarrow":
        table = made.Table.from_arrays([made.array(values)] * len(names), names)
    else:
        table = made.DataFrame(dict.fromkeys(names, values))

    text = render(table, 1, tokens=400).text

    assert "60 rows × 50,000 columns" in text
    assert "sampled" not in text
    assert "~" not in text.partition("[")[0]


# -- tables as files


def test_quartiles_of_a_long_column_do_not_follow_what_repeats():
    facts = ColumnFacts()
    for _ in range(50):
        facts.take(["0", "100"] * 1_000)

    assert "25% ~0, 50% " in facts.column("x").statistics
    assert "75% ~100, max 100, mean 50" in facts.column("x").statistics


def test_nulls_and_values_of_a_sample_of_a_table_are_shares(tmp_path: Path):
    rows = "".join(f"{at},{'' if at % 10 else 'x'}\n" for at in range(200_000))
    text = render(written(tmp_path / "a.csv", "id,rare\n" + rows), 1).text

    assert re.search(r"^rare: text, ~90\.\d % nulls, ~1 distinct \('x' ~100 %\)$", text, re.MULTILINE)


def test_a_line_break_in_a_cell_is_a_space_in_the_first_rows_of_a_large_table(tmp_path: Path):
    rows = "".join(f'{at},"two\nlines"\n' for at in range(30_000))
    file = written(tmp_path / "a.csv", "id,text\n" + rows)

    assert "\n0,two lines\n" in render(file, 1).text
    assert "\n0,two lines\n" in render(read_whole(file), 1).text


@pytest.mark.parametrize("name", ["a.yaml", "a.ini"])
def test_all_keys_of_a_long_settings_file_are_counted(tmp_path: Path, name: str):
    sign = ":" if name == "a.yaml" else " ="
    file = written(tmp_path / name, "".join(f"key{at}{sign} {at}\n" for at in range(8_000)))

    source = read_whole(file)

    assert "6,000 more keys, " in render(source, 1, tokens=300).text
    assert "\n7999 key7999" in render(source, 1, tokens=All).text


def test_the_range_of_an_array_of_times_is_told():
    times = np.array(["2020-01-01", "NaT", "2020-12-31"], dtype="M8[D]")

    assert "\n- 1 NaT of 3\n- min 2020-01-01\n- max 2020-12-31" in render(times, 2).text
    assert "\n40 NaT of 120, min 2020-01-01, max 2020-12-31\n" in render(np.tile(times, 40), 1).text


def test_a_zero_in_a_parquet_file_is_no_negative_zero(tmp_path: Path):
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    parquet.write_table(arrow.table({"x": [0.0, 1.5]}), tmp_path / "a.parquet")

    assert "x: double, 0.0 … 1.5" in render(tmp_path / "a.parquet", 1).text


def test_rows_without_a_group_and_groups_without_rows_are_counted():
    pandas = import_module("pandas")
    frame = pandas.DataFrame({"key": ["a", None, "b", "a"], "x": range(4)})
    kinds = pandas.Categorical(["a"] * 4, categories=["a", "b", "c"])

    every, there = (render(frame.groupby(kinds, observed=observed), 1).text for observed in (False, True))

    assert "groups: 2, of 1 … 2 rows, median 1.5, 1 row in none\n" in render(frame.groupby("key"), 1).text
    assert "groups: 3, 2 without rows, the others of 4 rows each\n" in every
    assert "groups: 1, of 4 rows each\n" in there


# -- archives and databases


@pytest.mark.parametrize("tokens", [60, 200, 800, All])
@pytest.mark.parametrize("name", ["a.zip", "a.tar"])
def test_an_archive_is_its_members(tmp_path: Path, name: str, tokens: Budget):
    path = tmp_path / name
    if name == "a.zip":
        with zipfile.ZipFile(path, "w") as archive:
            for at in range(80):
                archive.writestr(f"d{at}/f.txt", "x" * at)
    else:
        with tarfile.open(path, "w") as archive:
            for at in range(80):
                member = tarfile.TarInfo(f"d{at}/f.txt")
                member.size = at
                archive.addfile(member, io.BytesIO(b"x" * at))
    text = render(path, 1, tokens=tokens).text

    assert "archive · 80 members, 3" in text
    listed = map(int, re.findall(r"^(?:entries|in d\d+/) × (\d+)", text, re.MULTILINE))
    more = map(int, re.findall(r"(\d+) more entries", text))
    shown = re.findall(r"^d\d+/$|^  f\.txt · ", text, re.MULTILINE)
    assert len(shown) + sum(listed) + sum(more) == 160
    last = render(path, 0, "159").text
    assert " · from d9/f.txt\n[… 159 entries before]\n  f.txt · 9 B" in last
    assert render(path, 0, "d9/f.txt").text == last


def test_a_member_of_an_archive_may_have_any_name(tmp_path: Path):
    names = ["../up.txt", "/root.txt", "a//b", "x" * 5_000, "/".join("d" * 3_000), "new\nline\x1b[31m", "", "dir/", "a"]
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in names * 2:
            archive.addfile(tarfile.TarInfo(name))

    text = render(path, 1).text

    assert "archive · 18 members" in text
    assert "\x1b" not in text
    assert len(text) < 5_000


def test_a_database_is_its_tables(tmp_path: Path):
    path = tmp_path / "a.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
        database.execute("CREATE TABLE many (x)")
        database.execute("CREATE VIEW seen AS SELECT name FROM people")
        database.executemany("INSERT INTO people (name) VALUES (?)", [("a",), ("b",)])
        database.executemany("INSERT INTO many VALUES (?)", [(at,) for at in range(10_001)])
        database.commit()
    before = sorted(path.parent.iterdir()), path.stat().st_mtime_ns
    text = render(path, 1).text

    assert text.startswith("a.sqlite · SQLite · 2 tables, 1 view · ")
    assert text.endswith("many (10,000+ rows): x\npeople (2 rows): id INTEGER, name TEXT\nseen (view)")
    assert before == (sorted(path.parent.iterdir()), path.stat().st_mtime_ns)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.db"])
@pytest.mark.parametrize("data", [b"", b"text\n", b"PK\3\4" + b"\0" * 99, b"SQLite format 3\0" + b"\xff" * 200])
def test_what_is_no_archive_is_shown_as_it_is(tmp_path: Path, name: str, data: bytes):
    for lod in range(4):
        assert f"{name} · " in render(written(tmp_path / name, data), lod).text


def test_a_tar_file_of_which_not_all_members_were_read_tells_a_lower_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Folders among those that were read are no members that are listed."""
    monkeypatch.setattr(archives, "_MOST", 3)
    path = tmp_path / "all.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("one/", "one/a", "two/", "two/b", "two/c"):
            made = tarfile.TarInfo(name)
            made.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            archive.addfile(made)

    text = render(path, 1).text

    assert "2+ members" in text
    assert "two/c" not in text


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_special_characters_of_frequent_values_are_escaped_once(library: str):
    frame: Any = import_module(library).DataFrame({"s": ["a\nb", "a\nb", "it's"]})
    for lod in (1, 2):
        assert r"\\n" not in render(open_source(frame), lod).text
    assert r"'a\nb' ×2" in render(open_source(frame), 2).text
