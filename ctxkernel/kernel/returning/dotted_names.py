"""The dotted names of modules, functions and classes, whatever variables they have: `from time import time as t`."""

from __future__ import annotations

import types
from typing import Any, cast

from ctxkernel.core.reflection import Classes, class_module, class_name, class_of, class_qualname, is_kind

_FUNCTIONS = Classes(types.FunctionType, types.BuiltinFunctionType)
_OF_CYTHON = "cython_function_or_method"


def dotted_name(value: Any) -> str:
    """Return the dotted name of a module, function or class; empty for anything else."""
    if type(value) is types.ModuleType:
        return str(value.__dict__.get("__name__", ""))
    if type(value) in _FUNCTIONS:
        return _of_function(value)
    if class_name(class_of(value)) == _OF_CYTHON and isinstance(name := value.__module__, str):
        return f"{name}.{value.__name__}"
    return _of_class(value) if is_kind(class_of(value), type) else ""


def _of_function(value: Any) -> str:
    """Return the module and name of a function; a bound one of C, `f = random.random`, has its class's module."""
    owner: Any = None if type(value) is types.FunctionType else value.__self__
    if owner is None or type(owner) is types.ModuleType:
        return f"{value.__module__ or 'builtins'}.{value.__name__}"
    if is_kind(class_of(owner), type):  # `now = datetime.now`
        return f"{_of_class(owner)}.{value.__name__}"
    return f"{class_module(cast('type[object]', class_of(owner)))}.{value.__name__}"


def _of_class(value: Any) -> str:
    return f"{class_module(cast('type[object]', value))}.{class_qualname(cast('type[object]', value))}"
