"""Migrations from an older schema to this one, step by step.

Rule 1: A step goes from version n to n + 1 and never changes after its release.
Rule 2: All steps run in one transaction: a session has the old version or the new one.
Rule 3: Only the writer migrates.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from ctxkernel.core.errors import StoreError
from ctxkernel.store.log import schema

Step = Callable[[sqlite3.Connection], None]


def _checkpoints(connection: sqlite3.Connection) -> None:
    """Replace the tables of checkpoints: version 1 had them in another form, and wrote no row."""
    tables = {
        "checkpoints": "seq INTEGER PRIMARY KEY, checkpoint_id TEXT, at REAL, format INTEGER, manifest TEXT,"
        " bytes INTEGER, time_ms REAL, signature TEXT, hash INTEGER NOT NULL",
        "checkpoint_states": "id INTEGER PRIMARY KEY, checkpoint_id TEXT, at REAL, state TEXT, reason TEXT,"
        " results TEXT, signature TEXT, hash INTEGER NOT NULL",
    }
    for name, columns in tables.items():
        connection.execute(f"DROP TABLE {name}")  # and its triggers
        connection.execute(f"CREATE TABLE {name} ({columns})")
        schema.freeze(connection, name)


STEPS: dict[int, Step] = {1: _checkpoints}
"""`STEPS[n]` migrates version n to version n + 1. Version 1 is the first."""


def unreadable(version: int) -> frozenset[str]:
    """Return the tables without rows in a session of an older version: those that a step replaces."""
    return frozenset({"checkpoints", "checkpoint_states"}) if version < 2 else frozenset()


def version_of(connection: sqlite3.Connection) -> int | None:
    """Return the schema version of a session, None for an empty database.

    Raises StoreError for the database of another program, and for a newer version than this ctxkernel knows.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != schema.APPLICATION_ID:
        if application == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            return None
        raise StoreError("it is the database of another program")
    if version > schema.VERSION:
        raise StoreError(f"its schema is {version}, this ctxkernel knows {schema.VERSION}; upgrade jupyter-ctxkernel")
    return version


def bring_up(connection: sqlite3.Connection) -> bool:
    """Create the tables, or migrate them, in the caller's transaction. Return whether the session is new."""
    version = version_of(connection)
    if version is None:
        schema.create(connection)
        return True
    for step in range(version, schema.VERSION):
        STEPS[step](connection)
        connection.execute(f"PRAGMA user_version = {step + 1}")
    return False
