"""Run tests against mutants of a module: what no test notices is not tested.

    python tests/mutants.py ctxkernel/core/timeline.py [--tests tests/test_loop.py …] [--most 50] [--seed 0]

A mutant is a copy of the package in which one operator, condition, constant, returned value or call of the module
is another. By default the tests are those that name the module. Each mutant that all of them pass is printed with its
line; the exit status is 1 where there is one. Some are equivalent to the original: a person has to judge.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OPERATORS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
}
Mutate = Callable[[Any], ast.AST | None]
"""Changes a node, in place or by returning another one for it."""


def mutations(node: ast.AST) -> Iterator[Mutate]:
    """Yield the changes that can be made to a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        yield lambda one: one.ops.__setitem__(0, OPERATORS[type(one.ops[0])]())
    if isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
        yield lambda one: setattr(one, "op", OPERATORS[type(one.op)]())
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield lambda one: setattr(one, "test", ast.UnaryOp(ast.Not(), one.test))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield lambda one: one.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield lambda one: ast.Constant(not one.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield lambda one: ast.Constant(one.value + 1)
    if isinstance(node, ast.Return) and node.value is not None:
        yield lambda one: setattr(one, "value", ast.Constant(None))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield lambda _: ast.Pass()


class Mutant(ast.NodeTransformer):
    """Makes the change number `wanted` in a tree."""

    def __init__(self, wanted: int) -> None:
        self.left = wanted
        self.line, self.before, self.after = 0, "", ""

    def visit(self, node: ast.AST) -> Any:
        """Visit a node, and change it if it is the one."""
        for mutate in mutations(node):
            if self.left == 0:
                self.line, self.before = node.lineno, ast.unparse(node).splitlines()[0]  # type: ignore[attr-defined]
                node = mutate(node) or node
                self.after = ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]
                self.left = -1
                return node
            self.left -= 1
        return self.generic_visit(node)


def places(tree: ast.AST, lines: range) -> list[int]:
    """Return the numbers of the changes that lie within `lines`."""
    found: list[int] = []
    number = 0

    def walk(node: ast.AST) -> None:
        nonlocal number
        for _ in mutations(node):
            if node.lineno in lines:  # type: ignore[attr-defined]
                found.append(number)
            number += 1
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(tree)
    return found


def tests_of(module: Path) -> list[str]:
    """Return the test files that import a module or name one of the classes and functions that it defines."""
    dotted = ".".join(module.with_suffix("").parts)
    files = sorted((ROOT / "tests").glob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if dotted in file.read_text(encoding="utf-8")]


def survives(folder: Path, tests: list[str], seconds: float) -> bool:
    """Return whether all tests pass against the package in a folder. One that does not end has noticed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return (
            subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=seconds, check=False).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def main() -> int:
    """Make mutants, run the tests against each, and print those that survive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path, help="a file of the package, relative to the repository")
    parser.add_argument("--tests", nargs="+", default=[], help="test files, or parts of them")
    parser.add_argument("--most", type=int, default=50, help="so many mutants, chosen at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", default="1-100000", help="only changes on these lines: 10-80")
    parser.add_argument("--seconds", type=float, default=120.0, help="the time limit of the tests of one mutant")
    given = parser.parse_args()
    tests = given.tests or tests_of(given.module)
    if not tests:
        parser.error(f"no test file names {given.module}; name some by --tests")
    first, _, last = given.lines.partition("-")
    tree = ast.parse((ROOT / given.module).read_text(encoding="utf-8"))
    numbers = places(tree, range(int(first), int(last or first) + 1))
    chosen = sorted(random.Random(given.seed).sample(numbers, min(given.most, len(numbers))))
    print(f"{len(chosen)} of {len(numbers)} mutants of {given.module}, against {', '.join(tests)}", flush=True)
    survivors = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(
            ROOT, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*", "node_modules", "__pycache__")
        )
        if not survives(folder, tests, given.seconds):
            print("the tests do not pass without a change", file=sys.stderr)
            return 2
        for number in chosen:
            mutant = Mutant(number)
            changed = ast.fix_missing_locations(mutant.visit(copy.deepcopy(tree)))
            (folder / given.module).write_text(ast.unparse(changed), encoding="utf-8")
            if survives(folder, tests, given.seconds):
                survivors += 1
                print(f"{given.module}:{mutant.line}: {mutant.before}  →  {mutant.after}", flush=True)
    print(f"{survivors} of {len(chosen)} survived")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
