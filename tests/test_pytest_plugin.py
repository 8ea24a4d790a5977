"""`pytest --ctx NOTEBOOK`: what passes, what fails and how it is told; run as a user would run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from ctxkernel.agent.recorded import RecordedAsk, Round, ask_key, dump_turns

PLUGINS = ("-p", "ctxkernel.cli.pytest_plugin")
"""By name, and no others: a test must not rest on what is installed."""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def code(source: str, outputs: Sequence[Any] = (), *tags: str) -> Any:
    return new_code_cell(source, outputs=list(outputs), metadata={"tags": list(tags)} if tags else {})


def out(text: str) -> Any:
    return new_output("stream", name="stdout", text=text)


def shown(markdown: str, plain: str, ours: Mapping[str, Any] = MappingProxyType({})) -> Any:
    metadata = {"ctxkernel": dict(ours)} if ours else {}
    return new_output("display_data", {"text/markdown": markdown, "text/plain": plain}, metadata=metadata)


CELL = shown("**the model's cell**\n\n```python\nprint(0)\n```", "the model's cell\nprint(0)", {"note": True})
SAID = shown("It is **0**.", "It is **0**.")
NOTE = new_output("display_data", {"text/plain": "claude: 1 request"}, metadata={"ctxkernel": {"note": True}})


def write(path: Path, *cells: Any) -> Path:
    nbformat.write(new_notebook(cells=list(cells)), path)
    return path


def asks(*questions: str) -> str:
    """Turns in which a model prints the number of each question, with requests that are none of now."""
    made: list[RecordedAsk] = []
    for number, question in enumerate(questions):
        run = {"type": "tool_use", "id": f"toolu_{number}", "name": "run_cell", "input": {"code": f"print({number})"}}
        rounds = (
            Round("sha256:then", "claude-sonnet-5-5", (run,), "tool_use", response_id=f"msg_{number}a"),
            Round(
                "sha256:then",
                "claude-sonnet-5-5",
                ({"type": "text", "text": f"It is **{number}**."},),
                "end_turn",
                response_id=f"msg_{number}b",
            ),
        )
        made.append(RecordedAsk(ask_key(number, question), question, rounds))
    return dump_turns(made)


def ran(pytester: pytest.Pytester, *names: str, process: bool = False) -> pytest.RunResult:
    """Run pytest in a process of its own, or in this one: a second instead of three."""
    given = [option for name in names for option in (("--ctx", name) if name.endswith(".ipynb") else (name,))]
    run = partial(pytester.runpytest_subprocess, timeout=180) if process else pytester.runpytest_inprocess
    return run(*PLUGINS, "-rA", "--ctx-trust", *given)


def test_a_notebook_with_a_recorded_ask_passes_and_its_drift_is_a_warning(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    """A key and a server are there, and neither is used: the server would refuse the connection."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-api03-" + "neverUsed" * 3)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CTXKERNEL_MODE", "off")
    folder = pytester.mkdir("sub")
    (folder / "data.txt").write_text("here", "utf-8")
    write(
        folder / "good.ipynb",
        code("print(open('data.txt').read())\nx = 0.1 + 0.2\nx", [out("here\n")]),
        code("%%ask\nwhat is it?", [CELL, out("0\n"), SAID]),
        code("import time\nprint(time.time())", [out("1.5\n")], "ctx-differs"),
        code("1 / 0", [], "raises-exception"),
    )
    (folder / "good.turns.json").write_text(asks("what is it?"), "utf-8")
    pytester.makepyfile("def test_other(): pass")

    done = ran(pytester, "sub/good.ipynb")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*cell 1*result*not there before*"])
    write(folder / "good.ipynb", *nbformat.read(folder / "good.ipynb", 4).cells[1:])
    done = ran(pytester, "sub/good.ipynb", process=True)
    done.assert_outcomes(passed=1, warnings=1)
    done.stdout.fnmatch_lines(["*the ask of s1: request 1, 2*", "PASSED sub/good.ipynb"])
    assert sorted(path.name for path in folder.iterdir()) == ["data.txt", "good.ipynb", "good.turns.json"]

    strict = ran(pytester, "sub/good.ipynb", "--ctx-strict")
    strict.assert_outcomes(failed=1)
    strict.stdout.fnmatch_lines(["*are not those that were recorded (drift)*"])
    ran(pytester, "sub/good.ipynb", "--ctx-update").assert_outcomes(passed=1)
    ran(pytester, "sub/good.ipynb", "--ctx-strict").assert_outcomes(passed=1)


