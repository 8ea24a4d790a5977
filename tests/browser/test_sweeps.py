"""The section Sweeps: a table that sorts and filters, a plot, progress, and the way to a row's state."""

# ruff: noqa: F811
from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from notebook_moves import run_all
from playwright.sync_api import expect

from browser.test_hostile import Watch
from browser.test_renderer import page, stage  # noqa: F401

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

EVIL = "<img src=x onerror=alert(1)>"


def line(alpha, model, r2, status="ok", **others):
    """Return a row of a table, as the kernel sends it."""
    numbers = [None if not isinstance(one, int | float) else float(one) for one in (alpha, model, r2)]
    values = [{"text": str(one), "number": number} for one, number in zip((alpha, model, r2), numbers, strict=True)]
    told = {"values": values, "status": status, "why": "", "branch": f"s9.{alpha}", "seconds": 0.5, "cpu": 0.25}
    return {**told, "diverged": False, "output": "", **others}


@pytest.fixture
def swept(stage):
    """A panel whose session has one sweep of four combinations."""
    rows = [line(2, "ridge", 0.5), line(10, "lasso", 0.7), line(1, EVIL, 0.9)]
    rows.append(line(3, "lasso", "", "error", why=f"ValueError: {EVIL}", branch=None))
    table = {"sweeps": [{"execution_id": "s8.1", "told": "4 combinations"}], "of": "s8.1", "more": 0, "progress": None}
    table |= {"parameters": ["alpha", "model"], "collected": ["r2"], "rows": rows}
    stage.evaluate("given => { host.answers.sweep = async () => ({ sweep: given, error: null }) }", table)
    expect(stage.locator("[data-tab=sweeps]")).to_be_hidden()
    stage.evaluate("view.snapshot({...S.snapshot, sweeps: 1})")
    stage.locator("[data-tab=sweeps]").click()
    return stage


def shown(page):
    """Return the values of alpha, row by row."""
    return page.locator(".ctxk-sweeptable tbody tr td:nth-child(2)").all_inner_texts()


def test_a_sweep_is_sorted_and_filtered_by_its_columns(swept):
    """Numbers in their order, twice the other way round, the third time as they came; texts are shown as texts."""
    alpha = swept.get_by_role("columnheader", name="alpha")
    assert shown(swept) == ["2", "10", "1", "3"]
    for order, sort in ((["1", "2", "3", "10"], "ascending"), (["10", "3", "2", "1"], "descending")):
        alpha.get_by_role("button").click()
        assert shown(swept) == order
        expect(alpha).to_have_attribute("aria-sort", sort)
    alpha.get_by_role("button").click()
    assert shown(swept) == ["2", "10", "1", "3"]
    field = swept.get_by_role("textbox", name="Filter combinations")
    for words, left in (
        ("alpha>=2", ["2", "10", "3"]),
        ("alpha>=2 model=lasso", ["10", "3"]),
        ("r2>0.6", ["10", "1"]),
        ("onerror", ["1"]),
        ("status=error", ["3"]),
    ):
        field.fill(words)
        assert shown(swept) == left
        expect(field).to_be_focused()
    assert swept.locator(".ctxk-sweeptable img").count() == 0


def test_a_number_stands_below_its_head_and_a_combination_that_did_not_run_has_no_time(swept):
    sides = swept.locator(".ctxk-sweeptable :is(th, td)").evaluate_all(
        "els => els.filter((el) => el.cellIndex === 1).map((el) => getComputedStyle(el).textAlign)"
    )
    assert set(sides) == {"end"}
    row = line(4, "lasso", "", "cancelled", branch=None, seconds=0, cpu=0)
    swept.evaluate("async row => { (await host.answers.sweep()).sweep.rows.push(row) }", row)
    swept.evaluate("view.snapshot({...S.snapshot, sweeps: 1})")
    expect(swept.locator(".ctxk-sweeptable tbody tr").last).to_contain_text("cancelled")
    expect(swept.locator(".ctxk-sweeptable tbody tr").last).not_to_contain_text("ms")


def test_the_lines_of_the_plot_are_those_of_the_rows_that_are_shown(swept):
    plot = swept.get_by_role("img", name=re.compile("3 combinations as lines over alpha, model, r2"))
    expect(plot).to_be_visible()
    expect(plot.locator("polyline")).to_have_count(3)
    swept.get_by_role("textbox", name="Filter combinations").fill("alpha>=2")
    expect(swept.locator(".ctxk-parallel polyline")).to_have_count(2)
    swept.locator(".ctxk-parallel polyline").first.dispatch_event("pointerenter")
    expect(swept.locator("tr.ctxk-chosen")).to_have_attribute("data-branch", "s9.2")


def test_the_axis_of_time_has_units(swept):
    rows = [line(1, "ridge", 0.5), line(2, "ridge", 0.7, seconds=61.5)]
    swept.evaluate("async rows => { (await host.answers.sweep()).sweep.rows = rows }", rows)
    swept.evaluate("view.snapshot({...S.snapshot, sweeps: 1})")
    expect(swept.locator(".ctxk-axisend", has_text="500 ms")).to_be_visible()
    expect(swept.locator(".ctxk-axisend", has_text="1 min 02 s")).to_be_visible()


