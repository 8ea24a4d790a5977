"""A package that was imported: 0 its `__init__.py`, 1 a map of its code, 2 what its parts are for, 3 what changed.

Rule: its files are read, never imported; what the package is, is what its files say now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import plural
from ctxkernel.sources.base.positions import no_place, pattern_of
from ctxkernel.sources.base.rendering import Draft, Place, as_now, fit_lines, parse_place
from ctxkernel.sources.files.code_maps import CodeMap, MappedSource
from ctxkernel.sources.files.code_trees import CodeTree
from ctxkernel.sources.files.files import FileSource


@dataclass(frozen=True, slots=True)
class TreeBasis:
    """The basis of a later diff: the tree as it was."""

    fingerprint: str
    tree: CodeTree


class PackageSource(MappedSource, FileSource):
    """A package by its `__init__.py`. A position is a line of that file, or `@k`, a symbol of the map."""

    kind = "module"

    def __init__(self, path: str, label: str, package: str) -> None:
        """`package` is its dotted name."""
        super().__init__(path, label)
        self.package = package

    @property
    def code(self) -> CodeMap:
        """The map of the package."""
        if self.map is None:
            self.map = CodeMap(os.path.dirname(self.path), self.package)
        return self.map

    def stamp(self) -> str:
        """Return a hash of the stats of its files. Never raises."""
        return f"{super().stamp()} {self.code.stamp()}"

    def covers(self, stamp: str) -> bool:
        """Return whether the stamp is of all files."""
        return self.code.watches_all

    def find(self, pos: str) -> Place | None:
        """Return where a symbol of the package is; else a symbol or a pattern in the text of its `__init__.py`."""
        found = self.code.find(pos)
        if found is not None:
            return found
        try:
            return super().find(pos)
        except BadPolicy:
            names = [one.name for one in self.code.known.symbols]
            if pattern_of(pos) is not None or not names:
                raise
            raise no_place(self.label, pos, names) from None

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place`: of the text at level 0, else of the map."""
        at = parse_place(place)
        if at is None or (not lod and at.offset is None):
            return super().further(place, tokens, lod)
        self.code.tree()
        return self.code.further(at, tokens)

    def worded(self) -> bool:
        """Return False: a map is no text for a model to summarise."""
        return False

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the package as it is now."""
        if request.lod == 0 and place.offset is None:
            known = self.code.known
            return replace(super().draft(request, place, budget), basis=TreeBasis(known.fingerprint(), known))
        tree = self.code.tree()
        basis = TreeBasis(tree.fingerprint(), tree)
        if not tree.symbols and tree.whole:
            draft = super().draft(request, place, budget)
        elif request.lod == 0:
            draft = self.code.source(place, budget)
        elif request.lod == 2:
            lines = [part.line(self.package) for part in self.code.parts()]
            draft = fit_lines(self._head(tree), lines, budget, "points")
        elif request.lod == 3 and isinstance(request.basis, TreeBasis):
            draft = self._changes(request.basis, basis, budget)
        else:
            draft = self.code.structure(self._head(tree), place, budget)
            draft = as_now(draft) if request.lod == 3 else draft
        return replace(draft, fingerprint=basis.fingerprint, basis=basis, notes=tuple(tree.remarks()))

    def _head(self, tree: CodeTree) -> list[str]:
        about = tree.codes.get("__init__.py")
        head = self.code.headed(f"{self.label} · {plural(len(tree.listing.sizes), 'files')}")
        return [head, *([f'"""{about.about}"""'] if about is not None and about.about else [])]

    def _changes(self, before: TreeBasis, now: TreeBasis, budget: int) -> Draft:
        if before.fingerprint == now.fingerprint:
            return Draft(f"{self.label} · no change")
        return fit_lines([f"{self.label} · changed"], list(_changed(before.tree, now.tree)), budget, "changes")


def _changed(before: CodeTree, now: CodeTree) -> Iterator[str]:
    """Yield the files that came, went and changed, and of these the symbols that did."""
    old, new = before.codes, now.codes
    for path in sorted(old.keys() | new.keys()):
        if path not in new:
            yield f"- {path}"
        elif path not in old:
            if before.whole:
                yield f"+ {path} · {plural(len(new[path].symbols), 'symbols')}"
        elif old[path].fingerprint != new[path].fingerprint:
            was = {one.name + one.signature for symbol in old[path].symbols for one in (symbol, *symbol.members)}
            are = {one.name + one.signature for symbol in new[path].symbols for one in (symbol, *symbol.members)}
            told = [f"+{name}" for name in sorted(are - was)] + [f"-{name}" for name in sorted(was - are)]
            lines = (
                f"{old[path].lines:,} → {new[path].lines:,} lines" if old[path].lines != new[path].lines else "edited"
            )
            yield f"~ {path} · {'; '.join([lines, *told])}"
