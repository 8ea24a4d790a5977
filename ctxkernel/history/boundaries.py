"""The places where history may be cut: the gaps that every property allows.

Gap g is before the event at g; gap len(events) is after the last one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadHistory
from ctxkernel.history.events import Events
from ctxkernel.history.invariants import PROPERTIES, Property


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The manipulation indices of a history of `length` events, in order."""

    indices: Sequence[int]
    length: int

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __contains__(self, gap: object) -> bool:
        return isinstance(gap, int) and bisect_left(self.indices, gap) < bisect_right(self.indices, gap)

    def find_next(self, threshold: int, strict: bool = False) -> int:
        """Return the first index ≥ `threshold`, or > `threshold` if `strict`; `length` if there is none.

        Raises BadHistory for a threshold past the end.
        """
        if threshold > self.length:
            raise BadHistory(f"no gap {threshold} in a history of {self.length} events; the last gap is {self.length}")
        place = (bisect_right if strict else bisect_left)(self.indices, threshold)
        return self.indices[place] if place < len(self.indices) else self.length

    def find_last(self, threshold: int) -> int:
        """Return the last index ≤ `threshold`; 0 if there is none."""
        place = bisect_right(self.indices, threshold)
        return self.indices[place - 1] if place else 0


def boundaries(events: Events, properties: Sequence[Property] = PROPERTIES) -> Boundaries:
    """Return the gaps that all `properties` allow; without any property, all gaps."""
    everywhere = range(len(events) + 1)
    allowed: set[int] | None = None
    for one in properties:
        gaps = one.manipulation_indices(events)
        if gaps != everywhere:
            allowed = set(gaps) if allowed is None else allowed.intersection(gaps)
    return Boundaries(everywhere if allowed is None else sorted(allowed), len(events))
