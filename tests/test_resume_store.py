"""What an earlier kernel left: its tree, HEAD, names and states, read back for the next one to go on with."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples
from test_store import statement, turn

from ctxkernel.core.errors import StoreError
from ctxkernel.core.replay import CHECKPOINT_FORMAT, Comparison, Divergence, HeadMove
from ctxkernel.core.timeline import Execution, Statement, StatementLog
from ctxkernel.store.chunks.manifest import GIVEN_UP, Manifest, chain, each_state, resolve, skipped_manifest
from ctxkernel.store.log import opening, schema
from ctxkernel.store.log.resumable_runs import load_run, unsettled
from ctxkernel.store.log.row_masking import unmasked
from ctxkernel.store.log.session import CheckpointRow, SessionReader, SessionStore
from ctxkernel.store.log.session_check import verify


class Kernel:
    """A kernel without one: statements, re-runs and moves go to a live log and to the store alike."""

    def __init__(self, path: Path, **opened):
        self.store = SessionStore.open(path, now=self.now, **opened)
        self.log = StatementLog()
        self.log.start_after(self.store.last_index)
        self.moves: list[HeadMove] = []
        self.compared: list[Comparison] = []
        self.clock = 1000.0 * self.store.run
        self.turn_id = 0

    def now(self) -> float:
        self.clock = getattr(self, "clock", 0.0) + 1
        return self.clock

    def run(
        self,
        again: str | None = None,
        *,
        moved: HeadMove | None = None,
        comparison: Comparison | None = None,
        checkpoint: Mapping | None = None,
        ends: bool = True,
        **row,
    ) -> str:
        """Run a new statement, or one of the log again; returns the execution."""
        log, at = self.log, self.now()
        if again is None:
            index = log.next_index
            made = Statement(f"s{index}", index, at, f"x = {index}")
            running = Execution(f"s{index}.1", made.statement_id, log.head, at)
            log.append(made, running)
        else:
            made = log.statement(again)
            running = Execution(log.next_execution_id(again), again, log.head, at)
            log.append_execution(running)
        eid = running.execution_id
        self.moves.append(HeadMove(eid, "run", at))
        assert self.store.begin(made, running) is None
        if not ends:
            return eid
        ended = dataclasses.replace(running, ended_at=self.now(), status="ok")
        log.finish(ended)
        self.turn_id += 1
        moved = moved and dataclasses.replace(moved, at=self.now())
        comparison = comparison and dataclasses.replace(comparison, execution_id=eid)
        result = dataclasses.replace(
            turn(1), turn_id=self.turn_id, statement=made, execution=ended, moved=moved, comparison=comparison
        )
        kept = None
        if checkpoint is not None:
            kept = CheckpointRow(f"c{eid}", {"v": 2, "gone": [], "units": [], **checkpoint}, **row)
        assert self.store.end(result, checkpoint=kept) is None
        if moved is not None:
            log.move_head(moved.to, by=eid)
            self.moves.append(moved)
        if comparison is not None:
            self.compared.append(comparison)
        return eid

    def goto(self, execution_id: str | None) -> str:
        return self.run(moved=HeadMove(execution_id, "goto", 0.0))

    def resume(self, before: int | None = None) -> None:
        """Go on with what the last root left, as the kernel does."""
        found = load_run(self.store.path, before=before or self.store.run)
        assert found is not None
        assert found.target is not None
        at = self.now()
        assert self.store.resume(found.target, at) is None
        own = [(one, self.log.executions(one.statement_id)) for one in self.log]
        self.log = StatementLog()
        self.log.load([*found.statements, *own], found.target, movers=found.movers)
        self.moves = sorted([*found.moves, *self.moves], key=lambda one: one.at)
        self.moves.append(HeadMove(found.target, "resume", at))
        self.compared = [*found.comparisons, *self.compared]

    def die(self) -> None:
        """End as a kill does: no close."""
        self.store._writer._connection.close()
        self.store._writer._lock.release()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "note.sqlite"


def tree(log: StatementLog):
    return [(one, log.executions(one.statement_id)) for one in log], log.head, log.branches()


def assert_read_back(kernel: Kernel) -> None:
    with SessionReader(kernel.store.path) as reader:
        assert tree(reader.log()) == tree(kernel.log)
        assert reader.statements() == tree(kernel.log)[0]
        assert reader.head() == kernel.log.head
        assert reader.log().branches() == kernel.log.branches()
        assert reader.head_moves() == kernel.moves
        assert reader.comparisons() == kernel.compared
        assert reader.damage == []


# -- law 3, for the tree ---------------------------------------------------------------------------


steps = st.lists(
    st.tuples(st.sampled_from(["run", "run", "again", "goto", "start", "before all", "compare"]), st.integers(0, 50)),
    max_size=14,
)


@settings(max_examples=examples(30))
@given(steps)
def test_the_tree_that_is_read_is_the_tree_that_was(steps):
    """Statements, re-runs, moves of HEAD, comparisons and resumed kernels, in any order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "note.sqlite"
        kernel = Kernel(path)
        kernel.run(checkpoint={})
        for step, number in steps:
            ids = [run.execution_id for one in kernel.log for run in kernel.log.executions(one.statement_id)]
            some = ids[number % len(ids)]
            if step == "again":
                kernel.run(kernel.log.execution(some).statement_id, checkpoint={})
            elif step == "goto":
                kernel.goto(some)
            elif step == "before all":
                kernel.goto(None)
            elif step == "compare":
                kernel.run(comparison=Comparison("", some, (Divergence("output", "stdout", "differs"),)))
            elif step == "start":
                kernel.run(checkpoint={})  # so that there is a state on HEAD's path
                kernel.store.close()
                kernel = Kernel(path)
                kernel.resume()
            else:
                kernel.run(checkpoint={})
            assert_read_back(kernel)
        kernel.store.close()
        assert verify(path).damage == []


