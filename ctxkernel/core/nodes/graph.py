"""The graph of nodes: the living nodes, the guard of their state, and the return to an earlier state.

Rule 1: node state changes only in a statement or a tick (law 1); all changes go through `Graph.call`.
Rule 2: every such call emits a MethodCalled with the digests before and after it.
Rule 3: a memento holds JSON values only, not the target of a view; the caller restores the target.
Rule 4: `restore` changes a living handle in place.
Rule 5: a restored view shows its text of then, and checks its target at the next tick if it is running.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.nodes.detached import SESSIONS
from ctxkernel.core.nodes.graph_base import NOTHING, GraphBase
from ctxkernel.core.nodes.handle_history import delta_of
from ctxkernel.core.nodes.node_base import KINDS, NodeBase
from ctxkernel.core.nodes.policy import show_value
from ctxkernel.core.timeline_events import NONE, Delta, Json, MethodCalled, NodeChanged

R = TypeVar("R")
AGAIN: Final = "again"
"""The key of `counts` for handles that were made again under their old id."""


@dataclass(kw_only=True, eq=False, repr=False)
class Graph(GraphBase):
    """The nodes of a session, and the guard of their state."""

    def __post_init__(self) -> None:
        # Weak: a handle lives only as long as the user, a group or Out holds it.
        self._nodes: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        self._aside: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        self._listening: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        """The nodes with `listens`: so a thousand changed views do not make a million calls."""
        self._held: dict[str, NodeBase] = {}
        self._kept: dict[str, NodeBase] = {}
        self._counts: dict[str, int] = {}
        self._calls: list[NodeBase] = []
        self._firsts: dict[str, tuple[str, Mapping[str, Json]]] = {}
        """`changed_in` and digest of each node before its first call in this statement."""
        self.ask_later: Callable[[NodeBase, Callable[..., Any], Any, Any], Any] | None = None
        """Takes the calls between two cells, such as those of a widget's callback; the kernel sets it."""
        self.followed: Callable[[NodeBase], None] = lambda node: None
        """Called after a call that changed a node, or was asked for; the kernel sets it."""
        self.again: Callable[[NodeBase], str | None] = lambda node: None
        """Returns the id of the same constructor call in an earlier run of its cell, or None; the loop sets it."""

    def name(self, session: str) -> None:
        """Set the name of the session, so that its pickled handles find this graph."""
        self.session = session
        SESSIONS[session] = self

    @property
    def is_empty(self) -> bool:
        """Return whether there are no living nodes."""
        return not self._nodes

    def nodes(self) -> list[NodeBase]:
        """Return the living nodes, in the order of their creation."""
        if not self._nodes:  # most notebooks
            return []
        return sorted(self._nodes.values(), key=lambda node: node.serial)

    def node(self, obj_id: str) -> NodeBase | None:
        """Return the living node of that id, or one that is held for a restore; else None."""
        return self._nodes.get(obj_id) or self._held.get(obj_id)

    def adopt(self, node: NodeBase) -> None:
        """Give a new node its id: that of the same constructor call before, if any. Raises OutsideTurn."""
        self.check_open(node.obj_type, "new")
        again = self.again(node)
        if again is not None:  # `settle` adds it: the node that it replaces may live
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
        """Return the result of a constructor call: `made`, or the living node of its id with the state of `made`."""
        if self._nodes.get(made.obj_id) is made:
            return made
        old = self._nodes.get(made.obj_id) or self._aside.get(made.obj_id)
        node = made
        if old is not None and type(old) is type(made):
            node = old
            vars(node).update(vars(made))  # in one step: another thread may read it
            for name in vars(node).keys() - vars(made).keys():
                delattr(node, name)
        self.restores += 1  # payloads for the earlier one are stale
        self._counts[AGAIN] = self._counts.get(AGAIN, 0) + 1
        node.serial = sum(self._counts.values())  # new in either case: whether it lived depends on who held it
        self._add(node)
        self._aside.pop(node.obj_id, None)
        if node.lasting:
            self._kept[node.obj_id] = node
        return node

    # -- going back ---------------------------------------------------------------------------

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of nodes of each type that were ever made, which is that of the newest id. It never decreases."""
        return dict(self._counts)

    def continue_after(self, counts: Mapping[str, int]) -> None:
        """Start new ids after these counts: another branch, or an earlier kernel, uses the others."""
        for obj_type, count in counts.items():
            self._counts[obj_type] = max(self._counts.get(obj_type, 0), count)

    def memento(self) -> Mapping[str, Mapping[str, Json]]:
        """Return the state of each living node by its id, as JSON values.

        An unchanged node returns the same object again, so that callers can compare by identity.
        """
        return {node.obj_id: node.memento() for node in self.nodes()} if self._nodes else NONE

    def targets(self) -> Mapping[str, object]:
        """Return the target of each living view by obj_id: the Python object, or the path as text.

        A lost target is left out. (A path is in the view's memento too.)
        """
        if not self._nodes:
            return NONE
        found = {node.obj_id: node.looks_at for node in self.nodes()}
        return {obj_id: target for obj_id, target in found.items() if target is not NOTHING}

    def revive(self, mementos: Mapping[str, Mapping[str, Json]]) -> list[str]:
        """Make `node(obj_id)` return a node for each memento until `release`, a blank one where none lives.

        Returns notices. Used before objects that hold handles are unpickled, and before `restore`. It changes no node;
        `nodes()` has the blank ones only after `restore`.
        """
        notices: list[str] = []
        with self.opened("tick"):
            for obj_id, memento in mementos.items():
                obj_type = memento.get("obj_type")
                node, kind = self.node(obj_id) or self.aside(obj_id), KINDS.get(str(obj_type))
                if node is not None:
                    self._held[obj_id] = node
                elif kind is not None:
                    self._held[obj_id] = kind.blank(self, obj_id)
                else:
                    notices.append(f"{obj_id} is a {obj_type}, which this ctxkernel does not know; update it")
        return notices

    def restore(self, mementos: Mapping[str, Mapping[str, Json]], targets: Callable[[str], object]) -> list[str]:
        """Set the nodes to the state of `mementos`, in place where they live; return notices.

        `targets(obj_id)` returns the target object of a view, and may raise (a path is in the memento, so it is not
        called for one): a view without its target keeps its text and gets a fault. New nodes are held until `release`.
        Other living nodes are set aside: they are not in the timeline until they are called or restored.
        """
        with self.opened("tick"):
            self.restores += 1
            notices = self.revive(mementos)
            self._replace([node for obj_id in mementos if (node := self.node(obj_id)) is not None])
            changed: list[tuple[NodeBase, Mapping[str, Json] | None]] = []
            for obj_id, memento in mementos.items():
                node = self.node(obj_id)
                if node is None:
                    continue
                try:
                    was, before = (node.memento(), node.digest()) if node.serial else (None, None)
                    again = node.look_again(memento, lambda obj_id=obj_id: targets(obj_id))
                    if was != memento:
                        node.take(memento)
                    if again:
                        node.fault = again
                        notices.append(f"{obj_id} ({node.target}): {again}")
                    if node.memento() != was:
                        changed.append((node, before))
                except Exception as fault:  # one damaged memento must not hold up the others
                    notices.append(f"{obj_id} could not be restored: {type(fault).__name__}: {fault}"[:300])
            for node, before in sorted(changed, key=lambda pair: pair[0].serial):
                after = node.digest()
                delta = Delta("restored") if before is None or before == after else delta_of(before, after)
                self.emit(NodeChanged(node.obj_id, delta))
            return notices

    def release(self) -> None:
        """Stop holding restored nodes: by now a name, a group or a list holds them, or nothing does."""
        self._held = {}

    def aside(self, obj_id: str) -> NodeBase | None:
        """Return the node of that id that was set aside, or None."""
        return self._aside.get(obj_id)

    def rejoin(self, node: NodeBase) -> None:
        """Add a node that was set aside to the nodes again, since the user uses it."""
        if node.obj_id not in self._nodes:
            self._add(node)
            self._aside.pop(node.obj_id, None)

    def keep(self, node: NodeBase) -> None:
        """Keep a node alive though nothing holds it: a note."""
        self._kept[node.obj_id] = node

    def let_go(self, node: NodeBase) -> None:
        """End `keep`: its last name was deleted, or the user dropped it."""
        if node.lasting:
            node.lasting = False
            self._kept.pop(node.obj_id, None)

    def _replace(self, nodes: Sequence[NodeBase]) -> None:
        """Make these the nodes; set all others aside."""
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

    def open(self, statement_id: str) -> None:
        """Begin a statement: node state may change until `close`."""
        super().open(statement_id)
        self._firsts = {}

    def call(self, node: NodeBase, method: Callable[..., R], args: Any, kwargs: Any) -> R:
        """Run a state-changing method of `node` and record the call. Raises OutsideTurn.

        Between two cells, `ask_later` takes the call.
        """
        self.check_owner(node.obj_id, method.__name__)
        if node in self._calls:  # only the outermost call of a node is recorded
            return method(node, *args, **kwargs)
        if self._open_for is None and self.ask_later is not None:
            with self._calling(node):
                result = self.ask_later(node, method, args, kwargs)
            self.followed(node)
            return result
        self.check_open(node.obj_id, method.__name__)
        self.rejoin(node)
        before = node.digest()
        changed_in, first = self._firsts.setdefault(node.obj_id, (node.changed_in, before))
        with self._calling(node):
            result = method(node, *args, **kwargs)
        after = node.digest()
        shown_kwargs = {key: show_value(value) for key, value in kwargs.items()}
        self.emit(
            MethodCalled(
                node.obj_id, node.obj_type, method.__name__, tuple(map(show_value, args)), shown_kwargs, before, after
            )
        )
        if before != after:
            self.changed(node, delta_of(before, after))
            if {**first, "revision": after["revision"]} == after:  # all is as it was before the statement
                node.changed_in = changed_in
            self.followed(node)
        return result

    @contextmanager
    def _calling(self, node: NodeBase) -> Generator[None]:
        self._calls.append(node)
        try:
            yield
        finally:
            self._calls.remove(node)

    def changed(self, node: NodeBase, delta: Delta) -> None:
        """Record that `node` changed, and notify its groups."""
        node.changed_in = self.statement_id
        self.emit(NodeChanged(node.obj_id, delta))
        self.looked(node)

    def looked(self, node: NodeBase) -> None:
        """Notify the groups of `node` that its target changed."""
        for other in list(self._listening.values()):
            other.on_member_changed(node)
