"""The history events: what a model can be shown, and the records that say what is done to it.

Rule 1: frozen facts of plain JSON values; an event is never changed, only followed by others.
Rule 2: ids are deterministic: those of the timeline for what stands in it, `nth` of an ask's execution for what
        happened in the ask, `derived` from what it stands for where an event is synthetic. Nothing counts or draws one.
Rule 3: what a model signed is kept as it came: thinking blocks are the mappings that were received, key for key.

`place` says what an event is to the rules of pairing: a `message` stands alone, a `call` wants a `result`, a `meta`
event is a record that is never shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, cast, get_args

from ctxkernel.core.errors import BadHistory
from ctxkernel.core.events import Json, plain
from ctxkernel.core.timeline import Artifact, Execution, Statement

Place = Literal["message", "call", "result", "meta"]
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

    place: ClassVar[Place] = "message"
    event_id: str
    """The execution's id, `s3.1`."""
    statement_id: str
    source: str
    outputs: tuple[Output, ...] = ()
    status: str = "ok"


@dataclass(frozen=True, slots=True)
class UserQuestion:
    """What the user asked the model."""

    place: ClassVar[Place] = "message"
    event_id: str
    text: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A response, or the end of one, that calls no tool."""

    place: ClassVar[Place] = "message"
    event_id: str
    text: str
    llm_response_id: str = ""
    thinking: tuple[Mapping[str, Json], ...] = ()
    """`thinking` and `redacted_thinking` blocks as they were received."""


@dataclass(frozen=True, slots=True)
class Action:
    """One tool call of a response. The calls of one response are one batch, and share its `llm_response_id`."""

    place: ClassVar[Place] = "call"
    event_id: str
    tool_call_id: str
    tool_name: str
    input: Mapping[str, Json] = field(default_factory=dict[str, Json])
    llm_response_id: str = ""
    """One response's own: where a server repeats its ids, whoever records makes them differ. Where it is empty the call
    is a batch of its own."""
    thinking: tuple[Mapping[str, Json], ...] = ()
    """The blocks that stood before this call, as they were received."""
    text: str = ""
    """What the response said before this call."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a call gave."""

    place: ClassVar[Place] = "result"
    event_id: str
    tool_call_id: str
    content: str
    status: OutputStatus = "success"
    synthetic: bool = False
    """Made by a repair, since the real one never came."""
    wide: bool = False
    """Asked for in full: it may take more than other results."""


@dataclass(frozen=True, slots=True)
class UserRejection:
    """A call that the user did not allow. It is the call's result."""

    place: ClassVar[Place] = "result"
    event_id: str
    tool_call_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AgentError:
    """A call that could not be run at all: a tool that is not there, an input that is no JSON. The call's result."""

    place: ClassVar[Place] = "result"
    event_id: str
    tool_call_id: str
    message: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What stands in a view for events that were forgotten. It is never recorded; its condensation is."""

    place: ClassVar[Place] = "message"
    event_id: str
    text: str
    condensation_id: str


@dataclass(frozen=True, slots=True)
class SummaryText:
    """A summary and the index in the view, after the forgetting and before its insertion, where it is to stand."""

    text: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Condensation:
    """Events were forgotten, and summaries put in their place, in the order given.

    An offset past the end stands for the end.
    """

    place: ClassVar[Place] = "meta"
    event_id: str
    forgotten_event_ids: tuple[str, ...] = ()
    summaries: tuple[SummaryText, ...] = ()
    reason: str = ""
    """Why it was made, and what became of a summariser that failed."""

    def summary_events(self) -> tuple[Summary, ...]:
        """The summaries as events, with ids derived from the condensation's."""
        return tuple(
            Summary(derived(self.event_id, f"summary{n}"), one.text, self.event_id)
            for n, one in enumerate(self.summaries, 1)
        )


