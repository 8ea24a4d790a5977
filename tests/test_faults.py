"""Faults of ours, of the disk and of signals in a real kernel: what a user reads, and what can be returned to."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import time

import pytest
from command_line import ctxkernel
from kernels import RunningKernel
from told import listed

from ctxkernel.core.loop import Loop
from ctxkernel.kernel.turn.turns import Turns
from ctxkernel.store.log.session import SessionReader

HARM = """
import builtins
class Harm:
    # Has a function of the kernel do harm when it is called, for so many `times`, -1 being all the time. Not in the
    # namespace, so that no state of the user's holds it.
    def __call__(self, owner, name, do='fail', times=1, skip=0, after=False):
        real, harm = getattr(owner, name), getattr(self, do)
        def harmed(*given, **named):
            nonlocal times, skip
            skip -= 1
            if skip < 0 and times:
                times -= 1
                if after:
                    real(*given, **named)
                harm()
            return real(*given, **named)
        setattr(owner, name, harmed)
        self.heal = lambda: setattr(owner, name, real)
    def fail(self):
        raise RuntimeError('sabotaged')
    def alarm(self):
        import signal
        signal.raise_signal(signal.SIGALRM)
    def full(self):
        import errno, os
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    def readonly(self):
        import errno, os
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
builtins.harm = Harm()
builtins.rt = get_ipython().kernel.ctx
del Harm, builtins
"""


BREAK = """
import dataclasses
def change(owner, table, number, run):
    rows = list(getattr(type(owner), table))
    rows[number] = dataclasses.replace(rows[number], run=run, when='')
    setattr(owner, table, tuple(rows))
def broken(*given):
    raise RuntimeError('sabotaged')
"""
TABLES = {"turns.BEGIN": len(Turns.BEGIN), "turns.END": len(Turns.END), "loop.END": len(Loop.END)}
COMMIT = next(number for number, step in enumerate(Turns.END) if step.part == "return")
"""The row that carries out a return."""


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def start(start_kernel, cache):
    """Start a kernel whose checkpoint data are in the test's own folder, written while the cell ends."""
    return lambda **env: start_kernel(env={"CTXKERNEL_CACHE": str(cache), "CTXKERNEL_FORK": "0", **env})


def run_all(kernel: RunningKernel, *cells: str):
    """Run cells; the last one's outcome."""
    for cell in cells:
        ran = kernel.run(cell)
        assert ran.status == "ok", (cell, ran.outputs)
    return ran


def shown(kernel: RunningKernel, command: str) -> str:
    """Return what a reading command shows."""
    return kernel.run(command).data[-1]["text/plain"]


# -- steps -----------------------------------------------------------------------------------------


def test_a_step_that_failed_is_tried_again_and_off_after_three_failures_in_a_row(kernel):
    run_all(kernel, HARM)
    first = run_all(kernel, "harm(rt.panel, 'turn')")
    assert "panel failed in this cell (RuntimeError: sabotaged); it is tried again at the next one" in first.stderr
    assert "panel failed, and is tried again at the next cell" in shown(kernel, "%ctx status")
    run_all(kernel, "x = 1")
    assert "panel" not in shown(kernel, "%ctx status")
    run_all(kernel, "harm(rt.panel, 'turn', times=-1)", "x = 2")

    third = run_all(kernel, "x = 3")

    assert third.stderr.count("panel is off until the kernel restarts (RuntimeError: sabotaged)") == 1
    assert run_all(kernel, "x = 4").stderr == ""
    assert "panel is off until the kernel restarts: RuntimeError: sabotaged" in shown(kernel, "%ctx status")


def goto(kernel, source: str) -> None:
    """Go to the state after the last statement with this text: what changed outside of a cell has a number, too."""
    listed = json.loads(kernel.run("%ctx timeline --json").stdout)["statements"]
    number = max(one["index"] for one in listed if one["source"] == source)
    run_all(kernel, f"%ctx goto {number}")


