"""Positions by name: symbols, headings, patterns and row labels, and views that stay with them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import All, RenderRequest
from ctxkernel.sources import FactsSource
from ctxkernel.sources.base.positions import SEARCH_SECONDS, pattern_of
from ctxkernel.sources.registry import open_named
from ctxkernel.testing import Turns
from ctxkernel.testing.renderings import opened, render, written

MODULE = """X = 1

class Model:
    def fit(self, x):
        return x

    def predict(self, x):
        return self.fit(x)

def fit():
    return 2
"""
PAPER = "# Intro\n\ntext\n\n## Results of 2021\n\nmore\n"


def looking(path: Path, code: str) -> Turns:
    """Return a loop in which `h` is a running view of a file."""
    turns = Turns()
    turns.loop.graph.open_source = lambda target: open_named(target, turns.namespace)
    turns.namespace["path"] = str(path)
    turns.run(code)
    return turns


@pytest.mark.parametrize(
    ("pos", "line"),
    [
        ("Model", 2),
        ("Model.fit", 3),
        ("fit", 9),  # the one that is called just so comes before `Model.fit`
        ("predict", 6),
        ("/def .*x\\)/", 3),
        ("/DEF FIT\\(\\)/i", 9),
        ("9:0", 9),
    ],
)
def test_a_position_is_a_name_a_pattern_or_numbers(tmp_path, pos: str, line: int):
    shown = render(written(tmp_path / "m.py", MODULE), pos=pos)

    assert shown.place.split(":")[0] == str(line)
    assert f"lines {line}-10 of 11" in shown.text


def test_a_heading_is_a_position(tmp_path):
    assert render(written(tmp_path / "p.md", PAPER), pos="Results of 2021").place == "4"


@pytest.mark.parametrize(
    ("target", "pos", "row"),
    [
        (pandas.DataFrame({"a": [1, 2]}, index=["Paris", "Rome"]), "Rome", "1"),
        (pandas.DataFrame({"a": [1, 2]}, index=["Paris", "Rome"]), "/^Ro/", "1"),
        (pandas.Series([1, 2, 3], index=[2019, 2020, 2021]), "[2021]", "2"),
        (pandas.Series([1, 2, 3], index=[2019, 2020, 2021]), "2", "2"),
        (pandas.Series(range(60), index=pandas.date_range("2021-01-01", periods=60)), "2021-02", "31"),
        (pandas.DataFrame({"a": [1, 2, 3]}, index=["x", "y", "y"]), "y", "1"),
        ({"alpha": 1, "beta": 2}, "beta", "1"),
    ],
)
def test_a_row_label_or_a_key_is_a_position(target: Any, pos: str, row: str):
    assert render(opened(target, "t"), pos=pos).place == row


@pytest.mark.parametrize(
    ("target", "pos", "said"),
    [
        (MODULE, "predcit", "among its 5 symbols. Is it 'Model.predict'?"),
        (MODULE, "/nowhere/", "has no position '/nowhere/'"),
        (MODULE, "/[/", "is no regular expression: unterminated"),
        (pandas.DataFrame({"a": [1]}, index=["Rome"]), "Roma", "among its 2 row labels and columns. Is it 'Rome'?"),
        ({"alpha": 1}, "alpa", "Is it 'alpha'?"),
    ],
)
def test_a_position_that_is_not_there_is_refused_with_what_is_like_it(tmp_path, target: Any, pos: str, said: str):
    source = written(tmp_path / "m.py", target) if isinstance(target, str) else opened(target, "t")

    with pytest.raises(BadPolicy, match=re.escape(said)):
        render(source, pos=pos)


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What has entries with names: a folder, a pattern, a notebook, JSON, a table, an array, and facts."""
    folder = tmp_path_factory.mktemp("things")
    (folder / "src" / "deep").mkdir(parents=True)
    for name in ("a.txt", "src/main.py", "src/deep/x.py", "z.csv"):
        written(folder / name, "text")
    cells = [
        {"cell_type": "markdown", "id": "intro-1", "source": "# Ships\ntext\n## Data in 2021"},
        {"cell_type": "code", "id": "c0ffee", "execution_count": 7, "source": "import os\ndef load(x):\n    return x"},
    ]
    return {
        "folder": folder,
        "glob": str(folder / "**" / "*.py"),
        "notebook": written(folder.parent / "n.ipynb", json.dumps({"cells": cells, "nbformat": 4})),
        "json": written(folder.parent / "a.json", json.dumps({"alpha": [1], "beta": {"c": 1}}, indent=1)),
        "json in one line": written(
            folder.parent / "b.json", json.dumps({"alpha": [1], "beta": {"c": "x: {", "d": [{"e": 2}]}})
        ),
        "frame": pandas.DataFrame({"price": [1, 2], "n": [3, 4]}, index=["Paris", "Rome"]),
        "array": numpy.arange(24).reshape(2, 3, 4),
        "dict": {"alpha": 1, 7: 2, "b c": 3},
        "estimator": StandInSource(),
    }


