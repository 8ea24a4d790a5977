"""The state after every cell can be brought back, with who shares what with whom."""

from __future__ import annotations

import copy
import errno
import itertools
import pickle
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from late_packs import late_if
from scale import share

from ctxkernel.core.settings import Settings
from ctxkernel.core.state_names import is_bound
from ctxkernel.core.timeline import NamespaceDiff
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.checkpoints import storage
from ctxkernel.state.checkpoints.checkpoints import Checkpointer, Taken
from ctxkernel.state.checkpoints.restore import Restorer
from ctxkernel.state.checkpoints.storage import Storage
from ctxkernel.state.tracking.groups import Moment
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.state.types.packer import Packer
from ctxkernel.store.chunks import packs
from ctxkernel.store.chunks.background import Background
from ctxkernel.store.chunks.chunk_store import ChunkStore, stream_address


class Bench:
    """A namespace with checkpoints, as the kernel has one, without a kernel."""

    def __init__(self, folder: Path) -> None:
        self.ns: dict[str, Any] = {"__name__": "__main__", "np": np, "pd": pd}
        self.store = ChunkStore(folder)
        self.background = Background(self.store)
        self.tracker = NamespaceTracker(self.ns, hidden={"np", "pd"}, may_defer=lambda: self.background.can_fork)
        value = lambda name: self.ns.get(name, NOTHING)  # noqa: E731
        storage = Storage(
            self.tracker.packer,
            self.store,
            self.background,
            address=stream_address,
            value=value,
            handle=lambda _: None,
            content=self.tracker.content_in,
            whole=self.tracker.whole_groups,
        )
        self.checkpoints = Checkpointer(self.tracker, storage)
        self.restorer = Restorer(
            self.checkpoints, bind=self._bind, free_memory=lambda: None, head=lambda: self.checkpoints.base
        )
        self.count = 0
        self.taken: dict[str, Taken] = {}
        self.changes = NamespaceDiff()
        """Of the last cell."""

    def _bind(self, values: Any, gone: Any) -> None:
        for name in gone:
            self.ns.pop(name, None)
        self.ns.update({name: value for name, value in values.items() if is_bound(name)})

    def run(self, source: str) -> str:
        """Run a cell; returns its execution's id."""
        self.count += 1
        self.tracker.before(source)
        self.tracker.release()
        exec(compile(source, "<cell>", "exec"), self.ns)
        self.changes = self.tracker.after(lambda: False)
        execution_id = f"s{self.count}.1"
        self.taken[execution_id] = self.checkpoints.take(execution_id, {"ambient:cells": self.count})
        self.checkpoints.poll()
        return execution_id

    def goto(self, execution_id: str | None) -> dict[str, str]:
        """Go back; returns what was lost, or is as it is now."""
        self.background.wait(30)
        self.checkpoints.poll()
        difference = self.restorer.compare(execution_id)
        lost = self.restorer.settle(self.restorer.fetch(difference))
        return {**lost, **difference.stale}

    def close(self) -> None:
        """Let go of the jobs and the store."""
        self.background.close()
        self.store.close()

    def __getitem__(self, name: str) -> Any:
        return self.ns[name]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A namespace with checkpoints."""
    made = Bench(tmp_path / "chunks")
    yield made
    made.close()


def test_a_change_in_place_is_undone(bench: Bench):
    """A list that was appended to has what it had."""
    first = bench.run("x = [1, 2]")
    bench.run("x.append(3)")

    lost = bench.goto(first)

    assert bench["x"] == [1, 2]
    assert not lost


def test_a_state_is_put_together_from_a_state_near_it_and_equals_the_one_from_all_changes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """In a session of 30,000 cells each value that `%ctx diff` compared took 0.15 seconds for that."""
    names = iter(range(99))
    made = [
        bench.run(f"x{at % 7} = y{at} = [{at}]" if at % 5 else f"del y{next(names) * 5 + 1}") for at in range(1, 60)
    ]
    bench.goto(made[20])
    made.append(bench.run("x1 = {}"))
    states, looked = bench.checkpoints.states, list[Any]()
    changes = type(states).changes
    monkeypatch.setattr(type(states), "changes", lambda self, known: looked.append(known) or changes(self, known))
    for execution_id in [*made[::3], *made[::-7], made[-1], made[-1]]:
        found = bench.checkpoints.state(execution_id)

        states._built.clear()
        assert bench.checkpoints.state(execution_id) == found

    looked.clear()
    for execution_id in made[:40]:
        bench.checkpoints.state(execution_id)["x1"] = None  # the caller's own

    assert len(looked) <= 40
    assert all(bench.checkpoints.state(one).get("x1", 0) is not None for one in made[:40])


def test_two_names_for_one_list_stay_two_names_for_one_list(bench: Bench):
    """Aliases that a later cell broke are aliases again."""
    first = bench.run("a = [1]; b = a; c = {'a': a}")
    bench.run("b = [9]; a.append(2)")

    bench.goto(first)

    assert bench["a"] == [1]
    assert bench["b"] is bench["a"]
    assert bench["c"]["a"] is bench["a"]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param("class F: __slots__ = 'held'\nf, g = F(), F()\nf.held = ([],); g.held = f.held", id="slots"),
        pytest.param(
            "class F:\n    def __init__(self, *held): self.held = held\n    def __reduce__(self): return F, self.held\n"
            "f = F([]); g = F(*f.held)",
            id="what it is made from",
        ),
        pytest.param("from types import SimpleNamespace as F\nf = F(held=([],)); g = F(held=f.held)", id="dict"),
    ],
)
def test_a_list_that_only_a_tuple_holds_is_shared_again(bench: Bench, made: str):
    """The tuple is the user's: it was not made while the object was packed."""
    first = bench.run(made)
    bench.run("g.held = 0; f.held[0].append(1)")

    assert not bench.goto(first)

    assert bench["f"].held[0] is bench["g"].held[0]
    assert bench["f"].held == ([],)


