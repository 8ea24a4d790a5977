"""Repair: the scenarios of seed 003 §4 and §7, and each fault by itself."""

from __future__ import annotations

import time

import pytest
from histories import answer, call, forget, ids, note, question, result

from ctxkernel.core.errors import BadHistory
from ctxkernel.history.events import Action, Events, HistoryEvent, Observation, Repair, UserRejection
from ctxkernel.history.repair import (
    HistoryReport,
    MissingOutput,
    Switches,
    maintain,
    normalise,
    recover,
    report,
    trim,
)
from ctxkernel.history.view import HistoryView

A = call
O = result  # noqa: E741
N = note

# -- seed 003 §4 -----------------------------------------------------------------------------------


def test_a_call_without_output_gets_a_synthetic_one():
    events = [A(1)]
    assert report(events).missing_outputs == (MissingOutput("c1", "run", "a1"),)

    done = normalise(events)

    assert report(done.events).is_valid()
    made = Observation("a1~result", "c1", "The call was interrupted. No output was received.", "canceled", True)
    assert done.events == [A(1), made]
    assert done.added == (made,)


def test_an_output_without_call_is_removed():
    events = [O(1)]
    assert report(events).orphan_outputs == ("c1",)

    done = normalise(events)

    assert done.events == []
    assert report(done.events).is_valid()


def test_a_mix_of_both_is_normalised():
    done = normalise([A(1), O(2)])

    assert ids(done.events) == ["a1", "a1~result"]
    assert report(done.events).is_valid()


def test_the_summary_names_what_is_missing():
    found = HistoryReport(missing_outputs=(MissingOutput("c1", "grep"),))

    assert not found.is_valid()
    assert found.summary() == "calls without a result: 1"
    assert report([A(1), O(2), O(3)]).summary() == "calls without a result: 1, results without a call: 2"
    assert HistoryReport().summary() == "the history is valid"


# -- seed 003 §7 -----------------------------------------------------------------------------------

CRASHED = [question(1), A(2, "r", thinking=True), A(3, "r"), O(2)]


def test_loading_a_session_makes_the_outputs_that_are_missing():
    done = recover(CRASHED)

    assert ids(done.events) == ["q1", "a2", "a3", "o2", "a3~result"]
    assert done.repairs == (
        Repair(
            "a3~result~repair-added", "added", "a3~result", "c3", "the result of run never came; it counts as canceled"
        ),
    )
    assert done.warning == (
        "the record of the model's work in the loaded session: calls without a result: 1 (repaired)"
    )


def test_an_append_only_log_is_whole_once_it_took_what_was_added():
    """What a crash left is shown after the synthetic results are appended; nothing recorded is rewritten."""
    view = HistoryView(CRASHED)
    assert ids(view.events) == ["q1"]

    view.extend(recover(CRASHED).added)

    assert ids(view.events) == ["q1", "a2", "a3", "o2", "a3~result"]


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (9, ["s0.1", "a1", "a2", "o1", "o2", "s3.1", "s4.1"]),
        (7, ["s0.1", "a1", "a2", "o1", "o2", "s3.1", "s4.1"]),
        (6, ["a1", "a2", "o1", "o2", "s3.1", "s4.1"]),
        (5, ["s3.1", "s4.1"]),
        (2, ["s3.1", "s4.1"]),
        (1, ["s4.1"]),
        (0, []),
    ],
)
def test_trimming_keeps_batches_whole(keep: int, left: list[str]):
    done = trim([N(0), A(1, "r"), A(2, "r"), O(1), O(2), N(3), N(4)], keep)

    assert ids(done.events) == left
    assert done.repairs == ()


def test_trimming_mends_what_was_broken_before():
    assert ids(trim([N(0), A(1), N(2), O(9)], 3).events) == ["a1", "a1~result", "s2.1"]


def test_trimming_cuts_a_long_loop_rather_than_losing_it():
    loop = [event for n in range(10) for event in (A(n, thinking=True), O(n))]

    assert ids(trim(loop, 5).events) == ["a8", "o8", "a9", "o9"]


