"""The frame of the sources for files of a format.

Rule: a file that is not of the format that its name says loses nothing: one line says so, and the text or bytes follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from ctxkernel.core.ports import RenderRequest
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.file_reader import Gone
from ctxkernel.sources.base.rendering import BaseSource, Draft, Names, Place, as_now, less, with_remark
from ctxkernel.sources.files.files import FileSource
from ctxkernel.sources.files.text_documents import Document, lines_document
from ctxkernel.sources.files.text_levels import TextBasis, difference, with_basis

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
