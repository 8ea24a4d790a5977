"""Text for people: sizes, times, lists, tables, and long texts made short.

Rule 1: pure. A time arrives as an argument.
Rule 2: one function for each format: no other module formats sizes, durations, counts or tables.
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence

_CONTROL_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-_a-z])")
"""CSI sequences, OSC sequences up to their end, other escapes of two characters. Of an OSC sequence without an end
only the two characters are removed."""


def format_size(nbytes: float) -> str:
    """Return a number of bytes in decimal units: `812 B`, `12.3 kB`, `2.0 GB`."""
    if nbytes < 1000:
        return f"{nbytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        nbytes /= 1000
        if nbytes < 999.95:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1000:.1f} TB"


def format_shape(sides: Iterable[int]) -> str:
    """Return the shape of an array: `1,000 × 3`; `scalar` where it has no axes."""
    return " × ".join(f"{side:,}" for side in sides) or "scalar"


def format_duration(seconds: float) -> str:
    """Return a duration: `8 ms`, `1.2 s`, `3 min 05 s`, `2 h 05 min`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def format_time(timestamp: float) -> str:
    """Return the local time of day, `14:03:59`."""
    return datetime.datetime.fromtimestamp(timestamp).strftime("%H:%M:%S")


def format_date(timestamp: float) -> str:
    """Return the local date and time, `2026-10-07 14:03`."""
    return datetime.datetime.fromtimestamp(timestamp).strftime("%Y-%m-%d %H:%M")


def plural(count: int, noun: str) -> str:
    """Return `1 line`, `1,200 lines`: `noun` is in the plural and ends in `s`."""
    return f"{count:,} {noun if count != 1 else noun.removesuffix('s')}"


def join_names(names: Collection[str], limit: int = 8) -> str:
    """Return `a, b, c`; of more than `limit` names the first ones and how many are left out: `a, b, … 3 more`."""
    shown = ", ".join(list(names)[:limit])
    return shown if len(names) <= limit else f"{shown}, … {len(names) - limit:,} more"


def truncate(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, the last of them `…` if it is longer."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def one_line(text: str, limit: int = 160) -> str:
    """Return `text` on one line of at most `limit` characters, with `…` where it is truncated."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else line[: limit - 1] + "…"


def truncate_middle(text: str, limit: int) -> str:
    """Return `text`, or its two ends, `limit` characters together, and between them how many are left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[len(text) - half :]}"


def strip_ansi(text: str) -> str:
    """Return `text` without the control sequences of a terminal."""
    return _CONTROL_SEQUENCE.sub("", text) if "\x1b" in text else text


def align(
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    gap: str = "  ",
    width_of: Callable[[str], int] = len,
) -> list[str]:
    """Return rows of equal length as lines in columns. `right` are the columns that are aligned right."""
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]

    def padded(row: Sequence[str]) -> list[str]:
        blanks = [" " * (width - width_of(cell)) for cell, width in zip(row, widths, strict=True)]
        return [
            pad + cell if at in right else cell + pad for at, (cell, pad) in enumerate(zip(row, blanks, strict=True))
        ]

    return [gap.join(padded(row)).rstrip() for row in rows]


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of equal length as text in columns."""
    return "\n".join(align(rows))


def suggest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean …?)` with the word in `known` that is most like `word`; empty where none is."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""
