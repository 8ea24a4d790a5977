"""The result of a check of `ctxkernel doctor`, and the checks of the places where states are kept.

Rule 1: A check leaves nothing behind: it writes in temporary folders only.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

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
"""Free bytes below which states may soon be lost."""
_SESSIONS = 20
"""How many sessions of a folder are checked, the newest ones."""


class Check(NamedTuple):
    """One line of the doctor's report. `next_step` is empty if all is well."""

    status: Literal["ok", "warn", "fail"]
    detail: str
    next_step: str = ""
    name: str = ""


def ok(detail: str) -> Check:
    """Return the result for a part that works."""
    return Check("ok", detail)


def warn(detail: str, next_step: str = "") -> Check:
    """Return the result for a part that is missing or unusual, and that not everybody needs."""
    return Check("warn", detail, next_step)


def fail(detail: str, next_step: str) -> Check:
    """Return the result for a fault that keeps the kernel or the panel from working."""
    return Check("fail", detail, next_step)


def is_writable(folder: Path) -> bool:
    """Return whether a file can be created in `folder`, or in the nearest existing folder above it."""
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)):
            return True
    except OSError:
        return False


def _existing(folder: Path) -> Path:
    return next((one for one in (folder, *folder.parents) if one.exists()), folder)


def check_checkpoints() -> Check:
    """Check where the data of checkpoints are, and how much of their limit is used."""
    root = quota.root_folder()
    if not is_writable(root):
        return warn(f"{root} cannot be written, so no state can be kept", f"set {CACHE} to a folder of your own.")
    used, limit = sum(quota.usage(root).values()), quota.limit_bytes()
    detail = f"{format_size(used)} of {format_size(limit)} in {root}"
    if used > limit:
        return warn(detail, "`ctxkernel gc` frees space; CTXKERNEL_QUOTA_GB sets another limit.")
    if (free := shutil.disk_usage(_existing(root)).free) < _LITTLE:
        return warn(f"{detail}, where {format_size(free)} are free", "free some space there: `ctxkernel gc`.")
    return ok(detail)


def check_states() -> Check:
    """Check in the logs whether all states of this folder's sessions were kept."""
    told: list[str] = []
    logs = sorted(Path(FOLDER).glob("*.sqlite"), key=lambda path: path.stat().st_mtime)
    for log in logs[-_SESSIONS:]:
        with SessionReader(log) as reader:
            found = reader.checkpoints()
        if lost := [info for info in found.values() if info.state in ("skipped", "damaged")]:
            told.append(f"{log}: {len(lost)} of {len(found)} states were not kept ({lost[-1].reason})")
    if told:
        return warn("; ".join(told), "`ctxkernel verify FILE` says which, and which states can be restored.")
    return ok("all kept" if logs else "no session in this folder")


def check_background() -> Check:
    """Check whether large data are written by a forked process while the next cell runs."""
    if os.environ.get(SWITCH, "").strip() == "0":
        return ok(f"written while you wait, since {SWITCH} is 0")
    if not sys.platform.startswith("linux"):
        return ok("written while you wait: only on Linux a process can be forked for it")
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
                fault = "the data that it wrote are missing"
        except StoreError as error:
            fault = str(error)
        finally:
            background.close()
            store.close()
    if fault:
        return warn(f"a forked writer does not work here: {fault}", f"{SWITCH}=0 has them written while you wait.")
    return ok("written by a forked process beside the next cell")


def check_secret() -> Check:
    """Check whether checkpoints can be signed as this user's."""
    own_folder = f"set {trust.HOME} to a folder of your own."
    try:
        path = trust.user_folder(os.environ) / trust.FILE
    except Exception as error:  # no home at all
        return warn(f"there is no folder for it: {error}", own_folder)
    unsigned = "checkpoints are not signed, and no later kernel loads them"
    if not path.exists() and not path.is_symlink():
        if is_writable(path.parent):
            return ok(f"created at the first start of a kernel, in {path}")
        return warn(f"{path} cannot be written: {unsigned}", own_folder)
    if fault := trust.load(path.parent).fault:
        return warn(fault, f"without it {unsigned} without asking you.")
    return ok(f"{path}, readable by you alone")
