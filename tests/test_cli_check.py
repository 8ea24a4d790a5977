"""`ctxkernel check`, through the real command line: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxkernel.cli import check, main

MODEL = "claude-sonnet-5-5"
BETA = "mid-conversation-system-clear-at-2026-08-21"
GOOD: dict[str, Any] = {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": "go on"}]}
BLANK = {**GOOD, "messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]}
PREFILL = {**GOOD, "messages": [*GOOD["messages"], {"role": "assistant", "content": "so"}]}
CLEARED = {**GOOD, "messages": [*GOOD["messages"], {"role": "system", "content": "s", "clear_at": "next_user_message"}]}


def write(path: Path, *bodies: object) -> str:
    path.write_text("\n".join(json.dumps(body) for body in bodies), encoding="utf-8")
    return str(path)


def read(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_good_request_is_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", write(tmp_path / "body.json", GOOD)]) == 0

    assert capsys.readouterr().out == f"ok · {MODEL}\n"


def test_a_violation_is_shown_with_its_path_and_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", write(tmp_path / "body.json", BLANK)]) == 1

    assert capsys.readouterr().out.splitlines() == [
        f"1 violation · {MODEL}",
        "  messages[0].content[0] · blank_text: text content blocks must contain non-whitespace text",
        "    fix: leave the block out, or say `(empty)`",
    ]


def test_standard_input_is_read_in_a_process_of_its_own():
    command = [sys.executable, "-m", "ctxkernel", "check", "-", "--json"]

    done = subprocess.run(command, input=json.dumps(BLANK), capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout) == {
        "ok": False,
        "requests": [
            {
                "line": 1,
                "model": MODEL,
                "known": True,
                "ok": False,
                "violations": [
                    {
                        "rule": "blank_text",
                        "path": "messages[0].content[0]",
                        "message": "text content blocks must contain non-whitespace text",
                        "fix": "leave the block out, or say `(empty)`",
                    }
                ],
            }
        ],
    }


def test_several_requests_stand_one_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Empty lines do not count, and a line separator within a text ends no line."""
    lines = [json.dumps(GOOD), "", json.dumps({**GOOD, "system": "a\u2028b"}, ensure_ascii=False), json.dumps(BLANK)]
    path = tmp_path / "bodies.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    assert main(["check", str(path), "--json"]) == 1
    assert [(one["line"], one["ok"]) for one in read(capsys)["requests"]] == [(1, True), (3, True), (4, False)]
    assert main(["check", str(path)]) == 1
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("line")] == [
        f"line 1: ok · {MODEL}",
        f"line 3: ok · {MODEL}",
        f"line 4: 1 violation · {MODEL}",
    ]


def test_a_body_may_stand_on_many_lines(tmp_path: Path):
    (tmp_path / "body.json").write_text("\ufeff" + json.dumps(GOOD, indent=2), encoding="utf-8")

    assert main(["check", str(tmp_path / "body.json")]) == 0


def test_the_rules_are_those_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path / "body.json", PREFILL)

    assert main(["check", path]) == 1
    assert main(["check", path, "--model", "claude-haiku-4-5"]) == 0
    capsys.readouterr()
    assert main(["check", path, "--model", "llama"]) == 1
    assert "llama is unknown: checked as the strictest model" in capsys.readouterr().out


def test_a_beta_opens_its_fields(tmp_path: Path):
    path = write(tmp_path / "body.json", CLEARED)

    assert main(["check", path]) == 1
    assert main(["check", path, "--beta", "other-2026-01-01", "--beta", BETA]) == 0
    assert main(["check", path, "--beta", f"other-2026-01-01, {BETA}"]) == 0


@pytest.mark.parametrize("body", [[], 7, None, "text", {"model": ["x"]}], ids=repr)
def test_what_is_no_body_breaks_a_rule(body: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", write(tmp_path / "body.json", body), "--json"]) == 1

    assert read(capsys)["requests"][0]["violations"][0]["rule"] == "shape"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"hello", "is not JSON: Expecting value at line 1, column 1"),
        (b'{\n  "model": "m",\n  oops\n}', "is not JSON: Expecting property name enclosed in double quotes at line 3"),
        (b'{"a": 1}\n{"a": }', "is not JSON Lines: Expecting value at line 2, column 7"),
        (b'{"a": "\xff"}', "is not UTF-8 at byte 7"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "a number in it is too long"),
        (b'{"cells": [], "nbformat": 4}', "is a notebook, not the body of a request"),
    ],
    ids=["empty", "blank", "text", "syntax", "second line", "latin", "deep", "digits", "notebook"],
)
def test_what_is_not_json_is_unusable(content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "body.json").write_bytes(content)

    assert main(["check", str(tmp_path / "body.json")]) == 2

    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("name", ["work.ipynb", "work.sqlite"])
def test_a_notebook_or_a_session_is_told_the_next_move(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / name).write_text("{}")

    assert main(["check", str(tmp_path / name)]) == 2

    assert f"`ctxkernel projection {tmp_path / name}` shows and checks one" in capsys.readouterr().err


def test_a_file_that_is_not_there_or_is_a_folder_is_unusable(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", str(tmp_path / "none.json")]) == 2
    assert main(["check", str(tmp_path)]) == 2

    assert capsys.readouterr().err.count("cannot be read") == 2


def test_no_more_is_read_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(check, "LIMIT", 1_000_000)
    (tmp_path / "body.json").write_bytes(b'"' + b"x" * 1_000_000 + b'"')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" " * 1_000_001)))

    assert main(["check", str(tmp_path / "body.json")]) == 2
    assert main(["check", "-"]) == 2

    assert capsys.readouterr().err.count("has more than 1 MB") == 2


def test_only_so_many_violations_are_shown_and_all_are_in_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path / "body.json", {**GOOD, "messages": [{"role": "user", "content": [{"type": "text"}] * 300}]})

    assert main(["check", path]) == 1
    shown = capsys.readouterr().out
    assert main(["check", path, "--json"]) == 1

    count = len(read(capsys)["requests"][0]["violations"])
    assert count >= 300
    assert shown.splitlines()[-1] == f"  and {count - 20} more; --json has all"


def test_a_terminal_obeys_nothing_of_a_body(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    calls = [{"role": "assistant", "content": [{"type": "tool_use", "id": "\x1b[2J", "name": "run", "input": {}}]}]
    body = {**GOOD, "model": "\x1b[31m", "messages": [*GOOD["messages"], *calls]}

    assert main(["check", write(tmp_path / "body.json", body)]) == 1

    assert "\x1b" not in capsys.readouterr().out
