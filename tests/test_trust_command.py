"""`%ctx trust` and `ctxkernel trust`: one word for all that stands beside a notebook, and the ways without a person."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from command_line import ctxkernel
from kernels import StartKernel
from nbformat.v4 import new_code_cell, new_notebook
from test_kernel_asking import bench_in, cell, shown
from test_trust_turns import ASK, QUESTION, Folder, attended, session_of, stranger_turns, waits

from ctxkernel.cli import main
from ctxkernel.testing import say

SETTINGS = 'model = "claude-haiku-5-5"\nview_tokens = 77\n'


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    (tmp_path / "ctxkernel.toml").write_text(SETTINGS + f"# {tmp_path}\n")
    nbformat.write(new_notebook(cells=[new_code_cell(ASK)]), tmp_path / "note.ipynb")
    return made


def states(path: Path, *options: str) -> dict[str, str]:
    done = ctxkernel("trust", path, "--list", "--json", *options)
    assert done.returncode == 0
    return {one["kind"]: one["state"] for one in json.loads(done.stdout)}


# -- the command line ----------------------------------------------------------------------------------


def test_a_file_of_turns_is_shown_with_its_code_and_then_trusted(folder: Folder, capsys: pytest.CaptureFixture[str]):
    assert states(folder.turns) == {"turns": "untrusted"}
    assert main(["trust", str(folder.turns)]) == 0
    out, err = capsys.readouterr()
    assert "1 cell" in out
    assert QUESTION in out
    assert str(folder.marker) in out, "the code is shown"
    assert "trusted, as long as nobody changes it" in err
    assert states(folder.turns) == {"turns": "trusted"}
    assert main(["trust", "--list"]) == 0
    assert str(folder.turns)[-20:] in capsys.readouterr().out
    assert main(["trust", str(folder.turns), "--revoke"]) == 0
    assert "not trusted any more" in capsys.readouterr().err
    assert states(folder.turns) == {"turns": "untrusted"}


def test_a_notebook_means_all_that_stands_beside_it(folder: Folder, start_kernel: StartKernel):
    notebook = folder.path / "note.ipynb"
    assert states(notebook) == {"turns": "untrusted", "settings": "untrusted"}
    assert ctxkernel("trust", str(notebook)).returncode == 0
    kernel = start_kernel()
    assert "claude-haiku-5-5" in shown(kernel.run("%ctx model"))
    kernel.run(ASK)
    assert folder.ran
    kernel.stop()
    assert states(notebook) == {"turns": "trusted", "settings": "trusted", "session": "yours"}
    assert ctxkernel("trust", str(notebook), "--revoke").returncode == 0
    assert set(states(notebook).values()) == {"untrusted"}


def test_the_list_shows_what_a_word_would_allow_and_gives_none(folder: Folder):
    out = ctxkernel("trust", str(folder.path / "note.ipynb"), "--list").stdout
    assert "sets model = claude-haiku-5-5" in out
    assert "view_tokens" not in out, "this needs no trust"
    assert set(states(folder.path / "note.ipynb").values()) == {"untrusted"}


def test_the_turns_of_the_package_are_known_and_stay_trusted():
    turns = Path(__file__).resolve().parent.parent / "notebooks" / "01-tour.turns.json"
    assert states(turns) == {"turns": "shipped"}
    assert ctxkernel("trust", str(turns)).returncode == 0
    assert ctxkernel("trust", str(turns), "--revoke").returncode == 1
    assert states(turns) == {"turns": "shipped"}


@pytest.mark.parametrize(
    ("name", "content", "status", "told"),
    [
        ("none.ipynb", None, 2, "there is no such file"),
        ("data.csv", b"a", 2, "give a notebook, a session"),
        ("x.turns.json", b"{", 1, "cannot be trusted"),
        ("x.turns.json", b"\xff", 1, "cannot be trusted"),
        ("ctxkernel.toml", b"[", 1, "cannot be trusted"),
        ("ctxkernel.toml", b"x = " + b"[" * 100_000, 1, "cannot be trusted"),
        ("x.sqlite", b"no database", 1, "cannot be trusted"),
        ("x.sqlite", b"", 1, "cannot be trusted"),
    ],
)
def test_what_cannot_be_trusted_is_said_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: Any, status: int, told: str
):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert main(["trust", str(tmp_path / name)]) == status
    assert told in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ([name] if content is not None else [])


def test_without_a_path_and_without_a_list_the_command_says_what_it_needs(capsys: pytest.CaptureFixture[str]):
    assert main(["trust"]) == 2
    assert "--list" in capsys.readouterr().err


def test_control_characters_of_a_strangers_file_do_not_reach_the_terminal(tmp_path: Path):
    turns = tmp_path / "x.turns.json"
    turns.write_text(stranger_turns("a = 1\x1b[2J\u202e"), "utf-8")
    out = ctxkernel("trust", str(turns), "--list").stdout
    assert "\x1b" not in out
    assert "\u202e" not in out


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_without_a_secret_nothing_can_be_trusted(folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    home = folder.path / "home"
    monkeypatch.setenv("CTXKERNEL_HOME", str(home))
    home.mkdir()
    (home / "secret").write_bytes(b"x" * 32)
    (home / "secret").chmod(0o644)
    assert main(["trust", str(folder.turns)]) == 1
    assert "chmod 600" in capsys.readouterr().err
    assert states(folder.turns) == {"turns": "untrusted"}


# -- in the notebook -----------------------------------------------------------------------------------


def test_the_command_in_the_notebook_trusts_what_is_beside_it_at_once(folder: Folder, start_kernel: StartKernel):
    kernel = start_kernel()
    first = kernel.run("1")
    assert "model not used" in first.stderr
    assert f"ctxkernel trust {folder.path / 'ctxkernel.toml'}" in first.stderr
    listed = shown(kernel.run("%ctx trust --list"))
    assert str(folder.marker) in listed
    assert "ctxkernel trust" in kernel.run(ASK).error["evalue"]

    told = shown(kernel.run("%ctx trust"))
    assert "trusted, as long as nobody changes it" in told
    assert "claude-haiku-5-5" in shown(kernel.run("%ctx model"))
    assert kernel.run(ASK).status == "ok"
    assert folder.ran
    assert "not trusted any more" in shown(kernel.run(f"%ctx trust {folder.turns} --revoke"))
    folder.marker.unlink()
    kernel.run(ASK, metadata={"cellId": "x"})
    assert not folder.ran


@pytest.mark.parametrize("line", ["a b", "--all", "none.toml", "note.py", "--list --revoke"])
def test_the_command_in_the_notebook_says_what_it_takes(shared_kernel: Any, line: str):
    (shared_kernel.folder / "note.py").touch()
    assert shared_kernel.run(f"%ctx trust {line}").status == "error"


def test_a_cell_of_the_model_cannot_trust(tmp_path: Path):
    with bench_in(tmp_path, CTXKERNEL_MODE="auto") as bench:
        bench.answers([cell("%ctx trust")], say("done"))
        ran = bench.ask("trust it")
    assert "only a person can" in shown(ran)


# -- sessions ------------------------------------------------------------------------------------------


@pytest.fixture
def stranger(tmp_path: Path, start_kernel: StartKernel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of another user, who has variables and an answered ask in his session."""
    folder = tmp_path / "work"
    folder.mkdir()
    with bench_in(folder, CTXKERNEL_HOME=str(tmp_path / "theirs"), CTXKERNEL_MODE="auto") as bench:
        bench.run("x = [1, 3]")
        bench.answers([cell("n = sum(x)")], say("done"))
        bench.run("%%ask\nadd x")
        bench.run("%ctx config ask_rounds 3")
    return folder


