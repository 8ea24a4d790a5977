"""Whose data a folder of checkpoints holds: the logs of that session are noted in it.

Rule 1: a log that was copied has one folder of data with its copy, so the folder has lost its session only when none
        of the logs that were ever noted is there with its notebook.
Rule 2: what is not known is not gone.
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
    """Note in a session's folder that `log` is of that session. Raises OSError."""
    logs = noted(folder)
    if log.absolute() not in logs:
        fresh = folder / f"{NOTE}.{os.getpid()}"
        fresh.write_text(json.dumps([*map(str, logs), str(log.absolute())]))
        fresh.replace(folder / NOTE)


def noted(folder: Path) -> list[Path]:
    """Return the logs that were noted, oldest first; none where that cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return [Path(one) for one in json.loads((folder / NOTE).read_text())]
    return []


def why_gone(folder: Path) -> str:
    """Return why nobody can need a session's data any more, or an empty text. Opens its logs, reading only."""
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
    except Exception:  # damaged, or not readable: it may be mended
        return ""
    # Where a log was put elsewhere nobody knows where its notebook is.
    return f"its notebook {notebook} is gone" if log.parent.name == FOLDER and not notebook.exists() else ""


def remove(folder: Path) -> int:
    """Remove a session's data; return the bytes of them. 0 where a kernel has them. Raises StoreError, OSError."""
    lock = SessionLock.take(folder)
    if lock is None:
        return 0
    with contextlib.closing(ChunkStore(folder, readonly=True, lock=lock)) as store:
        if store.growing:
            return 0
        freed = store.bytes_stored
        shutil.rmtree(folder)
    return freed
