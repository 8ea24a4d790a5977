"""Background jobs that write large data during the user's next cell: a forked child that sees the memory as it was.

Rule 1: The parent never waits in `poll`, and in `submit` only for a limited time.
Rule 2: The child changes nothing that it shares with the parent: its descriptors point to /dev/null, its signals are
        its own, it ends by `os._exit`, and a timer ends it if its code takes too long. One that hangs is killed: a
        library (OpenMP) waits for threads that a fork does not have.
Rule 3: The child writes a pack of its own. Its data count when it reports success; else the pack is removed.
Rule 4: The parent's own child ends at once, so the user's `os.wait` finds no child of ours.
"""

from __future__ import annotations

import contextlib
import ctypes
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
from typing import Any, NoReturn

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import StoreError
from ctxkernel.core.ports import Tell, silent
from ctxkernel.core.text import format_size
from ctxkernel.core.timeline_events import Json
from ctxkernel.store.chunks import late_results
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.free_memory import free_memory
from ctxkernel.store.chunks.packs import PackWriter, write_all

SWITCH = "CTXKERNEL_FORK"
"""The environment variable that disables forks with `0`: all data are written while the user waits."""
MOST_JOBS = 8
SECONDS = 60.0
_PATIENCE = 1.0
"""The time limit of a job, and how long `submit` waits for a job to end, in seconds."""
_HANGS = 8.0
"""A child that sleeps for so many seconds, and uses no processor time, hangs."""
_SPARE_BYTES = 64 * 1024 * 1024
_GRACE = 10.0
"""Seconds after which a child that its timer did not end is killed."""
_NICE = 10
_SHORT = 0.5
"""A job that took so many seconds of processor time gets a lower priority. The next cell may wait for shorter ones."""
_MOST_REASON = 300
_SPEAK_AT_FORK = {"tokenizers": "TOKENIZERS_PARALLELISM"}
"""Modules that print at a fork, and the variable that silences each."""

ChunkJob = Callable[[ChunkStore], Json]
"""Puts chunks into the store, and returns a result that JSON can hold."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A submitted job."""

    nbytes: int
    """The estimated bytes that it writes."""
    addresses: frozenset[str]
    started: float
    """Seconds of `time.monotonic`."""
    done: bool = False
    result: Json = None
    fault: str = ""
    """Why it failed, without a stored chunk. Empty while it runs, and if it succeeded."""
    seconds: float = 0.0
    limit: float = 0.0
    pipe: int = -1
    pack: int = 0
    between: int = 0
    """The intermediate process, which ends after its fork; 0 after it was reaped."""
    used: tuple[float, bytes] = 0.0, b""
    """The time when the child was last seen to work, and the processor time that it had used by then."""
    hangs: bool = False
    """Whether it had to be killed: the job is to be done in the kernel's own process."""
    heard: bytearray = field(default_factory=bytearray)
    """The output of the writing process: its number, a line feed, and a JSON object."""


