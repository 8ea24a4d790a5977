"""The delta feed: one line a change, with counts and sizes, of all turns since the model was last asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.delta import LIMIT, ORDER, Feed, format_deltas, size_told
from ctxkernel.core.nodes.handle_history import change_summary
from ctxkernel.core.timeline import ChangeInfo, ExceptionInfo, Execution, NamespaceDiff, TypeInfo
from ctxkernel.core.turn_values import DeltaItem
from ctxkernel.testing import FakeSource, Turns


def shown(turns: Turns) -> list[str]:
    """Return what the projection is told of changes."""
    return [f"{item.statement_id} {item.subject}: {item.summary}" for item in turns.projector.turns[-1].deltas]


def test_the_projection_is_told_what_changed_since_the_last_request_not_only_in_the_last_turn():
    turns = Turns()
    turns.run("x = 1")
    turns.run("y = 2")
    turns.run()

    assert shown(turns) == ["s2 y: new int 2", "s1 x: new int 1"]

    turns.loop.answered()
    turns.run("z = 3")
    assert shown(turns) == ["s4 z: new int 3"]


def test_a_turn_itself_tells_its_own_changes_only():
    turns = Turns()
    turns.run("x = 1")

    assert [item.subject for item in turns.run("y = 2").deltas] == ["y"]


@pytest.mark.parametrize(
    ("codes", "lines"),
    [
        (["x = 1", "x = 2", "x = 3"], ["s3 x: new, then rebound: int 3 (3 changes since s1)"]),
        (["x = 1", "del x"], []),
        (["x = 1", "del x", "x = 5"], ["s3 x: new int 5"]),
    ],
)
def test_changes_of_one_subject_are_one_line(codes: list[str], lines: list[str]):
    turns = Turns()
    for code in codes:
        turns.run(code)

    assert shown(turns) == lines


def test_ticks_of_one_view_are_one_line_with_the_count():
    turns = Turns()
    turns.namespace["src"] = FakeSource("one")
    turns.run("h = view(src).run()")
    turns.loop.answered()
    for word in ("two", "three", "four"):
        turns.namespace["src"].text += f"\n{word}"
        turns.run()

    assert next(line for line in shown(turns) if "h:" in line).endswith("(3 changes since s3)")


def test_each_error_keeps_its_line_and_stands_first():
    turns = Turns()
    turns.run("x = 1")
    turns.run("pass", status="error", exception=ExceptionInfo("ValueError", "first", ""))
    turns.run("pass", status="error", exception=ExceptionInfo("ValueError", "second", ""))

    assert [line.split(":")[1].strip() for line in shown(turns)] == ["second", "first", "new int 1"]


def test_a_return_begins_the_feed_anew():
    turns = Turns()
    turns.run("x = 1")
    here = turns.loop.log.head
    turns.run("y = 2")

    turns.goto(here)

    assert shown(turns) == ["s1 timeline: the state is that after s1 (goto)"]


KINDS = st.sampled_from(ORDER)
ITEMS = st.builds(
    DeltaItem,
    st.integers(1, 40).map(lambda n: f"s{n}"),
    KINDS,
    st.integers(0, 400).map(lambda n: f"x{n}"),
    st.sampled_from(["new int 1", "rebound: int 2", "deleted", "+1 −2 lines"]),
)


@given(st.lists(st.lists(ITEMS, max_size=60), max_size=12))
def test_a_feed_is_bounded_ordered_and_the_same_for_the_same_turns(turns: list[list[DeltaItem]]):
    feed, again = Feed(), Feed()
    for items in turns:
        feed.add(items)
        feed.items()  # looking changes nothing
        again.add(items)
    lines = feed.items()

    assert lines == again.items()
    assert len(lines) <= LIMIT
    assert all(len(line.summary) <= 200 and "\n" not in line.summary for line in lines)
    kinds = [ORDER.index(line.kind) for line in lines if line.subject != "feed"]
    assert kinds == sorted(kinds)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"shape": [1204, 5]}, {"shape": [1310, 5]}, "1,204 → 1,310 rows"),
        ({"shape": [3, 1]}, {"shape": [3, 2]}, "3 rows"),
        ({"len": 3}, {"len": 4}, "3 → 4 items"),
        ({}, {"len": 4}, "4 items"),
        ({}, {"shape": []}, ""),
        ({}, {"bytes": 28}, ""),
    ],
)
def test_sizes_are_told_as_rows_or_items(before, after, told: str):
    assert size_told(before, after) == told


def test_a_changed_variable_tells_how_much_it_grew():
    grown = {"df": ChangeInfo("DataFrame", "…", {"shape": [5, 2]})}
    diff = NamespaceDiff({"a": TypeInfo("list", "[…]", {"len": 9})}, grown)
    execution = Execution("s7.1", "s7", None, 0.0, status="ok", state_diff=diff)

    items = format_deltas(execution, (), {}, {}, (), {"df": {"shape": [3, 2]}})

    assert [item.summary for item in items] == ["new list […], 9 items", "rebound: DataFrame …, 3 → 5 rows"]


@pytest.mark.parametrize(
    ("change", "summary"),
    [
        ("a.txt · changed, +12 −3 lines · 1.2 kB → 1.3 kB\n@@ -1 +1 @@\n-a", "+12 −3 lines · 1.2 kB → 1.3 kB"),
        ("@@ -1 +1 @@\n-a\n+b", "+1 −1 lines"),
        ("df · changed\nshape 3 × 1 → 4 × 1\n1 of 1 columns changed", "shape 3 × 1 → 4 × 1; 1 of 1 columns changed"),
        (". · changed\n- a.txt\n+ b.txt · 8 B\n~ c.txt · 9 B", "- a.txt; + b.txt · 8 B; …"),
        (
            "[position 'a.txt' is not there any more; this is where it was, h.pos sets another]\n. · changed\n- a.txt",
            "- a.txt",
        ),
        ("a.txt · missing", "a.txt · missing"),
        ("", "content changed"),
    ],
)
def test_a_change_of_a_view_is_told_in_one_line_with_counts(change: str, summary: str):
    assert change_summary(change) == summary


def test_a_handle_that_is_made_has_one_line_not_one_for_its_name_too():
    turns = Turns()
    turns.namespace["src"] = FakeSource("one")

    result = turns.run("h = view(src)")

    assert [(item.kind, item.subject) for item in result.deltas if item.subject == "h"] == [("node", "h")]
