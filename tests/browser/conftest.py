"""A real JupyterLab and a real headless Chromium, driven through the keyboard.

Rule 1: no browser is a failure, never a skip: a green run means that the panel was seen.
Rule 2: the server reads nothing of the person who runs it: settings, workspaces, sessions are in a temporary folder.
Rule 3: what is tested is this source tree, or where ctxkernel is installed elsewhere, what is installed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ipykernel.kernelspec import get_kernel_dict
from playwright.sync_api import BrowserContext, Error, Locator, Page, expect, sync_playwright

import ctxkernel
from ctxkernel.testing import MessagesServer

HERE, ROOT = Path(__file__).resolve().parents[1:3]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
# Two cores may be shared with others: a kernel's start alone can take ten seconds there.
expect.set_options(timeout=20_000)
LAB_PYTHON = os.environ.get("TESTED_LAB") or sys.executable
"""The Python whose JupyterLab is tested; `tests/front_ends.py` names one with another version."""
LAB_VERSION = os.environ.get("TESTED_VERSION")
"""The version that pages must say they have; a test of the wrong one would prove nothing."""
NOTEBOOK_7 = os.environ.get("TESTED_NOTEBOOK") == "7"
"""Whether notebooks are opened in the pages of Notebook 7."""
PAGE_CONFIG = {
    "buildAvailable": False,
    "buildCheck": False,
    "disabledExtensions": {"@jupyterlab/extensionmanager-extension": True},
}
"""Without these, each page starts Node.js two times and lists the packages that could be installed."""
NO_BROWSER = (
    "No Chromium was found, and none could be fetched. Install one (Debian: apt install chromium), "
    "or name one: CTXKERNEL_CHROMIUM=/path/to/chromium"
)


# ---------------------------------------------------------------- what is tested


def jupyter_path(folder: Path, python: str) -> Path | None:
    """Return a folder with this tree's kernelspec and labextension; None where ctxkernel is properly installed.

    Data files of an editable install are copies: without this, edits of the panel would not be tested.
    Where JupyterLab is of another environment (`python`), the kernels stay those of this one.
    """
    here = Path(ctxkernel.__file__).resolve()
    if here.is_relative_to(ROOT) or python != sys.executable:
        write_spec(folder / "kernels/ctxkernel", ROOT / "kernelspec/kernel.json", python)
        if python != sys.executable:
            write_spec(folder / "kernels/python3", None, python)
        lay_out = runpy.run_path(str(ROOT / "hatch_build.py"))["lay_out"]
        lay_out(here.parent / "lab", folder / "labextensions/jupyter-ctxkernel", ctxkernel.__version__)
        return folder
    share = Path(sys.prefix) / "share/jupyter"
    for below in ("kernels/ctxkernel/kernel.json", "labextensions/jupyter-ctxkernel/package.json"):
        if not (share / below).is_file():
            pytest.fail(f"{share / below} is missing: install ctxkernel into this environment (pip install .)")
    return None


def write_spec(folder: Path, source: Path | None, python: str) -> None:
    """Write a kernelspec; JupyterLab of another environment is told which Python runs the kernel."""
    spec = json.loads(source.read_text("utf-8")) if source else get_kernel_dict()
    if python != sys.executable:
        spec["argv"][0] = sys.executable
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(spec), "utf-8")


# ---------------------------------------------------------------- the server


class Lab:
    """A running JupyterLab: where it is, and the folder that it shows."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None, python: str = LAB_PYTHON) -> None:
        self.folder = folder
        self.env = env or {}
        self.python = python
        self.root = folder / "work"
        self.settings = folder / "settings"
        self.token = secrets.token_hex(16)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start on a free port. Another process may take the port in between: then once more, on another."""
        self.root.mkdir()
        self.configure("@jupyterlab/apputils-extension/notification", {"fetchNews": "false", "checkForUpdates": False})
        env = {**os.environ, **self.env, "JUPYTERLAB_SETTINGS_DIR": str(self.settings)}
        for name in (
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "JUPYTER_RUNTIME_DIR",
            "IPYTHONDIR",
            "JUPYTERLAB_WORKSPACES_DIR",
        ):
            env[name] = str(self.folder / name.lower())
        config = Path(env["JUPYTER_CONFIG_DIR"])
        (config / "labconfig").mkdir(parents=True)
        (config / "labconfig/page_config.json").write_text(json.dumps(PAGE_CONFIG), "utf-8")
        if self.python == sys.executable:  # the server reads this file when it starts
            lines = ["import sys", f"sys.path.append({str(HERE)!r})", "import warm", "warm.warm_all()"]
            (config / "jupyter_server_config.py").write_text("\n".join(lines), "utf-8")
        tree = jupyter_path(self.folder / "tree", self.python)
        if tree:
            env["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(tree), env.get("JUPYTER_PATH")]))
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
        for _ in range(3):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            with (self.folder / "server.log").open("wb") as log:
                self.process = subprocess.Popen(
                    self.command(), env=env, cwd=self.root, stdout=log, stderr=subprocess.STDOUT
                )
            if self.answers():
                return
            self.stop()
        pytest.fail(f"JupyterLab did not start:\n{(self.folder / 'server.log').read_text(errors='replace')[-4000:]}")

    def command(self) -> list[str]:
        """Return the server's command line."""
        return [
            self.python,
            *("-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={self.port}"),
            *(
                "--ServerApp.port_retries=0",
                f"--IdentityProvider.token={self.token}",
                f"--ServerApp.root_dir={self.root}",
                "--LabApp.expose_app_in_browser=True",
                "--JupyterNotebookApp.expose_app_in_browser=True",
            ),
        ]

    def answers(self) -> bool:
        """Wait until the server answers; False where it ended instead."""
        assert self.process
        until = time.monotonic() + 90
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.ask("GET", "api/status")
                return True
            time.sleep(0.1)
        return False

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        """Call the server's REST API."""
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data, method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def url(self, name: str, workspace: str = "") -> str:
        """Return the address of a notebook; `reset` forgets which documents were open."""
        below = f"lab/workspaces/{workspace}/tree" if workspace else "lab/tree"
        return f"http://127.0.0.1:{self.port}/{below}/{name}?token={self.token}&reset"

    def notebook_url(self, name: str) -> str:
        """Return the address of a notebook in Notebook 7."""
        return f"http://127.0.0.1:{self.port}/notebooks/{name}?token={self.token}"

    def file(self, name: str) -> str:
        """Return the address of one of the panel's own files, as Lab serves it."""
        below = f"jupyter-ctxkernel/app-{ctxkernel.__version__}"
        return f"http://127.0.0.1:{self.port}/lab/extensions/{below}/{name}?token={self.token}"

    def configure(self, plugin: str, settings: dict[str, Any] | None) -> None:
        """Write the user's settings of a plugin; None removes them."""
        path = self.settings / f"{plugin}.jupyterlab-settings"
        if settings is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(settings))

    def write(self, name: str, cells: Sequence[str], kernel: str = "ctxkernel") -> None:
        """Write a notebook; a cell that starts with `#md ` is Markdown."""
        made = [
            {"cell_type": "markdown", "id": f"cell-{i}", "metadata": {}, "source": source[4:]}
            if source.startswith("#md ")
            else {
                "cell_type": "code",
                "id": f"cell-{i}",
                "metadata": {},
                "source": source,
                "outputs": [],
                "execution_count": None,
            }
            for i, source in enumerate(cells)
        ]
        spec = {"name": kernel, "display_name": kernel, "language": "python"}
        (self.root / name).write_text(
            json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": spec}, "cells": made})
        )

    def forget(self) -> None:
        """End all kernels; drop what a test wrote and set. A session left behind would count on where it ended."""
        for session in self.ask("GET", "api/sessions"):
            with contextlib.suppress(urllib.error.HTTPError):
                self.ask("DELETE", f"api/sessions/{session['id']}")
        for path in self.root.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        self.configure("jupyter-ctxkernel/plugin", None)
        self.configure("@jupyterlab/apputils-extension/themes", None)

    def stop(self) -> None:
        """End the server, and with it its kernels."""
        if not self.process:
            return
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="package")
def messages() -> Iterator[MessagesServer]:
    """What kernels take for the model's server. A test gives it a script."""
    with MessagesServer() as server:
        yield server


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory, messages: MessagesServer) -> Iterator[Lab]:
    """One JupyterLab for all browser tests."""
    env = {"ANTHROPIC_BASE_URL": messages.base_url, "ANTHROPIC_API_KEY": "test"}
    server = Lab(tmp_path_factory.mktemp("lab"), env)
    server.start()
    yield server
    server.stop()


