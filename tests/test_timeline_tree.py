"""The timeline as a tree: re-runs, moves of HEAD, branches, handles that go back, and sessions that are taken over."""

from __future__ import annotations

import dataclasses
import gc
import io
import json
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule
from scale import examples

from ctxkernel.core.delta import format_comparisons
from ctxkernel.core.errors import BadPolicy, CtxError, OutsideTurn
from ctxkernel.core.loop import Loop
from ctxkernel.core.names import UserNames
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.replay import Comparison, Divergence, HeadMove
from ctxkernel.core.scheduler import UpdatePayload
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Branch, Execution, Statement, StatementLog
from ctxkernel.core.timeline_events import MethodCalled, NodeChanged
from ctxkernel.core.turn_values import Outcome, Turn
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.sources import open_named
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.state.types.packer import Packer
from ctxkernel.testing import AtOnce, FakeSource, Turns
from ctxkernel.testing.fake_loop import count_words

# -- the log --------------------------------------------------------------------------------------


def log_of(*edges):
    """Return a log of finished executions, `("s2.1", "s1.1")` each: what, and after what."""
    log = StatementLog()
    for number, (execution_id, parent) in enumerate(edges):
        sid = execution_id.partition(".")[0]
        execution = Execution(execution_id, sid, parent, float(number))
        if execution_id.endswith(".1"):
            log.append(Statement(sid, int(sid[1:]), float(number), f"cell {sid}"), execution)
        else:
            log.append_execution(execution)
        log.finish(dataclasses.replace(execution, ended_at=float(number), status="ok"))
    return log


LINE = [("s1.1", None), ("s2.1", "s1.1"), ("s3.1", "s2.1")]
FORKED = [*LINE, ("s4.1", "s1.1"), ("s2.2", "s4.1")]
#  s1.1 ── s2.1 ── s3.1
#     └─── s4.1 ── s2.2


def ids(path):
    return [execution.execution_id for _, execution in path]


def test_a_re_run_is_a_further_execution_of_its_statement_and_head_goes_to_it():
    log = log_of(*LINE)

    assert log.next_execution_id("s2") == "s2.2"
    log.append_execution(Execution("s2.2", "s2", "s1.1", 9.0))

    assert log.head == "s2.2"
    assert [run.execution_id for run in log.executions("s2")] == ["s2.1", "s2.2"]
    assert len(log) == 3
    assert log.next_index == 4


@pytest.mark.parametrize(
    ("execution", "error"),
    [
        (Execution("s9.1", "s9", None, 0.0), KeyError),
        (Execution("s2.2", "s2", "s9.1", 0.0), KeyError),
        (Execution("s2.1", "s2", "s1.1", 0.0), CtxError),
        (Execution("s2.5", "s2", "s1.1", 0.0), CtxError),
    ],
    ids=["unknown statement", "unknown parent", "id that is there", "id that is not the next"],
)
def test_an_execution_that_does_not_fit_leaves_the_log_as_it_was(execution, error):
    log = log_of(*LINE)

    with pytest.raises(error):
        log.append_execution(execution)

    assert (log.head, ids(log.path()), log.executed) == ("s3.1", ["s1.1", "s2.1", "s3.1"], 3)


def test_an_execution_cannot_end_elsewhere_than_where_it_began():
    log = log_of(*LINE)
    log.append_execution(Execution("s2.2", "s2", "s1.1", 9.0))

    with pytest.raises(CtxError, match="began after"):
        log.finish(Execution("s2.2", "s2", "s3.1", 9.0, status="ok"))


def test_a_path_leads_from_the_root_along_the_parents():
    log = log_of(*FORKED)

    assert ids(log.path()) == ["s1.1", "s4.1", "s2.2"]
    assert ids(log.path("s3.1")) == ["s1.1", "s2.1", "s3.1"]
    assert log.path(None) == []
    assert [statement.statement_id for statement, _ in log.path()] == ["s1", "s4", "s2"]
    with pytest.raises(KeyError):
        log.path("s8.1")


def test_head_moves_to_any_execution_and_before_all_of_them_and_rewrites_nothing():
    log = log_of(*FORKED)
    before = [log.executions(statement.statement_id) for statement in log]

    for place in ("s3.1", None, "s1.1"):
        log.move_head(place)
        assert log.head == place
        assert ids(log.path()) == ids(log.path(place))
    with pytest.raises(KeyError):
        log.move_head("s5.1")

    assert log.head == "s1.1"
    assert [log.executions(statement.statement_id) for statement in log] == before


def test_children_and_branches_are_the_shape_of_the_tree():
    log = log_of(*FORKED)

    assert [one.execution_id for one in log.children("s1.1")] == ["s2.1", "s4.1"]
    assert [one.execution_id for one in log.children(None)] == ["s1.1"]
    assert log.children("s3.1") == ()
    assert [one.leaf for one in log.branches()] == ["s3.1", "s2.2"]
    with pytest.raises(KeyError):
        log.children("s8.1")


def test_a_branch_has_its_fork_its_statements_and_says_whether_head_is_on_it():
    """Where HEAD is at a place that two share, it is on the newer one: there is one HEAD."""
    log = log_of(*FORKED)
    assert log.branches() == (
        Branch("s3.1", "s1.1", ("s2", "s3"), has_head=False),
        Branch("s2.2", "s1.1", ("s4", "s2"), has_head=True),
    )

    log.move_head("s1.1")

    assert [branch.has_head for branch in log.branches()] == [False, True]


def test_branches_and_their_paths_take_time_for_each_execution_and_not_for_each_branch_too():
    """A session of 30,000 cells with 150 branches took 15 seconds for each re-run, and minutes for a sweep."""
    trunk = [(f"s{at}.1", f"s{at - 1}.1" if at > 1 else None) for at in range(1, 1001)]
    log = log_of(*trunk, *[(f"s{at}.1", "s990.1") for at in range(1001, 1201)])
    looked = []

    class Counting(dict):
        def __getitem__(self, key):
            looked.append(key)
            return super().__getitem__(key)

        def get(self, key, default=None):
            looked.append(key)
            return super().get(key, default)

    log._by_id = Counting(log._by_id)
    paths = list(log.paths(branch.leaf for branch in log.branches()))

    assert [len(path) for path in paths] == [1000, *[991] * 200]
    assert len(looked) < 10 * log.executed


