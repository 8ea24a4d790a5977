"""Linter, formatter, type checker and layer contracts, as tests: one command says whether the code is fit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def check(*command: str) -> None:
    """Run a checker in the repository; what it says is the failure's text."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout[-8000:]}\n{done.stderr[-2000:]}", pytrace=False)


def script(name: str) -> str:
    """Return the path of a console script of this environment."""
    found = [path for path in Path(sys.executable).parent.glob(f"{name}*") if path.stem == name]
    assert found, f"{name} is not installed; `pip install -e '.[test]'` brings it"
    return str(found[0])


def test_the_linter_has_nothing_to_say():
    check(sys.executable, "-m", "ruff", "check", ".")


def test_the_code_is_formatted():
    check(sys.executable, "-m", "ruff", "format", "--check", ".")


def test_the_types_hold():
    check(sys.executable, "-m", "pyright", "--project", str(ROOT), "--pythonpath", sys.executable)


def test_imports_go_downwards_only():
    check(script("lint-imports"), "--no-cache")


def test_the_layer_contract_names_every_package():
    """A package that no contract knows could import anything."""
    contracts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.search(r"^layers = (.*)$", contracts, re.MULTILINE)
    assert layers is not None
    named = set(re.findall(r"\w+", layers[1]))

    packages = {path.parent.name for path in (ROOT / "ctxkernel").glob("*/__init__.py")}

    assert packages - named == {"testing"} & packages
