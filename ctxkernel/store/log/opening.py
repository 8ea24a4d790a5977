"""Finding a session file that this kernel may write, and connecting to it.

Rule 1: nothing here raises to the kernel: where no file will do, the log lives in memory, and a notice says so.
Rule 2: a file that is damaged, foreign, too new or another kernel's is left as it is; the next name is tried.
Rule 3: every connection here has a lock beside it, but that in memory.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ctxkernel.core.errors import StoreError
from ctxkernel.core.events import Json
from ctxkernel.store.lock import SessionLock, UnlockableError, holder
from ctxkernel.store.log import location, migrations, rows, schema
from ctxkernel.store.log.location import CHECK

_MOST_TRIES = 100
_CHECK_SECONDS = 0.05
"""What the look for damage may cost a kernel's start; a log of about 30 MB is read in that time."""
_BUSY_SECONDS = 0.1
_MEMORY_PAGES = 64 * 1024
"""Bound of a log in memory: 256 MB of pages of 4 KB."""
_OWN_CHECKPOINT_PAGES = 10_000
"""The pages in the write-ahead log at which SQLite moves them itself, in the middle of a commit: a backstop."""

DIED = "KernelDied"


@dataclass(slots=True)
class Place:
    """Where a log is written, with a new run begun in it."""

    connection: sqlite3.Connection
    path: Path | None
    """None where the log is in memory."""
    lock: SessionLock | None
    session_id: str
    run: int
    last_index: int
    last_seq: int
    notices: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Start:
    """What a run begins with."""

    now: float
    session_id: str
    """The id that the session gets if it is a new one."""
    notebook: str | None
    environment: Mapping[str, Json]
    named: bool = False


class _Unfit(Exception):  # noqa: N818
    """This file will not do, another in the folder may. The text says why, for a notice; empty for none."""


def open_place(path: Path, start: Start) -> Place:
    """Return the first place among `path` and its siblings that can be written, else one in memory."""
    notices: list[str] = []
    try:
        location.prepare_folder(path)
        for candidate in islice(location.siblings(path), _MOST_TRIES):
            try:
                place = _try(candidate, path, start)
            except _Unfit as unfit:
                if str(unfit):
                    notices.append(str(unfit))
                continue
            if notices:
                notices[-1] += f" This kernel keeps its own session in {candidate.name}."
            place.notices = notices + place.notices
            return place
        reason = f"none of {_MOST_TRIES} names will do"
    except (OSError, sqlite3.Error, StoreError, ValueError) as error:
        reason = str(error)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"PRAGMA max_page_count = {_MEMORY_PAGES}")
    place = _begin_run(connection, None, None, start)
    notices.append(
        f"No session is kept on disk: {path} cannot be written ({reason}). The timeline of this kernel is in memory "
        f"only; set {location.OVERRIDE} to a file in a folder that can be written, and restart the kernel."
    )
    place.notices = notices
    return place


def move(connection: sqlite3.Connection, path: Path) -> tuple[sqlite3.Connection, Path, SessionLock]:
    """Write the log of `connection`, whose file is gone, to `path` or the first free sibling. Raises any of its faults.

    The descriptor is open still, so all that was written can be read through it.
    """
    location.prepare_folder(path)
    for candidate in islice(location.siblings(path), _MOST_TRIES):
        lock = None if candidate.exists() else SessionLock.take(candidate)
        if lock is None:
            continue
        try:
            location.prepare_file(candidate, fresh=True)
            with contextlib.closing(_connection(candidate)) as target:
                connection.backup(target)
            return connect(candidate), candidate, lock
        except BaseException:
            lock.release()
            raise
    raise FileExistsError(f"none of {_MOST_TRIES} names is free")


def _try(path: Path, base: Path, start: Start) -> Place:
    """Return a place at `path`. Raises _Unfit, or OSError and sqlite3.Error where the whole folder will not do."""
    lock: SessionLock | None = None
    locks_work = True
    try:
        lock = SessionLock.take(path)
    except UnlockableError:
        # Nobody can be kept out of a file on such a file system, so only one that nobody else has will do.
        locks_work = False
    if locks_work and lock is None:
        raise _Unfit(f"The session {path} is in use by another kernel ({holder(path) or 'unknown'}).")
    with contextlib.ExitStack() as opened:
        if lock is not None:
            opened.callback(lock.release)
        with _as_unfit(path):
            location.prepare_file(path, fresh=not locks_work)
            connection = opened.enter_context(contextlib.closing(connect(path)))
        notebook = None
        with contextlib.suppress(sqlite3.Error):
            notebook = _about(connection, "notebook")
        if not location.belongs(path, base, notebook, named=start.named):
            raise _Unfit("")
        with _as_unfit(path):
            place = _begin_run(connection, path, lock, start)
        opened.pop_all()
        return place


