"""The names in a question: handles, and names in their targets; and the handles whose targets changed in re-runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ctxkernel.core.nodes.group import GroupHandle
from ctxkernel.core.nodes.node_base import NodeBase
from ctxkernel.core.nodes.view_handle import ViewHandle
from ctxkernel.core.replay import Comparison
from ctxkernel.core.text import one_line, plural
from ctxkernel.core.timeline import NamespaceDiff

_WORDS, _PHRASE = 400, 5
_VIEWS = 200
"""The most views that are told which names in their targets a question has."""


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


def phrases_of(question: str) -> frozenset[str]:
    """Return the words of a question, and up to `_PHRASE` words in a row, in lower case."""
    words = re.findall(r"\w+", question.lower())[:_WORDS]
    return frozenset(" ".join(words[at : at + n]) for n in range(1, _PHRASE + 1) for at in range(len(words) - n + 1))


def tell_views(nodes: Iterable[NodeBase], question: str) -> None:
    """Tell views which names in their targets the last question names: running views, and members of running groups."""
    late = [view for view in _running_views(nodes)[:_VIEWS] if view.question != question]
    phrases = phrases_of(question) if late else frozenset[str]()
    for view in late:
        view.ask_about(question, phrases)


def tell_changes(nodes: Iterable[NodeBase], namespace: Mapping[str, Any], diff: NamespaceDiff) -> None:
    """Have running views look again at what a statement changed: a stamp covers only a sample of a large target."""
    if not diff.changed and not diff.incomplete:
        return
    changed = {id(namespace[name]) for name in diff.changed if name in namespace}
    same = set[int]() if diff.incomplete else set(map(id, list(namespace.values()))) - changed
    for view in _running_views(nodes):
        view.suspect_change(changed, same)


def _running_views(nodes: Iterable[NodeBase]) -> list[ViewHandle]:
    running = [node for node in nodes if node.mode == "running"]
    inner = [member for node in running if isinstance(node, GroupHandle) for member in node.nested()]
    return [node for node in dict.fromkeys([*running, *inner]) if isinstance(node, ViewHandle)]


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
            names = ", ".join(dict.fromkeys(subjects))
            count = plural(len(subjects), "divergences")
            group.since(one_line(f"since the re-run of {', '.join(by_statement)}: {count} ({names})"))
