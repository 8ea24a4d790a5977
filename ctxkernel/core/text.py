"""Text for people: sizes, times, lists, tables, and long texts made short.

Rule 1: pure. A time arrives as an argument.
Rule 2: one function for each format: no other module formats sizes, durations, counts or tables.
"""

from __future__ import annotations

import datetime
import difflib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

_CONTROL_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-_a-z])")
"""CSI sequences, OSC sequences up to their end, other escapes of two characters. Of an OSC sequence without an end
only the two characters are removed."""


# Characters that are not seen or that reorder their line: controls, soft hyphen, joiners, marks and overrides of
# direction, blank letters, variation selectors, tags; but not those that join the parts of an emoji. The front end has
# the same (lab/app/text.js).
_EMOJI = "\u00a9\u00ae\u203c-\u3299\ufe0f\U0001f000-\U0001faff"
_HIDDEN = re.compile(
    r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    rf"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]|(?<![{_EMOJI}])\u200d|(?<![{_EMOJI}\d#*])[\ufe00-\ufe0f]"
)
_BREAKS = frozenset("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
"""Hidden characters at which Python or IPython begins another line."""
_SURROGATES = re.compile("[\ud800-\udfff]")
_AnyMapping: TypeAlias = Mapping[Any, Any]


def show_hidden(text: str) -> str:
    """Return `text` with each character that is not seen, or that reorders its line, as a mark such as `⟨U+202E⟩`."""
    if (text.isascii() and text.isprintable()) or not _HIDDEN.search(text):
        return text
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩{chr(10) * (found[0] in _BREAKS)}", text)


def escape_hidden(code: str) -> str:
    r"""Return Python code with these characters as escapes (`\u202e`), or as line breaks where they are some."""

    def escaped(found: re.Match[str]) -> str:
        number = ord(found[0])
        return "\n" if found[0] in _BREAKS else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"

    return _HIDDEN.sub(escaped, code)


def without_surrogates(value: Any) -> Any:
    """Return a JSON value with lone surrogates of its texts as U+FFFD: no message can carry them."""
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATES.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {without_surrogates(key): without_surrogates(one) for key, one in cast("_AnyMapping", value).items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(one) for one in cast("list[Any]", value)]
    return value


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
    """Return `1 line`, `1 entry`, `1 kind of files`, `1,200 lines`: `noun` is in the plural."""
    counted, of, rest = noun.partition(" of ")
    one = f"{counted[:-3]}y" if counted.endswith("ies") else counted.removesuffix("s")
    return f"{count:,} {f'{one}{of}{rest}' if count == 1 else noun}"


def span_of(low: int, high: int, noun: str) -> str:
    """Return `2–5 items`; of two equal numbers one: `1 item`."""
    return f"{low:,}–{high:,} {noun}" if low != high else plural(high, noun)


def join_names(names: Collection[str], limit: int = 8) -> str:
    """Return `a, b, c`; of more than `limit` names the first ones and how many are left out: `a, b, … 3 more`."""
    shown = ", ".join(list(names)[:limit])
    return shown if len(names) <= limit else f"{shown}, … {len(names) - limit:,} more"


def first_lines(lines: Sequence[str], limit: int = 200, *, indent: int = 0) -> list[str]:
    """Return the lines; of more than `limit` the first ones, and a line that says how many are left out."""
    left = len(lines) - limit
    return [*lines[:limit], f"{' ' * indent}… {left:,} more; --json has all"] if left > 0 else list(lines)


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


def width_of(text: str) -> int:
    """Return the columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def clip(text: str, columns: int) -> str:
    """Return `text` within `columns` (≥ 1) of a terminal; `…` stands for the rest."""
    if width_of(text) <= columns:
        return text
    used = 1
    for at, c in enumerate(text):
        used += width_of(c)
        if used > columns:
            return text[:at] + "…"
    return text


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
