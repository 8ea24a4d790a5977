"""The types of a sweep's table in the panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class SweepValue(TypedDict):
    """A value of a parameter or a collected variable; `number` is null if it is no finite number."""

    text: str
    number: float | None


class SweepLine(TypedDict):
    """A combination. `values` are those of the parameters, then of the collected variables, in the order of the names.

    `branch` is an argument of `%ctx goto`, null if there is no state; `seconds` and `cpu` include shared cells.
    """

    values: Sequence[SweepValue]
    status: str
    why: str
    branch: str | None
    seconds: float
    cpu: float
    diverged: bool
    output: str


class SweepProgress(TypedDict):
    """How far a running sweep is."""

    done: int
    tasks: int
    workers: int


class SweepEntry(TypedDict):
    """A sweep of the session, by the execution that swept."""

    execution_id: str
    told: str


class SweepTables(TypedDict):
    """The table of a sweep: `of` is the execution that swept; `more` rows are left out."""

    sweeps: Sequence[SweepEntry]
    of: str
    parameters: Sequence[str]
    collected: Sequence[str]
    rows: Sequence[SweepLine]
    more: int
    progress: SweepProgress | None
