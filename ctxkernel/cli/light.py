"""Imports without what nobody here needs and everybody would wait for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_GRAMMARS = "rfc3987_syntax"


@contextmanager
def without_grammars() -> Iterator[None]:
    """Import nbformat, and jsonschema with it, without the grammars of IRIs; does nothing where they are there already.

    Where a Jupyter server is installed, jsonschema 4.26 builds all of them at import, in three seconds, to check texts
    of the format `iri`, of which no notebook has any. It goes on without that check where they cannot be imported.
    """
    if _GRAMMARS in sys.modules:
        yield
        return
    sys.modules[_GRAMMARS] = None  # type: ignore[assignment]  # how Python says: not to be imported
    try:
        yield
    finally:
        del sys.modules[_GRAMMARS]
