"""The frame of an object that is known by lines about it: 0 its value, 1 its structure, 2 a summary, 3 a diff of these.

Rule 1: a subclass has three lists of lines, each bounded and deterministic, and computes nothing for them.
Rule 2: the diff is of value and structure together, so that it shows what level 0 and level 1 would show anew.
"""

from __future__ import annotations

from typing import Any

from ctxkernel.core.ports import RenderRequest
from ctxkernel.sources.files import render_document
from ctxkernel.sources.reading import content_hash, make_text
from ctxkernel.sources.rendering import BaseSource, Draft, Place, fit_lines, titled
from ctxkernel.sources.textual import Document, make_basis
from ctxkernel.sources.windows import whole_window

MOST_LINES = 2_000


class FactsSource(BaseSource):
    """A view of an object by its facts. A subclass has `value`, `structure` and `summary`."""

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(label)
        self.target = target

    def headline(self) -> str:
        """Return the first line of every level."""
        return titled(self.label, self.target)

    def value(self) -> list[str]:
        """Return the lines of level 0."""
        raise NotImplementedError(f"{type(self).__name__}.value")

    def structure(self) -> list[str]:
        """Return the lines of level 1."""
        raise NotImplementedError(f"{type(self).__name__}.structure")

    def summary(self) -> list[str]:
        """Return the lines of level 2."""
        raise NotImplementedError(f"{type(self).__name__}.summary")

    def stamp(self) -> str:
        """Return a hash of the value's lines. Never raises."""
        try:
            lines = [self.headline(), *self.value()]
        except Exception as fault:  # an object that another thread changes meanwhile
            return f"unreadable {type(fault).__name__}"
        return f"{id(self.target):x} {content_hash(chr(10).join(lines).encode('utf-8', 'replace'))}"

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the object as it is now."""
        head, value, structure = self.headline(), self.value()[:MOST_LINES], self.structure()[:MOST_LINES]
        whole = "\n".join([*structure, "--- value ---", *value])
        compared = make_text(whole, size=-1, fingerprint=content_hash(f"{head}\n{whole}".encode("utf-8", "replace")))
        document = Document(head, "", compared)
        if request.lod == 3:
            return render_document(document, request, place, budget)
        basis = make_basis(document, whole_window(compared, Place()))
        if request.lod == 0:
            text = make_text("\n".join(value), size=-1, fingerprint=compared.fingerprint)
            draft = render_document(Document(head, "", text), request, place, budget)
        else:
            draft = fit_lines([head], structure if request.lod == 1 else self.summary(), budget, "lines")
        return Draft(draft.text, draft.cut_tokens, draft.next_pos, compared.fingerprint, basis, draft.notes)