def test_a_second_execution_adds_no_statement(path):
    kernel = Kernel(path)
    kernel.run()
    kernel.run()
    kernel.goto("s1.1")
    assert kernel.run("s2") == "s2.2"
    assert_read_back(kernel)
    kernel.store.close()
    with SessionReader(path) as reader:
        (_, (first, second)) = reader.statements()[1]
    assert (first.execution_id, second.parent_execution_id) == ("s2.1", "s1.1")


def test_a_move_of_head_makes_no_branch_of_its_own(path):
    kernel = Kernel(path)
    for _ in range(3):
        kernel.run()
    kernel.goto("s1.1")
    kernel.run()
    kernel.store.close()
    with SessionReader(path) as reader:
        assert [(one.leaf, one.fork, one.statements, one.has_head) for one in reader.log().branches()] == [
            ("s3.1", "s1.1", ("s2", "s3"), False),
            ("s5.1", "s1.1", ("s5",), True),
        ]


# -- comparisons -----------------------------------------------------------------------------------

texts = st.text(st.characters() | st.sampled_from("\0\ud800é"), max_size=12)
divergences = st.builds(
    Divergence,
    st.sampled_from(["output", "state", "artifact", "error", "file", "timing"]),
    texts,
    texts,
    st.sampled_from(["", "seed", "clock"]),
    texts,
    texts,
)
comparisons = st.builds(
    Comparison,
    st.just(""),
    st.just("s1.1"),
    st.lists(divergences, max_size=3).map(tuple),
    st.booleans(),
    st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)),
)


@settings(max_examples=examples(40))
@given(st.lists(comparisons, min_size=1, max_size=3))
def test_comparisons_come_back_as_they_were(made):
    with tempfile.TemporaryDirectory() as folder:
        kernel = Kernel(Path(folder) / "note.sqlite")
        kernel.store._mask = unmasked
        kernel.run()
        for one in made:
            kernel.run("s1", comparison=one)
        with SessionReader(kernel.store.path) as reader:
            assert reader.comparisons() == kernel.compared
            (statement,) = reader.timeline()["statements"]
            told = [run.get("comparison") for run in statement["executions"]]
        assert told[0] is None
        assert [one["same"] for one in told[1:]] == [one.same for one in kernel.compared]
        kernel.store.close()


def test_a_comparison_that_is_the_same_is_told_too(path):
    kernel = Kernel(path)
    kernel.run()
    kernel.run("s1", comparison=Comparison("", "s1.1", (), time_ms=(10.0, 12.0)))
    with SessionReader(path) as reader:
        ((_, execution),) = [one["executions"] for one in reader.timeline()["statements"]]
    assert execution["comparison"] == {
        "same": True, "against": "s1.1", "divergences": [], "expected": False, "time_ms": [10.0, 12.0],
    }  # fmt: skip
    assert sqlite3.connect(path).execute("SELECT kind FROM divergences").fetchall() == [("same",)]
    kernel.store.close()


SECRET = "sk-ant-api03-" + "Zq9" * 12


def test_credentials_are_masked_in_comparisons_checkpoints_names_and_reasons(path):
    kernel = Kernel(path)
    unit = {"n": ["x"], "m": {"x": f"a socket with {SECRET}"}, "p": [f"generator in x[{SECRET!r}]"]}
    kernel.run(checkpoint={"units": [unit]}, state="skipped", reason=f"too large: {SECRET}")
    found = (
        Divergence(
            "state", "db_password", "changed 'hunter2hunter2' → 'x'", "", "'hunter2hunter2'", "'hunter3hunter3'"
        ),
        Divergence("output", "stdout", SECRET, "", SECRET, f"is {SECRET}"),
    )
    kernel.run("s1", comparison=Comparison("", "s1.1", found))
    kernel.store.mark("s1.1", "name", SECRET, 1.0)
    kernel.store.checkpoint_state("cs1.1", "durable", SECRET, 2.0, results={"j": {"units": [unit]}})
    kernel.store.close()
    assert SECRET.encode() not in path.read_bytes()
    assert b"hunter" not in path.read_bytes()
    with SessionReader(path) as reader:
        (made,) = reader.comparisons()
        assert [one.summary for one in made.divergences] == ["changed [masked]", "[masked: Anthropic key]"]
        assert reader.checkpoints()["s1.1"].missing["x"] == "a socket with [masked: Anthropic key]"
        assert reader.all_manifests()["s1.1"].signed


# -- names and marks -------------------------------------------------------------------------------


def test_the_newest_of_a_mark_holds_and_none_takes_it_back(path):
    kernel = Kernel(path)
    for _ in range(3):
        kernel.run()
    store = kernel.store
    store.mark("s1.1", "name", "good", 1.0)
    store.mark("s2.1", "name", "better", 2.0)
    store.mark("cell-7", "rerun", "differs", 3.0)
    store.mark("cell-8", "rerun", "asks", 3.5)
    with SessionReader(path) as reader:
        assert reader.names() == {"good": "s1.1", "better": "s2.1"}
        assert reader.marks()["cell-7", "rerun"] == "differs"
    store.mark("s3.1", "name", "good", 4.0)  # the name goes to another state
    store.mark("s2.1", "name", None, 5.0)
    store.mark("cell-7", "rerun", None, 6.0)
    with SessionReader(path) as reader:
        assert reader.names() == {"good": "s3.1"}
        assert ("cell-7", "rerun") not in reader.marks()
        assert reader.marks()["cell-8", "rerun"] == "asks"
    store.close()
    found = load_run(path)
    assert found is not None
    assert found.names == {"good": "s3.1"}


