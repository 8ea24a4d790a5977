"""Hostile values, and the ways in which `fuzz_files` changes the files of a real session."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from ctxkernel.store.chunks import packs
from ctxkernel.store.log import rows, schema

PATHS = [
    "../../x",
    "../outside/poetry.lock",
    "../../outside/x.sqlite",
    "..",
    ".",
    "/",
    "//server/share",
    "~/x",
    "C:\\x",
]
TEXTS = [
    *("", " ", "\0", "a\0b", "\ud800", "\udcff", "\u202e", "\x1b[2J\x1b]0;x\x07", "\ufeff", "é" * 300, "x" * 300_000),
    *("'; DROP TABLE statements; --", "sqlite_master", "NaN", "null", "1e999", "9" * 5000, "-1", "s1.1", "s0", "cs1.1"),
    *(
        "<script>alert(1)</script>",
        "%ctx goto 1",
        "%%ask x",
        "{}{0}%s%n",
        "\r\n\t",
        "__class__",
        "s99999999999999999999.1",
    ),
    *("b" + "0" * 32, "x" + "f" * 32, "x" + "Z" * 32, "0123456789abcdef"),
]
JSONS = [
    *(
        "[",
        "{",
        "[" * 3000 + "]" * 3000,
        '{"a":' * 3000 + "1" + "}" * 3000,
        "NaN",
        "[1e999]",
        '{"a":1,"a":2}',
        '"\\ud800"',
    ),
    *("[]", "{}", "null", "7", '"x"', "[[[]]]", "-" * 1000, '{"":""}', "[" + "1," * 50_000 + "1]", "\ufeff{}"),
]
NUMBERS = [0, 1, -1, 2, 3, 255, 256, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, -1.5, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), 5e-324, 2.5e11]
BLOBS = [b"", b"\0", b"\xff\xfe", b"\x80\x04\x95", b"x" * 1000]


def text_value(rng: random.Random, work: Path) -> str:
    """Return a hostile text; some name a path outside of our folders."""
    outside = work / "outside"
    return rng.choice([*TEXTS, *TEXTS, *PATHS, str(outside / "poetry.lock"), str(outside / "new"), str(work / "x")])


def any_value(rng: random.Random, work: Path) -> Any:
    """Return a hostile value of any type that SQLite takes."""
    kind = rng.randrange(7)
    if kind < 2:
        return text_value(rng, work)
    if kind == 2:
        return rng.choice(JSONS)
    return rng.choice([NUMBERS, FLOATS, BLOBS, [None]][kind - 3])


def json_value(rng: random.Random, work: Path, depth: int = 0) -> Any:
    """Return a hostile JSON value."""
    kind = rng.randrange(8 if depth < 3 else 6)
    if kind < 2:
        return text_value(rng, work)
    if kind < 4:
        return rng.choice([*NUMBERS, *FLOATS, 10**30])
    if kind == 4:
        return rng.choice([None, True, False])
    if kind == 5:
        return rng.choice([[], {}, [[]], [{}], {"": None}])
    if kind == 6:
        return [json_value(rng, work, depth + 1) for _ in range(rng.randrange(4))]
    return {text_value(rng, work)[:50]: json_value(rng, work, depth + 1) for _ in range(rng.randrange(4))}


def change_json(rng: random.Random, value: Any, work: Path) -> Any:
    """Return a JSON value with one place changed: replaced, removed, repeated, renamed or nested deeply."""
    places: list[tuple[Any, Any]] = []

    def walk(one: Any) -> None:
        if isinstance(one, dict | list):
            for key in list(one) if isinstance(one, dict) else range(len(one)):
                places.append((one, key))
                walk(one[key])

    try:
        value = json.loads(json.dumps(value))
        walk(value)
    except RecursionError:  # an earlier change made it deep
        return value
    if not places or rng.random() < 0.05:
        return json_value(rng, work)
    holder, key = rng.choice(places)
    action = rng.randrange(8)
    if action < 4:
        holder[key] = json_value(rng, work)
    elif action == 4:
        del holder[key]
    elif action == 5 and isinstance(holder, list):
        holder.extend([holder[key]] * rng.choice([1, 5, 2000]))
    elif action == 6 and isinstance(holder, dict):
        holder[text_value(rng, work)[:100]] = holder.pop(key)
    else:
        deep: Any = holder[key]
        for _ in range(rng.choice([1, 5, 80, 500])):
            deep = [deep] if rng.random() < 0.5 else {"a": deep}
        holder[key] = deep
    return value


def dumped(value: Any) -> str:
    """Return JSON; a value that is too deep for the encoder is text already."""
    try:
        return json.dumps(value)
    except (ValueError, RecursionError):
        return "[" * 2000


def flip(rng: random.Random, path: Path) -> None:
    """Change some bytes of a file, or its length."""
    raw = bytearray(path.read_bytes())
    action = rng.randrange(6)
    if action == 0 and raw:
        del raw[rng.randrange(len(raw)) :]
    elif action == 1:
        raw += rng.choice([b"\0" * 5000, rng.randbytes(100), bytes(raw[:4096])])
    elif action == 2 and raw:
        at = rng.randrange(len(raw))
        raw[at : at + rng.randrange(1, 300)] = rng.choice([b"", rng.randbytes(50), b"\xff" * 40])
    else:
        for _ in range(rng.choice([1, 1, 3, 30])):
            if raw:
                raw[rng.randrange(min(len(raw), 100) if rng.random() < 0.3 else len(raw))] = rng.randrange(256)
    path.write_bytes(raw)


# -- the session file ------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(path: Path) -> Any:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = OFF")
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def _unfrozen(connection: sqlite3.Connection, table: str) -> Any:
    """Take the triggers of a table away, and put them back."""
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", [table])
    triggers = found.fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    yield
    for _, sql in triggers:
        connection.execute(sql)


def _reseal(connection: sqlite3.Connection, table: str, where: str, key: tuple[Any, ...]) -> None:
    """Give a row a right checksum. Its signature is wrong then."""
    columns = schema.COLUMNS[table][:-2]
    found = connection.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {where}", key).fetchone()
    if found is not None:
        with contextlib.suppress(Exception):  # values that no row can have keep the checksum that no longer fits
            *_, checksum, _ = rows.with_signature([(table, found)], lambda *_: None).rows[0][1]
            connection.execute(f"UPDATE {table} SET hash = ? WHERE {where}", (checksum, *key))


def change_field(rng: random.Random, path: Path, work: Path, tables: tuple[str, ...] = tuple(schema.TABLES)) -> str:
    """Replace one field of one row, mostly with a right checksum."""
    with _opened(path) as connection:
        filled = [one for one in tables if connection.execute(f"SELECT count(*) FROM {one}").fetchone()[0]]
        table = rng.choice(filled)
        columns = schema.COLUMNS[table]
        column = rng.choice(columns[:-2] if rng.random() < 0.9 else columns)
        keys = schema.KEYS[table]
        picked = connection.execute(f"SELECT {', '.join((*keys, column))} FROM {table} ORDER BY random() LIMIT 40")
        *key, old = rng.choice(sorted(picked.fetchall(), key=repr))
        value = any_value(rng, work)
        if isinstance(old, str) and old[:1] in ("{", "[") and rng.random() < 0.75:
            with contextlib.suppress(ValueError, RecursionError):
                value = dumped(change_json(rng, json.loads(old), work))
        elif rng.random() < 0.25:  # another value of the same column: circles and doubles
            value = rng.choice(connection.execute(f"SELECT {column} FROM {table} LIMIT 100").fetchall())[0]
        if isinstance(value, str):
            with contextlib.suppress(UnicodeEncodeError):
                value.encode()
            if not value.isascii():
                value = value.encode("utf-8", "surrogatepass") if "\ud800" <= max(value) <= "\udfff" else value
        where = " AND ".join(f"{one} IS ?" for one in keys)
        with _unfrozen(connection, table), contextlib.suppress(sqlite3.Error, OverflowError):
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value, *key))
            key = [value if one == column else part for one, part in zip(keys, key, strict=True)]
            if column != "hash" and rng.random() < 0.8:
                _reseal(connection, table, where, tuple(key))
    return f"{table}.{column}"


def change_rows(rng: random.Random, path: Path, work: Path) -> str:
    """Remove rows of a table, or copy them many times."""
    table = rng.choice(list(schema.TABLES))
    with _opened(path) as connection, _unfrozen(connection, table):
        keys = ", ".join(schema.KEYS[table])
        if rng.random() < 0.6:
            connection.execute(
                f"DELETE FROM {table} WHERE ({keys}) IN (SELECT {keys} FROM {table} LIMIT ?)",
                [rng.choice([1, 3, 10**6])],
            )
            return f"{table}: rows removed"
        columns = schema.COLUMNS[table]
        found = connection.execute(f"SELECT {', '.join(columns)} FROM {table} LIMIT 1").fetchone()
        count = rng.choice([1, 100, 5000])
        connection.execute("BEGIN")
        for number in range(count if found else 0):
            fresh = [10**6 + number if type(one) is int and place == 0 else one for place, one in enumerate(found)]
            fresh = [f"{one}-{number}" if type(one) is str and place < 2 else one for place, one in enumerate(fresh)]
            with contextlib.suppress(sqlite3.Error):
                connection.execute(schema.INSERT[table], fresh)
        connection.execute("COMMIT")
        return f"{table}: rows added"


def change_schema(rng: random.Random, path: Path, work: Path) -> str:
    """Change tables, triggers, or the numbers in the header of the file."""
    table = rng.choice(list(schema.TABLES))
    marker = work / "outside" / "by-sql"
    fts = "CREATE VIRTUAL TABLE extra USING fts5(a)"
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    endless = f"CREATE VIEW {table} AS {numbers} SELECT * FROM other, n"
    scripts = [
        f"DROP TABLE {table}",
        f"ALTER TABLE {table} RENAME TO other; CREATE VIEW {table} AS SELECT * FROM other",
        f"ALTER TABLE {table} RENAME TO other; {endless}",
        f"CREATE TRIGGER extra AFTER INSERT ON {table} BEGIN UPDATE runs SET environment = 'x'; END",
        f"CREATE TRIGGER extra AFTER INSERT ON {table} BEGIN SELECT writefile('{marker}', 'x'); END",
        f"CREATE TRIGGER extra AFTER INSERT ON {table} BEGIN SELECT load_extension('{marker}'); END",
        f"ALTER TABLE {table} ADD COLUMN extra TEXT DEFAULT 'x'",
        f"ALTER TABLE {table} ADD COLUMN extra TEXT GENERATED ALWAYS AS (hex(zeroblob(1000000000))) VIRTUAL",
        f"CREATE INDEX extra ON {table} (lower(hash))",
        "CREATE TABLE extra (a, b)",
        fts,
        f"PRAGMA application_id = {rng.choice([0, 1, -1, 2**31 - 1])}",
        f"PRAGMA user_version = {rng.choice([0, 1, 2, 4, 99, -1, 2**31 - 1])}",
        "PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM",
        "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = INCREMENTAL; VACUUM",
        f"PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = {rng.randrange(60)} WHERE name = '{table}'",
        f"PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = NULL WHERE name = '{table}'",
        f"PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = sql || ' STRICT' WHERE name = '{table}'",
        f"PRAGMA writable_schema = ON; UPDATE sqlite_master SET type = 'view' WHERE name = '{table}'",
        f"PRAGMA writable_schema = ON; UPDATE sqlite_master SET name = 'a' || char(0) WHERE name = '{table}'",
    ]
    script = rng.choice(scripts)
    with _opened(path) as connection, contextlib.suppress(sqlite3.Error):
        connection.executescript(script)
    return script[:60]


def foreign(rng: random.Random, path: Path, work: Path) -> str:
    """Put something else in the place of a file."""
    victim = work / "outside" / rng.choice(["poetry.lock", "logs.json", "data.sqlite", "folder"])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    kind = rng.choice(["link", "hard link", "pipe", "folder", "foreign", "empty", "dangling", "chain", "socket"])
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "dangling":
        path.symlink_to(work / "outside" / "new")
    elif kind == "chain":
        path.symlink_to(path.name)
    elif kind == "hard link" and victim.is_file():
        os.link(victim, path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
        (path / "some").touch()
    elif kind == "socket":
        with contextlib.suppress(OSError):
            os.mknod(path, 0o140600)
    else:
        path.write_bytes(b"" if kind == "empty" else b'[[package]]\nname = "attrs"\n')
    return f"{path.name}: {kind}"


# -- packs -----------------------------------------------------------------------------------------

BODY = struct.Struct("<33s33sBxIQQQ")


def change_record(rng: random.Random, index: Path) -> str:
    """Change a field of a record of an index, with a right checksum."""
    raw = bytearray(index.read_bytes())
    count = (len(raw) - 24) // 104
    if count < 1:
        return "no record"
    at = 24 + 104 * rng.randrange(count)
    fields: list[Any] = list(BODY.unpack(raw[at : at + 96]))
    other = BODY.unpack(raw[24 + 104 * rng.randrange(count) :][:96])
    place = rng.randrange(7)
    if place < 2:
        fields[place] = rng.choice([other[0], other[0], b"", b"\xff" * 33, b"../../../outside/x", fields[0]])
        fields[2] = rng.choice([fields[2], 1, 2, 255])
    elif place == 2:
        fields[2] = rng.randrange(256)
    else:
        top = 2**32 - 1 if place == 3 else 2**64 - 1
        fields[place] = rng.choice(
            [0, 1, other[place], fields[place] + 1, 2**20, 2**30, 2**31, top // 2, top, 2**60 % (top + 1)]
        )
    body = BODY.pack(*fields)
    mark = struct.unpack_from("<Q", raw, 16)[0]
    raw[at : at + 104] = body + struct.pack("<Q", xxh3_64_intdigest(body, mark ^ int(index.stem)))
    index.write_bytes(raw)
    return f"{index.name}: field {place} = {fields[place]!r:.40}"


def change_packs(rng: random.Random, folder: Path, work: Path) -> str:
    """Change the files of a folder of checkpoint data."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    indexes = [path for path in files if path.suffix == ".index"]
    kind = rng.randrange(8)
    if kind < 4 and indexes:
        return "; ".join(change_record(rng, rng.choice(indexes)) for _ in range(rng.choice([1, 1, 4])))
    if kind < 6 and files:
        path = rng.choice(files)
        flip(rng, path)
        return f"{path.name} flipped"
    if kind == 6:
        name = rng.choice([path.name for path in files] + ["given-up", "logs.json", "999999999.pack", "000000.index"])
        return foreign(rng, folder / name, work)
    paths = [
        json_value(rng, work),
        {"logs": [text_value(rng, work)]},
        [str(work / "outside" / "poetry.lock")],
        ["/dev/zero"],
    ]
    for name in ("logs.json", "given-up"):
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    if os.path.lexists(folder / "logs.json") or os.path.lexists(folder / "given-up"):
        return "nothing"
    (folder / "logs.json").write_text(dumped(rng.choice(paths)), "utf-8", "surrogatepass")
    (folder / "given-up").write_text(text_value(rng, work) + "\n\t\n", "utf-8", "surrogatepass")
    return "logs.json"


Mutation = Callable[[random.Random, Path], str]
__all__ = [
    "any_value",
    "change_field",
    "change_json",
    "change_packs",
    "change_rows",
    "change_schema",
    "dumped",
    "flip",
    "foreign",
    "json_value",
    "packs",
    "text_value",
]
