"""A pickled handle: a reference to the node of its session, and its text for use without that session."""

from __future__ import annotations

from typing import Any, NoReturn
from weakref import WeakValueDictionary

from ctxkernel.core.errors import BadAttribute

SESSIONS: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""The graphs of this process by the name of their session."""
_MOST_CHARS = 100_000


class Detached:
    """A handle that was unpickled without its session: read only, with `obj_id`, `obj_type`, `target` and `text`."""

    __slots__ = ("obj_id", "obj_type", "target", "text")

    obj_id: str
    obj_type: str
    target: str
    text: str
    """Its text when it was pickled."""

    def __init__(self, obj_id: str, obj_type: str, target: str, text: str) -> None:
        for name, value in zip(self.__slots__, (obj_id, obj_type, target, text), strict=True):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> NoReturn:
        raise BadAttribute(f"{self._told()}, so it has no {name!r}; {self._next()}")

    def __setattr__(self, name: str, value: object) -> None:
        raise BadAttribute(f"{self._told()}, so {name!r} cannot be set; {self._next()}")

    def _told(self) -> str:
        return f"{self.obj_id} was pickled, and its session or the handle is not here"

    def _next(self) -> str:
        return f"its text is what it showed, and {self.obj_type}(…) makes a live one"

    def __reduce__(self) -> tuple[Any, ...]:
        return Detached, (self.obj_id, self.obj_type, self.target, self.text)

    def __repr__(self) -> str:
        return f"<{self.obj_type} {self.obj_id} {self.target} detached: {self._next()}>"


def put(session: str, obj_id: str, obj_type: str, target: str, text: str) -> tuple[Any, ...]:
    """Return what pickle stores of a handle."""
    return take, (session, obj_id, obj_type, target, text[:_MOST_CHARS])


def take(session: str, obj_id: str, obj_type: str, target: str, text: str) -> Any:
    """Return the living handle of a session in this process, else a `Detached`. Pickle calls it."""
    graph = SESSIONS.get(session) if session else None
    node = graph.node(obj_id) or graph.aside(obj_id) if graph is not None else None
    return node if node is not None else Detached(obj_id, obj_type, target, text)
