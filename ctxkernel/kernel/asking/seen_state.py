"""Find the variables and files that changed since the model last saw them (`agent/stale_objects.py`).

Rule 1: a variable has changed if a statement after the request changed it, unless that was a cell of the model.
Rule 2: a file has changed if it differs from its state when a view of it was rendered: the model saw that rendering. A
        change is reported to the model only once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ctxkernel.agent.stale_objects import How, StaleObject, changes_text, find_stale
from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import ViewHandle
from ctxkernel.core.timeline import Author


class SeenState:
    """The state that the model saw with its newest request."""

    def __init__(self, loop: Loop, shell: Any, author: Author = "model") -> None:
        self._loop, self._shell, self._author = loop, shell, author
        self._head: str | None = None
        """HEAD at the newest request."""
        self._known: dict[str, str] = {}
        """File that the model was told of, or wrote → its stamp then."""
        self._before: dict[str, str] = {}
        """File that differed from its rendering before the newest cell → its stamp."""

    def look(self, head: str | None = None) -> None:
        """Note that a request is sent, or that the model saw the state of another `head`."""
        self._head = head or self._loop.log.head

    def changed(self, code: str) -> str:
        """Return a text about the variables and files used by `code` that changed; empty if there are none."""
        files = self._files()
        self._before = {one.name: stamp for one, stamp in files}
        found = find_stale(code, [*self._names(), *(one for one, _ in files)], transform=self._shell.transform_cell)
        self._known |= {one.name: stamp for one, stamp in files if one in found}
        return changes_text(found) if found else ""

    def ran(self) -> None:
        """Note that a cell of the model ran: it knows the files that it wrote."""
        self._known |= {one.name: stamp for one, stamp in self._files() if self._before.get(one.name) != stamp}

    def _names(self) -> list[StaleObject]:
        """Return the variables that others than the model changed since the request."""
        changed: dict[str, StaleObject | None] = {}
        for statement, execution in reversed(self._loop.history):
            if execution.execution_id == self._head:
                break
            diff, by = self._loop.log.execution(execution.execution_id).changes, statement.statement_id
            changes: dict[How, Iterable[str]] = {"added": diff.added, "changed": diff.changed, "deleted": diff.deleted}
            for how, names in changes.items():
                for name in names:
                    own = statement.author == self._author
                    changed.setdefault(name, None if own else StaleObject("variable", name, how, by))
        return [one for one in changed.values() if one is not None]

    def _files(self) -> list[tuple[StaleObject, str]]:
        """Return the files in views that differ from their rendering, each with its stamp now."""
        names = self._loop.names.first_names()
        found: dict[str, tuple[StaleObject, str]] = {}
        for node in self._loop.graph.nodes():
            path = node.looks_at if isinstance(node, ViewHandle) else None
            if not isinstance(node, ViewHandle) or not isinstance(path, str):
                continue
            rendered, now = node.stamps()
            place = os.path.abspath(os.path.expanduser(path))
            if now in (rendered, self._known.get(place)):
                continue
            stamp = now if os.path.exists(place) else ""
            handles = (names.get(node.obj_id, node.obj_id), *(found[place][0].handles if place in found else ()))
            found[place] = StaleObject("file", place, "changed" if stamp else "deleted", "", handles), stamp
        return list(found.values())
