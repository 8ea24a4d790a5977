"""The marks beside the cells of a notebook: statement, state, and outputs that are not of HEAD."""

from __future__ import annotations

import re

import pytest
from notebook_moves import CURRENT, LAB_ONLY, go_back, labels, mark, run_all
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

CELLS = ["x = 1\nprint('x', x)", "y = x + 1\ny", "print('y', y)"]


def test_after_a_return_every_cell_says_whether_it_ran_later_or_on_another_branch(desk):
    """By words; an output of another branch is faded with a line and a button. The notebook stays unchanged."""
    run_all(desk, "branch.ipynb", CELLS, "z = 1")
    expect(mark(desk, 2)).to_contain_text("s3")
    expect(mark(desk, 3)).to_have_count(0)
    desk.page.keyboard.press("Control+s")
    desk.page.wait_for_function(f"!{CURRENT}.context.model.dirty")
    go_back(desk, "s1")

    expect(mark(desk, 2)).to_contain_text("later")
    expect(mark(desk, 2)).to_have_attribute("aria-label", re.compile("Statement s3: ran after s1, where the kernel is"))
    assert "later" not in (mark(desk, 0).text_content() or "")
    line = desk.cell(2).locator(".ctxk-foreignline")
    expect(line).to_contain_text("The output is of s3, which ran after s1; the cell has not run here.")
    assert float(desk.cell(2).locator(".jp-Cell-outputWrapper").evaluate("el => getComputedStyle(el).opacity")) < 1
    expect(desk.cell(0).locator(".ctxk-foreignline")).to_have_count(0)
    assert desk.page.evaluate(f"!{CURRENT}.context.model.dirty")

    desk.page.keyboard.press("Escape")
    desk.cell(1).locator(".ctxk-foreignline").get_by_role("button", name="Run it here").click()
    expect(mark(desk, 1)).to_contain_text("s5")  # the return was s4
    expect(desk.cell(1).locator(".ctxk-foreignline")).to_have_count(0)
    expect(mark(desk, 2)).to_contain_text("branch")


def test_after_a_second_return_every_later_cell_names_the_new_place(desk):
    """Also a cell whose mark the second return doesn't change."""
    run_all(desk, "twice.ipynb", CELLS)
    for place in ("s2", "s1"):
        go_back(desk, place)
        expect(desk.cell(2).locator(".ctxk-foreignline")).to_contain_text(f"which ran after {place};")
        expect(mark(desk, 2)).to_have_attribute("aria-label", re.compile(f"Statement s3: ran after {place}, where"))


def test_a_mark_is_opened_by_key_and_says_what_was_edited(desk):
    """`T S` from the cell; Escape closes it. An edit is seen, and undoing it too."""
    run_all(desk, "keys.ipynb", CELLS[:2])
    desk.select(1)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+End")
    desk.page.keyboard.insert_text("  # more")
    expect(mark(desk, 1)).to_contain_text("edited")
    desk.page.keyboard.press("Control+z")
    expect(mark(desk, 1)).not_to_contain_text("edited")
    desk.page.keyboard.insert_text(" # other")
    expect(mark(desk, 1)).to_contain_text("edited")
    desk.page.keyboard.press("Escape")
    desk.page.keyboard.press("t")
    desk.page.keyboard.press("s")
    card = desk.page.get_by_role("dialog", name="Statement s2")
    expect(card).to_contain_text("Edited since it ran")
    expect(card).to_contain_text("In [2] of Jupyter")
    expect(card.get_by_role("button").first).to_be_focused()
    desk.page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    assert mark(desk, 0).get_attribute("tabindex") == "-1"


