"""What goes wrong under a session: kills, full disks, damage, other programs. The cell runs, nothing good is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import platform
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_store import NOTEBOOK, Recorded, assert_same_as_live, statement, turn, write

from ctxkernel.core.errors import StoreError
from ctxkernel.core.timeline import ExceptionInfo
from ctxkernel.store import lock
from ctxkernel.store.log import opening, session_file, writer
from ctxkernel.store.log.location import session_path
from ctxkernel.store.log.session import SessionReader, SessionStore
from ctxkernel.store.log.session_check import verify

posix = pytest.mark.skipif(os.name != "posix", reason="forks, signals and limits of POSIX")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts of Linux")

# Without this module's imports, so that it starts at once.
WRITER = """
import os
from pathlib import Path
from ctxkernel.core.timeline_events import StatementExecuted
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn_values import TurnResult
from ctxkernel.store.log.session import SessionStore
store = SessionStore.open(Path({path!r}), notebook="note.ipynb")
def cell(index, size=10):
    id = f"s{{index}}"
    statement = Statement(id, index, float(index), f"x = {{index}}")
    told = [store.begin(statement, Execution(id + ".1", id, None, float(index)))]
    os.write(1, b"b%d\\n" % index)
    events = (StatementExecuted(id, id + ".1", "ok"),)
    ended = Execution(id + ".1", id, None, float(index), index + 0.5, "ok", "o" * size, events=events)
    told.append(store.end(TurnResult(index, statement, ended, (), (), events)))
    os.write(1, b"e%d\\n" % index)
    return [one for one in told if one]
"""


def script(path: Path, body: str) -> list[str]:
    return [sys.executable, "-c", WRITER.format(path=str(path)) + body]


@pytest.fixture
def path(tmp_path):
    return session_path(NOTEBOOK, {}, tmp_path)


def read(path: Path, **options):
    with SessionReader(path) as reader:
        return reader.statements(**options)


def assert_prefix(found: list, whole: list) -> None:
    """The log is the beginning of what happened; the last statement of it may have no end."""
    *begun, (last, (execution,)) = found
    assert begun == whole[: len(begun)]
    assert last == whole[len(begun)][0]
    assert execution.status == "running" or execution == whole[len(begun)][1][0]


# -- kills (`test_torture.py` has more of them) --------------------------------------------------------


def test_what_ran_when_the_kernel_died_is_recorded_as_cancelled_at_the_next_start(path):
    store = SessionStore.open(path, now=lambda: 10.0)
    store.begin(*statement(1, "while True: pass"))
    store._writer._connection.close()  # as a kill does: no end, no close
    store._writer._lock.release()
    again = SessionStore.open(path, now=lambda: 20.0)
    ((_, (execution,)),) = read(path)
    assert execution.status == "cancelled"
    assert execution.exception == ExceptionInfo(
        "KernelDied", "the kernel died while this ran; its output was not kept", ""
    )
    assert execution.ended_at is None  # nobody knows
    again.close()
    third = SessionStore.open(path)  # and it is recorded once
    assert len(sqlite3.connect(path).execute("SELECT * FROM endings").fetchall()) == 1
    third.close()


@posix
def test_an_orphan_of_a_killed_kernel_does_not_keep_its_session(path):
    body = """
import time
if os.fork() == 0:
    os.write(1, b"ready\\n")
