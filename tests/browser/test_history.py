"""The projection and the history of the model, as a person works with them: in JupyterLab, with a real kernel."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

LONG = "for i in range(36):\n    print('line', i, 'of an output that is long enough')"
ASK = """
from ctxkernel.history.events import Action, AssistantMessage, Observation, UserQuestion
log = get_ipython().kernel.ctx.loop
log.record(UserQuestion(log.next_event_id, "Why do the residuals drift?"))
log.record(Action(log.next_event_id, "t1", "run_cell", {"code": "rows.mean()"}, "r1", (), "I look at the means."))
log.record(Observation(log.next_event_id, "t1", "year residual\\n" + "\\n".join(f"{y} {y % 7}" for y in range(200))))
log.record(AssistantMessage(log.next_event_id, "The sensor was replaced in 2019."))
del log
"""
BREAK = """
from ctxkernel.history.rules import RuleReport, Violation
from ctxkernel.projection.projection_check import ProjectionCheck
fault = Violation("never_on_a_monday", "messages[0].content[1].text", "this text is too <b>blue</b>", "paint it red")
ProjectionCheck.report = lambda self, *given: RuleReport(False, (fault,))
"""


def run_all(desk, cells):
    """Open a notebook, run every cell by Shift+Enter, and bring the projection to the front."""
    desk.open("history.ipynb", cells).live()
    desk.select(0)
    for n in range(1, len(list(filter(None, cells))) + 1):
        desk.enter(f"s{n}")
    return desk.tab("projection")


def block(desk, name):
    """Return a block of the projection."""
    return desk.view.locator(f'[data-block="{name}"]')


def act(desk, name, item):
    """Open the menu of a block and choose."""
    block(desk, name).locator(".ctxk-blockmore").click()
    desk.view.locator(".ctxk-menuitem", has_text=item).click()


def told(desk):
    """Return what the panel says of the last thing done."""
    return desk.view.locator(".ctxk-told")


def test_an_output_is_redacted_from_the_panel_and_comes_back(desk):
    """By keyboard; the note says what was typed, quotes, braces and dollars as they are; the prompt does not move."""
    run_all(desk, ["rows = 1", LONG, ""])
    expect(desk.view.locator("[role=tab][data-tab=history]")).to_be_hidden()
    more = block(desk, "s2.1").locator(".ctxk-blockmore")
    more.focus()
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Enter")
    expect(desk.view.get_by_role("textbox", name="What mattered in the output of s2.1")).to_be_focused()
    text = """60 "lines", it's {rows} and $rows \\ --list"""
    desk.page.keyboard.insert_text(text)
    desk.page.keyboard.press("Enter")
    expect(block(desk, "s2.1")).to_contain_text('[redacted: "60 \\"lines\\", it\'s {rows} and $rows \\\\ --list"')
    expect(block(desk, "s2.1")).not_to_contain_text("line 30")
    expect(block(desk, "s2.1").locator(".ctxk-redacted")).to_have_text("redacted")
    expect(more).to_be_focused()
    expect(block(desk, "s3.1")).to_have_count(0)  # the gesture itself takes no room

    entry = desk.tab("history").locator(".ctxk-entry")
    expect(entry.locator(".ctxk-quote")).to_have_text(text)
    expect(entry).to_contain_text("by you")
    entry.get_by_role("button", name="Undo the redaction of s2.1").click()
    expect(entry).to_contain_text("taken back")
    desk.tab("projection")
    expect(block(desk, "s2.1")).to_contain_text("line 5")
    expect(block(desk, "s2.1").locator(".ctxk-redacted")).to_have_count(0)
    desk.select(2)
    desk.type("print('next')")
    expect(desk.cell(2).locator(".jp-InputPrompt")).to_contain_text("[3]")


def test_a_redaction_that_saves_nothing_is_refused_with_the_reason(desk):
    """And the words stay in the field."""
    run_all(desk, ["print('short')"])
    act(desk, "s1.1", "Redact")
    desk.page.keyboard.insert_text("a summary that is longer than the output")
    desk.view.get_by_role("button", name="Redact", exact=True).click()
    expect(told(desk)).to_contain_text("leave this output, or write a shorter summary")
    expect(desk.view.get_by_role("textbox")).to_have_value("a summary that is longer than the output")


