"""Tables, arrays, code and any other Python object as sources; and the registry of sources."""

from __future__ import annotations

import dataclasses
import enum
import io
import linecache
import math
import os
import re
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.descriptions import brief
from ctxkernel.core.errors import BadTarget
from ctxkernel.core.ports import All, Rendered, RenderRequest
from ctxkernel.sources import BaseSource, Draft, open_named, open_source, register, registry
from ctxkernel.testing.renderings import opened, render, written


def frame(rows: int = 100) -> pd.DataFrame:
    """Return a frame with a column of each common kind."""
    return pd.DataFrame(
        {
            "n": range(rows),
            "x": [i / 7 for i in range(rows)],
            "name": [f"n{i % 3}" for i in range(rows)],
            "when": pd.date_range("2024-01-01", periods=rows, freq="D"),
            "ok": [i % 2 == 0 for i in range(rows)],
        }
    )


# --- frames


def test_level_0_of_a_frame_is_its_rows_exactly():
    lines = render(opened(frame(), "df"), pos="7", tokens=400).text.split("\n")

    assert lines[0].startswith("df · DataFrame · 100 rows × 5 columns · 3.3 kB · rows 7-")
    assert lines[1].split() == ["n", "x", "name", "when", "ok"]
    assert lines[2].split() == ["7", "7", "1.0", "n1", "2024-01-08", "False"]
    assert lines[3].split()[2] == repr(8 / 7), "never rounded"


def test_every_row_of_a_frame_is_reached_by_next_pos():
    df, pos, seen = frame(50), "0", []

    while pos is not None:
        rendered = render(df, pos=pos, tokens=300)
        seen += re.findall(r"^(\d+) +\d.*[^…]$", rendered.text, re.MULTILINE)
        pos = rendered.next_pos

    assert seen == [str(i) for i in range(50)]


def test_a_wide_frame_is_shown_column_by_column():
    wide = pd.DataFrame(np.arange(2000).reshape(2, 1000), columns=[f"c{i}" for i in range(1000)])

    first = render(wide, tokens=150)
    later = render(wide, pos="0:500", tokens=150)

    assert "columns 0-" in first.text
    assert "more columns; h.pos = " in first.text
    assert "c500" in later.text.split("\n")[1]
    assert first.cut_tokens > 0


def test_level_1_of_a_frame_is_columns_types_nulls_ranges_and_head():
    df = frame()
    df.loc[3, "x"] = None

    text = render(opened(df, "df"), 1).text

    assert "\nn: int64, 0 … 99\nx: float64, 1 null, 0.0 … 14.142857142857142\n" in text
    assert "\nwhen: datetime64[us], 2024-01-01 … 2024-04-09\nok: bool, 50 True, 50 False\nfirst rows:\n" in text


def test_level_2_of_a_frame_is_what_describe_says():
    df = frame()
    expected = df["x"].describe()

    text = render(df, 2).text

    names = re.search(r"^\[numbers: (.*)\]$", text, re.MULTILINE)[1].split(", ")
    found = dict(zip(names, text.split("\nx: float64, ")[1].split("\n")[0].split(", "), strict=True))
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {name: expected[name] for name in found}, rel=1e-9
    )
    assert len(found) == 7
    assert "3 distinct, most often 'n0' ×34, 'n1' ×33, 'n2' ×33" in text
    assert "ok: bool, 50 True, 50 False" in text


def test_level_3_of_a_frame_names_columns_rows_and_cells():
    df = frame(1000)
    source = opened(df, "df")
    before = render(source)

    same = render(source, 3, basis=before.basis)
    df.loc[5, "n"] = -1
    df.loc[900, "x"] = 0.5
    changed = render(source, 3, basis=before.basis)

    assert same.text == "df · no change"
    assert changed.text.split("\n") == [
        "df · changed",
        "n: changed within rows 0-15",
        "x: changed within rows 896-911",
        "2 of 5 columns changed",
        "row 5 (5), n: 5 → -1",
    ]


def test_level_3_of_a_frame_tells_columns_that_came_and_went():
    df = frame(10)
    source = opened(df, "df")
    before = render(source)
    df["extra"] = 1
    del df["ok"]

    text = render(source, 3, basis=before.basis).text

    assert "columns removed: ok\ncolumns added: extra\n" in text


