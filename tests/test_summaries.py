"""Level 2 by a model: what is sent of a text, what is taken of the answer, and when nothing is sent at all."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernels import RunningKernel, starter

from ctxkernel.agent.recorded import of_session
from ctxkernel.agent.streaming import Response
from ctxkernel.agent.summary_requests import MOST_LINES, SENT_TOKENS, answer_text, lines_of, request_for
from ctxkernel.cli import main
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.rules import check
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources import open_source
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.testing import MessagesServer, Stall, answer, error, say

KEY = "sk-ant-api03-plantedAndNeverToBeSeen0123456789"
SECRET = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
MODEL = "claude-haiku-5-5"
PAPER = f"# Residuals\n\nThe drift began in 2019 at 4.7 mm.\nToken: {SECRET}\nOf patients, 1,204 stayed.\n"


# -- what is taken of an answer ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kept", "left_out"),
    [
        ("It began in 2019.", ("It began in 2019.",), 0),
        ("It began in 2018.", (), 1),
        ("4.7 mm\n4.70 mm\n5 mm\nabout mm", ("4.7 mm", "about mm"), 2),
        ("1204 stayed, as 1,204 did", ("1204 stayed, as 1,204 did",), 0),
        ("12,04 stayed", (), 1),
        ("-4.7 mm\n\u22124.7 mm\n4.7e3 mm\nin 2019-4.7", ("in 2019-4.7",), 3),
        ("- a point\n* another\n3. a third\n## a head", ("a point", "another", "a third", "a head"), 0),
        ("\n\n  \n", (), 0),
        ("\x1b[31mred\x1b[0m", ("red",), 0),
    ],
)
def test_a_line_with_a_number_that_the_text_does_not_have_is_left_out(answer, kept, left_out):
    assert lines_of(answer, PAPER) == (kept, left_out)


def test_a_number_is_the_same_with_its_sign_and_its_exponent_only():
    text = "A slope of -0.3 (\u22121,200 in all), p = 1.5e-7."
    for line in ("It is \u22120.3.", "-1200 of them", "p = 1.5e-7"):
        assert lines_of(line, text) == ((line,), 0)
    for line in ("It is 0.3.", "1200 of them", "p = 1.5", "p = 1.5e7"):
        assert lines_of(line, text) == ((), 1)


def test_an_answer_gives_a_bounded_summary():
    lines, _ = lines_of("\n".join(["word " * 1000] * 1000), PAPER)
    assert len(lines) == MOST_LINES
    assert max(map(len, lines)) <= 402


def test_a_long_line_is_not_cut_within_a_number():
    assert lines_of("word " * 79 + "12,040 more", "12 of 12,040") == (("word " * 79 + "…",), 0)


@pytest.mark.parametrize(("reason", "text"), [("end_turn", "one\ntwo 4"), ("max_tokens", "one"), ("refusal", "")])
def test_of_an_answer_that_was_cut_off_only_whole_lines_are_taken(reason: str, text: str):
    blocks = ({"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "one\ntwo 4"})
    assert answer_text(Response("m", None, MODEL, blocks, reason, {}, 1.0, 0.1)) == text


# -- what is sent ----------------------------------------------------------------------------------------


def made(path: Path, hide=str):
    return request_for(open_source(str(path)), path.name, MODEL, hide)


def test_a_text_stands_masked_in_the_user_s_message_of_a_request_that_the_rules_pass(tmp_path: Path):
    (tmp_path / "paper.md").write_text(PAPER)
    sent = made(tmp_path / "paper.md", lambda text: text.replace("patients", "[private]"))
    body = json.loads(sent.bytes)
    assert check(body, capabilities_for(MODEL)).ok
    system, user = body["system"][0]["text"], body["messages"][0]["content"][0]["text"]
    assert "The drift began in 2019 at 4.7 mm." in user and "drift" not in system
    assert SECRET not in sent.bytes.decode() and "patients" not in sent.bytes.decode()


def test_of_a_long_text_its_outline_and_its_beginning_are_sent(tmp_path: Path):
    path = tmp_path / "long.py"
    path.write_text("\n".join(f"def step_{n}(value):\n    return value * {n}\n" for n in range(20_000)))
    sent = made(path)
    assert count_tokens(sent.text) <= 1.3 * SENT_TOKENS
    assert sent.text.startswith("Its outline:") and "def step_0(value)" in sent.text


# -- in a kernel -----------------------------------------------------------------------------------------


IDLE = """(lambda ctx, worker: not (worker._queued or worker._running or worker._given_up or len(ctx.loop.ready)
    or (ctx.models._summaries and ctx.models._summaries._done)))(
    get_ipython().kernel.ctx, get_ipython().kernel.ctx.worker)"""


SPENT = "get_ipython().kernel.ctx.models.summaries._spent()"


class Desk:
    """A kernel, and the server of the model that writes its summaries."""

    def __init__(self, kernel: RunningKernel, server: MessagesServer, folder: Path) -> None:
        self.kernel, self.server, self.folder = kernel, server, folder
        self.log = folder / ".ctxkernel"

    def write(self, name: str, text: str = PAPER) -> str:
        (self.folder / name).write_text(text)
        return name

    def run(self, *cells: str):
        for cell in cells:
            ran = self.kernel.run(cell)
            assert ran.status == "ok", (cell, ran.outputs)
        return ran

    def table(self) -> str:
        return self.kernel.run("%ctx summaries").data[0]["text/plain"]

    def settled(self, *cells: str) -> str:
        """Run cells, and then empty ones until the tick has nothing more to hand out. Returns what they were told."""
        told = "".join(self.run(cell).stderr for cell in cells)
        end = time.monotonic() + 60
        while True:
            told += self.run("None").stderr
            if self.kernel.evaluate(IDLE) == "True":
                return told + self.run("None").stderr
            assert time.monotonic() < end, self.table()
            time.sleep(0.05)

    def text(self, handle: str) -> str:
        return self.run(f"print({handle}.rendered.text)").stdout

    @property
    def sent(self) -> list[str]:
        return [one.body["messages"][0]["content"][0]["text"] for one in self.server.requests]


@pytest.fixture(scope="module")
def shared(module_folder: Path) -> Iterator[Desk]:
    with MessagesServer() as server, contextlib.contextmanager(starter)(module_folder) as start:
        yield Desk(start(env={"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY}), server, module_folder)


@pytest.fixture
def desk(shared: Desk) -> Desk:
    shared.run("%ctx config summary_model extractive", "%reset -f", "%ctx mode ask", "%ctx config answers auto")
    shared.settled()
    shared.server.script = lambda body: say("The drift began in 2019.\nIt was 99 mm.\nMore is not known.")
    shared.server.requests.clear()
    return shared


def using(desk: Desk) -> None:
    desk.run(f"%ctx config summary_model {MODEL}")


def test_nothing_is_sent_unless_a_model_is_named(desk: Desk):
    desk.write("default.md")
    desk.settled("v = view('default.md', lod=2).run('Sync')", "g = group(v)")
    assert desk.server.requests == []
    assert "summary by" not in desk.text("v")


def test_a_running_view_and_a_group_show_the_summary_at_the_next_tick(desk: Desk):
    using(desk)
    name, other = desk.write("running.md"), desk.write("member.md", PAPER + "More.\n")
    told = desk.settled(f"v = view({name!r}, lod=2).run('Sync'); m = view({other!r}); g = group(m)")
    assert f"{MODEL} writes the summaries now" in told and "%ctx config summary_model extractive stops it" in told
    shown = desk.text("v").splitlines()
    assert shown[0].startswith("running.md · ") and shown[0].endswith(f"· summary by {MODEL}")
    assert shown[1:4] == [
        "The drift began in 2019.",
        "More is not known.",
        "[1 line left out: with numbers that the text does not have]",
    ]
    assert "The drift began in 2019." in desk.text("g")
    assert "Residuals" in desk.text("m") and "summary by" not in desk.text("m")
    projection = json.loads(desk.kernel.run("%ctx projection --json").stdout)
    assert "The drift began in 2019." in json.dumps(projection["request"]) and projection["report"]["ok"]
    assert len(desk.server.requests) == 2


def test_a_paused_view_is_told_and_shows_it_when_it_is_asked(desk: Desk):
    using(desk)
    name = desk.write("paused.md")
    desk.settled(f"v = view({name!r}, lod=2)")
    assert "summary by" not in desk.text("v")
    notices = [one["notices"] for one in timeline(desk)]
    assert f"(paused.md): {MODEL} has written its summary" in json.dumps(notices)
    desk.run("v.refresh()")
    assert "summary by" in desk.text("v")


def timeline(desk: Desk) -> list[dict[str, Any]]:
    statements = json.loads(desk.kernel.run("%ctx timeline --json").stdout)["statements"]
    return [execution for one in statements for execution in one["executions"]]


def test_another_content_is_asked_for_anew_and_the_one_before_is_not_asked_twice(desk: Desk):
    using(desk)
    name = desk.write("changes.md")
    desk.settled(f"v = view({name!r}, lod=2).run('Sync')")
    desk.write(name, PAPER + "And a new line.\n")
    desk.run("None")
    assert "summary by" not in desk.text("v")  # of another content than this
    desk.settled()
    assert "summary by" in desk.text("v")
    assert len(desk.server.requests) == 2
    desk.write(name)
    desk.settled("None")
    assert "summary by" in desk.text("v")
    assert len(desk.server.requests) == 2


@pytest.mark.parametrize(
    ("target", "setup"),
    [
        ("'t.csv'", "open('t.csv', 'w').write('a,b\\n1,2\\n3,4\\n')"),
        ("'t.json'", "open('t.json', 'w').write('{\"a\": [1, 2]}')"),
        ("'t.log'", "open('t.log', 'w').write('2026-01-01 10:00:00 INFO a\\n2026-01-01 10:00:01 WARN b\\n')"),
        ("'t.png'", "import PIL.Image; PIL.Image.new('RGB', (8, 8)).save('t.png')"),
        ("'t'", "import os; os.makedirs('t', exist_ok=True)"),
        ("d", "import pandas; d = pandas.DataFrame({'a': [1]})"),
        ("d", "d = {'a': 1}"),
        ("STATEMENT", "print('an output')"),
        ("'gone.md'", "open('gone.md', 'w').write('text')"),
    ],
)
def test_only_texts_are_sent(desk: Desk, target: str, setup: str):
    using(desk)
    desk.run(setup)
    if target == "STATEMENT":
        target = repr(timeline(desk)[-1]["statement_id"])
    gone = "; import os; os.unlink('gone.md')" if "gone" in target else ""
    desk.settled(f"v = view({target}, lod=2).run('Sync'){gone}")
    assert desk.server.requests == []


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ("%ctx mode off", "since mode is off"),
        ("%ctx config answers recorded", "since answers is recorded"),
        ("%ctx private v", ""),
    ],
)
def test_a_person_s_no_holds_for_summaries(desk: Desk, first: str, told: str):
    using(desk)
    desk.run(first)
    name = desk.write(f"no{len(first)}.md")
    said = desk.settled(f"v = view({name!r}, lod=2).run('Sync')", "None")
    assert desk.server.requests == []
    desk.run("%ctx private v --off")
    assert told in said and (not told or said.count(told) == 1)


def test_a_failure_is_told_once_and_the_extractive_summary_stays(desk: Desk):
    using(desk)
    desk.server.script = lambda body: error(400)
    name = desk.write("fails.md")
    told = desk.settled(f"v = view({name!r}, lod=2).run('Sync')", "None", "None")
    assert told.count("has no summary by a model") == 1 and "The extractive one stays" in told
    assert "Residuals" in desk.text("v") and "summary by" not in desk.text("v")
    assert len(desk.server.requests) == 1
    desk.server.script = lambda body: say("Better now.")
    desk.settled(f"%ctx config summary_model {MODEL}")
    assert "Better now." in desk.text("v")


@pytest.mark.parametrize("answer", ["", "1,000,000 things", "999"])
def test_an_answer_that_cannot_be_shown_is_told_and_not_asked_for_again(desk: Desk, answer: str):
    using(desk)
    desk.server.script = lambda body: say(answer) if answer else say(" ")
    name = desk.write(f"unusable{len(answer)}.md")
    told = desk.settled(f"v = view({name!r}, lod=2).run('Sync')", "None", "None")
    assert "no line of its answer may be shown" in told
    assert "Residuals" in desk.text("v")
    assert len(desk.server.requests) == 1


def test_what_it_cost_and_every_byte_of_it_can_be_seen(desk: Desk):
    using(desk)
    name = desk.write("seen.md")
    desk.settled(f"seen = view({name!r}, lod=2)")
    assert desk.kernel.evaluate("get_ipython().kernel.ctx.panel.snapshot()['sent']") == "True"
    assert f"{MODEL} (summaries)" in desk.kernel.run("%ctx cost").data[0]["text/html"]
    whole = desk.kernel.run("%ctx summaries seen").data[0]["text/plain"]
    assert "It was 99 mm." in whole and "The drift began in 2019 at 4.7 mm." in whole
    assert KEY not in whole and SECRET not in whole
    path = next(desk.log.glob("*.sqlite"))
    with SessionReader(path) as reader:
        rows = [row for row in reader.requests() if row["ask_key"] == "summary"]
        assert rows[-1]["status"] == "ok" and rows[-1]["cost"] > 0
        bodies = [text for (text,) in reader.connection.execute("SELECT request FROM receipts ORDER BY id")]
    assert json.loads(bodies[-1])["body"] == desk.server.requests[-1].raw.decode()
    assert main(["verify", str(path)]) == 0
    assert desk.server.faults == []
    refused = desk.kernel.run("%ctx summaries nobody")
    assert refused.status == "error" and "%ctx summaries lists those that were" in json.dumps(refused.outputs)


def test_a_summary_that_is_asked_for_at_an_ask_is_no_part_of_the_ask(desk: Desk):
    using(desk)
    desk.server.script = lambda body: say(
        "A summary." if "You summarise" in body["system"][0]["text"] else "An answer."
    )
    name = desk.write("asking.md")
    desk.settled(f"v = view({name!r}, lod=2).run('Sync')")
    desk.write(name, PAPER + "Read me at the ask.\n")
    desk.settled("%%ask --mode auto\nwhat is it?")
    assert "A summary." in desk.text("v")
    with SessionReader(next(desk.log.glob("*.sqlite"))) as reader:
        (ask,) = of_session(reader.requests(), reader.records(all_roots=True))
    assert [one.blocks[0]["text"] for one in ask.rounds] == ["An answer."]


def test_a_bound_on_dollars_ends_the_asking(desk: Desk):
    using(desk)
    name = desk.write("bound.md")
    desk.settled(f"v = view({name!r}, lod=2)")
    desk.run("%ctx config ask_usd 0.000001")
    desk.server.requests.clear()
    name = desk.write("over.md", PAPER * 2)
    told = desk.settled(f"w = view({name!r}, lod=2)")
    assert "the bound is ask" in told or "(the bound is $1e-06)" in told
    assert desk.server.requests == []
    desk.run("%ctx config ask_usd 2")


def test_a_bound_on_dollars_holds_for_many_texts_of_one_tick_too(desk: Desk):
    using(desk)
    bound = float(desk.kernel.evaluate(SPENT)) + 0.005  # each may cost 0.002
    desk.run(f"%ctx config ask_usd {bound}")
    desk.server.script = lambda body: answer(say("It began in 2019."), usage={"output_tokens": 4096})
    names = [desk.write(f"many{at}.md", f"{PAPER}Part {at}.\n") for at in range(12)]
    desk.settled(f"many = [view(name, lod=2).pin() for name in {names}]", "None", "None")
    cost, sent = float(desk.kernel.evaluate(SPENT)), len(desk.server.requests)
    desk.run("%ctx config ask_usd 2")  # from here on the others go out
    assert 1 < sent < 5
    assert cost < bound + 0.0021


LET_GO = {
    "a.lod = b.lod = 0": "",
    "%ctx mode off": "since mode is off",
    "%ctx config answers recorded": "since answers is recorded",
    "%ctx config ask_usd 0.0000001": "the bound is",
    "%ctx config summary_model extractive": "",
    "%ctx private a b": "",
}


@pytest.mark.parametrize("last", LET_GO)
def test_what_is_not_wanted_any_more_is_stopped_or_not_sent_and_that_is_written_down(desk: Desk, last: str):
    using(desk)
    desk.write("spent.md", f"Before {last}")
    desk.settled("c = view('spent.md', lod=2)")
    desk.settled("del c")
    desk.server.requests.clear()
    desk.server.script = lambda body: answer(say("late"), fault=Stall("start", 30))
    first, second = desk.write("slow.md", f"{PAPER}Slow: {last}.\n"), desk.write("waits.md", f"{PAPER}Waits: {last}.\n")
    desk.run(f"a = view({first!r}, lod=2); b = view({second!r}, lod=2)")
    end = time.monotonic() + 30
    while not desk.server.requests:
        assert time.monotonic() < end
        time.sleep(0.02)
    told = desk.settled(last)
    states = {row.split()[1]: row for row in desk.table().splitlines()[1:]}
    sent = len(desk.server.requests)
    desk.run("%ctx private a b --off", "%ctx config ask_usd 2")  # from here on they are wanted again
    assert "stopped" in states["slow.md"] and "not sent" in states["waits.md"]
    assert sent == 1
    assert LET_GO[last] in told


def test_after_a_restart_nothing_is_asked_for_twice(tmp_path: Path, start_kernel):
    with MessagesServer([say("The drift began in 2019.")]) as server:
        env = {
            "ANTHROPIC_BASE_URL": server.base_url,
            "ANTHROPIC_API_KEY": KEY,
            "CTXKERNEL_SUMMARY_MODEL": MODEL,
        }
        first = Desk(start_kernel(env=env), server, tmp_path)
        name = first.write("again.md")
        first.settled(f"v = view({name!r}, lod=2).run('Sync')")
        shown = first.text("v")
        first.kernel.stop()
        second = Desk(start_kernel(env=env), server, tmp_path)
        second.run("%ctx resume")
        assert second.kernel.evaluate("get_ipython().kernel.ctx.panel.snapshot()['sent']") == "True"
        second.settled("None", f"w = view({name!r}, lod=2).run('Sync')")
        assert second.text("v") == shown and "summary by" in shown
        assert second.text("w") == shown
        assert len(server.requests) == 1 and server.faults == []
