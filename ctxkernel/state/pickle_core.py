"""What taking objects apart and putting them together again have in common.

A stream is a pickle whose constructors are names of `Restorer`'s methods, not of functions in modules: `Part("array")`
is written as a call of the third seed. These names stay what they are: streams are kept for months. Seeds are objects
that both sides know: they are in the memo before the first opcode, so that a list or dict of theirs is never taken
for content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

SMALL = 64 * 1024
"""Bytes from which on memory stays outside of the stream."""

Reduction = Any
"""What `__reduce_ex__` may return, or NotImplemented for what the pickler does by itself."""

SEEDS = ("namespace", "builtins", "part", "sys.modules", "sys.path", "sys.argv", "_ih", "_oh", "_dh")
"""Longer from version to version, never another order."""


class OutOfTime(Exception):
    """The time for this pack is used up."""


class Part:
    """A constructor in the stream: the method of `Restorer` with this name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any) -> NoReturn:
        """Raise TypeError: the pickler asks for something callable, and nobody calls it."""
        raise TypeError(f"{self.name} is put together by a Restorer")


def part_seed() -> NoReturn:
    """Stand for `Restorer.part` while a stream is written."""
    raise TypeError("only in a stream")


def never() -> bool:
    """There is time."""
    return False


Expired = Callable[[], bool]


def short(text: object, limit: int = 160) -> str:
    """Return untrusted text in one line of at most `limit` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def said(fault: BaseException) -> str:
    """Return what an exception of the user's says: its type and its text."""
    try:
        text = short(fault)
    except Exception:  # its `__str__` is the user's
        text = ""
    name = type(fault).__name__
    return f"{name}: {text}" if text else name
