"""Marks of the notebook's cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from ctxkernel.core.replay import CheckpointState
from ctxkernel.core.timeline import Author

CellState = Literal["fresh", "stale", "branch", "diverged", "asks", "unknown"]
"""`fresh`: its newest execution is on the path to HEAD, and nothing that it read has changed since · `stale`: something
that it read was changed by a later statement, or is stale itself · `branch`: its newest execution is not on the path to
HEAD · `diverged`: its re-run gave another result · `asks`: it asks before it runs again · `unknown`: the kernel
cannot know whether it is stale."""


class CellMark(TypedDict):
    """The state of one cell of the notebook.

    Where `on_head` is another execution than the newest one, `here` is its state, and `because` and `upstream` are its.
    """

    statement_id: str
    execution_id: str
    on_head: str | None
    here: CellState | None
    author: Author
    state: CellState
    because: Sequence[str]
    upstream: Sequence[str]
    source: str
    checkpoint: CheckpointState | None
    count: int | None


class CellVersion(TypedDict):
    """The text and the outputs of a cell as its execution left them; `cut` says what is missing, or is empty.

    `source` is null where the text itself is left out; `masked` says that a part of it is replaced by a mask.
    `digest` is that of the whole text, as in a mark.
    """

    cell_id: str
    statement_id: str
    execution_id: str
    status: str
    source: str | None
    digest: str
    masked: bool
    outputs: Sequence[Mapping[str, Any]]
    count: int | None
    cut: str


class CellVersions(TypedDict):
    """The cells on the path to the execution `at`, in the order in which they last ran; null is the start."""

    at: str | None
    cells: Sequence[CellVersion]
