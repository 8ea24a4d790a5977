"""Which files a cell read, and that whoever opens a file notices nothing of it."""

from __future__ import annotations

import gzip
import importlib
import inspect
import io
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import tarfile
import threading
import traceback
from importlib import import_module
from pathlib import Path

import pytest
from xxhash import xxh3_128

from ctxkernel.core.timeline import Artifact
from ctxkernel.kernel.execution import read_files as reads_module
from ctxkernel.kernel.execution.read_files import FileReads


def never() -> bool:
    return False


@pytest.fixture
def reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = FileReads()
    made.install()
    yield made
    made.uninstall()


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("a.csv", "data/b.csv"):
        (tmp_path / name).write_text("x,y\n1,2\n3,4\n")
    return tmp_path


def names(found: tuple[Artifact, ...]) -> list[str]:
    assert {one.kind for one in found} <= {"read"}
    return [one.name for one in found]


def test_a_file_is_named_as_the_user_knows_it_with_its_content(data, reads):
    reads.begin()
    open("a.csv").close()
    Path("data/b.csv").read_text()
    first = reads.end(never)
    reads.begin()
    open(data / "a.csv", mode="rb").close()
    second = reads.end(never)

    assert names(first) == ["a.csv", "data/b.csv"]
    assert names(second) == ["a.csv"]
    assert first[0].hash == first[1].hash == second[0].hash
    assert first[0].hash.startswith("xxh3:")
    assert first[0].size == 12 and first[0].data is None


def test_changed_content_has_another_hash(data, reads):
    """Of the same size, too, and at the same place."""
    reads.begin()
    open("a.csv").close()
    before = reads.end(never)
    (data / "a.csv").write_text("x,y\n1,2\n3,5\n")
    reads.begin()
    open("a.csv").close()
    after = reads.end(never)

    assert before[0].size == after[0].size
    assert before[0].hash != after[0].hash


def test_each_common_reader_is_seen(data, reads):
    """pandas (both engines), numpy, json, gzip, tar, sqlite, parquet by way of pandas, memory maps."""
    np = import_module("numpy")
    pd = import_module("pandas")
    np.save("n.npy", np.arange(3))
    np.arange(3.0).tofile("raw.bin")
    np.savetxt("t.txt", np.arange(3))
    Path("j.json").write_text("{}")
    with gzip.open("g.gz", "wb") as file:
        file.write(b"1")
    with tarfile.open("t.tar", "w") as file:
        file.add("a.csv")
    with sqlite3.connect("d.sqlite") as connection:
        connection.execute("create table t (a)")
    connection.close()

    def database():
        with sqlite3.connect("d.sqlite") as connection:
            pd.read_sql("select * from t", connection)
        connection.close()

    readers = {
        "a.csv": lambda: pd.read_csv("a.csv"),
        "data/b.csv": lambda: pd.read_csv("data/b.csv", engine="python"),
        "n.npy": lambda: np.load("n.npy"),
        "raw.bin": lambda: np.fromfile("raw.bin"),
        "t.txt": lambda: np.loadtxt("t.txt"),
        "j.json": lambda: json.loads(Path("j.json").read_text()),
        "g.gz": lambda: gzip.open("g.gz").close(),
        "t.tar": lambda: tarfile.open("t.tar").close(),
        "d.sqlite": database,
    }
    for name, read in readers.items():
        reads.begin()
        read()
        assert names(reads.end(never)) == [name]


def test_a_numpy_that_was_there_before_is_seen_too(data, monkeypatch):
    """It keeps the `open` that there was when it was imported."""
    monkeypatch.chdir(data)
    np = import_module("numpy")
    made = FileReads()
    made.install()
    made.begin()
    np.loadtxt("a.csv", delimiter=",", skiprows=1)
    found = made.end(never)
    made.uninstall()
    made.begin()
    np.loadtxt("a.csv", delimiter=",", skiprows=1)

    assert names(found) == ["a.csv"]
    assert names(made.end(never)) == []


