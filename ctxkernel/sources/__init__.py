"""What a view can look at: files of many formats, directories, patterns, tables, code and any other Python object.

    source = open_source("data/run.log", settings=settings)
    source.render(RenderRequest(lod=0, pos="0", tokens=500)).text

Rule 1: a source reads and never writes; it runs no code of the object that it looks at.
Rule 2: a rendering never exceeds its budget, and says what was cut and how to get it.
Rule 3: the same target, policy and revision give the same bytes in every process.
Rule 4: whatever a target turns out to be, looking at it is bounded in time and memory and raises nothing
        but `BadPolicy`.
"""

from ctxkernel.sources.base.rendering import BaseSource, Draft, Place
from ctxkernel.sources.objects.facts import FactsSource
from ctxkernel.sources.registry import open_named, open_source, register

__all__ = ["BaseSource", "Draft", "FactsSource", "Place", "open_named", "open_source", "register"]
