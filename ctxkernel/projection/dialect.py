"""The blocks of events in the model's history, in the two dialects of models.

    tools    a call is a `tool_use` block, its result a `tool_result` block right after it
    script   a call is a `<script type="text/x-python">` block in the model's text, its result a text of the user

Rule 1: the blocks of every event pass the rules of the API: texts are cleaned and truncated, ids and names made legal,
        blank texts left out or marked as empty. The block's `why` says what was done.
Rule 2: an event's blocks are a function of the event and of the name of its call, so they stay in the provider's cache.
Rule 3: in the tools dialect a response goes back block for block as it came (`as_it_came`); if that is not possible, by
        its texts and its call, cleaned and truncated, and without thinking.
Rule 4: in the script dialect, tags of scripts are escaped in texts from outside.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.masking import Mask
from ctxkernel.core.ports import CountTokens, Picture
from ctxkernel.core.text import plural
from ctxkernel.core.timeline_events import Json
from ctxkernel.history.capabilities import image_tokens
from ctxkernel.history.events import (
    THINKING,
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
from ctxkernel.history.responses import as_it_came, dump
from ctxkernel.projection.budget import fit_text
from ctxkernel.projection.displayed_images import image_block, picture_extent
from ctxkernel.projection.layout import EMPTY, MASKED, Clean, attribute, clean
from ctxkernel.projection.placed_views import Placed
from ctxkernel.projection.secrets import mask as mask_credentials
from ctxkernel.projection.value import Piece

DialectName = Literal["tools", "script"]

RUN_CELL = "run_cell"
"""The tool whose input is a cell."""
SCRIPT = '<script type="text/x-python">\n'
_END_SCRIPT = "\n</script>"
_BAD_ID = re.compile(r"[^a-zA-Z0-9_-]")
_ID_CHARS, _NAME_CHARS = 128, 64
_DEEPEST = 32
"""Deepest level of a call's input that is kept."""


class EventRendering(NamedTuple):
    """The blocks of one event."""

    id: str
    """The event's id."""
    origin: str
    whole: tuple[Piece, ...]
    masked: tuple[Piece, ...]
    """The blocks without the outputs; `whole` itself where that would save nothing."""
    tokens: int
    masked_tokens: int
    thinking_tokens: int = 0
    """Tokens of the blocks of thinking, 0 if there are none."""
    verbatim: bool = False
    """Whether it is a part of a response as it came."""
    call_id: str = ""
    """The name of the call in the request, where the event is a call or a result."""
    question: bool = False
    context: bool = False
    bare: tuple[Piece, ...] = ()
    """`whole` without its images; empty where it has none."""
    image_tokens: int = 0
    """Tokens of the images in `whole`."""
    image_weight: int = 0
    """Their share of the limit of images (`ImageLimits.weight`)."""

    @property
    def name(self) -> str:
        """The event's id, as in blocks."""
        return attribute(self.id)

    @property
    def masks(self) -> bool:
        """Return whether the masked form differs from the whole one."""
        return self.masked is not self.whole


def message(event: HistoryEvent, pieces: Sequence[Piece], **more: Any) -> EventRendering:
    """Return the blocks of an event that has one form."""
    whole = tuple(pieces)
    tokens = sum([piece.tokens for piece in whole])
    return EventRendering(event.event_id, _origin(event), whole, whole, tokens, tokens, **more)


def with_images(rendered: EventRendering, images: Sequence[Picture]) -> EventRendering:
    """Return the blocks of an event with those of its images after them; masked, it has none."""
    if not images:
        return rendered
    pieces: list[Piece] = []
    for n, one in enumerate(images, 1):
        name = f"{rendered.name}#image{n}"
        why = f"image {n} of {len(images)} that {rendered.origin} displayed, {one.width:,} × {one.height:,}"
        pieces.append(Piece(name, "image", rendered.origin, one.tokens, why, image_block(one), "user", True))
    tokens = sum([one.tokens for one in images])
    return rendered._replace(
        whole=(*rendered.whole, *pieces),
        bare=rendered.whole,
        tokens=rendered.tokens + tokens,
        image_tokens=tokens,
    )