def test_an_execution_leads_back_to_the_first_one_also_where_a_damaged_log_has_a_cycle():
    log = log_of(*FORKED)
    assert ids(log.back("s2.2")) == ids(reversed(log.path("s2.2"))) == ["s2.2", "s4.1", "s1.1"]
    assert ids(log.back(None)) == []
    with pytest.raises(KeyError):
        list(log.back("s9.1"))

    log._by_id["s1.1"] = dataclasses.replace(log.execution("s1.1"), parent_execution_id="s2.2")

    assert ids(log.back("s2.2")) == ["s2.2", "s4.1", "s1.1", "s2.2", "s4.1"]  # as many as there are
    assert len(log.path("s2.2")) == 5


def test_a_timeline_without_a_fork_is_one_branch_and_two_roots_share_nothing():
    assert log_of(*LINE).branches() == (Branch("s3.1", None, ("s1", "s2", "s3"), has_head=True),)
    two = log_of(*LINE, ("s4.1", None))
    assert [(branch.leaf, branch.fork) for branch in two.branches()] == [("s3.1", None), ("s4.1", None)]


def test_a_statement_that_only_moved_head_makes_no_branch():
    log = log_of(*LINE, ("s4.1", "s3.1"))
    log.move_head("s1.1", by="s4.1")

    assert [branch.leaf for branch in log.branches()] == ["s3.1"]

    log.move_head("s4.1")  # it is a place all the same
    assert [branch.leaf for branch in log.branches()] == ["s4.1"]


def test_the_execution_on_a_path_is_preferred_to_the_newest():
    log = log_of(*FORKED)

    assert log.newest_execution("s2").execution_id == "s2.2"
    assert log.newest_execution("s2", log.path("s3.1")).execution_id == "s2.1"
    assert log.newest_execution("s3", log.path()).execution_id == "s3.1"
    with pytest.raises(KeyError):
        log.newest_execution("s8")


def pairs_of(log):
    return [(statement, log.executions(statement.statement_id)) for statement in log]


def test_a_log_that_is_loaded_is_the_log_that_was_written():
    log = log_of(*FORKED, ("s5.1", "s2.2"))
    log.move_head("s3.1", by="s5.1")
    new = StatementLog()
    new.start_after(5)
    new.load(reversed(pairs_of(log)), log.head, movers=log.movers)

    assert pairs_of(new) == pairs_of(log)
    assert (new.head, new.next_index, new.branches()) == (log.head, log.next_index, log.branches())
    assert new.next_execution_id("s2") == "s2.3"


def test_earlier_roots_need_not_be_loaded():
    log = log_of(*LINE, ("s4.1", None), ("s5.1", "s4.1"))
    new = StatementLog()
    new.load(pairs_of(log)[3:], "s5.1")

    assert ids(new.path()) == ["s4.1", "s5.1"]
    assert (len(new), new.next_index, new.statement("s4").index) == (2, 6, 4)
    assert [one.execution_id for one in new.children(None)] == ["s4.1"]
    with pytest.raises(KeyError):
        new.statement("s1")


def test_a_path_begins_where_its_parent_was_lost():
    new = StatementLog()
    new.load(pairs_of(log_of(*FORKED))[1:], "s2.2")

    assert ids(new.path()) == ["s4.1", "s2.2"]
    assert [one.execution_id for one in new.children(None)] == ["s2.1", "s4.1"]
    assert [branch.fork for branch in new.branches()] == [None, None]


def test_what_cannot_be_loaded_is_refused():
    log = log_of(*LINE)
    with pytest.raises(CtxError, match="empty log"):
        log.load([], None)
    new = StatementLog()
    with pytest.raises(KeyError):
        new.load(pairs_of(log), "s9.1")
    assert (len(new), new.head) == (0, None)


def test_a_damaged_session_with_a_cycle_ends_all_the_same():
    new = StatementLog()
    new.load(
        [(Statement("s1", 1, 0.0, ""), [Execution("s1.1", "s1", "s1.2", 0.0), Execution("s1.2", "s1", "s1.1", 1.0)])],
        "s1.1",
    )

    assert len(new.path()) == 2
    assert isinstance(new.branches(), tuple)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["new", "again", "move", "start"]), st.integers(0, 30)), max_size=40))
def test_whatever_is_done_the_log_only_grows_and_every_place_stays_where_it_was(program):
    log = log_of(("s1.1", None))
    places = {"s1.1": ids(log.path("s1.1"))}
    for what, number in program:
        executions, statements = sorted(places), list(log)
        if what == "start":
            log.move_head(None)
        elif what == "move":
            log.move_head(executions[number % len(executions)])
        else:
            at = log.head
            if what == "new":
                sid = f"s{log.next_index}"
                log.append(Statement(sid, log.next_index, 0.0, "x"), Execution(f"{sid}.1", sid, at, 0.0))
            else:
                sid = statements[number % len(statements)].statement_id
                log.append_execution(Execution(log.next_execution_id(sid), sid, at, 0.0))
            log.finish(dataclasses.replace(log.execution(str(log.head)), status="ok"))
            places[str(log.head)] = [*places.get(at, []), str(log.head)]
        assert list(log)[: len(statements)] == statements
        assert {one: ids(log.path(one)) for one in places} == places
        leaves = {one for one in places if not log.children(one)}
        assert {branch.leaf for branch in log.branches()} == leaves
        with_head = [branch.leaf for branch in log.branches() if branch.has_head]
        assert len(with_head) == (log.head is not None)
        assert all(log.head in places[leaf] for leaf in with_head)
        assert [ids(path) for path in log.paths(places)] == list(places.values())
        # The branches cover the tree: what lies after the forks, and the ways to the forks.
        covered = {one for leaf in leaves for one in places[leaf]}
        assert covered == set(places)
    new = StatementLog()
    new.load(pairs_of(log), log.head)
    assert {one: ids(new.path(one)) for one in places} == places


def with_names(**names):
    """Turns whose user has these names from the start."""
    turns = Turns()
    turns.namespace.update(names)
    turns.tracker.adopt()
    turns.states[None] = turns.keep()
    return turns


# -- re-runs and moves ----------------------------------------------------------------------------


