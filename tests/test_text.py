"""The text kit: one format each for sizes, durations, counts, lists, tables and truncated texts."""

from __future__ import annotations

import pytest

from ctxkernel.core.text import (
    align,
    format_size,
    format_table,
    join_names,
    one_line,
    plural,
    strip_ansi,
    truncate,
    truncate_middle,
)  # fmt: skip


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (2e9, "2.0 GB"),
     (3.5e15, "3500.0 TB")],
)  # fmt: skip
def test_a_size_has_a_decimal_unit_and_a_digit_after_the_point(nbytes: float, text: str):
    assert format_size(nbytes) == text


def test_counts_and_lists_say_how_many_there_are():
    assert [plural(n, "lines") for n in (0, 1, 1200)] == ["0 lines", "1 line", "1,200 lines"]
    assert [plural(1, noun) for noun in ("more entries", "kinds of entries")] == ["1 more entry", "1 kind of entries"]
    assert join_names("abc", 3) == "a, b, c"
    assert join_names("abcde", 3) == "a, b, c, … 2 more"


def test_a_truncated_text_is_marked_and_keeps_its_limit():
    assert truncate("abcd", 4) == "abcd"
    assert truncate("abcde", 4) == "abc…"
    assert one_line("ab\n  cde", 4) == "ab …"
    assert one_line("a" + " " * 100 + "b", 10) == "a…"
    assert truncate_middle("a" * 1500 + "b" * 1500, 10) == "aaaaa\n[… 2,990 characters left out …]\nbbbbb"


@pytest.mark.parametrize(
    ("text", "plain"),
    [("\x1b[1;31mred\x1b[0m", "red"), ("\x1b]8;;x\x07link\x1b]8;;\x1b\\", "link"), ("\x1b]0;no end", "0;no end"),
     ("\x1bcx", "x")],
)  # fmt: skip
def test_control_sequences_are_removed_and_what_follows_an_open_one_stays(text: str, plain: str):
    assert strip_ansi(text) == plain


def test_columns_are_as_wide_as_their_widest_cell():
    rows = [["", "n"], ["abc", "1"], ["d", "20"]]

    assert align(rows, right=[1], gap=" ") == ["     n", "abc  1", "d   20"]
    assert format_table(rows) == "     n\nabc  1\nd    20"
    assert format_table([]) == ""
