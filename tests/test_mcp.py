"""An agent works in a live kernel over MCP: the official client drives the server, as Claude Code or Cursor does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from kernels import RunningKernel, StartKernel
from test_kernel import timeline
from test_panel import Front

if TYPE_CHECKING:
    from mcp.client.session import ClientSession

TOOLS = [
    "notebook",
    "timeline",
    "statement",
    "projection",
    "view",
    "run_cell",
    "goto",
    "undo",
    "rerun",
    "diff",
    "name",
    "note",
    "redact",
]


class Agent:
    """A client of the server, driven from a test's thread."""

    def __init__(self, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        from mcp.client.stdio import StdioServerParameters  # an import of a second, which only few workers need

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "ctxkernel", "mcp", *arguments],
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )
        self._ready: asyncio.Queue[Any] = asyncio.Queue()
        self._done = asyncio.Event()
        self._task = asyncio.run_coroutine_threadsafe(self._serve(), self._loop)
        self.session: ClientSession = asyncio.run_coroutine_threadsafe(self._ready.get(), self._loop).result(60)

    async def _serve(self) -> None:
        from mcp.client.session import ClientSession
        from mcp.client.stdio import stdio_client
        from mcp.types import Implementation

        about = Implementation(name="test-agent", version="1")
        async with (
            stdio_client(self.parameters) as (read, write),
            ClientSession(read, write, client_info=about) as session,
        ):
            await session.initialize()
            await self._ready.put(session)
            await self._done.wait()

    def wait(self, made: Any) -> Any:
        """Return what a coroutine of the session gives."""
        return asyncio.run_coroutine_threadsafe(made, self._loop).result(90)

    def call(self, tool: str, **arguments: Any) -> str:
        """Return the text of a tool's result; an error begins with `error: `."""
        result = self.wait(self.session.call_tool(tool, arguments))
        text = "\n".join(one.text for one in result.content if one.type == "text")
        return f"error: {text}" if result.is_error else text

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        with contextlib.suppress(Exception):  # a test may have ended the server
            self._task.result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)


@pytest.fixture(scope="module")
def agent(shared_kernel: RunningKernel) -> Iterator[Agent]:
    made = Agent("--kernel", str(shared_kernel.manager.connection_file), cwd=shared_kernel.folder)
    yield made
    made.close()


def call_id(text: str) -> str:
    """Return the id under which the state of a cell is asked for."""
    return re.search(r"statement\(id='(\w+)'", text)[1]


def test_the_tools_have_the_names_that_the_documentation_gives(agent: Agent):
    """Their definitions are short: a client sends them with every request of its model."""
    tools = agent.wait(agent.session.list_tools()).tools
    assert sorted(one.name for one in tools) == sorted(TOOLS)
    assert len(json.dumps([one.model_dump(mode="json", exclude_none=True) for one in tools])) < 9000
    assert {one.name for one in tools if one.annotations.read_only_hint} == set(TOOLS[:5]) | {"diff"}


def test_a_cell_of_an_agent_waits_and_runs_when_the_person_approves(shared_kernel: RunningKernel, agent: Agent):
    """Its outcome is read by the id that `run_cell` gave."""
    shared_kernel.run("x = 41")
    told = agent.call("run_cell", code="x += 1\nprint('now', x)", wait=5)
    assert "waits for the person's approval" in told
    assert shared_kernel.evaluate("x") == "41"
    assert "waits" in agent.call("statement", id=call_id(told))
    shared_kernel.run("%ctx approve")
    done = agent.call("statement", id=call_id(told), wait=5)
    assert "now 42" in done
    assert "~ x" in done
    last = timeline(shared_kernel)[-1]
    assert (last["author"], last["tags"]["agent"]) == ("agent", "test-agent")
    assert shared_kernel.evaluate("x") == "42"


