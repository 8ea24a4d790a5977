"""The background workers: they prepare payloads, which the tick applies (seed 002 §6.2).

Rule 1: a worker gets jobs, never nodes; the result of a job is a payload, or nothing.
Rule 2: a job that the last tick did not want is given up: it leaves the queue, or its result is dropped.
Rule 3: nobody waits for a worker but a re-run, and that for seconds. One that hangs is reported, and another one
        replaces it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.jobs import Job, PreparedRendering
from ctxkernel.core.nodes.node_base import digest_hash
from ctxkernel.core.scheduler import ReadyQueue, UpdatePayload

WORKERS = 3
"""One for each kind of slow work, and one for renderings."""
MOST_THREADS = 8
"""Including threads that hang: if so many sources hang, no other one is prepared."""
_SLOW = ("index", "other")
HANGS_SECONDS = 30.0
"""A job without progress for so long is reported, and its thread no longer counts."""
PAYLOAD_CHARS = 8 << 20
"""Longest accepted rendering; no budget that a model could use allows more."""

JobKey = tuple[str, ...]


@dataclass(slots=True)
class _Running:
    jobs: list[Job]
    """Each gets the result of the first: other views of the same huge file."""
    since: float
    """Monotonic time of its last progress, in seconds."""
    stop: threading.Event = field(default_factory=threading.Event)
    told: bool = False


class Worker:
    """Runs jobs on a few threads of its own and puts the results into the ready queue."""

    def __init__(self, ready: ReadyQueue) -> None:
        self._ready = ready
        self._changed = threading.Condition()
        # The condition's lock protects all of these; it is never held while a source is read.
        self._queued: OrderedDict[JobKey, list[Job]] = OrderedDict()
        self._running: dict[JobKey, _Running] = {}
        self._given_up: list[_Running] = []
        self._idle = 0
        self._threads = 0
        self._closed = False
        self._ids = itertools.count(1)

    def want(self, jobs: Sequence[Job]) -> list[str]:
        """Run these jobs, and give up all others. Return one notice for each job that hangs."""
        if not jobs and not self._queued and not self._running:
            return []
        now = time.monotonic()
        wanted: dict[JobKey, list[Job]] = {}
        for job in jobs:
            wanted.setdefault(job.key, []).append(job)
        with self._changed:
            if self._closed:
                return []
            waiting = self._ready.waiting()
            for key in [key for key in self._queued if key not in wanted]:
                del self._queued[key]
            for key in [key for key in self._running if key not in wanted]:
                self._running[key].stop.set()
                self._given_up.append(self._running.pop(key))
            for key, same in wanted.items():
                if key in self._running:
                    self._running[key].jobs = same  # the views may have changed
                # A result that no tick has taken yet is good enough.
                elif lacking := [job for job in same if (job.obj_id, job.kind) not in waiting]:
                    self._queued[key] = lacking  # replaces an older job, which has an older source
            hanging = [one for one in self._running.values() if now - one.since >= HANGS_SECONDS]
            lost = len(hanging) + sum(now - one.since >= HANGS_SECONDS for one in self._given_up)
            room = min(MOST_THREADS, WORKERS + lost) - self._threads
            for _ in range(min(room, len(self._queued) - self._idle)):
                self._start()
            self._changed.notify(len(self._queued))
        notices: list[str] = []
        for one in hanging:
            if not one.told:
                one.told = True
                job = one.jobs[0]
                way = f"{job.obj_id}.pause()" if job.preparation is None else f"to delete {job.obj_id}"
                notices.append(
                    f"{job.obj_id} ({job.label}) has been prepared in the background for {now - one.since:.0f} s; "
                    f"it stays as it is meanwhile. {way} gives up"
                )
        return notices

    def wait(self, seconds: float) -> None:
        """Wait until all jobs have their results, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queued and not self._running, seconds)

    def _start(self) -> None:
        # A daemon thread, not a pool: Python waits for a pool at exit, and so for a rendering that hangs.
        threading.Thread(target=self._work, name="ctxkernel prepare", daemon=True).start()
        self._threads += 1

    def _next(self) -> _Running | None:
        with self._changed:
            self._idle += 1
            while (key := self._choice()) is None and not self._closed:
                self._changed.wait()
            self._idle -= 1
            if key is None or self._closed:
                return None
            self._running[key] = running = _Running(self._queued.pop(key), time.monotonic())
            return running

    def _choice(self) -> JobKey | None:
        """Return the oldest rendering, else slow work, one job of each kind at a time: a huge index takes minutes."""
        busy = {one.jobs[0].kind for one in (*self._running.values(), *self._given_up)}
        later: JobKey | None = None
        for key, jobs in self._queued.items():
            if jobs[0].kind not in _SLOW:
                return key
            if jobs[0].kind not in busy:
                later = later or key
        return later

    def _work(self) -> None:
        while (running := self._next()) is not None:
            self._run(running)
            del running  # else its source would live until the next job

    def _run(self, running: _Running) -> None:
        job, start = running.jobs[0], time.perf_counter()

        def publish(data: Any) -> None:
            running.since = time.monotonic()
            if data is None:
                return
            with self._changed:
                for taker in running.jobs if not running.stop.is_set() else ():
                    self._ready.put(self._payload(taker, data, time.perf_counter() - start))

        try:
            data = job.run(running.stop.is_set, publish)
            if isinstance(data, PreparedRendering) and len(data.rendered.text) > PAYLOAD_CHARS:
                raise BadPolicy(
                    f"{job.obj_id} is {len(data.rendered.text):,} characters long; set {job.obj_id}.tokens to less"
                )
        except BaseException as fault:  # the tick reports it, as for a Sync view
            data = fault.with_traceback(None)  # its frames hold the source
        with self._changed:  # publish and remove at once: a job added in between would get nothing
            publish(data)
            if self._running.get(job.key) is running:
                del self._running[job.key]
            else:
                self._given_up = [one for one in self._given_up if one is not running]
            self._changed.notify_all()  # slow work may begin when a job of its kind has ended

    def _payload(self, job: Job, data: Any, seconds: float) -> UpdatePayload:
        text = data.rendered.text if isinstance(data, PreparedRendering) else ""
        cost = {"time_ms": round(seconds * 1000, 3), "bytes": float(len(text.encode("utf-8", "replace")))}
        payload_hash = "" if isinstance(data, BaseException) else digest_hash({"text": text, "basis": dict(job.basis)})
        return UpdatePayload(
            f"p{next(self._ids)}", job.obj_id, time.time(), job.basis, job.kind, data, cost, payload_hash
        )

    def close(self) -> None:
        """Give up all jobs, and accept no more; wait for no thread."""
        with self._changed:
            self._closed = True
            self._queued.clear()
            for one in self._running.values():
                one.stop.set()
            self._changed.notify_all()
