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


def message(event_id: str, origin: str, pieces: Sequence[Piece], **more: Any) -> Rendered:
    """Return the blocks of an event that has one form."""
    whole = tuple(pieces)
    tokens = sum([piece.tokens for piece in whole])
    return Rendered(event_id, origin, whole, whole, tokens, tokens, **more)


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

        `call_id` is what its call is named in the request; `note` what stands in the place of a result that was
        redacted.
        """
        match event:
            case UserQuestion():
                piece = self._text(event.event_id, "question", f"<ctx:question id={_id(event)}>\n", event.text)
                return message(event.event_id, _origin(event), [piece], question=True)
            case AssistantMessage():
                return self._answer(event)
            case Action():
                return self._call(event, call_id)
            case Observation() | UserRejection() | AgentError():
                return self._result(event, call_id, note)
            case Summary():
                why = "stands for what was condensed"
                piece = self._text(event.event_id, "summary", _summary_tag(event), event.text, why)
                return message(event.event_id, _origin(event), [piece])
            case Context():
                blocks = [self._context(event, n, text) for n, text in enumerate(event.texts) if text.strip()]
                return message(event.event_id, _origin(event), blocks, context=True)
            case _:
                return message(event.event_id, _origin(event), [])

    def summary_tokens(self, event: Summary) -> int:
        """Return the tokens that a summary would take if it were not cut."""
        return self.count(
            f"{_summary_tag(event)}{clean(event.text, script=self.name == 'script').text.strip() or EMPTY}\n"
        )

    # -- what the user's side says ---------------------------------------------------------------

    def _text(self, event_id: str, kind: str, tag: str, text: str, why: str = "") -> Piece:
        shown, notes = self._bounded(text, self._most)
        told = "; ".join([why or f"{kind} of {short(event_id)}", *notes])
        whole = f"{tag}{shown.strip() or EMPTY}\n"
        return Piece(attribute(event_id), kind, attribute(short(event_id)), self.count(whole), told, whole)

    def _context(self, event: Context, n: int, text: str) -> Piece:
        why = "the state as it was sent with that request; kept until something before it changes"
        name, origin = f"{attribute(event.event_id)}#{n + 1}", _origin(event)
        if n in event.pictures and (tokens := _picture_tokens(text)) is not None:
            return Piece(name, "picture", origin, tokens, why, text, "user", True)
        return Piece(name, "context", origin, self.count(text), why, text)

    # -- what the model says ---------------------------------------------------------------------

    def _thoughts(self, event: AssistantMessage | Action) -> list[Piece]:
        if self.name == "script":
            return []
        pieces: list[Piece] = []
        why = "thinking, as it was signed"
        for n, block in enumerate(event.thinking, 1):
            text = _raw_thinking(block)
            if text:
                name = f"{attribute(event.event_id)}#thinking{n}"
                pieces.append(Piece(name, "thinking", _origin(event), self.count(text), why, text, *_RAW))
        return pieces

    def _answer(self, event: AssistantMessage) -> Rendered:
        thoughts = self._thoughts(event)
        said = self._said(event.event_id, event.text)
        if not said and thoughts:  # thinking alone may not end a message, and would say nothing
            thoughts = []
        return self._turn(event, thoughts, said)

    def _turn(
        self, event: AssistantMessage | Action, thoughts: list[Piece], said: list[Piece], call_id: str = ""
    ) -> Rendered:
        tokens = sum([piece.tokens for piece in thoughts])
        return message(
            event.event_id,
            _origin(event),
            [*thoughts, *said],
            thinking=len(thoughts),
            thinking_tokens=tokens,
            call_id=call_id,
        )

    def _said(self, event_id: str, text: str) -> list[Piece]:
        shown, notes = self._bounded(text, self._most, script=False)
        shown = shown.strip()
        if not shown:
            return []
        why = "; ".join([f"what the model said in {short(event_id)}", *notes])
        origin = attribute(short(event_id))
        name = f"{attribute(event_id)}#said"
        return [Piece(name, "answer", origin, self.count(shown), why, shown, "assistant")]

    def _call(self, event: Action, call_id: str) -> Rendered:
        thoughts, said = self._thoughts(event), self._said(event.event_id, event.text)
        name, origin = attribute(event.event_id), _origin(event)
        notes: list[str] = []
        given = cast("dict[str, Json]", self._plain(event.input, notes, 0))
        tool = _tool_name(event.tool_name)
        if tool != event.tool_name:
            notes.append("tool name made legal")
        if self.name == "script":
            code = given.get("code") if event.tool_name == RUN_CELL else None
            if not isinstance(code, str):
                inner = ", ".join(f"{key}={value!r}" for key, value in given.items() if key.isidentifier())
                code = f"{tool}({inner})"
            text = f"{SCRIPT}{code.strip() or 'pass'}{_END_SCRIPT}"
            why = "; ".join([f"call {short(event.event_id)}", *dict.fromkeys(notes)])
            piece = Piece(name, "call", origin, self.count(text), why, text, "assistant")
            return self._turn(event, thoughts, [*said, piece], call_id)
        if call_id != event.tool_call_id:
            notes.append(f"call named {call_id}, as its own id is taken or illegal")
        text = _dump({"type": "tool_use", "id": call_id, "name": tool, "input": given})
        why = "; ".join([f"call {short(event.event_id)}", *dict.fromkeys(notes)])
        piece = Piece(name, "call", origin, self.count(text), why, text, *_RAW)
        return self._turn(event, thoughts, [*said, piece], call_id)

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
        wide = isinstance(event, Observation) and event.wide
        shown, notes = self._bounded(text, self._wide if wide else self._outputs)
        tag = f'<ctx:result id={_id(event)} status="{attribute(status)}">\n'
        why = "; ".join([f"result of {short(event.event_id)}", *notes])
        whole = self._given(event, call_id, status, f"{tag}{shown.strip() or EMPTY}\n", why)
        if note:
            body, _ = self._bounded(note, self._outputs)
            piece = self._given(event, call_id, status, f"{tag}{body.strip()}\n", "redacted: its output was stale")
            if piece.tokens < whole.tokens:
                return message(event.event_id, _origin(event), [piece], call_id=call_id)
        hidden = self._given(event, call_id, status, tag + MASKED, f"{why}; its output masked")
        if hidden.tokens >= whole.tokens:
            return message(event.event_id, _origin(event), [whole], call_id=call_id)
        return Rendered(
            event.event_id, _origin(event), (whole,), (hidden,), whole.tokens, hidden.tokens, call_id=call_id
        )

    def _given(self, event: HistoryEvent, call_id: str, status: str, text: str, why: str) -> Piece:
        name, origin = attribute(event.event_id), _origin(event)
        if self.name == "script":
            return Piece(name, "result", origin, self.count(text), why, text)
        block: dict[str, Json] = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        if status != "success":
            block["is_error"] = True
        raw = _dump(block)
        return Piece(name, "result", origin, self.count(raw), why, raw, "user", True)

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


def _tool_name(name: str) -> str:
    return _BAD_ID.sub("_", name)[:_NAME_CHARS] or "tool"


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


def _summary_tag(event: Summary) -> str:
    return f"<ctx:summary id={_id(event)}>\n"


def _origin(event: HistoryEvent) -> str:
    return attribute(short(event.event_id))


def _id(event: HistoryEvent) -> str:
    return f'"{attribute(event.event_id)}"'


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
