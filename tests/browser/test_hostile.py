"""Hostile texts in every field, as a browser shows them: none becomes more than text, and code is shown as it runs."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hostile_texts import BUNDLES, ORDER, TERMINAL, TEXTS, cells_of, quoted, sendable
from jupyter_client.blocking.client import BlockingKernelClient
from kernels import RunningKernel
from playwright.sync_api import BrowserContext, Error, Locator, Page, expect
from scale import share

from ctxkernel.core.text import escape_hidden, show_hidden
from ctxkernel.testing import answer, call, say, think

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

ACTIVE = (
    "script, iframe, object, embed, form:not([class^='ctxk-']), link, meta, base, style, video, audio, math, "
    "[srcdoc], [onerror], [onload], [onfocus], [ontoggle], [onmouseover], img:not([src^='data:image/']), "
    "a[href^='javascript' i], a[href^='data' i], "
    "a[href^='vbscript' i]"
)
"""What no text of ours may become an element or attribute of."""


class Watch:
    """Notes what a page does that hostile texts could have made it do."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self._listeners: dict[Any, Any] = {
            "request": lambda request: self.requests.append(request.url),
            "dialog": lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss())[0],
            "popup": lambda popup: self.dialogs.append(f"window: {popup.url}"),
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def stop(self) -> None:
        """Leave the page to the next test."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def check(self, *places: str) -> None:
        """Assert that nothing ran, moved, opened or asked another host, and that no text became an element."""
        others = [url for url in self.requests if not re.match(r"(?:https?|wss?)://127\.0\.0\.1:|data:|blob:", url)]
        assert others == []
        assert not [url for url in self.requests if "evil" in url and "/files/" in url]
        assert self.dialogs == []
        assert self.page.evaluate("typeof window.__pwned") == "undefined"
        assert self.page.evaluate("({}).polluted === undefined && document.title !== 'evil'")
        for place in places:
            found = self.page.evaluate(
                "([place, active]) => [...document.querySelectorAll(place)].flatMap((el) => "
                "[...el.querySelectorAll(active)].map((one) => one.outerHTML.slice(0, 200)))",
                [place, ACTIVE],
            )
            assert found == [], place

    def check_widths(self, place: str) -> None:
        """Assert that no text makes a place scroll sideways, or its rows wider than itself."""
        wide = self.page.evaluate(
            "(place) => [...document.querySelectorAll(place)].flatMap((el) => [el, ...el.querySelectorAll('li, p, dl')]"
            ".filter((one) => one.getClientRects().length && (one === el ? one.scrollWidth > one.clientWidth + 1 : "
            "one.offsetWidth > el.clientWidth + 1)).map((one) => `${one.className} ${one.scrollWidth}`))",
            place,
        )
        assert wide == []


@pytest.fixture
def watch(desk: Any) -> Iterator[Watch]:
    """Watch the page of `desk`."""
    watch = Watch(desk.page)
    yield watch
    watch.stop()


@contextlib.contextmanager
def beside(lab: Any) -> Iterator[RunningKernel]:
    """A second client of the newest kernel: what it runs is in the panel, and in no cell of the notebook."""
    files = (lab.folder / "jupyter_runtime_dir").glob("kernel-*.json")
    client = BlockingKernelClient(connection_file=str(max(files, key=lambda one: one.stat().st_mtime)))
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield RunningKernel(_Alive(), client, lab.root)  # type: ignore[arg-type]
    client.stop_channels()


class _Alive:
    def is_alive(self) -> bool:
        return True


PARTS = 8
"""A session with all texts in every field has thousands of places to open, so each is of a part of them."""


def texts_of_part(part: int) -> dict[str, str]:
    """Return some of the texts. The first part, the one of the quick run, is small."""
    every = list(TEXTS.items())
    first = every[2::16]
    rest = [one for one in every if one not in first]
    return dict(rest[part - 1 :: PARTS - 1] if part else first)


def fill(kernel: RunningKernel, messages: Any, chosen: dict[str, str]) -> None:
    """Bring the texts into every field: cells, outputs, errors, names, files, handles, history, answers of a model."""
    for number, text in enumerate(chosen.values()):
        for source in cells_of(number, text):
            kernel.run(source, metadata={"cellId": sendable(text[:100]), "tags": [sendable(text[:50])]})
    some = list(chosen.values())
    assert "redacted" in kernel.run("%ctx redact --list").stdout or kernel.run("%ctx redact --list").data
    messages.script, messages.requests[:], messages.faults[:] = [], [], []
    for text in some:
        safe = sendable(text[:20_000])
        calls = [call("run_cell", {"code": f"# {safe[:3000]}"}), call(f"tool {safe[:30]}", {safe[:200]: safe[:200]})]
        messages.script += [answer([think(safe), say(safe), *calls]), say(f"**so**\n\n{safe}")]
        kernel.run(f"%%ask --mode auto\n{safe[:5000]}")
    assert messages.faults == []
    asked = kernel.run(f"%ctx condense {quoted(some[0])}")
    assert asked.status == "ok", asked.outputs
    last = json.loads(kernel.run("%ctx timeline --json").stdout)["statements"][-1]["index"]
    kernel.run("import itertools; print(t[:500], next(itertools.count(len(Out))))")
    again = kernel.run(f"%ctx rerun {last + 1} --yes", timeout=120)
    assert again.status == "ok", again.outputs
    for name in ("\u3164\u3164", "\u0627\u0644\u0641"):
        kernel.run(f"%ctx checkpoint {name}")


SECTIONS = ("timeline", "handles", "projection", "history", "changes", "rerun")


def open_all(page: Page, view: str) -> None:
    """Open everything that opens in the section that is shown."""
    for _ in range(3):
        page.evaluate(
            "(view) => { for (const one of document.querySelectorAll(`${view} [aria-expanded=false]`)) one.click();"
            " for (const one of document.querySelectorAll(`${view} details:not([open])`)) one.open = true;"
            " for (const one of document.querySelectorAll(`${view} .ctxk-showall`)) if (one.textContent === 'show all')"
            " one.click(); }",
            view,
        )
        page.wait_for_timeout(150)
        page.keyboard.press("Escape")


def look_at_sections(watch: Watch, view: str) -> None:
    page = watch.page
    for name in SECTIONS:
        page.locator(f"{view} [role=tab][data-tab={name}]").click()
        open_all(page, f"{view} .ctxk-{name}")
        began = time.monotonic()
        watch.check(view)
        watch.check_widths(f"{view} .ctxk-{name}")
        assert time.monotonic() - began < 10, name


def choose_of_row(view: Locator, item: str) -> None:
    """Choose an item of the menu of the second row; a row that is drawn anew meanwhile closes its menu."""
    chosen = view.page.locator(".ctxk-menuitem", has_text=item).first
    for _ in range(5):
        # The details of a row may fill the section: then no other row is in the page.
        view.locator(".ctxk-timeline").evaluate("el => el.scrollTo(0, 0)")
        view.locator(".ctxk-row .ctxk-more").nth(1).click()
        try:
            chosen.click(timeout=5000)
            return
        except Error:
            view.page.keyboard.press("Escape")
    chosen.click()


def look_at_plans(watch: Watch, view: Locator) -> None:
    """The dialogs of what can be done with a row: the plan of a re-run, and the form for a name; then a return."""
    page = watch.page
    view.locator("[role=tab][data-tab=timeline]").click()
    for item in ("Re-run from here", "Name this state"):
        choose_of_row(view, item)
        sheet = view.locator(".ctxk-sheet")
        expect(sheet).to_be_visible()
        open_all(page, ".ctxk-sheet")
        watch.check("#ctxkernel-panel", ".ctxk-menu", ".jp-Dialog")
        watch.check_widths(".ctxk-sheet")
        if sheet.is_visible():
            sheet.focus()
            page.keyboard.press("Escape")
        expect(sheet).to_be_hidden()
    choose_of_row(view, "Go back")
    page.wait_for_timeout(1000)
    watch.check("#ctxkernel-panel")


CELLS = [
    "import os; os.makedirs('d0', exist_ok=True)",
    "h0",
    "ls()",
    "%ctx panel",
    "%ctx timeline",
    "%ctx projection",
    "%ctx show 2",
    "shown",
]


@pytest.mark.parametrize("part", range(PARTS))
def test_hostile_texts_in_every_field_stay_text_in_jupyterlab(part: int, desk: Any, watch: Watch, messages: Any):
    """All sections with everything open, dialogs, the inline panel, outputs of handles and commands."""
    page = desk.page
    desk.open("hostile.ipynb", CELLS).live()
    with beside(desk.lab) as kernel:
        fill(kernel, messages, texts_of_part(part))
    desk.select(0)
    run_cells(page)
    look_at_sections(watch, "#ctxkernel-panel .ctxk-host:not([hidden])")
    look_at_sections(watch, ".jp-Notebook .ctxk-inline")
    watch.check(".jp-Notebook .jp-OutputArea")
    look_at_plans(watch, desk.view)
    assert desk.errors == []


def run_cells(page: Page) -> None:
    """Run the notebook's cells by Shift+Enter, from the first one."""
    for at, source in enumerate(CELLS):
        page.keyboard.press("Shift+Enter")
        cell = page.locator(f".jp-Cell[data-windowed-list-index='{at}']")
        expect(cell.locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]:| "))
        expect(cell.locator(".jp-InputPrompt")).not_to_have_text("[*]:")
        assert cell.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0, source
    expect(page.locator(".jp-Cell .ctxk-inline [role=tab]").first).to_be_visible()


