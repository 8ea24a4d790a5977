"""The graph that nodes live in: who is alive, the door to their state, and the way back to an earlier one.

Rule 1: node state changes in a statement or a tick, nowhere else (law 1); `Graph.call` is the one door.
Rule 2: every call through the door is a MethodCalled with the digests before and after it.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ctxkernel.core.errors import OutsideTurn
from ctxkernel.core.events import Delta, Event, EventBus, Json, MethodCalled, NodeChanged
from ctxkernel.core.nodes.detached import SESSIONS
from ctxkernel.core.nodes.policy import show_value
from ctxkernel.core.ports import CountTokens, OpenSource, Trim
from ctxkernel.core.settings import Settings

if TYPE_CHECKING:
    from ctxkernel.core.nodes.base import NodeBase

R = TypeVar("R")
NOTHING: Final = object()
AGAIN: Final = "again"
"""Counts handles that were made anew under their id, beside the types of nodes."""
_BASES = 64
"""So many bases of diffs are kept for views that may be set back."""


class Graph:
    """The nodes of a session, the door to their state, and the bus for what happens to them."""

    def __init__(
        self,
        *,
        settings: Settings,
        bus: EventBus,
        open_source: OpenSource,
        count_tokens: CountTokens,
        trim: Trim,
        owner: Callable[[], bool] = lambda: True,
    ) -> None:
        self.settings = settings
        self.owner = owner
        """Says whether the caller is on the thread that may change nodes; core knows none."""
        self.bus = bus
        self.open_source = open_source
        self.count_tokens = count_tokens
        self.trim = trim
        # Weak: a handle lives as long as the user (or a group, or Out) holds it, not longer.
        self._nodes: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        self._aside: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        self._listening: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        """Those of the nodes that want to hear of others: a thousand changed views must not cost a million calls."""
        self._held: dict[str, NodeBase] = {}
        self._kept: dict[str, NodeBase] = {}
        self._bases: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._door: str | None = None
        self._calls: list[NodeBase] = []
        self.statement_id = ""
        self.requested: set[str] = set()
        self.named: frozenset[str] = frozenset()
        """The obj_ids that the last question to the model named, as of the last tick."""
        self.events: Callable[[], Iterable[tuple[str, Event]]] = tuple
        """Gives (statement, event) for all events on the way to HEAD, oldest first; the loop sets it."""
        self.again: Callable[[NodeBase], str | None] = lambda node: None
        """Gives the id that the same constructor call gave when its cell ran before, or None; the loop sets it."""
        self.session = ""
        """The name of the session, for pickles; empty where it has none."""
        self.restores = 0
        """How often `restore` was called: what was prepared before is stale after."""

    def name(self, session: str) -> None:
        """Say which session this is, so that a pickled handle is this graph's again."""
        self.session = session
        SESSIONS[session] = self

    def nodes(self) -> list[NodeBase]:
        """The living nodes, in the order of their creation."""
        if not self._nodes:  # most notebooks, most of the time; asked several times a cell
            return []
        return sorted(self._nodes.values(), key=lambda node: node.serial)

    def node(self, obj_id: str) -> NodeBase | None:
        """The living node of that id, one that is held to be restored included, or None."""
        return self._nodes.get(obj_id) or self._held.get(obj_id)

    def adopt(self, node: NodeBase) -> None:
        """Give a new node its identity: that of the one which the same call gave before, if any. Raises OutsideTurn."""
        self.check_open(node.obj_type, "new")
        again = self.again(node)
        if again is not None:  # not one of the nodes before `settle`: what it takes the place of may live
            node.obj_id, node.statement_id = again, self.statement_id
            return
        number = self._counts.get(node.obj_type, 0) + 1
        self._counts[node.obj_type] = number
        node.obj_id = f"{node.obj_type[0]}{number}"
        node.serial = sum(self._counts.values())
        node.statement_id = self.statement_id
        self._add(node)
        if node.lasting:
            self._kept[node.obj_id] = node

    def _add(self, node: NodeBase) -> None:
        self._nodes[node.obj_id] = node
        if node.listens:
            self._listening[node.obj_id] = node

    def settle(self, made: NodeBase) -> NodeBase:
        """Return the node that a constructor call gives: `made`, or the one that lives and becomes what `made` is."""
        if self._nodes.get(made.obj_id) is made:
            return made
        old = self._nodes.get(made.obj_id) or self._aside.get(made.obj_id)
        node = made
        if old is not None and type(old) is type(made):
            node = old
            vars(node).update(vars(made))  # in one step: another thread may look at it
            for name in vars(node).keys() - vars(made).keys():
                delattr(node, name)
        self.restores += 1  # what was prepared for the one before is stale
        self._counts[AGAIN] = self._counts.get(AGAIN, 0) + 1
        node.serial = sum(self._counts.values())  # made anew, whether it lived or not: that depends on who held it
        self._add(node)
        self._aside.pop(node.obj_id, None)
        if node.lasting:
            self._kept[node.obj_id] = node
        return node

    # -- going back ---------------------------------------------------------------------------

    @property
    def counts(self) -> Mapping[str, int]:
        """How many nodes of each type were ever made: the numbers of their newest ids. They never go back."""
        return dict(self._counts)

    def continue_after(self, counts: Mapping[str, int]) -> None:
        """Give no new node an id that these counts cover: another branch, or an earlier kernel, has it."""
        for obj_type, count in counts.items():
            self._counts[obj_type] = max(self._counts.get(obj_type, 0), count)

    def memento(self) -> Mapping[str, Mapping[str, Json]]:
        """Return the state of each living node by its id, as JSON values (see `nodes.memento`).

        An unchanged node gives the same object again, so that it can be told by identity.
        """
        return {node.obj_id: node.memento() for node in self.nodes()}

    def targets(self) -> Mapping[str, object]:
        """Return by obj_id what each living view looks at: the Python object, or the path as text.

        A view whose target is lost has none. (A path is in the view's memento too.)
        """
        found = {node.obj_id: node.looks_at for node in self.nodes()}
        return {obj_id: target for obj_id, target in found.items() if target is not NOTHING}

    def revive(self, mementos: Mapping[str, Mapping[str, Json]]) -> list[str]:
        """Let `node(obj_id)` give a node for each memento until `release`, blank where none lived; returns notices.

        For whoever unpickles objects that hold handles, before `restore` is told what the handles look at. It changes
        no node: the blank ones are no part of `nodes()` before `restore`.
        """
        from ctxkernel.core.nodes import memento

        with self.opened("tick"):
            return memento.revive(self, mementos)

    def restore(self, mementos: Mapping[str, Mapping[str, Json]], targets: Callable[[str], object]) -> list[str]:
        """Bring the nodes to the state of `mementos`, in place where they live; returns notices.

        `targets(obj_id)` gives the object that a view looks at, and may raise (a path stands in the memento, so it is
        not asked for one): a target that is not there leaves the view with what it showed and a fault. New nodes are
        held until `release`. Other living nodes stand aside: they are whoever's holds them, and no part of the
        timeline until they are called or restored.
        """
        from ctxkernel.core.nodes import memento

        with self.opened("tick"):
            self.restores += 1
            return memento.restore(self, mementos, targets)

    def release(self) -> None:
        """Hold restored nodes no longer: by now a name, a group or a list does, or nobody."""
        self._held = {}

    def aside(self, obj_id: str) -> NodeBase | None:
        """The node of that id that stands aside, or None."""
        return self._aside.get(obj_id)

    def rejoin(self, node: NodeBase) -> None:
        """Let a node that stands aside be one of the nodes again: the user has it, and uses it."""
        if node.obj_id not in self._nodes:
            self._add(node)
            self._aside.pop(node.obj_id, None)

    def hold(self, node: NodeBase) -> None:
        """Keep a node alive until `release`."""
        self._held[node.obj_id] = node

    def keep(self, node: NodeBase) -> None:
        """Let a node live though nobody holds it: a note is there to be sent, not to be called."""
        self._kept[node.obj_id] = node

    def let_go(self, node: NodeBase) -> None:
        """End `keep`: its last name was deleted, or the user dropped it."""
        if node.lasting:
            node.lasting = False
            self._kept.pop(node.obj_id, None)

    def replace(self, nodes: Sequence[NodeBase]) -> None:
        """Make these the nodes; all others stand aside. For `restore` only."""
        stay = {node.obj_id: node for node in nodes}
        for node in list(self._nodes.values()):
            if node.obj_id not in stay:
                self._aside[node.obj_id] = node
        self._nodes, self._listening = weakref.WeakValueDictionary(), weakref.WeakValueDictionary()
        self._kept = {node.obj_id: node for node in nodes if node.lasting}
        for node in nodes:
            self._add(node)
            self._aside.pop(node.obj_id, None)
            if node.obj_id[1:].isdecimal():
                self.continue_after({node.obj_type: int(node.obj_id[1:])})

    def keep_basis(self, key: tuple[Any, ...], basis: object) -> None:
        """Keep what a view compares with at level 3, for when it is set back to this state."""
        self._bases[key] = basis
        self._bases.move_to_end(key)
        if len(self._bases) > _BASES:
            self._bases.popitem(last=False)

    def kept_basis(self, key: tuple[Any, ...]) -> Any:
        """The basis that was kept under `key`, or None."""
        return self._bases.get(key)

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

    def emit(self, event: Event) -> None:
        """Publish an event of a node."""
        self.bus.publish(event)

    @property
    def ticking(self) -> bool:
        """Whether a tick is under way, in which node state may change."""
        return self._door == "tick"

    def call(self, node: NodeBase, method: Callable[..., R], args: Any, kwargs: Any) -> R:
        """Run a state-changing method of `node` with its record. Raises OutsideTurn."""
        self.check_open(node.obj_id, method.__name__)
        self.rejoin(node)
        if node in self._calls:  # a method that calls another one of its node is one call
            return method(node, *args, **kwargs)
        before = node.digest()
        self._calls.append(node)
        try:
            result = method(node, *args, **kwargs)
        finally:
            self._calls.remove(node)
        after = node.digest()
        shown_kwargs = {key: show_value(value) for key, value in kwargs.items()}
        self.emit(
            MethodCalled(
                node.obj_id, node.obj_type, method.__name__, tuple(map(show_value, args)), shown_kwargs, before, after
            )
        )
        if before != after:
            self.changed(node, delta_of(before, after))
        return result

    def changed(self, node: NodeBase, delta: Delta) -> None:
        """Record that `node` is not what it was, and tell the groups that it is in."""
        node.changed_in = self.statement_id
        self.emit(NodeChanged(node.obj_id, delta))
        self.looked(node)

    def looked(self, node: NodeBase) -> None:
        """Tell the groups that `node` is in that its target is not what it was."""
        for other in list(self._listening.values()):
            other.on_member_changed(node)


def delta_of(before: Mapping[str, Json], after: Mapping[str, Json], text: str = "") -> Delta:
    """Return what differs between two digests, as fields and one line."""
    fields = {key: (before.get(key), after.get(key)) for key in after if before.get(key) != after.get(key)}
    told = [f"{key} {old} → {new}" for key, (old, new) in fields.items() if key not in ("fingerprint", "revision")]
    return Delta(", ".join(told) or "content changed", fields, text)