SHARED_AGAIN = {
    "what the return undid is done again": (
        "a = np.arange(9_000); v = a[1:]; d = {'a': a}",
        "a[5] = 70",
        {"a", "v", "d"},
    ),
    "the return removes a name that is stored with a holder": (
        "a = np.arange(9_000); rows = [[1], [2]]; row = rows[0]; d = [a, rows]",
        "other = rows[1]",
        {"a", "d"},
    ),
    "the array was not shared then": ("a = np.arange(3)", "v = a[1:]", {"a"}),
    "the extension array was not shared then": ("a = pd.array([1, None])", "v = (a, a)", {"a"}),
}


@pytest.mark.parametrize(("made", "undone", "holders"), SHARED_AGAIN.values(), ids=SHARED_AGAIN)
def test_the_first_change_of_an_array_after_a_return_is_listed_for_all_that_hold_it(
    bench: Bench, made: str, undone: str, holders: set[str]
):
    """What is known of its holders is of the state that the return restored."""
    first = bench.run(made)
    bench.run(undone)
    bench.goto(first)

    bench.run("a[-1 if len(a) < 5 else 5] = 70")

    assert set(bench.changes.changed) == holders


def test_a_name_that_is_bound_as_before_a_return_is_listed(bench: Bench):
    """It is stored with the list again, as before the return; in between it stood for something else."""
    first = bench.run("part = [1]")
    bench.run("whole = [part]")
    bench.goto(first)
    bench.run("whole = {5}")

    bench.run("whole = [part]")

    assert set(bench.changes.changed) == {"whole"}


def test_names_that_came_later_go(bench: Bench):
    """Going back removes them, and going forth brings them."""
    first = bench.run("a = 1")
    second = bench.run("b = [a]")

    bench.goto(first)
    assert "b" not in bench.ns
    bench.goto(second)
    assert bench["b"] == [1]


def test_before_all_statements_there_is_nothing(bench: Bench):
    """None is the state before the first cell."""
    bench.run("a = 1; b = [2]")

    bench.goto(None)

    assert {"a", "b"}.isdisjoint(bench.ns)


def test_what_is_equal_is_kept_in_place(bench: Bench):
    """An object that did not change is the same object afterwards."""
    first = bench.run("big = list(range(1000)); small = [1]")
    bench.run("small.append(2)")
    kept = bench["big"]

    bench.goto(first)

    assert bench["big"] is kept
    assert bench["small"] == [1]


def test_a_view_shares_the_memory_of_its_array_again(bench: Bench):
    """Also where the array was changed through the view."""
    first = bench.run("arr = np.zeros(200_000); view = arr[10:20]")
    bench.run("view[:] = 7")

    bench.goto(first)

    assert not bench["arr"].any()
    bench["view"][0] = 5
    assert bench["arr"][10] == 5


def test_a_window_over_every_second_element_shares_the_memory_again(bench: Bench):
    """NumPy's windows refer to the view that they are of; its memory is not whole, and it has a pack of its own."""
    bench.run("arr = np.arange(10.0); even = arr[::2]; kept = [even]")
    first = bench.run("window = np.lib.stride_tricks.sliding_window_view(even, 2, writeable=True)")
    bench.run("window[0, 1] = 7")
    assert bench["arr"][2] == 7

    assert not bench.goto(first)

    assert bench["window"].tolist() == [[0, 2], [2, 4], [4, 6], [6, 8]]
    bench["arr"][2] = 5
    assert bench["window"][0, 1] == bench["kept"][0][1] == 5
    assert bench["even"] is bench["kept"][0]


def test_a_slice_of_a_large_array_is_patched_where_it_lies(bench: Bench):
    """The array stays the same object, and only the difference is stored."""
    first = bench.run("arr = np.arange(4_000_000.0)")
    bench.background.wait(30)
    bench.checkpoints.poll()
    stored = bench.store.bytes_stored
    second = bench.run("arr[1000:1010] = -1")
    assert bench.store.bytes_stored - stored < 100_000
    array = bench["arr"]

    bench.goto(first)
    assert bench["arr"] is array
    assert (array == np.arange(4_000_000.0)).all()
    bench.goto(second)
    assert (bench["arr"][1000:1010] == -1).all()


@pytest.mark.parametrize(("seconds", "state"), [(0.0, "durable"), (0.04, "writing")], ids=["fast disk", "slow disk"])
def test_large_data_are_stored_when_the_cell_ends_unless_the_disk_is_slow(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seconds: float, state: str
):
    put, written = bench.store.put, list[str]()

    def put_slowly(address: str, data: Any, **named: Any) -> int:
        time.sleep(seconds)
        written.append(address)
        return put(address, data, **named)

    monkeypatch.setattr(bench.store, "put", put_slowly)
    if not seconds:  # the disk is fast, and the machine may be busy
        monkeypatch.setattr(storage, "INLINE_SECONDS", 60)
    first = bench.run("a = np.arange(5_000_000.0)")  # ten chunks
    assert bench.taken[first].info.state == state
    assert 1 <= len(set(written)) < 10 or not seconds
    bench.run("a[::100] = -1")
    assert bench.goto(first) == {}
    assert np.array_equal(bench["a"], np.arange(5_000_000.0))


