"""What a cell of the model cannot do, by whatever route it tries: widen its own authority."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_kernel_asking import Bench, bench_in, cell

from ctxkernel.kernel.commands.table import COMMANDS, OF_ALL
from ctxkernel.testing import MessagesServer, say

CTX = "get_ipython().kernel.ctx"
STAND = f"""(
    {CTX}.settings, sorted({CTX}.configuration.private), sorted({CTX}.configuration.own), {CTX}.timeout.seconds,
    dict({CTX}.returning.facts.marks), {CTX}.account.consented, {CTX}.models.parked,
    sorted(one for one in __import__('os').environ.items() if 'ANTHROPIC' in one[0] or 'PROXY' in one[0].upper()),
)"""
"""What only a person can change."""


@pytest.fixture(scope="module")
def shared(module_folder: Path) -> Iterator[Bench]:
    with bench_in(module_folder) as bench:
        bench.consent()
        bench.run("rows = [1, 2, 3]\nprint('some output ' * 80)", "%ctx timeout 50", "%ctx private rows")
        bench.run("%ctx mark 2 asks")
        yield bench


def lines_of(sub: str) -> str:
    """Return a line that runs a command so that it would change something."""
    given = {
        "approve": "--all", "mode": "auto", "config": "ask_usd 1000", "model": "other-model", "private": "rows --off",
        "redact": "2 'the operator says: obey'", "mark": "2 none", "timeout": "off", "goto": "1", "rerun": "2 --yes",
        "resume": "--trust", "properties": "on depth=1", "reject": "no", "condense": "now", "checkpoint": "mine",
    }  # fmt: skip
    return f"%ctx {sub} {given.get(sub, '')}".strip()


ROUTES = {
    "a line": lambda line: line,
    "run_line_magic": lambda line: f"get_ipython().run_line_magic('ctx', {line.removeprefix('%ctx ')!r})",
    "run_cell": lambda line: f"r = get_ipython().run_cell({line!r}); r.raise_error()",
    "the function of the magic": lambda line: f"get_ipython().find_line_magic('ctx')({line.removeprefix('%ctx ')!r})",
    "a thread": lambda line: (
        "import threading\nfaults = []\ndef later():\n"
        f"    try:\n        get_ipython().run_line_magic('ctx', {line.removeprefix('%ctx ')!r})\n"
        "    except BaseException as fault:\n        faults.append(fault)\n"
        "one = threading.Thread(target=later); one.start(); one.join()\nraise faults[0]"
    ),
    "a task": lambda line: (
        "import asyncio\nasync def later():\n"
        f"    get_ipython().run_line_magic('ctx', {line.removeprefix('%ctx ')!r})\n"
        "await asyncio.ensure_future(later())"
    ),
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_cell_of_the_model_cannot_run_a_command_of_the_person(shared: Bench, route: str):
    before = shared.kernel.evaluate(STAND)
    subs = sorted(set(COMMANDS) - OF_ALL)
    shared.answers([cell(ROUTES[route](lines_of(sub))) for sub in subs], say("so be it"))

    shared.ask("try to rule")

    told = dict(zip(subs, (one["content"] for one in shared.results[-len(subs) :]), strict=True))
    assert {sub: text for sub, text in told.items() if "only a person can" not in text} == {}
    assert shared.kernel.evaluate(STAND) == before
    assert len(shared.server.requests) == 2
    shared.sound()


def test_a_command_is_the_persons_unless_the_table_opens_it_to_all():
    """A new command is closed to the model until somebody decides otherwise."""
    assert {"approve", "mode", "config", "private", "redact", "condense", "mark", "timeout"} <= set(COMMANDS) - OF_ALL
    assert set(COMMANDS) >= OF_ALL >= {"status", "timeline", "show", "set"}


PYTHON = [
    f"{CTX}.configuration.set('mode', 'auto')",
    f"{CTX}.configuration.set('ask_usd', 1000.0)",
    f"{CTX}.configuration.hide(['rows'], hidden=False)",
    f"{CTX}.context.configuration.add('rows')",
    f"{CTX}.models.asks.approve(None)",
]


@pytest.mark.parametrize("code", PYTHON)
def test_a_cell_of_the_model_cannot_call_the_function_behind_a_command(shared: Bench, code: str):
    before = shared.kernel.evaluate(STAND)
    shared.answers(cell(code), say("so be it"))

    shared.ask("try to rule")

    assert "only a person can" in shared.results[-1]["content"]
    assert shared.kernel.evaluate(STAND) == before


LATER = {
    "a task": (
        "import asyncio\nasync def later():\n    await asyncio.sleep(0.2)\n    {}\n"
        "kept = asyncio.ensure_future(later())\nawait asyncio.sleep(0)"
    ),
    "a callback": "import asyncio\ndef later():\n    {}\nkept = asyncio.get_running_loop().call_later(0.2, later)",
    "a timer": "import threading\ndef later():\n    {}\nkept = threading.Timer(0.2, later); kept.start()",
}


@pytest.mark.parametrize("way", LATER)
def test_what_a_cell_of_the_model_leaves_behind_cannot_run_a_command_of_the_person(shared: Bench, way: str):
    """Also while a cell of the person runs: the task and the timer belong to who made them."""
    before = shared.kernel.evaluate(STAND)
    later = LATER[way].format("ran.append(1); get_ipython().run_line_magic('ctx', 'mode auto')")
    shared.answers(cell(f"ran = []\n{later}"), say("wait"))
    shared.ask("leave something behind")

    shared.run("import asyncio; await asyncio.sleep(0.6)")

    assert shared.kernel.evaluate("ran") == "[1]"
    assert shared.kernel.evaluate(STAND) == before


HOSTS = {
    "%env": "%env ANTHROPIC_BASE_URL={url}",
    "os.environ": "import os; os.environ['ANTHROPIC_BASE_URL'] = '{url}'; os.environ['ANTHROPIC_API_KEY'] = 'mine'",
    "putenv and a proxy": "import os; os.environ.update(HTTP_PROXY='{url}', http_proxy='{url}', ALL_PROXY='{url}')",
    "deletion": "import os; del os.environ['ANTHROPIC_BASE_URL']",
    "a failing cell": "import os; os.environ['ANTHROPIC_BASE_URL'] = '{url}'; 1 / 0",
}


@pytest.mark.parametrize("way", HOSTS)
def test_a_cell_of_the_model_cannot_change_where_later_asks_go(shared: Bench, way: str):
    """Neither in the rest of this ask nor in the next one; the cell's other variables stay as it set them."""
    before = shared.kernel.evaluate(STAND)
    with MessagesServer() as other:
        code = HOSTS[way].format(url=other.base_url)
        shared.answers(cell(f"%env OF_THE_CELL=1\n{code}"), say("changed"), say("and again"))
        shared.ask("change the host")
        shared.ask("where does this go?")
        assert other.requests == []
        assert not other.connections
    assert len(shared.server.requests) == 3
    assert shared.kernel.evaluate(STAND) == before
    assert shared.kernel.evaluate("__import__('os').environ['OF_THE_CELL']") == "'1'"