def test_a_re_run_with_unchanged_text_is_a_new_execution_of_the_old_statement():
    turns = Turns()
    turns.run("a = 1")
    turns.run("b = a + 1")
    turns.run("c = b")
    turns.goto("s1.1", "rerun")

    result = turns.run("b = a + 1", rerun_of="s2")

    assert (result.statement.statement_id, result.execution.execution_id) == ("s2", "s2.2")
    assert result.execution.parent_execution_id == "s1.1"
    assert len(turns.loop.log) == 4  # the fourth is the statement that asked for it
    assert ids(turns.loop.history) == ["s1.1", "s2.2"]


def test_a_re_run_with_another_text_is_a_statement_that_says_what_it_re_runs():
    turns = Turns()
    turns.run("a = 1")
    turns.run("b = a + 1")
    turns.goto("s1.1", "rerun")

    result = turns.run("b = a + 2", rerun_of="s2")

    assert (result.statement.statement_id, result.statement.tags) == ("s4", {"rerun_of": "s2"})
    assert (result.statement.parent_id, result.execution.parent_execution_id) == ("s1", "s1.1")


def test_a_re_run_of_something_unknown_is_a_statement_like_any_other():
    result = Turns().run("a = 1", rerun_of="s77")

    assert (result.execution.execution_id, result.statement.tags) == ("s1.1", {})


def test_a_statement_in_the_past_begins_a_branch_and_prompt_numbers_never_go_back():
    turns = Turns()
    for number in range(1, 6):
        turns.run(f"x{number} = {number}")
    moved = turns.goto("s2.1")

    result = turns.run("y = x2")

    assert moved.moved == HeadMove("s2.1", "goto", moved.moved.at)
    assert (result.statement.statement_id, result.statement.parent_id) == ("s7", "s2")
    assert result.execution.parent_execution_id == "s2.1"
    assert [branch.leaf for branch in turns.loop.log.branches()] == ["s5.1", "s7.1"]
    assert (result.turn_id, moved.turn_id) == (7, 6)


def test_the_statement_that_moved_head_stays_where_head_was():
    turns = Turns()
    turns.run("a = 1")
    turns.run("b = 2")

    moved = turns.goto("s1.1")

    assert (moved.execution.parent_execution_id, moved.execution.status) == ("s2.1", "ok")
    assert turns.loop.log.children("s3.1") == ()
    assert turns.loop.log.head == "s1.1"
    assert not moved.execution.state_diff


def test_after_a_move_all_tables_are_those_of_the_place():
    turns = Turns()
    turns.run("a = 1; b = 1")
    turns.run("b = 2; h = view('x')")
    turns.run("del a; h = 3; c = 3")

    turns.goto("s2.1")

    turn = turns.projector.turns[-1]
    assert ids(turn.history) == ["s1.1", "s2.1"]
    assert [(line.name, line.statement_id) for line in turn.variables] == [("a", "s1"), ("b", "s2")]
    assert [state.name for state in turn.handles] == ["h"]
    assert turn.variables_total == 2


def test_before_all_statements_there_is_nothing_and_a_new_root_grows_from_there():
    turns = Turns()
    turns.run("a = 1")
    turns.goto(None)
    turn = turns.projector.turns[-1]
    assert (list(turn.history), turn.variables, turn.handles) == ([], (), ())

    result = turns.run("b = 1")

    assert (result.statement.parent_id, result.execution.parent_execution_id) == (None, None)
    assert turns.namespace == {"b": 1}


def test_names_that_changed_outside_of_a_cell_belong_to_the_branch():
    turns = Turns()
    turns.run("a = 1")
    turns.run("b = 1")
    turns.goto("s1.1")
    turns.namespace["late"] = 2

    result = turns.run("c = 1")

    assert result.outside[1].parent_execution_id == "s1.1"
    assert result.execution.parent_execution_id == result.outside[1].execution_id


def test_a_move_to_an_unknown_place_moves_nothing():
    turns = Turns()
    turns.run("a = 1")
    turns.loop.begin("%ctx goto 9", now=turns.now)
    with pytest.raises(KeyError):
        turns.loop.end(Outcome("ok"), turns.now, move=HeadMove("s9.1", "goto", 0.0))
    assert turns.loop.log.head == "s2.1"

    guarded = Turns(guard=lambda step, run, otherwise, *given: _tried(run, otherwise, *given))
    guarded.run("a = 1")
    guarded.loop.begin("%ctx goto 9", now=guarded.now)
    result = guarded.loop.end(Outcome("ok"), guarded.now, move=HeadMove("s9.1", "goto", 0.0))

    assert result.moved is None
    assert ids(guarded.loop.history) == ["s1.1", "s2.1"]


def _tried(run, otherwise, *given):
    try:
        return run(*given)
    except Exception:
        return otherwise


def test_head_cannot_be_moved_by_itself_while_a_statement_is_open():
    turns = Turns()
    turns.run("a = 1")
    turns.loop.begin("b = 1", now=turns.now)
    with pytest.raises(RuntimeError, match="end"):
        turns.loop.move(HeadMove(None, "goto", 0.0))


def test_the_feed_of_a_move_says_where_head_is_and_what_is_lost_and_nothing_of_other_branches():
    turns = Turns()
    turns.run("a = 1")
    turns.run("secret = 2; h = view('x')")
    turns.loop.late("s2.1", "stdout", "of the other branch")
    turns.loop.late("s1.1", "stdout", "of this one")

    result = turns.goto("s1.1", lost={"gen": "a generator cannot be stored"})

    assert [(item.kind, item.subject, item.summary) for item in result.deltas] == [
        ("notice", "timeline", "the state is that after s1 (goto)"),
        ("notice", "gen", "not as it was: a generator cannot be stored"),
        ("late", "s1", "printed after its end: of this one"),
    ]
    assert {item.statement_id for item in result.deltas} == {"s1"}


def test_output_of_a_statement_on_another_branch_is_kept_and_no_news_here():
    turns = Turns()
    turns.run("a = 1")
    turns.run("b = 1")
    turns.goto("s1.1")
    turns.loop.late("s2.1", "stdout", "still printing")

    result = turns.run("c = 1")

    assert turns.loop.log.execution("s2.1").late == {"stdout": "still printing"}
    assert not any(item.kind == "late" for item in result.deltas)


