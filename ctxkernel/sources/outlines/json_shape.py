"""The shape of a JSON text: keys, types and lengths of its top levels, with samples as they are written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ctxkernel.core.text import one_line

_DEPTH = 3
_KEYS = 40
_ITEMS = 20  # items of an array that its common shape is made from


class _Number(str):
    """A number as the text writes it: never rounded, never too long to convert."""

    __slots__ = ()


def json_lines(text: str) -> list[str] | None:
    """Return the shape, a line a key, or None where the text is not JSON."""
    try:
        value = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None
    return [brief(value), *_below(value, 1)]


def brief(value: Any) -> str:
    """Return type and length, or the value itself where it is short."""
    if isinstance(value, dict):
        return f"object, {len(value):,} keys"
    if isinstance(value, list):
        kinds = sorted({_kind(item) for item in value[:_ITEMS]})
        return f"array, {len(value):,} items" + (f" of {' | '.join(kinds)}" if kinds else "")
    if isinstance(value, _Number):
        return f"number {one_line(value, 40)}"
    if isinstance(value, str):
        return f"string {json.dumps(one_line(value, 60), ensure_ascii=False)}"
    return {None: "null", True: "true", False: "false"}[value]


def _kind(value: Any) -> str:
    if isinstance(value, _Number):
        return "number"
    return {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}[type(value)]


def _below(value: Any, depth: int) -> Iterator[str]:
    if depth > _DEPTH:
        return
    indent = "  " * depth
    if isinstance(value, dict):
        for at, (key, item) in enumerate(value.items()):
            if at == _KEYS:
                yield f"{indent}… {len(value) - _KEYS:,} more keys"
                return
            yield f"{indent}{one_line(str(key), 60)}: {brief(item)}"
            yield from _below(item, depth + 1)
    elif isinstance(value, list):
        objects = [item for item in value[:_ITEMS] if isinstance(item, dict)]
        if objects:
            merged: dict[str, Any] = {}
            for item in objects:
                for key, inner in item.items():
                    merged.setdefault(key, inner)
            yield f"{indent}[each]"
            yield from _below(merged, depth + 1)
        elif value and isinstance(value[0], list):
            yield f"{indent}[0]: {brief(value[0])}"
