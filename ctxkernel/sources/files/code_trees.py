"""Reading a tree of code, file by file: at once as far as that is quick, the rest in the background.

Rule 1: a `CodeTree` is a value. Who reads further makes another one; of a file whose stat is the same nothing is read.
Rule 2: on the thread that asks at most `READ_AT_ONCE` bytes are read, those first that say most: what packages export.
Rule 3: nothing is run or imported, no link is followed, caches, hidden folders and what a `.gitignore` leaves out are
        not entered. At most `MOST_FILES` files, `MOST_BYTES`, and of each `FILE_BYTES` are read; what is cut is said.
"""

from __future__ import annotations

import os
import time
import tomllib
import weakref
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.jobs import IsCancelled, Publish
from ctxkernel.core.text import format_size, plural
from ctxkernel.sources.base.file_reader import Gone, content_hash, file_stamp, load_bytes
from ctxkernel.sources.base.surveys import Rest
from ctxkernel.sources.files.gitignore import Ignoring, above
from ctxkernel.sources.files.globs import NOT_ENTERED
from ctxkernel.sources.outlines.code_files import PYTHON, CodeFile, is_code, read_code, stands_aside
from ctxkernel.sources.outlines.code_ranking import Ranked, Weights, in_order, weigh

MOST_FILES = 5_000
MOST_BYTES = 32 << 20
"""The most source code that is read. The facts about it take up to twice as much memory."""
FILE_BYTES = 512 << 10
READ_AT_ONCE = 384 << 10
_RANKED_AT_ONCE = 250
"""Of so many files the weights are found anew at once when one changes; of more in the background."""
_ORDERED_AT_ONCE = 1_000
"""Of more files a change is left to the background as a whole."""
_ENTRIES = 40_000
_DEPTH = 16
_PUBLISH_SECONDS = 2.0
_OPENING = 1 << 10
"""The cost of opening a file, in bytes that could be read meanwhile."""
_SLOW = 8
"""Parsing by a grammar takes so many times as long as the scan of Python."""
_PROJECT = "pyproject.toml"
_PROJECT_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class CodeListing:
    """The files of code below a folder, by their paths with / between, and the folders that were looked into."""

    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    folders: tuple[str, ...] = ()
    stamp: str = ""
    """Of the folders: another one says that files came or went."""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """A file as it was read last; `code` None for one that is no text, or gone."""

    stamp: str
    code: CodeFile | None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CodeTree:
    """Facts about a tree of code."""

    root: str
    package: str = ""
    """The dotted name of the package that the folder is, if it is one."""
    listing: CodeListing = CodeListing()
    files: Mapping[str, Read] = field(default_factory=dict[str, Read])
    weights: Weights | None = None
    weighed: bool = False
    """Whether the weights are of these files, rather than of an earlier state."""
    symbols: tuple[Ranked, ...] = ()
    whole: bool = False
    """Whether each file was read as it is now."""

    @property
    def complete(self) -> bool:
        """Return whether the background can add nothing."""
        return self.whole and self.weighed

    @property
    def codes(self) -> dict[str, CodeFile]:
        """The files that are code."""
        return {path: read.code for path, read in self.files.items() if read.code is not None}

    def fingerprint(self) -> str:
        """Return a hash of the content that was read."""
        parts = [f"{path} {code.fingerprint}" for path, code in sorted(self.codes.items())]
        return content_hash("\n".join([f"{self.whole}", *parts]).encode("utf-8", "surrogateescape"))

    def remarks(self) -> list[str]:
        """Return what is said of how much was read."""
        total = len(self.listing.sizes)
        read = sum(self.files[path].stamp != "" for path in self.files)
        said: list[str] = []
        if not self.whole and read < total:
            said.append(f"~ {read:,} of {total:,} files read so far, the ranking is of these")
        elif not self.complete:
            said.append(f"~ {'ranking ' if self.whole else ''}from before the last change")
        cut = sum(code.cut for code in self.codes.values())
        said += [f"of {plural(cut, 'files')} the first {format_size(FILE_BYTES)} were read"] if cut else []
        return [*said, *([f"only the first {total:,} files were listed"] if self.listing.cut else [])]


ACCEPTED: weakref.WeakValueDictionary[str, CodeTree] = weakref.WeakValueDictionary()
"""By folder, what some view knows: another one of the folder begins with it."""


