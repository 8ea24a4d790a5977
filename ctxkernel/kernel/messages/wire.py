"""The messages of the kernel to the panel, and those between kernel and widgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from ctxkernel.kernel.messages.cells import CellTable, CellVersions
from ctxkernel.kernel.messages.plan_messages import Asking, Copy, Plan, Proposal, Resume, StateDifference, Storage
from ctxkernel.kernel.messages.projection import (
    Compared,
    CondensedEvents,
    Costs,
    History,
    Prices,
    Projection,
    ProjectionBlocks,
    RequestBody,
)
from ctxkernel.kernel.messages.sweeps import SweepProgress, SweepTables
from ctxkernel.kernel.messages.timeline_messages import (
    AmendedRow,
    BegunStatement,
    Checkpoint,
    DeltaItem,
    Details,
    Found,
    Handle,
    NamespaceDiff,
    Row,
    Shape,
)


class State(TypedDict):
    """The fields that a snapshot and a turn have in common."""

    history: NotRequired[History]
    head: str | None
    handles: Sequence[Handle]
    deltas: Sequence[DeltaItem]
    projection: Projection | None
    notices: Sequence[str]
    storage: Storage | None
    resume: Resume | None
    sent: bool
    work: Sequence[str]


class SnapshotMessage(State):
    """All data of a panel."""

    sweeps: NotRequired[int]
    type: Literal["snapshot"]
    protocol: int
    version: str
    python: Any
    session: str
    path: str | None
    running: BegunStatement | None
    statements: Sequence[Row]
    timeline_truncated: int
    proposal: Proposal | None
    asking: Asking | None
    shape: Shape
    cells: CellTable


class BeginMessage(TypedDict):
    """A statement began."""

    type: Literal["begin"]
    statement: BegunStatement
    head: str | None


class TurnMessage(State):
    """A turn ended."""

    type: Literal["turn"]
    statement: Row
    cells: CellTable
    outside: NotRequired[Row]
    rows: NotRequired[Sequence[AmendedRow]]
    insert: NotRequired[Copy]


class CheckpointMessage(TypedDict):
    """The data of a checkpoint were stored after its turn, or could not be."""

    type: Literal["checkpoint"]
    execution_id: str
    checkpoint: Checkpoint
    diff: NotRequired[NamespaceDiff]
    """The changes of its cell, where some of them were found late."""
    storage: Storage | None
    work: NotRequired[Sequence[str]]
    cells: NotRequired[CellTable]


class ProposalMessage(TypedDict):
    """The proposal that waits for the user now."""

    type: Literal["proposal"]
    proposal: Proposal | None


class AskingMessage(TypedDict):
    """Whether a model works on an ask now."""

    type: Literal["asking"]
    asking: Asking | None
    sent: NotRequired[bool]
    rows: NotRequired[Sequence[AmendedRow]]
    cells: NotRequired[CellTable]


class SweepingMessage(TypedDict):
    """The progress of a running sweep."""

    type: Literal["sweeping"]
    execution_id: str
    progress: SweepProgress


class AnswerFields(TypedDict):
    """The fields that all answers have: the request's id, and an error instead of a result."""

    id: Any
    error: str | None


class PlanAnswer(AnswerFields):
    """The answer to a `plan` request."""

    type: Literal["plan"]
    plan: Plan | None


class EventsAnswer(AnswerFields):
    """The answer to an `events` request."""

    type: Literal["events"]
    events: CondensedEvents | None


class CompareAnswer(AnswerFields):
    """The answer to a `compare` request."""

    type: Literal["compare"]
    compare: Compared | None


class RowsAnswer(AnswerFields):
    """The answer to a `rows` request."""

    type: Literal["rows"]
    rows: Sequence[Row] | None


class DetailsAnswer(AnswerFields):
    """The answer to a `details` request."""

    type: Literal["details"]
    details: Details | None


class SearchAnswer(AnswerFields):
    """The answer to a `search` request."""

    type: Literal["search"]
    search: Found | None


class ProjectionAnswer(AnswerFields):
    """The answer to a `projection` request."""

    type: Literal["projection"]
    projection: ProjectionBlocks | None


