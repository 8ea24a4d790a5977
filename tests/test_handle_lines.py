"""`%view` and `%group` lines: what they mean, and what completes where a handle is made or used."""

from __future__ import annotations

import re
import threading
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.ports import All
from ctxkernel.kernel.commands import position_names, table
from ctxkernel.kernel.commands.handle_magics import KEYWORDS, following, handle_line
from ctxkernel.kernel.commands.magics import magic_at
from ctxkernel.sources import registry
from ctxkernel.sources.registry import open_named
from ctxkernel.testing import FakeSource, Turns

DELIMITERS = " \t\n`!@#$^&*()=+[{]}\\|;:'\",<>?"


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the lines know of a kernel: a namespace with two handles, in a folder with files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data dir").mkdir()
    for name in ("data.csv", "data dir/x.txt", "m.py"):
        (tmp_path / name).write_text("text")
    turns = Turns()
    turns.namespace.update(src=FakeSource("one"), df=[1], df_all=[2])
    turns.run("v = view(src); g = group(v)")
    return SimpleNamespace(
        turns=turns, loop=turns.loop, shell=SimpleNamespace(user_ns=turns.namespace, user_ns_hidden={})
    )


def completed(ctx: Any, line: str) -> list[str]:
    """Complete at the end of a line as IPython does: what follows the last delimiter is replaced."""
    token = re.split(f"[{re.escape(DELIMITERS)}]", line)[-1]
    return following(ctx, line, token)[0]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("%view data.", ["data.csv"]),
        ("%view da", ["'data dir/'", "data.csv"]),
        ('%view "data d', ["dir/"]),
        ('%view "data dir/', ["dir/x.txt"]),
        ("%view df", ["df", "df_all"]),
        ("h = %view m", ["m.py"]),
        ("%view m.py --", ["--pos", "--tokens", "--lod", "--mode", "--freq"]),
        ("%view m.py --lod 1 --l", []),
        ("%view m.py --lod ", ["0", "1", "2", "3"]),
        ("%view m.py --lod=", ["0", "1", "2", "3"]),
        ("%view m.py --mode r", ["running"]),
        ("%view m.py --freq ", ["Sync", "Async", "Periodic", "Periodic(60)"]),
        ("%group ", ["v", "g"]),
        ("%group v --", ["--tokens", "--lod", "--mode", "--freq"]),
        ('view("da', ["data dir/", "data.csv"]),
        ('h = view("data dir/', ["dir/x.txt"]),
        ('view("m.py", lo', ["lod="]),
        ('view("m.py", lod=', ["0", "1", "2", "3"]),
        ('view("m.py", mode="r', ["running"]),
        ("view(df, freq=", ['"Sync"', '"Async"', '"Periodic"', '"Periodic(60)"']),
        ('note("some te', []),
        ("group(v, tok", ["tokens="]),
        ("v.sc", ["v.scroll"]),
        ("x = v.set_l", ["v.set_lod"]),
        ("v.SetL", ["v.SetLod"]),
        ("v.set(po", ["pos="]),
        ("v.run(fr", ["freq="]),
        ("df.", []),
        ("%ctx whatif v.", []),
        ("other(lo", []),
    ],
)
def test_completion_knows_options_values_paths_names_and_what_a_handle_has(ctx, line: str, found: list[str]):
    assert completed(ctx, line) == found


@pytest.fixture
def placed(ctx: Any) -> Any:
    """The same with targets whose positions have names, and a handle `h` on one of them."""
    Path("code.py").write_text("class Model:\n    def fit(self): pass\n    def predict(self): pass\n")
    Path("paper.md").write_text("# Intro\n\n## Data in 2021\n\n## Data (raw)\n\n## It's so\n")
    Path("data dir/y.txt").write_text("text")
    frame = pandas.DataFrame({"price": [1, 2]}, index=["Paris", "Rome"])
    ctx.loop.graph.open_source = lambda target: open_named(target, ctx.shell.user_ns)
    turns = ctx.turns
    turns.namespace.update(table=frame)
    turns.run("h = view('paper.md')")
    return ctx


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("%view code.py --pos ", ["Model", "Model.fit", "Model.predict"]),
        ("%view code.py --lod 1 --pos=Model.f", ["Model.fit"]),
        ("%view paper.md --pos Data", ["'Data in 2021'", "'Data (raw)'"]),
        ('%view paper.md --pos "Data i', ["in 2021"]),
        ("%view paper.md --pos 'Data (r", ["raw)"]),
        ("%view table --pos ", ["Paris", "Rome", "price"]),
        ("%view . --pos 'data dir/", ["dir/x.txt", "dir/y.txt"]),
        ("%view no.py --pos ", []),
        ("%view --pos ", []),
        ('view("code.py", pos="Model.p', ["Model.predict"]),
        ('view("code.py", lod=1, pos=', ['"Model"', '"Model.fit"', '"Model.predict"']),
        ("view(table, pos='P", ["Paris"]),
        ("view(f(x), pos='", []),
        ('h.pos = "Da', ["Data in 2021", "Data (raw)"]),
        ("h.set(lod=1, pos=", ['"Intro"', '"Data in 2021"', '"Data (raw)"', '"It\'s so"']),
        ("df.pos = ", []),
    ],
)
def test_positions_complete_by_the_names_that_the_target_has(placed, line: str, found: list[str]):
    nodes, events = placed.loop.graph.counts, len(list(placed.loop.graph.events()))

    assert completed(placed, line) == found
    assert (placed.loop.graph.counts, len(list(placed.loop.graph.events()))) == (nodes, events)


