"""Access to files beside a notebook or in the cache that a stranger may have put there.

Rule 1: Only a regular file with one name is opened: a symbolic or hard link could lead out of our folders, and a pipe
        or device could block.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


class ForeignFileError(OSError):
    """The file is a link, a pipe, a device or a folder, or its content is not ours."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.EPERM, why, str(path))


def open_regular(path: Path, flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of a regular file with one name. Raises ForeignFileError for anything else, OSError."""
    why = why_foreign(path)  # first: a file that cannot be opened either says less
    if why:
        raise ForeignFileError(path, why)
    descriptor = os.open(path, flags | _FLAGS, mode)
    if why := _why(os.fstat(descriptor)):  # it may have been exchanged since
        os.close(descriptor)
        raise ForeignFileError(path, why)
    return descriptor


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file. Raises ForeignFileError, also if it is too large; OSError."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        found = file.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise ForeignFileError(path, f"it is larger than {most_bytes:,} bytes")
    return found


def read_within(path: Path, most_bytes: int, folder: Path) -> bytes:
    """Return the content of a regular file in `folder`; a symbolic link may lead to another file there.

    Raises as `read_bounded`, and ForeignFileError for a file outside.
    """
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(folder)):
        raise ForeignFileError(path, "it is a symbolic link that leads out of its folder")
    return read_bounded(real, most_bytes)


def replace_file(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Replace a file as a whole or not at all; others cannot read it. `sync`: it is on the disk. Raises OSError."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def why_foreign(path: Path) -> str:
    """Return why a file is not opened, or an empty text, also if there is none. Raises OSError."""
    try:
        return _why(path.lstat())
    except FileNotFoundError:
        return ""


def _why(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return "it is a symbolic link, which may lead out of its folder"
    if stat.S_ISDIR(found.st_mode):
        return "it is a folder"
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    if found.st_nlink > 1:
        return "it is a hard link: the same file has another name (copy it, and remove this one, to use it)"
    return ""
