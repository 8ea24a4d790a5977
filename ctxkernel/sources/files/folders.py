"""Folders, and the files that match a pattern (`view("data/*.csv")`), as sources.

A position in a folder is "entry:below", both from 0: of its own entries, and of what lies below one, in the order of
the tree; in a pattern it is the number of a match.

Rule 1: of a folder no file but a `.gitignore` is opened; of a pattern only regular files are, and those as a view of
        each would. No link is followed by a tree or by `**`.
Rule 2: at most `MOST_NAMES` names are read and `MOST_SHOWN` shown, and so many names left out as are read of a folder;
        what was left out is said.
Rule 3: names are sorted, so the listing does not depend on the file system's order. Matches are named from the folder
        before the first wildcard, wherever that lies.
Rule 4: hidden folders and caches are named but not entered; a name with a leading dot takes a pattern with one. What
        a `.gitignore` leaves out of a folder is counted, and not named.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.file_reader import content_hash, file_stamp, reason_of
from ctxkernel.sources.base.positions import pattern_of
from ctxkernel.sources.base.rendering import BaseSource, Draft, Names, Place, fit_lines, moved, parse_place
from ctxkernel.sources.files.gitignore import Ignoring, above

MOST_NAMES = 20_000
MOST_SHOWN = 2_000
WATCHED = 256
"""Matches of a pattern, and folders, that are asked at each tick whether they changed."""
NOT_ENTERED = frozenset({"__pycache__", "node_modules", "site-packages"})
_DEPTH = 4
_WATCHED_ENTRIES = 64
_LOOKS = 4
_LOOK_LINES = 8
_LOOK_TOKENS = 400
_LEAST_TOKENS = 150  # of a rendering with room for looks
_GLOB_DEPTH = 32
_WILDCARD = re.compile(r"[*?]|\[[^/\]]+\]")
_ESCAPED = re.compile(r"\[([*?[])\]")
_FIRST = ((), ("[nothing rendered before; as it is now:]",))
"""What stands above the head of a diff without anything to compare with."""


@dataclass(frozen=True, slots=True)
class Found:
    """One entry of a directory."""

    name: str
    """Relative to the directory that is viewed, with / between."""
    depth: int
    folder: bool
    size: int
    changed: int
    note: str = ""

    def line(self) -> str:
        """Return the entry as a line of the tree."""
        base = self.name.rsplit("/", 1)[-1]
        if self.folder:
            return f"{'  ' * self.depth}{base}/{f' ({self.note})' if self.note else ''}"
        return f"{'  ' * self.depth}{base} · {self.note or format_size(self.size)}"


@dataclass(frozen=True, slots=True)
class ListingBasis:
    """What a later diff needs: size and time of change of each entry that was seen."""

    fingerprint: str
    entries: dict[str, tuple[int, int]]


def basis_of(found: list[Found]) -> ListingBasis:
    """Return what a later diff of this listing needs."""
    listing = "\n".join(f"{entry.name}|{entry.size}|{entry.changed}|{entry.note}" for entry in found)
    entries = {entry.name: (entry.size, entry.changed) for entry in found}
    return ListingBasis(content_hash(listing.encode("utf-8", "surrogateescape")), entries)


class DirectorySource(BaseSource):
    """A directory by its path. 0: its own entries; 1: the tree; 2: counts by suffix; 3: what changed."""

    kind = "directory"

    def __init__(self, path: str, label: str) -> None:
        super().__init__(label)
        self.path = self.spec = os.path.abspath(path)
        self._watched: list[str] = []
        self._folders: list[str] = []
        self._listed = ""
        self._all_watched = False
        self._above = Ignoring()

    def stamp(self) -> str:
        """Return a hash of the stats of the directory and of its first 64 entries, the tree's order. Never raises.

        Names are read anew only where a folder's own stat changed.
        """
        if self._listed != self._folder_stamps():
            self._watch()
            self._listed = self._folder_stamps()
        return content_hash(f"{self._listed} {stamps_of(self._watched)}".encode())

    def _folder_stamps(self) -> str:
        return stamps_of([self.path, *self._folders, *self._above.files])

    def covers(self, stamp: str) -> bool:
        """Say whether the stamp is of all that a rendering looks at."""
        return self._all_watched

    def _watch(self) -> None:
        self._above = above(self.path)
        try:
            found = _list(self.path, _WATCHED_ENTRIES + 1)[0]
        except OSError:
            found = []
        self._all_watched = len(found) <= _WATCHED_ENTRIES
        paths = [(os.path.join(self.path, entry.name), entry.folder) for entry in found[:_WATCHED_ENTRIES]]
        self._watched = [path for path, folder in paths if not folder]
        self._folders = [path for path, folder in paths if folder]

    def parts(self) -> list[str]:
        """Return its own entries. Raises OSError where it cannot be read."""
        return [entry.line() for entry in _list(self.path, MOST_SHOWN)[0] if not entry.depth]

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place`: of its own entries, at level 1 of the tree."""
        at = parse_place(place)
        if lod != 1 or at is None:
            return super().further(place, tokens, lod)
        try:
            found, _ = _list(self.path, MOST_SHOWN)
        except OSError:
            return None
        places = _places(found)
        lines = [entry.line() for entry in found]
        return str(places[moved(lines, _at(places, at), tokens)]) if lines else None

    def names(self) -> Names:
        """Return the entries by their paths in the directory. Raises OSError where it cannot be read."""
        found, _ = _list(self.path, MOST_SHOWN)
        return Names("entries", list(zip((entry.name for entry in found), _places(found), strict=True)), "/")

    def find(self, pos: str) -> Place | None:
        """Return where an entry is: "src", "src/main.py", "main.py"."""
        try:
            names = self.names()
        except OSError:
            return None
        plain = _plain_name(pos)
        try:
            return names.find(self.label, plain or pos)
        except BadPolicy:
            if pattern_of(pos) or not plain or not os.path.lexists(os.path.join(self.path, plain)):
                raise
        raise BadPolicy(f"{self.label} does not list {pos!r}: it is ignored or lies too deep; view it by its own path")

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the directory as it is now."""
        try:
            found, ignored = _list(self.path, MOST_SHOWN + 1)
        except NotADirectoryError:
            return Draft(f"{self.label} · is no directory any more (view it again)", notes=("not a directory",))
        except OSError as fault:
            reason = reason_of(fault)
            return Draft(f"{self.label} · {reason}", fingerprint=f"gone:{reason}", notes=(reason,))
        notes = (f"the first {MOST_SHOWN:,} entries",) if len(found) > MOST_SHOWN else ()
        cut = ", the rest not looked at" if ignored >= MOST_NAMES else ""
        notes = (*notes, f"{ignored:,} ignored (.gitignore){cut}") if ignored else notes
        found = found[:MOST_SHOWN]
        basis = basis_of(found)
        if request.lod == 3 and isinstance(request.basis, ListingBasis):
            draft = _changes(self.label, request.basis, basis, found, budget)
        else:
            draft = self._level(request.lod, place, budget, found, notes)
        return replace(draft, fingerprint=basis.fingerprint, basis=basis, notes=notes)

    def _level(self, lod: int, place: Place, budget: int, found: list[Found], notes: tuple[str, ...]) -> Draft:
        files = [entry for entry in found if not entry.folder]
        head = _head(f"{self.label}/".replace("//", "/"), plural(len(files), "files"), files, notes)
        if lod == 2:
            return fit_lines([head], list(totals(files)), budget, "points")
        places = _places(found)
        first = _at(places, place)
        if first:  # what it lies in stands above it, out of sight
            head += f" · from {found[first].name}"
        shown = list(zip(found, places, strict=True))[first:]
        if lod == 0:  # its own entries; of the one that the position is in, what is below
            shown = [row for row in shown if not row[0].depth or (place.col and row[1].line == place.line)]
        lines = [entry.line() for entry, _ in shown]
        return fit_lines([*_FIRST[lod == 3], head], lines, budget, "entries", place=lambda k: str(shown[k][1]))


def _places(found: list[Found]) -> list[Place]:
    """Return the position of each entry of a tree."""
    places: list[Place] = []
    for entry in found:
        last = places[-1] if places else Place(-1)
        places.append(Place(last.line, last.col + 1) if entry.depth else Place(last.line + 1))
    return places


def _at(places: list[Place], place: Place) -> int:
    """Return which entry of a tree is at a place, or the last one before it."""
    before = bisect_right(places, (place.line, place.col), key=lambda one: (one.line, one.col))
    return max(0, before - 1)


def stamps_of(paths: list[str]) -> str:
    """Return the stamps of some paths, a stat each."""
    return " ".join(map(file_stamp, paths))


def _list(path: str, most: int) -> tuple[list[Found], int]:
    """Return the first entries of a tree, and how many were met that are ignored. Raises OSError."""
    ignored: list[str] = []
    return list(islice(_walk(path, "", 0, above(path), ignored), most)), len(ignored)


def _walk(path: str, prefix: str, depth: int, ignoring: Ignoring, ignored: list[str]) -> Iterator[Found]:
    ignoring = ignoring.within(path)
    with os.scandir(path) as entries:
        some = sorted(islice(entries, MOST_NAMES), key=lambda entry: entry.name)
    for entry in some:
        if len(ignored) >= MOST_NAMES:
            return
        name = prefix + entry.name
        try:
            if ignoring.leaves_out(entry.path, entry.is_dir(follow_symlinks=False)):
                ignored.append(name)
                continue
            about = entry.stat(follow_symlinks=False)
        except OSError as fault:
            yield Found(name, depth, False, 0, 0, reason_of(fault))
            continue
        if not stat.S_ISDIR(about.st_mode):
            yield _found(name, depth, about)
            continue
        skipped = entry.name.startswith(".") or entry.name in NOT_ENTERED or depth + 1 >= _DEPTH
        yield Found(name, depth, True, 0, 0, "not entered" if skipped else "")
        if not skipped:
            try:
                yield from _walk(entry.path, name + "/", depth + 1, ignoring, ignored)
            except OSError as fault:
                yield Found(name + "/…", depth + 1, False, 0, 0, reason_of(fault))


def _found(name: str, depth: int, about: os.stat_result) -> Found:
    if stat.S_ISDIR(about.st_mode):
        return Found(name, depth, True, 0, 0)
    if stat.S_ISREG(about.st_mode):
        return Found(name, depth, False, about.st_size, about.st_mtime_ns)
    return Found(name, depth, False, 0, about.st_mtime_ns, "link" if stat.S_ISLNK(about.st_mode) else "special file")


def totals(files: list[Found]) -> Iterator[str]:
    """Yield what a listing comes to: counts and sizes by suffix, the largest, the newest."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for entry in files:
        suffix = os.path.splitext(entry.name)[1] or "no suffix"
        counts[suffix] += 1
        sizes[suffix] += entry.size
    for suffix, count in sorted(counts.items(), key=lambda item: (-sizes[item[0]], item[0]))[:20]:
        yield f"- {suffix}: {plural(count, 'files')}, {format_size(sizes[suffix])}"
    for entry in sorted(files, key=lambda entry: (-entry.size, entry.name))[:5]:
        yield f"- large: {entry.name} · {format_size(entry.size)}"
    # The newest, by order only: a time would differ from copy to copy.
    for entry in sorted(files, key=lambda entry: (-entry.changed, entry.name))[:3]:
        yield f"- changed last: {entry.name}"


