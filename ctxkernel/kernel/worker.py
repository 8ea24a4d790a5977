"""The background worker of Async handles: it prepares, the tick applies (seed 002 §6.2)."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

from ctxkernel.core.nodes import ViewHandle
from ctxkernel.core.nodes.base import digest_hash
from ctxkernel.core.scheduler import ReadyQueue, UpdatePayload


class Worker:
    """Renders views on one thread of its own and puts the results into the ready queue."""

    def __init__(self, ready: ReadyQueue) -> None:
        self._ready = ready
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: set[str] = set()
        self._ids = itertools.count(1)

    def prepare(self, node: ViewHandle) -> None:
        """Begin to render `node` as it is now, unless that is under way."""
        if node.obj_id in self._under_way:
            return
        self._under_way.add(node.obj_id)
        if self._pool is None:  # a thread only for those who use it
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="ctxkernel prepare")
        self._pool.submit(self._run, node, node.obj_id, node.basis())

    def _run(self, node: ViewHandle, obj_id: str, basis: dict[str, str]) -> None:
        try:
            start = time.perf_counter()
            data = node.prepare()
            cost = {"time_ms": round((time.perf_counter() - start) * 1000, 3), "bytes": float(len(data[1].text))}
            payload_hash = digest_hash({"text": data[1].text, "basis": basis})
            self._ready.put(
                UpdatePayload(f"p{next(self._ids)}", obj_id, time.time(), basis, "render", data, cost, payload_hash)
            )
        finally:
            self._under_way.discard(obj_id)

    def close(self) -> None:
        """Drop what waits; what runs is not waited for."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
