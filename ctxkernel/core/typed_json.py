"""Values of JSON with the types that the code declares for them: the check of all that comes from a file.

Rule 1: What is returned has the declared type all the way down, except where a field is declared as any JSON.
Rule 2: Missing fields get their defaults and unknown ones are ignored, so an older and a newer version can read each
        other's data.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ctxkernel.core.timeline_events import Json

T = TypeVar("T")
Reader = Callable[[Any, str], Any]
"""Returns a value as one of its type; the text is its name in an error, which it raises as ValueError."""
_SCALARS: dict[object, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def read_json(kind: type[T], value: Json, name: str = "") -> T:
    """Return `value` as a value of the type `kind`: a dataclass, a collection, or a scalar.

    `name` is the value's name in an error. Raises ValueError that says what must be where.
    """
    return _reader(kind)(value, name or getattr(kind, "__name__", str(kind)))


@cache
def _fields(kind: type[Any]) -> tuple[tuple[str, Any, bool, Reader], ...]:
    """Return name, type, whether there is no default, and reader, of each field of a dataclass."""
    hints = get_type_hints(kind)
    return tuple(
        (
            one.name,
            hints[one.name],
            one.default is MISSING and one.default_factory is MISSING,
            _reader(hints[one.name]),
        )
        for one in fields(kind)
    )


@cache
def _reader(hint: Any) -> Reader:
    """Return the function that reads values of a type. A log has many values of few types: each is analysed once."""
    origin, of = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value, name: value
    if hint is float:
        return _float
    if origin in (Union, types.UnionType):
        return _optional(_reader(next(one for one in of if one is not type(None))), may_be_none=type(None) in of)
    if origin is tuple and (len(of) != 2 or of[1] is not Ellipsis):
        return _row(hint, [_reader(one) for one in of])
    if origin is tuple:
        return _list(hint, _reader(of[0]))
    if origin in (Mapping, dict):
        return _mapping(hint, None if of[1] is Any else _reader(of[1]))

    def read(value: Any, name: str) -> Any:
        if type(value) is hint or (origin is Literal and isinstance(value, str) and value in of):
            return value
        if is_dataclass(hint) and isinstance(value, Mapping):
            return _dataclass(cast("type[Any]", hint), cast("Mapping[str, Json]", value), name)
        return _refuse(hint, value, name)

    return read


def _float(value: Any, name: str) -> Any:
    if type(value) is int and abs(value) < 2**1000:
        return float(value)
    return value if type(value) is float else _refuse(float, value, name)


def _optional(read: Reader, *, may_be_none: bool) -> Reader:
    return lambda value, name: None if value is None and may_be_none else read(value, name)


def _list(hint: Any, read: Reader) -> Reader:
    def read_all(value: Any, name: str) -> Any:
        if not isinstance(value, list | tuple):
            return _refuse(hint, value, name)
        return tuple([read(item, f"{name}[{n}]") for n, item in enumerate(cast("Sequence[Any]", value))])

    return read_all


def _row(hint: Any, readers: Sequence[Reader]) -> Reader:
    def read_each(value: Any, name: str) -> Any:
        items = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()
        if not isinstance(value, list | tuple) or len(items) != len(readers):
            return _refuse(hint, value, name)
        return tuple([read(item, f"{name}[{n}]") for n, (read, item) in enumerate(zip(readers, items, strict=True))])

    return read_each


def _mapping(hint: Any, read: Reader | None) -> Reader:
    def read_values(value: Any, name: str) -> Any:
        if not isinstance(value, dict):
            return _refuse(hint, value, name)
        found = cast("dict[str, Any]", value)
        return found if read is None else {key: read(one, f"{name}[{key[:40]!r}]") for key, one in found.items()}

    return read_values


def _dataclass(kind: type[Any], given: Mapping[str, Json], name: str) -> Any:
    values: dict[str, Any] = {}
    missing = ""
    for field, hint, required, read in _fields(kind):
        if field in given:
            value = given[field]
            values[field] = value if type(value) is hint else read(value, f"{name}.{field}")
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
