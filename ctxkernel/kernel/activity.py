"""Whether code of the user's ran that no cell shows: threads, asyncio tasks, callbacks of widgets.

Rule: what is not known to be idle counts as having run.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import Any

_OWN = ("IPythonHistorySavingThread", "IOPub", "Heartbeat", "Control", "ctxkernel", "pydevd")
"""Beginnings of the names of threads of the kernel and of IPython."""


class Activity:
    """What ran since it was asked last. Made on the main thread, before the user's first cell."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._first = {thread.ident for thread in threading.enumerate()}
        self._seen: dict[int, int | None] = {}
        """Thread → nanoseconds that it has run; None where that cannot be told."""
        self._messages = 0

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
            if thread.ident not in self._first and thread.native_id and not thread.name.startswith(_OWN)
        }
        before, self._seen = self._seen, now
        if before.keys() - now.keys() or any(
            time is None or time != before.get(native, 0) for native, time in now.items()
        ):
            reason = reason or "a thread ran"
        if not reason and self._tasks():
            reason = "an asyncio task may have run"
        return reason

    def _tasks(self) -> bool:
        """Say whether the event loop has a task or a callback of the user's."""
        if "asyncio" not in sys.modules:
            return False
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            if any(self._is_own(task.get_coro()) for task in asyncio.all_tasks(loop)):
                return True
            waiting = (*getattr(loop, "_scheduled", ()), *getattr(loop, "_ready", ()))
            return any(self._is_own(getattr(one, "_callback", None)) for one in waiting)
        return False

    def _is_own(self, code: Any) -> bool:
        frame = getattr(code, "cr_frame", None)
        if frame is not None:
            return frame.f_globals is self._namespace
        return getattr(code, "__globals__", None) is self._namespace


def _run_time(native: int) -> int | None:
    try:
        with open(f"/proc/self/task/{native}/schedstat", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
