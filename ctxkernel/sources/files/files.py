"""A file as a source: whatever its path leads to, at four levels of detail; and the frame of texts in memory.

Rule 1: a path that leads to no readable text renders as one line (or a few bytes of a binary), with a note.
Rule 2: what was read and found is kept for one stamp, never longer.
Rule 3: of a file above 4 MB, of a table of more than `SCAN_CELLS`, and of JSON of more than `_LONG_JSON`, one pass in
        the background finds what all levels need. Until then levels 1 and 2 are of a sample. A pattern is searched for
        in the background too, where it is not found at once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Self

import xxhash

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.jobs import Preparation
from ctxkernel.core.ports import Rendered, RenderRequest
from ctxkernel.core.text import format_size, plural
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base import thumbnails
from ctxkernel.sources.base.file_reader import Binary, Gone, Text, file_stamp, load, read_at, read_regular
from ctxkernel.sources.base.file_search import SEARCHED_AT_ONCE, Search, search_file
from ctxkernel.sources.base.large_files import INDEX_BYTES, LargeFile, Window, whole_window
from ctxkernel.sources.base.positions import Pattern, pattern_of
from ctxkernel.sources.base.rendering import (
    BaseSource,
    Draft,
    Names,
    NotFound,
    Place,
    fit_lines,
    parse_place,
)
from ctxkernel.sources.base.surveys import ACCEPTED, CATCH_UP_BYTES, Pass, Survey, run_pass
from ctxkernel.sources.base.thumbnails import Decoded, decoded
from ctxkernel.sources.files.samples import known_of, sampled
from ctxkernel.sources.files.text_documents import Document, Outlined, TextFacts
from ctxkernel.sources.files.text_levels import PlainBasis, TextBasis, difference, render_document, render_text
from ctxkernel.sources.outlines.outline import FACTS, language_of
from ctxkernel.sources.outlines.tabular import SCAN_CELLS, cells_of

_TAIL_BYTES = 4096
_NO_UTF8 = "what is no utf-8 is shown as U+FFFD"
_SEARCHES = 8
_LONG_JSON = 768 << 10


class FileSource(BaseSource):
    """A file by its path. The path was made absolute, so `os.chdir` does not move the view."""

    kind = "file"
    target: object
    """The object that the file is looked at for, a module say; only set where it is for one."""
    _in_windows = True
    """Whether a file that is too large for memory can be read from any position."""

    def __init__(self, path: str, label: str) -> None:
        super().__init__(label)
        self.path = self.spec = os.path.abspath(path)
        self._name = self.path
        self._stamp = ""
        self._found: Gone | Binary | Document = Gone("missing")
        self._large: LargeFile | None = None
        self._survey: Survey | None = None
        self.searches: dict[str, Search] = {}
        """By pattern, the newest last."""
        self._image_awaited = False
        self._sought: Pattern | None = None
        """The search for the background to do."""

    def stamp(self) -> str:
        """Return a stat as text (2 µs): time of change, size, inode. Never raises."""
        return file_stamp(self.path)

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render what the path leads to now."""
        found = self._find()
        if isinstance(found, Document):
            return self._text(found, request, place, budget)
        if isinstance(found, Gone):
            return _gone(self.label, found, request)
        return self._binary(found, request, budget)

    def _binary(self, found: Binary, request: RenderRequest, budget: int) -> Draft:
        known: Decoded | None = self.prepared.get("image")
        known = known if known is not None and known.stamp == self._stamp else None
        seen = found.image is not None and request.lod == 0 and request.pictured
        if known is None and seen and found.image is not None and thumbnails.decodes_long(found.image):
            self._image_awaited = True
            draft = _binary(self.label, found, replace(request, pictured=False), budget, self.path)
            later = "no picture yet: it is being decoded"
            text = f"{draft.text} · {later}"
            return replace(draft, text=text if count_tokens(text) <= budget else draft.text, notes=("binary", later))
        return _binary(self.label, found, request, budget, self.path, known)

    def names(self) -> Names:
        """Return symbols and headings."""
        found = self._find()
        return found.names() if isinstance(found, Document) else Names()

    def fact_names(self) -> Collection[str]:
        """Return symbols and headings, or the columns of a table."""
        found = self._find()
        table = found.begun.table if isinstance(found, Document) else None
        return super().fact_names() if table is None else table.header

    def find(self, pos: str) -> Place | None:
        """Return where a symbol, a heading or a pattern is in the text. Raises BadPolicy and NotFound."""
        found, pattern = self._find(), pattern_of(pos)
        if not isinstance(found, Document):
            return None
        if pattern is None or self._large is None or not _is_utf8(found):
            return found.find(pos)
        self._sought = pattern
        before = self.searches.get(pattern.shown) or Search(pattern.compiled)
        search = read_regular(self.path, lambda descriptor, stat: _searched(before, pattern, descriptor, stat))
        if isinstance(search, Gone):
            return None
        self._keep(pattern, search)
        at = search.place(pattern.number)
        if at is not None:
            return Place(offset=at)
        size = found.text.size
        if not search.settled(pattern.number):
            raise NotFound(
                f"{pattern.shown} not found yet, {format_size(search.offset)} of {format_size(size)} searched"
            )
        count = search.count + (search.open_end >= 0)
        about = f"; it matches {plural(count, 'lines')}" if count else ""
        if size <= SEARCHED_AT_ONCE:
            raise BadPolicy(f"{self.label} has no position {pos!r}: all {format_size(size)} were searched{about}")
        raise NotFound(f"position {pos!r} is not there: all {format_size(size)} were searched{about}")

    def _keep(self, pattern: Pattern, search: Search) -> None:
        self.searches.pop(pattern.shown, None)
        self.searches[pattern.shown] = search
        if len(self.searches) > _SEARCHES:
            del self.searches[next(iter(self.searches))]

    def render(self, request: RenderRequest) -> Rendered:
        """Render within `request.tokens`. Raises BadPolicy. A search for another position is given up."""
        self._sought = None
        return super().render(request)

    def end(self, count: int | None, request: RenderRequest) -> Place:
        """Return the place of the last lines. Raises BadPolicy where only the beginning was read."""
        found = self._find()
        if not isinstance(found, Document):
            return Place()
        if self._large is not None and _is_utf8(found):
            return self._large.end(count, self.room(request)) or Place()
        if not found.text.whole:
            raise BadPolicy(f"{self.label}: its end is not known, {found.read}; give a line")
        return super().end(count, request) if found.text.lines else Place()

    def parts(self) -> Sequence[str]:
        """Return the lines."""
        found = self._find()
        return found.text.lines if isinstance(found, Document) else ()

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place`; of a large file at most 4 MB on. Never raises."""
        found, at = self._find(), parse_place(place)
        if self._large is None or at is None or not isinstance(found, Document):
            return super().further(place, tokens, lod)
        return self._large.further(at, tokens) if _is_utf8(found) else None

    def _find(self) -> Gone | Binary | Document:
        stamp = self.stamp()
        if stamp != self._stamp or isinstance(self._found, Gone):
            loaded = self._load()
            large = isinstance(loaded, Text) and self._in_windows and (not loaded.whole or _is_long(self._name, loaded))
            self._large = self._open_large() if large else None
            self._found = self._document(loaded) if isinstance(loaded, Text) else loaded
            self._stamp = stamp
        return self._found

    def _load(self) -> Gone | Binary | Text:
        return load(self.path)

    def _document(self, text: Text) -> Document:
        """Return the document of a text; of a large log or table with the facts that are known about all of it."""
        found = Document(self.label, self._name, text, later=True)
        if self._large is None or not _is_utf8(found) or found.language.name not in FACTS:
            return found
        known = read_regular(self.path, self._known)

        def sample() -> TextFacts | None:
            facts = read_regular(self.path, lambda descriptor, stat: sampled(found, descriptor, stat.st_size))
            return facts if isinstance(facts, TextFacts) else None

        return Document(self.label, self._name, text, known if isinstance(known, TextFacts) else None, sample)

    # -- what is found in a large one in the background

    def _passes(self) -> list[Pass]:
        return [one for one in (self.prepared.get("pass"), ACCEPTED.get(self.path)) if one is not None]

    def _open_large(self) -> LargeFile:
        known = next(iter(self._passes()), None)
        return LargeFile(self.path, known.index if known is not None else None)

    def _known(self, descriptor: int, found: os.stat_result) -> TextFacts | None:
        """Return what the survey found, with what was appended since; None where too much was not read."""
        surveys = [self._survey, *(one.survey for one in self._passes())]
        held = [one for one in surveys if one is not None and one.holds(descriptor, found)]
        if held:
            survey = max(held, key=lambda one: one.offset)
            if found.st_size - survey.offset <= CATCH_UP_BYTES:
                survey = survey.further(descriptor, found.st_ino, CATCH_UP_BYTES + 1)
                self._survey = survey
                return known_of(survey.with_last_line(descriptor), found.st_size)
        return None

    def preparation(self) -> Preparation | None:
        """Return the pass over what was not read yet; None where all was."""
        large, found = self._large, self._found
        if isinstance(found, Binary) and self._image_awaited:
            path, stamp = self.path, self._stamp
            return Preparation(f"image {path} {stamp}", lambda stopped, publish: decoded(path, stamp), "render")
        if not isinstance(found, Document):
            return None
        if large is None or not _is_utf8(found):
            return found.preparation()
        sought = self._sought
        search = None if sought is None else self.searches.get(sought.shown)
        if sought is not None and search is not None and not search.settled(sought.number):
            return self._searching(search, sought)
        facts = FACTS.get(found.language.name)
        indexed = large.indexed >= found.text.size or found.text.size > INDEX_BYTES
        if not indexed or (facts is not None and not found.surveyed and found.text.size <= INDEX_BYTES):
            path, known = self.path, Pass(large.index, next((one.survey for one in self._passes()), None))
            return Preparation(
                f"file {path} {self._inode}", lambda stopped, publish: run_pass(path, known, facts, stopped, publish)
            )
        if sought is not None and search is not None and not search.whole:  # for the matches after it
            return self._searching(search, replace(sought, number=-1))
        return found.preparation()

    @property
    def _inode(self) -> str:
        return "".join(self._stamp.split(".")[2:3])

    def _searching(self, search: Search, sought: Pattern) -> Preparation:
        path = self.path
        return Preparation(
            f"search {path} {self._inode} {sought.shown} {sought.number}",
            lambda stopped, publish: search_file(path, search, sought, stopped, publish),
        )

    def accept(self, result: Any) -> bool:
        """Take the result of a pass as far as it still holds. Returns whether no more of it is needed."""
        if isinstance(result, Search):
            return self._accept_search(result)
        if isinstance(result, Decoded):
            self._image_awaited = self._image_awaited and result.stamp != self._stamp
            return result.stamp == self._stamp and self.take("image", result)
        if isinstance(result, Outlined):
            found = self._found.taken(result) if isinstance(self._found, Document) else None
            if found is not None:
                self._found = found
                self._renderings.clear()
            return found is not None
        if not isinstance(result, Pass):
            return super().accept(result)
        before, self.prepared["pass"] = self.prepared.get("pass"), result
        large = self._open_large()
        if large.index is not result.index:
            self.prepared["pass"] = before
            return False
        ACCEPTED[self.path] = result
        if self._large is not None:
            self._large = large
            if isinstance(self._found, Document):
                self._found = self._document(self._found.text)
        self._renderings.clear()
        return self.preparation() is None

    def _accept_search(self, result: Search) -> bool:
        sought = self._sought
        if sought is None or result.pattern != sought.compiled or read_regular(self.path, result.holds) is not True:
            return False
        before = self.searches.get(sought.shown)
        self._keep(sought, result)
        self._renderings.clear()
        return result.settled(sought.number) and not (before is not None and before.settled(sought.number))

    def worded(self) -> bool:
        """Return whether it is prose or code."""
        return isinstance(self._found, Document) and self._found.worded

    def twin(self) -> Self:
        """Return a source of the same file for another thread."""
        other = super().twin()
        other.searches = dict(self.searches)
        return other

    def absorb(self, twin: BaseSource) -> None:
        """Take over what a twin read; what was accepted meanwhile stays."""
        super().absorb(twin)
        if self._large is not None:
            self._large = self._open_large()

    def _text(self, document: Document, request: RenderRequest, place: Place, budget: int) -> Draft:
        window = self._window(document, place, budget)
        if isinstance(window, Gone):
            return _gone(self.label, window, request)

        def changes_since(basis: TextBasis) -> Draft:
            if basis.text is not None and document.text.whole:
                return difference(document, basis, None, budget)
            if (grown := self._growth(document, basis, budget)) is not None:
                return grown
            again = self._window(document, Place(line=basis.window_line), 1 << 16)
            kept = len(basis.window)
            return difference(
                document, basis, again.lines[:kept] if isinstance(again, Window) and kept else None, budget
            )

        tail = (document.text.size, self._tail_hash(document.text.size)) if self._large is not None else (0, "")
        draft = render_text(document, window, request, place, budget, changes_since=changes_since, tail=tail)
        if self._large is None or "\ufffd" not in draft.text or "\ufffd" in document.text.text:
            return draft
        document = document.remarked(_NO_UTF8)  # the first part of the file did not show it
        return render_text(document, window, request, place, budget, changes_since=changes_since, tail=tail)

    def _window(self, document: Document, place: Place, budget: int) -> Window | Gone:
        if self._large is None or not _is_utf8(document):
            return whole_window(document.text, place)
        return self._large.window(place, budget)

    def _growth(self, document: Document, basis: TextBasis, budget: int) -> Draft | None:
        """Return the lines that were appended to a large file, or None where it did not just grow."""
        size, digest = basis.tail
        if self._large is None or not size or document.text.size <= size or self._tail_hash(size) != digest:
            return None
        window = self._large.window(Place(offset=size), budget)
        if isinstance(window, Gone):
            return None
        now = document.text.size
        head = f"{self.label} · grew by {format_size(now - size)} to {format_size(now)}; appended:"
        lines = [f"+{line}" for line in window.lines]
        if sum(window.widths) < window.left:
            lines.append("[… more was appended than is read at once]")
        return fit_lines([head], lines, budget, "appended lines", place=window.place_after)

    def _tail_hash(self, size: int) -> str:
        def digest(descriptor: int, _: os.stat_result) -> str:
            return xxhash.xxh3_64_hexdigest(read_at(descriptor, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES)))

        found = read_regular(self.path, digest)
        return "" if isinstance(found, Gone) else found


def _searched(before: Search, pattern: Pattern, descriptor: int, found: os.stat_result) -> Search:
    """Return a search taken further by what is searched at once."""
    search = before if before.holds(descriptor, found) else Search(pattern.compiled)
    if search.settled(pattern.number) and not (search.whole and search.offset < found.st_size):
        return search
    return search.further(descriptor, found.st_ino, pattern.number, SEARCHED_AT_ONCE)


def _is_long(path: str, text: Text) -> bool:
    """Return whether a text is a table of more cells than are read at once, or JSON of more characters."""
    name = language_of(path, text).name if text.encoding.startswith("utf-8") else ""
    return (name == "table" and cells_of(text.text) > SCAN_CELLS) or (
        name in ("json", "jsonlines") and len(text.text) > _LONG_JSON
    )


def _is_utf8(document: Document) -> bool:
    """Return whether a text can be read from the middle."""
    return document.text.encoding.startswith("utf-8")


def _gone(label: str, found: Gone, request: RenderRequest) -> Draft:
    before = request.basis if request.lod == 3 else None
    was = f"; was {format_size(before.size)} when rendered last" if isinstance(before, TextBasis) else ""
    hint = " (view it again to list it)" if found.reason == "directory" else ""
    text = f"{label} · {found.reason}{hint}{was}"
    basis = PlainBasis(found.fingerprint, found.reason)
    return Draft(text, fingerprint=found.fingerprint, basis=basis, notes=(found.reason,))


def _binary(
    label: str, found: Binary, request: RenderRequest, budget: int, path: str, known: Decoded | None = None
) -> Draft:
    about = f"{found.image or found.what}, {format_size(found.size)}"
    picture, notes = None, ("binary",)
    if request.lod == 3 and request.basis is not None:
        same = getattr(request.basis, "fingerprint", "") == found.fingerprint
        was = f"; was {request.basis.about}" if isinstance(request.basis, PlainBasis) and not same else ""
        draft = Draft(f"{label} · {'no change' if same else 'changed'} · {about}{was}")
    elif found.image is not None:  # its bytes say no more
        why = ""
        if request.lod == 0 and request.pictured:
            room = budget - count_tokens(f"{label} · {about} · shown as 512 × 512, ~350 tokens")
            picture, why = thumbnails.picture(path, found.image, room, known)
        notes = ("binary", why) if why else notes
        draft = Draft(f"{label} · {about}" + (f" · {picture.shown}" if picture is not None else ""))
    else:
        rows = [found.head[at : at + 16] for at in range(0, 64 if request.lod == 0 else 16, 16)]
        dump = [
            f"{16 * at:08x}  {row.hex(' '):<47}  {''.join(chr(c) if 32 <= c < 127 else '.' for c in row)}"
            for at, row in enumerate(rows)
            if row
        ]
        draft = fit_lines([f"{label} · binary: {about}"], dump, budget, "rows")
    basis = PlainBasis(found.fingerprint, about)
    return replace(draft, fingerprint=found.fingerprint, basis=basis, notes=notes, picture=picture)


class TextSource(BaseSource):
    """A text in memory, asked for anew each time: a `StringIO`, or the source code of an object."""

    kind = "text"

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._document: Document | None = None

    def text(self) -> Text:
        """Return the text as it is now."""
        raise NotImplementedError(f"{type(self).__name__}.text")

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the text as it is now."""
        return render_document(self._now(), request, place, budget)

    def _now(self) -> Document:
        text = self.text()
        if self._document is None or self._document.text.fingerprint != text.fingerprint:
            self._document = Document(self.label, self.path_hint(), text, later=True)
        return self._document

    def preparation(self) -> Preparation | None:
        """Return what takes long to find in the text."""
        return self._document.preparation() if self._document is not None else None

    def accept(self, result: Any) -> bool:
        """Take what the background found in the text."""
        if not isinstance(result, Outlined):
            return super().accept(result)
        found = self._document.taken(result) if self._document is not None else None
        if found is not None:
            self._document = found
            self._renderings.clear()
        return found is not None

    def parts(self) -> Sequence[str]:
        """Return the lines."""
        return self.text().lines

    def names(self) -> Names:
        """Return symbols and headings."""
        return self._now().names()

    def find(self, pos: str) -> Place | None:
        """Return where a symbol, a heading or a pattern is in the text."""
        return self._now().find(pos)

    def worded(self) -> bool:
        """Return whether it is prose or code."""
        return self._document is not None and self._document.worded

    def path_hint(self) -> str:
        """Return a file name whose suffix says the language."""
        return ""
