"""How the events of the model's history become blocks, in the two dialects that a model may speak.

    tools    a call is a `tool_use` block, what it gave a `tool_result` block right after it
    script   a call is a `<script type="text/x-python">` block in the model's text, what it gave a text of the user's

Rule 1: whatever stands in an event, its blocks pass the rules: texts are cleaned and bounded, ids and names made legal,
        blank texts left out or said to be empty. What was done stands in the block's `why`.
Rule 2: an event's blocks are a function of the event and of what its call was renamed to; so they stay, and a
        provider's cache with them.
Rule 3: thinking goes back byte for byte, or not at all.
Rule 4: in the script dialect a text from outside can forge no script: tags of scripts are escaped in it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from ctxkernel.core.events import Json
from ctxkernel.core.image_headers import pixels
from ctxkernel.core.ports import CountTokens
from ctxkernel.history.capabilities import image_tokens
from ctxkernel.history.events import (
    Action,
    AgentError,
    AssistantMessage,
    Context,
    HistoryEvent,
    Observation,
    Summary,
    UserQuestion,
    UserRejection,
)
from ctxkernel.projection.budget import fit
from ctxkernel.projection.in_place import Placed
from ctxkernel.projection.layout import EMPTY, MASKED, attribute, clean
from ctxkernel.projection.secrets import mask
from ctxkernel.projection.value import Piece

DialectName = Literal["tools", "script"]

RUN_CELL = "run_cell"
"""The tool whose input is a cell."""
SCRIPT = '<script type="text/x-python">\n'
_END_SCRIPT = "\n</script>"
_BAD_ID = re.compile(r"[^a-zA-Z0-9_-]")
_ID_CHARS, _NAME_CHARS = 128, 64
_DEEPEST = 32
"""Levels of a call's input that are kept."""


class Rendered(NamedTuple):
    """The blocks of one event."""

    id: str
    """The event's id."""
    origin: str
    whole: tuple[Piece, ...]
    masked: tuple[Piece, ...]
    """The same with what it gave left out; `whole` itself where that would save nothing."""
    tokens: int
    masked_tokens: int
    thinking: int = 0
    """How many of the first blocks are thinking."""
    thinking_tokens: int = 0
    call_id: str = ""
    """What the call is named in the request, where the event is one or answers one."""
    question: bool = False
    context: bool = False

    @property
    def name(self) -> str:
        """The event's id, as blocks have it."""
        return attribute(self.id)

    @property
    def masks(self) -> bool:
        """Whether the masked form is another than the whole one."""
        return self.masked is not self.whole


def message(event: HistoryEvent, pieces: Sequence[Piece], **more: Any) -> Rendered:
    """Return the blocks of an event that has one form."""
    whole = tuple(pieces)
    tokens = sum([piece.tokens for piece in whole])
    return Rendered(event.event_id, _origin(event), whole, whole, tokens, tokens, **more)


