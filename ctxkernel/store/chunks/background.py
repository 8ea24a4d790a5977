"""Writing large data beside the user's next cell: a forked child that sees the memory as it was.

Rule 1: the parent never waits in `poll`, and in `submit` only for a bounded time.
Rule 2: the child touches nothing that the parent shares: its descriptors lead nowhere, its signals are its own, it
        ends by `os._exit`, and a timer ends it where its code hangs.
Rule 3: the child writes a pack of its own. What it wrote is there when it says so; else the pack is removed.
Rule 4: the process that the parent waits for is one that ends at once, so `os.wait` of the user finds no child of ours.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ctxkernel.core.errors import StoreError
from ctxkernel.core.events import Json
from ctxkernel.core.text import format_size
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.free_memory import free_memory
from ctxkernel.store.chunks.packs import PackWriter, write_all

SWITCH = "CTXKERNEL_FORK"
"""`0` in this variable: nothing is forked, all is written while the user waits."""
MOST_JOBS = 8
SECONDS = 60.0
_PATIENCE = 1.0
"""What a job may take, and what `submit` waits for one of them to end."""
_SPARE_BYTES = 64 * 1024 * 1024
_GRACE = 10.0
"""Seconds after which a child that its timer did not end is killed."""
_NICE = 10
_MOST_REASON = 300
_SPEAK_AT_FORK = {"tokenizers": "TOKENIZERS_PARALLELISM"}
"""Modules, and the variable that has to be set to anything for their silence."""

Job = Callable[[ChunkStore], Json]
"""Puts chunks into the store that it is handed, and returns a result that JSON can hold."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A job that was handed over."""

    nbytes: int
    """Bytes that it is about to write, as estimated."""
    addresses: frozenset[str]
    started: float
    """Seconds of `time.monotonic`."""
    done: bool = False
    result: Json = None
    fault: str = ""
    """Why it failed: none of its chunks is there then. Empty while it runs, and where it succeeded."""
    seconds: float = 0.0
    limit: float = 0.0
    pipe: int = -1
    pack: int = 0
    between: int = 0
    """The process between, which ends once it forked; 0 when it is waited for."""
    heard: bytearray = field(default_factory=bytearray)
    """What the process that writes said: its number, a line feed, and a JSON object."""


