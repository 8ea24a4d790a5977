"""Memory that the variables of a namespace can write to: arrays of NumPy, and those in frames of pandas.

It is found in a variable, and in small lists, dicts and instances of the user's classes that are one.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Iterable
from typing import Any

from ctxkernel.core.reflection import CONTAINERS, SEQUENCES, class_of, is_any, is_kind, is_own_class
from ctxkernel.state.types.arrays import bounds_of
from ctxkernel.state.types.pack_state import PackState

_MOST_MEMBERS = 100


def is_written(pack: PackState, low: int, high: int) -> bool:
    """Return whether a variable can write to memory at these addresses."""
    known = pack.blocks.written
    if known is None:
        known = pack.blocks.written = _addresses(pack)
    return bool(((known[0] < high) & (low < known[1])).any())


def _addresses(pack: PackState) -> Any:
    """Return the first addresses of all arrays that variables hold, and those after the last ones: int64, 2 × n."""
    values = list(pack.namespace.values())
    own, arrays, containers = _of_kinds(pack, values)
    members = itertools.chain.from_iterable(_members(pack, one) for one in containers.values())
    frames, more, _ = _of_kinds(pack, [one for one in members if id(one) not in own])
    known = pack.blocks.of_frames
    for key in known.keys() - own:
        del known[key]
    found = [address for one in (arrays | more).values() for address in bounds_of(one)]
    for key, frame in own.items():
        entry = known.get(key)
        if entry is None or entry[0]() is not frame:
            known[key] = entry = weakref.ref(frame), _in_frame(frame)
        found += entry[1]
    for frame in frames.values():  # a member can be changed through its container, so it is looked at each time
        found += _in_frame(frame)
    return sys.modules["numpy"].array(found, "i8").reshape(-1, 2).T


def _in_frame(frame: Any) -> list[int]:
    ndarray = sys.modules["numpy"].ndarray
    held = (block.values for block in frame._mgr.blocks)
    return [address for one in held if is_kind(class_of(one), ndarray) for address in bounds_of(one)]


def _of_kinds(pack: PackState, values: Iterable[Any]) -> tuple[dict[int, Any], dict[int, Any], dict[int, Any]]:
    """Return those of the values that are frames or series, arrays, and containers, by id."""
    # By class first, as a namespace has thousands of values of a few classes; by id, so that no metaclass runs.
    found: dict[int, tuple[Any, list[Any]]] = {}
    for one in values:
        cls = class_of(one)
        if (known := found.get(id(cls))) is None:
            known = found[id(cls)] = cls, []
        known[1].append(one)
    kinds: tuple[dict[int, Any], dict[int, Any], dict[int, Any]] = {}, {}, {}
    for cls, held in found.values():
        if is_any(cls, ("pandas", "DataFrame"), ("pandas", "Series")):
            kinds[0].update((id(one), one) for one in held)
        elif is_kind(cls, sys.modules["numpy"].ndarray):
            kinds[1].update((id(one), one) for one in held)
        elif cls in CONTAINERS or is_own_class(cls, pack.module):
            kinds[2].update((id(one), one) for one in held)
    return kinds


def _members(pack: PackState, value: Any) -> list[Any]:
    cls = class_of(value)
    if cls in SEQUENCES:
        return value[:_MOST_MEMBERS]
    held: Any = value if cls is dict else pack.plan(cls).dict_of(value)
    return list(itertools.islice(held.values(), _MOST_MEMBERS)) if class_of(held) is dict else []
