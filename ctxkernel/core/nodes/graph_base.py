"""The part of a graph that its nodes use: the guard of their state, and the services for rendering.

Rule: node state changes only in a statement or a tick (law 1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeVar

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import CtxError, OutsideTurn
from ctxkernel.core.ports import CountTokens, OpenSource, Trim
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline_events import Event

R = TypeVar("R")
NOTHING: Final = object()
_BASES = 64
"""Most bases of diffs that are kept for views that may be restored."""


def _no_widget(node: Any) -> Any:
    raise CtxError(
        f"{node.obj_id}.widget: there are widgets in a Jupyter kernel only; {node.obj_id}.rendered is its text"
    )


def _nothing() -> None: ...


@dataclass(kw_only=True, eq=False, repr=False)
class GraphBase(ABC):
    """The part of a `Graph` that its nodes use."""

    settings: Settings
    open_source: OpenSource
    count_tokens: CountTokens
    trim: Trim
    owner: Callable[[], bool] = lambda: True
    """Returns whether the caller is on the thread that may change nodes."""
    emit: Callable[[Event], None] = lambda event: None
    """Takes each event of a node; the loop sets it."""
    events: Callable[[], Iterable[tuple[str, Event]]] = field(default=tuple, init=False)
    """Returns (statement, event) for all events on the path to HEAD, oldest first; the loop sets it."""
    widget_of: Callable[[Any], Any] = field(default_factory=lambda: _no_widget, init=False)
    """Returns the widget of a node; the kernel sets it. Raises CtxError."""
    put_back: Callable[[], None] = field(default_factory=lambda: _nothing, init=False)
    """Called when the state of nodes opens: what was only asked of them is not in it (`AskedChanges`)."""
    session: str = field(default="", init=False)
    """The name of the session, for pickles; empty where it has none."""
    statement_id: str = field(default="", init=False)
    requested: set[str] = field(default_factory=set[str], init=False)
    named: frozenset[str] = field(default=frozenset(), init=False)
    """The obj_ids that the last question to the model names, as of the last tick."""
    restores: int = field(default=0, init=False)
    """The number of calls of `Graph.restore`: payloads from before one are stale."""
    _open_for: str | None = field(default=None, init=False)
    _bases: OrderedDict[tuple[Any, ...], Any] = field(default_factory=OrderedDict[tuple[Any, ...], Any], init=False)

    @abstractmethod
    def node(self, obj_id: str) -> Any:
        """Return the living node of that id, or one that is held for a restore; else None."""

    @abstractmethod
    def adopt(self, node: Any) -> None:
        """Give a new node its id: that of the same constructor call before, if any. Raises OutsideTurn."""

    @abstractmethod
    def call(self, node: Any, method: Callable[..., R], args: Any, kwargs: Any) -> R:
        """Run a state-changing method of `node` and record the call. Raises OutsideTurn."""

    @abstractmethod
    def keep(self, node: Any) -> None:
        """Keep a node alive though nothing holds it: a note."""

    @abstractmethod
    def let_go(self, node: Any) -> None:
        """End `keep`: its last name was deleted, or the user dropped it."""

    @contextmanager
    def opened(self, by: Literal["statement", "tick"]) -> Generator[None]:
        """Allow changes of node state within the context."""
        self.put_back()
        before, self._open_for = self._open_for, by
        try:
            yield
        finally:
            self._open_for = before

    def open(self, statement_id: str) -> None:
        """Begin a statement: node state may change until `close`."""
        self.put_back()
        self._open_for = "statement"
        self.statement_id = statement_id

    def close(self) -> None:
        """End the turn: node state may not change any more."""
        self._open_for = None

    def check_open(self, what: str, method: str) -> None:
        """Raise OutsideTurn unless a statement or a tick is running, on this thread."""
        self.check_owner(what, method)
        if self._open_for is None:
            raise OutsideTurn(
                f"{what}.{method}(…) was called outside of a statement; "
                "call it in a cell, so that it stands in the timeline (a callback can change a handle, not make one)"
            )

    def check_owner(self, what: str, name: str) -> None:
        """Raise OutsideTurn on any thread but the one that cells and ticks run on."""
        if not self.owner():
            raise OutsideTurn(
                f"{what}.{name} was used from another thread, and handles change in cells and at the tick after them; "
                "prepare data there, and change the handle in a cell"
            )

    @property
    def ticking(self) -> bool:
        """Return whether a tick is running, in which node state may change."""
        return self._open_for == "tick"

    def keep_basis(self, key: tuple[Any, ...], basis: object) -> None:
        """Keep the basis of a diff at level 3, and the rows of tables, for a view that is restored to this state."""
        self._bases[key] = basis
        self._bases.move_to_end(key)
        if len(self._bases) > _BASES:
            self._bases.popitem(last=False)

    def kept_basis(self, key: tuple[Any, ...]) -> Any:
        """Return the basis that was kept under `key`, or None."""
        return self._bases.get(key)
