"""Values of JSON with the types that the code declares for them: the check of all that comes from a file.

Rule 1: What is returned has the declared type all the way down, except where a field is declared as any JSON.
Rule 2: Missing fields get their defaults and unknown ones are ignored, so an older and a newer version can read each
        other's data.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ctxkernel.core.timeline_events import Json

T = TypeVar("T")
_SCALARS: dict[object, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def read_json(kind: type[T], value: Json, name: str = "") -> T:
    """Return `value` as a value of the type `kind`: a dataclass, a collection, or a scalar.

    `name` is the value's name in an error. Raises ValueError that says what must be where.
    """
    return _read(kind, value, name or getattr(kind, "__name__", str(kind)))


@cache
def _fields(kind: type[Any]) -> tuple[tuple[str, Any, bool], ...]:
    """Return name, type, and whether there is no default, of each field of a dataclass."""
    hints = get_type_hints(kind)
    return tuple(
        (one.name, hints[one.name], one.default is MISSING and one.default_factory is MISSING) for one in fields(kind)
    )


@cache
def _form(hint: Any) -> tuple[bool, Any, tuple[Any, ...]]:
    """Return whether a type is a dataclass, its origin, and its arguments."""
    return is_dataclass(hint), get_origin(hint), get_args(hint)


def _read(hint: Any, value: Any, name: str) -> Any:
    if hint is Any or type(value) is hint:
        return value
    if hint is float and type(value) is int:
        return float(value) if abs(value) < 2**1000 else _refuse(hint, value, name)
    has_fields, origin, of = _form(hint)
    if has_fields and isinstance(value, Mapping):
        return _dataclass(hint, cast("Mapping[str, Json]", value), name)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in of:
            return None
        hint = next(one for one in of if one is not type(None))
        return _read(hint, value, name)
    if origin is Literal and isinstance(value, str) and value in of:
        return value
    if origin is tuple and isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        if len(of) == 2 and of[1] is Ellipsis:
            return tuple([_read(of[0], item, f"{name}[{n}]") for n, item in enumerate(items)])
        if len(of) == len(items):
            return tuple([_read(of[n], item, f"{name}[{n}]") for n, item in enumerate(items)])
    if origin in (Mapping, dict) and isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        if of[1] is Any:
            return found
        return {key: _read(of[1], item, f"{name}[{key[:40]!r}]") for key, item in found.items()}
    return _refuse(hint, value, name)


def _dataclass(kind: type[Any], given: Mapping[str, Json], name: str) -> Any:
    values: dict[str, Any] = {}
    missing = ""
    for field, hint, required in _fields(kind):
        if field in given:
            value = given[field]
            values[field] = value if type(value) is hint else _read(hint, value, f"{name}.{field}")
        elif required:
            missing = missing or field
    if missing:
        raise ValueError(f"{name}.{missing} is missing; give every field that has no default")
    return kind(**values)


def _refuse(hint: Any, value: Any, name: str) -> Any:
    found = f"{value[:40]!r}" if isinstance(value, str) else type(value).__name__
    raise ValueError(f"{name} is {found}; it must be {_wanted(hint)}")


def _wanted(hint: Any) -> str:
    """Return the description of a type for an error."""
    match get_origin(hint), get_args(hint):
        case (None, _):
            return _SCALARS.get(hint) or f"{{{', '.join(field for field, *_ in _fields(hint))}}}"
        case (origin, of) if origin is Literal:
            return f"one of {', '.join(of)}"
        case (origin, of) if origin is tuple:
            return f"a list, each item {_wanted(of[0])}"
        case _:
            return "an object"
