"""The data of checkpoints: chunks, each under the hash of its content, in the packs of one folder.

Rule 1: what is read is what was put, or StoreError names the chunk: every chunk is checked against its address.
Rule 2: a chunk is there once its record is; killing the process at any instant loses what is being put, no more.
Rule 3: one thread at a time; any number of processes may read beside the one that writes.
Rule 4: a fault while writing leaves all that was there readable.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import time
from collections.abc import Generator, Iterable
from pathlib import Path

from xxhash import xxh3_128_hexdigest

from ctxkernel.core.errors import StoreError
from ctxkernel.store.chunks import packs, pages
from ctxkernel.store.chunks.manifest import GIVEN_UP
from ctxkernel.store.chunks.packs import LARGE_BYTES, UNREAD, Entry, PackReader, PackWriter, ReadTo, depth_of, entry_of
from ctxkernel.store.lock import SessionLock, lock_path

Buffer = bytes | bytearray | memoryview
MOST_LINKS = 8
"""Deltas between a chunk and one that is stored as it is."""
PACK_BYTES = 256 * 1024 * 1024
CACHE = "CTXKERNEL_CACHE"
"""The variable that moves the data elsewhere."""

_GIVEN_UP = "given-up"
"""The file of a folder that lists the chunks that were given up: a line each time, of the day, them, and why."""
_ADDRESS = re.compile(r"[xb][0-9a-f]{32}")
_LOCK_SECONDS = 0.3
_MAPPED_BYTES = 1024 * 1024
"""Below, a copy costs less than a mapping."""


def address_of(data: Buffer) -> str:
    """Return the address of raw data: `x` and the xxh3_128 of its bytes."""
    return "x" + xxh3_128_hexdigest(data)


def stream_address(data: Buffer) -> str:
    """Return the address of data that are trusted, such as a pickle stream: `b` and their blake2b-128."""
    return "b" + hashlib.blake2b(data, digest_size=16).hexdigest()


class ChunkStore:
    """The chunks of one session.

    The folder is made by the first `put`. With `readonly`, nothing in it is changed. `lock` is the folder's own, where
    the caller has it already; the store releases it. Raises StoreError where the folder cannot be read.
    """

    def __init__(self, folder: Path, *, readonly: bool = False, lock: SessionLock | None = None) -> None:
        self.folder = folder
        self.readonly = readonly
        self._records: dict[str, bytes] = {}
        self._read_to: dict[int, ReadTo] = {}
        """The packs that are known, and how much of their indexes."""
        self._verified: set[str] = set()
        self._scratch = bytearray()
        """Memory for a chunk to compare with: memory that is new each time costs as much as comparing."""
        self._damaged: dict[str, set[bytes]] = {}
        self.lost = ""
        """What was deleted under the store while it was open; empty where nothing was."""
        self.fault = ""
        """Why the last thing could not be written; empty where it could."""
        self._given_up: dict[str, str] | None = None
        """The chunks that were given up, and why; None before somebody asked."""
        self._seen = 0
        self._reader = PackReader(folder)
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

    def has(self, address: str) -> bool:
        """Say whether a chunk is there, as far as the indexes tell."""
        for _ in range(2 * MOST_LINKS):
            record = self._records.get(address)
            if record is None or not depth_of(record):
                return record is not None
            address = entry_of(record).base
        return False

    def missing(self, addresses: Iterable[str]) -> list[str]:
        """Return those that are not there, in the order given, each once; looks whether packs were deleted.

        Raises StoreError where the folder cannot be read.
        """
        now = _changed_at(self.folder)
        if now != self._seen or not now:
            self.refresh()
        return [address for address in dict.fromkeys(addresses) if not self.has(address)]

    def why_missing(self, address: str) -> str:
        """Return why a chunk is not there."""
        if not self._given_up:
            self._given_up = {}
            with contextlib.suppress(OSError, UnicodeDecodeError):
                for line in (self.folder / _GIVEN_UP).read_text("utf-8").splitlines():
                    listed, _, why = line.partition("\t")
                    day, *addresses = listed.split()
                    told = f"{GIVEN_UP} on {day}{f' ({why})' if why else ''}"
                    self._given_up.update(dict.fromkeys(addresses, told))
        if not self.folder.is_dir():
            return f"its data are not on this machine: there is no {self.folder}"
        return self._given_up.get(address) or f"chunk {address} is missing: deleted, or never copied to this machine"

    def why_unwritable(self) -> str:
        """Return why nothing can be written now, or an empty text. Writes nothing."""
        folder = self.folder
        while not folder.is_dir() and folder != folder.parent:
            folder = folder.parent
        if self.readonly or not os.access(folder, os.W_OK | os.X_OK):
            return self._told(OSError(errno.EROFS, "it may only be read"))
        if hasattr(os, "statvfs") and os.statvfs(folder).f_bavail == 0:
            return self._told(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return self.fault

    def size(self, address: str) -> int:
        """Return the bytes of a chunk's content. Raises StoreError where it is not there."""
        return self._entry(address).size

    def entries(self) -> list[Entry]:
        """Return where each chunk is, in the order in which they were written."""
        return sorted(map(entry_of, self._records.values()), key=lambda entry: (entry.pack, entry.offset))

    @property
    def growing(self) -> bool:
        """Whether another process writes here: that of a kernel that was killed finishes what it had begun.

        Always False where files cannot be locked.
        """
        own = self._writer.number if self._writer is not None else None
        return any(number != own and packs.is_held(self.folder, number) for number in packs.listing(self.folder))

    @property
    def bytes_stored(self) -> int:
        """Bytes of all packs and indexes."""
        total = 0
        for number in self._read_to:
            for path in (packs.pack_path(self.folder, number), packs.index_path(self.folder, number)):
                with contextlib.suppress(OSError):
                    total += path.stat().st_size
        return total

    def refresh(self) -> None:
        """Take in what other processes wrote and removed. Raises StoreError where the folder cannot be read."""
        own = self._writer.number if self._writer is not None else None
        try:
            self._seen = _changed_at(self.folder)
            there = packs.listing(self.folder)
            gone = {number for number in self._read_to if there.get(number) != {"pack", "index"}}
            if gone:
                self._lose(gone)
            for number, parts in there.items():
                if number != own and len(parts) == 2:
                    self._load(number)
        except OSError as fault:
            told = f"the checkpoint data in {self.folder} cannot be read ({fault}); make the folder readable"
            raise StoreError(f"{told}, or set {CACHE} to another one") from fault

    def check_folder(self) -> None:
        """Raise StoreError where packs are gone that were there; what they held is not there from then on.

        Once for each loss: what is put afterwards is written anew. Takes 0.1 ms.
        """
        try:
            there = packs.listing(self.folder)
        except OSError as fault:
            raise self._unwritable(fault) from fault
        if self._read_to.keys() <= there.keys():
            return
        self.refresh()
        raise StoreError(
            f"the checkpoint data in {self.folder} were deleted while the kernel ran, and earlier checkpoints with "
            "them; the next checkpoint is written anew"
        )

    def _load(self, number: int) -> int:
        """Read what is new in an index; return the number of its chunks. Raises OSError."""
        try:
            known = self._read_to.get(number, UNREAD)
            found, read_to = packs.read_index(self.folder, number, known)
        except FileNotFoundError:  # removed since it was listed
            return 0
        if known.mark and known.mark != read_to.mark:
            self._forget({number})
        self._read_to[number] = read_to
        if not self._damaged and self._records.keys().isdisjoint(found):  # as ever, and fast
            self._records.update(found)
            return len(found)
        for address, record in found.items():
            if record in self._damaged.get(address, ()):
                continue
            # A delta gives way to the same chunk stored as it is, and a damaged one to what came after it.
            if (old := self._records.get(address)) is None or depth_of(record) <= depth_of(old):
                self._records[address] = record
        return len(found)

    def _lose(self, numbers: set[int]) -> None:
        """Packs are gone that another process did not move: somebody deleted them."""
        if self._writer is not None and self._writer.number in numbers:
            writer, self._writer = self._writer, None
            writer.close(keep=True)
        if not lock_path(self.folder).exists():
            self._release()
        before = len(self._records)
        self._forget(numbers)
        if not self.readonly and len(self._records) < before:
            self.lost = f"checkpoint data in {self.folder} were deleted while the kernel ran"

    def _forget(self, numbers: set[int]) -> None:
        self._reader.forget(numbers)
        for number in numbers:
            self._read_to.pop(number, None)
        lost = [address for address, record in self._records.items() if entry_of(record).pack in numbers]
        for address in lost:
            del self._records[address]
            self._verified.discard(address)
        if lost:  # a second copy elsewhere was hidden by the one that is gone: the next refresh finds it
            self._read_to = dict.fromkeys(self._read_to, UNREAD)

    def _entry(self, address: str) -> Entry:
        record = self._records.get(address)
        if record is not None and self.has(address):
            return entry_of(record)
        state = "damaged" if address in self._damaged else "not there"
        state = state if record is None else "a delta of one that is damaged"
        raise StoreError(
            f"chunk {address} of {self.folder} is {state}; re-run the cells that made its data, "
            "or return to another checkpoint"
        )

    def put(self, address: str, data: Buffer, *, base: str | None = None) -> int:
        """Store `data` under its address and return the bytes written: 0 where it is there already.

        `base` is an earlier chunk of the same place: where less than half of the pages differ, those are stored.
        `data` is contiguous. Raises StoreError where it cannot be written, or is not what the address says.
        """
        if self.has(address):
            return 0
        if not _ADDRESS.fullmatch(address):
            raise StoreError(f"{address!r} is no address of a chunk; take it from address_of() or stream_address()")
        view = memoryview(data)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        writer = self._writing()
        try:
            made = self._as_delta(address, view, base) if base is not None and address not in self._damaged else None
            entry, stored = made or (Entry(address, "", 0, 0, 0, len(view), len(view)), view)
            offset = writer.write(stored, aligned=_is_aligned(entry))
            # After the write: a thread of the user may have changed the data since they were hashed.
            if address[0] == "x" and address_of(view) != address:
                writer.take_back()
                raise StoreError(f"the data of chunk {address} changed while they were stored; run the cell again")
            record = writer.record(entry._replace(pack=writer.number, offset=offset))
        except OSError as fault:
            self._close_writer()
            raise self._unwritable(fault) from fault
        self._records[address] = record
        self._verified.discard(address)
        self.fault = ""
        return entry.stored

    @contextlib.contextmanager
    def one_pack(self) -> Generator[None]:
        """What is put inside lies in one new pack, in order: a buffer cut into chunks can be mapped as one."""
        self._close_writer()
        self._rolls = False
        try:
            yield
        finally:
            self._rolls = True
            self._close_writer()

    def _as_delta(self, address: str, view: memoryview, base: str) -> tuple[Entry, bytes] | None:
        """Return the entry and the bytes of a delta; None where it is not worth it."""
        record = self._records.get(base)
        if record is None or len(view) < LARGE_BYTES or not self.has(base):
            return None
        old = entry_of(record)
        if old.depth >= MOST_LINKS or old.size < LARGE_BYTES:
            return None
        try:
            made = pages.delta(view, self._view(old), most=len(view) // 2)
        except (OSError, ValueError, StoreError):  # it shall be stored as it is then
            return None
        return None if made is None else (Entry(address, base, old.depth + 1, 0, 0, len(made), len(view)), made)

    def _writing(self) -> PackWriter:
        """Return the pack to append to. Raises StoreError."""
        self._may_write()
        if self._writer is not None and self._writer.process != os.getpid():
            # A child that the user forked: two processes must not append to one pack.
            self._writer.close(keep=True)
            self._writer = None
        if self._writer is not None and not self._writer.in_place:
            self.check_folder()
        if self._writer is not None and self._rolls and self._writer.end >= PACK_BYTES:
            self._close_writer()
        if self._writer is None:
            self._writer = self.new_pack()
            self._read_to[self._writer.number] = UNREAD
        return self._writer

    def _take_lock(self) -> None:
        """Tell those who clear up other sessions that this one is in use. It need not be had to write."""
        until = time.monotonic() + _LOCK_SECONDS
        with contextlib.suppress(OSError):
            while (lock := SessionLock.take(self.folder)) is None and time.monotonic() < until:
                time.sleep(0.02)  # it is being cleared up just now
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
                self._read_to.pop(writer.number, None)

    def read(self, address: str) -> memoryview:
        """Return a copy of a chunk, writable. Raises StoreError where it is missing or damaged."""
        view = memoryview(bytearray(self.size(address)))
        self.read_into(address, view)
        return view

    def read_into(self, address: str, view: memoryview) -> None:
        """Fill `view`, bytes of the chunk's size, with a chunk. Raises StoreError where it is missing or damaged."""
        entry = self._entry(address)
        view = view.cast("B") if view.nbytes else view
        if view.nbytes != entry.size:
            raise StoreError(f"chunk {address} has {entry.size} bytes, and not {view.nbytes}")
        try:
            try:
                self._fill(entry, view)
            except FileNotFoundError:  # another process moved it to another pack
                self.refresh()
                entry = self._entry(address)
                self._fill(entry, view)
        except (OSError, ValueError) as fault:
            if isinstance(fault, OSError) and fault.errno != errno.EIO:
                told = f"chunk {address} of {self.folder} cannot be read ({fault}); mend that and try again"
                raise StoreError(told) from fault
            raise self._failed(entry, str(fault)) from fault
        if address not in self._verified:
            self._check(entry, view)

    def map_run(self, addresses: Iterable[str]) -> memoryview | None:
        """Return the chunks one after the other as one private writable mapping; None where they cannot be mapped so.

        They can where they were put in this order inside `one_pack`, each but the last a multiple of 4 KiB. Nothing is
        read before it is touched, nor checked. Raises StoreError where one is missing, or lies beyond its pack's end.
        """
        entries = [self._entry(address) for address in addresses]
        if not entries or sum(entry.size for entry in entries) < _MAPPED_BYTES:
            return None
        first = entries[0]
        end = first.offset
        for entry in entries:
            if entry.depth or entry.pack != first.pack or entry.offset != end:
                return None
            end += entry.size
        try:
            return self._reader.map(first.pack, first.offset, end - first.offset, writable=True)
        except FileNotFoundError:
            self.refresh()
            return None
        except packs.ShortPack as fault:
            raise self._failed(entries[-1], str(fault)) from fault
        except OSError:  # no memory or descriptors for it: it can be read still
            return None

    def verify(self, address: str) -> None:
        """Check a chunk against its address, anew. Raises StoreError where it is missing or damaged."""
        self._verified.discard(address)
        self.read(address)

    def _check(self, entry: Entry, view: memoryview) -> None:
        made = address_of(view) if entry.address[0] == "x" else stream_address(view)
        if made != entry.address:
            raise self._failed(entry, "its content is not what was stored")
        self._verified.add(entry.address)

    def _view(self, entry: Entry) -> memoryview:
        """Return the content of a chunk to look at until the next call, unverified.

        Raises OSError, ValueError, StoreError.
        """
        if not entry.depth:
            return self._stored(entry)
        if len(self._scratch) < entry.size:
            self._scratch = bytearray(entry.size)
        view = memoryview(self._scratch)[: entry.size]
        self._fill(entry, view)
        return view

    def _fill(self, entry: Entry, view: memoryview, links: int = 0) -> None:
        """Fill `view` with the content of a chunk, unverified. Raises OSError, ValueError, StoreError."""
        if not entry.depth:
            self._reader.read_into(entry.pack, entry.offset, view)
            return
        if links > MOST_LINKS:
            raise ValueError("its deltas do not end")
        base = self._entry(entry.base)
        content = view[: base.size] if base.size <= entry.size else memoryview(bytearray(base.size))
        self._fill(base, content, links + 1)
        if base.size > entry.size:
            view[:] = content[: entry.size]
        pages.apply(view, self._stored(entry))

    def _failed(self, entry: Entry, why: str) -> StoreError:
        """Take note of a damaged chunk, so that it can be stored again, and return the error that says so."""
        reason = ""
        try:
            if entry.depth:
                self.verify(entry.base)
        except StoreError as fault:
            reason = str(fault)
        if not reason:  # the fault is its own
            self._records.pop(entry.address, None)
            self._verified.discard(entry.address)
            self._damaged.setdefault(entry.address, set()).add(packs.body_of(entry))
        return StoreError(
            f"chunk {entry.address} of {packs.pack_path(self.folder, entry.pack)} is damaged ({reason or why}); "
            "re-run the cells that made its data, or return to another checkpoint"
        )

    def drop(self, addresses: Iterable[str], why: str = "") -> frozenset[str]:
        """Give chunks up, and their space: packs that have some of them are written anew without; return those gone.

        `why` is recorded. A chunk stays where one that stays is a delta of it, and where its pack is being appended to.
        At any instant all that stays is on the disk, so a kill loses nothing. Raises StoreError where the disk is too
        full to write a pack anew; what was done by then is done. Not while a job of `Background` is under way: it
        counts on what was there when it began.
        """
        self._may_write()
        self._close_writer()
        self.refresh()
        doomed = self._droppable(addresses)
        # Packs that hold no chunk: a kill leaves some, and so does a chunk that was written twice.
        used = {entry_of(record).pack for record in self._records.values()}
        for number in packs.listing(self.folder).keys() - used:
            if not packs.is_held(self.folder, number):
                self._remove(number)
        of_pack: dict[int, list[Entry]] = {}
        for entry in self.entries():
            of_pack.setdefault(entry.pack, []).append(entry)
        kept = {
            number: [entry for entry in there if entry.address not in doomed]
            for number, there in of_pack.items()
            if any(entry.address in doomed for entry in there) and not packs.is_held(self.folder, number)
        }
        # Those that leave the least first: they give space for the others.
        for number in sorted(kept, key=lambda number: sum(entry.stored for entry in kept[number])):
            # Before they go: what was taken is known for sure, and one that is there all the same is read.
            self._record(doomed.intersection(entry.address for entry in of_pack[number]), why)
            self._rewrite(number, kept[number])
            for entry in of_pack[number]:
                if entry.address in doomed:
                    del self._records[entry.address]
                    self._verified.discard(entry.address)
        return frozenset(a for a in doomed if not self.has(a))

    def _record(self, addresses: Iterable[str], why: str) -> None:
        """Write down that chunks are given up; a disk that is too full for that gets the room first of all."""
        line = " ".join((time.strftime("%Y-%m-%d"), *sorted(addresses))) + f"\t{' '.join(why.split())}\n"
        with contextlib.suppress(OSError), (self.folder / _GIVEN_UP).open("a", encoding="utf-8") as file:
            file.write(line)
        self._given_up = None

    def _droppable(self, addresses: Iterable[str]) -> set[str]:
        doomed = {address for address in addresses if address in self._records}
        for address, record in self._records.items():
            below = record if address not in doomed else None
            while below is not None and depth_of(below):
                base = entry_of(below).base
                doomed.discard(base)
                below = self._records.get(base)
        return doomed

    def _rewrite(self, number: int, kept: list[Entry]) -> None:
        """Replace a pack by one that holds `kept` only. Raises StoreError."""
        made: dict[str, bytes] = {}
        if kept:
            writer = self.new_pack()
            try:
                for entry in kept:
                    with contextlib.suppress(packs.ShortPack):  # what is torn off cannot be kept
                        stored = self._stored(entry)
                        offset = writer.write(stored, aligned=_is_aligned(entry))
                        made[entry.address] = writer.record(entry._replace(pack=writer.number, offset=offset))
                writer.sync()  # before the old one goes
            except BaseException as fault:
                writer.close(keep=True)
                packs.remove(self.folder, writer.number)
                if isinstance(fault, OSError):
                    raise self._unwritable(fault) from fault
                raise
            writer.close()
            self._read_to[writer.number] = UNREAD
        self._remove(number)
        for entry in kept:
            del self._records[entry.address]
        self._records.update(made)

    def _remove(self, number: int) -> None:
        self._reader.forget([number])
        packs.remove(self.folder, number)
        self._read_to.pop(number, None)

    def _stored(self, entry: Entry) -> memoryview:
        """Return the bytes of a chunk in its pack. Raises OSError."""
        if entry.stored >= _MAPPED_BYTES:
            mapping = self._reader.map(entry.pack, entry.offset, entry.stored, writable=False)
            if mapping is not None:
                return mapping
        view = memoryview(bytearray(entry.stored))
        self._reader.read_into(entry.pack, entry.offset, view)
        return view

    def new_pack(self) -> PackWriter:
        """Return a pack for another process to write, which tells its number when it is done. Raises StoreError."""
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
        """In a forked child: append to this pack, and leave the parent's alone."""
        writer.process = os.getpid()
        self._reader = PackReader(self.folder)
        self._writer = writer
        self._rolls = False

    def take_in(self, number: int) -> int:
        """Read the index of a pack that another process finished; return the number of its chunks."""
        self._read_to.pop(number, None)
        try:
            return self._load(number)
        except OSError as fault:
            told = f"pack {number} of {self.folder} cannot be read ({fault}); run the cell again whose data it has"
            raise StoreError(told) from fault

    def discard(self, number: int) -> None:
        """Remove a pack that another process did not finish."""
        packs.remove(self.folder, number)
        self._forget({number})

    def close(self) -> None:
        """Close all files. Twice is as good as once."""
        self._close_writer()
        self._reader.close()
        self._release()

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def _changed_at(folder: Path) -> int:
    """Return when something was last added to a folder or removed from it, in nanoseconds; 0 where it is not there."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - for each state that is looked at
    except OSError:
        return 0


def _is_aligned(entry: Entry) -> bool:
    return not entry.depth and entry.size >= LARGE_BYTES
