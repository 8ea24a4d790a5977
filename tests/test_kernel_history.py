"""The model's history in a real kernel: what a user types, what stands in the projection then, and what is kept."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ctxkernel.cli import main
from ctxkernel.projection.displayed_tokens import vocabulary
from ctxkernel.store.log.session import SessionReader

LONG = "print('measured\\n' * 300)"
# What an agent records: here a cell does, since what answers is another thing than what is kept.
ASK = """\
from ctxkernel.history.events import Action, AssistantMessage, Observation, UserQuestion
def told(kind, *given):
    loop = get_ipython().kernel.ctx.loop
    loop.record(kind(loop.next_event_id, *given))
"""
ASKED = "told(UserQuestion, 'why do residuals drift?')"
CALLED = (
    "told(Action, 'c1', 'run_cell', {'code': 'df.mean()'}, 'r1', "
    "({'type': 'thinking', 'thinking': 'hm', 'signature': 'c2ln'}, "
    "{'type': 'tool_use', 'id': 'c1', 'name': 'run_cell', 'input': {'code': 'df.mean()'}}))"
)
RESULT = "told(Observation, 'c1', 'mean 3.2\\n' * 300)"
ANSWERED = "told(AssistantMessage, 'Since the sensor was changed.')"


def projection(kernel) -> dict[str, Any]:
    return json.loads(kernel.run("%ctx projection --json").stdout)


def blocks(kernel) -> dict[str, dict[str, Any]]:
    return {block["id"]: block for block in projection(kernel)["blocks"]}


def run_all(kernel, *cells: str):
    for cell in cells:
        ran = kernel.run(cell)
        assert ran.status == "ok", (cell, ran.outputs)
    return ran


def test_a_redacted_output_is_a_note_and_undoing_it_brings_it_back(kernel):
    run_all(kernel, LONG)
    whole = blocks(kernel)["s1.1"]

    run_all(kernel, "%ctx redact s1 '300 lines, all the same; \"quoted\"'")
    noted = blocks(kernel)["s1.1"]
    run_all(kernel, "%ctx redact --undo 1")

    assert noted["tokens"] < whole["tokens"] / 4
    assert LONG in noted["text"], "what was run stays"
    assert "300 lines, all the same" in noted["text"]
    assert "redacted" in noted["why"]
    assert blocks(kernel)["s1.1"]["text"] == whole["text"]


def test_a_command_on_the_history_takes_no_room_in_it(kernel):
    run_all(kernel, LONG, "%ctx redact s1 all the same", "x = 1")

    assert [block for block in blocks(kernel) if block.startswith("s")] == ["system", "s1.1", "s3.1", "status"]


def test_returning_to_before_a_redaction_brings_the_output_back(kernel):
    """The model's history is cut where the timeline is."""
    run_all(kernel, LONG, "x = 1", "%ctx redact s1 all the same", "%ctx goto 2")

    assert "redacted" not in blocks(kernel)["s1.1"]["why"]
    run_all(kernel, "%ctx goto 3")
    assert "redacted" in blocks(kernel)["s1.1"]["why"]


REFUSED = [
    ("%ctx redact", "which statement or event"),
    ("%ctx redact s1", "give a summary after it"),
    ("%ctx redact s1 --list --undo", "use one option at a time"),
    ("%ctx condense --show --undo", "use one option at a time"),
    ("%ctx pin s1 s2", "takes one name"),
    ("%ctx why not s1 --json", "no option --json"),
    ("%ctx why s1 s2", "which block"),
    ("%ctx projection 3", "takes no name"),
    ("%ctx whatif condense=banana", "condense=now"),
    ("%ctx whatif condense=0", "condense=now"),
    ("%ctx whatif h.pinned=maybe", "yes or no"),
    ("%ctx redact s99 gone", "no event 's99'"),
    ("%ctx redact s2 tiny", "at most"),
    ("%ctx redact --undo s1", "not redacted"),
    ("%ctx redact s1 x --nonsense", "no option"),
    ("%ctx condense --undo", "nothing is condensed"),
    ("%ctx why nonsense", "%ctx why not nonsense"),
    ("%ctx why not nonsense_name", "nothing is called"),
    ("%ctx unpin s1", "not pinned"),
    ("%ctx pin s77", "no handle or statement"),
    ("%ctx whatif", "give at least one change"),
    ("%ctx whatif no.lod=1", "no handle 'no'"),
    ("%ctx whatif nonsense=1", "what is 'nonsense'"),
    ("%ctx whatif budget=10", "an empty projection takes"),
    ("%ctx diff projection", "after which statements"),
    ("%ctx diff projection s99", "no statement s99"),
]


