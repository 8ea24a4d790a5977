"""Content of stored units beyond their bytes: equal for functions that were defined again with the same code.

Rule: in doubt two units differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ctxkernel.core.errors import StoreError
from ctxkernel.state.checkpoints import units
from ctxkernel.state.checkpoints.units import Unit
from ctxkernel.state.tracking.fingerprints import TooLarge, joint_fingerprint, values_of

_MOST_BYTES = 1 << 20
"""Larger streams are compared by their bytes alone."""


@dataclass(eq=False)
class UnitContents:
    """Compares units of one session. `read(blob)` gives the content of a blob."""

    read: Callable[[str], bytes | memoryview]
    _known: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])

    def same(self, one: Unit, other: Unit) -> bool:
        """Return whether no cell can tell the values of two units apart."""
        if one is other or one.equals(other):
            return True
        plain = one.names == other.names and one.labels == other.labels and not (one.live or other.live)
        if not plain or one.missing or other.missing or one.job or other.job or not (one.digest and other.digest):
            return False
        key = self._key(one)
        return bool(key) and key == self._key(other)

    def _key(self, unit: Unit) -> str:
        place = (unit.digest, *unit.chunks)
        if place not in self._known:
            self._known[place] = self._content(unit)
        return self._known[place]

    def _content(self, unit: Unit) -> str:
        if unit.digest.startswith("p:") or not unit.stream[0]:
            return ""
        try:
            stream = units.unbundle(self.read(unit.stream[0]), unit.stream[1])
            if stream.nbytes > _MOST_BYTES:
                return ""
            chunks = [one.chunks for one in unit.buffers]
            return joint_fingerprint(values_of(stream, [one.nbytes for one in unit.buffers], chunks), chunks)
        except (StoreError, ValueError, TooLarge):
            return ""