@dataclass(frozen=True, slots=True)
class CondensationRequest:
    """The history was found too long; the next condensation answers that."""

    place: ClassVar[Place] = "meta"
    event_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Redaction:
    """A directive: the observation of `target_id` is to be shown as `summary_text`."""

    place: ClassVar[Place] = "meta"
    event_id: str
    target_id: str
    summary_text: str
    by: By = "model"


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The condensation or redaction `target_id` was taken back: what is shown is as if it never had been.

    One that names no such event before it does nothing.
    """

    place: ClassVar[Place] = "meta"
    event_id: str
    target_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RedactionBatch:
    """Directives of the model took effect together, since that paid. A human's needs none: it takes effect at once."""

    place: ClassVar[Place] = "meta"
    event_id: str
    directive_ids: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """History was broken, and this is what was done about it."""

    place: ClassVar[Place] = "meta"
    event_id: str
    fix: Fix
    target_id: str
    """The event that was added, removed, moved or renamed."""
    tool_call_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Context:
    """The state as it was sent with a request of an ask: what stood after the history then.

    Thinking is bound to all that precedes it: this stays as long as the thinking does (`projection/history.py`).
    """

    place: ClassVar[Place] = "message"
    event_id: str
    texts: tuple[str, ...] = ()
    """Its blocks, as they were sent."""
    status: str = ""
    """The system message for the turn that was sent with it; empty where there was none."""
    basis: str = ""
    """What the request was built by (`ProjectionEngine.basis`); empty where that is not known."""
    pictures: tuple[int, ...] = ()
    """Which of `texts` are the JSON of an image block, counted from 0."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person decided on a call that waited: it may run, it may run as they edited it, or it may not."""

    place: ClassVar[Place] = "meta"
    event_id: str
    tool_call_id: str
    ruling: Ruling
    text: str = ""
    """The reason of a rejection; the code that was run in the place of the model's."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A block of the history was pinned, so that it is never condensed, masked or redacted, or let go again."""

    place: ClassVar[Place] = "meta"
    event_id: str
    target_id: str
    pinned: bool = True
    reason: str = ""


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
    | Verdict
    | Pin
)
Events = Sequence[HistoryEvent]

RESULTS = (Observation, UserRejection, AgentError)


def batch_of(action: Action) -> str:
    """Return what the calls of one response have in common, and no other call has."""
    return action.llm_response_id or f"~{action.event_id}"


# -- ids ---------------------------------------------------------------------------------------------


def nth(execution_id: str, n: int) -> str:
    """Return the id of the nth event of the ask that `execution_id` ran, `s3.1:4`."""
    return f"{execution_id}:{n}"


def derived(event_id: str, what: str) -> str:
    """Return the id of a synthetic event that stands for `what` of another, `s3.1:4~result`."""
    return f"{event_id}~{what}"


def from_execution(statement: Statement, execution: Execution) -> HumanStatement:
    """Return the event of an execution, with its outputs in the order stdout, rich outputs, stderr, error.

    Of a rich output it holds what a model is shown of it: the plain text, where there is one; else its kind and size.
    """
    shown = [Output("stdout", execution.stdout)] if execution.stdout else []
    rich = [one for one in execution.artifacts if one.kind == "display"]
    plain_too = {one.name for one in rich if one.mime == "text/plain"}
    shown += [Output(one.mime, _shown(one)) for one in rich if one.mime == "text/plain" or one.name not in plain_too]
    if execution.stderr:
        shown.append(Output("stderr", execution.stderr))
    failed = execution.exception
    if failed is not None:
        shown.append(Output("error", failed.trace_summary or f"{failed.type}: {failed.message}"))
    return HumanStatement(
        execution.execution_id, statement.statement_id, statement.source, tuple(shown), execution.status
    )


def _shown(output: Artifact) -> str:
    data = output.data
    text = "".join(map(str, data)) if isinstance(data, list) else data
    return text if output.mime == "text/plain" and isinstance(text, str) else f"[{output.mime} {output.size:,} B]"


# -- JSON --------------------------------------------------------------------------------------------


def event_to_json(event: HistoryEvent) -> dict[str, Json]:
    """Return `{"type": <class name>, **fields}`."""
    return {"type": type(event).__name__, **plain(event)}


