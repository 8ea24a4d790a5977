"""Which attributes a cell sets or deletes, read from its text before it runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ctxkernel.state.tracking.cell_names import Transform, plain_source, syntax_tree

_SETS = re.compile(
    r"\.\s*\w+[ \t]*(?::[^=\n]*)?(?:[-+*/%&|^@]|//|\*\*|>>|<<)?=(?!=)|\bdel\b[^\n]*\.|\b(?:set|del)attr\b"
    r"|\bregister_\w+_(?:accessor|namespace)\b"
)
"""Text that may set or delete an attribute: most cells are not parsed."""


_ACCESSORS = {
    **{f"register_{name.lower()}_accessor": ("pandas", name) for name in ("DataFrame", "Series", "Index")},
    **{f"register_{name.lower()}_accessor": ("xarray", name) for name in ("Dataset", "DataArray")},
    **{f"register_{name.lower()}_namespace": ("polars", name) for name in ("DataFrame", "LazyFrame", "Series", "Expr")},
}
"""Functions that set an attribute of a class, whose name is their argument."""


@dataclass(frozen=True, slots=True)
class SetAttributes:
    """The attributes that a cell sets or deletes."""

    paths: frozenset[tuple[str, ...]] = frozenset()
    """`pd.DataFrame.total = f` gives `("pd", "DataFrame", "total")`."""
    imports: dict[str, str] = field(default_factory=dict[str, str])
    """Names that the cell imports → the full names of what they stand for."""


def set_attributes(source: str, transform: Transform | None = None) -> SetAttributes:
    """Return the attributes that `source` sets or deletes, also within its functions. Never raises."""
    if not _SETS.search(source):
        return SetAttributes()
    tree = syntax_tree(source) or syntax_tree(plain_source(source, transform))
    nodes = list(ast.walk(tree)) if tree is not None else []
    paths = {path for node in nodes for path in _paths(node) if len(path) > 1}
    libraries = {library: library for library, _ in _ACCESSORS.values()}
    return SetAttributes(frozenset(paths), libraries | dict(_imports(nodes)) if paths else {})


def _paths(node: ast.AST) -> Iterator[tuple[str, ...]]:
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            yield _path(node)
        case ast.Call(ast.Name("setattr" | "delattr"), [owner, ast.Constant(str(name)), *_]):
            path = _path(owner)
            yield (*path, name) if path else ()
        case ast.Call(ast.Name(function) | ast.Attribute(attr=function), [ast.Constant(str(name)), *_]):
            yield (*_ACCESSORS[function], name) if function in _ACCESSORS else ()
        case _:
            pass


def _path(node: ast.expr) -> tuple[str, ...]:
    match node:
        case ast.Name(name):
            return (name,)
        case ast.Attribute(value, name):
            path = _path(value)
            return (*path, name) if path else ()
        case _:
            return ()


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        match node:
            case ast.Import(names):
                for one in names:
                    top = one.name.partition(".")[0]
                    yield one.asname or top, one.name if one.asname else top
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((one.asname or one.name, f"{module}.{one.name}") for one in names)
            case _:
                pass
