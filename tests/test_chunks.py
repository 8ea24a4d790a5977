"""Chunks: what is read is what was put, by address, by mapping, through deltas, beside a writer, after a reopening."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import stat
import struct
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples
from xxhash import xxh3_64_intdigest

from ctxkernel.core.errors import StoreError
from ctxkernel.state.tracking.chunk_addresses import CHUNK
from ctxkernel.store.chunks import chunk_store, packs, pages
from ctxkernel.store.chunks.chunk_store import MOST_LINKS, ChunkStore, address_of, stream_address
from ctxkernel.store.chunks.pages import PAGE

LARGE = 256 * 1024


def content(seed: int, size: int = LARGE) -> bytearray:
    return bytearray(_content(seed, size))


@functools.lru_cache(maxsize=200)
def _content(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def edited(data: bytes | bytearray, *places: int) -> bytearray:
    made = bytearray(data)
    for place in places:
        made[place] ^= 1
    return made


def put(store: ChunkStore, data: bytes | bytearray, base: str | None = None) -> str:
    address = address_of(data)
    store.put(address, data, base=base)
    return address


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "session"


@pytest.fixture
def store(folder):
    store = ChunkStore(folder)
    yield store
    store.close()


@pytest.mark.parametrize("size", [0, 1, 4095, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, CHUNK])
def test_what_was_put_is_read_by_this_process_and_by_the_next(folder, store, size):
    data = content(1, size)

    assert store.put(address_of(data), data) == size
    assert store.put(address_of(data), data) == 0

    assert store.read(address_of(data)) == data
    store.close()
    assert ChunkStore(folder, readonly=True).read(address_of(data)) == data


def test_a_stream_has_an_address_of_its_own_kind(store):
    data = b"a pickle"
    address = stream_address(data)

    store.put(address, data)

    assert address[0] == "b"
    assert len(address) == len(address_of(data)) == 33
    assert store.read(address) == data
    assert not store.has(address_of(data))


def test_what_is_read_is_a_copy_that_can_be_written(store):
    address = put(store, content(1))

    store.read(address)[0:4] = b"mine"

    assert store.read(address) == content(1)


def test_missing_names_what_is_not_there_in_order_and_once(store):
    there = put(store, b"there")
    one, other = address_of(b"one"), address_of(b"other")

    assert store.missing([other, there, one, other]) == [other, one]


def test_a_chunk_that_is_not_there_is_named(store):
    with pytest.raises(StoreError, match=address_of(b"x")):
        store.read(address_of(b"x"))


def test_what_is_no_address_is_refused(store):
    with pytest.raises(StoreError, match="invalid chunk address"):
        store.put("../../etc/passwd", b"x")


def test_data_that_changed_since_they_were_hashed_are_not_stored(store):
    """A thread of the user's writes to the array while it is stored."""
    address = address_of(b"before")

    with pytest.raises(StoreError, match="changed while"):
        store.put(address, b"after")

    assert not store.has(address)
    assert store.read(put(store, b"next")) == b"next"


def test_files_are_the_users_own(folder, store):
    put(store, content(1))

    if os.name == "posix":
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_store_that_put_nothing_leaves_nothing(folder):
    ChunkStore(folder).close()

    assert not folder.exists()


def test_a_process_appends_to_no_pack_of_an_earlier_one(folder):
    for turn in range(3):
        store = ChunkStore(folder)
        put(store, content(turn))
        store.close()

    assert sorted(packs.listing(folder)) == [1, 2, 3]


def test_a_pack_has_a_bound(folder, store, monkeypatch):
    monkeypatch.setattr(chunk_store, "PACK_BYTES", 2 * LARGE)

    addresses = [put(store, content(seed)) for seed in range(5)]

    assert sorted(packs.listing(folder)) == [1, 2, 3]
    assert [store.read(address) for address in addresses] == [content(seed) for seed in range(5)]


def test_a_readonly_store_writes_nothing(folder, store):
    put(store, b"x")
    before = sorted(folder.iterdir())
    reader = ChunkStore(folder, readonly=True)

    for attempt in (lambda: put(reader, b"y"), lambda: reader.drop([address_of(b"x")]), reader.new_pack):
        with pytest.raises(StoreError, match="reading only"):
            attempt()

    assert sorted(folder.iterdir()) == before


# Deltas