RECORDED = {"CTXKERNEL_ANSWERS": "recorded"}


@pytest.mark.parametrize("way", ["ctxkernel trust", "%ctx trust", "%ctx resume --trust"])
def test_a_strangers_session_is_trusted_with_its_states_and_its_answers(
    stranger: Path, start_kernel: StartKernel, way: str
):
    session = session_of(stranger)
    listed = ctxkernel("trust", str(session), "--list").stdout
    assert "which can run any code" in listed
    assert "n = sum(x)" in listed
    assert "ask_rounds = 3" in listed
    assert states(session) == {"session": "untrusted"}

    if way == "ctxkernel trust":
        assert ctxkernel("trust", str(session)).returncode == 0
    kernel = start_kernel(stranger, env=RECORDED)
    if way == "%ctx trust":
        assert f"ctxkernel trust {session}" in kernel.run("%ctx resume").error["evalue"]
        assert "which can run any code" in shown(kernel.run("%ctx trust"))
    assert kernel.run(way if "resume" in way else "%ctx resume").status == "ok"
    assert kernel.run("x").data[-1]["text/plain"] == "[1, 3]"
    kernel.run("del n", metadata={"cellId": "a"})
    kernel.run("%ctx goto s1")
    assert kernel.run("%%ask\nadd x").status == "ok"
    assert kernel.run("n").data[-1]["text/plain"] == "4"
    kernel.stop()
    assert states(session) == {"session": "yours"}


