"""Maps of code: which symbols come first, what is said until all was read, and that edits are followed file by file."""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
import tracemalloc
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import All
from ctxkernel.sources.files import code_trees
from ctxkernel.sources.outlines.code_files import read_code
from ctxkernel.sources.outlines.code_ranking import in_order, weigh
from ctxkernel.testing import HeldJobs, Turns
from ctxkernel.testing.renderings import opened, render, written

FILES = {
    "pyproject.toml": '[project]\nname = "fleet"\n[project.scripts]\nfleet = "fleet.cli:launch"\n',
    "README.md": "# Fleet\n\nIt keeps the books of a harbour. More follows.\n",
    "fleet/__init__.py": '"""Ships and harbours."""\nfrom fleet._ships import Ship\n__all__ = ["Ship"]\n',
    "fleet/_ships.py": "class Ship:\n    '''A ship of the fleet.'''\n"
    "    def __init__(self, name, *, tons=1.5): ...\n    def load(self, tons):\n        '''Take aboard.'''\n"
    "        self.cargo = self.cargo + tons\n        return self.cargo\n\n"
    "    def _weigh(self): ...\n\n\ndef _hull(): ...\n",
    "fleet/harbour.py": '"""Where ships are."""\nfrom fleet import Ship\n\n\nclass Harbour:\n'
    "    def enter(self, ship): ...\n\n\ndef unused(): ...\n\n\nT = TypeVar('T')\nMOST = 40\n",
    "fleet/cli.py": '"""The command line."""\nfrom .harbour import Harbour\n\n\ndef launch(): ...\n',
    "fleet/vendored/old.py": "def ancient(): ...\n",
    "tests/test_ships.py": "from fleet import Ship\nfrom fleet.harbour import Harbour\n\n\ndef test_a_ship(): ...\n",
}


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        written(tmp_path / name, text)
    return tmp_path


def names_in(text: str) -> list[str]:
    """Return the symbols of a map that shows each in a line of its own."""
    return re.findall(r"^(?:class )?([a-z_]+\.[\w.]+)(?=\(| = |$| — )", text, re.MULTILINE)


def read_whole(source: Any) -> Any:
    """Let the background read all that it wants."""
    while (wanted := source.preparation()) is not None:
        assert source.accept(wanted.work(lambda: False, lambda _: None))
    return source


def test_what_a_program_begins_with_and_what_is_exported_and_used_comes_first_and_tests_last(fleet: Path):
    text = render(fleet, 1, tokens=All).text

    assert text.split("\n")[0].endswith("· 8 symbols")
    assert names_in(text) == [
        "fleet.cli.launch",
        "fleet.Ship",
        "fleet.harbour.Harbour",
        "fleet.harbour.unused",
        "fleet.harbour.MOST",
        "fleet._ships._hull",
        "fleet.vendored.old.ancient",
        "test_ships.test_a_ship",
    ]


def test_a_class_is_called_as_it_is_made_with_its_methods_and_what_they_are_for_where_all_fits(fleet: Path):
    lines = render(fleet, 1, tokens=1000).text.split("\n")

    at = lines.index("class fleet.Ship(name, *, tons=1.5) — A ship of the fleet.")
    assert lines[at + 1] == "  load(tons) — Take aboard."
    assert "other files: 1 .md, 1 .toml" in lines


def test_where_not_all_fits_the_first_have_signatures_and_the_next_their_names(tmp_path: Path):
    for at in range(40):
        written(tmp_path / f"m{at:02}.py", f"def first{at}(alpha, beta): ...\n\n\ndef second{at}(): ...\n")

    text = render(tmp_path, 1, tokens=300).text

    assert "m00.first0(alpha, beta)" in text
    assert re.search(r"^m\d\d: (?:first|second)\d+", text, re.MULTILINE)
    shown = len(re.findall(r"(?:first|second)\d+", text))
    assert f"[… {80 - shown} more symbols, " in text


