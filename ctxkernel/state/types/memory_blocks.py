"""Memory that is found by its addresses: whose owner cannot be stored, or that variables can write to."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.state.base.namespace import addresses, weak_reference


@dataclass(slots=True, eq=False)
class MemoryBlock:
    """Memory whose owner cannot be stored: of a library, or of an earlier restore."""

    holder: object
    address: int
    nbytes: int

    def holds(self, low: int, high: int) -> bool:
        """Return whether these addresses lie in it."""
        return self.address <= low and high <= self.address + self.nbytes


_MOST_TOUCHED = 10_000
_FEW = 32


def _positions(ids: Any, keys: Collection[int]) -> dict[int, int]:
    """Return a position of each of the keys that are among the ids, an array."""
    if len(keys) > _FEW:
        return {key: at for at, key in enumerate(ids.tolist()) if key in keys}
    found = {key: (ids == key).nonzero()[0] for key in keys}
    return {key: int(at[0]) for key, at in found.items() if len(at)}


class WrittenMemory:
    """Addresses of the memory that the variables of a namespace can write to, by the ids of their values.

    Holds: a value is examined again once it is another object, was collected, or was passed to `forget`.
    """

    def __init__(self) -> None:
        self._ids: Any = None
        """The ids of the values that were examined last, in the order of the namespace: an array."""
        self._known: dict[int, tuple[Any, list[int]]] = {}
        """By id of a value that holds memory: a weak reference, where it can have one, and its places in the table."""
        self._again: set[int] = set()
        """Ids of values that are examined again."""
        self._table: Any = None
        """First addresses and those after the last ones: int64, 2 × n. A free place has zeros."""
        self._free: list[int] = []

    def clear(self) -> None:
        """Forget everything."""
        self._ids = None
        self._known.clear()
        self._again.clear()

    def forget(self, value: object) -> None:
        """Take in that a value was touched."""
        if self._ids is not None:
            self._again.add(id(value))
            if len(self._again) > _MOST_TOUCHED:  # nobody asks
                self.clear()

    def unexamined(self, values: tuple[Any, ...]) -> list[int]:
        """Return the positions of the values that are to be examined, and drop those that are gone."""
        numpy = sys.modules["numpy"]
        ids, before = numpy.frombuffer(addresses(values), "u8"), self._ids
        if before is None:
            before, self._table = ids[:0], numpy.zeros((2, 16), "i8")
            self._free = list(range(16))
        both = min(len(before), len(ids))
        other = numpy.flatnonzero(ids[:both] != before[:both])
        replaced = {*before[:both][other].tolist(), *before[both:].tolist()} & self._known.keys()
        again = self._again.copy()
        self._again -= again
        there = _positions(ids, replaced | again)
        for key in again | (replaced - there.keys()):
            self._drop(key)
        looked = numpy.concatenate((other, numpy.arange(both, len(ids))))
        found = {key: at for at, key in zip(looked.tolist(), ids[looked].tolist(), strict=True)}
        found |= {key: there[key] for key in again & there.keys()}
        self._ids = ids
        return [at for key, at in found.items() if key not in self._known]

    def put(self, value: object, memory: Iterable[tuple[int, int]], *, lasting: bool = True) -> None:
        """Take in the memory of a value. `lasting`: until it is forgotten; else it is examined again each time."""
        key = id(value)
        self._drop(key)
        again = self._again
        ref = weak_reference(value, lambda _: again.add(key))
        self._known[key] = ref, [self._place(low, high) for low, high in memory]
        if not lasting:
            again.add(key)

    def overlaps(self, low: int, high: int) -> bool:
        """Return whether a variable can write to memory at these addresses."""
        return bool(((self._table[0] < high) & (low < self._table[1])).any())

    def _place(self, low: int, high: int) -> int:
        if not self._free:
            size = self._table.shape[1]
            self._table = sys.modules["numpy"].pad(self._table, ((0, 0), (0, size)))
            self._free = list(range(size, 2 * size))
        at = self._free.pop()
        self._table[:, at] = low, high
        return at

    def _drop(self, key: int) -> None:
        if (known := self._known.pop(key, None)) is not None:
            self._table[:, known[1]] = 0
            self._free += known[1]


class MemoryBlocks:
    """Blocks of memory that packs of one moment met. `written`: memory of variables, as found by earlier moments."""

    def __init__(self, written: WrittenMemory | None = None) -> None:
        self.written = WrittenMemory() if written is None else written
        self.is_current = False
        """Whether `written` has the values of this moment."""
        self._starts: list[int] = []
        self._blocks: list[Any] = []
        """In the order of their addresses."""
        self._longest = 0
        self.replaced: dict[int, MemoryBlock] = {}
        """By id, blocks that a larger one replaced."""

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._blocks)

    def add(self, block: Any) -> None:
        """Add a block."""
        at = bisect_right(self._starts, block.address)
        self._starts.insert(at, block.address)
        self._blocks.insert(at, block)
        self._longest = max(self._longest, block.nbytes)

    def find(self, low: int, high: int) -> Any:
        """Return a block that holds these addresses; None where there is none."""
        at = bisect_right(self._starts, low)
        while at and self._starts[at - 1] + self._longest >= high:
            at -= 1
            if self._blocks[at].holds(low, high):
                return self._blocks[at]
        return None

    def widen(self, low: int, high: int) -> MemoryBlock | None:
        """Return the block of the memory that has these addresses; None where it has none.

        Blocks that hold only a part of it are replaced by one that holds all.
        """
        found = self.find(low, high)
        if found is not None:
            return found
        first, last = bisect_left(self._starts, low), bisect_left(self._starts, high)
        parts = [one for one in self._blocks[first:last] if type(one) is MemoryBlock and one.nbytes]
        if not parts:
            return None
        self.replaced |= {id(one): one for one in parts}
        self._blocks = [one for one in self._blocks if id(one) not in self.replaced]
        self._starts = [one.address for one in self._blocks]
        high = max(high, *(one.address + one.nbytes for one in parts))
        self.add(made := MemoryBlock([one.holder for one in parts], low, high - low))
        return made


def memory_of(blocks: MemoryBlocks, holder: Any, start: int, size: int) -> MemoryBlock:
    """Return the memory that holds this part of itself."""
    found = blocks.find(start, start + size) if size else None
    if found is None:
        blocks.add(found := MemoryBlock(holder, start, size))
    return found