def test_trimming_to_less_than_nothing_is_an_error():
    with pytest.raises(BadHistory, match="keep=-1"):
        trim([N(1)], -1)


@pytest.mark.parametrize("end", range(9))
def test_a_crash_at_any_event_leaves_a_history_that_recovers(end: int):
    whole = [question(1), A(2, "r"), A(3, "r"), O(3), O(2), A(4), UserRejection("o4", "c4"), answer(5), N(6)]

    done = recover(whole[:end])

    assert report(done.events).is_valid()
    assert {event.event_id for event in whole[:end]} <= set(ids(done.events))


@pytest.mark.parametrize("broken", [False, True])
def test_repair_is_linear(broken: bool):
    pairs = [event for n in range(25_000) for event in (A(n), N(n), O(n) if broken else A(-n - 1), O(-n - 1))]
    events: Events = pairs if broken else [event for n in range(50_000) for event in (A(n), O(n))]
    start = time.process_time()

    done = normalise(events)

    assert (done.events is events) != broken
    assert time.process_time() - start < 4


def test_a_huge_batch_is_sorted_in_no_time():
    events = [*(A(n, "r") for n in range(20_000)), *(O(n) for n in reversed(range(20_000)))]
    start = time.process_time()

    assert len(normalise(events).repairs) == 19_999
    assert time.process_time() - start < 4


# -- each fault ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "left", "fixes"),
    [
        pytest.param([A(1), N(2)], ["a1", "a1~result", "s2.1"], ["added"], id="directly after its call"),
        pytest.param([A(1, "r"), A(2, "r"), O(2)], ["a1", "a1~result", "a2", "o2"], ["added"], id="first of a batch"),
        pytest.param([A(1, "r"), A(2, "r"), O(1)], ["a1", "a2", "o1", "a2~result"], ["added"], id="last of a batch"),
        pytest.param(
            [A(1, "r"), A(2, "r")], ["a1", "a1~result", "a2", "a2~result"], ["added", "added"], id="all of a batch"
        ),
        pytest.param([A(1), O(1), O(2, of="c1")], ["a1", "o1"], ["removed"], id="the first of two results"),
        pytest.param([A(1), N(2), O(1)], ["a1", "o1", "s2.1"], ["moved"], id="a late result"),
        pytest.param([O(1), N(2), A(1)], ["s2.1", "a1", "o1"], ["moved"], id="a result before its call"),
        pytest.param([O(1), A(1), O(2, of="c1")], ["a1", "o1"], ["removed", "moved"], id="early and again: the first"),
        pytest.param([A(1, "r"), A(2, "r"), O(2), O(1)], ["a1", "a2", "o1", "o2"], ["moved"], id="call order"),
        pytest.param(
            [A(1, "r"), A(2, "p"), A(3, "r"), O(1), O(2), O(3)],
            ["a1", "a3", "o1", "o3", "a2", "o2"],
            ["moved", "moved", "moved", "moved"],
            id="batches that interleave",
        ),
        pytest.param([N(1), N(1)], ["s1.1"], ["removed"], id="recorded twice"),
        pytest.param(
            [A(1), O(1), A(2, id="c1"), O(2, of="c1")],
            ["a1", "o1", "a2", "o2"],
            ["renamed"],
            id="an id that comes again",
        ),
        pytest.param(
            [A(1), A(2, id="c1"), O(2, of="c1")],
            ["a1", "a1~result", "a2", "o2"],
            ["renamed", "added"],
            id="an id that comes again after a crash",
        ),
        pytest.param(
            [A(1, "r"), A(2, "r", id="c1"), O(1), O(2, of="c1")],
            ["a1", "a2", "o1", "o2"],
            ["renamed"],
            id="one id twice in a response",
        ),
        pytest.param(
            [A(1), Repair("p1", "removed", "x", "y", "z"), O(1)], ["a1", "p1", "o1"], [], id="a record parts nothing"
        ),
        pytest.param([A(1), forget("s9.1"), O(1)], ["a1", "k1", "o1"], [], id="nor does a condensation"),
    ],
)
def test_a_fault_is_mended_and_nothing_else(events: Events, left: list[str], fixes: list[str]):
    done = normalise(events)

    assert ids(done.events) == left
    assert [one.fix for one in done.repairs] == fixes
    assert normalise(done.events).events is done.events


