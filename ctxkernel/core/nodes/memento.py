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
    """Hold a node for each memento: the one that is alive, else a blank one for `restore` to fill.

    Returns what cannot be made.
    """
    notices: list[str] = []
    for obj_id, memento in mementos.items():
        node = graph.node(obj_id) or graph.aside(obj_id)
        kind = KINDS.get(str(memento.get("obj_type")))
        if node is not None:
            graph.hold(node)
        elif kind is not None:
            graph.hold(kind.blank(graph, obj_id))
        else:
            notices.append(f"{obj_id} is a {memento.get('obj_type')}, which this ctxkernel does not know; update it")
    return notices


def restore(graph: Graph, mementos: Mementos, targets: Callable[[str], object]) -> list[str]:
    """Bring the nodes to the state of their mementos. See `Graph.restore`."""
    notices = revive(graph, mementos)
    graph.replace([node for obj_id in mementos if (node := graph.node(obj_id)) is not None])
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