class Background:
    """The jobs of one store."""

    def __init__(self, store: ChunkStore) -> None:
        self._store = store
        self._allowed = os.environ.get(SWITCH, "").strip() != "0"
        self._process = os.getpid()
        self.running: list[Ticket] = []
        """The jobs under way."""
        self._ended: list[Ticket] = []

    @property
    def can_fork(self) -> bool:
        """Whether a job runs beside the cell; elsewhere it runs at once, in the caller."""
        return (
            self._allowed
            and sys.platform.startswith("linux")
            and self._process == os.getpid()
            and threading.current_thread() is threading.main_thread()
        )

    @property
    def forked(self) -> bool:
        """Return whether this is another process than the kernel: a job's."""
        return self._process != os.getpid()

    @property
    def pending_bytes(self) -> int:
        """Bytes that are under way."""
        return sum(ticket.nbytes for ticket in self.running)

    def has_or_pending(self, address: str) -> bool:
        """Say whether a chunk is there, or promised by a job under way."""
        return self._store.has(address) or any(address in ticket.addresses for ticket in self.running)

    def submit(
        self,
        job: Job,
        *,
        nbytes: int,
        seconds: float = SECONDS,
        addresses: Collection[str] = (),
        patience: float = _PATIENCE,
    ) -> Ticket:
        """Start a job and return its ticket; where it cannot be started, one that is done and says why.

        The job sees all objects as they are now. Call it from the main thread, at a quiet point.
        """
        ticket = Ticket(nbytes, frozenset(addresses), time.monotonic())
        if not self.can_fork:
            return self._run_here(job, ticket)
        self._await(lambda: len(self.running) < MOST_JOBS, patience)
        if len(self.running) >= MOST_JOBS:
            return _refused(ticket, f"{len(self.running)} earlier writes are still under way")
        free = free_memory()
        if free is not None and free < nbytes + _SPARE_BYTES:
            return _refused(
                ticket, f"{format_size(free)} of memory are too few to write {format_size(nbytes)} beside the cell"
            )
        try:
            self._fork(job, ticket, seconds)
        except (OSError, StoreError, RuntimeError) as fault:
            return _refused(ticket, f"it could not be started: {fault}")
        return ticket

    def poll(self) -> list[Ticket]:
        """Return the jobs that ended since the last call, but for those that `submit` ended. Does not wait."""
        for ticket in list(self.running) if self._process == os.getpid() else ():
            _reap(ticket, os.WNOHANG)
            self._listen(ticket)
        ended, self._ended = self._ended, []
        return ended

    def wait(self, seconds: float) -> list[Ticket]:
        """Wait until all jobs ended, for `seconds` at most, and return those that did since the last call."""
        self._await(lambda: not self.running, seconds)
        return self.poll()

    def settle(self) -> None:
        """Call it before the user's code runs: no process of ours is left for its `os.wait` to find.

        Forking twice takes three times as long as forking once, 5 to 50 ms where memory is large: the second time
        runs beside the parent, and here the parent waits for what is left of it.
        """
        if self._process == os.getpid():
            for ticket in self.running:
                _reap(ticket, 0)

    def close(self) -> None:
        """Let go of the jobs under way: they end by themselves, and what they write is there for the next kernel."""
        self.settle()
        running, self.running = self.running, []
        for ticket in running:
            with contextlib.suppress(OSError):
                os.close(ticket.pipe)

    def _await(self, reached: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not reached() and (left := until - time.monotonic()) > 0:
            poller = select.poll()
            for ticket in self.running:
                poller.register(ticket.pipe, select.POLLIN)
            poller.poll(min(left, 0.5) * 1000)
            for ticket in list(self.running):
                self._listen(ticket)

    def _run_here(self, job: Job, ticket: Ticket) -> Ticket:
        try:
            with self._store.one_pack():
                ticket.result = json.loads(json.dumps(job(self._store)))
        except Exception as fault:  # the user's objects are pickled here
            ticket.fault = _reason(fault)
        ticket.done, ticket.seconds = True, time.monotonic() - ticket.started
        return ticket

    def _fork(self, job: Job, ticket: Ticket, seconds: float) -> None:
        """Start the child. Raises OSError, StoreError, RuntimeError."""
        import posix  # the real one: debuggers and others put their own in place of os.fork

        writer = self._store.new_pack()
        try:
            pipe, its_end = os.pipe()
        except OSError:
            writer.close()
            raise
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            # Warnings of threads, by Python and by JAX: the child uses none of them.
            with warnings.catch_warnings(action="ignore"), _quiet_libraries():
                between = posix.fork()
                if not between:
                    try:
                        _split(posix.fork, self._store, writer, job, its_end, seconds)
                    finally:  # whatever happens, the child must not go on as a second kernel
                        os._exit(1)
        except BaseException:
            os.close(pipe)
            writer.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(its_end)
        writer.close(keep=True)
        os.set_blocking(pipe, False)
        ticket.pipe, ticket.pack, ticket.limit, ticket.between = pipe, writer.number, seconds, between
        self.running.append(ticket)

    def _listen(self, ticket: Ticket) -> None:
        """Take in what a child said, and end its ticket where it ended."""
        try:
            while heard := os.read(ticket.pipe, 1 << 16):
                ticket.heard += heard
        except BlockingIOError:
            pid = bytes(ticket.heard).partition(b"\n")[0]
            if pid.isdigit() and time.monotonic() - ticket.started > ticket.limit + _GRACE:
                # Its end of the pipe is open, so it lives, and the number is still its own.
                with contextlib.suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
            return
        except OSError:  # the user closed it: nothing more will be heard
            ticket.heard.clear()
        _reap(ticket, 0)  # it had this pipe too, and let go of it, so it ends
        self.running.remove(ticket)
        with contextlib.suppress(OSError):
            os.close(ticket.pipe)
        self._end(ticket)
        self._ended.append(ticket)

    def _end(self, ticket: Ticket) -> None:
        ticket.done, ticket.seconds = True, time.monotonic() - ticket.started
        said: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            said = json.loads(bytes(ticket.heard).partition(b"\n")[2])
        records: int = said.get("records", 0)
        killed = "its process was killed, perhaps for want of memory"
        late = ticket.seconds >= ticket.limit
        ticket.fault = said.get("fault", f"it took longer than {ticket.limit:g} s" if late else killed)
        if "result" in said:
            try:
                there = self._store.take_in(ticket.pack) if records else 0
                ticket.fault = "" if there == records else f"{records} chunks were written and {there} are there"
            except StoreError as fault:
                ticket.fault = str(fault)
            ticket.result = None if ticket.fault else said["result"]
        if ticket.fault or not records:
            self._store.discard(ticket.pack)


@contextlib.contextmanager
def _quiet_libraries() -> Generator[None]:
    """Keep libraries that write to stderr at every fork of their process from it: the user forked nothing."""
    mine = [name for module, name in _SPEAK_AT_FORK.items() if module in sys.modules and name not in os.environ]
    os.environ.update(dict.fromkeys(mine, "false"))
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)


