"""The names and values of a namespace: small immutables are kept, of other objects only addresses.

Rule 1: a snapshot holds addresses, no objects: keeping them alive would double the memory of a large rebinding.
Rule 2: so an equal address is no proof: an object may be gone, and another one have its address.
Rule 3: of a value, only a small immutable is kept; of all others a fingerprint and a weak reference.
"""

from __future__ import annotations

import functools
import operator
import re
import weakref
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import c_void_p, sizeof, string_at
from itertools import compress
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.reflection import class_of, is_any
from ctxkernel.core.timeline import TypeInfo

NOTHING: Any = object()
_ATOMS = frozenset(map(id, (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented))))
_SMALL_TEXT = 1024


@dataclass(slots=True, eq=False)
class Variable:
    """The data that the tracker keeps of one name."""

    atom: Any = NOTHING
    turn: int = 0
    """The last turn in which its value was known."""
    weak: weakref.ref[Any] | None = None
    info: TypeInfo | None = None


def is_atom(value: object) -> bool:
    """Return whether a value is an immutable so small that it is kept itself."""
    cls = type(value)
    if cls is float:
        return value == value
    if cls is str or cls is bytes:
        return len(value) <= _SMALL_TEXT  # type: ignore[arg-type]
    if cls is int:
        return -(1 << 512) < value < (1 << 512)  # type: ignore[operator]
    return id(cls) in _ATOMS


def same_atoms(old: object, new: object) -> bool:
    """Return whether two small immutables have the same type and value."""
    # By text for numbers: 0.0 and -0.0 are equal but not the same, nan is the same but not equal.
    cls = type(old)
    if cls is not type(new):
        return False
    return repr(old) == repr(new) if cls is float or cls is complex else old == new


def weak_reference(value: object, callback: Callable[[Any], object] | None = None) -> weakref.ref[Any] | None:
    """Return a weak reference; None where the type has none (list, dict, int), and of an array of NumPy.

    NumPy resizes no array that has one.
    """
    if is_any(class_of(value), ("numpy", "ndarray")):
        return None
    try:
        return weakref.ref(value, callback)
    except TypeError:
        return None


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Return the first of the names in one line, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


_INJECTED_WORDS = """
In Out exit quit get_ipython _ __ ___ _i _ii _iii _oh _dh _ih _sh __name__ __doc__ __package__ __loader__
__spec__ __builtin__ __builtins__ __file__ __annotations__ __annotate__ __conditional_annotations__ __warningregistry__
__session__ __nonzero__ __vsc_ipynb_file__ __IPYTHON__ __pyodide__
"""
_INJECTED = frozenset(_INJECTED_WORDS.split())
_NUMBERED = re.compile(r"_i?\d+\Z|__(?:builtins_dict__|compiled_fn|import_torch|resume_at)_\w+\Z")
"""Names of IPython's, and of the compiler of torch, whose compiled functions refer to them."""

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


class StartNames:
    """The names that the shell hides when the first cell begins. Each is hidden while it has the value of then.

    What the shell hides later is the user's: `%pylab` brings a thousand names, which cells use and bind anew.
    """

    __slots__ = ("_namespace", "values")

    def __init__(self, namespace: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self.values = values
        """Name → value, with changes of the shell until `begin`."""

    def begin(self) -> None:
        """Keep the values as they are now, but for the names that change by themselves (`_`, `In`)."""
        self.values = {name: value for name, value in self.values.items() if not _is_injected(name)}

    def __call__(self) -> set[str]:
        """Return the names that are hidden now. One that is gone is hidden, too."""
        return {name for name, value in [*self.values.items()] if self._namespace.get(name, value) is value}


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


class NameSnapshot:
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


_BLOCK = 2048


def name_differences(old: NameSnapshot, new: NameSnapshot) -> tuple[list[str], list[str], list[str]]:
    """Return the names that were added, that stand at another address, and that are gone."""
    added: list[str] = []
    moved: list[str] = []
    if new.at_names.startswith(old.at_names):
        for start in range(0, len(old.at_values), _BLOCK):
            left = old.at_values[start : start + _BLOCK]
            right = new.at_values[start : start + len(left)]
            if left != right:
                unequal = map(operator.ne, memoryview(left).cast("Q"), memoryview(right).cast("Q"))
                moved += compress(new.names[start // 8 : (start + _BLOCK) // 8], unequal)
        return list(new.names[len(old.names) :]), moved, []
    before = dict(zip(old.names, memoryview(old.at_values).cast("Q"), strict=True))
    for name, address in zip(new.names, memoryview(new.at_values).cast("Q"), strict=True):
        was = before.pop(name, None)
        if was is None:
            added.append(name)
        elif was != address:
            moved.append(name)
    return added, moved, list(before)
