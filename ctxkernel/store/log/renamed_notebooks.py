"""The session of a notebook that was renamed while no kernel used it: it follows the notebook.

Rule 1: A session follows only if no kernel uses it, its own notebook is gone, and its statements are cells of the
        renamed notebook, by their ids and texts.
Rule 2: It stays in its folder and keeps its content; nothing is loaded from it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from ctxkernel.core.errors import StoreError
from ctxkernel.projection.secrets import fits_masked
from ctxkernel.store.lock import SessionLock
from ctxkernel.store.log import opening
from ctxkernel.store.log.location import prepare_file, sidecars
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.notebook_file import code_cells, read_notebook_json

_MOST_SESSIONS = 200
_MOST_CELLS = 5000


def follow(notebook: Path, session: Path) -> str | None:
    """Rename the session of a renamed `notebook` to `session`, if there is exactly one; return its earlier name.

    Raises OSError, ValueError, sqlite3.Error and StoreError.
    """
    if os.path.lexists(session) or not session.parent.is_dir() or not notebook.is_file():
        return None
    executed = [one for one in code_cells(read_notebook_json(notebook)) if one.cell_id and one.count is not None]
    cells = {str(one.cell_id): one.source for one in executed[:_MOST_CELLS]}
    others = sorted(one for one in session.parent.glob("*.sqlite") if one.is_file() and not one.is_symlink())
    found = [one for one in others[:_MOST_SESSIONS] if cells and _is_of(one, notebook, cells)]
    return found[0].name if len(found) == 1 and _renamed(found[0], session) else None


def _is_of(session: Path, notebook: Path, cells: Mapping[str, str]) -> bool:
    """Return whether most of the cells ran in a session whose own notebook is gone."""
    with contextlib.suppress(OSError, sqlite3.Error, StoreError, ValueError), SessionReader(session) as reader:
        if not reader.notebook or (notebook.parent / Path(reader.notebook).name).exists():
            return False
        query = "SELECT cell_id, source FROM statements WHERE author = 'human' AND cell_id IS NOT NULL LIMIT ?"
        ran = reader.select(query, 10 * _MOST_CELLS)
        known = {cell for cell, source in ran if cell in cells and fits_masked(str(source), cells[cell])}
        return 2 * len(known) > len(cells)
    return False


def _renamed(session: Path, target: Path) -> bool:
    """Rename a session that no kernel uses; return whether it could be done."""
    lock = SessionLock.take(session)
    if lock is None:
        return False
    try:
        prepare_file(session)
        # The last connection writes what a killed kernel left beside the file into it.
        opening.connect(session, lock).close()
        if any(map(os.path.lexists, (target, *sidecars(session)))):
            return False
        session.rename(target)
        return True
    finally:
        lock.release()
