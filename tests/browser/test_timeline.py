"""The timeline of a long session: the keyboard, rows on request, search, details; and a plan that is made anew."""

# ruff: noqa: F811
from __future__ import annotations

import re

import pytest
from notebook_moves import LAB_ONLY
from playwright.sync_api import expect

from browser.test_renderer import choose, page, row, shown, stage  # noqa: F401

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

LONG = """async (count) => {
  const row = (n) => ({ ...S.snapshot.statements[0], statement_id: `s${n}`, execution_id: `s${n}.1`, index: n,
    parent_execution_id: n > 1 ? `s${n - 1}.1` : null, source: `x${n} = ${n}`, started_at: n, ended_at: n,
    cell_id: `c${n}` });
  host.asked = [];
  host.answers.rows = async ({ runs }) => {
    host.asked.push(runs);
    const rows = runs.split(' ').flatMap((span) => {
      const [first, many] = span.split('+');
      return Array.from({ length: Number(many ?? 1) }, (_, i) => row(parseInt(first.slice(1), 10) + i));
    });
    return { type: 'rows', rows, error: null };
  };
  host.answers.search = async (request) => {
    host.search = request;
    return { type: 'search', search: { runs: ['s7.1', 's5000.1'], total: 2 }, error: null };
  };
  view.snapshot(window.long = { ...S.snapshot, session: 'long', head: `s${count}.1`, running: null,
    statements: Array.from({ length: 200 }, (_, i) => row(count - 199 + i)),
    shape: { spans: [{ first: 's1.1', count, parent: null }], cells: {}, cell: Array(count).fill(-1),
      time_ms: Array(count).fill(1), meta: [], moved: [], usd: {}, verdicts: {} } });
}"""


def focused(stage) -> str:
    """Return the run of the row that has the keyboard."""
    return stage.evaluate("document.activeElement.dataset.execution ?? document.activeElement.className")


def test_the_list_is_one_tab_stop_and_arrow_keys_move_in_it(stage):
    """Enter opens details, letters do what the menu of a row does, and Tab leaves the list."""
    stage.locator(".ctxk-search select").focus()
    stage.keyboard.press("Tab")
    assert focused(stage) == "s13.1"
    stage.keyboard.press("ArrowUp")
    stage.keyboard.press("ArrowUp")
    assert focused(stage) == "s11.1"
    stage.keyboard.press("Home")
    assert focused(stage) == "s1.1"
    stage.keyboard.press("ArrowDown")
    stage.keyboard.press("Enter")
    expect(row(stage, "s2.1").locator(".ctxk-details")).to_be_visible()
    expect(row(stage, "s2.1")).to_have_attribute("aria-expanded", "true")
    stage.keyboard.press("ArrowLeft")
    expect(row(stage, "s2.1").locator(".ctxk-details")).to_be_hidden()
    stage.keyboard.press("g")
    assert stage.evaluate("host.went") == ["cell-2"]
    stage.keyboard.press("b")
    expect(stage.locator(".ctxk-told")).to_contain_text("s2")
    assert stage.evaluate("host.gestures") == ["%ctx goto s2"]
    stage.keyboard.press("m")
    expect(stage.get_by_role("menu", name="Statement s2")).to_be_visible()
    stage.keyboard.press("Escape")
    row(stage, "s2.1").focus()
    stage.keyboard.press("End")
    assert focused(stage) == "s13.1"
    assert stage.locator(".ctxk-rows [tabindex='0']").count() == 1
    stage.keyboard.press("/")
    expect(stage.locator(".ctxk-search input")).to_be_focused()


def test_ten_thousand_rows_are_reached_by_keyboard_and_asked_for_when_seen(stage):
    """The page has only what is seen; rows come in a few questions; assistive technology is told the whole list."""
    stage.evaluate(LONG, 10_000)
    expect(row(stage, "s10000.1")).to_be_visible()
    assert stage.locator(".ctxk-rows > [role=row]").count() < 60
    expect(stage.locator(".ctxk-rows")).to_have_attribute("aria-rowcount", "10000")
    expect(stage.locator("[data-tab=timeline] .ctxk-count")).to_have_text("10,000")
    row(stage, "s10000.1").focus()
    stage.keyboard.press("Home")
    expect(row(stage, "s1.1")).to_contain_text("x1 = 1")
    assert focused(stage) == "s1.1"
    expect(row(stage, "s1.1")).to_have_attribute("aria-rowindex", "1")
    stage.keyboard.press("PageDown")
    assert focused(stage).startswith("s")
    stage.locator(".ctxk-timeline").evaluate("el => (el.scrollTop = el.scrollHeight / 2)")
    expect(stage.locator(".ctxk-row", has_text=re.compile(r"x50\d\d = "))).not_to_have_count(0)
    assert stage.evaluate("host.asked.length") < 8


