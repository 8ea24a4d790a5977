"""What ordinary cells cost on ipykernel and on ctxkernel, block by block in turns, in one run. Prints Markdown tables.

    python benchmarks/cells.py [--cells N] [--only NAME]     the mix of ordinary cells
    python benchmarks/cells.py --flat [--cells 3000]         cell 100 against the last one, memory a cell, verify
    python benchmarks/cells.py --outputs [500]               a frame that many displayed results share memory with
    python benchmarks/cells.py --records [400000]            a cell that touches one of many records
    python benchmarks/cells.py --long [250]                  a session with 1 GB and in-place changes
    python benchmarks/cells.py --facts [200]                 the facts about each cell for affected re-runs

Rule 1: both kernels live at the same time and run the same cells in turns, so a busy moment hits both.
Rule 2: CPU is that of the process tree: the kernel with all its threads, its children, and those that it left behind.
        Each block ends with a pause, so that work of the idle kernel counts too. Wall time is from request to idle.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from kernels import Kernel

KERNELS = {"ipykernel": "ipykernel_launcher", "ctxkernel": "ctxkernel.kernel"}
BLOCK = 20
PAUSE = 0.7
"""Seconds after a block. ctxkernel begins its idle work after 0.5."""

SETUP = """
import numpy as np, pandas as pd
df = pd.DataFrame({name: np.arange(10_000.0) + n for n, name in enumerate("abcdefgh")})
records = [{"id": i, "v": 0} for i in range(2_000)]
arr = np.zeros(6_000_000)
lst = []
class Own:
    def __init__(self):
        self.value = 0
own = Own()
"""
MIX = {
    "`pass`": "pass",
    "`x = i`": "x = {i}",
    "`lst.append(i)`": "lst.append({i})",
    "`own.value = i`": "own.value = {i}",
    "`arr[i] = i` (48 MB)": "arr[{i}] = {i}",
    "`records[i]['v'] = i`": "records[{i}]['v'] = {i}",
    "`df.describe()`": "df.describe()",
    "`df.loc[i, 'a'] = i`": "df.loc[{i}, 'a'] = {i}",
    "`df2 = df.assign(b=i)`": "df2 = df.assign(b={i})",
}
LONG_SETUP = """
import numpy as np, pandas as pd
arrays = [np.ones(12_500_000) for _ in range(8)]
frame = pd.DataFrame({f"c{n}": np.arange(2_500_000.0) for n in range(10)})
records = [{"id": i, "v": 0} for i in range(2_000)]
total = 0
"""
LONG = (
    "arrays[{a}][{i}] = {i}",
    "total += {i}",
    "frame.loc[{i}, 'c3'] = {i}",
    "records[{i}]['v'] = {i}",
    "arrays[{a}] *= 1.0001",
    "mean = arrays[{a}].mean()",
    "frame['c5'] += 1",
    "part = frame.iloc[{i}:{i} + 1000].copy()",
    "part.describe()",
    "records.append({{'id': {i}, 'v': 1}})",
)


class Tree:
    """The processor time of a kernel and of the processes that it started."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._orphans = 0.0
        self._known: dict[int, float] = {}

    def seconds(self) -> float:
        """Return the seconds so far, of this process tree."""
        self._reap()
        text = self._kernel.evaluate(
            "[__import__('time').process_time(), sum(__import__('resource').getrusage(-1)[:2])]"
        )
        alive = 0.0
        for process in self._others():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            self._known[process.pid] = times.user + times.system
            alive += times.user + times.system
        return sum(json.loads(text)) + self._orphans + alive

    def busy(self) -> bool:
        """Return whether a process that the kernel started still runs."""
        self._reap()
        return any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in self._others())

    def _others(self) -> list[psutil.Process]:
        """Return the processes in the kernel's session but the kernel: a forked writer is not its child."""
        found: list[psutil.Process] = []
        for process in psutil.Process().children(recursive=True):
            try:
                if process.pid != self._kernel.pid and os.getsid(process.pid) == self._kernel.pid:
                    found.append(process)
            except (ProcessLookupError, PermissionError):
                continue
        return found

    def _reap(self) -> None:
        """Take in the processes that the kernel left behind and that have ended: they became our children."""
        for process in psutil.Process().children():
            try:
                if process.pid == self._kernel.pid or os.getsid(process.pid) != self._kernel.pid:
                    continue
                if process.status() == psutil.STATUS_ZOMBIE:
                    _, _, usage = os.wait4(process.pid, 0)
                    self._orphans += usage.ru_utime + usage.ru_stime
            except (ProcessLookupError, PermissionError, ChildProcessError, psutil.Error):
                continue


