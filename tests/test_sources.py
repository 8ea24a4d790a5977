"""Files as sources: four levels of detail, budgets that hold, and positions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import All, RenderRequest
from ctxkernel.core.text_diff import changes, unified
from ctxkernel.testing.renderings import opened, render, written

MODULE = '''"""Ships and their cargo."""

import os
from pathlib import Path

LIMIT = 40


class Ship:
    """A ship that carries things."""

    name: str = "?"

    def load(self, tons: int, *, now: bool = True) -> int:
        """Take `tons` aboard; never more than LIMIT."""
        return min(tons, LIMIT)

    @property
    def full(self) -> bool:
        return False


def depart(ship: Ship) -> None:
    """Leave."""
    ship.load(1)
'''


# --- levels of detail


def test_level_0_shows_lines_from_the_position_and_says_what_is_left(tmp_path):
    file = written(tmp_path / "a.txt", "".join(f"line {i}\n" for i in range(100)))

    first = render(file, pos="10", tokens=99)

    assert first.text.splitlines()[0].endswith("a.txt · lines 10-16 of 100 · 790 B")
    assert "\nline 15\nline 16\n[… 83 more lines, ~" in first.text
    assert first.text.endswith('tokens; h.pos = "17" goes on]')
    assert (first.next_pos, first.cut_tokens > 300) == ("17", True)


def test_following_next_pos_shows_every_line_once_besides_how_a_long_one_begins(tmp_path):
    lines = [f"{i} " + "word " * (i % 40) for i in range(60)]
    file = written(tmp_path / "a.txt", "\n".join(lines) + "\n")
    source = opened(file)
    shown, pos = "", "0"

    while pos is not None:
        rendered = render(source, pos=pos, tokens=104)
        part = rendered.text.split("\n", 1)[1]
        if rendered.next_pos is not None:
            part = part[: part.rindex("\n[…")]
        if part.endswith("…"):  # this line comes whole at the next position
            part = part[: part.rindex("\n")]
        shown += part + ("" if ":" in (rendered.next_pos or "") else "\n")
        pos = rendered.next_pos

    assert shown.splitlines() == [line.rstrip("\n") for line in lines]


def test_level_1_of_python_is_its_symbols_with_signatures_lines_and_docs(tmp_path):
    text = render(written(tmp_path / "ship.py", MODULE), 1, tokens=All).text

    assert text.split(" kB")[0].split("\n")[1:] == [
        '"""Ships and their cargo."""',
        "imports: os, pathlib",
        "5 LIMIT = 40",
        "8 class Ship — A ship that carries things.",
        '11   name: str = "?"',
        "13   def load(self, tons: int, *, now: bool = True) -> int — Take `tons` aboard; never more than LIMIT.",
        "18   @property def full(self) -> bool",
        "22 def depart(ship: Ship) -> None — Leave.",
    ]


def test_level_1_gets_poorer_before_it_is_cut(tmp_path):
    file = written(tmp_path / "ship.py", MODULE * 10)

    rich, poor, poorest = (render(file, 1, tokens=t) for t in (4000, 1300, 150))
    outline = poor.text.split("\n--- from line")[0]

    assert "Take `tons` aboard" in rich.text
    assert "def load" in outline
    assert "Take `tons` aboard" not in outline
    assert "def load" not in poorest.text
    assert "\nclass × 8: Ship, Ship" in poorest.text
    assert rich.cut_tokens == 0 < poor.cut_tokens
    assert all("h.tokens shows more" in r.text for r in (poor, poorest))


def test_level_1_adds_lines_near_the_position(tmp_path):
    text = render(written(tmp_path / "ship.py", MODULE), 1, pos="22").text

    assert text.endswith('--- from line 22 ---\ndef depart(ship: Ship) -> None:\n    """Leave."""\n    ship.load(1)')


STRUCTURES = [
    (
        "notes.md",
        "# Top\nIntro is here. More.\n```\n# no\n```\n## Sub ##\nSetext\n---\n",
        ["0 # Top — Intro is here.", "5   ## Sub ##", "6   Setext"],
    ),
    ("guide.rst", "Title\n=====\n\nText one.\n\nPart\n----\n", ["0 Title — Text one.", "5   Part"]),
    (
        "t.csv",
        "id,when,x\n1,2024-01-02,1.50\n2,2024-01-03,\n",
        ["id: int, 1 … 2", "when: date, 2024-01-02 … 2024-01-03", "x: float, 1 null, 1.50 … 1.50"],
    ),
    ("t.tsv", "a\tb\nx y\t0010\nz\t7\n", ["tab-separated, 2 rows × 2 columns, header row", "b: int, 7 … 0010"]),
    ("s.csv", "1;2\n3;4\n", ["semicolon-separated, 2 rows × 2 columns, no header row", "column 0: int, 1 … 3"]),
    (
        "d.json",
        '{"n": 1.10, "l": [{"k": null}, {"k": 2}]}',
        ["object, 2 keys", "  n: number 1.10", "  l: array, 2 items of object", "      k: int, null in 50.0 %, 2"],
    ),
    (
        "lib.rs",
        "use x;\npub fn area(w: u32) -> u32 {\n}\nstruct Point {\n",
        ["1 pub fn area(w: u32) -> u32", "3 struct Point"],
    ),
    (
        "broken.py",
        "class A:\n    def f(self,\n          x=')'):\n        '''Doc f.'''\n    def g(\nx = '''\ndef no(): pass\n",
        ["0 class A", "1   def f(self, x=')') — Doc f.", "4   def g("],
    ),
]


@pytest.mark.parametrize(("name", "text", "expected"), STRUCTURES, ids=[row[0] for row in STRUCTURES])
def test_level_1_knows_the_structure_of(tmp_path, name: str, text: str, expected: list[str]):
    lines = render(written(tmp_path / name, text), 1).text.split("\n")

    assert [line for line in expected if line not in lines] == []
    assert not any("no()" in line or "# no" in line for line in lines[: lines.index(expected[0]) + len(expected)])


def test_the_python_outline_finds_what_the_parser_finds():
    """The scan against `ast`, over modules of the standard library."""
    import ast

    from ctxkernel.sources.outlines.python_outline import python_outline

    def expected(body, depth):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.lineno - 1, depth, node.name
                if isinstance(node, ast.ClassDef):
                    yield from expected(node.body, depth + 1)
            else:
                for field in ("body", "orelse", "finalbody"):
                    yield from expected(getattr(node, field, []), depth)
                for handler in getattr(node, "handlers", []):
                    yield from expected(handler.body, depth)

    for name in ("abc", "ast", "dataclasses", "enum", "ftplib", "inspect", "tarfile", "typing", "_pyio"):
        source = (Path(os.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        found = {(entry.line, entry.depth, entry.name) for entry in python_outline(source).entries}

        assert set(expected(ast.parse(source).body, 0)) - found == set(), name


def test_level_2_is_cut_out_of_the_text_and_numbers_stay_as_written(tmp_path):
    prose = (
        "Intro.\n\nThe drift of residuals is 0.1250 mm a year since 2019. It was 0.0300.\n\nResiduals drift again.\n"
    )

    text = render(written(tmp_path / "a.txt", prose), 2).text

    assert "- 2: The drift of residuals is 0.1250 mm a year since 2019." in text
    assert all(line.split(": ", 1)[1] in prose for line in text.splitlines()[1:])


def test_level_2_counts_lines_that_differ_in_numbers_only(tmp_path):
    log = "".join(f"2024-01-01 step {i} done\n" for i in range(50)) + "ERROR disk full\n"

    lines = render(written(tmp_path / "run.log", log), 2).text.splitlines()

    assert lines[1:] == ["- 0: 2024-01-01 step 0 done (and 49 lines like it)", "- 50: ERROR disk full"]


def test_level_2_of_a_table_is_statistics_of_its_columns(tmp_path):
    text = render(written(tmp_path / "t.csv", "x,y\n1,a\n2,a\n4,b\n"), 2).text

    assert "- x: int, min 1, 25% 1.5, 50% 2, 75% 3, max 4, mean 2.333333333" in text
    assert "- y: text, 2 distinct, 1 character; most often 'a' ×2, 'b' ×1" in text


def test_level_3_is_the_difference_to_what_was_rendered_before(tmp_path):
    file = written(tmp_path / "a.txt", "one\ntwo\nthree\n")
    source = opened(file)

    new = render(source, 3)
    same = render(source, 3, basis=new.basis)
    written(file, "one\n2\nthree\nfour\n")
    changed = render(source, 3, basis=new.basis)
    file.unlink()
    gone = render(source, 3, basis=changed.basis)

    assert new.text.startswith("[nothing rendered before")
    assert same.text.endswith("a.txt · no change")
    assert "changed, +2 −1 lines · 14 B → 17 B" in changed.text
    assert changed.text.endswith("@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four")
    assert gone.text.endswith("a.txt · missing; was 17 B when rendered last")


@settings(max_examples=examples(150))
@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.lists(st.sampled_from("abcdef"), max_size=30))
def test_a_difference_turns_the_old_lines_into_the_new(old: list[str], new: list[str]):
    out, at = [], 0
    for a, b, c, d in changes(old, new):
        out += old[at:a] + new[c:d]
        at = b
    assert out + old[at:] == new
    assert (unified(old, new) == []) == (old == new)


# --- budgets and positions

BUDGETED = ["module.py", "notes.md", "table.csv", "data.json", "long.txt", "utf.txt", "image.png", "gone.txt", "."]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory) -> Path:
    """A folder with a file of each kind."""
    folder = tmp_path_factory.mktemp("zoo")
    written(folder / "module.py", MODULE * 30)
    written(folder / "notes.md", "# Head\n\nSome text here. And more.\n\n## Sub\n\n* a\n* b\n" * 40)
    written(folder / "table.csv", "id,name,x\n" + "".join(f"{i},n{i % 3},{i / 7}\n" for i in range(500)))
    written(folder / "data.json", '{"a": [1, 2, {"b": "c"}], "d": {"e": 1.5}}')
    written(folder / "long.txt", "x" * 100_000 + "\nend")
    written(folder / "utf.txt", "größe 漢字 ünïcödé …\r\n" * 300)
    written(folder / "image.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4)
    written(folder / "gone.txt", "x")
    return folder


@settings(max_examples=examples(120))
@given(
    name=st.sampled_from(BUDGETED),
    lod=st.integers(0, 3),
    tokens=st.integers(1, 80) | st.integers(1, 5000),
    pos=st.builds(lambda a, b: f"{a}:{b}", st.integers(0, 2000), st.integers(0, 200)) | st.just("@500+3"),
)
def test_a_budget_is_never_exceeded(zoo: Path, name: str, lod: int, tokens: int, pos: str):
    """The checks are in `render`: tokens are those of the text, and within the budget."""
    source = opened(zoo / name if name != "." else zoo)

    rendered = render(source, lod, pos, tokens)

    assert rendered.cut_tokens == 0 or "…" in rendered.text
    assert rendered == render(source, lod, pos, tokens), "and again, from the cache"


@settings(max_examples=examples(60))
@given(text=st.text("ab01 .,\n\r#:()'\"\t=éx", max_size=400), lod=st.integers(0, 2), tokens=st.integers(1, 200))
@pytest.mark.parametrize("suffix", [".py", ".md", ".csv", ".json", ".txt"])
def test_any_text_renders_within_any_budget(tmp_path_factory, suffix: str, text: str, lod: int, tokens: int):
    file = written(tmp_path_factory.mktemp("any") / f"a{suffix}", text)

    render(file, lod, tokens=tokens)


def test_without_a_cap_nothing_is_cut(tmp_path):
    lines = [f"line {i}" for i in range(5000)]

    whole = render(written(tmp_path / "a.txt", "\n".join(lines)), tokens=All)

    assert whole.text.split("\n")[1:] == lines
    assert (whole.cut_tokens, whole.next_pos) == (0, None)


@pytest.mark.parametrize("pos", ["-0", "-x", "x", "1:", "1:2:3", "@", "", "1.5", "@5+x"])
def test_a_position_that_cannot_be_is_refused_with_what_can(tmp_path, pos: str):
    with pytest.raises(BadPolicy, match="give 'line' or 'line:col' counted from 0"):
        render(written(tmp_path / "a.txt", "a\n"), pos=pos)


def test_a_position_past_the_end_shows_the_end_and_says_so(tmp_path):
    text = render(written(tmp_path / "a.txt", "a\nb\n"), pos="99").text

    assert "line 1 of 2 (the position is past the end)" in text
    assert text.endswith("\nb")


def test_bad_policies_are_refused(tmp_path):
    source = opened(written(tmp_path / "a.txt", "a\n"))

    with pytest.raises(BadPolicy, match="choose 0 raw, 1 structure"):
        source.render(RenderRequest(4, "0", 100))
    with pytest.raises(BadPolicy, match="at least 1, or All"):
        source.render(RenderRequest(0, "0", 0))
