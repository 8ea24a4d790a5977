"""What starting a kernel costs on ipykernel and on ctxkernel, up to the first reply of `1`. Prints a Markdown table.

    python benchmarks/start.py [--rounds N]

Rule 1: the kernels start in turns in one run, so a busy moment of the machine hits both; the table has medians.
Rule 2: CPU is that of the process tree: the kernel with all its threads and the processes that it started. Memory is
        the resident memory of the kernel when the reply has come.
Rule 3: one start of each is not counted: it writes the bytecode and fills the caches of the disk.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from cells import KERNELS, Tree
from kernels import Kernel

Start = tuple[float, float, float]
"""CPU of the tree in seconds, wall time in seconds, memory in MB."""
HEAD = "| | ipykernel | ctxkernel | × |\n|---|--:|--:|--:|"
ROWS = ("CPU of the tree, s", "wall, s", "memory, MB")


def start(module: str) -> Start:
    """Start a kernel, run `1`, and return what it took."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        kernel = Kernel(module, Path(folder), env={"PYTHONDONTWRITEBYTECODE": ""})
        try:
            ran = kernel.run("1")
            if ran.status != "ok":
                raise RuntimeError(ran.error)
            wall = time.perf_counter() - began
            memory = psutil.Process(kernel.pid).memory_info().rss / 1e6
            return Tree(kernel).seconds(), wall, memory
        finally:
            kernel.stop()


def medians(rounds: int) -> dict[str, tuple[float, float]]:
    """Start both kernels in turns; return the medians of ipykernel and of ctxkernel, by row."""
    starts: dict[str, list[Start]] = {name: [] for name in KERNELS}
    for number in range(rounds + 1):
        for name, module in KERNELS.items():
            took = start(module)
            starts[name] += [took] if number else []
    found: dict[str, tuple[float, float]] = {}
    for at, row in enumerate(ROWS):
        stock, ours = (statistics.median(took[at] for took in starts[name]) for name in KERNELS)
        found[row] = stock, ours
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    found = medians(args.rounds)
    print(f"{args.rounds} starts of each kernel in turns, medians\n\n{HEAD}")
    for row, (stock, ours) in found.items():
        print(f"| {row} | {stock:.2f} | {ours:.2f} | {ours / stock:.2f} |")


if __name__ == "__main__":
    main()
