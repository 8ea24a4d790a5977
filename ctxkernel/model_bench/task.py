"""The parts of a task of the benchmark.

Rule 1: a task is judged by assertions on the variables, the files and the model's last words, never by its code.
Rule 2: each task has a solution that passes the assertions and a wrong one that does not; a test proves both.
"""

from __future__ import annotations

import inspect

from ctxkernel.core.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Solution:
    """A model's work on a task: cells, each an answer of its own, then the last words."""

    cells: tuple[str, ...]
    words: str = "Done."


@dataclass(frozen=True, slots=True)
class Task:
    """One question to a model about a small notebook."""

    name: str
    measures: str
    """The ability that it measures, in a few words."""
    setup: tuple[str, ...]
    """The user's cells before the question."""
    question: str
    check: str
    """Python with assertions. It sees the variables of the kernel, and `words`, the model's last text."""
    solution: Solution
    wrong: Solution
    needs: tuple[str, ...] = ()
    """Packages without which it is left out."""


def code(text: str) -> str:
    """Return a cell that is written as an indented text."""
    return inspect.cleandoc(text)


def check_cell(task: Task, words: str) -> str:
    """Return a cell that runs the assertions of a task on the kernel's variables, and binds no name there."""
    return f"exec(compile({task.check!r}, '<check>', 'exec'), {{**globals(), 'words': {words!r}}})"