def test_what_is_packed_in_the_background_is_stored_as_a_difference(bench: Bench, tmp_path: Path):
    """A large array with a few changed places costs those, also where hashing it took longer than there was time."""
    bench.run("a = np.arange(4_000_000.0)")
    bench.background.wait(30)
    bench.checkpoints.poll()
    before = sum(path.stat().st_size for path in tmp_path.rglob("*"))
    bench.tracker.settings = Settings(end_phase_ms=0)
    changed = bench.run("a[::500_000] = -1")
    assert bench.taken[changed].info.state == "writing"
    bench.tracker.settings = Settings()
    bench.run("a[:] = 0")
    assert not bench.goto(changed)

    assert bench["a"][500_000] == -1
    assert bench["a"][500_001] == 500_001
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*")) - before
    assert stored < 8_000_000


def test_what_is_packed_in_the_background_is_compared_with_a_copy(bench: Bench):
    """What a `__reduce__` leaves out is found there as well, and the value is held."""
    bench.tracker.settings = Settings(end_phase_ms=0)
    first = bench.run("class P:\n    n = 0\n    def __reduce__(self): return P, ()\np = P(); p.n = 7")
    bench.background.wait(30)
    bench.checkpoints.poll()
    kept = bench["p"]
    bench.run("p = None")

    lost = bench.goto(first)

    assert bench["p"] is kept or "p" in lost
    assert bench["p"].n == 7


@pytest.mark.parametrize(
    "late", ["c[...] = 9", "more = [c]; c[...] = 9", "del c; c = np.frombuffer(b, np.uint8); c[...] = 9"]
)
def test_a_job_stores_what_shares_memory_with_the_names_that_it_packs(bench: Bench, late: str):
    """A write through the array changes the bytes, which no cell names."""
    bench.run("b = bytearray(b'abc' * 3)\nc = np.frombuffer(b, np.uint8); alias = [c]")
    bench.tracker.settings = Settings(end_phase_ms=0)
    bench.run("c[0] = 1")
    bench.background.wait(30)
    bench.checkpoints.poll()
    changed = bench.run(late)
    bench.background.wait(30)
    bench.checkpoints.poll()
    bench.tracker.settings = Settings()
    bench.run("b[:] = bytes(9)")

    assert not bench.goto(changed)

    assert bench["b"] == b"\t" * 9
    bench["c"][0] = 1
    assert bench["b"][0] == 1


def test_a_state_has_each_object_that_its_variables_share(bench: Bench):
    """Objects that a job found to be shared may have other labels here: they are stored under these, too."""
    bench.run("ts = pd.Series(np.arange(40.0), pd.date_range('2020-01-01', periods=40)); r7 = ts.rolling(7)")
    bench.tracker.settings = Settings(end_phase_ms=0)
    bench.run("weekly = ts.resample('W'); low = weekly.min()")
    bench.background.wait(30)
    bench.checkpoints.poll()
    bench.tracker.settings = Settings()
    bench.run("z = [1]")
    changed = bench.run("ts.iloc[3] = np.nan")
    before = bench["weekly"].mean()
    bench.run("ts.iloc[4] = 0; del weekly, r7, low")

    state = bench.checkpoints.state(changed)
    assert {label for unit in state.values() for label in unit.labels} <= state.keys()
    assert not bench.goto(changed)
    assert bench["weekly"].mean().equals(before)


def test_names_that_a_background_job_found_to_share_are_compared_with_packs_of_this_process(bench: Bench):
    """The label that the job gave says nothing here: nothing changed outside of a cell, and they still share."""
    bench.tracker.settings = Settings(end_phase_ms=0)
    bench.run("a = np.zeros(100_000); v = a[10:20]")
    bench.background.wait(30)
    bench.checkpoints.poll()
    bench.tracker.settings = Settings()

    bench.tracker.refresh = True
    assert not bench.tracker.before("a")
    second = bench.run("a[15] = 1")
    bench.tracker.refresh = True
    assert not bench.tracker.before("v")
    bench.run("v[:] = 2")
    bench.goto(second)

    assert bench["v"].base is bench["a"]
    assert (bench["a"][15], bench["v"].tolist()) == (1, [0, 0, 0, 0, 0, 1, 0, 0, 0, 0])


SHARING = {
    "frames": (
        "(h.to_dict(), d.to_dict(), keep[0] is h, 'f' in globals() and f[0] is d)",
        "h = pd.DataFrame({'p': range(5), 'q': [1.0] * 5}); d = h.assign(z=5); keep = [h]",
        "d.loc[0, 'q'] = 5; h.attrs['n'] = 1",
        "f = (d, [5]); h.attrs['n'] = 2",
        "keep.append(3); d = d.copy(); f = (d, [6])",
    ),
    "lists": (
        "(f, g, 'k' in globals() and (k, k['k'] is f, k['n'][0] is g))",
        "f = [1]; g = {'k': [7], 'n': 1}",
        "k = {'k': f, 'n': [g]}",
        "f.append(2); k['n'].append(3)",
        "g = {'k': f}; k = {'k': f, 'n': [g]}",
    ),
    "classes": (
        "(P.rows, x.rows is P.rows, x.n, 'y' in globals() and (y.n, type(y) is P))",
        "class P:\n    rows = [1]\n    def __init__(self, n): self.n = n\nx = P([2])",
        "P.rows.append(3)",
        "y = P(x.n)",
        "P.rows = [4]; x.n.append(5)",
    ),
}


