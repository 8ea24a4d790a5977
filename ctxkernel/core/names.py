"""The user's names: which are handles, which statement changed them last, and the rows of the variable table.

Rule 1: all of it follows from the diffs of the path to HEAD and from the namespace; `follow` turn by turn gives the
        same as `replay` of the whole path (law 3).
Rule 2: the cost of a turn depends on what it changed, not on how many names there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from ctxkernel.core.nodes import Graph, NodeBase
from ctxkernel.core.nodes.node_base import KINDS
from ctxkernel.core.ports import Tracker, VariableLine
from ctxkernel.core.timeline import Execution, NamespaceDiff, Statement, TypeInfo
from ctxkernel.core.turn_values import Variables

_LOOKED_AT = 2
"""The factor by which more rows than fit in the variable table are considered, newest first."""
_LIBRARY_TYPES = frozenset({"module", "builtin_function_or_method", "numpy.ufunc"})
_OF_MODULE = re.compile(r"<(?:class|function) [\w.]+\.(?!<)\w+[(>]")


class UserNames:
    """The names of one namespace, as the timeline knows them."""

    def __init__(
        self,
        namespace: Mapping[str, Any],
        graph: Graph,
        tracker: Tracker,
        *,
        rows: int,
        mask_value: Callable[[str, str], str],
    ) -> None:
        self.handles: dict[str, str] = {}
        """Names of handles → obj_id, in the order in which they were bound."""
        self.changed_by: dict[str, str] = {}
        """Names → the statement that changed them last, the newest change last."""
        self._namespace = namespace
        self._graph = graph
        self._tracker = tracker
        self._rows = rows
        self._mask_value = mask_value
        self._lines: dict[str, tuple[TypeInfo, VariableLine]] = {}
        self._table: Variables | None = None

    def resize(self, rows: int) -> None:
        """Use at most `rows` rows in the table from now on."""
        self._rows, self._table = rows, None

    def follow(self, statement_id: str, diff: NamespaceDiff) -> None:
        """Apply the diff of a statement."""
        if diff or diff.incomplete:
            self._table = None
        before = set(self.handles.values())
        for name in (*diff.added, *diff.changed):
            self._changed(name, statement_id)
            node = self._node(name)
            if node is not None:
                self._graph.rejoin(node)
                self.handles[name] = node.obj_id
            else:
                self.handles.pop(name, None)
        if diff.deleted:
            self._deleted(diff)
        for obj_id in before.difference(self.handles.values()):
            node = self._graph.node(obj_id)
            if node is not None:
                self._graph.let_go(node)

    def replay(self, path: Iterable[tuple[Statement, Execution]]) -> None:
        """Rebuild everything from the diffs of `path` and the namespace."""
        self.changed_by, self.handles = {}, {}
        self._lines = {}
        # Earlier values are known by their type only; the namespace decides.
        types = {kind.__name__ for kind in KINDS.values()}
        for statement, execution in path:
            diff = execution.changes
            for name, info in (*diff.added.items(), *diff.changed.items()):
                self._changed(name, statement.statement_id)
                if info.type.rpartition(".")[2] in types:
                    self.handles[name] = ""
                else:
                    self.handles.pop(name, None)
            self._deleted(diff)
        for name in list(self.handles):
            node = self._node(name)
            if node is None:
                del self.handles[name]
            else:
                self.handles[name] = node.obj_id
        self.scan()

    def _changed(self, name: str, statement_id: str) -> None:
        self.changed_by.pop(name, None)
        self.changed_by[name] = statement_id

    def _deleted(self, diff: NamespaceDiff) -> None:
        for name in diff.deleted:
            self.changed_by.pop(name, None)
            self.handles.pop(name, None)

    def _node(self, name: str) -> NodeBase | None:
        value = cast("Any", self._namespace.get(name))
        return value if issubclass(type(value), NodeBase) else None  # isinstance would run the user's code

    def scan(self) -> None:
        """Find the names of handles without the namespace diff: within a cell, or where the diff is incomplete."""
        self._table = None
        for name, obj_id in list(self.handles.items()):
            if getattr(self._namespace.get(name), "obj_id", None) != obj_id:
                del self.handles[name]
        named = set(self.handles.values())
        unnamed = {id(node): node for node in self._graph.nodes() if node.obj_id not in named}
        if not unnamed:
            return
        for name, value in list(self._namespace.items()):
            node = None if name.startswith("_") else unnamed.pop(id(value), None)
            if node is not None:
                self.handles[name] = node.obj_id

    def first_names(self) -> dict[str, str]:
        """Return the name of each named handle by its obj_id: the one that was bound first."""
        names: dict[str, str] = {}
        for name, obj_id in self.handles.items():
            names.setdefault(obj_id, name)
        return names

    def table(self) -> Variables:
        """Return the user's variables, newest change first, handles left out.

        Imported names have rows of their own beside the others, as many at most: they take one line together.
        """
        if self._table is not None:  # most cells change no name
            return self._table
        total = self._tracker.total - len(self.handles)
        old = self._lines
        lines: dict[str, tuple[TypeInfo, VariableLine]] = {}
        newest = self._tracker.variables(_LOOKED_AT * self._rows + len(self.handles))
        for name, info in self._chosen([(name, info) for name, info in newest if name not in self.handles]):
            by = self.changed_by.get(name, "")
            kept = old.get(name)
            if kept is None or kept[0] is not info or kept[1].statement_id != by:
                kept = info, VariableLine(name, info.type, self._mask_value(name, info.repr), info.size, by)
            lines[name] = kept
        self._lines = lines  # most cells change few names, so most lines are reused
        self._table = Variables(tuple([line for _, line in lines.values()]), total)
        return self._table

    def _chosen(self, found: Sequence[tuple[str, TypeInfo]]) -> Sequence[tuple[str, TypeInfo]]:
        if len(found) <= self._rows:
            return found
        room = {False: self._rows, True: self._rows}
        chosen: list[tuple[str, TypeInfo]] = []
        for name, info in found:
            imported = is_imported(info.type, info.repr)
            if room[imported]:
                room[imported] -= 1
                chosen.append((name, info))
        return chosen


def is_imported(type_name: str, shown: str) -> bool:
    """Return whether a value is a part of a library: a module, a function in C, a class or function with a module."""
    return type_name in _LIBRARY_TYPES or bool(_OF_MODULE.match(shown))
