"""Imports of nbformat without a slow dependency that is not needed."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

_GRAMMARS = "rfc3987_syntax"


@contextmanager
def without_grammars() -> Generator[None]:
    """Import nbformat and jsonschema without the grammars of IRIs, unless they are imported already.

    If a Jupyter server is installed, jsonschema 4.26 builds all of them at import, in three seconds, to check texts of
    the format `iri`, which no notebook has. If they cannot be imported, it skips that check.
    """
    if _GRAMMARS in sys.modules:
        yield
        return
    sys.modules[_GRAMMARS] = None  # type: ignore[assignment]  # how Python says: not to be imported
    try:
        yield
    finally:
        del sys.modules[_GRAMMARS]