def changed(before: dict[str, tuple[int, int]], found: list[Found]) -> Iterator[str]:
    """Yield what went, came and changed since `before`: (size, time of change) by name."""
    now = {entry.name: entry for entry in found}
    for name in sorted(before.keys() | now.keys()):
        entry = now.get(name)
        if entry is None:
            yield f"- {name}"
        elif name not in before:
            yield f"+ {name} · {format_size(entry.size)}"
        elif (entry.size, entry.changed) != before[name]:
            was, now_is = format_size(before[name][0]), format_size(entry.size)
            yield f"~ {name} · {was}{f' → {now_is}' if was != now_is else ''}"


def _changes(
    label: str, old: ListingBasis, new: ListingBasis, found: list[Found], budget: int, about: str = ""
) -> Draft:
    if old.fingerprint == new.fingerprint:
        return Draft(f"{label} · no change")
    return fit_lines([f"{label} · changed{about}"], list(changed(old.entries, found)), budget, "changes")


def _head(label: str, counts: str, files: list[Found], notes: tuple[str, ...]) -> str:
    return " · ".join([label, counts, format_size(sum(entry.size for entry in files)), *notes])


def _plain_name(pos: str) -> str:
    """Return how a listing has the name of an entry; a pattern is returned as it is."""
    return pos if pattern_of(pos) else pos.replace(os.sep, "/").removeprefix("./").rstrip("/")


