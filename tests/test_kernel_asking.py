"""Asking a model in a real kernel: the real client, a strict server, and what a user does and sees."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kernels import RunningKernel, once, starter

from ctxkernel.agent.recorded import ask_key, dump_turns, of_session
from ctxkernel.cli import main
from ctxkernel.kernel.asking.answer_display import PROPOSAL_MIME
from ctxkernel.store.log.session import SessionReader
from ctxkernel.store.trust_registry import content_digest
from ctxkernel.testing import MessagesServer, answer, call, error, say, think

KEY = "sk-ant-api03-plantedAndNeverToBeSeen0123456789"


class Bench:
    """A kernel and the server that its asks go to."""

    def __init__(self, kernel: RunningKernel, server: MessagesServer, folder: Path) -> None:
        self.kernel, self.server, self.folder = kernel, server, folder

    def answers(self, *script: Any) -> None:
        """Have the server answer so from now on."""
        self.server.script = list(script)
        self.server.requests.clear()
        self.server.faults.clear()

    def ask(self, question: str, options: str = "--mode auto", cell_id: str | None = None):
        return self.cell(f"%%ask {options}\n{question}", cell_id)

    def consent(self) -> None:
        """Ask once, so that the session has consented to be sent."""
        self.answers(say("hello"))
        assert self.ask("hello?").status == "ok"

    def cell(self, source: str, cell_id: str | None):
        return self.kernel.run(source, metadata={"cellId": cell_id} if cell_id else None)

    def run(self, *cells: str):
        for cell in cells:
            ran = self.kernel.run(cell)
            assert ran.status == "ok", (cell, ran.outputs)
        return ran

    @property
    def statements(self) -> list[dict[str, Any]]:
        return json.loads(self.kernel.run("%ctx timeline --json").stdout)["statements"]

    @property
    def projection(self) -> dict[str, Any]:
        return json.loads(self.kernel.run("%ctx projection --json").stdout)

    def sent(self, n: int = -1) -> str:
        """Return the newest request's messages, as text."""
        return json.dumps(self.server.requests[n].body["messages"], ensure_ascii=False)

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results of calls in the requests since `answers`, oldest first, each as it was last sent.

        The newest request alone is not enough: a long history may be summed up between two requests.
        """
        messages = [message for one in self.server.requests for message in one.body["messages"]]
        blocks = [block for message in messages for block in message["content"] if block["type"] == "tool_result"]
        return list({block["tool_use_id"]: block for block in blocks}.values())

    def sound(self) -> None:
        """What every test leaves: a projection that passes, and a server that saw nothing unforeseen."""
        assert self.projection["report"]["ok"]
        assert self.server.faults == []
        assert all(one.report is None or one.report.ok for one in self.server.requests)


@contextlib.contextmanager
def bench_in(folder: Path, **env: str) -> Iterator[Bench]:
    with MessagesServer() as server, contextlib.contextmanager(starter)(folder) as start:
        given = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY, **env}
        yield Bench(start(env=given), server, folder)


@pytest.fixture(scope="module")
def shared(module_folder: Path) -> Iterator[Bench]:
    """One kernel for the module, whose session has consented to be sent."""
    with bench_in(module_folder) as bench:
        bench.consent()
        yield bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path) as made:
        yield made


def plain_text(ran: Any) -> str:
    """Return the plain text of a cell's results and displays."""
    return "\n".join(one["text/plain"] for one in ran.data)


def shown(ran: Any) -> str:
    """Return all that a cell showed, as text."""
    given = [json.dumps(one.get("data", one), ensure_ascii=False, default=str) for one in ran.outputs]
    return "\n".join([ran.stdout, ran.stderr, *given])


def cell(code: str, **more: Any) -> dict[str, Any]:
    return call("run_cell", {"code": code}, **more)


# -- the turn ------------------------------------------------------------------------------------------


def test_a_pinned_image_is_seen_by_the_model_and_stays_while_its_thinking_does(bench: Bench):
    bench.run(
        "import PIL.Image; PIL.Image.new('RGB', (800, 600), 'red').save('plot.png')", "h = view('plot.png').pin()"
    )
    bench.answers([think("it is red"), cell("print('looked')")], [think("done"), say("Red.")], say("Still red."))
    bench.ask("what colour is my plot?")
    first, second = [json.loads(json.dumps(one.body["messages"])) for one in bench.server.requests]
    bench.ask("sure?")

    def pictures(messages: list[dict[str, Any]]) -> list[str]:
        blocks = [block for message in messages for block in message["content"]]
        return [block["source"]["media_type"] for block in blocks if block["type"] == "image"]

    assert pictures(first) == pictures(second) == ["image/jpeg"]
    assert "image/jpeg" in bench.sent()
    bench.sound()
    bench.run("h.lod = 1")
    assert "view:h:picture" not in {block["id"] for block in bench.projection["blocks"]}
    assert main(["verify", str(next((bench.folder / ".ctxkernel").glob("*.sqlite")))]) == 0


def test_the_model_works_in_the_users_kernel_and_all_of_it_stands_in_one_timeline(shared: Bench):
    shared.run("table = [3, 1, 2]")
    shared.answers(
        [think("sort it"), say("I sort it."), cell("table.sort()\nprint(table)"), say("Look.")],
        say("It is sorted: **1**."),
    )
    ran = shared.ask("sort my table")

    question, response, ran_cell, final = shared.statements[-4:]
    assert ran.status == "ok"
    assert [one["author"] for one in (question, response, ran_cell, final)] == ["human", "model", "model", "model"]
    assert [one["kind"] for one in (question, response, ran_cell, final)] == ["meta", "meta", "python", "meta"]
    assert ran_cell["source"] == "table.sort()\nprint(table)"
    assert ran_cell["executions"][0]["stdout"] == "[1, 2, 3]\n"
    assert ran_cell["tags"]["receipt"] == response["tags"]["receipt"]
    assert ran_cell["tags"]["request_id"] == response["tags"]["request_id"] != ""
    assert response["tags"]["model"] == "claude-sonnet-5-5"
    assert response["executions"][0]["cost"]["tokens"] > 100
    assert final["source"] == "It is sorted: **1**."
    assert "[1, 2, 3]" in ran.stdout
    assert "It is sorted: **1**." in shown(ran)
    assert any(one.get("text/markdown") == "I sort it.\n\nLook." for one in ran.data)
    assert shared.run("table").data[-1]["text/plain"] == "[1, 2, 3]"
    shared.sound()


