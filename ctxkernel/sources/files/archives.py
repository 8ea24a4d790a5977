"""Archives and databases as sources, by what is in them: the members of a ZIP or tar file, the tables of SQLite.

Rule 1: only names, sizes and types are read, nothing is unpacked, and a database is opened for reading alone.
Rule 2: what is listed is bounded; of more than `_MOST` members or rows a lower bound is told.
"""

from __future__ import annotations

import os
import sqlite3
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any, BinaryIO
from urllib.parse import quote

from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.amounts import NamedLine
from ctxkernel.sources.base.file_reader import Data, Gone, read_opened
from ctxkernel.sources.files.folder_parts import FolderEntry, tree_line
from ctxkernel.sources.files.formats import NAME_CHARS, Listing, ListingSource

_MOST = 10_000
_DIRECTORY_BYTES = 2 << 20
"""A longer directory of a ZIP file takes too long to read."""
_TABLES = 500
_DEPTH = 8
"""Folders of a member that stand above it in the tree; further ones stand in its name."""


class ArchiveSource(ListingSource):
    """A ZIP or tar file, as the tree that its members are in."""

    kind = "archive"

    def listed(self, loaded: Data) -> Listing | Gone | str:
        """Return the members with their sizes."""
        is_zip = not self.path.lower().endswith(".tar")
        found = read_opened(self.path, lambda file, _: _of_zip(file) if is_zip else _of_tar(file))
        if isinstance(found, Gone):
            return found
        members, exact = found
        tree = list(_tree(members))
        total = format_size(sum(size for _, size in members))
        counts = plural(len(members), "members") if exact else f"{len(members):,}+ members"
        head = f"{'ZIP' if is_zip else 'tar'} archive · {counts}, {total}{'' if exact else ' or more'} unpacked"
        lines, names = [*map(tree_line, tree)], [one.name for one in tree]
        return Listing(head, lines, names, "entries", exact, loaded.size, loaded.fingerprint)


def _tree(members: Iterable[tuple[str, int]]) -> Iterator[FolderEntry]:
    """Yield the members and the folders that they are in, these first."""
    known: set[str] = set()
    for parts, size in sorted((one_line(name, NAME_CHARS).split("/", _DEPTH), size) for name, size in members):
        for depth in range(len(parts) - 1):
            folder = "/".join(parts[: depth + 1])
            if folder not in known:
                known.add(folder)
                yield FolderEntry(folder, depth, True, 0, 0)
        yield FolderEntry("/".join(parts), len(parts) - 1, False, size, 0)


def _of_zip(file: BinaryIO) -> tuple[list[tuple[str, int]], bool]:
    found, exact = zip_members(file)
    return [(one.filename, one.file_size) for one in found], exact


def zip_members(file: BinaryIO) -> tuple[list[zipfile.ZipInfo], bool]:
    """Return the members of a ZIP file that are no folders, bounded, and whether these are all. May raise anything."""
    end: Any = getattr(zipfile, "_EndRecData")(file)  # noqa: B009 - has no public name
    size: int = end[5] if end else 0
    if size > _DIRECTORY_BYTES:
        raise ValueError(f"its directory has {format_size(size)}")
    with zipfile.ZipFile(file) as archive:
        found = [one for one in archive.infolist() if not one.is_dir()]
    return found[:_MOST], len(found) <= _MOST


def _of_tar(file: BinaryIO) -> tuple[list[tuple[str, int]], bool]:
    with tarfile.open(fileobj=file, mode="r:") as archive:
        read = list(islice(archive, _MOST + 1))
    found = [(one.name, one.size) for one in read if not one.isdir()]
    return found[:_MOST], len(read) <= _MOST


class DatabaseSource(ListingSource):
    """A SQLite database: its tables and views with columns, and the numbers of rows."""

    kind = "database"

    def listed(self, loaded: Data) -> Listing | Gone | str:
        """Return tables and views."""
        if loaded.data[8:12] == b"DUCK":
            return "a DuckDB database, which is not read here; duckdb.connect(path, read_only=True) opens it"
        if not loaded.data.startswith(b"SQLite format 3\0"):
            return "no SQLite database"
        address = f"file:{quote(os.path.abspath(self.path))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            query = "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY type, name"
            rows = database.execute(f"{query} LIMIT {_TABLES + 1}").fetchall()
            lines = [_table_line(database, *row) for row in rows[:_TABLES]]
        exact = len(rows) <= _TABLES
        waiting = os.path.exists(f"{self.path}-wal") and os.path.getsize(f"{self.path}-wal") > 0
        about = " · without what its -wal file adds" if waiting else ""
        views = sum(kind == "view" for kind, _, _ in rows[:_TABLES])
        count = plural(len(lines) - views, "tables") + (f", {plural(views, 'views')}" if views else "")
        count = count if exact else f"{_TABLES:,}+ tables and views"
        names = [line.name for line in lines]
        return Listing(f"SQLite · {count}{about}", lines, names, "tables", exact, loaded.size, loaded.fingerprint)


def _table_line(database: sqlite3.Connection, kind: str, name: str, sql: str | None) -> NamedLine:
    quoted = '"' + name.replace('"', '""') + '"'
    shown, told = one_line(name, NAME_CHARS), kind
    columns: list[str] = []
    if kind == "table" and not (sql or "").lstrip().upper().startswith("CREATE VIRTUAL"):
        columns = [" ".join(filter(None, row[1:3])) for row in database.execute(f"PRAGMA table_info({quoted})")]
        (count,) = database.execute(f"SELECT count(*) FROM (SELECT 1 FROM {quoted} LIMIT {_MOST + 1})").fetchone()
        told = plural(count, "rows") if count <= _MOST else f"{_MOST:,}+ rows"
    text = f"{shown} ({told}){': ' * bool(columns)}{one_line(', '.join(columns), 2_000)}"
    return NamedLine(text, shown, f"{kind}s", what="tables", short=f"{shown} ({told})")
