"""Switch the garbage collector off while many objects are made of which none can be freed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def without_collector() -> Generator[None]:
    """Disable the garbage collector inside: thousands of new objects cause collections of all objects of the process.

    These take 0.1 s in a long session.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