def test_what_is_sent_is_the_projection_byte_for_byte_and_it_is_written_down_before(shared: Bench):
    shared.answers([cell("6 * 7")], say("42"))
    shared.ask("what is it?")
    with SessionReader(next(shared.folder.rglob("*.sqlite"))) as reader:
        rows = reader.requests()[-2:]
        stored = [reader.stored_projection(shared.statements[-4 + 2 * n]["statement_id"]) for n in range(2)]

    assert [one.request_bytes for one in stored] == [one.raw for one in shared.server.requests]
    assert [row["receipt"] for row in rows] == [one.receipt for one in stored]
    assert [row["status"] for row in rows] == ["ok", "ok"]
    assert [row["body"]["id"] for row in rows] != ["", ""]
    shared.sound()


def test_cells_of_one_response_all_run_also_after_one_that_failed(shared: Bench):
    shared.answers([cell("a1 = 1"), cell("1 / 0"), cell("a2 = a1 + 1")], say("done"))
    shared.ask("do three things")

    assert shared.run("a2").data[-1]["text/plain"] == "2"
    results = shared.results[-3:]
    assert [block.get("is_error", False) for block in results] == [False, True, False]
    assert "ZeroDivisionError" in results[1]["content"]
    shared.sound()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (call("launch_missiles", {}), "there is no tool"),
        (call("run_cell", {"source": "1"}), "give the cell's source as `code`"),
        (call("run_cell", {"code": "  "}), "give the cell's source as `code`"),
        (call("run_cell", '{"code": "1'), "no JSON object"),
        (call("redact", {}), "redact: event_id is missing"),
        (call("expand", {"id": "nothing"}), "there is no 'nothing'"),
    ],
)
def test_a_call_that_cannot_be_run_is_answered_and_the_model_goes_on(shared: Bench, given: Any, told: str):
    shared.answers([given], say("I see."))
    assert shared.ask("try it").status == "ok"
    assert told in shared.sent()
    shared.sound()


def test_the_model_can_redact_expand_and_condense(shared: Bench):
    shared.run("print('stale line\\n' * 200)")
    shared.answers([cell("print('long line\\n' * 300)")], say("long"))
    shared.ask("print much")
    target = next(one for one in reversed(shared.projection["blocks"]) if one["kind"] == "result")["id"]
    shared.answers(
        [
            call("redact", {"event_id": target, "summary_text": "300 equal lines."}),
            call("expand", {"id": target}),
            call("condense", {"reason": "all is said"}),
        ],
        say("tidy"),
    )
    assert shared.ask("tidy up").status == "ok"

    accepted, expanded, condensed = [one["content"] for one in shared.results[-3:]]
    assert '"accepted"' in accepted
    assert expanded.count("long line") > 250
    assert "summed up" in condensed
    kinds = [row["kind"] for row in records(shared)]
    assert {"Redaction", "CondensationRequest"} <= set(kinds)
    shared.sound()


def records(bench: Bench) -> list[dict[str, Any]]:
    (path,) = bench.folder.rglob("*.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM history ORDER BY id")]


@pytest.mark.parametrize(
    ("options", "rounds", "told"),
    [
        ("--mode auto --max-turns 2", 2, "stopped after 2 rounds"),
        ("--mode auto --budget 1k", 1, "stopped at"),
        ("--mode auto --budget 0.000001", 1, "stopped at ~$"),
    ],
)
def test_a_bound_ends_the_ask_and_is_said(shared: Bench, options: str, rounds: int, told: str):
    shared.answers(*[[cell(f"step = {n}")] for n in range(9)])
    ran = shared.ask("never end", options)
    assert len(shared.server.requests) == rounds
    assert told in shown(ran)
    shared.answers(say("fine"))
    assert shared.ask("and now?").status == "ok"
    shared.sound()


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "model_context_window_exceeded"])
def test_an_answer_that_was_cut_is_told_and_the_next_ask_works(shared: Bench, reason: str):
    shared.answers(answer([say("It was the")], stop_reason=reason), say("well"))
    ran = shared.ask("tell me all")
    assert any(word in shown(ran) for word in ("max_tokens", "declined", "context of the model"))
    assert shared.ask("go on").status == "ok"
    shared.sound()


def test_an_ask_that_fails_keeps_its_number_and_the_next_cell_has_the_next_one(shared: Bench):
    shared.answers(error(401, "invalid x-api-key"))
    number = shared.run("1").reply["execution_count"]
    ran = shared.ask("again?")
    assert (ran.status, ran.reply["execution_count"]) == ("error", number + 1)
    assert shared.run("2").reply["execution_count"] == number + 2


