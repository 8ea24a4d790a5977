"""The order of the outputs of a cell. `replay.notebook_outputs` reads it.

Rule 1: An order is kept only if it is not the usual one: stdout, stderr, then displays that are no result.
Rule 2: It holds lengths, no text. Where they do not fit the kept text (it was truncated, or a secret in it was masked),
        each stream stands as a whole at its first place.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ctxkernel.core.timeline import Artifact
from ctxkernel.replay.notebook_outputs import CLEARED, KIND, MOST, RESULT, STREAMS, OutputPart


class OutputOrder:
    """Notes the outputs of a cell as they come."""

    def __init__(self) -> None:
        self._parts: list[OutputPart] = []
        self._too_many = False

    def stream(self, name: str, text: str) -> None:
        """Note a text of a stream."""
        if self._parts and self._parts[-1][0] == name and not self._parts[-1][2]:
            self._parts[-1] = (name, self._parts[-1][1] + len(text), "")
        else:
            self._add((name, len(text), ""))

    def display(self, name: str, *, is_result: bool) -> None:
        """Note a rich output."""
        self._add((name, 0, RESULT if is_result else ""))

    def clear(self) -> None:
        """Note that the front end removed all outputs: the text of streams stays in the record."""
        lengths = {name: sum(part[1] for part in self._parts if part[0] == name) for name in STREAMS}
        self._parts = [(name, length, CLEARED) for name, length in lengths.items() if length]

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
        if self._too_many or (usual and not any(mark for *_, mark in self._parts)):
            return None
        data: list[Any] = [list(part) for part in self._parts]
        text = json.dumps(data).encode()
        digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
        return Artifact(KIND, "outputs", "application/json", len(text), digest, data)