# ---------------------------------------------------------------- the browser


def chromium_path() -> str | None:
    """Return a Chromium on this machine: named by hand, the system's, or one that Playwright fetched before."""
    from ctxkernel.cli.chromium import find_chromium

    return find_chromium()


@pytest.fixture(scope="package")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """A headless Chromium with one profile on disk: JupyterLab's 15 MB of scripts come compiled from its cache.

    Fetched once through Playwright where there is none. For this folder, not for the session: while Playwright is
    there, its event loop runs in this thread, and `asyncio.run` of a test that comes later would fail.
    """
    path = chromium_path()
    if path is None:
        fetch = [sys.executable, "-m", "playwright", "install", "chromium"]
        done = subprocess.run(fetch, capture_output=True, text=True, check=False, timeout=280)
        if done.returncode:
            pytest.fail(f"{NO_BROWSER}\n{done.stderr[-2000:]}")
        path = chromium_path()
    if path is None:
        pytest.fail(NO_BROWSER)
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=path,
            args=FLAGS,
            viewport={"width": 1400, "height": 860},
        )
        context.set_default_timeout(60_000)
        yield context
        context.close()


class Desk:
    """A page with a notebook and the panel beside it, and the moves of a person who sits there."""

    status_bar = True

    def __init__(self, lab: Lab, page: Page, workspace: str = "") -> None:
        self.lab = lab
        self.page = page
        self.workspace = workspace
        self.panel = page.locator("#ctxkernel-panel")
        self.view = page.locator("#ctxkernel-panel .ctxk-host:not([hidden])")
        self.errors: list[str] = []
        self.reloaded = False
        page.on("pageerror", self._note)

    def _note(self, error: Error) -> None:
        self.errors.append(str(error))

    def leave(self) -> bool:
        """Close all documents; return if the page can be left to the next test.

        One that was reloaded cannot: Lab opens its documents again at a time of its own, and would miss their files.
        """
        self.page.remove_listener("pageerror", self._note)
        if self.reloaded:
            return False
        timeline = self.view.locator("[role=tab][data-tab=timeline]")
        if timeline.count():  # the next notebook opens with the tab that was chosen last
            timeline.evaluate("el => el.click()")
        self.page.evaluate("() => { for (const one of [...jupyterapp.shell.widgets('main')]) one.dispose() }")
        return True

    def reload(self) -> None:
        """Load the page again, as F5 does."""
        self.reloaded = True
        self.page.reload()

    def reopen(self, name: str) -> None:
        """Load a new page with a notebook, as it was saved."""
        self.page.goto(self.lab.url(name))

    def open(self, name: str, cells: Sequence[str], kernel: str = "ctxkernel") -> Desk:
        """Write a notebook, open it, and put the keyboard into its first cell."""
        self.lab.write(name, cells, kernel)
        return self.show(name)

    def show_cells(self, name: str, notebook: dict[str, Any]) -> Desk:
        """Write a notebook of any content, open it, and bring each of its cells into view: else it is not drawn."""
        (self.lab.root / name).write_text(json.dumps(notebook), "utf-8")
        self.show(name).live()
        content, count = "jupyterapp.shell.currentWidget.content", len(notebook["cells"])
        self.page.wait_for_function(f"{content}.widgets.length === {count}")
        for at in range(count):
            self.page.evaluate(f"{content}.activeCellIndex = {at}; {content}.scrollToItem({at})")
            self.page.wait_for_timeout(30)
        return self

    def show(self, name: str) -> Desk:
        """Open a notebook that is there."""
        if self.page.url == "about:blank":
            self.page.goto(self.lab.url(name, self.workspace))
        else:
            # It returns nothing: the command's result is a widget, and Playwright would carry over its whole graph.
            opens = "async path => { await jupyterapp.commands.execute('docmanager:open', { path }) }"
            self.page.evaluate(opens, name)
        return self.settle()

    def settle(self) -> Desk:
        """Wait until Lab is there, with its notebook's kernel."""
        page = self.page
        page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=90_000)
        page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
        # The notebook's own indicator is idle before there is a kernel, too.
        page.locator("#jp-main-statusbar").get_by_text(re.compile(r"\| Idle$")).wait_for()
        return self.checked()

    def checked(self) -> Desk:
        """Fail where the page is not of the version that is to be tested."""
        version = self.page.evaluate("jupyterapp.version")
        assert LAB_VERSION in (None, version), f"this page is {version}, not {LAB_VERSION}"
        return self

    def live(self) -> Desk:
        """Wait until the panel shows the kernel's state."""
        self.page.wait_for_selector("#ctxkernel-panel[data-phase=live]")
        return self

    def select(self, index: int) -> None:
        """Select a cell, in command mode: by a second click where the cells moved under the first one.

        While the button is down, JupyterLab takes that for a selection of several cells, and runs them all.
        """
        selected = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell.jp-mod-selected")
        for _ in range(3):
            # At its top: below stands the cell's mark.
            self.cell(index).locator(".jp-InputPrompt, .jp-InputArea-prompt").first.click(position={"x": 6, "y": 6})
            self.page.keyboard.press("Escape")
            if [one.get_attribute("data-windowed-list-index") for one in selected.all()] == [str(index)]:
                return
        raise AssertionError(f"the cells cannot be selected one by one: {selected.all_inner_texts()}")

    def cell(self, index: int) -> Locator:
        """Return the cell at `index` of the notebook in front."""
        return self.page.locator(f".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell[data-windowed-list-index='{index}']")

    def enter(self, statement: str = "") -> None:
        """Press Shift+Enter, and wait until the panel has painted that statement."""
        self.page.keyboard.press("Shift+Enter")
        if statement:
            self.page.wait_for_selector(f"#ctxkernel-panel[data-last-turn={statement}]")

    def type(self, source: str, statement: str = "") -> None:
        """Type into the selected cell and run it."""
        self.page.keyboard.press("Enter")
        self.page.keyboard.insert_text(source)
        self.enter(statement)

    def command(self, words: str) -> None:
        """Find a command in the palette and run it."""
        # JupyterLab 4.2 closes it again where a cell that has just run takes the keyboard: then once more.
        palette = self.page.locator(".lm-CommandPalette-input:focus")
        for patience in (3_000, 3_000, 60_000):
            with contextlib.suppress(Error):
                self.page.keyboard.press("Control+Shift+C")
                palette.wait_for(timeout=patience)  # typed earlier, the words go elsewhere
                self.page.keyboard.insert_text(words)
                self.page.locator(".lm-CommandPalette-item.lm-mod-active", has_text=words).wait_for(timeout=patience)
                self.page.keyboard.press("Enter")
                return
        raise AssertionError(f"the palette does not offer {words!r}")

    def row(self, statement: str) -> Locator:
        """Return the row of a statement in the timeline."""
        return self.view.locator(f".ctxk-row[data-statement={statement}]")

    def tab(self, name: str) -> Locator:
        """Bring a section to the front and return it."""
        self.view.locator(f"[role=tab][data-tab={name}]").click()
        return self.view.locator(f".ctxk-{name}")


