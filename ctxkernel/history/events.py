"""The history events: what a model can be shown, and the records about it.

Rule 1: events are frozen and hold plain JSON values. An event never changes; later events refer to it.
Rule 2: ids are deterministic. An event of the timeline has the id of its execution, an event of an ask the id from
        `nth`, a synthetic event the id from `derived`. Nothing counts or draws an id.
Rule 3: signed blocks of a model (thinking) are kept as received, key for key.

`place` is the role of an event in the rules of pairing: a `message` stands alone, a `call` needs a `result`, a `meta`
event is a record that is never shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, cast, get_args

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadHistory
from ctxkernel.core.timeline import Artifact, Execution, Statement
from ctxkernel.core.timeline_events import Json, plain
from ctxkernel.core.typed_json import read_json

OutputStatus = Literal["success", "failed", "canceled", "timeout"]
Fix = Literal["added", "removed", "moved", "renamed"]
By = Literal["human", "model"]
Ruling = Literal["approved", "edited", "rejected"]


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a statement: `kind` is stdout, stderr, error, or the MIME type of a rich output."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class HumanStatement:
    """A statement that a person ran, with its outputs."""

    place: ClassVar[Literal["message"]] = "message"
    event_id: str
    """The execution's id, `s3.1`."""
    statement_id: str
    source: str
    outputs: tuple[Output, ...] = ()
    status: str = "ok"


@dataclass(frozen=True, slots=True)
class UserQuestion:
    """A question of the user to the model."""

    place: ClassVar[Literal["message"]] = "message"
    event_id: str
    text: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A response, or the end of a response, without a tool call."""

    place: ClassVar[Literal["message"]] = "message"
    event_id: str
    text: str
    llm_response_id: str = ""
    blocks: tuple[Mapping[str, Json], ...] = ()
    """The response as received; empty if it may not go back as it came."""

    @property
    def thinking(self) -> tuple[Mapping[str, Json], ...]:
        """Its thinking blocks."""
        return thinking_of(self.blocks)


@dataclass(frozen=True, slots=True)
class Action:
    """One tool call of a response. The calls of one response are one batch, and share its `llm_response_id`."""

    place: ClassVar[Literal["call"]] = "call"
    event_id: str
    tool_call_id: str
    tool_name: str
    input: Mapping[str, Json] = field(default_factory=dict[str, Json])
    llm_response_id: str = ""
    """The id of the response; the recorder makes it unique if a server repeats ids. Empty: the call is a batch of its
    own."""
    blocks: tuple[Mapping[str, Json], ...] = ()
    """The blocks of the response since the call before, as received: the last one is this call, unless it is the last
    call, which has the blocks after it, too. Empty if the response may not go back as it came."""
    text: str = ""
    """The text of these blocks."""

    @property
    def thinking(self) -> tuple[Mapping[str, Json], ...]:
        """Its thinking blocks."""
        return thinking_of(self.blocks)


@dataclass(frozen=True, slots=True)
class Observation:
    """The output of a call."""

    place: ClassVar[Literal["result"]] = "result"
    event_id: str
    tool_call_id: str
    content: str
    status: OutputStatus = "success"
    synthetic: bool = False
    """Made by a repair, because the real result is missing."""
    wide: bool = False
    """Requested in full: it may be larger than other results."""


@dataclass(frozen=True, slots=True)
class UserRejection:
    """The user did not allow a call. This is the result of the call."""

    place: ClassVar[Literal["result"]] = "result"
    event_id: str
    tool_call_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AgentError:
    """A call could not run: unknown tool, or input that is not JSON. This is the result of the call."""

    place: ClassVar[Literal["result"]] = "result"
    event_id: str
    tool_call_id: str
    message: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Replaces condensed events in a view. It is never recorded; its condensation is."""

    place: ClassVar[Literal["message"]] = "message"
    event_id: str
    text: str
    condensation_id: str


@dataclass(frozen=True, slots=True)
class SummaryText:
    """A summary, and its index in the view after the events were removed and before the summary is inserted."""

    text: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Condensation:
    """Removes events from the view and inserts summaries, in the given order.

    An offset past the end means the end.
    """

    place: ClassVar[Literal["meta"]] = "meta"
    event_id: str
    forgotten_event_ids: tuple[str, ...] = ()
    summaries: tuple[SummaryText, ...] = ()
    reason: str = ""
    """Why it was made."""

    def summary_events(self) -> tuple[Summary, ...]:
        """Return the summaries as events, with ids derived from the condensation's id."""
        return tuple(
            Summary(derived(self.event_id, f"summary{n}"), one.text, self.event_id)
            for n, one in enumerate(self.summaries, 1)
        )


