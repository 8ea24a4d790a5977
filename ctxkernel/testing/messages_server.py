"""A strict Messages server on this machine, for tests: the real client and the real wire, without a model.

    with MessagesServer([say("yes"), error(429), answer(call("run", {"code": "1"}), fault=Cut("block"))]) as server:
        ...  # a client at server.base_url, with any key
    assert not server.faults

Rule 1: the server refuses what the API refuses: it uses the rules of the client's last check, and, for models with
        bound thinking, refuses a thinking block that returns after a changed prompt.
Rule 2: anything that the test did not plan (a request after the end of the script, a fault at a place that no answer
        reaches) is a line in `faults`. A refused request is no fault, and takes no item of the script.
Rule 3: keys are not stored.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.clauses import MAX_BYTES
from ctxkernel.history.request import mapping
from ctxkernel.history.rules import RuleReport, check
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.testing import answers
from ctxkernel.testing.answers import Answer, ContentBlock, CutPlace, HttpError, Script, error
from ctxkernel.testing.remembering import PromptCache, RequestPart, part, parts_of, signature, unbound

_SECRET = ("authorization", "x-api-key", "cookie")
_UNBOUND = (
    "{path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation: "
    "send back what was before it unchanged, or leave it out"
)


class Sent(NamedTuple):
    """An event of a stream that was written."""

    at: float
    """`time.monotonic()` right before."""
    type: str


@dataclass(slots=True)
class Received:
    """One request and its result."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case, without the headers of keys."""
    raw: bytes
    port: int
    """The port of the client: the same for all requests over one connection."""
    body: Any = None
    """The JSON, or None."""
    report: RuleReport | None = None
    """The result of the rules, if they were checked."""
    status: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The token counts of the answer."""
    sent: list[Sent] = field(default_factory=list[Sent])
    left: float | None = None
    """`time.monotonic()` when the client was found to have disconnected before the end."""


class _Gone(Exception):
    """The client has closed the connection."""


class _Closed(Exception):
    """The script closes the connection, or ends the response."""


class MessagesServer:
    """Answers `POST /v1/messages` and `/v1/messages/count_tokens` at `base_url` from a script. Use it in a `with`.

    `script` is a list, from which each valid request takes the first item, or a function from the request's body to an
    item. `answers.py` defines the items.
    """

    def __init__(self, script: Script = ()) -> None:
        self.script = script if callable(script) else list(script)
        """A function, or the remaining list; a test may append to it."""
        self.requests: list[Received] = []
        self.faults: list[str] = []
        """Anything that the test did not plan; empty at the end of a good test."""
        self.base_url = ""
        self._cache = PromptCache()
        self._lock = threading.Lock()
        self.connections: set[socket.socket] = set()
        self._made = 0

    def __enter__(self) -> Self:
        self._http = http = _Http(("127.0.0.1", 0), type("Handler", (_Handler,), {"messages": self}))
        self.base_url = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True, name="messages-server").start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()
        # End handlers that stall or wait for another request.
        for connection in tuple(self.connections):
            _shut(connection)

    def _decide(self, seen: Received, *, has_key: bool) -> tuple[Answer | HttpError | None, list[RequestPart]]:
        """Return the answer to a request, or None to count its tokens; and its parts."""
        counting = seen.path == "/v1/messages/count_tokens"
        if seen.path != "/v1/messages" and not counting:
            return error(404), []
        if not has_key:
            return error(401, "x-api-key header is required"), []
        if len(seen.raw) > MAX_BYTES:
            return error(413), []
        try:
            seen.body = json.loads(seen.raw)
        except (ValueError, RecursionError) as fault:
            return error(400, f"The request body is not valid JSON: {fault}"), []
        given = mapping(seen.body) or {}
        body = {**given, "max_tokens": 1} if counting and given else seen.body
        betas = [beta.strip() for beta in seen.headers.get("anthropic-beta", "").split(",")]
        row = capabilities_for(str(given.get("model")), betas=filter(None, betas))
        seen.report = check(body, row)
        if not seen.report.ok:
            first = seen.report.violations[0]
            return error(400, f"{first.path}: {first.message}".removeprefix(": ")), []
        parts = parts_of(body)
        path = unbound(parts) if row.bound_thinking else ""
        if path:
            return error(400, _UNBOUND.format(path=path)), []
        return (None if counting else self._scripted(seen)), parts

    def _scripted(self, seen: Received) -> Answer | HttpError:
        if callable(self.script):
            return answers.as_answer(self.script(seen.body))
        if self.script:
            return answers.as_answer(self.script.pop(0))
        self.faults.append(f"request {len(self.requests)} came after the script's last answer")
        return error(500, "the script is at its end", headers={"x-should-retry": "false"})

    def _message(self, seen: Received, made: Answer, parts: list[RequestPart]) -> tuple[Answer, dict[str, Any]]:
        """Return an answer with ids and signatures in its blocks, and its message."""
        model = seen.body["model"]
        blocks: list[ContentBlock] = []
        before = list(parts)
        for block in made.blocks:
            if block["type"] == "thinking":
                block = {**block, "signature": signature(before, block["thinking"])}
            elif block["type"] == "tool_use" and not block["id"]:
                block = {**block, "id": f"toolu_{self._number():04}"}
            before.append(part("", "assistant", answers.whole(block)))
            blocks.append(block)
        usage = {
            **self._cache.counts(model, parts, capabilities_for(model).min_cache_tokens),
            "output_tokens": sum(count_tokens(json.dumps(block)) for block in blocks),
            **made.usage,
        }
        message = {
            "id": f"msg_{self._number():04}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [answers.whole(block) for block in blocks],
            "stop_reason": made.stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }
        seen.usage = usage
        return replace(made, blocks=tuple(blocks)), message

    def _number(self) -> int:
        self._made += 1
        return self._made

    def answer_request(self, http: _Handler) -> None:
        """Answer one request."""
        headers = {name.lower(): value for name, value in http.headers.items()}
        raw = http.rfile.read(int(headers.get("content-length", 0)))
        has_key = bool(headers.get("authorization") or headers.get("x-api-key"))
        kept = {name: value for name, value in headers.items() if name not in _SECRET}
        http.seen = seen = Received(urlsplit(http.path).path.rstrip("/"), kept, raw, http.client_address[1])
        with self._lock:
            self.requests.append(seen)
            http.request_id = f"req_{len(self.requests):04}"
            message: dict[str, Any] = {}
            try:
                made, parts = self._decide(seen, has_key=has_key)
                if isinstance(made, Answer):
                    made, message = self._message(seen, made, parts)
                elif made is None:
                    message = {"input_tokens": sum(one.tokens for one in parts)}
            except Exception as fault:  # in the test's own script
                self.faults.append(f"{http.request_id}: {type(fault).__name__}: {fault}")
                made = error(500, "the script failed", headers={"x-should-retry": "false"})
        try:
            if isinstance(made, Answer):
                self._send(http, made, message)
            elif made is None:
                http.send_json(200, message)
            else:
                http.send_json(made.status, http.error_body(made.type, made.message), made.headers)
        except (_Gone, OSError):
            seen.left = time.monotonic()
            http.close_connection = True
        except _Closed:
            http.close_connection = True

    def _send(self, http: _Handler, made: Answer, message: Mapping[str, Any]) -> None:
        fault = made.fault
        streamed = bool(http.seen.body.get("stream"))

        def reached(place: CutPlace) -> None:
            nonlocal fault
            if fault is not None and fault.at == place:
                now, fault = fault, None
                http.fail(now)

        reached("headers")
        if streamed:
            http.packet = made.packet
            http.send_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
            for step in answers.events(made, message):
                if isinstance(step, str):
                    reached(step)
                    continue
                if made.delay and step["type"] == "content_block_delta":
                    http.pause(made.delay)
                http.send_event(step["type"], json.dumps(step, ensure_ascii=False))
        # Before the end is written, because then the test may read the faults or send the next request.
        if fault is not None:
            self.faults.append(f"the answer to {http.request_id} never came to `{fault.at}`")
        if streamed:
            http.send_chunk(b"")
        else:
            http.send_json(200, message)


class _Http(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnected."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection: reads its requests and writes the answers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    messages: MessagesServer
    seen: Received
    request_id = ""
    packet = 0

    def setup(self) -> None:
        super().setup()
        self.messages.connections.add(self.connection)

    def finish(self) -> None:
        self.messages.connections.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:
        self.messages.answer_request(self)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to the test's output."""

    def error_body(self, kind: str, message: str) -> dict[str, Any]:
        """Return the body of an error."""
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": self.request_id}

    def send_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Write the head of a response."""
        self.seen.status = status
        self.send_response(status)
        for name, value in {"request-id": self.request_id, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_json(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Write a whole response."""
        raw = json.dumps(body).encode()
        self.send_head(status, {"content-type": "application/json", "content-length": str(len(raw)), **(headers or {})})
        self.wfile.write(raw)

    def send_chunk(self, raw: bytes) -> None:
        """Write a chunk of a stream; an empty one ends it."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(raw), raw))

    def send_event(self, kind: str, data: str) -> None:
        """Write an event of a stream."""
        raw = f"event: {kind}\ndata: {data}\n\n".encode()
        self.seen.sent.append(Sent(time.monotonic(), kind))
        step = self.packet or len(raw)
        for start in range(0, len(raw), step):
            self.send_chunk(raw[start : start + step])

    def fail(self, fault: answers.StreamFault) -> None:
        """Do what the fault says."""
        match fault:
            case answers.Stall():
                self.pause(fault.seconds)
                return
            case answers.Garbage():
                self.send_event("content_block_delta", fault.data)
                return
            case answers.Cut():
                _shut(self.connection)
            case answers.StreamError():
                self.send_event("error", json.dumps(self.error_body(fault.type, fault.message)))
                self.send_chunk(b"")
            case answers.End():
                self.send_chunk(b"")
        raise _Closed

    def pause(self, seconds: float) -> None:
        """Wait, but raise if the client disconnects."""
        if select.select([self.connection], [], [], seconds)[0] and not self.connection.recv(1, socket.MSG_PEEK):
            raise _Gone


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)
