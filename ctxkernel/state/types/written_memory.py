"""Memory that the variables of a namespace can write to: arrays of NumPy, and those in frames of pandas.

It is found in a variable, and in small lists, dicts and instances of the user's classes that are one. `WrittenMemory`
keeps what was found, so only values that are new or were touched are examined.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

from ctxkernel.core.reflection import CONTAINERS, SEQUENCES, class_of, is_any, is_kind, is_own_class
from ctxkernel.state.types.arrays import bounds_of
from ctxkernel.state.types.pack_state import PackState

_MOST_MEMBERS = 100
_SYSTEM = ("_", "In", "Out")
"""Names that begin so may be IPython's, whose content changes without a cell that touches it …"""
_RESULTS = "_0123456789"
"""… but for those of results, which are numbers."""


def is_written(pack: PackState, low: int, high: int) -> bool:
    """Return whether a variable can write to memory at these addresses."""
    blocks = pack.blocks
    if not blocks.is_current:
        try:
            _examine(pack)
        except BaseException:  # some values were not examined
            blocks.written.clear()
            raise
        blocks.is_current = True
    return blocks.written.overlaps(low, high)


def _examine(pack: PackState) -> None:
    """Take in the values of the namespace that are new, or were touched, since the last call."""
    known = pack.blocks.written
    names, values = tuple(pack.namespace), tuple(pack.namespace.values())
    if len(names) != len(values):  # a thread came between
        copied = dict(pack.namespace)
        names, values = tuple(copied), tuple(copied.values())
    kinds = _Kinds(pack)
    for at in known.unexamined(values):
        value, name = values[at], names[at]
        if kind := kinds.of(class_of(value)):
            lasting = kind != _HOLDER or not (str(name).startswith(_SYSTEM) and str(name).strip(_RESULTS))
            known.put(value, _memory(kinds, value, kind), lasting=lasting)


_ARRAY, _FRAME, _HOLDER = 1, 2, 3


class _Kinds:
    """The kinds of values, by their classes: a namespace has thousands of values of a few classes."""

    def __init__(self, pack: PackState) -> None:
        self.pack = pack
        self._known: dict[int, tuple[type, int]] = {}  # by id, so that no metaclass runs

    def of(self, cls: type) -> int:
        """Return the kind of the values of a class; 0 for those without memory of that sort."""
        if (found := self._known.get(id(cls))) is None:
            found = self._known[id(cls)] = cls, self._of_class(cls)
        return found[1]

    def _of_class(self, cls: type) -> int:
        if is_any(cls, ("pandas", "DataFrame"), ("pandas", "Series")):
            return _FRAME
        if is_kind(cls, sys.modules["numpy"].ndarray):
            return _ARRAY
        return _HOLDER if cls in CONTAINERS or is_own_class(cls, self.pack.module) else 0


def _memory(kinds: _Kinds, value: Any, kind: int) -> list[tuple[int, int]]:
    """Return the first addresses of the arrays in a value, each with the one after its last."""
    if kind == _ARRAY:
        return [bounds_of(value)]
    if kind == _FRAME:
        ndarray = sys.modules["numpy"].ndarray
        held = (block.values for block in value._mgr.blocks)
        return [bounds_of(one) for one in held if is_kind(class_of(one), ndarray)]
    members = _members(kinds.pack, value)
    classes = {id(cls): cls for cls in map(class_of, members)}  # by id, so that no metaclass runs
    if not any(kinds.of(cls) in (_ARRAY, _FRAME) for cls in classes.values()):
        return []
    inner = ((one, kinds.of(class_of(one))) for one in members)
    return [bounds for one, kind in inner if kind in (_ARRAY, _FRAME) for bounds in _memory(kinds, one, kind)]


def _members(pack: PackState, value: Any) -> Sequence[Any]:
    cls = class_of(value)
    if cls in SEQUENCES:
        return value[:_MOST_MEMBERS]
    held: Any = value if cls is dict else pack.plan(cls).dict_of(value)
    return list(itertools.islice(held.values(), _MOST_MEMBERS)) if class_of(held) is dict else []
