"""Sections with many items: only what is near is made, and everything can be reached."""

# ruff: noqa: F811
from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from browser.test_accessibility import faults
from browser.test_renderer import BLOCKS, block, model, page, stage  # noqa: F401
from browser.test_timeline import LONG

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

COUNT = 1500
MADE = ".ctxk-projection .ctxk-block:not([data-later])"
CHANGES = """(count) => view.snapshot({ ...S.snapshot, session: 'long', deltas: Array.from({ length: count }, (_, i) =>
  ({ statement_id: `s${i + 1}`, kind: 'variable', subject: `x${i}`, summary: `${i} → ${i + 1}`, text: '' })) })"""


def blocks(count: int = COUNT) -> list[dict[str, object]]:
    """Blocks of a long session, each of some lines."""
    return [
        {"id": f"s{n}.1", "kind": "statement", "role": "user", "origin": f"s{n}", "tokens": 30, "cached": True}
        | {
            "why": f"statement s{n}",
            "text": "\n".join(f"x{n} = {n}  # line {i}" for i in range(1 + n % 4)),
            "images": [],
        }
        for n in range(1, count + 1)
    ]


@pytest.fixture
def long(model: Page) -> Page:
    """A projection of many blocks, the section in front."""
    model.evaluate(BLOCKS, {"blocks": blocks(), "images": {}, "sizes": {}})
    expect(model.locator(".ctxk-projection .ctxk-block")).to_have_count(COUNT)
    return model


def in_sight(page: Page, of: str) -> list[str]:
    """Return the items of which a part can be seen, with those that are not made."""
    return page.locator(f".ctxk-{of}").evaluate(
        """(section) => {
          const { top, bottom } = section.getBoundingClientRect();
          return [...section.querySelectorAll('[data-item]')]
            .filter((el) => el.getBoundingClientRect().bottom > top && el.getBoundingClientRect().top < bottom)
            .map((el) => el.dataset.item + ('later' in el.dataset ? ' (later)' : ''));
        }"""
    )


def settle(page: Page, of: str) -> None:
    """Wait until all that is in sight is made."""
    page.wait_for_function(
        """(of) => {
          const section = document.querySelector(`.ctxk-${of}`);
          const { top, bottom } = section.getBoundingClientRect();
          return [...section.querySelectorAll('[data-later]')]
            .every((el) => el.getBoundingClientRect().bottom <= top || el.getBoundingClientRect().top >= bottom);
        }""",
        arg=of,
    )


def test_of_a_long_projection_only_the_blocks_near_the_eyes_are_made(long):
    """All have their place, their name and a line; what is scrolled to is made before it is read."""
    settle(long, "projection")
    assert 0 < long.locator(MADE).count() < 60
    expect(block(long, "s1.1").locator(".ctxk-pre")).to_contain_text("x1 = 1")
    expect(block(long, "s900.1")).to_have_text("s900.1 ~30")
    long.locator(".ctxk-projection").evaluate("el => (el.scrollTop = el.scrollHeight / 2)")
    settle(long, "projection")
    assert len(in_sight(long, "projection")) > 3
    assert long.locator(MADE).count() < 120


def test_tab_reaches_every_block_in_both_directions(long):
    """From the search field downwards, and from what stands below the blocks upwards."""
    reached = [focus_of(long, long.get_by_role("searchbox", name="Search in the blocks"), "Tab", 60)]
    below = long.locator(".ctxk-projection .ctxk-raw summary, .ctxk-projection .ctxk-raw button").first
    reached.append(focus_of(long, below, "Shift+Tab", 60))
    down, up = ([re.sub(r"\D.*", "", name[1:]) for name in names] for names in reached)
    assert [int(n) for n in dict.fromkeys(down)] == list(range(1, 1 + len(dict.fromkeys(down))))
    assert [int(n) for n in dict.fromkeys(up)] == list(range(COUNT, COUNT - len(dict.fromkeys(up)), -1))
    assert min(len(set(down)), len(set(up))) >= 25


def focus_of(page: Page, start: Locator, key: str, times: int) -> list[str]:
    """Return the blocks that the keyboard was in, at each press."""
    start.focus()
    out: list[str] = []
    for _ in range(times):
        page.keyboard.press(key)
        if name := page.evaluate("document.activeElement.closest('[data-block]')?.dataset.block ?? ''"):
            out.append(name)
    return out


