"""`dataclass` of the standard library, at half of its price: some 200 of them are made when a kernel starts.

The standard library compiles the source of each method. Here `__repr__`, `__eq__` and `__hash__` are three functions
for all classes; `__init__`, which is called most, and what keeps an instance frozen are compiled as ever.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY as KW_ONLY
from dataclasses import asdict as asdict
from dataclasses import field as field
from dataclasses import fields as fields
from dataclasses import replace as replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any


def _values(cls: Any) -> Callable[[Any], object]:
    """Return what gives the values of an instance that are compared."""
    names = [one.name for one in dataclasses.fields(cls) if one.compare]
    return attrgetter(*names) if names else lambda _: ()


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = self.__class__.__data_values__
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(self.__class__.__data_values__(self))


def make(cls: Any, with_repr: bool, with_eq: bool, options: Mapping[str, bool]) -> Any:
    """Make a data class of a class. Raises ValueError with `order`."""
    own: dict[str, Any] = {**vars(cls)}
    if with_repr and "__repr__" not in own:
        cls.__repr__ = _repr
    if with_eq and "__eq__" not in own:
        cls.__eq__ = _eq
    if with_eq and own.get("__hash__") is None:
        cls.__hash__ = _hash if options.get("frozen") else None
    made = dataclasses.dataclass(cls, repr=False, eq=False, **options)
    made.__data_values__ = _values(made)
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, repr: bool = True, eq: bool = True, **options: bool) -> Any:
        """Make a data class, as `dataclasses.dataclass` does. Raises ValueError with `order`: it is not supported."""
        return make(cls, repr, eq, options) if cls else lambda given: make(given, repr, eq, options)
