"""A handle in the output of a cell, as a person meets it: in JupyterLab, and in Notebook 7."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from browser.axe import faults
from browser.test_accessibility import THEMES, dress

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

EVIL = "<img src=x onerror=window.__pwned=1>"
CELLS = [
    f"from pathlib import Path\nn = Path('a.md').write_text('# {EVIL}\\n\\n' + 'A line of text.\\n' * 200)",
    "h = view('a.md', tokens=300).run()\nh",
    "h",
    "import asyncio\nawait asyncio.sleep(1.5)",
    "n = Path('a.md').write_text('# Now otherwise\\n')",
]


def widget_of(cell: Locator) -> Locator:
    """Return the live handle in the output of a cell."""
    return cell.locator(".ctxk-live")


def statement(desk: Any, name: str) -> None:
    """Wait until the panel has painted a statement."""
    desk.page.wait_for_selector(f"#ctxkernel-panel[data-last-turn={name}]")


def test_a_handle_is_live_in_the_output_and_is_text_when_its_kernel_is_gone(desk: Any):
    """Keys and buttons are gestures; what waits says so; all places are in step; a restart leaves text, and says so."""
    desk.open("live.ipynb", CELLS).live()
    page, last = desk.page, desk.cell(2)
    desk.select(0)
    for i in range(1, 4):
        desk.enter(f"s{i}")
    live = widget_of(last)
    expect(live).to_contain_text("view · running Sync · a.md")
    expect(live.locator(".ctxk-r")).to_contain_text(EVIL)

    # The arrow keys are the slider's, not the notebook's, and go as one gesture.
    live.get_by_role("slider", name="Detail").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    statement(desk, "s4")
    expect(desk.row("s4")).to_contain_text("%ctx set h.lod=2")
    expect(live).to_contain_text("2 summary")
    expect(live).to_contain_text("changed")
    expect(live.locator(".ctxk-live-size")).to_contain_text("→")
    expect(live.get_by_role("slider", name="Detail")).to_be_focused()

    # What waits for a cell says so.
    desk.select(3)
    page.keyboard.press("Shift+Enter")
    live.get_by_role("button", name="Pause").click()
    expect(live.get_by_role("status")).to_contain_text("Waits")
    statement(desk, "s6")
    expect(live.get_by_role("status")).to_be_hidden()
    expect(live.get_by_role("button", name="Run")).to_be_visible()

    # A paused handle shows what it showed; one that looks again shows what is there, everywhere.
    desk.select(4)
    desk.enter("s7")
    expect(live).not_to_contain_text("Now otherwise")
    live.get_by_role("button", name="Refresh").click()
    statement(desk, "s8")
    for cell in (desk.cell(1), last):
        expect(widget_of(cell)).to_contain_text("Now otherwise")

    # The kernel gone, it has the text, and no controls; opened again, it is what was saved.
    page.evaluate("void jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!jupyterapp.shell.currentWidget.context.model.dirty")
    page.evaluate("void jupyterapp.commands.execute('kernelmenu:restart')")
    page.locator(".jp-Dialog button.jp-mod-accept").click()
    expect(widget_of(last)).to_contain_text("is gone")
    expect(widget_of(last).get_by_role("slider")).to_have_count(0)
    page.evaluate("jupyterapp.shell.currentWidget.dispose()")
    page.evaluate("void jupyterapp.commands.execute('docmanager:open', { path: 'live.ipynb' })")
    expect(last).to_contain_text("As it was saved")
    expect(last).to_contain_text("Now otherwise")
    expect(widget_of(last)).to_have_count(0)
    assert page.evaluate("window.__pwned") is None
    assert desk.errors == []


SHOWN_IN_WIDGETS = [
    "import ipywidgets as w\n@w.interact(power=(1, 3))\ndef show(power=1):\n    print('value', 3 ** power)",
    "out = w.Output()\nwith out:\n    print('inside')\nout",
    "%ctx goto s1",
    "%ctx goto s2",
]


def test_what_widgets_show_stays_after_a_return_to_the_cell_that_showed_it(desk: Any):
    """The front end tells the kernel what a widget shows when the state of its cell is stored already."""
    desk.open("shown.ipynb", SHOWN_IN_WIDGETS).live()
    desk.select(0)
    desk.enter("s1")
    interactive, inside = (desk.cell(at).locator(".jp-OutputArea").first for at in (0, 1))
    expect(interactive).to_contain_text("value 3")
    desk.enter("s2")
    expect(inside).to_contain_text("inside")
    for at in (2, 3):
        desk.enter()
        expect(desk.cell(at).locator(".jp-OutputArea").first).to_contain_text(f"at s{at - 1}")
        desk.page.wait_for_timeout(300)
        expect(interactive).to_contain_text("value 3")
    expect(inside).to_contain_text("inside")
    assert desk.errors == []


RESUMED = [
    CELLS[0],
    "h = view('a.md', tokens=300)\nh",
    "import ipywidgets as w\ns = w.IntSlider(value=3, min=0, max=10)\ns",
    "w.VBox([w.Text('typed')])",
    "%ctx resume",
    "print('at', s.value)",
]


def test_handles_and_sliders_of_a_notebook_are_live_after_a_resume(desk: Any):
    """In the outputs of the earlier kernel, without running a cell again."""
    desk.open("resumed.ipynb", RESUMED).live()
    page = desk.page
    desk.select(0)
    for i in range(1, 5):
        desk.enter(f"s{i}")
    page.evaluate("void jupyterapp.commands.execute('kernelmenu:restart')")
    page.locator(".jp-Dialog button.jp-mod-accept").click()
    live = widget_of(desk.cell(1))
    expect(live).to_contain_text("is gone")
    page.wait_for_selector("#ctxkernel-panel[data-phase=live] [data-banner=resume]")
    desk.select(4)
    desk.enter()

    live.get_by_role("slider", name="Detail").focus()
    page.keyboard.press("ArrowRight")
    expect(live).to_contain_text("1 structure")
    expect(desk.view.locator(".ctxk-row", has_text="%ctx set h.lod=1")).to_be_visible()
    desk.cell(2).locator(".noUi-handle").focus()
    page.keyboard.press("ArrowRight")
    expect(desk.cell(2).locator(".widget-readout")).to_have_text("4")
    expect(desk.cell(3).locator("input")).to_have_value("typed")
    expect(page.locator(".jp-Cell [class*=link-slash], .jupyter-widgets-disconnected")).to_have_count(0)
    desk.select(5)
    desk.enter()
    expect(desk.cell(5).locator(".jp-OutputArea")).to_contain_text("at 4")
    assert desk.errors == []


def test_the_rows_of_a_rendering_have_one_line_each_where_no_widget_is(desk: Any):
    """JupyterLab wraps and indents the cells of any table in an output."""
    frame = "pd.DataFrame({'station': ['Potsdam', 'Rome', 'Kyoto'] * 9, **{f'x{i}': range(27) for i in range(3)}})"
    desk.open("rows.ipynb", [f"import pandas as pd\nview({frame}, lod=2).rendered"]).live()
    desk.select(0)
    desk.enter("s1")
    rows = desk.cell(0).locator(".jp-RenderedHTMLCommon tbody tr")
    expect(rows).to_have_count(4)
    for look in ("getBoundingClientRect().height", "computedStyleMap().get('background-color').toString()"):
        assert len(set(rows.evaluate_all(f"all => all.map((row) => row.{look})"))) == 1, look
    assert rows.first.evaluate("row => row.getBoundingClientRect().height") < 30


def test_in_notebook_7_too(lab: Any, context: BrowserContext):
    """There the panel is the same one, and so is the handle; what is saved has text that needs nothing of ours."""
    lab.write("seven.ipynb", CELLS)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{lab.port}/notebooks/seven.ipynb?token={lab.token}")
    page.wait_for_selector("#ctxkernel-panel[data-phase=live]")
    page.locator(".jp-Cell .cm-content").first.click()
    for i in (1, 2):
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector(f"#ctxkernel-panel[data-last-turn=s{i}]")
    live = page.locator(".ctxk-live")
    live.get_by_role("slider", name="Budget").focus()
    page.keyboard.press("Home")
    page.wait_for_selector("#ctxkernel-panel[data-last-turn=s3]")
    expect(live).to_contain_text("50 tokens")
    page.keyboard.press("Control+s")  # the notebook's, also from a slider
    saved = lab.root / "seven.ipynb"
    outputs: list[dict[str, Any]] = []
    for _ in range(100):
        with contextlib.suppress(ValueError):  # half written
            outputs = json.loads(saved.read_text(encoding="utf-8"))["cells"][1]["outputs"]
        if outputs:
            break
        page.wait_for_timeout(100)
    assert "tokens=50" in "".join(outputs[0]["data"]["text/plain"])
    page.close()
    lab.forget()


LINKED = [
    "from pathlib import Path\nimport ipywidgets as w\nn = Path('b.txt').write_text('A line of text.\\n' * 300)",
    "h = view('b.txt', tokens=100)\ns = w.IntSlider(value=100, min=50, max=900)\n{link}\nw.VBox([s, h])",
    "h",
    "%ctx goto s3",
]


@pytest.mark.parametrize(
    "link", ["link = w.link((s, 'value'), (h, 'tokens'))", "link = w.jslink((s, 'value'), (h, 'tokens'))"]
)
def test_a_slider_that_is_linked_to_a_handle_is_dragged(desk: Any, link: str):
    """Rendering, panel and timeline follow, with a statement for the drag; a return takes all of them back."""
    name = f"linked{'js' * ('jslink' in link)}.ipynb"
    desk.open(name, [cell.format(link=link) for cell in LINKED]).live()
    page, live = desk.page, widget_of(desk.cell(2))
    desk.select(0)
    for i in range(1, 4):
        desk.enter(f"s{i}")
    for one in (live, widget_of(desk.cell(1))):
        expect(one).to_contain_text("100 tokens")

    handle = desk.cell(1).locator(".noUi-handle")
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    for step in range(1, 25):
        page.mouse.move(box["x"] + 4 * step, box["y"] + box["height"] / 2)
    page.mouse.up()

    tokens = page.evaluate("+document.querySelector('.jp-OutputArea .widget-readout').textContent")
    assert tokens > 200
    expect(desk.view.locator(".ctxk-row", has_text=f"%ctx set h.tokens={tokens}")).to_be_visible()
    expect(desk.row("s4")).to_contain_text("# outside a cell: ")  # the value of the slider
    # One, but where the browser paused in the middle of the drag.
    assert 1 <= desk.view.locator(".ctxk-row", has_text="%ctx set h.tokens=").count() <= 4
    for one in (live, widget_of(desk.cell(1))):
        expect(one).to_contain_text(f"{tokens} tokens")
    budget = desk.tab("handles").get_by_role("textbox", name="Budget of h")
    expect(budget).to_have_value(str(tokens))

    desk.select(3)
    desk.enter()
    expect(live).to_contain_text("100 tokens")
    expect(desk.cell(1).locator(".widget-readout")).to_have_text("100")
    expect(budget).to_have_value("100")
    assert desk.errors == []


FRAME = (
    "import pandas as pd\nfrom pathlib import Path\n"
    "df = pd.DataFrame({'n': range(40), 'evil': ['<b>x</b>', 'New York, NY'] * 20})\n"
    "n = Path('code.py').write_text('def f(x):\\n    # one\\n    return \\'a\\'\\n')"
)
TABLES = [
    FRAME,
    "h = view(df, lod=2, tokens=900)\nh",
    "c = view('code.py')\nc",
    "h.lod = 0",
    "%ctx goto s3",
]


def test_statistics_are_a_table_with_bars_and_code_is_in_colours(new_desk: Any):
    """In the output and in the panel, in both themes, also where it is narrow, and after a return."""
    desk = new_desk.open("tables.ipynb", TABLES).live()
    page, live, code = desk.page, widget_of(desk.cell(1)), widget_of(desk.cell(2))
    desk.select(0)
    for i in range(1, 4):
        desk.enter(f"s{i}")
    table = live.get_by_role("table")
    expect(table.get_by_role("columnheader")).to_contain_text(["column", "distribution", "type", "values"])
    expect(table.get_by_role("rowheader")).to_have_text(["n", "evil"])
    bar = table.get_by_role("img", name="half of the values are from 9.75 to 29.25, median 19.5, of 0 to 39")
    expect(bar.locator("rect")).to_have_count(3)
    expect(code.locator(".ctxk-r-keyword")).to_have_text(["def ", "return "])
    desk.tab("handles").get_by_role("button", name="Rendering of h", exact=True).click()
    beside = desk.view.locator(".ctxk-r")
    expect(beside.get_by_role("rowheader")).to_have_text(["n", "evil"])
    assert beside.evaluate("el => el.scrollWidth > el.clientWidth && el.closest('.ctxk').clientWidth < 380")
    assert beside.evaluate("el => el.clientWidth < el.closest('.ctxk').clientWidth")
    found: dict[str, list[str]] = {}
    for theme in THEMES:
        dress(desk, theme)
        found[theme] = faults(page, ".ctxk-live", ".ctxk-r")
    assert {theme: here for theme, here in found.items() if here} == {}

    desk.select(3)
    desk.enter("s4")
    expect(live.get_by_role("row").nth(2)).to_contain_text("New York, NY")
    expect(live.get_by_role("row").nth(1)).to_contain_text("<b>x</b>")
    desk.select(4)
    desk.enter()
    expect(table.get_by_role("rowheader")).to_have_text(["n", "evil"])
    assert desk.errors == []