def test_a_cell_whose_namespace_diff_failed_has_no_state_and_the_next_one_has(kernel):
    """The reason stands in the cell, in `%ctx status` and in the timeline, and going there is refused by name."""
    run_all(kernel, HARM, "x = [1]; y = {'k': x}", "pass")
    hurt = kernel.run("harm(rt.tracker, 'after'); x.append(2)")

    assert "namespace diff failed in this cell (RuntimeError: sabotaged)" in hurt.stderr
    assert "no state is kept after s4: the namespace diff failed" in hurt.stderr
    assert "the namespace diff failed" in shown(kernel, "%ctx show 4")
    assert "not there:" in shown(kernel, "%ctx status")
    assert " skipped " in shown(kernel, "%ctx timeline")
    for command in ("%ctx goto 4", "%ctx goto 4 --dry-run"):
        refused = kernel.run(command)
        assert refused.status == "error"
        told = refused.error["evalue"]
        assert "the state after s4 is not there: the namespace diff failed" in told
        assert "%ctx goto 3 is the nearest state before it; %ctx rerun 4..4 makes this one again" in told

    run_all(kernel, "z = 5", "x.append(9)")
    goto(kernel, "z = 5")
    assert kernel.evaluate("(x, y['k'] is x, z)") == "([1, 2], True, 5)"
    run_all(kernel, "%ctx goto 2")
    assert kernel.evaluate("(x, y['k'] is x, 'z' in globals())") == "([1], True, False)"


@pytest.mark.parametrize("step", ["before", "after"])
def test_after_any_failed_look_what_changed_in_place_is_in_the_next_state(kernel, step):
    run_all(kernel, HARM, "x = [1]; y = {'k': x}")
    run_all(kernel, f"harm(rt.tracker, '{step}'); x.append(2)", "x.append(3)", "pass", "y['k'].append(4)")

    goto(kernel, "pass")

    assert kernel.evaluate("(x, y['k'] is x)") == "([1, 2, 3], True)"


@pytest.mark.parametrize("after", [False, True])
def test_a_checkpoint_that_failed_is_skipped_and_the_next_one_has_all_of_it(kernel, after):
    run_all(kernel, HARM, "x = [1]", f"harm(rt.returning, 'take', after={after}); x.append(2)")
    hurt = kernel.run("%ctx goto 3")
    assert "the state after s3 is not there: the checkpoint failed (RuntimeError" in hurt.error["evalue"]

    run_all(kernel, "pass", "x.append(3)")
    goto(kernel, "pass")

    assert kernel.evaluate("x") == "[1, 2]"


def test_a_return_that_fails_on_its_way_is_an_error_of_its_cell(kernel):
    """It does not report success, and switches nothing off."""
    run_all(kernel, HARM, "x = 1", "x = 2; harm(rt.returning, 'commit', times=4)")

    for _ in range(4):
        refused = kernel.run("%ctx goto 2")
        assert refused.status == "error"
        assert "the return to s2 failed on its way (RuntimeError: sabotaged)" in refused.error["evalue"]
    run_all(kernel, "%ctx goto 2")

    assert kernel.evaluate("x") == "1"


def test_an_end_of_a_turn_that_failed_leaves_how_the_cell_ended(kernel):
    """The statement is no `cancelled` one: neither here nor for the next kernel."""
    run_all(kernel, HARM, "harm(rt.loop, 'end'); x = [1]; print('said')", "x.append(2)", "x.append(3)")
    goto(kernel, "x.append(2)")

    rows = json.loads(kernel.run("%ctx timeline --json").stdout)["statements"]
    assert [(one["executions"][0]["status"], one["executions"][0]["stdout"]) for one in rows][1] == ("ok", "said\n")
    assert kernel.evaluate("x") == "[1, 2]"


def test_an_end_that_could_not_be_written_to_the_log_is_written_with_the_next(kernel):
    run_all(kernel, HARM, "harm(rt.store, 'end', times=2); x = 1; print('said')", "x = 2", "x = 3")

    with SessionReader(kernel.folder / ".ctxkernel" / "note.sqlite") as reader:
        runs = [run for _, (run,) in reader.statements()]
    assert [run.status for run in runs] == ["ok"] * 4
    assert runs[1].stdout == "said\n"


