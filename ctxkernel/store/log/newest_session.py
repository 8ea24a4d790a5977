"""The newest session of a notebook, by the times in the logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ctxkernel.store.log.location import belongs, existing_sessions, is_named, session_path
from ctxkernel.store.log.reader import SessionReader


def newest_session(
    notebook: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] = ".",
    tell: Callable[[str], object] = lambda _: None,
) -> Path | None:
    """Return the session of `notebook` that was written last, by the times in its log, or None.

    `CTXKERNEL_SESSION` overrides the notebook's place, as for the kernel. A file that cannot be read is skipped, which
    `tell` is told; if no other is left, the first such file is returned, so that its reader can report the fault.
    """
    env = os.environ if env is None else env
    base = session_path(None if notebook is None else os.fspath(notebook), env, cwd)
    best: tuple[float, int, Path] | None = None
    unreadable: dict[Path, Exception] = {}
    for order, path in enumerate(existing_sessions(base)):
        try:
            with SessionReader(path) as reader:
                if belongs(path, base, reader.notebook, named=is_named(env)):
                    best = max(best or (float("-inf"), -1, path), (reader.last_write, order, path))
        except Exception as fault:  # damaged, foreign or from a newer ctxkernel: the next one may be whole
            unreadable[path] = fault
    for path, fault in unreadable.items() if best else ():
        tell(f"skipped {path}, which may be a newer session of this notebook: {fault}")
    return best[2] if best else next(iter(unreadable), None)
