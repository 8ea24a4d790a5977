"""After a return, the notebook's cells can be shown as they were there; no text that was typed is lost."""

from __future__ import annotations

from typing import Any

import pytest
from notebook_moves import CURRENT, go_back, mark, run_all
from playwright.sync_api import Locator, expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

CELLS = ["x = 1\nprint('x', x)", "y = x + 1\nprint('y', y)", "print('last')"]


def retype(desk: Any, index: int, source: str) -> None:
    """Replace a cell's text."""
    desk.select(index)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+a")
    desk.page.keyboard.insert_text(source)
    desk.page.keyboard.press("Escape")


def text(desk: Any, index: int) -> str:
    """Return the text of a cell."""
    return desk.page.evaluate(f"{CURRENT}.content.widgets[{index}].model.sharedModel.getSource()")


def bar(desk: Any) -> Locator:
    """Return the bar above the notebook."""
    return desk.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .ctxk-offer")


def on_another_branch(desk: Any, name: str) -> Any:
    """Run a notebook, run its first cell again as another text, go back to before that, and type into the cell."""
    run_all(desk, name, CELLS)
    retype(desk, 0, "x = 5\nprint('x', x)")
    desk.enter("s4")
    go_back(desk, "s3")
    retype(desk, 0, "x = 5\nprint('x', x)\n# typed")
    return desk


def test_a_return_offers_to_show_the_cells_as_they_were_and_keeps_what_was_typed(desk):
    """First what would change; then text, output and prompt of the branch. The typed text can be taken back."""
    on_another_branch(desk, "follow.ipynb")
    expect(bar(desk)).to_contain_text("Kernel at s3: 1 cell shows another run.")
    expect(desk.view.locator("[data-banner=cells]")).to_contain_text("1 cell shows another run")
    bar(desk).get_by_role("button", name="Show it as at s3…").click()
    sheet = desk.page.get_by_role("dialog", name="Show the cells as at s3")
    expect(sheet).to_contain_text("you edited it: your text is kept")
    expect(sheet.locator(".ctxk-nbdiff-old")).to_have_count(2)
    assert "# typed" in text(desk, 0)
    desk.page.keyboard.press("Enter")

    # The keyboard goes on in the notebook, where shortcuts work.
    desk.page.wait_for_function("!!document.activeElement.closest('.jp-Notebook')")
    expect(desk.cell(0).locator(".jp-OutputArea")).to_contain_text("x 1")
    assert text(desk, 0) == CELLS[0]
    expect(desk.cell(0).locator(".jp-InputPrompt")).to_have_text("[1]:")
    expect(desk.cell(0).locator(".ctxk-foreignline")).to_have_count(0)
    expect(mark(desk, 0)).to_contain_text("s1")

    desk.select(0)
    desk.page.keyboard.press("t")
    desk.page.keyboard.press("k")
    kept = desk.page.get_by_role("dialog", name="Texts that are kept with this cell")
    expect(kept).to_contain_text("# typed")
    kept.get_by_role("button", name="Take it back").click()
    desk.page.keyboard.press("Escape")
    assert "# typed" in text(desk, 0)


def test_what_was_shown_can_be_taken_back_and_undone_in_the_cell(desk):
    """The bar restores text and output as they were; the editor's own undo restores the text."""
    on_another_branch(desk, "back.ipynb")
    desk.page.keyboard.press("t")
    desk.page.keyboard.press("c")
    desk.page.get_by_role("button", name="Show 1 cell as at s3").click()
    expect(mark(desk, 0)).to_contain_text("s1")
    desk.select(0)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+z")
    expect(desk.cell(0).locator(".cm-content")).to_contain_text("# typed")
    desk.page.keyboard.press("Control+Shift+z")
    expect(desk.cell(0).locator(".cm-content")).not_to_contain_text("# typed")
    desk.page.keyboard.press("Escape")

    bar(desk).get_by_role("button", name="Take it back").click()
    assert "# typed" in text(desk, 0)
    expect(desk.cell(0).locator(".jp-OutputArea")).to_contain_text("x 5")
    expect(mark(desk, 0)).to_contain_text("later")
    expect(bar(desk)).to_contain_text("1 cell shows another run")


