"""Masking of the values that become rows or messages: at any depth, with the names beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, cast

from ctxkernel.core.masking import Mask
from ctxkernel.core.replay import Divergence
from ctxkernel.core.timeline import ChangeInfo, TypeInfo
from ctxkernel.core.timeline_events import Json
from ctxkernel.core.turn_values import DeltaItem

unmasked: Mask = str
"""Returns a text as it is."""


def mask_for(values: Iterable[object], mask: Mask) -> Mask:
    """Return `mask` if it may change any text in `values`, at any depth; else `unmasked`.

    All texts of a turn are masked as one text, so a turn without credentials costs one call of `mask`.
    """
    texts: list[str] = []
    left: list[Any] = list(values)
    for value in left:  # nested values are appended
        kind = cast("type[Any]", type(value))
        if kind is str:
            texts.append(value)
        elif kind in _ATOMS:
            continue
        elif isinstance(value, list | tuple):
            left += cast("Sequence[Any]", value)
        elif names := _names(kind):
            if kind is DeltaItem:
                texts.append(as_assignment(value))
            left += map(value.__getattribute__, names)
        elif isinstance(value, Mapping):  # asked last: it takes the longest
            for name, item in cast("Mapping[Any, Any]", value).items():
                left += [f"{name}={item}"] if type(item) is str else [str(name), item]
                texts += [f"{name} = {getattr(item, part)}" for part in _REPRS.get(cast("Any", type(item)), ())]
    joined = "\n".join(filter(None, texts))
    # A text that was cut within a known value is recognised only by itself.
    has_part: Callable[[str], bool] = getattr(mask, "has_part", lambda text: False)
    return mask if joined and (mask(joined) != joined or has_part(joined)) else unmasked


_ATOMS = frozenset({int, float, bool, type(None)})
_REPRS: dict[type, tuple[str, ...]] = {TypeInfo: ("repr",), ChangeInfo: ("repr", "before")}
"""The fields that hold the repr of the variable that a value belongs to."""


@cache
def _names(kind: type[Any]) -> tuple[str, ...] | None:
    """Return the field names of a dataclass; None for another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def masked_json(value: Any, mask: Mask) -> Json:
    """Return `value` (dataclasses, mappings, sequences of JSON values) as JSON values, with its texts masked."""
    kind = cast("type[Any]", type(value))
    if kind is str:
        return mask(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {mask(str(key)): _named(str(key), item, mask) for key, item in items}
    if isinstance(value, list | tuple):
        return [masked_json(item, mask) for item in cast("Sequence[Any]", value)]
    if names := _names(kind):
        if kind is DeltaItem and mask(shown := as_assignment(value)) != shown:
            value = replace(value, summary=value.summary[: first_quote(value.summary)] + "[masked]", text="")
        return {name: masked_json(getattr(value, name), mask) for name in names}
    return _stranger(value)


def as_assignment(item: DeltaItem | Divergence) -> str:
    """Return a line about a name (`db_password`: `new str '…'`) as an assignment, so the name helps to mask it."""
    return f"{item.subject} = {item.summary[first_quote(item.summary) :]}"


def first_quote(summary: str) -> int:
    """Return the index of the first quote character in a summary; its length if there is none."""
    found = [at for at in (summary.find("'"), summary.find('"')) if at >= 0]
    return min(found, default=len(summary))


def _stranger(value: object) -> Json:
    """Return JSON for a value that `json` does not know: the fields of a dataclass, else only the name of the type.

    Not its repr, which may run the user's code and may not return.
    """
    if names := _names(type(value)):
        return {name: getattr(value, name) for name in names}
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    return f"<{type(value).__name__}>"


# ASCII only, so lone surrogates are kept. No value here can contain itself.
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_stranger).encode


def _named(name: str, value: Any, mask: Mask) -> Json:
    if type(value) is str:
        return mask_named(name + "=", value, mask)
    out = masked_json(value, mask)
    for part in _REPRS.get(cast("Any", type(value)), ()):
        out[part] = mask_named(name + " = ", getattr(value, part), mask)
    return out


def mask_named(prefix: str, value: str, mask: Mask) -> str:
    """Return `value` masked as in `prefix` + `value`: a name such as `password=` decides whether it is masked."""
    together = mask(prefix + value)
    return together.removeprefix(prefix) if together.startswith(prefix) else mask(value)


def dump_json(value: Any, mask: Mask = unmasked) -> str:
    """Return `value` as compact JSON text."""
    return _encode(value if mask is unmasked else masked_json(value, mask))
