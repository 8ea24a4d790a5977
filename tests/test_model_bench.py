"""The tasks of the benchmark can tell right from wrong; and its results add up."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from kernels import StartKernel

from ctxkernel.model_bench.catalogue import TASKS
from ctxkernel.model_bench.task import Solution, Task, check_cell

ROOT = Path(__file__).resolve().parent.parent


def test_there_are_thirty_tasks_with_names_and_questions_of_their_own():
    assert len(TASKS) == 30
    assert [task.name for task in TASKS.values()] == list(TASKS)
    assert len({task.question for task in TASKS.values()}) == 30
    assert all(name == name.lower() and " " not in name for name in TASKS)


def test_the_page_describes_every_task():
    page = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `([a-z-]+)` \| (.*) \|$", page.partition("## The tasks")[2])

    assert rows == [(task.name, task.measures) for task in TASKS.values()]


def outcome(task: Task, solution: Solution, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Execute a task with a solution in a new folder; return the error of the check."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for cell in (*task.setup, *solution.cells):
            try:
                exec(compile(cell, "<cell>", "exec"), names)
            except (TypeError, UnicodeDecodeError):
                assert task.name in ("wrong-type", "encoding")
        try:
            exec(check_cell(task, solution.words), names)
        except Exception as fault:
            return f"{type(fault).__name__}: {fault}"
        return ""
    finally:
        for name in [name for name in sys.modules if name.startswith("netkit")]:
            del sys.modules[name]


USE_HANDLES = [name for name, task in TASKS.items() if "view(" in str(task.setup)]


@pytest.mark.parametrize("name", [name for name in TASKS if name not in USE_HANDLES])
def test_the_solution_passes_and_the_wrong_one_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    task = TASKS[name]

    assert outcome(task, task.solution, tmp_path / "right", monkeypatch) == ""
    assert outcome(task, task.wrong, tmp_path / "wrong", monkeypatch).startswith("AssertionError")
    assert outcome(task, Solution((), ""), tmp_path / "idle", monkeypatch), "no work at all passes"


@pytest.mark.parametrize("name", USE_HANDLES)
def test_the_same_holds_for_tasks_with_handles(start_kernel: StartKernel, tmp_path: Path, name: str):
    task = TASKS[name]
    for solution, expected in ((task.solution, ""), (task.wrong, "AssertionError")):
        folder = tmp_path / (expected or "right")
        folder.mkdir()
        kernel = start_kernel(folder)
        for cell in (*task.setup, *solution.cells):
            assert kernel.run(cell).status == "ok"
        reply = kernel.run(check_cell(task, solution.words), silent=True).reply
        assert reply.get("ename", "") == expected, reply
        assert len(json.loads(kernel.run("%ctx timeline --json").stdout)["statements"]) == len(task.setup) + len(
            solution.cells
        )
