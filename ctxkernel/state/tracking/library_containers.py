"""Containers of installed libraries that the user's names refer to: `from keyword import kwlist`.

A return restores such a name as a copy if cells changed the container. The library keeps the changed one.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection
from types import ModuleType
from typing import Any

from ctxkernel.core.reflection import Classes, class_of, is_kind, module_dict
from ctxkernel.state.base.own_modules import is_own

_TYPES = Classes(list, dict, set, bytearray, deque, defaultdict, OrderedDict, Counter)


def is_container(value: object) -> bool:
    """Return whether a value is a container of Python's own, which a library may hold."""
    return class_of(value) in _TYPES


def library_containers(values: dict[str, Any], among: Collection[str]) -> dict[str, str]:
    """Return the names in `among` whose value is an attribute of a library's module → `keyword.kwlist`.

    The thousands of modules are searched only for a value that something besides `values` refers to.
    """
    alone = _references({"": []}, "")
    chosen = [name for name in values if name in among and is_container(values[name])]
    names = {id(values[name]): name for name in chosen if _references(values, name) > alone}
    found: dict[str, str] = {}
    for full, module in tuple(sys.modules.items()) if names else ():
        if full == "__main__" or not is_kind(class_of(module), ModuleType):
            continue
        attributes = module_dict(module)
        if not names.keys().isdisjoint(map(id, tuple(attributes.values()))) and not is_own(module):
            for attribute, value in tuple(attributes.items()):
                if (name := names.get(id(value))) is not None:
                    found.setdefault(name, f"{full}.{attribute}")
    return found


def _references(values: dict[str, Any], name: str) -> int:
    return sys.getrefcount(values[name])
