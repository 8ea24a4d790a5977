"""Which tests share a worker of pytest-xdist, and in which order the workers take them.

Rule 1: the tests of a file share a worker, and with it what the file's fixtures made and what the file imports. Tests
        that share nothing and take long are scheduled one by one (`APART`).
Rule 2: the files of the browser are in a few groups. Each group has one JupyterLab and one Chromium.
Rule 3: what takes longest comes first, so that at the end of a run no worker is left alone with it.
"""

from __future__ import annotations

from typing import Any

import pytest
from scale import QUICK
from xdist.scheduler import LoadFileScheduling

LONGEST = (
    "test_oracle.py",
    "test_sweeps.py",
    "test_strict_histories.py",
)
"""The files that take longest, outside of the browser's folder. The other files follow in the order of their names."""
APART = (
    "test_oracle.py::test_no_return_",
    "test_oracle.py::test_a_program_whose_return_",
    "test_strict_histories.py::test_a_strict_server_",
)
"""The beginnings of the ids of tests that share nothing with the other tests of their file."""
HALF = "test_i"
"""Where the names of the browser's files are divided: each half takes about as long."""
ALONE = () if QUICK else ("test_hostile.py",)
"""The browser's files that are a group of their own: in the full run this one takes as long as a half of the others."""


def scope(nodeid: str) -> str:
    """Return the name of the group of tests that a worker runs one after another."""
    path, _, test = nodeid.partition("::")
    folder, _, name = path.rpartition("/")
    if folder.rpartition("/")[2] == "browser":
        return f"browser: {name if name in ALONE else 'the first half' if name < HALF else 'the second half'}"
    return nodeid if f"{name}::{test}".startswith(APART) else path


def rank(item: pytest.Item) -> int:
    """Return the place of a test's file in the order: the longest first."""
    if item.path.parent.name == "browser":
        return 0
    name = item.path.name
    return 1 + (LONGEST.index(name) if name in LONGEST else len(LONGEST))


class ByFile(LoadFileScheduling):
    """The scheduler of `--dist loadfile`, by the scopes of this module."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _reschedule(self, node: Any) -> None:
        """Give a worker its next scope when one test is left to it, rather than two.

        A worker begins a test when it knows the next one, so the next scope waits for the test that is left.
        """
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
