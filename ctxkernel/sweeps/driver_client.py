"""The kernel's end of a driver: starts the process, hands it tasks, and returns its messages.

Rule: the driver ends when its input ends: when this object is closed, or the kernel ends.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctxkernel.core.errors import CtxError
from ctxkernel.sweeps.worker import SECRET

_START_SECONDS = 120.0
_END_SECONDS = 20.0


class DriverClient:
    """A running driver. Raises CtxError if it does not start."""

    def __init__(
        self, *, scheduler: str | None, workers: int, memory: int, key: bytes, variables: Mapping[str, str]
    ) -> None:
        """Start it with these environment variables, which its own workers inherit."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the driver
        options = {"scheduler": scheduler, "workers": workers, "memory": memory}
        environment = {**variables}
        if scheduler is None:
            environment[SECRET] = key.hex()  # the workers are children of the driver
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*_own_folder(), environment.get("PYTHONPATH")]))
        self._process = subprocess.Popen(  # noqa: S603  our own module
            [sys.executable, "-P", "-m", "ctxkernel.sweeps.driver", json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            env=environment,
            start_new_session=True,  # an interrupt of the kernel is not one of the workers
        )
        self._secret = "" if scheduler is None else key.hex()
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="ctxkernel-sweep", daemon=True).start()
        self.workers = 0
        try:
            first = self.next(_START_SECONDS)
            if first is None or "ready" not in first:
                told = (
                    "the cluster did not start" if scheduler is None else f"the scheduler {scheduler} does not answer"
                )
                raise CtxError(f"{told}: {(first or {}).get('fault') or self._last_line()}")
            self.workers = first["ready"]
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                self._lines.put(json.loads(line))
        self._lines.put(None)

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise CtxError(f"the driver of the sweep has ended: {self._last_line()}") from None

    def submit(self, key: str, sealed: bytes) -> None:
        """Have a task run; `next` returns its result."""
        head = json.dumps({"key": key, **({"secret": self._secret} if self._secret else {})}).encode()
        self._send({"submit": key, "task": base64.b64encode(head + b"\n" + sealed).decode()})

    def describe(self, store: str, probe: str) -> dict[str, dict[str, Any]]:
        """Return the result of `worker.describe` of each worker. Raises CtxError."""
        self._send({"describe": [store, probe]})
        while (found := self.next(_START_SECONDS)) is not None:
            if "described" in found:
                return {name: json.loads(base64.b64decode(one)) for name, one in found["described"].items()}
        raise CtxError("the workers did not say which packages they have; are any there?")

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message; None if none comes within that time. Raises CtxError if the driver has ended."""
        try:
            message = self._lines.get(timeout=seconds)
        except queue.Empty:
            return None
        if message is None:
            self._lines.put(None)
            raise CtxError(f"the driver of the sweep has ended: {self._last_line()}")
        if "workers" in message:
            self.workers = message["workers"]
        return message

    def _last_line(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._log.seek(0)
            lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
            return lines[-1][:300] if lines else "it wrote no reason"
        return "it wrote no reason"

    def close(self) -> None:
        """End the driver and its workers."""
        process = self._process
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._log.close()


def _own_folder() -> list[str]:
    """Return the folder of this package if it is not installed, so that the driver and its workers find it."""
    folder = str(Path(__file__).resolve().parents[2])
    return [folder] if "site-packages" not in folder else []