def test_a_wrong_command_is_refused_in_one_line_with_the_next_move(kernel):
    run_all(kernel, LONG, "x = 1", "from pathlib import Path\nh = view(Path('.'))")
    for command, told in REFUSED:
        ran = kernel.run(command)
        assert ran.status == "error", command
        assert told in ran.error["evalue"], (command, ran.error["evalue"])
        assert len(ran.error["traceback"]) <= 2, "no traceback of ours"


RICH = """\
class Table:
    def __repr__(self): return 'a table'
    def _repr_html_(self): return '<table>' + '<tr><td>1</td></tr>' * 300 + '</table>'
Table()
"""


@pytest.mark.parametrize(
    "cell", [RICH, "for n in range(500): print(f'{n} of 500', end='\\r')"], ids=["html", "progress"]
)
def test_a_note_is_measured_by_what_the_model_sees_of_an_output(kernel, cell: str):
    run_all(kernel, cell)

    refused = kernel.run("%ctx redact s1 superseded by a later run")

    assert refused.status == "error"
    assert "at most" in refused.error["evalue"], refused.error


def test_a_credential_in_a_note_is_masked(kernel):
    run_all(kernel, LONG, "%ctx redact s1 password=hunter2secret was found")

    assert "hunter2" not in json.dumps(projection(kernel))
    assert "[masked] was found" in blocks(kernel)["s1.1"]["text"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("%ctx redact --undo s1", "%ctx redact s1 two"),
        ("%ctx redact s2 one", "%ctx redact 2 two"),
        ("%ctx redact s2 one", "%ctx redact --undo s2"),
        ("%ctx pin s2", "%ctx redact s2 one"),
        ("%ctx pin s2", "%ctx unpin s2"),
        ("%ctx condense", "%ctx condense --undo"),
        ("%ctx condense", "%ctx condense"),
    ],
)
def test_of_two_commands_on_one_thing_in_one_cell_the_second_is_refused(kernel, first: str, second: str):
    """The first is not in force before the cell has ended."""
    run_all(kernel, LONG, LONG, "%ctx redact s1 all the same")

    ran = kernel.run(f"{first}\n{second}")

    assert ran.status == "error"
    assert "one at a time" in ran.error["evalue"]


def test_commands_on_several_things_may_stand_in_one_cell(kernel):
    run_all(kernel, LONG, LONG, LONG, "%ctx redact s1 one\n%ctx redact s2 two\n%ctx pin s3\n%ctx condense")

    assert "redacted" in blocks(kernel)["s2.1"]["why"]


def test_a_command_on_the_history_outside_of_a_cell_is_refused_with_the_next_move(kernel):
    run_all(kernel, LONG)
    expression = "get_ipython().run_line_magic('ctx', 'condense')"

    reply = kernel.client.execute("", silent=True, user_expressions={"x": expression}, reply=True, timeout=60)

    told = reply["content"]["user_expressions"]["x"]
    assert "in a cell of its own" in told["evalue"], told


def test_what_is_condensed_is_pinned_or_redacted_only_when_it_is_brought_back(kernel):
    run_all(kernel, *(f"x{n} = {n}\nprint('measured ' * 200)" for n in range(8)), "%ctx condense")

    for command in ("%ctx pin s3", "%ctx pin s3.1", "%ctx pin 3", "%ctx redact s3 superseded"):
        told = kernel.run(command).error["evalue"]
        assert "was condensed" in told, told
        assert "%ctx condense --undo s9.1:2" in told


