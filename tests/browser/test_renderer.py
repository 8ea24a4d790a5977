"""The renderer of the panel, on a page of its own: what it draws of a made-up session, and what it asks of its host."""

from __future__ import annotations

import contextlib
import functools
import http.server
import random
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.utils.text import DollarFormatter
from playwright.sync_api import BrowserContext, Locator, Page, expect

import ctxkernel
from ctxkernel.kernel.display.inline_panel import STYLES, renderer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

APP = Path(ctxkernel.__file__).parent / "lab/app"
PAGE = f"""<!doctype html><html><head><meta charset="utf-8">
{"".join(f'<link rel="stylesheet" href="/{name}">' for name in STYLES)}
<style>body {{ margin: 0 }} #host {{ height: 100vh }}</style></head><body><div id="host"></div></body></html>"""
LIGHT = {
    "layout-color1": "#fff",
    "layout-color2": "#eee",
    "ui-font-color0": "rgba(0,0,0,1)",
    "ui-font-color1": "rgba(0,0,0,.87)",
    "border-color2": "#e0e0e0",
    "brand-color1": "#1976d2",
    "success-color1": "#388e3c",
    "error-color1": "#d32f2f",
    "warn-color1": "#f57c00",
    "content-link-color": "#0d47a1",
    "ui-inverse-font-color1": "#fff",
}
DARK = {
    "layout-color1": "#111",
    "layout-color2": "#212121",
    "ui-font-color0": "rgba(255,255,255,1)",
    "ui-font-color1": "rgba(255,255,255,.87)",
    "border-color2": "#616161",
    "brand-color1": "#2196f3",
    "success-color1": "#388e3c",
    "error-color1": "#d32f2f",
    "warn-color1": "#f57c00",
    "content-link-color": "#64b5f6",
    "ui-inverse-font-color1": "rgba(0,0,0,.8)",
}
"""JupyterLab's own colours for what the panel uses."""


class Server(http.server.SimpleHTTPRequestHandler):
    """The panel's files, an empty page, and the inline widget's module."""

    def do_GET(self) -> None:
        """Serve."""
        made = {"/": (PAGE, "text/html"), "/inline.js": (None, "text/javascript"), "/favicon.ico": ("", "image/x-icon")}
        if self.path not in made:
            super().do_GET()
            return
        text, kind = made[self.path]
        body = (renderer() if text is None else text).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def page(context: BrowserContext) -> Iterator[Page]:
    """A page as wide as the panel is at its first opening."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(APP)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = context.new_page()
    page.set_viewport_size({"width": 370, "height": 800})
    page.faults = []
    page.on("pageerror", lambda fault: page.faults.append(str(fault)))
    page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    yield page
    page.close()
    server.shutdown()


@pytest.fixture
def stage(page: Page) -> Iterator[Page]:
    """The made-up session, freshly drawn; no script may have failed, and no text may have run."""
    page.set_viewport_size({"width": 370, "height": 800})
    page.evaluate(f"([make]) => ({script('stage')})(make)", [script("session")])
    expect(row(page, "s13.1")).to_be_visible()
    yield page
    assert page.faults == []
    assert page.evaluate("typeof window.__pwned") == "undefined"


def script(name: str) -> str:
    """Return a function of the page, from the file beside this one."""
    text = (Path(__file__).parent / f"{name}.js").read_text(encoding="utf-8")
    return re.sub(r"^//.*\n", "", text, flags=re.MULTILINE).strip().rstrip(";")


def row(page: Page, execution: str) -> Locator:
    """Return the row of an execution."""
    return page.locator(f'.ctxk-row[data-execution="{execution}"]')


def shown(page: Page) -> list[str]:
    """Return what stands in the timeline, from top to bottom."""
    return page.locator(".ctxk-rows > [role=row]").evaluate_all(
        "els => els.map((el) => el.dataset.execution ?? (el.matches('.ctxk-here') ? 'here' : 'fork'))"
    )


def choose(page: Page, execution: str, item: str) -> None:
    """Open the menu of a row and choose."""
    row(page, execution).locator(".ctxk-more").click()
    page.locator(".ctxk-menuitem", has_text=item).click()


def move(page: Page, head: str | None) -> None:
    """A gesture has moved HEAD."""
    moved = "{kind: 'meta', moved: {to: head, reason: 'goto'}}"
    page.evaluate(f"head => view.turn(S.turn('s14.1', 's13.1', '%ctx goto', {moved}, {{head}}))", head)


def gestures(page: Page) -> list[str]:
    """Return what the panel asked the kernel to run."""
    return page.evaluate("host.gestures")


@contextlib.contextmanager
def themed(page: Page, theme: str) -> Iterator[None]:
    """The page in JupyterLab's colours for a while."""
    colours = "".join(f"--jp-{name}: {value};" for name, value in {"light": LIGHT, "dark": DARK}[theme].items())
    dress = "css => document.documentElement.style.cssText = css"
    page.evaluate(dress, f"color-scheme: {theme}; {colours}")
    try:
        yield
    finally:
        page.evaluate(dress, "")


def legible(page: Page, theme: str, what: str) -> None:
    """Fail where a text has less than the contrast of 4.5 : 1 that WCAG asks for."""
    worst = page.locator("#host").evaluate(script("contrast"))
    assert worst[0][0] >= 4.5, (theme, what, worst[:4])


def sticking_out(page: Page) -> list[str]:
    """Return what goes beyond the right edge of the page."""
    return page.evaluate(
        """() => [...document.querySelectorAll('.ctxk *')]
          .filter((el) => el.checkVisibility() && !el.closest('.ctxk-sr, .ctxk-storage, .ctxk-tabs, .ctxk-go, pre'))
          .filter((el) => el.getBoundingClientRect().right > innerWidth + 1)
          .map((el) => el.className)"""
    )


# ---------------------------------------------------------------- checkpoints


def test_every_row_has_a_mark_that_says_how_its_state_is_kept(stage):
    """Six marks of six shapes; what is missing, and why, stands in the mark's text and in the menu."""
    marks = {
        "s1.1": "durable",
        "s3.1": "partial",
        "s10.1": "writing",
        "s11.1": "skipped",
        "s12.1": "thinned",
        "s13.1": "damaged",
    }
    drawn = set()
    for execution, mark in marks.items():
        button = row(stage, execution).locator(".ctxk-more")
        expect(button).to_have_attribute("data-checkpoint", mark)
        drawn.add(
            button.locator(".ctxk-cp path").first.get_attribute("d") + str(button.locator(".ctxk-cp path").count())
        )
    assert len(drawn) == len(marks)
    expect(row(stage, "s3.1").locator(".ctxk-more")).to_have_attribute("title", re.compile("lines \\(a generator"))
    expect(row(stage, "s11.1").locator(".ctxk-more")).to_have_attribute("aria-label", re.compile("31 GB would not fit"))
    expect(row(stage, "s10.1")).to_contain_text("640 MB")
    row(stage, "s3.1").locator(".ctxk-more").click()
    expect(stage.locator(".ctxk-menutold")).to_contain_text("not stored: lines (a generator cannot be stored)")


def test_a_checkpoint_that_comes_to_the_disk_later_is_told(stage):
    """The mark changes, and the line at the foot says what is stored and what is still to be written."""
    foot = stage.locator(".ctxk-storage")
    expect(foot).to_contain_text("writing 640 MB, 3 s")
    expect(foot).to_contain_text("1.2 GB of 20 GB")
    stage.evaluate(
        """view.message({type: 'checkpoint', execution_id: 's10.1',
        checkpoint: {state: 'durable', bytes_new: 64e7, time_ms: 9, missing: {}, reason: ''},
        storage: {bytes: 19e9, quota: 20e9, pending_bytes: 0, pending_s: 0, folder: ''}})"""
    )
    expect(row(stage, "s10.1").locator(".ctxk-more")).to_have_attribute("data-checkpoint", "durable")
    expect(foot).not_to_contain_text("writing")
    expect(foot).to_have_class(re.compile("ctxk-full"))


def test_rows_below_a_row_that_was_closed_are_seen_again(stage):
    """The row that was open was higher than the section, so that the rows below it had left the page."""
    stage.set_viewport_size({"width": 370, "height": 420})
    stage.locator(".ctxk-section.ctxk-timeline").evaluate("el => el.scrollTop = 0")
    toggle = row(stage, "s1.1").locator("[data-part=toggle]")
    toggle.click()
    row(stage, "s1.1").locator(".ctxk-details").evaluate("el => el.style.minHeight = '3000px'")
    expect(row(stage, "s2.1")).to_have_count(1)
    for top in (1, 2):
        stage.locator(".ctxk-section.ctxk-timeline").evaluate("(el, top) => el.scrollTop = top", top)
        stage.wait_for_timeout(100)
    expect(row(stage, "s4.1")).to_have_count(0)
    toggle.click()
    expect(row(stage, "s4.1")).to_have_count(1)


def test_a_failure_is_read_on_its_line_where_the_code_leaves_it_room(stage):
    stage.evaluate(
        """() => {
            const exception = { type: 'ValueError', message: 'by zero', trace_summary: '' };
            const failed = { status: 'error', source: '1/0', exception };
            const same = (one) => (one.execution_id === 's13.1' ? { ...one, ...failed } : one);
            view.snapshot({ ...S.snapshot, statements: S.snapshot.statements.map(same) });
        }"""
    )
    failure = row(stage, "s13.1").locator(".ctxk-exc")
    expect(failure).to_have_text("ValueError: by zero")
    assert failure.evaluate("el => el.scrollWidth <= el.clientWidth")


def test_what_could_not_be_stored_stands_at_the_foot(stage):
    """Until it is over; the whole text is in the title, and it is text."""
    foot = stage.locator(".ctxk-storage")
    tell = """(faults) => view.message({type: 'checkpoint', execution_id: 's10.1',
        checkpoint: {state: 'durable', bytes_new: 0, time_ms: 9, missing: {}, reason: ''},
        storage: {bytes: 1e6, quota: 20e9, pending_bytes: 0, pending_s: 0, folder: '', faults}})"""

    stage.evaluate(tell, ["not stored: since s4: <b>the disk is full</b>"])

    expect(foot.locator(".ctxk-faulty")).to_contain_text("not stored: since s4: <b>the disk is full</b>")
    expect(foot).to_have_attribute("title", re.compile("not stored: since s4: <b>the disk is full</b>"))
    stage.evaluate(tell, [])
    expect(foot.locator(".ctxk-faulty")).to_have_count(0)