@pytest.mark.scaled
@pytest.mark.parametrize(
    ("case", "at", "late", "packs"), share(itertools.product(SHARING, range(3), [1, 2, 1000], range(0, 12, 2)), 32)
)
def test_what_names_share_comes_back_wherever_the_time_to_pack_them_ends(
    bench: Bench, case: str, at: int, late: int, packs: int, monkeypatch: pytest.MonkeyPatch
):
    """In one cell a number of packs are made in time, and those after them are late."""
    left = [1000]

    def is_late() -> bool:
        left[0] -= 1
        return -late <= left[0] < 0

    monkeypatch.setattr(Moment, "_pack", late_if(is_late))
    facts, *cells = SHARING[case]
    states: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        left[0] = packs if number == at else 1000
        bench.tracker.look_outside("a thread ran")
        execution_id = bench.run(cell)
        states[execution_id] = copy.deepcopy(eval(facts, bench.ns))
    bench.background.wait(30)
    bench.checkpoints.poll()
    for execution_id in states:
        units = bench.checkpoints.state(execution_id).values()
        assert not [unit.names for unit in units if not set(unit.names).isdisjoint(unit.labels)]
    for execution_id in (*reversed(states), *states):
        told = bench.goto(execution_id)
        assert eval(facts, bench.ns) == states[execution_id]
        assert all(why.endswith("at a time that is not known") for why in told.values()), told


@pytest.mark.parametrize("late", [(True, True), (True, False), (False, True), (False, False)])
def test_a_class_is_as_it_was_before_its_last_variable_was_bound_anew(
    bench: Bench, late: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
):
    """No variable refers to it any more, and it was not known yet which class the variable had."""
    is_late = False
    monkeypatch.setattr(Moment, "_pack", late_if(lambda: is_late))
    is_late = late[0]
    first = bench.run("class G:\n    rows = [4]")
    is_late = late[1]
    bench.run("G.n = 4; G.rows.append(5); G = [7]")
    is_late = False

    assert not bench.goto(first)

    assert (bench["G"].rows, hasattr(bench["G"], "n")) == ([4], False)


def test_a_name_that_is_one_object_with_a_text_in_its_value_is_packed_as_any_other_name():
    """A value has the same bytes before it was stored and after it was loaded."""
    name, other = "k", pickle.loads(b"\x8c\x01k.")
    packer = Packer({"__name__": "__main__"})
    assert packer.pack({name: {name: [7]}}).body == packer.pack({name: {other: [7]}}).body


@pytest.mark.parametrize("used", [False, True])
def test_what_is_packed_in_the_background_and_only_alive_stays_alive(bench: Bench, used: bool):
    """The process in the background gives it a token; it is the token of the object here."""
    bench.tracker.settings = Settings(end_phase_ms=0)
    first = bench.run("x = [[1], (n for n in range(9))]")
    if not used:
        bench.background.wait(30)
        bench.checkpoints.poll()
    alive = bench["x"][1]
    bench.run("y = next(x[1])" if used else "y = 1")

    lost = bench.goto(first)

    assert bench["x"][1] is alive
    assert bool(lost) == used


@pytest.mark.parametrize("names", ["x", "x = y"])
def test_what_two_jobs_in_the_background_find_alive_is_one_object(
    bench: Bench, names: str, monkeypatch: pytest.MonkeyPatch
):
    """Two processes pack one generator at the same time: it has the same token in both states, and is kept."""
    monkeypatch.setattr(Moment, "_pack", late_if(lambda: True))
    poll, bench.checkpoints.poll = bench.checkpoints.poll, list
    first = bench.run(f"{names} = [[1], (n for n in range(9))]")
    second = bench.run("x[0].append(2)")
    third = bench.run("x[0].append(3)")
    bench.checkpoints.poll = poll
    now = bench["x"]
    kept, alive = list(now), now[1]

    assert not bench.goto(third)
    assert all(one is other for one, other in zip(bench["x"], kept, strict=True))
    for target, rows in ((first, [1]), (second, [1, 2]), (third, [1, 2, 3])):
        bench.goto(target)
        assert bench["x"][0] == rows
        assert bench["x"][1] is alive
        tokens = {token for token, _ in bench.checkpoints.state(target)["x"].live}
        assert tokens == {bench.tracker.packer.token(alive)}


@pytest.mark.scaled
@pytest.mark.parametrize(
    ("late", "answered"), share(itertools.product(["111", "110", "101", "100", "011", "010"], [1, 2, 3]), 9)
)
def test_what_is_only_alive_and_was_used_while_it_was_packed_in_the_background_is_named(
    bench: Bench, late: str, answered: int, monkeypatch: pytest.MonkeyPatch
):
    """It is as the last cell left it, so only the state after that cell has it."""
    is_late = False
    monkeypatch.setattr(Moment, "_pack", late_if(lambda: is_late))
    poll, bench.checkpoints.poll = bench.checkpoints.poll, list
    states: list[str] = []
    for number, cell in enumerate(["import hashlib\nb = hashlib.sha256(b'6')", "b.update(b'2')", "b.update(b'3')"], 1):
        is_late = late[number - 1] == "1"
        states.append(bench.run(cell))
        if number == answered:
            bench.background.wait(30)
            bench.checkpoints.poll = poll
            bench.checkpoints.poll()
    is_late = False
    digest = bench["b"].hexdigest()

    assert not bench.goto(states[2])
    assert "b" in bench.goto(states[1])
    assert "b" in bench.goto(states[0])
    assert not bench.goto(states[2])
    assert bench["b"].hexdigest() == digest


