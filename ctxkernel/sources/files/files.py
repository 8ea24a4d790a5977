"""A file as a source: whatever its path leads to, at four levels of detail.

Rule 1: a path that leads to no readable text renders as one line (or a few bytes of a binary), with a note.
Rule 2: what was read and found is kept for one stamp, never longer.

The frame of a file whose format is read: where it cannot be, the file is shown as any other is.

Rule 1: what was read is kept for one stamp, never longer.
Rule 2: a file that is not what its name says loses nothing: one line says so, and the text or bytes follow.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import xxhash

from ctxkernel.core.jobs import Preparation, Summary
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base import thumbnails
from ctxkernel.sources.base.file_reader import Binary, Gone, Text, file_stamp, load, make_text, open_regular, read_at
from ctxkernel.sources.base.large_files import ACCEPTED, INDEX_BYTES, LargeFile, Window, build, whole_window
from ctxkernel.sources.base.positions import find_pattern, keys_of, no_place, pattern_of, symbols_of
from ctxkernel.sources.base.rendering import NO_CAP, BaseSource, Draft, Names, Place, fit_lines, parse_place
from ctxkernel.sources.files.text_levels import Document, TextBasis, difference, excerpt, make_basis, structure, summary

_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class PlainBasis:
    """The basis of what has no lines: its fingerprint and one line about it."""

    fingerprint: str
    about: str


class FileSource(BaseSource):
    """A file by its path. The path was made absolute, so `os.chdir` does not move the view."""

    kind = "file"
    target: object
    """The object that the file is looked at for, a module say; only set where it is for one."""
    _in_windows = True
    """Whether more than is held at once is read at any place of the file."""

    def __init__(self, path: str, label: str) -> None:
        super().__init__(label)
        self.path = self.spec = os.path.abspath(path)
        self._name = self.path
        self._stamp = ""
        self._found: Gone | Binary | Document = Gone("missing")
        self._large: LargeFile | None = None

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
        return names_in(found) if isinstance(found, Document) else Names()

    def find(self, pos: str) -> Place | None:
        """Return where a symbol, a heading or a pattern is in the text."""
        found = self._find()
        return find_in(found, pos) if isinstance(found, Document) else None

    def parts(self) -> Sequence[str]:
        """Return the lines."""
        found = self._find()
        return found.text.lines if isinstance(found, Document) else ()

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place`; of a large file at most 4 MB on. Never raises."""
        found, at = self._find(), parse_place(place)
        if self._large is None or at is None or not isinstance(found, Document):
            return super().further(place, tokens, lod)
        return self._large.further(at, tokens) if found.text.encoding.startswith("utf-8") else None

    def _find(self) -> Gone | Binary | Document:
        stamp = self.stamp()
        if stamp != self._stamp or isinstance(self._found, Gone):
            loaded = self._load()
            self._found = Document(self.label, self._name, loaded) if isinstance(loaded, Text) else loaded
            large = isinstance(loaded, Text) and not loaded.whole and self._in_windows
            self._large = self._open_large() if large else None
            self._stamp = stamp
        return self._found

    def _load(self) -> Gone | Binary | Text:
        return load(self.path)

    # -- the index of a large one, made in the background

    def _open_large(self) -> LargeFile:
        return LargeFile(self.path, self.prepared.get("index") or ACCEPTED.get(self.path))

    def preparation(self) -> Preparation | None:
        """Return the indexing of what lies further on than is looked through at once; None where nothing does."""
        large, found = self._large, self._found
        if large is None or not isinstance(found, Document) or not large.indexed < found.text.size <= INDEX_BYTES:
            return None
        if not found.text.encoding.startswith("utf-8"):
            return None
        path, known, inode = self.path, large.index, "".join(self._stamp.split(".")[2:3])
        return Preparation(f"file {path} {inode}", lambda stopped, publish: build(path, known, stopped, publish))

    def accept(self, result: Any) -> bool:
        """Take an index as far as it still holds. Returns whether no more of it is needed."""
        if isinstance(result, Summary):
            return super().accept(result)
        known, self.prepared["index"] = self.prepared.get("index"), result
        large = self._open_large()
        if large.index is not result:
            self.prepared["index"] = known
            return False
        ACCEPTED[self.path] = result
        if self._large is not None:
            self._large = large
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
        if request.lod == 0:
            draft = excerpt(document, window, budget)
        elif request.lod == 1:
            draft = structure(document, place, budget)
        elif request.lod == 2:
            draft = summary(document, budget)
        else:
            draft = self._changes(document, request, place, budget)
        basis = make_basis(document, window, self._tail(document))
        notes = (*document.text.remarks, *draft.notes)
        return Draft(draft.text, draft.cut_tokens, draft.next_pos, document.text.fingerprint, basis, notes)

    def _window(self, document: Document, place: Place, budget: int) -> Window | Gone:
        if self._large is None or not document.text.encoding.startswith("utf-8"):
            return whole_window(document.text, place)
        return self._large.window(place, budget)

    def _changes(self, document: Document, request: RenderRequest, place: Place, budget: int) -> Draft:
        basis = request.basis
        if not isinstance(basis, TextBasis):
            before = f"was: {basis.about}" if isinstance(basis, PlainBasis) else "nothing rendered before"
            now = structure(document, place, max(1, budget - 12))
            return Draft(f"[{before}; as it is now:]\n{now.text}", now.cut_tokens, now.next_pos)
        if basis.text is not None and document.text.whole:
            return difference(document, basis, None, budget)
        if (grown := self._growth(document, basis, budget)) is not None:
            return grown
        again = self._window(document, Place(line=basis.window_line), 1 << 16)
        lines: Sequence[str] | None = None
        if isinstance(again, Window) and basis.window:
            lines = again.lines[: len(basis.window)]
        return difference(document, basis, lines, budget)

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

    def _tail(self, document: Document) -> tuple[int, str]:
        size = document.text.size
        return (size, self._tail_hash(size)) if self._large is not None else (0, "")

    def _tail_hash(self, size: int) -> str:
        opened = open_regular(self.path)
        if isinstance(opened, Gone):
            return ""
        try:
            return xxhash.xxh3_64_hexdigest(read_at(opened[0], max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES)))
        except OSError:
            return ""
        finally:
            os.close(opened[0])


