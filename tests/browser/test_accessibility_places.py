"""axe-core finds nothing serious in any section or dialog of the renderer, in both themes; on a made-up session."""

# ruff: noqa: F811
from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from browser.axe import faults
from browser.test_renderer import (  # noqa: F401
    BLOCKS,
    act,
    block,
    choose,
    handles,
    model,
    page,
    proposed,
    row,
    stage,
    themed,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

PANEL = ".ctxk"
COSTS = """() => {
  const line = { ask: 's3.1', question: 'why?', model: 'claude-sonnet-5-5', requests: 2, tokens_in: 4000, cached: 3000,
    tokens_out: 100, usd: 0.0123, told: '$0.0123', seconds: 3.5 };
  const requests = [0.01, 0.002].map((usd, i) => ({ ask: 's3.1', usd, tokens: 9, broke: i ? 'x' : '' }));
  const cost = { asks: [line], models: [line], total: line, requests, more: 0, fault: '',
    breaks: ['s3, request 2: the cached prefix breaks at s2.1'] };
  host.answers.cost = async () => ({ cost, error: null });
  view.snapshot({ ...S.snapshot, sent: true });
}"""
WIDE = """() => {
  document.getElementById('host').replaceChildren();
  view.wide(document.getElementById('host'));
}"""
HINT = """async () => {
  const { mount } = await import('/render.js');
  document.getElementById('host').replaceChildren();
  window.view = mount(document.getElementById('host'), { hint: { wanted: () => true, dismiss() {} } });
  view.snapshot({ ...S.snapshot, statements: [] });
}"""
DIFFERENCE = """() => {
  const table = { columns: ['column', 'cells', 'mean'], right: [1, 2], rows: [['ash', '3', '2 → 2.2']], more: 2 };
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  const value = (more) => ({ subject: '', kind: 'frame', differs: true, summary: '3 cells differ in ash', facts: [],
    tables: [], lines: [], pictures: [], parts: [], more: 0, ...more });
  const difference = { old: 's1.1', new: 's4.1', more: 3, notes: ['x was not compared: out of time'], handles: [],
    added: [{ name: 'hue', summary: 'int 1' }], deleted: [{ name: 'old', summary: 'int 2' }],
    changed: [{ name: 'wine', summary: 'DataFrame 3×2', value: value({ tables: [table] }) },
      { name: 'note', summary: 'str', value: value({ lines: ['  a', '- b', '+ x'] }) }],
    files: [{ name: 'data.csv', summary: 'has changed', value: null }],
    outputs: [{ name: 's3', summary: '3 % of the pixels differ', before: 's3.1', after: 's3.2',
      value: value({ pictures: [{ title: 'before', media_type: 'image/png', data: png }] }) }] };
  host.answers.difference = async () => ({ difference, error: null });
}"""


def cost(page: Page) -> None:
    page.evaluate(COSTS)
    page.locator("[data-tab=cost]").click()
    expect(page.get_by_role("table", name="By ask")).to_be_visible()


def history(page: Page) -> None:
    page.locator("[data-tab=history]").click()
    page.locator(".ctxk-entry summary").first.click()
    expect(page.locator(".ctxk-event").first).to_be_visible()


def search_results(page: Page) -> None:
    page.evaluate("host.answers.search = async () => ({ search: { runs: ['s4.1', 's8.1'], total: 2 }, error: null })")
    page.locator(".ctxk-search input").fill("clean")
    expect(page.locator(".ctxk-foundtold")).to_have_text("2 found")


def blocks_that_were_found(page: Page) -> None:
    page.get_by_role("searchbox", name="Search in the blocks").fill("LINE 79")
    expect(page.locator("mark").first).to_be_visible()


def two_states(page: Page) -> None:
    page.evaluate(DIFFERENCE)
    for run in ("s1.1", "s4.1"):
        choose(page, run, "Compare with")
    for fold in page.locator(".ctxk-differences details").all():
        if not fold.evaluate("el => el.open"):
            fold.locator("summary").first.click()
    expect(page.locator(".ctxk-differences img")).to_be_visible()


def two_projections(page: Page) -> None:
    page.locator("summary", has_text="Compare with an earlier projection").click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("[data-changes=gained]")).to_be_visible()


def a_projection_by_its_number(page: Page) -> None:
    page.locator("summary", has_text="Compare with an earlier projection").click()
    page.get_by_role("combobox", name="The later projection").select_option("other")
    page.keyboard.insert_text("99")
    page.keyboard.press("Enter")
    expect(page.get_by_text("There is no statement 99.")).to_be_visible()


def the_menu_of_a_block(page: Page) -> None:
    block(page, "s2.1").locator(".ctxk-blockmore").click()
    expect(page.get_by_role("menuitem", name=re.compile("Leave out"))).to_contain_text("not possible")


