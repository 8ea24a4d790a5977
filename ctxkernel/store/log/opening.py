"""The search for a session file that this kernel may write, and the connection to it.

Rule 1: Nothing here raises to the kernel: if no file is usable, the log is in memory, and a notice says so.
Rule 2: A file that is damaged, foreign, too new or another kernel's is not changed; the next name is tried.
Rule 3: Every connection has a lock, except the one in memory.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Generator, Mapping
from itertools import islice
from pathlib import Path

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import StoreError
from ctxkernel.core.timeline_events import Json
from ctxkernel.store.chunks.data_folder import is_session_id
from ctxkernel.store.lock import SessionLock, held_elsewhere, holder
from ctxkernel.store.log import location, row_masking, rows, schema
from ctxkernel.store.log.location import CHECK
from ctxkernel.store.regular_files import ForeignFileError
from ctxkernel.store.signatures import RowSigner, Signer, signer

_MOST_TRIES = 100
_CHECK_SECONDS = 0.05
"""The time limit of the check for damage at a kernel's start; a log of about 30 MB is read in that time."""
_BUSY_SECONDS = 0.1
_MEMORY_PAGES = 64 * 1024
"""The limit of a log in memory: 256 MB of pages of 4 KB."""
_OWN_CHECKPOINT_PAGES = 10_000
"""The pages in the write-ahead log at which SQLite itself moves them, during a commit: a fallback."""

DIED = "KernelDied"


@dataclass(slots=True)
class OpenLog:
    """A log with a new run."""

    connection: sqlite3.Connection
    path: Path | None
    """None if the log is in memory."""
    lock: SessionLock | None
    session_id: str
    run: int
    last_index: int
    last_seq: int
    notices: list[str] = field(default_factory=list[str])
    alarming: bool = False
    """Whether the first cell tells the notices: one is about more than another kernel that uses the session."""


@dataclass(frozen=True, slots=True)
class Start:
    """The facts with which a run begins."""

    now: float
    session_id: str
    """The id of the session if it is a new one."""
    notebook: str | None
    environment: Mapping[str, Json]
    named: bool = False
    signer: Signer = field(default_factory=signer)


class _Unfit(Exception):
    """This file is not usable, another in the folder may be. The text is a notice; empty for none."""

    alarming = True


class _InUse(_Unfit):
    alarming = False


def open_place(path: Path, start: Start) -> OpenLog:
    """Return the first writable place among `path` and its siblings, else one in memory."""
    notices, alarming = list[str](), False
    try:
        location.prepare_folder(path)
        for candidate in islice(location.siblings(path), _MOST_TRIES):
            try:
                place = _try(candidate, path, start)
            except _Unfit as unfit:
                if str(unfit):
                    notices.append(str(unfit))
                    alarming = alarming or unfit.alarming
                continue
            if notices:
                notices[-1] += f" This kernel keeps its own session in {candidate.name}."
            place.notices = notices + place.notices
            place.alarming = place.alarming or alarming
            return place
        reason = f"none of {_MOST_TRIES} names is usable"
    except (OSError, sqlite3.Error, StoreError, ValueError) as error:
        reason = str(error)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"PRAGMA max_page_count = {_MEMORY_PAGES}")
    place = _begin_run(connection, None, None, start)
    notices.append(
        f"No session is kept on disk: {path} cannot be written ({reason}). The timeline of this kernel is in memory "
        f"only; set {location.OVERRIDE} to a file in a folder that can be written, and restart the kernel."
    )
    place.notices, place.alarming = notices, True
    return place


def move(connection: sqlite3.Connection, path: Path) -> tuple[sqlite3.Connection, Path, SessionLock]:
    """Write the log of `connection`, whose file was deleted, to `path` or the first free sibling. Raises any exception.

    The descriptor is still open, so the whole log can be read through it.
    """
    location.prepare_folder(path)
    for candidate in islice(location.siblings(path), _MOST_TRIES):
        lock = None if candidate.exists() else SessionLock.take(candidate)
        if lock is None:
            continue
        try:
            location.prepare_file(candidate, fresh=True)
            with contextlib.closing(_connection(candidate, lock)) as target:
                connection.backup(target)
            return connect(candidate, lock), candidate, lock
        except BaseException:
            lock.release()
            raise
    raise FileExistsError(f"none of {_MOST_TRIES} names is free")


def _try(path: Path, base: Path, start: Start) -> OpenLog:
    """Return a place at `path`. Raises _Unfit, or OSError and sqlite3.Error if the whole folder is not usable."""
    try:
        lock = SessionLock.take(path)
    except ForeignFileError as error:
        raise _foreign(error) from error
    if lock is None:
        told = f"The session {path} is in use by another kernel ({holder(path) or 'unknown'})."
        if elsewhere := held_elsewhere(path):
            raise _Unfit(f"{told} {elsewhere}.")
        raise _InUse(told)
    with contextlib.ExitStack() as opened:
        opened.callback(lock.release)
        opened.callback(_remove_empty, path)
        with _as_unfit(path):
            location.prepare_file(path)
            connection = opened.enter_context(contextlib.closing(connect(path, lock)))
        notebook = None
        with contextlib.suppress(sqlite3.Error):
            notebook = _about(connection, "notebook")
        if not location.belongs(path, base, notebook, named=start.named):
            raise _Unfit("")
        with _as_unfit(path):
            place = _begin_run(connection, path, lock, start)
        opened.pop_all()
        return place


def _remove_empty(path: Path) -> None:
    """Remove a session file that nothing could be written to."""
    with contextlib.suppress(OSError):
        if path.is_file() and not path.stat().st_size:
            path.unlink()


