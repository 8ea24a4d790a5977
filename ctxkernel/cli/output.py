"""How the command line speaks: tables, one-line texts, times, colour on a terminal only.

Rule 1: text of cells, files and models is untrusted here too: control characters are shown, never sent to the terminal.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import IO, Any, Literal

Colour = Literal["green", "yellow", "red", "cyan", "dim", "bold"]
_CODES: dict[str, str] = {"green": "32", "yellow": "33", "red": "31", "cyan": "36", "dim": "2", "bold": "1"}
_GAP = "  "


def say(text: str) -> None:
    """Write a line to standard error."""
    print(text, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Write a result to standard output."""
    print(text)


def show_json(value: Any) -> None:
    """Write a result as JSON: ASCII, so that any terminal encoding and any lone surrogate of a cell will do."""
    print(json.dumps(value, indent=2))


def has_colour(stream: IO[str] | None = None) -> bool:
    """Say whether `stream` (standard output) is a terminal whose user wants colour."""
    stream = stream or sys.stdout
    return bool(stream and stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: Colour | None, stream: IO[str] | None = None) -> str:
    """Return `text` in `colour` where `stream` can show it."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if colour and has_colour(stream) else text


def status_colour(status: str) -> Colour | None:
    """The colour of a statement's status or of a check."""
    if status == "ok":
        return "green"
    return "red" if status in ("error", "timeout", "fail") else "yellow"


def one_line(text: str) -> str:
    """Return `text` on one line, without anything that a terminal would obey."""
    line = " ".join(text.split())
    # Cc and Cf hold escapes and the marks that reorder text; Cs cannot be encoded.
    return "".join(
        c if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn") else f"\\u{ord(c):04x}" for c in line
    )


def gist(source: str) -> str:
    """Return a cell in one line: its first line with code, and how many more there are."""
    lines = [line for line in source.splitlines() if line.strip()]
    if not lines:
        return ""
    first = next((line for line in lines if not line.lstrip().startswith("#")), lines[0])
    more = len(lines) - 1
    return one_line(first) + (f" (+{more} line{'s' * (more > 1)})" if more else "")


def safe_block(text: str) -> str:
    """Return `text` with its lines kept and every other control character shown."""
    return "\n".join(
        "".join(c if c == "\t" or c.isprintable() else f"\\u{ord(c):04x}" for c in line) for line in text.splitlines()
    )


def width_of(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def clip(text: str, columns: int) -> str:
    """Return `text` within `columns` (≥ 1), with `…` for what was cut."""
    if width_of(text) <= columns:
        return text
    kept, used = [], 1
    for c in text:
        used += width_of(c)
        if used > columns:
            break
        kept.append(c)
    return "".join(kept) + "…"


def duration(milliseconds: float | None) -> str:
    """Return a time as a person reads it: `8 ms`, `1.2 s`, `3 min 05 s`."""
    if milliseconds is None:
        return ""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def size(nbytes: float) -> str:
    """Return a size as a person reads it: `0 B`, `312 kB`, `1.4 GB` (powers of 1000)."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 999.5:
            return f"{nbytes:.0f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} GB"


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    caps: dict[int, int] | None = None,
    colours: Sequence[Colour | None] | None = None,
    coloured: int = 1,
    dimmed: frozenset[int] = frozenset(),
) -> str:
    """Return aligned columns; the last one takes what is left of the terminal's width and is cut there.

    `right` are the columns aligned right, `caps` the widest that a column may be, `colours` one colour a row,
    for column `coloured`, `dimmed` the rows that stand back.
    """
    caps = caps or {}
    cells = [[clip(one_line(cell), caps.get(i, 10_000)) for i, cell in enumerate(row)] for row in rows]
    widths = [max(width_of(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    total = shutil.get_terminal_size((120, 24)).columns
    widths[-1] = max(12, min(widths[-1], total - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)))

    def line(row: Sequence[str], colour: Colour | None) -> str:
        parts = []
        for i, cell in enumerate(row):
            text = clip(cell, widths[i])
            pad = " " * (widths[i] - width_of(text))
            text = paint(text, colour) if i == coloured else text
            parts.append(pad + text if i in right else text + pad)
        return _GAP.join(parts).rstrip()

    lines = [paint(line(headers, None), "dim")]
    for n, row in enumerate(cells):
        is_dim = n in dimmed
        text = line(row, colours[n] if colours and not is_dim else None)
        lines.append(paint(text, "dim") if is_dim else text)
    return "\n".join(lines)