# -- checkpoints -----------------------------------------------------------------------------------


def test_a_checkpoint_stands_in_the_timeline_only_where_there_is_one(path):
    kernel = Kernel(path)
    kernel.run(checkpoint={"units": [{"n": ["g"], "m": {"g": "a generator"}}]}, nbytes=5, time_ms=1.5)
    kernel.run()
    with SessionReader(path) as reader:
        first, second = [one["executions"][0] for one in reader.timeline()["statements"]]
    assert first["checkpoint"] == {
        "checkpoint_id": "cs1.1", "state": "durable", "bytes_new": 5, "time_ms": 1.5, "missing": {"g": "a generator"},
        "reason": "",
    }  # fmt: skip
    assert "checkpoint" not in second
    assert "comparison" not in first
    kernel.store.close()


def test_what_a_state_lacks_is_followed_through_what_it_builds_on(path):
    kernel = Kernel(path)
    lacking = {"n": ["a", "b"], "m": {"a": "a lock"}, "p": ["generator in a['x']"]}
    kernel.run(checkpoint={"units": [lacking]})
    kernel.run(checkpoint={"base": "cs1.1", "units": [{"n": ["c"], "j": "s2.1:0"}]})
    kernel.run(checkpoint={"base": "cs2.1", "units": [{"n": ["a"]}]})
    kernel.run(checkpoint={"base": "cs2.1", "gone": ["a", "c"]})
    results = {"s2.1:0": {"units": [{"n": ["c"], "m": {"c": "a socket"}}]}}
    kernel.store.checkpoint_state("cs2.1", "durable", "", 1.0, results=results)
    with SessionReader(path) as reader:
        found = [info.missing for info in reader.checkpoints().values()]
    both = {"a": "a lock", "a: generator in a['x']": "cannot be stored"}
    assert found == [both, {**both, "c": "a socket"}, {"c": "a socket"}, {}]
    kernel.store.close()


def test_the_newest_state_of_a_checkpoint_holds(path):
    kernel = Kernel(path)
    kernel.run(checkpoint={}, state="writing")
    kernel.run(checkpoint={}, state="skipped", reason="4.0 GB do not fit")
    kernel.store.checkpoint_state("cs1.1", "durable", "", 2.0)
    kernel.store.checkpoint_state("cs1.1", "thinned", "old and large", 3.0)
    with SessionReader(path) as reader:
        found = reader.checkpoints()
    assert (found["s1.1"].state, found["s1.1"].reason) == ("thinned", "old and large")
    assert (found["s2.1"].state, found["s2.1"].reason) == ("skipped", "4.0 GB do not fit")
    kernel.store.close()


def test_a_manifest_comes_with_what_it_builds_on(path):
    kernel = Kernel(path)
    kernel.run(checkpoint={"units": [{"n": ["a"]}]})
    kernel.run()
    kernel.run(checkpoint={"base": "cs1.1"})
    kernel.run(checkpoint={"base": "cs2.1"})
    with SessionReader(path) as reader:
        stored = reader.all_manifests(all_roots=True)
        assert [one.checkpoint_id for one in chain(stored, "s3.1")] == ["cs3.1", "cs1.1"]
        assert stored["s1.1"].parse()["units"] == [{"n": ["a"]}]
        with pytest.raises(StoreError, match=r"cs4\.1 builds on cs2\.1, which is not there"):
            chain(stored, "s4.1")
        with pytest.raises(StoreError, match=r"no checkpoint after s2\.1"):
            chain(stored, "s2.1")
    kernel.store.close()
    assert verify(path).damage == ["checkpoint cs4.1 cannot be returned to: it builds on cs2.1, which is not there"]


def test_has_checkpoint_says_what_may_be_built_on(path):
    kernel = Kernel(path)
    kernel.run(checkpoint={})
    kernel.run()
    assert kernel.store.has_checkpoint("cs1.1")
    assert not kernel.store.has_checkpoint("cs2.1")
    kernel.store.close()
    assert not kernel.store.has_checkpoint("cs1.1")
    again = SessionStore.open(path)
    assert again.has_checkpoint("cs1.1")  # of an earlier kernel
    again.close()


def test_the_state_outside_of_cells_is_stored_with_the_end(path):
    store = SessionStore.open(path)
    for index, early in ((1, True), (3, False)):  # whether the start was stored
        (outside, before), (made, running) = statement(index, tags={"outside": True}), statement(index + 1)
        before = dataclasses.replace(before, ended_at=before.started_at, status="ok")
        row = CheckpointRow(f"cs{index}.1", {"units": []})
        result = dataclasses.replace(turn(index + 1), outside=(outside, before))
        if early:
            assert store.begin(made, running, (outside, before)) is None
        after = CheckpointRow(f"cs{index + 1}.1", {"units": []})
        assert store.end(result, checkpoint=after, outside_checkpoint=row) is None
    store.close()
    with SessionReader(path) as reader:
        assert list(reader.checkpoints()) == ["s1.1", "s2.1", "s3.1", "s4.1"]


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        CheckpointRow("cs2.1", {"units": 3}),
        CheckpointRow("cs2.1", {"units": []}, 2**70),
        CheckpointRow("cs2.1", {"units": []}, time_ms="soon"),
        CheckpointRow("cs2.1", {"units": []}, 3, object()),
    ],
    ids=["no manifest", "too large a number", "no number", "no format"],
)
def test_a_checkpoint_that_fits_no_row_costs_the_checkpoint_and_not_the_turn(path, bad):
    store = SessionStore.open(path)
    store.begin(*statement(1))
    assert store.end(turn(1), checkpoint=CheckpointRow("cs1.1", {"units": []})) is None
    store.begin(*statement(2))
    notice = store.end(turn(2, stdout="hello"), checkpoint=bad)
    told = [notice]
    store.begin(*statement(3))
    told.append(store.end(turn(3), checkpoint=CheckpointRow("cs3.1", {"units": []})))
    with SessionReader(path) as reader:
        assert [run.status for _, (run,) in reader.statements()] == ["ok"] * 3
        assert reader.statements()[1][1][0].stdout == "hello"
        if "cs2.1" not in [one.checkpoint_id for one in reader.all_manifests().values()]:
            assert notice is not None
            assert "Not all of" in notice
            assert not store.has_checkpoint("cs2.1")
        assert told[1] is None
    store.close()
    assert store.path is not None


