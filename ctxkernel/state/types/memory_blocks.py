"""Memory whose owner cannot be stored, found by its addresses."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class MemoryBlock:
    """Memory whose owner cannot be stored: of a library, or of an earlier restore."""

    holder: object
    address: int
    nbytes: int

    def holds(self, low: int, high: int) -> bool:
        """Whether these addresses lie in it."""
        return self.address <= low and high <= self.address + self.nbytes


FrameMemory = dict[int, tuple[Any, list[int]]]
"""By id of a frame: a weak reference to it, and the first and last addresses of the arrays in it, in turns."""


class MemoryBlocks:
    """Blocks of memory that packs of one moment met. `of_frames`: of frames that were not touched since."""

    def __init__(self, of_frames: FrameMemory | None = None) -> None:
        self.of_frames: FrameMemory = {} if of_frames is None else of_frames
        self._starts: list[int] = []
        self._blocks: list[Any] = []
        """In the order of their addresses."""
        self._longest = 0
        self.replaced: dict[int, MemoryBlock] = {}
        """By id, blocks that a larger one replaced."""
        self.written: Any = None
        """First and last addresses of memory that variables can write to, an array; None until somebody asks."""

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
