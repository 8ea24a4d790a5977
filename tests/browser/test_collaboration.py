"""Two browsers on one notebook, with jupyter-collaboration: the same marks in both, and nobody's text is lost.

python tests/front_ends.py collaboration
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from cable import Cable
from notebook_moves import CURRENT, go_back, labels, mark, run_all
from playwright.sync_api import BrowserContext, expect

from ctxkernel.testing import answer, call, say

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

ASK = ["rows = [1, 2, 3]", "%ctx config insert_cells true", "%%ask\nWhat is the sum?"]
CELLS = ["x = 1\nprint('x', x)", "y = x + 1\nprint('y', y)", "print('last')"]


@pytest.fixture
def cable(new_desk: Any) -> Iterator[Cable]:
    """The network between the second browser and the server."""
    cable = Cable(new_desk.lab.port)
    yield cable
    cable.close()


@pytest.fixture
def pair(new_desk: Any, context: BrowserContext, cable: Cable) -> Iterator[tuple[Any, Any]]:
    """Two people on one notebook: what they have in common is the server."""
    lab = new_desk.lab
    finds = [lab.python, "-c", "import jupyter_server_ydoc"]
    found = subprocess.run(finds, capture_output=True, text=True, check=False)
    if found.returncode:
        said = found.stderr.strip().rpartition("\n")[2]
        pytest.skip(f"no jupyter-collaboration ({said}): run python tests/front_ends.py collaboration")
    other = type(new_desk)(copy.copy(lab), context.new_page(), "auto-other")
    # Another port is another origin: no storage of the browser is shared.
    other.lab.port = cable.port
    yield new_desk, other
    other.page.close()
    assert new_desk.errors == []
    assert other.errors == []


def join(pair: tuple[Any, Any], name: str) -> tuple[Any, Any]:
    """Run a notebook on one page, and open it on the other."""
    desk, other = pair
    run_all(desk, name, CELLS)
    other.page.goto(other.lab.url(name, other.workspace))
    other.settle().live()
    expect(mark(other, 2)).to_contain_text("s3")
    return desk, other


def text(desk: Any, index: int) -> str:
    """Return the text of a cell."""
    return desk.page.evaluate(f"{CURRENT}.content.widgets[{index}].model.sharedModel.getSource()")


def sources_of(desk: Any) -> list[str]:
    """Return the texts of all cells."""
    return desk.page.evaluate(f"{CURRENT}.content.widgets.map(one => one.model.sharedModel.getSource())")


def kept(desk: Any, index: int) -> str:
    """Return the texts that are kept with a cell, on any page."""
    return json.dumps(desk.page.evaluate(f"{CURRENT}.content.widgets[{index}].model.sharedModel.getMetadata()"))


def type_into(desk: Any, index: int, words: str) -> None:
    """Type at the end of a cell, and stay there."""
    desk.select(index)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+End")
    desk.page.keyboard.insert_text(words)


def same(desk: Any, other: Any) -> None:
    """Wait until both pages say the same of every cell."""
    for _ in range(100):
        if labels(desk) == labels(other):
            return
        desk.page.wait_for_timeout(100)
    assert labels(desk) == labels(other)


def test_both_see_the_same_marks_whoever_runs_edits_and_goes_back(pair: tuple[Any, Any]):
    """Of a cell that the other one ran, too."""
    desk, other = join(pair, "marks.ipynb")
    same(desk, other)
    type_into(other, 0, "  # by the other")
    expect(mark(desk, 0)).to_contain_text("edited")
    same(desk, other)
    other.enter("s4")
    expect(mark(desk, 0)).to_contain_text("s4")
    expect(desk.row("s4")).to_be_visible()
    same(desk, other)
    go_back(desk, "s3")
    expect(mark(other, 0)).to_contain_text("later")
    expect(other.cell(0).locator(".ctxk-foreignline")).to_be_visible()
    same(desk, other)


def test_one_follows_a_return_while_the_other_types_and_both_texts_are_there(pair: tuple[Any, Any]):
    """What was typed before and after the cells were shown is in the cell or kept with it, on both pages."""
    desk, other = join(pair, "types.ipynb")
    type_into(desk, 0, "\nx = 5")
    desk.enter("s4")
    go_back(desk, "s3")
    type_into(other, 0, "\n# typed before")
    expect(desk.cell(0)).to_contain_text("typed before")
    desk.page.locator(".ctxk-offer").get_by_role("button", name="Show it as at s3…").click()
    sheet = desk.page.get_by_role("dialog", name="Show the cells as at s3")
    expect(sheet).to_contain_text("typed before")
    other.page.keyboard.insert_text(" and while it was read")
    desk.page.get_by_role("button", name="Show 1 cell as at s3").click()
    expect(mark(desk, 0)).to_contain_text("s1")
    expect(mark(other, 0)).to_contain_text("s1")
    for page in (desk, other):
        assert "typed before and while it was read" in kept(page, 0)
        assert text(page, 0) == CELLS[0]
        expect(page.cell(0).locator(".jp-OutputArea")).to_contain_text("x 1")

    other.page.keyboard.insert_text("# typed after")
    expect(desk.cell(0)).to_contain_text("typed after")
    desk.page.locator(".ctxk-offer").get_by_role("button", name="Take it back").click()
    expect(desk.cell(0)).to_contain_text("and while it was read")
    both = text(other, 0) + kept(other, 0)
    assert "typed after" in both
    assert "typed before and while it was read" in both
    same(desk, other)


def test_texts_that_meet_on_the_way_are_all_kept(pair: tuple[Any, Any], cable: Cable):
    """Both pages follow at the same moment, each with letters that the other one has not seen."""
    desk, other = join(pair, "meet.ipynb")
    type_into(desk, 0, "\nx = 5")
    desk.enter("s4")
    go_back(desk, "s3")
    for page in (desk, other):
        page.page.locator(".ctxk-offer").get_by_role("button", name="Show it as at s3…").click()
        expect(page.page.get_by_role("button", name="Show 1 cell as at s3")).to_be_visible()
    cable.cut()
    for page, words in ((desk, "# of the one"), (other, "# of the other")):
        source = f"{CURRENT}.content.widgets[0].model.sharedModel"
        page.page.evaluate(f"{{ const to = {source}.getSource().length; {source}.updateSource(to, to, '\\n{words}') }}")
        page.page.get_by_role("button", name="Show 1 cell as at s3").click()
    cable.mend()
    both = f"""() => {{
      const found = JSON.stringify({CURRENT}.content.widgets[0].model.sharedModel.toJSON());
      return found.includes('# of the one') && found.includes('# of the other');
    }}"""
    for page in (desk, other):
        page.page.wait_for_function(both, timeout=90_000)
        assert text(page, 0) == CELLS[0]
    same(desk, other)


def test_what_a_model_said_and_ran_is_put_into_the_notebook_once(pair: tuple[Any, Any], messages: Any):
    """One person asks, the other one approves: both see the answer, and each of the model's cells a single time."""
    desk, other = pair
    code = "total = sum(rows)\nprint('sum', total)"
    messages.script = [
        answer([say("I look."), call("run_cell", {"code": code}), call("run_cell", {"code": "total + 1"})]),
        say("It is **6**."),
    ]
    desk.open("asks.ipynb", ASK).live()
    desk.select(0)
    desk.enter("s1")
    desk.enter()
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("insert_cells")
    other.page.goto(other.lab.url("asks.ipynb", other.workspace))
    other.settle().live()
    desk.enter()
    desk.cell(2).locator(".ctxk-card-of-model").get_by_role("button", name="Send", exact=True).click()
    card = other.view.locator(".ctxk-card-of-model[data-state=waits]")
    expect(card).to_contain_text("total = sum(rows)")
    card.get_by_role("button", name="Run all", exact=True).click()
    sources = [*ASK, "I look.", code, "total + 1", "It is **6**."]
    for page in (desk, other):
        expect(page.view.locator(".ctxk-waits")).to_be_hidden()
        page.page.wait_for_function(f"{CURRENT}.content.widgets.length >= {len(sources)}")
    assert sources_of(desk)[: len(sources)] == sources
    assert sources_of(other) == sources_of(desk)
