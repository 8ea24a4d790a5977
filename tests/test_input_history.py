"""IPython's history of inputs is written for several cells at once."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from kernels import StartKernel

from ctxkernel.kernel.execution.input_history import SECONDS


def written(file: Path) -> list[str]:
    """Return the inputs in a file of IPython's history."""
    with closing(sqlite3.connect(file)) as history:
        return [source for (source,) in history.execute("SELECT source FROM history ORDER BY session, line")]


def test_inputs_are_written_a_moment_after_their_cells_and_when_the_kernel_ends(start_kernel: StartKernel):
    kernel = start_kernel(history="history.sqlite")
    file = kernel.folder / "history.sqlite"
    for number in range(3):
        kernel.run(f"x = {number}")
    until = time.monotonic() + 20 * SECONDS
    while len(written(file)) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    assert written(file) == ["x = 0", "x = 1", "x = 2"]

    kernel.run("x = 3")
    kernel.stop()

    assert written(file)[-1] == "x = 3"


def test_the_history_of_this_kernel_has_each_input_at_once(start_kernel: StartKernel):
    kernel = start_kernel(history="history.sqlite")
    kernel.run("x = 1")

    assert "x = 1" in kernel.run("%history").stdout
    assert "x = 1" in kernel.run("%history -g x").stdout


def test_a_size_of_the_cache_that_the_user_set_is_kept(start_kernel: StartKernel, tmp_path: Path):
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text("get_config().HistoryManager.db_cache_size = 3\n")

    kernel = start_kernel(env={"IPYTHONDIR": str(tmp_path / "ipython")})

    assert kernel.evaluate("get_ipython().history_manager.db_cache_size") == "3"