def test_a_turn_that_cannot_be_stored_whole_moves_head_all_the_same(path):
    class Broken:
        def to_record(self):
            raise RuntimeError("no")

    kernel = Kernel(path)
    kernel.run(checkpoint={})
    kernel.store.begin(*statement(2))
    result = dataclasses.replace(turn(2), projection=Broken(), moved=HeadMove("s1.1", "goto", 9.0))
    assert "Not all of s2.1" in str(kernel.store.end(result, checkpoint=CheckpointRow("cs2.1", {"units": []})))
    assert not kernel.store.has_checkpoint("cs2.1")
    with SessionReader(path) as reader:
        assert reader.head() == "s1.1"
        assert reader.statements()[1][1][0].status == "ok"
    kernel.store.close()


def test_a_second_checkpoint_of_one_execution_is_lost_alone(path):
    """Whatever the database refuses of what a return needs: the rest of the turn is stored without it."""
    kernel = Kernel(path)
    kernel.run(checkpoint={})
    connection = kernel.store._writer._connection
    connection.execute("CREATE TRIGGER no BEFORE INSERT ON checkpoints BEGIN SELECT RAISE(ABORT, 'no'); END")
    made, running = statement(2)
    kernel.store.begin(made, running)
    result = dataclasses.replace(turn(2, stdout="kept"), moved=HeadMove("s1.1", "goto", 9.0))
    notice = kernel.store.end(result, checkpoint=CheckpointRow("cs2.1", {"units": []}))
    assert "the data that a return to a turn needs" in str(notice)
    assert not kernel.store.has_checkpoint("cs2.1")
    assert kernel.store.has_checkpoint("cs1.1")
    connection.execute("DROP TRIGGER no")
    with SessionReader(path) as reader:
        assert reader.statements()[1][1][0].stdout == "kept"
        assert reader.head() == "s1.1"
    kernel.store.close()


def test_a_full_disk_holds_checkpoints_back_and_loses_none(path):
    kernel = Kernel(path)
    kernel.run(checkpoint={})
    connection = kernel.store._writer._connection
    connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")
    told = []
    for index in range(2, 30):
        told.append(kernel.store.begin(*statement(index)))
        row = CheckpointRow(f"cs{index}.1", {"base": f"cs{index - 1}.1", "units": [{"n": ["x" * 500]}]})
        told.append(kernel.store.end(turn(index), checkpoint=row))
        told.append(kernel.store.mark(f"s{index}.1", "name", f"n{index}", 1.0))
        assert kernel.store.has_checkpoint(f"cs{index}.1")
    assert len([one for one in told if one]) == 1
    connection.execute("PRAGMA max_page_count = 1000000")
    assert "nothing was lost" in str(kernel.store.begin(*statement(30)))
    kernel.store.close()
    with SessionReader(path) as reader:
        assert len(reader.checkpoints()) == 29
        assert len(chain(reader.all_manifests(), "s29.1")) == 29
        assert len(reader.names()) == 28
    assert verify(path).sound


def test_a_comparison_with_what_is_not_there_costs_itself(path):
    kernel = Kernel(path)
    kernel.run()
    store = kernel.store
    store.begin(*statement(2))
    result = dataclasses.replace(turn(2, stdout="kept"), comparison=Comparison("s2.1", "s77.1"))
    assert "the comparison of s2.1" in str(store.end(result))
    with SessionReader(path) as reader:
        assert reader.statements()[1][1][0].stdout == "kept"
        assert reader.comparisons() == []
    store.close()


@pytest.mark.skipif(os.name != "posix", reason="a file system without shared memory")
def test_all_of_it_is_kept_where_there_is_no_write_ahead_log(path, monkeypatch):
    monkeypatch.setattr(opening, "VFS", "?vfs=unix-none")
    kernel = Kernel(path)
    kernel.run(checkpoint={})
    kernel.run("s1", comparison=Comparison("", "s1.1"))
    kernel.goto("s1.1")
    assert_read_back(kernel)
    kernel.store.close()
    second = Kernel(path)
    second.resume()
    second.run(checkpoint={"base": "cs1.1"})
    assert_read_back(second)
    second.store.close()
    assert verify(path).damage == []


