"""What goes wrong under chunks: kills, full and read-only disks, deletion. What is read is right, or named."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_chunks import LARGE, content, edited, put

from ctxkernel.core.errors import StoreError
from ctxkernel.store.chunks import packs
from ctxkernel.store.chunks.background import Background
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of

resource = pytest.importorskip("resource", reason="limits of POSIX")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks and mounts of Linux")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills and forks of POSIX")

KILLS = 40


def states(seed: int):
    """Yield the states of one buffer, each an edit of the one before, with something new now and then."""
    rng = random.Random(seed)
    data = content(seed)
    while True:
        yield bytes(data)
        data = content(rng.randrange(10**9), rng.choice([100, LARGE])) if rng.random() < 0.3 else edited(data, 0)
        if len(data) == LARGE:
            data = edited(data, rng.randrange(LARGE))


def write_for_ever(folder: Path, seed: int, told: int) -> None:
    store, base = ChunkStore(folder), None
    for count, data in enumerate(states(seed)):
        base = put(store, data, base)
        os.write(told, base.encode() + b"\n")
        if count % 7 == 6:
            store.drop([entry.address for entry in store.entries()[:2]])
            os.write(told, b"dropped\n")


def write_beside(folder: Path, seed: int, told: int) -> None:
    """As a kernel does: small things at once, large ones by a child."""
    store = ChunkStore(folder)
    background = Background(store)
    running: dict[object, list[str]] = {}
    some = states(seed)
    while True:
        batch = [next(some) for _ in range(4)]
        small = put(store, b"small" + batch[0][:50])
        os.write(told, small.encode() + b"\n")

        def job(child, batch=tuple(batch)):
            base = None
            for data in batch:
                base = put(child, data, base)
            return

        addresses = [address_of(data) for data in batch]
        running[background.submit(job, nbytes=4 * LARGE, addresses=addresses)] = addresses
        for ticket in background.poll():
            for address in running.pop(ticket):
                if not ticket.fault:
                    os.write(told, address.encode() + b"\n")


def killed_while(writing, folder: Path, seed: int) -> list[str]:
    """Return what a process said was stored before it was killed at a random instant."""
    pipe, its_end = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(its_end, b"-")
            writing(folder, seed, its_end)
        finally:
            os._exit(1)
    os.close(its_end)
    assert os.read(pipe, 1) == b"-"
    time.sleep(random.Random(seed).random() ** 2 * 0.1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with os.fdopen(pipe, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    return [line.decode().strip() for line in lines if line.endswith(b"\n")]


def assert_all_there_is_readable(folder: Path) -> set[str]:
    with_files = ChunkStore(folder, readonly=True)
    for entry in with_files.entries():
        assert with_files.has(entry.address)
        with_files.read(entry.address)
    with_files.close()
    return {entry.address for entry in with_files.entries()}


@pytest.mark.parametrize("batch", range(3))
def test_a_kill_at_any_instant_loses_nothing_that_was_stored(tmp_path, batch):
    """Puts, deltas and droppings: what the process said is there, and all that is there is whole."""
    for kill in range(KILLS):
        folder = tmp_path / str(kill)
        said = killed_while(write_for_ever, folder, batch * KILLS + kill)

        there = assert_all_there_is_readable(folder)

        if "dropped" not in said:
            # The last batch may be in the middle of a dropping, whose first two are going.
            assert len(set(said) - there) <= (2 if len(said) >= 7 else 0)
        if len(said) > 2:
            assert said[-1] == "dropped" or said[-1] in there
        store = ChunkStore(folder)  # the next kernel goes on
        store.drop([])
        assert store.read(put(store, b"on")) == b"on"
        store.close()
        assert assert_all_there_is_readable(folder) >= there
        shutil.rmtree(folder)


@linux
@pytest.mark.parametrize("batch", range(2))
def test_a_kernel_that_is_killed_beside_its_writers_loses_nothing(tmp_path, batch):
    """The writers finish what they had begun, or are killed too; either way index and data agree."""
    for kill in range(KILLS):
        folder = tmp_path / str(kill)
        said = killed_while(write_beside, folder, batch * KILLS + kill)
        early = assert_all_there_is_readable(folder)

        reader = ChunkStore(folder, readonly=True)
        until = time.monotonic() + 20
        while reader.growing and time.monotonic() < until:
            time.sleep(0.005)

        assert not reader.growing
        assert assert_all_there_is_readable(folder) >= early | set(said)
        reader.close()
        shutil.rmtree(folder, ignore_errors=True)


# Disks


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file" / "session", Path("/proc/session")):
        with pytest.raises(StoreError, match="CTXKERNEL_CACHE"):
            put(ChunkStore(folder), b"x")


@linux
def test_a_write_that_fails_leaves_all_that_was_there(tmp_path):
    """RLIMIT_FSIZE: the write stops in the middle, as on a full disk."""
    folder = tmp_path / "session"
    store = ChunkStore(folder)
    first = put(store, content(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE + 100_000, hard))
    try:
        for seed in (2, 3):
            with pytest.raises(StoreError, match="free some space"):
                put(store, content(seed, 2 * LARGE))
            assert store.read(first) == content(1)
            assert not store.has(address_of(content(seed, 2 * LARGE)))
        small = put(store, b"small")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    second = put(store, content(2))

    assert [store.read(address) for address in (first, small, second)] == [content(1), b"small", content(2)]
    assert assert_all_there_is_readable(folder) == {first, small, second}
    assert store.bytes_stored < 4 * LARGE  # what was written in vain is cut off
    store.close()


MOUNT = ["unshare", "-rm", "sh", "-c"]
SMALL_DISK = """
import os, subprocess, sys
from pathlib import Path
from ctxkernel.core.errors import StoreError
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of
from ctxkernel.store.chunks.background import Background
disk = Path(sys.argv[1])
folder = disk / "session"
store = ChunkStore(folder)
data = [bytes([n]) * 100_000 for n in range(30)]
kept = []
try:
    for one in data:
        store.put(address_of(one), one)
        kept.append(one)
