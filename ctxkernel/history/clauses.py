"""The rules of a Messages request, one function each, which yields the reasons for a refusal.

Rule 1: a function receives the request as parsed by `history.request`, and the model's capabilities. Values of a wrong
        type are not passed to it, so it raises nothing for a malformed body.
Rule 2: its docstring states the rule. Quoted messages are those of the API, from its answers or its documentation.
Rule 3: linear in the size of the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ctxkernel.core.image_headers import pixels
from ctxkernel.history.capabilities import Capabilities
from ctxkernel.history.request import Fault, MessagesRequest, RequestBlock, inner, listed, mapping, text_fault

MAX_BYTES = 32 * 1000 * 1000
MAX_MESSAGES = 100_000
MAX_IMAGE_BASE64 = 10 * 1000 * 1000
MAX_IMAGE_PIXELS = 8000
MANY_IMAGES = 20
MAX_PIXELS_OF_MANY = 2000
"""Maximal pixels on each side if a request has more than `MANY_IMAGES` images."""
MAX_BREAKPOINTS = 4
MIN_THINKING = 1024

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_THINKING = ("thinking", "redacted_thinking")

# Fields, and the beginnings of the names of the betas that allow them.
_GATED_TOP = (
    ("context_management", ("context-management-", "compact-")),
    ("compaction", ("compact-",)),
    ("mcp_servers", ("mcp-client-",)),
    ("fallbacks", ("server-side-fallback-",)),
    ("fallback_credit_token", ("fallback-credit-",)),
    ("thread", ("message-threads-",)),
)
_GATED_MESSAGE = (
    ("clear_at", ("mid-conversation-system-clear-at-",)),
    ("output_config", ("mid-conversation-output-config-",)),
)
_GATED_THINKING = (("block_binding", ("thinking-binding-controls-",)),)

Faults = Iterator[Fault]
Rule = Callable[[MessagesRequest, Capabilities], Faults]


# -- the body as a whole ---------------------------------------------------------------------------


def shape(r: MessagesRequest, c: Capabilities) -> Faults:
    """Fields have the right types, and blocks occur only in allowed roles."""
    yield from r.shape


def json_values(r: MessagesRequest, c: Capabilities) -> Faults:
    """Everything is JSON: string keys, finite numbers, no bytes, bounded depth."""
    yield from r.values


def surrogates(r: MessagesRequest, c: Capabilities) -> Faults:
    """No string contains a lone surrogate; the SDK would fail before the API."""
    yield from r.surrogates


def size(r: MessagesRequest, c: Capabilities) -> Faults:
    """At most 32 MB and 100,000 messages."""
    if r.size() > MAX_BYTES:
        yield Fault("", f"request_too_large: more than {MAX_BYTES // 1_000_000} MB", "leave out images or old outputs")
    if len(r.messages) > MAX_MESSAGES:
        yield Fault("messages", f"more than {MAX_MESSAGES:,} messages", "condense the history")


def images(r: MessagesRequest, c: Capabilities) -> Faults:
    """The number, bytes and pixels of images are limited."""
    found = [block for block in r.blocks() if block.type == "image"]
    if len(found) > c.max_images:
        path = found[c.max_images].path
        yield Fault(path, f"{len(found)} images; this model takes {c.max_images}", "leave out the oldest images")
    most = MAX_PIXELS_OF_MANY if len(found) > MANY_IMAGES else MAX_IMAGE_PIXELS
    for block in found:
        source = mapping(block.data.get("source")) or {}
        data = source.get("data")
        if not isinstance(data, str):
            continue
        if len(data) > MAX_IMAGE_BASE64:
            yield Fault(f"{block.path}.source.data", "image exceeds 10 MB of base64", "scale the image down")
        extent = pixels(data)
        if extent is not None and max(extent) > most:
            message = f"image of {extent[0]} x {extent[1]} pixels; at most {most} a side with {len(found)} images"
            yield Fault(f"{block.path}.source.data", message, "scale the image down")


def gated_fields(r: MessagesRequest, c: Capabilities) -> Faults:
    """A field of a beta requires that beta in the request's header."""
    places: list[tuple[str, Mapping[str, Any], Sequence[tuple[str, tuple[str, ...]]]]] = [
        ("", r.body, _GATED_TOP),
        *((f"{message.path}.", message.data, _GATED_MESSAGE) for message in r.messages),
    ]
    if r.thinking is not None:
        places.append(("thinking.", r.thinking, _GATED_THINKING))
    for where, data, fields in places:
        for name, betas in fields:
            if name in data and not any(beta.startswith(betas) for beta in c.betas):
                fix = f"send the beta {betas[0]}… or leave `{name}` out"
                yield Fault(f"{where}{name}", f"{where}{name}: Extra inputs are not permitted", fix)


