"""A model that proposes and a person who decides, in JupyterLab: by the mouse, by the keyboard, after a reload."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from ctxkernel.testing import answer, call, say

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

EVIL = "<img src=x onerror=window.__pwned=1></script><script>window.__pwned=1</script>"
ASK = "%%ask\nWhat is the mean of the rows?"
CODE = "total = sum(rows)\nprint('sum', total)"


def proposes(*cells: str, text: str = "I look."):
    """Return an answer that proposes cells."""
    return answer([say(text), *(call("run_cell", {"code": code}) for code in cells)])


@pytest.fixture
def asked(desk, messages):
    """Opens a notebook with an ask and lets it be sent; what the model says is given."""

    def ask(*script, cells=(ASK, "after = 1"), send=True):
        messages.script, messages.requests[:], messages.faults[:] = list(script), [], []
        desk.open("ask.ipynb", ["rows = [1, 2, 3]", *cells]).live()
        desk.select(0)
        desk.enter("s1")
        desk.enter()
        if send:
            button(desk.cell(1), "Send").click()
        return desk

    yield ask
    assert messages.faults == []
    assert desk.errors == []


def button(place, name):
    """Return a button of a card."""
    return place.locator(".ctxk-card-of-model").get_by_role("button", name=name, exact=True)


def told(messages) -> str:
    """Return the last request's messages."""
    return json.dumps(messages.requests[-1].body["messages"], ensure_ascii=False)


def saved(desk, index=1):
    """Return the outputs of a cell, as they are saved."""
    desk.page.keyboard.press("Control+s")
    path = desk.lab.root / "ask.ipynb"
    desk.page.wait_for_function("!jupyterapp.shell.currentWidget.context.model.dirty")
    return json.loads(path.read_text())["cells"][index]["outputs"]


# ---------------------------------------------------------------- deciding


def test_nothing_is_sent_before_a_yes(asked, messages):
    """The first request of a session says what it costs, and a no sends nothing."""
    desk = asked(send=False)
    expect(desk.cell(1).locator(".ctxk-card-of-model")).to_contain_text("claude-sonnet-5-5")
    expect(desk.view.locator(".ctxk-waits")).to_contain_text("Send to the model?")
    expect(desk.view.locator(".ctxk-sent")).to_have_text("Nothing has been sent to any model.")
    button(desk.cell(1), "Don’t send").click()
    expect(desk.view.locator(".ctxk-waits")).to_be_hidden()
    expect(desk.cell(1).locator(".ctxk-card-of-model")).to_contain_text("Not sent")
    assert messages.requests == []


def test_a_cell_is_approved_by_its_button_and_its_output_lands_below_the_ask(asked):
    """What was proposed runs, the model answers, and the notebook keeps all of it."""
    desk = asked(proposes(CODE), say("The mean is **2**."))
    cell = desk.cell(1)
    expect(button(desk.view, "Run")).to_be_visible()
    button(cell, "Run").click()
    expect(cell.locator(".jp-OutputArea")).to_contain_text("The mean is 2.")
    expect(cell.locator(".jp-OutputArea")).to_contain_text("sum 6")
    expect(cell.locator(".ctxk-card-of-model button")).to_have_count(0)
    expect(desk.view.locator(".ctxk-waits")).to_be_hidden()
    expect(desk.view.locator(".ctxk-sent")).to_contain_text("were sent to a model")

    kept = saved(desk)
    assert {"output_type": "stream", "name": "stdout", "text": ["sum 6\n"]} in kept
    text = json.dumps(kept)
    assert "The mean is **2**." in text
    assert CODE.splitlines()[0] in "".join(text)


def test_a_cell_is_approved_by_the_keyboard(asked):
    """The card has the keyboard where it was nowhere else. Enter runs the cell, but not one that was on its way."""
    desk = asked(proposes("a = 1", "b = 2"), say("Done."))
    run = button(desk.cell(1), "Run")
    expect(run).to_be_focused()
    desk.page.keyboard.press("Enter")
    desk.page.wait_for_timeout(1000)
    expect(run).to_be_enabled()
    desk.page.keyboard.press("Enter")
    expect(desk.row("s6")).to_contain_text("a = 1")
    card = desk.cell(1).locator(".ctxk-card-of-model[data-state=waits]")
    expect(card).to_contain_text("b = 2")
    expect(button(card.locator(".."), "Run")).to_be_focused()
    desk.page.wait_for_timeout(1000)
    card.focus()
    desk.page.keyboard.press("Enter")
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("Done.")


