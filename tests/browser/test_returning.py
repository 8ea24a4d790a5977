"""Going back and running again, as a person meets it: in JupyterLab with a real kernel, by panel, menu and keys."""

from __future__ import annotations

import itertools
import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

CELLS = [
    "import random\nrows = [1, 2, 3]\nalias = rows",
    "rows.append(4)\nprint('sum', sum(rows))",
    "total = sum(rows) * 10\ntotal",
    "luck = random.random()\nluck",
    "print(total, alias is rows)",
]


_numbers = itertools.count()


def run_all(desk, cells=CELLS):
    """Open a new notebook and run every cell by Shift+Enter.

    It has a name of its own: Lab may hold that of an earlier test.
    """
    desk.open(f"back{next(_numbers)}.ipynb", cells).live()
    desk.select(0)
    for n in range(1, len(list(filter(None, cells))) + 1):
        desk.enter(f"s{n}")
    return desk


def choose(desk, statement, item):
    """Open the menu of a row and choose."""
    desk.row(statement).last.locator(".ctxk-more").click()
    desk.view.locator(".ctxk-menuitem", has_text=item).click()


def told(desk):
    """Return what the panel says of the last thing done."""
    return desk.view.locator(".ctxk-told")


def output(desk, index):
    """Return the output of a cell."""
    return desk.cell(index).locator(".jp-OutputArea")


def test_back_to_a_cell_and_on_from_there_is_a_branch_and_can_be_undone(new_desk):
    """The variables are those of then, aliases and all; the cells that came after are one click away."""
    desk = run_all(new_desk, [*CELLS, ""])
    choose(desk, "s1", "Go back here")
    expect(desk.view.locator(".ctxk-here")).to_contain_text("You are here, in the past")
    expect(desk.row("s1")).to_have_attribute("aria-current", "step")
    expect(desk.row("s3")).to_have_class(re.compile("ctxk-off"))
    desk.select(len(CELLS))
    desk.type("alias.append(9)\nprint(rows, 'total' in globals())")
    expect(output(desk, len(CELLS))).to_contain_text("[1, 2, 3, 9] False")
    fold = desk.view.locator(".ctxk-foldbutton")
    expect(fold).to_contain_text("Other branch from s1")
    expect(fold).to_contain_text("s2 … s5")
    expect(desk.view.locator(".ctxk-here")).to_have_count(0)

    fold.click()
    choose(desk, "s5", "Go back here")
    expect(desk.row("s5")).to_have_attribute("aria-current", "step")
    desk.page.wait_for_timeout(200)
    desk.view.get_by_role("button", name="Undo").last.click()
    expect(desk.row("s5")).not_to_have_attribute("aria-current", "step")

    # A page that comes later sees the same.
    desk.page.keyboard.press("Control+s")
    desk.reload()
    desk.settle().live()
    expect(desk.view.locator(".ctxk-foldbutton")).to_contain_text("Other branch from s1")


def test_re_run_from_a_cell_counts_an_edit_and_says_what_came_out_differently(desk):
    """Outputs land in their cells; the table has what differs and what it comes from; the rest came out as before."""
    run_all(desk)
    expect(output(desk, 2)).to_contain_text("100")
    desk.select(1)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+a")
    desk.page.keyboard.insert_text("rows.append(5)\nprint('sum', sum(rows))")
    desk.page.keyboard.press("Escape")
    desk.command("Re-run from here")
    sheet = desk.view.get_by_role("dialog", name="Re-run from s2")
    expect(sheet.locator(".ctxk-step")).to_have_count(4)
    expect(sheet.locator(".ctxk-step").first).to_contain_text("edited")
    sheet.get_by_role("button", name="Re-run 4 cells").click()
    expect(told(desk)).to_contain_text("Re-run: 4 cells")
    expect(output(desk, 1)).to_contain_text("sum 11")
    expect(output(desk, 2)).to_contain_text("110")
    expect(output(desk, 4)).to_contain_text("110 True")

    told(desk).get_by_role("button", name="Show").click()
    table = desk.view.locator(".ctxk-comparisons")
    expect(table).to_contain_text("total")
    luck = table.locator("tbody", has_text="luck")
    expect(luck).to_have_count(0)  # the generator's state was restored: the same number again
    expect(desk.view.locator(".ctxk-verdicts")).to_contain_text("= 1 same")

    desk.open("next.ipynb", ["a = 1"]).live()  # has nothing to compare: it does not open on an empty section
    expect(desk.view.get_by_role("tab", name="Timeline")).to_have_attribute("aria-selected", "true")


def test_the_button_of_a_cell_is_there_for_kernels_that_can_go_back(desk):
    """In the cell's toolbar and in its context menu."""
    desk.open("button.ipynb", ["a = 1", "b = 2"]).live()
    desk.select(0)
    desk.enter("s1")
    desk.select(0)
    button = desk.cell(0).locator("[data-command='ctxkernel:rerun-from-here']")
    expect(button).to_be_visible()
    desk.cell(0).click(button="right")
    expect(desk.page.locator(".lm-Menu-item[data-command='ctxkernel:rerun-from-here']")).to_be_visible()
    desk.page.keyboard.press("Escape")
    button.click()
    expect(desk.view.get_by_role("dialog", name="Re-run from s1")).to_be_visible()


