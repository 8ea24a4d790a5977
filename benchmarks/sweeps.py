"""What a sweep costs beside its cells: `python benchmarks/sweeps.py`.

A notebook is swept over a grid of 200 combinations on a cluster of two workers of this machine. The processor time of
all its processes is compared with that of the cells that must run, in one process without Jupyter; then the same grid
goes through papermill, and once more through a sweep of which a worker is killed every five seconds.

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
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

CELLS = (
    "import math\nimport random",
    "alpha = 1.0\ndepth = 3",
    "random.seed(7)\nrows = [random.random() for _ in range(50_000)]",
    "features = [sum(math.sin(x * (k + 1)) for x in rows) for k in range(depth * 10)]",
    "score = sum(features)\nfor _ in range(600):\n    score += sum([math.sqrt(alpha + x) for x in rows])",
    "result = round(score, 6)",
)
DEPTHS = (1, 2, 3, 4)
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


def sweep(folder: Path, combinations: int, kill: float = 0.0) -> tuple[dict[str, Any], float, float, int]:
    """Return the table of a sweep in a new session, its processor time, its time, and how many workers were killed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    notebook = write(folder / "grid.ipynb")
    environment = {**os.environ, **ENVIRONMENT, "CTXKERNEL_CACHE": str(folder / "cache")}
    subprocess.run(command("run", str(notebook)), env=environment, check=True, capture_output=True)
    before, begun = children_cpu(), time.monotonic()
    values = ",".join(map(str, alphas(combinations)))
    words = ["sweep", str(notebook), "--from", "1", f"alpha={values}", f"depth={','.join(map(str, DEPTHS))}"]
    process = subprocess.Popen(
        command(*words, "--collect", "result", "--workers", "2", "--json"),
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
    return json.loads(out), children_cpu() - before, time.monotonic() - begun, len(killed)


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
        table, cpu, wall, _ = sweep(folder / "sweep", combinations)
        tasks = table["cells_run"] and combinations + len(DEPTHS)
        bad = sum(row["status"] != "ok" for row in table["rows"])
        share = cpu / needed
        print(
            f"{combinations} combinations: {table['cells_run']} cells ran, {table['cells_shared']} shared, {bad} failed"
        )
        print(f"cells that must run  {needed:7.1f} s of processor time")
        more = (cpu - needed) / tasks * 1e3
        print(f"sweep, 2 workers     {cpu:7.1f} s ({share:.2f} ×), {wall:.1f} s; {more:.0f} ms more a task")
        failed = bad > 0 or share > 1.15
        if arguments.kill:
            again, _, wall_killed, killed = sweep(folder / "killed", combinations, arguments.kill)
            same = values(again) == values(table)
            print(f"{killed} workers killed  {wall_killed:.1f} s; the table is {'the same' if same else 'ANOTHER ONE'}")
            failed = failed or not same
        if not arguments.no_papermill:
            _, used, took = papermill(folder, combinations, arguments.papermill)
            print(f"papermill            {used:7.1f} s ({used / needed:.2f} ×), {took:.1f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
