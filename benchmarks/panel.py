"""What the panel costs in a long session: a real kernel, a real JupyterLab, a real Chromium.

    PYTHONPATH=tests python benchmarks/panel.py [--statements N] [--turns N] [--json]

The session is made by running `--statements` cells, with a few returns, so with some branches. Then a page opens it.
CPU times are those of the page's main thread (script, style and layout), as Chromium counts them, with JupyterLab's own
share. Wall-clock times are of this machine, which may be shared. Each line has the value beside its aim.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient
from playwright.sync_api import CDPSession, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from browser.conftest import FLAGS, Desk, Lab, chromium_path  # noqa: E402

NOTEBOOK = "long.ipynb"
CELLS = 500
"""Cells of the notebook that the statements belong to, in turns."""
CPU = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
MARK = "ctxkernel-live"
LIVE = f"""new MutationObserver((all) => {{
  if (all.some(({{ target }}) => target.dataset?.phase === 'live')) performance.mark('{MARK}');
}}).observe(document, {{ subtree: true, attributes: true, attributeFilter: ['data-phase'] }});"""
"""Marks the task in which the panel takes its first snapshot."""
Result = tuple[str, float, float | None, str]
"""What, value, aim, unit."""


class Frames:
    """The messages of the panel that the page receives, by type, in bytes."""

    def __init__(self, cdp: CDPSession) -> None:
        self.sizes: dict[str, list[int]] = {}
        cdp.send("Network.enable")
        cdp.on("Network.webSocketFrameReceived", self._note)

    def _note(self, event: dict[str, Any]) -> None:
        response = event["response"]
        data = (
            base64.b64decode(response["payloadData"]) if response["opcode"] == 2 else response["payloadData"].encode()
        )
        if b"comm_msg" not in data[:4000]:
            return
        for kind in ("snapshot", "turn", "rows", "search"):
            if f'"type": "{kind}"'.encode() in data:
                self.sizes.setdefault(kind, []).append(len(data))
                return

    def take(self, kind: str) -> list[int]:
        """Return the sizes since the last call."""
        return self.sizes.pop(kind, [])


def start_kernel(lab: Lab) -> BlockingKernelClient:
    """Start the notebook's kernel without a page, and return a client of it."""
    lab.write(NOTEBOOK, ["page = 1"])
    session = lab.ask(
        "POST",
        "api/sessions",
        {"path": NOTEBOOK, "name": NOTEBOOK, "type": "notebook", "kernel": {"name": "ctxkernel"}},
    )
    file = next((lab.folder / "jupyter_runtime_dir").glob(f"**/kernel-{session['kernel']['id']}.json"))
    client = BlockingKernelClient(connection_file=str(file))
    client.load_connection_file()
    client.start_channels()
    client.kernel_info()
    client.get_shell_msg(timeout=60)
    return client