@pytest.mark.parametrize("answered", ["first", "before", "after", "last"])
@pytest.mark.parametrize("shared", ["pd.Index([1, 8, 3])", "np.arange(3)"])
def test_what_a_job_and_the_kernel_find_shared_is_one_object_in_each_state(
    bench: Bench, answered: str, shared: str, monkeypatch: pytest.MonkeyPatch
):
    """Both give it a label; a state in which one name was stored by the job and the other here has one of them."""
    late = True
    monkeypatch.setattr(Moment, "_pack", late_if(lambda: late))
    poll, bench.checkpoints.poll = bench.checkpoints.poll, list
    bench.run(f"x = {shared}\nf = {{'k': x, 'n': [x]}}")
    first = bench.checkpoints.base
    assert first is not None

    def answer(at: str) -> None:
        if answered == at:
            bench.background.wait(30)
            bench.checkpoints.poll = poll
            bench.checkpoints.poll()

    answer("first")
    late = False
    both = bench.run("y = [x, len(f)]")
    answer("before")
    alone = bench.run("x.name = 'i9'" if "Index" in shared else "x[0] = 9")
    answer("after")
    last = bench.run("f['n'].append(x); z = [x]")
    answer("last")
    bench.run("del x, y, z, f")

    for target in (alone, last, first, both):
        bench.goto(target)
        x = bench["x"]
        held = [*bench["f"]["n"], bench["f"]["k"], *(bench[name][0] for name in "yz" if name in bench.ns)]
        assert all(one is x for one in held), target
        units = bench.checkpoints.state(target)
        assert units["f"].labels == units["x"].labels, target


def test_an_object_that_the_garbage_collector_does_not_know_stays_alive(bench: Bench):
    """A hash that is packed in the background is found again, as a value and within one."""
    bench.tracker.settings = Settings(end_phase_ms=0)
    first = bench.run("import hashlib; d = hashlib.sha256(b'9'); e = {'k': [hashlib.sha256(b'8')]}")
    alive = bench["d"], bench["e"]["k"][0]

    assert not bench.goto(first)

    assert (bench["d"], bench["e"]["k"][0]) == alive


def test_frames_come_back_whole(bench: Bench):
    """A column that was added, a cell that was set, a column that was taken out."""
    first = bench.run("df = pd.DataFrame({'a': range(5), 'b': list('vwxyz')}); col = df['a']")
    want = bench["df"].copy()
    second = bench.run("df['c'] = 1.5; df.loc[2, 'a'] = 99")
    later = bench["df"].copy()

    bench.goto(first)
    pd.testing.assert_frame_equal(bench["df"], want)
    pd.testing.assert_series_equal(bench["col"], want["a"])
    bench.goto(second)
    pd.testing.assert_frame_equal(bench["df"], later)


def test_instances_are_of_the_class_that_has_the_name(bench: Bench):
    """Restored instances and the class belong together; methods use the live globals."""
    first = bench.run(
        "scale = 2\nclass P:\n    def __init__(self, x): self.x = x\n"
        "    def scaled(self): return self.x * scale\np = P(3)"
    )
    bench.run("p.x = 5; scale = 10")
    bench.run("class P:\n    pass\np = P()")

    bench.goto(first)

    assert type(bench["p"]) is bench["P"]
    assert bench["p"].scaled() == 6
    bench.ns["scale"] = 4
    assert bench["p"].scaled() == 12


def test_a_class_that_its_base_holds_is_made_once(bench: Bench):
    """A base that registers its subclasses, a variable, and what shares the class's list have the same class again."""
    first = bench.run("pass")
    second = bench.run(
        "class Base:\n    known = []\n    def __init_subclass__(cls): Base.known.append(cls)\n"
        "class A_sub(Base): items = []\nA_sub.items.append(1); first = A_sub; items = A_sub.items"
    )
    bench.goto(first)

    assert not bench.goto(second)

    assert bench["first"] is bench["A_sub"] is bench["Base"].known[0]
    assert bench["first"].__base__ is bench["Base"]
    assert bench["items"] is bench["first"].items


def test_a_class_that_is_redefined_is_the_base_and_the_class_of_what_it_holds(bench: Bench):
    """A living class takes back the members that it had: a subclass and an instance among them are of that class."""
    first = bench.run("class Base:\n    held = []\n    def who(self): return __class__")
    second = bench.run("Base.held += [type('Sub', (Base,), {}), Base()]")
    third = bench.run("Base.who = lambda self: 3")
    base = bench["Base"]
    bench.goto(first)
    assert (base.held, base().who()) == ([], base)

    assert not bench.goto(second)
    assert bench["Base"] is base is base().who() is base.held[0].__base__ is type(base.held[1])

    assert not bench.goto(third)
    assert base.held[0]().who() == base.held[1].who() == 3


