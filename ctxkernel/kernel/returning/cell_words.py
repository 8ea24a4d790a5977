"""The words in a cell that may lead outside of the namespace, and the paths that it passes to calls. Runs nothing.

Rule: a name of a function, a method or a module is such a word where the cell uses it. A text, a comment, a parameter
        or an import alone is none, nor is the body of a function that the cell defines and cannot call.
"""

from __future__ import annotations

import ast
import copy
import os
from collections.abc import Callable, Iterator, Mapping

from ctxkernel.state.base.code_objects import SETTERS
from ctxkernel.state.tracking.cell_names import WORD, Transform, names_used, plain_source, syntax_tree

_NAMED_BY_TEXT = frozenset(
    ("getattr", "attrgetter", "methodcaller", "import_module", "__import__", "run_line_magic", "run_cell_magic")
)
"""Functions that are given the name of an attribute or a module, or code, as a text."""
_ONLY_NAMES = frozenset(("Path", "PurePath", "join", "print", "dict", "str", "repr", "format", "display"))
"""Functions that read no file that they are given the path of."""


_DECORATES = frozenset(
    ("abc", "builtins", "contextlib", "dataclasses", "enum", "functools", "types", "typing", "typing_extensions")
)
"""Modules whose decorators do not call the function that they are given."""
_DECORATING = frozenset(("setter", "getter", "deleter", "register"))
"""Attributes of properties and of generic functions that are such decorators."""
_CALLED_BY_CLASSES = frozenset(("__init_subclass__", "__set_name__", "__class_getitem__"))
"""Methods that run when a class is defined."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def without_bodies(source: str, module_of: Callable[[str], str]) -> str | None:
    """Return the text of a cell without the bodies of its functions; None if the cell may call one of them.

    So it is for every cell that does more than import, define, and give names to values that libraries make.
    `module_of` returns the module of the function, the class or the value that a name stands for; "" for the user's.
    """
    if (tree := syntax_tree(source)) is None:
        return None
    defined = {one.name for one in ast.walk(tree) if isinstance(one, _Function | ast.ClassDef)}
    if not defined or not defined.isdisjoint(_CALLED_BY_CLASSES):
        return None
    if not all(_calls_none(one, defined, module_of) for one in tree.body):
        return None
    tree = copy.deepcopy(tree)
    for one in ast.walk(tree):
        if isinstance(one, _Function):
            one.body = [ast.Pass()]
    return ast.unparse(tree)


def _calls_none(statement: ast.stmt, defined: set[str], module_of: Callable[[str], str]) -> bool:
    """Return whether a statement calls neither the functions that its cell defines nor other ones of the user."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return True
        case ast.FunctionDef(decorator_list=decorators) | ast.AsyncFunctionDef(decorator_list=decorators):
            values = [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        case ast.ClassDef(decorator_list=decorators, body=body, keywords=keywords, bases=bases):
            if keywords or any(isinstance(one, ast.Name) and one.id == "type" for one in bases):
                return False
            if not all(_calls_none(one, defined, module_of) for one in body):
                return False
            values = list[ast.expr]()
        case ast.Assign(targets, value) if all(isinstance(one, ast.Name) for one in targets):
            decorators, values = list[ast.expr](), [value]
        case ast.AnnAssign(ast.Name(), _, value):
            decorators, values = list[ast.expr](), [value] if value is not None else []
        case ast.Expr(value=ast.Constant()):
            return True
        case _:
            return False
    return all(_decorates(one, module_of) for one in decorators) and all(
        _uses_none(one, defined, module_of) for one in values
    )


def _decorates(node: ast.expr, module_of: Callable[[str], str]) -> bool:
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute) and function.attr in _DECORATING:
        return True
    return (name := _first_name(function)) is not None and module_of(name).partition(".")[0] in _DECORATES


def _uses_none(value: ast.expr, defined: set[str], module_of: Callable[[str], str]) -> bool:
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id in defined:
            return False
        if isinstance(node, ast.Await | ast.comprehension):
            return False
        if isinstance(node, ast.Call) and not ((name := _first_name(node.func)) and module_of(name)):
            return False
    return True


def _first_name(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def words_used(source: str, transform: Transform | None = None) -> tuple[frozenset[str], frozenset[str]]:
    """Return the global names that a cell uses, and the attributes; of what cannot be parsed, every word is both.

    An import gives the parts of its module and name, if the cell uses what it binds.
    """
    tree = syntax_tree(source) or syntax_tree(plain_source(source, transform))
    if tree is None:
        words = frozenset(WORD.findall(source))
        return words, words
    loaded = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    names, attributes = set(names_used(source, transform)), set[str]()
    if _sets_only_self(tree):
        names.difference_update(SETTERS)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=attr):
                attributes.add(attr)
            case ast.Import() | ast.ImportFrom():
                module = (getattr(node, "module", None) or "").split(".")
                for one in node.names:
                    if (one.asname or one.name.partition(".")[0]) in loaded:
                        attributes.update(module, one.name.split("."))
            case ast.Call(ast.Name(function) | ast.Attribute(attr=function)) if function in _NAMED_BY_TEXT:
                texts = [
                    inner.value for part in node.args for inner in ast.walk(part) if isinstance(inner, ast.Constant)
                ]
                attributes.update(word for text in texts if isinstance(text, str) for word in WORD.findall(text))
            case _:
                pass
    return frozenset(names), frozenset(attributes)


def _sets_only_self(tree: ast.Module) -> bool:
    nodes = list(ast.walk(tree))
    setters = [one for one in nodes if isinstance(one, ast.Name) and one.id in SETTERS]
    of_self = [
        call
        for call in nodes
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in SETTERS
        if call.args and isinstance(call.args[0], ast.Name) and call.args[0].id == "self"
    ]
    return len(setters) == len(of_self)


def passed_to_calls(source: str, named: Mapping[str, str]) -> set[str] | None:
    """Return the texts, and the paths of names, in the arguments of calls; None for code that cannot be parsed.

    `named`: the variables that hold a path. A folder that is a part of a longer path is not passed.
    """
    if (tree := syntax_tree(source)) is None:
        return None
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name(function) | ast.Attribute(attr=function)) if function in _ONLY_NAMES:
                pass
            case ast.Call(args=args, keywords=keywords):
                found.update(text for part in (*args, *keywords) for text in _paths_in(part, named))
            case _:
                pass
    return found


def _paths_in(node: ast.AST, named: Mapping[str, str]) -> Iterator[str]:
    if (path := _path(node, named)) is not None:
        yield path
    elif not isinstance(node, ast.JoinedStr) and _joined(node) is None:
        for child in ast.iter_child_nodes(node):
            yield from _paths_in(child, named)


def _path(node: ast.AST, named: Mapping[str, str]) -> str | None:
    """Return the path that an expression stands for; None for any other one."""
    match node:
        case ast.Name(name):
            return named.get(name)
        case ast.Constant(str(text)):
            return text
        case _:
            parts = [_path(one, named) for one in _joined(node) or ()]
            known = [one for one in parts if one is not None]
            return os.path.join(*known) if known and len(known) == len(parts) else None


def _joined(node: ast.AST) -> list[ast.expr] | None:
    """Return the parts of a path that an expression joins; None if it joins none."""
    match node:
        case ast.BinOp(left, ast.Div(), right):
            return [left, right]
        case ast.Call(ast.Attribute(attr="join" | "joinpath"), args):
            return args
        case _:
            return None
