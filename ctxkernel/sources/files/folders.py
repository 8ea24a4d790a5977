"""Folders, and the files that match a pattern (`view("data/*.csv")`), as sources.

A position in a folder is "entry:below", both from 0: of its own entries, and of what lies below one, in the order of
the tree. Of a map of code (`code_maps.py`) it is `k` or `@k`, a symbol, or the name of an entry, which shows the tree.
In a pattern it is the number of a match.

Rule 1: of a folder each `.gitignore` is read, for levels 1 and 2 code, for level 2 how prose and tables begin; of a
        pattern only regular files are, and those as a view of each would. No link is followed by a tree or by `**`.
Rule 2: at most `MOST_NAMES` names are read and `MOST_SHOWN` shown, and so many names left out as are read of a folder;
        what was left out is said.
Rule 3: names are sorted, so the listing does not depend on the file system's order. Matches are named from the folder
        before the first wildcard, wherever that lies.
Rule 4: hidden folders and caches are named but not entered; a name with a leading dot takes a pattern with one. What
        a `.gitignore` leaves out of a folder, and each `__pycache__`, is counted and not named.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.amounts import Line, moved
from ctxkernel.sources.base.file_reader import content_hash, file_stamp, reason_of
from ctxkernel.sources.base.positions import pattern_of
from ctxkernel.sources.base.rendering import BaseSource, Draft, Names, Place, fit_lines, parse_place
from ctxkernel.sources.files.code_maps import CodeMap, MappedSource
from ctxkernel.sources.files.code_trees import package_of
from ctxkernel.sources.files.folder_parts import (
    FolderEntry,
    other_files,
    part_lines,
    printable,
    readme_line,
    totals,
    tree_line,
)
from ctxkernel.sources.files.gitignore import Ignoring, above
from ctxkernel.sources.files.globs import NOT_ENTERED, PatternSearch, folder_of
from ctxkernel.sources.outlines.code_files import is_code

MOST_NAMES = 20_000
MOST_SHOWN = 2_000
WATCHED = 256
"""Matches of a pattern, and folders, that are asked at each tick whether they changed."""
_COUNTED = "__pycache__"
_DEPTH = 4
_WATCHED_ENTRIES = 64
_LOOKS = 4
_LOOK_LINES = 8
_LOOK_TOKENS = 400
_LEAST_TOKENS = 150  # of a rendering with room for looks
_FIRST = ((), ("[nothing rendered before; as it is now:]",))
"""The line above a diff that has nothing to compare with."""


@dataclass(slots=True)
class Unlisted:
    """The entries that a walk met and does not name."""

    ignored: int = 0
    caches: int = 0

    def notes(self) -> list[str]:
        """Return what is said of it."""
        cut = ", the rest not looked at" if self.ignored >= MOST_NAMES else ""
        ignored = [f"{self.ignored:,} ignored (.gitignore){cut}"] if self.ignored else []
        return [*ignored, *([f"{self.caches:,} {_COUNTED} not listed"] if self.caches else [])]


@dataclass(frozen=True, slots=True)
class ListingBasis:
    """The basis of a later diff: size and time of change of each entry that was read."""

    fingerprint: str
    entries: dict[str, tuple[int, int]]


def basis_of(found: list[FolderEntry]) -> ListingBasis:
    """Return what a later diff of this listing needs."""
    listing = "\n".join(f"{entry.name}|{entry.size}|{entry.changed}|{entry.note}" for entry in found)
    entries = {entry.name: (entry.size, entry.changed) for entry in found}
    return ListingBasis(content_hash(listing.encode("utf-8", "surrogateescape")), entries)


class DirectorySource(MappedSource):
    """A directory by its path. 0: its own entries; 1: the tree, of sources a map; 2: its parts; 3: what changed."""

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
        """Return a hash of the stats of the directory, of its first 64 entries and of its code. Never raises.

        Names are read anew only where a folder's own stat changed.
        """
        if self._listed != self._folder_stamps():
            self._watch()
            self._listed = self._folder_stamps()
        code = self.map.stamp() if self.map is not None else ""
        return content_hash(f"{self._listed} {stamps_of(self._watched)} {code}".encode())

    def _folder_stamps(self) -> str:
        return stamps_of([self.path, *self._folders, *self._above.files])

    def covers(self, stamp: str) -> bool:
        """Return whether the stamp is of all that a rendering looks at."""
        return self._all_watched and (self.map is None or self.map.watches_all)

    def _watch(self) -> None:
        self._above = above(self.path)
        try:
            found = _list(self.path, MOST_SHOWN)[0]
        except OSError:
            found = []
        code = [is_code(entry.name) for entry in found if not entry.folder]
        if 2 * sum(code) < max(len(code), 1):
            self.map = None
        elif self.map is None:
            self.map = CodeMap(self.path, package_of(self.path))
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
        if at is not None and (lod == 1 or at.offset is not None) and (code := self._mapped()) is not None:
            return code.further(at, tokens)
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
        entries = list(zip((entry.name for entry in found), _places(found), strict=True))
        return Names("entries", entries, "/")

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
            if self.map is not None and (symbol := self.map.find(pos)) is not None:
                return symbol
            if pattern_of(pos) or not plain or not os.path.lexists(os.path.join(self.path, plain)):
                raise
        raise BadPolicy(
            f"{self.label} does not list {pos!r}: it is ignored, a cache or lies too deep; view it by its own path"
        )

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the directory as it is now."""
        try:
            found, unlisted = _list(self.path, MOST_SHOWN + 1)
        except NotADirectoryError:
            return Draft(f"{self.label} · is no directory any more (view it again)", notes=("not a directory",))
        except OSError as fault:
            reason = reason_of(fault)
            return Draft(f"{self.label} · {reason}", fingerprint=f"gone:{reason}", notes=(reason,))
        part = len(found) > MOST_SHOWN
        notes = (f"only the first {MOST_SHOWN:,} entries were read",) if part else ()
        notes = (*notes, *unlisted.notes())
        found = found[:MOST_SHOWN]
        basis = basis_of(found)
        if request.lod == 3 and isinstance(request.basis, ListingBasis):
            draft = _changes(self.label, request.basis, basis, found, budget)
        else:
            draft = self._level(request, place, budget, found, notes, part)
        fingerprint = basis.fingerprint
        if self.map is not None and self.map.known.files:
            fingerprint = content_hash(f"{fingerprint} {self.map.known.fingerprint()}".encode())
        return replace(draft, fingerprint=fingerprint, basis=basis, notes=notes)

    def _level(
        self,
        request: RenderRequest,
        place: Place,
        budget: int,
        found: list[FolderEntry],
        notes: tuple[str, ...],
        part: bool,
    ) -> Draft:
        """Render level 0, 1 or 2; `part` says that there are more entries than `found`."""
        lod = request.lod
        files = [entry for entry in found if not entry.folder]
        least = part or any(entry.folder and entry.note for entry in found)
        counts = f"{len(files):,}+ files" if least else plural(len(files), "files")
        head = _head(f"{self.label}/".replace("//", "/"), counts, files, notes, least)
        code = self._mapped() if lod or place.offset is not None else None
        if place.offset is not None and not lod:
            return code.source(place, budget) if code is not None else Draft(f"{head} · no symbol")
        if lod == 2:
            return self._parts(head, found, files, code, budget, part)
        if code is not None and (place.offset is not None or parse_place(request.pos) is not None):
            others = other_files(files)
            return code.structure([*_FIRST[lod == 3], code.headed(head), *others], place, budget)
        places = _places(found)
        first = _at(places, place)
        if first:  # what it lies in stands above it, out of sight
            head += f" · from {found[first].name}"
        shown = list(zip(found, places, strict=True))[first:]
        if lod == 0:  # its own entries; of the one that the position is in, what is below
            shown = [row for row in shown if not row[0].depth or (place.col and row[1].line == place.line)]
        lines: list[str] = [tree_line(entry) if lod else entry.line() for entry, _ in shown]
        lines += [Line("[… what follows was not read]", 0, "entries", exact=False)] if part else []

        def place_of(k: int) -> str | None:
            if k >= len(shown):
                return None
            name = shown[k][0].name  # where a number is a symbol of the map
            return name if lod and code is not None and parse_place(name) is None else str(shown[k][1])

        return fit_lines([*_FIRST[lod == 3], head], lines, budget, "entries", place=place_of)

    def _parts(
        self,
        head: str,
        found: list[FolderEntry],
        files: list[FolderEntry],
        code: CodeMap | None,
        budget: int,
        part: bool,
    ) -> Draft:
        parts = code.parts() if code is not None else []
        lines = [part.line() for part in parts]
        lines += part_lines(self.path, found, [part.name for part in parts], part=part)
        heads = [code.headed(head) if code is not None else head, *readme_line(self.path, found)]
        unread = [Line("", 0, "points", exact=False)] if part else []
        return fit_lines(heads, [*lines, *totals(files)], budget, "points", hidden=unread)

    def _mapped(self) -> CodeMap | None:
        """Return the map, if it has symbols."""
        return self.map if self.map is not None and self.map.tree().symbols else None


