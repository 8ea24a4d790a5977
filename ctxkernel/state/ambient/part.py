"""The interface of a part of the ambient state, and tokens for objects without a stored form.

A value of a part names such an object (a handler, a figure, an observer) by its token. `LiveObjects` keeps the object
alive so that a return finds it; it is bounded. A token of another process is never found, so it is named.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
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
    """The module that must be loaded; empty for none."""
    imports: ClassVar[bool] = True
    """Whether a restore imports that module; else it returns the text of `absent`."""
    always: ClassVar[bool] = False
    """Whether a return restores it also where its value is the same in both states."""
    passive: ClassVar[bool] = False
    """Whether no other cell, and no other run of the cell, depends on a change of it."""

    appears: ClassVar[bool] = False
    """Whether it is captured from the first change on that a cell makes; before that it has its default."""

    active: Any = True
    """Whether there is anything to capture where `needs` is loaded; a property of some parts."""

    def begin(self) -> None:
        """Prepare for the first cell, which runs next."""

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
        """Return the parts of `value` that a process without the library lacks, for people; empty for none."""
        return ""

    looks_at_names: ClassVar[bool] = False
    """Whether `bound` is to be called."""

    def bound(self, names: Collection[str] | None) -> None:
        """Note which names of the namespace were bound or deleted since the last call; None: any may have been."""

    def stamp(self) -> object:
        """Return a cheap value that is equal as long as nothing changed; the value itself where that is cheap."""
        return self.capture()

    @property
    def loaded(self) -> bool:
        """Return whether there is anything to capture."""
        return (not self.needs or self.needs in sys.modules) and bool(self.active)

    def default(self) -> Any:
        """Return the value of a library that was just loaded, None where that is not known."""
        return None


class Setting(Part):
    """A part that is read and set by a function each."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Any],
        write: Callable[[Any], object],
        *,
        needs: str = "",
        default: Callable[[], Any] = lambda: None,
    ) -> None:
        self.name, self.needs = name, needs
        self.capture, self._write, self.default = read, write, default

    def restore(self, value: Any) -> None:
        """Set the value; return no lines."""
        self._write(value)


MOST = 1000


class LiveObjects:
    """A bounded table of strong references, by token."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._objects: dict[str, Any] = {}
        self._tokens: dict[int, str] = {}
        self._count = 0

    @functools.cached_property
    def _process(self) -> str:
        """The beginning of this process's tokens, made with the first one: a fork has another than its parent."""
        return os.urandom(6).hex()

    def token(self, obj: Any) -> str:
        """Return the token of an object, the same as long as it is in the table."""
        token = self._tokens.get(id(obj))
        if token is None:
            self._count += 1
            token = self._tokens[id(obj)] = f"{self._process}-{self._count}"
        else:
            del self._objects[token]
        self._objects[token] = obj  # the newest is last
        if len(self._objects) > self._most:
            self._drop(next(iter(self._objects)))
        return token

    def _drop(self, token: str) -> None:
        obj = self._objects.pop(token)
        if self._tokens.get(id(obj)) == token:
            del self._tokens[id(obj)]

    def get(self, token: str) -> Any:
        """Return the object. Raises KeyError where it is not in the table."""
        return self._objects[token]

    def __contains__(self, token: object) -> bool:
        return token in self._objects

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield the tokens with their objects."""
        return iter(tuple(self._objects.items()))

    def adopt(self, token: str, obj: Any) -> None:
        """Let a token name `obj` from now on: a copy that was loaded in the place of the object that it named."""
        if token in self._objects:
            self._drop(token)
        self._objects[token] = obj
        self._tokens[id(obj)] = token

    def here(self, token: str) -> bool:
        """Return whether this process gave the token."""
        return token.startswith(self._process)
