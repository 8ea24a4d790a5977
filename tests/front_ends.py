"""The browser tests on other front ends than the one that is installed here.

    python tests/front_ends.py                      # all of them, each in a new environment
    python tests/front_ends.py 4.2 notebook         # some
    python tests/front_ends.py 4.4 -- -k marks      # with arguments for pytest

Each front end is installed with pip into an environment of its own below `--folder` (where it is found again); the
kernels are those of this Python. The last lines say which tests failed where.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDGETS = "anywidget"
"""Draws handles and the inline panel; it comes with ctxkernel into the environment of JupyterLab."""
FRONT_ENDS = {
    "4.2": ("jupyterlab==4.2.*", WIDGETS),
    "4.4": ("jupyterlab==4.4.*", WIDGETS),
    "newest": ("jupyterlab>=4.2,<5", WIDGETS),
    "notebook": ("notebook>=7,<8", WIDGETS),
    "collaboration": ("jupyterlab>=4.2,<5", "jupyter-collaboration", WIDGETS),
}
OLDEST = "4.2"
"""The one that pyproject.toml allows first."""
TESTS = [
    f"tests/browser/test_{name}.py"
    for name in ("marks", "following", "returning", "panel", "timeline", "asking", "interruptions", "stock_kernel")
]
TESTS_OF = {"collaboration": ["tests/browser/test_collaboration.py"]}


def install(name: str, folder: Path) -> str:
    """Return the Python of an environment with a front end; make it where it is missing."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = folder / "installed"
    if not done.is_file():
        venv.create(folder, with_pip=False, clear=True)
        # The pip of this environment writes into that one: to install a pip there takes four seconds.
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
        subprocess.run([*pip, "--disable-pip-version-check", *FRONT_ENDS[name]], check=True, timeout=600)
        done.touch()
    return str(python)


def environment(name: str, python: str) -> dict[str, str]:
    """Return the environment in which tests/browser uses a front end."""
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    package = "notebook" if name == "notebook" else "jupyterlab"
    asks = [python, "-c", f"from importlib.metadata import version; print(version({package!r}))"]
    version = subprocess.run(asks, capture_output=True, text=True, check=True).stdout.strip()
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TESTED_LAB": python,
        "TESTED_VERSION": version,
        **({"TESTED_NOTEBOOK": "7"} if name == "notebook" else {}),
    }


def main(arguments: Sequence[str]) -> int:
    """Run the tests; return whether any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FRONT_ENDS)}")
    parser.add_argument("--folder", type=Path, help="where the environments are kept (default: nowhere)")
    own, theirs = list(arguments), []
    if "--" in own:
        at = own.index("--")
        own, theirs = own[:at], own[at + 1 :]
    given = parser.parse_args(own)
    if unknown := set(given.names) - set(FRONT_ENDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(FRONT_ENDS)}")
    told: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ctxkernel-front-ends-") as made:
        for name in given.names or FRONT_ENDS:
            python = install(name, (given.folder or Path(made)) / name)
            code = run(name, python, theirs)
            told.append(f"{name}: {'passed' if code == 0 else f'failed (pytest exit code {code})'}")
    print("\n".join(told))
    return int(any("failed" in line for line in told))


def run(name: str, python: str, arguments: Sequence[str]) -> int:
    """Run the tests on one front end; return pytest's exit code."""
    print(f"+ {name}: {python}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", *TESTS_OF.get(name, TESTS), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(name, python), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
