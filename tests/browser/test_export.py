"""An exported session, opened from disk without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import exported
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from browser.axe import faults

pytestmark = pytest.mark.browser


@pytest.fixture
def page(context: BrowserContext, kernel: Any, tmp_path: Path) -> Any:
    """The page of a session; requests and errors are kept in `asked` and `faults`."""
    exported.fill(kernel)
    exported.sweep(kernel)
    path = tmp_path / "session.html"
    exported.exported(kernel, path)
    opened = context.new_page()
    opened.asked, opened.faults = [], []  # type: ignore[attr-defined]
    opened.on("request", lambda one: opened.asked.append(one.url))  # type: ignore[attr-defined]
    opened.on("pageerror", lambda one: opened.faults.append(str(one)))  # type: ignore[attr-defined]
    opened.on("console", lambda one: one.type == "error" and opened.faults.append(one.text))  # type: ignore[attr-defined]
    opened.goto(path.as_uri())
    yield opened
    opened.close()


def test_the_page_shows_the_session_loads_nothing_and_runs_no_code_of_outputs(page: Any):
    expect(page.get_by_role("main").get_by_role("article").first).to_contain_text("x = 1")
    expect(page.get_by_role("main")).not_to_contain_text("ZeroDivisionError")
    page.get_by_role("complementary").get_by_role("link", name="s7").click()
    expect(page.get_by_role("main")).to_contain_text("ZeroDivisionError")
    expect(page.get_by_role("main")).to_contain_text("<script>window.broken = 1</script>")
    page.wait_for_timeout(300)
    assert page.evaluate("window.broken") is None
    assert [url for url in page.asked if not url.startswith(("file:", "data:"))] == []
    assert page.faults == []
    assert page.evaluate("[...document.images].filter(one => one.loading !== 'lazy' && !one.naturalWidth).length") == 0


def test_search_and_branches_and_links_work_by_keyboard(page: Any):
    words = page.get_by_role("searchbox", name="Search")
    words.focus()
    page.keyboard.type("another branch")
    expect(page.get_by_role("status")).to_contain_text("of")
    rows = page.locator("ol.rows li:visible")
    expect(rows).to_have_count(1)
    words.fill("")
    expect(page.get_by_role("main")).to_contain_text("other = 'of another branch'")
    chooser = page.get_by_role("combobox", name="Branch")
    chooser.focus()
    chooser.select_option(index=0)
    expect(page.get_by_role("main")).not_to_contain_text("other = 'of another branch'")
    link = page.get_by_role("complementary").get_by_role("link").last
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_contain_text("other = 'of another branch'")


def test_the_table_of_a_sweep_sorts_and_filters_by_keyboard(page: Any):
    table = page.get_by_role("table", name="Combinations of the sweep")
    rows = table.locator("tbody tr")
    head = table.get_by_role("columnheader", name="alpha")
    head.get_by_role("button").focus()
    for order, shown in (("ascending", ["1", "2", "10"]), ("descending", ["10", "2", "1"])):
        page.keyboard.press("Enter")
        expect(head).to_have_attribute("aria-sort", order)
        expect(head.get_by_role("button")).to_be_focused()
        assert rows.locator("td:nth-child(2)").all_inner_texts()[:3] == shown
    expect(rows.last).to_contain_text("<script>window.broken = 1</script>")
    assert page.evaluate("[...document.querySelectorAll('.ctxk-sweepimage')].map(one => one.naturalWidth)") == [8, 8, 8]
    expect(page.get_by_role("img", name="3 combinations as lines over alpha, r2")).to_be_visible()
    page.get_by_role("textbox", name="Filter combinations").fill("r2<-2 ok")
    expect(rows).to_have_count(1)
    assert page.evaluate("window.broken") is None
    assert page.faults == []


def test_the_page_has_landmarks_headings_and_texts_for_images(page: Any):
    for role in ("main", "complementary", "banner", "search"):
        expect(page.get_by_role(role)).to_have_count(1)
    for name in ("Notebook", "Timeline", "Comparisons", "Projection"):
        expect(page.get_by_role("heading", level=2).filter(has_text=name)).to_have_count(1)
    assert page.evaluate("[...document.images].every(one => one.alt)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for width in (360, 1400):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(page: Page, scheme: Any):
    """WCAG AA, by the colours of the style."""
    page.emulate_media(color_scheme=scheme)
    script = (Path(__file__).parent / "contrast.js").read_text("utf-8")
    ratios = page.locator("body").evaluate(script)
    assert len(ratios) > 50
    assert [one for one in ratios if one[0] < 4.5] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_page(page: Page, scheme: Any):
    """The page as a whole, and with all that folds open."""
    page.emulate_media(color_scheme=scheme)
    assert faults(page, "html") == []
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.get_by_role("searchbox", name="Search").fill("x")
    assert faults(page, "html") == []


UPDATED = [
    ("a", "from IPython.display import display, update_display\nshown = display('first', display_id='<b>d</b>')"),
    ("b", "update_display('second', display_id='<b>d</b>')"),
    ("c", "x = 3"),
]


def test_a_display_shows_its_last_content_on_the_branch(context: BrowserContext, kernel: Any, tmp_path: Path):
    """As the exported notebook does; which statement updated it is told, and the other branch has the first content."""
    for cell, source in UPDATED:
        assert kernel.run(source, metadata={"cellId": cell}).status == "ok"
    kernel.run("%ctx goto s1", metadata=exported.GESTURE)
    kernel.run("other = 1", metadata={"cellId": "d"})
    kernel.run("%ctx goto s3", metadata=exported.GESTURE)
    path = tmp_path / "session.html"
    exported.exported(kernel, path)
    page = context.new_page()
    page.goto(path.as_uri())
    first = page.get_by_role("main").get_by_role("article").first
    output = first.locator(".output")
    expect(output).to_have_text("'second'")
    expect(first).to_contain_text("updated by s2")
    other = page.get_by_role("combobox", name="Branch").locator("option", has_text="other = 1")
    page.get_by_role("combobox", name="Branch").select_option(value=other.get_attribute("value"))
    expect(output).to_have_text("'first'")
    expect(first).not_to_contain_text("updated by")
    page.close()
