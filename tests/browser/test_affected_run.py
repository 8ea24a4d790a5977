"""Run affected, as a person meets it: the plan, the cells that run and are kept, and what lands in the notebook."""

from __future__ import annotations

import re

import pytest
from notebook_moves import mark, run_all
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

CELLS = [
    "x = 3",
    "sign = x > 0",
    "import time\ntime.sleep(1)\nprint('slow', sign)",
    "print('x is', x)",
    "other = [1, 2]\nprint('other', other)",
]


def told(desk):
    """Return what the panel says of the last thing done."""
    return desk.view.locator(".ctxk-told")


def output(desk, index):
    """Return the output of a cell."""
    return desk.cell(index).locator(".jp-OutputArea")


def edit(desk, index, text):
    """Replace the text of a cell."""
    desk.select(index)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+a")
    desk.page.keyboard.insert_text(text)
    desk.page.keyboard.press("Escape")


def test_run_affected_shows_its_plan_and_runs_only_what_the_edit_affects(desk, tmp_path):
    """The plan shrinks when a cell gives its old result; outputs land in their cells; times are those of this run."""
    run_all(desk, "affected.ipynb", CELLS)
    edit(desk, 0, "x = 4\n__import__('time').sleep(1.2)")
    desk.command("Run affected cells")
    sheet = desk.view.get_by_role("dialog", name="Run affected cells")
    rows = sheet.locator(".ctxk-affectedcells > .ctxk-step:not([data-what=keep])")
    expect(rows).to_have_count(4)
    expect(rows.nth(0)).to_contain_text("its text was edited")
    expect(rows.nth(1)).to_contain_text("x may change")
    expect(rows.nth(2)).to_contain_text("sign may change")
    expect(sheet).to_contain_text("1 cell kept")
    desk.page.screenshot(path=str(tmp_path / "plan.png"))

    sheet.get_by_role("button", name="Run 4 cells").click()

    expect(told(desk)).to_contain_text("3 cells ran, 2 kept")
    expect(told(desk)).to_contain_text("saved")
    running = desk.view.get_by_role("dialog", name="The affected cells")
    expect(running.locator("[data-what=ran]")).to_have_count(3)
    expect(running.locator("[data-what=kept]")).to_have_count(2)
    expect(running.locator("[data-what=ran] .ctxk-time").first).to_have_text(re.compile(r"^1\.\d+ s$"))
    expect(output(desk, 3)).to_contain_text("x is 4")
    expect(output(desk, 2)).to_contain_text("slow True")
    expect(output(desk, 4)).to_contain_text("other [1, 2]")
    expect(desk.cell(2).locator(".jp-InputPrompt").first).to_contain_text("[3]")
    desk.page.screenshot(path=str(tmp_path / "done.png"))
    running.get_by_role("button", name="Hide").click()
    expect(running).to_be_hidden()

    desk.command("Run affected cells")
    expect(sheet).to_contain_text("nothing has to run")
    expect(sheet.get_by_role("button")).to_have_text(["Cancel"])


def test_run_affected_has_buttons_where_a_person_looks_for_it(desk):
    """In the notebook's toolbar, at the foot of the panel, and on the mark of a stale cell."""
    run_all(desk, "affected.ipynb", ["a = 1", "b = a + 1\nprint(b)"])
    edit(desk, 0, "a = 2")
    desk.page.keyboard.press("Control+Enter")
    expect(mark(desk, 1)).to_contain_text("stale")
    expect(desk.page.locator("[data-command='ctxkernel:run-affected']").first).to_be_visible()
    mark(desk, 1).click()
    desk.page.locator(".ctxk-markcard").get_by_role("button", name="Run affected cells…").click()
    sheet = desk.view.get_by_role("dialog", name="Run affected cells")
    expect(sheet.locator(".ctxk-step[data-what=run]")).to_have_count(1)
    desk.page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    desk.view.locator(".ctxk-foot").get_by_role("button", name="Run affected").click()
    sheet.get_by_role("button", name="Run 1 cell").click()
    expect(told(desk)).to_contain_text("1 cell ran, 1 kept")
    time = desk.view.get_by_role("dialog", name="The affected cells").locator("[data-what=ran] .ctxk-time").inner_text()
    expect(desk.row("s2").last).to_contain_text(time)  # the time of the cell, as in the timeline
    expect(output(desk, 1)).to_contain_text("3")
    expect(mark(desk, 1)).not_to_contain_text("stale")


def test_run_affected_takes_back_what_a_deleted_cell_changed(desk):
    """No cell has to run, and the state is not what the cells of the notebook give."""
    run_all(desk, "deleted.ipynb", ["x = 1", "x = 99; scratch = 3"])
    desk.select(1)
    desk.page.keyboard.press("d")
    desk.page.keyboard.press("d")
    desk.command("Run affected cells")
    sheet = desk.view.get_by_role("dialog", name="Run affected cells")
    expect(sheet).to_contain_text("nothing has to run")
    expect(sheet).to_contain_text("scratch")

    sheet.get_by_role("button", name="Take the kept results").click()

    expect(told(desk)).to_contain_text("0 cells ran, 1 kept")
    edit(desk, 1, "print(x, 'scratch' in globals())")
    desk.page.keyboard.press("Control+Enter")
    expect(output(desk, 1)).to_contain_text("1 False")