def test_a_small_change_is_stored_as_its_pages(store):
    old = content(1, CHUNK)
    new = edited(old, 5, 3_000_000)
    base = put(store, old)

    written = store.put(address_of(new), new, base=base)

    assert written < 3 * PAGE
    assert store.read(address_of(new)) == new
    assert store.read(base) == old


def test_a_change_of_more_than_half_is_stored_as_it_is(store):
    old = content(1)
    new = edited(old, *range(0, LARGE * 6 // 10, PAGE))

    assert store.put(address_of(new), new, base=put(store, old)) == LARGE


def test_a_chain_of_deltas_ends(folder, store):
    data = content(1)
    address = put(store, data)
    for turn in range(3 * MOST_LINKS):
        data = edited(data, turn * PAGE)
        address = put(store, data, base=address)

    depths = [entry.depth for entry in store.entries()]

    assert max(depths) == MOST_LINKS
    assert depths.count(0) == 3
    store.close()
    assert ChunkStore(folder).read(address) == data


@pytest.mark.parametrize("base", ["missing", "small", "tail"])
def test_a_base_that_is_no_use_is_not_used(store, base):
    data = content(1)
    bases = {"missing": address_of(b"nowhere"), "small": put(store, data[:100]), "tail": put(store, content(2))}

    assert store.put(address_of(data), data, base=bases[base]) == LARGE

    assert store.read(address_of(data)) == data


@settings(max_examples=examples(150))
@given(
    old=st.integers(0, 40 * PAGE),
    new=st.integers(0, 40 * PAGE),
    edits=st.lists(st.integers(0, 40 * PAGE), max_size=30),
)
def test_a_delta_applied_to_the_old_state_gives_the_new_one(old, new, edits):
    before = content(7, old)
    after = edited((before + content(8, 40 * PAGE))[:new], *[place for place in edits if place < new])

    made = pages.make_delta(memoryview(after), memoryview(before), most=new)

    if made is not None:
        assert len(made) <= new
        view = bytearray(before[:new].ljust(new, b"\0"))
        pages.apply_delta(memoryview(view), memoryview(made))
        assert view == after


@given(damage=st.binary(max_size=200))
def test_a_damaged_delta_is_a_value_error_or_harmless(damage):
    view = bytearray(10 * PAGE)
    with contextlib.suppress(ValueError):
        pages.apply_delta(memoryview(view), memoryview(damage))
    assert len(view) == 10 * PAGE


# Mappings


def cut(data: bytes | bytearray) -> list[memoryview]:
    return [memoryview(data)[at : at + CHUNK] for at in range(0, len(data), CHUNK)]


def test_writes_to_a_mapping_do_not_reach_the_file_nor_another_mapping(folder, store):
    data = content(1, CHUNK)
    address = put(store, data)
    one, other = store.map_run([address]), store.map_run([address])
    assert one is not None and other is not None

    one[:100] = b"\0" * 100

    assert other == data
    assert store.map_run([address]) == data
    assert ChunkStore(folder, readonly=True).read(address) == data


def test_chunks_put_in_one_go_are_one_mapping(store):
    data = content(1, 5 * CHUNK + 12345)
    with store.one_pack():
        addresses = [put(store, bytes(part)) for part in cut(data)]

    mapping = store.map_run(addresses)

    assert mapping == data


def test_one_pack_has_no_bound(store, monkeypatch):
    monkeypatch.setattr(chunk_store, "PACK_BYTES", CHUNK)
    data = content(1, 4 * CHUNK)
    with store.one_pack():
        addresses = [put(store, bytes(part)) for part in cut(data)]

    assert store.map_run(addresses) == data


def test_chunks_that_do_not_lie_in_a_row_are_no_mapping(store):
    data = content(1, 3 * CHUNK)
    addresses = [put(store, bytes(part)) for part in cut(data)]
    delta = put(store, edited(data[:CHUNK], 7), base=addresses[0])

    assert store.map_run([addresses[0], addresses[2]]) is None
    assert store.map_run([addresses[1], addresses[0]]) is None
    assert store.map_run([delta]) is None
    assert store.map_run([]) is None
    assert store.map_run([put(store, b"small")]) is None
    assert store.map_run(addresses) == data


def test_a_mapping_outlives_its_store_and_its_file(folder, store):
    data = content(1, CHUNK)
    mapping = store.map_run([put(store, data)])
    store.close()
    for path in folder.iterdir():
        if os.name == "posix":
            path.unlink()

    assert mapping == data


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="run with Python 3.12: later, mappings hold none")
def test_mappings_leave_descriptors_for_the_user(store, monkeypatch):
    monkeypatch.setattr(packs, "_MOST_MAPPINGS", 3)
    address = put(store, content(1, CHUNK))

    held = [store.map_run([address]) for _ in range(4)]
    assert [one is None for one in held] == [False, False, False, True]
    held.clear()

    assert store.map_run([address]) is not None


# Beside a writer


def test_a_reader_sees_what_is_written_beside_it_once_it_looks_again(folder, store):
    first = put(store, content(1))
    reader = ChunkStore(folder, readonly=True)
    second = put(store, content(2))
    assert reader.has(first) and not reader.has(second)

    reader.refresh()

    assert reader.read(second) == content(2)


def test_a_store_finds_what_another_process_has_put_since_before_it_puts_that_again(folder, store):
    other = ChunkStore(folder, readonly=True)
    put(store, content(1))
    second = put(store, content(2))

    assert other.missing([second, address_of(content(3))]) == [address_of(content(3))]


def test_a_mapping_of_a_pack_that_was_written_anew_is_none_and_the_next_one_is_right(folder, store):
    gone, kept = put(store, content(1, CHUNK)), put(store, content(2, CHUNK))
    reader = ChunkStore(folder, readonly=True)
    store.drop([gone])

    assert reader.map_run([kept]) is None  # its file is gone
    assert reader.map_run([kept]) == content(2, CHUNK)


def test_a_reader_follows_a_chunk_into_another_pack(folder, store):
    """Packs are written anew where chunks are given up; the reader's knowledge of them is old then."""
    gone, kept = put(store, content(1)), put(store, content(2))
    reader = ChunkStore(folder, readonly=True)

    store.drop([gone])

    assert reader.read(kept) == content(2)
    assert not reader.has(gone)


def test_a_reader_is_not_misled_by_a_pack_under_the_number_of_a_removed_one(folder, store):
    first = [put(store, content(seed)) for seed in range(3)]
    reader = ChunkStore(folder, readonly=True)
    reader.read(first[2])
    store.drop(first)
    second = [put(store, content(seed, LARGE + 1)) for seed in range(3)]
    assert sorted(packs.listing(folder)) == [1]

    reader.refresh()

    assert reader.missing(first) == first
    assert [reader.read(address) for address in second] == [content(seed, LARGE + 1) for seed in range(3)]


def test_two_writers_do_not_meet(folder):
    """There is one by contract; should there be two, each has its own packs."""
    one, other = ChunkStore(folder), ChunkStore(folder)
    addresses = [put(store, content(seed)) for seed in range(4) for store in (one, other)][::2]
    one.close()
    other.close()

    reader = ChunkStore(folder, readonly=True)

    assert [reader.read(address) for address in addresses] == [content(seed) for seed in range(4)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="lists descriptors in /proc")
def test_few_descriptors_are_open(folder):
    for seed in range(42):
        store = ChunkStore(folder)
        put(store, content(seed, 100))
        store.close()
    reader = ChunkStore(folder, readonly=True)

    before = len(os.listdir("/proc/self/fd"))
    for entry in reader.entries():
        reader.read(entry.address)

    assert len(os.listdir("/proc/self/fd")) == before


# Giving up


def test_dropped_chunks_are_gone_and_the_others_are_there(folder, store):
    addresses = [put(store, content(seed)) for seed in range(6)]

    before = store.bytes_stored

    assert store.drop(addresses[::2]) == set(addresses[::2])
    assert before - store.bytes_stored >= 3 * LARGE
    assert store.missing(addresses) == addresses[::2]
    for reader in (store, ChunkStore(folder, readonly=True)):
        assert [reader.read(address) for address in addresses[1::2]] == [content(seed) for seed in (1, 3, 5)]
    put(store, content(0))
    assert store.read(addresses[0]) == content(0)


def test_a_chunk_that_a_delta_needs_stays(store):
    data = content(1)
    base = put(store, data)
    middle = put(store, edited(data, 1), base=base)
    last = put(store, edited(data, 1, 9999), base=middle)

    assert store.drop([base, middle]) == set()
    assert store.read(last) == edited(data, 1, 9999)
    assert store.drop([base, middle, last]) == {base, middle, last}
    assert store.bytes_stored == 0


def test_a_run_stays_one_mapping_where_its_pack_is_written_anew(store):
    gone = put(store, content(9, CHUNK))
    data = content(1, 3 * CHUNK)
    addresses = [put(store, bytes(part)) for part in cut(data)]

    store.drop([gone])

    assert store.map_run(addresses) == data


@pytest.mark.skipif(os.name != "posix", reason="packs have no lock there")
def test_a_pack_that_somebody_appends_to_is_left_alone(folder, store):
    other = ChunkStore(folder)
    address = put(other, content(1))
    store.refresh()

    assert store.drop([address]) == set()
    other.close()
    assert store.drop([address]) == {address}


def test_what_killed_writers_left_is_cleared_up(folder, store):
    put(store, b"x")
    (folder / "000007.pack").write_bytes(b"no index")
    (folder / "000008.index").write_bytes(b"no pack")
    (folder / "notes.txt").write_bytes(b"not ours")

    store.drop([])

    assert sorted(path.name for path in folder.iterdir()) == ["000001.index", "000001.pack", "notes.txt"]


# Size


def test_a_hundred_thousand_chunks_are_known_soon(folder):
    """150 ms on a quiet machine, and minutes if each were looked for among the others."""
    folder.mkdir(parents=True)
    packs.pack_path(folder, 1).write_bytes(b"\0" * 100_000)
    with packs.index_path(folder, 1).open("wb") as file:
        file.write(packs._HEADER.pack(packs._MAGIC, 0))
        for at in range(100_000):
            body = packs.body_of(packs.ChunkEntry(f"x{at:032x}", "", 0, 1, at, 1, 1))
            file.write(packs._RECORD.pack(body, xxh3_64_intdigest(body, 1)))

    begin = time.perf_counter()
    store = ChunkStore(folder, readonly=True)
    took = time.perf_counter() - begin

    assert store.has(f"x{99_999:032x}")
    assert len(store.entries()) == 100_000
    assert took < 15


# Whatever happens


@st.composite
def histories(draw):
    """Steps of (what, seed, place): chunks that are new, edits of earlier ones, reopenings, droppings, damage."""
    kinds = ["put", "edit", "edit", "edit", "reopen", "drop", "tear pack", "tear index", "spoil pack", "spoil index"]
    return draw(st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 50), st.integers(0, 10**6)), max_size=25))