def test_a_redaction_in_an_open_loop_says_when_it_takes_effect(kernel):
    run_all(kernel, LONG, ASK, ASKED, CALLED, RESULT)

    told = kernel.run("%ctx redact s1 all the same").data[0]["text/plain"]

    assert "when the open loop of calls has ended" in told


def test_condensing_on_request_can_be_opened_and_undone(kernel):
    run_all(kernel, *(f"x{n} = {n}\nprint('measured ' * 200)" for n in range(8)), "%ctx condense")
    condensed = blocks(kernel)
    opened = kernel.run("%ctx condense --show").data[0]["text/plain"]
    why = kernel.run("%ctx why not s3").data[0]["text/plain"]
    run_all(kernel, "%ctx condense --undo")

    summaries = [block for block in condensed.values() if block["kind"] == "summary"]
    assert summaries
    assert "s3.1" not in condensed
    assert "x2 = 2" in opened
    assert "measured" in opened
    assert "was condensed" in why
    assert "%ctx condense --undo" in why
    assert [block for block in blocks(kernel) if block.startswith("s") and "." in block][:8] == [
        f"s{n}.1" for n in range(1, 9)
    ]


def test_what_is_pinned_is_not_condensed_and_not_redacted(kernel):
    run_all(
        kernel, *(f"x{n} = {n}\nprint('measured ' * 200)" for n in range(8)), "%ctx pin s3 matters", "%ctx condense"
    )

    assert "s3.1" in blocks(kernel)
    assert "pinned" in kernel.run("%ctx redact s3 gone").error["evalue"]
    run_all(kernel, "%ctx unpin s3", "%ctx redact s3 gone")
    assert "redacted" in blocks(kernel)["s3.1"]["why"]


def test_whatif_tells_the_difference_and_applies_nothing(kernel):
    run_all(kernel, LONG, "h = view({'a': list(range(500))}, lod=0); pin(h)")
    before = projection(kernel)

    told = kernel.run("%ctx whatif h.lod=2 redact=s1").data[0]["text/plain"]

    assert "nothing was applied" in told
    assert "s1.1" in told
    assert "view:h" in told
    assert projection(kernel) == before
    assert kernel.evaluate("h.lod") == "0"


def test_two_projections_are_compared_with_tokens_cost_and_the_break_of_the_cache(kernel):
    run_all(kernel, LONG, "x = 1", "y = 2", "%ctx redact s1 all the same", "z = 3")

    told = json.loads(kernel.run("%ctx diff projection s3 s5 --json").stdout)
    text = kernel.run("%ctx diff projection s3").data[0]["text/plain"]

    changes = {one["id"]: (one["before"], one["after"]) for one in told["changes"]}
    assert changes["s5.1"][0] is None
    assert changes["s1.1"][0] > changes["s1.1"][1]
    assert told["breaks_at"] == "s1.1"
    assert told["tokens"] < 0
    assert "breaks at s1.1" in text
    assert "$" in text


WHY_NOT = [
    ("x1", "has a row"),
    ("_", "hidden"),
    ("s1", "s1.1"),
    ("h", "neither pinned nor asked for"),
    ("view:h", "neither pinned nor asked for"),
]


def test_why_not_finds_the_reason_for_whatever_one_asks(kernel):
    run_all(kernel, "x1 = 1", "h = view({'a': 1})", "2")
    for name, told in WHY_NOT:
        assert told in kernel.run(f"%ctx why not {name}").data[0]["text/plain"], name


def test_why_not_says_what_is_wrong_with_a_call_or_a_result(kernel):
    orphan = "told(Observation, 'c9', 'too late')"
    run_all(kernel, LONG, ASK, ASKED, CALLED, orphan)  # s3 the question, s4 the call, s5 a result of no call

    def told(name: str) -> str:
        return kernel.run(f"%ctx why not {name}").data[0]["text/plain"]

    assert "waits for its result" in told("s4")
    assert "waits for its result" in told("c1")
    assert "no such call" in told("s5.1:1")
    assert "no such call" in told("c9")


