"""stdout and stderr at the file-descriptor level, so that output of C code and of subprocesses lands in its cell.

ipykernel swaps fd 1 and 2 for pipes and lets a thread read them. When a cell ends, that thread may still
have bytes to deliver, and they would count for the next cell. The reader here says when it is done.
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
from typing import Any

if os.name == "posix":
    import fcntl
    import termios

CHUNK = 64 * 1024
DRAIN_SECONDS = 0.5
"""Longest wait for a pipe at the end of a cell: a child that keeps writing must not hold it up."""


class WatchedPipe:
    """Reads one of ipykernel's pipes in the place of its own thread, and knows when it is empty."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._fid: int = stream._fid
        self._busy = False
        self._read = 0
        self._idle = threading.Condition()

    @classmethod
    def adopt(cls, stream: Any) -> WatchedPipe | None:
        """Take over the pipe of an ipykernel stream, or None where it watches none."""
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
        poll.register(self._fid, select.POLLIN)
        try:
            while True:
                poll.poll()
                # Set before the bytes leave the pipe: see `drain`, which looks in the other order.
                self._busy = True
                data = os.read(self._fid, CHUNK)
                if not data or not stream._should_watch:
                    return
                # What is there is delivered whole, a character split at its end with what follows.
                stream.write(decoder.decode(data))
                os.write(stream._original_stdstream_copy, data)
                with self._idle:
                    self._read += len(data)
                    self._busy = False
                    self._idle.notify_all()
        except Exception:  # as ipykernel's reader: its close() shows what ended this thread
            stream._exc = sys.exc_info()
        finally:
            self._busy = False

    def drain(self) -> None:
        """Wait until what is in the pipe now has been delivered. A microsecond where it is empty."""
        pending = _pending(self._fid)
        if not pending and not self._busy:
            return
        end = time.monotonic() + DRAIN_SECONDS
        with self._idle:
            target = self._read + pending
            while (self._busy or self._read < target) and time.monotonic() < end:
                if not self._stream.watch_fd_thread.is_alive():
                    return
                self._idle.wait(0.02)
                if self._read >= target and not self._busy:
                    return


def _pending(fd: int) -> int:
    """Return how many bytes wait in a pipe."""
    try:
        return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]
    except OSError:
        return 0


def _libc_flush() -> Any:
    """Return a function that flushes C's own stdout, or None where it cannot be had."""
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
    return lambda: flush(stdout)


class CheapFlush:
    """Makes `flush()` of an ipykernel stream cost nothing where nothing is to be flushed.

    A flush wakes the I/O thread twice and waits for it, and ipykernel flushes both streams twice a cell, while most
    cells print nothing. What is in flight to IOPub still counts as something: the flush stays a barrier for it.
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
        # Raised before the buffers are emptied, lowered after they were sent: see `flush`.
        self._busy += 1
        try:
            self._stock_send()
        finally:
            self._busy -= 1

    def flush(self) -> None:
        """Flush, unless all that was written has been sent. The order of the looks matters."""
        if self._stream._buffers or self._thread._events or self._busy:
            self._stock_flush()


class Streams:
    """Brings all output of a cell to the tap before the cell ends."""

    def __init__(self) -> None:
        self._pipes: list[WatchedPipe] = []
        self._stock: tuple[Any, Any] = (None, None)
        self._c_flush = _libc_flush()

    def install(self) -> None:
        """Take over the pipes of sys.stdout and sys.stderr, where ipykernel watches any."""
        if os.name == "posix":
            for stream in (sys.stdout, sys.stderr):
                pipe = WatchedPipe.adopt(stream)
                if pipe is not None:
                    self._pipes.append(pipe)
        self._stock = (sys.stdout, sys.stderr)
        for stream in self._stock:
            if hasattr(stream, "_flush") and hasattr(stream, "_buffers") and hasattr(stream.pub_thread, "_events"):
                CheapFlush(stream)

    def settle(self) -> None:
        """Deliver what C code, children and Python still hold."""
        if self._c_flush is not None and self._pipes:
            self._c_flush()
        for pipe in self._pipes:
            pipe.drain()
        for now, stock in zip((sys.stdout, sys.stderr), self._stock, strict=True):
            if now is not stock and now is not None:
                with contextlib.suppress(Exception):  # the user put it there: it may lack flush, or be closed
                    now.flush()
            if stock is not None and not stock.closed:
                stock.flush()
