"""The file that a session's reader opens: ways to open it, snapshots, rows with their checksums.

Rule 1: Nothing is written and no lock is taken, in whatever state the file and its folder are.
Rule 2: A row whose checksum is wrong is returned, and named in `damage`.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Self

from ctxkernel.core.errors import StoreError
from ctxkernel.store.log import schema
from ctxkernel.store.log.location import CHECK
from ctxkernel.store.log.rows import with_checksum

Found = dict[str, Any]


class SessionFile:
    """A session file, open for reading. A context manager; raises StoreError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[str] = []
        """The rows with a wrong checksum that were read: `table seq`."""
        if not path.is_file():
            raise StoreError(f"{path}: there is no such session; run the notebook on the ctxkernel first")
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._empty: frozenset[str] = frozenset()
        """Tables that have another form in a session of an older version, and no rows."""
        self.connection = self._connect()
        weakref.finalize(self, self.connection.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _connect(self) -> sqlite3.Connection:
        wal = self.path.with_name(self.path.name + "-wal")
        fault: Exception | None = None
        # To read beside a writer uses its shared memory, which needs a writable folder. In another folder, a log that
        # nobody has open is read directly, else a copy of it in a temporary folder.
        for options in ("mode=ro", "mode=ro&immutable=1", ""):
            if "immutable" in options and wal.is_file() and wal.stat().st_size:
                continue
            with contextlib.ExitStack() as closing:
                try:
                    connection = _open(self.path, options) if options else self._copied(wal)
                    closing.callback(connection.close)
                    self._check(connection)
                except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
                    fault = fault or error
                else:
                    closing.pop_all()
                    return connection
        raise StoreError(f"{self.path} cannot be read as a session ({fault}); `{CHECK} {self.path}` says more")

    def _check(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = _decoded
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            version = schema.version_of(connection)
        except StoreError as error:
            raise StoreError(f"{self.path} is no session that can be read here: {error}") from None
        if version is None:
            raise StoreError(f"{self.path} is empty: no kernel has begun to write it")
        self._empty = schema.unreadable(version)

    def _copied(self, wal: Path) -> sqlite3.Connection:
        self._scratch = tempfile.TemporaryDirectory(prefix="ctxkernel-read-")
        copy = Path(self._scratch.name) / "session.sqlite"
        for _ in range(5):
            before = _stamp(wal)
            if wal.is_file():
                shutil.copyfile(wal, copy.with_name(copy.name + "-wal"))
            shutil.copyfile(self.path, copy)
            if _stamp(wal) == before:  # else it changed meanwhile, and the two files may not match
                break
        return _open(copy, "mode=rw")

    @contextlib.contextmanager
    def snapshot(self) -> Generator[None]:
        """Read one state of the log inside. Raises StoreError for errors of SQLite."""
        if self.connection.in_transaction:
            yield
            return
        try:
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.execute("ROLLBACK")
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter if a message of SQLite quotes damaged text
            raise StoreError(f"{self.path} cannot be read ({error}); `{CHECK} {self.path}` says more") from error

    def rows(self, table: str, where: str = "1", *values: schema.Value) -> list[Found]:
        """Return rows by column name, with their lone surrogates, and note those with a wrong checksum in `damage`."""
        return list(self.each(table, where, *values))

    def each(self, table: str, where: str = "1", *values: schema.Value) -> Iterator[Found]:
        """Yield the rows that `rows` returns, one by one."""
        if table in self._empty:
            return
        columns = schema.COLUMNS[table]
        names = (*columns, "id") if table in schema.COUNTED else columns
        for raw in self.connection.execute(f"SELECT {', '.join(names)} FROM {table} WHERE {where}", values):
            row: tuple[Any, ...] = raw
            if bytes in map(type, raw):
                row = tuple([_decoded(value) if isinstance(value, bytes) else value for value in raw])
            found = dict(zip(names, row, strict=True))
            *stored, checksum = row[: len(columns)]
            if with_checksum([(table, tuple(stored))]).rows[0][1][-1] != checksum:
                self.damage.append(f"{table} {row[0]}")
            yield found

    def select(self, query: str, *values: schema.Value) -> list[tuple[Any, ...]]:
        """Return the rows of a query as they are. Raises sqlite3.Error."""
        return self.connection.execute(query, values).fetchall()

    def told(self, table: str, row: Found) -> tuple[str, ...]:
        """Return the notice of a row whose checksum was wrong when it was read; none for a sound one."""
        named = f"{table} {next(iter(row.values()))}"
        return (f"the stored row ({named}) does not match its checksum",) if named in self.damage else ()


def _open(path: Path, options: str) -> sqlite3.Connection:
    # The garbage collector may close it, on whatever thread it runs.
    address = f"{path.absolute().as_uri()}?{options}"
    return sqlite3.connect(address, uri=True, isolation_level=None, timeout=5, check_same_thread=False)


def _decoded(raw: bytes) -> str:
    """Decode a text column. Other text than UTF-8 with surrogates is damaged, and its checksum is wrong."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


def _stamp(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    return None
