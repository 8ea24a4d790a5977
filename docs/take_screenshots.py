"""Take the screenshots of the documentation in a real JupyterLab, on the tour, with every cell run by Shift+Enter.

    python docs/take_screenshots.py [NOTEBOOK]

Needs the packages of the browser tests, and uses their server and desk. The model's answers are those from which the
turns of the tour are recorded. Writes docs/images/*.png.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from ctxkernel.testing import MessagesServer

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "tests"))  # the desk of the browser tests imports from there
IMAGES = DOCS / "images"
TOUR = DOCS.parent / "notebooks/01-tour.ipynb"
PAGE = {"width": 1440, "height": 900}
SHOWN = "table = view("
"""The statement to show: a handle on the table, below the figure."""
MARKED = (
    "import random\nrows = [3, 1, 2]",
    "total = sum(rows)\nprint('total', total)",
    "scaled = [row / total for row in rows]\nscaled",
    "luck = random.random()\nprint(round(luck, 3))",
)
"""The cells that show the marks of the notebook."""
EDIT = ("LassoCV(cv=5", "LassoCV(cv=10")
"""The edit that shows a re-run: another number of folds of the cross-validation."""
SHOT = {"animations": "disabled", "scale": "css"}


def module_at(path: Path) -> ModuleType:
    """Return a file outside all packages as a module."""
    spec = importlib.util.spec_from_file_location(f"ctxkernel_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and typing look their module up
    spec.loader.exec_module(module)
    return module


def opened(tools: ModuleType, lab: Any, browser: Browser, notebook: Path, theme: str) -> Any:
    """Return a desk with a copy of the notebook, and with its recorded turns, if any."""
    lab.configure("@jupyterlab/apputils-extension/themes", {"theme": theme})
    for path in (notebook, notebook.with_suffix(".turns.json")):
        if path.is_file():
            (lab.root / path.name).write_bytes(path.read_bytes())
    context = browser.new_context(viewport=PAGE, device_scale_factor=2)
    context.set_default_timeout(60_000)
    desk = tools.Desk(lab, context.new_page())
    desk.page.goto(lab.url(notebook.name))
    desk.settle().live()
    # Hide the file browser: the notebook needs the space.
    desk.page.keyboard.press("Control+b")
    desk.select(0)
    return desk


def sources_of(notebook: Path) -> list[tuple[str, str]]:
    """Return kind and source of each cell."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]


def enter(desk: Any, cell: int, kind: str, source: str, done: int) -> int:
    """Run the selected cell, wait until the panel shows it, and return the number of statements."""
    # Commands that only read leave no statement.
    if kind != "code" or source.startswith("%ctx"):
        desk.enter()
        return done
    if not source.startswith("%%ask"):
        desk.enter(f"s{done + 1}")
        return done + 1
    desk.enter()
    # The last line of an ask, and so the last of its statements.
    desk.cell(cell).locator(".jp-OutputArea", has_text="replayed from a recorded turn").wait_for()
    desk.page.wait_for_timeout(500)
    return int(desk.panel.get_attribute("data-last-turn").removeprefix("s"))


def take(tools: ModuleType, lab: Any, browser: Browser, notebook: Path, theme: str) -> None:
    """Run the notebook in one theme, and take its screenshots."""
    dark = theme.endswith("Dark")
    desk = opened(tools, lab, browser, notebook, theme)
    cells = sources_of(notebook)
    done = 0
    for i, (kind, source) in enumerate(cells):
        done = enter(desk, i, kind, source, done)
    desk.page.wait_for_timeout(1500)
    rows = desk.view.locator(".ctxk-row")
    rows.filter(has_text=SHOWN).or_(rows.last).first.locator(".ctxk-go").click()
    desk.page.mouse.move(600, 880)
    desk.page.wait_for_timeout(800)
    desk.page.screenshot(path=IMAGES / f"panel-{'dark' if dark else 'light'}.png", **SHOT)
    if not dark:
        for tab in ("handles", "projection"):
            desk.tab(tab)
            desk.page.mouse.move(600, 880)
            desk.page.wait_for_timeout(300)
            desk.panel.screenshot(path=IMAGES / f"{tab}.png", **SHOT)
        rerun(desk, [source for _, source in cells])
    marks(desk, dark)
    desk.page.context.close()
    lab.forget()


def ask(tools: ModuleType, lab: Any, browser: Browser, notebook: Path) -> None:
    """Run the notebook up to its first ask, and take a screenshot of the waiting cell and the panel."""
    desk = opened(tools, lab, browser, notebook, "JupyterLab Light")
    cells = sources_of(notebook)
    at = next(i for i, (_, source) in enumerate(cells) if source.startswith("%%ask"))
    done = 0
    for i, (kind, source) in enumerate(cells[:at]):
        done = enter(desk, i, kind, source, done)
    desk.enter()
    card = desk.cell(at).locator(".ctxk-card-of-model[data-state=waits]")
    card.get_by_role("button", name="Send", exact=True).click()
    card.get_by_role("button", name="Run", exact=True).wait_for()
    desk.page.wait_for_timeout(1500)
    # The question above is part of the screenshot.
    desk.cell(at - 1).evaluate("el => el.scrollIntoView({ block: 'start' })")
    desk.page.mouse.move(600, 880)
    desk.page.wait_for_timeout(800)
    desk.page.screenshot(path=IMAGES / "asking.png", **SHOT)
    desk.page.context.close()
    lab.forget()


