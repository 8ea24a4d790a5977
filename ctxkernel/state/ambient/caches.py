"""Caches of the user's functions: `functools.lru_cache` and `cache`.

A cache has no stored form, and what it returns may be an object that a cell changed. So a return clears each cache that
was used since, and each that holds objects that can be changed, and says so. An empty cache is always right.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ctxkernel.state.ambient.modules import OwnModules
from ctxkernel.state.ambient.part import Part
from ctxkernel.state.variables import some_of

_CACHE: Any = type(functools.lru_cache(lambda: None))
_ATOMS = frozenset((str, bytes, int, float, complex, bool, type(None), range, type, object, type(...)))
_DEEP = 3
_MOST_RESULTS = 10_000


class FunctionCaches(Part):
    """The caches of functions in the namespace, in the notebook's classes and in the user's own modules."""

    name = "function caches"
    always = True
    passive = True

    def __init__(self, namespace: Callable[[], Mapping[str, Any]] | None = None) -> None:
        self._namespace = namespace or (lambda: vars(sys.modules["__main__"]))
        self._own_modules = OwnModules()

    def capture(self) -> Any:
        """Return how often each cache was used, by the function's name: hits, misses, entries."""
        return {name: [*one.cache_info()[:2], one.cache_info().currsize] for name, one in self._caches()}

    def matches(self, value: Any) -> bool:
        """Return whether no cache has to be cleared."""
        return not self._stale(value)

    def restore(self, value: Any) -> Sequence[str]:
        """Clear each cache that is not as it was; return a line that names them."""
        stale = self._stale(value)
        for cache in stale.values():
            cache.cache_clear()
        # A function that was loaded comes with an empty one.
        cleared = {name for name, (_, _, size) in value.items() if size} | stale.keys()
        empty = [name for name, one in self._caches() if name in cleared and not one.cache_info().currsize]
        return [f"cleared the cache of {some_of(empty)}"] if empty or stale else ()

    def _stale(self, value: Any) -> dict[str, Any]:
        stale: dict[str, Any] = {}
        for name, cache in self._caches():
            hits, misses, _, size = cache.cache_info()
            if size and not (value.get(name) == [hits, misses, size] and _immutable(cache)):
                stale[name] = cache
        return stale

    def _caches(self) -> Iterator[tuple[str, Any]]:
        seen: dict[int, str] = {}
        namespace = self._namespace()
        places: list[tuple[str, Any]] = [("", namespace)]
        places += [(module.__name__ + ".", vars(module)) for module in self._own_modules()]
        for prefix, names in places:
            values = list(names.values())
            kinds = {kind for kind in set(map(type, values)) if kind is _CACHE or issubclass(kind, type)}
            if not kinds:  # as in most namespaces, and known within microseconds
                continue
            for name, value in [one for one in list(names.items()) if type(one[1]) in kinds]:
                found = [(prefix + name, value)] if type(value) is _CACHE else _of_class(prefix + name, value, names)
                yield from ((path, one) for path, one in found if seen.setdefault(id(one), prefix) == prefix)


def _of_class(name: str, kind: type, names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the caches of a class, where it is of the module that has these names."""
    for member, value in list(vars(kind).items()) if kind.__module__ == names.get("__name__") else ():
        inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        inner = inner.fget if isinstance(inner, property) else inner
        if type(inner) is _CACHE:
            yield f"{name}.{member}", inner


def _immutable(cache: Any) -> bool:
    """Return whether all that a cache holds is known to be immutable."""
    # The function, its attributes, links, the dict of entries, keys and results.
    own = (cache.__wrapped__, cache.__dict__)
    results = [one for one in gc.get_referents(cache) if not any(one is known for known in own)]
    entries = [held for one in results if type(one) is dict for held in gc.get_referents(one)]
    found = [one for one in (*results, *entries) if type(one) is not dict and type(one).__name__ != "_lru_list_elem"]
    loose = sum(type(one) is dict for one in results) > 1 or any(type(one) is dict for one in entries)
    return not loose and len(found) <= _MOST_RESULTS and all(_is_immutable(one, _DEEP) for one in found)


def _is_immutable(value: Any, deep: int) -> bool:
    kind = type(value)
    if kind in _ATOMS:
        return True
    # functools makes the key of a call a list of a kind of its own, which nobody else has.
    if kind in (tuple, frozenset) or (kind.__module__ == "functools" and kind.__name__ == "_HashedSeq"):
        return deep > 0 and all(_is_immutable(one, deep - 1) for one in value)
    return False
