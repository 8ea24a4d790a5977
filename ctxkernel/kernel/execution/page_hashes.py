"""Content addresses of the chunks of large memory: only memory that was written since the last hash is hashed again.

Linux from 6.7 on can tell which pages of a process were written: userfaultfd in its asynchronous write-protect mode,
and the ioctl PAGEMAP_SCAN (Documentation/admin-guide/mm/pagemap.rst of the kernel's sources). On other systems, and
whenever something is not as expected, everything is hashed.

Rule 1: a page counts as unwritten only if it is private and anonymous, is in memory, and was protected before it was
        hashed.
Rule 2: this proof is used to find the changes of a cell. A return hashes everything: a device can write to memory that
        is pinned for it without the processor's page tables.
Rule 3: the first write to a protected page costs the user's code some 2 µs, a third of a millisecond for each MB. So
        memory is watched only after it stayed unchanged, and not for a long time after it was rewritten.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import struct
import sys
from bisect import bisect_right
from collections.abc import Sequence

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.ports import Expired
from ctxkernel.state.tracking.chunk_addresses import CHUNK, chunk_address, chunks_of
from ctxkernel.state.types.file_objects import buffer_address
from ctxkernel.state.types.parts import OutOfTime, Unfinished, never

if os.name == "posix":
    import fcntl

LEAST = 16 * 1024 * 1024
"""Bytes from which on memory is watched: less is hashed within a millisecond."""
MOST_WATCHED = 500
"""Ranges: each splits a mapping of the process, which may have 65,530."""
REWRITTEN = 1 / 8
"""Share of the pages from which on hashing is cheaper than watching the writes."""
PATIENCE = 8
"""Checks that must find memory unchanged before it is watched again: they cost as much as one rewriting does.

