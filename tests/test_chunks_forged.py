"""Packs and indexes that somebody forged, with right checksums: StoreError or the right data, in bounds of time."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples
from test_chunks import content, edited, put
from xxhash import xxh3_64_intdigest

from ctxkernel.core.errors import StoreError
from ctxkernel.store.chunks import chunk_store, packs, pages
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of, stream_address
from ctxkernel.store.chunks.packs import ChunkEntry
from ctxkernel.store.chunks.quota import collect

MB = 1024 * 1024
BODY = struct.Struct("<33s33sBxIQQQ")
A, B = address_of(b"a"), address_of(b"b")
posix = pytest.mark.skipif(os.name != "posix", reason="links and pipes of POSIX")


def forge(folder: Path, *bodies: bytes, data: bytes = b"a" * 100, number: int = 1) -> ChunkStore:
    """Return a store of a pack with these records."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = 4711
    records = (body + struct.pack("<Q", xxh3_64_intdigest(body, mark ^ number)) for body in bodies)
    packs.index_path(folder, number).write_bytes(b"ctxkernel pack1\n" + struct.pack("<Q", mark) + b"".join(records))
    packs.pack_path(folder, number).write_bytes(data)
    return ChunkStore(folder, readonly=True)


def body(address=A, base="", depth=0, pack=1, offset=0, stored=1, size=1) -> bytes:
    encoded = [one if isinstance(one, bytes) else one.encode() for one in (address, base)]
    return BODY.pack(*encoded, depth, pack, offset, stored, size)


@pytest.mark.parametrize(
    "wrong",
    [
        {"stored": 2**60, "size": 2**60},
        {"size": 2**60},
        {"offset": 2**63},
        {"offset": 2**64 - 1, "stored": 1},
        {"pack": 2},
        {"address": b"\xff" * 33},
        {"address": b"x" + b"Z" * 32},
        {"address": b"../../x"},
        {"base": B},
        {"depth": 1},
        {"depth": 1, "base": b"\xff" * 33},
    ],
    ids=str,
)
def test_a_record_whose_fields_do_not_fit_does_not_count(tmp_path, wrong):
    good = body(B, offset=0)
    store = forge(tmp_path / "f", body(**wrong), good, data=b"b" * 100)
    assert store.read(B) == b"b"
    with pytest.raises(StoreError):
        store.read(A)


@pytest.mark.parametrize(
    "links",
    [
        [body(A, A, 1)],
        [body(A, B, 1), body(B, A, 1)],
        [body(A, B, 1, size=2**60), body(B)],
        [body(A, B, 1, stored=4, size=6), body(B)],
        [body(A, B, 255), body(B)],
    ],
    ids=["itself", "circle", "huge", "longer than its parts", "deep"],
)
def test_links_of_deltas_are_bounded(tmp_path, links):
    store = forge(tmp_path / "f", *links)
    assert store.missing([A, B]) in ([A], [A, B], [])
    with pytest.raises(StoreError):
        store.read(A)


def test_the_bases_of_deltas_have_a_true_size_too(tmp_path):
    chain = [address_of(bytes([link])) for link in range(5)]
    bodies = [body(chain[link], chain[link + 1], 4 - link, stored=1, size=2**50) for link in range(4)]
    store = forge(tmp_path / "f", *bodies, body(chain[4]))
    for address in chain[:4]:
        with pytest.raises(StoreError):
            store.read(address)


@pytest.mark.timeout(5)
def test_deltas_in_a_circle_are_dropped_like_others(tmp_path):
    folder = tmp_path / "s0000000000000000"
    size, data = 70_000, b"a" * 200_000
    for circle in ([body(A, A, 1, size=size)], [body(A, B, 1, size=size), body(B, A, 1, size=size)]):
        forge(folder, *circle, data=data)
        assert not collect(tmp_path, 10, live=()).faults
        store = forge(folder, *circle, data=data)
        store.close()
        writing = ChunkStore(folder)
        assert writing.drop([]) == frozenset()
        writing.drop([A, B])
        writing.close()


def test_a_delta_whose_runs_go_back_is_refused_at_once(tmp_path):
    """Each run would copy the same megabyte anew."""
    base = bytes(content(1, 2 * MB))
    runs = [(0, 256), (2**32 - 1, 2**32 - 1)] * 50_000
    delta = struct.pack("<I", len(runs)) + b"".join(struct.pack("<II", *run) for run in runs) + base[:MB]
    base_body = body(address_of(base), stored=len(base), size=len(base))
    made = body(A, address_of(base), 1, offset=len(base), stored=len(delta), size=len(base))
    store = forge(tmp_path / "f", base_body, made, data=base + delta)
    begin = time.monotonic()
    with pytest.raises(StoreError, match="damaged"):
        store.read(A)
    assert time.monotonic() - begin < 1
    with pytest.raises(ValueError, match="order"):
        pages.apply_delta(memoryview(bytearray(2 * MB)), memoryview(delta))


def test_a_chunk_beyond_the_free_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    size = 100 * MB
    store = forge(tmp_path / "f", body(stored=size, size=size))
    assert not store.has(A)
    with packs.pack_path(tmp_path / "f", 1).open("r+b") as file:
        file.truncate(size)  # a hole, which takes no space
    monkeypatch.setattr(chunk_store, "free_memory", lambda: size - 1)
    store = ChunkStore(tmp_path / "f", readonly=True)
    with pytest.raises(StoreError, match="more than are free"):
        store.read(A)


