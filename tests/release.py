"""Check a release: what it contains, that it installs, and that it reads what earlier versions wrote.

    python tests/release.py check                build wheel and sdist, check their contents and their description
    python tests/release.py install [PYTHON …]   install the wheel into an empty environment of each Python, and use it
    python tests/release.py upgrade [COMMIT …]   continue sessions that the code of earlier commits made
    python tests/release.py sbom [FILE]          write the dependencies with versions and licences (CycloneDX JSON)

All but `upgrade` need a network: for the tools of the extra [release], or for the dependencies. Without arguments
`install` takes each Python from 3.11 on that is found, and `upgrade` the commits of `OLD`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
OLD = ("efa2f68", "081a9a3", "24a9bb1")
"""Commits that store states in the present form, oldest first. Of older ones the cells run again."""
SDIST = (
    "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "pyproject.toml", "hatch_build.py",
    "docs/conf.py", "docs/index.md", "notebooks/01-tour.ipynb", "notebooks/01-tour.turns.json", "tests/test_loop.py",
    "benchmarks/__main__.py", "kernelspec/kernel.json", "ctxkernel/lab/package.json",
)  # fmt: skip
NEVER = re.compile(
    r"__pycache__|\.pyc$|\.sqlite|\.ipynb_checkpoints|node_modules|\.ctxkernel/|^[^/]+/(build|dist)/|\.env$"
)
CELLS = ("x = [1, 2, 3]", "y = {'a': x}", "x.append(4)\nprint(len(x))", "v = view(x)\nv")
USE = (
    "import json, subprocess, sys\n"
    "assert 'site-packages' in __import__('ctxkernel').__file__\n"
    "run = lambda *a: subprocess.run([sys.executable, '-m', 'ctxkernel', *a], capture_output=True, text=True)\n"
    "done = run('run', 'note.ipynb')\n"
    "assert done.returncode == 0, done.stderr\n"
    "report = json.loads(run('doctor', '--json').stdout)\n"
    "assert report['ok'], report\n"
    "done = run('goto', 'note.ipynb', '2')\n"
    "assert done.returncode == 0, done.stderr\n"
    "print(report['version'], [c['name'] for c in report['checks'] if c['status'] != 'ok'])\n"
)


def command(*words: str | Path, folder: Path = ROOT, **env: str) -> str:
    """Run a command and return its output. Exits where it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


@contextmanager
def built() -> Iterator[Path]:
    """Build both distributions into a folder."""
    with tempfile.TemporaryDirectory() as name:
        command(sys.executable, "-m", "build", "--no-isolation", "--outdir", name)
        yield Path(name)


def named(folder: Path, ending: str) -> Path:
    """Return the one file in a folder whose name ends so."""
    (found,) = folder.glob(f"*{ending}")
    return found


def check() -> None:
    """Check the contents of wheel and sdist."""
    with built() as folder:
        print(command(sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir()).strip())
        wheel, sdist = named(folder, ".whl"), named(folder, ".tar.gz")
        with zipfile.ZipFile(wheel) as archive:
            of_wheel = archive.namelist()
        with tarfile.open(sdist) as archive:
            of_sdist = [one.name.partition("/")[2] for one in archive if one.isfile()]
        missing = [name for name in SDIST if name not in of_sdist]
        wrong = [name for name in (*of_wheel, *of_sdist) if NEVER.search(name)]
        tracked = command("git", "ls-files").splitlines()
        left = [name for name in tracked if name not in of_sdist and not name.startswith(".ci/")]
        print(f"{wheel.name}: {len(of_wheel)} files, {wheel.stat().st_size / 1e6:.1f} MB")
        print(f"{sdist.name}: {len(of_sdist)} files, {sdist.stat().st_size / 1e6:.1f} MB")
        # The wheel that is built from the sdist is the one that is built from the checkout.
        with tempfile.TemporaryDirectory() as again:
            with tarfile.open(sdist) as archive:
                archive.extractall(again, filter="data")
            (tree,) = Path(again).iterdir()
            command(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tree / "out", folder=tree)
            with zipfile.ZipFile(named(tree / "out", ".whl")) as archive:
                other = sorted(set(archive.namelist()) ^ set(of_wheel))
    for told, names in (
        ("missing", missing),
        ("not to be there", wrong),
        ("not in the sdist", left),
        ("differ", other),
    ):
        print(f"{told}: {', '.join(names[:10]) or 'none'}")
    if missing or wrong or left or other:
        raise SystemExit(1)


