"""The client of the Messages API: bytes in, events as they arrive, then a complete answer or one failure.

Rule 1: the projection's own bytes are sent, so that the receipt is that of the wire; the last check reads them at every
        attempt.
Rule 2: a request is sent again only before its answer began, so that nothing is shown twice.
Rule 3: every fault is a ModelFailure, except a cancellation and exceptions of `on_event`.
Rule 4: the key is in a header and nowhere else: neither in a failure's text nor in a chained exception.
Rule 5: one request at a time. Connections stay open between the requests of one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ctxkernel.agent.failures import KINDS, FailureKind, ModelFailure, failure_kind, wait_of
from ctxkernel.agent.keys import ApiKey
from ctxkernel.agent.streaming import Assembly, BadEvent, Response, Retrying, StreamEvent, UsageReport

if TYPE_CHECKING:
    from anthropic import APIStatusError, AsyncAnthropic, AsyncStream

API = "https://api.anthropic.com"
TIMEOUT = 600.0
"""Seconds without a byte: a local server sends none while it reads a long prompt."""
CONNECT = 5.0
"""Seconds to establish a connection."""
LONGEST_WAIT = 60.0
"""Most seconds to wait for a server that says when to retry; after a longer time a person decides."""
_FIRST_WAIT, _LAST_WAIT = 0.5, 8.0
_JITTER = random.Random()  # noqa: S311
"""Not the generator behind the functions of `random`: that one is the user's."""
_PLACEHOLDER = "local"
"""Sent without a key: a local server needs none, but the SDK does."""
_REST = 0.5
"""Seconds to wait for the end of a response after its message, so that the connection can be reused."""
_END: Final = object()

T = TypeVar("T")


