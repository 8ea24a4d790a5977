"""Every way in which a request to a model fails, and the key, which none of them tells."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from asking import FAULTS, KEY, MODEL, ask, body, failed

from ctxkernel.agent.client import ModelClient
from ctxkernel.agent.failures import KINDS, ModelFailure, wait_of
from ctxkernel.agent.keys import ApiKey, model_key
from ctxkernel.agent.streaming import StreamEvent
from ctxkernel.testing import MessagesServer, StreamError, answer, error, say


@pytest.mark.parametrize(
    ("given", "seconds"), [("2", 2.0), ("-5", 0.0), ("nan", None), ("inf", None), ("soon", None), ("", None)]
)
def test_a_wait_that_is_no_number_of_seconds_is_not_waited_for(given: str, seconds: float | None):
    assert wait_of({"retry-after": given}) == seconds


def test_a_wait_until_a_date_is_the_seconds_until_then():
    """As RFC 9110 allows; a date in the past is no wait."""
    given = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    waits = [wait_of({"retry-after": text}) for text in (given, "Wed, 21 Oct 2015 07:28:00 GMT")]

    assert waits == [pytest.approx(90, abs=5), 0.0]


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_a_failure_of_its_kind(name: str):
    """With the text so far, the request's id, the next move, and whether the same may do better again."""
    made, kind, text = FAULTS[name]
    stalled = {"timeout": 0.8} if "stall" in name else {}

    with MessagesServer([made]) as server:
        started = time.monotonic()
        failure = failed(server, **stalled)
        took = time.monotonic() - started

    assert (failure.kind, failure.partial_text) == (kind, text)
    assert failure.retryable is KINDS[failure.kind].again
    assert failure.request_id == (None if "headers" in name else "req_0001")
    assert str(failure).startswith(f"{MODEL}: {KINDS[failure.kind].what}")
    assert str(failure).endswith(f"; {KINDS[failure.kind].next_move}")
    assert took < 30
    assert server.faults == []


def test_the_words_of_the_server_are_in_the_failure():
    with MessagesServer([error(429, "too fast"), answer(say("a"), fault=StreamError("block"))]) as server:
        refused, broken = failed(server), failed(server)

    assert str(refused) == f"{MODEL}: the limit of requests or tokens is reached (429: too fast); wait, then ask again"
    assert str(broken) == f"{MODEL}: the server broke its answer off (overloaded_error: Overloaded); ask again"


def test_nobody_at_the_address_is_a_failure_to_connect():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        failure = failed(f"http://127.0.0.1:{port}")

    assert failure.kind == "connection"
    assert "ANTHROPIC_BASE_URL" in str(failure)


def test_what_is_no_messages_server_is_malformed():
    with MessagesServer(lambda request: say("yes")) as server:
        failure = failed(server, body(stream=False))

    assert failure.kind == "malformed"
    assert "application/json" in str(failure)


@pytest.mark.parametrize("base_url", [None, "local"])
def test_without_a_key_only_a_local_server_is_asked(base_url: str | None):
    with MessagesServer([say("yes")]) as server:
        made = ModelClient(model_key=lambda: None, base_url=base_url and server.base_url)
        send = made.send(body(), model=MODEL, on_event=lambda event: None)
        if base_url:
            assert asyncio.run(send).blocks == (say("yes"),)
        else:
            with pytest.raises(ModelFailure, match="set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL") as caught:
                asyncio.run(send)
            assert (caught.value.kind, caught.value.retryable) == ("no_key", False)


@pytest.mark.parametrize("key", ["sk-\nx", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_not_sent(key: str):
    with MessagesServer() as server:
        failure = failed(server, model_key=lambda: key)

    assert (failure.kind, server.requests) == ("authentication", [])
    assert key not in str(failure)


def test_what_on_event_raises_is_the_callers_own():
    def broken(event: StreamEvent) -> None:
        raise ValueError("the display is gone")

    with MessagesServer([say("yes")]) as server, pytest.raises(ValueError, match="the display is gone"):
        ask(server, on_event=broken)


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY, "a-key-of-no-known-form-0123"])
@pytest.mark.parametrize(
    "name", [*(name for name in FAULTS if not name.startswith("stall")), "told by the server", "told in the stream"]
)
def test_the_key_is_in_no_part_of_a_failure(name: str, key: str, caplog: pytest.LogCaptureFixture):
    """Not in its text, its traceback, what it is chained to, nor in the logs at their most talkative."""
    caplog.set_level(logging.DEBUG)
    told = {
        "told by the server": error(401, f"invalid key: {key}"),
        "told in the stream": answer(say("a"), fault=StreamError("block", key, f"{key} is no key")),
    }

    with MessagesServer([told[name] if name in told else FAULTS[name][0]]) as server:
        failure = failed(server, model_key=lambda: key)

    assert failure.__cause__ is None
    assert failure.__context__ is None
    shown = "".join(traceback.format_exception(failure))
    frames = [frame for frame, _ in traceback.walk_tb(failure.__traceback__)]
    variables = [repr(frame.f_locals) for frame in frames if frame.f_globals["__name__"].startswith("ctxkernel")]
    assert variables
    for text in (
        str(failure),
        repr(failure),
        str(vars(failure)),
        shown,
        *variables,
        caplog.text,
        repr(server.requests),
    ):
        assert key not in text


def test_the_words_of_the_server_are_short_and_no_terminal_obeys_them():
    with MessagesServer([error(400, "\x1b[2J" + "x" * 10_000)]) as server:
        failure = failed(server)

    assert str(failure).isprintable()
    assert len(str(failure)) < 700


def test_a_key_is_looked_for_in_the_environment_and_then_in_the_keyring(monkeypatch: pytest.MonkeyPatch):
    class Keyring:
        @staticmethod
        def get_password(service: str, user: str) -> str | None:
            return "kept" if (service, user) == ("ctxkernel", "anthropic") else None

    environ = {"ANTHROPIC_API_KEY": " one\n", "ANTHROPIC_AUTH_TOKEN": "two"}
    monkeypatch.setitem(sys.modules, "keyring", Keyring)

    assert model_key(environ) == "one"
    assert model_key({**environ, "ANTHROPIC_API_KEY": ""}) == "two"
    assert model_key({}) == "kept"
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert model_key({}) is None


def test_a_key_does_not_show_itself():
    key = ApiKey(KEY)

    assert KEY not in repr(key)
    assert KEY not in repr({"headers": [key]})
    assert key.scrub(f"before {KEY} after") == "before [masked: key] after"
    assert ApiKey().scrub("text") == "text"


@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_redirect_to_another_address_is_not_followed(status: int):
    with MessagesServer([say("stolen")]) as other:
        there = error(status, headers={"location": f"{other.base_url}/v1/messages"})
        with MessagesServer([there]) as server:
            failure = failed(server)
    assert failure.kind == "malformed"
    assert f"it redirects to {other.base_url}/v1/messages); check ANTHROPIC_BASE_URL" in str(failure)
    assert other.requests == []
