"""The books: what a model has cost, by the events of its responses, and how the rows of asks tell it."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernels import once
from test_kernel_asking import Bench, bench_in, cell, interrupted, plain_text, shown

from ctxkernel.agent.asks import AskState, Spent
from ctxkernel.agent.meter import Meter
from ctxkernel.agent.streaming import CallDelta, Retrying, TextDelta, UsageReport
from ctxkernel.cli import main
from ctxkernel.testing import Cut, Garbage, Stall, StreamError, answer, error, say, think

USAGE: dict[str, Any] = {
    "input_tokens": 1000,
    "cache_read_input_tokens": 3000,
    "cache_creation": {},
    "output_tokens": 50,
}
USAGE["cache_creation_input_tokens"] = 0
MODEL = "claude-sonnet-5-5"
LONG = "one word after another, " * 200


def usd(output: int) -> float:
    return (1000 * 2 + 3000 * 2 * 0.05 + output * 10) / 1e6


@pytest.fixture(scope="module")
def shared(module_folder: Path) -> Iterator[Bench]:
    with bench_in(module_folder) as bench:
        bench.consent()
        yield bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path) as made:
        made.consent()
        yield made


@pytest.fixture(scope="module", autouse=True)
def wide_terminal() -> Iterator[None]:
    """Tables are fitted to the terminal; here nothing is truncated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "300")
        yield


def costs(bench: Bench) -> list[list[str]]:
    """Return the rows of `%ctx cost`, in cells."""
    return [re.split(r"  +", line.strip()) for line in plain_text(bench.kernel.run("%ctx cost")).splitlines()]


def newest(bench: Bench) -> list[str]:
    """Return the row of the newest ask."""
    return [row for row in costs(bench) if re.fullmatch(r"s\d+", row[0])][-1]


# -- the meter ---------------------------------------------------------------------------------------


def test_a_stopped_response_costs_its_input_and_an_estimate_of_its_output():
    meter = Meter(MODEL, "the request")
    meter.take(UsageReport({}))
    meter.take(UsageReport({**USAGE, "output_tokens": 1}))
    meter.take(TextDelta("some words that came " * 40))
    spent = meter.spent()

    assert (spent.tokens_in, spent.cached) == (4000, 3000)
    assert 120 < spent.tokens_out < 300
    assert spent.guessed == {"tokens_out"}
    assert spent.usd == pytest.approx(usd(spent.tokens_out))
    assert re.search(r"1 request, 4,000 tokens in, 75 % cached, ~\d+ out, ~\$0.00", spent.text())


def test_the_output_of_a_response_that_is_stopped_before_its_first_word_is_an_estimate():
    """The count of `message_start` is preliminary: the server may have written more."""
    meter = Meter(MODEL, "the request")
    meter.take(UsageReport({**USAGE, "output_tokens": 1}))
    spent = meter.spent()

    assert (spent.tokens_in, spent.tokens_out) == (4000, 1)
    assert spent.guessed == {"tokens_out"}


def test_the_pieces_of_a_response_do_not_change_its_estimate_much():
    def output(chunk: int) -> int:
        meter = Meter(MODEL, "")
        meter.take(UsageReport(USAGE))
        for start in range(0, len(LONG), chunk):
            meter.take(CallDelta("run_cell", LONG[start : start + chunk]))
        return meter.spent().tokens_out

    assert output(1) == pytest.approx(output(len(LONG)), rel=0.02)


def test_each_attempt_that_had_counts_is_booked_and_one_without_is_not():
    meter = Meter(MODEL, "the request")
    for event in (UsageReport({}), Retrying(1, "cut", 1), UsageReport({}), UsageReport(USAGE), TextDelta("so")):
        meter.take(event)
    meter.take(Retrying(2, "cut", 1))
    meter.take(UsageReport({}))
    assert meter.spent(at_work=False).tokens_in == 4000
    meter.take(UsageReport(USAGE, final=True))

    assert meter.spent() == Spent(1, 8000, 6000, 100, pytest.approx(2 * usd(50)), guessed=frozenset({"tokens_out"}))


def test_what_a_server_does_not_count_is_estimated():
    meter = Meter(MODEL, "a request of some words")
    meter.take(TextDelta("an answer"))
    meter.take(UsageReport({"input_tokens": 0}, final=True))
    spent = meter.spent()

    assert 3 < spent.tokens_in < 12
    assert spent.tokens_out > 0
    assert spent.guessed == {"tokens_in", "tokens_out"}


# -- in a kernel -------------------------------------------------------------------------------------