def test_a_basis_holds_no_data():
    basis = render(pd.DataFrame({"x": np.arange(1_000_000)})).basis

    assert len(basis.window.labels) <= 50
    assert all(len(column.chunks) <= 64 for column in basis.facts.columns.values())


@pytest.mark.parametrize("change", ["value", "column", "dtype", "row"])
def test_the_stamp_of_a_frame_differs_after(change: str):
    df = frame()
    source = open_source(df)
    before = {source.stamp(), source.stamp()}
    if change == "value":
        df.iloc[50, 1] = -1.0
    elif change == "column":
        df["new"] = 1
    elif change == "dtype":
        df["n"] = df["n"].astype("int32")
    else:
        df.loc[100] = df.loc[0]

    assert len(before | {source.stamp()}) == 2


def test_a_huge_frame_is_looked_at_by_samples():
    df = pd.DataFrame({f"c{i}": np.zeros(3_000_000) for i in range(8)})
    source = open_source(df)
    source.stamp()

    rendered = render(source, 2)

    assert {"sampled", "content hash of a sample"} <= set(rendered.notes)
    assert "sampled: 100 stretches of" in rendered.text.split("\n")[0]


KINDS: list[tuple[str, Any]] = [
    ("category", pd.Series(pd.Categorical(["a", "b", "a"]))),
    ("nullable", pd.Series([1, None, 3], dtype="Int64")),
    ("zone", pd.Series(pd.date_range("2024", periods=3, tz="UTC"))),
    ("delta", pd.Series(pd.to_timedelta([1, 2, 3], unit="s"))),
    ("period", pd.Series(pd.period_range("2024-01", periods=3, freq="M"))),
    ("interval", pd.Series(pd.interval_range(0, 3))),
    ("complex", pd.Series([1j, 2j, 3j])),
    ("object", pd.Series([object(), [1], None], dtype=object)),
    ("float32", pd.Series([0.1, 0.2, 0.3], dtype="float32")),
    ("multi", pd.DataFrame({"x": [1, 2]}, index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]))),
    ("twice", pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])),
    ("empty", pd.DataFrame()),
    ("no rows", pd.DataFrame({"a": []})),
]


@pytest.mark.parametrize(("name", "table"), KINDS, ids=[row[0] for row in KINDS])
def test_every_kind_of_column_renders_at_every_level(name: str, table: Any):
    source = open_source(table)
    basis = None
    for lod in (0, 1, 2, 3):
        rendered = render(source, lod, tokens=500, basis=basis)
        basis = rendered.basis

        assert "failed" not in rendered.notes
        assert "0x" not in rendered.text
    assert rendered.text.endswith("no change")


def test_a_float32_is_shown_as_short_as_it_is():
    assert render(pd.Series([0.1], dtype="float32", name="x")).text.split("\n")[-1].split() == ["0", "0.1"]


# --- arrays


def test_arrays_are_shown_by_rows_of_their_last_axis():
    cube = np.arange(24).reshape(2, 3, 4)

    lines = render(opened(cube, "cube"), pos="4").text.split("\n")

    assert lines[0] == "cube · ndarray · 2 × 3 × 4 · int64 · 192 B · rows 4-5 of 6"
    assert lines[1:] == ["[1, 1] 16 17 18 19", "[1, 2] 20 21 22 23"]


def test_level_2_of_an_array_is_exact_but_for_what_is_computed():
    text = render(np.array([[1.5, np.nan], [2.5, 4.0]]), 2).text

    assert "- 1 NaN of 4\n- min 1.5\n- 25% 2\n- 50% 2.5\n- 75% 3.25\n- max 4.0\n- mean 2.666666667" in text


def test_level_3_of_an_array_names_rows_and_elements():
    array = np.zeros((200, 3))
    source = opened(array, "a")
    before = render(source)
    array[7, 2] = 1

    lines = render(source, 3, basis=before.basis).text.split("\n")

    assert lines == [
        "a · changed",
        "values: changed within rows 0-15",
        "1 of 1 columns changed",
        "row 7 ([7]), 2: 0.0 → 1.0",
    ]


