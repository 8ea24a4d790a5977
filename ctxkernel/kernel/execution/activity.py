"""Tells whether user code ran that no cell shows: threads, tasks, callbacks, widgets, silent requests, typed commands.

Rule: whatever is not known to be idle counts as having run.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import threading
from typing import Any

from ctxkernel.state.ambient.process import is_own_thread

_TASKS = frozenset(("tornado", "zmq", "ipykernel", "IPython", "jupyter_client", "ctxkernel"))
"""Packages whose tasks are on the event loop in every kernel."""
_CALLBACKS = _TASKS | {"asyncio", "_asyncio"}
"""Packages whose callbacks are; asyncio's own are steps of tasks."""
_PROMPTS = frozenset(("cmd", "code"))
"""Modules that ask for code and run it: `cmd` is below each debugger, `code` is `code.interact`."""
_MOST = 30
"""Coroutines, or functions of a callback, that are examined."""


class Activity:
    """Tells what ran since the last call. Made on the main thread, before the user's first cell."""

    def __init__(self) -> None:
        self._first = {thread.ident for thread in threading.enumerate()}
        self._seen: dict[int, int | None] = {}
        """Thread → nanoseconds that it has run; None if that cannot be told."""
        self._noted = ""
        """What was noted since the last call."""
        self._waited = False
        """Whether something of the user's was on the event loop at the last call."""
        self.silent = False
        """Whether a silent request ran code since this was reset."""

    def message(self) -> None:
        """Note that a front end's message ran a callback."""
        self._noted = "a widget's callback ran"

    def asked(self) -> None:
        """Note that a line of input is asked for: a debugger or a console runs it as code."""
        frame = inspect.currentframe()
        while frame is not None:
            if frame.f_globals.get("__name__") in _PROMPTS:
                self._noted = "code was typed at a prompt"
            frame = frame.f_back

    def ran(self) -> str:
        """Return what ran since the last call, or may have; empty for nothing."""
        reason, self._noted = self._noted, ""
        before, now = self._seen, dict[int, int | None]()
        for thread in threading.enumerate():
            if thread.ident not in self._first and thread.native_id and not is_own_thread(thread):
                time = now[thread.native_id] = _run_time(thread.native_id)
                if time is None or time != before.get(thread.native_id, 0):
                    reason = reason or "a thread ran"
        self._seen = now
        if before.keys() - now.keys():
            reason = reason or "a thread ran"
        waits = _something_waits()
        if waits or self._waited:
            reason = reason or "an asyncio task may have run"
        self._waited = waits
        return reason


def _something_waits() -> bool:
    """Return whether the event loop has a task or a callback that is not the kernel's."""
    if "asyncio" not in sys.modules:
        return False
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return False
    running = asyncio.current_task(loop)
    for task in asyncio.all_tasks(loop):
        if task is not running and _awaits_foreign(task.get_coro()):
            return True
    for handle in (*getattr(loop, "_scheduled", ()), *getattr(loop, "_ready", ())):
        if not handle.cancelled() and _calls_foreign(handle):
            return True
    return False


def _awaits_foreign(code: Any) -> bool:
    """Return whether a coroutine, or one that it waits for, is of another module than the kernel's."""
    for _ in range(_MOST):
        frame = getattr(code, "cr_frame", None)
        if frame is None:
            break
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _TASKS:
            return True
        code = code.cr_await
    return False


def _calls_foreign(handle: Any) -> bool:
    """Return whether a handle calls a function of another module than the kernel's, or passes one on."""
    todo = [handle._callback, *filter(callable, handle._args or ())]
    for _ in range(_MOST):
        if not todo:
            break
        code = todo.pop()
        if isinstance(code, functools.partial):
            todo += code.func, *filter(callable, code.args)
            continue
        module = getattr(code, "__module__", None) or type(getattr(code, "__self__", code)).__module__
        if str(module).partition(".")[0] not in _CALLBACKS:
            return True
    return False


def _run_time(native: int) -> int | None:
    try:
        with open(f"/proc/self/task/{native}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
