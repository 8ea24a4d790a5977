"""Jobs beside the cell: what a forked child wrote is there, and nothing of the user's process is disturbed."""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from test_chunks import LARGE, content, edited, put

from ctxkernel.state.tracking.chunk_addresses import CHUNK
from ctxkernel.store.chunks import background as module
from ctxkernel.store.chunks.background import MOST_JOBS, Background
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of
from ctxkernel.store.chunks.free_memory import free_memory

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere nothing is forked")


@pytest.fixture
def store(tmp_path):
    store = ChunkStore(tmp_path / "session")
    yield store
    store.close()


@pytest.fixture
def background(store):
    background = Background(store)
    yield background
    background.wait(20)
    background.close()


def run(background, job, **options):
    """Hand a job over and wait for it."""
    ticket = background.submit(job, nbytes=options.pop("nbytes", LARGE), **options)
    background.wait(20)
    assert ticket.done
    return ticket


def puts(*contents):
    return lambda store: [put(store, data) for data in contents]


@pytest.mark.parametrize("switch", ["", "0"])
def test_what_a_job_put_is_there_when_it_is_done(store, switch, monkeypatch):
    monkeypatch.setenv("CTXKERNEL_FORK", switch)
    background = Background(store)

    ticket = run(background, puts(content(1), b"small"))

    assert ticket.fault == ""
    assert ticket.result == [address_of(content(1)), address_of(b"small")]
    assert [store.read(address) for address in ticket.result] == [content(1), b"small"]


def test_a_job_runs_at_once_where_nothing_is_forked(store, monkeypatch):
    monkeypatch.setenv("CTXKERNEL_FORK", "0")
    background = Background(store)
    assert not background.can_fork

    ticket = background.submit(lambda store: os.getpid(), nbytes=1)

    assert (ticket.done, ticket.result) == (True, os.getpid())
    assert background.poll() == []


def test_a_fault_of_a_job_that_runs_at_once_is_told(store, monkeypatch):
    monkeypatch.setenv("CTXKERNEL_FORK", "0")

    def job(store):
        raise ValueError("this object cannot be pickled")

    ticket = Background(store).submit(job, nbytes=1)

    assert ticket.done
    assert ticket.fault == "ValueError: this object cannot be pickled"


@linux
def test_a_job_sees_the_memory_as_it_was(store, background):
    data = content(1)
    address = address_of(data)

    ticket = background.submit(lambda store: store.put(address, data), nbytes=LARGE, addresses=[address])
    data[:] = bytes(LARGE)
    background.wait(20)

    assert ticket.fault == ""
    assert store.read(address) == content(1)


@linux
def test_addresses_under_way_are_pending(store, background):
    address = address_of(content(1))

    def job(store):
        time.sleep(1)
        return put(store, content(1))

    background.submit(job, nbytes=LARGE, addresses=[address])

    assert background.has_or_pending(address)
    assert not store.has(address)
    assert background.pending_bytes == LARGE
    background.wait(20)
    assert store.has(address)
    assert background.pending_bytes == 0


@linux
def test_a_child_knows_what_is_there_and_writes_deltas_of_it(store, background):
    old, new = content(1), edited(content(1), 5)
    base = put(store, old)

    ticket = run(background, lambda child: [child.put(base, old), child.put(address_of(new), new, base=base)])

    assert ticket.result[0] == 0
    assert 0 < ticket.result[1] < LARGE / 10
    assert store.read(address_of(new)) == new


@linux
def test_the_parent_writes_on_beside_its_child(store, background):
    first = put(store, content(1))
    background.submit(lambda child: [time.sleep(0.1), put(child, content(2))][1], nbytes=LARGE)
    third = put(store, content(3))
    background.wait(20)

    assert [store.read(one) for one in (first, address_of(content(2)), third)] == [content(1), content(2), content(3)]