def test_a_position_is_a_symbol_and_level_0_is_its_source(fleet: Path):
    source = opened(fleet)

    assert render(source, 0, "Harbour").text.split("\n")[1] == "class Harbour:"
    assert render(source, 0, "fleet.harbour.unused").text.split("\n")[1] == "def unused(): ..."
    assert "[… 2 symbols before]" in render(source, 1, "Harbour").text
    assert render(source, 0, "fleet/cli.py").text.split("\n")[1] == "  cli.py · 73 B"
    after = render(source, 0, "Ship", tokens=100).next_pos
    assert after is not None
    assert re.fullmatch(r"@1\+[1-9]\d*", after)
    assert render(source, 0, after).text.split("\n")[1] in FILES["fleet/_ships.py"]


def test_an_edit_is_followed_and_only_the_file_that_changed_is_read_again(fleet: Path, monkeypatch: pytest.MonkeyPatch):
    source = opened(fleet)
    render(source, 1)
    stamp = source.stamp()
    read: list[str] = []
    own = code_trees.read_code
    monkeypatch.setattr(code_trees, "read_code", lambda path, *rest: read.append(path) or own(path, *rest))

    written(fleet / "fleet" / "harbour.py", "class Quay: ...\n")
    written(fleet / "fleet" / "new.py", "def fresh(): ...\n")
    (fleet / "fleet" / "cli.py").unlink()

    assert source.stamp() != stamp
    text = render(source, 1, tokens=All).text
    assert "fleet.harbour.Quay" in text
    assert "fleet.new.fresh" in text
    assert "Harbour(" not in text
    assert "launch" not in text
    assert sorted(read) == ["fleet/harbour.py", "fleet/new.py"]


def test_level_2_of_a_folder_says_what_it_and_each_part_is_for(fleet: Path):
    (fleet / "data").mkdir()
    written(fleet / "data" / "a.csv", "id,name\n1,x\n")
    lines = render(fleet, 2, tokens=All).text.split("\n")

    assert lines[1] == "README.md: Fleet: It keeps the books of a harbour."
    assert any(line.startswith("- fleet/: Ships and harbours. — launch, Ship, Harbour") for line in lines)
    assert "- data/: 1 file (a.csv), 12 B" in lines


def test_level_2_of_a_folder_of_texts_says_how_each_begins(tmp_path: Path):
    written(tmp_path / "notes.md", "# Drift\n\nThe residuals drift after 2019. Nobody knows why.\n")
    written(tmp_path / "data.csv", "day,degrees\n1,2\n")

    lines = render(tmp_path, 2, tokens=All).text.split("\n")

    assert "- notes.md · 59 B — Drift: The residuals drift after 2019." in lines
    assert "- data.csv · 16 B — day,degrees" in lines


def test_a_folder_with_more_of_other_files_stays_a_tree(tmp_path: Path):
    written(tmp_path / "run.py", "def main(): ...\n")
    for at in range(3):
        written(tmp_path / f"{at}.csv", "a,b\n")

    assert "run.py · " in render(tmp_path, 1).text


