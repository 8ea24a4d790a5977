"""Assemble an answer from its stream events, without network and clock.

Rule 1: a block is kept as received, field for field; a signature is not changed. The JSON of a call's input is parsed
        when the block ends; an invalid input does not stop the answer, and is listed in `unreadable`.
Rule 2: events, blocks and deltas of unknown types are ignored.
Rule 3: pieces are joined once: the cost is linear in the length of the answer, for any number of deltas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from ctxkernel.core.dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a call's input; an empty one when the call begins."""

    name: str
    partial_json: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """A request failed before its answer began, and is sent again after so many seconds."""

    attempt: int
    """Number of the failed attempt, from 1."""
    why: str
    """The failure in a few words."""
    seconds: float


StreamEvent = TextDelta | ThinkingDelta | CallDelta | Retrying


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The token counts of the running attempt so far; a later report replaces an earlier one."""

    usage: Mapping[str, Any]
    """Empty when the request was sent and the server gave no counts yet."""
    final: bool = False
    """Whether these are the counts of the whole answer."""


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer."""

    llm_response_id: str
    request_id: str | None
    model: str
    blocks: tuple[Mapping[str, Any], ...]
    """As received, so that they can be sent back. The input of a call in `unreadable` is `{}`."""
    stop_reason: str | None
    usage: Mapping[str, Any]
    seconds: float
    """From the call of `send`, failed attempts included."""
    first_token_seconds: float | None
    """To the first delta; None if there was none."""
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])
    """Id of a call → its input that is not a JSON object: truncated at `max_tokens`, or wrong."""


class BadEvent(ValueError):
    """An event that no Messages server sends."""


_FIELDS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("", "partial_json"),
}
"""Delta → the type of its block (empty: any), and the field of which it is a piece."""


@dataclass(slots=True)
class _Block:
    data: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


class Assembly:
    """An answer so far."""

    def __init__(self) -> None:
        self.id = ""
        self.model = ""
        self.stop_reason: str | None = None
        self.usage: dict[str, Any] = {}
        self.unreadable: dict[str, str] = {}
        self.started = False
        """Whether the answer began."""
        self.complete = False
        self._blocks: dict[int, _Block] = {}
        self._text: list[str] = []

    @property
    def text(self) -> str:
        """The text so far, of all blocks of text."""
        return "".join(self._text)

    def take(self, event: object) -> StreamEvent | None:
        """Add one event. Return the event to display, or None. Raises BadEvent for an event of no Messages server."""
        data = _object(event, "the event")
        kind = data.get("type")
        if kind == "message_start":
            self._start(_object(data.get("message"), "message"))
        elif kind in ("content_block_start", "content_block_delta", "content_block_stop", "message_delta"):
            if not self.started:
                _wrong(f"{kind} before message_start")
            return self._grow(kind, data)
        elif kind == "message_stop":
            for block in self._blocks.values():
                self._end(block)
            self.complete = self.started
        return None

    def _start(self, message: Mapping[str, Any]) -> None:
        self.started = True
        self.id, self.model = str(message.get("id") or ""), str(message.get("model") or "")
        self._count(message.get("usage"))

    def _count(self, usage: object) -> None:
        """Replace earlier counts by later ones: each is of the whole answer."""
        if isinstance(usage, Mapping):
            given = cast("Mapping[str, Any]", usage)
            # A new dict, so that a reader can keep the counts, and sees that there are new ones.
            self.usage = {**self.usage, **{name: value for name, value in given.items() if value is not None}}

    def _grow(self, kind: str, data: Mapping[str, Any]) -> StreamEvent | None:
        if kind == "message_delta":
            self.stop_reason = _object(data.get("delta"), "delta").get("stop_reason") or self.stop_reason
            self._count(data.get("usage"))
            return None
        index = data.get("index")
        if not isinstance(index, int):
            _wrong(f"{kind} without an index")
        if kind == "content_block_start":
            return self._open(index, _object(data.get("content_block"), "content_block"))
        if index not in self._blocks:
            _wrong(f"{kind} of a block that was not begun")
        if kind == "content_block_stop":
            self._end(self._blocks[index])
            return None
        return self._add(self._blocks[index], _object(data.get("delta"), "delta"))

    def _open(self, index: int, block: Mapping[str, Any]) -> StreamEvent | None:
        self._blocks[index] = _Block(dict(block))
        if block.get("type") != "tool_use":
            return None
        if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str):
            _wrong("a call without id or name")
        return CallDelta(block["name"], "")

    def _add(self, block: _Block, delta: Mapping[str, Any]) -> StreamEvent | None:
        kind = delta.get("type")
        if kind == "citations_delta":
            block.data["citations"] = [*(block.data.get("citations") or ()), delta.get("citation")]
        if kind not in _FIELDS:
            return None
        wanted, name = _FIELDS[kind]
        piece = delta.get(name)
        if not isinstance(piece, str) or (wanted and wanted != block.data.get("type")):
            _wrong(f"a {kind} that is none")
        if not piece:
            return None
        block.pieces.setdefault(name, []).append(piece)
        if kind == "text_delta":
            self._text.append(piece)
            return TextDelta(piece)
        if kind == "thinking_delta":
            return ThinkingDelta(piece)
        return CallDelta(str(block.data.get("name", "")), piece) if kind == "input_json_delta" else None

    def _end(self, block: _Block) -> None:
        """Join the pieces of a block; a second time does nothing."""
        written = "".join(block.pieces.pop("partial_json", ()))
        for name, pieces in block.pieces.items():
            block.data[name] = (block.data.get(name) or "") + "".join(pieces)
        block.pieces = {}
        given = _read(written) if written else block.data.get("input")
        if written or block.data.get("type") == "tool_use":
            block.data["input"] = given if isinstance(given, dict) else {}
            if not isinstance(given, dict):
                self.unreadable[str(block.data.get("id"))] = written or json.dumps(given)

    @property
    def blocks(self) -> tuple[Mapping[str, Any], ...]:
        """The blocks, in their order."""
        return tuple(self._blocks[index].data for index in sorted(self._blocks))


def _read(text: str) -> Any:
    """Return the value of a JSON text, None if it is invalid."""
    try:
        return json.loads(text, parse_constant=_wrong)  # NaN is not JSON, and could not be sent back
    except (ValueError, RecursionError):
        return None


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _wrong(f"{what} is no object")
    return cast("Mapping[str, Any]", value)


def _wrong(what: str) -> NoReturn:
    raise BadEvent(what)
