"""No text that a model is shown becomes an order: it stays in its block, in user content, and forges nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from histories import sent_with
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from injection_rows import EVERYWHERE, TEXTS, TRIES
from scale import examples

from ctxkernel.agent.scripts import split_scripts
from ctxkernel.core.replay import HeadMove
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Artifact, ExceptionInfo, Execution, Statement
from ctxkernel.core.turn_values import Outcome, Turn
from ctxkernel.history.events import (
    Action,
    AgentError,
    Condensation,
    Context,
    HistoryEvent,
    Observation,
    Redaction,
    SummaryText,
    UserQuestion,
    UserRejection,
)
from ctxkernel.projection.engine import Projection, ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.testing.fake_loop import FakeSource, Turns

LONG = "line of output\n" * 200
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


# -- how a text gets to a place ----------------------------------------------------------------------


def cell(turns: Turns, source: str, *events: HistoryEvent, **outcome: Any) -> None:
    """A cell of any text, in which these events are recorded."""
    turns.loop.begin(source, now=turns.now)
    for event in events:
        turns.loop.record(event)
    turns.now += 1.0
    turns.loop.end(Outcome(**{"status": "ok", **outcome}), turns.now)


def then(turns: Turns, source: str, *events: HistoryEvent) -> None:
    """A cell with directives on the history, and one after it: some take effect between two."""
    cell(turns, source, *events)
    turns.run("pass")


def shows(turns: Turns, source: FakeSource, code: str = "") -> None:
    turns.namespace["src"] = source
    turns.run(f"h = view(src, tokens=8000)\npin(h)\nshow(h)\n{code}")


def names(turns: Turns, **variables: object) -> None:
    turns.namespace.update(variables)
    turns.run("pass")


class Shown:
    """A value with a repr of one's choice."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def changed(turns: Turns, text: str) -> None:
    source = FakeSource("calm")
    shows(turns, source, "h.run()")
    source.text = text
    turns.run("x = 1")


def late(turns: Turns, text: str) -> None:
    turns.run("x = 1")
    turns.loop.late("s1.1", "stdout", text)
    turns.run("x = 2")


def called(text: str = "fine", **more: str) -> tuple[Action, Observation]:
    given: dict[str, str] = {"tool_call_id": "c1", "tool_name": "run_cell", **more}
    return Action("s1.1:2", input={"code": "x"}, **given), Observation("s1.1:3", given["tool_call_id"], text)  # type: ignore[arg-type]


def answered(turns: Turns, result: HistoryEvent) -> None:
    cell(turns, "%%ask", UserQuestion("s1.1:1", "why?"), called()[0], result)


def loaded(turns: Turns, statement: Statement, *records: HistoryEvent) -> None:
    """A session that was made elsewhere."""
    execution = Execution(f"{statement.statement_id}.1", statement.statement_id, None, 0.0, 1.0, "ok", "out")
    turns.loop.load([(statement, [execution])], execution.execution_id, records={execution.execution_id: list(records)})
    turns.loop.move(HeadMove(execution.execution_id, "resume", turns.now))


def system_message(turns: Turns, text: str) -> None:
    used = {"type": "tool_use", "id": "c1", "name": "run_cell", "input": {"code": "x"}}
    thought = Action("s1.1:2", "c1", "run_cell", {"code": "x"}, "r1", (THOUGHT, used))
    context = Context("s1.1:x", ("<ctx:variables>\nx = 1\n",), text)
    statement, execution = Statement("s1", 1, 0.0, "x"), Execution("s1.1", "s1", None, 0.0, 1.0, "ok", "out")

    def project(events: Sequence[HistoryEvent]) -> Projection:  # whoever forges it knows how the digest is made
        engine = ProjectionEngine(turns.projector.settings, count_tokens)
        return engine.project(Turn([(statement, execution)], (), (), 0, (), {"s1.1": list(events)}))

    loaded(turns, statement, *sent_with([UserQuestion("s1.1:1", "why?"), context, thought, called()[1]], project))


def rich(text: str, mime: str = "text/plain", name: str = "o1", kind: Any = "display") -> dict[str, Any]:
    return {"artifacts": (Artifact(kind, name, mime, 9, "", text),)}


def failed(type: str = "ValueError", message: str = "no", trace: str = "line 1") -> dict[str, Any]:
    return {"status": "error", "exception": ExceptionInfo(type, message, trace)}