def test_the_real_tracker_and_the_path_agree_about_handles_and_who_changed_what():
    turns = Turns()
    tracker = NamespaceTracker(
        turns.namespace,
        hidden=dict,
        settings=turns.loop.settings,
        transform=str,
        packer=Packer(turns.namespace, is_handle=lambda value: issubclass(type(value), NodeBase)),
    )
    loop = turns.loop = Loop(
        namespace=turns.namespace,
        tracker=tracker,
        projector=turns.projector,
        open_source=turns.loop.graph.open_source,
        count_tokens=turns.loop.graph.count_tokens,
        trim=turns.loop.graph.trim,
    )
    for code in ("a = 1; b = [1]", "k = view('x'); h = k; hs = [h]", "b.append(2); del k; k = 3", "k = h; del a"):
        turns.run(code)
        fresh = UserNames(turns.namespace, loop.graph, tracker, rows=40, mask_value=lambda name, value: value)
        fresh.replay(loop.log.path())
        assert list(fresh.handles.items()) == list(loop.names.handles.items())
        assert list(fresh.changed_by.items()) == list(loop.names.changed_by.items())


def test_an_ordinary_turn_costs_the_same_however_long_the_path_is():
    """No loop over the path, however it is hidden: the path counts how often it is walked."""
    turns = Turns()
    for _ in range(30):
        turns.run("a = 1")
    walked = []

    class Watched(list):
        def __iter__(self):
            walked.append(1)
            return super().__iter__()

    turns.loop._history = Watched(turns.loop._history)
    turns.loop.log.path = lambda *_: walked.append("path")
    turns.run("a = 2")
    turns.run("h = view('x').run()")

    assert walked == []


# -- what re-runs came out with -------------------------------------------------------------------


def differs(execution_id="s2.2", against="s2.1", *found, **more):
    return Comparison(execution_id, against, tuple(Divergence(*one) for one in found), **more)


STDOUT = ("output", "stdout", "1 → 2")
DF = ("state", "df", "3 cells", "seed")
SLOW = ("timing", "time", "1 s → 2 s")

LINES = [
    ([differs("s7.2", "s7.1", STDOUT, DF)], ["s7: differs from its first run: stdout, df (seed)"]),
    ([differs("s7.3", "s7.2", STDOUT)], ["s7: differs from its run 2: stdout"]),
    ([differs("s9.1", "s7.1", STDOUT)], ["s9: differs from s7: stdout"]),
    ([differs("s7.2", "s7.1", STDOUT, SLOW, STDOUT)], ["s7: differs from its first run: stdout"]),
    ([differs("s7.2", "s7.1", SLOW)], ["re-runs: 1 came out the same"]),
    (
        [differs("s7.2", "s7.1"), differs("s8.2", "s8.1", STDOUT), differs("s9.2", "s9.1")],
        ["s8: differs from its first run: stdout", "re-runs: 2 came out the same"],
    ),
    (
        [differs("s7.2", "s7.1", STDOUT, expected=True), differs("s8.2", "s8.1")],
        ["re-runs: 1 came out the same; 1 differently, as expected: s7"],
    ),
    (
        [differs("s7.2", "s7.1", *[("state", f"x{n}", "") for n in range(10)])],
        ["s7: differs from its first run: x0, x1, x2, x3, x4, x5, x6, x7, … 2 more"],
    ),
    ([], []),
]


@pytest.mark.parametrize(("comparisons", "lines"), LINES, ids=[str(index) for index in range(len(LINES))])
def test_each_re_run_that_differs_has_a_line_and_all_others_share_one(comparisons, lines):
    assert [f"{item.subject}: {item.summary}" for item in format_comparisons(comparisons)] == lines


def test_what_a_re_run_came_out_with_is_told_once_in_the_next_turn():
    turns = Turns()
    turns.run("a = 1")
    turns.goto(None, "rerun")
    turns.run("a = 1", rerun_of="s1")
    turns.loop.compared(differs("s1.2", "s1.1", STDOUT))

    first, second = turns.run("b = 1"), turns.run("c = 1")

    assert [item.summary for item in first.deltas if item.kind == "divergence"] == [
        "differs from its first run: stdout"
    ]
    assert not any(item.kind == "divergence" for item in second.deltas)
    with pytest.raises(KeyError):
        turns.loop.compared(differs("s9.2", "s9.1"))


def test_a_re_run_on_another_branch_is_not_told_after_a_move():
    turns = Turns()
    turns.run("a = 1")
    turns.run("b = 1")
    turns.loop.compared(differs("s2.1", "s1.1", STDOUT))

    assert not any(item.kind == "divergence" for item in turns.goto("s1.1").deltas)


def grouped():
    turns = with_names(df=FakeSource("one", "df"), other=FakeSource("two", "other"))
    turns.run("g = group(view(df), tokens=60); k = group(view(other), tokens=60); outer = group(g, tokens=90)")
    return turns


def test_a_group_over_what_a_re_run_changed_begins_with_that():
    turns = grouped()
    turns.loop.compared(differs("s1.1", "s1.1", STDOUT, DF, DF))

    turns.run()

    namespace = turns.namespace
    assert namespace["g"].rendered.text.splitlines()[1] == "since the re-run of s1: 2 divergences (df)"
    assert "re-run" not in namespace["k"].rendered.text
    assert "since the re-run of s1" in namespace["outer"].rendered.text


def test_the_line_of_a_group_stands_until_a_later_turn_makes_the_summary_anew():
    turns = grouped()
    turns.loop.compared(differs("s1.1", "s1.1", DF))
    group = turns.namespace["g"]
    for _ in range(3):
        turns.run()
        assert "since the re-run" in group.rendered.text
    turns.run("g.refresh()")

    assert "since the re-run" not in group.rendered.text


def test_the_line_of_a_group_waits_where_the_time_after_the_cell_ran_out():
    turns = grouped()
    turns.loop.compared(differs("s1.1", "s1.1", DF))
    turns.loop.begin("pass", now=turns.now)
    turns.loop.end(Outcome("ok"), turns.now, lambda: True)
    assert "since" not in turns.namespace["g"].rendered.text

    turns.run()

    assert "since the re-run of s1: 1 divergence (df)" in turns.namespace["g"].rendered.text


def test_a_paused_group_stays_as_it_was_and_so_does_one_of_an_expected_difference():
    turns = grouped()
    turns.run("g.pause()")
    before = turns.namespace["g"].rendered.text
    turns.loop.compared(differs("s1.1", "s1.1", DF))
    turns.run()
    turns.run("g.run()")
    turns.loop.compared(differs("s1.1", "s1.1", DF, expected=True))
    turns.run()

    assert turns.namespace["g"].rendered.text == before


