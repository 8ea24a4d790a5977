"""`dataclass` of the standard library at a fraction of its price: some 230 of them are made when a kernel starts.

The standard library compiles the source of each method. Here `__repr__`, `__eq__`, `__hash__` and what keeps an
instance frozen are functions for all classes, and `__init__` is compiled when the first instance is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY as KW_ONLY
from dataclasses import MISSING
from dataclasses import asdict as asdict
from dataclasses import field as field
from dataclasses import fields as fields
from dataclasses import replace as replace
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any


def _values(cls: Any) -> Callable[[Any], object]:
    """Return what gives the values of an instance that are compared."""
    names = [one.name for one in fields(cls) if one.compare]
    return attrgetter(*names) if names else lambda _: ()


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = self.__class__.__data_values__
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(self.__class__.__data_values__(self))


def _set_frozen(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete_frozen(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[object]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


def _compiled_init(cls: Any, frozen: bool) -> Callable[..., None]:
    """Return the `__init__` of a data class. Slots of a frozen one are set by their descriptors, the fastest way."""
    # No field has a name that begins so.
    names: dict[str, Any] = {"__absent": MISSING, "__set": object.__setattr__}
    parameters: dict[bool, list[str]] = {False: ["self"], True: []}
    lines: list[str] = []
    for one in fields(cls):
        name = value = one.name
        parameter = name
        if one.default_factory is not MISSING:
            names[f"__new_{name}"] = one.default_factory
            value = f"__new_{name}() if {name} is __absent else {name}" if one.init else f"__new_{name}()"
            parameter = f"{name}=__absent"
        elif one.default is not MISSING:
            names[f"__default_{name}"] = one.default
            value = name if one.init else f"__default_{name}"
            parameter = f"{name}=__default_{name}"
        elif not one.init:
            continue
        if one.init:
            parameters[bool(one.kw_only)].append(parameter)
        slot = getattr(cls, name, None)
        if frozen and isinstance(slot, MemberDescriptorType):
            names[f"__set_{name}"] = slot.__set__
            lines.append(f"__set_{name}(self, {value})")
        else:
            lines.append(f"__set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    heads = [*parameters[False], *(["*", *parameters[True]] if parameters[True] else [])]
    # The text has names of fields of our own classes only.
    exec(f"def __init__({', '.join(heads)}):\n " + "\n ".join(lines or ["pass"]), names)  # noqa: S102
    names["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return names["__init__"]


def _first_init(cls: Any, frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that puts the compiled one in its place."""

    def init(self: Any, /, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _compiled_init(cls, frozen)
        cls.__init__(self, *args, **kwargs)

    return init


def make(cls: Any, with_repr: bool, with_eq: bool, frozen: bool, options: Mapping[str, bool]) -> Any:
    """Make a data class of a class. Raises ValueError with `order`."""
    own: dict[str, Any] = {**vars(cls)}
    methods: dict[str, Any] = {"__repr__": _repr} if with_repr else {}
    if with_eq:
        methods["__eq__"] = _eq
        if own.get("__hash__") is None:
            cls.__hash__ = _hash if frozen else None
    if frozen:
        methods |= {"__setattr__": _set_frozen, "__delattr__": _delete_frozen}
        if options.get("slots"):
            methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard library parses the signature of each
    made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options)
    if "__init__" not in own:
        made.__init__ = _first_init(made, frozen)
    made.__data_values__ = _values(made)
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, repr: bool = True, eq: bool = True, frozen: bool = False, **options: bool
    ) -> Any:
        """Make a data class, as `dataclasses.dataclass` does. Raises ValueError with `order`: it is not supported."""
        return make(cls, repr, eq, frozen, options) if cls else lambda given: make(given, repr, eq, frozen, options)