def test_an_ask_that_is_stopped_in_mid_stream_is_booked(shared: Bench):
    shared.answers(answer(say(LONG), usage=USAGE, delay=0.02))
    interrupted(shared, "talk", lambda: bool(shared.server.requests and len(shared.server.requests[0].sent) > 12))
    row = newest(shared)

    assert row[1:6] == ["talk", MODEL, "1", "4,000", "75 %"]
    assert re.fullmatch(r"~\d+", row[6])
    assert 0 < int(row[6][1:]) < 1000
    assert float(row[7].removeprefix("~$")) == pytest.approx(usd(int(row[6][1:])), abs=1e-4)


FAULTS: list[tuple[Any, bool]] = [
    (Cut("block"), True),
    (Cut("stop"), True),
    (Cut("between"), True),
    (StreamError("block"), True),
    (Garbage("block"), True),
    (Garbage("block", "[1]"), True),
    (StreamError("start"), False),
]


@pytest.mark.parametrize(("fault", "booked"), FAULTS, ids=[f"{one[0]}" for one in FAULTS])
def test_a_request_that_fails_costs_what_the_server_had_counted(shared: Bench, fault: Any, booked: bool):
    again = [answer(say(LONG), usage=USAGE, fault=fault) for _ in range(3)]
    shared.answers(*again)
    assert shared.ask(f"fail by {fault}").status == "error"
    row = newest(shared)

    if booked:
        assert row[4:6] == ["4,000", "75 %"]
        assert row[6].startswith("~") == (fault != Cut("stop"))  # then all counts have come
    else:
        assert row[4] == "0"


def test_a_request_that_is_stopped_before_its_response_begins_costs_an_estimate_of_its_input(shared: Bench):
    """The server has read the prompt, or is about to: a stop is most likely while nothing comes."""
    shared.answers(answer(say("late"), fault=Stall("headers", 30)))
    interrupted(shared, "stop while nothing comes", lambda: bool(shared.server.requests))
    row = newest(shared)

    assert row[1] == "stop while nothing comes"
    assert int(row[4].removeprefix("~").replace(",", "")) > 100
    assert row[4].startswith("~")
    assert row[6].startswith("~$")


def test_a_refused_request_costs_nothing(shared: Bench):
    shared.answers(error(400, "no"))
    shared.ask("refuse this")
    assert newest(shared)[3:] == ["1", "0", "0", "$0.0000", newest(shared)[-1]]


def test_a_whole_answer_costs_what_the_server_counted_to_the_token(shared: Bench):
    shared.answers(answer([think("hm"), cell("1")], usage=USAGE), answer(say("so"), usage=USAGE))
    shared.ask("exactly")
    row = newest(shared)
    assert row[3:7] == ["2", "8,000", "75 %", "100"]
    assert row[7] == f"${2 * usd(50):.4f}"


@pytest.mark.parametrize("bound", ["4100", "0.0030", "3k"])
def test_a_bound_ends_a_response_while_it_arrives(shared: Bench, bound: str):
    shared.answers(answer(say(LONG * 5), usage=USAGE, delay=0.005), say("after"))
    started = time.monotonic()
    ran = shared.ask("talk much", f"--mode auto --budget {bound}")

    (request,) = shared.server.requests
    assert time.monotonic() - started < 20
    assert len(request.sent) < 400
    assert "stopped at" in shown(ran)
    assert "the bound is" in shown(ran)
    assert newest(shared)[4] == "4,000"
    assert shared.ask("and now?").status == "ok"
    assert "stopped at" in shared.sent()  # the model is told why its words end there
    shared.sound()


def test_a_bound_that_the_last_counts_reach_keeps_the_whole_answer(shared: Bench):
    shared.answers(answer(say("A short answer."), usage={**USAGE, "output_tokens": 9000}))
    ran = shared.ask("say little", "--mode auto --budget 5k")
    assert "A short answer." in shown(ran)
    assert newest(shared)[6] == "9,000"
    assert shared.statements[-1]["executions"][0]["status"] == "ok"


def test_a_bound_on_seconds_is_seen_between_the_rounds_and_within_a_response(shared: Bench):
    shared.run("%ctx config ask_seconds 1")
    try:
        shared.answers(*[[cell("import time; time.sleep(0.6)")]] * 9)
        assert re.search(r"stopped after \d s", shown(shared.ask("be slow")))
        assert len(shared.server.requests) < 4
        shared.answers(answer(say(LONG), delay=0.05))
        assert re.search(r"stopped after \d s", shown(shared.ask("talk slowly")))
        shared.answers(answer(say("late"), fault=Stall("start", 20)))
        began = time.monotonic()
        assert re.search(r"stopped after 1 s", shown(shared.ask("say nothing")))
        assert time.monotonic() - began < 10
    finally:
        shared.run("%ctx config ask_seconds 0")


