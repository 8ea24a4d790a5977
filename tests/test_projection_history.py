"""The model's history in a projection: messages, calls and results in both dialects, valid whatever was recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from histories import answer, call, histories, question, result
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn import Turn
from ctxkernel.history.events import Events, HistoryEvent, Repair
from ctxkernel.history.invariants import PROPERTIES, OwnProperty, Property
from ctxkernel.history.rules import check
from ctxkernel.projection.engine import Projection, ProjectionEngine
from ctxkernel.projection.tokens import count_tokens

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def engine(budget: int = 32_000, **more: Any) -> ProjectionEngine:
    return ProjectionEngine(Settings(projection_tokens=budget, **more), count_tokens)


def asked(*events: HistoryEvent, index: int = 1) -> Turn:
    """A turn after an ask in which these events were recorded."""
    return after([list(events)], start=index)


def after(recorded: Sequence[Sequence[HistoryEvent]], *, start: int = 1, **more: Any) -> Turn:
    """A turn at the end of as many executions as there are lists, with these events recorded."""
    path: list[tuple[Statement, Execution]] = []
    records: dict[str, Sequence[HistoryEvent]] = {}
    for index, events in enumerate(recorded, start):
        sid = f"s{index}"
        execution = Execution(f"{sid}.1", sid, f"s{index - 1}.1" if path else None, 0.0, 1.0, "ok", f"out {index}\n")
        path.append((Statement(sid, index, 0.0, f"x = {index}"), execution))
        records[execution.execution_id] = list(events)
    return Turn(path, (), (), 0, (), records, **more)


def messages(projection: Projection) -> list[dict[str, Any]]:
    return projection.request["messages"]


def content(projection: Projection, at: int) -> list[dict[str, Any]]:
    return messages(projection)[at]["content"]


# -- laws ------------------------------------------------------------------------------------------

models = st.sampled_from(["claude-sonnet-5-5", "claude-opus-4-5", "claude-opus-4-8", "local-model"])
budgets = st.sampled_from([400, 3_000, 32_000])


@st.composite
def sessions(draw: st.DrawFn) -> list[list[HistoryEvent]]:
    """A random history, broken in every known way, in parts, each recorded with an execution."""
    events = draw(histories(most=30))
    parts: list[list[HistoryEvent]] = [[]]
    for event in events:
        if draw(st.integers(0, 3)) == 0:
            parts.append([])
        parts[-1].append(event)
    return parts


@given(sessions(), models, budgets)
@profile(max_examples=300)
def test_every_projection_of_any_history_holds_its_laws(session: list[list[HistoryEvent]], model: str, budget: int):
    """Valid, within budget, explained, and the same whether built step by step or anew."""
    stepwise = engine(budget, model=model)
    for end in range(1, len(session) + 1):
        step = after(session[:end])
        projection = stepwise.project(step)
        fresh = engine(budget, model=model).project(step)

        assert projection.report == check(projection.request, stepwise.capabilities)
        assert projection.report.ok
        assert projection.tokens == sum(block.tokens for block in projection.blocks) <= budget
        assert projection.request_bytes == fresh.request_bytes
        assert replace(projection, cached=-1) == replace(fresh, cached=-1)
        assert stepwise.project(step).receipt == projection.receipt == fresh.receipt
        assert all(block.why and block.origin for block in projection.blocks)
        assert len({block.id for block in projection.blocks}) == len(projection.blocks)
        as_sent = json.dumps(projection.request, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        assert as_sent.encode() == projection.request_bytes


@given(sessions(), st.data())
def test_going_back_in_a_history_gives_what_was_there(session: list[list[HistoryEvent]], data: st.DataObject):
    stepwise = engine(3_000)
    seen = {end: stepwise.project(after(session[:end])).receipt for end in range(1, len(session) + 1)}
    for _ in range(4):
        end = data.draw(st.integers(1, len(session)))
        assert stepwise.project(after(session[:end])).receipt == seen[end]


@given(sessions(), models, budgets)
@profile(max_examples=150)
def test_what_is_recorded_before_a_projection_is_replayed(session: list[list[HistoryEvent]], model: str, budget: int):
    """Repairs, condensations and redactions that take effect are events: with them the same comes out again."""
    stepwise = engine(budget, model=model)
    recorded: list[list[HistoryEvent]] = []
    for part in session:
        recorded.append(list(part))
        made = [event for event in stepwise.tend(after(recorded)) if not isinstance(event, str)]
        recorded[-1] += made
        projection = stepwise.project(after(recorded))

        fresh = engine(budget, model=model).project(after(recorded))
        assert projection.request_bytes == fresh.request_bytes
        assert projection.report == check(projection.request, stepwise.capabilities)
        assert projection.report.ok
        assert projection.tokens <= budget
        assert not [one for one in stepwise.tend(after(recorded)) if isinstance(one, Repair)], "mended once"


class Every(Property):
    """Hides events by their id, with no regard for what belongs together."""

    def __init__(self, modulo: int) -> None:
        self.modulo = modulo

    def enforce(self, events: Events, source: Events) -> Events:
        return [event for event in events if sum(event.event_id.encode()) % self.modulo]


extended = st.fixed_dictionaries(
    {
        "token_limit": st.sampled_from([0, 1, 60, 400]),
        "call_depth": st.sampled_from([0, 1, 2]),
        "message_pairing": st.booleans(),
    }
)


@given(sessions(), models, budgets, extended, st.sampled_from([0, 2, 3]))
@profile(max_examples=200)
def test_with_extensions_and_a_property_of_ones_own_it_holds_its_laws(
    session: list[list[HistoryEvent]], model: str, budget: int, more: dict[str, Any], modulo: int
):
    """Valid whatever they hide, and the same step by step, anew, and from an engine that took over half-way."""

    def made() -> ProjectionEngine:
        own = [OwnProperty("every", Every(modulo), PROPERTIES[:-1])] if modulo else []
        settings = Settings(projection_tokens=budget, model=model, **more)
        return ProjectionEngine(settings, count_tokens, properties=(*PROPERTIES, *own))

    stepwise, recorded = engine(budget, model=model), list[list[HistoryEvent]]()
    for at, part in enumerate(session):
        recorded.append(list(part))
        if at == len(session) // 2:
            before, stepwise = stepwise, made()
            stepwise.take_over(before, after(recorded[:-1]))
        recorded[-1] += [event for event in stepwise.tend(after(recorded)) if not isinstance(event, str)]
        projection = stepwise.project(after(recorded))
        assert projection.report == check(projection.request, stepwise.capabilities)
        assert projection.report.ok
        assert projection.tokens <= budget
    fresh = made().project(after(recorded))

    assert projection.request_bytes == fresh.request_bytes
    assert projection.left_out == fresh.left_out


# -- the tool dialect ------------------------------------------------------------------------------


def test_a_loop_of_calls_is_messages_in_turn():
    turn = asked(question(1), call(1, thinking=True), result(1), answer(1))

    projection = engine().project(turn)

    assert [message["role"] for message in messages(projection)] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "system",
    ]
    assert [block["type"] for block in content(projection, 1)] == ["tool_use"]
    given_back = content(projection, 2)[0]
    assert (given_back["type"], given_back["tool_use_id"]) == ("tool_result", "c1")
    assert "o1" in given_back["content"], "the id that the model can cite"
