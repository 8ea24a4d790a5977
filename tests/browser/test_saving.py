"""*Save session as HTML*: from the File menu into the browser's downloads, and opened from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from notebook_moves import run_all
from playwright.sync_api import expect

from browser.axe import faults

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]


def test_the_file_menu_saves_the_session_as_a_page_that_opens_from_disk(desk: Any, tmp_path: Path):
    """With what was typed and not saved before."""
    run_all(desk, "saved.ipynb", ["x = 1\nprint('x is', x)"], "#md words")
    desk.select(1)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.insert_text("typed in a hurry, ")
    desk.page.keyboard.press("Escape")
    desk.page.locator(".lm-MenuBar-item", has_text="File").click()
    item = desk.page.locator(".lm-Menu-item[data-command='ctxkernel:save-session-html']")
    expect(item).to_have_text("Save session as HTML")
    with desk.page.expect_download() as download:
        item.click()
    assert download.value.suggested_filename == "saved.html"
    expect(desk.page.get_by_role("dialog", name="Save session as HTML")).to_contain_text("saved.html")
    assert faults(desk.page, ".ctxk-veil") == []
    desk.page.keyboard.press("Escape")
    path = tmp_path / "saved.html"
    download.value.save_as(path)
    page = desk.page.context.new_page()
    try:
        page.goto(path.as_uri())
        expect(page.get_by_role("main")).to_contain_text("x is 1")
        expect(page.get_by_role("main")).to_contain_text("typed in a hurry")
    finally:
        page.close()
    assert desk.errors == []
