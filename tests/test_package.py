"""What a user installs: the wheel's files, kernelspec, panel, declared dependencies, and the README's promises."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import ctxkernel
from ctxkernel._version import __version__
from ctxkernel.cli import build_parser

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree without a network."""
    target = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(target),
        ".",
    ]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def data(below: str) -> str:
    """Path of an installed data file inside the wheel."""
    return f"jupyter_ctxkernel-{__version__}.data/data/share/jupyter/{below}"


def test_the_wheel_registers_the_kernel(names: set[str]):
    for file in ("kernel.json", "logo-32x32.png", "logo-64x64.png", "logo-svg.svg"):
        assert data(f"kernels/ctxkernel/{file}") in names


def test_the_wheel_brings_every_file_of_the_panel(names: set[str]):
    panel = ROOT / "ctxkernel" / "lab"
    files = [path.relative_to(panel).as_posix() for path in panel.rglob("*") if path.is_file()]

    assert "package.json" in files
    assert "install.json" in files
    # What Lab serves has the version in its address, so that no proxy can mix the modules of two versions.
    of_lab = [file for file in files if not file.startswith("widget/") and not file.endswith(".d.ts")]
    served = [file.replace("app/", f"app-{__version__}/", 1) for file in of_lab]
    assert {data(f"labextensions/jupyter-ctxkernel/{file}") for file in served} <= names
    assert data(f"labextensions/jupyter-ctxkernel/app-{__version__}/render.js") in names
    # `%ctx panel` reads the renderer from the package itself.
    assert {f"ctxkernel/lab/{file}" for file in files} <= names


def test_lab_finds_the_entry_of_the_panel(wheel: Path, names: set[str]):
    with zipfile.ZipFile(wheel) as archive:
        package = json.loads(archive.read(data("labextensions/jupyter-ctxkernel/package.json")))

    assert data(f"labextensions/jupyter-ctxkernel/{package['jupyterlab']['_build']['load']}") in names


def test_the_wheel_brings_the_tour_and_every_module(names: set[str]):
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ctxkernel").rglob("*.py")}

    # Its asks are answered from the turns.
    assert {"ctxkernel/_tour/01-tour.ipynb", "ctxkernel/_tour/01-tour.turns.json"} <= names
    assert modules <= names