ARRAYS = [
    np.array(3.5), np.zeros((0, 3)), np.array([1 + 2j]), np.array(["a", "bc"]), np.array([b"x"]),
    np.array(["2024-01-01"], dtype="M8[D]"), np.array([(1, 2.5)], dtype=[("x", "i4"), ("y", "f8")]),
    np.array([object(), None, "x"], dtype=object), np.ma.masked_array([1, 2], [0, 1]), np.arange(12).reshape(3, 4).T,
    np.array([True, False]), np.zeros((2, 2), dtype="f2"), np.arange(10)[::3],
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=[f"{a.dtype}{a.shape}" for a in ARRAYS])
def test_every_kind_of_array_renders_at_every_level(array: np.ndarray):
    source = open_source(array)
    basis = None
    for lod in (0, 1, 2, 3):
        rendered = render(source, lod, basis=basis)
        basis = rendered.basis

        assert "failed" not in rendered.notes
    assert rendered.text.endswith("no change")


# --- any other object


@dataclasses.dataclass
class Point:
    """A point in the plane."""

    x: int
    tags: list[str]

    def norm(self) -> float:
        """Length."""
        return math.hypot(self.x, 0)


class Hostile:
    """Its code runs only if somebody asks for it."""

    calls: list[str] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.__dict__["kept"] = 1

    def _called(self, *args: object) -> Any:
        Hostile.calls.append(str(args))
        raise RuntimeError("hostile")

    __repr__ = __str__ = __len__ = __iter__ = __getattr__ = __hash__ = __eq__ = __bool__ = __format__ = _called
    danger = property(_called)
    __class__ = property(_called)  # type: ignore[assignment]


class HostileList(list):
    __repr__ = __str__ = __len__ = __iter__ = __getattr__ = __getitem__ = __eq__ = __bool__ = Hostile._called


class HostileDict(dict):
    __repr__ = __str__ = __len__ = __iter__ = __getattr__ = __getitem__ = items = keys = values = Hostile._called


class HostileAttributes:
    __getattribute__ = Hostile._called


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


class Colour(enum.Enum):
    RED = 1


LOOKED_AT: list[tuple[str, Any, str]] = [
    ("dataclass", Point(3, ["a"]), ".x = 3\n.tags = ['a']"),
    ("hostile", Hostile(), ".kept = 1"),
    ("hostile list", HostileList([1, Hostile()]), "0: 1\n1: <"),
    ("hostile dict", HostileDict(a=1), "'a': 1"),
    ("hostile attributes", HostileAttributes(), "HostileAttributes"),
    ("slots", Slotted(), ".a = 1"),
    ("enum", Colour.RED, "Colour.RED"),
    ("dict", {"a": 1, "b": {"c": [1, 2]}}, "'a': 1\n'b': {'c': [1, 2]}"),
    ("nested", [[[[[1]]]]], "0: [[[…]]]"),
    ("set", {"b", "a", "c"}, "'a'\n'b'\n'c'"),
    ("bytes", b"\0a", r"b'\x00a'"),
    ("int", 10**4000, "<int of 13,288 bits>"),
    ("none", None, "None"),
    ("path", Path, "class"),
]


@pytest.mark.parametrize(("name", "target", "shown"), LOOKED_AT, ids=[row[0] for row in LOOKED_AT])
def test_any_object_is_shown_without_running_its_code(name: str, target: Any, shown: str):
    source = open_source(target, namespace_name="it")
    Hostile.calls.clear()
    basis = None
    for lod in (1, 2, 3, 0):
        rendered = render(source, lod, basis=basis)
        basis = rendered.basis

        assert "failed" not in rendered.notes
        assert not re.search(r"0x[0-9a-f]{6}", rendered.text)
    assert shown in rendered.text
    assert Hostile.calls == []
    assert source.stamp() == source.stamp()


def test_level_1_of_an_object_is_attributes_and_methods():
    text = render(open_source(Point(3, ["a"]), namespace_name="p"), 1).text

    assert text == 'p · Point\n"""A point in the plane."""\n.x: int = 3\n.tags: list = [\'a\']\nnorm: method'


def test_a_changed_list_shows_its_difference():
    items = ["a", "b"]
    source = open_source(items, namespace_name="items")
    before = render(source)
    items.append("c")

    assert render(source, 3, basis=before.basis).text.endswith(" 0: 'a'\n 1: 'b'\n+2: 'c'")
    assert source.stamp() != before.fingerprint


