"""The background worker of Async handles: it prepares, the tick applies (seed 002 §6.2)."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from queue import Empty, SimpleQueue

from ctxkernel.core.nodes import ViewHandle
from ctxkernel.core.nodes.base import digest_hash
from ctxkernel.core.scheduler import ReadyQueue, UpdatePayload

Job = tuple[ViewHandle, dict[str, str]]


class Worker:
    """Renders views on one thread of its own and puts the results into the ready queue."""

    def __init__(self, ready: ReadyQueue) -> None:
        self._ready = ready
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._under_way: set[str] = set()
        self._ids = itertools.count(1)

    def prepare(self, node: ViewHandle) -> None:
        """Begin to render `node` as it is now, unless that is under way."""
        if node.obj_id in self._under_way:
            return
        if self._thread is None:  # a thread only for those who use it
            # A daemon, not a pool: at its end Python waits for a pool, and with it for a rendering that hangs.
            thread = threading.Thread(target=self._work, name="ctxkernel prepare", daemon=True)
            thread.start()
            self._thread = thread
        self._under_way.add(node.obj_id)
        self._jobs.put((node, node.basis()))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._run(*job)
            del job  # or the handle would live until the next one comes

    def _run(self, node: ViewHandle, basis: dict[str, str]) -> None:
        start = time.perf_counter()
        size = 0
        try:
            data = node.prepare()
            size = len(data[1].text)
            payload_hash = digest_hash({"text": data[1].text, "basis": basis})
        except BaseException as fault:  # the tick tells it, as it does for a Sync view; the next handle waits
            data, payload_hash = fault, ""
        cost = {"time_ms": round((time.perf_counter() - start) * 1000, 3), "bytes": float(size)}
        self._ready.put(
            UpdatePayload(f"p{next(self._ids)}", node.obj_id, time.time(), basis, "render", data, cost, payload_hash)
        )
        self._under_way.discard(node.obj_id)

    def close(self) -> None:
        """End after what runs now; it is not waited for."""
        with contextlib.suppress(Empty):
            while True:
                self._jobs.get_nowait()
        self._jobs.put(None)
