"""The messages between the kernel and the front end, as types. `docs/panel-protocol.md` explains them.

Rule 1: these are the only definitions. `ctxkernel/lab/messages.d.ts` is generated from them, and the scripts of the
        front end are checked against it.
Rule 2: a message holds JSON values only. Every text in it is untrusted.
Rule 3: a field is `NotRequired` where this kernel may leave it out. The front end draws a missing field as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from ctxkernel.core.replay import CheckpointState, DivergenceKind
from ctxkernel.core.timeline import Author, Kind, Status
from ctxkernel.core.turn import DeltaKind

# -- rows of the timeline --------------------------------------------------------------------------


class Tags(TypedDict, total=False):
    """What only a statement of a model has."""

    ask: str
    response: Any
    round: Any
    model: str
    receipt: str
    request_id: str
    usage: Mapping[str, Any]
    stop_reason: str
    held: bool
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
    """What a statement did to one name; `how` and `before` only of a changed one."""

    type: str
    repr: str
    size: Size
    how: NotRequired[str]
    before: NotRequired[str]


class NamespaceDiff(TypedDict):
    """What a statement did to the user's names."""

    added: Mapping[str, NameChange]
    changed: Mapping[str, NameChange]
    deleted: Sequence[str]
    incomplete: str


class Failure(TypedDict):
    """How a statement failed."""

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
    """One difference between an execution and its re-run."""

    kind: DivergenceKind
    subject: str
    summary: str
    cause: str
    before: str
    after: str


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


class Said(TypedDict):
    """What a person said of a state or a statement; it may change when the row is old."""

    names: Sequence[str]
    marks: Marks


class AmendedRow(Said):
    """New names and marks of a row that was sent before."""

    execution_id: str


class ExecutionRow(TypedDict):
    """What a row takes from the execution alone."""

    statement_id: str
    index: int
    execution_id: str
    parent_execution_id: str | None
    cell_id: str | None
    author: Author
    kind: Kind
    status: Status
    source: str
    timestamp: float
    started_at: float
    ended_at: float | None
    time_ms: float
    tokens: int | None
    usd: float | None
    tags: Tags
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


class Branch(TypedDict):
    """A branch of the timeline, by its executions; `fork` is null for a branch from the start."""

    leaf: str
    fork: str | None
    statements: Sequence[str]
    head: bool


# -- handles and changes ---------------------------------------------------------------------------


class Handle(TypedDict):
    """A handle, with the first characters of its rendering."""

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
    text: str
    notes: Sequence[str]


class DeltaItem(TypedDict):
    """One line of the feed of changes."""

    statement_id: str
    kind: DeltaKind
    subject: str
    summary: str
    text: str


# -- the projection --------------------------------------------------------------------------------


class Cost(TypedDict):
    """What sending a projection costs; `told` is the text for people."""

    usd: float | None
    units: float
    told: str
    as_of: str


class Block(TypedDict):
    """One block of a projection."""

    id: str
    kind: str
    role: Literal["system", "user", "assistant"]
    origin: str
    tokens: int
    cached: bool
    why: str
    text: str


class Violation(TypedDict):
    """A rule of the API that the request breaks."""

    rule: str
    path: str
    message: str
    fix: str
    block: str | None
    origin: str | None


class Report(TypedDict):
    """The result of checking the request."""

    ok: bool
    violations: Sequence[Violation]


class LeftOut(TypedDict):
    """Something that could have been projected and was not."""

    id: str
    why: str


class Projection(TypedDict):
    """What a model would be sent."""

    request: Mapping[str, Any]
    blocks: Sequence[Block]
    betas: Sequence[str]
    report: Report
    cost: Cost
    left_out: Sequence[LeftOut]
    tokens: int
    budget: int
    receipt: str


class BlockChange(TypedDict):
    """A block that differs between two projections; a size is null where the block is absent."""

    id: str
    kind: str
    origin: str
    before: int | None
    after: int | None


