"""The command line, on real notebooks and real kernels: what it prints, what it leaves, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from command_line import ctxkernel
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from ctxkernel._version import __version__
from ctxkernel.cli import _COMMANDS, kernelspec, lab, main
from ctxkernel.cli import doctor as doctor_module
from ctxkernel.cli.output import clip, safe_block, safe_line, show_json, terminal_table
from ctxkernel.cli.read import projection_table, timeline_text
from ctxkernel.core.text import format_duration
from ctxkernel.core.timeline import StatementLog
from ctxkernel.core.timeline_table import changed_names


def write(path: Path, *sources: str, tags: dict[int, list[str]] | None = None) -> Path:
    """Write a notebook of code cells; one whose source starts with `# ` alone is Markdown."""
    cells = [new_code_cell(source) for source in sources]
    for index, given in (tags or {}).items():
        cells[index].metadata["tags"] = given
    nbformat.write(new_notebook(cells=cells), path)
    return path


def statuses(timeline: dict[str, Any]) -> list[str]:
    return [execution["status"] for statement in timeline["statements"] for execution in statement["executions"]]


# ---------------------------------------------------------------- run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A notebook that was run once, for the tests that only read."""
    folder = tmp_path_factory.mktemp("finished")
    notebook = folder / "work of today.ipynb"
    cells = [
        new_markdown_cell("# Work"),
        new_code_cell("a = 1\nb = [1, 2]"),
        new_code_cell(""),
        new_code_cell("b.append(3); print('three'); del a"),
        new_code_cell("b"),
    ]
    nbformat.write(new_notebook(cells=cells), notebook)
    done = ctxkernel("run", notebook.name, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return notebook, json.loads(done.stdout)


def test_run_executes_every_cell_and_prints_the_timeline(finished):
    notebook, timeline = finished
    cells = [cell.id for cell in nbformat.read(notebook, as_version=4).cells]

    assert statuses(timeline) == ["ok", "ok", "ok"]
    assert [s["cell_id"] for s in timeline["statements"]] == [cells[1], cells[3], cells[4]]
    second = timeline["statements"][1]["executions"][0]
    assert second["stdout"] == "three\n"
    assert list(second["state_diff"]["changed"]) == ["b"]
    assert list(second["state_diff"]["deleted"]) == ["a"]


def test_run_leaves_the_notebook_alone_and_its_session_beside_it(finished):
    notebook, timeline = finished

    assert all(not cell.outputs for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code")
    assert timeline["session"]
    assert (notebook.parent / ".ctxkernel" / "work of today.sqlite").is_file()


def test_run_stops_at_the_cell_that_fails_and_shows_why(tmp_path: Path):
    notebook = write(tmp_path / "n.ipynb", "x = 1", "x / 0", "never = 1")

    done = ctxkernel("run", notebook, "--json")

    assert done.returncode == 1
    assert statuses(json.loads(done.stdout)) == ["ok", "error"]
    assert "Cell 2 failed: ZeroDivisionError: division by zero" in done.stderr
    assert "x / 0" in done.stderr
    assert "\x1b" not in done.stderr
    assert "nbclient" not in done.stderr
    assert "Traceback (most recent call last)" in done.stderr  # the cell's, not ours
    assert "ctxkernel/cli" not in done.stderr


def test_run_lets_a_cell_fail_that_says_that_it_may(tmp_path: Path):
    notebook = write(tmp_path / "n.ipynb", "1 / 0", "after = 1", tags={0: ["raises-exception"]})

    done = ctxkernel("run", notebook, "--json")

    assert done.returncode == 0, done.stderr
    assert statuses(json.loads(done.stdout)) == ["error", "ok"]


def test_run_goes_on_after_errors_where_it_may(tmp_path: Path):
    notebook = write(tmp_path / "n.ipynb", "1 / 0", "after = 1", "oops")

    done = ctxkernel("run", notebook, "--json", "--allow-errors")

    assert done.returncode == 0, done.stderr
    assert statuses(json.loads(done.stdout)) == ["error", "ok", "error"]
    assert "2 cells failed: 1, 3" in done.stderr


def test_run_sets_parameters_in_a_cell_of_their_own(tmp_path: Path):
    notebook = write(tmp_path / "n.ipynb", "a = 1; b = 'x'; c = None", "print(a, b, c)", tags={0: ["parameters"]})
    given = ["-p", "a", "2.5", "-p", "b", "it's; import os", "-p", "c", "True"]

    done = ctxkernel("run", notebook, "--json", *given, "--output", tmp_path / "out.ipynb")

    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)["statements"]
    assert [one["kind"] for one in made] == ["parameters", "injected-parameters", "python"]
    assert made[2]["executions"][0]["stdout"] == "2.5 it's; import os True\n"
    out = nbformat.read(tmp_path / "out.ipynb", 4)
    assert out.cells[1].metadata.tags == ["injected-parameters"]
    again = ctxkernel("run", tmp_path / "out.ipynb", "--json", "-p", "a", "7", "-p", "other", "1")
    made = json.loads(again.stdout)["statements"]
    assert [one["source"] for one in made][1:] == ["# Parameters\na = 7\nother = 1", "print(a, b, c)"]
    assert "sets other" in again.stderr
    assert ctxkernel("run", notebook, "-p", "a b", "1").returncode == 2


def test_run_works_in_the_folder_of_the_notebook(tmp_path: Path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "data.txt").write_text("found")
    notebook = write(tmp_path / "below" / "n.ipynb", "print(open('data.txt').read())")

    done = ctxkernel("run", notebook.relative_to(tmp_path), "--json", cwd=tmp_path)

    assert json.loads(done.stdout)["statements"][0]["executions"][0]["stdout"] == "found\n"


def test_run_writes_the_outputs_where_it_is_told_to(tmp_path: Path):
    notebook = write(tmp_path / "n.ipynb", "6 * 7")
    before = notebook.read_bytes()

    elsewhere = ctxkernel("run", notebook, "--output", tmp_path / "done.ipynb")
    untouched = notebook.read_bytes() == before
    in_place = ctxkernel("run", notebook, "--inplace")

    assert (elsewhere.returncode, in_place.returncode, untouched) == (0, 0, True)
    for path in (tmp_path / "done.ipynb", notebook):
        written = nbformat.read(path, as_version=4)
        nbformat.validate(written)
        assert written.cells[0].outputs[0].data["text/plain"] == "42"


def test_run_writes_the_session_where_it_is_told_to(tmp_path: Path):
    notebook = write(tmp_path / "n.ipynb", "kept = 1")

    done = ctxkernel("run", notebook, "--session", tmp_path / "elsewhere.sqlite", "--json")
    read = ctxkernel("timeline", tmp_path / "elsewhere.sqlite", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(read.stdout)
    assert not (tmp_path / ".ctxkernel").exists()


def test_run_ends_a_cell_that_takes_too_long(tmp_path: Path):
    notebook = write(tmp_path / "n.ipynb", "quick = 1", "import time\ntime.sleep(60)", "never = 1")

    began = time.monotonic()
    done = ctxkernel("run", notebook, "--timeout", "1.5", "--json")

    assert done.returncode == 1
    assert statuses(json.loads(done.stdout)) == ["ok", "timeout"]
    assert time.monotonic() - began < 30


@pytest.mark.skipif(os.name != "posix", reason="a signal to another process, as Ctrl-C sends it, needs POSIX")
def test_ctrl_c_cancels_the_cell_and_keeps_the_timeline(tmp_path: Path):
    notebook = write(
        tmp_path / "n.ipynb",
        "import time\nopen('started', 'w').close()\nwhile True:\n    time.sleep(0.05)",
        "never = 1",
    )
    command = [sys.executable, "-m", "ctxkernel", "run", str(notebook), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130, err
    assert statuses(json.loads(out)) == ["cancelled"]
    assert "Traceback" not in err


def test_run_says_when_the_kernel_died(tmp_path: Path):
    notebook = write(tmp_path / "n.ipynb", "before = 1", "import os\nos._exit(3)", "never = 1")

    done = ctxkernel("run", notebook)

    assert done.returncode == 1
    assert "The kernel died in cell 2." in done.stderr
    assert "Traceback" not in done.stderr
    assert "before" in done.stdout  # what ran before it is in the timeline


def test_run_refuses_a_notebook_that_asks(tmp_path: Path):
    """Nobody is there to answer `input()`: the cell fails, it does not hang."""
    done = ctxkernel("run", write(tmp_path / "n.ipynb", "input('name? ')"))

    assert done.returncode == 1
    assert "StdinNotImplementedError" in done.stderr


def test_run_shows_a_hostile_error_without_obeying_it(tmp_path: Path):
    """An escape sequence in a message could retitle the terminal or hide text; it is shown instead."""
    done = ctxkernel("run", write(tmp_path / "n.ipynb", "raise ValueError('\\x1b]0;owned\\x07\\x1b[2J')"))

    assert done.returncode == 1
    assert "\x1b" not in done.stderr + done.stdout
    assert "\x07" not in done.stderr + done.stdout


def test_run_does_not_need_an_installed_kernelspec(finished):
    """The tests run with empty Jupyter folders; a wrong or missing kernelspec changes nothing."""
    assert finished[1]["statements"][0]["executions"][0]["status"] == "ok"


# ---------------------------------------------------------------- timeline and projection


def test_timeline_reads_what_run_printed(finished, capsys: pytest.CaptureFixture[str]):
    notebook, timeline = finished

    assert main(["timeline", str(notebook), "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == timeline


def test_the_keys_of_the_timeline_are_the_promised_ones(finished):
    """Scripts rely on these."""
    timeline = finished[1]
    statement = timeline["statements"][0]

    assert {"session", "head", "statements"} <= timeline.keys()
    assert {
        *("statement_id", "index", "timestamp", "source", "kind", "author", "parent_id", "cell_id", "tags"),
        *("fingerprint", "executions"),
    } <= statement.keys()
    assert {
        *("execution_id", "parent_execution_id", "started_at", "ended_at", "status", "stdout", "stderr", "exception"),
        *("events", "state_diff", "artifacts", "cost"),
    } <= statement["executions"][0].keys()
    assert {"added", "changed", "deleted"} <= statement["executions"][0]["state_diff"].keys()
    assert timeline["head"] == timeline["statements"][-1]["executions"][-1]["execution_id"]


def test_the_timeline_for_people_is_a_table(finished, capsys: pytest.CaptureFixture[str]):
    assert main(["timeline", str(finished[0])]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["at", "author", "status", "time", "checkpoint", "changes", "source"]
    assert lines[1].startswith("s1 ")
    assert "+a +b" in lines[1]
    assert "~b −a" in lines[2]
    assert lines[3].startswith("s3*")
    assert "3 executions, all ok" in lines[-1]


def test_the_keys_of_the_projection_are_the_promised_ones(finished, capsys: pytest.CaptureFixture[str]):
    assert main(["projection", str(finished[0]), "--json"]) == 0

    projection = json.loads(capsys.readouterr().out)
    assert {"request", "blocks", "report", "left_out", "tokens", "receipt"} <= projection.keys()
    assert {"ok", "violations"} <= projection["report"].keys()
    assert {"id", "kind", "origin", "tokens", "cached", "why"} <= projection["blocks"][0].keys()
    assert projection["report"]["ok"]
    assert projection["request"]["messages"][0]["role"] == "user"


def test_the_projection_after_an_earlier_statement_knows_nothing_of_later_ones(
    finished, capsys: pytest.CaptureFixture[str]
):
    notebook = str(finished[0])
    shown = {}
    for number in ("1", "s2"):
        assert main(["projection", notebook, "--json", "--statement", number]) == 0
        shown[number] = json.dumps(json.loads(capsys.readouterr().out)["request"])

    assert "b.append(3)" not in shown["1"]
    assert "b.append(3)" in shown["s2"]


def test_the_projection_for_people_is_a_table(finished, capsys: pytest.CaptureFixture[str]):
    assert main(["projection", str(finished[0])]) == 0

    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["block", "kind", "from", "tokens", "why"]
    assert "every check passed" in out


def test_a_notebook_without_a_session_is_told_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    notebook = write(tmp_path / "n.ipynb", "1")

    assert main(["timeline", str(notebook)]) == 1

    assert f"ctxkernel run {notebook}" in capsys.readouterr().err


def test_what_is_no_session_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    fake = tmp_path / "n.sqlite"
    fake.write_bytes(b"not a database" * 100)

    assert main(["timeline", str(fake)]) == 1

    err = capsys.readouterr().err
    assert str(fake) in err
    assert "Traceback" not in err


def test_reading_executes_nothing_and_writes_nothing(finished, capsys: pytest.CaptureFixture[str]):
    folder = finished[0].parent / ".ctxkernel"
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".sqlite"}

    main(["timeline", str(finished[0])])
    main(["projection", str(finished[0])])

    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".sqlite"} == before


def test_nobody_reading_on_is_no_error(finished):
    """`ctxkernel timeline x.ipynb --json | head -1`"""
    command = [sys.executable, "-m", "ctxkernel", "timeline", str(finished[0]), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()

    assert process.wait(timeout=30) == 0
    assert err == ""


# ---------------------------------------------------------------- arguments that cannot be used

UNUSABLE: dict[str, Sequence[str]] = {
    "no command": [],
    "unknown command": ["dance"],
    "unknown option": ["run", "n.ipynb", "--fast"],
    "run without a notebook": ["run"],
    "run on a notebook that is not there": ["run", "missing.ipynb"],
    "run on a folder": ["run", "."],
    "run on a text file": ["run", "text.ipynb"],
    "run on another language": ["run", "julia.ipynb"],
    "run into a folder that is not there": ["run", "n.ipynb", "--output", "nowhere/out.ipynb"],
    "run with a session in a folder that is not there": ["run", "n.ipynb", "--session", "nowhere/s.sqlite"],
    "a time-out of nothing": ["run", "n.ipynb", "--timeout", "0"],
    "a time-out that is no number": ["run", "n.ipynb", "--timeout", "soon"],
    "two places for the output": ["run", "n.ipynb", "--inplace", "--output", "o.ipynb"],
    "timeline of a notebook that is not there": ["timeline", "missing.ipynb"],
    "timeline of a session that is not there": ["timeline", "n.ipynb", "--session", "missing.sqlite"],
    "projection of no statement": ["projection", "n.ipynb", "--statement", "first"],
    "projection of statement 0": ["projection", "n.ipynb", "--statement", "0"],
    "lab on a notebook that is not there": ["lab", "missing.ipynb"],
    "lab on a text file": ["lab", "notes.txt"],
    "lab on an impossible port": ["lab", "n.ipynb", "--port", "70000"],
    "diff of a notebook that is not there": ["diff", "missing.ipynb", "1", "2"],
    "diff without a statement": ["diff", "n.ipynb"],
    "branches of a notebook that is not there": ["branches", "missing.ipynb"],
    "goto without a statement": ["goto", "n.ipynb"],
    "goto in a notebook that is not there": ["goto", "missing.ipynb", "1"],
    "rerun with a time-out of nothing": ["rerun", "n.ipynb", "1", "--timeout", "0"],
    "verify of a notebook that is not there": ["verify", "missing.ipynb"],
    "gc of a notebook": ["gc", "n.ipynb"],
    "gc with a limit below nothing": ["gc", "--limit", "-1"],
    "a kernelspec name with a slash": ["install", "--name", "a/b"],
    "install into a folder that is not there": ["install", "--prefix", "nowhere"],
    "install into two places": ["install", "--user", "--sys-prefix"],
}


@pytest.mark.parametrize("arguments", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_unusable_arguments_end_with_2_and_a_sentence(
    arguments: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "n.ipynb", "1")
    (tmp_path / "text.ipynb").write_text("once upon a time")
    (tmp_path / "notes.txt").write_text("once upon a time")
    julia = new_notebook(metadata={"kernelspec": {"name": "julia-1.11", "display_name": "Julia", "language": "julia"}})
    nbformat.write(julia, tmp_path / "julia.ipynb")

    assert main(arguments) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.strip()
    assert "Traceback" not in shown.err


def test_an_option_that_a_command_does_not_have_is_refused_with_the_usage_of_the_command(capsys):
    assert main(["gc", "--max", "5"]) == 2
    shown = capsys.readouterr().err
    assert "ctxkernel gc: error: unrecognized arguments: --max 5" in shown
    assert "--limit" in shown


@pytest.mark.parametrize("command", ["", *_COMMANDS])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]):
    assert main([*command.split(), "--help"]) == 0

    assert "usage: ctxkernel" in capsys.readouterr().out


def test_version_says_the_version(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0

    assert capsys.readouterr().out == f"ctxkernel {__version__}\n"


def test_a_fault_of_ours_is_a_sentence_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def broken(*_: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr("ctxkernel.cli.read.open_session", broken)

    assert main(["timeline", str(write(tmp_path / "n.ipynb", "1"))]) == 1

    err = capsys.readouterr().err
    assert "unexpected TypeError: a bug" in err
    assert "CTXKERNEL_DEBUG=1" in err


# ---------------------------------------------------------------- install


def test_install_registers_this_interpreter_by_its_full_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["install", "--prefix", str(tmp_path), "--name", "work", "--display-name", "Work (3.11)"]) == 0

    folder = tmp_path / "share" / "jupyter" / "kernels" / "work"
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"][0] == sys.executable
    assert spec["argv"][-4:] == ["-m", "ctxkernel.kernel", "-f", "{connection_file}"]
    assert spec["display_name"] == "Work (3.11)"
    assert spec["language"] == "python"
    assert {path.name for path in folder.iterdir()} == {
        *("kernel.json", "logo-32x32.png", "logo-64x64.png", "logo-svg.svg"),
    }
    assert sys.executable in capsys.readouterr().out


def test_an_installed_kernelspec_starts_a_ctxkernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from jupyter_client.manager import start_new_kernel

    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    assert main(["install", "--prefix", str(tmp_path), "--name", "work"]) == 0

    manager, client = start_new_kernel(kernel_name="work", cwd=str(tmp_path))
    try:
        info = client.kernel_info(reply=True, timeout=30)["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

    assert info["implementation"] == "ctxkernel"
    assert info["implementation_version"] == __version__


def test_install_for_the_user_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))

    assert main(["install", "--name", "mine"]) == 0

    assert (tmp_path / "kernels" / "mine" / "kernel.json").is_file()


def test_install_into_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Also for root, who may write everywhere: there is a file where Jupyter has a folder."""
    (tmp_path / "share").touch()

    assert main(["install", "--prefix", str(tmp_path)]) == 1

    assert "--user" in capsys.readouterr().err


# ---------------------------------------------------------------- lab


def test_lab_without_jupyterlab_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)

    assert main(["lab", str(write(tmp_path / "n.ipynb", "1"))]) == 1

    assert "jupyter-ctxkernel[lab]" in capsys.readouterr().err


def test_lab_without_a_kernelspec_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(lab, "find_installed", lambda: None)

    assert main(["lab", str(write(tmp_path / "n.ipynb", "1"))]) == 1

    assert "ctxkernel install --sys-prefix" in capsys.readouterr().err


def test_the_tour_of_a_clone_is_opened_where_it_is(tmp_path: Path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "ctxkernel").mkdir()
    (tmp_path / "ctxkernel" / "_version.py").touch()
    tour = write(tmp_path / "notebooks" / "01-tour.ipynb", "1")

    assert lab.find_tour(tmp_path) == tour


def test_elsewhere_the_tour_is_copied_once_with_its_turns_and_never_overwritten(tmp_path: Path):
    copy = lab.find_tour(tmp_path)
    turns = copy.with_suffix(".turns.json")
    assert copy.read_bytes() == lab.packaged_tour().read_bytes()
    assert turns.read_bytes() == lab.packaged_tour().with_suffix(".turns.json").read_bytes()

    copy.write_text("my own notes")
    turns.write_text("my own turns")

    assert lab.find_tour(tmp_path) == copy
    assert copy.read_text() == "my own notes"

    copy.unlink()
    lab.find_tour(tmp_path)

    assert turns.read_text() == "my own turns"


def test_a_notebook_elsewhere_is_served_from_its_own_folder(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there and back"
    given = lab.server_arguments(there / "ä b.ipynb", here, browser=False, port=None, token="t")

    assert f"--ServerApp.root_dir={there}" in given
    assert "--ServerApp.default_url=/lab/tree/%C3%A4%20b.ipynb" in given
    assert "--ServerApp.ip=127.0.0.1" in given


def test_lab_serves_the_notebook_on_loopback_and_asks_for_its_token(tmp_path: Path):
    """The address that is printed works, the same without its token does not, and no process shows the token."""
    write(tmp_path / "n.ipynb", "1")
    (tmp_path / "env").mkdir()
    assert main(["install", "--prefix", str(tmp_path / "env")]) == 0
    # What a person may have set, long ago, for another reason.
    config = tmp_path / "config"
    config.mkdir()
    (config / "jupyter_server_config.json").write_text(
        json.dumps({"ServerApp": {"ip": "0.0.0.0"}, "IdentityProvider": {"token": ""}})
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "log"
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_PATH": str(tmp_path / "env" / "share" / "jupyter"),
    }
    command = [sys.executable, "-m", "ctxkernel", "lab", "n.ipynb", "--no-browser", "--port", str(port)]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=stream, stderr=stream)
    try:
        address = _printed_address(log, process)
        token = address.partition("token=")[2]

        assert address.startswith(f"http://127.0.0.1:{port}/lab/tree/n.ipynb?token=")
        assert len(token) >= 32
        assert _status(f"http://127.0.0.1:{port}/api/contents/n.ipynb?token={token}") == 200
        assert _status(f"http://127.0.0.1:{port}/api/contents/n.ipynb") == 403
        assert token not in _command_lines()
        assert not _listens_elsewhere(port)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _printed_address(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        found = re.search(r"http://\S+token=[0-9a-f]+", log.read_text("utf-8", "replace"))
        if found:
            return found[0]
        assert process.poll() is None, log.read_text("utf-8", "replace")
        time.sleep(0.1)
    raise AssertionError(log.read_text("utf-8", "replace"))


def _status(url: str) -> int:
    end = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30) as reply:
                return reply.status
        except urllib.error.HTTPError as refused:
            return refused.code
        except urllib.error.URLError:  # the address is printed a moment before it is served
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _command_lines() -> str:
    import psutil

    return "\n".join(" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))


def _listens_elsewhere(port: int) -> bool:
    """Return whether the port answers on an address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.2", port)) == 0 if sys.platform == "linux" else False


# ---------------------------------------------------------------- doctor


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with this kernel and this panel, and nothing else."""
    source = Path(__file__).resolve().parent.parent
    share = tmp_path / "share" / "jupyter"
    (share / "labextensions" / "jupyter-ctxkernel").mkdir(parents=True)
    (share / "labextensions" / "jupyter-ctxkernel" / "package.json").write_bytes(
        (source / "ctxkernel" / "lab" / "package.json").read_bytes()
    )
    monkeypatch.setenv("JUPYTER_PATH", str(share))
    monkeypatch.chdir(tmp_path)
    assert main(["install", "--prefix", str(tmp_path)]) == 0
    return share


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    """Return what the doctor said, by name."""
    capsys.readouterr()
    main(["doctor", "--json"])
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_the_doctor_finds_a_healthy_installation_healthy(registered: Path, capsys: pytest.CaptureFixture[str]):
    found = findings(capsys)

    assert {name: check for name, check in found.items() if check["status"] == "fail"} == {}
    assert found["kernel"]["status"] == "ok", found["kernel"]
    assert found["kernelspec"]["status"] == "ok"
    assert found["panel"]["status"] == "ok"
    assert main(["doctor"]) == 0
    assert "The kernel works here." in capsys.readouterr().out


def test_the_doctor_leaves_nothing_behind(registered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))

    main(["doctor"])

    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check that starts a kernel."""
    checks = tuple(pair for pair in doctor_module.CHECKS if pair[0] != "kernel")
    monkeypatch.setattr(doctor_module, "CHECKS", checks)


@pytest.mark.usefixtures("quick")
def test_the_doctor_finds_an_interpreter_that_is_gone(registered: Path, capsys: pytest.CaptureFixture[str]):
    path = registered / "kernels" / "ctxkernel" / "kernel.json"
    spec = json.loads(path.read_text())
    spec["argv"][0] = str(registered / "gone" / "python")
    path.write_text(json.dumps(spec))

    found = findings(capsys)["kernelspec"]

    assert found["status"] == "fail"
    assert "not there any more" in found["detail"]
    assert "ctxkernel install" in found["next"]


@pytest.mark.usefixtures("quick")
def test_the_doctor_finds_a_panel_of_another_version(registered: Path, capsys: pytest.CaptureFixture[str]):
    path = registered / "labextensions" / "jupyter-ctxkernel" / "package.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "0.0.1"}))

    found = findings(capsys)["panel"]

    assert found["status"] == "warn"
    assert "0.0.1" in found["detail"]
    assert __version__ in found["detail"]


@pytest.mark.usefixtures("quick")
def test_the_doctor_finds_a_panel_that_was_switched_off(
    registered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "config" / "labconfig"
    page.mkdir(parents=True)
    (page / "page_config.json").write_text(json.dumps({"disabledExtensions": {"jupyter-ctxkernel": True}}))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))

    found = findings(capsys)["panel"]

    assert found["status"] == "warn"
    assert "jupyter labextension enable" in found["next"]


@pytest.mark.usefixtures("quick")
def test_the_doctor_never_shows_a_key(
    registered: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")

    found = findings(capsys)

    assert "ANTHROPIC_API_KEY set" in found["model key"]["detail"]
    assert "sk-ant-secret" not in json.dumps(found)


def test_the_doctor_says_what_checkpoints_take_and_when_it_is_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CTXKERNEL_CACHE", str(tmp_path))
    (tmp_path / "checkpoints" / ("s" + "0" * 16)).mkdir(parents=True)
    (tmp_path / "checkpoints" / ("s" + "0" * 16) / "000001.pack").write_bytes(b"x" * 100_000)

    fine = doctor_module.check_checkpoints()
    monkeypatch.setenv("CTXKERNEL_QUOTA_GB", "0.00001")
    full = doctor_module.check_checkpoints()

    assert fine.status == "ok"
    assert re.fullmatch(r"10\d\.\d kB of 20\.0 GB in .*checkpoints", fine.detail)
    assert full.status == "warn"
    assert "ctxkernel gc" in full.next_step


def test_the_doctor_tries_the_forked_writer(monkeypatch: pytest.MonkeyPatch):
    tried = doctor_module.check_background()
    monkeypatch.setenv("CTXKERNEL_FORK", "0")
    told_not_to = doctor_module.check_background()

    assert tried.status == "ok"
    assert ("beside" in tried.detail) == sys.platform.startswith("linux")
    assert "CTXKERNEL_FORK" in told_not_to.detail


def test_the_doctor_names_a_secret_that_others_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And makes none: that is the kernel's to do."""
    monkeypatch.setenv("CTXKERNEL_HOME", str(tmp_path))
    none = doctor_module.check_secret()
    assert not list(tmp_path.iterdir())
    (tmp_path / "secret").write_bytes(b"s" * 32)
    (tmp_path / "secret").chmod(0o644)
    shared = doctor_module.check_secret()
    (tmp_path / "secret").chmod(0o600)
    private = doctor_module.check_secret()

    assert (none.status, private.status) == ("ok", "ok")
    if os.name == "posix":
        assert shared.status == "warn"
        assert "chmod 600" in shared.detail
    assert "s" * 32 not in f"{none} {shared} {private}"


def test_the_doctor_says_why_a_kernel_does_not_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernelspec, "kernel_argv", lambda: [sys.executable, "-c", "raise SystemExit('no such luck')"])

    found = doctor_module.check_kernel()

    assert found.status == "fail"
    assert "no such luck" in found.detail


def test_a_check_that_breaks_is_a_warning(monkeypatch: pytest.MonkeyPatch):
    def broken() -> doctor_module.Check:
        raise OSError("disk on fire")

    monkeypatch.setattr(doctor_module, "CHECKS", (("disk", broken),))

    (found,) = doctor_module.run_checks()

    assert found.status == "warn"
    assert "disk on fire" in found.detail


@pytest.mark.parametrize(
    ("text", "numbers"), [("7.4.0", (7, 4, 0)), ("4.2.0rc1", (4, 2, 0)), ("8", (8,)), ("5.0.dev1", (5, 0)), ("", ())]
)
def test_versions_are_compared_by_their_leading_numbers(text: str, numbers: tuple[int, ...]):
    assert doctor_module.version_tuple(text) == numbers


# ---------------------------------------------------------------- what is printed


def test_a_table_is_aligned_and_fits_the_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")

    lines = terminal_table(
        ("", "n", "text"), [("a", "1", "x" * 100), ("bb", "20", "日本")], right=frozenset({1})
    ).splitlines()

    assert lines == ["     n  text", "a    1  " + "x" * 31 + "…", "bb  20  日本"]


def test_text_of_a_cell_cannot_command_the_terminal():
    assert safe_line("a\x1b[2J\nb\u202ec") == "a\\u001b[2J b\\u202ec"
    assert safe_block("a\r\x1b[1m\tb\nc\x07") == "a\n\\u001b[1m\tb\nc\\u0007"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.9994, "999 ms"), (1.2, "1.2 s"), (59.97, "1 min 00 s"), (185, "3 min 05 s"), (7260, "2 h 01 min")],
)
def test_times_are_as_a_person_reads_them(seconds: float, text: str):
    assert format_duration(seconds) == text


