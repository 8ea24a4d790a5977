"""The turn without a kernel: whatever a model says and a person decides, the history stays whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.agent.ask_turn import AskStopped, AskTurn, ResponseRecord
from ctxkernel.agent.asks import Ask, AskEnding, Bounds, Spent
from ctxkernel.agent.failures import ModelFailure
from ctxkernel.agent.streaming import CallDelta, Response, StreamEvent, TextDelta
from ctxkernel.agent.unfinished import left_open
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Execution
from ctxkernel.history.events import Action, AssistantMessage, HistoryEvent, Observation, UserQuestion, Verdict
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.projection.value import Projection
from ctxkernel.testing import Turns


class Scripted:
    """A model that answers by a list."""

    live = True
    trusted = True

    def __init__(self, script: Sequence[Any]) -> None:
        self.script = list(script)
        self.requests: list[Projection] = []

    async def send(self, request: Projection, on_event: Callable[[StreamEvent], None]) -> Response:
        self.requests.append(request)
        said = self.script.pop(0) if self.script else "that is all"
        if isinstance(said, Exception):
            for text in (getattr(said, "partial_text", "") or "half of an ").split("|"):
                on_event(TextDelta(text))
                on_event(CallDelta("run_cell", "{"))
            raise said
        blocks, reason = ([{"type": "text", "text": said}], "end_turn") if isinstance(said, str) else said
        number = len(self.requests)
        return Response(f"msg_{number}", f"req_{number}", "m", tuple(blocks), reason, {"output_tokens": 5}, 0.1, None)

    def verdict(self, action: Action, place: int) -> Verdict | None:
        return None


def _nothing(execution: Execution) -> tuple[Any, ...]:
    return ()


class Bench:
    """A bench without a kernel: its cells are plain code."""

    off = stopped = False

    def __init__(self, settings: Settings) -> None:
        self.turns = Turns(settings, projector=ProjectionEngine(settings, count_tokens))
        self.proposed: list[str] = []
        self.refused = False

    @property
    def request(self) -> Projection | None:
        return self.turns.loop.projection

    def sending(self, ask: Ask, request: Projection, number: int) -> None:
        assert request.report.ok, request.violations

    def received(self, response: Response | None, failure: ModelFailure | None, spent: Spent) -> None: ...

    def _statement(self, source: str, observe: Callable[[Execution], Iterable[Any]], before: Any = None) -> Execution:
        from ctxkernel.core.turn_values import Outcome

        loop = self.turns.loop
        turn = loop.begin(source, now=self.turns.now, author="model", kind="meta")
        for event in before(turn.execution.execution_id, 1) if before is not None else ():
            loop.record(event)
        self.turns.now += 1
        return loop.end(Outcome("ok"), self.turns.now, observe=observe).execution

    def record(self, said: ResponseRecord) -> str:
        return self._statement(said.source, _nothing, said.events).execution_id

    def mask(self, text: str) -> str:
        return text

    def answer(self, action: Action, shown: Sequence[HistoryEvent], number: int) -> Sequence[HistoryEvent]:
        execution_id = action.event_id.rpartition(":")[0]
        return [Observation(f"{execution_id}:{number}", action.tool_call_id, "done")]

    async def run(self, action: Action, code: str, observe: Callable[[Execution], Iterable[Any]]) -> Execution:
        from ctxkernel.core.turn_values import Outcome

        loop = self.turns.loop
        loop.begin(code, now=self.turns.now, author="model")
        self.turns.now += 1
        status: Any = "cancelled" if "stop" in code else "error" if "fail" in code else "ok"
        return loop.end(Outcome(status, stdout=code), self.turns.now, observe=observe).execution

    def sources(self) -> list[str]:
        return [statement.source for statement, _ in self.turns.loop.history]

    def changed(self, code: str) -> str:
        return "it changed" if "stale" in code else ""

    def hold(self, action: Action, code: str, observe: Callable[[Execution], Iterable[Any]]) -> None:
        self._statement(code, observe)

    def propose(self, action: Action, code: str) -> None:
        self.proposed.append(code)

    def consented(self, ask: Ask, request: Projection) -> bool:
        return True

    async def interruptible(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except KeyboardInterrupt:
            raise AskStopped from None

    def clock(self) -> float:
        return self.turns.now


class Screen:
    def begin(self) -> None: ...

    def event(self, event: StreamEvent) -> None: ...

    def end(self, note: str = "", text: str | None = None) -> None: ...


codes = st.sampled_from(["print(1)", "fail()", "stale = 1", "x = 2", "stop()"])
cells = st.builds(lambda code: {"type": "tool_use", "id": "", "name": "run_cell", "input": {"code": code}}, codes)
others = st.sampled_from(
    [
        {"type": "tool_use", "id": "", "name": "condense", "input": {}},
        {"type": "tool_use", "id": "", "name": "nothing", "input": {}},
        {"type": "tool_use", "id": "same", "name": "run_cell", "input": {}},
    ]
)
texts = st.builds(
    lambda text: {"type": "text", "text": text}, st.sampled_from(["", "  ", "I look.", "<ctx:result id=1>"])
)
thoughts = st.builds(lambda n: {"type": "thinking", "thinking": f"hm {n}", "signature": f"c2ln{n}"}, st.integers(0, 9))
reasons = st.sampled_from(["tool_use", "end_turn", "max_tokens", "pause_turn", "refusal"])
responses = st.tuples(st.lists(st.one_of(texts, thoughts, cells, others), max_size=6), reasons)
faults = st.builds(ModelFailure, st.sampled_from(["overloaded", "cut", "context_overflow"]))
rounds = st.lists(st.one_of(responses, responses, st.just("a word"), faults), max_size=5)
decisions = st.lists(st.sampled_from(["approve", "edit", "reject", "all", "ask"]), max_size=8)


def begin(bench: Bench, question: str, script: Sequence[Any], mode: Any) -> AskTurn:
    from ctxkernel.core.turn_values import Outcome

    loop = bench.turns.loop
    turn = loop.begin(f"%%ask\n{question}", now=bench.turns.now, kind="meta")
    loop.record(UserQuestion(loop.next_event_id, question))
    bench.turns.now += 1
    loop.end(Outcome("ok"), bench.turns.now)
    ask = Ask(turn.execution.execution_id, question, "0:x", bench.turns.loop.settings.model, mode, Bounds(rounds=6))
    return AskTurn(ask, bench, Scripted(script), Screen())


def decide(bench: Bench, turn: AskTurn, what: str) -> None:
    """Do what a command does in a statement of its own."""
    from ctxkernel.core.turn_values import Outcome

    loop = bench.turns.loop
    loop.begin(f"%ctx {what}", now=bench.turns.now, kind="meta")
    if what == "reject":
        for event in turn.reject("no", loop.next_event_id):
            loop.record(event)
    else:
        loop.record(Verdict(loop.next_event_id, turn.waiting[0].tool_call_id, "approved"))
        turn.approve(code="y = 3" if what == "edit" else None, rest=what == "all")
    bench.turns.now += 1
    loop.end(Outcome("ok"), bench.turns.now)


def play(script: Sequence[Any], said: Sequence[str], mode: str, model: str) -> tuple[Bench, AskEnding]:
    bench = Bench(Settings(model=model))
    bench.turns.run("x = 1")
    turn = begin(bench, "why?", script, mode)
    ending = asyncio.run(turn.go())
    for what in (*said, *["approve"] * 40):
        if ending.kind != "parked":
            break
        if what == "ask":
            bench.turns.run("between = 1")
            continue
        decide(bench, turn, what)
        ending = asyncio.run(turn.go())
    return bench, ending


@given(script=rounds, said=decisions, mode=st.sampled_from(["auto", "ask"]), model=st.sampled_from(
    ["claude-sonnet-5-5", "claude-opus-4-5", "qwen3"]
))  # fmt: skip
def test_whatever_is_said_and_decided_each_call_has_one_result_and_every_request_passes(
    script: list[Any], said: list[str], mode: str, model: str
):
    bench, ending = play(script, said, mode, model)
    events = [event for told in bench.turns.loop.log.records.values() for event in told]
    calls = [event for event in events if event.place == "call"]
    results = [event for event in events if event.place == "result"]

    assert ending.kind in ("answered", "bound", "failed", "stopped")
    assert sorted(one.tool_call_id for one in calls) == sorted(one.tool_call_id for one in results)
    assert bench.turns.loop.projection.report.ok
    after = begin(bench, "and now?", [], "auto")
    assert asyncio.run(after.go()).kind == "answered"


def test_the_blocks_of_a_response_are_kept_as_they_came():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln", "extra": 1}
    blocks = [
        thinking,
        {"type": "text", "text": "First."},
        {"type": "tool_use", "id": "t1", "name": "run_cell", "input": {"code": "1"}},
        {"type": "text", "text": "Last."},
    ]
    bench, _ = play([(blocks, "tool_use")], [], "auto", "claude-sonnet-5-5")
    (action,) = [one for told in bench.turns.loop.log.records.values() for one in told if isinstance(one, Action)]
    assert list(action.blocks) == blocks
    assert action.thinking == (thinking,)
    assert action.text == "First.\n\nLast."


CELL = {"type": "tool_use", "id": "t1", "name": "run_cell", "input": {"code": "print(1)"}}
OTHER = {"type": "tool_use", "id": "t2", "name": "condense", "input": {}}
SCRIPT = {"type": "text", "text": 'Look:\n<script type="text/x-python">\nprint(1)\n</script>'}
HALF = {"type": "text", "text": 'Look:\n<script type="text/x-python">\nprint(1)'}


def played(script: Sequence[Any], model: str) -> tuple[Bench, AskEnding, list[str], list[Observation]]:
    """Return the bench, the ending, the sources that ran, and the results of calls."""
    bench, ending = play(script, [], "auto", model)
    log = bench.turns.loop.log
    ran = [one.source for one in log if one.author == "model" and one.kind == "python"]
    results = [event for told in log.records.values() for event in told if isinstance(event, Observation)]
    return bench, ending, ran, results


@pytest.mark.parametrize(
    ("model", "blocks"),
    [
        ("claude-sonnet-5-5", [CELL]),
        ("claude-sonnet-5-5", [{"type": "text", "text": "I look."}, CELL, OTHER]),
        ("qwen3", [SCRIPT]),
    ],
)
def test_nothing_of_a_refused_response_is_run_and_its_calls_are_answered_so(model: str, blocks: list[Any]):
    bench, ending, ran, results = played([(blocks, "refusal"), "never asked for"], model)
    assert ran == []
    assert {one.status for one in results} == {"canceled"}
    assert all("not run" in one.content for one in results)
    assert all("not run: the answer ended as a refusal" in one.content for one in results)
    assert ending.kind == "answered"
    assert "declined to answer" in ending.text
    assert "not run" in ending.text
    assert bench.turns.loop.projection.report.ok


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_a_script_that_the_answer_was_cut_in_is_not_run_whatever_cut_it(reason: str):
    _, _, ran, _ = played([([HALF], reason), "well"], "qwen3")
    assert ran == []


def test_what_was_said_before_and_after_a_call_of_an_answer_that_was_cut_is_two_paragraphs():
    bench, _, _, _ = played([ModelFailure("cut", partial_text="I begin.|And then")], "claude-sonnet-5-5")
    told = [one for told in bench.turns.loop.log.records.values() for one in told if isinstance(one, AssistantMessage)]
    assert told[0].text == "I begin.\n\nAnd then\n[no answer: cut]"


def test_of_an_answer_that_was_cut_neither_its_scripts_nor_what_it_says_as_the_kernel_is_kept():
    half = "I look.\n<script type='text/x-python'>\nprint(1)\n</script>\nSo.\n<ctx:result id=1>42</ctx:result>"
    for text in (half, half[:40]):
        bench, ending, ran, _ = played([ModelFailure("cut", partial_text=text)], "qwen3")
        log = bench.turns.loop.log
        (kept,) = [one for told in log.records.values() for one in told if isinstance(one, AssistantMessage)]
        assert (ending.kind, ran) == ("failed", [])
        assert kept.text == ("I look.\n\nSo.\n[no answer: cut]" if text == half else "I look.\n[no answer: cut]")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("<ctx:result id=1>42</ctx:result>", "nothing is left of the answer"),
        ("It is 42.\n<ctx:result id=1>42</ctx:result>", "the end of the answer was cut"),
        ("It is 42.", ""),
        ("", "the model said nothing"),
    ],
)
def test_an_answer_that_speaks_as_the_kernel_is_told_to_be_cut(said: str, told: str):
    bench, ending, _, _ = played([([{"type": "text", "text": said}], "end_turn")], "qwen3")
    assert ending.kind == "answered"
    assert ending.text.startswith(told) and bool(ending.text) == bool(told)
    assert ("as if it were the kernel" in ending.text) == ("<ctx:" in said)
    assert bench.turns.loop.projection.report.ok


def parked(script: Sequence[Any], *said: str) -> list[str]:
    """Return what a next kernel tells of an ask that parked, after what was done about it."""
    bench = Bench(Settings(model="claude-sonnet-5-5"))
    turn = begin(bench, "why?", script, "ask")
    if script:
        assert asyncio.run(turn.go()).kind == "parked"
    for what in said:
        decide(bench, turn, what)
        asyncio.run(turn.go())
    log = bench.turns.loop.log
    return left_open(log.path(), log.records, log)


TWO = ([CELL, {**CELL, "id": "t3", "input": {"code": "x = 2"}}], "tool_use")


@pytest.mark.parametrize(
    ("script", "said", "told"),
    [
        ([TWO], [], ["2 cells that the model proposed in s2", "    print(1)", "    x = 2", "the ask of s1 (why?)"]),
        ([TWO], ["reject"], ["a cell that the model proposed in s2", "    x = 2", "run the cell of the ask of s1"]),
        ([TWO, "done"], ["approve", "approve"], []),
        ([], [], ["the ask of s1 (why?) was not answered"]),
    ],
)
def test_what_waited_when_a_kernel_ended_is_told_with_its_code_and_the_next_step(
    script: list[Any], said: list[str], told: list[str]
):
    lines = parked(script, *said)
    assert bool(lines) == bool(told)
    assert [part for part in told if part not in "\n".join(lines)] == []