def test_the_totals_are_the_sums_of_the_asks(shared: Bench):
    rows = costs(shared)
    asks = [row for row in rows if re.fullmatch(r"s\d+", row[0])]
    (total,) = [row for row in rows if row[1:2] == ["of the session"]]
    assert int(total[2]) == sum(int(row[3]) for row in asks)
    assert int(total[3].strip("~").replace(",", "")) == sum(int(row[4].strip("~").replace(",", "")) for row in asks)


# -- after a restart ---------------------------------------------------------------------------------


def totals(bench: Bench) -> tuple[list[list[str]], list[str]]:
    rows = costs(bench)
    return [row for row in rows if re.fullmatch(r"s\d+", row[0])], next(r for r in rows if r[1:2] == ["of the session"])


def again(bench: Bench) -> None:
    """Start the kernel anew, after it was killed."""
    bench.kernel.client.stop_channels()
    if bench.kernel.manager.has_kernel:
        bench.kernel.manager.shutdown_kernel(now=True)


def test_after_a_restart_the_books_are_those_of_the_log(tmp_path: Path):
    with bench_in(tmp_path) as bench:
        bench.answers(
            say("hello"),
            answer([cell("1")], usage=USAGE),
            answer(say("so"), usage=USAGE),
            answer(say("x " * 99), usage=USAGE, fault=Cut("stop")),
        )
        for question in ("hello?", "two rounds", "be cut"):
            bench.ask(question)
        before = totals(bench)
        again(bench)
        with bench_in(tmp_path) as later:
            assert totals(later) == before
            later.answers(answer(say("more"), usage=USAGE))
            later.ask("one more")
            asks, total = totals(later)
            assert asks[:-1] == before[0]
            assert asks[-1][1:7] == ["one more", MODEL, "1", "4,000", "75 %", "50"]
            assert int(total[2]) == int(before[1][2]) + 1
            later.run("%ctx resume")
            assert totals(later) == (asks, total)


def test_a_kernel_that_is_killed_in_mid_stream_has_booked_the_input(tmp_path: Path):
    with bench_in(tmp_path) as bench:
        bench.answers(say("hello"), answer(say(LONG), usage=USAGE, delay=0.02))
        bench.ask("hello?")
        pid = int(bench.kernel.evaluate("__import__('os').getpid()"))
        once(
            lambda: len(bench.server.requests) > 1 and len(bench.server.requests[1].sent) > 12,
            lambda: os.kill(pid, signal.SIGKILL),
        )
        bench.kernel.client.execute("%%ask --mode auto\ntalk")
        deadline = time.monotonic() + 30
        while bench.kernel.manager.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        again(bench)
        with bench_in(tmp_path) as later:
            row = newest(later)
            assert row[1:6] == ["talk", MODEL, "1", "4,000", "75 %"]
            assert row[6].startswith("~")
            later.run("%ctx resume")
            assert "ended with its kernel" in plain_text(later.kernel.run("%ctx timeline"))