class StandInSource(FactsSource):
    """Facts of the two shapes that the sources of libraries have."""

    kind = "stand-in"

    def __init__(self) -> None:
        super().__init__(None, "model")

    def value(self) -> list[str]:
        return ["coef_: 1 float64 [0.5]", "axes 0: 'Flow'", "  line 'q': 2 points", "temp (x, y): 3 × 4", "alpha = 1.0"]

    structure = summary = value


@pytest.mark.parametrize(
    ("thing", "pos", "place", "shown"),
    [
        ("folder", "src", "1", "src/"),
        ("folder", "src/", "1", "src/"),
        ("folder", "src/main.py", "1:3", "  main.py · 4 B"),
        ("folder", "x.py", "1:2", "    x.py · 4 B"),
        ("folder", "/[.]csv$/", "2", "z.csv · 4 B"),
        ("glob", "main.py", "1", "src/main.py · 4 B"),
        ("glob", "src/deep/x.py", "0", "src/deep/x.py · 4 B"),
        ("notebook", "Ships", "0:1", "# Ships"),
        ("notebook", "Data in 2021", "0:3", "## Data in 2021"),
        ("notebook", "load", "1:2", "def load(x):"),
        ("notebook", "c0ffee", "1", "[1] code · In [7]"),
        ("notebook", "cell 1", "1", "[1] code · In [7]"),
        ("notebook", "[1]", "1", "[1] code · In [7]"),
        ("notebook", "In [7]", "1", "[1] code · In [7]"),
        ("notebook", "/ret.rn/", "1:3", "    return x"),
        ("json", "beta", "4", ' "beta": {'),
        ("json", "beta.c", "5", '  "c": 1'),
        ("json in one line", "beta.c", "0:24", '"c": "x: {", "d": [{"e": 2}]}}'),
        ("json in one line", "beta.d.e", "0:44", '"e": 2}]}}'),
        ("json in one line", "d", "0:37", '"d": [{"e": 2}]}}'),
        ("frame", "n", "0:1", "      n"),
        ("array", "[1, 0]", "3", "[1, 0] 12 13 14 15"),
        ("array", "[1]", "3", "[1, 0] 12 13 14 15"),
        ("dict", "[7]", "1", "7: 2"),
        ("dict", "b c", "2", "'b c': 3"),
        ("estimator", "coef_", "0", "coef_: 1 float64 [0.5]"),
        ("estimator", "axes 0", "1", "axes 0: 'Flow'"),
        ("estimator", "line 'q'", "2", "  line 'q': 2 points"),
        ("estimator", "temp", "3", "temp (x, y): 3 × 4"),
        ("estimator", "alpha", "4", "alpha = 1.0"),
    ],
)
def test_what_has_entries_takes_their_names(things, thing: str, pos: str, place: str, shown: str):
    rendered = render(opened(things[thing], thing), pos=pos)

    assert rendered.place == place
    assert rendered.text.split("\n")[1] == shown


