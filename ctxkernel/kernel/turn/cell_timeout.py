"""The time-out of a cell: SIGINT to ourselves after so many seconds, and a mark that it was us."""

from __future__ import annotations

import _thread
import os
import signal
import threading


class Timeout:
    """At most one timer, for the cell that runs."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._fired: float | None = None

    def start(self) -> None:
        """Begin to count for a cell, where a time-out is set."""
        self._fired = None
        if self.seconds is not None:
            timer = self._timer = threading.Timer(self.seconds, lambda: self._fire(timer))
            timer.daemon = True
            timer.start()

    def _fire(self, timer: threading.Timer) -> None:
        with self._lock:  # or a cell that ends in this moment hands its interrupt to the next one
            if self._timer is not timer:
                return
            self._fired = self.seconds
            if os.name == "posix":
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                _thread.interrupt_main()

    def stop(self) -> float | None:
        """The cell has ended. Returns the time-out in seconds if it was what ended it, else None."""
        if self._timer is None:
            return None
        with self._lock:
            self._timer.cancel()
            self._timer = None
        return self._fired
