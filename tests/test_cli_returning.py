"""Branches, differences, returns and re-runs from the command line, on real sessions and real kernels."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from command_line import ctxkernel
from kernels import RunningKernel, starter
from nbformat.v4 import new_code_cell, new_notebook

from ctxkernel.cli import main
from ctxkernel.cli.continuation import CodeCell, continuation
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.store.chunks import data_folder
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.testing import MessagesServer, call, say

CELLS = (
    "a = 1",
    "b = [a, 2]; h = view(b)",
    "b.append(3); a = 5; print(len(b))",
    "%ctx checkpoint fitted",
    "%ctx goto 2",
    "c = b; print(len(c))",
    "h.lod = 2",
)
"""Statements s1 to s7: a branch that ends at s4, and one with HEAD that goes on after s2."""


def write(path: Path, *sources: str) -> Path:
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources]), path)
    return path


def edit(path: Path, index: int, source: str) -> None:
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[index].source = source
    nbformat.write(notebook, path)


def session_of(notebook: Path) -> Path:
    return notebook.parent / ".ctxkernel" / f"{notebook.stem}.sqlite"


def rows_of(path: Path) -> list[str]:
    """Return all rows of a session, to see whether any was added."""
    with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as connection:
        return list(connection.iterdump())


def ran(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Run a command here; return (status, standard output, standard error)."""
    capsys.readouterr()
    status = main([str(each) for each in arguments])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


