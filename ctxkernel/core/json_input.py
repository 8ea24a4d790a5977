"""JSON from a file or message that a stranger may have written.

Rule 1: A text beyond a bound raises ValueError before it is parsed, so it costs no time, memory or stack.
Rule 2: Lone surrogates are kept, as everywhere in this project: encode strings with `surrogatepass`, or clean them.
Rule 3: Of two equal keys of an object the last one counts.
"""

from __future__ import annotations

import json
import math
import re
from typing import NoReturn

from ctxkernel.core.timeline_events import Json

MOST_BYTES = 16 * 1024 * 1024
MOST_DEPTH = 64

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = re.compile(r"[][{}]")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


def load_json(
    text: object, *, most_bytes: int = MOST_BYTES, most_depth: int = MOST_DEPTH, infinite: bool = False
) -> Json:
    """Return the JSON value of a text with at most `most_bytes` characters and `most_depth` nested lists and objects.

    Bytes are UTF-8. NaN and numbers beyond the range of a float are allowed only with `infinite`. Raises ValueError,
    also for anything but a text: a column of SQLite can hold any type.
    """
    if not isinstance(text, str | bytes):
        raise ValueError(f"expected JSON as text, and not {type(text).__name__}")  # noqa: TRY004
    if len(text) > most_bytes:
        raise ValueError(f"JSON of {len(text):,} bytes; at most {most_bytes:,} are read")
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogatepass")
    if text.count("[") + text.count("{") > most_depth and _is_deeper(text, most_depth):
        raise ValueError(f"JSON with more than {most_depth} nested lists and objects")
    try:
        return json.loads(text) if infinite else json.loads(text, parse_float=_finite, parse_constant=_refuse)
    except (RecursionError, MemoryError) as error:  # a deep stack already, or a process near its limit
        raise ValueError(f"JSON that cannot be read here ({type(error).__name__})") from error


def _is_deeper(text: str, most_depth: int) -> bool:
    """Return whether brackets outside strings nest deeper than `most_depth`."""
    depth = 0
    for bracket in _BRACKETS.finditer(_STRINGS.sub("", text)):
        depth += _STEP[bracket[0]]
        if depth > most_depth:
            return True
    return False


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits[:40])


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"JSON with the number {name}")
