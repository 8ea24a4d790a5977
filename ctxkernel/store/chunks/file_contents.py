"""Contents of files, each whole and under an address, in the folder of a session's checkpoint data.

Rule 1: A content is written to a temporary name and renamed, so it is whole.
Rule 2: The address of a small file is the hash of its bytes; that of a large one is the hash of its stamp, which needs
        no reading. A large file is cloned if the file system can, else a thread copies it, and drops the copy if the
        file changed meanwhile.
Rule 3: A file is replaced atomically, by a content that was checked.
Rule 4: Only new files are written: none that exists, and none that a symbolic link leads to.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import stat
import sys
import threading
from collections.abc import Generator
from pathlib import Path

from xxhash import xxh3_128_hexdigest

from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import format_size
from ctxkernel.store.chunks.data_folder import refuse_link

SMALL = 4 * 1024 * 1024
"""The most bytes of a file that is read at once and addressed by its hash."""
_SUFFIX = ".content"
_ADDRESS = re.compile(r"[xs][0-9a-f]{32}")
_NAME = re.compile(rf"{_ADDRESS.pattern}\.(content|[0-9a-f]+\.part)")
_FICLONE = 0x40049409
_BLOCK = 1 << 20
_SECONDS = 60.0


def is_whole_content(name: str) -> bool:
    """Return whether a file name is that of a content that was written to its end."""
    return name.endswith(_SUFFIX) and _NAME.fullmatch(name) is not None


class FileContents:
    """The contents of one session's files. The first `keep` creates the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pending: dict[str, threading.Thread] = {}
        self._failed: dict[str, str] = {}
        self._one_at_a_time = threading.Lock()

    def address(self, path: Path, found: os.stat_result) -> str:
        """Return the address of a file's content: `x` and its hash, or `s` and a hash of its stamp. Raises OSError."""
        if found.st_size <= SMALL:
            return "x" + xxh3_128_hexdigest(_read(path))
        told = (str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        return "s" + xxh3_128_hexdigest(repr(told).encode())

    def keep(self, path: Path, found: os.stat_result, *, copy_bytes: int | None = None) -> str:
        """Keep a file's content and return its address; the copy of a large file may be pending.

        A file larger than `copy_bytes` is kept only if it can be cloned. Raises StoreError if it is not kept.
        """
        refuse_link(self.folder)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if found.st_size <= SMALL:
                data = _read(path)
                address = "x" + xxh3_128_hexdigest(data)
                if not self._is_stored(address):
                    with self._beside(address) as part, io.BufferedWriter(_new(part)) as file:
                        file.write(data)
                return address
            address = self.address(path, found)
            if self.has(address):
                return address
            with self._beside(address) as part:
                if clone(path, part):
                    return address
        except OSError as fault:
            raise StoreError(f"it cannot be kept in {self.folder} ({fault.strerror or fault})") from fault
        if copy_bytes is not None and found.st_size > copy_bytes:
            raise StoreError(f"it has more than {format_size(copy_bytes)}, and the file system cannot clone it")
        self._failed.pop(address, None)
        name = "ctxkernel keeps a file"
        thread = threading.Thread(target=self._copy, args=(path, found, address), name=name, daemon=True)
        self._pending[address] = thread
        thread.start()
        return address

    def has(self, address: str) -> bool:
        """Return whether a content is stored or pending; False for an invalid address."""
        return address in self._pending or self._is_stored(address)

    def why_not(self, address: str) -> str:
        """Return why a content is not stored."""
        return self._failed.get(address, "its content is not kept any more")

    def settled(self, address: str) -> bool:
        """Wait for a content that is pending; return whether it is stored."""
        thread = self._pending.get(address)
        if thread is not None:
            thread.join(_SECONDS)
        return self._is_stored(address)

    def read(self, address: str, most: int) -> bytes:
        """Return a content of at most `most` bytes. Raises StoreError, OSError."""
        refuse_link(self.folder)
        if not self.settled(address):
            raise StoreError(self.why_not(address))
        path = self._at(address)
        if path.stat().st_size > most:
            raise StoreError(f"it has more than {most:,} bytes")
        content = _read(path)
        if address[0] == "x" and "x" + xxh3_128_hexdigest(content) != address:
            raise StoreError(f"its content in {self.folder} is damaged")
        return content

    def equals(self, address: str, path: Path) -> bool:
        """Return whether a file has the content of a large file that is stored. Raises OSError."""
        if address[:1] != "s" or not self._is_stored(address):
            return False
        with io.FileIO(self._at(address)) as kept, io.FileIO(path) as file:
            if os.fstat(kept.fileno()).st_size != os.fstat(file.fileno()).st_size:
                return False
            while block := kept.read(_BLOCK):
                if file.read(_BLOCK) != block:
                    return False
        return True

    def put(self, address: str, path: Path, *, mode: int, mtime_ns: int) -> os.stat_result:
        """Replace `path` by a file with a content, atomically; return its stat. Raises StoreError, OSError."""
        refuse_link(self.folder)
        if not self.settled(address):
            raise StoreError(self.why_not(address))
        source = self._at(address)
        beside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.ctxkernel")
        try:
            _copy_file(source, beside)
            if address[0] == "x" and "x" + xxh3_128_hexdigest(_read(beside)) != address:
                raise StoreError(f"its content in {self.folder} is damaged")
            beside.chmod(stat.S_IMODE(mode))
            os.utime(beside, ns=(mtime_ns, mtime_ns))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        return path.stat()

    def _is_stored(self, address: str) -> bool:
        try:
            return bool(_ADDRESS.fullmatch(address)) and stat.S_ISREG(self._at(address).lstat().st_mode)
        except OSError:
            return False

    def _at(self, address: str) -> Path:
        return self.folder / (address + _SUFFIX)

    @contextlib.contextmanager
    def _beside(self, address: str) -> Generator[Path]:
        """Give a temporary path; if nothing is raised, the file there becomes the content. Raises OSError."""
        part = self.folder / f"{address}.{secrets.token_hex(4)}.part"
        try:
            yield part
            if part.exists():
                part.replace(self._at(address))
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _copy(self, path: Path, found: os.stat_result, address: str) -> None:
        try:
            with self._beside(address) as part:
                with self._one_at_a_time:
                    _copy_file(path, part)
                if _stamp(path.stat()) != _stamp(found):
                    self._failed[address] = "it was changed while its content was copied"
                    part.unlink()
        except OSError as fault:
            self._failed[address] = f"its content could not be copied ({fault.strerror or fault})"
        finally:
            self._pending.pop(address, None)


def is_content(name: str) -> bool:
    """Return whether a file name is that of a content, or of one that was being written."""
    return _NAME.fullmatch(name) is not None


def thin(folder: Path, nbytes: int, *, dry_run: bool = False) -> int:
    """Remove large contents from a session's folder, oldest first, until `nbytes` are free; return the freed bytes."""
    freed = 0
    with contextlib.suppress(OSError):
        kept = [(one, one.lstat()) for one in folder.iterdir() if is_content(one.name) and one.name.endswith(_SUFFIX)]
        for path, found in sorted(kept, key=lambda one: one[1].st_mtime):
            if freed >= nbytes:
                break
            if found.st_size >= 64 * 1024:
                freed += found.st_size
                if not dry_run:
                    path.unlink(missing_ok=True)
    return freed


def clone(source: Path, target: Path) -> bool:
    """Create `target` with the shared blocks of `source`; return whether the file system can. Raises OSError."""
    if not sys.platform.startswith("linux"):
        return False
    import fcntl

    with io.FileIO(source) as old, _new(target) as new, contextlib.suppress(OSError):
        fcntl.ioctl(new, _FICLONE, old.fileno())
        return True
    target.unlink()
    return False


def _copy_file(source: Path, target: Path) -> None:
    if clone(source, target):
        return
    with io.FileIO(source) as old, io.BufferedWriter(_new(target)) as new:
        while block := old.read(_BLOCK):
            new.write(block)


def _new(path: Path) -> io.FileIO:
    """Create a file that only this user can read. Raises FileExistsError, also for a symbolic link; OSError."""
    return io.FileIO(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600))


def _read(path: Path) -> bytes:
    # Not by `open`, which is hooked to record the files that a cell reads.
    with io.FileIO(path) as file:
        return file.readall()


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
