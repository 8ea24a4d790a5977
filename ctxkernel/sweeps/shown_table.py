"""The table of a sweep as our front end draws it: in the panel, in the output of a cell, and in an exported page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NotRequired, TypedDict, cast

from ctxkernel.core.text import one_line
from ctxkernel.sweeps.combinations import text_of
from ctxkernel.sweeps.sweep_table import SweepRow, SweepTable, shown_value

SWEEP_MIME = "application/vnd.ctxkernel.sweep+json"
"""The output of a cell that is the table of a sweep: a `SweepOutput`."""
MOST_ROWS = 2000
_MOST_IMAGE = 300_000
_MOST_IMAGES = 2_000_000
"""Characters of base64 of all figures together."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]+=*")


class SweepValue(TypedDict):
    """A value of a parameter or a collected variable; `number` is null if it is no finite number.

    `image` is the base64 of a PNG file.
    """

    text: str
    number: float | None
    image: NotRequired[str]


class SweepLine(TypedDict):
    """A combination. `values` are those of the parameters, then of the collected variables, in the order of the names.

    `branch` is an argument of `%ctx goto`, null if there is no state; `seconds` and `cpu` include shared cells.
    """

    values: Sequence[SweepValue]
    status: str
    why: str
    branch: str | None
    seconds: float
    cpu: float
    diverged: bool
    output: str


class ShownSweep(TypedDict):
    """The table of a sweep; `more` rows are left out."""

    parameters: Sequence[str]
    collected: Sequence[str]
    rows: Sequence[SweepLine]
    more: int


class SweepOutput(TypedDict):
    """The table in the output of a cell; `session` is the one whose states its rows name."""

    session: str
    sweep: ShownSweep


def shown_sweep(
    table: SweepTable, *, without: Collection[str] = (), text: Callable[[str, str], str] = lambda text, _: text
) -> ShownSweep:
    """Return a table for the front end, without the names in `without`.

    `text` returns a text of a name, or of no name (an empty text), as it is shown.
    """
    parameters = [name for name in table.parameters if name not in without]
    collected = [name for name in table.collected if name not in without]
    room = _MOST_IMAGES
    rows: list[SweepLine] = []
    for row in table.rows[:MOST_ROWS]:
        values = [_value(value := row.parameters.get(name), text(text_of(value), name)) for name in parameters]
        for name in collected:
            told = shown_value(row.collected[name]) if name in row.collected else ""
            one = _value(value := row.collected.get(name), text(told, name))
            if (image := picture_of(value)) and len(image) <= room:
                one["image"] = image
                room -= len(image)
            values.append(one)
        rows.append(_line(row, values, text))
    return {"parameters": parameters, "collected": collected, "rows": rows, "more": max(0, len(table.rows) - MOST_ROWS)}


def _line(row: SweepRow, values: Sequence[SweepValue], text: Callable[[str, str], str]) -> SweepLine:
    return {
        "values": values,
        "status": row.status,
        "why": text(one_line(row.why, 300), ""),
        "branch": row.branch,
        "seconds": row.seconds,
        "cpu": row.cpu,
        "diverged": row.diverged,
        "output": text(row.output, ""),
    }


def _value(value: Any, text: str) -> SweepValue:
    return {"text": one_line(text, 200), "number": float(value) if is_drawn(value) else None}


def is_drawn(value: Any) -> bool:
    """Return whether a value has a place on an axis."""
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


def picture_of(value: Any) -> str:
    """Return the base64 of the PNG file of a collected figure; empty if it is none, or too large."""
    data: Any = cast("dict[str, Any]", value).get("image/png") if isinstance(value, dict) else None
    return data if isinstance(data, str) and len(data) <= _MOST_IMAGE and _BASE64.fullmatch(data) is not None else ""
