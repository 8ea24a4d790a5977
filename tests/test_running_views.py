"""Running views of large variables: what a cell changes anywhere in them is not missed, or not claimed."""

from __future__ import annotations

import pytest
from kernels import RunningKernel

SEEN = {
    "an array": ("np.zeros(4_000_000)", "x[3_000_001] = 7", "max 7.0"),
    "a column of texts": ("pd.DataFrame({'s': ['a'] * 300_000})", "x.loc[123_457, 's'] = 'z'", "2 distinct"),
    "a category": (
        "pd.DataFrame({'c': pd.Categorical(list('ab') * 100_000)})",
        "x.loc[1:9, 'c'] = 'a'",
        "'a' ×100,005",
    ),
}
pytestmark = pytest.mark.usefixtures("loaded_libraries")
CHANGES = {
    "a dict": ("{f'k{i}': i for i in range(100_000)}", "x['k90000'] = -1"),
    "a list": ("list(range(100_000))", "x[90_000] = -1"),
    "bytes": ("bytearray(2_000_000)", "x[1_500_000] = 1"),
    "an instance": ("type('Own', (), {})()", "x.deep = [[[[[[[[[0]]]]]]]]]\nx.deep[0][0][0][0][0][0][0][0].append(1)"),
    "a graph": ("nx.path_graph(20_000)", "x.nodes[15_000]['w'] = 5"),
}
SETUP = "import numpy as np, pandas as pd, networkx as nx"


@pytest.mark.parametrize(("made", "change", "told"), SEEN.values(), ids=SEEN)
@pytest.mark.parametrize("expression", ["x", "held[0]"], ids=["bound", "held"])
def test_a_running_view_shows_a_change_anywhere_in_a_large_variable(
    kernel: RunningKernel, made: str, change: str, told: str, expression: str
):
    kernel.run(f"{SETUP}\nx = {made}\nheld = [x]\nh = view({expression}, lod=2, tokens=300).run()")
    if expression != "x":
        change = f"x = held[0]\n{change}\ndel x"
        kernel.run("del x")

    kernel.run(change)

    assert told in kernel.run("print(h.rendered.text)").stdout


@pytest.mark.parametrize(("made", "change"), CHANGES.values(), ids=CHANGES)
def test_of_what_is_not_read_no_view_says_that_it_is_the_same(kernel: RunningKernel, made: str, change: str):
    first, _, second = change.partition("\n")
    kernel.run(f"{SETUP}\nx = {made}\n{first if second else ''}\nh = view(x, lod=3, tokens=300).run()")

    kernel.run(second or first)

    shown = kernel.run("h.refresh(); print(h.rendered.text)").stdout.splitlines()[0]
    assert not shown.endswith("no change"), shown
