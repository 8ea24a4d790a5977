"""The panel, as a person meets it: in JupyterLab, through the keyboard."""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from notebook_moves import CURRENT, LAB_ONLY, go_back, run_all
from playwright.sync_api import expect

import ctxkernel

# One worker for all of them: two JupyterLabs at a time would make each other late.
pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

EVIL = "<img src=x onerror=window.__pwned=1><script>window.__pwned=1</script>"
CELLS = [
    "#md # A morning's work",
    "x = 1\nrows = [1, 2, 3]",
    "rows.append(4)\nprint('four', len(rows))",
    f"class Evil:\n    def __repr__(self):\n        return {EVIL!r}\nevil = Evil()",
    f"globals()[{EVIL!r}] = 1",
    f"print({EVIL!r}, '\\x1b[31mred\\x1b[0m')",
    f"raise ValueError({EVIL!r} + '\\x1b[31mred\\x1b[0m')",
    "from pathlib import Path\n_ = Path('notes.md').write_text('# Notes\\n\\n' + 'A line of text.\\n' * 60)",
    "notes = view('notes.md', tokens=200)",
    "notes.lod = 1",
    "# " + "\n# ".join(f"a long cell, line {i}" for i in range(40)) + "\ndel x",
    "total = sum(rows)",
    "total * 2",
]
"""The first is Markdown, so that statement n is cell n."""


@pytest.fixture(scope="module")
def filled(shared_desk):
    """A notebook whose every cell was run by Shift+Enter, with what the panel said on the way."""
    desk = shared_desk.open("morning.ipynb", CELLS).live()
    desk.select(1)
    desk.seen = []
    for n in range(1, len(CELLS)):
        desk.enter(f"s{n}")
        mark = desk.panel.evaluate("el => ({...el.dataset})")
        desk.seen.append(
            {
                "rows": desk.view.locator(".ctxk-row").count(),
                "from_end": float(mark["sinceCellEnd"]),
                # Negative where the turn was on the screen before the kernel's `idle` came.
                "from_idle": float(mark["paintedAt"]) - float(mark["idleAt"] or mark["paintedAt"]),
            }
        )
    return desk


# ---------------------------------------------------------------- it fills


def test_the_panel_opens_by_itself_and_fills_cell_by_cell(filled):
    """For a ctxkernel the panel is there without a click, and each cell adds its row."""
    assert [seen["rows"] for seen in filled.seen] == list(range(1, len(CELLS)))
    filled.tab("timeline")
    expect(filled.panel).to_be_visible()
    expect(filled.row("s1")).to_contain_text("x = 1")
    expect(filled.row("s1")).to_contain_text("+rows")
    expect(filled.row("s2")).to_contain_text("~rows")
    expect(filled.row("s6")).to_contain_text("ValueError")
    expect(filled.row("s6").locator(".ctxk-status")).to_have_text(re.compile("error"))
    expect(filled.row("s10")).to_contain_text("−x")
    expect(filled.view.locator(".ctxk-state")).to_contain_text("idle")


def test_the_panel_says_that_nothing_was_sent(filled):
    """No call of a model is made by this version, and the panel says so at all times."""
    expect(filled.view.locator(".ctxk-sent")).to_have_text("Nothing has been sent to any model.")
    expect(filled.view.locator(".ctxk-total")).to_contain_text(re.compile(r"~[\d,]+ tokens"))
    expect(filled.view.locator(".ctxk-checks")).to_contain_text("checks pass")


def test_the_turn_is_painted_soon_after_the_cell_ends(filled, capfd):
    """The aim is 150 ms; a busy machine is allowed a second."""
    end = sorted(seen["from_end"] for seen in filled.seen)
    idle = sorted(seen["from_idle"] for seen in filled.seen)
    told = [
        f"{what}: median {statistics.median(times):.0f} ms, max {times[-1]:.0f} ms"
        for what, times in (("the cell's end in the kernel", end), ("its `idle` as the page sees it", idle))
    ]
    with capfd.disabled():
        print(f"\npanel latency over {len(end)} cells, to paint from", "; from ".join(told), file=sys.stderr)
    assert len(end) >= 10
    assert statistics.median(end) < 1000