def test_functions_and_classes_are_their_source():
    function = render(frame)
    outline = render(Point, 1)

    assert function.text.split("\n")[1] == "def frame(rows: int = 100) -> pd.DataFrame:"
    assert "\n1 @dataclasses.dataclass class Point — A point in the plane.\n4   x: int\n" in outline.text


def test_a_class_of_a_cell_is_its_source_too():
    ship = "@dataclasses.dataclass\nclass Ship:\n    tons: int\n\n    def sink(self):\n        pass\n"
    cell = f"import dataclasses\n\n{ship}\nx = 1\n"
    linecache.cache["<cell 7>"] = len(cell), None, cell.splitlines(keepends=True), "<cell 7>"
    made: dict[str, Any] = {"__name__": "__main__"}  # which has no file in a kernel
    exec(compile(cell, "<cell 7>", "exec"), made)

    shown = render(open_source(made["Ship"], namespace_name="Ship")).text.split("\n")

    assert shown[1] == "@dataclasses.dataclass" and shown[-1] == "        pass"


def test_a_module_is_its_file_and_a_built_in_one_its_names():
    assert '"""A dict' not in render(os, 1).text
    assert render(os, 1, tokens=All).text.startswith("module os · ")
    assert "sqrt: <built-in function math.sqrt>" in render(math, 1).text


def test_a_stringio_is_its_text_and_a_closed_one_is_no_crash():
    buffer = io.StringIO("one\ntwo\n")
    source = open_source(buffer)

    assert render(source).text.endswith("\none\ntwo")
    buffer.write("1111")
    assert render(source).text.endswith("\n1111two")
    buffer.close()
    assert render(source).notes == ("failed",)


def test_an_open_file_is_looked_at_by_its_path(tmp_path):
    with tempfile.NamedTemporaryFile("w", dir=tmp_path) as temporary:
        temporary.write("held")
        temporary.flush()
        assert render(temporary.name).text.endswith("\nheld")
        assert open_source(temporary).label == temporary.name


@settings(max_examples=examples(100))
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.binary(max_size=30),
        lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=5), inner, max_size=8),
        max_leaves=30,
    ).filter(lambda value: not isinstance(value, str)),
    lod=st.integers(0, 3),
    tokens=st.integers(1, 400),
    pos=st.integers(0, 20),
)
def test_any_value_renders_within_any_budget(value: Any, lod: int, tokens: int, pos: int):
    rendered = render(value, lod, str(pos), tokens)

    assert "failed" not in rendered.notes


@settings(max_examples=examples(60))
@given(
    rows=st.integers(0, 40), columns=st.integers(0, 12), lod=st.integers(0, 3), tokens=st.integers(1, 400),
    pos=st.builds(lambda a, b: f"{a}:{b}", st.integers(0, 50), st.integers(0, 14)), as_array=st.booleans(),
)  # fmt: skip
def test_any_table_renders_within_any_budget(rows: int, columns: int, lod: int, tokens: int, pos: str, as_array: bool):
    data = np.arange(rows * columns, dtype=float).reshape(rows, columns) / 3
    table = data if as_array else pd.DataFrame(data)

    rendered = render(table, lod, pos, tokens)

    assert "failed" not in rendered.notes
    assert rendered.cut_tokens == 0 or "…" in rendered.text


@given(st.dictionaries(st.text(max_size=3), st.lists(st.integers()), max_size=4), st.integers(1, 100))
def test_a_brief_is_one_line_of_bounded_length(value: Any, chars: int):
    text = brief(value, chars)

    assert len(text) <= chars
    assert "\n" not in text


# --- the registry


class Sensor:
    reading = 21.5


class SensorSource(BaseSource):
    kind = "sensor"

    def __init__(self, target: Sensor, label: str) -> None:
        super().__init__(label)
        self.target = target

    def stamp(self) -> str:
        return str(self.target.reading)

    def draft(self, request: RenderRequest, place: Any, budget: int) -> Draft:
        return Draft(f"{self.label}: {self.target.reading} °C " * 50)


