"""What the tracker keeps of one name, and what it collects while it settles many.

Rule: of a value, only a small immutable is kept; of all others a fingerprint and a weak reference.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable
from typing import Any

from ctxkernel.core.ports import Expired
from ctxkernel.core.timeline import ChangeInfo, TypeInfo
from ctxkernel.state.flat import ATOMS
from ctxkernel.state.survey import Survey

NOTHING: Any = object()
"""Stands for no value."""
_SMALL_TEXT = 1024


class Variable:
    """What is kept of one name."""

    __slots__ = ("atom", "info", "survey", "weak")

    def __init__(self) -> None:
        self.atom: Any = NOTHING
        """The value itself, where it is a small immutable."""
        self.survey: Survey | None = None
        self.weak: weakref.ref[Any] | None = None
        self.info: TypeInfo | None = None


def is_atom(value: object) -> bool:
    """Say whether a value is an immutable so small that it is kept itself."""
    cls = type(value)
    if cls is str or cls is bytes:
        return len(value) <= _SMALL_TEXT  # type: ignore[arg-type]
    if cls is int:
        return -(1 << 512) < value < (1 << 512)  # type: ignore[operator]
    return id(cls) in ATOMS


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


def some_of(names: list[str]) -> str:
    """Return the first of the names, and how many more there are."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


class Found:
    """What `_settle` has found so far."""

    def __init__(self, moved: Iterable[str], replaced: Collection[str], expired: Expired) -> None:
        self.moved = frozenset(moved)
        """Names that stand at another address."""
        self.replaced = replaced
        """Names that the cell binds anew, at whatever address."""
        self.expired = expired
        self.added: dict[str, TypeInfo] = {}
        self.changed: dict[str, ChangeInfo] = {}
        self.faulty: list[str] = []
        self.late: list[str] = []
        self.unknown: list[str] = []
        self.parts: dict[str, str] = {}

    def partly(self, name: str, survey: Survey) -> None:
        """Note that not all of `name` was compared."""
        self.parts[name] = survey.reason or (f"{survey.nbytes:,} bytes" if survey.nbytes else "a part")

    def said(self) -> str:
        """One line on what may have been missed; empty where nothing was."""
        told: list[str] = []
        if self.late:
            told.append(f"time ran out before looking at {some_of(self.late)}")
        if self.parts:
            told.append("only sampled: " + some_of([f"{name} ({why})" for name, why in self.parts.items()]))
        if self.unknown:
            told.append(f"no earlier state to compare: {some_of(self.unknown)}")
        if self.faulty:
            told.append(f"could not be looked into: {some_of(self.faulty)}")
        return "; ".join(told)
