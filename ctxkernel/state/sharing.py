"""Which names share objects: by id of every object that a name's value holds.

Rule 1: an id may be out of date, as the object may be gone. That leads to a look too many, never to one too few.
Rule 2: of a value that holds very many objects the ids are kept as a sorted array: a set would take more memory than
the objects do.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable

Ids = frozenset[int] | array  # type: ignore[type-arg] - an array cannot be subscripted before Python 3.12
"""Ids of objects, and negative addresses of memory blocks."""

NO_IDS: frozenset[int] = frozenset()
_WIDE = 1000


def pack(ids: Collection[int]) -> Ids:
    """Return `ids` in the form in which they are kept."""
    return frozenset(ids) if len(ids) <= _WIDE else array("q", sorted(ids))


def _holds(ids: array[int], one: int) -> bool:
    at = bisect_left(ids, one)
    return at < len(ids) and ids[at] == one


def _overlap(one: array[int], other: array[int]) -> bool:
    if one[-1] < other[0] or other[-1] < one[0]:
        return False
    return not set(one).isdisjoint(other)


class Sharing:
    """An index from ids to the names that hold them."""

    def __init__(self) -> None:
        self._held: dict[str, frozenset[int]] = {}
        self._one: dict[int, str] = {}
        """The only owner, or one of several."""
        self._several: dict[int, set[str]] = {}
        self._wide: dict[str, array[int]] = {}

    def put(self, name: str, ids: Ids) -> None:
        """Set what `name` holds."""
        self._wide.pop(name, None)
        if isinstance(ids, array):
            self._wide[name] = ids
            ids = NO_IDS
        old = self._held.get(name, NO_IDS)
        if old == ids:
            return
        self._drop(name, old - ids)
        for each in ids - old:
            owner = self._one.setdefault(each, name)
            if owner != name:
                self._several.setdefault(each, {owner}).add(name)
        if ids:
            self._held[name] = ids
        else:
            self._held.pop(name, None)

    def held(self, name: str) -> Ids:
        """Return what `name` holds."""
        return self._wide.get(name) or self._held.get(name, NO_IDS)

    def remove(self, name: str) -> None:
        """Forget `name`."""
        self._wide.pop(name, None)
        if name in self._held:
            self._drop(name, self._held.pop(name))

    def _drop(self, name: str, ids: Iterable[int]) -> None:
        for each in ids:
            several = self._several.get(each)
            if several is None:
                if self._one.get(each) == name:
                    del self._one[each]
                continue
            several.discard(name)
            self._one[each] = next(iter(several))
            if len(several) == 1:
                del self._several[each]

    def owners(self, ids: Ids) -> set[str]:
        """Return the names that hold any of `ids`."""
        found: set[str] = set()
        common: Iterable[int]
        if isinstance(ids, array):
            if len(self._one) * 8 < len(ids):
                common = [each for each in self._one if _holds(ids, each)]
            else:
                common = self._one.keys() & set(ids)
            found.update(name for name, wide in self._wide.items() if wide is ids or _overlap(wide, ids))
        else:
            common = self._one.keys() & ids
            found.update(name for name, wide in self._wide.items() if any(_holds(wide, each) for each in ids))
        for each in common:
            found.add(self._one[each])
            found.update(self._several.get(each, ()))
        return found
