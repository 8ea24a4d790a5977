"""stdout and stderr at the file-descriptor level: output of C code and of subprocesses belongs to its cell.

ipykernel replaces fd 1 and 2 by pipes, which a thread reads. When a cell ends, that thread may still have bytes to
deliver, which would count for the next cell. The reader here tells when it is done.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any

if os.name == "posix":
    import fcntl
    import termios

CHUNK = 64 * 1024
DRAIN_SECONDS = 0.5
"""Longest wait for a pipe at the end of a cell: a child that keeps writing must not delay it."""


class WatchedPipe:
    """Reads one of ipykernel's pipes instead of its own thread, and knows when the pipe is empty."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.fid: int = stream._fid
        self.busy = False
        self._read = 0
        self._idle = threading.Condition()

    @classmethod
    def adopt(cls, stream: Any) -> WatchedPipe | None:
        """Take over the pipe of an ipykernel stream; return None if it watches none."""
        thread = getattr(stream, "watch_fd_thread", None)
        if not getattr(stream, "_should_watch", False) or thread is None or not thread.is_alive():
            return None
        stream._should_watch = False
        os.write(stream._original_stdstream_fd, b"\0")  # wakes the old reader, which then ends
        thread.join(timeout=2)
        if thread.is_alive():
            return None
        stream._should_watch = True
        pipe = cls(stream)
        stream.watch_fd_thread = threading.Thread(target=pipe._watch, name=f"ctxkernel {stream.name} fd", daemon=True)
        stream.watch_fd_thread.start()
        return pipe

    def _watch(self) -> None:
        stream = self._stream
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        poll = select.poll()
        poll.register(self.fid, select.POLLIN)
        try:
            while True:
                poll.poll()
                # Set before the bytes leave the pipe: `drain` checks in the opposite order.
                self.busy = True
                data = os.read(self.fid, CHUNK)
                if not data or not stream._should_watch:
                    return
                # Everything read is delivered, except a character split at its end, which is delivered later.
                stream.write(decoder.decode(data))
                os.write(stream._original_stdstream_copy, data)
                with self._idle:
                    self._read += len(data)
                    self.busy = False
                    self._idle.notify_all()
        except Exception:  # as in ipykernel's reader: its close() reports the exception
            stream._exc = sys.exc_info()
        finally:
            self.busy = False

    def drain(self) -> None:
        """Wait until the present content of the pipe has been delivered. A microsecond if it is empty."""
        pending = _pending(self.fid)
        if not pending and not self.busy:
            return
        end = time.monotonic() + DRAIN_SECONDS
        with self._idle:
            target = self._read + pending
            while (self.busy or self._read < target) and time.monotonic() < end:
                if not self._stream.watch_fd_thread.is_alive():
                    return
                self._idle.wait(0.02)
                if self._read >= target and not self.busy:
                    return


_is_busy = attrgetter("busy")


def _pending(fd: int) -> int:
    """Return the number of bytes in a pipe."""
    try:
        return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]
    except OSError:
        return 0


def _libc_flush() -> Any:
    """Return a function that flushes C's own stdout, or None if there is none."""
    if os.name != "posix":
        return None
    try:
        libc = ctypes.CDLL(None)
        name = "__stdoutp" if sys.platform == "darwin" else "stdout"
        stdout = ctypes.c_void_p.in_dll(libc, name)
        flush = libc.fflush
        flush.argtypes = [ctypes.c_void_p]
    except (OSError, ValueError, AttributeError):
        return None
    try:
        # Called with the GIL held, as it never waits; `fflush` may, and releases the GIL: a switch of threads.
        held = getattr(ctypes.PyDLL(None), "__fpending")
        held.argtypes, held.restype = [ctypes.c_void_p], ctypes.c_size_t
    except (OSError, AttributeError):  # not glibc or musl
        return lambda: flush(stdout)
    return lambda: flush(stdout) if held(stdout) else None


class CheapFlush:
    """Makes `flush()` of an ipykernel stream cheap if there is nothing to flush.

    A flush wakes the I/O thread twice and waits for it, and ipykernel flushes both streams twice a cell, while most
    cells print nothing. A message on its way to IOPub counts as something: the flush remains a barrier for it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread = stream.pub_thread
        self._busy = 0
        self._stock_flush = stream.flush
        self._stock_send = stream._flush
        stream._flush = self._send
        stream.flush = self.flush

    def _send(self) -> None:
        # Increased before the buffers are emptied, decreased after they were sent: see `flush`.
        self._busy += 1
        try:
            self._stock_send()
        finally:
            self._busy -= 1

    def flush(self) -> None:
        """Flush, unless all written text has been sent. The order of the checks matters."""
        if self._stream._buffers or self._thread._events or self._busy:
            self._stock_flush()

    def settle(self) -> None:
        """Flush if written text has not been captured yet; other messages of the cell have been."""
        if self._stream._buffers or self._busy:
            self._stock_flush()


class Streams:
    """Has all output of a cell captured before the cell ends."""

    def __init__(self) -> None:
        self._pipes: list[WatchedPipe] = []
        self._poll: Any = None
        """Checks all pipes for content at once."""
        self._stock: list[tuple[str, Any, Callable[[], None]]] = []
        """The names of the streams, the stock streams, and functions that have their text captured."""
        self._c_flush = _libc_flush()

    def install(self) -> None:
        """Take over the pipes of sys.stdout and sys.stderr, if ipykernel watches any."""
        if os.name == "posix":
            for stream in (sys.stdout, sys.stderr):
                pipe = WatchedPipe.adopt(stream)
                if pipe is not None:
                    self._pipes.append(pipe)
                    self._poll = self._poll or select.poll()
                    self._poll.register(pipe.fid, select.POLLIN)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if hasattr(stream, "_flush") and hasattr(stream, "_buffers") and hasattr(stream.pub_thread, "_events"):
                self._stock.append((name, stream, CheapFlush(stream).settle))
            elif stream is not None:
                self._stock.append((name, stream, stream.flush))

    def settle(self) -> None:
        """Deliver the output that C code, children and Python still buffer."""
        if self._c_flush is not None and self._pipes:
            self._c_flush()
        # Check the pipes first, then the readers: a reader sets `busy` before it empties its pipe.
        if self._pipes and (self._poll.poll(0) or True in map(_is_busy, self._pipes)):
            for pipe in self._pipes:
                pipe.drain()
        for name, stock, settle in self._stock:
            now = getattr(sys, name, None)
            if now is not stock and now is not None:
                with contextlib.suppress(Exception):  # the user's own stream may lack flush, or be closed
                    now.flush()
            if not stock.closed:
                settle()