def _reap(ticket: Ticket, options: int) -> None:
    if ticket.between:
        try:
            done, _ = os.waitpid(ticket.between, options)
        except ChildProcessError:  # the user waited for it, or wants to hear of none
            done = ticket.between
        ticket.between -= done


def _refused(ticket: Ticket, why: str) -> Ticket:
    ticket.done, ticket.fault = True, why
    return ticket


def _reason(fault: BaseException) -> str:
    text = "its message cannot be read"
    with contextlib.suppress(Exception):  # an exception of the user's
        text = str(fault)[:_MOST_REASON]
    return text if isinstance(fault, StoreError) else f"{type(fault).__name__}: {text}"


# In the child


def _split(
    fork: Callable[[], int], store: ChunkStore, writer: PackWriter, job: Job, pipe: int, seconds: float
) -> NoReturn:
    """Fork once more and end: the grandchild is nobody's child here."""
    try:
        if not fork():
            _work(store, writer, job, pipe, seconds)
    except BaseException as fault:
        with contextlib.suppress(BaseException):
            os.write(pipe, b"0\n" + json.dumps({"fault": _reason(fault)}).encode())
    finally:
        os._exit(0)


def _work(store: ChunkStore, writer: PackWriter, job: Job, pipe: int, seconds: float) -> None:
    gc.disable()  # a collection would write to every object, and so copy the memory
    # Debuggers and profilers would stop here, or talk to a socket that the parent has too.
    sys.settrace(None)
    sys.setprofile(None)
    if monitoring := getattr(sys, "monitoring", None):  # from 3.12 on
        for tool in range(6):
            if monitoring.get_tool(tool) is not None:
                monitoring.set_events(tool, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGTERM})
    with contextlib.suppress(OSError):
        os.setsid()  # a server that restarts the kernel kills its group: what was begun is still finished
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    os.write(pipe, b"%d\n" % os.getpid())
    _detach({pipe, *writer.descriptors()})
    try:
        store.write_to(writer)
        result = job(store)
        made = json.dumps({"result": result, "records": writer.records}).encode()
    except BaseException as fault:
        made = json.dumps({"fault": _reason(fault)}).encode()
    write_all(pipe, made)
    os.close(pipe)
    if writer.records:
        writer.sync()  # against a power cut: the parent need not wait for that


def _detach(keep: Collection[int]) -> None:
    """Let every other descriptor lead nowhere.

    Sockets of the kernel would keep its ports, and a server that restarts it on them would fail; a reader of its
    output would wait for us. The numbers stay taken, so that no object of the user's closes or writes one of ours.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number != nowhere and number not in keep:
            with contextlib.suppress(OSError):
                os.fstat(number)  # the listing's own is closed by now
                os.dup2(nowhere, number, inheritable=False)
    # The kernel may kill a process to get memory: this one before the user's.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write("800")