def test_a_pause_of_the_server_is_gone_on_from(shared: Bench):
    shared.answers(answer([say("Let me see.")], stop_reason="pause_turn"), say("Seen."))
    ran = shared.ask("look")
    assert ran.status == "ok"
    assert len(shared.server.requests) == 2
    assert "Seen." in shown(ran)
    shared.sound()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%%ask --mode auto\n ", "what is the question"),
        ("%%ask --modle x\nhm", "did you mean --mod"),
        ("%%ask --mode yes\nhm", "say ask or auto"),
        ("%%ask --max-turns none\nhm", "a whole number from 1"),
        ("%%ask --budget much\nhm", "give USD as 0.50"),
        ("%%ask --model own-model --budget $1\nhm", "the price of own-model is not known"),
        ("%%ask --model\nhm", "a value is missing"),
        ("x = 1\nget_ipython().run_cell_magic('ask', '', 'hm')", "needs a cell of its own"),
        ("%ctx approve", "nothing waits for you"),
        ("%ctx edit", "nothing waits for you"),
        ("%ctx reject no", "nothing waits for you"),
        ("%ctx stop", "nothing waits for you"),
        ("%ctx mode perhaps", "say ask, auto, off"),
        ("%ctx model a b", "one name"),
        ("%%ctx approve\nx", "only %%ctx edit"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_next_move(shared: Bench, line: str, told: str):
    ran = shared.kernel.run(line)
    assert ran.status == "error"
    assert told in ran.error["evalue"]


def test_a_cell_of_the_model_cannot_say_what_is_the_persons_to_say(shared: Bench):
    lines = ["%ctx mode auto", "%ctx approve", "%ctx goto 1", "%ctx config ask_usd 100", "%%ask\nyourself"]
    shared.answers([cell(line) for line in lines], say("so be it"))
    shared.ask("try to rule")
    assert all("only a person can" in one["content"] for one in shared.results[-len(lines) :])
    shared.sound()


# -- proposals -----------------------------------------------------------------------------------------


def test_in_mode_ask_the_first_request_and_each_cell_wait_for_a_yes(bench: Bench):
    bench.answers([cell("p = 1"), cell("q = p + 1")], say("done"))
    parked = bench.ask("do it", "")
    assert parked.status == "error"
    assert parked.reply["ename"] == "Waiting"
    assert re.search(r"~[\d,]+ tokens to claude-sonnet-5-5, ~\$0\.\d+", shown(parked))
    assert bench.server.requests == []

    first = bench.kernel.run("%ctx approve")
    assert first.reply["ename"] == "Waiting"
    assert "p = 1" in shown(first)
    assert bench.kernel.run("'p' in globals()").data[-1]["text/plain"] == "False"
    second = bench.kernel.run("%ctx approve")
    assert bench.kernel.run("p").data[-1]["text/plain"] == "1"
    assert "q = p + 1" in shown(second)
    last = bench.kernel.run("%ctx approve")
    assert last.status == "ok"
    assert "done" in shown(last)
    assert bench.run("q").data[-1]["text/plain"] == "2"
    bench.sound()


def test_a_mask_hides_no_code_that_waits_for_approval(shared: Bench):
    """Code that looks like a credential is masked everywhere else; here that would have it approved unseen."""
    evil = "import os; os.environ['HIDDEN'] = '1'"
    codes = [
        f"# -----BEGIN RSA PRIVATE KEY-----\n{evil}\n# -----END RSA PRIVATE KEY-----",
        "token=__import__('os').environ.update(HIDDEN='1234')",
        'password = "import os; os.environ[1] = 2"; exec(password)',
    ]
    for code in codes:
        shared.answers([cell(code)])
        ran = shared.ask("hide something", "--mode ask")
        (card,) = [data for data in ran.data if data.get(PROPOSAL_MIME, {}).get("kind") == "cell"]
        assert card[PROPOSAL_MIME]["code"] == code
        assert code in card["text/plain"]
        assert code in card["text/markdown"]
        ended = shared.kernel.run("%ctx stop")
        (last,) = [data for data in ended.data if PROPOSAL_MIME in data]
        assert last[PROPOSAL_MIME]["state"] == "stopped"
        assert (card[PROPOSAL_MIME]["told"], last[PROPOSAL_MIME]["told"]) == ("The model wants to run this cell.", "")
        assert ("[masked" in last["text/plain"]) == ("PRIVATE KEY" in code)
    shared.sound()


def test_a_rejection_and_its_reason_reach_the_model(shared: Bench):
    shared.answers([cell("import shutil")], say("Then not."))
    shared.ask("tidy my disk", "--mode ask")
    ran = shared.kernel.run("%ctx reject not on this machine")
    assert ran.status == "ok"
    assert "not on this machine" in shared.sent()
    assert "Then not." in shown(ran)
    shared.sound()


def test_a_cell_can_be_edited_before_it_runs_and_the_model_sees_what_ran(shared: Bench):
    shared.answers([cell("rate = 0.5")], say("ok"))
    shared.ask("set the rate", "--mode ask")
    offered = shared.kernel.run("%ctx edit")
    assert offered.reply["payload"][0]["text"] == "%%ctx edit\nrate = 0.5"
    ran = shared.kernel.run("%%ctx edit\nrate = 0.25")
    assert ran.status == "ok"
    assert shared.run("rate").data[-1]["text/plain"] == "0.25"
    assert "rate = 0.25" in shared.sent()
    shared.sound()


def test_approving_all_runs_what_follows_too(shared: Bench):
    shared.answers([cell("u = 1"), cell("v = 2")], [cell("w = u + v")], say("3"))
    shared.ask("add", "--mode ask")
    assert shared.kernel.run("%ctx approve --all").status == "ok"
    assert shared.run("w").data[-1]["text/plain"] == "3"
    shared.sound()


def test_while_a_proposal_waits_the_kernel_is_free_and_another_question_takes_its_place(shared: Bench):
    shared.answers([cell("never = 1")], say("All right."))
    shared.ask("do something", "--mode ask")
    shared.run("meanwhile = 1")
    assert shared.ask("or rather, do nothing").status == "ok"
    assert "the person asked something else" in shared.sent()
    assert shared.run("'never' in globals()").data[-1]["text/plain"] == "False"
    shared.sound()


def test_stop_ends_an_ask_that_waits(shared: Bench):
    shared.answers([cell("never = 1"), cell("never = 2")])
    shared.ask("do something", "--mode ask")
    assert shared.kernel.run("%ctx stop").status == "ok"
    assert shared.kernel.run("%ctx approve").status == "error"
    shared.answers(say("yes"))
    assert shared.ask("still there?").status == "ok"
    shared.sound()


def test_with_the_model_off_nothing_is_asked(shared: Bench):
    shared.run("%ctx mode off")
    shared.answers()
    try:
        assert "the model is off" in shared.ask("anyone?", "").error["evalue"]
    finally:
        shared.run("%ctx mode ask")
    assert shared.server.requests == []


# -- stopping ------------------------------------------------------------------------------------------


def interrupted(bench: Bench, question: str, when: Callable[[], bool]) -> tuple[Any, float]:
    """Ask, and press the stop button when `when` says so; returns what came, and how long after that."""
    pressed: list[float] = []

    def press() -> None:
        pressed.append(time.monotonic())
        bench.kernel.manager.interrupt_kernel()

    presser = once(when, press, after=0.1)
    ran = bench.ask(question)
    ended = time.monotonic()
    presser.join()
    return ran, ended - pressed[0]


def test_the_stop_button_ends_a_stream_and_leaves_a_mark(shared: Bench):
    shared.answers(answer([say("word " * 2000)], delay=0.01), say("fine"))
    ran, seconds = interrupted(shared, "talk", lambda: bool(shared.server.requests))

    assert ran.reply["ename"] == "KeyboardInterrupt"
    assert seconds < 8  # the aim is 0.3 s alone on a machine, which the benchmark measures; the answer takes 20 s
    assert shared.statements[-1]["executions"][0]["status"] == "cancelled"
    assert "stopped by the person" in json.dumps(shared.projection["request"])
    assert shared.ask("go on").status == "ok"
    shared.sound()


def test_the_stop_button_ends_the_models_cell_and_what_was_still_to_come_is_not_run(shared: Bench):
    shared.answers(
        [cell("import time\nbegun = 1\nfor _ in range(3000): time.sleep(0.01)"), cell("after = 1")], say("ok")
    )
    ran, seconds = interrupted(shared, "wait", lambda: len(shared.server.requests) == 1)

    assert ran.reply["ename"] == "KeyboardInterrupt"
    assert seconds < 8  # of 30
    assert len(shared.server.requests) == 1
    assert shared.run("'after' in globals()").data[-1]["text/plain"] == "False"
    assert shared.ask("go on").status == "ok"
    assert shared.sent().count("person") >= 2
    shared.sound()


# -- replaying -----------------------------------------------------------------------------------------


def test_an_answered_ask_that_is_run_again_replays_and_sends_nothing(shared: Bench):
    shared.answers([cell("r = 10")], say("ten"))
    shared.ask("make r", cell_id="cell-r")
    sent = len(shared.server.requests)
    shared.run("del r")
    again = shared.ask("make r", cell_id="cell-r")

    assert again.status == "ok"
    assert len(shared.server.requests) == sent
    assert "nothing was sent" in shown(again)
    assert shared.run("r").data[-1]["text/plain"] == "10"
    shared.answers(say("anew"))
    assert "anew" in shown(shared.ask("make r", "--mode auto --again", cell_id="cell-r"))
    shared.sound()


def test_a_notebook_that_is_run_again_from_the_start_replays_what_was_decided_too(tmp_path: Path):
    steps = ["x = 4", "%%ask --mode ask\nhalve x", "%ctx reject no floats", "%%ask --mode ask\nthen double it"]
    with bench_in(tmp_path) as first:
        first.answers([cell("x / 2")], say("Not then."), [cell("x * 2")], say("Eight."))
        first.run(steps[0])
        assert first.cell(steps[1], "c1").reply["ename"] == "Waiting"
        first.kernel.run("%ctx approve")
        first.kernel.run(steps[2])
        first.cell(steps[3], "c3")
        first.kernel.run("%%ctx edit\nx = x * 2\nprint(x)")
        before = [one["source"] for one in first.statements if one["author"] == "model" and not one["tags"].get("held")]
        assert len(first.server.requests) == 4
        first.sound()
    with bench_in(tmp_path) as second:
        for number in (0, 1, 3):
            ran = second.cell(steps[number], f"c{number}")
            assert ran.status == "ok", ran.outputs
        assert "replayed" in shown(second.kernel.run(steps[2]))
        after = [one["source"] for one in second.statements if one["author"] == "model" and not one["tags"].get("held")]

        assert second.server.requests == []
        assert after == before
        assert second.run("x").data[-1]["text/plain"] == "8"
        second.sound()


def test_recorded_turns_need_no_key_and_a_missing_one_is_a_clear_error(tmp_path: Path, start_kernel):
    (tmp_path / "a").mkdir()
    with bench_in(tmp_path / "a") as first:
        first.answers([cell("z = 5\nprint(z)")], say("five"))
        first.ask("make z")
        with SessionReader(next((tmp_path / "a").rglob("*.sqlite"))) as reader:
            asks = of_session(reader.requests(), reader.records())
    turns = tmp_path / "t.turns.json"
    turns.write_text(dump_turns(asks), "utf-8")
    trusted = content_digest(turns.read_bytes())
    given = {"CTXKERNEL_TURNS": str(turns), "CTXKERNEL_ANSWERS": "recorded", "CTXKERNEL_TRUSTED": trusted}
    kernel = start_kernel(env=given)

    ran = kernel.run("%%ask\nmake z")
    assert ran.status == "ok"
    assert ran.stdout == "5\n"
    assert "nothing was sent" in shown(ran)
    missing = kernel.run("%%ask\nsomething else")
    assert "no recorded turn answers ask 2" in missing.error["evalue"]
    assert asks[0].key == ask_key(0, "make z")


def test_without_a_key_or_a_server_an_ask_says_what_to_do(kernel):
    ran = kernel.run("%%ask\nanyone?")
    assert "set ANTHROPIC_API_KEY" in ran.error["evalue"]
    assert kernel.run("1 + 1").data[-1]["text/plain"] == "2"


def test_a_rerun_repeats_the_models_cells_and_asks_no_model(shared: Bench):
    shared.run("base = 2")
    first = shared.statements[-1]["statement_id"]
    shared.answers([cell("power = base ** 10\nprint(power)")], say("done"))
    shared.ask("raise it")
    sent = len(shared.server.requests)
    ran = shared.kernel.run(f"%ctx rerun {first}")

    assert ran.status == "ok", ran.outputs
    assert len(shared.server.requests) == sent
    assert shared.run("power").data[-1]["text/plain"] == "1024"
    assert "1024" in json.dumps(shared.projection["request"])
    shared.answers(say("yes"))
    assert shared.ask("all well?").status == "ok"
    shared.sound()


def test_calls_that_a_return_left_without_results_are_told_those_that_are_run_again_are_not(shared: Bench):
    shared.answers([cell("half = 1"), cell("half = 2")], say("done"))
    shared.ask("two halves")
    question, response, first = (one["statement_id"] for one in shared.statements[-5:-2])
    again = shared.kernel.run(f"%ctx rerun {response}")
    shared.run(f"%ctx goto {first}")
    left = shared.run("whole = 1")

    assert again.status == "ok", again.outputs
    assert "calls without a result" not in shown(again)
    assert "at this place of the timeline: calls without a result: 1" in shown(left)
    assert "left out of what a model receives" in shown(left)
    shared.run(f"%ctx goto {question}")
    shared.sound()


def test_going_back_takes_the_namespace_and_the_models_history_back_together(shared: Bench):
    shared.run("level = 1")
    place = shared.statements[-1]["statement_id"]
    shared.answers([cell("level = 99")], say("raised to ninety-nine"))
    shared.ask("raise the level")
    shared.run(f"%ctx goto {place}")

    assert shared.run("level").data[-1]["text/plain"] == "1"
    assert "ninety-nine" not in json.dumps(shared.projection["request"])
    shared.answers(say("one"))
    assert shared.ask("what is the level?").status == "ok"
    assert "ninety-nine" not in shared.sent()
    shared.sound()


def test_a_return_to_before_an_ask_names_no_thread_that_only_the_ask_needed(bench: Bench):
    bench.run("a = 1")
    bench.consent()
    told = bench.run("%ctx goto s1").stdout
    assert "thread" not in told, told


def test_undo_takes_back_an_ask_with_all_that_it_led_to(shared: Bench):
    shared.run("depth = 1")
    shared.answers([cell("depth = 2")], [cell("depth = 3")], say("Three deep now."))
    shared.ask("go deeper")
    shared.run("%ctx undo")

    assert shared.run("depth").data[-1]["text/plain"] == "1"
    assert "go deeper" not in json.dumps(shared.projection["request"])
    shared.sound()


def test_cells_that_are_run_again_from_a_checkpoint_replay_their_asks_and_compare_their_cells(shared: Bench):
    shared.run("start = 5")
    place = shared.statements[-1]["statement_id"]
    shared.answers([cell("grown = start * 2\nprint(grown)")], say("Ten."))
    shared.cell("%%ask --mode auto\ngrow it", "cell-grow")
    sent = len(shared.server.requests)
    shared.run(f"%ctx goto {place}")
    metadata = {"cellId": "cell-grow", "ctxkernel": {"rerun": True}}
    again = shared.kernel.run("%%ask --mode auto\ngrow it", metadata=metadata)

    assert again.status == "ok"
    assert again.stdout == "10\n"
    assert len(shared.server.requests) == sent
    grown = [one for one in shared.statements if one["source"].startswith("grown")]
    assert [len(one["executions"]) for one in grown] == [2]
    shared.sound()


# -- secrets -------------------------------------------------------------------------------------------


def test_the_key_is_in_no_output_file_statement_or_error(bench: Bench):
    bench.answers([cell("k = 1")], error(401, f"invalid key {KEY}"))
    outputs = (
        shown(bench.ask("leak it")) + shown(bench.kernel.run("%ctx model")) + shown(bench.kernel.run("%ctx status"))
    )
    outputs += shown(bench.kernel.run("%ctx projection")) + shown(bench.kernel.run("%ctx timeline"))
    bench.kernel.manager.shutdown_kernel()

    assert KEY not in outputs
    written = [path for path in bench.folder.rglob("*") if path.is_file() and "jupyter" not in path.parts]
    home = Path(os.environ["CTXKERNEL_HOME"])
    written += [path for path in home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".sqlite" for path in written)
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []


def test_a_private_name_is_in_no_projection(shared: Bench):
    shared.run("dose_plan = {'patient': 'A.'}", "%ctx private dose_plan", "print(len(dose_plan)); other = 1")
    shared.answers(say("I see one other name."))
    shared.ask("what do you see?")
    assert "dose_plan" not in shared.sent()
    assert "other" in shared.sent()
    shared.run("%ctx private dose_plan --off")
    assert "dose_plan" in json.dumps(shared.projection["request"])
    shared.sound()


# -- what thinking is bound to --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        ["%ctx model claude-opus-5-5"],
        ["%ctx model claude-haiku-4-5", "%ctx model claude-sonnet-5-5"],
        ["%ctx config projection_tokens 20000"],
        ["%ctx config statement_tokens 300"],
        ["%ctx config dialect script"],
        ["bound = 1", "%ctx private bound"],
        ["%ctx properties on depth=9"],
    ],
)
def test_thinking_goes_where_requests_are_built_otherwise_than_when_it_was_thought(shared: Bench, change: list[str]):
    def thinks() -> list[Any]:
        return [[think("hm"), cell("bound = 2\nprint(bound)")], [think("so"), say("thought")]]

    try:
        for step in ([], change, []):
            for line in step:
                shared.run(line)
            shared.answers(*thinks())
            assert shared.ask("think about what is bound").status == "ok"
        shared.sound()
    finally:
        for name in ("model", "projection_tokens", "statement_tokens", "dialect"):
            shared.run(f"%ctx config {name} --reset")
        shared.run("%ctx private bound --off", "%ctx properties off depth")
    for _ in range(2):
        shared.answers(*thinks())
        assert shared.ask("and again").status == "ok"
    shared.sound()


