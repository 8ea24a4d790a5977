"""What the model saw when it last looked, and what has changed of it since: the stale view guard.

Rule 1: a variable changed where a statement after the request says so, unless the model's own cell did it.
Rule 2: a file changed where it is not as it was when a view of it was rendered: that is what the model saw of it. What
        it was told once is no news.
"""

from __future__ import annotations

import os
from typing import Any

from ctxkernel.agent.stale_views import FileMark, Mark, Sight, stale, told
from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import ViewHandle


class Seen:
    """The last look of the model."""

    def __init__(self, loop: Loop, shell: Any) -> None:
        self._loop, self._shell = loop, shell
        self._head: str | None = None
        """Where HEAD was when the newest request was sent."""
        self._told: dict[str, str] = {}
        """Files that the model knows of, being told or having written them → as they were then."""
        self._before: dict[str, str] = {}
        """Files that were not as shown, before its newest cell ran."""

    def look(self) -> None:
        """A request is sent: the model sees what is there."""
        self._head = self._loop.log.head

    def changed(self, code: str) -> str:
        """Return what has changed of what `code` uses since the model looked, as it is told; empty where nothing."""
        names = self._names()
        before, after = self._files()
        self._before = {place: mark.stamp for place, mark in after.items()}
        if not names and not after:
            return ""
        seen = Sight({name: Mark("then") for name, by in names.items() if by[0] != "added"}, before)
        now = Sight({name: Mark("" if how == "deleted" else "now", by) for name, (how, by) in names.items()}, after)
        found = stale(code, seen, now, transform=self._shell.transform_cell)
        for one in found:
            if one.kind == "file":
                self._told[one.name] = after[one.name].stamp
        return told(found) if found else ""

    def ran(self) -> None:
        """A cell of the model ran: the files that it wrote are no surprise to it."""
        _, after = self._files()
        self._told |= {place: mark.stamp for place, mark in after.items() if self._before.get(place) != mark.stamp}

    def _names(self) -> dict[str, tuple[str, str]]:
        """Return the names that others than the model changed since: how, and by which statement."""
        changed: dict[str, tuple[str, str]] = {}
        for statement, execution in reversed(self._loop.history):
            if execution.execution_id == self._head:
                break
            diff, by = execution.state_diff, statement.statement_id
            own = statement.author == "model"
            for how, names in (("added", diff.added), ("changed", diff.changed), ("deleted", diff.deleted)):
                for name in names:
                    changed.setdefault(name, ("own" if own else how, by))
        return {name: told for name, told in changed.items() if told[0] != "own"}

    def _files(self) -> tuple[dict[str, FileMark], dict[str, FileMark]]:
        """Return the files that views show, as the views show them and as they are; only those that differ."""
        graph, names = self._loop.graph, self._loop.names.first_names()
        before: dict[str, FileMark] = {}
        after: dict[str, FileMark] = {}
        for node in graph.nodes():
            path = node.looks_at if isinstance(node, ViewHandle) else None
            if not isinstance(node, ViewHandle) or not isinstance(path, str):
                continue
            rendered, now = node.stamps()
            place = os.path.abspath(os.path.expanduser(path))
            if now in (rendered, self._told.get(place)):
                continue
            handles = (names.get(node.obj_id, node.obj_id), *(before[place].handles if place in before else ()))
            before[place] = FileMark(rendered or "then", handles)
            after[place] = FileMark("" if not os.path.exists(place) else now, handles)
        return before, after
