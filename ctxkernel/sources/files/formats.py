"""The frames of the sources for files of a format, and of those that are shown by a list of what is in them.

Rule 1: a file that is not of the format that its name says, or cannot be listed, loses nothing: one line says so, and
        the text or bytes follow.
Rule 2: the same parts are counted at each level. `Listing.brief` and `Listing.values` may say other things of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Generic, TypeVar

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.amounts import Line, as_line
from ctxkernel.sources.base.file_reader import WHOLE_BYTES, Data, Gone, load_bytes
from ctxkernel.sources.base.rendering import BaseSource, Draft, Names, Place, as_now, fit_lines, less, with_remark
from ctxkernel.sources.files.files import FileSource
from ctxkernel.sources.files.text_documents import Document, lines_document
from ctxkernel.sources.files.text_levels import TextBasis, difference, with_basis

NAME_CHARS = 200
"""The most characters of the name of a part that a listing shows."""
F = TypeVar("F")


class FormatSource(FileSource, Generic[F]):
    """A file of a format. A subclass has `read()`, `show(…)` for levels 0 to 2, and `facts(…)` for the diff."""

    def __init__(self, path: str, label: str) -> None:
        super().__init__(path, label)
        self._read_at = ""
        self._read: F | Gone | str = Gone("missing")
        self._compared: Document | None = None

    @property
    def found(self) -> F | Gone | str:
        """The content that was read last."""
        return self._read

    def read(self) -> F | Gone | str:
        """Return what the file holds, Gone, or in a line why it is not of this format. May raise anything."""
        raise NotImplementedError(f"{type(self).__name__}.read")

    def show(self, found: F, lod: int, place: Place, budget: int) -> Draft:
        """Render level 0, 1 or 2."""
        raise NotImplementedError(f"{type(self).__name__}.show")

    def facts(self, found: F) -> tuple[list[str], int, str]:
        """Return the lines that two states of the file are compared by, its bytes, and its fingerprint."""
        raise NotImplementedError(f"{type(self).__name__}.facts")

    def names_of(self, found: F) -> Names:
        """Return what positions are called."""
        return Names()

    def place_of(self, found: F, pos: str) -> Place:
        """Return the place of a name or "/pattern/". Raises BadPolicy."""
        return self.names_of(found).find(self.label, pos)

    def parts_of(self, found: F) -> Sequence[str]:
        """Return the text of each part that positions count; none where it is not at hand."""
        return ()

    def length_of(self, found: F) -> int:
        """Return the number of parts that positions count."""
        return len(self.parts_of(found))

    def end(self, count: int | None, request: RenderRequest) -> Place:
        """Return the place of the last parts; the last lines of what is shown as it is. Raises BadPolicy."""
        if self._readable() is None:
            return super().end(count, request)
        return BaseSource.end(self, count, request)

    def length(self) -> int:
        """Return the number of parts that positions count."""
        found = self._readable()
        return super().length() if found is None else self.length_of(found)

    def parts(self) -> Sequence[str]:
        """Return the text of each part; the lines of what is shown as it is."""
        found = self._readable()
        return super().parts() if found is None else self.parts_of(found)

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place`. Never raises."""
        if self._readable() is None:
            return super().further(place, tokens, lod)
        return BaseSource.further(self, place, tokens, lod)

    def names(self) -> Names:
        """Return what positions are called; of what is shown as it is, symbols and headings."""
        found = self._readable()
        return super().names() if found is None else self.names_of(found)

    def find(self, pos: str) -> Place | None:
        """Return the place of a name or "/pattern/"; in what is shown as it is, as in any file."""
        found = self._readable()
        return super().find(pos) if found is None else self.place_of(found, pos)

    def _now(self) -> F | Gone | str:
        stamp = self.stamp()
        if stamp != self._read_at or isinstance(self._read, Gone):
            self._read, self._read_at, self._compared = self.read(), stamp, None
        return self._read

    def _readable(self) -> F | None:
        found = self._now()
        return None if isinstance(found, (Gone, str)) else found

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render what the path leads to now."""
        found = self._now()
        if isinstance(found, Gone):
            return super().draft(request, place, budget)
        if isinstance(found, str):  # why it is shown as it is
            line = f"[{found}]"
            return with_remark(super().draft(request, place, less(budget, count_tokens(line) + 2)), line)
        if self._compared is None:
            lines, size, fingerprint = self.facts(found)
            self._compared = lines_document(self.label, lines, fingerprint, size)
        document, before = self._compared, request.basis
        if request.lod < 3:
            draft = self.show(found, request.lod, place, budget)
        elif not isinstance(before, TextBasis):
            draft = as_now(self.show(found, 1, place, less(budget, 12)))
        elif before.text == document.text.text and before.fingerprint != document.text.fingerprint:
            draft = Draft(f"{self.label} · changed, but in nothing that is shown of it")
        else:
            window = document.text.lines[: len(before.window)] if before.text is None else None
            draft = difference(document, before, window, budget)
        return with_basis(draft, document)


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
    for line in map(as_line, lines):
        found[line.what or what] += line.items
    return ", ".join(plural(count, one) for one, count in found.items() if count)