# --- packages that are imported


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any folder, and the background takes no rests."""
    code_trees.ACCEPTED.clear()
    monkeypatch.setattr(code_trees, "Rest", lambda: lambda: None)


@pytest.fixture
def package(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(fleet))
    yield importlib.import_module("fleet")
    for name in [name for name in sys.modules if name.partition(".")[0] == "fleet"]:
        del sys.modules[name]


def test_a_package_is_the_map_of_its_files_and_imports_none_of_them(package: Any):
    text = render(package, 1, tokens=All).text

    assert text.split("\n")[:2] == ["module fleet · 5 files · 7 symbols", '"""Ships and harbours."""']
    assert "class fleet.harbour.Harbour\n  enter(ship)" in text
    assert "fleet.harbour" not in sys.modules
    assert render(package, 0).text.startswith("module fleet · ")
    assert "- fleet.harbour: Where ships are. — Harbour, unused, MOST" in render(package, 2, tokens=All).text


def test_what_changed_in_a_package_is_told_by_file_and_symbol(package: Any, fleet: Path):
    source = opened(package)
    before = render(source, 1)
    assert render(source, 3, basis=before.basis).text == "module fleet · no change"

    written(fleet / "fleet" / "harbour.py", "class Harbour:\n    def leave(self, ship): ...\n")
    (fleet / "fleet" / "cli.py").unlink()
    lines = render(source, 3, basis=before.basis).text.split("\n")

    assert lines[1] == "- cli.py"
    assert lines[2].startswith("~ harbour.py · 13 → 2 lines; +Harbour.leave(ship); -")


def test_until_all_was_read_the_map_says_how_much_was_and_names_what_is_exported(package: Any, monkeypatch: Any):
    monkeypatch.setattr(code_trees, "READ_AT_ONCE", 1_200)
    source = opened(package)

    first = render(source, 1, tokens=All).text
    again = render(source, 2, tokens=All).text
    whole = render(read_whole(source), 1, tokens=All).text

    assert "~ 1 of 5 files read so far" in first.split("\n")[0]
    assert "class fleet.Ship" in first
    assert "~ 1 of 5 files" in again
    assert "~" not in whole
    assert "class fleet.Ship(name, *, tons=1.5)" in whole


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sklearn.linear_model", "Ridge RidgeCV LogisticRegression LinearRegression Lasso ElasticNet SGDClassifier"),
        pytest.param(
            "sklearn",
            "Pipeline train_test_split Ridge StandardScaler RandomForestClassifier LogisticRegression PCA SVC",
            marks=pytest.mark.long,
        ),
        pytest.param("pandas", "DataFrame Series Index date_range concat MultiIndex", marks=pytest.mark.long),
        pytest.param("networkx", "Graph DiGraph MultiGraph path_graph", marks=pytest.mark.long),
        ("json", "JSONEncoder JSONDecoder dumps loads"),
        pytest.param("ctxkernel", "BaseSource Statement Execution Projection", marks=pytest.mark.long),
    ],
)
def test_the_symbols_that_matter_stand_in_a_thousand_tokens(name: str, expected: str, eager: None):
    """A first look is quick and small, and then the background reads the rest."""
    source = opened(import_module(name))
    began = time.thread_time()
    first = render(source, 1, tokens=1000).text
    seconds = time.thread_time() - began

    text = render(read_whole(source), 1, tokens=1000).text

    assert [one for one in expected.split() if not re.search(rf"\b{one}\b", text)] == []
    assert "~" not in text.split("\n")[0]
    assert first.count("\n") > 5
    assert seconds < 1.0  # 0.1 on a calm machine


@pytest.mark.long
def test_a_map_of_all_of_a_large_package_takes_little_memory(eager: None):
    source = opened(import_module("sklearn"))
    tracemalloc.start()
    try:
        render(read_whole(source), 1, tokens=1000)
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 32 << 20
    assert most < 64 << 20


@pytest.mark.usefixtures("eager")
def test_a_running_view_shows_what_the_background_read_and_then_follows_edits(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(code_trees, "READ_AT_ONCE", 1_200)
    turns = Turns()
    turns.loop.graph.open_source = opened
    turns.namespace["path"] = fleet
    held = turns.loop.preparer = HeldJobs(turns.loop.ready)
    turns.run("h = view(path, lod=1, tokens=2000).run()")
    h = turns.namespace["h"]
    first = h.rendered.text

    held.finish()
    turns.run()
    whole = h.rendered.text
    monkeypatch.setattr(code_trees, "READ_AT_ONCE", 1 << 20)
    written(fleet / "fleet" / "harbour.py", "class Quay: ...\n")
    turns.run()

    assert "files read so far" in first
    assert "~" not in whole
    assert "class fleet.harbour.Harbour" in whole
    assert "class fleet.harbour.Quay" in h.rendered.text
    assert not held.jobs
    turns.run("h.set(lod=0, pos='Quay')")
    assert h.rendered.text.split("\n")[1] == "class Quay: ..."
    turns.run("h.set(lod=1, pos=0).scroll(1)")
    assert "[… 1 symbol before]" in h.rendered.text


# --- ranking


def ranked(files: dict[str, str], root: str = "") -> list[str]:
    read = {path: read_code(path, text.encode(), len(text)) for path, text in files.items()}
    codes = {path: code for path, code in read.items() if code is not None}
    return [one.name for one in in_order(codes, weigh(codes, root), root)]


def test_what_others_import_comes_before_what_nobody_does():
    names = ranked(
        {
            "a.py": "def one(): ...\n\n\ndef two(): ...\n",
            "b.py": "from a import two\n",
            "c.py": "import a\na.two()\n",
        }
    )

    assert names == ["a.two", "a.one"]


def test_an_export_is_known_by_its_shortest_name_through_star_imports_and_circles():
    names = ranked(
        {
            "__init__.py": "from p.sub import *\n",
            "sub/__init__.py": "from .deep import *\nfrom p import *\n",
            "sub/deep.py": "def shown(): ...\n",
        },
        "p",
    )

    assert names == ["p.shown"]


def test_a_tree_that_was_made_to_cost_much_costs_little():
    """Star imports that meet again and again, long chains, and brackets that never close."""
    deep = {f"l{at}/__init__.py": f"from p.l{at + 1} import *\nfrom p.r{at + 1} import *\n" for at in range(60)}
    wide = {f"r{at}/__init__.py": f"from p.l{at + 1} import *\nfrom p.r{at + 1} import *\n" for at in range(60)}
    chain = {f"c{at}.py": f"from p.c{at + 1} import name\n" for at in range(2000)}
    began = time.process_time()

    ranked({"__init__.py": "from p.l0 import *\nfrom p.c0 import name\n", **deep, **wide, **chain}, "p")
    read_code("a.py", b"from a import (\n" * 20_000, 0)

    assert time.process_time() - began < 5


def test_a_folder_within_a_package_has_the_names_of_the_package(fleet: Path):
    text = render(fleet / "fleet", 1, tokens=All).text

    assert names_in(text)[:2] == ["fleet.Ship", "fleet.harbour.Harbour"]


def test_what_is_in_another_language_is_known_by_its_file():
    names = ranked(
        {"app.ts": "import { Ship } from './ship';\nnew Ship();", "ship.ts": "export class Ship {}\nfunction x() {}"}
    )

    assert names[0] == "ship.ts: Ship"


def test_what_a_bound_leaves_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(code_trees, "MOST_FILES", 3)
    monkeypatch.setattr(code_trees, "FILE_BYTES", 60)
    for at in range(5):
        written(tmp_path / f"f{at}.py", f"def g{at}(): ...\n" * 5)

    text = render(tmp_path, 1, tokens=All).text

    assert "of 3 files the first 60 B were read" in text.split("\n")[0]
    assert "only the first 3 files were listed" in text.split("\n")[0]


def test_broken_and_hostile_files_are_read_as_far_as_they_go(tmp_path: Path):
    written(tmp_path / "a.py", "def good(): ...\nclass (:\n'''")
    written(tmp_path / "b.py", b"\0\1\2" * 100)
    written(tmp_path / "c.py", "def f(x='" + "(" * 5000 + "'): ...\n")
    written(tmp_path / "d.py", "def g():\n    " + "# " * 4000 + "\n    return 1\n")
    (tmp_path / "e.py").symlink_to("a.py")

    text = render(tmp_path, 1, tokens=All).text

    assert "a.good()" in text
    assert "d.g()" in text
    assert "e.good" not in text


def test_a_wrong_position_in_a_package_is_refused_with_symbols_that_are_like_it():
    source = opened(json)
    render(source, 1)
    with pytest.raises(BadPolicy, match=r"no position 'JSONDecodr' among its 2\d symbols\. Is it '.*JSONDecoder'"):
        render(source, 1, pos="JSONDecodr")
