"""The handles that a question names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ctxkernel.core.nodes.base import NodeBase


def named_in(question: str, namespace: Mapping[str, Any], nodes: Iterable[NodeBase]) -> frozenset[str]:
    """Return the obj_ids of handles that a question names: by variable, by id, or by the file of the target.

    The namespace itself is read, so handles from the running statement are found.
    """
    words = set(re.findall(r"\w+", question))
    bound = [cast("Any", namespace.get(word)) for word in words]
    named = {value.obj_id for value in bound if issubclass(type(value), NodeBase)}
    for node in nodes:
        file = re.split(r"[\\/]", node.target)[-1]
        if node.obj_id in words or ("." in file and file in question):
            named.add(node.obj_id)
    return frozenset(named)