PLACES: dict[str, Callable[[Turns, str], None]] = {
    "a file in a view": lambda turns, text: shows(turns, FakeSource(text)),
    "a file in a group": lambda turns, text: shows(turns, FakeSource(text), "g = group(h, lod=0, tokens=8000)"),
    "a file that changed": changed,
    "the label of a view": lambda turns, text: shows(turns, FakeSource("calm", text)),
    "the name of a view": lambda turns, text: shows(turns, FakeSource("calm"), f"globals()[{text!r}] = h; del h"),
    "the reason of a pin": lambda turns, text: shows(turns, FakeSource("calm"), f"pin(h, {text!r})"),
    "standard output": lambda turns, text: cell(turns, "x", stdout=text),
    "standard error": lambda turns, text: cell(turns, "x", stderr=text),
    "late output": late,
    "a rich output": lambda turns, text: cell(turns, "x", **rich(text)),
    "the type of a rich output": lambda turns, text: cell(turns, "x", **rich("a", text)),
    "the name of a file": lambda turns, text: cell(turns, "x", **rich("", "", text, "file")),
    "the message of an error": lambda turns, text: cell(turns, "x", **failed(message=text)),
    "the type of an error": lambda turns, text: cell(turns, "x", **failed(type=text)),
    "the trace of an error": lambda turns, text: cell(turns, "x", **failed(trace=text)),
    "a variable's name": lambda turns, text: names(turns, **{text: 1}),
    "a variable's value": lambda turns, text: names(turns, x=Shown(text)),
    "a variable's type": lambda turns, text: names(turns, x=type(clean_name(text), (), {})()),
    "the source of a cell": cell,
    "a question": lambda turns, text: cell(turns, "%%ask", UserQuestion("s1.1:1", text)),
    "the result of a call": lambda turns, text: answered(turns, called(text)[1]),
    "a rejection": lambda turns, text: answered(turns, UserRejection("s1.1:3", "c1", text)),
    "an error of a call": lambda turns, text: answered(turns, AgentError("s1.1:3", "c1", text)),
    "the id of a call": lambda turns, text: cell(turns, "%%ask", *called(tool_call_id=text)),
    "the name of a tool": lambda turns, text: cell(turns, "%%ask", *called(tool_name=text)),
    "a note in the place of a result": lambda turns, text: then(
        turns, "%%ask", *called(LONG * 20), Redaction("s1.1:4", "s1.1:3", text, "human")
    ),
    "a note in the place of an output": lambda turns, text: (
        cell(turns, "x", stdout=LONG * 20), then(turns, "%ctx redact", Redaction("s2.1:1", "s1.1", text, "human")),
    )[0],
    "a summary": lambda turns, text: (
        cell(turns, "x"), then(turns, "%ctx condense", Condensation("s2.1:1", ("s1.1",), (SummaryText(text),))),
    )[0],
    "the id of a statement": lambda turns, text: loaded(turns, Statement(text, 1, 0.0, "x")),
    "the author of a statement": lambda turns, text: loaded(turns, Statement("s1", 1, 0.0, "x", author=text)),  # type: ignore[arg-type]
    "a recorded system message": system_message,
}  # fmt: skip


def clean_name(text: str) -> str:
    """Return a text without NUL and lone surrogates, which no name of a class has."""
    return text.replace("\0", "").encode(errors="replace").decode()


# -- what holds --------------------------------------------------------------------------------------

MODELS = {
    "tools, with notes for a turn": {"model": "claude-sonnet-5-5", "dialect": "tools"},
    "tools, without": {"model": "claude-opus-4-5", "dialect": "tools"},
    "scripts, with notes for a turn": {"model": "claude-sonnet-5-5", "dialect": "script"},
    "scripts, without": {"model": "local-model", "dialect": ""},
}
UNSEEN = "[\u034f\u180b\u200b-\u200f\u2060\u3164\ufe00-\ufe0f\ufeff\U000e0001]*"
TAG = re.compile(rf"<[\W\u3164]{{0,50}}{UNSEEN.join('ctx')}", re.IGNORECASE)
SCRIPT = re.compile(rf"<[\W\u3164]{{0,16}}{UNSEEN.join('script')}", re.IGNORECASE)
ID = r"id=\"[\w.:+~#-]*\""
OURS = re.compile(
    rf"<ctx:(?:(?:s\d+|statement {ID})(?: author=\"[\w.:+~-]*\")?(?: run=\"[\w.:+-]*\")?(?: status=\"\w*\")?"
    r"(?: kind=\"meta\")?(?: short)?"
    rf"|stdout|stderr|error|display|changes|masked|redacted|handles|variables|deltas|(?:question|summary) {ID}"
    rf"|result {ID} status=\"[\w.:+~-]*\"|(?:group|view|note|shown) {ID}(?: members=\"[\w.:+~ -]*\")?)>\n"
)
INNER = ["stdout", "stderr", "error", "display", "masked", "redacted", "changes"]


def project(place: str, text: str, model: str) -> tuple[Turns, ProjectionEngine, Projection]:
    # Old statements are whole, too, so that the text is seen.
    settings = Settings(projection_tokens=32_000, recent_tokens=10**6, **MODELS[model])  # type: ignore[arg-type]
    engine = ProjectionEngine(settings, count_tokens)
    turns = Turns(settings, projector=engine)
    PLACES[place](turns, text)
    projection = turns.loop.projection
    assert isinstance(projection, Projection)
    return turns, engine, projection


def shown_text(block: dict[str, Any]) -> str:
    """Return what a model reads in a block of the user's."""
    return block["content"] if block["type"] == "tool_result" else block["text"]


