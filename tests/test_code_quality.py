"""Linter, formatter, type checker and layer contracts, as tests: one command says whether the code is fit."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

import long_tests
import pytest

ROOT = Path(__file__).resolve().parent.parent


def check(*command: str, seconds: float = 240) -> None:
    """Run a checker in the repository; what it says is the failure's text."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
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


@pytest.mark.timeout(900)
def test_the_types_hold():
    check(sys.executable, "-m", "pyright", "--project", str(ROOT), "--pythonpath", sys.executable, seconds=800)


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


def test_no_module_has_more_than_500_lines_and_no_function_more_than_60():
    """What is longer is split where a reader would look for its parts."""
    found: list[str] = []
    for path in sorted((ROOT / "ctxkernel").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) > 500:
            found.append(f"{path.relative_to(ROOT)} has {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                found += [f"{path.relative_to(ROOT)}: {node.name} has {lines} lines"] if lines > 60 else []
    assert found == []


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def imported(tree: ast.Module) -> dict[str, str]:
    """Return local names → the modules, or the names in modules, that they were imported from."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.asname or one.name.partition(".")[0]: one.name for one in node.names}
    return found


def private_members(tree: ast.Module) -> set[str]:
    """Return the private names of the classes of a module, and of their instances."""
    found: set[str] = set()
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in ast.walk(cls):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and owner_of(node) == "self":
                found.add(node.attr)
    return set(filter(is_private, found))


def owner_of(node: ast.Attribute) -> str:
    return ast.unparse(node.value)


def borrowed_names(tree: ast.Module, modules: Container[str], members: set[str]) -> Iterator[str]:
    """Yield the uses of private names of `modules`, and of `members` of classes that they define.

    Subclasses use those of their bases through `self`. In `gc._x`, where `gc` is imported, `_x` belongs to `gc`.
    """
    names = imported(tree)
    for local, origin in names.items():
        if is_private(origin.rpartition(".")[2]) and origin.rpartition(".")[0] in modules:
            yield f"{origin} as {local}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = owner_of(node)
            origin = names.get(owner.partition(".")[0], "ctxkernel.")
            foreign = owner in ("self", "cls", "super()") or not origin.startswith("ctxkernel.")
            if origin in modules or (node.attr in members and not foreign):
                yield f"{node.lineno}: {owner}.{node.attr}"


def test_a_docstring_of_a_function_begins_with_what_it_does():
    """PEP 257: "Return whether …", as for any other value. The docstring of a field may begin with "Whether"."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {text.splitlines()[0]}"
        for path in (ROOT / "ctxkernel").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (text := ast.get_docstring(node) or "").startswith(("Whether ", "Say whether ", "Says whether "))
    ]

    assert found == []


def test_no_module_uses_private_names_of_another():
    """What others use is public, and has a docstring."""
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for path in (ROOT / "ctxkernel").rglob("*.py")
    }
    members = {module: private_members(tree) for module, tree in trees.items()}
    direct = {
        module: {one if one in trees else one.rpartition(".")[0] for one in imported(tree).values()} & trees.keys()
        for module, tree in trees.items()
    }

    def of_imported(module: str) -> set[str]:
        """Return the private members of classes of modules that `module` imports, directly or not."""
        reached, todo = set(), [module]
        while todo:
            fresh = direct[todo.pop()] - reached
            reached |= fresh
            todo += fresh
        return set().union(*map(members.__getitem__, reached)) - members[module] - set(dir(NamedTuple("Row", [])))

    borrowed = {module: list(borrowed_names(tree, trees, of_imported(module))) for module, tree in trees.items()}

    assert {module: found for module, found in borrowed.items() if found} == {}


@pytest.mark.parametrize("pattern", [*long_tests.LONG, *long_tests.FEW_ROWS])
def test_a_test_that_the_quick_run_leaves_out_exists(pattern: str):
    file, _, rest = pattern.partition("::")
    name = re.split(r"[\[*]", rest)[0]

    assert f"def {name}" in (ROOT / "tests" / file).read_text(encoding="utf-8")