def test_the_person_may_edit_or_reject_it_and_the_agent_is_told(shared_kernel: RunningKernel, agent: Agent):
    first = agent.call("run_cell", code="edited = 1", wait=5)
    second = agent.call("run_cell", code="rejected = 1", wait=5)
    shared_kernel.run("%%ctx edit\nedited = 2")
    shared_kernel.run("%ctx reject not in this notebook")
    assert "edited = 2" in agent.call("statement", id=call_id(first), wait=5)
    assert "not in this notebook" in agent.call("statement", id=call_id(second), wait=5)
    assert shared_kernel.evaluate("(edited, 'rejected' in globals())") == "(2, False)"


def test_an_agent_approves_nothing_itself(shared_kernel: RunningKernel, agent: Agent):
    """Neither by a command nor by code that calls one."""
    shared_kernel.run("%ctx mode auto")
    waits = agent.call("run_cell", code="%ctx mode auto", wait=5)
    assert "only a person can" in waits
    assert "only a person can" in agent.call("run_cell", code="get_ipython().run_line_magic('ctx', 'approve')", wait=5)
    shared_kernel.run("%ctx mode ask")


def test_in_mode_auto_cells_run_at_once_up_to_the_bound(shared_kernel: RunningKernel, agent: Agent):
    """Then the person has to look."""
    shared_kernel.run("%ctx config ask_rounds 2")
    shared_kernel.run("%ctx mode auto")
    assert "auto 0" in agent.call("run_cell", code="print('auto', 0)")
    assert "auto 1" in agent.call("run_cell", code="print('auto', 1)")
    assert "waits" in agent.call("run_cell", code="print('auto', 2)", wait=5)
    shared_kernel.run("%ctx reject")
    shared_kernel.run("%ctx mode off")
    assert "mode off" in agent.call("run_cell", code="1", wait=5)
    shared_kernel.run("%ctx mode ask")
    shared_kernel.run("%ctx config ask_rounds --reset")


def test_a_cell_on_what_the_person_changed_since_does_not_run(shared_kernel: RunningKernel, agent: Agent):
    """It runs when the agent has looked again."""
    shared_kernel.run("%ctx mode auto")
    shared_kernel.run("shared = 1")
    agent.call("timeline")
    shared_kernel.run("shared = 2")
    told = agent.call("run_cell", code="print(shared)", wait=5)
    assert told.startswith("not run")
    assert "shared" in told
    agent.call("timeline")
    assert "[stdout]\n2" in agent.call("run_cell", code="print(shared)")
    shared_kernel.run("%ctx mode ask")


def test_an_agent_goes_back_and_forth_and_what_it_did_is_taken_back(shared_kernel: RunningKernel, agent: Agent):
    """By its own tools in mode auto, and by the person's `%ctx undo`."""
    shared_kernel.run("%ctx mode auto")
    shared_kernel.run("moved = 'before'")
    agent.call("name", name="here")
    agent.call("run_cell", code="moved = 'after'")
    assert "HEAD" in agent.call("goto", id="here")
    assert shared_kernel.evaluate("moved") == "'before'"
    agent.call("undo")
    assert shared_kernel.evaluate("moved") == "'after'"
    shared_kernel.run("%ctx undo")
    assert shared_kernel.evaluate("moved") == "'before'"
    assert "moved" in agent.call("diff", old="here", new="s1")
    shared_kernel.run("%ctx mode ask")


def test_an_agent_runs_the_cells_again_that_changes_affect(kernel: RunningKernel):
    for cell, source in (("a", "a = 1"), ("b", "b = a + 1"), ("c", "c = 0"), ("a", "a = 5")):
        kernel.run(source, metadata={"cellId": cell})
    kernel.run("%ctx mode auto")
    agent = Agent("--kernel", str(kernel.manager.connection_file), cwd=kernel.folder)
    try:
        told = agent.call("rerun", affected=True)
    finally:
        agent.close()
    assert not told.startswith("error")
    assert kernel.evaluate("(a, b)") == "(5, 6)"


def test_a_note_and_a_name_do_not_wait(shared_kernel: RunningKernel, agent: Agent):
    agent.call("note", text="looks skewed")
    agent.call("name", name="looked")
    assert "looks skewed" in shared_kernel.run("%ctx projection --json").stdout
    assert "[looked]" in agent.call("timeline")


