"""A worker of a sweep: it keeps one kernel, has it run the cells of each task, and returns the signed result.

Rule 1: a task whose result is in the store is not run. The result is stored before it is returned.
Rule 2: the kernel is a process of its own. It ends with the worker, or when a task takes too long or too much memory;
        the next task gets a new one.
Rule 3: only faults of the machine raise, and the executor retries them elsewhere. A failure of a task is its result.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.projection.secrets import mask
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.data_folder import data_folder
from ctxkernel.store.mirror import RemoteFiles
from ctxkernel.sweeps.chunk_exchange import MOST_BYTES, ChunkExchange
from ctxkernel.sweeps.environment import installed_here
from ctxkernel.sweeps.seal import seal, unseal

SECRET = "CTXKERNEL_SWEEP_KEY"  # noqa: S105  the name of a variable
"""The environment variable with the key of the sweep in hex, for workers and their kernels."""
FOLDER = "CTXKERNEL_SWEEP_FOLDER"
_START_SECONDS = 120.0
_POLL_SECONDS = 0.5
_COMMAND = "ctxkernel.kernel.commands.sweep"
_CHILDREN_SECONDS = 3.0
_lock = threading.Lock()
_kept: dict[str, WorkerKernel] = {}
"""The kernel of this worker, by its sweep."""


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits of a task; 0 means no limit."""

    seconds: float = 0.0
    bytes: int = 0


class TaskFailed(Exception):
    """A task ended without a result; the first argument is its status, the second one says why."""


def run_task(message: bytes) -> bytes:
    """Run a task and return its signed result.

    `message` is a line of JSON, with the secret if the worker has none, followed by the signed task.
    """
    head, _, sealed = message.partition(b"\n")
    header = json.loads(head)
    key = bytes.fromhex(os.environ.get(SECRET) or header["secret"])
    task = unseal(key, f"task {header['key']}", sealed)
    store = RemoteFiles(task["store"])
    name = f"results/{header['key']}"
    with contextlib.suppress(Exception):  # without a usable result, the task runs again
        known = store.read(name, MOST_BYTES)
        found = unseal(key, f"result {header['key']}", known) if known is not None else {}
        # Only results of this sweep are reused: the timeline alone knows whether the files of an earlier sweep are
        # unchanged. A result with `needs_all` was computed without all variables; this message contains the others.
        if known is not None and found.get("sweep") == task["sweep"] and not found.get("needs_all"):
            return known
    with _lock:
        started, before = time.time(), _cpu()
        try:
            result = _kernel_of(task, key, store).run(task)
        except TaskFailed as failed:
            status, why = failed.args
            result = {"status": status, "fault": why}
        result |= {
            "sweep": task["sweep"],
            "began": started,
            "wall": time.time() - started,
            "worker": f"{platform.node()}:{os.getpid()}",
        }
        result["cpu"] = _cpu() - before
    made = seal(key, f"result {header['key']}", result)
    if "fault" not in result:
        store.write(name, made)
    return made


def describe(store: str, probe: str) -> bytes:
    """Return the versions of this worker's packages, and whether it reaches a file of the store, as JSON."""
    about = {**installed_here(), "reaches": False}
    with contextlib.suppress(Exception):  # on any error the store counts as not reached
        about["reaches"] = RemoteFiles(store).read(probe, MOST_BYTES) == probe.encode()
    return json.dumps(about).encode()


def end_kernels() -> bytes:
    """End the kernel of this worker: the sweep is over."""
    for one in list(_kept.values()):
        one.close()
    return b""


def _cpu() -> float:
    """Return the processor time of this process and of its kernel, in seconds."""
    return time.process_time() + sum(one.cpu() for one in _kept.values())


def _kernel_of(task: Mapping[str, Any], key: bytes, store: RemoteFiles) -> WorkerKernel:
    sweep = task["sweep"]
    kernel = _kept.get(sweep)
    if kernel is None or not kernel.is_alive():
        for one in list(_kept.values()):
            one.close()
        _kept.clear()
        kernel = _kept[sweep] = WorkerKernel(task, key, store)
    return kernel