def notebook(folder: Path) -> None:
    """Write the notebook that is run."""
    cells = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for n, source in enumerate(CELLS)
    ]
    made = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "note.ipynb").write_text(json.dumps(made), encoding="utf-8")


def install(pythons: Sequence[str]) -> None:
    """Install the wheel into an empty environment of each Python, run a notebook, go back, and ask the doctor."""
    found = list(pythons) or [name for name in PYTHONS if shutil.which(name) and works(name)]
    with built() as folder:
        for python in found:
            with tempfile.TemporaryDirectory() as name:
                home = Path(name)
                command(python, "-m", "venv", home / "venv")
                inside = home / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
                command(inside, "-m", "pip", "install", "--quiet", named(folder, ".whl"), folder=home)
                notebook(home)
                places = {"XDG_CACHE_HOME": name, "XDG_DATA_HOME": name, "PYTHONPATH": ""}
                version = command(inside, "-c", "import platform; print(platform.python_version())").strip()
                print(f"Python {version}: {command(inside, '-c', USE, folder=home, **places).strip()}", flush=True)


def works(python: str) -> bool:
    """Return whether a command starts a Python."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def upgrade(commits: Sequence[str]) -> None:
    """Make a session with old code, and read, verify, resume and return in it with today's."""
    for commit in commits or OLD:
        with tempfile.TemporaryDirectory() as name:
            home, old = Path(name), Path(name) / "old"
            packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(old, filter="data")
            notebook(home)
            places = {"XDG_CACHE_HOME": str(home / "cache"), "XDG_DATA_HOME": str(home / "data")}
            python = [sys.executable, "-m", "ctxkernel"]
            command(*python, "run", "note.ipynb", folder=home, **places, PYTHONPATH=str(old))
            now = {**places, "PYTHONPATH": str(ROOT)}
            timeline = json.loads(command(*python, "timeline", "note.ipynb", "--json", folder=home, **now))
            assert len(timeline["statements"]) == len(CELLS), timeline
            command(*python, "trust", "note.ipynb", folder=home, **now)
            verified = json.loads(command(*python, "verify", "note.ipynb", "--json", folder=home, **now))
            command(*python, "goto", "note.ipynb", "2", folder=home, **now)
            resumed = command(*python, "run", "note.ipynb", "--resume", folder=home, **now)
            command(*python, "export", "note.ipynb", "--output", "note.html", folder=home, **now)
            print(
                f"{commit}: {verified['restorable']} of {len(CELLS)} states restorable; {resumed.splitlines()[-1][:60]}"
            )


def sbom(file: Path) -> None:
    """Write the dependencies of an environment that has the wheel and nothing else."""
    with built() as folder, tempfile.TemporaryDirectory() as name:
        command(sys.executable, "-m", "venv", Path(name) / "venv")
        inside = Path(name) / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
        command(inside, "-m", "pip", "install", "--quiet", f"{named(folder, '.whl')}[lab]", folder=Path(name))
        options = ["--gather-license-texts", "--output-reproducible", "--pyproject", str(ROOT / "pyproject.toml")]
        command(sys.executable, "-m", "cyclonedx_py", "environment", *options[1:], "-o", file.resolve(), inside)
    parts = json.loads(file.read_text(encoding="utf-8"))["components"]
    licences: dict[str, list[str]] = {}
    for one in parts:
        names = [
            entry.get("expression") or entry["license"].get("id") or entry["license"].get("name", "")
            for entry in one.get("licenses", [])
        ]
        licences.setdefault(" / ".join(sorted(set(names)))[:60] or "not stated", []).append(one["name"])
    for licence, names in sorted(licences.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):4}  {licence}: {', '.join(sorted(names)[:6])}{' …' if len(names) > 6 else ''}")
    print(f"{len(parts)} packages: {file}")


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("check")
    parts.add_parser("install").add_argument("pythons", nargs="*", metavar="PYTHON")
    parts.add_parser("upgrade").add_argument("commits", nargs="*", metavar="COMMIT")
    parts.add_parser("sbom").add_argument("file", nargs="?", type=Path, default=ROOT / "build" / "sbom.json")
    args = parser.parse_args()
    match args.part:
        case "check":
            check()
        case "install":
            install(args.pythons)
        case "upgrade":
            upgrade(args.commits)
        case _:
            args.file.parent.mkdir(parents=True, exist_ok=True)
            sbom(args.file)


if __name__ == "__main__":
    main()
