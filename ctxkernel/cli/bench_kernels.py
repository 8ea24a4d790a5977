"""The kernels in which `ctxkernel bench` plays its tasks.

Rule 1: each task gets a kernel and a folder of its own, so that no task sees what another left. The next kernel starts
        while a task is played, and a used one ends in the background.
Rule 2: the first Ctrl-C interrupts the task that is played, a second one or SIGTERM ends its kernel. No other starts.
"""

# nbformat is typed in part.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, cast

from nbformat.v4 import new_notebook

from ctxkernel.cli.kernel import OwnKernel, kernel_log, take_signals
from ctxkernel.store.log.location import OVERRIDE


class TaskKernel(OwnKernel):
    """A kernel for one task."""

    pool: BenchKernels | None = None
    session = Path()
    """Its session file."""

    def stop(self, *, now: bool) -> None:
        """Stop the whole run: another kernel may be the one that works."""
        if self.pool is not None:
            self.pool.stop(now=now or self.pool.stopped)

    def end_task(self, *, now: bool) -> None:
        """Interrupt the cell that runs, or end the kernel `now`."""
        super().stop(now=now)

    async def execute(self, source: str, *, silent: bool = False) -> dict[str, Any]:
        """Execute a cell and return its reply's content. Raises DeadKernelError, TimeoutError, RuntimeError."""
        for _ in range(20):
            reply = await self.async_wait_for_reply(
                self.client.execute(source, silent=silent, store_history=not silent)
            )
            content: dict[str, Any] = (reply or {}).get("content", {})
            if content.get("status") != "aborted":
                return content
            await asyncio.sleep(0.1)  # for a moment after an error a kernel refuses all requests
        raise RuntimeError("the kernel refuses all requests")


class BenchKernels:
    """Kernels one after the other, each for one task."""

    def __init__(self, environment: Mapping[str, str | None], *, seconds: int) -> None:
        """`seconds` limits the wait for a cell."""
        self.stopped = False
        """Whether the user has stopped the run."""
        self._environment, self._seconds = dict(environment), seconds
        self._next: asyncio.Task[tuple[TaskKernel, contextlib.AsyncExitStack]] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._working: TaskKernel | None = None

    @contextlib.asynccontextmanager
    async def started(self, *, more: bool) -> AsyncGenerator[TaskKernel]:
        """Give a new kernel, and start another one if `more` will be needed. Raises CtxError if it does not start."""
        kernel, stack = await (self._next or self._start())
        self._next = self._start() if more else None
        self._working = kernel
        try:
            yield kernel
        finally:
            self._working = None
            self._ending.add(asyncio.create_task(self._end(stack)))

    async def close(self) -> None:
        """End all kernels."""
        if self._next is not None:
            with contextlib.suppress(Exception):  # it did not start, and no task needs it
                self._ending.add(asyncio.create_task(self._end((await self._next)[1])))
        await asyncio.gather(*self._ending, return_exceptions=True)

    def stop(self, *, now: bool) -> None:
        """Stop the run: interrupt the task that is played, or end its kernel `now`."""
        self.stopped = True
        if self._working is not None:
            self._working.end_task(now=now)

    async def _end(self, stack: contextlib.AsyncExitStack) -> None:
        await stack.aclose()
        self._watch()

    def _watch(self) -> None:
        """Take signals, again: nbclient removes the handlers of all kernels where one ends."""
        take_signals(lambda: self.stop(now=self.stopped), lambda: self.stop(now=True))

    def _start(self) -> asyncio.Task[tuple[TaskKernel, contextlib.AsyncExitStack]]:
        return asyncio.create_task(self._make())

    async def _make(self) -> tuple[TaskKernel, contextlib.AsyncExitStack]:
        async with contextlib.AsyncExitStack() as stack:
            made = tempfile.TemporaryDirectory(prefix="ctxkernel-bench-", ignore_cleanup_errors=True)
            kept = Path(stack.enter_context(made))
            folder, session = kept / "work", kept / "session.sqlite"
            folder.mkdir()
            log = stack.enter_context(kernel_log())
            environment = {
                **self._environment,
                OVERRIDE: str(session),
                "CTXKERNEL_HOME": str(kept / "home"),
                "CTXKERNEL_CACHE": str(kept / "cache"),
            }
            notebook = new_notebook()
            # By class: signals may come as soon as the kernel starts.
            of_pool = type("PoolKernel", (TaskKernel,), {"pool": self})
            started = of_pool.started(notebook, folder, environment, log, seconds=self._seconds)
            kernel = cast("TaskKernel", await stack.enter_async_context(started))
            kernel.session = session
            return kernel, stack.pop_all()
        raise AssertionError("unreachable")
