"""The lock that keeps a second live kernel off a session: an OS lock on a sidecar file.

Rule 1: The OS releases it when its process ends, so a killed kernel locks nobody out; the file stays.
Rule 2: A forked child of the kernel does not hold it: an orphaned worker must not keep a session locked.
Rule 3: The text in the file is only for people and notices.
Rule 4: A file of that name which no kernel wrote, or a link, is never changed.
Rule 5: Where the file system has no locks (many network ones), a file names the process that holds the session. It is
        believed as long as that process lives; of a process on another machine this is not known, so it is believed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import sys
import weakref
from pathlib import Path
from typing import NamedTuple

from ctxkernel.store.regular_files import ForeignFileError, open_regular, read_bounded

_REFUSED = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK}
_UNABLE = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_TEXT_AT = 1
"""Windows locks byte 0, which cannot be read then; the text is after it."""
_TEXT = re.compile(rb" ?p?i?d? ?\d{0,10}\n?")  # on a full disk only its beginning was written
_OWNER = re.compile(r"(?P<host>[^\s]{1,80}) pid (?P<pid>\d{1,10}) (?P<start>(\d+ [0-9a-f-]{36})?)\n")
_MOST_BYTES = 80


class SessionLock:
    """The lock of one session file, held until `release` or the end of the process."""

    def __init__(self, path: Path, descriptor: int | None, owner: _Owner | None = None) -> None:
        self.path = path
        self._descriptor = descriptor
        self._owner = owner
        _live.add(self)

    @property
    def by_file(self) -> bool:
        """Return whether the file system has no locks, so a file that names the process stands for the lock."""
        return self._owner is not None

    @classmethod
    def take(cls, session: Path) -> SessionLock | None:
        """Return the lock on `<session>.lock`, or None if another live process (or store) has it.

        Raises OSError if the file cannot be created, and ForeignFileError if no kernel wrote it.
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
                owner = _own(owner_path(session))
                return cls(path, None, owner) if owner is not None else None
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
        owner, self._owner = self._owner, None
        with contextlib.suppress(OSError):
            if descriptor is not None:
                os.close(descriptor)
            if owner is not None and owner.text == _owner_text():  # not a forked child
                owner.path.unlink()


class _Owner(NamedTuple):
    """The file that names the process which holds a session, where the file system has no locks."""

    path: Path
    text: str


def owner_path(session: Path) -> Path:
    """Return the file that stands for the lock of a session where the file system has no locks."""
    return session.with_name(session.name + ".owner")


def _host() -> str:
    return "".join(platform.node().split())[:80] or "unknown"


def _owner_text() -> str:
    return f"{_host()} pid {os.getpid()} {_start_of(os.getpid())}\n"


def _start_of(pid: int) -> str:
    """Return a text that no other process with this number had, on Linux; else an empty one."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{ticks} {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    except (OSError, IndexError):
        return ""


def _own(path: Path) -> _Owner | None:
    """Create the file that names this process; None if a live process has it, or may have it on another machine.

    Raises OSError, and ForeignFileError if no kernel wrote the file.
    """
    text = _owner_text()
    for _ in range(2):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if not _remove_left_over(path):
                return None
            continue
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return _Owner(path, text)
    return None


def _remove_left_over(path: Path) -> bool:
    """Remove the file of a process of this machine that ended without a word; return whether that is so."""
    found = read_bounded(path, _MOST_BYTES * 4).decode("utf-8", "replace")
    match = _OWNER.fullmatch(found)
    if match is None:
        if found:
            raise ForeignFileError(path, "no kernel wrote it")
        return False  # it is being written
    if match["host"] != _host() or _start_of(int(match["pid"])) == match["start"]:
        return False
    if not match["start"] and _is_alive(int(match["pid"])):
        return False
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    path.rename(aside)
    taken = aside.read_text(encoding="utf-8") != found  # another process was faster
    if taken:
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    aside.unlink()
    return not taken


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def lock_path(session: Path) -> Path:
    """Return the sidecar file of a session."""
    return session.with_name(session.name + ".lock")


def has_locks(session: Path) -> bool:
    """Return whether the file system of a session has locks, as far as its lock file shows."""
    try:
        descriptor = open_regular(lock_path(session), os.O_RDONLY)
    except OSError:
        return True
    try:
        _unlock(descriptor)  # this fails there, too, and keeps nobody out
    except OSError as error:
        return error.errno not in _UNABLE
    finally:
        os.close(descriptor)
    return True


def is_locked(session: Path, *, unknown: bool) -> bool:
    """Return whether a live process has the lock of a session; `unknown` if that cannot be found out."""
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
    """Return the text of the holder (`pid 4711`, `pid 4711 on node7`), or an empty text."""
    if found := _found_owner(session):
        return f"pid {found['pid']}" + (f" on {found['host']}" if found["host"] != _host() else "")
    with contextlib.suppress(OSError):
        descriptor = open_regular(lock_path(session), os.O_RDONLY)
        try:
            text = _text(descriptor, _TEXT_AT)
        finally:
            os.close(descriptor)
        return text.decode("ascii").strip() if _TEXT.fullmatch(text) else ""
    return ""


def held_elsewhere(session: Path) -> str:
    """Return what a person may do if the holder is on another machine, where nobody can look; else an empty text."""
    found = _found_owner(session)
    if not found or found["host"] == _host():
        return ""
    return f"If the kernel on {found['host']} is gone, remove {owner_path(session)} and restart this one"


def _found_owner(session: Path) -> re.Match[str] | None:
    with contextlib.suppress(OSError):
        return _OWNER.fullmatch(read_bounded(owner_path(session), _MOST_BYTES * 4).decode("utf-8", "replace"))
    return None


def _text(descriptor: int, start: int = 0) -> bytes:
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.read(descriptor, _MOST_BYTES)


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        pass

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        # flock and not lockf: a lockf lock is released when the process closes any descriptor of the file.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_live: weakref.WeakSet[SessionLock] = weakref.WeakSet()


if hasattr(os, "register_at_fork"):
    # The child closes its copies: a `flock` lasts until the last copy is closed. The parent keeps its lock.
    os.register_at_fork(after_in_child=lambda: [lock.release() for lock in list(_live)])
