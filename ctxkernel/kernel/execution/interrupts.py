"""Signals: they may interrupt the user's code, and never ours.

ipykernel lets KeyboardInterrupt rise anywhere while a request is handled; one that comes between the cell and its
reply loses the reply, or the kernel. Here the default handler of SIGINT is in force only while the user's code runs;
at all other times, a handler is installed that only records the signal. The default is the C handler, since a Python
one leaves its frame in tracebacks.

A handler of the user's for another signal (SIGALRM with `setitimer`) may raise as well. While our code runs, the
signal is noted, and the handler is called as soon as our code is done. Blocking the signal would not help: another
thread of the process would receive it, and Python calls the handler on the main thread all the same.
"""

from __future__ import annotations

import _thread
import importlib
import inspect
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

_OTHERS = tuple(int(number) for number in signal.valid_signals() if number != signal.SIGINT)
_ASYNCIO = "asyncio.unix_events"
"""The module of asyncio's handler, which does nothing: asyncio reads signals from a descriptor."""
# The functions of `signal` convert enums at each call; at four calls a cell that takes as long as a commit.
_signal: Any = importlib.import_module("_signal")
get_handler: Callable[[int], Any] = _signal.getsignal
set_handler: Callable[[int, Any], Any] = _signal.signal


class Interrupts:
    """Decides when signals may raise."""

    def __init__(self) -> None:
        self.pending = False
        self.seen = False
        """Whether a SIGINT came since `watch` was switched on."""
        self.busy = False
        """Whether an execute request is being handled."""
        self._watched = False
        self.on_note: Callable[[], None] | None = None
        """Called in the signal handler when a SIGINT is noted, so it may only wake another thread."""
        self.held: dict[int, Callable[[int, Any], Any]] = {}
        """Signal → the user's handler, while the signal is only noted."""
        self._holds = False
        """Whether all handlers that existed when our code began are held."""
        self._due: dict[int, None] = {}
        """The signals that came meanwhile."""
        self._raised: list[BaseException] = []
        """Exceptions that handlers raised at the moment of their replacement."""

    @staticmethod
    def can_switch() -> bool:
        """Return whether this thread may set handlers: Python allows it on the main thread only."""
        return threading.current_thread() is threading.main_thread()

    def _note(self, signum: int, frame: Any) -> None:
        self.pending = True
        if self.on_note is not None:
            self.on_note()

    def _defer(self, signum: int, frame: Any) -> None:
        self._due[signum] = None

    def watch(self, *, on: bool) -> None:
        """Record from now on whether a SIGINT comes, even if the user's code catches it; or stop recording."""
        self._watched = on
        if on:
            self.seen = False

    @property
    def none_came(self) -> bool:
        """Return whether surely no SIGINT came: a KeyboardInterrupt was raised by the code itself."""
        return self._watched and not self.seen

    def _raise(self, signum: int, frame: Any) -> None:
        __tracebackhide__ = True
        self.seen = True
        raise KeyboardInterrupt

    @property
    def masked(self) -> bool:
        """Return whether interrupts are only noted now."""
        return get_handler(signal.SIGINT) == self._note

    def mask(self) -> Any:
        """Only note signals from now on. Return the previous handler of SIGINT."""
        while True:  # a signal that comes during the switch still raises
            try:
                self.hold()
                return set_handler(signal.SIGINT, self._note)
            except KeyboardInterrupt:
                self.pending = True
            except BaseException as fault:  # raised by a handler of the user's
                self._raised.append(fault)

    def hold(self) -> None:
        """Only note signals with a handler of the user's from now on, except SIGINT."""
        if self._holds:
            return
        handlers = [*map(get_handler, _OTHERS)]
        for number, handler in zip(_OTHERS, handlers, strict=True) if any(map(callable, handlers)) else ():
            if callable(handler) and handler != self._defer and getattr(handler, "__module__", "") != _ASYNCIO:
                self.held[number] = handler
                set_handler(number, self._defer)
        self._holds = True

    def release(self) -> None:
        """Put the user's handlers back in force."""
        self._holds = False
        while self.held:
            number, handler = self.held.popitem()
            if get_handler(number) == self._defer:
                set_handler(number, handler)

    def unmask(self) -> None:
        """Let signals raise from now on; noted signals take effect at once, by their handlers."""
        set_handler(signal.SIGINT, self._raise if self._watched else signal.default_int_handler)
        self.release()
        if self.pending:  # checked last: a signal noted just before the switch is not lost
            self.pending = False
            self.seen = True
            raise KeyboardInterrupt
        while self._due:
            self._call(self._due.popitem()[0])

    @contextmanager
    def user_code(self) -> Generator[None]:
        """Let interrupts raise inside this context, and only there."""
        if not self.can_switch():
            yield
            return
        try:
            self.unmask()
            yield
        finally:
            self.mask()

    def deliver(self) -> list[tuple[str, BaseException]]:
        """Call the handlers of the signals that came while our code ran; return what they raised, by signal."""
        raised: list[tuple[str, BaseException]] = []
        while self._raised:
            raised.append(("a signal", self._raised.pop(0)))
        while self._due:
            number = self._due.popitem()[0]
            try:
                self._call(number)
            except BaseException as fault:  # the user's handler may raise anything
                raised.append((signal.Signals(number).name, fault))
        return raised

    def _call(self, number: int) -> None:
        handler: Any = self.held.get(number) or get_handler(number)
        if callable(handler):
            handler(number, inspect.currentframe())

    def from_handler(self, fault: BaseException) -> bool:
        """Return whether a signal handler of the user's raised `fault`."""
        handlers = {*self.held.values(), *map(get_handler, _OTHERS)}
        codes = {id(code) for one in handlers if (code := getattr(one, "__code__", None)) is not None}
        trace = fault.__traceback__
        while trace is not None:
            if id(trace.tb_frame.f_code) in codes:
                return True
            trace = trace.tb_next
        return False


class Timeout:
    """The time-out of a cell: sends SIGINT to this process after so many seconds, and knows that it did.

    There is at most one timer, for the cell that runs.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.timer: threading.Timer | None = None
        """Runs while the cell does."""
        self._lock = threading.Lock()
        self._fired: float | None = None

    def start(self) -> None:
        """Start the timer for a cell, if a time-out is set."""
        self._fired = None
        if self.seconds is not None:
            timer = self.timer = threading.Timer(self.seconds, lambda: self._fire(timer))
            timer.daemon = True
            timer.start()

    def _fire(self, timer: threading.Timer) -> None:
        with self._lock:  # else a cell that ends at this moment passes its interrupt on to the next one
            if self.timer is not timer:
                return
            self._fired = self.seconds
            if os.name == "posix":
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                _thread.interrupt_main()

    def stop(self) -> float | None:
        """End the timer with its cell. Return the time-out in seconds if it ended the cell, else None."""
        if self.timer is None:
            return None
        with self._lock:
            self.timer.cancel()
            self.timer = None
        return self._fired
