"""What is packed comes back as it was: content, and what is one object with what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pickling_cells import ROWS
from pickling_rows import Box, Row

CHANGING = ("a figure",)
"""What is changed by being asked for its state."""


def unmet(row: Row, found: dict[str, Any]) -> list[str]:
    """The expressions of a row that are not true."""
    return [each for each in row.holds if not eval(each, {"np": np, **found})]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_what_is_packed_comes_back_in_the_same_process(row: Row):
    """Content and identity are those of before; the values themselves are other objects."""
    box = Box(row.cell)

    found = box.back()

    assert not unmet(row, found)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_what_is_packed_comes_back_in_another_process(row: Row):
    """Nothing that is alive is needed: classes come from packs of their own."""
    box = Box(row.cell)

    found = box.elsewhere()

    assert not unmet(row, found)


@pytest.mark.parametrize("row", [row for row in ROWS if row.id not in CHANGING], ids=lambda row: row.id)
def test_what_did_not_change_is_packed_alike(row: Row):
    """Two packs of the same values are the same bytes, so that a checkpoint sees that nothing changed."""
    box = Box(row.cell)

    first, second = box.pack(), box.pack()

    assert first.stream == second.stream
    assert list(map(bytes, first.buffers)) == list(map(bytes, second.buffers))
    assert (first.parts, first.rebuilt, first.runs, first.types) == (
        *(second.parts, second.rebuilt, second.runs, second.types),
    )