@contextmanager
def kernel_in(folder: Path) -> Iterator[RunningKernel]:
    with contextmanager(starter)(folder) as start:
        yield start()


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook whose session has two branches; for the tests that only read."""
    folder = tmp_path_factory.mktemp("branched")
    notebook = write(folder / "note.ipynb", *CELLS)
    with kernel_in(folder) as kernel:
        for cell in CELLS:
            done = kernel.run(cell)
            assert done.status == "ok", (cell, done.outputs)
    return notebook


# ---------------------------------------------------------------- reading


def test_branches_lists_where_each_one_ends_and_what_it_shares(branched: Path, capsys):
    status, out, _ = ran(capsys, "branches", branched, "--json")

    told = json.loads(out)
    assert status == 0
    assert told["head"] == "s7.1"
    assert told["names"] == {"fitted": "s3.1"}
    assert told["branches"] == [
        {"leaf": "s4.1", "fork": "s2.1", "statements": ["s3", "s4"], "head": False},
        {"leaf": "s7.1", "fork": "s2.1", "statements": ["s6", "s7"], "head": True},
    ]


def test_the_branches_for_people_are_a_table(branched: Path, capsys):
    status, out, _ = ran(capsys, "branches", branched)

    lines = out.splitlines()
    assert status == 0
    assert lines[0].split() == ["ends", "at", "since", "statements", "names", "last"]
    assert lines[1].split()[:4] == ["s4.1", "s2.1", "2", "fitted"]
    assert lines[2].startswith("s7.1*")


def test_the_timeline_marks_what_head_did_not_come_by(branched: Path, capsys):
    _, out, _ = ran(capsys, "timeline", branched)

    first = [line.split()[0] for line in out.splitlines()[1:8]]
    assert first == ["s1", "s2", "(s3)", "(s4)", "(s5)", "s6", "s7*"]
    assert "(…) is on another branch" in out


def test_the_timeline_says_which_states_can_be_returned_to_and_their_names(branched: Path, capsys):
    _, out, _ = ran(capsys, "timeline", branched)

    lines = {line.split()[0]: line for line in out.splitlines()[1:8]}
    assert "durable" in lines["s1"]
    assert "fitted, durable" in lines["(s3)"]
    assert "durable" not in lines["(s5)"]


def test_diff_compares_two_states_by_their_names(branched: Path, capsys):
    status, out, _ = ran(capsys, "diff", branched, "fitted", "6", "--json")

    told = json.loads(out)
    assert status == 0
    assert (told["from"], told["to"]) == ("s3.1", "s6.1")
    assert told["namespace"] == {
        "added": [{"name": "c", "told": "list [1, 2]"}],
        "changed": [{"name": "a", "told": "int 5 → 1"}, {"name": "b", "told": "list [1, 2, 3] → [1, 2]"}],
        "deleted": [],
    }


def test_diff_with_one_statement_compares_it_with_head(branched: Path, capsys):
    status, out, _ = ran(capsys, "diff", branched, "s6")

    assert status == 0
    assert out.splitlines()[0] == "s6 → HEAD"
    assert "handle h: lod 0 → 2" in out


def test_a_state_has_no_difference_with_itself(branched: Path, capsys):
    assert ran(capsys, "diff", branched, "2", "s2.1")[1].splitlines()[1] == "no difference"


def test_all_names_are_new_since_the_start(branched: Path, capsys):
    told = json.loads(ran(capsys, "diff", branched, "0", "2", "--json")[1])

    assert told["from"] is None
    assert [one["name"] for one in told["namespace"]["added"]] == ["a", "b", "h"]
    assert [one["how"] for one in told["handles"]] == ["added"]


def test_reading_the_tree_starts_no_kernel_and_writes_nothing(branched: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    before = rows_of(session_of(branched))
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **named: pytest.fail("a process was started"))

    assert ran(capsys, "branches", branched)[0] == 0
    assert ran(capsys, "diff", branched, "1", "3")[0] == 0
    assert ran(capsys, "verify", branched)[0] == 0

    assert rows_of(session_of(branched)) == before


NO_PLACE = {
    "diff with a statement that is not there": ["diff", "99"],
    "diff with something else": ["diff", "first"],
    "goto a statement that is not there": ["goto", "99"],
    "goto a run that is not there": ["goto", "s1.7"],
    "goto before the start": ["goto", "0", "--before"],
    "rerun from the start": ["rerun", "0"],
    "rerun backwards": ["rerun", "3..1"],
    "rerun across branches": ["rerun", "3..6"],
}


@pytest.mark.parametrize("arguments", NO_PLACE.values(), ids=NO_PLACE.keys())
def test_what_is_no_place_is_refused_before_a_kernel_is_started(branched: Path, arguments: list[str], capsys):
    began = time.monotonic()

    status, out, err = ran(capsys, arguments[0], branched, *arguments[1:])

    assert status == 2
    assert out == ""
    assert err.startswith(f"ctxkernel {arguments[0]}: ")
    assert "Traceback" not in err
    assert time.monotonic() - began < 5


def test_a_session_that_a_kernel_has_open_is_left_to_it(tmp_path: Path, capsys):
    notebook = write(tmp_path / "note.ipynb", "a = 1")
    with kernel_in(tmp_path) as kernel:
        kernel.run("a = 1")
        for command in (["goto", notebook, "1"], ["rerun", notebook, "1"], ["run", notebook, "--resume"]):
            status, _, err = ran(capsys, *command)

            assert status == 1
            assert "is in use by a running kernel (pid " in err
            assert "%ctx" in err
        # A plan changes nothing, so it may be asked for.
        assert ran(capsys, "goto", notebook, "0", "--dry-run")[0] == 0
        assert kernel.run("assert a == 1").status == "ok"


# ---------------------------------------------------------------- going back and running again


def test_goto_returns_and_the_next_kernel_is_there(tmp_path: Path, capsys):
    notebook = write(tmp_path / "n.ipynb", "a = 1", "b = [a]", "b.append(2); a = 2")
    assert ran(capsys, "run", notebook)[0] == 0

    status, out, err = ran(capsys, "goto", notebook, "2")

    assert status == 0, err
    assert out.startswith("at s2: ")
    told = json.loads(ran(capsys, "branches", notebook, "--json")[1])
    assert told["head"] == "s2.1"
    write(tmp_path / "n.ipynb", "assert (a, b) == (1, [1])")
    done = ctxkernel("run", notebook, env={"CTXKERNEL_RESUME": "1"})
    assert done.returncode == 0, done.stderr


def test_goto_before_and_goto_a_name_are_places_too(tmp_path: Path, capsys):
    notebook = write(tmp_path / "n.ipynb", "a = 1", "%ctx checkpoint good", "a = 2")
    assert ran(capsys, "run", notebook)[0] == 0
    heads = []
    for arguments in (["3", "--before"], ["good"], ["0"]):
        status, out, err = ran(capsys, "goto", notebook, *arguments, "--json")
        assert status == 0, err
        heads.append(json.loads(out)["head"])

    assert heads == ["s2.1", "s1.1", None]


def test_a_dry_run_shows_the_plan_and_leaves_the_session_as_it_is(tmp_path: Path, capsys):
    notebook = write(tmp_path / "n.ipynb", "a = 1", "a = 2")
    assert ran(capsys, "run", notebook)[0] == 0
    before = rows_of(session_of(notebook))

    plans = [ran(capsys, *command, "--dry-run") for command in (["goto", notebook, "1"], ["rerun", notebook, "1"])]
    as_json = ran(capsys, "goto", notebook, "1", "--dry-run", "--json")

    assert [status for status, _, _ in plans] == [0, 0], plans
    assert all(out.strip() for _, out, _ in plans)
    assert as_json[0] == 0
    assert json.loads(as_json[1])["session"]
    assert rows_of(session_of(notebook)) == before
    assert [path.name for path in session_of(notebook).parent.glob("*.sqlite")] == ["n.sqlite"]


def test_a_dry_run_of_a_strangers_session_names_its_file_and_not_the_copy(tmp_path: Path, capsys, monkeypatch):
    notebook = write(tmp_path / "n.ipynb", "a = 1", "a = 2")
    assert ran(capsys, "run", notebook)[0] == 0
    monkeypatch.setenv("CTXKERNEL_HOME", str(tmp_path / "another user"))

    status, out, err = ran(capsys, "goto", notebook, "1", "--dry-run")

    assert status != 0
    assert f"`ctxkernel trust {session_of(notebook)}`" in out + err


def test_rerun_of_what_is_deterministic_finds_no_difference(tmp_path: Path, capsys):
    notebook = write(tmp_path / "n.ipynb", "a = [1]", "a.append(2); a", "print(object())")
    assert ran(capsys, "run", notebook)[0] == 0

    status, out, err = ran(capsys, "rerun", notebook, "2")

    assert status == 0, err
    assert "2 run again: 2 as before, 0 different" in out


def test_rerun_names_what_differs_and_ends_with_1(tmp_path: Path, capsys):
    notebook = write(tmp_path / "n.ipynb", "import random", "r = random.SystemRandom().random()", "same = 1")
    assert ran(capsys, "run", notebook)[0] == 0

    status, out, _ = ran(capsys, "rerun", notebook, "2..3", "--json")

    told = json.loads(out)
    assert status == 1
    assert [one["same"] for one in told["comparisons"]] == [False, True]
    assert told["comparisons"][0]["divergences"][0]["subject"] == "r"
    _, table, _ = ran(capsys, "timeline", notebook)
    assert "differs: r" in table


def test_a_difference_that_is_expected_is_no_failure(tmp_path: Path, capsys):
    notebook = write(tmp_path / "n.ipynb", "import time", "print(time.perf_counter_ns() % 97)", "%ctx mark 2 differs")
    assert ran(capsys, "run", notebook)[0] == 0

    status, out, err = ran(capsys, "rerun", notebook, "2..2", "--json")

    assert status == 0, err
    assert json.loads(out)["comparisons"][0]["expected"]


def test_rerun_that_fails_where_it_did_not_before_stops_and_ends_with_1(tmp_path: Path, capsys):
    source = "import os; os.mkdir('made')"
    notebook = write(tmp_path / "n.ipynb", source, "after = 1")
    assert ran(capsys, "run", notebook)[0] == 0

    status, out, err = ran(capsys, "rerun", notebook, "1")

    assert status == 1
    assert "stopped at s1: FileExistsError" in out
    assert "FileExistsError" in err


def test_a_statement_that_asks_is_run_with_yes_only(tmp_path: Path, capsys):
    notebook = write(tmp_path / "n.ipynb", "n = 1", "n += 1", "%ctx mark 2 asks")
    assert ran(capsys, "run", notebook)[0] == 0

    unasked = ran(capsys, "rerun", notebook, "2..2")
    asked = ran(capsys, "rerun", notebook, "2..2", "--json", "--yes")

    assert unasked[0] == 1
    assert "stopped before s2" in unasked[1]
    assert asked[0] == 0
    assert [one["same"] for one in json.loads(asked[1])["comparisons"]] == [True]


# ---------------------------------------------------------------- run --resume


def test_resume_runs_from_the_cell_that_was_edited(tmp_path: Path, capsys):
    notebook = write(tmp_path / "n.ipynb", "a = 1", "b = [a]", "b.append(9)", "print(b)")
    assert ran(capsys, "run", notebook)[0] == 0
    edit(notebook, 2, "b.append(3)")

    status, out, err = ran(capsys, "run", notebook, "--resume", "--json")

    statements = json.loads(out)["statements"]
    assert status == 0, err
    assert "Cell 3 and those after it run: it was edited since s3." in err
    assert err.count("kept") == 2
    # Were it run on top of the old third cell, there would be a 9 too.
    assert statements[-1]["executions"][0]["stdout"] == "[1, 3]\n"
    assert [s["source"] for s in statements if s["kind"] == "python"][4:] == ["b.append(3)", "print(b)"]


def test_resume_of_what_is_all_there_executes_nothing(tmp_path: Path, capsys):
    notebook = write(tmp_path / "n.ipynb", "a = 1", "b = 2")
    assert ran(capsys, "run", notebook)[0] == 0

    status, out, err = ran(capsys, "run", notebook, "--resume", "--json")

    assert status == 0, err
    assert len(json.loads(out)["statements"]) == 2
    assert "nothing is executed" in err


@pytest.mark.usefixtures("cold_kernels")
@pytest.mark.parametrize(("times", "expected"), [(2, 0), (3, 1)])
def test_a_port_that_another_took_meanwhile_is_tried_again_thrice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, times: int, expected: int
):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(
        "import pathlib, sys\n"
        "taken = pathlib.Path(__file__).with_name('taken')\n"
        f"if 'ctxkernel.kernel' in sys.orig_argv and (not taken.exists() or taken.stat().st_size < {times}):\n"
        "    taken.open('a').write('x')\n"
        "    sys.exit('zmq.error.ZMQError: Address already in use')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'first'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    status, out, err = ran(capsys, "run", write(tmp_path / "n.ipynb", "print(1 + 1)"), "--json")

    assert status == expected, err
    assert (tmp_path / "first" / "taken").stat().st_size == min(times, 3)
    assert "Address already in use" in err if expected else len(json.loads(out)["statements"]) == 1


def test_resume_without_a_session_runs_everything(tmp_path: Path, capsys):
    status, out, err = ran(capsys, "run", write(tmp_path / "n.ipynb", "a = 1", "b = 2"), "--resume", "--json")

    assert status == 0, err
    assert "Nothing to resume" in err
    assert len(json.loads(out)["statements"]) == 2


@pytest.mark.skipif(os.name != "posix", reason="a kernel is killed by a signal")
def test_resume_goes_on_after_a_kernel_that_was_killed(tmp_path: Path, capsys):
    """The cell that ran is recorded as interrupted, runs again, and what was before it does not."""
    kill = "import os, signal, pathlib\nif not pathlib.Path('once').exists():\n    pathlib.Path('once').touch()\n"
    notebook = write(
        tmp_path / "n.ipynb",
        "import pathlib; n = len(list(pathlib.Path().glob('ran-*'))); pathlib.Path(f'ran-{n}').touch()",
        f"{kill}    os.kill(os.getpid(), signal.SIG{'KILL'})\nm = n + 1",
        "print(n, m)",
    )
    assert ran(capsys, "run", notebook)[0] == 1

    status, out, err = ran(capsys, "run", notebook, "--resume", "--json")

    runs = [run for one in json.loads(out)["statements"] for run in one["executions"] if one["kind"] == "python"]
    assert status == 0, err
    assert [run["status"] for run in runs] == ["ok", "cancelled", "ok", "ok"]
    assert runs[1]["exception"]["type"] == "KernelDied"
    assert runs[-1]["stdout"] == "0 1\n"
    assert len(list(tmp_path.glob("ran-*"))) == 1


def test_a_stranger_s_session_is_not_resumed(tmp_path: Path, capsys):
    """Its state is a pickle, and whoever made it is not this user."""
    notebook = write(tmp_path / "n.ipynb", "a = 1")
    made = ctxkernel("run", notebook, env={"CTXKERNEL_HOME": str(tmp_path / "stranger")})
    assert made.returncode == 0, made.stderr

    for command in (["goto", notebook, "1"], ["run", notebook, "--resume"]):
        status, _, err = ran(capsys, *command)

        assert status == 1
        assert "could not be brought back" in err
        assert "not signed by you" in err


def path_of(*runs: tuple[str | None, str, str]) -> list[tuple[Statement, Execution]]:
    """Return a path of (cell id, source, status)."""
    return [
        (
            Statement(f"s{n}", n, 0.0, source, cell_id=cell),
            Execution(f"s{n}.1", f"s{n}", f"s{n - 1}.1" if n > 1 else None, 0.0, 1.0, status),  # type: ignore[arg-type]
        )
        for n, (cell, source, status) in enumerate(runs, 1)
    ]


A, B, C = (CodeCell(name, name.upper()) for name in "abc")
WENT_ON: dict[str, tuple[Any, Any, tuple[int, str, str | None, bool]]] = {
    "nothing ran": ([A], [], (0, "it has not run", None, False)),
    "all ran": ([A, B], [("a", "A", "ok"), ("b", "B", "ok")], (2, "", "s2.1", False)),
    "the last one is new": ([A, B], [("a", "A", "ok")], (1, "it has not run", "s1.1", False)),
    "one was edited": (
        [A, B, C],
        [("a", "A", "ok"), ("b", "old", "ok"), ("c", "C", "ok")],
        (1, "it was edited since s2", "s1.1", True),
    ),
    "the first was edited": ([A], [("a", "old", "ok")], (0, "it was edited since s1", None, True)),
    "one failed": ([A, B], [("a", "A", "ok"), ("b", "B", "error")], (1, "s2 ended as error", "s1.1", True)),
    "one may fail": (
        [CodeCell("a", "A", may_fail=True), B],
        [("a", "A", "error"), ("b", "B", "ok")],
        (2, "", "s2.1", False),
    ),
    "an earlier one ran again later": (
        [A, B],
        [("a", "A", "ok"), ("b", "B", "ok"), ("a", "A", "ok")],
        (1, "s2 ran before the cell above it", "s3.1", False),
    ),
    "it was edited and set back": (
        [A],
        [("a", "A", "ok"), ("a", "old", "ok"), ("a", "A", "ok")],
        (1, "", "s3.1", False),
    ),
    "cells without ids, two of them equal": (
        [CodeCell(None, "x"), CodeCell(None, "x"), CodeCell(None, "y")],
        [(None, "x", "ok"), (None, "x", "ok")],
        (2, "it has not run", "s2.1", False),
    ),
    "something else ran in between": (
        [A, B],
        [("a", "A", "ok"), (None, "scratch", "ok"), ("b", "B", "ok")],
        (2, "", "s3.1", False),
    ),
}


@pytest.mark.parametrize(("cells", "runs", "expected"), WENT_ON.values(), ids=WENT_ON.keys())
def test_a_notebook_goes_on_at_the_first_cell_that_its_session_does_not_have(cells, runs, expected):
    found = continuation(cells, path_of(*runs))

    assert (len(found.done), found.why, found.back_to, found.moves) == expected


def test_an_answered_ask_is_kept_with_the_cells_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    cells = ("a = 1", "%%ask --mode auto\nadd one", "b", "1 / 0")
    notebook = write(tmp_path / "n.ipynb", *cells)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-api03-neverToBeSeen0123456789")
    with MessagesServer([call("run_cell", {"code": "b = a + 1"}), say("Done.")]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        assert ran(capsys, "run", notebook)[0] == 1
        edit(notebook, 3, "print(a, b)")

        status, out, err = ran(capsys, "run", notebook, "--resume", "--json")

    assert status == 0, err
    assert "Cell 4 and those after it run: it was edited since" in err
    assert json.loads(out)["statements"][-1]["executions"][0]["stdout"] == "1 2\n"
    assert (len(server.requests), server.faults) == (2, [])


# ---------------------------------------------------------------- gc


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data of two sessions: one with 2 MB, used long ago, and a small one."""
    monkeypatch.setenv("CTXKERNEL_CACHE", str(tmp_path))
    monkeypatch.setattr(data_folder, "_OWN", re.compile(r"\w+"))  # names that tell what they hold
    root = tmp_path / "checkpoints"
    for name, count in (("old", 2), ("small", 0)):
        store = ChunkStore(root / name)
        for number in range(count):
            data = os.urandom(1024 * 1024 - number)
            store.put(address_of(data), data)
        store.put(address_of(b"few bytes"), b"few bytes")
        store.close()
    for path in (root / "old").iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return root


