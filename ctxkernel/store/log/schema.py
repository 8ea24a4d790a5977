"""The tables of a session, their version, and migrations from older ones. For users: `docs/schemas.md`.

Rule 1: History is append-only. Every table refuses UPDATE and DELETE; a later fact is a later row.
Rule 2: `hash` is a checksum of all columns of its row except `id` and `hash`, in the order of this module: SQLite's own
        integrity check does not find a flipped byte inside a value.
Rule 3: A change here is a new VERSION and a step in STEPS, which never changes after its release.
Rule 4: Only the writer migrates. All steps run in one transaction: a session has the old version or the new one.
An execution is named by `seq`; its public id is in `executions`. Times are Unix seconds (UTC). JSON is stored as text.
A text that UTF-8 cannot hold (a lone surrogate) is stored as a BLOB.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from ctxkernel.core.errors import StoreError

APPLICATION_ID = 0x6374786B  # "ctxk"
VERSION = 2

Value = str | int | float | None
"""The type of a value in a row."""

TABLES: dict[str, str] = {
    # The id, created_at and notebook of the session. Written once.
    "session": "key TEXT PRIMARY KEY, value TEXT",
    # Kernel starts. Each is a new root, unless it resumed after the execution `resumed_from`.
    "runs": "run INTEGER PRIMARY KEY, started_at REAL, notebook TEXT, resumed_from TEXT, environment TEXT",
    "statements": """idx INTEGER PRIMARY KEY, statement_id TEXT, run INTEGER, timestamp REAL, source TEXT, kind TEXT,
        author TEXT, parent_id TEXT, cell_id TEXT, tags TEXT, fingerprint TEXT""",
    # An execution's start, written before its code runs …
    "executions": """seq INTEGER PRIMARY KEY, execution_id TEXT UNIQUE, idx INTEGER, parent_execution_id TEXT,
        run INTEGER, started_at REAL""",
    # … and its end, with that of its turn. Missing while it runs, or if its kernel died and none was started since.
    # `nodes_base`: see node_states; `deltas`: the delta feed.
    "endings": """seq INTEGER PRIMARY KEY, ended_at REAL, status TEXT, stdout TEXT, stderr TEXT, exception TEXT,
        state_diff TEXT, cost TEXT, cut TEXT, notices TEXT, turn_id INTEGER, nodes_base INTEGER, deltas TEXT""",
    # `own` is 1 for an event of the execution, 0 for one of the turn only (its tick).
    "events": "seq INTEGER, n INTEGER, own INTEGER, type TEXT, obj_id TEXT, body TEXT, PRIMARY KEY (seq, n)",
    # `block` addresses the payload, as JSON.
    "artifacts": """seq INTEGER, n INTEGER, kind TEXT, name TEXT, mime TEXT, size INTEGER, sha TEXT, block TEXT,
        PRIMARY KEY (seq, n)""",
    # Handles that changed: the handles after execution e are those after e.nodes_base (none if that is e itself), with
    # the rows of e applied in order. A row without state removes the handle.
    "node_states": """seq INTEGER, n INTEGER, obj_id TEXT, name TEXT, state TEXT, block TEXT, PRIMARY KEY (seq, n)""",
    # Texts by content, each once: renderings, blocks of projections, payloads.
    "blocks": "id INTEGER PRIMARY KEY, address TEXT UNIQUE, text TEXT",
    # `record` is a delta to the projection of `base` (see `rows.compress`), or whole if base is null.
    "projections": "seq INTEGER PRIMARY KEY, base INTEGER, receipt TEXT, tokens INTEGER, ok INTEGER, record TEXT",
    # Moves of HEAD, to an execution or (null) before all. The newest of a run is its HEAD.
    "heads": "id INTEGER PRIMARY KEY, run INTEGER, at REAL, execution_id TEXT, reason TEXT",
    # Output that came after the end of its execution, in order.
    "late_output": "seq INTEGER, n INTEGER, stream TEXT, text TEXT, PRIMARY KEY (seq, n)",
    # Notices to the user about this session.
    "notices": "id INTEGER PRIMARY KEY, run INTEGER, at REAL, execution_id TEXT, text TEXT",
    # States to return to; their data are in the user's cache folder. `signature` covers session, checkpoint_id,
    # manifest and format: see trust.py.
    "checkpoints": """seq INTEGER PRIMARY KEY, checkpoint_id TEXT, at REAL, format INTEGER, manifest TEXT,
        bytes INTEGER, time_ms REAL, signature TEXT""",
    # The state of a checkpoint; the newest row counts, and a checkpoint without a row is durable. `results` are those
    # of background jobs, signed too.
    "checkpoint_states": """id INTEGER PRIMARY KEY, checkpoint_id TEXT, at REAL, state TEXT, reason TEXT, results TEXT,
        signature TEXT""",
    # Marks of a subject: the name of a state, cells that are expected to differ, settings, executions that only moved
    # HEAD. The newest row of (subject, mark) counts; a null value takes it back.
    "marks": "id INTEGER PRIMARY KEY, run INTEGER, at REAL, subject TEXT, mark TEXT, value TEXT",
    # The comparison of a re-run with the execution `against`: a row `same` or `differs`, then one for each difference.
    "divergences": "id INTEGER PRIMARY KEY, seq INTEGER, against INTEGER, kind TEXT, subject TEXT, body TEXT",
    # The part of the model's history that cannot be derived from statements: messages, actions, observations, proposals
    # and decisions on them, condensations, redactions, repairs.
    "history": """id INTEGER PRIMARY KEY, event_id TEXT UNIQUE, seq INTEGER, at REAL, kind TEXT, llm_response_id TEXT,
        tool_call_id TEXT, body TEXT""",
    # Requests to a model, before they are sent; `seq` is the ask, `ask_key` its position and question.
    "receipts": """id INTEGER PRIMARY KEY, receipt TEXT, seq INTEGER, ask_key TEXT, round INTEGER, at REAL, model TEXT,
        base INTEGER, request TEXT""",
    # Responses, whole or truncated, at most one a receipt.
    "responses": """id INTEGER PRIMARY KEY, receipt_id INTEGER UNIQUE, at REAL, status TEXT, stop_reason TEXT,
        request_id TEXT, usage TEXT, cost REAL, body TEXT""",
}

_HASH = "hash INTEGER NOT NULL"
_CLUSTERED = frozenset({"session", "events", "artifacts", "node_states", "late_output"})
"""Tables in the order of their key: they are read by execution, and SQLite writes no separate index."""


def freeze(connection: sqlite3.Connection, name: str) -> None:
    """Make a table refuse UPDATE and DELETE."""
    for verb in ("UPDATE", "DELETE"):
        connection.execute(
            f"CREATE TRIGGER {name}_{verb.lower()} BEFORE {verb} ON {name} "
            f"BEGIN SELECT RAISE(ABORT, 'a session is append-only: {name}'); END"
        )


def create(connection: sqlite3.Connection) -> None:
    """Create the tables in the caller's transaction."""
    for name, columns in TABLES.items():
        key = columns.find("PRIMARY KEY (")
        body = f"{columns}, {_HASH}" if key < 0 else f"{columns[:key]}{_HASH}, {columns[key:]}"
        connection.execute(f"CREATE TABLE {name} ({body}){' WITHOUT ROWID' if name in _CLUSTERED else ''}")
        freeze(connection, name)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _column_names(columns: str) -> tuple[str, ...]:
    names = [part.split()[0] for part in columns.split("PRIMARY KEY (", maxsplit=1)[0].split(",") if part.strip()]
    return (*(name for name in names if name != "id"), "hash")