class Dialect:
    """Renders the events that are not statements."""

    def __init__(
        self, name: DialectName, count: CountTokens, *, text_tokens: int, output_tokens: int, wide_tokens: int
    ) -> None:
        self.name: DialectName = name
        self.count = count
        self._most = text_tokens
        """Most tokens of a question, an answer or a call."""
        self._outputs = output_tokens
        self._wide = wide_tokens
        """Most tokens of a result that was asked for in full."""

    def render(self, event: HistoryEvent, call_id: str = "", note: str = "") -> Rendered:
        """Return the blocks of `event`.

        `call_id` is the name of its call in the request; `note` stands in the place of a result that was redacted.
        """
        match event:
            case UserQuestion():
                return message(
                    event, [self._text(event, "question", f"question of {short(event.event_id)}")], question=True
                )
            case AssistantMessage():
                return self._turn(event, self._said(event))
            case Action():
                return self._call(event, call_id)
            case Observation() | UserRejection() | AgentError():
                return self._result(event, call_id, note)
            case Summary():
                return message(event, [self._text(event, "summary", "stands for what was condensed")])
            case Context():
                blocks = [self._context(event, n, text) for n, text in enumerate(event.texts) if text.strip()]
                return message(event, blocks, context=True)
            case _:
                return message(event, [])

    def summary_tokens(self, event: Summary) -> int:
        """Return the tokens that a summary would take if it were not cut."""
        return self.count(
            f"{_tag('summary', event)}{clean(event.text, script=self.name == 'script').text.strip() or EMPTY}\n"
        )

    def _piece(self, event: HistoryEvent, kind: str, text: str, why: str, *how: Any, suffix: str = "") -> Piece:
        """Return a block of an event; `how` is its role, and whether `text` is JSON."""
        name = f"{attribute(event.event_id)}{suffix}"
        return Piece(name, kind, _origin(event), self.count(text), why, text, *how)

    # -- what the user's side says ---------------------------------------------------------------

    def _text(self, event: UserQuestion | Summary, kind: str, why: str) -> Piece:
        shown, notes = self._bounded(event.text, self._most)
        return self._piece(event, kind, f"{_tag(kind, event)}{shown.strip() or EMPTY}\n", "; ".join([why, *notes]))

    def _context(self, event: Context, n: int, text: str) -> Piece:
        why = "the state as it was sent with that request; kept until something before it changes"
        if n in event.pictures and (tokens := _picture_tokens(text)) is not None:
            name = f"{attribute(event.event_id)}#{n + 1}"
            return Piece(name, "picture", _origin(event), tokens, why, text, "user", True)
        return self._piece(event, "context", text, why, suffix=f"#{n + 1}")

    # -- what the model says ---------------------------------------------------------------------

    def _turn(self, event: AssistantMessage | Action, said: Sequence[Piece], call_id: str = "") -> Rendered:
        """Return the blocks of what the model said, after what it thought; thinking alone may not end a message."""
        thoughts: list[Piece] = []
        for n, block in enumerate(event.thinking if said and self.name == "tools" else (), 1):
            text = _raw_thinking(block)
            if text:
                why = "thinking, as it was signed"
                thoughts.append(self._piece(event, "thinking", text, why, *_RAW, suffix=f"#thinking{n}"))
        tokens = sum([piece.tokens for piece in thoughts])
        more = {"thinking": len(thoughts), "thinking_tokens": tokens, "call_id": call_id}
        return message(event, [*thoughts, *said], **more)

    def _said(self, event: AssistantMessage | Action) -> list[Piece]:
        shown, notes = self._bounded(event.text, self._most, script=False)
        if not shown.strip():
            return []
        why = "; ".join([f"what the model said in {short(event.event_id)}", *notes])
        return [self._piece(event, "answer", shown.strip(), why, "assistant", suffix="#said")]

    def _call(self, event: Action, call_id: str) -> Rendered:
        notes: list[str] = []
        given = cast("dict[str, Json]", self._plain(event.input, notes, 0))
        tool = _BAD_ID.sub("_", event.tool_name)[:_NAME_CHARS] or "tool"
        if tool != event.tool_name:
            notes.append("tool name made legal")
        if self.name == "script":
            code = given.get("code") if event.tool_name == RUN_CELL else None
            if not isinstance(code, str):
                inner = ", ".join(f"{key}={value!r}" for key, value in given.items() if key.isidentifier())
                code = f"{tool}({inner})"
            text, how = f"{SCRIPT}{code.strip() or 'pass'}{_END_SCRIPT}", _RAW[:1]
        else:
            if call_id != event.tool_call_id:
                notes.append(f"call named {call_id}, as its own id is taken or illegal")
            text, how = _dump({"type": "tool_use", "id": call_id, "name": tool, "input": given}), _RAW
        why = "; ".join([f"call {short(event.event_id)}", *dict.fromkeys(notes)])
        return self._turn(event, [*self._said(event), self._piece(event, "call", text, why, *how)], call_id)

    # -- what a call gave ------------------------------------------------------------------------

    def _result(self, event: Observation | UserRejection | AgentError, call_id: str, note: str) -> Rendered:
        match event:
            case Observation():
                status, text = event.status, event.content
            case UserRejection():
                reason = f": {event.reason}" if event.reason.strip() else ""
                status, text = "rejected", f"The user did not allow this call{reason}"
            case AgentError():
                status, text = "failed", event.message

        def made(body: str, why: str) -> Piece:
            shown = f'<ctx:result id={_id(event)} status="{attribute(status)}">\n{body}'
            if self.name == "script":
                return self._piece(event, "result", shown, why)
            block: dict[str, Json] = {"type": "tool_result", "tool_use_id": call_id, "content": shown}
            if status != "success":
                block["is_error"] = True
            return self._piece(event, "result", _dump(block), why, "user", True)

        wide = isinstance(event, Observation) and event.wide
        shown, notes = self._bounded(text, self._wide if wide else self._outputs)
        why = "; ".join([f"result of {short(event.event_id)}", *notes])
        whole = made(f"{shown.strip() or EMPTY}\n", why)
        if note:
            piece = made(f"{self._bounded(note, self._outputs)[0].strip()}\n", "redacted: its output was stale")
            if piece.tokens < whole.tokens:
                return message(event, [piece], call_id=call_id)
        hidden = made(MASKED, f"{why}; its output masked")
        rendered = message(event, [whole], call_id=call_id)
        if hidden.tokens >= whole.tokens:
            return rendered
        return rendered._replace(masked=(hidden,), masked_tokens=hidden.tokens)

    def view(self, one: Placed, origin: str) -> Piece:
        """Return what a view shows, as it stands after the statement that made it."""
        name = f"view:{attribute(one.name)}"
        shown, notes = self._bounded(one.text, self._most * 2)
        text = f'<ctx:view id="{name}">\n{shown.strip() or EMPTY}\n'
        why = "; ".join([f"{attribute(one.name)} as it is now, where it was made", *notes])
        return Piece(name, "view", origin, self.count(text), why, text)

    # -- texts -----------------------------------------------------------------------------------

    def _bounded(self, text: str, limit: int, *, script: bool = True) -> tuple[str, list[str]]:
        """Return `text` clean and within `limit` tokens, and what was done to it."""
        safe = clean(text, script=script and self.name == "script")
        notes = list(safe.notes)
        fitted = fit(safe.text, limit, self.count)
        if fitted.cut:
            notes.append(f"cut by {fitted.cut:,} characters")
        return fitted.text, notes

    def _plain(self, value: Json, notes: list[str], depth: int) -> Json:
        """Return a call's input as JSON can hold it: bounded texts, finite numbers, bounded depth."""
        if isinstance(value, str):
            shown, told = self._bounded(value, self._most, script=False)
            notes.extend(told)
            return shown
        if isinstance(value, bool | int) or value is None:
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if depth >= _DEEPEST:
            notes.append("deep values left out")
            return None
        if isinstance(value, Mapping):
            items = cast("Mapping[object, Json]", value).items()
            return {clean(str(key)).text: self._plain(item, notes, depth + 1) for key, item in items}
        if isinstance(value, Sequence):
            return [self._plain(item, notes, depth + 1) for item in cast("Sequence[Json]", value)]
        notes.append(f"{type(value).__name__} left out")
        return None


