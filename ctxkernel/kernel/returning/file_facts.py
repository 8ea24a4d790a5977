"""Facts about files that decide whether a return may restore them."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from ctxkernel.kernel.execution.written_files import SKIPPED

_HEADS = (b"SQLite format 3\0", b"DUCK")


def is_followed(name: str) -> bool:
    """Return whether a path below the notebook's folder is one that a return may restore."""
    *folders, last = name.split(os.sep)
    return not last.endswith(".ipynb") and not any(one.startswith(".") or one in SKIPPED for one in folders)


def is_file(path: str) -> bool:
    """Return whether there is a regular file, and no symbolic link."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def written_here() -> frozenset[tuple[int, int]]:
    """Return device and inode of the files that this process has open or mapped for writing; empty on Windows."""
    found: set[tuple[int, int]] = set()
    if os.name != "posix":
        return frozenset()
    import fcntl

    for name in os.listdir("/dev/fd"):
        try:
            descriptor = int(name)
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                status = os.fstat(descriptor)
                found.add((status.st_dev, status.st_ino))
        except (OSError, ValueError):  # the descriptor of the listing itself
            continue
    try:
        with open("/proc/self/maps", "rb") as maps:
            shared = [line.split(maxsplit=5) for line in maps if b" rw-s " in line]
    except OSError:  # not on Linux
        shared = []
    for *_, device, inode, path in (one for one in shared if len(one) == 6):
        with contextlib.suppress(OSError, ValueError):
            major, minor = (int(number, 16) for number in device.split(b":"))
            found.add((os.makedev(major, minor), int(inode)))
            found.add((os.stat(path.strip()).st_dev, int(inode)))  # some file systems number their devices twice
    return frozenset(found)


def is_database(path: Path) -> bool:
    """Return whether a file is a database of SQLite or DuckDB. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        head = os.read(descriptor, 16)
    finally:
        os.close(descriptor)
    return head.startswith(_HEADS[0]) or head[8:12] == _HEADS[1]