def test_what_the_cell_wrote_is_not_read(data, reads):
    reads.begin()
    Path("new.txt").write_text("1")
    Path("new.txt").read_text()
    with open("a.csv", "a") as file:
        file.write("5,6\n")
    open("a.csv").close()
    with sqlite3.connect("d.sqlite") as connection:
        connection.execute("create table t (a)")
    connection.close()

    assert names(reads.end(never)) == []


def test_what_it_read_before_it_wrote_over_it_is_told_as_it_was(data, reads):
    """A counter in a file: the cell reads it and writes the next."""
    counter = Path("counter.txt")
    counter.write_text("5")
    os.utime(counter, (1, 1))
    hashes = []
    for _ in range(2):
        reads.begin()
        counter.write_text(str(int(counter.read_text()) + 1))
        counter.read_text()
        [found] = reads.end(never)
        hashes.append(found.hash)
        os.utime(counter, (1, 1))
    reads.begin()
    counter.read_text()
    [found] = reads.end(never)

    assert counter.read_text() == "7"
    assert found.name == "counter.txt" and len({*hashes, found.hash}) == 3


def test_python_s_own_files_and_what_is_no_file_are_left_out(data, reads):
    reads.begin()
    open(os.__file__).close()
    open(pytest.__file__).close()
    open(os.devnull).close()
    os.mkfifo("pipe") if hasattr(os, "mkfifo") else None
    with open(os.open("a.csv", os.O_RDONLY)) as by_descriptor:
        by_descriptor.read()
    with pytest.raises(FileNotFoundError), open("missing"):
        pass

    assert names(reads.end(never)) == []