def _places(found: list[FolderEntry]) -> list[Place]:
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


def _list(path: str, most: int) -> tuple[list[FolderEntry], Unlisted]:
    """Return the first entries of a tree, and what was met that is not named. Raises OSError."""
    unlisted = Unlisted()
    return list(islice(_walk(path, "", 0, above(path), unlisted), most)), unlisted


def _walk(path: str, prefix: str, depth: int, ignoring: Ignoring, unlisted: Unlisted) -> Iterator[FolderEntry]:
    ignoring = ignoring.within(path)
    with os.scandir(path) as entries:
        some = sorted(islice(entries, MOST_NAMES), key=lambda entry: entry.name)
    for entry in some:
        if unlisted.ignored >= MOST_NAMES:
            return
        name = prefix + entry.name
        try:
            folder = entry.is_dir(follow_symlinks=False)
            if ignoring.leaves_out(entry.path, folder):
                unlisted.ignored += 1
                continue
            if folder and entry.name == _COUNTED:
                unlisted.caches += 1
                continue
            about = entry.stat(follow_symlinks=False)
        except OSError as fault:
            yield FolderEntry(name, depth, False, 0, 0, reason_of(fault))
            continue
        if not stat.S_ISDIR(about.st_mode):
            yield _found(name, depth, about)
            continue
        skipped = entry.name.startswith(".") or entry.name in NOT_ENTERED or depth + 1 >= _DEPTH
        yield FolderEntry(name, depth, True, 0, 0, "not entered" if skipped else "")
        if not skipped:
            try:
                yield from _walk(entry.path, name + "/", depth + 1, ignoring, unlisted)
            except OSError as fault:
                yield FolderEntry(name + "/…", depth + 1, False, 0, 0, reason_of(fault))


