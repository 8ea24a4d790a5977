"""Search in a pickle for values that programs compare by identity: NaN, and the text `argparse.SUPPRESS`.

A search for bytes finds the pattern of NaN by chance in long lists of numbers. Only then the opcodes are read.
"""

from __future__ import annotations

import pickletools
import re
import sys
from collections.abc import Collection, Sequence

_TEXT = b"==SUPPRESS=="
_NANS = (b"G\x7f\xf8", b"G\xff\xf8", b"\0\0\xf8\x7f")
"""The bytes of NaN as a float and, the other way round, as a `numpy.float64`."""
_LONG = 1024
_LENGTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_HEADS = {
    ord(one.code): _LENGTHS[one.arg.n] for one in pickletools.opcodes if one.arg is not None and one.arg.n in _LENGTHS
}
"""Opcodes before a content → the bytes of its length."""


def _others() -> re.Pattern[bytes]:
    """Return the pattern of opcodes with an argument of a fixed size, except a float that is NaN."""
    by_size: dict[int, bytes] = {}
    for one in pickletools.opcodes:
        size = 0 if one.arg is None else one.arg.n
        if size >= 0 and one.code != "G":
            by_size[size] = by_size.get(size, b"") + re.escape(one.code.encode("latin-1"))
    ways = [rb"G(?!\x7f\xf8|\xff\xf8).{8}"]
    ways += [b"[" + codes + b"].{%d}" % size for size, codes in by_size.items()]
    return re.compile(b"(?:" + b"|".join(ways) + b")*+", re.DOTALL)


_OTHERS = _others()


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
    while (at := _OTHERS.match(stream, at).end()) < len(stream):  # type: ignore[union-attr]  an empty match is one
        size = _HEADS.get(stream[at])
        if size is None:  # a NaN, or an opcode of an old protocol
            return True
        start = at + 1 + size
        at = start + (0 if start in cuts else int.from_bytes(stream[at + 1 : start], "little"))
        if at - start == 8 and stream.endswith(_NANS[2], start, at):
            return True
    return False
