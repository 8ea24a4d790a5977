"""Objects that modules hold, and the names that they have there."""

from __future__ import annotations

import functools
import itertools
import sys
import types
from collections.abc import Container
from typing import Any

from ctxkernel.core.reflection import HEAP_TYPE, class_flags, class_module, class_of, loaded, module_dict
from ctxkernel.state.types.pack_state import PackState
from ctxkernel.state.types.parts import PARTS, Reduction

_HOLDERS: dict[str, str] = {}
"""By name of an object without a module, the module that had it last."""


def holder_of(obj: Any, name: str, *, but: Container[str]) -> str | None:
    """Return a module that has an object under its name, the same one as long as it has it; None if there is none."""
    likely = _HOLDERS.get(name, ""), class_module(class_of(obj))
    # A module can have hundreds of such objects: the search through all modules is made once for all of a class.
    first = (_first_holders(id(class_of(obj)), count).get((name, id(obj)), "") for count in (len(sys.modules),))
    others = itertools.chain(likely, first, iter(list(sys.modules)))
    found = next((one for one in others if one not in but and in_module(one, name) is obj), None)
    if found is not None:
        _HOLDERS[name] = found
    return found


@functools.lru_cache(1)
def _first_holders(kind: int, _: int) -> dict[tuple[str, int], str]:
    """Return the first module of each object whose class has this id, by its name there and its own id."""
    modules = [(one, loaded(one)) for one in reversed(list(sys.modules))]
    return {
        (name, id(value)): module
        for module, members in modules
        for name, value in list(members.items())
        if id(class_of(value)) == kind
    }


def in_module(module: str, path: str) -> Any:
    """Return what a loaded module has under a dotted name; None if it has nothing."""
    first, *rest = path.split(".")
    return functools.reduce(lambda one, part: getattr(one, part, None), rest, loaded(module).get(first))


def of_module(pack: PackState, obj: Any) -> Reduction:
    """Return the place of a constant object that a module of a library holds; None for others."""
    module, name = _module_objects(len(sys.modules)).get(id(obj), ("", ""))
    found = module not in pack.packer.own_modules and loaded(module).get(name) is obj
    return (PARTS.found, (module, name)) if found else None


@functools.lru_cache(1)
def _module_objects(_: int) -> dict[int, tuple[str, str]]:
    """Return the plain objects and the instances that modules have, by id: the module and the name."""
    modules = [(name, module_dict(one)) for name, one in list(sys.modules.items()) if class_of(one) is types.ModuleType]
    return {
        id(value): (module, name)
        for module, members in modules
        if module not in ("__main__", "__mp_main__")
        for name, value in list(members.items())
        if class_of(value) is object or class_flags(class_of(value)) & HEAP_TYPE
    }
