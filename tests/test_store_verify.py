"""`ctxkernel verify` on sessions with data: what is damaged, what can be returned to, and what the status says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from test_store import statement, turn

from ctxkernel.cli import main
from ctxkernel.state.checkpoints import units
from ctxkernel.store.chunks import quota
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of, stream_address
from ctxkernel.store.chunks.data_folder import data_folder
from ctxkernel.store.log.session import CheckpointRow, SessionStore

LARGE = 200_000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXKERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def record(path: Path, last: int = 4, chunks_of_a_list: int = 20) -> ChunkStore:
    """Write a session whose every cell changes an array and a small value; the third's array is a list of chunks."""
    store = SessionStore.open(path)
    chunks = ChunkStore(data_folder(quota.root_folder(os.environ), store.session_id))

    def put(data: bytes, address) -> str:
        chunks.put(made := address(data), data)
        return made

    for index in range(1, last + 1):
        blob = put(units.bundle([b"small %d" % index, b"large %d" % index]), stream_address)
        data = [put(os.urandom(LARGE), address_of) for _ in range(chunks_of_a_list if index == 3 else 1)]
        listed = data if index != 3 else put(units.recipe(data), stream_address)
        made = [{"n": [f"x{index}"], "d": "0", "s": [blob, 1], "b": [[LARGE * len(data), listed]]}]
        manifest = {"v": 2, "base": f"cs{index - 1}.1" if index > 1 else None, "gone": []}
        store.begin(*statement(index))
        row = CheckpointRow(f"cs{index}.1", {**manifest, "units": [{"n": ["y"], "d": "0", "s": [blob, 0]}, *made]})
        assert store.end(turn(index), checkpoint=row) is None
    store.close()
    chunks.close()
    return ChunkStore(chunks.folder, readonly=True)


def flip(chunks: ChunkStore, address: str) -> None:
    """Flip a bit in the middle of a chunk."""
    (entry,) = [one for one in chunks.entries() if one.address == address]
    (pack,) = chunks.folder.glob("*.pack")
    with pack.open("r+b") as file:
        file.seek(entry.offset + entry.stored // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))


def run(*arguments: str, capsys) -> tuple[int, str]:
    status = main(["verify", *arguments])
    return status, capsys.readouterr().out


def test_a_sound_session_is_said_to_be_sound(tmp_path, capsys):
    record(tmp_path / "a.sqlite")
    status, out = run("a.sqlite", capsys=capsys)
    assert status == 0
    assert out == "restorable: 4 of 4 checkpoints\n4 statements, all sound · a.sqlite\n"
    status, out = run("a.sqlite", "--json", capsys=capsys)
    told = json.loads(out)
    assert (status, told["sound"], told["restorable"], told["checkpoints"]) == (0, True, 4, 4)
    assert (told["damage"], told["remarks"], told["lost"]) == ([], [], {})


@pytest.mark.parametrize("which", ["a chunk", "a chunk of a list", "a stream", "a list"])
def test_a_flipped_bit_in_the_data_is_found_and_the_rest_can_be_returned_to(tmp_path, capsys, which):
    chunks = record(tmp_path / "a.sqlite")
    large = [one for one in chunks.entries() if one.size == LARGE]
    small = [one for one in chunks.entries() if one.size < LARGE]
    hurt = {"a chunk": large[1], "a chunk of a list": large[9], "a stream": small[2], "a list": small[3]}[which]
    flip(chunks, hurt.address)
    status, out = run("a.sqlite", "--json", capsys=capsys)
    told = json.loads(out)
    assert status == 1
    assert len(told["damage"]) == (2 if which == "a stream" else 1)
    assert hurt.address in told["damage"][0]
    first_hurt = 2 if which == "a chunk" else 3
    names = {"a chunk": {"x2"}, "a stream": {"y"}}.get(which, {"x3"})
    told["gaps"] = {one: set(gaps) for one, gaps in told["gaps"].items()}
    if which == "a stream":  # the blob of the third cell holds x3, too, and each cell binds y anew
        assert told["gaps"] == {"cs3.1": {"x3", "y"}, "cs4.1": {"x3"}}
    else:
        first_hurt = 2 if which == "a chunk" else 3
        assert told["gaps"] == {f"cs{index}.1": names for index in range(first_hurt, 5)}
    assert (told["lost"], told["restorable"], told["statements"]) == ({}, 4, 4)

    status, out = run("a.sqlite", capsys=capsys)
    assert status == 1
    assert f"restorable: 4 of 4 checkpoints, {4 - len(told['gaps'])} of them whole" in out


def test_data_on_another_machine_are_no_damage(tmp_path, capsys):
    chunks = record(tmp_path / "a.sqlite")
    shutil.rmtree(chunks.folder)
    status, out = run("a.sqlite", capsys=capsys)
    assert status == 0
    assert "none of 4 checkpoints: their data are not on this machine" in out


def test_a_notebook_and_a_file_that_is_no_session(tmp_path, capsys):
    (tmp_path / "n.ipynb").touch()
    assert run("n.ipynb", capsys=capsys)[0] == 1  # it has none
    (tmp_path / ".ctxkernel").mkdir()
    record(tmp_path / ".ctxkernel" / "n.sqlite")
    assert run("n.ipynb", capsys=capsys)[0] == 0
    (tmp_path / "b.sqlite").write_text("no database")
    status, out = run("b.sqlite", "--json", capsys=capsys)
    assert status == 1
    assert "cannot be read as a session" in json.loads(out)["damage"][0]
    assert run("none.sqlite", capsys=capsys)[0] == 2


def test_verifying_changes_nothing(tmp_path, capsys):
    chunks = record(tmp_path / "a.sqlite")
    flip(chunks, chunks.entries()[0].address)

    def all_files():
        found = [*chunks.folder.rglob("*"), tmp_path / "a.sqlite"]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in found if path.is_file()}

    before = all_files()
    run("a.sqlite", capsys=capsys)
    assert all_files() == before


def test_what_a_kernel_adds_meanwhile_is_not_taken_for_damage(tmp_path, monkeypatch):
    """The data of a checkpoint are stored before its row: looked for after all rows were read, they are there."""
    from ctxkernel.state.checkpoints.units import references
    from ctxkernel.store.log import session_check as module

    path = tmp_path / "a.sqlite"
    chunks = record(path)
    before = module._rows

    def meanwhile(reader, report):
        yield from before(reader, report)
        store = SessionStore.open(path)
        live = ChunkStore(chunks.folder)
        stream = units.bundle([b"new"])
        live.put(stream_address(stream), stream)
        store.begin(*statement(5))
        unit = {"n": ["z"], "d": "0", "s": [stream_address(stream), 0]}
        store.end(turn(5), checkpoint=CheckpointRow("cs5.1", {"v": 2, "base": "cs4.1", "units": [unit]}))
        live.close()
        store.close()

    monkeypatch.setattr(module, "_rows", meanwhile)
    report = module.verify(path, chunks, references)
    assert report.damage == []
    assert (report.checkpoints, report.restorable) == (5, 5)
