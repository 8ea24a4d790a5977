"""Files that cells wrote come back with a return where the setting `files` says so, and nothing else is touched."""

from __future__ import annotations

import hashlib
import mmap
import os
import sqlite3
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ctxkernel.core.settings import Settings
from ctxkernel.kernel.execution.written_files import FileScan
from ctxkernel.kernel.returning.file_states import FileStates
from ctxkernel.replay.plan import Written
from ctxkernel.state.ambient import UNKNOWN, Ambient
from ctxkernel.store.chunks import file_contents, quota
from ctxkernel.store.chunks.file_contents import FileContents


class Cells:
    """Runs functions as cells in a folder, with the steps that the kernel does around each."""

    def __init__(self, folder: Path, store: Path, **settings) -> None:
        self.settings = Settings(files="restore", **settings)
        self.scan = FileScan(self.settings, lambda: None)
        self.part = FileStates(folder, FileContents(store), self.scan, self.settings)
        self.ambient = Ambient([self.part])
        self.states: dict[str, object] = {}
        self.count = 0
        self.head = self._take("s0")

    def _take(self, name: str):
        value = self.ambient.capture().get("files", getattr(self, "head", None))
        self.states[name] = self.head = value
        return value

    def run(self, cell, *, before=()) -> str:
        self.count += 1
        name = f"s{self.count}"
        self.part.begin()
        for path in before:
            self.part.before_write(str(path))
        began = self._clock()
        cell()
        written = self.scan.written(began, lambda: False)
        self.part.record(name, written)
        self._take(name)
        return name

    def _clock(self) -> float:
        probe = self.part.folder / ".clock"
        probe.write_text("")
        return probe.stat().st_mtime_ns / 1e9 + 0.02  # the slack of the scan

    def plan(self, name: str) -> list[str]:
        return [f"{one.action} {one}" for one in self.part.plan(self.states[name])]

    def goto(self, name: str) -> str:
        told = self.ambient.restore({"files": self.states[name]})
        self.head = self.states[name]
        return told.get("files", "")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def cells(folder, tmp_path) -> Cells:
    return Cells(folder, tmp_path / "store")


def test_a_file_that_a_cell_wrote_goes_back_and_forward(cells, folder):
    out = folder / "out.csv"
    cells.run(lambda: out.write_text("one"))
    cells.run(lambda: out.write_text("two"))
    stamp = out.stat().st_mtime_ns
    out.chmod(0o600)

    assert cells.plan("s1") == ["back out.csv (as of s1)"]
    assert cells.goto("s1") == "back: out.csv (as of s1)"
    assert out.read_text() == "one"
    assert cells.plan("s1") == []
    assert cells.plan("s2") == ["back out.csv (as of s2)"]
    cells.goto("s2")
    assert out.read_text() == "two"
    assert out.stat().st_mtime_ns == stamp


def test_a_new_file_is_removed_by_going_before_it_and_is_back_again(cells, folder):
    cells.run(lambda: None)
    cells.run(lambda: ((folder / "sub").mkdir(), (folder / "sub" / "a.txt").write_text("a")))

    assert cells.plan("s1") == ["remove sub/a.txt (written by s2)"]
    assert cells.goto("s1") == "removed: sub/a.txt (written by s2)"
    assert not (folder / "sub" / "a.txt").exists()
    (folder / "sub").rmdir()
    assert cells.goto("s2") == "back: sub/a.txt (as of s2)"
    assert (folder / "sub" / "a.txt").read_text() == "a"


def test_a_file_that_a_cell_deleted_is_back(cells, folder):
    out = folder / "out.csv"
    cells.run(lambda: out.write_text("one"))
    cells.run(out.unlink)

    cells.goto("s1")
    assert out.read_text() == "one"
    assert cells.goto("s2") == "removed: out.csv (written by s1)"
    assert not out.exists()


