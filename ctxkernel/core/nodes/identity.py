"""The identity of handles: a constructor call in a re-run cell returns the handle of the same call before. Pure.

Rule 1: the identity follows from the log: the cell, the type, the target, and the number of such calls before.
Rule 2: the target of a view is part of its identity, so a loop over files makes a handle for each. A group or a note is
        identified by its place in the cell alone, since its members and its text may be edited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.nodes.graph import AGAIN
from ctxkernel.core.nodes.group import GroupHandle
from ctxkernel.core.nodes.node_base import NodeBase
from ctxkernel.core.timeline import Execution, Statement, StatementLog
from ctxkernel.core.timeline_events import Event, Json, MethodCalled

NodeKey = tuple[str, str, int]
"""obj_type, target, and the number of such calls before it in the statement."""


def kind_of(obj_type: str, target: Json) -> tuple[str, str]:
    """Return the key by which constructor calls are counted."""
    return obj_type, str(target) if obj_type == "view" else ""


def is_made(event: Event) -> bool:
    """Return whether an event is the call of a constructor."""
    return isinstance(event, MethodCalled) and event.method == event.obj_type and not event.before_digest


def made_by(events: Iterable[Event]) -> dict[NodeKey, str]:
    """Return the ids from the constructor calls of a statement."""
    counts: Counter[tuple[str, str]] = Counter()
    found: dict[NodeKey, str] = {}
    for event in events:
        if isinstance(event, MethodCalled) and is_made(event):
            kind = kind_of(event.obj_type, event.after_digest.get("target"))
            found[(*kind, counts[kind])] = event.obj_id
            counts[kind] += 1
    return found


def made_counts(events: Iterable[Event]) -> dict[str, int]:
    """Return the highest number of a handle in `events` by type."""
    counts: dict[str, int] = {}
    for event in events:
        if isinstance(event, MethodCalled) and event.obj_id[1:].isdecimal():
            counts[event.obj_type] = max(counts.get(event.obj_type, 0), int(event.obj_id[1:]))
    return counts


def made_again(log: StatementLog) -> dict[str, int]:
    """Return how often a constructor call returned an id from before."""
    runs = [made_by(run.events) for statement in log for run in log.executions(statement.statement_id)]
    return {AGAIN: sum(map(len, runs)) - len({obj_id for ids in runs for obj_id in ids.values()})}


def is_same_cell(one: Statement, other: Statement) -> bool:
    """Return whether two statements are runs of one cell: by tags, by the id of the cell, or else by its text."""
    first, second = ({run.statement_id, run.tags.get("rerun_of")} - {None} for run in (one, other))
    if first & second:
        return True
    if one.cell_id is not None and other.cell_id is not None:
        return one.cell_id == other.cell_id
    return one.source == other.source


def earlier_runs(
    now: Statement, path: Sequence[tuple[Statement, Execution]], log: StatementLog
) -> Iterator[dict[NodeKey, str]]:
    """Yield the ids of earlier runs of a cell, newest first; those on the path to HEAD come first."""
    seen: set[str] = set()
    for statement, execution in reversed(path):
        seen.add(execution.execution_id)
        if is_same_cell(now, statement) and (ids := made_by(execution.events)):
            yield ids
    for statement in reversed(list(log)):
        if not is_same_cell(now, statement):
            continue
        for execution in reversed(log.executions(statement.statement_id)):
            if execution.execution_id not in seen and (ids := made_by(execution.events)):
                yield ids


@dataclass(eq=False)
class ConstructorCalls:
    """The calls of constructors in one statement."""

    now: Statement
    path: Sequence[tuple[Statement, Execution]]
    log: StatementLog
    alive: Callable[[str], NodeBase | None]
    """Returns the living node of an id, or None."""
    _given: set[str] = field(default_factory=set[str], init=False)
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]], init=False)
    _earlier: list[dict[NodeKey, str]] | None = field(default=None, init=False)

    def again(self, node: NodeBase) -> str | None:
        """Return the id of this call in an earlier run of its cell, if that id is free."""
        kind = kind_of(node.obj_type, node.target)
        if self._earlier is None:  # most statements make no handle
            self._earlier = list(earlier_runs(self.now, self.path, self.log))
        for ids in self._earlier:
            found = ids.get((*kind, self._counts[kind]))
            if found is not None and found not in self._given and self._is_free(found, node):
                return found
        return None

    def _is_free(self, obj_id: str, node: NodeBase) -> bool:
        if isinstance(node, GroupHandle) and any(one.obj_id == obj_id for one in node.nested()):
            return False
        alive = self.alive(obj_id)
        maker = self.log.get(alive.statement_id) if alive is not None else None
        return alive is None or (maker is not None and is_same_cell(self.now, maker))

    def gave(self, node: NodeBase) -> None:
        """Record the node that a call returned."""
        self._given.add(node.obj_id)
        self._counts[kind_of(node.obj_type, node.target)] += 1
