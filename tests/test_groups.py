"""How a group divides its budget, shows the shares, and what it does about members that went."""

from __future__ import annotations

import io
import re
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.nodes.shares import divide, split_room
from ctxkernel.core.ports import All
from ctxkernel.core.turn_values import Outcome
from ctxkernel.history.events import UserQuestion
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.sources.registry import open_named
from ctxkernel.testing import FakeSource, Turns


def real(**names: Any) -> Turns:
    """Return a loop with real sources and real estimates of tokens."""
    turns = Turns()
    graph = turns.loop.graph
    graph.open_source = lambda target: open_named(target, turns.namespace)
    graph.count_tokens, graph.trim = count_tokens, trim_to_tokens
    turns.namespace.update(names)
    return turns


def long_text(lines: int = 400) -> io.StringIO:
    return io.StringIO("\n".join(f"line {n} of many words" for n in range(lines)))


def two(tokens: int = 600) -> Turns:
    """Return a loop in which `g` is a group over the long texts `a` and `b`, made in one statement each."""
    turns = real(one=long_text(), other=long_text())
    turns.run("a, b = view(one), view(other)")
    turns.run(f"g = group(a, b, tokens={tokens}, lod=0)")
    return turns


def asking(turns: Turns, question: str) -> Any:
    """Run a cell that asks the model."""
    turns.loop.question_of = lambda event: event.text if isinstance(event, UserQuestion) else ""
    turns.loop.begin(f"%%ask {question}", now=turns.now)
    turns.loop.record(UserQuestion(turns.loop.next_event_id, question))
    return turns.loop.end(Outcome("ok"), turns.now)


def test_members_without_a_reason_share_alike_and_the_shares_are_shown():
    g = two().namespace["g"]

    assert abs(g.shares["v1"] - g.shares["v2"]) <= 1
    assert g.shares["v1"] > 200
    assert re.search(rf"^shares: v1 ~{g.shares['v1']}, v2 ~{g.shares['v2']}$", g.rendered.text, re.MULTILINE)


@pytest.mark.parametrize(
    ("code", "reason"),
    [("b.pin()", "pinned"), ("b.run(); other.write('new')", "changed"), ("b.lod = 1", "changed")],
)
def test_a_salient_member_gets_more(code: str, reason: str):
    turns = two()

    turns.run(code)

    g = turns.namespace["g"]
    assert g.shares["v2"] > 1.8 * g.shares["v1"]
    assert re.search(rf"v2 ~\d+ \([a-z, ]*{reason}", g.rendered.text)
    assert g.rendered.tokens <= 600


def test_a_member_that_the_last_question_names_gets_more_until_the_next_question():
    turns = two()
    g = turns.namespace["g"]

    asking(turns, "what is in b?")
    named, text = dict(g.shares), g.rendered.text
    turns.run()
    idle = g.rendered.text
    asking(turns, "and now?")

    assert named["v2"] > 2 * named["v1"]
    assert "(asked)" in text and text == idle
    assert "asked" not in g.rendered.text


def test_a_handle_that_is_made_after_the_question_is_named_at_once_and_then_nothing_moves():
    turns = real(text=long_text(), more=long_text())
    turns.run("k = view(more); outer = group(k)")
    asking(turns, "look at paper")

    turns.run("paper = view(text); g = group(k, paper, tokens=500)")
    before = turns.loop.graph.memento()
    idle = turns.run()

    assert turns.loop.graph.memento() == before
    assert "asked" in turns.namespace["g"].rendered.text
    assert not idle.deltas


def test_going_back_before_a_question_takes_its_weight_back():
    turns = two()
    here = turns.loop.log.head
    before = turns.namespace["g"].rendered.text
    asking(turns, "what is in b?")
    turns.states[turns.loop.log.head] = turns.keep()

    turns.goto(here)
    turns.run()

    assert turns.namespace["g"].rendered.text == before


def test_what_one_member_does_not_use_goes_to_the_others():
    turns = real(short=io.StringIO("tiny"), long=long_text())
    turns.run("a, b = view(short), view(long); g = group(a, b, tokens=600, lod=0)")

    g = turns.namespace["g"]
    assert g.shares["v2"] > 400
    assert g.shares["v1"] < 40


def test_members_without_room_are_named_with_the_next_move():
    turns = real(texts=[long_text(5) for _ in range(30)])
    turns.run("g = group(*[view(text) for text in texts], tokens=150, lod=0)")

    text = turns.namespace["g"].rendered.text
    assert re.search(r"\[… no room for \d+ more: v\d+, .* …; g1\.tokens shows more\]", text)
    assert count_tokens(text) <= 150


@given(
    room=st.integers(0, 2000),
    members=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 900)), min_size=1, max_size=12),
)
def test_shares_never_exceed_the_room_and_waste_none_that_somebody_wants(room: int, members: list[tuple[int, int]]):
    weights = [weight for weight, _ in members]
    wanted = [want for _, want in members]

    grants = divide(room, weights, lambda at, grant: (min(wanted[at], grant), wanted[at] > grant))

    assert sum(split_room(room, weights)) == room
    assert min(grants) >= 0
    assert sum(grants) <= max(room, len(members))
    if sum(wanted) <= room and len(members) <= 4:
        assert all(grant >= want for grant, want in zip(grants, wanted, strict=True))


