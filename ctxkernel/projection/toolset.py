"""The tools for models: constant, so that every request begins with the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ctxkernel.core.events import Json
from ctxkernel.history.redact_tool import TOOL as REDACT_TOOL
from ctxkernel.projection.dialect import RUN_CELL

EXPAND, CONDENSE = "expand", "condense"

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
EXPAND_TOOL: Mapping[str, Json] = {
    "name": EXPAND,
    "description": (
        "Bring back, once, the whole text of what is cut, masked, condensed or shown coarsely: a statement or event by "
        "its id (s12, s12.1:3), or a handle by its name. The result is its text, up to a bound. It runs nothing."
    ),
    "input_schema": {
        "type": "object",
        "properties": {"id": {"type": "string", "minLength": 1, "description": "Id or name, as shown."}},
        "required": ["id"],
        "additionalProperties": False,
    },
}
CONDENSE_TOOL: Mapping[str, Json] = {
    "name": CONDENSE,
    "description": (
        "Ask that old parts of the history be replaced by a summary before the next request. The questions and what is "
        "pinned stay. Use it when much of what is above no longer matters; the person can undo it."
    ),
    "input_schema": {
        "type": "object",
        "properties": {"reason": {"type": "string", "description": "Why, in one sentence."}},
        "additionalProperties": False,
    },
}
TOOLS: Sequence[Mapping[str, Json]] = (RUN_CELL_TOOL, REDACT_TOOL, EXPAND_TOOL, CONDENSE_TOOL)


def tools_json(tools: Sequence[Mapping[str, Json]] = TOOLS) -> str:
    """Return the tools as in a request."""
    return json.dumps(list(tools), ensure_ascii=False, separators=(",", ":"))
