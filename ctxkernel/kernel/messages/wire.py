"""The messages themselves, between kernel and panel and between kernel and widgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from ctxkernel.kernel.messages.projection import Compared, CondensedEvents, History, Projection
from ctxkernel.kernel.messages.states import Asking, Copy, Plan, Proposal, Resume, Storage
from ctxkernel.kernel.messages.timeline import AmendedRow, BegunStatement, Branch, Checkpoint, DeltaItem, Handle, Row


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


class SnapshotMessage(State):
    """All data of a panel."""

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
    """The data of a checkpoint were stored after its turn, or could not be."""

    type: Literal["checkpoint"]
    execution_id: str
    checkpoint: Checkpoint
    storage: Storage | None


class ProposalMessage(TypedDict):
    """The proposal that waits for the user now."""

    type: Literal["proposal"]
    proposal: Proposal | None


class AskingMessage(TypedDict):
    """Whether a model works on an ask now."""

    type: Literal["asking"]
    asking: Asking | None


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


Answer = PlanAnswer | EventsAnswer | CompareAnswer
KernelMessage = (
    SnapshotMessage | BeginMessage | TurnMessage | CheckpointMessage | ProposalMessage | AskingMessage | Answer
)


class OpenRequest(TypedDict):
    """The data of the comm's opening."""

    protocol: int
    version: str


class SnapshotRequest(TypedDict):
    """Asks for a snapshot."""

    type: Literal["snapshot"]


class PlanRequest(TypedDict):
    """Asks for the effect of a return or a re-run."""

    type: Literal["plan"]
    id: str
    action: Literal["goto", "undo", "rerun"]
    target: str
    before: NotRequired[bool]
    upto: NotRequired[str]


class EventsRequest(TypedDict):
    """Asks for the events that the condensation `of` replaces."""

    type: Literal["events"]
    id: str
    of: str


class CompareRequest(TypedDict):
    """Asks for the differences of two projections; a `new` of null is the newest one."""

    type: Literal["compare"]
    id: str
    old: str
    new: str | None


PanelRequest = SnapshotRequest | PlanRequest | EventsRequest | CompareRequest


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
