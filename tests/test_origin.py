"""Whose data a folder of checkpoints holds, and when nobody can need them any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of
from ctxkernel.store.log.origin import list_log, listed_logs, remove_data, why_gone
from ctxkernel.store.log.session import SessionStore


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a notebook."""
    (tmp_path / "a.ipynb").touch()
    store = SessionStore.open(tmp_path / ".ctxkernel" / "a.sqlite", notebook="a.ipynb")
    store.close()
    assert store.path is not None
    return store.path


@pytest.fixture
def folder(tmp_path: Path, log: Path) -> Path:
    """The folder of its data."""
    store = SessionStore.open(log)
    made = tmp_path / "cache" / store.session_id
    store.close()
    with_data(made).close()
    return made


def with_data(folder: Path) -> ChunkStore:
    store = ChunkStore(folder)
    store.put(address_of(b"some"), b"some")
    return store


def test_a_session_is_gone_with_its_notebook_or_its_log(folder: Path, log: Path, tmp_path: Path):
    list_log(folder, log)
    assert why_gone(folder) == ""

    (tmp_path / "a.ipynb").unlink()
    assert why_gone(folder) == f"its notebook {tmp_path / 'a.ipynb'} is gone"
    log.unlink()
    assert why_gone(folder) == f"its log {log} is gone"
    SessionStore.open(log).close()
    assert why_gone(folder) == f"its log {log} was replaced by another"


def test_what_is_not_known_is_not_gone(folder: Path, log: Path):
    """A folder of an earlier version, one whose note is damaged, and a log that cannot be read."""
    assert why_gone(folder) == ""
    list_log(folder, log)
    log.write_text("no database")
    assert why_gone(folder) == ""
    (folder / "logs.json").write_text("[")
    assert why_gone(folder) == ""


def test_a_log_that_was_copied_keeps_the_data_of_both(folder: Path, log: Path, tmp_path: Path):
    copy = tmp_path / "elsewhere.sqlite"
    copy.write_bytes(log.read_bytes())
    for one in (log, copy, log):
        list_log(folder, one)
    assert listed_logs(folder) == [log, copy]

    log.unlink()
    assert why_gone(folder) == ""
    copy.unlink()
    assert why_gone(folder) == f"its log {copy} is gone"


def test_the_data_of_a_kernel_that_lives_are_not_removed(folder: Path):
    store = with_data(folder)
    assert remove_data(folder) == 0
    assert folder.is_dir()
    store.close()

    assert remove_data(folder) > 0
    assert not folder.exists()