class WorkerKernel:
    """A running kernel for the tasks of one sweep."""

    def __init__(self, task: Mapping[str, Any], key: bytes, store: RemoteFiles) -> None:
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import KernelManager

        self._key, self._store = key, store
        self._data: ChunkStore | None = None
        self._exchanged: ChunkExchange | None = None
        self._family: list[Any] = []
        """The kernel's process and its children."""
        self._looked = 0.0
        # Use the folder of the sweep, which is deleted when the sweep ends: a killed worker cannot delete its own.
        place = store.url if task.get("chunks") and os.path.isdir(store.url) else None
        self._folder = Path(tempfile.mkdtemp(prefix="ctxkernel-sweep-", dir=place))
        self._roots: dict[str, list[Any]] = {}
        self._read_root(task)
        self._chunks = task.get("chunks")
        cache = str(Path(self._chunks).parent.parent) if self._chunks else str(self._folder / "cache")
        environment = _environment(task, self._folder, key, cache)
        self._session(task["session"])
        argv = [sys.executable, "-m", "ctxkernel.kernel", "-f", "{connection_file}"]
        argv.append("--HistoryManager.hist_file=:memory:")
        manager = self._manager = KernelManager(kernel_name="")
        setattr(manager, "_kernel_spec", KernelSpec(argv=argv, display_name="ctxkernel", language="python"))  # noqa: B010  jupyter_client has no public way
        folder = task["folder"] if os.path.isdir(task["folder"]) else str(self._folder)
        self._log = open(self._folder / "kernel.log", "wb")  # noqa: SIM115  closed with the kernel
        manager.start_kernel(env=environment, cwd=folder, stdout=self._log, stderr=self._log)
        client = self._client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=_START_SECONDS)
        except RuntimeError as fault:  # no cell has run: a fault of the machine
            log = (self._folder / "kernel.log").read_text(errors="replace").split("\n")
            last = next((f" ({mask(line.strip())[:200]})" for line in reversed(log) if line.strip()), "")
            self.close()
            raise OSError(f"the kernel of a worker did not start: {fault}{last}") from None
        self._count = 0

    def _read_root(self, task: Mapping[str, Any]) -> list[Any]:
        """Return the path of the timeline to the state from which the tasks begin."""
        name = task["root"]
        if name not in self._roots:
            sealed = self._store.read(name, MOST_BYTES)
            if sealed is None:
                raise TaskFailed("error", f"{self._store.url} has no {name}: this worker does not reach the store")
            self._roots[name] = unseal(self._key, name, sealed)["path"]
        return self._roots[name]

    def _exchange(self, session_id: str) -> ChunkExchange:
        """Return the exchange between the kernel's data folder and the store."""
        if self._exchanged is None:
            root = self._folder / "cache" / "checkpoints"
            self._data = ChunkStore(data_folder(root, session_id, writing=True))
            self._exchanged = ChunkExchange(self._data, self._store)
        return self._exchanged

    def _session(self, session_id: str) -> None:
        """Write an empty session file with the id of the sweep's session, so that both share their data."""
        from ctxkernel.store import signatures
        from ctxkernel.store.log import opening

        start = opening.Start(time.time(), session_id, None, {}, True, signatures.signer())
        place = opening.open_place(self._folder / "task.sqlite", start)
        place.connection.close()
        if place.lock is not None:
            place.lock.release()

    def is_alive(self) -> bool:
        """Return whether the kernel runs."""
        provisioner: Any = self._manager.provisioner
        process: Any = getattr(provisioner, "process", None)
        return process is not None and process.poll() is None

    def _pid(self) -> int:
        provisioner: Any = self._manager.provisioner
        return int(provisioner.pid)

    def cpu(self) -> float:
        """Return its processor time in seconds, with that of its children that ended."""
        import psutil

        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self._pid()).cpu_times()
            return times.user + times.system + times.children_user + times.children_system
        return 0.0

    def run(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a task. Raises TaskFailed."""
        self._count += 1
        path = self._folder / f"{self._count}-{secrets.token_hex(4)}.run"
        path_to = [*self._read_root(task), *task["path"]]
        if not self._chunks:
            manifests = [one["manifest"] for one in path_to if one.get("manifest")]
            self._exchange(task["session"]).fetch(manifests)
        given = {
            "path": path_to,
            "root": task["root"],
            "cells": task["cells"],
            "collect": task["collect"],
            "omitted": task.get("omitted", []),
        }
        path.write_bytes(seal(self._key, f"run {path.name}", given))
        limits = TaskLimits(**task["limits"])
        try:
            self._execute(f"__import__({_COMMAND!r}, fromlist=['run_task']).run_task({str(path)!r})", limits)
            done = path.with_suffix(".done")
            found = unseal(self._key, f"done {path.name}", done.read_bytes())
            done.unlink()
            if not self._chunks:
                exchange = self._exchange(task["session"])
                if self._data is not None:
                    self._data.refresh()
                found["sent"] = exchange.send(one["manifest"] for one in found.get("records", ()))
            return found
        except FileNotFoundError:
            raise TaskFailed("error", "the kernel of the worker gave no result") from None
        finally:
            path.unlink(missing_ok=True)

    def _execute(self, line: str, limits: TaskLimits) -> None:
        """Execute a line and wait for its reply within the limits. Raises TaskFailed."""
        client = self._client
        msg_id = client.execute(line, store_history=False, allow_stdin=False)
        begun = time.monotonic()
        while True:
            reply: dict[str, Any] = {}
            with contextlib.suppress(queue.Empty):
                reply = client.get_shell_msg(timeout=_POLL_SECONDS)
            if reply and reply["parent_header"].get("msg_id") == msg_id:
                if reply["content"]["status"] != "ok":
                    raise TaskFailed("error", str(reply["content"].get("evalue", "")))
                return
            if not self.is_alive():
                self.close()
                raise TaskFailed("died", "its kernel died: native code that crashed, or the system's memory ran out")
            if limits.seconds and time.monotonic() - begun > limits.seconds:
                self.close()
                raise TaskFailed("timeout", f"it took more than {limits.seconds:g} s")
            if limits.bytes and (used := self._memory()) > limits.bytes:
                self.close()
                raise TaskFailed(
                    "memory", f"its kernel took {used / 1e9:.3g} GB, more than {limits.bytes / 1e9:.3g} GB"
                )

    def _memory(self) -> int:
        """Return the memory of the kernel and its children in bytes; the list of children may be some seconds old."""
        import psutil

        now = time.monotonic()
        with contextlib.suppress(psutil.Error):
            if not self._family or now - self._looked > _CHILDREN_SECONDS:  # listing reads a file of each process
                process = psutil.Process(self._pid())
                self._family, self._looked = [process, *process.children(recursive=True)], now
        total = 0
        for one in self._family:
            with contextlib.suppress(psutil.Error):
                total += one.memory_info().rss
        return total

    def close(self) -> None:
        """End the kernel and its children, and remove its files."""
        for sweep, one in list(_kept.items()):
            if one is self:
                del _kept[sweep]
        with contextlib.suppress(Exception):  # each of the three: it has ended already
            import psutil

            for child in psutil.Process(self._pid()).children(recursive=True):
                child.kill()
        with contextlib.suppress(Exception):
            self._client.stop_channels()
        with contextlib.suppress(Exception):
            self._manager.shutdown_kernel(now=True)
        self._log.close()
        if self._data is not None:
            self._data.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _environment(task: Mapping[str, Any], folder: Path, key: bytes, cache: str) -> dict[str, str]:
    """Return the environment variables of the kernel, without keys of a model and the state of another kernel."""
    left: Iterable[tuple[str, str]] = os.environ.items()
    made = {name: value for name, value in left if not name.startswith("ANTHROPIC_") and name != "CTXKERNEL_RESUME"}
    return made | {
        "CTXKERNEL_SESSION": str(folder / "task.sqlite"),
        "JPY_SESSION_NAME": task["notebook"],
        "CTXKERNEL_CACHE": cache,
        "CTXKERNEL_ANSWERS": "recorded",
        "CTXKERNEL_QUOTA_GB": "1000000",
        "CTXKERNEL_STORE": "off",
        FOLDER: str(folder),
        SECRET: key.hex(),
        "JPY_PARENT_PID": str(os.getpid()),
    }