def _gone(label: str, found: Gone, request: RenderRequest) -> Draft:
    before = request.basis if request.lod == 3 else None
    was = ""
    if isinstance(before, TextBasis):
        was = f"; was {format_size(before.size)} when rendered last"
    hint = " (view it again to list it)" if found.reason == "directory" else ""
    basis = PlainBasis(found.fingerprint, found.reason)
    text = f"{label} · {found.reason}{hint}{was}"
    return Draft(text, fingerprint=found.fingerprint, basis=basis, notes=(found.reason,))


def _binary(label: str, found: Binary, request: RenderRequest, budget: int, path: str) -> Draft:
    about = f"{found.image or found.what}, {format_size(found.size)}"
    basis = PlainBasis(found.fingerprint, about)
    if request.lod == 3 and request.basis is not None:
        same = getattr(request.basis, "fingerprint", "") == found.fingerprint
        was = f"; was {request.basis.about}" if isinstance(request.basis, PlainBasis) and not same else ""
        text = f"{label} · {'no change' if same else 'changed'} · {about}{was}"
        return Draft(text, fingerprint=found.fingerprint, basis=basis, notes=("binary",))
    if found.image is not None:  # its bytes say no more
        room = budget - count_tokens(f"{label} · {about} · shown as 512 × 512, ~350 tokens")
        shown, why = (
            thumbnails.picture(path, found.image, room) if request.lod == 0 and request.pictured else (None, "")
        )
        told = f" · shown as {shown.width:,} × {shown.height:,}, ~{shown.tokens:,} tokens" if shown is not None else ""
        notes = ("binary", why) if why else ("binary",)
        return Draft(f"{label} · {about}{told}", 0, None, found.fingerprint, basis, notes, shown)
    rows = [found.head[at : at + 16] for at in range(0, 64 if request.lod == 0 else 16, 16)]
    dump = [
        f"{16 * at:08x}  {row.hex(' '):<47}  {''.join(chr(c) if 32 <= c < 127 else '.' for c in row)}"
        for at, row in enumerate(rows)
        if row
    ]
    draft = fit_lines([f"{label} · binary: {about}"], dump, budget, "rows")
    return Draft(draft.text, draft.cut_tokens, None, found.fingerprint, basis, ("binary",))


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
        text = self.text()
        if self._document is None or self._document.text.fingerprint != text.fingerprint:
            self._document = Document(self.label, self.path_hint(), text)
        return render_document(self._document, request, place, budget)

    def parts(self) -> Sequence[str]:
        """Return the lines."""
        return self.text().lines

    def names(self) -> Names:
        """Return symbols and headings."""
        return names_in(Document(self.label, self.path_hint(), self.text()))

    def find(self, pos: str) -> Place | None:
        """Return where a symbol, a heading or a pattern is in the text."""
        return find_in(Document(self.label, self.path_hint(), self.text()), pos)

    def worded(self) -> bool:
        """Whether it is prose or code."""
        return self._document is not None and self._document.worded

    def path_hint(self) -> str:
        """Return a file name whose suffix says the language."""
        return ""


