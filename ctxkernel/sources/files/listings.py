"""A file that is shown by a list of what is in it: a head, and a line for each part.

Rule 1: the same parts are counted at each level. `Listing.brief` and `Listing.values` may say other things of them.
Rule 2: what cannot be listed is shown as it is, with a line that says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.amounts import Line
from ctxkernel.sources.base.file_reader import WHOLE_BYTES, Data, Gone, load_bytes
from ctxkernel.sources.base.rendering import Draft, Names, Place, fit_lines
from ctxkernel.sources.files.formats import FormatSource

NAME_CHARS = 200


class NotListed(Exception):
    """Why a file cannot be listed: the text of the exception is the line that says so."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of a file."""

    head: str
    lines: Sequence[str]
    """The lines of level 1, and of the other levels where these have no lines of their own."""
    names: Sequence[str]
    """The name of each line, by which it is a position."""
    what: str
    exact: bool
    """Whether these are all lines."""
    size: int
    fingerprint: str
    values: Sequence[str] = ()
    """The lines of level 0, if they differ from those of level 1."""
    value_names: Sequence[str] = ()
    """The name of each line of `values`, if there are any."""
    brief: Sequence[str] = ()
    """The lines of level 2, if they differ from those of level 1."""

    def at_level(self, lod: int) -> Sequence[str]:
        """Return the lines of a level."""
        return (self.values, self.lines, self.brief)[lod] or self.lines


class ListingSource(FormatSource[Listing]):
    """A file that is shown by a list of what is in it. A subclass has `listed`."""

    def facts(self, found: Listing) -> tuple[list[str], int, str]:
        """Return the lines of the list."""
        return [found.head, *found.lines, *found.values], found.size, found.fingerprint

    def names_of(self, found: Listing) -> Names:
        """Return the names in the list, with the lines of level 0."""
        names = found.value_names or found.names
        return Names(found.what, [(name, Place(at)) for at, name in enumerate(names) if name], "/")

    def parts_of(self, found: Listing) -> Sequence[str]:
        """Return the lines of level 0."""
        return found.at_level(0)

    def show(self, found: Listing, lod: int, place: Place, budget: int) -> Draft:
        """Render the list from a position on."""
        lines, names = found.at_level(lod), found.names
        first = min(place.line, max(len(found.at_level(0)) - 1, 0))
        if found.values:
            first = first if lod == 0 else self._same_part(found, first, lod)
            names = found.value_names if lod == 0 else found.names
        in_order = lod != 2 or not found.brief
        first = min(first, max(len(lines) - 1, 0)) if in_order else 0
        there = f" · from {names[first]}" if first and names[first] else ""  # what it lies in is above it, out of sight
        head = f"{self.label} · {found.head} · {format_size(found.size)}{there}"
        before = [f"[… {_amounts(lines[:first], found.what)} before]"] if first else []
        unread = [] if found.exact else [Line("", 0, found.what, exact=False)]

        def place_of(k: int) -> str | None:
            return str(first + k) if in_order else None

        return fit_lines([head, *before], lines[first:], budget, found.what, place=place_of, hidden=unread)

    def _same_part(self, found: Listing, first: int, lod: int) -> int:
        """Return the line of level 1 about the part whose values begin at or before a line of level 0."""
        names = [name for name in found.value_names[: first + 1] if name in found.names]
        return found.names.index(names[-1]) if names and first else 0

    def read(self) -> Listing | Gone | str:
        """Return what is in the file, Gone, or in a line why that cannot be read."""
        loaded = load_bytes(self.path, WHOLE_BYTES)
        if isinstance(loaded, Gone):
            return loaded
        try:
            return self.listed(loaded)
        except NotListed as reason:
            return str(reason)
        except Exception as fault:  # damaged, or of another format
            return f"its contents cannot be listed ({type(fault).__name__}: {one_line(str(fault), 120)})"

    def listed(self, loaded: Data) -> Listing | Gone | str:
        """Return what is in the file. May raise anything."""
        raise NotImplementedError(f"{type(self).__name__}.listed")


def _amounts(lines: Sequence[str], what: str) -> str:
    """Return the numbers of items that lines stand for: `2 sheets, 62 rows`."""
    found: Counter[str] = Counter()
    for line in lines:
        found[(line.what if isinstance(line, Line) else "") or what] += line.items if isinstance(line, Line) else 1
    return ", ".join(plural(count, one) for one, count in found.items() if count)
