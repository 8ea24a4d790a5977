"""An agent's cell in JupyterLab: it waits in the panel, a click runs it, and it stands in the notebook then."""

from __future__ import annotations

import pytest
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
        reading = agent.call("notebook")
        assert "x = 41" in reading
        assert desk.errors == []
    finally:
        agent.close()