_RAW = ("assistant", True)


def call_name(event: Action, taken: Mapping[str, object] | set[str]) -> str:
    """Return the id that a call has in a request: its own, where that is legal and no earlier call has it."""
    name = _BAD_ID.sub("_", event.tool_call_id)[:_ID_CHARS]
    if name != event.tool_call_id or not name:
        mark = hashlib.sha256(event.tool_call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = f"{name[: _ID_CHARS - 9]}_{mark}"
    base, n = name, 1
    while name in taken:
        n += 1
        name = f"{base[: _ID_CHARS - 12]}-{n}"
    return name


def _picture_tokens(text: str) -> int | None:
    """Return what an image block counts for; None where the text, of a stranger's session, is none."""
    try:
        block = json.loads(text)
        extent = pixels(block["source"]["data"]) if block["type"] == "image" else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return image_tokens(*extent) if extent else None


def _raw_thinking(block: Mapping[str, Json]) -> str:
    """Return a thinking block as it came, or nothing where the API would refuse it."""
    kind = block.get("type")
    signed = kind == "thinking" and isinstance(block.get("thinking"), str) and block.get("signature")
    if not (signed or (kind == "redacted_thinking" and block.get("data"))):
        return ""
    try:
        # `type` first, by which a breakpoint knows to keep away; the rest as it came.
        text = _dump({"type": kind, **block})
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return ""
    return text if mask(text) == text else ""  # a credential in it: it may only come back whole


def short(event_id: str) -> str:
    """Return the statement of an event's id, `s3` of `s3.1:4`."""
    return event_id.partition(".")[0] or "history"


def _tag(kind: str, event: HistoryEvent) -> str:
    return f"<ctx:{kind} id={_id(event)}>\n"


def _origin(event: HistoryEvent) -> str:
    return attribute(short(event.event_id))


def _id(event: HistoryEvent) -> str:
    return f'"{attribute(event.event_id)}"'


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
