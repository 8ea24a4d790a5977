"""The request for a redaction: the model's tool, the validation, and the answer to a call.

Rule 1: nothing takes effect here: an accepted request becomes a directive, an event to record (`history/redact.py`).
Rule 2: any input of the model gets an answer; a refusal names the event, what it is, and what to do next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.text import truncate
from ctxkernel.core.timeline_events import Json
from ctxkernel.history.events import (
    Action,
    By,
    Events,
    HumanStatement,
    OutputStatus,
    Redaction,
    batch_of,
    derived,
)
from ctxkernel.history.pairing import pair
from ctxkernel.history.redact import MAX_SUMMARY, Count, Places, Redactions, content, note, printable_line

MAX_IDS = 50
"""Maximal number of ids in one call of the tool."""
SHORTER = 2
"""A note may cost at most this fraction (1/2) of the tokens of the output; otherwise an edit is not worthwhile."""

Code = Literal["bad_input", "bad_summary", "unknown_id", "critical", "pinned", "in_use", "no_saving"]

TOOL: dict[str, Json] = {
    "name": "redact",
    "description": (
        "Replace an output that is out of date or used up by a short note. Only outputs of tool calls: never the "
        "user's messages or the system text. event_id: the id shown with the output, or several. summary_text: 1 to 3 "
        "sentences on what mattered; only they remain. The call is not run again."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "event_id": {"type": ["string", "array"], "items": {"type": "string"}},
            "summary_text": {"type": "string"},
        },
        "required": ["event_id", "summary_text"],
    },
}
"""The definition of the tool in a Messages request. Constant, because every cached prefix begins with the tools."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rejected redaction. `message` names the event, what it is, and what to do next."""

    code: Code
    event_id: str
    message: str

    def to_json(self) -> dict[str, Json]:
        """Return `{event_id, code, message}`."""
        return {"event_id": self.event_id, "code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The output already is redacted, or will be: nothing remains to be done."""

    event_id: str
    directive_id: str
    """The existing directive."""


_NEXT = "cite the event id of a tool output that is stale"


def validate(
    event_id: str,
    summary_text: str,
    *,
    shown: Events,
    redactions: Redactions,
    by: By,
    directive_id: str,
    count: Count,
    pinned: Collection[str] = (),
) -> Redaction | Acknowledged | Refusal:
    """Return the directive to record, or the existing one, or the reason for a refusal.

    `shown` are the events of the view without notes; `redactions` belong to the same history. `pinned` are event ids; a
    pinned call pins its output. The directive names the output, even if `event_id` is its call, and its summary is one
    line. A waiting directive of the model does not prevent one of a human.
    """
    label = _label(event_id)
    summary = _summary(summary_text, label)
    if isinstance(summary, Refusal):
        return summary
    directives = list(redactions.live.values())
    places = Places(shown, {event_id, *(one.target_id for one in directives)})
    if event_id == "system":
        return Refusal("critical", label, f"{label}: the system text cannot be redacted; {_NEXT}")
    if event_id not in places.of:
        return Refusal("unknown_id", label, f"{label}: no event with this id is shown (condensed?); {_NEXT}")
    cited = shown[places.of[event_id]]
    place = places.output(event_id, by)
    if place is None:
        told = f"{label}: no {type(cited).__name__} can be redacted, only outputs of tool calls; {_NEXT}"
        return Refusal("critical", label, told)
    for one in directives:
        stands = by == "model" or one.by == "human" or one.event_id in redactions.edits
        if stands and places.output(one.target_id, one.by) == place:
            return Acknowledged(label, one.event_id)
    target = shown[place]
    answers = {} if target.place == "message" else pair(shown).answers
    calls = {result: call for call, result in answers.items()}
    made_by = cast("Action", shown[calls[place]]) if place in calls else None
    if target.event_id in pinned or (made_by is not None and made_by.event_id in pinned):
        return Refusal("pinned", label, f"{label}: this output is pinned; leave it, or have the user unpin it")
    if made_by is not None and not redactions.at_boundary and batch_of(made_by) == _newest(shown):
        told = f"{label}: this output is the newest of the running loop; use it first, then redact it"
        return Refusal("in_use", label, told)
    output, instead = content(target), note(summary, target)
    cost, less = count(output), count(instead)
    if less * SHORTER > cost or len(instead) >= len(output):
        told = f"the note would cost {less} tokens and the output costs {cost}; at most {cost // SHORTER} would do"
        return Refusal("no_saving", label, f"{label}: {told}; leave this output, or write a shorter summary")
    return Redaction(directive_id, target.event_id, summary, by)


def _label(event_id: str) -> str:
    """Return an id for a refusal: one short line."""
    return truncate(printable_line(event_id), 80)


def _summary(text: str, label: str) -> str | Refusal:
    summary = printable_line(text)
    bound = f"give 1 to 3 sentences, at most {MAX_SUMMARY} characters"
    if not summary:
        return Refusal("bad_summary", label, f"{label}: summary_text is blank; {bound}")
    if len(summary) > MAX_SUMMARY:
        return Refusal("bad_summary", label, f"{label}: summary_text has {len(summary)} characters; {bound}")
    if re.search(r"\n\s*\n", text.strip()):
        return Refusal("bad_summary", label, f"{label}: summary_text has several paragraphs; {bound}, in one")
    return summary


def _newest(shown: Events) -> str | None:
    """Return the response from which a loop continues: the newest one since a question, answer or summary."""
    for event in reversed(shown):
        if isinstance(event, Action):
            return batch_of(event)
        if event.place == "message" and not isinstance(event, HumanStatement):
            return None
    return None


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The directives to record for a call of the tool, in order, and the text and status of its result."""

    directives: tuple[Redaction, ...]
    content: str
    status: OutputStatus


def answer(
    call: Action, *, shown: Events, redactions: Redactions, count: Count, pinned: Collection[str] = ()
) -> ToolAnswer:
    """Return the answer to a call of the model's `redact`, for any input.

    The text is JSON: `accepted` and `already_redacted` ids, and `rejected` as `{event_id, code, message}`, so that the
    model can try those again. The status is `failed` if no id was accepted. Directive ids derive from the call's id.
    Record the directives before the next call of the same response is answered.
    """
    ids, summary = _read(call.input)
    directives: list[Redaction] = []
    already: list[Json] = []
    rejected: list[Json] = []
    accepted: dict[str, Json] = {}
    if isinstance(summary, Refusal):
        rejected.append(summary.to_json())
        ids, summary = (), ""
    for n, event_id in enumerate(ids, 1):
        verdict = validate(
            event_id,
            summary,
            shown=shown,
            redactions=redactions,
            by="model",
            directive_id=derived(call.event_id, f"redaction{n}"),
            count=count,
            pinned=pinned,
        )
        if isinstance(verdict, Refusal):
            rejected.append(verdict.to_json())
        elif isinstance(verdict, Acknowledged) or verdict.target_id in accepted:
            already.append(event_id)
        else:
            directives.append(verdict)
            accepted[verdict.target_id] = event_id
    told: dict[str, Json] = {}
    if accepted:
        told = {"accepted": list(accepted.values()), "when": "they become notes at a later turn; the calls stay"}
    if already:
        told["already_redacted"] = already
    if rejected:
        told["rejected"] = rejected
    status: OutputStatus = "success" if accepted or already else "failed"
    return ToolAnswer(tuple(directives), json.dumps(told, ensure_ascii=False), status)


def _read(given: Mapping[str, Json]) -> tuple[Sequence[str], str | Refusal]:
    """Return the ids, without repetitions, and the summary of the tool's input."""
    cited, summary = given.get("event_id"), given.get("summary_text")
    ids = cast("list[object]", cited) if isinstance(cited, list | tuple) else [cited]
    named = list(dict.fromkeys(one for one in ids if isinstance(one, str)))
    missing = [name for name in ("event_id", "summary_text") if name not in given]
    more = sorted(_label(str(name)) for name in given if name not in ("event_id", "summary_text"))
    if missing:
        why = f"{missing[0]} is missing"
    elif more:
        why = f"{', '.join(more[:5])} is no field of it"
    elif not all(isinstance(one, str) for one in ids):
        why = "event_id is neither text nor a list of texts"
    elif not 1 <= len(named) <= MAX_IDS or not all(map(str.strip, named)):
        why = f"event_id names {len(named)} events or a blank one; name 1 to {MAX_IDS}"
    elif not isinstance(summary, str):
        why = "summary_text is not a text"
    else:
        return named, summary
    form = 'give {"event_id": an id or a list of ids, "summary_text": text}'
    return (), Refusal("bad_input", "", f"redact: {why}; {form}")