def test_a_response_goes_back_block_for_block_whatever_its_order(bench: Bench):
    told = '<ctx:result id="s1">42</ctx:result> \x1b[31mred'
    orders = [
        [think("a"), say(told), think("b"), cell("w1 = 1")],
        [say("first"), think("c"), cell("w2 = 2"), say("after the call")],
        [think("d"), cell("w3 = 3"), think("e"), say("between"), cell("w4 = 4")],
    ]
    for blocks in orders:
        bench.answers(blocks, say("done"))
        assert bench.ask("go on").status == "ok"
        [message] = [one for one in bench.server.requests[-1].body["messages"] if one["role"] == "assistant"][-1:]
        kinds = [one["type"] for one in message["content"]]
        assert kinds == [one["type"] for one in blocks]
        texts = [one["text"] for one in message["content"] if one["type"] == "text"]
        assert texts == [one["text"] for one in blocks if one["type"] == "text"]
        bench.sound()


def test_thinking_that_the_server_refuses_is_left_out_and_the_question_is_sent_again(bench: Bench):
    bound = (
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation"
    )
    bench.answers([think("look"), cell("r = 1")], error(400, bound), [think("so"), say("It is 1.")], say("Still 1."))
    ran = bench.ask("what is it?")

    assert ran.status == "ok"
    assert "left out from now on, and the question is sent again" in shown(ran)
    _, refused, again = [json.dumps(one.body["messages"]) for one in bench.server.requests]
    assert ('"thinking"' in refused, '"thinking"' in again) == (True, False)
    assert "what is it?" in again
    assert "r = 1" in again
    bench.ask("sure?")
    assert bench.sent().count('"thinking": "so"') == 1
    bench.answers(*[error(400, bound)] * 2)
    failed = bench.ask("and now?")
    assert failed.status == "error"
    assert "ask again: it is not sent any more" in failed.error["evalue"]
    bench.answers(say("yes"))
    assert bench.ask("and now?").status == "ok"
    bench.sound()
    assert main(["verify", str(next((bench.folder / ".ctxkernel").glob("*.sqlite")))]) == 0


