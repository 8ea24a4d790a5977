"""What a `.gitignore` leaves out of a folder: as git itself says, where git is there to be asked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.ports import All
from ctxkernel.sources.files import folders
from ctxkernel.sources.files.gitignore import FILE_BYTES, Ignoring, rules_of
from ctxkernel.testing.renderings import opened, render, written

FILES = [
    "a.log", "keep.log", "src/main.py", "src/build/out.o", "build/x.txt", "docs/build/y.txt", "data/raw/1.csv",
    "data/keep.csv", "[x].txt", "#odd.txt", "deep/one/two/three.tmp", "a b.txt", "ärger.md",
]  # fmt: skip
PATTERNS = [
    "*.log", "!keep.log", "build/", "/build", "build", "data/*", "!data/keep.csv", "**/three.tmp", "deep/**",
    "deep/**/three.tmp", "src/*.py", "\\#odd.txt", "\\[x].txt", "[!a-z]*.txt", "# a comment", "", "a b.txt  ", "*/raw",
    "**", "d?cs", "one/", "!*/", "/*.txt", "deep/*/two", "**/build/**", "ä*", "\\!no", "x/", "/",
    "[^a-j]*.log", "[[:alpha:]].log", "*[[:digit:][:punct:]]*", "[[:nothing:]]*", "[k\\-z]*.log", "[]x]*", "[*",
    "build\\", "data\\\\  ", "a b.txt\\  ",
]  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    if shutil.which("git") is None:
        pytest.skip("git is not there to be asked")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        written(folder / name, "text")
    return folder


def ours(folder: Path) -> set[str]:
    """Return the files that are not left out, walked as a view walks them."""
    found: set[str] = set()
    todo = [(folder, Ignoring())]
    while todo:
        at, rules = todo.pop()
        rules = rules.within(str(at))
        for one in at.iterdir():
            if one.name in (".git", ".gitignore") or rules.leaves_out(str(one), one.is_dir()):
                continue
            if one.is_dir():
                todo.append((one, rules))
            else:
                found.add(one.relative_to(folder).as_posix())
    return found


@settings(max_examples=examples(60), deadline=None)
@given(
    above=st.lists(st.sampled_from(PATTERNS), max_size=6),
    below=st.lists(st.sampled_from(PATTERNS), max_size=3),
    where=st.sampled_from(["data", "deep/one", "src"]),
)
def test_what_is_left_out_is_what_git_leaves_out(tree: Path, above: list[str], below: list[str], where: str):
    for path, lines in ((tree / ".gitignore", above), (tree / where / ".gitignore", below)):
        written(path, "\n".join(lines) + "\n")
    try:
        listed = subprocess.run(
            ["git", "-c", "core.excludesFile=", "ls-files", "-z", "--others", "--exclude-standard"],
            cwd=tree, capture_output=True, check=True,
        ).stdout.decode()  # fmt: skip
    finally:
        mine = ours(tree)
        (tree / where / ".gitignore").unlink()

    assert mine == {name for name in listed.split("\0") if name and not name.endswith(".gitignore")}


def test_a_rule_made_to_hurt_is_matched_in_a_moment():
    rules = rules_of("*a*a*a*a*a*a*a*a*a*a*a*b\n" + "/".join(["**", "a"] * 30))

    assert not any(rule.matches(["a" * 250] * 30, folder=False) for rule in rules)


@pytest.mark.parametrize(
    "text", ["a" + " " * 60_000 + "x", "[" * 60_000, "[a-" * 20_000, "\\" * 60_001, "?*" * 30_000, "**/" * 20_000 + "x"]
)
def test_a_line_that_no_path_could_be_as_long_as_is_no_rule(text: str):
    """Each of these took from a second to minutes, at the end of every cell."""
    assert rules_of(text) == []
    assert rules_of(text + "\n*.log")[0].matches(["a.log"], folder=False)


def test_a_rule_that_the_end_of_what_is_read_goes_through_is_none(tmp_path):
    written(tmp_path / "b.txt", "text")
    written(tmp_path / ".gitignore", "#" * (FILE_BYTES - 3) + "\n*.log\n")

    assert "b.txt" in render(tmp_path, 1, tokens=All).text


def test_a_folder_of_very_many_ignored_files_is_looked_through_up_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "MOST_NAMES", 5)
    for at in range(3):
        (tmp_path / f"run{at}").mkdir()
        for name in ("a.o", "b.o", "c.o", "d.txt"):
            written(tmp_path / f"run{at}" / name, "text")
    written(tmp_path / ".gitignore", "*.o\n")

    shown = render(tmp_path, 1, tokens=All)

    assert "5 ignored (.gitignore), the rest not looked at" in shown.text
    assert "run0/" in shown.text and "run2/" not in shown.text


def test_a_folder_counts_what_it_leaves_out_and_follows_its_rules(tmp_path):
    for name in ("a.log", "b.txt", "build/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path / name, "text")
    source = opened(tmp_path)
    before, stamp = render(source, 1, tokens=All).text, source.stamp()

    written(tmp_path / ".gitignore", "*.log\nbuild/\n")

    assert source.stamp() != stamp
    shown = render(source, 1, tokens=All).text
    assert "a.log" in before and "c.txt" in before
    assert shown.split("\n")[1:] == [".gitignore · 13 B", "b.txt · 4 B"]
    assert "2 ignored (.gitignore)" in shown.split("\n")[0]
    stamp = source.stamp()
    written(tmp_path / ".gitignore", "*.log\n# build\n")
    assert source.stamp() != stamp


def test_rules_of_the_repository_count_in_a_folder_of_it_unless_they_leave_that_folder_out(tmp_path):
    (tmp_path / ".git").mkdir()
    written(tmp_path / ".gitignore", "*.log\n/out/\n")
    for folder in ("src", "out"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder / "a.log", "text")
        written(tmp_path / folder / "b.txt", "text")

    assert render(tmp_path, tokens=All).text.split("\n")[1:] == [".git/ (not entered)", ".gitignore · 12 B", "src/"]
    assert render(tmp_path / "src", tokens=All).text.split("\n")[1:] == ["b.txt · 4 B"]
    assert render(tmp_path / "out", tokens=All).text.split("\n")[1:] == ["a.log · 4 B", "b.txt · 4 B"]
