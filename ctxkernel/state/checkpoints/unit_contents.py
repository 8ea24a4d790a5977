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
    _variables: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])

    def same(self, one: Unit, other: Unit) -> bool:
        """Return whether no cell can tell the values of two units apart."""
        if one is other or one.equals(other):
            return True
        if one.names != other.names or not _comparable(one, other):
            return False
        key = self._key(one)
        return bool(key) and key == self._key(other)

    def alike(self, one: Unit, other: Unit) -> bool:
        """Return whether two units hold equal variables, whatever results of cells hold the same objects."""
        if _variables(one) != _variables(other) or not _comparable(one, other):
            return False
        keys = [self._key(each, results=False) for each in (one, other)]
        return bool(keys[0]) and keys[0] == keys[1]

    def _key(self, unit: Unit, *, results: bool = True) -> str:
        place, known = (unit.digest, *unit.chunks), self._known if results else self._variables
        if place not in known:
            known[place] = self._content(unit, results=results)
        return known[place]

    def _content(self, unit: Unit, *, results: bool) -> str:
        if unit.digest.startswith("p:") or not unit.stream[0]:
            return ""
        try:
            stream = units.unbundle(self.read(unit.stream[0]), unit.stream[1])
            if stream.nbytes > _MOST_BYTES:
                return ""
            chunks = [one.chunks for one in unit.buffers]
            values = values_of(stream, [one.nbytes for one in unit.buffers], chunks)
            if not results:
                values = {name: value for name, value in values.items() if not name.startswith(_RESULT)}
            return joint_fingerprint(values, chunks, code=results)
        except (StoreError, ValueError, TooLarge):
            return ""


def _comparable(one: Unit, other: Unit) -> bool:
    """Return whether all content of two units is in their streams, and they refer to the same objects."""
    if one.labels != other.labels or one.live or other.live or one.missing or other.missing or one.job or other.job:
        return False
    return bool(one.digest and other.digest)


def _variables(unit: Unit) -> list[str]:
    return sorted(name for name in unit.names if not name.startswith(_RESULT))


_RESULT = "Out["
