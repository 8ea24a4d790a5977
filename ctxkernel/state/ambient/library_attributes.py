"""Attributes of installed libraries that cells set: `pd.DataFrame.total = f`, `torch.backends.cudnn.benchmark = True`.

An attribute counts from the first cell whose text sets it: its value is read before that cell runs. Not seen is what
functions of earlier cells and libraries set by themselves. What may be a credential (`openai.api_key = …`) is held in
memory, and never stored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

from ctxkernel.core.reflection import class_dict, class_module, class_of, class_qualname, is_kind
from ctxkernel.state.ambient.part import LiveObjects, Part
from ctxkernel.state.ambient.process import may_be_credential
from ctxkernel.state.base.namespace import NOTHING, some_of
from ctxkernel.state.base.own_modules import is_own

_ATOMS = frozenset((str, bytes, int, float, complex, bool, type(None)))
_OF_OTHER_PARTS = frozenset(("sys.path", "sys.modules", "os.environ"))
_UNKNOWN: Any = object()
"""The value of an attribute before a cell that imported its library."""


@dataclass(slots=True)
class _Attribute:
    owner: Any
    """A module or a class of a library."""
    name: str
    first: Any
    """Its value before the first cell that set it; NOTHING for none."""


class LibraryAttributes(Part):
    """The attributes of modules and classes of installed libraries that cells set."""

    name = "library attributes"
    passive = True

    def __init__(self) -> None:
        self._live = LiveObjects()
        self._known: dict[str, _Attribute] = {}
        """By full name."""
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
            first = _read(owner, path[-1]) if known else _UNKNOWN
            self._known.setdefault(full, _Attribute(owner, path[-1], first))
        return find(path[0]) is not NOTHING

    @property
    def active(self) -> bool:  # type: ignore[override]
        """Whether a cell set one."""
        return bool(self._known or self._open)

    def capture(self) -> Any:
        """Return their values by full name: `[value]` of a plain one, the token of an object, None if not set."""
        todo, self._open = self._open, []
        for path, find in todo:
            self._add(path, find, known=False)
        return {full: self._told(full, _read(one.owner, one.name)) for full, one in self._known.items()}

    def _told(self, full: str, value: Any) -> Any:
        if value is NOTHING:
            return None
        text = value.decode("latin-1") if type(value) is bytes else value
        is_plain = type(value) in _ATOMS and not (type(text) is str and may_be_credential(full, text))
        return [value] if is_plain else self._live.token(value)

    def default(self) -> Any:
        """Return the value before any cell set an attribute."""
        return {}

    def matches(self, value: Any) -> bool:
        """Return whether all are as they were."""
        return all(self._is_now(full, self._then(full, value)) for full in (self._known | value))

    def _is_now(self, full: str, then: Any) -> bool:
        one = self._known.get(full)
        now = _read(one.owner, one.name) if one is not None else _find_loaded(full)
        return now is then or (type(now) in _ATOMS and type(now) is type(then) and now == then)

    def _then(self, full: str, value: Any) -> Any:
        """Return what an attribute was; `_UNKNOWN` where that is not known, or gone."""
        if full not in value:
            return self._known[full].first
        told = value[full]
        if told is None:
            return NOTHING
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
            one = self._known.get(full)
            place, _, name = full.rpartition(".")
            owner = one.owner if one is not None else _find_loaded(place)
            try:
                if then is _UNKNOWN or owner is NOTHING:
                    left.append(full)
                elif then is NOTHING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, then)
            except Exception:  # of the library: it does not let itself be changed
                left.append(full)
        return [f"{some_of(sorted(left), 6)}: left as now"] if left else ()


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