def test_a_method_that_a_class_does_not_have_any_more_is_stored(bench: Bench):
    """A method and a function of a class are stored by their names until the class has others under these."""
    first = bench.run("class P:\n    def put(self): return 1\np = P(); f = p.put; g = P.put; held = [P.put]")
    second = bench.run("P.put = lambda self: 2")
    bench.run("f = p.put; p.n = 1; g = held = None")

    assert not bench.goto(second)
    assert (bench["f"](), bench["g"](0), bench["held"][0](0), bench["p"].put()) == (1, 1, 1, 2)
    assert bench["f"].__self__ is bench["p"]
    assert not bench.goto(first)
    assert bench["f"].__func__ is bench["g"] is bench["held"][0] is bench["P"].put


def test_a_method_of_a_class_that_is_redefined_is_the_function_that_the_class_gets(bench: Bench):
    """Also where the class lacks the function now, and where the class and the method are stored together."""
    first = bench.run("class P:\n    def put(self): return 1\np = P(); f = p.put")
    bench.run("del P.put; f = p = None")
    assert not bench.goto(first)
    assert (bench["f"](), bench["f"].__func__) == (1, bench["P"].put)

    bench.run("p.__class__ = type('Q', (P,), {})")
    last = bench.run("exec('P.put = lambda self: 2'); g = p.put")
    cls = bench["P"]
    bench.goto(first)
    assert not bench.goto(last)
    assert bench["P"] is cls is type(bench["p"]).__base__
    assert (bench["f"](), bench["g"](), bench["g"].__func__) == (1, 2, cls.put)


def test_a_function_of_the_cell_uses_the_live_globals(bench: Bench):
    """Its defaults, closure and attributes come back; its globals are the namespace."""
    first = bench.run("k = 1\ndef f(a=[1]): return a + [k]\nf.tag = 'x'")
    bench.run("f.tag = 'y'; f()\nf.__defaults__[0].append(2)")

    bench.goto(first)

    assert bench["f"]() == [1, 1]
    assert bench["f"].tag == "x"
    assert bench["f"].__globals__ is bench.ns


def test_a_generator_is_kept_while_nobody_used_it_and_named_when_somebody_did(bench: Bench):
    """What cannot be stored is had back alive, or said to be lost."""
    first = bench.run("gen = (i for i in range(5)); n = 1")
    second = bench.run("n = 2")
    generator = bench["gen"]
    assert not bench.goto(first)
    assert bench["gen"] is generator
    bench.goto(second)

    bench.run("next(gen)")
    lost = bench.goto(first)

    assert any(name.startswith("gen") for name in lost)
    assert bench["n"] == 1


def test_an_object_that_holds_what_was_loaded_anew_is_held_again_or_named(bench: Bench):
    """A return that gives a generator as it is now, with a copy of its list, does not pass for the state itself."""
    first = bench.run("pass")
    second = bench.run("def f(k):\n    while True: yield k\nh = []; g = f(h)")
    third = bench.run("pass")
    held = bench["h"]

    assert not bench.goto(first)
    assert "g" in bench.goto(second)
    assert bench["h"] is not held
    assert not bench.goto(third)
    assert bench["h"] is held
    assert bench["g"].gi_frame.f_locals["k"] is held
    assert "g" in bench.goto(second) or bench["h"] is held


def test_other_members_of_a_unit_with_something_unstorable_are_stored(bench: Bench):
    """One generator in a dict does not cost the rest of it."""
    first = bench.run("d = {'g': (i for i in range(3)), 'data': [1, 2]}")
    bench.run("next(d['g']); d['data'].append(3)")

    lost = bench.goto(first)

    assert bench["d"]["data"] == [1, 2]
    assert any(name.startswith("d") for name in lost)


def test_each_name_that_holds_what_is_not_stored_is_named(bench: Bench):
    """Also one that holds it by what another name holds, or by a view or an iterator."""
    first = bench.run(
        "import collections\nd = {'g': (i for i in range(3))}; l = [d, *[d['g']] * 9]\n"
        "same = l; view = d.values(); it = iter(l); deque = collections.deque([view])"
    )
    bench.run("next(d['g'])")

    told = bench.goto(first)

    names = {name.partition("[")[0].partition("{")[0] for name in told}
    assert names == {"d", "l", "same", "view", "it", "deque"}


def test_an_iterator_that_lies_in_its_dict_is_named(bench: Bench):
    """It is made while the dict is empty, so it cannot go on, whether or not it went a step."""
    first = bench.run("d = {'k': 1, 'n': None}; b = iter(d); d['n'] = [b]")
    bench.run("d['k'] = 6")

    assert {"b", "d"} <= bench.goto(first).keys()


def test_swapped_places_of_equal_objects_are_a_change(bench: Bench):
    """Which of two equal lists lies where counts."""
    first = bench.run("x = [1]; y = [1]; both = [x, y]")
    bench.run("both.reverse()")

    bench.goto(first)

    assert bench["both"][0] is bench["x"]
    assert bench["both"][1] is bench["y"]


def test_weak_references_lead_to_the_restored_object(bench: Bench):
    """A weak reference within the state refers to the object of that state."""
    first = bench.run("import weakref\nclass N: pass\nn = N(); n.v = 1; r = weakref.ref(n)")
    bench.run("n.v = 2")

    bench.goto(first)

    assert bench["r"]() is bench["n"]
    assert isinstance(bench["r"], weakref.ref)
    assert bench["n"].v == 1


