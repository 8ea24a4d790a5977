"""The tools for models: constant, so that every request begins with the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ctxkernel.core.timeline_events import Json
from ctxkernel.history.redact_tool import TOOL as REDACT_TOOL
from ctxkernel.projection.dialect import RUN_CELL

EXPAND, CONDENSE = "expand", "condense"

RUN_CELL_TOOL: Mapping[str, Json] = {
    "name": RUN_CELL,
    "description": (
        "Run Python code as one cell of the shared notebook. It can use and change the person's variables. Returns "
        "output, error, and changed names."
    ),
    "input_schema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
}
EXPAND_TOOL: Mapping[str, Json] = {
    "name": EXPAND,
    "description": (
        "Return the whole text, and the images, of what is short, cut, masked or condensed: a cell or result by its id "
        "(s12, s12.1:2), a handle by its name. Runs nothing."
    ),
    "input_schema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
}
CONDENSE_TOOL: Mapping[str, Json] = {
    "name": CONDENSE,
    "description": "Have old parts of the history replaced by a summary before the next request.",
    "input_schema": {"type": "object", "properties": {"reason": {"type": "string"}}},
}
TOOLS: Sequence[Mapping[str, Json]] = (RUN_CELL_TOOL, REDACT_TOOL, EXPAND_TOOL, CONDENSE_TOOL)


def tools_json(tools: Sequence[Mapping[str, Json]] = TOOLS) -> str:
    """Return the tools as in a request."""
    return json.dumps(list(tools), ensure_ascii=False, separators=(",", ":"))