Memory that was unchanged for more than twice as many before it was rewritten stays watched."""

_SYSCALL = {"x86_64": 323, "aarch64": 282}
_USER_MODE_ONLY = 1
_API, _REGISTER, _UNREGISTER = 0xC018AA3F, 0xC020AA00, 0x8010AA01
_ASYNC = 1 << 15 | 1 << 13
"""UFFD_FEATURE_WP_ASYNC and UFFD_FEATURE_WP_UNPOPULATED, which it needs."""
_WRITE_PROTECT = 2
_SCAN = 0xC0606610
_PROTECT_MATCHING, _CHECK_ASYNC = 1, 2
_IS_WRITTEN, _IS_PRESENT = 1 << 1, 1 << 3
_SPANS = 4096


class WrittenPages:
    """Tells which pages of this process were written. Raises OSError if the system cannot tell."""

    def __init__(self) -> None:
        number = _SYSCALL.get(platform.machine()) if platform.system() == "Linux" else None
        if number is None:
            raise OSError("no PAGEMAP_SCAN on this system")
        self._spans = (ctypes.c_uint64 * (3 * _SPANS))()
        self._pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        call = ctypes.CDLL(None, use_errno=True).syscall
        self._faults = int(call(number, os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY))
        try:
            if self._faults < 0:
                raise OSError(ctypes.get_errno(), "userfaultfd is not allowed")
            fcntl.ioctl(self._faults, _API, bytearray(struct.pack("QQQ", 0xAA, _ASYNC, 0)))
            self._try()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Stop watching."""
        for descriptor in (self._faults, self._pagemap):
            if descriptor >= 0:
                os.close(descriptor)

    def _try(self) -> None:
        """Raise OSError if the system does not report writes correctly, on memory of our own."""
        with mmap.mmap(-1, 4 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.write(b"1" * len(memory))
            held = ctypes.c_char.from_buffer(memory)
            start, page = ctypes.addressof(held), mmap.PAGESIZE
            try:
                works = self.watch(start, len(memory)) and self.written(start, len(memory)) == []
                memory[2 * page] = 50
                works = works and self.written(start, len(memory)) == [(2 * page, 3 * page)]
                if not works or self.written(start, len(memory)) != []:
                    raise OSError("the system does not report the written pages")
            finally:
                del held

    def watch(self, start: int, size: int) -> bool:
        """Protect whole pages of private memory; all of them count as unwritten then. Return whether that was done.

        Code that runs meanwhile in another thread may have written to them before.
        """
        if not _is_private(start, size):
            return False
        try:
            fcntl.ioctl(self._faults, _REGISTER, bytearray(struct.pack("QQQQ", start, size, _WRITE_PROTECT, 0)))
        except OSError:
            return False
        return self.written(start, size) is not None

    def unwatch(self, start: int, size: int) -> None:
        """Stop noting writes; do nothing if the memory is gone."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._faults, _UNREGISTER, struct.pack("QQ", start, size))

    def written(self, start: int, size: int) -> list[tuple[int, int]] | None:
        """Return the spans written since the last call, or not in memory, as offsets; None if that is not known."""
        found: list[tuple[int, int]] = []
        at, end, vector = start, start + size, ctypes.addressof(self._spans)
        flags, pages = _PROTECT_MATCHING | _CHECK_ASYNC, _IS_WRITTEN | _IS_PRESENT
        while at < end:
            asked = bytearray(
                struct.pack("12Q", 96, flags, at, end, 0, vector, _SPANS, 0, _IS_PRESENT, 0, pages, _IS_WRITTEN)
            )
            try:
                count = fcntl.ioctl(self._pagemap, _SCAN, asked)
            except OSError:  # not watched: the address belongs to other memory
                return None
            found += [(self._spans[3 * n] - start, self._spans[3 * n + 1] - start) for n in range(count)]
            (walked,) = struct.unpack_from("Q", asked, 32)
            if walked <= at:
                return None
            at = walked
        return found


def _is_private(start: int, size: int) -> bool:
    """Return whether memory belongs to this process alone, and to no file."""
    end = start + size
    with open("/proc/self/maps", "rb") as listed:
        lines = listed.read().splitlines()
    for line in lines[bisect_right(lines, start, key=lambda line: _span(line)[1]) :]:
        first, last = _span(line)
        parts = line.split(maxsplit=5)
        if first > start or parts[1][3:] != b"p" or parts[4] != b"0":
            return False
        if last >= end:
            return True
        start = last
    return False


def _span(line: bytes) -> tuple[int, int]:
    """Return the first address of a line of `/proc/self/maps`, by which it is sorted, and the one after the last."""
    first, last = line[: line.index(b" ")].split(b"-")
    return int(first, 16), int(last, 16)


@dataclass(slots=True)
class _Range:
    chunks: tuple[str, ...] = ()
    """Empty if the content is not known; so is each chunk that is not known."""
    edges: tuple[bytes, bytes] = (b"", b"")
    """The content on pages that it shares with other memory."""
    calm: int = 0
    """Number of checks in a row that found it unchanged, or nearly."""
    patience: int = 0
    watched: bool = False


@dataclass(slots=True)
class Memory:
    """Returns the content addresses of the chunks of memory, at the cost of what changed."""

    pages: WrittenPages | None = None
    _ranges: dict[tuple[int, int], _Range] = field(default_factory=dict[tuple[int, int], _Range])
    """By address and bytes, the most recently used last."""
    _pid: int = field(default_factory=os.getpid)

    @classmethod
    def of_this_process(cls) -> Memory:
        """Return one that watches pages if the system can."""
        try:
            return cls(WrittenPages())
        except OSError:
            return cls()

    def chunks(self, view: memoryview, expired: Expired = never, *, prove: bool = False) -> tuple[str, ...]:
        """Return the addresses of the chunks of a buffer. Raises OutOfTime. `prove`: hash everything."""
        pages = self.pages
        start = buffer_address(view) if pages is not None and view.nbytes >= LEAST and os.getpid() == self._pid else 0
        if pages is None or not start:
            return chunks_of(view, expired)
        key = start, view.nbytes
        known = self._ranges[key] = self._ranges.pop(key, None) or _Range()
        head, inner = -start % mmap.PAGESIZE, view.nbytes - -start % mmap.PAGESIZE
        inner -= inner % mmap.PAGESIZE
        written = pages.written(start + head, inner) if known.watched else None
        if known.watched and written is None:  # the address belongs to other memory now
            known.watched, known.calm = False, 0
        elif not known.watched and known.calm >= known.patience:
            known.watched = pages.watch(start + head, inner)
            known.patience = known.patience if known.watched else sys.maxsize
        before, known.chunks = known.chunks, ()
        edges, known.edges = known.edges, (bytes(view[:head]), bytes(view[head + inner :]))
        spans = [(0, view.nbytes)]
        if not prove and before and written is not None:
            spans = [(head + first, head + last) for first, last in written]
            spans += [(0, 1)] if edges[0] != known.edges[0] else []
            spans += [(view.nbytes - 1, view.nbytes)] if edges[1] != known.edges[1] else []
        found = self._hash(view, before, spans, known, expired)
        share = sum(last - first for first, last in written or ()) / inner
        differ = sum(one != other for one, other in zip(before, found, strict=bool(before)) if one)
        if share > REWRITTEN or differ > max(1, len(found) * REWRITTEN):
            if known.watched and known.calm <= 2 * PATIENCE:  # else it will be unchanged for long again
                pages.unwatch(start + head, inner)
                known.watched, known.patience = False, PATIENCE
            known.calm = 0
        else:
            known.calm += bool(before)
        self._forget_some()
        return found

    def _hash(
        self, view: memoryview, before: Sequence[str], spans: Sequence[tuple[int, int]], known: _Range, expired: Expired
    ) -> tuple[str, ...]:
        """Hash the chunks that overlap `spans`, and those that are not known. Raises OutOfTime."""
        found = list(before) or [""] * -(-view.nbytes // CHUNK)
        for at in {at for first, last in spans for at in range(first // CHUNK, (last - 1) // CHUNK + 1)}:
            found[at] = ""
        try:
            for at in [at for at, one in enumerate(found) if not one]:
                found[at] = chunk_address(view[at * CHUNK : (at + 1) * CHUNK], expired)
        except OutOfTime:
            if not known.watched:
                raise
            known.chunks = tuple(found)
            raise Unfinished from None
        known.chunks = tuple(found)
        return known.chunks

    def _forget_some(self) -> None:
        while len(self._ranges) > MOST_WATCHED:
            (start, size), gone = next(iter(self._ranges.items()))
            del self._ranges[start, size]
            if gone.watched and self.pages is not None:
                head = -start % mmap.PAGESIZE
                self.pages.unwatch(start + head, (size - head) // mmap.PAGESIZE * mmap.PAGESIZE)