# ---------------------------------------------------------------- the tree


def test_the_timeline_is_the_way_to_head_and_branches_are_folded_at_their_fork(stage):
    """A fold tells what is in it, opens by keyboard, and its rows are dimmed."""
    # s1 s2 s3 s4 ─┬─ s5 s6 s7          (folded)
    #              └─ s8 s5.2 s6.2 s9 … (HEAD)
    way = ["s1.1", "s2.1", "s3.1", "s4.1", "fork", "s8.1", "s5.2", "s6.2", *(f"s{n}.1" for n in range(9, 14))]
    assert shown(stage) == way
    expect(row(stage, "s13.1")).to_have_attribute("aria-current", "step")
    fold = stage.locator(".ctxk-foldbutton")
    expect(fold).to_contain_text("Other branch from s4")
    expect(fold).to_contain_text("s5 … s7")
    fold.focus()
    stage.keyboard.press("Enter")
    assert shown(stage) == [*way[:5], "s5.1", "s6.1", "s7.1", *way[5:]]
    expect(row(stage, "s6.1")).to_have_class(re.compile("ctxk-off"))
    expect(fold).to_be_focused()


def test_in_the_past_the_panel_says_so_and_what_a_cell_would_start(stage):
    """HEAD is marked, what lies ahead stays and is dimmed, and the way back is one click."""
    move(stage, "s4.1")
    assert shown(stage)[:6] == ["s1.1", "s2.1", "s3.1", "s4.1", "here", "fork"]
    assert "s14.1" not in shown(stage), "a statement that only moved HEAD is no branch"
    here = stage.locator(".ctxk-here")
    expect(here).to_contain_text("You are here, in the past")
    expect(here).to_contain_text("the 8 later statements below stay")
    expect(row(stage, "s9.1")).to_have_class(re.compile("ctxk-off"))
    expect(row(stage, "s2.1")).not_to_have_class(re.compile("ctxk-off"))
    here.get_by_role("button", name="Back to s13").click()
    assert stage.evaluate("host.plans.at(-1)") == {"action": "goto", "target": "s13"}

    stage.evaluate("view.turn(S.turn('s15.1', 's4.1', 'other = 1'))")
    assert shown(stage) == ["s1.1", "s2.1", "s3.1", "s4.1", "fork", "s15.1"]
    expect(stage.locator(".ctxk-foldbutton")).to_contain_text("2 other branches from s4")
    stage.locator(".ctxk-foldbutton").click()
    assert shown(stage) == ["s1.1", "s2.1", "s3.1", "s4.1", "fork", "fork", "fork", "s15.1"]
    expect(stage.locator(".ctxk-onebranch").last).to_contain_text("s8 … s13")


def test_before_the_first_statement_everything_lies_ahead(stage):
    """HEAD may be before all of them."""
    move(stage, None)
    assert shown(stage)[:3] == ["here", "s1.1", "s2.1"]


def test_every_run_has_one_place_in_any_tree(stage):
    """With all folds open each run is drawn once; the rows on the path are those that lead to HEAD, in order."""
    chance = random.Random(3)
    for _ in range(25):
        ids = [f"s{n}.1" for n in range(1, chance.randint(2, 40))]
        parents = {one: chance.choice([None, *ids[:i], *ids[max(0, i - 1) : i] * 6]) for i, one in enumerate(ids)}
        head = chance.choice([None, *ids])
        laid = stage.evaluate(
            """async ([ids, parents, head]) => {
              const { plant, layOut } = await import('/tree.js');
              const row = (id, i) => ({ execution_id: id, parent_execution_id: parents[id], started_at: i, index: i });
              const rows = ids.map(row);
              const entries = layOut(plant(rows, head), head, () => true);
              return entries.filter((entry) => entry.kind === 'row').map(({ key, place }) => [key, place]);
            }""",
            [ids, parents, head],
        )
        path: list[str] = []
        at = head
        while at is not None:
            path.insert(0, at)
            at = parents[at]
        assert sorted(key for key, _ in laid) == sorted(ids)
        assert [key for key, place in laid if place == "path"] == path


def test_parents_that_are_unknown_or_go_in_a_circle_do_no_harm(stage):
    """Rows are a stranger's; and kernels that say no parents have one line."""
    lay = """async ([rows, head]) => {
      const { plant, layOut } = await import('/tree.js');
      return layOut(plant(rows), head === 'none' ? undefined : head, () => true)
        .filter((entry) => entry.kind === 'row').map((entry) => entry.key);
    }"""
    circle = [
        {"execution_id": "s1.1", "parent_execution_id": "s2.1"},
        {"execution_id": "s2.1", "parent_execution_id": "s1.1"},
    ]
    assert sorted(stage.evaluate(lay, [circle, "s2.1"])) == ["s1.1", "s2.1"]
    lost = [
        {"execution_id": "s9.1", "parent_execution_id": "s8.1"},
        {"execution_id": "s10.1", "parent_execution_id": "s9.1"},
    ]
    assert stage.evaluate(lay, [lost, "s10.1"]) == ["s9.1", "s10.1"]
    old = [{"statement_id": f"s{n}", "index": n} for n in (1, 2, 3)]
    assert stage.evaluate(lay, [old, "none"]) == ["s1.1", "s2.1", "s3.1"]


def test_re_run_from_a_cell_begins_where_the_cells_above_are_as_last_run(stage):
    """The first run of it, or of a cell below, since those above were last run; else its own newest run."""
    cases = [
        # cells run so far, in order    from    before which of them
        ("a b c", "b", 1),
        ("a b c b", "b", 1),
        ("a b c a b", "b", 4),
        ("a c", "b", 1),
        ("a", "b", None),
        ("a b a", "b", 1),
    ]
    for ran, cell, place in cases:
        path = [{"cell_id": one, "place": i, "kind": "python"} for i, one in enumerate(ran.split())]
        found = stage.evaluate(
            """async ([path, cell]) => {
              const { startOf } = await import('/tree.js');
              return startOf(path, ['a', 'b', 'c'], cell)?.place ?? null;
            }""",
            [path, cell],
        )
        assert found == place, (ran, cell)


# ---------------------------------------------------------------- going back


def test_a_return_that_costs_nothing_goes_ahead_and_can_be_undone(stage):
    """No question where nothing is lost and nothing runs; the notice has the button for the way back."""
    choose(stage, "s4.1", "Go back here")
    told = stage.locator(".ctxk-told")
    expect(told).to_contain_text("At the state after s4.")
    assert stage.evaluate("host.plans") == [{"action": "goto", "target": "s4"}]
    assert gestures(stage) == ["%ctx goto s4"]
    told.get_by_role("button", name="Undo").click()
    expect(told).to_contain_text("Undone.")
    assert gestures(stage) == ["%ctx goto s4", "%ctx undo"]
    stage.evaluate(
        "view.begin({statement: {statement_id: 's14', execution_id: 's14.1', parent_execution_id: 's13.1', index: 14}})"
    )
    expect(told).to_be_hidden()


def test_a_return_that_loses_something_is_shown_before_it_happens(stage):
    """What is restored, removed, made again, lost and why, and which files stay; nothing is done before the yes."""
    stage.evaluate("host.plan = 'hard'")
    choose(stage, "s4.1", "Go back here")
    sheet = stage.get_by_role("dialog", name="Go back to s4")
    for part, text in {
        "lost": "a network connection cannot be stored <img src=x onerror=window.__pwned=1>",
        "load": "clean",
        "drop": "weights",
        "again": "s3",
        "ambient": "numpy.random",
        "files": "out.parquet",
    }.items():
        expect(sheet.locator(f"[data-part={part}]")).to_contain_text(text)
    expect(sheet).to_contain_text("about 4.20 s")
    expect(sheet.get_by_role("button", name="Go back")).to_be_focused()
    stage.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    assert gestures(stage) == []
    expect(row(stage, "s4.1").locator(".ctxk-more")).to_be_focused()

    choose(stage, "s4.1", "Go back here")
    stage.keyboard.press("Enter")
    expect(stage.locator(".ctxk-told")).to_contain_text("At the state after s4.")
    assert gestures(stage) == ["%ctx goto s4"]


def test_a_refusal_is_told_in_the_words_of_the_kernel(stage):
    """Whether the plan or the return itself is refused."""
    stage.evaluate("host.plan = {error: 'there is no statement s99 here'}")
    choose(stage, "s4.1", "Go back here")
    sheet = stage.get_by_role("dialog")
    expect(sheet).to_contain_text("there is no statement s99 here")
    expect(sheet.locator(".ctxk-primary")).to_have_count(0)
    sheet.get_by_role("button", name="Close").click()
    stage.evaluate("host.plan = 'easy'; host.refuses = 'the state after s4 is damaged'")
    choose(stage, "s4.1", "Go back here")
    expect(stage.locator(".ctxk-told")).to_contain_text("the state after s4 is damaged")


def test_nothing_is_sent_while_a_cell_runs(stage):
    """It would wait in the kernel's queue and come as a surprise; the plan can be read meanwhile."""
    stage.evaluate("view.kernelStatus('busy')")
    choose(stage, "s4.1", "Go back here")
    go = stage.get_by_role("dialog").get_by_role("button", name="Go back")
    expect(go).to_be_disabled()
    expect(stage.get_by_role("dialog")).to_contain_text("A cell is running")
    stage.evaluate("view.kernelStatus('idle')")
    expect(go).to_be_enabled()
    stage.keyboard.press("Escape")
    stage.evaluate("view.kernelStatus('busy')")
    choose(stage, "s4.1", "Expected to differ")
    expect(stage.locator(".ctxk-told")).to_contain_text("A cell is running")
    assert gestures(stage) == []
    expect(stage.get_by_role("button", name="Undo", exact=True)).to_be_disabled()


def test_a_button_of_the_foot_that_cannot_be_pressed_looks_so_and_says_why(stage):
    undo = stage.get_by_role("button", name="Undo", exact=True)
    looks = "el => getComputedStyle(el).opacity"
    assert undo.evaluate(looks) == "1"
    expect(undo).to_have_attribute("title", re.compile("the state before the last cell"))
    stage.evaluate("view.kernelStatus('busy')")
    expect(undo).to_be_disabled()
    assert undo.evaluate(looks) == "0.5"
    expect(undo).to_have_attribute("title", "Not while a cell runs")


