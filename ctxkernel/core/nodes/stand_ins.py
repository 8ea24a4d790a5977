"""Copies of handles with another policy, and of the groups that contain them.

Rule: no node changes and no event is emitted; only the caller holds the copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ctxkernel.core.nodes.base import NodeBase
from ctxkernel.core.nodes.group import GroupHandle


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
