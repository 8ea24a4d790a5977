"""Search in a pickle for values that programs compare by identity: NaN, and the text `argparse.SUPPRESS`.

A search for bytes finds the pattern of NaN by chance in long lists of numbers. Only then the opcodes are read.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Collection, Sequence

_TEXT = b"==SUPPRESS=="
_NANS = (b"G\x7f\xf8", b"G\xff\xf8", b"\0\0\xf8\x7f")
"""The bytes of NaN as a float and, the other way round, as a `numpy.float64`."""
_LONG = 1024


@functools.cache
def _opcodes() -> tuple[dict[int, int], re.Pattern[bytes]]:
    """Return the opcodes before a content with the bytes of its length, and a pattern of others, except a NaN."""
    import pickletools  # its tables take milliseconds, and few kernels need them

    lengths = {
        pickletools.TAKEN_FROM_ARGUMENT1: 1,
        pickletools.TAKEN_FROM_ARGUMENT4: 4,
        pickletools.TAKEN_FROM_ARGUMENT4U: 4,
        pickletools.TAKEN_FROM_ARGUMENT8U: 8,
    }
    heads: dict[int, int] = {}
    by_size: dict[int, bytes] = {}
    for one in pickletools.opcodes:
        size = 0 if one.arg is None else one.arg.n
        if size in lengths:
            heads[ord(one.code)] = lengths[size]
        elif size >= 0 and one.code != "G":
            by_size[size] = by_size.get(size, b"") + re.escape(one.code.encode("latin-1"))
    ways = [rb"G(?!\x7f\xf8|\xff\xf8).{8}"]
    ways += [b"[" + codes + b"].{%d}" % size for size, codes in by_size.items()]
    return heads, re.compile(b"(?:" + b"|".join(ways) + b")*+", re.DOTALL)


def needs_identities(pieces: Sequence[bytes], cuts: Collection[int] = ()) -> bool:
    """Return whether a stream contains NaN, or may contain the text `argparse.SUPPRESS`.

    `cuts`: where the contents are missing that are stored apart.
    """
    if any(_TEXT in one for one in pieces):
        return True
    return any(map(_has_pattern, pieces)) and _has_nan(b"".join(pieces), cuts)


def _has_pattern(stream: bytes) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None or len(stream) < _LONG:
        return any(one in stream for one in _NANS)
    data = numpy.frombuffer(stream, "u1")  # a search for bytes would stop often in a list of numbers
    at = numpy.flatnonzero(data == 0xF8)
    one, two, after = data[at - 1], data[at - 2], data[(at + 1) % len(data)]
    found = (two == ord("G")) & ((one == 0x7F) | (one == 0xFF)) | (two == 0) & (one == 0) & (after == 0x7F)
    return bool(found.any())


def _has_nan(stream: bytes, cuts: Collection[int]) -> bool:
    """Read the opcodes of a stream."""
    at = 0
    heads, others = _opcodes()
    while (at := others.match(stream, at).end()) < len(stream):  # type: ignore[union-attr]  an empty match is one
        size = heads.get(stream[at])
        if size is None:  # a NaN, or an opcode of an old protocol
            return True
        start = at + 1 + size
        at = start + (0 if start in cuts else int.from_bytes(stream[at + 1 : start], "little"))
        if at - start == 8 and stream.endswith(_NANS[2], start, at):
            return True
    return False
