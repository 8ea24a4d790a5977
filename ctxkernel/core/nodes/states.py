"""The handles at the end of a turn, as frozen states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ctxkernel.core.nodes.base import NodeBase
from ctxkernel.core.nodes.group import GroupHandle
from ctxkernel.core.nodes.note import NoteHandle
from ctxkernel.core.turn import HandleState


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
    )
