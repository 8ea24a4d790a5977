"""Mutable objects that libraries hold as constants, and that many of their objects refer to.

Rule: two names that have nothing but such objects in common are not stored together, so each gets copies of its own
        when it is loaded. Else all figures of a notebook would be one group, and each cell that touches one would pack
        all of them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import cast

from ctxkernel.core.reflection import class_of, is_any, loaded

_CONTAINERS = (list, dict)
_OF_MATPLOTLIB = (
    ("matplotlib.markers", ""),
    ("matplotlib.markers", "MarkerStyle"),
    ("matplotlib.path", "Path"),
    ("matplotlib.transforms", "IdentityTransform"),
)
"""Modules and classes whose attributes are paths and arrays that many figures use."""


def constants() -> set[int]:
    """Return the ids of the constants of the libraries that are loaded; the libraries keep them alive."""
    if not (matplotlib := loaded("matplotlib")):
        return set()
    found = {id(one) for one in (*_paths(), *_settings(matplotlib.get("rcParams")), *_converters())}
    return found | _colors(bool(loaded("seaborn.cm")))


def _paths() -> Iterator[object]:
    for module, name in _OF_MATPLOTLIB:
        held = loaded(module).get(name) if name else sys.modules.get(module)
        for one in [*cast("dict[str, object]", getattr(held, "__dict__", {})).values()]:
            if is_any(class_of(one), ("matplotlib.path", "Path")):
                yield from (one, vars(one), *vars(one).values())
            elif is_any(class_of(one), ("numpy", "ndarray")):
                yield one


def _settings(settings: object) -> Iterator[object]:
    """Yield the lists among the settings of matplotlib: a formatter of an axis keeps one."""
    if isinstance(settings, dict):  # its own `values` warns of old names
        known = cast("dict[str, object]", settings)
        yield from (one for one in dict[str, object].values(known) if class_of(one) in _CONTAINERS)


def _converters() -> Iterator[object]:
    """Yield what converts categories and dates for the axes that show them."""
    registry = loaded("matplotlib.units").get("registry")
    if isinstance(registry, dict):
        for one in cast("dict[object, object]", registry).values():
            yield from (one, getattr(one, "__dict__", None))


@functools.cache
def _colors(_: bool) -> frozenset[int]:
    """Return the ids of the lists of colors in colormaps."""
    held = (one for module in ("matplotlib._cm_listed", "seaborn.cm") for one in loaded(module).values())
    maps = [cast("list[object]", one) for one in held if class_of(one) is list]
    return frozenset(id(one) for colors in maps for one in (colors, *colors))