def test_an_agent_views_variables_files_and_outputs_within_a_budget(shared_kernel: RunningKernel, agent: Agent):
    """Not what is private, not a redacted output, no file outside of the notebook's folder."""
    (shared_kernel.folder / "data.csv").write_text("a,b\n1,2\n")
    shared_kernel.run("rows = [{'a': n} for n in range(1000)]\nsecret_plan = 'xyzzy'\nprint('the output ' * 40)")
    number = timeline(shared_kernel)[-1]["statement_id"]
    assert "1,000" in agent.call("view", name="rows", budget=200)
    assert "a" in agent.call("view", name="data.csv")
    assert "the output" in agent.call("view", name=number, level=0)
    assert "outside of the notebook's folder" in agent.call("view", name="/etc/passwd")
    shared_kernel.run("%ctx private secret_plan")
    assert "is private" in agent.call("view", name="secret_plan")
    assert "secret_plan" not in agent.call("timeline") + agent.call("statement", id=number)
    shared_kernel.run(f"%ctx redact {number} it printed a line")
    assert "redacted" in agent.call("view", name=number)
    assert "the output the output" not in agent.call("statement", id=number)


def test_what_runs_is_told_and_its_end_is_waited_for(shared_kernel: RunningKernel, agent: Agent):
    """The timeline can be read meanwhile."""
    shared_kernel.run("%ctx mode auto")
    told = agent.call("run_cell", code="import time; time.sleep(1.5); print('slept')", wait=0.2)
    number = re.search(r"s\d+", told)[0]
    assert "running" in told
    assert f"{number}.1" in agent.call("timeline")
    assert "slept" in agent.call("statement", id=number, wait=10)
    shared_kernel.run("%ctx mode ask")


def test_the_resources_are_there_and_their_changes_are_told(shared_kernel: RunningKernel, agent: Agent):
    """To a client of the newest protocol, which listens."""
    shared_kernel.run("held = ['the text of a handle']\nseen = view(held)")
    listed = agent.wait(agent.session.list_resources()).resources
    assert sorted(str(one.uri) for one in listed) == [
        "ctxkernel://handles",
        "ctxkernel://projection",
        "ctxkernel://timeline",
    ]
    found = agent.wait(agent.session.read_resource("ctxkernel://handles")).contents[0]
    assert "the text of a handle" in found.text

    async def told() -> str:
        from mcp import Client

        async with Client(agent.parameters) as client:
            await client.call_tool("timeline", {})
            async with client.listen(resource_subscriptions=["ctxkernel://timeline"]) as changes:
                await asyncio.to_thread(shared_kernel.run, "changed = 1")
                async for event in changes:
                    return str(event.uri)
        return ""

    assert agent.wait(told()) == "ctxkernel://timeline"


def test_what_cannot_be_done_is_said_with_the_next_step(agent: Agent):
    assert "there is no statement s9999" in agent.call("statement", id="s9999")
    assert "no variable and no file" in agent.call("view", name="nothing_here")
    assert "the notebook's file is not known" in agent.call("notebook")


