"""The origin of a folder of checkpoint data: a file in it lists the logs of its session.

Rule 1: A log and its copies share one folder of data, so a folder has lost its session only if none of its logs exists
        with its notebook.
Rule 2: In doubt a session still exists: so it is if the list is not signed by this user, or cannot be read.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.errors import StoreError
from ctxkernel.core.json_input import load_json
from ctxkernel.store import signatures
from ctxkernel.store.chunks import packs
from ctxkernel.store.chunks.chunk_index import GIVEN_UP_FILE
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.data_folder import folder_name, is_data_folder
from ctxkernel.store.chunks.file_contents import is_content
from ctxkernel.store.chunks.late_results import is_late_result
from ctxkernel.store.lock import SessionLock
from ctxkernel.store.log.location import FOLDER
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.regular_files import read_bounded, replace_file

NOTE = "logs.json"
_MOST_BYTES = 1024 * 1024
_MOST_LOGS = 200


def list_log(folder: Path, log: Path) -> None:
    """List `log` in the folder of its session's data, and sign the list. Raises OSError."""
    logs, signed = _read(folder)
    if log.absolute() not in logs and len(logs) < _MOST_LOGS:
        logs, signed = [*logs, log.absolute()], False
    if not signed:
        listed = [*map(str, logs)]
        signature = signatures.signer().sign(*_parts(folder, listed))
        replace_file(folder / NOTE, json.dumps({"logs": listed, "signature": signature}).encode())


def listed_logs(folder: Path) -> list[Path]:
    """Return the listed logs, oldest first; none if the list cannot be read. It may be a stranger's."""
    return _read(folder)[0]


def own_logs(folder: Path) -> list[Path]:
    """Return the logs in a list that this user signed."""
    logs, signed = _read(folder)
    return logs if signed else []


def why_gone(folder: Path) -> str:
    """Return why nobody can need a session's data any more, or an empty text. Its logs are opened for reading."""
    logs, signed = _read(folder)
    if not signed or len(logs) >= _MOST_LOGS:
        return ""
    found = [_why(folder.name, log) for log in logs]
    return found[-1] if found and all(found) else ""


def _why(name: str, log: Path) -> str:
    try:
        if not log.exists():
            return f"its log {log} is gone"
        with SessionReader(log) as reader:
            if name not in (folder_name(reader.session_id), reader.session_id):
                return f"its log {log} was replaced by another"
            notebook = log.parent.parent / (reader.notebook or "")
    except Exception:  # damaged or not readable: it may be repaired
        return ""
    # The notebook of a log that was moved elsewhere is unknown.
    return f"its notebook {notebook} is gone" if log.parent.name == FOLDER and not notebook.exists() else ""


def _parts(folder: Path, logs: list[str]) -> tuple[str, ...]:
    return "logs", folder.name, *logs


def _read(folder: Path) -> tuple[list[Path], bool]:
    """Return the listed logs, and whether this user signed the list. Earlier versions signed none."""
    found: Any = None
    with contextlib.suppress(OSError, ValueError):
        found = load_json(read_bounded(folder / NOTE, _MOST_BYTES), most_bytes=_MOST_BYTES, most_depth=2)
    made = cast("dict[str, Any]", found) if isinstance(found, dict) else {"logs": found}
    listed, signature = made.get("logs"), made.get("signature")
    logs = [one for one in cast("list[Any]", listed) if _is_path(one)] if isinstance(listed, list) else []
    signed = isinstance(signature, str) and signatures.signer().is_signed(signature, *_parts(folder, logs))
    return [Path(one) for one in logs[:_MOST_LOGS]], signed


def _is_path(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value and os.path.isabs(value)


def remove_data(folder: Path) -> int:
    """Remove a session's data; return their bytes, 0 if a kernel uses them. Raises StoreError, OSError.

    Files that ctxkernel did not write stay, and then the folder stays.
    """
    if not is_data_folder(folder):
        raise StoreError(f"{folder} is no folder of a session's data, and stays as it is")
    lock = SessionLock.take(folder)
    if lock is None:
        return 0
    with contextlib.closing(ChunkStore(folder, readonly=True, lock=lock)) as store:
        if store.growing:
            return 0
        freed = store.bytes_stored
        for name in os.listdir(folder):
            ours = name.startswith(NOTE) or name == GIVEN_UP_FILE or packs.is_pack(name) or is_content(name)
            if ours or is_late_result(name):
                (folder / name).unlink()
        folder.rmdir()
    return freed
