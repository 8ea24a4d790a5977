"""The types of the sweeps of a session in the panel; the table itself has those of `sweeps.shown_table`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ctxkernel.sweeps.shown_table import ShownSweep


class SweepProgress(TypedDict):
    """The progress of a running sweep."""

    done: int
    tasks: int
    workers: int


class SweepEntry(TypedDict):
    """A sweep of the session, by the execution that swept."""

    execution_id: str
    told: str


class SweepTables(ShownSweep):
    """The table of a sweep: `of` is the execution that swept."""

    sweeps: Sequence[SweepEntry]
    of: str
    progress: SweepProgress | None
