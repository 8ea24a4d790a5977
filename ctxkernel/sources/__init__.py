"""Sources of views: files of many formats, directories, patterns, tables, code and any other Python object.

    source = open_source("data/run.log", settings=settings)
    source.render(RenderRequest(lod=0, pos="0", tokens=500)).text

Rule 1: a source reads and never writes; it runs no code of the object that it looks at.
Rule 2: a rendering never exceeds its budget, and says what was cut and how to get it.
Rule 3: the same target, policy and revision give the same bytes in every process.
Rule 4: whatever a target turns out to be, looking at it is bounded in time and memory and raises nothing
        but `BadPolicy`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxkernel.sources.base.rendering import BaseSource, Draft, Place
    from ctxkernel.sources.objects.adapters import AdaptedSource, Adapter, Fact
    from ctxkernel.sources.objects.facts import FactsSource
    from ctxkernel.sources.objects.own_renderings import trust_repr
    from ctxkernel.sources.registry import open_named, open_source, register

__all__ = [
    "AdaptedSource",
    "Adapter",
    "BaseSource",
    "Draft",
    "Fact",
    "FactsSource",
    "Place",
    "open_named",
    "open_source",
    "register",
    "trust_repr",
]

# A kernel starts without the sources: each name is imported when it is asked for.
_HOMES = {
    **dict.fromkeys(("BaseSource", "Draft", "Place"), "base.rendering"),
    **dict.fromkeys(("AdaptedSource", "Adapter", "Fact"), "objects.adapters"),
    "FactsSource": "objects.facts",
    "trust_repr": "objects.own_renderings",
    **dict.fromkeys(("open_named", "open_source", "register"), "registry"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
