"""SIGINT: the user's code can be interrupted, ours cannot.

ipykernel lets KeyboardInterrupt rise anywhere while a request is handled; one that hits between the cell and its
reply loses the reply, or the kernel. Here the default handler is in force only while the user's code runs, and a
handler that just takes a note otherwise. It is the C handler, since a Python one leaves its frame in tracebacks.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


class Interrupts:
    """Says when SIGINT may raise."""

    def __init__(self) -> None:
        self.pending = False
        self.seen = False
        """Whether one came since somebody began to watch."""
        self._watched = False
        self.on_note: Callable[[], None] | None = None
        """What else is to be done where one is noted: in the signal handler, so no more than to wake somebody."""

    @staticmethod
    def can_switch() -> bool:
        """Whether this thread may set handlers: Python allows it on the main one only."""
        return threading.current_thread() is threading.main_thread()

    def _note(self, signum: int, frame: Any) -> None:
        self.pending = True
        if self.on_note is not None:
            self.on_note()

    def watch(self, *, on: bool) -> None:
        """Remember from now on whether one comes, also where the user's code catches it; or no longer."""
        self._watched = on
        if on:
            self.seen = False

    @property
    def none_came(self) -> bool:
        """Whether it is known that none came: what looks like one was raised by the code itself."""
        return self._watched and not self.seen

    def _raise(self, signum: int, frame: Any) -> None:
        __tracebackhide__ = True
        self.seen = True
        raise KeyboardInterrupt

    @property
    def masked(self) -> bool:
        """Whether interrupts are only noted now."""
        return signal.getsignal(signal.SIGINT) == self._note

    def mask(self) -> Any:
        """Only take a note of interrupts from now on. Returns the handler before."""
        while True:  # one that comes in the very moment of the switch still raises
            try:
                return signal.signal(signal.SIGINT, self._note)
            except KeyboardInterrupt:
                self.pending = True

    def unmask(self) -> None:
        """Let interrupts raise from now on. Raises KeyboardInterrupt at once for one that was noted."""
        pending, self.pending = self.pending, False
        signal.signal(signal.SIGINT, self._raise if self._watched else signal.default_int_handler)
        if pending:
            self.seen = True
            raise KeyboardInterrupt