def listed(root: str) -> CodeListing:
    """Return the files of code below a folder: breadth first, so that a bound leaves out the deepest."""
    sizes: dict[str, int] = {}
    folders: list[str] = []
    todo: deque[tuple[str, str, int, Ignoring]] = deque([(root, "", 0, above(root))])
    seen = size = 0
    while todo and seen < _ENTRIES and len(sizes) < MOST_FILES and size < MOST_BYTES:
        path, prefix, depth, ignoring = todo.popleft()
        ignoring = ignoring.within(path)
        folders.append(path)
        try:
            with os.scandir(path) as entries:
                some = sorted(islice(entries, _ENTRIES - seen), key=lambda entry: entry.name)
        except OSError:
            continue
        seen += len(some)
        for entry in some:
            name = entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    entered = name[0] != "." and name not in NOT_ENTERED and depth < _DEPTH
                    if entered and not ignoring.leaves_out(entry.path, True):
                        todo.append((entry.path, f"{prefix}{name}/", depth + 1, ignoring))
                elif (
                    is_code(name)
                    and entry.is_file(follow_symlinks=False)
                    and len(sizes) < MOST_FILES
                    and not ignoring.leaves_out(entry.path, False)
                ):
                    sizes[prefix + name] = entry.stat(follow_symlinks=False).st_size
                    size += min(sizes[prefix + name], FILE_BYTES)
            except OSError:
                continue
    stamp = content_hash(" ".join(map(file_stamp, folders)).encode())
    return CodeListing(sizes, tuple(folders), stamp, cut=bool(todo) or len(sizes) >= MOST_FILES)


def package_of(folder: str) -> str:
    """Return the dotted name of the package that a folder is; empty where it is none."""
    parts: list[str] = []
    while os.path.isfile(os.path.join(folder, "__init__.py")) and len(parts) < _DEPTH:
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    return ".".join(parts)


def _first(path: str) -> tuple[bool, bool, int, str]:
    """Return where a file stands in the order of reading: exports, then what is on top; tests last."""
    name = path.rpartition("/")[2]
    return stands_aside(path), not name.startswith("__"), path.count("/"), path


def brought_up(known: CodeTree, listing: CodeListing) -> CodeTree:
    """Return what is known with files that changed read again, up to `READ_AT_ONCE` bytes.

    What was never read is read at the first look, and after the background has read the whole tree; else it is left to
    that, so that what is shown does not depend on how often it is looked at.
    """
    files = {path: known.files[path] for path in listing.sizes if path in known.files}
    stamps = {path: file_stamp(os.path.join(known.root, path)) for path in listing.sizes}
    changed = [path for path, stamp in stamps.items() if path not in files or files[path].stamp != stamp]
    if not changed and len(files) == len(known.files) and known.listing.stamp == listing.stamp:
        return known
    if len(files) > _ORDERED_AT_ONCE and known.symbols:
        return replace(known, listing=listing, whole=False)
    changed.sort(key=_first)
    left = READ_AT_ONCE
    whole = True
    for path in changed:
        left -= _OPENING + min(listing.sizes[path], FILE_BYTES) * (1 if path.endswith(PYTHON) else _SLOW)
        if left < 0 or (path not in files and known.files and not known.whole):
            whole = False
        else:
            files[path] = _read(known.root, path, stamps[path])
    return ranked(replace(known, listing=listing, files=files, whole=whole, weighed=False))


def ranked(tree: CodeTree, *, anew: bool = False) -> CodeTree:
    """Return a tree with its symbols in their order; with weights from before where that would take long."""
    codes = tree.codes
    quick = len(codes) <= _RANKED_AT_ONCE or tree.weights is None
    weights = weigh(codes, tree.package) if quick or anew or tree.weights is None else tree.weights
    begins = _entry_points(os.path.join(tree.root, _PROJECT))
    symbols = in_order(codes, weights, tree.package, begins, whole=tree.whole)
    return replace(tree, weights=weights, weighed=quick or anew, symbols=tuple(symbols))


def _entry_points(path: str) -> list[str]:
    """Return the programs that a `pyproject.toml` declares, as `package.module:function`."""
    loaded = load_bytes(path, _PROJECT_BYTES)
    if isinstance(loaded, Gone) or not loaded.whole:
        return []
    try:
        project: Any = tomllib.loads(loaded.data.decode("utf-8", "replace")).get("project", {})
        tables = [project.get("scripts", {}), project.get("gui-scripts", {})]
        return [place for table in tables for place in table.values() if isinstance(place, str)]
    except (tomllib.TOMLDecodeError, AttributeError, RecursionError):
        return []


def _read(root: str, path: str, stamp: str) -> Read:
    loaded = load_bytes(os.path.join(root, path), FILE_BYTES)
    return Read(stamp, None if isinstance(loaded, Gone) else read_code(path, loaded.data, loaded.size))


def read_tree(known: CodeTree, stopped: IsCancelled, publish: Publish) -> CodeTree:
    """Return the whole tree, read and ranked; for a worker. What was read so far is published every two seconds."""
    rest, due = Rest(), time.monotonic() + _PUBLISH_SECONDS
    listing = listed(known.root)
    files = {path: read for path, read in known.files.items() if path in listing.sizes}
    for path in sorted(listing.sizes, key=_first):
        if stopped():
            return replace(known, whole=False)
        stamp = file_stamp(os.path.join(known.root, path))
        if path not in files or files[path].stamp != stamp:
            files[path] = _read(known.root, path, stamp)
            rest()
        if time.monotonic() >= due:
            publish(ranked(replace(known, listing=listing, files=dict(files), whole=False), anew=True))
            due = time.monotonic() + _PUBLISH_SECONDS
    return ranked(replace(known, listing=listing, files=files, whole=True), anew=True)