def test_run_all_runs_what_follows_in_this_ask(asked):
    """One yes for all cells of the ask, and none for the next ask."""
    desk = asked(proposes("a = 1", "b = 2"), proposes("c = 3"), say("Done."))
    button(desk.view, "Run all").click()
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("Done.")
    for code in ("a = 1", "b = 2", "c = 3"):
        expect(desk.view.locator(".ctxk-row[data-author=model]", has_text=code)).to_have_count(1)


def test_a_cell_is_edited_before_it_runs(asked, messages):
    """E opens the code for editing, Shift+Enter runs it so, Escape goes back; the model is told what ran."""
    desk = asked(proposes(CODE), say("Done."))
    card = desk.cell(1).locator(".ctxk-card-of-model[data-state=waits]")
    expect(button(desk.cell(1), "Run")).to_be_enabled()
    card.focus()
    desk.page.keyboard.press("e")
    field = card.locator("textarea")
    expect(field).to_be_focused()
    expect(field).to_have_value(CODE)
    desk.page.keyboard.press("Escape")
    expect(field).to_have_count(0)
    expect(button(desk.cell(1), "Run")).to_be_focused()
    desk.page.keyboard.press("e")
    expect(field).to_be_focused()
    field.fill("total = 7\nprint('edited', '{total}', \"$total\")")
    desk.page.keyboard.press("Shift+Enter")
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("edited {total} $total")
    expect(desk.cell(1).locator(".ctxk-card-of-model", has_text="edited by you")).to_contain_text("total = 7")
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("Done.")
    assert "The person edited the cell" in told(messages)


def test_a_cell_is_rejected_with_a_reason_that_the_model_gets(asked, messages):
    """R asks why, Enter sends it word for word."""
    reason = """not "this" {rows}, it's $5 \\ -- `x`"""
    desk = asked(proposes(CODE), say("Then not."))
    card = desk.cell(1).locator(".ctxk-card-of-model[data-state=waits]")
    expect(button(desk.cell(1), "Run")).to_be_enabled()
    card.focus()
    desk.page.keyboard.press("r")
    field = card.get_by_role("textbox")
    expect(field).to_be_focused()
    desk.page.keyboard.insert_text(reason)
    desk.page.keyboard.press("Enter")
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("Then not.")
    expect(desk.cell(1).locator(".ctxk-card-of-model", has_text="rejected")).to_contain_text(reason)
    assert reason in "".join(json.loads(f'"{part}"') for part in re.findall(r'"((?:[^"\\]|\\.)*)"', told(messages)))
    expect(desk.view.locator(".ctxk-decision")).to_have_text(["approved", f"rejected: {reason}"])
    assert "total" not in desk.row("s1").inner_text()


def test_stop_ends_the_ask(asked, messages):
    """Nothing runs, nothing more is asked, and the next cell runs as ever."""
    desk = asked(proposes(CODE))
    button(desk.cell(1), "Stop").click()
    expect(desk.view.locator(".ctxk-waits")).to_be_hidden()
    expect(desk.cell(1).locator(".ctxk-card-of-model", has_text="not run")).to_contain_text("total = sum(rows)")
    expect(desk.cell(1)).to_contain_text("the ask of s2 has ended")
    assert len(messages.requests) == 1
    desk.select(2)
    desk.enter()
    expect(desk.view.locator(".ctxk-row").last).to_contain_text("after = 1")


def test_commands_decide_on_what_waits(asked):
    """The palette has them while something waits; rejecting asks for the reason in the panel."""
    desk = asked(proposes("a = 1", "b = 2"), say("Done."))
    expect(button(desk.cell(1), "Run")).to_be_focused()
    desk.page.keyboard.press("Control+Alt+Enter")
    expect(desk.view.locator(".ctxk-waits")).to_contain_text("b = 2")
    expect(button(desk.view, "Run")).to_be_enabled()
    desk.command("ctxkernel: Reject the proposal")
    field = desk.view.locator(".ctxk-waits").get_by_role("textbox")
    expect(field).to_be_focused()
    desk.page.keyboard.press("Enter")
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("Done.")


