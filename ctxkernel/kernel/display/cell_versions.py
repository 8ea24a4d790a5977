"""The cells of the notebook as they were at an execution: text and outputs from the timeline.

Rule 1: it reads the log and changes nothing; it may run on another thread while a cell runs.
Rule 2: an answer is bounded. What is left out of it is named, and can be requested for its cell alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.masking import Mask
from ctxkernel.core.timeline import Execution, Statement, StatementLog
from ctxkernel.kernel.display.cell_marks import source_digest
from ctxkernel.replay.notebook_outputs import notebook_outputs

if TYPE_CHECKING:
    from ctxkernel.kernel.messages.cells import CellVersion, CellVersions

MOST_BYTES = 2 << 20
"""Most bytes of the texts and outputs of an answer for all cells …"""
MOST_BYTES_OF_CELL = 16 << 20
"""… and for one cell."""


def cell_versions(
    log: StatementLog, counts: Mapping[str, int], mask: Mask, *, at: str | None = None, cell_id: str | None = None
) -> CellVersions:
    """Return the cells on the path to the execution `at` (None: HEAD), or only that of `cell_id`.

    Raises BadCommand for an unknown execution.
    """
    if at is not None and at not in log:
        raise BadCommand(f"there is no execution {at[:40]!r}; %ctx timeline lists them")
    path = log.path(at) if at is not None else log.path()
    newest: dict[str, tuple[Statement, Execution]] = {}
    for statement, execution in path:
        if statement.cell_id is None or statement.kind == "meta" or execution.status == "running":
            continue
        if cell_id is None or statement.cell_id == cell_id:
            newest.pop(statement.cell_id, None)
            newest[statement.cell_id] = statement, execution
    left = MOST_BYTES if cell_id is None else MOST_BYTES_OF_CELL
    cells: list[CellVersion] = []
    for statement, execution in newest.values():
        version, size = _version(statement, execution, counts.get(execution.execution_id), left, mask)
        left -= size
        cells.append(version)
    return {"at": at if at is not None else log.head, "cells": cells}


def _version(
    statement: Statement, execution: Execution, count: int | None, left: int, mask: Mask
) -> tuple[CellVersion, int]:
    """Return the version of one cell in at most `left` bytes, and its size."""
    source, outputs = statement.source, _outputs(execution, count)
    missing = _not_kept(execution)
    size = len(source.encode("utf-8", "surrogatepass"))
    has_source = size <= left
    if not has_source:
        size, outputs = 0, []
        missing = [f"the text of {len(source):,} characters is not included"]
    elif outputs:
        more = len(json.dumps(outputs, default=str))
        if size + more > left:
            outputs = []
            missing = [f"the outputs of {more:,} bytes are not included", *missing]
        else:
            size += more
    return {
        "cell_id": statement.cell_id or "",
        "statement_id": statement.statement_id,
        "execution_id": execution.execution_id,
        "status": execution.status,
        "source": source if has_source else None,
        "digest": source_digest(source),
        "masked": has_source and mask(source) != source,
        "outputs": outputs,
        "count": count,
        "cut": "; ".join(missing),
    }, size


def _outputs(execution: Execution, count: int | None) -> list[dict[str, Any]]:
    late = [{"output_type": "stream", "name": name, "text": text} for name, text in execution.late.items() if text]
    return [*notebook_outputs(execution, count), *late]


def _not_kept(execution: Execution) -> list[str]:
    """Return what the timeline does not have of the outputs."""
    lost = [one for one in execution.artifacts if one.kind == "display" and one.data is None]
    told = [f"{one.mime} of {one.size:,} bytes was not kept" for one in lost]
    return [*told, *(f"{n:,} bytes of {name} were not kept" for name, n in execution.cut.items() if n)]
