"""Which files match a pattern such as `data/**/*.csv`, within bounds.

Rule 1: matches are sorted by name; what a bound left out is said.
Rule 2: `**` follows no link, and enters no hidden folder and no cache; a name with a leading dot takes a pattern with
        one.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterator
from itertools import islice

NOT_ENTERED = frozenset({"__pycache__", "node_modules", "site-packages"})
_DEPTH = 32
_WILDCARD = re.compile(r"[*?]|\[[^/\]]+\]")
_ESCAPED = re.compile(r"\[([*?[])\]")


def is_pattern(text: str) -> bool:
    """Return whether a text has a wildcard: `*`, `?` or `[…]`."""
    return bool(_WILDCARD.search(text))


def folder_of(pattern: str) -> str:
    """Return the folder before the first wildcard of an absolute pattern."""
    root, parts = _split(pattern)
    wild = next((at for at, part in enumerate(parts[:-1]) if _literal(part) is None), len(parts) - 1)
    return os.path.join(root, *(_literal(part) or "" for part in parts[:wild]))


def _split(pattern: str) -> tuple[str, list[str]]:
    """Return the root of an absolute pattern and its parts, `**` never twice in a row."""
    drive, rest = os.path.splitdrive(pattern.replace(os.altsep, os.sep) if os.altsep else pattern)
    parts: list[str] = []
    for part in rest.split(os.sep):
        if part and part != "." and not (part == "**" and parts[-1:] == ["**"]):
            parts.append(part)
    if parts[-1:] == ["**"]:
        parts.append("*")
    return drive + os.sep, parts


def _literal(part: str) -> str | None:
    """Return the name that a part stands for where it has no wildcard, else None."""
    return None if glob.has_magic(_ESCAPED.sub("", part)) else _ESCAPED.sub(r"\1", part)


class PatternSearch:
    """One search for what matches an absolute pattern, within bounds."""

    def __init__(self, pattern: str, *, names: int, matches: int) -> None:
        """At most `names` names are read and `matches` kept."""
        root, parts = _split(pattern)
        self.cut = ""
        """The bound that was met, in words, or empty."""
        self._left = self._names = names
        self._folders: dict[str, None] = {}
        self._seen: set[tuple[str, int]] = set()
        found = set(islice(self._match(root, parts, 0), matches + 1))
        self.paths = sorted(found)[:matches]
        if len(found) > matches:
            self.cut = f"the first {matches:,} matches"
        self.folders = list(self._folders)
        """The folders where a match may come or go, missing ones included."""

    def _match(self, path: str, parts: list[str], depth: int) -> Iterator[str]:
        # With several ** one folder is reached in many ways; the same rest of the pattern finds the same there.
        if (path, len(parts)) in self._seen:
            return
        self._seen.add((path, len(parts)))
        part, rest = parts[0], parts[1:]
        name = _literal(part)
        if part == "**":
            yield from self._match(path, rest, depth)
            if depth >= _DEPTH:
                self.cut = f"{_DEPTH} folders deep"
                return
            for entry in self._entries(path):
                if entry.name[0] != "." and entry.name not in NOT_ENTERED and _is_folder(entry, follow=False):
                    yield from self._match(entry.path, parts, depth + 1)
        elif name is not None:
            child = os.path.join(path, name)
            if rest:
                yield from self._match(child, rest, depth)
                return
            self._folders[path] = None
            if os.path.lexists(child):
                yield child
        else:
            matches = re.compile(fnmatch.translate(os.path.normcase(part))).match
            for entry in self._entries(path):
                if not matches(os.path.normcase(entry.name)) or (entry.name[0] == "." and part[0] != "."):
                    continue
                if not rest:
                    yield entry.path
                elif _is_folder(entry, follow=True):
                    yield from self._match(entry.path, rest, depth)

    def _entries(self, path: str) -> list[os.DirEntry[str]]:
        self._folders[path] = None
        try:
            with os.scandir(path) as entries:
                some = list(islice(entries, self._left))
                if len(some) == self._left and next(entries, None) is not None:
                    self.cut = f"the first {self._names:,} names that were looked at"
        except OSError:  # not there (yet), no folder, or not to be read: nothing in it matches
            return []
        self._left -= len(some)
        return sorted(some, key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str], *, follow: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:
        return False
