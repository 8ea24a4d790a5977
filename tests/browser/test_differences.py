"""Differences by value and tables of commands, as a person meets them in JupyterLab."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

FRAME = """
import pandas as pd, random
wine = pd.DataFrame({'alcohol': [13.0, 14.0, 12.5], 'ash': [2.0, 2.5, 3.0]})
model = {'alpha': 1, 'note': 'a\\nb\\nc'}
"""
CHANGED = """
wine = wine.drop(columns='alcohol').assign(ash=lambda t: t['ash'] * 1.1, hue=1)
model['note'] = 'a\\nx\\nc'
"""
FIGURE = """
import matplotlib.pyplot as plt, time
plt.figure(figsize=(3, 2))
plt.plot([0, time.time() % 1])
plt.ylim(0, 1)
plt.show()
"""
CELLS = [FRAME.strip(), CHANGED.strip(), FIGURE.strip(), "%ctx diff s1", "%ctx timeline", "%ctx status"]
SHOTS = os.environ.get("SHOTS")
"""A folder for screenshots."""


def shot(desk, name):
    if SHOTS:
        desk.page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))


def test_a_difference_is_a_table_in_the_notebook_and_its_statements_are_links(desk):
    desk.open("differences.ipynb", [*CELLS, "%ctx rerun 2"]).live()
    desk.select(0)
    for n in range(1, 4):
        desk.enter(f"s{n}")
    for _ in range(3):
        desk.enter()
    desk.enter()
    expect(desk.cell(6).locator(".ctxk-report img")).to_have_count(3)  # before, after, difference of the figure
    report = desk.cell(3).locator(".ctxk-report")
    expect(report.locator("summary").first).to_contain_text("+hue, −alcohol, 3 cells differ in ash")
    expect(report.locator("table").first).to_contain_text("2.5 → 2.75")
    expect(report).to_contain_text("+x")
    link = desk.cell(4).locator("a[data-ctxk-cell]", has_text="s1")
    expect(link).to_be_visible()
    shot(desk, "notebook-light")
    address = desk.page.url
    link.click()
    expect(desk.cell(0)).to_have_class(re.compile("jp-mod-active"))
    assert desk.page.url == address
    for theme in ("Light", "Dark") if SHOTS else ():
        desk.command(f"Use Theme: JupyterLab {theme}")
        desk.page.wait_for_timeout(3000)
        for cell in (3, 4, 5, 6):
            desk.select(cell)
            shot(desk, f"cell-{cell}-{theme}")
    expect(desk.cell(5).locator(".ctxk-report table")).to_contain_text("projection:")


def test_the_panel_shows_how_the_values_and_files_of_a_re_run_differ(desk):
    """From the section Re-run: which columns, how many cells, by how much; of a file that was written, too."""
    frame = "import pandas as pd\nwine = pd.DataFrame({'ash': [1.0, 2.0, 3.0], 'note': list('abc')})"
    desk.open("again.ipynb", ["%ctx config files restore", frame, "wine.to_csv('wine.csv', index=False)"]).live()
    desk.select(0)
    for n in range(1, 4):
        desk.enter(f"s{n}")
    desk.select(1)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+a")
    desk.page.keyboard.insert_text(frame.replace("2.0", "2.5"))
    desk.page.keyboard.press("Escape")
    desk.command("Re-run from here")
    desk.view.get_by_role("dialog", name="Re-run from s2").get_by_role("button", name="Re-run 2 cells").click()
    desk.view.locator(".ctxk-told").get_by_role("button", name="Show").click()
    for title in ("how its values differ", "how its contents differ"):
        row = desk.view.locator(".ctxk-divergence", has_text=title)
        row.locator("summary", has_text=title).click()
        shown = row.locator(".ctxk-differences")
        expect(shown.locator("summary")).to_contain_text("1 cell differs in ash")
        expect(shown.locator(".ctxk-values").first).to_contain_text("2 → 2.16667")
    shot(desk, "panel-light")


def test_two_states_chosen_in_the_timeline_are_compared_by_value(desk):
    desk.open("chosen.ipynb", [FRAME.strip(), CHANGED.strip()]).live()
    desk.select(0)
    for n in range(1, 3):
        desk.enter(f"s{n}")
    for statement in ("s1", "s2"):
        desk.row(statement).last.locator(".ctxk-more").click()
        desk.view.locator(".ctxk-menuitem", has_text="Compare with").click()
    shown = desk.view.locator(".ctxk-differences")
    expect(shown.locator("[data-name=wine] > summary")).to_contain_text("3 cells differ in ash")
    expect(shown.locator(".ctxk-diff")).to_contain_text("+x")
    shot(desk, "chosen")