def in_output(tools: ModuleType, lab: Any, browser: Browser, notebook: Path) -> None:
    """Run the notebook up to its first handle, reduce its budget, and take a screenshot of the cell."""
    desk = opened(tools, lab, browser, notebook, "JupyterLab Light")
    cells = sources_of(notebook)
    at = next(i for i, (_, source) in enumerate(cells) if SHOWN in source)
    done = 0
    for i, (kind, source) in enumerate(cells[: at + 1]):
        done = enter(desk, i, kind, source, done)
    desk.select(at)
    slider = desk.cell(at).get_by_role("slider", name="Budget")
    slider.focus()
    for _ in range(6):
        desk.page.keyboard.press("ArrowLeft")
    desk.page.wait_for_selector(f"#ctxkernel-panel[data-last-turn=s{done + 1}]")
    slider.blur()
    desk.page.mouse.move(600, 880)
    desk.page.wait_for_timeout(800)
    desk.cell(at).locator(".jp-Cell-outputArea").screenshot(path=IMAGES / "live.png", **SHOT)
    desk.page.context.close()
    lab.forget()


def rerun(desk: Any, sources: list[str]) -> None:
    """Edit the cell with the model and re-run from it: screenshots of the plan, the branch and the differences."""
    place = next(i for i, source in enumerate(sources) if EDIT[0] in source)
    desk.tab("timeline")
    # The cell may be outside the screen: its row scrolls to it.
    desk.view.locator(".ctxk-row", has_text=sources[place].partition("\n")[0]).locator(".ctxk-go").click()
    desk.select(place)
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Control+a")
    desk.page.keyboard.insert_text(sources[place].replace(*EDIT))
    desk.page.keyboard.press("Escape")
    desk.command("Re-run from here")
    desk.view.locator(".ctxk-primary").wait_for()
    desk.page.wait_for_timeout(500)
    desk.panel.screenshot(path=IMAGES / "plan.png", **SHOT)
    desk.view.locator(".ctxk-primary").click()
    desk.view.locator(".ctxk-told", has_text="came out differently").wait_for()
    desk.page.mouse.move(600, 880)
    desk.page.wait_for_timeout(500)
    desk.panel.screenshot(path=IMAGES / "branches.png", **SHOT)
    desk.view.locator(".ctxk-told button", has_text="Show").click()
    desk.page.wait_for_timeout(500)
    desk.page.screenshot(path=IMAGES / "rerun.png", **SHOT)


def marks(desk: Any, dark: bool) -> None:
    """Run a small notebook, change it, and go back: screenshots of the marks, and of the cells as they were."""
    desk.open("marks.ipynb", MARKED).live()
    desk.select(0)
    for n in range(len(MARKED)):
        desk.enter(f"s{n + 1}")
    for cell, text, statement in ((1, "total = 10 * sum(rows)\nprint('total', total)", "s5"), (2, "scaled = 0", "")):
        desk.select(cell)
        desk.page.keyboard.press("Enter")
        desk.page.keyboard.press("Control+a")
        desk.page.keyboard.insert_text(text)
        if statement:
            desk.enter(statement)
    desk.page.keyboard.press("Escape")
    desk.row("s3").last.locator(".ctxk-more").click()
    desk.view.locator(".ctxk-menuitem", has_text="Go back here").click()
    desk.page.locator(".ctxk-offer").wait_for()
    desk.page.mouse.move(600, 880)
    desk.page.wait_for_timeout(800)
    desk.page.screenshot(path=IMAGES / f"marks-{'dark' if dark else 'light'}.png", **SHOT)
    if not dark:
        desk.page.locator(".ctxk-offer button").first.click()
        desk.page.wait_for_timeout(500)
        desk.page.get_by_role("dialog").screenshot(path=IMAGES / "cells.png", **SHOT)
        desk.page.keyboard.press("Escape")


@contextlib.contextmanager
def served(tools: ModuleType, folder: Path, env: dict[str, str]) -> Iterator[Any]:
    """Start a JupyterLab whose kernels have these variables."""
    folder.mkdir()
    lab = tools.Lab(folder, env)
    lab.start()
    try:
        yield lab
    finally:
        lab.stop()


def main() -> None:
    """Start the server and the browser, and take all screenshots, those of the notebook in both themes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", nargs="?", type=Path, default=TOUR)
    notebook = parser.parse_args().notebook
    tools = module_at(DOCS.parent / "tests/browser/conftest.py")
    answers = module_at(DOCS / "record_asking.py").ANSWERS
    path = tools.chromium_path()
    if path is None:
        raise SystemExit(tools.NO_BROWSER)
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        sync_playwright() as playwright,
        MessagesServer(answers[TOUR.stem]) as model,
    ):
        browser = playwright.chromium.launch(executable_path=path, args=tools.FLAGS)
        # The same screenshots also with a key in the environment.
        with served(tools, Path(folder) / "recorded", {"CTXKERNEL_ANSWERS": "recorded"}) as lab:
            for theme in ("JupyterLab Light", "JupyterLab Dark"):
                take(tools, lab, browser, notebook, theme)
            in_output(tools, lab, browser, notebook)
        live = {"ANTHROPIC_BASE_URL": model.base_url, "ANTHROPIC_API_KEY": "any"}
        with served(tools, Path(folder) / "live", live) as lab:
            ask(tools, lab, browser, TOUR)
        browser.close()
    for image in sorted(IMAGES.glob("*.png")):
        print(image.relative_to(DOCS.parent), f"{image.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
