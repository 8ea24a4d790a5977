"""The view and its properties: the scenarios of seed 001, and what the design adds. Gaps are drawn over the events."""

from __future__ import annotations

import time

import pytest
from histories import answer, call, forget, ids, note, question, result

from ctxkernel.core.errors import BadHistory, BadPolicy
from ctxkernel.history.boundaries import Boundaries, boundaries
from ctxkernel.history.events import (
    AgentError,
    Condensation,
    CondensationRequest,
    Events,
    HistoryEvent,
    Redaction,
    Repair,
    Summary,
    SummaryText,
    UserRejection,
    Withdrawal,
)
from ctxkernel.history.invariants import (
    PROPERTIES,
    BatchAtomicity,
    Condensations,
    MessagePairing,
    ObservationUniqueness,
    Property,
    ResultAdjacency,
    TokenLimit,
    ToolCallDepth,
    ToolCallMatching,
    ToolLoopAtomicity,
    with_extensions,
)
from ctxkernel.history.view import HistoryView

A = call
O = result  # noqa: E741
N = note


def T(n: int, batch: str = "") -> HistoryEvent:
    """Return a call that begins with thinking."""
    return call(n, batch, thinking=True)


# -- the properties by themselves ------------------------------------------------------------------

EVERY: tuple[Property, ...] = (*PROPERTIES, ToolCallDepth(), MessagePairing(), TokenLimit(1000, lambda event: 1))
LARGE = [event for n in range(3000) for event in (N(n), T(10_000 + n), O(10_000 + n))]


