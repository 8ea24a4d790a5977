"""Run the suites of Jupyter's own packages on ipykernel and on ctxkernel, and compare the results test by test.

    python tests/parity.py [SUITE …] [--folder DIR] [--write]

The first run makes an environment in `--folder` (default: the user's cache) with the versions that are installed here
and with what the suites need, and gets the suites from the source distributions of those versions; this needs a
network and some minutes. A test whose result differs runs twice more on both kernels, and counts if it differs each
time. The status is 1 if the differences are not those of docs/parity.json; `--write` writes them, and the tables of
docs/parity.md with them.

Rule 1: both kernels answer to the same names, `python3` and `python`, and have the same environment.
Rule 2: the tests of a suite are those of the version that is installed; its package is removed from what was unpacked,
        so that only the installed one is imported.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "parity.md"
FOUND = ROOT / "docs" / "parity.json"
KERNELS = {"ipykernel": "ipykernel_launcher", "ctxkernel": "ctxkernel.kernel"}
LIMIT = 3600
"""Seconds that a suite may take on one kernel."""
Results = dict[str, str]
"""The outcome of each test: passed, failed, error or skipped."""
Found = dict[str, Any]
"""The version of a suite, the number of tests by outcome on ipykernel, and the tests with another one on ctxkernel."""


@dataclass(frozen=True)
class Suite:
    """The tests of a package."""

    package: str
    tests: str = "tests"
    extra: str = "[test]"
    inside: bool = False
    """Whether the tests are modules of the package itself."""
    edit: tuple[str, str, str] = ("", "", "")
    """A file, a text in it, and what replaces the text, for both kernels."""

    @property
    def version(self) -> str:
        """The version that is installed here."""
        return importlib.metadata.version(self.package)


SUITES = (
    # The suite holds that the kernel's own version number is one of ipykernel's.
    Suite("ipykernel", edit=("tests/test_message_spec.py", 'min="2.1"', 'min="0"')),
    Suite("jupyter_client"),
    Suite("jupyter_kernel_test", "test_ipykernel.py", extra=""),
    Suite("nbclient"),
    # Only what executes a notebook starts a kernel.
    Suite("nbconvert", "tests/preprocessors tests/test_nbconvertapp.py -k execute"),
    Suite("papermill", "papermill/tests", inside=True),
)


class Folder:
    """The environment, the unpacked suites, and the folders that the kernels write into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.python = path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"

    def prepare(self) -> None:
        """Make the environment, and unpack the suites, where they are not there."""
        self.path.mkdir(parents=True, exist_ok=True)
        wanted = [f"{one.package}{one.extra}=={one.version}" for one in SUITES]
        made = self.path / "made"
        if not made.exists() or made.read_text() != repr(wanted):
            print(f"making {self.path / 'venv'}", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", self.path / "venv"], check=True)
            # hatchling and setuptools: what the source distributions tell of themselves is asked of these.
            self._pip("install", "-e", str(ROOT), "hatchling", "setuptools", "psutil", "pytest-timeout", *wanted)
            made.write_text(repr(wanted))
        for suite in SUITES:
            self._unpack(suite)

    def _pip(self, *arguments: str) -> None:
        subprocess.run([self.python, "-m", "pip", arguments[0], "--quiet", *arguments[1:]], check=True, cwd=self.path)

    def suite(self, suite: Suite) -> Path:
        """Return the folder of a suite."""
        return self.path / "suites" / f"{suite.package}-{suite.version}"

    def _unpack(self, suite: Suite) -> None:
        target = self.suite(suite)
        if target.exists():
            return
        named = f"{suite.package}=={suite.version}"
        options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
        self._pip("download", *options, "-d", str(self.path / "sdists"), named)
        (archive,) = (self.path / "sdists").glob(f"{suite.package}-{suite.version}.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(target.parent, filter="data")
        if not suite.inside:
            shutil.rmtree(target / suite.package)

    def environment(self, kernel: str) -> dict[str, str]:
        """Return the variables for the suites on one kernel, in whose kernelspecs `python3` is that kernel."""
        home = self.path / "homes" / kernel
        for name in ("python3", "python"):
            spec = home / "kernels" / name
            spec.mkdir(parents=True, exist_ok=True)
            told = json.loads((ROOT / "kernelspec" / "kernel.json").read_text(encoding="utf-8"))
            argv = [str(self.python), "-m", KERNELS[kernel], "-f", "{connection_file}"]
            (spec / "kernel.json").write_text(json.dumps({**told, "argv": argv, "display_name": "Python 3"}))
        own = {"JUPYTER_PATH": home, "XDG_CACHE_HOME": home / "cache", "IPYTHONDIR": home / "ipython"}
        path = os.pathsep.join([str(self.python.parent), os.environ["PATH"]])
        left = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {**left, **{name: str(value) for name, value in own.items()}, "PATH": path}


def run(folder: Folder, suite: Suite, kernel: str, only: Sequence[str] = ()) -> Results:
    """Return the outcomes of a suite on one kernel."""
    work = folder.path / "runs" / kernel / suite.package
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder.suite(suite), work)
    file, old, new = suite.edit
    if file:
        (work / file).write_text((work / file).read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    report = work / "report.xml"
    command = [
        folder.python, "-m", "pytest", *(only or suite.tests.split()), "-q", "-p", "no:cacheprovider",
        "--timeout", "120", f"--junitxml={report}", "-o", "junit_family=xunit1", "-o", "log_cli=false", "-W", "default",
    ]  # fmt: skip
    with (work / "output.txt").open("w") as output:
        subprocess.run(
            command, cwd=work, env=folder.environment(kernel), stdout=output, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, timeout=LIMIT, check=False,
        )  # fmt: skip
    if not report.exists():
        raise SystemExit(f"{suite.package} did not run on {kernel}: see {work / 'output.txt'}")
    return read(report)


def read(report: Path) -> Results:
    """Return the outcomes in a report, by the test's id."""
    found: Results = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        name = f"{case.get('file') or case.get('classname', '')}::{case.get('name')}"
        inside = case.get("classname", "").rsplit(".", 1)[-1]
        if inside[:1].isupper():
            name = name.replace("::", f"::{inside}::", 1)
        found[name] = {"failure": "failed"}.get(kinds[0], kinds[0]) if kinds else "passed"
    return found


def differing(stock: Results, ours: Results) -> dict[str, tuple[str, str]]:
    """Return the tests with two outcomes."""
    names = sorted(stock.keys() | ours.keys())
    both = {name: (stock.get(name, "absent"), ours.get(name, "absent")) for name in names}
    return {name: outcomes for name, outcomes in both.items() if outcomes[0] != outcomes[1]}


def compare(folder: Folder, suite: Suite) -> Found:
    """Run a suite on both kernels, and what differs twice more."""

    def on_both(only: Sequence[str] = ()) -> list[Results]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda kernel: run(folder, suite, kernel, only), KERNELS))

    stock, ours = on_both()
    differs = differing(stock, ours)
    for _ in range(2):
        if differs:
            again = differing(*on_both(list(differs)))
            differs = {name: both for name, both in differs.items() if again.get(name) == both}
    counts = {name: list(stock.values()).count(name) for name in ("passed", "failed", "error", "skipped")}
    return {"version": suite.version, **counts, "differences": {name: list(both) for name, both in differs.items()}}


