"""The interface of a part of the ambient state."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

UNKNOWN = "ctxkernel: not known"
"""The key of a value that stands for a part that could not be captured: `{UNKNOWN: reason}`."""


class NotRestored(Exception):
    """Part of a value could not be restored. The text says which, and why, in one line."""


class Part:
    """One part of the ambient state. Subclass it, and `register` an instance.

    Holds: `capture` returns a plain value (text, numbers, lists, dicts), a new one where something changed;
    `restore(capture())` changes nothing. A live object is in the value by its token (`LiveObjects`).
    """

    name: str
    needs: str = ""
    """The module that must be loaded for it to mean anything; empty for none."""
    imports: ClassVar[bool] = True
    """Whether a restore imports that module; else it returns what `absent` says."""
    always: ClassVar[bool] = False
    """Whether a return restores it also where its value is the same in both states."""
    passive: ClassVar[bool] = False
    """Whether a cell that changes it does nothing that another run of it, or of another cell, depends on."""

    active: Any = True
    """Whether there is anything to capture where `needs` is loaded; a property of some parts."""

    def capture(self) -> Any:
        """Return the current value."""
        raise NotImplementedError

    def restore(self, value: Any) -> Sequence[str] | None:
        """Restore a value that `capture` returned, maybe in another process; return lines for the user, if any.

        Raises NotRestored, or any other exception, for what could not be restored. The rest is restored then.
        """
        raise NotImplementedError

    def matches(self, value: Any) -> bool:
        """Return whether restoring `value` would change nothing."""
        return self.capture() == value

    def absent(self, value: Any) -> str:
        """Return what a process that has not loaded the library lacks of `value`, for people; empty for nothing."""
        return ""

    looks_at_names: ClassVar[bool] = False
    """Whether `bound` is to be called."""

    def bound(self, names: Collection[str] | None) -> None:
        """Take in which names of the namespace were bound or deleted since the last call; None for any."""

    def stamp(self) -> object:
        """Return a cheap value that is equal as long as nothing changed; the value itself where that is cheap."""
        return self.capture()

    @property
    def loaded(self) -> bool:
        """Whether there is anything to capture."""
        return (not self.needs or self.needs in sys.modules) and bool(self.active)

    def default(self) -> Any:
        """Return the value of a library that was just loaded, None where that is not known."""
        return None


class Setting(Part):
    """A part that is read and set by a function each."""

    def __init__(self, name: str, read: Callable[[], Any], write: Callable[[Any], object], *, needs: str = "") -> None:
        self.name, self.needs = name, needs
        self.capture, self._write = read, write

    def restore(self, value: Any) -> None:
        """Set it; what the function returns is no line for the user."""
        self._write(value)
