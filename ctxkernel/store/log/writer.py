"""The file under a session's writer: transactions, what waits while they fail, and where the file went.

Rule 1: no fault of disk or file reaches the caller: `write` returns a notice for the user, or None.
Rule 2: batches are written in order and whole. While the file cannot be written they wait in memory, up to a bound;
        so the file is always a prefix of what happened.
Rule 3: the caller's thread never waits for the disk to be in step (an fsync): that is done on a thread beside it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ctxkernel.store.log import opening
from ctxkernel.store.log.rows import Row
from ctxkernel.store.log.schema import INSERT, Value, sealed

Batch = list[tuple[str, list[Row]]]
"""Rows of one transaction by table, with their checksums."""

SPARE = frozenset({"checkpoints", "checkpoint_states", "divergences", "marks"})
"""Tables whose rows are given up where a batch cannot be stored with them: that a turn ended is worth more."""
_OURS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError, OverflowError)
"""Faults of a value, not of the disk: trying again would not help, and would keep out all that follows."""
_CHECKPOINT_BYTES = 4 * 1024 * 1024
_PAGE = 4096
_WAITING_BYTES = 64 * 1024 * 1024


def add(batch: Batch, table: str, made: Sequence[Row]) -> None:
    """Add rows, sealed here, to a batch."""
    if made:
        batch.append((table, list(map(sealed, made))))


class Writer:
    """The one connection that writes a session."""

    def __init__(self, place: opening.Place, on_loss: Callable[[Batch], None]) -> None:
        self.path = place.path
        self.notice: str | None = None
        """What is wrong with the file now, or None."""
        self._on_loss = on_loss
        self._connection: sqlite3.Connection | None = place.connection
        self._lock = place.lock
        self._identity = _identity(place.path)
        self._pid = os.getpid()
        self._waiting: deque[Batch] = deque()
        self._waiting_bytes = 0
        self._failing = False
        self._given_up = False
        self._growth = 0
        self._checkpointer: threading.Thread | None = None
        self._grown: SimpleQueue[Path | None] = SimpleQueue()

    @property
    def absent(self) -> bool:
        """Whether there is nothing to write to: it is closed, or this is a forked child of the kernel."""
        return self._connection is None or os.getpid() != self._pid

    @property
    def waits(self) -> bool:
        """Whether something is not in the file yet."""
        return bool(self._waiting)

    @property
    def name(self) -> str:
        """What notices call the session."""
        return str(self.path) if self.path is not None else "in memory"

    def select(self, query: str, *values: Value) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Raises sqlite3.Error."""
        assert self._connection is not None
        return self._connection.execute(query, values).fetchall()

    def write(self, batch: Batch, *, retry: bool = False) -> str | None:
        """Commit `batch` after what waits. Where some waits and no `retry` is due, it waits too. Returns a notice."""
        if not batch or self._given_up or self.absent:
            return None
        held = bool(self._waiting)
        self._waiting.append(batch)
        if held:
            self._waiting_bytes += _size(batch)
            if not retry:
                return self._bounded()
        return self._flush()

    def _flush(self) -> str | None:
        lost: str | None = None
        while self._waiting:
            try:
                self._commit(self._waiting[0])
            except _OURS as fault:
                lost = both(lost, self._give_up(fault))
                if self._waiting[0]:
                    continue
            except sqlite3.Error as fault:
                return self._hold(fault)
            self._waiting.popleft()
        self._waiting_bytes = 0
        if self._failing:
            self._failing, self.notice = False, None
            return both(f"The session {self.name} is written again; nothing was lost.", lost)
        return lost

    def _give_up(self, fault: Exception) -> str:
        """Take the rows that may be at fault off the batch that waits first: those of SPARE tables, else all."""
        batch = self._waiting[0]
        rest = [part for part in batch if part[0] not in SPARE]
        rest = rest if len(rest) < len(batch) else []
        self._waiting[0] = rest
        self._on_loss([part for part in batch if part[0] in SPARE] if rest else batch)
        return self.lost("a turn", fault) if not rest else self.lost("what a return needs of a turn", fault)

    def _commit(self, batch: Batch) -> None:
        try:
            self._insert(batch)
        except UnicodeEncodeError:  # from the start: some rows of the table at fault are in already
            self._insert([(table, [tuple(map(_storable, row)) for row in made]) for table, made in batch])
        self._growth += _PAGE * (len(batch) + 2) + _size(batch)
        if self._growth > _CHECKPOINT_BYTES:
            self._checkpoint_beside()

    def _insert(self, batch: Sequence[tuple[str, Sequence[tuple[Any, ...]]]]) -> None:
        """Insert all rows in one transaction, or none."""
        connection = self._connection
        assert connection is not None
        execute = connection.cursor().execute  # `executemany` costs more where most tables get one row
        try:
            execute("BEGIN IMMEDIATE")
            for table, made in batch:
                insert = INSERT[table]
                for row in made:
                    execute(insert, row)
            execute("COMMIT")
        except BaseException:  # an interrupt too: the next call must find no open transaction
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            raise

    def _hold(self, fault: sqlite3.Error) -> str | None:
        """Keep what waits until the file can be written."""
        if not self._failing:
            self._failing = True
            self._waiting_bytes = sum(map(_size, self._waiting))
            self.notice = (
                f"The session {self.name} cannot be written ({fault}). What happens is kept in memory until it can; "
                "free some space, or mend the folder, and run a cell."
            )
            return both(self.notice, self._bounded())
        return self._bounded()

    def _bounded(self) -> str | None:
        if self._waiting_bytes <= _WAITING_BYTES:
            return None
        self._waiting.clear()
        self._given_up = True
        self.notice = (
            f"The session {self.name} could not be written for so long that it ends where it failed; "
            "restart the kernel to begin a new one."
        )
        return self.notice

    def lost(self, what: str, fault: Exception) -> str:
        """Return the notice that something could not be stored, through a fault of ours."""
        return f"Not all of {what} was stored in the session {self.name} ({type(fault).__name__}: {fault})."

    def see_to_file(self) -> str | None:
        """Write the log anew where its file was deleted or replaced under it (`git clean -x` does)."""
        if self._identity is None or self.path is None or self.absent or _identity(self.path) == self._identity:
            return None
        assert self._connection is not None
        old = self.path
        try:
            connection, self.path, lock = opening.move(self._connection, old)
        except Exception as error:  # whatever it is, the cell must run
            self._identity = None
            self.notice = f"The session {old} was deleted while the kernel ran, and cannot be written anew ({error})."
            return self.notice
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        if self._lock is not None:
            self._lock.release()
        self._connection, self._lock, self._identity = connection, lock, _identity(self.path)
        return f"The session {old} was deleted while the kernel ran; all of it was written anew to {self.path}."

    def close(self) -> None:
        """Write what waits, fold the write-ahead log into the file, and let the file go."""
        if self.absent:
            return
        if self._waiting:
            self._flush()
        if self._checkpointer is not None and self._checkpointer.is_alive():
            self._grown.put(None)
            self._checkpointer.join(5)
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        if self._lock is not None:
            self._lock.release()

    def _checkpoint_beside(self) -> None:
        """Move the write-ahead log into the file on a thread of its own: it waits for the disk, and no cell should."""
        self._growth = 0
        if self.path is None:
            return
        if self._checkpointer is None:  # one that lives on: starting a thread takes as long as a hundred commits
            make = threading.Thread
            self._checkpointer = make(target=_fold, args=(self._grown,), name="ctxkernel-store", daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads: SQLite does it itself, later
                self._checkpointer.start()
        self._grown.put(self.path)


def _fold(grown: SimpleQueue[Path | None]) -> None:
    while (path := grown.get()) is not None:
        with contextlib.suppress(sqlite3.Error, OSError):
            uri = path.absolute().as_uri() + "?mode=rw"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def both(one: str | None, other: str | None) -> str | None:
    """Return two notices as one."""
    return f"{one} {other}" if one and other else one or other


def _size(batch: Batch) -> int:
    return sum([len(value) for _, made in batch for row in made for value in row if type(value) is str])


def _storable(value: Value) -> Value | bytes:
    """Return a text that UTF-8 cannot hold (lone surrogates) as bytes, and any other value as it is."""
    if not isinstance(value, str):
        return value
    raw = value.encode("utf-8", "surrogatepass")
    return value if raw.decode("utf-8", "replace") == value else raw


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Return what tells a file from another of the same name; None where there is none, or none can be deleted."""
    if path is None or os.name == "nt":
        return None
    try:
        found = os.stat(path)  # noqa: PTH116 - a third of the time, at every cell
    except OSError:
        return None
    return found.st_dev, found.st_ino
