"""Which attributes a cell sets or deletes, and which functions it calls for their effect, read from its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.state.tracking.cell_names import Transform, plain_source, syntax_tree

_SETS = re.compile(
    r"\.\s*\w+[ \t]*(?::[^=\n]*)?(?:[-+*/%&|^@]|//|\*\*|>>|<<)?=(?!=)|\bdel\b[^\n]*\.|\b(?:set|del)attr\b"
    r"|\bregister_\w+_(?:accessor|namespace)\b"
)
"""Text that may set or delete an attribute: most cells are not parsed."""
_SETTERS = (
    r"(?:set|register|install|enable|disable)(?:_|(?=[A-Z]))\w+|register|install|enable|disable"
    r"|umask|field_size_limit|setdefaulttimeout|setprofile|settrace|seterr\w*"
)
_VERBS = (
    rf"{_SETTERS}|(?:add|define|def|reset|patch|output)(?:_|(?=[A-Z]))\w+"
    r"|set|configure|autolog|init|initiali[sz]e|extension|apply|use|start|stop|pickle|pandas"
)
_CHANGES = r"append|insert|extend|update|clear|pop|remove|setdefault"
"""Functions that are called for their effect, and methods of objects in modules: `nltk.data.path.append`."""
_SETTER, _VERB, _CHANGE = map(re.compile, (_SETTERS, _VERBS, _CHANGES))
_CALLS = re.compile(
    rf"(?:^|[;:])[ \t]*(?:(?:[\w.]+\.)?(?:{_VERBS})\(|\w+\.[\w.]+\.(?:{_CHANGES})\("
    rf"|\w+(?:\.(?!i?loc\b|i?at\b)\w+)+\[[^\]\n]*\][ \t]*=(?!=))|=[ \t]*(?:[\w.]+\.)?(?:{_SETTERS})\(",
    re.MULTILINE,
)
"""Text that may be a statement of such a call, or that sets an item of an attribute."""


_ACCESSORS = {
    **{f"register_{name.lower()}_accessor": ("pandas", name) for name in ("DataFrame", "Series", "Index")},
    **{f"register_{name.lower()}_accessor": ("xarray", name) for name in ("Dataset", "DataArray")},
    **{f"register_{name.lower()}_namespace": ("polars", name) for name in ("DataFrame", "LazyFrame", "Series", "Expr")},
}
"""Functions that set an attribute of a class, whose name is their argument."""


@dataclass(frozen=True, slots=True)
class Call:
    """A statement that calls a function for its effect, or sets something."""

    path: tuple[str, ...]
    """The function, or what is set: `("csv", "register_dialect")`."""
    kind: Literal["call", "attribute", "item"]
    statement: ast.stmt
    arguments: frozenset[str] = frozenset()
    """The names that are arguments of the call."""


@dataclass(frozen=True, slots=True)
class SetAttributes:
    """The attributes that a cell sets or deletes."""

    paths: frozenset[tuple[str, ...]] = frozenset()
    """`pd.DataFrame.total = f` gives `("pd", "DataFrame", "total")`."""
    imports: dict[str, str] = field(default_factory=dict[str, str])
    """Names that the cell imports → the full names of what they stand for."""
    calls: tuple[Call, ...] = ()


def set_attributes(source: str, transform: Transform | None = None) -> SetAttributes:
    """Return the attributes that `source` sets or deletes, also within its functions. Never raises."""
    sets, called = _SETS.search(source), _CALLS.search(source)
    if not sets and not called:
        return SetAttributes()
    tree = syntax_tree(source) or syntax_tree(plain_source(source, transform))
    nodes = list(ast.walk(tree)) if tree is not None else []
    paths = {path for node in nodes for path in _paths(node) if len(path) > 1}
    libraries = {library: library for library, _ in _ACCESSORS.values()}
    calls = tuple(call for node in nodes for call in _calls(node))
    return SetAttributes(frozenset(paths), libraries | dict(_imports(nodes)) if paths else {}, calls)


def _calls(node: ast.AST) -> Iterator[Call]:
    match node:
        case (
            ast.Expr(ast.Call(function, arguments, keywords))
            | ast.Assign(value=ast.Call(function, arguments, keywords), targets=[ast.Name()])
        ):
            path, verb = _path(function), _VERB if isinstance(node, ast.Expr) else _SETTER
            given = (*arguments, *(one.value for one in keywords))
            names = frozenset(one.id for one in given if isinstance(one, ast.Name))
            if path and (verb.fullmatch(path[-1]) or (len(path) > 2 and _CHANGE.fullmatch(path[-1]))):
                yield Call(path, "call", node, names)
        case ast.Assign(targets):
            for one in targets:
                path = _path(one.value if isinstance(one, ast.Subscript) else one)
                if len(path) > 1:
                    yield Call(path, "item" if isinstance(one, ast.Subscript) else "attribute", node)
        case _:
            pass


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
