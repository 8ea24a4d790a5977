"""Which data of checkpoints are in a chunk store, and why others are not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from ctxkernel.core.errors import StoreError
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.manifest import References, Unit


class Presence:
    """Looks whether all that checkpoints need is in a chunk store; each address once.

    To be made when their manifests have been read: data are stored before them, so all of theirs can be seen then.
    """

    def __init__(self, chunks: ChunkStore, references: References, *, verify: bool) -> None:
        chunks.refresh()
        self._chunks = chunks
        self._references = references
        self._verify = verify
        """Whether data are read and compared with their addresses, or only looked for."""
        self._units: dict[int, tuple[Unit, str]] = {}
        self._look_at: Callable[[str], str] = functools.cache(self._fault_at)

    def gaps(self, state: Mapping[str, Unit]) -> dict[str, str]:
        """Return the names of a state whose data are not there as they were stored, and why."""
        return {name: why for name, unit in state.items() if (why := self.fault(unit))}

    def fault(self, unit: Unit) -> str:
        """Return what is wrong with the data of a unit, or an empty text."""
        found = self._units.get(id(unit))
        if found is None:
            found = self._units[id(unit)] = unit, self._fault_of(unit)
        return found[1]

    def _fault_of(self, unit: Unit) -> str:
        if unit.get("j"):
            return "it was still being written when the kernel ended"
        try:
            addresses = list(self._references({"units": [unit]}, self._chunks.read))
        except StoreError as error:
            return str(error)
        except Exception as error:  # a damaged blob: whatever that makes of the reading of it
            return f"its data cannot be read ({type(error).__name__}: {error})"
        return next((found for address in addresses if (found := self._look_at(address))), "")

    def _fault_at(self, address: str) -> str:
        if not self._chunks.has(address):
            return self._chunks.why_missing(address)
        if self._verify:
            try:
                self._chunks.read(address)
            except StoreError as error:
                return str(error)
        return ""