# ---------------------------------------------------------------- what holds


def test_run_all_stops_at_an_ask_that_waits(asked):
    """The cells below wait for the answer, and are not run before it."""
    desk = asked(proposes(CODE), proposes(CODE))
    expect(button(desk.cell(1), "Run")).to_be_enabled()
    button(desk.cell(1), "Stop").click()
    expect(desk.view.locator(".ctxk-waits")).to_be_hidden()
    desk.page.get_by_role("menuitem", name="Run", exact=True).click()
    desk.page.locator(".lm-Menu-item", has_text=re.compile("^Run All Cells")).click()
    expect(button(desk.cell(1), "Run")).to_be_enabled()
    expect(desk.cell(2).locator(".jp-InputPrompt")).to_have_text("[ ]:")
    assert desk.view.locator(".ctxk-row", has_text="after = 1").count() == 0


def test_a_proposal_survives_a_reload(asked):
    """The panel and the saved card still offer it, and what it leads to is added to the ask's cell."""
    desk = asked(proposes(CODE), proposes("1 / 0"), say("The mean is **2**."))
    expect(button(desk.cell(1), "Run")).to_be_enabled()
    desk.page.keyboard.press("Control+s")
    expect(desk.page.locator(".lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)
    desk.reload()
    desk.settle().live()
    expect(button(desk.cell(1), "Run")).to_be_enabled()
    button(desk.view, "Run").click()
    outputs = desk.cell(1).locator(".jp-OutputArea")
    expect(outputs).to_contain_text("sum 6")
    expect(outputs).not_to_contain_text("no longer waits")
    expect(desk.view.locator(".ctxk-waits")).to_contain_text("1 / 0")
    button(desk.cell(1), "Run").click()
    expect(outputs).to_contain_text("ZeroDivisionError")
    expect(outputs).to_contain_text("The mean is 2.")
    assert "The mean is **2**." in json.dumps(saved(desk))


def test_a_saved_notebook_has_no_buttons(asked):
    """What waited in a kernel that is gone waits no more."""
    desk = asked(proposes(CODE))
    expect(button(desk.cell(1), "Run")).to_be_enabled()
    saved(desk)
    desk.select(0)
    desk.page.keyboard.press("0")
    desk.page.keyboard.press("0")
    desk.page.locator(".jp-Dialog").wait_for()
    desk.page.keyboard.press("Enter")
    card = desk.cell(1).locator(".ctxk-card-of-model", has_text="total")
    expect(card).to_contain_text("no longer waits")
    expect(card).not_to_contain_text("wants to run")
    expect(card.locator("button")).to_have_count(0)
    desk.reload()
    desk.settle().live()
    expect(card).to_contain_text("no longer waits")
    expect(card.locator("button")).to_have_count(0)


def test_what_a_model_says_stays_text(asked):
    """Prose, code and reasons are letters: none becomes an element, none runs."""
    code = f"evil = {EVIL!r}\nprint(evil)"
    desk = asked(proposes(code, text=f"Look: {EVIL}"), say(f"`{EVIL}` and {EVIL}"))
    expect(button(desk.cell(1), "Run")).to_be_enabled()
    expect(desk.view.locator(".ctxk-waits")).to_contain_text("onerror=window.__pwned")
    button(desk.cell(1), "Run").click()
    expect(desk.view.locator(".ctxk-row[data-author=model]")).to_have_count(3)
    desk.view.locator(".ctxk-row[data-author=model] .ctxk-toggle").last.click()
    expect(desk.view.locator(".ctxk-said")).to_contain_text("onerror=window.__pwned")
    for place in (desk.cell(1), desk.view):
        assert place.locator("img, script").count() == 0
    assert desk.page.evaluate("typeof window.__pwned") == "undefined"


def test_the_keyboard_is_never_taken_from_an_editor(asked):
    """A proposal that comes while one types leaves the keyboard where it is."""
    desk = asked(proposes("a = 1"), proposes("b = 2"), say("Done."), cells=(ASK, "typing"))
    expect(button(desk.cell(1), "Run")).to_be_enabled()
    button(desk.cell(1), "Run").click()
    desk.cell(2).locator(".cm-content").click()
    expect(desk.view.locator(".ctxk-waits")).to_contain_text("b = 2")
    expect(button(desk.view, "Run")).to_be_enabled()
    desk.page.wait_for_timeout(500)
    assert desk.page.evaluate("Boolean(document.activeElement.closest('.cm-editor'))")


# ---------------------------------------------------------------- the panel


def test_the_panel_says_that_a_model_is_asked_and_stops_it(asked):
    """Which model, for how long; Stop ends the ask, and keeps what came."""
    slow = answer([say("word " * 400)], delay=0.2, chunk=10)
    desk = asked(slow)
    state = desk.view.locator(".ctxk-state")
    expect(state).to_have_text(re.compile(r"asking claude-sonnet-5-5 · \d+ s"))
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("word word")
    desk.view.locator(".ctxk-stop").click()
    expect(state).to_contain_text("idle")
    expect(desk.view.locator(".ctxk-stop")).to_be_hidden()
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("stopped")
    expect(desk.view.locator(".ctxk-row").last.locator(".ctxk-status")).to_contain_text("cancelled")
    expect(desk.tab("cost").locator(".ctxk-costsum")).to_contain_text(re.compile(r" in, ~\d+ out"))


def test_an_ask_stands_together_in_the_timeline(asked):
    """Below the question: what was decided, what the model said, with its cost, and its cells, marked as its own."""
    desk = asked(proposes("a = 1", text="I look at **a**."), say("Done."))
    button(desk.cell(1), "Run").click()
    rows = desk.view.locator(".ctxk-row")
    expect(rows).to_have_count(7)
    expect(desk.row("s2").locator(".ctxk-question")).to_have_text("What is the mean of the rows?")
    assert [row.evaluate("el => el.matches('.ctxk-ofask')") for row in rows.all()] == [False, False, *[True] * 5]
    expect(desk.row("s3").locator(".ctxk-decision")).to_have_text("approved")
    said = desk.row("s4")
    expect(said.locator(".ctxk-prose")).to_have_text("I look at a.")
    expect(said.locator(".ctxk-spent")).to_have_text(re.compile(r"[\d,]+ tokens · \$0\.\d{4}"))
    expect(desk.row("s6").locator(".ctxk-bymodel")).to_have_text("model")
    expect(desk.row("s6").locator("code.ctxk-src")).to_have_text("a = 1")
    said.locator(".ctxk-toggle").click()
    expect(said.locator(".ctxk-details")).to_contain_text("claude-sonnet-5-5")
    expect(said.locator(".ctxk-details")).to_contain_text("req_0001")
    expect(said.locator(".ctxk-details")).to_contain_text("sha256:")
    expect(said.locator(".ctxk-details")).to_contain_text("output tokens")
    desk.select(2)
    desk.enter()
    expect(rows).to_have_count(8)
    assert not rows.last.evaluate("el => el.matches('.ctxk-ofask')")


# ---------------------------------------------------------------- the model's cells in the notebook


def test_cells_of_the_model_are_put_into_the_notebook_where_that_is_asked_for(asked):
    """In order, with their outputs, once; a later Run All replays the ask, and runs none of them a second time."""
    grows = "rows.append(len(rows) + 1)\nprint('rows', rows)"
    desk = asked(
        answer([say("I append."), call("run_cell", {"code": grows}), call("run_cell", {"code": "len(rows)"})]),
        say("Now it has **4**."),
        cells=(ASK, "print('after', rows)", "%ctx config insert_cells true"),
        send=False,
    )
    # What waits ends the ask with an error, so that Run All stops there: a cell that is sent before that is swept away.
    expect(desk.cell(1).locator(".jp-InputPrompt")).to_have_text("[2]:")
    desk.select(3)
    desk.enter()
    expect(desk.cell(3).locator(".jp-OutputArea")).to_contain_text("insert_cells")
    button(desk.cell(1), "Send").click()
    button(desk.cell(1), "Run all").click()
    expect(desk.cell(5).locator(".jp-RenderedMarkdown")).to_have_text("Now it has 4.")
    cells = _cells(desk)
    assert [cell["source"] for cell in cells[2:6]] == ["I append.", grows, "len(rows)", "Now it has **4**."]
    assert [cell["cell_type"] for cell in cells[2:6]] == ["markdown", "code", "code", "markdown"]
    assert cells[3]["outputs"][0]["text"] == ["rows [1, 2, 3, 4]\n"]
    assert cells[4]["outputs"][0]["data"]["text/plain"] == ["4"]
    assert cells[3]["metadata"]["ctxkernel"]["statement"] == "s7"
    # What stands in the copies is not shown a second time: the ask's own output is folded, one click away.
    expect(desk.cell(1).locator(".jp-OutputPlaceholder")).to_be_visible()
    expect(desk.page.get_by_text("rows [1, 2, 3, 4]")).to_have_count(1)
    assert cells[1]["metadata"]["jupyter"]["outputs_hidden"] is True

    desk.page.get_by_role("menuitem", name="Run", exact=True).click()
    desk.page.locator(".lm-Menu-item", has_text=re.compile("^Run All Cells")).click()
    expect(desk.cell(6).locator(".jp-OutputArea")).to_contain_text("after [1, 2, 3, 4]")
    expect(desk.cell(3).locator(".jp-OutputArea")).to_contain_text("not run again")
    expect(desk.cell(3).locator(".jp-OutputArea")).to_contain_text("rows [1, 2, 3, 4]")
    expect(desk.cell(7).locator(".jp-InputPrompt")).not_to_have_text("[*]:")
    assert [cell["source"] for cell in _cells(desk)] == [cell["source"] for cell in cells]


def _cells(desk):
    saved(desk)
    found = json.loads((desk.lab.root / "ask.ipynb").read_text())["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in found]


# ---------------------------------------------------------------- what the panel claims


def test_the_panel_says_that_parts_were_sent_while_the_first_answer_arrives(asked):
    """It does not wait for the end of the answer."""
    desk = asked(answer([say("word " * 100)], delay=0.2, chunk=10))
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("word word")
    expect(desk.view.locator(".ctxk-state")).to_contain_text("asking")
    expect(desk.view.locator(".ctxk-sent")).to_contain_text("were sent to a model")
    desk.view.locator(".ctxk-stop").click()
    expect(desk.view.locator(".ctxk-state")).to_contain_text("idle")


def test_the_options_of_an_ask_are_no_part_of_its_question(asked):
    """Neither their names nor their values; the question keeps its own dashes."""
    line = "%%ask --mode auto --again --max-turns=3 --budget 50k\nIs a -- or --b used?"
    desk = asked(say("Both."), cells=(line, "1"), send=False)
    expect(desk.row("s2").locator(".ctxk-question")).to_have_text("Is a -- or --b used?")
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("Both.")


def test_a_proposal_at_another_place_can_be_decided_on_when_one_is_back_there(asked):
    """Elsewhere its buttons rest and the card says where it waits; a decision that is typed is refused."""
    desk = asked(proposes("a = 1"), say("Done."), cells=(ASK, "%ctx goto s1", "%ctx approve", "%ctx goto s4"))
    expect(button(desk.cell(1), "Run")).to_be_enabled()
    desk.select(2)
    desk.enter()
    told = desk.view.locator(".ctxk-waits .ctxk-cardtold")
    expect(told).to_contain_text("It waits at s4")
    expect(button(desk.view, "Run")).to_be_disabled()
    expect(button(desk.cell(1), "Run")).to_be_disabled()
    desk.enter()
    expect(desk.cell(3).locator(".jp-OutputArea")).to_contain_text("%ctx goto s4 returns there")
    expect(desk.view.locator(".ctxk-decision", has_text="not carried out")).to_have_text("approve: not carried out")
    desk.enter()
    expect(told).to_be_hidden()
    button(desk.view, "Run").click()
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("Done.")


def test_a_new_kernel_knows_that_an_earlier_one_sent_parts_of_the_session(asked):
    """The header says what the section Cost lists, also before the session is resumed."""
    desk = asked(say("Done."))
    expect(desk.cell(1).locator(".jp-OutputArea")).to_contain_text("Done.")
    desk.select(0)
    desk.page.keyboard.press("0")
    desk.page.keyboard.press("0")
    desk.page.locator(".jp-Dialog").wait_for()
    desk.page.keyboard.press("Enter")
    expect(desk.view.get_by_role("button", name="Start fresh")).to_be_visible()
    expect(desk.view.locator(".ctxk-sent")).to_contain_text("were sent to a model")
