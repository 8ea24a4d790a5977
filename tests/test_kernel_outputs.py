"""`view("s12")`: what a statement gave, at four levels of detail, under redactions, private names and branches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kernels import RunningKernel

PRINTS = "total = 41 + 1\nprint('first line')\nfor n in range(200): print('row', n)\ntotal"


def timeline(kernel: RunningKernel) -> list[dict[str, Any]]:
    """Return the statements, oldest first."""
    return json.loads(kernel.run("%ctx timeline --json").stdout)["statements"]


def request(kernel: RunningKernel) -> str:
    """Return the whole text of what a model would be sent."""
    return kernel.run("%ctx projection --json").stdout


def test_a_statements_output_is_looked_at_on_all_levels(shared_kernel):
    sid = "s" + str(len(timeline(shared_kernel)) + 1)
    shared_kernel.run(PRINTS)
    shared_kernel.run(f"h = view('{sid}', tokens=160)")

    raw = shared_kernel.run("print(show(h).text)").stdout
    structure = shared_kernel.run("print(show(h, 1).text)").stdout
    summary = shared_kernel.run("print(show(h, 2).text)").stdout
    same = shared_kernel.run("print(show(h, 3).text)").stdout

    assert "[stdout]\nfirst line\nrow 0\n" in raw
    assert "tokens shows more" in raw
    assert f"{sid}.1 · human · ok" in structure
    assert "stdout: 201 lines, 1.5 kB: first line" in structure
    assert "display: 1 line, 2 B: 42" in structure
    assert "changes: + total: int" in structure
    assert "first line" in summary
    assert "no change" in same.lower()


def test_a_rerun_is_another_output_and_the_view_follows(kernel):
    kernel.run("import random; print('drawn', random.random())")
    kernel.run("h = view('s1').run()")
    kernel.run("%ctx rerun 1")
    text = kernel.run("print(h.rendered.text)").stdout
    newest = timeline(kernel)[0]["executions"][-1]

    assert newest["execution_id"] == "s1.2"
    assert newest["stdout"].strip() in text


@pytest.mark.parametrize("target", ["s99", "s1.7"])
def test_a_statement_that_is_not_there_is_refused_with_the_next_move(shared_kernel, target):
    ran = shared_kernel.run(f"view('{target}')")

    assert ran.status == "error"
    assert f"there is no {target} in this timeline" in str(ran.reply["evalue"])


def test_a_file_of_that_name_comes_first(kernel):
    kernel.run("print('a statement'); open('s1', 'w').write('a file\\n')")

    assert kernel.run("print(show(view('s1')).text)").stdout.endswith("\na file\n")


def test_what_is_redacted_or_private_is_in_no_view_of_it_that_a_model_is_sent(kernel):
    kernel.run("secret_name = 7\nfor n in range(300): print('it is under the', 'oak' + ', secret_name', n)")
    kernel.run("h = view('s1').pin(); g = group(h, lod=0); outer = group(g).pin()")
    assert "under the oak" in request(kernel)

    kernel.run("%ctx redact s1 a list of places")
    sent = request(kernel)
    assert "under the oak" not in sent
    assert "s1 is redacted" in sent
    assert "a member of g" in sent
    assert "under the oak" in kernel.run("print(h.rendered.text)").stdout, "the person may look at it"

    kernel.run("%ctx redact --undo 1")
    kernel.run("%ctx private secret_name")
    sent = request(kernel)
    assert "under the oak" in sent
    assert "secret_name" not in sent


def test_a_view_of_another_branch_says_so_and_shows_it_again_there(kernel):
    kernel.run("a = 1")
    kernel.run("print('of the first branch')")
    kernel.run("h = view('s2').run()")
    kernel.run("%ctx goto 1")
    kernel.run("b = 2; h = view('s2').run()")
    there = kernel.run("print(h.rendered.text)").stdout
    kernel.run("%ctx goto 3")
    back = kernel.run("print(h.rendered.text)").stdout

    assert "s2 is on another branch" in there
    assert "of the first branch" in back


def test_a_view_of_a_statement_is_there_after_a_resume(start_kernel):
    first = start_kernel()
    first.run("print('kept')")
    first.run("h = view('s1').run()")
    first.stop()
    again = start_kernel()
    again.run("%ctx resume")

    assert "kept" in again.run("print(h.rendered.text, h.refresh().rendered.text)").stdout