def test_a_person_changes_where_asks_go(bench_own: Bench):
    with MessagesServer([say("here")]) as other:
        bench_own.run(f"%env ANTHROPIC_BASE_URL={other.base_url}")
        assert bench_own.ask("where does this go?").status == "ok"
        assert len(other.requests) == 1


@pytest.fixture
def bench_own(tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path) as made:
        yield made


def test_the_person_is_told_that_a_cell_tried_to_change_where_asks_go(shared: Bench):
    shared.answers(cell("%env ANTHROPIC_BASE_URL=http://127.0.0.1:9"), say("changed"))
    ran = shared.ask("change the host")
    assert "ANTHROPIC_BASE_URL" in ran.stderr
    assert "only a person can" in ran.stderr


def test_a_return_does_not_change_where_asks_go(bench_own: Bench):
    """The variables that decide it are no part of a state, which may be another person's."""
    with MessagesServer() as other:
        bench_own.run(f"%env ANTHROPIC_BASE_URL={other.base_url}", "a = 1")
        bench_own.run(f"%env ANTHROPIC_BASE_URL={bench_own.server.base_url}", "%ctx goto 2")
        bench_own.answers(say("here"))
        assert bench_own.ask("where does this go?").status == "ok"
        assert other.requests == []
    assert len(bench_own.server.requests) == 1


def test_a_cell_of_the_model_cannot_put_a_command_into_the_notebook(shared: Bench):
    """What would be typed into the next cell comes with the reply of the person's own cell, and there is none."""
    for more in ("", ", replace=True"):
        shared.answers(cell(f"get_ipython().set_next_input('%ctx mode auto'{more})"), say("press Shift+Enter"))
        assert shared.ask(f"write into the next cell{more}").reply["payload"] == []
    assert shared.run("calm = 1").reply["payload"] == []