def test_a_run_that_its_statement_does_not_mean_is_called_by_its_own_name(stage):
    """`s5` is its run on the way to HEAD; the other one is `s5.1`."""
    stage.locator(".ctxk-foldbutton").click()
    choose(stage, "s5.1", "Go back here")
    choose(stage, "s5.2", "Go back here")
    assert gestures(stage) == ["%ctx goto s5.1", "%ctx goto s5"]


# ---------------------------------------------------------------- the menu


def test_the_menu_works_by_keyboard(stage):
    """Arrow keys move in it, Escape closes it, and the keyboard is where it was."""
    more = row(stage, "s4.1").locator(".ctxk-more")
    more.focus()
    stage.keyboard.press("Enter")
    menu = stage.get_by_role("menu", name="Statement s4")
    expect(menu.get_by_role("menuitem").first).to_be_focused()
    stage.keyboard.press("ArrowDown")
    expect(menu.get_by_role("menuitem", name="Re-run from here")).to_be_focused()
    stage.keyboard.press("End")
    expect(menu.get_by_role("menuitemcheckbox", name="Ask before it runs again")).to_be_focused()
    expect(more).to_have_attribute("aria-expanded", "true")
    stage.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(more).to_be_focused()


def test_states_are_named_and_statements_are_marked_from_the_menu(stage):
    """A name is one word; a statement has one mark at most, and the row shows both."""
    choose(stage, "s4.1", "Name this state")
    stage.keyboard.insert_text("s10")
    stage.keyboard.press("Enter")
    expect(stage.get_by_role("alert")).to_contain_text("One word")
    stage.keyboard.press("Control+a")
    stage.keyboard.insert_text("fitted-v2")
    stage.keyboard.press("Enter")
    choose(stage, "s13.1", "Name this state")
    stage.keyboard.insert_text("last")
    stage.get_by_role("button", name="Name it").click()
    choose(stage, "s4.1", "Ask before it runs again")
    choose(stage, "s5.2", "Expected to differ")
    names = ["%ctx checkpoint fitted-v2 s4", "%ctx checkpoint last"]
    assert gestures(stage) == [*names, "%ctx mark s4 asks", "%ctx mark s5 none"]
    expect(row(stage, "s4.1")).to_contain_text("baseline")
    expect(row(stage, "s5.2")).to_contain_text("may differ")
    stage.evaluate(
        """view.turn(S.turn('s14.1', 's13.1', '%ctx mark s4 asks', {kind: 'meta'},
        {rows: [{execution_id: 's4.1', names: ['fitted'], marks: {differs: false, asks: true}}]}))"""
    )
    expect(row(stage, "s4.1")).to_contain_text("asks first")
    expect(row(stage, "s4.1")).to_contain_text("fitted")


# ---------------------------------------------------------------- running again

CELLS = [
    {"cell_id": "cell-8", "source": "clean = clean[clean.site != 'C']", "tags": []},
    {"cell_id": "cell-5", "source": "model = fit(clean, seed=None)", "tags": []},
    {"cell_id": "cell-new", "source": "print('new')", "tags": []},
    {"cell_id": "cell-q", "source": "# back\n%ctx goto s3", "tags": []},
    {"cell_id": "cell-7", "source": "submit(model)", "tags": ["ctx-asks"]},
    {"cell_id": "cell-6", "source": "model.plot_residuals()", "tags": []},
]


def test_re_run_restores_the_state_before_and_then_runs_the_cells_as_they_are_now(stage):
    """Cells in the notebook's order; one that asks runs only with a tick, one that moves HEAD never."""
    stage.evaluate("cells => { host.cells = cells }", CELLS)
    choose(stage, "s8.1", "Re-run from here")
    sheet = stage.get_by_role("dialog", name="Re-run from s8")
    assert stage.evaluate("host.plans") == [{"action": "goto", "target": "s8", "before": True}]
    steps = sheet.locator(".ctxk-step")
    expect(steps).to_have_count(5)
    expect(steps.nth(0)).to_contain_text("edited")
    expect(steps.nth(1)).not_to_contain_text("edited")
    expect(steps.nth(1)).to_contain_text("1 min 01 s")
    expect(steps.nth(3)).to_contain_text("asks first")
    expect(sheet.get_by_role("button", name="Re-run 4 cells")).to_be_visible()
    assert gestures(stage) == []
    sheet.get_by_role("checkbox").check()
    sheet.get_by_role("button", name="Re-run 5 cells").click()
    expect(stage.locator(".ctxk-told")).to_contain_text("Re-run: 5 cells")
    assert gestures(stage) == ["%ctx goto s8 --before"]
    assert stage.evaluate("host.ran") == ["cell-8", "cell-5", "cell-new", "cell-7", "cell-6"]


def test_no_cell_runs_where_the_state_could_not_be_restored(stage):
    """The cells would compute on the wrong state."""
    stage.evaluate("cells => { host.cells = cells; host.refuses = 'the state before s8 is damaged' }", CELLS)
    choose(stage, "s8.1", "Re-run from here")
    stage.get_by_role("button", name="Re-run 4 cells").click()
    expect(stage.locator(".ctxk-told")).to_contain_text("the state before s8 is damaged")
    assert stage.evaluate("host.ran") == []


def test_a_re_run_stops_at_the_first_error_and_says_what_is_left(stage):
    """As Run All does."""
    stage.evaluate("cells => { host.cells = cells; host.failsAt = 'cell-5' }", CELLS)
    choose(stage, "s8.1", "Re-run from here")
    stage.get_by_role("button", name="Re-run 4 cells").click()
    expect(stage.locator(".ctxk-told")).to_contain_text("Stopped at an error; 2 cells not run.")
    expect(stage.locator(".ctxk-told").get_by_role("button", name="Go to the cell")).to_be_visible()
    assert stage.evaluate("host.ran") == ["cell-8", "cell-5"]


def test_statements_whose_cells_are_gone_run_again_from_the_log(stage):
    """The plan says which run, which are left out and which ask; `--yes` is a person's tick."""
    stage.evaluate("host.plan = 'rerun'")
    choose(stage, "s8.1", "Re-run from here")
    sheet = stage.get_by_role("dialog")
    assert stage.evaluate("host.plans") == [{"action": "rerun", "target": "s8"}]
    expect(sheet.locator(".ctxk-step").nth(1)).to_contain_text("skipped")
    sheet.get_by_role("checkbox", name="also run those that ask first").check()
    sheet.get_by_role("button", name="Re-run").click()
    expect(stage.locator(".ctxk-told")).to_contain_text("Re-run from s8.")
    assert gestures(stage) == ["%ctx rerun s8 --yes"]


# ---------------------------------------------------------------- what differs


def test_rows_say_whether_a_re_run_came_out_as_before(stage):
    """Same, different with the number and the cause, or different as expected."""
    for execution, word, text in (("s5.2", "expected", "≈ 1"), ("s9.1", "differs", "≠ 2"), ("s10.1", "same", "=")):
        mark = row(stage, execution).locator(".ctxk-cmp")
        expect(mark).to_have_attribute("data-verdict", word)
        expect(mark).to_contain_text(text)
    expect(row(stage, "s9.1").locator(".ctxk-cause")).to_have_text("upstream")
    expect(row(stage, "s1.1").locator(".ctxk-cmp")).to_have_count(0)


def test_the_table_of_a_re_run_says_what_differs_and_what_that_comes_from(stage):
    """Kind, cause, before and after, times; first only what differs, then all."""
    stage.locator("[data-tab=rerun]").click()
    table = stage.locator(".ctxk-comparisons")
    expect(stage.locator(".ctxk-verdicts")).to_contain_text("4 statements re-run")
    expect(stage.locator(".ctxk-verdicts")).to_contain_text("≠ 2 differ")
    expect(table.locator("tbody")).to_have_count(3)
    model = table.locator('[data-comparison="s5.2"]')
    expect(model).to_contain_text("as expected")
    expect(model).to_contain_text("seed")
    expect(model).to_contain_text("0.8311 → 0.8274")
    expect(model).to_contain_text("→ 1 min 01 s")
    out = table.locator('[data-comparison="s9.1"]')
    out.locator("summary").first.click()
    expect(out.locator("pre").first).to_have_text("R2    0.912\nN     1203\nAIC   88.1")
    stage.get_by_role("checkbox", name="only what differs").uncheck()
    expect(table.locator("tbody")).to_have_count(4)
    expect(stage.get_by_role("checkbox", name="only what differs")).to_be_focused()
    model.get_by_role("button", name="s5.2").click()
    assert stage.evaluate("host.went") == ["cell-5"]


def test_a_statement_of_which_a_variable_was_not_compared_is_the_same_as_far_as_it_could_be(stage):
    stage.evaluate(
        """() => {
            const unknown = { kind: 'unknown', subject: 'model', summary: 'it could not be compared', cause: '' };
            for (const one of S.snapshot.statements)
              if (one.execution_id === 's5.2') Object.assign(one.comparison, { same: true, divergences: [unknown] });
            view.snapshot(S.snapshot);
        }"""
    )
    stage.locator("[data-tab=rerun]").click()
    row = stage.locator('[data-comparison="s5.2"]')
    expect(row).to_contain_text("same as far as it could be compared")
    expect(row).to_contain_text("not compared")


def test_without_a_re_run_on_the_way_to_head_there_is_no_such_section(stage):
    """The tab is there when it has something to say."""
    expect(stage.locator("[data-tab=rerun]")).to_be_visible()
    move(stage, "s4.1")
    expect(stage.locator("[data-tab=rerun]")).to_be_hidden()


# ---------------------------------------------------------------- a session that can be resumed


