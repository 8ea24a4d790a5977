"""Where something stands in values, for telling a person: `d['x']`, `fit.model.lock`. Bounded; runs no user code."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ctxkernel.state.pickle_core import short
from ctxkernel.state.reflect import Plan, is_kind

_MOST = 50_000
_DEEP = 6
_EACH = 3


def places(
    values: Mapping[str, object],
    missing: Iterable[tuple[object, str]],
    lacking: Iterable[tuple[object, str]],
    expired: Callable[[], bool],
) -> Iterator[str]:
    """Yield `what in place`: for (object, what it is) that are missing, for (object, what it lacks) that are there."""
    gone = {id(obj): text for obj, text in missing}
    what = gone | {id(obj): text for obj, text in lacking}
    named: dict[int, int] = dict.fromkeys(what, 0)
    seen: set[int] = set()
    plans: dict[int, Plan] = {}
    layer: list[tuple[object, str]] = [(value, name) for name, value in values.items()]
    visited = 0
    for depth in range(_DEEP + 1):
        below: list[tuple[object, str]] = []
        for obj, path in layer:
            key = id(obj)
            if key in what and named[key] < _EACH and (depth or key not in gone):
                named[key] += 1
                yield f"{what[key]} in {path}"
            visited += 1
            if key in seen or key in gone or visited > _MOST:
                continue
            seen.add(key)
            if not visited & 255 and expired():
                visited = _MOST
            with contextlib.suppress(Exception):  # an odd object: it is looked through for a message only
                below.extend(_inside(obj, path, plans))
        layer = below
    tops = {id(value) for value in values.values()}
    for key, count in named.items():
        if not count and key not in tops:
            yield f"{what[key]} in {', '.join(list(values)[:3])}"


def _inside(obj: Any, path: str, plans: dict[int, Plan]) -> Iterator[tuple[object, str]]:
    kind = type(obj)
    if kind in (str, bytes, int, float, bool, type(None), types.ModuleType):
        return
    if is_kind(kind, dict):
        for key, value in list(dict.items(obj)):
            yield value, f"{path}[{short(repr(key), 40) if type(key) in (str, int, float, bool) else '…'}]"
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
    if is_kind(kind, type):
        return
    if id(kind) not in plans:
        plans[id(kind)] = Plan(kind, False)
    yield from ((value, f"{path}.{name}") for name, value in plans[id(kind)].attributes(obj))
