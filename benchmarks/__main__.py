"""All benchmarks in one table, each with its peer in the same run and its aim.

    python -m benchmarks [--only NAME …] [--full] [--json FILE] [--write]
    python -m benchmarks --compare BEFORE.json AFTER.json [--tolerance SHARE]

Without `--full` the sizes are small, and the whole takes some minutes. `--write` writes the figures into
docs/performance.json and docs/performance.md. The scripts beside this file have more tables, each with options of its
own. The status is 1 if a benchmark failed, or if a figure of a comparison became worse.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.registry import BENCHMARKS, Size, measure
from benchmarks.results import HEAD, ROOT, Measured, comparison, figure_of, page_with, read, rows, seconds_of, this_run

PAGE = ROOT / "docs" / "performance.md"


def in_a_process(name: str, full: bool) -> Measured:
    """Run a benchmark in a process of its own."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks",
            "--one",
            name,
            "--json",
            str(file),
            *(["--full"] if full else []),
        ]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        figures = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    error = (done.stderr or f"exit status {done.returncode}") if done.returncode else ""
    return Measured(tuple(map(figure_of, figures)), round(time.perf_counter() - began, 1), error[-2000:])


def run(names: list[str], full: bool, file: Path | None, write: bool) -> int:
    """Run benchmarks, print their table, and write what was asked for."""
    print(HEAD, flush=True)
    found: dict[str, Measured] = {}
    for name in names:
        found[name] = in_a_process(name, full)
        print(*rows(name, found[name]), sep="\n", flush=True)
    made = this_run("full" if full else "small", found)
    print(f"\n{made.machine}; {seconds_of(list(found.values())):.0f} s")
    if file:
        made.write(file)
    if write:
        made.write(PAGE.with_suffix(".json"))
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    return int(any(one.error for one in found.values()))


def compare(before: Path, after: Path, tolerance: float) -> int:
    """Print the comparison of two files."""
    try:
        told, worse = comparison(read(before), read(after), tolerance)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(told)
    return int(worse > 0)


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="this benchmark; may be given again")
    parser.add_argument("--full", action="store_true", help="the large sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument("--write", action="store_true", help="write the figures into the documentation")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"), help="compare two files")
    parser.add_argument("--tolerance", type=float, default=0.25, help="a change that is not reported (default 0.25)")
    parser.add_argument("--one", choices=BENCHMARKS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.compare:
        return compare(*args.compare, args.tolerance)
    if args.one:
        figures = measure(args.one, Size(args.full))
        args.json.write_text(json.dumps([asdict(one) for one in figures]), encoding="utf-8")
        return 0
    if args.write and args.only:
        parser.error("--write needs all benchmarks: leave --only out")
    return run(args.only or list(BENCHMARKS), args.full, args.json, args.write)


if __name__ == "__main__":
    sys.exit(main())