def test_any_row_with_a_state_is_gone_to(swept):
    expect(swept.locator(".ctxk-sweeptable tbody button")).to_have_count(3)
    swept.get_by_role("button", name=re.compile(r"^s9.10: go to the state of alpha=10 model=lasso")).click()
    expect(swept.locator(".ctxk-told")).to_contain_text("At the state after s9.10.")
    assert swept.evaluate("host.gestures") == ["%ctx goto s9.10"]


def test_a_running_sweep_shows_how_far_it_is_and_can_be_cancelled(swept):
    swept.evaluate("() => { host.answers.sweep = async () => ({ sweep: null, error: 'busy' }) }")
    progress = {"done": 3, "tasks": 12, "workers": 2}
    swept.evaluate("progress => view.message({type: 'sweeping', execution_id: 's9.1', progress})", progress)
    expect(swept.locator(".ctxk-sweepline progress")).to_have_attribute("value", "3")
    expect(swept.locator(".ctxk-sweepline").first).to_contain_text("3 of 12 tasks done, 2 workers")
    expect(swept.get_by_role("button", name="Cancel")).to_be_visible()


def test_a_sweep_of_a_notebook_is_in_the_panel(desk, tmp_path):
    """A real sweep: its table is there when it has ended, and a row's state is loaded."""
    run_all(
        desk,
        "swept.ipynb",
        [
            "alpha = 1; model = 'ridge'",
            "r2 = alpha * len(model)\nprint('r2 is', r2)",
            "%ctx sweep --from 0 alpha=1,2,3 model=ridge,lasso2 --collect r2 --workers 1",
        ],
    )
    expect(desk.cell(2).locator(".jp-OutputArea")).to_contain_text("6 combinations, 6 ok", timeout=200_000)
    desk.view.locator("[data-tab=sweeps]").click()
    table = desk.view.get_by_role("table", name="Combinations of the sweep")
    expect(table.locator("tbody tr")).to_have_count(6)
    expect(table).to_contain_text("r2 is 18")
    table.get_by_role("button", name="r2", exact=True).click()
    desk.page.screenshot(path=str(tmp_path / "sweeps.png"))
    table.locator("tbody tr").last.get_by_role("button").click()
    expect(desk.view.locator(".ctxk-told")).to_contain_text("3 names restored", timeout=60_000)
    # The output of the cell is the same table, by keyboard, and without trust in the notebook.
    output = desk.cell(2).locator(".jp-OutputArea")
    head = output.get_by_role("columnheader", name="r2")
    head.get_by_role("button").focus()
    for order in ("ascending", "descending"):
        desk.page.keyboard.press("Enter")
        expect(head).to_have_attribute("aria-sort", order)
    rows = output.get_by_role("table", name="Combinations of the sweep").locator("tbody tr")
    expect(rows.first).to_contain_text("r2 is 18")
    output.get_by_role("textbox", name="Filter combinations").fill("alpha=1 model=ridge")
    expect(rows).to_have_count(1)
    branch = rows.get_by_role("button").inner_text()
    rows.get_by_role("button").click()
    expect(desk.page.locator("#jp-main-statusbar")).to_contain_text(branch, timeout=60_000)


THEIRS = (
    "alpha = 1; model = 'a'",
    f"""class Evil:
    def __reduce__(self): return open, ('loaded.txt', 'w')
    def __repr__(self): return {EVIL!r}
evil = Evil()
open('ran.txt', 'w').close()
r2 = f'{EVIL} {{alpha}}'
print(r2)""",
    "%ctx sweep --from 0 alpha=1,2 model=\"'<b>x</b>'\" --collect r2,evil --workers 1",
)


def test_a_sweep_of_somebody_else_s_session_is_text_and_loads_no_state(desk, tmp_path):
    """A notebook with its session beside it, from another user: no cell runs, no HTML counts, nothing is unpickled."""
    desk.open("mine.ipynb", [])
    desk.page.evaluate("jupyterapp.shell.currentWidget.dispose()")
    desk.lab.write("theirs.ipynb", THEIRS)
    home = {"CTXKERNEL_HOME": str(tmp_path / "theirs"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "ctxkernel.cli", "run", "theirs.ipynb", "--inplace"]
    subprocess.run(command, cwd=desk.lab.root, env={**os.environ, **home}, check=True, timeout=200)
    for name in ("ran.txt", "loaded.txt"):
        (desk.lab.root / name).unlink(missing_ok=True)
    watch = Watch(desk.page)

    desk.page.evaluate("void jupyterapp.commands.execute('docmanager:open', { path: 'theirs.ipynb' })")
    desk.settle().live()

    output = desk.cell(2).locator(".jp-OutputArea")
    rows = output.get_by_role("table", name="Combinations of the sweep").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(f"{EVIL} 1")
    rows.first.get_by_role("button").click()
    expect(desk.view).to_contain_text("there is no statement 's5.1' here")
    watch.check(".ctxk-output", "#ctxkernel-panel", ".jp-Notebook .jp-OutputArea")
    watch.stop()
    assert not [name for name in ("ran.txt", "loaded.txt") if (desk.lab.root / name).exists()]
    assert desk.errors == []