def test_handles_projection_and_changes_are_filled(filled):
    """Each section shows its part of the last turn."""
    handles = filled.tab("handles")
    card = handles.locator(".ctxk-card", has_text="notes")
    expect(card.get_by_role("combobox", name="Level of detail of notes")).to_have_value("1")
    expect(card).to_contain_text("notes.md")
    card.locator(".ctxk-toggle").click()
    expect(card.locator(".ctxk-r")).to_contain_text("Notes")

    projection = filled.tab("projection")
    expect(projection.locator(".ctxk-block").nth(2)).to_be_attached()
    first = projection.locator(".ctxk-block").first
    first.locator("button", has_text="why").click()
    expect(first.locator(".ctxk-why")).to_be_visible()
    projection.locator("summary", has_text="Raw request").click()
    request = json.loads(projection.locator(".ctxk-raw .ctxk-pre").text_content())
    assert request["messages"][0]["role"] == "user"

    changes = filled.tab("changes")
    expect(changes.locator(".ctxk-group").first).to_contain_text("total")
    assert changes.locator(".ctxk-group").first.get_attribute("data-group") == "s11"


def test_tabs_work_by_keyboard(filled):
    """Arrow keys move between the sections, as in every tab list."""
    filled.tab("timeline")
    filled.view.locator("[role=tab][data-tab=timeline]").focus()
    filled.page.keyboard.press("ArrowRight")
    expect(filled.view.locator("[role=tab][data-tab=handles]")).to_be_focused()
    expect(filled.view.locator(".ctxk-handles")).to_be_visible()
    filled.page.keyboard.press("End")
    expect(filled.view.locator(".ctxk-changes")).to_be_visible()
    filled.page.keyboard.press("ArrowRight")
    expect(filled.view.locator(".ctxk-timeline")).to_be_visible()


# ---------------------------------------------------------------- untrusted text


def test_untrusted_text_is_shown_as_text(filled):
    """Sources, names, reprs, output and exceptions are letters: none becomes an element, none runs."""
    filled.tab("timeline")
    for n in (3, 4, 5, 6):
        row = filled.row(f"s{n}")
        row.locator(".ctxk-toggle").click()
        expect(row.locator(".ctxk-details")).to_contain_text("<img src=x onerror=window.__pwned=1><script>")
    texts = [filled.row(f"s{n}").text_content() for n in (3, 4, 5, 6)]
    for tab in ("handles", "projection", "changes"):
        section = filled.tab(tab)
        more = section.locator("button", has_text="show all")
        while more.count():
            more.first.click()
        texts.append(section.text_content())
    assert not [text for text in texts if "\x1b" in text or "[31m" in text.replace("\\x1b[31m", "")]
    odd = "img, script, iframe, a, object, embed, style, link, form, [onerror], [data-commandlinker-command]"
    assert filled.panel.locator(odd).count() == 0
    assert filled.page.evaluate("typeof window.__pwned") == "undefined"
    for n in (3, 4, 5, 6):
        filled.tab("timeline")
        filled.row(f"s{n}").locator(".ctxk-toggle").click()


# ---------------------------------------------------------------- to the cell


def test_a_click_on_a_statement_goes_to_its_cell(filled):
    """However far away it is: the cell is selected, and it is on the screen."""
    filled.tab("timeline")
    for n in (1, 12, 2):
        filled.row(f"s{n}").locator(".ctxk-go").click()
        cell = filled.page.locator(".jp-Cell.jp-mod-active")
        expect(cell).to_have_attribute("data-windowed-list-index", str(n))
        expect(cell).to_be_in_viewport()


def test_a_click_on_a_statement_without_its_cell_says_so(filled):
    """A deleted cell leaves its statement; the row tells that there is nothing to go to."""
    filled.tab("timeline")
    filled.select(11)
    filled.page.keyboard.press("d")
    filled.page.keyboard.press("d")
    filled.row("s11").locator(".ctxk-go").click()
    expect(filled.row("s11").locator(".ctxk-missing")).to_contain_text("not in this notebook")
    filled.select(10)
    filled.page.keyboard.press("z")
    filled.row("s11").locator(".ctxk-go").click()
    expect(filled.row("s11").locator(".ctxk-missing")).to_be_hidden()


# ---------------------------------------------------------------- legible


def test_every_text_is_legible_in_both_themes(desk):
    """Each text has the contrast of 4.5 : 1 that WCAG asks for."""
    desk.open("legible.ipynb", ["text = 'a'\nprint(text)", "text += 'b'", "del text", "1 / 0", "v = view([1])"]).live()
    desk.select(0)
    for n in range(1, 6):
        desk.enter(f"s{n}")
    desk.row("s2").locator(".ctxk-toggle").click()
    desk.row("s4").locator(".ctxk-toggle").click()
    # Code has JupyterLab's own colours; in 4.2, that of operators is too dark.
    is_old = desk.page.evaluate("jupyterapp.version").startswith("4.2.")
    for theme, light in (("Dark", "false"), ("Light", "true")):
        desk.command(f"Use Theme: JupyterLab {theme}")
        desk.page.wait_for_selector(f"body[data-jp-theme-light={light}]", state="attached")
        for tab in ("timeline", "handles", "projection", "changes"):
            desk.tab(tab)
            worst = desk.panel.evaluate(script("contrast"))
            if is_old:
                worst = [one for one in worst if not one[2].startswith("ͼ")]
            assert len(worst) > 5
            assert worst[0][0] >= 4.5, (theme, worst[:5])


