"""A file as a source: whatever its path leads to, at four levels of detail; and the frames of texts and formats.

Rule 1: a path that leads to no readable text renders as one line (or a few bytes of a binary), with a note.
Rule 2: what was read and found is kept for one stamp, never longer.
Rule 3: a file that is not of the format that its name says loses nothing: one line says so, and the text or bytes
        follow.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import xxhash

from ctxkernel.core.jobs import Preparation
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base import thumbnails
from ctxkernel.sources.base.file_reader import Binary, Gone, Text, file_stamp, load, read_at, read_regular
from ctxkernel.sources.base.large_files import INDEX_BYTES, LargeFile, Window, whole_window
from ctxkernel.sources.base.rendering import (
    BaseSource,
    Draft,
    Names,
    Place,
    as_now,
    fit_lines,
    less,
    parse_place,
    with_remark,
)
from ctxkernel.sources.base.surveys import ACCEPTED, CATCH_UP_BYTES, Pass, Survey, run_pass
from ctxkernel.sources.files.samples import known_of, sampled
from ctxkernel.sources.files.text_levels import (
    Document,
    Known,
    PlainBasis,
    TextBasis,
    difference,
    lines_document,
    make_basis,
    render_document,
    render_text,
)
from ctxkernel.sources.outlines.outline import FACTS

F = TypeVar("F")
_TAIL_BYTES = 4096


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
        return _binary(self.label, found, request, budget, self.path)

    def names(self) -> Names:
        """Return symbols and headings."""
        found = self._find()
        return found.names() if isinstance(found, Document) else Names()

    def find(self, pos: str) -> Place | None:
        """Return where a symbol, a heading or a pattern is in the text."""
        found = self._find()
        return found.find(pos) if isinstance(found, Document) else None

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
            large = isinstance(loaded, Text) and not loaded.whole and self._in_windows
            self._large = self._open_large() if large else None
            self._found = self._document(loaded) if isinstance(loaded, Text) else loaded
            self._stamp = stamp
        return self._found

    def _load(self) -> Gone | Binary | Text:
        return load(self.path)

    def _document(self, text: Text) -> Document:
        """Return the document of a text; of a large log or table with the facts that are known about all of it."""
        found = Document(self.label, self._name, text)
        if self._large is None or not _is_utf8(found) or found.language.name not in FACTS:
            return found
        known = read_regular(self.path, lambda descriptor, stat: self._known(found, descriptor, stat))
        return Document(self.label, self._name, text, known) if isinstance(known, Known) else found

    # -- what is found in a large one in the background

    def _passes(self) -> list[Pass]:
        return [one for one in (self.prepared.get("pass"), ACCEPTED.get(self.path)) if one is not None]

    def _open_large(self) -> LargeFile:
        known = next(iter(self._passes()), None)
        return LargeFile(self.path, known.index if known is not None else None)

    def _known(self, document: Document, descriptor: int, found: os.stat_result) -> Known:
        """Return what the survey found, with what was appended since; else what a sample shows."""
        surveys = [self._survey, *(one.survey for one in self._passes())]
        held = [one for one in surveys if one is not None and one.holds(descriptor, found)]
        if held:
            survey = max(held, key=lambda one: one.offset)
            if found.st_size - survey.offset <= CATCH_UP_BYTES:
                survey = survey.further(descriptor, found.st_ino, CATCH_UP_BYTES + 1)
                self._survey = survey
                return known_of(survey.with_last_line(descriptor), found.st_size)
        return sampled(document, descriptor, found.st_size)

    def preparation(self) -> Preparation | None:
        """Return the pass over what was not read yet; None where all was."""
        large, found = self._large, self._found
        if large is None or not isinstance(found, Document) or not _is_utf8(found):
            return None
        facts = FACTS.get(found.language.name)
        if found.text.size > INDEX_BYTES or (large.indexed >= found.text.size and (facts is None or found.surveyed)):
            return None
        inode = "".join(self._stamp.split(".")[2:3])
        path, known = self.path, Pass(large.index, next((one.survey for one in self._passes()), None))
        return Preparation(
            f"file {path} {inode}", lambda stopped, publish: run_pass(path, known, facts, stopped, publish)
        )

    def accept(self, result: Any) -> bool:
        """Take the result of a pass as far as it still holds. Returns whether no more of it is needed."""
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

    def worded(self) -> bool:
        """Whether it is prose or code."""
        return isinstance(self._found, Document) and self._found.worded

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


def _is_utf8(document: Document) -> bool:
    """Say whether a text can be read from the middle."""
    return document.text.encoding.startswith("utf-8")


def _gone(label: str, found: Gone, request: RenderRequest) -> Draft:
    before = request.basis if request.lod == 3 else None
    was = f"; was {format_size(before.size)} when rendered last" if isinstance(before, TextBasis) else ""
    hint = " (view it again to list it)" if found.reason == "directory" else ""
    text = f"{label} · {found.reason}{hint}{was}"
    basis = PlainBasis(found.fingerprint, found.reason)
    return Draft(text, fingerprint=found.fingerprint, basis=basis, notes=(found.reason,))


def _binary(label: str, found: Binary, request: RenderRequest, budget: int, path: str) -> Draft:
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
            picture, why = thumbnails.picture(path, found.image, room)
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
        made = self._made()
        if self._document is None or self._document.text.fingerprint != made.text.fingerprint:
            self._document = made
        return render_document(self._document, request, place, budget)

    def _made(self) -> Document:
        return Document(self.label, self.path_hint(), self.text())

    def parts(self) -> Sequence[str]:
        """Return the lines."""
        return self.text().lines

    def names(self) -> Names:
        """Return symbols and headings."""
        return self._made().names()

    def find(self, pos: str) -> Place | None:
        """Return where a symbol, a heading or a pattern is in the text."""
        return self._made().find(pos)

    def worded(self) -> bool:
        """Whether it is prose or code."""
        return self._document is not None and self._document.worded

    def path_hint(self) -> str:
        """Return a file name whose suffix says the language."""
        return ""


class FormatSource(FileSource, Generic[F]):
    """A file of a format. A subclass has `read()`, `show(…)` for levels 0 to 2, and `facts(…)` for the diff."""

    def __init__(self, path: str, label: str) -> None:
        super().__init__(path, label)
        self._read_at = ""
        self._read: F | Gone | str = Gone("missing")
        self._compared: Document | None = None

    @property
    def found(self) -> F | Gone | str:
        """What was read last."""
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
        basis = make_basis(document, whole_window(document.text, Place()))
        return replace(draft, fingerprint=document.text.fingerprint, basis=basis)