@contextlib.contextmanager
def _as_unfit(path: Path) -> Generator[None]:
    """Raise _Unfit for faults of this one file; let through those of the disk or the folder."""
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
    except ForeignFileError as error:
        raise _foreign(error) from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_AUTH}:
            raise _Unfit(f"The session {path} may not be written ({error}).") from error
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT}:
            raise _Unfit(
                f"The session {path} is damaged ({error}). {kept}; `{CHECK} {path}` lists the faults."
            ) from error
        raise


def _foreign(error: ForeignFileError) -> _Unfit:
    return _Unfit(f"{error.filename} is not used, and was left as it is: {error.strerror}.")


def connect(path: Path, lock: SessionLock) -> sqlite3.Connection:
    """Return a connection that writes `path`, with the lock of that session.

    Raises sqlite3.Error, and StoreError if the file is no session.
    """
    with contextlib.ExitStack() as opened:
        connection = opened.enter_context(contextlib.closing(_connection(path, lock)))
        try:
            schema.version_of(connection)
            # A commit writes each page that it changes, and a cell changes a dozen by a few hundred bytes each.
            connection.execute("PRAGMA page_size = 2048")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError:
            mode = "none"
        if mode != "wal":
            # The file system has no shared memory, as many network ones: a commit takes some milliseconds more. Without
            # shared memory a log that was in WAL mode can only be read with an exclusive lock.
            connection.close()
            connection = opened.enter_context(contextlib.closing(_connection(path, lock)))
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            schema.version_of(connection)
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            connection.execute("PRAGMA locking_mode = NORMAL")
            connection.execute("SELECT count(*) FROM sqlite_master")
        _look_for_damage(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_OWN_CHECKPOINT_PAGES}")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        opened.pop_all()
    return connection


def _connection(path: Path, lock: SessionLock) -> sqlite3.Connection:
    # Where files cannot be locked, SQLite cannot either: the lock of the session is enough then.
    vfs = NO_LOCKS if lock.by_file else VFS
    connection = sqlite3.connect(
        path.absolute().as_uri() + vfs, isolation_level=None, timeout=_BUSY_SECONDS, uri=True, cached_statements=64
    )
    # Views and triggers in a stranger's file may not call functions.
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


NO_LOCKS = "?vfs=unix-none" if os.name == "posix" else "?vfs=win32-none"
VFS = ""
"""For tests: `NO_LOCKS` has no shared memory, as many network file systems."""


def _look_for_damage(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if SQLite finds damage within the time limit."""
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
    return row[0] if row and isinstance(row[0], str) else None


def _begin_run(connection: sqlite3.Connection, path: Path | None, lock: SessionLock | None, start: Start) -> OpenLog:
    """Migrate the schema, close the executions of a dead kernel, and write a new run, in one transaction."""
    execute = connection.execute
    with transaction(connection):
        about: dict[str, str | None] = {}
        if schema.bring_up(connection):
            about = {"id": start.session_id, "created_at": repr(start.now), "notebook": start.notebook}
        session_id = about.get("id") or session_id_of(connection)
        sign = start.signer.row_signer(session_id)
        _insert(connection, [("session", row) for row in about.items()], sign)
        # Nobody else writes here, so the kernels of executions without an end are dead.
        died = execute("SELECT seq FROM executions EXCEPT SELECT seq FROM endings").fetchall()
        how = rows.ExceptionInfo(DIED, "the kernel died while this ran; its output was not kept", "")
        ended = rows.Execution("", "", None, 0.0, None, "cancelled", exception=how)
        _insert(connection, [("endings", rows.ending_row(seq, ended, row_masking.unmasked)) for (seq,) in died], sign)
        last = "(SELECT max(run) FROM runs), (SELECT max(idx) FROM statements), (SELECT max(seq) FROM executions)"
        found = [value or 0 for value in execute(f"SELECT {last}").fetchone()]
        if not all(type(value) is int and 0 <= value < schema.MOST for value in found):
            raise StoreError("its rows have other numbers than a ctxkernel gives")
        last_run, last_index, last_seq = found
        run = last_run + 1
        strange = not start.signer.fault and not _are_signed(connection, sign)
        _insert(
            connection,
            [("runs", (run, start.now, start.notebook, None, row_masking.dump_json(start.environment)))],
            sign,
        )
    notices = [f"The session {path} {_STRANGE}"] if strange else []
    return OpenLog(connection, path, lock, session_id, run, last_index, last_seq, notices, alarming=strange)


_STRANGE = (
    "has rows of somebody else, or of an older ctxkernel that did not sign them: nothing of it is resumed, replayed or "
    "loaded unless you say that you trust it (%ctx trust)."
)


def _are_signed(connection: sqlite3.Connection, sign: RowSigner) -> bool:
    """Return whether this user signed the rows of all kernel starts."""
    found = connection.execute(f"SELECT {', '.join(schema.COLUMNS['runs'])} FROM runs").fetchall()
    return all(mac is not None and mac == sign("runs", tuple(row)) for *row, _, mac in found)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Commit what is done inside, or undo it if it raises."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:  # an interrupt too: the next call must find no open transaction
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def session_id_of(connection: sqlite3.Connection) -> str:
    """Return the id of a session. Raises StoreError if it has no id of ours: it names a folder."""
    found = _about(connection, "id")
    if not is_session_id(found):
        raise StoreError("its id is not one that a ctxkernel gives")
    return found


def _insert(connection: sqlite3.Connection, made: rows.Rows, sign: RowSigner) -> None:
    for table, row in rows.with_signature(made, sign).rows:
        connection.execute(schema.INSERT[table], row)