@dataclass(frozen=True)
class Dialect:
    """Renders the events that are not statements."""

    name: DialectName
    count: CountTokens
    text_tokens: int
    """Most tokens of a question, an answer or a call."""
    output_tokens: int
    wide_tokens: int
    """Most tokens of a result that was requested in full."""
    response_tokens: int
    """Most tokens of a response that goes back as it came."""
    mask: Mask = mask_credentials

    def render(
        self, event: HistoryEvent, call_id: str = "", note: str = "", images: Sequence[Picture] = ()
    ) -> EventRendering:
        """Return the blocks of `event`.

        `call_id` is the name of its call in the request; `note` stands in the place of a result that was redacted;
        `images` are those that the cell of a result displayed.
        """
        match event:
            case UserQuestion():
                return message(
                    event, [self._text(event, "question", f"question of {short(event.event_id)}")], question=True
                )
            case AssistantMessage():
                return self._response(event) or message(event, self._said(event))
            case Action():
                return self._call(event, call_id)
            case Observation() | UserRejection() | AgentError():
                return self._result(event, call_id, note, images)
            case Summary():
                return message(event, [self._text(event, "summary", "stands for what was condensed")])
            case Context():
                blocks = [self._context(event, n, text) for n, text in enumerate(event.texts) if text.strip()]
                tokens = sum([piece.tokens for piece in blocks if piece.raw])
                return message(event, blocks, context=True, image_tokens=tokens)
            case _:
                return message(event, [])

    def summary_tokens(self, event: Summary) -> int:
        """Return the tokens that a summary would take if it were not cut."""
        return self.count(f"{_tag('summary', event)}{self._clean(event.text).text.strip() or EMPTY}\n")

    def _piece(self, event: HistoryEvent, kind: str, text: str, why: str, *how: Any, suffix: str = "") -> Piece:
        """Return a block of an event; `how` is its role, and whether `text` is JSON."""
        name = f"{attribute(event.event_id)}{suffix}"
        return Piece(name, kind, _origin(event), self.count(text), why, text, *how)

    # -- the user's side ---------------------------------------------------------------

    def _text(self, event: UserQuestion | Summary, kind: str, why: str) -> Piece:
        shown, notes = self._bounded(event.text, self.text_tokens)
        return self._piece(event, kind, f"{_tag(kind, event)}{shown.strip() or EMPTY}\n", "; ".join([why, *notes]))

    def _context(self, event: Context, n: int, text: str) -> Piece:
        why = "the state as it was sent with that request; kept until something before it changes"
        if n in event.pictures and (tokens := picture_tokens(text)) is not None:
            name = f"{attribute(event.event_id)}#{n + 1}"
            return Piece(name, "picture", _origin(event), tokens, why, text, "user", True)
        return self._piece(event, "context", text, why, suffix=f"#{n + 1}")

    # -- the model's side ---------------------------------------------------------------------

    def _response(self, event: AssistantMessage | Action, call_id: str = "") -> EventRendering | None:
        """Return the blocks of a response as they came, None if that is not possible."""
        calls = [block.get("id") for block in event.blocks if block.get("type") == "tool_use"]
        if self.name == "script" or not event.blocks or calls != ([call_id] if isinstance(event, Action) else []):
            return None
        pieces: list[Piece] = []
        thinking = 0
        for n, block in enumerate(event.blocks, 1):
            kind = str(block.get("type"))
            text = as_it_came(block, self.mask)
            if not text:
                return None
            if kind == "tool_use":
                if not _is_legal(block.get("name")):
                    return None
                shown, why, suffix = "call", f"call {short(event.event_id)}, as it came", ""
            elif kind in THINKING:
                shown, why, suffix = "thinking", "thinking, as it was signed", f"#thinking{n}"
            else:
                shown, suffix = "answer", f"#said{n}"
                why = f"what the model said in {short(event.event_id)}, as it came"
            piece = self._piece(event, shown, text, why, *_RAW, suffix=suffix)
            thinking += piece.tokens if shown == "thinking" else 0
            pieces.append(piece)
        entry = message(event, pieces, thinking_tokens=thinking, call_id=call_id, verbatim=True)
        return entry if entry.tokens <= self.response_tokens else None

    def _said(self, event: AssistantMessage | Action) -> list[Piece]:
        shown, notes = self._bounded(event.text, self.text_tokens, script=False)
        if not shown.strip():
            return []
        why = "; ".join([f"what the model said in {short(event.event_id)}", *notes])
        return [self._piece(event, "answer", shown.strip(), why, "assistant", suffix="#said")]

    def _call(self, event: Action, call_id: str) -> EventRendering:
        if (response := self._response(event, call_id)) is not None:
            return response
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
            text, how = dump({"type": "tool_use", "id": call_id, "name": tool, "input": given}), _RAW
        why = "; ".join([f"call {short(event.event_id)}", *dict.fromkeys(notes)])
        return message(event, [*self._said(event), self._piece(event, "call", text, why, *how)], call_id=call_id)

    # -- results of calls ------------------------------------------------------------------------

    def _result(
        self, event: Observation | UserRejection | AgentError, call_id: str, note: str, images: Sequence[Picture]
    ) -> EventRendering:
        match event:
            case Observation():
                status, text = event.status, event.content
            case UserRejection():
                reason = f": {event.reason}" if event.reason.strip() else ""
                status, text = "rejected", f"The user did not allow this call{reason}"
            case AgentError():
                status, text = "failed", event.message
        script = self.name == "script"

        def made(body: str, why: str, images: Sequence[Picture] = ()) -> Piece:
            shown = f'<ctx:result id={_id(event)} status="{attribute(status)}">\n{body}'
            if script:
                return self._piece(event, "result", shown, why)
            block: dict[str, Json] = {"type": "tool_result", "tool_use_id": call_id, "content": shown}
            if status != "success":
                block["is_error"] = True
            piece = self._piece(event, "result", dump(block), why, "user", True)
            if images:
                block["content"] = [{"type": "text", "text": shown}, *map(json.loads, map(image_block, images))]
                tokens = sum([one.tokens for one in images])
                why = f"{why}; with {plural(len(images), 'images')}, ~{tokens:,} tokens"
                piece = piece._replace(text=dump(block), tokens=piece.tokens + tokens, why=why)
            return piece

        wide = isinstance(event, Observation) and event.wide
        shown, notes = self._bounded(text, self.wide_tokens if wide else self.output_tokens)
        if images and not script and status != "success":
            images = ()
            notes.append("its images left out: a result that is an error may have text only")
        why = "; ".join([f"result of {short(event.event_id)}", *notes])
        body = f"{shown.strip() or EMPTY}\n"
        whole = made(body, why)
        pictured = sum([one.tokens for one in images])
        if note:
            piece = made(f"{self._bounded(note, self.output_tokens)[0].strip()}\n", "redacted: its output was stale")
            if piece.tokens < whole.tokens + pictured:
                return message(event, [piece], call_id=call_id)
        hidden = made(MASKED, f"{why}; its output masked")
        rendered = message(event, [whole], call_id=call_id)
        if hidden.tokens < whole.tokens:
            rendered = rendered._replace(masked=(hidden,), masked_tokens=hidden.tokens)
        if script or not images:
            return with_images(rendered, images)
        return rendered._replace(
            whole=(made(body, why, images),),
            bare=rendered.whole,
            tokens=rendered.tokens + pictured,
            image_tokens=pictured,
        )

    def view(self, one: Placed, origin: str) -> Piece:
        """Return the block of a view after the statement that made it."""
        name = f"view:{attribute(one.name)}"
        shown, notes = self._bounded(one.text, self.text_tokens * 2)
        text = f'<ctx:view id="{name}">\n{shown.strip() or EMPTY}\n'
        why = "; ".join([f"{attribute(one.name)} as it is now, where it was made", *notes])
        return Piece(name, "view", origin, self.count(text), why, text)

    # -- texts -----------------------------------------------------------------------------------

    def _clean(self, text: str, *, script: bool = True) -> Clean:
        return clean(text, script=script and self.name == "script", mask=self.mask)

    def _bounded(self, text: str, limit: int, *, script: bool = True) -> tuple[str, list[str]]:
        """Return `text` clean and within `limit` tokens, and notes on the changes."""
        safe = self._clean(text, script=script)
        notes = list(safe.notes)
        fitted = fit_text(safe.text, limit, self.count)
        if fitted.cut:
            notes.append(f"cut by {fitted.cut:,} characters")
        return fitted.text, notes

    def _plain(self, value: Json, notes: list[str], depth: int) -> Json:
        """Return a call's input as valid JSON: bounded texts, finite numbers, bounded depth."""
        if isinstance(value, str):
            shown, told = self._bounded(value, self.text_tokens, script=False)
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
            return {
                self._clean(str(key), script=False).text: self._plain(item, notes, depth + 1) for key, item in items
            }
        if isinstance(value, Sequence):
            return [self._plain(item, notes, depth + 1) for item in cast("Sequence[Json]", value)]
        notes.append(f"{type(value).__name__} left out")
        return None