@linux
def test_a_buffer_that_a_child_wrote_is_one_mapping(store, background):
    data = content(1, 3 * CHUNK + 5)
    parts = [memoryview(data)[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    addresses = [address_of(part) for part in parts]

    run(background, lambda child: [child.put(a, part) for a, part in zip(addresses, parts, strict=True)])

    assert store.map_run(addresses) == data


@linux
def test_a_job_that_wrote_nothing_leaves_nothing(store, background):
    put(store, b"x")

    assert run(background, puts(b"x")).fault == ""

    assert len(list(store.folder.glob("*"))) == 2


@linux
def test_a_large_result_arrives(background):
    """More than a pipe holds: the child waits until the parent looks."""
    ticket = run(background, lambda child: "x" * 3_000_000)

    assert ticket.result == "x" * 3_000_000


# Faults


def endless():
    return endless()


def failing(kind):
    def job(store):
        put(store, content(1))
        if kind == "raises":
            raise ValueError("no")
        if kind == "hangs":
            time.sleep(100)
        if kind == "spins":
            while True:
                pass
        if kind == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "exits":
            os._exit(3)
        if kind == "calls sys.exit":
            sys.exit("good bye")
        if kind == "recurses":
            return endless()
        if kind == "gives no JSON":
            return {1, 2}
        raise AssertionError(kind)

    return job


@linux
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("raises", "ValueError: no"),
        ("hangs", "longer than 0.3 s"),
        ("spins", "longer than 0.3 s"),
        ("is killed", "was killed"),
        ("exits", "was killed"),
        ("calls sys.exit", "SystemExit: good bye"),
        ("recurses", "RecursionError"),
        ("gives no JSON", "TypeError"),
    ],
)
def test_a_job_that_fails_says_why_and_leaves_nothing(store, background, kind, says):
    put(store, b"before")

    ticket = run(background, failing(kind), seconds=0.3 if "longer" in says else 60)

    assert says in ticket.fault
    assert ticket.result is None
    assert not store.has(address_of(content(1)))
    assert len(list(store.folder.glob("*"))) == 2
    assert run(background, puts(content(1))).fault == ""


@linux
def test_a_child_that_its_timer_does_not_end_is_killed(store, background, monkeypatch):
    monkeypatch.setattr(module, "_GRACE", 0.1)

    def job(store):
        signal.setitimer(signal.ITIMER_REAL, 0)
        time.sleep(100)

    assert "longer than 0.1 s" in run(background, job, seconds=0.1).fault


@linux
@linux
def test_a_child_that_waits_for_a_thread_is_killed_soon_and_said_to_hang(store, background, monkeypatch):
    """As a library does that began OpenMP before the fork; the same job runs in this process."""
    monkeypatch.setattr(module, "_HANGS", 0.3)
    child = os.getpid

    def job(store):
        if child() != here:
            threading.Event().wait()
        return 5

    here = os.getpid()
    ticket = run(background, job)

    assert ticket.hangs and "hung" in ticket.fault
    assert ticket.seconds < 15
    assert run(background, job, here=True).result == 5


@linux
def test_a_child_whose_output_nobody_reads_does_not_count_as_hung(store, background, monkeypatch):
    """It sleeps at a full pipe while a cell runs for hours; here each look reads only as much as a pipe holds."""
    monkeypatch.setattr(module, "_HANGS", 0.25)
    read, turns = os.read, itertools.count()

    def once(descriptor: int, size: int) -> bytes:
        if descriptor == ticket.pipe and next(turns) % 2:
            raise BlockingIOError
        return read(descriptor, size)

    ticket = background.submit(lambda store: "x" * 1_000_000, nbytes=0)
    monkeypatch.setattr(os, "read", once)

    for _ in range(60):
        time.sleep(0.1)
        background.poll()
        if ticket.done:
            break

    assert ticket.result == "x" * 1_000_000


@linux
def test_a_child_that_works_does_not_count_as_hung(store, background, monkeypatch):
    """Also one that sleeps now and then."""
    monkeypatch.setattr(module, "_HANGS", 0.5)

    def job(store):
        for _ in range(20):
            sum(range(1_000_000))
            time.sleep(0.02)
        return 5

    assert run(background, job).result == 5


@linux
def test_only_a_job_that_takes_long_gives_way_to_cells(background, monkeypatch):
    """A cell may wait for a short one."""
    monkeypatch.setattr(module, "_SHORT", 0.1)

    def job(_):
        first = os.nice(0)
        while time.process_time() < 0.3:
            pass
        return [first, os.nice(0)]

    mine = os.nice(0)
    assert run(background, job).result == [mine, min(19, mine + 10)]