@dataclass
class Side:
    """One kernel and what was measured on it."""

    kernel: Kernel
    tree: Tree
    cpu_ms: list[float] = field(default_factory=list)
    """A cell, by block."""
    main_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)

    def block(self, cells: list[str]) -> None:
        """Run cells and take down what they cost."""
        cpu, main = self.tree.seconds(), self.main_seconds()
        for cell in cells:
            ran = self.kernel.run(cell)
            if ran.status != "ok":
                raise RuntimeError(f"{cell!r}: {ran.error}")
            self.wall_ms.append(ran.wall_ms)
        time.sleep(PAUSE)
        self.settle()
        self.cpu_ms.append((self.tree.seconds() - cpu) * 1000 / len(cells))
        self.main_ms.append((self.main_seconds() - main) * 1000 / len(cells))

    def settle(self, seconds: float = 60) -> None:
        """Wait until the processes that the kernel started have ended."""
        until = time.monotonic() + seconds
        while self.tree.busy() and time.monotonic() < until:
            time.sleep(0.05)

    def main_seconds(self) -> float:
        """Return the processor time of the kernel's main thread."""
        return float(self.kernel.evaluate("__import__('time').thread_time()"))

    def resident(self) -> float:
        """Return the kernel's resident memory in bytes, after a collection."""
        self.kernel.evaluate("__import__('gc').collect()")
        return float(psutil.Process(self.kernel.pid).memory_info().rss)

    def forget(self) -> None:
        """Drop what was measured so far."""
        self.cpu_ms, self.main_ms, self.wall_ms = [], [], []


class Pair:
    """Both kernels, alive at the same time."""

    def __init__(self, folder: Path, setup: str) -> None:
        self.sides: dict[str, Side] = {}
        for name, module in KERNELS.items():
            kernel = Kernel(module, folder / name)
            self.sides[name] = Side(kernel, Tree(kernel))
            ran = kernel.run(setup)
            if ran.status != "ok":
                raise RuntimeError(ran.error)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *raised: object) -> None:
        for side in self.sides.values():
            side.kernel.stop()

    @property
    def both(self) -> tuple[Side, Side]:
        """ipykernel, ctxkernel."""
        return self.sides["ipykernel"], self.sides["ctxkernel"]

    def blocks(self, cells: list[str], size: int = BLOCK) -> None:
        """Run cells on both kernels in turns, the one that begins changing from block to block."""
        for at in range(0, len(cells), size):
            order = self.both if at // size % 2 else tuple(reversed(self.both))
            for side in order:
                side.block(cells[at : at + size])


def filled(template: str, many: int, start: int = 0) -> list[str]:
    """Return cells made from a template with the numbers from `start` on."""
    return [template.format(i=i, a=i % 8) for i in range(start, start + many)]


def row(name: str, stock: Side, ours: Side) -> str:
    """Return a row of Markdown: CPU of the tree, of the main thread, wall time; medians, and the ratios."""
    cells = [name]
    for get in (lambda s: s.cpu_ms, lambda s: s.main_ms, lambda s: s.wall_ms):
        a, b = statistics.median(get(stock)), statistics.median(get(ours))
        cells += [f"{a:.2f}", f"{b:.2f}", f"{b / a:.2f}"]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| cell | ipykernel CPU ms | ctxkernel CPU ms | × | ipykernel main thread ms | ctxkernel main thread ms | × "
    "| ipykernel wall ms | ctxkernel wall ms | × |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def measured_mix(folder: Path, cells: int, only: str = "") -> Iterator[tuple[str, Side, Side]]:
    """Yield the name of each ordinary cell, and what it costs on ipykernel and on ctxkernel, in kernels of its own."""
    for number, (name, template) in enumerate(MIX.items()):
        if only not in name:
            continue
        with Pair(folder / str(number), SETUP) as pair:
            pair.blocks(filled(template, BLOCK))
            for side in pair.both:
                side.forget()
            pair.blocks(filled(template, cells, BLOCK))
            yield name, *pair.both


