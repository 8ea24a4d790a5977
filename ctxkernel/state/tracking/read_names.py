"""Global names whose earlier value a cell may use, and those that it binds in any case, read from its text.

Rule 1: a name is read unless a statement that runs in any case has bound it before. In doubt it is read.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Sequence

from ctxkernel.state.tracking.cell_names import syntax_tree

SOURCE_CHARS = 20_000
"""A longer cell is not analysed."""
RUNS_REST = re.compile(r"\s*%%(?:time|capture)\b.*")
"""Magics that run the rest of the cell as the cell itself: `%%timeit` binds names of a function."""


@functools.lru_cache(256)
def names_read_first(source: str) -> frozenset[str] | None:
    """Return the names that a cell reads before it binds them, with local names of its functions.

    None if the cell is no plain Python (a magic), or too long: then every name may be read.
    """
    tree = _tree(source)
    if tree is None:
        return None
    reads = _Reads()
    try:
        reads.block(tree.body, set())
    except RecursionError:  # thousands of nested parentheses
        return None
    return frozenset(reads.names)


def names_bound(source: str) -> frozenset[str]:
    """Return names that a cell has surely bound if it ended without an error; not all of them."""
    tree = _tree(source)
    found: set[str] = set()
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else ()
        names = {one.id for target in targets for one in _elements(target) if isinstance(one, ast.Name)}
        found = found - names if isinstance(node, ast.Delete) else found | names
    return frozenset(found)


_SUPPRESS = frozenset(("suppress", "raises", "assertRaises", "assertRaisesRegex"))
"""Calls whose `with` block may end early without an error; of other context managers the text does not tell."""


def _suppresses(node: ast.With | ast.AsyncWith) -> bool:
    calls = [item.context_expr.func for item in node.items if isinstance(item.context_expr, ast.Call)]
    return any((one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "")) in _SUPPRESS for one in calls)


def _tree(source: str) -> ast.Module | None:
    magic = RUNS_REST.match(source)
    return syntax_tree(source[magic.end() :] if magic else source) if len(source) <= SOURCE_CHARS else None


def _elements(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


class _Reads:
    """One pass over the statements of a cell; `bound` are the names that are bound in any case."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def block(self, body: Iterable[ast.stmt], bound: set[str]) -> None:
        for statement in body:
            self._statement(statement, bound)

    def _statement(self, node: ast.stmt, bound: set[str]) -> None:
        match node:
            case ast.For() | ast.AsyncFor():
                self._read([node.iter], bound)
                inner = {*bound}
                self._bind([node.target], inner)
                self._branches([node.body], inner)
                self._branches([node.orelse], bound)
            case ast.While() | ast.If():
                self._read([node.test], bound)
                both = self._branches([node.body, node.orelse], bound)
                bound |= both if isinstance(node, ast.If) else set()
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self._read([item.context_expr], bound)
                    self._bind([item.optional_vars] if item.optional_vars else [], bound)
                self.block(node.body, {*bound} if _suppresses(node) else bound)
            case ast.Try() | ast.TryStar():
                bodies = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
                self._read([handler.type for handler in node.handlers if handler.type], bound)
                every = self._branches(bodies, bound)
                self.block(node.finalbody, bound)
                bound |= every
            case ast.Match():
                self._read([node], bound)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._read([node], bound)
                bound.add(node.name)
            case ast.Import() | ast.ImportFrom():
                bound.update((one.asname or one.name).partition(".")[0] for one in node.names)
            case ast.Assign():
                self._read([node.value], bound)
                self._bind(node.targets, bound)
            case ast.AnnAssign():
                self._read([node.annotation, *([node.value] if node.value else [])], bound)
                self._bind([node.target] if node.value else [], bound)
            case ast.AugAssign():
                self._read([node.value], bound)
                self._names([one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)], bound)
            case ast.Delete():
                gone = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
                self._names(gone, bound)
                bound.difference_update(gone)
            case _:
                self._read([node], bound)

    def _branches(self, bodies: Sequence[Sequence[ast.stmt]], bound: set[str]) -> set[str]:
        """Read bodies of which one, or none, runs; return the names that all of them bind."""
        ends: list[set[str]] = []
        for body in bodies:
            own = {*bound}
            self.block(body, own)
            ends.append(own)
        return set[str].intersection(*ends)

    def _read(self, nodes: Iterable[ast.AST], bound: set[str]) -> None:
        for node in nodes:
            self._names([one.id for one in ast.walk(node) if isinstance(one, ast.Name)], bound)

    def _names(self, names: Iterable[str], bound: set[str]) -> None:
        self.names.update(name for name in names if name not in bound)

    def _bind(self, targets: Iterable[ast.expr], bound: set[str]) -> None:
        for target in targets:
            for one in ast.walk(target):
                if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Store):
                    self._names([one.id], bound)
            bound.update(
                one.id for one in ast.walk(target) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            )
