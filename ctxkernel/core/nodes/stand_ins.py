"""What handles would show with some policy otherwise: stand-ins, of the handles and of the groups that they are in.

Rule 1: no node is changed, no event is published, and nothing is kept but by whoever asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ctxkernel.core.nodes.base import NodeBase
from ctxkernel.core.nodes.group import GroupHandle


def suppose(nodes: Iterable[NodeBase], policies: Mapping[str, Mapping[str, Any]]) -> dict[str, NodeBase]:
    """Return stand-ins by obj_id for the nodes with another policy, and for the groups that these are in.

    `policies` has by obj_id what `NodeBase.supposed` takes. Raises BadPolicy.
    """
    found: dict[str, NodeBase] = {}
    for node in sorted(nodes, key=_depth):  # members before their groups
        members = node.nested() if isinstance(node, GroupHandle) else []
        if node.obj_id in policies or any(member.obj_id in found for member in members):
            found[node.obj_id] = node.supposed(policies.get(node.obj_id, {}), found)
    return found


def _depth(node: NodeBase) -> int:
    """Return how many groups a node is, with those in it; 0 for any other node."""
    return 1 + sum(isinstance(one, GroupHandle) for one in node.nested()) if isinstance(node, GroupHandle) else 0
