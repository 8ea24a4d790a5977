"""Files beside a notebook that a stranger may have put there: nothing outside our folders is read, changed or run."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest
from scale import share
from test_store import statement, turn

from ctxkernel.core.errors import StoreError
from ctxkernel.store.lock import SessionLock, holder
from ctxkernel.store.log import schema
from ctxkernel.store.log.resumable_runs import load_run
from ctxkernel.store.log.session import SessionReader, SessionStore
from ctxkernel.store.log.session_check import verify
from ctxkernel.store.regular_files import ForeignFileError
from ctxkernel.store.signatures import Signer

posix = pytest.mark.skipif(os.name != "posix", reason="links and pipes of POSIX")
TEXT = '[[package]]\nname = "attrs"\n'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "poetry.lock").write_text(TEXT)
    made = tmp_path / "clone" / ".ctxkernel"
    made.mkdir(parents=True)
    return made


def unharmed(folder: Path) -> bool:
    """Return whether the folder of somebody else is as it was."""
    victim = folder.parent.parent / "victim"
    return os.listdir(victim) == ["poetry.lock"] and (victim / "poetry.lock").read_text() == TEXT


@posix
@pytest.mark.parametrize("link", ["symbolic", "hard"])
@pytest.mark.parametrize("name", ["note.sqlite.lock", "note.sqlite", "note.sqlite-wal", "note.sqlite-journal"])
def test_a_link_beside_a_session_is_not_followed(folder, name, link):
    target = folder.parent.parent / "victim" / "poetry.lock"
    (os.symlink if link == "symbolic" else os.link)(target, folder / name)
    store = SessionStore.open(folder / "note.sqlite")
    assert store.path == folder / "note-2.sqlite"
    assert "link" in (store.notice or "")
    assert str(folder / name) in (store.notice or "")
    store.close()
    assert unharmed(folder)


@posix
@pytest.mark.parametrize("name", ["note.sqlite", "note.sqlite-wal", "note.sqlite-shm"])
def test_a_link_is_not_read_as_a_session(folder, name):
    SessionStore.open(folder / "note.sqlite").close()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(folder.parent.parent / "victim" / "poetry.lock")
    with pytest.raises(StoreError, match="symbolic link"):
        SessionReader(folder / "note.sqlite")
    assert unharmed(folder)


@posix
def test_a_pipe_in_place_of_a_session_does_not_block(folder):
    os.mkfifo(folder / "note.sqlite")
    os.mkfifo(folder / "note-2.sqlite.lock")
    store = SessionStore.open(folder / "note.sqlite")
    assert store.path == folder / "note-3.sqlite"
    assert "no regular file" in (store.notice or "")
    assert holder(folder / "note-2.sqlite") == ""
    store.close()


@posix
def test_a_session_folder_that_is_a_link_is_not_used(folder):
    folder.rmdir()
    folder.symlink_to(folder.parent.parent / "victim")
    store = SessionStore.open(folder / "note.sqlite")
    assert store.path is None
    assert "symbolic link" in (store.notice or "")
    store.close()
    assert unharmed(folder)


def test_a_lock_file_that_no_kernel_wrote_is_not_truncated(folder):
    lock = folder / "note.sqlite.lock"
    lock.write_text(TEXT)
    with pytest.raises(ForeignFileError, match="no kernel wrote it"):
        SessionLock.take(folder / "note.sqlite")
    assert lock.read_text() == TEXT
    store = SessionStore.open(folder / "note.sqlite")
    assert store.path == folder / "note-2.sqlite"
    assert str(lock) in (store.notice or "")
    store.close()


def test_the_lock_of_a_killed_kernel_is_taken(folder):
    for text in ("", " pid 4711\n", " pi"):
        (folder / "note.sqlite.lock").write_text(text)
        lock = SessionLock.take(folder / "note.sqlite")
        assert lock is not None
        assert holder(folder / "note.sqlite") == f"pid {os.getpid()}"
        lock.release()


def test_a_journal_that_names_another_file_is_refused(folder):
    """SQLite rolls back such a journal, and deletes the file that it names."""
    SessionStore.open(folder / "note.sqlite").close()
    name = os.fsencode(folder.parent.parent / "victim" / "poetry.lock")
    magic = bytes.fromhex("d9d505f920a163d7")
    tail = name + len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big") + magic
    (folder / "note.sqlite-journal").write_bytes(magic + bytes(1016) + tail)
    store = SessionStore.open(folder / "note.sqlite")
    assert store.path == folder / "note-2.sqlite"
    assert "names another file" in (store.notice or "")
    store.close()
    assert unharmed(folder)


@pytest.mark.parametrize("size", [0, 8, 512, 1024, 5000])
def test_a_journal_of_a_killed_kernel_is_no_reason_to_leave_the_session(folder, size):
    """Its header begins with the bytes that end one that names another file, and it may be torn anywhere."""
    SessionStore.open(folder / "note.sqlite").close()
    header = bytes.fromhex("d9d505f920a163d7")
    (folder / "note.sqlite-journal").write_bytes((header + bytes(8192))[:size])
    store = SessionStore.open(folder / "note.sqlite")
    assert (store.path, store.notice) == (folder / "note.sqlite", None)
    store.close()


# -- the content of a session ----------------------------------------------------------------------


def changed(path: Path, *changes: str) -> None:
    """Change a session as somebody would who knows its format."""
    with sqlite3.connect(path) as connection:
        for name in [*schema.TABLES]:
            connection.execute(f"DROP TRIGGER IF EXISTS {name}_update")
        for change in changes:
            connection.execute(change)
    connection.close()


@pytest.mark.parametrize(
    "name", ["../../../victim", "/tmp/victim", "", "x" * 10_000, "0123456789ABCDEF", "a/b", "0" * 15]
)
def test_a_session_whose_id_is_none_of_ours_is_left_alone(folder, name):
    path = folder / "note.sqlite"
    SessionStore.open(path).close()
    changed(path, f"UPDATE session SET value = '{name}' WHERE key = 'id'")
    before = path.read_bytes()
    with SessionReader(path) as reader:
        assert reader.session_id == ""
    store = SessionStore.open(path)
    assert store.path == folder / "note-2.sqlite"
    assert "its id is not one that a ctxkernel gives" in (store.notice or "")
    store.close()
    assert path.read_bytes() == before
    assert unharmed(folder)


STRANGE = {
    "a view in place of a table": (
        "DROP TABLE marks",
        "CREATE VIEW marks AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n",
    ),
    "a trigger": (
        "CREATE TRIGGER more AFTER INSERT ON runs BEGIN INSERT INTO notices (text) SELECT source FROM statements; END",
    ),
    "an index": ("CREATE INDEX more ON marks (lower(subject))",),
    "another column": ("ALTER TABLE marks ADD COLUMN more TEXT DEFAULT 'x'",),
    "a missing table": ("DROP TABLE marks",),
    "another table": ("CREATE TABLE more (x)",),
    "a newer version": ("PRAGMA user_version = 99",),
    "a negative version": ("PRAGMA user_version = -1",),
    "numbers that are too large": ("INSERT INTO runs VALUES (9223372036854775807, 1.0, NULL, NULL, '{}', 0, 0)",),
    "numbers that are texts": ("INSERT INTO statements (idx, hash) VALUES (9223372036854775807, 0)",),
}


@pytest.mark.parametrize("changes", STRANGE.values(), ids=STRANGE.keys())
def test_a_session_with_other_tables_or_numbers_than_ours_is_left_alone(folder, changes):
    path = folder / "note.sqlite"
    SessionStore.open(path).close()
    changed(path, *changes)
    before = path.read_bytes()
    with contextlib.suppress(StoreError), SessionReader(path) as reader:
        reader.timeline()
    store = SessionStore.open(path)
    assert store.path == folder / "note-2.sqlite"
    assert str(path) in (store.notice or "")
    store.close()
    assert path.read_bytes() == before


VALUES = ["NULL", "x'ff00'", "'text'", "1e300", "9e999", "-1", "9223372036854775807", "''", "'[[[['", "'{\"a\":1}'"]
PLACES = [(table, name) for table, types in schema.TYPES.items() for name in types if name != "id"]


@pytest.mark.scaled
@pytest.mark.parametrize("value", VALUES)
def test_any_value_in_any_column_is_read_with_the_type_of_its_column(folder, value):
    path = folder / "note.sqlite"
    store = SessionStore.open(path)
    for index in (1, 2):
        made, running = statement(index)
        store.begin(made, running)
        store.end(turn(index))
    store.close()
    kinds = {"TEXT": str, "INTEGER": int, "REAL": float}
    for table, column in share(PLACES, 12):
        copy = folder / "copy.sqlite"
        copy.write_bytes(path.read_bytes())
        with contextlib.suppress(sqlite3.IntegrityError):  # SQLite lets no such value into an integer key
            changed(copy, f"UPDATE OR IGNORE {table} SET {column} = {value}")
        with contextlib.suppress(StoreError), SessionReader(copy) as reader:
            for row in reader.rows(table):
                null = column in schema.NULLABLE.get(table, ())
                assert type(row[column]) is kinds[schema.TYPES[table][column]] or (null and row[column] is None)
            reader.timeline(all_roots=True)
            reader.handles()
            reader.records(all_roots=True)
            reader.comparisons(all_roots=True)
            reader.marks()
            load_run(reader)
        with contextlib.suppress(StoreError):
            verify(copy)
        SessionStore.open(copy).close()
        copy.unlink()


# -- a kernel in a stranger's folder ---------------------------------------------------------------


def everything_in(*folders: Path) -> dict[str, bytes | None]:
    paths = [path for folder in folders for path in sorted(folder.rglob("*"))]
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


@posix
def test_a_kernel_in_a_folder_with_an_id_that_is_a_path_writes_nothing_there(folder, start_kernel):
    """The id named the folder of checkpoint data: a foreign lock file was truncated, and data of variables written."""
    victim = folder.parent.parent / "victim"
    (victim / "poetry.lock").rename(folder.parent.parent / "victim.lock")
    path = folder / "note.sqlite"
    SessionStore.open(path).close()
    changed(path, f"UPDATE session SET value = '{victim}' WHERE key = 'id'")
    before = everything_in(victim, folder.parent.parent / "victim.lock")

    kernel = start_kernel(folder.parent)
    first = kernel.run("import numpy as np; data = np.arange(300_000)")

    assert first.status == "ok"
    assert f"The session {path} cannot be continued: its id is not one that a ctxkernel gives." in first.stderr
    assert "This kernel keeps its own session in note-2.sqlite." in first.stderr
    assert kernel.run("%ctx goto 1").status == "ok"
    assert kernel.run("y = 1").stderr == ""
    kernel.stop()
    assert everything_in(victim, folder.parent.parent / "victim.lock") == before


def damaged(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 20)


def newer(path: Path) -> None:
    SessionStore.open(path).close()
    changed(path, "PRAGMA user_version = 99")


def foreign(path: Path) -> None:
    store = SessionStore.open(path, signer=Signer(b"s" * 32))
    made, running = statement(1)
    store.begin(made, running)
    store.end(turn(1))
    store.close()


def unwritable(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("a file in place of the folder")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (damaged, "is damaged"),
        (newer, "its schema is 99, this ctxkernel knows"),
        (foreign, "has rows of somebody else"),
        (unwritable, "No session is kept on disk"),
    ],
)
def test_the_first_cell_says_that_the_session_of_the_notebook_is_not_continued(folder, start_kernel, make, told):
    make(folder / "note.sqlite")
    kernel = start_kernel(folder.parent)
    assert told in kernel.run("x = 1").stderr
    assert kernel.run("x = 2").stderr == ""
    assert told in kernel.run("%ctx status").data[0]["text/plain"]


def test_a_second_kernel_of_a_notebook_says_nothing_in_its_cells(folder, start_kernel):
    """It is no fault, and the output of a notebook that runs twice stays the same."""
    start_kernel(folder.parent)
    assert start_kernel(folder.parent).run("x = 1").stderr == ""


@pytest.mark.timeout(20)
def test_projections_that_build_on_each_other_are_damaged(folder):
    """A circle of their bases ends the search for the first one."""
    path = folder / "note.sqlite"
    store = SessionStore.open(path)
    store.close()
    connection = sqlite3.connect(path)
    for seq, base in ((1, 2), (2, 1)):
        connection.execute("INSERT INTO executions VALUES (?, ?, ?, NULL, 1, 0.0, 0, NULL)", (seq, f"s{seq}.1", seq))
        connection.execute("INSERT INTO projections VALUES (?, ?, 'r', 1, 1, '{}', 0, NULL)", (seq, base))
    connection.commit()
    connection.close()
    with SessionReader(path) as reader:
        assert all(isinstance(found, StoreError) for _, _, found in reader.stored_projections())
