"""The limit on checkpoint data: whose chunks go, in which order, and what is never touched."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples
from test_chunks import LARGE, content, edited, put

from ctxkernel.store.chunks import chunk_store, data_folder
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of
from ctxkernel.store.chunks.quota import collect, last_use, limit_bytes, root_folder, usage

DAY = 86400.0
NOW = 100 * DAY
MB = 1024 * 1024


@pytest.fixture(autouse=True)
def readable_names(monkeypatch):
    """Let the folders of sessions have names that tell what they hold, in place of hashes."""
    monkeypatch.setattr(data_folder, "_OWN", re.compile(r"[\w-]+"))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


def session(root: Path, name: str, *contents: bytes | bytearray, used: float = NOW, close: bool = True) -> ChunkStore:
    """Make a session that holds `contents` and was used `used` seconds after the epoch."""
    store = ChunkStore(root / name)
    for data in contents:
        put(store, data)
    if close:
        store.close()
    for path in (root / name).iterdir():
        os.utime(path, (used, used))
    return store


def there(root: Path, name: str, *contents: bytes | bytearray) -> list[bool]:
    store = ChunkStore(root / name, readonly=True)
    for data in contents:
        if store.has(address_of(data)):
            assert store.read(address_of(data)) == data
    return [store.has(address_of(data)) for data in contents]


def some(first: int, count: int) -> list[bytearray]:
    return [content(seed, MB) for seed in range(first, first + count)]


def test_nothing_happens_within_the_limit(root):
    session(root, "a", *some(0, 3))
    before = sorted(root.rglob("*"))

    report = collect(root, 10 * MB, live=(), now=NOW)

    assert report.thinned == () and report.enough
    assert report.before == report.after >= 3 * MB
    assert sorted(root.rglob("*")) == before


def test_the_session_used_longest_ago_gives_first_and_the_newest_nothing(root):
    old, middle, new = some(0, 4), some(10, 4), some(20, 4)
    session(root, "a-new", *new, used=NOW)
    session(root, "b-old", *old, used=NOW - 30 * DAY)
    session(root, "c-middle", *middle, used=NOW - 2 * DAY)

    report = collect(root, 8 * MB, live=(), now=NOW)

    assert [one.session_id for one in report.thinned] == ["b-old", "c-middle"]
    assert report.enough and report.after <= 8 * MB
    assert there(root, "b-old", *old) == [False] * 4
    assert there(root, "c-middle", *middle) == [False, True, True, True]  # the oldest of them
    assert there(root, "a-new", *new) == [True] * 4
    assert report.thinned[0].why == "last used 30 days ago; 4 large chunks, 4.2 MB"


def test_small_chunks_stay(root):
    small = [content(seed, 5000) for seed in range(100)]
    session(root, "a", *some(0, 3), *small)

    report = collect(root, 1000, live=(), now=NOW)

    assert there(root, "a", *small) == [True] * 100
    assert there(root, "a", *some(0, 3)) == [False] * 3
    assert not report.enough


def test_a_session_whose_kernel_lives_is_left_alone(root):
    """Known by its id, or by the lock that an open store holds."""
    session(root, "told", *some(0, 4), used=NOW - 9 * DAY)
    locked = session(root, "locked", *some(10, 4), used=NOW - 8 * DAY, close=False)
    session(root, "ended", *some(20, 4), used=NOW)

    report = collect(root, 9 * MB, live={"told"}, now=NOW)

    assert [one.session_id for one in report.thinned] == ["ended"]
    assert there(root, "told", *some(0, 4)) == there(root, "locked", *some(10, 4)) == [True] * 4
    locked.close()
    assert [one.session_id for one in collect(root, 5 * MB, live={"told"}, now=NOW).thinned] == ["locked"]


def test_the_own_session_gives_last_and_goes_on(root):
    own = session(root, "own", *some(0, 4), used=NOW - 50 * DAY, close=False)
    session(root, "other", *some(10, 2))

    report = collect(root, 3 * MB, live={"own"}, own={"own": own}, now=NOW)

    assert [one.session_id for one in report.thinned] == ["other", "own"]
    assert report.enough
    assert own.read(put(own, content(99))) == content(99)
    assert own.read(address_of(some(3, 1)[0])) == some(3, 1)[0]
    own.close()


def test_what_is_to_be_kept_stays_and_what_it_builds_on(root):
    base = content(1, MB)
    newest = edited(base, 5)
    store = session(root, "a", base, *some(10, 3), close=False)
    put(store, newest, address_of(base))
    store.close()

    collect(root, 10, live=(), keep={address_of(newest)}, now=NOW)

    assert there(root, "a", newest, base, *some(10, 3)) == [True, True, False, False, False]


def test_a_base_goes_with_the_last_of_its_deltas(root):
    base, other = content(1, MB), content(2, MB)
    delta = edited(base, 5)
    store = session(root, "a", base, other, close=False)
    put(store, delta, address_of(base))
    store.close()

    collect(root, int(1.6 * MB), live=(), now=NOW)
    assert there(root, "a", base, delta, other) == [True, True, False]

    collect(root, MB // 2, live=(), now=NOW)
    assert there(root, "a", base, delta, other) == [False, False, False]


def test_a_dry_run_says_what_would_go_and_changes_nothing(root):
    session(root, "a", *some(0, 4))
    before = {path: path.read_bytes() for path in (root / "a").iterdir()}

    told = collect(root, 3 * MB, live=(), now=NOW, dry_run=True)

    assert {path: path.read_bytes() for path in (root / "a").iterdir()} == before
    done = collect(root, 3 * MB, live=(), now=NOW)
    assert [one.addresses for one in told.thinned] == [one.addresses for one in done.thinned]
    assert abs(told.after - done.after) < 10_000
    assert told.dry_run and not done.dry_run


def test_the_fault_of_one_session_does_not_save_the_others(root):
    session(root, "a", *some(0, 3), used=NOW - DAY)
    session(root, "b", *some(10, 3))

    def broken(self, *args):
        if self.folder.name == "a":
            raise OSError(30, "Read-only file system")
        return rewrite(self, *args)

    rewrite = ChunkStore._rewrite
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChunkStore, "_rewrite", broken)
        report = collect(root, 4 * MB, live=(), now=NOW)

    assert "Read-only" in report.faults[0] and report.faults[0].startswith("a: ")
    assert [one.session_id for one in report.thinned] == ["b"]


def test_a_folder_that_is_not_there_has_no_usage(root):
    assert usage(root) == {}
    assert collect(root, 1, live=()).enough
    assert last_use(root / "none") == 0.0


def test_usage_is_what_the_disk_gives(root):
    session(root, "a", *some(0, 2))
    session(root, "b", b"small")
    (root / "c.lock").write_bytes(b"")

    found = usage(root)

    assert list(found) == ["a", "b"]
    assert 2 * MB <= found["a"] < 2.1 * MB
    assert 0 < found["b"] < 20_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills of POSIX")
@pytest.mark.parametrize("batch", range(2))
def test_a_kill_while_data_are_given_up_loses_nothing_that_was_to_stay(root, batch, monkeypatch):
    monkeypatch.setattr(chunk_store, "PACK_BYTES", 4 * LARGE)
    small = [content(seed, 3000) for seed in range(40)]
    for kill in range(20):
        name = f"{batch}-{kill}"
        data = [content(seed) for seed in range(12)]
        session(root / name, "a", *[one for pair in zip(data, small[:12], strict=True) for one in pair], *small[12:])
        keep = {address_of(one) for one in data[::3]}
        pipe, its_end = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.write(its_end, b"-")
                collect(root / name, 1, live=(), keep=keep, now=NOW)
            finally:
                os._exit(0)
        os.read(pipe, 1)
        time.sleep(random.Random(kill + 100 * batch).random() * 0.03)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(pipe)
        os.close(its_end)

        assert there(root / name, "a", *data[::3], *small) == [True] * (4 + 40)
        there(root / name, "a", *data)  # what is left of the others is whole
        collect(root / name, 1, live=(), keep=keep, now=NOW)
        assert there(root / name, "a", *data) == [seed % 3 == 0 for seed in range(12)]
        assert usage(root / name)["a"] < 5 * LARGE + 200_000


@settings(max_examples=examples(40))
@given(data=st.data())
def test_what_stays_is_whole_and_what_is_kept_stays(tmp_path_factory, data):
    """Random sessions with chains of deltas, and a random limit."""
    root = tmp_path_factory.mktemp("quota")
    model: dict[str, dict[str, bytes]] = {}
    for name in ("a", "b", "c"):
        store = ChunkStore(root / name)
        there: dict[str, bytes] = {}
        for seed in data.draw(st.lists(st.integers(0, 20), max_size=8)):
            if there and seed % 2:
                base = list(there)[seed % len(there)]
                made = bytes(edited(there[base], seed)) if there[base] else b"x"
            else:
                base, made = None, bytes(content(seed, [LARGE, 3000, 70_000][seed % 3]))
            there[put(store, made, base)] = made
        store.close()
        if (root / name).exists():
            model[name] = there
    everything = {address for there in model.values() for address in there}
    keep = set(data.draw(st.lists(st.sampled_from(sorted(everything)), max_size=3))) if everything else set()
    limit = data.draw(st.integers(1, 3 * LARGE))

    report = collect(root, limit, live={"c"}, keep=keep, now=NOW)

    assert report.after == sum(usage(root).values())
    gone = {one.session_id: one.addresses for one in report.thinned}
    assert "c" not in gone
    for name, there in model.items():
        store = ChunkStore(root / name, readonly=True)
        for address, made in there.items():
            if address in gone.get(name, ()):
                assert not store.has(address)
                assert address not in keep and len(made) >= 64 * 1024
            else:
                assert store.read(address) == made


# Where and how much


@pytest.mark.parametrize(
    ("platform", "env", "expected"),
    [
        ("linux", {"HOME": "/h"}, "/h/.cache/ctxkernel/checkpoints"),
        ("linux", {"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/ctxkernel/checkpoints"),
        ("linux", {"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "/h/.cache/ctxkernel/checkpoints"),
        ("darwin", {"HOME": "/h"}, "/h/Library/Caches/ctxkernel/checkpoints"),
        ("win32", {"USERPROFILE": "/h", "LOCALAPPDATA": "/l"}, "/l/ctxkernel/checkpoints"),
        ("win32", {"USERPROFILE": "/h"}, "/h/AppData/Local/ctxkernel/checkpoints"),
        ("linux", {"HOME": "/h", "CTXKERNEL_CACHE": "/big/disk"}, "/big/disk/checkpoints"),
    ],
)
def test_the_folder_of_the_data(platform, env, expected):
    assert root_folder(env, platform).as_posix() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, 20e9), ("", 20e9), ("5", 5e9), ("0.5", 5e8), ("0", 20e9), ("-1", 20e9), ("much", 20e9), ("inf", 20e9)],
)
def test_the_limit_is_a_number_of_gigabytes(text, expected):
    assert limit_bytes({} if text is None else {"CTXKERNEL_QUOTA_GB": text}) == expected
