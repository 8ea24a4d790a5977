"""Connections in a real kernel: they come back alive, or are connected again, and the return says which."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from kernels import RunningKernel, once
from told import listed

CLIENT = """
class Client:
    def __init__(self, url):
        if url == "db://down":
            raise ConnectionError("nobody answers")
        self.url, self.open, self.rows = url, True, (n for n in range(3))

    def close(self):
        self.open = False
"""
ENTRY = """
from ctxkernel.state.ambient import reconnect
reconnect(Client, describe=lambda client: client.url, connect=lambda url: Client(url))
"""
CONNECT = "client = Client('db://x'); held = {'in': [client]}; rest = [1]"
"""The third statement."""
ASLEEP = f"import time; time.sleep(0); {CONNECT}"
"""The same, which is not run again to make what is gone."""


def run_all(kernel: RunningKernel, *cells: str) -> str:
    """Run cells; return what the last one printed."""
    said = ""
    for cell in cells:
        ran = kernel.run(textwrap.dedent(cell).strip())
        assert ran.status == "ok", (cell, ran.outputs)
        said = ran.stdout
    return said


def test_a_living_connection_stays_the_same_object_and_is_named(kernel):
    run_all(kernel, CLIENT, ENTRY, CONNECT, "client.mark = 1; rest.append(2)")
    said = run_all(kernel, "%ctx goto 3")

    assert "client" in listed(said, "as it is now: ")
    assert "connected again" not in said
    assert kernel.evaluate("(client.mark, client is held['in'][0], rest)") == "(1, True, [1])"


def test_a_connection_that_a_return_removed_comes_back_by_undo_as_the_same_object(kernel):
    run_all(kernel, CLIENT, ENTRY, CONNECT, "client.mark = 1", "%ctx goto 2")
    assert kernel.evaluate("'client' in globals()") == "False"
    said = run_all(kernel, "%ctx undo")

    assert "connected again" not in said
    assert "made again" not in said
    assert kernel.evaluate("(client.mark, client is held['in'][0])") == "(1, True)"
    said = run_all(kernel, "%ctx goto 2", "%ctx goto 3")  # before it was used
    assert "client" in listed(said, "as it is now: ")
    assert "made again" not in said
    assert kernel.evaluate("(client.mark, client is held['in'][0])") == "(1, True)"


def test_a_connection_that_is_gone_is_connected_again_wherever_it_was_referenced(kernel):
    run_all(kernel, CLIENT, ENTRY, CONNECT, "client.close(); del client, held; rest.append(2)")
    plan = kernel.run("%ctx goto 3 --dry-run").data[0]["text/plain"]
    assert "connect      client: __main__.Client db://x" in plan
    assert "not restored" not in plan
    assert kernel.evaluate("'client' in globals()") == "False"
    said = run_all(kernel, "%ctx goto 3")

    assert "connected again: client (__main__.Client db://x)" in said
    assert "not restored" not in said
    assert kernel.evaluate("(client.open, client is held['in'][0], rest)") == "(True, True, [1])"
    assert "connected again" not in run_all(kernel, "kept = client", "%ctx goto 3")


def test_a_connection_that_describe_does_not_know_any_more_counts_as_gone(kernel):
    entry = ENTRY.replace("client.url,", "client.url if client.open else None,")
    run_all(kernel, CLIENT, entry, CONNECT, "client.close()")
    said = run_all(kernel, "%ctx goto 3")

    assert "connected again: client (__main__.Client db://x)" in said
    assert kernel.evaluate("(client.open, client is held['in'][0])") == "(True, True)"


def test_an_entry_holds_for_objects_that_were_made_before_it(kernel):
    run_all(kernel, CLIENT, CONNECT, ENTRY, "del client, held")
    said = run_all(kernel, "%ctx goto 3")

    assert "connected again: client (" in said
    assert "as it is now" not in said
    assert kernel.evaluate("client.url") == "'db://x'"


def test_a_connection_that_fails_is_named_with_the_reason_and_costs_nothing_else(kernel):
    entry = ENTRY.replace("Client(url))", "Client('db://down'))")
    run_all(kernel, CLIENT, entry, CONNECT, "del client; held = 0; rest.append(2)")
    said = run_all(kernel, "%ctx goto 3")

    why = "__main__.Client 'db://x' could not be connected: ConnectionError: nobody answers; run the cell that made it"
    assert listed(said, "not restored: ") == {"client": why, "held['in'][0]": why}
    assert "connected again" not in said
    assert kernel.evaluate("('client' in globals(), type(held['in'][0]).__name__, rest)") == "(False, 'Lost', [1])"
    entry_again = run_all(kernel, ENTRY, "%ctx goto 3")
    assert "connected again: client (" in entry_again
    assert kernel.evaluate("client is held['in'][0]") == "True"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "fakedb.py").write_text(CLIENT, "utf-8")
    return tmp_path


SETUP = """
from fakedb import Client
from ctxkernel.state.ambient import reconnect
def connect(url):
    open('calls', 'a').write(url + ' ')
    return Client(url)