@pytest.mark.parametrize(
    ("kind", "subject", "told"),
    [
        ("file", "data.csv", True),
        ("artifact", "data.csv", True),
        ("file", "a.csv", False),
        ("state", "data.csv", False),
    ],
)
def test_a_view_of_a_file_is_concerned_by_differences_of_that_file(tmp_path, kind, subject, told):
    (tmp_path / "data.csv").write_text("a,b\n")
    turns = real_turns(path=str(tmp_path / "data.csv"))
    turns.run("g = group(view(path))")
    turns.loop.compared(differs("s1.1", "s1.1", (kind, subject, "")))
    turns.run()

    assert ("since the re-run" in turns.namespace["g"].rendered.text) is told


# -- handles that go back -------------------------------------------------------------------------


def real_turns(**names):
    """Turns whose views look at files and objects by the real sources."""
    turns = with_names(**names)
    turns.loop.graph.open_source = lambda target: open_named(target, turns.namespace)
    return turns


POLICIES = [
    "h.lod = 2", "h.tokens = 2", "h.pos = '4:1'", "h.run()", "h.run('Async')", "h.run(('Periodic', 0.3333333333))",
    "pin(h, 'why')", "src.text = 'other words'; h.refresh()", "h.lod = 3", "h.tokens = All; h.min_turn_interval = 3",
]  # fmt: skip


@pytest.mark.parametrize("change", POLICIES)
def test_a_handle_goes_back_to_its_state_and_stays_the_same_object(change):
    from ctxkernel.core.ports import All

    turns = with_names(All=All, src=FakeSource())
    turns.run("h = view(src, tokens=50); g = group(h)")
    handle, group, before = turns.namespace["h"], turns.namespace["g"], turns.loop.graph.memento()
    turns.run(change)
    after, digests = turns.loop.graph.memento(), [handle.digest(), group.digest()]

    turns.goto("s1.1")
    assert turns.namespace["h"] is handle
    assert turns.namespace["g"] is group
    assert turns.loop.graph.memento() == before
    turns.goto("s2.1")

    assert turns.loop.graph.memento() == after
    assert [handle.digest(), group.digest()] == digests


def test_a_memento_is_plain_and_the_same_object_while_nothing_changes():
    turns = Turns()
    turns.run("h = view('x').run(); g = group(h)")
    graph = turns.loop.graph
    first = graph.memento()
    for _ in range(3):
        turns.run()

    second = graph.memento()
    assert all(second[obj_id] is first[obj_id] for obj_id in first)
    assert json.loads(json.dumps(first)) == first
    turns.run("h.lod = 1")
    assert graph.memento()["v1"] is not first["v1"]


@given(st.lists(st.sampled_from(POLICIES[:-1]), max_size=6))
@settings(max_examples=examples(40), deadline=None)
def test_every_change_of_a_node_is_in_its_memento(program):
    """A cached memento equals one that is made now, whatever happened."""
    turns = with_names(src=FakeSource())
    turns.run("h = view(src); g = group(h)")
    for code in program:
        turns.run(code)
        for node in turns.loop.graph.nodes():
            assert node.memento() == node._state()


def test_a_handle_that_nobody_holds_any_more_is_made_again():
    turns = Turns()
    turns.run("h = view('some words', lod=1, tokens=9).run(); g = group(h); hs = [h]")
    before = turns.loop.graph.memento()
    turns.run("del h, g, hs")
    gc.collect()
    assert turns.loop.graph.nodes() == []

    turns.goto("s1.1")

    namespace = turns.namespace
    assert turns.loop.graph.memento() == before
    assert namespace["hs"] == [namespace["h"]]
    assert namespace["g"].members == (namespace["h"],)
    assert [state.name for state in turns.projector.turns[-1].handles] == ["h", "g"]


def test_a_handle_of_a_later_place_stands_aside_and_is_the_same_one_when_head_comes_back():
    turns = Turns()
    turns.run("a = 1")
    turns.run("h = view('x').run(); pin(h)")
    handle = turns.namespace["h"]  # as `Out`, or a stored state, would hold it
    turns.goto("s1.1")
    assert turns.loop.handles() == ()
    assert turns.loop.graph.memento() == {}

    turns.goto("s2.1")

    assert turns.namespace["h"] is handle
    assert [state.obj_id for state in turns.loop.handles()] == ["v1"]


def test_a_handle_that_stands_aside_and_is_used_is_one_of_the_handles_again():
    turns = Turns()
    turns.run("a = 1")
    turns.run("h = view('x')")
    turns.namespace["kept"] = turns.namespace["h"]
    handle = turns.namespace["h"]
    turns.goto("s1.1")
    turns.namespace["again"] = handle

    turns.run("again.lod = 1")

    assert [(state.name, state.digest["lod"]) for state in turns.loop.handles()] == [("again", 1)]


def test_ids_of_handles_are_never_used_twice():
    turns = Turns()
    turns.run("a = 1")
    turns.run("h = view('x'); k = view('y'); g = group(h)")
    turns.goto("s1.1")
    turns.run("h = view('z'); g = group(h)")
    assert [turns.namespace[name].obj_id for name in "hg"] == ["v3", "g2"]
    turns.goto("s1.1")

    new = turns.resumed()
    new.run("h = view('new'); g = group(h)")

    assert [new.namespace[name].obj_id for name in "hg"] == ["v4", "g3"]
    assert new.namespace["g"].serial > turns.loop.graph.counts["view"]


def test_going_back_tells_of_each_handle_that_differs_once_and_of_no_other():
    turns = Turns()
    turns.run("h = view('x'); k = view('y'); g = group(h)")
    turns.run("h.lod = 1; h.tokens = 30")

    result = turns.goto("s1.1")

    changes = [event for event in result.events if isinstance(event, NodeChanged)]
    assert [event.obj_id for event in changes] == ["v1"]
    assert changes[0].delta.fields["lod"] == (1, 0)
    assert not any(isinstance(event, MethodCalled) for event in result.events)


def test_node_state_is_restored_by_the_graph_alone():
    turns = Turns()
    turns.run("h = view('x')")
    handle = turns.namespace["h"]
    with pytest.raises(OutsideTurn):
        handle.take(handle.memento())

    turns.loop.graph.restore(turns.loop.graph.memento(), turns.loop.graph.targets().__getitem__)

    with pytest.raises(OutsideTurn):
        handle.lod = 2


