"""Files that a cell wrote in its working folder, as far as a bounded scan sees them.

A file counts as written when its content or its entry changed since the cell began (mtime or ctime). Two levels of
folders are looked at, no hidden ones. What another program wrote meanwhile cannot be told apart.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Artifact

SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages"))
CLOCK_SLACK_NS = 20_000_000
"""File systems stamp with a coarser clock than ours, so a stamp may lie a little before the cell's begin."""


@dataclass(slots=True)
class Listing:
    """What a scan saw."""

    folders: set[str] = field(default_factory=set[str])
    """Folders whose entries were all seen."""
    names: set[str] = field(default_factory=set[str])
    """Paths of the entries, but for hidden ones."""

    def lacks(self, path: str) -> bool:
        """Return whether there surely was no file of that path."""
        while path not in self.names:
            folder, name = os.path.split(path)
            if folder in self.folders:
                return not name.startswith(".") and name not in SKIPPED
            if folder == path:
                return False
            path = folder
        return False


def _stamp(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_mtime_ns, stat.st_ctime_ns


class FileScan:
    """Finds the files that were written since a moment."""

    def __init__(self, settings: Settings, session_path: Callable[[], str | None]) -> None:
        self.settings = settings
        self._session_path = session_path
        self._seen: dict[str, tuple[int, int]] = {}
        self.listing = Listing()
        """What the last scan saw."""

    def written(self, since: float, expired: Callable[[], bool]) -> tuple[Artifact, ...]:
        """Return the files below the working folder that were written since `since` (Unix seconds)."""
        try:
            folder = os.getcwd()
        except OSError:  # the cell removed its own working folder
            return ()
        since_ns = int(since * 1e9) - CLOCK_SLACK_NS
        found = [
            (path, stat)
            for path, stat in self.look(folder, expired)
            if max(stat.st_mtime_ns, stat.st_ctime_ns) >= since_ns
        ]
        artifacts: list[Artifact] = []
        for path, stat in found:
            # Within the slack of the clock the cell before this one may have written it.
            if self._seen.get(path) == _stamp(stat) or path.endswith(".ipynb") or path == self._session_path():
                continue
            self.note(path, stat)
            mime = mimetypes.guess_type(path)[0] or "application/octet-stream"
            name = os.path.relpath(path, folder)
            artifacts.append(Artifact("file", name, mime, stat.st_size, self._hash(path, stat.st_size, expired)))
        return tuple(sorted(artifacts, key=lambda artifact: artifact.name))

    def note(self, path: str, stat: os.stat_result) -> None:
        """Take a file as known as it is: no cell wrote it."""
        self._seen[path] = _stamp(stat)
        if len(self._seen) > 10_000:
            self._seen.clear()

    def look(self, folder: str, expired: Callable[[], bool]) -> list[tuple[str, os.stat_result]]:
        """Scan a folder and those in it; return the files with their stat, and note what there is in `listing`."""
        listing = self.listing = Listing()
        left = self.settings.file_scan_entries
        found: list[tuple[str, os.stat_result]] = []
        folders = [folder]
        for depth_folder in folders:
            try:
                entries = os.scandir(depth_folder)
            except OSError:
                continue
            with entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or (left % 64 == 0 and expired()):
                        return found
                    if entry.name.startswith(".") or entry.name in SKIPPED:
                        continue
                    listing.names.add(entry.path)
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            if depth_folder is folder:
                                folders.append(entry.path)
                            continue
                        if not entry.is_file(follow_symlinks=False):
                            continue
                        found.append((entry.path, entry.stat(follow_symlinks=False)))
                    except OSError:
                        continue
            listing.folders.add(depth_folder)
            if expired():
                break
        return found

    def _hash(self, path: str, size: int, expired: Callable[[], bool]) -> str:
        if size > self.settings.file_hash_bytes:
            return ""
        digest = hashlib.sha256()
        try:
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    if expired():
                        return ""
                    digest.update(block)
        except OSError:
            return ""
        return "sha256:" + digest.hexdigest()