def test_a_turn_leaves_the_reader_of_a_long_projection_where_she_was(long):
    """Blocks are drawn anew with each turn; what is in sight, and the keyboard, stay."""
    long.locator(".ctxk-projection").evaluate("el => (el.scrollTop = 40000)")
    settle(long, "projection")
    made = "[...document.querySelectorAll('.ctxk-projection [data-item]:not([data-later]) .ctxk-link')]"
    long.evaluate(f"() => {made}.at(-8).focus()")
    settle(long, "projection")
    before, keyboard = in_sight(long, "projection"), long.evaluate("document.activeElement.dataset.keep")
    assert keyboard
    turn = "S.turn('s14.1', 's13.1', 'x = 1', {}, {projection: {...M.projection, receipt: 'sha256:1'}})"
    long.evaluate(f"document.querySelector('.ctxk-projection .ctxk-block').old = true; view.turn({turn})")
    assert not long.evaluate("document.querySelector('.ctxk-projection .ctxk-block').old")
    settle(long, "projection")
    assert in_sight(long, "projection") == before
    assert long.evaluate("document.activeElement.dataset.keep") == keyboard


def test_a_block_that_a_link_names_is_made_wherever_it_stands(long):
    """So the search, a failed check and the history lead to its content."""
    long.evaluate("window.view.section('timeline')")
    field = long.get_by_role("searchbox", name="Search in the blocks")
    long.locator("[data-tab=projection]").click()
    field.fill("x1203 = ")
    expect(long.locator(".ctxk-projection .ctxk-block")).to_have_count(1)
    expect(block(long, "s1203.1").locator("mark").first).to_have_text("x1203 = ")
    field.press("Enter")
    expect(block(long, "s1203.1")).to_be_focused()
    field.press("Escape")
    expect(long.locator(".ctxk-projection .ctxk-block")).to_have_count(COUNT)


def test_of_many_changes_only_those_near_the_eyes_are_made(stage):
    """Newest first; the oldest is made when it is scrolled to."""
    stage.evaluate(CHANGES, 800)
    stage.locator("[data-tab=changes]").click()
    settle(stage, "changes")
    groups = stage.locator(".ctxk-changes .ctxk-group")
    expect(groups).to_have_count(800)
    assert 0 < stage.locator(".ctxk-changes .ctxk-group:not([data-later])").count() < 60
    expect(groups.first).to_contain_text("799 → 800")
    expect(groups.nth(400)).to_have_text("s400")
    groups.nth(400).scroll_into_view_if_needed()
    expect(groups.nth(400)).to_contain_text("399 → 400")


def test_changes_are_grouped_by_execution_also_where_a_statement_ran_twice(stage):
    """Each run has its own changes, the newest first."""
    runs = ["s1.1", "s2.1", "s1.2"]
    deltas = [
        {"execution_id": run, "statement_id": run[:2], "kind": "variable", "subject": "x", "summary": run}
        for run in runs
    ]
    stage.evaluate("deltas => view.snapshot({ ...S.snapshot, session: 'twice', deltas })", deltas)
    stage.locator("[data-tab=changes]").click()
    groups = stage.locator(".ctxk-changes .ctxk-group")
    expect(groups.locator(".ctxk-index")).to_have_text(["s1.2", "s2", "s1"])
    expect(groups.first.locator(".ctxk-summary")).to_have_text(["x s1.2"])


def test_the_changes_of_an_old_statement_show_its_source_too(stage):
    """The page has only the place of an old row: its content is asked for when it is seen."""
    stage.evaluate(LONG, 900)
    stage.evaluate(CHANGES.replace("...S.snapshot, session: 'long'", "...window.long"), 900)
    stage.locator("[data-tab=changes]").click()
    old = stage.locator(".ctxk-changes [data-group=s300]")
    old.scroll_into_view_if_needed()
    expect(old.locator(".ctxk-src")).to_have_text("x300 = 300")
    assert stage.evaluate("host.asked.length") < 6


def test_axe_finds_nothing_in_long_sections(model):
    """Neither in blocks that are made nor in those that wait, nor in changes."""
    model.evaluate(BLOCKS, {"blocks": blocks(60), "images": {}, "sizes": {}})
    settle(model, "projection")
    expect(model.locator(".ctxk-projection [data-later]").first).to_be_attached()
    assert faults(model, ".ctxk-projection .ctxk-messages") == []
    model.evaluate(CHANGES, 60)
    model.locator("[data-tab=changes]").click()
    settle(model, "changes")
    expect(model.locator(".ctxk-changes [data-later]").first).to_be_attached()
    assert faults(model, ".ctxk-changes") == []