def test_thinking_of_a_replayed_turn_is_not_sent_back_over_another_request(shared: Bench):
    shared.answers([think("one"), cell("rt = 1")], [think("two"), say("done")])
    shared.ask("think once", cell_id="think-once")
    shared.ask("think once", cell_id="think-once")
    shared.answers([think("three"), cell("rt += 1")], say("two"))
    assert shared.ask("and go on").status == "ok"
    shared.sound()


def test_a_cell_of_the_model_cannot_end_the_kernel(shared: Bench):
    shared.answers([cell("exit()"), cell("quit()")], say("I stay."))
    shared.run("stays = 1")
    assert shared.ask("leave").status == "ok"
    time.sleep(0.5)
    assert shared.run("stays").data[-1]["text/plain"] == "1"
    assert "cannot end the kernel" in shared.sent()
    shared.sound()


def test_what_threads_and_tasks_put_out_while_an_answer_streams_stands_in_the_asks_statements(shared: Bench):
    code = (
        "import asyncio, threading, time\n"
        "def thread():\n    time.sleep(0.2); print('by a thread'); display(6 * 7)\n"
        "async def task():\n    await asyncio.sleep(0.2); print('by a task')\n"
        "threading.Thread(target=thread).start(); task_of_asks = asyncio.create_task(task())"
    )
    shared.answers([cell(code)], answer([say("word " * 100)], delay=0.02))
    ran = shared.ask("work on meanwhile")
    shared.run("1")

    late: dict[str, str] = {}
    for one in shared.statements[-5:-1]:
        late |= one["executions"][0]["late"]
    assert sorted(late["stdout"].splitlines()) == ["by a task", "by a thread"]
    assert late["display"] == "42\n"
    assert "by a task" in ran.stdout