def test_the_notebook_has_the_keyboard_after_a_press_of_a_mark_or_of_the_line_above_an_output(desk):
    """Its keys work at once: `B` inserts a cell."""
    run_all(desk, "back.ipynb", CELLS)  # the last one has an empty cell below it then
    go_back(desk, "s1")

    def insert(count: int) -> None:
        desk.page.keyboard.press("b")
        expect(desk.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")).to_have_count(count)

    mark(desk, 2).click()
    desk.page.keyboard.press("Escape")
    insert(5)
    mark(desk, 0).click()
    desk.page.get_by_role("dialog", name="Statement s1").get_by_role("button", name="Show in the timeline").focus()
    desk.page.keyboard.press("Escape")
    insert(6)
    desk.cell(2).locator(".ctxk-foreignline").get_by_role("button", name="Run it here").click()
    expect(mark(desk, 2)).to_contain_text("s5")
    insert(7)


def test_the_name_of_a_statement_is_shown_whole_after_a_thousand_statements(desk):
    """A name without its first letters is that of another statement."""
    run_all(desk, "names.ipynb", CELLS[:1])
    name = mark(desk, 0).locator(".ctxk-markname")
    for word in ("differs", "unrecorded"):
        desk.cell(0).locator(".ctxk-markword").evaluate("(el, word) => { el.textContent = word }", word)
        name.evaluate("el => { el.textContent = 's1157.12' }")
        inside = "el => el.getBoundingClientRect().left >= el.closest('.ctxk-mark').getBoundingClientRect().left"
        assert name.evaluate(inside), word


def test_a_cell_that_is_inserted_above_and_run_makes_the_cells_below_it_stale(desk):
    run_all(desk, "above.ipynb", CELLS)
    desk.select(1)
    desk.page.keyboard.press("a")
    desk.cell(1).locator(".cm-content").click()  # JupyterLab 4.2 gives an inserted cell the keyboard late
    desk.page.keyboard.insert_text("x = 7")
    desk.page.keyboard.press("Shift+Enter")

    expect(mark(desk, 2)).to_contain_text("stale")
    expect(mark(desk, 3)).to_contain_text("stale")

    # A kernel that resumes the session is told the order again.
    desk.page.evaluate(f"{CURRENT}.sessionContext.session.kernel.restart()")
    desk.view.locator("[data-banner=resume]").get_by_role("button", name="Resume").click()
    expect(mark(desk, 2)).to_contain_text("stale")
    desk.select(2)
    desk.page.keyboard.press("Shift+Enter")
    expect(mark(desk, 2)).not_to_contain_text("stale")


def test_the_marks_take_no_room_and_can_be_turned_off(new_desk):
    """The code stands where it stood, with them and without."""
    desk = run_all(new_desk, "room.ipynb", CELLS)
    places = "all => all.map(el => el.getBoundingClientRect().toJSON())"
    with_marks = desk.page.eval_on_selector_all(".jp-CodeCell .jp-InputArea-editor, .jp-OutputArea-output", places)
    desk.command("Show the marks beside cells")
    expect(desk.page.locator(".ctxk-mark:visible")).to_have_count(0)
    assert with_marks == desk.page.eval_on_selector_all(
        ".jp-CodeCell .jp-InputArea-editor, .jp-OutputArea-output", places
    )
    desk.command("Show the marks beside cells")
    expect(desk.page.locator(".ctxk-mark:visible")).to_have_count(3)


@LAB_ONLY
def test_the_toolbar_s_menu_and_the_status_bar_are_there_for_this_kernel(desk):
    """The menu has the commands with their keys; the status bar's item says where HEAD is, and opens the panel."""
    run_all(desk, "tools.ipynb", CELLS)
    tools = desk.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-NotebookPanel-toolbar")
    expect(tools.locator("[data-command='ctxkernel:rerun-from-here']")).to_be_visible()
    tools.locator("[data-command='ctxkernel:menu']").click()
    item = desk.page.locator(".lm-Menu-item", has_text="Show the state of this cell")
    expect(item).to_contain_text("T, S")
    desk.page.keyboard.press("Escape")
    status = desk.page.locator(".ctxk-statusitem")
    expect(status).to_have_text("s3")  # tokens and checks come with the first handle or ask
    expect(status).to_have_attribute("aria-label", re.compile("The kernel is at s3"))


@LAB_ONLY
def test_the_marks_are_right_again_after_a_reload_and_with_two_notebooks(desk):
    """Each notebook has its own; a page that comes later shows the same."""
    run_all(desk, "one.ipynb", CELLS)
    go_back(desk, "s2")
    expect(mark(desk, 2)).to_contain_text("later")
    before = labels(desk)
    assert desk.panel.get_attribute("data-last-turn")
    desk.open("two.ipynb", ["a = 1"]).live()
    assert desk.panel.get_attribute("data-last-turn") is None  # the panel has painted no turn of this notebook
    desk.select(0)
    desk.enter("s1")
    expect(mark(desk, 0)).to_contain_text("s1")
    assert len(labels(desk)) == 1
    desk.page.locator(".lm-TabBar-tab", has_text="one.ipynb").click()
    assert labels(desk) == before
    desk.page.keyboard.press("Control+s")
    desk.page.wait_for_function(f"!{CURRENT}.context.model.dirty")
    desk.reopen("one.ipynb")
    desk.settle().live()
    expect(mark(desk, 2)).to_contain_text("later")
    assert labels(desk) == before


def test_the_marks_follow_a_restart_and_a_kernel_that_died(desk):
    """After a restart no cell has a statement; after a resume they are as they were."""
    run_all(desk, "died.ipynb", CELLS, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    before = labels(desk)
    desk.page.keyboard.press("Escape")
    desk.enter()
    desk.page.wait_for_selector(".jp-Dialog", timeout=60_000)
    desk.page.keyboard.press("Enter")
    desk.live()
    expect(mark(desk, 0)).to_contain_text("unrecorded")
    desk.view.locator("[data-banner=resume]").get_by_role("button", name="Resume").click()
    expect(mark(desk, 2)).to_contain_text("s3")
    assert [one.split(":")[0] for one in labels(desk)[:3]] == [one.split(":")[0] for one in before]

    desk.page.evaluate(f"{CURRENT}.sessionContext.session.kernel.restart()")
    expect(mark(desk, 0)).to_contain_text("unrecorded", timeout=60_000)
    desk.live()
    desk.select(0)
    desk.enter()
    expect(mark(desk, 0)).to_contain_text(re.compile(r"s\d+"))
    expect(mark(desk, 1)).to_contain_text("unrecorded")


def test_a_connection_that_was_cut_in_a_cell_leaves_the_right_marks(desk):
    """The page learns from a snapshot what ran meanwhile."""
    wait = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)\nprint('end')"
    run_all(desk, "cut.ipynb", CELLS[:1], wait)
    desk.select(1)
    desk.enter()
    expect(mark(desk, 1)).to_contain_text("running")
    desk.page.evaluate(f"{CURRENT}.sessionContext.session.kernel._ws.close()")
    (desk.lab.root / "go").touch()
    expect(mark(desk, 1)).to_contain_text("s2", timeout=60_000)
    expect(mark(desk, 1)).not_to_contain_text("running")


def test_a_long_notebook_keeps_its_marks_as_it_is_scrolled_and_draws_none(desk):
    """JupyterLab attaches and detaches cells; their marks come along and are not drawn again."""
    desk.open("long.ipynb", [f"v{n} = {n}\nv{n}" for n in range(120)]).live()
    desk.page.evaluate("async () => { await jupyterapp.commands.execute('notebook:run-all-cells') }")
    desk.page.wait_for_selector("#ctxkernel-panel[data-last-turn=s120]", timeout=120_000)
    desk.page.wait_for_function(f"{CURRENT}.content.widgets.every(one => one.node.querySelector('.ctxk-mark'))")
    desk.page.evaluate(
        """() => {
          window.drawn = [];
          const told = (one) => `${one.target.className} ${one.attributeName} ${one.target.title}`;
          const watch = new MutationObserver((all) => { window.drawn.push(...all.map(told)); });
          const { widgets } = jupyterapp.shell.currentWidget.content;
          for (const cell of widgets)
            watch.observe(cell.node.querySelector('.ctxk-mark'), { childList: true, attributes: true, subtree: true });
        }"""
    )
    for index in (0, 60, 119, 10):
        desk.page.evaluate(f"async () => {{ await {CURRENT}.content.scrollToItem({index}) }}")
        expect(mark(desk, index)).to_contain_text(f"s{index + 1}")
    assert desk.page.evaluate("window.drawn") == []


def test_a_mark_has_its_reason_even_if_one_message_could_not_tell_all(desk):
    """Seventy cells become stale at once, each for a reason of its own: the page asks for those."""
    desk.open("chain.ipynb", ["v0 = 1", *(f"v{n} = v{n - 1} + 1" for n in range(1, 70))]).live()
    desk.page.evaluate("async () => { await jupyterapp.commands.execute('notebook:run-all-cells') }")
    desk.page.wait_for_selector("#ctxkernel-panel[data-last-turn=s70]", timeout=120_000)
    desk.page.evaluate(f"{CURRENT}.content.widgets[0].model.sharedModel.setSource('v0 = 5')")
    desk.page.evaluate(f"async () => {{ await {CURRENT}.content.scrollToItem(0) }}")
    desk.select(0)
    desk.page.keyboard.press("Control+Enter")
    desk.page.wait_for_selector("#ctxkernel-panel[data-last-turn=s71]")
    for index in (1, 40, 69):
        desk.page.evaluate(f"async () => {{ await {CURRENT}.content.scrollToItem({index}) }}")
        expect(mark(desk, index)).to_contain_text("stale")
        expect(mark(desk, index)).to_have_attribute("title", re.compile(f"v{index - 1} "))


def test_a_re_run_says_which_cells_wait(desk):
    """From the button of the toolbar: the cells behind the one that runs are marked as waiting."""
    wait = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)"
    (desk.lab.root / "go").touch()
    run_all(desk, "waits.ipynb", ["a = 1", wait, "b = a"])
    (desk.lab.root / "go").unlink()
    desk.select(0)
    desk.page.keyboard.press("t")
    desk.page.keyboard.press("r")
    desk.view.get_by_role("button", name="Re-run 3 cells").click()
    expect(mark(desk, 1)).to_contain_text("running")
    expect(mark(desk, 2)).to_contain_text("waits")
    (desk.lab.root / "go").touch()
    expect(mark(desk, 2)).not_to_contain_text("waits")
    expect(mark(desk, 2)).to_contain_text("s3.2")


