"""How a look visits what is on its way through other objects: iterators, generators, views of a dict.

Rule: nothing is advanced. What these refer to is read as the garbage collector reads it.
"""

from __future__ import annotations

import collections
import gc
import itertools
import types
from collections.abc import Callable
from typing import Any

from ctxkernel.state.codes import code_facts
from ctxkernel.state.digest import Body, Children, Look
from ctxkernel.state.flat import ATOMS
from ctxkernel.state.reflect import is_kind

FRAMES: dict[type, Callable[[Any], Any]] = {
    types.GeneratorType: lambda obj: obj.gi_frame,
    types.CoroutineType: lambda obj: obj.cr_frame,
    types.AsyncGeneratorType: lambda obj: obj.ag_frame,
}


def referents(look: Look, obj: Any) -> Children:
    """What a type made in C holds, as the garbage collector sees it: iterators, generators, partials, methods."""
    look.tick()
    look.label(b"g", type(obj).__name__)
    hint = type(obj).__dict__.get("__length_hint__")
    if hint is not None:
        look.out += b"%d;" % hint(obj)  # how far an iterator of a list or range has come
    get_frame = FRAMES.get(type(obj))
    if get_frame is not None:
        frame = get_frame(obj)
        look.out += b"%d;" % (-2 if frame is None else frame.f_lasti)
        if frame is not None and frame.f_globals is look.batch.namespace:
            look.deps |= code_facts(frame.f_code).names
    # Asking for the frame makes one; it says no more than what the generator itself refers to.
    held = [one for one in gc.get_referents(obj) if type(one) is not types.FrameType]
    look.out += b"%d;" % len(held)
    return iter(held)


def counter_iterator(look: Look, obj: Any) -> Children:
    """An itertools.count: only its text tells where it stands."""
    if all(id(type(held)) in ATOMS or is_kind(type(held), type) for held in gc.get_referents(obj)):
        look.label(b"x", repr(obj))
    else:
        look.identity(obj)
    return None


_MADE = ([], (), range(0), {}, set(), "", b"", collections.deque(), {}.keys(), {}.values(), {}.items())
_TYPES: tuple[Any, ...] = (
    *(map, zip, filter, enumerate, reversed, type(reversed([])), *(type(iter(made)) for made in _MADE)),
    *(type({}.keys()), type({}.values()), type({}.items()), types.MappingProxyType, types.CellType),
    *(types.GenericAlias, types.UnionType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType),
    *(itertools.chain, itertools.islice, itertools.repeat, itertools.starmap, itertools.takewhile, itertools.dropwhile),
)

KINDS: dict[type, tuple[bool, Body]] = {
    **dict.fromkeys(_TYPES, (True, referents)),
    itertools.count: (True, counter_iterator),
}