def test_a_session_to_go_on_with_is_offered_with_what_comes_back_and_what_does_not(stage):
    """Resume is a gesture; to start fresh loses nothing and asks no more."""
    offer = "view.snapshot({...S.snapshot, statements: [], shape: undefined, resume: S.resume})"
    stage.evaluate(offer)
    banner = stage.locator("[data-banner=resume]")
    expect(banner.get_by_role("status")).to_have_text("This notebook has an earlier session")
    expect(banner).to_contain_text("41 statements")
    expect(banner).to_contain_text("as they were after s40")
    expect(banner).to_contain_text("The state after s41 was still being written.")
    expect(banner).to_contain_text("model = fit(clean)")
    stage.evaluate("() => { host.holds = new Promise((done) => { host.end = done }) }")
    banner.get_by_role("button", name="Resume").click()
    expect(banner).to_contain_text("Resuming the session…")
    expect(banner.get_by_role("button", name="Resume")).to_be_disabled()
    expect(banner.get_by_role("button", name="Start fresh")).to_be_disabled()
    expect(stage.locator("[role=tab][aria-selected=true]")).to_be_focused()
    stage.evaluate("host.end()")
    expect(stage.locator(".ctxk-told")).to_contain_text("Resumed.")
    assert gestures(stage) == ["%ctx resume"]
    banner.get_by_role("button", name="Start fresh").click()
    stage.evaluate(offer)
    expect(banner).to_be_hidden()


def test_once_a_cell_ran_an_earlier_session_is_only_mentioned(stage):
    """After "Restart and run all" nobody has to choose; what a resume would do to the new cells is said."""
    stage.evaluate("view.snapshot({...S.snapshot, resume: S.resume})")
    banner = stage.locator("[data-banner=resume]")
    expect(banner.get_by_role("status")).to_have_text("An earlier session is kept")
    expect(banner).to_contain_text("What ran in this kernel stays in the timeline, on a branch of its own.")
    expect(banner.locator(".ctxk-primary")).to_have_count(0)
    banner.get_by_role("button", name="Dismiss").click()
    expect(banner).to_be_hidden()


# ---------------------------------------------------------------- the projection and its history


@pytest.fixture
def model(stage: Page) -> Page:
    """The made-up session with what a model would be sent, the section Projection in front."""
    stage.evaluate(f"window.M = ({script('model')})()")
    stage.evaluate("view.snapshot({...S.snapshot, projection: M.projection, history: M.history})")
    stage.evaluate(
        """() => {
          host.asked = [];
          for (const name of ['events', 'compare'])
            host.answers[name] = async (request) => (host.asked.push(request), { [name]: M[name], error: null });
          host.answers.projection = async () => ({ projection: M.blocks, error: null });
          host.answers.request = async () => ({ request: M.request, error: null });
          host.answers.image = async ({ of }) => ({ image: M.image?.[of] ?? null, error: 'there is none' });
          host.answers.whatif = async ({ changes }) => ({ whatif: M.whatif(changes), error: null });
        }"""
    )
    stage.locator("[data-tab=projection]").click()
    return stage


BLOCKS = """(given) => {
  M.blocks = { ...M.blocks, receipt: 'sha256:1', blocks: given.blocks };
  M.image = given.images;
  view.snapshot({ ...S.snapshot, projection: { ...M.projection, receipt: 'sha256:1', ...given.sizes } });
}"""
"""Shows other blocks, with the images that the kernel has."""


def block(page: Page, name: str) -> Locator:
    """Return a block of the projection."""
    return page.locator(f'[data-block="{name}"]')


def act(page: Page, name: str, item: str) -> None:
    """Open the menu of a block and choose."""
    block(page, name).locator(".ctxk-blockmore").click()
    page.locator(".ctxk-menuitem", has_text=item).click()


def test_blocks_stand_in_their_messages_and_each_says_who_speaks(model):
    """In the order of the request; the speaker is told again where it changes."""
    told = model.locator(".ctxk-message").evaluate_all(
        """els => els.map((el) => [el.dataset.role, el.querySelector('.ctxk-role code')?.textContent ?? '',
        [...el.querySelectorAll('.ctxk-block')].length,
        [...el.querySelectorAll('.ctxk-speaker')].map((one) => one.textContent).join()])"""
    )
    assert told == [
        ["text", "", 1, "the kernel"],
        ["user", "messages[0]", 3, "you"],
        ["assistant", "messages[1]", 3, "the model"],
        ["user", "messages[2]", 1, "the kernel"],
        ["assistant", "messages[3]", 1, "the model"],
        ["user", "messages[4]", 2, "the kernel"],
        ["system", "messages[5]", 1, "the kernel"],
    ]
    expect(block(model, "s2.1")).to_contain_text("line 0 of a long output")
    expect(block(model, "s2.1")).not_to_contain_text("line 79")
    block(model, "s2.1").get_by_role("button", name="show all").click()
    expect(block(model, "s2.1")).to_contain_text("line 79")
    expect(block(model, "s2.1")).to_contain_text("redacted")
    expect(block(model, "s1.1")).to_contain_text("pinned")


def test_cost_and_budget_are_told_before_anything_is_sent(model):
    """In the header, and in the section by part."""
    expect(model.locator(".ctxk-total")).to_contain_text("~$0.0123")
    meter = model.locator(".ctxk-meter")
    expect(meter.locator(".ctxk-cost")).to_have_attribute("title", re.compile("prices of 2026-11-22"))
    for part in ("system ~900", "history ~2,087", "variables ~500", "deltas ~20", "free ~28,493 (89 %)"):
        expect(meter.locator(".ctxk-legend")).to_contain_text(part)
    model.evaluate(
        """view.snapshot({...S.snapshot, projection: {...M.projection,
        cost: {usd: null, units: 4100, told: "~4,100 input tokens' worth (price not known)", as_of: ''}}})"""
    )
    expect(meter.locator(".ctxk-cost")).to_contain_text("price not known")
    expect(model.locator(".ctxk-total")).not_to_contain_text("price")


def test_a_red_badge_leads_to_the_block_and_to_the_row_of_its_statement(model):
    """Each violation names both; the rule and the fix stand beside."""
    model.locator("[data-tab=timeline]").click()
    model.locator(".ctxk-checks").click()
    failed = model.get_by_role("group", name="Checks that failed")
    expect(failed).to_be_focused()
    first = failed.locator(".ctxk-violation").first
    expect(first).to_contain_text("block s2.1 of s2")
    expect(first).to_contain_text("blank_text")
    expect(first).to_contain_text("Fix: leave it out")
    expect(failed.locator(".ctxk-violation").last).to_contain_text("the request as a whole")
    first.get_by_role("button", name="Show block s2.1").click()
    expect(block(model, "s2.1")).to_be_focused()
    expect(block(model, "s2.1")).to_be_in_viewport()
    expect(block(model, "s2.1").locator(".ctxk-fault")).to_contain_text("blank_text")
    first.get_by_role("button", name="Show statement s2 in the timeline").click()
    expect(row(model, "s2.1")).to_be_focused()


def test_an_output_is_redacted_with_a_line_that_a_person_types(model):
    """Quoted so that it comes through unchanged; a turn that comes meanwhile takes nothing of it away."""
    act(model, "s3.1:3", "Undo the redaction")
    model.evaluate("view.snapshot({...S.snapshot, projection: M.projection})")
    act(model, "s2.1", "Redact its output")
    field = model.get_by_role("textbox", name="What mattered in the output of s2.1")
    expect(field).to_be_focused()
    model.keyboard.press("Enter")
    expect(field).to_be_focused()
    model.keyboard.insert_text("""it's "80 lines" of""")
    model.evaluate("view.turn(S.turn('s14.1', 's13.1', 'x = 1', {}, {projection: M.projection}))")
    expect(field).to_be_focused()
    model.keyboard.insert_text(" {rows}")
    model.keyboard.press("Enter")
    expect(field).to_have_count(0)
    model.locator(".ctxk-told").get_by_role("button", name="Undo").click()
    expect(model.locator(".ctxk-told")).to_contain_text("Done.")
    assert gestures(model) == [
        "%ctx redact --undo s5.1:1",
        r'''%ctx redact s2.1 "it's \"80 lines\" of {{rows}}"''',
        "%ctx redact --undo s2",
    ]


def test_a_refused_redaction_keeps_what_was_typed(model):
    """The kernel says why; the words are still there."""
    model.evaluate("host.refuses = 'the note would cost 60 tokens and the output costs 40'")
    act(model, "s3.1:3", "Undo")
    model.evaluate("view.snapshot({...S.snapshot, projection: M.projection})")
    act(model, "s1.1", "Redact")
    model.keyboard.insert_text("a long story")
    model.keyboard.press("Enter")
    expect(model.locator(".ctxk-told")).to_contain_text("the output costs 40")
    expect(model.get_by_role("textbox")).to_have_value("a long story")
    model.keyboard.press("Escape")
    expect(model.get_by_role("textbox")).to_have_count(0)
    expect(block(model, "s1.1").locator(".ctxk-blockmore")).to_be_focused()


def test_what_can_be_done_with_a_block_depends_on_what_it_is(model):
    """A pinned one is not redacted; a summary can be opened and undone; the state has no menu."""
    block(model, "s1.1").locator(".ctxk-blockmore").click()
    menu = model.get_by_role("menu", name="Block s1.1")
    expect(menu.get_by_role("menuitem", name="Redact its output…")).to_have_attribute("aria-disabled", "true")
    menu.get_by_role("menuitem", name="Unpin").click()
    act(model, "s3.1:4", "Pin")
    act(model, "s4.1:1~summary1", "Undo the condensation")
    expect(block(model, "variables").locator(".ctxk-blockmore")).to_have_count(0)
    expect(block(model, "s3.1:2#thinking1").locator(".ctxk-blockmore")).to_have_count(1)
    assert gestures(model) == ["%ctx unpin s1.1", "%ctx pin s3.1:4", "%ctx condense --undo s4.1:1"]
    act(model, "s4.1:1~summary1", "What it stands for")
    entry = model.locator('[data-entry="s4.1:1"]')
    expect(entry).to_be_focused()
    expect(entry).to_contain_text("secret = 1")