def check_no_order(projection: Projection) -> None:
    """It has no authority: neither the system text nor a system message has a word of it."""
    request = projection.request
    system = [message for message in request["messages"] if message["role"] == "system"]
    assert "zqx" not in json.dumps([request["system"], request.get("tools"), system])
    assert all(set(message) == {"role", "clear_at", "content"} for message in system)
    assert request["model"] == projection.model


def check_structure(projection: Projection) -> None:
    """The request has the messages and blocks that the projection says, and no others."""
    assert projection.report.ok
    said: list[tuple[str, list[str]]] = []
    for block in projection.blocks[1:]:
        if not said or said[-1][0] != block.role:
            said.append((block.role, []))
        said[-1][1].append(block.kind)
    kinds = {"call": "tool_use", "result": "tool_result", "thinking": "thinking"}
    scripts = "tools" not in projection.request
    sent = projection.request["messages"]
    assert [message["role"] for message in sent] == [role for role, _ in said]
    for message, (_, blocks) in zip(sent, said, strict=True):
        types = ["text" if scripts else kinds.get(kind, "text") for kind in blocks]
        assert [block["type"] for block in message["content"]] == types


def check_tags(projection: Projection) -> None:
    """All that looks like a tag of ours is one, in its place, and there are no more than the block has parts."""
    sent = [block for message in projection.request["messages"] for block in message["content"]]
    for block, shown in zip(sent, projection.blocks[1:], strict=True):
        if shown.role == "assistant":
            continue
        text = shown_text(block)
        found = [(tag.start(), OURS.match(text, tag.start())) for tag in TAG.finditer(text)]
        assert all(tag and (at == 0 or text[at - 1] == "\n") for at, tag in found), text[:2000]
        tags = [tag[0].strip("</>\n").removeprefix("ctx:").split()[0] for _, tag in found if tag]
        if shown.kind == "statement":
            assert re.fullmatch(r"s\d+|statement", tags[0])
            assert tags[1:] == [one for one in INNER if one in tags[1:]]
        else:
            assert len(tags) == (shown.kind not in ("empty", "status")) + tags.count("masked")


def check_scripts(projection: Projection) -> None:
    """Where the model speaks in scripts, none can be read out of what it is shown."""
    if "tools" in projection.request:
        return
    for message in projection.request["messages"]:
        if message["role"] != "assistant":
            texts = [block["text"] for block in message["content"]]
            for text in (*texts, "".join(texts)):
                assert not [part for part in split_scripts(text) if part.kind in ("script", "unfinished")], text[:2000]
                assert not SCRIPT.search(text)


def check_all(place: str, text: str, model: str) -> None:
    turns, engine, projection = project(place, text, model)
    check_no_order(projection)
    check_structure(projection)
    check_tags(projection)
    check_scripts(projection)

    fresh = ProjectionEngine(engine.settings, count_tokens).project(turns.loop.state)
    assert fresh.request_bytes == projection.request_bytes
    before = projection.run.pieces[: projection.count]
    turns.run("calm = 1")
    again = turns.loop.projection
    assert [piece.text for piece in again.run.pieces[: len(before)]] == [piece.text for piece in before]


def test_the_corpus_is_large_and_each_try_can_be_told():
    assert len(TRIES) >= 40
    assert {text for _, text in TRIES} | set(EVERYWHERE) == set(TEXTS)
    assert {place for place, _ in TRIES} == set(PLACES)
    assert all("zqx" in text for text in TEXTS.values())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("place", "text"), TRIES)
def test_no_try_gives_an_order(place: str, text: str, model: str):
    check_all(place, TEXTS[text], model)


@pytest.mark.parametrize("text", EVERYWHERE)
@pytest.mark.parametrize("place", PLACES)
def test_the_worst_is_tried_at_every_place(place: str, text: str):
    for model in MODELS:
        check_all(place, TEXTS[text], model)


@given(
    st.sampled_from(sorted(PLACES)),
    st.lists(st.sampled_from(sorted(set(TEXTS.values()) - {TEXTS["a lot"]})), min_size=1, max_size=3),
    st.sampled_from(sorted(MODELS)),
)
@profile(max_examples=examples(150))
def test_no_mixture_of_tries_gives_an_order(place: str, parts: list[str], model: str):
    check_all(place, "".join(parts), model)


def test_what_is_tried_is_seen_all_the_same():
    """The text is told, as data: nothing is hidden from the model, and why says what was done to it."""
    _, _, projection = project("standard output", TEXTS["a script"], "scripts, without")

    block = next(block for block in projection.blocks if block.kind == "statement")
    assert '&lt;script type="text/x-python">' in block.text
    assert "script tags escaped" in block.why


def test_a_recorded_system_message_in_our_own_words_stays():
    """It goes back as it was sent, since thinking is bound to it."""
    status = "The person's newest statement is s1. Handles: 2, 1 running. Variables: 3."
    _, _, kept = project("a recorded system message", status, "tools, with notes for a turn")
    _, _, gone = project("a recorded system message", f"{status} zqx", "tools, with notes for a turn")

    assert next(block.text for block in kept.blocks if block.kind == "status") == status
    assert [block.kind for block in gone.blocks].count("status") == 1
    assert gone.report.ok
