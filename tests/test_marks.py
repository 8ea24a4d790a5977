"""The mark of what a budget cut survives at every budget: of sources, and of groups of them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.marks import cut_to, parted, shorter
from ctxkernel.core.ports import All, RenderRequest
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.sources.base.fitting import advises
from ctxkernel.sources.base.rendering import within_reserve
from ctxkernel.sources.objects.facts import FactsSource
from ctxkernel.sources.registry import open_named
from ctxkernel.testing import Turns
from ctxkernel.testing.renderings import opened, render, written

"""From so many tokens on there is room for how to get what was cut, beside a remark on the position."""
WHOLE = 45
"""No mark of these targets takes more."""
MODULE = '"""Ships."""\nimport os\n\n' + "".join(
    f"class C{n}:\n    def m(self, a: int):\n        return a\n\n" for n in range(40)
)


class Facts(FactsSource):
    """A hundred facts."""

    kind = "stand-in"

    def value(self) -> list[str]:
        return [f"fact {n}: {n * n}" for n in range(100)]

    structure = summary = value


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("zoo")
    cells = [{"cell_type": "code", "source": f"x = {n}\nprint(x)", "execution_count": n} for n in range(30)]
    levels = ("INFO", "WARNING", "ERROR")
    log = "".join(f"2024-01-02 03:04:{n % 60:02} {levels[n % 3]} step {n} done\n" for n in range(200))
    rows = "".join(json.dumps({"a": n, "b": str(n)}) + "\n" for n in range(50))
    table = "id,name,x\n" + "".join(f"{n},n{n % 3},{n / 7}\n" for n in range(300))
    tree = folder / "tree"
    (tree / "below").mkdir(parents=True)
    for n in range(12):
        written(tree / f"file{n}.txt", "text")
        written(tree / "below" / f"inner{n}.txt", "text")
    return {
        "module": written(folder / "m.py", MODULE),
        "paper": written(folder / "p.md", "# Head\n\nSome text here. And more.\n\n## Sub\n\n* a\n" * 30),
        "table": written(folder / "t.csv", table),
        "json": written(folder / "d.json", json.dumps({f"k{n}": [n] for n in range(60)}, indent=1)),
        "rows": written(folder / "r.jsonl", rows),
        "log": written(folder / "run.log", log),
        "long": written(folder / "long.txt", "word " * 5000),
        "notebook": written(folder / "n.ipynb", json.dumps({"cells": cells, "nbformat": 4})),
        "binary": written(folder / "b.bin", bytes(range(256)) * 4),
        "folder": tree,
        "glob": str(tree / "**" / "*.txt"),
        "frame": pandas.DataFrame({f"c{n}": range(100) for n in range(12)}),
        "array": numpy.arange(2000).reshape(100, 20),
        "dict": {f"key{n}": list(range(n)) for n in range(60)},
        "function": json.dumps,
        "facts": Facts(None, "facts"),
    }


KINDS = [
    *("module", "paper", "table", "json", "rows", "log", "long", "notebook", "binary", "folder", "glob"),
    *("frame", "array", "dict", "function", "facts"),
]


@settings(max_examples=examples(250))
@given(kind=st.sampled_from(KINDS), lod=st.integers(0, 3), tokens=st.integers(1, 200), pos=st.sampled_from(["0", "7"]))
def test_what_was_cut_is_marked_at_every_budget(zoo: dict[str, Any], kind: str, lod: int, tokens: int, pos: str):
    """Within the budget, which `render` checks; with the next move where there is room for it."""
    source = opened(zoo[kind], kind)

    shown = render(source, lod, pos, tokens)

    if shown.cut_tokens:
        one_line = "\n" not in source.render(RenderRequest(lod, pos, 100_000)).text
        assert "…" in shown.text
        heading = count_tokens(shown.text.partition("\n")[0]) if lod == 3 else 0  # that nothing was rendered before
        advised = advises(within_reserve(tokens) - heading)
        assert not advised or one_line or re.search(r"h\.(tokens|pos)\b", shown.text)
        assert tokens < WHOLE or one_line or re.search(r"\[… .*(~[\d,]+ tokens|more columns|h\.tokens).*\]", shown.text)


def test_every_kind_of_the_zoo_is_tried(zoo: dict[str, Any]):
    assert set(KINDS) == set(zoo)


@given(
    text=st.lists(st.text("ab 1é", max_size=30), max_size=8).map("\n".join),
    mark=st.sampled_from(["", '[… 12 more lines, ~90 tokens; h.pos = "5" goes on, h.tokens shows more]']),
    budget=st.integers(1, 80),
)
def test_a_mark_that_fits_stands_whole_unless_its_count_would_be_false(text: str, mark: str, budget: int):
    marks = shorter(mark, "g1")

    cut = cut_to(text, marks, budget, count_tokens, trim_to_tokens)

    assert count_tokens(cut) <= budget
    whole = bool(marks) and count_tokens(f"{text}\n{marks[0]}") <= budget
    # What is counted would be too little where the text above is truncated.
    fitting = [one for one in marks[bool(mark) and not whole :] if count_tokens(one) <= budget]
    assert not fitting or parted("above\n" + cut.rpartition("\n")[2])[1] == fitting[0]
    assert fitting or cut.endswith("…")


def grouped(tokens: int, lod: int, members: int) -> Any:
    turns = Turns()
    graph = turns.loop.graph
    graph.open_source = lambda target: open_named(target, turns.namespace)
    graph.count_tokens, graph.trim = count_tokens, trim_to_tokens
    texts = [io.StringIO("\n".join(f"line {n} of many words" for n in range(100))) for _ in range(members)]
    turns.namespace["texts"] = texts
    turns.run(f"hs = [view(one) for one in texts]; g = group(*hs, tokens={tokens}, lod={lod})")
    return turns.namespace["g"]


@settings(max_examples=examples(60))
@given(tokens=st.integers(1, 600), lod=st.integers(0, 3), members=st.integers(1, 12))
def test_a_group_marks_what_it_left_out_at_every_budget(tokens: int, lod: int, members: int):
    shown = grouped(tokens, lod, members).rendered

    assert shown.tokens == count_tokens(shown.text) <= tokens
    assert shown.cut_tokens == 0 or "…" in shown.text
    advised = re.search(r"(tokens shows more|goes on)\]", shown.text)
    share = within_reserve(tokens) // members - 50  # of a member, without the lines of the group
    assert shown.cut_tokens == 0 or not advises(share) or advised


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lod", [0, 1])
def test_where_a_rendering_goes_on_is_always_further_on_in_any_budget(zoo: dict[str, Any], kind: str, lod: int):
    source = open_named(zoo[kind], {})
    for budget in (5, 20, 30, 40, 50, 60, 80, 100, 150):
        passed = [pos := "0:0"]
        for _ in range(12):
            shown = source.render(RenderRequest(lod, pos, budget))
            if shown.next_pos is None:
                assert " goes on" not in shown.text.rpartition("\n")[2]
                break
            pos = shown.next_pos
            assert pos not in passed, f"{budget} tokens at {passed[-1]} go on at {pos}: {shown.text}"
            passed.append(pos)


PARAGRAPH = "The quick brown fox jumps over the lazy dog again and again. " * 6


@pytest.mark.parametrize(
    "text", [PARAGRAPH, f"{PARAGRAPH}\n\nA second one.", "first\nsecond of it\n" + "x" * 300, "x" * 300]
)
@pytest.mark.parametrize("tokens", [60, 100, 120, 4000, All])
def test_of_paragraphs_that_are_shown_by_their_beginnings_the_rest_is_marked(text: str, tokens: Any):
    shown = render(text, 1, tokens=tokens)

    lines = text.split("\n")
    assert all(line in shown.text for line in lines) or re.search(
        r"^\[… |^--- from line 0, \d of", shown.text, re.MULTILINE
    )


def test_paragraphs_that_are_shown_whole_have_no_mark():
    assert "[…" not in render("\n\n".join(f"Sentence {n}." for n in range(40)), 1, tokens=All).text


@pytest.mark.parametrize("tokens", [50, 60, 80, 120])
def test_of_a_long_line_as_much_is_shown_as_there_is_room_for(tokens: int):
    shown = render("x" * 3000, 0, tokens=tokens)

    assert shown.text.count("x") >= 30
    assert "[… " in shown.text
    assert shown.cut_tokens


@pytest.mark.parametrize("lod", [0, 1, 2])
def test_what_a_large_text_has_that_is_no_utf8_is_said_wherever_it_is_shown(tmp_path: Path, lod: int):
    ascii_part = b"a line of plain letters here\n" * 40_000
    western = written(tmp_path / "west.txt", ascii_part + "caf\xe9 ol\xe9 line\n".encode("cp1252") * 300_000)
    level = "2024-01-02 03:04:05 INFO step done\n" * 40_000 + "2024-01-02 03:04:05 ERROR caf\xe9 shut\n" * 90_000
    log = written(tmp_path / "west.log", level.encode("cp1252"))

    for path, pos in ((western, "/caf/"), (western, "end"), (log, "end")):
        shown = render(path, lod, pos, tokens=400)
        assert ("\ufffd" in shown.text) == ("U+FFFD" in shown.text)
        assert lod or "U+FFFD" in shown.text
    assert "U+FFFD" not in render(western, lod, tokens=400).text


def test_a_map_of_code_marks_the_docstrings_and_signatures_that_it_leaves_out(tmp_path: Path):
    for n in range(12):
        written(
            tmp_path / f"m{n}.py",
            "".join(f'def f{n}_{k}(a: int, b: int):\n    """Do {k} of it."""\n\n\n' for k in range(4)),
        )
    source = opened(tmp_path)
    for tokens in (200, 400, 800, 1200, 4000):
        shown = render(source, 1, tokens=tokens)
        told = shown.text.count(" — Do ")
        left = re.search(r"(\d+) more symbols", shown.text)
        unnamed = int(left[1]) if left else 0
        details = re.search(r"details of (\d+) symbols", shown.text)
        assert told + unnamed + (int(details[1]) if details else 0) == 48, shown.text


def test_what_is_known_of_some_lines_of_json_only_has_the_sign_of_a_sample(tmp_path: Path):
    rows = (json.dumps({"id": n, "name": f"n{n % 7}", "gap": None if n * n % 5 else 1}) + "\n" for n in range(130_000))
    large = written(tmp_path / "a.jsonl", "".join(rows))

    for lod in (1, 2):
        shown = render(large, lod, tokens=400).text
        assert re.search(r"id: int, ~0 … \d+\n", shown)
        assert "name: text, ~7 distinct" in shown
        assert "null in ~" in shown
