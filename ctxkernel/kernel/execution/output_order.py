"""The order of the outputs of a cell, and the outputs of a notebook's cell in that order.

Rule 1: An order is kept only if it is not the usual one: stdout, stderr, then displays that are no result.
Rule 2: It holds lengths, no text. Where they do not fit the kept text (it was truncated, or a secret in it was masked),
        each stream stands as a whole at its first place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ctxkernel.core.timeline import Artifact, Execution

MOST = 1000
"""Most parts of an order that is kept; a cell that alternates more often has the usual one."""
STREAMS = ("stdout", "stderr")
RESULT, CLEARED = "result", "cleared"
KIND = "order"

Part = tuple[str, int, str]
"""A stream, the length of its text in characters, and whether it was cleared; or a display, 0, and whether it is the
result of the cell."""


class OutputOrder:
    """Notes the outputs of a cell as they come."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
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

    def _add(self, part: Part) -> None:
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


def notebook_outputs(execution: Execution, count: int | None = None) -> list[dict[str, Any]]:
    """Return the kept output of an execution as outputs of a notebook cell; `count` is the number of its prompt."""
    displays: dict[str, dict[str, Any]] = {}
    for one in execution.artifacts:
        if one.kind == "display" and one.data is not None:
            displays.setdefault(one.name, {})[one.mime] = one.data
    texts = {name: text for name in STREAMS if (text := getattr(execution, name))}
    outputs = list(_in_order(_parts(execution), texts, displays, count))
    if (fault := execution.exception) is not None:
        trace = fault.trace_summary.splitlines()
        outputs.append({"output_type": "error", "ename": fault.type, "evalue": fault.message, "traceback": trace})
    return outputs


def _in_order(
    parts: list[Part], texts: Mapping[str, str], displays: Mapping[str, dict[str, Any]], count: int | None
) -> Iterator[dict[str, Any]]:
    lengths = {name: sum(length for one, length, _ in parts if one == name) for name in texts}
    exact = {name for name, text in texts.items() if lengths[name] == len(text)}
    read = dict.fromkeys(texts, 0)
    left = {**texts, **displays}
    for name, length, mark in [*parts, *((name, 0, "") for name in (*texts, *displays))]:
        if name in exact and length:
            start = read[name]
            read[name] += length
            left.pop(name, None)
            if mark != CLEARED:
                yield {"output_type": "stream", "name": name, "text": texts[name][start : read[name]]}
        elif (output := left.pop(name, None)) is None:
            continue
        elif isinstance(output, str):
            yield {"output_type": "stream", "name": name, "text": output}
        else:
            kind = {"output_type": "execute_result", "execution_count": count} if mark == RESULT else {}
            yield {"output_type": "display_data", "data": output, "metadata": {}, **kind}


def _parts(execution: Execution) -> list[Part]:
    """Return the order that was kept; empty if there is none, or the file holds another thing."""
    data: Any = next((one.data for one in execution.artifacts if one.kind == KIND), None)
    if not isinstance(data, list):
        return []
    found: list[Part] = []
    for part in cast("list[Any]", data)[:MOST]:
        match part:
            case [str(name), int(length), str(mark)] if length >= 0:
                found.append((name, length, mark))
            case _:
                return []
    return found
