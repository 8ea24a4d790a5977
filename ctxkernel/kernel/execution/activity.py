"""Tells whether code of the user's ran that no cell shows: threads, tasks and callbacks, widgets, silent requests.

Rule: what is not known to be idle counts as having run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

_OWN = ("IPythonHistorySavingThread", "IOPub", "Heartbeat", "Control", "ctxkernel", "pydevd")
"""Beginnings of the names of threads of the kernel and of IPython."""
_POLLER = "ipykernel.parentpoller"
"""Its thread looks every second whether the parent lives; it has no name of its own."""
_TASKS = frozenset(("tornado", "zmq", "ipykernel", "IPython", "jupyter_client", "ctxkernel"))
"""Packages whose tasks are on the event loop in every kernel."""
_CALLBACKS = _TASKS | {"asyncio", "_asyncio"}
"""Those whose callbacks are; asyncio's own are steps of tasks."""
_MOST = 30
"""How far into what a callback calls, or a coroutine waits for, is looked."""


class Activity:
    """Tells what ran since it was asked last. Made on the main thread, before the user's first cell."""

    def __init__(self) -> None:
        self._first = {thread.ident for thread in threading.enumerate()}
        self._seen: dict[int, int | None] = {}
        """Thread → nanoseconds that it has run; None where that cannot be told."""
        self._messages = 0
        self._waited = False
        """Whether something of the user's was on the event loop when it was asked last."""
        self.silent = False
        """Whether a silent request ran code since this was taken back."""

    def message(self) -> None:
        """Note that a front end's message ran a callback."""
        self._messages += 1

    def ran(self) -> str:
        """Return what ran since the last call, or may have; empty for nothing."""
        reason = ""
        if self._messages:
            self._messages, reason = 0, "a widget's callback ran"
        now = {
            thread.native_id: _run_time(thread.native_id)
            for thread in threading.enumerate()
            if thread.ident not in self._first and thread.native_id and not _is_kernels(thread)
        }
        before, self._seen = self._seen, now
        if before.keys() - now.keys() or any(
            time is None or time != before.get(native, 0) for native, time in now.items()
        ):
            reason = reason or "a thread ran"
        waits = _something_waits()
        if waits or self._waited:
            reason = reason or "an asyncio task may have run"
        self._waited = waits
        return reason


def _is_kernels(thread: threading.Thread) -> bool:
    return thread.name.startswith(_OWN) or type(thread).__module__ == _POLLER


def _something_waits() -> bool:
    """Say whether the event loop has a task or a callback that is not the kernel's."""
    if "asyncio" not in sys.modules:
        return False
    with contextlib.suppress(RuntimeError):
        loop = asyncio.get_running_loop()
        running = asyncio.current_task(loop)
        tasks = (_awaited(task.get_coro()) for task in asyncio.all_tasks(loop) if task is not running)
        if any(_is_foreign(task, _TASKS) for task in tasks):
            return True
        handles: Any = (*getattr(loop, "_scheduled", ()), *getattr(loop, "_ready", ()))
        return any(_is_foreign(_called(one), _CALLBACKS) for one in handles if not one.cancelled())
    return False


def _awaited(code: Any) -> Iterator[Any]:
    """Yield the module of a coroutine, and those of what it waits for."""
    while (frame := getattr(code, "cr_frame", None)) is not None:
        yield frame.f_globals.get("__name__")
        code = code.cr_await


def _called(handle: Any) -> Iterator[Any]:
    """Yield the modules of what a handle calls: of the function, and of functions that it is given."""
    todo = [handle._callback, *(one for one in handle._args or () if callable(one))]
    while todo:
        code = todo.pop()
        if isinstance(code, functools.partial):
            todo += code.func, *filter(callable, code.args)
        else:
            yield getattr(code, "__module__", None) or type(getattr(code, "__self__", code)).__module__


def _is_foreign(modules: Iterator[Any], known: frozenset[str]) -> bool:
    return any(str(one).partition(".")[0] not in known for one in islice(modules, _MOST))


def _run_time(native: int) -> int | None:
    try:
        with open(f"/proc/self/task/{native}/schedstat", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
