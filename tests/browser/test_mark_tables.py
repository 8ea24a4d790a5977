"""The page reads the tables of marks as the kernel means them."""

# ruff: noqa: F811
from __future__ import annotations

import pytest
from test_mark_table import histories

from browser.test_renderer import page  # noqa: F401
from ctxkernel.kernel.display.mark_table import MarkChange, mark_table

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
    for seed in range(6):
        tables, after = histories(seed)
        assert page.evaluate(READ, tables) == after, f"seed {seed}"


CATCH_UP = """async ([first, more, all]) => {
  const { Gutter } = await import('/gutter.js');
  const asked = [];
  const host = { marks: async (what) => (asked.push(what), all) };
  const gutter = new Gutter({ widgets: [], model: null }, host);
  gutter.take({ type: 'snapshot', cells: first, head: null });
  await gutter.take({ type: 'turn', head: null, cells: more });
  const marks = Object.fromEntries(gutter.marks.cells);
  for (const name of Array.from({ length: 70 }, (_, n) => `c${n}`)) gutter.askReasons(name);
  while (asked.length < 3) await new Promise((done) => setTimeout(done, 20));
  gutter.dispose();
  return { marks, asked: asked.map(({ names, ...rest }) => (names ? [names.length, names[0]] : rest)) };
}"""


def test_a_page_that_was_told_of_too_much_at_once_asks_for_all(page):
    """And the reasons of cells are asked for together, at most fifty in one request."""
    tables, after = histories(7)
    every = mark_table([MarkChange(n, one) for n, one in enumerate(after[-1].values())], ids=[*after[-1]])
    found = page.evaluate(CATCH_UP, [tables[0], {**mark_table(()), "more": True}, every])
    assert found["marks"] == after[-1]
    assert found["asked"] == [{}, [50, "c0"], [20, "c50"]]


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


ABOVE = """async ([ran, shown]) => {
  const { Marks } = await import('/marks.js');
  const marks = new Marks();
  marks.names = ran;
  for (const id of ran) marks.cells.set(id, { on_head: 's1.1' });
  return marks.aboveOlder(shown).map(({ cell, before }) => cell + before);
}"""


@pytest.mark.parametrize(
    ("ran", "shown", "told"),
    [
        ("abcd", "abcd", ""),
        ("abcd", "axd", ""),  # x never ran, b and c are gone
        ("abcd", "adbc", "db"),
        ("abcde", "deabc", "ea de"),  # the lowest first: each needs the place of the one below it
        ("abcd", "dcba", "ba cb dc"),
    ],
)
def test_the_page_tells_which_cells_stand_above_older_ones(page, ran, shown, told):
    """So that a kernel that forgot it knows the order of the cells again."""
    assert page.evaluate(ABOVE, [list(ran), list(shown)]) == told.split()
