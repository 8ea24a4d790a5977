"""Names of positions in a target, for completion: symbols, headings, labels, entries, keys.

Rule 1: no handle is created, and no code of the user's runs: sources that the user registered are not used.
Rule 2: nothing large is read and nothing is fetched, and the search ends after `SECONDS`: a folder may hang.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
import threading
from collections.abc import Iterable
from typing import Any

from ctxkernel.core.nodes import NodeBase
from ctxkernel.sources.base.rendering import BaseSource
from ctxkernel.sources.registry import open_built_in, scheme_of

SECONDS = 0.5
MOST_BYTES = 4 << 20
"""A larger file is not read."""


def place_names(target: object) -> list[str]:
    """Return the names that `pos` accepts for a target or handle, in its order; none if finding them takes long."""
    if isinstance(target, NodeBase):
        target = target.looks_at
    found: list[list[str]] = []
    held: BaseSource | None = None
    anything: Any = target
    if not isinstance(anything, (str, os.PathLike)):
        with contextlib.suppress(Exception):  # imports the source of this kind: that takes nothing of the time below
            held = _opened(target)

    def look() -> None:
        try:
            if (source := held or _opened(target)) is not None:
                found.append(list(dict.fromkeys(name for name, _ in source.names().places)))
        except Exception:  # missing, unreadable or changed in the meantime: there are no names to offer
            return

    thread = threading.Thread(target=look, name="ctxkernel completes", daemon=True)
    thread.start()
    thread.join(SECONDS)
    return found[0] if found else []


def _opened(target: object) -> BaseSource | None:
    anything: Any = target
    if isinstance(target, (str, os.PathLike)):
        path = os.fsdecode(anything)
        if scheme_of(path) not in ("", "file"):
            return None
        try:
            about = os.stat(os.path.expanduser(path))
        except OSError:  # perhaps a pattern
            about = None
        if about is not None and stat.S_ISREG(about.st_mode) and about.st_size > MOST_BYTES:
            return None
    source = open_built_in(anything)
    return source if isinstance(source, BaseSource) else None


def fitting(names: Iterable[str], begun: str, token: str, quote: str) -> list[str]:
    """Return the completions of `token`, the end of `begun`, on a line with the quoting rules of a shell.

    `quote` is the open quotation mark, or empty: then names that need one are quoted.
    """
    kept = len(begun) - len(token)  # a token ends at a space or a bracket, a name does not
    known = [name for name in names if name.startswith(begun) and "\n" not in name]
    if quote:
        return [name[kept:] for name in known if quote not in name]
    # A name that needs quotes can replace the token only if the token is its whole beginning.
    plain = {name: shlex.quote(name) == name for name in known}
    return [name[kept:] if plain[name] else shlex.quote(name) for name in known if plain[name] or not kept]


def quoted(names: Iterable[str]) -> list[str]:
    """Return names as Python string literals, `"Model.fit"`."""
    return [f'"{name}"' if re.fullmatch(r'[^"\\\n]*', name) else repr(name) for name in names]