def test_what_cannot_be_restored_is_shown_before_it_happens(desk):
    """A generator that was used: named with its reason, and nothing is done before the yes."""
    run_all(desk, ["used = (i for i in range(9))\nnext(used)", "del used", "x = 1"])
    mark = desk.row("s1").locator(".ctxk-more")
    expect(mark).to_have_attribute("data-checkpoint", "partial")
    expect(mark).to_have_attribute("title", re.compile("used"))
    choose(desk, "s1", "Go back here")
    sheet = desk.view.get_by_role("dialog", name="Go back to s1")
    expect(sheet).to_contain_text("used")
    expect(desk.row("s3")).to_have_attribute("aria-current", "step")
    desk.page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    expect(desk.row("s3")).to_have_attribute("aria-current", "step")


def test_a_cell_that_is_marked_is_not_run_again_unasked(desk):
    """The mark is on the row; in the plan of a re-run it waits for a tick, and without one it is left out."""
    run_all(desk, ["n = 1", "sent = 'sent'\nprint('sent')", "n += 1\nprint(n)"])
    choose(desk, "s2", "Ask before it runs again")
    expect(desk.row("s2").first).to_contain_text("asks first")
    choose(desk, "s1", "Re-run from here")
    sheet = desk.view.get_by_role("dialog", name="Re-run from s1")
    expect(sheet.locator(".ctxk-step").nth(1)).to_contain_text("asks first")
    sheet.get_by_role("button", name="Re-run 2 cells").click()
    expect(told(desk)).to_contain_text("2 cells")
    expect(desk.cell(1).locator(".jp-InputPrompt")).to_contain_text("[2]")
    expect(desk.cell(2).locator(".jp-InputPrompt")).not_to_contain_text("[3]")


def test_a_re_run_stops_at_the_first_error(desk):
    """The cells after it keep what they showed."""
    run_all(desk, ["n = 1", "m = n + 1\nprint(m)", "print('end')"])
    desk.select(1)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+a")
    desk.page.keyboard.insert_text("m = n + undefined")
    desk.page.keyboard.press("Escape")
    choose(desk, "s1", "Re-run from here")
    desk.view.get_by_role("button", name="Re-run 3 cells").click()
    expect(told(desk)).to_contain_text("Stopped at an error; 1 cell not run.")
    expect(desk.cell(2).locator(".jp-InputPrompt")).to_contain_text("[3]")


def test_a_killed_kernel_comes_back_where_it_was(desk):
    """The panel offers it with what comes back; after the yes the variables and the timeline are there."""
    desk.open(
        "killed.ipynb", ["kept = [1, 2, 3]", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ""]
    ).live()
    desk.select(0)
    desk.enter("s1")
    desk.enter()
    desk.page.wait_for_selector("#ctxkernel-panel:not([data-phase=live])", timeout=60_000)
    desk.page.wait_for_selector(".jp-Dialog", timeout=60_000)
    desk.page.keyboard.press("Enter")
    desk.live()
    banner = desk.view.locator("[data-banner=resume]")
    expect(banner).to_contain_text("as they were after s1")
    expect(banner).to_contain_text("SIGKILL")
    banner.get_by_role("button", name="Resume").click()
    expect(desk.row("s1")).to_have_attribute("aria-current", "step")
    expect(banner).to_be_hidden()
    desk.select(2)
    desk.type("print(kept)")
    expect(output(desk, 2)).to_contain_text("[1, 2, 3]")


def test_a_plan_can_be_read_while_a_cell_runs(desk):
    """It comes on the control channel; the button waits for the cell's end."""
    wait = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)"
    desk.open("busy.ipynb", ["a = 1", "a = 2", wait]).live()
    desk.select(0)
    desk.enter("s1")
    desk.enter("s2")
    desk.enter()
    expect(desk.view.locator(".ctxk-state")).to_contain_text("running s3")
    choose(desk, "s1", "Go back here")
    sheet = desk.view.get_by_role("dialog", name="Go back to s1")
    expect(sheet).to_contain_text("A cell is running")
    expect(sheet).to_contain_text("Restored")
    expect(sheet.get_by_role("button", name="Go back")).to_be_disabled()
    (desk.lab.root / "go").touch()
    expect(sheet.get_by_role("button", name="Go back")).to_be_enabled()


def test_the_inline_panel_says_what_a_return_takes_and_which_line_does_it(desk):
    """A widget cannot send execute requests: it shows the plan, made by the kernel, and the line to run."""
    run_all(desk, ["n = 1", "n = 2", ""])
    desk.select(2)
    desk.type("%ctx panel")
    inline = desk.cell(2).locator(".ctxk-inline")
    expect(inline.locator(".ctxk-row[data-statement=s2]")).to_be_visible()
    inline.locator(".ctxk-row[data-statement=s1] .ctxk-more").click()
    inline.locator(".ctxk-menuitem", has_text="Go back here").click()
    sheet = inline.get_by_role("dialog", name="Go back to s1")
    expect(sheet).to_contain_text("Restored")
    expect(sheet.locator(".ctxk-codeline")).to_contain_text("%ctx goto s1")
