"""A strict Messages server on this machine, for tests: the real client, the real wire, and no model.

    with MessagesServer([say("yes"), error(429), answer(call("run", {"code": "1"}), fault=Cut("block"))]) as server:
        ...  # a client at server.base_url, with any key
    assert not server.faults

Rule 1: it refuses what the API refuses: by the rules that the client's last check has, and, for models whose thinking
        is bound, a thought that comes back with another prompt before it.
Rule 2: what a test did not foresee (a request after the script's end, a place that no answer comes to) is a line in
        `faults`; a request that it refuses is not, and takes nothing of the script.
Rule 3: no key is kept.
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
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.clauses import MAX_BYTES
from ctxkernel.history.request import mapping
from ctxkernel.history.rules import Report, check
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.testing.answers import (
    Answer,
    Block,
    Cut,
    End,
    Garbage,
    HttpError,
    Place,
    Script,
    Stall,
    StreamError,
    as_answer,
    error,
    events,
    whole,
)
from ctxkernel.testing.remembering import Part, PromptCache, part, parts_of, signature, unbound

_SECRET = ("authorization", "x-api-key", "cookie")
_UNBOUND = (
    "{path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation: "
    "send back what was before it unchanged, or leave it out"
)


class Sent(NamedTuple):
    """An event that was written."""

    at: float
    """By `time.monotonic`, right before it was."""
    type: str


@dataclass(slots=True)
class Received:
    """One request, and what became of it."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case; without those that hold keys."""
    raw: bytes
    port: int
    """The client's: the same for requests over one connection."""
    body: Any = None
    """The JSON, None where it is none."""
    report: Report | None = None
    """What the rules said, None where it did not come to that."""
    status: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The counts of the answer."""
    sent: list[Sent] = field(default_factory=list[Sent])
    left: float | None = None
    """When it was seen that the client had gone before the end, by `time.monotonic`."""


class _Gone(Exception):
    """The client has closed the connection."""


class _Closed(Exception):
    """The script closes the connection, or ends the response."""


class MessagesServer:
    """Answers `POST /v1/messages` and `/v1/messages/count_tokens` at `base_url`, by a script, within a `with`.

    `script` is a list, of which each request that is in order takes the first item, or a function of the request's body
    that returns an item; `answers.py` says what an item may be.
    """

    def __init__(self, script: Script = ()) -> None:
        self.script = script if callable(script) else list(script)
        """A function, or what is left of the list; a test may add to it."""
        self.requests: list[Received] = []
        self.faults: list[str] = []
        """What a test did not foresee: to be empty at its end."""
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
        # A handler that stalls, or waits for a next request, sees its connection end.
        for connection in tuple(self.connections):
            _shut(connection)

    def _decide(self, seen: Received, *, has_key: bool) -> tuple[Answer | HttpError | None, list[Part]]:
        """Return the answer to a request, None where its tokens are to be counted, and its parts."""
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
            return as_answer(self.script(seen.body))
        if self.script:
            return as_answer(self.script.pop(0))
        self.faults.append(f"request {len(self.requests)} came after the script's last answer")
        return error(500, "the script is at its end", headers={"x-should-retry": "false"})

    def _message(self, seen: Received, made: Answer, parts: list[Part]) -> tuple[Answer, dict[str, Any]]:
        """Return an answer whose blocks have ids and signatures, and its message."""
        model = seen.body["model"]
        blocks: list[Block] = []
        before = list(parts)
        for block in made.blocks:
            if block["type"] == "thinking":
                block = {**block, "signature": signature(before, block["thinking"])}
            elif block["type"] == "tool_use" and not block["id"]:
                block = {**block, "id": f"toolu_{self._number():04}"}
            before.append(part("", "assistant", whole(block)))
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
            "content": [whole(block) for block in blocks],
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
        seen = Received(urlsplit(http.path).path.rstrip("/"), kept, raw, http.client_address[1])
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
            except Exception as fault:  # the test's own script
                self.faults.append(f"{http.request_id}: {type(fault).__name__}: {fault}")
                made = error(500, "the script failed", headers={"x-should-retry": "false"})
        wire = _Wire(http, seen)
        try:
            if isinstance(made, Answer):
                self._send(wire, made, message)
            elif made is None:
                wire.json(200, message)
            else:
                fault = {"type": made.type, "message": made.message}
                said = {"type": "error", "error": fault, "request_id": http.request_id}
                wire.json(made.status, said, made.headers)
        except (_Gone, OSError):
            seen.left = time.monotonic()
            http.close_connection = True
        except _Closed:
            http.close_connection = True

    def _send(self, wire: _Wire, made: Answer, message: Mapping[str, Any]) -> None:
        fault = made.fault
        streamed = bool(wire.seen.body.get("stream"))

        def reached(place: Place) -> None:
            nonlocal fault
            if fault is not None and fault.at == place:
                now, fault = fault, None
                wire.fail(now)

        reached("headers")
        if streamed:
            wire.begin(made.packet)
            for step in events(made, message):
                if isinstance(step, str):
                    reached(step)
                    continue
                if made.delay and step["type"] == "content_block_delta":
                    wire.pause(made.delay)
                wire.event(step["type"], json.dumps(step, ensure_ascii=False))
        # Before the end is written: who has read it may ask for the faults, or send the next request.
        if fault is not None:
            self.faults.append(f"the answer to {wire.request_id} never came to `{fault.at}`")
        if streamed:
            wire.end()
        else:
            wire.json(200, message)


class _Wire:
    """What is written to one connection in answer to one request."""

    def __init__(self, http: _Handler, seen: Received) -> None:
        self._http = http
        self._packet = 0
        self.seen = seen
        self.request_id = http.request_id

    def json(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Write a whole response."""
        raw = json.dumps(body).encode()
        more = {"content-type": "application/json", "content-length": str(len(raw)), **(headers or {})}
        self._head(status, more)
        self._http.wfile.write(raw)

    def begin(self, packet: int) -> None:
        """Write the head of a stream."""
        self._packet = packet
        self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        http = self._http
        self.seen.status = status
        http.send_response(status)
        for name, value in {"request-id": self.request_id, **headers}.items():
            http.send_header(name, value)
        http.end_headers()

    def event(self, kind: str, data: str) -> None:
        """Write an event."""
        raw = f"event: {kind}\ndata: {data}\n\n".encode()
        step = self._packet or len(raw)
        self.seen.sent.append(Sent(time.monotonic(), kind))
        for start in range(0, len(raw), step):
            piece = raw[start : start + step]
            self._http.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def end(self) -> None:
        """Write the end of a stream."""
        self._http.wfile.write(b"0\r\n\r\n")

    def fail(self, fault: Cut | End | Stall | StreamError | Garbage) -> None:
        """Do what goes wrong here."""
        match fault:
            case Stall():
                self.pause(fault.seconds)
            case Garbage():
                self.event("content_block_delta", fault.data)
            case Cut():
                _shut(self._http.connection)
                raise _Closed
            case StreamError():
                said = {"type": fault.type, "message": fault.message}
                self.event("error", json.dumps({"type": "error", "error": said, "request_id": self.request_id}))
                self.end()
                raise _Closed
            case End():
                self.end()
                raise _Closed

    def pause(self, seconds: float) -> None:
        """Wait, unless the client goes."""
        connection = self._http.connection
        if select.select([connection], [], [], seconds)[0] and not connection.recv(1, socket.MSG_PEEK):
            raise _Gone


class _Http(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    messages: MessagesServer
    request_id = ""

    def setup(self) -> None:
        super().setup()
        self.messages.connections.add(self.connection)

    def finish(self) -> None:
        self.messages.connections.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:
        self.messages.answer_request(self)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a test's output is its own."""


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)
