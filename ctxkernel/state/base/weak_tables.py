"""Tables of values and names for living objects.

Rule 1: no object is hashed or compared.
Rule 2: no object is kept alive, except one without weak references in `Named.hold`, until the next `Named.release`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

_ALONE = 2
"""What `sys.getrefcount` returns for an object to which one attribute refers: that, and the argument."""


class ById:
    """A value for each of some objects."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[[], Any], Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __setitem__(self, obj: Any, value: Any) -> None:
        """Know a value. Raises TypeError for an object that has no weak references."""
        key = id(obj)
        self._known[key] = weakref.ref(obj, lambda ref: self._forget(key, ref)), value

    def _forget(self, key: int, ref: object) -> None:
        if (known := self._known.get(key)) is not None and known[0] is ref:
            del self._known[key]

    def get(self, obj: Any) -> Any:
        """Return what is known; None where nothing is."""
        known = self._known.get(id(obj))
        return known[1] if known is not None and known[0]() is obj else None


class _Held:
    """A reference to an object that has no weak ones. The only strong reference of its table."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __call__(self) -> Any:
        return self.obj


class Named(ById):
    """A name for each of some objects, and the object of a name: the newest one of several."""

    def __init__(self) -> None:
        super().__init__()
        self._refs: dict[str, list[Callable[[], Any]]] = {}
        """By name, the newest last."""
        self.held: dict[str, _Held] = {}
        """By name, objects without weak references: those of `hold`."""

    def add(self, name: str, obj: Any) -> None:
        """Take `obj` as the newest object of a name. If it has a name, it keeps that for `get`. Raises TypeError."""
        ref = weakref.ref(obj, lambda ref: self._drop(name, ref))
        if self.get(obj) is None:
            self[obj] = name
        self._refs[name] = [*(one for one in self._refs.get(name, ()) if one() is not obj), ref]

    def hold(self, name: str, obj: Any) -> None:
        """Take an object without weak references as the only object of a name, and keep it alive until `release`."""
        held = self.held[name] = _Held(obj)
        self._known[id(obj)] = held, name
        self._refs[name] = [held]

    def release(self) -> None:
        """Drop the objects that only this table still keeps alive."""
        for name, held in [*self.held.items()]:
            if sys.getrefcount(held.obj) <= _ALONE:
                del self.held[name]
                self.forget(name)
                self._forget(id(held.obj), held)

    def _drop(self, name: str, ref: object) -> None:
        if left := [one for one in self._refs.pop(name, ()) if one is not ref]:
            self._refs[name] = left

    def replace(self, name: str, obj: Any) -> None:
        """Take `obj` as the only object of a name. Raises TypeError."""
        before = self.object(name)
        self.forget(name)
        self._known.pop(id(before), None)
        self.add(name, obj)

    def forget(self, name: str) -> None:
        """Have no object of this name; those that have it keep it for `get`."""
        self._refs.pop(name, None)

    @property
    def names(self) -> frozenset[str]:
        """The names of which an object is alive."""
        return frozenset(self._refs)

    def object(self, name: str) -> Any:
        """Return the living object of a name, or None."""
        found = self._refs.get(name)
        return found[-1]() if found else None
