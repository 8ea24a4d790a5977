"""Divergences of re-runs in the summaries of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxkernel.core.nodes.base import NodeBase
from ctxkernel.core.nodes.group import GroupHandle
from ctxkernel.core.nodes.view import ViewHandle
from ctxkernel.core.replay import Comparison
from ctxkernel.core.text import one_line


def tell_groups(nodes: Iterable[NodeBase], namespace: Mapping[str, Any], comparisons: Sequence[Comparison]) -> None:
    """Begin the summary of each group with the number of divergences in the targets of its members."""
    differing = [one for one in comparisons if not one.same and not one.expected]
    if not differing:
        return
    for group in nodes:
        if not isinstance(group, GroupHandle) or group.mode == "paused":
            continue
        views = [member for member in group.members if isinstance(member, ViewHandle)]
        by_statement: dict[str, list[str]] = {}
        for one in differing:
            for found in one.divergences:
                if any(view.shows(found.kind, found.subject, namespace) for view in views):
                    by_statement.setdefault(one.execution_id.rpartition(".")[0], []).append(found.subject)
        if by_statement:
            subjects = [subject for found in by_statement.values() for subject in found]
            group.since(divergence_line(list(by_statement), subjects))


def divergence_line(statements: Sequence[str], subjects: Sequence[str]) -> str:
    """Return the first line of a group's summary after re-runs that changed its targets."""
    count = len(subjects)
    return one_line(
        f"since the re-run of {', '.join(statements)}: {count} divergence{'s' * (count != 1)} "
        f"({', '.join(dict.fromkeys(subjects))})",
        160,
    )
