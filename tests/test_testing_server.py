"""The Messages server of the tests: it refuses what the API refuses, and breaks where it is told to."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import anthropic
import pytest
from exported import png

from ctxkernel.testing import (
    OVERFLOW,
    Cut,
    End,
    MessagesServer,
    Stall,
    StreamError,
    answer,
    call,
    error,
    say,
    think,
)
from ctxkernel.testing.answers import PLACES
from ctxkernel.testing.remembering import LOOKBACK

BOUND = "claude-sonnet-5-5"
OLD = "claude-opus-4-8"
BETA = "mid-conversation-system-clear-at-2026-08-21"
KEY = "sk-ant-api03-neverToBeSeenAnywhere0123456789"
MARK = {"cache_control": {"type": "ephemeral"}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [say(one) if isinstance(one, str) else one for one in blocks]}


def said(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [say(one) if isinstance(one, str) else one for one in blocks]}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": BOUND, "max_tokens": 64, "messages": list(messages) or [user("go on")], **more}


def post(server: MessagesServer, request: Any, path: str = "/v1/messages", **headers: str) -> tuple[int, Any]:
    """Send a request as it is, and return the status and the JSON, or the text where there is none."""
    connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=10)
    raw = request if isinstance(request, bytes) else json.dumps(request).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, raw, {"x-api-key": KEY, **named})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, json.loads(text) if response.headers["content-type"] == "application/json" else text


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def sdk(server: MessagesServer, **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.base_url, api_key=KEY, **more)


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    with MessagesServer(lambda request: say("yes")) as made:
        yield made
    assert not made.faults


# -- answers ---------------------------------------------------------------------------------------


def test_the_real_client_reads_what_the_script_says():
    blocks = [think("hm — 😀 " * 9), say("naïve"), call("run_cell", {"code": "x = 'é'"}, id="toolu_1")]

    with MessagesServer([blocks]) as server, sdk(server).messages.stream(**body()) as stream:
        message = stream.get_final_message()

    thought, text, asked = message.content
    assert (thought.thinking, text.text, asked.id, asked.input) == (
        blocks[0]["thinking"], "naïve", "toolu_1", {"code": "x = 'é'"},
    )  # fmt: skip
    assert message.stop_reason == "tool_use"
    assert thought.signature
    assert server.faults == []


def test_the_events_come_in_the_order_of_the_api():
    with MessagesServer([[think("ab"), call("run", {})]]) as server:
        _, text = post(server, body(stream=True))

    kinds = [event["type"] for event in events(text)]
    deltas = [event["delta"]["type"] for event in events(text) if event["type"] == "content_block_delta"]
    assert kinds == [
        "message_start", "ping",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert deltas == ["thinking_delta", "signature_delta", "input_json_delta", "input_json_delta"]
    assert [one.type for one in server.requests[0].sent] == kinds


def test_an_answer_that_is_not_streamed_is_the_same_message():
    with MessagesServer([call("run", {"a": 1}), call("run", {"a": 1})]) as server:
        status, whole = post(server, body())
        _, text = post(server, body(stream=True))

    assert status == 200
    assert whole["content"] == [{"type": "tool_use", "id": "toolu_0001", "name": "run", "input": {"a": 1}}]
    assert (whole["stop_reason"], whole["usage"].keys()) == ("tool_use", server.requests[1].usage.keys())
    assert events(text)[0]["message"]["content"] == []


@pytest.mark.parametrize("reason", ["refusal", "max_tokens", "pause_turn", "model_context_window_exceeded"])
def test_a_script_may_name_the_reason_why_it_stops(reason: str):
    with MessagesServer([answer(say("well"), stop_reason=reason, usage={"output_tokens": 7})]) as server:
        _, message = post(server, body())

    assert (message["stop_reason"], message["usage"]["output_tokens"]) == (reason, 7)


def test_a_script_may_be_a_function_of_the_request():
    with MessagesServer(lambda request: say(request["messages"][-1]["content"][0]["text"].upper())) as server:
        _, message = post(server, body(user("loud")))

    assert message["content"] == [say("LOUD")]


def test_what_the_script_did_not_foresee_is_a_fault():
    with MessagesServer([answer(say("hi"), fault=Cut("call"))]) as server:
        post(server, body(stream=True))
        status, message = post(server, body())

    assert (status, message["error"]["message"]) == (500, "the script is at its end")
    assert server.faults == [
        "the answer to req_0001 never came to `call`",
        "request 2 came after the script's last answer",
    ]


def test_a_script_that_fails_is_a_fault():
    with MessagesServer(lambda request: request["nothing"]) as server:
        status, _ = post(server, body())

    assert status == 500
    assert server.faults == ["req_0001: KeyError: 'nothing'"]


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (body(user(" ")), "messages[0].content[0]: text content blocks must contain non-whitespace text"),
        (body(said("hi")), 'messages[0].role: first message must use the "user" role'),
        (body(temperature=1), "temperature: `temperature` is not supported by this model"),
        (body(user("a"), said(call("run", {}, id="t1")), user("b")), "tool_use ids were found without tool_result"),
        (body(user("a"), said("b")), "This model does not support assistant message prefill."),
        (body(user("a"), {**user("b"), "role": "system", "clear_at": "next_user_message"}), "Extra inputs"),
        ({"model": BOUND}, "max_tokens: is null, not a number"),
        ([], "the body is list, not an object"),
        (b"{", "The request body is not valid JSON"),
    ],
)
def test_a_broken_rule_is_refused_in_the_api_s_own_form(server: MessagesServer, request_: Any, text: str):
    status, refusal = post(server, request_)

    assert status == 400
    assert text in refusal["error"]["message"]
    assert (refusal["type"], refusal["error"]["type"]) == ("error", "invalid_request_error")
    assert refusal["request_id"] == "req_0001"


def test_the_betas_of_the_header_open_their_fields(server: MessagesServer):
    note = {"role": "system", "clear_at": "next_user_message", "content": "t=1"}

    status, _ = post(server, body(user("a"), note), anthropic_beta=f"other-1, {BETA}")

    assert status == 200
    assert server.requests[0].report is not None and server.requests[0].report.ok


def test_a_refused_request_takes_nothing_of_the_script():
    with MessagesServer([say("yes")]) as server:
        post(server, body(user(" ")))
        _, message = post(server, body())

    assert message["content"] == [say("yes")]
    assert server.faults == []


def test_a_key_is_asked_for_and_not_kept(server: MessagesServer):
    assert post(server, body(), x_api_key="")[0] == 401
    assert post(server, body(), x_api_key="", authorization=f"Bearer {KEY}")[0] == 200
    assert post(server, body())[0] == 200

    assert KEY not in repr(server.requests)
    assert server.requests[0].body is None


@pytest.mark.parametrize("path", ["/v1/models", "/v1/complete", "/"])
def test_other_addresses_are_not_found(server: MessagesServer, path: str):
    status, refusal = post(server, body(), path)

    assert (status, refusal["error"]["type"]) == (404, "not_found_error")


def test_more_than_32_mb_is_too_large(server: MessagesServer):
    status, refusal = post(server, b" " * 32_000_001)

    assert (status, refusal["error"]["type"]) == (413, "request_too_large")


# -- counting and the cache ------------------------------------------------------------------------


def test_tokens_are_counted_by_the_same_rules(server: MessagesServer):
    counted = sdk(server).messages.count_tokens(model=BOUND, messages=[user("go on " * 50)])
    status, _ = post(server, {"model": BOUND, "messages": [user(" ")]}, "/v1/messages/count_tokens")
    _, message = post(server, body(user("go on " * 50)))

    assert counted.input_tokens == message["usage"]["input_tokens"] > 50
    assert status == 400


def long(name: str) -> dict[str, Any]:
    return say(f"{name}: " + "some words of a long text " * 400)


def counts(server: MessagesServer, request: dict[str, Any]) -> tuple[int, int, int]:
    _, message = post(server, request)
    usage = message["usage"]
    names = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
    return tuple(usage[name] for name in names)  # type: ignore[return-value]


def test_the_cache_keeps_the_prompt_up_to_its_breakpoints(server: MessagesServer):
    """What was written is read again, also where the breakpoint has moved on; the tail after it is never cached."""
    system = [{**long("system"), "cache_control": {"type": "ephemeral", "ttl": "1h"}}]

    first = counts(server, body(user({**long("a"), **MARK}, "tail 1"), system=system, model=OLD))
    again = counts(server, body(user({**long("a"), **MARK}, "tail 1"), system=system, model=OLD))
    grown = counts(server, body(user(long("a"), {**long("b"), **MARK}, "tail 2"), system=system, model=OLD))

    split = server.requests[0].usage["cache_creation"]
    assert first[0] == 0 and first[1] > 2000 and first[2] < 50
    assert min(split.values()) > 1000 and sum(split.values()) == first[1]
    assert again == (first[1], 0, first[2])
    assert grown[0] == first[1] and grown[1] > 1000
    assert server.requests[2].usage["cache_creation"]["ephemeral_1h_input_tokens"] == 0


def test_a_prompt_that_was_changed_is_not_in_the_cache(server: MessagesServer):
    counts(server, body(user(long("a"), {**long("b"), **MARK}), model=OLD))

    assert counts(server, body(user(long("A"), {**long("b"), **MARK}), model=OLD))[0] == 0
    assert counts(server, body(user(long("a"), {**long("b"), **MARK}), model=OLD, tools=[{"name": "t"}]))[0] == 0


def test_an_image_costs_the_same_in_a_result_as_beside_it(server: MessagesServer):
    """The API counts its pixels, not the characters of its base64."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png(280)}}
    called = said(call("run", {}, id="toolu_1"))

    def tokens(*blocks: Any) -> int:
        return post(server, body(user("draw"), called, user(*blocks)), "/v1/messages/count_tokens")[1]["input_tokens"]

    inside = tokens({"type": "tool_result", "tool_use_id": "toolu_1", "content": [say("a plot"), image]})
    beside = tokens({"type": "tool_result", "tool_use_id": "toolu_1", "content": [say("a plot")]}, image)
    assert inside == pytest.approx(beside, abs=10)