COUNTED = frozenset(name for name, columns in TABLES.items() if columns.startswith("id "))
"""Tables whose rows are in the order of an `id` that SQLite assigns."""

COLUMNS = {name: _column_names(columns) for name, columns in TABLES.items()}
"""By table, the columns that a writer inserts, `hash` last."""

INSERT = {
    name: f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for name, columns in COLUMNS.items()
}
# An address that exists already has the same text.
INSERT["blocks"] = INSERT["blocks"].replace("INSERT", "INSERT OR IGNORE")


def _replace_checkpoints(connection: sqlite3.Connection) -> None:
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
        freeze(connection, name)


STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _replace_checkpoints}
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
    if application != APPLICATION_ID:
        if application == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            return None
        raise StoreError("it is the database of another program")
    if version > VERSION:
        raise StoreError(f"its schema is {version}, this ctxkernel knows {VERSION}; upgrade jupyter-ctxkernel")
    return version


def bring_up(connection: sqlite3.Connection) -> bool:
    """Create the tables, or migrate them, in the caller's transaction. Return whether the session is new."""
    version = version_of(connection)
    if version is None:
        create(connection)
        return True
    for step in range(version, VERSION):
        STEPS[step](connection)
        connection.execute(f"PRAGMA user_version = {step + 1}")
    return False
