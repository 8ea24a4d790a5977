"""The oldest JupyterLab that is allowed, and Notebook 7; `python tests/front_ends.py` runs more, on more of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import front_ends
import pytest
from notebook_moves import follow_after_an_edit, labels, mark, run_all
from playwright.sync_api import BrowserContext, expect

from browser.conftest import Desk, Lab, NotebookDesk

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

CELLS = ["x = 1\nprint('x', x)", "y = x + 1\nprint('y', y)"]
THEIRS = (
    "Cannot read properties of undefined (reading 'schema')",
    "Command 'filebrowser:open-path' not registered.",
)
"""Page errors of Notebook 7 itself: its shortcuts and its file browser expect parts that come later, or never."""


@pytest.fixture
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server of the oldest JupyterLab, in an environment of its own."""
    python = front_ends.install(front_ends.OLDEST, tmp_path_factory.mktemp("oldest") / "environment")
    server = Lab(tmp_path_factory.mktemp("lab"), python=python)
    server.start()
    yield server
    server.stop()


def follow(desk: Any) -> None:
    """Go back after an edit, and show the cell as it was."""
    follow_after_an_edit(desk, 0, "\nx = 5")
    expect(desk.cell(0).locator(".jp-OutputArea")).to_contain_text("x 1")


@pytest.mark.timeout(900)  # with the installation
def test_the_oldest_jupyterlab_has_marks_follows_a_return_and_survives_a_reload(oldest: Lab, context: BrowserContext):
    """The version that pyproject.toml allows first, with the newest kernel."""
    desk = Desk(oldest, context.new_page(), "auto-own")
    run_all(desk, "oldest.ipynb", CELLS)
    assert desk.page.evaluate("jupyterapp.version").startswith(f"{front_ends.OLDEST}.")
    expect(mark(desk, 1)).to_contain_text("s2")
    expect(desk.page.locator(".ctxk-statusitem")).to_contain_text("s2")
    follow(desk)
    before = labels(desk)
    desk.page.keyboard.press("Control+s")
    desk.page.wait_for_function("!jupyterapp.shell.currentWidget.context.model.dirty")
    desk.page.goto(oldest.url("oldest.ipynb"))
    desk.settle().live()
    expect(desk.row("s2")).to_contain_text("y = x + 1")
    expect(mark(desk, 1)).to_contain_text("s2")
    assert labels(desk) == before
    assert desk.errors == []
    desk.page.close()


def test_notebook_7_has_marks_follows_a_return_and_logs_no_error_of_ours(lab: Lab, context: BrowserContext):
    """A page there has one notebook and no status bar; all else is as in JupyterLab."""
    desk = NotebookDesk(copy.copy(lab), context.new_page())
    logged: list[str] = []
    desk.page.on("console", lambda message: message.type == "error" and logged.append(message.text))
    run_all(desk, "seven.ipynb", CELLS)
    expect(mark(desk, 1)).to_contain_text("s2")
    follow(desk)
    desk.page.reload()
    desk.settle().live()
    expect(mark(desk, 1)).to_contain_text("s2")
    assert [error for error in desk.errors if not error.startswith(THEIRS)] == []
    assert [text for text in logged if "ctxk" in text] == []
    desk.page.close()
    lab.forget()
