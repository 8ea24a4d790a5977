"""The client with the real SDK against a real server: what is sent, what comes, what is sent again, and stopping."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import pytest
from asking import AT_ONCE, FAULTS, MODEL, TEXT, ask, body, client, failed, until

from ctxkernel.agent.client import LONGEST_WAIT
from ctxkernel.agent.failures import KINDS, ModelFailure
from ctxkernel.agent.streaming import (
    Assembly,
    BadEvent,
    CallDelta,
    Response,
    Retrying,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
)
from ctxkernel.core.settings import Settings
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.projection.value import Projection
from ctxkernel.testing import MessagesServer, Stall, Turns, answer, call, error, say, think

# -- what is sent ----------------------------------------------------------------------------------


def projection(dialect: str) -> Projection:
    settings = Settings(model=MODEL, dialect=dialect)  # type: ignore[arg-type]
    turns = Turns(projector=ProjectionEngine(settings, count_tokens))
    turns.run("x = 'é — 😀'")
    return turns.run("y = '\u2028'").projection


@pytest.mark.parametrize("dialect", ["tools", "script"])
def test_the_bytes_of_the_projection_are_those_of_the_wire(dialect: str):
    made = projection(dialect)

    with MessagesServer([say("yes")]) as server:
        ask(server, made.request_bytes, betas=made.betas)

    (request,) = server.requests
    assert request.raw == made.request_bytes
    assert request.headers["anthropic-beta"] == ",".join(made.betas)
    assert request.headers["content-type"] == "application/json"
    assert server.faults == []


def test_what_breaks_a_rule_is_not_sent():
    with MessagesServer([say("yes")]) as server:
        failure = failed(server, body(" "))

    assert (failure.kind, server.requests) == ("refused_by_check", [])
    assert "text content blocks must contain non-whitespace text" in str(failure)


def test_the_sdk_is_imported_with_the_first_request_only():
    """It takes seconds, and most sessions ask no model."""
    code = "import sys, ctxkernel.agent.client; sys.exit('anthropic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_connections_are_used_again_and_a_new_key_at_once():
    keys = ["one", "one", "two"]

    async def three() -> list[int]:
        made = client(server, model_key=lambda: keys.pop(0))
        ports = []
        for _ in range(3):
            await made.send(body(), model=MODEL, on_event=lambda event: None)
            ports.append(server.requests[-1].port)
        await made.aclose()
        return ports

    with MessagesServer(lambda request: say("yes")) as server:
        ports = asyncio.run(three())

    assert ports[0] == ports[1] != ports[2]


def test_the_client_serves_one_event_loop_after_another():
    with MessagesServer(lambda request: say("yes")) as server:
        made = client(server)
        for _ in range(2):
            response = asyncio.run(made.send(body(), model=MODEL, on_event=lambda event: None))
            assert response.blocks == (say("yes"),)
        asyncio.run(made.aclose())
    gc.collect()


# -- what comes ------------------------------------------------------------------------------------


def test_an_answer_is_whole_and_its_pieces_are_shown_as_they_come():
    shown: list[StreamEvent] = []

    with MessagesServer(
        [[think("let me see"), say(TEXT), call("run_cell", {"code": "x = 1"}, id="toolu_1")]]
    ) as server:
        response = ask(server, on_event=shown.append)

    thought, *others = response.blocks
    assert others == [say(TEXT), call("run_cell", {"code": "x = 1"}, id="toolu_1")]
    assert (thought["thinking"], len(thought["signature"])) == ("let me see", 44)
    assert "".join(one.text for one in shown if isinstance(one, TextDelta)) == TEXT
    assert "".join(one.text for one in shown if isinstance(one, ThinkingDelta)) == "let me see"
    pieces = [one for one in shown if isinstance(one, CallDelta)]
    assert {one.name for one in pieces} == {"run_cell"}
    assert json.loads("".join(one.partial_json for one in pieces)) == {"code": "x = 1"}
    assert (response.stop_reason, response.model, response.unreadable) == ("tool_use", MODEL, {})
    assert (response.llm_response_id, response.request_id) == ("msg_0001", "req_0001")
    assert response.usage == server.requests[0].usage
    assert response.first_token_seconds is not None
    assert 0 < response.first_token_seconds <= response.seconds


def test_a_piece_is_shown_before_the_next_is_sent():
    shown: list[float] = []

    with MessagesServer([answer(say("abcd"), chunk=1, delay=0.1)]) as server:
        ask(server, on_event=lambda event: shown.append(time.monotonic()))

    sent = [one.at for one in server.requests[0].sent if one.type == "content_block_delta"]
    assert len(shown) == len(sent) == 4
    assert sum(seen < after for seen, after in zip(shown, sent[1:], strict=False)) >= 2  # all, on an idle machine


def test_an_answer_can_be_sent_back_as_it_came():
    """The server checks the signature against all that was before the thought."""
    with MessagesServer([[think("hm"), call("run", {}, id="t1")], say("done")]) as server:
        first = ask(server)
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "1"}]}
        messages = [json.loads(body())["messages"][0], {"role": "assistant", "content": list(first.blocks)}, result]
        second = ask(server, body(messages=messages))

    assert second.blocks == (say("done"),)


@pytest.mark.parametrize("reason", ["refusal", "max_tokens", "pause_turn", "model_context_window_exceeded"])
def test_a_reason_to_stop_is_no_failure(reason: str):
    with MessagesServer([answer(say("well"), stop_reason=reason)]) as server:
        response = ask(server)

    assert (response.stop_reason, response.blocks) == (reason, (say("well"),))


def test_an_answer_may_be_empty():
    with MessagesServer([answer([], stop_reason="refusal")]) as server:
        response = ask(server)

    assert (response.blocks, response.first_token_seconds) == ((), None)


@pytest.mark.parametrize("packet", [1, 2, 3, 7, 0])
def test_packets_may_break_characters_and_lines(packet: int):
    short = TEXT[:30]

    with MessagesServer([answer([say(short), call("run", {"a": short}, id="t")], chunk=3, packet=packet)]) as server:
        response = ask(server)

    assert response.blocks == (say(short), call("run", {"a": short}, id="t"))


def test_what_is_empty_or_not_known_is_let_pass():
    """Pings, empty deltas, and events and deltas of types that are of tomorrow."""
    shown: list[StreamEvent] = []
    blocks = [say("hi"), call("run", {"a": 1}, id="t")]

    with MessagesServer([answer(blocks, noise=True)]) as server:
        response = ask(server, on_event=shown.append)

    assert list(response.blocks) == blocks
    assert shown == [TextDelta("hi"), CallDelta("run", ""), CallDelta("run", '{"a": 1}')]


def test_a_long_input_in_small_pieces_is_read_in_time():
    given = {"code": "x = 'é'\n" * 15_000}

    with MessagesServer([answer(call("run", given, id="t"), chunk=7)]) as server:
        response = ask(server)

    assert response.blocks[0]["input"] == given
    assert response.seconds < 20  # some 2 s; quadratic would be minutes


@pytest.mark.parametrize(
    "given", ['{"code": "x', "[1]", '"x"', "nul", '{"a": NaN}', "[" * 100_000], ids=lambda x: x[:9]
)
def test_an_input_that_is_no_json_object_is_marked(given: str):
    with MessagesServer([answer([say("so"), call("run", given, id="t")], chunk=50_000)]) as server:
        response = ask(server)

    assert response.unreadable == {"t": given}
    assert response.blocks == (say("so"), call("run", {}, id="t"))


@pytest.mark.parametrize(
    "event",
    [
        None,
        {"type": "message_start"},
        {"type": "message_delta"},
        {"type": "content_block_start", "content_block": {}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "run"}},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "x"}},
        {"type": "content_block_delta", "index": 0, "delta": "x"},
    ],
)
def test_an_event_that_no_server_sends_is_refused(event: Any):
    answer = Assembly()
    answer.take({"type": "message_start", "message": {"id": "m"}})
    answer.take({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})

    with pytest.raises(BadEvent):
        answer.take(event)


def test_blocks_of_other_types_are_kept_as_they_came():
    answer = Assembly()
    blocks = [
        {"type": "redacted_thinking", "data": "QUJD"},
        {"type": "of_tomorrow", "x": [1, None], "input": 3},
        {"type": "text", "text": "a", "citations": None},
    ]
    answer.take({"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}})
    for index, block in enumerate(blocks):
        answer.take({"type": "content_block_start", "index": index, "content_block": block})
    answer.take({"type": "content_block_delta", "index": 2, "delta": {"type": "citations_delta", "citation": {"n": 1}}})
    answer.take({"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "b"}})
    answer.take({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5, "input_tokens": None}})
    answer.take({"type": "message_stop"})

    assert answer.blocks == (*blocks[:2], {"type": "text", "text": "ab", "citations": [{"n": 1}]})
    assert answer.usage == {"input_tokens": 3, "output_tokens": 5}
    assert answer.complete


# -- again -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["429", "500", "529", "cut before the headers", "cut before the message", "end before the message"]
)
def test_a_request_of_which_nothing_came_is_sent_again(name: str):
    made = FAULTS[name][0]
    shown: list[StreamEvent] = []
    if name.isdigit():
        made = error(int(name), headers=AT_ONCE)

    with MessagesServer([made, say("yes")]) as server:
        response = ask(server, on_event=shown.append)

    assert response.blocks == (say("yes"),)
    assert server.requests[0].raw == server.requests[1].raw
    again, text = shown
    assert isinstance(again, Retrying)
    assert (again.attempt, again.why) == (1, KINDS[FAULTS[name][1]].what)  # type: ignore[index]
    assert again.seconds == 0.001 if name.isdigit() else 0.3 < again.seconds <= 0.5
    assert text == TextDelta("yes")


def test_the_wait_before_a_retry_draws_no_random_number_of_the_user():
    before = random.getstate()

    with MessagesServer([error(529), say("yes")]) as server:
        ask(server)

    assert random.getstate() == before


def test_a_refusal_is_told_in_the_words_of_the_server_with_the_oldest_client_that_is_allowed(monkeypatch):
    """anthropic 2.0 gives its errors no `api_message`."""
    import anthropic

    make = anthropic.APIStatusError.__init__

    def without(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        vars(self).pop("api_message", None)

    monkeypatch.setattr(anthropic.APIStatusError, "__init__", without)
    with MessagesServer([error(401)]) as server:
        failure = failed(server)

    assert failure.kind == "authentication"
    assert "invalid x-api-key" in str(failure)


def test_a_request_is_sent_so_many_times_and_no_more():
    with MessagesServer(lambda request: error(529, headers=AT_ONCE)) as server:
        failure = failed(server, max_retries=2)

    assert (failure.kind, len(server.requests)) == ("overloaded", 3)


@pytest.mark.parametrize(
    "name", ["400", "401", "overflow", "cut in a block", "error in a block", "stall before the headers"]
)
def test_what_came_in_part_or_would_come_to_the_same_is_not_sent_again(name: str):
    with MessagesServer(lambda request: FAULTS[name][0]) as server:
        failure = failed(server, max_retries=2, timeout=0.8)

    assert (failure.kind, len(server.requests)) == (FAULTS[name][1], 1)


@pytest.mark.parametrize(
    "headers",
    [{"retry-after": str(LONGEST_WAIT + 60)}, {"x-should-retry": "false"}],
    ids=["a long wait", "the server's word"],
)
def test_the_server_may_say_not_to_ask_again(headers: Mapping[str, str]):
    with MessagesServer([error(429, headers=headers)]) as server:
        failure = failed(server, max_retries=2)

    assert len(server.requests) == 1
    assert failure.retryable is ("retry-after" in headers)
    assert str(failure).endswith("ask again in 120 s" if failure.retryable else "wait, then ask again")


# -- stopping --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [Stall("headers", 30), Stall("start", 30), Stall("block", 30)], ids=lambda one: one.at
)
def test_a_cancellation_ends_the_stream_at_once(fault: Stall):
    """The server sees the connection close, the task is cancelled, and the text so far is there."""

    async def stopped() -> tuple[float, str]:
        made = client(server)
        task = asyncio.create_task(made.send(body(), model=MODEL, on_event=lambda event: None))
        await until(lambda: server.requests and (fault.at != "block" or made.partial_text))
        await asyncio.sleep(0.05)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        took = time.monotonic() - started
        await until(lambda: server.requests[0].left)
        await made.aclose()
        return max(took, (server.requests[0].left or started) - started), made.partial_text

    with MessagesServer([answer(say("some text"), chunk=4, fault=fault)]) as server:
        took, text = asyncio.run(stopped())

    assert took < 8  # 2 ms on an idle machine, and 30 s without it
    assert text == ("some" if fault.at == "block" else "")


def test_a_client_can_be_used_after_a_cancellation():
    async def twice() -> Response:
        made = client(server)
        task = asyncio.create_task(made.send(body(), model=MODEL, on_event=lambda event: None))
        await until(lambda: made.partial_text)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        response = await made.send(body(), model=MODEL, on_event=lambda event: None)
        await made.aclose()
        return response

    with MessagesServer([answer(say("a"), fault=Stall("block", 30)), say("yes")]) as server:
        assert asyncio.run(twice()).blocks == (say("yes"),)


def test_closing_the_client_interrupts_a_request():
    async def closed() -> ModelFailure:
        made = client(server)
        task = asyncio.create_task(made.send(body(), model=MODEL, on_event=lambda event: None))
        await until(lambda: made.partial_text)
        await made.aclose()
        with pytest.raises(ModelFailure) as caught:
            await task
        return caught.value

    with MessagesServer([answer(say("some text"), chunk=4, fault=Stall("block", 30))]) as server:
        failure = asyncio.run(closed())

    assert (failure.kind, failure.partial_text) == ("interrupted", "some")