@dataclass(frozen=True, slots=True)
class CondensationRequest:
    """Requests a condensation; the next condensation answers it."""

    place: ClassVar[Literal["meta"]] = "meta"
    event_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Redaction:
    """A directive to show the output of `target_id` as `summary_text`."""

    place: ClassVar[Literal["meta"]] = "meta"
    event_id: str
    target_id: str
    summary_text: str
    by: By = "model"


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Takes back the condensation or redaction `target_id`.

    It has no effect if there is no such event before it.
    """

    place: ClassVar[Literal["meta"]] = "meta"
    event_id: str
    target_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RedactionBatch:
    """Directives of the model take effect together. A directive of a human takes effect at once, without a batch."""

    place: ClassVar[Literal["meta"]] = "meta"
    event_id: str
    directive_ids: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """One correction of a broken history."""

    place: ClassVar[Literal["meta"]] = "meta"
    event_id: str
    fix: Fix
    target_id: str
    """The event that was added, removed, moved or renamed."""
    tool_call_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Context:
    """The state as sent with a request of an ask: the part of the request after the history.

    Thinking is bound to everything before it, so this event stays as long as the thinking does
    (`projection/bound_thinking.py`).
    """

    place: ClassVar[Literal["message"]] = "message"
    event_id: str
    texts: tuple[str, ...] = ()
    """Its blocks, as sent."""
    status: str = ""
    """The system message for one turn that was sent with it, or empty."""
    basis: str = ""
    """`Projection.basis`: a digest of the request, to which the thinking of its response is bound; empty if unknown."""
    pictures: tuple[int, ...] = ()
    """The indices of `texts` that are the JSON of an image block."""


@dataclass(frozen=True, slots=True)
class Unbinding:
    """The API refused thinking that was sent back: no thinking that is older than this event is sent any more."""

    place: ClassVar[Literal["meta"]] = "meta"
    event_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of a person on a pending call: run it, run it as edited, or do not run it."""

    place: ClassVar[Literal["meta"]] = "meta"
    event_id: str
    tool_call_id: str
    ruling: Ruling
    text: str = ""
    """The reason of a rejection, or the edited code."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Pins or unpins an event. A pinned event is never condensed, masked or redacted."""

    place: ClassVar[Literal["meta"]] = "meta"
    event_id: str
    target_id: str
    pinned: bool = True
    reason: str = ""


THINKING = ("thinking", "redacted_thinking")
"""The types of blocks of thinking."""


def thinking_of(blocks: Sequence[Mapping[str, Json]]) -> tuple[Mapping[str, Json], ...]:
    """Return the thinking blocks among the blocks of a response."""
    return tuple([block for block in blocks if block.get("type") in THINKING]) if blocks else ()


Result = Observation | UserRejection | AgentError
HistoryEvent = (
    HumanStatement
    | UserQuestion
    | AssistantMessage
    | Action
    | Observation
    | UserRejection
    | AgentError
    | Summary
    | Condensation
    | CondensationRequest
    | Redaction
    | Withdrawal
    | RedactionBatch
    | Repair
    | Context
    | Unbinding
    | Verdict
    | Pin
)
Events = Sequence[HistoryEvent]

RESULTS = (Observation, UserRejection, AgentError)


def batch_of(action: Action) -> str:
    """Return the key that the calls of one response share."""
    return action.llm_response_id or f"~{action.event_id}"


# -- ids ---------------------------------------------------------------------------------------------


def nth(execution_id: str, n: int) -> str:
    """Return the id of the nth event of the ask that `execution_id` ran, `s3.1:4`."""
    return f"{execution_id}:{n}"


def derived(event_id: str, what: str) -> str:
    """Return the id of a synthetic event that is derived from another, `s3.1:4~result`."""
    return f"{event_id}~{what}"


def from_execution(statement: Statement, execution: Execution) -> HumanStatement:
    """Return the event of an execution, with its outputs in the order stdout, rich outputs, stderr, error.

    A rich output is represented by its plain text if it has one, or else by its kind and size.
    """
    shown = [Output("stdout", execution.stdout)] if execution.stdout else []
    if execution.artifacts:
        rich = [one for one in execution.artifacts if one.kind == "display"]
        plain_too = {one.name for one in rich if one.mime == "text/plain"}
        shown += [
            Output(one.mime, _shown(one)) for one in rich if one.mime == "text/plain" or one.name not in plain_too
        ]
    if execution.stderr:
        shown.append(Output("stderr", execution.stderr))
    failed = execution.exception
    if failed is not None:
        shown.append(Output("error", failed.trace_summary or f"{failed.type}: {failed.message}"))
    return HumanStatement(
        execution.execution_id, statement.statement_id, statement.source, tuple(shown), execution.status
    )


def _shown(output: Artifact) -> str:
    data: object = output.data
    text = "".join(map(str, cast("list[object]", data))) if isinstance(data, list) else data
    return text if output.mime == "text/plain" and isinstance(text, str) else f"[{output.mime} {output.size:,} B]"


# -- JSON --------------------------------------------------------------------------------------------


def event_to_json(event: HistoryEvent) -> dict[str, Json]:
    """Return `{"type": <class name>, **fields}`."""
    return {"type": type(event).__name__, **plain(event)}


def event_from_json(data: Mapping[str, Json]) -> HistoryEvent:
    """Return the event from which `event_to_json` made `data`.

    Missing fields get their defaults and unknown fields are ignored, so an older and a newer version can read each
    other's events. Raises BadHistory for an unknown type or a value of the wrong kind.
    """
    name = data.get("type")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(_KINDS)
        raise BadHistory(f"history event of type {str(name)[:40]!r} is not known; the types are {known}")
    given = {key: item for key, item in data.items() if key != "type"}
    if kind is Observation and "status" in given:
        given["status"] = output_status(given["status"])
    try:
        return cast("HistoryEvent", read_json(kind, given))
    except ValueError as fault:
        raise BadHistory(str(fault)) from None


_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(HistoryEvent)}


def output_status(text: object) -> OutputStatus:
    """Return the status that `text` names; an unknown one is a failure (seed 003 §2)."""
    return cast("OutputStatus", text) if isinstance(text, str) and text in get_args(OutputStatus) else "failed"


def content_of(event: HistoryEvent) -> str:
    """Return all texts of an event, one below the other."""
    parts = [getattr(event, name, "") for name in ("source", "text", "content", "reason", "message")]
    parts += [f"{one.kind}:\n{one.text}" for one in getattr(event, "outputs", ())]
    if given := getattr(event, "input", None):
        parts.append(json.dumps(given, default=str))
    return "\n".join(part for part in parts if part)
