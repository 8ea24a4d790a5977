"""Keeping a series of similar JSON objects: each as what differs from the one before.

Rule 1: `restore(base, compress(base, new)) == new`, whatever the two are. Equal is the same here: a series that holds
        both 1 and 1.0 in one place is not for this module.
Rule 2: lists are compared from their start, since the lists of a projection's record grow at their end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ctxkernel.core.events import Json

Record = Mapping[str, Json]


def compress(base: Record, new: Record) -> dict[str, Json] | None:
    """Return `{key: [n, rest]}` for what differs: the first n items of the base's list and then `rest`.

    n is -1 where the value is `rest` itself. None where `new` lacks a key of `base`, so that no delta says it.
    """
    if not base.keys() <= new.keys():
        return None
    out: dict[str, Json] = {}
    for key, value in new.items():
        old = base.get(key)
        if old == value and key in base:
            continue
        n = _common(old, value) if isinstance(old, list) and isinstance(value, list) else 0  # pyright: ignore[reportUnknownArgumentType]
        out[key] = [n, value[n:]] if n else [-1, value]
    return out


def restore(base: Record, delta: Record) -> dict[str, Json]:
    """Return the object that `compress(base, …)` made `delta` of. Raises KeyError, TypeError, ValueError."""
    out = dict(base)
    for key, (n, rest) in delta.items():
        out[key] = rest if n < 0 else base[key][:n] + rest
    return out


def _common(a: Sequence[Json], b: Sequence[Json]) -> int:
    n = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        n += 1
    return n