class Background:
    """The jobs of one store."""

    def __init__(self, store: ChunkStore) -> None:
        self._store = store
        self._allowed = os.environ.get(SWITCH, "").strip() != "0"
        self._process = os.getpid()
        self.running: list[Ticket] = []
        """The running jobs."""
        self._ended: list[Ticket] = []

    @property
    def can_fork(self) -> bool:
        """Return whether a job runs during the cell; else it runs at once, in the caller."""
        return (
            self._allowed
            and sys.platform.startswith("linux")
            and self._process == os.getpid()
            and threading.current_thread() is threading.main_thread()
        )

    @property
    def forked(self) -> bool:
        """Return whether this is the process of a job, not the kernel."""
        return self._process != os.getpid()

    @property
    def pending_bytes(self) -> int:
        """The bytes of running jobs."""
        return sum(ticket.nbytes for ticket in self.running)

    def has_or_pending(self, address: str) -> bool:
        """Return whether a chunk is stored, or pending in a running job."""
        return self._store.has(address) or any(address in ticket.addresses for ticket in self.running)

    def submit(
        self,
        job: ChunkJob,
        *,
        nbytes: int,
        seconds: float = SECONDS,
        addresses: Collection[str] = (),
        patience: float = _PATIENCE,
        here: bool = False,
        name: str = "",
    ) -> Ticket:
        """Start a job and return its ticket; if it cannot start, the ticket is done and has a fault.

        The job sees all objects as they are now. Call it on the main thread, between cells. `here`: run it at once, in
        this process. `name`: keep the result of another process under it, see `late_results`.
        """
        ticket = Ticket(nbytes, frozenset(addresses), time.monotonic())
        if here or not self.can_fork:
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
            self._fork(job, ticket, seconds, name)
        except (OSError, StoreError, RuntimeError) as fault:
            return _refused(ticket, f"it could not be started: {fault}")
        return ticket

    def poll(self) -> list[Ticket]:
        """Return the jobs that ended since the last call, except those that `submit` ended. Do not wait."""
        for ticket in list(self.running) if self._process == os.getpid() else ():
            _reap(ticket, os.WNOHANG)
            self._listen(ticket)
        ended, self._ended = self._ended, []
        return ended

    def wait(self, seconds: float, tickets: Collection[Ticket] | None = None, *, tell: Tell = silent) -> list[Ticket]:
        """Wait until all jobs ended, or these, for `seconds` at most; return those that ended since the last call.

        `tell` receives twice a second, for the user, what is waited for.
        """
        self._await(lambda: not self.running if tickets is None else all(one.done for one in tickets), seconds, tell)
        return self.poll()

    def settle(self) -> None:
        """Reap the intermediate processes before the user's code runs, so its `os.wait` finds none.

        Two forks take three times as long as one, 5 to 50 ms with much memory: the second fork runs beside the parent,
        which waits here for the rest of it.
        """
        if self._process == os.getpid():
            for ticket in self.running:
                _reap(ticket, 0)

    def close(self) -> None:
        """Detach the running jobs: they end by themselves, and the next kernel finds their data."""
        self.settle()
        running, self.running = self.running, []
        for ticket in running:
            with contextlib.suppress(OSError):
                os.close(ticket.pipe)

    def _await(self, reached: Callable[[], bool], seconds: float, tell: Tell = silent) -> None:
        until = time.monotonic() + seconds
        while not reached() and (left := until - time.monotonic()) > 0:
            poller = select.poll()
            for ticket in self.running:
                poller.register(ticket.pipe, select.POLLIN)
            poller.poll(min(left, 0.5) * 1000)
            what = format_size(self.pending_bytes) if self.pending_bytes else "data"
            tell(f"waiting for {what} that are still being written")
            for ticket in list(self.running):
                self._listen(ticket)

    def _run_here(self, job: ChunkJob, ticket: Ticket) -> Ticket:
        try:
            with self._store.one_pack():
                ticket.result = json.loads(json.dumps(job(self._store)))
        except Exception as fault:  # the user's objects are pickled here
            ticket.fault = _reason(fault)
        ticket.done, ticket.seconds = True, time.monotonic() - ticket.started
        return ticket

    def _fork(self, job: ChunkJob, ticket: Ticket, seconds: float, name: str) -> None:
        """Start the child. Raises OSError, StoreError, RuntimeError."""
        import posix  # the real fork: debuggers and others replace os.fork

        writer = self._store.new_pack()
        try:
            pipe, its_end = os.pipe()
        except OSError:
            writer.close()
            raise
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            # Python and JAX warn of threads, which the child does not use.
            with warnings.catch_warnings(action="ignore"), _quiet_libraries():
                between = posix.fork()
                if not between:
                    try:
                        _split(posix.fork, self._store, writer, job, its_end, seconds, name)
                    finally:  # whatever happens, the child must not continue as a second kernel
                        os._exit(1)
        except BaseException:
            os.close(pipe)
            writer.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(its_end)
        with contextlib.suppress(OSError):
            os.setpgid(between, 0)  # a server that restarts the kernel kills its group; the job still finishes
        writer.close(keep=True)
        os.set_blocking(pipe, False)
        ticket.pipe, ticket.pack, ticket.limit, ticket.between = pipe, writer.number, seconds, between
        self.running.append(ticket)

    def _listen(self, ticket: Ticket) -> None:
        """Read the output of a child, and end its ticket if the child ended."""
        before = len(ticket.heard)
        try:
            while heard := os.read(ticket.pipe, 1 << 16):
                ticket.heard += heard
        except BlockingIOError:
            pid = bytes(ticket.heard).partition(b"\n")[0]
            if len(ticket.heard) > before:  # it slept as nobody read its output
                ticket.used = time.monotonic(), b""
            ticket.hangs = ticket.hangs or _hangs(ticket, pid)
            if pid.isdigit() and (ticket.hangs or time.monotonic() - ticket.started > ticket.limit + _GRACE):
                # Its end of the pipe is open, so it lives, and still has this number.
                with contextlib.suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
            return
        except OSError:  # the user closed the pipe
            ticket.heard.clear()
        _reap(ticket, 0)  # it had this pipe too, and closed it, so it ends
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
        hung = "its process hung: a library waits for threads that a fork does not have"
        otherwise = hung if ticket.hangs else f"it took longer than {ticket.limit:g} s" if late else killed
        ticket.fault = said.get("fault", otherwise)
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
    """Keep libraries from writing to stderr at the fork, which is not the user's."""
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
        except ChildProcessError:  # the user waited for it, or ignores SIGCHLD
            done = ticket.between
        ticket.between -= done