def test_the_history_tells_what_was_done_to_it_and_how_to_take_it_back(model):
    """The newest first; what was taken back already has no button; what a condensation stands for is asked for once."""
    model.locator("[data-tab=history]").click()
    entries = model.locator(".ctxk-entry")
    told = ["not condensed", "took effect", "redacted", "redacted", "redacted", "condensed", "repaired"]
    assert entries.locator(".ctxk-blockline > .ctxk-tag").all_text_contents() == told
    assert entries.get_by_role("button", name=re.compile("^Undo")).count() == 3
    expect(entries.nth(2)).to_contain_text("taken back")
    expect(entries.nth(4)).to_contain_text("by the model")
    expect(entries.nth(4)).to_contain_text("waits: it takes effect with others")
    expect(entries.nth(6)).to_contain_text("no result <img")
    section = model.locator(".ctxk-history")
    expect(section).to_contain_text("1 call without a result")
    expect(section).to_contain_text("A condensation was asked for")
    expect(section).to_contain_text("4 older entries")
    summary = entries.nth(5).locator("summary")
    summary.click()
    expect(entries.nth(5)).to_contain_text("secret = 1")
    expect(entries.nth(5)).to_contain_text("… and 1 more event")
    model.evaluate("view.turn(S.turn('s14.1', 's13.1', 'x = 1', {}, {projection: null, history: M.history}))")
    expect(entries.nth(5)).to_contain_text("secret = 1")
    expect(entries.nth(5)).not_to_contain_text("Asking")
    assert model.evaluate("host.asked") == [{"of": "s4.1:1"}]
    entries.nth(3).get_by_role("button", name="Undo the redaction of s2.1").click()
    section.get_by_role("button", name="Unpin s1.1").click()
    section.get_by_role("button", name="Condense now").click()
    expect(model.locator(".ctxk-told")).to_contain_text("Done.")
    assert gestures(model) == ["%ctx redact --undo s6.1:1", "%ctx unpin s1.1", "%ctx condense"]


def test_without_a_record_there_is_no_section_history(model):
    """It comes with the first record, and goes where HEAD is before all of them."""
    tab = model.locator("[data-tab=history]")
    expect(tab).to_be_visible()
    model.evaluate("view.turn(S.turn('s14.1', 's13.1', 'x = 1', {}, {projection: M.projection}))")
    expect(tab).to_be_hidden()
    expect(model.locator(".ctxk-projection").get_by_role("button", name="Condense now")).to_be_visible()


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.mark.parametrize(
    ("source", "pictures"),
    [
        ({"type": "base64", "media_type": "image/png", "data": PIXEL}, 1),
        ({"type": "base64", "media_type": "image/svg+xml", "data": PIXEL}, 0),
        ({"type": "base64", "media_type": "image/png", "data": '"><script>'}, 0),
        ({"type": "url", "url": "https://elsewhere.example/a.png"}, 0),
    ],
)
def test_a_picture_that_a_model_is_shown_is_seen_in_the_panel(model, source, pictures):
    """Nothing but a PNG or a JPEG that the request itself holds: the panel loads nothing from anywhere."""
    shown = [
        {"id": "view:h", "kind": "view", "role": "user", "tokens": 5, "text": "plot.png"},
        {"id": "view:h:picture", "kind": "picture", "role": "user", "tokens": 1, "text": "[image/png, 70 bytes]"},
    ]
    shown[1]["images"] = ["0f"]
    model.evaluate(BLOCKS, {"blocks": shown, "images": {"0f": source}})

    expect(model.locator("[data-block='view:h:picture']")).to_be_visible()
    expect(model.locator("[data-block='view:h:picture'] img")).to_have_count(pictures)
    assert model.locator("[data-block='view:h'] img").count() == 0
    if pictures:
        assert model.locator(".ctxk-picture").evaluate("img => img.decode().then(() => img.naturalWidth)") == 1
    else:
        expect(model.locator("[data-block='view:h:picture']")).to_contain_text("there is none")


def test_the_images_of_cells_are_seen_with_their_price(model):
    """In a block of their own, or in the result of a call; the legend has the sum."""
    shown = [
        {"id": "s2.1", "kind": "statement", "role": "user", "tokens": 5, "text": "plot()", "origin": "s2"},
        {
            "id": "s2.1#image1",
            "kind": "image",
            "role": "user",
            "tokens": 300,
            "text": "[image/png 1×1]",
            "origin": "s2",
            "images": ["0f"],
        },
        {"id": "s4.1:1", "kind": "result", "role": "user", "tokens": 340, "text": "[display]", "images": ["0f"]},
    ]
    images = {"count": 2, "tokens": 600, "usd": 0.0018, "told": "~$0.0018"}
    pixel = {"media_type": "image/png", "data": PIXEL}
    model.evaluate(BLOCKS, {"blocks": shown, "images": {"0f": pixel}, "sizes": {"images": images}})

    for one, wanted in zip(shown, [0, 1, 1], strict=True):
        expect(model.locator(f"[data-block='{one['id']}'] img")).to_have_count(wanted)
    expect(model.locator("[data-block='s2.1#image1']")).to_contain_text("~$0.0009")
    expect(model.locator("[data-block='s2.1#image1']")).to_contain_text("~300")
    expect(model.locator("[data-block='s4.1:1']")).to_contain_text("[display]")
    expect(model.locator(".ctxk-legend")).to_contain_text("2 images ~600, ~$0.0018")


def test_two_projections_are_compared(model):
    """What was gained, lost and changed, tokens and cost, and where the cached prefix breaks."""
    model.locator("summary", has_text="Compare with an earlier projection").click()
    model.get_by_role("combobox", name="The earlier projection: after which statement").select_option("s4.1")
    told = model.locator(".ctxk-against")
    expect(told).to_contain_text("~4,100 → ~3,507 (−593)")
    expect(told).to_contain_text("~$0.0141 → ~$0.0123")
    expect(told).to_contain_text("~$0.0051")
    expect(told).to_contain_text("~1,300 tokens, it breaks at s2.1")
    for word, text in {"gained": "s4.1:1~summary1", "lost": "s1.2<img", "changed": "~480 → ~500"}.items():
        expect(told.locator(f"[data-changes={word}]")).to_contain_text(text)
    expect(told).to_contain_text("7 more changes")
    assert model.evaluate("host.asked") == [{"old": "s4.1", "new": None}]
    told.get_by_role("button", name="Show block variables").click()
    expect(block(model, "variables")).to_be_focused()
    model.evaluate("host.answers.compare = async () => ({ compare: null, error: 'there is none of s1' })")
    model.get_by_role("combobox", name="The earlier projection: after which statement").select_option("s1.1")
    expect(told).to_contain_text("there is none of s1")


def test_any_projection_is_compared_by_its_number(model):
    """Also one that is not among the choices; a number that does not exist is told, Escape goes back."""
    model.locator("summary", has_text="Compare with an earlier projection").click()
    chooser = model.get_by_role("combobox", name="The earlier projection: after which statement")
    chooser.select_option("other")
    field = model.get_by_role("textbox", name="The earlier projection: after which statement")
    expect(field).to_be_focused()
    field.fill("99")
    model.keyboard.press("Enter")
    expect(model.get_by_text("There is no statement 99.")).to_be_visible()
    field.fill("7")  # on another branch, so it is no choice
    model.keyboard.press("Enter")
    expect(chooser).to_be_focused()
    expect(chooser).to_have_value("s7.1")
    assert model.evaluate("host.asked") == [{"old": "s7.1", "new": None}]
    model.get_by_role("combobox", name="The later projection").select_option("other")
    model.keyboard.press("Escape")
    expect(model.get_by_role("combobox", name="The later projection")).to_have_value("")


def test_blocks_are_searched_and_each_hit_is_marked_as_text(model):
    """Only the blocks that have the words, with the lines around; Escape shows all again."""
    field = model.get_by_role("searchbox", name="Search in the blocks")
    field.fill("LINE 79")
    expect(model.locator(".ctxk-block")).to_have_count(2)
    expect(model.get_by_role("status").filter(has_text="2 blocks of 12")).to_be_visible()
    expect(block(model, "s2.1").locator("mark")).to_have_text("line 79")
    field.press("Enter")
    expect(block(model, "s2.1")).to_be_focused()
    field.fill("<img src=x")
    expect(block(model, "s1.1").locator("mark")).to_have_text("<img src=x")
    field.press("Escape")
    expect(model.locator(".ctxk-block")).to_have_count(12)


def test_no_head_of_a_message_covers_the_search_for_blocks(model):
    """The heads stay at the top while the blocks scroll; the search field scrolls away with the blocks."""
    section = model.locator(".ctxk-projection")
    field = model.get_by_role("searchbox", name="Search in the blocks")
    section.evaluate("el => (el.scrollTop = el.scrollHeight)")
    top = section.evaluate("el => el.getBoundingClientRect().top")
    assert field.evaluate("el => el.getBoundingClientRect().bottom") <= top


def test_each_item_of_a_block_has_its_price_before_it_is_chosen(model):
    """Tokens and the cost of the next request; a change that is not possible says why."""
    block(model, "s4.1:1~summary1").locator(".ctxk-blockmore").click()
    expect(model.get_by_role("menuitem", name=re.compile("Undo the condensation"))).to_contain_text("+40 tokens")
    model.keyboard.press("Escape")
    block(model, "s2.1").locator(".ctxk-blockmore").click()
    expect(model.get_by_role("menuitem", name=re.compile("Leave out"))).to_contain_text("not possible <img")
    expect(model.get_by_role("menuitem", name=re.compile("^Pin"))).to_contain_text("next request +$0.0001")
    model.keyboard.press("Escape")
    handle = {"name": "v", "obj_type": "view", "obj_id": "v1", "lod": 1, "pinned": False}
    shown = [{"id": "view:v", "kind": "view", "role": "user", "tokens": 5, "text": "x"}]
    model.evaluate("given => { S.snapshot.handles = [given] }", handle)
    model.evaluate(BLOCKS, {"blocks": shown, "images": {}})
    block(model, "view:v").locator(".ctxk-blockmore").click()
    expect(model.get_by_role("menuitemcheckbox", name="Level 1: structure")).to_have_attribute("aria-checked", "true")
    expect(model.get_by_role("menuitemcheckbox", name=re.compile("Level 0"))).to_contain_text("+40 tokens")
    for name in ("Level 0", "Pin", "Expand", "Leave out"):
        if model.locator(".ctxk-menu").is_hidden():
            block(model, "view:v").locator(".ctxk-blockmore").click()
        model.locator(".ctxk-menuitem", has_text=name).click()
    assert model.evaluate("host.gestures") == ["%ctx set v.lod=0", "%ctx pin v", "show(v)", "%ctx private v"]


