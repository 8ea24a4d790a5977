"""The limit of all checkpoint data, and the removal of chunks when they exceed it.

Rule 1: Only chunks of 64 KiB and more are removed; a state that lost some is re-run or named.
Rule 2: Only a running kernel changes the data of its session.
Rule 3: The session that was used longest ago is first, and in it the oldest chunks.
Rule 4: A kill at any instant loses no chunk that stays.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Collection, Generator, Mapping
from pathlib import Path

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import format_size
from ctxkernel.store import config
from ctxkernel.store.chunks import file_contents
from ctxkernel.store.chunks.chunk_index import bases_of
from ctxkernel.store.chunks.chunk_store import CACHE, ChunkStore
from ctxkernel.store.chunks.data_folder import is_data_folder
from ctxkernel.store.chunks.packs import LARGE_BYTES, ChunkEntry
from ctxkernel.store.lock import SessionLock

_GB = 10**9
_LOW = 0.9
"""Chunks are removed down to this part of the limit, so packs are not rewritten at every cell."""


@dataclass(frozen=True, slots=True)
class Thinned:
    """The chunks removed from one session."""

    session_id: str
    addresses: frozenset[str]
    bytes: int
    """The freed bytes of its folder; an estimate in a dry run."""
    why: str


@dataclass(frozen=True, slots=True)
class QuotaReport:
    """The result of `collect`."""

    limit: int
    before: int
    after: int
    thinned: tuple[Thinned, ...] = ()
    faults: tuple[str, ...] = ()
    """Sessions that could not be thinned, and why."""
    dry_run: bool = False

    @property
    def enough(self) -> bool:
        """Return whether the data are within the limit now."""
        return self.after <= self.limit


def root_folder(env: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path:
    """Return the folder of all checkpoint data of this user, with a folder for each session. It need not exist."""
    env = os.environ if env is None else env
    if own := env.get(CACHE, "").strip():
        return Path(own).expanduser() / "checkpoints"
    home = Path(env.get("HOME") or env.get("USERPROFILE") or Path.home())
    if platform == "win32":
        cache = Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif platform == "darwin":
        cache = home / "Library" / "Caches"
    else:
        cache = Path(env.get("XDG_CACHE_HOME", "").strip() or home / ".cache")
        if not cache.is_absolute():  # the specification: ignore a relative path
            cache = home / ".cache"
    return cache / "ctxkernel" / "checkpoints"


def limit_bytes(env: Mapping[str, str] | None = None) -> int:
    """Return the bytes that all checkpoint data may take, by the user's settings."""
    return int(config.read_settings(os.environ if env is None else env).settings.quota_gb * _GB)


def usage(root: Path) -> dict[str, int]:
    """Return the bytes on the disk of the folder of each session's data, by name; 0 if it cannot be read."""
    try:
        folders = [folder for folder in root.iterdir() if is_data_folder(folder)]
    except OSError:
        return {}
    return {folder.name: _bytes(folder) for folder in sorted(folders)}