def test_a_return_whose_cell_has_no_end_restores_nothing_and_says_so(kernel):
    """The table of its end fails before the return is carried out."""
    run_all(kernel, HARM, BREAK, "x = 1", "x = 2", f"change(rt.turns, 'END', {COMMIT}, broken)")

    refused = kernel.run("%ctx goto 3")
    kernel.run("del rt.turns.END", silent=True)

    assert refused.status == "error"
    assert "nothing was restored: RuntimeError: sabotaged" in refused.error["evalue"]
    assert kernel.evaluate("x") == "2"
    run_all(kernel, "y = 1", "%ctx goto 3")
    assert kernel.evaluate("x") == "1"


# -- signals ---------------------------------------------------------------------------------------

ALARM = "import signal\ndef handler(*given): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, handler)\n"
PLACES = [
    ("tracker", "after"),
    ("tracker", "before"),
    ("returning", "take"),
    ("store", "end"),
    ("panel", "turn"),
    ("streams", "settle"),
]


@pytest.mark.parametrize(("owner", "name"), PLACES, ids=[".".join(place) for place in PLACES])
def test_a_signal_of_the_users_that_comes_while_the_kernel_works_costs_no_step(kernel, owner, name):
    """Its handler is called when the kernel is done, and what it raises is told: the turn is whole."""
    run_all(kernel, HARM)
    told = run_all(kernel, f"{ALARM}harm(rt.{owner}, '{name}', 'alarm'); x = [1]").stderr
    if name == "before":
        ran = kernel.run("x.append(2)")  # it belongs to the code that was about to run
        assert (ran.status, ran.error["ename"], ran.error["evalue"]) == ("error", "TimeoutError", "late")
    else:
        assert "SIGALRM came when the cell had ended, while ctxkernel worked; its handler raised" in told
        assert "TimeoutError: late" in told
        run_all(kernel, "x.append(2)")
    assert kernel.evaluate("(rt.guard.off, rt.guard.failed)") == "({}, {})"
    assert kernel.evaluate("signal.getsignal(signal.SIGALRM) is handler") == "True"

    run_all(kernel, "%ctx goto 2")

    assert kernel.evaluate("x") == "[1]"


def test_a_handler_that_raises_in_the_users_code_raises_there(kernel):
    run_all(kernel, HARM, ALARM)

    ran = kernel.run("try:\n    signal.raise_signal(14)\nexcept TimeoutError as fault:\n    print(fault)")

    assert ran.stdout == "late\n"
    assert kernel.run("signal.setitimer(signal.ITIMER_REAL, 0.05)\nwhile True: pass").error["ename"] == "TimeoutError"


def test_a_handler_that_raises_while_output_is_captured_is_not_swallowed(kernel):
    run_all(kernel, HARM, ALARM + "harm(rt.capture, '_take', 'alarm', times=-1)")

    ran = kernel.run(
        "import IPython.display\ntry:\n    display(1)\nexcept TimeoutError as fault:\n    caught = str(fault)"
    )

    assert ran.status == "ok"
    assert kernel.evaluate("caught") == "'late'"
    assert kernel.evaluate("rt.guard.failed") == "{}"


# -- data that cannot be stored, or are gone -------------------------------------------------------

LARGE = "b = bytes(range(256)) * 4000 + b'%d'"


@pytest.mark.parametrize("kind", ["full", "readonly"])
def test_data_that_cannot_be_stored_are_told_once_and_shown_until_they_can(start, kind):
    kernel = start()
    run_all(kernel, HARM, "x = [1]", "import ctxkernel.store.chunks.packs as packs")

    first = run_all(kernel, f"harm(packs, 'write_all', '{kind}', times=-1); x.append(2)").stderr

    assert first.startswith("ctxkernel: the state after s4 is not stored: checkpoint data cannot be written to")
    reason = {"full": "No space left", "readonly": "Read-only file system"}[kind]
    assert reason in first
    assert run_all(kernel, "x.append(3)").stderr == ""
    assert "not stored:   since s4" in (status := shown(kernel, "%ctx status"))
    assert reason in status
    assert kernel.evaluate("(len(rt.health.storage()['faults']), bool(rt.returning.chunks.fault))") == "(1, True)"
    healed = run_all(kernel, "harm.heal()").stderr
    assert "checkpoint data are stored again (they were not from s4 on)" in healed
    assert "not stored:" not in shown(kernel, "%ctx status")
    run_all(kernel, "x.append(4)", "%ctx undo")
    assert kernel.evaluate("x") == "[1, 2, 3]"


