"""What the tracker keeps of one name, and what it collects while it settles many.

Rule: of a value, only a small immutable is kept; of all others a fingerprint and a weak reference.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ctxkernel.core.timeline import TypeInfo

NOTHING: Any = object()
_ATOMS = frozenset(map(id, (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented))))
_SMALL_TEXT = 1024


@dataclass(slots=True, eq=False)
class Variable:
    """What is kept of one name."""

    atom: Any = NOTHING
    visible: bytes = b""
    """Hash of what an array shows of memory that others look into too."""
    turn: int = 0
    """The turn in which it was last known to be what is kept of it."""
    weak: weakref.ref[Any] | None = None
    info: TypeInfo | None = None


def is_atom(value: object) -> bool:
    """Say whether a value is an immutable so small that it is kept itself."""
    cls = type(value)
    if cls is float:
        return value == value  # noqa: PLR0124 - NaN is compared by identity, so it is not kept by value
    if cls is str or cls is bytes:
        return len(value) <= _SMALL_TEXT  # type: ignore[arg-type]
    if cls is int:
        return -(1 << 512) < value < (1 << 512)  # type: ignore[operator]
    return id(cls) in _ATOMS


def same_atoms(old: object, new: object) -> bool:
    """Say whether two small immutables are of one type and value."""
    # By text for numbers: 0.0 and -0.0 are equal but not the same, nan is the same but not equal.
    cls = type(old)
    if cls is not type(new):
        return False
    return repr(old) == repr(new) if cls is float or cls is complex else old == new


def weak_reference(value: object) -> weakref.ref[Any] | None:
    """Return a weak reference, None where the type has none (list, dict, int)."""
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Return the first of the names in one line, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
