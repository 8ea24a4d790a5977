"""Attributes of objects of libraries that follow from others: caches, and what a library makes where it is read."""

from __future__ import annotations

import functools
from typing import Any

from ctxkernel.core.reflection import AttributePlan, class_module, class_qualname

_MADE_BY_READING: dict[str, frozenset[str]] = {
    # A transform is computed where it is asked for; those that hold it themselves are `_OF_ITSELF`.
    "matplotlib.transforms": frozenset(("_invalid", "_inverted", "_points", "_mtx", "_minpos", "_parents")),
    "matplotlib.cbook.CallbackRegistry": frozenset(("_cid_gen",)),  # it counts copies, too
    "pandas.Timedelta": frozenset(("_seconds", "_microseconds", "_nanoseconds")),
    "dask.blockwise": frozenset(("_dims",)),
}
"""By the beginning of the name of a class: attributes that follow from others, and are made when they are asked for."""
_OF_ITSELF = {
    f"matplotlib.transforms.{name}": frozenset(("_points", "_mtx", "_minpos")) for name in ("Affine2D", "Bbox")
}


@functools.lru_cache(5000)
def made_by_reading(name: str) -> frozenset[str]:
    """Return the attributes of a library's class that reading changes, besides cached properties and caches."""
    found = (names for start, names in _MADE_BY_READING.items() if name.startswith(start))
    return frozenset[str]().union(*found) - _OF_ITSELF.get(name, frozenset())


def is_cache(name: object) -> bool:
    """Return whether an attribute of a library's object has the name of a cache."""
    return isinstance(name, str) and ("cache" in name or name in ("stale", "_stale") or name.startswith("_has_"))


def content_attributes(plan: AttributePlan, obj: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object that do not follow from others."""
    made = made_by_reading(f"{class_module(plan.cls)}.{class_qualname(plan.cls)}")
    return [(name, value) for name, value in plan.attributes(obj) if not is_cache(name) and name not in made]