class Compared(TypedDict):
    """Two projections, compared."""

    changes: Sequence[BlockChange]
    more: int
    sizes: Sequence[int]
    tokens: int
    prefix_tokens: int
    breaks_at: str | None
    costs: Sequence[Cost]
    cost_after: Cost


# -- the history -----------------------------------------------------------------------------------


class RepairEntry(TypedDict):
    """A repair of the history."""

    id: str
    kind: Literal["repair"]
    fix: str
    target: str
    reason: str


class CondensationEntry(TypedDict):
    """A condensation; `events` is 0 where nothing could be condensed."""

    id: str
    kind: Literal["condensation"]
    reason: str
    events: int
    first: str | None
    last: str | None
    summary: str
    state: str


class RedactionEntry(TypedDict):
    """A redaction: a note in the place of an output."""

    id: str
    kind: Literal["redaction"]
    target: str
    by: str
    summary: str
    state: str


class BatchEntry(TypedDict):
    """Redactions of the model that took effect together."""

    id: str
    kind: Literal["batch"]
    redactions: int
    reason: str


Entry = RepairEntry | CondensationEntry | RedactionEntry | BatchEntry


class PinnedEvent(TypedDict):
    """An event that is pinned."""

    target: str
    reason: str


class WaitingCall(TypedDict):
    """A call without a result."""

    event_id: str
    tool: str


class History(TypedDict):
    """What was recorded in the history that the model is shown."""

    entries: Sequence[Entry]
    more: int
    pins: Sequence[PinnedEvent]
    waiting: Sequence[WaitingCall]
    asked: bool


class CondensedEvent(TypedDict):
    """An event that a condensation stands for."""

    id: str
    kind: str
    text: str


class CondensedEvents(TypedDict):
    """The events that a condensation stands for."""

    events: Sequence[CondensedEvent]
    more: int


# -- going back ------------------------------------------------------------------------------------


class Load(TypedDict):
    """Names that are loaded together."""

    names: Sequence[str]
    nbytes: int


class WrittenFile(TypedDict):
    """A file that was written since; it stays as it is."""

    name: str
    statement_id: str
    size: int


class FileChange(TypedDict):
    """What a return does with a file whose content is kept."""

    name: str
    action: Literal["back", "remove", "stays"]
    statement_id: str
    size: int
    reason: str


class Step(TypedDict):
    """A statement of a re-run."""

    statement_id: str
    action: Literal["run", "skip", "ask"]
    reason: str
    expected: bool
    seconds: float
    source: str


class Plan(TypedDict):
    """What a return or a re-run would do."""

    action: str
    text: str
    target: str | None
    told: str
    keep: Sequence[str]
    load: Sequence[Load]
    drop: Sequence[str]
    rerun: Mapping[str, Sequence[str]]
    connect: Mapping[str, str]
    lost: Mapping[str, str]
    as_now: Mapping[str, str]
    ambient: Sequence[str]
    files: Sequence[WrittenFile]
    file_changes: Sequence[FileChange]
    statements: Sequence[Step]
    seconds: float
    nbytes: int
    again: Sequence[str]


class CheckpointStorage(TypedDict):
    """What checkpoints take, and what is not on the disk yet."""

    bytes: int
    quota: int
    pending_bytes: int
    pending_s: float
    folder: str


class Storage(CheckpointStorage):
    """The same, and what could not be stored, was deleted or skipped: a line each, for people."""

    faults: Sequence[str]


class Resume(TypedDict):
    """What an earlier kernel of this notebook left."""

    statements: int
    head: str | None
    at: float
    interrupted: str | None
    restorable: str | None
    reason: str


# -- asking ----------------------------------------------------------------------------------------


class Proposal(TypedDict):
    """A cell of the model's, or its first request, that waits for the user, or what became of it."""

    id: str
    kind: str
    ask: str
    code: str
    told: str
    more: int
    state: str
    reason: str