OWN = """\
from ctxkernel.history.invariants import Property
class No(Property):
    def enforce(self, events, source):
        return [one for one in events if self.word not in getattr(one, 'source', '')]
class NoApples(No): word = 'apple' + 's'
class NoPears(No): word = 'pear' + 's'
NAME = NoApples(), NoPears()
%ctx properties add NoApples
%ctx properties add NoPears
"""


def test_why_not_names_the_property_that_left_it_out(kernel):
    run_all(kernel, OWN, "'app' 'les'; x = 'apples'", "x = 'pears'")

    told = [kernel.run(f"%ctx why not {name}").data[0]["text/plain"] for name in ("s2", "s3")]

    assert "NoApples" in told[0]
    assert "NoPears" not in told[0]
    assert "NoPears" in told[1]
    assert "NoApples" not in told[1]


def test_why_finds_a_handle_by_its_name_and_a_statement_by_its_own_blocks(kernel):
    run_all(kernel, "from pathlib import Path\nh = view(Path('.'))\nh.pin('it matters')", "x = 1")

    handle, statement, number = (kernel.run(f"%ctx why {name}").data[0]["text/plain"] for name in ("h", "s2", "2"))

    assert handle.startswith("view:h: in")
    assert statement.startswith("s2.1: in")
    assert "variables" not in statement
    assert number == statement


def test_why_not_says_a_thing_once(kernel):
    run_all(kernel, "from pathlib import Path\nh = view(Path('.'))")

    told = kernel.run("%ctx why not h").data[0]["text/plain"].splitlines()

    assert len(told) == len(set(told)) == 1


def test_looking_leaves_no_statement(kernel):
    run_all(kernel, LONG, "%ctx redact s1 all the same")
    looks = ["projection", "why s1", "why not s1", "whatif budget=64000", "diff projection s1", "redact --list"]
    run_all(kernel, *(f"%ctx {look}" for look in looks))

    timeline = json.loads(kernel.run("%ctx timeline --json").stdout)
    assert [one["statement_id"] for one in timeline["statements"]] == ["s1", "s2"]


