"""Everything that can be said about the soundness of a session file, without writing to it.

    python -m ctxkernel.store.verify FILE …

Rule 1: a finding is a sentence that names the row; an empty list means that all was looked at and is sound.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from ctxkernel.core.errors import StoreError
from ctxkernel.store import rows, schema
from ctxkernel.store.reader import SessionReader

_REFERENCES = (
    ("executions", "idx", "statements", "idx"),
    ("endings", "seq", "executions", "seq"),
    ("endings", "nodes_base", "endings", "seq"),
    ("events", "seq", "endings", "seq"),
    ("artifacts", "seq", "endings", "seq"),
    ("artifacts", "block", "blocks", "address"),
    ("node_states", "seq", "endings", "seq"),
    ("node_states", "block", "blocks", "address"),
    ("projections", "seq", "endings", "seq"),
    ("projections", "base", "projections", "seq"),
    ("heads", "execution_id", "executions", "execution_id"),
    ("late_output", "seq", "executions", "seq"),
    ("statements", "run", "runs", "run"),
    ("executions", "run", "runs", "run"),
    ("checkpoints", "seq", "executions", "seq"),
    ("checkpoint_states", "checkpoint_id", "checkpoints", "checkpoint_id"),
    ("responses", "receipt_id", "receipts", "id"),
)
_MOST = 100
"""Findings of one kind that are told one by one."""


def verify(path: Path) -> list[str]:
    """Return what is wrong with a session. Raises StoreError where it cannot be opened at all."""
    found: list[str] = []
    with SessionReader(path) as reader:
        connection = reader.connection
        try:
            lines = connection.execute(f"PRAGMA integrity_check({_MOST})").fetchall()
            found += [f"SQLite: {line}" for (line,) in lines if line != "ok"]
        except sqlite3.Error as error:
            found.append(f"SQLite: {error}")
        for table in schema.TABLES:
            try:
                reader.damage.clear()
                stored = reader.rows(table)
            except sqlite3.Error as error:
                found.append(f"{table}: not all rows can be read ({error})")
                continue
            found += [f"{one}: the row does not match its checksum" for one in reader.damage[:_MOST]]
            if table == "blocks":
                other = [row["address"] for row in stored if rows.address(row["text"]) != row["address"]]
                found += [f"blocks {one}: the text is another" for one in other[:_MOST]]
        for table, column, there, key in _REFERENCES:
            query = (
                f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL"
                f" AND NOT EXISTS (SELECT 1 FROM {there} t WHERE t.{key} = {table}.{column}) LIMIT {_MOST}"
            )
            try:
                missing = connection.execute(query).fetchall()
            except sqlite3.Error:
                continue  # told above
            found += [f"{table}: {column} {value} is not in {there}" for (value,) in missing]
        found += _projections(reader)
    return found


def main(arguments: list[str]) -> int:
    """Print what is wrong with each session; exit status 1 where something is."""
    status = 0
    for argument in arguments:
        try:
            found = verify(Path(argument))
        except StoreError as error:
            found = [str(error)]
        sys.stdout.write("".join(f"{argument}: {line}\n" for line in found or ["sound"]))
        status |= bool(found)
    return status


def _projections(reader: SessionReader) -> list[str]:
    found: list[str] = []
    for statement, _ in _readable(reader):
        try:
            reader.projection(statement)
        except StoreError as error:
            if "damaged" in str(error):
                found.append(str(error))
    return found


def _readable(reader: SessionReader) -> list[tuple[int, str]]:
    try:
        query = "SELECT DISTINCT e.idx, '' FROM projections p JOIN executions e ON e.seq = p.seq ORDER BY 1"
        return reader.connection.execute(query).fetchall()
    except sqlite3.Error:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