@pytest.mark.parametrize(
    ("thing", "pos", "said"),
    [
        ("folder", "src/mian.py", "among its 6 entries. Is it 'src/main.py'"),
        ("glob", "mian.py", "among its 2 matches. Is it 'src/main.py'?"),
        ("notebook", "Dta in 2021", "Is it 'Data in 2021'?"),
        ("notebook", "cell 9", "has no cell 9: its 2 cells are numbered from 0"),
        ("notebook", "/nowhere/", "has no position '/nowhere/'"),
        ("json", "alhpa", "among its 3 keys. Is it 'alpha'?"),
        ("frame", "pric", "among its 4 row labels and columns. Is it 'price'"),
        ("array", "[2, 0]", "among its 6 rows. Is it '[1, 0]'"),
        ("array", "x", "has no position 'x' among its 6 rows"),
        ("estimator", "coeff_", "among its 5 names. Is it 'coef_'?"),
    ],
)
def test_a_name_that_no_entry_has_is_refused_with_what_is_like_it(things, thing: str, pos: str, said: str):
    with pytest.raises(BadPolicy, match=re.escape(said)) as refused:
        render(opened(things[thing], thing), pos=pos)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("pos", "row"),
    [("Rome", "1"), ("/^Os/", "2"), ("price", "0"), ("n", "0:1"), ("2021-03", "59"), ("[3]", "3"), ("q", "0")],
)
def test_a_parquet_file_takes_labels_of_the_index_and_columns(tmp_path, pos: str, row: str):
    cities = pandas.DataFrame({"price": [1, 2, 3], "n": [4, 5, 6]}, index=["Paris", "Rome", "Oslo"])
    days = pandas.DataFrame({"d": range(90)}, index=pandas.date_range("2021-01-01", periods=90))
    frame = days if pos == "2021-03" else pandas.DataFrame({"q": range(5)}) if pos in ("[3]", "q") else cities
    frame.to_parquet(tmp_path / "t.parquet")

    assert render(tmp_path / "t.parquet", pos=pos).place == row
    with pytest.raises(BadPolicy, match="Is it"):
        render(tmp_path / "t.parquet", pos=frame.columns[0] + "x")


@pytest.mark.parametrize("lod", [0, 1])
def test_the_tree_of_a_folder_goes_on_where_it_was_cut(things, lod: int):
    whole = render(things["folder"], lod, tokens=All).text.split("\n")[1:]
    pos, seen = "0", []
    while pos is not None:
        shown = render(things["folder"], lod, pos, tokens=84)
        lines = shown.text.split("\n")[1:]
        seen += [line for line in lines if not line.startswith("[…")]
        assert shown.next_pos != pos
        pos = shown.next_pos

    assert seen == whole


def test_a_folder_that_went_keeps_the_view_of_one_of_its_entries(tmp_path):
    (tmp_path / "d").mkdir()
    written(tmp_path / "d" / "a.txt", "text")
    turns = looking(tmp_path / "d", "h = view(path, pos='a.txt').run()")

    (tmp_path / "d" / "a.txt").unlink()
    (tmp_path / "d").rmdir()
    turns.run()

    assert (turns.namespace["h"].fault, turns.namespace["h"].pos) == ("", "a.txt")
    assert "missing" in turns.namespace["h"].rendered.text


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(a|b|ab)*c", "(.*)(.*)(.*)(.*)(.*)x", "(?:a?){60}b", "(x+x+)+y", "(foo|bar)+x"]
)
def test_a_pattern_that_could_take_for_ever_is_refused_untried(tmp_path, pattern: str):
    with pytest.raises(BadPolicy, match="could take very long"):
        render(written(tmp_path / "a.txt", "a" * 3000), pos=f"/{pattern}/")


@pytest.mark.parametrize("pattern", ["^def fit", "fit.*predict", r"\d{4}-\d\d-\d\d", "^\\s*class\\s+\\w+"])
def test_a_plain_pattern_is_allowed_and_is_over_soon_on_lines_made_to_hurt(tmp_path, pattern: str):
    """The time is that of the search's own limit, with room for a slow machine."""
    file = written(tmp_path / "a.txt", "\n".join(["fit" * 2000] * 3))
    begun = time.monotonic()

    with pytest.raises(BadPolicy):
        render(file, pos=f"/{pattern}z/")

    assert time.monotonic() - begun < 10 * SEARCH_SECONDS


