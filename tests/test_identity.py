"""A handle is a value: a run of its cell again, a copy, a pickle, a return and a restart give the same one."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.nodes.detached import Detached
from ctxkernel.core.timeline_events import MethodCalled
from ctxkernel.core.turn_values import Outcome
from ctxkernel.testing import FakeSource, Turns


def run_cell(turns: Turns, cell_id: str, code: str) -> None:
    """Run `code` as the cell of that id."""
    loop = turns.loop
    loop.begin(code, now=turns.now, cell_id=cell_id)
    names = {name: getattr(loop, name) for name in ("view", "group", "note")}
    exec(compile(code, "<cell>", "exec"), {**names, **turns.namespace, "out": turns.namespace})  # a test's own code
    turns.now += 1
    result = loop.end(Outcome("ok"), turns.now)
    turns.states[result.execution.execution_id] = turns.keep()


def fresh() -> Turns:
    turns = Turns()
    turns.namespace.update(a=FakeSource("one", "a"), b=FakeSource("two", "b"))
    return turns


def test_the_same_cell_gives_the_same_handle_with_what_the_cell_now_says():
    turns = fresh()
    run_cell(turns, "c1", "out['h'] = view(a)")
    first = turns.namespace["h"]
    turns.run("h.lod = 2; h.run(); g = group(h)")

    run_cell(turns, "c1", "out['h'] = view(a, tokens=77)")

    h = turns.namespace["h"]
    assert h is first
    assert (h.obj_id, h.lod, h.tokens, h.mode, h.revision) == ("v1", 0, 77, "paused", 1)
    assert turns.namespace["g"].members == (h,)
    assert [node.obj_id for node in turns.loop.graph.nodes()] == ["g1", "v1"]


def test_another_cell_gives_another_handle_whatever_it_says():
    turns = fresh()
    for cell in ("c1", "c2"):
        run_cell(turns, cell, f"out['{cell}'] = view(a)")

    assert (turns.namespace["c1"].obj_id, turns.namespace["c2"].obj_id) == ("v1", "v2")


def test_without_ids_of_cells_the_text_says_which_cell_it_is():
    turns = fresh()
    turns.run("h = view(a)")
    turns.run("h = view(a)")
    turns.run("h = view(a); ")

    assert turns.namespace["h"].obj_id == "v2"


@pytest.mark.parametrize(
    ("first", "again", "ids"),
    [
        ("out['x'] = [view(s) for s in (a, b)]", "out['x'] = [view(s) for s in (b, a)]", ["v2", "v1"]),
        ("out['x'] = [view(a) for n in range(2)]", "out['x'] = [view(a) for n in range(3)]", ["v1", "v2", "v3"]),
        ("out['x'] = [view(a)]", "out['x'] = [view(b)]", ["v2"]),
        ("out['x'] = [note('draft')]", "out['x'] = [note('final')]", ["n1"]),
        ("out['x'] = [group(view(a))]", "out['x'] = [group(view(a), view(b))]", ["g1"]),
        ("out['x'] = [group(view(a))]", "out['x'] = [group(*out['x'])]", ["g2"]),  # not a member of itself
    ],
)
def test_what_is_looked_at_and_how_manieth_it_is_decide(first: str, again: str, ids: list[str]):
    turns = fresh()
    run_cell(turns, "c1", first)
    run_cell(turns, "c1", again)

    assert [handle.obj_id for handle in turns.namespace["x"]] == ids


def test_a_cell_that_fails_leaves_the_handle_as_it_was():
    turns = fresh()
    run_cell(turns, "c1", "out['h'] = view(a)")
    before = dict(turns.namespace["h"].memento())
    turns.namespace["a"].fault = OSError("gone")

    with pytest.raises(OSError, match="gone"):
        run_cell(turns, "c1", "out['h'] = view(a, lod=1)")

    assert dict(turns.namespace["h"].memento()) == before
    assert turns.loop.graph.node("v1") is turns.namespace["h"]


def test_a_rerun_after_a_return_gives_the_ids_of_the_first_run():
    turns = fresh()
    turns.run("x = 1")
    here = turns.loop.log.head
    made = turns.run("h = view(a); g = group(h)")
    turns.goto(here)

    turns.run("h = view(a); g = group(h)", rerun_of=made.statement.statement_id)

    assert [node.obj_id for node in turns.loop.graph.nodes()] == ["v1", "g1"]
    turns.run("k = view(b)")
    assert turns.namespace["k"].obj_id == "v2"


def test_a_handle_that_another_branch_made_is_not_taken_by_another_cell():
    turns = fresh()
    turns.run("x = 1")
    here = turns.loop.log.head
    run_cell(turns, "c1", "out['h'] = view(a)")
    turns.goto(here)

    run_cell(turns, "c2", "out['h'] = view(a)")
    assert turns.namespace["h"].obj_id == "v2"
    run_cell(turns, "c1", "out['k'] = view(a)")
    assert turns.namespace["k"].obj_id == "v1"


def test_after_a_restart_the_cell_gives_the_same_handle():
    turns = fresh()
    run_cell(turns, "c1", "out['h'] = view(a)")
    resumed = turns.resumed()

    run_cell(resumed, "c1", "out['h'] = view(a)")

    assert [node.obj_id for node in resumed.loop.graph.nodes()] == ["v1"]


CODES = (
    "out['h'] = view(a)",
    "out['k'] = view(b)",
    "out['g'] = group(view(a), view(b))",
    "out.pop('h', 0)",
    "out['n'] = note('x')",
)


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.sampled_from(["c1", "c2", "c3"]), st.sampled_from(CODES)), min_size=1, max_size=8))
def test_ids_follow_from_the_log_and_no_two_handles_have_one(cells: list[tuple[str, str]]):
    turns = fresh()
    for cell_id, code in cells:
        run_cell(turns, cell_id, code)
        ids = [node.obj_id for node in turns.loop.graph.nodes()]
        assert len(set(ids)) == len(ids)
    last_cell, last_code = cells[-1]
    resumed = turns.resumed()
    run_cell(turns, last_cell, last_code)
    run_cell(resumed, last_cell, last_code)

    def made(one: Turns) -> list[str]:
        events = one.loop.history[-1][1].events
        return [event.obj_id for event in events if isinstance(event, MethodCalled)]

    assert made(turns) == made(resumed)


def test_copies_and_pickles_are_the_handle_itself_while_its_session_is_here():
    turns = fresh()
    turns.loop.graph.name("a session")
    turns.run("h = view(a)")
    h = turns.namespace["h"]

    assert copy.copy(h) is h
    assert copy.deepcopy({"h": [h]})["h"][0] is h
    assert all(pickle.loads(pickle.dumps(h, protocol)) is h for protocol in range(pickle.HIGHEST_PROTOCOL + 1))


def test_a_pickle_of_an_earlier_kernel_is_the_handle_of_the_resumed_one():
    turns = fresh()
    turns.loop.graph.name("a session")
    turns.run("h = view(a)")
    kept = pickle.dumps(turns.namespace["h"])
    resumed = turns.resumed()
    resumed.loop.graph.name("a session")

    assert pickle.loads(kept) is resumed.namespace["h"]


def test_elsewhere_a_pickled_handle_is_what_it_showed_and_says_what_to_do(tmp_path):
    turns = fresh()
    turns.loop.graph.name("another session")
    turns.run("h = view(a)")
    (tmp_path / "h.pkl").write_bytes(pickle.dumps(turns.namespace["h"]))
    code = f"import pickle; h = pickle.load(open({str(tmp_path / 'h.pkl')!r}, 'rb')); print(h.obj_id, h.text); print(h)"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.splitlines()[0] == "v1 L0 one"
    assert "detached: its text is what it showed, and view(…) makes a live one" in said


@pytest.mark.parametrize("code", ["h.lod", "h.lod = 1", "h.refresh()"])
def test_a_detached_handle_refuses_in_one_line(code: str):
    h = Detached("v1", "view", "a.txt", "text")

    with pytest.raises(AttributeError, match="v1 was pickled, and its session or the handle is not here"):
        exec(code, {"h": h})  # a test's own code
    assert pickle.loads(pickle.dumps(h)).text == "text"
