"""The data of states on their way between a folder of chunks and the store of a sweep.

Rule: a chunk is named by its content, so it is sent once, and a copy is checked by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ctxkernel.core.errors import CtxError
from ctxkernel.state.checkpoints.units import references
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.sweeps.store import SharedStore

_PREFIX = "chunks/"


def store_chunks(manifests: Iterable[Mapping[str, Any]], chunks: ChunkStore, store: SharedStore) -> int:
    """Put the data of manifests into the store, if they are not there; return the bytes that were sent."""
    sent = 0
    for address in dict.fromkeys(one for manifest in manifests for one in references(manifest, chunks.read)):
        if not store.has(_PREFIX + address):
            content = bytes(chunks.read(address))
            store.write(_PREFIX + address, content)
            sent += len(content)
    return sent


def copy_chunks(manifests: Iterable[Mapping[str, Any]], chunks: ChunkStore, store: SharedStore) -> int:
    """Put the data of manifests into a folder, if they are not there; return the bytes. Raises CtxError."""
    got = 0

    def fetch(address: str) -> memoryview:
        nonlocal got
        if not chunks.has(address):
            content = store.read(_PREFIX + address)
            if content is None:
                raise CtxError(f"{store.url} has no chunk {address}: it was removed while the sweep ran")
            got += chunks.put(address, content)
        return chunks.read(address)

    for manifest in manifests:
        for address in references(manifest, fetch):
            if not chunks.has(address):
                fetch(address)
    return got