def test_a_cache_folder_that_was_deleted_is_told_and_shown(start, cache):
    kernel = start()
    run_all(kernel, HARM, "x = [1]; y = {'a': 1}")
    shutil.rmtree(cache)

    told = run_all(kernel, "x.append(2)").stderr

    assert "were deleted while the kernel ran" in told
    assert "lost:" in shown(kernel, "%ctx status")
    assert kernel.evaluate("(x, y)") == "([1, 2], {'a': 1})"


def test_the_doctor_and_verify_tell_which_states_were_not_kept(start, cache, tmp_path):
    there = {"cwd": tmp_path, "env": {"CTXKERNEL_CACHE": str(cache)}}
    kernel = start()
    run_all(kernel, HARM, "x = [1]", "import ctxkernel.store.chunks.packs as packs; harm(rt.tracker, 'after')")
    run_all(kernel, "harm(packs, 'write_all', 'full', times=-1); x.append(2)")
    kernel.stop()

    checks = json.loads(ctxkernel("doctor", "--json", **there).stdout)["checks"]

    (states,) = [check for check in checks if check["name"] == "states"]
    assert states["status"] == "warn"
    assert re.search(r"2 of \d states were not kept \(checkpoint data cannot be written", states["detail"])
    report = ctxkernel("verify", ".ctxkernel/note.sqlite", **there)
    assert report.returncode == 0, report.stdout
    assert "checkpoint cs3.1 cannot: skipped: the namespace diff failed" in report.stdout


def test_after_gc_the_newest_state_is_resumed_with_its_gaps_named(start, cache, tmp_path):
    """The newest keeps its large data longest; of all others what is small is there."""
    there = {"cwd": tmp_path, "env": {"CTXKERNEL_CACHE": str(cache)}}
    kernel = start()
    run_all(kernel, *[f"{LARGE % n}; x = {n}" for n in range(1, 5)], "z = 1")
    kernel.stop()
    gave = ctxkernel("gc", "--limit", "0.000001", "--json", **there)
    assert json.loads(gave.stdout)["thinned"]
    report = json.loads(ctxkernel("verify", ".ctxkernel/note.sqlite", "--json", **there).stdout)
    assert (report["sound"], report["restorable"], report["checkpoints"]) == (True, 5, 5)
    assert all("given up for space" in gaps["b"] for gaps in report["gaps"].values())
    text = ctxkernel("verify", ".ctxkernel/note.sqlite", **there).stdout
    assert "restorable: 5 of 5 checkpoints, 0 of them whole" in text

    kernel = start()
    plan = kernel.run("%ctx resume --dry-run").data[-1]["text/plain"]
    assert plan.startswith("to s5")
    ran = run_all(kernel, "%ctx resume")

    assert ran.stdout.startswith("at s5")
    assert kernel.evaluate("(x, z)") == "(4, 1)"
    assert shown(kernel, "%ctx timeline").count(" thinned ") == 4


def test_after_gc_the_plan_names_everything_that_shares_data_that_are_gone(start, cache, tmp_path):
    there = {"cwd": tmp_path, "env": {"CTXKERNEL_CACHE": str(cache)}}
    kernel = start()
    run_all(kernel, "import numpy as np; a = np.random.rand(50_000); b = [a]; c = {'v': a[1:]}", "z = 1")
    kernel.stop()
    ctxkernel("gc", "--limit", "0.000001", **there)

    kernel = start()
    plan = kernel.run("%ctx resume --dry-run").data[-1]["text/plain"]
    told = run_all(kernel, "%ctx resume").stdout

    for name in ("a", "b", "c"):
        assert f"not restored {name}: its data are missing: given up for space" in plan
        assert "its data are missing: given up for space" in listed(told, "not restored: ")[name]
    text = ctxkernel("verify", ".ctxkernel/note.sqlite", **there).stdout
    assert re.search(r"checkpoints cs1\.1, cs2\.1 without: .*: given up for space", text) and "shared:" not in text


