"""Executors of tasks: Dask, on a cluster of this machine or any other; or threads of this process.

Rule 1: the library does scheduling, retries and transport. An executor only adapts it to `Executor`.
Rule 2: a function gets bytes and returns bytes, so the library never unpickles other data.
"""

from __future__ import annotations

import concurrent.futures
import queue
import time
from collections.abc import Callable
from typing import Any, Protocol

RunTask = Callable[[bytes], bytes]
Done = tuple[str, bytes | None, str]
"""Key, result or None, and why there is none."""
_FAILURES = 1000
"""Workers that may die during a task before Dask gives it up: a task can end its kernel, but not its worker."""
_ATTEMPTS = 5
"""Tries for a task whose function failed."""
_ABSENT_SECONDS = 10.0
"""Seconds after which a worker that does not come back is replaced."""


class Executor(Protocol):
    """Runs a function on bytes, somewhere."""

    def submit(self, key: str, run: RunTask, argument: bytes) -> None:
        """Run `run(argument)`; `done` returns its result."""
        ...

    def done(self, seconds: float) -> Done | None:
        """Return the next task that ended, each once; None if none ends within that time."""
        ...

    def workers(self) -> int:
        """Return the number of connected workers."""
        ...

    def close(self) -> None:
        """End the workers that this executor started."""
        ...


class ThreadExecutor:
    """Threads of this process: for tests, and as an example of an executor."""

    def __init__(self, workers: int) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(workers)
        self._workers = workers
        self._ended: queue.Queue[tuple[str, Any]] = queue.Queue()

    def submit(self, key: str, run: RunTask, argument: bytes) -> None:
        """Run it in a thread."""
        self._pool.submit(run, argument).add_done_callback(lambda future: self._ended.put((key, future)))

    def done(self, seconds: float) -> Done | None:
        """Return the next one."""
        try:
            key, future = self._ended.get(timeout=seconds)
        except queue.Empty:
            return None
        fault = future.exception()
        return (key, future.result(), "") if fault is None else (key, None, f"{type(fault).__name__}: {fault}")

    def workers(self) -> int:
        """Return the number of threads."""
        return self._workers

    def close(self) -> None:
        """Wait for the threads."""
        self._pool.shutdown(cancel_futures=True)


class DaskExecutor:
    """A cluster of Dask: one of its own on this machine, or that of a scheduler at an address."""

    def __init__(self, *, scheduler: str | None, workers: int, memory: int) -> None:
        import dask.config as config
        from distributed import Client, LocalCluster

        config.set(
            {
                "distributed.scheduler.allowed-failures": _FAILURES,
                # The next rows save work of Dask while it waits: together 15 % of a core.
                "distributed.worker.profile.enabled": False,
                "distributed.admin.tick.interval": "1s",
                "distributed.admin.tick.cycle": "10s",
                "distributed.admin.system-monitor.interval": "5s",
                "distributed.worker.memory.monitor-interval": "10s",
                "distributed.scheduler.work-stealing": False,
                "distributed.worker.memory.terminate": False,  # the kernels are watched by the worker
                "distributed.worker.memory.pause": False,
                "distributed.worker.memory.spill": False,
            }
        )
        self._cluster: Any = None
        self._wanted = workers
        if scheduler is None:
            secure = _has("cryptography")
            make: Any = LocalCluster
            self._cluster = make(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=memory or None,
                processes=True,
                dashboard_address=None,
                security=secure or None,
                protocol="tls://" if secure else None,
                silence_logs=50,
            )
        self._client: Any = Client(
            self._cluster if scheduler is None else scheduler, set_as_default=False, deserializers=["msgpack", "error"]
        )
        self._futures: dict[str, Any] = {}
        self._attempts: dict[str, int] = {}
        self._given: dict[str, tuple[RunTask, bytes]] = {}
        self._ended: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._full = self._checked = time.monotonic()

    def submit(self, key: str, run: RunTask, argument: bytes) -> None:
        """Submit it to the scheduler."""
        self._given[key] = run, argument
        self._attempts[key] = attempt = self._attempts.get(key, 0) + 1
        # Another key for each attempt: while a future lives, the scheduler answers a key with its old result.
        future = self._client.submit(run, argument, key=f"{key}-{attempt}", pure=False, retries=0)
        self._futures[key] = future

        def end(ended: Any) -> None:
            self._ended.put((key, ended))

        future.add_done_callback(end)

    def done(self, seconds: float) -> Done | None:
        """Return the next one; its data are released on the workers."""
        self._keep_workers()
        try:
            key, future = self._ended.get(timeout=seconds)
        except queue.Empty:
            return None
        if future is None or self._futures.get(key) is not future:  # `wake`, or an earlier attempt
            return None
        status = future.status
        result, why = None, ""
        if status == "finished":
            try:
                result = future.result(timeout=60)
            except Exception as fault:  # its worker died before the data were here
                why = f"{type(fault).__name__}: {fault}"
        else:
            why = _why(future)
        del self._futures[key]
        future.release()
        if result is None and self._attempts[key] < _ATTEMPTS:
            self.submit(key, *self._given[key])
            return None
        del self._given[key]
        return key, result, why

    def wake(self) -> None:
        """Make a waiting `done` return."""
        self._ended.put(("", None))

    def workers(self) -> int:
        """Return the number of workers that the scheduler knows."""
        try:
            return len(self._client.scheduler_info(n_workers=-1)["workers"])
        except TypeError:  # an older version lists all
            return len(self._client.scheduler_info()["workers"])

    def call_on_workers(self, run: Callable[..., bytes], *given: str) -> dict[str, bytes]:
        """Run a function on each worker; return worker → result."""
        return self._client.run(run, *given)

    def close(self) -> None:
        """Cancel the remaining tasks, and end the cluster if this executor started it."""
        for future in self._futures.values():
            future.cancel()
        self._client.close(timeout=5)
        if self._cluster is not None:
            self._cluster.close(timeout=10)

    def _keep_workers(self) -> None:
        """Replace workers of our own cluster that did not come back."""
        now = time.monotonic()
        if self._cluster is None or now - self._checked < 1.0:
            return
        self._checked = now
        there = self.workers()
        if there >= self._wanted:
            self._full = now
        elif now - self._full > _ABSENT_SECONDS:
            self._full = now
            self._cluster.scale(len(self._cluster.worker_spec) + self._wanted - there)


def _why(future: Any) -> str:
    if future.status == "cancelled":
        return "cancelled"
    try:
        fault = future.exception(timeout=10)
        return f"{type(fault).__name__}: {fault}"
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"


def _has(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None
