"""Signals: the user's code can be interrupted by them, ours cannot.

ipykernel lets KeyboardInterrupt rise anywhere while a request is handled; one that hits between the cell and its
reply loses the reply, or the kernel. Here the default handler of SIGINT is in force only while the user's code runs,
and a handler that just takes a note otherwise. It is the C handler, since a Python one leaves its frame in tracebacks.

A handler of the user's for another signal (SIGALRM with `setitimer`) may raise as well. While our code runs a note is
taken in its place, and the handler is called as soon as our code is done. Blocking the signal would not do: another
thread of the process would get it, and Python calls the handler on the main thread all the same.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - what `signal` itself imports
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

_OTHERS = tuple(int(number) for number in signal.valid_signals() if number != signal.SIGINT)
_ASYNCIO = "asyncio.unix_events"
"""Its own handler does nothing: it learns by a descriptor which signal came."""
# Those of `signal` look two enums up at each call; at four calls a cell that takes as long as a commit.
get_handler: Callable[..., Any] = _signal.getsignal
set_handler: Callable[..., Any] = _signal.signal


class Interrupts:
    """Says when signals may raise."""

    def __init__(self) -> None:
        self.pending = False
        self.seen = False
        """Whether a SIGINT came since somebody began to watch."""
        self.busy = False
        """Whether an execute request is being handled."""
        self._watched = False
        self.on_note: Callable[[], None] | None = None
        """What else is to be done where one is noted: in the signal handler, so no more than to wake somebody."""
        self._held: dict[int, Callable[[int, Any], Any]] = {}
        """Signal → the user's handler, while a note is taken in its place."""
        self._holds = False
        """Whether that is so for all that there were when our code began."""
        self._due: dict[int, None] = {}
        """The signals that came meanwhile."""
        self._raised: list[BaseException] = []
        """What handlers raised in the moment in which they were replaced."""

    @staticmethod
    def can_switch() -> bool:
        """Whether this thread may set handlers: Python allows it on the main one only."""
        return threading.current_thread() is threading.main_thread()

    def _note(self, signum: int, frame: Any) -> None:
        self.pending = True
        if self.on_note is not None:
            self.on_note()

    def _defer(self, signum: int, frame: Any) -> None:
        self._due[signum] = None

    def watch(self, *, on: bool) -> None:
        """Remember from now on whether a SIGINT comes, also where the user's code catches it; or no longer."""
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
        return get_handler(signal.SIGINT) == self._note

    @property
    def held(self) -> bool:
        """Whether there are handlers of the user's, in whose place a note is taken now."""
        return bool(self._held)

    def mask(self) -> Any:
        """Only take a note of signals from now on. Returns the handler of SIGINT before."""
        while True:  # one that comes in the very moment of the switch still raises
            try:
                self.hold()
                return set_handler(signal.SIGINT, self._note)
            except KeyboardInterrupt:
                self.pending = True
            except BaseException as fault:  # out of a handler of the user's
                self._raised.append(fault)

    def hold(self) -> None:
        """Only take a note of signals with a handler of the user's from now on, but for SIGINT."""
        if self._holds:
            return
        for number in _OTHERS:
            handler = get_handler(number)
            if callable(handler) and handler != self._defer and getattr(handler, "__module__", "") != _ASYNCIO:
                self._held[number] = handler
                set_handler(number, self._defer)
        self._holds = True

    def release(self) -> None:
        """Put the user's handlers back in force."""
        self._holds = False
        while self._held:
            number, handler = self._held.popitem()
            if get_handler(number) == self._defer:
                set_handler(number, handler)

    def unmask(self) -> None:
        """Let signals raise from now on; those that were noted raise at once, as their handlers will have it."""
        set_handler(signal.SIGINT, self._raise if self._watched else signal.default_int_handler)
        self.release()
        if self.pending:  # looked at last: one that is noted just before the switch is not lost
            self.pending = False
            self.seen = True
            raise KeyboardInterrupt
        while self._due:
            self._call(self._due.popitem()[0])

    def deliver(self) -> list[tuple[str, BaseException]]:
        """Call the handlers of the signals that came while our code ran; returns what they raised, by signal."""
        raised: list[tuple[str, BaseException]] = [("a signal", fault) for fault in self._raised]
        self._raised.clear()
        while self._due:
            number = self._due.popitem()[0]
            try:
                self._call(number)
            except BaseException as fault:  # a handler of the user's: whatever it raises
                raised.append((signal.Signals(number).name, fault))
        return raised

    def _call(self, number: int) -> None:
        handler: Any = self._held.get(number) or get_handler(number)
        if callable(handler):
            handler(number, sys._getframe(1))

    def from_handler(self, fault: BaseException) -> bool:
        """Whether a handler of the user's for a signal raised `fault`."""
        handlers = {*self._held.values(), *map(get_handler, _OTHERS)}
        codes = {id(code) for one in handlers if (code := getattr(one, "__code__", None)) is not None}
        trace = fault.__traceback__
        while trace is not None:
            if id(trace.tb_frame.f_code) in codes:
                return True
            trace = trace.tb_next
        return False
