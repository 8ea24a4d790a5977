"""The files that a cell wrote in its working folder, as far as a bounded scan sees them.

A file counts as written if its content or its entry changed since the cell began (mtime or ctime). Two levels of
folders are scanned, or all with the setting `files = restore`, without hidden ones. Files that another program wrote
meanwhile are listed as well.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
from collections.abc import Callable
from typing import NamedTuple

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Artifact

SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages"))
_NO_FILES = frozenset(("/proc", "/sys", "/dev"))
"""Folders of the system whose entries only look like files: reading one may wait for ever."""
CLOCK_SLACK_NS = 20_000_000
"""File systems use a coarser clock, so a stamp may be a little earlier than the beginning of the cell."""


class ListedFile(NamedTuple):
    """A file that a scan found, with its stamp."""

    path: str
    size: int
    mtime_ns: int


@dataclass(slots=True)
class FileListing:
    """The result of a scan."""

    folders: set[str] = field(default_factory=set[str])
    """Folders that were scanned completely."""
    names: set[str] = field(default_factory=set[str])
    """Paths of the entries, without hidden ones."""
    files: dict[tuple[int, int], ListedFile] = field(default_factory=dict[tuple[int, int], ListedFile])
    """With `files = restore`: device and inode → the file."""
    is_cut: bool = False
    """Whether the scan ended early: there are more entries than it looks at, or the time ran out."""

    def lacks(self, path: str) -> bool:
        """Return whether there surely was no file with that path."""
        if path in self.names:
            return False
        folder, name = os.path.split(path)
        if folder in self.folders:
            return not name.startswith(".") and name not in SKIPPED
        return folder != path and self.lacks(folder)


def _stamp(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_mtime_ns, stat.st_ctime_ns


class FileScan:
    """Finds the files that were written since a given time."""

    def __init__(self, settings: Settings, session_path: Callable[[], str | None]) -> None:
        self.settings = settings
        self._session_path = session_path
        self._seen: dict[str, tuple[int, int]] = {}
        self.listing = FileListing()
        """The result of the last scan."""

    def written(self, since: float, expired: Callable[[], bool]) -> tuple[Artifact, ...]:
        """Return the files below the working folder that were written since `since` (Unix seconds)."""
        try:
            folder = os.getcwd()
        except OSError:  # the cell removed its own working folder
            return ()
        since_ns = int(since * 1e9) - CLOCK_SLACK_NS
        artifacts: list[Artifact] = []
        for path, stat in self.look(folder, expired):
            if max(stat.st_mtime_ns, stat.st_ctime_ns) < since_ns:
                continue
            # Within the slack of the clock the previous cell may have written it.
            if self._seen.get(path) == _stamp(stat) or path.endswith(".ipynb") or path == self._session_path():
                continue
            self.note(path, stat)
            mime = mimetypes.guess_type(path)[0] or "application/octet-stream"
            name = os.path.relpath(path, folder)
            artifacts.append(Artifact("file", name, mime, stat.st_size, self._hash(path, stat.st_size, expired)))
        return tuple(sorted(artifacts, key=lambda artifact: artifact.name))

    def note(self, path: str, stat: os.stat_result) -> None:
        """Note the present state of a file: no cell wrote it."""
        self._seen[path] = _stamp(stat)
        if len(self._seen) > 10_000:
            self._seen.clear()

    def look(self, folder: str, expired: Callable[[], bool]) -> list[tuple[str, os.stat_result]]:
        """Scan a folder and the folders in it; return the files with their stat, and set `listing`."""
        listing = self.listing = FileListing()
        left = self.settings.file_scan_entries
        found: list[tuple[str, os.stat_result]] = []
        folders, is_whole = [folder], self.settings.files == "restore"
        for depth_folder in folders:
            try:
                entries = os.scandir(depth_folder)
            except OSError:
                continue
            with entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or (left % 64 == 0 and expired()):
                        listing.is_cut = True
                        return found
                    if entry.name.startswith(".") or entry.name in SKIPPED:
                        continue
                    listing.names.add(entry.path)
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            if (is_whole or depth_folder is folder) and entry.path not in _NO_FILES:
                                folders.append(entry.path)
                            continue
                        if not entry.is_file(follow_symlinks=False):
                            continue
                        stat = entry.stat(follow_symlinks=False)
                        found.append((entry.path, stat))
                        if is_whole:
                            listed = ListedFile(entry.path, stat.st_size, stat.st_mtime_ns)
                            listing.files[stat.st_dev, stat.st_ino] = listed
                    except OSError:
                        continue
            listing.folders.add(depth_folder)
            if expired():
                listing.is_cut = depth_folder is not folders[-1]
                break
        return found

    def _hash(self, path: str, size: int, expired: Callable[[], bool]) -> str:
        if size > self.settings.file_hash_bytes:
            return ""
        digest = hashlib.sha256()
        try:
            with open(path, "rb") as file:
                while size > 0 and (block := file.read(min(size, 1 << 20))):
                    if expired():
                        return ""
                    digest.update(block)
                    size -= len(block)
        except OSError:
            return ""
        return "sha256:" + digest.hexdigest()