def test_a_session_in_memory_takes_all_of_it(tmp_path):
    (tmp_path / "file").touch()
    kernel = Kernel(tmp_path / "file" / "below" / "a.sqlite")
    store = kernel.store
    assert store.path is None
    kernel.run(checkpoint={})
    kernel.run("s1", comparison=Comparison("", "s1.1"), checkpoint={"base": "cs1.1"})
    kernel.goto("s1.1")
    assert store.has_checkpoint("cs1.1")
    assert not store.has_checkpoint("cs7.1")
    assert store.checkpoint_state("cs1.1", "thinned", "old", 1.0) is None
    assert store.mark("s1.1", "name", "good", 1.0) is None
    assert store.trust() is None
    assert store.resume("s1.1", 1.0) is None
    store.close()
    assert (store.mark("s1.1", "name", "x", 1.0), store.trust(), store.resume("s1.1", 1.0)) == (None, None, None)
    assert store.checkpoint_state("cs1.1", "durable", "", 1.0) is None
    assert not store.has_checkpoint("cs1.1")


def test_no_flipped_bit_is_passed_over_in_silence(path):
    """Wherever a bit flips: all of the tree is read as it was, or it is said; and nothing but StoreError is raised."""
    kernel = Kernel(path)
    kernel.run(checkpoint={"units": [unit("a", "a1"), {"n": ["g"], "m": {"g": "a generator"}}]})
    kernel.run(checkpoint={"base": "cs1.1", "units": [{"n": ["c"], "j": "s2.1:0"}]}, state="writing")
    results = {"s2.1:0": {"units": [unit("c", "c1")]}}
    kernel.store.checkpoint_state("cs2.1", "durable", "", 1.0, results=results)
    kernel.run("s1", comparison=Comparison("", "s1.1", (Divergence("output", "stdout", "differs", "seed", "1", "2"),)))
    kernel.store.mark("s2.1", "name", "good", 1.0)
    kernel.goto("s1.1")
    kernel.store.trust()
    kernel.store.close()
    chunks = FakeChunks(a1=b"", c1=b"")

    def look():
        with SessionReader(path) as reader:
            return (
                tree(reader.log()), reader.timeline(), reader.checkpoints(), reader.names(), reader.comparisons(),
                reader.head_moves(), reader.all_manifests(), unsettled(reader, chunks, addresses),
                load_run(reader, chunks=chunks, references=addresses),
            )  # fmt: skip

    raw, whole = path.read_bytes(), look()
    chance = random.Random(6)
    silent, read = [], 0
    for _ in range(150):
        at = chance.randrange(len(raw))
        path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << chance.randrange(8))]) + raw[at + 1 :])
        try:
            found = look()
            read += 1
            report = verify(path, chunks, addresses)
            if found != whole and report.sound and not any("not signed by you" in one for one in report.remarks):
                silent.append(at)
        except StoreError:
            pass
    assert silent == []
    assert read > 50


# -- going on --------------------------------------------------------------------------------------


def test_a_session_in_which_nothing_ran_leaves_nothing(path):
    SessionStore.open(path).close()
    assert load_run(path) is None


def test_a_killed_kernel_leaves_its_tree_and_its_newest_state(path):
    first = Kernel(path)
    first.run(checkpoint={})
    first.run(checkpoint={"base": "cs1.1"})
    first.run(ends=False)
    first.die()
    second = Kernel(path)
    found = load_run(path, before=second.store.run)
    assert found is not None
    assert found.session_id == first.store.session_id
    assert found.head == "s3.1"
    assert found.target == "s2.1"
    assert found.not_restorable == (("s3.1", "the kernel died while it ran"),)
    assert found.interrupted is not None
    assert found.interrupted.execution_id == "s3.1"
    assert found.interrupted.status == "cancelled"
    assert found.trusted
    assert found.path_to_head == ("s3.1", "s2.1", "s1.1")

    second.resume()
    assert second.run(checkpoint={}) == "s4.1"
    assert_read_back(second)
    with SessionReader(path) as reader:
        assert reader.statements()[3][1][0].parent_execution_id == "s2.1"
    second.store.close()
    assert verify(path).damage == []
    (resumed,) = sqlite3.connect(path).execute("SELECT resumed_from FROM runs WHERE resumed_from IS NOT NULL")
    assert resumed == ("s2.1",)


def test_a_start_without_resume_is_a_root_of_its_own(path):
    first = Kernel(path)
    first.run()
    first.store.close()
    second = Kernel(path)
    second.run()
    assert_read_back(second)  # s2 alone
    second.store.close()


def test_resuming_after_cells_have_run_keeps_them_as_a_branch_of_their_own(path):
    first = Kernel(path)
    first.run(checkpoint={})
    first.run(checkpoint={"base": "cs1.1"})
    first.store.close()
    second = Kernel(path)
    own = second.run(checkpoint={})
    second.resume()
    assert second.log.head == "s2.1"
    second.run(checkpoint={})
    assert_read_back(second)
    assert [one.leaf for one in second.log.branches()] == [own, "s4.1"]
    assert second.log.branches()[0].fork is None
    second.store.close()

    third = Kernel(path)  # and the one after that has all of it
    third.resume()
    assert [one.statement_id for one in third.log] == ["s1", "s2", "s3", "s4"]
    assert_read_back(third)
    third.store.close()
    assert verify(path).damage == []


def test_what_a_resumed_kernel_ran_stays_where_the_next_one_goes_on_before_it(path):
    first = Kernel(path)
    first.run(checkpoint={})
    first.store.close()
    second = Kernel(path)
    second.resume()
    lost = second.run()  # no checkpoint was taken
    second.store.close()
    third = Kernel(path)
    third.resume()
    assert third.log.head == "s1.1"
    third.run(checkpoint={})
    assert_read_back(third)
    assert [one.leaf for one in third.log.branches()] == [lost, "s3.1"]
    third.store.close()


