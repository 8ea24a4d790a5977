"""What taking objects apart and putting them together again have in common.

A stream is a pickle whose constructors are names of `Restorer`'s methods, not of functions in modules: `Part("array")`
is written as a call of the third seed. These names stay what they are: streams are kept for months. Seeds are objects
that both sides know: they are in the memo before the first opcode, so that a list or dict of theirs is never taken
for content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ctxkernel.state.pickling import Packer

SMALL = 64 * 1024
"""Bytes from which on memory stays outside of the stream."""

Reduction = Any
"""What `__reduce_ex__` may return, or NotImplemented for what the pickler does by itself."""

SEEDS = ("namespace", "builtins", "part", "sys.modules", "sys.path", "sys.argv", "_ih", "_oh", "_dh")
"""Longer from version to version, never another order."""


class OutOfTime(Exception):
    """The time for this pack is used up."""


class Unfinished(OutOfTime):
    """The time is used up, and the next try begins where this one ended."""


class Part:
    """A constructor in the stream: the method of `Restorer` with this name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any) -> NoReturn:
        """Raise TypeError: the pickler asks for something callable, and nobody calls it."""
        raise TypeError(f"{self.name} is put together by a Restorer")


_NAMES = """
adopt anonymous_map array array_view arrow bound cached_property cell class_dict closed_file closed_memory code
code_from database dict_iterator dict_view enum_member exception file fill fill_cell fill_class fill_exception
fill_frame fill_function fill_objects fill_ordered fill_tensor fill_weak_container found frame_block function handle
index_references live lock machine_values make_class mapped_file mapped_view member memory_block memoryview module
nameless_type new new_type objects ordered own_class position property released_memoryview remembering shared skip
stand_in tensor type_alias type_variable update_dict value weak weak_container weak_method weak_proxy wrapper
"""
PARTS: Any = type("Parts", (), {name: Part(name) for name in _NAMES.split()})
"""Every constructor that reducers write, as an attribute."""


class Constructors:
    """A part of `Restorer`: methods that streams call, and what they work with."""

    packer: Packer
    namespace: dict[str, Any]
    buffers: Sequence[Any]
    trial: bool
    """Whether nothing else is to know the classes that are made."""
    again: Mapping[str, Any]
    """By uid, an `Again` for each living class that is to become what the stream has."""
    known: frozenset[str]
    """Uids of the classes that were alive before."""
    made: dict[str, type]
    """By uid, the classes that this stream made."""
    labels: Sequence[str]
    said: list[str]
    """What could not be restored as it was."""
    _live: Callable[[str], Any]

    def living(self, number: int) -> Any:
        """Return what has this label and is alive still, or None."""
        return self._live(self.labels[number].removeprefix("live:"))

    def memory(self, data: Any) -> Any:
        """Return bytes of the stream, or the buffer with that number."""
        return self.buffers[data] if type(data) is int else data

    def made_class(self, uid: str, cls: type) -> None:
        """Know a class by its uid."""
        self.made[uid] = cls
        if not self.trial:
            self.packer.know(uid, cls)


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
