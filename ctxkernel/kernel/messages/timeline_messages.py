"""Rows of the timeline, handles and changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from ctxkernel.core.replay import CheckpointState, DivergenceKind
from ctxkernel.core.timeline import Author, Kind, Status
from ctxkernel.core.turn_values import DeltaKind


class Tags(TypedDict, total=False):
    """Tags that only the statement of a model or of an agent has."""

    agent: str
    ask: str
    response: Any
    round: Any
    model: str
    receipt: str
    request_id: str
    usage: Mapping[str, Any]
    stop_reason: str
    held: bool
    fenced: bool
    replayed: bool


class BegunStatement(TypedDict):
    """A statement that runs now."""

    statement_id: str
    execution_id: str
    parent_execution_id: str | None
    index: int
    source: str
    author: Author
    kind: Kind
    cell_id: str | None
    started_at: float
    tags: Tags


class Size(TypedDict, total=False):
    """The size of a value, as far as it is known."""

    shape: Sequence[int]
    len: int
    bytes: int


class NameChange(TypedDict):
    """The change of one name by a statement; only a changed name has `how` and `before`."""

    type: str
    repr: str
    size: Size
    how: NotRequired[str]
    before: NotRequired[str]


class NamespaceDiff(TypedDict):
    """The changes of the user's names by a statement."""

    added: Mapping[str, NameChange]
    changed: Mapping[str, NameChange]
    deleted: Sequence[str]
    incomplete: str
    more: NotRequired[NameCounts]


class NameCounts(TypedDict):
    """The number of names that a shortened row leaves out."""

    added: int
    changed: int
    deleted: int


class Failure(TypedDict):
    """The exception of a statement."""

    type: str
    message: str
    trace_summary: str


class Artifact(TypedDict):
    """A rich output or a written file."""

    kind: str
    name: str
    mime: str
    size: int


class NodeNote(TypedDict):
    """A handle that changed in a turn."""

    name: str
    summary: str


class Checkpoint(TypedDict):
    """The checkpoint after an execution."""

    state: CheckpointState
    bytes_new: int
    time_ms: float
    missing: Mapping[str, str]
    reason: str


class Divergence(TypedDict):
    """One difference between an execution and its re-run; a page asks for its `detail` (`difference`)."""

    kind: DivergenceKind
    subject: str
    summary: str
    cause: str
    before: str
    after: str
    detail: None


class Comparison(TypedDict):
    """The result of a re-run, compared with the execution `against`."""

    execution_id: str
    against: str
    divergences: Sequence[Divergence]
    expected: bool
    time_ms: Sequence[float]
    same: bool


class Move(TypedDict):
    """A move of HEAD; `to` is null before all executions, and where an earlier kernel moved it."""

    to: str | None
    reason: str


class Marks(TypedDict):
    """The marks that a person set."""

    differs: bool
    asks: bool


class AskState(TypedDict):
    """The end of an ask, or that it waits; `told` says it to a person."""

    result: Literal["answered", "parked", "bound", "failed", "stopped", "asking", "ended"]
    seconds: float
    rounds: int
    text: str
    told: str


class Said(TypedDict):
    """The fields of a row that can change after it was sent: names and marks of a person, the state of an ask."""

    names: Sequence[str]
    marks: Marks
    ask: AskState | None


class AmendedRow(Said):
    """The changes of a row that was sent before."""

    execution_id: str


class ExecutionRow(BegunStatement):
    """The fields of a row that depend on the execution alone."""

    status: Status
    timestamp: float
    ended_at: float | None
    time_ms: float
    tokens: int | None
    usd: float | None
    stdout: str
    stderr: str
    cut: Mapping[str, int]
    late: Mapping[str, str]
    exception: Failure | None
    diff: NamespaceDiff
    artifacts: Sequence[Artifact]
    notices: Sequence[str]
    nodes: Sequence[NodeNote]


class Row(ExecutionRow, Said):
    """One execution."""

    moved: Move | None
    checkpoint: Checkpoint | None
    comparison: Comparison | None
    brief: NotRequired[bool]


class Span(TypedDict):
    """`count` executions from `first` on: each is the same run of the next statement, and follows the one before."""

    first: str
    count: int
    parent: str | None


class SpentByAsk(TypedDict):
    """The tokens of a response, and the execution that asked."""

    ask: str
    tokens: int


class Shape(TypedDict):
    """The tree of all executions that have ended, in the order in which they began, without their content."""

    spans: Sequence[Span]
    cells: Mapping[str, int]
    cell: Sequence[int]
    time_ms: Sequence[int]
    meta: Sequence[int]
    moved: Sequence[int]
    usd: Mapping[str, float]
    responses: Mapping[str, SpentByAsk]
    verdicts: Mapping[str, str]


class Details(TypedDict):
    """One execution in full."""

    row: ExecutionRow
    outputs: Sequence[Mapping[str, Any]]
    outputs_more: int
    events: Sequence[Mapping[str, str]]
    events_more: int


class Found(TypedDict):
    """The executions that a search found, oldest first: the newest of `total`."""

    runs: Sequence[str]
    total: int


class Share(TypedDict):
    """The tokens that a group gives to a member."""

    name: str
    tokens: int


class Handle(TypedDict):
    """A handle; its text comes on request. `shares` are those of a group."""

    name: str
    obj_id: str
    obj_type: str
    target: Any
    kind: Any
    mode: Any
    freq: Any
    lod: Any
    tokens: Any
    pos: Any
    pinned: bool
    pin_reason: str
    changed: bool
    revision: Any
    members: Sequence[str]
    rendered_tokens: int
    shares: Sequence[Share]
    notes: Sequence[str]


class DeltaItem(TypedDict):
    """One line of the feed of changes."""

    statement_id: str
    execution_id: str | None
    """The execution that made the change; None if the line is about another statement."""
    kind: DeltaKind
    subject: str
    summary: str
    text: str