def test_clipping_counts_columns():
    assert clip("日本語", 4) == "日…"
    assert clip("abc", 3) == "abc"


def test_colour_is_for_terminals_only(finished, capsys: pytest.CaptureFixture[str]):
    main(["timeline", str(finished[0])])

    assert "\x1b" not in capsys.readouterr().out


def test_a_long_timeline_shows_the_newest_statements_and_how_to_see_all(
    finished, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """`ctxkernel timeline` printed 3.5 MB of a session with 30,000 statements, after 17 seconds."""
    notebook = str(finished[0])
    main(["timeline", notebook])
    whole = capsys.readouterr().out.splitlines()

    monkeypatch.setattr("ctxkernel.cli.read.ROWS", 2)
    main(["timeline", notebook])
    older, _, *rows = capsys.readouterr().out.splitlines()

    assert older == "… 1 older; --rows 3 shows all"
    assert [row.split()[0] for row in rows[:2]] == ["s2", "s3*"]
    assert rows[-1] == whole[-1]  # the summary is that of all
    assert "3 executions, all ok" in rows[-1]
    main(["timeline", notebook, "--rows", "3"])
    assert capsys.readouterr().out.splitlines() == whole
    main(["timeline", notebook, "--json"])
    assert len(json.loads(capsys.readouterr().out)["statements"]) == 3
    assert main(["timeline", notebook, "--rows", "0"]) == 2
    assert "--rows 0: give a whole number from 1" in capsys.readouterr().err


def test_an_empty_session_has_a_sentence():
    text = timeline_text({"session": "id", "head": None, "statements": []}, Path("x.sqlite"), {}, StatementLog())

    assert text == "No statement in this session (x.sqlite)."


def test_names_are_marked_by_what_happened_to_them():
    known = {"added": {"a": {}}, "changed": {"b": {}}, "deleted": ["c"], "incomplete": ""}
    assert changed_names(known) == "+a ~b −c"
    unknown = {"added": {}, "changed": {}, "deleted": [], "incomplete": "still being compared: b"}
    assert changed_names(unknown) == "?"
    assert changed_names(unknown, known | {"added": {}, "deleted": []}) == "~b"


def test_a_red_projection_says_what_is_wrong_and_what_helps():
    text = projection_table(
        {
            "blocks": [{"id": "b1", "kind": "system", "origin": "", "tokens": 9, "cached": False, "why": "always"}],
            "left_out": [{"id": "b2", "why": "over budget"}],
            "report": {"ok": False, "violations": [{"rule": "first-role", "path": "m[0]", "message": "m", "fix": "f"}]},
            "request": {"model": "m"},
            "tokens": 9,
            "receipt": "sha256:0",
        }
    )

    assert "not fit to be sent" in text
    assert "first-role" in text
    assert "over budget" in text


@pytest.mark.parametrize("command", ["timeline", "projection"])
def test_what_is_no_notebook_is_not_told_to_be_run(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "script.py").write_text("x = 1")

    assert main([command, str(tmp_path / "script.py")]) == 2

    assert "give an .ipynb or a .sqlite file" in capsys.readouterr().err


def test_a_run_that_can_keep_no_session_says_which_folder_and_what_to_do(tmp_path: Path):
    """In a shared folder `.ctxkernel` belongs to the user who ran a notebook first."""
    nbformat.write(new_notebook(cells=[new_code_cell("x = 1")]), tmp_path / "note.ipynb")
    (tmp_path / ".ctxkernel").write_text("no folder")

    done = ctxkernel("run", "note.ipynb", cwd=tmp_path)

    assert done.returncode == 1
    assert f"{tmp_path / '.ctxkernel'} cannot be written" in done.stderr
    assert "--session FILE" in done.stderr


def test_json_has_a_text_for_a_number_that_json_does_not_have(capsys):
    show_json({"a": [float("nan"), 1.5], "b": float("-inf")})
    text = capsys.readouterr().out
    assert json.loads(text, parse_constant=pytest.fail) == {"a": ["NaN", 1.5], "b": "-Infinity"}