def test_a_short_prompt_is_not_cached(server: MessagesServer):
    short = body(user({**say("short"), **MARK}), model=OLD)

    assert counts(server, short)[:2] == counts(server, short)[:2] == (0, 0)


@pytest.mark.parametrize(("more", "found"), [(LOOKBACK - 1, True), (LOOKBACK, False)])
def test_the_cache_is_looked_for_so_many_blocks_back(server: MessagesServer, more: int, found: bool):
    counts(server, body(user({**long("a"), **MARK}), model=OLD))
    blocks = [say(str(index)) for index in range(more)]

    read = counts(server, body(user(long("a"), *blocks[:-1], {**blocks[-1], **MARK}), model=OLD))[0]

    assert bool(read) is found


def test_a_note_for_a_turn_costs_nothing_once_it_is_over(server: MessagesServer):
    note = {"role": "system", "clear_at": "next_user_message", "content": "word " * 500}
    turns = [user("a"), note, said("b"), user("c")]

    _, before = post(server, body(*turns[:2]), anthropic_beta=BETA)
    _, after = post(server, body(*turns), anthropic_beta=BETA)

    assert before["usage"]["input_tokens"] > 500 > after["usage"]["input_tokens"]


# -- bound thinking --------------------------------------------------------------------------------


NOTE = {"role": "system", "clear_at": "next_user_message", "content": "t=1"}
TOOL = {"name": "run", "input_schema": {"type": "object"}}


