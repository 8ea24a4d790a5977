"""Functions that come back in a new kernel have their sources, as those of its own cells do."""

from __future__ import annotations

import re

import pytest
from kernels import RunningKernel, StartKernel

CELLS = [
    "import inspect",
    "def inverse(x):\n    # of a number\n    return 1 / x\nclass Own:\n    def call(self):\n        return inverse(0)",
    "double = lambda x: 2 * x; whole = [n for n in range(3)]",
    "%time pass\ndef timed(x):\n    return inverse(x - x)",
    "inverse(2)",
    "def broken(): return '\\ud800'",
]


def shown(kernel: RunningKernel, source: str) -> str:
    """Return the output of a cell as text without colours."""
    cell = kernel.run(source)
    told = [cell.stdout, *("\n".join(one["traceback"]) for one in cell.outputs if one["type"] == "error")]
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(told))


@pytest.fixture
def resumed(start_kernel: StartKernel) -> RunningKernel:
    """A kernel in the state that the second kernel before it left."""
    kernel = start_kernel()
    for cell in CELLS:
        kernel.run(cell)
    for _ in range(2):
        folder = kernel.folder
        kernel.stop()
        kernel = start_kernel(folder)
        kernel.run("%ctx resume")
    return kernel


def test_a_traceback_through_cells_of_an_earlier_kernel_shows_their_lines(resumed: RunningKernel):
    """With the ids of their statements: the numbers of the prompts began anew."""
    told = shown(resumed, "Own().call()")

    assert "Could not get source" not in told
    assert re.search(r"In\[s2\].*line 6.*\n(.*\n)*?-+> 6 +return inverse\(0\)", told)
    assert re.search(r"In\[s2\].*line 3.*\n(.*\n)*?-+> 3 +return 1 / x", told)
    assert "return inverse(x - x)" in shown(resumed, "timed(1)")


def test_inspect_finds_the_source_of_a_function_of_an_earlier_kernel(resumed: RunningKernel):
    """Its comments too."""
    assert "    # of a number\n    return 1 / x" in shown(resumed, "print(inspect.getsource(inverse))")
    assert "double = lambda x: 2 * x" in shown(resumed, "print(inspect.getsource(double))")
    assert "return inverse(x - x)" in shown(resumed, "print(inspect.getsource(timed))")


def test_a_cell_of_this_kernel_with_the_same_text_keeps_its_number(resumed: RunningKernel):
    """Its own functions are shown as IPython shows them."""
    resumed.run(CELLS[1])

    assert re.search(r"In\[\d+\].*line 3", shown(resumed, "inverse(0)"))
