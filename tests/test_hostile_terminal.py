"""Hostile texts in every field of a session, as a terminal gets them: no control character comes through.

What a cell prints is the cell's own, and reaches the terminal as it is. This is about what ctxkernel writes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_texts import TEXTS, cells_of, quoted
from kernels import RunningKernel, starter
from scale import share

from ctxkernel.cli import main
from ctxkernel.core.text import escape_hidden, show_hidden, without_surrogates

NAME = "no\u202ete\x1b[2J\x1b]52;c;eA==\x07.ipynb"


@pytest.fixture(scope="module")
def filled(module_folder: Path) -> Iterator[RunningKernel]:
    (module_folder / NAME).write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}))
    with contextlib.contextmanager(starter)(module_folder) as start:
        kernel = start(notebook=NAME)
        for number, (_, text) in enumerate(share(TEXTS.items(), 8)):
            for source in cells_of(number, text):
                kernel.run(source)
        kernel.run(f"%ctx condense {quoted(TEXTS['colours'])}")
        kernel.run("%ctx rerun 1 --yes")
        kernel.run("%ctx goto 5")
        kernel.run("%ctx undo")
        yield kernel


def hidden(text: str) -> list[str]:
    """Return the control characters, and those that are not seen, of a text."""
    lines = [(line, show_hidden(line)) for line in text.split("\n")]
    return [marked[:300] for line, marked in lines if marked != line]


COMMANDS = [
    "status", "timeline", "timeline 500", "projection", "branches", "summaries", "show 1", "show 2", "show 3", "show 4",
    "show 5", "show 8", "why handles", "why not t", "why s1.1", "diff 1 5", "diff projection 1", "condense --show",
    "redact --list", "config", "goto 2 --dry-run", "undo --dry-run", "rerun 3 --dry-run", "checkpoint", "cost",
    "timeline --json", "projection --json", "branches --json", "diff 1 5 --json",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shows_no_control_character(filled: RunningKernel, command: str):
    ran = filled.run(f"%ctx {command}")
    texts = [ran.stdout, ran.stderr, *(text for data in ran.data for text in data.values() if isinstance(text, str))]
    texts += ["\n".join(one["traceback"]) for one in ran.outputs if one["type"] == "error"]
    assert "".join(texts).strip()
    assert [found for text in texts for found in hidden(text)] == []


REFUSED = [
    "show {}",
    "goto {}",
    "config {} 1",
    "checkpoint {}",
    "pin {}",
    "why {}",
    "set {}.lod=1",
    "mark {} asks",
    "{}",
]


@pytest.mark.parametrize("command", REFUSED)
def test_a_refusal_quotes_no_control_character(filled: RunningKernel, command: str):
    for text in ("a\x1b[31mb\u202ec", "x\x07\x08y\u200b"):
        ran = filled.run(f"%ctx {command.format(text)}")
        assert ran.status == "error"
        assert hidden(ran.error["evalue"] if ran.error["ename"] == "CtxError" else "") == []
        traceback = "\n".join(ran.error["traceback"])
        assert hidden(traceback) == []


def test_handles_and_their_table_show_no_control_character(filled: RunningKernel):
    """As text for a terminal, and as HTML: of the file's name, its content, the reason of its pin."""
    for source in ("h0", "h1", "g1", "k2", "ls()", "show(h0)"):
        ran = filled.run(source)
        assert ran.status == "ok"
        for text in ran.data[-1].values():
            assert hidden(text if isinstance(text, str) else "") == [], source


READ = [
    ["timeline"], ["timeline", "--limit", "500"], ["projection"], ["branches"], ["diff", "s1", "s5"], ["verify"],
    ["goto", "s2", "--dry-run"], ["rerun", "s3", "--dry-run"], ["trust"], ["timeline", "--json"],
    ["projection", "--json"], ["check", "no\x1b[31msuch\u202e.json"],
]  # fmt: skip


@pytest.mark.parametrize("words", READ, ids=" ".join)
def test_the_command_line_shows_no_control_character(filled: RunningKernel, words: list[str], capsys: Any):
    place = [] if words[0] == "check" else [str(filled.folder / NAME)]
    with contextlib.suppress(SystemExit):
        main([words[0], *place, *words[1:]])
    told = capsys.readouterr()
    assert (told.out + told.err).strip()
    assert [*hidden(told.out), *hidden(told.err)] == []


def test_marks_and_escapes_are_of_the_same_characters_and_change_no_other_text():
    plain = "def f(x):\n\treturn 'é 日本語 👩‍👧 ❤️ 1️⃣ אב عرب'  # …\r\n"
    assert show_hidden(plain) == escape_hidden(plain) == plain
    for text in TEXTS.values():
        assert (show_hidden(text) == text) == (escape_hidden(text) == text)
        assert hidden(show_hidden(text)) == []
        assert without_surrogates({"a": [text]})["a"][0].encode()
    assert show_hidden("a\u202eb\rc") == "a⟨U+202E⟩b⟨U+000D⟩\nc"
    assert eval(escape_hidden("'a\u202eb\x1b\U000e0041'")) == "a\u202eb\x1b\U000e0041"
