"""A long timeline is not laid out anew for a turn that only goes on; what it shows is as if it were."""

# ruff: noqa: F811
from __future__ import annotations

import random

import pytest

from browser.test_renderer import page  # noqa: F401

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

GROW = """async (steps) => {
  const tree = await import('/tree.js');
  const { attach, branchesOf, extend, laidOut, layOut, plant, prune } = tree;
  const short = (entries) => entries.map((one) =>
    [one.kind, one.key, one.kind === 'row' ? [one.place, one.depth, one.head, one.row.source] : null]);
  let grown = plant([]), laid = null, entries = [], extended = 0;
  const rows = [], wrong = [];
  steps.forEach(({ row, head, was }, n) => {
    rows.push(row);
    if (attach(grown, row, head)) { if (was !== head) prune(grown, was, head); }
    else grown = plant(rows, head, true);
    if (n % 3 === 0) branchesOf(grown, head);
    if (extend(entries, laid, grown, head)) extended += 1;
    else {
      laid = laidOut(grown, head);
      entries = layOut(grown, head, () => true);
    }
    const anew = plant(rows, head, true);
    const [mine, theirs] = [short(entries), short(layOut(anew, head, () => true))].map((one) => JSON.stringify(one));
    const [a, b] = [branchesOf(grown, head), branchesOf(anew, head)].map((one) => JSON.stringify(one));
    if (mine !== theirs || a !== b) wrong.push([n, mine, theirs, a, b]);
  });
  return { wrong: wrong.slice(0, 1), extended };
}"""


def session(seed: int, steps: int) -> list[dict[str, object]]:
    """Runs that mostly go on, with moves of HEAD that leave a row or none, and so branches."""
    rng = random.Random(seed)
    out: list[dict[str, object]] = []
    head, ran = None, list[str]()
    for n in range(1, steps + 1):
        key, was = f"s{n}.1", head
        moves = bool(ran) and rng.random() < 0.1
        row = {"execution_id": key, "statement_id": f"s{n}", "index": n, "parent_execution_id": head}
        row |= {"started_at": n, "source": f"x = {n}", "moved": {"to": None, "reason": "goto"} if moves else None}
        head = rng.choice((*ran[-6:], None)) if moves else key
        if not moves:
            ran.append(key)
        out.append({"row": row, "head": head, "was": was})
    return out


def test_entries_that_were_extended_are_those_of_a_tree_that_is_laid_out_anew(page):
    """Random sessions with returns and branches."""
    extended = 0
    for seed in range(15):
        found = page.evaluate(GROW, session(seed, 80))
        assert found["wrong"] == [], f"seed {seed}"
        extended += found["extended"]
    assert extended > 600, "most turns only go on"


def test_what_asks_have_cost_counts_responses_whose_rows_are_not_here(page):
    """The shape tells each response's tokens and ask; a row that comes later does not count twice."""
    shape = {"spans": [{"first": "s1.1", "count": 4, "parent": None}], "cells": {}, "cell": [-1] * 4}
    shape |= {"time_ms": [1] * 4, "meta": [1, 3], "moved": [], "verdicts": {}, "usd": {"s2.1": 0.5, "s4.1": 0.25}}
    shape |= {"responses": {"s2.1": {"ask": "s1.1", "tokens": 100}, "s4.1": {"ask": "s3.1", "tokens": 10}}}
    response = {"author": "model", "kind": "meta", "statement_id": "s5", "execution_id": "s5.1", "index": 5}
    later = response | {"tokens": 7, "usd": 0.25, "tags": {"ask": "s3.1"}}
    again = response | {
        "statement_id": "s2",
        "execution_id": "s2.1",
        "tokens": 100,
        "usd": 0.5,
        "tags": {"ask": "s1.1"},
    }
    found = page.evaluate(
        """async ([shape, later, again]) => {
          const { RowStore } = await import('/rowstore.js');
          const { stubsOf } = await import('/tree.js');
          const store = new RowStore({});
          store.startWith(stubsOf(shape));
          store.keep({ ...later, tokens: null, usd: null, status: 'running' });
          for (const row of [later, again, later]) store.keep(row);
          return [store.spending.usd, Object.fromEntries(store.spending.ofAsk)];
        }""",
        [shape, later, again],
    )
    assert found == [1.0, {"s1.1": {"tokens": 100, "usd": 0.5}, "s3.1": {"tokens": 17, "usd": 0.5}}]