class NotebookDesk(Desk):
    """The same in Notebook 7, where each notebook has a page of its own, and there is no status bar."""

    status_bar = False

    def _note(self, error: Error) -> None:
        if "reading 'schema'" not in str(error):  # Notebook 7 has this one without ctxkernel, too
            super()._note(error)

    def leave(self) -> bool:
        """Return False: the page has one notebook, so the next test gets its own."""
        self.page.remove_listener("pageerror", self._note)
        return False

    def reopen(self, name: str) -> None:
        """Load the page of a notebook anew."""
        self.page.goto(self.lab.notebook_url(name))

    def open(self, name: str, cells: Sequence[str], kernel: str = "ctxkernel") -> Desk:
        """Write a notebook and open its page."""
        self.lab.write(name, cells, kernel)
        self.page.goto(self.lab.notebook_url(name))
        return self.settle()

    def settle(self) -> Desk:
        """Wait until the page is there, with its notebook's kernel."""
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=90_000)
        idle = "jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
        self.page.wait_for_function(idle)
        return self.checked()


@contextlib.contextmanager
def _desk(
    lab: Lab, context: BrowserContext, request: pytest.FixtureRequest, kept: list[Page] | None = None
) -> Iterator[Desk]:
    page = kept.pop() if kept else context.new_page()
    # What Lab remembers of a page of its own shall not be there for the page that is handed on.
    desk = (NotebookDesk if NOTEBOOK_7 else Desk)(lab, page, "auto-own" if kept is None else "")
    failed = request.session.testsfailed
    yield desk
    if request.session.testsfailed > failed:
        results = ROOT / "test-results"
        results.mkdir(exist_ok=True)
        with contextlib.suppress(Exception):  # the picture helps; that there is none must not hide the failure
            page.screenshot(path=results / f"{request.node.name}.png")
        kept = None
    if kept is not None and desk.leave():
        kept.append(page)
    else:
        page.close()
    lab.forget()


@pytest.fixture(scope="package")
def kept() -> list[Page]:
    """The page that is handed from test to test."""
    return []


@pytest.fixture
def desk(lab: Lab, context: BrowserContext, request: pytest.FixtureRequest, kept: list[Page]) -> Iterator[Desk]:
    """A page where other notebooks may have been open before, as at a person's desk. To load Lab takes five seconds."""
    with _desk(lab, context, request, kept) as desk:
        yield desk


@pytest.fixture
def new_desk(lab: Lab, context: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Desk]:
    """A page of its own, for a test of how a page begins, or one that changes settings."""
    with _desk(lab, context, request) as desk:
        yield desk


@pytest.fixture(scope="module")
def shared_desk(lab: Lab, context: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Desk]:
    """One new page for tests that only look."""
    with _desk(lab, context, request) as desk:
        yield desk
