"""Maps of files: memory that a state refers to by the file, and a mark that tells whether its content is the same.

Rule 1: a mark counts as equal only where equal content is proven. The system notes the first write to a page in the
        time of the file, and later writes only after it stored the page: a map with pages that are not stored yet has
        a mark of its own at each time, unless it is hashed.
Rule 2: a map of a file that is not as it was is of the file as it is now, and that is said. No file is extended.
"""

from __future__ import annotations

import mmap
import os
import re
import uuid
from pathlib import Path
from typing import Any, cast

from xxhash import xxh3_64_hexdigest

from ctxkernel.state.types.memory_blocks import MemoryBlock
from ctxkernel.state.types.pack_state import PackState
from ctxkernel.state.types.parts import PARTS, Reduction, StreamConstructors

_HASHED = 64 * 1024 * 1024
"""Largest map that is hashed, where it can be written to."""
_UNKNOWN = "?"
"""The beginning of the third part of a mark that equals no other."""
_DIRTY = re.compile(rb"\nShared_Dirty: +(\d+) kB\nPrivate_Clean: +\d+ kB\nPrivate_Dirty: +(\d+) kB\n")
Mark = tuple[int, int, str]
"""The size of a file, its time of modification (ns), and a hash of its content in place of the time if there is one."""


class FileMap(MemoryBlock):
    """A file that is mapped into memory."""

    __slots__ = ("mode", "offset", "path")

    def __init__(self, root: Any) -> None:
        import numpy as np

        whole: Any = np.frombuffer(root._mmap, "u1")
        super().__init__(root._mmap, whole.__array_interface__["data"][0], whole.nbytes)
        self.path: Any = root.filename
        self.mode = root.mode
        # A map begins at a page; the array in it where the caller said.
        self.offset = root.offset - root.offset % mmap.ALLOCATIONGRANULARITY

    def mark(self) -> Mark:
        """Return a mark of the present content of the file. Raises OSError."""
        known = os.stat(self.path)
        if self.mode == "r":
            return known.st_size, known.st_mtime_ns, ""
        if self.nbytes <= _HASHED:
            return known.st_size, 0, xxh3_64_hexdigest(memoryview(cast("Any", self.holder)))
        unknown = f"{_UNKNOWN}{uuid.uuid4().hex}" if _has_unstored_pages(self.address, self.nbytes) else ""
        return known.st_size, known.st_mtime_ns, unknown


def _has_unstored_pages(address: int, nbytes: int) -> bool:
    """Return whether pages of a map were written and not stored in the file yet. True where the system cannot tell."""
    try:
        told = Path("/proc/self/smaps").read_bytes()
    except OSError:
        return True
    at = told.find(b"\n%x-%x " % (address, address + -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE))
    found = _DIRTY.search(told, at) if at >= 0 else None
    return found is None or found[1] != b"0" or found[2] != b"0"


def mapped(pack: PackState, obj: FileMap) -> Reduction:
    """A map of a file: of the same file again."""
    return PARTS.mapped_file, (os.path.abspath(obj.path), obj.path, obj.mode, obj.offset, obj.nbytes, obj.mark())


class FileMapParts(StreamConstructors):
    """Constructors of maps of files."""

    def mapped_file(self, path: str, name: Any, mode: str, offset: int, size: int, mark: Mark) -> Any:
        """Map a file. Raises OSError where it is gone, or too short."""
        import numpy as np

        known = os.stat(path)
        if known.st_size < offset + size:
            raise OSError(f"{path} is shorter than it was")
        made: Any = np.memmap(path, np.uint8, "r" if mode == "r" else "r+", offset, (size,))
        length, time, content = mark
        is_hashed = content and not content.startswith(_UNKNOWN)
        same = xxh3_64_hexdigest(made) == content if is_hashed else not content and known.st_mtime_ns == time
        if not same or known.st_size != length:
            written = "may have been written" if content.startswith(_UNKNOWN) else "was written"
            self.said.append(f"{path} {written} since, and is mapped as it is now")
        made.filename, made.mode = name, mode
        return made