time.sleep(30)
"""
    process = subprocess.Popen(script(path, body), stdout=subprocess.PIPE, process_group=0)
    try:
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait()
        store = SessionStore.open(path)
        assert store.path == path
        store.close()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


@posix
def test_a_forked_child_writes_nothing_and_takes_nothing_away(path):
    store = SessionStore.open(path)
    write(store, turn(1))
    child = os.fork()
    if child == 0:
        try:
            told = [store.begin(*statement(2)), store.end(turn(2)), store.late("s1.1", "stdout", "x"), store.close()]
            os._exit(0 if told == [None] * 4 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write(store, turn(2))
    assert SessionStore.open(path).path.name == "note-2.sqlite"
    store.close()
    assert len(read(path)) == 2


def unfinished(path: Path) -> tuple[bytes, bytes, list]:
    """Return file, write-ahead log and statements of a session whose kernel was killed."""
    store = SessionStore.open(path)
    for index in range(1, 13):
        write(store, turn(index, f"x = {index}", stdout=f"{index}\n"))
    whole = read(path)
    data = path.read_bytes(), path.with_name(path.name + "-wal").read_bytes(), whole
    store.close()
    return data


def test_a_write_ahead_log_that_was_cut_or_flipped_anywhere_leaves_a_clean_prefix(path, tmp_path):
    main, wal, whole = unfinished(path)
    chance = random.Random(2)
    copy = tmp_path / "copy.sqlite"
    lengths = set()
    for n in range(80):
        at = chance.randrange(len(wal))
        torn = wal[:at] if n % 2 else wal[:at] + bytes([wal[at] ^ (1 << chance.randrange(8))]) + wal[at + 1 :]
        for suffix in ("-wal", "-shm"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)
        copy.write_bytes(main)
        copy.with_name("copy.sqlite-wal").write_bytes(torn)
        try:
            found = read(copy)
        except StoreError:  # cut before the first commit
            assert at < 200_000
            continue
        complete = [one for one in found if one[1][0].status == "ok"]
        assert complete == whole[: len(complete)]
        assert len(found) - len(complete) <= 1
        lengths.add(len(found))
        store = SessionStore.open(copy)
        assert store.path == copy
        assert store.last_index == len(found)
        store.close()
        assert verify(copy).sound
    assert len(lengths) > 6


# -- damage ------------------------------------------------------------------------------------------


def test_a_flipped_byte_in_a_text_is_found_and_named(path):
    store = SessionStore.open(path)
    write(store, turn(1, stdout="the answer is 42"))
    write(store, turn(2, stdout="something else"))
    store.close()
    raw = path.read_bytes()
    assert raw.count(b"the answer is 42") == 1
    path.write_bytes(raw.replace(b"the answer is 42", b"the answer is 43"))
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)  # SQLite does not see it

    with SessionReader(path) as reader:
        (_, (first,)), (_, (second,)) = reader.statements()
        assert reader.damage == ["endings 1"]
    assert first.notices == ("the stored row (endings 1) does not match its checksum",)
    assert second.notices == ()
    assert verify(path).damage == ["endings 1: the row does not match its checksum"]


def test_no_flipped_byte_is_passed_over_in_silence(tmp_path):
    """Wherever a bit flips: all is read as it was, or it is said."""
    made = Recorded(tmp_path)
    made.run("h = view('some text to look at')", stdout="out")
    made.run("h.lod = 2")
    made.run("x = 1")
    made.store.close()
    path = made.store.path
    raw, whole = path.read_bytes(), made.log
    projections = [result.projection.to_json() for result in made.results]
    chance = random.Random(4)
    silent = []
    for _ in range(120):
        at = chance.randrange(len(raw))
        path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << chance.randrange(8))]) + raw[at + 1 :])
        try:
            with SessionReader(path) as reader:
                same = reader.statements() == whole and [reader.projection(n + 1) for n in range(3)] == projections
            if not same and verify(path).sound:
                silent.append(at)
        except StoreError:
            pass
    assert silent == []


def test_a_kernel_starts_on_whatever_is_left_of_a_session(path, tmp_path):
    """A flipped bit anywhere: the store opens, writes, and either goes on in that file or leaves it as it is."""
    store = SessionStore.open(path)
    for index in range(1, 6):
        write(store, turn(index, stdout="out"))
    store.close()
    raw = path.read_bytes()
    chance = random.Random(5)
    for n in range(60):
        at = chance.randrange(len(raw)) if n % 2 else chance.randrange(8192)
        flipped = raw[:at] + bytes([raw[at] ^ (1 << chance.randrange(8))]) + raw[at + 1 :]
        copy = tmp_path / f"{n}.sqlite"
        copy.write_bytes(flipped)
        store = SessionStore.open(copy)
        assert store.path is not None
        told = write(store, turn(store.last_index + 1))
        store.close()
        if store.path == copy:
            assert told == [None, None] or "cannot be written" in str(told)
        else:
            assert copy.read_bytes() == flipped
            assert str(copy) in store.notice


@pytest.mark.parametrize(
    "content",
    [
        b"not a database at all, but long enough to be looked at" * 9,
        b"SQLite format 3\0" + b"\xff" * 4096,
        "torn",
        "short",
    ],
    ids=["text", "header only", "pages overwritten", "cut short"],
)
def test_a_damaged_session_is_left_as_it_is_and_a_new_one_begun(path, content):
    store = SessionStore.open(path)
    for index in range(1, 30):
        write(store, turn(index, stdout="o" * 2000))
    store.close()
    raw = path.read_bytes()
    if content == "torn":
        content = raw[:4096] + os.urandom(8192) + raw[12288:]
    elif content == "short":
        content = raw[: len(raw) // 2]
    path.write_bytes(content)

    store = SessionStore.open(path, notebook=NOTEBOOK)
    assert store.path == path.with_name("note-2.sqlite")
    assert str(path) in store.notice
    assert "left as it is" in store.notice
    assert "note-2.sqlite" in store.notice
    assert write(store, turn(1)) == [None, None]
    store.close()
    assert path.read_bytes() == content
    assert len(read(store.path)) == 1


def test_the_database_of_another_program_and_a_newer_session_are_left_alone(path):
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="another program"):
        SessionReader(path)
    second = path.with_name("note-2.sqlite")
    SessionStore.open(second).close()
    with contextlib.closing(sqlite3.connect(second)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"schema is 99.*upgrade"):
        SessionReader(second)
    before = path.read_bytes(), second.read_bytes()

    store = SessionStore.open(path)

    assert store.path.name == "note-3.sqlite"
    assert "another program" in store.notice
    assert "upgrade jupyter-ctxkernel" in store.notice
    store.close()
    assert (path.read_bytes(), second.read_bytes()) == before


# -- the disk ----------------------------------------------------------------------------------------


def in_memory_only(store: SessionStore) -> None:
    assert store.path is None
    assert "No session is kept on disk" in store.notice
    assert "CTXKERNEL_SESSION" in store.notice
    assert write(store, turn(1)) == [None, None]
    assert store.late("s1.1", "stdout", "x") is None
    store.close()


def test_a_folder_that_cannot_be_made_leaves_the_log_in_memory(tmp_path):
    (tmp_path / "file").touch()
    in_memory_only(SessionStore.open(tmp_path / "file" / ".ctxkernel" / "a.sqlite"))


def test_a_session_path_that_is_a_folder_gives_another_name(path):
    path.mkdir(parents=True)
    store = SessionStore.open(path)
    assert store.path.name == "note-2.sqlite"
    assert "is a folder" in store.notice
    store.close()


def test_a_full_disk_holds_what_happens_and_writes_it_when_there_is_room(tmp_path):
    made = Recorded(tmp_path)
    made.run("x = 1")
    connection = made.store._writer._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    for n in range(40):
        made.run(f"x = {n}", stdout="o" * 3000)
    assert len(made.notices) == 1  # told once
    assert "cannot be written (database or disk is full)" in made.notices[0]
    assert made.notices[0] in made.store.notice
    with made.reader() as reader:
        found = reader.statements()
    assert_prefix(found, made.log)
    assert len(found) < 41

    connection.execute("PRAGMA max_page_count = 1000000")
    made.run("x = 2")
    assert made.notices[1].endswith("is written again; nothing was lost.")
    assert made.store.notice is None
    assert_same_as_live(made)
    made.store.close()
    assert verify(made.store.path).sound


def test_a_disk_that_stays_full_ends_the_log_where_it_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_WAITING_BYTES", 50_000)
    made = Recorded(tmp_path)
    made.run("x = 1")
    made.store._writer._connection.execute("PRAGMA max_page_count = 1")
    for n in range(40):
        made.run(f"x = {n}", stdout="o" * 3000)
    assert len(made.notices) == 2
    assert "ends where it failed" in made.notices[1]
    assert len(made.store._writer._waiting) == 0
    made.store.close()
    assert verify(made.store.path).sound
    assert_prefix(read(made.store.path), made.log)


@posix
def test_a_write_error_of_the_system_loses_nothing_once_it_is_over(path):
    """RLIMIT_FSIZE: the write itself fails, as with EIO or a quota."""
    body = """
