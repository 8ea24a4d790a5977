"""The values that a sweep collects, as JSON: numbers and texts as they are, others in one line, figures as an image."""

from __future__ import annotations

import base64
import io
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, cast

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import class_of
from ctxkernel.state.base.namespace import NOTHING

MOST_ITEMS = 1000
"""Items of a list or dict that is collected as it is."""
MOST_CHARS = 10_000
_MOST_DEPTH = 4
_DPI = 72


def collect(names: Iterable[str], value: Callable[[str], Any], mask: Callable[[str], str]) -> dict[str, Any]:
    """Return the values of names; a name without a value is left out."""
    found = {name: value(name) for name in names}
    return {name: _safe(plain_value(one), name, mask) for name, one in found.items() if one is not NOTHING}


def _safe(value: Any, name: str, mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return value if mask(f"{name} = {value!r}") == f"{name} = {value!r}" else "[masked]"
    return value


def plain_value(value: Any) -> Any:
    """Return a value as JSON; what has no such form is described in one line."""
    try:
        found = _plain(value, _MOST_DEPTH)
        if found is not NOTHING:
            return found
        if (picture := _picture(value)) is not None:
            return picture
        return {"told": brief(value)}
    except Exception:  # code of a user's object
        return {"told": f"a {class_of(value).__name__}"}


def _plain(value: Any, depth: int) -> Any:
    """Return a value as JSON; NOTHING where it has no such form."""
    kind = cast("Any", type(value))
    if value is None or kind in (bool, int, float):
        return value
    if kind is str:
        return value if len(value) <= MOST_CHARS else value[:MOST_CHARS] + "…"
    if kind in (list, tuple, dict):
        return _collection(value, depth)
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return NOTHING
    small = kind is numpy.ndarray and value.size <= MOST_ITEMS and value.dtype.kind in "biuf"
    return _plain(value.tolist(), _MOST_DEPTH) if small or isinstance(value, numpy.generic) else NOTHING


def _collection(value: Any, depth: int) -> Any:
    if not depth or len(value) > MOST_ITEMS:
        return NOTHING
    if type(value) is not dict:
        items = [_plain(one, depth - 1) for one in value]
        return NOTHING if any(one is NOTHING for one in items) else items
    made = {key: _plain(one, depth - 1) for key, one in cast("dict[Any, Any]", value).items()}
    plain = all(type(key) is str for key in made) and not any(one is NOTHING for one in made.values())
    return made if plain else NOTHING


def _picture(value: Any) -> dict[str, Any] | None:
    figures = sys.modules.get("matplotlib.figure")
    if figures is None or not isinstance(value, figures.Figure):
        return None
    file = io.BytesIO()
    value.savefig(file, format="png", dpi=_DPI, bbox_inches="tight")
    return {"told": "figure", "image/png": base64.b64encode(file.getvalue()).decode()}


def is_number(value: Any) -> bool:
    """Return whether a value can be on an axis."""
    return type(value) in (int, float) and math.isfinite(value)
