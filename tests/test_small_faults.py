"""Small faults that users met: each in a real kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_kernel_asking import Bench, bench_in, cell, plain_text, shown

from ctxkernel.testing import say


@pytest.fixture(scope="module")
def bench(module_folder: Path) -> Iterator[Bench]:
    with bench_in(module_folder) as made:
        made.consent()
        yield made


SURROGATES = [
    ("print('a \\ud800 b')", "stdout"),
    ("import sys; print('a \\ud800 b', file=sys.stderr)", "stderr"),
    ("print('a \\ud800 b', flush=True); print('more')", "stdout"),
    ("from IPython.display import display; display({'text/plain': 'a \\ud800 b'}, raw=True)", "data"),
    ("class A:\n    def __repr__(self): return 'a \\ud800 b'\nA()", "data"),
    ("raise ValueError('a \\ud800 b')", "error"),
    ("import warnings; warnings.warn('a \\ud800 b')", "stderr"),
]


@pytest.mark.parametrize(("code", "where"), SURROGATES, ids=[row[0][:30] for row in SURROGATES])
def test_a_lone_surrogate_is_shown_as_a_mark_and_gives_no_traceback(bench: Bench, code: str, where: str):
    ran = bench.kernel.run(code)
    found = {"stdout": ran.stdout, "stderr": ran.stderr, "data": str(ran.data)}
    found["error"] = str([one for one in ran.outputs if one["type"] == "error"])
    assert "a \ufffd b" in found[where] or "a \\ud800 b" in found[where]
    assert "UnicodeEncodeError" not in shown(ran)
    assert "tornado" not in ran.stderr
    statement = bench.statements[-1]
    assert statement["source"] == code
    assert bench.kernel.run("print('next')").stdout == "next\n"
    bench.sound()


def test_redact_undo_without_a_number_asks_which_one(bench: Bench):
    bench.run("%ctx goto 0")
    assert "nothing is redacted" in bench.kernel.run("%ctx redact --undo").error["evalue"]
    bench.run("print('long ' * 400)")
    name = bench.statements[-1]["statement_id"]
    bench.run(f'%ctx redact {name} "long"')
    ran = bench.kernel.run("%ctx redact --undo")
    assert ran.status == "error"
    assert f"%ctx redact --undo N: which one? Redacted are {name}.1" in ran.error["evalue"]
    assert bench.run(f"%ctx redact --undo {name}").status == "ok"


def test_a_call_in_the_script_dialect_is_told_with_the_next_step(bench: Bench):
    bench.run("%ctx config dialect script")
    try:
        bench.answers([cell("x = 1")])
        ran = bench.ask("do it")
        assert "called run_cell as a tool, and was given none, so nothing was run" in shown(ran)
        assert "%ctx config dialect tools" in shown(ran)
        assert "the model said nothing" not in shown(ran)
        bench.answers([say("I call."), cell("x = 1")])
        assert "called run_cell as a tool" in shown(bench.ask("do it again"))
        bench.answers(say("fine"))
        assert bench.ask("and now?").status == "ok"
        bench.sound()
    finally:
        bench.run("%ctx config dialect --reset")


def test_a_budget_without_room_for_the_instructions_sends_nothing_and_says_so(bench: Bench):
    told = plain_text(bench.run("%ctx config projection_tokens 3000"))
    try:
        assert "has no room for the instructions and tools of a model" in told
        assert "nothing is sent" in told
        assert "not sent: projection_tokens is 3,000" in plain_text(bench.kernel.run("%ctx projection"))
        bench.answers(say("never"))
        ran = bench.ask("anybody?")
        assert ran.status == "error"
        assert "an ask needs at least" in ran.error["evalue"]
        assert bench.server.requests == []
    finally:
        bench.run("%ctx config projection_tokens --reset")
    least = int(told.partition("at least ")[2].partition(";")[0].replace(",", ""))
    bench.run(f"%ctx config projection_tokens {least}")
    try:
        bench.answers(say("yes"))
        assert bench.ask("anybody?").status == "ok"
        assert bench.server.requests[0].body["tools"]
        bench.sound()
    finally:
        bench.run("%ctx config projection_tokens --reset")


def test_a_budget_that_became_too_small_while_a_cell_waited_sends_nothing(bench: Bench):
    bench.answers([cell("1")], say("never"))
    bench.ask("wait", "--mode ask")
    bench.run("%ctx config projection_tokens 3000")
    try:
        ran = bench.kernel.run("%ctx approve")
        assert "nothing was sent (projection_tokens is 3,000" in shown(ran)
        assert len(bench.server.requests) == 1
    finally:
        bench.run("%ctx config projection_tokens --reset")
    bench.answers(say("fine"))
    assert bench.ask("and now?").status == "ok"
    bench.sound()


def test_why_explains_a_statement_and_why_not_does_not_contradict_itself(bench: Bench):
    bench.run("%ctx goto 0", "answer = 42\nprint(answer)")
    name = bench.statements[-1]["statement_id"]
    told = plain_text(bench.run(f"%ctx why {name}"))
    assert f"{name}.1: in, ~" in told
    assert "a cell on the way to HEAD, shown while the history has room" in told
    assert f"statement {name}" not in told
    assert plain_text(bench.run(f"%ctx why not {name}")).startswith(
        f"{name} is in: {name}.1 (a cell on the way to HEAD"
    )

    bench.run("h = view('.')")
    bench.run("h")
    for dialect in ("script", "tools"):
        bench.run(f"%ctx config dialect {dialect}", "1")
        for told in (plain_text(bench.run("%ctx why not h")), plain_text(bench.run("%ctx why h"))):
            assert told
            assert not ("left out view:h" in told and "view:h is in" in told)
            assert not ("view:h: left out" in told and "view:h: in" in told)
    bench.run("%ctx config dialect --reset")