import resource, signal
told = cell(1)
size = max(os.path.getsize(store.path), os.path.getsize(str(store.path) + "-wal"))
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, hard))
for index in range(2, 40):
    told += cell(index, 5000)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
told += cell(40)
store.close()
print(len(told), *told, sep="\\n")
"""
    ran = subprocess.run(script(path, body), check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    told = [line for line in ran.stdout.splitlines() if line[0] not in "be" or " " in line]
    assert told[0] == "2", ran.stdout
    assert "cannot be written" in told[1]
    assert "nothing was lost" in told[2]
    assert [one.index for one, (execution,) in read(path) if execution.status == "ok"] == list(range(1, 41))
    assert verify(path).sound


MOUNT = ["unshare", "-rm", "sh", "-c"]


def can_mount() -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run([*MOUNT, "mount -t tmpfs tmpfs /mnt"], check=False, capture_output=True).returncode == 0
    return False


@linux
def test_a_small_disk_and_a_read_only_one(tmp_path):
    """A real ENOSPC, then a real read-only mount with a write-ahead log left in it."""
    if not can_mount():
        pytest.skip("run as root, or where users may mount: unshare -rm is refused here")
    disk = tmp_path / "disk"
    disk.mkdir()
    body = """
import subprocess
from ctxkernel.store.log.session import SessionReader
told = []
for index in range(1, 400):
    told += cell(index, 3000)
