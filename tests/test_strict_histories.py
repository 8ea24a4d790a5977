"""Random histories of asks: no request that a strict server refuses (`strict_histories.py`; by command 100,000)."""

from __future__ import annotations

import pytest
from scale import QUICK
from strict_histories import Conversation, judge, play, walk

from ctxkernel.core.settings import Settings
from ctxkernel.history.events import Condensation, SummaryText
from ctxkernel.projection.binding import BoundBlocks

PARTS = 8
EACH = 10 if QUICK else 250
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": ""}
CELL = {"type": "tool_use", "id": "", "name": "run_cell", "input": {"code": "1"}}


@pytest.mark.scaled
@pytest.mark.parametrize("part", range(PARTS))
def test_a_strict_server_refuses_no_request_of_a_random_history_and_its_log_gives_the_same_bytes(part: int):
    thinking = sum(walk(seed)[1] for seed in range(part * EACH, (part + 1) * EACH))

    assert thinking > EACH, "else nothing was bound"


@pytest.mark.parametrize("pairing", [False, True])
def test_thinking_goes_back_with_every_request_of_an_ask(pairing: bool):
    session = Conversation(Settings(message_pairing=pairing))
    session.open(stdout="1")
    session.ask()
    for count in range(1, 4):
        session.respond(THOUGHT, {"type": "text", "text": "look"}, {**THOUGHT, "thinking": str(count)}, CELL)
        session.result()
        projection = judge(session)
        assert [piece.kind for piece in projection.run.pieces].count("thinking") == 2 * count
    session.respond(THOUGHT, {"type": "text", "text": "It is 1."})
    session.ask("and now?")
    assert [piece.kind for piece in judge(session).run.pieces].count("thinking") == 7


@pytest.mark.parametrize("source", ["  \n", "# a note", "%ctx timeline", "%ctx redact"])
def test_a_condensation_that_is_recorded_late_with_a_cell_leaves_the_bytes_those_of_the_log(source: str):
    """An empty cell, one that only comments, a command: a condensation on its own accord comes at their end."""
    session = Conversation()
    session.open("v1 = 3", stdout="out\n" * 300)
    session.open(source, stdout="out")
    assert judge(session).report.ok
    session.record(Condensation(session.next_id(), ("s1.1",), (SummaryText("made v1", 0),), "too long"))
    assert judge(session).report.ok
    session.open("v2 = 4")
    assert judge(session).report.ok


def test_the_check_of_a_projection_finds_thinking_that_stands_after_other_blocks(monkeypatch: pytest.MonkeyPatch):
    """The projection's own report says what the server would, so nothing is sent that is refused."""
    monkeypatch.setattr(BoundBlocks, "_is_bound_to", lambda self, basis, before: True)

    for fault in ("refused: messages", "the report is red"):
        assert any(fault in play(seed)[1] for seed in range(60))
    session = Conversation()
    session.ask()
    session.respond(THOUGHT, CELL)
    session.result("a long row\n" * 100)
    assert judge(session).report.ok
    for events in session.records.values():
        events[:] = [event for event in events if type(event).__name__ != "UserQuestion"]
    session.engine = session.made()
    report = session.request().report
    assert [one.rule for one in report.violations] == ["bound_thinking"]
    assert "other blocks" in report.violations[0].message
