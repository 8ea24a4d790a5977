"""Whose data a folder of checkpoints holds, and when nobody can need them any more."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ctxkernel.core.errors import StoreError
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of
from ctxkernel.store.chunks.data_folder import data_folder, folder_name
from ctxkernel.store.chunks.file_contents import FileContents
from ctxkernel.store.chunks.quota import usage
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
    made = data_folder(tmp_path / "cache", store.session_id)
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
    for text in ("[", "7", '{"logs": 7}', "[" * 100_000, f'["{log}", 7, "relative", "/a\\u0000b"]'):
        (folder / "logs.json").write_text(text)
        assert why_gone(folder) == ""
    assert listed_logs(folder) == [log]


def test_a_list_that_this_user_did_not_sign_removes_nothing(folder: Path, log: Path, tmp_path: Path):
    """A forged list of logs that are gone, in the folder of a session that exists; and the signed list of another."""
    (folder / "logs.json").write_text(json.dumps([str(tmp_path / "gone.sqlite")]))
    assert why_gone(folder) == ""
    other = folder.with_name("s0123456789abcdef")
    other.mkdir()
    list_log(other, tmp_path / "gone.sqlite")
    assert why_gone(other) == f"its log {tmp_path / 'gone.sqlite'} is gone"
    (folder / "logs.json").write_bytes((other / "logs.json").read_bytes())
    assert why_gone(folder) == ""

    list_log(folder, log)
    assert listed_logs(folder) == [tmp_path / "gone.sqlite", log]
    assert why_gone(folder) == ""
    log.unlink()
    assert why_gone(folder) == f"its log {log} is gone"


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_the_list_is_private_and_written_through_no_link(folder: Path, log: Path, tmp_path: Path):
    victim = tmp_path / "victim.json"
    victim.write_text("[]")
    (folder / "logs.json").symlink_to(victim)
    list_log(folder, log)
    assert victim.read_text() == "[]"
    assert (folder / "logs.json").lstat().st_mode & 0o777 == 0o600
    assert listed_logs(folder) == [log]


def test_a_list_names_a_bounded_number_of_logs_and_a_full_one_is_never_gone(folder: Path, tmp_path: Path):
    for index in range(210):
        list_log(folder, tmp_path / f"{index}.sqlite")
    assert len(listed_logs(folder)) == 200
    assert why_gone(folder) == ""


def test_the_folder_of_an_earlier_version_is_found_and_renamed_when_it_is_written(tmp_path: Path):
    root, session_id = tmp_path / "cache", "0123456789abcdef"
    new = root / folder_name(session_id)
    assert data_folder(root, session_id) == data_folder(root, session_id, writing=True) == new
    store = with_data(root / session_id)
    assert data_folder(root, session_id) == root / session_id
    assert data_folder(root, session_id, writing=True) == root / session_id  # a kernel of that version uses it
    store.close()
    assert data_folder(root, session_id, writing=True) == new
    assert ChunkStore(new, readonly=True).read(address_of(b"some")) == b"some"
    assert not (root / session_id).exists()
    assert data_folder(root, session_id) == new


def test_no_id_leads_to_the_folder_of_another_session(tmp_path: Path):
    session_id = "0123456789abcdef"
    with_data(data_folder(tmp_path, session_id)).close()
    for wrong in ("", "x", "../" + session_id, "/etc", session_id + "\n", folder_name(session_id), "A" * 16, "é" * 16):
        with pytest.raises(StoreError, match="invalid session id") as caught:
            data_folder(tmp_path, wrong)
        assert str(caught.value).isascii()
    with pytest.raises(StoreError) as caught:
        data_folder(tmp_path, "\x1b" * 10**6)
    assert len(str(caught.value)) < 300


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_a_folder_that_is_a_link_or_of_another_name_is_not_used(tmp_path: Path, folder: Path):
    victim = tmp_path / "victim"
    with_data(victim).close()
    link = folder.with_name(folder_name("0" * 16))
    link.symlink_to(victim)
    for use in (ChunkStore, lambda one: FileContents(one).keep(folder / "000001.pack", folder.stat())):
        with pytest.raises(StoreError, match="symbolic link"):
            use(link)
    (folder.parent / ("1" * 16)).symlink_to(victim)
    assert data_folder(folder.parent, "1" * 16, writing=True) == folder.parent / folder_name("1" * 16)
    victim.rename(folder.parent / "victim")
    assert list(usage(folder.parent)) == [folder.name]
    with pytest.raises(StoreError, match="no folder of a session's data"):
        remove_data(folder.parent / "victim")


def test_files_of_others_in_the_folder_of_the_data_stay(folder: Path):
    (folder / "thesis.tex").write_text("all of it")
    with pytest.raises(OSError, match="not empty"):
        remove_data(folder)
    assert [one.name for one in folder.iterdir()] == ["thesis.tex"]


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