def _found(name: str, depth: int, about: os.stat_result) -> FolderEntry:
    if stat.S_ISDIR(about.st_mode):
        return FolderEntry(name, depth, True, 0, 0)
    if stat.S_ISREG(about.st_mode):
        return FolderEntry(name, depth, False, about.st_size, about.st_mtime_ns)
    return FolderEntry(
        name, depth, False, 0, about.st_mtime_ns, "link" if stat.S_ISLNK(about.st_mode) else "special file"
    )


def changed(before: dict[str, tuple[int, int]], found: list[FolderEntry]) -> Iterator[str]:
    """Yield what went, came and changed since `before`: (size, time of change) by name."""
    now = {entry.name: entry for entry in found}
    for name in sorted(before.keys() | now.keys()):
        entry = now.get(name)
        if entry is None:
            yield f"- {printable(name)}"
        elif name not in before:
            yield f"+ {printable(name)} · {format_size(entry.size)}"
        elif (entry.size, entry.changed) != before[name]:
            was, now_is = format_size(before[name][0]), format_size(entry.size)
            yield f"~ {printable(name)} · {was}{f' → {now_is}' if was != now_is else ''}"


def _changes(
    label: str, old: ListingBasis, new: ListingBasis, found: list[FolderEntry], budget: int, about: str = ""
) -> Draft:
    if old.fingerprint == new.fingerprint:
        return Draft(f"{label} · no change")
    return fit_lines([f"{label} · changed{about}"], list(changed(old.entries, found)), budget, "changes")


def _head(label: str, counts: str, files: list[FolderEntry], notes: tuple[str, ...], part: bool) -> str:
    size = format_size(sum(entry.size for entry in files))
    return " · ".join([label, counts, f"{size} or more" if part else size, *notes])


