"""Changes that a background process finds after a cell reach the timeline, the log, the model and the panel."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import RunningKernel, StartKernel
from late_packs import late_if, late_where
from test_checkpoints import Bench
from test_kernel import timeline
from tracker_rows import Notebook

from ctxkernel.core.settings import Settings
from ctxkernel.core.state_names import SHARED
from ctxkernel.core.timeline import ChangeInfo, NamespaceDiff
from ctxkernel.state.tracking.groups import Moment
from ctxkernel.state.tracking.late_changes import LateChanges, OpenChange, OwnContent

INFO = ChangeInfo("list", "[…]")


def held_content(number: int) -> OwnContent:
    return OwnContent(bytes([number]), ())


@given(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.integers(0, 2), st.randoms())
def test_in_whatever_order_the_background_ends_each_change_is_told_of_its_own_cell(held, first, random):
    """A cell changed the name if its content differs from that after the cell before."""
    late, found = LateChanges(), {}
    for at in range(len(held)):
        late.ask(f"s{at}.1", ["x"], {"x": OpenChange(INFO, held_content(first) if at == 0 else None)})
    order = [*range(len(held))]
    random.shuffle(order)
    for at in order:
        late.answer(f"s{at}.1", {"x": held_content(held[at])})
        found |= late.take()
    assert {name for name, diff in found.items() if diff.changed} == {
        f"s{at}.1" for at, (before, now) in enumerate(zip([first, *held], held, strict=False)) if before != now
    }
    assert len(found) == len(held)
    assert not any(diff.incomplete for diff in found.values())


def test_what_a_failed_background_process_leaves_open_is_said():
    """And what comes after it, as the content before is not known."""
    late = LateChanges()
    late.ask("s1.1", ["x"], {"x": OpenChange(INFO, held_content(1))})
    late.ask("s2.1", ["x"], {"x": OpenChange(INFO, None)})
    late.ask("s3.1", ["x"], {"x": OpenChange(INFO, None)})
    late.answer("s1.1", {})
    late.answer("s2.1", {"x": held_content(2)})
    late.answer("s3.1", {"x": held_content(3)})
    found = late.take()
    assert found["s1.1"].incomplete == found["s2.1"].incomplete == "could not be compared: x"
    assert list(found["s3.1"].changed) == ["x"]


def test_a_name_packed_in_time_waits_for_what_it_held_before():
    """Its content is known at once, that of before when the background ends."""
    slow = Settings(end_phase_ms=40)
    notebook = Notebook("rows = [[n] for n in range(300_000)]", may_defer=lambda: True, settings=slow)
    assert notebook.run("rows[5] = 1").incomplete == "still being compared: rows"
    tracker = notebook.tracker
    tracker.take_pending()
    tracker.settings = Settings(end_phase_ms=60_000)
    tracker._groups["rows"].seconds = 0.0

    assert notebook.run("rows[6] = 1").incomplete == "still being compared: rows"

    assert not tracker.pending.deferred
    assert tracker.pending.open["rows"].before is None
    assert tracker.pending.open["rows"].now is not None
    assert set(notebook.run("rows[7] = 1").changed) == {"rows"}


@pytest.mark.parametrize("array", ["np.arange(9)", "pd.array(np.arange(9), 'Int64')"])
def test_what_shares_an_array_with_a_deferred_variable_is_not_passed_over(array: str):
    """The cell names only the variable that is too large to be compared in time."""
    slow = Settings(end_phase_ms=40)
    notebook = Notebook(f"both = [[[n] for n in range(300_000)], {array}]", may_defer=lambda: True, settings=slow)
    notebook.run("held = getattr(both[1], '_data', both[1]); view, rest = held[2:], held[:2]")

    found = notebook.run("both[1][3] = 99")

    assert {"both", "view"} <= found.changed.keys() | set(re.findall(r"\w+", found.incomplete))
    assert not notebook.run("view").changed.keys() & {"rest"}


ROWS = "rows = [{'id': n, 'v': 0} for n in range(400_000)]"


def execution(kernel: RunningKernel, statement: int) -> dict[str, Any]:
    """Return an execution as the log has it, when its changes are known."""
    end = time.monotonic() + 60
    while True:
        kernel.run("pass")
        [found] = timeline(kernel)[statement - 1]["executions"]
        if found["late_diff"] is not None or time.monotonic() > end:
            return found


def text(kernel: RunningKernel, command: str) -> str:
    """Return what a command shows in a terminal."""
    return kernel.run(command).data[0]["text/plain"]


@pytest.fixture(scope="module")
def large(shared_kernel: RunningKernel) -> RunningKernel:
    """A kernel with many records, the first statement; the second changes one, the third reads them."""
    shared_kernel.run(ROWS)
    shared_kernel.run("rows[390_000]['v'] = 99")
    shared_kernel.run("total = sum(row['v'] for row in rows)")
    return shared_kernel


def test_a_change_found_late_is_in_the_timeline(large: RunningKernel):
    """The log keeps what was said at first; the table shows what is known now."""
    changed, read = execution(large, 2), execution(large, 3)
    assert changed["state_diff"]["incomplete"] == "still being compared: rows"
    assert changed["late_diff"]["changed"]["rows"]["how"] == "mutated"
    assert read["late_diff"]["changed"] == {}
    assert read["late_diff"]["incomplete"] == ""
    shown = text(large, "%ctx show s2")
    assert "~ rows (mutated): list" in shown
    rows = [line.strip() for line in text(large, "%ctx timeline 900").splitlines()]
    assert "~rows" in next(row for row in rows if row.startswith("s2 "))
    assert "~rows" not in next(row for row in rows if row.startswith("s3 "))


def test_a_statement_is_shown_as_being_compared_only_until_it_is(large: RunningKernel):
    """The changes that are known now are shown instead."""
    execution(large, 3)

    assert "still being compared" not in text(large, "%ctx show s2") + text(large, "%ctx show s3")


def test_the_model_is_told_of_a_change_found_late(large: RunningKernel):
    """In the changes of the turn after it was found; not of what did not change."""
    execution(large, 3)
    lines = large.run("%ctx projection --json").stdout
    assert "s2: was found to have changed rows" in lines
    assert "s3: was found" not in lines


def test_a_change_found_late_survives_a_resume(large: RunningKernel, start_kernel: StartKernel):
    """A new kernel reads it from the log."""
    execution(large, 3)
    large.stop()
    kernel = start_kernel(large.folder)
    kernel.run("%ctx resume")
    assert "~ rows (mutated): list" in text(kernel, "%ctx show s2")


CELLS = [
    "big[{n}][:] = [-1]",
    "big[{n}] = [{n}, 0]; small.append(1)",
    "held = len(big) + len(small)",
    "big[{n}] = big[{n}]; small",
    "alias = big",
    "big = [list(one) for one in big]; big[{n}] = [{n}, 1]",
    "array[{n}] += 1; big",
    "small.append(array); array[0] += 1",
    "small.append({n}); holds = [array, frame.index]; holds",
    "frame = pd.DataFrame({{'a': array[:100]}}, copy=False)",
    "other = frame.copy(deep=False); both = [frame, other.index]; frame",
    "frame.loc[1, 'a'] = {n}; other",
]


@given(st.lists(st.tuples(st.sampled_from(CELLS), st.integers(0, 40_000)), min_size=1, max_size=6))
@settings(max_examples=40)
def test_what_is_found_at_once_and_late_is_what_differs(tmp_path_factory, cells):
    """By the contents before and after each cell, taken by other means."""
    bench = Bench(tmp_path_factory.mktemp("late"))
    tracker, checkpoints = bench.tracker, bench.checkpoints
    tracker.settings = Settings(end_phase_ms=10)
    try:
        bench.run(
            "big = [[n] for n in range(40_001)]; alias = big; small = []; array = np.zeros(40_001); view = array[5:]"
            "; frame = other = pd.DataFrame({'a': np.arange(100.0), 'b': 1}, index=range(100, 0, -1))"
        )
        found, truth = {}, {}
        for source, number in cells:
            before = {name: pickle.dumps(bench[name], 5) for name in tracker.names()}
            execution_id = bench.run(source.format(n=number))
            after = {name: pickle.dumps(bench[name], 5) for name in tracker.names()}
            truth[execution_id] = {n for n, made in after.items() if n in before and before[n] != made}
            found[execution_id] = tracker._last
        bench.background.wait(60)
        checkpoints.poll()
        late = checkpoints.late.take()
        for execution_id, diff in found.items():
            more = late.get(execution_id, NamespaceDiff())
            assert not more.incomplete
            assert bool(diff.incomplete) == (execution_id in late)
            # A slow variable that was bound to another object is listed too, which may be equal.
            rebound = {name for name, change in diff.changed.items() if change.how == "rebound"}
            assert {*diff.changed, *more.changed} - rebound == truth[execution_id] - rebound
    finally:
        bench.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_variable_that_is_compared_twice_in_one_cell_is_compared_with_what_it_held_before(bench, monkeypatch):
    """As where a function that the cell bound leads to more names, which share something with those compared first."""
    late = {"groups": False, "labels": False}
    is_late = late_where(
        lambda names, several: late["groups" if several else "labels"] and (several or SHARED in names[0])
    )
    monkeypatch.setattr(Moment, "_pack", is_late)
    bench.run("array = np.zeros(3000); view = array[5:]; third = [array]")
    late |= {"groups": True, "labels": True}
    bench.run("array, view, third")
    bench.tracker.before("array[9] = 1; third")
    bench["array"][9] = 1
    for name, late["labels"] in (("array", False), ("third", True)):
        bench.tracker._settle((), (), (), {name}, bench.tracker._cell)

    opened = bench.tracker.pending.open
    assert {name: one.before for name, one in opened.items()} == {"array": None, "view": None, "third": None}


def test_what_holds_an_array_is_listed_although_the_array_itself_is_packed_too_late(bench, monkeypatch):
    late = False
    monkeypatch.setattr(
        Moment, "_pack", late_where(lambda names, several: late and names[0].startswith(SHARED) and not several)
    )
    bench.run("array = np.zeros(3000); view = array[5:]; pair = (array, [1])")
    late = True
    for number in (1, 2, 3):
        bench.run(f"array[9] = {number}")
        assert bench.changes.changed.keys() == {"array", "view", "pair"}


@pytest.mark.parametrize(
    "change", ["array[0] = 1", "array.shape = 300, 100", "array.flags.writeable = False", "other = 1"]
)
def test_an_array_is_compared_with_what_it_held_before_it_was_known_to_share_its_memory(tmp_path, change, monkeypatch):
    """A process in the background finds that while a second one packs it; the third one knows it at once."""
    late = False
    monkeypatch.setattr(Moment, "_pack", late_if(lambda: late))
    bench = Bench(tmp_path)
    poll, bench.checkpoints.poll = bench.checkpoints.poll, list
    try:
        bench.run("array = np.zeros(30_000)")
        late = True
        bench.run("view = array[2:]")
        second = bench.run("array, view")
        bench.background.wait(60)
        waiting = bench.checkpoints.writing.pop(second)
        poll()
        bench.checkpoints.writing[second] = waiting
        changed = bench.run(f"{change}; array, view")
        bench.background.wait(60)
        poll()
        found = bench.checkpoints.late.take()
    finally:
        bench.close()

    assert "array" not in {name for one, diff in found.items() if one != changed for name in diff.changed}
    assert ("array" in found[changed].changed) == change.startswith("array")


def test_names_that_change_places_while_one_is_deferred_are_compared():
    """A name that stands for another object now has no pack of its own to be compared with."""
    notebook = Notebook("f = [[n] for n in range(300_000)]", may_defer=lambda: True, settings=Settings(end_phase_ms=40))
    notebook.run("g = [1]; f, g = g, f")
    notebook.tracker.take_pending()
    notebook.tracker.settings = Settings(end_phase_ms=60_000)

    for source in ("g[5].append(1); f.append(2)", "f, g = g, f", "h = f; f, g = g, f; g[7] = 1"):
        diff = notebook.run(source)
        assert {"f", "g"} <= {*diff.changed, *re.findall(r"\w+", diff.incomplete)}, source


def test_a_cell_waits_once_until_it_is_known_what_many_small_variables_share(kernel: RunningKernel):
    """Else each cell that touches one of them would have all of them packed again."""
    patient = "import ctxkernel.kernel.returning.checkpoint_service as service; service.CATCH_UP_SECONDS = 60"
    kernel.run(f"import numpy as np; {patient}")
    kernel.run("arr = np.arange(9)\nfor n in range(2000): globals()[f'v{n}'] = [arr, n]")
    kernel.run("v5.append(1)")
    kernel.run("v6.append(1)")
    for (execution,), changed in zip((one["executions"] for one in timeline(kernel)[2:4]), ("v5", "v6"), strict=True):
        assert list(execution["state_diff"]["changed"]) == [changed]
        assert execution["state_diff"]["incomplete"] == ""
    kernel.run("%ctx goto 3")
    assert kernel.run("print(v5[1:], v6[1:], v5[0] is v6[0] is arr)").stdout == "[5, 1] [6] True\n"


def test_a_cell_waits_for_variables_that_two_background_processes_pack_already():
    """Else cells that come faster than they are packed start a process each, that packs them all again."""
    waited: list[set[str]] = []
    notebook = Notebook(
        "rows = [[n] for n in range(300_000)]; a = [1]; b = [2]; c = [3]; d = [4]",
        may_defer=lambda: True,
        settings=Settings(end_phase_ms=40),
        catch_up=lambda names: waited.append(set(names)),
    )
    notebook.tracker.take_pending()

    waits: list[int] = []
    for cell in ("rows[5] = 1; a, b, c, d", "a.append(1)", "x = 1", "b.append(1)", "a, b, c", "rows[7] = 1"):
        waited.clear()
        notebook.run(cell)
        notebook.tracker.take_pending()
        waits.append(len(waited))

    assert waits == [0, 1, 0, 0, 0, 1], (
        "the first cell made them, and one that uses most of them has to pack them anyway"
    )