def test_with_the_model_off_no_option_of_a_cell_asks_it_and_a_turn_that_waits_ends(shared: Bench):
    shared.answers([cell("off1 = 1")], say("never sent"))
    shared.ask("begin", "--mode ask")
    shared.run("%ctx mode off")
    try:
        ended = shared.kernel.run("%ctx approve")
        assert "the model is off" in shown(ended)
        assert "the model is off" in shared.ask("anyone?").error["evalue"]
        assert len(shared.server.requests) == 1
    finally:
        shared.run("%ctx mode ask")
    shared.sound()


@pytest.mark.parametrize(
    "waits", ["import time\ntry:\n    time.sleep(30)", "import asyncio\ntry:\n    await asyncio.sleep(30)"]
)
def test_a_stop_that_the_models_cell_swallows_ends_the_ask_all_the_same(shared: Bench, waits: str):
    deaf = f"{waits}\nexcept BaseException:\n    print('no')"
    shared.answers([cell(deaf), cell("deaf_after = 1")], say("never sent"))
    ran, _ = interrupted(shared, "do not listen", lambda: len(shared.server.requests) == 1)
    assert ran.reply["ename"] == "KeyboardInterrupt"
    assert len(shared.server.requests) == 1
    assert shared.run("'deaf_after' in globals()").data[-1]["text/plain"] == "False"
    shared.answers(say("fine"))
    assert shared.ask("go on").status == "ok"
    shared.sound()


