"""Names and types that the writing and the reading of streams share.

A stream is a pickle whose constructors are names of methods of `StreamRestorer`, not of functions in modules:
`ConstructorName("array")` is written as a call of the third seed. The names never change: streams are kept for months.
Seeds are objects that both sides have: they are in the memo before the first opcode, so that a dict of theirs is never
stored as content.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import one_line
from ctxkernel.state.types.object_names import ObjectNames

SMALL = 64 * 1024
"""Bytes from which on memory stays outside of the stream."""

Reduction = Any
"""A result of `__reduce_ex__`, or NotImplemented for objects that the pickler stores by itself."""

SEEDS = ("namespace", "builtins", "part", "sys.modules", "sys.path", "sys.argv", "_ih", "_oh", "_dh")
"""Longer from version to version, never another order."""


BEFORE_NAME = " "
"""Precedes each name in a stream: a name that is one object with a text in the values would be a reference to it."""


def plain_name(written: str) -> str:
    """Return a name as it is outside of streams; those of earlier versions have nothing before it."""
    return written.removeprefix(BEFORE_NAME)


class OutOfTime(Exception):
    """The time for this pack is used up."""


class Unfinished(OutOfTime):
    """The time is used up, and the next try begins where this one ended."""


class NotCopied(Exception):
    """The memory of a device cannot be read here."""


class ConstructorName:
    """A constructor in the stream: the method of `StreamRestorer` with this name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any) -> NoReturn:
        """Raise TypeError: the pickler requires a callable, and no code calls it."""
        raise TypeError(f"{self.name} is put together by a StreamRestorer")


PARTS: Any = types.SimpleNamespace()
"""Every constructor that reducers write, as an attribute: those that `StreamRestorer` has."""


@dataclass
class StreamConstructors:
    """A part of `StreamRestorer`: methods that streams call, and their data (see `Packer.unpack`)."""

    packer: ObjectNames
    labels: Sequence[str]
    """The labels of the numbers in the stream."""
    buffers: Sequence[Any]
    handle: Callable[[str], object]
    _live: Callable[[str], object | None]
    stand_in: Callable[[str], object]
    _classes: Callable[[str], object | None]
    _shared: Callable[[str], object | None]
    trial: bool
    """Whether new classes stay unknown outside of this stream."""
    again: Mapping[str, Any]
    """By uid, an `Again` for each living class that takes the content in the stream."""
    renames: Mapping[str, str]
    """Label in the stream → the label that is meant."""
    known: frozenset[str]
    """Uids of the classes that were alive before."""
    made: dict[str, type] = field(default_factory=dict[str, type])
    """By uid, the classes that this stream made."""
    said: list[str] = field(default_factory=list[str])
    """Differences between the restored values and the stored ones."""
    stand_ins: list[object] = field(default_factory=list[object])

    def living(self, number: int) -> Any:
        """Return the living object with this label, or None."""
        return self._live(self.labels[number].removeprefix("live:"))

    def again_of(self, cls: Any) -> Any:
        """Return the `Again` of a living class that takes the content in the stream; None for other classes."""
        return next((one for one in self.again.values() if one.cls is cls), None)

    def memory(self, data: Any) -> Any:
        """Return bytes of the stream, or the buffer with that number."""
        return self.buffers[data] if type(data) is int else data


class Lost:
    """A stand-in for an object that could not be stored. Every use raises RuntimeError with the next step.

    Names with a leading underscore are simply missing, so that displays, copies and `hasattr` work.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        object.__setattr__(self, "_what", what)

    def __repr__(self) -> str:
        return f"<lost: {object.__getattribute__(self, '_what')}>"

    def __reduce__(self) -> tuple[type[Lost], tuple[str]]:
        return Lost, (object.__getattribute__(self, "_what"),)

    def _raise(self, *_: Any, **__: Any) -> NoReturn:
        what = object.__getattribute__(self, "_what")
        raise RuntimeError(f"this is only a stand-in for {what}; run the cell that made it again")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._raise()

    __setattr__ = __call__ = __iter__ = __next__ = __len__ = __getitem__ = __setitem__ = __contains__ = _raise
    __enter__ = __bool__ = __add__ = __sub__ = __mul__ = __truediv__ = __lt__ = __le__ = __gt__ = __ge__ = _raise


def part_seed() -> NoReturn:
    """Stand for `StreamRestorer.part` while a stream is written."""
    raise TypeError("only in a stream")


def never() -> bool:
    """There is time."""
    return False


def said(fault: BaseException) -> str:
    """Return the type and the text of an exception of the user's."""
    try:
        text = one_line(str(fault))
    except Exception:  # its `__str__` is the user's
        text = ""
    name = type(fault).__name__
    return f"{name}: {text}" if text else name
