"""The kept output of an execution as the outputs of a notebook's cell, in the order in which they came.

Rule: an order (`kernel.execution.output_order`) holds lengths, no text. Where they do not fit the kept text (it was
      truncated, or a secret in it was masked), each stream stands as a whole at its first place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, cast

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.timeline import Execution

MOST = 1000
"""Most parts of an order that is kept; a cell that alternates more often has the usual one."""
STREAMS = ("stdout", "stderr")
ERROR = "error"
"""The name of the part that is the traceback, in an order where something follows it: figures are drawn at the end."""
RESULT, CLEARED, CAPTURED = "result", "cleared", "widget:"
"""Marks of parts; the last one begins the mark of a part that an Output widget shows, and its identifier follows."""
KIND, DISPLAYS = "order", "displays"

OutputPart = tuple[str, int, str]
"""A stream, the length of its text in characters, and whether it was cleared; or a display, 0, and whether it is the
result of the cell; or the traceback."""
Output = dict[str, Any]


@dataclass(slots=True)
class NotebookCellOutputs:
    """The outputs of a cell as a notebook holds them after later cells ran."""

    outputs: list[Output] = field(default_factory=list[Output])
    captured: dict[str, list[Output]] = field(default_factory=dict[str, list[Output]])
    """Output widget → what it shows instead of the cell."""
    everything: list[Output] = field(default_factory=list[Output])
    """Both in their order: the cell where there are no widgets."""
    is_whole: bool = True
    """Whether nothing of it was left out of the session, as too large."""


def notebook_outputs(execution: Execution, count: int | None = None) -> list[Output]:
    """Return the kept output of an execution as outputs of a notebook cell; `count` is the number of its prompt.

    The content of displays is that at the end of this cell. What an Output widget captured is among the outputs.
    """
    return [output for _, _, output in _identified(execution, count)]


def output_messages(execution: Execution, count: int | None = None) -> Iterator[tuple[str, Output]]:
    """Yield the type and the content of the messages that show the output of an execution."""
    for display_id, _, output in _identified(execution, count):
        kind = str(output.pop("output_type"))
        yield kind, {**output, "transient": {"display_id": display_id}} if display_id else output
    for display_id, data, metadata in _about(execution, "updates"):
        if None not in data.values():
            transient = {"display_id": display_id}
            yield "update_display_data", {"data": data, "metadata": metadata, "transient": transient}


def captured_outputs(execution: Execution) -> tuple[dict[str, list[Output]], set[str]]:
    """Return what each Output widget captured of an execution, and the widgets that were cleared before that."""
    found = {widget: list[Output]() for widget in map(str, _kept(execution, "cleared"))}
    cleared = set(found)
    if any(mark.startswith(CAPTURED) for _, _, mark in _parts(execution)):
        for _, widget, output in _identified(execution, None):
            if widget:
                found.setdefault(widget, []).append(output)
    return found, cleared


def display_ids(execution: Execution) -> dict[str, str]:
    """Return the identifiers that the code gave to displays of an execution, by the name of the display."""
    return {name: display_id for name, display_id, _ in _about(execution, "about") if display_id}


def display_updates(execution: Execution) -> Iterator[tuple[str, Output]]:
    """Yield identifier and new content of each display of an earlier cell that an execution updated.

    The content is a MIME bundle, with None for data that were too large to be kept.
    """
    yield from ((display_id, data) for display_id, data, _ in _about(execution, "updates"))


def outputs_of_cells(runs: Iterable[tuple[Execution, int | None]]) -> list[NotebookCellOutputs]:
    """Return the outputs of the cells of a notebook after all of them ran, in order, each with its prompt's number.

    A display that a later cell updates, or shows again, has its last content.
    """
    found: list[NotebookCellOutputs] = []
    shown: dict[str, list[tuple[NotebookCellOutputs, Output]]] = {}
    for execution, count in runs:
        made = list(_identified(execution, count))
        for cell, widget in itertools.product(found, map(str, _kept(execution, "cleared"))):
            cell.captured.pop(widget, None)
        updates = [(name, data, metadata) for name, data, metadata in _about(execution, "updates")]
        updates += [(name, one["data"], one["metadata"]) for name, _, one in made if name]
        for name, data, metadata in updates:
            for cell, output in shown.get(name, ()):
                output |= {"data": data, "metadata": metadata}
                cell.is_whole = cell.is_whole and None not in data.values()
        lost = any(one.kind == "display" and one.data is None for one in execution.artifacts)
        cell = NotebookCellOutputs(is_whole=not execution.cut and not lost)
        for name, widget, output in made:
            (cell.captured.setdefault(widget, []) if widget else cell.outputs).append(output)
            cell.everything.append(output)
            if name:
                shown.setdefault(name, []).append((cell, output))
        found.append(cell)
    return found


def _identified(execution: Execution, count: int | None) -> Iterator[tuple[str, str, Output]]:
    """Yield the outputs of an execution, each after its display id and the Output widget that captured it."""
    displays: dict[str, Output] = {}
    """The MIME bundles of displays; last, the output that shows an exception."""
    for one in execution.artifacts:
        if one.kind == "display" and one.data is not None and one.name != ERROR:  # a file may hold such a name
            displays.setdefault(one.name, {})[one.mime] = one.data
    about = {name: (display_id, metadata) for name, display_id, metadata in _about(execution, "about")}
    texts = {name: text for name in STREAMS if (text := getattr(execution, name))}
    if (fault := execution.exception) is not None:
        trace = fault.trace_summary.splitlines()
        displays[ERROR] = {"output_type": "error", "ename": fault.type, "evalue": fault.message, "traceback": trace}
    for name, mark, output in _in_order(_parts(execution), texts, displays, count):
        display_id, metadata = about.get(name, ("", {}))
        if "metadata" in output:
            output["metadata"] = metadata
        yield display_id, mark.removeprefix(CAPTURED) if mark.startswith(CAPTURED) else "", output


def _in_order(
    parts: list[OutputPart], texts: Mapping[str, str], displays: Mapping[str, Output], count: int | None
) -> Iterator[tuple[str, str, Output]]:
    """Yield the outputs in their order, each after its name and its mark."""
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
                text = texts[name][start : read[name]]
                yield name, mark, {"output_type": "stream", "name": name, "text": text}
        elif (output := left.pop(name, None)) is None:
            continue
        elif isinstance(output, str):
            yield name, "", {"output_type": "stream", "name": name, "text": output}
        elif name == ERROR:
            yield name, "", output
        else:
            kind = {"output_type": "execute_result", "execution_count": count} if mark == RESULT else {}
            yield name, mark, {"output_type": "display_data", "data": output, "metadata": {}, **kind}


def _about(execution: Execution, key: Literal["about", "updates"]) -> Iterator[tuple[str, Any, Output]]:
    """Yield what is kept of displays (name, id, metadata), or of updates (id, data, metadata)."""
    kind = str if key == "about" else dict
    for one in _kept(execution, key):
        match one:
            case [str(name), content, dict()] if isinstance(content, kind):
                yield name, content, one[2]
            case _:
                continue


def _kept(execution: Execution, key: str) -> list[Any]:
    """Return a list that is kept of the displays of an execution; empty if there is none."""
    data: Any = next((one.data for one in execution.artifacts if one.kind == DISPLAYS), None)
    kept: Any = cast("dict[str, Any]", data).get(key) if isinstance(data, dict) else None
    return cast("list[Any]", kept) if isinstance(kept, list) else []


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