def test_the_newest_rows_are_followed_also_when_a_notice_opens_below_them(stage):
    """As in a resume: the rows and the notice come together, and the notice takes room from the rows."""
    stage.evaluate(LONG, 200)
    timeline = stage.locator(".ctxk-timeline")
    timeline.evaluate("el => (el.scrollTop = 0)")
    expect(row(stage, "s1.1")).to_be_visible()
    stage.evaluate("""() => {
        host.refuses = 'Restored.\\n'.repeat(6);
        document.querySelector('.ctxk-newest').click();
        for (const one of document.querySelectorAll('.ctxk-foot button')) if (one.textContent === 'Undo') one.click();
    }""")
    expect(stage.locator(".ctxk-told")).to_contain_text("Restored.")
    stage.wait_for_timeout(200)
    assert timeline.evaluate("el => el.scrollHeight - el.scrollTop - el.clientHeight") < 2


def test_a_row_that_was_scrolled_away_keeps_the_keyboard(stage):
    """The list takes the keyboard meanwhile; the next arrow key goes on from that row."""
    stage.evaluate(LONG, 2000)
    row(stage, "s2000.1").focus()
    stage.locator(".ctxk-timeline").evaluate("el => (el.scrollTop = 0)")
    expect(row(stage, "s1.1")).to_be_visible()
    expect(stage.locator(".ctxk-rows")).to_be_focused()
    stage.keyboard.press("ArrowUp")
    expect(row(stage, "s1999.1")).to_be_focused()


def test_a_search_shows_what_the_kernel_found_in_the_whole_session(stage):
    """Words are text, `field:value` filters; Escape shows all again."""
    stage.evaluate(LONG, 10_000)
    stage.locator(".ctxk-search input").fill("beta name:df* ")
    expect(stage.locator(".ctxk-foundtold")).to_have_text("2 found")
    assert stage.evaluate("host.search") == {"text": "beta", "name": "df*"}
    assert shown(stage) == ["s7.1", "s5000.1"]
    expect(row(stage, "s7.1")).to_contain_text("x7 = 7")
    stage.locator(".ctxk-search select").select_option("status:error")
    stage.wait_for_function("host.search.status === 'error'")
    stage.locator(".ctxk-search input").press("Escape")
    expect(row(stage, "s10000.1")).to_be_visible()


def test_a_search_that_finds_nothing_says_how_to_search(stage):
    """A filter that is misspelt is a word of the text: the reader sees which ones there are."""
    stage.evaluate(LONG, 100)
    stage.evaluate("() => { host.answers.search = async () => ({ search: { runs: [], total: 0 }, error: null }) }")
    stage.locator(".ctxk-search input").fill("nme:df")
    nothing = stage.locator(".ctxk-timeline > .ctxk-empty")
    expect(nothing).to_contain_text("No statement was found")
    expect(nothing).to_contain_text("name:df")
    stage.locator(".ctxk-search input").press("Escape")
    expect(nothing).to_be_hidden()
    expect(row(stage, "s100.1")).to_be_visible()


def test_details_show_outputs_as_they_looked_and_hostile_ones_as_text(stage):
    """A figure is a picture, a drawing runs no script, all else is text where no host draws it."""
    stage.evaluate(
        """() => {
          const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5' +
            'ErkJggg==';
          const evil = '<img src=x onerror=window.__pwned=1>';
          const outputs = [
            { 'image/png': png, 'text/plain': '<Figure>' },
            { 'image/svg+xml': '<svg xmlns="http://www.w3.org/2000/svg" onload="window.__pwned=1"/>' },
            { 'text/html': evil, 'text/plain': evil },
          ].map((data) => ({ output_type: 'display_data', data, metadata: {} }));
          host.answers.details = async ({ of }) => ({ type: 'details', error: null, details: {
            row: { source: 'whole = 1', stdout: 'all of it' }, outputs, outputs_more: 1,
            events: [{ id: `${of}:1`, kind: 'statement', text: '<b onclick=x>' }], events_more: 0 } });
        }"""
    )
    row(stage, "s4.1").locator(".ctxk-toggle").click()
    details = row(stage, "s4.1").locator(".ctxk-details")
    expect(details).to_contain_text("whole = 1")
    expect(details.locator("img")).to_have_count(2)
    expect(details.locator("pre", has_text="onerror")).to_be_visible()
    expect(details).to_contain_text("1 large output not shown")
    expect(details.locator("summary")).to_have_text("1 event in the model’s history")


