"""Whose state it is: the user's secret, signatures, and a stranger's session."""

from __future__ import annotations

import dataclasses
import hmac
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_store import statement, turn

from ctxkernel.core.errors import StoreError
from ctxkernel.store import signatures
from ctxkernel.store.log import schema
from ctxkernel.store.log.resumable_runs import load_run
from ctxkernel.store.log.rows import with_signature
from ctxkernel.store.log.session import CheckpointRow, SessionReader, SessionStore
from ctxkernel.store.log.session_check import verify
from ctxkernel.store.log.signing import sign_session
from ctxkernel.store.signatures import Signer

posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")
texts = st.lists(st.text(st.characters() | st.sampled_from(":0123456789\ud800"), max_size=6), max_size=4)


# -- the secret ------------------------------------------------------------------------------------


def test_the_secret_is_made_once_and_is_the_users_alone(tmp_path):
    home = tmp_path / "some" / "home"
    first, second = signatures.load_signer(home), signatures.load_signer(home)
    assert first.fault == second.fault == ""
    assert second.is_signed(first.sign("a"), "a")
    assert os.listdir(home) == ["secret"]
    assert (home / "secret").stat().st_size == 32
    if os.name == "posix":
        assert stat.S_IMODE((home / "secret").stat().st_mode) == 0o600
        assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_another_home_is_another_user(tmp_path):
    one, other = signatures.load_signer(tmp_path / "a"), signatures.load_signer(tmp_path / "b")
    assert not other.is_signed(one.sign("a"), "a")


def test_the_secret_lies_where_the_user_keeps_data(tmp_path):
    assert signatures.user_folder({"CTXKERNEL_HOME": str(tmp_path)}) == tmp_path
    assert signatures.user_folder({}).name == "ctxkernel"
    assert signatures.signer({"CTXKERNEL_HOME": str(tmp_path)}) is signatures.signer({"CTXKERNEL_HOME": str(tmp_path)})


def test_kernels_that_start_at_once_agree_on_one_secret(tmp_path, monkeypatch):
    """Threads stand for them: what decides is one call of the file system."""
    for links in (True, False):
        if not links:
            monkeypatch.setattr(os, "link", no_links)
        for n in range(10):
            home = tmp_path / f"{links}{n}"
            together = threading.Barrier(8)
            with ThreadPoolExecutor(8) as pool:
                made = list(pool.map(lambda _: (together.wait(), signatures.load_signer(home))[1].sign("x"), range(8)))  # noqa: B023
            assert len(set(made)) == 1
            assert None not in made
            assert os.listdir(home) == ["secret"]


def no_links(*_):
    raise OSError(95, "Operation not supported")


def test_a_file_system_without_hard_links_will_do(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", no_links)
    assert signatures.load_signer(tmp_path).sign("a") == signatures.load_signer(tmp_path).sign("a") is not None
    assert os.listdir(tmp_path) == ["secret"]


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_secret_that_is_none_signs_nothing_and_is_left_as_it_is(tmp_path, monkeypatch, content):
    monkeypatch.setattr(signatures, "_PATIENCE_S", 0.0)
    (tmp_path / "secret").write_bytes(content)
    (tmp_path / "secret").chmod(0o600)
    found = signatures.load_signer(tmp_path)
    assert "delete it" in found.fault
    assert str(tmp_path / "secret") in found.fault
    assert found.sign("a") is None
    assert (tmp_path / "secret").read_bytes() == content


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622, 0o666])
def test_a_secret_that_others_may_know_is_none(tmp_path, mode):
    assert signatures.load_signer(tmp_path).fault == ""
    (tmp_path / "secret").chmod(mode)
    found = signatures.load_signer(tmp_path)
    assert "chmod 600" in found.fault
    assert not found.is_signed(found.sign("a"), "a")


@posix
def test_a_secret_of_another_user_is_none(tmp_path, monkeypatch):
    signatures.load_signer(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert "another user" in signatures.load_signer(tmp_path).fault


@posix
def test_a_link_to_a_secret_is_not_followed(tmp_path):
    signatures.load_signer(tmp_path / "theirs")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "secret").symlink_to(tmp_path / "theirs" / "secret")
    assert signatures.load_signer(tmp_path / "mine").fault != ""


def test_where_no_secret_can_be_made_the_reason_is_told(tmp_path):
    (tmp_path / "file").touch()
    found = signatures.load_signer(tmp_path / "file" / "below")
    assert "cannot be used" in found.fault
    assert signatures.signer({"CTXKERNEL_HOME": str(tmp_path / "file" / "below")}).sign("a") is None


