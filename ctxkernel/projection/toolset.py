"""The tools that a model is given: constant, so that they begin every request with the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ctxkernel.core.events import Json
from ctxkernel.history.redact_tool import TOOL as REDACT_TOOL
from ctxkernel.projection.dialect import RUN_CELL

RUN_CELL_TOOL: Mapping[str, Json] = {
    "name": RUN_CELL,
    "description": (
        "Run Python code as one cell of the shared notebook. It sees and changes the person's variables. The result "
        "is its output, errors, and which names changed. One step a cell; do not repeat what a result already shows."
    ),
    "input_schema": {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The cell's source."}},
        "required": ["code"],
        "additionalProperties": False,
    },
}
TOOLS: Sequence[Mapping[str, Json]] = (RUN_CELL_TOOL, REDACT_TOOL)


def tools_json(tools: Sequence[Mapping[str, Json]] = TOOLS) -> str:
    """Return the tools as they stand in a request."""
    return json.dumps(list(tools), ensure_ascii=False, separators=(",", ":"))