def mix(folder: Path, cells: int, only: str) -> None:
    """Print the table of ordinary cells."""
    print(HEAD, flush=True)
    for name, stock, ours in measured_mix(folder, cells, only):
        print(row(name, stock, ours), flush=True)


def flat(folder: Path, cells: int) -> None:
    """Print what the 100th and the last cell cost, how memory grows, and how long verify takes."""
    print(f"{cells:,} cells `x = i`, `lst.append(i)`, `pass` in turns\n\n{HEAD}", flush=True)
    kinds = ["x = {i}", "lst.append({i})", "pass"]
    code = [kinds[i % 3].format(i=i) for i in range(cells)]
    with Pair(folder, SETUP) as pair:
        pair.blocks(code[:40])
        for side in pair.both:
            side.forget()
        pair.blocks(code[40:160])
        print(row("cells 40 to 160", *pair.both), flush=True)
        early = [statistics.median(side.cpu_ms) for side in pair.both]
        resident: list[list[float]] = []
        for start, end in ((160, cells // 3), (cells // 3, cells - 120)):
            for side in pair.both:
                for cell in code[start:end]:
                    side.kernel.run(cell)
                side.settle()
                side.forget()
            resident.append([side.resident() for side in pair.both])
        pair.blocks(code[cells - 120 :])
        print(row(f"the last 120 of {cells:,}", *pair.both), flush=True)
        late = [statistics.median(side.cpu_ms) for side in pair.both]
        grown = [(b - a) / (cells - 120 - cells // 3) / 1000 for a, b in zip(*resident, strict=True)]
        print("\n| | ipykernel | ctxkernel |\n|---|--:|--:|")
        print(f"| CPU, last against first | {late[0] / early[0]:.2f} | {late[1] / early[1]:.2f} |")
        print(f"| memory, kB a cell | {grown[0]:.1f} | {grown[1]:.1f} |", flush=True)
        pair.sides["ctxkernel"].kernel.stop()
        print(f"| `ctxkernel verify`, s | | {_verify(folder / 'ctxkernel'):.1f} |", flush=True)


def _verify(folder: Path) -> float:
    session = next((folder / "work").rglob("*.sqlite"))
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "ctxkernel", "verify", str(folder / "work" / "note.ipynb"), "--session", str(session)],
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return time.perf_counter() - start


def outputs(folder: Path, many: int, cells: int) -> None:
    """Print what a change of a frame costs before and after many results were shown that share memory with it."""
    change = "df.loc[{i}, 'a'] = {i}"
    print(HEAD, flush=True)
    with Pair(folder, SETUP) as pair:
        pair.blocks(filled(change, BLOCK))
        for side in pair.both:
            side.forget()
        pair.blocks(filled(change, cells, BLOCK))
        print(row("`df.loc[i, 'a'] = i`", *pair.both), flush=True)
        early = [statistics.median(side.cpu_ms) for side in pair.both]
        for side in pair.both:
            for cell in ("df.head()", "df['a']", "df.describe()", "df.iloc[5:50]", "df.T") * (many // 5):
                side.kernel.run(cell)
            side.settle()
            side.forget()
        pair.blocks(filled(change, cells, 1000))
        print(row(f"after {many} displayed results", *pair.both), flush=True)
        late = [statistics.median(side.cpu_ms) for side in pair.both]
        print(f"\nctxkernel after against before: {late[1] / early[1]:.2f}; ipykernel {late[0] / early[0]:.2f}")


def records(folder: Path, many: int, cells: int) -> None:
    """Print what a cell costs that touches one of many records."""
    setup = f"records = [{{'id': i, 'v': 0}} for i in range({many})]"
    print(HEAD, flush=True)
    with Pair(folder, setup) as pair:
        for side in pair.both:
            side.settle()
        pair.blocks(filled("records[{i}]['v'] = {i}", cells), 5)
        print(row(f"one of {many:,} records", *pair.both), flush=True)
        ours = pair.both[1]
        worst = max(ours.main_ms), max(ours.wall_ms)
        print(f"\nworst block: {worst[0]:.0f} ms a cell on the main thread; worst cell: {worst[1]:.0f} ms wall")


_WATCH_FACTS = """
def _watch():
    import time
    from ctxkernel.kernel.returning.cell_runs import CellFacts
    reader, seen = get_ipython().kernel.ctx.returning._reader, []
    facts, to_json = reader.facts, CellFacts.to_json
    def timed(call):
        def run(*given):
            start = time.thread_time()
            try:
                return call(*given)
            finally:
                seen.append(time.thread_time() - start)
        return run
    reader.facts, CellFacts.to_json = timed(facts), timed(to_json)
    get_ipython().kernel.facts_seen = seen
_watch(); del _watch
"""


def facts(folder: Path, cells: int) -> None:
    """Print what taking and storing the facts about a cell costs, beside all that the main thread does for it."""
    print("| cell | facts ms | main thread ms | share |\n|---|--:|--:|--:|", flush=True)
    seen = "get_ipython().kernel.facts_seen"
    for number, (name, template) in enumerate((MIX | {"`f(i)`": "f({i})"}).items()):
        kernel = Kernel(KERNELS["ctxkernel"], folder / f"facts{number}")
        try:
            side = Side(kernel, Tree(kernel))
            for code in (SETUP + "\ndef f(i):\n    own.value = i\n    return np.mean([i])", _WATCH_FACTS):
                kernel.run(code)
            side.block(filled(template, BLOCK))
            side.forget()
            kernel.evaluate(f"{seen}.clear()")
            for start in range(0, cells, BLOCK):
                side.block(filled(template, BLOCK, BLOCK + start))
            cost = float(kernel.evaluate(f"sum({seen})")) * 1000 / (len(side.main_ms) * BLOCK)
            main = statistics.mean(side.main_ms)
            print(f"| {name} | {cost:.3f} | {main:.2f} | {cost / main:.1%} |", flush=True)
        finally:
            kernel.stop()


def long(folder: Path, cells: int) -> None:
    """Print what a session with 1 GB and in-place changes costs in sum, and in how many cells not all was looked at."""
    code = [LONG[i % len(LONG)].format(i=i, a=i // len(LONG) % 8) for i in range(cells)]
    told = "sum(bool(run.state_diff.incomplete) for _, run in get_ipython().kernel.ctx.loop.history)"
    with Pair(folder, LONG_SETUP) as pair:
        for side in pair.both:
            side.settle()
        pair.blocks(code, 25)
        stock, ours = pair.both
        print("| | ipykernel | ctxkernel | × |\n|---|--:|--:|--:|")
        rows: dict[str, Callable[[Side], float]] = {
            "CPU of the tree, s": lambda side: sum(side.cpu_ms) * 25 / 1000,
            "CPU of the main thread, s": lambda side: sum(side.main_ms) * 25 / 1000,
            "wall a cell, median ms": lambda side: statistics.median(side.wall_ms),
            "wall a cell, worst ms": lambda side: max(side.wall_ms),
            "peak memory, MB": lambda side: side.kernel.peak_bytes() / 1e6,
        }
        for name, get in rows.items():
            a, b = get(stock), get(ours)
            print(f"| {name} | {a:,.2f} | {b:,.2f} | {b / a:.2f} |")
        print(f"| cells whose changes were not all found | | {ours.kernel.evaluate(told)} of {cells} | |", flush=True)


def keep_orphans() -> None:
    """Have the processes that a kernel leaves behind become children of this process, so that their time counts."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, help="cells a kernel and row")
    parser.add_argument("--only", default="", help="rows of the mix whose name has this in it")
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--outputs", type=int, nargs="?", const=500)
    parser.add_argument("--records", type=int, nargs="?", const=400_000)
    parser.add_argument("--long", type=int, nargs="?", const=250)
    parser.add_argument("--facts", type=int, nargs="?", const=200)
    args = parser.parse_args()
    keep_orphans()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.flat:
            flat(folder, args.cells or 3000)
        elif args.outputs:
            outputs(folder, args.outputs, args.cells or 60)
        elif args.records:
            records(folder, args.records, args.cells or 20)
        elif args.long:
            long(folder, args.long)
        elif args.facts:
            facts(folder, args.facts)
        else:
            mix(folder, args.cells or 200, args.only)


if __name__ == "__main__":
    main()