class RequestAnswer(AnswerFields):
    """The answer to a `request` request."""

    type: Literal["request"]
    request: RequestBody | None


class Picture(TypedDict):
    """A picture in base64."""

    media_type: str
    data: str


class ImageAnswer(AnswerFields):
    """The answer to an `image` request."""

    type: Literal["image"]
    image: Picture | None


class WhatIfAnswer(AnswerFields):
    """The answer to a `whatif` request."""

    type: Literal["whatif"]
    whatif: Prices | None


class TextBlock(TypedDict):
    """Lines of a rendering as they are."""

    kind: Literal["text"]
    text: str


class CodeBlock(TypedDict):
    """Code of a rendering: (style, text) in order; the style is empty, or `keyword`, `string`, `number`, …"""

    kind: Literal["code"]
    spans: Sequence[Sequence[str]]


class Distribution(TypedDict):
    """The bar of a column, 90 wide and 12 high: its rectangles (x, y, width, height, opacity); `label` says it."""

    shapes: Sequence[Sequence[float]]
    label: str


class TableBlock(TypedDict):
    """Lines of a rendering as a table; the first `labels` cells of a row name it. `bars` has one a row, or is empty."""

    kind: Literal["table"]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int]
    bars: Sequence[Distribution | None]
    labels: int


RenderingBlock = TextBlock | CodeBlock | TableBlock


class HandleText(TypedDict):
    """The rendering of a handle as blocks; `more` is the number of characters that were cut."""

    blocks: Sequence[RenderingBlock]
    more: int


class HandleAnswer(AnswerFields):
    """The answer to a `handle` request."""

    type: Literal["handle"]
    handle: HandleText | None


class SavedPage(TypedDict):
    """The session as one HTML page, a name for its file, and lines on what it leaves out."""

    name: str
    text: str
    left_out: Sequence[str]


class ExportAnswer(AnswerFields):
    """The answer to an `export` request."""

    type: Literal["export"]
    export: SavedPage | None


class CostAnswer(AnswerFields):
    """The answer to a `cost` request."""

    type: Literal["cost"]
    cost: Costs | None


class SweepAnswer(AnswerFields):
    """The answer to a `sweep` request."""

    type: Literal["sweep"]
    sweep: SweepTables | None


class CellsAnswer(AnswerFields):
    """The answer to a `cells` request."""

    type: Literal["cells"]
    cells: CellVersions | None


class MarksAnswer(AnswerFields):
    """The answer to a `marks` request."""

    type: Literal["marks"]
    marks: CellTable | None


class DifferenceAnswer(AnswerFields):
    """The answer to a `difference` request."""

    type: Literal["difference"]
    difference: StateDifference | None


Answer = (
    PlanAnswer
    | EventsAnswer
    | CompareAnswer
    | CellsAnswer
    | MarksAnswer
    | DifferenceAnswer
    | RowsAnswer
    | DetailsAnswer
    | SearchAnswer
    | ProjectionAnswer
    | RequestAnswer
    | ImageAnswer
    | WhatIfAnswer
    | CostAnswer
    | SweepAnswer
    | HandleAnswer
    | ExportAnswer
)


KernelMessage = (
    SnapshotMessage
    | BeginMessage
    | TurnMessage
    | CheckpointMessage
    | ProposalMessage
    | AskingMessage
    | SweepingMessage
    | Answer
)


class HandleFacts(TypedDict):
    """The widget's trait `facts`; `tokens` is null for no limit."""

    name: str
    obj_id: str
    type: str
    target: str
    lod: int
    tokens: int | None
    mode: str
    freq: str
    pinned: bool
    used: int
    before: int | None
    changed: bool
    change: str
    notes: Sequence[str]
    more: int
    picture: Picture | None
    aside: bool


class GestureChange(TypedDict, total=False):
    """The change of a handle that a person wants."""

    lod: int
    tokens: int | None
    mode: Literal["running", "paused"]
    refresh: bool


class GestureMessage(TypedDict):
    """From the widget: a gesture."""

    type: Literal["gesture"]
    id: str
    change: GestureChange


class GestureDone(TypedDict):
    """To the widget: the gesture was carried out; `error` is empty, or the reason why it was not."""

    type: Literal["done"]
    id: str
    error: str