TREE = st.recursive(
    st.sampled_from(["long", "short", "empty", "frame", "note"]),
    lambda inner: st.lists(inner, min_size=1, max_size=4),
    max_leaves=8,
)


@given(tree=TREE, budget=st.integers(1, 400), lod=st.integers(0, 3), inner=st.integers(1, 50) | st.just(All))
def test_any_tree_of_groups_keeps_any_budget_and_a_budget_changes_no_member(tree, budget, lod, inner):
    values: dict[str, Any] = {"long": long_text(60), "short": io.StringIO("a b"), "empty": io.StringIO("")}
    values |= {"frame": {"x": list(range(50))}, "note": "line\n" * 30}
    turns = real(made=[])

    def make(node: Any) -> Any:
        if isinstance(node, list):
            return turns.loop.group(*[make(one) for one in node], tokens=inner)
        return turns.loop.note(values["note"]) if node == "note" else turns.loop.view(values[node], tokens=inner)

    turns.loop.begin("make", now=turns.now)
    member = make(tree)
    before = turns.loop.graph.memento()
    group = turns.loop.group(member, tokens=budget, lod=lod)
    after = {obj_id: state for obj_id, state in turns.loop.graph.memento().items() if obj_id != group.obj_id}

    assert count_tokens(group.rendered.text) == group.rendered.tokens <= budget
    assert count_tokens(group.render(lod=(lod + 1) % 4, tokens=inner).text) <= (1 << 40 if inner is All else inner)
    assert after == before


def test_the_level_of_a_group_is_that_of_all_within_it():
    turns = Turns()
    turns.namespace["src"] = FakeSource("one")
    turns.run("h = view(src, lod=3); inner = group(h, lod=1); g = group(inner, lod=0)")

    assert "L0 one" in turns.namespace["g"].rendered.text
    assert "L1 one" in turns.namespace["inner"].rendered.text
    assert turns.namespace["h"].lod == 3


def test_a_member_whose_name_is_deleted_or_whose_file_goes_is_shown_as_such(tmp_path):
    turns = real(data=[1, 2, 3], path=str(tmp_path / "a.txt"))
    (tmp_path / "a.txt").write_text("text")
    turns.run("a, b = view(data), view(path).run(); g = group(a, b)")

    turns.run("del data")
    deleted = turns.namespace["g"].rendered.text
    (tmp_path / "a.txt").unlink()
    turns.run()
    idle = turns.run()

    assert "== v1 data (deleted; this view still holds it)" in deleted
    assert "a.txt · missing" in turns.namespace["g"].rendered.text
    assert not idle.deltas


def test_a_handle_whose_name_is_deleted_lives_on_in_its_group():
    turns = two()

    turns.run("del a")

    assert [member.obj_id for member in turns.namespace["g"].members] == ["v1", "v2"]


def test_a_group_whose_members_a_damaged_session_lost_is_an_empty_one():
    turns = two()
    mementos = dict(turns.loop.graph.memento())
    new = real()
    new.loop.graph.restore({"g1": mementos["g1"]}, {}.__getitem__)
    g = new.loop.graph.node("g1")

    new.run()

    assert g is not None
    assert g.rendered.text == "g1: 0 members"


@pytest.mark.parametrize("kind", ["file", "image in memory"])
def test_a_group_has_the_text_of_a_picture_only_and_no_line_that_promises_one(kind: str, tmp_path):
    image = import_module("PIL.Image").new("RGB", (400, 300), (9, 90, 200))
    image.save(tmp_path / "plot.png")
    turns = real(target=str(tmp_path / "plot.png") if kind == "file" else image)
    turns.run("p = view(target)")
    turns.run("g = group(p, tokens=500, lod=0)")
    p, g = turns.namespace["p"], turns.namespace["g"]

    assert p.rendered.picture is not None and "shown as" in p.rendered.text
    assert g.rendered.picture is None and "400 × 300" in g.rendered.text and "shown as" not in g.rendered.text


def test_what_a_picture_would_take_of_a_share_goes_to_the_text():
    pyplot = import_module("matplotlib.figure")
    figure = pyplot.Figure()
    axes = figure.add_subplot()
    for n in range(30):
        axes.plot([0, n], label=f"series {n}")
    turns = real(figure=figure)
    turns.run("p = view(figure, tokens=400)")
    turns.run("g = group(p, tokens=400, lod=0)")
    p, g = turns.namespace["p"], turns.namespace["g"]

    assert p.rendered.picture is not None
    assert g.rendered.text.count("series") > p.rendered.text.count("series") and g.rendered.tokens > 250


def test_what_is_cut_in_a_group_is_had_by_the_budget_of_the_group():
    turns = two(400)
    text = turns.namespace["g"].rendered.text

    assert text.count("g1.tokens shows more]") == 2 and re.search(r'; v1\.pos = "\d+" goes on', text)
    assert not re.search(r"\bh\.(tokens|pos)", text)
