"""The folder of one session's checkpoint data, in the folder of all checkpoint data of this user.

Rule 1: A session file can contain any id, so a folder is named by a hash of the id, and never by the id.
Rule 2: A folder of another name, or a symbolic link, is not ours: nothing in it is read, changed or removed.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TypeGuard

from ctxkernel.core.errors import StoreError
from ctxkernel.store.lock import SessionLock

_ID = re.compile(r"[0-9a-f]{16}")
_OWN = re.compile(r"s?[0-9a-f]{16}")
"""Names of folders of data: `s` and a hash, or in earlier versions the id."""


def data_folder(root: Path, session_id: str, *, writing: bool = False) -> Path:
    """Return the folder of a session's data; it need not exist.

    A folder that an earlier version named by the id is renamed if it is opened for `writing`. Raises StoreError if the
    id is not 16 hex digits.
    """
    if not is_session_id(session_id):
        raise StoreError(f"invalid session id {session_id[:40]!a}: expected 16 hex digits; the session is damaged")
    folder, earlier = root / folder_name(session_id), root / session_id
    if not os.path.lexists(folder) and is_data_folder(earlier) and not (writing and _rename(earlier, folder)):
        return earlier
    return folder


def is_session_id(text: object) -> TypeGuard[str]:
    """Return whether a text has the form of the ids that ctxkernel gives to sessions."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def folder_name(session_id: str) -> str:
    """Return the name of the folder of a session's data."""
    return "s" + hashlib.blake2b(f"ctxkernel session {session_id}".encode(), digest_size=8).hexdigest()


def is_data_folder(folder: Path) -> bool:
    """Return whether a folder exists, and has the name of a session's data."""
    return bool(_OWN.fullmatch(folder.name)) and folder.is_dir() and not folder.is_symlink()


def refuse_link(folder: Path) -> None:
    """Raise StoreError if the folder of a session's data is a symbolic link."""
    if folder.is_symlink():
        raise StoreError(f"{folder} is a symbolic link, so no checkpoint data are read or written there; remove it")


def _rename(earlier: Path, folder: Path) -> bool:
    """Rename a folder unless a kernel uses it; return whether it has the new name."""
    try:
        lock = SessionLock.take(earlier)
        if lock is not None:
            try:
                earlier.rename(folder)
            finally:
                lock.release()
    except OSError:  # another kernel was first, or the cache may only be read
        pass
    return folder.is_dir()
