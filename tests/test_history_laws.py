"""The laws of the history view and of repair, over random histories that are broken in every known way."""

from __future__ import annotations

from unittest import mock

import pytest
from histories import (
    CLEAN,
    EXTENDED,
    LAWS,
    MODEL,
    MOVES,
    NO_CONDENSATION,
    History,
    Law,
    forget,
    histories,
    ids,
    recorded,
    request,
    sound,
)
from hypothesis import HealthCheck, Phase, find, given, note, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from scale import examples

from ctxkernel.history import view as view_module
from ctxkernel.history.boundaries import boundaries
from ctxkernel.history.events import Condensation, HistoryEvent, Summary, Withdrawal
from ctxkernel.history.invariants import PROPERTIES, Property
from ctxkernel.history.repair import normalise, report, trim
from ctxkernel.history.rules import check
from ctxkernel.history.view import HistoryView

SIMPLE_IDS = frozenset(MOVES) - {"reused id"}


@settings(max_examples=examples(600))
@given(histories())
def test_every_history_keeps_every_law(history: History):
    """All laws on each history: to make one takes longer than to look at it."""
    for law in LAWS:
        note(law.__name__)
        law(history, PROPERTIES)


@pytest.mark.parametrize(("law", "properties"), EXTENDED, ids=[law.__name__ for law, _ in EXTENDED])
@given(history=histories(SIMPLE_IDS - {"forget"}))
def test_every_history_keeps_the_law_of_the_extension(law: Law, properties: tuple[Property, ...], history: History):
    law(history, properties)


def breaks(law: Law, properties: tuple[Property, ...]):
    def broken(history: list[HistoryEvent]) -> bool:
        try:
            law(history, properties)
        except (AssertionError, StopIteration):
            return True
        return False

    return broken


@pytest.mark.parametrize("place", range(len(PROPERTIES)), ids=[type(one).__name__ for one in PROPERTIES])
def test_without_any_one_property_some_law_fails(place: int):
    """The mutation check: each property is needed."""
    fewer = (*PROPERTIES[:place], *PROPERTIES[place + 1 :])

    assert _finds(lambda history: any(breaks(law, fewer)(history) for law in LAWS))


@pytest.mark.parametrize(("law", "properties"), EXTENDED, ids=[law.__name__ for law, _ in EXTENDED])
def test_without_an_extension_its_law_fails(law: Law, properties: tuple[Property, ...]):
    assert _finds(breaks(law, PROPERTIES), SIMPLE_IDS - {"forget"})


def _finds(broken, moves: frozenset[str] = frozenset(MOVES)) -> bool:
    quiet = settings(
        max_examples=2000,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=HealthCheck,
    )
    try:
        find(histories(moves), broken, settings=quiet)
    except NoSuchExample:
        return False
    return True


@given(histories(), st.lists(st.booleans(), max_size=40), st.sampled_from([None, 0, 1, 2]))
def test_a_view_that_grew_shows_what_a_rebuilt_one_shows(history: History, reads: list[bool], extension: int | None):
    """At every prefix, whenever it was read before; and its boundaries are the same."""
    properties = PROPERTIES if extension is None else EXTENDED[extension][1]
    grown = HistoryView(properties=properties)
    for end, event in enumerate(history, 1):
        grown.append(event)
        if end <= len(reads) and reads[end - 1]:
            rebuilt = HistoryView(history[:end], properties=properties)

            assert list(grown.events) == list(rebuilt.events)
            assert grown.boundaries == rebuilt.boundaries
            assert grown.unhandled_request == rebuilt.unhandled_request
            assert grown.waiting == rebuilt.waiting
    assert list(grown.events) == list(HistoryView(history, properties=properties).events)


@settings(max_examples=examples(500))
@given(histories(), st.data())
def test_a_withdrawn_condensation_never_was(history: History, data: st.DataObject):
    """What is shown, what waits and where it may be cut is as without both, right after and ever after."""
    history = [event for event in recorded(history) if not isinstance(event, Withdrawal)]
    place = data.draw(st.integers(0, len(history)))
    of = [event.event_id for event in history[:place]]
    chosen = data.draw(st.lists(st.sampled_from(of), max_size=9)) if of else []
    made = forget(*chosen, summary="short", offset=data.draw(st.integers(0, 9)), event="taken back")
    end = data.draw(st.integers(place, len(history)))
    while any(isinstance(event, Condensation) for event in history[place:end]):
        end -= 1  # those that come while it is in force are another law's
    between = history[place:end]

    view = HistoryView([*history[:place], made, *between, Withdrawal("w", "taken back"), *history[end:]])
    without = HistoryView(history)

    assert list(view.events) == list(without.events)
    assert view.waiting == without.waiting
    assert view.boundaries == without.boundaries
    assert view.restored == frozenset(chosen)
    assert view.condensations == without.condensations


@settings(max_examples=examples(500))
@given(histories(most=40))
def test_withdrawing_leaves_the_other_condensations_in_force(history: History):
    """But for summaries what is shown is what it would be without; each summary in force is shown, in the same order
    as the others that came before and after it."""
    shown = list(HistoryView(history).events)
    without = list(HistoryView([event for event in recorded(history) if not isinstance(event, Withdrawal)]).events)

    assert [event for event in shown if not isinstance(event, Summary)] == [
        event for event in without if not isinstance(event, Summary)
    ]
    assert sorted(ids(shown)) == sorted(ids(without))