def test_what_stores_but_does_not_come_back_equal_is_named(bench: Bench):
    """A class whose `__reduce__` forgets is found out, and never restored as something else."""
    first = bench.run(
        "class Forgets:\n    def __init__(self, kept): self.kept, self.lost = kept, 2 * kept\n"
        "    def __reduce__(self): return Forgets, (self.kept,)\nf = Forgets(1); f.lost = 3; n = 1"
    )
    bench.run("n = 2")
    assert not bench.goto(first), "while nobody touched it, it is kept"
    assert bench["f"].lost == 3

    bench.run("f.kept = 5")
    told = bench.goto(first)

    assert "may have changed since" in told["f"]
    assert bench["f"].kept == 5


def test_a_database_in_memory_has_the_rows_that_it_had(bench: Bench):
    """Nothing in Python says that a row was added: whoever touched the connection is taken for a writer."""
    first = bench.run("import sqlite3; con = sqlite3.connect(':memory:'); con.execute('create table t (a)')")
    bench.run("con.execute('insert into t values (3)'); con.commit()")

    assert not bench.goto(first)
    assert bench["con"].execute("select * from t").fetchall() == []


def test_functions_of_one_closure_share_its_variables_again(bench: Bench):
    """One counts, the other reads."""
    first = bench.run(
        "def make():\n    n = 0\n    def up():\n        nonlocal n; n += 1\n"
        "    def read(): return n\n    return up, read\n"
        "up, read = make(); up()"
    )
    bench.run("up(); up()")

    bench.goto(first)

    assert bench["read"]() == 1
    bench["up"]()
    assert bench["read"]() == 2


def test_what_was_given_up_for_space_is_told_in_plain_words(bench: Bench):
    here = bench.run("a = np.arange(100_000); x = 1")
    bench.run("a = 0")
    bench.background.wait(20)
    bench.store.drop([entry.address for entry in bench.store.entries() if entry.size > 64 * 1024])
    assert "its data are missing: " in bench.goto(here)["a"]

    bench.store.drop([entry.address for entry in bench.store.entries()])
    assert all("its data are missing: " in why for why in bench.goto(here).values())


def test_a_shared_array_without_data_costs_the_names_that_hold_it(bench: Bench):
    """They are named before they are lost; what is stored together with one of them is there."""
    first = bench.run("a = np.arange(100_000); c = [1]; d = [a, c]")
    bench.run("del a; d = [0, c]")
    bench.background.wait(20)
    bench.store.drop([entry.address for entry in bench.store.entries() if entry.size > 64 * 1024])
    difference = bench.restorer.compare(first)

    assert "its data are missing: " in difference.absent["d"]
    assert {"a", "d"} == {name for name in bench.goto(first) if ":" not in name}
    assert bench["d"][1] is bench["c"]


def test_everything_that_holds_a_view_of_an_array_without_data_is_named(bench: Bench):
    """What is loaded first says what is missing; the others refer to the same stand-in."""
    first = bench.run("v = np.arange(100_000)[1:]; d = [v]; e = {'v': v}; c = 1")
    bench.run("del v, d, e, c")
    bench.background.wait(20)
    bench.store.drop([entry.address for entry in bench.store.entries() if entry.size > 64 * 1024])
    difference = bench.restorer.compare(first)

    assert {"v", "d", "e"} == {name for name in (*difference.gaps, *difference.lost) if ":" not in name}
    assert {"v", "d", "e"} == {name for name in bench.goto(first) if ":" not in name}


def test_a_restored_array_that_others_look_into_gets_another_content(bench: Bench):
    """Its memory is another kind than that of an array that a cell made: it is loaded, or patched, but not kept."""
    first = bench.run("arr = np.arange(20_000); d = [arr[10:20]]")
    second = bench.run("arr[12] = -3")
    third = bench.run("del arr, d")
    bench.goto(first)
    for goes in (second, first, third, second, first):
        bench.goto(goes)
        if goes != third:
            expected = -3 if goes == second else 12
            assert (bench["arr"][12], bench["d"][0][2]) == (expected, expected)
            assert np.shares_memory(bench["arr"], bench["d"][0])