def test_a_notebook_without_a_kernel_gets_one_of_its_own(tmp_path: Path):
    """It is resumed, and its notebook is read from the file."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 41", id="first")])
    nbformat.write(notebook, tmp_path / "note.ipynb")
    agent = Agent("note.ipynb", "--mode", "auto", cwd=tmp_path)
    try:
        assert "not run on this branch" in agent.call("notebook")
        assert "nothing has been run" in agent.call("timeline")
        assert "[stdout]\n41" in agent.call("run_cell", code="x = 41\nprint(x)")
    finally:
        agent.close()
    again = Agent("note.ipynb", "--mode", "auto", cwd=tmp_path)
    try:
        assert "s1.1 test-agent ok" in again.call("timeline")
        assert "42" in again.call("run_cell", code="print(x + 1)")
    finally:
        again.close()


def test_a_cell_of_an_agent_replaces_the_text_of_a_cell_of_the_notebook(start_kernel: StartKernel, tmp_path: Path):
    """The panel is told what to put into it, when the person has approved; without a front end it is refused."""
    cells = [nbformat.v4.new_code_cell(text, id=f"{n}234567890abc") for n, text in enumerate(("x = 41", "x"))]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "note.ipynb")
    kernel = start_kernel(tmp_path)
    kernel.run("x = 41", metadata={"cellId": cells[0].id})
    agent = Agent("--kernel", str(kernel.manager.connection_file), cwd=tmp_path)
    try:
        assert "[0] code 02345678, ran as s1.1" in agent.call("notebook")
        assert "no front end shows note.ipynb" in agent.call("run_cell", code="x = 42", cell="02345678")
        front = Front(kernel)
        assert "no code cell of the saved notebook has an id that begins" in agent.call("run_cell", code="1", cell="9")
        waits = agent.call("run_cell", code="x = 42", cell="02345678", wait=5)
        card = front._told(lambda data: data["type"] == "proposal")["proposal"]
        assert card["told"] == "test-agent wants to replace the cell s1 (x = 41) by this text, and run it."
        kernel.client.execute("%ctx approve")
        told = front._told(lambda data: data["type"] == "turn" and data["statement"]["author"] == "agent")
        copy = told["insert"]
        assert (copy["after"], copy["into"], copy["source"]) == (cells[0].id, True, "x = 42")
        assert "x = 42" in agent.call("statement", id=call_id(waits), wait=10)
        [own] = [one for one in timeline(kernel) if one["author"] == "agent"]
        assert own["cell_id"] == cells[0].id
    finally:
        agent.close()


def test_one_server_is_for_all_notebooks_with_a_kernel(start_kernel: StartKernel, tmp_path: Path):
    """With one it is that one; of several the agent chooses."""
    runtime = {"JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    (tmp_path / "runtime").mkdir()

    def begin(name: str) -> None:
        nbformat.write(nbformat.v4.new_notebook(), tmp_path / f"{name}.ipynb")
        kernel = start_kernel(tmp_path, notebook=f"{name}.ipynb")
        kernel.run(f"here = {name!r}")
        file = Path(kernel.manager.connection_file)
        (tmp_path / "runtime" / f"kernel-{name}.json").write_bytes(file.read_bytes())

    begin("a")
    agent = Agent("--mode", "auto", cwd=tmp_path, env=runtime)
    try:
        assert {one.name for one in agent.wait(agent.session.list_tools()).tools} - set(TOOLS) == {"notebooks"}
        assert "here = 'a'" in agent.call("timeline")
        begin("b")
        assert "here = 'a'" in agent.call("timeline")
        listed = agent.call("notebooks")
        assert f"* {tmp_path / 'a.ipynb'}" in listed
        assert f"- {tmp_path / 'b.ipynb'}" in listed
        assert f"* {tmp_path / 'b.ipynb'}" in agent.call("notebooks", choose="b.ipynb")
        assert "here = 'b'" in agent.call("timeline")
        assert "there is no such notebook" in agent.call("notebooks", choose="c.ipynb")
    finally:
        agent.close()
    agent = Agent(cwd=tmp_path, env=runtime)
    try:
        assert "2 notebooks with a ctxkernel: call notebooks" in agent.call("timeline")
    finally:
        agent.close()


def test_over_http_it_answers_on_loopback_with_its_token_only(shared_kernel: RunningKernel):
    """Each request needs it."""
    import httpx

    arguments = ["--kernel", str(shared_kernel.manager.connection_file), "--http"]
    server = subprocess.Popen([sys.executable, "-m", "ctxkernel", "mcp", *arguments], stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address, header = (server.stderr.readline().strip() for _ in range(2))
        assert address.startswith("http://127.0.0.1:")
        name, _, token = header.partition(": ")
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"Accept": "application/json, text/event-stream"}
        assert httpx.post(address, json=body, headers=accept).status_code == 401
        assert httpx.post(address, json=body, headers={**accept, name: token + "x"}).status_code == 401
        assert httpx.post(address, json=body, headers={**accept, name: token}).status_code != 401
    finally:
        server.terminate()
        server.wait(20)
