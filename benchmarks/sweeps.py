"""What a sweep costs beside its cells: `python benchmarks/sweeps.py`.

A notebook is swept over a grid of 200 combinations on a cluster of two workers of this machine. The processor time of
all its processes is compared with that of the cells that must run. The cells measure that themselves, since two workers
at a time are slower than one process alone; that of one process without Jupyter is printed beside it. A small grid
tells what a sweep costs at all, and what each of its tasks costs. Then the grid goes through papermill, and once more
through a sweep of which a worker is killed every five seconds.

    --combinations N     size of the grid (default 200)
    --papermill N        combinations that papermill runs, from which its cost is extrapolated (default: all)
    --kill SECONDS       how often a worker is killed (default 5; 0: no such run)
    --simulate           only the simulation of a large cluster (`sweep_simulation`)
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

CELLS = (
    "import math\nimport random\nimport time",
    "alpha = 1.0\ndepth = 3",
    "random.seed(7)\nrows = [random.random() for _ in range(50_000)]",
    (
        "begun = time.thread_time()\nfeatures = [sum(math.sin(x * (k + 1)) for x in rows) for k in range(depth * 10)]\n"
        "shared = time.thread_time() - begun"
    ),
    (
        "begun = time.thread_time()\nscore = sum(features)\nfor _ in range(600):\n"
        "    score += sum([math.sqrt(alpha + x) for x in rows])\nspent = time.thread_time() - begun"
    ),
    "result = round(score, 6)",
)
DEPTHS = (1, 2, 3, 4)
MOST_SHARE, MOST_TASK_SECONDS = 1.15, 0.06
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def alphas(combinations: int) -> list[float]:
    return [round(1 + n / 100, 2) for n in range(combinations // len(DEPTHS))]


def write(path: Path) -> Path:
    cells = [new_code_cell(one) for one in CELLS]
    cells[1].metadata["tags"] = ["parameters"]
    spec = {"name": "python3", "display_name": "Python", "language": "python"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": spec}), path)
    return path


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def necessary(combinations: int) -> float:
    """Return the processor time of the cells that must run: the prefix of each depth once."""
    source = f"""
import time
cells, names = {CELLS!r}, {{}}
for one in cells[:3]:
    exec(one, names)
begun = time.process_time()
for depth in {DEPTHS!r}:
    names["depth"] = depth
    exec(cells[3], names)
    for alpha in {alphas(combinations)!r}:
        names["alpha"] = alpha
        exec(cells[4], names)
        exec(cells[5], names)
print(time.process_time() - begun)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    return float(done.stdout)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ctxkernel.cli", *words]


@dataclass
class Swept:
    """A sweep in a new session."""

    table: dict[str, Any]
    cpu: float
    wall: float
    killed: int

    @property
    def tasks(self) -> int:
        """The tasks: one for each combination, and one for each depth that several share."""
        return len(self.table["rows"]) + len(DEPTHS)

    @property
    def cells(self) -> float:
        """The processor time of the cells that must run, as they measured it: a shared one once."""
        rows = self.table["rows"]
        shared = {row["parameters"]["depth"]: row["collected"]["shared"] for row in rows}
        return sum(shared.values()) + sum(row["collected"]["spent"] for row in rows)


