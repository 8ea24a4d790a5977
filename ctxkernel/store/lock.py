"""The lock that keeps a second live kernel off a session: an OS lock on a sidecar file.

Rule 1: The OS releases it when its process ends, so a killed kernel locks nobody out; the file stays.
Rule 2: A forked child of the kernel does not hold it: an orphaned worker must not keep a session locked.
Rule 3: The text in the file is only for people and notices.
Rule 4: A file of that name which no kernel wrote, or a link, is never changed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import weakref
from pathlib import Path

from ctxkernel.store.regular_files import ForeignFileError, open_regular

_REFUSED = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK}
_UNABLE = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_TEXT_AT = 1
"""Windows locks byte 0, which cannot be read then; the text is after it."""
_TEXT = re.compile(rb" ?p?i?d? ?\d{0,10}\n?")  # on a full disk only its beginning was written
_MOST_BYTES = 80


class UnlockableError(OSError):
    """The file system has no locks, so nobody can be kept out of a file on it."""


class SessionLock:
    """The lock of one session file, held until `release` or the end of the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        _live.add(self)

    @classmethod
    def take(cls, session: Path) -> SessionLock | None:
        """Return the lock on `<session>.lock`, or None if another live process (or store) has it.

        Raises OSError if the file cannot be created, UnlockableError if the file system has no locks, and
        ForeignFileError if no kernel wrote the file.
        """
        path = lock_path(session)
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            _lock(descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in _REFUSED:
                return None
            if error.errno in _UNABLE:
                raise UnlockableError(*error.args) from error
            raise
        text = _text(descriptor)
        if text and not _TEXT.fullmatch(text):
            os.close(descriptor)
            raise ForeignFileError(path, "no kernel wrote it")
        with contextlib.suppress(OSError):  # a full disk: the lock still holds
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, f" pid {os.getpid()}\n".encode())
        return cls(path, descriptor)

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        _live.discard(self)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def lock_path(session: Path) -> Path:
    """Return the sidecar file of a session."""
    return session.with_name(session.name + ".lock")


def is_locked(session: Path, *, unknown: bool) -> bool:
    """Return whether a live process has the lock of a session; `unknown` if the file system cannot say so."""
    if not lock_path(session).exists():
        return False
    try:
        lock = SessionLock.take(session)
    except OSError:
        return unknown
    if lock is not None:
        lock.release()
    return lock is None


def holder(session: Path) -> str:
    """Return the text of the holder in the lock file (`pid 4711`), or an empty text."""
    with contextlib.suppress(OSError):
        descriptor = open_regular(lock_path(session), os.O_RDONLY)
        try:
            text = _text(descriptor, _TEXT_AT)
        finally:
            os.close(descriptor)
        return text.decode("ascii").strip() if _TEXT.fullmatch(text) else ""
    return ""


def _text(descriptor: int, start: int = 0) -> bytes:
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.read(descriptor, _MOST_BYTES)


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        # flock and not lockf: a lockf lock is released when the process closes any descriptor of the file.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_live: weakref.WeakSet[SessionLock] = weakref.WeakSet()


if hasattr(os, "register_at_fork"):
    # The child closes its copies: a `flock` lasts until the last copy is closed. The parent keeps its lock.
    os.register_at_fork(after_in_child=lambda: [lock.release() for lock in list(_live)])
