"""`%load_ext ctxkernel` in a stock kernel: marks, panel and status bar are those of a ctxkernel."""

from __future__ import annotations

import re
from typing import Any

import pytest
from notebook_moves import CURRENT, follow_after_an_edit, labels, mark
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

CELLS = ["before = 1\nprint(before)", "%load_ext ctxkernel", "x = 1\nprint('x', x)", "x += 1\nprint('x', x)"]


def test_a_stock_kernel_that_loads_the_extension_has_marks_and_a_status(new_desk: Any):
    """From the next cell on, and the panel opens, as it does for a ctxkernel; a return is followed."""
    desk = new_desk.open("stock.ipynb", CELLS, kernel="python3")
    desk.select(0)
    desk.enter()
    desk.enter()
    expect(mark(desk, 0)).to_contain_text("unrecorded")
    expect(mark(desk, 1)).to_contain_text("unrecorded")  # it has a number and no output
    desk.live()
    desk.enter()
    desk.enter("s2")
    expect(mark(desk, 3)).to_contain_text("s2")
    if desk.status_bar:
        expect(desk.page.locator(".ctxk-statusitem")).to_contain_text("s2")

    follow_after_an_edit(desk, 2, " # other")
    assert desk.page.evaluate(f"{CURRENT}.content.widgets[2].model.sharedModel.getSource()") == CELLS[2]


def test_the_marks_of_a_stock_kernel_come_back_after_a_reload_and_go_with_a_restart(new_desk: Any):
    """After a restart the extension is not loaded: the panel says so, and the marks come with the next %load_ext."""
    desk = new_desk.open("again.ipynb", CELLS, kernel="python3")
    desk.select(0)
    for _ in CELLS:
        desk.enter()
    expect(mark(desk, 3)).to_contain_text("s2")
    before = labels(desk)
    desk.page.keyboard.press("Control+s")
    desk.page.wait_for_function(f"!{CURRENT}.context.model.dirty")
    desk.reopen("again.ipynb")
    desk.settle()
    expect(mark(desk, 3)).to_contain_text("s2")
    assert labels(desk) == before
    desk.live()

    desk.page.evaluate(f"{CURRENT}.sessionContext.session.kernel.restart()")
    expect(desk.view.locator("[data-phase=other]")).to_contain_text("%load_ext ctxkernel", timeout=60_000)
    expect(desk.page.locator(".ctxk-mark:visible")).to_have_count(0)
    expect(desk.page.locator(".ctxk-statusitem")).to_be_hidden()
    desk.select(1)
    desk.enter()
    desk.live()
    expect(mark(desk, 3)).to_contain_text("unrecorded")
    desk.enter()
    expect(mark(desk, 2)).to_contain_text(re.compile(r"s\d"))