def test_gc_shows_what_each_session_takes(stored: Path, capsys):
    status, out, _ = ran(capsys, "gc", "--json")

    told = json.loads(out)
    assert status == 0
    assert told["folder"] == str(stored)
    assert told["limit"] == 20 * 10**9
    assert told["thinned"] == []
    assert {one["session"]: one["bytes"] > 10**6 for one in told["sessions"]} == {"old": True, "small": False}
    assert not any(one["live"] for one in told["sessions"])


def test_gc_gives_up_large_data_of_the_oldest_session_until_they_fit(stored: Path, capsys):
    planned = json.loads(ran(capsys, "gc", "--limit", "0.0015", "--dry-run", "--json")[1])
    status, out, _ = ran(capsys, "gc", "--limit", "0.0015")
    left = json.loads(ran(capsys, "gc", "--json")[1])

    assert [one["session"] for one in planned["thinned"]] == ["old"]
    assert status == 0
    assert "deleted" in out
    assert left["before"] < 1_500_000
    store = ChunkStore(stored / "old", readonly=True)
    assert store.has(address_of(b"few bytes"))


def test_gc_says_where_the_limit_cannot_be_kept(stored: Path, capsys):
    status, out, _ = ran(capsys, "gc", "--limit", "0")

    assert status == 1
    assert "Still over the limit" in out


