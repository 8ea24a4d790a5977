"""Packs: files of chunk data, each with an index of fixed-width records with checksums.

Rule 1: Only the process that made a pack appends to it; another process makes another pack.
Rule 2: A record is written after its data: a kill at any instant loses only data without a record.
Rule 3: The process that appends holds a lock on the pack until it ends, so nobody rewrites a pack that grows.
Rule 4: A record counts only if its checksum is right, its fields fit, and its data are within the pack. Anyone can make
        a checksum, so nothing else that a record says is believed.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import struct
import sys
import weakref
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from ctxkernel.store.chunks.pages import PAGE
from ctxkernel.store.regular_files import open_regular

fcntl: Any = None
with contextlib.suppress(ImportError):  # Windows locks ranges, which cannot be read then: no locks on packs there
    import fcntl

LARGE_BYTES = 64 * 1024
"""Data of this size or more begin at a page, so they can be mapped."""

_MAGIC = b"ctxkernel pack1\n"
_HEADER = struct.Struct("<16sQ")
"""The format, and a random mark, since the number of a removed pack is used again."""
_BODY = struct.Struct("<33s33sBxIQQQ")
_RECORD = struct.Struct(f"<{_BODY.size}sQ")
_DEPTH_AT = 66
_ADDRESS_BYTES = 33
_NAME = re.compile(r"([0-9]{6,9})\.(pack|index)")
_MOST_PACKS = 10**9
ADDRESS = re.compile(r"[xb][0-9a-f]{32}")
MOST_RECORDS = 500_000
"""Records of a pack."""
_ADDRESS = re.compile(ADDRESS.pattern.encode())
_MOST_MAPPINGS = 200
"""Before Python 3.13 a mapping holds a descriptor, and a process often may have only 1024."""
_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class ChunkEntry(NamedTuple):
    """The place of a chunk."""

    address: str
    base: str
    """The chunk of which it is a delta, or an empty text."""
    depth: int
    """Deltas between it and a chunk that is stored whole; 0 for a whole chunk."""
    pack: int
    offset: int
    stored: int
    size: int
    """Bytes of the content; `stored` are those in the pack."""


class ReadTo(NamedTuple):
    """The part of an index that was read."""

    mark: int = 0
    offset: int = 0


UNREAD = ReadTo()


class ShortPack(OSError):
    """A pack ends before the data that were asked for."""


def entry_of(body: bytes) -> ChunkEntry:
    """Return the entry of a record."""
    address, base, depth, pack, offset, stored, size = _BODY.unpack(body)
    return ChunkEntry(address.decode(), base.rstrip(b"\0").decode(), depth, pack, offset, stored, size)


def body_of(entry: ChunkEntry) -> bytes:
    """Return the record of an entry."""
    return _BODY.pack(entry.address.encode(), entry.base.encode(), *entry[2:])


def depth_of(body: bytes) -> int:
    """Return the depth in a record."""
    return body[_DEPTH_AT]


def pack_path(folder: Path, number: int) -> Path:
    """Return the file of a pack."""
    return folder / f"{number:06d}.pack"


def index_path(folder: Path, number: int) -> Path:
    """Return the file of a pack's index."""
    return folder / f"{number:06d}.index"


def is_pack(name: str) -> bool:
    """Return whether a file name is that of a pack or its index."""
    return _NAME.fullmatch(name) is not None


def listing(folder: Path) -> dict[int, set[str]]:
    """Return the pack numbers in a folder, ascending, each with its files: `pack`, `index`. Raises OSError."""
    found: dict[int, set[str]] = {}
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(folder)
    for match in filter(None, map(_NAME.fullmatch, names)):
        found.setdefault(int(match[1]), set()).add(match[2])
    return dict(sorted(found.items()))