def test_what_was_mended_is_tried_again(tmp_path):
    env = {"CTXKERNEL_HOME": str(tmp_path / "home")}
    (tmp_path / "home").touch()
    assert signatures.signer(env).fault
    (tmp_path / "home").unlink()
    assert not signatures.signer(env).fault


# -- signatures ------------------------------------------------------------------------------------


@given(texts, texts)
def test_a_signature_is_of_these_texts_in_this_order_and_of_no_others(one, other):
    signer = Signer(b"k" * 32)
    signature = signer.sign(*one)
    assert signer.is_signed(signature, *one)
    assert signer.is_signed(signature, *other) == (one == other)
    assert not Signer(b"l" * 32).is_signed(signature, *one)


@pytest.mark.parametrize("signature", [None, "", "0", "é\udc80", "a" * 64])
def test_what_is_no_signature_is_none(signature):
    assert not Signer(b"k" * 32).is_signed(signature, "a")
    assert not Signer(None, "no secret").is_signed(signature, "a")


def test_a_signature_is_an_hmac():
    text = signatures._message(("a", "bc"))
    assert text == b"1:a2:bc"
    assert Signer(b"k" * 32).sign("a", "bc") == hmac.digest(b"k" * 32, text, "sha256").hex()


def test_the_secret_is_not_told(tmp_path):
    signer = Signer(b"k" * 32)
    assert "k" * 32 not in repr(signer)


# -- sessions --------------------------------------------------------------------------------------

ME, STRANGER = Signer(b"m" * 32), Signer(b"s" * 32)


def row(index: int, base: int | None = None, **more) -> CheckpointRow:
    manifest = {"v": 2, "base": f"cs{base}.1" if base else None, "units": [{"n": ["x"], "d": "00"}], "gone": []}
    return CheckpointRow(f"cs{index}.1", manifest, 10, **more)


def record(path: Path, signer: Signer, first: int = 1, last: int = 3) -> SessionStore:
    """Write statements with checkpoints, each built on the one before; the store stays open."""
    store = SessionStore.open(path, signer=signer)
    for index in range(first, last + 1):
        made, running = statement(index)
        parent = f"s{index - 1}.1" if index > first else None
        running = dataclasses.replace(running, parent_execution_id=parent)
        assert store.begin(made, running) is None
        result = turn(index)
        ended = dataclasses.replace(result.execution, parent_execution_id=parent)
        base = index - 1 if index > first else None
        assert store.end(dataclasses.replace(result, execution=ended), checkpoint=row(index, base)) is None
    return store


def signed(path: Path, signer: Signer) -> list[bool]:
    with SessionReader(path, signer=signer) as reader:
        return [one.signed for one in reader.all_manifests(all_roots=True).values()]


def trusted(path: Path, signer: Signer) -> tuple[bool, str]:
    with SessionReader(path, signer=signer) as reader:
        found = load_run(reader)
        assert found is not None
        return found.trusted, found.why_not


@pytest.fixture
def path(tmp_path):
    return tmp_path / "note.sqlite"


def test_my_own_checkpoints_are_mine_and_a_strangers_are_not(path):
    record(path, STRANGER).close()
    assert signed(path, STRANGER) == [True] * 3
    assert trusted(path, STRANGER) == (True, "")
    assert signed(path, ME) == [False] * 3
    ok, why = trusted(path, ME)
    assert not ok
    assert "can run any code" in why


def test_without_a_secret_nothing_is_signed_and_the_reason_is_told(path):
    lame = Signer(None, "the secret cannot be used: no space left")
    record(path, lame).close()
    assert signed(path, lame) == [False] * 3
    assert "no space left" in trusted(path, lame)[1]
    assert sqlite3.connect(path).execute("SELECT mac FROM checkpoints").fetchall() == [(None,)] * 3


CHANGES = {
    "manifest": 'UPDATE checkpoints SET manifest = replace(manifest, \'"d":"00"\', \'"d":"01"\') WHERE seq = 1',
    "format": "UPDATE checkpoints SET format = 2 WHERE seq = 1",
    "id": "UPDATE checkpoints SET checkpoint_id = 'cs7.1' WHERE seq = 1",
    "signature of another": "UPDATE checkpoints SET mac = (SELECT mac FROM checkpoints WHERE seq = 2) WHERE seq = 1",
    "no signature": "UPDATE checkpoints SET mac = NULL WHERE seq = 1",
    "session": "UPDATE session SET value = '0123456789abcdef' WHERE key = 'id'",
    "no id of ours": "UPDATE session SET value = '../../other' WHERE key = 'id'",
}


