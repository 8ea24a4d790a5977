"""Handles as plain values, and back: what a checkpoint keeps of them.

Rule 1: a memento holds JSON values only, and nothing of what a view looks at; what it looks at comes back by itself.
Rule 2: a handle that is alive is set to its memento in place, so whoever holds it holds the restored one.
Rule 3: a restored view shows what it showed then, and looks at its target at the next tick if it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ctxkernel.core.events import Delta, Json, NodeChanged
from ctxkernel.core.nodes.base import KINDS, NodeBase, delta_of

if TYPE_CHECKING:
    from ctxkernel.core.nodes.base import Graph

Mementos = Mapping[str, Mapping[str, Json]]


def revive(graph: Graph, mementos: Mementos) -> list[str]:
    """Let there be a node for each memento, and those of no memento stand aside. Returns what could not be made.

    A node that was not alive is a blank one of its id until `restore` fills it.
    """
    notices: list[str] = []
    nodes: dict[str, NodeBase] = {}
    for obj_id, memento in mementos.items():
        node = graph.node(obj_id) or graph.aside(obj_id)
        if node is None:
            kind = KINDS.get(str(memento.get("obj_type")))
            if kind is None:
                notices.append(
                    f"{obj_id} is a {memento.get('obj_type')}, which this ctxkernel does not know; update it"
                )
                continue
            node = kind.blank(graph, obj_id)
        nodes[obj_id] = node
    graph.replace(nodes)
    return notices


def restore(graph: Graph, mementos: Mementos, targets: Callable[[str], object]) -> list[str]:
    """Bring the nodes to the state of their mementos. See `Graph.restore`."""
    notices = revive(graph, mementos)
    changed: list[tuple[NodeBase, Mapping[str, Json] | None]] = []
    for obj_id, memento in mementos.items():
        node = graph.node(obj_id)
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
        graph.emit(NodeChanged(node.obj_id, delta))
    return notices
