"""Log files at level 1: times, levels, and the kinds of entries."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.sources.base.file_reader import make_text
from ctxkernel.sources.outlines.outline import log_outline
from ctxkernel.testing.renderings import render, written

TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: bad batch\n'
PYTHON = "".join(
    f"2026-11-22 10:{n // 60:02d}:{n % 60:02d},001 {'ERROR' if n % 50 == 7 else 'INFO'} step: {n} of 300\n"
    + (TRACE if n % 50 == 7 else "")
    for n in range(300)
)
KINDS = [
    ("[2026-11-22T10:00:{n:02d}Z] [info] thing {n}", "levels: INFO 40"),
    ("W1122 10:00:{n:02d}.000 1 main.go:{n}] slow", "levels: WARNING 40"),
    ("Nov 22 10:00:{n:02d} host sshd[{n}]: opened", "Nov 22 10:00:00 … Nov 22 10:00:39"),
    (
        '10.0.0.{n} - - [10/Oct/2000:13:55:{n:02d} -0700] "GET /a HTTP/1.0" 200 1',
        "10/Oct/2000:13:55:00 … 10/Oct/2000:13:55:39",
    ),
    ("ERROR: no file {n}", "levels: ERROR 40"),
    ('ts=2026-11-22T10:00:{n:02d}Z level=warn msg="slow {n}"', "levels: WARNING 40"),
    ("level=error code={n}", "levels: ERROR 40"),
    ('{{"ts": "2026-11-22T10:00:{n:02d}", "level": "critical", "n": {n}}}', "levels: CRITICAL 40"),
    ('{{"levelname":"INFO","n":{n}}}', "levels: INFO 40"),
]


def outline_of(text: str):
    return log_outline(make_text(text, size=len(text), fingerprint="x"))


def test_a_log_is_its_levels_and_its_kinds_of_errors(tmp_path):
    text = render(written(tmp_path / "train.log", PYTHON), 1).text

    assert "log, 300 entries, 2026-11-22 10:00:00,001 … 2026-11-22 10:04:59,001" in text
    assert "levels: ERROR 6 · INFO 294" in text
    assert "7 2026-11-22 10:00:07,001 ERROR step: 7 of 300 — 5 more like it, the last at 272" in text
    assert text.index("ERROR step") < text.index("INFO step: 0 of 300 — 293 more like it, the last at")


def test_the_time_of_a_log_reaches_from_the_earliest_to_the_latest_of_its_entries(tmp_path):
    late = "2026-11-21 23:59:59,001 INFO step: an entry that was written late\n"
    text = render(written(tmp_path / "train.log", PYTHON + late + PYTHON), 1).text

    assert "2026-11-21 23:59:59,001 … 2026-11-22 10:04:59,001" in text


OTHERS = [
    ("beef{n:06d} - - [2026-11-22 10:00:{n:02d}] INFO a\n", "2026-11-22 10:00:00 … 2026-11-22 10:00:39"),
    ("2026-11-22 10:00:{n:02d} INFO a\n2025-01-02T03:04:05 WARNING b\n", "2026-11-22 10:00:00 … 2025-01-02T03:04:05"),
    ("23:59:{n:02d} INFO a\n00:00:{n:02d} INFO b\n", "23:59:00 … 00:00:39"),
    (
        "2026-10-25T02:59:{n:02d}+02:00 INFO a\n2026-10-25T02:01:{n:02d}+01:00 INFO b\n",
        "2026-10-25T02:59:00+02:00 … 2026-10-25T02:01:39+01:00",
    ),
]


@pytest.mark.parametrize(("lines", "told"), OTHERS, ids=["after an id", "in two forms", "without a day", "offsets"])
def test_times_that_have_no_known_order_are_told_by_the_first_and_the_last_one(tmp_path, lines: str, told: str):
    text = "".join(lines.format(n=n) for n in range(40))

    assert f", {told}\n" in render(written(tmp_path / "a.log", text), 1).text


@pytest.mark.parametrize(("line", "told"), KINDS, ids=[told for _, told in KINDS])
def test_logs_of_many_programs_are_told_as_logs(line: str, told: str):
    found = outline_of("\n".join(line.format(n=n) for n in range(40)))

    assert found is not None
    assert told in "\n".join(found.head)
    assert found.lines == [f"0 {line.format(n=0)} — 39 more like it, the last at 39".replace("  ", " ")]


@pytest.mark.parametrize("text", ["", "ERROR x\n", "A diary.\n\nThe error was mine.\n" * 30, "1\n2\n3\n" * 30])
def test_what_is_no_log_is_not_told_as_one(text: str):
    assert outline_of(text) is None


@given(
    st.lists(
        st.sampled_from(["2026-01-01 10:00:00 ERROR a 1", "10:00:00 INFO b", "  goes on", "", "\tat x"]), max_size=60
    )
)
def test_every_entry_is_counted_once_and_shown_as_it_stands(lines: list[str]):
    found = outline_of("\n".join(lines))
    begun = [line for line in lines if line[:1].isdigit()]
    if found is None:
        return

    assert f"log, {len(begun)} entries" in found.head[0]
    kinds = [re.fullmatch(r"(\d+) (.*?)(?: — (\d+) more like it, the last at (\d+))?", line) for line in found.lines]
    assert all(kind[2] == lines[int(kind[1])] == lines[int(kind[4] or kind[1])] for kind in kinds)
    assert sum(1 + int(kind[3] or 0) for kind in kinds) == len(begun)


def test_a_padded_number_does_not_make_another_kind_of_entries(tmp_path):
    lines = "".join(f"Jan {day:2} 10:00:00 host app[1]: message {day}\n" for day in range(1, 29))
    text = render(written(tmp_path / "sys.log", lines * 3), 1).text

    assert text.count("more like it") == 1


@pytest.mark.parametrize("name", ["syslog", "run.log.1", "train.txt", "messages"])
def test_a_log_is_told_as_one_whatever_its_file_is_called(tmp_path, name):
    assert "levels: ERROR 6 · INFO 294" in render(written(tmp_path / name, PYTHON), 1).text


@pytest.mark.parametrize(
    "text",
    ["# Diary\n\n10:00 we left.\n\n11:00 we came.\n", "A word on errors.\n" * 40, "12:00:00 lunch\nand more\n" * 3],
)
def test_a_text_with_a_few_times_is_no_log(tmp_path, text):
    assert "log, " not in render(written(tmp_path / "diary.txt", text), 1).text