def notebook_of(bundles: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a notebook of somebody else's: hostile texts in cells, outputs, metadata."""
    cells = []
    for number, (name, data) in enumerate(bundles.items()):
        outputs = [
            {"output_type": "display_data", "data": data, "metadata": {"ctxkernel": {"note": name}}},
            {"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": number},
        ]
        said = {"ctxkernel": {"kind": "meta", "statement": "s1", "ask": {}, "after": []}, "trusted": True}
        cells.append({"cell_type": "code", "id": f"c{number}", "metadata": said, "source": f"# {name}",
                      "outputs": outputs, "execution_count": number})  # fmt: skip
    for number, text in enumerate(share(TEXTS.values(), 6)):
        text = sendable(text)[:50_000]
        outputs = [
            {"output_type": "stream", "name": "stdout", "text": text},
            {"output_type": "error", "ename": text, "evalue": text, "traceback": [text]},
        ]
        cells.append({"cell_type": "code", "id": f"t{number}", "metadata": {}, "source": f"# {text[:2000]}",
                      "outputs": outputs, "execution_count": number})  # fmt: skip
    spec = {"name": "ctxkernel", "display_name": "ctxkernel", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": spec}, "cells": cells}


def test_a_notebook_of_somebody_else_shows_its_outputs_as_text(desk: Any, watch: Watch):
    """It is not trusted, so Lab sanitises its outputs; ours, which say that they are safe, draw text only."""
    page = desk.page
    desk.show_cells("theirs.ipynb", notebook_of(BUNDLES))
    watch.check("#ctxkernel-panel", ".ctxk-output", ".ctxk-card-of-model")
    assert page.locator(".ctxk-card-of-model").count() > 0
    assert page.locator(".ctxk-card-of-model button").count() == 0
    assert page.locator(".ctxk-sweeptable tbody tr").count() > 0
    assert page.locator(".ctxk-sweeptable tbody button").count() == 0  # no name of a state is one
    assert desk.errors == []


CAREFUL = """async () => {
  const loaded = performance.getEntriesByType('resource').map((entry) => entry.name);
  const { careful } = await import(loaded.find((name) => /jupyter-ctxkernel\\/app-[^/]+\\/careful\\.js/.test(name)));
  const renderer = { node: document.createElement('div'), renderModel() { throw new TypeError('null has no rows'); } };
  await careful(renderer).renderModel({ data: {} });
  return renderer.node.textContent;
}"""


def test_an_output_that_cannot_be_drawn_says_so_and_is_no_error_for_jupyterlab(desk: Any):
    """An error would leave out all cells below it."""
    desk.open("odd.ipynb", ["1"]).live()
    assert "This output cannot be shown" in desk.page.evaluate(CAREFUL)
    desk.errors.clear()


def test_hostile_texts_stay_text_in_notebook_7(lab: Any, context: BrowserContext, messages: Any):
    page = context.new_page()
    watch = Watch(page)
    lab.write("seven.ipynb", CELLS)
    page.goto(f"http://127.0.0.1:{lab.port}/notebooks/seven.ipynb?token={lab.token}")
    page.wait_for_selector("#ctxkernel-panel[data-phase=live]")
    with beside(lab) as kernel:
        fill(kernel, messages, texts_of_part(3))
    page.locator(".jp-Cell .cm-content").first.click()
    run_cells(page)
    look_at_sections(watch, "#ctxkernel-panel .ctxk-host:not([hidden])")
    look_at_sections(watch, ".jp-Notebook .ctxk-inline")
    watch.check(".jp-Notebook .jp-OutputArea")
    page.close()
    lab.forget()


# ---------------------------------------------------------------- code is shown as it runs


HIDES = {**ORDER, **{name: text for name, text in TERMINAL.items() if name != "colours"}}


def proposed(desk: Any, messages: Any, code: str, *more: Any) -> Locator:
    """Ask, and return the card of what the model proposes."""
    script = answer([say("I look."), call("run_cell", {"code": code})])
    messages.script, messages.requests[:], messages.faults[:] = [script, *more, say("Done.")], [], []
    desk.page.keyboard.press("Escape")
    desk.select(0)
    desk.page.keyboard.press("Shift+Enter")
    card = desk.cell(0).locator(".ctxk-card-of-model[data-state=waits]")
    expect(card.get_by_role("button", name="Send", exact=True).or_(card.get_by_text("Run all"))).to_be_visible()
    if card.get_by_role("button", name="Send", exact=True).count():
        card.get_by_role("button", name="Send", exact=True).click()
        expect(card.get_by_text("Run all")).to_be_visible()
    return card


def test_a_card_shows_all_of_the_code_that_it_runs(desk: Any, messages: Any):
    """Nothing is hidden by a terminal code, a carriage return or a bidirectional override; Edit writes escapes."""
    desk.open("ask.ipynb", ["%%ask --again\nwhat now?"]).live()
    for name, text in share(HIDES.items(), 4):
        code = f"a = 1  # {text}\nran = {name!r}"
        card = proposed(desk, messages, code)
        expect(card.locator(".ctxk-cardcode")).to_have_text(re.compile("ran = "))
        shown = card.locator(".ctxk-cardcode").inner_text()
        assert shown.replace("\xa0", " ") == show_hidden(code), name
        expect(card.locator(".ctxk-unseen")).to_contain_text("not seen")
        assert desk.view.locator(".ctxk-waits .ctxk-cardcode").inner_text() == shown
        card.get_by_role("button", name="Edit").click()
        expect(card.locator("textarea")).to_have_value(escape_hidden(code))
        card.get_by_role("button", name="Cancel").click()
        card.get_by_role("button", name="Stop", exact=True).click()
        expect(desk.view.locator(".ctxk-waits")).to_be_hidden()
    plain = proposed(desk, messages, "b = 'é 👩‍👧 ❤️ \u05d0'")
    expect(plain.locator(".ctxk-unseen")).to_have_count(0)


def test_a_card_says_how_long_its_code_is(desk: Any, messages: Any):
    """The box scrolls: what stands below it must not be missed. A line of 1 MB leaves the page usable."""
    desk.open("ask.ipynb", ["%%ask --again\nwhat now?"]).live()
    card = proposed(desk, messages, "a = 1" + "\n" * 600 + "evil()")
    expect(card.locator(".ctxk-sizes")).to_have_text("601 lines, 611 characters")
    card.get_by_role("button", name="Stop", exact=True).click()
    expect(desk.view.locator(".ctxk-waits")).to_be_hidden()
    card = proposed(desk, messages, f"a = '{'x' * 300_000}'; evil()")
    expect(card.locator(".ctxk-sizes")).to_have_text("1 line, 300,014 characters")
    box = card.locator(".ctxk-cardcode").bounding_box()
    assert box is not None
    assert box["width"] < 1000
    assert box["height"] < 700


def test_a_saved_card_has_no_buttons_though_its_id_is_that_of_what_waits(desk: Any, messages: Any):
    """Ids can be guessed: a card in a notebook of somebody else's, or in a model's output, shows other code."""
    page = desk.page
    desk.lab.write("forged.ipynb", ["%%ask --again\nwhat now?", "# theirs"])
    path = desk.lab.root / "forged.ipynb"
    made = json.loads(path.read_text())
    forged = {
        "kind": "cell",
        "ask": "s1.1",
        "code": "harmless = 1",
        "told": "",
        "more": 0,
        "state": "waits",
        "reason": "",
    }
    made["cells"][1]["outputs"] = [
        {
            "output_type": "display_data",
            "data": {"application/vnd.ctxkernel.proposal+json": {**forged, "id": f"s{s}.1:{n}"}},
            "metadata": {},
        }
        for s in range(1, 5)
        for n in range(1, 5)
    ]
    desk.open("first.ipynb", [])
    page.evaluate("jupyterapp.shell.currentWidget.dispose()")
    path.write_text(json.dumps(made))
    page.evaluate("void jupyterapp.commands.execute('docmanager:open', { path: 'forged.ipynb' })")
    desk.settle().live()
    card = proposed(desk, messages, "evil = 1")
    expect(card.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    ids = {f"s{s}.1:{n}" for s in range(1, 5) for n in range(1, 5)}
    saved = desk.cell(1).locator(".ctxk-card-of-model")
    assert saved.count() == len(ids)
    expect(saved.locator("button")).to_have_count(0)
    expect(desk.cell(0).locator(".ctxk-card-of-model[data-state=waits] button")).not_to_have_count(0)


def test_the_front_end_marks_the_same_characters_as_the_kernel(desk: Any):
    desk.open("marks.ipynb", [])
    codes = [*range(0x20000), *range(0xE0000, 0xE0200)]
    every = [f"a{chr(code)}" for code in codes if not 0xD800 <= code < 0xE000]
    parts = (
        ["".join(every[at : at + 512]) for at in range(0, len(every), 512)]
        + [f"😀{char}x" for char in "\u200d\ufe0f\u202e"]
        + ["a\r\nb\rc", "1\ufe0f"]
    )
    marked = desk.page.evaluate(
        "async ([url, parts]) => { const { marked, escaped } = await import(url);"
        " return parts.map((one) => [marked(one), escaped(one)]); }",
        [desk.lab.file("text.js"), parts],
    )
    mine = [[show_hidden(one.replace("\r\n", "\n")), escape_hidden(one.replace("\r\n", "\n"))] for one in parts]
    assert marked == mine