def test_an_index_without_an_end_is_read_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(packs, "MOST_RECORDS", 2)
    store = forge(tmp_path / "f", body(), body(B), body(address_of(b"c")), data=b"abc")
    assert len(store.entries()) == 2
    with packs.index_path(tmp_path / "f", 1).open("r+b") as file:
        file.truncate(2**40)
    assert len(ChunkStore(tmp_path / "f", readonly=True).entries()) == 2


def test_a_pack_takes_no_more_records_than_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(packs, "MOST_RECORDS", 3)
    store = ChunkStore(tmp_path / "f")
    made = [put(store, b"%d" % number) for number in range(10)]
    store.close()
    store = ChunkStore(tmp_path / "f", readonly=True)
    assert [bytes(store.read(address)) for address in made] == [b"%d" % number for number in range(10)]


@posix
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("name", ["000001.index", "000001.pack", "given-up"])
def test_what_is_no_file_is_not_opened(tmp_path, kind, name):
    folder, victim = tmp_path / "f", tmp_path / "victim"
    store = ChunkStore(folder)
    put(store, content(1))
    kept = put(store, b"kept")
    store.close()
    (folder / "000001.pack").rename(folder / "000002.pack")
    (folder / "000001.index").rename(victim)
    store = ChunkStore(folder)
    again = put(store, content(2))
    store.close()
    (folder / name).unlink(missing_ok=True)
    if kind == "link":
        (folder / name).symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).mkdir()
    before = victim.read_bytes()

    store = ChunkStore(folder)
    assert store.read(again) == content(2)
    assert not store.has(kept)
    assert store.why_missing(kept)
    store.drop([again], "for a test")
    store.close()
    assert victim.read_bytes() == before


def test_a_folder_with_the_greatest_number_still_takes_data(tmp_path):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "999999999.pack").touch()
    (tmp_path / "f" / "99999999999999999999.pack").touch()
    store = ChunkStore(tmp_path / "f")
    address = put(store, b"some")
    store.close()
    assert ChunkStore(tmp_path / "f", readonly=True).read(address) == b"some"


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """A folder with whole chunks, deltas and small ones, in two packs."""
    folder, there = tmp_path_factory.mktemp("packs") / "f", THERE
    for _ in range(2):
        store, base = ChunkStore(folder), None
        for seed in range(6):
            data = bytes(edited(there[base], seed) if base and seed % 3 else content(seed))
            base = put(store, data, base)
            there[base] = data
            there[put(store, b"small%d" % seed)] = b"small%d" % seed
        store.close()
    return folder


THERE: dict[str, bytes] = {}
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "address": st.sampled_from([A, B]) | st.binary(max_size=33).map(lambda raw: raw.decode("latin-1")[:16]),
        "base": st.sampled_from(["", A, B]),
        "depth": st.integers(0, 255),
        "pack": st.integers(0, 3) | st.integers(0, 2**32 - 1),
        "offset": st.integers(0, 2**20) | st.integers(0, 2**64 - 1),
        "stored": st.integers(0, 2**20) | st.integers(0, 2**64 - 1),
        "size": st.integers(0, 2**20) | st.integers(0, 2**64 - 1),
    },
)


@settings(max_examples=examples(60), deadline=2000)
@given(data=st.data())
def test_forged_records_and_flipped_bytes_give_the_data_or_an_error(tmp_path_factory, stored, data):
    folder, there = stored, THERE
    made = tmp_path_factory.mktemp("forged")
    for path in folder.iterdir():
        raw = bytearray(path.read_bytes())
        for at, value in data.draw(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3)):
            raw[min(len(raw) - 1, int(at * len(raw)))] = value
        (made / path.name).write_bytes(raw)
    number = 1
    index = bytearray(packs.index_path(made, number).read_bytes())
    mark = struct.unpack_from("<Q", index, 16)[0]
    count = (packs.index_path(folder, number).stat().st_size - 24) // 104
    sound = packs.index_path(folder, number).read_bytes()
    entries = [packs.entry_of(sound[24 + at * 104 : 24 + at * 104 + 96]) for at in range(count)]
    for place, fields in data.draw(st.lists(st.tuples(st.integers(0, len(entries) - 1), FIELDS), max_size=4)):
        try:
            raw = packs.body_of(ChunkEntry(**{**entries[place]._asdict(), **fields}))
        except (struct.error, UnicodeEncodeError):
            continue
        at = 24 + place * 104
        index[at : at + 104] = raw + struct.pack("<Q", xxh3_64_intdigest(raw, mark ^ number))
    packs.index_path(made, number).write_bytes(index)

    store = ChunkStore(made, readonly=True)
    for address in [*there, A, B, stream_address(b"")]:
        try:
            assert store.read(address) == there.get(address)
        except StoreError:
            continue
    writing = ChunkStore(made)
    assert writing.read(put(writing, b"new")) == b"new"
    writing.drop([entry.address for entry in writing.entries()[:3]])
    writing.close()