def test_a_compiled_pattern_is_a_position_and_reads_back(tmp_path):
    turns = looking(written(tmp_path / "m.py", MODULE), "import re; h = view(path, pos=re.compile('DEF P', re.I))")

    assert turns.namespace["h"].pos == "/DEF P/i"
    assert pattern_of("/DEF P/i").compiled == re.compile("DEF P", re.IGNORECASE)


def test_a_view_stays_with_its_symbol_while_the_file_is_edited(tmp_path):
    path = written(tmp_path / "m.py", MODULE)
    turns = looking(path, "h = view(path, pos='predict').run()")

    path.write_text("# one\n# two\n" + MODULE)
    turns.run()

    assert turns.namespace["h"].rendered.text.split("\n")[1] == "    def predict(self, x):"
    assert turns.namespace["h"].pos == "predict"


def test_a_symbol_that_went_is_told_once_and_the_view_stays_where_it_was(tmp_path):
    path = written(tmp_path / "m.py", MODULE)
    turns = looking(path, "h = view(path, pos='predict').run()")

    path.write_text(MODULE.replace("predict", "foresee"))
    told, idle = turns.run(), turns.run()
    h = turns.namespace["h"]

    assert any("position 'predict' is not there any more" in item.summary for item in told.deltas)
    assert "line 6" in h.rendered.text.replace("lines 6", "line 6") and "foresee" in h.rendered.text
    assert h.rendered.text.startswith("[position 'predict' is not there any more")
    assert (h.fault, idle.deltas, told.notices) == ("", (), ())
    turns.run("h.lod = 1; h.lod = 0")  # a policy that has nothing to do with it is not refused
    path.write_text(MODULE)
    turns.run()
    assert not h.rendered.text.startswith("[")


@pytest.mark.parametrize(
    ("start", "call", "pos"),
    [("predict", "h.scroll(2)", "8:0"), ("/class/", "h.scroll(-1)", "1:0"), ("fit", "h.scroll(-99)", "0:0")],
)
def test_scroll_goes_on_from_wherever_the_view_is(tmp_path, start: str, call: str, pos: str):
    turns = looking(written(tmp_path / "m.py", MODULE), f"h = view(path, pos={start!r}); {call}")

    assert turns.namespace["h"].pos == pos


def test_a_refused_position_leaves_the_view_as_it_was(tmp_path):
    turns = looking(written(tmp_path / "m.py", MODULE), "h = view(path, pos='fit')")
    before = dict(turns.namespace["h"].memento())

    with pytest.raises(BadPolicy):
        turns.run("h.pos = 'fti'")

    assert dict(turns.namespace["h"].memento()) == before


def test_a_hostile_label_costs_the_position_and_nothing_else():
    class Evil:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

        __hash__ = None  # type: ignore[assignment]

    frame = pandas.DataFrame({"a": [1, 2]}, index=pandas.Index([Evil(), Evil()], dtype=object))
    with pytest.raises(BadPolicy):
        opened(frame, "f").render(RenderRequest(0, "x", 100))


def test_a_deleted_variable_is_told_by_the_view_that_still_holds_its_object(tmp_path):
    turns = looking(tmp_path, "d = [1, 2, 3]; h = view(d).run()")

    result = turns.run("del d")

    assert "d (deleted; this view still holds it)" in turns.namespace["h"].rendered.text
    assert any("is now d (deleted" in item.summary for item in result.deltas)
    assert not turns.run().deltas


def test_a_file_that_matches_a_pattern_is_called_by_its_whole_path_too(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "data").mkdir(parents=True)
    for name in ("a.csv", "b.csv", "data/b.csv"):
        written(tmp_path / "data" / name, "x")

    assert render(opened("data/*.csv", "g"), pos="data/b.csv").place == "1"
    assert render(opened("data/*.csv", "g"), pos=str(tmp_path / "data" / "b.csv")).place == "1"
    assert render(opened("data/**/*.csv", "g"), pos="data/b.csv").place == "2"  # as it is listed


def test_an_entry_that_is_there_and_not_listed_is_said_to_be_so(tmp_path):
    written(tmp_path / ".gitignore", "build/")
    (tmp_path / "build").mkdir()

    with pytest.raises(BadPolicy, match="does not list 'build': it is ignored, a cache or lies too deep"):
        render(opened(tmp_path, "d"), pos="build")
