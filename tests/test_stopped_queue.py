"""Requests that were sent before an ask stopped the queue, and arrive after: with a client that delays its messages."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernels import RunningKernel
from test_kernel_asking import Bench, bench_in, cell

from ctxkernel.kernel.execution.stopped_queue import StoppedQueue
from ctxkernel.testing import answer

HOURS = [0, 1, -1]


class LateClient:
    """A client that decides when its messages leave it, and whose clock may be wrong."""

    def __init__(self, kernel: RunningKernel, *, hours: float = 0) -> None:
        self.kernel, self.hours = kernel, hours
        self.session = kernel.client.session

    def request(self, code: str, *, later: float = 0.0, **content: Any) -> dict[str, Any]:
        """Return an execute request that is not sent yet; `later` is added to its date."""
        given = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = self.session.msg("execute_request", {**given, **content})
        message["header"]["date"] += datetime.timedelta(hours=self.hours, seconds=later)
        return message

    def send(self, message: dict[str, Any]) -> str:
        self.kernel.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def status(self, message: dict[str, Any]) -> str:
        """Send a message and return the status of its reply."""
        return self.reply(self.send(message))

    def reply(self, msg_id: str) -> str:
        while (reply := self.kernel.client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != msg_id:
            pass
        return reply["content"]["status"]


@pytest.fixture(scope="module")
def bench(module_folder: Path) -> Iterator[Bench]:
    with bench_in(module_folder) as made:
        made.consent()
        yield made


def parked(bench: Bench, client: LateClient) -> dict[str, Any]:
    """Have an ask stop the queue; return a request that was made meanwhile, and not sent."""
    bench.answers(answer(cell("1"), delay=0.05))
    asked = client.send(client.request("%%ask --mode ask\nwait for me"))
    late = client.request("reached = True")
    assert client.reply(asked) == "error"
    return late


@pytest.mark.parametrize("hours", HOURS)
def test_a_request_sent_before_the_stop_is_aborted_whenever_it_arrives(bench: Bench, hours: float):
    client = LateClient(bench.kernel, hours=hours)
    bench.run("reached = False")
    late = parked(bench, client)
    time.sleep(0.5)  # ipykernel does not abort any more

    assert client.status(late) == "aborted"
    assert bench.kernel.evaluate("reached") == "False"
    assert client.status(client.request("x = 1")) == "ok"
    time.sleep(0.5)
    assert (
        client.status({**client.request("reached = True"), "header": {**late["header"], "msg_id": "other"}})
        == "aborted"
    )
    assert bench.kernel.evaluate("reached") == "False"


@pytest.mark.parametrize("hours", HOURS)
def test_a_request_sent_after_the_stop_runs_at_once(bench: Bench, hours: float):
    client = LateClient(bench.kernel, hours=hours)
    for _ in range(5):
        parked(bench, client)
        # ipykernel aborts what comes while it empties the queue: so does it here, but for no longer.
        statuses = [client.status(client.request("1")) for _ in range(20)]
        assert statuses[-18:] == ["ok"] * 18


@pytest.mark.parametrize(("before", "after"), [(0, 1), (0, -1), (1, 0), (-1, 0), (1, -1), (-1, 1)])
def test_a_clock_that_is_set_meanwhile_stops_no_later_request(bench: Bench, before: float, after: float):
    client = LateClient(bench.kernel, hours=before)
    parked(bench, client)
    time.sleep(0.3)
    client.hours = after
    assert client.status(client.request("1")) == "ok"


def test_the_requests_of_another_client_are_not_compared(bench: Bench):
    client = LateClient(bench.kernel)
    late = parked(bench, client)
    time.sleep(0.3)
    late["header"]["session"] = "of another page"
    assert client.status(late) == "ok"


def test_run_all_of_a_busy_client_does_not_pass_an_ask_that_waits(bench: Bench):
    """All requests are made at once, as the front end does, and arrive one by one."""
    client = LateClient(bench.kernel)
    bench.run("passed = []")
    bench.answers(answer(cell("1"), delay=0.05))
    cells = [client.request(f"passed.append({n})") for n in range(4)]
    asked = client.request("%%ask --mode ask\nwait for me")
    below = [client.request(f"passed.append({n})") for n in range(4, 8)]
    assert [client.status(one) for one in cells] == ["ok"] * 4
    assert client.status(asked) == "error"
    for one in below:
        time.sleep(0.2)
        assert client.status(one) == "aborted"
    assert bench.kernel.evaluate("passed") == "[0, 1, 2, 3]"
    bench.run("%ctx stop")


def test_an_ask_that_need_not_stop_the_queue_stops_nothing(bench: Bench):
    client = LateClient(bench.kernel)
    bench.answers(answer(cell("1"), delay=0.05))
    asked = client.send(client.request("%%ask --mode ask\nwait", stop_on_error=False))
    late = client.request("1")
    assert client.reply(asked) == "error"
    time.sleep(0.3)
    assert client.status(late) == "ok"


@pytest.mark.parametrize("stop_on_error", [True, False])
@pytest.mark.parametrize("stock", [True, False])
def test_a_cell_that_fails_aborts_what_ipykernel_aborts(
    bench: Bench, stock: bool, stop_on_error: bool, start_kernel: Any, tmp_path: Path
):
    kernel = start_kernel(tmp_path, stock=True) if stock else bench.kernel
    client = LateClient(kernel)
    failing = client.request("import time; time.sleep(0.3); 1 / 0", stop_on_error=stop_on_error)
    queued, late = client.request("2"), client.request("3")
    ids = [client.send(one) for one in (failing, queued)]
    statuses = {}
    while len(statuses) < 2:
        reply = kernel.client.get_shell_msg(timeout=60)
        statuses[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
    assert [statuses[one] for one in ids] == ["error", "aborted" if stop_on_error else "ok"]
    time.sleep(0.5)
    assert client.status(late) == "ok"


def test_the_stops_of_many_clients_take_no_more_room():
    queue = StoppedQueue()
    now = datetime.datetime.now(datetime.UTC)
    for n in range(100):
        queue.stop({"session": f"s{n}", "date": now}, time.monotonic() - 5)
    inside = now + datetime.timedelta(seconds=2)
    assert not queue.has_stopped({"session": "s0", "date": inside})
    assert queue.has_stopped({"session": "s99", "date": inside})
    for header in ({}, {"session": None, "date": "x"}, {"session": "s99"}, {"session": "s99", "date": "yesterday"}):
        assert not queue.has_stopped(header)
