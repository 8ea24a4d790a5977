"""The projection and the model's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict


class Cost(TypedDict):
    """The cost of sending a projection; `told` is the text for people."""

    usd: float | None
    units: float
    told: str
    as_of: str


class Images(TypedDict):
    """The images in a request: how many, their tokens, and their cost without a cache, as a text for people."""

    count: int
    tokens: int
    usd: float | None
    told: str


class Block(TypedDict):
    """One block of a projection; `images` are the digests of its images, for `image` requests."""

    id: str
    kind: str
    role: Literal["system", "user", "assistant"]
    origin: str
    tokens: int
    cached: bool
    why: str
    text: str
    images: Sequence[str]


class Violation(TypedDict):
    """A rule of the API that the request breaks."""

    rule: str
    path: str
    message: str
    fix: str
    block: str | None
    origin: str | None


class Report(TypedDict):
    """The result of checking the request; `count` is the number of violations."""

    ok: bool
    count: int


class LeftOut(TypedDict):
    """A block that is not in the projection, and the reason."""

    id: str
    why: str


class Parts(TypedDict):
    """The tokens of a projection by part; their sum is that of the projection."""

    system: int
    history: int
    handles: int
    variables: int
    groups: int
    deltas: int


class Projection(TypedDict):
    """The sizes and checks of the request to a model; its blocks come on request. `cached` are tokens."""

    model: str
    messages: int
    blocks: int
    left_out: int
    report: Report
    cost: Cost
    images: Images
    parts: Parts
    cached: int
    broke: str
    tokens: int
    budget: int
    receipt: str


class ProjectionBlocks(TypedDict):
    """The blocks of a projection, of the turn `receipt` is the request of."""

    receipt: str
    blocks: Sequence[Block]
    betas: Sequence[str]
    violations: Sequence[Violation]
    left_out: Sequence[LeftOut]


class RequestBody(TypedDict):
    """A request as it would be sent: its exact body, the address, and the headers without the key."""

    receipt: str
    body: str
    url: str
    headers: Mapping[str, str]


class Price(TypedDict):
    """The effect of one supposed change on the next request; `error` says why the change is not possible."""

    change: str
    error: str | None
    tokens: int
    total: int
    budget: int
    before: Cost | None
    after: Cost | None
    rewritten: int
    violations: int


class Prices(TypedDict):
    """The effects of supposed changes, each alone."""

    prices: Sequence[Price]


class CostLine(TypedDict):
    """The cost of several requests; `ask` is the execution that asked. `usd` is null if a price is not known.

    `guessed` names the counts that the server did not tell: `tokens_in`, `tokens_out`.
    """

    ask: str
    question: str
    model: str
    requests: int
    tokens_in: int
    cached: int
    tokens_out: int
    guessed: Sequence[str]
    usd: float | None
    told: str
    seconds: float


class CostPoint(TypedDict):
    """One request; `broke` says where and why it does not continue the one before."""

    ask: str
    usd: float | None
    tokens: int
    broke: str


class Costs(TypedDict):
    """The cost of all requests of the session; `requests` are the newest, `more` the number of older ones."""

    asks: Sequence[CostLine]
    models: Sequence[CostLine]
    total: CostLine | None
    breaks: Sequence[str]
    requests: Sequence[CostPoint]
    more: int
    fault: str


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
    """The records in the model's history. With `change`, `entries` are those that differ from the message before."""

    change: NotRequired[bool]
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
