"""Hashing only what was written: the addresses are always those of the content, whoever wrote it."""

from __future__ import annotations

import functools
import gc
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.kernel.execution import page_hashes
from ctxkernel.kernel.execution.page_hashes import Memory
from ctxkernel.state.tracking import chunk_addresses
from ctxkernel.state.tracking.chunk_addresses import chunks_of
from ctxkernel.state.types.parts import Unfinished

CHUNK = 64 * 1024
SIZE = 20 * CHUNK


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch small memory, too."""
    for module in (page_hashes, chunk_addresses):
        monkeypatch.setattr(module, "CHUNK", CHUNK)
    monkeypatch.setattr(page_hashes, "LEAST", CHUNK)


@pytest.fixture
def memory() -> Iterator[Memory]:
    made = Memory.of_this_process()
    if made.pages is None:
        pytest.skip("this system does not tell which pages were written")
    yield made
    made.pages.close()


def view_of(array: Any) -> memoryview:
    return memoryview(array).cast("B")


def hashed(memory: Memory, view: memoryview, monkeypatch: pytest.MonkeyPatch) -> int:
    """Look at memory; returns how many chunks were hashed for it."""
    seen: list[int] = []
    plain = chunk_addresses.chunk_address
    with monkeypatch.context() as patched:
        patched.setattr(page_hashes, "chunk_address", lambda *args: (seen.append(1), plain(*args))[1])
        assert memory.chunks(view) == chunks_of(view)
    return len(seen)


WRITES: dict[str, Callable[[Any, int], object]] = {
    "nothing": lambda array, at: None,
    "one": lambda array, at: array.__setitem__(at, array[at] + 1),
    "the first": lambda array, at: array.__setitem__(0, array[0] + 1),
    "the last": lambda array, at: array.__setitem__(-1, array[-1] + 1),
    "some": lambda array, at: array[at : at + 30_000].__iadd__(1),
    "all": lambda array, at: array.__iadd__(1),
    "a thread": lambda array, at: in_thread(lambda: array.__setitem__(at, array[at] + 1)),
    "a system call": lambda array, at: read_into(array, at % 1000),
    "zeroed by a child": lambda array, at: in_child(lambda: array.fill(0)),
}


def in_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def in_child(action: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        action()
        os._exit(0)
    os.waitpid(pid, 0)


def read_into(array: Any, at: int) -> None:
    read, write = os.pipe()
    os.write(write, os.urandom(64))
    os.readv(read, [view_of(array)[at : at + 64]])
    os.close(read)
    os.close(write)


@given(st.lists(st.tuples(st.sampled_from(sorted(WRITES)), st.integers(0, SIZE - 1)), max_size=25), st.integers(0, 9))
def test_the_addresses_are_those_of_the_content_after_any_writes(writes: list[tuple[str, int]], offset: int):
    watching = Memory.of_this_process()
    array = np.ones(SIZE + 9, np.uint8)[offset:]
    for how, at in [*writes, ("nothing", 0)]:
        WRITES[how](array, min(at, len(array) - 1))
        assert watching.chunks(view_of(array)) == chunks_of(view_of(array)), how
    if watching.pages is not None:
        watching.pages.close()


def test_only_what_was_written_is_hashed_again(memory, monkeypatch):
    array = np.ones(SIZE, np.uint8)
    assert hashed(memory, view_of(array), monkeypatch) == 20
    assert hashed(memory, view_of(array), monkeypatch) == 0
    array[5 * CHUNK + 30_000] = 7  # not on a page that two chunks share
    assert hashed(memory, view_of(array), monkeypatch) == 1


def test_memory_that_is_rewritten_again_and_again_is_not_watched(memory, monkeypatch):
    """The first write to each page that is watched costs its writer more than hashing does."""
    array = np.ones(SIZE, np.uint8)
    for _ in range(4):
        hashed(memory, view_of(array), monkeypatch)
        array += 1
    assert not list(memory._ranges.values())[-1].watched


def test_other_memory_at_the_same_address_is_hashed(memory):
    """An array goes, and the next one lies where it was."""
    places: set[int] = set()
    for number in range(20):
        with mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as made:
            array = np.frombuffer(made, np.uint8)
            array[:] = number
            places.add(array.ctypes.data)
            for _ in range(2):
                assert memory.chunks(view_of(array)) == chunks_of(view_of(array))
            del array
            gc.collect()
    assert len(places) < 20


@pytest.mark.parametrize("kind", ["shared memory", "a file"])
def test_memory_that_another_process_can_write_to_is_hashed_each_time(memory, tmp_path, kind, monkeypatch):
    path = tmp_path / "data"
    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno() if kind == "a file" else -1, SIZE) as made:
        array = np.frombuffer(made, np.uint8)
        for _ in range(3):
            memory.chunks(view_of(array))
        in_child(functools.partial(array.__setitem__, 3 * CHUNK, 9))
        assert array[3 * CHUNK] == 9
        assert memory.chunks(view_of(array)) == chunks_of(view_of(array))
        del array


def test_pages_that_were_given_back_are_hashed(memory):
    with mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as made:
        array = np.frombuffer(made, np.uint8)
        array[:] = 3
        for _ in range(3):
            memory.chunks(view_of(array))
        made.madvise(mmap.MADV_DONTNEED)
        assert array[0] == 0
        assert memory.chunks(view_of(array)) == chunks_of(view_of(array))
        del array


def test_a_look_that_ran_out_of_time_is_gone_on_with(memory):
    array = np.ones(SIZE, np.uint8)
    left = 0

    def expired() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    for _ in range(3):
        left = 6
        with pytest.raises(Unfinished):
            memory.chunks(view_of(array), expired)
    array[0] = 5
    left = 4
    assert memory.chunks(view_of(array), expired) == chunks_of(view_of(array))


def test_what_a_return_rests_on_is_hashed_whole(memory, monkeypatch):
    array = np.ones(SIZE, np.uint8)
    hashed(memory, view_of(array), monkeypatch)
    known = list(memory._ranges.values())[-1]
    assert known.watched
    known.chunks = ("x0", *known.chunks[1:])  # as if a device had written past the processor
    assert memory.chunks(view_of(array)) != chunks_of(view_of(array))
    assert memory.chunks(view_of(array), prove=True) == chunks_of(view_of(array))
    assert memory.chunks(view_of(array)) == chunks_of(view_of(array))


def test_where_the_system_cannot_tell_everything_is_hashed(monkeypatch):
    monkeypatch.setattr(page_hashes.platform, "machine", lambda: "riscv64")
    watching = Memory.of_this_process()
    array = np.ones(SIZE, np.uint8)
    assert watching.pages is None
    for _ in range(3):
        array[7] += 1
        assert watching.chunks(view_of(array)) == chunks_of(view_of(array))
