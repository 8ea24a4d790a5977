"""The user's word of trust in a session: the signatures of its rows.

Rule 1: Only the user may ask for it: a trusted state is a pickle, and loading a pickle runs code.
Rule 2: A row whose checksum is wrong stays unsigned.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from ctxkernel.core.errors import StoreError
from ctxkernel.store.lock import SessionLock, holder
from ctxkernel.store.log import location, opening, rows, schema
from ctxkernel.store.log.session_file import typed
from ctxkernel.store.regular_files import ForeignFileError
from ctxkernel.store.signatures import Signer, signer, unsigned


def sign_session(path: Path, user: Signer | None = None, *, revoke: bool = False) -> int:
    """Sign all rows of a session with the user's secret, or take all signatures back. Return the number of rows.

    Raises StoreError if a kernel uses the session, if it cannot be written or is no session, or without a secret.
    """
    user = user or signer()
    lock: SessionLock | None = None
    try:
        if not path.is_file():
            raise StoreError("there is no such file")
        lock = SessionLock.take(path)
        if lock is None:
            told = f"a kernel uses it ({holder(path) or 'of an unknown process'})"
            raise StoreError(f"{told}; run %ctx trust in that kernel, or shut it down")
        location.prepare_file(path)
        with contextlib.closing(opening.connect(path, lock)) as connection, opening.transaction(connection):
            schema.bring_up(connection)
            return sign_rows(connection, opening.session_id_of(connection), user, revoke=revoke)
    except (sqlite3.Error, OSError, StoreError) as fault:
        why = fault.strerror if isinstance(fault, ForeignFileError) else str(fault)
        raise StoreError(f"{path} cannot be {'untrusted' if revoke else 'trusted'}: {why}") from None
    finally:
        if lock is not None:
            lock.release()


def sign_rows(connection: sqlite3.Connection, session_id: str, user: Signer, *, revoke: bool = False) -> int:
    """Sign all rows, or take all signatures back, in the caller's transaction; return the number of rows changed.

    Raises StoreError without a secret, sqlite3.Error.
    """
    if user.fault and not revoke:
        raise StoreError(user.fault)
    sign = unsigned if revoke else user.row_signer(session_id)
    changed = 0
    for table in schema.TABLES:
        if table == "blocks":
            continue
        keys, columns = schema.KEYS[table], schema.COLUMNS[table]
        query = f"SELECT {', '.join((*keys, *columns))} FROM {table}"
        update = f"UPDATE {table} SET mac = ? WHERE {' AND '.join(f'{key} = ?' for key in keys)}"
        made: list[tuple[schema.ColumnValue, ...]] = []
        for found in connection.execute(query):
            key, (*values, checksum, before) = found[: len(keys)], found[len(keys) :]
            row, faults = typed(table, values)
            *_, proper, mac = rows.with_signature([(table, row)], sign).rows[0][1]
            if revoke or (proper == checksum and not faults and mac != before):
                made.append((mac, *key))
        connection.executemany(update, made)
        changed += len(made)
    return changed
