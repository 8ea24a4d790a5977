"""Which of a notebook's sessions was written to last."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ctxkernel.store.log.location import belongs, existing_sessions, is_named, session_path
from ctxkernel.store.log.reader import SessionReader


def newest_session(
    notebook: str | os.PathLike[str] | None, env: Mapping[str, str] | None = None, cwd: str | os.PathLike[str] = "."
) -> Path | None:
    """Return the session of `notebook` that was written to last, by the times in its log, or None.

    `CTXKERNEL_SESSION` overrides the notebook's place, as it does for the kernel.
    A file that cannot be read is passed over; where that leaves none, the first unreadable one is
    returned, so that whoever reads it can say what is wrong with it.
    """
    env = os.environ if env is None else env
    base = session_path(None if notebook is None else os.fspath(notebook), env, cwd)
    best: tuple[float, int, Path] | None = None
    unreadable: Path | None = None
    for order, path in enumerate(existing_sessions(base)):
        try:
            with SessionReader(path) as reader:
                if belongs(path, base, reader.notebook, named=is_named(env)):
                    best = max(best or (float("-inf"), -1, path), (reader.last_write, order, path))
        except Exception:  # damaged, foreign or from a newer ctxkernel: the next one may be whole
            unreadable = unreadable or path
    return best[2] if best else unreadable