def test_a_running_view_that_was_set_back_looks_at_its_target_at_once():
    turns = with_names(src=FakeSource("old words"))
    turns.run("h = view(src).run(); h.min_turn_interval = 9")
    turns.run("h.lod = 1")
    src, kept = turns.namespace["src"], turns.states["s1.1"]
    turns.states["s1.1"] = dataclasses.replace(kept, texts={src: "a file that nobody rolled back"})

    turns.goto("s1.1")

    assert turns.namespace["h"].rendered.text == "L0 a file that nobody rolled back"


def test_what_changed_since_the_place_that_head_came_back_to_is_told_where_it_was_not_rolled_back():
    """A file that cells wrote stays as it is: the view goes back to what it showed, and finds the difference."""
    turns = with_names(src=FakeSource("old"))
    turns.run("h = view(src).run()")
    turns.run("src.text = 'new'")
    turns.states["s1.1"] = dataclasses.replace(turns.states["s1.1"], texts={})

    result = turns.goto("s1.1")

    handle = turns.namespace["h"]
    assert (handle.rendered.text, handle.revision) == ("L0 new", 2)
    assert handle.last_change.splitlines()[-2:] == ["-old", "+new"]
    assert [type(event).__name__ for event in result.events].count("TickApplied") == 1


def test_a_diff_view_that_was_set_back_still_shows_the_difference_that_it_showed():
    turns = with_names(src=FakeSource("one"))
    turns.run("h = view(src, lod=3).run()")
    turns.run("src.text = 'two'")
    shown = turns.namespace["h"].rendered.text
    assert "+two" in shown
    turns.run("src.text = 'three'")
    turns.goto("s2.1")
    turns.run()
    assert turns.namespace["h"].rendered.text == shown

    turns.run("src.text = 'four'")

    # What it is compared with came back too.
    assert turns.namespace["h"].rendered.text.splitlines()[-2:] == ["-two", "+four"]


def test_an_update_that_was_prepared_before_a_move_is_not_applied_after_it():
    turns = with_names(src=FakeSource("old"))
    turns.run("h = view(src).run('Async')")
    handle = turns.namespace["h"]
    basis = handle.basis()
    turns.goto("s1.1")
    stale = handle.render().__class__("L0 stale", 2, 0, "0:0", fingerprint="f")
    turns.loop.ready.put(UpdatePayload("p1", "v1", 0.0, basis, "render", ("f", stale, stale)))

    turns.run()

    assert handle.rendered.text == "L0 old"


def test_a_prepared_update_leaves_a_view_as_it_was_set_back_where_its_target_is_the_same():
    turns = with_names(src=FakeSource("one"))
    turns.run("h = view(src, lod=3).run('Async')")
    handle = turns.namespace["h"]
    turns.loop.preparer = AtOnce(turns.loop.ready)
    turns.run("src.text = 'two'")
    turns.run()
    shown = handle.rendered.text
    turns.run("h.lod = 0")
    turns.goto("s3.1")
    turns.run()
    turns.run()

    assert handle.rendered.text == shown


def test_a_file_view_comes_back_by_its_path_and_label_in_another_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text("line one\nline two\n")
    turns = real_turns()
    turns.run("h = view('log.txt', pos=1); d = view('.')")
    memento = json.loads(json.dumps(turns.loop.graph.memento()))
    before = [turns.namespace[name].digest() for name in "hd"]
    new = real_turns()
    monkeypatch.chdir("/")

    notices = new.loop.graph.restore(memento, {}.__getitem__)

    graph = new.loop.graph
    assert notices == []
    assert [graph.node(obj_id).digest() for obj_id in ("v1", "v2")] == before
    assert graph.node("v1").render().text == turns.namespace["h"].render().text
    assert graph.targets() == {"v1": str(tmp_path / "log.txt"), "v2": str(tmp_path)}