def test_a_broken_prefix_says_where_and_why_and_leads_to_the_block(model):
    """Below the sum of the tokens, as text."""
    told = f"the cached prefix breaks at s2.1 (~1,200 tokens are written again): redacted {EVIL}"
    model.evaluate("told => view.snapshot({...S.snapshot, projection: {...M.projection, broke: told}})", told)
    expect(model.locator(".ctxk-broke")).to_contain_text(told)
    model.locator(".ctxk-broke").get_by_role("button", name="show the block: Show block s2.1").click()
    expect(block(model, "s2.1")).to_be_focused()


def test_the_request_is_copied_as_a_command_line_without_the_key(model):
    """A shell passes exactly these bytes on; the key is the shell's variable."""
    made = model.evaluate("import('/projection.js').then((m) => m.curlOf(M.request))")
    shown = subprocess.run(
        ["bash", "-c", 'curl() { printf "%s\n" "$@" >&2; cat; }; ' + made],
        env={"ANTHROPIC_API_KEY": "of the shell"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == model.evaluate("M.request.body")
    assert "x-api-key: of the shell" in shown.stderr.splitlines()
    assert "https://api.anthropic.com/v1/messages" in shown.stderr
    model.get_by_role("button", name="Copy JSON").click()
    expect(model.get_by_role("button", name=re.compile("Copied|not allowed"))).to_be_visible()


def test_what_is_left_out_has_its_reason_and_of_anything_else_the_kernel_is_asked(model):
    """A command that only reads; names are quoted where they are more than a word."""
    model.locator("summary", has_text="Left out (1)").click()
    expect(model.locator(".ctxk-left")).to_contain_text("18 more <img")
    field = model.get_by_role("textbox", name=re.compile("Why is this not"))
    for name in ("rows", "view:a b"):
        field.fill(name)
        model.keyboard.press("Enter")
        expect(model.locator(".ctxk-told")).to_contain_text("Done.")
        expect(field).to_be_focused()
    assert gestures(model) == ["%ctx why not rows", '%ctx why not "view:a b"']


TEXTS = [
    """it's "fine" \\ done""",
    "--undo",
    "--list of x",
    "{rows} and {",
    "}{",
    "$rows costs $5, don't",
    "$rows 'a' $HOME",
    "a\nb\n\nc\ttab",
    "ends with \\",
    "$$rows $ü.x ' $.y",
    "`ls` !x ? # %ctx $",
    "'$rows' {x!r:>{w}} '",
    "x" * 400,
]


def test_a_text_comes_through_a_command_line_unchanged(stage):
    """Through what IPython fills in and what the kernel splits at; of blanks one is left."""
    found = stage.evaluate(
        """async (texts) => {
          const { quoted } = await import('/text.js');
          return texts.map(quoted);
        }""",
        TEXTS,
    )
    names = {"rows": 1, "x": 2, "w": 3, "HOME": "/root", "ü": 4}
    for text, line in zip(TEXTS, found, strict=True):
        try:
            filled = DollarFormatter().vformat(line, [], names)
        except Exception:  # IPython leaves such a line as it is
            filled = line
        (word,) = shlex.split(filled)
        assert " ".join(word.split()) == " ".join(text.split()), line
        assert not word.startswith("-")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_of_the_projection_is_legible(model, theme):
    """4.5 : 1, also for what failed, for what was taken back, and for the comparison."""
    with themed(model, theme):
        for fold in ("Left out", "Compare with"):
            model.locator("summary", has_text=fold).click()
        model.get_by_role("button", name="Compare", exact=True).click()
        expect(model.locator(".ctxk-against")).to_contain_text("gained")
        legible(model, theme, "the projection")
        block(model, "s1.1").locator(".ctxk-blockmore").click()
        legible(model, theme, "the menu")
        model.locator("[data-tab=history]").click()
        model.locator(".ctxk-entry summary").click()
        expect(model.locator(".ctxk-event")).to_have_count(2)
        legible(model, theme, "the history")


@pytest.mark.parametrize("width", [240, 300, 370, 620])
def test_nothing_of_the_projection_sticks_out_at_any_width(model, width):
    """Long ids are cut or broken."""
    model.set_viewport_size({"width": width, "height": 700})
    for fold in ("Left out", "Compare with"):
        model.locator("summary", has_text=fold).click()
    model.get_by_role("button", name="Compare", exact=True).click()
    expect(model.locator(".ctxk-against")).to_contain_text("gained")
    assert sticking_out(model) == []
    model.evaluate("view.snapshot({...S.snapshot, projection: M.projection})")
    act(model, "s2.1", "Redact")
    assert sticking_out(model) == []
    model.evaluate("view.snapshot({...S.snapshot, projection: M.projection, history: M.history})")
    model.locator("[data-tab=history]").click()
    model.locator(".ctxk-entry summary").click()
    expect(model.locator(".ctxk-event")).to_have_count(2)
    assert sticking_out(model) == []
    assert model.locator(".ctxk-tab:visible").count() == 6
    tabs = model.locator(".ctxk-tab")
    cut = tabs.evaluate_all(
        "els => els.filter((el) => { el.hidden = false; const right = el.getBoundingClientRect().right; "
        "return el.scrollWidth > el.clientWidth + 1 || right > el.parentElement.getBoundingClientRect().right + 1 })"
        ".map((el) => el.textContent)"
    )
    assert cut == []


# ---------------------------------------------------------------- what a model proposes

EVIL = "<img src=x onerror=window.__pwned=1>"
PROPOSAL = {
    "id": "s15.1:1",
    "kind": "cell",
    "ask": "s14.1",
    "code": f"total = sum(rows)  # {EVIL}",
    "told": "The model wants to run this cell.",
    "more": 2,
    "state": "waits",
    "reason": "",
}


@pytest.fixture
def proposed(stage: Page) -> Page:
    """A question of a person, two responses, a cell that was held back, a replayed one; and a proposal that waits."""
    stage.evaluate(
        """(proposal) => {
          const of = (more) => ({ author: 'model', tags: { ask: 's14.1', model: 'claude-sonnet-5-5', ...more } });
          view.message(S.turn('s14.1', 's13.1', '%%ask\\nWhy do they drift?', { kind: 'meta' }));
          const said = 'I look at **all** of the means first, since they tell most of it.'.repeat(3);
          const spent = { kind: 'meta', tokens: 4120, usd: 0.0123 };
          view.message(S.turn('s15.1', 's14.1', said, { ...of({ response: 's15.1' }), ...spent }));
          view.message(S.turn('s16.1', 's15.1', '%ctx reject "too \\\\"slow\\\\""', { author: 'panel', kind: 'meta' }));
          const held = { ...of({ held: true }), kind: 'meta', status: 'cancelled' };
          view.message(S.turn('s17.1', 's16.1', 'total = 1', held));
          view.message(S.turn('s18.1', 's17.1', 'It drifts.', { ...of({ replayed: true }), kind: 'meta' }));
          view.message({ type: 'proposal', proposal });
        }""",
        PROPOSAL,
    )
    return stage


def test_what_waits_is_seen_on_every_tab_and_decided_once(proposed):
    """A click rests the buttons until the answer; a refusal is told in the card; what waits no more goes."""
    card = proposed.locator(".ctxk-waits .ctxk-card-of-model")
    for tab in ("handles", "projection", "timeline"):
        proposed.locator(f"[data-tab={tab}]").click()
        expect(card).to_contain_text("and 2 more cells after it")
    proposed.evaluate("host.refuses = 'what waited is on another branch'")
    card.get_by_role("button", name="Run", exact=True).evaluate("el => (el.click(), el.click())")
    expect(card).to_contain_text("what waited is on another branch")
    assert proposed.evaluate("host.gestures") == ["%ctx approve"]
    proposed.evaluate("view.kernelStatus('busy')")
    assert card.get_by_role("button", disabled=True).count() == 5
    proposed.evaluate("view.message({ type: 'proposal', proposal: null })")
    expect(card).to_have_count(0)


def test_rows_of_an_ask_say_what_they_are(proposed):
    """Question and decision in words, prose as prose; what was held back, and what was replayed, has its mark."""
    expect(row(proposed, "s14.1").locator(".ctxk-question")).to_have_text("Why do they drift?")
    expect(row(proposed, "s15.1").locator(".ctxk-prose")).to_contain_text("I look at all of the means")
    expect(row(proposed, "s15.1")).to_contain_text("4,120 tokens · $0.0123")
    expect(row(proposed, "s16.1").locator(".ctxk-decision")).to_have_text('rejected: too "slow"')
    expect(row(proposed, "s17.1").locator(".ctxk-held")).to_have_text("held: what it had seen changed")
    expect(row(proposed, "s18.1")).to_contain_text("replayed")
    grouped = proposed.locator(".ctxk-ofask").evaluate_all("els => els.map((el) => el.dataset.execution)")
    assert grouped == ["s15.1", "s16.1", "s17.1", "s18.1"]


def test_the_row_of_an_ask_says_what_its_responses_cost_together(proposed):
    """It grows with each of them."""
    spent = row(proposed, "s14.1").locator(".ctxk-spent")
    expect(spent).to_have_text("4,120 tokens · $0.0123")
    proposed.evaluate(
        """() => {
          const cost = { kind: 'meta', author: 'model', tokens: 880, usd: 0.0027 };
          view.message(S.turn('s19.1', 's18.1', 'All of it.', { ...cost, tags: { ask: 's14.1' } }));
        }"""
    )
    expect(spent).to_have_text("5,000 tokens · $0.0150")


def test_the_row_of_an_ask_that_failed_keeps_its_number_and_question_beside_the_reason(proposed):
    why = "failed: claude-sonnet-5-5: the server has too much to do (529: Overloaded)"
    proposed.evaluate(
        """why => {
          const ask = { result: 'failed', seconds: 1, rounds: 1, text: why, told: why };
          view.message(S.turn('s19.1', 's18.1', '%%ask\\nAgain?', { ask }));
        }""",
        why,
    )
    failed = row(proposed, "s19.1")
    expect(failed).to_have_attribute("aria-label", re.compile(f"s19, .*{re.escape(why)}"))
    index, go = failed.locator(".ctxk-index"), failed.locator(".ctxk-go")
    right = "el => el.getBoundingClientRect().right"
    assert index.evaluate(right) < go.evaluate(right)
    assert go.evaluate("el => el.clientWidth") > 90
    assert failed.locator(".ctxk-status").evaluate(right) <= failed.evaluate(right)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_of_a_proposal_is_legible(proposed, theme):
    """4.5 : 1, also while a cell runs."""
    with themed(proposed, theme):
        legible(proposed, theme, "the card")
        proposed.locator(".ctxk-waits").get_by_role("button", name="Reject").click()
        legible(proposed, theme, "the reason")


@pytest.mark.parametrize("width", [240, 300, 370, 620])
def test_nothing_of_a_proposal_sticks_out_at_any_width(proposed, width):
    """Neither the card, nor its editor, nor the rows of the ask."""
    proposed.set_viewport_size({"width": width, "height": 700})
    assert sticking_out(proposed) == []
    proposed.locator(".ctxk-waits").get_by_role("button", name="Edit").click()
    assert sticking_out(proposed) == []
    proposed.evaluate(
        "view.message({ type: 'asking', asking: { ask: 's14.1', model: 'claude-sonnet-5-5', since: 1 } })"
    )
    assert proposed.evaluate("document.documentElement.scrollWidth") <= width


# ---------------------------------------------------------------- as it looks


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_of_going_back_is_legible(stage, theme):
    """4.5 : 1 also for what is dimmed, for the menu, the plan and the table."""
    with themed(stage, theme):
        stage.evaluate("view.snapshot({...S.snapshot, resume: S.resume, head: 's8.1'}); host.plan = 'hard'")
        stage.locator(".ctxk-foldbutton").first.click()
        legible(stage, theme, "the past")
        row(stage, "s4.1").locator(".ctxk-more").click()
        legible(stage, theme, "the menu")
        stage.locator(".ctxk-menuitem", has_text="Go back here").click()
        expect(stage.get_by_role("dialog")).to_be_visible()
        legible(stage, theme, "the plan")
        stage.keyboard.press("Escape")
        stage.evaluate("view.snapshot(S.snapshot)")
        stage.locator("[data-tab=rerun]").click()
        legible(stage, theme, "the table")


@pytest.mark.parametrize("width", [240, 300, 370, 620])
def test_nothing_sticks_out_at_any_width(stage, width):
    """JupyterLab lets the panel be as narrow as 240 pixels."""
    stage.set_viewport_size({"width": width, "height": 700})
    stage.evaluate("view.snapshot({...S.snapshot, resume: S.resume}); host.plan = 'hard'")
    choose(stage, "s4.1", "Go back here")
    expect(stage.get_by_role("dialog")).to_be_visible()
    assert sticking_out(stage) == []
    stage.keyboard.press("Escape")
    stage.locator("[data-tab=rerun]").click()
    assert sticking_out(stage) == []
    assert stage.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [240, 300, 370])
def test_a_long_name_of_a_handle_leaves_room_for_its_controls(stage, width):
    """The name takes three lines at most, and has a line of its own in a narrow panel."""
    stage.set_viewport_size({"width": width, "height": 700})
    handle = {"name": "result_of_the_second_stage_of_the_whole_pipeline_" * 2}
    stage.evaluate("given => view.snapshot({...S.snapshot, handles: [{...S.snapshot.handles[0], ...given}]})", handle)
    stage.locator("[data-tab=handles]").click()
    name = stage.locator(".ctxk-handlename > b")
    expect(name).to_have_attribute("title", handle["name"])
    seen = name.evaluate("el => [el.getBoundingClientRect().width, el.getBoundingClientRect().height]")
    assert seen[0] > 60
    assert seen[1] < 60
    toggle = stage.locator(".ctxk-handlename > .ctxk-toggle").evaluate("el => el.getBoundingClientRect().bottom")
    assert toggle > name.evaluate("el => el.getBoundingClientRect().top")
    for one in stage.locator(".ctxk-card :is(select, input, button, .ctxk-tokens)").all():
        place = one.evaluate("el => [el.getBoundingClientRect().left, el.getBoundingClientRect().right]")
        assert place[0] >= 0
        assert place[1] <= width, one


@pytest.mark.parametrize("width", [240, 250, 290, 301, 345, 370])
def test_each_level_of_detail_of_a_handle_is_readable(stage, width):
    """A field that is too narrow for its text would end within the word."""
    stage.set_viewport_size({"width": width, "height": 700})
    stage.evaluate("view.snapshot({...S.snapshot, handles: [{...S.snapshot.handles[0], name: 'h'}]})")
    stage.locator("[data-tab=handles]").click()
    level = stage.locator(".ctxk-card select")
    for lod in range(4):
        cut = level.evaluate("(el, lod) => { el.value = String(lod); return el.scrollWidth - el.clientWidth }", lod)
        assert cut <= 0, lod


# ---------------------------------------------------------------- the inline widget


def test_the_inline_panel_asks_for_plans_and_shows_the_line_to_run(stage):
    """A widget cannot send execute requests, so a person does; the plan comes by the widget's own messages."""
    stage.evaluate(
        """async () => {
          const { default: widget } = await import('/inline.js');
          const el = document.getElementById('host');
          el.replaceChildren();
          const heard = (window.heard = {});
          window.asked = [];
          const model = {
            get: () => S.snapshot,
            on: (what, call) => (heard[what] = call),
            off() {},
            send(msg) {
              asked.push(msg);
              heard['msg:custom']({ type: 'plan', id: msg.id, plan: S.plans.hard, error: null });
            }
          };
          widget.render({ model, el });
        }"""
    )
    choose(stage, "s4.1", "Go back here")
    sheet = stage.get_by_role("dialog")
    expect(sheet).to_contain_text("a running thread")
    expect(sheet.locator(".ctxk-codeline")).to_contain_text("%ctx goto s4")
    assert [(one["type"], one["action"], one["target"]) for one in stage.evaluate("asked")] == [("plan", "goto", "s4")]
    stage.evaluate("(proposal) => heard['msg:custom']({ type: 'proposal', proposal })", PROPOSAL)
    card = stage.locator(".ctxk-card-of-model")
    expect(card).to_contain_text("total = sum(rows)")
    expect(card.locator(".ctxk-codeline").first).to_contain_text("%ctx approve")
    expect(card.get_by_role("button", name="Run", exact=True)).to_have_count(0)


# ---------------------------------------------------------------- the notebook's side

HANDS = """async ([statuses, tagged, stopAt]) => {
  const { NotebookHands } = await import('/notebook.js');
  const sent = [];
  const reply = (what) => {
    sent.push(what);
    const status = statuses.shift();
    return status === 'gone' ? Promise.reject(new Error('gone')) : Promise.resolve({ content: { status } });
  };
  const kernel = {
    status: 'busy',
    requestExecute: ({ code, stop_on_error, store_history }, dispose, { ctxkernel }) => ({
      done: reply([code, stop_on_error, store_history, ctxkernel.kind])
    }),
    sendControlMessage: ({ msgType, content }) => ({
      done: Promise.resolve({ content: { type: 'plan', plan: { asked: content, by: msgType } } })
    })
  };
  const cell = (id) => ({
    model: {
      id,
      type: 'code',
      sharedModel: { getSource: () => id },
      getMetadata: () => (tagged.includes(id) ? ['raises-exception'] : [])
    }
  });
  const widgets = ['a', 'b', 'c'].map(cell);
  const link = {
    kernel,
    live: true,
    notebook: { content: { widgets, model: { deletedCells: ['old'] }, notebookConfig: { recordTiming: true } } },
    connection: { kernel, controlMessage: (kernel, msgType, content) => ({ msgType, content }) }
  };
  const hands = new NotebookHands(link, {
    execute: (one, context, { ctxkernel, recordTiming, deletedCells }) =>
      reply([one.model.id, ctxkernel.rerun, recordTiming, deletedCells.length])
  });
  const stop = { stopped: false };
  return {
    sent,
    ran: await hands.rerunCells(stopAt === null ? [] : ['a', 'b', 'c'], (n) => (stop.stopped = n === stopAt), stop),
    gesture: statuses.length ? await hands.gesture('%ctx undo') : null,
    plan: await hands.ask('plan', { action: 'undo', target: '1' }),
    cells: hands.cellsFrom('b').map((one) => one.cell_id),
    none: hands.cellsFrom('x')
  };
}"""


def test_cells_run_one_after_the_other_up_to_the_first_error(stage):
    """As JupyterLab runs them, with what says that it is a re-run; a cell that may raise does not end it."""
    cases = [
        # replies of the kernel, cells that may raise, stop after   how many ran, which failed
        (["ok", "ok", "ok"], [], 0, 3, None),
        (["ok", "error"], [], 0, 2, "b"),
        (["ok", "error", "ok"], ["b"], 0, 3, None),
        (["ok", "gone"], [], 0, 2, "b"),
        (["ok", "ok"], [], 2, 2, None),
    ]
    for statuses, tagged, stop_at, ran, failed in cases:
        found = stage.evaluate(HANDS, [[*statuses], tagged, stop_at])
        assert found["ran"] == {"ran": ran, "failed": failed}, (statuses, tagged)
        assert found["sent"][0] == ["a", True, True, 1], "the first tells the kernel which cells were deleted"
        assert found["sent"][1:ran] == [[cell, True, True, 0] for cell in "bc"[: ran - 1]]
    assert (found["cells"], found["none"]) == (["b", "c"], None)


def test_a_gesture_that_an_error_swept_away_is_sent_again(stage):
    """It is no prompt, does not stop the cells behind it, and is given up after three times."""
    one = ["%ctx undo", False, False, "meta"]
    for statuses, times, ok in (
        (["aborted", "aborted", "ok"], 3, True),
        (["error"], 1, False),
        (["aborted"] * 3, 3, False),
    ):
        found = stage.evaluate(HANDS, [statuses, [], None])
        assert found["sent"] == [one] * times
        assert found["gesture"]["ok"] is ok


def test_while_a_cell_runs_a_plan_is_asked_for_on_the_control_channel(stage):
    """The comm would wait for the end of the cell."""
    plan = stage.evaluate(HANDS, [[], [], None])["plan"]["plan"]
    assert plan["by"] == "ctxkernel_plan_request"
    assert (plan["asked"]["action"], plan["asked"]["target"]) == ("undo", "1")


# ---------------------------------------------------------------- handles and cost

HANDLES = [
    {"name": "v", "obj_id": "v1", "obj_type": "view", "lod": 1, "tokens": 800, "mode": "paused", "freq": "Sync"},
    {"name": "w", "obj_id": "v2", "obj_type": "view", "lod": 0, "tokens": None, "mode": "running", "freq": "Sync"},
    {"name": "g", "obj_id": "g1", "obj_type": "group", "lod": 2, "tokens": 600, "mode": "running", "freq": "Sync"},
]
HANDLES[2] |= {"members": ["v"], "shares": [{"name": "v", "tokens": 410}]}


@pytest.fixture
def handles(stage: Page) -> Page:
    """The section Handles with two views and a group."""
    shown = [
        {"rendered_tokens": 300, "target": f"data/{EVIL}.csv", "members": [], "notes": [], **one} for one in HANDLES
    ]
    stage.evaluate("given => view.snapshot({...S.snapshot, handles: given})", shown)
    stage.evaluate(
        """() => {
          host.answers.handle = async ({ of }) => ({ handle: { blocks: [
            { kind: 'text', text: `text of ${of}` }, null, 7,
            { kind: 'table', head: ['<b>', 'n'], rows: [['x', null, 3], 'y'], right: 'no', labels: 1,
              bars: [{ shapes: 5, label: '<i>' }] },
            { kind: 'code', spans: [['keyword', 'def'], ['x" onclick="', '<u>'], 3] }
          ], more: 7 }, error: null });
          host.answers.whatif = async () => ({ whatif: { prices: [] }, error: null });
        }"""
    )
    stage.locator("[data-tab=handles]").click()
    return stage


def test_level_budget_and_mode_of_a_handle_are_set_in_place(handles):
    """Each is a gesture; what is no budget is not sent; the text comes when it is opened."""
    handles.get_by_role("combobox", name="Level of detail of v").select_option("2")
    field = handles.get_by_role("textbox", name="Budget of v in tokens, or All")
    field.fill("many")
    field.press("Enter")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill("1,200")
    field.press("Enter")
    handles.get_by_role("button", name="Pause w").click()
    assert handles.evaluate("host.gestures") == [
        "%ctx set v.lod=2",
        "%ctx set v.tokens=1200",
        "%ctx set w.mode=paused",
    ]
    expect(handles.locator("[data-handle=g]")).to_contain_text("1 member: v ~410")
    handles.get_by_role("button", name="Rendering of w").click()
    expect(handles.locator("[data-handle=w]")).to_contain_text("text of v2")
    expect(handles.locator("[data-handle=w] .ctxk-r th[scope=col]")).to_have_text(["<b>", "distribution", "n"])
    expect(handles.locator("[data-handle=w] .ctxk-r")).to_contain_text("def<u>")
    expect(handles.locator("[data-handle=w]")).to_contain_text("7 more characters")


def test_the_menu_of_a_handle_is_seen_without_pointing_at_it(handles):
    expect(handles.get_by_role("button", name="What can be done with w").locator("svg")).to_be_visible()


def test_a_handle_is_put_into_a_group_by_drag_and_by_keyboard(handles):
    """The menu has what the drag does, and the way out of the group."""
    handles.locator("[data-handle=w] b").drag_to(handles.locator("[data-handle=g] .ctxk-handletarget"))
    handles.get_by_role("button", name="What can be done with w").press("Enter")
    handles.get_by_role("menuitem", name="Add to g").press("Enter")
    assert handles.evaluate("host.gestures") == ["g.add(w);", "g.add(w);"]
    handles.get_by_role("button", name="What can be done with v").press("Enter")
    assert handles.get_by_role("menuitem", name=re.compile("group|to g|from g")).count() == 0  # the last member stays
    handles.keyboard.press("Escape")


def test_the_cost_of_the_session_is_seen_by_ask_and_over_time(stage):
    """Total, cached share, a plot with a text for those who do not see it, and where the cache broke."""
    line = {"question": f"why? {EVIL}", "model": "claude-sonnet-5-5", "requests": 2, "tokens_in": 4000, "cached": 3000}
    line |= {"ask": "s3.1", "tokens_out": 100, "usd": 0.0123, "told": "$0.0123", "seconds": 3.5}
    points = [{"ask": "s3.1", "usd": usd, "tokens": 9, "broke": broke} for usd, broke in ((0.01, ""), (0.002, "x"))]
    costs = {"asks": [line], "models": [line], "total": line, "requests": points, "more": 0, "fault": ""}
    costs["breaks"] = [f"s3, request 2: the cached prefix breaks at s2.1 {EVIL}"]
    stage.evaluate("given => { host.answers.cost = async () => ({ cost: given, error: null }) }", costs)
    expect(stage.locator("[data-tab=cost]")).to_be_hidden()
    stage.evaluate("view.snapshot({...S.snapshot, sent: true})")
    stage.locator("[data-tab=cost]").click()
    section = stage.locator(".ctxk-cost.ctxk-section")
    expect(section).to_contain_text("$0.0123")
    expect(section).to_contain_text("75 % of the input")
    expect(section.get_by_role("img", name=re.compile(r"grew to \$0.0120 after 2 requests"))).to_be_visible()
    expect(section.get_by_role("table", name="By ask")).to_contain_text("why? <img")
    expect(section).to_contain_text("breaks at s2.1 <img")


# ---------------------------------------------------------------- a newcomer


def test_the_first_steps_name_three_things_and_are_dismissed_for_good(stage):
    """The host remembers it; where the host has no hint there is none."""
    expect(stage.get_by_role("region", name="First steps")).to_have_count(0)
    stage.evaluate(
        """async () => {
          const { mount } = await import('/render.js');
          window.hint = true;
          document.getElementById('host').replaceChildren();
          window.view = mount(document.getElementById('host'), {
            hint: { wanted: () => window.hint, dismiss: () => (window.hint = false) }
          });
          view.snapshot({ ...S.snapshot, statements: [] });
        }"""
    )
    steps = stage.get_by_role("region", name="First steps")
    expect(steps.get_by_role("listitem")).to_have_count(3)
    stage.get_by_role("button", name="Do not show the first steps again").click()
    expect(steps).to_have_count(0)
    stage.evaluate("view.snapshot(S.snapshot)")
    expect(steps).to_have_count(0)


def test_the_first_steps_give_way_to_what_matters_now_and_end_with_the_first_return(stage):
    """A session that can be resumed is said alone; who has gone back needs no hint."""
    steps = stage.get_by_role("region", name="First steps")
    stage.evaluate(
        """async () => {
          const { mount } = await import('/render.js');
          window.hint = true;
          document.getElementById('host').replaceChildren();
          window.view = mount(document.getElementById('host'), {
            hint: { wanted: () => window.hint, dismiss: () => (window.hint = false) }
          });
          view.snapshot({ ...S.snapshot, statements: [], head: null, resume: S.resume });
        }"""
    )
    expect(stage.locator("[data-banner=resume]")).to_be_visible()
    expect(steps).to_have_count(0)
    stage.evaluate("view.snapshot({...S.snapshot, statements: [S.snapshot.statements[0]], head: 's1.1'})")
    expect(steps).to_be_visible()
    stage.evaluate("view.snapshot({...S.snapshot, statements: S.snapshot.statements.slice(0, 2), head: 's1.1'})")
    expect(steps).to_have_count(0)
    assert stage.evaluate("window.hint") is False


def test_tokens_and_price_appear_with_the_first_handle_or_ask_and_then_stay(model):
    """A newcomer sees the timeline; a request that breaks a rule is always told."""
    fine = "{...M.projection, report: {ok: true, count: 0}}"
    model.evaluate(f"view.snapshot({{...S.snapshot, session: 'other', projection: {fine}}})")
    expect(model.locator(".ctxk-total")).to_be_hidden()
    assert model.evaluate("view.statusParts().map(([short]) => short)") == ["s13 · branch 2 of 2"]
    handle = "{name: 'v', obj_id: 'v1', obj_type: 'view'}"
    model.evaluate(f"view.snapshot({{...S.snapshot, session: 'other', handles: [{handle}], projection: {fine}}})")
    expect(model.locator(".ctxk-total")).to_contain_text("~3,507 tokens")
    assert model.evaluate("view.statusParts().map(([short]) => short)")[1:] == ["~3,507 tokens", "✓ checks"]
    model.evaluate(f"view.snapshot({{...S.snapshot, session: 'other', projection: {fine}}})")
    expect(model.locator(".ctxk-total")).to_be_visible()


def test_a_cell_that_runs_long_can_be_stopped_and_work_in_the_background_is_told(stage):
    """From half a second on; a line above the storage names what is prepared."""
    stage.evaluate("view.begin({statement: {statement_id: 's14', execution_id: 's14.1', index: 14, source: 'x'}})")
    expect(stage.locator(".ctxk-stop")).to_be_hidden()
    expect(stage.locator(".ctxk-stop")).to_be_visible()
    stage.evaluate(
        "text => view.turn(S.turn('s14.1', 's13.1', 'x', {}, {work: [text]}))", f"big: indexing, 40 % {EVIL}"
    )
    expect(stage.locator(".ctxk-work")).to_have_text(f"In the background: big: indexing, 40 % {EVIL}")
    stage.evaluate("view.turn(S.turn('s15.1', 's14.1', 'x'))")
    expect(stage.locator(".ctxk-work")).to_be_hidden()


def test_a_reader_of_the_screen_hears_that_a_cell_ended_with_its_kernel(stage):
    stage.evaluate("view.begin({statement: {...S.snapshot.statements[0], statement_id: 's90', execution_id: 's90.1'}})")
    told = stage.locator(".ctxk-sr[role=status]")
    expect(told).to_have_text("running s90")
    stage.evaluate("view.kernelStatus('dead')")
    expect(told).to_have_text("s90 was cancelled: its kernel ended")


def test_the_feed_of_a_kernel_that_was_restarted_is_not_kept(stage):
    """Else 'no cell has run yet' would stand beside the changes of the kernel before."""
    delta = "{statement_id: 's1', kind: 'variable', subject: 'x', summary: 'new', text: ''}"
    stage.evaluate(f"view.snapshot({{...S.snapshot, deltas: [{delta}]}})")
    expect(stage.locator("[data-tab=changes] .ctxk-count")).to_have_text("1")
    stage.evaluate("view.kernelStatus('restarting')")
    stage.evaluate("view.snapshot({...S.snapshot, statements: [], head: null})")
    expect(stage.locator("[data-tab=changes] .ctxk-count")).to_have_text("")