def test_an_ask_with_its_calls_is_messages_in_turn(kernel):
    run_all(kernel, ASK, f"{ASKED}; {CALLED}; {RESULT}; {ANSWERED}")

    found = projection(kernel)
    roles = [message["role"] for message in found["request"]["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user", "system"]
    assert found["report"]["ok"]
    assert found["request"]["messages"][2]["content"][0]["tool_use_id"] == "c1"


def test_a_call_that_a_crash_left_without_result_gets_one_when_the_session_is_resumed(start_kernel):
    """Seed 003: recovered on load, by an event with its reason; and it is not mended twice."""
    first = start_kernel()
    run_all(first, ASK, f"{ASKED}; {CALLED}")
    assert "call" not in {block["kind"] for block in blocks(first).values()}, "a call waits for its result"
    os.kill(int(first.evaluate("__import__('os').getpid()")), signal.SIGKILL)
    time.sleep(0.2)

    second = start_kernel()
    resumed = run_all(second, "%ctx resume")
    assert "a cell that the model proposed in s2 waited when the kernel ended" in resumed.stdout
    assert "    df.mean()\n" in resumed.stdout
    ran = second.run("x = 1")
    again = second.run("y = 1")

    found = projection(second)
    result = [block for block in found["blocks"] if block["kind"] == "result"]
    assert len(result) == 1
    assert "interrupted" in result[0]["text"]
    assert found["report"]["ok"]
    with SessionReader(Path(session_of(second))) as reader:
        recorded = [type(event).__name__ for events in reader.records(all_roots=True).values() for event in events]
    assert recorded.count("Observation") == 1
    assert recorded.count("Repair") == 1
    assert "interrupted" not in again.stderr
    assert ran.status == "ok"


def session_of(kernel) -> str:
    return kernel.evaluate("str(get_ipython().kernel.ctx.store.path)").strip("'")


def test_what_was_condensed_and_redacted_is_so_in_the_next_kernel(start_kernel):
    first = start_kernel()
    run_all(
        first,
        *(f"x{n} = {n}\nprint('measured ' * 200)" for n in range(6)),
        "%ctx condense",
        LONG,
        "%ctx redact s8 same",
    )
    before = [block["text"] for block in projection(first)["blocks"] if block["kind"] in ("summary", "statement")]
    first.stop()

    second = start_kernel()
    run_all(second, "%ctx resume")

    after = [block["text"] for block in projection(second)["blocks"] if block["kind"] in ("summary", "statement")]
    assert after[: len(before)] == before


def test_every_projection_that_was_stored_can_be_made_again_byte_for_byte(start_kernel, capsys):
    """`ctxkernel verify` proves it, offline, without the kernel."""
    kernel = start_kernel()
    run_all(
        kernel, ASK, f"{ASKED}; {CALLED}; {RESULT}; {ANSWERED}", LONG, "%ctx redact s3 same", "%ctx condense", "x = 1"
    )
    path = session_of(kernel)
    receipt = projection(kernel)["receipt"]
    kernel.stop()

    status = main(["verify", path, "--json"])
    told = json.loads(capsys.readouterr().out)

    assert status == 0, told
    assert told["projections"] == 6
    with SessionReader(Path(path)) as reader:
        assert reader.receipts()[-1][1] == receipt


def test_a_model_statement_in_the_history_is_not_shown_twice(kernel):
    """A cell of the model's is its call and its result; its statement is the record of that."""
    run_all(kernel, ASK, f"{ASKED}; {CALLED}", f"df = 1; {RESULT}")

    found = blocks(kernel)
    assert [block["kind"] for block in found.values()].count("statement") == 1
    assert [block["kind"] for block in found.values()][2:5] == ["question", "call", "result"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_history_at_its_limit_is_condensed_by_itself_and_says_so(start_kernel):
    kernel = start_kernel(env={"CTXKERNEL_PROJECTION_TOKENS": "8000"})
    for n in range(60):
        kernel.run(f"x{n} = {n}\nprint('measured ' * 120)")
    found = projection(kernel)
    assert found["tokens"] <= 8000
    assert any(block["kind"] == "summary" for block in found["blocks"])
    assert not [one for one in found["left_out"] if "dropped" in one["why"]]


@pytest.mark.skipif(vocabulary() is None, reason="run with Python 3.12 or later, which gets ctok")
def test_the_size_is_told_by_the_models_vocabulary_where_it_is_there(kernel):
    run_all(kernel, LONG)

    assert re.search(
        r"~[\d,]+ of 100,000 tokens \(~[\d,]+ by the model's vocabulary\)", shown(kernel, "%ctx projection")
    )


def test_the_size_is_corrected_by_what_the_last_answer_took(kernel):
    run_all(
        kernel,
        "from ctxkernel.projection.displayed_tokens import anchored\nctx = get_ipython().kernel.ctx",
        "ctx.account.anchor = anchored(1000, {'input_tokens': 1500})",
    )
    found = re.search(r"~([\d,]+) of 100,000 tokens \(~([\d,]+) by", shown(kernel, "%ctx projection"))

    assert found is not None
    estimated, corrected = (int(number.replace(",", "")) for number in found.groups())
    assert corrected > estimated * 1.2


def shown(kernel, command: str) -> str:
    return kernel.run(command).data[0]["text/plain"]


def test_a_condensation_in_vain_says_why(kernel):
    """One statement, and it is the newest: nothing can go."""
    ran = kernel.run("%ctx condense")

    assert "nothing can be condensed" in ran.stderr


def test_an_event_is_recorded_once(kernel):
    run_all(kernel, ASK)
    twice = "loop = get_ipython().kernel.ctx.loop; event = UserQuestion(loop.next_event_id, 'q'); "
    twice += "loop.record(event); loop.record(event)"

    ran = kernel.run(twice)

    assert "recorded already" in ran.error["evalue"]
    assert "Not all of a turn" not in kernel.run("1").stderr
