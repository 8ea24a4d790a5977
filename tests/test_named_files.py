"""Files that cells name and that libraries read without Python's `open`: what names one runs again if it changed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from test_affected import affected, put

from ctxkernel.kernel.execution.written_files import CLOCK_SLACK_NS

pytestmark = pytest.mark.usefixtures("loaded_libraries")
SETUP = """
import linecache, os
from pathlib import Path
import polars as pl, pyarrow.dataset as ds
path, place = 'f.csv', Path('f.csv')
os.makedirs('folder', exist_ok=True)
def load(): return pl.scan_csv('f.csv').collect()
"""
READS = {
    "in the cell": "pl.scan_csv('f.csv').collect()",
    "in a variable": "pl.scan_csv(path).collect()",
    "as a path": "pl.scan_csv(place).collect()",
    "in a function": "load()",
    "by a module that kept `open`": "linecache.checkcache() or linecache.getlines('f.csv')",
    "in a folder": "ds.dataset('folder', format='csv').to_table().to_pylist()",
}


@pytest.mark.parametrize("case", READS)
def test_a_cell_that_names_a_file_runs_again_after_the_file_changed(kernel: Any, case: str):
    write = "for name in ('f.csv', 'folder/f.csv'): _ = Path(name).write_text('a\\n{}\\n')"
    put(kernel, a=SETUP, b=write.format(1), c="other = 1", d=f"y = str({READS[case]})", e="z = other")
    then = kernel.evaluate("y")
    put(kernel, b=write.format(2))

    told = affected(kernel)

    assert told["ran"] == ([1, 3] if case != "in a folder" else [1])
    assert told["opaque"] == ([] if case != "in a folder" else [3])
    assert kernel.evaluate("y") == then.replace("1", "2").replace("shape: (2, 2)", "shape: (1, 1)")


def test_a_cell_that_names_a_file_is_kept_while_the_file_is_as_it_was(kernel: Any):
    put(kernel, a=SETUP + "Path('f.csv').write_text('a\\n1\\n')", b="x = 1", c="y = load()", d="z = x")
    put(kernel, b="x = 2")

    assert affected(kernel)["ran"] == [3]


def test_a_cell_that_only_names_a_file_is_kept_when_another_cell_writes_the_file(kernel: Any):
    (kernel.folder / "out.csv").write_text("of an earlier run")
    time.sleep(2 * CLOCK_SLACK_NS / 1e9)  # else the first cell may have written it
    put(kernel, a=SETUP, b="out, other = 'out.csv', Path('out.csv')", c="x = 1", d="_ = open(out, 'w').write(f'{x}')")
    put(kernel, c="x = 2")

    assert affected(kernel)["ran"] == [3]