def test_a_plan_is_made_anew_when_a_cell_has_run_since(stage):
    """Until the new plan is there the button is off; what is done is what the new plan says."""
    stage.evaluate("host.plan = 'costly' in S.plans ? 'costly' : Object.keys(S.plans).find((one) => one !== 'easy')")
    choose(stage, "s4.1", "Go back here")
    sheet = stage.locator(".ctxk-sheet")
    expect(sheet.get_by_role("button", name="Go back")).to_be_enabled()
    stage.evaluate("view.kernelStatus('busy')")
    stage.evaluate("view.turn(S.turn('s14.1', 's13.1', 'other = 1'))")
    expect(sheet.get_by_role("button", name="Go back")).to_be_disabled()
    assert stage.evaluate("host.plans.length") == 1
    stage.evaluate("view.kernelStatus('idle')")
    expect(sheet).to_contain_text("this plan was made anew")
    assert stage.evaluate("host.plans.length") == 2
    assert stage.evaluate("host.gestures") == []
    # It costs nothing any more: the reader still confirms it.
    stage.evaluate("host.plan = 'easy'; view.turn(S.turn('s15.1', 's14.1', 'other = 2'))")
    stage.wait_for_function("host.plans.length === 3")
    assert stage.evaluate("host.gestures") == []
    sheet.get_by_role("button", name="Go back").click()
    assert stage.evaluate("host.gestures") == ["%ctx goto s4"]


def test_two_states_are_chosen_to_be_compared(stage):
    """By key and by menu; choosing the first one again takes it back."""
    stage.evaluate(
        "host.answers.difference = async (asked) => (host.differs = asked, { difference: null, error: 'not kept' })"
    )
    row(stage, "s4.1").focus()
    stage.keyboard.press("c")
    expect(stage.locator(".ctxk-told")).to_contain_text("Compare s4 with")
    choose(stage, "s13.1", "Compare with s4")
    expect(stage.locator(".ctxk-sheet")).to_contain_text("s4 compared with s13")
    assert stage.evaluate("host.differs") == {"old": "s4.1", "new": "s13.1"}


@LAB_ONLY
def test_the_timeline_opens_in_a_tab_with_details_beside_it(desk):
    """Of a real kernel: search, keyboard and details work there; it closes with its notebook."""
    desk.open(
        "tab.ipynb", ["import math", "wave = [math.sin(n) for n in range(5)]", "print('the sum', sum(wave))"]
    ).live()
    desk.select(0)
    for n in range(1, 4):
        desk.enter(f"s{n}")
    desk.command("Open the timeline in a tab")
    tab = desk.page.locator(".ctxk-widetab")
    expect(tab.locator("[data-statement=s3]")).to_be_focused()
    desk.page.keyboard.press("ArrowUp")
    expect(tab.locator(".ctxk-pane")).to_contain_text("math.sin(n)")
    tab.locator(".ctxk-search input").fill("the sum")
    expect(tab.locator(".ctxk-row")).to_have_count(1)
    tab.locator("[data-statement=s3] .ctxk-more").click()
    tab.locator(".ctxk-menuitem", has_text="Name this state").click()
    desk.page.keyboard.insert_text("summed")
    desk.page.keyboard.press("Enter")
    expect(tab.locator("[data-statement=s3]")).to_contain_text("summed")
    assert desk.errors == []


def test_the_tab_key_leads_from_a_search_to_what_was_found(stage):
    """Also where the row that had the keyboard before is not among it."""
    row(stage, "s13.1").focus()
    stage.evaluate("host.answers.search = async () => ({ search: { runs: ['s4.1', 's8.1'], total: 2 }, error: null })")
    stage.keyboard.press("/")
    stage.keyboard.type("clean")
    expect(stage.locator(".ctxk-foundtold")).to_have_text("2 found")
    stage.keyboard.press("Tab")
    stage.keyboard.press("Tab")
    assert focused(stage) == "s8.1"
    stage.keyboard.press("ArrowUp")
    assert focused(stage) == "s4.1"