def test_a_kept_text_survives_a_reload_without_saving(new_desk):
    """The file never had it: the browser's storage has it until the notebook is saved."""
    desk = on_another_branch(new_desk, "kept.ipynb")
    bar(desk).get_by_role("button", name="Show it as at s3…").click()
    desk.page.get_by_role("button", name="Show 1 cell as at s3").click()
    expect(mark(desk, 0)).to_contain_text("s1")
    desk.page.once("dialog", lambda dialog: dialog.accept())
    desk.reload()
    desk.settle().live()
    desk.select(0)
    desk.page.keyboard.press("t")
    desk.page.keyboard.press("k")
    expect(desk.page.get_by_role("dialog")).to_contain_text("# typed")


def test_cells_that_the_branch_does_not_have_stay_and_deleted_ones_can_come_back(desk):
    """A new cell is marked; a cell of the branch that was deleted since is offered, unasked it stays away."""
    run_all(desk, "deleted.ipynb", CELLS, "new = 1\nnew")
    desk.select(3)
    desk.enter("s4")
    desk.select(1)
    desk.page.keyboard.press("d")
    desk.page.keyboard.press("d")
    go_back(desk, "s3")
    expect(bar(desk)).to_have_count(0)  # no cell of the notebook would change
    expect(mark(desk, 2)).to_contain_text("later")
    desk.page.evaluate(f"{CURRENT}.content.activate()")
    desk.command("Show the cells as at HEAD")
    sheet = desk.page.get_by_role("dialog", name="Show the cells as at s3")
    expect(sheet).to_contain_text("1 cell has not run on this branch: it stays and is marked.")
    expect(sheet.get_by_role("button", name="Choose a cell")).to_be_disabled()
    sheet.get_by_role("checkbox").check()
    sheet.get_by_role("button", name="Show 1 cell as at s3").click()
    texts = [text(desk, index) for index in range(4)]
    assert sorted(texts) == sorted([*CELLS, "new = 1\nnew"])
    expect(desk.page.locator(".ctxk-mark", has_text="s2")).to_be_visible()


def test_outputs_that_were_cleared_or_lost_by_a_reload_can_be_shown_again(desk):
    """The timeline has them; a cell that has its output is not listed."""
    run_all(desk, "lost.ipynb", CELLS)
    desk.page.evaluate(f"{CURRENT}.content.widgets[1].model.clearExecution()")
    desk.select(1)
    mark(desk, 1).click()
    desk.page.get_by_role("dialog", name="Statement s2").get_by_role(
        "button", name="Show it as it ran here (s2)"
    ).click()
    sheet = desk.page.locator(".ctxk-nbsheet")
    expect(sheet.locator(".ctxk-change")).to_contain_text("y 2")
    desk.page.keyboard.press("Escape")

    desk.command("Show the cells as at HEAD")

    expect(sheet.locator(".ctxk-change")).to_have_count(1)
    desk.page.get_by_role("button", name="Show 1 cell as at s3").click()
    expect(desk.cell(1).locator(".jp-OutputArea").last).to_contain_text("y 2")
    expect(desk.cell(1).locator(".jp-InputPrompt, .jp-InputArea-prompt").first).to_contain_text("[2]")
    desk.command("Show the cells as at HEAD")
    expect(sheet).to_contain_text("nothing would change")
    desk.page.keyboard.press("Escape")


def test_the_output_of_a_cell_that_ran_from_another_page_can_be_shown(desk):
    """This page has only the mark of that run."""
    run_all(desk, "pages.ipynb", CELLS)
    source = "print('y', y * 50)"
    desk.page.evaluate(f"source => {CURRENT}.content.widgets[1].model.sharedModel.setSource(source)", source)
    ask = "sessionContext.session.kernel.requestExecute({ code }, true, { cellId: 'cell-1' })"
    desk.page.evaluate(f"code => void {CURRENT}.{ask}", source)
    expect(mark(desk, 1)).to_contain_text("s4")

    desk.command("Show the cells as at HEAD")

    changes = desk.page.locator(".ctxk-nbsheet .ctxk-change")
    expect(changes).to_have_count(1)
    expect(changes).to_contain_text("y 100")
    desk.page.get_by_role("button", name="Show 1 cell as at s4").click()
    expect(desk.cell(1).locator(".jp-OutputArea").last).to_contain_text("y 100")
    expect(desk.cell(1).locator(".jp-InputPrompt, .jp-InputArea-prompt").first).to_contain_text("[4]")