def test_an_ask_of_a_strangers_session_waits_for_a_yes(stranger: Path, start_kernel: StartKernel):
    kernel = start_kernel(stranger, env={**RECORDED, "CTXKERNEL_MODE": "auto"})
    kernel.run("x = [2, 2, 2]")
    assert f"ctxkernel trust {session_of(stranger)}" in kernel.run("%%ask\nadd x").error["evalue"]
    assert waits(attended(kernel, "%%ask\nadd x"))
    assert kernel.run("'n' in globals()").data[-1]["text/plain"] == "False"
    assert attended(kernel, "%ctx approve").status == "ok"
    assert kernel.run("n").data[-1]["text/plain"] == "6"


def test_an_ask_of_a_strangers_session_replays_in_a_run_that_trusts_it(stranger: Path):
    cells = [new_code_cell("x = [2, 2, 2]"), new_code_cell("%%ask\nadd x"), new_code_cell("print(n)")]
    nbformat.write(new_notebook(cells=cells), stranger / "note.ipynb")

    refused = ctxkernel("run", "note.ipynb", cwd=stranger, env=RECORDED)
    assert f"ctxkernel trust {session_of(stranger)}" in refused.stderr
    assert ctxkernel("run", "note.ipynb", "--trust", cwd=stranger, env=RECORDED).returncode == 0


def test_a_run_that_resumes_with_trust_loads_a_strangers_state(stranger: Path):
    session = session_of(stranger)
    nbformat.write(
        new_notebook(cells=[new_code_cell("x = [1, 3]"), new_code_cell("print(x)")]), stranger / "note.ipynb"
    )
    command = ["run", "note.ipynb", "--session", session, "--resume"]

    refused = ctxkernel(*command, cwd=stranger)
    assert refused.returncode == 1
    assert f"ctxkernel trust {session}" in refused.stderr
    assert states(session) == {"session": "untrusted"}, "without the word nothing is trusted"
    done = ctxkernel(*command, "--trust", cwd=stranger)
    assert done.returncode == 0, done.stderr
    assert states(session) == {"session": "yours"}


def test_trust_in_a_session_is_revoked(stranger: Path, start_kernel: StartKernel):
    session = session_of(stranger)
    assert ctxkernel("trust", str(session)).returncode == 0
    assert states(session) == {"session": "yours"}
    assert ctxkernel("trust", str(session), "--revoke").returncode == 0
    assert states(session) == {"session": "untrusted"}
    kernel = start_kernel(stranger, env=RECORDED)
    assert kernel.run("%ctx resume").status == "error"
    assert "ctxkernel trust" in kernel.run("%%ask\nadd x").error["evalue"]


def test_a_session_that_a_kernel_uses_is_trusted_there(stranger: Path, start_kernel: StartKernel, capsys: Any):
    kernel = start_kernel(stranger)
    kernel.run("1")
    assert main(["trust", str(session_of(stranger))]) == 1
    assert "%ctx trust" in capsys.readouterr().err
    assert [path.name for path in (stranger / ".ctxkernel").glob("*.sqlite")] == [session_of(stranger).name]