class ModelClient:
    """Sends requests to the model at `base_url`, or to the API of the Claude models if that is None.

    `model_key` returns the key, at each request. `timeout` is in seconds without a byte.
    """

    def __init__(
        self,
        *,
        model_key: Callable[[], str | None],
        base_url: str | None = None,
        max_retries: int = 2,
        timeout: float = TIMEOUT,
    ) -> None:
        self._model_key = model_key
        self._base_url = base_url
        self._max_retries = max_retries
        self._timeout = timeout
        self._answer = Assembly()
        self._key = ApiKey()
        self._made: tuple[asyncio.AbstractEventLoop, ApiKey, AsyncAnthropic] | None = None
        self._closed = False

    @property
    def partial_text(self) -> str:
        """The text of the newest answer until now."""
        return self._answer.text

    async def send(
        self,
        body: bytes,
        *,
        model: str,
        betas: Iterable[str] = (),
        on_event: Callable[[StreamEvent], None],
        on_usage: Callable[[UsageReport], None] = lambda report: None,
    ) -> Response:
        """Send the bytes of a request, call `on_event` for each event, and return the complete answer.

        `on_usage` is called when an attempt is sent, and whenever the server gives token counts. `model` is for the
        text of a failure. Raises ModelFailure.
        """
        started = time.monotonic()
        first: list[float] = []

        def report(event: StreamEvent) -> None:
            if not first:
                first.append(time.monotonic() - started)
            on_event(event)

        headers = {"content-type": "application/json"}
        if named := ",".join(betas):
            headers["anthropic-beta"] = named
        self._answer = Assembly()
        client = await self._client(model)
        for attempt in range(1, self._max_retries + 2):
            self._answer = Assembly()
            outcome = await self._attempt(client, body, headers, report, on_usage, model)
            if not isinstance(outcome, ModelFailure):
                answer = self._answer
                return Response(
                    llm_response_id=answer.id,
                    request_id=outcome,
                    model=answer.model,
                    blocks=answer.blocks,
                    stop_reason=answer.stop_reason,
                    usage=answer.usage,
                    seconds=time.monotonic() - started,
                    first_token_seconds=first[0] if first else None,
                    unreadable=answer.unreadable,
                )
            seconds = _pause(attempt) if outcome.wait is None else outcome.wait
            # After, or before, such a long wait a person decides.
            late = outcome.kind in ("timeout", "interrupted") or seconds > LONGEST_WAIT
            if not outcome.retryable or self._answer.started or late or attempt > self._max_retries:
                raise outcome
            on_event(Retrying(attempt, KINDS[outcome.kind].what, seconds))
            await asyncio.sleep(seconds)
        raise AssertionError("the last attempt returns or raises")

    async def aclose(self) -> None:
        """Close the connections. A running request fails as interrupted."""
        self._closed = True
        made, self._made = self._made, None
        if made is not None and made[0] is asyncio.get_running_loop():  # a closed loop has closed its own
            await made[2].close()

    async def _client(self, model: str) -> AsyncAnthropic:
        """Return the SDK's client for this event loop and the key as it is now."""
        key = ApiKey(self._model_key() or "")
        if not key and self._base_url is None:
            raise ModelFailure("no_key", model=model)
        if not (key.isascii() and key.isprintable()):
            raise ModelFailure("authentication", "it has characters that no key has", model=model)
        loop = asyncio.get_running_loop()
        if self._made is not None and self._made[:2] == (loop, key):
            return self._made[2]
        if self._made is not None and self._made[0] is loop:
            await self._made[2].close()
        # Imported late, since the SDK takes seconds and most cells ask no model; in a thread, so that a cancellation
        # need not wait.
        await asyncio.to_thread(importlib.import_module, "ctxkernel.agent.middleware")
        import anthropic

        from ctxkernel.agent.middleware import RequestCheck

        made = anthropic.AsyncAnthropic(
            api_key=key or _PLACEHOLDER,
            base_url=self._base_url or API,
            max_retries=0,  # ours reports each retry, and stops when an answer has begun
            timeout=anthropic.Timeout(self._timeout, connect=min(CONNECT, self._timeout)),
            middleware=[RequestCheck()],
            # A request must not go to an address that the user did not name.
            http_client=anthropic.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        self._made, self._key, self._closed = (loop, key, made), key, False
        return made

    async def _attempt(
        self,
        client: AsyncAnthropic,
        body: bytes,
        headers: dict[str, str],
        on_event: Callable[[StreamEvent], None],
        on_usage: Callable[[UsageReport], None],
        model: str,
    ) -> ModelFailure | str | None:
        """Send once. Return the failure, or the request's id."""
        from anthropic import AsyncStream

        answer = self._answer
        on_usage(UsageReport({}))  # from here on the server may work on it
        # As plain JSON: the types of the SDK drop and add fields.
        sent = client.post(
            "/v1/messages",
            cast_to=object,
            content=body,
            options={"headers": headers},
            stream=True,
            stream_cls=AsyncStream[object],
        )
        stream = await self._caught(sent, model)
        if isinstance(stream, ModelFailure):
            return stream
        request_id = stream.response.headers.get("request-id")
        try:
            while not answer.complete:
                event = await self._caught(anext(stream, _END), model, request_id)
                if isinstance(event, ModelFailure):
                    return event
                if event is _END:
                    return self._too_early(stream, model, request_id)
                counts = answer.usage
                try:
                    shown = answer.take(event)
                except BadEvent as fault:
                    return self._failed("malformed", str(fault), model, request_id)
                if answer.usage is not counts:
                    on_usage(UsageReport(answer.usage, final=answer.stop_reason is not None))
                if shown is not None:
                    on_event(shown)
            with contextlib.suppress(Exception):  # the answer is complete; this only lets the connection be used again
                async with asyncio.timeout(_REST):
                    await anext(stream, _END)
            return request_id
        finally:
            with contextlib.suppress(Exception):  # the connection may be closed already
                await stream.close()

    def _too_early(self, stream: AsyncStream[object], model: str, request_id: str | None) -> ModelFailure:
        """Return the failure of a response that ended before its message."""
        kind = stream.response.headers.get("content-type", "")
        if not self._answer.started and not kind.startswith("text/event-stream"):
            return self._failed("malformed", f"its type is {kind or 'not given'}", model, request_id)
        return self._failed("cut", "", model, request_id)

    async def _caught(self, awaited: Awaitable[T], model: str, request_id: str | None = None) -> T | ModelFailure:
        """Return the awaited value, or its failure: as a value, since a raised exception would be chained."""
        try:
            return await awaited
        except Exception as fault:  # any exception of SDK and transport
            return self._failure(fault, model, request_id)

    def _failure(self, fault: Exception, model: str, request_id: str | None) -> ModelFailure:
        import anthropic
        import httpx2

        from ctxkernel.agent.middleware import RequestRefused

        if self._closed:
            return self._failed("interrupted", "", model, request_id)
        if isinstance(fault, RequestRefused):
            return self._failed("refused_by_check", str(fault), "", None)
        if isinstance(fault, anthropic.APIStatusError):
            return self._refused(fault, model, request_id)
        # The SDK wraps exceptions of the transport only before the response's head.
        cause = fault.__cause__ if isinstance(fault, anthropic.APIConnectionError) and fault.__cause__ else fault
        if isinstance(cause, httpx2.TimeoutException) and not isinstance(cause, httpx2.ConnectTimeout):
            return self._failed("timeout", f"for {self._timeout:g} s", model, request_id)
        if isinstance(cause, httpx2.ReadError | httpx2.WriteError | httpx2.RemoteProtocolError | httpx2.CloseError):
            return self._failed("cut", str(cause), model, request_id)
        if isinstance(fault, anthropic.APIConnectionError):
            return self._failed("connection", str(cause) or type(cause).__name__, model, request_id)
        return self._failed("malformed", f"{type(cause).__name__}: {cause}", model, request_id)

    def _refused(self, fault: APIStatusError, model: str, request_id: str | None) -> ModelFailure:
        """Return the failure for a refusal by the server, or an error within its answer."""
        match fault.body:  # earlier clients have no `api_message`
            case {"error": {"message": str(message)}}:
                pass
            case _:
                message = fault.message
        if fault.status_code < 300:
            return self._failed(
                "stream_error", f"{fault.type}: {message}" if fault.type else message, model, request_id
            )
        headers = fault.response.headers
        if fault.status_code < 400:
            message = f"it redirects to {headers.get('location')}"
        kind = failure_kind(fault.status_code, message)
        asked = {"true": True, "false": False}.get(headers.get("x-should-retry", ""))
        text = f"{fault.status_code}: {message}"
        return self._failed(kind, text, model, fault.request_id, retryable=asked, wait=wait_of(headers))

    def _failed(self, kind: FailureKind, message: str, model: str, request_id: str | None, **more: Any) -> ModelFailure:
        return ModelFailure(
            kind, self._key.scrub(message), model=model, partial_text=self.partial_text, request_id=request_id, **more
        )


def _pause(attempt: int) -> float:
    """Return the seconds before the next attempt if the server names none: exponential, with jitter."""
    return min(_FIRST_WAIT * 2 ** (attempt - 1), _LAST_WAIT) * (1 - _JITTER.random() / 4)
