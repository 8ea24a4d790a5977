"""The exchange of stored data of states between a folder of chunks and the store of a sweep.

    root-<digest>        the path to the statement of --from, with the manifest of its state
    results/<task>       signed results: a task that has one does not run again
    chunks/<address>     the data of states; only where the workers do not share the kernel's data folder

Rule: the name of a chunk is the hash of its content, so it is sent once, and a copy is checked against its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ctxkernel.core.errors import CtxError
from ctxkernel.state.checkpoints.units import references
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.mirror import RemoteFiles

MOST_BYTES = 1 << 30
"""Largest file of a store that is read."""
_FOLDER = "chunks"


class ChunkExchange:
    """Copies chunks between a folder and a store, both ways."""

    def __init__(self, chunks: ChunkStore, store: RemoteFiles) -> None:
        self._chunks, self._store = chunks, store
        self._there: set[str] | None = None
        """The chunks that are known to be in the store."""

    def send(self, manifests: Iterable[Mapping[str, Any]]) -> int:
        """Copy the missing data of manifests to the store; return the bytes that were copied. Raises StoreError."""
        if self._there is None:
            self._there = self._store.names(_FOLDER)
        sent = 0
        for manifest in manifests:
            for address in references(manifest, self._chunks.read):
                if address not in self._there:
                    content = bytes(self._chunks.read(address))
                    self._store.write(f"{_FOLDER}/{address}", content)
                    self._there.add(address)
                    sent += len(content)
        return sent

    def fetch(self, manifests: Iterable[Mapping[str, Any]]) -> int:
        """Copy the missing data of manifests to the folder; return the bytes that were copied. Raises CtxError."""
        got = 0

        def read(address: str) -> memoryview:
            nonlocal got
            if not self._chunks.has(address):
                content = self._store.read(f"{_FOLDER}/{address}", MOST_BYTES)
                if content is None:
                    raise CtxError(f"{self._store.url} has no chunk {address}: it was removed while the sweep ran")
                got += self._chunks.put(address, content)
            return self._chunks.read(address)

        for manifest in manifests:
            for address in references(manifest, read):
                if not self._chunks.has(address):
                    read(address)
        return got
