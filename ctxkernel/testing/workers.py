"""Background workers without threads: one that does its jobs at once, and one that does them when a test says so."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ctxkernel.core.jobs import Job
from ctxkernel.core.scheduler import ReadyQueue, UpdatePayload


class HeldJobs:
    """Holds what the last tick wanted; `finish` does one of it."""

    def __init__(self, ready: ReadyQueue) -> None:
        self.ready = ready
        self.jobs: list[Job] = []
        self._same: dict[tuple[str, ...], list[Job]] = {}
        self._ids = itertools.count(1)

    def want(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Hold these jobs, and those only; one that was held already stays as it is."""
        held = {job.key: job for job in self.jobs}
        self._same = {}
        for job in jobs:
            self._same.setdefault(job.key, []).append(job)
        self.jobs = [held.get(key, same[0]) for key, same in self._same.items()]
        return ()

    def finish(self, number: int = 0) -> None:
        """Do a held job, counted round from the oldest; its payload is ready for the next tick."""
        if self.jobs:
            self.put(job := self.jobs.pop(number % len(self.jobs)), run(job))

    def put(self, job: Job, data: Any) -> None:
        """Have `data` ready as what came of `job`, for every view that it is made for."""
        for one in self._same.get(job.key, [job]):
            self.ready.put(UpdatePayload(f"p{next(self._ids)}", one.obj_id, 0.0, one.basis, one.kind, data))


class AtOnce(HeldJobs):
    """Does every job when it is wanted."""

    def want(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Do all jobs."""
        super().want(jobs)
        for job in self.jobs:
            self.put(job, run(job))
        self.jobs = []
        return ()


def run(job: Job) -> Any:
    """Return what a worker's payload would hold: the result, or what was raised."""
    try:
        return job.run()
    except Exception as fault:
        return fault
