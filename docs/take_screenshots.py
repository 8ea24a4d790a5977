"""Take the pictures of the documentation from the real thing: JupyterLab on the tour, every cell run by Shift+Enter.

    python docs/take_screenshots.py [NOTEBOOK]

Needs what the browser tests need, whose server and desk it uses. Writes docs/images/*.png.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from playwright.sync_api import Browser, sync_playwright

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "images"
TOUR = DOCS.parent / "notebooks/01-tour.ipynb"
PAGE = {"width": 1440, "height": 900}
SHOWN = 5
EDIT = ("LassoCV(cv=5", "LassoCV(cv=10")
"""What is changed in the tour's model to show a re-run: other folds of the cross-validation."""
SHOT = {"animations": "disabled", "scale": "css"}


def desk_module() -> ModuleType:
    """Return the browser tests' conftest, where the server and the desk are."""
    path = DOCS.parent / "tests/browser/conftest.py"
    spec = importlib.util.spec_from_file_location("ctxkernel_browser_desk", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and typing look their module up
    spec.loader.exec_module(module)
    return module


def take(tools: ModuleType, lab: object, browser: Browser, notebook: Path, theme: str) -> None:
    """Run the notebook in one theme, and take its pictures."""
    dark = theme.endswith("Dark")
    lab.configure("@jupyterlab/apputils-extension/themes", {"theme": theme})
    (lab.root / notebook.name).write_bytes(notebook.read_bytes())
    context = browser.new_context(viewport=PAGE, device_scale_factor=2)
    context.set_default_timeout(60_000)
    desk = tools.Desk(lab, context.new_page())
    desk.page.goto(lab.url(notebook.name))
    desk.settle().live()
    # The file browser says nothing here; the room is the notebook's.
    desk.page.keyboard.press("Control+b")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    desk.select(0)
    done = 0
    for i, cell in enumerate(cells):
        source = "".join(cell["source"])
        # Commands that only read leave no statement.
        counts = cell["cell_type"] == "code" and not source.lstrip().startswith("%ctx")
        done += counts
        desk.enter(f"s{done}" if counts else "")
        if i == len(cells) - 1:
            desk.page.wait_for_timeout(1500)
    # A look that has something to see: a handle on the table, under the figure.
    desk.row(f"s{min(done, SHOWN)}").locator(".ctxk-go").click()
    desk.page.mouse.move(600, 880)
    desk.page.wait_for_timeout(800)
    desk.page.screenshot(path=IMAGES / f"panel-{'dark' if dark else 'light'}.png", **SHOT)
    if not dark:
        for tab in ("handles", "projection"):
            desk.tab(tab)
            desk.page.mouse.move(600, 880)
            desk.page.wait_for_timeout(300)
            desk.panel.screenshot(path=IMAGES / f"{tab}.png", **SHOT)
        rerun(desk, ["".join(cell["source"]) for cell in cells])
    context.close()
    lab.forget()


def rerun(desk: Any, sources: list[str]) -> None:
    """Change the cell with the model and re-run from there: pictures of the plan, the branch and what differs."""
    place = next(i for i, source in enumerate(sources) if EDIT[0] in source)
    desk.tab("timeline")
    # The cell may be far off the screen: its row knows the way.
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


def main() -> None:
    """Start server and browser, and take the pictures in both themes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", nargs="?", type=Path, default=TOUR)
    notebook = parser.parse_args().notebook
    tools = desk_module()
    path = tools.chromium_path()
    if path is None:
        raise SystemExit(tools.NO_BROWSER)
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, sync_playwright() as playwright:
        lab = tools.Lab(Path(folder))
        lab.start()
        browser = playwright.chromium.launch(executable_path=path, args=tools.FLAGS)
        try:
            for theme in ("JupyterLab Light", "JupyterLab Dark"):
                take(tools, lab, browser, notebook, theme)
        finally:
            browser.close()
            lab.stop()
    for image in sorted(IMAGES.glob("*.png")):
        print(image.relative_to(DOCS.parent), f"{image.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
