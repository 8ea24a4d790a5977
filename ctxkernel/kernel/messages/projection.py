"""The projection and the model's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Cost(TypedDict):
    """The cost of sending a projection; `told` is the text for people."""

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
    """A block that is not in the projection, and the reason."""

    id: str
    why: str


class Projection(TypedDict):
    """The request to a model."""

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


class RepairEntry(TypedDict):
    """A repair of the history."""

    id: str
    kind: Literal["repair"]
    fix: str
    target: str
    reason: str


class CondensationEntry(TypedDict):
    """A condensation; `events` is 0 if nothing could be condensed."""

    id: str
    kind: Literal["condensation"]
    reason: str
    events: int
    first: str | None
    last: str | None
    summary: str
    state: str


class RedactionEntry(TypedDict):
    """A redaction: a note instead of an output."""

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
    """The records in the model's history."""

    entries: Sequence[Entry]
    more: int
    pins: Sequence[PinnedEvent]
    waiting: Sequence[WaitingCall]
    asked: bool


class CondensedEvent(TypedDict):
    """An event that a condensation replaces."""

    id: str
    kind: str
    text: str


class CondensedEvents(TypedDict):
    """The events that a condensation replaces."""

    events: Sequence[CondensedEvent]
    more: int