def tamper(path: Path, *changes: str) -> None:
    """Change rows of a session as someone would who knows its format: triggers off, then on, checksums right again."""
    with sqlite3.connect(path) as connection:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers = dict(connection.execute(query).fetchall())
        for name in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for change in changes:
            assert connection.execute(change).rowcount == 1
        for name, keys in schema.KEYS.items():
            *columns, _, _ = schema.COLUMNS[name]
            for found in connection.execute(f"SELECT {', '.join((*columns, *keys))} FROM {name}").fetchall():
                values, key = found[: len(columns)], found[len(columns) :]
                checksum = with_signature([(name, values)], signatures.unsigned).rows[0][1][-2]
                where = " AND ".join(f"{one} = ?" for one in keys)
                connection.execute(f"UPDATE {name} SET hash = ? WHERE {where}", (checksum, *key))
        for sql in triggers.values():
            connection.execute(sql)
    connection.close()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_whatever_was_changed_in_a_checkpoint_is_no_longer_mine(path, change):
    """The row's checksum is no help: whoever changes a row can make that fit."""
    record(path, ME).close()
    tamper(path, change)
    assert signed(path, ME)[0] is False
    assert not trusted(path, ME)[0]
    assert not any("checksum" in line for line in verify(path).damage)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A session of this user with a row in every table."""
    path = tmp_path_factory.mktemp("everything") / "note.sqlite"
    store = record(path, ME)
    store.checkpoint_state("cs3.1", "durable", "", 9.0, results={"s3.1:0": {"units": [{"n": ["x"], "d": "11"}]}})
    with SessionReader(path, signer=ME) as reader:
        empty = [table for table in schema.TABLES if not reader.rows(table)]
    some = {"TEXT": "a", "INTEGER": 1, "REAL": 1.0}
    made = [(name, tuple(some[schema.TYPES[name][column]] for column in schema.COLUMNS[name][:-2])) for name in empty]
    store._store("a row of each table", lambda: made)
    store.close()
    return path


def test_my_own_session_is_mine_whole(everything):
    assert trusted(everything, ME) == (True, "")
    with SessionReader(everything, signer=ME) as reader:
        assert all(reader.rows(table) for table in schema.TABLES)
        assert reader.unsigned == 0


@pytest.mark.parametrize("table", sorted(schema.TABLES.keys() - {"session", "blocks"}))
def test_a_row_that_was_changed_or_added_in_any_table_is_not_mine(everything, path, table):
    with SessionReader(everything, signer=ME) as reader:
        found = reader.rows(table)
    assert found
    names = schema.COLUMNS[table][:-2]
    for column in [name for name in names if name not in schema.KEYS[table]]:
        shutil.copyfile(everything, path)
        text = schema.TYPES[table][column] == "TEXT"
        key = schema.KEYS[table]
        where = " AND ".join(f"{one} IS (SELECT {one} FROM {table} LIMIT 1)" for one in key)
        changed = f"coalesce({column}, '') || ' '" if text else f"coalesce({column}, 0) + 1"
        tamper(path, f"UPDATE {table} SET {column} = {changed} WHERE {where}")
        with SessionReader(path, signer=ME) as reader:
            assert sum(not row["signed"] for row in reader.rows(table)) == 1, column


def test_a_strangers_timeline_without_any_state_is_not_mine(path):
    store = SessionStore.open(path, signer=STRANGER)
    made, running = statement(1)
    store.begin(made, running)
    store.end(turn(1))
    store.close()
    assert not trusted(path, ME)[0]


def test_what_the_background_made_is_signed_too(path):
    store = record(path, ME)
    results = {"s3.1:0": {"units": [{"n": ["x"], "d": "11"}]}}
    assert store.checkpoint_state("cs3.1", "durable", "", 9.0, results=results) is None
    store.close()
    assert signed(path, ME) == [True] * 3
    with SessionReader(path, signer=ME) as reader:
        assert reader.all_manifests()["s3.1"].results() == results
    tamper(path, "UPDATE checkpoint_states SET results = replace(results, '11', '12')")
    assert signed(path, ME) == [True, True, False]
    assert not trusted(path, ME)[0]


def test_my_word_makes_a_strangers_session_mine_as_it_is_then_and_no_further(path):
    theirs = record(path, STRANGER)
    theirs.checkpoint_state("cs3.1", "durable", "", 9.0, results={"j": {"units": []}})
    theirs.close()
    mine = SessionStore.open(path, signer=ME)
    assert mine.trust() is None
    mine.close()
    assert signed(path, ME) == [True] * 3
    assert trusted(path, ME) == (True, "")
    assert signed(path, Signer(b"t" * 32)) == [False] * 3  # nobody else's

    record(path, STRANGER, 4, 5).close()
    assert signed(path, ME) == [True] * 3 + [False] * 2
    assert sign_session(path, ME) > 0
    assert signed(path, ME) == [True] * 5
    assert sign_session(path, ME) == 0


def test_my_word_can_be_taken_back(path):
    record(path, STRANGER).close()
    sign_session(path, ME)
    assert trusted(path, ME) == (True, "")
    sign_session(path, ME, revoke=True)
    assert signed(path, ME) == signed(path, STRANGER) == [False] * 3
    assert not trusted(path, ME)[0]
    assert verify(path).sound


@pytest.mark.parametrize("change", [CHANGES["manifest"], "UPDATE checkpoint_states SET results = '{}'"])
def test_my_word_does_not_cover_what_was_changed_after_it(path, change):
    theirs = record(path, STRANGER, 1, 2)
    theirs.checkpoint_state("cs2.1", "durable", "", 9.0, results={"j": {"units": []}})
    theirs.close()
    sign_session(path, ME)
    assert signed(path, ME) == [True] * 2
    tamper(path, change)
    assert signed(path, ME).count(False) == 1
    assert not trusted(path, ME)[0]


def test_a_damaged_row_is_not_signed(path):
    record(path, STRANGER).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER checkpoints_update")
        connection.execute(CHANGES["format"])
        for sql in schema._triggers("checkpoints", schema.VERSION).values():
            if "UPDATE" in sql:
                connection.execute(sql)
    sign_session(path, ME)
    assert signed(path, ME) == [False, True, True]


def test_the_word_of_a_stranger_is_worth_nothing(path):
    theirs = record(path, STRANGER)
    theirs.trust()
    theirs.close()
    assert signed(path, ME) == [False] * 3


def test_without_a_secret_the_word_cannot_be_given(path):
    store = record(path, Signer(None, "no secret here"))
    assert "no secret here" in (store.trust() or "")
    store.close()
    with pytest.raises(StoreError, match="no secret here"):
        sign_session(path, Signer(None, "no secret here"))


def test_a_session_that_a_kernel_uses_is_trusted_in_that_kernel(path):
    store = record(path, STRANGER)
    with pytest.raises(StoreError, match=rf"a kernel uses it \(pid {os.getpid()}\); run %ctx trust in that kernel"):
        sign_session(path, ME)
    store.close()


def test_a_session_of_version_2_has_to_be_trusted_once(path):
    """Its rows have no signature, and nobody knows who wrote them."""
    record(path, ME).close()
    with sqlite3.connect(path) as connection:
        for name in schema.TABLES:
            for trigger in schema._triggers(name, 3):
                connection.execute(f"DROP TRIGGER {trigger}")
            connection.execute(f"ALTER TABLE {name} DROP COLUMN mac")
            for sql in schema._triggers(name, 2).values():
                connection.execute(sql)
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    assert not trusted(path, ME)[0]
    assert verify(path).sound
    assert sign_session(path, ME) > 0
    assert trusted(path, ME) == (True, "")
    assert verify(path).sound


def test_nothing_that_reads_a_session_can_unpickle():
    """The store, and the commands that read: `ctxkernel.state.types` unpacks a state, for the kernel alone."""
    root = Path(signatures.__file__).parent.parent
    files = [*(root / "store").rglob("*.py"), *(root / "cli").rglob("*.py")]
    assert len(files) > 20
    for path in files:
        words = set(re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert not words & {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}, path
    names = [".".join(path.relative_to(root.parent).with_suffix("").parts) for path in files if path.stem != "__main__"]
    loading = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", loading, *names], capture_output=True, text=True, check=True)

    places = ("types.packer", "types.restorer", "checkpoints.restore")
    unpickling = tuple(f"ctxkernel.state.{place}" for place in places)
    assert not [name for name in loaded.stdout.split() if name.startswith(unpickling)]


def test_verify_tells_whose_they_are(path):
    record(path, STRANGER).close()
    report = verify(path)  # by this process's own secret
    assert report.sound
    assert "none of its rows is signed by you" in report.remarks[0]
    mine = record(path, signatures.signer(), 4, 4)
    mine.close()
    with SessionReader(path) as reader:
        rows = sum(len(reader.rows(table)) for table in schema.TABLES if table not in ("session", "blocks"))
        theirs = reader.unsigned
    assert 0 < theirs < rows
    assert f"{theirs} of {rows} rows are not signed by you" in verify(path).remarks[0]
