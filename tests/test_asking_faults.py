"""Whatever ends a request, the next ask works: each error and each cut, the stop button and the death of the kernel.

The answers hold thinking, prose and two calls, so that a cut can leave half of any pair.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from kernels import once, starter
from scale import share
from test_kernel_asking import KEY, Bench, bench_in, cell

from ctxkernel.testing import OVERFLOW, Cut, End, Garbage, MessagesServer, Stall, StreamError, answer, error, say, think
from ctxkernel.testing.answers import CutPlace

PLACES: tuple[CutPlace, ...] = get_args(CutPlace)
AT_ONCE = {"retry-after-ms": "1"}
SPOKEN = [think("first this"), say("I begin."), cell("a = 1"), say("and then"), cell("b = a + 1")]
ERRORS: dict[str, list[Any]] = {
    "429, then an answer": [error(429, headers=AT_ONCE), SPOKEN, say("done")],
    "429 again and again": [error(429, headers=AT_ONCE)] * 3,
    "500 again and again": [error(500, headers=AT_ONCE)] * 3,
    "529 again and again": [error(529, headers=AT_ONCE)] * 3,
    "400, context overflow": [error(400, OVERFLOW)],
    "401": [error(401)],
    "404": [error(404)],
    "413": [error(413)],
    **{f"error event, {place}": [answer(SPOKEN, fault=StreamError(place))] for place in PLACES if place != "headers"},
    **{f"cut, {place}": [answer(SPOKEN, fault=Cut(place))] * 3 for place in PLACES},
    **{f"ended, {place}": [answer(SPOKEN, fault=End(place))] * 3 for place in PLACES if place != "headers"},
    **{f"no JSON, {place}": [answer(SPOKEN, fault=Garbage(place))] for place in PLACES if place != "headers"},
    **{
        f"stopped for {reason}": [answer(SPOKEN, stop_reason=reason), say("done")]
        for reason in ("max_tokens", "refusal", "pause_turn", "model_context_window_exceeded")
    },
}


def goes_on(bench: Bench) -> str:
    """Return what is wrong with the next ask, which calls a cell: empty where nothing is."""
    bench.answers([think("again"), cell("c = 3")], say("three"))
    try:
        ran = bench.ask("go on")
        bench.sound()
    except AssertionError as fault:
        return str(fault)[:200]
    if ran.status != "ok" or len(bench.server.requests) != 2:
        return f"{ran.reply.get('evalue')}, after {len(bench.server.requests)} requests"
    return ""


def table(rows: list[tuple[str, str, str]], told: Callable[[str], None]) -> None:
    told("\n" + "\n".join(f"{name:<42} {came:<28} {wrong or 'the next ask works'}" for name, came, wrong in rows))


@pytest.mark.scaled
def test_after_every_error_and_every_cut_the_next_ask_works(tmp_path: Path, capsys):
    rows: list[tuple[str, str, str]] = []
    with bench_in(tmp_path) as bench:
        bench.consent()
        for name, script in share(ERRORS.items(), 6):
            bench.answers(*script)
            ran = bench.ask(f"now {name}")
            came = ran.reply["ename"] if ran.status == "error" else "answered"
            rows.append((name, came, goes_on(bench)))
    with capsys.disabled():
        table(rows, print)
    assert [row for row in rows if row[2]] == []
    failed = {name for name, came, _ in rows if came == "ModelFailure"}
    assert failed >= {name for name, _, _ in rows if name.startswith(("cut", "error", "ended", "no JSON"))}


def stalled(bench: Bench) -> bool:
    """Return whether the server has said all that it says before it stalls."""
    return bool(bench.server.requests) and bench.server.requests[-1].body is not None


def test_wherever_the_stop_button_is_pressed_the_next_ask_works(tmp_path: Path, capsys):
    rows: list[tuple[str, str, str]] = []
    with bench_in(tmp_path) as bench:
        bench.consent()
        for place in PLACES:
            bench.answers(answer(SPOKEN, fault=Stall(place, 30)))
            presser = once(lambda: stalled(bench), bench.kernel.manager.interrupt_kernel, after=0.2)
            ran = bench.ask(f"now stop at {place}")
            presser.join()
            rows.append((f"stopped, {place}", ran.reply.get("ename", "answered"), goes_on(bench)))
        bench.answers([cell("import time; time.sleep(30)"), cell("never = 1")])
        presser = once(lambda: len(bench.server.requests) == 1, bench.kernel.manager.interrupt_kernel, after=0.2)
        ran = bench.ask("now stop in the cell")
        presser.join()
        rows.append(("stopped, in the model's cell", ran.reply.get("ename", "answered"), goes_on(bench)))
    with capsys.disabled():
        table(rows, print)
    assert [row for row in rows if row[2]] == []
    assert {came for _, came, _ in rows} == {"KeyboardInterrupt"}


def kill(bench: Bench, script: list[Any], mode: str) -> None:
    """Ask, and kill the kernel in the middle of it."""
    bench.answers(*script)
    if mode == "ask":
        assert bench.ask("die", "--mode ask --again").reply["ename"] == "Waiting"
        assert bench.kernel.run("%ctx approve").reply["ename"] == "Waiting"
    else:
        bench.kernel.client.execute("%%ask --mode auto --again\ndie")
        once(lambda: stalled(bench), lambda: None, after=0.2).join()
    bench.kernel.manager.shutdown_kernel(now=True)


@pytest.mark.scaled
def test_wherever_the_kernel_dies_the_next_one_goes_on_and_its_ask_works(tmp_path: Path, capsys):
    """One session is killed again and again: each kernel resumes what the one before left, asks, and dies elsewhere."""
    rows: list[tuple[str, str, str]] = []
    cases: dict[str, tuple[list[Any], str]] = {
        **{f"killed, {place}": ([answer(SPOKEN, fault=Stall(place, 30))], "auto") for place in PLACES},
        "killed, in the model's cell": ([[cell("import time; time.sleep(30)"), cell("n = 1")]], "auto"),
        "killed, a proposal waits": ([SPOKEN], "ask"),
    }
    with MessagesServer() as server, contextlib.contextmanager(starter)(tmp_path) as start:
        env = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY, "CTXKERNEL_MODE": "auto"}
        bench = Bench(start(env=env), server, tmp_path)
        bench.run("kept = 7")
        for name, (script, mode) in share(cases.items(), 3):
            kill(bench, script, mode)
            bench = Bench(start(env={**env, "CTXKERNEL_RESUME": "1"}), server, tmp_path)
            kept = bench.run("kept").data[-1]["text/plain"]
            rows.append((name, f"resumed, kept = {kept}", goes_on(bench)))
    with capsys.disabled():
        table(rows, print)
    assert [row for row in rows if row[2] or not row[1].endswith("7")] == []


def test_a_request_that_could_not_be_recorded_is_told_and_its_answer_is_shown(tmp_path: Path):
    with bench_in(tmp_path) as bench:
        bench.consent()
        bench.kernel.run(
            "store, real = get_ipython().kernel.ctx.store, None\n"
            "def _find(execution_id):\n    del store._find\n    raise KeyError(execution_id)\n"
            "store._find = _find"
        )
        bench.answers(say("four"))

        ran = bench.ask("two and two?")

        assert ran.status == "ok"
        assert "Not all of a request to the model was stored" in ran.stderr
        assert goes_on(bench) == ""