@pytest.mark.parametrize("one", EVERY, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("events", [[], [N(1)], LARGE[:900]], ids=["none", "one", "many"])
def test_a_property_leaves_alone_what_has_it(one: Property, events: Events):
    if isinstance(one, MessagePairing):
        events = [event for event in events if event.place != "message"]

    assert one.enforce(events, events) is events
    assert one.validate(events) == ()
    gaps = list(one.manipulation_indices(events))
    assert gaps == sorted(set(gaps))
    assert set(gaps) <= set(range(len(events) + 1))


# 0 N 1 A1 _ A2 3 N 4 A4 5: A1 and A2 are one response
BATCH = [N(0), A(1, "r"), A(2, "r"), N(3), A(4)]
# 0 N 1 T _ O _ A 4 N 5
LOOP = [N(0), T(1), O(1), A(2), N(3)]


@pytest.mark.parametrize(
    ("one", "events", "gaps"),
    [
        pytest.param(BatchAtomicity(), BATCH, [0, 1, 3, 4, 5], id="a response of several calls"),
        pytest.param(
            BatchAtomicity(), [A(1, "r"), A(2, "p"), A(3, "r"), A(4, "p")], [0, 4], id="batches that interleave"
        ),
        pytest.param(BatchAtomicity(), [A(1), A(2)], [0, 1, 2], id="responses of one call"),
        pytest.param(BatchAtomicity(), [A(1, "r"), O(1), N(5), A(2, "r")], [0, 4], id="mixed with other events"),
        pytest.param(ToolLoopAtomicity(), LOOP, [0, 1, 4, 5], id="thinking and tools"),
        pytest.param(
            ToolLoopAtomicity(),
            [T(1), O(1), N(1), A(2), O(2), N(2), T(3), O(3)],
            [0, 2, 3, 4, 5, 6, 8],
            id="several loops, one of them without thinking",
        ),
        pytest.param(
            ToolLoopAtomicity(), [A(1), O(1), T(2), O(2), T(3), O(3), N(1)], [0, 1, 2, 6, 7], id="a loop within a run"
        ),
        pytest.param(
            ToolLoopAtomicity(), [A(1, "r"), T(2, "r"), O(1), O(2)], [0, 4], id="a batch that thinks at its second call"
        ),
        pytest.param(ToolLoopAtomicity(), [A(1), O(1)], [0, 1, 2], id="no thinking"),
        pytest.param(
            ToolLoopAtomicity(), [T(1), O(1), forget("x"), A(2), O(2), N(3)], [0, 5, 6], id="a record ends no loop"
        ),
        pytest.param(ToolCallMatching(), [N(0), A(1), O(1), N(2)], [0, 1, 3, 4], id="a call and its result"),
        pytest.param(ToolCallMatching(), [A(1), A(2), O(1), O(2)], [0, 4], id="calls that overlap"),
        pytest.param(ToolCallMatching(), [A(1), A(2), O(2), O(1)], [0, 4], id="calls within calls"),
        pytest.param(ToolCallMatching(), [A(1), O(9)], [0, 1, 2], id="nothing paired"),
        pytest.param(Condensations(), [N(0), N(1)], [0, 1, 2], id="condensation restricts nothing"),
        pytest.param(ObservationUniqueness(), [A(1), O(1)], [0, 1, 2], id="uniqueness restricts nothing"),
        pytest.param(ToolCallDepth(1), [A(1), N(1), O(1)], [0, 3], id="depth: no place within an open call"),
        pytest.param(ToolCallDepth(2), [A(1), A(2), O(2), O(1)], [0, 1, 3, 4], id="depth: none within two"),
        pytest.param(MessagePairing(), [question(1), answer(2), question(3), answer(4)], [0, 2, 4], id="whole turns"),
        pytest.param(MessagePairing(), [question(1), A(2), O(2), answer(4)], [0, 4], id="a turn with calls"),
        pytest.param(TokenLimit(2, lambda event: 1), [N(1), N(2), N(3)], [1, 2, 3], id="what follows fits"),
        pytest.param(TokenLimit(0, lambda event: 1), [N(1)], [1], id="nothing fits"),
    ],
)
def test_the_manipulation_indices_of_a_property(one: Property, events: Events, gaps: list[int]):
    assert list(one.manipulation_indices(events)) == gaps


@pytest.mark.parametrize(
    ("one", "events", "left"),
    [
        pytest.param(ToolCallMatching(), [A(1), O(1), A(2)], ["a1", "o1"], id="a call without result"),
        pytest.param(ToolCallMatching(), [O(9), A(1), O(1)], ["a1", "o1"], id="a result without call"),
        pytest.param(ToolCallMatching(), [A(1), O(9)], [], id="neither has the other"),
        pytest.param(ToolCallMatching(), [O(1), A(1)], [], id="a result before its call"),
        pytest.param(
            ToolCallMatching(), [A(1, "r"), A(2, "r"), O(1)], ["a1", "o1"], id="partial: the rest is the batch's to say"
        ),
        pytest.param(
            ToolCallMatching(),
            [A(1), UserRejection("o1", "c1"), A(2), AgentError("o2", "c2", "no")],
            ["a1", "o1", "a2", "o2"],
            id="rejections and errors are results",
        ),
        pytest.param(
            ToolCallMatching(),
            [A(1), A(2, id="c1"), O(3, of="c1")],
            ["a2", "o3"],
            id="an id belongs to its newest call",
        ),
        pytest.param(ObservationUniqueness(), [A(1), O(1), O(2, of="c1")], ["a1", "o1"], id="a second result"),
        pytest.param(
            ObservationUniqueness(),
            [A(1), O(1), A(2, id="c1"), O(2, of="c1")],
            ["a1", "o1", "a2", "o2"],
            id="the same id in another response",
        ),
        pytest.param(
            ResultAdjacency(), [A(1), N(5), O(1)], ["a1", "o1", "s5.1"], id="a result that came after another cell"
        ),
        pytest.param(
            ResultAdjacency(),
            [A(1, "r"), A(2, "r"), O(2), O(1)],
            ["a1", "a2", "o1", "o2"],
            id="results that came in another order",
        ),
        pytest.param(
            ResultAdjacency(),
            [A(1, "r"), A(2, "p"), A(3, "r"), O(1), O(2), O(3)],
            ["a1", "a3", "o1", "o3", "a2", "o2"],
            id="batches that interleave",
        ),
        pytest.param(
            ResultAdjacency(), [A(1), A(2), O(1), O(2)], ["a1", "o1", "a2", "o2"], id="responses that overlap"
        ),
        pytest.param(
            ResultAdjacency(),
            [A(1, "r"), O(1), N(3), A(2, "r"), O(2)],
            ["a1", "o1", "a2", "o2", "s3.1"],
            id="a response that was parted",
        ),
        pytest.param(
            ResultAdjacency(), [A(1, "r"), O(1), A(2, "r"), O(2)], ["a1", "o1", "a2", "o2"], id="one after the other"
        ),
        pytest.param(ToolCallDepth(1), [A(1), A(2), O(2), O(1)], ["a1", "o1"], id="a call within a call"),
        pytest.param(
            ToolCallDepth(1), [A(1, "r"), A(2, "r"), O(2), O(1)], ["a1", "a2", "o2", "o1"], id="parallel is not nested"
        ),
        pytest.param(
            MessagePairing(),
            [question(1), question(2), answer(3), answer(4)],
            ["q1", "q2~turn", "q2", "m3", "m4~turn", "m4"],
            id="fillers",
        ),
        pytest.param(MessagePairing(), [question(1), A(2), O(2), N(3)], ["q1", "a2", "o2", "s3.1"], id="results lead"),
        pytest.param(TokenLimit(2, lambda event: 1), [N(1), N(2), N(3)], ["s2.1", "s3.1"], id="the oldest goes"),
        pytest.param(
            TokenLimit(2, lambda event: 1, within=PROPERTIES),
            [N(1), T(2), O(2), A(3), O(3), N(4)],
            ["s4.1"],
            id="a loop goes as one",
        ),
    ],
)
def test_what_a_property_leaves(one: Property, events: Events, left: list[str]):
    obeying = one.enforce(events, events)

    assert ids(obeying) == left
    assert bool(one.validate(events)) == (ids(events) != left)
    assert one.validate(obeying) == ()


def test_where_one_call_of_a_batch_is_left_out_all_are_with_their_results():
    source = [N(0), A(1, "r"), A(2, "r"), O(1), O(2), A(3), O(3)]

    left = BatchAtomicity().enforce([event for event in source if event.event_id != "a2"], source)

    assert BatchAtomicity().validate(source[:1] + source[2:], source)
    assert ids(left) == ["s0.1", "o2", "a3", "o3"]  # that o2 has no call is the matching's to say
    assert ids(HistoryView([*source, forget("a2")]).events) == ["s0.1", "a3", "o3"]


# -- condensation ----------------------------------------------------------------------------------


def test_what_is_forgotten_makes_place_for_its_summary():
    """The seed's example: 0, 1, 5, 7, 10; 5 and 7 are forgotten, the summary stands at 2."""
    events = [N(0), N(1), N(5), N(7), N(10), forget("s5.1", "s7.1", summary="earlier work", offset=2)]

    for shown in (HistoryView(events).events, Condensations().enforce(events, events)):
        assert ids(shown) == ["s0.1", "s1.1", "k1~summary1", "s10.1"]
        assert shown[2] == Summary("k1~summary1", "earlier work", "k1")


@pytest.mark.parametrize(
    ("condensations", "shown"),
    [
        pytest.param(
            [forget("s1.1", summary="x"), forget("s3.1", summary="y", offset=2, event="k2")],
            ["k1~summary1", "s2.1", "k2~summary1", "s4.1"],
            id="two summaries stand",
        ),
        pytest.param(
            [forget("s1.1", summary="x"), forget("k1~summary1", "s2.1", summary="y", event="k2")],
            ["k2~summary1", "s3.1", "s4.1"],
            id="a later one forgets an earlier summary",
        ),
        pytest.param(
            [forget(summary="x", offset=99)], ["s1.1", "s2.1", "s3.1", "s4.1", "k1~summary1"], id="past the end"
        ),
        pytest.param([forget(summary="x", offset=-3)], ["k1~summary1", "s1.1", "s2.1", "s3.1", "s4.1"], id="below 0"),
        pytest.param([forget("nothing")], ["s1.1", "s2.1", "s3.1", "s4.1"], id="an id that is not there"),
        pytest.param(
            [forget("s1.1", "s2.1", "s3.1", "s4.1", summary="all")], ["k1~summary1"], id="everything is forgotten"
        ),
        pytest.param(
            [Condensation("k1", ("s2.1",), (SummaryText("a", 1), SummaryText("b", 3)))],
            ["s1.1", "k1~summary1", "s3.1", "k1~summary2", "s4.1"],
            id="one with two summaries",
        ),
    ],
)
def test_condensations_stack(condensations: list[HistoryEvent], shown: list[str]):
    events = [N(1), N(2), N(3), N(4), *condensations]

    assert ids(HistoryView(events).events) == shown
    assert ids(Condensations().enforce(events, events)) == shown


def test_an_offset_counts_what_is_shown_not_what_waits():
    """A call that waits for approval is hidden; the summary must not shift by it."""
    view = HistoryView([A(1), N(2), N(3), N(4), forget("s3.1", summary="x", offset=1)])

    assert ids(view.events) == ["s2.1", "k1~summary1", "s4.1"]
    view.append(O(1))
    assert ids(view.events) == ["a1", "o1", "s2.1", "k1~summary1", "s4.1"]


def test_a_summary_may_be_put_where_a_filler_stands():
    """Fillers are shown and counted, but are no events of the history."""
    view = HistoryView([question(1), question(2), question(3)], properties=(*PROPERTIES, MessagePairing()))
    assert ids(view.events) == ["q1", "q2~turn", "q2", "q3~turn", "q3"]

    view.append(forget("q2", summary="x", offset=1))

    assert ids(view.events) == ["q1", "k1~summary1~turn", "k1~summary1", "q3~turn", "q3"]


def test_a_forgotten_result_takes_its_whole_batch_along():
    events = [A(1, "r"), A(2, "r"), O(1), O(2), N(3)]

    assert ids(HistoryView([*events, forget("o1")]).events) == ["s3.1"]


def test_half_a_batch_that_waits_is_not_shown_once_the_other_half_was_forgotten():
    view = HistoryView([A(1, "r"), A(2, "r"), O(2), forget("a1")])

    view.append(A(3, "r"))
    view.append(O(3))

    assert ids(view.events) == []


@pytest.mark.parametrize("more", [(), (TokenLimit(99, lambda event: 1),)], ids=["some segments", "the whole"])
@pytest.mark.parametrize("again", [[], [O(4, of="c")]], ids=["once", "twice"])
def test_the_result_of_a_forgotten_call_is_no_older_calls(more: tuple[Property, ...], again: Events):
    """The older call with the same id never had a result; it goes on waiting."""
    events = [A(1, id="c"), A(2, id="c"), O(2, of="c"), *again, N(3), forget("a2", "o2")]
    view = HistoryView(events, properties=(*PROPERTIES, *more))

    assert ids(view.events) == ["s3.1"]
    assert [one.event_id for one in view.waiting] == ["a1"]


@pytest.mark.parametrize("more", [(), (TokenLimit(99, lambda event: 1),)], ids=["some segments", "the whole"])
def test_a_summary_that_is_put_within_a_batch_stands_behind_it(more: tuple[Property, ...]):
    made = Condensation("k1", (), (SummaryText("x", 2), SummaryText("y", 3), SummaryText("z", 4)))

    view = HistoryView([N(1), A(2), O(2), made], properties=(*PROPERTIES, *more))

    # The first moves behind the result; the offset of the second is then a place before it.
    assert ids(view.events) == ["s1.1", "a2", "o2", "k1~summary2", "k1~summary3", "k1~summary1"]


def test_a_request_is_unhandled_until_a_condensation_comes():
    events = [N(1), CondensationRequest("k0"), N(2)]
    view = HistoryView(events)
    assert view.unhandled_request
    assert HistoryView(events).unhandled_request

    view.append(forget("s1.1"))
    assert not view.unhandled_request
    assert not HistoryView([*events, forget("s1.1")]).unhandled_request
    assert ids(view.events) == ["s2.1"]


TWO = [
    forget("s2.1", "s3.1", summary="x", offset=1),
    Condensation("k2", ("s5.1", "s7.1"), (SummaryText("y", 3), SummaryText("z", 5))),
]


@pytest.mark.parametrize(
    ("records", "shown"),
    [
        pytest.param([Withdrawal("w1", "k1")], "s1.1 s2.1 s3.1 s4.1 k2~summary1 s6.1 k2~summary2 s8.1", id="the first"),
        pytest.param([Withdrawal("w1", "k2")], "s1.1 k1~summary1 s4.1 s5.1 s6.1 s7.1 s8.1", id="the last"),
        pytest.param(
            [Withdrawal("w1", "k2"), Withdrawal("w2", "k1")],
            "s1.1 s2.1 s3.1 s4.1 s5.1 s6.1 s7.1 s8.1",
            id="both",
        ),
        pytest.param(
            [Withdrawal("w1", "k1"), Withdrawal("w2", "k1"), Withdrawal("w3", "s1.1"), Withdrawal("w4", "nothing")],
            "s1.1 s2.1 s3.1 s4.1 k2~summary1 s6.1 k2~summary2 s8.1",
            id="again, and what is no condensation",
        ),
        pytest.param(
            [Withdrawal("w1", "k1"), forget("s2.1", summary="v", offset=1, event="k3"), Withdrawal("w2", "k2")],
            "s1.1 k3~summary1 s3.1 s4.1 s5.1 s6.1 s7.1 s8.1",
            id="one that came after a withdrawal stays where it stood",
        ),
    ],
)
def test_summaries_stand_where_they_stood_when_another_condensation_is_withdrawn(records: Events, shown: str):
    """Offsets count what was shown when they were written; the neighbours tell where that was."""
    events = [*(N(n) for n in range(1, 9)), *TWO, *records]

    assert ids(HistoryView(events).events) == shown.split()
    enforced = Condensations().enforce(events, events)
    assert ids([event for event in enforced if event.place != "meta"]) == shown.split()


def test_a_condensation_that_folded_a_withdrawn_summary_stands_behind_what_is_shown_again():
    """The folded summary spoke of both; it keeps the place of what only it forgot."""
    folded = [N(1), N(2), N(3), N(4), N(5), forget("s2.1", "s3.1", summary="x", offset=1)]
    folded += [forget("k1~summary1", "s4.1", summary="y", offset=1, event="k2")]
    assert ids(HistoryView(folded).events) == ["s1.1", "k2~summary1", "s5.1"]

    view = HistoryView([*folded, Withdrawal("w1", "k1")])

    assert ids(view.events) == ["s1.1", "s2.1", "s3.1", "k2~summary1", "s5.1"]
    assert view.restored == {"s2.1", "s3.1"}
    assert [one.event_id for one in view.condensations] == ["k2"]


def test_a_summary_between_summaries_that_are_withdrawn_finds_its_place():
    events = [*(N(n) for n in range(1, 6)), forget("s3.1", summary="x", offset=2)]
    events += [forget("s2.1", summary="y", offset=1, event="k2"), forget(summary="z", offset=1, event="k3")]
    assert ids(HistoryView(events).events) == [
        "s1.1", "k3~summary1", "k2~summary1", "k1~summary1", "s4.1", "s5.1"
    ]  # fmt: skip

    view = HistoryView([*events, Withdrawal("w1", "k1"), Withdrawal("w2", "k2")])

    assert ids(view.events) == ["s1.1", "k3~summary1", "s2.1", "s3.1", "s4.1", "s5.1"]


def test_a_request_stays_answered_when_the_answer_is_withdrawn():
    """Else taking back would at once condense again."""
    events = [N(1), N(2), CondensationRequest("k0"), forget("s1.1"), Withdrawal("w1", "k1")]

    assert not HistoryView(events).unhandled_request
    assert not HistoryView(events).unhandled_request
    assert ids(HistoryView(events).events) == ["s1.1", "s2.1"]


def test_records_are_not_shown():
    view = HistoryView([N(1), Redaction("d1", "s1.1", "short"), Repair("p1", "removed", "o1", "c1", "why")])

    assert ids(view.events) == ["s1.1"]


# -- the view --------------------------------------------------------------------------------------


def test_a_batch_is_hidden_until_its_last_result_is_there():
    view = HistoryView([N(0), A(1, "r"), A(2, "r"), O(1)])
    assert ids(view.events) == ["s0.1"]
    assert [one.event_id for one in view.waiting] == ["a1", "a2"]

    view.append(N(3))
    view.append(O(2))

    assert ids(view.events) == ["s0.1", "a1", "a2", "o1", "o2", "s3.1"]
    assert view.waiting == ()


def test_an_event_is_taken_once():
    """A log may be replayed onto a view."""
    events = [N(0), A(1), O(1)]

    assert ids(HistoryView([*events, *events]).events) == ["s0.1", "a1", "o1"]


def test_the_boundaries_are_the_intersection():
    # 0 N 1 A1 A2 O1 O2 5 T3 O3 A4 O4 9 N 10
    events = [N(0), A(1, "r"), A(2, "r"), O(1), O(2), T(3), O(3), A(4), O(4), N(5)]

    assert list(HistoryView(events).manipulation_indices) == [0, 1, 5, 9, 10]
    assert list(boundaries(events, [ToolLoopAtomicity()])) == [0, 1, 2, 3, 4, 5, 9, 10]
    assert list(boundaries(events, [])) == list(range(11))
    assert list(boundaries([], PROPERTIES)) == [0]


@pytest.mark.parametrize(
    ("threshold", "strict", "found"),
    [
        (0, False, 0),
        (0, True, 2),
        (1, False, 2),
        (2, True, 5),
        (5, False, 5),
        (5, True, 7),
        (6, False, 7),
        (7, True, 7),
    ],
)
def test_find_next_gives_the_first_index_from_there_on_or_the_end(threshold: int, strict: bool, found: int):
    assert Boundaries((0, 2, 5), 7).find_next(threshold, strict) == found


def test_a_threshold_past_the_end_is_an_error():
    with pytest.raises(BadHistory, match="no gap 8 in a history of 7 events; the last gap is 7"):
        Boundaries((0, 2, 5), 7).find_next(8)
    with pytest.raises(BadHistory):
        HistoryView().boundaries.find_next(1)
    assert HistoryView().boundaries.find_next(0) == 0


def test_boundaries_are_a_collection():
    gaps = Boundaries((0, 2, 5), 7)

    assert 2 in gaps
    assert 3 not in gaps
    assert "2" not in gaps
    assert [gaps.find_last(n) for n in range(8)] == [0, 0, 2, 2, 2, 5, 5, 5]
    assert len(gaps) == 3


class NoSecrets(Property):
    """A property of a user's own: what names a secret is not shown, and the newest note stays."""

    def enforce(self, events: Events, source: Events) -> Events:
        left = [event for event in events if "hunter2" not in getattr(event, "source", "")]
        return left if len(left) < len(events) else events

    def manipulation_indices(self, events: Events):
        last = max((n for n, event in enumerate(events) if event.place == "message"), default=len(events))
        return range(last + 1)


def test_a_property_of_ones_own_takes_part():
    view = HistoryView([N(1), N(2), A(3), O(3)], properties=(*PROPERTIES, NoSecrets()))
    assert list(view.manipulation_indices) == [0, 1]

    secret = type(N(4))("s4.1", "s4", "password = 'hunter2'")
    view.append(secret)

    assert ids(view.events) == ["s1.1", "s2.1", "a3", "o3"]
    assert NoSecrets().validate([secret]) == ("NoSecrets: s4.1 is not allowed at its place",)


def test_a_property_that_only_restricts_cuts_is_a_few_lines():
    class Pairs(Property):
        def manipulation_indices(self, events: Events):
            return range(0, len(events) + 1, 2)

    assert list(HistoryView([N(1), N(2), N(3)], properties=(*PROPERTIES, Pairs())).manipulation_indices) == [0, 2]


def test_the_extensions_are_off_and_can_be_switched_on():
    assert with_extensions() == PROPERTIES
    switched = with_extensions(depth=3, message_pairing=True, tokens=10, count=lambda event: 1)
    assert [type(one).__name__ for one in switched] == [
        "ObservationUniqueness",
        "ToolCallMatching",
        "BatchAtomicity",
        "ToolCallDepth",
        "ResultAdjacency",
        "ToolLoopAtomicity",
        "Condensations",
        "MessagePairing",
        "TokenLimit",
    ]
    with pytest.raises(TypeError, match="count="):
        with_extensions(tokens=3)
    with pytest.raises(BadPolicy, match="limit of 1"):
        with_extensions(depth=0)
    with pytest.raises(BadPolicy, match="0 or more"):
        TokenLimit(-1, lambda event: 1)


# -- cost ------------------------------------------------------------------------------------------


def interleaved(count: int) -> list[HistoryEvent]:
    """Return calls before all of their results, so that every batch is open until the end."""
    return [*(A(n) for n in range(count)), *(O(n) for n in range(count))]


def one_batch(count: int) -> list[HistoryEvent]:
    return [*(A(n, "r") for n in range(count)), *(O(n) for n in reversed(range(count)))]


def reused(count: int) -> list[HistoryEvent]:
    return [event for n in range(count) for event in (A(n, id="c"), O(n, of="c"))]


def parked(count: int) -> list[HistoryEvent]:
    return [A(0), *(N(n) for n in range(1, 2 * count)), O(0)]


def thinking(count: int) -> list[HistoryEvent]:
    return [event for n in range(count) for event in (T(n), O(n))]


def duplicates(count: int) -> list[HistoryEvent]:
    return [A(0), *(O(n, of="c0") for n in range(2 * count))]


@pytest.mark.parametrize("make", [interleaved, one_batch, reused, parked, thinking, duplicates])
def test_a_rebuild_is_linear_for_any_history(make):
    """A quadratic pass would take minutes; nothing recurses either."""
    events = make(20_000)
    start = time.process_time()

    view = HistoryView(events)
    assert view.boundaries.length == len(view.events)
    assert time.process_time() - start < 4


@pytest.mark.parametrize("make", [thinking, reused])
def test_an_append_that_is_read_costs_the_same_at_any_length(make):
    view = HistoryView()
    start = time.process_time()

    for event in make(10_000):
        view.append(event)
        assert len(view.events) >= 0
    assert time.process_time() - start < 2