def test_gc_leaves_the_data_of_a_living_kernel_alone(stored: Path, capsys):
    writing = ChunkStore(stored / "old")
    writing.put(address_of(b"more"), b"more")
    try:
        told = json.loads(ran(capsys, "gc", "--limit", "0.0015", "--json")[1])
    finally:
        writing.close()

    assert {one["session"]: one["live"] for one in told["sessions"]} == {"old": True, "small": False}
    assert told["thinned"] == []


@pytest.mark.parametrize("lost", ["note.ipynb", ".ctxkernel/note.sqlite"])
def test_gc_names_the_data_of_what_is_gone_and_removes_them_on_the_user_s_word_only(tmp_path: Path, lost: str, capsys):
    kept, gone = write(tmp_path / "kept.ipynb", "x = 1"), write(tmp_path / "note.ipynb", "x = 1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTXKERNEL_CACHE", str(tmp_path / "cache"))
        for notebook in (kept, gone):
            assert ran(capsys, "run", notebook)[0] == 0
        ids = {}
        for notebook in (kept, gone):
            with SessionReader(session_of(notebook)) as reader:
                ids[notebook.stem] = data_folder.folder_name(reader.session_id)
        assert not any(one["gone"] for one in json.loads(ran(capsys, "gc", "--json")[1])["sessions"])
        (tmp_path / lost).unlink()

        named = ran(capsys, "gc")[1]
        planned = json.loads(ran(capsys, "gc", "--gone", "--dry-run", "--json")[1])
        assert "--gone removes their data" in named
        assert {one["session"]: bool(one["gone"]) for one in planned["sessions"]} == {
            ids["kept"]: False,
            ids["note"]: True,
        }
        assert (tmp_path / "cache" / "checkpoints" / ids["note"]).is_dir()

        done = json.loads(ran(capsys, "gc", "--gone", "--json")[1])

        assert [one["session"] for one in done["removed"]] == [ids["note"]] == [planned["removed"][0]["session"]]
        assert done["after"] == planned["after"] < done["before"]
        assert not (tmp_path / "cache" / "checkpoints" / ids["note"]).exists()
        assert (tmp_path / "cache" / "checkpoints" / ids["kept"]).is_dir()


