"""The origin of a folder of checkpoint data: a file in it lists the logs of its session.

Rule 1: A log and its copies share one folder of data, so a folder has lost its session only if none of its logs exists
        with its notebook.
Rule 2: In doubt a session still exists.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.lock import SessionLock
from ctxkernel.store.log.location import FOLDER
from ctxkernel.store.log.reader import SessionReader

NOTE = "logs.json"


def note(folder: Path, log: Path) -> None:
    """List `log` in the folder of its session's data. Raises OSError."""
    logs = noted(folder)
    if log.absolute() not in logs:
        fresh = folder / f"{NOTE}.{os.getpid()}"
        fresh.write_text(json.dumps([*map(str, logs), str(log.absolute())]))
        fresh.replace(folder / NOTE)


def noted(folder: Path) -> list[Path]:
    """Return the listed logs, oldest first; none if the list cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return [Path(one) for one in json.loads((folder / NOTE).read_text())]
    return []


def why_gone(folder: Path) -> str:
    """Return why nobody can need a session's data any more, or an empty text. Its logs are opened for reading."""
    found = [_why(folder.name, log) for log in noted(folder)]
    return found[-1] if found and all(found) else ""


def _why(session_id: str, log: Path) -> str:
    try:
        if not log.exists():
            return f"its log {log} is gone"
        with SessionReader(log) as reader:
            if reader.session_id != session_id:
                return f"its log {log} was replaced by another"
            notebook = log.parent.parent / (reader.notebook or "")
    except Exception:  # damaged or not readable: it may be repaired
        return ""
    # The notebook of a log that was moved elsewhere is unknown.
    return f"its notebook {notebook} is gone" if log.parent.name == FOLDER and not notebook.exists() else ""


def remove(folder: Path) -> int:
    """Remove a session's data; return their bytes, 0 if a kernel uses them. Raises StoreError, OSError."""
    lock = SessionLock.take(folder)
    if lock is None:
        return 0
    with contextlib.closing(ChunkStore(folder, readonly=True, lock=lock)) as store:
        if store.growing:
            return 0
        freed = store.bytes_stored
        shutil.rmtree(folder)
    return freed
