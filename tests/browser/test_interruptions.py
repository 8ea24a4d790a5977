"""A page that reloads, loses its network or its kernel in mid-cell: marks and panel are right again by themselves."""

from __future__ import annotations

import copy
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from cable import Cable
from notebook_moves import CURRENT, LAB_ONLY, go_back, labels, mark, run_all
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

KERNEL = f"{CURRENT}.sessionContext.session.kernel"


def wait_for(name: str) -> str:
    """Return a cell that runs until a file is there."""
    return f"import pathlib, time\nwhile not pathlib.Path({name!r}).exists():\n    time.sleep(0.05)\nprint({name!r})"


@pytest.fixture
def cable(new_desk: Any) -> Iterator[Cable]:
    """The network between the page and the server; `new_desk` is behind it."""
    cable = Cable(new_desk.lab.port)
    new_desk.lab = copy.copy(new_desk.lab)
    new_desk.lab.port = cable.port
    yield cable
    cable.close()


def test_a_page_that_was_offline_for_several_cells_shows_what_ran_meanwhile(new_desk: Any, cable: Cable):
    """The cell that ran, the one behind it, and that the last one runs now."""
    desk = run_all(new_desk, "offline.ipynb", ["x = 1", "x += 1"], wait_for("go"), "y = x", wait_for("on"))
    desk.select(2)
    for _ in range(3):
        desk.enter()
    expect(mark(desk, 2)).to_contain_text("running")
    cable.cut()
    expect(desk.view).to_contain_text("The connection to the kernel is lost")
    (desk.lab.root / "go").touch()
    desk.page.wait_for_timeout(2000)
    cable.mend()
    expect(mark(desk, 2)).to_contain_text("s3", timeout=90_000)
    expect(mark(desk, 3)).to_contain_text("s4")
    expect(mark(desk, 4)).to_contain_text("running")
    (desk.lab.root / "on").touch()
    expect(mark(desk, 4)).to_contain_text("s5")
    expect(desk.view).not_to_contain_text("The connection to the kernel is lost")
    expect(desk.row("s5").locator(".ctxk-status")).to_contain_text("ok")
    dialog = desk.page.locator(".jp-Dialog")
    if dialog.count():  # JupyterLab's, about the server
        dialog.locator("button").last.click()
    go_back(desk, "s3")
    expect(mark(desk, 3)).to_contain_text("later")


def test_a_connection_that_jupyterlab_has_given_up_comes_back(desk: Any):
    """It does so where the server or a proxy closes the connection in good order, and does not try again."""
    run_all(desk, "closed.ipynb", ["x = 1"], wait_for("go"))
    desk.select(1)
    desk.enter()
    expect(mark(desk, 1)).to_contain_text("running")
    # Older JupyterLabs would try again at once.
    desk.page.evaluate(f"{{ {KERNEL}._reconnectLimit = 0; {KERNEL}._ws.close(1000) }}")
    desk.page.wait_for_function(f"{KERNEL}.connectionStatus === 'disconnected'")
    desk.page.evaluate(f"{KERNEL}._reconnectLimit = 7")
    expect(desk.view).to_contain_text("The connection to the kernel is lost")
    expect(mark(desk, 1)).to_have_attribute("aria-label", re.compile("this is the last known state"))
    (desk.lab.root / "go").touch()
    expect(mark(desk, 1)).to_contain_text("s2", timeout=60_000)
    expect(mark(desk, 1)).not_to_contain_text("running")
    expect(desk.view).not_to_contain_text("The connection to the kernel is lost")
    expect(mark(desk, 1)).not_to_have_attribute("aria-label", re.compile("this is the last known state"))


def test_a_page_that_is_reloaded_in_mid_cell_has_its_marks_while_the_cell_runs(new_desk: Any):
    """And when it ends; the cells of another branch are marked, too."""
    desk = run_all(new_desk, "reload.ipynb", ["x = 1", "x += 1\nprint(x)"], wait_for("go"))
    go_back(desk, "s1")
    expect(mark(desk, 1)).to_contain_text("later")
    desk.page.keyboard.press("Escape")
    desk.select(2)
    desk.enter()
    expect(mark(desk, 2)).to_contain_text("running")
    before = labels(desk)
    desk.page.keyboard.press("Control+s")
    desk.page.wait_for_function(f"!{CURRENT}.context.model.dirty")
    desk.reopen("reload.ipynb")
    # JupyterLab holds back what a page sends to a busy kernel for its first three seconds.
    expect(mark(desk, 2)).to_contain_text("running", timeout=60_000)
    assert [one.split(":")[0] for one in labels(desk)] == [one.split(":")[0] for one in before]
    expect(mark(desk, 1)).to_contain_text("later")
    (desk.lab.root / "go").touch()
    expect(mark(desk, 2)).to_contain_text(re.compile(r"s\d"), timeout=60_000)
    expect(mark(desk, 2)).not_to_contain_text("running")
    expect(desk.panel).to_have_attribute("data-phase", "live")


@LAB_ONLY
def test_of_two_notebooks_only_the_one_whose_kernel_was_restarted_in_mid_cell_changes(desk: Any):
    """The other one keeps its marks, its rows and its status; the restarted one says that nothing runs."""
    run_all(desk, "kept.ipynb", ["a = 1", "b = a\nprint(b)"])
    go_back(desk, "s1")
    expect(mark(desk, 1)).to_contain_text("later")
    kept = labels(desk)
    run_all(desk, "restarted.ipynb", ["c = 1\nprint(c)"], wait_for("go"))
    desk.select(1)
    desk.enter()
    expect(mark(desk, 1)).to_contain_text("running")
    desk.page.evaluate(f"{KERNEL}.restart()")
    expect(mark(desk, 0)).to_contain_text("unrecorded", timeout=60_000)
    expect(desk.page.locator(".ctxk-mark[data-state=running]:visible")).to_have_count(0)
    desk.live()
    expect(desk.view.locator(".ctxk-state")).to_contain_text("idle")
    desk.page.locator(".lm-TabBar-tab", has_text="kept.ipynb").click()
    assert labels(desk) == kept
    expect(desk.row("s2")).to_contain_text("b = a")
    expect(desk.page.locator(".ctxk-statusitem")).to_contain_text("s1")


def test_a_kernel_that_is_killed_in_mid_cell_leaves_no_mark_that_runs(desk: Any):
    """The page knows at once; the kernel that Jupyter starts offers to resume, and then the marks are as they were."""
    run_all(desk, "killed.ipynb", ["import os\nprint(os.getpid())"], wait_for("go"))
    pid = int(desk.cell(0).locator(".jp-OutputArea-output").inner_text())
    desk.select(1)
    desk.enter()
    expect(mark(desk, 1)).to_contain_text("running")
    os.kill(pid, signal.SIGKILL)
    running = desk.page.locator(".ctxk-mark[data-state=running]:visible")
    expect(running).to_have_count(0, timeout=60_000)
    desk.page.locator(".jp-Dialog").get_by_role("button", name="Ok").click()
    desk.live()
    desk.view.locator("[data-banner=resume]").get_by_role("button", name="Resume").click()
    expect(mark(desk, 0)).to_contain_text("s1")
    expect(running).to_have_count(0)
