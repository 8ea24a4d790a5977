"""Copies of a model's cells in the notebook (`insert_cells`): what the panel is told, and that none runs twice."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from kernels import starter
from test_panel import Front

from ctxkernel.testing import MessagesServer, answer, call, say

GROWS = "rows.append(len(rows))\nprint('grown')"
COPY = {"ctxkernel": {"statement": "s4", "ask": "s3.1", "after": "cell-ask"}}


@pytest.fixture
def kernel(tmp_path: Path):
    """A kernel in which a model has run two cells, and what its panel was told to insert."""
    script = [
        answer([say("I grow <b>it</b>."), call("run_cell", {"code": GROWS}), call("run_cell", {"code": "1 / 0"})]),
        answer([call("run_cell", {"code": "silent = 1"})]),
        say("Done."),
    ]
    with MessagesServer(script) as server, contextlib.contextmanager(starter)(tmp_path) as start:
        kernel = start(env={"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "test"})
        kernel.run("rows = []")
        kernel.run("%ctx config insert_cells true")
        front = Front(kernel)
        front.run("%%ask --mode auto\ngrow it", cell_id="cell-ask")
        kernel.inserted = [front._told(lambda data: data["type"] == "turn").get("insert") for _ in range(6)]
        yield kernel


def grown(kernel) -> str:
    return kernel.run("print(len(rows))").stdout.strip()


def copy(kernel, source: str):
    return kernel.run(source, metadata={**COPY, "cellId": "copy"})


def test_of_several_pages_the_one_that_asked_inserts_the_cells(tmp_path: Path):
    """With jupyter-collaboration two pages have one document. A request of no page is for the newest page."""
    with MessagesServer([say("One."), say("Two.")]) as server, contextlib.contextmanager(starter)(tmp_path) as start:
        kernel = start(env={"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "test"})
        kernel.run("%ctx config insert_cells true")
        front = Front(kernel)
        session = front.client.session
        own, session.session = session.session, "of the other page"
        opened = {"comm_id": "other", "target_name": "ctxkernel.panel", "data": {"protocol": 1}}
        front._send("comm_open", opened)
        front._told(lambda data: data["type"] == "snapshot")
        for asks, expected in ((own, "p"), ("of no page", "other")):
            session.session = asks
            done = kernel.run("%%ask --mode auto\nsay it", metadata={"cellId": "cell-ask"})
            told = [one for one in done.outputs if one["type"] == "comm_msg"]
            assert [one["comm_id"] for one in told if one["data"].get("insert")] == [expected]


def test_what_a_model_said_and_ran_comes_as_cells_in_order(kernel):
    """Words as Markdown that holds no HTML, cells with their outputs, errors too; all below the ask."""
    said, first, second, nothing_said, third, last = kernel.inserted
    inserted = [one for one in kernel.inserted if one is not None]
    assert nothing_said is None
    assert [one["cell_type"] for one in inserted] == ["markdown", "code", "code", "code", "markdown"]
    assert {one["after"] for one in inserted} == {"cell-ask"}
    assert [one["ends"] for one in inserted] == [False, False, False, False, True]
    assert third["source"] == "silent = 1"
    assert "<b>" not in said["source"]
    assert first["source"] == GROWS
    assert first["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "grown\n"}]
    assert second["outputs"][-1]["ename"] == "ZeroDivisionError"
    assert second["execution_count"] == first["execution_count"] + 1
    assert last["source"] == "Done."


def test_a_copy_right_after_its_ask_is_shown_and_not_run(kernel):
    """Once for each; it leaves no statement."""
    ran = copy(kernel, GROWS)
    assert ran.status == "ok"
    assert "not run again" in ran.stdout
    assert "grown" in ran.stdout
    assert grown(kernel) == "1"


@pytest.mark.parametrize("between", ["x = 1", "%ctx goto s1"])
def test_a_copy_after_anything_else_is_a_cell_as_any(kernel, between):
    """Another state: what the cell gave then says nothing of now."""
    kernel.run(between)
    before = grown(kernel)
    assert "not run again" not in copy(kernel, GROWS).stdout
    assert int(grown(kernel)) == int(before) + 1


def test_an_edited_copy_and_the_same_one_again_run(kernel):
    """Only what the ask has run itself is not run again."""
    copy(kernel, GROWS)
    copy(kernel, GROWS)
    assert grown(kernel) == "2"
    copy(kernel, f"{GROWS}  # edited")
    assert grown(kernel) == "3"