TARGETS = {
    "path": "'log.txt'", "directory": "'.'", "open file": "open('log.txt')", "module": "json", "function": "json.dumps",
    "list": "[1, 2]", "text": "io.StringIO('words')", "nothing": "None", "number": "3.5", "array": "np.arange(9)",
    "frame": "pd.DataFrame({'a': [1, 2]})", "source": "FakeSource('mine')",
}  # fmt: skip


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
def test_whatever_a_view_looks_at_it_comes_back_as_it_was(tmp_path, monkeypatch, kind, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text("line one\n")
    turns = real_turns(json=json, io=io, np=import_module("numpy"), pd=import_module("pandas"))
    turns.namespace["FakeSource"] = FakeSource
    turns.run(f"x = {TARGETS[kind]}\nh = view({'x' if named else TARGETS[kind]}, lod=1)")
    handle, graph = turns.namespace["h"], turns.loop.graph
    other = real_turns(**{name: value for name, value in turns.namespace.items() if name != "h"})
    monkeypatch.chdir("/")

    notices = other.loop.graph.restore(json.loads(json.dumps(graph.memento())), dict(graph.targets()).__getitem__)

    again = other.loop.graph.node("v1")
    assert notices == []
    assert (again.digest(), again.kind, again.target) == (handle.digest(), handle.kind, handle.target)
    assert again.render() == handle.render()
    assert again.memento() == handle.memento()


def test_a_view_whose_file_is_gone_shows_what_it_showed_and_says_so(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("line one\n")
    turns = real_turns(path=str(path))
    turns.run("h = view(path); k = view(path).run(); g = group(k)")
    memento = json.loads(json.dumps(turns.loop.graph.memento()))
    path.unlink()
    new = real_turns()

    new.loop.begin("%ctx resume", now=0.0)
    notices = new.loop.graph.restore(memento, {}.__getitem__)
    h, k = new.loop.graph.node("v1"), new.loop.graph.node("v2")
    assert [h.fault[:20], len(notices)] == ["no file or directory", 2]
    assert "line one" in h.rendered.text and "line one" in k.rendered.text
    new.loop.end(Outcome("ok"), 1.0)
    assert "gone" in k.rendered.text  # a running one looks: that is what there is
    assert "line one" in h.rendered.text

    path.write_text("line one\nit is back\n")
    new.run()

    assert "it is back" in k.rendered.text
    assert k.fault == ""


def test_a_view_whose_object_was_not_restored_says_why():
    turns = real_turns()
    turns.run("x = [1, 2]; h = view(x)")
    memento = json.loads(json.dumps(turns.loop.graph.memento()))

    def lost(obj_id):
        raise CtxError("x: a generator cannot be stored")

    new = real_turns()
    notices = new.loop.graph.restore(memento, lost)
    handle = new.loop.graph.node("v1")

    assert notices == ["v1 (x): x: a generator cannot be stored"]
    assert (handle.fault, handle.rendered) == ("x: a generator cannot be stored", handle.rendered)
    assert "v1" not in new.loop.graph.targets()
    assert "gone" in handle.render().text
    assert count_words(handle._source.render(RenderRequest(0, "0", 3)).text) == 3


def test_an_object_view_is_called_as_before_and_knows_when_the_name_went_elsewhere():
    turns = real_turns()
    turns.run("b = a = [1]; h = view(a); nameless = view([2])")
    memento = json.loads(json.dumps(turns.loop.graph.memento()))
    new = real_turns()
    value = [1]
    new.namespace.update(a=value, b=value)

    new.loop.graph.restore(memento, {"v1": value, "v2": [2]}.__getitem__)

    view, other = new.loop.graph.node("v1"), new.loop.graph.node("v2")
    assert (view.target, other.target) == (turns.namespace["h"].target, "list")
    new.namespace.pop(view.target)
    assert "deleted" in view.target


def test_a_damaged_memento_costs_its_own_handle_only():
    turns = Turns()
    turns.run("h = view('x'); k = view('y')")
    memento = json.loads(json.dumps(turns.loop.graph.memento()))
    memento["v1"]["lod"] = 17
    memento["n9"] = {"obj_type": "painting"}
    targets = turns.loop.graph.targets()
    new = Turns()

    notices = new.loop.graph.restore(memento, targets.__getitem__)

    assert [notice.partition(" ")[0] for notice in notices] == ["n9", "v1"]
    assert new.loop.graph.node("v2").digest() == turns.namespace["k"].digest()


def test_blank_handles_are_no_handles_before_they_are_restored():
    turns = Turns()
    turns.run("h = view('x')")
    memento = turns.loop.graph.memento()
    graph = Turns().loop.graph
    graph.revive(memento)

    blank = graph.node("v1")
    assert isinstance(blank, NodeBase)
    assert (graph.nodes(), dict(graph.memento())) == ([], {})
    graph.restore(memento, lambda _: FakeSource())
    assert graph.node("v1") is blank

    del blank
    graph.release()
    gc.collect()
    assert graph.node("v1") is None


def test_a_handle_remains_refused_what_it_refuses_after_it_was_set_back():
    turns = Turns()
    turns.run("h = view('x')")
    turns.run("h.lod = 1")
    turns.goto("s1.1")
    with pytest.raises(BadPolicy):
        turns.run("h.lod = 9")
    with pytest.raises(AttributeError, match="tokens"):
        turns.run("h.token = 9")


# -- sessions that are taken over -----------------------------------------------------------------


def test_a_session_that_is_taken_over_goes_on_where_it_was():
    turns = with_names(src=FakeSource())
    turns.run("a = 1; h = view(src).run(); g = group(h)")
    turns.run("b = 1")
    turns.goto("s1.1")
    turns.run("c = 1; del a")
    before = turns.projector.turns[-1]

    new = turns.resumed()

    after = new.projector.turns[-1]
    assert after.history == list(before.history)
    assert (after.variables, after.variables_total) == (before.variables, before.variables_total)
    assert [dataclasses.replace(state, changed=False) for state in before.handles] == list(after.handles)
    assert [item.summary for item in after.deltas] == ["the state is that after s4 (resume)"]
    result = new.run("d = 1")
    assert (result.statement.statement_id, result.statement.parent_id) == ("s5", "s4")
    assert result.turn_id == 5
    assert new.loop.log.branches() == (
        Branch("s2.1", "s1.1", ("s2",), has_head=False),
        Branch("s5.1", "s1.1", ("s4", "s5"), has_head=True),
    )


def test_a_known_turn_id_is_what_turn_ids_go_on_after():
    turns = Turns()
    turns.run("a = 1")
    new = Turns()
    new.loop.load(pairs_of(turns.loop.log), None, turn_id=41)
    assert new.run("b = 1").turn_id == 42


def test_an_earlier_timeline_is_put_before_what_this_kernel_ran_already():
    old = Turns()
    old.run("a = 1; h = view('x')")
    old.run("b = 1")
    old.goto("s1.1")
    new = Turns()
    new.now = old.now
    new.loop.log.start_after(3)
    new.run("c = 1")

    new.loop.join(pairs_of(old.loop.log), movers=old.loop.log.movers)

    log = new.loop.log
    assert [statement.statement_id for statement in log] == ["s1", "s2", "s3", "s4"]
    assert (log.head, ids(new.loop.history)) == ("s4.1", ["s4.1"])
    assert [branch.leaf for branch in log.branches()] == ["s2.1", "s4.1"]
    new.run("k = view('y')")
    assert new.namespace["k"].obj_id == "v2"
    new.states.update(old.states)
    assert ids(new.goto("s1.1") and new.loop.history) == ["s1.1"]
    assert new.run("d = 1").statement.parent_id == "s1"


def test_a_timeline_that_does_not_fit_before_this_one_is_refused_and_changes_nothing():
    old, new = Turns(), Turns()
    old.run("a = 1")
    new.run("b = 1")
    log = new.loop.log

    with pytest.raises(CtxError):
        new.loop.join(pairs_of(old.loop.log))

    assert new.loop.log is log
    assert ids(new.loop.history) == ["s1.1"]


# -- laws 2, 3, 6 and 8, whatever is done ---------------------------------------------------------

SMALL = Settings(projection_tokens=700, statement_tokens=40, variable_rows=4)

CELLS = [
    "x = {n}", "y = {n}; x = 0", "del x", "src.text = 'text {n}'", "h = view(src)", "h = view(src, lod=3).run()",
    "k = h; h = {n}", "h.lod = {n} % 4", "h.run()", "h.pause()", "pin(h, 'p{n}')", "h.unpin()",
    "g = group(h, tokens=20 + {n})", "g.tokens = 5 + {n}", "hs = [h]", "del h", "g = {n}", "show(h)", "1/0", "ls()",
    "other = view('other {n}')",
]  # fmt: skip


def same_but_for_what_was_cached(one, other):
    records = [projection.to_record() for projection in (one, other)]
    for record in records:
        del record["cached"], record["broke"]
    return records[0] == records[1] and one.request_bytes == other.request_bytes


class Timeline(RuleBasedStateMachine):
    """Cells, moves, re-runs and resumptions in any order."""

    places = Bundle("places")

    def __init__(self):
        super().__init__()
        self.turns = Turns(SMALL, projector=Checking())
        self.turns.namespace["src"] = FakeSource("one two three")
        self.turns.tracker.adopt()
        self.turns.states[None] = self.turns.keep()
        self.facts = {}
        self.mementos = {None: {}}
        self.receipts = {}
        self.ids = {}
        self.number = 0

    @initialize(target=places)
    def first_cell(self):
        return self.cell("x = {n}")

    def cell(self, code, rerun_of=None):
        self.number += 1
        # What fails in the cell (a name is not there, say) is the cell's; whatever else fails is ours.
        tried = (
            f"try: {code.format(n=self.number)}\nexcept (ArithmeticError, AttributeError, NameError, ValueError): ..."
        )
        before = self.turns.loop.log.head
        execution_id = self.turns.run(tried if rerun_of is None else code, rerun_of=rerun_of).execution.execution_id
        assert self.turns.loop.log.execution(execution_id).parent_execution_id == before
        self.mementos[execution_id] = dict(self.turns.loop.graph.memento())
        return execution_id

    @rule(target=places, code=st.sampled_from(CELLS))
    def run_cell(self, code):
        return self.cell(code)

    @rule(place=places)
    def goto(self, place):
        self.go(place)

    @rule()
    def goto_the_start(self):
        self.go(None)

    def go(self, place):
        result = self.turns.goto(place)
        assert result.moved is not None
        assert self.turns.loop.log.head == place
        assert dict(self.turns.loop.graph.memento()) == self.mementos[place]
        kept = self.turns.states[place]
        assert set(self.turns.namespace) == set(kept.namespace)
        # Law 2: returning is reversible. The same place is the same projection, wherever HEAD was meanwhile.
        receipt = self.turns.loop.projection.receipt
        assert self.receipts.setdefault(place, receipt) == receipt
        self.mementos[result.execution.execution_id] = self.mementos[place]

    @rule(target=places, place=places, edit=st.booleans())
    def rerun(self, place, edit):
        log = self.turns.loop.log
        execution = log.execution(place)
        statement = log.statement(execution.statement_id)
        self.go(execution.parent_execution_id)
        made = self.cell(statement.source + (" # edited" if edit else ""), rerun_of=statement.statement_id)
        assert (log.execution(made).statement_id == statement.statement_id) is not edit
        return made

    @rule()
    def resume(self):
        old = self.turns
        new = old.resumed(projector=Checking())
        assert new.loop.projection.run.pieces == old.loop.projection.run.pieces
        # Back to where it was by both ways: the same bytes.
        place = old.loop.log.head
        self.turns = new
        self.facts = {one: new.loop.log.execution(one) for one in self.facts}
        if place in self.receipts:
            self.go(place)

    @precondition(lambda self: self.turns.loop.log.head is not None)
    @rule()
    def only_read(self):
        """Law 8: reading leaves no statement and never branches."""
        before = (len(self.turns.loop.log), self.turns.loop.log.executed, self.turns.loop.log.head)
        self.turns.loop.handles()
        self.turns.loop.names.table()
        self.turns.loop.log.branches()
        self.turns.loop.graph.memento()
        assert (len(self.turns.loop.log), self.turns.loop.log.executed, self.turns.loop.log.head) == before

    @invariant()
    def law_2_nothing_that_was_written_is_rewritten(self):
        log = self.turns.loop.log
        for execution_id, fact in self.facts.items():
            assert log.execution(execution_id) == fact
        assert [statement.index for statement in log] == list(range(1, len(log) + 1))
        for statement in log:
            for execution in log.executions(statement.statement_id):
                assert execution.status != "running"
                self.facts.setdefault(execution.execution_id, execution)

    @invariant()
    def law_3_the_tables_are_those_of_the_path(self):
        loop = self.turns.loop
        assert ids(loop.history) == ids(loop.log.path())
        fresh = UserNames(
            self.turns.namespace, loop.graph, self.turns.tracker, rows=SMALL.variable_rows, mask_value=lambda n, v: v
        )
        fresh.replay(loop.log.path())
        assert list(fresh.handles.items()) == list(loop.names.handles.items())
        assert list(fresh.changed_by.items()) == list(loop.names.changed_by.items())
        assert fresh.table() == loop.names.table()

    @invariant()
    def every_id_of_a_handle_is_of_one_cell(self):
        for obj_id, memento in self.turns.loop.graph.memento().items():
            source = self.turns.loop.log.statement(memento["statement_id"]).source
            made = memento["obj_type"], source.removesuffix(" # edited")
            assert self.ids.setdefault(obj_id, made) == made


class Checking:
    """A projector that holds every projection against one that is built from nothing (law 3)."""

    def __init__(self):
        self.engine = ProjectionEngine(SMALL, count_words)

    def tend(self, turn: Turn, moment: str):
        return self.engine.tend(turn, moment)

    def project(self, turn: Turn):
        made = self.engine.project(turn)
        fresh = ProjectionEngine(SMALL, count_words).project(turn)
        assert same_but_for_what_was_cached(made, fresh)
        assert made.report.ok
        return made


Timeline.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
test_whatever_is_done_the_laws_of_the_timeline_hold = Timeline.TestCase


def test_there_and_back_again_is_the_same_projection_byte_for_byte():
    turns = Turns(SMALL, projector=Checking())
    for number in range(40):
        turns.run(f"x{number % 7} = {number}", stdout="words " * 20)
    turns.goto("s30.1")
    there = turns.loop.projection.request_bytes
    turns.goto("s12.1")
    turns.run("branch = 1")

    turns.goto("s30.1")

    assert turns.loop.projection.request_bytes == there


def test_only_what_two_paths_do_not_share_is_rendered_again():
    engine = ProjectionEngine(SMALL, count_words)
    turns = Turns(SMALL, projector=engine)
    for number in range(20):
        turns.run(f"x = {number}")
    rendered = []
    text = engine.past.blocks.layout.text
    engine.past.blocks.layout.text = lambda *given: (rendered.append(given[1].execution_id), text(*given))[1]

    turns.goto("s15.1")
    turns.run("y = 1")

    assert rendered == ["s22.1"]
