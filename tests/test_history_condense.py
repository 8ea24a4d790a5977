"""Condensation: when, what, what is said instead, and the two ways out of an agent step (seeds 001 and 004)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from histories import (
    MOVES,
    PROPERTIES,
    answer,
    call,
    forget,
    histories,
    ids,
    legal_request,
    note,
    question,
    result,
    sound,
    whole_batches,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.errors import BadPolicy, CtxError, NothingToCondense
from ctxkernel.history.condense import (
    Condensing,
    Forward,
    HistoryLimits,
    RecordCondensation,
    condense,
    extractive,
)
from ctxkernel.history.events import (
    Action,
    AgentError,
    AssistantMessage,
    Condensation,
    CondensationRequest,
    Events,
    HistoryEvent,
    HumanStatement,
    Observation,
    Output,
    Summary,
    UserQuestion,
    UserRejection,
    Withdrawal,
)
from ctxkernel.history.invariants import MessagePairing
from ctxkernel.history.view import HistoryView

A = call
O = result  # noqa: E741
N = note
Q = question


def words(event: HistoryEvent) -> int:
    """Tokens for tests: ten for each statement, call or result, the words of everything else."""
    match event:
        case Summary():
            return text_words(event.text)
        case UserQuestion():
            return 2
        case _:
            return 10


def text_words(text: str) -> int:
    return len(text.split())


SHORT = Condensing(keep_first=1, least=0.05, share=0.7)


def step_of(events: Events, limits: HistoryLimits, **given) -> Forward | RecordCondensation:
    given = {"policy": SHORT, **given}
    return condense(HistoryView(events), "k1", words, limits, **given)


def recorded(events: Events, limits: HistoryLimits, **given) -> Condensation:
    done = step_of(events, limits, **given)
    assert isinstance(done, RecordCondensation)
    return done.condensation


def after(events: Events, limits: HistoryLimits, **given) -> list[str]:
    return ids(HistoryView([*events, recorded(events, limits, **given)]).events)


# -- when ------------------------------------------------------------------------------------------

NOTES = [N(n) for n in range(8)]  # 80 tokens


@pytest.mark.parametrize(
    ("limits", "due"),
    [
        (HistoryLimits(), ""),
        (HistoryLimits(tokens=80, events=8, window=80), ""),
        (HistoryLimits(tokens=79), "the history is 80 tokens, over its limit of 79"),
        (HistoryLimits(events=7), "the history is 8 events, over its limit of 7"),
        (HistoryLimits(window=79), "the history is 80 tokens, over the model's window of 79"),
        (
            HistoryLimits(tokens=50, events=7),
            "the history is 80 tokens, over its limit of 50, the history is 8 events, over its limit of 7",
        ),
    ],
)
def test_a_condensation_is_due_over_a_limit_and_says_over_which(limits: HistoryLimits, due: str):
    done = step_of(NOTES, limits)

    if due:
        assert isinstance(done, RecordCondensation)
        assert done.condensation.reason == due
        assert done.after < done.before == 80
    else:
        assert isinstance(done, Forward)
        assert done.reason == ""


def test_a_request_is_a_condensation_that_is_due_at_any_length():
    made = recorded([*NOTES, CondensationRequest("k0")], HistoryLimits())

    assert made.reason == "a condensation was asked for"
    assert not HistoryView([*NOTES, CondensationRequest("k0"), made]).unhandled_request


def test_the_oldest_goes_until_the_target_is_reached():
    assert after(NOTES, HistoryLimits(tokens=79)) == ["s0.1", "k1~summary1", "s7.1"]
    assert after(NOTES, HistoryLimits(tokens=79), policy=Condensing(keep_first=1, share=0.7, target=0.9)) == [
        "s0.1",
        "k1~summary1",
        "s4.1",
        "s5.1",
        "s6.1",
        "s7.1",
    ]
    assert after(NOTES, HistoryLimits(events=7)) == ["s0.1", "k1~summary1", "s7.1"]


def test_no_more_stretches_go_than_are_needed():
    events = [*(N(n) for n in range(5)), Q(5), *(N(n) for n in range(6, 11))]

    made = recorded(events, HistoryLimits(tokens=101), policy=Condensing(keep_first=1, target=0.95, least=0, share=0.7))

    assert made.forgotten_event_ids == ("s1.1", "s2.1", "s3.1")


def test_a_stretch_too_short_for_its_summary_is_made_longer():
    """One note would do, but what is said of it costs more than it may."""
    made = recorded(NOTES, HistoryLimits(tokens=79), policy=Condensing(keep_first=1, target=0.98, least=0, share=0.7))

    assert made.forgotten_event_ids == ("s1.1", "s2.1")


def test_what_is_a_summary_already_is_not_summarised_by_itself():
    long = " ".join(["word"] * 60)
    events = [N(0), N(1), N(2), forget("s1.1", summary=long, offset=1, event="k0"), Q(3), N(4)]
    policy = Condensing(keep_first=1, share=0.7, most=12, least=0)

    assert isinstance(step_of(events, ALL, policy=policy, pinned={"s2.1"}), Forward)
    assert recorded(events, ALL, policy=policy).forgotten_event_ids == ("k0~summary1", "s2.1")


def test_one_event_alone_makes_no_way_for_fewer_events():
    events = [N(0), N(1), Q(2), N(3), N(4), N(5), N(6)]

    def hundred(event: HistoryEvent) -> int:
        return words(event) if isinstance(event, Summary) else 100

    done = condense(HistoryView(events), "k1", hundred, HistoryLimits(events=6), policy=SHORT)

    assert isinstance(done, RecordCondensation)
    assert done.condensation.forgotten_event_ids == ("s3.1", "s4.1", "s5.1")


# -- what never goes -------------------------------------------------------------------------------

ALL = HistoryLimits(tokens=1)
THINKS = [call(1, thinking=True), O(1), A(2), O(2)]


@pytest.mark.parametrize(
    ("events", "given", "shown"),
    [
        pytest.param(
            [N(0), N(1), N(2), Q(3), N(4), N(5), N(6)],
            {},
            "s0.1 k1~summary1 q3 k1~summary2 s6.1",
            id="a question, with a summary before it and one behind",
        ),
        pytest.param(
            [N(0), N(1), N(2), N(3), N(4), N(5), N(6)],
            {"pinned": {"s3.1"}},
            "s0.1 k1~summary1 s3.1 k1~summary2 s6.1",
            id="what is pinned",
        ),
        pytest.param(
            [N(0), A(1, "r"), A(2, "r"), O(1), O(2), N(3), N(4), N(5)],
            {"pinned": {"o2"}},
            "s0.1 a1 a2 o1 o2 k1~summary1 s5.1",
            id="the batch that a pinned result stands in",
        ),
        pytest.param(
            [N(0), *THINKS, N(3), N(4), N(5)],
            {"pinned": {"o1"}},
            "s0.1 a1 o1 a2 o2 k1~summary1 s5.1",
            id="the loop that a pinned result stands in",
        ),
        pytest.param([N(0), N(3), N(4), *THINKS], {}, "s0.1 k1~summary1 a1 o1 a2 o2", id="the newest unit, whole"),
        pytest.param(
            [N(0), N(3), N(4), N(5)],
            {"policy": Condensing(keep_first=2, share=0.7, least=0)},
            "s0.1 s3.1 s4.1 s5.1",
            id="the first events, where one note alone is not worth a summary",
        ),
        pytest.param(
            [A(1, "r"), A(2, "r"), O(1), O(2), N(3), N(4), N(5)],
            {},
            "a1 a2 o1 o2 k1~summary1 s5.1",
            id="the unit that the first event stands in",
        ),
    ],
)
def test_what_is_protected_stays_and_the_rest_is_summarised_where_it_stood(events: Events, given, shown: str):
    done = step_of(events, ALL, **given)
    records = [done.condensation] if isinstance(done, RecordCondensation) else []

    assert ids(HistoryView([*events, *records]).events) == shown.split()


def test_a_call_that_waits_is_there_when_its_result_comes():
    events = [N(0), A(1), N(2), N(3), N(4), N(5)]
    made = recorded(events, ALL)
    view = HistoryView([*events, made])
    assert ids(view.events) == ["s0.1", "k1~summary1", "s5.1"]
    assert [one.event_id for one in view.waiting] == ["a1"]

    view.append(O(1))

    assert ids(view.events) == ["s0.1", "a1", "o1", "k1~summary1", "s5.1"]


def test_what_was_taken_back_is_not_condensed_by_itself_but_on_request():
    made = recorded(NOTES, HistoryLimits(tokens=79))
    events = [*NOTES, made, Withdrawal("w1", "k1")]
    again = HistoryView(events)
    assert ids(again.events) == ids(NOTES)

    done = condense(again, "k2", words, HistoryLimits(tokens=79), policy=SHORT)
    assert isinstance(done, Forward)
    assert "6 taken back from a condensation" in done.reason

    again.append(CondensationRequest("k3"))
    done = condense(again, "k4", words, HistoryLimits(tokens=79), policy=SHORT)
    assert isinstance(done, RecordCondensation)
    assert set(done.condensation.forgotten_event_ids) == again.restored


# -- when nothing can go ------------------------------------------------------------------------------


def test_where_nothing_can_go_softly_the_view_goes_on_and_says_why():
    view = HistoryView([N(0), Q(1), N(2)])

    done = condense(view, "k1", words, HistoryLimits(tokens=5), policy=SHORT)

    assert isinstance(done, Forward)
    assert done.view is view
    assert done.reason == (
        "the history is 22 tokens, over its limit of 5, and nothing can be condensed: of 3 units 3 are kept "
        "(1 at the beginning, 1 a question of the user, 1 the newest), and the rest would save 0 of 22 tokens"
    )


@pytest.mark.parametrize(
    ("events", "limits", "event"),
    [
        ([N(0), Q(1), N(2)], HistoryLimits(window=5), "the history is 22 tokens, over the model's window of 5"),
        ([N(0), CondensationRequest("k0")], HistoryLimits(), "a condensation was asked for"),
    ],
)
def test_where_nothing_can_go_that_must_the_error_names_what_it_is_and_what_to_do(
    events, limits: HistoryLimits, event: str
):
    with pytest.raises(NothingToCondense) as refused:
        step_of(events, limits)

    assert isinstance(refused.value, CtxError)
    assert str(refused.value).startswith(event)
    assert "are kept" in str(refused.value)
    assert "%ctx" in str(refused.value)


def test_an_error_can_be_recorded_as_the_answer_to_a_request():
    events = [N(0), CondensationRequest("k0")]
    with pytest.raises(NothingToCondense) as refused:
        step_of(events, HistoryLimits())

    view = HistoryView([*events, Condensation("k1", reason=str(refused.value))])

    assert not view.unhandled_request
    assert isinstance(condense(view, "k2", words, HistoryLimits()), Forward)


def test_a_condensation_that_saves_too_little_is_not_made():
    """Two notes of a hundred can go, a summary of nine words comes: eleven words of a thousand are not worth it."""
    kept = {event.event_id for event in (N(n) for n in range(3, 100))}
    notes = [N(n) for n in range(100)]

    done = step_of(
        notes, HistoryLimits(tokens=100), pinned=kept, policy=Condensing(keep_first=1, share=0.6, least=0.02)
    )
    assert isinstance(done, Forward)
    assert "the rest would save 8 of 1000 tokens" in done.reason

    # But where just that brings it under the limit, it is; and where the window is met, the softer limit can wait.
    policy = Condensing(keep_first=1, share=0.6, least=0.02)
    for limits in (HistoryLimits(tokens=995), HistoryLimits(window=995), HistoryLimits(tokens=100, window=995)):
        assert isinstance(step_of(notes, limits, pinned=kept, policy=policy), RecordCondensation)
    with pytest.raises(NothingToCondense):
        step_of(notes, HistoryLimits(window=100), pinned=kept, policy=policy)


# -- summarisers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"target": 0},
        {"target": 1},
        {"least": -0.1},
        {"least": 1.1},
        {"share": 0},
        {"share": 1},
        {"keep_first": -1},
        {"most": 0},
        {"target": float("nan")},
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused(given):
    with pytest.raises(BadPolicy):
        Condensing(**given)


# -- the extractive summary ---------------------------------------------------------------------------


def statement(n: int, source: str, *outputs: Output, status: str = "ok") -> HumanStatement:
    return HumanStatement(f"s{n}.1", f"s{n}", source, outputs, status)


def ran(source: str) -> Action:
    return Action("a1", "c1", "run", {"code": source}, "r1")


LONG = "x" * 10_000_000


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([statement(1, "x = 1")], "s1: x = 1"),
        ([statement(1, "# load\nimport os\n%time\n\ndf = read(\n  'a')")], "s1: df = read("),
        ([statement(1, "import os")], "s1: import os"),
        ([statement(1, "")], "s1: "),
        (
            [statement(1, "fit(df)\na, b = 1, 2\ndef go(): pass\nclass K: ...\nif x == 1: y = 2\nt: int = 3")],
            "s1: fit(df) · made a, b, go, K, t",
        ),
        ([statement(1, "f(\n'''\nx = 1\n'''\n)\ny = 2")], "s1: f( · made y"),
        (
            [statement(1, "\n".join(["go()", *(f"v{n} = 1" for n in range(9))]))],
            "s1: go() · made v0, v1, v2, v3, v4, v5, … 3 more",
        ),
        ([statement(1, "f()", Output("stdout", "one\ntwo \n\n"))], "s1: f() · gave: two"),
        ([statement(1, "f()", Output("image/png", LONG))], "s1: f() · image/png"),
        (
            [statement(1, "f()", Output("stdout", "1"), Output("error", "Trace\nValueError: no"), status="error")],
            "s1: f() · failed: ValueError: no",
        ),
        ([statement(1, "f()", status="interrupted")], "s1: f() · interrupted"),
        ([ran("z = 2"), O(1)], "a1 run: z = 2 · gave: result 1"),
        ([A(1), O(1)], 'a1 run: {"n": 1} · gave: result 1'),
        ([ran("z = 2"), Observation("o1", "c1", "a\nb", "failed")], "a1 run: z = 2 · failed: b"),
        ([ran("rm()"), UserRejection("o1", "c1", "not now")], "a1 run: rm() · the user did not allow it: not now"),
        ([ran("rm()"), UserRejection("o1", "c1")], "a1 run: rm() · not allowed"),
        ([ran("rm()"), AgentError("o1", "c1", "no such tool")], "a1 run: rm() · could not run: no such tool"),
        ([answer(1)], "m1 said: since"),
        ([Q(1)], "q1 asked: why?"),
        ([Summary("k9~summary1", "found\n\nit", "k9")], "found\nit"),
        ([O(1)], "o1: gave: result 1"),
    ],
)
def test_an_extractive_summary_has_a_line_for_each(events: Events, line: str):
    head, *rest = extractive(events, 10_000, text_words).split("\n")

    assert "\n".join(rest) == line
    assert head.startswith(f"Summary of {len(events)} event")


def test_a_filler_that_nobody_said_is_in_no_summary():
    """`MessagePairing` puts `(no answer)` between two statements, and `(go on)` between two answers."""
    log = [statement(n, f"x{n} = {n}") for n in range(1, 4)] + [
        AssistantMessage("m4", "so it is"),
        AssistantMessage("m5", "(no answer)"),
    ]
    events = HistoryView(log, properties=(*PROPERTIES, MessagePairing())).events

    text = extractive(events, 10_000, len)

    assert len(events) == 8
    assert "go on" not in text
    assert text.count("(no answer)") == 1, "a real answer of this text stays"
    assert text.startswith("Summary of 5 events")


def test_a_filler_is_no_question_of_the_users():
    said = [AssistantMessage(f"m{n}", "measured " * 200) for n in range(3, 9)]
    log = [statement(1, "x"), statement(2, "y"), *said, statement(9, "z")]
    view = HistoryView(log, properties=(*PROPERTIES, MessagePairing()))

    step = condense(view, "k1", lambda event: len(str(event)), HistoryLimits(tokens=2000))

    assert isinstance(step, RecordCondensation)
    assert {"m4", "m5", "m6", "m7"} <= set(step.condensation.forgotten_event_ids)


def test_an_extractive_summary_says_what_it_stands_for_and_how_much_is_cut():
    events = [statement(n, f"x{n} = {n}") for n in range(1, 21)]

    assert extractive(events, 20, text_words) == (
        "Summary of 20 events, s1 to s20:\n(18 earlier lines cut)\ns19: x19 = 19\ns20: x20 = 20"
    )
    assert extractive(events, 11, text_words) == "Summary of 20 events, s1 to s20:\n(20 earlier lines cut)"
    assert extractive(events, 10, text_words) == ""
    assert extractive(events[:1], 99, text_words) == "Summary of 1 event, s1:\ns1: x1 = 1"


def test_a_folded_summary_keeps_its_count_its_beginning_and_its_newest_lines():
    events = [statement(n, f"x{n} = {n}") for n in range(1, 21)]
    earlier = Summary("k1~summary1", extractive(events, 20, text_words), "k1")

    assert extractive([earlier, statement(21, "y = 1")], 20, text_words) == (
        "Summary of 21 events, s1 to s21:\n(19 earlier lines cut)\ns20: x20 = 20\ns21: y = 1"
    )
    assert extractive([earlier, statement(21, "y = 1")], 99, text_words) == (
        "Summary of 21 events, s1 to s21:\n(18 earlier lines cut)\ns19: x19 = 19\ns20: x20 = 20\ns21: y = 1"
    )


@given(histories(most=16), st.integers(0, 60), st.sampled_from([text_words, len]))
def test_an_extractive_summary_is_within_its_limit_and_the_same_every_time(events, limit: int, count):
    text = extractive(events, limit, count)

    assert count(text) <= limit
    assert text == extractive(events, limit, count)


# -- an agent step ---------------------------------------------------------------------------------------


@dataclass
class Agent:
    """The smallest agent: it condenses or calls its model, once a step, and records what comes of it."""

    log: list[HistoryEvent]
    limits: HistoryLimits
    sent: list[list[str]] = field(default_factory=list)

    def step(self) -> None:
        done = condense(HistoryView(self.log), f"k{len(self.log)}", words, self.limits, policy=SHORT)
        if isinstance(done, RecordCondensation):
            self.log.append(done.condensation)
            return
        self.sent.append(ids(done.view.events))
        self.log.append(answer(len(self.log)))


def test_a_view_goes_to_the_model():
    """Seed 004: the condenser returns a view, and it is sent."""
    agent = Agent([Q(0), A(1), O(1)], HistoryLimits(tokens=100))

    agent.step()

    assert agent.sent == [["q0", "a1", "o1"]]
    assert ids(agent.log) == ["q0", "a1", "o1", "m3"]


def test_a_condensation_is_recorded_and_the_model_is_not_called():
    """Seed 004: the condenser returns a condensation; the next step sends the shorter view."""
    agent = Agent(list(NOTES), HistoryLimits(tokens=79))

    agent.step()
    assert agent.sent == []
    assert [type(event).__name__ for event in agent.log[8:]] == ["Condensation"]

    agent.step()
    assert agent.sent == [["s0.1", "k8~summary1", "s7.1"]]


def test_a_long_session_condenses_now_and_then_and_folds_its_summaries():
    agent = Agent([Q(0)], HistoryLimits(tokens=200, window=400))
    for _ in range(60):
        agent.step()

    view = HistoryView(agent.log)
    assert len(view.condensations) >= 3
    assert sum(isinstance(event, Summary) for event in view.events) == 1
    assert all(sum(map(words, HistoryView(agent.log[:end]).events)) <= 210 for end in range(len(agent.log)))
    # One step of condensing, then the model again.
    kinds = [type(event).__name__ for event in agent.log]
    assert not any(pair == ("Condensation", "Condensation") for pair in pairwise(kinds))


# -- laws ---------------------------------------------------------------------------------------------

policies = st.builds(
    Condensing,
    keep_first=st.integers(0, 3),
    target=st.sampled_from([0.2, 0.5, 0.9]),
    least=st.sampled_from([0.0, 0.1]),
    share=st.sampled_from([0.2, 0.5, 0.9]),
    most=st.sampled_from([12, 30, 800]),
)
limited = st.builds(
    HistoryLimits,
    tokens=st.none() | st.integers(1, 200),
    events=st.none() | st.integers(1, 20),
    window=st.none() | st.integers(100, 300),
)
long = histories(frozenset(MOVES) - {"forget"}, least=12, most=60)


def cost(events: Events) -> int:
    return sum(map(words, events))


@settings(max_examples=examples(300))
@given(long, limited, policies, st.data())
def test_condensing_comes_to_an_end_and_keeps_every_promise(
    history, limits: HistoryLimits, policy, data: st.DataObject
):
    view = HistoryView(history)
    shown = ids(view.events)
    pinned = frozenset(data.draw(st.lists(st.sampled_from(shown), max_size=3))) if shown else frozenset()
    log = list(history)
    for n in range(4):
        events = list(view.events)
        given = {"policy": policy, "pinned": pinned}
        asked = view.unhandled_request
        try:
            done = condense(view, f"z{n}", words, limits, **given)
        except NothingToCondense:
            assert asked or (limits.window is not None and cost(events) > limits.window)
            return
        if isinstance(done, Forward):
            assert not asked
            assert limits.window is None or cost(events) <= limits.window
            over = (limits.tokens is not None and cost(events) > limits.tokens) or (
                limits.events is not None and len(events) > limits.events
            )
            assert bool(done.reason) == over
            return
        # The same again, and from JSON.
        assert condense(HistoryView(log), f"z{n}", words, limits, **given) == done
        waiting = view.waiting
        log.append(done.condensation)
        view.append(done.condensation)
        now = list(view.events)

        gone = set(done.condensation.forgotten_event_ids)
        assert [one for one in events if one.event_id not in gone] == [
            one for one in now if not (isinstance(one, Summary) and one.condensation_id == f"z{n}")
        ]
        assert done.before == cost(events)
        assert done.after == cost(now) < cost(events)
        # A summary stands where its stretch stood.
        assert [_before(events, gone, first) for first in _starts(events, gone)] == [
            now[place - 1].event_id if place else ""
            for place, one in enumerate(now)
            if isinstance(one, Summary) and one.condensation_id == f"z{n}"
        ]
        for one in events:
            if isinstance(one, UserQuestion) or one.event_id in pinned:
                assert one in now
        assert events[-1] in now
        assert [one for one in events[: policy.keep_first] if one not in now] == []
        assert view.waiting == waiting
        # Whole units: no repair is needed.
        assert sound(now).is_valid()
        legal_request(log, PROPERTIES)
        whole_batches(log, PROPERTIES)
    raise AssertionError("four condensations, and no end")


def _starts(events: Events, gone: set[str]) -> list[int]:
    return [n for n, one in enumerate(events) if one.event_id in gone and not (n and events[n - 1].event_id in gone)]


def _before(events: Events, gone: set[str], first: int) -> str:
    return events[first - 1].event_id if first else ""


@settings(max_examples=examples(300))
@given(long, limited, policies)
def test_a_condensation_that_is_withdrawn_is_not_made_again_by_itself(history, limits: HistoryLimits, policy):
    view = HistoryView(history)
    shown = list(view.events)
    if view.unhandled_request:
        return
    try:
        done = condense(view, "z1", words, limits, policy=policy)
    except NothingToCondense:
        return
    if isinstance(done, Forward):
        return
    view.append(done.condensation)
    view.append(Withdrawal("z2", "z1"))
    assert list(view.events) == shown
    try:
        again = condense(view, "z3", words, limits, policy=policy)
    except NothingToCondense:
        return
    gone = set(again.condensation.forgotten_event_ids) if isinstance(again, RecordCondensation) else set()
    assert gone.isdisjoint(done.condensation.forgotten_event_ids)
