"""Where a request does not continue the one before it, and why."""

from __future__ import annotations

import pytest
from strict_histories import Conversation

from ctxkernel.core.settings import Settings
from ctxkernel.history.events import CondensationRequest, Pin, Redaction
from ctxkernel.projection.compare import compare_projections
from ctxkernel.projection.prefix import common, prefix_break

CELL = {"type": "tool_use", "id": "", "name": "run_cell", "input": {"code": "1"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": ""}


def asked(rounds: int = 3, **settings: object) -> Conversation:
    session = Conversation(Settings(**settings))  # type: ignore[arg-type]
    session.open(stdout="1")
    session.ask()
    for _ in range(rounds):
        session.respond(THOUGHT, CELL)
        session.result("a long row\n" * 60)
    return session


def test_a_request_that_continues_the_one_before_has_no_break():
    session = asked()
    before = session.request()
    session.respond(THOUGHT, CELL)
    session.result()
    after = session.request()

    assert prefix_break(before, after, common(before, after)) is None
    assert after.broke == ""
    assert common(before, after) == before.count


@pytest.mark.parametrize(
    ("what", "block", "why"),
    [
        ("redact", "", "its output was stale"),
        ("condense", "", "condensed"),
        ("settings", "system", "another model, other tools or other instructions"),
        ("goto", "", "not on this path"),
        ("budget", "", "in one line, as it is old"),
    ],
)
def test_a_break_names_the_block_and_the_reason(what: str, block: str, why: str):
    session = asked(8)
    session.respond({"type": "text", "text": "done"})
    before = session.request()
    if what == "redact":
        target = next(one.event_id for part in session.on_path() for one in part if one.place == "result")
        session.open("%ctx redact", kind="meta")
        session.record(Redaction(session.next_id(), target, "superseded", "human"))
    elif what == "condense":
        session.open("%ctx condense", kind="meta")
        session.record(CondensationRequest(session.next_id(), "asked for"))
    elif what == "settings":
        session.change(model="claude-haiku-5-5")
    elif what == "budget":
        session.change(projection_tokens=6_000, recent_tokens=10_000)
    else:
        session.goto(4)
        session.open("y = 1")
    after = session.request()
    found = prefix_break(before, after, common(before, after))

    assert found is not None
    assert why in found.why
    assert block in found.block
    assert found.tokens > 0
    assert after.broke == (found.told() if what != "settings" else "")


def test_a_pin_of_what_stands_breaks_nothing():
    session = asked()
    before = session.request()
    session.open("%ctx pin", kind="meta")
    session.record(Pin(session.next_id(), before.run.pieces[0].id, True))
    after = session.request()

    assert prefix_break(before, after, common(before, after)) is None


def test_a_comparison_reads_nothing_from_the_cache_of_another_model():
    session = asked()
    before = session.request()
    session.change(model="claude-opus-5-5")
    found = compare_projections(before, session.request())

    assert (found.prefix_tokens, found.breaks_at) == (0, "system")
    assert found.cost_after.usd == found.costs[1].usd
