"""Caches of the user's functions: `functools.lru_cache` and `cache`.

A cache has no stored form, and may return an object that a cell changed. So a return clears each cache that was used
since, and each that holds mutable objects, and names it. An empty cache is always right. A cache that was cleared and
filled again may have the same counts as before: its content is compared as well.
"""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ctxkernel.core.reflection import class_dict, class_of, function_of
from ctxkernel.state.ambient.part import Part
from ctxkernel.state.base.namespace import some_of
from ctxkernel.state.base.own_modules import loaded_own_modules
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

    def __init__(self, namespace: Callable[[], dict[str, Any]] = lambda: vars(sys.modules["__main__"])) -> None:
        self._namespace = namespace
        self._names: dict[str, Any] | None = None
        """The namespace whose caches are in `_found`."""
        self._found: dict[str, list[tuple[str, Any]]] = {}
        """Variable → its caches by name."""
        self._seen: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        """The last captured counts of each cache."""

    looks_at_names = True

    def bound(self, names: Collection[str] | None) -> None:
        """Look at these names, or at all."""
        if names is None or self._names is None:
            self._names = None
            return
        for name in names:
            self._found.pop(name, None)
            if found := _caches_of(name, self._names):
                self._found[name] = found

    def capture(self) -> Any:
        """Return how often each cache was used, by the function's name: hits, misses, entries, content hash."""
        found: dict[str, Any] = {}
        for name, one in self._caches():
            found[name] = self._told(one)
        return found

    stamp = capture

    def _told(self, cache: Any) -> list[int]:
        """Return the counts of a cache. Its content is only read where it was used since the last time."""
        hits, misses, _, size = cache.cache_info()
        known = self._seen.get(cache)
        if known is None or known[:3] != [hits, misses, size]:
            known = self._seen[cache] = [hits, misses, size, _content_hash(cache) if size else 0]
        return known

    def matches(self, value: Any) -> bool:
        """Return whether no cache has to be cleared."""
        return not self._stale(value)

    def were_used_since(self, value: Any) -> bool:
        """Return whether one of them was used, cleared or made since a capture."""
        self._names = None
        then, now = ({name: told[:3] for name, told in one.items()} for one in (value, self.capture()))
        return then != now

    def are_filled(self, names: Iterable[str]) -> bool:
        """Return whether one of these variables has a cache with entries, which it loses where it is loaded."""
        namespace = self._namespace()
        found = (cache for name in names if name in namespace for _, cache in _caches_of(name, namespace))
        return any(cache.cache_info().currsize for cache in found)

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
        self._names = None  # an address proves nothing, and a return has to be right
        self._seen.clear()
        stale: dict[str, Any] = {}
        for name, cache in self._caches():
            told = self._told(cache)
            if told[2] and (value.get(name) != told or not told[3]):
                stale[name] = cache
        return stale

    def _caches(self) -> list[tuple[str, Any]]:
        names = self._namespace()
        if self._names is not names:
            self._names = names
            self._found = {name: found for name in list(names) if (found := _caches_of(name, names))}
        found = [*itertools.chain.from_iterable(self._found.values())]
        for module in loaded_own_modules():
            known, members = {id(cache) for _, cache in found}, vars(module)
            own = [one for name in list(members) for one in _caches_of(name, members)]
            own = [(path, cache) for path, cache in own if not _is_of_other_module(cache, module.__name__)]
            found += [(f"{module.__name__}.{path}", cache) for path, cache in own if id(cache) not in known]
        return found


def _is_of_other_module(cache: Any, importer: str) -> bool:
    """Return whether a cache is a function of another module that `importer` only imported."""
    module = getattr(cache, "__module__", None)
    if module == importer or not isinstance(module, str):
        return False
    return getattr(sys.modules.get(module), getattr(cache, "__name__", ""), None) is cache


def _caches_of(name: str, names: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the cache that is a value of a namespace, or those of a class that its module defines, by name."""
    value: Any = names.get(name)
    if type(value) is _CACHE:
        return [(name, value)]
    if not issubclass(type(value), type) or value.__module__ != names.get("__name__"):
        return []
    members = {member: function_of(one) for member, one in list(class_dict(value).items())}
    inner = {member: getattr(one, "fget", one) if isinstance(one, property) else one for member, one in members.items()}
    return [(f"{name}.{member}", one) for member, one in inner.items() if type(one) is _CACHE]


def _content_hash(cache: Any) -> int:
    """Return a hash of the content of a cache; 0 where that may be mutable."""
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
    """Return an object whose hash depends on type and value. Raises _NotImmutableError."""
    kind = class_of(value)
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