def sampling(r: MessagesRequest, c: Capabilities) -> Faults:
    """Newer models refuse the sampling parameters."""
    if not c.sampling:
        for name in ("temperature", "top_p", "top_k"):
            if name in r.body:
                yield Fault(name, f"`{name}` is not supported by this model", f"leave `{name}` out")


# -- roles -----------------------------------------------------------------------------------------


def first_role(r: MessagesRequest, c: Capabilities) -> Faults:
    """The first message is the user's."""
    if r.messages and r.messages[0].role != "user":
        message = 'first message must use the "user" role'
        yield Fault(f"{r.messages[0].path}.role", message, "begin with a user message")


def alternation(r: MessagesRequest, c: Capabilities) -> Faults:
    """Roles alternate, unless the server merges messages of one role."""
    if c.merges_roles:
        return
    for before, message in zip(r.messages, r.messages[1:], strict=False):
        if before.role == message.role:
            yield Fault(f"{message.path}.role", f"roles must alternate; two {message.role} in a row", "merge the two")


def prefill(r: MessagesRequest, c: Capabilities) -> Faults:
    """Newer models refuse to continue an assistant message."""
    if r.messages and r.messages[-1].role == "assistant" and not c.prefill:
        message = "This model does not support assistant message prefill."
        message += " The conversation must end with a user message."
        yield Fault(r.messages[-1].path, message, "end with a user message")


def trailing_space(r: MessagesRequest, c: Capabilities) -> Faults:
    """A prefill does not end in white space."""
    if c.prefill and r.messages and r.messages[-1].role == "assistant" and r.messages[-1].blocks:
        last = r.messages[-1].blocks[-1]
        if last.type == "text" and last.data["text"] != last.data["text"].rstrip():
            yield Fault(last.path, "final assistant content cannot end with trailing whitespace", "strip the text")


def system_place(r: MessagesRequest, c: Capabilities) -> Faults:
    """A system message follows a user message, and precedes an assistant message or is the last one."""
    for index, message in enumerate(r.messages):
        if message.role != "system":
            if "clear_at" in message.data:
                text = f"{message.path}.clear_at: Extra inputs are not permitted"
                yield Fault(f"{message.path}.clear_at", text, "only a system message can be cleared")
            continue
        if not c.mid_system:
            yield Fault(f"{message.path}.role", "role 'system' is not supported on this model", "use user content")
            continue
        before = r.messages[index - 1] if index else None
        last = before.blocks[-1] if before is not None and before.blocks else None
        # A server tool's result at the end of an assistant message may also precede it.
        server = last is not None and last.type.endswith("_tool_result")
        if before is None or (before.role != "user" and not (before.role == "assistant" and server)):
            yield Fault(message.path, "a system message must follow a user message", "move it after a user message")
        if index + 1 < len(r.messages) and r.messages[index + 1].role != "assistant":
            fix = "merge it with the next one, or move it to the end"
            yield Fault(message.path, "a system message must precede an assistant message or end the array", fix)


# -- texts -----------------------------------------------------------------------------------------


def blank_text(r: MessagesRequest, c: Capabilities) -> Faults:
    """No text block is empty or blank, and every message has content."""
    for block in [*r.system, *r.blocks()]:
        text = block.data.get("text") if block.type == "text" else None
        if isinstance(text, str) and not text.strip():
            yield Fault(block.path, text_fault(text), "leave the block out, or say `(empty)`")
    for message in r.messages:
        if not message.blocks and not message.data.get("content"):
            yield Fault(f"{message.path}.content", "all messages must have non-empty content", "leave the message out")


# -- calls and results -----------------------------------------------------------------------------


def unanswered_calls(r: MessagesRequest, c: Capabilities) -> Faults:
    """Every call of the model is answered in the next user turn."""
    for index, turn in enumerate(r.turns):
        if turn.role != "assistant":
            continue
        following = r.turns[index + 1].blocks if index + 1 < len(r.turns) else ()
        answered = {block.data["tool_use_id"] for block in following if block.type == "tool_result"}
        for block in turn.blocks:
            if block.type == "tool_use" and block.data["id"] not in answered:
                message = "tool_use ids were found without tool_result blocks immediately after: "
                fix = "add a tool_result (say: canceled) to the next user message"
                yield Fault(block.path, message + block.data["id"][:80], fix)


def results_first(r: MessagesRequest, c: Capabilities) -> Faults:
    """Results come before all other content of the user."""
    for turn in r.turns:
        if turn.role != "user":
            continue
        ended = False
        for block in turn.blocks:
            if block.type != "tool_result":
                ended = True
            elif ended:
                yield Fault(block.path, "tool_result blocks must come first in a user message", "move it to the front")


