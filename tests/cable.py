"""A network cable between a browser and its server: it can be cut for as long as a test wants."""

from __future__ import annotations

import contextlib
import socket
import threading


class Cable:
    """Forwards connections to a local port. While it is cut, open connections are gone and new ones are refused."""

    def __init__(self, port: int) -> None:
        self.server_port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.ends: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return  # closed
            try:
                far = socket.create_connection(("127.0.0.1", self.server_port), timeout=30)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self.lock:
                if self.is_cut:
                    near.close()
                    far.close()
                    continue
                self.ends |= {near, far}
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        self._drop({source, target})

    def _drop(self, ends: set[socket.socket]) -> None:
        with self.lock:
            self.ends -= ends
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        with self.lock:
            self.is_cut = True
            ends = set(self.ends)
        self._drop(ends)

    def mend(self) -> None:
        """Accept connections again."""
        self.is_cut = False

    def close(self) -> None:
        """Stop for good."""
        self.cut()
        self.listener.close()
