"""What a namespace says about a statement that ran again: the functions that it may call, what its names stand for."""

from __future__ import annotations

import inspect
import textwrap
import types
from collections.abc import Mapping
from typing import Any

from ctxkernel.core.reflection import class_dict, class_module, class_name, class_qualname, is_kind, is_own_class
from ctxkernel.replay.causes import names_used
from ctxkernel.replay.divergence import Details

_MOST_FUNCTIONS = 50


def details(namespace: Mapping[str, Any], source: str, old_source: str, upstream: Mapping[str, str]) -> Details:
    """Return what is known about a statement beyond its executions. Runs none of the user's code."""
    functions: dict[str, str] = {}
    meaning: dict[str, str] = {}
    kinds: dict[str, str] = {}
    module = str(namespace.get("__name__", "__main__"))
    todo, seen = list(names_used(source)), set[str]()
    while todo and len(functions) < _MOST_FUNCTIONS:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        value = namespace.get(name)
        own = type(value) is types.FunctionType and value.__globals__ is namespace
        if own or (is_kind(type(value), type) and is_own_class(value, module)):  # type: ignore[arg-type]
            text = _source(value)
            if not text:
                continue
            functions[name] = text
            todo += names_used(text)
        elif type(value) is types.ModuleType:
            meaning[name] = str(value.__dict__.get("__name__", name))
        elif type(value) in (types.FunctionType, types.BuiltinFunctionType):
            meaning[name] = _dotted(value)  # type: ignore[arg-type]
        elif is_kind(type(value), type):
            meaning[name] = f"{class_module(value)}.{class_qualname(value)}"  # type: ignore[arg-type]
        elif type(value) in (set, frozenset):
            kinds[name] = type(value).__name__
    old = old_source if old_source != source else None
    return Details(source=source, old_source=old, functions=functions, meaning=meaning, upstream=upstream, types=kinds)


def _dotted(value: types.FunctionType | types.BuiltinFunctionType) -> str:
    """Return where a function is from; a bound one of C, `f = random.random`, has the place of its object's class."""
    owner = None if type(value) is types.FunctionType else value.__self__  # type: ignore[union-attr]
    if owner is None or type(owner) is types.ModuleType:
        return f"{value.__module__ or 'builtins'}.{value.__name__}"
    return f"{class_module(type(owner))}.{value.__name__}"


def _source(value: Any) -> str:
    """Return the source of a function or class of a cell; empty where it is not known."""
    if type(value) is types.FunctionType:
        try:
            return inspect.getsource(value)
        except (OSError, TypeError, ValueError, IndexError):
            return ""
    # The lines of a class of a cell are not known, those of its methods are.
    methods = [_source(one) for one in class_dict(value).values() if type(one) is types.FunctionType]
    body = "".join(textwrap.indent(textwrap.dedent(method), "    ") for method in methods)
    return f"class {class_name(value)}:\n{body}" if body else ""
