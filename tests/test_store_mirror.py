"""Sessions in a second place: pushed while a kernel works, pulled where nothing is left, and what may go wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import ctxkernel
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from kernels import StartKernel
from scale import examples

from ctxkernel.core.errors import StoreError
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of
from ctxkernel.store.chunks.data_folder import data_folder, folder_name
from ctxkernel.store.lock import SessionLock
from ctxkernel.store.log.session import SessionReader, SessionStore
from ctxkernel.store.mirror import RemoteFiles, list_heads, pull_data, pull_session, push_session

SESSION = "0123456789abcdef"


def wait_until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def ends(place: Path) -> list[str]:
    return [head.end.execution_id for head in list_heads(RemoteFiles(str(place)))[0]]


@pytest.fixture
def pod(start_kernel: StartKernel, tmp_path: Path) -> Callable[..., Any]:
    """Starts a kernel as on a machine with its own cache; the notebooks' folder may be its own, too."""

    def start(name: str, folder: Path, **env: str) -> Any:
        folder.mkdir(exist_ok=True)
        place = {"CTXKERNEL_STORE": str(tmp_path / "place"), "CTXKERNEL_STORE_SECONDS": "1"}
        return start_kernel(folder, env={"CTXKERNEL_CACHE": str(tmp_path / name), **place, **env})

    return start


# -- kernels ---------------------------------------------------------------------------------------------


def test_a_state_survives_a_machine_that_goes_with_all_its_checkpoint_data(pod: Any, tmp_path: Path):
    folder, place = tmp_path / "home", tmp_path / "place"
    first = pod("one", folder)
    first.run("rows = [{'n': n} for n in range(1000)]; same = rows[7]")
    first.run("rows[7]['n'] = 'changed'")
    wait_until(lambda: ends(place) == ["s2.1"])
    wait_until(lambda: "up to s" in first.run("%ctx store").data[0]["text/plain"])
    first.manager.shutdown_kernel(now=True)
    shutil.rmtree(tmp_path / "one")

    second = pod("two", folder)
    told = second.run("%ctx resume")
    assert told.status == "ok" and "checkpoint data came from" in told.stderr, told
    assert second.evaluate("(rows[7], rows[7] is same, len(rows))") == "({'n': 'changed'}, True, 1000)"
    assert second.run("%ctx goto 1").status == "ok"
    assert second.evaluate("rows[7]") == "{'n': 7}"


