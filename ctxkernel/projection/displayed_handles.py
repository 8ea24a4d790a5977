"""Displays of handles in outputs, and the reference that replaces an old one.

The display of a handle begins with its `repr`. While it shows the handle as it is, it stays in the history. Once it is
out of date, the tail has the content, and a reference replaces the display when old outputs are masked, or when the
displays that are out of date take many tokens. Where the tail has the content from the beginning, the reference is
written at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ctxkernel.core.timeline import Artifact, Execution
from ctxkernel.core.timeline_events import AsyncPayloadApplied, GroupRecomputed, MethodCalled, NodeChanged, TickApplied

MANY_TOKENS = 500
"""Displays that are out of date and take more tokens become references in a batch of their own."""
_HEAD = re.compile(r"<(view|group|note) ([a-z]+\d+) [^\n]* lod=(\d) tokens=[^\n]* ~\d+ tokens>(?:\n|\Z)")


def displayed_handle(text: str) -> str:
    """Return the obj_id of the handle that a displayed text shows, or empty."""
    found = _HEAD.match(text) if text.startswith("<") else None
    return found[2] if found else ""


def reference(text: str) -> str:
    """Return the reference that replaces the display of a handle: `<view v1 lod=2; see handles>`."""
    found = _HEAD.match(text)
    return f"<{found[1]} {found[2]} lod={found[3]}; see handles>" if found else text


def plain_text(artifact: Artifact) -> str:
    """Return the text of a rich output of type text/plain, or empty."""
    data: object = artifact.data
    if artifact.kind != "display" or artifact.mime != "text/plain":
        return ""
    return "".join(map(str, data)) if isinstance(data, list) else data if isinstance(data, str) else ""  # type: ignore[arg-type]


def handles_displayed(execution: Execution) -> Iterator[tuple[str, str]]:
    """Yield the obj_id and the text of each display of a handle, in order."""
    for artifact in execution.artifacts:
        if obj_id := displayed_handle(text := plain_text(artifact)):
            yield obj_id, text


def with_references(text: str, displays: Collection[tuple[str, str]]) -> str:
    """Return the result of a cell with references instead of these displays."""
    for _, display in displays:
        text = text.replace(display.strip("\n"), reference(display))
    return text


class Shown(NamedTuple):
    """A display of a handle in the history."""

    execution_id: str
    tokens: int
    """Estimate of what a reference saves."""


class EndedExecutions:
    """The executions of the path that have ended, in order."""

    def __init__(self) -> None:
        self.all: list[Execution] = []
        self.count: dict[str, int] = {}
        """Execution → how many there are up to it."""

    def append(self, execution: Execution) -> None:
        """Add the next one."""
        self.all.append(execution)
        self.count[execution.execution_id] = len(self.all)


class DisplayedHandles:
    """The displays of handles on the path, and which are out of date: a fold over executions.

    A display is out of date once its handle is displayed again, changes, or is pinned: then the tail has the content.
    """

    def __init__(self, ended: EndedExecutions) -> None:
        self._ended = ended
        self._followed = 0
        self._newest: dict[str, Shown] = {}
        """Handle → its newest display, while it shows the handle as it is."""
        self.by_execution: dict[str, Sequence[tuple[str, str]]] = {}
        """Execution → the handles that it displays, each with the text."""
        self.hidden: dict[str, frozenset[str]] = {}
        """Execution → the handles whose displays in it are references."""
        self.changed: dict[str, str] = {}
        """Handle → the statement of its newest display, where that is out of date."""
        self._places: dict[str, int] = {}
        """Execution → its entry in the history."""
        self._waiting: list[tuple[str, str]] = []
        """The displays (execution, handle) that are out of date and not yet references."""
        self._tokens = 0
        """The tokens that references for the waiting displays would save."""
        self._pinned: set[str] = set()

    def follow(self, event_id: str = "") -> None:
        """Take in the executions up to that of an event, or all."""
        count = self._ended.count.get(event_id.partition(":")[0], 0) if event_id else len(self._ended.all)
        for execution in self._ended.all[self._followed : count]:
            if execution.events or execution.artifacts:
                self._take(execution)
        self._followed = max(self._followed, count)

    def _take(self, execution: Execution) -> None:
        for event in execution.events:
            if isinstance(event, MethodCalled) and event.method in ("pin", "unpin"):
                (self._pinned.add if event.method == "pin" else self._pinned.discard)(event.obj_id)
                self._outdate(event.obj_id)
            elif isinstance(event, NodeChanged | TickApplied | AsyncPayloadApplied):
                self._outdate(event.obj_id)
            elif isinstance(event, GroupRecomputed):
                self._outdate(event.group_id)
        displays = list(handles_displayed(execution)) if execution.artifacts else []
        if not displays:
            return
        name = execution.execution_id
        self.by_execution[name] = displays
        at_once: set[str] = set()
        for obj_id, text in displays:
            self._outdate(obj_id)
            self.changed.pop(obj_id, None)
            if obj_id in self._pinned or not text.startswith("<view"):  # the tail has the content in any case
                at_once.add(obj_id)
            else:
                self._newest[obj_id] = Shown(name, len(text) // 3)
        self.hidden[name] = frozenset(at_once)

    def _outdate(self, obj_id: str) -> None:
        shown = self._newest.pop(obj_id, None)
        if shown is not None:
            self._waiting.append((shown.execution_id, obj_id))
            self._tokens += shown.tokens
            self.changed[obj_id] = shown.execution_id.partition(".")[0]

    def are_due(self, event_id: str, place: int, *, batch: bool) -> bool:
        """Note the entry of an event; return whether references are due: with a batch, or for many tokens."""
        if self.by_execution and (name := event_id.partition(":")[0]) in self.by_execution:
            self._places.setdefault(name, place)
        return bool(self._waiting) and (batch or self._tokens > MANY_TOKENS)

    def settle(self) -> list[int]:
        """Make references of all displays that wait; return their entries."""
        waiting, self._waiting, self._tokens = self._waiting, [], 0
        for name, obj_id in waiting:
            self.hidden[name] = self.hidden[name] | {obj_id}
        return [self._places[name] for name in dict.fromkeys([name for name, _ in waiting]) if name in self._places]
