"""What a cell costs on ctxkernel and on ipykernel: request to idle for `pass`, in turns, in one run.

    python benchmarks/latency.py [--cells N] [--json]

Each row starts both kernels, fills both namespaces, and then runs blocks of cells on one and the other in turns,
so that a busy moment of the machine hits both. CPU time is the kernel process's own (all threads); wall time is
what the client sees. Printed as tenth percentile and median, and as ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager

SETUPS = {
    "10 variables": "for i in range(10): globals()[f'v{i}'] = i * 1.5",
    "1,000 variables": "for i in range(1000): globals()[f'v{i}'] = [i] if i % 3 else str(i)",
    "10,000 variables": "for i in range(10_000): globals()[f'v{i}'] = [i] if i % 3 else str(i)",
    "1 GB array": "import numpy as np\nbig = np.ones(125_000_000)",
    "1 GB frame": (
        "import numpy as np, pandas as pd\n"
        "frame = pd.DataFrame({f'c{i}': np.arange(12_500_000.0) + i for i in range(10)})"
    ),
}
BLOCK = 20


class _Spec(KernelSpecManager):
    module = ""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(argv=[sys.executable, "-m", self.module, "-f", "{connection_file}"], language="python")


class Kernel:
    """A kernel process and its client."""

    def __init__(self, module: str, folder: str) -> None:
        spec = _Spec()
        self.module = spec.module = module
        self.manager = KernelManager(kernel_name="k", kernel_spec_manager=spec)
        self.manager.start_kernel(cwd=folder, env={**os.environ, "IPYTHONDIR": str(Path(folder, "ipython"))})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str, **options: Any) -> float:
        """Run a cell; returns milliseconds from request to idle."""
        start = time.perf_counter()
        msg_id = self.client.execute(code, **options)
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=60)
            except queue.Empty:
                raise TimeoutError(f"{self.module} sent no idle within 60 s after {code!r}") from None
            if message["parent_header"].get("msg_id") == msg_id and message["content"].get("execution_state") == "idle":
                break
        elapsed = (time.perf_counter() - start) * 1000
        while True:
            message = self.client.get_shell_msg(timeout=60)
            if message["parent_header"].get("msg_id") == msg_id:
                break
        reply = message["content"]
        if reply["status"] != "ok":
            raise RuntimeError(reply)
        self.reply = reply
        return elapsed

    def cpu(self) -> float:
        """CPU seconds of the kernel process so far."""
        self.run("", silent=True, user_expressions={"cpu": "__import__('time').process_time()"})
        return float(self.reply["user_expressions"]["cpu"]["data"]["text/plain"])

    def stop(self) -> None:
        """End the process."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def measure(setup: str, cells: int, cell: str = "pass") -> dict[str, dict[str, float]]:
    """Return wall (p10, p50) and CPU milliseconds a cell, for both kernels."""
    with tempfile.TemporaryDirectory() as folder:
        kernels = {name: Kernel(module, folder) for name, module in KERNELS.items()}
        try:
            wall: dict[str, list[float]] = {name: [] for name in kernels}
            cpu = dict.fromkeys(kernels, 0.0)
            for kernel in kernels.values():
                kernel.run(setup)
                for _ in range(BLOCK):
                    kernel.run(cell)
            for _ in range(max(1, cells // BLOCK)):
                for name, kernel in kernels.items():
                    before = kernel.cpu()
                    wall[name] += [kernel.run(cell) for _ in range(BLOCK)]
                    cpu[name] += kernel.cpu() - before
            return {
                name: {
                    "p10": statistics.quantiles(times, n=10)[0],
                    "p50": statistics.median(times),
                    "cpu": cpu[name] * 1000 / len(times),
                }
                for name, times in wall.items()
            }
        finally:
            for kernel in kernels.values():
                kernel.stop()


KERNELS = {"ipykernel": "ipykernel_launcher", "ctxkernel": "ctxkernel.kernel"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=400, help="cells a kernel and row (at least 200 for the docs)")
    parser.add_argument("--only", help="one row, by the beginning of its name")
    parser.add_argument("--json", action="store_true", help="numbers as JSON")
    args = parser.parse_args()
    rows: dict[str, Any] = {}
    if not args.json:
        print(f"request to idle for `pass`, {args.cells} cells a kernel, milliseconds")
        print(f"{'':18}{'ipykernel':>24}{'ctxkernel':>24}{'ratio':>22}")
        print(f"{'':18}" + f"{'p10':>8}{'p50':>8}{'CPU':>8}" * 2 + f"{'p10':>8}{'p50':>7}{'CPU':>7}")
    for name, setup in SETUPS.items():
        if args.only and not name.startswith(args.only):
            continue
        rows[name] = got = measure(setup, args.cells)
        if not args.json:
            stock, ours = got["ipykernel"], got["ctxkernel"]
            numbers = "".join(f"{side[key]:8.2f}" for side in (stock, ours) for key in ("p10", "p50", "cpu"))
            ratios = "".join(
                f"{ours[key] / stock[key]:{width}.2f}" for key, width in (("p10", 8), ("p50", 7), ("cpu", 7))
            )
            print(f"{name:18}{numbers}{ratios}", flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
