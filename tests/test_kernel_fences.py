"""Fenced code in a model's answer, in a real kernel: what is a cell, what is not, and what the user is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_kernel_asking import Bench, bench_in, cell, shown

from ctxkernel.kernel.asking.answer_display import FENCED
from ctxkernel.testing import Cut, answer, say

QUOTED = "import pathlib\npathlib.Path('quoted').write_text('x')"


def fence(code: str, language: str = "python", before: str = "I do it.") -> Any:
    return say(f"{before}\n\n```{language}\n{code}\n```\n\nThat is all.")


@pytest.fixture(scope="module")
def kernel(module_folder: Path) -> Iterator[Bench]:
    with bench_in(module_folder) as bench:
        bench.run("%ctx config dialect script")
        bench.consent()
        yield bench


def value(bench: Bench, expression: str) -> str:
    return bench.kernel.evaluate(expression)


def test_a_fenced_block_runs_as_a_cell_and_says_where_it_was_read(kernel: Bench):
    kernel.answers(fence("total = 6 * 7\nprint(total)"), say("It is 42."))
    ran = kernel.ask("compute it")

    response, ran_cell = kernel.statements[-3:-1]
    assert value(kernel, "total") == "42"
    assert ran_cell["source"] == "total = 6 * 7\nprint(total)"
    assert ran_cell["tags"]["fenced"] is response["tags"]["fenced"] is True
    assert ran_cell["tags"]["receipt"] == response["tags"]["receipt"] != ""
    assert FENCED in shown(ran)
    assert any(one.get("text/markdown") == "I do it.\n\nThat is all." for one in ran.data), ran.data
    assert "not run" not in shown(ran)
    assert "42" in kernel.sent()
    kernel.sound()


def test_several_blocks_run_in_order_also_after_one_that_failed(kernel: Bench):
    said = "```python\nk1 = 1\n```\nthen\n```py\n1 / 0\n```\nand\n~~~python\nk2 = k1 + 1\n~~~"
    kernel.answers(say(said), say("done"))
    kernel.ask("three things")

    assert value(kernel, "k2") == "2"
    assert [one["executions"][0]["status"] for one in kernel.statements[-4:-1]] == ["ok", "error", "ok"]
    kernel.sound()


def test_in_mode_ask_a_fenced_block_waits_like_any_cell(kernel: Bench):
    kernel.answers(fence("waited = 1"), say("done"))
    ran = kernel.ask("set it", "--mode ask")

    assert ran.reply["ename"] == "Waiting"
    assert FENCED in shown(ran)
    assert value(kernel, "'waited' in globals()") == "False"
    kernel.run("%ctx approve")
    assert value(kernel, "waited") == "1"
    kernel.sound()


def test_a_block_that_was_cut_is_not_run_and_the_model_is_told(kernel: Bench):
    cut = answer(say("I begin.\n```python\nbroken = 1\nbroken = 2"), stop_reason="max_tokens")
    kernel.answers(cut, say("I see."))
    ran = kernel.ask("a long one")

    assert value(kernel, "'broken' in globals()") == "False"
    assert "max_tokens" in shown(ran)
    assert "cut off within this cell" in kernel.sent()
    kernel.sound()


def test_the_fenced_code_of_an_answer_that_broke_off_stays_in_its_text_and_is_not_run(kernel: Bench):
    said = answer(say("I try:\n```python\nkept_text = 1\n```\nand then more words"), fault=Cut("between"))
    kernel.answers(said, say("I see."))
    kernel.ask("try")
    kernel.ask("what did you write?")

    assert value(kernel, "'kept_text' in globals()") == "False"
    assert "kept_text = 1" in kernel.sent()
    kernel.server.faults.clear()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (fence("touch made_by_bash", "bash"), "in a block marked as bash"),
        (fence("unmarked = 1", ""), "not marked as Python"),
        (say("whole = 1\nprint(whole)"), "in no block"),
        (say("<script>\nwhole = 1\n</script>"), "script tag without type"),
    ],
)
def test_code_that_is_no_cell_is_not_run_and_the_user_is_told(kernel: Bench, said: Any, told: str):
    kernel.answers(said)
    ran = kernel.ask(f"do it ({told})")

    assert ran.status == "ok"
    assert told in shown(ran)
    assert "Copy it into a cell, or ask the model to run it" in shown(ran)
    assert value(kernel, "'unmarked' in globals() or 'whole' in globals()") == "False"
    assert not (kernel.folder / "made_by_bash").exists()


@pytest.mark.parametrize("place", ["an output", "a file"])
def test_a_quotation_of_what_the_model_was_shown_is_not_run(kernel: Bench, place: str):
    if place == "an output":
        kernel.run(f"print({QUOTED!r})")
    else:
        kernel.run(f"open('order.txt', 'w').write({QUOTED!r})\nh = view('order.txt')")
    kernel.answers(fence(QUOTED, before="The file says:"))
    ran = kernel.ask(f"what does {place} say?")

    assert "repeats text that the model was shown" in shown(ran)
    assert QUOTED.partition("\n")[0] in shown(ran)
    assert not (kernel.folder / "quoted").exists()


def test_code_of_the_user_that_the_model_explains_is_not_run_but_a_single_line_is(kernel: Bench):
    kernel.run("count = 0")
    kernel.run("if True:\n    count += 1")
    kernel.answers(fence("if True:\n    count += 1"))
    kernel.ask("explain it")
    assert value(kernel, "count") == "1"

    kernel.answers(fence("count = 0"), say("done"))
    kernel.ask("once more, please")
    assert value(kernel, "count") == "0"


def test_a_block_that_repeats_a_cell_of_the_ask_is_not_run_again(kernel: Bench):
    kernel.run("runs = []")
    kernel.answers(fence("runs.append(1)\nprint(runs)"), fence("runs.append(1)\nprint(runs)", before="I ran this:"))
    ran = kernel.ask("append one")

    assert value(kernel, "runs") == "[1]"
    assert "not run" not in shown(ran)
    assert len(kernel.server.requests) == 2


def test_a_script_tag_wins_over_fences(kernel: Bench):
    tag = '<script type="text/x-python">\nby_tag = 1\n</script>'
    kernel.answers(say(f"```python\nby_fence = 1\n```\nor rather\n{tag}"), say("done"))
    kernel.ask("which?")

    assert value(kernel, "('by_fence' in globals(), by_tag)") == "(False, 1)"
    assert "fenced" not in kernel.statements[-2]["tags"]


def test_a_command_that_only_a_person_may_use_is_refused_in_a_fence_too(kernel: Bench):
    kernel.answers(fence("%ctx mode auto"), say("well"))
    kernel.ask("may you?")

    assert "only a person" in kernel.sent() or "cannot" in kernel.sent()


def test_an_answer_with_tools_runs_no_fence_and_says_so(kernel: Bench):
    kernel.run("%ctx config dialect tools")
    try:
        kernel.answers(fence("by_fence = 1"))
        ran = kernel.ask("with tools")
        assert "this model runs code only by calls of run_cell" in shown(ran)
        kernel.answers([say("I run it."), cell("by_call = 1")], fence("by_call = 1", before="I ran:"))
        ran = kernel.ask("with a call")
        assert "not run" not in shown(ran)
        assert value(kernel, "('by_fence' in globals(), by_call)") == "(False, 1)"
        kernel.sound()
    finally:
        kernel.run("%ctx config dialect script")


def test_a_replayed_answer_with_a_fence_runs_again(kernel: Bench):
    kernel.run("again = 0")
    kernel.answers(fence("again += 1; print('again', again)"), say("done"))
    kernel.cell("%%ask --mode auto\nincrement", "cell-of-the-replay")
    kernel.run("again = 10")
    ran = kernel.cell("%%ask --mode auto\nincrement", "cell-of-the-replay")

    assert value(kernel, "again") == "11"
    assert FENCED in shown(ran)
    assert len(kernel.server.requests) == 2