@contextlib.contextmanager
def _as_unfit(path: Path) -> Generator[None]:
    """Turn what is wrong with this one file into _Unfit; let through what is wrong with the disk or the folder."""
    kept = "It was left as it is"
    try:
        yield
    except StoreError as error:
        raise _Unfit(f"The session {path} cannot be continued: {error}. {kept}.") from error
    except FileExistsError as error:
        raise _Unfit("") from error
    except PermissionError as error:
        if not path.exists():
            raise
        raise _Unfit(f"The session {path} may not be written ({error.strerror}).") from error
    except IsADirectoryError as error:
        raise _Unfit(f"{path} is a folder, not a session.") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_AUTH}:
            raise _Unfit(f"The session {path} may not be written ({error}).") from error
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT}:
            raise _Unfit(
                f"The session {path} is damaged ({error}). {kept}; `{CHECK} {path}` says what is wrong with it."
            ) from error
        raise


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection that writes `path`. Raises sqlite3.Error, and StoreError where the file is no session."""
    with contextlib.ExitStack() as opened:
        connection = opened.enter_context(contextlib.closing(_connection(path)))
        try:
            migrations.version_of(connection)
            # A commit writes each page that it touched, and a cell touches a dozen with a few hundred bytes on each.
            connection.execute("PRAGMA page_size = 2048")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError:
            mode = "none"
        if mode != "wal":
            # The file system gives no shared memory, as many network ones: some milliseconds more a commit. A log that
            # was in WAL mode can be read without shared memory only by one who has it alone.
            connection.close()
            connection = opened.enter_context(contextlib.closing(_connection(path)))
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            migrations.version_of(connection)
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            connection.execute("PRAGMA locking_mode = NORMAL")
            connection.execute("SELECT count(*) FROM sqlite_master")
        _look_for_damage(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_OWN_CHECKPOINT_PAGES}")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        opened.pop_all()
    return connection


def _connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path.absolute().as_uri() + VFS, isolation_level=None, timeout=_BUSY_SECONDS, uri=True, cached_statements=64
    )
    # A stranger's file may hold views and triggers; they get no functions to call.
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


VFS = ""
"""For tests: `?vfs=unix-none` gives no shared memory, as many network file systems."""


def _look_for_damage(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError where SQLite sees damage within the time that a start has for it."""
    deadline = time.monotonic() + _CHECK_SECONDS
    connection.set_progress_handler(lambda: int(time.monotonic() > deadline), 2000)
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            return
        raise
    finally:
        connection.set_progress_handler(None, 0)
    if found != "ok":
        raise sqlite3.DatabaseError(found)


def _about(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT value FROM session WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def _begin_run(connection: sqlite3.Connection, path: Path | None, lock: SessionLock | None, start: Start) -> Place:
    """Bring the schema up, close what a dead kernel left open, and write a new run: all in one transaction."""
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    try:
        if migrations.bring_up(connection):
            about = {"id": start.session_id, "created_at": repr(start.now), "notebook": start.notebook}
            _insert(connection, [("session", row) for row in about.items()])
        session_id = _about(connection, "id")
        if session_id is None:
            raise StoreError("it has no id")
        # Nobody else writes here, so the kernels of those that began and did not end are dead. When is not known.
        died = execute("SELECT seq FROM executions EXCEPT SELECT seq FROM endings").fetchall()
        how = rows.ExceptionInfo(DIED, "the kernel died while this ran; what it printed was not kept", "")
        ended = rows.Execution("", "", None, 0.0, None, "cancelled", exception=how)
        _insert(connection, [("endings", rows.ending_row(seq, ended, rows.unmasked)) for (seq,) in died])
        run = (execute("SELECT max(run) FROM runs").fetchone()[0] or 0) + 1
        environment = rows.dump(start.environment)
        _insert(connection, [("runs", (run, start.now, start.notebook, None, environment))])
        last_index = execute("SELECT max(idx) FROM statements").fetchone()[0] or 0
        last_seq = execute("SELECT max(seq) FROM executions").fetchone()[0] or 0
        execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                execute("ROLLBACK")
        raise
    return Place(connection, path, lock, session_id, run, last_index, last_seq)


def _insert(connection: sqlite3.Connection, made: rows.Rows) -> None:
    for table, row in rows.sealed(made).rows:
        connection.execute(schema.INSERT[table], row)