def test_a_file_that_may_not_grow_is_a_fault_of_the_job(store, background):
    import resource

    def job(store):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        return put(store, content(1))

    ticket = run(background, job)

    assert "cannot be written" in ticket.fault
    assert not store.has(address_of(content(1)))
    assert store.read(put(store, content(1))) == content(1)


@linux
def test_too_many_jobs_are_refused_after_a_bounded_wait(background):
    slow = lambda store: time.sleep(4)  # noqa: E731
    running = [background.submit(slow, nbytes=1) for _ in range(MOST_JOBS)]
    begin = time.monotonic()

    refused = background.submit(slow, nbytes=1, patience=0.2)

    assert refused.done and "still under way" in refused.fault
    assert time.monotonic() - begin > 0.1
    assert not any(ticket.done for ticket in running)
    assert background.submit(slow, nbytes=1, patience=20).fault == ""  # waits for one of them


@linux
def test_a_job_is_refused_where_memory_is_short(background, monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda: 100 * 1024 * 1024)

    assert "too few to write 52.4 MB" in background.submit(puts(b"x"), nbytes=50 << 20).fault
    assert run(background, puts(b"x"), nbytes=10 << 20).fault == ""


@linux
def test_a_fork_that_fails_is_told(store, background, monkeypatch):
    import posix

    def refuse():
        raise OSError(12, "Cannot allocate memory")

    put(store, b"x")
    monkeypatch.setattr(posix, "fork", refuse)
    descriptors = open_descriptors()

    assert "Cannot allocate memory" in background.submit(puts(b"x"), nbytes=1).fault

    assert open_descriptors() == descriptors
    assert len(list(store.folder.glob("*"))) == 2


# The user's process


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def children() -> set[int]:
    """Return the processes that a wait of ours could end with: other tests have theirs."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


@linux
def test_no_descriptor_and_no_process_is_left(background):
    run(background, puts(b"first"))
    before, others = open_descriptors(), children()

    for turn in range(20):
        run(background, puts(content(turn)) if turn % 2 else failing("raises"))

    assert open_descriptors() == before
    assert children() == others


@linux
def test_a_wait_of_the_users_finds_no_child_of_ours(background):
    others = children()
    background.submit(lambda store: time.sleep(0.5), nbytes=1)
    background.settle()

    assert children() == others


@linux
@pytest.mark.parametrize("handler", [signal.SIG_IGN, "reaps"])
def test_a_handler_of_the_users_may_wait_for_our_child(background, handler):
    def reap(number, frame):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    before = signal.signal(signal.SIGCHLD, reap if handler == "reaps" else handler)
    try:
        assert run(background, puts(content(1))).fault == ""
    finally:
        signal.signal(signal.SIGCHLD, before)


@linux
def test_processes_of_the_users_run_as_ever(background):
    background.submit(lambda store: time.sleep(0.3), nbytes=1)

    assert subprocess.run(["true"], check=False).returncode == 0
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]


@linux
def test_an_interrupt_does_not_reach_the_child(background):
    def job(store):
        os.kill(os.getpid(), signal.SIGINT)
        return signal.getsignal(signal.SIGINT) == signal.SIG_IGN

    assert run(background, job).result is True


@linux
def test_the_child_is_outside_the_kernels_group(background):
    """A server that restarts a kernel kills its group; what was begun is still finished."""
    assert run(background, lambda store: os.getpgrp()).result != os.getpgrp()


@linux
def test_the_signals_of_the_parent_are_as_they_were(background):
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    ours = (signal.SIGINT, signal.SIGALRM, signal.SIGTERM, signal.SIGCHLD)
    handlers = [signal.getsignal(one) for one in ours]
    timer = signal.getitimer(signal.ITIMER_REAL)  # pytest-timeout's

    run(background, puts(b"x"))

    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == blocked
    assert handlers == [signal.getsignal(one) for one in ours]
    assert signal.getitimer(signal.ITIMER_REAL) == pytest.approx(timer, abs=20)


@linux
def test_a_port_of_the_kernel_is_free_once_it_ended(background):
    """A server restarts a kernel on the same ports, beside a child that still writes."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        ticket = background.submit(lambda store: time.sleep(6), nbytes=1)
    until = time.monotonic() + 4  # the child closes what it has of it, soon after the fork
    with socket.socket() as again:
        while True:
            try:
                again.bind(("127.0.0.1", port))
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)
    assert not ticket.done


