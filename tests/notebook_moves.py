"""Moves of a person in a notebook, that the tests of marks and of following a return share."""

from __future__ import annotations

import os
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

CURRENT = "jupyterapp.shell.currentWidget"
LAB_ONLY = pytest.mark.skipif(
    os.environ.get("TESTED_NOTEBOOK") == "7", reason="a page of Notebook 7 has one notebook, and no status bar"
)


def run_all(desk: Any, name: str, cells: list[str], *more: str) -> Any:
    """Open a notebook, run its cells one by one, and have more cells below."""
    desk.open(name, [*cells, *more]).live()
    desk.select(0)
    for n in range(1, len(cells) + 1):
        desk.enter(f"s{n}")
    return desk


def mark(desk: Any, index: int) -> Locator:
    """Return the mark of a cell."""
    return desk.cell(index).locator(".ctxk-mark")


def go_back(desk: Any, statement: str) -> None:
    """Go back by the menu of a row."""
    desk.row(statement).last.locator(".ctxk-more").click()
    desk.view.locator(".ctxk-menuitem", has_text="Go back here").click()
    expect(desk.row(statement).last).to_have_attribute("aria-current", "step")


def follow_after_an_edit(desk: Any, index: int, text: str) -> None:
    """Add `text` to a cell, run it as s3, go back to s2, and show the cell as it was there."""
    desk.select(index)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+End")
    desk.page.keyboard.insert_text(text)
    desk.enter("s3")
    go_back(desk, "s2")
    expect(mark(desk, index)).to_contain_text("later")
    desk.page.locator(".ctxk-offer").get_by_role("button", name="Show it as at s2…").click()
    desk.page.get_by_role("button", name="Show 1 cell as at s2").click()
    expect(mark(desk, index)).to_contain_text("s1")


def press(page: Page, *keys: str) -> None:
    """Press keys one after the other."""
    for key in keys:
        page.keyboard.press(key)


def labels(desk: Any) -> list[str]:
    """Return what a screen reader says of the marks."""
    return desk.page.eval_on_selector_all(
        ".jp-NotebookPanel:not(.lm-mod-hidden) .ctxk-mark:not([hidden])", "all => all.map(el => el.ariaLabel)"
    )