def test_a_file_of_the_user_that_a_cell_wrote_over_is_back_where_it_was_opened_through_python(cells, folder):
    mine = folder / "data.csv"
    mine.write_text("precious")
    cells.run(lambda: None)
    cells.run(lambda: mine.write_text("lost?"), before=[mine])

    assert cells.goto("s1") == "back: data.csv (as before a cell wrote it)"
    assert mine.read_text() == "precious"
    cells.goto("s2")
    assert mine.read_text() == "lost?"


def test_a_file_of_the_user_whose_content_was_not_kept_stays_and_is_named(cells, folder):
    mine = folder / "data.csv"
    mine.write_text("precious")
    cells.run(lambda: None)
    cells.run(lambda: mine.write_text("lost"))

    assert cells.plan("s1") == ["stays data.csv (written by s2; what was in it before was not kept)"]
    assert cells.goto("s1") == "stays: data.csv (written by s2; what was in it before was not kept)"
    assert mine.read_text() == "lost"


def test_a_file_that_no_cell_wrote_is_never_touched(cells, folder):
    other = folder / "notes.txt"
    other.write_text("mine")
    cells.run(lambda: (folder / "out.csv").write_text("1"))
    other.write_text("mine, changed")
    cells.goto("s0")
    assert not (folder / "out.csv").exists()
    (folder / "out.csv").write_text("written by hand")

    assert cells.goto("s1") == "stays: out.csv (no cell wrote it as it is now)"
    assert (folder / "out.csv").read_text() == "written by hand"
    assert other.read_text() == "mine, changed"


def test_what_something_else_made_of_a_file_is_kept_before_it_goes_back_and_undo_brings_it(cells, folder):
    out = folder / "out.csv"
    cells.run(lambda: out.write_text("one"))
    cells.run(lambda: out.write_text("two"))
    out.write_text("edited by hand")

    cells.goto("s1")
    assert out.read_text() == "one"
    assert cells.goto("s2") == "back: out.csv (as something else left it)"
    assert out.read_text() == "edited by hand"
    value = cells.ambient.capture()["files"]
    assert value["files"]["out.csv"] != cells.states["s2"]["files"]["out.csv"]


def test_a_large_file_is_copied_beside_the_next_cell(cells, folder, monkeypatch):
    monkeypatch.setattr(file_contents, "SMALL", 10)
    out = folder / "big.bin"
    cells.run(lambda: out.write_bytes(b"a" * 5000))
    cells.part.contents.settled(cells.states["s1"]["files"]["big.bin"][1])
    cells.run(lambda: out.write_bytes(b"b" * 5000))

    assert cells.goto("s1") == "back: big.bin (as of s1)"
    assert out.read_bytes() == b"a" * 5000
    assert cells.plan("s1") == []
    cells.goto("s2")
    assert out.read_bytes() == b"b" * 5000


def test_a_large_file_that_changed_while_it_was_copied_is_named(cells, folder, monkeypatch):
    monkeypatch.setattr(file_contents, "SMALL", 10)
    monkeypatch.setattr(file_contents, "clone", lambda source, target: False)
    out = folder / "big.bin"
    copy = file_contents._copy_file

    def late(source, target):
        copy(source, target)
        out.write_bytes(b"c" * 6000)

    monkeypatch.setattr(file_contents, "_copy_file", late)
    cells.run(lambda: out.write_bytes(b"a" * 5000))
    address = cells.states["s1"]["files"]["big.bin"][1]
    assert not cells.part.contents.settled(address)
    monkeypatch.setattr(file_contents, "_copy_file", copy)
    cells.run(lambda: out.write_bytes(b"b" * 5000))

    assert cells.goto("s1") == "stays: big.bin (written by s2; it was changed while its content was copied)"


def test_a_file_over_the_bound_stays_and_is_named(folder, tmp_path):
    cells = Cells(folder, tmp_path / "store", file_keep_bytes=100)
    out = folder / "big.bin"
    cells.run(lambda: out.write_bytes(b"a" * 50))
    cells.run(lambda: out.write_bytes(b"a" * 500))

    assert cells.plan("s1") == ["stays big.bin (written by s2; it has more than 100 bytes (file_keep_bytes))"]
    cells.goto("s1")
    assert out.stat().st_size == 500


