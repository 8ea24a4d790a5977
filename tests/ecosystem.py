"""Run what other packages do in a kernel on ipykernel and on ctxkernel, and say where the results differ.

    python tests/ecosystem.py [NAME …] [--python PYTHON]

PYTHON is an interpreter with ctxkernel and the packages; a row whose package it lacks is left out. Each row is a few
cells, in a new kernel; what the last one prints is compared. On ctxkernel one more cell then returns to the state
after the first cell, and another one undoes this: neither may fail, and the last cell must print the same again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "benchmarks")]

from kernels import Kernel  # noqa: E402

KERNELS = {"ipykernel": "ipykernel_launcher", "ctxkernel": "ctxkernel.kernel"}
MODULE = "from pathlib import Path\nPath('mine.py').write_text({!r})"
ROWS: dict[str, tuple[str, list[str]]] = {
    "%autoreload": ("IPython", [
        MODULE.format("def f():\n    return 1\n"),
        "%load_ext autoreload\n%autoreload 2\nimport sys; sys.path.insert(0, '')\nimport mine\nfrom mine import f",
        "print(f(), mine.f())",
        "import time; time.sleep(1.1)\n" + MODULE.format("def f():\n    return 22\n"),
        "print(f(), mine.f())",
    ]),
    "Dask client": ("distributed", [
        "import os",
        "from dask.distributed import Client\nclient = Client(n_workers=2, dashboard_address=None)",
        "future = client.submit(sum, [1, 2, 3])\ntotal = future.result()",
        "import dask\nparts = [dask.delayed(pow)(n, 2) for n in range(5)]\nsquares = dask.compute(*parts)",
        "print(total, squares, client.submit(len, 'abcd').result())",
    ]),
    "ipyparallel client": ("ipyparallel", [
        "import os",
        "import ipyparallel as ipp\ncluster = ipp.Cluster(n=2)\nrc = cluster.start_and_connect_sync()\n_ = rc.ids",
        "squares = list(rc[:].map(lambda x: x**2, range(6)).get(60))",
        "%px n = 7",
        "print(squares, rc[:].pull('n').get(60), rc[:].apply(abs, -3).get(60))",
    ]),
    "MLflow": ("mlflow", [
        "import os\nos.environ['MLFLOW_DISABLE_TELEMETRY'] = 'true'",
        "import mlflow\nmlflow.set_tracking_uri('sqlite:///runs.db')\nexperiment = mlflow.set_experiment('e')",
        "with mlflow.start_run() as run:\n    mlflow.log_param('a', 1)\n    mlflow.log_metric('loss', 0.5)",
        "found = mlflow.search_runs(['%s' % experiment.experiment_id])",
        "print(len(found), found['metrics.loss'].iloc[0], found['params.a'].iloc[0])",
    ]),
    "W&B, offline": ("wandb", [
        "import os\nos.environ['WANDB_MODE'] = 'offline'\nos.environ['WANDB_SILENT'] = 'true'",
        "import wandb\nrun = wandb.init(project='p', dir='.')",
        "for n in range(3):\n    run.log({'loss': 1 / (n + 1)})",
        "summary = round(run.summary['loss'], 3)\nrun.finish()",
        "print(summary, len(list(__import__('pathlib').Path('wandb').glob('offline-run-*'))))",
    ]),
    "TensorBoard magic": ("tensorboard", [
        "import os\nos.makedirs('logs', exist_ok=True)",
        "%load_ext tensorboard",
        "%tensorboard --logdir logs --port 0",
        "from tensorboard import manager\nfound = manager.get_all()",
        "print(len(found) >= 1)",
    ]),
    "%matplotlib widget": ("ipympl", [
        "%matplotlib widget\nimport matplotlib.pyplot as plt",
        "fig, ax = plt.subplots()\nline, = ax.plot([1, 2, 3])",
        "fig.canvas.draw()\nline.set_ydata([3, 2, 1])",
        "import matplotlib",
        "print(matplotlib.get_backend().split('.')[-1], type(fig.canvas).__name__, list(line.get_ydata()))",
    ]),
    "%matplotlib inline": ("matplotlib", [
        "%matplotlib inline\nimport matplotlib.pyplot as plt",
        "fig, ax = plt.subplots()\nax.plot([1, 2, 3])\nplt.close(fig)",
        "%config InlineBackend.figure_formats = ['svg']",
        "fig",
        "print(len(ax.lines))",
    ]),
    "%%timeit, %prun, %pdb": ("IPython", [
        "x = 1",
        "%timeit -n 1 -r 1 x + 1",
        "%prun -q sum(range(10))",
        "%pdb on\n%pdb off",
        "print(x)",
    ]),
}  # fmt: skip


def missing(python: str, package: str) -> bool:
    """Return whether an interpreter lacks a package."""
    return bool(subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode)


def play(python: str, kernel: str, cells: list[str]) -> tuple[str, list[str]]:
    """Run cells in a new kernel; return what the last one printed, and what failed."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started = Kernel(KERNELS[kernel], Path(folder), python=python, env={"PATH": path_of(python)})
        failed: list[str] = []

        def run(code: str) -> str:
            ran = started.run(code, timeout=180)
            if ran.status != "ok":
                failed.append(f"{code.splitlines()[0][:60]}: {ran.error}")
            return ran.text

        try:
            *_, last = [run(code) for code in cells]
            if kernel == "ctxkernel":
                run("%ctx goto 1")
                run("%ctx undo")
                again = run(cells[-1])
                if last.strip() not in again:  # an open figure is displayed once more
                    failed.append(f"after a return: {again.strip()!r}, was {last.strip()!r}")
            return last.strip(), failed
        finally:
            started.stop()
            stop_session(started.pid)


def stop_session(kernel: int) -> None:
    """End what a kernel started and left behind: a server of TensorBoard, a cluster."""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == kernel:
                process.kill()


def path_of(python: str) -> str:
    """Return a PATH that begins with the interpreter's programs."""
    return os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])


def main() -> int:
    """Run the rows that were asked for; the status is 1 if one differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--python", default=sys.executable)
    args = parser.parse_args()
    status = 0
    for name in args.names or ROWS:
        package, cells = ROWS[name]
        if missing(args.python, package):
            print(f"{name}: left out, {package} is not installed")
            continue
        stock, ours = (play(args.python, kernel, cells) for kernel in KERNELS)
        good = stock[0] == ours[0] and not ours[1]
        status |= not good
        print(f"{name}: {'the same' if good else 'DIFFERS'}: {ours[0]!r}", flush=True)
        if not good:
            print(f"  ipykernel: {stock}\n  ctxkernel: {ours}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