def test_names_are_not_looked_for_where_that_would_read_much_or_run_code(placed):
    with open("huge.py", "w") as file:
        file.write("class A: pass\n")
        file.truncate(position_names.MOST_BYTES + 1)

    def asked(*target: Any) -> Any:
        raise AssertionError(f"{target} was asked")

    registry._registered.insert(0, (asked, asked))
    try:
        assert completed(placed, "%view huge.py --pos ") == []
        assert completed(placed, "%view https://example.org/a.py --pos ") == []
        assert completed(placed, "%view code.py --pos M") == ["Model", "Model.fit", "Model.predict"]
    finally:
        registry._registered.pop(0)


def test_a_target_that_hangs_holds_no_completion_up(placed, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(position_names, "SECONDS", 0.05)
    monkeypatch.setattr(position_names, "open_built_in", lambda target: release.wait(60))

    begun = time.monotonic()
    found = completed(placed, "%view code.py --pos ")
    release.set()

    assert found == []
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("code", "cursor", "name"),
    [
        ("%view m.py", 0, "%view"),
        ("%view m.py", 5, "%view"),
        ("%view m.py", 7, None),
        ("a, b = %group x", 10, "%group"),
        ("%%ask --mode auto\nwhy?", 4, "%%ask"),
        ("view(x)", 2, None),
        ("x %view", 4, None),
    ],
)
def test_the_magic_at_the_cursor_is_known(code: str, cursor: int, name: str | None):
    assert magic_at(code, cursor) == name


def test_completing_looks_nothing_up_that_could_run_code(ctx):
    class Evil:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"{name} was asked for")

    ctx.shell.user_ns["evil"] = Evil()

    assert completed(ctx, "evil.") == []
    assert completed(ctx, "evil.set(") == []


def test_the_options_of_the_lines_are_the_keywords_of_the_functions(ctx):
    for name in ("view", "group", "note"):
        code = getattr(ctx.loop, name).__func__.__code__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        assert set(KEYWORDS[name]) | {"target"} >= set(names)


@pytest.mark.parametrize(
    ("line", "values", "given"),
    [
        ("m.py", ["m.py"], {}),
        ("'data dir/x.txt' --pos Model.fit", ["data dir/x.txt"], {"pos": "Model.fit"}),
        ("df --lod=1 --tokens 300", [[1]], {"lod": 1, "tokens": 300}),
        ("df --tokens All --freq Periodic(5)", [[1]], {"tokens": All, "freq": "Periodic(5)"}),
        ("m.py --pos '/def fit/' --mode running", ["m.py"], {"pos": "/def fit/", "mode": "running"}),
    ],
)
def test_a_view_line_is_a_call_of_view(ctx, line: str, values: list[Any], given: dict[str, Any]):
    assert handle_line(ctx, "view", line) == (values, given)


@pytest.mark.parametrize(
    ("magic", "line", "said"),
    [
        ("view", "", "takes one target"),
        ("view", "a b", "takes one target"),
        ("view", "m.py --lodd 1", "has no option --lodd (did you mean lod?)"),
        ("view", "m.py --lod", "--lod: a value is missing"),
        ("view", "'m.py", "close the quotation mark"),
        ("group", "", "takes at least one handle"),
        ("group", "v --pos 1", "has no option --pos"),
    ],
)
def test_a_wrong_line_is_refused_in_one_line_with_how_it_is_written(ctx, magic: str, line: str, said: str):
    with pytest.raises(BadCommand, match=re.escape(said)) as refused:
        handle_line(ctx, magic, line)
    assert "\n" not in str(refused.value)


def test_every_command_that_is_imported_late_is_there():
    text = Path(table.__file__).read_text(encoding="utf-8")
    named = re.findall(r'_late\("(\w+)\.(\w+)"\)', text)
    missing = [
        place for place in named if not hasattr(import_module(f"ctxkernel.kernel.commands.{place[0]}"), place[1])
    ]

    assert len(named) > 20
    assert missing == []
