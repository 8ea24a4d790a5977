"""The session of a notebook that was renamed or moved while no kernel used it: it follows the notebook.

Rule 1: A session follows only if no kernel uses it, its own notebook is gone, and its statements are cells of the
        notebook, by their ids and texts.
Rule 2: It is looked for in the notebook's folder, in those above, directly below, and beside.
Rule 3: It keeps its content; nothing is loaded from it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from ctxkernel.core.errors import StoreError
from ctxkernel.projection.secrets import fits_masked
from ctxkernel.store.lock import SessionLock
from ctxkernel.store.log import opening
from ctxkernel.store.log.location import FOLDER, prepare_file, prepare_folder, sidecars
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.notebook_file import code_cells, read_notebook_json

_MOST_SESSIONS = 200
_ABOVE = 3
"""So many folders above are looked at …"""
_BELOW = 100
"""… and so many entries of the notebook's folder, and of the one above."""
_MOST_CELLS = 5000


def follow(notebook: Path, session: Path) -> str | None:
    """Give `notebook` its session of an earlier name or place as `session`, if there is exactly one; return that name.

    Raises OSError, ValueError, sqlite3.Error and StoreError.
    """
    if os.path.lexists(session) or not notebook.is_file():
        return None
    executed = [one for one in code_cells(read_notebook_json(notebook)) if one.cell_id and one.count is not None]
    cells = {str(one.cell_id): one.source for one in executed[:_MOST_CELLS]}
    for folders in _places(notebook.parent) if cells else ():
        others = (one for folder in folders for one in sorted((folder / FOLDER).glob("*.sqlite")))
        known = islice((one for one in others if one.is_file() and not one.is_symlink()), _MOST_SESSIONS)
        if found := [one for one in known if not one.parent.is_symlink() and _is_of(one, cells)]:
            return found[0].name if len(found) == 1 and _moved(found[0], session) else None
    return None


def _places(folder: Path) -> Iterator[Sequence[Path]]:
    """Yield the folders that a notebook may have been in, the nearest first."""
    yield [folder]
    yield [*islice(folder.parents, _ABOVE)]
    for top in (folder, folder.parent):
        with contextlib.suppress(OSError):
            yield sorted(Path(one.path) for one in islice(os.scandir(top), _BELOW) if one.is_dir())


def _is_of(session: Path, cells: Mapping[str, str]) -> bool:
    """Return whether most of the cells ran in a session whose own notebook is gone."""
    with contextlib.suppress(OSError, sqlite3.Error, StoreError, ValueError), SessionReader(session) as reader:
        if not reader.notebook or (session.parent.parent / Path(reader.notebook).name).exists():
            return False
        query = "SELECT cell_id, source FROM statements WHERE author = 'human' AND cell_id IS NOT NULL LIMIT ?"
        ran = reader.select(query, 10 * _MOST_CELLS)
        known = {cell for cell, source in ran if cell in cells and fits_masked(str(source), cells[cell])}
        return 2 * len(known) > len(cells)
    return False


def _moved(session: Path, target: Path) -> bool:
    """Rename a session that no kernel uses; return whether it could be done."""
    lock = SessionLock.take(session)
    if lock is None:
        return False
    try:
        prepare_file(session)
        prepare_folder(target)
        # The last connection writes what a killed kernel left beside the file into it.
        opening.connect(session, lock).close()
        if any(map(os.path.lexists, (target, *sidecars(session)))):
            return False
        session.rename(target)
        return True
    finally:
        lock.release()