reconnect(Client, describe=lambda client: client.url, connect=connect)
"""


def test_a_connection_is_connected_again_in_a_new_kernel(start_kernel, library):
    first = start_kernel()
    run_all(first, SETUP, CONNECT)
    first.stop()
    second = start_kernel()
    run_all(second, SETUP)
    plan = second.run("%ctx resume --dry-run").data[0]["text/plain"]
    assert "connect      client: fakedb.Client db://x" in plan
    assert not (library / "calls").exists()
    said = run_all(second, "%ctx resume")

    assert "connected again: client (fakedb.Client db://x)" in said
    assert second.evaluate("(client.open, client is held['in'][0])") == "(True, True)"
    assert (library / "calls").read_text() == "db://x "


def test_without_its_entry_a_new_kernel_names_the_connection_and_the_next_step(start_kernel):
    first = start_kernel()
    run_all(first, CLIENT, ENTRY, ASLEEP)
    first.stop()
    second = start_kernel()
    said = run_all(second, "%ctx resume")
    assert (
        "not restored: client (no entry says how __main__.Client is connected; "
        "run the cell that calls reconnect() for it and go there again" in said
    )
    assert second.evaluate("rest") == "[1]"
    said = run_all(second, ENTRY, "%ctx goto 3")

    assert "connected again: client (__main__.Client db://x)" in said
    assert second.evaluate("(client is held['in'][0], type(client) is Client)") == "(True, True)"


def test_nothing_is_connected_for_a_stranger_s_session(start_kernel, library, tmp_path):
    first = start_kernel(env={"CTXKERNEL_HOME": str(tmp_path / "other home")})
    run_all(first, SETUP, CONNECT)
    first.stop()
    second = start_kernel()
    run_all(second, SETUP)

    assert "--trust" in second.run("%ctx resume").error["evalue"]
    assert not (library / "calls").exists()
    assert "connected again: client (" in run_all(second, "%ctx resume --trust")


def test_no_credential_of_a_connection_is_stored(start_kernel, tmp_path):
    """A description with a credential is refused, and the object's own attributes are not stored in its place."""
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = start_kernel(env=cache)
    source = ASLEEP.replace("'db://x'", "'db://me:' + 'hunter'[:] + '22@host/x'")
    run_all(first, CLIENT, ENTRY, source, "control = ['lies '[:] + 'in the data']")
    first.stop()
    second = start_kernel(env=cache)
    said = run_all(second, "%ctx resume")
    second.stop()

    assert re.search(r"not restored: client \(.*looks like a credential; leave it out", said)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"lies in the data" in path.read_bytes() for path in files)
    assert not [path for path in files if b"hunter22" in path.read_bytes()]


def test_an_interrupt_while_it_connects_leaves_everything_as_it_was(kernel, tmp_path):
    slow = ENTRY.replace("Client(url))", "(open('begun', 'w').close(), __import__('time').sleep(60)))")
    run_all(kernel, CLIENT, slow, CONNECT, "del client, held; rest.append(2)")
    stop = once((tmp_path / "begun").exists, kernel.manager.interrupt_kernel)
    ran = kernel.run("%ctx goto 3")
    stop.join()

    assert ran.status == "error"
    assert kernel.evaluate("('client' in globals(), rest)") == "(False, [1, 2])"


def test_a_connection_in_large_data_that_are_stored_in_the_background_is_connected_again(start_kernel, library):
    first = start_kernel()
    run_all(first, SETUP, "many = {'in': Client('db://x'), 'data': [[n] for n in range(400_000)]}", "0")
    run_all(first, "%ctx goto 3")  # a return waits until everything is stored
    first.stop()
    second = start_kernel()
    said = run_all(second, SETUP, "%ctx resume")

    assert "connected again: many['in'] (fakedb.Client db://x)" in said
    assert second.evaluate("(many['in'].open, len(many['data']))") == "(True, 400000)"
    assert "connected again" not in run_all(second, "many['data'].clear()", "%ctx goto 2")


def test_the_example_of_the_documentation_works(kernel):
    page = (Path(__file__).parent.parent / "docs" / "going-back.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(class Client.*?)```", page, re.DOTALL)
    run_all(kernel, "0", example, "client = Client('db://host/sales')", "del client")

    assert "connected again: client (__main__.Client db://host/sales)" in run_all(kernel, "%ctx goto 3")


def test_help_shows_how_an_entry_is_added(kernel):
    ran = kernel.run("from ctxkernel.state.ambient import reconnect\nreconnect?")

    text = ran.reply["payload"][0]["data"]["text/plain"]
    assert "reconnect(Client, describe=lambda client: client.url, connect=Client)" in text