def test_the_source_of_a_library_that_is_imported_is_left_out(tmp_path, reads, monkeypatch):
    """Where no bytecode is written its source is read, in whatever environment it is; a re-run does not read it."""
    place = tmp_path / "env" / "lib" / "site-packages"
    place.mkdir(parents=True)
    (place / "read_late.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    reads.begin()
    importlib.import_module("read_late")
    open(reads_module.__file__).close()

    assert reads.end(never) == ()


def test_nothing_is_noted_between_cells(data, reads):
    open("a.csv").close()
    reads.begin()

    assert names(reads.end(never)) == []
    open("a.csv").close()
    reads.begin()
    assert names(reads.end(never)) == []


def test_the_error_and_its_traceback_are_those_of_open(data, reads):
    """Ours is in no frame of it: a reader's error ends where the reader's code ends."""

    def fails():
        with open("missing"):
            pass

    try:
        fails()
    except FileNotFoundError as fault:
        frames = [frame.name for frame in traceback.extract_tb(fault.__traceback__)]
        text = str(fault)

    assert frames == ["test_the_error_and_its_traceback_are_those_of_open", "fails"]
    assert text == "[Errno 2] No such file or directory: 'missing'"


def test_the_frames_of_the_user_s_own_opener_stay(data, reads):
    def opener(path, flags):
        raise ValueError("mine")

    try:
        with open("a.csv", opener=opener):
            pass
    except ValueError as fault:
        frames = [frame.name for frame in traceback.extract_tb(fault.__traceback__)]

    assert frames == ["test_the_frames_of_the_user_s_own_opener_stay", "opener"]


def test_open_is_what_it_was_to_all_who_look(data, reads):
    import builtins

    class Holds:
        opens = open

    assert open is io.open is builtins.open
    assert pickle.dumps(open, 0).split()[:2] == [f"c{open.__wrapped__.__module__}".encode(), b"open"]
    assert pickle.loads(pickle.dumps(open)) is open
    assert pickle.loads(pickle.dumps(sqlite3.connect)) is sqlite3.connect
    assert inspect.signature(open) == inspect.signature(open.__wrapped__)
    assert repr(open) == repr(open.__wrapped__)
    assert open.__name__ == "open" and open.__doc__ == open.__wrapped__.__doc__
    Holds().opens("a.csv").close()


def test_it_can_be_taken_off(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = (open, io.open, sqlite3.connect)
    made = FileReads()
    made.install()
    made.install()
    made.uninstall()

    assert (open, io.open, sqlite3.connect) == before


def test_a_large_file_is_known_by_its_stamp(data, reads, monkeypatch):
    monkeypatch.setattr(reads_module, "FILE_BYTES", 10)
    reads.begin()
    open("a.csv").close()
    [found] = reads.end(never)

    status = os.stat("a.csv")
    assert found.hash == f"stat:{status.st_mtime_ns}:{status.st_size}"


def test_a_file_that_stays_is_hashed_once(data, reads, monkeypatch):
    monkeypatch.setattr(reads_module, "SETTLED_NS", -1)
    hashed = []
    monkeypatch.setattr(reads_module, "xxh3_128", lambda: hashed.append(1) or xxh3_128())
    found = []
    for _ in range(3):
        reads.begin()
        open("a.csv").close()
        found += reads.end(never)

    assert len(hashed) == 1
    assert found[0] == found[1] == found[2]


def test_when_time_is_up_stamps_take_the_place_of_hashes(data, reads):
    ticks = iter([False, False, True])
    reads.begin()
    open("a.csv").close()
    open("data/b.csv").close()
    found = reads.end(lambda: next(ticks, True))

    assert names(found) == ["a.csv", "data/b.csv"]
    assert [one.hash[:4] for one in found] == ["stat", "stat"]


def test_thousands_of_files_are_told_by_folder(data, reads, monkeypatch):
    monkeypatch.setattr(reads_module, "LISTED", 2)
    for n in range(5):
        (data / "data" / f"{n}.txt").write_text("x")
    reads.begin()
    for n in range(5):
        open(f"data/{n}.txt").close()
    found = reads.end(never)

    assert names(found) == ["data/0.txt", "data/1.txt", "data/(3 more)"]


def test_threads_are_noted_too(data, reads):
    reads.begin()
    thread = threading.Thread(target=lambda: open("a.csv").close())
    thread.start()
    thread.join()

    assert names(reads.end(never)) == ["a.csv"]


def test_a_working_folder_that_is_gone_costs_nothing(tmp_path, reads, monkeypatch):
    (tmp_path / "gone").mkdir()
    (tmp_path / "a.txt").write_text("x")
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    reads.begin()
    with pytest.raises(FileNotFoundError), open("a.txt"):
        pass
    open(tmp_path / "a.txt").close()

    assert names(reads.end(never)) == [str(tmp_path / "a.txt")]
    monkeypatch.chdir(tmp_path)


def test_no_file_is_kept_open(data, reads):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    before = len(os.listdir("/proc/self/fd"))
    reads.begin()
    for _ in range(20):
        open("a.csv").close()
    reads.end(never)

    assert len(os.listdir("/proc/self/fd")) == before


def test_modules_that_come_later_are_seen(data, reads, monkeypatch):
    """They take what stands in `builtins` and `io`."""
    monkeypatch.delitem(sys.modules, "bz2", raising=False)
    import bz2

    with bz2.open("z.bz2", "wb") as file:
        file.write(b"1")
    os.utime("z.bz2", (1, 1))
    reads.begin()
    bz2.open("z.bz2").close()

    assert names(reads.end(never)) == ["z.bz2"]


def test_what_ipython_shows_of_an_error_is_the_same(tmp_path):
    """Word for word, with and without us: for the user's own `open`, for pandas' and for pathlib's."""
    script = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
from ctxkernel.kernel.execution.read_files import FileReads

shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}), colors="nocolor")
if sys.argv[1] == "with":
    FileReads().install()
shell.run_cell("import numpy, pandas; from pathlib import Path")
for cell in ("open('gone')", "pandas.read_csv('gone')", "Path('gone').read_text()", "numpy.load('gone')",
             "open('x', opener=lambda p, f: 1 / 0)", "open('x', 'zz')", "open()"):
    shell.run_cell(cell)
"""
    texts = []
    for how in ("with", "without"):
        done = subprocess.run(
            [sys.executable, "-c", script, how], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
        )
        texts.append(done.stdout + done.stderr)

    assert texts[0].count("FileNotFoundError") >= 8
    assert texts[0] == texts[1]
    assert "ctxkernel" not in texts[0]