def last_use(folder: Path) -> float:
    """Return the time of the last write to a session's folder, in Unix seconds; 0 if it is unknown."""
    try:
        with os.scandir(folder) as entries:
            times = [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
        return max(times, default=folder.stat().st_mtime)
    except OSError:
        return 0.0


def collect(
    root: Path,
    limit: int,
    *,
    live: Collection[str],
    own: Mapping[str, ChunkStore] | None = None,
    used: Mapping[str, float] | None = None,
    keep: Collection[str] = (),
    dry_run: bool = False,
    now: float | None = None,
) -> QuotaReport:
    """Remove large chunks until all sessions together take less than `limit` bytes.

    `live`: ids of the sessions that another kernel writes; these are not changed, nor those whose folder is locked.
    `own`: the stores that this process writes, without running jobs; they are last. `used`: the last use of sessions in
    Unix seconds; by default the time of their files. `keep`: addresses that stay. `now`: Unix seconds, for the report.
    The fault of one session is in the report, and not raised.
    """
    own, used, now = own or {}, used or {}, time.time() if now is None else now
    sizes = usage(root)
    before = total = sum(sizes.values())
    if total <= limit:
        return QuotaReport(limit, before, total, dry_run=dry_run)
    target = int(limit * _LOW)
    ages = {name: used.get(name) or last_use(root / name) for name in sizes}
    thinned: list[Thinned] = []
    faults: list[str] = []
    mine = [name for name in sizes if name in own]
    others = [name for name in sizes if name not in own and name not in live]
    for name in (*sorted(others, key=ages.__getitem__), *sorted(mine, key=ages.__getitem__)):
        if total <= target:
            break
        try:
            with _store(root / name, own.get(name), dry_run=dry_run) as store:
                # A background job of a killed kernel needs the chunks that were stored when it began.
                if store is None or (store.growing and name not in own):
                    continue
                addresses, freed = _thin(store, limit, total - target, frozenset(keep), dry_run=dry_run)
        except (StoreError, OSError) as fault:
            faults.append(f"{name}: {fault}")
            continue
        if not dry_run:
            freed = sizes[name] - _bytes(root / name)
        if not addresses and freed <= 0:
            continue
        total -= freed
        days = int(max(0.0, now - ages[name]) // 86400)
        age = "today" if not days else "a day ago" if days == 1 else f"{days} days ago"
        why = f"last used {age}; {len(addresses)} large chunks, {format_size(freed)}"
        thinned.append(Thinned(name, addresses, freed, why))
    return QuotaReport(limit, before, total, tuple(thinned), tuple(faults), dry_run)


@contextlib.contextmanager
def _store(folder: Path, own: ChunkStore | None, *, dry_run: bool) -> Generator[ChunkStore | None]:
    """Give the store of a session; None if a kernel uses it. Raises StoreError, OSError."""
    if own is not None:
        yield own
        return
    lock = SessionLock.take(folder)
    if lock is None:
        yield None
        return
    with contextlib.closing(ChunkStore(folder, readonly=dry_run, lock=lock)) as store:
        yield store


def _thin(
    store: ChunkStore, limit: int, excess: int, keep: frozenset[str], *, dry_run: bool
) -> tuple[frozenset[str], int]:
    """Remove chunks of one session; return them and their bytes. Raises StoreError."""
    chosen: list[str] = []
    freed = 0
    for entry in _order(store.entries(), keep):
        if freed >= excess:
            break
        chosen.append(entry.address)
        freed += entry.stored
    if freed < excess:
        freed += file_contents.thin(store.folder, excess - freed, dry_run=dry_run)
    why = f"to keep all sessions within {format_size(limit)}"
    return (frozenset(chosen) if dry_run else store.drop(chosen, why)), freed


def _order(entries: list[ChunkEntry], keep: frozenset[str]) -> list[ChunkEntry]:
    """Return the removable chunks in the order of removal: deltas before the chunk that they build on."""
    by_address = {entry.address: entry for entry in entries}
    stays: set[str] = set()
    for entry in entries:
        if entry.address in keep or entry.size < LARGE_BYTES:
            stays.add(entry.address)
            stays.update(base.address for base in bases_of(entry, by_address.get))

    ranks = {entry.address: age for age, entry in enumerate(entries) if entry.address not in stays}
    for address in list(ranks):  # a base is removed with the last of its deltas
        for base in bases_of(by_address[address], by_address.get):
            if base.address in ranks:
                ranks[base.address] = max(ranks[base.address], ranks[address])
    return sorted((by_address[a] for a in ranks), key=lambda entry: (ranks[entry.address], -entry.depth))


def _bytes(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # removed since
                found = entry.stat(follow_symlinks=False)
                # Blocks if they are known: a hole between two chunks takes no space.
                total += found.st_blocks * 512 if hasattr(found, "st_blocks") else found.st_size
    return total