def test_gc_of_nothing_is_no_error(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CTXKERNEL_CACHE", str(tmp_path / "none"))

    assert ran(capsys, "gc")[0] == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.usefixtures("cold_kernels")
def test_a_port_that_another_program_took_and_that_answers_otherwise_costs_a_start_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    """ZeroMQ drops the connection for good, and a message that is sent then waits for ever without a bound."""
    monkeypatch.setattr("ctxkernel.cli.kernel._SEND_MS", 2000)
    notebook = write(tmp_path / "note.ipynb", "x = 1")
    (tmp_path / "sitecustomize.py").write_text(
        "import json, pathlib, sys\n"
        "taken = pathlib.Path(__file__).with_name('taken')\n"
        "if 'ctxkernel.kernel' in sys.orig_argv and not taken.exists():\n"
        "    taken.touch()\n"
        "    import time, zmq\n"
        "    port = json.loads(pathlib.Path(sys.argv[sys.argv.index('-f') + 1]).read_text())['shell_port']\n"
        "    other = zmq.Context().socket(zmq.XPUB)\n"
        "    other.bind(f'tcp://127.0.0.1:{port}')\n"
        "    time.sleep(1)\n"
        "    import os; os.write(2, b'zmq.error.ZMQError: Address already in use\\n'); os._exit(1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))

    status, out, err = ran(capsys, "run", notebook, "--json")

    assert status == 0, err
    assert (tmp_path / "taken").exists()
    assert len(json.loads(out)["statements"]) == 1


@pytest.mark.parametrize("limit", ["-1", "inf", "much"])
def test_gc_refuses_a_limit_that_is_none(limit: str, capsys):
    assert ran(capsys, "gc", "--limit", limit)[0] == 2


@pytest.mark.skipif(os.name != "posix", reason="a signal to another process, as Ctrl-C sends it, needs POSIX")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_while_its_kernel_starts_says_so(tmp_path: Path, sent: signal.Signals):
    hook = tmp_path / "sitecustomize.py"
    hook.write_text(
        "import sys, time, pathlib\n"
        "if any('ctxkernel.kernel' in each for each in sys.orig_argv):\n"
        f"    pathlib.Path({str(tmp_path / 'starts')!r}).touch()\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "ctxkernel", "run", str(write(tmp_path / "n.ipynb", "a = 1"))]
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "starts").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    process.send_signal(sent)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert err == "ctxkernel run: interrupted\n"


def test_ctrl_c_ends_a_rerun_and_keeps_what_had_run(tmp_path: Path, capsys):
    if os.name != "posix":
        pytest.skip("a signal to another process, as Ctrl-C sends it, needs POSIX")
    slow = "import time, pathlib\nif pathlib.Path('slow').exists():\n    pathlib.Path('on').touch()\n    time.sleep(60)"
    notebook = write(tmp_path / "n.ipynb", "a = 1", slow, "never = 1")
    assert ran(capsys, "run", notebook)[0] == 0
    (tmp_path / "slow").touch()
    command = [sys.executable, "-m", "ctxkernel", "rerun", str(notebook), "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not (tmp_path / "on").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130, err
    assert "Traceback" not in err
    with SessionReader(session_of(notebook)) as reader:
        head = reader.log().execution(str(reader.head()))
        assert (head.statement_id, head.status) in (("s2", "cancelled"), ("s1", "ok"))
    assert "stopped at s2" in out
