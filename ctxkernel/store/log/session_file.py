"""The file that a session's reader opens: ways to open it, snapshots, rows with their checksums.

Rule 1: Nothing is written and no lock is taken, in whatever state the file and its folder are.
Rule 2: A row whose checksum is wrong is returned, and named in `damage`. So is one with a value of another type than
        its column has, which an empty one replaces: whoever wrote the file, a value has the type of its column.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import one_line
from ctxkernel.store.lock import has_locks
from ctxkernel.store.log import schema
from ctxkernel.store.log.location import CHECK, sidecars
from ctxkernel.store.log.rows import with_signature
from ctxkernel.store.regular_files import why_foreign
from ctxkernel.store.signatures import RowSigner, unsigned

LogRow = dict[str, Any]
UNSIGNED = ("session", "blocks")
"""Tables without signatures: the session's id is in every signature, and a text has its hash as address."""


class SessionFile:
    """A session file, open for reading. A context manager; raises StoreError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[str] = []
        """The rows with a wrong checksum, or values of other types, that were read: `table seq`."""
        self.unsigned = 0
        """The number of rows that were read and are not signed by this user."""
        self.sign: RowSigner = unsigned
        """Signs a row of this session as this user's."""
        if not path.is_file():
            raise StoreError(f"{path}: there is no such session; run the notebook on the ctxkernel first")
        for one in (path, *sidecars(path)):
            if why := why_foreign(one):
                raise StoreError(f"{one} is not read: {why}")
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._version = schema.VERSION
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
        # Without locks SQLite would wait for them.
        first = "mode=ro" if has_locks(self.path) else "mode=ro&nolock=1"
        for options in (first, "mode=ro&immutable=1", ""):
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
        self._version, self._empty = version, schema.unreadable(version)

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

    def rows(self, table: str, where: str = "1", *values: schema.ColumnValue) -> list[LogRow]:
        """Return rows by column name, `id`, `signed` (by this user) and `damaged`. Note damaged ones in `damage`."""
        return list(self.each(table, where, *values))

    def each(self, table: str, where: str = "1", *values: schema.ColumnValue) -> Iterator[LogRow]:
        """Yield the rows that `rows` returns, one by one."""
        if table in self._empty:
            return
        columns = schema.COLUMNS[table][: None if self._version > 2 else -1]
        counted = ("id",) if table in schema.COUNTED else ()
        query = f"SELECT {', '.join((*columns, *counted))} FROM {table} WHERE {where}"
        names, sealed = schema.COLUMNS[table][:-2], len(schema.COLUMNS[table]) - 2
        for raw in self.connection.execute(query, values):
            row, faults = typed(table, raw[:sealed])
            *_, checksum, mac = with_signature([(table, row)], self.sign).rows[0][1]
            found = dict(zip(names, row, strict=True))
            if counted:
                found["id"] = raw[-1]
            found["damaged"] = bool(faults) or checksum != raw[sealed]
            if found["damaged"]:
                self.damage.append(f"{table} {one_line(str(row[0]), 80)}")
            signed = self._version > 2 and mac is not None and mac == raw[sealed + 1]
            found["signed"] = signed or table in UNSIGNED
            self.unsigned += not found["signed"]
            yield found

    def select(self, query: str, *values: schema.ColumnValue) -> list[tuple[Any, ...]]:
        """Return the rows of a query as they are. Raises sqlite3.Error."""
        return self.connection.execute(query, values).fetchall()

    def told(self, table: str, row: LogRow) -> tuple[str, ...]:
        """Return the notice of a row whose checksum was wrong when it was read; none for a sound one."""
        if not row["damaged"]:
            return ()
        return (f"the stored row ({table} {one_line(str(next(iter(row.values()))), 80)}) does not match its checksum",)


def typed(table: str, raw: Sequence[Any]) -> tuple[tuple[schema.ColumnValue, ...], list[str]]:
    """Return the values of a row with the types of its columns, and the columns that had another type or are too large.

    Those are empty instead.
    """
    kinds = tuple(map(type, raw))
    if kinds in _SOUND[table] and all(abs(raw[at]) < schema.LAST_TIME for at in _SOUND[table][kinds]):
        return tuple(raw), []
    row, faults = list[schema.ColumnValue](), list[str]()
    for found, (name, kind, instead, bound, nullable) in zip(raw, _CHECKS[table], strict=True):
        value: Any = _decoded(found) if isinstance(found, bytes) else found
        if nullable if value is None else type(value) is kind and (kind is str or abs(value) < bound):
            row.append(value)
        else:
            faults.append(name)
            row.append(instead)
    if not faults and bytes not in kinds:
        _SOUND[table][kinds] = [at for at, kind in enumerate(kinds) if kind is float]
    return tuple(row), faults


_KINDS: dict[str, tuple[type, schema.ColumnValue, float]] = {
    "TEXT": (str, "", 0.0),
    "INTEGER": (int, 0, math.inf),
    "REAL": (float, 0.0, schema.LAST_TIME),
}
_CHECKS = {
    table: [(name, *_KINDS[types[name]], name in schema.NULLABLE.get(table, ())) for name in schema.COLUMNS[table][:-2]]
    for table, types in schema.TYPES.items()
}
"""By table, the checks of each column: name, type, the value instead, the bound of a number, whether it may be null."""
_SOUND: dict[str, dict[tuple[type, ...], list[int]]] = {table: {} for table in schema.TYPES}
"""By table, the types of rows that were read and had no fault → the columns whose bound is to be checked."""


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