def test_a_machine_without_the_log_brings_the_session_by_a_command(pod: Any, tmp_path: Path):
    first = pod("one", tmp_path / "home")
    (tmp_path / "home" / "note.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    first.run("x = list(range(5))")
    first.manager.shutdown_kernel()  # what is left is pushed when the kernel ends
    wait_until(lambda: ends(tmp_path / "place") == ["s1.1"])
    shutil.rmtree(tmp_path / "home")

    folder = tmp_path / "other"
    folder.mkdir()
    notebook = folder / "note.ipynb"
    env = {"CTXKERNEL_CACHE": str(tmp_path / "two"), "CTXKERNEL_STORE": str(tmp_path / "place")}
    done = ctxkernel("store", "pull", notebook, "--json", env=env)
    assert json.loads(done.stdout)["faults"] == [], done
    second = pod("two", folder)
    assert second.run("%ctx resume").status == "ok"
    assert second.evaluate("x") == "[0, 1, 2, 3, 4]"


def test_the_place_knows_the_notebook_of_a_session_that_a_kernel_pushed(pod: Any, tmp_path: Path):
    folder = tmp_path / "home"
    kernel = pod("one", folder)
    kernel.run("x = 1")
    wait_until(lambda: ends(tmp_path / "place") == ["s1.1"])
    [head] = list_heads(RemoteFiles(str(tmp_path / "place")))[0]
    assert head.notebook == str(folder / "note.ipynb")


def test_a_place_that_cannot_be_written_is_told_once_and_costs_no_cell(pod: Any, tmp_path: Path):
    (tmp_path / "place").write_text("a file")
    kernel = pod("one", tmp_path / "home")
    kernel.run("x = 1")
    said = ""

    def failed() -> bool:
        nonlocal said
        said += (ran := kernel.run("x += 1")).stderr
        assert ran.status == "ok"
        return "is not in" in said

    wait_until(failed)
    for _ in range(3):
        said += kernel.run("x += 1").stderr
    assert said.count("is not in") == 1, said
    assert "not pushed" in kernel.run("%ctx status").data[0]["text/plain"]


def test_data_that_were_given_up_here_come_back_from_the_place(pod: Any, tmp_path: Path):
    kernel = pod("one", tmp_path / "home")
    kernel.run("big = list(range(1000))")
    kernel.run("big.append('more')")
    wait_until(lambda: ends(tmp_path / "place") == ["s2.1"])
    for path in (tmp_path / "one").rglob("*.pack"):
        path.unlink()
    refused = kernel.run("%ctx goto 1")
    assert refused.status == "error" and "%ctx store pull" in refused.error["evalue"], refused
    assert "chunks brought" in kernel.run("%ctx store pull").data[0]["text/plain"]
    assert kernel.run("%ctx goto 1").status == "ok"
    assert kernel.evaluate("len(big)") == "1000"


def test_a_kernel_without_a_second_place_says_how_to_set_one(start_kernel: StartKernel, tmp_path: Path):
    kernel = start_kernel(tmp_path, env={"CTXKERNEL_STORE": ""})
    assert "%ctx config store" in kernel.run("%ctx store").error["evalue"]
    assert "credentials" in kernel.run("%ctx config store s3://key:secret@bucket").error["evalue"]


# -- pushes and pulls -------------------------------------------------------------------------------------


def make_log(path: Path, executions: int) -> None:
    store = SessionStore.open(path, environment={}, notebook="n.ipynb", named=True)
    for n in range(1, executions + 1):
        store.begin(Statement(f"s{n}", n, 0.0, "x"), Execution(f"s{n}.1", f"s{n}", None, 0.0, None, status="running"))
    store.close()


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path, RemoteFiles]:
    """A session of two statements with some chunks, its data folder, and an empty place."""
    log = tmp_path / "n.sqlite"
    make_log(log, 2)
    with SessionReader(log) as reader:
        data = data_folder(tmp_path / "cache", reader.session_id)
    put(data, b"first", b"second" * 100_000)
    return log, data, RemoteFiles(str(tmp_path / "place"))


def put(data: Path, *contents: bytes) -> list[str]:
    store = ChunkStore(data)
    for content in contents:
        store.put(address_of(content), content)
    store.close()
    return [*map(address_of, contents)]


def contents_of(data: Path) -> dict[str, bytes]:
    store = ChunkStore(data, readonly=True)
    try:
        return {entry.address: bytes(store.read(entry.address)) for entry in store.entries()}
    finally:
        store.close()


def test_a_second_push_sends_only_what_is_new(made: tuple[Path, Path, RemoteFiles]):
    log, data, files = made
    assert push_session(log, data, files).sent > 600_000
    assert push_session(log, data, files).sent == 0
    put(data, b"third")
    assert 0 < push_session(log, data, files).sent < 10_000


@pytest.mark.parametrize("url", ["", "memory://place-of-a-test"])
def test_a_pull_brings_every_chunk_and_the_log_and_a_second_one_nothing(
    made: tuple[Path, Path, RemoteFiles], tmp_path: Path, url: str
):
    log, data, files = made
    files = RemoteFiles(url) if url else files
    push_session(log, data, files)
    pulled = pull_session(data.name, tmp_path / "other" / "n.sqlite", tmp_path / "cache2", files)
    assert (pulled.chunks, pulled.faults) == (2, ())
    assert contents_of(tmp_path / "cache2" / data.name) == contents_of(data)
    with SessionReader(log) as old, SessionReader(tmp_path / "other" / "n.sqlite") as new:
        assert old.statements() == new.statements() and new.session_id == old.session_id
        again = pull_data(old.session_id, tmp_path / "cache2", files)
    assert again.chunks == 0 and again.received < 10_000


