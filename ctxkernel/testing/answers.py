"""The answers of a test's Messages server and their faults: plain values, and the events that they become.

Rule 1: frozen; no socket and no clock here.
Rule 2: a block or a list of blocks may take the place of an answer: `[say("hi"), [think("hm"), call("run", {})]]` are
        two answers.
Rule 3: a fault occurs at a place, which is a point between two events of the stream (`PLACES`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from ctxkernel.core.dataclasses import dataclass, field

ContentBlock = dict[str, Any]
CutPlace = Literal["headers", "start", "block", "between", "call", "stop"]
PLACES: dict[CutPlace, str] = {
    "headers": "before the response's headers",
    "start": "after the headers, before message_start",
    "block": "inside the first block, after its first delta",
    "between": "after the first block",
    "call": "after the first tool_use block",
    "stop": "before message_stop",
}
OVERFLOW = "prompt is too long: 210000 tokens > 200000 maximum"
"""The API's message for a request that does not fit into the model's context: `error(400, OVERFLOW)`."""

_ERRORS = {
    400: ("invalid_request_error", "Invalid request"),
    401: ("authentication_error", "invalid x-api-key"),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "Not found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit"),
    500: ("api_error", "Internal server error"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection in the middle of the response."""

    at: CutPlace


@dataclass(frozen=True, slots=True)
class End:
    """End the response as if it were complete."""

    at: CutPlace


@dataclass(frozen=True, slots=True)
class Stall:
    """Send nothing for some seconds, then continue."""

    at: CutPlace
    seconds: float


@dataclass(frozen=True, slots=True)
class StreamError:
    """Send an `error` event, and end."""

    at: CutPlace
    type: str = "overloaded_error"
    message: str = "Overloaded"


@dataclass(frozen=True, slots=True)
class Garbage:
    """Send an event with this text as its data, then continue."""

    at: CutPlace
    data: str = '{"type": '


StreamFault = Cut | End | Stall | StreamError | Garbage


@dataclass(frozen=True, slots=True)
class Answer:
    """A message, and how to send it. Made by `answer`."""

    blocks: tuple[ContentBlock, ...]
    stop_reason: str
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Replaces the estimated counts."""
    delay: float = 0.0
    """Seconds before each delta."""
    chunk: int = 16
    """Characters of a delta."""
    packet: int = 0
    """Bytes to write at a time, 0 for a whole event; splits characters and lines."""
    noise: bool = False
    """Whether to add data that a client must ignore: more pings, empty deltas, events and deltas of unknown types."""
    fault: StreamFault | None = None


@dataclass(frozen=True, slots=True)
class HttpError:
    """An HTTP error instead of an answer. Made by `error`."""

    status: int
    type: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


ScriptedAnswer = Answer | HttpError | ContentBlock | Sequence[ContentBlock]
Script = Sequence[ScriptedAnswer] | Callable[[dict[str, Any]], ScriptedAnswer]


def say(text: str) -> ContentBlock:
    """Return a text block."""
    return {"type": "text", "text": text}


def think(text: str) -> ContentBlock:
    """Return a thinking block; the server signs it."""
    return {"type": "thinking", "thinking": text, "signature": ""}


def call(name: str, input: Mapping[str, Any] | str, *, id: str = "") -> ContentBlock:
    """Return a tool_use block. A text as `input` is sent unchanged, even if it is not JSON. The server adds an id."""
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def answer(blocks: ContentBlock | Sequence[ContentBlock], *, stop_reason: str | None = None, **options: Any) -> Answer:
    """Return an answer; `options` are the other fields of `Answer`.

    By default, the stop reason is `tool_use` if there is a call, or else `end_turn`, and the usage is estimated.
    """
    given = (blocks,) if isinstance(blocks, dict) else tuple(blocks)
    usual = "tool_use" if any(block["type"] == "tool_use" for block in given) else "end_turn"
    return Answer(given, stop_reason or usual, **options)


def error(status: int, message: str = "", *, headers: Mapping[str, str] | None = None) -> HttpError:
    """Return an HTTP error with the API's error type for `status`; `headers`, for example `{"retry-after-ms": "5"}`."""
    kind, usual = _ERRORS.get(status, ("api_error", "Error"))
    return HttpError(status, kind, message or usual, headers or {})


def as_answer(given: ScriptedAnswer) -> Answer | HttpError:
    """Return the answer or error of a script's item."""
    return given if isinstance(given, Answer | HttpError) else answer(given)


def whole(block: ContentBlock) -> ContentBlock:
    """Return a block of a message that is not streamed; input that is not a JSON object becomes empty."""
    return {**block, "input": {}} if isinstance(block.get("input"), str) else block


def events(made: Answer, message: Mapping[str, Any]) -> Iterator[CutPlace | dict[str, Any]]:
    """Yield the events of a message, and each place when it is reached. The blocks have ids and signatures."""
    usage = message["usage"]
    began: dict[str, Any] = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield "start"
    yield {"type": "message_start", "message": began}
    yield {"type": "ping"}
    for index, block in enumerate(made.blocks):
        yield {
            "type": "content_block_start",
            "index": index,
            "content_block": {**block, **_EMPTY.get(block["type"], {})},
        }
        if made.noise:
            yield {"type": "ping"}
            yield {"type": "a_type_of_tomorrow", "index": index, "content": [1]}
            yield {"type": "content_block_delta", "index": index, "delta": {"type": "delta_of_tomorrow", "text": "?"}}
        for delta in _deltas(block, made.chunk, empty=made.noise):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield "block"
        yield {"type": "content_block_stop", "index": index}
        yield "between"
        if block["type"] == "tool_use":
            yield "call"
    ended = {"stop_reason": made.stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": usage}
    yield "stop"
    yield {"type": "message_stop"}


_EMPTY: dict[str, ContentBlock] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
"""The fields that the deltas of a block fill."""
_DELTAS = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}
"""Type of a block → its field, the type of its deltas, and their field."""


def _deltas(block: ContentBlock, chunk: int, *, empty: bool) -> Iterator[dict[str, Any]]:
    kind = block["type"]
    if kind not in _DELTAS:
        return
    name, delta, part = _DELTAS[kind]
    given = block[name]
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    pieces = [text[start : start + chunk] for start in range(0, len(text), chunk)]
    for piece in [""] * (empty + (kind == "tool_use")) + pieces:
        yield {"type": delta, part: piece}
    if kind == "thinking":
        yield {"type": "signature_delta", "signature": block["signature"]}
