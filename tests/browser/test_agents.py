"""An agent's cell in JupyterLab: it waits in the panel, a click runs it, and it stands in the notebook then."""

from __future__ import annotations

import re

import pytest
from notebook_moves import mark
from playwright.sync_api import expect
from test_mcp import Agent, call_id

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]


def test_an_agents_cell_is_approved_in_the_panel_and_put_into_the_notebook(desk, lab):
    """The agent finds the notebook's kernel by the notebook's name, and is told the outcome."""
    desk.open("agent.ipynb", ["%ctx config insert_cells true", "x = 41", "after = 1"]).live()
    desk.select(0)
    desk.enter("s1")
    desk.enter("s2")
    runtime = {"JUPYTER_RUNTIME_DIR": str(lab.folder / "jupyter_runtime_dir")}
    agent = Agent("agent.ipynb", "--attach", cwd=lab.root, env=runtime)
    try:
        waits = agent.call("run_cell", code="x += 1\nprint('now', x)", wait=10)
        assert "waits for the person's approval" in waits
        card = desk.view.locator(".ctxk-waits")
        expect(card).to_contain_text("test-agent wants to run this cell")
        expect(card).to_contain_text("now")
        card.get_by_role("button", name="Run", exact=True).click()
        expect(card).to_be_hidden()
        assert "now 42" in agent.call("statement", id=call_id(waits), wait=20)
        expect(desk.cell(2)).to_contain_text("now 42")
        expect(desk.view.locator(".ctxk-tag", has_text="test-agent")).to_have_count(1)
        expect(mark(desk, 2)).to_contain_text("s4")
        expect(mark(desk, 2)).to_contain_text("copy")
        reading = agent.call("notebook")
        assert "x = 41" in reading
        assert desk.errors == []
    finally:
        agent.close()


def test_an_agent_replaces_the_text_of_a_cell_and_the_old_text_is_kept(desk, lab):
    """The cell has the agent's text and output then, and its mark says that they are of now."""
    desk.open("edited.ipynb", ["x = 41", "print('x is', x)"]).live()
    desk.select(0)
    desk.enter("s1")
    desk.enter("s2")
    runtime = {"JUPYTER_RUNTIME_DIR": str(lab.folder / "jupyter_runtime_dir")}
    agent = Agent("edited.ipynb", "--attach", cwd=lab.root, env=runtime)
    try:
        [cell] = re.findall(r"\[1\] code ([\w-]+), ran as s2", agent.call("notebook"))
        agent.call("run_cell", code="print('twice', 2 * x)", cell=cell, wait=10)
        card = desk.view.locator(".ctxk-waits")
        expect(card).to_contain_text("test-agent wants to replace the cell s2 (print('x is', x)) by this text")
        card.get_by_role("button", name="Run", exact=True).click()
        expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("twice 82")
        expect(desk.cell(1).locator(".jp-InputArea")).to_contain_text("print('twice', 2 * x)")
        expect(mark(desk, 1)).to_contain_text("s4")
        expect(mark(desk, 1)).to_have_attribute("data-state", "fresh")
        mark(desk, 1).click()
        expect(desk.page.get_by_role("button", name="Compare the kept text…")).to_be_visible()
        assert desk.errors == []
    finally:
        agent.close()