class Asking(TypedDict):
    """The ask that a model works on now."""

    ask: str
    model: str
    since: float


class Copy(TypedDict):
    """A cell that the front end puts below the ask."""

    after: str | None
    ask: str
    statement: str
    ends: bool
    cell_type: Literal["code", "markdown"]
    source: str
    outputs: Sequence[Mapping[str, Any]]
    execution_count: int | None


# -- kernel → front end ----------------------------------------------------------------------------


class State(TypedDict):
    """What a snapshot and a turn have in common."""

    history: NotRequired[History]
    head: str | None
    handles: Sequence[Handle]
    deltas: Sequence[DeltaItem]
    projection: Projection | None
    notices: Sequence[str]
    storage: Storage | None
    resume: Resume | None
    sent: bool


class SnapshotMessage(State):
    """All that a panel shows."""

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
    branches: Sequence[Branch]


class BeginMessage(TypedDict):
    """A statement began."""

    type: Literal["begin"]
    statement: BegunStatement
    head: str | None


class TurnMessage(State):
    """A turn ended."""

    type: Literal["turn"]
    statement: Row
    outside: NotRequired[Row]
    rows: NotRequired[Sequence[AmendedRow]]
    branches: NotRequired[Sequence[Branch]]
    insert: NotRequired[Copy]


class CheckpointMessage(TypedDict):
    """The data of a checkpoint came to the disk, or did not, after its turn."""

    type: Literal["checkpoint"]
    execution_id: str
    checkpoint: Checkpoint
    storage: Storage | None


class ProposalMessage(TypedDict):
    """What waits for the user now."""

    type: Literal["proposal"]
    proposal: Proposal | None


class AskingMessage(TypedDict):
    """Whether a model works on an ask now."""

    type: Literal["asking"]
    asking: Asking | None


class PlanAnswer(TypedDict):
    """The answer to a `plan` request: the plan or an error."""

    type: Literal["plan"]
    id: Any
    plan: Plan | None
    error: str | None


class EventsAnswer(TypedDict):
    """The answer to an `events` request."""

    type: Literal["events"]
    id: Any
    events: CondensedEvents | None
    error: str | None


class CompareAnswer(TypedDict):
    """The answer to a `compare` request."""

    type: Literal["compare"]
    id: Any
    compare: Compared | None
    error: str | None


Answer = PlanAnswer | EventsAnswer | CompareAnswer
KernelMessage = (
    SnapshotMessage | BeginMessage | TurnMessage | CheckpointMessage | ProposalMessage | AskingMessage | Answer
)

# -- front end → kernel ----------------------------------------------------------------------------


class OpenRequest(TypedDict):
    """The data of the comm's opening."""

    protocol: int
    version: str


class SnapshotRequest(TypedDict):
    """Asks for a snapshot."""

    type: Literal["snapshot"]


class PlanRequest(TypedDict):
    """Asks what a return or a re-run would do."""

    type: Literal["plan"]
    id: str
    action: Literal["goto", "undo", "rerun"]
    target: str
    before: NotRequired[bool]
    upto: NotRequired[str]


class EventsRequest(TypedDict):
    """Asks what the condensation `of` stands for."""

    type: Literal["events"]
    id: str
    of: str


class CompareRequest(TypedDict):
    """Asks how two projections differ; a `new` of null is the newest one."""

    type: Literal["compare"]
    id: str
    old: str
    new: str | None


PanelRequest = SnapshotRequest | PlanRequest | EventsRequest | CompareRequest

# -- the widget of a handle ------------------------------------------------------------------------


class Picture(TypedDict):
    """A picture in base64."""

    media_type: str
    data: str


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
    """What a person wants of a handle."""

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
    """To the widget: the gesture was carried out; `error` is empty, or why it was not."""

    type: Literal["done"]
    id: str
    error: str
