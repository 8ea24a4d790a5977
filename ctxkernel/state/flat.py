"""Writes many plain values as bytes at once: lists of numbers and texts, and lists of small records of them.

Rule 1: nothing is called on a value whose exact type is not known: a class may define `__index__` or `__hash__`, and so
may a metaclass. Types are compared by address.
Rule 2: what is written depends on the values only, not on who else refers to them.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from ctxkernel.state.snapshot import addresses

_PLAIN = (int, float, bool, type(None), complex, str, bytes, type(Ellipsis))
ATOMS = frozenset(id(kind) for kind in _PLAIN)
"""Ids of the plain types."""
_AT = {id(kind): addresses((kind,)) for kind in (*_PLAIN, dict, list, tuple)}
_dump: Callable[[Any, int], bytes] = marshal.dumps
_MOST_BYTES = 4 * 1024 * 1024
"""Most bytes that are written at once: of four thousand items, each may be the same huge text."""
_FEW = 6
"""Up to so many items, going through them one by one is faster."""
_MOST_PARTS = 100_000


def one_type(items: Sequence[Any]) -> bool:
    """Say whether all items are of the exact type of the first, which is a plain one, a dict, list or tuple."""
    at = _AT.get(id(type(items[0])))
    return at is not None and addresses(tuple(map(type, items))) == at * len(items)


def encode(items: Sequence[Any]) -> bytes | None:
    """Return `items` as bytes; None where one of them is not plain, or they are too large to be written at once."""
    if len(items) <= _FEW:
        return _few(items)
    kind = type(items[0])
    if id(kind) not in ATOMS:
        return None
    if one_type(items):
        if kind is float:
            return b"f" + struct.pack(f"{len(items)}d", *items)
        if kind is int:
            try:
                return b"i" + struct.pack(f"{len(items)}q", *items)
            except struct.error:  # beyond 64 bits
                return b"m" + _dump(items, 2) if _short_numbers(items) else None
        if kind is str:
            return _texts(items)
    elif not set(memoryview(addresses(tuple(map(type, items)))).cast("Q")) <= ATOMS:
        return None
    texts = [item for item in items if type(item) is str or type(item) is bytes]
    if sum(map(len, texts)) > _MOST_BYTES or not _short_numbers([item for item in items if type(item) is int]):
        return None
    # Version 2 writes what the items are worth; later ones also write who else refers to them.
    return b"m" + _dump(items, 2)


def _few(items: Sequence[Any]) -> bytes | None:
    for item in items:
        kind = type(item)
        if id(kind) not in ATOMS:
            return None
        if kind is str or kind is bytes:
            if len(item) > _MOST_BYTES // _FEW:
                return None
        elif kind is int and item.bit_length() > _MOST_BYTES // _FEW:
            return None
    return b"m" + _dump(items, 2)


def _short_numbers(items: Sequence[int]) -> bool:
    return sum(map(int.bit_length, items)) < 8 * _MOST_BYTES


def _texts(items: Sequence[str]) -> bytes | None:
    if sum(map(len, items)) > _MOST_BYTES:
        return None
    joined = "\0".join(items)
    if joined.count("\0") >= len(items):  # one holds the separator itself
        return b"m" + _dump(items, 2)
    return b"u" + joined.encode("utf-8", "surrogatepass")


def encode_records(items: Sequence[Any]) -> bytes | None:
    """Return dicts, lists or tuples of plain values as bytes; None where one is or holds something else."""
    if len(items) < 2 or not one_type(items):
        return None
    kind = type(items[0])
    if id(kind) in ATOMS:
        return None
    sizes = list(map(len, items))
    if sum(sizes) > _MOST_PARTS:
        return None
    parts: list[bytes | None] = [b"r" + kind.__name__.encode(), encode(sizes)]
    if kind is dict:
        parts.append(_keys(items))
        if parts[-1] is None:
            return None
        items = list(map(dict.values, items))
    held = list(chain.from_iterable(items))
    size = sizes[0]
    if size and sizes.count(size) == len(sizes):  # a table: its columns are of one type more often than its rows
        parts += [encode(held[at::size]) for at in range(size)]
    else:
        parts.append(encode(held))
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    return b"".join(b"%d:%b" % (len(part), part) for part in found)


def _keys(items: Sequence[Any]) -> bytes | None:
    keys = list(chain.from_iterable(items))
    if not keys:
        return b""
    if type(keys[0]) is not str or not one_type(keys):
        return None
    rows = list(map(tuple, items))
    if rows.count(rows[0]) == len(rows):  # safe to compare, as all are exact texts
        return encode(rows[0])
    return encode(keys)