def test_a_source_is_added_in_ten_lines_and_its_budget_is_kept_for_it(monkeypatch):
    monkeypatch.setattr(registry, "_registered", [])
    register(
        lambda target: type(target) is Sensor, lambda target, settings, name: SensorSource(target, name or "sensor")
    )

    rendered: Rendered = render(open_source(Sensor(), namespace_name="probe"), tokens=30)

    assert rendered.text.startswith("probe: 21.5 °C")
    assert rendered.cut_tokens > 0


def test_a_fault_in_a_source_is_one_line():
    class Faulty(SensorSource):
        def draft(self, request: RenderRequest, place: Any, budget: int) -> Draft:
            raise ZeroDivisionError("in the sensor")

    rendered = render(Faulty(Sensor(), "probe"))

    assert rendered.text == "probe: could not be rendered (ZeroDivisionError: in the sensor)"
    assert rendered.notes == ("failed",)


def test_a_source_is_its_own_source(tmp_path):
    source = opened(written(tmp_path / "a.txt", "x"))

    assert open_source(source) is source


@pytest.mark.parametrize(
    ("target", "label"),
    [
        pytest.param("df", "df", id="a frame"),
        pytest.param("_hidden", "DataFrame", id="a private name is not taken"),
        pytest.param("number", "int", id="a number: any name may stand for the same one"),
        pytest.param("text", "folder", id="a path is its own label"),
    ],
)
def test_an_object_is_labelled_by_the_users_name_for_it(target: str, label: str, tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    names = {"df": frame(), "_hidden": frame(), "number": 3, "text": "folder"}

    assert open_named(names[target], names).label == label


def test_a_view_says_when_its_name_went_to_another_object():
    """It holds the object, so after `df = df.dropna()` it is the frame from before that it shows."""
    names = {"df": frame()}
    source = open_named(names["df"], names)

    names["df"] = names["df"].dropna()

    assert source.label == "df (no longer this object's name)"
    assert render(source, 1).text.startswith(source.label)


def test_ranges_of_a_large_frame_are_of_a_sample_until_all_rows_were_looked_through():
    values = np.arange(6_000_000.0).reshape(-1, 6)
    values[777_777, 2] = -5
    df = pd.DataFrame(values, columns=list("abcdef"))
    df.loc[123_456, "b"] = np.nan
    source = open_source(df)
    assert source.preparation() is None
    sampled = render(source, 1).text
    job = source.preparation()
    assert job.work(lambda: True, lambda part: None).facts == ("",) * 6
    found = job.work(lambda: False, lambda part: None)
    assert render(source, 1).text == sampled
    assert source.accept(found)
    whole = render(source, 1).text
    df.iloc[0] = 0
    df.iloc[-1] = 0
    df["a"] = df["a"] * 2

    assert "\na: float64, ~0.0 … 5999" in sampled
    assert "\nc: float64, -5.0 … 5999996.0\n" in whole
    assert "\nb: float64, 1 null, 1.0 … 5999995.0\n" in whole
    assert "as they were when looked through" in whole.split("\n")[0]
    assert source.preparation() is None
    assert "~" in render(source, 1).text
    assert not source.accept(found)
    assert source.preparation() is not None


# --- what users add


PAGE = (Path(__file__).resolve().parent.parent / "docs" / "sources.md").read_text(encoding="utf-8")


def test_the_source_on_the_page_works_as_the_page_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "_registered", [])
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    source_code, use = (next(block for block in blocks if name in block) for name in ("SensorSource", "class Sensor:"))
    names: dict[str, Any] = {}
    names["view"] = lambda target: open_named(target, names)
    exec(source_code + use, names)
    view, roof = names["h"], names["roof"]
    before, stamp = render(view), view.stamp()

    assert len([line for line in source_code.splitlines() if line.strip()]) <= 10
    assert before.text == "roof · Sensor · 2 lines\n9:00 21.5 °C\n10:00 22.0 °C"
    assert render(view, pos="1").text.endswith("line 1 of 2\n10:00 22.0 °C")
    assert render(view, 1).text == "roof · Sensor\nplace: roof\n2 readings"
    assert render(view, 2).text == "roof · Sensor\n- highest: 22.0 °C"
    roof.readings.append((11, 25.0))
    assert view.stamp() != stamp
    assert "+11:00 25.0 °C" in render(view, 3, basis=before.basis).text


