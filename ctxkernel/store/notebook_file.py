"""The JSON of a notebook's file, and its code cells.

Rule 1: A notebook's file may come from a stranger: it is read within bounds, and every field may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.json_input import load_json

MOST_BYTES = 256 * 1024 * 1024
MOST_DEPTH = 100


@dataclass(frozen=True, slots=True)
class FileCell:
    """A code cell of a notebook's file."""

    source: str
    cell_id: str | None
    metadata: Mapping[str, Any]
    count: int | None
    """The number of its prompt; None where it has not run."""


def read_notebook_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a notebook's file. Raises OSError, and ValueError with what is wrong."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES // 1024**2} MiB")
    found = load_json(content, most_bytes=MOST_BYTES, most_depth=MOST_DEPTH, infinite=True)
    if not isinstance(found, dict):
        raise ValueError("it holds no JSON object")  # noqa: TRY004
    return cast("dict[str, Any]", found)


def code_cells(notebook: Mapping[str, Any]) -> list[FileCell]:
    """Return the code cells of a notebook of format 4; others are left out."""
    return [
        FileCell(
            joined(one.get("source")),
            cell_id(one),
            as_object(one.get("metadata")),
            as_count(one.get("execution_count")),
        )
        for one in as_objects(notebook.get("cells"))
        if one.get("cell_type") == "code"
    ]


def cell_id(cell: Mapping[str, Any]) -> str | None:
    """Return the id of a cell: that of format 4.5, else that of Colab, which is in its metadata."""
    for one in (cell.get("id"), as_object(cell.get("metadata")).get("id")):
        if isinstance(one, str) and 0 < len(one) <= 64:
            return one
    return None


def joined(text: object) -> str:
    """Return a text of the format, which may be a list of lines."""
    if isinstance(text, list):
        return "".join([one for one in cast("list[object]", text) if isinstance(one, str)])
    return text if isinstance(text, str) else ""


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a JSON list; none for anything else."""
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", one) for one in listed if isinstance(one, dict)]


def as_count(value: object) -> int | None:
    """Return the number of a prompt; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