def orphan_results(r: MessagesRequest, c: Capabilities) -> Faults:
    """A result answers a call of the previous turn."""
    for index, turn in enumerate(r.turns):
        before = r.turns[index - 1].blocks if index else ()
        calls = {block.data["id"] for block in before if block.type == "tool_use"}
        for block in turn.blocks:
            if block.type == "tool_result" and block.data["tool_use_id"] not in calls:
                message = f"unexpected tool_use_id found in tool_result blocks: {block.data['tool_use_id'][:80]}"
                yield Fault(block.path, message, "leave the result out, or restore its call")


def single_results(r: MessagesRequest, c: Capabilities) -> Faults:
    """A call has one result."""
    for turn in r.turns:
        seen: set[str] = set()
        for block in turn.blocks:
            if block.type == "tool_result":
                if block.data["tool_use_id"] in seen:
                    yield Fault(block.path, "each tool_use must have a single result", "keep the first result")
                seen.add(block.data["tool_use_id"])


def unique_calls(r: MessagesRequest, c: Capabilities) -> Faults:
    """Call ids are unique in the whole request."""
    seen: set[str] = set()
    for block in r.blocks():
        if block.type == "tool_use":
            if block.data["id"] in seen:
                yield Fault(block.path, "tool_use ids must be unique", "rename the second call and its result")
            seen.add(block.data["id"])


def call_ids(r: MessagesRequest, c: Capabilities) -> Faults:
    """Call ids consist of letters, digits, _ and -."""
    for block in r.blocks():
        name = {"tool_use": "id", "tool_result": "tool_use_id"}.get(block.type)
        if name and not _ID.fullmatch(str(block.data.get(name))):
            message = f"{name}: String should match pattern '^[a-zA-Z0-9_-]+$'"
            yield Fault(f"{block.path}.{name}", message, "replace other characters with _ in call and result")


def tool_names(r: MessagesRequest, c: Capabilities) -> Faults:
    """Tool names are unique and consist of 1 to 64 letters, digits, _ and -."""
    seen: set[str] = set()
    # The server's own tools (with a type) may have no name, and MCP tool sets have none.
    for block in r.tools:
        name = block.data.get("name")
        if name is None and block.type != "custom":
            continue
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            yield Fault(f"{block.path}.name", "String should match pattern '^[a-zA-Z0-9_-]{1,64}$'", "rename the tool")
        elif name in seen:
            yield Fault(f"{block.path}.name", "Tool names must be unique.", "leave the second tool out")
        else:
            seen.add(name)
    for block in r.blocks():
        if block.type == "tool_use" and not _TOOL_NAME.fullmatch(block.data["name"]):
            yield Fault(f"{block.path}.name", "String should match pattern '^[a-zA-Z0-9_-]{1,64}$'", "rename the call")


def error_results(r: MessagesRequest, c: Capabilities) -> Faults:
    """An error result consists of text only."""
    for block in r.blocks():
        if block.type == "tool_result" and block.data.get("is_error") and any(p.type != "text" for p in inner(block)):
            yield Fault(block.path, "all content must be type text if is_error is true", "leave the image out")


def forced_choice(r: MessagesRequest, c: Capabilities) -> Faults:
    """Newer models refuse a forced tool choice."""
    kind = r.tool_choice.get("type") if r.tool_choice else None
    if kind in ("any", "tool") and not c.forced_tool_choice:
        yield Fault("tool_choice.type", f"tool_choice {kind} is not supported by this model", "use auto")


# -- thinking --------------------------------------------------------------------------------------


def thinking_signed(r: MessagesRequest, c: Capabilities) -> Faults:
    """A thinking block has its signature. (The body does not show whether it was changed.)"""
    message = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified"
    for block in r.blocks():
        proof = {"thinking": "signature", "redacted_thinking": "data"}.get(block.type)
        if proof and not (isinstance(block.data.get(proof), str) and block.data[proof]):
            yield Fault(f"{block.path}.{proof}", message, "send the block as it came, or leave it out")


def thinking_last(r: MessagesRequest, c: Capabilities) -> Faults:
    """The last block of a final assistant message is not thinking."""
    if r.messages and r.messages[-1].role == "assistant" and r.messages[-1].blocks:
        last = r.messages[-1].blocks[-1]
        if last.type in _THINKING:
            yield Fault(last.path, "The final block in an assistant message cannot be thinking.", "leave it out")


