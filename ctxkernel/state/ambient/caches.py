"""Caches of the user's functions: `functools.lru_cache` and `cache`.

A cache has no stored form, and what it returns may be an object that a cell changed. So a return clears each cache that
was used since, and each that holds objects that can be changed, and says so. An empty cache is always right. One that
was cleared and filled again may have been used as often as before: what it holds is compared as well.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ctxkernel.state.ambient.part import Part
from ctxkernel.state.base.own_modules import OwnModules
from ctxkernel.state.base.snapshot import Snapshot, differences
from ctxkernel.state.base.variables import some_of
from ctxkernel.state.types.code import held_by_cache

_CACHE: Any = type(functools.lru_cache(lambda: None))
_ATOMS = frozenset((str, bytes, int, float, complex, bool, type(None), range, type, object, type(...)))
_DEEP = 3
_MOST_RESULTS = 10_000


class FunctionCaches(Part):
    """The caches of functions in the namespace, in the notebook's classes and in the user's own modules."""

    name = "function caches"
    always = True
    passive = True

    def __init__(self, namespace: Callable[[], dict[str, Any]] | None = None) -> None:
        self._namespace = namespace or (lambda: vars(sys.modules["__main__"]))
        self._own_modules = OwnModules()
        self._places: dict[str, _Place] = {}
        self._seen: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        """What was last captured of each cache."""

    looks_at_names = True

    def bound(self, names: Collection[str] | None) -> None:
        """Look at these names, or at all."""
        place = self._places.get("")
        if names is None or place is None:
            self._places.pop("", None)
        else:
            place.look(names)

    def capture(self) -> Any:
        """Return how often each cache was used, by the function's name: hits, misses, entries, content hash."""
        return {name: self._told(one) for name, one in self._caches()}

    def _told(self, cache: Any) -> list[int]:
        """Return what is captured of a cache. What it holds is only read where it was used since the last time."""
        hits, misses, _, size = cache.cache_info()
        known = self._seen.get(cache)
        if known is None or known[:3] != [hits, misses, size]:
            known = self._seen[cache] = [hits, misses, size, _content_hash(cache) if size else 0]
        return known

    def matches(self, value: Any) -> bool:
        """Return whether no cache has to be cleared."""
        return not self._stale(value)

    def restore(self, value: Any) -> Sequence[str]:
        """Clear each cache that is not as it was; return a line that names them."""
        stale = self._stale(value)
        for cache in stale.values():
            cache.cache_clear()
        # A function that was loaded comes with an empty one.
        cleared = {name for name, (_, _, size, *_) in value.items() if size} | stale.keys()
        empty = [name for name, one in self._caches() if name in cleared and not one.cache_info().currsize]
        return [f"cleared the cache of {some_of(empty)}"] if empty or stale else ()

    def _stale(self, value: Any) -> dict[str, Any]:
        self._places.clear()  # an address proves nothing, and a return has to be right
        self._seen.clear()
        stale: dict[str, Any] = {}
        for name, cache in self._caches():
            told = self._told(cache)
            if told[2] and (value.get(name) != told or not told[3]):
                stale[name] = cache
        return stale

    def _caches(self) -> Iterator[tuple[str, Any]]:
        seen: dict[int, str] = {}
        spaces = {"": self._namespace()} | {module.__name__ + ".": vars(module) for module in self._own_modules()}
        for prefix, names in spaces.items():
            place = self._places.get(prefix)
            if place is None or place.names is not names:
                place = self._places[prefix] = _Place(names, not prefix)
            elif prefix:
                place.follow()
            for found in place.found.values():
                yield from ((prefix + path, one) for path, one in found if seen.setdefault(id(one), prefix) == prefix)


class _Place:
    """The caches among the values of a namespace, and those of its classes as of when each got its name."""

    def __init__(self, names: dict[str, Any], is_notebook: bool) -> None:
        self.names = names
        self._is_notebook = is_notebook
        self.found: dict[str, list[tuple[str, Any]]] = {}
        """Variable → caches by name."""
        self._last = Snapshot({})
        self.follow()

    def follow(self) -> None:
        """Look at the names that stand for another object than when this was called last."""
        now = Snapshot(self.names)
        self.look(name for changed in differences(self._last, now) for name in changed)
        self._last = now

    def look(self, names: Iterable[str]) -> None:
        """Look at some of the names."""
        for name in names:
            value: Any = self.names.get(name)
            found: list[tuple[str, Any]] = []
            if type(value) is _CACHE:
                found = [(name, value)] if self._is_notebook or not _is_of_other_module(value, self.names) else []
            elif issubclass(type(value), type):
                found = [*_of_class(name, value, self.names)]
            if found:
                self.found[name] = found
            else:
                self.found.pop(name, None)


def _is_of_other_module(cache: Any, names: Mapping[str, Any]) -> bool:
    """Say whether a cache is a function of another module, which a module of the user's only imported."""
    module = getattr(cache, "__module__", None)
    if module == names.get("__name__") or not isinstance(module, str):
        return False
    return getattr(sys.modules.get(module), getattr(cache, "__name__", ""), None) is cache


def _of_class(name: str, kind: type, names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the caches of a class, where it is of the module that has these names."""
    for member, value in list(vars(kind).items()) if kind.__module__ == names.get("__name__") else ():
        inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        inner = inner.fget if isinstance(inner, property) else inner
        if type(inner) is _CACHE:
            yield f"{name}.{member}", inner


def _content_hash(cache: Any) -> int:
    """Return a hash of what a cache holds; 0 where that is not known to be immutable."""
    results, entries = held_by_cache(cache)
    found = [one for one in (*results, *entries) if type(one) is not dict and type(one).__name__ != "_lru_list_elem"]
    loose = sum(type(one) is dict for one in results) > 1 or any(type(one) is dict for one in entries)
    if loose or len(found) > _MOST_RESULTS:
        return 0
    try:
        return hash(tuple([_hashable(one, _DEEP) for one in found])) or 1
    except _NotImmutableError:
        return 0


class _NotImmutableError(Exception):
    """A cache holds something that may change in place."""


def _hashable(value: Any, deep: int) -> Any:
    """Return what has another hash for another type or value. Raises _NotImmutableError."""
    kind = type(value)
    if kind is int:
        return kind, hex(value)  # the hashes of -1 and -2 are equal
    if kind is float or kind is complex:
        return kind, repr(value)
    if kind in _ATOMS:
        return kind, value
    # functools makes the key of a call a list of a kind of its own, which nobody else has.
    if deep and (kind in (tuple, frozenset) or (kind.__module__ == "functools" and kind.__name__ == "_HashedSeq")):
        return kind, (*(_hashable(one, deep - 1) for one in value),)
    raise _NotImmutableError
