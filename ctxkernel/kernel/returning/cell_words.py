"""The words in a cell that may lead outside of the namespace, and the paths that it passes to calls. Runs nothing.

Rule: a name of a function, a method or a module is such a word where the cell uses it. A text, a comment, a parameter
        or an import alone is none, nor is the body of a function that the cell defines and cannot call.
"""

from __future__ import annotations

import ast
import copy
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import cast

from ctxkernel.core.reflection import SHORT, is_any
from ctxkernel.state.base.code_objects import SETTERS
from ctxkernel.state.tracking.cell_names import WORD, Transform, names_used, plain_source, syntax_tree

_NAMED_BY_TEXT = frozenset(
    ("getattr", "attrgetter", "methodcaller", "import_module", "__import__", "run_line_magic", "run_cell_magic")
)
"""Functions that are given the name of an attribute or a module, or code, as a text."""
_ONLY_NAMES = frozenset(("Path", "PurePath", "join", "print", "dict", "str", "repr", "format", "display"))
"""Functions that read no file that they are given the path of."""
_MOVES = frozenset(("remove", "rename", "replace", "link"))
_TABLES = tuple((module, name) for module in ("pandas", "polars") for name in ("DataFrame", "Series"))
_SEEDED = re.compile(
    r"(?:^|;[ \t]*)(?:np\.random|numpy\.random|random|torch)\.(?:seed|manual_seed)\(\s*\d+\s*\)[ \t]*(?:;|$)",
    re.MULTILINE,
)
_PATHS = re.compile(r"\b(?:pathlib|Path)\b")


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
    if ("def" not in source and "class" not in source) or (tree := syntax_tree(source)) is None:
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


def words_used(
    source: str, transform: Transform | None = None, data: Collection[str] = ()
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the global names that a cell uses, and the attributes; of what cannot be parsed, every word is both.

    An import gives the parts of its module and name, if the cell uses what it binds. `data`: the names of texts,
    numbers and tables, whose attributes lead nowhere.
    """
    tree = syntax_tree(source) or syntax_tree(plain_source(source, transform))
    if tree is None:
        words = frozenset(WORD.findall(source))
        return words, words
    loaded = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    names, attributes = set(names_used(source, transform)), set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value, attr):
                attributes.update([] if _begins_with_data(value, data, _ATTRIBUTES) else [attr])
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


_ATTRIBUTES = (ast.Attribute,)
_CHAIN = (ast.Attribute, ast.Subscript, ast.Call)


def _begins_with_data(node: ast.expr, data: Collection[str], links: tuple[type[ast.expr], ...]) -> bool:
    """Return whether an expression begins with a text or with one of these names, and then has such links only."""
    while isinstance(node, links):
        node = node.func if isinstance(node, ast.Call) else cast("ast.Attribute", node).value
    return isinstance(node, ast.Constant | ast.JoinedStr) or (isinstance(node, ast.Name) and node.id in data)


def moves_files(source: str, modules: Collection[str], paths: Collection[str], data: Collection[str]) -> bool:
    """Return whether a cell may move or delete files by methods that have the names of those of texts and tables.

    `modules`, `paths` and `data`: the names that stand for `os`, for a path, and for texts, numbers and tables.
    """
    if (tree := syntax_tree(plain_source(source))) is None:
        return False
    names_paths = _PATHS.search(source) is not None
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name(name), word)) if word in _MOVES and (name in modules or name == "os"):
                return True
            case ast.ImportFrom("os", names) if any(one.name in _MOVES for one in names):
                return True
            case ast.Call(ast.Attribute(value, "rename" | "replace"), [_], []) if not _begins_with_data(
                value, data, _CHAIN
            ):
                if names_paths or any(isinstance(one, ast.Name) and one.id in paths for one in ast.walk(value)):
                    return True
            case _:
                pass
    return False


def owners_set(source: str) -> set[str] | None:
    """Return the names whose attributes a cell sets by `setattr` and `delattr`; None if it may set those of others."""
    nodes = [] if (tree := syntax_tree(plain_source(source))) is None else [*ast.walk(tree)]
    calls = [node.args[0] for node in nodes if isinstance(node, ast.Call) and _is_setter(node.func) and node.args]
    owners = {one.id for one in calls if isinstance(one, ast.Name)}
    is_complete = all(isinstance(one, ast.Name) for one in calls) and len(calls) == sum(map(_is_setter, nodes))
    return owners if calls and is_complete else None


def _is_setter(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in SETTERS


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


def is_data(cls: type) -> bool:
    """Return whether values of a class are texts, numbers or tables, whose attributes lead to nothing outside."""
    return cls in SHORT or is_any(cls, *_TABLES)


def seeded(source: str) -> str:
    """Return the generator that a cell seeds in any case, before it calls anything else; empty for none."""
    found = _SEEDED.search(source)
    if found is None or "(" in source[: found.start()]:
        return ""
    return f"{'numpy ' if 'np' in found[0] or 'numpy' in found[0] else 'torch ' if 'torch' in found[0] else ''}random"