def _plain_name(pos: str) -> str:
    """Return how a listing has the name of an entry; a pattern is returned as it is."""
    return pos if pattern_of(pos) else pos.replace(os.sep, "/").removeprefix("./").rstrip("/")


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
        self._walk: PatternSearch | None = None
        self._listed = ""

    def stamp(self) -> str:
        """Return a hash of the stats of the folders that were searched and of the first matches. Never raises.

        Names are read anew only where a folder's own stat changed.
        """
        listed = stamps_of(self._walk.folders[:WATCHED]) if self._walk else ""
        if self._walk is None or listed != self._listed:
            walk = self._search()
            self._walk, self._listed = walk, stamps_of(walk.folders[:WATCHED])
        return content_hash(f"{self._listed} {stamps_of(self._walk.paths[:WATCHED])}".encode())

    def covers(self, stamp: str) -> bool:
        """Return whether the stamp is of all that a rendering looks at."""
        walk = self._walk
        return walk is not None and not walk.cut and len(walk.folders) <= WATCHED and len(walk.paths) <= WATCHED

    def _search(self) -> PatternSearch:
        return PatternSearch(self.spec, names=MOST_NAMES, matches=MOST_SHOWN)

    def parts(self) -> list[str]:
        """Return what matches."""
        return [_line(self._found(path)) for path in self._search().paths]

    def names(self) -> Names:
        """Return what matches, by the paths from the folder before the first wildcard."""
        return Names("matches", [(self._name(path), Place(at)) for at, path in enumerate(self._search().paths)], "/")

    def find(self, pos: str) -> Place | None:
        """Return which match is called so: "run1/train.log", "train.log", or the whole path as the pattern has it."""
        plain, names = _plain_name(pos), self.names()
        if all(name != plain for name, _ in names.places):
            for folder in (folder_of(self._label).lstrip(os.sep), self._folder):
                plain = plain.removeprefix(f"{folder.replace(os.sep, '/')}/" if folder else "")
        return names.find(self.label, plain or pos)

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render what matches now."""
        walk = self._search()
        found = [self._found(path) for path in walk.paths]
        notes = (walk.cut,) if walk.cut else ()
        if len(found) > WATCHED or len(walk.folders) > WATCHED:
            notes = (*notes, f"changes of the first {WATCHED} are followed")
        basis = basis_of(found)
        files = [entry for entry in found if not entry.folder]
        part = bool(walk.cut)
        counts = f"{len(files):,}+ files" if part else plural(len(files), "files")
        if len(files) < len(found):
            counts += f", {plural(len(found) - len(files), 'folders')}"
        if request.lod == 3 and isinstance(request.basis, ListingBasis):
            draft = _changes(self.label, request.basis, basis, found, budget, f": {counts}")
        elif not found:
            draft = Draft(f"{self.label} · no file matches yet", notes=("no match",))
        else:
            head = _head(self.label, counts, files, notes, part)
            if request.lod == 2:
                draft = fit_lines([head], list(totals(files)), budget, "points")
            else:
                draft = self._entries(request.lod, head, place, budget, found, walk)
        return replace(draft, fingerprint=basis.fingerprint, basis=basis, notes=(*notes, *draft.notes))

    def _entries(
        self, lod: int, head: str, place: Place, budget: int, found: list[FolderEntry], walk: PatternSearch
    ) -> Draft:
        first = min(place.line, len(found) - 1)
        lines: list[str] = []
        places: list[str] = []
        looks = _LOOKS if lod in (1, 3) and budget >= _LEAST_TOKENS else 0
        for at, entry in enumerate(found[first:], first):
            look = self._look(walk.paths[at], entry) if looks and not entry.folder and not entry.note else []
            looks -= bool(look)
            # A look is one match, and its first line stands for it.
            own = [look[0], *map(Line, look[1:])] if look else [_line(entry)]
            lines += own
            # What is left of the first look would begin it anew; more tokens show it. The next file goes on.
            places += [str(max(at, first + 1))] * len(own)
        lines += [Line("[… not all matches were read]", 0, "matches", exact=False)] if walk.cut else []

        def place_of(k: int) -> str | None:
            return places[k] if first + 1 < len(found) and k < len(places) else None

        return fit_lines([*_FIRST[lod == 3], head], lines, budget, "matches", place=place_of)

    def _look(self, path: str, entry: FolderEntry) -> list[str]:
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

    def _found(self, path: str) -> FolderEntry:
        try:
            return _found(self._name(path), 0, os.stat(path))
        except OSError as fault:
            return FolderEntry(self._name(path), 0, False, 0, 0, reason_of(fault))


def _line(entry: FolderEntry) -> str:
    name = printable(entry.name)
    return f"{name}/" if entry.folder else f"{name} · {entry.note or format_size(entry.size)}"
