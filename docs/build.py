"""Build the documentation as a site: `python docs/build.py [--execute] [--output DIR]`.

A warning is an error. Notebooks are shown with the outputs of their last execution, in `build/executed`, where the
tests leave theirs; `--execute` executes those that have none there or that changed. Nothing is loaded from a network.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from reference_pages import EXECUTED, ROOT, sources
from sphinx.cmd.build import main as sphinx

FIRST = (
    '<!doctype html><meta charset="utf-8"><title>ctxkernel</title>'
    '<meta http-equiv="refresh" content="0; url=docs/index.html">'
)


def execute(notebook: Path) -> None:
    """Execute a copy of a notebook with its recorded turns, unless that was done for the same cells."""
    done = EXECUTED / notebook.name
    cells = sources(json.loads(notebook.read_text(encoding="utf-8")))
    if done.exists() and sources(json.loads(done.read_text(encoding="utf-8"))) == cells:
        return
    EXECUTED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for file in notebook.parent.glob(f"{notebook.stem}.*"):
            (Path(folder) / file.name).write_bytes(file.read_bytes())
        print(f"executing {notebook.name}", flush=True)
        command = [sys.executable, "-m", "ctxkernel", "run", notebook.name, "--trust", "--output", str(done)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Build; the status is 1 where Sphinx has a warning."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--execute", action="store_true", help="execute notebooks that were not executed yet")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site")
    args = parser.parse_args()
    if args.execute:
        for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
            execute(notebook)
    # -E: what directives make, and the outputs of notebooks, have no file that Sphinx could compare.
    options = ["-E", "-W", "--keep-going", "-q", "-b", "html", "-c", str(ROOT / "docs")]
    status = sphinx([*options, "-d", str(ROOT / "build" / "doctrees"), str(ROOT), str(args.output)])
    if status == 0:
        (args.output / "index.html").write_text(FIRST, encoding="utf-8")
        print(f"The site is in {args.output}: open {args.output / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
