"""The order of the outputs of a cell. `replay.notebook_outputs` reads it.

Rule 1: An order is kept only if it is not the usual one: stdout, stderr, displays that are no result, the traceback.
Rule 2: It holds lengths, no text. Where they do not fit the kept text (it was truncated, or a secret in it was masked),
        each stream stands as a whole at its first place.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from ctxkernel.core.timeline import Artifact
from ctxkernel.replay.notebook_outputs import (
    CAPTURED,
    CLEARED,
    DISPLAYS,
    ERROR,
    KIND,
    MOST,
    RESULT,
    STREAMS,
    OutputPart,
)


class OutputOrder:
    """Notes the outputs of a cell as they come."""

    def __init__(self) -> None:
        self._parts: list[OutputPart] = []
        self._too_many = False

    def stream(self, name: str, text: str, widget: str = "") -> None:
        """Note a text of a stream; `widget` is the Output widget that captures it."""
        mark = _mark(widget)
        if self._parts and self._parts[-1][0] == name and self._parts[-1][2] == mark:
            self._parts[-1] = (name, self._parts[-1][1] + len(text), mark)
        else:
            self._add((name, len(text), mark))

    def display(self, name: str, *, is_result: bool, widget: str = "") -> None:
        """Note a rich output."""
        self._add((name, 0, _mark(widget) or (RESULT if is_result else "")))

    def error(self) -> None:
        """Note the traceback of the cell."""
        self._add((ERROR, 0, ""))

    def clear(self, widget: str = "") -> None:
        """Note that the cell's own outputs, or those of an Output widget, are removed: text stays in the record."""
        mark, kept = _mark(widget), list[OutputPart]()
        newest: dict[str, int] = {}
        """Stream → its newest part among those that stay."""
        for name, length, old in self._parts:
            cleared = old == mark or (not widget and old == RESULT)
            if cleared and name not in STREAMS:
                continue
            part = (name, length, CLEARED if cleared else old)
            at = newest.get(name, -1)
            if at >= 0 and kept[at][2] == part[2] == CLEARED:
                kept[at] = (name, kept[at][1] + length, CLEARED)
                continue
            newest[name] = len(kept)
            kept.append(part)
        self._parts = kept

    def _add(self, part: OutputPart) -> None:
        if len(self._parts) == MOST:
            self._too_many = True
        else:
            self._parts.append(part)

    def artifact(self) -> Artifact | None:
        """Return the order as an artifact; None if it is the usual one."""
        streams = [name for name, *_ in self._parts if name in STREAMS]
        first = [name for name, *_ in self._parts[: len(streams)]]
        usual = first == streams and streams == [name for name in STREAMS if name in streams]
        usual = usual and not any(name == ERROR for name, *_ in self._parts[:-1])
        if self._too_many or (usual and not any(mark for *_, mark in self._parts)):
            return None
        return _json_artifact(KIND, "outputs", [list(part) for part in self._parts])


def displays_artifact(about: list[Any], updates: list[Any], cleared: list[str]) -> Artifact | None:
    """Return what displays have beside their content, and what a cell did to displays of earlier cells.

    `about` are the identifiers and metadata of displays, `updates` those of earlier cells' displays, and `cleared` the
    Output widgets that were cleared.
    """
    data = {name: one for name, one in (("about", about), ("updates", updates), ("cleared", cleared)) if one}
    return _json_artifact(DISPLAYS, "displays", data) if data else None


def _json_artifact(kind: Literal["order", "displays"], name: str, data: Any) -> Artifact:
    text = json.dumps(data, default=str)
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return Artifact(kind, name, "application/json", len(text), digest, json.loads(text))


def _mark(widget: str) -> str:
    return f"{CAPTURED}{widget}" if widget else ""