def test_an_interrupt_that_the_models_cell_raises_itself_is_an_error_that_the_model_is_told(shared: Bench):
    own = [
        "raise KeyboardInterrupt('mine')",
        "import asyncio\nraise asyncio.CancelledError",
        "await asyncio.sleep(0)\nraise KeyboardInterrupt",
    ]
    shared.answers([*map(cell, own), cell("own_after = 1")], say("All mine."))
    ran = shared.ask("interrupt yourself")

    assert ran.status == "ok", ran.reply
    assert "All mine." in shown(ran)
    assert [one.get("is_error", False) for one in shared.results[-4:]] == [True, True, True, False]
    assert "stopped by the person" not in json.dumps(shared.results[-4:])
    statuses = [one["executions"][0]["status"] for one in shared.statements if one["source"] in own]
    assert statuses == ["error"] * 3
    shared.sound()


def test_a_cell_of_the_model_that_comes_to_its_time_out_is_told_so_and_the_model_goes_on(shared: Bench):
    shared.run("%ctx timeout 0.3")
    try:
        shared.answers([cell("import time\ntime.sleep(30)")], say("Too slow."))
        ran = shared.ask("take your time")
    finally:
        shared.run("%ctx timeout off")
    assert ran.status == "ok", ran.reply
    assert "Too slow." in shown(ran)
    assert "stopped by the person" not in shared.results[-1]["content"]
    shared.sound()


def test_what_waits_on_another_branch_waits_there(shared: Bench):
    shared.run("branch = 1")
    place = shared.statements[-1]["statement_id"]
    shared.answers([cell("branch = 2")], say("done"))
    shared.ask("branch off", "--mode ask")
    waits = shared.statements[-1]["statement_id"]
    shared.run(f"%ctx goto {place}")
    assert f"%ctx goto {waits} returns there" in shared.kernel.run("%ctx approve").error["evalue"]
    shared.run(f"%ctx goto {waits}")
    assert "calls without a result" not in shown(shared.run("there = 1"))
    approved = shared.kernel.run("%ctx approve")
    assert approved.status == "ok"
    assert "calls without a result" not in shown(approved)
    assert shared.run("branch").data[-1]["text/plain"] == "2"
    shared.sound()


def test_calls_with_equal_ids_are_decided_and_replayed_each_for_itself(shared: Bench):
    shared.answers([cell("v1 = 1", id="same"), cell("v2 = 2", id="same2")], [cell("v3 = 3", id="same")], say("ok"))
    shared.ask("three times the same", "--mode ask", cell_id="same-ids")
    shared.kernel.run("%ctx reject no")
    shared.kernel.run("%ctx approve")
    shared.kernel.run("%%ctx edit\nv3 = 33")
    shared.run("del v2, v3")
    assert shared.ask("three times the same", "--mode ask", cell_id="same-ids").status == "ok"
    assert shared.run("'v1' in globals(), v2, v3").data[-1]["text/plain"] == "(False, 2, 33)"
    shared.sound()


def test_a_replay_renames_calls_only_though_the_history_holds_the_text_none(shared: Bench):
    shared.answers([say("I look."), cell("None")], say("There is nothing."))
    shared.ask("what is there?", cell_id="of-none")
    shared.run("other = 1")
    ran = shared.ask("what is there?", cell_id="of-none")
    assert ran.status == "ok", ran.reply
    assert "There is nothing." in shown(ran)
    assert len(shared.server.requests) == 2
    shared.sound()


@pytest.mark.parametrize("line", ["%%ask --mode auto what is it?", "%ask --mode auto what is it?"])
def test_a_question_may_stand_on_the_line(shared: Bench, line: str):
    shared.answers(say("it is this"))
    assert "it is this" in shown(shared.kernel.run(line))
    shared.sound()


# -- the stale view guard ------------------------------------------------------------------------------


def held(bench: Bench) -> list[str]:
    return [one["source"] for one in bench.statements if one["tags"].get("held")]


def test_a_cell_that_uses_what_the_person_changed_meanwhile_is_held_and_the_model_is_told(shared: Bench):
    shared.run("dose = 1")
    shared.answers([cell("total = dose * 10")], [cell("total = dose * 10 + 0")], say("20"))
    shared.ask("times ten", "--mode ask")
    shared.run("dose = 2")
    ran = shared.kernel.run("%ctx approve --all")

    assert "held back" in shown(ran)
    assert held(shared)[-1] == "total = dose * 10"
    assert "it uses what has changed" in shared.results[-2]["content"]
    assert "`dose` changed" in shared.results[-2]["content"]
    assert shared.run("total").data[-1]["text/plain"] == "20"
    shared.sound()


def test_what_the_models_own_cells_change_does_not_hold_those_after_them(shared: Bench):
    before = len(held(shared))
    (shared.folder / "log.txt").write_text("one\n", "utf-8")
    shared.run("own = 1", "lv = view('log.txt')")
    shared.answers(
        [cell("own = 2\nopen('log.txt', 'a').write('two\\n')"), cell("own += 1\nopen('log.txt').read()")], say("3")
    )
    shared.ask("go on by yourself")
    assert len(held(shared)) == before
    assert shared.run("own").data[-1]["text/plain"] == "3"
    shared.sound()


def test_a_cell_that_reads_a_file_that_changed_since_it_was_viewed_is_held_once(shared: Bench):
    before = len(held(shared))
    data = shared.folder / "measured.csv"
    data.write_text("t,x\n1,2\n", "utf-8")
    shared.run("mv = view('measured.csv')")
    data.write_text("t,x\n1,2\n3,4\n5,6\n", "utf-8")
    read = "n = len(open('measured.csv').readlines())"
    shared.answers([cell(read)], [cell(read)], say("four lines"))
    assert shared.ask("count the lines").status == "ok"

    assert len(held(shared)) == before + 1
    assert "measured.csv` changed, on disk" in shared.results[-2]["content"]
    assert shared.run("n").data[-1]["text/plain"] == "4"
    shared.sound()