def test_a_session_without_its_data_says_that_every_state_is_missing(start, cache, tmp_path):
    """And a re-run of it leaves the checkpoints on."""
    kernel = start()
    run_all(kernel, f"{LARGE % 1}; x = [1]", "x.append(2)", "y = x")
    kernel.stop()
    shutil.rmtree(cache)
    kernel = start()

    plan = kernel.run("%ctx resume --dry-run").data[-1]["text/plain"]

    assert "none of the states that the earlier kernel left is there (3 of 3 are missing)" in plan
    ran = run_all(kernel, "%ctx resume")
    assert "(3 of 3 are missing)" in ran.stdout
    assert "the state after s2 is not there" in kernel.run("%ctx goto 2").error["evalue"]
    run_all(kernel, "%ctx rerun 1")
    assert kernel.evaluate("(x, y is x, len(b))") == "([1, 2], True, 1024001)"
    run_all(kernel, "x.append(3)", "%ctx undo")
    assert kernel.evaluate("x") == "[1, 2]"
    assert kernel.evaluate("dict(get_ipython().kernel.ctx.guard.off)") == "{}"


def test_the_quota_is_looked_at_while_the_kernel_runs(start_kernel, cache):
    """A few MB over it are noticed, too, when no cell runs; what was given up is in the log and in the status."""
    env = {"CTXKERNEL_CACHE": str(cache), "CTXKERNEL_QUOTA_GB": "0.01"}
    kernel = start_kernel(env=env)
    run_all(kernel, "import os", *[f"b = os.urandom(4_000_000); x = {n}" for n in range(4)])
    wait_until(lambda: " thinned " in shown(kernel, "%ctx timeline"))

    assert "thinned:" in shown(kernel, "%ctx status")
    assert "given up for space" in shown(kernel, "%ctx status")
    with SessionReader(kernel.folder / ".ctxkernel" / "note.sqlite") as reader:
        assert [info.state for info in reader.checkpoints().values()].count("thinned") >= 1
    assert kernel.evaluate("(len(b), x)") == "(4000000, 3)"


def wait_until(reached, seconds: float = 20) -> None:
    """Wait for something that the kernel does by itself."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


@pytest.mark.parametrize("table", TABLES)
def test_each_step_of_a_turn_may_fail_and_the_cell_runs_on(kernel, table):
    """Whichever row of the tables fails: the cell's result is there, the fault is told, and the next cell is sound."""
    owner, name = table.split(".")
    run_all(kernel, HARM, BREAK, "x = 0")
    for number in range(TABLES[table]):
        run_all(kernel, f"change(rt.{owner}, {name!r}, {number}, broken)")

        hurt = kernel.run("x += 1; x")
        kernel.run(f"del rt.{owner}.{name}", silent=True)
        healed = run_all(kernel, "print(x)")

        assert (hurt.status, hurt.data[-1]["text/plain"]) == ("ok", str(number + 1)), number
        assert "sabotaged" in hurt.stderr, number
        assert healed.stdout == f"{number + 1}\n"
        assert "sabotaged" not in healed.stderr, number
    assert kernel.evaluate("rt.guard.off") == "{}"
    run_all(kernel, "y = [1]", "y.append(2)", "%ctx goto 3")
    assert kernel.evaluate("x") == "0"


def test_a_session_that_cannot_be_written_is_told_also_if_late_output_fails_first(start):
    kernel = start()
    run_all(kernel, HARM, "import threading", "threading.Timer(0.3, print, ['late']).start()")
    time.sleep(0.6)
    with contextlib.closing(sqlite3.connect(kernel.evaluate("str(rt.store.path)").strip("'"))) as other:
        other.execute("BEGIN IMMEDIATE")

        told = run_all(kernel, "x = 1").stderr

    assert told.count("cannot be written (database is locked)") == 1
    assert "is written again; nothing was lost" in run_all(kernel, "x = 2").stderr


def test_a_file_whose_content_could_not_be_kept_before_a_cell_overwrote_it_is_told(start):
    kernel = start()
    run_all(kernel, HARM, "%ctx config files restore")

    told = run_all(kernel, "harm(rt.file_states, '_keep')\nwith open('a.txt', 'w') as file: file.write('1')").stderr

    assert "kept files failed in this cell (RuntimeError: sabotaged)" in told
    assert kernel.evaluate("open('a.txt').read()") == "'1'"
    assert "null byte" in kernel.run("open('a\\0', 'w')").error["evalue"]
    assert kernel.evaluate("rt.guard.failed") == "{}"