def test_an_array_beside_one_that_is_loaded_anew_is_not_patched_by_itself(bench: Bench):
    """What holds both of them would still hold the one of before."""
    first = bench.run("arr = np.arange(20_000); d = [np.zeros(20_000), arr]")
    bench.run("d[0][0] = 1; arr.shape = 200, 100")

    bench.goto(first)

    assert bench["d"][1] is bench["arr"]
    assert (bench["arr"].shape, bench["d"][0][0]) == ((20_000,), 0)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Have the disk be full, or have room again."""
    real = packs.write_all

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    return lambda is_full: monkeypatch.setattr(packs, "write_all", refuse if is_full else real)


def test_a_state_that_could_not_be_stored_is_left_alone_by_a_return_to_it(bench: Bench, full: Any):
    """While its values are alive and as they were, they are kept."""
    bench.run("a = [1]")
    full(True)
    second = bench.run("a.append(2); b = {'a': a}")
    kept = bench["b"]

    assert bench.goto(second) == {}
    assert bench["b"] is kept
    assert kept == {"a": [1, 2]}


def test_a_return_that_would_lose_what_could_not_be_stored_names_it(bench: Bench, full: Any):
    """The values of the state that is left are held: the way back finds them."""
    first = bench.run("a = [1]")
    full(True)
    second = bench.run("a.append(2)")
    bench.goto(first)
    assert bench["a"] == [1]
    bench.goto(second)
    assert bench["a"] == [1, 2]
    assert bench.restorer.compare(second).absent == {}


def test_a_held_value_that_was_changed_since_does_not_pass_for_what_it_was(bench: Bench, full: Any):
    """A cell ran after a return to it: it is named."""
    first = bench.run("a = [1]; n = 1")
    full(True)
    second = bench.run("a.append(2)")
    bench.goto(first)
    bench.goto(second)
    bench.run("a.append(3)")
    bench.goto(first)

    assert bench.goto(second).keys() >= {"a"}
    assert "a" not in bench.ns


def test_an_array_that_is_not_stored_is_not_written_over(bench: Bench, full: Any):
    """It is held for the way back."""
    first = bench.run("arr = np.arange(20_000)")
    full(True)
    second = bench.run("arr[3] = -3")
    bench.goto(first)
    assert bench["arr"][3] == 3

    bench.goto(second)

    assert bench["arr"][3] == -3


def test_what_could_not_be_stored_is_stored_with_the_next_state(bench: Bench, full: Any):
    """Groups, shared arrays, numbers and what is no variable: all of it, though the next cell touches none of it."""
    first = bench.run("x = 0; arr = np.arange(20_000); d = [arr]; a = [1]; b = [a]")
    full(True)
    bench.run("x = 1; arr[3] = -3; a.append(2); e = (b, 5)")
    full(False)
    third = bench.run("pass")
    bench.run("a.append(3)")
    bench.goto(first)
    bench.checkpoints.held.clear()

    assert bench.goto(third) == {}
    assert (bench["x"], bench["arr"][3], bench["a"], bench["e"]) == (1, -3, [1, 2], ([[1, 2]], 5))
    assert bench["d"][0] is bench["arr"]
    assert bench["e"][0] is bench["b"]
    assert bench["b"][0] is bench["a"]


def test_another_kernel_knows_what_could_not_be_stored(bench: Bench, full: Any, tmp_path: Path):
    """It does not take the values of the state before for those of this one."""
    bench.run("a = [1]; n = 1; k = [0]")
    full(True)
    second = bench.run("a.append(2); n = 2")
    full(False)
    other = Bench(tmp_path / "chunks")
    for execution_id, taken in bench.taken.items():
        other.checkpoints.load(execution_id, taken.manifest, taken.info)

    lost = other.goto(second)

    assert lost.keys() == {"a", "n", "ambient:cells"}
    assert "No space" in lost["a"]
    assert other["k"] == [0]
    other.store.close()


def test_options_of_the_process_that_could_not_be_stored_stop_no_return(bench: Bench, full: Any):
    """No variable is lost by it: it is named, and that is all."""
    first = bench.run("a = [1]")
    full(True)
    second = bench.run("b = 2")
    bench.goto(first)

    assert not bench.restorer.compare(second).absent.keys() & {"ambient:cells"}
    assert bench.goto(second).keys() == {"ambient:cells"}


@pytest.mark.parametrize(
    ("first", "change", "holds"),
    [
        ("c = {'lr': 1}\nclass A: conf = c\na = A()", "c['lr'] = 5", "A.conf is c and c == {'lr': 1}"),
        ("class A: past = []\na = A(); h = A.past", "h.append(1)", "a.past is h and h == []"),
        ("class A: w = np.zeros(3)\na = A(); w = A.w", "w[0] = 5", "a.w is w and w.tolist() == [0, 0, 0]"),
        (
            (
                "def make():\n n = []\n class C:\n  def read(self): return n\n return n.append, C\n"
                "add, A = make(); a = A()"
            ),
            "add(1)",
            "(add(2), a.read())[1] == [2]",
        ),
        (
            "import enum\nclass A(enum.Enum): X = {'lr': 1}\na = A.X",
            "a.value['lr'] = 5",
            "a is A.X and a.value == {'lr': 1}",
        ),
        (
            (
                "class A:\n known = {}\n def __init_subclass__(cls): A.known[cls.__name__] = cls\n"
                "class B(A): pass\na = B(); k = A.known"
            ),
            "class D(A): pass",
            "k is A.known and k == {'B': B} and isinstance(a, A)",
        ),
    ],
)
def test_a_class_that_shares_what_changed_stays_the_class_of_its_instances(bench: Bench, first, change, holds):
    """It is redefined in place: instances, subclasses and what refers to it go on with it, there and back."""
    one = bench.run(first)
    cls = bench["A"]
    two = bench.run(change)

    bench.goto(one)
    assert bench["A"] is cls
    assert eval(holds, bench.ns) and isinstance(bench["a"], cls)
    bench.goto(two)
    assert bench["A"] is cls and isinstance(bench["a"], cls)


def test_a_name_that_was_deleted_after_a_return_stays_deleted(bench: Bench):
    first = bench.run("e = [7, [8]]; g = [e, e]")
    bench.run("g.append(5)")
    bench.goto(first)
    bench.checkpoints.settled(first, bench.checkpoints.state(first), set(), ["g"])

    gone = bench.run("del e")
    bench.goto(first)
    bench.goto(gone)

    assert "e" not in bench.ns
    assert bench["g"] == [[7, [8]], [7, [8]]]
