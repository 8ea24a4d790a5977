"""The output of the command line: tables, one-line texts, colour on a terminal only.

Rule 1: Text of cells, files and models is untrusted: control characters are shown, never sent to the terminal. `say`
        and `show` let only the colours of `paint` through.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any, Literal

from ctxkernel.core.text import align, clip, one_line, show_hidden, strip_ansi, width_of

Colour = Literal["green", "yellow", "red", "cyan", "dim", "bold"]
_CODES: dict[str, str] = {"green": "32", "yellow": "33", "red": "31", "cyan": "36", "dim": "2", "bold": "1"}
_PAINTED = re.compile(r"(\x1b\[(?:0|1|2|31|32|33|36)m|\n)")
_GAP = "  "


def say(text: str) -> None:
    """Write lines to standard error."""
    print(_printable(text), file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Write a result to standard output."""
    print(_printable(text))


def show_json(value: Any) -> None:
    """Write a result as JSON: ASCII, so that any terminal encoding and any lone surrogate of a cell will do.

    A number that JSON does not have is its name as a text, as in the JSON of protobuf: "NaN", "Infinity", "-Infinity".
    """
    try:
        text = json.dumps(value, indent=2, allow_nan=False)
    except ValueError:
        text = json.dumps(json.loads(json.dumps(value), parse_constant=str), indent=2)
    print(text)


def show_result(value: Any, text: Callable[[], str], *, as_json: bool) -> None:
    """Write a result to standard output: `value` as JSON, else the text."""
    if as_json:
        show_json(value)
    else:
        show(text())


def has_colour(stream: IO[str] | None = None) -> bool:
    """Return whether `stream` (default: standard output) is a terminal whose user wants colour."""
    stream = stream or sys.stdout
    return bool(stream and stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: Colour | None, stream: IO[str] | None = None) -> str:
    """Return `text` in `colour` where `stream` can show it."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if colour and has_colour(stream) else text


def status_colour(status: str) -> Colour | None:
    """Return the colour of a statement's status or of a check."""
    if status == "ok":
        return "green"
    return "red" if status in ("error", "timeout", "fail") else "yellow"


def safe_line(text: str) -> str:
    """Return `text` on one line, with every control character shown."""
    return _escaped(one_line(text, len(text)))


def safe_block(text: str) -> str:
    """Return `text` with its lines kept and every other control character shown."""
    return "\n".join(map(_escaped, text.splitlines()))


def _printable(text: str) -> str:
    """Return `text` with every control character shown, but for line ends and the colours of `paint`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(part if number % 2 else _escaped(part) for number, part in enumerate(_PAINTED.split(text)))


def _escaped(line: str) -> str:
    # Escapes, marks that reorder text and lone surrogates are not printable; blank letters are.
    return show_hidden("".join(c if c == "\t" or c.isprintable() else f"\\u{ord(c):04x}" for c in line))


def terminal_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    caps: dict[int, int] | None = None,
    colours: Sequence[Colour | None] | None = None,
    coloured: int = 1,
    dimmed: frozenset[int] = frozenset(),
) -> str:
    """Return aligned columns; the last one is cut at the width of the terminal.

    `right` are the columns aligned right, `caps` the maximal widths by column, `colours` one colour a row for column
    `coloured`, `dimmed` the rows that are dimmed.
    """
    caps = caps or {}
    cells = [[clip(safe_line(cell), caps.get(i, 10_000)) for i, cell in enumerate(row)] for row in [headers, *rows]]
    before = [max(map(width_of, column)) + len(_GAP) for column in zip(*cells, strict=True)][:-1]
    room = max(12, shutil.get_terminal_size((120, 24)).columns - sum(before))
    dim = {0, *(n + 1 for n in dimmed)}
    for n, row in enumerate(cells):
        row[-1] = clip(row[-1], room)
        if colours and n not in dim:
            row[coloured] = paint(row[coloured], colours[n - 1])
    lines = align(cells, right=right, gap=_GAP, width_of=lambda cell: width_of(strip_ansi(cell)))
    return "\n".join(paint(line, "dim") if n in dim else line for n, line in enumerate(lines))