_RAW = ("assistant", True)


def call_name(event: Action, taken: Mapping[str, object] | set[str]) -> str:
    """Return the id of a call in a request: its own, if that is legal and no earlier call has it."""
    name = _BAD_ID.sub("_", event.tool_call_id)[:_ID_CHARS]
    if name != event.tool_call_id or not name:
        mark = hashlib.sha256(event.tool_call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = f"{name[: _ID_CHARS - 9]}_{mark}"
    base, n = name, 1
    while name in taken:
        n += 1
        name = f"{base[: _ID_CHARS - 12]}-{n}"
    return name


def picture_tokens(text: str) -> int | None:
    """Return the tokens of an image block; None where the text, from another's session, is none."""
    extent = picture_extent(text)
    return image_tokens(*extent) if extent else None


def _is_legal(name: object) -> bool:
    """Return whether the API accepts the name of a tool."""
    return isinstance(name, str) and 0 < len(name) <= _NAME_CHARS and not _BAD_ID.search(name)


def short(event_id: str) -> str:
    """Return the statement of an event's id, `s3` of `s3.1:4`."""
    return event_id.partition(".")[0] or "history"


def _tag(kind: str, event: HistoryEvent) -> str:
    return f"<ctx:{kind} id={_id(event)}>\n"


def _origin(event: HistoryEvent) -> str:
    return attribute(short(event.event_id))


def _id(event: HistoryEvent) -> str:
    return f'"{attribute(event.event_id)}"'
