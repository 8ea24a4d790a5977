"""The page reads the tables of marks as the kernel means them."""

# ruff: noqa: F811
from __future__ import annotations

import pytest
from test_mark_table import histories

from browser.test_renderer import page  # noqa: F401

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

READ = """async (tables) => {
  const { readTable } = await import('/marktable.js');
  const marks = new Map(), names = [];
  return tables.map((table) => {
    readTable(marks, names, table);
    return Object.fromEntries(marks);
  });
}"""


def test_the_page_has_every_mark_after_every_table(page):
    """Sessions whose cells come and change at random."""
    for seed in range(20):
        tables, after = histories(seed)
        assert page.evaluate(READ, tables) == after, f"seed {seed}"


ODD = [
    {"newest": {"cells": [7, None], "lengths": ["x"], "values": [{}]}, "ids": [{}, "a"], "stands": 5, "first": "z"},
    {"ids": ["a"], "on_head": {"cells": [0], "lengths": [1e12], "values": ["s1.1"]}, "looks": [None]},
    {},
]


@pytest.mark.parametrize("table", ODD, ids=["wrong types", "an endless span", "nothing"])
def test_an_odd_table_is_no_fault(page, table):
    """It comes from a stranger: what it says of cells that are not known is left out."""
    assert page.evaluate(READ, [table]) is not None
    assert page.faults == []