# ---------------------------------------------------------------- it survives


def test_the_panel_survives_a_reload(desk):
    """After a reload the rows are back, and the next cell adds one."""
    desk.open("reload.ipynb", ["a = 1", "b = 2", ""]).live()
    desk.select(0)
    desk.enter("s1")
    desk.enter("s2")
    desk.page.keyboard.press("Control+s")
    desk.reload()
    desk.settle().live()
    desk.tab("timeline")
    expect(desk.row("s2")).to_contain_text("b = 2")
    desk.select(2)
    desk.type("c = 3", "s3")
    expect(desk.view.locator(".ctxk-row")).to_have_count(3)


PHASES = """() => {
    const panel = document.querySelector("#ctxkernel-panel");
    window.phases = [];
    const note = () => window.phases.push(panel.dataset.phase);
    new MutationObserver(note).observe(panel, {attributes: true, attributeFilter: ["data-phase"]});
}"""
"""Notes the phases of the panel, of which one may be too short to be waited for."""


def test_the_panel_survives_a_restart_and_a_death_of_the_kernel(desk):
    """The panel is live again with the kernel, and shows what it runs next."""
    desk.open("restart.ipynb", ["a = 1", "import os; os._exit(1)", "b = 2"]).live()
    desk.select(0)
    desk.enter("s1")
    desk.select(0)
    desk.page.keyboard.press("0")
    desk.page.keyboard.press("0")
    desk.page.wait_for_selector(".jp-Dialog")
    desk.page.keyboard.press("Enter")
    desk.page.wait_for_selector("#ctxkernel-panel[data-phase=restarting]")
    desk.live()
    desk.select(2)
    desk.enter()
    expect(desk.view.locator(".ctxk-row").last).to_contain_text("b = 2")

    desk.page.evaluate(PHASES)
    desk.select(1)
    desk.enter()
    desk.page.wait_for_selector(".jp-Dialog", timeout=60_000)
    desk.page.keyboard.press("Enter")
    desk.live()
    assert {*desk.page.evaluate("window.phases")} - {"live"}
    desk.select(0)
    desk.enter()
    expect(desk.view.locator(".ctxk-row").last).to_contain_text("a = 1")
    expect(desk.view.locator(".ctxk-row").last.locator(".ctxk-status")).to_contain_text("ok")


@LAB_ONLY
def test_the_panel_follows_the_notebook_in_front(desk):
    """Two notebooks have two timelines; the panel shows that of the one in front."""
    desk.open("first.ipynb", ["one = 'first'"]).live()
    desk.select(0)
    desk.enter("s1")
    desk.lab.write("second.ipynb", ["two = 'second'"])
    desk.page.locator(".jp-DirListing-item", has_text="second.ipynb").dblclick()
    expect(desk.view).to_contain_text("No cell has run yet")
    desk.settle().live()
    desk.select(0)
    desk.enter("s1")
    expect(desk.row("s1")).to_contain_text("two = 'second'")
    desk.page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab", has_text="first.ipynb").click()
    expect(desk.row("s1")).to_contain_text("one = 'first'")
    expect(desk.view.locator(".ctxk-name")).to_have_text("first.ipynb")


def test_two_browser_tabs_show_the_same_session(desk, context):
    """Each tab has its own connection, and both are told of every turn."""
    desk.open("both.ipynb", ["a = 1", "b = 2"]).live()
    desk.select(0)
    desk.enter("s1")
    other = type(desk)(desk.lab, context.new_page())
    other.page.goto(desk.lab.url("both.ipynb", "auto-t"))
    other.settle().live()
    expect(other.row("s1")).to_contain_text("a = 1")
    desk.enter("s2")
    expect(other.row("s2")).to_contain_text("b = 2")
    other.page.close()


