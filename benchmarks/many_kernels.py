"""Many kernels on one machine, as under a JupyterHub: memory and processor time of each, beside ipykernel's.

    python benchmarks/many_kernels.py [--kernels 200] [--cells 5] [--seconds 20] [--json FILE]

Starts so many kernels of each kind, one kind after the other, runs some cells in each, and lets them rest.
Rule 1: memory is the proportional set size (PSS): pages that kernels share count once, divided among them.
Rule 2: processor time is that of all threads and children; at rest it is what a hundred forgotten notebooks cost.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from latency import Kernel

KINDS = {"ipykernel": "ipykernel_launcher", "ctxkernel": "ctxkernel.kernel"}
CELLS = [
    "import json, math",
    "rows = [{'n': n} for n in range(1000)]",
    "rows[7]['n'] = -1",
    "x = sum(range(1000))",
    "x",
]


def processes(kernels: list[Kernel]) -> list[psutil.Process]:
    """Return the processes of kernels with their children."""
    found: list[psutil.Process] = []
    for kernel in kernels:
        process: Any = kernel.manager.provisioner
        own = psutil.Process(process.pid)
        found += [own, *own.children(recursive=True)]
    return found


def cpu(kernels: list[Kernel]) -> float:
    """Return the processor seconds of kernels so far."""
    total = 0.0
    for process in processes(kernels):
        times = process.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def measure(kind: str, count: int, cells: int, seconds: float, folder: Path) -> dict[str, float]:
    """Return the figures of one kind of kernel."""
    os.environ["CTXKERNEL_CACHE"] = str(folder / "cache")

    def begin(number: int) -> Kernel:
        home = folder / f"{kind}{number}"
        home.mkdir()
        for tries_left in (2, 1, 0):
            try:
                return Kernel(KINDS[kind], str(home))
            except RuntimeError:  # Jupyter lets go of the ports that it picked until the kernel binds them
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    began = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        kernels = list(pool.map(begin, range(count)))
    try:
        started, started_cpu = time.perf_counter() - began, cpu(kernels)
        waits = [kernel.run(CELLS[at % len(CELLS)]) for at in range(cells) for kernel in kernels]
        time.sleep(3)  # work after the last cell
        busy = cpu(kernels)
        pss = [process.memory_full_info().pss for process in processes(kernels)]
        time.sleep(seconds)
        idle = cpu(kernels) - busy
    finally:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(Kernel.stop, kernels))
    return {
        "memory, MB a kernel": sum(pss) / count / 1e6,
        "start, CPU s a kernel": started_cpu / count,
        "start, wall s a kernel": started / count,
        "a cell, CPU ms": (busy - started_cpu) / count / cells * 1000,
        "a cell, ms from request to idle": statistics.median(waits),
        "at rest, CPU ms a kernel and minute": idle / count / seconds * 60_000,
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--cells", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long they rest")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-kernels-") as folder:
        found = {
            kind: measure(kind, arguments.kernels, arguments.cells, arguments.seconds, Path(folder)) for kind in KINDS
        }
    print(f"{arguments.kernels} kernels of each kind, {arguments.cells} cells in each\n")
    print("| | ipykernel | ctxkernel | × |\n|---|--:|--:|--:|")
    for name, stock in found["ipykernel"].items():
        own = found["ctxkernel"][name]
        print(f"| {name} | {stock:.2f} | {own:.2f} | {own / stock if stock else float('nan'):.2f} |")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
