"""The tags and the id of a cell, from the metadata of its execute request.

Rule 1: the metadata is untrusted: it may hold anything. Tags are kept as text, within bounds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from ctxkernel.core.timeline import PARAMETERS, Kind

MEANINGS = {"ctx-differs": "differs", "ctx-asks": "asks"}
"""Tags of a cell that is expected to differ when it is re-run, or that asks before it runs again."""
_MOST_TAGS = 20
_MOST_CHARS = 100
_MOST_ID = 1000
_URI = re.compile(r"vscode-[a-z-]+:[^#]*#(?P<cell>[^#\s]{1,200})")


def cell_tags(metadata: object) -> list[str]:
    """Return the tags in a cell's metadata."""
    tags: object = cast("dict[str, Any]", metadata).get("tags") if isinstance(metadata, dict) else None
    if not isinstance(tags, list):
        return []
    texts = [one for one in cast("list[object]", tags) if isinstance(one, str) and 0 < len(one) <= _MOST_CHARS]
    return list(dict.fromkeys(texts))[:_MOST_TAGS]


def statement_tags(tags: Sequence[str]) -> dict[str, Any]:
    """Return the tags of a cell as those of its statement: what they mean here, and all of them."""
    known = {MEANINGS[tag]: True for tag in MEANINGS if tag in tags}
    return {**known, "cell_tags": list(tags)} if tags else known


def kind_of(tags: Sequence[str]) -> Kind:
    """Return the kind of a statement whose cell has these tags: papermill's parameters are of a kind of their own."""
    for kind in PARAMETERS:
        if kind in tags:
            return kind
    return "python"


def stable_id(cell_id: object, run: int) -> str | None:
    """Return the id of a cell for the log; None if it has none.

    VS Code sends the address of the cell's editor (`vscode-notebook-cell:/home/me/a.ipynb#W2sZmlsZQ%3D%3D`). It names
    the user's folders, and another cell when the notebook is opened again: its last part with the number of the kernel
    start (`run`) is kept, so that later cells pair by their text.
    """
    text = cell_id if isinstance(cell_id, str) and len(cell_id) <= _MOST_ID else None
    address = _URI.fullmatch(text) if text is not None else None
    return f"{address['cell']}@{run}" if address is not None else text
