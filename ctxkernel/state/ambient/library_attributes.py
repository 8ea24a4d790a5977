"""Attributes of installed libraries that cells set: `pd.DataFrame.total = f`, `torch.backends.cudnn.benchmark = True`.

An attribute counts from the first cell whose text sets it: its value is read before that cell runs. Not seen is what
functions of earlier cells and libraries set by themselves. What may be a credential (`openai.api_key = …`) is held in
memory, and never stored. Other objects are stored as those of a module of the user's: cells may change them in place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.reflection import (
    DEFINED,
    class_dict,
    class_module,
    class_of,
    class_qualname,
    function_of,
    is_kind,
)
from ctxkernel.state.ambient.part import LiveObjects, Part
from ctxkernel.state.ambient.process import may_be_credential
from ctxkernel.state.base.namespace import NOTHING, some_of
from ctxkernel.state.base.own_modules import ATTRIBUTES, is_own

_ATOMS = frozenset((str, bytes, int, float, complex, bool, type(None)))
_OF_OTHER_PARTS = frozenset(("sys.path", "sys.argv", "sys.modules", "os.environ"))
_UNKNOWN: Any = object()
"""The value of an attribute before a cell that imported its library."""
_OBJECT = True


@dataclass(slots=True)
class _Attribute:
    owner: Any
    """A module or a class of a library."""
    name: str
    first: Any
    """Its value before the first cell that set it; NOTHING for none."""


class LibraryAttributes(Part):
    """The attributes of modules and classes of installed libraries that cells set."""

    name = ATTRIBUTES
    always = True
    appears = True

    def __init__(self) -> None:
        self._live = LiveObjects()
        self._known: dict[str, _Attribute] = {}
        """By full name."""
        self._loaded: Mapping[str, Any] = {}
        """The objects of the state that is being restored, if they are others than those of now."""
        self._open: list[tuple[tuple[str, ...], Callable[[str], Any]]] = []
        """Attributes of libraries that the running cell may import."""

    def watch(self, paths: Iterable[tuple[str, ...]], namespace: Mapping[str, Any], imports: Mapping[str, str]) -> None:
        """Read attributes that a cell is about to set. `imports`: the names that it imports, with their full names."""

        def find(name: str) -> Any:
            return namespace.get(name, _find_loaded(imports.get(name, "")))

        self._open = [(path, find) for path in paths if not self._add(path, find, known=True)]

    def _add(self, path: tuple[str, ...], find: Callable[[str], Any], *, known: bool) -> bool:
        """Watch an attribute, if it is one of a library. Return whether its first name stands for something."""
        owner = find(path[0])
        for name in path[1:-1]:
            owner = _read(owner, name) if _has_attributes(owner) else NOTHING
        if (place := _place(owner)) and (full := f"{place}.{path[-1]}") not in _OF_OTHER_PARTS:
            self._follow(full, owner, path[-1], known=known)
        return find(path[0]) is not NOTHING

    def _follow(self, full: str, owner: Any, name: str, *, known: bool = True) -> None:
        """Watch an attribute. What it is before any cell set it keeps its name: variables may hold it."""
        if full in self._known:
            return
        value = _read(owner, name)
        self._known[full] = _Attribute(owner, name, value if known else _UNKNOWN)
        if (named := _name_of(function_of(value))) and (known or ".".join(named) == full):
            DEFINED.setdefault(named[0], {})[named[1]] = function_of(value) if known else None

    @property
    def active(self) -> bool:  # type: ignore[override]
        """Return whether a cell set one."""
        return bool(self._known or self._open)

    def capture(self) -> Any:
        """Return by full name those that differ from their first values.

        `[value]` for a plain one, a token for a credential, `_OBJECT` for an object, None for one that is not set.
        """
        return {full: self._told(full, value) for full, value in self._set()}

    def _set(self) -> Iterator[tuple[str, Any]]:
        todo, self._open = self._open, []
        for path, find in todo:
            self._add(path, find, known=False)
        for full, one in self._known.items():
            if not _is_same(value := _read(one.owner, one.name), one.first):
                yield full, value

    def _told(self, full: str, value: Any) -> Any:
        if value is NOTHING:
            return None
        if type(value) not in _ATOMS:
            return _OBJECT
        text = value.decode("latin-1") if type(value) is bytes else value
        if not (type(text) is str and may_be_credential(full, text)):
            return [value]
        return self._live.token(next((one for _, one in self._live if _is_same(one, value)), value))

    def own_objects(self) -> dict[str, Any]:
        """Return the objects by full name."""
        return {full: value for full, value in self._set() if value is not NOTHING and type(value) not in _ATOMS}

    def put_back(self, objects: Mapping[str, Any]) -> None:
        """Take in the objects that were loaded; `restore` sets them."""
        self._loaded = objects

    def default(self) -> Any:
        """Return the value before any cell set an attribute."""
        return {}

    def matches(self, value: Any) -> bool:
        """Return whether all are as they were."""
        return all(self._is_now(full, self._then(full, value)) for full in (self._known | value))

    def _is_now(self, full: str, then: Any) -> bool:
        one = self._known.get(full)
        return _is_same(_read(one.owner, one.name) if one is not None else _find_loaded(full), then)

    def _then(self, full: str, value: Any) -> Any:
        """Return what an attribute was; `_UNKNOWN` where that is not known, or gone."""
        if full not in value:
            return self._known[full].first
        told = value[full]
        if told is None:
            return NOTHING
        if told == _OBJECT:
            return self._loaded.get(full, self.own_objects().get(full, _UNKNOWN))
        if isinstance(told, list):
            return cast("list[Any]", told)[0]
        return self._live.get(told) if told in self._live else _UNKNOWN

    def restore(self, value: Any) -> Sequence[str]:
        """Set and delete them as they were; name those that stay as they are."""
        left: list[str] = []
        for full in self._known | value:
            then = self._then(full, value)
            if self._is_now(full, then):
                continue
            place, _, name = full.rpartition(".")
            if full not in self._known and _has_attributes(owner := _find_loaded(place)):
                self._follow(full, owner, name)
            owner = self._known[full].owner if full in self._known else NOTHING
            try:
                if then is _UNKNOWN or owner is NOTHING:
                    left.append(full)
                elif then is NOTHING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, then)
            except Exception:  # of the library: it does not let itself be changed
                left.append(full)
        self._loaded = {}
        return [f"{some_of(sorted(left), 6)}: left as now"] if left else ()


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) in _ATOMS and type(one) is type(other) and one == other)


def _name_of(value: Any) -> tuple[str, str] | None:
    """Return module and path of a function or a class of a library that is found by them."""
    if is_kind(class_of(value), type):
        module, path = class_module(value), class_qualname(value)
    elif class_of(value) in (FunctionType, BuiltinFunctionType):
        module, path = value.__module__, value.__qualname__
    else:
        return None
    holder = sys.modules.get(module) if module != "__main__" else None
    found = holder is not None and not is_own(holder) and function_of(_find_loaded(f"{module}.{path}")) is value
    return (module, path) if found else None


def _has_attributes(owner: Any) -> bool:
    return is_kind(class_of(owner), ModuleType) or is_kind(class_of(owner), type)


def _read(owner: Any, name: str) -> Any:
    """Return an attribute of a module or a class itself, NOTHING where it has none; runs no code of a class."""
    if is_kind(class_of(owner), type):
        return class_dict(owner).get(name, NOTHING)
    members = cast("dict[str, Any]", vars(owner))
    if name in members or not hasattr(class_of(owner), name):
        return members.get(name, NOTHING)
    return getattr(owner, name, NOTHING)  # modules such as `torch.backends.cudnn` have properties


def _place(owner: Any) -> str:
    """Return the full name of a module or a class of a library; empty for anything else."""
    if not _has_attributes(owner):
        return ""
    is_class = is_kind(class_of(owner), type)
    named: Any = class_module(owner) if is_class else _read(owner, "__name__")
    place = f"{named}.{class_qualname(owner)}" if is_class else str(named)
    module: Any = sys.modules.get(named) if isinstance(named, str) and named != "__main__" else None
    return place if module is not None and _find_loaded(place) is owner and not is_own(module) else ""


def _find_loaded(full: str) -> Any:
    """Return what a full name stands for among the loaded modules; NOTHING where there is nothing."""
    parts = full.split(".")
    for at in range(len(parts), 0, -1):
        if (found := sys.modules.get(".".join(parts[:at]))) is not None:
            value: Any = found
            for name in parts[at:]:
                value = _read(value, name) if _has_attributes(value) else NOTHING
            return value
    return NOTHING
