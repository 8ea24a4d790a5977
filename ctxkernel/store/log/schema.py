"""The tables of a session, their version, and migrations from older ones. For users: `docs/schemas.md`.

Rule 1: History is append-only. Every table refuses UPDATE and DELETE; a later fact is a later row.
Rule 2: `hash` is a checksum of all columns of its row except `id`, `hash` and `mac`, in the order of this module:
        SQLite's own integrity check does not find a flipped byte inside a value. `mac` is the signature of the user
        whose kernel wrote the row, or who trusted it: see signatures.py.
Rule 3: A change here is a new VERSION and a step in STEPS, which never changes after its release.
Rule 4: Only the writer migrates. All steps run in one transaction: a session has the old version or the new one.
Rule 5: A file with other tables, views or triggers is not read: they could do anything.
An execution is named by `seq`; its public id is in `executions`. Times are Unix seconds (UTC). JSON is stored as text.
A text that UTF-8 cannot hold (a lone surrogate) is stored as a BLOB.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cache

from ctxkernel.core.errors import StoreError

APPLICATION_ID = 0x6374786B  # "ctxk"
VERSION = 3

MOST = 2**62
"""The bound of the numbers of runs, statements and executions."""
LAST_TIME = 250_000_000_000.0
"""The bound of numbers with a fraction: times up to the year 9892, in Unix seconds."""
ColumnValue = str | int | float | None
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
    # States to return to; their data are in the user's cache folder. `signature` is null since version 3: see `mac`.
    "checkpoints": """seq INTEGER PRIMARY KEY, checkpoint_id TEXT, at REAL, format INTEGER, manifest TEXT,
        bytes INTEGER, time_ms REAL, signature TEXT""",
    # The state of a checkpoint; the newest row counts, and a checkpoint without a row is durable. `results` are those
    # of background jobs. `signature` as above.
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

NULLABLE = {
    "session": {"value"},
    "runs": {"notebook", "resumed_from"},
    "statements": {"parent_id", "cell_id"},
    "executions": {"parent_execution_id"},
    "endings": {"ended_at", "exception", "turn_id", "nodes_base"},
    "events": {"obj_id"},
    "artifacts": {"name", "sha", "block"},
    "node_states": {"name", "state", "block"},
    "projections": {"base"},
    "heads": {"execution_id"},
    "notices": {"execution_id"},
    "checkpoints": {"bytes", "time_ms", "signature"},
    "checkpoint_states": {"results", "signature"},
    "history": {"llm_response_id", "tool_call_id"},
    "receipts": {"base"},
    "responses": {"stop_reason", "request_id", "cost"},
}
"""By table, the columns that may be null. No other table has any."""

_CLUSTERED = frozenset({"session", "events", "artifacts", "node_states", "late_output"})
"""Tables in the order of their key: they are read by execution, and SQLite writes no separate index."""
_SEAL = {1: "hash INTEGER NOT NULL", 2: "hash INTEGER NOT NULL", 3: "hash INTEGER NOT NULL, mac INTEGER"}
"""By version, the last columns of every table."""
_CHECKPOINTS_1 = {
    "checkpoints": """id INTEGER PRIMARY KEY, checkpoint_id TEXT UNIQUE, seq INTEGER, at REAL, format INTEGER,
        manifest TEXT, bytes INTEGER, signature TEXT""",
    "checkpoint_states": "id INTEGER PRIMARY KEY, checkpoint_id TEXT, at REAL, state TEXT, reason TEXT",
}
"""The tables that had another form in version 1, which wrote no row to them."""


def _column_names(columns: str) -> tuple[str, ...]:
    return tuple(part.split()[0] for part in columns.split("PRIMARY KEY (", maxsplit=1)[0].split(",") if part.strip())


def _table(name: str, version: int) -> str:
    """Return the SQL of a table."""
    columns = (_CHECKPOINTS_1 if version == 1 else {}).get(name, TABLES[name])
    key = columns.find("PRIMARY KEY (")
    seal = _SEAL[version]
    body = f"{columns}, {seal}" if key < 0 else f"{columns[:key]}{seal}, {columns[key:]}"
    return f"CREATE TABLE {name} ({body}){' WITHOUT ROWID' if name in _CLUSTERED else ''}"


def _triggers(name: str, version: int) -> dict[str, str]:
    """Return the SQL of the triggers that make a table refuse DELETE, and UPDATE of anything but a signature."""
    of = f" OF {', '.join((*_column_names(TABLES[name]), 'hash'))}" if version > 2 else ""
    return {
        f"{name}_{verb.lower()}": f"CREATE TRIGGER {name}_{verb.lower()} BEFORE {verb}{what} ON {name} "
        f"BEGIN SELECT RAISE(ABORT, 'a session is append-only: {name}'); END"
        for verb, what in (("UPDATE", of), ("DELETE", ""))
    }


@cache
def _expected(version: int) -> frozenset[str]:
    """Return the SQL of all that a session of this version holds, in one form of white space."""
    made = [sql for name in TABLES for sql in (_table(name, version), *_triggers(name, version).values())]
    return frozenset(" ".join(sql.split()) for sql in made)


def create(connection: sqlite3.Connection) -> None:
    """Create the tables in the caller's transaction."""
    for name in TABLES:
        connection.execute(_table(name, VERSION))
        _freeze(connection, name, VERSION)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _freeze(connection: sqlite3.Connection, name: str, version: int) -> None:
    for sql in _triggers(name, version).values():
        connection.execute(sql)