def damage(folder: Path, what: str, seed: int, place: int) -> None:
    """Cut a file anywhere, or change one byte of it."""
    action, _, suffix = what.partition(" ")
    files = sorted(folder.glob(f"*.{suffix}"))
    if not files:
        return
    path = files[seed % len(files)]
    size = path.stat().st_size
    if action == "tear":
        os.truncate(path, place % (size + 1))
    elif size:
        with path.open("r+b") as file:
            file.seek(place % size)
            old = file.read(1)
            file.seek(place % size)
            file.write(struct.pack("B", old[0] ^ 0x55))


@settings(max_examples=examples(80))
@given(history=histories())
def test_what_is_read_is_what_was_put_or_is_said_to_be_missing(tmp_path_factory, history):
    """And as long as nothing was damaged, nothing is missing but what was dropped."""
    folder = tmp_path_factory.mktemp("chunks") / "session"
    store = ChunkStore(folder)
    model: dict[str, bytes] = {}
    damaged = False
    for what, seed, place in history:
        if what == "put":
            data = bytes(content(seed, [0, 10, 5000, 65536, 70001, 200_000][place % 6]))
            model[put(store, data)] = data
        elif what == "edit" and model:
            base = sorted(model)[seed % len(model)]
            old = model[base]
            data = bytes(edited(old, *{at % len(old) for at in (place, place * 7)} if old else ()))
            data = data[: len(data) - place % 3] + b"+" * (place % 4)
            model[put(store, data, base)] = data
        elif what == "reopen":
            store.close()
            store = ChunkStore(folder)
        elif what == "drop" and model:
            gone = store.drop([sorted(model)[seed % len(model)]])
            model = {address: data for address, data in model.items() if address not in gone}
        elif what.startswith(("tear", "spoil")) and folder.exists():
            store.close()
            damage(folder, what, seed, place)
            damaged = True
            store = ChunkStore(folder)
        for address, data in model.items():
            said = ""
            try:
                read = store.read(address)
            except StoreError as fault:
                read, said = data, str(fault)
            assert read == data
            assert not said or (damaged and address in said)
    # What is missing can be put again, and is there from then on.
    for address, data in model.items():
        store.put(address, data)
    store.close()
    store = ChunkStore(folder, readonly=True)
    for address, data in model.items():
        assert store.read(address) == data
    store.close()
