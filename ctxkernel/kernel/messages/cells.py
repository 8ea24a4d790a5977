"""Marks of the notebook's cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from ctxkernel.core.replay import CheckpointState
from ctxkernel.core.timeline import Author

CellState = Literal["fresh", "stale", "later", "branch", "diverged", "asks", "unknown"]
"""`fresh`: its newest execution is on the path to HEAD, and no cell before it changed what it read since · `stale`: one
did, or what it read from is stale itself · `later`: the path to HEAD ends before it, and it ran after HEAD ·
`branch`: its newest execution is not on the path to HEAD · `diverged`: its re-run gave another result, and not because
of an edit or a cell above · `asks`: it asks before it runs again · `unknown`: the kernel cannot know whether it is
stale."""


class CellLook(TypedDict):
    """The part of a mark that many cells have in common. A page asks for the reasons if they are left out."""

    here: CellState | None
    author: Author
    state: CellState
    because: NotRequired[Sequence[str]]
    upstream: NotRequired[Sequence[str]]
    checkpoint: CheckpointState | None
    marked: Literal["asks", "differs"] | None
    """The mark of a person."""
    failed: bool
    """The newest execution raised an exception."""


class CellMark(CellLook):
    """The state of one cell of the notebook.

    Where `on_head` is another execution than the newest one, `here` is its state, and `because` and `upstream` are its.
    """

    statement_id: str
    execution_id: str
    on_head: str | None
    source: str
    count: int | None


class CellSpans(TypedDict):
    """Values of cells: the one numbered `cells[i]` and those after it, `lengths[i]` in all, have `values[i]`.

    A value that is an execution is that of the first; each cell after it has the same run of the next statement.
    """

    cells: Sequence[int]
    lengths: Sequence[int]
    values: Sequence[str | int | bool | None]


class CellTable(TypedDict):
    """The marks that changed, in short.

    `ids` are those of the cells numbered from `first` on that no table before has named. `newest` are the newest
    executions; `sources` and `counts` belong to their cells, in this order. A value of `on_head` is true if it is the
    newest execution, null if there is none. `stands` has places in `looks`. `more`: too much changed for one message,
    so the table is empty; a `marks` request gives all marks.
    """

    first: int
    ids: Sequence[str]
    newest: CellSpans
    sources: Sequence[str]
    counts: Sequence[int | None]
    on_head: CellSpans
    looks: Sequence[CellLook]
    stands: CellSpans
    more: NotRequired[bool]


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