def test_the_panel_remembers_that_it_was_closed(new_desk):
    """Closed stays closed over a reload, though the kernel is a ctxkernel; opened stays open."""
    desk = new_desk
    desk.open("closed.ipynb", ["a = 1", "b = 2"]).live()
    desk.panel.get_by_role("button", name="Close the panel").click()
    expect(desk.panel).to_be_hidden()
    saved = desk.lab.settings / "jupyter-ctxkernel/plugin.jupyterlab-settings"
    _until(lambda: saved.is_file() and '"autoOpen": false' in saved.read_text())
    desk.reload()
    desk.settle()
    desk.page.wait_for_selector("#ctxkernel-panel[data-phase=live]", state="attached")
    desk.page.wait_for_timeout(1000)
    expect(desk.panel).to_be_hidden()

    desk.command("ctxkernel: Open the panel")
    expect(desk.panel).to_be_visible()
    _until(lambda: '"autoOpen": true' in saved.read_text())
    desk.reload()
    desk.settle().live()
    expect(desk.panel).to_be_visible()


# ---------------------------------------------------------------- it tells


def test_the_panel_says_that_a_cell_runs(desk):
    """Which one, and for how long; also to a page that comes while it runs."""
    wait = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)"
    desk.open("runs.ipynb", [wait]).live()
    desk.select(0)
    desk.page.keyboard.press("Control+s")
    desk.enter()
    state = desk.view.locator(".ctxk-state")
    expect(state).to_have_text(re.compile(r"running s1 · [\d.]+ m?s"))
    expect(desk.row("s1").locator(".ctxk-status")).to_contain_text("running")
    desk.reload()
    desk.page.wait_for_selector("#jupyterlab-splash", state="detached")
    # Lab holds back what a page sends to a busy kernel for its first three seconds.
    expect(desk.view.locator(".ctxk-state")).to_have_text(re.compile(r"running s1 · [\d.]+ m?s"), timeout=40_000)
    (desk.lab.root / "go").touch()
    expect(desk.view.locator(".ctxk-state")).to_contain_text("idle")
    expect(desk.row("s1").locator(".ctxk-status")).to_contain_text("ok")


def test_another_kernel_does_not_open_the_panel_and_is_told_what_to_do(new_desk):
    """The panel never opens itself for a stock kernel; asked by command, it names the next step, and takes it."""
    desk = new_desk
    desk.open("stock.ipynb", ["a = 1", "%load_ext ctxkernel", "b = 2"], kernel="python3")
    desk.select(0)
    desk.enter()
    expect(desk.cell(0).locator(".jp-InputPrompt")).to_contain_text("1")
    desk.page.wait_for_timeout(1500)
    assert desk.panel.count() == 0

    desk.command("ctxkernel: Open the panel")
    expect(desk.view.locator("[data-phase=other]")).to_contain_text("Python 3")
    expect(desk.view.locator("[data-phase=other]")).to_contain_text("%load_ext ctxkernel")
    expect(desk.view.locator("[data-phase=other]")).to_contain_text("choose the kernel")

    desk.select(1)
    desk.enter()
    desk.live()
    desk.enter()
    expect(desk.view.locator(".ctxk-row").last).to_contain_text("b = 2")


def test_after_a_change_of_the_kernel_nothing_of_the_earlier_one_is_shown(desk):
    """A stock kernel has no place in the timeline, and an undo of the earlier kernel's return would do nothing."""
    run_all(desk, "changed.ipynb", ["x = 1", "y = 2"])
    go_back(desk, "s1")
    expect(desk.view).to_contain_text("You are here, in the past")
    told = desk.view.locator(".ctxk-told")
    expect(told).to_contain_text("at s1")
    change = f"async (name) => {{ await {CURRENT}.sessionContext.changeKernel({{ name }}) }}"

    desk.page.evaluate(change, "python3")
    expect(desk.panel).to_contain_text("ctxkernel is not loaded here")
    expect(desk.view).not_to_contain_text("You are here, in the past")
    expect(told).to_be_hidden()

    resume = desk.view.locator("[data-banner=resume]").get_by_role("button", name="Resume")
    desk.page.evaluate(change, "ctxkernel")
    resume.click()
    expect(desk.row("s1")).to_have_attribute("aria-current", "step")
    go_back(desk, "s2")
    expect(told).to_contain_text("at s2")
    desk.page.evaluate(change, "ctxkernel")
    expect(resume).to_be_visible()
    expect(told).to_be_hidden()


