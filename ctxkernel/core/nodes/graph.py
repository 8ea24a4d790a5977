"""The graph that nodes live in: who is alive, the door to their state, and the way back to an earlier one.

Rule 1: node state changes in a statement or a tick, nowhere else (law 1); `Graph.call` is the one door.
Rule 2: every call through the door is a MethodCalled with the digests before and after it.
Rule 3: a memento holds JSON values only, and not the object that a view looks at; the caller restores that object.
Rule 4: `restore` sets a living handle to its memento in place, so whoever holds it holds the restored one.
Rule 5: a restored view shows what it showed then, and looks at its target at the next tick if it runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ctxkernel.core.events import Delta, Json, MethodCalled, NodeChanged
from ctxkernel.core.nodes.base import KINDS, NodeBase
from ctxkernel.core.nodes.detached import SESSIONS
from ctxkernel.core.nodes.door import NOTHING, Door
from ctxkernel.core.nodes.policy import show_value
from ctxkernel.core.nodes.record import delta_of

R = TypeVar("R")
AGAIN: Final = "again"
"""Counts handles that were made anew under their id, beside the types of nodes."""


@dataclass(kw_only=True, eq=False, repr=False)
class Graph(Door):
    """The nodes of a session, and the door to their state."""

    def __post_init__(self) -> None:
        # Weak: a handle lives as long as the user (or a group, or Out) holds it, not longer.
        self._nodes: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        self._aside: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        self._listening: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        """Those of the nodes that want to hear of others: a thousand changed views must not cost a million calls."""
        self._held: dict[str, NodeBase] = {}
        self._kept: dict[str, NodeBase] = {}
        self._counts: dict[str, int] = {}
        self._calls: list[NodeBase] = []
        self.again: Callable[[NodeBase], str | None] = lambda node: None
        """Gives the id that the same constructor call gave when its cell ran before, or None; the loop sets it."""

    def name(self, session: str) -> None:
        """Say which session this is, so that a pickled handle is this graph's again."""
        self.session = session
        SESSIONS[session] = self

    @property
    def is_empty(self) -> bool:
        """Whether there are no living nodes."""
        return not self._nodes

    def nodes(self) -> list[NodeBase]:
        """The living nodes, in the order of their creation."""
        if not self._nodes:  # most notebooks
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
        """Return the state of each living node by its id, as JSON values.

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
        """Bring the nodes to the state of `mementos`, in place where they live; returns notices.

        `targets(obj_id)` gives the object that a view looks at, and may raise (a path stands in the memento, so it is
        not asked for one): a target that is not there leaves the view with what it showed and a fault. New nodes are
        held until `release`. Other living nodes stand aside: they are whoever's holds them, and no part of the
        timeline until they are called or restored.
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

    def keep(self, node: NodeBase) -> None:
        """Let a node live though nobody holds it: a note is there to be sent, not to be called."""
        self._kept[node.obj_id] = node

    def let_go(self, node: NodeBase) -> None:
        """End `keep`: its last name was deleted, or the user dropped it."""
        if node.lasting:
            node.lasting = False
            self._kept.pop(node.obj_id, None)

    def _replace(self, nodes: Sequence[NodeBase]) -> None:
        """Make these the nodes; all others stand aside."""
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