def test_a_registration_with_a_fault_harms_no_other_target(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "_registered", [])
    register(lambda target: target.no_such_attribute, lambda target, settings, name: None)
    assert render([1]).text.startswith("list")

    register(lambda target: target == [2], lambda target, settings, name: SensorSource(target))
    assert render([1]).text.startswith("list")
    with pytest.raises(BadTarget, match=r"registered for a list could not be made \(TypeError: .*; mend it"):
        open_source([2])


# --- hostile objects


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError(f"was asked for {name}")


class PathLike:
    def __fspath__(self) -> str:
        raise RuntimeError("no path")


CLASSES = [lambda: int, lambda: Meta("Strange", (), {}), lambda: type("Made", (), {"x": 1})]


@pytest.mark.parametrize("make", CLASSES, ids=["built in", "of a metaclass", "made"])
def test_a_class_without_source_is_shown_by_its_members(make: Any):
    for lod in range(4):
        assert "could not be rendered" not in render(open_source(make(), namespace_name="it"), lod).text


def test_a_path_like_object_that_fails_is_refused_in_a_line():
    with pytest.raises(BadTarget, match=r"p \(.*PathLike\) says that it is a path, and its __fspath__ raised Runtime"):
        open_source(PathLike(), namespace_name="p")


def test_every_source_that_the_registry_imports_late_is_there():
    text = Path(registry.__file__).read_text(encoding="utf-8")
    named = re.findall(r'_(?:late|made_by)\("([\w.]+)", "(\w+)"\)', text)
    missing = [place for place in named if not hasattr(import_module(f"ctxkernel.sources.{place[0]}"), place[1])]

    assert len(named) > 20
    assert missing == []


@pytest.mark.parametrize(
    ("target", "facts"),
    [
        (pd.Index([3, 1, 2], name="age"), ("Index · 3 rows", "age: int64, 1 … 3", "\n0   3\n")),
        (pd.RangeIndex(5), ("RangeIndex · 5 rows", "value: int64, 0 … 4")),
        (pd.MultiIndex.from_product([["a", "b"], [1, 2]]), ("MultiIndex · 4 rows", "1: int64, 1 … 2", "\n3 b 2")),
        (pd.Categorical(["x", "y", "x"]), ("Categorical · 3 rows", "value: category", "\n2 x")),
    ],
)
def test_an_index_or_a_categorical_is_shown_by_its_values(target: Any, facts: tuple[str, ...]):
    text = render(target, 1).text

    assert [fact for fact in facts if fact not in text] == []


def test_a_masked_element_of_an_array_is_never_shown_as_a_value():
    numbers = np.ma.masked_array([10, 99, 30], [0, 1, 0])
    words = np.ma.masked_array(["ten", "twenty"], [0, 1])

    for lod in (0, 1, 2):
        text = render(opened(numbers, "n"), lod).text
        assert "99" not in text
        assert "int64 · 24 B · 1 masked, shown as NaN" in text
    assert "1 NaN of 3" in render(numbers, 2).text
    assert "\n[1] --" in render(words, 0).text
    assert "twenty" not in render(words, 0).text


def test_the_numbers_of_a_masked_array_are_shown_unchanged():
    whole = np.ma.masked_array([2**60 + 1, 99, 30, *range(4, 24)], [0, 1, *[0] * 21])
    table = np.ma.masked_array([[2**60 + 1, 99], [30, 4]], [[0, 1], [0, 0]])
    short = np.ma.masked_array(np.array([0.1, 99], dtype="float32"), [0, 1])

    first = [line.split() for line in render(whole, 0).text.split("\n")[1:4]]
    assert first == [["[0]", str(2**60 + 1)], ["[1]", "NaN"], ["[2]", "30"]]
    assert f"1 NaN of 23, min 4, max {2**60 + 1}" in render(whole, 1).text
    assert f"- max {2**60 + 1}" in render(whole, 2).text
    assert render(table, 0).text.split("\n")[1].split() == ["[0]", str(2**60 + 1), "NaN"]
    assert render(short, 0).text.split("\n")[1].split() == ["[0]", "0.1"]


