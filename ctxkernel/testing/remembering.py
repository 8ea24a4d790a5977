"""The memory of a Messages server: its prompt cache, and the signatures of thinking.

Rule 1: a prompt is a sequence of parts: tools, system, then the blocks of the messages, without breakpoints. The ends
        of messages do not matter, because the API merges neighbours of one role.
Rule 2: two parts are equal if the JSON of their blocks is equal. A system message for one turn keeps its place and
        text, and costs nothing once a user message follows.
Rule 3: a signature contains everything that is needed to check it, so a restarted server knows its earlier thinking.

Simplifications: nothing expires, breakpoints within a result are ignored, and the cache only depends on tools, system
and messages.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, cast

from ctxkernel.projection.dialect import picture_tokens
from ctxkernel.projection.tokens import count_tokens

LOOKBACK = 20
"""Number of blocks, including that of the breakpoint, at which a cached prefix is searched."""


class RequestPart(NamedTuple):
    """A tool, or a block of the system text or of a message."""

    path: str
    text: str
    """Its role, and its JSON."""
    tokens: int
    ttl: str
    """The time to live of its breakpoint, or empty."""
    block: Mapping[str, Any]

    @property
    def thinking(self) -> bool:
        """Return whether it is a thinking block, which has a signature."""
        return self.block.get("type") == "thinking"


def part(path: str, whose: str, block: Mapping[str, Any], *, cleared: bool = False) -> RequestPart:
    """Return the part of one block."""
    return RequestPart(path, f"{whose} {_json(block)}", 0 if cleared else _counted(block), _ttl(block), block)


def _json(block: Mapping[str, Any]) -> str:
    return json.dumps(_plain(block), ensure_ascii=False)


def _counted(block: Mapping[str, Any]) -> int:
    """Return the tokens of a block: of an image, also within a result, those of its pixels."""
    if block.get("type") == "image":
        return picture_tokens(_json(block)) or _tokens(_json(block))
    content: object = block.get("content")
    inner = cast("list[Mapping[str, Any]]", content) if isinstance(content, list) else []
    images = [one for one in inner if one.get("type") == "image"]
    rest = {**block, "content": [one for one in inner if one.get("type") != "image"]} if images else block
    return _tokens(_json(rest)) + sum(map(_counted, images))


def _ttl(data: Mapping[str, Any]) -> str:
    control = data.get("cache_control")
    return (control.get("ttl") or "5m") if control else ""


def _plain(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block without breakpoints, its own keys sorted; the order within an input matters."""
    plain = {key: block[key] for key in sorted(block) if key != "cache_control"}
    if isinstance(plain.get("content"), list):
        plain["content"] = [_plain(inner) for inner in plain["content"]]
    return plain


_tokens = lru_cache(maxsize=4096)(count_tokens)


def parts_of(body: Mapping[str, Any]) -> list[RequestPart]:
    """Return the parts of a valid request."""
    out = [part(f"tools.{at}", "tools", tool) for at, tool in enumerate(body.get("tools") or ())]
    out += [part(f"system.{at}", "system", block) for at, block in enumerate(_blocks(body.get("system") or ()))]
    messages = body.get("messages") or ()
    users = [at for at, message in enumerate(messages) if message["role"] == "user"]
    for at, message in enumerate(messages):
        once = message.get("clear_at") == "next_user_message"
        whose = f"{message['role']} for a turn" if once else message["role"]
        cleared = once and at < users[-1]
        for place, block in enumerate(_blocks(message["content"])):
            out.append(part(f"messages.{at}.content.{place}", whose, block, cleared=cleared))
    out[-1] = out[-1]._replace(ttl=out[-1].ttl or _ttl(body))
    return out


def _blocks(content: str | Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class PromptCache:
    """The prefixes of earlier prompts, up to each of their breakpoints."""

    def __init__(self) -> None:
        self._kept: set[str] = set()

    def counts(self, model: str, parts: Sequence[RequestPart], least: int) -> dict[str, Any]:
        """Return the input counts of a `usage`, and store the prompt's prefixes with at least `least` tokens."""
        marks = [at for at, one in enumerate(parts) if one.ttl]
        hashes = list(accumulate((one.text for one in parts), _hash, initial=_hash("", model)))[1:]
        upto = list(accumulate((one.tokens for one in parts), initial=0))
        marks = [at for at in marks if upto[at + 1] >= least]
        read = 0
        for mark in reversed(marks):
            found = (at for at in range(mark, max(mark - LOOKBACK, -1), -1) if hashes[at] in self._kept)
            read = max(read, next(found, -1) + 1)
        written = {"5m": 0, "1h": 0}
        end = read
        for mark in marks:
            if mark >= end:
                written[parts[mark].ttl] += upto[mark + 1] - upto[end]
                end = mark + 1
        self._kept.update(hashes[mark] for mark in marks)
        return {
            "input_tokens": upto[-1] - upto[end],
            "cache_read_input_tokens": upto[read],
            "cache_creation_input_tokens": sum(written.values()),
            "cache_creation": {
                "ephemeral_5m_input_tokens": written["5m"],
                "ephemeral_1h_input_tokens": written["1h"],
            },
        }


def _hash(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


_ID = 8
"""Number of bytes with which a signature refers to the previous thinking block."""
_DIGEST = 32


def signature(before: Sequence[RequestPart], thought: str) -> str:
    """Return the signature of a thinking block after these parts."""
    bound = hashlib.sha256()
    previous = b""
    for one in before:
        if one.thinking:
            previous = _id(one.block["signature"])
        else:
            bound.update(_bytes(one.text) + b"\n")
    return _signed(bound, thought, previous)


def _id(signed: str) -> bytes:
    return hashlib.sha256(signed.encode()).digest()[:_ID]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a model can write a lone surrogate in JSON


def _signed(bound: Any, thought: str, previous: bytes) -> str:
    digest = bound.copy()
    digest.update(previous + _bytes(thought))
    return base64.b64encode(previous + digest.digest()).decode()


def unbound(parts: Sequence[RequestPart]) -> str:
    """Return the path of the first thinking block whose signature does not match everything before it, or "".

    The first thinking blocks may be missing; later ones may not.
    """
    bound = hashlib.sha256()
    previous = b""
    for one in parts:
        if not one.thinking:
            bound.update(_bytes(one.text) + b"\n")
            continue
        signed = one.block["signature"]
        try:
            named = base64.b64decode(signed, validate=True)[:-_DIGEST]
        except ValueError:
            return one.path
        if signed != _signed(bound, one.block["thinking"], named) or (previous and named != previous):
            return one.path
        previous = _id(signed)
    return ""