class Nothing(Property):
    """A property that does nothing, but on the whole: condensations then take the plain way."""

    def enforce(self, events: History, source: History) -> History:
        return events


SMALL = {"_FINE": 1, "_COARSE": 3}
"""Segments of few events, which otherwise only a long history has."""
USUAL = {name: getattr(view_module, name) for name in SMALL}


@settings(max_examples=examples(300))
@given(histories(SIMPLE_IDS, most=40), st.booleans(), st.booleans())
def test_a_condensation_of_some_segments_is_that_of_all(history: History, between: bool, small: bool):
    """What is done to a part, for speed, is what applying the condensation to the whole view gives."""
    with mock.patch.multiple(view_module, **(SMALL if small else USUAL)):
        quick, plain = HistoryView(), HistoryView(properties=(*PROPERTIES, Nothing()))
        for event in history:
            quick.append(event)
            plain.append(event)
            if between:
                assert list(quick.events) == list(plain.events)
        assert list(quick.events) == list(plain.events)
        assert quick.waiting == plain.waiting


@given(histories(most=40))
def test_segments_change_nothing(history: History):
    """What is enforced part by part is what enforcing on the whole gives, as long as nothing was forgotten."""
    once: dict[str, HistoryEvent] = {}
    for event in history:
        if event.place != "meta":
            once.setdefault(event.event_id, event)
    whole = source = list(once.values())
    for one in PROPERTIES:
        whole = one.enforce(whole, source)

    plain = [event for event in history if not isinstance(event, Condensation)]
    assert list(HistoryView(plain).events) == list(whole)


@given(histories())
def test_enforcing_twice_changes_nothing(history: History):
    events: History = [event for event in history if event.place != "meta"]
    for one in PROPERTIES:
        events = one.enforce(events, events)
        assert one.enforce(events, events) is events
        assert one.validate(events) == ()


# -- repair ------------------------------------------------------------------------------------------


@given(histories())
def test_what_was_mended_is_clean_and_stays_as_it_is(history: History):
    """Repair is idempotent, and a clean history comes back as the same object."""
    done = normalise(history)

    assert report(done.events).is_valid(), report(done.events).summary()
    again = normalise(done.events)
    assert again.events is done.events
    assert again.repairs == ()
    assert bool(done.repairs) == (done.events is not history)


@given(histories(NO_CONDENSATION))
def test_what_was_mended_is_shown_whole(history: History):
    """The view of a mended history leaves nothing out and moves nothing, and makes a legal request."""
    mended = normalise(history).events
    view = HistoryView(mended)

    assert list(view.events) == [event for event in mended if event.place != "meta"]
    assert check(request(view.events), MODEL).ok
    assert view.waiting == ()


@given(histories())
def test_a_repair_is_minimal(history: History):
    """One repair for each fault that was reported; everything else is there, in its order, as it was."""
    done = normalise(history)
    found = done.report

    count = {fix: sum(one.fix == fix for one in done.repairs) for fix in ("added", "removed", "moved", "renamed")}
    assert count["added"] == len(found.missing_outputs) == len(done.added)
    gone = len(found.orphan_outputs) + len(found.duplicate_outputs) + len(found.duplicate_events)
    assert count["removed"] == gone
    assert count["moved"] == len(found.misplaced)
    assert count["renamed"] == len(found.reused_calls)
    assert len(done.events) == len(history) + count["added"] - gone
    assert len({one.event_id for one in done.repairs}) == len(done.repairs)
    assert all(one.reason for one in done.repairs)
    touched = {one.target_id for one in done.repairs}
    ours = [event for event in done.events if event.event_id not in touched]
    theirs = {event.event_id: event for event in history if event.event_id not in touched}
    renamed = {event.event_id for event in ours if theirs[event.event_id] != event}
    # Only the results of renamed calls differ.
    assert len(renamed) <= count["renamed"]


@given(histories(CLEAN, most=16), st.data())
def test_a_crash_at_any_event_is_recovered_from(history: History, data: st.DataObject):
    end = data.draw(st.integers(0, len(history)))

    done = normalise(history[:end])

    assert report(done.events).is_valid()
    kept = {event.event_id for event in done.events}
    assert all(event.event_id in kept for event in history[:end])


@given(histories(), st.data())
def test_after_any_legal_cut_a_mended_history_needs_no_repair(history: History, data: st.DataObject):
    """Law 4."""
    events = list(HistoryView(normalise(history).events).events)
    gaps = list(boundaries(events))
    first, last = sorted((data.draw(st.sampled_from(gaps)), data.draw(st.sampled_from(gaps))))
    left = events[:first] + events[last:]

    assert normalise(left).events is left


@given(histories(), st.integers(0, 30))
def test_a_trimmed_history_is_short_and_clean(history: History, keep: int):
    done = trim(history, keep)

    assert report(done.events).is_valid()
    assert len(done.events) - len(done.added) <= keep
    assert sound(HistoryView(done.events).events).is_valid()


@given(histories(), st.integers(0, 30))
def test_trimming_a_mended_history_needs_no_repair(history: History, keep: int):
    done = trim(normalise(history).events, keep)

    assert done.repairs == ()