TURNS = asks("what is it?")
BAD: dict[str, tuple[list[Any], str, str]] = {
    "an output that differs": ([code("print(1)\nprint(2.5)", [out("1\n2.25\n")])], "", "*cell 1*stdout*2.25 → 2.5*"),
    "a missing turn": ([code("%%ask\nwhat else?")], TURNS, "*no recorded turn answers ask 1 ('what else?')*"),
    "no file of turns": ([code("%%ask\nwhat is it?")], "", "*no recorded turn answers ask 1*"),
    "a wrong file": ([code("%%ask\nwhat is it?")], "[1]", "*bad.turns.json is no file of recorded turns*"),
    "a cell that fails": ([code("x = 1"), code("x / 0"), code("print(x)", [out("1\n")])], "", "*Cell 2 failed: Zero*"),
    "an answer that differs": ([code("%%ask\nwhat is it?", [CELL, out("7\n"), SAID])], TURNS, "*cell 1*stdout*7 → 0*"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_fails_the_notebook_and_is_told(pytester: pytest.Pytester, name: str):
    cells, turns, told = BAD[name]
    write(pytester.path / "bad.ipynb", *cells)
    if turns:
        (pytester.path / "bad.turns.json").write_text(turns, "utf-8")

    done = ran(pytester, "bad.ipynb")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([told])
    assert "examine.py" not in done.stdout.str()


def test_a_projection_that_the_api_would_refuse_fails_with_its_block_and_statement(pytester: pytest.Pytester):
    """No notebook should make one; here the check itself is made to say so."""
    write(
        pytester.path / "red.ipynb",
        code(
            "from ctxkernel.history.rules import RuleReport, Violation\n"
            "from ctxkernel.projection.projection_check import ProjectionCheck\n"
            "found = Violation('a_rule', 'messages[0].content[0].text', 'it is red', 'mend it')\n"
            "ProjectionCheck.report = lambda *given: RuleReport(False, (found,))"
        ),
    )

    done = ran(pytester, "red.ipynb")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*would refuse:*", "after s1.1: block * of *: a_rule at *: it is red; mend it"])


def test_notebooks_run_beside_tests_that_are_named_and_in_workers(pytester: pytest.Pytester):
    write(pytester.path / "one.ipynb", code("print('a')", [out("a\n")]))
    write(pytester.path / "two.ipynb", code("print('b')", [out("c\n")]))
    pytester.makepyfile(test_named="def test_it(): pass", test_other="def test_not_asked_for(): assert False")

    done = ran(pytester, "-p", "xdist", "-n2", "one.ipynb", "two.ipynb", "test_named.py", process=True)
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["FAILED two.ipynb*"])


def test_what_is_no_notebook_is_refused_before_anything_runs(pytester: pytest.Pytester):
    done = ran(pytester, "nothing.ipynb")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--ctx nothing.ipynb: there is no such notebook*"])


def test_a_notebook_that_is_not_asked_for_is_no_test_and_nothing_is_imported_for_it(pytester: pytest.Pytester):
    write(pytester.path / "aside.ipynb", code("1 / 0"))
    heavy = ("nbclient", "nbformat", "anthropic", "IPython", "jupyter_client", "ctxkernel.cli.examine", "sqlite3")
    pytester.makepyfile(f"import sys\ndef test_light(): assert not [one for one in {heavy!r} if one in sys.modules]")
    done = ran(pytester, process=True)
    done.assert_outcomes(passed=1)


def test_what_a_person_approved_cell_by_cell_is_compared_with_the_whole_replay(pytester: pytest.Pytester):
    write(
        pytester.path / "by-hand.ipynb",
        code("%%ask\nwhat is it?"),
        code("%ctx approve", [NOTE, CELL, out("0\n"), SAID]),
    )
    (pytester.path / "by-hand.turns.json").write_text(TURNS, "utf-8")
    ran(pytester, "by-hand.ipynb").assert_outcomes(passed=1, warnings=1)
