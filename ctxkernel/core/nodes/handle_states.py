"""The handles as frozen states, and copies of handles with another policy.

Rule: nothing here changes a node or emits an event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ctxkernel.core.nodes.group import GroupHandle
from ctxkernel.core.nodes.node_base import NodeBase
from ctxkernel.core.nodes.note import NoteHandle
from ctxkernel.core.turn_values import HandleState


def handle_states(
    nodes: Iterable[NodeBase], names: Mapping[str, str], requested: Collection[str]
) -> tuple[HandleState, ...]:
    """Return named nodes, members of their groups, and running, pinned and requested ones, in their order.

    `names` maps obj_id to the user's names. A note that was dropped is left out, unless `requested` has it.
    """
    seen: dict[str, NodeBase] = {}
    for node in nodes:
        if isinstance(node, NoteHandle) and not node.lasting and node.obj_id not in requested:
            continue
        wanted = node.lasting or node.pinned or node.mode == "running" or node.obj_id in requested
        if node.obj_id in names or wanted:
            for one in (node, *(node.nested() if isinstance(node, GroupHandle) else ())):
                seen.setdefault(one.obj_id, one)
    shown = sorted(seen.values(), key=lambda node: node.serial)
    return tuple(handle_state(node, names.get(node.obj_id, node.obj_id), node.obj_id in requested) for node in shown)


def handle_state(node: NodeBase, name: str, requested: bool) -> HandleState:
    """Return the state of a node."""
    rendered = node.rendered
    return HandleState(
        name=name,
        obj_id=node.obj_id,
        obj_type=node.obj_type,
        statement_id=node.statement_id,
        digest=node.digest(),
        text=rendered.text,
        rendered_tokens=rendered.tokens,
        pinned=node.pinned,
        pin_reason=node.pin_reason,
        changed=node.changed_in == node.graph.statement_id,
        requested=requested,
        members=tuple(member.obj_id for member in node.members) if isinstance(node, GroupHandle) else (),
        notes=(*rendered.notes, *([node.fault] if node.fault else [])),
        picture=rendered.picture,
        rows=rendered.rows,
    )


def suppose(nodes: Iterable[NodeBase], policies: Mapping[str, Mapping[str, Any]]) -> dict[str, NodeBase]:
    """Return copies by obj_id of the nodes with another policy, and of the groups that contain them.

    `policies` maps obj_id to the policy for `NodeBase.supposed`. Raises BadPolicy.
    """
    found: dict[str, NodeBase] = {}
    for node in sorted(nodes, key=_depth):  # members before their groups
        members = node.nested() if isinstance(node, GroupHandle) else []
        if node.obj_id in policies or any(member.obj_id in found for member in members):
            found[node.obj_id] = node.supposed(policies.get(node.obj_id, {}), found)
    return found


def _depth(node: NodeBase) -> int:
    """Return the number of groups in a group, itself included; 0 for any other node."""
    return 1 + sum(isinstance(one, GroupHandle) for one in node.nested()) if isinstance(node, GroupHandle) else 0
