"""Addresses of chunks: a buffer is stored in pieces of one size, each under a hash of its content."""

from __future__ import annotations

from xxhash import xxh3_128_hexdigest

from ctxkernel.core.ports import Expired
from ctxkernel.state.types.parts import OutOfTime, never

CHUNK = 4 * 1024 * 1024
"""Bytes of a large buffer that are hashed and stored as one."""


def chunks_of(view: memoryview, expired: Expired = never) -> tuple[str, ...]:
    """Return the addresses of the chunks of a buffer. Raises OutOfTime."""
    return tuple(chunk_address(view[at : at + CHUNK], expired) for at in range(0, view.nbytes, CHUNK))


def chunk_address(chunk: memoryview | bytes, expired: Expired = never) -> str:
    """Return the address of a chunk. Raises OutOfTime."""
    if expired():
        raise OutOfTime
    return f"x{xxh3_128_hexdigest(chunk)}"