def _hangs(ticket: Ticket, pid: bytes) -> bool:
    """Return whether a child slept since the last calls, for a while."""
    now = time.monotonic()
    try:
        with open(f"/proc/{int(pid)}/stat", "rb") as file:
            state, *rest = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return False
    used = b" ".join(rest[10:12])
    if state != b"S" or used != ticket.used[1]:
        ticket.used = now, used
    return now - ticket.used[0] > _HANGS


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
    fork: Callable[[], int], store: ChunkStore, writer: PackWriter, job: ChunkJob, pipe: int, seconds: float, name: str
) -> NoReturn:
    """Fork once more and end: the grandchild is no child of the kernel."""
    try:
        if not fork():
            _work(store, writer, job, pipe, seconds, name)
    except BaseException as fault:
        with contextlib.suppress(BaseException):  # the kernel has closed the pipe: nobody reads the fault
            os.write(pipe, b"0\n" + json.dumps({"fault": _reason(fault)}).encode())
    finally:
        os._exit(0)


def _work(store: ChunkStore, writer: PackWriter, job: ChunkJob, pipe: int, seconds: float, name: str) -> None:
    gc.disable()  # a collection writes to every object, and so copies the memory
    # Debuggers and profilers would stop here, or use a socket of the parent.
    # Not sys.settrace: debugpy replaces it by a function that prints a warning, into the user's cell.
    ctypes.pythonapi.PyEval_SetTrace(None, None)
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
    signal.signal(signal.SIGPROF, _yield_to_cells)
    signal.setitimer(signal.ITIMER_PROF, _SHORT)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGTERM})
    with contextlib.suppress(OSError):
        os.setsid()
    os.write(pipe, b"%d\n" % os.getpid())
    _detach({pipe, *writer.descriptors()})
    try:
        store.write_to(writer)
        result = job(store)
        if name:
            with contextlib.suppress(OSError):  # then only the kernel gets it
                late_results.keep(store.folder, name, result)
        made = json.dumps({"result": result, "records": writer.records}).encode()
    except BaseException as fault:
        made = json.dumps({"fault": _reason(fault)}).encode()
    with contextlib.suppress(OSError):  # the kernel has ended: what is kept beside the packs is for the next one
        write_all(pipe, made)
    os.close(pipe)
    if writer.records:
        writer.sync()  # against a power failure; the parent does not wait for it


def _yield_to_cells(_number: int, _frame: object) -> None:
    with contextlib.suppress(OSError):
        os.nice(_NICE)


def _detach(keep: Collection[int]) -> None:
    """Point every other descriptor to /dev/null.

    Open sockets of the kernel would keep its ports, so a restart on them would fail, and a reader of its output would
    wait for the job. The numbers stay in use, so no object of the user closes or writes a descriptor of the job.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number != nowhere and number not in keep:
            with contextlib.suppress(OSError):
                os.fstat(number)  # the listing's own is closed by now
                os.dup2(nowhere, number, inheritable=False)
    # If the system kills a process for its memory, it is this one before the user's.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("800")