def conversation(model: str = BOUND) -> tuple[MessagesServer, dict[str, Any]]:
    """Return a server, and a request with three thoughts that it made."""
    script = [
        [think("one"), call("run", {"code": "1"}, id="t1")],
        [think("two"), say("done")],
        [think("three"), say("so")],
    ]
    server = MessagesServer(script)
    request = body(user("a"), NOTE, system=[{**say("be brief"), **MARK}], tools=[TOOL], model=model)
    results: list[Any] = [
        user({"type": "tool_result", "tool_use_id": "t1", "content": "1"}),
        user("and now?"),
        user("then"),
    ]
    with server:
        for result in results:
            _, message = post(server, request, anthropic_beta=BETA)
            request["messages"] += [{"role": "assistant", "content": message["content"]}, result]
    return server, request


def edit(request: dict[str, Any], change: str) -> dict[str, Any]:
    """Return the request with one change before its thoughts, or in them."""
    made = json.loads(json.dumps(request))
    messages = made["messages"]
    match change:
        case "nothing":
            pass
        case "breakpoints and effort":
            made["system"] = [say("be brief")]
            messages[3]["content"][0].update(MARK)
            made["output_config"] = {"effort": "low"}
        case "text as a block":
            messages[1]["content"] = [say("t=1")]
        case "the first thought is left out":
            del messages[2]["content"][0]
        case "all thoughts are left out":
            del messages[2]["content"][0], messages[4]["content"][0], messages[6]["content"][0]
        case "system":
            made["system"][0]["text"] = "be very brief"
        case "tools":
            del made["tools"]
        case "a message":
            messages[0]["content"][0]["text"] = "A"
        case "a note that is over":
            del messages[1]
        case "a result":
            messages[3]["content"][0]["content"] = "2"
        case "a thought":
            messages[2]["content"][0]["thinking"] = "One"
        case "a signature":
            messages[2]["content"][0]["signature"] = "c2lnbmVk"
        case "no signature of this server":
            messages[2]["content"][0]["signature"] = "§"
        case "another thought":
            messages[4]["content"][0] = messages[2]["content"][0]
        case "a thought in between is left out":
            del messages[4]["content"][0]
        case _:
            raise AssertionError(change)
    return made


