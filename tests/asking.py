"""Asking a Messages server with the client: what the tests of the client share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from warm import read_certificates_once

from ctxkernel.agent.client import ModelClient
from ctxkernel.agent.failures import ModelFailure
from ctxkernel.agent.streaming import Response, StreamEvent
from ctxkernel.testing import (
    OVERFLOW,
    Cut,
    End,
    Garbage,
    MessagesServer,
    Stall,
    StreamError,
    answer,
    call,
    error,
    say,
)

MODEL = "claude-sonnet-5-5"
KEY = "sk-ant-api03-neverToBeSeenAnywhere0123456789"
TEXT = "naïve — 😀 日本語 " * 20
AT_ONCE = {"retry-after-ms": "1"}


def body(text: str = "go on", **more: Any) -> bytes:
    request = {
        "model": MODEL,
        "max_tokens": 64,
        "stream": True,
        "messages": [{"role": "user", "content": text}],
        **more,
    }
    return json.dumps(request, separators=(",", ":")).encode()


def client(server: MessagesServer | str, **more: Any) -> ModelClient:
    base_url = server if isinstance(server, str) else server.base_url
    read_certificates_once()
    return ModelClient(**{"model_key": lambda: KEY, "base_url": base_url, **more})


def ask(
    server: MessagesServer | str,
    request: bytes | None = None,
    *,
    on_event: Callable[[StreamEvent], None] = lambda event: None,
    betas: Sequence[str] = (),
    **more: Any,
) -> Response:
    """Send one request with a client of its own."""

    async def once() -> Response:
        made = client(server, **more)
        try:
            return await made.send(request or body(), model=MODEL, betas=betas, on_event=on_event)
        finally:
            await made.aclose()

    return asyncio.run(once())


async def until(holds: Callable[[], object]) -> None:
    """Wait for the server's thread."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  # what is waited for is in another thread
            await asyncio.sleep(0.005)


def failed(server: MessagesServer | str, request: bytes | None = None, **more: Any) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        ask(server, request, **{"max_retries": 0, **more})
    return caught.value


TWO = [say("some text"), call("run", {"a": 1})]
FAULTS: dict[str, tuple[Any, str, str]] = {
    "400": (error(400, "what is this"), "invalid_request", ""),
    "401": (error(401), "authentication", ""),
    "402": (error(402), "permission", ""),
    "403": (error(403), "permission", ""),
    "404": (error(404), "not_found", ""),
    "413": (error(413), "too_large", ""),
    "422": (error(422), "invalid_request", ""),
    "429": (error(429), "rate_limited", ""),
    "500": (error(500), "server_error", ""),
    "503": (error(503), "server_error", ""),
    "504": (error(504), "timeout", ""),
    "529": (error(529), "overloaded", ""),
    "overflow": (error(400, OVERFLOW), "context_overflow", ""),
    "overflow of output": (
        error(400, "input length and `max_tokens` exceed context limit: 9 > 8"),
        "context_overflow",
        "",
    ),
    "cut before the headers": (answer(TWO, fault=Cut("headers")), "cut", ""),
    "cut before the message": (answer(TWO, fault=Cut("start")), "cut", ""),
    "cut in a block": (answer(TWO, chunk=4, fault=Cut("block")), "cut", "some"),
    "cut between blocks": (answer(TWO, fault=Cut("between")), "cut", "some text"),
    "cut after a call": (answer(TWO, fault=Cut("call")), "cut", "some text"),
    "cut before the stop": (answer(TWO, fault=Cut("stop")), "cut", "some text"),
    "end before the message": (answer(TWO, fault=End("start")), "cut", ""),
    "end in a block": (answer(TWO, chunk=4, fault=End("block")), "cut", "some"),
    "end before the stop": (answer(TWO, fault=End("stop")), "cut", "some text"),
    "error before the message": (answer(TWO, fault=StreamError("start")), "stream_error", ""),
    "error in a block": (answer(TWO, chunk=4, fault=StreamError("block")), "stream_error", "some"),
    "no json": (answer(TWO, chunk=4, fault=Garbage("block")), "malformed", "some"),
    "no object": (answer(TWO, chunk=4, fault=Garbage("block", "[1]")), "malformed", "some"),
    "deep": (answer(TWO, chunk=4, fault=Garbage("block", "[" * 200_000)), "malformed", "some"),
    "stall before the headers": (answer(TWO, fault=Stall("headers", 60)), "timeout", ""),
    "stall before the message": (answer(TWO, fault=Stall("start", 60)), "timeout", ""),
    "stall in a block": (answer(TWO, chunk=4, fault=Stall("block", 60)), "timeout", "some"),
}
