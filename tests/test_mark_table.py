"""The tables in which the marks of cells are told: complete, short, and bounded."""

from __future__ import annotations

import json
import random
from typing import Any

from mark_tables import MarkReader, marks_of

from ctxkernel.kernel.display.cell_marks import MOST_TOLD
from ctxkernel.kernel.display.mark_table import MarkChange, mark_table

STATES = ("fresh", "stale", "branch", "unknown")


def mark(number: int, **fields: Any) -> Any:
    """Return the mark of a cell that ran as the statement after its number."""
    own = {"statement_id": f"s{number + 1}", "execution_id": f"s{number + 1}.1", "on_head": f"s{number + 1}.1"}
    look = {"here": None, "author": "human", "state": "fresh", "because": [], "upstream": [], "checkpoint": "durable"}
    return {**own, **look, "source": f"{number:016x}", "count": number + 1, **fields}


def random_mark(number: int, rng: random.Random) -> Any:
    """Return a mark with an odd state now and then."""
    statement = rng.choice((number + 1, 300 + number, rng.randint(1, 999)))
    execution = f"s{statement}.{rng.choice((1, 1, 2))}"
    state = rng.choice(STATES)
    head = rng.choice((execution, execution, None, f"s{rng.randint(1, 999)}.1", f"s{600 + number}.1"))
    because = [f"x was changed by s{rng.randint(1, 3)}"] if state == "stale" else []
    fields = {"statement_id": f"s{statement}", "execution_id": execution, "on_head": head, "state": state}
    return mark(
        number, **fields, because=because, upstream=[one.split()[-1] for one in because], count=rng.choice((1, None))
    )


def histories(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Tables of a session whose cells come and change at random, and the marks after each."""
    rng = random.Random(seed)
    marks: dict[int, Any] = {}
    tables, after = [], []
    for _ in range(12):
        named = len(marks)
        numbers = [*range(named, named + rng.randint(0, 4)), *(n for n in range(named) if rng.random() < 0.5)]
        changed = {n: random_mark(n, rng) for n in numbers}
        ids = [f"cell{n}" for n in range(named, len({*marks, *changed}))]
        changes = [MarkChange(n, one, marks.get(n)) for n, one in changed.items()]
        tables.append(dict(mark_table(changes, ids=ids, first=named)))
        marks |= changed
        after.append({f"cell{n}": one for n, one in marks.items()})
    return tables, after


def test_a_page_that_reads_every_table_has_every_mark():
    """Whatever changed, in whatever order; and a table that is read twice says the same."""
    for seed in range(60):
        reader = MarkReader()
        for table, marks in zip(*histories(seed), strict=True):
            reader.read(table)
            reader.read(table)
            assert reader.marks == marks, f"seed {seed}"


def test_five_hundred_marks_that_flip_at_once_are_one_short_message():
    """As 500 cells that read one variable, and as 500 cells of another branch after a return."""
    fresh = [mark(n) for n in range(500)]
    stale = [mark(n, state="stale", because=["x was changed by s501"], upstream=["s501"]) for n in range(500)]
    away = [mark(n, state="branch", on_head=None) for n in range(500)]
    for now in (stale, away):
        changes = [MarkChange(n, one, fresh[n]) for n, one in enumerate(now)]
        table = mark_table(changes, limit=MOST_TOLD)
        assert len(json.dumps(table)) < 500
        reader = MarkReader()
        reader.read(mark_table([MarkChange(n, one) for n, one in enumerate(fresh)], ids=[f"c{n}" for n in range(500)]))
        reader.read(table)
        assert list(reader.marks.values()) == now


def test_what_does_not_fit_is_left_out_and_said():
    """First the reasons, then all of it; never a part without a word."""
    fresh = [mark(n) for n in range(500)]
    own = [mark(n, state="stale", because=[f"it reads y{n} of s{n}, which is stale"]) for n in range(500)]
    table = mark_table([MarkChange(n, one, fresh[n]) for n, one in enumerate(own)], limit=MOST_TOLD)
    assert len(json.dumps(table)) <= MOST_TOLD
    assert "because" not in table["looks"][0]
    assert "more" not in table
    odd = [mark(n, state=STATES[n % 4], on_head=f"s{n * 3 + 1}.1") for n in range(500)]
    table = mark_table([MarkChange(n, one, fresh[n]) for n, one in enumerate(odd)], limit=MOST_TOLD)
    assert table == {**mark_table(()), "more": True}


def test_all_marks_of_five_hundred_cells_are_short():
    """Each cell has its id, its text's digest and its prompt; what is the same for many is said once."""
    ids = [f"{n:08x}-aaaa-bbbb-cccc-{n:012x}" for n in range(500)]
    table = mark_table([MarkChange(n, mark(n)) for n in range(500)], ids=ids)
    assert len(json.dumps(table)) < 500 * 75
    assert marks_of(table) == {cell: mark(n) for n, cell in enumerate(ids)}
