"""The data of checkpoints: chunks, each under the hash of its content, in the packs of one folder.

Rule 1: `read` returns the data that were put, or StoreError names the chunk: each chunk is checked by its address.
Rule 2: A chunk is stored once its record is written; a kill at any instant loses only the chunk being put.
Rule 3: One thread at a time; any number of processes may read beside the one that writes.
Rule 4: A fault while writing leaves all earlier chunks readable.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from xxhash import xxh3_128_hexdigest

from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import format_size
from ctxkernel.store.chunks import packs, pages
from ctxkernel.store.chunks.chunk_index import MOST_LINKS, ChunkIndex, RemovedChunks
from ctxkernel.store.chunks.data_folder import refuse_link
from ctxkernel.store.chunks.free_memory import free_memory
from ctxkernel.store.chunks.packs import LARGE_BYTES, UNREAD, ChunkEntry, PackWriter
from ctxkernel.store.lock import SessionLock, lock_path

BytesLike = bytes | bytearray | memoryview
PACK_BYTES = 256 * 1024 * 1024
CACHE = "CTXKERNEL_CACHE"
"""The environment variable that sets another folder for the data."""

_LOCK_SECONDS = 0.3
_MAPPED_BYTES = 1024 * 1024
"""Below this size a copy costs less than a mapping."""
_CHECKED_BYTES = 64 * 1024 * 1024
"""Memory of this size or more is allocated only if so much is free."""


def address_of(data: BytesLike) -> str:
    """Return the address of raw data: `x` and the xxh3_128 of its bytes."""
    return "x" + xxh3_128_hexdigest(data)


def stream_address(data: BytesLike) -> str:
    """Return the address of data that will be trusted, such as a pickle stream: `b` and their blake2b-128."""
    return "b" + hashlib.blake2b(data, digest_size=16).hexdigest()


class ChunkStore:
    """The chunks of one session.

    The first `put` creates the folder. With `readonly` nothing in it is changed. `lock` is the lock of the folder if
    the caller holds it; the store releases it. Raises StoreError if the folder cannot be read, or is a symbolic link.
    """

    def __init__(self, folder: Path, *, readonly: bool = False, lock: SessionLock | None = None) -> None:
        refuse_link(folder)
        self.folder = folder
        self.readonly = readonly
        self._index = ChunkIndex(folder)
        self.has = self._index.has
        """Returns whether a chunk is stored, as far as the indexes say."""
        self.entries = self._index.entries
        """Returns the entries of all chunks in the order in which they were written."""
        self._scratch = bytearray()
        """Memory for a chunk to compare with; it is reused, since new memory costs as much as the comparison."""
        self.losses = 0
        """How often data were deleted while the store was open."""
        self.fault = ""
        """The reason why the last write failed; else empty."""
        self.hint: Callable[[], str] = str
        """Returns the rest of a sentence about missing chunks: what may bring them back."""
        self._removed = RemovedChunks(folder)
        self._seen = 0
        self._writer: PackWriter | None = None
        self._rolls = True
        self._lock = lock
        if lock is None and not readonly and folder.is_dir():
            self._take_lock()
        try:
            self.refresh()
        except StoreError:
            self.close()
            raise

    def missing(self, addresses: Iterable[str]) -> list[str]:
        """Return those that are not stored, in the given order, each once, after a check for deleted packs.

        Raises StoreError if the folder cannot be read.
        """
        now = _changed_at(self.folder)
        if now != self._seen or not now:
            self.refresh()
        return [address for address in dict.fromkeys(addresses) if not self.has(address)]

    def why_missing(self, address: str) -> str:
        """Return why a chunk is not stored."""
        if not self.folder.is_dir():
            return f"its data are not on this machine: there is no {self.folder}{self.hint()}"
        removed = self._removed.why(address) or f"chunk {address} is missing: deleted, or never copied to this machine"
        return removed + self.hint()

    def why_unwritable(self) -> str:
        """Return why nothing can be written now, or an empty text. Write nothing."""
        folder = next(one for one in (self.folder, *self.folder.absolute().parents) if one.is_dir())
        if self.readonly or not os.access(folder, os.W_OK | os.X_OK):
            return self._told(OSError(errno.EROFS, "it may only be read"))
        if hasattr(os, "statvfs") and os.statvfs(folder).f_bavail == 0:
            return self._told(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return self.fault

    def size(self, address: str) -> int:
        """Return the bytes of a chunk's content. Raises StoreError if it is missing or damaged."""
        return self._index.entry(address).size

    @property
    def growing(self) -> bool:
        """Return whether another process writes here, such as a background job of a kernel that was killed.

        Always False if files cannot be locked.
        """
        own = self._writer.number if self._writer is not None else None
        return any(number != own and packs.is_held(self.folder, number) for number in packs.listing(self.folder))

    @property
    def bytes_stored(self) -> int:
        """The bytes of all packs and indexes."""
        total = 0
        for number in self._index.read_to:
            for path in (packs.pack_path(self.folder, number), packs.index_path(self.folder, number)):
                with contextlib.suppress(OSError):
                    total += path.lstat().st_size
        return total

    def refresh(self) -> None:
        """Update the index after changes by other processes. Raises StoreError if the folder cannot be read."""
        own = self._writer.number if self._writer is not None else None
        try:
            self._seen = _changed_at(self.folder)
            there = packs.listing(self.folder)
            gone = {number for number in self._index.read_to if there.get(number) != {"pack", "index"}}
            if gone:
                self._lose(gone)
            for number, parts in there.items():
                if number != own and len(parts) == 2:
                    self._index.load(number)
        except OSError as fault:
            told = f"the checkpoint data in {self.folder} cannot be read ({fault}); make the folder readable"
            raise StoreError(f"{told}, or set {CACHE} to another one") from fault

    def check_folder(self) -> None:
        """Raise StoreError if packs were deleted, once for each loss; their chunks are not stored any more."""
        try:
            there = packs.listing(self.folder)
        except OSError as fault:
            raise self._unwritable(fault) from fault
        if self._index.read_to.keys() <= there.keys():
            return
        self.refresh()
        raise StoreError(
            f"the checkpoint data in {self.folder} were deleted while the kernel ran, and earlier checkpoints with "
            "them; the next checkpoint is written anew"
        )

    def _lose(self, numbers: set[int]) -> None:
        """Update the store after packs were deleted."""
        if self._writer is not None and self._writer.number in numbers:
            writer, self._writer = self._writer, None
            writer.close(keep=True)
        if not lock_path(self.folder).exists():
            self._release()
        if self._index.forget(numbers) and not self.readonly:
            self.losses += 1

    def put(self, address: str, data: BytesLike, *, base: str | None = None) -> int:
        """Store `data` under its address and return the bytes written: 0 if it is stored already.

        `base` is an earlier chunk of the same place: if fewer than half of the pages differ, only these are stored.
        `data` is contiguous. Raises StoreError if it cannot be written, or does not match the address.
        """
        if self.has(address):
            return 0
        if not packs.ADDRESS.fullmatch(address):
            raise StoreError(f"invalid chunk address {address!r}: use address_of() or stream_address()")
        view = memoryview(data)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        writer = self._writing()
        try:
            entry, stored = self._as_delta(address, view, base) or (
                ChunkEntry(address, "", 0, 0, 0, len(view), len(view)),
                view,
            )
            offset = writer.write(stored, aligned=_is_aligned(entry))
            # After the write: a thread of the user may have changed the data since they were hashed.
            if address[0] == "x" and address_of(view) != address:
                writer.take_back()
                raise StoreError(f"the data of chunk {address} changed while they were stored; run the cell again")
            record = writer.record(entry._replace(pack=writer.number, offset=offset))
        except OSError as fault:
            self._close_writer()
            raise self._unwritable(fault) from fault
        self._index.records[address] = record
        self.fault = ""
        return entry.stored

    @contextlib.contextmanager
    def one_pack(self) -> Generator[None]:
        """Store the chunks that are put inside in one new pack, in order, so they can be mapped as one buffer."""
        self._close_writer()
        self._rolls = False
        try:
            yield
        finally:
            self._rolls = True
            self._close_writer()

    def _as_delta(self, address: str, view: memoryview, base: str | None) -> tuple[ChunkEntry, bytes] | None:
        """Return the entry and the bytes of a delta; None if the chunk is better stored whole."""
        if base is None or len(view) < LARGE_BYTES or self._index.is_damaged(address) or not self.has(base):
            return None
        old = self._index.entry(base)
        if old.depth >= MOST_LINKS or old.size < LARGE_BYTES:
            return None
        if old.depth and len(self._scratch) < old.size:
            self._scratch = bytearray(old.size)
        try:
            content = memoryview(self._scratch)[: old.size] if old.depth else self._stored(old)
            if old.depth:
                self._fill(old, content)
            made = pages.make_delta(view, content, most=len(view) // 2)
        except (OSError, ValueError, StoreError):  # then it is stored whole
            return None
        return None if made is None else (ChunkEntry(address, base, old.depth + 1, 0, 0, len(made), len(view)), made)

    def _writing(self) -> PackWriter:
        """Return the pack to append to. Raises StoreError."""
        if self._writer is not None and self._writer.process != os.getpid():
            # In a child that the user forked: two processes must not append to one pack.
            self._writer.close(keep=True)
            self._writer = None
        if self._writer is not None and not self._writer.in_place:
            self.check_folder()
        if self._writer is not None and self._rolls and self._writer.is_full(PACK_BYTES):
            self._close_writer()
        if self._writer is None:
            self._writer = self.new_pack()
            self._index.read_to[self._writer.number] = UNREAD
        return self._writer

    def _take_lock(self) -> None:
        """Mark this session as in use for `ctxkernel gc`. Writing does not need the lock."""
        until = time.monotonic() + _LOCK_SECONDS
        with contextlib.suppress(OSError):
            while (lock := SessionLock.take(self.folder)) is None and time.monotonic() < until:
                time.sleep(0.02)  # it is being thinned at the moment
            self._lock = lock

    def _may_write(self) -> None:
        if self.readonly:
            raise StoreError(f"the checkpoint data in {self.folder} are open for reading only; open them for writing")

    def _unwritable(self, fault: OSError) -> StoreError:
        self.fault = self._told(fault)
        return StoreError(self.fault)

    def _told(self, fault: OSError) -> str:
        return (
            f"checkpoint data cannot be written to {self.folder} ({fault.strerror or fault}); "
            f"free some space there, or set {CACHE} to a folder that can be written, and restart the kernel"
        )

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            if not writer.records:
                self._index.read_to.pop(writer.number, None)

    def read(self, address: str) -> memoryview:
        """Return a writable copy of a chunk. Raises StoreError if it is missing or damaged."""
        view = _new_memory(self.size(address), address)
        self.read_into(address, view)
        return view

    def read_into(self, address: str, view: memoryview) -> None:
        """Fill `view`, bytes of the chunk's size, with a chunk. Raises StoreError if it is missing or damaged."""
        entry = self._index.entry(address)
        view = view.cast("B") if view.nbytes else view
        if view.nbytes != entry.size:
            raise StoreError(f"chunk {address} has {entry.size} bytes, and not {view.nbytes}")
        try:
            try:
                self._fill(entry, view)
            except FileNotFoundError:  # another process moved it to another pack
                self.refresh()
                entry = self._index.entry(address)
                self._fill(entry, view)
        except (OSError, ValueError) as fault:
            if isinstance(fault, OSError) and fault.errno != errno.EIO:
                told = f"chunk {address} of {self.folder} cannot be read ({fault}); repair that and try again"
                raise StoreError(told) from fault
            raise self._failed(entry, str(fault)) from fault
        if (address_of(view) if address[0] == "x" else stream_address(view)) != address:
            raise self._failed(entry, "its content is not what was stored")

    def map_run(self, addresses: Iterable[str]) -> memoryview | None:
        """Return consecutive chunks as one private writable mapping; None if they cannot be mapped so.

        They can if they were put in this order inside `one_pack`, each but the last a multiple of 4 KiB. The data are
        read on access, and not checked. Raises StoreError if a chunk is missing, or is beyond the end of its pack.
        """
        entries = [self._index.entry(address) for address in addresses]
        if not entries or sum(entry.size for entry in entries) < _MAPPED_BYTES:
            return None
        first = entries[0]
        end = first.offset
        for entry in entries:
            if entry.depth or entry.pack != first.pack or entry.offset != end:
                return None
            end += entry.size
        try:
            return packs.map_data(self.folder, first.pack, first.offset, end - first.offset, writable=True)
        except FileNotFoundError:
            self.refresh()
            return None
        except packs.ShortPack as fault:
            raise self._failed(entries[-1], str(fault)) from fault
        except OSError:  # no memory or descriptors for it: it can still be read
            return None

    def _fill(self, entry: ChunkEntry, view: memoryview, links: int = 0) -> None:
        """Fill `view` with the content of a chunk, unverified. Raises OSError, ValueError, StoreError."""
        if not entry.depth:
            packs.read_into(self.folder, entry.pack, entry.offset, view)
            return
        if links > MOST_LINKS:
            raise ValueError("its deltas do not end")
        base = self._index.entry(entry.base)
        content = view[: base.size] if base.size <= entry.size else _new_memory(base.size, base.address)
        self._fill(base, content, links + 1)
        if base.size > entry.size:
            view[:] = content[: entry.size]
        pages.apply_delta(view, self._stored(entry))

    def _failed(self, entry: ChunkEntry, why: str) -> StoreError:
        """Mark a chunk as damaged, so that it can be stored again, and return the error."""
        reason = ""
        try:
            if entry.depth:
                self.read(entry.base)
        except StoreError as fault:
            reason = str(fault)
        if not reason:  # the fault is its own
            self._index.mark_damaged(entry)
        return StoreError(
            f"chunk {entry.address} of {packs.pack_path(self.folder, entry.pack)} is damaged ({reason or why}); "
            "re-run the cells that made its data, or return to another checkpoint"
        )

    def drop(self, addresses: Iterable[str], why: str = "") -> frozenset[str]:
        """Remove chunks to free space, and return those removed: their packs are rewritten without them.

        `why` is recorded. A chunk stays if one that stays is a delta of it, or if its pack is being appended to. All
        other chunks are on the disk at any instant, so a kill loses none. Raises StoreError if the disk is too full to
        rewrite a pack; earlier packs are done. Don't call it while a job of `Background` runs, which needs the chunks
        that were stored when it began.
        """
        self._may_write()
        self._close_writer()
        self.refresh()
        doomed = self._index.droppable(addresses)
        of_pack: dict[int, list[ChunkEntry]] = {}
        for entry in self.entries():
            of_pack.setdefault(entry.pack, []).append(entry)
        # Packs without chunks: after a kill, or after a chunk was written twice.
        for number in packs.listing(self.folder).keys() - of_pack.keys():
            if not packs.is_held(self.folder, number):
                self._remove(number)
        kept = {
            number: [entry for entry in there if entry.address not in doomed]
            for number, there in of_pack.items()
            if any(entry.address in doomed for entry in there) and not packs.is_held(self.folder, number)
        }
        # Begin with the smallest remains: they free space for the others.
        for number in sorted(kept, key=lambda number: sum(entry.stored for entry in kept[number])):
            # Before the removal: then no chunk is missing without a record.
            self._removed.record(doomed.intersection(entry.address for entry in of_pack[number]), why)
            self._rewrite(number, kept[number])
            for entry in of_pack[number]:
                if entry.address in doomed:
                    del self._index.records[entry.address]
        return frozenset(a for a in doomed if not self.has(a))

    def _rewrite(self, number: int, kept: list[ChunkEntry]) -> None:
        """Replace a pack by one with the chunks `kept` only. Raises StoreError."""
        made: dict[str, bytes] = {}
        if kept:
            writer = self.new_pack()
            try:
                for entry in kept:
                    with contextlib.suppress(packs.ShortPack):  # its data are lost already
                        stored = self._stored(entry)
                        offset = writer.write(stored, aligned=_is_aligned(entry))
                        made[entry.address] = writer.record(entry._replace(pack=writer.number, offset=offset))
                writer.sync()  # before the old one goes
            except BaseException as fault:
                writer.close(keep=True)
                packs.remove_pack(self.folder, writer.number)
                if isinstance(fault, OSError):
                    raise self._unwritable(fault) from fault
                raise
            writer.close()
            self._index.read_to[writer.number] = UNREAD
        self._remove(number)
        for entry in kept:
            del self._index.records[entry.address]
        self._index.records.update(made)

    def _remove(self, number: int) -> None:
        packs.remove_pack(self.folder, number)
        self._index.read_to.pop(number, None)

    def _stored(self, entry: ChunkEntry) -> memoryview:
        """Return the bytes of a chunk in its pack. Raises OSError."""
        if entry.stored >= _MAPPED_BYTES:
            mapping = packs.map_data(self.folder, entry.pack, entry.offset, entry.stored, writable=False)
            if mapping is not None:
                return mapping
        view = _new_memory(entry.stored, entry.address)
        packs.read_into(self.folder, entry.pack, entry.offset, view)
        return view

    def new_pack(self) -> PackWriter:
        """Return a new pack, for this process or another one to write. Raises StoreError."""
        self._may_write()
        self.check_folder()
        try:
            writer = PackWriter(self.folder)
        except OSError as fault:
            raise self._unwritable(fault) from fault
        if self._lock is None:
            self._take_lock()
        return writer

    def write_to(self, writer: PackWriter) -> None:
        """In a forked child, append to this pack instead of the parent's."""
        writer.process = os.getpid()
        self._writer = writer
        self._rolls = False

    def take_in(self, number: int) -> int:
        """Read the index of a pack that another process finished; return the number of its chunks."""
        self._index.read_to.pop(number, None)
        try:
            return self._index.load(number)
        except OSError as fault:
            told = f"pack {number} of {self.folder} cannot be read ({fault}); run the cell again whose data it has"
            raise StoreError(told) from fault

    def discard(self, number: int) -> None:
        """Remove a pack that another process did not finish."""
        packs.remove_pack(self.folder, number)
        self._index.forget({number})

    def close(self) -> None:
        """Close all files; a second call does nothing."""
        self._close_writer()
        self._release()

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def _new_memory(nbytes: int, address: str) -> memoryview:
    """Return zeros for the content of a chunk. Raises StoreError if they do not fit into the free memory."""
    free = free_memory() if nbytes >= _CHECKED_BYTES else None
    with contextlib.suppress(MemoryError):
        if free is None or nbytes <= free:
            return memoryview(bytearray(nbytes))
    raise StoreError(
        f"chunk {address} needs {format_size(nbytes)} of memory, more than are free; free some, or run less"
    )


def _changed_at(folder: Path) -> int:
    """Return the time of the last change of a folder's entries, in nanoseconds; 0 if the folder does not exist."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _is_aligned(entry: ChunkEntry) -> bool:
    return not entry.depth and entry.size >= LARGE_BYTES
