"""Background workers without threads: one runs its jobs at once, the other when a test calls `finish`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ctxkernel.core.jobs import Job
from ctxkernel.core.scheduler import ReadyQueue, UpdatePayload


class HeldJobs:
    """Holds the jobs of the last tick; `finish` runs one of them."""

    def __init__(self, ready: ReadyQueue) -> None:
        self.ready = ready
        self.jobs: list[Job] = []
        self._same: dict[tuple[str, ...], list[Job]] = {}
        self._ids = itertools.count(1)

    def want(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Hold these jobs only; a job that is already held stays."""
        held = {job.key: job for job in self.jobs}
        self._same = {}
        for job in jobs:
            self._same.setdefault(job.key, []).append(job)
        self.jobs = [held.get(key, same[0]) for key, same in self._same.items()]
        return ()

    def finish(self, number: int = 0) -> None:
        """Run a held job, counted from the oldest, modulo their number; the next tick applies its payload."""
        if self.jobs:
            self.put(job := self.jobs.pop(number % len(self.jobs)), run(job))

    def put(self, job: Job, data: Any) -> None:
        """Provide `data` as the result of `job`, for each of its views."""
        for one in self._same.get(job.key, [job]):
            self.ready.put(UpdatePayload(f"p{next(self._ids)}", one.obj_id, 0.0, one.basis, one.kind, data))


class AtOnce(HeldJobs):
    """Runs every job at once."""

    def want(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Run all jobs."""
        super().want(jobs)
        for job in self.jobs:
            self.put(job, run(job))
        self.jobs = []
        return ()


def run(job: Job) -> Any:
    """Return the content of a worker's payload: the result, or the exception."""
    try:
        return job.run()
    except Exception as fault:
        return fault
