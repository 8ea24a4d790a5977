"""What a check of the doctor's says, and the checks of where states are kept.

Rule 1: a check changes nothing that stays: what it tries it tries in a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import format_size
from ctxkernel.store import trust
from ctxkernel.store.chunks import quota
from ctxkernel.store.chunks.background import SWITCH, Background
from ctxkernel.store.chunks.chunk_store import CACHE, ChunkStore, address_of
from ctxkernel.store.log.location import FOLDER
from ctxkernel.store.log.reader import SessionReader

_FORK_SECONDS = 20.0
_LITTLE = 100 * 10**6
"""Free bytes below which states are about to be lost."""
_SESSIONS = 20
"""The newest sessions of a folder, of which so many are looked at."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's report. `next_step` is empty where all is well."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    next_step: str = ""


def ok(name: str, detail: str) -> Check:
    """A thing that works."""
    return Check(name, "ok", detail)


def warn(name: str, detail: str, next_step: str = "") -> Check:
    """A thing that is missing or odd, and that not everybody needs."""
    return Check(name, "warn", detail, next_step)


def fail(name: str, detail: str, next_step: str) -> Check:
    """A thing without which the kernel or the panel does not work."""
    return Check(name, "fail", detail, next_step)


def is_writable(folder: Path) -> bool:
    """Say whether a file can be made in `folder`, or in the nearest folder above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def check_checkpoints() -> Check:
    """Where the data of checkpoints lie, and how much of their limit is used."""
    root = quota.root_folder()
    if not is_writable(root):
        return warn(
            "checkpoints",
            f"{root} cannot be written, so nothing can be returned to",
            f"set {CACHE} to a folder of your own.",
        )
    used, limit = sum(quota.usage(root).values()), quota.limit_bytes()
    detail = f"{format_size(used)} of {format_size(limit)} in {root}"
    if used > limit:
        return warn("checkpoints", detail, "`ctxkernel gc` makes room; CTXKERNEL_QUOTA_GB sets another limit.")
    above = next(folder for folder in (root, *root.parents) if folder.exists())
    if (free := shutil.disk_usage(above).free) < _LITTLE:
        return warn(
            "checkpoints", f"{detail}, where {format_size(free)} are free", "free some space there: `ctxkernel gc`."
        )
    return ok("checkpoints", detail)


def check_states() -> Check:
    """Whether the states of this folder's sessions were all kept, as their logs have it."""
    told: list[str] = []
    logs = sorted(Path(FOLDER).glob("*.sqlite"), key=lambda path: path.stat().st_mtime)
    for log in logs[-_SESSIONS:]:
        with SessionReader(log) as reader:
            found = reader.checkpoints()
        kept_not = [info for info in found.values() if info.state in ("skipped", "damaged")]
        if kept_not:
            told.append(f"{log}: {len(kept_not)} of {len(found)} states were not kept ({kept_not[-1].reason})")
    if told:
        return warn("states", "; ".join(told), "`ctxkernel verify FILE` says which, and what can be returned to.")
    return ok("states", "all kept" if logs else "no session in this folder")


def check_background() -> Check:
    """Whether large data are really written beside the next cell."""
    name = "large data"
    if os.environ.get(SWITCH, "").strip() == "0":
        return ok(name, f"written while you wait, since {SWITCH} is 0")
    if not sys.platform.startswith("linux"):
        return ok(name, "written while you wait: only on Linux a process can be forked for it")
    data = bytes(range(256)) * 512
    with tempfile.TemporaryDirectory(prefix="ctxkernel-doctor-", ignore_cleanup_errors=True) as scratch:
        store = ChunkStore(Path(scratch) / "chunks")
        background = Background(store)
        try:
            ticket = background.submit(lambda chunks: chunks.put(address_of(data), data), nbytes=len(data))
            background.wait(_FORK_SECONDS)
            store.refresh()
            fault = ticket.fault or ("" if ticket.done else f"it did not end within {_FORK_SECONDS:.0f} s")
            if not fault and not store.has(address_of(data)):
                fault = "what it wrote is not there"
        except StoreError as error:
            fault = str(error)
        finally:
            background.close()
            store.close()
    if fault:
        return warn(
            name, f"a forked writer does not work here: {fault}", f"{SWITCH}=0 has them written while you wait."
        )
    return ok(name, "written by a forked process beside the next cell")


def check_secret() -> Check:
    """Whether checkpoints can be signed as this user's."""
    try:
        path = trust.user_folder(os.environ) / trust.FILE
    except Exception as error:  # no home at all
        return warn("secret", f"there is no folder for it: {error}", f"set {trust.HOME} to a folder of your own.")
    if not path.exists() and not path.is_symlink():
        if is_writable(path.parent):
            return ok("secret", f"made at the first start of a kernel, in {path}")
        return warn(
            "secret",
            f"{path} cannot be written: checkpoints are not signed, and no later kernel loads them",
            f"set {trust.HOME} to a folder of your own.",
        )
    if fault := trust.load(path.parent).fault:
        return warn("secret", fault, "without it checkpoints are not signed, and no later kernel loads them unasked.")
    return ok("secret", f"{path}, readable by you alone")