def a_redaction(page: Page) -> None:
    page.evaluate("view.snapshot({...S.snapshot, projection: M.projection, history: null})")
    act(page, "s2.1", "Redact")
    expect(page.get_by_role("textbox", name=re.compile("What mattered"))).to_be_focused()


def the_menu_of_a_handle(page: Page) -> None:
    page.get_by_role("button", name="Rendering of w").click()
    page.get_by_role("button", name="What can be done with w").click()
    expect(page.locator(".ctxk-menuitem").first).to_be_visible()


def the_first_steps(page: Page) -> None:
    page.evaluate(HINT)
    expect(page.get_by_role("region", name="First steps")).to_be_visible()


def a_proposal(page: Page) -> None:
    expect(page.locator(".ctxk-waits .ctxk-card-of-model")).to_be_visible()


def a_proposal_that_is_edited(page: Page) -> None:
    page.locator(".ctxk-waits").get_by_role("button", name="Edit").click()


def a_proposal_that_is_rejected(page: Page) -> None:
    page.locator(".ctxk-waits").get_by_role("button", name="Reject").click()


def a_question_whether_to_send(page: Page) -> None:
    sends = {
        "id": "s15.1:2",
        "kind": "send",
        "ask": "s14.1",
        "code": "",
        "told": "about 3,000 tokens",
        "state": "waits",
    }
    page.evaluate("proposal => view.message({ type: 'proposal', proposal })", sends)
    expect(page.locator(".ctxk-waits")).to_contain_text("Send to the model?")


def the_timeline_in_a_tab(page: Page) -> None:
    page.set_viewport_size({"width": 1200, "height": 800})
    page.evaluate(
        "() => { document.getElementById('host').replaceChildren(); view.wide(document.getElementById('host')); }"
    )
    wide = page.locator(".ctxk-widetab")
    wide.locator(".ctxk-row").last.focus()
    page.keyboard.press("ArrowUp")
    expect(wide.get_by_role("region", name="Details of a statement")).to_contain_text("old = 1")


def details_of_a_row(page: Page) -> None:
    row(page, "s7.1").or_(row(page, "s9.1")).locator(".ctxk-toggle").click()


def a_plan_that_loses_something(page: Page) -> None:
    page.evaluate("host.plan = 'hard'")
    choose(page, "s2.1", "Go back here")
    expect(page.get_by_role("dialog")).to_be_visible()


def a_plan_of_a_re_run(page: Page) -> None:
    page.evaluate("host.plan = 'rerun'")
    choose(page, "s5.2", "Re-run")
    expect(page.get_by_role("dialog").locator(".ctxk-step").first).to_be_visible()


def the_field_of_a_name(page: Page) -> None:
    choose(page, "s2.1", "Name")
    expect(page.get_by_role("textbox").last).to_be_focused()


def the_table_of_a_re_run(page: Page) -> None:
    page.locator("[data-tab=rerun]").click()


def an_earlier_session(page: Page) -> None:
    page.evaluate("view.snapshot({...S.snapshot, statements: [], resume: S.resume, notices: ['a notice']})")
    expect(page.locator("[data-banner=resume]")).to_be_visible()


PLACES: dict[str, tuple[Callable[[Page], None], ...]] = {
    "stage": (
        cost,
        search_results,
        two_states,
        the_first_steps,
        details_of_a_row,
        a_plan_that_loses_something,
        a_plan_of_a_re_run,
        the_field_of_a_name,
        the_table_of_a_re_run,
        an_earlier_session,
        the_timeline_in_a_tab,
    ),
    "model": (
        history,
        blocks_that_were_found,
        two_projections,
        a_projection_by_its_number,
        the_menu_of_a_block,
        a_redaction,
    ),
    "handles": (the_menu_of_a_handle,),
    "proposed": (
        a_proposal,
        a_proposal_that_is_edited,
        a_proposal_that_is_rejected,
        a_question_whether_to_send,
    ),
}
"""What to look at, by the fixture that makes its session."""
ROWS = [pytest.param(scene, place, id=place.__name__) for scene, places in PLACES.items() for place in places]


def test_axe_sees_a_fault(stage: Page):
    """A button without a name, and a text without contrast: the other tests can fail."""
    stage.locator(".ctxk-timeline").evaluate(
        "el => { el.innerHTML = '<button></button><p style=\"color: #999; background: #aaa\">dim</p>'; }"
    )
    told = " ".join(faults(stage, PANEL))
    assert "button-name" in told
    assert "color-contrast" in told


@pytest.mark.parametrize(("scene", "place"), ROWS)
def test_axe_finds_nothing_serious_in(request: pytest.FixtureRequest, scene: str, place: Callable[[Page], None]):
    page = request.getfixturevalue(scene)
    place(page)
    with themed(page, "light"):
        found = {"light": faults(page, PANEL)}
    with themed(page, "dark"):
        found["dark"] = faults(page, PANEL, rules=["color-contrast"])

    assert {theme: here for theme, here in found.items() if here} == {}
