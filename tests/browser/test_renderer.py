"""The renderer of the panel, on a page of its own: what it draws of a made-up session, and what it asks of its host."""

from __future__ import annotations

import functools
import http.server
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import ctxkernel
from ctxkernel.kernel.inline import STYLES, renderer

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(120)]

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
def page(chromium: Browser) -> Iterator[Page]:
    """A page as wide as the panel is at its first opening."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(APP)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = chromium.new_page(viewport={"width": 370, "height": 800})
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
    """A function of the page, from the file beside this one."""
    text = (Path(__file__).parent / f"{name}.js").read_text(encoding="utf-8")
    return re.sub(r"^//.*\n", "", text, flags=re.MULTILINE).strip().rstrip(";")


def row(page: Page, execution: str) -> Locator:
    """The row of an execution."""
    return page.locator(f'.ctxk-row[data-execution="{execution}"]')


def shown(page: Page) -> list[str]:
    """What stands in the timeline, from top to bottom."""
    return page.locator(".ctxk-rows > li").evaluate_all(
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
    """What the panel asked the kernel to run."""
    return page.evaluate("host.gestures")


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
              const { plant, layOut } = await import('/tree.js?v=' + S.snapshot.version);
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
      const { plant, layOut } = await import('/tree.js?v=' + S.snapshot.version);
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
              const { startOf } = await import('/tree.js?v=' + S.snapshot.version);
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
    expect(stage.locator(".ctxk-undo")).to_be_disabled()


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
    expect(steps.nth(1)).to_contain_text("1 m 01 s")
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
    expect(model).to_contain_text("→ 1 m 01 s")
    out = table.locator('[data-comparison="s9.1"]')
    out.locator("summary").first.click()
    expect(out.locator("pre").first).to_have_text("R2    0.912\nN     1203\nAIC   88.1")
    stage.get_by_role("checkbox", name="only what differs").uncheck()
    expect(table.locator("tbody")).to_have_count(4)
    expect(stage.get_by_role("checkbox", name="only what differs")).to_be_focused()
    model.get_by_role("button", name="s5.2").click()
    assert stage.evaluate("host.went") == ["cell-5"]


def test_without_a_re_run_on_the_way_to_head_there_is_no_such_section(stage):
    """The tab is there when it has something to say."""
    expect(stage.locator("[data-tab=rerun]")).to_be_visible()
    move(stage, "s4.1")
    expect(stage.locator("[data-tab=rerun]")).to_be_hidden()


# ---------------------------------------------------------------- a session that can be resumed


def test_a_session_to_go_on_with_is_offered_with_what_comes_back_and_what_does_not(stage):
    """Resume is a gesture; to start fresh loses nothing and asks no more."""
    stage.evaluate("view.snapshot({...S.snapshot, resume: S.resume})")
    banner = stage.locator("[data-banner=resume]")
    expect(banner).to_contain_text("41 statements")
    expect(banner).to_contain_text("as they were after s40")
    expect(banner).to_contain_text("The state after s41 was still being written.")
    expect(banner).to_contain_text("model = fit(clean)")
    banner.get_by_role("button", name="Resume").click()
    expect(stage.locator(".ctxk-told")).to_contain_text("Resumed.")
    assert gestures(stage) == ["%ctx resume"]
    banner.get_by_role("button", name="Start fresh").click()
    stage.evaluate("view.snapshot({...S.snapshot, resume: S.resume})")
    expect(banner).to_be_hidden()


# ---------------------------------------------------------------- as it looks


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_of_going_back_is_legible(stage, theme):
    """4.5 : 1 also for what is dimmed, for the menu, the plan and the table."""
    colours = "".join(f"--jp-{name}: {value};" for name, value in {"light": LIGHT, "dark": DARK}[theme].items())
    stage.evaluate("css => document.documentElement.style.cssText = css", f"color-scheme: {theme}; {colours}")
    stage.evaluate("view.snapshot({...S.snapshot, resume: S.resume, head: 's8.1'}); host.plan = 'hard'")
    stage.locator(".ctxk-foldbutton").first.click()

    def check(what: str) -> None:
        worst = stage.locator("#host").evaluate(script("contrast"))
        assert worst[0][0] >= 4.5, (theme, what, worst[:4])

    check("the past")
    row(stage, "s4.1").locator(".ctxk-more").click()
    check("the menu")
    stage.locator(".ctxk-menuitem", has_text="Go back here").click()
    expect(stage.get_by_role("dialog")).to_be_visible()
    check("the plan")
    stage.keyboard.press("Escape")
    stage.evaluate("view.snapshot(S.snapshot)")
    stage.locator("[data-tab=rerun]").click()
    check("the table")
    stage.evaluate("document.documentElement.style.cssText = ''")


@pytest.mark.parametrize("width", [240, 300, 370, 620])
def test_nothing_sticks_out_at_any_width(stage, width):
    """JupyterLab lets the panel be as narrow as 240 pixels."""
    stage.set_viewport_size({"width": width, "height": 700})
    stage.evaluate("view.snapshot({...S.snapshot, resume: S.resume}); host.plan = 'hard'")
    choose(stage, "s4.1", "Go back here")
    expect(stage.get_by_role("dialog")).to_be_visible()
    sticking = """() => [...document.querySelectorAll('.ctxk *')]
      .filter((el) => el.checkVisibility() && !el.closest('.ctxk-sr, .ctxk-storage, .ctxk-tabs, .ctxk-go, pre'))
      .filter((el) => el.getBoundingClientRect().right > innerWidth + 1)
      .map((el) => el.className)"""
    assert stage.evaluate(sticking) == []
    stage.keyboard.press("Escape")
    stage.locator("[data-tab=rerun]").click()
    assert stage.evaluate(sticking) == []
    assert stage.evaluate("document.documentElement.scrollWidth") <= width


# ---------------------------------------------------------------- the inline widget


def test_the_inline_panel_asks_for_plans_and_shows_the_line_to_run(stage):
    """A widget cannot send execute requests, so a person does; the plan comes by the widget's own messages."""
    stage.evaluate(
        """async () => {
          const { default: widget } = await import('/inline.js');
          const el = document.getElementById('host');
          el.replaceChildren();
          const heard = {};
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


# ---------------------------------------------------------------- the notebook's side

HANDS = """async ([statuses, tagged, stopAt]) => {
  const { NotebookHands } = await import('/notebook.js?v=' + S.snapshot.version);
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
    controlMessage: (kernel, msgType, content) => ({ msgType, content })
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