def thinking_budget(r: MessagesRequest, c: Capabilities) -> Faults:
    """The budget of manual thinking is ≥ 1024 and below max_tokens."""
    if r.thinking is None or r.thinking.get("type") != "enabled":
        return
    budget, limit = r.thinking.get("budget_tokens"), r.body.get("max_tokens")
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < MIN_THINKING:
        yield Fault("thinking.budget_tokens", "Input should be greater than or equal to 1024", "give 1024 or more")
    elif isinstance(limit, int) and budget >= limit:
        message = "`max_tokens` must be greater than `thinking.budget_tokens`"
        yield Fault("thinking.budget_tokens", message, "raise max_tokens")


def thinking_first(r: MessagesRequest, c: Capabilities) -> Faults:
    """With manual thinking on, an open tool loop begins with its thinking.

    This applies to the loop, not to each of its messages: such a model thinks once, then calls several times.
    """
    if r.thinking is None or r.thinking.get("type") != "enabled":
        return
    turns = [turn for turn in r.turns if turn.role != "system"]
    starts: list[RequestBlock] = []
    while len(turns) > 1 and turns[-1].role == "user" and any(b.type == "tool_result" for b in turns[-1].blocks):
        turns.pop()
        turn = turns.pop()
        if any(block.type == "tool_use" for block in turn.blocks):
            starts.append(turn.blocks[0])
    if starts and not any(block.type in _THINKING for block in starts):
        message = f"Expected `thinking` or `redacted_thinking`, but found `{starts[0].type}`"
        yield Fault(starts[0].path, message, "send the thinking block that came first, or turn thinking off")


def thinking_type(r: MessagesRequest, c: Capabilities) -> Faults:
    """The model supports this kind of thinking at this effort."""
    kind = r.thinking.get("type") if r.thinking is not None else None
    if r.thinking is not None and (not isinstance(kind, str) or kind not in c.thinking):
        fix = f"use {' or '.join(sorted(c.thinking))}" if c.thinking else "leave `thinking` out"
        yield Fault("thinking.type", f'"thinking.type.{str(kind)[:40]}" is not supported for this model.', fix)
    effort = (mapping(r.body.get("output_config")) or {}).get("effort")
    if kind == "disabled" and c.disabled_up_to_high and effort not in (None, "low", "medium", "high"):
        yield Fault("thinking.type", "thinking cannot be disabled at this effort", "use adaptive, or effort high")


# -- prompt cache ----------------------------------------------------------------------------------


def _breakpoints(r: MessagesRequest) -> Iterator[tuple[RequestBlock, str]]:
    """Yield the blocks with a cache breakpoint and their time to live, in hashing order."""
    # The content of a result is hashed before the result.
    content = (part for m in r.messages for block in m.blocks for part in (*inner(block), block))
    for block in (*r.tools, *r.system, *content):
        control = mapping(block.data.get("cache_control"))
        if control is not None:
            yield block, str(control.get("ttl") or "5m")
    top = mapping(r.body.get("cache_control"))
    if top is not None:
        yield RequestBlock("", "automatic", {}), str(top.get("ttl") or "5m")


def cache_count(r: MessagesRequest, c: Capabilities) -> Faults:
    """There are at most four breakpoints, including the automatic one of the top level."""
    found = list(_breakpoints(r))
    if len(found) > MAX_BREAKPOINTS:
        message = f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(found)}."
        yield Fault(found[MAX_BREAKPOINTS][0].path, message, "keep the system's and the last ones")


def cache_ttl(r: MessagesRequest, c: Capabilities) -> Faults:
    """A breakpoint of one hour does not follow one of five minutes."""
    short = False
    for block, ttl in _breakpoints(r):
        if ttl not in ("5m", "1h"):
            yield Fault(f"{block.path}.cache_control.ttl", "Input should be '5m' or '1h'", "use 5m or 1h")
        elif ttl == "1h" and short:
            message = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
            yield Fault(f"{block.path}.cache_control", message, "give the earlier ones 1h, or this one 5m")
        short = short or ttl == "5m"


def cache_target(r: MessagesRequest, c: Capabilities) -> Faults:
    """No breakpoint is on a thinking block."""
    for block, _ in _breakpoints(r):
        if block.type in _THINKING:
            message = f"cache_control: Extra inputs are not permitted on `{block.type}` blocks"
            yield Fault(f"{block.path}.cache_control", message, "put it on the block before")


def context_edits(r: MessagesRequest, c: Capabilities) -> Faults:
    """The thinking edit is the first of the server's context edits."""
    management = mapping(r.body.get("context_management")) or {}
    for index, edit in enumerate(listed(management.get("edits")) or ()):
        kind = (mapping(edit) or {}).get("type")
        if index and isinstance(kind, str) and kind.startswith("clear_thinking"):
            path = f"context_management.edits[{index}]"
            yield Fault(path, f"the `{kind[:40]}` edit must come first", "move it to the front")
