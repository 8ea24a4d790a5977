"""The text of a widget in the log and in the projection: as it was when the cell ended."""

from __future__ import annotations

import json
from typing import Any

OWN = """
class Own(ipywidgets.IntSlider):
    def __repr__(self):
        global asked
        asked += 1
        return 'own'
asked = 0
own = Own()
display(own)
"""


def statement(kernel: Any, number: int) -> str:
    """Return the text of a statement's block in the projection."""
    blocks = json.loads(kernel.run("%ctx projection --json").stdout)["blocks"]
    return next(block["text"] for block in blocks if block["id"] == f"s{number}.1")


def test_a_progress_bar_is_kept_as_it_looked_last(kernel):
    """A bar of `tqdm.notebook` is displayed at 0 % and updated by messages of its widget."""
    kernel.run("from tqdm.notebook import tqdm\nfor i in tqdm(range(5)): pass")
    told = statement(kernel, 1)
    assert "5/5" in told
    assert "0/5" not in told


def test_a_widget_is_kept_with_the_value_that_the_cell_gave_it(kernel):
    """And a class of the user's is never asked again: its text may be anything."""
    kernel.run("import ipywidgets\ns = ipywidgets.IntSlider(value=1)\ndisplay(s)\ns.value = 7")
    assert "value=7" in statement(kernel, 1)
    kernel.run(OWN)
    assert kernel.evaluate("asked") == "1"