def read_index(folder: Path, number: int, known: ReadTo = UNREAD) -> tuple[dict[str, bytes], ReadTo]:
    """Return ({address: record}, the part that was read) of an index after `known`; from its start if its mark differs.

    Damaged records are skipped, as are those whose data are beyond the pack's end. Raises OSError.
    """
    with os.fdopen(open_regular(index_path(folder, number), os.O_RDONLY), "rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            return {}, UNREAD
        _, mark = _HEADER.unpack(header)
        start = max(known.offset, _HEADER.size) if known.mark == mark else _HEADER.size
        file.seek(start)
        data = file.read(max(0, MOST_RECORDS * _RECORD.size + _HEADER.size - start))
    # After the index was read: the data of its records are in the pack by now.
    end_of_pack = pack_path(folder, number).lstat().st_size
    whole = len(data) // _RECORD.size * _RECORD.size
    seed = mark ^ number
    found: dict[str, bytes] = {}
    for body, checksum in _RECORD.iter_unpack(data[:whole]):
        if xxh3_64_intdigest(body, seed) == checksum and _fits(body, number, end_of_pack):
            address = body[:_ADDRESS_BYTES].decode()
            if address not in found or depth_of(body) <= depth_of(found[address]):
                found[address] = body
    return found, ReadTo(mark, start + whole)


def _fits(body: bytes, number: int, end_of_pack: int) -> bool:
    """Return whether the fields of a record can be true."""
    address, base, depth, pack, offset, stored, size = _BODY.unpack(body)
    if pack != number or offset + stored > end_of_pack or not _ADDRESS.fullmatch(address):
        return False
    if not depth:
        return stored == size and not base.rstrip(b"\0")
    return _ADDRESS.fullmatch(base) is not None


class PackWriter:
    """A new pack of a folder, which is created if needed, to append to until `close`. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = os.getpid()
        self.end = 0
        """The end of the data with records."""
        self.records = 0
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        number = max(listing(folder), default=0)
        if number + 1 >= _MOST_PACKS:  # no kernel makes so many
            number = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY
        while True:
            number += 1
            with contextlib.suppress(FileExistsError):
                data = os.open(pack_path(folder, number), flags, 0o600)
                break
        opened = [data]
        try:
            if fcntl is not None:  # locked until the last copy of the descriptor is closed
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(data, fcntl.LOCK_EX)
            opened.append(index := os.open(index_path(folder, number), flags, 0o600))
            mark = int.from_bytes(os.urandom(8)) or 1
            write_all(index, _HEADER.pack(_MAGIC, mark))
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            remove_pack(folder, number)
            raise
        self.number = number
        self._path = str(pack_path(folder, number))
        self._data, self._index, self._seed = data, index, mark ^ number

    @property
    def in_place(self) -> bool:
        """Return whether the pack is still in the folder: a deleted one can be written, but never read again."""
        if os.name == "nt":  # an open file cannot be deleted there
            return True
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._data))
        except OSError:
            return False

    def is_full(self, nbytes: int) -> bool:
        """Return whether the pack has `nbytes` of data, or as many records as are read."""
        return self.end >= nbytes or self.records >= MOST_RECORDS

    def write(self, data: memoryview | bytes, *, aligned: bool) -> int:
        """Write data and return their offset. They are stored after `record`. Raises OSError."""
        at = -(-self.end // PAGE) * PAGE if aligned else self.end
        try:
            os.lseek(self._data, at, os.SEEK_SET)
            write_all(self._data, data)
        except BaseException:  # an interrupt too
            self.take_back()
            raise
        return at

    def record(self, entry: ChunkEntry) -> bytes:
        """Write and return the record of `entry`, whose data were written. Raises OSError."""
        body = body_of(entry)
        try:
            write_all(self._index, _RECORD.pack(body, xxh3_64_intdigest(body, self._seed)))
        except BaseException:
            self.take_back()
            raise
        self.end = entry.offset + entry.stored
        self.records += 1
        return body

    def take_back(self) -> None:
        """Truncate the files after the last record: data without a record, and half a record."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._data, self.end)
        end = _HEADER.size + self.records * _RECORD.size
        with contextlib.suppress(OSError):
            os.ftruncate(self._index, end)
            os.lseek(self._index, end, os.SEEK_SET)

    def sync(self) -> None:
        """Wait until the disk has all data. Raises OSError."""
        os.fsync(self._data)
        os.fsync(self._index)

    def close(self, *, keep: bool = False) -> None:
        """Close the files, and delete them if there is no record, unless `keep`; a second call does nothing."""
        data = self._data
        for descriptor in self.descriptors() if data >= 0 else ():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._data = self._index = -1
        if data >= 0 and not keep and not self.records and self.process == os.getpid():
            remove_pack(self.folder, self.number)

    def descriptors(self) -> tuple[int, int]:
        """Return the descriptors of pack and index."""
        return self._data, self._index


_mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def read_into(folder: Path, number: int, offset: int, view: memoryview) -> None:
    """Fill `view` from a pack. Raises ShortPack, FileNotFoundError, OSError."""
    with FileIO(open_regular(pack_path(folder, number), os.O_RDONLY)) as file:
        file.seek(offset)
        while view:
            got = file.readinto(view)
            if not got:
                raise ShortPack(errno.EIO, "it ends too early", str(pack_path(folder, number)))
            view = view[got:]


def map_data(folder: Path, number: int, offset: int, size: int, *, writable: bool) -> memoryview | None:
    """Return a mapping of data of a pack, with private writes; None if there are too many mappings.

    Raises ShortPack, FileNotFoundError, OSError.
    """
    options: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) and os.name == "posix" else {}
    if not options and len(_mappings) >= _MOST_MAPPINGS:
        return None
    before = offset % mmap.ALLOCATIONGRANULARITY
    access = mmap.ACCESS_COPY if writable else mmap.ACCESS_READ
    with FileIO(open_regular(pack_path(folder, number), os.O_RDONLY)) as file:
        try:
            mapping = mmap.mmap(file.fileno(), before + size, access=access, offset=offset - before, **options)
        except ValueError as error:
            raise ShortPack(errno.EIO, str(error), str(pack_path(folder, number))) from error
    _mappings.add(mapping)
    return memoryview(mapping)[before : before + size]


def remove_pack(folder: Path, number: int) -> None:
    """Delete a pack, its index first: a pack without one is empty. Never raises OSError."""
    for path in (index_path(folder, number), pack_path(folder, number)):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def write_all(descriptor: int, data: memoryview | bytes) -> None:
    """Write all of `data` to a descriptor. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def is_held(folder: Path, number: int) -> bool:
    """Return whether a process appends to a pack; False if files cannot be locked."""
    if fcntl is None:
        return False
    try:
        descriptor = open_regular(pack_path(folder, number), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return error.errno in {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK}
    finally:
        os.close(descriptor)