def test_versions_that_differ_are_named_with_the_next_step(new_desk):
    """Panel and kernel may live in two environments; the banner says which one to bring up to date."""
    desk = new_desk
    entry = desk.page.request.get(desk.lab.file("remoteEntry.js")).text()
    changed = entry.replace(f"VERSION = '{ctxkernel.__version__}'", "VERSION = '0.0.9'")
    assert changed != entry
    desk.page.route(
        "**/jupyter-ctxkernel/app-*/remoteEntry.js",
        lambda route: route.fulfill(body=changed, content_type="text/javascript"),
    )
    desk.open("versions.ipynb", ["a = 1"]).live()
    banner = desk.view.locator("[data-banner=version]")
    expect(banner).to_contain_text("0.0.9")
    expect(banner).to_contain_text(ctxkernel.__version__)
    expect(banner).to_contain_text("pip install -U jupyter-ctxkernel")
    expect(banner).to_contain_text("in the environment of JupyterLab")
    desk.select(0)
    desk.enter("s1")

    say = desk.page.evaluate(script("mismatch"), [["99.0.0", "0.1.0", 1], ["0.1.0", "0.1.0", 2], ["0.1.0", "0.1.0", 1]])
    assert "in the environment of the kernel" in say[0]
    assert "protocols 1 and 2" in say[1]
    assert "both environments" in say[1]
    assert say[2] is None


def test_an_upgrade_of_the_panel_is_seen_at_the_next_load(lab):
    """Lab serves a folder called `static` as immutable for a year; the panel's files must be asked for each time."""
    for name in (path.name for path in (Path(ctxkernel.__file__).parent / "lab/app").iterdir()):
        with urllib.request.urlopen(lab.file(name), timeout=30) as answer:
            assert answer.headers["Cache-Control"] == "no-cache", name


def test_a_long_session_is_drawn_by_what_changed(desk):
    """Of 10,000 rows those that are seen are in the page; a turn touches no other row, a return only seen ones."""
    desk.open("long.ipynb", ["a = 1"]).live()
    drawn = desk.page.evaluate(script("long_session"), 10_000)
    assert 20 < drawn["rows"] < 60
    assert drawn["turn"] < 150, "elements: those of the new row, of the one before, and of the header"
    assert drawn["move"] < drawn["drawn"] + 150, "elements: those of the rows seen before and after, and of the header"
    assert drawn["seen"], "after a return far back the panel shows where one is"


def script(name: str) -> str:
    """Return a function of the page, from the file beside this one."""
    return (Path(__file__).parent / f"{name}.js").read_text(encoding="utf-8")


def _until(condition, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_a_cell_that_asks_is_text_and_the_first_steps_are_dismissed_for_good(new_desk):
    """JupyterLab would colour the question as Python; a setting remembers that the hint was dismissed."""
    new_desk.lab.configure("jupyter-ctxkernel/plugin", {"hint": True})
    desk = new_desk.open("first.ipynb", ["%%ask why for import?", "x = 1"]).live()
    kind = "i => jupyterapp.shell.currentWidget.content.widgets[i].model.mimeType"
    desk.page.wait_for_function(f"({kind})(0) === 'text/plain'")
    assert "python" in desk.page.evaluate(kind, 1)
    desk.select(0)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+A")
    desk.page.keyboard.insert_text("y = 2")
    desk.page.wait_for_function(f"({kind})(0).includes('python')")
    steps = desk.view.get_by_role("region", name="First steps")
    expect(steps).to_contain_text("Go back")
    desk.view.get_by_role("button", name="Do not show the first steps again").click()
    expect(steps).to_have_count(0)
    desk.page.wait_for_timeout(500)  # the setting is saved
    saved = (desk.lab.settings / "jupyter-ctxkernel/plugin.jupyterlab-settings").read_text()
    assert re.search(r'"hint": false', saved)  # not JSON: JupyterLab writes comments


def test_the_button_of_a_handle_shows_what_it_does_as_in_the_output_of_the_handle(desk):
    desk.open("mode.ipynb", ["x = [1]", "h = view(x)\nh"]).live()
    desk.select(0)
    desk.enter("s1")
    desk.enter("s2")
    button = desk.tab("handles").locator(".ctxk-mode")
    in_output = desk.cell(1).get_by_role("button", name=re.compile("Run|Pause"))
    expect(in_output).to_have_text("▶ Run")
    expect(button).to_have_text("▶")
    expect(button).to_have_accessible_name("Run h")
    button.click()
    expect(in_output).to_have_text("❚❚ Pause")
    expect(button).to_have_text("❚❚")
    expect(button).to_have_accessible_name("Pause h")


def test_a_table_of_a_command_has_room_for_the_words_of_its_first_column(desk):
    """The styles of the panel's own tables are not for those in the notebook."""
    desk.open("help.ipynb", ["%ctx help"]).live()
    desk.select(0)
    desk.enter()
    first = desk.cell(0).locator(".ctxk-report th", has_text="%ctx timeline [ROWS] [--json]")
    assert first.evaluate("el => el.getBoundingClientRect().width") > 150