def test_the_wheel_gives_pytest_its_plugin(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        (entries,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        text = archive.read(entries).decode()

    assert "[pytest11]\nctxkernel = ctxkernel.cli.pytest_plugin" in text


def test_a_notebook_that_asks_comes_with_its_turns():
    """The source distribution holds the folder; the wheel has the tour and its turns alone."""
    asking = [path for path in (ROOT / "notebooks").glob("*.ipynb") if "%%ask" in path.read_text(encoding="utf-8")]

    assert asking
    assert all(path.with_suffix(".turns.json").is_file() for path in asking)
    assert "/notebooks" in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


def test_the_wheel_brings_nothing_else(names: set[str]):
    """No tests, caches, sessions or notebooks with somebody's outputs."""
    assert not [name for name in names if not name.startswith(("ctxkernel/", "jupyter_ctxkernel-"))]
    assert not [name for name in names if re.search(r"__pycache__|\.sqlite|\.ipynb_checkpoints|node_modules", name)]


def test_the_installed_wheel_is_found_by_jupyter(wheel: Path, tmp_path: Path):
    """Installed into a folder of its own, kernelspec and panel are where Jupyter looks for them."""
    # --ignore-installed: or pip takes the installation that is tested for this one, or even removes it.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--ignore-installed", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--prefix", str(tmp_path), str(wheel)], check=True, timeout=240)
    environment = {**os.environ, "JUPYTER_PATH": str(tmp_path / "share" / "jupyter")}

    listed = subprocess.run(
        [sys.executable, "-m", "jupyter", "kernelspec", "list", "--json"],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    panels = subprocess.run(
        [sys.executable, "-m", "jupyter", "labextension", "list"],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    spec = json.loads(listed.stdout)["kernelspecs"]["ctxkernel"]
    assert Path(spec["resource_dir"]).is_relative_to(tmp_path)
    assert re.search(rf"jupyter-ctxkernel v{re.escape(__version__)}.*enabled.*OK", panels.stdout + panels.stderr)


def test_there_is_one_version():
    package = json.loads((ROOT / "ctxkernel" / "lab" / "package.json").read_text(encoding="utf-8"))

    assert package["version"] == __version__ == ctxkernel.__version__


def test_the_kernelspec_says_what_ipykernel_can_do():
    """Debugger and encryption are ipykernel's; a kernelspec that promises less or more is wrong."""
    from ipykernel.kernelspec import get_kernel_dict

    spec = json.loads((ROOT / "kernelspec" / "kernel.json").read_text(encoding="utf-8"))
    theirs = get_kernel_dict()["metadata"]
    if isinstance(theirs["supported_encryption"], str):  # ipykernel 7.3 wrote it without the list
        theirs = {**theirs, "supported_encryption": [theirs["supported_encryption"]]}

    assert spec["metadata"] == theirs
    assert spec["argv"] == ["python", "-m", "ctxkernel.kernel", "-f", "{connection_file}"]


def test_labextension_develop_finds_the_panel():
    (entry,) = ctxkernel._jupyter_labextension_paths()

    assert (Path(ctxkernel.__file__).parent / entry["src"] / "package.json").is_file()
    assert entry["dest"] == "jupyter-ctxkernel"


def canonical(name: str) -> str:
    """Return the registry's spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_import_is_a_declared_dependency():
    """What is only there because something else happens to bring it is missing one day."""
    declared = {canonical(re.split(r"[<>=\[; ]", entry)[0]) for entry in PROJECT["project"]["dependencies"]}
    optional = {
        "aiohttp",
        "dask",
        "distributed",
        "fsspec",
        "numpy",
        "pandas",
        "pillow",
        "psutil",
        "pyarrow",
        "pypdf",
        "jupytext",
        "jupyterlab",
        "mcp",
        "pytest",
        "uvicorn",
    }  # looked at, never required: imported only where they are there
    known = importlib.metadata.packages_distributions()
    missing = set()
    for path in (ROOT / "ctxkernel").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for top in {module.partition(".")[0] for module in modules} - set(sys.stdlib_module_names) - {"ctxkernel"}:
                distributions = {canonical(name) for name in known.get(top, [top])}
                if not distributions & (declared | optional):
                    missing.add(f"{top} in {path.relative_to(ROOT)}")

    assert not missing


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_ci_runs_the_command_of_the_readme():
    """`.ci/run` takes the command out of the README: there must be exactly one."""
    assert len(re.findall(r"(?m)^python3 -m venv .* -m pytest$", readme())) == 1
    script = ROOT / ".ci" / "run"
    assert "^python3 -m venv .* -m pytest$" in script.read_text(encoding="utf-8")
    assert os.name != "posix" or script.stat().st_mode & stat.S_IXUSR


def commands() -> set[str]:
    """Return the commands that the parser knows."""
    action = next(action for action in build_parser()._actions if action.dest == "command")
    assert action.choices is not None
    return set(action.choices)


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md"])
def test_the_documentation_names_exactly_the_commands_that_exist(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^(?:\| |## )`ctxkernel (\w+)", text)

    assert set(rows) == commands()


def test_the_readme_names_exactly_the_subcommands_of_the_magic_that_exist():
    from ctxkernel.kernel.commands.table import COMMANDS

    table = "\n".join(line for line in readme().splitlines() if line.startswith(("| `%ctx", "| `%%ask")))

    assert set(re.findall(r"%ctx (\w+)", table)) == set(COMMANDS)


def test_links_between_pages_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)} → {link}"
        for page in pages
        for link in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]

    assert not broken