def event_from_json(data: Mapping[str, Json]) -> HistoryEvent:
    """Return the event that `event_to_json` made `data` of.

    Fields that are missing have their defaults, fields that are not known are passed over: an older and a newer
    version can read each other. Raises BadHistory for a type that is not known and for a value of the wrong kind.
    """
    name = data.get("type")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(_KINDS)
        raise BadHistory(f"history event of type {str(name)[:40]!r} is not known; the types are {known}")
    values: dict[str, Any] = {}
    for one in fields(kind):
        if one.name in data:
            read, wanted = _READERS.get(f"{name}.{one.name}") or _READERS.get(one.name, _STRING)
            try:
                values[one.name] = read(data[one.name])
            except (TypeError, KeyError, AttributeError):
                value = data[one.name]
                found = repr(value[:40]) if isinstance(value, str) else type(value).__name__
                raise BadHistory(f"{name}.{one.name} is {found}; it must be {wanted}") from None
    try:
        return cast("HistoryEvent", kind(**values))
    except TypeError as fault:
        raise BadHistory(f"{name}: {fault}; give every field that has no default") from None


def _string(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _boolean(value: Json) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _index(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError
    return value


def _mapping(value: Json) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise TypeError
    return cast("Mapping[str, Json]", value)


def _list(of: Callable[[Json], Any]) -> Callable[[Json], tuple[Any, ...]]:
    def read(value: Json) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError
        return tuple(of(item) for item in cast("Sequence[Json]", value))

    return read


def _one_of(*names: str) -> Callable[[Json], str]:
    def read(value: Json) -> str:
        if value not in names:
            raise TypeError
        return cast("str", value)

    return read


def _output(value: Json) -> Output:
    return Output(_string(_mapping(value)["kind"]), _string(value["text"]))


def _summary_text(value: Json) -> SummaryText:
    offset = _mapping(value).get("offset", 0)
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise TypeError
    return SummaryText(_string(value["text"]), offset)


STATUSES: tuple[OutputStatus, ...] = ("success", "failed", "canceled", "timeout")


def output_status(text: object) -> OutputStatus:
    """Return the status that `text` names; one that is not known is a failure (seed 003 §2)."""
    for status in STATUSES:
        if status == text:
            return status
    return "failed"


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        HumanStatement,
        UserQuestion,
        AssistantMessage,
        Action,
        *RESULTS,
        Summary,
        Condensation,
        CondensationRequest,
        Redaction,
        Withdrawal,
        RedactionBatch,
        Repair,
        Context,
        Verdict,
        Pin,
    )
}
_STRING: tuple[Callable[[Json], Any], str] = (_string, "text")
# By the name of the field, or of class and field; every other field is text.
_READERS: dict[str, tuple[Callable[[Json], Any], str]] = {
    "Observation.status": (output_status, "a status"),
    "Repair.fix": (_one_of(*get_args(Fix)), f"one of {', '.join(get_args(Fix))}"),
    "Redaction.by": (_one_of(*get_args(By)), f"one of {', '.join(get_args(By))}"),
    "Verdict.ruling": (_one_of(*get_args(Ruling)), f"one of {', '.join(get_args(Ruling))}"),
    "outputs": (_list(_output), "a list of {kind, text}"),
    "thinking": (_list(_mapping), "a list of blocks"),
    "input": (_mapping, "an object"),
    "synthetic": (_boolean, "true or false"),
    "wide": (_boolean, "true or false"),
    "pinned": (_boolean, "true or false"),
    "texts": (_list(_string), "a list of texts"),
    "pictures": (_list(_index), "a list of whole numbers from 0"),
    "forgotten_event_ids": (_list(_string), "a list of event ids"),
    "directive_ids": (_list(_string), "a list of event ids"),
    "summaries": (_list(_summary_text), "a list of {text, offset}"),
}


def content_of(event: HistoryEvent) -> str:
    """Return all texts of an event, one under the other."""
    parts = [getattr(event, name, "") for name in ("source", "text", "content", "reason", "message")]
    parts += [f"{one.kind}:\n{one.text}" for one in getattr(event, "outputs", ())]
    if given := getattr(event, "input", None):
        parts.append(json.dumps(given, default=str))
    return "\n".join(part for part in parts if part)
