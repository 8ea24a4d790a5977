"""Paths of objects within values, for messages: `d['x']`, `fit.model.lock`. Bounded; runs no user code."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import itertools
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from ctxkernel.core.reflection import AttributePlan, class_of, dict_items, is_kind
from ctxkernel.core.text import one_line

_MOST = 50_000
_MORE = 1000
_DEEP = 6
_EACH = 3
_OF_C: tuple[Any, ...] = (
    *(class_of(getattr({}, name)()) for name in ("keys", "values", "items")),
    *(class_of(iter(getattr({}, name)())) for name in ("keys", "values", "items")),
    *(collections.deque, types.MappingProxyType, functools.partial, class_of(iter([])), class_of(iter(()))),
    *(enumerate, filter, map, reversed, zip),
    *(one for one in vars(itertools).values() if is_kind(class_of(one), type)),
)
"""Containers and iterators whose content the garbage collector gives."""


def places(
    values: Mapping[str, object],
    missing: Iterable[tuple[object, str]],
    lacking: Iterable[tuple[object, str]],
    expired: Callable[[], bool],
    outside: Callable[[], Collection[int]],
) -> Iterator[str]:
    """Yield `text in place` for each (object, text) that is missing, or lacks a part.

    `outside` returns the ids of those that do not only lie inside of others; it is called where a place is not found.
    """
    gone = {id(obj): text for obj, text in missing}
    what = gone | {id(obj): text for obj, text in lacking}
    named: dict[int, int] = dict.fromkeys(what, 0)
    left = [_MOST]
    said: set[str] = {name for name, value in values.items() if id(value) in gone}
    for obj, path, name in _walk(values, gone, expired, left):
        key = id(obj)
        if key in what and named[key] < _EACH and (obj is not values[name] or key not in gone):
            named[key] += 1
            said.add(name)
            if named[key] == 1 and all(named.values()):  # more places of the same objects are worth a short look only
                left[0] = min(left[0], _MORE)
            yield f"{what[key]} in {path}"
    for name in (name for name in values if name not in said and any(named.values())):  # another name may have met it
        found = next((one for one in _walk({name: values[name]}, gone, expired, left) if id(one[0]) in what), None)
        if found is not None:
            yield f"{what[id(found[0])]} in {found[1]}"
    tops = {id(value) for value in values.values()}
    unknown = [key for key, count in named.items() if not count and key not in tops]
    there = outside() if unknown else ()
    for key in unknown:
        if key in there:
            yield f"{what[key]} in {', '.join(list(values)[:3])}"


def _walk(
    values: Mapping[str, object], ends: Collection[int], expired: Callable[[], bool], left: list[int]
) -> Iterator[tuple[object, str, str]]:
    """Yield the objects in values, layer by layer, with place and name; `left`: the number of visits that remain."""
    seen: set[int] = set()
    plans: dict[int, AttributePlan] = {}
    layer: list[tuple[object, str, str]] = [(value, name, name) for name, value in values.items()]
    for _ in range(_DEEP + 1):
        below: list[tuple[object, str, str]] = []
        for obj, path, name in layer:
            key = id(obj)
            yield obj, path, name
            left[0] -= 1
            if key in seen or key in ends or left[0] < 0:
                continue
            seen.add(key)
            if not left[0] & 255 and expired():
                left[0] = 0
            with contextlib.suppress(Exception):  # an odd object: it is looked through for a message only
                below.extend((one, place, name) for one, place in _inside(obj, path, plans))
        layer = below


def _inside(obj: Any, path: str, plans: dict[int, AttributePlan]) -> Iterator[tuple[object, str]]:
    kind = class_of(obj)
    if kind in (str, bytes, int, float, bool, class_of(None), types.ModuleType):
        return
    if is_kind(kind, dict):
        for key, value in list(dict_items(obj)):
            yield value, f"{path}[{one_line(repr(key), 40) if class_of(key) in (str, int, float, bool) else '…'}]"
    elif is_kind(kind, list) or is_kind(kind, tuple):
        base: Any = list if is_kind(kind, list) else tuple
        yield from ((value, f"{path}[{at}]") for at, value in enumerate(base.__iter__(obj)))
    elif kind in (set, frozenset):
        yield from ((value, f"{path}{{…}}") for value in list(obj))
    elif kind is types.FunctionType:
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=False):
            yield getattr(cell, "cell_contents", None), f"{path}.<{name}>"
        yield from ((value, f"{path}.<defaults>") for value in obj.__defaults__ or ())
    elif kind is types.MethodType:
        yield obj.__self__, f"{path}.__self__"
    elif kind in _OF_C:
        yield from ((value, f"{path}{{…}}") for value in gc.get_referents(obj))
    if is_kind(kind, type):
        return
    if id(kind) not in plans:
        plans[id(kind)] = AttributePlan(kind, False)
    yield from ((value, f"{path}.{name}") for name, value in plans[id(kind)].attributes(obj))
