"""The check whether the data of checkpoints are in a chunk store."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from ctxkernel.core.errors import StoreError
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.manifest import References, Unit


class Presence:
    """The check of the data of checkpoints in a chunk store; each address is checked once.

    Create it after the manifests were read: data are stored before their manifest.
    """

    def __init__(self, chunks: ChunkStore, references: References, *, verify: bool) -> None:
        chunks.refresh()
        self._chunks = chunks
        self._references = references
        self._verify = verify
        """Whether data are read and compared with their addresses, or only must exist."""
        self._units: dict[int, tuple[Unit, str]] = {}
        self._look_at: Callable[[str], str] = functools.cache(self._fault_at)

    def gaps(self, state: Mapping[str, Unit]) -> dict[str, str]:
        """Return the names of a state whose data are missing or damaged, and why."""
        return {name: why for name, unit in state.items() if (why := self.fault(unit))}

    def fault(self, unit: Unit) -> str:
        """Return the fault of the data of a unit, or an empty text."""
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
        except Exception as error:  # a damaged blob can raise anything
            return f"its data cannot be read ({type(error).__name__}: {str(error)[:200]})"
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
