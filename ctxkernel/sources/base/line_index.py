"""Where the lines of a huge file lie: how many line ends come before each megabyte of it.

Rule 1: an index is a value. Who scans further makes another one, so that threads may share it.
Rule 2: it is believed for a file that can have grown only: the same inode, as long at least, and its bytes the same
        at the beginning and where the scan ended. A change between them that kept the length is not seen.
Rule 3: eight bytes a megabyte are kept: 16 kB for 2 GB.
"""

from __future__ import annotations

import os
import time
import weakref
from array import array
from dataclasses import dataclass, field

import xxhash

from ctxkernel.core.jobs import Publish, Stopped
from ctxkernel.sources.base.file_reader import Gone, open_regular, read_at

CHUNK = 1 << 20
SCAN_BYTES = 16 << 20
"""So much of what is not in the index yet is looked through where it is asked for."""
INDEX_BYTES = 64 << 30
"""A larger file is not read through unasked; its numbers of lines stay estimates."""
_PROOF_BYTES = 4096
_PUBLISH_SECONDS = 0.5


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LineIndex:
    """The line ends of the first `scanned` bytes of a file."""

    before: array[int] = field(default_factory=lambda: array("Q", (0,)))
    """Line ends before each chunk; one entry more than chunks."""
    scanned: int = 0
    inode: int = 0
    proof: str = ""
    whole: bool = False
    """Whether the file ended where the scan did."""

    @property
    def lines(self) -> int:
        """Line ends that were found."""
        return self.before[-1]

    def holds(self, descriptor: int, found: os.stat_result) -> bool:
        """Say whether the file still begins with what was scanned."""
        same = self.inode == found.st_ino and self.scanned <= found.st_size
        return same and self.proof == _proof(descriptor, self.scanned)

    def further(self, descriptor: int, inode: int, *, line: int | None = None, offset: int, most: int) -> LineIndex:
        """Return an index up to line `line`, or up to byte `offset`; or, where that is further, up to byte `most`."""
        if self.scanned >= most or (self.lines >= line if line is not None else self.scanned >= offset):
            return self
        full = self.scanned // CHUNK  # the last chunk may have been cut short by the end of the file
        before, scanned, whole = array("Q", self.before[: full + 1]), full * CHUNK, False
        while scanned < most and (before[-1] < line if line is not None else scanned < offset):
            chunk = read_at(descriptor, scanned, CHUNK)
            if chunk:
                scanned += len(chunk)
                before.append(before[-1] + chunk.count(b"\n"))
            if len(chunk) < CHUNK:
                whole = True
                break
        return LineIndex(before, scanned, inode, _proof(descriptor, scanned), whole)


EMPTY = LineIndex()
ACCEPTED: weakref.WeakValueDictionary[str, LineIndex] = weakref.WeakValueDictionary()
"""By path, what a tick accepted for a view last, while that view has it: another one of the file begins with it."""


def build(path: str, known: LineIndex, stopped: Stopped, publish: Publish) -> LineIndex:
    """Return the index of the whole file, `known` taken further; for a worker.

    What is found so far is published twice a second. Raises OSError for a file that can be read no more.
    """
    opened = open_regular(path)
    if isinstance(opened, Gone):
        raise OSError(f"{path}: {opened.reason}")
    descriptor, found = opened
    try:
        index = known if known.holds(descriptor, found) else EMPTY
        due = time.monotonic() + _PUBLISH_SECONDS
        while not stopped():
            # In small steps: each gives the interpreter to the cell that runs.
            top = index.scanned // CHUNK * CHUNK + 8 * CHUNK
            index = index.further(descriptor, found.st_ino, offset=top, most=top)
            if index.whole:
                break
            if time.monotonic() >= due:
                publish(index)
                due = time.monotonic() + _PUBLISH_SECONDS
        return index
    finally:
        os.close(descriptor)


def _proof(descriptor: int, scanned: int) -> str:
    state = xxhash.xxh3_64(read_at(descriptor, 0, min(scanned, _PROOF_BYTES)))
    start = max(0, scanned - _PROOF_BYTES)
    state.update(read_at(descriptor, start, scanned - start))
    return state.hexdigest()
