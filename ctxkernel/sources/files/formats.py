"""The frame of a file whose format is read: where it cannot be, the file is shown as any other is.

Rule 1: what was read is kept for one stamp, never longer.
Rule 2: a file that is not what its name says loses nothing: one line says so, and the text or bytes follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from ctxkernel.core.ports import RenderRequest
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.file_reader import Gone, make_text
from ctxkernel.sources.base.line_windows import whole_window
from ctxkernel.sources.base.rendering import NO_CAP, BaseSource, Draft, Names, Place
from ctxkernel.sources.files.files import FileSource
from ctxkernel.sources.files.text_levels import Document, TextBasis, difference, make_basis

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