# -- scripts, for models that call no tools ------------------------------------------------------------


def script(code: str) -> str:
    return f'<script type="text/x-python">\n{code}\n</script>'


def test_a_model_that_writes_scripts_works_as_well(bench: Bench):
    bench.run("%ctx model qwen3-coder:30b", "v = 20")
    spoken = f"I double it.\n{script('v = v * 2')}\nThen I add.\n{script('print(v + 2)')}\nLet me see."
    bench.answers(say(spoken), say("It is 42."))
    ran = bench.ask("double v, then add two")

    assert [one["text/markdown"] for one in ran.data if "text/markdown" in one and "I double it" in str(one)][-1] == (
        "I double it.\n\nThen I add.\n\nLet me see."
    )

    assert ran.status == "ok"
    assert ran.stdout == "42\n"
    assert "<script" not in shown(ran)
    assert "tools" not in bench.server.requests[0].body
    assert "42" in bench.sent()
    bench.answers(say(f"Tidy.\n{script('condense(reason=1)')}"), say("Done."))
    assert bench.ask("tidy up").status == "ok"
    assert "CondensationRequest" in [row["kind"] for row in records(bench)]
    bench.sound()


def test_what_show_requested_is_sent_with_the_next_ask_once(bench: Bench):
    bench.consent()
    bench.run("a, b = view([111222, 1]), view([333444, 2])", "show(a)\nshow(b)", "x = 1")
    bench.answers(say("seen"), say("again"))
    bench.ask("look")
    bench.ask("and now?")
    assert [bench.sent(n).count("0: 111222") for n in (0, 1)] == [1, 1]
    assert [bench.sent(n).count("0: 333444") for n in (0, 1)] == [1, 1]
    bench.sound()


def test_a_re_run_of_affected_cells_runs_no_text_of_the_model_as_code(bench: Bench):
    bench.consent()
    bench.answers([say("made = 'by a text'"), cell("c = b * 2; print(c)")], say("open('text.txt', 'w')"))
    for name, source in {"a": "a = 1", "b": "b = a + 1", "q": "%%ask --mode auto\nc?", "d": "d = c + 1"}.items():
        assert bench.cell(source, name).status == "ok"
    assert bench.cell("a = 5", "a").status == "ok"

    assert "stopped before a cell that asks a model" in bench.kernel.run("%ctx rerun --affected").stdout
    told = json.loads(bench.run("%ctx rerun --affected --yes --json").stdout)
    assert (told["ran"], told["stopped"]) == ([3, 4], None)
    assert bench.run("a, b, c, d").data[-1]["text/plain"] == "(5, 6, 12, 13)"
    assert bench.run("'made' in globals()").data[-1]["text/plain"] == "False"
    assert not (bench.folder / "text.txt").exists()
    bench.sound()


def test_an_ask_in_a_re_run_of_affected_cells_waits_for_approval(bench: Bench):
    bench.consent()
    for name, source in {"a": "a = 1", "q": "%%ask --mode ask --again\nb?"}.items():
        bench.answers([cell("b = a + 1")])
        bench.cell(source, name)
    bench.answers(say("left"))
    bench.run("%ctx stop")
    bench.cell("a = 5", "a")
    bench.answers([cell("b = a + 2")], say("done"))
    ran = bench.kernel.run("%ctx rerun --affected --yes")
    assert ran.reply["ename"] == "Waiting"
    assert "the model proposes a cell\nb = a + 2" in plain_text(ran)
    bench.run("%ctx approve")
    assert bench.run("b").data[-1]["text/plain"] == "7"
    bench.sound()


def test_an_ask_that_failed_runs_again_in_a_re_run_of_affected_cells(bench: Bench):
    bench.consent()
    bench.cell("a = 1", "a")
    bench.answers([cell("b = a")], error(401))
    assert bench.cell("%%ask --mode auto\nb?", "q").status == "error"
    bench.cell("c = 3", "c")
    assert "stopped before a cell that asks" in bench.kernel.run("%ctx rerun --affected").stdout
    bench.answers([cell("b = a + 1")], say("done"))
    bench.run("%ctx rerun --affected --yes")
    assert bench.run("a, b, c").data[-1]["text/plain"] == "(1, 2, 3)"
    bench.sound()


def test_an_answer_in_words_is_no_stale_cell(bench: Bench):
    bench.consent()
    told = plain_text(bench.kernel.run("%ctx stale"))
    assert "hello\n" not in told.replace("hello?", "")
    assert "1 fresh, 0 stale, 1 unknown" in told


def test_a_model_that_an_ask_chose_stays_and_the_ask_says_so(bench: Bench):
    bench.consent()
    bench.answers(say("one"), say("two"))
    ran = bench.ask("one?", "--mode auto --model claude-haiku-5-5")
    bench.ask("two?")
    assert [one.body["model"] for one in bench.server.requests] == ["claude-haiku-5-5"] * 2
    assert "the model is claude-haiku-5-5 from now on; %ctx model claude-sonnet-5-5" in ran.stderr


def test_a_remark_on_the_end_of_an_answer_is_shown_once(bench: Bench):
    bench.consent()
    bench.answers(answer(say("no"), stop_reason="refusal"))
    assert plain_text(bench.ask("may I?")).count("the model declined to answer") == 1


def test_an_ask_of_a_front_end_without_cell_ids_is_exported(bench: Bench):
    bench.consent()
    bench.run("%ctx export out.ipynb")
    cells = json.loads((bench.folder / "out.ipynb").read_text("utf-8"))["cells"]
    assert [(one["cell_type"], "".join(one["source"])) for one in cells[:2]] == [
        ("code", "%%ask --mode auto\nhello?"),
        ("markdown", "hello"),
    ]
