"""Which objects the names of a namespace stand for, at the cost of a copy of a list.

Rule 1: a snapshot holds addresses, no objects: keeping them alive would double the memory of a large rebinding.
Rule 2: so an address proves nothing by itself: an object may be gone and another one lie where it was.
"""

from __future__ import annotations

import functools
import re
from array import array
from collections.abc import Callable, Collection
from ctypes import c_void_p, sizeof, string_at
from typing import Any

_INJECTED_WORDS = """
In Out exit quit get_ipython _ __ ___ _i _ii _iii _oh _dh _ih _sh _exit_code __name__ __doc__ __package__ __loader__
__spec__ __builtin__ __builtins__ __file__ __annotations__ __annotate__ __conditional_annotations__ __warningregistry__
__session__ __nonzero__ __vsc_ipynb_file__ __IPYTHON__ __pyodide__
"""
_INJECTED = frozenset(_INJECTED_WORDS.split())
_NUMBERED = re.compile(r"_i?\d+\Z")

Hidden = Callable[[], Collection[str]] | Collection[str]


@functools.lru_cache(200_000)  # there may be ten thousand names
def _is_injected(name: str) -> bool:
    return name in _INJECTED or _NUMBERED.match(name) is not None


def of_user(names: Collection[object], hidden: Hidden) -> list[str]:
    """Return those of `names` that are the user's, in their order."""
    if not names:
        return []
    hidden = hidden() if callable(hidden) else hidden
    return [name for name in names if type(name) is str and not _is_injected(name) and name not in hidden]


def _slow_addresses(held: tuple[Any, ...]) -> bytes:
    return array("Q", map(id, held)).tobytes()


_HEAD = tuple.__basicsize__


def _fast_addresses(held: tuple[Any, ...]) -> bytes:
    """Copy them at once, where this interpreter keeps a tuple as CPython does."""
    return string_at(id(held) + _HEAD, 8 * len(held)) if held else b""


_SAMPLE = (object(), "sample", 10**20, (), None, object())
_IS_KNOWN = tuple.__itemsize__ == sizeof(c_void_p) == 8 and _fast_addresses(_SAMPLE) == _slow_addresses(_SAMPLE)
addresses = _fast_addresses if _IS_KNOWN else _slow_addresses
"""Return the addresses of the items of a tuple, eight bytes each."""


class Snapshot:
    """The names of a namespace in order, and the addresses of names and values."""

    __slots__ = ("at_names", "at_values", "names")

    def __init__(self, namespace: dict[str, Any]) -> None:
        names, values = tuple(namespace), tuple(namespace.values())
        if len(names) != len(values):  # a thread came between
            copied = dict(namespace)
            names, values = tuple(copied), tuple(copied.values())
        self.names: tuple[str, ...] = names
        self.at_names = addresses(names)
        self.at_values = addresses(values)


def differences(old: Snapshot, new: Snapshot) -> tuple[list[str], list[str], list[str]]:
    """Return the names that were added, that stand at another address, and that are gone."""
    if new.at_names.startswith(old.at_names):
        size = len(old.names)
        moved = [new.names[at] for at in _unequal(old.at_values, new.at_values[: len(old.at_values)])]
        return list(new.names[size:]), moved, []
    before = dict(zip(old.names, memoryview(old.at_values).cast("Q"), strict=True))
    added: list[str] = []
    moved = []
    for name, address in zip(new.names, memoryview(new.at_values).cast("Q"), strict=True):
        was = before.pop(name, None)
        if was is None:
            added.append(name)
        elif was != address:
            moved.append(name)
    return added, moved, list(before)


_BLOCK = 2048


def _unequal(old: bytes, new: bytes) -> list[int]:
    if old == new:
        return []
    found: list[int] = []
    for start in range(0, len(old), _BLOCK):
        left, right = old[start : start + _BLOCK], new[start : start + _BLOCK]
        if left != right:
            pairs = zip(memoryview(left).cast("Q"), memoryview(right).cast("Q"), strict=True)
            found += [start // 8 + at for at, (one, other) in enumerate(pairs) if one != other]
    return found