def test_a_renamed_call_and_its_result_have_the_same_new_id():
    done = normalise([A(1, id="c"), O(1, of="c"), A(2, id="c"), O(2, of="c"), A(3, id="c-2"), O(3, of="c-2")])

    assert [event.tool_call_id for event in done.events] == ["c", "c", "c-3", "c-3", "c-2", "c-2"]  # type: ignore[union-attr]
    assert done.repairs[0].reason == "an earlier call has the id c"


def test_a_clean_history_comes_back_as_the_same_object():
    events: list[HistoryEvent] = [N(0), A(1), O(1), answer(2)]

    done = normalise(events)

    assert done.events is events
    assert done.repairs == ()
    assert recover(events).events is events
    assert trim(events, 9).events is events


@pytest.mark.parametrize("status", ["canceled", "timeout", "failed"])
def test_a_synthetic_result_says_how_its_call_ended(status):
    (made,) = normalise([A(1)], status=status).added

    assert made.status == status
    assert made.synthetic
    assert normalise([A(1)], statuses={"c1": status}).added == (made,)


def test_what_was_not_seen_did_not_succeed():
    with pytest.raises(BadHistory, match="cannot be 'success'"):
        normalise([A(1)], status="success")


def test_a_call_that_waits_for_approval_is_left_alone():
    """It is hidden with its batch; an interrupted one gets a synthetic result."""
    events = [A(1, "r"), A(2, "r"), O(1), N(3), A(4)]

    done = normalise(events, pending={"c2"})

    assert ids(done.events) == ["a1", "a2", "o1", "s3.1", "a4", "a4~result"]
    assert ids(HistoryView(done.events).events) == ["s3.1", "a4", "a4~result"]


def test_the_id_of_a_synthetic_result_is_its_own():
    taken = Observation("a1~result", "c0", "x")

    done = normalise([A(0, id="c0"), taken, A(1)])

    assert ids(done.events) == ["a0", "a1~result", "a1", "a1~result~"]


def test_a_thinking_block_is_not_touched_by_a_repair():
    action = A(2, id="c1", thinking=True)

    done = normalise([A(1), O(1), action])

    mended = done.events[2]
    assert isinstance(mended, Action)
    assert mended.tool_call_id == "c1-2"
    assert mended.blocks is action.blocks


# -- switches --------------------------------------------------------------------------------------


def test_the_switches_are_those_of_the_seed():
    assert Switches() == Switches(
        enforce_history_invariants=False, auto_recover_from_crash=True, warn_on_invariant_violations=True
    )


@pytest.mark.parametrize(
    ("moment", "switches", "mended", "warned"),
    [
        ("load", Switches(), True, True),
        ("load", Switches(auto_recover_from_crash=False), False, True),
        ("load", Switches(enforce_history_invariants=True, auto_recover_from_crash=False), True, True),
        ("rewind", Switches(), False, True),
        ("rewind", Switches(enforce_history_invariants=True), True, True),
        ("trim", Switches(enforce_history_invariants=True), True, True),
        ("request", Switches(enforce_history_invariants=True), True, True),
        ("request", Switches(warn_on_invariant_violations=False), False, False),
    ],
)
def test_a_switch_decides_what_is_done_unasked(moment, switches: Switches, mended: bool, warned: bool):
    events = [A(1)]

    done = maintain(events, moment, switches=switches)

    assert (done.events is not events) == mended
    assert bool(done.warning) == warned
    assert ("(repaired)" in done.warning) == (mended and warned)
    assert ("calls without a result: 1" in done.warning) == warned
    assert not done.report.is_valid()