def sweep(folder: Path, combinations: int, kill: float = 0.0) -> Swept:
    """Sweep a grid in a new session; a worker is killed every `kill` seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    notebook = write(folder / "grid.ipynb")
    environment = {**os.environ, **ENVIRONMENT, "CTXKERNEL_CACHE": str(folder / "cache")}
    subprocess.run(command("run", str(notebook)), env=environment, check=True, capture_output=True)
    before, begun = children_cpu(), time.monotonic()
    values = ",".join(map(str, alphas(combinations)))
    words = ["sweep", str(notebook), "--from", "1", f"alpha={values}", f"depth={','.join(map(str, DEPTHS))}"]
    process = subprocess.Popen(
        command(*words, "--collect", "result,shared,spent", "--workers", "2", "--json"),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    stop = threading.Event()
    killed: list[int] = []
    if kill:
        threading.Thread(target=kill_workers, args=(process.pid, kill, stop, killed), daemon=True).start()
    out, errors = process.communicate()
    stop.set()
    if process.returncode not in (0, 1) or not out:
        raise SystemExit(errors[-3000:])
    return Swept(json.loads(out), children_cpu() - before, time.monotonic() - begun, len(killed))


def kill_workers(root: int, every: float, stop: threading.Event, killed: list[int]) -> None:
    """Kill a worker of Dask below a process, again and again."""
    import psutil

    choose = random.Random(1)
    while not stop.wait(every):
        found = []
        try:
            for one in psutil.Process(root).children(recursive=True):
                line = " ".join(one.cmdline())
                if "spawn_main" in line and any("ctxkernel.kernel" in " ".join(c.cmdline()) for c in one.children()):
                    found.append(one.pid)
        except psutil.Error:
            continue
        if found:
            pid = choose.choice(found)
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)


def papermill(folder: Path, combinations: int, most: int) -> tuple[dict[tuple[float, int], float], float, float]:
    """Return the results of papermill over the grid, and its processor time and time for all of it."""
    notebook = write(folder / "papermill.ipynb")
    grid = [(alpha, depth) for alpha in alphas(combinations) for depth in DEPTHS]
    chosen = grid[:: max(1, len(grid) // most)][:most] if most else grid
    found: dict[tuple[float, int], float] = {}
    before, begun = children_cpu(), time.monotonic()
    for alpha, depth in chosen:
        made = folder / "made.ipynb"
        line = [sys.executable, "-m", "papermill", "-k", "python3", str(notebook), str(made), "--no-progress-bar"]
        line += ["-p", "alpha", str(alpha), "-p", "depth", str(depth)]
        subprocess.run(line, check=True, capture_output=True, env={**os.environ, **ENVIRONMENT})
        found[alpha, depth] = 0.0
    scale = len(grid) / len(chosen)
    return found, (children_cpu() - before) * scale, (time.monotonic() - begun) * scale


def values(table: dict[str, Any]) -> dict[tuple[float, int], Any]:
    return {
        (row["parameters"]["alpha"], row["parameters"]["depth"]): (row["status"], row["collected"].get("result"))
        for row in table["rows"]
    }


def main() -> int:
    """Measure; the status is 1 if a limit is exceeded, or a table differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--combinations", type=int, default=200)
    parser.add_argument("--papermill", type=int, default=0)
    parser.add_argument("--no-papermill", action="store_true")
    parser.add_argument("--kill", type=float, default=5.0)
    parser.add_argument("--simulate", action="store_true")
    arguments = parser.parse_args()
    if arguments.simulate:
        from sweep_simulation import main as simulate

        return simulate()
    folder = Path(tempfile.mkdtemp(prefix="sweeps-"))
    combinations = arguments.combinations // len(DEPTHS) * len(DEPTHS)
    try:
        needed = necessary(combinations)
        whole, small = sweep(folder / "sweep", combinations), sweep(folder / "small", 2 * len(DEPTHS))
        table = whole.table
        bad = sum(row["status"] != "ok" for row in table["rows"])
        more, least = whole.cpu - whole.cells, small.cpu - small.cells
        a_task = (more - least) / (whole.tasks - small.tasks)
        share = whole.cpu / whole.cells
        print(
            f"{combinations} combinations: {table['cells_run']} cells ran, {table['cells_shared']} shared, {bad} failed"
        )
        print(f"cells that must run  {whole.cells:7.1f} s of processor time ({needed:.1f} s in one process alone)")
        print(f"sweep, 2 workers     {whole.cpu:7.1f} s ({share:.2f} ×), {whole.wall:.1f} s")
        start = more - a_task * whole.tasks
        print(f"beside the cells     {more:7.1f} s: {a_task * 1e3:.0f} ms a task, and {start:.1f} s for the sweep")
        failed = bad > 0 or share > MOST_SHARE or a_task > MOST_TASK_SECONDS
        if arguments.kill:
            again = sweep(folder / "killed", combinations, arguments.kill)
            same = values(again.table) == values(table)
            told = "the same" if same else "ANOTHER ONE"
            print(f"{again.killed} workers killed  {again.wall:.1f} s; the table is {told}")
            failed = failed or not same
        if not arguments.no_papermill:
            _, used, took = papermill(folder, combinations, arguments.papermill)
            print(f"papermill            {used:7.1f} s ({used / needed:.2f} ×), {took:.1f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