# -- rows of asks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (AskState("answered", 6.21, 3), "ok 6.2 s · 3 rounds"),
        (AskState("answered", 0.5, 1), "ok 500 ms · 1 round"),
        (AskState("stopped", 4.1), "stopped after 4.1 s"),
        (AskState("parked", 2, 1), "waits for approval"),
        (AskState("bound", 2, 1, "at 5 tokens"), "bound reached after 2.0 s"),
        (AskState("failed", 2, 1, "m: the server failed; ask again"), "failed: m: the server failed; ask again"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_state_is_told_in_a_few_words(state: AskState, told: str):
    assert state.told() == told


def row_of(bench: Bench, question: str) -> str:
    found = [one for one in bench.statements if question in one["source"] and one["author"] == "human"][-1]
    name = found["statement_id"]
    lines = plain_text(bench.kernel.run("%ctx timeline 99")).splitlines()
    (line,) = [line for line in lines if re.match(rf"\(?{name}[*)]? ", line)]
    assert found["executions"][0]["ask"]["told"] in line
    return line


def test_the_row_of_an_ask_tells_its_time_and_how_it_ended(shared: Bench):
    shared.answers(answer([cell("1")], delay=0.3), answer(say("done"), delay=0.3))
    shared.ask("take two rounds")
    [told] = re.findall(r"ok ([\d.]+) (m?s) · 2 rounds", row_of(shared, "take two rounds"))
    assert float(told[0]) * (0.001 if told[1] == "ms" else 1) >= 0.6, "both answers were waited for"

    shared.answers(answer(say(LONG), delay=0.05))
    interrupted(
        shared,
        "be stopped",
        lambda: bool(shared.server.requests),
    )
    assert re.search(r"stopped after (\d+ ms|\d\.\d s)", row_of(shared, "be stopped"))

    shared.answers(error(401))
    shared.ask("be refused")
    assert "failed: claude-sonnet-5-5: the server does not accept the key" in row_of(shared, "be refused")

    shared.answers([cell("2")], say("two"))
    shared.ask("wait for me", "--mode ask")
    assert "waits for approval" in row_of(shared, "wait for me")
    shared.run("%ctx approve")
    assert re.search(r"ok \d+ ms · 2 rounds|ok \d\.\d s · 2 rounds", row_of(shared, "wait for me"))

    shared.answers([cell("3")])
    shared.ask("wait in vain", "--mode ask")
    shared.run("%ctx stop")
    assert "stopped after" in row_of(shared, "wait in vain")

    shared.answers(*[[cell("4")]] * 3)
    shared.ask("go on and on", "--mode auto --max-turns 2")
    assert "bound reached after" in row_of(shared, "go on and on")


def test_the_panel_has_the_state_of_each_ask_and_a_session_file_too(shared: Bench, capsys: pytest.CaptureFixture[str]):
    shared.answers(say("yes"))
    shared.ask("for the panel")
    rows = ast.literal_eval(shared.kernel.evaluate("get_ipython().kernel.ctx.panel.snapshot()['statements']"))
    (row,) = [one for one in rows if "for the panel" in one["source"] and one["author"] == "human"]
    assert row["ask"]["result"] == "answered"
    assert row["ask"]["told"].startswith("ok ")
    path = next(shared.folder.rglob("*.sqlite"))
    assert main(["timeline", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["statements"]
    (stored,) = [one for one in found if "for the panel" in one["source"] and one["author"] == "human"]
    assert stored["executions"][0]["ask"] == row["ask"]
    assert main(["timeline", str(path)]) == 0
    assert row["ask"]["told"] in capsys.readouterr().out
    assert main(["verify", str(path)]) == 0


# -- a cell that ran when the kernel died ------------------------------------------------------------


@pytest.mark.parametrize("way", ["auto", "approve", "edit"])
def test_a_cell_that_ran_when_the_kernel_died_is_told_as_the_timeline_tells_it(tmp_path: Path, way: str):
    code = "open('began', 'w').close()\nimport time; time.sleep(60)"
    with bench_in(tmp_path) as bench:
        bench.answers(say("hello"), [cell(code), cell("later = 1")])
        bench.ask("hello?")
        pid = int(bench.kernel.evaluate("__import__('os').getpid()"))
        once((tmp_path / "began").exists, lambda: os.kill(pid, signal.SIGKILL))
        if way == "auto":
            bench.kernel.client.execute("%%ask --mode auto\nwork")
        else:
            bench.ask("work", "--mode ask")
            bench.kernel.run("1")  # after it, the kernel aborts no request any more
            bench.kernel.client.execute("%ctx approve" if way == "approve" else f"%%ctx edit\n{code}\n")
        deadline = time.monotonic() + 30
        while bench.kernel.manager.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        again(bench)
        with bench_in(tmp_path) as later:
            told = later.kernel.run("%ctx resume").stdout
            (killed,) = [one for one in later.statements if "began" in one["source"] and one["author"] == "model"]
            name = killed["statement_id"]
            assert killed["executions"][0]["status"] == "cancelled"
            assert f"{name}, a cell of the model, ran until the kernel died (cancelled)" in told
            waited = told.partition("nothing of it was run:")[2]
            assert "later = 1" in waited
            assert "began" not in waited


def test_an_ask_that_waits_is_ended_by_another_question_wherever_that_is_asked(tmp_path: Path):
    """The first question waits to be sent, the second proposes a cell, and the third is on another branch."""
    with bench_in(tmp_path) as bench:
        bench.answers([say("I look."), cell("a = 1")], say("ok"))
        bench.run("start = 1")
        bench.ask("first", "--mode ask")
        bench.ask("second", "--mode ask")
        assert "stopped" in row_of(bench, "first")
        bench.kernel.run("%ctx approve")
        assert "waits for approval" in row_of(bench, "second")

        bench.run("%ctx goto s1")
        refused = shown(bench.kernel.run("%ctx approve"))
        back = re.search(r"%ctx goto (s\d+) returns there", refused)
        assert back, refused
        bench.ask("third", "--mode ask")
        bench.run(f"%ctx goto {back[1]}")
        assert "stopped" in row_of(bench, "second")
