"""Tokens of objects that the pickler stores by value although programs compare their identity.

`nan in values` and a key of a dict that is NaN are found by identity; argparse compares `argparse.SUPPRESS` with `is`.

Rule 1: only a stream in which `is_needed` finds such a value is packed with tokens: other values cost one search.
Rule 2: a token is made of the address of its object, so that a forked process gives the same one.
"""

from __future__ import annotations

import importlib
import math
import sys
import uuid

_TEXT = "==SUPPRESS=="
_NANS = (b"G\x7f\xf8", b"G\xff\xf8", b"\0\0\xf8\x7f")
"""The bytes of NaN as a float and, the other way round, as a `numpy.float64`."""
_LONG = 1024
MOST_IN_A_PACK = 1000
"""Objects that get a token in one pack; others are stored by value."""
_MOST = 10_000
"""Objects that are kept."""
_CONSTANTS = (("math", "nan"), ("numpy", "nan"), ("argparse", "SUPPRESS"))


def is_needed(stream: bytes) -> bool:
    """Say whether a part of a stream may contain NaN or the text `argparse.SUPPRESS`."""
    if _TEXT.encode() in stream:
        return True
    numpy = sys.modules.get("numpy")
    if numpy is None or len(stream) < _LONG:
        return any(one in stream for one in _NANS)
    data = numpy.frombuffer(stream, "u1")  # a list of numbers is full of what the search for bytes stops at
    at = numpy.flatnonzero(data == 0xF8)
    one, two, after = data[at - 1], data[at - 2], data[(at + 1) % len(data)]
    found = (two == ord("G")) & ((one == 0x7F) | (one == 0xFF)) | (two == 0) & (one == 0) & (after == 0x7F)
    return bool(found.any())


class Identities:
    """Objects by token, and the other way round. It keeps them, at most `_MOST`."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = f"nan-{uuid.uuid4().hex[:8]}"
        self._known: dict[str, object] = {}
        self._tokens: dict[int, str] = {}

    def token(self, obj: object) -> str:
        """Return the token of an object: for a constant of a module its name."""
        if (known := self._tokens.get(id(obj))) is None:
            names = (f"{one}.{name}" for one, name in _CONSTANTS if getattr(sys.modules.get(one), name, None) is obj)
            known = next(names, f"{self._process}-{id(obj):x}")
            self._add(known, obj)
        return known

    def object(self, token: str) -> object:
        """Return the object with a token; a new NaN where there is none. Raises ImportError for a constant."""
        if token not in self._known:
            module, _, name = token.rpartition(".")
            self._add(token, getattr(importlib.import_module(module), name) if module else float("nan"))
        return self._known[token]

    def _add(self, token: str, obj: object) -> None:
        if len(self._known) >= _MOST:
            self._begin()  # an address that is used again must not give an old token
        self._known[token] = obj
        self._tokens[id(obj)] = token


def value_of(label: str) -> object:
    """Return the value that a label stands for, whatever its identity."""
    return _TEXT if label.endswith(".SUPPRESS") else math.nan
