"""axe-core finds nothing serious in the panel and beside the cells, in both themes."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest
from notebook_moves import go_back, run_all
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
CELLS = ["text = 'a'\nprint(text)", "text += 'b'", "v = view([1, 2])\nw = view({'k': 1})", "1 / 0"]
SECTIONS = ("timeline", "handles", "projection", "changes")
BESIDE_THE_CELLS = ".ctxk-nb:not([hidden])"
FAULTS = """async (places) => {
  const found = [];
  for (const place of places) {
    for (const element of document.querySelectorAll(place)) {
      const { violations } = await axe.run(element, { resultTypes: ['violations'] });
      for (const { impact, id, nodes } of violations) {
        if (impact === 'minor') continue;
        for (const { target, failureSummary } of nodes) found.push(`${impact} ${id} ${target}: ${failureSummary}`);
      }
    }
  }
  return found;
}"""


def faults(page: Page, *places: str) -> list[str]:
    """What axe finds of more than minor impact in the elements of the selectors."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(f"{AXE}; 0")
    return page.evaluate(FAULTS, places)


def test_axe_finds_nothing_serious_in_the_panel_and_beside_the_cells(new_desk: Any):
    desk, page = run_all(new_desk, "axe.ipynb", CELLS), new_desk.page
    go_back(desk, "s2")
    panel = "#ctxkernel-panel .ctxk-host:not([hidden])"
    found: dict[str, list[str]] = {}
    for theme in ("Dark", "Light"):
        desk.command(f"Use Theme: JupyterLab {theme}")
        page.wait_for_selector(f"body[data-jp-theme-light={str(theme == 'Light').lower()}]", state="attached")
        for section in SECTIONS:
            desk.tab(section)
            found[f"{theme}: {section}"] = faults(page, panel)
        found[f"{theme}: beside the cells"] = faults(page, BESIDE_THE_CELLS)
        desk.tab("timeline")
        desk.row("s4").locator(".ctxk-more").click()
        expect(desk.view.locator(".ctxk-menuitem").first).to_be_visible()
        found[f"{theme}: the menu of a row"] = faults(page, panel)
        page.keyboard.press("Escape")
        desk.row("s1").last.locator(".ctxk-more").click()
        desk.view.locator(".ctxk-menuitem", has_text="Re-run").first.click()
        expect(desk.view.locator(".ctxk-sheet")).to_be_visible()
        found[f"{theme}: a plan"] = faults(page, panel)
        page.keyboard.press("Escape")

    assert {place: here for place, here in found.items() if here} == {}
