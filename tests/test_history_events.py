"""History events: their ids, and JSON there and back."""

from __future__ import annotations

import dataclasses
import json

import pytest
from histories import MOVES, History, histories
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.errors import BadHistory
from ctxkernel.core.timeline import Artifact, ExceptionInfo, Execution, Statement
from ctxkernel.history.events import (
    Action,
    AssistantMessage,
    Condensation,
    HumanStatement,
    Observation,
    Output,
    SummaryText,
    derived,
    event_from_json,
    event_to_json,
    from_execution,
    nth,
    output_status,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
blocks = st.lists(st.dictionaries(st.text(max_size=9), json_values, max_size=3), max_size=2).map(tuple)


@given(histories(frozenset(MOVES)))
def test_an_event_comes_back_from_json_as_it_was(history: History):
    for event in history:
        assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


@given(blocks, st.dictionaries(st.text(max_size=5), json_values, max_size=3))
def test_thinking_and_input_are_kept_key_for_key(thinking, given_input):
    """A signature holds for the exact block: nothing is added, dropped or reordered, whatever the keys are."""
    action = Action("a1", "c1", "run", given_input, "r1", thinking)

    back = event_from_json(json.loads(json.dumps(event_to_json(action))))

    assert isinstance(back, Action)
    assert [json.dumps(block) for block in back.blocks] == [json.dumps(block) for block in thinking]
    assert json.dumps(back.input) == json.dumps(given_input)


def test_a_lone_surrogate_survives():
    event = Observation("o1", "c1", "a\ud800b")

    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "'None' is not known"),
        ({"type": "Dream"}, "'Dream' is not known"),
        ({"type": ["Action"]}, "is not known"),
        ({"type": "UserQuestion", "event_id": "q1"}, "text"),
        ({"type": "UserQuestion", "event_id": 3, "text": "x"}, "UserQuestion.event_id is int; it must be text"),
        ({"type": "Action", "input": []}, "Action.input is list; it must be an object"),
        ({"type": "Action", "blocks": ["x"]}, "Action.blocks[0] is 'x'; it must be an object"),
        (
            {"type": "Condensation", "summaries": [{"text": "x", "offset": True}]},
            "Condensation.summaries[0].offset is bool",
        ),
        ({"type": "Condensation", "summaries": [{"offset": 1}]}, "Condensation.summaries[0].text is missing"),
        ({"type": "Observation", "synthetic": 1}, "it must be true or false"),
        (
            {"type": "Repair", "fix": "hidden"},
            "Repair.fix is 'hidden'; it must be one of added, removed, moved, renamed",
        ),
        ({"type": "Redaction", "by": "nobody"}, "Redaction.by is 'nobody'; it must be one of human, model"),
        ({"type": "Redaction", "by": ["model"]}, "Redaction.by is list"),
        ({"type": "Withdrawal", "event_id": "w1"}, "target_id"),
    ],
)
def test_what_is_no_event_is_refused_by_name(data, said: str):
    with pytest.raises(BadHistory) as refused:
        event_from_json(data)

    assert said in str(refused.value)


def test_an_older_and_a_newer_version_read_each_other():
    """Fields that are missing have their defaults; fields that are not known are passed over."""
    event = event_from_json({"type": "UserRejection", "event_id": "o1", "tool_call_id": "c1", "mood": "bad"})

    assert event_to_json(event) == {"type": "UserRejection", "event_id": "o1", "tool_call_id": "c1", "reason": ""}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("success", "success"),
        ("failed", "failed"),
        ("canceled", "canceled"),
        ("timeout", "timeout"),
        ("cancelled", "failed"),
        ("", "failed"),
        (None, "failed"),
        (7, "failed"),
    ],
)
def test_a_status_that_is_not_known_is_a_failure(text, status: str):
    assert output_status(text) == status
    data = {"type": "Observation", "event_id": "o1", "tool_call_id": "c1", "content": "", "status": text}
    event = event_from_json(data)
    assert isinstance(event, Observation)
    assert event.status == status


def test_an_event_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Observation("o1", "c1", "x").content = "y"  # type: ignore[misc]


def test_ids_say_what_they_stand_for_and_are_the_same_every_time():
    condensation = Condensation("s3.1:4", ("q1",), (SummaryText("a"), SummaryText("b", 1)))

    assert nth("s3.1", 4) == "s3.1:4"
    assert derived("s3.1:4", "result") == "s3.1:4~result"
    assert [one.event_id for one in condensation.summary_events()] == ["s3.1:4~summary1", "s3.1:4~summary2"]


def test_a_statement_has_its_outputs_in_one_event():
    statement = Statement("s3", 3, 0.0, "plot(x)")
    display = Artifact("display", "", "text/html", 3, "", "<b>")
    written = Artifact("file", "out.csv", "text/csv", 3, "", None)
    error = ExceptionInfo("ValueError", "no", "")
    execution = Execution("s3.2", "s3", None, 0.0, 1.0, "error", "out", "err", error, artifacts=(display, written))

    assert from_execution(statement, execution) == HumanStatement(
        "s3.2",
        "s3",
        "plot(x)",
        (
            Output("stdout", "out"),
            Output("text/html", "[text/html 3 B]"),
            Output("stderr", "err"),
            Output("error", "ValueError: no"),
        ),
        "error",
    )


def test_of_an_output_with_a_plain_text_the_richer_forms_are_left_out():
    """A frame is measured, condensed and redacted by what the model sees of it."""
    forms = [Artifact("display", "display 1", mime, 9, "", mime) for mime in ("text/html", "text/plain", "image/png")]
    alone = Artifact("display", "display 2", "image/png", 12_000, "", "iVBORw0KGgo")
    execution = Execution("s3.1", "s3", None, 0.0, 1.0, "ok", artifacts=(*forms, alone))

    event = from_execution(Statement("s3", 3, 0.0, "frame"), execution)

    assert event.outputs == (Output("text/plain", "text/plain"), Output("image/png", "[image/png 12,000 B]"))


def test_a_message_keeps_its_thinking():
    message = AssistantMessage("m1", "so", "r1", ({"type": "redacted_thinking", "data": "x=="},))

    assert event_from_json(event_to_json(message)) == message