assert len(told) == 1 and "is full" in told[0], told
kept = len(SessionReader(store.path).statements())
assert 10 < kept < 399, kept
store._writer._connection.close()          # as a kill does
store._writer._lock.release()
ballast.unlink()
subprocess.run(["mount", "-o", "remount,ro", ballast.parent], check=True)
again = SessionStore.open(store.path)
assert again.path is None and "cannot be written" in again.notice, again.notice
assert os.path.getsize(str(store.path) + "-wal") > 0
assert len(SessionReader(store.path).statements()) == kept
"""
    path = disk / ".ctxkernel" / "note.sqlite"
    code = script(path, body)[2].replace(
        "store = ", f"ballast = Path({str(disk)!r}, 'b'); ballast.write_bytes(b'0' * 9999)\nstore = ", 1
    )
    (tmp_path / "script.py").write_text(code)
    command = f"mount -t tmpfs -o size=900k tmpfs {disk} && {sys.executable} {tmp_path}/script.py"
    ran = subprocess.run(
        [*MOUNT, command], check=False, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parent.parent
    )
    assert ran.returncode == 0, ran.stderr


def test_a_session_whose_file_is_deleted_under_it_is_written_anew(tmp_path):
    made = Recorded(tmp_path)
    made.run("x = 1")
    made.run("h = view('text')")
    if os.name == "nt":
        pytest.skip("open files cannot be deleted there")
    shutil.rmtree(made.store.path.parent)
    made.run("x = 2")
    assert len(made.notices) == 1
    assert "deleted while the kernel ran; all of it was written anew" in made.notices[0]
    made.run("x = 3")
    assert_same_as_live(made)
    assert SessionStore.open(made.store.path).path.name == "note-2.sqlite"  # the lock came along
    made.store.close()
    assert verify(made.store.path).sound


def test_a_reader_in_a_folder_that_it_may_not_write_reads_a_copy(path, monkeypatch):
    store = SessionStore.open(path)
    write(store, turn(1))

    opened = session_file._open

    def denied(path, options):
        if options == "mode=ro":
            raise sqlite3.OperationalError("unable to open database file")
        return opened(path, options)

    monkeypatch.setattr(session_file, "_open", denied)
    with SessionReader(path) as reader:
        assert len(reader.statements()) == 1  # that statement is in the write-ahead log only
        scratch = Path(reader._scratch.name)
    assert not scratch.exists()
    store.close()
    with SessionReader(path) as reader:
        assert len(reader.statements()) == 1
        assert reader._scratch is None


# -- file systems ------------------------------------------------------------------------------------


@pytest.fixture
def no_locks(monkeypatch):
    """A file system on which nothing can be locked."""

    def none(descriptor):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "_lock", none)
    monkeypatch.setattr(lock, "_unlock", none)


@posix
def test_a_file_system_without_shared_memory_keeps_sessions_too(path, monkeypatch):
    main, wal, whole = unfinished(path)
    path.write_bytes(main)  # a session that a kernel on another file system left behind
    path.with_name(path.name + "-wal").write_bytes(wal)
    monkeypatch.setattr(opening, "VFS", "?vfs=unix-none")
    store = SessionStore.open(path)
    assert (store.path, store.notice) == (path, None)
    assert store._writer._connection.execute("PRAGMA journal_mode").fetchone()[0] == "truncate"
    assert write(store, turn(13)) == [None, None]
    assert [one for one, _ in read(path, all_roots=True)] == [one for one, _ in [*whole, (turn(13).statement, ())]]
    store.close()
    assert verify(path).sound


@posix
def test_where_there_are_no_locks_a_file_keeps_others_out_and_the_next_kernel_goes_on(path, no_locks):
    first = SessionStore.open(path)
    write(first, turn(1))
    second = SessionStore.open(path)
    assert second.path.name == "note-2.sqlite" and "in use" in second.notice
    second.close()
    first.close()
    third = SessionStore.open(path)
    assert (third.path, third.notice) == (path, None)
    assert len(read(path, all_roots=True)) == 1
    third.close()
    assert sorted(one.name for one in path.parent.iterdir() if one.suffix == ".owner") == []


@posix
@pytest.mark.parametrize(
    ("owner", "waits"),
    [
        (lambda: f"{platform.node()} pid {os.getppid()} {lock._start_of(os.getppid())}\n", True),
        (lambda: f"{platform.node()} pid {os.getppid()} 1 {'0' * 36}\n", False),  # another process with its number
        (lambda: f"{platform.node()} pid {ended_process()} {lock._start_of(os.getpid())}\n", False),
        (lambda: f"another-machine pid {os.getppid()} 1 {'0' * 36}\n", True),
    ],
    ids=["lives", "number used again", "ended", "on another machine"],
)
def test_where_there_are_no_locks_only_a_process_that_ended_here_gives_up_its_session(path, no_locks, owner, waits):
    path.parent.mkdir(exist_ok=True)
    lock.owner_path(path).write_text(owner())
    store = SessionStore.open(path)
    assert (store.path == path) is not waits
    if waits and "another" in owner():
        assert "remove" in store.notice and ".owner" in store.notice
    store.close()


@posix
def test_a_file_that_cannot_be_written_leaves_no_empty_sessions(path, monkeypatch):
    def busy(*arguments, **options):
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(opening, "_connection", busy)
    assert "memory only" in SessionStore.open(path).notice
    assert [one.name for one in path.parent.iterdir() if one.suffix == ".sqlite"] == []


@posix
def test_where_there_are_no_locks_a_reader_does_not_wait_for_them(path, no_locks):
    store = SessionStore.open(path)
    write(store, turn(1))
    began = time.perf_counter()
    assert len(read(path, all_roots=True)) == 1
    assert time.perf_counter() - began < 4  # SQLite would wait 5 s
    store.close()


def ended_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


# -- faults of ours ----------------------------------------------------------------------------------


def test_a_value_that_no_row_can_hold_costs_its_batch_and_no_other(tmp_path):
    made = Recorded(tmp_path)
    made.run("h = view('text')")
    huge, running = statement(2**70)
    notice = made.store.begin(huge, running)
    assert "OverflowError" in notice
    made.run("x = 1")
    assert_same_as_live(made)
    made.store.close()
    assert verify(made.store.path).sound


def test_a_turn_that_cannot_be_stored_whole_is_stored_as_far_as_it_can(path):
    class Broken:
        def to_record(self):
            raise RuntimeError("no")

    store = SessionStore.open(path)
    store.begin(*statement(1))
    notice = store.end(dataclasses.replace(turn(1, stdout="hi"), projection=Broken()))
    assert "s1.1" in notice
    assert write(store, turn(2)) == [None, None]
    (_, (execution,)), _ = read(path)
    assert (execution.status, execution.stdout) == ("ok", "hi")
    assert execution.notices == ("the rest of this turn could not be stored",)
    store.close()


def test_an_interrupt_in_a_commit_leaves_no_open_transaction(path):
    class Interrupted:
        def __init__(self, connection, at):
            self.connection, self.at = connection, at

        def __getattr__(self, name):
            self.at -= 1
            if self.at == 0:
                raise KeyboardInterrupt
            return getattr(self.connection, name)

    for at in range(1, 7):
        store = SessionStore.open(path)
        connection = store._writer._connection
        store._writer._connection = Interrupted(connection, at)
        index = store.last_index + 1
        made, running = statement(index)
        with contextlib.suppress(KeyboardInterrupt):
            store.begin(made, running)
        store._writer._connection = connection
        assert store.end(turn(index)) is None
        assert write(store, turn(index + 1)) == [None, None]
        assert [one.index for one, _ in read(path)] == [index, index + 1]
        store.close()
    assert verify(path).sound


def test_calls_after_the_close_do_nothing(path):
    store = SessionStore.open(path)
    store.close()
    store.close()
    assert write(store, turn(1)) == [None, None]
    assert store.late("s1.1", "stdout", "x") is None
    assert read(path) == []


def test_the_write_ahead_log_is_folded_in_while_cells_run(path):
    store = SessionStore.open(path)
    for index in range(1, 400):
        write(store, turn(index, stdout="o" * 30_000))
    deadline = time.monotonic() + 10
    while path.stat().st_size < 4e6 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert path.stat().st_size > 4e6
    store.close()
    assert not store._writer._checkpointer.is_alive()
    assert not path.with_name(path.name + "-wal").exists()
    assert len(read(path)) == 399