@profile(max_examples=examples(40), deadline=None)
@given(st.data())
def test_whatever_was_pushed_from_whichever_machine_is_pulled_whole(tmp_path_factory: Any, data: st.DataObject):
    """Machines share a log, and each has a cache of its own, which begins empty or with what was pulled."""
    root = tmp_path_factory.mktemp("machines")
    log, files = root / "n.sqlite", RemoteFiles(str(root / "place"))
    make_log(log, 1)
    with SessionReader(log) as reader:
        session_id = reader.session_id
    pushed: dict[str, bytes] = {}
    for machine in range(data.draw(st.integers(1, 4), "machines")):
        folder = data_folder(root / f"cache{machine}", session_id)
        if machine and data.draw(st.booleans(), "pull first"):
            pull_data(session_id, folder.parent, files)
            assert contents_of(folder) == pushed
        for _ in range(data.draw(st.integers(1, 3), "pushes")):
            sizes = data.draw(st.lists(st.sampled_from([1, 50, 5_000, 200_000]), max_size=3), "chunks")
            new = [os.urandom(size) for size in sizes]
            put(folder, *new)
            if data.draw(st.booleans(), "give some up"):
                store = ChunkStore(folder)
                store.drop([entry.address for entry in store.entries()][::2])
                store.close()
            push_session(log, folder, files)
            pushed |= contents_of(folder)
    pulled = pull_data(session_id, root / "last", files)
    found = contents_of(root / "last" / folder_name(session_id))
    assert pulled.faults == () and pushed.items() <= found.items()


def test_a_push_refuses_to_replace_statements_that_are_not_here(made: tuple[Path, Path, RemoteFiles], tmp_path: Path):
    log, data, files = made
    older = tmp_path / "older.sqlite"
    shutil.copyfile(log, older)
    store = SessionStore.open(log, environment={}, notebook="n.ipynb", named=True)
    store.begin(Statement("s3", 3, 1.0, "x"), Execution("s3.1", "s3", None, 1.0, None, status="running"))
    store.close()
    push_session(log, data, files)
    with pytest.raises(StoreError, match=r"up to s3\.1.*--force"):
        push_session(older, data, files)
    assert push_session(older, data, files, force=True).end == "s2"


def test_two_pushes_of_one_session_come_one_after_the_other(made: tuple[Path, Path, RemoteFiles], tmp_path: Path):
    """The first removes parts that only the head before needs: the second must not count on them."""
    log, data, _ = made
    env = {"CTXKERNEL_CACHE": str(tmp_path), "CTXKERNEL_STORE": str(tmp_path / "place")}
    (tmp_path / "cache").rename(tmp_path / "checkpoints")
    command = [sys.executable, "-m", "ctxkernel", "store", "push", str(log)]
    lock = SessionLock.take(tmp_path / "checkpoints" / f"{data.name}.push")
    assert lock is not None
    waits = subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        waits.wait(2)
    assert ends(tmp_path / "place") == []
    lock.release()
    assert "up to s2" in waits.communicate(timeout=60)[0]