@linux
def test_a_child_cannot_move_or_write_a_file_of_the_users(background, tmp_path):
    path = tmp_path / "users.txt"
    with path.open("w+") as file:
        file.write("first")
        file.flush()

        def job(store):
            file.write(" second")
            file.flush()
            file.seek(0)
            return len(file.read())

        run(background, job)
        file.write(" third")
    assert path.read_text() == "first third"


@linux
def test_a_child_writes_to_no_output_of_the_kernels(background, capfd):
    def job(store):
        print("heard?", flush=True)
        os.write(1, b"heard?")
        os.write(2, b"heard?")

    run(background, job)

    assert capfd.readouterr() == ("", "")


@linux
def test_a_debugger_or_profiler_is_left_behind(background):
    calls = []
    sys.setprofile(lambda *call: calls.append(call))
    try:
        ticket = run(background, lambda store: sys.getprofile() is None and sys.gettrace() is None)
    finally:
        sys.setprofile(None)
    assert ticket.result is True


@linux
def test_a_debugger_that_replaced_settrace_prints_no_warning_into_the_cell(background, monkeypatch, capfd):
    """debugpy's function warns on the standard error that the child has from its parent."""
    stock = sys.settrace
    monkeypatch.setattr(sys, "settrace", lambda function: (os.write(2, b"DEBUGGER WARNING"), stock(function)))
    stock(lambda *event: None)
    try:
        ticket = run(background, lambda store: sys.gettrace() is None)
    finally:
        stock(None)
    assert ticket.result is True
    assert capfd.readouterr().err == ""


@linux
def test_a_fork_that_somebody_replaced_is_not_used(background, monkeypatch):
    """Debuggers and gevent put their own in place of os.fork."""
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("called"))

    assert run(background, puts(b"x")).fault == ""


@linux
def test_a_library_that_speaks_up_at_a_fork_is_kept_from_it(background, monkeypatch):
    """Hugging Face's tokenizers write to stderr in every child, unless this variable is set."""
    monkeypatch.setitem(sys.modules, "tokenizers", sys)
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)

    assert run(background, lambda store: os.environ.get("TOKENIZERS_PARALLELISM")).result == "false"

    assert "TOKENIZERS_PARALLELISM" not in os.environ


@linux
def test_an_exception_whose_message_cannot_be_read_is_told_all_the_same(store, background, monkeypatch):
    class Nasty(Exception):
        def __str__(self):
            raise RuntimeError("no")

    def job(store):
        raise Nasty

    monkeypatch.setenv("CTXKERNEL_FORK", "0")
    for one in (background, Background(store)):
        assert run(one, job).fault == "Nasty: its message cannot be read"


@linux
def test_no_warning_of_threads_is_shown(background):
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            assert run(background, puts(b"x")).fault == ""
    finally:
        stop.set()
        thread.join()
    assert not shown


def test_a_job_from_another_thread_is_not_forked(background):
    results = []
    thread = threading.Thread(target=lambda: results.append(background.submit(lambda store: os.getpid(), nbytes=1)))
    thread.start()
    thread.join()

    assert results[0].result == os.getpid()


@linux
def test_a_child_that_the_user_forked_leaves_the_jobs_alone(store, background):
    ticket = background.submit(lambda child: [time.sleep(0.3), put(child, content(1))][1], nbytes=LARGE)
    pid = os.fork()
    if not pid:
        try:
            time.sleep(0.5)
            assert background.poll() == []
            assert not background.can_fork
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    background.wait(20)
    assert ticket.fault == ""
    assert store.read(address_of(content(1))) == content(1)