COUNTED = frozenset(name for name, columns in TABLES.items() if columns.startswith("id "))
"""Tables whose rows are in the order of an `id` that SQLite assigns."""

COLUMNS = {
    name: (*(one for one in _column_names(columns) if one != "id"), "hash", "mac") for name, columns in TABLES.items()
}
"""By table, the columns that a writer inserts, `hash` and `mac` last."""

KEYS = {
    name: tuple(columns.partition("PRIMARY KEY (")[2].strip("() ").split(", "))
    if "PRIMARY KEY (" in columns
    else _column_names(columns)[:1]
    for name, columns in TABLES.items()
}
"""By table, the columns that name a row."""

TYPES = {
    name: {words[0]: words[1] for part in columns.split("PRIMARY KEY (")[0].split(",") if (words := part.split())}
    for name, columns in TABLES.items()
}
"""By table, the type of each column."""

INSERT = {
    name: f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for name, columns in COLUMNS.items()
}
# An address that exists already has the same text.
INSERT["blocks"] = INSERT["blocks"].replace("INSERT", "INSERT OR IGNORE")


def _replace_checkpoints(connection: sqlite3.Connection) -> None:
    """Replace the tables of checkpoints: version 1 had them in another form, and wrote no row."""
    for name in _CHECKPOINTS_1:
        connection.execute(f"DROP TABLE {name}")  # and its triggers
        connection.execute(_table(name, 2))
        _freeze(connection, name, 2)


def _add_signatures(connection: sqlite3.Connection) -> None:
    """Give every row a signature, null at first: nobody knows who wrote it."""
    for name in TABLES:
        for trigger in _triggers(name, 2):
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(f"ALTER TABLE {name} ADD COLUMN mac INTEGER")
        _freeze(connection, name, 3)


STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _replace_checkpoints, 2: _add_signatures}
"""`STEPS[n]` migrates version n to version n + 1. Version 1 is the first."""


def unreadable(version: int) -> frozenset[str]:
    """Return the tables without rows in a session of an older version: those that a step replaces."""
    return frozenset({"checkpoints", "checkpoint_states"}) if version < 2 else frozenset()


def version_of(connection: sqlite3.Connection) -> int | None:
    """Return the schema version of a session, None for an empty database.

    Raises StoreError for the database of another program, a newer version than this ctxkernel knows, and other tables
    than those of the version.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        if application == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            return None
        raise StoreError("it is the database of another program")
    if version > VERSION:
        raise StoreError(f"its schema is {version}, this ctxkernel knows {VERSION}; upgrade jupyter-ctxkernel")
    _check_tables(connection, version)
    return version


def _check_tables(connection: sqlite3.Connection, version: int) -> None:
    """Raise StoreError if there is anything but the tables and triggers of the version, or a table is missing."""
    expected: frozenset[str] = _expected(version) if version in _SEAL else frozenset()
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 200").fetchall()
    made = {" ".join(str(sql).split()): str(name) for name, sql in found}
    other = sorted(made.keys() - expected)
    missing = any(sql.startswith("CREATE TABLE") for sql in expected - made.keys())
    if other or missing or not expected:
        what = f"{made[other[0]][:60]!r} is none of a session" if other else "some are missing"
        raise StoreError(f"its tables are not those of a session of version {version}: {what}")


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