def test_a_push_that_ends_half_way_leaves_the_earlier_one_valid(
    made: tuple[Path, Path, RemoteFiles], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log, data, files = made
    push_session(log, data, files)
    before = contents_of(data)
    put(data, b"third")
    write = RemoteFiles.write
    for allowed in range(3):
        calls = 0

        def failing(self: RemoteFiles, name: str, content: bytes, allowed: int = allowed) -> None:
            nonlocal calls
            calls += 1
            if calls > allowed:
                raise StoreError("the network is gone")
            write(self, name, content)

        monkeypatch.setattr(RemoteFiles, "write", failing)
        with pytest.raises(StoreError, match="network"):
            push_session(log, data, files)
        monkeypatch.undo()
        pull_data(_id_of(log), tmp_path / f"cache{allowed}", files)
        assert contents_of(tmp_path / f"cache{allowed}" / data.name) == before
    push_session(log, data, files)


def test_damage_in_the_place_is_named_and_nothing_wrong_comes_in(made: tuple[Path, Path, RemoteFiles], tmp_path: Path):
    log, data, files = made
    push_session(log, data, files)
    blobs = tmp_path / "place" / data.name / "blobs"
    largest = max(blobs.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[100] ^= 1
    largest.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        pull_session(data.name, tmp_path / "m.sqlite", tmp_path / "cache2", files)
    assert not (tmp_path / "m.sqlite").exists()
    largest.unlink()
    with pytest.raises(StoreError, match="missing"):
        pull_data(_id_of(log), tmp_path / "cache3", files)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"[1]",
        b"[" * 100_000,
        b'{"format": 2}',
        b'{"format": 1, "session": "../../etc"}',
        b"\xff\xfe",
    ],
)
def test_a_head_that_no_ctxkernel_wrote_is_refused(head: bytes, tmp_path: Path):
    folder = tmp_path / "place" / folder_name(SESSION)
    folder.mkdir(parents=True)
    (folder / "head.json").write_bytes(head)
    files = RemoteFiles(str(tmp_path / "place"))
    with pytest.raises(StoreError, match="damaged"):
        pull_data(SESSION, tmp_path / "cache", files)
    assert list_heads(files)[0] == [] and len(list_heads(files)[1]) == 1


def test_nothing_here_is_replaced_by_a_pull(made: tuple[Path, Path, RemoteFiles], tmp_path: Path):
    log, data, files = made
    push_session(log, data, files)
    (tmp_path / "here.sqlite").write_text("mine")
    with pytest.raises(StoreError, match="nothing is replaced"):
        pull_session(data.name, tmp_path / "here.sqlite", tmp_path / "cache2", files)
    assert (tmp_path / "here.sqlite").read_text() == "mine"


def _id_of(log: Path) -> str:
    with SessionReader(log) as reader:
        return reader.session_id


# -- the command -----------------------------------------------------------------------------------------


def test_the_command_lists_pushes_pulls_and_drops(made: tuple[Path, Path, RemoteFiles], tmp_path: Path):
    log = made[0]
    env = {"CTXKERNEL_CACHE": str(tmp_path), "CTXKERNEL_STORE": str(tmp_path / "place")}
    (tmp_path / "cache").rename(tmp_path / "checkpoints")
    assert json.loads(ctxkernel("store", "push", log, "--json", env=env).stdout)["end"] == "s2"
    listed = json.loads(ctxkernel("store", "list", "--json", env=env).stdout)["sessions"]
    assert [one["end"] for one in listed] == ["s2.1"]
    shutil.rmtree(tmp_path / "checkpoints")
    assert "2 chunks brought" in ctxkernel("store", "pull", log, env=env).stdout
    assert ctxkernel("store", "drop", "--id", listed[0]["session"], env=env).returncode == 0
    assert "has no session" in ctxkernel("store", "list", env=env).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("push",), "which notebook"),
        (("pull", "none.ipynb"), "has no session of none.ipynb"),
        (("push", "none.ipynb"), "no such notebook"),
        (("list", "--at", "nosuch://x"), "cannot be opened"),
        (("list", "--at", "s3://key:secret@bucket"), "no credentials"),
    ],
)
def test_bad_arguments_get_a_sentence_with_the_next_step(arguments: tuple[str, ...], said: str, tmp_path: Path):
    done = ctxkernel("store", *arguments, env={"CTXKERNEL_STORE": str(tmp_path / "place")})
    assert done.returncode in (1, 2) and said in done.stderr and "secret@" not in done.stderr, done
    assert "Traceback" not in done.stderr