def test_columns_of_several_levels_are_called_as_they_are():
    frame = pd.DataFrame(np.arange(4).reshape(2, 2), columns=pd.MultiIndex.from_product([["a"], [1, 2]]))

    assert "np.int64" not in "".join(render(frame, lod).text for lod in (0, 1, 2))


def test_values_of_one_type_are_listed_beside_each_other():
    assert "int × " in (text := render(set(range(1_000)), 1, tokens=300).text)
    assert sum(int(part.replace(",", "")) for part in re.findall(r"× ([\d,]+):|([\d,]+) more", text)[0] if part) < 1_000
    assert "- 2 distinct: 'a' ×50, 'b' ×50" in render(["a", "b"] * 50, 2).text
    assert render([1, 2], 1).text.endswith("[0]: int = 1\n[1]: int = 2")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["u", "v", "u"], "2 distinct ('u' ×2, 'v' ×1)"),
        (["u", "v", "w"], "3 distinct, such as 'u'"),
        (["u", None, "u"], "1 null, 1 distinct ('u' ×2)"),
        (pd.Categorical(["b", "a", "b"], ["a", "b", "c"]), "2 distinct ('b' ×2, 'a' ×1)"),
    ],
)
def test_the_structure_of_a_frame_tells_the_categories_of_a_column(values: Any, told: str):
    """As that of the same table in a file does."""
    text = render(pd.DataFrame({"first": [1.5, 2.5, 3.5], "kind": values}), 1).text
    assert re.search(rf"\nkind: \w+, {re.escape(told)}\n", text), text


def test_a_column_of_objects_of_own_classes_is_not_counted():
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = None  # type: ignore[assignment]

    assert "\nodd: object\n" in render(pd.DataFrame({"odd": [Odd(), Odd()]}), 1).text


@pytest.mark.parametrize("lod", [0, 1])
def test_an_array_of_lists_and_dicts_shows_each_of_them(lod: int):
    array = np.empty(3, dtype=object)
    array[:] = [{}, [], [1, 2]]

    assert render(array, lod).text.split("\n")[-3:] == ["[0] {}", "[1] []", "[2] [1, 2]"]


# --- what is large


def spent(act: Any) -> float:
    """Return the processor time of the quickest of three runs."""
    times: list[float] = []
    for _ in range(3):
        start = time.process_time()
        act()
        times.append(time.process_time() - start)
    return min(times)


class Wide:
    """An object of very many attributes."""

    def __init__(self) -> None:
        self.__dict__.update({f"a{at}": at for at in range(50_000)})
        self.target = "last"


@pytest.mark.parametrize("lod", [1, 2])
def test_an_object_of_very_many_attributes_names_the_last_and_costs_little(lod: int):
    target = Wide()
    shown = re.search(r"([\d,]+) more attributes", render(target, lod, tokens=333).text)

    assert shown
    assert "target" in render(target, lod, tokens=333).text
    assert "48,001 more attributes" in render(target, lod, tokens=All).text
    assert spent(lambda: render(target, lod)) < 5 * spent(lambda: [brief(one) for one in vars(target).values()])


def test_a_column_of_very_many_categories_costs_little_and_its_changes_are_found():
    names = pd.Index([f"name {at}" for at in range(100_000)])
    frame = pd.DataFrame({"one": pd.Categorical(names)})
    source = open_source(frame)
    before = render(source, 1)
    stamp = source.stamp()

    hashed = spent(lambda: pd.util.hash_array(np.asarray(names, dtype=object)))
    looked = spent(lambda: render(open_source(frame), 1))
    assert source.stamp() == stamp
    frame["one"] = frame["one"].cat.set_categories([*names[1:], names[0]])  # the same values
    assert source.stamp() == stamp
    frame["one"] = frame["one"].cat.rename_categories([f"{name}!" for name in frame["one"].cat.categories])

    assert source.stamp() != stamp
    assert "one: changed within rows" in render(source, 3, basis=before.basis).text
    assert looked < 10 * hashed


def test_a_long_column_of_dicts_is_hashed_in_parts_and_says_so():
    frame = pd.DataFrame({"one": pd.Series([{"a": at} for at in range(100_000)], dtype=object)})

    rendered = render(frame, 1)

    assert "content hash of a sample" in rendered.notes
    assert spent(lambda: render(frame, 1)) < spent(lambda: [brief(one) for one in frame["one"]])