def told(found: dict[str, Found]) -> str:
    """Return the table of the suites."""
    rows: list[str] = []
    for name in (suite.package for suite in SUITES if suite.package in found):
        one = found[name]
        failed = one["failed"] + one["error"]
        rows.append(
            f"| {name} {one['version']} | {one['passed']} | {one['skipped']} | {failed} | {len(one['differences'])} |"
        )
    return "\n".join(
        ["| suite | pass on ipykernel | skipped | fail on ipykernel, too | differ |", "|---|--:|--:|--:|--:|", *rows]
    )


BEGIN, END = "<!-- suites: written by tests/parity.py -->", "<!-- end of the suites -->"


def _stored() -> dict[str, Any]:
    return json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(one.package for one in SUITES))
    parser.add_argument("--folder", type=Path, default=Path(platformdirs.user_cache_dir("ctxkernel")) / "parity")
    parser.add_argument("--write", action="store_true", help="write docs/parity.json and the table of docs/parity.md")
    args = parser.parse_args()
    folder = Folder(args.folder.resolve())
    folder.prepare()
    stored = _stored()
    found: dict[str, Found] = {}
    status = 0
    for suite in SUITES:
        if args.suites and suite.package not in args.suites:
            continue
        one = found[suite.package] = compare(folder, suite)
        before = stored.get(suite.package, {}).get("differences")
        verdict = "as before" if before == one["differences"] else "CHANGED"
        status |= before != one["differences"]
        print(f"{suite.package} {one['version']}: {one['passed']} pass, {len(one['differences'])} differ: {verdict}")
        for name, (stock, ours) in one["differences"].items():
            print(f"  {name}: {stock} on ipykernel, {ours} on ctxkernel")
    if args.write:
        stored = {**_stored(), **found, "python": platform.python_version()}
        FOUND.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{told(stored)}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
        return 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
