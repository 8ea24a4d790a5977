"""`%view` and `%group` lines: what they mean, and what completes where a handle is made or used."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.ports import All
from ctxkernel.kernel.handle_lines import KEYWORDS, following, handle_line
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
    return SimpleNamespace(loop=turns.loop, shell=SimpleNamespace(user_ns=turns.namespace, user_ns_hidden={}))


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
        ("%view m.py --freq ", ["Sync", "Async", "Periodic(60)"]),
        ("%group ", ["v", "g"]),
        ("%group v --", ["--tokens", "--lod", "--mode", "--freq"]),
        ('view("da', ["data dir/", "data.csv"]),
        ('h = view("data dir/', ["dir/x.txt"]),
        ('view("m.py", lo', ["lod="]),
        ('view("m.py", lod=', ["0", "1", "2", "3"]),
        ('view("m.py", mode="r', ["running"]),
        ("view(df, freq=", ['"Sync"', '"Async"', '"Periodic(60)"']),
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