@pytest.mark.parametrize(
    "change",
    [
        "nothing",
        "breakpoints and effort",
        "text as a block",
        "the first thought is left out",
        "all thoughts are left out",
    ],
)
def test_thinking_comes_back_after_what_was_before_it(change: str):
    """Also to a server that was started anew."""
    _, request = conversation()

    with MessagesServer([say("yes")]) as server:
        status, message = post(server, edit(request, change), anthropic_beta=BETA)

    assert (status, message.get("error")) == (200, None)


@pytest.mark.parametrize(
    "change",
    [
        "system", "tools", "a message", "a note that is over", "a result", "a thought", "a signature",
        "no signature of this server", "another thought",
        "a thought in between is left out",
    ],
)  # fmt: skip
def test_thinking_after_anything_else_is_refused(change: str):
    _, request = conversation()

    with MessagesServer([say("yes")]) as server:
        status, refusal = post(server, edit(request, change), anthropic_beta=BETA)

    assert status == 400
    assert "Invalid `signature` in `thinking` block. The block is bound to a different" in refusal["error"]["message"]
    assert refusal["error"]["message"].startswith("messages.")


def test_older_models_do_not_mind_an_edit():
    server, request = conversation("claude-opus-4-8")
    server.script = lambda request: say("yes")

    with server:
        status, _ = post(server, edit(request, "a message"), anthropic_beta=BETA)

    assert status == 200


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "status", "kind"),
    [
        (error(429, headers={"retry-after-ms": "5"}), 429, "rate_limit_error"),
        (error(500), 500, "api_error"),
        (error(529), 529, "overloaded_error"),
        (error(400, OVERFLOW), 400, "invalid_request_error"),
        (error(413), 413, "request_too_large"),
    ],
)
def test_a_refusal_of_the_script_is_sent_as_the_api_does(made: Any, status: int, kind: str):
    with MessagesServer([made]) as server:
        got, refusal = post(server, body(stream=True))

    assert (got, refusal["error"]["type"]) == (status, kind)
    assert server.requests[0].status == status


@pytest.mark.parametrize("place", PLACES)
def test_a_connection_is_cut_at_its_place(place: Any):
    cut = answer([say("ab"), call("run", {"a": 1})], chunk=1, fault=Cut(place))

    with MessagesServer([cut]) as server, pytest.raises((http.client.IncompleteRead, ConnectionError)):
        post(server, body(stream=True))

    last = {
        "headers": [],
        "start": [],
        "block": ["content_block_start", "content_block_delta"],
        "between": ["content_block_delta", "content_block_stop"],
        "call": ["content_block_delta", "content_block_stop"],
        "stop": ["content_block_stop", "message_delta"],
    }[place]
    assert [one.type for one in server.requests[0].sent][-2:] == last
    assert server.faults == []


def test_a_response_may_end_too_early_or_with_an_error():
    early, wrong = answer(say("abc"), fault=End("stop")), answer(say("abc"), fault=StreamError("block"))

    with MessagesServer([early, wrong]) as server:
        _, ended = post(server, body(stream=True))
        _, failed = post(server, body(stream=True))

    assert events(ended)[-1]["type"] == "message_delta"
    assert events(failed)[-1] == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded"},
        "request_id": "req_0002",
    }


def test_a_stall_and_a_delay_take_their_time():
    with MessagesServer([answer(say("ab"), fault=Stall("block", 0.2)), answer(say("ab"), delay=0.1)]) as server:
        post(server, body(stream=True))
        post(server, body(stream=True))

    times = [[one.at for one in request.sent] for request in server.requests]
    assert times[0][-1] - times[0][0] >= 0.2
    assert times[1][-1] - times[1][0] >= 0.1


def test_a_server_that_ends_waits_for_no_stall():
    with MessagesServer([answer(say("ab"), fault=Stall("start", 60))]) as server:
        connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=10)
        connection.request("POST", "/v1/messages", json.dumps(body(stream=True)), {"x-api-key": KEY})
        response = connection.getresponse()
        started = time.monotonic()

    with pytest.raises(http.client.IncompleteRead):
        response.read()

    assert time.monotonic() - started < 5
    connection.close()
