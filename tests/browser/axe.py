"""What axe-core finds in a page."""

from __future__ import annotations

from importlib import resources

from playwright.sync_api import Page

AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
FAULTS = """async ([places, rules]) => {
  const found = [];
  const options = { resultTypes: ['violations'], ...(rules && { runOnly: rules }) };
  for (const place of places) {
    const elements = [...document.querySelectorAll(place)];
    if (!elements.length) found.push(`nothing matches ${place}`);
    for (const element of elements) {
      const { violations } = await axe.run(element, options);
      for (const { impact, id, nodes } of violations) {
        if (impact === 'minor') continue;
        for (const { target, failureSummary } of nodes) found.push(`${impact} ${id} ${target}: ${failureSummary}`);
      }
    }
  }
  return found;
}"""


def faults(page: Page, *places: str, rules: list[str] | None = None) -> list[str]:
    """Return what axe finds of more than minor impact in the elements of the selectors, which must be there.

    By all of its rules, or by these: a theme changes colours only.
    """
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(f"{AXE}; 0")
    return page.evaluate(FAULTS, [places, rules])
