"""The session of a notebook that was renamed or moved while no kernel used it: it follows the notebook.

Rule 1: A session follows only if no kernel uses it, its statements are cells of the notebook, by their ids and texts,
        and the notebook that has its name is gone or has none of these cells: a new one, under the name of an earlier.
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
from ctxkernel.store.log.location import FOLDER, prepare_file, prepare_folder, session_path, sidecars
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.notebook_file import FileCell, code_cells, read_notebook_json

_MOST_FILES = 200
_ABOVE = 3
"""So many folders above are looked at …"""
_BELOW = 100
"""… and so many entries of the notebook's folder, and of the one above."""
_MOST_CELLS = 5000


def follow(notebook: Path, session: Path) -> str | None:
    """Give `notebook` its session of an earlier name or place as `session`, if there is exactly one; return that name.

    A session that is there and is that of another notebook, which had this name before, goes to that one.
    Raises OSError, ValueError, sqlite3.Error and StoreError.
    """
    if not notebook.is_file() or (os.path.lexists(session) and not _give_away(session, notebook)):
        return None
    cells = _executed(notebook)
    for folders in _places(notebook.parent) if cells else ():
        known = _files(folders, f"{FOLDER}/*.sqlite")
        if found := [one for one in known if not one.parent.is_symlink() and _is_free(one, notebook, cells)]:
            return found[0].name if len(found) == 1 and _moved(found[0], session) else None
    return None


def _places(folder: Path) -> Iterator[Sequence[Path]]:
    """Yield the folders that a notebook may have been in, the nearest first."""
    yield [folder]
    yield [*islice(folder.parents, _ABOVE)]
    for top in (folder, folder.parent):
        with contextlib.suppress(OSError):
            yield sorted(Path(one.path) for one in islice(os.scandir(top), _BELOW) if one.is_dir())


def _files(folders: Sequence[Path], pattern: str) -> Iterator[Path]:
    found = (one for folder in folders for one in sorted(folder.glob(pattern)))
    return islice((one for one in found if one.is_file() and not one.is_symlink()), _MOST_FILES)


def _executed(notebook: Path) -> dict[str, str]:
    """Return the texts of the cells that ran, by their ids; none where the file is no notebook. Raises OSError."""
    cells = list[FileCell]()
    with contextlib.suppress(ValueError):  # such as an empty file, which JupyterLab opens as a new notebook
        cells = code_cells(read_notebook_json(notebook))
    ran = (one for one in cells if one.cell_id and one.count is not None)
    return {str(one.cell_id): one.source for one in islice(ran, _MOST_CELLS)}


def _read(session: Path) -> tuple[str | None, dict[str, str]]:
    """Return the name that a session's notebook had last, and the newest texts of its cells by their ids."""
    with contextlib.suppress(OSError, sqlite3.Error, StoreError, ValueError), SessionReader(session) as reader:
        query = "SELECT notebook FROM runs WHERE notebook IS NOT NULL ORDER BY run DESC LIMIT 1"
        name = next((str(one) for (one,) in reader.select(query)), reader.notebook)
        query = "SELECT cell_id, source FROM statements WHERE author = 'human' AND cell_id IS NOT NULL LIMIT ?"
        return name, {str(cell): str(source) for cell, source in reader.select(query, 10 * _MOST_CELLS)}
    return None, {}


def _are_most(cells: Mapping[str, str], ran: Mapping[str, str]) -> bool:
    """Return whether most of a notebook's cells ran in a session."""
    return 2 * sum(cell in ran and fits_masked(ran[cell], source) for cell, source in cells.items()) > len(cells)


def _is_free(session: Path, notebook: Path, cells: Mapping[str, str]) -> bool:
    """Return whether most of the cells ran in a session that no other notebook of its name has."""
    name, ran = _read(session)
    if not name or not _are_most(cells, ran):
        return False
    own = session.parent.parent / Path(name).name
    with contextlib.suppress(OSError, ValueError):
        return own == notebook or not own.exists() or _is_strange(own, ran)
    return False


def _is_strange(notebook: Path, ran: Mapping[str, str]) -> bool:
    """Return whether a notebook has no cell of those that ran in a session, by its id or its text."""
    raw = notebook.read_bytes()
    if any(cell.encode() in raw for cell in ran):
        return False
    texts = set(ran.values())
    return not any(one.source.strip() and one.source in texts for one in code_cells(read_notebook_json(notebook)))


def _give_away(session: Path, notebook: Path) -> bool:
    """Give a session to the notebook whose cells ran in it, if `notebook` has none of them; return whether it did."""
    ran = _read(session)[1]
    if not ran or not _is_strange(notebook, ran):
        return False
    for folders in _places(notebook.parent):
        found: list[Path] = []
        for one in _files(folders, "*.ipynb"):
            with contextlib.suppress(OSError, ValueError):
                if one != notebook and (cells := _executed(one)) and _are_most(cells, ran):
                    found.append(one)
        if found:
            return len(found) == 1 and _moved(session, session_path(str(found[0]), {}, found[0].parent))
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
