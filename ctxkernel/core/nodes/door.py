"""The part of a graph that its nodes use: the door to their state, and the services that they render with.

Rule: node state changes in a statement or a tick, nowhere else (law 1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from ctxkernel.core.errors import OutsideTurn
from ctxkernel.core.events import Event
from ctxkernel.core.ports import CountTokens, OpenSource, Trim
from ctxkernel.core.settings import Settings

R = TypeVar("R")
NOTHING: Final = object()
_BASES = 64
"""So many bases of diffs are kept for views that may be set back."""


@dataclass(kw_only=True, eq=False, repr=False)
class Door(ABC):
    """The part of a `Graph` that its nodes use."""

    settings: Settings
    open_source: OpenSource
    count_tokens: CountTokens
    trim: Trim
    owner: Callable[[], bool] = lambda: True
    """Says whether the caller is on the thread that may change nodes; core knows none."""
    emit: Callable[[Event], None] = lambda event: None
    """Takes each event of a node; the loop sets it."""
    events: Callable[[], Iterable[tuple[str, Event]]] = field(default=tuple, init=False)
    """Gives (statement, event) for all events on the way to HEAD, oldest first; the loop sets it."""
    session: str = field(default="", init=False)
    """The name of the session, for pickles; empty where it has none."""
    statement_id: str = field(default="", init=False)
    requested: set[str] = field(default_factory=set[str], init=False)
    named: frozenset[str] = field(default=frozenset(), init=False)
    """The obj_ids that the last question to the model named, as of the last tick."""
    restores: int = field(default=0, init=False)
    """How often `Graph.restore` was called: what was prepared before is stale after."""
    _door: str | None = field(default=None, init=False)
    _bases: OrderedDict[tuple[Any, ...], Any] = field(default_factory=OrderedDict[tuple[Any, ...], Any], init=False)

    @abstractmethod
    def node(self, obj_id: str) -> Any:
        """Return the living node of that id, one that is held to be restored included, or None."""

    @abstractmethod
    def adopt(self, node: Any) -> None:
        """Give a new node its identity: that of the one which the same call gave before, if any. Raises OutsideTurn."""

    @abstractmethod
    def call(self, node: Any, method: Callable[..., R], args: Any, kwargs: Any) -> R:
        """Run a state-changing method of `node` with its record. Raises OutsideTurn."""

    @abstractmethod
    def keep(self, node: Any) -> None:
        """Let a node live though nobody holds it: a note is there to be sent, not to be called."""

    @abstractmethod
    def let_go(self, node: Any) -> None:
        """End `keep`: its last name was deleted, or the user dropped it."""

    @contextmanager
    def opened(self, door: Literal["statement", "tick"]) -> Generator[None]:
        """Let node state change while this holds."""
        before, self._door = self._door, door
        try:
            yield
        finally:
            self._door = before

    def open(self, statement_id: str) -> None:
        """A statement begins: node state may change until `close`."""
        self._door = "statement"
        self.statement_id = statement_id
        self.requested = set()

    def close(self) -> None:
        """The turn is over."""
        self._door = None

    def check_open(self, what: str, method: str) -> None:
        """Raise OutsideTurn unless a statement or a tick is under way, and this is its thread."""
        self.check_owner(what, method)
        if self._door is None:
            raise OutsideTurn(
                f"{what}.{method}(…) was called outside of a statement; "
                "call it in a cell, so that it stands in the timeline"
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
        """Whether a tick is under way, in which node state may change."""
        return self._door == "tick"

    def keep_basis(self, key: tuple[Any, ...], basis: object) -> None:
        """Keep what a view compares with at level 3, for when it is set back to this state."""
        self._bases[key] = basis
        self._bases.move_to_end(key)
        if len(self._bases) > _BASES:
            self._bases.popitem(last=False)

    def kept_basis(self, key: tuple[Any, ...]) -> Any:
        """The basis that was kept under `key`, or None."""
        return self._bases.get(key)
