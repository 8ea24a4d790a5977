"""The text of a cell in which a parameter gets another value.

Rule: only the text of the value changes; comments and all other lines stay.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from ctxkernel.state.tracking.cell_names import syntax_tree
from ctxkernel.state.tracking.read_names import names_read_first
from ctxkernel.sweeps.combinations import text_of


def sets(source: str, name: str) -> bool:
    """Return whether a cell assigns a value to a name in a statement of its own, outside of functions and blocks."""
    tree = syntax_tree(source)
    return tree is not None and any(_place(node, name) is not None for node in tree.body)


def rebinds(source: str, name: str) -> bool:
    """Return whether a cell binds a name in any case, or by a loop, before its text reads it."""
    first = names_read_first(source)
    tree = syntax_tree(source)
    if first is None or tree is None or name in first:
        return False
    loops = [node.target for node in tree.body if isinstance(node, ast.For | ast.AsyncFor)]
    if any(isinstance(one, ast.Name) and one.id == name for target in loops for one in ast.walk(target)):
        return True
    after = names_read_first(f"{source}\n{name}")
    return after is not None and name not in after


def with_values(source: str, values: Mapping[str, Any]) -> str:
    """Return the text with these values of the names that it sets; the last assignment of each counts."""
    for name, value in values.items():
        source = _with_value(source, name, text_of(value))
    return source


def assignments(values: Mapping[str, Any]) -> str:
    """Return a cell that sets these names."""
    return "\n".join(f"{name} = {text_of(value)}" for name, value in values.items())


def _with_value(source: str, name: str, text: str) -> str:
    tree = syntax_tree(source)
    assert tree is not None
    node = next(one for one in reversed(tree.body) if _place(one, name) is not None)
    place = _place(node, name)
    lines = [line + "\n" for line in source.split("\n")]  # as the compiler counts them
    if isinstance(place, ast.expr):
        start, end = (
            _offset(lines, place.lineno, place.col_offset),
            _offset(lines, place.end_lineno, place.end_col_offset),
        )
        return source[:start] + text + source[end:]
    # One of several targets: assign to the name again directly after the statement.
    end = _offset(lines, node.end_lineno, node.end_col_offset)
    return f"{source[:end]}; {name} = {text}{source[end:]}"


def _offset(lines: list[str], line: int | None, column: int | None) -> int:
    """Return the index in the text of a line and column of the syntax tree, whose columns count bytes."""
    assert line is not None
    assert column is not None
    before = sum(map(len, lines[: line - 1]))
    return before + len(lines[line - 1].encode()[:column].decode())


def _place(node: ast.stmt, name: str) -> ast.expr | ast.stmt | None:
    """Return the expression that a statement assigns to a name; None if it assigns none.

    If the name is one of several targets that share a value, return the statement.
    """
    if isinstance(node, ast.AnnAssign):
        return node.value if isinstance(node.target, ast.Name) and node.target.id == name else None
    if not isinstance(node, ast.Assign):
        return None
    bound = {
        one.id
        for target in node.targets
        for one in ast.walk(target)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    if name not in bound:
        return None
    only = len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    if only:
        return node.value
    target = node.targets[0]
    if len(node.targets) == 1 and isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = zip(target.elts, node.value.elts, strict=False)
        if len(target.elts) == len(node.value.elts) and not any(
            isinstance(one, ast.Starred) for one in (*target.elts, *node.value.elts)
        ):
            return next((value for one, value in pairs if isinstance(one, ast.Name) and one.id == name), node)
    return node
