"""What callbacks ask of handles between two cells: laws over random calls, without a kernel."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxkernel.core.errors import BadPolicy, BadTarget, OutsideTurn
from ctxkernel.core.nodes.asked import AskedChanges
from ctxkernel.core.ports import All
from ctxkernel.testing import FakeSource, Turns

CALLS = (
    "{h}.lod = {n} % 4", "{h}.tokens = 2 + {n}", "{h}.set(lod={n} % 3, tokens=5)", "{h}.run()", "{h}.pause()",
    "{h}.run(('Periodic', 1 + {n}))", "{h}.min_turn_interval = 1 + {n}", "{h}.refresh()", "{h}.pin('why {n}')",
    "{h}.unpin()", "{h}.tokens = All",
)  # fmt: skip
VIEW_CALLS = ("{h}.pos = {n}", "{h}.pos = '/t{{{n}}}/'", "{h}.scroll({n})", "{h}.set(pos=3).scroll(-1)")
STEPS = st.lists(
    st.tuples(st.sampled_from("abg"), st.sampled_from((*CALLS, *VIEW_CALLS)), st.integers(0, 5)), max_size=12
)
FACTS = ("lod", "tokens", "mode", "freq", "min_turn_interval", "pos", "pinned", "fingerprint")


class Session:
    """Three handles, and what was asked of them."""

    def __init__(self) -> None:
        self.turns, self.busy, self.due = Turns(), False, 0
        graph = self.graph = self.turns.loop.graph
        self.asked = AskedChanges(graph, self.soon, busy=lambda: self.busy)
        graph.ask_later, graph.put_back = self.asked.ask, self.asked.put_back
        self.turns.namespace["src"] = FakeSource("one two\n" * 9)
        self.turns.run("a, b = view(src), view(src, lod=1)\ng = group(a, b)")

    def soon(self) -> None:
        """Count the requests to make the changes."""
        self.due += 1

    def facts(self) -> Any:
        """Return what the three handles are set to."""
        names = self.turns.namespace
        return [{key: one for key, one in names[name].digest().items() if key in FACTS} for name in "abg"]

    def do(self, steps: list[tuple[str, str, int]]) -> str:
        """Do what a callback does, and return it as the text of a cell; a call that is refused is left out."""
        done: list[str] = []
        for name, call, n in steps:
            line = call.format(h=name, n=n)
            try:
                exec(line, {**self.turns.namespace, "All": All})
            except (BadPolicy, AttributeError):
                continue
            done.append(line)
        return "\n".join(done)

    def make(self) -> str:
        """Make what was asked, in a statement; returns its text."""
        taken = self.asked.take()
        lines = [line for one in taken for line in one.lines({"v1": "a", "v2": "b", "g1": "g"})]
        self.turns.namespace["made"] = taken
        self.turns.run("for one in made: one.make()")
        return "\n".join(lines)


@example([("a", "{h}.run()", 0), ("a", "{h}.pause()", 0)])
@example([("g", "{h}.refresh()", 0), ("a", "{h}.pin('why {n}')", 0), ("a", "{h}.unpin()", 0)])
@example([("a", "{h}.lod = {n} % 4", 1), ("g", "{h}.lod = {n} % 4", 0), ("g", "{h}.pause()", 0), ("a", "{h}.run()", 0)])
@example([("g", "{h}.lod = {n} % 4", 0), ("a", "{h}.lod = {n} % 4", 1), ("g", "{h}.pause()", 0)])
@given(STEPS)
def test_one_statement_gives_what_the_calls_would_give_in_a_cell(steps: list[tuple[str, str, int]]):
    """Until then handles read so, and nothing of it is in the state that a turn sees."""
    session, direct = Session(), Session()
    before = session.facts()
    code = session.do(steps)
    told = session.facts()
    session.asked.put_back()
    assert session.facts() == before
    text = session.make()
    direct.turns.namespace["All"] = All
    direct.turns.run(code or "pass")
    assert [{**one, "fingerprint": ""} for one in session.facts()] == [{**one, "fingerprint": ""} for one in told]
    assert session.facts() == direct.facts()
    assert text.count("%ctx set a.") <= 2, "before and after the last call of a group that shows it"
    assert text.count("%ctx set g.") <= 1


@given(STEPS, STEPS)
def test_where_a_cell_runs_in_between_the_last_value_holds(steps: list[Any], later: list[Any]):
    """While a cell is under way nothing reads as if it were made; what was asked before is not lost."""
    session = Session()
    session.do(steps)
    session.busy = True
    session.asked.put_back()
    there = session.facts()
    session.do(later)
    assert session.facts() == there
    session.turns.run("a.lod = 2")
    session.busy = False
    session.make()
    assert not session.asked


def test_what_is_as_it_was_is_not_asked():
    session = Session()
    session.do([("a", "{h}.tokens = 2 + {n}", 5), ("a", "{h}.lod = {n} % 4", 2)])
    assert session.asked
    tokens = session.graph.settings.view_tokens
    session.do([("a", f"{{h}}.set(tokens={tokens}, lod=0)", 0)])
    assert not session.asked
    assert session.due == 2


def test_a_call_that_is_refused_changes_nothing_and_what_was_asked_before_stays():
    session = Session()
    names = session.turns.namespace
    names["a"].lod = 2
    with pytest.raises(BadPolicy):
        names["a"].set(lod=1, tokens=0)
    with pytest.raises(BadPolicy):
        names["a"].set(lod=1, depth=3)
    assert names["a"].lod == 2
    assert session.make() == "%ctx set a.lod=2"


def test_a_handle_on_another_branch_is_named_and_a_new_one_needs_a_cell():
    session = Session()
    session.turns.run("c = view(src)")
    late = session.turns.namespace["c"]
    session.turns.goto([*session.turns.states][1])
    with pytest.raises(BadTarget, match=r"v3 .* is not on this branch"):
        late.lod = 1
    with pytest.raises(OutsideTurn, match="a callback can change a handle, not make one"):
        session.turns.loop.view(FakeSource("x"))


def test_text_that_a_magic_would_read_as_something_else_is_written_so_that_it_stays():
    session = Session()
    a, b = (session.turns.namespace[name] for name in "ab")
    a.pos = b.pos = "/t{2}$x y/"
    b.lod = 0
    lines = [line for one in session.asked.take() for line in one.lines({"v1": "a"})]
    assert lines == ["a.set(pos='/t{2}$x y/')", "%ctx set v2.lod=0", "%ctx set 'v2.pos=/t{{2}}$$x y/'"]
    a.pin("why")
    [one] = session.asked.take()
    with pytest.raises(BadTarget, match="no variable holds v1"):
        one.lines({})
