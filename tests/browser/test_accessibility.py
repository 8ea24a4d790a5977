"""axe-core finds nothing serious in the panel and beside the cells, in both themes."""

from __future__ import annotations

from typing import Any

import pytest
from notebook_moves import go_back, mark, press, run_all
from playwright.sync_api import expect

from browser.axe import faults
from browser.test_following import bar, on_another_branch

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]
CELLS = ["text = 'a'\nprint(text)", "text += 'b'", "v = view([1, 2])\nw = view({'k': 1})", "1 / 0"]
SECTIONS = ("timeline", "handles", "projection", "changes")
BESIDE_THE_CELLS = ".ctxk-nb:not([hidden])"
THEMES: dict[str, list[str] | None] = {"Dark": None, "Light": ["color-contrast"]}
"""The rules by theme: all of them (None), then those that depend on colours only."""


def dress(desk: Any, theme: str) -> None:
    """Choose a theme of JupyterLab."""
    desk.command(f"Use Theme: JupyterLab {theme}")
    light = str(theme == "Light").lower()
    desk.page.wait_for_selector(f"body[data-jp-theme-light={light}]", state="attached")


def test_axe_finds_nothing_serious_in_the_panel_and_beside_the_cells(desk: Any):
    page = run_all(desk, "axe.ipynb", CELLS).page
    go_back(desk, "s2")
    panel = "#ctxkernel-panel .ctxk-host:not([hidden])"
    found: dict[str, list[str]] = {}
    for theme, rules in THEMES.items():
        dress(desk, theme)
        for section in SECTIONS:
            desk.tab(section)
            found[f"{theme}: {section}"] = faults(page, panel, rules=rules)
        found[f"{theme}: beside the cells"] = faults(page, BESIDE_THE_CELLS, rules=rules)
        desk.tab("timeline")
        desk.row("s4").locator(".ctxk-more").click()
        expect(desk.view.locator(".ctxk-menuitem").first).to_be_visible()
        found[f"{theme}: the menu of a row"] = faults(page, panel, rules=rules)
        page.keyboard.press("Escape")
        desk.row("s1").last.locator(".ctxk-more").click()
        desk.view.locator(".ctxk-menuitem", has_text="Re-run").first.click()
        expect(desk.view.locator(".ctxk-sheet")).to_be_visible()
        found[f"{theme}: a plan"] = faults(page, panel, rules=rules)
        page.keyboard.press("Escape")

    assert {place: here for place, here in found.items() if here} == {}


def test_axe_finds_nothing_serious_in_what_follows_a_return(new_desk: Any):
    """The bar, the preview, the texts that are kept, the card of a mark, and the timeline in a tab."""
    desk, page = on_another_branch(new_desk, "axe-follow.ipynb"), new_desk.page
    found: dict[str, list[str]] = {}
    for theme, rules in THEMES.items():
        dress(desk, theme)
        found[f"{theme}: the bar and the marks"] = faults(page, BESIDE_THE_CELLS, rules=rules)
        faded = ".ctxk-foreign .jp-OutputArea-output"
        found[f"{theme}: faded outputs"] = faults(page, faded, rules=["color-contrast"])
        bar(desk).get_by_role("button", name="Show it as at s3…").click()
        expect(page.get_by_role("dialog", name="Show the cells as at s3")).to_be_visible()
        found[f"{theme}: the preview"] = faults(page, ".ctxk-veil", rules=rules)
        page.keyboard.press("Enter")
        expect(mark(desk, 0)).to_contain_text("s1")
        desk.select(0)
        press(page, "t", "k")
        expect(page.get_by_role("dialog", name="Texts that are kept with this cell")).to_be_visible()
        found[f"{theme}: texts that are kept"] = faults(page, ".ctxk-veil", rules=rules)
        page.keyboard.press("Escape")
        desk.select(1)
        press(page, "t", "s")
        expect(page.get_by_role("dialog", name="Statement s2")).to_be_visible()
        found[f"{theme}: the card of a mark"] = faults(page, ".ctxk-markcard", rules=rules)
        page.keyboard.press("Escape")
        bar(desk).get_by_role("button", name="Take it back").click()
        expect(bar(desk)).to_contain_text("1 cell shows another run")
        desk.command("Open the timeline in a tab")
        expect(page.locator(".ctxk-widetab .ctxk-row").first).to_be_visible()
        found[f"{theme}: the timeline in a tab"] = faults(page, ".ctxk-widetab", ".ctxk-statusitem", rules=rules)
        page.locator(".lm-TabBar-tab", has_text="axe-follow.ipynb").first.click()

    assert {place: here for place, here in found.items() if here} == {}