def test_a_kernel_that_the_user_started_on_a_strangers_session_does_not_make_it_hers(
    stranger: Path, start_kernel: StartKernel
):
    kernel = start_kernel(stranger)
    kernel.run("mine = 1")
    kernel.stop()
    assert states(session_of(stranger)) == {"session": "untrusted"}
    assert ctxkernel("trust", str(session_of(stranger))).returncode == 0
    assert states(session_of(stranger)) == {"session": "yours"}


def test_rows_that_a_stranger_adds_after_the_word_are_not_trusted(stranger: Path, start_kernel: StartKernel):
    session = session_of(stranger)
    assert ctxkernel("trust", str(session)).returncode == 0
    with contextlib.closing(sqlite3.connect(session)) as connection:
        connection.execute(
            "INSERT INTO marks (run, at, subject, mark, value, hash) VALUES (1, 1.0, 'mode', 'setting', '\"auto\"', 0)"
        )
        connection.commit()
    kernel = start_kernel(stranger)
    assert kernel.run("%ctx resume").status == "error"


# -- without a person ----------------------------------------------------------------------------------


def test_a_run_fails_with_the_flag_to_say_and_runs_with_it(folder: Folder):
    refused = ctxkernel("run", "note.ipynb", cwd=folder.path)
    assert refused.returncode == 1
    assert f"ctxkernel trust {folder.turns}" in refused.stderr
    assert "--trust" in refused.stderr
    assert not folder.ran
    trusted = ctxkernel("run", "note.ipynb", "--trust", cwd=folder.path)
    assert trusted.returncode == 0, trusted.stderr
    assert folder.ran
    assert states(folder.turns) == {"turns": "untrusted"}, "only this run trusted it"


CLIENT = (
    "import nbformat, nbclient; nb = nbformat.read('note.ipynb', 4); "
    "nbclient.NotebookClient(nb, allow_errors={errors}).execute(); print(nb.cells[0].outputs)"
)


def test_nbclient_gets_an_error_that_names_the_file_and_the_command(folder: Folder, tmp_path: Path):
    spec = tmp_path / "share" / "kernels" / "ctxkernel"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ctxkernel.kernel", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "c", "language": "python"}))
    notebook = new_notebook(cells=[new_code_cell(ASK), new_code_cell("%ctx approve")])
    notebook.metadata["kernelspec"] = {"name": "ctxkernel", "display_name": "c", "language": "python"}
    nbformat.write(notebook, folder.path / "note.ipynb")
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    environ |= {"JUPYTER_PATH": str(tmp_path / "share"), "CTXKERNEL_MODE": "auto"}

    def run(errors: bool) -> Any:
        command = [sys.executable, "-c", CLIENT.format(errors=errors)]
        return subprocess.run(
            command, cwd=folder.path, env=environ, capture_output=True, text=True, check=False, timeout=120
        )

    failed = run(False)
    assert failed.returncode != 0
    assert f"ctxkernel trust {folder.turns}" in failed.stderr
    assert not folder.ran
    assert "ctxkernel trust" in run(True).stdout
    assert not folder.ran, "an approval in the notebook approves nothing that nobody saw"
    folder.trust()
    assert run(False).returncode == 0
    assert folder.ran


def test_a_notebook_is_tested_with_trusted_turns_only(folder: Folder, pytester: pytest.Pytester, monkeypatch: Any):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in ("note.ipynb", "note.turns.json"):
        (pytester.path / name).write_bytes((folder.path / name).read_bytes())
    given = ("-p", "ctxkernel.cli.pytest_plugin", "-p", "no:cacheprovider", "--ctx", "note.ipynb")
    refused = pytester.runpytest_subprocess(*given, timeout=120)
    refused.assert_outcomes(failed=1)
    refused.stdout.fnmatch_lines(["*ctxkernel trust*"])
    assert not folder.ran
    folder.trust()
    pytester.runpytest_subprocess(*given, timeout=120).assert_outcomes(passed=1, warnings=1)
    assert folder.ran
