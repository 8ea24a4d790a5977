"""A Messages request, parsed once into well-typed parts for the rules.

Rule 1: `read` never raises; a wrong value becomes a fault and is left out of the parts.
Rule 2: linear in the size of the body, without recursion: a hostile body can neither hang nor overflow it.
Rule 3: the string content of a message becomes one text block, so that no rule needs two cases.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ctxkernel.core.dataclasses import dataclass, field

ROLES = ("user", "assistant", "system")
DEEPEST = 200
"""Maximal nesting: the server's parser refuses more, and so do some parsers here."""

_STRINGS = {
    "text": ("text",),
    "tool_use": ("id", "name"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking",),
    "redacted_thinking": ("data",),
}
_NOT_IN = {
    "user": ("tool_use", "thinking", "redacted_thinking", "server_tool_use"),
    "assistant": ("tool_result", "image"),
    "system": ("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "server_tool_use"),
}


class Fault(NamedTuple):
    """A place in the body, what is wrong there, and how to fix it."""

    path: str
    message: str
    fix: str


class RequestBlock(NamedTuple):
    """One content block (also of `system`), or one tool."""

    path: str
    type: str
    data: Mapping[str, Any]


class Message(NamedTuple):
    """One message with its well-typed blocks."""

    path: str
    role: str
    blocks: tuple[RequestBlock, ...]
    data: Mapping[str, Any]


class RequestTurn(NamedTuple):
    """Messages of one role in a row, as the API merges them."""

    role: str
    blocks: tuple[RequestBlock, ...]


@dataclass
class MessagesRequest:
    """A parsed body."""

    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    messages: list[Message] = field(default_factory=list[Message])
    system: list[RequestBlock] = field(default_factory=list[RequestBlock])
    tools: list[RequestBlock] = field(default_factory=list[RequestBlock])
    turns: list[RequestTurn] = field(default_factory=list[RequestTurn])
    thinking: Mapping[str, Any] | None = None
    tool_choice: Mapping[str, Any] | None = None
    shape: list[Fault] = field(default_factory=list[Fault])
    """Values of a wrong type, and missing values."""
    values: list[Fault] = field(default_factory=list[Fault])
    """Values that JSON cannot represent."""
    surrogates: list[Fault] = field(default_factory=list[Fault])
    chars: int = 0
    """Characters of all strings plus 8 for each node: this gives an upper bound of the size of the body."""

    def blocks(self) -> Iterator[RequestBlock]:
        """Yield all blocks of all messages; the blocks within a tool result follow the result."""
        for message in self.messages:
            for block in message.blocks:
                yield block
                yield from inner(block)

    def size(self) -> int:
        """Return the bytes of the body when sent, or an upper bound if that is far from any limit."""
        bound = self.chars * 6  # the longest escape of one character
        if bound < 4_000_000:
            return bound
        try:
            return len(json.dumps(self.body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))
        except (TypeError, ValueError, RecursionError):  # not JSON; `values` reports it
            return bound


def mapping(value: object) -> Mapping[str, Any] | None:
    """Return `value` if it is a mapping, else None."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def listed(value: object) -> Sequence[Any] | None:
    """Return `value` if it is a list or tuple, else None."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else None


def inner(block: RequestBlock) -> Iterator[RequestBlock]:
    """Yield the blocks within a tool result that have a type."""
    if block.type != "tool_result":
        return
    content = block.data.get("content")
    if isinstance(content, str):
        yield RequestBlock(f"{block.path}.content", "text", {"type": "text", "text": content})
    for index, item in enumerate(listed(content) or ()):
        data = mapping(item)
        if data is not None and isinstance(data.get("type"), str):
            yield RequestBlock(f"{block.path}.content[{index}]", data["type"], data)


def read(body: object) -> MessagesRequest:
    """Return the parsed body. Never raises."""
    request = MessagesRequest()
    data = mapping(body)
    if data is None:
        request.shape.append(Fault("", f"the body is {_name(body)}, not an object", "send a JSON object"))
        return request
    request.body = data
    _walk(request)
    _top(request)
    _system(request)
    _tools(request)
    _messages(request)
    merged: list[tuple[str, list[RequestBlock]]] = []
    for message in request.messages:
        if merged and merged[-1][0] == message.role:
            merged[-1][1].extend(message.blocks)
        else:
            merged.append((message.role, list(message.blocks)))
    request.turns = [RequestTurn(role, tuple(blocks)) for role, blocks in merged]
    return request


def _name(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _wrong(request: MessagesRequest, path: str, value: object, wanted: str) -> None:
    request.shape.append(Fault(path, f"{path}: is {_name(value)}, not {wanted}", f"give {wanted}"))


_Link = tuple["_Link | None", str]


def _path(link: _Link | None) -> str:
    steps: list[str] = []
    while link is not None:
        steps.append(link[1])
        link = link[0]
    return "".join(reversed(steps)).removeprefix(".")


def _lone_surrogate(text: str) -> bool:
    """Return whether `text` contains a surrogate, which UTF-8 cannot represent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def text_fault(text: str) -> str:
    """Return why the API refuses a text block with this text, or "": the rules for a single text."""
    if not text:
        return "text content blocks must be non-empty"
    if text.isspace():
        return "text content blocks must contain non-whitespace text"
    return "no low surrogate in string" if not text.isascii() and _lone_surrogate(text) else ""


def _walk(request: MessagesRequest) -> None:
    """Read every value once: find values that are not JSON and lone surrogates, and measure the size."""
    stack: list[tuple[object, _Link | None]] = [(request.body, None)]
    seen: set[int] = set()
    above: dict[int, None] = {}  # the containers around the current value, outermost first
    chars = 0
    while stack:
        value, link = stack.pop()
        chars += 8
        if isinstance(value, str):
            chars += len(value)
            if not value.isascii() and _lone_surrogate(value):
                path = _path(link)
                fix = "replace lone surrogates with U+FFFD"
                request.surrogates.append(Fault(path, f"{path}: no low surrogate in string", fix))
        elif value is None or isinstance(value, bool | int):
            continue
        elif isinstance(value, float):
            if not math.isfinite(value):
                request.values.append(Fault(_path(link), f"{_path(link)}: {value} is no JSON number", "send null"))
        elif isinstance(value, _Leave):
            above.popitem()
        elif type(value) is dict or isinstance(value, Mapping | list | tuple):  # the second question is slow
            key = id(cast("object", value))
            if key in above:
                request.values.append(Fault(_path(link), f"{_path(link)}: contains itself", "send a tree of values"))
            elif len(above) > DEEPEST:
                fault = Fault(_path(link)[:200], f"nested more than {DEEPEST} levels deep", "flatten the value")
                request.values.append(fault)
            # Read shared parts once; otherwise a few lines of Python could make a body of 2**200 nodes.
            elif key not in seen:
                seen.add(key)
                above[key] = None
                stack.append((_LEAVE, None))
                chars += _children(request, cast("Mapping[object, object] | Sequence[object]", value), link, stack)
        else:
            path = _path(link)
            request.values.append(Fault(path, f"{path}: {_name(value)} is no JSON value", "send text or numbers"))
    request.chars = chars


class _Leave:
    """Marks the end of the innermost container on the stack."""


_LEAVE = _Leave()


def _children(
    request: MessagesRequest,
    value: Mapping[object, object] | Sequence[object],
    link: _Link | None,
    stack: list[tuple[object, _Link | None]],
) -> int:
    """Push the keys and values that `_walk` has to read. Return what the others, which are ASCII texts, measure."""
    chars = 0
    if not isinstance(value, dict | Mapping):
        for index, item in enumerate(value):
            if type(item) is str and item.isascii():
                chars += 8 + len(item)
            else:
                stack.append((item, (link, f"[{index}]")))
        return chars
    for key, item in value.items():
        if not isinstance(key, str):
            path = _path(link)
            request.values.append(Fault(path, f"{path}: a key is {_name(key)}", "use string keys"))
            continue
        if key.isascii():
            chars += 8 + len(key)
        else:
            stack.append((key, (link, f".{key}")))
        if type(item) is str and item.isascii():
            chars += 8 + len(item)
        else:
            stack.append((item, (link, f".{key}")))
    return chars


def _object(request: MessagesRequest, path: str, value: object) -> Mapping[str, Any] | None:
    """Return `value` if it is a mapping; otherwise report it."""
    data = mapping(value)
    if data is None:
        _wrong(request, path, value, "an object")
    return data


def _top(request: MessagesRequest) -> None:
    body = request.body
    if not isinstance(body.get("model"), str) or not body["model"]:
        _wrong(request, "model", body.get("model"), "a model's name")
    limit = body.get("max_tokens")
    # 0 is allowed: it only warms the cache.
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        _wrong(request, "max_tokens", limit, "a number ≥ 0")
    for key in ("thinking", "tool_choice", "context_management"):
        if body.get(key) is not None:
            _object(request, key, body[key])
    _cache_control(request, "", body)
    request.thinking = mapping(body.get("thinking"))
    request.tool_choice = mapping(body.get("tool_choice"))


def _cache_control(request: MessagesRequest, where: str, data: Mapping[str, Any]) -> None:
    """Check that a breakpoint is an object of the type `ephemeral`."""
    if data.get("cache_control") is not None:
        path = f"{where}.cache_control".removeprefix(".")
        control = _object(request, path, data["cache_control"])
        if control is not None and control.get("type") != "ephemeral":
            request.shape.append(Fault(f"{path}.type", f"{path}.type: Input should be 'ephemeral'", "give ephemeral"))


def _system(request: MessagesRequest) -> None:
    if request.body.get("system") is not None:
        request.system = _content(request, "system", request.body["system"], "system") or []
        for block in request.system:
            if block.type != "text":
                _wrong(request, f"{block.path}.type", block.type, "text")


def _tools(request: MessagesRequest) -> None:
    tools = request.body.get("tools")
    if tools is not None and listed(tools) is None:
        _wrong(request, "tools", tools, "a list of tools")
    for index, tool in enumerate(listed(tools) or ()):
        path = f"tools[{index}]"
        if (data := _object(request, path, tool)) is not None:
            request.tools.append(RequestBlock(path, str(data.get("type", "custom")), data))
            _cache_control(request, path, data)


def _messages(request: MessagesRequest) -> None:
    messages = request.body.get("messages")
    if listed(messages) is None:
        _wrong(request, "messages", messages, "a list of messages")
    elif not messages:
        request.shape.append(Fault("messages", "messages: at least one message is required", "add a user message"))
    for index, message in enumerate(listed(messages) or ()):
        path = f"messages[{index}]"
        if (data := _object(request, path, message)) is None:
            continue
        role = data.get("role")
        if not isinstance(role, str) or role not in ROLES:
            message = f"{path}.role: {(role if isinstance(role, str) else _name(role))[:40]!r} is no role"
            request.shape.append(Fault(f"{path}.role", message, "use user or assistant"))
        elif (blocks := _content(request, f"{path}.content", data.get("content"), role)) is not None:
            request.messages.append(Message(path, role, tuple(blocks), data))


def _content(request: MessagesRequest, path: str, content: object, role: str) -> list[RequestBlock] | None:
    """Return the well-typed blocks of a text or a list; None if it is neither."""
    if isinstance(content, str):
        return [RequestBlock(path, "text", {"type": "text", "text": content})]
    if (items := listed(content)) is not None:
        return _blocks(request, path, items, role)
    _wrong(request, path, content, "text or a list of blocks")
    return None


def _blocks(request: MessagesRequest, where: str, content: Sequence[Any], role: str) -> list[RequestBlock]:
    """Return the well-typed blocks of `content`; report the others as faults."""
    out: list[RequestBlock] = []
    for index, item in enumerate(content):
        path = f"{where}[{index}]"
        data = mapping(item)
        kind = data.get("type") if data is not None else None
        if data is None or not isinstance(kind, str):
            _wrong(request, path if data is None else f"{path}.type", item if data is None else kind, "a content block")
            continue
        if kind in _NOT_IN[role]:
            message = f"{path}: `{kind}` blocks are not allowed in `{role}` messages"
            request.shape.append(Fault(path, message, f"move the `{kind}` block"))
            continue
        missing = [name for name in _STRINGS.get(kind, ()) if not isinstance(data.get(name), str)]
        if missing:
            _wrong(request, f"{path}.{missing[0]}", data.get(missing[0]), "text")
            continue
        if kind == "tool_result" and not isinstance(data.get("content"), str | list | tuple | None):
            _wrong(request, f"{path}.content", data.get("content"), "text or a list of blocks")
            continue
        if kind == "tool_use" and mapping(data.get("input")) is None:
            _wrong(request, f"{path}.input", data.get("input"), "an object")
        _cache_control(request, path, data)
        block = RequestBlock(path, kind, data)
        out.append(block)
        for part in inner(block):
            _cache_control(request, part.path, part.data)
            if part.type == "text" and not isinstance(part.data.get("text"), str):
                _wrong(request, f"{part.path}.text", part.data.get("text"), "text")
    return out