def is_pattern(text: str) -> bool:
    """Say whether a text has a wildcard: `*`, `?` or `[…]`."""
    return bool(_WILDCARD.search(text))


def folder_of(pattern: str) -> str:
    """Return the folder before the first wildcard of an absolute pattern."""
    root, parts = _split(pattern)
    literal = takewhile(lambda name: name is not None, map(_literal, parts[:-1]))
    return os.path.join(root, *(name for name in literal if name is not None))


class GlobSource(BaseSource):
    """The files that match a pattern. 0: names and sizes; 1: a look into the first; 2: totals; 3: what changed."""

    kind = "glob"

    def __init__(self, pattern: str, label: str, open_file: Callable[[str, str], BaseSource]) -> None:
        """`pattern` is absolute, `open_file(path, label)` gives the source of one match."""
        super().__init__(label)
        self.spec = pattern
        self._open_file = open_file
        self._folder = folder_of(pattern)
        self._looks: dict[str, BaseSource] = {}
        self._walk: _Walk | None = None
        self._listed = ""

    def stamp(self) -> str:
        """Return a hash of the stats of the folders that were searched and of the first matches. Never raises.

        Names are read anew only where a folder's own stat changed.
        """
        listed = stamps_of(self._walk.folders[:WATCHED]) if self._walk else ""
        if self._walk is None or listed != self._listed:
            walk = _Walk(self.spec)
            self._walk, self._listed = walk, stamps_of(walk.folders[:WATCHED])
        return content_hash(f"{self._listed} {stamps_of(self._walk.paths[:WATCHED])}".encode())

    def covers(self, stamp: str) -> bool:
        """Say whether the stamp is of all that a rendering looks at."""
        walk = self._walk
        return walk is not None and not walk.cut and len(walk.folders) <= WATCHED and len(walk.paths) <= WATCHED

    def parts(self) -> list[str]:
        """Return what matches."""
        return [_line(self._found(path)) for path in _Walk(self.spec).paths]

    def names(self) -> Names:
        """Return what matches, by the paths from the folder before the first wildcard."""
        return Names("matches", [(self._name(path), Place(at)) for at, path in enumerate(_Walk(self.spec).paths)], "/")

    def find(self, pos: str) -> Place | None:
        """Return which match is called so: "run1/train.log", "train.log", or the whole path as the pattern has it."""
        plain, names = _plain_name(pos), self.names()
        if all(name != plain for name, _ in names.places):
            for folder in (folder_of(self._label).lstrip(os.sep), self._folder):
                plain = plain.removeprefix(f"{folder.replace(os.sep, '/')}/" if folder else "")
        return names.find(self.label, plain or pos)

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render what matches now."""
        walk = _Walk(self.spec)
        found = [self._found(path) for path in walk.paths]
        notes = (walk.cut,) if walk.cut else ()
        if len(found) > WATCHED or len(walk.folders) > WATCHED:
            notes = (*notes, f"changes of the first {WATCHED} are followed")
        basis = basis_of(found)
        files = [entry for entry in found if not entry.folder]
        counts = plural(len(files), "files")
        if len(files) < len(found):
            counts += f", {plural(len(found) - len(files), 'folders')}"
        if request.lod == 3 and isinstance(request.basis, ListingBasis):
            draft = _changes(self.label, request.basis, basis, found, budget, f": {counts}")
        elif not found:
            draft = Draft(f"{self.label} · no file matches yet", notes=("no match",))
        else:
            head = _head(self.label, counts, files, notes)
            if request.lod == 2:
                draft = fit_lines([head], list(totals(files)), budget, "points")
            else:
                draft = self._entries(request.lod, head, place, budget, found, walk.paths)
        return replace(draft, fingerprint=basis.fingerprint, basis=basis, notes=(*notes, *draft.notes))

    def _entries(self, lod: int, head: str, place: Place, budget: int, found: list[Found], paths: list[str]) -> Draft:
        first = min(place.line, len(found) - 1)
        lines: list[str] = []
        places: list[str] = []
        looks = _LOOKS if lod in (1, 3) and budget >= _LEAST_TOKENS else 0
        for at, entry in enumerate(found[first:], first):
            look = self._look(paths[at], entry) if looks and not entry.folder and not entry.note else []
            looks -= bool(look)
            own = look or [_line(entry)]
            lines += own
            # What is left of the first look would begin it anew; more tokens show it. The next file goes on.
            places += [str(max(at, first + 1))] * len(own)
        place_of = (lambda k: places[k]) if first + 1 < len(found) else None
        return fit_lines([*_FIRST[lod == 3], head], lines, budget, "lines", place=place_of)

    def _look(self, path: str, entry: Found) -> list[str]:
        """Return how a view of one match begins, at level 1: its first line, and what stands below it, indented."""
        source = self._looks.get(path)
        if source is None:
            if len(self._looks) >= 4 * _LOOKS:
                self._looks.clear()
            source = self._looks[path] = self._open_file(path, entry.name)
        text = source.render(RenderRequest(1, "0", _LOOK_TOKENS)).text
        # Only structure; and the marks of a rendering within a rendering would name the wrong handle.
        head, *below = text.partition("\n--- from line ")[0].split("\n")
        below = [line for line in below if not line.startswith("[… ")]
        more = ["    …"] if len(below) > _LOOK_LINES else []
        return [one_line(head, 300), *[f"    {line[:200]}" for line in below[:_LOOK_LINES]], *more]

    def _name(self, path: str) -> str:
        return path[len(self._folder) :].lstrip(os.sep).replace(os.sep, "/") or path

    def _found(self, path: str) -> Found:
        try:
            return _found(self._name(path), 0, os.stat(path))
        except OSError as fault:
            return Found(self._name(path), 0, False, 0, 0, reason_of(fault))


def _line(entry: Found) -> str:
    return f"{entry.name}/" if entry.folder else f"{entry.name} · {entry.note or format_size(entry.size)}"


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


class _Walk:
    """One search for what matches, within bounds."""

    def __init__(self, pattern: str) -> None:
        root, parts = _split(pattern)
        self.cut = ""
        """What bound was met, in words, or empty."""
        self._left = MOST_NAMES
        self._folders: dict[str, None] = {}
        self._seen: set[tuple[str, int]] = set()
        found = set(islice(self._match(root, parts, 0), MOST_SHOWN + 1))
        self.paths = sorted(found)[:MOST_SHOWN]
        if len(found) > MOST_SHOWN:
            self.cut = f"the first {MOST_SHOWN:,} matches"
        self.folders = list(self._folders)
        """Where a match may come or go, missing ones too."""

    def _match(self, path: str, parts: list[str], depth: int) -> Iterator[str]:
        # With several ** one folder is reached in many ways; the same rest of the pattern finds the same there.
        if (path, len(parts)) in self._seen:
            return
        self._seen.add((path, len(parts)))
        part, rest = parts[0], parts[1:]
        name = _literal(part)
        if part == "**":
            yield from self._match(path, rest, depth)
            if depth >= _GLOB_DEPTH:
                self.cut = f"{_GLOB_DEPTH} folders deep"
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
                    self.cut = f"the first {MOST_NAMES:,} names that were looked at"
        except OSError:  # not there (yet), no folder, or not to be read: nothing in it matches
            return []
        self._left -= len(some)
        return sorted(some, key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str], *, follow: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:
        return False