@pytest.mark.parametrize("late", [False, True])
def test_where_there_is_no_state_to_return_to_the_timeline_goes_on_from_its_beginning(path, late):
    first = Kernel(path)
    first.run()
    first.store.close()
    second = Kernel(path)
    if late:
        second.run()
    found = load_run(path, before=second.store.run)
    assert found.target is None
    assert second.store.resume(None, second.now(), of=found.head) is None
    second.store.close()
    with SessionReader(path) as reader:
        assert [one.statement_id for one, _ in reader.statements()] == (["s1", "s2"] if late else ["s1"])
        assert reader.head() is None


def test_a_resumed_start_in_which_nothing_ran_is_resumed_again(path):
    first = Kernel(path)
    first.run(checkpoint={})
    first.run()
    first.store.close()
    second = Kernel(path)
    second.resume()
    assert_read_back(second)
    second.store.close()
    third = Kernel(path)
    third.resume()
    third.run()
    assert_read_back(third)
    third.store.close()


def test_head_in_the_past_is_where_the_next_kernel_goes_on(path):
    first = Kernel(path)
    for n in range(1, 5):
        first.run(checkpoint={"base": f"cs{n - 1}.1"} if n > 1 else {})
    first.goto("s2.1")
    first.store.close()
    found = load_run(path)
    assert found is not None
    assert (found.head, found.target, found.movers) == ("s2.1", "s2.1", ("s5.1",))
    assert found.moves[-1].reason == "goto"


class FakeChunks:
    """A chunk store of a dict."""

    def __init__(self, **there: bytes):
        self.there = there

    def refresh(self) -> None:
        """Nobody else writes."""

    def has(self, address: str) -> bool:
        return address in self.there

    def why_missing(self, address: str) -> str:
        return f"{GIVEN_UP} today" if address == "gone" else f"chunk {address} is missing"

    def read(self, address: str) -> memoryview:
        if address not in self.there:
            raise StoreError(f"chunk {address} is missing")
        if self.there[address] == b"damaged":
            raise StoreError(f"chunk {address} is damaged")
        return memoryview(self.there[address])


def addresses(manifest, read):
    for unit in manifest["units"]:
        for address in unit.get("at", ()):
            yield address
            if address.startswith("list"):
                yield from bytes(read(address)).decode().split(",")


def unit(name: str, *at: str) -> dict:
    return {"n": [name], "at": list(at)}


def test_the_newest_state_of_which_anything_is_there_is_the_target_and_its_gaps_are_named(path):
    kernel = Kernel(path)
    kernel.run(checkpoint={"units": [unit("a", "a1"), unit("b", "b1")]})
    kernel.run(checkpoint={"base": "cs1.1", "units": [unit("a", "a2")]})
    kernel.run(checkpoint={"base": "cs2.1", "units": [unit("b", "list1")]})
    kernel.run(checkpoint={"base": "cs3.1", "units": [unit("c", "c1")]}, state="writing")
    kernel.run(checkpoint={"base": "cs4.1", "units": [unit("d", "d1")]}, state="skipped", reason="the disk is full")
    kernel.run(checkpoint=skipped_manifest("a step failed"), state="skipped", reason="a step failed")
    kernel.run()
    kernel.store.close()
    whole = FakeChunks(a1=b"", b1=b"", a2=b"", c1=b"", list1=b"x1,x2", x1=b"", x2=b"")

    def target(*without: str):
        left = {name: data for name, data in whole.there.items() if name not in without}
        found = load_run(path, chunks=FakeChunks(**left), references=addresses)
        assert found is not None
        return found.target, dict(found.gaps), dict(found.not_restorable)

    lost = {"s7.1": "no checkpoint was taken after it", "s6.1": "skipped: a step failed"}
    assert target() == ("s5.1", {"d": "chunk d1 is missing"}, lost)
    assert set(target("c1")[1]) == {"c", "d"}
    assert target("x2")[1]["b"] == "chunk x2 is missing"
    assert set(target("b1")[1]) == {"d"}  # b was stored anew
    assert target("a2", "list1", "c1")[:2] == ("s2.1", {"a": "chunk a2 is missing"})  # nothing is there of those after
    assert set(target("a1", "b1", "a2", "list1", "c1")[2]) == {f"s{index}.1" for index in range(1, 8)}
    assert load_run(path).target == "s3.1"  # without data to look at, what is being written is not believed


def test_a_state_of_which_no_variable_is_there_is_not_the_target(path):
    """Working directory and options alone are not what one comes back for: the state before it has the variables."""
    kernel = Kernel(path)
    kernel.run(checkpoint={"units": [unit("a", "a1"), unit("ambient:cwd", "p1")]})
    kernel.run(checkpoint={"base": "cs1.1", "units": [unit("a", "a2"), unit("b", "b2")]})
    kernel.store.close()

    found = load_run(path, chunks=FakeChunks(a1=b"", p1=b""), references=addresses)

    assert (found.target, set(found.gaps)) == ("s1.1", set())
    assert [one for one, _ in found.not_restorable] == ["s2.1"]


def test_of_many_states_without_data_each_manifest_is_read_a_few_times(path, monkeypatch):
    """Not once for each of the states that build on it: the panel asks for this when a kernel starts."""
    kernel, count = Kernel(path), 60
    for index in range(count):
        base = f"cs{index}.1" if index else None
        kernel.run(checkpoint={"base": base, "units": [unit(f"v{index % 7}", f"a{index}")]})
    kernel.store.close()
    parsed, real = list[str](), Manifest.parse
    monkeypatch.setattr(Manifest, "parse", lambda made: (parsed.append(made.checkpoint_id), real(made))[1])

    found = load_run(path, chunks=FakeChunks(), references=addresses)

    assert (found.target, len(found.not_restorable)) == (None, count)
    assert found.not_restorable[0] == ("s60.1", "chunk a56 is missing")
    assert max(Counter(parsed).values()) < 15


