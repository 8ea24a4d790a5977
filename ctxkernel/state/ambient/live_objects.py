"""Objects without a stored form that a part refers to: handlers of logging, figures, observers of widgets.

A value of a part names such an object by its token. The object is kept alive as long as its token may be asked for, so
that a return finds it; the table is bounded, and the object that was used longest ago leaves it first. A token of
another process is never found, so it is named.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

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
        """Begins its tokens. Made with the first one: a process may be forked from one that imported this."""
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
