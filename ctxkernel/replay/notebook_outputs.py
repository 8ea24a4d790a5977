"""The kept output of an execution as the outputs of a notebook's cell, in the order in which they came.

Rule: an order (`kernel.execution.output_order`) holds lengths, no text. Where they do not fit the kept text (it was
      truncated, or a secret in it was masked), each stream stands as a whole at its first place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from ctxkernel.core.timeline import Execution

MOST = 1000
"""Most parts of an order that is kept; a cell that alternates more often has the usual one."""
STREAMS = ("stdout", "stderr")
RESULT, CLEARED = "result", "cleared"
KIND = "order"

OutputPart = tuple[str, int, str]
"""A stream, the length of its text in characters, and whether it was cleared; or a display, 0, and whether it is the
result of the cell."""


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
    parts: list[OutputPart], texts: Mapping[str, str], displays: Mapping[str, dict[str, Any]], count: int | None
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


def _parts(execution: Execution) -> list[OutputPart]:
    """Return the order that was kept; empty if there is none, or the file holds another thing."""
    data: Any = next((one.data for one in execution.artifacts if one.kind == KIND), None)
    if not isinstance(data, list):
        return []
    found: list[OutputPart] = []
    for part in cast("list[Any]", data)[:MOST]:
        match part:
            case [str(name), int(length), str(mark)] if length >= 0:
                found.append((name, length, mark))
            case _:
                return []
    return found
