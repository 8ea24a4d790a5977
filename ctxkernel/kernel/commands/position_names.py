"""What positions are called in a target, for completion: symbols, headings, labels, entries, keys.

Rule 1: no handle is made, and no code of the user's runs: sources that they registered are not asked.
Rule 2: nothing large is read and nothing fetched, and after `SECONDS` the look is given up: a folder may hang.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import threading
from collections.abc import Iterable

from ctxkernel.core.nodes import NodeBase
from ctxkernel.sources.base.rendering import BaseSource
from ctxkernel.sources.registry import open_built_in, scheme_of

SECONDS = 0.5
MOST_BYTES = 4 << 20
"""A larger file is not looked into."""


def place_names(target: object) -> list[str]:
    """Return the names that `pos` may be for a target or handle, in its order; none where that cannot be said soon."""
    if isinstance(target, NodeBase):
        target = target.looks_at
    found: list[list[str]] = []

    def look() -> None:
        try:
            if (source := _opened(target)) is not None:
                found.append(list(dict.fromkeys(name for name, _ in source.names().places)))
        except Exception:  # not there, not to be read, changed meanwhile: there is nothing to offer
            return

    thread = threading.Thread(target=look, name="ctxkernel completes", daemon=True)
    thread.start()
    thread.join(SECONDS)
    return found[0] if found else []


def _opened(target: object) -> BaseSource | None:
    if isinstance(target, (str, os.PathLike)):
        path = os.fsdecode(target)
        if scheme_of(path) not in ("", "file"):
            return None
        try:
            about = os.stat(os.path.expanduser(path))
        except OSError:  # a pattern, perhaps
            about = None
        if about is not None and stat.S_ISREG(about.st_mode) and about.st_size > MOST_BYTES:
            return None
    source = open_built_in(target)
    return source if isinstance(source, BaseSource) else None


def fitting(names: Iterable[str], begun: str, token: str, quote: str) -> list[str]:
    """Return what may stand in the place of `token`, the end of `begun`, on a line that is split as a shell's.

    `quote` is the quotation mark that is open, or empty: then what needs one gets it.
    """
    kept = len(begun) - len(token)  # a token ends at a space or a bracket, a name does not
    known = [name for name in names if name.startswith(begun) and "\n" not in name]
    if quote:
        return [name[kept:] for name in known if quote not in name]
    return [name[kept:] if shlex.quote(name) == name else shlex.quote(name) for name in known if _can(name, kept)]


def _can(name: str, kept: int) -> bool:
    return not kept or shlex.quote(name) == name


def quoted(names: Iterable[str]) -> list[str]:
    """Return names as Python texts, `"Model.fit"`."""
    return [f'"{name}"' if re.fullmatch(r'[^"\\\n]*', name) else repr(name) for name in names]
