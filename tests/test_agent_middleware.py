"""The last check, with the real SDK against a server on this machine: what arrives, and what never does."""

from __future__ import annotations

import asyncio
import json
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
import pytest

from ctxkernel.agent.middleware import RequestCheck, RequestRefused
from ctxkernel.projection import receipt as receipts
from ctxkernel.projection.value import Piece

KEY = "sk-ant-api03-neverToBeSeenAnywhere0123456789"
MODEL = "claude-sonnet-5-5"
BETA = "mid-conversation-system-clear-at-2026-08-21"
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": MODEL,
    "content": [{"type": "text", "text": "yes"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 1},
}
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**ANSWER, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "yes"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 1},
    },
    {"type": "message_stop"},
]
USER = [{"role": "user", "content": "go on"}]
BLANK = [{"role": "user", "content": [{"type": "text", "text": " "}]}]


class Server:
    """A Messages server that keeps what it was sent, and fails so many times first."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.failures = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                server.got.append((self.path, raw))
                status, kind, answer = 200, "application/json", json.dumps(ANSWER).encode()
                if server.failures > 0:
                    server.failures -= 1
                    status, answer = 500, b'{"type":"error","error":{"type":"api_error","message":"busy"}}'
                elif json.loads(raw).get("stream"):
                    kind = "text/event-stream"
                    answer = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in EVENTS).encode()
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(answer)))
                self.send_header("retry-after-ms", "1")
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(raw) for _, raw in self.got]


def blocks(*texts: str) -> list[Piece]:
    return [Piece("b", "statement", "s1", 1, "", text) for text in texts]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def client(server: Server, *more: Any, check: RequestCheck | None = None, **options: Any) -> anthropic.Anthropic:
    middleware = [*more, check or RequestCheck()]
    return anthropic.Anthropic(base_url=server.url, api_key=KEY, middleware=middleware, **options)


def test_a_good_request_arrives_byte_for_byte(server: Server):
    """What was built and hashed is what the server reads, where the bytes themselves are sent, and is streamed."""
    sent = receipts.body(receipts.head(MODEL, 64, "Say yes; — 😀"), blocks("s1: x = 'é'", "s2"), blocks("now?"))
    kinds: Any = anthropic.types.RawMessageStreamEvent

    stream = client(server).post(
        "/v1/messages", cast_to=kinds, content=sent, stream=True, stream_cls=anthropic.Stream[kinds]
    )

    assert [event.type for event in stream] == [event["type"] for event in EVENTS]
    assert server.got == [("/v1/messages", sent)]


def test_the_check_changes_nothing_of_a_request(server: Server):
    """The client itself orders the keys of a body; that is all that differs."""
    sent = receipts.body(receipts.head(MODEL, 64, "Say yes; — 😀"), blocks("s1: x = 'é'", "s2"), blocks("now?"))
    plain = anthropic.Anthropic(base_url=server.url, api_key=KEY)

    for made in (client(server), plain):
        list(made.messages.create(**json.loads(sent)))

    assert server.got[0] == server.got[1]
    assert server.bodies[0] == json.loads(sent)


def test_what_the_client_takes_in_its_own_types_is_checked_as_it_is_sent(server: Server, tmp_path: Path):
    """Blocks of an answer, a generator of messages, a tuple, and an image in a file."""
    made = client(server)
    image = tmp_path / "one.gif"
    image.write_bytes(b"GIF89a\x01\x00\x01\x00")
    source = {"type": "base64", "media_type": "image/gif", "data": image}

    answer = made.messages.create(model=MODEL, max_tokens=9, messages=USER)
    messages: Any = (
        one
        for one in (
            *USER,
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": ({"type": "image", "source": source}, {"type": "text", "text": "and?"})},
        )
    )
    made.messages.create(model=MODEL, max_tokens=9, messages=messages)

    sent = server.bodies[1]["messages"]
    assert [one["role"] for one in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"][0]["text"] == "yes"
    assert sent[2]["content"][0]["source"]["data"] == "R0lGODlhAQABAA=="


def test_a_broken_request_never_leaves(server: Server):
    with pytest.raises(RequestRefused, match=r"messages\[0\].content\[0\]: text content blocks must contain") as caught:
        client(server).messages.create(model=MODEL, max_tokens=9, messages=BLANK)

    assert server.got == []
    assert caught.value.model == MODEL
    assert [one.rule for one in caught.value.report.violations] == ["blank_text"]


@pytest.mark.parametrize(
    "more",
    [
        {"extra_body": {"temperature": 1}},
        {"extra_body": {"messages": BLANK}},
        {"tool_choice": {"type": "any"}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"system": "\ud800"},
        {"metadata": {"user_id": object()}},
    ],
    ids=lambda more: "-".join(map(str, more)),
)
def test_what_is_checked_is_all_that_would_be_sent(server: Server, more: dict[str, Any]):
    with pytest.raises((RequestRefused, TypeError)):
        client(server).messages.create(model=MODEL, max_tokens=9, messages=USER, **more)

    assert server.got == []


def test_a_streamed_request_is_checked_too(server: Server):
    made = client(server)

    with made.messages.stream(model=MODEL, max_tokens=9, messages=USER) as stream:
        assert stream.get_final_text() == "yes"
    events = list(made.messages.create(model=MODEL, max_tokens=9, messages=USER, stream=True))
    with (
        pytest.raises(RequestRefused),
        made.messages.stream(model=MODEL, max_tokens=9, messages=BLANK) as stream,
    ):
        pass
    with pytest.raises(RequestRefused):
        made.messages.create(model=MODEL, max_tokens=9, messages=BLANK, stream=True)

    assert events[-1].type == "message_stop"
    assert len(server.got) == 2


def test_a_retry_is_checked_again(server: Server):
    """What another middleware spoils at the second attempt is not sent then either."""

    def spoil(request: anthropic.APIRequest, call_next: Any) -> Any:
        broken = {**request.json, "messages": BLANK}  # type: ignore[dict-item]
        return call_next(request.copy(body=broken) if request.retries_taken else request)

    server.failures = 9
    with pytest.raises(RequestRefused):
        client(server, spoil).messages.create(model=MODEL, max_tokens=9, messages=USER)

    assert [body["messages"] for body in server.bodies] == [USER]


def test_a_good_request_is_tried_again_as_ever(server: Server):
    server.failures = 2

    client(server).messages.create(model=MODEL, max_tokens=9, messages=USER)

    assert len(server.got) == 3
    assert server.got[0] == server.got[2]


def test_a_refused_request_is_not_tried_again(server: Server):
    seen: list[int] = []

    def count(request: anthropic.APIRequest, call_next: Any) -> Any:
        seen.append(request.retries_taken)
        return call_next(request)

    with pytest.raises(RequestRefused):
        client(server, count).messages.create(model=MODEL, max_tokens=9, messages=BLANK)

    assert seen == [0]


def test_the_asynchronous_client_is_checked_alike(server: Server):
    async def both() -> None:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY, middleware=[RequestCheck()]) as made:
            await made.messages.create(model=MODEL, max_tokens=9, messages=USER)
            async with made.messages.stream(model=MODEL, max_tokens=9, messages=USER) as stream:
                assert await stream.get_final_text() == "yes"
            with pytest.raises(RequestRefused):
                await made.messages.create(model=MODEL, max_tokens=9, messages=BLANK)

    asyncio.run(both())

    assert len(server.got) == 2


def test_the_betas_of_the_header_open_their_fields(server: Server):
    cleared = [*USER, {"role": "system", "content": "state", "clear_at": "next_user_message"}]
    request: dict[str, Any] = {"model": MODEL, "max_tokens": 9, "messages": cleared}
    by_default = {"default_headers": {"anthropic-beta": BETA}}

    client(server).beta.messages.create(**request, betas=[BETA])
    client(server).messages.create(**request, extra_headers={"Anthropic-Beta": f"other-2026-01-01, {BETA}"})
    client(server, check=RequestCheck(betas=[BETA]), **by_default).messages.create(**request)
    with pytest.raises(RequestRefused, match="clear_at: Extra inputs are not permitted"):
        client(server).messages.create(**request)

    assert [path for path, _ in server.got] == ["/v1/messages"] * 3


def test_counting_tokens_is_left_alone(server: Server):
    with pytest.raises(anthropic.APIResponseValidationError):
        client(server, _strict_response_validation=True).messages.count_tokens(model=MODEL, messages=BLANK)

    assert server.got[0][0] == "/v1/messages/count_tokens"


@pytest.mark.parametrize("body", [b"{", b'{"model": "m"}', iter([b"{}"])], ids=["no json", "no messages", "a stream"])
def test_a_raw_body_is_read_or_refused(server: Server, body: Any):
    with pytest.raises(RequestRefused):
        client(server).post("/v1/messages", cast_to=object, content=body)

    assert server.got == []


def test_the_refusal_is_short_and_no_terminal_obeys_it(server: Server):
    call = {"type": "tool_use", "id": "\x1b[2J", "name": "run", "input": {}}
    messages: Any = [*USER, {"role": "assistant", "content": [call] * 50}, *USER]

    with pytest.raises(RequestRefused) as caught:
        client(server).messages.create(
            model=MODEL, max_tokens=9, messages=messages, extra_body={"\x1b" + "x" * 10_000: "\ud800"}
        )

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000
    assert str(caught.value).endswith(f"; and {len(caught.value.report.violations) - 3} more")


def test_the_key_is_in_no_part_of_the_refusal(server: Server):
    """Not in the text, the report or the traceback, also where somebody has put it into an id."""
    call = {"type": "tool_use", "id": KEY, "name": "run", "input": {}}
    messages: Any = [*USER, {"role": "assistant", "content": [call]}, *USER]

    with pytest.raises(RequestRefused) as caught:
        client(server).messages.create(
            model=MODEL, max_tokens=9, messages=messages, extra_headers={"authorization": f"Bearer {KEY}"}
        )

    shown = "".join(traceback.format_exception(caught.value))
    assert "unanswered_calls" in str(caught.value.report)
    for text in (shown, str(caught.value.report), repr(caught.value), str(vars(caught.value))):
        assert KEY not in text