def test_a_cell_that_raised_an_exception_is_marked_as_failed_until_it_runs_well(desk):
    """A tick beside an error would say the contrary of the output."""
    run_all(desk, "failed.ipynb", ["ready = False", "1 if ready else 1 / 0"])
    expect(mark(desk, 0)).to_contain_text("✓")
    expect(mark(desk, 1)).to_contain_text("failed")
    expect(mark(desk, 1)).to_have_attribute("aria-label", re.compile("it raised an exception"))
    desk.select(1)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+a")
    desk.page.keyboard.insert_text("1")
    expect(mark(desk, 1)).to_contain_text("edited")
    desk.enter("s3")
    expect(mark(desk, 1)).to_contain_text("✓")
    expect(mark(desk, 1)).not_to_contain_text("failed")


def test_a_move_that_needs_no_code_cell_works_beside_a_text_and_the_toolbar_stays_as_it_is(desk):
    """Run affected and undo are of the notebook. A button that needs a code cell is disabled, not gone."""
    desk.open("text.ipynb", ["#md # Title", "x = 1", "y = x"]).live()
    desk.select(1)
    desk.enter("s1")
    desk.enter("s2")
    tools = desk.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-NotebookPanel-toolbar")
    rerun = tools.locator("[data-command='ctxkernel:rerun-from-here']")
    affected = tools.locator("[data-command='ctxkernel:run-affected']")
    expect(rerun).to_have_attribute("aria-disabled", "false")
    desk.select(0)
    expect(rerun).to_be_visible()
    expect(rerun).to_have_attribute("aria-disabled", "true")
    expect(affected).to_have_attribute("aria-disabled", "false")
    desk.page.keyboard.press("t")
    desk.page.keyboard.press("u")
    expect(mark(desk, 2)).to_contain_text("later")