def test_databases_are_never_touched(cells, folder):
    def write() -> None:
        with sqlite3.connect(folder / "a.db") as base:
            base.execute("create table if not exists t (x)")
            base.execute("insert into t values (1)")
        base.close()

    cells.run(write)
    cells.run(write)

    assert cells.plan("s1") == ["stays a.db (written by s2; it is a database)"]
    assert cells.goto("s1") == "stays: a.db (written by s2; it is a database)"
    assert cells.goto("s0").startswith("stays: a.db")
    assert (folder / "a.db").exists()


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_no_link_leads_out_of_the_folder(cells, folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("not yours")
    (folder / "sub").mkdir()
    cells.run(lambda: (folder / "sub" / "a.txt").write_text("one"))
    cells.run(lambda: (folder / "sub" / "a.txt").write_text("two"))
    (folder / "sub" / "a.txt").unlink()
    (folder / "sub").rmdir()
    (folder / "sub").symlink_to(outside)

    assert cells.goto("s1") == "stays: sub/a.txt (written by s2; a symbolic link leads there)"
    assert (outside / "a.txt").read_text() == "not yours"
    value = {"files": {"../outside/a.txt": [*cells.states["s1"]["files"]["sub/a.txt"]]}, "base": {}, "left": {}}
    assert [one.action for one in cells.part.plan(value) if one.name.startswith("..")] == ["stays"]


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be replaced there")
def test_a_file_that_the_kernel_itself_writes_stays_and_is_named(cells, folder):
    """A log that is open, or an array in a file: what is written next would be lost in a file without a name."""
    log = folder / "run.log"
    cells.run(lambda: log.write_text("one"))
    cells.run(lambda: log.write_text("two"))
    with log.open("a") as out:
        told = "run.log (written by s2; this kernel has it open to write)"
        assert cells.plan("s1") == [f"stays {told}"]
        assert cells.goto("s1") == f"stays: {told}"
        out.write("!")
    with log.open() as _reading:
        assert cells.plan("s1") == ["back run.log (as of s1)"]
    assert log.read_text() == "two!"
    if sys.platform.startswith("linux"):
        with log.open("r+b") as out:
            mapped = mmap.mmap(out.fileno(), 0)
        assert cells.goto("s1").startswith("stays: run.log")
        mapped.close()
    assert cells.goto("s1") == "back: run.log (as of s1)"


def test_files_outside_of_the_folder_are_not_followed(cells, folder, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cells.run(lambda: (monkeypatch.chdir(elsewhere), (elsewhere / "a.txt").write_text("a")))

    assert cells.states["s1"]["files"] == {}


def test_another_kernel_goes_on_with_the_files_of_the_session(cells, folder, tmp_path):
    out = folder / "out.csv"
    cells.run(lambda: out.write_text("one"))
    cells.run(lambda: out.write_text("two"))
    later = Cells(folder, tmp_path / "store")
    later.states = cells.states

    assert later.goto("s2") == ""
    assert later.goto("s1") == "back: out.csv (as of s1)"
    assert out.read_text() == "one"
    assert later.goto("s0") == "removed: out.csv (written by s1)"


def test_the_plan_names_files_that_stay_but_for_those_that_it_follows(cells, folder):
    """A file that both states have alike is in neither list."""
    cells.run(lambda: (folder / "same.txt").write_text("1"))
    cells.run(lambda: (folder / "out.csv").write_text("one"))
    cells.run(lambda: (folder / "out.csv").write_text("two"))
    written = [Written("out.csv", "s3"), Written("/elsewhere/a.txt", "s3"), Written("same.txt", "s1")]

    stays, changes = cells.part.plan_files(cells.states["s2"], written)
    assert [one.name for one in stays] == ["/elsewhere/a.txt"]
    assert [(one.name, one.action, one.statement_id, one.size) for one in changes] == [("out.csv", "back", "s2", 3)]
    assert cells.part.plan_files(None, written) == (written, [])


def test_a_content_that_is_gone_is_named(cells, folder, tmp_path):
    out = folder / "out.csv"
    cells.run(lambda: out.write_text("one"))
    cells.run(lambda: out.write_text("two"))
    for one in (tmp_path / "store").iterdir():
        one.unlink()

    assert cells.goto("s1") == "stays: out.csv (written by s2; its content is not kept any more)"
    assert out.read_text() == "two"


def test_a_folder_that_cannot_be_written_to_costs_no_file(cells, folder, tmp_path):
    """What cannot be kept is not replaced."""
    out = folder / "out.csv"
    cells.run(lambda: out.write_text("one"))
    (tmp_path / "elsewhere").write_text("a file in the place of the folder")
    cells.part.contents.folder = tmp_path / "elsewhere"
    cells.run(lambda: out.write_text("two"))

    assert "it cannot be kept" in cells.states["s2"]["files"]["out.csv"][6]
    cells.part.contents.folder = tmp_path / "store"
    assert cells.goto("s1").startswith("stays: out.csv (written by s2; it cannot be kept")
    assert out.read_text() == "two"


def test_switching_it_off_makes_later_states_unknown(cells, folder):
    out = folder / "out.csv"
    cells.run(lambda: out.write_text("one"))
    on, cells.part.settings = cells.settings, replace(cells.settings, files="leave")
    cells.run(lambda: out.write_text("two"))
    assert cells.states["s2"] == {UNKNOWN: "the setting files was leave"}
    assert cells.plan("s1") == []
    cells.goto("s1")
    assert out.read_text() == "two"
    cells.part.settings = on

    assert "it was not captured then" in cells.goto("s2")


def test_a_file_that_a_cell_moved_is_back_under_its_name(cells, folder):
    mine, moved = folder / "mine.csv", folder / "moved.csv"
    mine.write_text("mine")
    cells.run(lambda: None)
    cells.run(lambda: mine.rename(moved))
    cells.run(lambda: moved.write_text("changed"), before=[moved])

    assert cells.goto("s1") == "back: mine.csv (as before a cell wrote it); removed: moved.csv (written by s3)"
    assert mine.read_text() == "mine" and not moved.exists()
    cells.goto("s2")
    assert moved.read_text() == "mine" and not mine.exists()


def test_a_file_of_the_user_that_a_cell_deleted_is_named(cells, folder):
    """What was in it is gone. One that the cell overwrote first, through Python, is back."""
    mine, other = folder / "mine.csv", folder / "other.csv"
    mine.write_text("mine")
    other.write_text("other")
    cells.run(lambda: None)
    cells.run(lambda: (mine.unlink(), other.write_text("new"), other.unlink()), before=[other])

    told = "back: other.csv (as before a cell wrote it); stays: mine.csv (s2 deleted it)"
    assert cells.goto("s1") == told
    assert other.read_text() == "other" and not mine.exists()
    assert cells.goto("s2") == "removed: other.csv"
    mine.write_text("made again")
    cells.run(lambda: None)
    assert "stays: mine.csv" in cells.goto("s1")
    assert mine.read_text() == "made again"


def test_a_file_that_a_return_removed_is_not_deleted_by_its_cell(cells, folder):
    cells.run(lambda: None)
    cells.run(lambda: (folder / "out.csv").write_text("out"))

    cells.run(lambda: cells.goto("s1"))
    assert not (folder / "out.csv").exists()
    assert cells.goto("s1") == ""
    assert cells.goto("s2") == "back: out.csv (as of s2)"


def test_a_file_that_a_cell_moved_over_another_one_is_back_under_its_name(cells, folder):
    mine, other = folder / "mine.csv", folder / "other.csv"
    mine.write_text("mine")
    cells.run(lambda: other.write_text("other"))
    cells.run(lambda: mine.replace(other))

    cells.goto("s1")
    assert (mine.read_text(), other.read_text()) == ("mine", "other")


def test_a_file_that_a_cell_moved_and_changed_is_not_removed(cells, folder):
    mine, moved = folder / "mine.csv", folder / "moved.csv"
    mine.write_text("mine")
    cells.run(lambda: None)
    cells.run(lambda: (mine.rename(moved), moved.write_text("mine, changed")))

    told = cells.goto("s1")
    assert "mine.csv (a cell moved or deleted it)" in told
    assert "moved.csv (written by s2; it may be mine.csv, moved here)" in told
    assert moved.read_text() == "mine, changed"


def test_a_file_that_a_cell_moved_from_elsewhere_is_not_removed(cells, folder, tmp_path):
    elsewhere = tmp_path / "data.csv"
    elsewhere.write_text("mine")
    os.utime(elsewhere, (1, 1))
    cells.run(lambda: elsewhere.rename(folder / "data.csv"))

    told = "stays: data.csv (written by s1; it is older than the cell, which may have moved it here)"
    assert cells.goto("s0") == told
    assert (folder / "data.csv").read_text() == "mine"


def test_the_files_of_a_folder_that_a_cell_renamed_go_back(cells, folder):
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "mine.txt").write_text("mine")
    cells.run(lambda: (folder / "a" / "b" / "deep.txt").write_text("deep"))
    cells.run(lambda: (folder / "a").rename(folder / "z"))

    cells.goto("s1")
    found = {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()}
    assert found == {".clock", "a/mine.txt", "a/b/deep.txt"}


def test_a_file_that_was_made_between_two_cells_is_not_removed(cells, folder):
    """The cell does not open it through Python."""
    cells.run(lambda: None)
    (folder / "mine.csv").write_text("precious")
    cells.run(lambda: (folder / "mine.csv").write_text("lost"))

    assert cells.goto("s1") == "stays: mine.csv (written by s2; what was in it before was not kept)"


@pytest.mark.parametrize("name", ["a/b/c/deep.txt", ".hidden"])
def test_a_file_that_was_opened_through_python_goes_back_though_no_scan_finds_it(cells, folder, name):
    mine = folder / name
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("one")
    cells.run(lambda: None)
    (folder / "elsewhere").mkdir()
    cells.run(lambda: (mine.write_text("two"), os.chdir(folder / "elsewhere")), before=[mine])

    assert cells.goto("s1") == f"back: {name} (as before a cell wrote it)"
    assert mine.read_text() == "one"
    cells.goto("s2")
    assert mine.read_text() == "two"


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_file_that_a_cell_wrote_through_a_link_goes_back(cells, folder):
    mine, link = folder / "mine.csv", folder / "link.csv"
    mine.write_text("one")
    link.symlink_to(mine)
    cells.run(lambda: None)
    cells.run(lambda: link.write_text("two"), before=[link])

    assert cells.goto("s1") == "back: mine.csv (as before a cell wrote it)"
    assert (mine.read_text(), link.is_symlink()) == ("one", True)


def test_a_file_goes_forward_after_two_returns_to_states_that_do_not_have_it(cells, folder):
    """In these states it is as it was before a cell wrote it."""
    mine = folder / "mine.csv"
    mine.write_text("one")
    cells.run(lambda: None)
    cells.run(lambda: None)
    cells.run(lambda: mine.write_text("two"), before=[mine])

    cells.goto("s1")
    cells.goto("s2")
    assert mine.read_text() == "one"
    assert cells.goto("s3") == "back: mine.csv (as of s3)"
    assert mine.read_text() == "two"
    cells.goto("s2")
    assert mine.read_text() == "one"


def test_a_file_that_a_return_wrote_is_not_that_of_the_cell_of_the_return(cells, folder):
    mine = folder / "mine.csv"
    mine.write_text("one")
    cells.run(lambda: None)
    cells.run(lambda: mine.rename(folder / "moved.csv"))
    cells.run(lambda: cells.goto("s1"))

    assert mine.read_text() == "one"
    assert [one[5] for one in cells.states["s3"]["files"].values()] == [""]


def test_another_kernel_knows_a_large_file_that_a_return_wrote(cells, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(file_contents, "SMALL", 10)
    out = folder / "big.bin"
    cells.run(lambda: out.write_bytes(b"a" * 5000))
    cells.part.contents.settled(cells.states["s1"]["files"]["big.bin"][1])
    cells.goto("s0")
    cells.goto("s1")
    later = Cells(folder, tmp_path / "store")
    later.states = cells.states

    assert later.goto("s1") == ""
    assert later.goto("s0") == "removed: big.bin (written by s1)"


def test_a_file_that_is_as_a_state_has_it_does_not_count_as_one_that_stays(cells, folder, tmp_path):
    """Though no cell of the later states wrote it so."""
    out = folder / "out.csv"
    cells.run(lambda: out.write_text("one"))
    cells.run(lambda: out.write_text("two"))
    out.write_text("one")
    later = Cells(folder, tmp_path / "store")
    later.states = cells.states

    assert later.goto("s2") == "stays: out.csv (no cell wrote it as it is now)"
    assert later.goto("s1") == ""
    assert later.goto("s2") == "back: out.csv (as of s2)"


def test_a_return_says_that_not_all_of_a_folder_was_looked_at(folder, tmp_path):
    for number in range(20):
        (folder / f"{number}.txt").write_text("")
    cells = Cells(folder, tmp_path / "store", file_scan_entries=10)
    cells.run(lambda: (folder / "new.txt").write_text("1"), before=[folder / "new.txt"])

    told = cells.goto("s0")
    assert told.startswith("removed: new.txt (written by s1); files may be missing here: not all")


def test_contents_count_against_the_quota_and_the_oldest_goes_first(tmp_path):
    store = FileContents(tmp_path / "data" / "5e55100000000000")
    for number in (1, 2):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(bytes([number]) * 300_000)
        address = store.keep(path, path.stat())
        os.utime(store._at(address), (number, number))
    used = quota.usage(tmp_path / "data")
    assert used["5e55100000000000"] >= 600_000
    report = quota.collect(tmp_path / "data", 400_000, live=())

    assert report.enough
    assert [store.has("x" + file_contents.xxh3_128_hexdigest(bytes([n]) * 300_000)) for n in (1, 2)] == [False, True]


def test_files_go_back_and_forward_in_a_kernel(kernel):
    kernel.run("%ctx config files restore")
    kernel.run("open('out.txt', 'w').write('one')")
    kernel.run("open('out.txt', 'w').write('two'); open('new.txt', 'w').write('n')")
    out, new = kernel.folder / "out.txt", kernel.folder / "new.txt"
    told = kernel.run("%ctx goto 2").stdout

    assert "back: out.txt (as of s2); removed: new.txt (written by s3)" in told
    assert out.read_text() == "one" and not new.exists()
    kernel.run("%ctx undo")
    assert out.read_text() == "two" and new.read_text() == "n"
    kernel.run("%ctx goto 1")
    assert not out.exists()


def test_files_that_programs_wrote_and_moved_go_back_in_a_kernel(kernel):
    (kernel.folder / "mine.csv").write_text("mine")
    time.sleep(0.1)  # the clock of the file system is coarse
    kernel.run("%ctx config files restore")
    kernel.run("!echo one > new.txt")
    kernel.run("!mv mine.csv moved.csv")
    told = kernel.run("%ctx goto 1").stdout

    assert (
        "back: mine.csv (as before a cell wrote it); removed: moved.csv (written by s3), new.txt (written by s2)"
        in told
    )
    assert sorted(one.name for one in kernel.folder.iterdir() if one.suffix in (".csv", ".txt")) == ["mine.csv"]
    kernel.run("%ctx undo")
    assert (kernel.folder / "moved.csv").read_text() == "mine" and not (kernel.folder / "mine.csv").exists()


def test_without_the_setting_no_file_is_touched_in_a_kernel(kernel):
    kernel.run("open('out.txt', 'w').write('one')")
    kernel.run("open('out.txt', 'w').write('two')")
    kernel.run("%ctx goto 1")

    assert (kernel.folder / "out.txt").read_text() == "two"


@pytest.mark.parametrize(
    "name",
    ["../victim.txt", "/tmp/ctxkernel-victim.txt", "link/victim.txt", "a\0b", "", "sub/../../victim.txt", ".", "..", 7],
)
def test_no_stored_name_leads_out_of_the_folder(cells, name):
    """The names of a state are data: a return writes and removes files of the notebook's folder only."""
    outside = cells.part.folder.parent
    before = sorted({*os.listdir(outside), "victim.txt", "store"})
    victim = outside / "victim.txt"
    victim.write_text("whole")
    (cells.part.folder / "link").symlink_to(outside)
    (cells.part.folder / "own.txt").write_text("kept")
    kept = list(cells.part._keep("own.txt", "s1"))
    absent = ["absent", "", 0, 0o644, 0, "s1", ""]
    for wanted in (kept, absent):
        value = {"files": {name: wanted}, "base": {name: absent}, "left": {}}
        told = cells.part.plan(value)
        assert all(change.action == "stays" for change in told)
        cells.part.restore(value)
        assert victim.read_text() == "whole"
    assert sorted(os.listdir(outside)) == before


@pytest.mark.parametrize(
    "state",
    [[], ["file"], ["run", "", 0, 0, 0, "", ""], ["file", 7, 0, 0, 0, "", ""], ["file", "", -1, 0, 0, "", ""], None],
)
def test_a_stored_state_with_other_fields_does_not_count(cells, state):
    (cells.part.folder / "own.txt").write_text("kept")
    value = {"files": {"own.txt": state or []}, "base": {}, "left": {}}
    assert cells.part.plan(value) == []
    cells.part.restore(value)
    assert (cells.part.folder / "own.txt").read_text() == "kept"


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_a_link_beside_a_restored_file_is_not_written_through(cells, monkeypatch):
    victim = cells.part.folder.parent / "victim.txt"
    victim.write_text("whole")
    own = cells.part.folder / "own.txt"
    own.write_text("one")
    kept = cells.part._keep("own.txt", "s1")
    own.write_text("two")
    monkeypatch.setattr(file_contents.secrets, "token_hex", lambda n: "00" * n)
    (cells.part.folder / ".own.txt.00000000.ctxkernel").symlink_to(victim)
    with pytest.raises(OSError, match="exists"):
        cells.part.contents.put(kept.address, own, mode=0o644, mtime_ns=0)
    assert (victim.read_text(), own.read_text()) == ("whole", "two")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="the system has no such folder")
def test_what_only_looks_like_a_file_is_not_read(monkeypatch):
    """A cell that goes to `/`: to read `/proc/kmsg` is to wait until the system says something."""
    monkeypatch.chdir("/")
    scan = FileScan(Settings(files="restore"), lambda: None)

    found = scan.look("/", lambda: False)

    assert not [path for path, _ in found if path.startswith(("/proc/", "/sys/", "/dev/"))]
    assert not scan.listing.lacks("/proc/kmsg"), "nothing is known of what is there"


def test_a_file_that_grows_while_it_is_hashed_has_the_hash_of_what_it_held_before(monkeypatch, tmp_path):
    """A program that writes to it faster than we read it would hold up the cell for ever."""
    monkeypatch.chdir(tmp_path)
    Path("log").write_bytes(b"a" * 3_000_000)

    def expired() -> bool:
        with open("log", "ab") as log:
            log.write(b"b" * 2_000_000)
        return False

    (written,) = FileScan(Settings(), lambda: None).written(0, expired)

    before = Path("log").read_bytes()[: written.size]
    assert written.hash == f"sha256:{hashlib.sha256(before).hexdigest()}"
