"""Scrolling by tokens: how far a move goes, what the way back brings, and what it may cost."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.errors import BadPolicy
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base import large_files
from ctxkernel.sources.base.amounts import moved
from ctxkernel.sources.base.large_files import LargeFile
from ctxkernel.sources.base.rendering import Place, parse_place
from ctxkernel.sources.registry import open_named
from ctxkernel.testing import Turns
from ctxkernel.testing.renderings import opened, render, written

LINES = st.lists(st.text("ab 1\u00e9\U0001f600,", max_size=40), min_size=1, max_size=60)
TOKENS = st.integers(1, 300)


def cost(lines: list[str]) -> int:
    return count_tokens("\n".join(lines))


@given(lines=LINES, tokens=TOKENS, at=st.integers(0, 70))
def test_a_move_is_the_most_lines_that_are_within_the_tokens_and_at_least_one(lines, tokens: int, at: int):
    start = min(at, len(lines) - 1)
    on, before = moved(lines, at, tokens), moved(lines, start, -tokens)

    assert start <= on < len(lines)
    assert on == len(lines) - 1 or on > start
    assert on == start + 1 or cost(lines[start:on]) <= tokens
    assert on == len(lines) - 1 or cost(lines[start : on + 1]) > tokens
    assert 0 <= before < max(start, 1)
    assert before >= start - 1 or cost(lines[before:start]) <= tokens
    assert before == 0 or cost(lines[before - 1 : start]) > tokens


@given(lines=LINES, tokens=TOKENS, at=st.integers(0, 70))
def test_the_way_back_passes_nothing_over(lines, tokens: int, at: int):
    """A move back after the same move forward ends where that began or before, and never further than it reaches."""
    start = min(at, len(lines) - 1)

    there = moved(lines, start, tokens)
    again = moved(lines, there, -tokens)

    assert again <= start
    assert again == start or cost(lines[again:there]) <= tokens or again == there - 1


@settings(max_examples=examples(60))
@given(lines=LINES, tokens=TOKENS, at=st.integers(0, 70), by_offset=st.booleans(), ends=st.sampled_from(["\n", "\r\n"]))
def test_a_file_read_in_windows_moves_as_one_that_is_held_whole(tmp_path_factory, lines, tokens, at, by_offset, ends):
    """By line, and by the byte that a rendering of what lies further on gives."""
    path = tmp_path_factory.getbasetemp() / "scrolled.txt"
    path.write_bytes("".join(line + ends for line in lines).encode())
    offsets = [len("".join(line + ends for line in lines[:k]).encode()) for k in range(len(lines))]
    start = min(at, len(lines) - 1)
    place = Place(offset=offsets[start]) if by_offset else Place(start)

    for n in (tokens, -tokens):
        found = parse_place(LargeFile(str(path)).further(place, n) or "")
        assert found is not None
        line = found.line if found.offset is None else offsets.index(found.offset)
        assert line == moved(lines, start, n)


def test_a_line_longer_than_a_window_is_moved_through_by_windows(tmp_path, monkeypatch):
    monkeypatch.setattr(large_files, "WINDOW_BYTES", 10_000)
    path = written(tmp_path / "a.txt", "first\n" + "x" * 35_000 + "\nlast\n")
    large, place, seen = LargeFile(str(path)), "0", ["0"]

    for tokens in [5] * 6 + [-5] * 8:
        found = parse_place(place)
        assert found is not None
        place = large.further(found, tokens) or "gone"
        seen.append(place)

    assert seen[:7] == ["0", "1", "@10006", "@20006", "@30006", "2", "2"]
    assert seen[7:12] == ["@25007", "@15007", "@5007", "0", "0"]


def test_a_huge_file_is_read_for_a_window_at_most(tmp_path, monkeypatch):
    """A sparse gigabyte: what is read is counted."""
    path = tmp_path / "huge.log"
    with path.open("wb") as file:
        file.write(b"line of a log\n" * 100_000)
        file.truncate(1 << 30)
    read: list[int] = []
    plain = large_files.read_at
    monkeypatch.setattr(large_files, "read_at", lambda *args: read.append(args[2]) or plain(*args))
    h: Any = opened(path)
    render(h)
    read.clear()

    for place, tokens in (("5", 10**9), ("@900000000", 10**6), ("@900000000", -(10**6)), ("50000", -100), ("7", 100)):
        assert h.further(place, tokens) not in (None, place)

    assert sum(read) < 8 * large_files.WINDOW_BYTES + large_files.SCAN_BYTES


def scrolled(target: Any, code: str) -> Any:
    turns = Turns()
    turns.loop.graph.open_source = lambda target: open_named(target, turns.namespace)
    turns.namespace["target"] = target
    turns.run(f"h = view(target); {code}")
    return turns.namespace["h"]


NOTES = [f"note {n} of some words" for n in range(50)]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (io.StringIO("\n".join(NOTES)), NOTES),
        (dict(enumerate(NOTES)), [f"{n}: {note!r}" for n, note in enumerate(NOTES)]),
    ],
)
@pytest.mark.parametrize("lod", [0, 1])
def test_a_view_scrolls_by_the_text_of_its_target_at_every_level(target: Any, text: list[str], lod: int):
    h = scrolled(target, f"h.lod = {lod}; h.scroll(delta_tokens=60)")

    line = int(h.pos.partition(":")[0])
    assert cost(text[:line]) <= 60 < cost(text[: line + 1])


def test_entries_of_a_folder_are_what_it_scrolls_by(tmp_path: Path):
    for name in "abcdef":
        written(tmp_path / f"{name}.txt", "text")

    entries = [f"{name}.txt · 4 B" for name in "abcdef"]

    assert scrolled(str(tmp_path), f"h.scroll(delta_tokens={cost(entries[:2])})").pos == "2:0"
    assert scrolled(str(tmp_path), f"h.pos = 'f.txt'; h.scroll(delta_tokens=-{cost(entries[2:5])})").pos == "2:0"


def test_the_tree_of_a_folder_is_scrolled_by_its_own_lines(tmp_path: Path):
    for name in ("a.txt", "sub/b.txt", "sub/c.txt", "sub/d.txt", "z.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path / name, "text")
    tree = ["a.txt · 4 B", "sub/", "  b.txt · 4 B", "  c.txt · 4 B"]
    code = f"h.lod = 1; h.scroll(delta_tokens={cost(tree)})"

    assert scrolled(str(tmp_path), code).pos == "1:3"
    assert scrolled(str(tmp_path), f"{code}; h.scroll(delta_tokens=-{cost(tree)})").pos == "0:0"
    assert scrolled(str(tmp_path), code.replace("h.lod = 1; ", "")).pos == "2:0"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("h.scroll(1, delta_tokens=1)", "not both"),
        ("h.scroll(delta_tokens=1.5)", "give a whole number"),
        ("h.scroll(delta_tokens=True)", "give a whole number"),
    ],
)
def test_what_is_no_number_of_tokens_is_refused(call: str, said: str):
    with pytest.raises(BadPolicy, match=re.escape(said)):
        scrolled(io.StringIO("a\nb"), call)
