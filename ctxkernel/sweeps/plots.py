"""Small plots of a sweep as SVG: one for each collected number and each parameter, and the figures that were collected.

Rule: names and values are untrusted: they are escaped, and images are base64 of a known form. There is no script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from ctxkernel.core.text import one_line, show_hidden
from ctxkernel.sweeps.combinations import text_of
from ctxkernel.sweeps.shown_table import is_drawn, picture_of
from ctxkernel.sweeps.sweep_table import SweepRow, SweepTable

MOST_PLOTS = 12
MOST_FIGURES = 24
MOST_POINTS = 2000
_WIDTH, _HEIGHT = 190, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 18, 22
_COLOURS = ("#1f77b4", "#d9822b", "#3d9970", "#b10dc9", "#85144b", "#7f7f7f")


def plots_html(table: SweepTable) -> str:
    """Return the plots; empty if nothing can be drawn."""
    rows = [row for row in table.rows if row.status == "ok"][:MOST_POINTS]
    made = [_plot(rows, name, value) for value in _numbers(rows) for name in _parameters(rows)][:MOST_PLOTS]
    made += [_figure(row, value) for row in rows for value in row.collected.values() if picture_of(value)][
        :MOST_FIGURES
    ]
    if not made:
        return ""
    return f'<div class="ctxk-sweep" style="display:flex;flex-wrap:wrap;gap:8px">{"".join(made)}</div>'


def _numbers(rows: Sequence[SweepRow]) -> list[str]:
    """Return the collected names that are numbers in most rows."""
    names = list(dict.fromkeys(name for row in rows for name in row.collected))
    return [name for name in names if sum(is_drawn(row.collected.get(name)) for row in rows) * 2 > len(rows)]


def _parameters(rows: Sequence[SweepRow]) -> list[str]:
    """Return the parameters that have several values."""
    names = list(rows[0].parameters) if rows else []
    return [name for name in names if len({text_of(row.parameters[name]) for row in rows}) > 1]


def _plot(rows: Sequence[SweepRow], name: str, value: str) -> str:
    """Return a plot of a collected number by a parameter; the colour shows the first other parameter."""
    rows = [row for row in rows if is_drawn(row.collected.get(value))]
    texts = list(dict.fromkeys(text_of(row.parameters[name]) for row in rows))
    numeric = all(is_drawn(row.parameters[name]) for row in rows)
    places = [float(row.parameters[name]) if numeric else texts.index(text_of(row.parameters[name])) for row in rows]
    values = [float(row.collected[value]) for row in rows]
    others = [one for one in _parameters(rows) if one != name]
    groups = [text_of(row.parameters[others[0]]) if others else "" for row in rows]
    colours = list(dict.fromkeys(groups))
    logarithmic = numeric and min(places) > 0 and max(places) / min(places) >= 100
    along = [math.log(one) for one in places] if logarithmic else places
    points = "".join(
        f'<circle cx="{_at(x, along, _LEFT, _WIDTH - _RIGHT):.1f}" cy="{_at(y, values, _HEIGHT - _BOTTOM, _TOP):.1f}" '
        f'r="2.5" fill="{_COLOURS[colours.index(group) % len(_COLOURS)]}" fill-opacity="0.75">'
        f"<title>{_safe(f'{name} = {text_of(row.parameters[name])}, {value} = {y:g}')}</title></circle>"
        for x, y, group, row in zip(along, values, groups, rows, strict=True)
    )
    ends = (
        (f"{min(places):.4g}", f"{max(places):.4g}") if numeric else (one_line(texts[0], 12), one_line(texts[-1], 12))
    )
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    told = f"{value} by {name}{' (log)' if logarithmic else ''}"
    return (
        f'<svg role="img" aria-label="{_safe(told)}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'style="font:9px sans-serif;fill:currentColor" xmlns="http://www.w3.org/2000/svg">'
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>'
        f'<text x="{_LEFT}" y="11" font-weight="bold">{_safe(one_line(told, 30))}</text>'
        f'<text x="{_LEFT - 3}" y="{bottom}" text-anchor="end">{min(values):.3g}</text>'
        f'<text x="{_LEFT - 3}" y="{_TOP + 7}" text-anchor="end">{max(values):.3g}</text>'
        f'<text x="{_LEFT}" y="{bottom + 12}">{_safe(ends[0])}</text>'
        f'<text x="{right}" y="{bottom + 12}" text-anchor="end">{_safe(ends[1])}</text>{points}</svg>'
    )


def _at(value: float, values: Sequence[float], start: float, stop: float) -> float:
    """Return the coordinate of a value on an axis from `start` to `stop`."""
    low, high = min(values), max(values)
    return (start + stop) / 2 if high <= low else start + (value - low) / (high - low) * (stop - start)


def _figure(row: SweepRow, value: Any) -> str:
    told = ", ".join(f"{name} = {text_of(one)}" for name, one in row.parameters.items())
    image = f'<img alt="{_safe(told)}" style="max-width:{_WIDTH}px" src="data:image/png;base64,{picture_of(value)}">'
    return f'<figure style="margin:0">{image}<figcaption style="font-size:9px">{_safe(told)}</figcaption></figure>'


def _safe(text: str) -> str:
    return escape(show_hidden(text))
