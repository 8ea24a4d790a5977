"""A day's work by the keyboard alone: no mouse, and no focus that a test sets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from notebook_moves import CURRENT, mark, press, run_all
from playwright.sync_api import expect

from ctxkernel.testing import answer, call, say

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

CELLS = ["rows = [1, 2, 3]\nprint('rows', rows)", "total = sum(rows)\ntotal", "print('total', total)", ""]


def has_keyboard(desk: Any, selector: str) -> None:
    """Wait until the keyboard is in an element that the selector finds."""
    desk.page.wait_for_function("selector => document.activeElement?.closest(selector)", arg=selector)


def notebook_has_keyboard(desk: Any) -> None:
    """Wait until keys go to the notebook, in command mode: to an element in it, as its shortcuts ask for."""
    has_keyboard(desk, ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook.jp-mod-commandMode *")


def go_to_cell(desk: Any, index: int) -> None:
    """Select a cell by arrow keys."""
    notebook_has_keyboard(desk)
    at = desk.page.evaluate(f"{CURRENT}.content.activeCellIndex")
    for _ in range(abs(index - at)):
        desk.page.keyboard.press("ArrowDown" if index > at else "ArrowUp")
    desk.page.wait_for_function(f"{CURRENT}.content.activeCellIndex === {index}")
    notebook_has_keyboard(desk)


def test_a_day_s_work_needs_no_mouse(new_desk: Any, messages: Any, tmp_path: Path):
    """Run, go back, follow, compare, ask, approve, undo, search, save; after each the keyboard is where one goes on."""
    proposal = call("run_cell", {"code": "mean = total / 3\nprint('mean', mean)"})
    messages.script = [answer([say("I look."), proposal]), say("It is **2**.")]
    messages.requests[:], messages.faults[:] = [], []
    desk, page = new_desk.open("day.ipynb", CELLS).live(), new_desk.page
    keyboard = page.keyboard
    keyboard.press("Escape")

    # Run cells.
    go_to_cell(desk, 0)
    for n in (1, 2, 3):
        desk.enter(f"s{n}")
    # Run the first cell as another text.
    go_to_cell(desk, 0)
    keyboard.press("Enter")
    keyboard.press("Control+a")
    keyboard.insert_text("rows = [4, 5]\nprint('rows', rows)")
    desk.enter("s4")

    # Go back, and have the notebook follow.
    keyboard.press("Escape")
    go_to_cell(desk, 2)
    press(page, "t", "b")
    expect(desk.row("s3").last).to_have_attribute("aria-current", "step")
    notebook_has_keyboard(desk)
    press(page, "t", "c")
    expect(page.get_by_role("dialog", name="Show the cells as at s3")).to_be_visible()
    keyboard.press("Enter")
    expect(mark(desk, 0)).to_contain_text("s1")
    notebook_has_keyboard(desk)

    # Compare two states.
    press(page, "t", "t")
    expect(desk.row("s3").last).to_be_focused()
    keyboard.press("c")
    keyboard.press("Home")
    keyboard.press("c")
    sheet = desk.view.get_by_role("dialog", name=re.compile("s1 compared with|s3 compared with"))
    expect(sheet).to_contain_text("total")
    keyboard.press("Escape")
    expect(sheet).to_have_count(0)
    has_keyboard(desk, "#ctxkernel-panel")
    keyboard.press("Escape")
    notebook_has_keyboard(desk)

    # Ask a model, approve.
    go_to_cell(desk, 3)
    keyboard.press("Enter")
    keyboard.insert_text("%%ask\nWhat is the mean of the rows?")
    desk.enter()
    card = desk.cell(3).locator(".ctxk-card-of-model[data-state=waits]")
    for name in ("Send", "Run"):  # a new cell is below, whose editor keeps the keyboard
        expect(card.get_by_role("button", name=name, exact=True)).to_be_enabled()
        keyboard.press("Control+Alt+Enter")
    expect(desk.cell(3).locator(".jp-OutputArea")).to_contain_text("mean 2.0")
    expect(desk.cell(3).locator(".jp-OutputArea")).to_contain_text("It is 2.")
    has_keyboard(desk, ".cm-editor")
    keyboard.insert_text("mean")
    expect(desk.cell(4).locator(".cm-content")).to_have_text("mean")
    keyboard.press("Escape")

    # Undo: the ask is one step.
    notebook_has_keyboard(desk)
    press(page, "t", "u")
    expect(desk.row("s3").last).to_have_attribute("aria-current", "step")
    notebook_has_keyboard(desk)

    # Search the timeline, open what was found.
    press(page, "t", "f")
    has_keyboard(desk, ".ctxk-search")
    keyboard.insert_text("mean")
    expect(desk.view.locator(".ctxk-foundtold")).to_contain_text("found")
    press(page, "Tab", "Tab", "Enter")
    has_keyboard(desk, ".ctxk-row[aria-expanded=true]")
    press(page, "Shift+Tab", "Shift+Tab", "Escape")  # the field: all rows again
    expect(desk.row("s1").last).to_be_visible()
    keyboard.press("Escape")
    notebook_has_keyboard(desk)

    # Every section by its command, and back.
    for section in ("handles", "projection", "cost", "changes", "timeline"):
        desk.command(f"Show the section {section.title()}")
        has_keyboard(desk, f"[role=tab][data-tab={section}]")
        keyboard.press("Tab")
        has_keyboard(desk, f".ctxk-{section}")
        keyboard.press("Escape")
        notebook_has_keyboard(desk)

    # Save as HTML.
    with page.expect_download() as download:
        desk.command("Save session as HTML")
    download.value.save_as(tmp_path / "day.html")
    assert "What is the mean of the rows?" in (tmp_path / "day.html").read_text("utf-8")
    expect(page.get_by_role("dialog", name="Save session as HTML")).to_be_visible()
    keyboard.press("Escape")
    notebook_has_keyboard(desk)
    assert messages.faults == []
    assert desk.errors == []


def test_the_panel_is_reached_and_left_by_keyboard(desk: Any):
    """A command leads to a section, `T F` to the search; Escape back to the notebook, from a tab of its own too."""
    run_all(desk, "keys.ipynb", CELLS[:1])
    desk.page.keyboard.press("Escape")
    notebook_has_keyboard(desk)
    desk.command("Show the section Changes")
    has_keyboard(desk, "[role=tab][data-tab=changes]")
    desk.page.keyboard.press("Escape")
    notebook_has_keyboard(desk)
    press(desk.page, "t", "f")
    has_keyboard(desk, ".ctxk-search")
    desk.page.keyboard.insert_text("ro")
    desk.page.keyboard.press("Escape")
    expect(desk.view.locator(".ctxk-search input")).to_have_value("")
    desk.page.keyboard.press("Escape")
    notebook_has_keyboard(desk)
    desk.command("Open the timeline in a tab")
    has_keyboard(desk, ".ctxk-widetab .ctxk-row")
    desk.page.keyboard.press("Escape")
    notebook_has_keyboard(desk)


def test_a_key_for_a_cell_that_has_not_ended_is_refused_with_a_message_that_stays(desk: Any):
    """The cell waits behind another one. The panel was closed: it opens, since the message is there."""
    wait = "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.05)"
    page = desk.open("early.ipynb", [wait, "y = 2", "z = 3"]).live().page
    desk.command("Close the panel")
    expect(desk.panel).to_be_hidden()
    desk.select(0)
    desk.enter()
    expect(mark(desk, 0)).to_contain_text("running")
    desk.enter()
    go_to_cell(desk, 1)
    press(page, "t", "a")
    told = desk.view.locator(".ctxk-told")
    expect(told).to_contain_text("has not run on the way to the present state")
    expect(told).to_be_visible()
    (desk.lab.root / "go").touch()
    expect(mark(desk, 1)).to_contain_text("s2")

    expect(told).to_contain_text("try again when it has ended")
    notebook_has_keyboard(desk)
    press(page, "t", "a")
    expect(mark(desk, 1)).to_contain_text("asks")
    expect(told).to_contain_text("s2 is not run again unasked")


def test_menus_check_what_is_on(desk: Any):
    """The toolbar's menu: marks of the cell, and the setting of the gutter."""
    run_all(desk, "checks.ipynb", CELLS[:1], "y = 2")
    go_to_cell(desk, 0)
    press(desk.page, "t", "a")
    expect(mark(desk, 0)).to_contain_text("asks")
    tools = desk.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-NotebookPanel-toolbar")
    for checked in (True, False):
        tools.locator("[data-command='ctxkernel:menu']").click()
        for command, on in {"asks": checked, "differs": False, "gutter": True}.items():
            item = desk.page.locator(f".lm-Menu-item[data-command='ctxkernel:toggle-{command}']")
            expect(item).to_be_visible()
            assert (item.get_attribute("aria-checked") == "true") is on
            expect(item.locator(".lm-Menu-itemIcon svg")).to_have_count(int(on))
        desk.page.keyboard.press("Escape")
        if checked:
            desk.select(0)
            press(desk.page, "t", "a")
            expect(mark(desk, 0)).to_contain_text("✓")