def run(client: BlockingKernelClient, source: str, cell: str | None = None) -> None:
    """Run one cell to its end; `cell` is its id in the notebook."""
    content = {"code": source, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    metadata = {} if cell is None else {"cellId": cell}
    client.shell_channel.send(client.session.msg("execute_request", content, metadata=metadata))
    client.get_shell_msg(timeout=120)


def fill(client: BlockingKernelClient, statements: int) -> float:
    """Run cells until there are `statements`; return the seconds. Every 1,500th goes back 20 statements.

    All but the first read `base`.
    """
    start = time.monotonic()
    run(client, "base = 0", "base")
    for n in range(2, statements + 1):
        if n % 1500 == 0:
            run(client, f"%ctx goto s{n - 20}")
        else:
            name = f"x{n % 50}"
            run(client, f"{name} = base + {n}\nprint('step {n} of the session', {name})", cell_id(n))
    return time.monotonic() - start


def cell_id(n: int) -> str:
    """Return the id of the cell of a statement, as long as JupyterLab's are."""
    return f"{n % CELLS:08x}-1111-4222-8333-{n % CELLS:012x}"


def metrics(cdp: CDPSession) -> dict[str, float]:
    """Return Chromium's counters of the page."""
    return {one["name"]: one["value"] for one in cdp.send("Performance.getMetrics")["metrics"]}


@contextmanager
def traced_tasks(page: Page, cdp: CDPSession) -> Iterator[tuple[list[float], list[float]]]:
    """Give two lists that have, after the block, the CPU times in milliseconds of the main thread's tasks.

    The second one has only tasks in which the page made a mark of `MARK`.
    """
    events: list[dict[str, Any]] = []
    over: list[bool] = []
    found: tuple[list[float], list[float]] = [], []
    cdp.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    cdp.on("Tracing.tracingComplete", lambda _: over.append(True))
    config = {"includedCategories": ["toplevel", "blink.user_timing", "__metadata"], "excludedCategories": ["*"]}
    cdp.send("Tracing.start", {"traceConfig": config, "transferMode": "ReportEvents"})
    yield found
    cdp.send("Tracing.end")
    while not over:
        page.wait_for_timeout(50)
    names = [one for one in events if one["name"] == "thread_name"]
    main = {(one["pid"], one["tid"]) for one in names if one["args"]["name"] == "CrRendererMain"}
    marks = [one["ts"] for one in events if one["name"] == MARK]
    for one in events:
        if one["name"].endswith("RunTask") and (one["pid"], one["tid"]) in main:
            took = one.get("tdur", 0) / 1000
            found[0].append(took)
            if any(one["ts"] <= mark <= one["ts"] + one.get("dur", 0) for mark in marks):
                found[1].append(took)


@contextmanager
def longest_task(page: Page, cdp: CDPSession) -> Iterator[list[float]]:
    """Give a list that has, after the block, the CPU time in milliseconds of the longest task of the main thread."""
    found: list[float] = []
    with traced_tasks(page, cdp) as (tasks, _):
        yield found
    found.append(max(tasks, default=0.0))


def first_paint(desk: Desk) -> float:
    """Return the milliseconds from asking the kernel anew until the newest rows are painted."""
    return desk.page.evaluate(
        """async () => {
          const panel = document.getElementById('ctxkernel-panel');
          const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
          const start = performance.now();
          await jupyterapp.commands.execute('ctxkernel:reconnect');
          const row = '.ctxk-host:not([hidden]) .ctxk-row';
          while (panel.dataset.phase !== 'live' || !panel.querySelector(row)) await painted();
          await painted();
          return performance.now() - start;
        }"""
    )


def scrolling(desk: Desk, cdp: CDPSession) -> list[Result]:
    """Scroll through the timeline and change tabs; return the longest tasks."""
    page, section = desk.page, desk.view.locator(".ctxk-timeline")
    box = section.bounding_box() or {"x": 0, "y": 0, "width": 0, "height": 0}
    page.mouse.move(box["x"] + 50, box["y"] + 200)
    with longest_task(page, cdp) as scrolled:
        for step in (-400, -4000, -20_000, -80_000, 2000, 30_000):
            for _ in range(8):
                page.mouse.wheel(0, step)
                page.wait_for_timeout(40)
        page.wait_for_timeout(300)
    out: list[Result] = [("longest task on scrolling", scrolled[0], 50, "ms")]
    for tab in ("handles", "projection", "changes", "timeline"):
        with longest_task(page, cdp) as changed:
            desk.view.locator(f"[role=tab][data-tab={tab}]").click()
            page.wait_for_timeout(500)
        out.append((f"longest task on the change to {tab}", changed[0], 50, "ms"))
    return out


def latency(desk: Desk, first: int, cells: int) -> list[float]:
    """Return the milliseconds from the page's `idle` of a cell to the panel's paint, for some cells."""
    out: list[float] = []
    desk.select(0)
    for n in range(cells):
        desk.page.keyboard.press("Control+Enter")
        desk.page.wait_for_selector(f"#ctxkernel-panel[data-last-turn=s{first + n}]")
        data = desk.panel.evaluate("el => ({...el.dataset})")
        out.append(max(0.0, float(data["paintedAt"]) - float(data["idleAt"] or data["paintedAt"])))
        desk.page.wait_for_timeout(150)
    return out


def memory(page: Page, cdp: CDPSession, rows: int, turns: int) -> tuple[float, float]:
    """Return the page's heap in MB before and after `turns` made-up turns in a session of `rows`."""
    script = (ROOT / "tests/browser/long_session.js").read_text(encoding="utf-8")
    mount = script.partition("\n")[2].strip().rstrip(";")
    page.evaluate(f"async (rows) => {{ window.__long = await ({mount})(rows, true); }}", rows)
    sizes: list[float] = []
    for steps in (turns // 10, turns):
        page.evaluate("(turns) => window.__long.run(turns)", steps)
        cdp.send("HeapProfiler.collectGarbage")
        sizes.append(metrics(cdp)["JSHeapUsedSize"] / 1e6)
    page.evaluate("() => { window.__long.end(); delete window.__long; }")
    return sizes[0], sizes[1]


def measure(desk: Desk, cdp: CDPSession, client: BlockingKernelClient, statements: int, turns: int) -> list[Result]:
    """Return the results."""
    frames = Frames(cdp)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})  # CPU time, not the clock on the wall
    desk.page.add_init_script(LIVE)
    with traced_tasks(desk.page, cdp) as (_, opened):
        desk.page.goto(desk.lab.url(NOTEBOOK))
        desk.settle().live()
    with longest_task(desk.page, cdp) as first:
        paints = [first_paint(desk) for _ in range(3)]
    snapshot = frames.take("snapshot")
    out: list[Result] = [
        ("first paint, from asking the kernel", min(paints), 1000, "ms"),
        ("task of the first snapshot, in a page that has just been loaded", max(opened, default=0.0), 50, "ms"),
        ("longest task of a later snapshot", first[0], 50, "ms"),
        ("snapshot", max(snapshot) / 1000, None, "KB"),
    ]
    before = metrics(cdp)
    for n in range(40):
        run(client, f"y = {n}", cell_id(n))
    desk.page.wait_for_selector(f"#ctxkernel-panel[data-last-turn=s{statements + 40}]")
    desk.page.wait_for_timeout(300)
    after = metrics(cdp)
    out.append(("a turn's message, longest of 40", max(frames.take("turn")) / 1000, 8, "KB"))
    run(client, "base = 1", "base")
    desk.page.wait_for_selector(f"#ctxkernel-panel[data-last-turn=s{statements + 41}]")
    desk.page.wait_for_timeout(300)
    out.append((f"the same, of one that makes {CELLS - 40} cells stale", max(frames.take("turn")) / 1000, 8, "KB"))
    spent = {name.removesuffix("Duration"): (after[name] - before[name]) / 40 * 1000 for name in CPU}
    out += [(f"  {name} a turn", value, None, "ms") for name, value in spent.items()]
    out.append(("main thread a turn", sum(spent.values()), 50, "ms"))
    busy = metrics(cdp)["TaskDuration"]
    shown = latency(desk, statements + 42, 12)
    busy = (metrics(cdp)["TaskDuration"] - busy) / len(shown) * 1000
    out.append(("main thread, a cell that is run in the page, all of JupyterLab", busy, None, "ms"))
    out.append(("from the cell's end in the page to the paint, median", statistics.median(shown), 60, "ms"))
    out += scrolling(desk, cdp)
    small, large = memory(desk.page, cdp, statements, turns)
    out.append((f"heap after {turns // 10} turns", small, None, "MB"))
    out.append((f"growth over {turns} more turns", large - small, 3, "MB"))
    return out


def measured(statements: int, turns: int) -> list[Result]:
    """Start JupyterLab, fill a session with statements, and return the results."""
    urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        lab = Lab(Path(folder) / "lab")
        lab.folder.mkdir()
        lab.start()
        try:
            client = start_kernel(lab)
            fill(client, statements)
            browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
            page = browser.new_page(viewport={"width": 1400, "height": 860})
            page.set_default_timeout(60_000)
            results = measure(Desk(lab, page), page.context.new_cdp_session(page), client, statements, turns)
            browser.close()
            return results
        finally:
            lab.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = measured(args.statements, args.turns)
    if args.json:
        print(json.dumps([dict(zip(("what", "value", "aim", "unit"), one, strict=True)) for one in results]))
        return
    print(f"{args.statements} statements")
    for what, value, aim, unit in results:
        told = "" if aim is None else f"   aim ≤ {aim:g} {unit}{'' if value <= aim else '   MISSED'}"
        print(f"{what:<62}{value:9.1f} {unit}{told}")


if __name__ == "__main__":
    main()