@given(st.lists(st.tuples(st.integers(0, 9), st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd")))))
def test_the_states_of_all_checkpoints_are_those_of_the_chain_of_each(rows):
    """Whichever state each builds on, and whichever name it removes; one that builds on a missing one has none."""
    manifests: dict[str, Manifest] = {}
    for at, (back, stored, gone) in enumerate(rows):
        base = None if back == 0 else f"c{at - back}"
        units = [{"n": [name], "at": at} for name in sorted(stored)]
        text = json.dumps({"v": CHECKPOINT_FORMAT, "base": base, "units": units, "gone": sorted(gone)})
        manifests[f"s{at}.1"] = Manifest(f"c{at}", f"s{at}.1", text, 1, signed=True)

    found = {
        execution_id: str(state).partition(" builds on ")[2] if isinstance(state, StoreError) else dict(state)
        for execution_id, state in each_state(manifests, lambda unit: dict.fromkeys(unit["n"], unit))
    }

    for execution_id in manifests:
        try:
            expected = resolve(chain(manifests, execution_id))
        except StoreError as fault:
            expected = str(fault).partition(" builds on ")[2]
        assert found[execution_id] == expected


def test_what_became_of_data_that_were_being_written_is_found_out(path):
    kernel = Kernel(path)
    kernel.run(checkpoint={"units": [unit("a", "a1")]}, state="writing")
    kernel.run(checkpoint={"base": "cs1.1", "units": [unit("b", "b1")]}, state="writing")
    kernel.run(checkpoint={"units": [{"n": ["c"], "j": "s3.1:0"}]}, state="writing")
    kernel.run(checkpoint={})
    kernel.die()
    store = SessionStore.open(path)
    with SessionReader(path) as reader:
        found = unsettled(reader, FakeChunks(a1=b""), addresses)
    assert [(cid, state) for cid, state, _ in found] == [
        ("cs1.1", "durable"),
        ("cs2.1", "damaged"),
        ("cs3.1", "damaged"),
    ]
    assert "chunk b1 is missing" in found[1][2]
    assert "c: it was still being written when the kernel ended" in found[2][2]
    for cid, state, reason in found:
        store.checkpoint_state(cid, state, reason, 5.0)
    with SessionReader(path) as reader:
        assert [info.state for info in reader.checkpoints(all_roots=True).values()] == [
            "durable", "damaged", "damaged", "durable",
        ]  # fmt: skip
        assert unsettled(reader, FakeChunks(a1=b""), addresses) == []
    store.close()


# -- verify ----------------------------------------------------------------------------------------


def test_verify_names_the_variables_that_share_an_object_without_data(path):
    kernel = Kernel(path)
    view = unit("shared:2", "v1") | {"r": ["shared:1"]}
    users = [unit("a", "a1") | {"r": ["shared:1"]}, unit("b", "b1") | {"r": ["shared:2"]}]
    kernel.run(checkpoint={"units": [unit("shared:1", "gone"), view, *users, unit("c", "c1")]})
    kernel.store.close()

    report = verify(path, FakeChunks(a1=b"", b1=b"", c1=b"", v1=b""), addresses)

    assert {one: set(gaps) for one, gaps in report.gaps.items()} == {"cs1.1": {"a", "b"}}


def test_verify_says_what_is_damaged_and_what_can_still_be_returned_to(path):
    kernel = Kernel(path)
    kernel.run(checkpoint={"units": [unit("a", "a1")]})
    kernel.run(checkpoint={"base": "cs1.1", "units": [unit("b", "b1", "b2")]})
    kernel.run(checkpoint={"base": "cs2.1", "units": [unit("b", "b3")]})
    kernel.run(checkpoint=skipped_manifest("a step failed"), state="skipped", reason="a step failed")
    kernel.run(checkpoint={"base": "cs3.1", "units": [unit("c", "gone")]})
    kernel.store.checkpoint_state("cs5.1", "thinned", "old and large", 9.0)
    kernel.store.close()
    there = {"a1": b"", "b1": b"", "b2": b"", "b3": b""}
    assert verify(path, FakeChunks(**there), addresses).sound

    report = verify(path, FakeChunks(**{**there, "b2": b"damaged"}), addresses)
    assert report.damage == ["checkpoint cs2.1 cannot be returned to whole: b: chunk b2 is damaged"]
    assert report.lines() == [
        "damaged: checkpoint cs2.1 cannot be returned to whole: b: chunk b2 is damaged",
        "restorable: 4 of 5 checkpoints, 2 of them whole",
        "  checkpoint cs4.1 cannot: skipped: a step failed",
        "  checkpoint cs5.1 without: c: given up for space today",
        "5 statements can be read; the damage is listed above",
    ]
    del there["a1"]
    report = verify(path, FakeChunks(**there), addresses)
    assert set(report.lost) == {"cs1.1", "cs4.1"}
    assert {one: set(gaps) for one, gaps in report.gaps.items()} == {
        "cs2.1": {"a"},
        "cs3.1": {"a"},
        "cs5.1": {"a", "c"},
    }


@pytest.mark.parametrize(
    "manifest",
    ["", "[]", "{", "[" * 100_000, '{"units":{}}', '{"units":[{}]}', '{"units":[{"n":"x"}]}', '{"base":7}'],
    ids=range(8),
)
def test_a_manifest_that_is_none_is_damage_and_stops_nobody(path, manifest):
    kernel = Kernel(path)
    kernel.run(checkpoint={})
    kernel.run(checkpoint={"base": "cs1.1"})
    kernel.store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER checkpoints_update")
        connection.execute("UPDATE checkpoints SET manifest = ? WHERE seq = 1", (manifest,))
    report = verify(path, FakeChunks(), addresses)
    assert any("cs1.1" in line for line in report.damage)
    assert set(report.lost) == {"cs1.1", "cs2.1"}
    with SessionReader(path) as reader:
        assert next(info.state for info in reader.checkpoints().values()) == "damaged"
        assert len(reader.timeline()["statements"]) == 2
    found = load_run(path, chunks=FakeChunks(), references=addresses)
    assert found is not None
    assert found.target is None
    assert len(found.not_restorable) == 2


def test_references_of_the_new_tables_are_checked(path):
    kernel = Kernel(path)
    kernel.run(checkpoint={})
    kernel.store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO divergences VALUES (1, 7, 8, 'same', '', '{}', 0, NULL)")
        connection.execute("INSERT INTO checkpoint_states VALUES (1, 'cs9.1', 1.0, 'durable', '', NULL, NULL, 0, NULL)")
        connection.execute("INSERT INTO checkpoints VALUES (9, 'cs9.9', 1.0, 1, '{}', 0, 0.0, NULL, 0, NULL)")
        connection.execute("INSERT INTO runs VALUES (9, 1.0, NULL, 's77.1', '{}', 0, NULL)")
    damage = verify(path).damage
    for line in (
        "divergences: seq 7 is not in executions",
        "divergences: against 8 is not in executions",
        "checkpoint_states: checkpoint_id cs9.1 is not in checkpoints",
        "checkpoints: seq 9 is not in executions",
        "runs: resumed_from s77.1 is not in executions",
    ):
        assert line in damage


# -- an older schema -------------------------------------------------------------------------------


def of_version_1(path: Path) -> None:
    """Make the session of `path` one of version 1."""
    with sqlite3.connect(path) as connection:
        for name in schema.TABLES:
            for trigger in schema._triggers(name, 3):
                connection.execute(f"DROP TRIGGER {trigger}")
            if name in schema._CHECKPOINTS_1:
                connection.execute(f"DROP TABLE {name}")
                connection.execute(schema._table(name, 1))
            else:
                connection.execute(f"ALTER TABLE {name} DROP COLUMN mac")
            for sql in schema._triggers(name, 1).values():
                connection.execute(sql)
        connection.execute("PRAGMA user_version = 1")


def test_an_older_session_is_read_as_it_is_and_brought_up_by_the_next_kernel(path, tmp_path):
    kernel = Kernel(path)
    kernel.run()
    kernel.store.close()
    of_version_1(path)
    before = path.read_bytes()
    with SessionReader(path) as reader:
        assert len(reader.timeline()["statements"]) == 1
        assert reader.checkpoints() == {}
        assert reader.all_manifests() == {}
    assert verify(path).damage == []
    assert load_run(path).target is None
    assert path.read_bytes() == before

    kernel = Kernel(path)
    kernel.run(checkpoint={})
    assert_read_back(kernel)
    kernel.store.close()
    with sqlite3.connect(path) as connection:
        fresh = tmp_path / "fresh.sqlite"
        SessionStore.open(fresh).close()
        master = "SELECT name, tbl_name, sql FROM sqlite_master ORDER BY name"
        of_both = [one.execute(master).fetchall() for one in (connection, sqlite3.connect(fresh))]
        made, expected = [[(name, " ".join(str(sql).split())) for name, _, sql in rows] for rows in of_both]
        assert made == expected
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)


def test_a_move_to_the_new_schema_that_fails_leaves_the_old(path, monkeypatch):
    kernel = Kernel(path)
    kernel.run()
    kernel.store.close()
    of_version_1(path)

    def half(connection):
        connection.execute("DROP TABLE checkpoints")
        raise sqlite3.DatabaseError("as damaged as can be")

    monkeypatch.setitem(schema.STEPS, 1, half)
    store = SessionStore.open(path)
    assert store.path.name == "note-2.sqlite"
    store.close()
    monkeypatch.undo()
    assert verify(path).damage == []
    store = SessionStore.open(path)
    assert store.path == path
    assert "has rows of somebody else, or of an older ctxkernel" in store.notice
    store.close()


def test_json_of_all_that_is_read_is_plain(path):
    kernel = Kernel(path)
    kernel.run(checkpoint={"units": [{"n": ["g"], "m": {"g": "a generator"}}]})
    kernel.run("s1", comparison=Comparison("", "s1.1", (Divergence("state", "x", "differs"),)))
    with SessionReader(path) as reader:
        json.dumps(reader.timeline())
    kernel.store.close()


@pytest.mark.parametrize(("form", "told"), [(1, "an older version"), (3, "a newer version")])
def test_a_state_of_another_version_is_named_and_never_offered(path, form, told):
    """What an older version stored is there, but cannot be loaded: neither resume nor verify may say that it can."""
    kernel = Kernel(path)
    kernel.run(checkpoint={"v": form, "base": None, "units": [{"n": ["x"]}]})
    newest = kernel.run(checkpoint={"v": CHECKPOINT_FORMAT, "base": "cs1.1", "units": [{"n": ["y"]}]})
    kernel.die()

    found = load_run(path)
    report = verify(path)

    assert found is not None
    assert found.target is None
    assert told in dict(found.not_restorable)[newest]
    assert "run again" in dict(found.not_restorable)[newest]
    assert report.restorable == 0
    assert report.sound
    assert any(told in line for line in report.lines())