def test_the_history_is_condensed_opened_and_brought_back(desk):
    """A pinned statement stays; the events are read in the panel; after the undo they stand where they stood."""
    section = run_all(desk, ["first = 1", LONG, ASK.strip(), LONG, "last = 2"])
    order = "els => els.map((el) => el.dataset.block)"
    expect(block(desk, "s4.1")).to_be_visible()
    before = section.locator("[data-block]").evaluate_all(order)
    speakers = section.locator(".ctxk-message[data-role=assistant] .ctxk-speaker")
    expect(speakers.first).to_have_text("the model")
    act(desk, "s4.1", "Pin")
    expect(block(desk, "s4.1").locator(".ctxk-pinned")).to_be_visible()
    section.get_by_role("button", name="Condense now").click()
    expect(block(desk, "s2.1")).to_have_count(0)
    expect(block(desk, "s4.1")).to_be_visible()
    expect(block(desk, "s3.1:1")).to_contain_text("Why do the residuals drift?")
    told(desk).get_by_role("button", name="Show").click()

    entry = desk.view.locator(".ctxk-entry", has_text="condensed").first
    entry.locator("summary").click()
    expect(entry.locator(".ctxk-event").first).to_contain_text("line 5")
    expect(entry).to_contain_text("rows.mean()")
    entry.get_by_role("button", name=re.compile("Undo the condensation")).click()
    expect(entry).to_contain_text("taken back")
    section = desk.tab("projection")
    expect(block(desk, "s2.1")).to_be_visible()
    history = [name for name in before if re.match(r"s\d", name)]
    now = [name for name in section.locator("[data-block]").evaluate_all(order) if re.match(r"s\d", name)]
    assert now == history

    # A page that comes later sees the same.
    desk.page.keyboard.press("Control+s")
    desk.reload()
    desk.settle().live()
    expect(desk.tab("history").locator(".ctxk-entry").first).to_contain_text("taken back")


def test_a_red_badge_names_block_and_statement_and_leads_to_both(desk):
    """A rule that is made to fail in the kernel: its text is letters, and the way to block and row is a click."""
    section = run_all(desk, ["a = 1", "b = 2", BREAK.strip()])
    badge = desk.view.locator(".ctxk-checks")
    expect(badge).to_contain_text("1 violation")
    desk.tab("timeline")
    badge.click()
    failed = desk.view.get_by_role("group", name="Checks that failed")
    expect(failed).to_be_focused()
    expect(failed).to_contain_text("block s2.1 of s2")
    expect(failed).to_contain_text("this text is too <b>blue</b>")
    expect(failed).to_contain_text("Fix: paint it red")
    assert failed.locator("b").all_text_contents() == ["Fix: "]
    failed.get_by_role("button", name="Show block s2.1").click()
    expect(block(desk, "s2.1")).to_be_focused()
    expect(block(desk, "s2.1").locator(".ctxk-fault")).to_be_in_viewport()
    section.evaluate("el => (el.scrollTop = 0)")
    failed.get_by_role("button", name="Show statement s2 in the timeline").click()
    expect(desk.row("s2")).to_be_focused()
    expect(desk.row("s2")).to_be_in_viewport()


def test_an_earlier_projection_is_compared_with_that_of_now(desk):
    """Blocks, tokens, cost and the end of the cached prefix; why a name is missing is one question away."""
    section = run_all(desk, [LONG, "kept = 2", "_hidden = 3"])
    expect(section.locator(".ctxk-cost")).to_contain_text("~$")
    section.locator("summary", has_text="Compare with an earlier projection").click()
    section.get_by_role("combobox", name="The earlier projection: after which statement").select_option("s1.1")
    against = section.locator(".ctxk-against")
    expect(against.locator("[data-changes=gained]")).to_contain_text("s2.1")
    expect(against.locator("[data-changes=changed]")).to_contain_text("variables")
    expect(against).to_contain_text(re.compile(r"from the cache~[\d,]+ tokens, it breaks at s2\.1"))
    against.get_by_role("button", name="Show block s2.1").first.click()
    expect(block(desk, "s2.1")).to_be_focused()

    section.locator("summary", has_text="Left out").click()
    section.get_by_role("textbox", name=re.compile("Why is this not")).fill("_hidden")
    desk.page.keyboard.press("Enter")
    expect(told(desk)).to_contain_text("_hidden is in: the table of variables has a row")
    desk.tab("timeline")
    expect(desk.view.locator(".ctxk-row")).to_have_count(3)


def test_the_inline_panel_opens_what_was_condensed_and_shows_the_line_that_undoes_it(desk):
    """A widget asks the kernel by its own messages; what it cannot do is shown as a line to run."""
    run_all(desk, ["first = 1", LONG, LONG, "%ctx condense"])
    desk.select(3)
    desk.page.keyboard.press("b")
    desk.type("%ctx panel")
    inline = desk.cell(4).locator(".ctxk-inline")
    inline.locator("[role=tab][data-tab=history]").click()
    entry = inline.locator(".ctxk-entry", has_text="condensed")
    entry.locator("summary").click()
    expect(entry.locator(".ctxk-event").first).to_contain_text("line 5")
    entry.get_by_role("button", name=re.compile("Undo")).click()
    expect(inline.get_by_role("dialog").locator(".ctxk-codeline")).to_contain_text("%ctx condense --undo s4.1:")
