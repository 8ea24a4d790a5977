"""Find the variables and files that changed since the model last saw them (`agent/stale_views.py`).

Rule 1: a variable has changed if a statement after the request changed it, unless that was a cell of the model.
Rule 2: a file has changed if it differs from its state when a view of it was rendered: the model saw that rendering. A
        change is reported to the model only once.
"""

from __future__ import annotations

import os
from typing import Any

from ctxkernel.agent.stale_views import FileMark, Mark, Sight, changes_text, find_stale
from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import ViewHandle


class SeenState:
    """The state that the model saw with its newest request."""

    def __init__(self, loop: Loop, shell: Any) -> None:
        self._loop, self._shell = loop, shell
        self._head: str | None = None
        """HEAD at the newest request."""
        self._known: dict[str, str] = {}
        """File that the model was told of, or wrote → its stamp then."""
        self._before: dict[str, str] = {}
        """File that differed from its rendering before the newest cell → its stamp."""

    def look(self) -> None:
        """Note that a request is sent."""
        self._head = self._loop.log.head

    def changed(self, code: str) -> str:
        """Return a text about the variables and files used by `code` that changed; empty if there are none."""
        names = self._names()
        before, after = self._files()
        self._before = {place: mark.stamp for place, mark in after.items()}
        if not names and not after:
            return ""
        seen = Sight({name: Mark("then") for name, (how, _) in names.items() if how != "added"}, before)
        now = Sight({name: Mark("" if how == "deleted" else "now", by) for name, (how, by) in names.items()}, after)
        found = find_stale(code, seen, now, transform=self._shell.transform_cell)
        self._known |= {one.name: after[one.name].stamp for one in found if one.kind == "file"}
        return changes_text(found) if found else ""

    def ran(self) -> None:
        """Note that a cell of the model ran: it knows the files that it wrote."""
        _, after = self._files()
        self._known |= {place: mark.stamp for place, mark in after.items() if self._before.get(place) != mark.stamp}

    def _names(self) -> dict[str, tuple[str, str]]:
        """Return the names that others than the model changed since the request: how, and by which statement."""
        changed: dict[str, tuple[str, str]] = {}
        for statement, execution in reversed(self._loop.history):
            if execution.execution_id == self._head:
                break
            diff, by = execution.state_diff, statement.statement_id
            own = statement.author == "model"
            for how, names in (("added", diff.added), ("changed", diff.changed), ("deleted", diff.deleted)):
                for name in names:
                    changed.setdefault(name, ("own" if own else how, by))
        return {name: change for name, change in changed.items() if change[0] != "own"}

    def _files(self) -> tuple[dict[str, FileMark], dict[str, FileMark]]:
        """Return the files in views that differ from their rendering: as rendered, and as they are."""
        graph, names = self._loop.graph, self._loop.names.first_names()
        before: dict[str, FileMark] = {}
        after: dict[str, FileMark] = {}
        for node in graph.nodes():
            path = node.looks_at if isinstance(node, ViewHandle) else None
            if not isinstance(node, ViewHandle) or not isinstance(path, str):
                continue
            rendered, now = node.stamps()
            place = os.path.abspath(os.path.expanduser(path))
            if now in (rendered, self._known.get(place)):
                continue
            handles = (names.get(node.obj_id, node.obj_id), *(before[place].handles if place in before else ()))
            before[place] = FileMark(rendered or "then", handles)
            after[place] = FileMark("" if not os.path.exists(place) else now, handles)
        return before, after