def test_the_expected_time_of_a_plan_leaves_out_cells_that_have_not_run(desk):
    """Nobody knows how long they take."""
    run_all(desk, "new.ipynb", ["x = 1\n__import__('time').sleep(0.3)"], "y = x", "print(y)")
    edit(desk, 0, "x = 2\n__import__('time').sleep(0.3)")
    desk.command("Run affected cells")
    sheet = desk.view.get_by_role("dialog", name="Run affected cells")
    expect(sheet.locator(".ctxk-expected")).to_contain_text(
        re.compile(r"about 3\d\d ms, without the time of 2 new cells")
    )
    sheet.get_by_role("button", name="Cancel").click()
    desk.select(0)
    desk.command("Re-run from here")
    sheet = desk.view.get_by_role("dialog", name="Re-run from s1")
    expect(sheet.locator(".ctxk-expected")).to_contain_text("without the time of 2 new cells")
    sheet.get_by_role("button", name="Cancel").click()


def test_an_error_stops_the_run_and_names_the_cells_that_were_not_reached(desk):
    """The cell that failed is one click away; an opaque cell that asks is run only with a tick."""
    run_all(desk, "affected.ipynb", ["a = 1", "b = 1 / a", "import time\nt = time.time()", "c = b"])
    edit(desk, 0, "a = 0")
    desk.command("Run affected cells")
    sheet = desk.view.get_by_role("dialog", name="Run affected cells")
    expect(sheet.locator("[data-what=opaque]")).to_contain_text("it may read the clock")
    sheet.get_by_role("button", name=re.compile("Run 4 cells")).click()
    expect(told(desk)).to_contain_text("Stopped at an error; 2 cells not reached")
    expect(output(desk, 1)).to_contain_text("ZeroDivisionError")


def test_an_error_in_the_last_cell_names_no_cells_that_were_not_reached(desk):
    run_all(desk, "affected.ipynb", ["a = 1", "b = 1 / a"])
    edit(desk, 0, "a = 0")
    desk.command("Run affected cells")
    desk.view.get_by_role("dialog", name="Run affected cells").get_by_role("button", name="Run 2 cells").click()
    expect(told(desk)).to_contain_text("The last cell ended with an error. 2 cells ran, 0 kept.")


def test_what_differs_after_a_cell_was_deleted_is_caused_upstream(desk):
    run_all(desk, "deleted.ipynb", ["a = 3", "a = a * 10", "b = a + 1\nprint(b)"])
    desk.select(1)
    desk.page.keyboard.press("d")
    desk.page.keyboard.press("d")
    desk.command("Run affected cells")
    desk.view.get_by_role("dialog", name="Run affected cells").get_by_role("button", name="Run 1 cell").click()
    expect(told(desk)).to_contain_text("1 cell ran, 1 kept")
    expect(output(desk, 1)).to_contain_text("4")
    expect(desk.row("s3").last).to_contain_text("upstream")


def test_a_cell_shows_what_it_depends_on_and_what_depends_on_it(desk, tmp_path):
    """From its mark: the cells that it reads from, why it is stale, the cells that read from it; each is a link."""
    run_all(desk, "graph.ipynb", ["a = 1", "b = a + 1", "c = b * 2\nprint(c)"])
    edit(desk, 0, "a = 5")
    desk.page.keyboard.press("Control+Enter")
    expect(mark(desk, 1)).to_contain_text("stale")
    mark(desk, 1).click()
    desk.page.locator(".ctxk-markcard").get_by_role("button", name="What it depends on…").click()
    sheet = desk.view.get_by_role("dialog", name="s2 in the graph of cells")
    expect(sheet).to_contain_text("s2 is stale")
    expect(sheet).to_contain_text("a was changed by s4")
    sides = sheet.locator(".ctxk-graphside")
    expect(sides.nth(0)).to_contain_text("Reads from 1 cell")
    expect(sides.nth(1)).to_contain_text("s3")
    desk.page.screenshot(path=str(tmp_path / "graph.png"))
    sides.nth(1).get_by_role("button", name="s3").click()
    expect(desk.cell(2)).to_have_class(re.compile("jp-mod-active"))
    sheet.get_by_role("button", name="Run affected…").click()
    plan = desk.view.get_by_role("dialog", name="Run affected cells")
    expect(plan.locator(".ctxk-step[data-what=run]")).to_have_count(2)


def test_the_plan_shows_all_of_each_line_beside_a_long_cell(desk):
    """The time stands at the end of a line: it must not be cut by a cell whose first line is long."""
    run_all(desk, "long.ipynb", ["a = 1", f"b = a + {' + '.join(['1'] * 60)}"])
    edit(desk, 0, "a = 2")
    desk.command("Run affected cells")
    sheet = desk.view.get_by_role("dialog", name="Run affected cells")
    times = sheet.locator(".ctxk-affectedcells .ctxk-time")
    expect(times).to_have_count(2)
    right = sheet.locator(".ctxk-affectedcells").evaluate("el => el.getBoundingClientRect().right")
    assert all(one.evaluate("el => el.getBoundingClientRect().right") <= right + 1 for one in times.all())


def test_the_list_of_run_affected_follows_the_cell_that_runs(desk, tmp_path):
    rest = [f"y{n} = x + {n}" for n in range(22)]
    last = "import pathlib, time\nwhile x > 1 and not pathlib.Path('go').exists():\n    time.sleep(0.05)"
    run_all(desk, "affected.ipynb", ["x = 1", *rest, last])
    edit(desk, 0, "x = 2")
    desk.command("Run affected cells")
    plan = desk.view.get_by_role("dialog", name="Run affected cells")
    expect(plan.locator(".ctxk-affectedcells > .ctxk-step").last).not_to_be_in_viewport()
    plan.get_by_role("button", name="Run 24 cells").click()

    sheet = desk.view.get_by_role("dialog", name="Running the affected cells")
    expect(sheet.locator("[data-what=running] .ctxk-index")).to_have_text("24")
    expect(sheet.locator("[data-what=running]")).to_be_in_viewport()
    (desk.lab.root / "go").touch()
    expect(told(desk)).to_contain_text("24 cells ran")
    desk.page.screenshot(path=str(tmp_path / "following.png"))
