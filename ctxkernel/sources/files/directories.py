"""A directory as a source: a bounded tree with sizes. A position is "entry:below", both from 0: of its own entries, and
of what lies below one, in the order of the tree.

Rule 1: no file but a `.gitignore` is opened, no link followed; at most `MOST_NAMES` names are read and `MOST_SHOWN`
        looked at, and so many names left out as are read of a folder.
Rule 2: names are sorted, so the listing does not depend on the file system's order.
Rule 3: hidden folders and caches are named but not entered. What a `.gitignore` leaves out is counted, and not named.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size, plural
from ctxkernel.sources.base.file_reader import content_hash, file_stamp, reason_of
from ctxkernel.sources.base.positions import pattern_of
from ctxkernel.sources.base.rendering import BaseSource, Draft, Names, Place, fit_lines, parse_place
from ctxkernel.sources.base.scroll_steps import moved
from ctxkernel.sources.files.gitignore import Ignoring, above

MOST_NAMES = 20_000
MOST_SHOWN = 2_000
_DEPTH = 4
_WATCHED = 64
NOT_ENTERED = frozenset({"__pycache__", "node_modules", "site-packages"})


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
        listed = stamps_of([self.path, *self._folders, *self._above.files])
        if listed != self._listed:
            self._watch()
            listed = self._listed = stamps_of([self.path, *self._folders, *self._above.files])
        return content_hash(f"{listed} {stamps_of(self._watched)}".encode())

    def covers(self, stamp: str) -> bool:
        """Say whether the stamp is of all that a rendering looks at."""
        return self._all_watched

    def _watch(self) -> None:
        self._above = above(self.path)
        try:
            found = _list(self.path, _WATCHED + 1)[0]
        except OSError:
            found = []
        self._all_watched = len(found) <= _WATCHED
        paths = [(os.path.join(self.path, entry.name), entry.folder) for entry in found[:_WATCHED]]
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
        plain = pos if pattern_of(pos) else pos.replace(os.sep, "/").removeprefix("./").rstrip("/")
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
        fingerprint = basis.fingerprint
        draft = self._level(request, place, budget, found, fingerprint, notes)
        return Draft(draft.text, draft.cut_tokens, draft.next_pos, fingerprint, basis, notes)

    def _level(
        self,
        request: RenderRequest,
        place: Place,
        budget: int,
        found: list[Found],
        fingerprint: str,
        notes: tuple[str, ...],
    ) -> Draft:
        files = [entry for entry in found if not entry.folder]
        total = format_size(sum(entry.size for entry in files))
        head = " · ".join([f"{self.label}/".replace("//", "/"), plural(len(files), "files"), total, *notes])
        basis = request.basis
        if request.lod == 3 and isinstance(basis, ListingBasis):
            if basis.fingerprint == fingerprint:
                return Draft(f"{self.label} · no change")
            return fit_lines([f"{self.label} · changed"], list(changed(basis.entries, found)), budget, "changes")
        if request.lod == 2:
            return fit_lines([head], list(totals(files)), budget, "points")
        before = ["[nothing rendered before; as it is now:]"] if request.lod == 3 else []
        places = _places(found)
        first = _at(places, place)
        if first:  # what it lies in stands above it, out of sight
            head += f" · from {found[first].name}"
        shown = list(zip(found, places, strict=True))[first:]
        if request.lod == 0:  # its own entries; of the one that the position is in, what is below
            shown = [row for row in shown if not row[0].depth or (place.col and row[1].line == place.line)]
        lines = [entry.line() for entry, _ in shown]
        return fit_lines([*before, head], lines, budget, "entries", place=lambda k: str(shown[k][1]))


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
        if stat.S_ISDIR(about.st_mode):
            skipped = entry.name.startswith(".") or entry.name in NOT_ENTERED or depth + 1 >= _DEPTH
            yield Found(name, depth, True, 0, 0, "not entered" if skipped else "")
            if not skipped:
                try:
                    yield from _walk(entry.path, name + "/", depth + 1, ignoring, ignored)
                except OSError as fault:
                    yield Found(name + "/…", depth + 1, False, 0, 0, reason_of(fault))
        elif stat.S_ISLNK(about.st_mode):
            yield Found(name, depth, False, 0, about.st_mtime_ns, "link")
        elif stat.S_ISREG(about.st_mode):
            yield Found(name, depth, False, about.st_size, about.st_mtime_ns)
        else:
            yield Found(name, depth, False, 0, about.st_mtime_ns, "special file")


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