def names_in(document: Document) -> Names:
    """Return the symbols and headings of a text; of JSON the keys."""
    if document.language.name == "json":
        return Names("keys", [(name, Place(line, col)) for name, line, col in keys_of(document.text.lines)])
    outline = document.outline
    return Names(outline.what, [(name, Place(line)) for name, line in symbols_of(outline)])


def find_in(document: Document, pos: str) -> Place:
    """Return the line of a symbol, a heading, a key or "/pattern/" in a text. Raises BadPolicy with what is like it."""
    pattern = pattern_of(pos)
    if pattern is None:
        return names_in(document).find(document.label, pos)
    line = find_pattern(pattern, document.text.lines)
    if line is None:
        raise no_place(document.label, pos)
    return Place(line)


def render_document(document: Document, request: RenderRequest, place: Place, budget: int) -> Draft:
    """Render a text that is held whole, at any level."""
    window = whole_window(document.text, place)
    basis = request.basis
    if request.lod == 0:
        draft = excerpt(document, window, budget)
    elif request.lod == 1:
        draft = structure(document, place, budget)
    elif request.lod == 2:
        draft = summary(document, budget)
    elif isinstance(basis, TextBasis):
        draft = difference(document, basis, None if basis.text is not None else window.lines, budget)
    else:
        now = structure(document, place, max(1, budget - 12))
        draft = Draft(f"[nothing rendered before; as it is now:]\n{now.text}", now.cut_tokens, now.next_pos)
    notes = (*document.text.remarks, *draft.notes)
    return Draft(
        draft.text, draft.cut_tokens, draft.next_pos, document.text.fingerprint, make_basis(document, window), notes
    )


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
        found = self._now()
        return super().parts() if isinstance(found, (Gone, str)) else self.parts_of(found)

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place`. Never raises."""
        if isinstance(self._now(), (Gone, str)):
            return super().further(place, tokens, lod)
        return BaseSource.further(self, place, tokens, lod)

    def names(self) -> Names:
        """Return what positions are called; of what is shown as it is, symbols and headings."""
        found = self._now()
        return super().names() if isinstance(found, (Gone, str)) else self.names_of(found)

    def find(self, pos: str) -> Place | None:
        """Return the place of a name or "/pattern/"; in what is shown as it is, as in any file."""
        found = self._now()
        return super().find(pos) if isinstance(found, (Gone, str)) else self.place_of(found, pos)

    def _now(self) -> F | Gone | str:
        stamp = self.stamp()
        if stamp != self._read_at or isinstance(self._read, Gone):
            self._read, self._read_at, self._compared = self.read(), stamp, None
        return self._read

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render what the path leads to now."""
        found = self._now()
        if isinstance(found, Gone):
            return super().draft(request, place, budget)
        if isinstance(found, str):
            return self._as_it_is(found, request, place, budget)
        if self._compared is None:
            lines, size, fingerprint = self.facts(found)
            # The language of no suffix: only the lines are compared.
            text = make_text("\n".join(lines), size=size, fingerprint=fingerprint)
            self._compared = Document(self.label, "", text)
        document = self._compared
        basis = make_basis(document, whole_window(document.text, Place()))
        fingerprint = document.text.fingerprint
        if request.lod < 3:
            return replace(self.show(found, request.lod, place, budget), fingerprint=fingerprint, basis=basis)
        before = request.basis
        if isinstance(before, TextBasis):
            window = document.text.lines[: len(before.window)] if before.text is None else None
            draft = difference(document, before, window, budget)
            if before.text == document.text.text and before.fingerprint != fingerprint:
                draft = Draft(f"{self.label} · changed, but in nothing that is shown of it")
        else:
            now = self.show(found, 1, place, less(budget, 12))
            draft = replace(now, text=f"[nothing rendered before; as it is now:]\n{now.text}")
        return replace(draft, fingerprint=fingerprint, basis=basis)

    def _as_it_is(self, why: str, request: RenderRequest, place: Place, budget: int) -> Draft:
        line = f"[{why}]"
        plain = super().draft(request, place, less(budget, count_tokens(line) + 2))
        first, _, rest = plain.text.partition("\n")
        return replace(plain, text="\n".join([first, line, *([rest] if rest else [])]))


def less(budget: int, tokens: int) -> int:
    """Return what is left of a budget; of no cap, no cap."""
    return budget if budget >= NO_CAP else max(1, budget - tokens)
