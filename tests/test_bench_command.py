"""`ctxkernel bench`, as a user calls it: real kernels, the strict server, recorded answers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from bench_answers import RECORDING, solver
from command_line import ctxkernel

from ctxkernel.agent.recorded import load_turns
from ctxkernel.cli import main
from ctxkernel.model_bench.catalogue import TASKS
from ctxkernel.testing import MessagesServer, answer, call, error, say

KEY = "sk-ant-api03-plantedAndNeverToBeSeen0123456789"
MODEL = "claude-sonnet-5-5"


def bench(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return ctxkernel("bench", "--model", MODEL, *arguments, env={"ANTHROPIC_API_KEY": KEY, **env})


def against(server: MessagesServer, *arguments: str | Path, **env: str) -> dict[str, Any]:
    """Run the command with `--json`, and return the results."""
    ran = bench("--base-url", server.base_url, "--json", *arguments, **env)
    assert ran.returncode == 0, ran.stderr
    assert KEY not in ran.stdout + ran.stderr
    assert server.faults == []
    return json.loads(ran.stdout)


def test_solved_unsolved_and_failed_tasks_are_told_apart_with_their_cost(tmp_path: Path):
    solve = solver(lambda task: task.wrong if task.name == "units" else task.solution)

    def script(body: dict[str, Any]) -> Any:
        if TASKS["roman"].question in json.dumps(body):
            return error(400, "the model is broken")
        return solve(body)

    with MessagesServer(script) as server:
        tasks = ("--tasks", "regex,roman,units", "--output", tmp_path / "made.json")
        ran = bench("--base-url", server.base_url, *tasks)
    made = json.loads((tmp_path / "made.json").read_text())

    assert ran.returncode == 0
    assert (made["passed"], made["played"], made["share"]) == (1, 3, 0.3333)
    solved, failed, wrong = [one["runs"][0] for one in made["tasks"]]
    assert (solved["why"], wrong["why"]) == ("", "AssertionError: di")
    assert "the model is broken" in failed["why"]
    assert (solved["rounds"], wrong["rounds"]) == (2, 2)
    answered = [one.usage for one in server.requests if one.status == 200]
    assert solved["tokens_in"] + wrong["tokens_in"] == sum(map(sum_in, answered)) > 0
    assert 0 < made["usd"] < 0.1
    assert re.search(r"regex +passed +2 ", ran.stdout)
    assert re.search(r"units +failed +2 ", ran.stdout)
    assert "1 of 3 runs passed (33%)" in ran.stdout
    assert [line.split()[1] for line in ran.stderr.splitlines()] == ["passed", "failed", "failed"]
    assert KEY not in ran.stdout + ran.stderr
    assert server.faults == []


def sum_in(usage: Any) -> int:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage.get(name) or 0 for name in names)


@pytest.mark.parametrize("fence", ["", "python"])
def test_the_script_dialect_is_played_by_tags_and_by_fenced_blocks(fence: str):
    with MessagesServer(solver(fence=fence)) as server:
        made = against(server, "--dialect", "script", "--tasks", "encoding")

    assert made["dialect"] == "script"
    assert made["passed"] == 1
    assert all("tools" not in one.body for one in server.requests)


def test_each_repetition_counts_and_too_few_that_pass_give_status_1():
    tries = iter([say("I do not know."), say("Nor now.")])
    solve = solver()

    def script(body: dict[str, Any]) -> Any:
        return next(tries, None) or solve(body)

    with MessagesServer(script) as server:
        ran = bench("--base-url", server.base_url, "--tasks", "units", "--repeat", "3", "--at-least", "50%")

    assert ran.returncode == 1
    assert re.search(r"units +1/3 ", ran.stdout)
    assert "33.3% passed, and --at-least asks for 50.0%" in ran.stderr


def test_no_task_begins_after_the_budget_is_spent():
    expensive = answer(call("run_cell", {"code": "fastest, speed = 'bo', 11.0"}), usage={"output_tokens": 100_000})
    with MessagesServer(lambda body: expensive) as server:
        made = against(server, "--tasks", "units,regex", "--budget", "0.5")

    assert made["ended"] == "ended before regex: the budget of $0.5 is spent"
    assert [(one["name"], one["passed"]) for one in made["tasks"]] == [("units", 1)]
    assert len(server.requests) == 1


def test_a_recorded_run_is_replayed_without_a_server(tmp_path: Path):
    with MessagesServer(solver()) as server:
        against(server, "--tasks", "encoding", "--record", tmp_path / "made.turns.json")
    ran = bench("--tasks", "encoding,regex", "--json", "--replay", tmp_path / "made.turns.json")
    made = json.loads(ran.stdout)

    assert [one["passed"] for one in made["tasks"]] == [1, 0]
    assert "no recorded turn" in made["tasks"][1]["runs"][0]["why"]
    assert made["tasks"][0]["runs"][0]["rounds"] == 3
    assert made["usd"] > 0


def test_settings_of_the_user_do_not_count_and_those_of_the_command_do():
    with MessagesServer(solver()) as server:
        against(
            server, "--tasks", "units", "--config", "max_tokens=777", CTXKERNEL_MODE="off", CTXKERNEL_MAX_TOKENS="5"
        )

    assert {one.body["max_tokens"] for one in server.requests} == {777}


def test_a_model_that_never_ends_is_bounded_and_judged_by_the_state():
    with MessagesServer(lambda body: call("run_cell", {"code": "fastest, speed = 'bo', 11.0"})) as server:
        made = against(server, "--tasks", "units", "--max-turns", "2")

    assert made["tasks"][0]["runs"][0]["passed"]
    assert len(server.requests) == 2


def test_a_kernel_that_the_model_kills_costs_its_task_only():
    solve = solver()

    def script(body: dict[str, Any]) -> Any:
        if TASKS["units"].question in json.dumps(body):
            return call("run_cell", {"code": "import os; os._exit(1)"})
        return solve(body)

    with MessagesServer(script) as server:
        made = against(server, "--tasks", "units,regex")

    assert [one["passed"] for one in made["tasks"]] == [0, 1]
    assert "died" in made["tasks"][0]["runs"][0]["why"]


def test_ctrl_c_prints_the_tasks_that_were_played():
    solve = solver()

    def script(body: dict[str, Any]) -> Any:
        if TASKS["regex"].question in json.dumps(body):
            time.sleep(20)
        return solve(body)

    with MessagesServer(script) as server:
        command = [sys.executable, "-m", "ctxkernel", "bench", "--model", MODEL, "--base-url", server.base_url]
        env = {**os.environ, "ANTHROPIC_API_KEY": KEY}
        running = subprocess.Popen(
            [*command, "--tasks", "units,regex,roman"],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 60
        while len(server.requests) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        shown, told = running.communicate(timeout=60)

    assert running.returncode == 130
    assert re.search(r"units +passed", shown)
    assert "interrupted: 1 of 3 runs were played" in shown
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--tasks", "unit"], "there is no task 'unit' (did you mean units?)"),
        (["--tasks", ","], "there is no task"),
        (["--config", "nothing=1"], "write NAME=VALUE with a setting"),
        (["--config", "max_tokens=many"], "max_tokens"),
        (["--replay", "nothing.json"], "nothing.json: No such file"),
        (["--replay", __file__], "is no file of recorded turns"),
        (["--repeat", "0"], "invalid whole number from 1 value: '0'"),
        (["--at-least", "2"], "invalid share value: '2'"),
        (["--budget", "0"], "invalid amount of USD value: '0'"),
        (["--dialect", "both"], "invalid choice: 'both'"),
        (["--budget", "1", "--model", "tiny-local"], "the price of tiny-local is not known"),
        (["--output", "no/such/folder.json"], "there is no folder"),
        (["--record", "no/such/folder.json"], "there is no folder"),
    ],
)
def test_unusable_arguments_give_status_2_and_the_next_step(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["bench", "--model", MODEL, "--base-url", "http://127.0.0.1:9", *given]) == 2
    assert told in capsys.readouterr().err


def test_without_a_server_and_a_key_the_command_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert main(["bench", "--model", MODEL]) == 2
    assert "no model can be asked: give --base-url" in capsys.readouterr().err


def test_the_recorded_run_has_the_tasks_as_they_are():
    """Run `python tests/bench_answers.py` where it differs."""
    recorded = {ask.question: ask for ask in load_turns(RECORDING.read_text(encoding="utf-8"), RECORDING.name)}

    assert set(recorded) == {task.question for task in TASKS.values()}
    for task in TASKS.values():
        blocks = [block for one in recorded[task.question].rounds for block in one.blocks]
        assert tuple(block["input"]["code"] for block in blocks if block["type"] == "tool_use") == task.solution.cells
        assert [block["text"] for block in blocks if block["type"] == "text"] == [task.solution.words]


def test_the_recorded_run_passes_every_task():
    ran = bench("--replay", RECORDING, "--json", "--at-least", "1")

    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert json.loads(ran.stdout)["passed"] == 30


def test_a_question_right_after_a_cell_that_failed_is_asked():
    """For a moment after an error a kernel aborts what comes next."""
    with MessagesServer(solver()) as server:
        made = against(server, "--tasks", "wrong-type", "--repeat", "5")

    assert made["passed"] == 5
