"""What a test's Messages server says, and what goes wrong with it: plain values, and the events that they become.

Rule 1: frozen; no socket and no clock here.
Rule 2: where an answer is wanted, a block or a list of blocks is one: `[say("hi"), [think("hm"), call("run", {})]]` are
        two answers.
Rule 3: a fault comes at a place, which is a point between two events of the stream (`PLACES`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Block = dict[str, Any]
Place = Literal["headers", "start", "block", "between", "call", "stop"]
PLACES: dict[Place, str] = {
    "headers": "before the response's headers",
    "start": "after the headers, before message_start",
    "block": "inside the first block, after its first delta",
    "between": "after the first block",
    "call": "after the first tool_use block",
    "stop": "before message_stop",
}
OVERFLOW = "prompt is too long: 210000 tokens > 200000 maximum"
"""What the API says of a request that its model's context cannot hold: `error(400, OVERFLOW)`."""

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
    """The connection is closed in the middle of the response."""

    at: Place


@dataclass(frozen=True, slots=True)
class End:
    """The response ends as if it were complete."""

    at: Place


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing is sent for so many seconds; then it goes on."""

    at: Place
    seconds: float


@dataclass(frozen=True, slots=True)
class StreamError:
    """An `error` event, and the end."""

    at: Place
    type: str = "overloaded_error"
    message: str = "Overloaded"


@dataclass(frozen=True, slots=True)
class Garbage:
    """An event whose data is this text; then it goes on."""

    at: Place
    data: str = '{"type": '


Fault = Cut | End | Stall | StreamError | Garbage


@dataclass(frozen=True, slots=True)
class Answer:
    """A message, and how it is sent. Made by `answer`."""

    blocks: tuple[Block, ...]
    stop_reason: str
    usage: Mapping[str, Any]
    """What replaces the estimated counts."""
    delay: float
    """Seconds before each delta."""
    chunk: int
    """Characters of a delta."""
    packet: int
    """Bytes that are written at a time, 0 for a whole event: to break characters and lines apart."""
    noise: bool
    """Whether it holds what a client is to ignore: further pings, empty deltas, events and deltas of unknown types."""
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class HttpError:
    """A refusal instead of an answer. Made by `error`."""

    status: int
    type: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Answered = Answer | HttpError | Block | Sequence[Block]
Script = Sequence[Answered] | Callable[[dict[str, Any]], Answered]


def say(text: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text}


def think(text: str) -> Block:
    """Return a thinking block; the server signs it."""
    return {"type": "thinking", "thinking": text, "signature": ""}


def call(name: str, input: Mapping[str, Any] | str, *, id: str = "") -> Block:
    """Return a tool_use block. A text as `input` is sent as it is, also where it is no JSON; the server gives an id."""
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def answer(
    blocks: Block | Sequence[Block],
    *,
    stop_reason: str | None = None,
    usage: Mapping[str, Any] | None = None,
    delay: float = 0.0,
    chunk: int = 16,
    packet: int = 0,
    noise: bool = False,
    fault: Fault | None = None,
) -> Answer:
    """Return an answer. It stops for `tool_use` where it has a call, else for `end_turn`; its usage is estimated."""
    given = (blocks,) if isinstance(blocks, dict) else tuple(blocks)
    derived = "tool_use" if any(block["type"] == "tool_use" for block in given) else "end_turn"
    return Answer(given, stop_reason or derived, usage or {}, delay, chunk, packet, noise, fault)


def error(status: int, message: str = "", *, headers: Mapping[str, str] | None = None) -> HttpError:
    """Return a refusal with the API's error type for `status`; `headers` as `{"retry-after-ms": "5"}`."""
    kind, usual = _ERRORS.get(status, ("api_error", "Error"))
    return HttpError(status, kind, message or usual, headers or {})


def as_answer(given: Answered) -> Answer | HttpError:
    """Return what a script's item means."""
    return given if isinstance(given, Answer | HttpError) else answer(given)


def whole(block: Block) -> Block:
    """Return a block as it stands in a message that is not streamed; input that is no JSON object is left out."""
    return {**block, "input": {}} if isinstance(block.get("input"), str) else block


def events(made: Answer, message: Mapping[str, Any]) -> Iterator[Place | dict[str, Any]]:
    """Yield the stream of a message, and its places as they are reached. The blocks have their ids and signatures."""
    usage = message["usage"]
    began: dict[str, Any] = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield "start"
    yield {"type": "message_start", "message": began}
    yield {"type": "ping"}
    for index, block in enumerate(made.blocks):
        yield {"type": "content_block_start", "index": index, "content_block": _opened(block)}
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


def _opened(block: Block) -> Block:
    """Return a block as it begins: what its deltas bring is empty."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "tool_use":
            return {**block, "input": {}}
        case _:
            return block


def _deltas(block: Block, chunk: int, *, empty: bool) -> Iterator[dict[str, Any]]:
    def pieces(text: str) -> Iterator[str]:
        if empty:
            yield ""
        for start in range(0, len(text), chunk):
            yield text[start : start + chunk]

    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in pieces(block["text"]))
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            given = block["input"]
            written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            yield {"type": "input_json_delta", "partial_json": ""}
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in pieces(written))
        case _:
            pass
