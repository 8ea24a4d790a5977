"""The file that a session's writer appends to: transactions, batches that wait while they fail, a lost file.

Rule 1: No fault of disk or file reaches the caller: `write` returns a notice for the user, or None.
Rule 2: Batches are written whole and in order. While the file cannot be written they wait in memory, up to a limit,
        so the file is always a prefix of the events.
Rule 3: The caller's thread never waits for an fsync: a background thread does that.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ctxkernel.core.errors import StoreError
from ctxkernel.store.log import opening, signing
from ctxkernel.store.log.rows import Batch, Rows
from ctxkernel.store.log.schema import INSERT, ColumnValue
from ctxkernel.store.signatures import Signer

SPARE = frozenset({"checkpoints", "checkpoint_states", "divergences", "marks"})
"""Tables whose rows are dropped if a batch cannot be stored with them: the end of a turn matters more."""
_VALUE_FAULTS = (
    *(sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError),
    OverflowError,
)
"""Faults of a value, not of the disk: a retry would fail again, and would keep out all later batches."""
_CHECKPOINT_BYTES = 4 * 1024 * 1024
_PAGE = 4096
_WAITING_BYTES = 64 * 1024 * 1024


class Writer:
    """The one connection that writes a session. A caller checks `absent` before it calls `write`."""

    def __init__(self, place: opening.OpenLog, on_loss: Callable[[Rows], None]) -> None:
        self.path = place.path
        self.notice: str | None = None
        """The present fault of the file, or None."""
        self._on_loss = on_loss
        self._connection: sqlite3.Connection | None = place.connection
        self._lock = place.lock
        self._identity = _identity(place.path)
        self._pid = os.getpid()
        self._waiting: deque[Batch] = deque()
        self._failing = False
        self._given_up = False
        self._growth = 0
        self._checkpointer: threading.Thread | None = None
        self._grown: SimpleQueue[Path | None] = SimpleQueue()

    @property
    def absent(self) -> bool:
        """Return whether nothing can be written: the session is closed, or this is a forked child of the kernel."""
        return self._connection is None or os.getpid() != self._pid

    @property
    def name(self) -> str:
        """The name of the session in notices."""
        return str(self.path) if self.path is not None else "in memory"

    def select(self, query: str, *values: ColumnValue) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Raises sqlite3.Error."""
        assert self._connection is not None
        return self._connection.execute(query, values).fetchall()

    def find(self, query: str, *values: ColumnValue) -> list[tuple[Any, ...]]:
        """Return the rows of a query; none if the session is closed or cannot be read."""
        with contextlib.suppress(sqlite3.Error):
            return [] if self.absent else self.select(query, *values)
        return []

    def write(self, batch: Batch, *, retry: bool = False) -> str | None:
        """Commit `batch` after those that wait. If some wait and `retry` is false, it waits too. Return a notice."""
        if self._given_up:
            return None
        if batch.rows:
            self._waiting.append(batch)
        if len(self._waiting) > 1 and not retry:
            return self._limit_waiting()
        lost: str | None = None
        while self._waiting:
            batch = self._waiting[0]
            try:
                self._insert(batch)
            except UnicodeEncodeError:
                rows: Any = [(table, tuple(map(_storable, row))) for table, row in batch.rows]
                self._waiting[0] = batch._replace(rows=rows)
                continue
            except _VALUE_FAULTS as fault:
                lost = both(lost, self._drop_rows(fault))
                if self._waiting[0].rows:
                    continue
            except sqlite3.Error as fault:
                return self._hold(fault)
            self._waiting.popleft()
        if self._failing:
            self._failing, self.notice = False, None
            return both(f"The session {self.name} is written again; nothing was lost.", lost)
        return lost

    def sign_rows(self, session_id: str, user: Signer, *, revoke: bool = False) -> str | None:
        """Sign all rows with the user's secret, or take all signatures back. Return a notice."""
        try:
            assert self._connection is not None
            with opening.transaction(self._connection):
                signing.sign_rows(self._connection, session_id, user, revoke=revoke)
        except (sqlite3.Error, StoreError) as fault:
            return f"The session {self.name} cannot be {'untrusted' if revoke else 'trusted'}: {fault}."
        return None

    def _drop_rows(self, fault: Exception) -> str:
        """Take the rows that may be at fault out of the first batch: those of SPARE tables, else all."""
        batch = self._waiting[0]
        spare = [row for row in batch.rows if row[0] in SPARE]
        rest = [row for row in batch.rows if row[0] not in SPARE] if spare else []
        self._waiting[0] = batch._replace(rows=rest)
        self._on_loss(spare if rest else batch.rows)
        return self.lost("the data that a return to a turn needs" if rest else "a turn", fault)

    def _insert(self, batch: Batch) -> None:
        """Insert all rows in one transaction, or none."""
        connection = self._connection
        assert connection is not None
        execute = connection.cursor().execute
        with opening.transaction(connection):
            for table, row in batch.rows:
                execute(INSERT[table], row)
        self._growth += _PAGE * (len(dict(batch.rows)) + 2) + batch.nbytes
        if self._growth > _CHECKPOINT_BYTES:
            self._start_checkpoint()

    def _hold(self, fault: sqlite3.Error) -> str | None:
        """Keep the batches that wait until the file can be written."""
        told: str | None = None
        if not self._failing:
            self._failing = True
            told = self.notice = (
                f"The session {self.name} cannot be written ({fault}). New turns are kept in memory until it can be; "
                "free some disk space or repair the folder, then run a cell."
            )
        return both(told, self._limit_waiting())

    def _limit_waiting(self) -> str | None:
        if sum(batch.nbytes for batch in self._waiting) <= _WAITING_BYTES:
            return None
        self._waiting.clear()
        self._given_up = True
        self.notice = (
            f"The session {self.name} could not be written for so long that it ends where it failed; "
            "restart the kernel to begin a new one."
        )
        return self.notice

    def lost(self, what: str, fault: Exception) -> str:
        """Return the notice that `what` could not be stored because of an internal error."""
        return f"Not all of {what} was stored in the session {self.name} ({type(fault).__name__}: {fault})."

    def ensure_file(self) -> str | None:
        """Write the log to a new file if its file was deleted or replaced (as by `git clean -x`). Return a notice."""
        if self._identity is None or self.path is None or _identity(self.path) == self._identity:
            return None
        assert self._connection is not None
        old = self.path
        try:
            connection, self.path, lock = opening.move(self._connection, old)
        except Exception as error:  # whatever it is, the cell must run
            self._identity = None
            self.notice = f"The session {old} was deleted while the kernel ran, and cannot be written anew ({error})."
            return self.notice
        self._release()
        self._connection, self._lock, self._identity = connection, lock, _identity(self.path)
        return f"The session {old} was deleted while the kernel ran; all of it was written anew to {self.path}."

    def close(self) -> None:
        """Write the batches that wait, move the write-ahead log into the file, and close the file."""
        if self.absent:
            return
        self.write(Batch([], 0), retry=True)
        if self._checkpointer is not None and self._checkpointer.is_alive():
            self._grown.put(None)
            self._checkpointer.join(5)
        self._release()

    def _release(self) -> None:
        """Close the connection and release the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        if self._lock is not None:
            self._lock.release()

    def _start_checkpoint(self) -> None:
        """Move the write-ahead log into the file on a thread: the move waits for the disk, and no cell may."""
        self._growth = 0
        if self.path is None:
            return
        if self._checkpointer is None:  # it is kept: starting a thread takes as long as a hundred commits
            name = "ctxkernel-store"
            self._checkpointer = threading.Thread(target=_checkpoint_loop, args=(self._grown,), name=name, daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads: SQLite does it itself, later
                self._checkpointer.start()
        self._grown.put(self.path)


def _checkpoint_loop(grown: SimpleQueue[Path | None]) -> None:
    while (path := grown.get()) is not None:
        with contextlib.suppress(sqlite3.Error, OSError):
            uri = path.absolute().as_uri() + "?mode=rw"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def both(one: str | None, other: str | None) -> str | None:
    """Return two notices as one."""
    return f"{one} {other}" if one and other else one or other


def _storable(value: ColumnValue) -> ColumnValue | bytes:
    """Return a text that UTF-8 cannot hold (lone surrogates) as bytes, and any other value as it is."""
    if not isinstance(value, str):
        return value
    raw = value.encode("utf-8", "surrogatepass")
    return value if raw.decode("utf-8", "replace") == value else raw


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Return device and inode of a file; None if it does not exist, or on Windows, where open files stay."""
    if path is None or os.name == "nt":
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