except StoreError as fault:
    assert "No space left" in str(fault) and "CTXKERNEL_CACHE" in str(fault), fault
assert 3 < len(kept) < 20, len(kept)
def check(store):
    for one in kept:
        assert store.read(address_of(one)) == one
check(store)
background = Background(store)
ticket = background.submit(lambda child: child.put(address_of(data[-1]), data[-1]), nbytes=100_000)
background.wait(10)
assert "No space left" in ticket.fault, ticket.fault
assert not store.has(address_of(data[-1]))
check(store)
try:
    store.drop([address_of(kept.pop(0)), address_of(kept.pop(0))])
    raise AssertionError("there is no room to write the pack anew")
except StoreError as fault:
    assert "No space left" in str(fault), fault
check(store)
store.close()
check(ChunkStore(folder, readonly=True))
subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
again = ChunkStore(folder)
check(again)
try:
    again.put(address_of(b"x"), b"x")
    raise AssertionError("written")
except StoreError as fault:
    assert "Read-only" in str(fault), fault
"""


@linux
def test_a_small_disk_and_a_read_only_one(tmp_path):
    """A real ENOSPC at a put, in a child and at a dropping; then a real read-only mount."""
    command = f"mount -t tmpfs tmpfs {tmp_path}"
    if subprocess.run([*MOUNT, command], check=False, capture_output=True).returncode:
        pytest.skip("run as root, or where users may mount: unshare -rm is refused here")
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "script.py").write_text(SMALL_DISK)
    command = f"mount -t tmpfs -o size=1m tmpfs {disk} && {sys.executable} {tmp_path}/script.py {disk}"
    root = Path(__file__).parent.parent

    ran = subprocess.run([*MOUNT, command], check=False, capture_output=True, text=True, timeout=60, cwd=root)

    assert ran.returncode == 0, ran.stderr


def test_a_folder_that_is_deleted_is_said_once_and_made_anew(tmp_path):
    folder = tmp_path / "session"
    store = ChunkStore(folder)
    put(store, content(1))
    shutil.rmtree(folder)

    with pytest.raises(StoreError, match="deleted while the kernel ran"):
        put(store, content(2))

    assert not store.has(address_of(content(1)))
    store.check_folder()
    assert store.read(put(store, content(1))) == content(1)
    assert ChunkStore(folder, readonly=True).read(address_of(content(1))) == content(1)
    store.close()


def test_a_folder_that_is_deleted_is_noticed_before_a_child_writes(tmp_path):
    folder = tmp_path / "session"
    store = ChunkStore(folder)
    put(store, content(1))
    store.close()
    store = ChunkStore(folder)
    shutil.rmtree(folder)
    background = Background(store)

    ticket = background.submit(lambda child: put(child, content(1)), nbytes=LARGE)
    assert not background.can_fork or "deleted while the kernel ran" in ticket.fault
    ticket = background.submit(lambda child: put(child, content(1)), nbytes=LARGE)
    background.wait(20)

    assert ticket.fault == ""
    assert store.read(address_of(content(1))) == content(1)
    store.close()


def test_a_chunk_whose_pack_is_gone_is_named_and_can_be_put_again(tmp_path):
    store = ChunkStore(tmp_path / "session")
    address = put(store, content(1))
    store.close()
    packs.pack_path(tmp_path / "session", 1).unlink()

    with pytest.raises(StoreError, match=address):
        store.read(address)

    assert put(store, content(1)) == address
    assert store.read(address) == content(1)
    store.close()


# Damage


def test_a_damaged_chunk_is_named_and_can_be_put_again(tmp_path):
    folder = tmp_path / "session"
    store = ChunkStore(folder)
    base = put(store, content(1))
    delta = put(store, edited(content(1), 50_000), base)
    store.close()
    with packs.pack_path(folder, 1).open("r+b") as file:
        file.seek(100)
        file.write(b"damage")
    store = ChunkStore(folder)

    with pytest.raises(StoreError, match=f"{delta}.* is damaged .*{base}"):
        store.read(delta)
    assert store.missing([base, delta]) == [base, delta]
    put(store, content(1))
    assert store.read(delta) == edited(content(1), 50_000)

    store.close()
    store = ChunkStore(folder)
    assert store.read(base) == content(1)
    store.close()


def test_a_second_read_checks_the_content_again(tmp_path):
    folder = tmp_path / "session"
    store = ChunkStore(folder)
    address = put(store, content(1))
    store.read(address)
    with packs.pack_path(folder, 1).open("r+b") as file:
        file.write(b"damage")

    with pytest.raises(StoreError, match="not what was stored"):
        store.read(address)
    store.close()


@pytest.mark.parametrize("header", [b"", b"ctxkernel pack2\n", b"something else\n\n"])
def test_an_index_of_another_format_is_left_alone(tmp_path, header):
    folder = tmp_path / "session"
    store = ChunkStore(folder)
    address = put(store, b"x")
    store.close()
    index = packs.index_path(folder, 1)
    index.write_bytes(header + index.read_bytes()[len(packs._MAGIC) :])

    store = ChunkStore(folder)

    assert not store.has(address)
    put(store, b"x")
    assert store.read(address) == b"x"
    store.close()


def test_an_index_under_another_number_is_not_believed(tmp_path):
    """A file manager's copy, or a sync program's."""
    folder = tmp_path / "session"
    store = ChunkStore(folder)
    put(store, b"x")
    store.close()
    for path in list(folder.iterdir()):
        shutil.copy(path, path.with_name(path.name.replace("1", "2")))

    store = ChunkStore(folder, readonly=True)

    assert [entry.pack for entry in store.entries()] == [1]


def test_every_torn_tail_of_an_index_leaves_what_stands_before_it(tmp_path):
    folder = tmp_path / "session"
    store = ChunkStore(folder)
    addresses = [put(store, bytes([n]) * 100) for n in range(5)]
    store.close()
    index = packs.index_path(folder, 1)
    whole = index.read_bytes()
    header = packs._HEADER.size
    record = (len(whole) - header) // 5

    for length in range(len(whole) + 1):
        index.write_bytes(whole[:length])
        reader = ChunkStore(folder, readonly=True)
        there = max(0, length - header) // record
        assert reader.missing(addresses) == addresses[there:]
        assert [reader.read(address)[0] for address in addresses[:there]] == list(range(there))
        reader.close()


def test_every_torn_tail_of_a_pack_leaves_what_stands_before_it(tmp_path):
    folder = tmp_path / "session"
    store = ChunkStore(folder)
    addresses = [put(store, bytes([n]) * 100) for n in range(5)]
    store.close()
    pack = packs.pack_path(folder, 1)

    for length in range(500, -1, -1):
        os.truncate(pack, length)
        reader = ChunkStore(folder, readonly=True)
        assert reader.missing(addresses) == addresses[length // 100 :]
        reader.close()


@linux
def test_a_process_without_descriptors_left_finds_its_chunks_again(tmp_path):
    """What cannot be read just now is not damaged."""
    store = ChunkStore(tmp_path / "session")
    address = put(store, content(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(StoreError, match=f"{address}.* cannot be read .*Too many open files"):
            store.read(address)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert store.read(address) == content(1)
    store.close()


# Processes of the user's


def test_a_child_that_the_user_forked_appends_to_a_pack_of_its_own(tmp_path):
    folder = tmp_path / "session"
    store = ChunkStore(folder)
    first = put(store, content(1))
    pid = os.fork()
    if not pid:
        try:
            put(store, content(2))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    third = put(store, content(3))
    store.refresh()

    assert [store.read(one) for one in (first, third)] == [content(1), content(3)]
    assert store.read(address_of(content(2))) == content(2)
    assert sorted(packs.listing(folder)) == [1, 2]
    store.close()