@linux
def test_polling_takes_no_time(background):
    background.submit(lambda store: time.sleep(1), nbytes=1)
    background.settle()
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        assert background.poll() == []
        times.append(time.perf_counter() - begin)
    assert sorted(times)[10] < 0.005


@linux
def test_a_store_closed_beside_its_child_has_the_rest_later(store, background):
    """As when a kernel shuts down: the next one finds it."""
    background.submit(lambda child: [time.sleep(0.2), put(child, content(1))][1], nbytes=LARGE)
    background.close()
    store.close()
    reader = ChunkStore(store.folder, readonly=True)
    until = time.monotonic() + 20
    while reader.growing and time.monotonic() < until:
        time.sleep(0.01)

    reader.refresh()

    assert reader.read(address_of(content(1))) == content(1)


@linux
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.killpg(0, 9)"])
def test_a_job_is_done_if_its_kernel_is_killed_before_its_process_is_ready(tmp_path, end):
    """A server that restarts a kernel kills its process group. Each process of the job is delayed here."""
    program = f"""
import os, time
from pathlib import Path
from ctxkernel.store.chunks import background
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of
def delayed(function):
    def wait(*args):
        time.sleep(0.3)
        return function(*args)
    return wait
background._split, background._work = delayed(background._split), delayed(background._work)
store = ChunkStore(Path({str(tmp_path / "session")!r}))
background.Background(store).submit(lambda writer: writer.put(address_of(b"kept"), b"kept"), nbytes=4)
{end}
"""
    assert subprocess.run([sys.executable, "-c", program], process_group=0, check=False).returncode == -signal.SIGKILL

    store = ChunkStore(tmp_path / "session")
    end_of_wait = time.monotonic() + 20
    while not store.has(address_of(b"kept")) and time.monotonic() < end_of_wait:
        time.sleep(0.05)
        store.refresh()
    assert store.has(address_of(b"kept"))
    store.close()


@linux
def test_a_program_that_reads_our_output_need_not_wait_for_the_child(tmp_path):
    """`jupyter nbconvert | tee` ends with the kernel, and not a minute later."""
    code = f"""
import time
from pathlib import Path
from ctxkernel.store.chunks.background import Background
from ctxkernel.store.chunks.chunk_store import ChunkStore
background = Background(ChunkStore(Path({str(tmp_path / "session")!r})))
background.submit(lambda store: time.sleep(20), nbytes=1)
time.sleep(0.3)
"""
    begin = time.monotonic()
    root = Path(__file__).parent.parent
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=root)
    assert time.monotonic() - begin < 15


# Memory


def test_free_memory_is_a_number_here():
    free = free_memory()
    if sys.platform.startswith("linux"):
        assert free is not None and 0 < free < 2**50


MEMINFO = "MemTotal: 999 kB\nMemAvailable:    1000 kB\n"
V2 = "sys/fs/cgroup/"


@pytest.mark.parametrize(
    ("there", "free"),
    [
        ({"proc/meminfo": MEMINFO}, 1_024_000),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/\n",
                V2 + "memory.max": "500000\n",
                V2 + "memory.current": "400000\n",
                V2 + "memory.stat": "anon 5\ninactive_file 50000\n",
            },
            150_000,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/a.slice/b\n",
                V2 + "a.slice/b/memory.max": "max\n",
                V2 + "a.slice/b/memory.current": "400000\n",
                V2 + "a.slice/memory.max": "500000\n",
                V2 + "a.slice/memory.current": "600000\n",
            },
            0,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/1f\n",
                V2 + "memory/memory.limit_in_bytes": "300000",
                V2 + "memory/memory.usage_in_bytes": "100000",
                V2 + "memory/memory.stat": "total_inactive_file 1\n",
            },
            200_001,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "4:memory:/\n",
                V2 + "memory/memory.limit_in_bytes": "9223372036854771712",
                V2 + "memory/memory.usage_in_bytes": "100000",
            },
            1_024_000,
        ),
    ],
    ids=["system", "v2", "limit of a parent, used up", "v1 in a container", "v1 without a limit"],
)
def test_the_least_of_system_and_container_is_free(tmp_path, there, free):
    for name, text in there.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    assert free_memory(tmp_path) == free
